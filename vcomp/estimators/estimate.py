"""What an estimation leaves: numbers on the scale of the data, and how they were reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, Json

__all__ = ["Certificate", "Estimate"]


@dataclass(frozen=True, slots=True)
class Certificate:
    """The numbers that show that an iteration has ended at a maximum.

    Attributes
    ----------
    free : components estimated above zero
    bounded : components estimated at their bound, zero
    bound_scores : the score of each bounded component; negative means that the likelihood falls
        from zero on
    kkt_residual : the largest violation of the first-order conditions, with every score multiplied
        by its component (for a bounded one by the total variance), so that it has no unit
    newton_decrement : √(s' I⁻¹ s) on the free components: how far the maximum is, in standard
        errors
    information_eigenvalues : of the observed information of the free components scaled to a unit
        diagonal; all positive at a proper maximum
    iterations, evaluations : steps taken, and evaluations of the likelihood
    """

    free: tuple[str, ...]
    bounded: tuple[str, ...]
    bound_scores: dict[str, float]
    kkt_residual: float
    newton_decrement: float
    information_eigenvalues: tuple[float, ...]
    iterations: int
    evaluations: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """Variance components and fixed effects of one method.

    Attributes
    ----------
    method : ``"anova"``, ``"reml"`` or ``"ml"``
    names : the components, the residual last
    values : (k + 1,) their estimates
    covariances : covariance matrices of the estimates by kind: ``"observed"``, ``"expected"`` and
        ``"average"`` for likelihood methods, ``"sampling"`` for ANOVA; nan where a component is at
        its bound. The first is the one used for standard errors
    beta, cov_beta : fixed effects (of X as given, not centred) and their covariance matrix
    llf : log-likelihood, nan for ANOVA
    converged : whether the result can be relied on as what the method defines
    status : a sentence about it
    engine : which engine computed it, and why
    certificate : for likelihood methods, else None
    """

    method: str
    names: tuple[str, ...]
    values: FloatArray
    covariances: dict[str, FloatArray]
    beta: FloatArray
    cov_beta: FloatArray
    llf: float
    converged: bool
    status: str
    engine: str
    certificate: Certificate | None = None

    def to_json(self) -> Json:
        """Return plain lists and dicts that :meth:`from_json` reads again."""
        certificate = self.certificate
        return {
            "method": self.method,
            "names": list(self.names),
            "values": self.values.tolist(),
            "covariances": {kind: _plain(c) for kind, c in self.covariances.items()},
            "beta": self.beta.tolist(),
            "cov_beta": _plain(self.cov_beta),
            "llf": None if np.isnan(self.llf) else self.llf,
            "converged": self.converged,
            "status": self.status,
            "engine": self.engine,
            "certificate": None
            if certificate is None
            else {name: getattr(certificate, name) for name in Certificate.__slots__},
        }

    @classmethod
    def from_json(cls, stored: Json) -> Estimate:
        """Return what :meth:`to_json` stored."""
        certificate: dict[str, Any] | None = stored["certificate"]
        if certificate is not None:
            certificate = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in certificate.items()
            }
        k, p = len(stored["names"]), len(stored["beta"])
        return cls(
            method=stored["method"],
            names=tuple(stored["names"]),
            values=np.array(stored["values"], dtype=float),
            covariances={
                kind: np.array(c, dtype=float).reshape(k, k)
                for kind, c in stored["covariances"].items()
            },
            beta=np.array(stored["beta"], dtype=float),
            cov_beta=np.array(stored["cov_beta"], dtype=float).reshape(p, p),
            llf=np.nan if stored["llf"] is None else stored["llf"],
            converged=stored["converged"],
            status=stored["status"],
            engine=stored["engine"],
            certificate=None if certificate is None else Certificate(**certificate),
        )


def _plain(matrix: FloatArray) -> list[list[float | None]]:
    return [[None if np.isnan(x) else float(x) for x in row] for row in matrix]

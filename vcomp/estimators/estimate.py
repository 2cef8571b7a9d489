"""What an estimation leaves: numbers on the scale of the data, and how they were reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, Json
from vcomp.components import without_bounds_from_json, without_bounds_to_json
from vcomp.estimators.certificate import Certificate
from vcomp.estimators.fixed_errors import FixedErrors
from vcomp.estimators.maximise import Iteration

__all__ = ["Certificate", "Estimate", "Iteration", "Point"]


@dataclass(frozen=True, slots=True)
class Point:
    """What is estimated, without how well it is known: all that a resample needs.

    Attributes
    ----------
    values : (k + 1,) components, the residual last
    beta : (p,) fixed effects of the columns of X as they are in the statistics
    converged : whether it is what the method defines
    """

    values: FloatArray
    beta: FloatArray
    converged: bool = True


@dataclass(frozen=True, slots=True)
class Estimate:
    """Variance components and fixed effects of one method.

    Attributes
    ----------
    method : its name, such as ``"reml"``
    names : the components, the residual last
    values : (k + 1,) their estimates
    covariances : covariance matrices of the estimates by kind: ``"observed"``, ``"expected"`` and
        ``"average"`` for likelihood methods, ``"sampling"`` for ANOVA; nan where a component is at
        its bound or held. The first is the one used for standard errors
    beta, cov_beta : fixed effects (of X as given, not centred) and their covariance matrix
    llf : log-likelihood, nan for ANOVA
    converged : whether the result can be relied on as what the method defines
    status : a sentence about it
    engine : which engine computed it, and why
    certificate : for likelihood methods, else None
    held : components that were given, not estimated
    log : the points of the iteration, the start first; empty for closed forms
    seconds : of each stage
    monte_carlo : of each component the standard error that random probes give it; empty where the
        engine has none
    llf_error : the same of the log-likelihood
    covariance_error : where a covariance matrix is by Monte Carlo the standard error of each
        component's standard error, relative to it; empty where the matrices are exact
    fixed_errors : degrees of freedom of the fixed effects; None where there are none
    without_bounds : where a likelihood has components at their bound, what the estimates would be
        without bounds, and their covariance matrix; else None
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
    held: tuple[str, ...] = ()
    log: tuple[Iteration, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    monte_carlo: Mapping[str, float] = field(default_factory=dict)
    llf_error: float = 0.0
    covariance_error: Mapping[str, float] = field(default_factory=dict)
    without_bounds: tuple[FloatArray, FloatArray] | None = None
    fixed_errors: FixedErrors | None = None

    def with_seconds(self, stages: Mapping[str, float]) -> Estimate:
        """Return the same estimate with the seconds of earlier stages before its own."""
        seconds, certificate = {**stages, **self.seconds}, self.certificate
        if certificate is not None:
            certificate = replace(certificate, seconds=seconds)
        return replace(self, seconds=seconds, certificate=certificate)

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
            "llf": _number(self.llf),
            "converged": self.converged,
            "status": self.status,
            "engine": self.engine,
            "certificate": None if certificate is None else asdict(certificate),
            "held": list(self.held),
            "log": [_entry(point) for point in self.log],
            "seconds": dict(self.seconds),
            "monte_carlo": dict(self.monte_carlo),
            "llf_error": self.llf_error,
            "fixed_errors": None if self.fixed_errors is None else self.fixed_errors.to_json(),
            "covariance_error": {n: _number(e) for n, e in self.covariance_error.items()},
            "without_bounds": without_bounds_to_json(self.without_bounds),
        }

    @classmethod
    def from_json(cls, stored: Json) -> Estimate:
        """Return what :meth:`to_json` stored; format 1 ended with the certificate."""
        k, p = len(stored["names"]), len(stored["beta"])
        certificate = stored["certificate"]
        if certificate is not None:
            # Format 1 did not say it twice.
            certificate = {"at_maximum": stored["converged"], **certificate}
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
            llf=_or_nan(stored["llf"]),
            converged=stored["converged"],
            status=stored["status"],
            engine=stored["engine"],
            certificate=None if certificate is None else Certificate(**_tuples(certificate)),
            held=tuple(stored.get("held", ())),
            log=tuple(Iteration(**_tuples(_with_nan(p))) for p in stored.get("log", ())),
            seconds=dict(stored.get("seconds", {})),
            monte_carlo=dict(stored.get("monte_carlo", {})),
            llf_error=stored.get("llf_error", 0.0),
            fixed_errors=FixedErrors.from_json(stored.get("fixed_errors"), k, p),
            covariance_error={
                n: _or_nan(e) for n, e in stored.get("covariance_error", {}).items()
            },
            without_bounds=without_bounds_from_json(stored.get("without_bounds")),
        )


def _entry(point: Iteration) -> Json:
    plain: Json = {f.name: getattr(point, f.name) for f in fields(point)}
    return plain | {name: _number(plain[name]) for name in ("fraction", "loglike")}


def _with_nan(entry: Json) -> Json:
    return entry | {name: _or_nan(entry[name]) for name in ("fraction", "loglike")}


def _tuples(plain: Json) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in plain.items()}


def _number(value: float) -> float | None:
    return None if np.isnan(value) else value


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def _plain(matrix: FloatArray) -> list[list[float | None]]:
    return [[None if np.isnan(x) else float(x) for x in row] for row in matrix]

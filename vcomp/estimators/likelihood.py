"""REML and ML: start, maximum, certificate, standard errors."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.blocked import BlockedLikelihood
from vcomp.estimators.engine import LikelihoodEngine
from vcomp.estimators.estimate import Certificate, Estimate
from vcomp.estimators.maximise import Maximum, maximise
from vcomp.exceptions import EstimationError
from vcomp.statistics import CrossProducts

__all__ = ["ML", "REML"]

_EXACT_FIT = 1e-13
"""y'Qy below this share of y'y is rounding: the fixed part reproduces the response."""


@dataclass(frozen=True, slots=True)
class REML:
    """Restricted maximum likelihood (Patterson & Thompson 1971).

    Attributes
    ----------
    max_iter : steps at most
    tol : Newton decrement, in standard errors, at which the iteration ends

    Raises
    ------
    EstimationError
        If `max_iter` is not a whole number from 0 on, or `tol` not between 0 and 1.
    """

    max_iter: int = 200
    tol: float = 1e-10
    name: ClassVar[str] = "reml"

    def __post_init__(self) -> None:
        _check_options(self.max_iter, self.tol)

    def estimate(self, stats: CrossProducts, names: tuple[str, ...]) -> Estimate:
        """Return the estimate from the statistics alone."""
        return _estimate(
            BlockedLikelihood(stats, reml=True), names, max_iter=self.max_iter, tol=self.tol
        )


@dataclass(frozen=True, slots=True)
class ML:
    """Maximum likelihood; components are biased down by the estimation of the fixed effects.

    Attributes
    ----------
    max_iter, tol : as for :class:`REML`
    """

    max_iter: int = 200
    tol: float = 1e-10
    name: ClassVar[str] = "ml"

    def __post_init__(self) -> None:
        _check_options(self.max_iter, self.tol)

    def estimate(self, stats: CrossProducts, names: tuple[str, ...]) -> Estimate:
        """Return the estimate from the statistics alone."""
        return _estimate(
            BlockedLikelihood(stats, reml=False), names, max_iter=self.max_iter, tol=self.tol
        )


def _check_options(max_iter: int, tol: float) -> None:
    if not isinstance(max_iter, Integral) or isinstance(max_iter, bool) or max_iter < 0:
        raise EstimationError(f"max_iter is a whole number from 0 on, not {max_iter!r}")
    if not isinstance(tol, Real) or isinstance(tol, bool) or not 0.0 < tol < 1.0:
        raise EstimationError(f"tol is a number between 0 and 1, not {tol!r}")


def _estimate(
    likelihood: LikelihoodEngine, names: tuple[str, ...], *, max_iter: int, tol: float
) -> Estimate:
    if likelihood.rss <= _EXACT_FIT * likelihood.yy or likelihood.yy == 0.0:
        return _no_variance(likelihood, names)
    sizes = np.array([*likelihood.sizes, likelihood.n], dtype=float)
    start = _start(likelihood)
    try:
        found = maximise(likelihood, start, sizes, max_iter=max_iter, tol=tol)
    except np.linalg.LinAlgError:
        raise EstimationError(_SINGULAR) from None
    if found.v[-1] <= 1e-10 * likelihood.rss / likelihood.n:
        raise EstimationError(_SINGULAR)
    observed = likelihood.information(found.v, "observed", positive_only=True)
    average = likelihood.information(found.v, "average")
    informations = {
        "observed": observed,
        "expected": 2.0 * average - observed,
        "average": average,
    }
    order = ("observed", "expected", "average")
    positive = found.v > 0.0
    solution = likelihood.solution(found.v)
    return Estimate(
        method="reml" if likelihood.reml else "ml",
        names=names,
        values=found.v,
        covariances={kind: _covariance(informations[kind], positive) for kind in order},
        beta=solution.beta,
        cov_beta=solution.cov_beta,
        llf=found.loglike,
        converged=found.converged,
        status=_status(found, names, max_iter),
        engine=f"{likelihood.name}: {likelihood.reason}",
        certificate=_certificate(found, names, observed, positive),
    )


_SINGULAR = (
    "the random and fixed effects reproduce the response exactly: no variance is left for the "
    "residual, and the likelihood has no maximum; use method='anova', or leave out a term"
)


def _start(likelihood: LikelihoodEngine) -> FloatArray:
    """Return MIVQUE(0) estimates, those that are not clearly positive raised to be so."""
    total = likelihood.rss / max(likelihood.n - likelihood.n_fixed, 1)
    return np.maximum(likelihood.mivque0(), 0.01 * total / (len(likelihood.sizes) + 1))


def _covariance(information: FloatArray, positive: BoolArray) -> FloatArray:
    """Invert on the components above zero; nan where one is at its bound or it is not positive."""
    covariance = np.full_like(information, np.nan)
    block = information[np.ix_(positive, positive)]
    scale = np.sqrt(np.abs(np.diagonal(block)))
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = block / np.outer(scale, scale)
    if np.isfinite(scaled).all() and np.linalg.eigvalsh(scaled)[0] > 0.0:
        inverse = np.linalg.inv(scaled) / np.outer(scale, scale)
        covariance[np.ix_(positive, positive)] = inverse
    return covariance


def _certificate(
    found: Maximum, names: tuple[str, ...], observed: FloatArray, positive: BoolArray
) -> Certificate:
    block = observed[np.ix_(positive, positive)]
    scale = np.sqrt(np.abs(np.diagonal(block)))
    eigenvalues = np.linalg.eigvalsh(block / np.outer(scale, scale))
    return Certificate(
        free=tuple(n for n, p in zip(names, positive, strict=True) if p),
        bounded=tuple(n for n, p in zip(names, positive, strict=True) if not p),
        bound_scores={
            n: float(s) for n, s, p in zip(names, found.score, positive, strict=True) if not p
        },
        kkt_residual=found.kkt_residual,
        newton_decrement=found.newton_decrement,
        information_eigenvalues=tuple(float(e) for e in eigenvalues),
        iterations=found.iterations,
        evaluations=found.evaluations,
    )


def _status(found: Maximum, names: tuple[str, ...], max_iter: int) -> str:
    if not found.converged:
        reason = (
            f"the limit of {max_iter} steps was reached; raise max_iter"
            if found.iterations >= max_iter
            else "no step raises the likelihood any more"
        )
        return f"Not converged: {reason} (Newton decrement {found.newton_decrement:.1e})."
    at_zero = [
        f"σ²({name}) is estimated at its bound 0 (score there {score:.3g})"
        for name, value, score in zip(names, found.v, found.score, strict=True)
        if value == 0.0
    ]
    return f"Converged; {'; '.join(at_zero)}." if at_zero else "Converged."


def _no_variance(likelihood: LikelihoodEngine, names: tuple[str, ...]) -> Estimate:
    """Return zeros for a response that the fixed part reproduces, a constant above all."""
    k, p = len(names), likelihood.n_fixed
    what = "The response is constant" if likelihood.yy == 0.0 else "The fixed part fits exactly"
    beta = likelihood.least_squares()
    nothing = np.full((k, k), np.nan)
    return Estimate(
        method="reml" if likelihood.reml else "ml",
        names=names,
        values=np.zeros(k),
        covariances=dict.fromkeys(("observed", "expected", "average"), nothing),
        beta=beta,
        cov_beta=np.zeros((p, p)),
        llf=np.inf,
        converged=True,
        status=f"{what}: all components are 0, and nothing can be said about their error.",
        engine="none: there is nothing to estimate",
    )

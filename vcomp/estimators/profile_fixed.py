"""Profile likelihood of a fixed effect, or of any linear combination of them, by ML.

With l'β = b one column of X is a multiple of the others and of b: the model is one for y − b x/l
with that column left out, whose statistics are linear combinations of those at hand. No row is
looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.blocked import BlockedLikelihood
from vcomp.estimators.engine import LikelihoodEngine
from vcomp.estimators.maximise import maximise
from vcomp.estimators.profile_constraints import Limits
from vcomp.estimators.profile_curve import (
    ProfileCurve,
    check_engine,
    checked_maximum,
    signed_root,
    trace_curve,
)
from vcomp.estimators.profile_trace import Coordinate, Trace, Visit
from vcomp.estimators.strata import StrataLikelihood
from vcomp.exceptions import EstimationError, check_alpha
from vcomp.statistics import CrossProducts
from vcomp.statistics.strata import GroupedColumns, Stratum, StratumStatistics

__all__ = ["profile_fixed_effect"]


def profile_fixed_effect(
    engine: LikelihoodEngine,
    v_hat: FloatArray,
    combination: FloatArray,
    *,
    offset: float = 0.0,
    held: BoolArray | None = None,
    alpha: float = 0.05,
    name: str = "combination",
    points: int = 9,
) -> ProfileCurve:
    """Return the profile of l'β + offset by maximum likelihood.

    Parameters
    ----------
    engine : full likelihood with an exact value, made from strata or cross-products
    v_hat : (k + 1,) components at its maximum
    combination : (p,) l, for the columns of X as the engine has them, centred
    offset : what centring took from it
    held : (k + 1,) components that were not estimated
    alpha : the interval has confidence 1 − alpha
    name : for messages and frames
    points : between the ends, for plots, in addition to those that the search visits

    Raises
    ------
    PlanError
        If alpha is not between 0 and 1.
    EstimationError
        If the likelihood is restricted or not exact, the components are no maximum of it, or the
        combination is all zeros.
    """
    check_alpha(alpha)
    check_engine(engine)
    if engine.reml:
        raise EstimationError(
            f"the restricted likelihood does not contain the fixed effects, so that {name} has no "
            "profile by REML; fit with method='ml', or use a Wald interval"
        )
    if not combination.any():
        raise EstimationError(f"{name} is 0 whatever the fixed effects are: it has no profile")
    known = np.zeros(v_hat.size, dtype=bool) if held is None else held
    here = checked_maximum(engine, v_hat, known)
    effect = _Effect(engine, combination, offset, known, here.loglike)
    estimate, variance = effect.generalised(v_hat)
    deviation = float(np.sqrt(variance))
    effect.estimate = estimate
    limits = Limits(-np.inf, np.inf)
    scale = Coordinate(-np.inf, np.inf, estimate, deviation, 0.0, 0.0)
    start = Visit(estimate, 0.0, 0.0, v_hat, None)
    trace = Trace(effect.visit, lambda side: None, lambda theta, near: None, scale, [start])
    return trace_curve(trace, limits, lambda z: z, name, alpha, points)


@dataclass(slots=True)
class _Effect:
    """The profile of l'β: how a point of it is computed."""

    engine: LikelihoodEngine
    combination: FloatArray
    offset: float
    held: BoolArray
    loglike: float
    estimate: float = 0.0
    blocked: BlockedLikelihood | None = None

    def generalised(self, v: FloatArray) -> tuple[float, float]:
        """Return the estimate at components, and its variance."""
        beta, cov_beta = self.engine.fixed_effects(v)
        l = self.combination  # noqa: E741 - its letter
        return float(l @ beta) + self.offset, float(l @ cov_beta @ l)

    def visit(self, theta: float, near: Visit) -> Visit:
        """Return the point of the profile at l'β + offset = θ."""
        engine = self._engine_at(theta - self.offset)
        sizes = np.array([*engine.sizes, engine.n], dtype=float)
        found = maximise(engine, near.v, sizes, held=self.held, tol=1e-8)
        if not found.converged:
            raise EstimationError(
                f"the profile cannot be followed to {theta:.6g}: no maximum of the likelihood was "
                "found there; use a Wald interval"
            )
        z = signed_root(theta - self.estimate, self.loglike - found.loglike)
        estimate, variance = self.generalised(found.v)
        return Visit(theta, z, (estimate - theta) / variance, found.v, None)

    @property
    def _products(self) -> CrossProducts:
        assert isinstance(self.engine, BlockedLikelihood)
        return self.engine.stats

    def _engine_at(self, value: float) -> LikelihoodEngine:
        """Return the engine of the model with l'β given, its equations analysed but once."""
        if self.blocked is not None:
            columns = _columns(self.combination, value)
            return self.blocked.with_response(_of_products(self._products, columns))
        engine = engine_without(self.engine, self.combination, value)
        if isinstance(engine, BlockedLikelihood):
            self.blocked = engine
        return engine


def engine_without(
    engine: LikelihoodEngine, combination: FloatArray, value: float
) -> LikelihoodEngine:
    """Return the ML engine of the model in which l'β has a given value: one column fewer.

    Raises
    ------
    EstimationError
        If the engine is made from other sums than strata or cross-products.
    """
    columns = _columns(combination, value)
    if isinstance(engine, StrataLikelihood):
        return StrataLikelihood(_of_strata(engine.stats, columns), reml=False)
    if isinstance(engine, BlockedLikelihood):
        return BlockedLikelihood(_of_products(engine.stats, columns), reml=False)
    raise EstimationError(
        f"the {engine.name} engine has no profile of fixed effects; use engine='blocked' or a "
        "Wald interval"
    )


def _columns(combination: FloatArray, value: float) -> FloatArray:
    """Return the (1 + p, p) matrix that takes [y X] to [y* X*]: l'β = b, one β left out.

    With β_j = (b − Σ l_i β_i)/l_j:  y* = y − (b/l_j) x_j,  x_i* = x_i − (l_i/l_j) x_j.
    """
    p = combination.size
    j = int(np.argmax(np.abs(combination)))
    matrix = np.eye(1 + p)
    matrix[1 + j, 0] = -value / combination[j]
    matrix[1 + j, 1:] -= combination / combination[j]
    return np.delete(matrix, 1 + j, axis=1)


def _of_products(stats: CrossProducts, columns: FloatArray) -> CrossProducts:
    """Return the cross-products of other columns, linear in [y X]."""
    sums = [np.column_stack([Zy, ZX]) @ columns for Zy, ZX in zip(stats.Zy, stats.ZX, strict=True)]
    gram = columns.T @ _gram(stats) @ columns
    return replace(
        stats,
        Zy=tuple(np.ascontiguousarray(s[:, 0]) for s in sums),
        ZX=tuple(np.ascontiguousarray(s[:, 1:]) for s in sums),
        XX=gram[1:, 1:],
        Xy=gram[1:, 0],
        yy=float(gram[0, 0]),
    )


def _of_strata(stats: StratumStatistics, columns: FloatArray) -> StratumStatistics:
    """Return the strata of other columns, linear in [y X]."""
    gram = columns.T @ _gram(stats) @ columns
    return replace(
        stats,
        strata=tuple(_of_stratum(s, columns) for s in stats.strata),
        XX=gram[1:, 1:],
        Xy=gram[1:, 0],
        yy=float(gram[0, 0]),
        # Those of the old columns; only effects need them, and a profile has none.
        cells=None,
    )


def _of_stratum(stratum: Stratum, columns: FloatArray) -> Stratum:
    """Return a stratum of other columns: those that have a part in it."""
    here = columns[[0, *(1 + j for j in stratum.fixed)]]
    fixed = tuple(int(j) for j in np.flatnonzero(here[:, 1:].any(axis=0)))
    used = here[:, [0, *(1 + j for j in fixed)]]
    means = tuple(
        np.ascontiguousarray(np.einsum("qbr,bc->qcr", table, used))
        for table in stratum.columns.means
    )
    within = used.T @ stratum.columns.within @ used
    return replace(stratum, fixed=fixed, columns=GroupedColumns(means, within))


def _gram(stats: CrossProducts | StratumStatistics) -> FloatArray:
    top = np.concatenate([[stats.yy], stats.Xy])
    return np.vstack([top, np.column_stack([stats.Xy, stats.XX])])

"""Henderson's Method I: analysis of variance for any data (Henderson 1953).

With T_α = Σ_g S_g²/n_g over the groups of term α and T_μ = S²/N:

    E T_α = N μ² + Σ_β k_αβ σ²_β,   k_αβ = Σ_{g∈α} (1/n_g) Σ_{h∈β} n_gh²,   k_αe = q_α
    E Σy² = N μ² + N Σ_β σ²_β + N σ²_e

Balanced data give the classical estimates. The T terms are quadratic forms y'A_α y with
A_α = Z_α D_α⁻¹ Z_α', so that their covariance under normality is 2 tr(A_α V A_β V), which sparse
products give, or random probes where those are too large. See also Searle, Casella & McCulloch
(1992), section 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.estimate import Estimate, PointEstimate
from vcomp.estimators.options import check_probes
from vcomp.estimators.quadratic.sampling import Sampling, sampling_covariance
from vcomp.estimators.refit import below_zero
from vcomp.exceptions import EstimationError
from vcomp.numerics import seed_of, solve
from vcomp.statistics import GroupSums, Statistics

__all__ = [
    "ANOVA",
    "AnovaTable",
    "anova_table",
    "henderson1",
]


@dataclass(frozen=True, slots=True)
class ANOVA:
    """Henderson's Method I, for models whose mean is one constant.

    Attributes
    ----------
    n_probes : random probes for the standard errors; None makes them exact where that is
        affordable, and else takes as many as they need to be known to 1 %
    rng : seed of the probes, or a generator that it is drawn from; None is seed 0

    Raises
    ------
    EstimationError
        If there is no such number of probes or source of randomness.
    """

    n_probes: int | None = None
    rng: int | np.random.Generator | None = None
    name: ClassVar[str] = "anova"

    def __post_init__(self) -> None:
        check_probes(self.n_probes, self.rng, "auto")

    def estimate(self, stats: Statistics, names: tuple[str, ...]) -> Estimate:
        """Return the estimate from the statistics alone; components may be negative.

        Raises
        ------
        EstimationError
            If the components cannot be told apart, or `rng` is given where nothing is random.
        """
        sums = stats.group_sums
        coefficients = henderson1(sums)
        values = _components(sums, coefficients)
        sampling = self._sampling(stats, coefficients, values)
        beta, cov_beta = _mean(sums, values)
        return Estimate(
            method="anova",
            names=names,
            values=values,
            covariances={"sampling": sampling.covariance},
            beta=beta,
            cov_beta=cov_beta,
            llf=np.nan,
            converged=True,
            status=_status(names, values, sums) + sampling.sentence,
            engine="closed form: sums of squares and their expectations",
            covariance_error=sampling.errors_of(names),
        )

    def point(self, stats: Statistics, names: tuple[str, ...]) -> PointEstimate:
        """Return components and the mean alone, without the work of their standard errors.

        Raises
        ------
        EstimationError
            If the components cannot be told apart.
        """
        sums = stats.group_sums
        values = _components(sums, henderson1(sums))
        return PointEstimate(values, _mean(sums, values)[0])

    def _sampling(
        self, stats: Statistics, coefficients: FloatArray, values: FloatArray
    ) -> Sampling:
        sampling = sampling_covariance(
            stats, coefficients, values, self.n_probes, seed_of(self.rng)
        )
        if self.rng is not None and not sampling.n_probes:
            raise EstimationError(
                "rng= is the seed of random probes, and the standard errors of these data are "
                "exact without any; leave it out, or give n_probes= to have them by probes"
            )
        return sampling


@dataclass(frozen=True, slots=True)
class AnovaTable:
    """Sums of squares of the terms, each less those of the coarser terms in the model.

    Attributes
    ----------
    names : the terms, the residual last
    df, sum_sq : (k + 1,)
    expected : (k + 1, k + 1) coefficients of the components (columns) in the expected mean squares
    """

    names: tuple[str, ...]
    df: FloatArray
    sum_sq: FloatArray
    expected: FloatArray


def henderson1(sums: GroupSums) -> FloatArray:
    """Return the coefficients of E[T], less those of the mean.

    They are (k + 1, k + 1): rows are T terms (the last is the total), columns components.
    """
    k, n = sums.n_terms, float(sums.n)
    coefficients = np.empty((k + 1, k + 1))
    coefficients[:k, :k] = sums.coefficients
    coefficients[:k, k] = sums.sizes
    coefficients[k] = n
    coefficients -= np.array([*(sums.squares / n), 1.0])
    return coefficients


def adjustment(sums: GroupSums) -> FloatArray:
    """Return what of each T term, less the mean, is left after the coarser ones: (k + 1, k + 1).

    The numbers are whole: applied to which parts the terms hold, large sums of squares drop out of
    small ones exactly.
    """
    k = sums.n_terms
    rows = np.eye(k + 1)
    coarser_than = [[u for u in range(k) if u != t and sums.finer[t, u]] for t in range(k)]
    coarser_than.append(list(range(k)))
    for row in sorted(range(k + 1), key=lambda r: len(coarser_than[r])):
        for coarser in coarser_than[row]:
            rows[row] -= rows[coarser]
    return rows


def adjusted_squares(sums: GroupSums, rows: FloatArray) -> FloatArray:
    """Return combinations of the T terms less the mean, (k + 1,)."""
    squares: FloatArray = (rows @ (sums.holds[:-1] - sums.holds[-1])) @ sums.parts
    return squares


def anova_table(sums: GroupSums, names: tuple[str, ...]) -> AnovaTable:
    """Return the (analogous) analysis of variance: T terms less those of coarser terms.

    For balanced data these are the classical sums of squares. Otherwise they are what urGENOVA
    calls analogous: they need not be positive, nor independent (Brennan 2001, 7.1).
    """
    rows = adjustment(sums)
    df = rows @ (np.array([*sums.sizes, sums.n], dtype=float) - 1.0)
    squares, expected = adjusted_squares(sums, rows), rows @ henderson1(sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        return AnovaTable(
            names, df, squares, np.where(df[:, None] > 0, expected / df[:, None], np.nan)
        )


def _components(sums: GroupSums, coefficients: FloatArray) -> FloatArray:
    rows = adjustment(sums)
    return _solve(rows @ coefficients, adjusted_squares(sums, rows))


def _solve(coefficients: FloatArray, T: FloatArray) -> FloatArray:
    try:
        return solve(coefficients, T)
    except np.linalg.LinAlgError:
        raise EstimationError(
            "Henderson's Method I cannot tell these components apart: its expected sums of "
            "squares are linearly dependent; use method='reml'"
        ) from None


def _mean(sums: GroupSums, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean of all scores and its variance Σ σ² Σ n_g²/N², negative σ² as zero."""
    n = float(sums.n)
    squares = np.array([*sums.squares, n])
    return np.array([sums.total / n]), np.array([[np.maximum(values, 0.0) @ squares / n**2]])


def _status(names: tuple[str, ...], values: FloatArray, sums: GroupSums) -> str:
    if sums.yy == 0.0:
        return "The response is constant: all components are 0."
    below = below_zero(names, values)
    return f"Closed form; {below} and kept as estimated." if below else "Closed form."

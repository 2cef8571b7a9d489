"""Henderson's Method I: analysis of variance for any data (Henderson 1953).

Uncorrected sums of squares T_α = Σ_g S_g²/n_g are equated to their expectations
(docs/explanation/mathematics.md, eqs. (2.1) to (2.3)); for balanced data the estimates are the
classical ones. The analysis of variance adjusts each T for the coarser terms, eq. (2.4). The
covariance matrix of the estimates is eq. (2.6), computed in :mod:`.sampling`. See also Searle,
Casella & McCulloch (1992), section 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.estimate import Estimate, PointEstimate, Points, below_zero
from vcomp.estimators.options import check_probes
from vcomp.estimators.quadratic.sampling import Sampling, sampling_covariance
from vcomp.exceptions import EstimationError
from vcomp.numerics import seed_from, solve
from vcomp.statistics import GroupSums, Statistics

_SQUARES = 1e-20
"""Share of the largest component below which a residual from squares of deviations is rounding
error: scores have 16 digits."""


@dataclass(frozen=True, slots=True)
class ANOVA:
    """Henderson's Method I, for models whose fixed part is a constant.

    Attributes
    ----------
    n_probes : number of random probes for the standard errors; None computes them exactly if that
        is affordable, else by as many probes as reduce their Monte Carlo error to 1 %
    rng : seed of the probes, or a generator from which it is drawn; seed 0 if None

    Raises
    ------
    EstimationError
        If `n_probes` or `rng` is invalid.
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
            If the data cannot distinguish the components, or `rng` is given although the standard
            errors are exact.
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

    def prepared(self, stats: Statistics, names: tuple[str, ...]) -> Points:
        """Return the point estimates of responses of these rows, as a function of them.

        What does not depend on the response is computed once.

        Raises
        ------
        EstimationError
            If the data cannot distinguish the components.
        """
        coefficients = henderson1(stats.group_sums)

        def of(responses: Sequence[Statistics]) -> list[PointEstimate]:
            return [
                PointEstimate(
                    _components(sums, coefficients), np.array([sums.total / float(sums.n)])
                )
                for sums in (s.group_sums for s in responses)
            ]

        return of

    def _sampling(
        self, stats: Statistics, coefficients: FloatArray, values: FloatArray
    ) -> Sampling:
        sampling = sampling_covariance(
            stats, coefficients, values, self.n_probes, seed_from(self.rng)
        )
        if self.rng is not None and not sampling.n_probes:
            raise EstimationError(
                "rng= is the seed of random probes, but the standard errors of these data are "
                "computed exactly, without probes; leave it out, or give n_probes= to use probes"
            )
        return sampling


@dataclass(frozen=True, slots=True)
class AnovaTable:
    """An analysis of variance of the terms and the residual.

    Attributes
    ----------
    names : the terms, the residual last
    df, sum_sq : (k + 1,) degrees of freedom and sums of squares
    expected : (k + 1, k + 1) coefficients of the components (columns) in the expected mean squares
    """

    names: tuple[str, ...]
    df: FloatArray
    sum_sq: FloatArray
    expected: FloatArray


def henderson1(sums: GroupSums) -> FloatArray:
    """Return the coefficients K of the components in E[T − T_μ], eqs. (2.2) and (2.3).

    Rows are the T of the terms and, last, of all scores; columns are the components.
    """
    k, n = sums.n_terms, float(sums.n)
    coefficients = np.empty((k + 1, k + 1))
    coefficients[:k, :k] = sums.coefficients
    coefficients[:k, k] = sums.sizes
    coefficients[k] = n
    coefficients -= np.array([*(sums.squares / n), 1.0])
    return coefficients


def adjustment(sums: GroupSums) -> FloatArray:
    """Return the matrix that takes T − T_μ to the adjusted sums of squares of eq. (2.4).

    Its elements are whole numbers, so that the disjoint parts of the T terms cancel exactly.
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
    """Return R(T − T_μ) from the disjoint parts of the T terms, for R of whole numbers."""
    return (rows @ (sums.holds[:-1] - sums.holds[-1])) @ sums.parts


def anova_table(sums: GroupSums, names: tuple[str, ...]) -> AnovaTable:
    """Return the analysis of variance with T terms adjusted for coarser terms, eq. (2.4).

    For balanced data these are the classical sums of squares. For other data they are the
    analogous sums of squares of urGENOVA, which need not be positive or independent (Brennan 2001,
    sec. 7.1).
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
    return without_rounding(_solve(rows @ coefficients, adjusted_squares(sums, rows)), _SQUARES)


def without_rounding(values: FloatArray, share: float) -> FloatArray:
    """Return components with a residual of zero if it is a share of the largest one or less.

    Of scores that do not vary within cells it is rounding error, of either sign.
    """
    is_rounded = abs(values[-1]) <= share * np.abs(values).max()
    return np.append(values[:-1], 0.0) if is_rounded else values


def _solve(coefficients: FloatArray, T: FloatArray) -> FloatArray:
    try:
        return solve(coefficients, T)
    except np.linalg.LinAlgError:
        raise EstimationError(
            "Henderson's Method I cannot distinguish these components: its expected sums of "
            "squares are linearly dependent; use method='reml'"
        ) from None


def _mean(sums: GroupSums, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean of all scores and its variance, eq. (2.5), with negative components as 0."""
    n = float(sums.n)
    squares = np.array([*sums.squares, n])
    return np.array([sums.total / n]), np.array([[np.maximum(values, 0.0) @ squares / n**2]])


def _status(names: tuple[str, ...], values: FloatArray, sums: GroupSums) -> str:
    if sums.yy == 0.0:
        return "The response is constant: all components are 0."
    below = below_zero(names, values)
    if not below:
        return "Closed form."
    return f"Closed form; {below} and kept as estimated (zero in the error of the mean)."

"""Paired t-tests between all systems at once, swap rates, and two-way analysis of variance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.exceptions import (
    DataError,
    DesignError,
    EstimationError,
    PlanError,
    check_alpha,
    guarded,
    is_real,
    is_whole,
)
from vcomp.formula import RESIDUAL
from vcomp.gtheory import crossed_components
from vcomp.inference import LevelVariances, TwoWayMeanSquares, VarianceComponents
from vcomp.inference.intervals import two_way_level_variances
from vcomp.ir.agreement import rounding
from vcomp.ir.kernels.pair_differences import binned_differences, tail_table
from vcomp.ir.rank import centred_covariances, difference_variances
from vcomp.ir.scores import ScoreMatrix, ScoresLike, as_score_matrix, complete
from vcomp.numerics import check_count, run, seed_from
from vcomp.statistics.batches import few_values

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False)
class PairedTests:
    """Pairs of systems compared by paired t-tests.

    All pairs i < j are in the order of the rows of an upper triangle: (0, 1), (0, 2), …, (1, 2).

    Attributes
    ----------
    differences : (n_pairs,) mean of X_i - X_j; exactly zero if smaller than the rounding error
    t : (n_pairs,) √n times the mean difference over its standard deviation; where the difference
        is the same on all topics, zero if it is zero and infinite if it is not
    df : degrees of freedom, one less than the number of topics
    std_errors : (n_pairs,) of the differences
    """

    differences: FloatArray
    t: FloatArray
    df: int
    std_errors: FloatArray

    def significant(self, alpha: float) -> BoolArray:
        """Return a mask of differences that are significant at level `alpha`, two-sided."""
        return np.abs(self.t) > critical_t(alpha, self.df)

    @property
    def p_values(self) -> FloatArray:
        """Two-sided p-values."""
        from scipy.special import stdtr

        return 2.0 * stdtr(self.df, -np.abs(self.t))


def paired_tests(X: FloatArray, pairs: tuple[LongArray, LongArray] | None = None) -> PairedTests:
    """Compare systems by paired t-tests computed from one covariance matrix.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing, on at least two topics
    pairs : the systems i and j of each pair; all pairs if None
    """
    i, j = pairs_of(X.shape[1]) if pairs is None else pairs
    differences = settled(X.mean(axis=0), i, j)
    std_errors = np.sqrt(difference_variances(X, (i, j)) / len(X))
    limit = np.where(differences == 0, 0.0, np.copysign(np.inf, differences))
    t = np.divide(differences, std_errors, out=limit, where=std_errors > 0)
    return PairedTests(differences, t, len(X) - 1, std_errors)


def signs(Y: FloatArray) -> FloatArray:
    """Return the signs of differences between pairs, from scores on topics or from true means."""
    means = Y.mean(axis=0) if Y.ndim == 2 else Y
    return np.sign(settled(means, *pairs_of(means.size)))


@lru_cache(maxsize=16)
def pairs_of(n_systems: int) -> tuple[LongArray, LongArray]:
    """Return the systems of each pair."""
    i, j = np.triu_indices(n_systems, 1)
    i.flags.writeable = j.flags.writeable = False
    return i, j


def settled(means: FloatArray, i: LongArray, j: LongArray) -> FloatArray:
    """Return the differences of means of pairs, with those within rounding error set to zero."""
    differences: FloatArray = means[i] - means[j]
    differences[np.abs(differences) <= rounding(means)] = 0.0
    return differences


@lru_cache(maxsize=64)
def critical_t(alpha: float, df: int) -> float:
    """Return the two-sided critical value of t at level `alpha`."""
    from scipy.special import stdtrit

    return float(stdtrit(df, 1.0 - alpha / 2.0))


def between(differences: FloatArray, lower: float, upper: float) -> BoolArray:
    """Return a mask of absolute differences in a bin; zeros are in no bin."""
    return np.asarray(bin_places(differences, np.array([lower, upper])) == 1)


def check_bin(lower: float, upper: float) -> None:
    """Refuse empty bins of differences.

    Raises
    ------
    PlanError
        If `lower` is negative, or `upper` is not more.
    """
    for bound in (lower, upper):
        if not is_real(bound):
            raise PlanError(f"lower and upper must be numbers, not {bound!r}")
    if not 0 <= lower < upper:
        raise PlanError(f"a bin needs 0 <= lower < upper; they are {lower!r} and {upper!r}")


_BINS = (*(k / 100 for k in range(21)), np.inf)
"""Bins of Voorhees and Buckley: twenty of width .01, and one for the rest."""


@guarded
def swap_rates(
    scores: ScoresLike,
    n_topics: int | None = None,
    *,
    system: str | None = None,
    topic: str | None = None,
    score: str | None = None,
    bins: Iterable[float] = _BINS,
    alpha: float | None = None,
    trials: int = 50,
    rng: int | np.random.Generator | None = None,
    workers: int = 1,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Return swap rates of differences between systems on other topics, by size of difference.

    Topics are split at random into two disjoint sets of `n_topics` topics, `trials` times. Each
    pair of systems goes into a bin by its difference in the first set; it is swapped if the second
    set has the two in the other order (Voorhees and Buckley, 2002).

    Parameters
    ----------
    scores : long table with its columns named, :class:`ScoreMatrix`, or topic × system matrix,
        **one row per topic and one column per system**
    n_topics : number of topics of each set; by default half of the topics
    system, topic, score : columns of a long table; see :func:`vcomp.ir.as_score_matrix`
    bins : bounds of the bins of differences, increasing, in the units of the scores; a difference
        on a bound is in the upper bin. By default 0, 0.01, …, 0.20 and infinity
    alpha : count differences only if a two-sided paired t-test in the first set is significant at
        this level (Sanderson and Zobel, 2005); by default all differences count
    trials : number of random splits
    rng : seed, or a generator that one is drawn from once; 0 if not given
    workers : threads; the numbers are the same for any number of them
    progress : whether to show a bar; None for one where stderr is a terminal

    Returns
    -------
    pandas.DataFrame
        One row per bin with columns ``low`` and ``high``, its bounds; ``n_pairs``, the pairs
        counted over all splits; ``n_swaps``; ``swap_rate``, the share of these; and ``p_value``,
        the mean of the two-sided p-values of its differences in the first set (Bodoff and Li,
        2007). The last two are missing where no pair is in the bin. Pairs with equal means in the
        first set are in no bin.

    Raises
    ------
    DataError
        If `scores` cannot be read, a score is missing, or there are fewer than four topics.
    PlanError
        If two sets of `n_topics` cannot be drawn, `bins` do not increase from zero or more,
        or `alpha` is not between 0 and 1.
    EstimationError
        If `trials` or `workers` is not a whole number of at least 1, or `rng` is neither a seed
        nor a generator.

    References
    ----------
    Voorhees, E. M. and Buckley, C. (2002). The effect of topic set size on retrieval experiment
    error. *Proc. ACM SIGIR*, 316-323.

    Sanderson, M. and Zobel, J. (2005). Information retrieval system evaluation: effort,
    sensitivity, and reliability. *Proc. ACM SIGIR*, 162-169.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> scores = rng.normal(size=(40, 8)) + np.linspace(0, 1, 8)
    >>> swap_rates(scores, 20, bins=[0, 0.3, 0.6, 3])[["low", "high", "swap_rate"]].round(2)
       low  high  swap_rate
    0  0.0   0.3       0.29
    1  0.3   0.6       0.15
    2  0.6   3.0       0.03
    """
    import pandas as pd

    X = complete(as_score_matrix(scores, system=system, topic=topic, score=score))
    n = _set_size(n_topics, len(X))
    bounds = bin_bounds(bins)
    if alpha is not None:
        check_alpha(alpha)
    n_trials, workers = check_count(trials, "trials"), check_count(workers, "workers")
    generator = np.random.default_rng(seed_from(rng))
    n_bins = bounds.size - 1
    orders = [generator.permutation(len(X))[: 2 * n] for _ in range(n_trials)]

    def work(number: int) -> FloatArray:
        order = orders[number]
        return _counts(X[order[:n]], X[order[n:]], bounds, alpha)

    done = run(lambda: work, range(n_trials), workers=workers, progress=progress, label="splits")
    counts = np.zeros((3, n_bins))
    for number in range(n_trials):
        counts += done[number]
    pairs, swaps, _ = counts
    share = np.full((2, n_bins), np.nan)
    np.divide(counts[1:], pairs, out=share, where=pairs > 0)
    return pd.DataFrame(
        {
            "low": bounds[:-1],
            "high": bounds[1:],
            "n_pairs": pairs.astype(int),
            "n_swaps": swaps.astype(int),
            "swap_rate": share[0],
            "p_value": share[1],
        }
    )


def _counts(X: FloatArray, Y: FloatArray, bounds: FloatArray, alpha: float | None) -> FloatArray:
    """Return the counts of pairs and of swapped pairs in each bin, and their sum of p-values."""
    means, others = X.mean(axis=0), Y.mean(axis=0)
    order = np.argsort(means, kind="stable")
    means, df = means[order], len(X) - 1
    S, cancelled, zero = centred_covariances(X[:, order])
    return binned_differences(
        np.ascontiguousarray(X.T[order]),
        means,
        others[order],
        S,
        bounds,
        (float(rounding(means)), float(rounding(others)), zero),
        cancelled,
        -1.0 if alpha is None else critical_t(alpha, df),
        tail_table(df),
    )


def bin_places(differences: FloatArray, bounds: FloatArray) -> LongArray:
    """Return the number of the bin of each absolute difference, counted from 1.

    It is 0 below all bins and for zeros. A difference within rounding error of a bound is on it:
    0.3 - 0.2 is 0.1.
    """
    size = np.abs(differences)
    place = np.searchsorted(bounds, size + 1e-12 * size.max(initial=0.0), side="right")
    return np.where(size > 0, place, 0)


def sums_by_bin(differences: FloatArray, bounds: FloatArray, *columns: FloatArray) -> FloatArray:
    """Return sums by bin of columns with one number per difference."""
    place = bin_places(differences, bounds).ravel()
    sums = [np.bincount(place, column.ravel(), bounds.size + 1) for column in columns]
    return np.array(sums, dtype=float)[:, 1:-1]  # without differences below and above all bins


def _set_size(n_topics: int | None, available: int) -> int:
    if available < 4:
        raise DataError(f"two sets of at least 2 topics each need 4 topics; there are {available}")
    n = available // 2 if n_topics is None else n_topics
    if not is_whole(n) or n < 2:
        raise PlanError(f"each set needs at least 2 topics, a whole number, not {n!r}")
    if 2 * n > available:
        raise PlanError(
            f"two sets of {n} topics cannot be drawn from {available}; {available // 2} at most"
        )
    return int(n)


def bin_bounds(bins: Iterable[float]) -> FloatArray:
    """Return the bounds of bins of differences.

    Raises
    ------
    PlanError
        If they are not two or more numbers that increase from zero or more.
    """
    try:
        bounds = np.array(list(bins), dtype=float)
    except (TypeError, ValueError) as error:
        raise PlanError(f"bins must be numbers: {error}") from error
    if bounds.ndim != 1 or bounds.size < 2 or bounds[0] < 0 or not (np.diff(bounds) > 0).all():
        raise PlanError(
            f"bins must be two or more bounds that increase from zero or more, not {bounds}"
        )
    return bounds


SYSTEM, TOPIC = "system", "topic"
"""Facets of a matrix without a fit."""


def mean_squares(X: FloatArray) -> tuple[float, float, float]:
    """Return the mean squares of systems, topics and their interaction.

    Those within rounding error of zero are zero.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing; at least two of each

    Examples
    --------
    >>> mean_squares(np.array([[0.0, 2.0], [1.0, 3.0], [2.0, 7.0]]))
    (13.5, 6.5, 1.5)
    """
    table = TwoWayMeanSquares.of(X, TOPIC, SYSTEM)
    return table.ms_columns, table.ms_rows, table.ms_residual


@dataclass(frozen=True, slots=True)
class TwoWay:
    """Variance components by the ANOVA method (Urbano, 2016, eqs. 26-28).

    Attributes
    ----------
    system, topic : zero where the estimate is negative
    residual : of the interaction and error
    """

    system: float
    topic: float
    residual: float

    @classmethod
    def from_scores(cls, scores: ScoresLike) -> TwoWay:
        """Return the components of a matrix, one row per topic and one column per system.

        Raises
        ------
        DataError
            If `scores` cannot be read as a matrix, or a score is missing.
        """
        return cls.of(complete(as_score_matrix(scores)))

    @classmethod
    def of(cls, X: FloatArray) -> TwoWay:
        """Return the components of complete scores, (n_topics, n_systems)."""
        n, k = X.shape
        ms_s, ms_t, ms_e = mean_squares(X)
        return cls(max(0.0, (ms_s - ms_e) / n), max(0.0, (ms_t - ms_e) / k), ms_e)


_FEWEST_SCORES = 4
"""A mean and three components leave nothing to estimate from this number of scores."""


def two_way_components(
    matrix: ScoreMatrix,
) -> tuple[VarianceComponents, Callable[[], LevelVariances]]:
    """Return the components of system, topic and residual, and influences for robust intervals.

    Those of a complete matrix are of its analysis of variance, as in :class:`TwoWay` but negative
    ones as estimated; those of a matrix with holes are by REML. The numbers are those of
    ``vcomp.fit("score ~ (1|system) + (1|topic)", matrix.to_long())`` by these methods.

    Parameters
    ----------
    matrix : scores, nan where there is none

    Returns
    -------
    components, influences : as of :func:`~vcomp.gtheory.crossed_components`

    Raises
    ------
    DataError
        If all scores are equal, or the components cannot be distinguished with these cells.

    Warns
    -----
    VcompWarning
        If REML did not converge.

    Examples
    --------
    >>> from vcomp.ir import as_score_matrix
    >>> matrix = as_score_matrix([[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]])
    >>> found, _ = two_way_components(matrix)
    >>> found.values.round(4)
    array([0.0128, 0.0017, 0.0094])
    """
    known = ~np.isnan(matrix.scores)
    scores = matrix.scores[known]
    if scores.size == 0 or np.ptp(scores) == 0.0:
        what = "no system has a score" if scores.size == 0 else "all scores are equal"
        raise DataError(f"{what}, so that there is no variance to divide into components")
    system, topic = matrix.facets
    sizes = {system: float(matrix.n_systems), topic: float(matrix.n_topics)}
    if known.all() and scores.size > _FEWEST_SCORES:
        return _of_complete(matrix.scores, sizes)
    rows, columns = np.nonzero(known)
    try:
        components, influences = crossed_components(scores, {system: columns, topic: rows}, "reml")
    except (DesignError, EstimationError) as error:
        raise DataError(
            f"variance components cannot be estimated from the available scores: {error}"
        ) from error
    return replace(components, sizes=sizes), influences


def _of_complete(
    X: FloatArray, sizes: dict[str, float]
) -> tuple[VarianceComponents, Callable[[], LevelVariances]]:
    """Return the components of a complete matrix in closed form, eqs. (2.4) and (2.6)."""
    n, k = X.shape
    system, topic = sizes
    table = TwoWayMeanSquares.of(X, topic, system).oriented(system)
    squares = np.array([table.ms_rows, table.ms_columns, table.ms_residual])
    df = np.array([k - 1.0, n - 1.0, (k - 1.0) * (n - 1.0)])
    of_squares = np.array([[1.0 / n, 0.0, -1.0 / n], [0.0, 1.0 / k, -1.0 / k], [0.0, 0.0, 1.0]])
    values = of_squares @ squares
    components = VarianceComponents(
        names=(system, topic, RESIDUAL),
        facets=(frozenset({system}), frozenset({topic}), frozenset({system, topic})),
        values=values,
        cov=of_squares * (2.0 * squares**2 / df) @ of_squares.T,
        sizes=sizes,
        mean_squares=table,
        response_values=few_values(X.ravel()),
    )
    return components, lambda: two_way_level_variances(X.T, (system, topic), values)

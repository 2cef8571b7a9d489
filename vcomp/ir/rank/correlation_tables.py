"""Tables of expected rank correlations from the differences between systems: estimates and limits.

Section 15.3 of docs/explanation/mathematics.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import PlanError, warn
from vcomp.inference.intervals import wald_interval
from vcomp.ir.rank.correlation import (
    RankCorrelation,
    RankDraws,
    RankOptions,
    Swaps,
    TauEstimator,
    TauVariant,
    check_tau_estimator,
)
from vcomp.ir.rank.paired import PairedDifferences
from vcomp.ir.rank.ranked_pairs import Pairs
from vcomp.numerics import seed_from

if TYPE_CHECKING:
    import pandas as pd

_MOST_CELLS = 2 * 10**8
"""Largest product of draws and systems: arrays of 1.6 GB, several at once."""


def estimated_tau(
    pairs: PairedDifferences,
    n_topics: float | Iterable[float],
    *,
    variant: TauVariant = "a",
    estimator: TauEstimator = "shrunken",
) -> FloatArray:
    """Return the estimates of ``expected_correlation`` alone, without intervals, for loops.

    Parameters
    ----------
    pairs : the differences between systems
    n_topics : one or more numbers of topics
    variant : ``"ap"`` for Eτ_AP, else Eτ
    estimator : ``"shrunken"`` or ``"urbano"``

    Returns
    -------
    (len(n_topics),) array

    Raises
    ------
    PlanError
        If a number of topics is not positive, or `estimator` is not one of the two.

    Examples
    --------
    >>> pairs = PairedDifferences.from_scores(
    ...     [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]], ["a", "b", "c"]
    ... )
    >>> estimated_tau(pairs, [3, 30], estimator="urbano").round(3)
    array([0.762, 0.923])
    """
    n = _positive(n_topics)
    check_tau_estimator(estimator)
    swaps = Swaps.of(pairs, estimator, 0.0)
    return _moments(pairs, n, swaps, RankCorrelation(variant))[0]


def _moments(
    pairs: Pairs,
    n: FloatArray | LongArray,
    swaps: Swaps,
    correlation: RankCorrelation,
) -> tuple[FloatArray, FloatArray]:
    """Return expectation and variance (for independent swaps) for each number of topics."""
    weights = correlation.weights(pairs.n_systems)
    estimate, variance = np.array([correlation.estimate(swaps, weights, x) for x in n]).T
    return estimate, variance


def correlation_columns(
    pairs: Pairs,
    n: FloatArray | LongArray,
    options: RankOptions,
    correlation: RankCorrelation,
    *,
    at_hand: bool,
) -> dict[str, Any]:
    """Return estimates, variances and limits for tests of all sizes, with the estimator's name.

    Parameters
    ----------
    pairs : the differences between systems
    n : sizes of tests, numbers of topics if the pairs are of two facets
    options : how they are estimated
    correlation : τ or τ_AP
    at_hand : whether `n` is the size of the test at hand, whose ranking is known

    Raises
    ------
    PlanError
        If the draws do not fit into memory.

    Warns
    -----
    VcompWarning
        If τ_b is undefined, as all systems are equal.
    """
    threshold = float(options.threshold)
    swaps = Swaps.of(pairs, options.estimator, threshold, at_hand=at_hand)
    estimate, variance = _moments(pairs, n, swaps, correlation)
    if options.independent:
        low, high = wald_interval(estimate, np.sqrt(variance), options.alpha)
    else:
        new = [None] if at_hand and options.target == "test" else list(n)
        low, high = _limits(pairs, new, options, correlation)
    if np.isnan(estimate).any():
        warn(
            f"τ_b is undefined here: with threshold={options.threshold:g} all systems are equal; "
            "variant='a' makes it zero"
        )
    return {
        "estimate": estimate,
        "variance": variance,
        "low": np.maximum(low, -1.0),
        "high": np.minimum(high, 1.0),
        "estimator": _repeated(options.estimator, len(n)).copy(),
    }


def correlation_table(
    pairs: PairedDifferences,
    n_topics: float | Iterable[float] | None,
    options: RankOptions,
    correlation: RankCorrelation,
) -> pd.DataFrame:
    """Return estimates, variances and limits for all numbers of topics.

    Parameters
    ----------
    pairs : the differences between systems
    n_topics : one or more numbers of topics; None for the test at hand
    options : how they are estimated
    correlation : τ or τ_AP

    Raises
    ------
    PlanError
        If a number of topics is not positive, or the draws do not fit into memory.
    """
    import pandas as pd

    n = _positive(pairs.n_topics if n_topics is None else n_topics)
    columns = correlation_columns(pairs, n, options, correlation, at_hand=n_topics is None)
    return pd.DataFrame(
        {"n": n, **columns},
        index=pd.RangeIndex(len(n)),
        copy=False,  # the arrays are not used elsewhere, and a copy takes half of the time
    )


@lru_cache(maxsize=16)
def _repeated(text: str, n: int) -> Any:
    """Return a constant text column; cached, as it dominates the time of a small table."""
    import pandas as pd

    return pd.Series([text] * n).array


def _check_draws(draws: int, k: int, n_residuals: int, most: int = _MOST_CELLS) -> None:
    if draws * max(k, n_residuals) > most:
        raise PlanError(
            f"{draws:,} draws of {k:,} systems, each from {n_residuals:,} residuals, do not fit "
            "into memory; use fewer draws"
        )


def _limits(
    pairs: Pairs,
    n_topics: list[float | None],
    options: RankOptions,
    correlation: RankCorrelation,
) -> tuple[FloatArray, FloatArray]:
    """Return quantiles of draws for each number of topics; None is the observed test."""
    k = pairs.n_systems
    _check_draws(options.draws, k, pairs.n_residuals)
    seed = seed_from(options.rng)
    drawn = _of_groups(RankDraws.of(pairs, int(options.draws), seed), correlation, options, seed)
    tail = options.alpha / 2.0
    limits = np.full((len(n_topics), 2), np.nan)
    for row, n in enumerate(n_topics):
        values = _drawn_values(drawn, row, n, options, correlation, k)
        values = values[~np.isnan(values)]
        if values.size:
            limits[row] = np.quantile(values, [tail, 1.0 - tail])
    return limits[:, 0], limits[:, 1]


_CHOICES = 20
"""Random choices of one system per group, averaged in the expectation of a draw."""


def _of_groups(
    drawn: RankDraws, correlation: RankCorrelation, options: RankOptions, seed: int
) -> list[RankDraws]:
    """Return the draws, or restrictions to one system per group (several for expectations)."""
    if correlation.groups is None:
        return [drawn]
    rng = np.random.default_rng([seed, 1])
    times = _CHOICES if options.target == "expectation" else 1
    return [drawn.one_of_each(correlation.groups, rng) for _ in range(times)]


def _drawn_values(
    drawn: list[RankDraws],
    row: int,
    n: float | None,
    options: RankOptions,
    correlation: RankCorrelation,
    k: int,
) -> FloatArray:
    """Return the correlation of each draw, or its expectation."""
    if options.target == "expectation":
        assert n is not None
        counts = [some.expected(n, options.threshold, row) for some in drawn]
    else:
        counts = [some.realised(n, options.threshold, row) for some in drawn]
    ranked = correlation.n_ranked(k)
    return np.asarray(np.mean([correlation.of_counts(c, ranked) for c in counts], axis=0))


def _positive(n_topics: float | Iterable[float]) -> FloatArray | LongArray:
    n = list(n_topics) if isinstance(n_topics, Iterable) else [n_topics]
    if not n:
        raise PlanError("no number of topics is given")
    for x in n:
        is_number = isinstance(x, int | float | np.integer | np.floating)
        if not is_number or isinstance(x, bool) or not 0 < x < np.inf:
            raise PlanError(f"the number of topics must be positive, not {x!r}")
    return np.array(n)

"""Expected accuracy of the ranking by a test of n topics: Eτ and Eτ_AP (Urbano, 2016).

:func:`expected_tau` starts from scores, :func:`expected_correlation` from the differences between
systems, which fits have too.

References
----------
Urbano, J. (2016). Test collection reliability: a study of the effects of sample size and
statistical assumptions. *Information Retrieval Journal*, 19(3), 313-350. Section 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.data import open_source
from vcomp.design import LevelGroups, read_groups
from vcomp.exceptions import DataError, PlanError, did_you_mean, guarded, warn
from vcomp.inference.intervals import wald_interval
from vcomp.ir.agreement import check_sizes, whole
from vcomp.ir.rank.correlation import (
    RankCorrelation,
    RankDraws,
    RankOptions,
    Swaps,
    TauEstimator,
    TauInterval,
    TauTarget,
    TauVariant,
    check_tau_estimator,
    ranking,
)
from vcomp.ir.rank.paired import PairedDifferences, Pairs
from vcomp.ir.scores import ScoresLike, as_score_matrix
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
    n = check_sizes(n_topics)
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
    at_hand : whether `n` is the size of the observed test, whose ranking is known

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
    n_topics : one or more numbers of topics; None for the observed test
    options : how they are estimated
    correlation : τ or τ_AP

    Raises
    ------
    PlanError
        If a number of topics is not positive, or the draws do not fit into memory.
    """
    import pandas as pd

    n = whole(check_sizes(pairs.n_topics if n_topics is None else n_topics))
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
    ranked = correlation.n_ranked(k)
    tail = options.alpha / 2.0
    limits = np.full((len(n_topics), 2), np.nan)
    for row, n in enumerate(n_topics):
        if options.target == "expectation":
            assert n is not None
            counts = [some.expected(n, options.threshold, row) for some in drawn]
        else:
            counts = [some.realised(n, options.threshold, row) for some in drawn]
        values = np.mean([correlation.of_counts(c, ranked) for c in counts], axis=0)
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


def expected_correlation(
    pairs: PairedDifferences,
    n_topics: float | Iterable[float] | None = None,
    *,
    estimator: TauEstimator = "shrunken",
    variant: TauVariant = "a",
    threshold: float = 0.0,
    target: TauTarget = "test",
    interval: TauInterval = "auto",
    alpha: float = 0.05,
    draws: int = 2_000,
    rng: int | np.random.Generator | None = None,
    groups: LevelGroups | None = None,
) -> pd.DataFrame:
    """Return expected rank correlations Eτ or Eτ_AP of tests of `n_topics` with the true ranking.

    All estimates of Eτ and Eτ_AP are computed here (eqs. 15.2 to 15.9b of the mathematics). With
    systems sorted by mean, D̄ and s the mean and standard deviation of the differences of systems i
    and j over the n topics, and w_ij the probability that a test of n' topics swaps them (Urbano,
    2016, eqs. 38 and 39)

        Eτ = 4 Σ_{i<j} (1 - w_ij) / (k(k-1)) - 1,    Var = 16 Σ_{i<j} w_ij (1 - w_ij) / (k(k-1))².

    τ_AP (Yilmaz, Aslam and Robertson, 2008) compares each system with those ranked above it, so
    that swaps among the best count more (Urbano, 2016, eqs. 41 and 42):

        Eτ_AP = 2/(k-1) Σ_{i≥2} Σ_{j<i} (1 - w_ij) / (i-1) - 1,
        Var = 4/(k-1)² Σ_{i≥2} Σ_{j<i} w_ij (1 - w_ij) / (i-1)².

    Parameters
    ----------
    pairs : the differences between systems
    n_topics : one or more numbers of topics n'; None for the observed test, which has n
    estimator : of the probability of a swap

        * ``"shrunken"``: w_ij = T(-√n' ρ D̄_ij / s_ij), with Student's distribution of n - 1
          degrees of freedom and ρ² the share of true differences in the variance of mean scores
          (Eρ², see :mod:`vcomp.ir.rank.correlation`). Observed differences contain error and vary
          more than true ones; ρD̄ vary as these do. For the observed test w_ij is the probability,
          given its scores, that the true order is another;
        * ``"urbano"``: w_ij = Φ(-√n' D̄_ij / s_ij), as published (eq. 35). It overstates the
          accuracy of the ranking, the more so the fewer topics there are.
    variant : ``"a"`` or ``"b"`` for Eτ, as τ_a or τ_b where systems are equal, see Notes;
        ``"ap"`` for Eτ_AP
    threshold : largest difference of systems that count as equal, in units of the scores
    target : what `low` and `high` are to cover: ``"test"``, the correlation of the observed test
        or of one new test of n' topics; or ``"expectation"``, its expectation over all such tests
    interval : how `low` and `high` are made

        * ``"draws"``: quantiles of correlations of draws, see Notes;
        * ``"independent"``: the normal interval with the published variance, cut at -1 and 1,
          for ``target="test"``. It treats swaps as independent. They are not, as a system whose
          errors are large passes several others at once, so the interval is far too short;
        * ``"auto"``: the second for ``estimator="urbano"`` and ``target="test"``, else the first
    alpha : intervals have confidence 1 − alpha
    draws : number of draws behind ``interval="draws"``
    rng : seed, or a ``numpy.random.Generator`` that one is drawn from once; 0 if not given
    groups : the group of each system (its organisation), as a mapping or a function of its name;
        one system of each group is ranked, see Notes. None ranks all systems

    Returns
    -------
    pandas.DataFrame
        A row for each n' with columns ``n``, ``estimate``, ``variance``, ``low``, ``high`` and
        ``estimator``. The variance is the published one, of independent swaps.

    Raises
    ------
    PlanError
        If a number of topics is not positive, `threshold` negative, `alpha` not
        between 0 and 1, `draws` not a whole number of at least 1 or too large for memory; if
        `estimator`, `variant`, `target` or `interval` is not one of the above; if
        ``interval="independent"`` is combined with ``target="expectation"``.
    EstimationError
        If `rng` is neither a seed nor a generator.
    DataError
        If a system has no group, or all systems are of one.

    Warns
    -----
    VcompWarning
        If τ_b is undefined, as all systems are equal.

    Notes
    -----
    **Equal systems.** With a threshold ε, a pair is equal in the test if |D̄'_ij| ≤ ε there, and
    truly equal if |D_ij| ≤ ε. The estimate of D is ρD̄ (with ``"urbano"`` D̄), and D̄' varies about
    it: the test has i ahead with probability a_ij = T(√n' (ρD̄_ij - ε)/s_ij), behind with
    b_ij = T(√n' (-ρD̄_ij - ε)/s_ij), and else equal to j. With u_ij one for pairs that are not
    truly equal and zero for others, concordant less discordant pairs and their variance are

        C = Σ u_ij (a_ij - b_ij),    Var = Σ u_ij (a_ij + b_ij - (a_ij - b_ij)²).

    ``variant="a"`` divides C by all pairs, k(k-1)/2; so a truly equal pair is neither swapped nor
    right. ``variant="b"`` divides it by √(Σ u_ij Σ (a_ij + b_ij)), the pairs expected to be
    unequal in the one and in the other ranking. The variance is divided by its square, as if it
    were known. Without a threshold no two systems are equal, a_ij + b_ij = 1, and both are the
    above. ``variant="ap"`` has

        Eτ_AP = 1/(k-1) Σ_{i≥2} Σ_{j<i} u_ij (a_ij - b_ij) / (i-1),

    to which a pair that is equal in one of the rankings contributes the mean over both orders.

    **Draws.** True means are drawn from their distribution given the scores: (1 - B) X̄ +
    √(1 - B) c e(g)/√n, with e(g) = Zᵀg/√(n-1), Z the scores less topic and system means, g
    standard normal, and B from the distribution of 1 - Eρ²; errors of new tests are c e(g')/√n',
    with another g. So swaps depend on each other as the scores do. The size of errors, c, is drawn
    with the means, by the same g, from the variation of the mean square of error between topics.
    Lengths of e(g) have the effective degrees of freedom of the true covariances, which exceed
    those of the sample (eqs. 15.9 to 15.9b). Intervals are quantiles of the correlation, or of its
    expectation, over draws. They are the same for both estimators.

    **Ranks.** In the estimate of τ_AP, ranks are those in the observed test, as published; in the
    draws they are true ones.

    **Groups.** Systems of one organisation are often variants of each other: their true means are
    close, they err alike, and they swap with each other more than with others. With `groups`, the
    ranking is of one system of each group, drawn at random, as in section 4.6 of Bodoff (2008).
    Estimates are exact expectations over these draws: pairs of different groups have weights
    1/(n_g n_h), those of one group none (eq. 15.8d). Intervals with ``target="test"`` are of the
    correlation of one such ranking; for ``"expectation"`` each draw of true means is averaged over
    20 choices of systems. Differences are shrunk as those of all systems.

    **Missing cells.** Each pair is compared over its common topics, whose number is its n. New
    tests are complete: all systems meet all n' topics. The ranking of the observed test is that of
    means over each system's own topics; where it contradicts D̄_ij, w_ij exceeds ½ for this test,
    while for new ones D̄_ij is used without its sign (by ``"urbano"`` always with it, so that
    even an infinite test would not reach one). For the observed test n' is the number of all of
    its topics, which overstates how well pairs with fewer common topics are ordered.

    Where the difference is the same on every topic, w_ij is its limit: 0 (1 where means contradict
    it, as above), and ½ for identical systems.

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Section 4.3.

    Kendall, M. G. (1948). *Rank Correlation Methods*. Griffin. (τ_a and τ_b.)

    Bodoff, D. (2008). Test theory for evaluating reliability of IR test collections. *Information
    Processing and Management*, 44(3), 1117-1145. Section 4.6.

    Examples
    --------
    >>> pairs = PairedDifferences.from_scores(
    ...     [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]], ["a", "b", "c"]
    ... )
    >>> expected_correlation(pairs, [3, 30])[["n", "estimate", "variance"]].round(3)
        n  estimate  variance
    0   3     0.689     0.144
    1  30     0.874     0.070
    >>> table = expected_correlation(pairs, [3, 30], estimator="urbano")
    >>> table[["n", "estimate", "variance"]].round(3)
        n  estimate  variance
    0   3     0.762     0.103
    1  30     0.923     0.046
    >>> expected_correlation(pairs, [3, 30], variant="ap")[["n", "estimate", "variance"]].round(3)
        n  estimate  variance
    0   3     0.748     0.108
    1  30     0.904     0.042
    """
    options = RankOptions(estimator, variant, threshold, target, interval, alpha, draws, rng)
    return correlation_table(pairs, n_topics, options, ranking(variant, groups, pairs.systems))


def _by_column(
    scores: Any, groups: LevelGroups | str | None, system: str | None
) -> LevelGroups | None:
    """Return the group of each system, read from a column of a long table if it is one.

    Raises
    ------
    DataError
        If the table has no such column, or a system has several groups.
    """
    if not isinstance(groups, str):
        return groups
    if not hasattr(scores, "__getitem__"):
        raise DataError(
            f"groups={groups!r} is a column of a long table, and scores are a matrix; pass a "
            "mapping from systems to groups",
            column=groups,
        )
    source = open_source(scores)
    system = system or "system"
    for column in (system, groups):
        if column not in source.columns:
            raise DataError(
                f"the scores have no column {column!r}{did_you_mean(column, source.columns)}, so "
                "that systems have no groups; pass a mapping from systems to groups",
                column=column,
            )
    return read_groups(source, system, groups)


@guarded
def expected_tau(
    scores: ScoresLike,
    n_topics: float | Iterable[float] | None = None,
    *,
    system: str | None = None,
    topic: str | None = None,
    score: str | None = None,
    drop_worst: float = 0.0,
    estimator: TauEstimator = "shrunken",
    variant: TauVariant = "a",
    threshold: float = 0.0,
    target: TauTarget = "test",
    interval: TauInterval = "auto",
    alpha: float = 0.05,
    draws: int = 2_000,
    rng: int | np.random.Generator | None = None,
    groups: LevelGroups | str | None = None,
) -> pd.DataFrame:
    """Return Eτ or Eτ_AP, expected between rankings by tests of any size and the true ranking.

    A bare matrix has **one row per topic and one column per system**.

    Parameters
    ----------
    scores : long table, one row per score, with its columns named; :class:`ScoreMatrix`; or topic
        × system matrix: a wide frame with the topics in its index, a 2-D array or nested lists.
        nan is a missing cell
    n_topics : one or more numbers of topics of new tests; None for the collection itself
    system, topic, score : columns of a long table; see :func:`vcomp.ir.as_score_matrix`
    drop_worst : share of the systems to leave out, the worst by mean score; see
        :meth:`ScoreMatrix.drop_worst`
    estimator : ``"shrunken"``; or ``"urbano"``, as published, which overstates the accuracy of the
        ranking, the more so the fewer topics `scores` has
    variant : Kendall's τ, or with ``"ap"`` τ_AP, in which swaps among the best count more. Where
        systems are equal, ``"a"`` divides τ by all pairs and ``"b"`` by the pairs that are not
        equal, as τ_b does; to τ_AP a pair that is equal in one of the rankings contributes the
        mean over both orders
    threshold : largest difference of systems that count as equal, in units of the scores
    target : what `low` and `high` are to cover: ``"test"``, τ of the collection itself or of one
        new test; or ``"expectation"``, its expectation over new tests
    interval : how `low` and `high` are made: by ``"draws"``; or ``"independent"``, with the
        published variance, for ``target="test"``, which treats swaps as independent and is far too
        short. ``"auto"`` is the second for ``estimator="urbano"`` and ``target="test"``, else the
        first
    alpha : intervals have confidence 1 − alpha
    draws : number of draws behind ``interval="draws"``
    rng : seed, or a ``numpy.random.Generator`` that one is drawn from once; 0 if not given
    groups : the group of each system, if one system of each group is ranked. A group is a set of
        systems with a common origin that err alike, such as the runs of one organisation: a
        mapping from systems to groups, a function of a system's name, or a column of the long
        table. None ranks all systems

    Returns
    -------
    pandas.DataFrame
        A row for each number of topics with columns ``n``, ``estimate``, ``variance``, ``low``,
        ``high`` and ``estimator``. The variance is the published one, of independent swaps.

    Raises
    ------
    DataError
        If `scores` cannot be read (see :func:`vcomp.ir.as_score_matrix`), or two systems have
        fewer than two topics in common; if `drop_worst` is not at least 0 and less than 1; or if a
        system has no group or several, or all systems are of one.
    PlanError
        If a number of topics is not positive, or an option does not have one of the values above.
    EstimationError
        If `rng` is neither a seed nor a generator.

    See Also
    --------
    vcomp.ir.rank.correlation_tables.expected_correlation : the formulae; how missing
        cells are treated
    vcomp.ir.split_half : τ extrapolated from halves of the topics

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Eqs. 35, 38 and 39;
    41 and 42 for τ_AP.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> expected_tau(scores, estimator="urbano")[["n", "estimate", "variance"]].round(3)
       n  estimate  variance
    0  3     0.762     0.103
    >>> expected_tau(scores, [3, 30], variant="ap")[["n", "estimate", "variance"]].round(3)
        n  estimate  variance
    0   3     0.748     0.108
    1  30     0.904     0.042
    """
    matrix = as_score_matrix(scores, system=system, topic=topic, score=score)
    kept = matrix.drop_worst(drop_worst)
    return expected_correlation(
        PairedDifferences.from_scores(kept.scores, kept.systems),
        n_topics,
        estimator=estimator,
        variant=variant,
        threshold=threshold,
        target=target,
        interval=interval,
        alpha=alpha,
        draws=draws,
        rng=rng,
        groups=_by_column(scores, groups, system),
    )

"""Expected rank accuracy of a test collection, from its scores alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from vcomp.ir.rank import rank_accuracy
from vcomp.ir.rank.correlation import TauEstimator, TauInterval, TauTarget, TauVariant
from vcomp.ir.rank.paired import PairedDifferences
from vcomp.ir.scores import ScoresLike, as_score_matrix

if TYPE_CHECKING:
    import pandas as pd


def paired_differences(scores: ScoresLike, drop_worst: float = 0.0) -> PairedDifferences:
    """Return the differences between every two systems, which rank accuracy is estimated from.

    Parameters
    ----------
    scores : see :func:`as_score_matrix`
    drop_worst : see :meth:`ScoreMatrix.drop_worst`

    Returns
    -------
    PairedDifferences

    Raises
    ------
    DataError
        If the scores cannot be read, or two systems have fewer than two topics in common.
    """
    kept = as_score_matrix(scores).drop_worst(drop_worst)
    return PairedDifferences.from_scores(kept.scores, kept.systems)


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
) -> pd.DataFrame:
    """Return Eτ, Kendall's τ expected between rankings by tests of any size and the true ranking.

    A bare matrix has **a row a topic and a column a system**.

    Parameters
    ----------
    scores : long table, a row a score, with its columns named; :class:`ScoreMatrix`; or topic ×
        system matrix: a wide frame with the topics in its index, a 2-D array or nested lists. nan
        is a missing cell
    n_topics : one or more numbers of topics of new tests; None for the collection itself
    system, topic, score : columns of a long table; see :func:`vcomp.ir.as_score_matrix`
    drop_worst : share of the systems to leave out, the worst by mean score; see
        :meth:`ScoreMatrix.drop_worst`
    estimator : ``"shrunken"``; or ``"urbano"``, as published, which overstates the accuracy of the
        ranking, the more so the fewer topics `scores` has
    variant : of τ where systems are equal: ``"a"`` divides by all pairs, ``"b"`` by the pairs that
        are not equal, as τ_b does
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

    Returns
    -------
    pandas.DataFrame
        A row for each number of topics with columns ``n``, ``estimate``, ``variance``, ``low``,
        ``high`` and ``estimator``. The variance is the published one, of independent swaps.

    Raises
    ------
    DataError
        If `scores` cannot be read (see :func:`vcomp.ir.as_score_matrix`), or two systems have
        fewer than two topics in common; or if `drop_worst` is not at least 0 and less than 1.
    PlanError
        If a number of topics is not positive, or an option does not have one of the values above.
    EstimationError
        If `rng` is neither a seed nor a generator.

    See Also
    --------
    vcomp.ir.rank.rank_accuracy.expected_tau : the formulae, and how missing cells are treated
    vcomp.ir.split_half : τ extrapolated from halves of the topics

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Eqs. 35, 38 and 39.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> expected_tau(scores, estimator="urbano")[["n", "estimate", "variance"]].round(3)
       n  estimate  variance
    0  3     0.762     0.103
    """
    matrix = as_score_matrix(scores, system=system, topic=topic, score=score)
    return rank_accuracy.expected_tau(
        paired_differences(matrix, drop_worst),
        n_topics,
        estimator=estimator,
        variant=variant,
        threshold=threshold,
        target=target,
        interval=interval,
        alpha=alpha,
        draws=draws,
        rng=rng,
    )


def expected_tau_ap(
    scores: ScoresLike,
    n_topics: float | Iterable[float] | None = None,
    *,
    system: str | None = None,
    topic: str | None = None,
    score: str | None = None,
    drop_worst: float = 0.0,
    estimator: TauEstimator = "shrunken",
    threshold: float = 0.0,
    target: TauTarget = "test",
    interval: TauInterval = "auto",
    alpha: float = 0.05,
    draws: int = 2_000,
    rng: int | np.random.Generator | None = None,
) -> pd.DataFrame:
    """Return Eτ_AP, the τ_AP expected between rankings by tests of any size and the true ranking.

    A bare matrix has **a row a topic and a column a system**.

    Parameters
    ----------
    scores, n_topics, system, topic, score, drop_worst : as of :func:`expected_tau`
    estimator, target, interval, alpha, draws, rng : as of :func:`expected_tau`
    threshold : largest difference of systems that count as equal; a pair that is equal in one of
        the rankings contributes the mean over both orders

    Returns
    -------
    pandas.DataFrame
        A row for each number of topics with columns ``n``, ``estimate``, ``variance``, ``low``,
        ``high`` and ``estimator``.

    Raises
    ------
    DataError, PlanError, EstimationError
        As of :func:`expected_tau`.

    See Also
    --------
    vcomp.ir.rank.rank_accuracy.expected_tau : the formulae

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Eqs. 35, 41 and 42.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> table = expected_tau_ap(scores, [3, 30], estimator="urbano")
    >>> table[["n", "estimate", "variance"]].round(3)
        n  estimate  variance
    0   3     0.821     0.058
    1  30     0.942     0.026
    """
    matrix = as_score_matrix(scores, system=system, topic=topic, score=score)
    return rank_accuracy.expected_tau(
        paired_differences(matrix, drop_worst),
        n_topics,
        ap=True,
        estimator=estimator,
        threshold=threshold,
        target=target,
        interval=interval,
        alpha=alpha,
        draws=draws,
        rng=rng,
    )

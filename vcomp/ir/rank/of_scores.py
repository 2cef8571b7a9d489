"""Expected rank accuracy of a test collection, from its scores alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import numpy as np

from vcomp.ir.rank import rank_accuracy
from vcomp.ir.rank.correlation import RankInterval, RankMethod
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
    drop_worst: float = 0.0,
    method: RankMethod = "shrunken",
    threshold: float = 0.0,
    ties: Literal["a", "b"] = "a",
    interval: RankInterval | None = None,
    alpha: float = 0.05,
    draws: int = 2_000,
    rng: int | np.random.Generator | None = None,
) -> pd.DataFrame:
    """Estimate Kendall's τ with the true ranking of systems, for tests of any size.

    Parameters
    ----------
    scores : topic × system matrix of scores, **a row a topic and a column a system**: nested
        lists, a 2-D array, or a wide frame with the topics in its index. nan is a missing cell
    n_topics : one or more numbers of topics of new tests; None for the collection itself
    drop_worst : share of the systems to leave out, the worst by mean score; see
        :meth:`ScoreMatrix.drop_worst`
    method : ``"shrunken"``, or ``"urbano"`` for the estimator as published, which is too sure of
        the ranking, the more so the fewer topics `scores` has
    threshold : largest difference of systems that count as equal, in units of the scores
    ties : ``"a"``: pairs that are equal are neither swapped nor right; ``"b"``: they are left out
        as in τ_b
    interval : what `low` and `high` are to cover: ``"prediction"``, τ of the collection itself or
        of one new test; ``"confidence"``, its expectation over new tests; ``"independent"``, τ if
        swaps were independent, with the published variance, which is far too short. None is the
        first, for ``method="urbano"`` the last
    alpha : one less the coverage of the interval
    draws : number of draws behind the first two intervals
    rng : seed, or a ``numpy.random.Generator`` that one is drawn from once; 0 if not given

    Returns
    -------
    pandas.DataFrame
        A row for each number of topics with columns ``n``, ``estimate``, ``variance``, ``low`` and
        ``high``. The variance is the published one, of independent swaps.

    Raises
    ------
    DataError
        If `scores` is not a numeric matrix of at least two topics and two systems, with finite
        scores, any two systems having at least two topics in common; or if `drop_worst` is not at
        least 0 and less than 1.
    PlanError, EstimationError
        If an option is not one of those above, as :func:`vcomp.ir.rank.rank_accuracy.expected_tau`.

    See Also
    --------
    vcomp.ir.rank.rank_accuracy.expected_tau : the formulae, and what becomes of missing cells

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Eqs. 35, 38 and 39.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> expected_tau(scores, method="urbano")[["n", "estimate", "variance"]].round(3)
       n  estimate  variance
    0  3     0.762     0.103
    """
    return rank_accuracy.expected_tau(
        paired_differences(scores, drop_worst),
        n_topics,
        method=method,
        threshold=threshold,
        ties=ties,
        interval=interval,
        alpha=alpha,
        draws=draws,
        rng=rng,
    )


def expected_tau_ap(
    scores: ScoresLike,
    n_topics: float | Iterable[float] | None = None,
    *,
    drop_worst: float = 0.0,
    method: RankMethod = "shrunken",
    threshold: float = 0.0,
    interval: RankInterval | None = None,
    alpha: float = 0.05,
    draws: int = 2_000,
    rng: int | np.random.Generator | None = None,
) -> pd.DataFrame:
    """Estimate τ_AP with the true ranking of systems, for tests of any size.

    Parameters
    ----------
    scores, n_topics, drop_worst, method, interval, alpha, draws, rng : as of :func:`expected_tau`
    threshold : largest difference of systems that count as equal; they add what the mean over
        both of their orders would

    Returns
    -------
    pandas.DataFrame
        A row for each number of topics with columns ``n``, ``estimate``, ``variance``, ``low`` and
        ``high``.

    Raises
    ------
    DataError, PlanError, EstimationError
        As of :func:`expected_tau`.

    See Also
    --------
    vcomp.ir.rank.rank_accuracy.expected_tau_ap : the formulae

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Eqs. 35, 41 and 42.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> expected_tau_ap(scores, [3, 30], method="urbano")[["n", "estimate", "variance"]].round(3)
        n  estimate  variance
    0   3     0.821     0.058
    1  30     0.942     0.026
    """
    return rank_accuracy.expected_tau_ap(
        paired_differences(scores, drop_worst),
        n_topics,
        method=method,
        threshold=threshold,
        interval=interval,
        alpha=alpha,
        draws=draws,
        rng=rng,
    )

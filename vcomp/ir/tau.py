"""Expected rank accuracy of a test collection, from its scores alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from vcomp.dstudy import rank_accuracy
from vcomp.ir.differences import paired_differences
from vcomp.ir.scores import ScoresLike

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["expected_tau", "expected_tau_ap"]


def expected_tau(
    scores: ScoresLike,
    n_topics: float | Iterable[float] | None = None,
    *,
    drop_worst: float = 0.0,
    alpha: float = 0.05,
) -> pd.DataFrame:
    """Estimate Kendall's τ with the true ranking of systems, for tests of any size.

    Parameters
    ----------
    scores : topic × system matrix of scores, **a row a topic and a column a system**: nested
        lists, a 2-D array, or a wide frame with the topics in its index. nan is a missing cell
    n_topics : one or more numbers of topics of the test; by default as many as `scores` has
    drop_worst : share of the systems to leave out, the worst by mean score; see
        :meth:`ScoreMatrix.drop_worst`
    alpha : one less the coverage of the interval

    Returns
    -------
    pandas.DataFrame
        A row for each number of topics with columns ``n``, ``estimate``, ``variance``, ``low`` and
        ``high``. The interval treats swaps of systems as independent, which they are not: it is
        approximate, and too short.

    Raises
    ------
    DataError
        If `scores` is not a numeric matrix of at least two topics and two systems, with finite
        scores, any two systems having at least two topics in common; or if `drop_worst` is not at
        least 0 and less than 1.
    PlanError
        If `n_topics` is not positive, or `alpha` not between 0 and 1.

    See Also
    --------
    vcomp.dstudy.rank_accuracy.expected_tau : the formulae

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Eqs. 35, 38 and 39.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> expected_tau(scores)[["n", "estimate", "variance"]].round(3)
       n  estimate  variance
    0  3     0.762     0.103
    """
    pairs = paired_differences(scores, drop_worst)
    return rank_accuracy.expected_tau(
        pairs, pairs.n_topics if n_topics is None else n_topics, alpha=alpha
    )


def expected_tau_ap(
    scores: ScoresLike,
    n_topics: float | Iterable[float] | None = None,
    *,
    drop_worst: float = 0.0,
    alpha: float = 0.05,
) -> pd.DataFrame:
    """Estimate τ_AP with the true ranking of systems, for tests of any size.

    Parameters
    ----------
    scores : topic × system matrix of scores, **a row a topic and a column a system**: nested
        lists, a 2-D array, or a wide frame with the topics in its index. nan is a missing cell
    n_topics : one or more numbers of topics of the test; by default as many as `scores` has
    drop_worst : share of the systems to leave out, the worst by mean score; see
        :meth:`ScoreMatrix.drop_worst`
    alpha : one less the coverage of the interval

    Returns
    -------
    pandas.DataFrame
        A row for each number of topics with columns ``n``, ``estimate``, ``variance``, ``low`` and
        ``high``. The interval treats swaps of systems as independent, which they are not: it is
        approximate, and too short.

    Raises
    ------
    DataError
        If `scores` is not a numeric matrix of at least two topics and two systems, with finite
        scores, any two systems having at least two topics in common; or if `drop_worst` is not at
        least 0 and less than 1.
    PlanError
        If `n_topics` is not positive, or `alpha` not between 0 and 1.

    See Also
    --------
    vcomp.dstudy.rank_accuracy.expected_tau_ap : the formulae

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Eqs. 35, 41 and 42.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> expected_tau_ap(scores, [3, 30])[["n", "estimate", "variance"]].round(3)
        n  estimate  variance
    0   3     0.821     0.058
    1  30     0.942     0.026
    """
    pairs = paired_differences(scores, drop_worst)
    return rank_accuracy.expected_tau_ap(
        pairs, pairs.n_topics if n_topics is None else n_topics, alpha=alpha
    )

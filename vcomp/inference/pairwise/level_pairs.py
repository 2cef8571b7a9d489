"""Pairs of levels: p-values that are adjusted for their number, and groups of levels (letters)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.exceptions import DataError, check_one_of
from vcomp.inference.pairwise.tails import Pairs, Tail, studentized_isf, studentized_sf

if TYPE_CHECKING:
    import pandas as pd


CorrectionName: TypeAlias = Literal["none", "bonferroni", "holm", "fdr_bh", "fdr_by"]

CORRECTIONS: tuple[CorrectionName, ...] = get_args(CorrectionName)

_METHODS: Mapping[str, Any] = {"fdr_bh": "bh", "fdr_by": "by"}
"""Corrections under their names in scipy."""

_SAME_DF = 1e-9
"""Relative difference up to which degrees of freedom are equal."""


def pairs_with_baseline(n_levels: int, baseline: int) -> Pairs:
    """Return the pairs of every other level with a baseline, which is the second.

    Parameters
    ----------
    n_levels : number of levels
    baseline : place of one of them

    Examples
    --------
    >>> [of.tolist() for of in pairs_with_baseline(3, 1)]
    [[0, 2], [1, 1]]
    """
    others = np.delete(np.arange(n_levels), baseline)
    return others, np.full(others.size, baseline)


def simultaneous(
    values: FloatArray, df: FloatArray, tail: Tail, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return p-values and critical values of statistics of all pairs at once.

    Parameters
    ----------
    values : (m,) statistics, such as √2 |t| for Tukey's test
    df : (m,) degrees of freedom of their standard errors; ∞, or nan, for the normal distribution
    tail : of the largest of the statistics, with errors that are known
    alpha : level of the critical values

    Returns
    -------
    (m,) and (m,) arrays
    """
    degrees = np.where(np.isnan(df), np.inf, df)
    order = np.argsort(degrees, kind="stable")
    in_order = degrees[order]
    with np.errstate(invalid="ignore"):
        is_other = np.append(True, np.diff(in_order) > _SAME_DF * in_order[:-1])[: order.size]
    distinct, number = in_order[is_other], np.cumsum(is_other) - 1
    p, critical = np.empty(values.size), np.empty(values.size)
    p[order] = studentized_sf(values[order], distinct[number], tail)
    critical[order] = studentized_isf(alpha, distinct, tail)[number]
    return p, critical


def adjusted(p_values: FloatArray, correction: CorrectionName) -> FloatArray:
    """Return p-values adjusted for testing all of them.

    A hypothesis is rejected at level α if its adjusted p-value is at most α. Bonferroni and Holm
    then bound the probability of any false rejection by α (the family-wise error rate), Benjamini
    and Hochberg the expected share of rejections that are false (the false discovery rate), if
    p-values are independent or positively dependent; Benjamini and Yekutieli always.

    Parameters
    ----------
    p_values : (m,) of the family
    correction : ``"none"``, ``"bonferroni"``, ``"holm"``, ``"fdr_bh"`` (Benjamini and Hochberg) or
        ``"fdr_by"`` (Benjamini and Yekutieli), as statsmodels' ``multipletests`` calls them

    Returns
    -------
    (m,) array

    Raises
    ------
    PlanError
        If `correction` is not one of these.
    DataError
        If a p-value is not between 0 and 1.

    References
    ----------
    Holm, S. (1979). A simple sequentially rejective multiple test procedure. *Scandinavian Journal
    of Statistics*, 6, 65-70.

    Benjamini, Y. and Hochberg, Y. (1995). Controlling the false discovery rate: a practical and
    powerful approach to multiple testing. *Journal of the Royal Statistical Society B*, 57,
    289-300.

    Benjamini, Y. and Yekutieli, D. (2001). The control of the false discovery rate in multiple
    testing under dependency. *Annals of Statistics*, 29, 1165-1188.

    Examples
    --------
    >>> adjusted(np.array([0.01, 0.04, 0.03]), "holm").round(4).tolist()
    [0.03, 0.06, 0.06]
    >>> adjusted(np.array([0.01, 0.04, 0.03]), "fdr_bh").round(4).tolist()
    [0.03, 0.04, 0.04]
    """
    check_one_of("correction", correction, CORRECTIONS)
    p = np.asarray(p_values, dtype=float)
    if not ((p >= 0.0) & (p <= 1.0)).all():
        raise DataError("p-values must be between 0 and 1, and none may be missing")
    if correction == "none":
        return p.copy()
    if correction == "bonferroni":
        return np.asarray(np.minimum(p.size * p, 1.0))
    if correction != "holm":
        from scipy.stats import false_discovery_control  # deferred for start-up time

        return np.asarray(false_discovery_control(p, method=_METHODS[correction]))
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    holm = np.empty_like(p)
    holm[order] = np.minimum(stepped, 1.0)
    return holm


def by_level(p_values: FloatArray, alpha: float) -> BoolArray:
    """Return which pairs differ in the family of each level alone, by Holm's method.

    Parameters
    ----------
    p_values : (k, k) of all pairs, symmetric; the diagonal is not read
    alpha : family-wise level of the k − 1 pairs of each level

    Returns
    -------
    (k, k) array
        Row j has the decisions on the pairs of level j: not symmetric.
    """
    others = ~np.eye(len(p_values), dtype=bool)
    found = np.zeros_like(others)
    for level, of in enumerate(others):
        p = adjusted(p_values[level, of], "holm")
        found[level, of] = display.snapped(p, alpha) <= alpha
    return found


def equivalence_p(
    difference: FloatArray, std_error: FloatArray, df: FloatArray, margin: float
) -> FloatArray:
    """Return the larger p-value of the two one-sided tests that |difference| < margin.

    Parameters
    ----------
    difference, std_error, df : (m,) of each pair; df ∞, or nan, for the normal distribution
    margin : positive

    References
    ----------
    Schuirmann, D. J. (1987). A comparison of the two one-sided tests procedure and the power
    approach for assessing the equivalence of average bioavailability. *Journal of
    Pharmacokinetics and Biopharmaceutics*, 15, 657-680.

    Examples
    --------
    >>> equivalence_p(np.array([0.5]), np.array([1.0]), np.array([np.inf]), 2.0).round(4)
    array([0.0668])
    """
    return one_sided_p(margin - np.abs(difference), std_error, df)


def two_sided_p(difference: FloatArray, std_error: FloatArray, df: FloatArray) -> FloatArray:
    """Return the p-value of the t-test of each pair for itself.

    Parameters
    ----------
    difference, std_error, df : (m,) of each pair; df ∞, or nan, for the normal distribution

    Examples
    --------
    >>> two_sided_p(np.array([1.0]), np.array([1.0]), np.array([2.0])).round(4)
    array([0.4226])
    """
    return np.minimum(1.0, 2.0 * one_sided_p(np.abs(difference), std_error, df))


def one_sided_p(room: FloatArray, std_error: FloatArray, df: FloatArray) -> FloatArray:
    """Return the probability of a larger t than room/std_error, where there is no error 0 or 1.

    Parameters
    ----------
    room, std_error, df : of the same shape; df ∞, or nan, for the normal distribution

    Examples
    --------
    >>> one_sided_p(np.array([1.5]), np.array([1.0]), np.array([np.inf])).round(4)
    array([0.0668])
    """
    from scipy.special import ndtr, stdtr

    unreached = np.where(room > 0.0, np.inf, -np.inf)
    distance = np.divide(room, std_error, out=unreached, where=std_error > 0.0)
    degrees = np.where(np.isnan(df), np.inf, df)
    exact = np.isfinite(degrees)
    p = ndtr(-distance)
    p[exact] = stdtr(degrees[exact], -distance[exact])
    return np.asarray(p)


def pairs_table(
    names: Sequence[Any],
    pairs: Pairs,
    counts: Mapping[str, LongArray],
    tests: Mapping[str, FloatArray],
    correction: CorrectionName | None,
    alpha: float,
) -> pd.DataFrame:
    """Return the table of a :class:`PairwiseComparisons`.

    Parameters
    ----------
    names : of the levels
    pairs : that were compared
    counts : numbers of observations of each pair, such as ``n_topics``
    tests : ``difference``, ``statistic``, ``p_value``, ``low`` and ``high`` of each pair;
        ``std_error`` and ``df`` if the test has them
    correction : of the p-values; None if they are of all pairs at once, and so adjusted
    alpha : level of significance
    """
    import pandas as pd

    labels = np.empty(len(names), dtype=object)
    labels[:] = list(names)
    p = tests["p_value"]
    p_adjusted = p if correction is None else adjusted(p, correction)
    extra = {name: tests[name] for name in ("std_error", "df") if name in tests}
    return pd.DataFrame(
        {
            "first": labels[pairs[0]],
            "second": labels[pairs[1]],
            **counts,
            "difference": tests["difference"],
            **extra,
            "statistic": tests["statistic"],
            "p_value": p,
            "p_adjusted": p_adjusted,
            "significant": display.snapped(p_adjusted, alpha) <= alpha,
            "low": tests["low"],
            "high": tests["high"],
        }
    )


def groups_of(distinct: BoolArray) -> list[LongArray]:
    """Return the maximal groups of levels without a significant pair.

    Levels that are not distinct share at least one group, and distinct ones none (Piepho, 2004).
    If only levels far enough apart are distinct, the groups are the longest runs of neighbours.

    Parameters
    ----------
    distinct : (k, k) whether the test of two levels is significant, symmetric; levels in the order
        of their means

    Returns
    -------
    list of arrays
        Places of the levels of each group, in order; a level that is distinct from all others is
        a group alone.

    References
    ----------
    Piepho, H.-P. (2004). An algorithm for a letter-based representation of all-pairwise
    comparisons. *Journal of Computational and Graphical Statistics*, 13, 456-466.

    Examples
    --------
    >>> distinct = np.array([[False, False, True], [False, False, False], [True, False, False]])
    >>> [group.tolist() for group in groups_of(distinct)]
    [[0, 1], [1, 2]]
    """
    alike = ~np.asarray(distinct, dtype=bool)
    open_pairs = np.triu(alike, 1)
    grouped = np.zeros(len(alike), dtype=bool)
    groups = []
    for level in range(len(alike)):
        while (later := np.flatnonzero(open_pairs[level])).size:
            members = _grown(alike, level, int(later[-1]))
            open_pairs[np.ix_(members, members)] = False
            grouped[members] = True
            groups.append(members)
        if not grouped[level]:
            groups.append(np.array([level]))
    return groups


def _grown(alike: BoolArray, first: int, last: int) -> LongArray:
    """Return a largest group with two levels: later levels join in their order."""
    members = np.zeros(len(alike), dtype=bool)
    members[[first, last]] = True
    could_join = alike[first] & alike[last] & ~members
    while could_join.any():
        later = np.flatnonzero(could_join[first:])
        joins = first + int(later[0]) if later.size else int(np.flatnonzero(could_join)[-1])
        members[joins] = True
        could_join &= alike[joins]
        could_join[joins] = False
    return np.flatnonzero(members)


def letters(groups: Sequence[LongArray], k: int) -> list[str]:
    """Return the letters of the groups of each level: a to z, then aa, ab and so on.

    Parameters
    ----------
    groups : of :func:`groups_of`
    k : number of levels

    Examples
    --------
    >>> letters([np.array([0, 1]), np.array([1, 2])], 3)
    ['a', 'ab', 'b']
    """
    between = "" if len(groups) <= _ALPHABET else " "
    of: list[list[str]] = [[] for _ in range(k)]
    for number, members in enumerate(groups):
        for level in members:
            of[level].append(_letter(number))
    return [between.join(names) for names in of]


_ALPHABET = 26


def _letter(number: int) -> str:
    """Return the name of a group, as spreadsheets name their columns."""
    name = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, _ALPHABET)
        name = chr(ord("a") + rest) + name
    return name

"""Pairs of levels that are compared, their adjusted p-values, and the table of their tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import DataError, check_one_of
from vcomp.inference.pairwise.studentized import Tail, studentized_isf, studentized_sf

if TYPE_CHECKING:
    import pandas as pd

Pairs: TypeAlias = tuple[LongArray, LongArray]
"""The first and the second level of each pair."""

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
    p, critical = np.empty(values.size), np.empty(values.size)
    degrees = np.where(np.isnan(df), np.inf, df)
    order = np.argsort(degrees, kind="stable")
    in_order = degrees[order]
    with np.errstate(invalid="ignore"):
        steps = np.diff(in_order) > _SAME_DF * in_order[:-1]
    for of in np.split(order, np.flatnonzero(steps) + 1):
        own = float(degrees[of[0]])
        p[of] = studentized_sf(values[of], own, tail)
        critical[of] = studentized_isf(alpha, own, tail)
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
    correction : of the p-values; None if they are of all pairs at once
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

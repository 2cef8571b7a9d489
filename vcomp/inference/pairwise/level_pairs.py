"""Pairs of levels that are compared, and the table of their tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.inference.pairwise.adjustments import CorrectionName, adjusted
from vcomp.inference.pairwise.studentized import Tail, studentized_isf, studentized_sf

if TYPE_CHECKING:
    import pandas as pd

Pairs: TypeAlias = tuple[LongArray, LongArray]
"""The first and the second level of each pair."""

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

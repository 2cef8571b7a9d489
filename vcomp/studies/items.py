"""Item analysis: which items a test would be better without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import DataError, check_one_of, guarded, is_real
from vcomp.studies.alpha_coefficients import (
    NO_VARIANCE,
    ItemCovariances,
    alpha_of,
    from_pairs,
    is_constant,
    pair_counts,
)
from vcomp.studies.item_scores import ItemScores, ScoresOfItems, complete_rows, read_scores

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ItemAnalysis(display.Printed):
    """One row per item, those to look at first; ``print`` it.

    Columns and rows are those of :attr:`table`: ``analysis["item_rest"]``, ``len(analysis)``.

    Attributes
    ----------
    table : index ``item``, with the columns

        ``n``
            number of scores
        ``difficulty``
            mean score: an easy item has a high one
        ``share_of_range``
            where a range was given, the mean as a share of it
        ``variance``
            of the scores, with n − 1
        ``item_total``
            correlation with the total, of which the item is a part
        ``item_rest``
            correlation with the total of the other items (corrected item-total correlation)
        ``alpha_if_dropped``, ``alpha_change``
            Cronbach's alpha without the item, and its difference from that of all items
        ``flagged``, ``reason``
            whether there is something to look at, and what; also why a number is nan
    cronbach_alpha : Cronbach's alpha of all items; nan where it cannot be estimated
    n_objects, n_items : that were analysed
    low : items with a lower item-rest correlation are flagged
    missing : how missing cells were treated, in words; empty where there are none
    notes : what a reader should know of these numbers

    Examples
    --------
    >>> from vcomp.ctt import item_analysis
    >>> found = item_analysis([[3, 2, 1], [4, 4, 2], [5, 4, 1], [7, 6, 0]])
    >>> found.flagged["reason"].to_dict()
    {2: 'negative item-rest; α higher without it'}
    >>> found
    ItemAnalysis(items=3, objects=4, flagged=1)
    """

    table: pd.DataFrame
    cronbach_alpha: float
    n_objects: int
    n_items: int
    low: float
    missing: str
    notes: tuple[str, ...] = ()

    @property
    def flagged(self) -> pd.DataFrame:
        """The rows of the flagged items."""
        return self.table.loc[self.table["flagged"]]

    @property
    def columns(self) -> pd.Index:
        """Names of the columns."""
        return self.table.columns

    def __getitem__(self, column: str) -> pd.Series:
        return self.table[column]

    def __len__(self) -> int:
        return len(self.table)

    def summary(self, max_items: int = 25) -> Any:
        """Return a printable summary: text with ``print``, HTML in a notebook.

        Parameters
        ----------
        max_items : rows that are shown at most, the flagged ones first

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        frame = self.table.iloc[: max(int(max_items), 0)]
        cells = {"n": [display.count(n) for n in frame["n"]]}
        cells["difficulty"] = display.fixed(frame["difficulty"], significant=3)
        if "share_of_range" in frame:
            cells["of range"] = [display.percent(x) for x in frame["share_of_range"]]
        cells["variance"] = display.fixed(frame["variance"], significant=3)
        for header, name in (("item-total", "item_total"), ("item-rest", "item_rest")):
            cells[header] = display.fixed(frame[name], decimals=3)
        # One item of a thousand changes α in the fifth decimal.
        largest = [np.nanmax(np.abs([*frame["alpha_change"], 0.0]))]
        decimals = min(max(display.decimals_for(largest, 2), 3), 6)
        cells["α if dropped"] = display.fixed(frame["alpha_if_dropped"], decimals=decimals)
        cells["look at"] = list(frame["reason"])
        title = (
            f"{display.count(self.n_items)} items, {display.count(self.n_objects)} objects; "
            f"α = {display.coefficient(self.cronbach_alpha)}; "
            f"{display.count(len(self.flagged))} flagged"
        )
        table = display.column_table(
            cells,
            title=title,
            stubs=[str(label) for label in frame.index],
            align="r" * (len(cells) - 1) + "l",
        )
        return display.summary([table], self._explanations(len(frame)))

    def _explanations(self, n_shown: int) -> list[str]:
        lines = [] if not self.missing else [self.missing]
        if n_shown < len(self):
            lines.append(
                f"{display.count(len(self) - n_shown)} more items are in .table, "
                f"{display.count(max(len(self.flagged) - n_shown, 0))} of them flagged."
            )
        lines.append(
            "Difficulty is the mean score: easy items have a high one. item-rest: correlation "
            "with the total of the other items."
        )
        if len(self.flagged):
            lines.append(
                "Flagged: item-rest below "
                f"{display.number(self.low)}, no variance, or a higher α without the item. Look "
                "at them before dropping any: α chosen by dropping is too high for new scores."
            )
        return lines + list(self.notes)

    def plot(self, ax: Any | None = None, max_labels: int = 12) -> Any:
        """Draw item-rest correlations over difficulties, flagged items with their names.

        Parameters
        ----------
        ax : matplotlib axes to draw on; those of a new figure if None
        max_labels : names at most, of the items with the lowest correlations

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        VcompError
            If matplotlib is not installed.
        """
        from vcomp import plots

        return plots.items(self.table, low=self.low, max_labels=max_labels, ax=ax)

    def __repr__(self) -> str:
        return (
            f"ItemAnalysis(items={self.n_items}, objects={self.n_objects}, "
            f"flagged={len(self.flagged)})"
        )


_CANCELLED = 1e-6
"""Share of its operands below which the variance of totals or rests is computed directly."""


@dataclass(frozen=True, slots=True, eq=False)
class ItemStatistics:
    """Statistics of k items, (k,) each; nan where undefined.

    Attributes
    ----------
    n : number of scores
    mean, variance : of the scores
    item_total, item_rest : correlations with the total, and with the total of the other items
    alpha_if_dropped : alpha of the other items
    constant, rest_constant : items, and rests, without any variance
    cronbach_alpha : of all items
    """

    n: FloatArray
    mean: FloatArray
    variance: FloatArray
    item_total: FloatArray
    item_rest: FloatArray
    alpha_if_dropped: FloatArray
    constant: BoolArray
    rest_constant: BoolArray
    cronbach_alpha: float


def of_complete(X: FloatArray) -> ItemStatistics:
    """Return the statistics of a matrix without missing cells.

    Parameters
    ----------
    X : (n, k) scores, n and k at least 2
    """
    n, k = X.shape
    mean = X.mean(axis=0)
    D = X - mean
    t = D.sum(axis=1)
    variance = np.einsum("ij,ij->j", D, D) / (n - 1)
    largest = np.maximum(X.max(axis=0), -X.min(axis=0))
    constant = is_constant(variance, largest)
    variance[constant] = 0.0
    with_total = t @ D / (n - 1)
    with_total[constant] = 0.0
    total = float(t @ t) / (n - 1)
    with_rest = with_total - variance
    of_rest = total - 2.0 * with_total + variance
    for i in np.flatnonzero(of_rest < _CANCELLED * (total + variance)):
        rest = D[:, :i].sum(axis=1) + D[:, i + 1 :].sum(axis=1)
        of_rest[i], with_rest[i] = rest @ rest / (n - 1), D[:, i] @ rest / (n - 1)
    rest_constant = is_constant(of_rest, k * _of_others(largest, np.fmax))
    no_total = bool(is_constant(np.array([total]), np.array([k * largest.max()]))[0])
    alpha = np.nan if no_total else alpha_of(float(variance.sum()), total, k)
    return ItemStatistics(
        n=np.full(k, float(n)),
        mean=mean,
        variance=variance,
        item_total=_correlation(with_total, variance, np.full(k, 0.0 if no_total else total)),
        item_rest=_correlation(with_rest, variance, np.where(rest_constant, 0.0, of_rest)),
        alpha_if_dropped=_without_each(variance, np.where(rest_constant, 0.0, of_rest)),
        constant=constant,
        rest_constant=rest_constant,
        cronbach_alpha=alpha,
    )


def of_available(X: FloatArray, covariances: ItemCovariances | None) -> ItemStatistics:
    """Return the statistics of a matrix with missing cells.

    The total of an object is the mean of the scores that it has, and the rest that of its scores
    on other items; scores are deviations from the means of their items, so that it does not matter
    how difficult the items are that an object has.

    Parameters
    ----------
    X : (n, k) scores, nan where there is none
    covariances : of pairs of items, for alpha; None where there are none
    """
    k = X.shape[1]
    observed = ~np.isnan(X)
    counts = observed.sum(axis=1).astype(float)
    n = observed.sum(axis=0).astype(float)
    mean = np.divide(np.nansum(X, axis=0), n, out=np.full(k, np.nan), where=n > 0.0)
    D = np.where(observed, X - mean, 0.0)
    totals = D.sum(axis=1)
    largest = np.fmax.reduce(np.abs(X), axis=0, initial=0.0)
    df = np.where(n > 1.0, n - 1.0, np.nan)
    variance = np.einsum("ij,ij->j", D, D) / df
    constant = is_constant(variance, largest)
    variance[constant] = 0.0
    item_total, of_total = _with_totals(D, observed, totals / np.maximum(counts, 1.0), variance)
    every = np.full(k, largest.max())
    item_total[constant | is_constant(of_total, every)] = np.nan
    item_rest, of_rest = _with_rests(D, observed, totals, counts)
    rest_constant = is_constant(of_rest, _of_others(largest, np.fmax))
    item_rest[constant | rest_constant] = np.nan
    without, alpha = np.full(k, np.nan), np.nan
    if covariances is not None and covariances.total > 0.0:
        c = covariances
        alpha = alpha_of(float(c.variances.sum()), c.total, k)
        without = _without_each(c.variances, _rests(c))
    return ItemStatistics(
        n=n,
        mean=mean,
        variance=variance,
        item_total=item_total,
        item_rest=item_rest,
        alpha_if_dropped=without,
        constant=constant,
        rest_constant=rest_constant,
        cronbach_alpha=alpha,
    )


def _with_totals(
    D: FloatArray, there: BoolArray, t: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the correlations of items with the mean scores t of the objects that have them.

    And the variances of these, item by item.
    """
    n, sums, squares = np.column_stack([np.ones_like(t), t, t**2]).T @ there.astype(float)
    df = np.where(n > 1.0, n - 1.0, np.nan)
    of_total, both = (squares - sums**2 / np.maximum(n, 1.0)) / df, t @ D / df
    for i in np.flatnonzero(of_total * df < _CANCELLED * squares):
        centred = t[there[:, i]] - t[there[:, i]].mean()
        of_total[i], both[i] = centred @ centred / df[i], centred @ D[there[:, i], i] / df[i]
    return _correlation(both, variance, of_total), of_total


def _with_rests(
    D: FloatArray, there: BoolArray, totals: FloatArray, counts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the correlations of items with rests, and the variances of the rests.

    The rest is u − w d with w = 1/(number of other items) and u = w Σ d, so that its sums over
    the objects of an item are products of u and w with three matrices: whether there is a score,
    d, and d².
    """
    q = (counts > 1.0).astype(float)
    w = q / np.maximum(counts - 1.0, 1.0)
    u = w * totals
    n, sum_u, sum_uu = np.column_stack([q, u, u**2]).T @ there.astype(float)
    sum_d, sum_ud, sum_wd, sum_uwd = np.column_stack([q, u, w, u * w]).T @ D
    sum_dd, sum_wdd, sum_wwdd = np.column_stack([q, w, w**2]).T @ np.square(D)
    some, df = np.maximum(n, 1.0), np.where(n > 1.0, n - 1.0, np.nan)
    sum_r, sum_rr = sum_u - sum_wd, sum_uu - 2.0 * sum_uwd + sum_wwdd
    of_item = (sum_dd - sum_d**2 / some) / df
    of_rest = (sum_rr - sum_r**2 / some) / df
    both = (sum_ud - sum_wdd - sum_d * sum_r / some) / df
    for i in np.flatnonzero(of_rest * df < _CANCELLED * (sum_uu + sum_wwdd)):
        of_others = D[:, :i].sum(axis=1) + D[:, i + 1 :].sum(axis=1)
        has = there[:, i] & (counts > 1.0)
        d, r = D[has, i], (w * of_others)[has]
        d, r = d - d.mean(), r - r.mean()
        of_item[i], of_rest[i], both[i] = (np.array([d @ d, r @ r, d @ r])) / df[i]
    return _correlation(both, of_item, of_rest), of_rest


def _correlation(covariance: FloatArray, v_a: FloatArray, v_b: FloatArray) -> FloatArray:
    below = np.sqrt(v_a) * np.sqrt(v_b)
    r = np.divide(covariance, below, out=np.full_like(below, np.nan), where=below > 0.0)
    return np.asarray(np.clip(r, -1.0, 1.0))


def _without_each(variances: FloatArray, of_rest: FloatArray) -> FloatArray:
    """Return alpha of all items but one, for each of them; nan of one item alone."""
    k = variances.size
    if k < 3:
        return np.full(k, np.nan)
    left = _of_others(variances, np.add)
    ratio = np.divide(left, of_rest, out=np.full(k, np.nan), where=of_rest > 0.0)
    return np.asarray((k - 1) / (k - 2) * (1.0 - ratio))


def _rests(c: ItemCovariances) -> FloatArray:
    """Return the variances of the rests from the covariances of pairs."""
    of_rest: FloatArray = c.total - 2.0 * c.with_total + c.variances
    assert c.matrix is not None
    for i in np.flatnonzero(of_rest < _CANCELLED * (c.total + c.variances)):
        others = np.arange(c.k) != i
        of_rest[i] = c.matrix[np.ix_(others, others)].sum()
    rounding = NO_VARIANCE * c.k * _of_others(c.variances, np.add)
    return np.where(of_rest > rounding, of_rest, 0.0)


def _of_others(values: FloatArray, function: np.ufunc) -> FloatArray:
    """Return for each value the sum, or the largest, of all others, without subtraction."""
    before = np.concatenate([[0.0], function.accumulate(values)[:-1]])
    after = np.concatenate([function.accumulate(values[::-1])[::-1][1:], [0.0]])
    return np.asarray(function(before, after))


@guarded
def item_analysis(
    scores: ScoresOfItems,
    *,
    object: str | None = None,  # noqa: A002 - the word of the field
    item: str | None = None,
    score: str | None = None,
    low: float = 0.2,
    rise: float = 0.0,
    score_range: tuple[float, float] | None = None,
    order: Literal["flagged", "given"] = "flagged",
    missing: Literal["pairwise", "listwise", "raise"] = "pairwise",
) -> ItemAnalysis:
    """Return difficulty, variance, correlations with total and rest, and alpha without each item.

    A bare matrix has **one row per object of measurement and one column per item**.

    Flagged are items with a negative or low correlation with the rest, without variance, and those
    without which alpha is higher. A topic with a negative correlation is one on which good systems
    do badly: Bodoff and Li (2007, sec. 3.1.2) found about one in each TREC collection.

    Parameters
    ----------
    scores : long table with its columns named, :class:`vcomp.ir.ScoreMatrix` (of which systems
        are the objects and topics the items), or matrix; see :func:`reliability`
    object, item, score : columns of a long table, see :func:`reliability`
    low : items whose item-rest correlation is below are flagged; 0.2 after Ebel (1965)
    rise : items without which alpha is higher by more than this are flagged
    score_range : lowest and highest possible score, for means as shares of the range
    order : of the rows, ``"flagged"`` first and among them the lowest item-rest correlation first
        (those without one after them), or as ``"given"``
    missing : what to do where cells are missing:

        * ``"pairwise"``: all scores are used. The total of an object is the mean of its scores,
          and the rest that of its scores on other items, both of deviations from the items' means;
          alpha rests on the covariances of objects that have both items, and is nan where two
          items have fewer than two in common;
        * ``"listwise"``: objects without a score on every item are left out;
        * ``"raise"``: an error.

    Returns
    -------
    ItemAnalysis

    Raises
    ------
    DataError
        If `scores` is not a numeric matrix of at least two objects and two items, a score is
        infinite or out of the range, there is no score at all, or an option is not one that can
        be; or if long data have two scores of one object on one item.
    PlanError
        If `missing` or `order` is not one of those above.

    See Also
    --------
    reliability : the coefficients of the whole test, with their intervals

    References
    ----------
    Bodoff, D. and Li, P. (2007). Test theory for assessing IR test collections. *SIGIR*, 367-374.

    Ebel, R. L. (1965). *Measuring educational achievement*, p. 364: below .19 "poor items".

    Lord, F. M. and Novick, M. R. (1968). *Statistical theories of mental test scores*, chap. 15.

    Examples
    --------
    >>> import vcomp
    >>> data = vcomp.datasets.load("bodoff2007_alpha")
    >>> found = item_analysis(data, object="sys", item="topic", score="score")
    >>> found.table[["difficulty", "item_rest", "alpha_if_dropped", "flagged"]].round(3)
             difficulty  item_rest  alpha_if_dropped  flagged
    item
    query 2       0.684      0.580             0.823     True
    query 1       0.788      0.816             0.672    False
    query 3       0.700      0.689             0.731    False
    >>> found.flagged["reason"].item()
    'α higher without it'
    """
    check_one_of("missing", missing, ("pairwise", "listwise", "raise"))
    check_one_of("order", order, ("flagged", "given"))
    if not is_real(low) or not -1.0 <= low <= 1.0:
        raise DataError(f"low is a correlation, between -1 and 1, not {low!r}")
    if not is_real(rise) or not 0.0 <= rise <= 1.0:
        raise DataError(f"rise is a difference of alphas, between 0 and 1, not {rise!r}")
    matrix = read_scores(scores, object, item, score, what="item analysis")
    if not matrix.items.is_unique:
        twice = matrix.items[matrix.items.duplicated()][0]
        raise DataError(f"there are several items called {str(twice)!r}", level=twice)
    limits = None if score_range is None else _range(matrix, score_range)
    found, matrix, words, notes = _statistics(matrix, missing)
    if np.isnan(found.cronbach_alpha) and not notes:
        notes = ("All objects have the same total: α is not defined.",)
    if len(matrix.items) == 2:
        notes += ("One item alone has no α, so there is no α without an item.",)
    table = _table(matrix, found, (float(low), float(rise)), limits)
    if order == "flagged":
        table = _flagged_first(table)
    return ItemAnalysis(
        table=table,
        cronbach_alpha=found.cronbach_alpha,
        n_objects=len(matrix.objects),
        n_items=len(matrix.items),
        low=float(low),
        missing=words,
        notes=notes,
    )


def _statistics(
    matrix: ItemScores, missing: str
) -> tuple[ItemStatistics, ItemScores, str, tuple[str, ...]]:
    """Return statistics, the scores used, the treatment of missing ones in words, and notes."""
    if not matrix.n_missing:
        return of_complete(matrix.values), matrix, "", ()
    there = matrix.missing_in_words
    if missing == "raise":
        raise matrix.incomplete("'pairwise' uses")
    if missing == "listwise":
        kept, words = complete_rows(matrix)
        return of_complete(kept.values), kept, words, ()
    matrix = matrix.with_scores()
    if len(matrix.objects) < 2:
        raise DataError(f"{there}: {len(matrix.objects)} objects have a score, and two are needed")
    covariances, notes = _covariances(matrix)
    words = (
        f"{there}: total and rest are means of the scores that an object has, adjusted for the "
        "difficulty of its items."
    )
    return of_available(matrix.values, covariances), matrix, words, notes


def _covariances(matrix: ItemScores) -> tuple[ItemCovariances | None, tuple[str, ...]]:
    """Return covariances of pairs for alpha; items without a score are in none."""
    try:
        covariances = from_pairs(matrix, pair_counts(matrix.values))
    except DataError as error:
        return None, (f"No α here: {error}. vcomp.reliability estimates it by REML.",)
    if covariances.total <= 0.0:
        return covariances, ("No α here: covariances of pairs do not add up to more than 0.",)
    return covariances, (
        "α here rests on the covariances of pairs of items, that of vcomp.reliability on REML.",
    )


def _table(
    matrix: ItemScores,
    found: ItemStatistics,
    thresholds: tuple[float, float],
    limits: tuple[float, float] | None,
) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, Any] = {"n": found.n.astype(np.int64), "difficulty": found.mean}
    if limits is not None:
        columns["share_of_range"] = (found.mean - limits[0]) / (limits[1] - limits[0])
    change = found.alpha_if_dropped - found.cronbach_alpha
    columns |= {
        "variance": found.variance,
        "item_total": found.item_total,
        "item_rest": found.item_rest,
        "alpha_if_dropped": found.alpha_if_dropped,
        "alpha_change": change,
    }
    reasons = _reasons(found, change, *thresholds)
    return pd.DataFrame(
        {**columns, "flagged": [bool(r) for r in reasons], "reason": reasons},
        index=matrix.items.rename("item"),
    )


def _reasons(found: ItemStatistics, change: FloatArray, low: float, rise: float) -> list[str]:
    """Return the reasons for flagging each item, in words; empty if it is not flagged."""
    r = display.snapped(display.snapped(found.item_rest, 0.0), low)
    flags = (
        (found.n == 0, "no score"),
        (found.n == 1, "one score"),
        (found.constant, "no variance"),
        (~found.constant & found.rest_constant, "the rest has no variance"),
        (r < 0.0, "negative item-rest"),
        ((r >= 0.0) & (r < low), "low item-rest"),
        ((display.snapped(change, rise) > rise) & ~found.constant, "α higher without it"),
    )
    reasons: list[list[str]] = [[] for _ in range(r.size)]
    for where, words in flags:
        for i in np.flatnonzero(where):
            reasons[i].append(words)
    silent = np.isnan(r) & np.array([not words for words in reasons])
    for i in np.flatnonzero(silent):
        reasons[i].append("too few objects have other items")
    return ["; ".join(words) for words in reasons]


def _flagged_first(table: pd.DataFrame) -> pd.DataFrame:
    flagged = table["flagged"].to_numpy()
    r = table["item_rest"].to_numpy(dtype=float)
    first = np.flatnonzero(flagged)
    by_correlation = first[np.argsort(np.where(np.isnan(r), math.inf, r)[first], kind="stable")]
    return table.iloc[np.concatenate([by_correlation, np.flatnonzero(~flagged)])]


def _range(matrix: ItemScores, score_range: Any) -> tuple[float, float]:
    """Return the lowest and highest possible score."""
    pair = isinstance(score_range, Sequence | np.ndarray) and len(score_range) == 2
    numbers = pair and all(is_real(x) and math.isfinite(x) for x in score_range)
    if not numbers or score_range[0] >= score_range[1]:
        raise DataError(
            f"score_range is the lowest and the highest possible score, as (0, 1), not "
            f"{score_range!r}"
        )
    lowest, highest = (float(x) for x in score_range)
    outside = (matrix.values < lowest) | (matrix.values > highest)
    if outside.any():
        p, i = np.argwhere(outside)[0]
        raise DataError(
            f"item {str(matrix.items[i])!r} has the score "
            f"{display.number(float(matrix.values[p, i]))}, outside of the range from "
            f"{display.number(lowest)} to {display.number(highest)}",
            level=matrix.items[i],
        )
    return lowest, highest

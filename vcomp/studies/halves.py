"""Split-half reliability: choose the halves of a test, correlate them, and correct for length."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import DataError, check_one_of, did_you_mean, guarded
from vcomp.numerics import check_count, seed_from, slices, stream
from vcomp.studies.alpha_coefficients import alpha_of, check_totals
from vcomp.studies.item_scores import ItemScores, ScoresOfItems, complete_rows, read_scores

if TYPE_CHECKING:
    import pandas as pd

Split: TypeAlias = "str | tuple[Sequence[Hashable], Sequence[Hashable]]"

SPLITS = ("odd-even", "first-last", "random", "all")

SYMBOLS = {
    "correlation": "correlation of the halves",
    "spearman_brown": "Spearman-Brown",
    "horst": "Horst (halves of unequal length)",
    "flanagan_rulon": "Flanagan-Rulon, Guttman",
    "raju": "Raju (halves of unequal length)",
}
"""The coefficients in order, and how they are printed."""

_MOST_SPLITS = 200_000
"""Largest number of splits that are all evaluated: those of 20 items."""

_ROUNDING = 64 * float(np.finfo(float).eps)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SplitHalf(display.Printed):
    """Coefficients of one split into halves, or of many; ``print`` it.

    Attributes
    ----------
    table : one row per split with the columns ``n_first``, ``n_second`` (items of the halves),
        ``correlation``, ``spearman_brown``, ``horst``, ``flanagan_rulon`` and ``raju``; nan where
        a half has no variance, and so no correlation
    halves : labels of the items of the two halves; None where there are many splits
    cronbach_alpha : Cronbach's alpha of the same scores
    n_objects, n_items : that were used
    how : the splits in words
    notes : what a reader should know of these numbers

    Examples
    --------
    >>> scores = [[1, 2, 2, 1], [3, 3, 4, 2], [2, 4, 3, 4], [5, 4, 5, 5], [1, 1, 3, 2]]
    >>> split_half_reliability(scores, "all")
    SplitHalf(splits=3, items=4)
    """

    table: pd.DataFrame
    halves: tuple[tuple[Any, ...], tuple[Any, ...]] | None
    cronbach_alpha: float
    n_objects: int
    n_items: int
    how: str
    notes: tuple[str, ...] = ()

    @property
    def mean(self) -> pd.Series:
        """Mean of each coefficient over the splits that have it; of one split its own."""
        return self.table[list(SYMBOLS)].mean()

    def summary(self) -> Any:
        """Return a printable summary: text with ``print``, HTML in a notebook.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        frame = self.table
        unequal = bool((frame["n_first"] != frame["n_second"]).any())
        names = [n for n in SYMBOLS if unequal or n not in ("horst", "raju")]
        title = (
            f"Split-half reliability of {display.count(self.n_items)} items; "
            f"{display.count(self.n_objects)} objects"
        )
        if len(frame) == 1:
            headers = ["estimate"]
            cells = [[display.coefficient(float(frame[n].iloc[0]))] for n in names]
        else:
            headers = ["mean", "least", "5 %", "median", "95 %", "largest"]
            shares = (0.0, 0.05, 0.5, 0.95, 1.0)
            cells = [
                [display.coefficient(x) for x in (frame[n].mean(), *frame[n].quantile(shares))]
                for n in names
            ]
        table = display.simple_table(
            cells, headers, title=title, stubs=[SYMBOLS[n] for n in names]
        )
        last = f"Cronbach's α of the same scores: {display.coefficient(self.cronbach_alpha)}"
        last += (
            ", the mean of Raju's coefficient over all splits."
            if unequal
            else (", the mean of Flanagan and Rulon's coefficient over all splits.")
        )
        return display.summary([table], [f"Halves: {self.how}.", last, *self.notes])

    def __repr__(self) -> str:
        return f"SplitHalf(splits={len(self.table)}, items={self.n_items})"


@guarded
def split_half_reliability(
    scores: ScoresOfItems,
    split: Split = "odd-even",
    *,
    object: str | None = None,  # noqa: A002 - the word of the field
    item: str | None = None,
    score: str | None = None,
    trials: int | None = None,
    rng: int | np.random.Generator | None = None,
    missing: Literal["raise", "listwise"] = "raise",
) -> SplitHalf:
    """Return the split-half reliability of a test from scores of halves of its items.

    A bare matrix has **one row per object of measurement and one column per item**.
    :func:`vcomp.ir.split_half` is different: it compares halves of the topics of a collection.

    With r the correlation of the halves A and B, p and q their shares of the items, and V the
    variance of the total:

    * Spearman-Brown 2r/(1 + r), for halves of equal length and variance;
    * Horst (1951) (r √(r² + 4pq(1 − r²)) − r²)/(2pq(1 − r²)), the same for unequal length;
    * Flanagan-Rulon 4 s_AB/V, which is also Guttman's (1945): its mean over all splits into
      halves of equal length is Cronbach's alpha;
    * Raju (1970) s_AB/(pq V), the same for unequal length: so is its mean.

    Parameters
    ----------
    scores : long table with its columns named, :class:`vcomp.ir.ScoreMatrix`, or matrix; see
        :func:`reliability`
    split : ``"odd-even"`` items as they stand, ``"first-last"``, ``"random"`` (`trials` of
        them), ``"all"`` (up to 20 items), or two sequences of labels of items (of an array:
        positions) that together are all of them. Of an odd number of items one half has one more
    object, item, score : columns of a long table, see :func:`reliability`
    trials : number of splits with ``split="random"``, 1000 if None
    rng : of these: seed, or a generator that one is drawn from once; 0 if not given
    missing : ``"raise"`` an error, or ``"listwise"`` leave out objects that miss a score

    Returns
    -------
    SplitHalf

    Raises
    ------
    DataError
        If `scores` is not a numeric matrix of at least two objects and two items, a cell is
        missing or infinite, all totals are equal; or if `split` is not one that can be.
    PlanError
        If `missing` or the name in `split` is not one of those above.
    EstimationError
        If `trials` or `rng` is not one that can be.

    References
    ----------
    Horst, P. (1951). Estimating total test reliability from parts of unequal length. *Educational
    and Psychological Measurement*, 11(3), 368-371.

    Raju, N. S. (1970). New formula for estimating total test reliability from parts of unequal
    lengths. *Proceedings of the 78th Annual Convention of the APA*, 5, 143-144.

    Rulon, P. J. (1939). *Harvard Educational Review*, 9, 99-103.

    Examples
    --------
    >>> scores = [[1, 2, 2, 1], [3, 3, 4, 2], [2, 4, 3, 4], [5, 4, 5, 5], [1, 1, 3, 2]]
    >>> found = split_half_reliability(scores)
    >>> found.halves
    ((0, 2), (1, 3))
    >>> found.mean[["correlation", "spearman_brown"]].round(3).to_dict()
    {'correlation': 0.761, 'spearman_brown': 0.864}
    >>> both = split_half_reliability(scores, "all")
    >>> bool(abs(both.mean["flanagan_rulon"] - both.cronbach_alpha) < 1e-12)
    True
    """
    check_one_of("missing", missing, ("raise", "listwise"))
    matrix = read_scores(scores, object, item, score, what="split-half reliability")
    matrix, notes = _complete(matrix, missing)
    check_totals(matrix.values)
    parts, how = _splits(matrix, split, trials, rng)
    table, n_without = _table(matrix.values, parts)
    if n_without:
        why = "a half has no variance, or is the opposite of the other"
        splits = f"{display.count(n_without)} of {display.count(len(table))} splits"
        notes += (f"In {splits} {why}: coefficients from r are not defined.",)
    D = matrix.values - matrix.values.mean(axis=0)
    total = float(D.sum(axis=1).var(ddof=1))
    halves = None
    if len(parts) == 1:
        labels = matrix.items.tolist()
        chosen = parts[0]
        halves = (
            tuple(x for x, first in zip(labels, chosen, strict=True) if first),
            tuple(x for x, first in zip(labels, chosen, strict=True) if not first),
        )
    return SplitHalf(
        table=table,
        halves=halves,
        cronbach_alpha=alpha_of(float(D.var(axis=0, ddof=1).sum()), total, D.shape[1]),
        n_objects=len(matrix.objects),
        n_items=len(matrix.items),
        how=how,
        notes=notes,
    )


def _complete(matrix: ItemScores, missing: str) -> tuple[ItemScores, tuple[str, ...]]:
    if not matrix.n_missing:
        return matrix, ()
    if missing == "raise":
        raise DataError(
            f"{matrix.missing_in_words}, so halves do not have the same items for all objects; "
            "missing='listwise' leaves out these objects, and vcomp.reliability needs no halves"
        )
    kept, words = complete_rows(matrix)
    return kept, (words,)


# Which items are in the first half -----------------------------------------------------------


def _splits(
    matrix: ItemScores, split: Any, trials: int | None, rng: int | np.random.Generator | None
) -> tuple[BoolArray, str]:
    """Return which items are in the first half, (splits, k), and the splits in words."""
    k = len(matrix.items)
    if split != "random" and (trials is not None or rng is not None):
        raise DataError("trials= and rng= are for split='random'")
    if not isinstance(split, str):
        return _explicit(matrix, split)[None, :], "as given"
    check_one_of("split", split, SPLITS)
    places = np.arange(k)
    if split == "odd-even":
        return (places % 2 == 0)[None, :], "items at odd and at even places"
    if split == "first-last":
        return (places < (k + 1) // 2)[None, :], "first and last items"
    if split == "random":
        n = check_count(1000 if trials is None else trials, "trials")
        numbers = stream(seed_from(rng), 0)
        order = numbers.permuted(np.tile(places, (n, 1)), axis=1)
        return order < (k + 1) // 2, f"{display.count(n)} random splits"
    n = math.comb(k, k // 2) // (1 if k % 2 else 2)
    if n > _MOST_SPLITS:
        raise DataError(
            f"{k} items have {display.count(n)} splits into halves; split='random' draws "
            "trials of them"
        )
    halves = np.zeros((n, k), dtype=bool)
    for row, chosen in zip(halves, _all_halves(k), strict=True):
        row[list(chosen)] = True
    return halves, f"all {display.count(n)} splits"


def _all_halves(k: int) -> Iterator[tuple[int, ...]]:
    """Yield the larger halves; of equal ones that with the first item: halves have no order."""
    if k % 2:
        yield from combinations(range(k), (k + 1) // 2)
    else:
        for rest in combinations(range(1, k), k // 2 - 1):
            yield (0, *rest)


def _explicit(matrix: ItemScores, split: Any) -> BoolArray:
    is_pair = isinstance(split, Sequence) and len(split) == 2
    if not is_pair or any(
        isinstance(half, str) or not hasattr(half, "__iter__") for half in split
    ):
        raise DataError(
            f"split is one of {', '.join(map(repr, SPLITS))}, or two sequences of items, not "
            f"{split!r}"
        )
    place: Mapping[Any, int] = {label: i for i, label in enumerate(matrix.items.tolist())}
    first_half, second_half = ([_place(label, place) for label in half] for half in split)
    both = first_half + second_half
    labels = matrix.items.tolist()
    if not first_half or not second_half:
        raise DataError("a half has no items")
    twice = next((labels[i] for i in both if both.count(i) > 1), None)
    if len(set(both)) < len(both):
        raise DataError(f"item {twice!r} is in the halves twice", level=twice)
    absent = sorted(set(range(len(labels))) - set(both))
    if absent:
        raise DataError(
            f"item {labels[absent[0]]!r} is in neither half; leave its scores out if intended",
            level=labels[absent[0]],
        )
    first = np.zeros(len(labels), dtype=bool)
    first[first_half] = True
    return first


def _place(label: Any, place: Mapping[Any, int]) -> int:
    try:
        return place[label]
    except (KeyError, TypeError):
        raise DataError(
            f"there is no item {label!r} in the scores{did_you_mean(label, map(str, place))}",
            level=label,
        ) from None


# Coefficients of the splits -------------------------------------------------------------------


def _table(X: FloatArray, first: BoolArray) -> tuple[pd.DataFrame, int]:
    """Return the coefficients of each split, and how many have none from the correlation."""
    import pandas as pd

    n, k = X.shape
    D = X - X.mean(axis=0)
    totals = D.sum(axis=1)
    V = float(totals @ totals)
    n_first = first.sum(axis=1)
    v_first, v_second, between = (np.empty(len(first)) for _ in range(3))
    for part in slices(len(first), max(1, (1 << 22) // max(n, k))):
        A = D @ first[part].T.astype(float)
        B = totals[:, None] - A
        v_first[part], v_second[part] = np.square(A).sum(axis=0), np.square(B).sum(axis=0)
        between[part] = (A * B).sum(axis=0)
    smallest = np.square(_ROUNDING * k * np.abs(X).max()) * n
    has = (v_first > smallest) & (v_second > smallest)
    r = np.full(len(first), np.nan)
    r[has] = between[has] / np.sqrt(v_first[has] * v_second[has])
    r = np.clip(r, -1.0, 1.0)
    p = n_first / k
    frame = pd.DataFrame(
        {
            "n_first": n_first,
            "n_second": k - n_first,
            "correlation": r,
            "spearman_brown": np.divide(
                2.0 * r, 1.0 + r, out=np.full_like(r, np.nan), where=1.0 + r > 0.0
            ),
            "horst": _horst(r, p * (1.0 - p)),
            "flanagan_rulon": 4.0 * between / V,
            "raju": between / (p * (1.0 - p) * V),
        }
    )
    return frame, int(frame["spearman_brown"].isna().sum())


def _horst(r: FloatArray, pq: FloatArray) -> FloatArray:
    """Return Horst's correction.

    (r √(r² + 4pq(1 − r²)) − r²)/(2pq(1 − r²)), multiplied above and below by the conjugate of the
    numerator, so that r = 1 has no 0/0: 2r/(√(r² + 4pq(1 − r²)) + r).
    """
    root = np.sqrt(np.square(r) + 4.0 * pq * (1.0 - np.square(r)))
    below = root + r
    return np.divide(2.0 * r, below, out=np.full_like(r, np.nan), where=below > 0.0)

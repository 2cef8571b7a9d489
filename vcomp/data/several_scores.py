"""Cells of a long table with several scores: the columns that separate them, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from vcomp._typing import LongArray
from vcomp.data.parts import plain_label
from vcomp.display import listed
from vcomp.exceptions import DataError
from vcomp.formula import BrennanDesign, design_effects, quoted

if TYPE_CHECKING:
    import pandas as pd

_MEASURES = frozenset({"measure", "measures", "metric", "metrics"})
_REPEATS = frozenset(
    {"epoch", "sample", "repeat", "repetition", "rep", "replicate", "replication", "trial",
     "attempt"}
)  # fmt: skip
"""Names of columns that number the scores of a cell: levels of different cells are unrelated."""

_MOST_COLUMNS, _MOST_TOGETHER = 12, 3

_CROSSED, _FEW = 0.75, 0.5
"""Numbers are levels of a facet if at least the first share of the possible cells occurs; texts
also if their number is below the second share of the rows."""


class SeveralScoresError(DataError):
    """A cell holds several scores.

    Attributes
    ----------
    columns : that separate the scores of a cell, or some of them; empty if none do
    formula : of the model with a term for each of them; None if a level of a column is to be kept
    measured : the factor of the fixed part of this model, None if it is a random term
    """

    def __init__(
        self, found: str, columns: Sequence[str], formula: str | None, measured: str | None
    ) -> None:
        self.columns, self.formula, self.measured = tuple(columns), formula, measured
        self._found = found
        call = "" if formula is None else f'vcomp.fit("{formula}", data)'
        super().__init__(found + call + (f'.compare_levels("{measured}")' if measured else ""))

    def at_the_command_line(self, data: str) -> DataError:
        """Return the same error with the command in place of the call.

        Parameters
        ----------
        data : the arguments that name the data
        """
        if self.formula is None or self.measured is None:
            return self
        command = f"vcomp compare-levels '{self.measured}' \"{self.formula}\" {data}"
        return DataError(self._found + command)


def several_scores(
    frame: pd.DataFrame, roles: tuple[str, str, str], text: str, *, is_compared: bool
) -> SeveralScoresError:
    """Return the error for cells with several scores: by which columns they differ, and the model.

    Parameters
    ----------
    frame : all columns of the table
    roles : columns of what is measured, of what it is measured on, and of the scores
    text : the finding, which begins the message
    is_compared : whether differences between what is measured are of interest; else all facets are
        random
    """
    measured, on, score = roles
    coded = _coded(frame, [measured, on], score)
    cells = _joined([_required(frame[name]) for name in (measured, on)])
    columns = _separating(cells, coded)
    is_partial = all(name.lower() in _REPEATS for name in columns)
    if is_partial:
        columns = [*_partly_separating(cells, coded), *columns]
    of_measures = [name for name in columns if name.lower() in _MEASURES]
    if of_measures:
        name = of_measures[0]
        levels = frame[name].dropna().unique()
        several = listed([repr(plain_label(level)) for level in levels[:3]])
        several += ", …" * (len(levels) > 3)
        keep = f"data[data[{name!r}] == {plain_label(levels[0])!r}]"
        found = f"{text}: {name!r} holds different measures ({several}); keep one: {keep}"
        return SeveralScoresError(found, [name], None, None)
    facets = [name for name in columns if name.lower() not in _REPEATS]
    columns = [*facets, *(name for name in columns if name not in facets)]
    formula = _formula(frame, [measured, on, *facets], score, is_partial or
                       len(facets) < len(columns), is_compared=is_compared)  # fmt: skip
    factor = measured if is_compared else None
    text = text + _unnamed_levels(frame, facets)
    if not facets:
        what = "no column separates them" if not columns else f"{columns[0]!r} numbers them"
        why = f", and {what}: fit them as repeated scores of a cell by "
    elif is_partial or len(facets) < len(columns):
        names = listed(facets)
        which = f"several for each {names}" if is_partial else f"one for each {listed(columns)}"
        why = (
            f", {which}. Means over them treat these levels of {names} as the "
            f"only ones of interest. To generalize to other levels of {names}, fit all facets, "
            f"and the scores of one {names} as repeated scores of a cell, by "
        )
    else:
        names = listed(facets)
        why = (
            f", one for each {names}. Means over them treat these levels of {names} as the "
            f"only ones of interest. Keep the rows of one {names}; or, to generalize to other "
            f"levels of {names}, fit all facets by "
        )
    return SeveralScoresError(text + why, columns, formula, factor)


def _unnamed_levels(frame: pd.DataFrame, facets: Sequence[str]) -> str:
    """Return how to name the level of missing labels, or "" if no label is missing."""
    unnamed = [name for name in facets if frame[name].isna().any()]
    if not unnamed:
        return ""
    named = ", ".join(f"{name!r}: data[{name!r}].astype(object).map(str)" for name in unnamed)
    return (
        f" (labels of {listed(unnamed)} are missing; if they are a level, name it first, by "
        f"data = data.assign(**{{{named}}}))"
    )


def _coded(frame: pd.DataFrame, cell: Sequence[str], score: str) -> dict[str, LongArray]:
    """Return the codes of the columns that may be facets, those of known names first."""
    names = [str(c) for c in frame.columns if c not in (*cell, score)]
    known = (*_MEASURES, *_REPEATS)
    measured, on = (_required(frame[name]) for name in cell)
    codes: dict[str, LongArray] = {}
    for name in sorted(names, key=lambda n: n.lower() not in known):
        coded = _codes(frame[name])
        if coded is None or len(codes) == _MOST_COLUMNS:
            continue
        is_text = frame[name].dtype.kind not in "iufcmM"
        few = is_text and int(coded.max()) < _FEW * len(frame)
        if name.lower() in known or few or _is_crossed(measured, on, coded):
            codes[name] = coded
    return codes


def _is_crossed(measured: LongArray, on: LongArray, codes: LongArray) -> bool:
    """Return whether most cells of the measured units and a column occur."""
    places = _joined([on, codes])
    possible = np.unique(places).size * np.unique(measured).size
    return bool(np.unique(_joined([places, measured])).size >= _CROSSED * possible)


def _separating(cells: LongArray, codes: dict[str, LongArray]) -> list[str]:
    """Return the fewest columns of labels that separate the scores of every cell, or none."""
    for size in range(1, _MOST_TOGETHER + 1):
        sets = [
            chosen for chosen in combinations(codes, size)
            if np.unique(_joined([cells, *(codes[n] for n in chosen)])).size == cells.size
        ]  # fmt: skip
        if sets:
            return list(min(sets, key=lambda chosen: np.prod([codes[n].max() for n in chosen])))
    return []


def _partly_separating(cells: LongArray, codes: dict[str, LongArray]) -> list[str]:
    """Return the columns that separate scores of a cell, that which separates most first."""
    chosen: list[str] = []
    n_groups = np.unique(cells).size
    facets = {name: c for name, c in codes.items() if name.lower() not in _REPEATS}
    while len(chosen) < _MOST_TOGETHER and facets:
        joined = {name: _joined([cells, c]) for name, c in facets.items()}
        best = max(joined, key=lambda name: int(joined[name].max()))
        n_joined = np.unique(joined[best]).size
        if n_joined == n_groups:
            break
        cells, n_groups = joined[best], n_joined
        chosen.append(best)
        del facets[best]
    return chosen


def _codes(column: pd.Series) -> LongArray | None:
    """Return the codes of labels, missing ones as a level; None of one level or one a row."""
    try:
        codes, levels = column.factorize(use_na_sentinel=False)
    except TypeError:
        return None
    return codes.astype(np.int64) if 2 <= len(levels) < len(column) else None


def _required(column: pd.Series) -> LongArray:
    return column.factorize()[0].astype(np.int64)


def _joined(codes: Sequence[LongArray]) -> LongArray:
    joined = codes[0]
    for more in codes[1:]:
        joined = np.unique(joined * (int(more.max()) + 1) + more, return_inverse=True)[1]
        joined = joined.reshape(-1).astype(np.int64)
    return joined


def _formula(
    frame: pd.DataFrame, facets: list[str], score: str, replicated: bool, *, is_compared: bool
) -> str:
    """Return the formula with a term for every effect that the data can distinguish."""
    codes = {name: _required(frame[name]) for name in facets}
    nested = {
        inner: frozenset(outer for outer in facets if outer != inner
                         and _is_nested(codes[inner], codes[outer]))
        for inner in facets
    }  # fmt: skip
    design = BrennanDesign.of(facets, nested)
    terms = [e.facets for e in design_effects(design) if len(e.facets) < len(facets) or replicated]
    written = [":".join(quoted(f) for f in design.outer_first if f in term)
               for term in terms if not (is_compared and term == {facets[0]})]  # fmt: skip
    fixed = [_factor(frame, facets[0])] if is_compared else []
    return f"{quoted(score)} ~ {' + '.join([*fixed, *(f'(1|{term})' for term in written)])}"


def _is_nested(inner: LongArray, outer: LongArray) -> bool:
    pairs = np.unique(_joined([inner, outer])).size
    n_inner = int(np.unique(inner).size)
    return bool(pairs == n_inner > np.unique(outer).size)


def _factor(frame: pd.DataFrame, name: str) -> str:
    """Return a column as a factor of the fixed part: numbers need C()."""
    written = quoted(name)
    return f"C({written})" if frame[name].dtype.kind in "iufb" else written

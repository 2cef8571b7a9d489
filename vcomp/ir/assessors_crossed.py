"""The largest complete sub-tables of a table of who is with what."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["CrossedSubset", "largest_crossed"]

_MOST_SETS = 20_000
"""Closed sets that are looked at; where there are more, the search is a greedy one as well."""

Row = TypeVar("Row", bound=Hashable)


@dataclass(frozen=True, slots=True)
class CrossedSubset:
    """Rows and columns of which every row has every column.

    Attributes
    ----------
    rows, columns : their numbers
    exact : whether no larger one exists
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    exact: bool


def largest_crossed(
    table: Sequence[frozenset[int]],
    *,
    least_rows: int = 2,
    least_columns: int = 2,
    most_sets: int = _MOST_SETS,
) -> CrossedSubset | None:
    """Return the complete sub-table with most cells; None if there is none that large.

    The columns of a largest one are an intersection of some rows (a closed set, in formal concept
    analysis), so that it is enough to look at all of these, which are few where a row has few
    columns. Where they are more than `most_sets`, it is the best of so many and of what is left
    when rows and columns are taken away, the emptiest first; that need not be the largest.

    Parameters
    ----------
    table : the columns of every row
    least_rows, least_columns : that are wanted
    most_sets : see above

    Examples
    --------
    >>> largest_crossed([frozenset({0, 1}), frozenset({0, 1, 2}), frozenset({2})])
    CrossedSubset(rows=(0, 1), columns=(0, 1), exact=True)
    """
    counts: dict[frozenset[int], list[int]] = {}
    for number, columns in enumerate(table):
        counts.setdefault(columns, []).append(number)
    closed, exact = _closed_sets(counts, least_columns, most_sets)
    best: CrossedSubset | None = None
    # In an order that does not depend on hashes: ties go to the first columns.
    for columns in sorted(closed, key=sorted):
        rows = sorted(r for own, numbers in counts.items() if columns <= own for r in numbers)
        if len(rows) >= least_rows and len(rows) * len(columns) > _cells(best):
            best = CrossedSubset(tuple(rows), tuple(sorted(columns)), exact)
    if exact:
        return best
    thinned = _greedy(table, least_rows, least_columns)
    return thinned if _cells(thinned) > _cells(best) else best


def _cells(subset: CrossedSubset | None) -> int:
    return 0 if subset is None else len(subset.rows) * len(subset.columns)


def _closed_sets(
    counts: Mapping[frozenset[int], list[int]], least: int, most: int
) -> tuple[set[frozenset[int]], bool]:
    """Return intersections of rows with so many columns, and whether these are all."""
    closed: set[frozenset[int]] = set()
    for row in counts:
        if len(row) < least:
            continue
        met = {row & known for known in closed}
        closed |= {both for both in met if len(both) >= least} | {row}
        if len(closed) > most:
            return closed, False
    return closed, True


def _greedy(
    table: Sequence[frozenset[int]], least_rows: int, least_columns: int
) -> CrossedSubset | None:
    """Take the row or column away that lacks the largest share, until nothing is lacking."""
    rows, columns = set(range(len(table))), set().union(*table)
    while len(rows) >= least_rows and len(columns) >= least_columns:
        of_row = {r: len(columns - table[r]) / len(columns) for r in sorted(rows)}
        of_column = {c: sum(c not in table[r] for r in rows) / len(rows) for c in sorted(columns)}
        row, column = (
            max(of_row, key=of_row.__getitem__),
            max(of_column, key=of_column.__getitem__),
        )
        if of_row[row] == 0.0:
            return CrossedSubset(tuple(sorted(rows)), tuple(sorted(columns)), False)
        if of_row[row] >= of_column[column]:
            rows.discard(row)
        else:
            columns.discard(column)
    return None

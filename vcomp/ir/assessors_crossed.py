"""The largest complete sub-tables of a table of who is with what."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["CrossedSubset", "largest_crossed"]

_MOST_SETS = 50_000
"""Closed sets that are looked at before the search becomes a greedy one."""

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
    columns. Where they are more than `most_sets`, rows and columns are taken away greedily, the
    emptiest first, which need not find the largest.

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
    closed = _closed_sets(counts, least_columns, most_sets)
    if closed is None:
        return _greedy(table, least_rows, least_columns)
    best, area = None, 0
    # In an order that does not depend on hashes: ties go to the first columns.
    for columns in sorted(closed, key=sorted):
        rows = sorted(r for own, numbers in counts.items() if columns <= own for r in numbers)
        if len(rows) >= least_rows and len(rows) * len(columns) > area:
            best, area = (
                CrossedSubset(tuple(rows), tuple(sorted(columns)), True),
                len(rows) * len(columns),
            )
    return best


def _closed_sets(
    counts: Mapping[frozenset[int], list[int]], least: int, most: int
) -> set[frozenset[int]] | None:
    """Return all intersections of rows with so many columns; None if there are too many."""
    closed: set[frozenset[int]] = set()
    for row in counts:
        if len(row) < least:
            continue
        met = {row & known for known in closed}
        closed |= {both for both in met if len(both) >= least} | {row}
        if len(closed) > most:
            return None
    return closed


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

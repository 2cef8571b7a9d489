"""Groups of rows by the levels of columns: how many there are, and what varies in them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import BoolArray
from vcomp.numerics import slices
from vcomp.numerics.kernels import place_rows

if TYPE_CHECKING:
    import pandas as pd

_COUNTED = 4
"""Combinations of levels per row up to which a table of all is cheaper than a search."""


_FEW = 2**10
"""Range of whole numbers that are their own codes."""

_FIRST = 2**16
"""Rows that are looked at first."""

_BLOCK = 2**15
"""Rows whose places stay in a core's cache while columns are joined."""


class Partitions:
    """Groups of the rows of a table, whose columns are numbered once.

    Parameters
    ----------
    table : a row for each score
    """

    def __init__(self, table: pd.DataFrame) -> None:
        self._table = table
        self._numbers: dict[Any, tuple[Any, int, bool]] = {}
        self._n_groups: dict[frozenset[Any], int] = {}
        self._occurring: dict[tuple[Any, ...], BoolArray] = {}

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return len(self._table)

    def n_groups(self, names: Sequence[Any]) -> int:
        """Return the number of combinations of levels that occur."""
        wanted = self._varying(names)
        if wanted not in self._n_groups:
            self._n_groups[wanted] = self._count(wanted)
        return self._n_groups[wanted]

    def n_of_each(self, name: Any, others: Sequence[Any]) -> pd.Series:
        """Return how many combinations of other columns each level that occurs has."""
        import pandas as pd

        column = self._table[name]
        found = None
        if isinstance(column.dtype, pd.CategoricalDtype) and self._numbered(name)[1] > 1:
            found = self._occurrence(self._varying([name, *others]))
        if found is None:
            of_each = self._table[[name, *others]].drop_duplicates()[name].value_counts()
        else:
            axes, occurs = found
            counts = occurs.sum(axis=tuple(k for k, axis in enumerate(axes) if axis != name))
            levels = column.cat.categories
            of_each = pd.Series(counts[: len(levels)], index=levels)
        return of_each[of_each > 0]

    def _varying(self, names: Sequence[Any]) -> frozenset[Any]:
        return frozenset(name for name in names if self._numbered(name)[1] > 1)

    def _count(self, names: frozenset[Any]) -> int:
        """Count combinations in a table of those that may occur, or among the rows."""
        if not names:
            return min(1, self.n_rows)
        found = self._occurrence(names)
        if found is not None:
            return int(np.count_nonzero(found[1]))
        codes, size = self._joined(list(names))
        occurs = np.zeros(size, dtype=bool)
        occurs[codes] = True
        return int(np.count_nonzero(occurs))

    def _occurrence(self, names: frozenset[Any]) -> tuple[tuple[Any, ...], BoolArray] | None:
        """Return which combinations occur, with the columns of the axes; None if many may."""
        for known, occurs in self._occurring.items():
            if names <= set(known):
                others = tuple(k for k, name in enumerate(known) if name not in names)
                axes = tuple(name for name in known if name in names)
                return axes, np.asarray(occurs.any(axis=others))
        # Reductions are fastest over the first axes, and repetitions have few levels.
        axes = tuple(sorted(names, key=lambda name: self._numbered(name)[1]))
        codes, shape, _ = zip(*map(self._numbered, axes), strict=True)
        if prod(shape) > _COUNTED * self.n_rows:
            return None
        occurs = np.zeros(prod(shape), dtype=bool)
        for rows in slices(self.n_rows, _BLOCK):
            places = codes[0][rows].astype(np.intp)
            for own, n in zip(codes[1:], shape[1:], strict=True):
                place_rows(places, own[rows], n)
            occurs[places] = True
        self._occurring[axes] = occurs.reshape(shape)
        return axes, self._occurring[axes]

    def repeated(self, names: Sequence[Any]) -> BoolArray:
        """Return which rows have the levels of an earlier one."""
        import pandas as pd

        if self.n_groups(names) == len(self._table):
            return np.zeros(len(self._table), dtype=bool)
        return pd.Series(self._joined(names)[0]).duplicated().to_numpy()

    def n_levels(self, name: Any) -> int:
        """Return the number of levels of a column, missing ones not counted."""
        return self.n_groups([name]) - self.has_missing(name)

    def has_missing(self, name: Any) -> bool:
        """Return whether a row has no level of a column."""
        return self._numbered(name)[2]

    def are_constant(self, values: Any, names: Sequence[Any]) -> bool:
        """Return whether the values of rows with the same levels are all equal."""
        values = np.asarray(values)
        # In most tables the first rows show that they are not.
        for rows in (slice(0, _FIRST), slice(None)):
            codes, size = self._joined(names, rows)
            last = np.empty(size, values.dtype)
            last[codes] = values[rows]
            if not (last[codes] == values[rows]).all():
                return False
        return True

    def _joined(self, names: Sequence[Any], rows: slice = slice(None)) -> Any:
        """Return a number for the levels of each of some rows, and a bound of the numbers."""
        import pandas as pd

        n_rows = len(range(self.n_rows)[rows])
        codes: Any = np.zeros(n_rows, dtype=np.int32)
        size = 1
        for name in names:
            own, n, _ = self._numbered(name)
            own = own[rows]
            if size == 1:
                codes = own if len(names) == 1 else own.astype(np.int32)
            else:
                if size * n >= 2**31:
                    codes = codes.astype(np.int64)
                place_rows(codes, own, n)
            size *= n
            if size > _COUNTED * n_rows:
                codes, found = pd.factorize(codes)
                size = found.size
        return codes, size

    def _numbered(self, name: Any) -> tuple[Any, int, bool]:
        """Return levels of the rows of a column, a bound of them, and whether some are missing."""
        if name not in self._numbers:
            codes, size, has_missing = _levels(self._table[name])
            codes = codes.astype(np.min_scalar_type(-max(size, 1)), copy=False)
            self._numbers[name] = codes, max(size, 1), has_missing
        return self._numbers[name]


def _levels(column: pd.Series) -> tuple[Any, int, bool]:
    """Return codes of levels, a missing one among them, their number, and if there is one."""
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, size = column.cat.codes.to_numpy(), len(column.cat.categories)
        if codes.size and codes.min() < 0:
            return np.where(codes < 0, np.int32(size), codes), size + 1, True
        return codes, size, False
    if isinstance(column.dtype, np.dtype) and column.dtype.kind == "i" and len(column):
        values = column.to_numpy()
        low, size = values.min(), int(values.max()) - int(values.min()) + 1
        if size <= _FEW:
            few = np.subtract(values, low, dtype=np.min_scalar_type(-size), casting="unsafe")
            return few, size, False
    codes, levels = column.factorize(use_na_sentinel=False)
    return codes, len(levels), bool(pd.isna(levels).any())

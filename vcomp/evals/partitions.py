"""Groups of the rows of a table by the levels of columns: how many, and what varies in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import BoolArray, LongArray

if TYPE_CHECKING:
    import pandas as pd

_COUNTED = 4
"""Combinations of levels per row up to which a table of all is cheaper than a search."""


class Partitions:
    """Groups of the rows of a table, whose columns are numbered once.

    Parameters
    ----------
    table : a row for each score
    """

    def __init__(self, table: pd.DataFrame) -> None:
        self._table = table
        self._numbers: dict[Any, tuple[Any, int]] = {}

    def n_groups(self, names: Sequence[Any]) -> int:
        """Return the number of combinations of levels that occur."""
        codes, size = self._joined(names)
        return int(np.count_nonzero(np.bincount(codes, minlength=size)))

    def repeated(self, names: Sequence[Any]) -> BoolArray:
        """Return which rows have the levels of an earlier one."""
        import pandas as pd

        if self.n_groups(names) == len(self._table):
            return np.zeros(len(self._table), dtype=bool)
        return pd.Series(self._joined(names)[0]).duplicated().to_numpy()

    def are_constant(self, values: Any, names: Sequence[Any]) -> bool:
        """Return whether the values of rows with the same levels are all equal."""
        codes, size = self._joined(names)
        values = np.asarray(values)
        last = np.empty(size, values.dtype)
        last[codes] = values
        return bool((last[codes] == values).all())

    def _joined(self, names: Sequence[Any]) -> tuple[LongArray, int]:
        """Return a number for the levels of each row in some columns, and a bound of them."""
        import pandas as pd

        codes, size = np.zeros(len(self._table), dtype=np.int64), 1
        for name in names:
            own, n = self._numbered(name)
            codes, size = codes * n + own, size * n
            if size > _COUNTED * codes.size:
                codes, found = pd.factorize(codes)
                size = found.size
        return codes, size

    def _numbered(self, name: Any) -> tuple[Any, int]:
        """Return the level of each row in a column, missing ones among them."""
        if name not in self._numbers:
            codes, levels = self._table[name].factorize(use_na_sentinel=False)
            self._numbers[name] = codes.astype(np.int32), max(len(levels), 1)
        return self._numbers[name]

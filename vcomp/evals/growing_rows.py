"""Rows of tables that are added in batches, in columns that grow where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import IntArray
from vcomp.evals.run_rows import as_text, no_levels
from vcomp.numerics import THREADS, slices

if TYPE_CHECKING:
    import pandas as pd

_DIRECT = 2**20
"""Range of whole numbers that are looked up in a table, however few they are."""

_BLOCK = 2**15
"""Values that are looked up at once, so that they stay in a core's cache."""

_WORTH_THREADS = 2**17
"""Rows from which on columns grow in threads: new memory takes longer than their values."""


class _Growing:
    """Values that are added in batches, in memory that grows where it is.

    Parameters
    ----------
    kind : of the values, which becomes wider if later ones need it
    missing : value of rows without one
    size : expected number of rows
    """

    def __init__(self, kind: Any, missing: Any, size: int) -> None:
        self._values: Any = np.empty(size, kind)
        self._missing, self._n = missing, 0

    def add(self, values: Any) -> None:
        """Add a batch of numbers."""
        self._room(len(values), values.dtype)[:] = values

    def fill(self, n: int) -> None:
        """Let the rows up to a number, if they have no value, be missing ones."""
        self._room(n - self._n, self._values.dtype)[:] = self._missing

    def made(self, n: int) -> Any:
        """Return the values of n rows; none can be added after that."""
        self.fill(n)
        self._values.resize(n, refcheck=False)
        return self._values

    def _room(self, n: int, kind: Any) -> Any:
        """Return memory of the next n values."""
        wider, end = np.promote_types(self._values.dtype, kind), self._n + n
        if wider != self._values.dtype:
            before, self._values = self._values, np.empty(self._values.size, wider)
            self._values[: self._n] = before[: self._n]
        if end > self._values.size:
            self._values.resize(max(end, self._values.size * 3 // 2), refcheck=False)
        room, self._n = self._values[self._n : end], end
        return room


class GrowingLevels(_Growing):
    """Levels that are text, numbered as they come; missing values and empty text have none.

    Parameters
    ----------
    size : expected number of rows
    """

    def __init__(self, size: int = 0) -> None:
        super().__init__(np.int8, -1, size)
        self._number: dict[str, int] = {}
        self._table = 0, np.zeros(0, np.int32)  # the first whole number, and numbers of levels
        self._known: dict[str, tuple[pd.Index, IntArray]] = {}

    def add(self, values: Any) -> None:
        """Add a batch of values.

        Parameters
        ----------
        values : a Series, whose levels are text, numbers or anything that :func:`as_text` names
        """
        import pandas as pd

        if isinstance(values.dtype, np.dtype) and values.dtype.kind == "i" and len(values):
            self._add_integers(values.to_numpy())
            return
        if isinstance(values.dtype, pd.CategoricalDtype):
            codes, distinct = values.cat.codes.to_numpy(), values.cat.categories
        else:
            try:
                codes, distinct = pd.factorize(values)
            except TypeError:  # lists or objects, which have no hash
                codes, distinct = np.arange(len(values)), values
        if pd.api.types.infer_dtype(distinct, skipna=False) == "string":
            numbers = self._places("string", pd.Index(distinct))
        else:
            numbers = self._numbers(distinct.tolist())
        self._look_up(codes, -1, np.append(np.int32(-1), numbers))

    def made(self, n: int) -> pd.Categorical:
        """Return the levels of n rows; none can be added after that."""
        import pandas as pd

        levels = pd.Index(list(self._number)) if self._number else no_levels()
        return pd.Categorical.from_codes(super().made(n), levels, validate=False)

    def _look_up(self, values: IntArray, first: int, numbers: IntArray) -> Any:
        """Add values by a table of the numbers of their levels; return these."""
        # pandas stores codes in the same bytes.
        kind = np.min_scalar_type(-len(self._number) - 2)
        room = self._room(values.size, kind)
        numbers = numbers.astype(room.dtype, copy=False)
        for some in slices(values.size, _BLOCK):
            at = np.subtract(values[some], first, dtype=np.intp)
            np.take(numbers, at, out=room[some], mode="clip")
        return room

    def _add_integers(self, values: IntArray) -> None:
        """Add whole numbers, by a table if their range is small."""
        import pandas as pd

        start, table = self._table
        low, end = int(values.min()), int(values.max()) + 1
        if table.size:
            low, end = min(low, start), max(end, start + table.size)
        if end - low > max(_DIRECT, values.size):
            super().add(self._places("integer", pd.Index(values)))
            return
        if end - low > table.size:
            wider = np.full(end - low, -1, np.int32)
            wider[start - low :][: table.size] = table
            start, table = self._table = low, wider
        found = self._look_up(values, start, table)
        if found.min() < 0:
            new = pd.unique(values[found < 0])
            table[new.astype(np.int64) - start] = self._numbers(new.tolist())
            self._n -= values.size
            self._look_up(values, start, table)

    def _places(self, kind: str, values: pd.Index) -> IntArray:
        """Return the numbers of values of a kind; most of them are known already."""
        known, numbers = self._known.get(kind, (values[:0], np.zeros(0, np.int32)))
        places = known.get_indexer(values)
        is_new = places < 0
        if is_new.any():
            new = values[is_new].unique()
            known = known.append(new)
            numbers = np.append(numbers, self._numbers(new.tolist()))
            self._known[kind] = known, numbers
            places = known.get_indexer(values)
        return numbers[places]

    def _numbers(self, values: Sequence[Any]) -> IntArray:
        texts, number = map(_text_or_none, values), self._number
        return np.array(
            [-1 if text is None else number.setdefault(text, len(number)) for text in texts],
            dtype=np.int32,
        )


class GrowingRows:
    """Rows that are added in batches, and become a frame with categories.

    Parameters
    ----------
    size : expected number of rows
    """

    def __init__(self, size: int) -> None:
        self._size, self._n = size, 0
        self._columns: dict[str, _Growing] = {}

    def add(self, n: int, columns: Mapping[str, Any]) -> None:
        """Add rows; columns that they lack are missing, and an epoch is 1.

        Parameters
        ----------
        n : number of rows
        columns : numbers of ``score`` and ``epoch``, and a Series of the levels of each other one
        """
        if not n:
            return
        for name in columns:
            if name not in self._columns:
                numbers = {"score": (float, np.nan), "epoch": (np.int16, 1)}.get(name)
                self._columns[name] = (
                    _Growing(*numbers, self._size) if numbers else GrowingLevels(self._size)
                )
        if n < _WORTH_THREADS:
            for name, values in columns.items():
                self._grow(name, values)
        else:
            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(self._grow, columns, columns.values()))
        self._n += n

    def _grow(self, name: str, values: Any) -> None:
        """Add values to a column, whose earlier rows without one are missing."""
        self._columns[name].fill(self._n)
        self._columns[name].add(values)

    def frame(self) -> pd.DataFrame:
        """Return all rows; none can be added after that."""
        import pandas as pd

        columns = {name: column.made(self._n) for name, column in self._columns.items()}
        return pd.DataFrame(columns, copy=False)


def _text_or_none(value: Any) -> str | None:
    is_missing = value is None or (isinstance(value, float) and value != value)
    return None if is_missing or (isinstance(value, str) and not value) else as_text(value)

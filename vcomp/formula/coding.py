"""Rows → columns of X by patsy's description of them, in blocks of rows that the cache holds.

patsy writes a column at a time into a matrix in rows, which takes ten times as long where columns
are many, and a factor with many levels as a dense matrix of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.numerics import MixedColumns, slices

_BLOCK = 4096
"""Rows that are coded at once."""

_BLOCK_OF_NUMBERS = 16_384
"""The same of a column of numbers alone."""

_DENSITY = 0.1
"""Share of entries that are not zero up to which columns are kept sparse."""


@dataclass(frozen=True, slots=True)
class WideLimits:
    """From which size on the columns of factors are kept sparse.

    Attributes
    ----------
    columns : smallest number of columns of a part of a term
    elements : smallest number of elements that they would have as a dense matrix
    factor : smallest number of columns of a single factor from which on a fit forms no matrix of
        its columns by columns: sparse elimination is faster
    formed : largest number of columns of which such matrices are formed where they are requested
    beside : largest number of elements of the columns beside such a factor as a dense matrix; with
        more, matrices of columns by columns are formed after all
    """

    columns: int = 32
    elements: int = 2_000_000
    factor: int = 100
    formed: int = 2_000
    beside: float = 1.5e8


WIDE = WideLimits()


@dataclass(frozen=True, slots=True)
class _Part:
    """Columns of a term: the products of those of its factors, the first factor's fastest.

    Attributes
    ----------
    factors : for each factor (n, k) numbers, or (n,) codes
    contrasts : for each factor the (levels, k) contrasts of the codes; None for numbers
    n_columns : number of columns
    """

    factors: tuple[Any, ...]
    contrasts: tuple[FloatArray | None, ...]
    n_columns: int

    def alone(self) -> FloatArray | None:
        """Return the columns (n, k) if they are those of one numerical factor, without a copy."""
        is_number = len(self.factors) == 1 and self.contrasts[0] is None
        return self.factors[0] if is_number else None

    def block(self, rows: slice) -> FloatArray:
        """Return the columns of some rows."""
        found = np.ones((rows.stop - rows.start, 1))
        for values, contrast in zip(self.factors, self.contrasts, strict=True):
            own = values[rows] if contrast is None else contrast[values[rows]]
            found = (own[:, :, None] * found[:, None, :]).reshape(len(own), -1)
        return found

    def table(self) -> Any:
        """Return the (combinations of levels, columns) contrasts, sparse; None with numbers."""
        from scipy.sparse import csr_array, kron

        if not self.contrasts or any(c is None for c in self.contrasts):
            return None
        found = csr_array(np.ones((1, 1)))
        for contrast in self.contrasts:
            found = kron(csr_array(contrast), found, format="csr")
        return csr_array(found)

    def combination(self) -> LongArray:
        """Return the combination of levels of each row, the first factor's fastest."""
        place, step = np.zeros(len(self.factors[0]), dtype=np.int64), 1
        for codes, contrast in zip(self.factors, self.contrasts, strict=True):
            assert contrast is not None
            place += step * codes.astype(np.int64)
            step *= len(contrast)
        return place


@dataclass(frozen=True, slots=True)
class CodedRows:
    """The columns of X of some rows, not yet multiplied out.

    Attributes
    ----------
    n_rows : number of rows
    parts : of the terms, in the order of their columns
    """

    n_rows: int
    parts: tuple[_Part, ...]

    @classmethod
    def of(cls, info: Any, columns: Mapping[str, Any], n_rows: int) -> CodedRows | None:
        """Return the coded rows; None if a factor has values that patsy refuses or converts.

        Parameters
        ----------
        info : patsy's ``DesignInfo``
        columns : of the rows
        n_rows : their number
        """
        values = {}
        for factor, described in info.factor_infos.items():
            value = factor.eval(described.state, columns)
            is_number = described.type == "numerical"
            found = _numbers(value, described) if is_number else _codes(value, described)
            if found is None or len(found) != n_rows:
                return None
            values[factor] = found
        parts = []
        for subterms in info.term_codings.values():
            for s in subterms:
                of = s.contrast_matrices
                contrasts = tuple(of[f].matrix if f in of else None for f in s.factors)
                parts.append(_Part(tuple(values[f] for f in s.factors), contrasts, s.num_columns))
        return cls(n_rows, tuple(parts))

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return sum(part.n_columns for part in self.parts)

    def _places(self) -> Iterator[tuple[_Part, int]]:
        """Yield the parts with the position of their first column."""
        at = 0
        for part in self.parts:
            yield part, at
            at += part.n_columns

    def ends(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return smallest value, largest value and mean of the columns, (p,) each."""
        low, high, mean = (np.empty(self.n_columns) for _ in range(3))
        for part, at in self._places():
            own = slice(at, at + part.n_columns)
            values = part.alone()
            if values is None:
                blocks = (part.block(rows) for rows in slices(self.n_rows, _BLOCK))
            else:  # the cache holds a block for the three of them
                blocks = (values[rows] for rows in slices(self.n_rows, _BLOCK_OF_NUMBERS))
            found = np.array([(b.min(axis=0), b.max(axis=0), b.sum(axis=0)) for b in blocks])
            low[own], high[own] = found[:, 0].min(axis=0), found[:, 1].max(axis=0)
            mean[own] = found[:, 2].sum(axis=0) / self.n_rows
        return low, high, mean

    def split(self, limits: WideLimits) -> MixedColumns | None:
        """Return the columns as a mixed matrix; None if no part is wide and sparse."""
        from scipy.sparse import csr_array, hstack

        ends = np.cumsum([0, *(part.n_columns for part in self.parts)])
        sparse, dense, sparse_at, dense_at = [], [], [], []
        for k, part in enumerate(self.parts):
            at = np.arange(ends[k], ends[k + 1])
            is_wide = part.n_columns >= limits.columns
            if is_wide and part.n_columns * float(self.n_rows) >= limits.elements:
                table = part.table()
                if table is not None and table.nnz <= _DENSITY * table.shape[0] * table.shape[1]:
                    sparse.append(table[part.combination()])
                    sparse_at.append(at)
                    continue
            dense.append(part)
            dense_at.append(at)
        if not sparse:
            return None
        nothing = np.zeros(0, dtype=np.int64)
        return MixedColumns(
            CodedRows(self.n_rows, tuple(dense)).matrix(),
            csr_array(hstack(sparse, format="csr")),
            np.concatenate([nothing, *dense_at]),
            np.concatenate(sparse_at),
        )

    def matrix(self, origin: FloatArray | None = None) -> FloatArray:
        """Return the columns less their origins (p,), each column contiguous in memory."""
        return self.checked_matrix(origin)[0]

    def checked_matrix(self, origin: FloatArray | None = None) -> tuple[FloatArray, bool]:
        """Return the same, and whether all sums of blocks, and so all values, are finite."""
        X, total = np.empty((self.n_rows, self.n_columns), order="F"), 0.0
        for part, at in self._places():
            own = slice(at, at + part.n_columns)
            x0 = 0.0 if origin is None else origin[own]
            values = part.alone()
            width = _BLOCK if values is None else _BLOCK_OF_NUMBERS
            for rows in slices(self.n_rows, width):
                block = part.block(rows) if values is None else values[rows]
                total += float(np.subtract(block, x0, out=X[rows, own]).sum())
        return X, bool(np.isfinite(total))  # a sum keeps nan and infinity


def _numbers(value: Any, described: Any) -> FloatArray | None:
    """Return the (n, k) values of a numerical factor."""
    found = np.asarray(value)
    if found.dtype.kind not in "fiub" or found.ndim not in (1, 2):
        return None
    found = found.astype(float, copy=False)
    found = found[:, None] if found.ndim == 1 else found
    return found if found.shape[1] == described.num_columns else None


def _codes(value: Any, described: Any) -> Any:
    """Return the (n,) codes of the levels of a categorical factor."""
    import pandas as pd

    if hasattr(value, "contrast") and hasattr(value, "levels"):  # patsy's C()
        value = value.data
    categories = list(described.categories)
    if isinstance(value, pd.Series):
        value = value.array if isinstance(value.dtype, pd.CategoricalDtype) else value.to_numpy()
    if isinstance(value, pd.Categorical):
        of_category = pd.Index(categories).get_indexer(value.categories)
        codes = np.append(of_category, -1)[value.codes]
    elif isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "fiub":
        codes = pd.Index(categories).get_indexer(pd.Index(value))
    else:
        return None
    return None if (codes < 0).any() else codes

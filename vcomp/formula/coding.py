"""Columns of X from rows, as patsy describes them, in blocks of rows that the cache holds.

patsy writes a column at a time into a matrix in rows, which takes ten times as long where columns
are many, and a factor with many levels as a dense matrix of zeros.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.exceptions import DataError
from vcomp.formula.formula_terms import names_in
from vcomp.numerics import MixedColumns, slices

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class PlainFactor:
    """A factor of the fixed part as plain data, which can be pickled.

    Attributes
    ----------
    code : Python expression
    n_columns : number of columns of a numerical factor; None for a categorical one
    categories : levels of a categorical factor
    transforms : attributes of each stateful transform
    """

    code: str
    n_columns: int | None
    categories: tuple[Any, ...] | None
    transforms: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, info: Any) -> PlainFactor:
        """Return the plain data of patsy's ``FactorInfo``.

        Raises
        ------
        DataError
            If the state of a transform cannot be read.
        """
        code = info.factor.code
        try:
            memory = {name: dict(vars(t)) for name, t in info.state["transforms"].items()}
        except TypeError:  # it has slots
            raise DataError(
                f"the state of {code!r}, computed from all rows, cannot be sent to other processes"
            ) from None
        return cls(code, info.num_columns, info.categories, memory)

    def restored(self, environment: Any) -> Any:
        """Return the ``FactorInfo``."""
        from patsy import EvalFactor, FactorInfo

        factor, state = EvalFactor(self.code), dict[str, Any]()
        factor.memorize_passes_needed(state, environment)
        for name, memory in self.transforms.items():
            vars(state["transforms"][name]).clear()
            vars(state["transforms"][name]).update(memory)
        kind = "numerical" if self.categories is None else "categorical"
        return FactorInfo(factor, kind, state, self.n_columns, self.categories)


@dataclass(frozen=True, slots=True)
class PlainSubterm:
    """A part of a term: some of its columns.

    Attributes
    ----------
    factors : positions among all factors
    contrasts : for each categorical factor the (levels, columns) matrix and names of its columns
    n_columns : number of columns
    """

    factors: tuple[int, ...]
    contrasts: Mapping[int, tuple[FloatArray, tuple[str, ...]]]
    n_columns: int


@dataclass(frozen=True, slots=True)
class PlainCoding:
    """The coding of a fixed part as plain data, which can be pickled.

    Attributes
    ----------
    names : of the columns
    factors : of all terms, in any order
    terms : for each term the positions of its factors, and its parts
    """

    names: tuple[str, ...]
    factors: tuple[PlainFactor, ...]
    terms: tuple[tuple[tuple[int, ...], tuple[PlainSubterm, ...]], ...]

    @classmethod
    def of(cls, info: Any) -> PlainCoding:
        """Return the plain data of patsy's ``DesignInfo``.

        Raises
        ------
        DataError
            If a transform cannot be read.
        """
        place = {factor: k for k, factor in enumerate(info.factor_infos)}
        terms = []
        for term, subterms in info.term_codings.items():
            parts = tuple(
                PlainSubterm(
                    tuple(place[f] for f in s.factors),
                    {
                        place[f]: (c.matrix, tuple(c.column_suffixes))
                        for f, c in s.contrast_matrices.items()
                    },
                    s.num_columns,
                )
                for s in subterms
            )
            terms.append((tuple(place[f] for f in term.factors), parts))
        factors = tuple(PlainFactor.of(found) for found in info.factor_infos.values())
        return cls(tuple(info.column_names), factors, tuple(terms))

    def restored(self, scope: Mapping[str, Any]) -> Any:
        """Return the ``DesignInfo``.

        Parameters
        ----------
        scope : names from the caller's scope that the factors use
        """
        from patsy import ContrastMatrix, DesignInfo, EvalEnvironment, SubtermInfo, Term

        environment = EvalEnvironment([dict(scope)])
        infos = [factor.restored(environment) for factor in self.factors]
        codings: OrderedDict[Any, list[Any]] = OrderedDict()
        for factors, subterms in self.terms:
            codings[Term([infos[k].factor for k in factors])] = [
                SubtermInfo(
                    [infos[k].factor for k in s.factors],
                    {
                        infos[k].factor: ContrastMatrix(matrix, list(suffixes))
                        for k, (matrix, suffixes) in s.contrasts.items()
                    },
                    s.n_columns,
                )
                for s in subterms
            ]
        return DesignInfo(list(self.names), {info.factor: info for info in infos}, codings)


_BLOCK = 4096
"""Rows that are coded at once."""

_BLOCK_OF_NUMBERS = 16_384
"""Rows that are coded at once of a single column of numbers."""

_DENSITY = 0.1
"""Largest share of nonzero entries of columns that are kept sparse."""


@dataclass(frozen=True, slots=True)
class WideLimits:
    """Sizes at which the columns of factors are kept sparse.

    Attributes
    ----------
    columns : smallest number of columns of a part of a term
    elements : smallest number of elements that they would have as a dense matrix
    factor : smallest number of columns of a single factor for which a fit forms no matrix of
        columns by columns: sparse elimination is faster
    formed : largest number of columns of which such matrices are formed where they are requested
    beside : largest number of elements of the columns outside such a factor as a dense matrix;
        with more, matrices of columns by columns are formed after all
    """

    columns: int = 32
    elements: int = 2_000_000
    factor: int = 100
    formed: int = 2_000
    beside: float = 1.5e8


WIDE = WideLimits()


@dataclass(frozen=True, slots=True)
class _CodedPart:
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
        product = np.ones((rows.stop - rows.start, 1))
        for values, contrast in zip(self.factors, self.contrasts, strict=True):
            columns = values[rows] if contrast is None else contrast[values[rows]]
            product = (columns[:, :, None] * product[:, None, :]).reshape(len(columns), -1)
        return product

    def table(self) -> Any:
        """Return the (combinations of levels, columns) contrasts, sparse; None with numbers."""
        from scipy.sparse import csr_array, kron

        if not self.contrasts or any(c is None for c in self.contrasts):
            return None
        product = csr_array(np.ones((1, 1)))
        for contrast in self.contrasts:
            product = kron(csr_array(contrast), product, format="csr")
        return csr_array(product)

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
    parts: tuple[_CodedPart, ...]

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
                parts.append(
                    _CodedPart(tuple(values[f] for f in s.factors), contrasts, s.num_columns)
                )
        return cls(n_rows, tuple(parts))

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return sum(part.n_columns for part in self.parts)

    def _places(self) -> Iterator[tuple[_CodedPart, int]]:
        """Yield the parts with the position of their first column."""
        at = 0
        for part in self.parts:
            yield part, at
            at += part.n_columns

    def ends(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return smallest value, largest value and mean of the columns, (p,) each."""
        low, high, mean = (np.empty(self.n_columns) for _ in range(3))
        for part, at in self._places():
            columns = slice(at, at + part.n_columns)
            values = part.alone()
            if values is None:
                blocks = (part.block(rows) for rows in slices(self.n_rows, _BLOCK))
            else:  # the cache holds a block for the three of them
                blocks = (values[rows] for rows in slices(self.n_rows, _BLOCK_OF_NUMBERS))
            summaries = np.array([(b.min(axis=0), b.max(axis=0), b.sum(axis=0)) for b in blocks])
            low[columns], high[columns] = summaries[:, 0].min(axis=0), summaries[:, 1].max(axis=0)
            mean[columns] = summaries[:, 2].sum(axis=0) / self.n_rows
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
        """Return :meth:`matrix`, and whether all sums of blocks, and so all values, are finite."""
        X, total = np.empty((self.n_rows, self.n_columns), order="F"), 0.0
        for part, at in self._places():
            columns = slice(at, at + part.n_columns)
            x0 = 0.0 if origin is None else origin[columns]
            values = part.alone()
            width = _BLOCK if values is None else _BLOCK_OF_NUMBERS
            for rows in slices(self.n_rows, width):
                block = part.block(rows) if values is None else values[rows]
                total += float(np.subtract(block, x0, out=X[rows, columns]).sum())
        return X, bool(np.isfinite(total))  # a sum keeps nan and infinity


def _numbers(value: Any, described: Any) -> FloatArray | None:
    """Return the (n, k) values of a numerical factor."""
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "fiub" or numbers.ndim not in (1, 2):
        return None
    numbers = numbers.astype(float, copy=False)
    numbers = numbers[:, None] if numbers.ndim == 1 else numbers
    return numbers if numbers.shape[1] == described.num_columns else None


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


@dataclass(frozen=True)
class WideFactor:
    """A factor with treatment coding: a column for each level but the first.

    Attributes
    ----------
    code : as in the formula, ``item`` or ``C(item)``
    column : of the data
    levels : in the order of the coding
    """

    code: str
    column: str
    levels: pd.Index

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.levels) - 1

    def names(self) -> list[str]:
        """Return the names of the columns, as patsy makes them."""
        of_levels = (x if isinstance(x, str) else repr(x) for x in self.levels.to_numpy()[1:])
        return [f"{self.code}[T.{level}]" for level in of_levels]

    def codes(self, columns: Mapping[str, Any]) -> IntArray:
        """Return the level of each row, (n,).

        Raises
        ------
        DataError
            If the column is missing, or has another level.
        """
        import pandas as pd

        if self.column not in columns:
            raise DataError(f"the fixed part needs column {self.column!r}", column=self.column)
        values = columns[self.column]
        if isinstance(values, pd.Categorical):
            of_category = self.levels.get_indexer(values.categories)
            codes = np.append(of_category, -1).astype(np.int32)[values.codes]
        else:
            codes = self.levels.get_indexer(pd.Index(values))
        if (codes < 0).any():
            first = int(np.argmax(codes < 0))
            (new,) = np.asarray(values)[first : first + 1].tolist()
            if isinstance(new, float) and new.is_integer():  # whole numbers are read as floats
                new = int(new)
            raise DataError(
                f"{self.code!r} of the fixed part has no level {new!r} in the fit", level=new
            )
        return np.asarray(codes, dtype=np.int32)

    def sparse(self, columns: Mapping[str, Any]) -> Any:
        """Return the columns of X, (n, levels − 1), as a ``scipy.sparse.csr_array``.

        Raises
        ------
        DataError
            As :meth:`codes`.
        """
        from scipy.sparse import csr_array

        codes = self.codes(columns)
        there = codes > 0
        indptr = np.zeros(codes.size + 1, np.int32 if codes.size < 2**31 else np.int64)
        np.cumsum(there, dtype=indptr.dtype, out=indptr[1:])
        indices = codes[there] - np.int32(1)
        shape = (codes.size, self.n_columns)
        return csr_array((np.ones(indices.size), indices, indptr), shape=shape)

    @classmethod
    def find(cls, description: Any, columns: Mapping[str, Any], least: int) -> WideFactor | None:
        """Return the factor with most levels among those that can be coded here, or None.

        It is a term of its own, beside an intercept, and its column is in no other term.

        Parameters
        ----------
        description : patsy's ``ModelDesc``
        columns : of all rows
        least : smallest number of its columns
        """
        from patsy import INTERCEPT

        terms = description.rhs_termlist
        if INTERCEPT not in terms:
            return None
        widest = None
        for term in terms:
            code = term.factors[0].code if len(term.factors) == 1 else ""
            name = code[2:-1] if code.startswith("C(") and code.endswith(")") else code
            if name not in columns:
                continue
            others = [f.code for other in terms if other != term for f in other.factors]
            if any(name in names_in(other) for other in others):
                continue
            levels = _levels(columns[name], is_called=name != code)
            if levels is not None and len(levels) > least:
                least, widest = len(levels), cls(code, name, levels)
        return widest

    def others(self, description: Any) -> Any:
        """Return patsy's description without this factor."""
        from patsy import ModelDesc

        kept = [
            term
            for term in description.rhs_termlist
            if [factor.code for factor in term.factors] != [self.code]
        ]
        return ModelDesc([], kept)


def _levels(column: Any, *, is_called: bool) -> pd.Index | None:
    """Return the levels of a column in patsy's order, or None if patsy determines its type."""
    import pandas as pd

    if isinstance(column, pd.Categorical):
        used = np.bincount(column.codes[column.codes >= 0], minlength=len(column.categories))
        return column.categories if used.all() else None
    values = np.asarray(column)
    if is_called and values.ndim == 1 and values.dtype.kind in "fiu":
        return pd.Index(np.unique(values))
    return None


_ROUNDING = 1e-8
"""Relative tolerance within which columns left out are the fitted combination of those kept."""


@dataclass(frozen=True, slots=True, eq=False)
class OmittedColumns:
    """Columns that are kept, and those left out as combinations of them: X_d = X_k W when fitted.

    Attributes
    ----------
    names : of all columns
    kept : (p,) positions of the columns that are kept
    weights : (p, d) matrix W, on the scale of the data
    """

    names: tuple[str, ...]
    kept: LongArray
    weights: FloatArray

    @property
    def at(self) -> LongArray:
        """Positions of the columns that are left out, (d,)."""
        return np.setdiff1d(np.arange(len(self.names)), self.kept)

    @property
    def kept_names(self) -> tuple[str, ...]:
        """Names of the columns that are kept."""
        return tuple(self.names[j] for j in self.kept)

    @property
    def left_out_names(self) -> tuple[str, ...]:
        """Names of the columns that are left out."""
        return tuple(self.names[j] for j in self.at)

    def all_columns(self, values: FloatArray) -> FloatArray:
        """Return a row of all columns from one of those kept, (p,)."""
        row_of_all = np.zeros(len(self.names))
        row_of_all[self.kept], row_of_all[self.at] = values, values @ self.weights
        return row_of_all

    def are_same(self, X: FloatArray) -> BoolArray:
        """Return whether columns left out are the same combination as in the rows fitted.

        If all of them are in a row, its mean is estimable.

        Parameters
        ----------
        X : (n, p + d) rows, on the scale of the data

        Returns
        -------
        (n, d) for each row and column left out
        """
        kept, others = X[:, self.kept], X[:, self.at]
        scale = np.abs(kept) @ np.abs(self.weights) + np.abs(others)
        return np.abs(others - kept @ self.weights) <= _ROUNDING * scale


_SHOWN = 8
"""Largest number of columns that a note names."""


def left_out_note(names: Sequence[str]) -> str:
    """Return a sentence that names the columns that are left out."""
    shown, more = ", ".join(map(repr, names[:_SHOWN])), len(names) - _SHOWN
    others = f" and {more:,} more" if more > 0 else ""
    if len(names) == 1:
        return (
            f"column {shown} of the fixed part is a linear combination of other columns in these "
            "rows and was left out; the fit is the same without it"
        )
    return (
        f"{len(names):,} columns of the fixed part are linear combinations of other columns in "
        f"these rows and were left out: {shown}{others}; the fit is the same without them"
    )

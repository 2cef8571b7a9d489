"""The columns of X: the fixed part of a formula, coded by patsy.

A design contains a ``FixedPart``, which is determined from all rows and then codes them batch by
batch.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.exceptions import GUARDS, DataError, FormulaError, VcompError
from vcomp.formula.coding import (
    WIDE,
    CodedRows,
    OmittedColumns,
    PlainCoding,
    WideFactor,
    WideLimits,
)
from vcomp.formula.dialects import quoted
from vcomp.formula.formula_terms import TRANSFORMS, Formula, factors_of, first_names, names_in
from vcomp.formula.parser import patsy_description
from vcomp.numerics import MixedColumns, check_memory

_LARGE = 1e7
"""Number of elements of X above which the free memory is checked."""


SQUARES = 12.0
"""Largest number of columns-by-columns matrices that a fit holds at once; measured, rounded up."""


@dataclass(frozen=True, slots=True)
class ColumnEnds:
    """The range of the columns of X.

    Attributes
    ----------
    low, high, mean : (p,) the smallest value, the largest and the mean
    is_sparse : (p,) whether the column is kept sparse, so that nothing is subtracted from it
    """

    low: FloatArray
    high: FloatArray
    mean: FloatArray
    is_sparse: BoolArray


@dataclass(frozen=True)
class FixedPart:
    """The coding of rows as columns of X, with patsy's state of codings and transforms."""

    names: tuple[str, ...]
    design_info: Any = None
    """patsy's ``DesignInfo``; None for a single intercept, which does not need patsy."""
    is_known: bool = True
    """False if the coding was not stored with the statistics of the rows."""
    is_stateful: bool = False
    """Whether columns depend on all rows, by center(), bs() and the like."""
    scope: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Names from the caller's scope that it uses; they are sent to other processes."""
    factor: WideFactor | None = None
    """A factor of very many levels, whose columns are the last ones; patsy codes the others."""
    left_out: OmittedColumns | None = None
    """Columns that are linear combinations of others; the names are those of the others."""

    @classmethod
    def of_rows(
        cls,
        formula: Formula,
        batches: Callable[[], Iterable[Mapping[str, Any]]],
        environment: Any,
        n_rows: int,
        least: int | None = None,
    ) -> FixedPart:
        """Return the coding of the fixed part, determined from all rows.

        Parameters
        ----------
        batches : yields the columns of all rows, in one batch or several, at each call
        environment : patsy's ``EvalEnvironment`` of the caller
        n_rows : largest number of rows that are coded at once
        least : number of columns from which on a factor is coded apart, for rows in one batch;
            None if there may be several

        Raises
        ------
        EstimationError
            If the columns of a factor do not fit into memory.
        FormulaError
            If patsy cannot evaluate it (an unknown name, factors of different lengths).
        """
        if formula.intercept_only:
            return cls(("Intercept",))
        if not formula.fixed:
            return cls(())
        from patsy import PatsyError, incr_dbuilder

        columns_read: set[str] = set()
        description, factor = patsy_description(formula), None
        if least is not None:
            (whole,) = batches()
            factor = WideFactor.find(description, whole, least)
        apart = () if factor is None else (factor.column,)

        def noted() -> Iterator[Mapping[str, Any]]:
            for columns in batches():
                _check_memory({n: c for n, c in columns.items() if n not in apart}, n_rows)
                columns_read.update(columns)
                yield columns

        if factor is not None:
            description = factor.others(description)
        try:
            with np.errstate(all="ignore"):
                info = incr_dbuilder(description, noted, environment, NA_action="raise")
        except PatsyError as error:
            raise FormulaError(_from_patsy(error)) from None
        except VcompError:
            raise
        except ValueError as error:  # of a transform, such as a spline with too few rows
            raise FormulaError(f"an expression of the formula: {error}") from None
        stateful = any(f.state.get("transforms") for f in info.factor_infos.values())
        of_factor = () if factor is None else factor.names()
        names = tuple(map(_plain_name, (*info.column_names, *of_factor)))
        scope = {
            name: environment.namespace[name]
            for name in formula.fixed_names - columns_read
            if name in environment.namespace
        }
        return cls(names, info, is_stateful=stateful, scope=scope, factor=factor)

    @classmethod
    def of_few_rows(
        cls, formula: Formula, columns: Mapping[str, Any], environment: Any, n_rows: int
    ) -> FixedPart:
        """Return the coding of the fixed part, determined from a few rows that contain all levels.

        If the rows are too few, for instance for the knots of a spline, the result is marked as
        stateful.

        Parameters
        ----------
        columns : of these rows
        environment : patsy's ``EvalEnvironment`` of the caller
        n_rows : largest number of rows that are coded at once

        Raises
        ------
        EstimationError
            If the columns of a factor do not fit into memory.
        """
        try:
            return cls.of_rows(formula, lambda: [columns], environment, n_rows)
        except FormulaError:  # if the rows were not too few, all rows raise it again
            return cls((), is_stateful=True)

    def __reduce__(self) -> Any:
        if self.design_info is None:
            return FixedPart, (self.names, None, self.is_known, self.is_stateful)
        sent, state = PlainCoding.of(self.design_info), (self.is_stateful, self.scope)
        return _restored, (self.names, sent, *state, self.factor, self.left_out)

    def without(self, left_out: OmittedColumns) -> FixedPart:
        """Return the fixed part restricted to the columns that are kept."""
        return replace(self, names=left_out.kept_names, left_out=left_out)

    @cached_property
    def with_all(self) -> FixedPart:
        """The fixed part with all of its columns, also those that are left out."""
        if self.left_out is None:
            return self
        return replace(self, names=self.left_out.names, left_out=None)

    @cached_property
    def factor_columns(self) -> tuple[frozenset[str], bool]:
        """The columns of factors, and whether there are covariates; also of stored statistics.

        By the names of the columns of X, which are stored where the coding is not.
        """
        columns, has_covariates = set[str](), False
        for part in factors_of(name for name in self.names if name != "Intercept"):
            named = set[str]()
            for opened in re.finditer(r"\[", part):
                with suppress(SyntaxError):  # within brackets of the factor's arguments
                    named = first_names(part[: opened.start()])
                    break
            columns |= named
            has_covariates |= not named
        return frozenset(columns), has_covariates

    @cached_property
    def _others(self) -> FixedPart:
        """The columns but for those of the wide factor."""
        names = self.names if self.factor is None else self.names[: -self.factor.n_columns]
        return replace(self, names=names, factor=None)

    def depends_on_rows(self, numbers: Collection[str]) -> bool:
        """Whether the coding might differ for other rows.

        Parameters
        ----------
        numbers : numerical columns, of which only some values were seen; all levels of the other
            columns were
        """
        if self.design_info is None:
            return self.is_stateful
        categorical = (f for f in self.design_info.factor_infos.values() if f.type != "numerical")
        return self.is_stateful or any(
            not set(names_in(f.factor.code)).isdisjoint(numbers) and f.categories != (False, True)
            for f in categorical
        )

    def check_by_row(self, columns: Mapping[str, Any]) -> None:
        """Refuse columns of X whose value in a row depends on which rows are read with it.

        Raises
        ------
        DataError
        """
        if self.design_info is None:
            return
        code = " + ".join(f.factor.code for f in self.design_info.factor_infos.values())

        def values(few: Mapping[str, Any]) -> FloatArray:
            return self.matrix(few, len(next(iter(few.values()))))

        check_by_row(code, columns, values, "the fixed part")

    def matrix(
        self, columns: Mapping[str, Any], n_rows: int, origin: FloatArray | None = None
    ) -> FloatArray:
        """Return X, shape (n_rows, p), for new rows.

        Parameters
        ----------
        columns : of the rows
        n_rows : their number
        origin : (p,) numbers that are subtracted from the columns; None for none

        Raises
        ------
        DataError
            If a column of the fixed part is missing, has a new level, or is not one finite number
            for each row; or if columns are left out, and the mean of a row is not estimable from
            the others.
        """
        self.check_known()
        if self.left_out is not None:
            whole = self.with_all.matrix(columns, n_rows)
            self._check_estimable(self.left_out, whole)
            kept = np.asfortranarray(whole[:, self.left_out.kept])
            return kept if origin is None else kept - origin
        if self.design_info is None:
            return np.ones((n_rows, len(self.names))) - (0.0 if origin is None else origin)
        size = float(n_rows) * len(self.names)
        if size > _LARGE:
            check_memory(
                8.0 * size,
                f"{len(self.names):,} columns of the fixed part in {n_rows:,} rows need",
                "factors with many levels need no columns as random terms",
            )
        if self.factor is not None:
            d = len(self._others.names)
            dense_origin = None if origin is None else origin[:d]
            dense = self._others.matrix(columns, n_rows, dense_origin)
            found: FloatArray = np.hstack([dense, self.factor.sparse(columns).toarray()])
            return found if origin is None else found - np.append(np.zeros(d), origin[d:])
        coded = self._coded(columns, n_rows)
        if coded is not None:
            with np.errstate(all="ignore"):
                X, is_finite = coded.checked_matrix(origin)
            if is_finite:
                return X
        X = self._by_patsy(columns, n_rows)  # refuses missing values
        return X if origin is None else X - origin

    def _check_estimable(self, left_out: OmittedColumns, X: FloatArray) -> None:
        """Refuse rows that are no combinations of those of the fit."""
        same = left_out.are_same(X)
        wrong = ~same.all(axis=1)
        if not wrong.any():
            return
        row = int(np.argmax(wrong))
        involved = [left_out.left_out_names[j] for j in np.flatnonzero(~same[row])]
        raise DataError(
            f"the mean of {int(wrong.sum()):,} of {len(X):,} rows, the first of them number {row} "
            "(from 0), is not estimable: the rows of the fit do not determine the effect of "
            f"{', '.join(involved)}; leave such rows out, or fit a formula without that term",
            column=involved[0],
        )

    def mixed(
        self, columns: Mapping[str, Any], n_rows: int, wide: WideLimits = WIDE
    ) -> MixedColumns | None:
        """Return X for new rows with sparse columns of factors with many levels; None without any.

        Parameters
        ----------
        columns, n_rows : as of :meth:`matrix`
        wide : from which size on columns are kept sparse

        Raises
        ------
        DataError
            As :meth:`matrix`.
        """
        if self.design_info is None or not self.is_known:
            return None
        if self.left_out is not None:
            every = self.with_all.mixed(columns, n_rows, wide)
            return None if every is None else every.of_columns(self.left_out.kept)
        if self.factor is not None:
            return self._beside_factor(self.factor, columns, n_rows, wide)
        coded = self._coded(columns, n_rows)
        mixed = None if coded is None else coded.split(wide)
        if mixed is not None:
            # Sparse columns consist of contrasts, which are finite.
            self._check_finite(mixed.dense, n_rows, mixed.dense_at)
        return mixed

    def _beside_factor(
        self, factor: WideFactor, columns: Mapping[str, Any], n_rows: int, wide: WideLimits
    ) -> MixedColumns:
        """Return the columns of a wide factor sparse, and the others dense if they are few."""
        from scipy.sparse import csr_array, hstack

        d, p = len(self._others.names), len(self.names)
        own, at = factor.sparse(columns), np.arange(p)
        several = None
        if float(n_rows) * d > wide.beside:
            several = self._others.mixed(columns, n_rows, wide)
        if several is None:
            return MixedColumns(self._others.matrix(columns, n_rows), own, at[:d], at[d:])
        check_memory(
            8.0 * SQUARES * float(p) ** 2,
            f"several factors of many levels, with {p:,} columns, need",
            "as random terms they need no columns, and with a variance held at a million times "
            "that of the scores, hold={...}, the other components are those of fixed factors",
        )
        sparse = csr_array(hstack([several.sparse, own], format="csr"))
        sparse_at = np.concatenate([several.sparse_at, at[d:]])
        return MixedColumns(several.dense, sparse, several.dense_at, sparse_at)

    def ends(self, columns: Mapping[str, Any], n_rows: int, wide: WideLimits = WIDE) -> ColumnEnds:
        """Return the smallest value, the largest and the mean of every column of X.

        Parameters
        ----------
        columns, n_rows, wide : as of :meth:`mixed`

        Raises
        ------
        DataError
            As :meth:`matrix`.
        """
        self.check_known()
        if self.design_info is None:
            ones = np.ones(len(self.names))
            return ColumnEnds(ones, ones, ones, np.zeros(ones.size, dtype=bool))
        if self.factor is not None:
            of_factor = np.zeros(self.factor.n_columns)
            one = self._others.ends(columns, n_rows, wide)
            low, high, mean = (np.append(x, of_factor) for x in (one.low, one.high, one.mean))
            return ColumnEnds(low, high, mean, np.append(one.is_sparse, of_factor == 0.0))
        mixed = self.mixed(columns, n_rows, wide)
        if mixed is not None:
            is_sparse = np.zeros(len(self.names), dtype=bool)
            is_sparse[mixed.sparse_at] = True
            return ColumnEnds(*mixed.ends(), is_sparse)
        is_sparse = np.zeros(len(self.names), dtype=bool)
        coded = self._coded(columns, n_rows)
        if coded is not None:
            with np.errstate(all="ignore"):  # of what is not finite
                low, high, mean = coded.ends()
            if np.isfinite(low).all() and np.isfinite(high).all():
                return ColumnEnds(low, high, mean, is_sparse)
        X = self._by_patsy(columns, n_rows)
        return ColumnEnds(X.min(axis=0), X.max(axis=0), X.mean(axis=0), is_sparse)

    def check_known(self) -> None:
        """Refuse a fixed part whose coding was not stored.

        Raises
        ------
        DataError
        """
        if not self.is_known:
            raise DataError(
                "the coding of the fixed part is not stored with statistics; fit the rows again"
            )

    def _coded(self, columns: Mapping[str, Any], n_rows: int) -> CodedRows | None:
        from patsy import PatsyError

        try:
            with np.errstate(all="ignore"):  # values that are not finite are refused later
                return CodedRows.of(self.design_info, columns, n_rows)
        except PatsyError as error:
            raise DataError(_from_patsy(error)) from None

    def _by_patsy(self, columns: Mapping[str, Any], n_rows: int) -> FloatArray:
        from patsy import PatsyError, build_design_matrices

        try:
            with np.errstate(all="ignore"):  # values that are not finite are refused below
                (X,) = build_design_matrices([self.design_info], columns, NA_action="raise")
        except PatsyError as error:
            raise DataError(_from_patsy(error)) from None
        if X.shape[0] != n_rows:
            terms = ", ".join(self.design_info.term_names)
            raise DataError(
                f"the fixed part ({terms}) gives {X.shape[0]} rows where the data have {n_rows}; "
                "each of its terms needs one value for each row"
            )
        self._check_finite(X, n_rows, np.arange(X.shape[1]))
        return np.ascontiguousarray(X, dtype=float)

    def _check_finite(self, X: FloatArray, n_rows: int, places: LongArray) -> None:
        infinite = ~np.isfinite(X).all(axis=0)
        if infinite.any():
            j = int(np.argmax(infinite))
            n_infinite = int((~np.isfinite(X[:, j])).sum())
            raise DataError(
                f"{self.names[places[j]]!r} of the fixed part is infinite in {n_infinite} of "
                f"{n_rows} rows",
                column=self.names[places[j]],
            )


_FEW = 4
"""Number of rows on which an expression is evaluated with and without other rows."""

_CALL = re.compile(r"\b(?![CIQ]\s*\()\w+\s*\(")


def check_by_row(
    code: str,
    columns: Mapping[str, Any],
    values: Callable[[Mapping[str, Any]], Any],
    what: str = "the response",
) -> None:
    """Refuse an expression whose value in a row depends on which other rows are read with it.

    Of rows in parts, ``x - x.mean()`` would be about another mean in each part.

    Parameters
    ----------
    code : the expression
    columns : of some rows
    values : evaluates it on columns
    what : that it is, in the message

    Raises
    ------
    DataError
    """
    if not _CALL.search(code) or not columns:
        return
    few = {name: column[:_FEW] for name, column in columns.items()}
    try:
        alone = np.asarray(values(few), dtype=float)
        beside = np.asarray(values({n: _between(c) for n, c in few.items()}), dtype=float)
    except Exception:  # an expression may need more rows, or others
        return
    if beside.ndim and not np.allclose(
        beside[len(alone) : 2 * len(alone)], alone, 1e-9, 0.0, equal_nan=True
    ):
        raise DataError(
            f"{what} has {code!r}, whose value in a row depends on the other rows, and rows are "
            "read in parts: compute it as a column of all rows before, or in the fixed part use "
            "patsy's center() or standardize() on rows that are read together"
        )


def _between(column: Any) -> Any:
    """Return a column between as many rows before and behind it, of other values if numbers."""
    import pandas as pd

    if isinstance(column, np.ndarray):
        others = column * 2 + 1 if column.dtype.kind == "f" else column
        return np.concatenate([others, column, others])
    codes = np.concatenate([column.codes[::-1], column.codes, column.codes[::-1]])
    return pd.Categorical.from_codes(codes, dtype=column.dtype)


def _check_memory(columns: Mapping[str, Any], n_rows: int) -> None:
    """Refuse a factor whose coding (levels × levels) and columns exceed the memory."""
    import pandas as pd

    for name, column in columns.items():
        if not isinstance(column, pd.Categorical):
            continue
        n_levels = len(column.categories)
        # The columns of many levels are kept sparse.
        n_dense = n_rows if n_levels <= WIDE.columns else 0
        check_memory(
            8.0 * n_levels * (SQUARES * n_levels + 3.0 * n_dense),
            f"column {name!r} of the fixed part has {n_levels:,} levels, whose columns need",
            f"as a random term, (1|{quoted(name)}), it needs no columns, and with its variance "
            f"held at a million times that of the scores, hold={{{name!r}: ...}}, the other "
            "components are those of the fixed factor",
        )


def _restored(
    names: tuple[str, ...],
    sent: PlainCoding,
    is_stateful: bool,
    scope: Mapping[str, Any],
    factor: WideFactor | None,
    left_out: OmittedColumns | None,
) -> FixedPart:
    info = sent.restored(scope)
    return FixedPart(
        names, info, is_stateful=is_stateful, scope=scope, factor=factor, left_out=left_out
    )


def _from_patsy(error: Any) -> str:
    if "object is not callable" in str(error):
        where = str(error).partition("\n")[2]
        return (
            "a column is not a function: g(h), levels of g within those of h, is written h:g. A "
            "variable of your program hides a function of its name, as C = 1 hides C(): rename "
            f"it\n\n{where}"
        )
    message = str(error).replace("Error evaluating factor: ", "", 1).replace("\n", "\n\n", 1)
    if message.startswith("factor contains missing values"):
        message = message.replace(
            "factor contains missing values",
            "a term has missing values in rows whose columns have none, as the logarithm of a "
            "negative number; correct it, or make those values missing in the data",
        )
    return f"an expression of the formula: {message}"


def _plain_name(name: str) -> str:
    """Return ``C(g)[T.1]`` for patsy's ``C(g)[T.np.float64(1.0)]``."""
    return re.sub(r"\bnp\.\w+\(([^()]*?)(?:\.0)?\)(?=\])", r"\1", name)


def caller_environment(eval_env: Any, depth: int) -> Any:
    """Return patsy's ``EvalEnvironment`` of the scope of the caller's caller.

    Parameters
    ----------
    eval_env : 0 for that scope, 1 for the one above it, or an ``EvalEnvironment``
    depth : number of functions between it and this one

    Raises
    ------
    FormulaError
        If `eval_env` is invalid, or there is no such scope.
    """
    from patsy import EvalEnvironment

    # Frames that only guard a public function are not those of the caller.
    frame, reference, scopes = sys._getframe(), 0, depth + 1
    while scopes and frame.f_back is not None:
        frame, reference = frame.f_back, reference + 1
        scopes -= frame.f_code is not GUARDS
    try:
        environment = EvalEnvironment.capture(eval_env, reference=reference)
        return environment.with_outer_namespace(TRANSFORMS)
    except (TypeError, ValueError):
        raise FormulaError(
            "eval_env must be 0 for the scope of the caller, 1 for the one above and so on, or "
            f"patsy's EvalEnvironment, not {eval_env!r}"
        ) from None


def evaluate(code: str, columns: Mapping[str, Any], environment: Any) -> Any:
    """Return the value of an expression, with columns before the caller's names.

    Raises
    ------
    FormulaError
        If Python cannot evaluate it; the message contains Python's.
    """
    if code in columns:
        return columns[code]
    from patsy import builtins as patsy_builtins

    functions = {name: getattr(patsy_builtins, name) for name in patsy_builtins.__all__}
    names = {"Q": columns.__getitem__, **columns}
    try:
        with np.errstate(all="ignore"):  # callers handle values that are not finite
            return environment.with_outer_namespace(functions).eval(code, inner_namespace=names)
    except Exception as error:
        raise FormulaError(f"cannot evaluate {code!r}: {type(error).__name__}: {error}") from None

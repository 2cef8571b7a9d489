"""The rows that a model uses: columns found, the response evaluated, missing values dropped.

The design is determined from them, before they are summed to statistics.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.data.column_values import as_levels, exact_floats, text_for_numbers
from vcomp.data.parts import of_other_kind, with_coded_text
from vcomp.data.reading import Reading, Tally
from vcomp.data.row_columns import NO_COLUMNS, RowColumns, WeightsOfRows
from vcomp.data.source import open_source
from vcomp.exceptions import DataError
from vcomp.formula import Formula, check_by_row, evaluate, names_in
from vcomp.numerics import MANY_ROWS, THREADS, check_memory, slices

if TYPE_CHECKING:
    import pandas as pd


_SAMPLE = 2**16
"""Rows at a time in which levels are searched for."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Complete rows of the columns that a formula uses.

    Attributes
    ----------
    y : (n,) response, less its offset
    facets : the grouping columns, as categories in the order of the levels
    fixed : the columns of the fixed part, in a form that patsy reads
    labels : (n,) index of the rows, of a pandas frame its own
    files : that they were read from
    frame : of which the columns of the fixed part are views: while it exists, pandas copies them
        before it changes the user's frame
    offset : (n,) sum of the offsets; None without
    weights : (n,) of scores with the residual variance σ²_e / w; None where all count alike
    used : where the weights are from
    """

    y: FloatArray
    facets: Mapping[str, pd.Series]
    fixed: Mapping[str, Any]
    labels: pd.Index
    files: tuple[Path, ...] = ()
    frame: pd.DataFrame | None = None
    offset: FloatArray | None = None
    weights: FloatArray | None = None
    used: WeightsOfRows | None = None

    @property
    def response(self) -> FloatArray:
        """The response with its offset, (n,)."""
        return self.y if self.offset is None else self.y + self.offset

    @classmethod
    def select(
        cls, formula: Formula, data: Any, reading: Reading, names: Sequence[str] | None = None
    ) -> Rows:
        """Return the complete rows of the columns that a formula names.

        Parameters
        ----------
        data : any container that :func:`vcomp.io.open_source` opens, or None: the names are then
            variables of the calling scope
        reading : the calling scope, and what is done with incomplete rows
        names : the columns to read, if they are known

        Raises
        ------
        DataError
            If a column does not exist, the response is not numeric, infinite, or always missing,
            a facet holds values that cannot be levels, a value is missing and ``missing="raise"``,
            or no row is left.
        """
        import pandas as pd

        source = reading.open(formula, data)
        if names is None:
            names = reading.columns(formula, source)
        frame, sizes = source.read_parts(names)
        columns = reading.row_columns
        if columns:
            frame, columns = columns.joined(frame, source.row_labels)
        part = CompleteRows.of(formula, frame, reading.environment)
        # A single file need not be named.
        tally = part.tally if len(sizes) == 1 else part.tally.by_part(part.keep, part.y, sizes)
        tally.check(formula, reading.missing, source.files)
        labels = source.row_labels
        if labels is None:
            labels = pd.RangeIndex(part.tally.n)
        labels = labels if part.keep.all() else labels[part.keep]
        part = part.counted(formula, columns, reading.environment, labels)
        if not part.y.size:
            raise no_score_left()
        return cls(
            # The user may change a frame, but not what was read from files.
            y=part.y if source.files else part.y.copy(),
            facets=_all_levels({f: part.frame[f] for f in formula.level_columns}),
            fixed=part.fixed_columns(formula) if formula.covariates else {},
            labels=labels if part.repeats is None else labels[part.repeats],
            files=source.files,
            frame=part.frame if formula.covariates and not source.files else None,
            offset=part.offset,
            weights=part.weights,
            used=None
            if part.weights is None
            else columns.used(float(part.weights.mean()), float(np.log(part.weights).mean())),
        )

    def __reduce__(self) -> Any:
        # Pickled columns are copies, which need no frame.
        known = self.offset, self.weights, self.used
        return Rows, (self.y, self.facets, self.fixed, self.labels, self.files, None, *known)

    def __len__(self) -> int:
        return int(self.y.size)


@dataclass(frozen=True, slots=True)
class CompleteRows:
    """The rows of a frame without missing values in the formula's columns.

    Attributes
    ----------
    y : (n,) response, which may be a column of the frame itself
    frame : their columns
    keep : which rows of the frame they were
    tally : what was missing
    offset, weights : (n,) as of :class:`Rows`
    repeats : (n,) places of the rows among the complete ones, if each stands for several or none
    """

    y: FloatArray
    frame: pd.DataFrame
    keep: BoolArray
    tally: Tally
    offset: FloatArray | None = None
    weights: FloatArray | None = None
    repeats: LongArray | None = None

    @classmethod
    def of(cls, formula: Formula, frame: pd.DataFrame, environment: Any) -> CompleteRows:
        """Return the rows of a frame without a missing value, with their response.

        Parameters
        ----------
        frame : the columns that the formula uses
        environment : patsy's ``EvalEnvironment`` of the caller

        Raises
        ------
        DataError
            If the response is not numeric, or not one number a row.
        """
        columns = plain_columns(frame, names_in(formula.response))
        what = f"the response {formula.response!r}"
        y = _numbers(formula.response, columns, environment, len(frame), what)
        with np.errstate(over="ignore", invalid="ignore"):
            is_finite = bool(np.isfinite(y.sum()))  # one pass: a sum keeps nan and infinity
        # A response that is a column is known to be complete then.
        looked_at = formula.response if is_finite else None
        missing_in: dict[str | None, BoolArray] = {
            str(name): _missing(str(name), column).to_numpy()
            for name, column in frame.items()
            if name != looked_at and not _is_complete(column)
        }
        if not is_finite:
            missing_in[None] = np.isnan(y)
        counts: dict[str | None, int] = {None: 0}
        if looked_at in frame:
            counts[looked_at] = 0
        counts |= {name: int(mask.sum()) for name, mask in missing_in.items()}
        keep = np.ones(y.size, dtype=bool)
        if any(counts.values()):
            keep = ~np.logical_or.reduce(list(missing_in.values()))
            frame, y = frame.loc[keep].reset_index(drop=True), y[keep]
        infinite = 0 if is_finite else int(np.isinf(y).sum())
        tally = Tally(keep.size, keep.size - y.size, counts, infinite)
        return cls(y, frame, keep, tally)

    @classmethod
    def of_part(
        cls,
        formula: Formula,
        frame: pd.DataFrame,
        environment: Any,
        columns: RowColumns = NO_COLUMNS,
    ) -> CompleteRows:
        """Return the complete rows of a part that is read on its own.

        Parameters
        ----------
        formula, frame, environment : as for :meth:`of`
        columns : weights, frequencies and offsets, by name

        Raises
        ------
        DataError
            As :meth:`of`, and if the response of a row depends on the other rows.
        """
        frame = with_coded_text(frame)
        parts = [(formula.response, "the response"), *((o, "the offset") for o in formula.offsets)]
        for code, what in parts:
            if code not in frame:
                given = plain_columns(frame, names_in(code))
                check_by_row(code, given, partial(evaluate, code, environment=environment), what)
        return cls.of(formula, frame, environment).counted(formula, columns, environment)

    def counted(
        self,
        formula: Formula,
        columns: RowColumns,
        environment: Any,
        labels: pd.Index | None = None,
    ) -> CompleteRows:
        """Return the rows with their weights, less their offsets, each as often as it counts.

        Parameters
        ----------
        columns : weights, frequencies and offsets, by name
        environment : patsy's ``EvalEnvironment`` of the caller
        labels : of the rows, for messages

        Raises
        ------
        DataError
            If a weight, frequency or offset is invalid.
        """
        if not (columns or formula.offsets):
            return self
        repeats, frame, y = None, self.frame, self.y
        n = columns.numbers("frequency", frame, labels)
        offset = offset_of(formula, columns, frame, environment, labels)
        weights, y = columns.weights_of(frame, labels), y if offset is None else y - offset
        if n is not None:
            total = float(n.sum())
            rows = display.count(total) if total < 1e15 else f"{total:.2g}"
            check_memory(
                24.0 * total * len(frame.columns),
                f"the {rows} rows that frequency= stands for need",
                "pass stream=True, or fit the means of cells with weights= their numbers",
            )
            repeats = np.repeat(np.arange(n.size), n.astype(np.int64))
            frame, y = frame.iloc[repeats].reset_index(drop=True), y[repeats]
            offset, weights = (x if x is None else x[repeats] for x in (offset, weights))
        return replace(self, y=y, frame=frame, offset=offset, weights=weights, repeats=repeats)

    @classmethod
    def of_fixed_part(cls, frame: pd.DataFrame) -> CompleteRows:
        """Return complete rows with the columns of the fixed part alone."""
        n = len(frame)
        return cls(np.zeros(n), frame, np.ones(n, dtype=bool), Tally(n, 0, {None: 0}, 0))

    def fixed_columns_with_all_levels(self, formula: Formula) -> dict[str, Any]:
        """Return the columns of the fixed part, with categories that do not occur."""
        import pandas as pd

        columns = {n: self.frame[n] for n in self.frame.columns if n in formula.covariates}
        return {
            name: column.array
            if isinstance(column.dtype, pd.CategoricalDtype)
            else _plain(name, column)
            for name, column in columns.items()
        }

    def fixed_columns(
        self, formula: Formula, fitted: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the columns of the fixed part, in a form that patsy reads.

        Parameters
        ----------
        fitted : these columns as a model was fitted to them, for their categories

        Raises
        ------
        DataError
            If a column holds neither numbers nor levels, or a category did not occur in the fit.
        """
        if fitted is None:
            return plain_columns(self.frame, formula.covariates)
        return _fixed_columns(formula, self.frame, fitted)


def no_score_left() -> DataError:
    """Return the error for rows that all have the frequency 0."""
    return DataError("frequency= is 0 in all rows: no score is left")


def offset_of(
    formula: Formula,
    columns: RowColumns,
    frame: pd.DataFrame,
    environment: Any,
    labels: pd.Index | None = None,
) -> FloatArray | None:
    """Return the sum of the offsets of rows, (n,); None without any.

    Parameters
    ----------
    columns : with the option ``offset=``, by name
    frame : of the rows
    environment : patsy's ``EvalEnvironment`` of the caller
    labels : of the rows, for messages

    Raises
    ------
    DataError
        If one is not a finite number in each row.
    """
    total = columns.numbers("offset", frame, labels)
    for code in formula.offsets:
        given = plain_columns(frame, names_in(code))
        values = _numbers(code, given, environment, len(frame), f"offset({code})")
        finite = np.isfinite(values)
        if not finite.all():
            first = (
                "" if labels is None else f", the first in row {labels[int(np.argmin(finite))]}"
            )
            raise DataError(
                f"offset({code}) is not finite in {int((~finite).sum()):,} of {values.size:,} "
                f"rows{first}; leave these rows out",
                column=code,
            )
        total = values if total is None else total + values
    return total


def _is_complete(column: pd.Series) -> bool:
    """Whether a column surely has no missing value: whole numbers, or numbers of a finite sum."""
    if not isinstance(column.dtype, np.dtype):
        return False
    if column.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(np.isfinite(column.to_numpy().sum()))  # a sum keeps nan
    return column.dtype.kind in "iub"


def _all_levels(columns: dict[str, pd.Series]) -> dict[str, pd.Series]:
    """Return the columns as categories; of many rows two columns at a time."""
    if len(next(iter(columns.values()))) < MANY_ROWS:
        return {name: as_levels(name, column) for name, column in columns.items()}
    with ThreadPoolExecutor(THREADS) as pool:
        levels = pool.map(as_levels, columns, columns.values())
        return dict(zip(columns, levels, strict=True))


def select_predictors(
    formula: Formula,
    data: Any,
    reading: Reading,
    fitted: Mapping[str, Any],
    facets: Collection[str],
) -> tuple[
    dict[str, pd.Series], dict[str, Any], pd.Index, tuple[FloatArray | None, FloatArray | None]
]:
    """Read facets and fixed columns for a prediction, labels, offsets and weights of the rows.

    The response may be absent, and so may other facets.

    Parameters
    ----------
    reading : the calling scope of the fit
    fitted : the columns of the fixed part that the model was fitted to, for their categories
    facets : those that are needed

    Raises
    ------
    DataError
        If a column is not there, a value is missing, or a category was not there before.
    """
    import pandas as pd

    source = open_source(data)
    columns = reading.row_columns.for_prediction(source.columns)
    used = {*facets, *formula.covariates, *formula.offset_names, *columns.names}
    names = [name for name in reading.columns(formula, source, response=False) if name in used]
    for column in columns.names:
        if column not in source.columns:
            raise source.no_column(column)
        names += [] if column in names else [column]
    # One column at least has the number of rows.
    frame = source.read(names or list(source.columns[:1]) or list(formula.facets))[names]
    missing = frame.isna().any()
    if missing.any():
        name = missing.idxmax()
        raise DataError(
            f"cannot predict rows with missing values: column {name!r} has some", column=name
        )
    fixed = _fixed_columns(formula, frame, fitted)
    labels = pd.RangeIndex(len(frame)) if source.row_labels is None else source.row_labels
    offset = offset_of(formula, columns, frame, reading.environment, labels)
    weights = columns.weights_of(frame, labels)
    return {f: frame[f] for f in facets}, fixed, labels, (offset, weights)


def _fixed_columns(
    formula: Formula, frame: pd.DataFrame, fitted: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the columns of the fixed part with the categories of the fit."""
    plain = plain_columns(frame, formula.covariates)
    return {name: _recoded(name, column, fitted.get(name)) for name, column in plain.items()}


def _recoded(name: str, column: Any, fitted: Any) -> Any:
    """Return a column with the categories of the fit in their order, as patsy requires."""
    import pandas as pd

    if not isinstance(fitted, pd.Categorical):
        return column
    if isinstance(column, pd.Categorical):
        places = fitted.categories.get_indexer(column.categories)
        codes = np.append(places, -1)[column.codes]  # the last of missing values
    else:
        codes = fitted.categories.get_indexer(pd.Index(np.asarray(column)))
    if (codes < 0).any():
        values = np.asarray(column)
        unknown = values[codes < 0].tolist()[0]
        if isinstance(unknown, float) and unknown.is_integer():
            unknown = int(unknown)  # numbers of the fixed part are read as fractions
        levels = ", ".join(map(repr, fitted.categories[:10].tolist()))
        why = of_other_kind(pd.Series(values), fitted.categories) or f", with {levels}"
        raise DataError(
            f"column {name!r} has {unknown!r}, which did not occur in the fit{why}",
            column=name,
            level=unknown,
        )
    return pd.Categorical.from_codes(codes, categories=fitted.categories)


def plain_columns(frame: pd.DataFrame, names: Collection[str]) -> dict[str, Any]:
    """Return numpy columns and categories: what patsy reads fast and in order.

    Parameters
    ----------
    frame : of the rows
    names : of the wanted columns; names of other things are ignored

    Raises
    ------
    DataError
        If a column holds neither numbers nor levels.
    """
    if not names:
        return {}
    # One by one: a list of names would make another frame, which is slow for few rows.
    return {name: _plain(name, frame[name]) for name in frame.columns.tolist() if name in names}


def occurring_levels(values: pd.Categorical) -> pd.Categorical:
    """Return values without the levels that do not occur; unchanged if all do."""
    occurs = np.zeros(len(values.categories) + 1, dtype=bool)
    codes: Any = values.codes
    # Levels of sorted rows occur in some from all parts, others among the first rows.
    spread = codes[:: codes.size // _SAMPLE + 1]
    for some in (spread, *(codes[rows] for rows in slices(codes.size, _SAMPLE))):
        occurs[some] = True  # the last if a value is missing
        if occurs[:-1].all():
            return values
    places = np.append(np.cumsum(occurs[:-1]) - 1, -1)
    kept = values.categories[occurs[:-1]]
    dtype = type(values.dtype)(kept, values.ordered)
    return type(values).from_codes(places[values.codes], dtype=dtype, validate=False)


def _plain(name: str, column: pd.Series) -> Any:
    import pandas as pd

    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "fiu":
        return exact_floats(name, column)
    if _missing(name, column).all():
        return np.full(len(column), np.nan)
    if isinstance(column.dtype, pd.CategoricalDtype):
        return occurring_levels(column.array)
    if pd.api.types.is_complex_dtype(column.dtype):
        raise DataError(f"column {name!r} holds complex numbers", column=name)
    if pd.api.types.is_bool_dtype(column.dtype) and not column.isna().any():
        return column.to_numpy(dtype=bool)
    if pd.api.types.is_numeric_dtype(column.dtype) or _holds_numbers(column):
        try:
            return exact_floats(name, column)
        except OverflowError:
            raise DataError(
                f"column {name!r} holds a number beyond the range of floats, about 1.8e308",
                column=name,
            ) from None
    _refuse_mixed(name, column)
    try:
        return pd.Categorical(column)
    except TypeError as error:  # unhashable
        raise DataError(
            f"column {name!r} holds neither numbers nor levels: {error}", column=name
        ) from None


def _missing(name: str, column: pd.Series) -> Any:
    """Return which values are missing."""
    try:
        return column.isna()
    except ArithmeticError:
        raise DataError(
            f"column {name!r} holds the decimal sNaN, which cannot be compared; make it None",
            column=name,
        ) from None


def _refuse_mixed(name: str, column: Any) -> None:
    """Refuse a column of truth values and numbers, as it is refused of two files."""
    if column.dtype != object:
        return
    kinds = {type(value) for value in column if value is not None}
    truth = any(issubclass(kind, bool | np.bool_) for kind in kinds)
    others = [kind for kind in kinds if not issubclass(kind, bool | np.bool_)]
    if truth and any(issubclass(kind, int | float | np.number) for kind in others):
        raise DataError(
            f"column {name!r} holds numbers in some rows and truth values in others; make it one "
            "of them",
            column=name,
        )


def _holds_numbers(column: pd.Series) -> bool:
    """Return whether a column of Python objects has numbers only, such as ``Decimal``."""
    from pandas.api.types import infer_dtype

    numbers = ("floating", "integer", "mixed-integer-float", "decimal", "integer-na")
    return column.dtype == object and infer_dtype(column, skipna=True) in numbers


def _numbers(
    code: str, columns: Mapping[str, Any], environment: Any, n: int, what: str
) -> FloatArray:
    """Return the values of an expression, one number for each row."""
    import pandas as pd

    value = columns[code] if code in columns else evaluate(code, columns, environment)
    if isinstance(value, pd.Categorical | pd.Series | pd.Index):
        value = np.asarray(value)
    array = np.asarray(value)
    if array.shape != (n,):
        raise DataError(
            f"{what} has shape {array.shape}; it needs one number a row ({n})",
            column=code,
        )
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} is not numeric: it holds {text_for_numbers(array, code)}")
    return exact_floats(code, array)

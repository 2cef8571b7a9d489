"""Numbers of single rows that are no part of the formula: weights, frequencies, offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from vcomp._typing import FloatArray
from vcomp.data.column_values import exact_floats, text_for_numbers
from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class WeightsOfRows:
    """The weights of the rows of a fit; a row of weight w has the residual variance σ²_e / w.

    Attributes
    ----------
    column : their column; empty if they were an array
    of_known_variances : whether they are 1/v of known variances v, and σ²_e is 1
    mean, mean_log : means of the weights and of their logarithms, which show whether another fit
        has the same weights
    """

    column: str
    of_known_variances: bool
    mean: float
    mean_log: float

    @property
    def option(self) -> str:
        """The option of the fit, as it is written."""
        name = "known_variance" if self.of_known_variances else "weights"
        return f"{name}={self.column!r}" if self.column else f"{name}="

    @property
    def share(self) -> str:
        """Name of the total variance in notes on shares."""
        if self.of_known_variances:
            return "of the variance that the known variances leave"
        return "of the variance of a score of weight 1"

    @property
    def residual(self) -> str:
        """Sentence on the weights and the residual variance, without its full stop."""
        where = repr(self.column) if self.column else "an array"
        if self.of_known_variances:
            return f"scores have known variances, {where}; the residual is their unit, 1"
        return f"weights: {where}; the residual variance is that of a score of weight 1"


@dataclass(frozen=True, slots=True)
class OffsetOfRows:
    """The offsets of the rows of a fit.

    Attributes
    ----------
    mean : which means of scores include; None of sums that older versions stored
    """

    mean: float | None

    @property
    def known_mean(self) -> float:
        """The mean.

        Raises
        ------
        DataError
            If an older version stored the sums of the rows.
        """
        if self.mean is None:
            raise DataError(
                "means include the mean offset, which these sums do not have, as an older version "
                "of vcomp stored them: accumulate the rows again"
            )
        return self.mean


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Columns of the data, or arrays, with a number for each row.

    Attributes
    ----------
    weights : of scores with the residual variance σ²_e / w, such as means of w observations
    frequency : how many equal rows each row stands for
    known_variance : variances of the scores about their expectation, in place of σ²_e
    offset : known part of the expectation of the score

    Raises
    ------
    DataError
        If there are both weights and known variances, or one is neither a column nor an array.
    """

    weights: Any = None
    frequency: Any = None
    known_variance: Any = None
    offset: Any = None

    def __post_init__(self) -> None:
        if self.weights is not None and self.known_variance is not None:
            raise DataError(
                "weights= and known_variance= exclude each other: a score of known variance v has "
                "the weight 1/v; leave weights= out"
            )
        for option, given in self._given():
            if isinstance(given, str):
                continue
            array = np.asarray(given)
            if array.ndim != 1:
                what = repr(given) if array.ndim == 0 else f"an array of {array.ndim} dimensions"
                raise DataError(
                    f"{option}= must be the name of a column or an array with a number for each "
                    f"row, not {what}"
                )
            if isinstance(given, np.ma.MaskedArray):
                array = np.ma.filled(given.astype(float), np.nan)
            if not hasattr(given, "iloc"):  # a Series keeps the labels of its rows
                object.__setattr__(self, option, array)

    def _given(self) -> Iterator[tuple[str, Any]]:
        for field in fields(self):
            given = getattr(self, field.name)
            if given is not None:
                yield field.name, given

    def __bool__(self) -> bool:
        return any(True for _ in self._given())

    @property
    def names(self) -> tuple[str, ...]:
        """The columns to read, each once."""
        return tuple(dict.fromkeys(g for _, g in self._given() if isinstance(g, str)))

    @property
    def by_option(self) -> dict[str, Any]:
        """What was given, by option."""
        return dict(self._given())

    @property
    def variances(self) -> str:
        """The option by which variances of scores differ; empty if they are alike."""
        return next((o for o, _ in self._given() if o in ("weights", "known_variance")), "")

    def check_in_parts(self, how: str) -> None:
        """Refuse arrays of numbers for rows that are read in parts.

        Parameters
        ----------
        how : the rows are read, for the message

        Raises
        ------
        DataError
        """
        for option, given in self._given():
            if not isinstance(given, str):
                raise DataError(
                    f"{option}= is an array, and the rows are {how}: make it a column of the "
                    f"data, and pass its name, {option}='x'"
                )

    def joined(self, frame: pd.DataFrame, labels: pd.Index | None) -> tuple[pd.DataFrame, Self]:
        """Return a frame with arrays as columns, and these options as names of columns.

        Parameters
        ----------
        labels : of the rows of the frame; None where they are just numbered

        Raises
        ------
        DataError
            If an array has another length than the frame, or a Series other labels.
        """
        arrays, named = {}, {}
        for option, given in self._given():
            if isinstance(given, str):
                continue
            if given.size != len(frame):
                raise DataError(
                    f"{option}= has {given.size:,} numbers, and the data have {len(frame):,} rows"
                )
            if labels is not None and hasattr(given, "iloc") and not given.index.equals(labels):
                at = int(np.argmin(given.index == labels))
                raise DataError(
                    f"{option}= is a Series whose labels are not those of the rows, the first "
                    f"{given.index[at]} and {labels[at]}: make it a column of the data, or "
                    f"pass numbers in the order of the rows, {option}=w.to_numpy()"
                )
            name = f"{option}="
            arrays[name], named[option] = np.asarray(given), name
        return (frame.assign(**arrays), replace(self, **named)) if arrays else (frame, self)

    def for_prediction(self, columns: Collection[str]) -> RowColumns:
        """Return the offset, and weights or variances where other rows have their column.

        Parameters
        ----------
        columns : of these rows

        Raises
        ------
        DataError
            If the offset of the fit is an array.
        """
        if self.offset is not None and not isinstance(self.offset, str):
            raise DataError(
                "the offset of these rows is not known, as that of the fit is an array; fit with "
                "the name of a column, offset='x', which the rows have as well"
            )
        there = {
            option: given
            for option, given in self._given()
            if option == self.variances and isinstance(given, str) and given in columns
        }
        return RowColumns(offset=self.offset, **there)

    def numbers(
        self, option: str, frame: pd.DataFrame, labels: pd.Index | None = None
    ) -> FloatArray | None:
        """Return the numbers of an option in the rows of a frame; None if it is not given.

        Parameters
        ----------
        labels : of the rows, for messages; None where they are just a part of all rows

        Raises
        ------
        DataError
            If they are not numbers, infinite, or such as the option does not allow.
        """
        name = getattr(self, option)
        if name is None:
            return None
        column = frame[name]
        named = not name.endswith("=")
        written = f"{option}={name!r}" if named else name
        array = np.asarray(column)
        try:
            if array.dtype.kind in "Mmc":  # dates, durations and complex numbers become floats
                raise TypeError
            values = exact_floats(written, array)
        except (TypeError, ValueError):
            texts = (k for k, value in enumerate(array) if isinstance(value, str))
            at = next(texts, None)
            row = "" if at is None or labels is None else f" (row {labels[at]})"
            raise DataError(
                f"{written} must be numbers, and {'it' if named else 'the array x'} holds "
                f"{text_for_numbers(array, name if named else 'x')}{row}",
                column=name if named else None,
            ) from None
        values = np.asarray(values, dtype=float)
        _check(option, written, name if named else None, values, labels)
        return values

    def weights_of(self, frame: pd.DataFrame, labels: pd.Index | None = None) -> FloatArray | None:
        """Return the weights of the rows of a frame; None where all count alike.

        Parameters
        ----------
        labels : of the rows, for messages
        """
        variances = self.numbers("known_variance", frame, labels)
        return self.numbers("weights", frame, labels) if variances is None else 1.0 / variances

    def used(self, mean: float, mean_log: float) -> WeightsOfRows:
        """Return what a result says of its weights.

        Parameters
        ----------
        mean, mean_log : means of the weights of its rows, and of their logarithms
        """
        column = getattr(self, self.variances)
        return WeightsOfRows(
            column="" if column.endswith("=") else column,
            of_known_variances=self.known_variance is not None,
            mean=mean,
            mean_log=mean_log,
        )


NO_COLUMNS = RowColumns()
"""All rows count alike and have no offset."""

_ALLOWED: Mapping[str, str] = {
    "weights": "above zero: a score of weight 0 says nothing",
    "known_variance": "above zero: a score of variance 0 would be exact",
    "frequency": "whole and not negative",
    "offset": "finite",
}


def _check(
    option: str, written: str, column: str | None, values: FloatArray, labels: pd.Index | None
) -> None:
    """Refuse numbers that an option does not allow."""
    good = np.isfinite(values)
    if option == "frequency":
        good &= (values >= 0.0) & (values == np.floor(values))
    elif option != "offset":
        good &= values > 0.0
    if good.all():
        return
    at = int(np.argmin(good))
    where = "" if labels is None else f" in row {labels[at]}"
    how = ""
    if option != "frequency":
        kept = [] if option == "offset" else [f"data[{column!r}] > 0"]
        kept += [f"np.isfinite(data[{column!r}])"] if np.isinf(values).any() else []
        rows = kept[0] if len(kept) == 1 else f"({') & ('.join(kept)})"
        how = "; leave such rows out" + ("" if column is None else f", data[{rows}]")
    raise DataError(
        f"{written} must be {_ALLOWED[option]}, and {int((~good).sum()):,} of {values.size:,} "
        f"rows have other numbers, the first {values[at]:g}{where}{how}",
        column=column,
    )

"""Tables of retrieved and of judged documents, read and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.data import as_levels, open_source
from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 5
"""Largest number of names in a message."""


@dataclass(frozen=True, slots=True, eq=False)
class DocumentTable:
    """Columns of one table as categories, and the grades of its judgements.

    Attributes
    ----------
    columns : by name
    grades : (n,) numbers; none of a table without judgements
    """

    columns: dict[str, pd.Series]
    grades: FloatArray


def read_documents(
    what: str, data: Any, names: Sequence[str], grade: str | None = None
) -> DocumentTable:
    """Return the columns of a table of documents.

    Parameters
    ----------
    what : name of the table, for messages
    data : anything that :func:`vcomp.fit` reads
    names : columns of labels
    grade : column of grades

    Raises
    ------
    DataError
        If a column is missing, named twice or lacks values, the table has no rows, or the grades
        are not finite numbers.
    """
    every = [*names, *([grade] if grade is not None else [])]
    for name in every:
        if not isinstance(name, str):
            raise DataError(f"names of columns are text, not {name!r}")
    twice = next((name for name in every if every.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"the columns of {what} are different ones; {twice!r} is named twice")
    try:
        frame = open_source(data).read(every)
    except DataError as error:
        raise DataError(f"{what}: {error}") from None
    if len(frame) == 0:
        raise DataError(f"{what}: the table has no rows")
    for name in every:
        missing = frame[name].isna().to_numpy()
        if missing.any():
            raise DataError(
                f"{what}: {int(missing.sum()):,} rows have no value in column {name!r}, the first "
                f"of them row {int(missing.argmax())}"
            )
    columns = {name: as_levels(name, frame[name]) for name in names}
    return DocumentTable(
        columns, np.zeros(0) if grade is None else _grades(what, grade, frame[grade])
    )


def _grades(what: str, name: str, column: pd.Series) -> FloatArray:
    from pandas.api.types import is_bool_dtype, is_complex_dtype, is_numeric_dtype

    column = column.infer_objects()
    numeric = is_numeric_dtype(column.dtype) and not is_complex_dtype(column.dtype)
    if not numeric and not is_bool_dtype(column.dtype):
        raise DataError(
            f"{what}: column {name!r} holds {column.dtype}; it must hold grades, such as 0 and 1, "
            "or True and False"
        )
    values: FloatArray = column.to_numpy(dtype=float)
    if not np.isfinite(values).all():
        raise DataError(f"{what}: column {name!r} holds grades that are not finite")
    return values


def listed(labels: pd.Index) -> str:
    """Return the first labels for a message.

    Parameters
    ----------
    labels : of topics, documents or systems
    """
    shown = ", ".join(repr(label) for label in labels[:_SHOWN].tolist())
    return shown + (", …" if len(labels) > _SHOWN else "")


def check_once(
    verb: str,
    who: str,
    members: pd.Index,
    key: LongArray,
    member: LongArray,
    topics: pd.Index,
    names: pd.Index,
) -> None:
    """Refuse duplicate rows of a document for one system or assessor.

    Parameters
    ----------
    verb, who : what was done, and by whom
    members : labels of the systems or assessors
    key : (n,) document of each row: number of the topic × number of names + that of the name
    member : (n,) system or assessor of each row
    topics, names : labels of topics and documents

    Raises
    ------
    DataError
        If there are any.
    """
    pairs = np.sort(key * len(members) + member)
    twice = np.flatnonzero(pairs[1:] == pairs[:-1])
    if twice.size:
        of, by = divmod(int(pairs[twice[0]]), len(members))
        topic, name = divmod(of, len(names))
        raise DataError(
            f"document {listed(names[[name]])} of topic {listed(topics[[topic]])} was {verb} "
            f"twice by {who} {listed(members[[by]])} ({twice.size:,} such rows in all); a "
            f"document is {verb} once or not at all"
        )

"""Read and check tables of retrieved and of judged documents."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.data import as_levels, open_source
from vcomp.exceptions import DataError, warn
from vcomp.ir.runs import is_path, named_judgements, named_runs, read_judgements
from vcomp.ir.trec_files import fields_of, find_files

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 5
"""Largest number of names in a message."""


@dataclass(frozen=True, slots=True, eq=False)
class DocumentTable:
    """Columns of one table as categories, with the grades if these are judgements.

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
                f"of them row {int(missing.argmax())}",
                column=name,
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
            "or True and False",
            column=name,
        )
    values: FloatArray = column.to_numpy(dtype=float)
    if not np.isfinite(values).all():
        raise DataError(f"{what}: column {name!r} holds grades that are not finite", column=name)
    return values


_TABLES = (".csv", ".tsv", ".tab", ".parquet", ".pq")
_COMPRESSED = (".gz", ".bz2", ".zst")


def is_table(data: Any, names: Sequence[str]) -> bool:
    """Return whether documents are a long table, rather than runs or qrels.

    Parameters
    ----------
    data : a table, paths, or runs or qrels in memory
    names : columns of the table
    """
    if isinstance(data, Mapping):
        return any(name in data for name in names)
    paths = [data] if is_path(data) else data
    if not isinstance(paths, list | tuple) or not paths or not all(map(is_path, paths)):
        return not isinstance(data, list | tuple) or any(hasattr(d, "columns") for d in data)
    return all(_is_table_file(path, names) for _, path in find_files(paths))


def _is_table_file(path: Path, names: Sequence[str]) -> bool:
    endings = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in _COMPRESSED]
    if endings and endings[-1] in _TABLES:
        return True
    _, first = next(fields_of(path), (0, []))
    header = re.split(r"[\s,;|\"]+", " ".join(first))
    return any(name in header for name in names)


class _Codes:
    """Codes of labels in order of first appearance, with each label stored once."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.parts: list[LongArray] = []

    def add(self, label: str, n: int) -> None:
        self.parts.append(np.full(n, self.known.setdefault(label, len(self.known))))

    def add_each(self, labels: Collection[str]) -> None:
        code = self.known.setdefault
        of = (code(label, len(self.known)) for label in labels)
        self.parts.append(np.fromiter(of, dtype=np.int64, count=len(labels)))

    def column(self) -> Any:
        import pandas as pd

        labels: Any = pd.Index([*self.known])
        return pd.Categorical.from_codes(np.concatenate(self.parts), categories=labels)


def table_of_runs(runs: Any, name_by: str, names: Sequence[str]) -> pd.DataFrame:
    """Return one row per retrieved document, reading one run at a time.

    Parameters
    ----------
    runs, name_by : see :func:`vcomp.ir.score_runs`
    names : columns of systems, topics and documents
    """
    import pandas as pd

    system, topic, document = _Codes(), _Codes(), _Codes()
    for name, run in named_runs(runs, name_by):
        for label, documents in run.items():
            system.add(name, len(documents))
            topic.add(label, len(documents))
            document.add_each(documents)
    columns = (system.column(), topic.column(), document.column())
    return pd.DataFrame(dict(zip(names, columns, strict=True)))


def table_of_qrels(qrels: Any, names: Sequence[str]) -> pd.DataFrame:
    """Return one row per judgement, with each set of qrels as an assessor.

    Parameters
    ----------
    qrels : as :func:`vcomp.ir.score_runs` reads them, or a dict of them by assessor
    names : columns of assessors, topics, documents and grades
    """
    import pandas as pd

    rows = [
        (name, judged.query_id, judged.doc_id, judged.relevance)
        for name, one in named_judgements(qrels)
        for judged in read_judgements(one)
    ]
    return pd.DataFrame(rows, columns=list(names))


def judged_only(runs: pd.DataFrame, qrels: Any, topic: str) -> pd.DataFrame:
    """Return the documents of runs on judged topics; others cannot be scored.

    Parameters
    ----------
    runs : of :func:`table_of_runs`
    qrels : the judgements, a table
    topic : their column of topics

    Warns
    -----
    VcompWarning
        If there are other topics.
    """
    labels = open_source(qrels).read([topic])[topic].astype(str).unique()
    judged = runs[topic].isin(labels).to_numpy()
    without = runs[topic].cat.categories.difference([*runs.loc[judged, topic].unique()])
    if judged.any() and len(without):
        warn(
            f"topics of the runs were not judged and are left out ({len(without):,}): "
            f"{listed(without)}"
        )
        return runs[judged]
    return runs


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

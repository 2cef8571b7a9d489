"""Read retrieved sets and judgements into a universe of documents; write its scores to a file."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.data import as_levels, open_source, parquet_path, replacing
from vcomp.exceptions import DataError, did_you_mean, guarded, is_real, warn
from vcomp.ir.documents.assessors import shown
from vcomp.ir.documents.document_universe import (
    DocumentUniverse,
    UniverseOf,
    check_universe,
    label_columns,
    listed,
    score_rows,
    score_table,
)
from vcomp.ir.runs import (
    fields_of,
    find_files,
    is_path,
    named_judgements,
    named_runs,
    read_judgements,
)

if TYPE_CHECKING:
    import pandas as pd


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
                f"{what}: column {name!r} is missing in {int(missing.sum()):,} of "
                f"{len(frame):,} rows, first in row {int(missing.argmax())}",
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
        of = (self.known.setdefault(label, len(self.known)) for label in labels)
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
            f"document is {verb} once or not at all",
            level=names[name],
        )


@guarded
def document_universe(
    retrieved: Any,
    judgements: Any,
    *,
    universe: UniverseOf = "topic",
    systems: Iterable[object] | None = None,
    relevant_from: float = 1.0,
    system: str = "system",
    assessor: str = "assessor",
    topic: str = "topic",
    document: str = "document",
    relevant: str = "relevant",
    name_by: Literal["runid", "file"] = "runid",
) -> DocumentUniverse:
    """Return the universe of documents: all that were retrieved or are relevant.

    "For each query we construct a union of all retrieved documents across all participants. Then
    we also add to this, all relevant documents." (Bodoff, 2008, sec. 5.2) Every system is
    scored on all of them, also one that retrieved nothing. Sentences (TREC Novelty), messages
    (filtering) and objects to classify are documents.

    Parameters
    ----------
    retrieved : one row per retrieved document, with the columns `system`, `topic` and `document`:
        a pandas or polars frame, pyarrow Table, dict of arrays, or path of a CSV or Parquet file.
        Or runs, as :func:`vcomp.ir.score_runs` reads them: files in TREC's format, or a dict of
        runs by system; all documents of a run are retrieved, whatever their ranks
    judgements : one row per judgement, with the columns `assessor`, `topic`, `document` and
        `relevant`. Documents that an assessor did not judge are not relevant for this assessor,
        as in qrels. An assessor judged the topics of these rows: one who found nothing relevant
        in a topic needs a row for that. Or qrels, as :func:`vcomp.ir.score_runs` reads them:
        several files are several assessors, called by the names of the files; in a dict by its
        keys
    universe : whose relevant documents are added to the retrieved ones. ``"topic"``: those of any
        assessor, so that systems are scored on the same documents by the judgements of all, and
        the design is crossed. ``"assessor"``, as published: those of the assessor by whose
        judgements a system is scored, so that documents differ between assessors where one of
        them finds relevant what no system retrieved and nobody else finds relevant; the design
        then has empty cells, and estimation of its components is slower. ``"all"``: every
        document that was judged, too, as for classification, where nothing is retrieved
    systems : names of all systems, including those that retrieved nothing and so have no rows
    relevant_from : the lowest grade that counts as relevant
    system, assessor, topic, document, relevant : names of the columns
    name_by : names of systems of files of runs, see :func:`vcomp.ir.read_scores`

    Returns
    -------
    DocumentUniverse

    Raises
    ------
    DataError
        If a column is missing or lacks values, a document is retrieved by one system or judged
        by one assessor twice for one topic, the judgements are not numbers, a topic of retrieved
        documents was not judged, or a column is text in one table and numbers in the other.

    Warns
    -----
    VcompWarning
        If no system retrieved anything for a topic, or topics of runs were not judged; these are
        left out.

    References
    ----------
    Bodoff, D. (2008). *Information Processing & Management*, 44(3), 1117-1145. Section 5.2.

    Examples
    --------
    >>> import vcomp
    >>> retrieved = {"system": ["a", "a", "b"], "topic": [1, 1, 1], "document": [7, 8, 8]}
    >>> judged = {"assessor": ["x", "x", "y"], "topic": [1, 1, 1], "document": [8, 9, 8],
    ...           "relevant": [1, 1, 1]}
    >>> vcomp.ir.document_universe(retrieved, judged).n_rows
    12
    >>> vcomp.ir.document_universe(retrieved, judged, universe="assessor").n_rows
    10
    >>> runs = {"a": {"1": {"d7": 2.0, "d8": 1.0}}, "b": {"1": {"d8": 0.5}}}
    >>> qrels = {"x": {"1": {"d8": 1, "d9": 1}}, "y": {"1": {"d8": 1}}}
    >>> vcomp.ir.document_universe(runs, qrels)
    <DocumentUniverse: 2 systems, 2 assessors, 1 topic, 3 documents>
    """
    if universe not in get_args(UniverseOf):
        raise DataError(
            f"universe={universe!r} is not known{did_you_mean(universe, get_args(UniverseOf))}; "
            "it is 'topic', 'assessor' or 'all'"
        )
    if not is_table(judgements, (assessor, topic, document, relevant)):
        judgements = table_of_qrels(judgements, (assessor, topic, document, relevant))
    if not is_table(retrieved, (system, topic, document)):
        runs_table = table_of_runs(retrieved, name_by, (system, topic, document))
        retrieved = judged_only(runs_table, judgements, topic)
    runs = read_documents("retrieved", retrieved, (system, topic, document))
    qrels = read_documents("judgements", judgements, (assessor, topic, document), relevant)
    grade = _relevant(qrels.grades, relevant, relevant_from)
    topics, (run_topic, qrel_topic) = _common(topic, runs.columns[topic], qrels.columns[topic])
    names, (run_doc, qrel_doc) = _common(document, runs.columns[document], qrels.columns[document])
    system_names, run_system = _with_more(system, runs.columns[system], systems)
    _check_topics(topics, run_topic, qrel_topic)
    judge = qrels.columns[assessor]
    judge_code = judge.cat.codes.to_numpy().astype(np.int64)
    n_names, n_judges = len(names), len(judge.cat.categories)
    run_key = run_topic * n_names + run_doc
    qrel_key = qrel_topic * n_names + qrel_doc
    added = qrel_key if universe == "all" else qrel_key[grade]
    keys = np.unique(np.concatenate([run_key, added]))
    check_once("retrieved", "system", system_names, run_key, run_system, topics, names)
    check_once("judged", "assessor", judge.cat.categories, qrel_key, judge_code, topics, names)
    retrieved_pairs = _lists(keys, run_key, run_system)
    relevant_pairs = _lists(keys, qrel_key[grade], judge_code[grade])
    judged = np.unique(qrel_topic * n_judges + judge_code)
    place = np.arange(len(topics) + 1)
    return DocumentUniverse(
        systems=system_names,
        assessors=judge.cat.categories,
        topics=topics,
        documents=_labels(topics, names, keys),
        starts=np.searchsorted(keys, place * n_names),
        retrieved_starts=retrieved_pairs[0],
        retrieved_systems=retrieved_pairs[1],
        relevant_starts=relevant_pairs[0],
        relevant_assessors=relevant_pairs[1],
        judged_starts=np.searchsorted(judged, place * n_judges),
        judged_assessors=(judged % n_judges).astype(np.int32),
        universe=universe,
    )


def _relevant(grades: FloatArray, name: str, lowest: float) -> BoolArray:
    if not is_real(lowest):
        raise DataError(f"relevant_from is a grade, such as 1, not {lowest!r}")
    found: BoolArray = grades >= float(lowest)
    if not found.any():
        low, high = display.number(grades.min()), display.number(grades.max())
        raise DataError(
            f"no document is relevant: the grades in column {name!r} are {low} to {high}, and "
            f"those from {display.number(lowest)} on count as relevant (relevant_from=)",
            column=name,
        )
    return found


def _kind(labels: pd.Index) -> str:
    return "numbers" if labels.dtype.kind in "iufb" else "text"


def _common(
    name: str, first: pd.Series, second: pd.Series
) -> tuple[pd.Index, tuple[LongArray, LongArray]]:
    """Return the union of the labels of two columns, and the codes of the rows of each."""
    one, two = first.cat.categories, second.cat.categories
    if _kind(one) != _kind(two):
        raise DataError(
            f"column {name!r} holds {_kind(one)} in the retrieved documents and {_kind(two)} in "
            f"the judgements, such as {shown(one[0])} and {shown(two[0])}; make both text",
            column=name,
        )
    labels = one if one.equals(two) else one.union(two)
    return labels, (_placed(labels, first), _placed(labels, second))


def _placed(labels: pd.Index, column: pd.Series) -> LongArray:
    places: LongArray = labels.get_indexer(column.cat.categories).astype(np.int64)
    return places[column.cat.codes.to_numpy()]


def _with_more(
    name: str, column: pd.Series, more: Iterable[object] | None
) -> tuple[pd.Index, LongArray]:
    """Return all systems, including those without rows, and the code of the system of each row."""
    import pandas as pd

    labels = column.cat.categories
    if more is not None:
        if isinstance(more, str):
            raise DataError(f"systems= is a list of names, not the text {more!r}")
        given = pd.Index(list(more))
        if len(given) and _kind(given) != _kind(labels):
            raise DataError(
                f"systems= holds {_kind(given)} and column {name!r} {_kind(labels)}, such as "
                f"{shown(given[0])} and {shown(labels[0])}",
                column=name,
            )
        unknown = labels.difference(given)
        if len(unknown):
            raise DataError(
                f"systems= are all systems, and {shown(unknown[0])}, which retrieved documents, "
                f"is not among them{did_you_mean(unknown[0], map(str, given))}",
                level=unknown[0],
            )
        labels = labels.union(given)
    return labels, _placed(labels, column)


def _check_topics(topics: pd.Index, run_topic: LongArray, qrel_topic: LongArray) -> None:
    """Refuse topics without judgements; warn of topics without retrieved documents."""
    n = len(topics)
    retrieved = np.bincount(run_topic, minlength=n) > 0
    judged = np.bincount(qrel_topic, minlength=n) > 0
    if not judged[retrieved].all():
        without = topics[retrieved & ~judged]
        raise DataError(
            f"topics of the retrieved documents were not judged ({len(without):,} of {n:,}): "
            f"{listed(without)}. Leave their rows out, or add a judgement"
        )
    if not retrieved.all():
        without = topics[~retrieved]
        warn(
            f"no system retrieved a document for topics that were judged ({len(without):,} of "
            f"{n:,}): {listed(without)}; no system retrieved their relevant documents"
        )


def _lists(keys: LongArray, key: LongArray, member: LongArray) -> tuple[LongArray, IntArray]:
    """Return the start of each document's members, and the members."""
    order = np.lexsort((member, key))
    starts = np.searchsorted(key[order], keys)
    return np.append(starts, key.size), member[order].astype(np.int32)


def _labels(topics: pd.Index, names: pd.Index, keys: LongArray) -> pd.Index:
    """Return unique labels of the documents."""
    import pandas as pd

    topic, name = np.divmod(keys, len(names))
    if np.unique(name).size == keys.size:
        return names[name]
    return pd.Index([f"{t}/{d}" for t, d in zip(topics[topic], names[name], strict=True)])


_ROWS_AT_ONCE = 1 << 20
"""Target number of rows in a row group of a file."""


@guarded
def write_per_document(
    universe: DocumentUniverse, path: str | os.PathLike[str], scores: Any = "utility"
) -> int:
    """Write the score of every system, assessor and document to a Parquet file, topic by topic.

    Only the pairs of the universe, and the scores of a million rows or of the largest topic, are
    in memory. The file gets its name once it is complete.

    Parameters
    ----------
    universe : of :func:`vcomp.ir.document_universe`
    path : of the file; an existing one is replaced
    scores : score of each of the four cases, see :func:`vcomp.ir.score_table`

    Returns
    -------
    int
        The number of rows.

    Raises
    ------
    DataError
        If `universe` is not a universe, `path` does not end in ``.parquet``, its folder does not
        exist or it cannot be written, or `scores` are not of the four cases.

    Examples
    --------
    >>> import tempfile, vcomp
    >>> track = vcomp.ir.novelty_like_track(n_systems=4, n_topics=3, n_documents=20, rng=1)
    >>> universe = vcomp.ir.document_universe(track.retrieved, track.judgements)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     n_rows = vcomp.ir.write_per_document(universe, folder + "/scores.parquet")
    >>> n_rows == universe.n_rows
    True
    """
    check_universe(universe, "write_per_document")
    return write_row_groups(universe, parquet_path(path), score_table(scores))


def write_row_groups(
    universe: DocumentUniverse,
    target: Path,
    table: FloatArray,
    *,
    rows_at_once: int = _ROWS_AT_ONCE,
) -> int:
    """Write the scores of :func:`write_per_document`, and return the number of rows.

    Parameters
    ----------
    universe : of documents
    target : path of the file
    table : of :func:`score_table`
    rows_at_once : rows of a row group; a topic is not divided
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    codes = pa.dictionary(pa.int32(), pa.array(universe.documents[:1]).type)
    schema = pa.schema([*_fields(universe, pa), ("document", codes), ("score", pa.float64())])
    n_rows = 0
    with replacing(target) as unfinished, pq.ParquetWriter(unfinished, schema) as writer:
        for parts in _many(universe, table, rows_at_once):
            rows = _arrow(universe, parts, schema, pa)
            writer.write_table(rows)
            n_rows += rows.num_rows
    return n_rows


def _many(
    universe: DocumentUniverse, table: FloatArray, rows_at_once: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield, for each row group, the parts of its topics."""
    gathered: list[dict[str, Any]] = []
    for block in universe.blocks():
        gathered += [part for part in score_rows(block, table) if part["score"].size]
        if sum(part["score"].size for part in gathered) >= rows_at_once:
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def _fields(universe: DocumentUniverse, pa: Any) -> list[tuple[str, Any]]:
    named = [(n, of) for n, of in label_columns(universe).items() if n != "document"]
    return [(name, pa.dictionary(pa.int32(), pa.array(of).type)) for name, of in named]


def _arrow(universe: DocumentUniverse, parts: list[dict[str, Any]], schema: Any, pa: Any) -> Any:
    """Return an Arrow table with the document labels of these topics only."""
    arrays = []
    for name, labels in label_columns(universe).items():
        codes: IntArray = np.concatenate([part[name] for part in parts])
        first, last = int(codes.min()), int(codes.max()) + 1
        own = pa.array(labels[first:last])
        arrays.append(pa.DictionaryArray.from_arrays(pa.array(codes - first), own))
    scores = pa.array(np.concatenate([part["score"] for part in parts]))
    return pa.Table.from_arrays([*arrays, scores], schema=schema)

"""A score for every document: what was retrieved and what was missed, one cell at a time.

References
----------
Bodoff, D. (2008). Test theory for evaluating reliability of IR test collections. *Information
Processing & Management*, 44(3), 1117-1145. Section 5.2.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.exceptions import DataError, did_you_mean
from vcomp.ir.documents import DocumentUniverse, TopicBlock, check_universe
from vcomp.linalg.memory import available_bytes, gib

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CASES", "SCORES", "document_scores", "score_table", "write_per_document"]

CASES = ("nonrelevant_left", "nonrelevant_retrieved", "relevant_missed", "relevant_retrieved")
"""What can become of a document: its number is 2 if it is relevant, and 1 more if retrieved."""

SCORES: Mapping[str, Mapping[str, float]] = {
    "utility": dict(zip(CASES, (0.0, -1.0, -1.0, 1.0), strict=True)),
    "accuracy": dict(zip(CASES, (1.0, 0.0, 0.0, 1.0), strict=True)),
}
"""Bodoff's (2008, sec. 5.2) per-document measure, and right or wrong as in classification."""

_BYTES_A_ROW = 32.0
"""Of a frame with a score and four columns of codes, and of what makes it."""

_ROWS_AT_ONCE = 1 << 20
"""Rows of a row group of a file; a topic is not divided."""


def score_table(scores: Any) -> FloatArray:
    """Return what the four :data:`CASES` are worth.

    Parameters
    ----------
    scores : ``"utility"``, which is +1 for a relevant document that is retrieved, -1 for one that
        is missed or a nonrelevant one that is retrieved, and else 0; ``"accuracy"``, 1 for what is
        right and 0 for what is wrong; or a mapping of all four cases to numbers

    Returns
    -------
    (4,) numbers

    Raises
    ------
    DataError
        If a case is missing or unknown, a number is not finite, or retrieving a document makes no
        difference to its score.

    Examples
    --------
    >>> score_table("utility")
    array([ 0., -1., -1.,  1.])
    """
    if isinstance(scores, str):
        if scores not in SCORES:
            raise DataError(
                f"scores={scores!r} is not known{did_you_mean(scores, SCORES)}; it is "
                f"{' or '.join(map(repr, SCORES))}, or a mapping of the four cases to numbers"
            )
        scores = SCORES[scores]
    if not isinstance(scores, Mapping):
        raise DataError(
            f"scores= is 'utility', 'accuracy' or a mapping of the four cases {', '.join(CASES)} "
            f"to numbers, not {scores!r}"
        )
    for case in scores:
        if case not in CASES:
            raise DataError(
                f"{case!r} is no case{did_you_mean(case, CASES)}; the cases are {', '.join(CASES)}"
            )
    missing = [case for case in CASES if case not in scores]
    if missing:
        raise DataError(f"scores= says nothing of {', '.join(missing)}")
    try:
        table = np.array([float(scores[case]) for case in CASES])
    except (TypeError, ValueError):
        raise DataError(f"scores= are numbers, not {dict(scores)!r}") from None
    if not np.isfinite(table).all():
        raise DataError(f"scores= are finite numbers, not {dict(scores)!r}")
    if table[0] == table[1] and table[2] == table[3]:
        raise DataError(
            "with these scores= it makes no difference whether a document is retrieved"
        )
    return table


def document_scores(universe: DocumentUniverse, scores: Any = "utility") -> pd.DataFrame:
    """Return a row a system, assessor and document; see :meth:`DocumentUniverse.scores`."""
    import pandas as pd

    table = score_table(scores)
    n_rows = universe.n_rows
    needed = _BYTES_A_ROW * n_rows
    if needed > available_bytes() / 2.0:
        raise DataError(
            f"the scores have {n_rows:,} rows, which take {gib(needed)} with what makes them; "
            "vcomp.ir.write_per_document(universe, path) writes them topic by topic"
        )
    values = np.empty(n_rows)
    labels = _labels(universe)
    codes = {name: np.empty(n_rows, dtype=_small(len(of))) for name, of in labels.items()}
    first = 0
    for block in universe.blocks():
        for part in _parts(block, table):
            last = first + part["score"].size
            values[first:last] = part["score"]
            for name, column in codes.items():
                column[first:last] = part[name]
            first = last
    columns: dict[str, Any] = {
        name: pd.Categorical.from_codes(codes[name], categories=of, validate=False)
        for name, of in labels.items()
    }
    return pd.DataFrame({**columns, "score": values}, copy=False)


def write_per_document(
    universe: DocumentUniverse, path: str | os.PathLike[str], scores: Any = "utility"
) -> int:
    """Write a row a system, assessor and document to a Parquet file, topic by topic.

    What is in memory are the pairs of the universe and the scores of a million rows or of the
    largest topic. The file has its name when it is complete, and not before.

    Parameters
    ----------
    universe : of :func:`vcomp.ir.document_universe`
    path : of the file, which is replaced if it is there
    scores : what the four cases are worth, see :func:`vcomp.ir.score_table`

    Returns
    -------
    int
        The number of rows.

    Raises
    ------
    DataError
        If `universe` is none, `path` does not end in ``.parquet`` or its folder is not there, or
        `scores` are not of the four cases.

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
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_universe(universe, "write_per_document")
    target = _parquet_path(path)
    table = score_table(scores)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.unfinished")
    codes = pa.dictionary(pa.int32(), pa.array(universe.documents[:1]).type)
    schema = pa.schema([*_fields(universe, pa), ("document", codes), ("score", pa.float64())])
    n_rows = 0
    try:
        with pq.ParquetWriter(unfinished, schema) as writer:
            for parts in _many(universe, table):
                made = _arrow(universe, parts, schema, pa)
                writer.write_table(made)
                n_rows += made.num_rows
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return n_rows


def _parquet_path(path: str | os.PathLike[str]) -> Path:
    try:
        target = Path(os.fsdecode(os.fspath(path))).expanduser()
    except TypeError:
        raise DataError(f"path= is the name of a file, not {path!r}") from None
    if target.suffix.lower() not in (".parquet", ".pq"):
        raise DataError(f"{target.name!r} does not end in .parquet, which is how it is read again")
    if not target.parent.is_dir():
        raise DataError(f"there is no folder {str(target.parent)!r} to write {target.name!r} to")
    if target.is_dir():
        raise DataError(f"{str(target)!r} is a folder; give the name of a file")
    return target


# Rows of a topic --------------------------------------------------------------------------------


def _parts(block: TopicBlock, table: FloatArray) -> Iterator[dict[str, Any]]:
    """Yield the columns of the scores by each assessor, by system and document."""
    n_systems = block.retrieved.shape[0]
    for number, assessor in enumerate(block.assessors):
        own = np.flatnonzero(block.scored[number])
        cases = 2 * block.relevant[number, own] + block.retrieved[:, own]
        yield {
            "system": np.repeat(np.arange(n_systems, dtype=np.int32), own.size),
            "assessor": np.full(cases.size, assessor, dtype=np.int32),
            "topic": np.full(cases.size, block.topic, dtype=np.int32),
            "document": np.tile((own + block.documents.start).astype(np.int32), n_systems),
            "score": table[cases].ravel(),
        }


def _many(universe: DocumentUniverse, table: FloatArray) -> Iterator[list[dict[str, Any]]]:
    """Yield the parts of as many topics as make a row group."""
    gathered: list[dict[str, Any]] = []
    for block in universe.blocks():
        gathered += [part for part in _parts(block, table) if part["score"].size]
        if sum(part["score"].size for part in gathered) >= _ROWS_AT_ONCE:
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def _labels(universe: DocumentUniverse) -> dict[str, pd.Index]:
    return {
        "system": universe.systems,
        "assessor": universe.assessors,
        "topic": universe.topics,
        "document": universe.documents,
    }


def _small(n_labels: int) -> type[np.signedinteger[Any]]:
    """Return the type of codes that pandas would choose, so that it need not copy them."""
    return np.int8 if n_labels < 128 else np.int16 if n_labels < 32_768 else np.int32


def _fields(universe: DocumentUniverse, pa: Any) -> list[tuple[str, Any]]:
    named = [(n, of) for n, of in _labels(universe).items() if n != "document"]
    return [(name, pa.dictionary(pa.int32(), pa.array(of).type)) for name, of in named]


def _arrow(universe: DocumentUniverse, parts: list[dict[str, Any]], schema: Any, pa: Any) -> Any:
    """Return an Arrow table, whose documents are the labels of these topics only."""
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    arrays = []
    for name, labels in _labels(universe).items():
        codes: IntArray = columns[name]
        first, last = int(codes.min()), int(codes.max()) + 1
        own = pa.array(labels[first:last])
        arrays.append(pa.DictionaryArray.from_arrays(pa.array(codes - first), own))
    return pa.Table.from_arrays([*arrays, pa.array(columns["score"])], schema=schema)

"""A score for every document: what was retrieved and what was missed, one cell at a time.

References
----------
Bodoff, D. (2008). Test theory for evaluating reliability of IR test collections. *Information
Processing & Management*, 44(3), 1117-1145. Section 5.2.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.exceptions import DataError, did_you_mean, warn
from vcomp.ir.documents.document_universe import DocumentUniverse, TopicBlock, check_universe
from vcomp.numerics import available_bytes, gib

if TYPE_CHECKING:
    import pandas as pd

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


SET_MEASURES = (
    "precision", "recall", "F", "utility", "normalized_utility", "scaled_utility", "mean_score",
)  # fmt: skip
"""The columns of :func:`set_measures` that are measures."""

NORMALIZED = ("normalized_utility", "scaled_utility")
"""Those of them that are not defined where nothing is relevant."""

_WORST = -0.5
"""Normalised utilities below are as bad as this one: MinNU of TREC 2002."""


def set_measures(
    universe: DocumentUniverse, *, beta: float = 1.0, scores: Any = "utility"
) -> pd.DataFrame:
    """Return a row a system, assessor and topic, with measures of the retrieved set.

    Parameters
    ----------
    universe : of :func:`vcomp.ir.document_universe`
    beta : of F: recall counts `beta` times as much as precision
    scores : what the four cases of a document are worth, see :func:`vcomp.ir.score_table`

    Returns
    -------
    pandas.DataFrame
        The columns ``system``, ``assessor`` and ``topic`` (categories), the counts
        ``n_retrieved``, ``n_relevant``, ``n_relevant_retrieved`` and ``n_documents`` (that the
        system is scored on), and

        ``precision``, ``recall``, ``F``
            (1 + β²) R₊ / (retrieved + β² relevant); all are 0 where their denominator is 0
        ``utility``
            linear utility: a credit for every document that is retrieved, which is what its score
            differs by from that of the same document when it is not. With the published scores
            2 R₊ - N₊, R₊ relevant and N₊ nonrelevant ones (T11U)
        ``normalized_utility``
            this over the utility of retrieving just what is relevant, 2 R (T11NU); nan where
            nothing is relevant
        ``scaled_utility``
            the same, cut at -.5 from below and taken to 0 .. 1 (T11SU)
        ``mean_score``
            mean score of the documents, nan if there is none. Over `n_documents` it is the utility
            less a number that all systems share, so that systems have the same order by both

    Raises
    ------
    DataError
        If `universe` is none, `beta` is not positive, `scores` are not of the four cases, or
        retrieving what is relevant gains nothing by them.

    Warns
    -----
    VcompWarning
        If an assessor finds nothing relevant for a topic.

    References
    ----------
    Robertson and Soboroff (2002), The TREC 2002 filtering track report; Bodoff, D. (2008).
    *Information Processing & Management*, 44(3), 1117-1145. Section 5.

    Examples
    --------
    >>> import vcomp
    >>> retrieved = {"system": ["a", "a", "b"], "topic": [1, 1, 1], "document": [7, 8, 8]}
    >>> judged = {"assessor": ["x", "x"], "topic": [1, 1], "document": [8, 9], "relevant": [1, 1]}
    >>> table = vcomp.ir.document_universe(retrieved, judged).set_measures()
    >>> table[["system", "F", "utility", "normalized_utility", "mean_score"]].round(3)
      system      F  utility  normalized_utility  mean_score
    0      a  0.500      1.0                0.25      -0.333
    1      b  0.667      2.0                0.50       0.000
    """
    check_universe(universe, "set_measures")
    frame = measured_sets(universe, beta=beta, scores=scores)
    n_systems = len(universe.systems)
    nothing = int((frame["n_relevant"] == 0).sum()) // n_systems
    if nothing:
        warn(
            f"nothing is relevant by {nothing:,} of the {len(frame) // n_systems:,} judgements of "
            "a topic by an assessor: utilities are not normalised there, and nan"
        )
    return frame


def measured_sets(
    universe: DocumentUniverse, *, beta: float = 1.0, scores: Any = "utility"
) -> pd.DataFrame:
    """Return what :func:`set_measures` does, without its warning."""
    import pandas as pd

    if isinstance(beta, bool) or not isinstance(beta, Real) or not 0.0 < beta < np.inf:
        raise DataError(f"beta is positive, not {beta!r}")
    credit = score_table(scores)
    if credit[3] <= credit[2]:
        raise DataError(
            "with these scores= a relevant document that is retrieved is worth no more than one "
            "that is missed: utilities have no largest value to be compared with"
        )
    parts = [_counts(block) for block in universe.blocks()]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    labels = {"system": universe.systems, "assessor": universe.assessors, "topic": universe.topics}
    columns: dict[str, Any] = {
        name: pd.Categorical.from_codes(joined[name], categories=of) for name, of in labels.items()
    }
    for name in ("n_retrieved", "n_relevant", "n_relevant_retrieved", "n_documents"):
        columns[name] = joined[name]
    return pd.DataFrame({**columns, **_measures(joined, float(beta), credit)})


def _counts(block: TopicBlock) -> dict[str, Any]:
    """Return the counts of one topic, by assessor and system."""
    n_systems, n_assessors = block.retrieved.shape[0], block.assessors.size
    retrieved = block.retrieved.sum(axis=1)
    # Counts below 2⁵³ are exact as floats, whose product is the fast one.
    both = block.relevant.astype(float) @ block.retrieved.T.astype(float)
    return {
        "system": np.tile(np.arange(n_systems), n_assessors),
        "assessor": np.repeat(block.assessors, n_systems),
        "topic": np.full(both.size, block.topic),
        "n_retrieved": np.tile(retrieved, n_assessors),
        "n_relevant": np.repeat(block.relevant.sum(axis=1), n_systems),
        "n_relevant_retrieved": both.ravel().astype(np.int64),
        "n_documents": np.repeat(block.scored.sum(axis=1), n_systems),
    }


def _measures(counts: dict[str, Any], beta: float, credit: FloatArray) -> dict[str, FloatArray]:
    """Return the measures from the counts (see :func:`set_measures`)."""
    hits, found = counts["n_relevant_retrieved"], counts["n_retrieved"]
    relevant, documents = counts["n_relevant"], counts["n_documents"]
    wrong = found - hits
    utility = hits * (credit[3] - credit[2]) + wrong * (credit[1] - credit[0])
    normalized = _over(utility, relevant * (credit[3] - credit[2]), np.nan)
    left = credit[2] * relevant + credit[0] * (documents - relevant)
    return {
        "precision": _over(hits, found, 0.0),
        "recall": _over(hits, relevant, 0.0),
        "F": _over((1.0 + beta**2) * hits, found + beta**2 * relevant, 0.0),
        "utility": utility,
        "normalized_utility": normalized,
        "scaled_utility": (np.maximum(normalized, _WORST) - _WORST) / (1.0 - _WORST),
        "mean_score": _over(utility + left, documents, np.nan),
    }


def _over(above: Any, below: Any, otherwise: float) -> FloatArray:
    quotient: FloatArray = np.full(np.shape(below), otherwise)
    np.divide(above, below, out=quotient, where=np.asarray(below) != 0)
    return quotient

"""Find and read files of test collections: runs and judgements."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, did_you_mean, is_real
from vcomp.ir.scores import ScoreMatrix

PathsLike: TypeAlias = (
    "str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Mapping[str, str]"
)
"""A file, a folder, a pattern such as ``runs/*.eval``, several of these, or files by name."""

Files: TypeAlias = "list[tuple[str | None, Path]]"
"""Files, each with its name if it was given one."""


def find_files(paths: PathsLike) -> Files:
    """Return the files of `paths`, sorted by name within a folder or pattern.

    Hidden files and folders within a folder are left out.

    Raises
    ------
    DataError
        If a file is not there, a folder is empty, a pattern matches nothing, or a file would be
        read twice.
    """
    if isinstance(paths, Mapping):
        files: Files = [(str(name), _one_file(path)) for name, path in paths.items()]
    else:
        several: Iterable[object] = [paths]
        if isinstance(paths, Iterable) and not isinstance(paths, str | os.PathLike):
            several = paths
        files = [(None, path) for part in several for path in _expand(part)]
    if not files:
        raise DataError("no files are given")
    seen: set[Path] = set()
    for _, path in files:
        if path in seen:
            raise DataError(f"{str(path)!r} is given twice")
        seen.add(path)
    return files


def fields_of(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Read the fields of each line, with the number of the line; blank lines are left out.

    Raises
    ------
    DataError
        If the file cannot be read, or is not text.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        # -sig: a byte order mark must not become part of the first field.
        with opened(path, "rt", encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                fields = line.split()
                if fields:
                    yield number, fields
    except UnicodeDecodeError as error:
        raise DataError(f"{str(path)!r} is not a text file in UTF-8") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{str(path)!r} cannot be read: {reason}") from error


def wrong_line(path: Path, number: int, fields: list[str], wanted: str) -> NoReturn:
    """Raise an error that quotes a line of a file.

    Raises
    ------
    DataError
        Always.
    """
    text = " ".join(fields)
    shown = text if len(text) <= 80 else f"{text[:80]} …"
    raise DataError(f"{str(path)!r}, line {number}: {shown!r}; {wanted}")


def _expand(part: object) -> list[Path]:
    if not isinstance(part, str | os.PathLike):
        raise DataError(f"a path is text, not {part!r}")
    path = Path(part).expanduser()
    if path.is_dir():
        inside = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        if not inside:
            raise DataError(f"there are no files in the folder {str(path)!r}")
        return inside
    if not path.exists() and any(mark in str(path) for mark in "*?["):
        matches = sorted(Path(match) for match in glob(str(path)) if Path(match).is_file())
        if not matches:
            raise DataError(f"no file matches the pattern {str(path)!r}")
        return matches
    return [_one_file(path)]


def _one_file(path: object) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise DataError(f"a path is text, not {path!r}")
    file = Path(path).expanduser()
    if not file.is_file():
        kind = "is a folder" if file.is_dir() else "is not there"
        raise DataError(f"the file {str(file)!r} {kind}")
    return file


def as_number(value: object) -> float:
    """Return a value as a number, nan if it is not one."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan


def check_name_by(name_by: object) -> None:
    """Refuse unknown values of `name_by`.

    Raises
    ------
    DataError
        If it is not ``"runid"`` or ``"file"``.
    """
    if name_by not in ("runid", "file"):
        raise DataError(f"name_by must be 'runid' or 'file', not {name_by!r}")


def each_measure(measure: Any) -> list[Any]:
    """Return the measures of a call, one or a list of several.

    Raises
    ------
    DataError
        If the list is empty or has a measure twice.
    """
    names = list(measure) if isinstance(measure, list | tuple) else [measure]
    if not names:
        raise DataError("no measure is given")
    twice = [name for name, n in Counter(map(str, names)).items() if n > 1]
    if twice:
        raise DataError(f"measure {twice[0]!r} is given twice", level=twice[0])
    return names


def matrix_of(scores: Mapping[str, Mapping[str, float]], fill: float | None) -> ScoreMatrix:
    """Return a matrix of scores by system and topic.

    Parameters
    ----------
    scores : of each system by topic
    fill : score of a system on a topic that only others have; missing if None

    Raises
    ------
    DataError
        If `fill` is not a score.
    """
    is_score = is_real(fill) and math.isfinite(fill)
    if fill is not None and not is_score:
        raise DataError(f"fill must be a score, not {fill!r}")
    topics = {topic: None for of_topic in scores.values() for topic in of_topic}
    gap = np.nan if fill is None else fill
    values: FloatArray = np.array(
        [[of_topic.get(topic, gap) for of_topic in scores.values()] for topic in topics],
        dtype=float,
    ).reshape(len(topics), len(scores))
    return ScoreMatrix(values, tuple(topics), tuple(scores))


RunsLike: TypeAlias = "PathsLike | Mapping[str, Any]"
"""Files of runs, or runs by system name."""


Run: TypeAlias = dict[str, dict[str, float]]
"""The score of each document that a run retrieved, by topic."""


class JudgedDocument(NamedTuple):
    """A judgement of a document; its fields are those of ir_measures."""

    query_id: str
    doc_id: str
    relevance: int
    iteration: str


_COLUMNS = {
    "query_id": ("query_id", "qid", "q_id", "topic"),
    "doc_id": ("doc_id", "docno", "docid", "document"),
    "score": ("score",),
    "relevance": ("relevance", "label", "rel", "relevant"),
    "iteration": ("iteration",),
}
"""Column names of frames in ir_measures, PyTerrier, ranx and others."""


def named_runs(runs: Any, name_by: str) -> Iterator[tuple[str, Run]]:
    """Yield runs one by one, each with its name.

    Parameters
    ----------
    runs, name_by : see :func:`vcomp.ir.score_runs`

    Raises
    ------
    DataError
        If runs are not in one of these forms, two have the same name, or one cannot be read, has
        a score that is not a number or a document twice on a topic.
    """
    check_name_by(name_by)
    seen: set[str] = set()
    for name, documents in _each_run(runs, name_by):
        if name in seen:
            raise DataError(
                f"there are several runs called {name!r}; name systems by their files, with "
                "name_by='file', or by a dict"
            )
        seen.add(name)
        yield name, documents


def _each_run(runs: Any, name_by: str) -> Iterator[tuple[str, Run]]:
    if isinstance(runs, Mapping):
        for name, run in runs.items():
            what = f"run {str(name)!r}"
            if is_path(run):
                (_, path), *more = find_files(run)
                if more:
                    raise DataError(f"{what} matches {len(more) + 1} files; give one")
                yield str(name), _read_run(path)[1]
            else:
                yield str(name), _documents(run, what)
        return
    if hasattr(runs, "columns"):
        raise DataError(
            "runs are files, or a dict with a run for the name of each system; the frame of one "
            "system is {'bm25': frame}"
        )
    if hasattr(runs, "to_dict"):
        raise DataError("runs in memory are a dict with the name of each: {'bm25': run}")
    if isinstance(runs, Iterable) and not is_path(runs):
        runs = list(runs)
        if any(isinstance(run, Mapping | list | tuple) or _is_object(run) for run in runs):
            raise DataError(
                "a list of runs holds the paths of files; runs in memory are a dict with the name "
                "of each: {'bm25': run, 'dense': run}"
            )
    for _, path in find_files(runs):
        runid, documents = _read_run(path)
        yield (path.name if name_by == "file" else runid), documents


def _is_object(run: object) -> bool:
    """Whether this is a frame, or a ranx object (run or qrels)."""
    return hasattr(run, "columns") or hasattr(run, "to_dict")


def named_judgements(source: Any) -> list[tuple[str, Any]]:
    """Return named sets of judgements that are not yet read.

    Parameters
    ----------
    source : one set, as of :func:`read_judgements`; or several: the paths of files (also a folder
        or a pattern), or a dict of sets by name

    Raises
    ------
    DataError
        If a file is missing.
    """
    if is_named_sets(source):
        return [(str(name), one) for name, one in source.items()]
    if _is_paths(source):
        return [(path.name, path) for _, path in find_files(source)]
    return [("qrels", source)]


def is_named_sets(source: Any) -> bool:
    """Whether this is a dict of sets of judgements by name."""
    return isinstance(source, Mapping) and any(map(_is_set, source.values()))


def _is_set(value: Any) -> bool:
    """Whether a value of a dict is a set of judgements, and not the documents of a topic."""
    if isinstance(value, Mapping):
        return any(isinstance(of_topic, Mapping) for of_topic in value.values())
    return is_path(value) or isinstance(value, list | tuple) or _is_object(value)


def read_judgements(source: Any) -> list[JudgedDocument]:
    """Read one set of judgements.

    Parameters
    ----------
    source : path of a file or of several that are joined, or an object; see
        :func:`vcomp.ir.score_runs`

    Raises
    ------
    DataError
        If they cannot be read, there are none, or a relevance is not a whole number.
    """
    if _is_paths(source):
        return [one for _, path in find_files(source) for one in _read_qrels(path)]
    judged = []
    for topic, document, given, iteration in _rows(
        source, ("relevance", "iteration"), "judgements"
    ):
        relevance = as_number(given)
        if not relevance.is_integer():
            raise DataError(
                f"the relevance of document {document!r} on topic {topic!r} is {given!r}, not a "
                "whole number",
                level=topic,
            )
        judged.append(JudgedDocument(topic, document, int(relevance), str(iteration)))
    if not judged:
        raise DataError("there are no judgements")
    return judged


def _documents(run: Any, what: str) -> Run:
    """Return the documents of a run that is not a file."""
    documents: Run = {}
    for topic, document, given in _rows(run, ("score",), what):
        score = as_number(given)
        if not math.isfinite(score):
            raise DataError(
                f"{what}: the score of document {document!r} on topic {topic!r} is {given!r}, "
                "not a number",
                level=topic,
            )
        of_topic = documents.setdefault(topic, {})
        if document in of_topic:
            raise DataError(
                f"{what}: document {document!r} is twice on topic {topic!r}", level=topic
            )
        of_topic[document] = score
    return documents


def _rows(source: Any, values: tuple[str, ...], what: str) -> Iterator[tuple[Any, ...]]:
    """Return topic, document and values of each row of nested dicts, a frame or named tuples."""
    if hasattr(source, "columns"):
        yield from _frame_rows(source, values, what)
        return
    if hasattr(source, "to_dict"):
        source = source.to_dict()
    needed = ("query_id", "doc_id", values[0])
    if isinstance(source, Mapping):
        for topic, documents in source.items():
            if not isinstance(documents, Mapping):
                raise DataError(
                    f"{what}: topic {topic!r} has a {type(documents).__name__}, not a dict of "
                    "documents",
                    level=topic,
                )
            for document, value in documents.items():
                yield (str(topic), str(document), value, "0")[: len(values) + 2]
        return
    for row in source if isinstance(source, Iterable) else [source]:
        if hasattr(row, "measure") and hasattr(row, "value"):
            raise DataError(
                f"{what} holds scores of topics, not documents; "
                f"vcomp.ir.read_scores(runs, {str(row.measure)!r}) reads them"
            )
        if not all(hasattr(row, name) for name in needed):
            raise DataError(
                f"{what} must be a file, nested dicts by topic and document, a frame with columns "
                f"{', '.join(map(repr, needed))}, or tuples of ir_measures with these fields; not "
                f"{row!r}"
            )
        rest = [getattr(row, name, "0") for name in values]
        yield (str(row.query_id), str(row.doc_id), *rest)


def _frame_rows(frame: Any, values: tuple[str, ...], what: str) -> Iterator[tuple[Any, ...]]:
    import pandas as pd

    names = [str(name) for name in frame.columns]
    columns = []
    for field in ("query_id", "doc_id", *values):
        name = next((known for known in _COLUMNS[field] if known in names), None)
        if name is None and field in values[1:]:
            columns.append(["0"] * len(frame))
        elif name is None:
            raise DataError(
                f"{what}: the frame has no column {field!r}{did_you_mean(field, names)}; it has "
                f"{', '.join(map(repr, names))}",
                column=field,
            )
        else:
            values_of = np.asarray(frame[name])
            if field in ("query_id", "doc_id") and (lacking := pd.isna(values_of)).any():
                raise DataError(
                    f"{what}: row {int(lacking.argmax())} of the frame has no {name}", column=name
                )
            columns.append(values_of.tolist())
    for topic, document, *rest in zip(*columns, strict=True):
        yield (str(topic), str(document), *rest)


def is_path(source: object) -> bool:
    """Whether this names a file, a folder or a pattern."""
    return isinstance(source, str | os.PathLike)


def _is_paths(source: object) -> bool:
    several = isinstance(source, list | tuple) and bool(source) and all(map(is_path, source))
    return is_path(source) or several


def _read_run(path: Path) -> tuple[str, Run]:
    """Return the runid of a file and its documents."""
    run: Run = {}
    runid = ""
    for number, fields in fields_of(path):
        if len(fields) != 6:
            wrong_line(path, number, fields, "a run has topic, Q0, document, rank, score, runid")
        topic, _, document, _, text, runid = fields
        score = as_number(text)
        if not math.isfinite(score):
            wrong_line(path, number, fields[:5], f"{text!r} is not a number")
        of_topic = run.setdefault(topic, {})
        if document in of_topic:
            wrong_line(path, number, fields, f"document {document!r} is twice on topic {topic!r}")
        of_topic[document] = score
    if not run:
        raise DataError(f"the run {str(path)!r} is empty")
    return runid, run


def _read_qrels(path: Path) -> list[JudgedDocument]:
    judged = []
    for number, fields in fields_of(path):
        if len(fields) != 4:
            wanted = "judgements have topic, iteration, document and relevance"
            wrong_line(path, number, fields, wanted)
        topic, iteration, document, relevance = fields
        try:
            judged.append(JudgedDocument(topic, document, int(relevance), iteration))
        except ValueError:
            wrong_line(path, number, fields, f"the relevance {relevance!r} is not a whole number")
    if not judged:
        raise DataError(f"the judgements {str(path)!r} are empty")
    return judged

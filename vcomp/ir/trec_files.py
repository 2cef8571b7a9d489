"""Read score matrices from TREC files: the output of trec_eval, or runs with judgements."""

from __future__ import annotations

import gzip
import math
import os
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from glob import glob
from numbers import Real
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, VcompError, did_you_mean
from vcomp.ir.scores import ScoreMatrix, check_matrix

PathsLike: TypeAlias = (
    "str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Mapping[str, str]"
)
"""A file, a folder, a pattern such as ``runs/*.eval``, several of these, or files by name."""

Files: TypeAlias = "list[tuple[str | None, Path]]"
"""Files, each with its name if it was given one."""


def find_files(paths: PathsLike) -> Files:
    """Return the files of `paths`, those of a folder or pattern in the order of their names.

    Hidden files and folders within a folder are left out.

    Raises
    ------
    DataError
        If a file is not there, a folder is empty, a pattern matches nothing, or a file would be
        read twice.
    """
    if isinstance(paths, Mapping):
        found: Files = [(str(name), _one_file(path)) for name, path in paths.items()]
    else:
        several: Iterable[object] = [paths]
        if isinstance(paths, Iterable) and not isinstance(paths, str | os.PathLike):
            several = paths
        found = [(None, path) for part in several for path in _expand(part)]
    if not found:
        raise DataError("no files are given")
    seen: set[Path] = set()
    for _, path in found:
        if path in seen:
            raise DataError(f"{str(path)!r} is given twice")
        seen.add(path)
    return found


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


def named_runs(ir_measures: Any, runs: Any, name_by: str) -> Iterator[tuple[str, list[Any]]]:
    """Read runs one by one, each with its name.

    Parameters
    ----------
    ir_measures : the package
    runs, name_by : see :func:`vcomp.ir.score_runs`

    Raises
    ------
    DataError
        If runs are not in one of these forms, or one cannot be read, has a score that is not a
        number or a document twice on a topic.
    """
    if hasattr(runs, "columns"):
        raise DataError("runs are files, or a dict with a run for the name of each system")
    if isinstance(runs, Mapping):
        for name, run in runs.items():
            if _is_path(run):
                yield str(name), _read_run(ir_measures, _only(run))[1]
            else:
                yield str(name), _documents(ir_measures, run, f"run {str(name)!r}")
        return
    for _, path in find_files(runs):
        runid, documents = _read_run(ir_measures, path)
        yield (path.name if name_by == "file" else runid), documents


def read_judgements(ir_measures: Any, source: Any) -> list[Any]:
    """Read judgements.

    Parameters
    ----------
    ir_measures : the package
    source : see :func:`vcomp.ir.score_runs`

    Raises
    ------
    DataError
        If they cannot be read, there is none, or a relevance is not a whole number.
    """
    if _is_path(source):
        return _read_qrels(ir_measures, source)
    what, judged = "judgements", []
    for topic, document, given, iteration in _rows(source, ("relevance", "iteration"), what):
        relevance = _float(given)
        if not relevance.is_integer():
            raise DataError(
                f"the relevance of document {document!r} on topic {topic!r} is {given!r}, not a "
                "whole number"
            )
        judged.append(ir_measures.Qrel(topic, document, int(relevance), str(iteration)))
    if not judged:
        raise DataError("there are no judgements")
    return judged


def _documents(ir_measures: Any, run: Any, what: str) -> list[Any]:
    """Return the documents of a run that is not a file."""
    documents, seen = [], set()
    for topic, document, given in _rows(run, ("score",), what):
        score = _float(given)
        if not math.isfinite(score):
            raise DataError(
                f"{what}: the score of document {document!r} on topic {topic!r} is {given!r}, "
                "not a number"
            )
        if (topic, document) in seen:
            raise DataError(f"{what}: document {document!r} is twice on topic {topic!r}")
        seen.add((topic, document))
        documents.append(ir_measures.ScoredDoc(topic, document, score))
    return documents


def _rows(source: Any, values: tuple[str, ...], what: str) -> Iterator[tuple[Any, ...]]:
    """Return topic, document and values of each row of nested dicts, a frame or named tuples."""
    needed = ("query_id", "doc_id", values[0])
    if isinstance(source, Mapping):
        for topic, documents in source.items():
            if not isinstance(documents, Mapping):
                raise DataError(
                    f"{what}: topic {topic!r} has a {type(documents).__name__}, not a dict"
                )
            for document, value in documents.items():
                yield (str(topic), str(document), value, "0")[: len(values) + 2]
        return
    if hasattr(source, "columns"):
        names = [str(name) for name in source.columns]
        for name in needed:
            if name not in names:
                raise DataError(
                    f"{what}: the frame has no column {name!r}{did_you_mean(name, names)}; it has "
                    f"{', '.join(map(repr, names))}"
                )
        columns = [
            np.asarray(source[name]).tolist() if name in names else ["0"] * len(source)
            for name in ("query_id", "doc_id", *values)
        ]
        for topic, document, *rest in zip(*columns, strict=True):
            yield (str(topic), str(document), *rest)
        return
    for row in source if isinstance(source, Iterable) else [source]:
        if not all(hasattr(row, name) for name in needed):
            raise DataError(
                f"{what} must be a file, nested dicts by topic and document, a frame with columns "
                f"{', '.join(map(repr, needed))}, or tuples of ir_measures with these fields; not "
                f"{row!r}"
            )
        rest = [getattr(row, name, "0") for name in values]
        yield (str(row.query_id), str(row.doc_id), *rest)


def _float(value: object) -> float:
    """Return a value as a number, nan if it is not one."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan


def _is_path(source: object) -> bool:
    return isinstance(source, str) or hasattr(source, "__fspath__")


def _only(run: Any) -> Path:
    (_, path), *more = find_files(run)
    if more:
        raise DataError(f"{run!r} is {len(more) + 1} files; a run is one")
    return path


def _read_run(ir_measures: Any, path: Path) -> tuple[str, list[Any]]:
    """Return the runid of a file and its documents."""
    run, runid, seen = [], "", set()
    for number, fields in fields_of(path):
        if len(fields) != 6:
            wrong_line(path, number, fields, "a run has topic, Q0, document, rank, score, runid")
        topic, _, document, _, text, runid = fields
        score = _float(text)
        if not math.isfinite(score):
            wrong_line(path, number, fields[:5], f"{text!r} is not a number")
        if (topic, document) in seen:
            wrong_line(path, number, fields, f"document {document!r} is twice on topic {topic!r}")
        seen.add((topic, document))
        run.append(ir_measures.ScoredDoc(topic, document, score))
    if not run:
        raise DataError(f"the run {str(path)!r} is empty")
    return runid, run


def _read_qrels(ir_measures: Any, source: Any) -> list[Any]:
    path, judged = _only(source), []
    for number, fields in fields_of(path):
        if len(fields) != 4:
            wanted = "judgements have topic, iteration, document and relevance"
            wrong_line(path, number, fields, wanted)
        topic, iteration, document, relevance = fields
        try:
            judged.append(ir_measures.Qrel(topic, document, int(relevance), iteration))
        except ValueError:
            wrong_line(path, number, fields, f"the relevance {relevance!r} is not a whole number")
    if not judged:
        raise DataError(f"the judgements {str(path)!r} are empty")
    return judged


_SUMMARY = "all"
"""The topic of summary lines."""


def read_trec_eval(
    paths: PathsLike,
    measure: str = "map",
    *,
    name_by: Literal["runid", "file"] = "runid",
    fill: float | None = None,
) -> ScoreMatrix:
    r"""Return the scores by topic that ``trec_eval -q`` printed, a file for each run.

    Each line has a measure, a topic and a value. Summary lines (topic ``all``) and other measures
    are skipped.

    Parameters
    ----------
    paths : a file, a folder, a pattern such as ``"eval/*.txt"``, several of these, or a dict with
        a file for the name of each system; also compressed (``.gz``). Those of a folder or pattern
        are read in the order of their names
    measure : as trec_eval prints it
    name_by : names of systems, if `paths` is not a dict: ``"runid"``, the ``runid`` line of the
        file, or without one its name less the suffix; ``"file"``, the full name of the file, for
        runs that share a runid
    fill : score of a run on a topic that only other runs have; missing if None. trec_eval, unless
        called with ``-c``, omits topics for which a run retrieved nothing; TREC scores them 0

    Returns
    -------
    ScoreMatrix
        Topics in order of first occurrence.

    Raises
    ------
    DataError
        If a file is missing, a line cannot be parsed (the message has its number), a run lacks
        `measure`, has only its summary, or has a topic twice, two runs have the same name,
        `name_by` or `fill` is not an allowed value, or there are fewer than two topics or runs.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for run, first, second in [("bm25", 0.2, 0.3), ("rm3", 0.3, 0.5)]:
    ...     lines = f"runid all {run}", f"map 401 {first}", f"map 402 {second}", "map all 0.9"
    ...     _ = (folder / f"{run}.eval").write_text("\n".join(lines))
    >>> read_trec_eval(folder).to_frame()
    system  bm25  rm3
    topic
    401      0.2  0.3
    402      0.3  0.5
    """
    if name_by not in ("runid", "file"):
        raise DataError(f"name_by must be 'runid' or 'file', not {name_by!r}")
    scores: dict[str, dict[str, float]] = {}
    for given, path in find_files(paths):
        runid, of_topic = _read_eval(path, measure)
        name = given or (path.name if name_by == "file" else runid or _stem(path))
        if name in scores:
            raise DataError(
                f"{str(path)!r} is the second run called {name!r}; name systems by their files, "
                "with name_by='file', or by a dict"
            )
        scores[name] = of_topic
    return _matrix(scores, fill)


def score_runs(
    runs: PathsLike | Mapping[str, Any],
    qrels: str | os.PathLike[str] | Any,
    measure: str | Any = "AP",
    *,
    name_by: Literal["runid", "file"] = "runid",
) -> ScoreMatrix:
    """Return the scores of runs against relevance judgements, computed by ir_measures.

    The package ir_measures has to be installed: ``pip install 'variance-components[ir]'``. On a
    judged topic for which it retrieved nothing a run has the score that ir_measures gives, usually
    0; topics without judgements have no score.

    Parameters
    ----------
    runs : files in TREC's format (topic, ``Q0``, document, rank, score, runid), given as for
        :func:`read_trec_eval`; or a dict of runs by system, each of them a file or an object that
        ir_measures reads: a list of its ``ScoredDoc``, nested dicts, or a frame
    qrels : file in TREC's format (topic, iteration, document, relevance), or an object that
        ir_measures reads
    measure : name in ir_measures, such as ``"AP"``, ``"nDCG@10"`` or ``"P(rel=2)@5"``, or one of
        its measures
    name_by : see :func:`read_trec_eval`

    Returns
    -------
    ScoreMatrix
        Topics in the order of the judgements.

    Raises
    ------
    VcompError
        If ir_measures is not installed.
    DataError
        If a file is missing, a line cannot be parsed (the message has its number), a run has a
        score that is not a number, a document twice on a topic, or no judged topic, ir_measures
        does not know `measure` or cannot compute it, two runs have the same name, or there are
        fewer than two topics or runs.

    Examples
    --------
    >>> qrels = {"401": {"d1": 1, "d2": 0}, "402": {"d1": 0, "d3": 2}}
    >>> runs = {
    ...     "bm25": {"401": {"d1": 2.0, "d2": 1.0}, "402": {"d1": 2.0, "d3": 1.0}},
    ...     "rm3": {"401": {"d2": 2.0, "d1": 1.0}, "402": {"d3": 2.0}},
    ... }
    >>> score_runs(runs, qrels, "AP").scores.tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    """
    ir_measures = _ir_measures()
    if name_by not in ("runid", "file"):
        raise DataError(f"name_by must be 'runid' or 'file', not {name_by!r}")
    parsed = _parse(ir_measures, measure)
    judged = read_judgements(ir_measures, qrels)
    topics = {judgement.query_id: None for judgement in judged}
    with _explained(measure):
        evaluator = ir_measures.evaluator([parsed], judged)
    scores: dict[str, dict[str, float]] = {}
    for name, run in named_runs(ir_measures, runs, name_by):
        if name in scores:
            raise DataError(
                f"there are several runs called {name!r}; name systems by their files, with "
                "name_by='file', or by a dict"
            )
        if run and not any(document.query_id in topics for document in run):
            raise DataError(
                f"no topic of run {name!r} is judged: it has {run[0].query_id!r}, and the "
                f"judgements have {next(iter(topics))!r}"
            )
        with _explained(measure):
            scores[name] = {m.query_id: float(m.value) for m in evaluator.iter_calc(run)}
    return _matrix(scores, None)


def _read_eval(path: Path, measure: str) -> tuple[str | None, dict[str, float]]:
    """Return the runid, if there is one, and the score of each topic."""
    runid, of_topic = None, {}
    measures: dict[str, None] = {}
    summed_up = False
    for number, fields in fields_of(path):
        if len(fields) != 3:
            wrong_line(path, number, fields, "trec_eval -q prints a measure, a topic and a value")
        name, topic, text = fields
        measures[name] = None
        if name == "runid":
            runid = text
        if name != measure or topic == _SUMMARY:
            summed_up |= name == measure
            continue
        if topic in of_topic:
            wrong_line(path, number, fields, f"topic {topic!r} has a {measure} already")
        of_topic[topic] = _number(path, number, fields)
    if not of_topic and summed_up:
        raise DataError(f"{str(path)!r} has only the summary of {measure}; use trec_eval -q")
    if not of_topic:
        known = [m for m in measures if m != "runid"]
        shown = ", ".join(known[:12]) + (" …" if len(known) > 12 else "")
        has = f"it has {shown}" if known else "it is empty"
        raise DataError(
            f"{str(path)!r} has no measure {measure!r}{did_you_mean(measure, known)}; {has}"
        )
    return runid, of_topic


def _number(path: Path, number: int, fields: list[str]) -> float:
    value = _float(fields[-1])
    if not math.isfinite(value):
        wrong_line(path, number, fields, f"{fields[-1]!r} is not a number")
    return value


def _stem(path: Path) -> str:
    return (path.with_suffix("") if path.suffix == ".gz" else path).stem


def _matrix(scores: Mapping[str, Mapping[str, float]], fill: float | None) -> ScoreMatrix:
    is_score = isinstance(fill, Real) and not isinstance(fill, bool) and math.isfinite(fill)
    if fill is not None and not is_score:
        raise DataError(f"fill must be a score, not {fill!r}")
    topics = {topic: None for of_topic in scores.values() for topic in of_topic}
    gap = np.nan if fill is None else fill
    values: FloatArray = np.array(
        [[of_topic.get(topic, gap) for of_topic in scores.values()] for topic in topics],
        dtype=float,
    ).reshape(len(topics), len(scores))
    return check_matrix(ScoreMatrix(values, tuple(topics), tuple(scores)))


def _ir_measures() -> Any:
    try:
        import ir_measures
    except ImportError as error:
        raise VcompError(
            "runs are scored by the package ir_measures, which is not installed: "
            "pip install 'variance-components[ir]'"
        ) from error
    return ir_measures


@contextmanager
def _explained(measure: object) -> Iterator[None]:
    """Turn errors of ir_measures, or of a program that it calls, into a DataError."""
    try:
        yield
    except Exception as error:
        raise DataError(f"ir_measures cannot compute {measure}: {error}") from error


def _parse(ir_measures: Any, measure: Any) -> Any:
    if isinstance(measure, ir_measures.Measure):
        return measure
    if not isinstance(measure, str):
        raise DataError(
            f"a measure is its name, such as 'nDCG@10', or one of ir_measures, not {measure!r}"
        )
    try:
        with warnings.catch_warnings():
            # From Python 3.12 on, names of ast that ir_measures 0.4 uses are deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            return ir_measures.parse_measure(measure)
    except (NameError, ValueError) as error:
        raise DataError(f"ir_measures does not know the measure {measure!r}: {error}") from error

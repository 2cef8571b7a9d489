"""Runs and judgements as ir_measures takes them, read from files, dicts and frames."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vcomp.exceptions import DataError, did_you_mean
from vcomp.io.trec import fields_of, find_files, wrong_line

__all__ = ["named_runs", "read_judgements"]


def named_runs(ir_measures: Any, runs: Any, name_by: str) -> Iterator[tuple[str, list[Any]]]:
    """Read runs one by one, each with its name.

    Parameters
    ----------
    ir_measures : the package
    runs, name_by : see :func:`vcomp.ir.score_runs`

    Raises
    ------
    DataError
        If runs are not given as they may be, or one cannot be read, has a score that is no number
        or a document twice on a topic.
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
        If they cannot be read, there is none, or a relevance is no whole number.
    """
    if _is_path(source):
        return _read_qrels(ir_measures, source)
    what, judged = "judgements", []
    for topic, document, given, iteration in _rows(source, ("relevance", "iteration"), what):
        relevance = _number(given)
        if not relevance.is_integer():
            raise DataError(
                f"the relevance of document {document!r} on topic {topic!r} is {given!r}, no "
                "whole number"
            )
        judged.append(ir_measures.Qrel(topic, document, int(relevance), str(iteration)))
    if not judged:
        raise DataError("there are no judgements")
    return judged


def _documents(ir_measures: Any, run: Any, what: str) -> list[Any]:
    """Return the documents of a run that is no file."""
    documents, seen = [], set()
    for topic, document, given in _rows(run, ("score",), what):
        score = _number(given)
        if not math.isfinite(score):
            raise DataError(
                f"{what}: the score of document {document!r} on topic {topic!r} is {given!r}, no "
                "number"
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
                    f"{what}: topic {topic!r} has a {type(documents).__name__}, no dict"
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


def _number(value: object) -> float:
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
        score = _number(text)
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
            wrong_line(path, number, fields, f"the relevance {relevance!r} is no whole number")
    if not judged:
        raise DataError(f"the judgements {str(path)!r} are empty")
    return judged

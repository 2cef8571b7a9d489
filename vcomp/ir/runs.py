"""Read runs and judgements, and score runs by the measures of ir_measures."""

from __future__ import annotations

import io
import math
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, overload

import numpy as np

from vcomp.exceptions import DataError, VcompError, did_you_mean, guarded, warn
from vcomp.ir.scores import ScoreMatrix
from vcomp.ir.trec_files import (
    PathsLike,
    as_number,
    check_name_by,
    each_measure,
    fields_of,
    find_files,
    matrix_of,
    wrong_line,
)

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
    if isinstance(source, Mapping) and any(map(_is_set, source.values())):
        return [(str(name), one) for name, one in source.items()]
    several = isinstance(source, list | tuple) and bool(source) and all(map(is_path, source))
    if is_path(source) or several:
        return [(path.name, path) for _, path in find_files(source)]
    return [("qrels", source)]


def _is_set(value: Any) -> bool:
    """Whether a value of a dict is a set of judgements, and not the documents of a topic."""
    if isinstance(value, Mapping):
        return any(isinstance(of_topic, Mapping) for of_topic in value.values())
    return is_path(value) or isinstance(value, list | tuple) or _is_object(value)


def read_judgements(source: Any) -> list[JudgedDocument]:
    """Read one set of judgements.

    Parameters
    ----------
    source : path of a file, or an object; see :func:`vcomp.ir.score_runs`

    Raises
    ------
    DataError
        If they cannot be read, there are none, or a relevance is not a whole number.
    """
    if is_path(source):
        return _read_qrels(Path(source))
    judged = []
    for topic, document, given, iteration in _rows(
        source, ("relevance", "iteration"), "judgements"
    ):
        relevance = as_number(given)
        if not relevance.is_integer():
            raise DataError(
                f"the relevance of document {document!r} on topic {topic!r} is {given!r}, not a "
                "whole number"
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
                "not a number"
            )
        of_topic = documents.setdefault(topic, {})
        if document in of_topic:
            raise DataError(f"{what}: document {document!r} is twice on topic {topic!r}")
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
                    "documents"
                )
            for document, value in documents.items():
                yield (str(topic), str(document), value, "0")[: len(values) + 2]
        return
    for row in source if isinstance(source, Iterable) else [source]:
        if hasattr(row, "measure") and hasattr(row, "value"):
            raise DataError(
                f"{what} holds scores of topics, not documents; a table of the scores by one "
                "measure is pandas.concat({system: pandas.DataFrame(scores) for system, scores in "
                "runs.items()}, names=['system']).reset_index('system'), and "
                "vcomp.ir.ScoreMatrix.from_long(table, topic='query_id', score='value') reads it"
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
            columns.append(np.asarray(frame[name]).tolist())
    for topic, document, *rest in zip(*columns, strict=True):
        yield (str(topic), str(document), *rest)


def is_path(source: object) -> bool:
    """Whether this names a file, a folder or a pattern."""
    return isinstance(source, str | os.PathLike)


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


@overload
def score_runs(
    runs: RunsLike,
    qrels: Any,
    measure: list[Any] | tuple[Any, ...],
    *,
    name_by: Literal["runid", "file"] = ...,
) -> dict[str, ScoreMatrix]: ...
@overload
def score_runs(
    runs: RunsLike, qrels: Any, measure: Any = ..., *, name_by: Literal["runid", "file"] = ...
) -> ScoreMatrix: ...
@guarded
def score_runs(
    runs: RunsLike,
    qrels: str | os.PathLike[str] | Any,
    measure: str | Sequence[Any] | Any = "AP",
    *,
    name_by: Literal["runid", "file"] = "runid",
) -> ScoreMatrix | dict[str, ScoreMatrix]:
    """Return the scores of runs against relevance judgements, computed by ir_measures.

    The package ir_measures has to be installed: ``pip install 'variance-components[ir]'``. On a
    judged topic for which it retrieved nothing a run has the score that ir_measures gives, usually
    0; topics without judgements have no score.

    Parameters
    ----------
    runs : files in TREC's format (topic, ``Q0``, document, rank, score, runid), given as for
        :func:`read_trec_eval`; or a dict of runs by system, each of them a file or an object:
        nested dicts ``{topic: {document: score}}``, a list of ``ScoredDoc`` of ir_measures, a
        ``Run`` of ranx, or a frame with the columns ``query_id``, ``doc_id`` and ``score`` or, of
        PyTerrier, ``qid``, ``docno`` and ``score``
    qrels : file in TREC's format (topic, iteration, document, relevance), or an object of one of
        these kinds; the column of a frame is ``relevance`` or ``label``
    measure : name in ir_measures, such as ``"AP"``, ``"nDCG@10"`` or ``"P(rel=2)@5"``, in
        trec_eval (``"map"``, ``"ndcg_cut_10"``) or in ranx (``"mrr@10"``), or a measure of
        ir_measures. A list of measures is computed in one pass over the runs
    name_by : see :func:`read_trec_eval`

    Returns
    -------
    ScoreMatrix, or a dict of them
        Topics in the order of the judgements. Of a list of measures, a matrix by the name of each.

    Raises
    ------
    VcompError
        If ir_measures is not installed.
    DataError
        If a file is missing, a line cannot be parsed (the message has its number), a run has a
        score that is not a number, a document twice on a topic, or no judged topic, ir_measures
        does not know `measure` or cannot compute it, two runs have the same name, there are
        several sets of judgements, or there are fewer than two topics or runs.

    Warns
    -----
    VcompWarning
        If runs are cut at different ranks, above that to which a measure reads.

    Examples
    --------
    >>> qrels = {"401": {"d1": 1, "d2": 0}, "402": {"d1": 0, "d3": 2}}
    >>> runs = {
    ...     "bm25": {"401": {"d1": 2.0, "d2": 1.0}, "402": {"d1": 2.0, "d3": 1.0}},
    ...     "rm3": {"401": {"d2": 2.0, "d1": 1.0}, "402": {"d3": 2.0}},
    ... }
    >>> score_runs(runs, qrels, "AP").scores.tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    >>> {name: matrix.scores[0].tolist() for name, matrix in
    ...  score_runs(runs, qrels, ["map", "P_1"]).items()}
    {'map': [1.0, 0.5], 'P_1': [1.0, 0.0]}
    """
    ir_measures = _ir_measures()
    check_name_by(name_by)
    names = each_measure(measure)
    parsed = {str(name): _parse(ir_measures, name) for name in names}
    judged = _one_set(qrels, names[0], name_by)
    topics = {judgement.query_id for judgement in judged}
    shown = ", ".join(parsed)
    with _explained(shown):
        evaluator = ir_measures.evaluator(list(dict.fromkeys(parsed.values())), judged)
    scores: dict[Any, dict[str, dict[str, float]]] = {one: {} for one in parsed.values()}
    depths: dict[str, list[int]] = {}
    for name, run in named_runs(runs, name_by):
        depths[name] = [len(run[topic]) for topic in topics if topic in run]
        if run and topics.isdisjoint(run):
            raise DataError(
                f"no topic of run {name!r} is judged: it has {next(iter(run))!r}, and the "
                f"judgements have {judged[0].query_id!r}"
            )
        for of_runs in scores.values():
            of_runs[name] = {}
        with _explained(shown):
            for found in evaluator.iter_calc(run):
                scores[found.measure][name][found.query_id] = float(found.value)
    _warn_of_cut_runs(depths, parsed)
    matrices = {name: matrix_of(scores[one], None) for name, one in parsed.items()}
    return matrices if isinstance(measure, list | tuple) else matrices[str(measure)]


def _warn_of_cut_runs(depths: Mapping[str, list[int]], measures: Mapping[str, Any]) -> None:
    """Warn if runs end at one rank on most topics, others go deeper, and measures read on.

    Parameters
    ----------
    depths : numbers of documents by topic of each run
    measures : by name
    """
    deepest = max((max(counts, default=0) for counts in depths.values()), default=0)
    cut = {}
    for name, counts in depths.items():
        end = max(counts, default=0)
        if 0 < end < deepest and 2 * counts.count(end) >= max(len(counts), 4):
            cut[name] = end
    least = min(cut.values(), default=deepest)
    read = [name for name, m in measures.items() if m.params.get("cutoff", deepest) > least]
    if not cut or not read:
        return
    shown = ", ".join(f"{name!r} at {end}" for name, end in list(cut.items())[:3])
    warn(
        f"runs are cut at different ranks: {shown}{', …' * (len(cut) > 3)}, and others go to rank "
        f"{deepest}; scores by {', '.join(read)} favour longer runs: cut all runs at rank "
        f"{least}, or use a measure with that cutoff, such as 'nDCG@{least}'"
    )


def _one_set(qrels: Any, measure: Any, name_by: str) -> list[JudgedDocument]:
    """Return the judgements; refuse several sets, and say how each gets its scores."""
    several = named_judgements(qrels)
    if len(several) > 1:
        names = ", ".join(repr(name) for name, _ in several[:3])
        options = f"{str(measure)!r}" + ", name_by='file'" * (name_by == "file")
        raise DataError(
            f"there are {len(several)} sets of judgements ({names}{', …' * (len(several) > 3)}), "
            "and runs are scored by one. With qrels, a dict of sets by name, "
            f"pandas.concat({{name: vcomp.ir.score_runs(runs, one, {options}).to_long() for name, "
            "one in qrels.items()}, names=['assessor']).reset_index('assessor') has a column of "
            "assessors. Files of different topics are one set when they are joined to one file"
        )
    return read_judgements(several[0][1])


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
    """Convert errors of ir_measures, or of a program that it calls, to a DataError."""
    try:
        yield
    except Exception as error:
        raise DataError(f"ir_measures cannot compute {measure}: {error}") from error


_OTHER_NAMES = {
    "map": "AP",
    "ndcg": "nDCG",
    "mrr": "RR",
    "p": "P",
    "precision": "P",
    "recall": "R",
    "hit_rate": "Success",
    "r-precision": "Rprec",
    "bpref": "Bpref",
}
"""Names of ir_measures by lower-case names of ranx and common usage."""

_TREC_NAME = re.compile(r"[A-Za-z_]+?([._][\d.,]+)?")


def _parse(ir_measures: Any, measure: Any) -> Any:
    if isinstance(measure, ir_measures.Measure):
        return measure
    if not isinstance(measure, str):
        raise DataError(
            f"a measure is its name, such as 'nDCG@10', or one of ir_measures, not {measure!r}"
        )
    base, at, cutoff = measure.partition("@")
    registry = ir_measures.measures.registry
    known = _OTHER_NAMES.get(base.lower(), base)
    if known not in registry:
        known = {name.lower(): name for name in registry}.get(known.lower(), known)
    found, why = None, ""
    try:
        with warnings.catch_warnings():
            # From Python 3.12 on, names of ast that ir_measures 0.4 uses are deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            found = ir_measures.parse_measure(known + at + cutoff)
    except (NameError, ValueError) as error:
        why = str(error)
    if found is not None and not _lacks_cutoff(found):
        return found
    of_trec = _trec_measures(ir_measures, measure)
    if len(of_trec) == 1:
        return of_trec[0]
    if of_trec:
        names = ", ".join(repr(str(one)) for one in of_trec)
        raise DataError(
            f"{measure!r} are {len(of_trec)} measures of trec_eval; write measure=[{names}], or "
            "those that you need"
        )
    if found is not None:
        raise DataError(f"the measure {measure!r} needs a rank cutoff, such as '{found}@10'")
    every = sorted({one.NAME for one in registry.values() if one.NAME.isascii()}, key=str.lower)
    raise DataError(
        f"ir_measures does not know the measure {measure!r}: {why}{_nearest(measure, registry)}; "
        f"it has {', '.join(every)}"
    )


def _lacks_cutoff(measure: Any) -> bool:
    cutoff = measure.SUPPORTED_PARAMS.get("cutoff")
    return cutoff is not None and cutoff.required and "cutoff" not in measure.params


def _nearest(measure: str, registry: Mapping[str, Any]) -> str:
    """Return the known name that is closest as a question; empty if none is close."""
    numbered = re.fullmatch(r"([A-Za-z]+)[ _-]?(\d+)", measure)
    if numbered is None:
        return did_you_mean(measure.partition("@")[0], [one.NAME for one in registry.values()])
    base = _OTHER_NAMES.get(numbered[1].lower(), numbered[1])
    return f" (did you mean '{base}@{numbered[2]}'?)" if base in registry else ""


def _trec_measures(ir_measures: Any, measure: str) -> list[Any]:
    """Return the measures that trec_eval computes under a name; empty if unknown."""
    if _TREC_NAME.fullmatch(measure) is None:
        return []
    try:
        # It prints the measures of a set that it lacks.
        with redirect_stdout(io.StringIO()):
            return list(ir_measures.parse_trec_measure(measure))
    except ValueError:
        return []

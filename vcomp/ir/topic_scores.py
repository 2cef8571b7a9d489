"""Read scores of topics that other programs computed: trec_eval, ir_measures, PyTerrier, ranx."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias, overload

import numpy as np

from vcomp.exceptions import DataError, did_you_mean, guarded
from vcomp.ir.run_scores import find_measure
from vcomp.ir.runs import (
    as_number,
    check_name_by,
    each_measure,
    fields_of,
    find_files,
    is_path,
    matrix_of,
    wrong_line,
)
from vcomp.ir.scores import ScoreMatrix, check_matrix

ScoresOfTopics: TypeAlias = Any
"""Files, or scores in memory; see :func:`read_scores`."""

_SUMMARIES = ("all", "amean")
"""Topic labels of summary rows: of trec_eval and ir_measures, and of gdeval."""

_COLUMNS = {
    "system": ("name", "runid", "run", "system"),
    "topic": ("qid", "query_id", "q_id", "topic"),
    "measure": ("measure", "metric"),
    "value": ("value", "score"),
}
"""Column names of frames in PyTerrier, ir_measures, gdeval and others."""


class _Score(NamedTuple):
    """A score as a program gave it.

    Attributes
    ----------
    query_id, measure, value : as ir_measures names them
    line : number and fields of the line of a file
    """

    query_id: str
    measure: str
    value: Any
    line: tuple[int, list[str]] | None = None


_FIELDS = _Score._fields[:3]


class _System(NamedTuple):
    """The scores of a system.

    Attributes
    ----------
    name : of the system
    what : these scores in messages
    scores : topic, measure and value of each
    """

    name: str
    what: str
    scores: Iterable[_Score]


@overload
def read_scores(
    source: ScoresOfTopics,
    measure: list[str] | tuple[str, ...],
    *,
    name_by: Literal["runid", "file"] = ...,
    fill: float | None = ...,
) -> dict[str, ScoreMatrix]: ...
@overload
def read_scores(
    source: ScoresOfTopics,
    measure: str = ...,
    *,
    name_by: Literal["runid", "file"] = ...,
    fill: float | None = ...,
) -> ScoreMatrix: ...
@guarded
def read_scores(
    source: ScoresOfTopics,
    measure: str | Sequence[str] = "map",
    *,
    name_by: Literal["runid", "file"] = "runid",
    fill: float | None = None,
) -> ScoreMatrix | dict[str, ScoreMatrix]:
    r"""Return the scores of topics that another program computed.

    Summaries (topic ``all``, of gdeval ``amean``) and other measures are skipped. Missing values
    of tables are missing scores. A measure is
    found by its name in any of the programs: ``"map"`` finds ``AP``, and ``"nDCG@10"`` finds
    ``ndcg_cut_10``.

    Parameters
    ----------
    source : one of

        * output of ``trec_eval -q``, ``ir_measures -q`` (also ``-o jsonl``) or gdeval, a file for
          each run: a file, a folder, a pattern such as ``"eval/*.txt"``, several of these, or a
          dict with a file for the name of each system; also compressed (``.gz``). Those of a
          folder or pattern are read in the order of their names
        * a frame of ``pt.Experiment(…, perquery=True)`` of PyTerrier, or the file
          ``perquery.csv`` that it saves: columns ``name``, ``qid``, ``measure`` and ``value``, or
          a column for each measure
        * ``Run`` objects of ranx that ``evaluate`` has scored, in a list
        * a dict by system: the tuples of ``ir_measures.iter_calc``; a frame without a column of
          systems; dicts of scores by topic and measure (pytrec_eval, PyTerrier) or by measure and
          topic (ranx), or arrays by measure (``evaluate(…, return_mean=False)`` of ranx), whose
          topics are numbered
    measure : its name, or a list of several
    name_by : names of systems of files of single runs, if they are not in a dict: ``"runid"``,
        the runid in the file, or without one its name less the suffix; ``"file"``, the full name
        of the file, for runs that share a runid
    fill : score of a run on a topic that only other runs have; missing if None. trec_eval, unless
        called with ``-c``, omits topics for which a run retrieved nothing; TREC scores them 0

    Returns
    -------
    ScoreMatrix, or a dict of them
        Topics in order of first occurrence. Of a list of measures, a matrix by the name of each.

    Raises
    ------
    DataError
        If a file is missing, a line cannot be parsed (the message has its number), a run lacks
        `measure`, has its summary only, or has a topic twice, two runs have the same name,
        `name_by` or `fill` is not an allowed value, or there are fewer than two topics or runs.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for run, first, second in [("bm25", 0.2, 0.3), ("rm3", 0.3, 0.5)]:
    ...     lines = f"runid all {run}", f"map 401 {first}", f"map 402 {second}", "map all 0.9"
    ...     _ = (folder / f"{run}.eval").write_text("\n".join(lines))
    >>> read_scores(folder, "AP").to_frame()
    system  bm25  rm3
    topic
    401      0.2  0.3
    402      0.3  0.5
    >>> pytrec = {"bm25": {"401": {"map": 0.2}, "402": {"map": 0.3}},
    ...           "rm3": {"401": {"map": 0.3}, "402": {"map": 0.5}}}
    >>> read_scores(pytrec).scores.tolist()
    [[0.2, 0.3], [0.3, 0.5]]
    """
    check_name_by(name_by)
    names = [str(name) for name in each_measure(measure)]
    scores: dict[str, dict[str, dict[str, float]]] = {name: {} for name in names}
    seen: set[str] = set()
    for system in _systems(source, names, name_by):
        if system.name in seen:
            raise DataError(
                f"{system.what} is the second run called {system.name!r}; name systems by their "
                "files, with name_by='file', or by a dict"
            )
        seen.add(system.name)
        for one, of_topic in _by_measure(system, names).items():
            scores[one][system.name] = of_topic
    matrices = {name: check_matrix(matrix_of(scores[name], fill)) for name in names}
    return matrices if isinstance(measure, list | tuple) else matrices[names[0]]


def _systems(source: Any, names: Sequence[str], name_by: str) -> Iterator[_System]:
    """Yield the systems of a source, with their scores."""
    if isinstance(source, Mapping) and not all(map(is_path, source.values())):
        for name, scores in source.items():
            what = f"run {str(name)!r}"
            if is_path(scores):
                yield from _file_systems(_one_path(scores, what), str(name), names, name_by)
            else:
                yield _System(str(name), what, _scores_of(scores, names, what))
        return
    parts = [source] if is_path(source) or _is_single(source) else source
    if isinstance(parts, Iterable) and not isinstance(parts, Mapping):
        parts = list(parts)
        if parts and not any(map(is_path, parts)):
            for part in parts:
                yield from _named_systems(part)
            return
    for given, path in find_files(source):
        yield from _file_systems(path, given, names, name_by)


def _is_single(source: Any) -> bool:
    """Whether this is a frame, or a run of ranx."""
    return hasattr(source, "columns") or hasattr(source, "scores")


def _one_path(path: Any, what: str) -> Path:
    (_, found), *more = find_files(path)
    if more:
        raise DataError(f"{what} matches {len(more) + 1} files; give one")
    return found


def _named_systems(part: Any) -> Iterator[_System]:
    """Yield the systems of an object that names them."""
    if hasattr(part, "columns"):
        yield from _frame_systems(part, "the frame")
    elif hasattr(part, "scores") and hasattr(part, "name"):
        what = f"run {str(part.name)!r}"
        yield _System(str(part.name), what, _nested_scores(part.scores, [], what))
    else:
        raise DataError(
            "scores in memory are a frame with a column of systems, runs of ranx, or a dict with "
            f"the scores of each system, {{'bm25': scores, 'rm3': scores}}; not {part!r:.80}"
        )


def _scores_of(source: Any, names: Sequence[str], what: str) -> Iterable[_Score]:
    """Return the scores of one system."""
    if hasattr(source, "columns"):
        return _only(list(_frame_systems(source, what, name=what)), what).scores
    nested = getattr(source, "scores", source)
    if isinstance(nested, Mapping):
        return _nested_scores(nested, names, what)
    rows = list(source) if isinstance(source, Iterable) else [source]
    for row in rows:
        if not all(hasattr(row, field) for field in _FIELDS):
            raise DataError(
                f"{what} must be a file, a frame, tuples of ir_measures with the fields "
                f"{', '.join(map(repr, _FIELDS))}, or a dict of the scores by measure and "
                f"topic, such as {{'map': {{'301': 0.2}}}}; not {row!r:.80}"
            )
    return (_Score(str(row.query_id), str(row.measure), row.value) for row in rows)


def _only(systems: list[_System], what: str) -> _System:
    if len(systems) != 1:
        raise DataError(f"{what} has the scores of {len(systems)} systems; give it alone")
    return systems[0]


def _nested_scores(nested: Mapping[Any, Any], names: Sequence[str], what: str) -> Iterator[_Score]:
    """Yield the scores of a dict by measure and topic, or by topic and measure.

    Topics are outside if the measures are inside, and only there.
    """
    outer = list(map(str, nested))
    inner = next((list(map(str, of)) for of in nested.values() if isinstance(of, Mapping)), [])
    by_topic = any(find_measure(n, inner) and not find_measure(n, outer) for n in names)
    for first, values in nested.items():
        of = values
        if not isinstance(values, Mapping):
            of = dict(enumerate(np.ravel(values).tolist())) if np.ndim(values) else None
        if of is None:
            raise DataError(
                f"{what}: {str(first)!r} has the number {values!r}, not the scores of topics by "
                "a measure; a dict of the scores of each system by topic is a matrix: "
                "vcomp.ir.as_score_matrix(pandas.DataFrame(scores))"
            )
        for second, value in of.items():
            topic, measure = (first, second) if by_topic else (second, first)
            yield _Score(str(topic), str(measure), value)


def _frame_systems(frame: Any, what: str, name: str | None = None) -> Iterator[_System]:
    """Yield the systems of a frame.

    Parameters
    ----------
    frame : a row for each score, or for each topic with a column for each measure
    what : the frame, in messages
    name : of the system, if the frame has no column of systems
    """
    columns = {str(column): frame[column] for column in frame.columns}
    ours = {
        role: next((known for known in usual if known in columns), None)
        for role, usual in _COLUMNS.items()
    }
    if ours["topic"] is None:
        raise DataError(
            f"{what}: the frame has no column of topics, such as 'qid'; it has "
            f"{', '.join(map(repr, columns))}"
        )
    if ours["system"] is None and name is None:
        raise DataError(
            f"{what} has no column of systems, such as 'name'; the frame of one system is "
            "{'bm25': frame}"
        )
    lists = {column: np.asarray(values).tolist() for column, values in columns.items()}
    topics = list(map(str, lists[ours["topic"]]))
    systems = lists[ours["system"]] if ours["system"] else [name] * len(topics)
    if ours["measure"] is not None and ours["value"] is not None:
        long = [(lists[ours["measure"]], lists[ours["value"]])]
    else:
        used = (ours["topic"], ours["system"])
        long = [([c] * len(topics), lists[c]) for c in lists if c not in used]
    found: dict[str, list[_Score]] = {str(system): [] for system in systems}
    for measures, values in long:
        for system, topic, measure, value in zip(systems, topics, measures, values, strict=True):
            found[str(system)].append(_Score(topic, str(measure), value))
    for system, scores in found.items():
        yield _System(system, what, scores)


def _file_systems(
    path: Path, given: str | None, names: Sequence[str], name_by: str
) -> Iterator[_System]:
    """Yield the systems of a file: several only of a table that names them."""
    shown = repr(str(path))
    own = given or (path.name if name_by == "file" else None)
    table = _table_of(path)
    if table is None:
        runid, scores = _read_eval(path, names)
        yield _System(own or runid or _stem(path), shown, scores)
        return
    systems = list(_frame_systems(table, shown, own or _stem(path)))
    if given is not None or (own is not None and len(systems) == 1):
        systems = [_only(systems, shown)._replace(name=str(own))]
    yield from systems


def _table_of(path: Path) -> Any:
    """Return a file with a header as a frame; None for lines of three fields or objects."""
    number, first = next(fields_of(path), (0, [""]))
    header = " ".join(first).split(",")
    if len(header) < 2 or not set(_COLUMNS["topic"]) & set(header):
        return None
    import pandas as pd

    try:
        return pd.read_csv(path, dtype=str, keep_default_na=False, skiprows=number - 1)
    except ValueError as error:
        raise DataError(f"{str(path)!r} cannot be read: {error}") from None


def _read_eval(path: Path, names: Sequence[str]) -> tuple[str | None, list[_Score]]:
    """Return the runid, if there is one, and all scores."""
    lines = list(fields_of(path))
    if lines and lines[0][1][0].startswith("{"):
        return None, [_json_score(path, *line) for line in lines]
    for number, fields in lines:
        if len(fields) != 3:
            wrong_line(path, number, fields, "trec_eval -q prints a measure, a topic and a value")
    firsts, seconds = (dict.fromkeys(fields[k] for _, fields in lines) for k in (0, 1))
    first, second = (0, 1) if _has_topics_first(firsts, seconds, names) else (1, 0)
    scores = [_Score(line[1][first], line[1][second], line[1][2], line) for line in lines]
    runid = next((score.value for score in scores if score.measure == "runid"), None)
    return runid, [score for score in scores if score.measure != "runid"]


def _json_score(path: Path, number: int, fields: list[str]) -> _Score:
    """Return the score of a line that ``ir_measures -o jsonl`` printed."""
    try:
        row = json.loads(" ".join(fields))
        return _Score(str(row["query_id"]), str(row["measure"]), row["value"], (number, fields))
    except (ValueError, KeyError, TypeError):
        wanted = "ir_measures -q -o jsonl prints query_id, measure and value"
        wrong_line(path, number, fields, wanted)


def _has_topics_first(firsts: Iterable[str], seconds: Iterable[str], names: Sequence[str]) -> bool:
    """Return whether lines begin with the topic, as ir_measures prints them."""
    if _SUMMARIES[0] in firsts or _SUMMARIES[0] in seconds:
        return _SUMMARIES[0] in firsts
    if find_measure(names[0], firsts) is not None:
        return False
    # Otherwise only for the error message, which lists the measures of the file.
    return find_measure(names[0], seconds) is not None or all(f.isdigit() for f in firsts)


def _stem(path: Path) -> str:
    return (path.with_suffix("") if path.suffix == ".gz" else path).stem


def _by_measure(system: _System, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the score of each topic by each of the measures."""
    scores = list(system.scores)
    known = dict.fromkeys(score.measure for score in scores)
    found: dict[str, dict[str, float]] = {}
    for name in names:
        theirs = find_measure(name, known)
        of_topic = found[name] = {}
        for score in scores:
            if score.measure != theirs or score.query_id in _SUMMARIES:
                continue
            if score.line is None and _is_missing(score.value):
                continue
            value = as_number(score.value)
            if not math.isfinite(value):
                _refuse(system, score, f"{str(score.value)!r} is not a number")
            if score.query_id in of_topic:
                _refuse(system, score, f"topic {score.query_id!r} has a {theirs} already")
            of_topic[score.query_id] = value
        if not of_topic:
            raise _without_scores(system.what, name, theirs, [*known])
    return found


def _is_missing(value: Any) -> bool:
    """Return whether a table has no score, as PyTerrier for topics that were not judged."""
    return value is None or value == "" or value != value


def _refuse(system: _System, score: _Score, problem: str) -> NoReturn:
    """Refuse a score, with its line or topic."""
    where = f", topic {score.query_id!r}: "
    if score.line is not None:
        where = f", line {score.line[0]}: {' '.join(score.line[1])!r}; "
    raise DataError(system.what + where + problem)


def _without_scores(what: str, name: str, theirs: str | None, known: list[str]) -> DataError:
    if theirs is not None:
        return DataError(
            f"{what} has no scores of topics by {theirs}; trec_eval -q and ir_measures -q print "
            "them, too"
        )
    shown = ", ".join(known[:12]) + (" …" if len(known) > 12 else "")
    has = f"it has {shown}" if known else "it is empty"
    return DataError(f"{what} has no measure {name!r}{did_you_mean(name, known)}; {has}")

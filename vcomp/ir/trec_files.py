"""Read TREC files, and the output of trec_eval and ir_measures as score matrices."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias, overload

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, did_you_mean, guarded, is_real
from vcomp.ir.scores import ScoreMatrix, check_matrix

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
        raise DataError(f"measure {twice[0]!r} is given twice")
    return names


_SUMMARY = "all"
"""Topic label of summary lines."""


@overload
def read_trec_eval(
    paths: PathsLike,
    measure: list[str] | tuple[str, ...],
    *,
    name_by: Literal["runid", "file"] = ...,
    fill: float | None = ...,
) -> dict[str, ScoreMatrix]: ...
@overload
def read_trec_eval(
    paths: PathsLike,
    measure: str = ...,
    *,
    name_by: Literal["runid", "file"] = ...,
    fill: float | None = ...,
) -> ScoreMatrix: ...
@guarded
def read_trec_eval(
    paths: PathsLike,
    measure: str | Sequence[str] = "map",
    *,
    name_by: Literal["runid", "file"] = "runid",
    fill: float | None = None,
) -> ScoreMatrix | dict[str, ScoreMatrix]:
    r"""Return the scores by topic that ``trec_eval -q`` printed, a file for each run.

    Each line has a measure, a topic and a value; in the output of ``ir_measures -q``, which is
    read too, a topic, a measure and a value. Summary lines (topic ``all``) and other measures are
    skipped.

    Parameters
    ----------
    paths : a file, a folder, a pattern such as ``"eval/*.txt"``, several of these, or a dict with
        a file for the name of each system; also compressed (``.gz``). Those of a folder or pattern
        are read in the order of their names
    measure : as trec_eval or ir_measures prints it (``"map"``, ``"AP"``); or a list of several
    name_by : names of systems, if `paths` is not a dict: ``"runid"``, the ``runid`` line of the
        file, or without one its name less the suffix; ``"file"``, the full name of the file, for
        runs that share a runid
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
    check_name_by(name_by)
    names = each_measure(measure)
    scores: dict[str, dict[str, dict[str, float]]] = {name: {} for name in names}
    seen: set[str] = set()
    for given, path in find_files(paths):
        runid, found = _read_eval(path, names)
        name = given or (path.name if name_by == "file" else runid or _stem(path))
        if name in seen:
            raise DataError(
                f"{str(path)!r} is the second run called {name!r}; name systems by their files, "
                "with name_by='file', or by a dict"
            )
        seen.add(name)
        for one, of_topic in found.items():
            scores[one][name] = of_topic
    matrices = {name: matrix_of(scores[name], fill) for name in names}
    return matrices[measure] if isinstance(measure, str) else matrices


def _read_eval(
    path: Path, measures: Sequence[str]
) -> tuple[str | None, dict[str, dict[str, float]]]:
    """Return the runid, if there is one, and the score of each topic by each measure."""
    lines = list(fields_of(path))
    for number, fields in lines:
        if len(fields) != 3:
            wrong_line(path, number, fields, "trec_eval -q prints a measure, a topic and a value")
    firsts, seconds = (dict.fromkeys(fields[k] for _, fields in lines) for k in (0, 1))
    topic_first = _has_topics_first(firsts, seconds, measures)
    known = seconds if topic_first else firsts
    runid, scores = None, {name: dict[str, float]() for name in measures}
    for number, fields in lines:
        topic, name = fields[:2] if topic_first else fields[1::-1]
        if name == "runid":
            runid = fields[2]
        if name not in scores or topic == _SUMMARY:
            continue
        if topic in scores[name]:
            wrong_line(path, number, fields, f"topic {topic!r} has a {name} already")
        scores[name][topic] = _number(path, number, fields)
    for name, of_topic in scores.items():
        if not of_topic:
            raise _without_scores(path, name, [m for m in known if m != "runid"], topic_first)
    return runid, scores


def _has_topics_first(
    firsts: Iterable[str], seconds: Iterable[str], measures: Sequence[str]
) -> bool:
    """Return whether lines begin with the topic, as ir_measures prints them."""
    if _SUMMARY in firsts or _SUMMARY in seconds:
        return _SUMMARY in firsts
    if measures[0] in firsts:
        return False
    # Otherwise only for the error message, which lists the measures of the file.
    return measures[0] in seconds or all(label.isdigit() for label in firsts)


def _without_scores(path: Path, measure: str, known: list[str], topic_first: bool) -> DataError:
    if measure in known:
        program = "ir_measures" if topic_first else "trec_eval"
        return DataError(f"{str(path)!r} has only the summary of {measure}; use {program} -q")
    shown = ", ".join(known[:12]) + (" …" if len(known) > 12 else "")
    has = f"it has {shown}" if known else "it is empty"
    return DataError(
        f"{str(path)!r} has no measure {measure!r}{did_you_mean(measure, known)}; {has}"
    )


def _number(path: Path, number: int, fields: list[str]) -> float:
    value = as_number(fields[-1])
    if not math.isfinite(value):
        wrong_line(path, number, fields, f"{fields[-1]!r} is not a number")
    return value


def _stem(path: Path) -> str:
    return (path.with_suffix("") if path.suffix == ".gz" else path).stem


def matrix_of(scores: Mapping[str, Mapping[str, float]], fill: float | None) -> ScoreMatrix:
    """Return a matrix of scores by system and topic.

    Parameters
    ----------
    scores : of each system by topic
    fill : score of a system on a topic that only others have; missing if None

    Raises
    ------
    DataError
        If `fill` is not a score, or there are fewer than two topics or systems.
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
    return check_matrix(ScoreMatrix(values, tuple(topics), tuple(scores)))

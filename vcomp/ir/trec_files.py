"""Find and read files of test collections."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, is_real
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
        raise DataError(f"measure {twice[0]!r} is given twice")
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

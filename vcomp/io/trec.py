"""Files as TREC has them: one a run, with fields between blanks, a line at a time."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import NoReturn, TypeAlias

from vcomp.exceptions import DataError

__all__ = ["Files", "PathsLike", "fields_of", "find_files", "wrong_line"]

PathsLike: TypeAlias = (
    "str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Mapping[str, str]"
)
"""A file, a folder, a pattern such as ``runs/*.eval``, several of these, or files by name."""

Files: TypeAlias = "list[tuple[str | None, Path]]"
"""Files, each with its name if it was given one."""


def find_files(paths: PathsLike) -> Files:
    """Find the files meant, those of a folder or pattern in the order of their names.

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
        If the file cannot be read, or is no text.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        # -sig: the mark that some editors put first must not become part of the first field.
        with opened(path, "rt", encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                fields = line.split()
                if fields:
                    yield number, fields
    except UnicodeDecodeError as error:
        raise DataError(f"{str(path)!r} is not a text file in UTF-8") from error
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{str(path)!r} cannot be read: {reason}") from error


def wrong_line(path: Path, number: int, fields: list[str], wanted: str) -> NoReturn:
    """Refuse a line, which the message quotes.

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

"""Data files of paths, patterns and folders; levels that look alike."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from glob import glob, has_magic
from pathlib import Path
from typing import Any, Literal, NoReturn
from unicodedata import normalize
from urllib.parse import unquote

import numpy as np

from vcomp.exceptions import DataError

_PARQUET = (".parquet", ".pq")
_TABLES = (".csv", ".tsv", ".tab", ".txt")
_COMPRESSED = (".gz", ".bz2", ".zst")
_ENDINGS = "files end in .csv, .tsv (also .gz) or .parquet"
_READERS = {
    **dict.fromkeys((".xlsx", ".xls", ".xlsm", ".ods"), "pandas.read_excel(path)"),
    ".sav": "pandas.read_spss(path)",
    **dict.fromkeys((".sas7bdat", ".xpt"), "pandas.read_sas(path)"),
    ".dta": "pandas.read_stata(path)",
    ".json": "pandas.read_json(path, lines=True) if a line is an object, else "
    "pandas.read_json(path)",
    **dict.fromkeys((".jsonl", ".ndjson"), "pandas.read_json(path, lines=True)"),
    **dict.fromkeys((".feather", ".arrow"), "pandas.read_feather(path)"),
    ".orc": "pandas.read_orc(path)",
    **dict.fromkeys((".rds", ".rda", ".rdata"), "the package pyreadr"),
    **dict.fromkeys((".pkl", ".pickle"), "pandas.read_pickle(path), if you trust its source"),
}
"""Readers for files of other programs."""

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of rows.

    Attributes
    ----------
    path : where it is
    name : used in messages
    kind : its format, by the ending of its name
    folders : columns in the names of its folders (``day=3``), with their values
    """

    path: Path
    name: str
    kind: Literal["parquet", "csv"]
    folders: Mapping[str, int | str | None] = field(default_factory=dict)


def data_files(paths: Iterable[object]) -> list[DataFile]:
    """Return the files of paths; those of a folder or pattern are sorted by name.

    Raises
    ------
    DataError
        If a file does not exist or is given twice, a folder or pattern has none, there are both
        CSV and Parquet files, or the ending of a name is not known.
    """
    files = [file for path in paths for file in _expand(path)]
    for file in files:
        if os.path.exists(file.path) and not os.path.isfile(file.path):
            raise DataError(
                f"{str(file.path)!r} is a pipe or a device, and data are read more than once; "
                "write the rows to a file first"
            )
    seen: set[str] = set()
    for file in files:
        real = os.path.realpath(file.path)
        if real in seen:
            raise DataError(f"{str(file.path)!r} is given twice")
        seen.add(real)
    if len({file.name for file in files}) < len(files):
        files = [replace(file, name=str(file.path)) for file in files]
    if len({file.kind for file in files}) > 1:
        csv, parquet = (next(f for f in files if f.kind == kind) for kind in ("csv", "parquet"))
        raise DataError(
            f"{csv.name!r} is a CSV and {parquet.name!r} a Parquet file; give those of one kind, "
            "by a pattern such as 'folder/*.parquet'"
        )
    return files


def _expand(given: object) -> list[DataFile]:
    if not isinstance(given, str | bytes | os.PathLike):
        raise DataError(f"a path is text, not {given!r}")
    text = os.fsdecode(given)
    if not text:
        raise DataError("the path of the data is empty")
    if "://" in text:
        raise DataError(f"{text!r} is an address; download the file first")
    path = Path(text).expanduser()
    shown = str(path) if len(str(path)) <= 200 else f"{str(path)[:200]} …"
    if os.path.isdir(path):
        inside = _inside(path)
        if not inside:
            raise DataError(
                f"there are no CSV or Parquet files in the folder {shown!r}; {_ENDINGS}"
            )
        return _with_folders(path, inside)
    if os.path.exists(path):
        return [DataFile(path, path.name, _kind(path))]
    if not has_magic(str(path)):
        raise DataError(f"there is no file {shown!r}")
    return _matching(path, shown)


def _matching(pattern: Path, shown: str) -> list[DataFile]:
    """Return the files that a pattern matches, with the columns in names of folders."""
    root = Path(*pattern.parts[: next(i for i, p in enumerate(pattern.parts) if has_magic(p))])
    hidden_too = pattern.name.startswith((".", "_"))
    files: list[Path] = []
    for match in sorted(map(Path, glob(str(pattern), recursive=True))):
        below = match.relative_to(root).parts
        if any(map(_is_hidden, below[:-1])) or (_is_hidden(match.name) and not hidden_too):
            continue
        files += _inside(match) if match.is_dir() else [match]
    if not files:
        raise DataError(f"no file matches the pattern {shown!r}")
    return _with_folders(root, list(dict.fromkeys(files)))


def _inside(folder: Path) -> list[Path]:
    """Return CSV and Parquet files at any depth, without those whose name starts with . or _.

    Spark and others start the names of markers and unfinished files with an underscore.
    """

    def refuse(error: OSError) -> NoReturn:
        raise DataError(
            f"the folder {error.filename!r} cannot be read: {error.strerror}"
        ) from None

    files: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        inside = [Path(parent, name) for name in names if not _is_hidden(name)]
        files += [path for path in inside if _kind_or_none(path) and _suffix(path) != ".txt"]
    return sorted(files)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _with_folders(root: Path, files: list[Path]) -> list[DataFile]:
    below = [path.relative_to(root) for path in files]
    values = _typed([_folder_values(path) for path in below])
    return [
        DataFile(path, relative.as_posix(), _kind(path), columns)
        for path, relative, columns in zip(files, below, values, strict=True)
    ]


def _folder_values(path: Path) -> dict[str, str | None]:
    """Return ``{"day": "3"}`` of ``day=3/a.parquet``, as Hive and Spark name folders."""
    pairs = [part.partition("=") for part in path.parts[:-1] if "=" in part]
    return {
        unquote(name): None if value == _NO_VALUE else unquote(value) for name, _, value in pairs
    }


def _typed(files: list[dict[str, str | None]]) -> list[dict[str, int | str | None]]:
    """Return the values of a column as integers if all of them are written as integers."""
    texts: dict[str, set[str]] = {}
    for file in files:
        for name, value in file.items():
            texts.setdefault(name, set()).update([] if value is None else [value])
    whole = {
        name
        for name, values in texts.items()
        if all(re.fullmatch(r"0|-?[1-9]\d{0,17}", text) for text in values)
    }
    return [
        {
            name: int(value) if name in whole and value is not None else value
            for name, value in file.items()
        }
        for file in files
    ]


def _kind(path: Path) -> Literal["parquet", "csv"]:
    kind = _kind_or_none(path)
    if kind is None:
        reader = _READERS.get(_suffix(path))
        advice = f"; read it with {reader}, and give the frame" if reader else ""
        raise DataError(f"the format of {path.name!r} is not known{advice}; {_ENDINGS}")
    return kind


def _kind_or_none(path: Path) -> Literal["parquet", "csv"] | None:
    suffix = _suffix(path)
    return "parquet" if suffix in _PARQUET else "csv" if suffix in _TABLES else None


def _suffix(path: Path) -> str:
    """Return the ending that shows the format, without that of the compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return next((s for s in reversed(suffixes) if s not in _COMPRESSED), "")


def alike_levels(values: Iterable[Any]) -> tuple[tuple[Any, ...], ...]:
    """Return distinct levels that differ only in case, in blanks around them, or in type.

    They remain different levels, but may be misspelled, as where ``"BM25"`` became ``"bm25"``. Two
    encodings of the same accented letter count as alike.

    Parameters
    ----------
    values : levels, such as the categories of a column; missing values are ignored

    Returns
    -------
    tuple of tuples: each the values that look alike, in the order in which they come; empty if
    there are none

    Examples
    --------
    >>> alike_levels(["BM25", "lm", "bm25 ", "LM-dir"])
    (('BM25', 'bm25 '),)
    >>> alike_levels([1, "1", 2.0, "2", "2.0"])
    ((1, '1'), (2.0, '2'))
    """
    import pandas as pd

    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "iufbmM":
        return ()  # of one type, and without case or blanks
    values = list(values.to_numpy(object) if isinstance(values, pd.Index) else values)
    if _are_plain_text(values) and len({v.strip().casefold() for v in values}) == len(values):
        return ()  # the usual case, in a fraction of the time
    groups: dict[Hashable, dict[Any, None]] = {}
    for value in values:
        if not isinstance(value, str) and pd.isna(value):
            continue
        groups.setdefault(_plain(value), {})[value] = None
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _are_plain_text(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values) and "".join(values).isascii()


def _plain(value: Any) -> Hashable:
    """Return a level as text, without case and surrounding blanks."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="replace")
    if isinstance(value, str):
        return (value if value.isascii() else normalize("NFC", value)).strip().casefold()
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).casefold()

"""Files of logs: where they are, and their content as lines or objects.

:class:`Damage` names what cannot be read with its place, and refuses or collects it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from glob import glob, has_magic
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from vcomp.evals.json_records import (
    LONG_ARRAYS,
    UNREADABLE,
    UnreadableError,
    attempted,
    document_or_none,
    first_value,
    in_parts,
    parsed,
    place_in_json,
    records,
)
from vcomp.exceptions import DataError, VcompError, did_you_mean
from vcomp.numerics import ahead

LARGEST = 1 << 30
"""Bytes of the longest line, and of the largest member of an archive once it is decompressed."""


@dataclass(frozen=True, slots=True)
class Damage:
    """UnreadableError samples of a file.

    Attributes
    ----------
    file : its name
    skip : whether they are collected; else the first one is an error
    named : where and why, sentences without a full stop
    """

    file: str
    skip: bool
    named: list[str] = field(default_factory=list)

    def add(self, place: str, why: str) -> None:
        """Add one, or refuse it.

        Raises
        ------
        DataError
            Naming the file and the place.
        """
        if not self.skip:
            raise DataError(
                f"{self.file!r}, {place}: {why}; repair the log, or read the rest "
                "with unreadable='skip' (of vcomp.evals.read), which counts and names such samples"
            )
        self.named.append(f"{place}: {why}")

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Add what cannot be read in the block."""
        try:
            yield
        except VcompError:
            raise
        except UNREADABLE as error:
            self.add(place, why_unreadable(error))


def why_unreadable(error: BaseException) -> str:
    """Return the reason of such an error, a clause."""
    if isinstance(error, UnreadableError):
        return str(error)
    if isinstance(error, OSError | RecursionError):
        return f"it cannot be read ({error})"
    if isinstance(error, KeyError):
        return f"there is no {error.args[0]}"
    return f"it has a value that the format does not have there ({error})"


_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
"""Compression of text by its first bytes."""

_JSON = re.compile(rb"\{|\[\s*(?:$|[\[{\"\]]|(?:-?[\d.]+|true|false|null|NaN)\s*,)")
"""Beginning of an object or a list; a column of a CSV file may be named ``[provider] prompt``."""

_LONG_LINE = 1 << 24
"""Bytes of a line that is parsed to find out whether it is an object."""

_BUFFER = 1 << 18
"""Bytes that are read at a time."""

_PIECE, _TOGETHER = 1 << 20, 1 << 22
"""Bytes that are read at a time, and bytes of lines that are parsed at once."""

_FIRST_LINES = 10
"""Lines in which an object is looked for that shows the format of a file of lines."""


Together: TypeAlias = "Callable[[bytes], Callable[[], int] | None]"


@dataclass(frozen=True)
class LogFile:
    """A file that may be a log.

    Attributes
    ----------
    path : where it is
    name : in messages and in the report
    is_given : whether the user named it, and not a folder or pattern
    """

    path: Path
    name: str
    is_given: bool = True

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Open the file, decompressed if it is packed text."""
        import pyarrow as pa

        try:
            if self.packed is None:
                with self.path.open("rb", _BUFFER) as plain:
                    yield plain
            else:
                with pa.input_stream(str(self.path), compression=self.packed) as stream:
                    yield _Buffered(stream)
        except pa.ArrowException as error:
            raise OSError(str(error)) from None

    def _texts(self) -> Iterator[bytes]:
        """Yield lines together, whole ones; those before damage come before its error."""
        parts: list[bytes] = []
        size = 0
        try:
            with self.opened() as stream:
                while piece := stream.read(_PIECE):
                    parts.append(piece)
                    size += len(piece)
                    if size >= _TOGETHER and (end := piece.rfind(b"\n") + 1):
                        parts[-1] = piece[:end]
                        yield b"".join(parts)
                        parts, size = [piece[end:]], len(piece) - end
                    elif size > LARGEST:
                        raise OSError(f"a line is longer than {LARGEST >> 30} GiB")
        except (OSError, EOFError):
            whole = b"".join(parts)
            yield whole[: whole.rfind(b"\n") + 1]
            raise
        yield b"".join(parts)

    def lines(self, damage: Damage) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank, each with its number from 1."""
        number = 0
        try:
            for text in self._texts():
                for line in BytesIO(text):
                    number += 1
                    if not line.isspace():
                        yield number, line
        except (OSError, EOFError) as error:
            damage.add(f"after line {number}", f"the file cannot be read ({error})")

    def objects(
        self,
        damage: Damage,
        read: Callable[[dict[str, Any]], None],
        together: Together | None = None,
    ) -> None:
        """Read each line as an object by a function; lines that it cannot read are damage.

        Parameters
        ----------
        damage : of the file
        read : reads an object
        together : parses many lines, in a thread; returns what adds them and counts them, or
            None if one may need `read`
        """

        def parts(text: bytes) -> list[Any]:
            if together is None:
                return [[*BytesIO(text)]]
            add = attempted(together, text)
            if add is not None:
                return [add]
            return [*in_parts([*BytesIO(text)], lambda some: together(b"".join(some)))]

        number = 0
        try:
            for part in chain.from_iterable(ahead(map(parts, self._texts()))):
                if callable(part):
                    number += part()
                    continue
                for line in part:
                    number += 1
                    if not line.isspace():
                        with damage.at(f"line {number}"):
                            read(parsed(line))
        except (OSError, EOFError) as error:
            damage.add(f"after line {number}", f"the file cannot be read ({error})")

    @cached_property
    def head(self) -> bytes:
        """The first bytes, as they are stored."""
        try:
            with self.path.open("rb") as file:
                return file.read(64)
        except OSError as error:
            raise DataError(f"{self.name!r} cannot be read: {error.strerror}") from None

    @property
    def packed(self) -> str | None:
        """How text is compressed; None if it is not."""
        return next((how for mark, how in _PACKED.items() if self.head.startswith(mark)), None)

    @property
    def is_zip(self) -> bool:
        """Whether it is an archive."""
        return self.head.startswith((b"PK\x03\x04", b"PK\x05\x06"))

    @property
    def is_parquet(self) -> bool:
        """Whether it is a Parquet file."""
        return self.head.startswith(b"PAR1")

    @cached_property
    def _start(self) -> bytes:
        """The beginning of text; empty of archives and Parquet files."""
        if self.is_zip or self.is_parquet:
            return b""
        with self.opened() as stream:
            return bytes(stream.read(256)).removeprefix(b"\xef\xbb\xbf").lstrip()

    @property
    def is_json(self) -> bool:
        """Whether its text begins as an object or a list."""
        return _JSON.match(self._start) is not None

    def records(self) -> Generator[Any, None, Any]:
        """Yield the elements of the long array of a document, and return the rest."""
        with self.opened() as stream:
            return (yield from records(_pieces(stream), LONG_ARRAYS))

    @cached_property
    def first_record(self) -> dict[str, Any]:
        """The first element of a document that is an array of objects; else empty."""
        if self._start.startswith(b"["):
            with suppress(UnreadableError, ValueError), closing(self.records()) as found:
                value = next(found, None)
                return value if isinstance(value, dict) else {}
        return {}

    @cached_property
    def first(self) -> dict[str, Any]:
        """The first object of a file of lines, or the document without its records; else empty."""
        if not self.is_json:
            return {}
        if self._start.startswith(b"{"):
            with self.opened() as stream:
                value = first_value(_pieces(stream), LONG_ARRAYS)
            if isinstance(value, dict):
                return value
        with self.opened() as stream:
            lines = iter(lambda: stream.readline(_LONG_LINE), b"")
            some = islice((line for line in lines if not line.isspace()), _FIRST_LINES)
            values = map(document_or_none, some)
            return next((value for value in values if isinstance(value, dict)), {})

    @property
    def described(self) -> dict[str, Any]:
        """The object of a file that describes another; empty without such a file."""
        return self.first if self.path.is_file() else {}

    @property
    def columns(self) -> list[str]:
        """The columns of a Parquet file; none of another file."""
        return [] if self._metadata is None else self._metadata.schema.to_arrow_schema().names

    @property
    def n_rows(self) -> int:
        """The number of rows of a Parquet file; 0 of another file."""
        return 0 if self._metadata is None else self._metadata.num_rows

    @cached_property
    def _metadata(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.read_metadata(self.path) if self.is_parquet else None
        except (pa.ArrowException, OSError):
            return None

    def damage(self) -> str | None:
        """Return where and why the file is not JSON, a clause; None if it is."""
        with self.opened() as stream:
            return place_in_json(stream.read())

    def forget(self) -> None:
        """Free the parsed content."""
        for name in ("first", "first_record"):
            self.__dict__.pop(name, None)


def _pieces(stream: Any) -> Iterator[bytes]:
    return iter(lambda: stream.read(_BUFFER), b"")


class _Buffered:
    """Lines of a stream of pyarrow, which has no reader of lines of its own."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._rest = stream, b""

    def read(self, size: int = -1) -> bytes:
        """Read some bytes, or all."""
        pieces = [self._rest]
        while size < 0 or sum(map(len, pieces)) < size:
            piece = self._stream.read(1 << 20)
            if not piece:
                break
            pieces.append(piece)
        whole = b"".join(pieces)
        size = len(whole) if size < 0 else size
        found, self._rest = whole[:size], whole[size:]
        return found

    def readline(self, limit: int) -> bytes:
        """Read a line of up to so many bytes."""
        found = self.read(limit)
        end = found.find(b"\n") + 1 or len(found)
        self._rest = found[end:] + self._rest
        return found[:end]

    def __iter__(self) -> Iterator[bytes]:
        parts: list[bytes] = []
        while piece := self.read(1 << 20):
            first, *lines = piece.split(b"\n")
            parts.append(first)
            for line in lines:
                yield b"".join(parts) + b"\n"
                parts = [line]
            if sum(map(len, parts)) > LARGEST:
                raise OSError(f"a line is longer than {LARGEST >> 30} GiB")
        if last := b"".join(parts):
            yield last


# Where they are --------------------------------------------------------------------------------


@contextmanager
def found_logs(paths: Any) -> Iterator[list[LogFile]]:
    """Yield the files of paths: files, folders at any depth, patterns; ``"-"`` is standard input.

    Standard input is stored in a temporary file, as files are read more than once.

    Raises
    ------
    DataError
        If there is no such file, or a folder or pattern has none.
    """
    given = [paths] if isinstance(paths, str | bytes | os.PathLike) else _listed(paths)
    with tempfile.TemporaryDirectory(prefix="vcomp-") as folder:
        files: list[LogFile] = []
        for path in given:
            if path == "-":
                target = Path(folder, "input")
                with target.open("wb") as sink:
                    shutil.copyfileobj(sys.stdin.buffer, sink)
                files.append(LogFile(target, "standard input"))
            else:
                files += _below(path)
        seen = {os.path.realpath(file.path): file for file in files}
        yield list(seen.values())


def _listed(paths: Any) -> list[Any]:
    if not isinstance(paths, Iterable) or hasattr(paths, "columns"):
        raise DataError(
            "logs are paths of files or folders; a frame needs no reader: give it to vcomp.fit"
        )
    given = list(paths)
    if not given:
        raise DataError("there are no paths of logs; give at least one file or folder")
    return given


def _below(given: Any) -> list[LogFile]:
    if not isinstance(given, str | bytes | os.PathLike):
        raise DataError(f"a path of a log is text, not {given!r}")
    text = os.fsdecode(given)
    if not text.strip() or "\0" in text:
        raise DataError(f"{text!r} is not the path of a log")
    if "://" in text:
        raise DataError(f"{text!r} is an address; download the logs first")
    path = Path(text).expanduser()
    if path.is_dir():
        inside = _inside(path)
        if not inside:
            raise DataError(f"there are no files in the folder {text!r}")
        return [LogFile(file, str(file), is_given=False) for file in inside]
    if path.exists():
        return [LogFile(path, str(path))]
    if has_magic(text):
        matches = [Path(match) for match in sorted(glob(str(path), recursive=True))]
        found = [file for m in matches for file in (_inside(m) if m.is_dir() else [m])]
        if found:
            return [LogFile(file, str(file), is_given=False) for file in found]
        raise DataError(f"no file matches the pattern {text!r}")
    if path.is_symlink():
        raise DataError(f"{text!r} is a link to a file or folder that does not exist")
    beside = [str(Path(text).with_name(p.name)) for p in path.parent.glob("*") if path.name]
    raise DataError(f"there is no file or folder {text!r}{did_you_mean(text, beside)}")


def _inside(folder: Path) -> list[Path]:
    """Return the files of a folder at any depth, without hidden ones; links to folders end."""

    def refuse(error: OSError) -> NoReturn:
        raise DataError(
            f"the folder {error.filename!r} cannot be read: {error.strerror}"
        ) from None

    files: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(parent, name) for name in names if not name.startswith(".")]
    return sorted(file for file in files if file.is_file())

"""Files of logs: where they are, and their content as lines, objects or members of an archive.

:class:`Damage` names what cannot be read with its place, and refuses or collects it. Members of
archives are read one after the other, in memory and of bounded size: nothing is written to disk,
and names of members are no paths. Python's zipfile reads members that are packed by zstd (method
93) from 3.14 on only; here pyarrow unpacks them, also several frames.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from glob import glob, has_magic
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from vcomp.exceptions import DataError, VcompError, did_you_mean

_STORED, _DEFLATED, _ZSTD = 0, 8, 93

_LOCAL = struct.Struct("<4s5H3L2H")
"""Header before the bytes of a member."""


def archive_members(path: Path) -> list[zipfile.ZipInfo]:
    """Return all members; of several with a name the last one counts.

    Raises
    ------
    UnreadableError
        If there is no directory of members: the archive is cut short or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.infolist()
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError) as error:
        raise UnreadableError(
            f"its directory of members cannot be read ({error}): the log is half-written or cut "
            "short"
        ) from None


def members_before_damage(path: Path) -> list[zipfile.ZipInfo]:
    """Return the members of an archive without a directory, up to the first that is not whole.

    They are found by their own headers, one after the other.
    """
    found: list[zipfile.ZipInfo] = []
    size = path.stat().st_size
    with path.open("rb") as file:
        while len(header := file.read(_LOCAL.size)) == _LOCAL.size:
            mark, _, flags, method, *_, crc, packed, whole, n_name, n_extra = _LOCAL.unpack(header)
            start = file.tell() - _LOCAL.size
            name = file.read(n_name).decode("utf-8", "replace")
            end = file.tell() + n_extra + packed
            # Sizes may follow the bytes (flag 8) or be in the extra field (2³² − 1): no way on.
            if mark != b"PK\x03\x04" or flags & 8 or packed == 0xFFFFFFFF or end > size:
                break
            info = zipfile.ZipInfo(name)
            info.flag_bits, info.compress_type, info.header_offset = flags, method, start
            info.CRC, info.compress_size, info.file_size = crc, packed, whole
            found.append(info)
            file.seek(end)
    return found


def member_content(file: BinaryIO, info: zipfile.ZipInfo) -> bytes:
    """Return the bytes of a member.

    Raises
    ------
    UnreadableError
        If it is damaged, encrypted, packed by another method, or too large.
    """
    if info.flag_bits & 1:
        raise UnreadableError("it is encrypted")
    if info.file_size > LARGEST:
        raise UnreadableError(f"it is larger than {LARGEST >> 30} GiB")
    file.seek(info.header_offset)
    header = file.read(_LOCAL.size)
    if len(header) < _LOCAL.size or header[:4] != b"PK\x03\x04":
        raise UnreadableError("it is not where the directory of the archive has it")
    *_, n_name, n_extra = _LOCAL.unpack(header)
    file.seek(n_name + n_extra, 1)
    packed = file.read(info.compress_size)
    found = _unpacked(packed, info.compress_type, info.file_size)
    if len(found) != info.file_size or zlib.crc32(found) != info.CRC:
        raise UnreadableError("its bytes are not those that were written")
    return found


def _unpacked(packed: bytes, method: int, size: int) -> bytes:
    """Return unpacked bytes, at most one more than there should be."""
    if method == _STORED:
        return packed
    if method == _DEFLATED:
        try:
            return zlib.decompressobj(-15).decompress(packed, size + 1)
        except zlib.error as error:
            raise UnreadableError(f"it cannot be unpacked ({error})") from None
    if method == _ZSTD:
        import pyarrow as pa

        try:
            with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
                return bytes(stream.read(size + 1))
        except (pa.ArrowException, OSError) as error:
            raise UnreadableError(f"it cannot be unpacked ({error})") from None
    raise UnreadableError(f"it is packed by method {method}, which is not known")


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


class UnreadableError(Exception):
    """A line, member or sample that is not as its format has it; the message says why."""


UNREADABLE = (
    UnreadableError,
    OSError,
    RecursionError,
    AttributeError,
    KeyError,
    OverflowError,
    TypeError,
    ValueError,
)
"""Errors of readers at values that their format does not have at this place."""


def why_unreadable(error: BaseException) -> str:
    """Return the reason of such an error, a clause."""
    if isinstance(error, UnreadableError):
        return str(error)
    if isinstance(error, OSError | RecursionError):
        return f"it cannot be read ({error})"
    if isinstance(error, KeyError):
        return f"there is no {error.args[0]}"
    return f"it has a value that the format does not have there ({error})"


def parsed(text: bytes | str, *, is_object: bool = True) -> Any:
    """Return JSON, also with NaN and Infinity as some frameworks write them.

    Raises
    ------
    UnreadableError
        If it is not JSON, or not an object.
    """
    try:
        value = json.loads(text if isinstance(text, str) else str(text, "utf-8"))
    except json.JSONDecodeError as error:
        is_end = error.pos >= len(error.doc.rstrip()) or "Unterminated" in error.msg
        raise UnreadableError(
            "it ends within an object: the log is half-written or cut short"
            if is_end
            else f"it is not JSON ({error.msg}, character {error.pos + 1})"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"it is not JSON ({error})") from None
    if is_object and not isinstance(value, dict):
        raise UnreadableError(f"it is not an object but {_shown(value)}")
    return value


_NOT_READ = {
    frozenset({"id", "epoch", "scores", "messages"}): ("messages", "events", "attachments"),
    frozenset({"promptIdx", "testIdx", "provider"}): ("response", "testCase"),
}
"""Keys of a sample of Inspect and of a row of promptfoo → keys that are never read."""


def _shortened(value: dict[str, Any]) -> dict[str, Any]:
    """Return an object of a document without keys that are never read, most of its text."""
    for keys, names in _NOT_READ.items():
        if keys <= value.keys():
            return {name: one for name, one in value.items() if name not in names}
    return value


def _document(text: bytes) -> Any:
    """Return JSON of any length without keys that are never read; None if it is not JSON."""
    try:
        return json.loads(text, object_hook=_shortened)
    except (ValueError, RecursionError):
        return None


def place_in_json(text: bytes) -> str:
    """Return where a text stops being JSON, a clause."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f"it is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    return "it is JSON of no known format"


def mapping(value: Any, what: str) -> dict[str, Any]:
    """Return an object of a log.

    Raises
    ------
    UnreadableError
        If it is something else.
    """
    if not isinstance(value, dict):
        raise UnreadableError(f"{what} is not an object but {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
"""Compression of text by its first bytes."""

_JSON = re.compile(rb"\{|\[\s*(?:$|[\[{\"\]]|(?:-?[\d.]+|true|false|null|NaN)\s*,)")
"""Beginning of an object or a list; a column of a CSV file may be named ``[provider] prompt``."""

_FIRST_LINES = 10
"""Lines in which an object is looked for that shows the format of a file of lines."""


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
                with self.path.open("rb") as plain:
                    yield plain
            else:
                with pa.input_stream(str(self.path), compression=self.packed) as stream:
                    yield _Buffered(stream)
        except pa.ArrowException as error:
            raise OSError(str(error)) from None

    def lines(self, damage: Damage) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank, each with its number from 1."""
        number = 0
        try:
            with self.opened() as stream:
                for number, line in enumerate(stream, 1):
                    if not line.isspace():
                        yield number, line
        except (OSError, EOFError) as error:
            damage.add(f"after line {number}", f"the file cannot be read ({error})")

    def objects(self, damage: Damage, read: Callable[[dict[str, Any]], None]) -> None:
        """Read each line as an object by a function; lines that it cannot read are damage."""
        decode = json.JSONDecoder().raw_decode
        for number, line in self.lines(damage):
            try:
                try:
                    text = str(line, "utf-8")
                    value, end = decode(text)
                except (ValueError, RecursionError):
                    value, end = None, 0
                whole = type(value) is dict and (text[end:] in ("\n", "\r\n", ""))
                read(value if whole else parsed(line))
            except UNREADABLE as error:
                damage.add(f"line {number}", why_unreadable(error))

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
    def is_json(self) -> bool:
        """Whether its text begins as an object or a list."""
        if self.is_zip or self.is_parquet:
            return False
        with self.opened() as stream:
            start = stream.read(256).removeprefix(b"\xef\xbb\xbf").lstrip()
        return _JSON.match(start) is not None

    @cached_property
    def document(self) -> Any:
        """The whole file as one JSON value; None if it is not one."""
        if not self.is_json:
            return None
        with self.opened() as stream:
            return _document(stream.read())

    @cached_property
    def first(self) -> dict[str, Any]:
        """The first object of a file of lines, or the object that the file is; else empty."""
        if not self.is_json:
            return {}
        found: list[Any] = []
        for _, line in self.lines(Damage(self.name, skip=True)):
            if len(found) == _FIRST_LINES:
                break
            found.append(_document(line))
            if isinstance(found[0], dict):
                return found[0]
        for value in (self.document, *found):
            if isinstance(value, dict):
                return value
        return {}

    @property
    def described(self) -> dict[str, Any]:
        """The object of a file that describes another; empty without such a file."""
        return self.first if self.path.is_file() else {}

    @property
    def columns(self) -> list[str]:
        """The columns of a Parquet file; none of another file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return list(pq.read_schema(self.path).names) if self.is_parquet else []
        except (pa.ArrowException, OSError):
            return []

    def place_of_damage(self) -> str:
        """Return where and why the file is not JSON, a clause."""
        with self.opened() as stream:
            return place_in_json(stream.read())

    def forget(self) -> None:
        """Free the parsed content."""
        for name in ("document", "first"):
            self.__dict__.pop(name, None)


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

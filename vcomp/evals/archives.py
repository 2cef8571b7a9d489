"""Members of zip archives: their directory, and their bytes in pieces.

Members are read one after the other, in memory: nothing is written to disk, and names of members
are no paths. Python's zipfile reads members that are packed by zstd (method 93) from 3.14 on only;
here pyarrow unpacks them, also several frames. A directory of a million members takes zipfile six
times as long.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

from vcomp.evals.json_records import UnreadableError
from vcomp.evals.log_files import LARGEST

_STORED, _DEFLATED, _ZSTD = 0, 8, 93

_LOCAL = struct.Struct("<4s5H3L2H")
"""Header before the bytes of a member."""

_ENTRY = struct.Struct("<4s4x2H4x3L3H8xL")
"""Entry of a member in the directory, without versions, time, disk and attributes."""

_NAME = struct.Struct("<4s4xH18x3H12x")
"""The same without sizes and place: flags, and lengths of name, extra field and comment."""

_END, _END_OF_LARGE, _PLACE_OF_END = (
    struct.Struct("<4s4H2LH"),
    struct.Struct("<4sQ2H2L4Q"),
    "<4sLQL",
)
"""End of a directory; that of a large one, and where it is."""

_IN_EXTRA = 2**32 - 1
"""Size or place that is in the extra field, as 8 bytes."""

_UTF_8 = 1 << 11
"""Flag of names that are not in code page 437."""

_PACKED, _PIECE = 1 << 16, 1 << 20
"""Bytes that are unpacked at a time, and the most that they become."""


class Member(NamedTuple):
    """A member: its name, how it is packed, and where."""

    name: str
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    start: int


@dataclass(frozen=True, slots=True)
class Members:
    """Members of an archive; each becomes an object when it is used.

    Attributes
    ----------
    places : name → place of the entry; of several with a name the last one counts
    n : number of entries
    entry : returns the member at a place
    """

    places: dict[str, int]
    n: int
    entry: Callable[[int], Member]

    def get(self, name: str) -> Member | None:
        """Return the member of a name, or None."""
        place = self.places.get(name)
        return None if place is None else self.entry(place)


def archive_members(path: Path) -> Members:
    """Return all members.

    Raises
    ------
    UnreadableError
        If there is no directory of members: the archive is cut short or damaged.
    """
    try:
        with path.open("rb") as file:
            directory, shift = _directory(file)
        places, n = _places(directory)
        return Members(places, n, partial(_entry, directory, shift))
    except (ValueError, struct.error) as error:
        raise UnreadableError(
            f"its directory of members cannot be read ({error}): the log is half-written or cut "
            "short"
        ) from None


def _directory(file: BinaryIO) -> tuple[bytes, int]:
    """Return the bytes of the directory, and how many bytes are before the archive."""
    size = file.seek(0, 2)
    file.seek(max(size - _END.size - 2**16, 0))
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0:
        raise ValueError("it has no end")
    *_, length, start, _ = _END.unpack_from(tail, at)
    end = size - len(tail) + at
    if at >= 20 and tail[at - 20 : at - 16] == b"PK\6\7":
        *_, place, _ = struct.unpack_from(_PLACE_OF_END, tail, at - 20)
        file.seek(place)
        *_, length, start = _END_OF_LARGE.unpack(file.read(_END_OF_LARGE.size))
        end = place
    if length > end:
        raise ValueError("it is not where its end has it")
    file.seek(end - length)
    return file.read(length), end - length - start


def _places(directory: bytes) -> tuple[dict[str, int], int]:
    """Return the place of the entry that counts of each name, and the number of entries."""
    places: dict[str, int] = {}
    at, n_entries, unpack, length = 0, 0, _NAME.unpack_from, len(directory)
    while at < length:
        mark, flags, n, extra, note = unpack(directory, at)
        if mark != b"PK\1\2":
            raise ValueError("an entry is damaged")
        name = _decoded(directory[at + _NAME.size : at + _NAME.size + n], flags)
        places.pop(name, None)
        places[name] = at
        at += _NAME.size + n + extra + note
        n_entries += 1
    return places, n_entries


def _decoded(name: bytes, flags: int) -> str:
    return str(name, "utf-8" if flags & _UTF_8 or name.isascii() else "cp437")


def _entry(directory: bytes, shift: int, at: int) -> Member:
    """Return the member whose entry is at a place of the directory."""
    _, flags, method, crc, packed, size, n, extra, _, start = _ENTRY.unpack_from(directory, at)
    at += _ENTRY.size + n
    name = _decoded(directory[at - n : at], flags)
    if _IN_EXTRA in (size, packed, start):
        wide = _wide(directory[at : at + extra])
        size = next(wide) if size == _IN_EXTRA else size
        packed = next(wide) if packed == _IN_EXTRA else packed
        start = next(wide) if start == _IN_EXTRA else start
    return Member(name, flags, method, crc, packed, size, start + shift)


def _wide(extra: bytes) -> Iterator[int]:
    """Yield the sizes and the place of an extra field."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            yield from struct.unpack_from(f"<{length // 8}Q", extra, at + 4)
        at += 4 + length
    raise ValueError("an entry has no size")


def members_before_damage(path: Path) -> Members:
    """Return the members of an archive without a directory, up to the first that is not whole.

    They are found by their own headers, one after the other.
    """
    found: list[Member] = []
    size = path.stat().st_size
    with path.open("rb") as file:
        while len(header := file.read(_LOCAL.size)) == _LOCAL.size:
            mark, _, flags, method, *_, crc, packed, whole, n_name, n_extra = _LOCAL.unpack(header)
            start = file.tell() - _LOCAL.size
            name = file.read(n_name).decode("utf-8", "replace")
            end = file.tell() + n_extra + packed
            # Sizes may follow the bytes (flag 8) or be in the extra field: no way on.
            if mark != b"PK\x03\x04" or flags & 8 or packed == _IN_EXTRA or end > size:
                break
            found.append(Member(name, flags, method, crc, packed, whole, start))
            file.seek(end)
    places: dict[str, int] = {}
    for k, member in enumerate(found):
        places.pop(member.name, None)
        places[member.name] = k
    return Members(places, len(found), found.__getitem__)


def member_content(file: BinaryIO, member: Member) -> bytes:
    """Return the bytes of a member.

    Raises
    ------
    UnreadableError
        If it is damaged, encrypted, packed by another method, or too large.
    """
    if member.size > LARGEST:
        raise UnreadableError(f"it is larger than {LARGEST >> 30} GiB")
    return b"".join(member_pieces(file, member))


def member_pieces(file: BinaryIO, member: Member) -> Iterator[bytes]:
    """Yield the bytes of a member in pieces; whether they are whole is known at the end.

    Raises
    ------
    UnreadableError
        If it is damaged, encrypted or packed by another method.
    """
    if member.flags & 1:
        raise UnreadableError("it is encrypted")
    file.seek(member.start)
    header = file.read(_LOCAL.size)
    if len(header) < _LOCAL.size or header[:4] != b"PK\x03\x04":
        raise UnreadableError("it is not where the directory of the archive has it")
    *_, n_name, n_extra = _LOCAL.unpack(header)
    file.seek(n_name + n_extra, 1)
    left, crc = member.size, 0
    for piece in _unpacked(file.read(member.packed), member.method):
        left, crc = left - len(piece), zlib.crc32(piece, crc)
        if left < 0:
            break
        yield piece
    if left or crc != member.crc:
        raise UnreadableError("its bytes are not those that were written")


def _unpacked(packed: bytes, method: int) -> Iterator[bytes]:
    if method == _STORED:
        yield packed
    elif method == _DEFLATED:
        unpack = zlib.decompressobj(-15)
        try:
            for at in range(0, len(packed), _PACKED):  # what is left of a piece is copied
                some = packed[at : at + _PACKED]
                while some and not unpack.eof:
                    yield unpack.decompress(some, _PIECE)
                    some = unpack.unconsumed_tail
            yield unpack.flush()
        except zlib.error as error:
            raise UnreadableError(f"it cannot be unpacked ({error})") from None
    elif method == _ZSTD:
        import pyarrow as pa

        try:
            with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
                while piece := stream.read(_PIECE):
                    yield piece
        except (pa.ArrowException, OSError) as error:
            raise UnreadableError(f"it cannot be unpacked ({error})") from None
    else:
        raise UnreadableError(f"it is packed by method {method}, which is not known")

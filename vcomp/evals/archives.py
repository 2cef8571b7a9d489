"""Members of archives, one after the other, in memory and of bounded size.

Nothing is written to disk, and names of members are no paths. Python's zipfile reads members that
are packed by zstd (method 93) from 3.14 on only; here pyarrow unpacks them, also several frames.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

from vcomp.evals.log_files import LARGEST, UnreadableError

_STORED, _DEFLATED, _ZSTD = 0, 8, 93

_LOCAL = struct.Struct("<4s5H3L2H")
"""Header before the bytes of a member."""


def members(path: Path) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name; of several with a name the last.

    Raises
    ------
    UnreadableError
        If there is no directory of members: the archive is cut short or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return {info.filename: info for info in archive.infolist()}
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError) as error:
        raise UnreadableError(
            f"its directory of members cannot be read ({error}): the log is half-written or cut "
            "short"
        ) from None


def members_before_damage(path: Path) -> dict[str, zipfile.ZipInfo]:
    """Return the members of an archive without a directory, up to the first that is not whole.

    They are found by their own headers, one after the other.
    """
    found: dict[str, zipfile.ZipInfo] = {}
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
            found[name] = info
            file.seek(end)
    return found


def n_replaced(path: Path) -> int:
    """Return the number of members that a later one of the same name replaces."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile:
        return 0
    return len(names) - len(set(names))


def content(file: BinaryIO, info: zipfile.ZipInfo) -> bytes:
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

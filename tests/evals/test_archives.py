"""Archives: the directory that zipfile reads, also of large ones, and bytes of members."""

import struct
import zipfile
import zlib

import pytest

from vcomp.evals.archives import archive_members, member_content
from vcomp.evals.json_records import UnreadableError


def same_as_zipfile(path):
    """Compare the members with those of zipfile, and return them."""
    with zipfile.ZipFile(path) as stored:
        known = stored.infolist()
    members = archive_members(path)
    found = [members.get(name) for name in members.places]
    assert members.n == len(known)
    assert [
        (m.name, m.flags, m.method, m.crc, m.packed, m.size, m.start) for m in found
    ] == [
        (m.filename, m.flag_bits, m.compress_type, m.CRC, m.compress_size, m.file_size,
         m.header_offset)
        for m in known
    ]  # fmt: skip
    return found


def write(path, before=b"", comment=b"", n=3):
    """Write an archive, with bytes before it and a comment behind it."""
    path.write_bytes(before)
    with zipfile.ZipFile(path, "a" if before else "w", zipfile.ZIP_DEFLATED) as file:
        for k in range(n):
            file.writestr(f"ü/{k}.json" if k % 2 else f"{k}.json", "x" * (40 * (k % 5)))
        file.comment = comment
    return path


@pytest.mark.parametrize("before", [b"", b"before the archive"])
@pytest.mark.parametrize("comment", [b"", b"a comment " * 100])
def test_members_are_those_of_zipfile(tmp_path, before, comment):
    path = write(tmp_path / "a.zip", before, comment)
    found = same_as_zipfile(path)
    with path.open("rb") as file:
        assert member_content(file, found[2]) == b"x" * 80


def large(path, content, extra_before=b""):
    """Write a member as archives above 4 GiB have it: sizes and places of 8 bytes."""
    n, crc, none = len(content), zlib.crc32(content), 2**32 - 1
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 45, 0, 0, 0, 0, crc, n, n, 1, 0) + b"a" + content
    extra = extra_before + struct.pack("<2H3Q", 1, 24, n, n, 0)
    sizes = (crc, none, none, 1, len(extra), 0, 0, 0, 0, none)
    entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", 45, 45, 0, 0, 0, 0, *sizes) + b"a" + extra
    ends = (
        struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(entry), len(local)),
        struct.pack("<4sLQL", b"PK\6\7", 0, len(local) + len(entry), 1),
        struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2**16 - 1, 2**16 - 1, none, none, 0),
    )
    path.write_bytes(local + entry + b"".join(ends))


@pytest.mark.parametrize("before", [b"", struct.pack("<2H4s", 0x5455, 4, b"time")])
def test_sizes_and_places_of_eight_bytes(tmp_path, before):
    path = tmp_path / "a.zip"
    large(path, b"content", before)
    (member,) = same_as_zipfile(path)
    with path.open("rb") as file:
        assert member_content(file, member) == b"content"


def test_a_directory_that_is_damaged(tmp_path):
    path = write(tmp_path / "a.zip")
    content = path.read_bytes()
    for damaged in (content[:-30], content.replace(b"PK\1\2", b"PK\1\3"), b"PK\3\4"):
        path.write_bytes(damaged)
        with pytest.raises(UnreadableError, match="half-written or cut short"):
            archive_members(path)

"""Which tests are in the minute of ``pytest -m quick``: some of each file, by what they name.

There is no list to keep: a new file has its share at once, without the tests that are marked
`slow`. A file that fits models has few quick tests, any other one has more.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

FEW, MANY = 4, 40
"""Quick tests of a file that fits models or tests loops, and of any other one."""

CASES = 12
"""Quick cases of one test."""

BY_ROOM: pytest.StashKey[Counter[str]] = pytest.StashKey()
"""Numbers of quick tests by room, of a run."""

_SLOW_FILE = re.compile(
    r"\b(subprocess|dask|n_jobs|matplotlib|pyplot|CliRunner|bootstrap|insteval|[Ii]terative\w*)\b"
)
"""What files name that start processes, draw pictures, or fit one table many times or with
probes."""

_FITS = re.compile(
    r"fit\(|maximise|gstudy\(|optimize|accumulate\(|kernels|Likelihood|Dense"
    r"|evals\.(study|judges|repetitions)\("
)

_SLOW = re.compile(
    r"@given|range\((n|\d\d+|\d+_\d+)\)|for seed in|for _ in|simulat|profile|jackknife|resample"
    r"|interrupt|thirty|many|pickle|compressed|permutation"
)
"""What tests name that have many examples, or do one thing many times."""


@cache
def text_of(path: Path) -> str:
    """Return the text of a Python file."""
    return path.read_text(encoding="utf-8") if path.suffix == ".py" else ""


@cache
def is_quick(path: Path) -> bool:
    """Whether a file has quick tests."""
    room = room_of(path)
    return room not in ("benchmarks", "fuzz", "tools") and not _SLOW_FILE.search(text_of(path))


def room_of(path: Path) -> str:
    """Return the folder of tests, or of the package, in which a file is."""
    return path.relative_to(ROOT).parts[1]


def mark_quick(items: list[pytest.Item]) -> Counter[str]:
    """Mark some tests of each file: the first case of each, then others; count them by room."""
    cases, rooms = Counter[str](), Counter[str]()
    by_file: dict[Path, list[tuple[int, pytest.Item]]] = {}
    for item in items:
        name = item.nodeid.partition("[")[0]
        is_slow = item.get_closest_marker("slow") is not None
        if (
            is_slow
            or not is_quick(item.path)
            or name.rpartition("::")[2] in _slow_tests(item.path)
        ):
            continue
        if cases[name] < CASES:
            by_file.setdefault(item.path, []).append((cases[name], item))
        cases[name] += 1
    for path, found in by_file.items():
        most = FEW if _FITS.search(text_of(path)) else MANY
        for _, item in sorted(found, key=lambda case: case[0])[:most]:
            item.add_marker("quick")
            rooms[room_of(path)] += 1
    return rooms


@cache
def _slow_tests(path: Path) -> frozenset[str]:
    """Return the functions of a file that have, with their decorators, a word of slow tests."""
    definitions = text_of(path).split("\n\n\n")
    names = (re.search(r"^def (\w+)\(", text, re.M) for text in definitions if _SLOW.search(text))
    return frozenset(name[1] for name in names if name)

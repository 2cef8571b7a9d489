"""Which tests are in the minute of ``pytest -m quick``: some of each file that is not slow."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

MOST = 10
"""Tests of each file that are quick."""

BY_ROOM: pytest.StashKey[Counter[str]] = pytest.StashKey()
"""Numbers of quick tests by room, of a run."""

_SLOW = re.compile(r"\b(subprocess|dask|n_jobs|matplotlib|pyplot|CliRunner|bootstrap)\b")
"""What files name that start processes, draw pictures or fit one table many times."""


@cache
def text_of(path: Path) -> str:
    """Return the text of a Python file."""
    return path.read_text(encoding="utf-8") if path.suffix == ".py" else ""


@cache
def is_quick(path: Path) -> bool:
    """Whether a file has quick tests: what it names decides, so that a new one needs no list."""
    room = room_of(path)
    return room not in ("benchmarks", "fuzz", "tools") and not _SLOW.search(text_of(path))


def room_of(path: Path) -> str:
    """Return the folder of tests, or of the package, in which a file is."""
    return path.relative_to(ROOT).parts[1]


def mark_quick(items: list[pytest.Item]) -> Counter[str]:
    """Mark some tests of each file: the first case of each, then others; count them by room.

    Property tests are not marked: their examples are many.
    """
    cases, rooms = Counter[str](), Counter[str]()
    by_file: dict[Path, list[tuple[int, pytest.Item]]] = {}
    for item in items:
        if is_quick(item.path) and not hasattr(getattr(item, "obj", None), "hypothesis"):
            name = item.nodeid.partition("[")[0]
            by_file.setdefault(item.path, []).append((cases[name], item))
            cases[name] += 1
    for path, found in by_file.items():
        for _, item in sorted(found, key=lambda case: case[0])[:MOST]:
            item.add_marker("quick")
            rooms[room_of(path)] += 1
    return rooms

"""Sums of parts that add up: surveys of rows, tables of cells, cross-products."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, Self, TypeVar

__all__ = [
    "add_up",
]


class Addable(Protocol):
    """What has a ``+``."""

    def __add__(self, other: Self) -> Self: ...


Part = TypeVar("Part", bound=Addable)


def add_up(parts: Iterable[Part]) -> Part | None:
    """Return the sum of the parts, None of none; neighbours of like size are added first.

    So what many parts share is copied a few times, not once for each part.

    Examples
    --------
    >>> add_up(["a", "b", "c"])
    'abc'
    """
    waiting: list[tuple[int, Part]] = []
    for part in parts:
        level, made = 0, part
        while waiting and waiting[-1][0] == level:
            made = waiting.pop()[1] + made
            level += 1
        waiting.append((level, made))
    if not waiting:
        return None
    (_, whole), *rest = reversed(waiting)
    for _, part in rest:
        whole = part + whole
    return whole

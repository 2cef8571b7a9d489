"""Levels that look alike: written in two ways, they may be one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any
from unicodedata import normalize

import numpy as np

__all__ = ["alike_levels"]


def alike_levels(values: Iterable[Any]) -> tuple[tuple[Any, ...], ...]:
    """Find distinct levels that differ only in case, in blanks around them, or in type.

    Levels are never taken for one another; who reads a file in which ``"BM25"`` became ``"bm25"``
    half-way wants to know. An accented letter in one piece and in two, which look the same,
    is a difference of that kind too.

    Parameters
    ----------
    values : levels, such as the categories of a column; what is missing does not count

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
    found: dict[Hashable, dict[Any, None]] = {}
    for value in values:
        if not isinstance(value, str) and pd.isna(value):
            continue
        found.setdefault(_plain(value), {})[value] = None
    return tuple(tuple(group) for group in found.values() if len(group) > 1)


def _are_plain_text(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values) and "".join(values).isascii()


def _plain(value: Any) -> Hashable:
    """Return what is left of a level without type, case and blanks."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="replace")
    if isinstance(value, str):
        return (value if value.isascii() else normalize("NFC", value)).strip().casefold()
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).casefold()

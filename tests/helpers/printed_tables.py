"""The cells of printed tables, by their headers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def printed_columns(summary: Any, table: int = 0) -> dict[str, list[str]]:
    """Return the columns of a table of a summary, without the blanks around headers and cells.

    Headers that repeat get a number: ``"95 % interval"``, ``"95 % interval #2"``.
    """
    header, *rows = [[str(cell.data).strip() for cell in row] for row in summary.tables[table]]
    names: list[str] = []
    for name in header:
        again = sum(other.partition(" #")[0] == name for other in names)
        names.append(f"{name} #{again + 1}" if again else name)
    return {
        name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }


def printed_words(summary: Any) -> str:
    """Return the text of a summary on one line."""
    return " ".join(str(summary).split())


def fixed_column(
    values: Any, significant: int | None = None, decimals: int | None = None
) -> list[str]:
    """Return printed numbers with one number of decimals, by the smallest of them or as given."""
    values = np.asarray(values, dtype=float)
    sizes = np.abs(values[np.isfinite(values) & (values != 0.0)])
    if decimals is None:
        assert significant is not None
        decimals = max(0, significant - 1 - math.floor(math.log10(sizes.min())))
    return [f"{x:.{decimals}f}" if np.isfinite(x) else "–" for x in values]

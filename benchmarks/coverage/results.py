"""The rows of a study in a CSV file, and the coverage that the library claims."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path

from benchmarks.coverage.methods import NORMAL_THEORY
from benchmarks.coverage.study import Row

LOW, HIGH = 0.93, 0.97
"""Where the coverage of 95 % intervals from normal theory has to lie."""


def is_claimed(row: Row) -> bool:
    """Whether the library's claim is about a row: normal, and away from zero."""
    return row.distribution == "normal" and not row.near_zero


def violations(
    rows: Iterable[Row], *, estimator: str = "reml", method: str = NORMAL_THEORY
) -> list[Row]:
    """Return the rows of a method that the claim is about, and that lie outside of 93 to 97 %."""
    return [
        row
        for row in rows
        if (row.estimator, row.method) == (estimator, method)
        and is_claimed(row)
        and not LOW <= row.coverage <= HIGH
    ]


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write a line a row; shares have four digits, which is below their Monte Carlo errors."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([f.name for f in fields(Row)])
        for row in rows:
            writer.writerow([_text(getattr(row, f.name)) for f in fields(Row)])


def read_rows(path: Path) -> list[Row]:
    """Return what :func:`write_rows` has written."""
    with path.open(newline="", encoding="utf-8") as file:
        return [_row(line) for line in csv.DictReader(file)]


def combined(one: Row, other: Row) -> Row:
    """Return the row of the data sets of both; its widths are means of theirs."""
    n = one.n + other.n
    made = [r.n * (1.0 - r.none) for r in (one, other)]
    all_made = max(sum(made), 1.0)

    def share(name: str) -> float:
        # The file has four digits, so that numbers of data sets are whole again.
        pairs = zip((one, other), made, strict=True)
        return float(sum(round(getattr(r, name) * m) for r, m in pairs) / all_made)

    below, above = share("below"), share("above")
    return replace(
        one,
        n=n,
        none=1.0 - sum(made) / n,
        coverage=1.0 - below - above,
        below=below,
        above=above,
        width=(one.n * one.width + other.n * other.width) / n,
        wide=(one.n * one.wide + other.n * other.wide) / n,
    )


def merged(rows: Iterable[Row], others: Iterable[Row]) -> list[Row]:
    """Return rows of which those about the same thing are combined."""
    found: dict[tuple[str, ...], Row] = {}
    for row in (*rows, *others):
        key = (row.cell, row.distribution, row.estimator, row.method, row.quantity)
        found[key] = combined(found[key], row) if key in found else row
    return list(found.values())


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _row(line: dict[str, str]) -> Row:
    def number(name: str) -> float:
        return float(line[name])

    return Row(
        cell=line["cell"],
        distribution=line["distribution"],
        estimator=line["estimator"],
        method=line["method"],
        quantity=line["quantity"],
        near_zero=line["near_zero"] == "1",
        truth=number("truth"),
        n=int(line["n"]),
        none=number("none"),
        coverage=number("coverage"),
        below=number("below"),
        above=number("above"),
        width=number("width"),
        wide=float(line.get("wide") or "nan"),
    )

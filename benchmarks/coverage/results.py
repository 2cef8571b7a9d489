"""The rows of a study in a CSV file, and the coverage that the library claims."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path

from benchmarks.coverage.methods import DEFAULT
from benchmarks.coverage.study import Row

LOW, HIGH = 0.93, 0.97
"""Where the coverage of the default's 95 % intervals has to lie."""


def is_claimed(row: Row) -> bool:
    """Whether the library's claim is about a row: normal, and away from zero."""
    return row.distribution == "normal" and not row.near_zero


def violations(
    rows: Iterable[Row], *, estimator: str = "reml", method: str = DEFAULT
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
    )

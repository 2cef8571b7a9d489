"""The rows from which page and figures are made, in small CSV files."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.bias_study.at_fifty import AtFifty
from benchmarks.bias_study.summarise import Bias, Box, Reliability
from benchmarks.bias_study.variance import Share

Row = TypeVar("Row")

_KINDS: dict[str, tuple[str, type[Any]]] = {
    "shares": ("variance.csv", Share),
    "biases": ("bias.csv", Bias),
    "reliabilities": ("reliability.csv", Reliability),
    "boxes": ("diagnosis.csv", Box),
    "at_fifty": ("at_fifty.csv", AtFifty),
}


@dataclass(frozen=True, slots=True)
class Run:
    """What was run.

    Attributes
    ----------
    seed, trials, sensitivities : as asked for
    collections : that were simulated
    estimates : of one measure, for tests of all sizes
    no_curve : curves that could not be fitted to halves
    """

    seed: int
    trials: int
    sensitivities: bool
    collections: int
    estimates: int
    no_curve: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that page and figures need."""

    run: Run
    shares: Sequence[Share]
    biases: Sequence[Bias]
    reliabilities: Sequence[Reliability]
    boxes: Sequence[Box]
    at_fifty: Sequence[AtFifty]


def write_outcome(outcome: Outcome, folder: Path) -> None:
    """Write a file a kind of row, and what was run."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(outcome.run), indent=1)
    (folder / "run.json").write_text(text + "\n", encoding="utf-8")
    for name, (file_name, kind) in _KINDS.items():
        write_rows(folder / file_name, getattr(outcome, name), kind)


def write_rows(path: Path, rows: Sequence[Any], kind: type[Any] = Share) -> None:
    """Write rows of one kind to a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([f.name for f in fields(kind)])
        for row in rows:
            writer.writerow([_text(getattr(row, f.name)) for f in fields(kind)])


def read_outcome(folder: Path) -> Outcome:
    """Return what :func:`write_outcome` has written."""
    run = Run(**json.loads((folder / "run.json").read_text(encoding="utf-8")))
    read = {name: _read(folder / file, kind) for name, (file, kind) in _KINDS.items()}
    return Outcome(run, **read)


def _read(path: Path, kind: type[Row]) -> list[Row]:
    types = {f.name: str(f.type) for f in fields(kind)}  # type: ignore[arg-type]
    with path.open(newline="", encoding="utf-8") as file:
        return [
            kind(**{name: _value(text, types[name]) for name, text in line.items()})
            for line in csv.DictReader(file)
        ]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    # Five digits: far below the Monte Carlo errors.
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _value(text: str, kind: str) -> object:
    if kind == "bool":
        return text == "1"
    return {"int": int, "float": float}.get(kind, str)(text)

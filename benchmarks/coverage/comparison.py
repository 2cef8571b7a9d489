"""The study of all populations: what is missing is drawn, and added to the rows of before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.coverage.cells import Cell, Plan
from benchmarks.coverage.designs import DESIGNS
from benchmarks.coverage.prepared import Prepared
from benchmarks.coverage.results import merged, read_rows, write_rows
from benchmarks.coverage.study import Row, run_cell

QUICK = ("st20x25", "groups")
"""Designs that are done in seconds, with :data:`QUICK_POPULATIONS`."""

QUICK_POPULATIONS = ("normal", "exponential", "0/1 .86")


def compare(
    cell: Cell,
    path: Path | None,
    *,
    seed: int,
    workers: int,
    data_sets: int,
    populations: Sequence[str] = (),
    progress: bool = True,
) -> list[Row]:
    """Return the rows of a design with at least so many data sets a population.

    Parameters
    ----------
    cell : the design
    path : file of rows, which is written after every population; None for none
    seed, workers, progress : as for :func:`~benchmarks.coverage.study.run_study`
    data_sets : numbers 0 to this of each population; those that the file has are not drawn again
    populations : some of the design's; all if there are none
    """
    rows = read_rows(path) if path is not None and path.exists() else []
    first = None
    for population in cell.distributions:
        own = [r for r in rows if (r.cell, r.distribution) == (cell.name, population)]
        done = max((r.n for r in own), default=0)
        if (populations and population not in populations) or done >= data_sets:
            continue
        prepared = _prepared(cell, population, seed, first)
        first = first or prepared
        plan = replace(Plan(local=0), robust=data_sets - done)
        found = run_cell(prepared, plan, workers=workers, progress=progress, first=done)
        rows = merged(rows, found)
        if path is not None:
            write_rows(sorted(rows, key=_place), path)
    return [r for r in rows if r.cell == cell.name]


def _prepared(cell: Cell, population: str, seed: int, like: Prepared | None) -> Prepared:
    """Return a prepared design, with the model of another population if there is one."""
    prepared = Prepared(cell, population, seed)
    if like is not None:
        # Cached properties, which depend on the design alone
        prepared.__dict__.update(model=like.model, template=like.template, plan=like.plan)
    return prepared


def _place(row: Row) -> tuple[int, int]:
    names = [cell.name for cell in DESIGNS]
    at = names.index(row.cell)
    return at, DESIGNS[at].distributions.index(row.distribution)

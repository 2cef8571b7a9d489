"""``python -m benchmarks.coverage [--quick] [--workers N] [--seed N] [CELL …] [methods]``.

Three studies: every method under normality, robust intervals in all populations, and
("methods") both with what others would use in eight cells. The last two are resumed: data sets
that their files have are not drawn again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.coverage.cells import CELLS, Cell, cells_by_name
from benchmarks.coverage.comparison import QUICK, QUICK_POPULATIONS, compare
from benchmarks.coverage.designs import DESIGNS
from benchmarks.coverage.figure import draw_populations
from benchmarks.coverage.page import page
from benchmarks.coverage.peers import DATA_SETS, QUICK_DATA_SETS, compare_methods
from benchmarks.coverage.results import read_rows, violations, write_rows
from benchmarks.coverage.study import Row, run_study

SEED = 20_260_101
_HERE = Path(__file__).resolve().parent
RESULTS = _HERE / "results.csv"
POPULATIONS = _HERE / "populations.csv"
METHODS = _HERE / "methods.csv"
PAGE = _HERE.parents[1] / "docs" / "coverage.md"
FIGURE = PAGE.parent / "coverage" / "populations.png"
_EVERY = (*CELLS, *DESIGNS)
_QUICK = ("s20xt25-40%", *QUICK)
_QUICK_DATA_SETS = 10
_METHODS = "methods"
"""The name of the study of all methods in eight cells, among those of cells."""


def main() -> None:
    arguments = _arguments()
    start = time.perf_counter()
    rows: list[Row] = []
    for cell in _cells(arguments):
        rows += _compared(cell, arguments) if cell in DESIGNS else _studied(cell, arguments)
    if not arguments.again and (_METHODS in arguments.cells or not arguments.cells):
        rows += _of_methods(arguments)
    if not arguments.quick:
        rows, others = read_rows(RESULTS), read_rows(POPULATIONS)
        text = page(rows, arguments.seed, others, read_rows(METHODS))
        PAGE.write_text(text, encoding="utf-8")
        draw_populations(others, FIGURE)
    outside = violations(rows)
    for row in outside:
        print(
            f"{row.cell}: {row.quantity} is covered by {row.coverage:.1%} of the intervals from "
            f"normal theory (Monte Carlo error {row.error:.1%})"
        )
    minutes, seconds = divmod(round(time.perf_counter() - start), 60)
    print(f"{len(rows):,} rows in {minutes} min {seconds} s; {len(outside)} outside of 93 to 97 %")


def _cells(arguments: argparse.Namespace) -> tuple[Cell, ...]:
    if arguments.again or set(arguments.cells) == {_METHODS}:
        return ()
    names = tuple(name for name in arguments.cells if name != _METHODS)
    return cells_by_name(names or (_QUICK if arguments.quick else ()), _EVERY)


def _compared(cell: Cell, arguments: argparse.Namespace) -> list[Row]:
    quick = arguments.quick
    return compare(
        cell,
        None if quick else POPULATIONS,
        seed=arguments.seed,
        workers=arguments.workers,
        data_sets=_QUICK_DATA_SETS if quick else arguments.data_sets or cell.plan.robust,
        populations=QUICK_POPULATIONS if quick else arguments.populations,
    )


def _of_methods(arguments: argparse.Namespace) -> list[Row]:
    quick = arguments.quick
    return compare_methods(
        None if quick else METHODS,
        seed=arguments.seed,
        workers=arguments.workers,
        data_sets=QUICK_DATA_SETS if quick else arguments.data_sets or DATA_SETS,
        quick=quick,
    )


def _studied(cell: Cell, arguments: argparse.Namespace) -> list[Row]:
    rows = run_study([cell], seed=arguments.seed, workers=arguments.workers, quick=arguments.quick)
    if not arguments.quick:
        # A cell's rows replace those of before, so that the study can be made in parts.
        _keep(rows)
    return rows


def _keep(rows: list[Row]) -> None:
    """Write the rows of a cell to the file, in the order of the cells."""
    others = read_rows(RESULTS) if RESULTS.exists() else []
    kept = [row for row in others if row.cell != rows[0].cell] + rows
    order = [cell.name for cell in CELLS]
    write_rows(sorted(kept, key=lambda row: order.index(row.cell)), RESULTS)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    names = ", ".join(cell.name for cell in _EVERY).replace("%", "%%")
    parser.add_argument(
        "cells", nargs="*", metavar="CELL", help=f"all, or some of methods, {names}"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few cells and data sets; writes nothing"
    )
    parser.add_argument("--again", action="store_true", help="the page from the rows of before")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of all data sets ({SEED})")
    parser.add_argument(
        "--data-sets", type=int, default=0, help="of each population (200; methods: 300)"
    )
    parser.add_argument("--populations", nargs="+", default=(), help="some of them only")
    arguments = parser.parse_args()
    if arguments.workers < 1 or arguments.seed < 0 or arguments.data_sets < 0:
        parser.error("--workers is from 1 on, --seed and --data-sets from 0 on")
    try:
        _cells(arguments)
    except ValueError as error:
        parser.error(str(error))
    return arguments


if __name__ == "__main__":
    main()

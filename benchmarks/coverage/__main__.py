"""``python -m benchmarks.coverage [--quick] [--workers N] [--seed N] [CELL …] [methods] [pairs]``.

Four studies: every method under normality, robust intervals in all populations, ("methods") both
with what others would use in eight cells, and ("pairs") differences between measures. All but the
first are resumed: what their files have is not drawn again.
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
from benchmarks.coverage.pairs import cells, study_pairs
from benchmarks.coverage.peers import DATA_SETS, QUICK_DATA_SETS, compare_methods
from benchmarks.coverage.results import read_rows, violations, write_rows
from benchmarks.coverage.study import Row, run_study

SEED = 20_260_101
_HERE = Path(__file__).resolve().parent
RESULTS = _HERE / "results.csv"
POPULATIONS = _HERE / "populations.csv"
METHODS = _HERE / "methods.csv"
PAIRS = _HERE / "pairs.csv"
PAGE = _HERE.parents[1] / "docs" / "explanation" / "coverage.md"
FIGURE = PAGE.parent / "coverage-figures" / "populations.png"
_EVERY = (*CELLS, *DESIGNS)
_QUICK = ("s20xt25-40%", *QUICK)
_QUICK_DATA_SETS, _QUICK_PAIRS = 10, 2
_METHODS, _PAIRS = "methods", "pairs"
"""Names of studies among those of cells: all methods in eight cells, differences of measures."""


def main() -> None:
    arguments = _arguments()
    start = time.perf_counter()
    rows: list[Row] = []
    for cell in _cells(arguments):
        rows += _compared(cell, arguments) if cell in DESIGNS else _studied(cell, arguments)
    if not arguments.again and (_METHODS in arguments.cells or not arguments.cells):
        rows += _of_methods(arguments)
    if not arguments.again and (_PAIRS in arguments.cells or not arguments.cells):
        rows += _of_pairs(arguments)
    if not arguments.quick:
        rows, others = read_rows(RESULTS), read_rows(POPULATIONS)
        text = page(rows, arguments.seed, others, read_rows(METHODS), read_rows(PAIRS))
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
    names = tuple(name for name in arguments.cells if name not in (_METHODS, _PAIRS))
    if arguments.again or (arguments.cells and not names):
        return ()
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


def _of_pairs(arguments: argparse.Namespace) -> list[Row]:
    if arguments.quick:
        chosen = cells()[:1]
        return study_pairs(None, seed=arguments.seed, data_sets=_QUICK_PAIRS, chosen=chosen)
    data_sets = arguments.data_sets or DATA_SETS
    return study_pairs(PAIRS, seed=arguments.seed, data_sets=data_sets)


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
        "cells", nargs="*", metavar="CELL", help=f"all, or some of methods, pairs, {names}"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few cells and data sets; writes nothing"
    )
    parser.add_argument("--again", action="store_true", help="the page from the rows of before")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of all data sets ({SEED})")
    parser.add_argument(
        "--data-sets", type=int, default=0, help="of each population (1,000; methods, pairs: 300)"
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

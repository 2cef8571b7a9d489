"""``python -m benchmarks.coverage [--quick] [--workers N] [--seed N] [CELL …]``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.coverage.cells import CELLS, cells_by_name
from benchmarks.coverage.page import page
from benchmarks.coverage.results import read_rows, violations, write_rows
from benchmarks.coverage.study import Row, run_study

SEED = 20_260_101
_HERE = Path(__file__).resolve().parent
RESULTS = _HERE / "results.csv"
PAGE = _HERE.parents[1] / "docs" / "coverage.md"


def main() -> None:
    arguments = _arguments()
    start = time.perf_counter()
    cells = () if arguments.again else cells_by_name(tuple(arguments.cells))
    rows: list[Row] = []
    for cell in cells:
        rows += run_study(
            [cell], seed=arguments.seed, workers=arguments.workers, quick=arguments.quick
        )
        if not arguments.quick:
            # A cell's rows replace those of before, so that the study can be made in parts.
            _keep([row for row in rows if row.cell == cell.name])
    if not arguments.quick:
        rows = read_rows(RESULTS)
        PAGE.write_text(page(rows, arguments.seed), encoding="utf-8")
    outside = violations(rows)
    for row in outside:
        print(
            f"{row.cell}: {row.quantity} is covered by {row.coverage:.1%} of the default's "
            f"intervals (Monte Carlo error {row.error:.1%})"
        )
    minutes, seconds = divmod(round(time.perf_counter() - start), 60)
    print(f"{len(rows):,} rows in {minutes} min {seconds} s; {len(outside)} outside of 93 to 97 %")


def _keep(rows: list[Row]) -> None:
    """Write the rows of a cell to the file, in the order of the cells."""
    others = read_rows(RESULTS) if RESULTS.exists() else []
    kept = [row for row in others if row.cell != rows[0].cell] + rows
    order = [cell.name for cell in CELLS]
    write_rows(sorted(kept, key=lambda row: order.index(row.cell)), RESULTS)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    names = ", ".join(cell.name for cell in CELLS).replace("%", "%%")
    parser.add_argument("cells", nargs="*", metavar="CELL", help=f"all, or some of {names}")
    parser.add_argument("--quick", action="store_true", help="few data sets; writes nothing")
    parser.add_argument("--again", action="store_true", help="the page from the rows of before")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of all data sets ({SEED})")
    arguments = parser.parse_args()
    if arguments.workers < 1 or arguments.seed < 0:
        parser.error("--workers is from 1 on, --seed from 0 on")
    try:
        cells_by_name(tuple(arguments.cells))
    except ValueError as error:
        parser.error(str(error))
    return arguments


if __name__ == "__main__":
    main()

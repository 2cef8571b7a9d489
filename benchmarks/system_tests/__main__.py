"""``python -m benchmarks.system_tests [--trials 12] [--workers 2] [--quick] [--page]``.

Simulates collections from four TREC collections under all assumptions, with 20, 50 and 100
topics, counts the errors of type I, II and III of the tests of :func:`vcomp.ir.compare_systems`,
and writes docs/explanation/system-tests.md with its figure. ``--page`` writes it from the kept
rows; ``--quick`` prints the tables of two trials and writes nothing.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import pandas as pd

from benchmarks.system_tests.page import page, write_page
from benchmarks.system_tests.run import KEPT, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.system_tests")
    parser.add_argument("--trials", type=int, default=12, help="collections of each kind")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--quick", action="store_true", help="two trials, written nowhere")
    parser.add_argument("--page", action="store_true", help="write the page from the kept rows")
    arguments = parser.parse_args()
    if arguments.quick:
        with tempfile.TemporaryDirectory() as folder:
            print(page(run(2, arguments.workers, Path(folder) / "rows.csv")))
        return
    if not arguments.page:
        run(arguments.trials, arguments.workers, KEPT)
    write_page(pd.read_csv(KEPT))


if __name__ == "__main__":
    main()

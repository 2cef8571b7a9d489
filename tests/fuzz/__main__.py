# ruff: noqa: E501
"""``python -m tests.fuzz``: run the fuzzers for hours, and go on where another run stopped."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.driver import run_case
from tests.fuzz.fuzzers import ALL
from tests.fuzz.long_run import run_long

GOALS = {
    "formulas": 200_000, "designs": 150_000, "costs": 150_000, "expressions": 150_000, "json": 50_000,
    "statistics": 30_000, "replicates": 30_000, "csv": 30_000, "parquet": 30_000, "trec": 50_000,
    "command": 10_000, "tables": 20_000, "fits": 100_000,
}  # fmt: skip
"""Cases of the long run: 900,000 of parsers, readers and files, 100,000 fits."""


def main() -> int:
    """Run the long run, or one case again."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--state", type=Path, default=Path("fuzz.json"), help="where counts are kept"
    )
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument(
        "--only", nargs="*", default=[f.name for f in ALL], help="names of fuzzers"
    )
    parser.add_argument("--case", type=int, help="run one case of the fuzzer, and show its error")
    given = parser.parse_args()
    chosen = [f for f in ALL if f.name in given.only]
    with tempfile.TemporaryDirectory(prefix="vcomp-fuzz-") as folder:
        if given.case is not None:
            print(run_case(chosen[0], given.case, Path(folder)) or "result")
            return 0
        found = run_long(chosen, given.state, Path(folder), GOALS, given.hours)
    for name, counts in found.items():
        print(
            f"{name:12} {counts.cases:8,} cases: {counts.result:,} results, {counts.refused:,} refused, "
            f"{counts.failed:,} failed, {counts.aborted:,} aborted below vcomp; {counts.seconds:,.0f} s, the slowest {counts.slowest:.1f} s"
        )
        for failure in counts.failures[:20]:
            print(f"    case {failure['case']}: {failure['error']} ({failure['where']})")
    return int(any(counts.failed for counts in found.values()))


if __name__ == "__main__":
    sys.exit(main())

"""``python -m benchmarks [--quick] [--json FILE] [NAME …]``."""

from __future__ import annotations

import argparse
import time
import warnings
from importlib import import_module
from pathlib import Path

import vcomp
from benchmarks.common import Report, Settings, crossed

NAMES = (
    *("parse", "read", "learn", "encode", "accumulate", "estimate", "label", "project", "rank"),
    *(
        "reliability",
        "allocation",
        "bootstrap",
        "refits",
        "incomplete",
        "studies",
        "import",
        "startup",
    ),
)
"""In the order of the pipeline."""

ON_REQUEST = ("cliffs", "costs", "engines", "peers", "switches")
"""What takes very long, and is run by name only."""


def main() -> None:
    arguments = _arguments()
    warnings.simplefilter("ignore", vcomp.VcompWarning)
    settings = Settings(
        quick=arguments.quick,
        limit=arguments.limit,
        gpboost=arguments.gpboost,
        most_rows=arguments.rows,
        data=tuple(arguments.data),
    )
    report, start = Report(), time.perf_counter()
    _compile()
    for name in arguments.names or NAMES:
        import_module(f"benchmarks.bench_{name}").run(report, settings)
    minutes, seconds = divmod(round(time.perf_counter() - start), 60)
    print(f"\n{len(report.comparisons)} comparisons in {minutes} min {seconds} s")
    if arguments.json is not None:
        report.write(arguments.json)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"all of {NAMES}, or some; and {ON_REQUEST}"
    )
    parser.add_argument("--quick", action="store_true", help="small data, below a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the comparisons")
    parser.add_argument(
        "--limit",
        type=float,
        metavar="SECONDS",
        help="processor time of one long fit (default 60; quick 10)",
    )
    parser.add_argument(
        "--gpboost", type=Path, metavar="PYTHON", help="peers: of an environment with GPBoost"
    )
    parser.add_argument(
        "--rows", type=int, default=1_000_000, metavar="N", help="peers: most rows of the data"
    )
    parser.add_argument(
        "--data", action="append", default=[], metavar="NAME", help="peers: only these data"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in (*NAMES, *ON_REQUEST)]
    if unknown:
        parser.error(
            f"there is no benchmark {unknown[0]!r}; there are {', '.join((*NAMES, *ON_REQUEST))}"
        )
    if arguments.limit is None:
        arguments.limit = 10.0 if arguments.quick else 60.0
    return arguments


def _compile() -> None:
    """Fit once, so that no kernel is compiled or loaded while the clock runs."""
    for method in ("reml", "anova"):
        vcomp.fit("y ~ (1|a) + (1|b) + (1|a:b)", crossed(400, 6, 10), method=method)


if __name__ == "__main__":
    main()

"""Processor time of calls after a fit of large crossed facets, in fits.

``python -m benchmarks.after_fit [--quick]`` fits two facets that meet at random and five
covariates, and times each call on a fit of its own, twice, as the first one compiles.
``after_fit.csv`` stores the ratios, and ``docs/explanation/how-it-scales.md`` has its table;
``--quick`` leaves out the larger data and stores nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import vcomp

STORED = Path(__file__).with_name("after_fit.csv")

SIZES = {100_000: 10_000, 1_000_000: 50_000}
"""Rows, and levels of each facet."""

_COVARIATES = 5

CALLS: dict[str, Callable[[Any, pd.DataFrame], Any]] = {
    '`conf_int(interval="robust")`': lambda fit, _: fit.conf_int(interval="robust"),
    '`universe_scores("a")`, with errors': lambda fit, _: fit.universe_scores("a"),
    '`test("a")`': lambda fit, _: fit.test("a"),
    "`get_prediction(rows)` of all rows, with errors": lambda fit, rows: fit.get_prediction(rows),
    "`profile()`, all components": lambda fit, _: fit.profile(),
    "`bootstrap(100)`": lambda fit, _: fit.bootstrap(100),
}


def crossed(n: int, levels: int) -> pd.DataFrame:
    """Return n rows of two facets a and b that meet at random."""
    rng = np.random.default_rng(n)
    a, b = rng.integers(0, levels, (2, n))
    X = rng.normal(size=(n, _COVARIATES))
    y = X @ np.linspace(0.1, 0.5, _COVARIATES) + rng.normal(size=n)
    y += 0.7 * rng.normal(size=levels)[a] + 0.5 * rng.normal(size=levels)[b]
    return pd.DataFrame({"y": y, "a": a, "b": b} | {f"x{j}": x for j, x in enumerate(X.T)})


def measured(n: int, levels: int) -> list[dict[str, Any]]:
    """Return processor seconds of each call divided by those of the fit before it."""
    rows = crossed(n, levels)
    formula = " + ".join(["y ~ (1|a) + (1|b)", *(f"x{j}" for j in range(_COVARIATES))])
    lines = []
    for name, call in CALLS.items():
        for _ in range(2):
            start = time.process_time()
            fit = vcomp.fit(formula, rows)
            seconds, start = time.process_time() - start, time.process_time()
            call(fit, rows)
            ratio = (time.process_time() - start) / seconds
        print(f"{n:,} rows, {name}: {ratio:.2g} fits of {seconds:.2g} s", flush=True)
        lines.append({"call": name, "rows": n, "fits": ratio})
    return lines


def table() -> str:
    """Return the stored ratios as a table of the page."""
    stored = pd.read_csv(STORED)
    lines = [f"| call | {' | '.join(f'{n:,} rows' for n in SIZES)} |", "|---" * 3 + "|"]
    for name, of_call in stored.groupby("call", sort=False):
        fits = of_call.set_index("rows")["fits"]
        lines.append(f"| {name} | {' | '.join(f'{fits[n]:.1g}' for n in SIZES)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and store the ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.after_fit", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the smaller data alone")
    quick = parser.parse_args().quick
    sizes = list(SIZES.items())[: 1 if quick else None]
    lines = [line for n, levels in sizes for line in measured(n, levels)]
    if not quick:
        pd.DataFrame(lines).to_csv(STORED, index=False, float_format="%.2g")


if __name__ == "__main__":
    main()

"""``python -m benchmarks.assumptions [--data-sets N] [DESIGN …]``: level of every test.

Data sets of every design and population are simulated and diagnosed; ``results.csv`` keeps the
share of tests with p at most .05, those of other designs as they are. The tables of
docs/howto/assumptions.md are made of it.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import vcomp
from vcomp.exceptions import VcompWarning

RESULTS = Path(__file__).resolve().parent / "results.csv"
DRAWS = 99

DESIGNS = {
    "8 × 12": ("y ~ (1|s) + (1|t)", (8, 12)),
    "20 × 50": ("y ~ (1|s) + (1|t)", (20, 50)),
    "20 × 30, 15 % missing": ("y ~ (1|s) + (1|t)", (20, 30)),
    "12 × 10 × 4": ("y ~ (1|s) + (1|t) + (1|a) + (1|s:t) + (1|s:a) + (1|t:a)", (12, 10, 4)),
    "30 batches of 2 to 6": ("y ~ (1|b)", (30,)),
    "12 × 5 pairs, nested": ("y ~ (1|b/c)", (12, 5, 2)),
}
"""Formula and sizes of each design."""

POPULATIONS = (
    "normal", "t5", "exponential", "uniform", "0/1", "unequal by s", "unequal by t",
)  # fmt: skip
"""Distribution of errors: of one variance (0/1: a fifth of them 1), or of variances that differ by
a log-normal factor."""


def data_set(name: str, population: str, rng: np.random.Generator) -> tuple[str, pd.DataFrame]:
    """Return the formula and the rows of one data set; effects are normal with variance 1."""
    formula, sizes = DESIGNS[name]
    if formula == "y ~ (1|b)":
        codes = {"b": np.repeat(np.arange(sizes[0]), rng.integers(2, 7, sizes[0]))}
    elif "/" in formula:
        b, c, _ = np.indices(sizes)
        codes = {"b": b.ravel(), "c": (b * sizes[1] + c).ravel()}
    else:
        codes = {k: v.ravel() for k, v in zip("sta", np.indices(sizes), strict=False)}
    frame = pd.DataFrame(codes)
    e = _errors(frame, population, rng)
    for term in vcomp.fit(formula, frame.assign(y=e)).vcomp.index[:-1]:
        groups = frame.groupby(term.split(":")).ngroup().to_numpy()
        e = e + rng.standard_normal(groups.max() + 1)[groups]
    frame["y"] = e
    if "missing" in name:
        frame = frame[rng.random(len(frame)) > 0.15]
    return formula, frame


def _errors(frame: pd.DataFrame, population: str, rng: np.random.Generator) -> Any:
    n = len(frame)
    if population == "t5":
        return rng.standard_t(5.0, n)
    if population == "exponential":
        return rng.standard_exponential(n) - 1.0
    if population == "uniform":
        return rng.random(n)
    if population == "0/1":
        return (rng.random(n) < 0.2).astype(float)
    e = rng.standard_normal(n)
    if population.startswith("unequal"):
        codes = frame[population[-1]].to_numpy()
        e *= np.exp(0.35 * rng.standard_normal(codes.max() + 1))[codes]
    return e


def study(name: str, population: str, data_sets: int) -> pd.DataFrame:
    """Return the share of rejections of every test."""
    rng = np.random.default_rng([len(name), len(population), 20_261_123])
    found = []
    for number in range(data_sets):
        formula, frame = data_set(name, population, rng)
        table = vcomp.fit(formula, frame).diagnose(n=DRAWS, rng=number).table
        found.append(table.set_index(["assumption", "of"])["p_value"] <= 0.05)
    shares = pd.concat(found, axis=1).astype(float).mean(axis=1).round(4)
    rejected = pd.DataFrame({"rejected": shares}).reset_index()
    return rejected.assign(design=name, population=population, data_sets=data_sets)


def main() -> None:
    """Run the study, and keep its results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.assumptions")
    parser.add_argument("designs", nargs="*", metavar="DESIGN")
    parser.add_argument("--data-sets", type=int, default=1_000)
    given = parser.parse_args()
    warnings.simplefilter("ignore", VcompWarning)
    for population in POPULATIONS:
        for name, (_, sizes) in DESIGNS.items():
            if given.designs and name not in given.designs:
                continue
            if len(sizes) != 2 and population != "normal":
                continue
            found = study(name, population, given.data_sets)
            if RESULTS.exists():
                kept = pd.read_csv(RESULTS)
                other = (kept["design"] != name) | (kept["population"] != population)
                found = pd.concat([kept[other], found])
            found.to_csv(RESULTS, index=False)


if __name__ == "__main__":
    main()

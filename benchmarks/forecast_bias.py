"""Bias of forecasts of tests between systems for twice the topics, where the truth is known.

``python -m benchmarks.forecast_bias [--error 0.004] [--most 1000] [POPULATION …]`` draws
collections of 25, 50 and 100 topics, forecasts measures of tests between systems for twice the
topics, and compares the mean forecast with the mean of as many new collections of that size.
Collections are drawn until the standard errors of all biases are small. ``forecast_bias.csv``
keeps a row for each population, measure and size; the table in docs/explanation/forecasts.md is
made of it. The populations are the systems of four TREC collections, with new topics from
simulators with all assumptions as found.
"""

from __future__ import annotations

import argparse
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bias_study.cells import COLLECTIONS, collection_path
from vcomp import ir
from vcomp._typing import FloatArray
from vcomp.exceptions import VcompWarning
from vcomp.ir.measures import (
    AveragePValue,
    FromSubsets,
    MajorConflicts,
    MinorConflicts,
    PowerRatio,
)
from vcomp.numerics.parallel import limited_blas
from vcomp.simulate import CollectionSimulator

RESULTS = Path(__file__).resolve().with_suffix(".csv")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "forecasts.md"
SIZES = (25, 50, 100)
_BATCH = 100
_SMALL = 0.02
_TRIALS = 4
"""Pairs of halves behind each conflict ratio."""

MEASURES: dict[str, FromSubsets] = {
    "power ratio": PowerRatio(),
    "power ratio, Wilcoxon": PowerRatio(test="wilcoxon"),
    "average p-value": AveragePValue(),
    "minor conflicts": MinorConflicts(),
    "major conflicts": MajorConflicts(),
}

Population = Callable[[np.random.Generator], Callable[[int], FloatArray]]
"""Makes the systems of one trial: a function that draws their scores on a number of topics."""


def populations() -> Iterator[tuple[str, Population]]:
    """Yield names of populations, and what draws from them."""
    for name in COLLECTIONS:
        simulator = ir.fit_collection(pd.read_csv(collection_path(name)), drop_worst=0.25)
        yield name, _of_simulator(simulator)


def _of_simulator(simulator: CollectionSimulator) -> Population:
    return lambda rng: lambda n: simulator.draw(n, rng)


def differences(
    population: Population, n: int, seed: int, error: float, most: int
) -> dict[str, FloatArray]:
    """Return forecasts and observed values of each measure, (collections, 2)."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in MEASURES}
    size = np.array([2.0 * n])
    for trial in range(most):
        draw = population(np.random.default_rng([seed, n, trial]))
        X, new, other = draw(n), draw(2 * n), draw(2 * n)
        matrix = ir.as_score_matrix(X)
        for name, m in MEASURES.items():
            forecast = float(m.estimate_of_matrix(matrix, size, trials=_TRIALS)[0])
            found[name].append((forecast, m.actual_of_scores(new, other)))
        if trial % _BATCH == _BATCH - 1 and max(map(_error, found.values())) <= error:
            break
    return {name: np.array(pairs) for name, pairs in found.items()}


def _error(pairs: Sequence[tuple[float, float]]) -> float:
    off = np.subtract(*np.transpose(pairs))
    return float(np.nanstd(off, ddof=1) / np.sqrt(np.isfinite(off).sum()))


def rows(
    population: Population, seed: int, error: float, most: int
) -> Iterator[dict[str, object]]:
    """Yield bias and standard error of each measure and number of topics."""
    for n in SIZES:
        for name, pairs in differences(population, n, seed, error, most).items():
            there = pairs[~np.isnan(pairs).any(axis=1)]
            yield {
                "measure": name,
                "n": n,
                "observed": there[:, 1].mean(),
                "bias": (there[:, 0] - there[:, 1]).mean(),
                "error": _error([(a, b) for a, b in there]),
                "collections": len(there),
            }


_HEAD = """# Forecasts of tests between systems

<!-- Written by `python -m benchmarks.forecast_bias --page`; change it there. -->

How many differences will be significant on twice the topics, and how small will p-values be? The
[measures](../howto/test-collections.md) of tests between systems answer by the noncentral t with
the components of a collection ([mathematics](mathematics.md), eq. 15.13). Where the truth is
known, their bias can be measured.

## What was run

Collections of n topics from simulators of four TREC collections, with all assumptions as found.
Each is forecast to 2n topics, and compared with a new collection of the same systems and size.
*Collections* is their number; those where a measure is undefined are left out. Seed 1.

## What was found

{found}

Bias of the mean forecast, with its standard error:
"""


def page(found: pd.DataFrame) -> str:
    """Return docs/explanation/forecasts.md."""
    text, measures = [], list(dict.fromkeys(found["measure"]))
    for measure in measures:
        rows_of = found[found["measure"] == measure].to_dict("records")
        worst = max(rows_of, key=lambda row: abs(row["bias"]))
        text.append(f"{measure} {_cell(worst)} ({worst['population']}, n = {worst['n']})")
    large = found[found["bias"].abs() >= _SMALL].to_dict("records")
    names = "; ".join(f"{r['measure']}, {r['population']}, n = {r['n']}" for r in large)
    verdict = f"All biases are below {_SMALL}" + (f", except: {names}." if large else ".")
    said = textwrap.fill(f"{verdict} The largest of each measure: {'; '.join(text)}.", 99)
    out = [_HEAD.format(found=said).rstrip() + "\n"]
    for measure in measures:
        few = found[found["measure"] == measure]
        out.append(f"\n### {measure[0].upper()}{measure[1:]}\n")
        out.append("| population | " + " | ".join(f"n = {n}" for n in SIZES) + " | collections |")
        out.append("|---|" + "---:|" * (len(SIZES) + 1))
        for population in dict.fromkeys(few["population"]):
            here = few[few["population"] == population].to_dict("records")
            counts = ", ".join(str(row["collections"]) for row in here)
            cells = " | ".join(_cell(row) for row in here)
            out.append(f"| {population} | {cells} | {counts} |")
    return "\n".join(out) + "\n"


def _cell(row: Mapping[Any, Any]) -> str:
    return f"{_signed(row['bias'])} ± {row['error']:.4f}"


def _signed(x: float) -> str:
    return f"{x:+.4f}".replace("-", "−")


def main() -> None:
    """Run the study, and keep its results: those of the populations named replace earlier ones."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast_bias")
    parser.add_argument("populations", nargs="*", metavar="POPULATION")
    parser.add_argument("--error", type=float, default=0.004)
    parser.add_argument("--most", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", action="store_true", help="write the page from the kept rows")
    given = parser.parse_args()
    if given.page:
        PAGE.write_text(page(pd.read_csv(RESULTS)), encoding="utf-8")
        return
    warnings.simplefilter("ignore", VcompWarning)
    with limited_blas(0):
        for name, population in populations():
            if given.populations and name not in given.populations:
                continue
            found = pd.DataFrame(rows(population, given.seed, given.error, given.most))
            found.insert(0, "population", name)
            print(found.round(4).to_string(index=False), flush=True)
            if RESULTS.exists():
                kept = pd.read_csv(RESULTS)
                found = pd.concat([kept[kept["population"] != name], found])
            found.round(6).to_csv(RESULTS, index=False)


if __name__ == "__main__":
    main()

"""Bias of forecasts of tests between systems for twice the topics, where the truth is known.

``python -m benchmarks.forecast_bias [--error 0.004] [--most 1000] [POPULATION …]`` draws
collections of 25, 50 and 100 topics, forecasts measures of tests between systems for twice the
topics, and compares the mean forecast with the mean of as many new collections of that size.
Collections are drawn until the standard error of the bias of the power ratio and the average
p-value is small; conflict ratios, which take long, are of the first of them only.
``forecast_bias.csv`` keeps a row for each population, measure and size; the table in
docs/explanation/forecasts.md is made of it. The populations are

- systems of four TREC collections, with new topics from simulators with all assumptions as found;
- 30 systems, new in each collection, with normal scores and 2 or 20 % of the variance of single
  scores (besides that of topics) due to systems.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.bias_study.cells import COLLECTIONS, collection_path
from vcomp import ir
from vcomp._typing import FloatArray
from vcomp.exceptions import VcompWarning
from vcomp.ir.measures import FromSubsets, get
from vcomp.numerics.memory import limited_blas

RESULTS = Path(__file__).resolve().with_suffix(".csv")
SIZES = (25, 50, 100)
SHARES = (0.02, 0.2)
_SYSTEMS = 30
_BATCH = 100
_SLOW = 40
"""Collections for conflict ratios."""

_TRIALS = 4
"""Pairs of halves behind each conflict ratio."""

MEASURES: dict[str, FromSubsets] = {
    "power ratio": get("power_ratio"),
    "power ratio, Wilcoxon": get("power_ratio", test="wilcoxon"),
    "average p-value": get("p_value"),
    "minor conflicts": get("minor_conflicts"),
    "major conflicts": get("major_conflicts"),
}

Population = Callable[[np.random.Generator], Callable[[int], FloatArray]]
"""Makes the systems of one trial: a function that draws their scores on a number of topics."""


def populations() -> Iterator[tuple[str, Population]]:
    """Yield names of populations, and what draws from them."""
    for name in COLLECTIONS:
        simulator = ir.fit_collection(pd.read_csv(collection_path(name)), drop_worst=0.25)
        yield name, _of_simulator(simulator)
    for share in SHARES:
        yield f"new systems, {100 * share:g} %", _of_components(share)


def _of_simulator(simulator: ir.CollectionSimulator) -> Population:
    return lambda rng: lambda n: simulator.draw(n, rng)


def _of_components(share: float) -> Population:
    def systems(rng: np.random.Generator) -> Callable[[int], FloatArray]:
        means = np.sqrt(share / (1.0 - share)) * rng.normal(size=_SYSTEMS)

        def draw(n: int) -> FloatArray:
            return np.asarray(means + rng.normal(size=(n, 1)) + rng.normal(size=(n, _SYSTEMS)))

        return draw

    return systems


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
            if m.n_sets == 1 or trial < _SLOW:
                forecast = float(m.estimate_of_matrix(matrix, size, trials=_TRIALS)[0])
                found[name].append((forecast, m.actual_of_scores(new, other)))
        if trial % _BATCH == _BATCH - 1:
            errors = [_error(found[name]) for name, m in MEASURES.items() if m.n_sets == 1]
            if max(errors) <= error:
                break
    return {name: np.array(pairs) for name, pairs in found.items()}


def _error(pairs: list[tuple[float, float]]) -> float:
    return float(np.std(np.subtract(*np.transpose(pairs)), ddof=1) / np.sqrt(len(pairs)))


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


def main() -> None:
    """Run the study, and keep its results: those of the populations named replace earlier ones."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast_bias")
    parser.add_argument("populations", nargs="*", metavar="POPULATION")
    parser.add_argument("--error", type=float, default=0.004)
    parser.add_argument("--most", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
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

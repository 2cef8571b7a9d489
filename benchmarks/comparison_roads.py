"""How often three comparisons of models reject where there is no difference.

``python -m benchmarks.comparison_roads [--trials 500]`` simulates scores of 12 models on 300 items
in 3 prompts and tests all pairs at 5 %, without correction: by paired t-tests of the means over
prompts, by paired t-tests in one prompt, and by ``compare_levels`` of a fit of all facets. The
models are equal over all prompts that could be written, over these three prompts, or in the first
prompt. 500 trials take about five minutes; the rates are kept in comparison_roads.csv and shown by
docs/howto/which-comparison.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import vcomp
from vcomp._typing import FloatArray
from vcomp.ir import compare_systems

KEPT = Path(__file__).with_suffix(".csv")

MODELS, ITEMS, PROMPTS = 12, 300, 3
COMPONENTS: Mapping[str, float] = {
    "item": 0.04, "prompt": 0.002, "item:prompt": 0.01, "model:item": 0.02,
    "model:prompt": 0.0007, "Residual": 0.05,
}  # fmt: skip
FORMULA = (
    "score ~ model + (1|item) + (1|prompt) + (1|item:prompt) + (1|model:item) + (1|model:prompt)"
)
EQUAL = ("over all prompts", "over these prompts", "in the first prompt")
ROADS = ("means", "one prompt", "all facets")


def drawn(equal: str, rng: np.random.Generator) -> FloatArray:
    """Return scores, (models, items, prompts), of models that are equal in one of three ways."""
    sd = {name: np.sqrt(value) for name, value in COMPONENTS.items()}
    of_prompts = sd["model:prompt"] * rng.standard_normal((MODELS, 1, PROMPTS))
    if equal == "over these prompts":
        of_prompts -= of_prompts.mean(axis=2, keepdims=True)
    elif equal == "in the first prompt":
        of_prompts -= of_prompts[:, :, :1]
    found: FloatArray = (
        of_prompts
        + sd["item"] * rng.standard_normal((1, ITEMS, 1))
        + sd["prompt"] * rng.standard_normal((1, 1, PROMPTS))
        + sd["item:prompt"] * rng.standard_normal((1, ITEMS, PROMPTS))
        + sd["model:item"] * rng.standard_normal((MODELS, ITEMS, 1))
        + sd["Residual"] * rng.standard_normal((MODELS, ITEMS, PROMPTS))
    )
    return found


def _all_facets(scores: FloatArray) -> FloatArray:
    model, item, prompt = np.indices(scores.shape).reshape(3, -1)
    names = np.array([f"m{k:02}" for k in range(MODELS)], dtype=object)
    data = pd.DataFrame(
        {"model": names[model], "item": item, "prompt": prompt, "score": scores.ravel()}
    )
    compared = vcomp.fit(FORMULA, data).compare_levels("model", correction="none")
    return compared.table["p_value"].to_numpy()


def _paired(matrix: FloatArray) -> FloatArray:
    return compare_systems(matrix.T, correction="none").table["p_value"].to_numpy()


TESTS: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "means": lambda scores: _paired(scores.mean(axis=2)),
    "one prompt": lambda scores: _paired(scores[:, :, 0]),
    "all facets": _all_facets,
}


def rates(trials: int, equal_in: Sequence[str] = EQUAL) -> pd.DataFrame:
    """Return the share of pairs that each comparison rejects at 5 %, with its standard error."""
    rows = []
    for equal in equal_in:
        found: dict[str, list[float]] = {road: [] for road in ROADS}
        for trial in range(trials):
            scores = drawn(equal, np.random.default_rng([EQUAL.index(equal), trial]))
            for road in ROADS:
                found[road].append(float((TESTS[road](scores) <= 0.05).mean()))
        for road, shares in found.items():
            error = float(np.std(shares, ddof=1) / np.sqrt(trials))
            rows.append((equal, road, trials, round(float(np.mean(shares)), 4), round(error, 4)))
    return pd.DataFrame(rows, columns=["equal", "road", "trials", "rejected", "std_error"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    made = rates(parser.parse_args().trials)
    made.to_csv(KEPT, index=False)
    print(made.to_string(index=False))

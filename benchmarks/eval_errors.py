"""Errors of comparisons of models on items and prompts, where the truth is known.

``python -m benchmarks.eval_errors [--data-sets 100] [--models 6] [--items 60] [--prompts 3]``
draws scores of models × items × prompts, 0/1 or with heavy tails (t with 3 degrees of freedom),
complete or with a fifth of the cells missing, of equal models or of different ones. All pairs are
tested by the mixed model of ``vcomp.evals.study`` (Tukey), by paired t-tests of the means over
prompts and by a bootstrap over items (both with Holm's correction). ``eval_errors.csv`` keeps a
row for each condition and method: the share of data sets with a false rejection, the share in
which all sets of ranks contain the true ranks, and the mean share of the different pairs that are
found.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

import vcomp
from vcomp._typing import FloatArray
from vcomp.inference.pairwise import adjusted

RESULTS = Path(__file__).resolve().with_suffix(".csv")
TERMS = ("item", "prompt", "model:item", "model:prompt", "item:prompt")
FORMULA = f"score ~ C(model) + {' + '.join(f'(1|{term})' for term in TERMS)}"
STEP = 0.5
"""Logits, or scores, between neighbours of models that differ."""

Found = tuple[FloatArray, FloatArray]
"""Differences of all pairs, and adjusted p-values."""


def drawn(
    rng: np.random.Generator, kind: str, sizes: tuple[int, int, int], step: float, missing: float
) -> FloatArray:
    """Return scores (models, items, prompts), nan where a cell is missing."""
    k, n, p = sizes
    y = step * np.arange(k)[:, None, None] + rng.normal(size=(1, n, 1))
    y = y + 0.4 * rng.normal(size=(k, 1, p)) + 0.7 * rng.normal(size=(k, n, 1))
    y = y + 0.2 * rng.normal(size=(1, 1, p))
    if kind == "0/1":
        scores = (rng.random(sizes) < 1.0 / (1.0 + np.exp(step * (k - 1) / 2.0 - y))).astype(float)
    else:
        scores = y + rng.standard_t(3, size=sizes)
    scores[rng.random(sizes) < missing] = np.nan
    return scores


def by_mixed_model(scores: FloatArray) -> Found:
    """Return Tukey's tests of the model with all sampled facets."""
    m, i, p = (of.ravel() for of in np.indices(scores.shape))
    data = pd.DataFrame({"model": m, "item": i, "prompt": p, "score": scores.ravel()}).dropna()
    table = vcomp.fit(FORMULA, data).compare_levels("model", "tukey").table
    return table["difference"].to_numpy(), table["p_adjusted"].to_numpy()


def by_paired_t(scores: FloatArray) -> Found:
    """Return paired t-tests of the means over prompts, with Holm's correction."""
    d = _of_items(scores)
    test = stats.ttest_1samp(d, 0.0, axis=1, nan_policy="omit")
    return np.nanmean(d, axis=1), adjusted(np.asarray(test.pvalue), "holm")


def by_bootstrap(scores: FloatArray, draws: int = 2000) -> Found:
    """Return tests by a bootstrap of items, of the means over prompts, with Holm's correction."""
    d = _of_items(scores)
    rng, known = np.random.default_rng(0), ~np.isnan(d)
    weights = rng.multinomial(d.shape[1], np.full(d.shape[1], 1.0 / d.shape[1]), size=draws)
    means = (weights @ np.where(known, d, 0.0).T) / np.maximum(weights @ known.T, 1)
    below = (means <= 0.0).mean(axis=0)
    p = np.clip(2.0 * np.minimum(below, 1.0 - below), 1.0 / draws, 1.0)
    return np.nanmean(d, axis=1), adjusted(p, "holm")


def _of_items(scores: FloatArray) -> FloatArray:
    """Return differences of all pairs by item, averaged over prompts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an item without any score
        means = np.nanmean(scores, axis=2)
    first, second = np.triu_indices(len(scores), 1)
    return np.asarray(means[first] - means[second])


METHODS = {"mixed model": by_mixed_model, "paired t": by_paired_t, "bootstrap": by_bootstrap}


def judged(found: Found, k: int, step: float) -> tuple[bool, bool, float]:
    """Return whether a rejection is false, whether sets of ranks cover, and the share found."""
    first, second = np.triu_indices(k, 1)
    difference, p = found
    rejected = p <= 0.05
    true = step * (first - second)
    wrong = rejected & (np.sign(difference) != np.sign(true))
    worse = np.zeros((k, k), dtype=bool)
    worse[first, second] = rejected & (difference < 0.0)
    worse[second, first] = rejected & (difference > 0.0)
    low, high = 1 + worse.sum(axis=1), k - worse.sum(axis=0)
    ranks = np.arange(k, 0, -1) if step else None
    # Equal models have all ranks, of which any set must contain each.
    covers = (
        bool((low == 1).all() and (high == k).all())
        if ranks is None
        else bool(((low <= ranks) & (ranks <= high)).all())
    )
    share = float((rejected & ~wrong).mean()) if step else np.nan
    return bool(wrong.any()), covers, share


def rows(args: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield a row for each condition and method."""
    sizes = (args.models, args.items, args.prompts)
    for kind, missing, step in itertools.product(("0/1", "t"), (0.0, 0.2), (0.0, STEP)):
        rng = np.random.default_rng(1)
        results: dict[str, list[tuple[bool, bool, float]]] = {name: [] for name in METHODS}
        for _ in range(args.data_sets):
            scores = drawn(rng, kind, sizes, step, missing)
            for name, method in METHODS.items():
                results[name].append(judged(method(scores), args.models, step))
        for name, found in results.items():
            false, covered, share = np.array(found, dtype=float).mean(axis=0)
            yield {
                "scores": kind, "missing": missing, "step": step, "method": name,
                "models": args.models, "items": args.items, "prompts": args.prompts,
                "data_sets": args.data_sets, "false": false, "covered": covered, "found": share,
            }  # fmt: skip


def main() -> None:
    """Run the conditions, and keep their rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("data-sets", 100), ("models", 6), ("items", 60), ("prompts", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        table = pd.DataFrame(list(rows(args)))
    table.to_csv(RESULTS, index=False, float_format="%.4g")
    print(table.to_string())


if __name__ == "__main__":
    main()

"""Errors of comparisons of models on items and prompts, where the truth is known.

``python -m benchmarks.eval_errors [--data-sets 1000] [--peers]``
draws scores of models × items × prompts, 0/1, graded (1 to 5) or with heavy tails (t with 3
degrees of freedom), complete or with a fifth of the cells missing, of equal models or of
different ones. All pairs are tested by ``vcomp.evals.study``, by its mixed model with one error of
all pairs (Tukey) and with an error of each pair (Holm's correction), by
paired t-tests of the means over prompts and a bootstrap over items (both with Holm's
correction), and by Tukey's test without items. ``eval_errors.csv`` keeps a row for each
condition and method: the share of data sets with a false rejection, the share in which all sets
of ranks contain the true ranks, and the mean share of the different pairs that are found.
``--peers`` adds rows of evalstats, if it is installed, of complete scores in one layout.
Conditions that the file has are not run again. 40 models take long, so that they have fewer data
sets: the file has the number of each condition.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

import vcomp
from vcomp._typing import FloatArray
from vcomp.inference.pairwise import adjusted

RESULTS = Path(__file__).resolve().with_suffix(".csv")
ITEMS = 60
STEP = 0.5
"""Logits, or scores, between neighbours of models that differ."""

LAYOUTS = ((2, 2), *itertools.product((2, 6, 12, 40), (1, 3, 5)))
"""Models and prompts."""

COMPARED = (2, 3), (6, 3), (12, 3)
"""Layouts in which models also differ."""

OF_PEERS = 6, 3
"""The layout in which packages that take long are run."""


class Condition(NamedTuple):
    """How scores are drawn.

    Attributes
    ----------
    scores : ``"0/1"``, ``"graded"`` or ``"t"``
    missing : share of the cells
    step : between neighbours, 0 of equal models
    models, prompts : numbers of them
    """

    scores: str
    missing: float
    step: float
    models: int
    prompts: int


Found = tuple[FloatArray, FloatArray]
"""Differences of all pairs, and adjusted p-values."""

Method = Callable[[FloatArray], Found]


def conditions() -> list[Condition]:
    """Return what is simulated, the fastest first."""
    layouts = [(0.0, *of) for of in LAYOUTS] + [(STEP, *of) for of in COMPARED]
    found = [
        Condition(kind, missing, *layout)
        for layout, missing in itertools.product(layouts, (0.0, 0.2))
        for kind in ("0/1", "graded", "t")
    ]
    return sorted(found, key=most, reverse=True)


def most(of: Condition) -> int:
    """Return the largest number of data sets of a condition, by the time that each takes."""
    if of.models == 40:
        return 50 if of.missing else 100
    if (of.models, of.prompts, of.step) == (2, 3, 0.0):
        return 1000
    return 400 if of.models == 2 else 200


def drawn(rng: np.random.Generator, of: Condition, n: int = ITEMS) -> FloatArray:
    """Return scores (models, items, prompts), nan where a cell is missing."""
    k, p, step = of.models, of.prompts, of.step
    y = step * (np.arange(k)[:, None, None] - (k - 1) / 2.0) + rng.normal(size=(1, n, 1))
    # What models make of a single prompt is their difference, as no other is known.
    y = y + 0.4 * (p > 1) * rng.normal(size=(k, 1, p)) + 0.7 * rng.normal(size=(k, n, 1))
    y = y + 0.2 * rng.normal(size=(1, 1, p))
    if of.scores == "0/1":
        scores = (rng.random(y.shape) < 1.0 / (1.0 + np.exp(-y))).astype(float)
    elif of.scores == "graded":
        scores = np.clip(np.round(3.0 + 0.7 * (y + rng.normal(size=y.shape))), 1.0, 5.0)
    else:
        scores = y + rng.standard_t(3, size=y.shape)
    scores[rng.random(y.shape) < of.missing] = np.nan
    return scores


def by_study(scores: FloatArray) -> Found:
    """Return the tests that a study makes."""
    return _tested(vcomp.evals.study(_long(scores)).comparisons)


def by_own_errors(scores: FloatArray) -> Found:
    """Return t-tests with an error of each pair, in facets of enough levels, and Holm's method."""
    return _tested(vcomp.evals.study(_long(scores), cov_type="robust").comparisons)


def _tested(comparisons: Any) -> Found:
    return comparisons.table["difference"].to_numpy(), comparisons.table["p_adjusted"].to_numpy()


def by_mixed_model(scores: FloatArray) -> Found:
    """Return Tukey's tests of the model with all sampled facets and one error of all pairs."""
    terms = ["item", "prompt", "model:item", "model:prompt", "item:prompt"]
    terms = [t for t in terms if scores.shape[2] > 1 or t == "item"]
    formula = f"score ~ C(model) + {' + '.join(f'(1|{term})' for term in terms)}"
    fit = vcomp.fit(formula, _long(scores))
    return _tested(fit.compare_levels("model", "tukey", ddf="unbounded"))


def _long(scores: FloatArray) -> pd.DataFrame:
    m, i, p = (of.ravel() for of in np.indices(scores.shape))
    return pd.DataFrame({"model": m, "item": i, "prompt": p, "score": scores.ravel()}).dropna()


def by_paired_t(scores: FloatArray) -> Found:
    """Return paired t-tests of the means over prompts, with Holm's correction.

    The leaderboard of errorbars has the same.
    """
    d = _of_items(scores)
    n, mean = (~np.isnan(d)).sum(axis=1), np.nanmean(d, axis=1)
    t = np.abs(mean) / (np.nanstd(d, axis=1, ddof=1) / np.sqrt(n))
    return mean, adjusted(2.0 * stats.t.sf(t, n - 1), "holm")


def by_bootstrap(scores: FloatArray, draws: int = 2000) -> Found:
    """Return tests by a bootstrap of items, of the means over prompts, with Holm's correction."""
    d = _of_items(scores)
    rng, known = np.random.default_rng(0), ~np.isnan(d)
    weights = rng.multinomial(d.shape[1], np.full(d.shape[1], 1.0 / d.shape[1]), size=draws)
    means = (weights @ np.where(known, d, 0.0).T) / np.maximum(weights @ known.T, 1)
    below = (means <= 0.0).mean(axis=0)
    p = np.clip(2.0 * np.minimum(below, 1.0 - below), 1.0 / draws, 1.0)
    return np.nanmean(d, axis=1), adjusted(p, "holm")


def by_tukey(scores: FloatArray) -> Found:
    """Return Tukey's test of the means over prompts without items; ranx has the same."""
    means = _over_prompts(scores)
    n = (~np.isnan(means)).sum(axis=1)
    df = int(n.sum()) - len(means)
    within = np.nansum((means - np.nanmean(means, axis=1, keepdims=True)) ** 2) / df
    first, second = np.triu_indices(len(scores), 1)
    difference = np.nanmean(means, axis=1)[first] - np.nanmean(means, axis=1)[second]
    statistic = np.abs(difference) / np.sqrt(within * (1.0 / n[first] + 1.0 / n[second]) / 2.0)
    # The quantile of hundreds of degrees of freedom changes little within ten.
    limit = _limit(len(scores), df if df < 300 else round(df, -1))
    return difference, np.where(statistic > limit, 0.0, 1.0)


@cache
def _limit(k: int, df: int) -> float:
    return float(stats.studentized_range.isf(0.05, k, df))


def by_evalstats(scores: FloatArray) -> Found:
    """Return the comparison of evalstats with its defaults."""
    import evalstats  # type: ignore[import-not-found]

    table = _long(scores)
    table[["model", "item", "prompt"]] = table[["model", "item", "prompt"]].astype(str)
    found = evalstats.compare(evalstats.load_from(table), factors="model").to_frame()["pairwise"]
    pairs = {
        (int(of.a), int(of.b)): (float(of.diff), float(of.p_value)) for of in found.itertuples()
    }
    ordered = []
    for i, j in itertools.combinations(range(len(scores)), 2):
        difference, p = pairs[i, j] if (i, j) in pairs else pairs[j, i]
        ordered.append((difference if (i, j) in pairs else -difference, p))
    differences, p_values = np.array(ordered).T
    return differences, p_values


def _of_items(scores: FloatArray) -> FloatArray:
    """Return differences of all pairs by item, averaged over prompts."""
    means = _over_prompts(scores)
    first, second = np.triu_indices(len(scores), 1)
    return np.asarray(means[first] - means[second])


def _over_prompts(scores: FloatArray) -> FloatArray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an item without any score
        return np.asarray(np.nanmean(scores, axis=2))


METHODS = {
    "study": by_study,
    "own errors": by_own_errors,
    "mixed model": by_mixed_model,
    "paired t": by_paired_t,
    "bootstrap": by_bootstrap,
    "Tukey without items": by_tukey,
}
PEERS = {"evalstats": by_evalstats}


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


def rows(of: Condition, methods: Mapping[str, Method], n: int) -> Iterator[dict[str, object]]:
    """Yield a row for each method, of the same data sets."""
    # Each condition has draws of its own, so that their errors are independent.
    rng = np.random.default_rng(zlib.crc32(repr(tuple(of)).encode()))
    results: dict[str, list[tuple[bool, bool, float]]] = {name: [] for name in methods}
    for _ in range(n):
        scores = drawn(rng, of)
        for name, method in methods.items():
            results[name].append(judged(method(scores), of.models, of.step))
    for name, found in results.items():
        false, covered, share = np.array(found, dtype=float).mean(axis=0)
        yield {
            **of._asdict(), "items": ITEMS, "method": name, "data_sets": n,
            "false": false, "covered": covered, "found": share,
        }  # fmt: skip


def main() -> None:
    """Run the conditions that are not in the file, and keep their rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-sets", type=int, default=1000)
    parser.add_argument("--peers", action="store_true")
    args = parser.parse_args()
    methods = PEERS if args.peers else METHODS
    table = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=["method"])
    for of in conditions():
        if args.peers and (of.missing or (of.models, of.prompts) != OF_PEERS):
            continue
        same = pd.Series(True, table.index)
        for name, value in of._asdict().items():
            same &= table[name] == value if name in table else False
        lacking = {m: methods[m] for m in methods if m not in set(table.loc[same, "method"])}
        if not lacking:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", vcomp.VcompWarning)
            found = pd.DataFrame(list(rows(of, lacking, min(args.data_sets, most(of)))))
        table = pd.concat([table, found])
        table.to_csv(RESULTS, index=False, float_format="%.4g")
        print(table.tail(len(lacking)).to_string(header=False), flush=True)


if __name__ == "__main__":
    main()

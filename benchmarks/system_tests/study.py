"""Simulate collections with equal and with observed true means, and count the errors of tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from benchmarks.bias_study.cells import COLLECTIONS, Part, collection_path
from vcomp import ir
from vcomp._typing import BoolArray, FloatArray
from vcomp.inference.pairwise import CorrectionName, adjusted
from vcomp.ir.pair_tests import PairOptions
from vcomp.ir.system_comparison import SystemTest, outcome_of
from vcomp.numerics import limited_blas, stream
from vcomp.simulate import CollectionSimulator

SIZES = (20, 50, 100)
LEVELS = (0.01, 0.05)
N_SYSTEMS = 20
REPLICATES = 999
SEED = 20190721

SINGLE: tuple[SystemTest, ...] = ("t", "wilcoxon", "sign", "permutation", "bootstrap")
JOINT: tuple[SystemTest, ...] = ("tukey", "randomised_tukey")
CORRECTED: tuple[SystemTest, ...] = ("t", "wilcoxon", "sign")
"""Tests whose p-values are small enough for a correction with so many replicates."""

CORRECTIONS: tuple[CorrectionName, ...] = ("bonferroni", "holm", "fdr_bh")


TRUTHS = ("equal", "half", "observed")
"""All true means are equal; those of every second system are; all are those of the collection."""

COUNTS = ("nulls", "false", "false_squared", "any_false", "false_share", "found", "wrong_sign")
"""Sums over collections: pairs of equal means, of these rejected, the square of their share,
whether there is any, and their share of all rejections; other pairs rejected with the right sign,
and with the wrong one."""


@dataclass(frozen=True, slots=True)
class Truth:
    """A simulator and what is true of its systems.

    Attributes
    ----------
    simulator : of one collection under one set of assumptions
    differences : (n_pairs,) true differences; exactly zero where means are equal
    """

    simulator: CollectionSimulator
    differences: FloatArray


@cache
def _matrix(collection: int) -> ir.ScoreMatrix:
    """Return every second or so of the better three quarters of the systems: N_SYSTEMS of them."""
    scores = pd.read_csv(collection_path(COLLECTIONS[collection]))
    matrix = ir.as_score_matrix(scores).drop_worst(0.25)
    order = np.argsort(-matrix.scores.mean(axis=0), kind="stable")
    chosen = order[np.linspace(0, len(order) - 1, N_SYSTEMS).round().astype(int)]
    return matrix.select(systems=[matrix.systems[s] for s in chosen])


def truth_of(part: Part, truth: str) -> Truth:
    """Return the simulator of a part with the true means of one of :data:`TRUTHS`."""
    normal, homoscedastic, uncorrelated, random = part.assumptions
    matrix = _matrix(part.collection)
    means = matrix.scores.mean(axis=0)
    alike = {"equal": slice(None), "half": slice(None, None, 2), "observed": slice(0)}[truth]
    means[alike] = means[alike].mean() if truth != "observed" else 0.0
    simulator = ir.fit_collection(
        matrix,
        margins="normal" if normal else "kernel",
        heteroscedasticity=float(not homoscedastic),
        correlation=float(not uncorrelated),
        random_sampling=random,
        means="observed" if truth == "observed" else means,
    )
    i, j = np.triu_indices(means.size, 1)
    differences = simulator.means[i] - simulator.means[j]
    is_alike = np.zeros(means.size, dtype=bool)
    is_alike[alike] = True
    differences[is_alike[i] & is_alike[j]] = 0.0
    return Truth(simulator, differences)


def rows_of(part: Part, trials: int) -> Iterator[dict[str, object]]:
    """Yield a row for each truth, size, test, correction and level: sums over the trials."""
    for truth in TRUTHS:
        made = truth_of(part, truth)
        for n_topics in SIZES:
            sums: dict[tuple[str, str, float], FloatArray] = {}
            for trial in range(trials):
                rng = stream(SEED, (trial * 64 + part.number) * 1000 + n_topics)
                with limited_blas(0):
                    X = made.simulator.draw(n_topics, rng)
                    for key, counts in _errors(X, made.differences):
                        sums[key] = sums.get(key, np.zeros(len(COUNTS))) + counts
            for (test, correction, alpha), counts in sums.items():
                yield {
                    "collection": COLLECTIONS[part.collection],
                    "assumptions": "".join("FT"[held] for held in part.assumptions),
                    "truth": truth,
                    "n_topics": n_topics,
                    "test": test,
                    "correction": correction,
                    "alpha": alpha,
                    "trials": trials,
                    **dict(zip(COUNTS, counts.tolist(), strict=True)),
                }


def _errors(
    X: FloatArray, true: FloatArray
) -> Iterator[tuple[tuple[str, str, float], FloatArray]]:
    """Yield for each test, correction and level what it got right and wrong in one collection."""
    i, j = np.triu_indices(X.shape[1], 1)
    means = X.mean(axis=0)
    observed = np.sign(means[i] - means[j])
    how = PairOptions(n=REPLICATES, progress=False)
    for test in (*SINGLE, *JOINT):
        p = outcome_of(X, test, how).p_values
        corrections: tuple[CorrectionName, ...] = ("none",)
        if test in CORRECTED:
            corrections += CORRECTIONS
        for correction in corrections:
            p_adjusted = adjusted(p, correction)
            for alpha in LEVELS:
                key = (test, correction, alpha)
                yield key, _counted(p_adjusted <= alpha, observed, true)


def _counted(rejected: BoolArray, observed: FloatArray, true: FloatArray) -> FloatArray:
    null = true == 0.0
    n_nulls, n_false = int(null.sum()), int((rejected & null).sum())
    right = rejected & ~null & (observed == np.sign(true))
    wrong = rejected & ~null & (observed == -np.sign(true))
    share = n_false / n_nulls if n_nulls else 0.0
    of_rejected = n_false / int(rejected.sum()) if rejected.any() else 0.0
    counts = [n_nulls, n_false, share * share, n_false > 0, of_rejected, right.sum(), wrong.sum()]
    return np.array(counts, dtype=float)

"""How often the tests of an assessor study reject where their effect is not there.

``python -m benchmarks.assessor_levels [--data-sets 150] [TRUTH …]`` simulates scores of systems on
topics, each judged by its author and a second assessor from a pool of eight, and counts the
rejections at 5 % and the verdicts of :func:`vcomp.assessor_study`. ``assessor_levels.csv`` keeps
them, and the table in docs/howto/assessors.md is made of it.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import vcomp
from vcomp.exceptions import VcompWarning
from vcomp.numerics.memory import limited_blas

RESULTS = Path(__file__).resolve().with_suffix(".csv")
TRUTHS = ("idiosyncratic", "roles", "individuals")
SIZES = ((10, 20),)
"""Systems and topics."""

POPULATIONS = ("normal", "exponential")


def data_set(
    truth: str, sizes: tuple[int, int], population: str, rng: np.random.Generator
) -> pd.DataFrame:
    """Return scores of one data set: effects of systematic error only where they are true."""
    k, n = sizes
    pool = 8

    def effects(sd: float, *shape: int) -> np.ndarray:
        drawn = rng.normal(size=shape) if population == "normal" else rng.exponential(size=shape)
        return np.asarray(sd * (drawn - (population == "exponential")))

    system, topic, second = (a.ravel() for a in np.indices((k, n, 2)))
    judge = np.array([rng.permutation(pool)[:2] for _ in range(n)])[topic, second]
    y = 0.3 + effects(0.08, k)[system] + effects(0.12, n)[topic]
    y += effects(0.10, k, n)[system, topic] + effects(0.03, n, 2)[topic, second]
    y += effects(0.03, system.size)
    if truth == "roles":
        y += 0.05 * second + effects(0.02, k, 2)[system, second]
    if truth == "individuals":
        y += effects(0.04, pool)[judge] + effects(0.02, k, pool)[system, judge]
    roles = np.where(second == 1, "second", "author")
    return pd.DataFrame(
        {"system": system, "topic": topic, "assessor": judge, "role": roles, "score": y}
    )


def study(truth: str, sizes: tuple[int, int], population: str, data_sets: int) -> pd.DataFrame:
    """Return the share of rejections of each test, and of each verdict."""
    rng = np.random.default_rng([TRUTHS.index(truth), *sizes, len(population)])
    counts: dict[str, int] = {}
    for _ in range(data_sets):
        found = vcomp.assessor_study(data_set(truth, sizes, population, rng))
        rejected = [str(name) for name, p in found.tests["p_value"].items() if p <= 0.05]
        for name in [*(f"test: {r}" for r in rejected), f"verdict: {found.verdict}"]:
            counts[name] = counts.get(name, 0) + 1
    shares = pd.Series(counts).sort_index() / data_sets
    rows = shares.round(4).rename_axis("outcome").rename("share").reset_index()
    rows.insert(0, "data_sets", data_sets)
    rows.insert(0, "population", population)
    rows.insert(0, "size", f"{sizes[0]} × {sizes[1]}")
    rows.insert(0, "truth", truth)
    return rows


def main() -> None:
    """Run the study, and keep its results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.assessor_levels")
    parser.add_argument("truths", nargs="*", metavar="TRUTH")
    parser.add_argument("--data-sets", type=int, default=150)
    given = parser.parse_args()
    warnings.simplefilter("ignore", VcompWarning)
    parts = []
    with limited_blas(0):
        for population in POPULATIONS:
            for truth in given.truths or TRUTHS:
                for sizes in SIZES:
                    parts.append(study(truth, sizes, population, given.data_sets))
                    pd.concat(parts).to_csv(RESULTS, index=False)


if __name__ == "__main__":
    main()

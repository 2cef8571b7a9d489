"""``python -m benchmarks.assessor_errors [--data-sets N]``: level of the tests of assessor_study.

Scores of systems on topics, each judged by two of several individuals in two roles, are simulated
with some of the effects, and studied. ``assessor_errors.csv`` keeps how often each question is
answered with p at most .05. A test whose effect is absent should reject 5 % of the data sets. The
table of docs/howto/assessors.md is made of it.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import vcomp
from vcomp.exceptions import VcompWarning

RESULTS = Path(__file__).resolve().parent / "assessor_errors.csv"

DESIGNS = {"10 × 15, 4": (10, 15, 4), "20 × 30, 8": (20, 30, 8)}
"""Numbers of systems, topics and individuals."""

TRUTHS = {
    "the single assessment": (0.0, 0.0, 0.02),
    "and roles": (0.03, 0.0, 0.02),
    "and individuals": (0.0, 0.03, 0.02),
    "roles, individuals": (0.03, 0.03, 0.0),
}
"""Standard deviations of the effects of roles, of individuals and of single assessments."""

ABSENT = {
    "the single assessment": ("roles", "individuals", "either"),
    "and roles": ("individuals",),
    "and individuals": ("roles",),
    "roles, individuals": ("idiosyncratic",),
}
"""Questions whose answer is no."""


def scores_of(design: str, truth: str, rng: np.random.Generator) -> pd.DataFrame:
    """Return simulated scores; an effect moves all scores, and those of each system."""
    n_systems, n_topics, pool = DESIGNS[design]
    of_roles, of_individuals, of_assessments = TRUTHS[truth]
    system, topic, role = (a.ravel() for a in np.indices((n_systems, n_topics, 2)))
    judges = np.array([rng.permutation(pool)[:2] for _ in range(n_topics)])
    judge = judges[topic, role]

    def effects(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape)

    score = (
        0.08 * effects(n_systems)[system]
        + 0.12 * effects(n_topics)[topic]
        + 0.10 * effects(n_systems, n_topics)[system, topic]
        + of_roles * (effects(2)[role] + effects(n_systems, 2)[system, role])
        + of_individuals * (effects(pool)[judge] + effects(n_systems, pool)[system, judge])
        + of_assessments * effects(n_topics, 2)[topic, role]
        + 0.03 * effects(system.size)
    )
    return pd.DataFrame(
        {"system": system, "topic": topic, "role": role, "assessor": judge, "score": score}
    )


def study(design: str, truth: str, data_sets: int) -> pd.DataFrame:
    """Return how often each question is answered with p at most .05."""
    rng = np.random.default_rng([*DESIGNS[design], list(TRUTHS).index(truth)])
    found = []
    for _ in range(data_sets):
        made = vcomp.ir.assessor_study(scores_of(design, truth, rng))
        found.append(made.tests["p_value"] <= 0.05)
    shares = pd.concat(found, axis=1).astype(float).mean(axis=1).round(4)
    table = pd.DataFrame({"question": shares.index, "rejected": shares.to_numpy()})
    table["absent"] = table["question"].isin(ABSENT[truth])
    return table.assign(design=design, truth=truth, data_sets=data_sets)


def main() -> None:
    """Run the study, and keep its results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.assessor_errors")
    parser.add_argument("--data-sets", type=int, default=200)
    given = parser.parse_args()
    warnings.simplefilter("ignore", VcompWarning)
    for design in DESIGNS:
        for truth in TRUTHS:
            found = study(design, truth, given.data_sets)
            if RESULTS.exists():
                kept = pd.read_csv(RESULTS)
                other = (kept["design"] != design) | (kept["truth"] != truth)
                found = pd.concat([kept[other], found])
            found.to_csv(RESULTS, index=False)


if __name__ == "__main__":
    main()

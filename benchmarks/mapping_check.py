"""Curves from Eρ² and Φ to other indicators, judged on simulated collections that are left out.

``python -m benchmarks.mapping_check [--collections 24] [--trials 10] [--seed 1]`` simulates
collections that differ in numbers of systems and topics, in their variance components and in the
form of scores, fits curves to all but one, and predicts its points. The numbers are those of
docs/howto/test-collections.md, of 16 collections and 5 trials, which take about a minute.
"""

from __future__ import annotations

import argparse

import numpy as np

from vcomp._typing import FloatArray
from vcomp.ir import fit_mapping, validate_mapping

INDICATORS = ("tau", "tau_ap", "power_ratio", "rmse")


def collection(rng: np.random.Generator) -> FloatArray:
    """Return topics × systems between 0 and 1, with effects that are normal or skewed."""
    topics, systems = int(rng.integers(60, 161)), int(rng.integers(15, 101))
    share = rng.uniform(0.15, 0.4), rng.uniform(0.2, 0.6)
    skewed = rng.random() < 0.5

    def effects(*shape: int) -> FloatArray:
        normal = rng.normal(size=shape)
        return np.asarray(rng.exponential(size=shape) - 1.0 if skewed else normal)

    of_systems = np.sqrt(share[0]) * rng.normal(size=systems)
    rest = 1.0 - share[0]
    of_topics = np.sqrt(rest * share[1]) * effects(topics, 1)
    error = np.sqrt(rest * (1.0 - share[1])) * effects(topics, systems)
    return np.asarray(1.0 / (1.0 + np.exp(1.0 - (of_systems + of_topics + error))))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--collections", type=int, default=24)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    made = {f"simulated {k}": collection(rng) for k in range(1, given.collections + 1)}
    study = fit_mapping(
        made, INDICATORS, trials=given.trials, drop_worst=0.0, rng=given.seed, progress=False
    )
    found = validate_mapping(study)
    print(found.round(4).to_string(index=False))
    for name, curve in study.maps.items():
        print(name, curve.nobs, "points, exponent", round(curve.exponent, 3))


if __name__ == "__main__":
    main()

"""Make `gauge`: a simulated gauge study, 10 parts measured 3 times by each of 3 operators.

Run ``python tools/datasets/gauge.py`` from the root of the repository. It needs numpy, and writes
``vcomp/data/shipped/gauge.csv``. Nothing was measured: every result is drawn with a fixed seed.

Design
    Each of 3 operators measures each of 10 parts in 3 trials: part × operator, with replicates.

Result
    A length in mm with three decimals: `MEAN`, and effects of the part, of the part with the
    operator and of the trial, normal with the standard deviations in `SD`. Those of the operators
    are set (`OPERATORS`), since there are few of them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

OUTPUT = Path(__file__).parents[2] / "vcomp" / "data" / "shipped" / "gauge.csv"
SEED = 4
N_PARTS, N_TRIALS = 10, 3
MEAN = 20.0
OPERATORS = {"A": -0.008, "B": 0.002, "C": 0.006}
SD = {"part": 0.06, "part:operator": 0.006, "trial": 0.009}


def main(output: Path = OUTPUT) -> None:
    """Draw the effects, and write the results."""
    rng = np.random.default_rng(SEED)
    result = MEAN + rng.normal(scale=SD["part"], size=(N_PARTS, 1, 1))
    result = result + np.array(list(OPERATORS.values()))[:, None]
    result = result + rng.normal(scale=SD["part:operator"], size=(N_PARTS, len(OPERATORS), 1))
    result = result + rng.normal(scale=SD["trial"], size=(N_PARTS, len(OPERATORS), N_TRIALS))
    lines = ["part,operator,trial,mm"]
    for (p, o, t), value in np.ndenumerate(result):
        lines.append(f"{p + 1},{list(OPERATORS)[o]},{t + 1},{value:.3f}")
    output.write_bytes(("\n".join(lines) + "\n").encode())
    print(f"{len(lines) - 1} results: {output.name}")


if __name__ == "__main__":
    main()

"""Make `assay`: a simulated precision experiment of a laboratory, as CLSI's EP05 plans it.

Run ``python tools/datasets/assay.py`` from the root of the repository. It needs numpy, and writes
``vcomp/data/shipped/assay.csv``. Nothing was measured: every result is drawn with a fixed seed.

Design
    Three samples, of low, middle and high concentration, are measured on 20 days, in a morning and
    an afternoon run on each day, twice in each run. Replicates are nested in runs, runs in days.

Result
    A concentration in mmol/L with two decimals: the mean of the sample, and normal effects of the
    day, of the run, and of the single measurement. Their standard deviations are per cent of the
    mean (`MEANS`, `CV`). Each sample has effects of its own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

OUTPUT = Path(__file__).parents[2] / "vcomp" / "data" / "shipped" / "assay.csv"
SEED = 5
N_DAYS, RUNS, N_REPLICATES = 20, ("morning", "afternoon"), 2
MEANS = {"low": 3.0, "middle": 6.0, "high": 15.0}
CV = {  # per cent of the mean, of days, runs and single measurements
    "low": (1.5, 1.0, 2.5),
    "middle": (1.5, 1.0, 1.5),
    "high": (1.5, 1.0, 1.2),
}


def main(output: Path = OUTPUT) -> None:
    """Draw the effects of each sample, and write the results."""
    rng = np.random.default_rng(SEED)
    lines = ["sample,day,run,replicate,result"]
    for sample, mean in MEANS.items():
        day, run, single = (mean * cv / 100.0 for cv in CV[sample])
        result = mean + rng.normal(scale=day, size=(N_DAYS, 1, 1))
        result = result + rng.normal(scale=run, size=(N_DAYS, len(RUNS), 1))
        result = result + rng.normal(scale=single, size=(N_DAYS, len(RUNS), N_REPLICATES))
        for (d, r, k), value in np.ndenumerate(result):
            lines.append(f"{sample},{d + 1},{RUNS[r]},{k + 1},{value:.2f}")
    output.write_bytes(("\n".join(lines) + "\n").encode())
    print(f"{len(lines) - 1} results: {output.name}")


if __name__ == "__main__":
    main()

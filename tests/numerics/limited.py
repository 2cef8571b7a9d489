"""``python -m tests.numerics.limited NAME``: one large piece of work, for processes with limits.

It prints "answer", or "refused" and the advice; anything else is a failure.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import vcomp


def crossed(n: int, a: int, b: int) -> pd.DataFrame:
    """Return a table of n rows at random levels."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": rng.integers(0, a, n), "b": rng.integers(0, b, n)})
    frame["y"] = rng.normal(size=n)
    return frame


TWO = "y ~ (1|a) + (1|b)"


def grid(a: int, b: int, empty: int) -> pd.DataFrame:
    """Return one score for each cell of a grid, except for a few cells."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": np.repeat(np.arange(a), b), "b": np.tile(np.arange(b), a)})
    frame["y"] = rng.normal(size=a)[frame["a"]] + rng.normal(size=a * b)
    return frame.drop(index=rng.choice(a * b, empty, replace=False))


def _stream(folder: Path) -> None:
    parts = [
        crossed(500_000, 3000, 300).assign(a=lambda d, k=k: d["a"] + 3000 * k) for k in (0, 1)
    ]
    vcomp.fit("y ~ (1|a) + (1|b)", parts, stream=True)


def _parts(folder: Path) -> None:
    frame = crossed(1_000_000, 3000, 3000)
    for k in range(2):
        vcomp.accumulate(TWO, frame[k::2]).save(folder / f"{k}.vcomp")
    one, other = (vcomp.AccumulatedStatistics.load(folder / f"{k}.vcomp") for k in range(2))
    (one + other).fit()


def _read(folder: Path) -> None:
    crossed(2_000_000, 1000, 100).to_parquet(folder / "d.parquet")
    vcomp.fit(TWO, folder / "d.parquet")
    vcomp.fit(TWO, folder / "d.parquet", stream=True)


WORK = {
    "strata": lambda folder: vcomp.fit(TWO, crossed(10**6, 10, 10)),
    "blocked": lambda folder: vcomp.fit(TWO, crossed(60_000, 6000, 6000), engine="blocked"),
    "iterative": lambda folder: vcomp.fit(
        TWO, crossed(200_000, 20_000, 20_000), engine="iterative"
    ),
    "levels": lambda folder: vcomp.fit(TWO, crossed(400_000, 100_000, 6), engine="levels"),
    "holes": lambda folder: vcomp.fit(TWO, grid(2000, 1000, 300)),
    "chosen": lambda folder: vcomp.fit(TWO, crossed(200_000, 20_000, 20_000)),
    "henderson3": lambda folder: vcomp.fit(
        TWO, crossed(100_000, 10_000, 10_000), method="henderson3"
    ),
    "type1": lambda folder: vcomp.fit(TWO, crossed(100_000, 10_000, 10_000), method="type1"),
    "anova": lambda folder: vcomp.fit(TWO, grid(2000, 1000, 0), method="anova"),
    "minque": lambda folder: vcomp.fit(TWO, crossed(100_000, 10_000, 10_000), method="minque"),
    "factor": lambda folder: vcomp.fit("y ~ C(b) + (1|a)", crossed(100_000, 50, 20_000)),
    "bootstrap": lambda folder: vcomp.fit(TWO, crossed(3000, 100, 100)).bootstrap(20, rng=1),
    "dstudy": lambda folder: str(
        vcomp.fit(TWO, crossed(3000, 100, 100)).dstudy(b=list(range(1, 50_000)), object="a").table
    ),
    "reliability": lambda folder: vcomp.cronbach_alpha(
        crossed(8_000_000, 9, 9).to_numpy().reshape(-1, 6000)
    ),
    "parts": _parts,
    "read": _read,
    "stream": _stream,
}


def main() -> None:
    """Do the work that the command line names."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            WORK[sys.argv[1]](Path(folder))
        except vcomp.VcompError as error:
            print("refused", error)
        else:
            print("answer")


if __name__ == "__main__":
    main()

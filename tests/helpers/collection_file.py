"""A small collection for commands: scores of five systems on fourteen topics, and their file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

SCORES = pd.DataFrame(
    np.random.default_rng(6).beta(2, 3, (14, 5)).round(4),
    index=pd.Index(range(401, 415), name="topic"),
    columns=[f"run {k}" for k in range(5)],
)


def written(folder: Path) -> Path:
    """Return a CSV file of the scores in a folder."""
    path = folder / "matrix.csv"
    SCORES.to_csv(path)
    return path

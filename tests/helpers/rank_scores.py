"""Scores of six systems on 16 topics, wide and long."""

from __future__ import annotations

import numpy as np
import pandas as pd

RNG = np.random.default_rng(5)
WIDE = pd.DataFrame(
    np.clip(0.5 + RNG.normal(0, 0.15, (16, 1)) + RNG.normal(0, 0.15, (16, 6)), 0, 1).round(4)
    + np.arange(6) / 50,
    index=pd.Index([f"t{k}" for k in range(16)], name="topic"),
    columns=[f"run {k}" for k in range(6)],
)
LONG = WIDE.reset_index().melt("topic", var_name="system", value_name="score")

"""Scores of several measures of the same systems and topics."""

from __future__ import annotations

import numpy as np
import pandas as pd

BOTH = "~ (1|sys) + (1|topic)"


def scores(seed=1, n_sys=8, n_topic=9, names=("ap", "p20", "rr"), alike=0.8):
    """Return a row a cell: measures whose effects correlate, each noisier than the one before."""
    rng = np.random.default_rng(seed)
    corr = np.full((len(names), len(names)), alike)
    np.fill_diagonal(corr, 1.0)
    root = np.linalg.cholesky(corr)
    noise = 1.0 + np.arange(len(names))
    y = (
        2.0 * rng.normal(size=(n_sys, 1, len(names))) @ root.T
        + rng.normal(size=(1, n_topic, len(names))) @ root.T
        + noise * (rng.normal(size=(n_sys, n_topic, len(names))) @ root.T)
    )
    frame = pd.DataFrame(
        {
            "sys": np.repeat([f"s{i}" for i in range(n_sys)], n_topic),
            "topic": np.tile([f"t{j}" for j in range(n_topic)], n_sys),
        }
    )
    return frame.assign(**{name: y[..., k].ravel() for k, name in enumerate(names)})

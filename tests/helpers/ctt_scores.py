"""Scores that several modules test with, and brute force for what they compute."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

# Bodoff and Li (2007), figure 2, p. 369: five algorithms on three queries
FIGURE_2 = np.array(
    [[0.7, 0.5, 0.6], [0.8, 0.6, 0.76], [0.94, 0.82, 0.89], [0.75, 0.7, 0.5], [0.75, 0.8, 0.75]]
)

# Fifteen persons, ten items; of pingouin's cronbach_alpha.csv, after real-statistics.com
QUESTIONS = np.array(
    [
        [3, 5, 7, 2, 6, 1, 4, 2, 6, 5, 4, 4, 5, 6, 4],
        [2, 4, 3, 4, 5, 2, 3, 4, 5, 4, 3, 2, 5, 5, 3],
        [4, 6, 5, 3, 6, 3, 5, 4, 5, 6, 5, 3, 6, 5, 5],
        [1, 3, 5, 3, 5, 4, 3, 3, 5, 4, 2, 2, 2, 4, 5],
        [4, 5, 6, 2, 4, 2, 5, 7, 1, 3, 5, 5, 3, 2, 3],
        [5, 1, 4, 2, 4, 5, 2, 2, 6, 5, 3, 3, 3, 2, 1],
        [1, 2, 3, 2, 4, 2, 1, 2, 5, 3, 2, 4, 2, 1, 3],
        [4, 5, 3, 6, 6, 3, 2, 4, 2, 1, 3, 2, 4, 4, 2],
        [3, 5, 6, 6, 7, 5, 4, 6, 3, 7, 4, 3, 4, 6, 3],
        [2, 5, 5, 3, 5, 2, 3, 5, 2, 2, 1, 4, 5, 5, 4],
    ],
    dtype=float,
).T

# Eight wines, four judges: pingouin's icc.csv, after real-statistics.com
WINES = np.array(
    [
        [1, 1, 3, 6, 6, 7, 8, 9],
        [2, 3, 8, 4, 5, 5, 7, 9],
        [0, 3, 1, 3, 5, 6, 7, 9],
        [1, 2, 4, 3, 6, 2, 9, 8],
    ]
).T

SMALL_SCORES = arrays(
    int,
    array_shapes(min_dims=2, max_dims=2, min_side=3, max_side=7),
    elements=st.integers(0, 9),
)


def holed(scores, share=0.2, seed=0):
    """Return scores with some cells missing, at least two in every row and column left."""
    X = np.array(scores, dtype=float)
    rng = np.random.default_rng(seed)
    X[rng.random(X.shape) < share] = np.nan
    return X


def long_of(X):
    """Return a row a score, with columns y, p and r."""
    n, k = X.shape
    return {"y": X.ravel(), "p": np.repeat(range(n), k), "r": np.tile(range(k), n)}

"""Simulated data of many designs, shared by the suites."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import strategies as st

__all__ = ["DESIGNS", "UNBALANCED", "balanced", "drop_rows", "simulate", "unbalanced"]

DESIGNS = {
    "one way": ("y ~ (1|a)", {"a": 8}, 4, ()),
    "crossed": ("y ~ (1|a) + (1|b)", {"a": 7, "b": 9}, 1, ()),
    "crossed, replicated": ("y ~ (1|a*b)", {"a": 5, "b": 6}, 3, ()),
    "nested": ("y ~ (1|a/b)", {"a": 6, "b": 4}, 3, ("b:a",)),
    "deeply nested": ("y ~ (1|a/b/c)", {"a": 4, "b": 3, "c": 3}, 2, ("b:a", "c:b")),
    "three facets": (
        "y ~ (1|a) + (1|b) + (1|c) + (1|a:b) + (1|a:c) + (1|b:c)",
        {"a": 6, "b": 5, "c": 4},
        1,
        (),
    ),
    "crossed and nested": ("y ~ (1|a) + (1|b/c) + (1|a:b)", {"a": 6, "b": 4, "c": 3}, 1, ("c:b",)),
}


def simulate(
    formula: str,
    sizes: dict[str, int],
    replicates: int,
    nested: tuple[str, ...],
    seed: int,
    scale: float = 2.0,
) -> pd.DataFrame:
    """Return balanced data with effects of every facet, of every pair and of every cell."""
    rng = np.random.default_rng(seed)
    names = list(sizes)
    grid = pd.MultiIndex.from_product([range(n) for n in sizes.values()], names=names)
    frame = grid.to_frame(index=False)
    frame = frame.loc[frame.index.repeat(replicates)].reset_index(drop=True)
    y = rng.normal(size=len(frame))
    groups = [[n] for n in names] + [[a, b] for a in names for b in names if a < b] + [names]
    for columns in groups:
        codes = frame.groupby(columns, sort=True).ngroup().to_numpy()
        y = y + scale * rng.normal(size=codes.max() + 1)[codes]
    frame["y"] = y + 3.0
    for pair in nested:
        inner, outer = pair.split(":")
        # Labels of the inner facet start anew in each level of the outer one.
        frame[inner] = frame[inner].map(lambda k: f"{k}")
        frame[outer] = frame[outer].astype(str)
    return frame


def balanced(name: str, seed: int = 0, scale: float = 2.0) -> tuple[str, pd.DataFrame]:
    """Return formula and balanced data of a design."""
    formula, sizes, replicates, nested = DESIGNS[name]
    return formula, simulate(formula, sizes, replicates, nested, seed, scale)


def drop_rows(frame: pd.DataFrame, share: float, seed: int) -> pd.DataFrame:
    """Return the frame without a random share of its rows."""
    rng = np.random.default_rng(seed)
    return frame[rng.random(len(frame)) >= share].reset_index(drop=True)


def unbalanced(name: str, seed: int = 0, share: float = 0.15) -> tuple[str, pd.DataFrame]:
    """Return formula and data of a design with rows missing at random."""
    formula, frame = balanced(name, seed)
    return formula, drop_rows(frame, share, seed + 1)


UNBALANCED = st.tuples(st.sampled_from(sorted(DESIGNS)), st.integers(0, 1000))
"""A design and a seed."""

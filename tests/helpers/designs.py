"""Simulated data of many designs, shared by the suites."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from vcomp.formula import parse

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
    return DESIGNS[name][0], _balanced(name, seed, scale).copy()


@lru_cache(maxsize=256)
def _balanced(name: str, seed: int, scale: float) -> pd.DataFrame:
    formula, sizes, replicates, nested = DESIGNS[name]
    return simulate(formula, sizes, replicates, nested, seed, scale)


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


# Complete grids: facets fully crossed with cells that may be anything ---------------------------

TREE = {"i": [0, 0, 0, 1, 2, 2, 2, 2, 3, 3], "d": range(10)}
"""Documents in topics: three, one, four, two."""

DEEP = {
    "a": [0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 2],
    "b": [0, 0, 0, 1, 1, 2, 3, 4, 4, 4, 4, 5],
    "c": [0, 0, 1, 2, 3, 4, 5, 6, 6, 6, 7, 8],
    "d": range(12),
}
"""Four levels of nesting, with groups of one."""

HOLES = {"i": [0, 0, 0, 1, 1, 2, 2, 3, 3, 3], "j": [0, 1, 2, 0, 1, 1, 2, 0, 1, 3]}
"""Two facets that are partly crossed."""

PER_DOCUMENT = (
    "y ~ (1|p) + (1|a) + (1|i) + (1|i:d) + (1|p:a) + (1|p:i) + (1|a:i) + (1|p:i:d) + (1|a:i:d) "
    "+ (1|p:a:i)"
)

GRIDS = {
    # Formula, axes, cells of the other facets, rows of each cell (one if there is no list).
    "one way": ("y ~ (1|i)", {}, {"i": [0, 1, 2, 3]}, [3, 1, 5, 2]),
    "crossed": ("y ~ (1|p) + (1|q)", {"p": 5, "q": 4}, {}, None),
    "three facets": (
        "y ~ (1|p) + (1|q) + (1|r) + (1|p:q) + (1|p:r) + (1|q:r)",
        {"p": 4, "q": 3, "r": 5},
        {},
        None,
    ),
    "replicated": ("y ~ (1|p) + (1|q) + (1|p:q)", {"p": 4, "q": 3}, {}, [3]),
    "unequally replicated": (
        "y ~ (1|p) + (1|i) + (1|p:i)",
        {"p": 4},
        {"i": range(5)},
        [2, 1, 4, 3, 1],
    ),
    "nested, balanced": (
        "y ~ (1|p) + (1|i) + (1|i:d) + (1|p:i)",
        {"p": 4},
        {"i": np.repeat(range(3), 3), "d": range(9)},
        None,
    ),
    "per document": (PER_DOCUMENT, {"p": 4, "a": 2}, TREE, None),
    "labels start anew": (
        "y ~ (1|p) + (1|i) + (1|i:d) + (1|p:i)",
        {"p": 4},
        {"i": TREE["i"], "d": [0, 1, 2, 0, 0, 1, 2, 3, 0, 1]},
        None,
    ),
    "single cells": ("y ~ (1|p) + (1|i) + (1|i:d) + (1|p:i)", {"p": 4}, TREE, None),
    "nested": ("y ~ (1|a/b/c)", {}, DEEP, None),
    "deep": (
        "y ~ (1|p) + (1|a) + (1|b) + (1|c) + (1|p:a) + (1|p:b) + (1|p:c)",
        {"p": 3},
        DEEP,
        None,
    ),
    "deep, replicated": (
        "y ~ (1|p) + (1|a/b/c/d) + (1|p:a:b)",
        {"p": 3},
        DEEP,
        [1, 2, 1, 3, 1, 1, 2, 1, 1, 2, 1, 1],
    ),
    "not nested": ("y ~ (1|p) + (1|i) + (1|j) + (1|p:i) + (1|p:j)", {"p": 4}, HOLES, None),
    "not nested, replicated": (
        "y ~ (1|p) + (1|i) + (1|j) + (1|i:j) + (1|p:i)",
        {"p": 4},
        HOLES,
        [1, 2, 1, 1, 3, 1, 1, 1, 2, 1],
    ),
    "two axes, not nested": (
        "y ~ (1|p) + (1|q) + (1|i) + (1|j) + (1|p:q) + (1|q:i)",
        {"p": 3, "q": 2},
        HOLES,
        None,
    ),
}
"""Designs with orthogonal strata: nested cells and others, one row in a cell and more."""


def gridded(name: str, seed: int = 0, *, shuffle: bool = True) -> tuple[str, pd.DataFrame]:
    """Return formula and data of a complete grid: y with the effects of the formula's terms.

    There are covariates of an axis (xp), of the coarsest facet of the cells (xi), of their finest
    (xd) and of single rows (x).
    """
    return GRIDS[name][0], _gridded(name, seed, shuffle).copy()


@lru_cache(maxsize=256)
def _gridded(name: str, seed: int, shuffle: bool) -> pd.DataFrame:
    formula, axes, cells, n = GRIDS[name]
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({f: list(levels) for f, levels in cells.items()} or {"one": [0]})
    table["cell"] = np.arange(len(table))
    table = table.loc[table.index.repeat(n or [1] * len(table))].drop(
        columns="one", errors="ignore"
    )
    for axis, size in axes.items():
        table = table.merge(pd.DataFrame({axis: range(size)}), how="cross")
    if shuffle:
        table = table.sample(frac=1.0, random_state=seed).reset_index(drop=True)
    y = rng.normal(3.0, 1.0, len(table))
    for term in parse(formula).random:
        codes = table.groupby(list(term.facets)).ngroup().to_numpy()
        y += rng.uniform(0.5, 2.0) * rng.normal(size=codes.max() + 1)[codes]
    table["y"] = y
    table["x"] = rng.normal(size=len(table))
    finest = table["cell"].to_numpy()
    for name_x, column in (("xp", next(iter(axes), None)), ("xi", next(iter(cells), None))):
        codes = table[column].to_numpy() if column else np.arange(len(table))
        table[name_x] = rng.normal(size=codes.max() + 1)[codes]
    table["xd"] = rng.normal(size=finest.max() + 1)[finest]
    return table.drop(columns="cell")

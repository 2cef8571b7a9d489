"""Coverage of differences and ratios between two measures of the same systems and topics.

Effects and errors of the two measures have a correlation of .8, their intervals are those of
:func:`vcomp.compare_measures`.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

import vcomp
from benchmarks.coverage.cells import Cell
from benchmarks.coverage.designs import DESIGNS
from benchmarks.coverage.markdown import markdown, percent
from benchmarks.coverage.populations import (
    EFFECTS,
    SCORES,
    latent_components,
    observed_components,
)
from benchmarks.coverage.results import merged, read_rows, write_rows
from benchmarks.coverage.study import Row
from vcomp._typing import FloatArray
from vcomp.inference.intervals import IntervalName
from vcomp.numerics import stream

METHODS: tuple[IntervalName, ...] = ("robust", "mls")
QUANTITIES = ("difference of Eρ²", "difference of Φ", "ratio of required topics")
CELLS = tuple(
    (design, population)
    for design in ("st20x25", "st30x50")
    for population in ("normal", "t5", "exponential", "0/1 .86")
)
"""Designs of :data:`~benchmarks.coverage.designs.DESIGNS`, and populations."""

_SHARED = 0.8
_SHARES = (0.6, 1.4)
"""Factors of the systems' variance of the two measures: that their coefficients differ."""


def compare_pairs(cell: Cell, population: str, *, seed: int, first: int, n: int) -> list[Row]:
    """Return a row for each method and quantity.

    Parameters
    ----------
    cell : two crossed facets
    population : of effects, or of scores
    seed : of the study
    first, n : number of the first data set, and of data sets
    """
    frame = cell.frame().drop(columns="y")
    truth = _true_values(population, cell)
    ends = np.full((n, len(METHODS), len(QUANTITIES), 2), np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        for i in range(n):
            key = zlib.crc32(f"{cell.name} {population} pairs".encode())
            scores = _scores(cell, frame, population, stream(seed + key, first + i))
            for j, method in enumerate(METHODS):
                ends[i, j] = _ends(scores, method)
    made = partial(_row, cell, population, n)
    return [
        made(method, quantity, truth[q], ends[:, j, q])
        for j, method in enumerate(METHODS)
        for q, quantity in enumerate(QUANTITIES)
    ]


def _row(
    cell: Cell, population: str, n: int, method: str, quantity: str, truth: float, ends: FloatArray
) -> Row:
    there = ~np.isnan(ends).any(axis=1)
    low, high = ends[there].T
    below, above = float((high < truth).mean()), float((low > truth).mean())
    return Row(
        cell=cell.name, distribution=population, estimator="reml", method=method,
        quantity=quantity, near_zero=False, truth=truth, n=n, none=float(1.0 - there.mean()),
        coverage=1.0 - below - above, below=below, above=above,
        width=float(np.median(high - low)) if there.any() else np.nan,
    )  # fmt: skip


def _variances(cell: Cell, factor: float) -> FloatArray:
    v = np.array([cell.components[name] for name in ("s", "t", "Residual")])
    v[0] *= factor
    return v


def _true_values(population: str, cell: Cell) -> FloatArray:
    """Return the true difference of Eρ² and of Φ, and the ratio of required sizes."""
    facets = frozenset("s"), frozenset("t"), frozenset("st")
    n_topics = int(cell.levels["t"].max()) + 1
    found = []
    for factor in _SHARES:
        v = _variances(cell, factor)
        if population in SCORES:
            v = observed_components(SCORES[population], facets, latent_components(v))
        s, t, e = v
        found.append((s / (s + e / n_topics), s / (s + (t + e) / n_topics), e / s))
    one, two = np.array(found)
    return np.array([one[0] - two[0], one[1] - two[1], one[2] / two[2]])


def _scores(
    cell: Cell, frame: pd.DataFrame, population: str, rng: np.random.Generator
) -> pd.DataFrame:
    draw = EFFECTS.get(population, EFFECTS["normal"])
    codes = (frame["s"].to_numpy(), frame["t"].to_numpy(), np.arange(len(frame)))
    pairs = []
    for at in codes:
        one, other = draw(rng, int(at.max()) + 1), draw(rng, int(at.max()) + 1)
        pairs.append((one, _SHARED * one + np.sqrt(1.0 - _SHARED**2) * other))
    made = frame.copy()
    for name, factor in enumerate(_SHARES):
        v = _variances(cell, factor)
        if population in SCORES:
            v = latent_components(v)
        y = sum(np.sqrt(x) * pair[name][at] for x, pair, at in zip(v, pairs, codes, strict=True))
        made[str(name)] = SCORES[population](np.asarray(y)) if population in SCORES else y
    return made


def _ends(scores: pd.DataFrame, method: IntervalName) -> FloatArray:
    try:
        compared = vcomp.compare_measures(
            "~ (1|s) + (1|t)", scores, responses=["0", "1"], interval=method, progress=False
        )
        tables = [compared.differences(c, progress=False).table for c in ("Erho2", "Phi")]
        tables.append(compared.required_ratios("Erho2", progress=False).table)
    except vcomp.VcompError:
        return np.full((len(QUANTITIES), 2), np.nan)
    return np.array([(t["low"].iloc[0], t["high"].iloc[0]) for t in tables], dtype=float)


def section(rows: Sequence[Row]) -> str:
    """Return the section of the page as Markdown, empty without rows."""
    if not rows:
        return ""
    lines = []
    for design, population in dict.fromkeys((r.cell, r.distribution) for r in rows):
        own = [r for r in rows if (r.cell, r.distribution) == (design, population)]
        texts = [
            " / ".join(percent(r.coverage) for m in METHODS for r in own
                       if (r.method, r.quantity) == (m, quantity))
            for quantity in QUANTITIES
        ]  # fmt: skip
        lines.append([design, population, f"{own[0].n:,}", *texts])
    head = ["robust / mls", "population", "data sets", *QUANTITIES]
    return _HEAD + "\n" + markdown(head, lines)


_HEAD = """\
### Differences and ratios between measures

Two measures of the same systems and topics, whose effects and errors have a correlation of .8, by
`vcomp.compare_measures`: coverage with robust intervals of both measures (the default), and with
those of normal theory. Rows are in `benchmarks/coverage/pairs.csv`.
"""


def study_pairs(
    path: Path | None,
    *,
    seed: int,
    data_sets: int,
    chosen: Sequence[tuple[Cell, str]] | None = None,
) -> list[Row]:
    """Return the rows of all cells; those that the file has are not drawn again.

    Parameters
    ----------
    path : file of rows, which is written after every cell; None for none
    seed : of the study
    data_sets : of each cell
    chosen : some designs and populations
    """
    rows = read_rows(path) if path is not None and path.exists() else []
    for cell, population in cells() if chosen is None else chosen:
        own = [r for r in rows if (r.cell, r.distribution) == (cell.name, population)]
        done = max((r.n for r in own), default=0)
        if done < data_sets:
            found = compare_pairs(cell, population, seed=seed, first=done, n=data_sets - done)
            rows = merged(rows, found)
            if path is not None:
                write_rows(rows, path)
    return rows


def cells() -> list[tuple[Cell, str]]:
    """Return the designs and populations of the study."""
    by_name = {cell.name: cell for cell in DESIGNS}
    return [(by_name[design], population) for design, population in CELLS]

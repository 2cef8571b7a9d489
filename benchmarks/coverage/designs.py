"""The designs in which intervals are compared in all populations, with their populations."""

from __future__ import annotations

import numpy as np

from benchmarks.coverage.cells import (
    DOCUMENT_COMPONENTS,
    DOCUMENTS,
    TWO_WAY,
    Cell,
    Levels,
    Plan,
    crossed,
    documents,
    groups,
    nested,
    thinned,
)
from benchmarks.coverage.populations import EFFECTS, SCORES, VARYING

_DATA_SETS = Plan(local=0, robust=1_000)
_PERSONS = {"p": 0.3, "i": 0.3, "a": 0.1, "p:i": 0.2, "p:a": 0.1, "i:a": 0.1, "Residual": 0.5}
_HOSTS = {"p": 0.3, "h": 0.2, "h:i": 0.3, "p:h": 0.2, "Residual": 0.5}
_THREE_WAY = "y ~ (1|p) + (1|i) + (1|a) + (1|p:i) + (1|p:a) + (1|i:a)"


def populations(*facets: str) -> tuple[str, ...]:
    """Return the names of all populations, with errors that vary by each of these facets."""
    return (*EFFECTS, *(f"{VARYING}{facet}" for facet in facets), *SCORES)


def _systems(s: int, t: int, names: tuple[str, ...] = populations("s", "t")) -> Cell:
    return Cell(
        f"st{s}x{t}",
        f"{s} systems × {t} topics",
        TWO_WAY,
        crossed(s=s, t=t),
        {"s": 0.1, "t": 0.8, "Residual": 0.5},
        "s",
        distributions=names,
        plan=_DATA_SETS,
    )


def _persons(a: int, **sizes: int) -> Cell:
    p, i = sizes["p"], sizes["i"]
    return Cell(
        f"pxixa{a}",
        f"{p} p × {i} i × {a} a",
        _THREE_WAY,
        crossed(p=p, i=i, a=a),
        _PERSONS,
        "p",
        distributions=populations("p", "i"),
        plan=_DATA_SETS,
    )


def _classes() -> Levels:
    """Return 30 s with 2 to 5 c each, and 2 to 7 scores of each c."""
    rng = np.random.default_rng(11)
    of_class = np.repeat(np.arange(30), rng.integers(2, 6, 30))
    scores = rng.integers(2, 8, of_class.size)
    return {"s": np.repeat(of_class, scores), "c": np.repeat(np.arange(of_class.size), scores)}


_SOME = ("normal", "t5", "chi2", "exponential", "exponential-", "0/1 .05", "0/1 .86", "0/1 .95")

DESIGNS: tuple[Cell, ...] = (
    _systems(20, 25),
    _systems(30, 50),
    _systems(40, 300),
    Cell(
        "st30x50-10%",
        "30 systems × 50 topics, 10 % of the cells missing",
        TWO_WAY,
        thinned(crossed(s=30, t=50), 0.1),
        {"s": 0.1, "t": 0.8, "Residual": 0.5},
        "s",
        distributions=populations("s", "t"),
        plan=_DATA_SETS,
    ),
    Cell(
        "pxih",
        "30 p × (3 i : 20 h)",
        "y ~ (1|p) + (1|h) + (1|h:i) + (1|p:h)",
        nested(30, np.full(20, 3), "i", "h"),
        _HOSTS,
        "p",
        distributions=populations("p", "h"),
        plan=_DATA_SETS,
    ),
    _persons(20, p=20, i=20),
    _persons(3, p=30, i=25),
    Cell(
        "groups",
        "30 groups of 2 to 11 scores",
        "y ~ (1|s)",
        groups(np.tile(np.arange(2, 12), 3)),
        {"s": 0.5, "Residual": 1.0},
        "s",
        distributions=populations("s"),
        plan=_DATA_SETS,
    ),
    Cell(
        "nested",
        "30 s of 2 to 5 c of 2 to 7 scores",
        "y ~ (1|s) + (1|s:c)",
        _classes(),
        {"s": 0.3, "s:c": 0.3, "Residual": 1.0},
        "s",
        distributions=populations("s"),
        plan=_DATA_SETS,
    ),
    _systems(10, 25),
    _systems(20, 100),
    _systems(60, 60),
    Cell(
        "documents",
        "20 p × 20 a × (2 d : 20 i), 11 components",
        DOCUMENTS,
        documents(20, 20, np.full(20, 2)),
        DOCUMENT_COMPONENTS,
        "p",
        distributions=populations("p", "i"),
        plan=_DATA_SETS,
    ),
    _systems(100, 100, _SOME),
    _systems(200, 200, _SOME),
)
"""Those that say most first: a study that is stopped has them."""

GROWING = ("st100x100", "st200x200")
"""Designs that show from how many levels on a distribution is met."""

FEW_LEVELS = ("st10x25", "pxixa3")
"""Designs with a facet that has fewer than 20 levels."""

"""The designs that the coverage study draws data from, with their true components."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd

from benchmarks.common import FULL_MODEL


@dataclass(frozen=True, slots=True)
class Plan:
    """How many data sets each group of methods gets; 0 for none.

    Attributes
    ----------
    local : methods from components and their covariance
    robust : robust intervals, and those from components, of rows
    profile : profile likelihood
    bootstrap, inner : parametric bootstrap, and its replicates
    jackknife : leaving out the levels of either facet
    levels, resamples : bootstrap of the levels of either facet, and its resamples
    """

    local: int = 2_000
    profile: int = 0
    bootstrap: int = 0
    inner: int = 300
    jackknife: int = 0
    levels: int = 0
    resamples: int = 300
    robust: int = 0

    def of_others(self) -> Plan:
        """Return the plan for other distributions: what assumes normality, and what does not."""
        return Plan(local=self.local // 2, jackknife=self.jackknife, robust=self.robust)

    def quick(self) -> Plan:
        """Return a plan that is done in seconds."""
        return Plan(
            min(self.local, 100),
            min(self.profile, 5),
            min(self.bootstrap, 5),
            min(self.inner, 100),
            min(self.jackknife, 5),
            min(self.levels, 5),
            min(self.resamples, 50),
            min(self.robust, 10),
        )


@dataclass(frozen=True, slots=True)
class Cell:
    """A design with true components.

    Attributes
    ----------
    name : short, and unique
    words : the design for a reader
    formula : of the model
    levels : codes of the facets' levels, one array of rows a facet
    components : true values, in the order of the model's
    object : of measurement
    estimators : beside REML
    distributions : names of :mod:`~benchmarks.coverage.populations`
    plan : numbers of data sets under normality; other distributions have some of them
    """

    name: str
    words: str
    formula: str
    levels: Mapping[str, np.ndarray]
    components: Mapping[str, float]
    object: str
    estimators: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ("normal",)
    plan: Plan = Plan()

    def frame(self) -> pd.DataFrame:
        """Return rows with a response of no meaning: of the design alone."""
        frame = pd.DataFrame(dict(self.levels))
        return frame.assign(y=np.random.default_rng(1).normal(size=len(frame)))


Levels: TypeAlias = dict[str, np.ndarray]

TREC = {"s": 0.003, "t": 0.028, "Residual": 0.010}
"""About those of TREC ad hoc collections (average precision)."""


def crossed(**sizes: int) -> Levels:
    axes = np.indices(tuple(sizes.values())).reshape(len(sizes), -1)
    return dict(zip(sizes, axes, strict=True))


def thinned(levels: Levels, missing: float) -> Levels:
    """Return the cells without some at random, the same ones every time."""
    n = next(iter(levels.values())).size
    kept = np.random.default_rng(7).random(n) >= missing
    return {facet: codes[kept] for facet, codes in levels.items()}


def nested(p: int, per_item: np.ndarray, inner: str, outer: str) -> Levels:
    """Return p crossed with levels of `inner`, of which each level of `outer` has some."""
    items = np.repeat(np.arange(per_item.size), per_item)
    codes, inner_codes = (axis.ravel() for axis in np.indices((p, items.size)))
    return {"p": codes, outer: items[inner_codes], inner: inner_codes}


def documents(p: int, a: int, per_topic: np.ndarray) -> Levels:
    topics = np.repeat(np.arange(per_topic.size), per_topic)
    axes = np.indices((p, a, topics.size)).reshape(3, -1)
    return {"p": axes[0], "a": axes[1], "i": topics[axes[2]], "d": axes[2]}


def groups(sizes: np.ndarray) -> Levels:
    return {"s": np.repeat(np.arange(sizes.size), sizes)}


TWO_WAY = "y ~ (1|s) + (1|t)"
_ITEMS = "y ~ (1|p) + (1|i) + (1|i:a) + (1|p:i)"
DOCUMENTS = FULL_MODEL.replace("score", "y")
_ITEM_COMPONENTS = {"p": 0.4, "i": 0.3, "i:a": 0.2, "p:i": 0.3, "Residual": 0.5}
DOCUMENT_COMPONENTS = {
    "p": 0.20, "a": 0.10, "i": 0.20, "d": 0.20, "p:a": 0.05, "p:i": 0.10, "a:i": 0.10,
    "p:d": 0.20, "a:d": 0.10, "p:a:i": 0.10, "Residual": 0.40,
}  # fmt: skip
_UNEVEN = np.array([1, 2, 3, 4, 5] * 4)
_FEW_UNEVEN = np.array([1, 2, 3, 4, 5, 6] * 2)
_ALL = ("normal", "t5", "chi2")

_TREC_30_50 = Cell(
    "s30xt50",
    "30 systems × 50 topics",
    TWO_WAY,
    crossed(s=30, t=50),
    TREC,
    "s",
    ("anova", "ml"),
    _ALL,
    Plan(profile=150, bootstrap=400),
)


def _two_way(
    name: str,
    words: str,
    estimators: tuple[str, ...] = (),
    distributions: tuple[str, ...] = ("normal",),
    *,
    components: dict[str, float] = TREC,
    levels: Mapping[str, np.ndarray] = _TREC_30_50.levels,
    plan: Plan | None = None,
) -> Cell:
    """Return another cell of systems and topics, of normal scores by REML if nothing is given."""
    return Cell(
        name, words, TWO_WAY, levels, components, "s", estimators, distributions, plan or Plan()
    )


CELLS: tuple[Cell, ...] = (
    _TREC_30_50,
    _two_way(
        "s100xt50",
        "100 systems × 50 topics",
        levels=crossed(s=100, t=50),
        plan=Plan(local=4_000),
    ),
    _two_way(
        "s20xt25",
        "20 systems × 25 topics",
        (),
        _ALL,
        levels=crossed(s=20, t=25),
        plan=Plan(local=4_000, profile=150, bootstrap=400, jackknife=400, levels=100),
    ),
    _two_way(
        "s30xt50-alike",
        "30 systems × 50 topics, systems alike (σ²(s) = .0005)",
        components=TREC | {"s": 0.0005},
    ),
    _two_way(
        "s30xt50-near0",
        "30 systems × 50 topics, σ²(s) a twentieth of its sampling error",
        components=TREC | {"s": 2.6e-6},
    ),
    _two_way(
        "s30xt50-zero",
        "30 systems × 50 topics, σ²(s) = 0",
        components=TREC | {"s": 0.0},
    ),
    _two_way(
        "s6xt5",
        "6 systems × 5 topics",
        ("ml",),
        levels=crossed(s=6, t=5),
        plan=Plan(profile=100, bootstrap=200),
    ),
    _two_way("s6xt50", "6 systems × 50 topics", levels=crossed(s=6, t=50)),
    _two_way(
        "s30xt50-20%",
        "30 systems × 50 topics, 20 % of the cells missing",
        ("ml",),
        levels=thinned(crossed(s=30, t=50), 0.2),
        plan=Plan(profile=100),
    ),
    _two_way(
        "s20xt25-40%",
        "20 systems × 25 topics, 40 % of the cells missing",
        levels=thinned(crossed(s=20, t=25), 0.4),
    ),
    Cell(
        "pxai",
        "30 p × (3 a : 20 i)",
        _ITEMS,
        nested(30, np.full(20, 3), "a", "i"),
        _ITEM_COMPONENTS,
        "p",
        ("anova",),
        plan=Plan(profile=100, bootstrap=200),
    ),
    Cell(
        "pxai-uneven",
        "30 p × (1 to 5 a : 20 i)",
        _ITEMS,
        nested(30, _UNEVEN, "a", "i"),
        _ITEM_COMPONENTS,
        "p",
        ("anova",),
        _ALL,
        Plan(profile=100, bootstrap=200),
    ),
    Cell(
        "pxaxdi",
        "20 p × 8 a × (3 d : 12 i), 11 components",
        DOCUMENTS,
        documents(20, 8, np.full(12, 3)),
        DOCUMENT_COMPONENTS,
        "p",
    ),
    Cell(
        "pxaxdi-uneven",
        "20 p × 8 a × (1 to 6 d : 12 i), 11 components",
        DOCUMENTS,
        documents(20, 8, _FEW_UNEVEN),
        DOCUMENT_COMPONENTS,
        "p",
    ),
    Cell(
        "oneway-uneven",
        "20 groups of 1 to 20 scores",
        "y ~ (1|s)",
        groups(np.arange(1, 21)),
        {"s": 0.3, "Residual": 1.0},
        "s",
        ("anova", "ml"),
        _ALL,
        Plan(profile=150, bootstrap=300),
    ),
    Cell(
        "oneway-few",
        "6 groups of 2 to 30 scores",
        "y ~ (1|s)",
        groups(np.array([2, 2, 5, 10, 20, 30])),
        {"s": 0.3, "Residual": 1.0},
        "s",
        plan=Plan(profile=150),
    ),
)


def cells_by_name(names: tuple[str, ...], cells: tuple[Cell, ...] = CELLS) -> tuple[Cell, ...]:
    """Return the cells of these names, all if there are none.

    Raises
    ------
    ValueError
        If there is no cell of a name.
    """
    known = {cell.name: cell for cell in cells}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"there is no cell {unknown[0]!r}; there are {', '.join(known)}")
    return tuple(known[name] for name in names) if names else cells

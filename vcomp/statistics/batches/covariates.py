"""The columns of the fixed part of rows that come in batches: levels, coding and origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError
from vcomp.statistics.batches.survey import FacetSurvey, united_facets

__all__ = [
    "ColumnKinds",
    "XSums",
    "kinds_of",
]


Columns = Mapping[str, Any]
"""The columns of the fixed part of some rows, in a form that patsy reads."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnKinds:
    """What columns hold: levels, or numbers. Those of parts of the data add up.

    Attributes
    ----------
    levels : of each column its levels, None of numbers
    booleans : the columns that are true or false in all rows
    """

    levels: Mapping[str, FacetSurvey | None]
    booleans: frozenset[str]

    def __add__(self, other: ColumnKinds) -> ColumnKinds:
        if not self.levels or not other.levels:
            return self if self.levels else other
        both = {f: _both(f, self.levels[f], other.levels[f]) for f in self.levels}
        return ColumnKinds(both, self.booleans & other.booleans)

    @property
    def n_levels(self) -> dict[str, int]:
        """Numbers of levels of the factors."""
        return {f: len(found.used()[0]) for f, found in self.levels.items() if found is not None}

    @property
    def numbers(self) -> frozenset[str]:
        """Columns that hold neither levels nor what is true or false."""
        without = (name for name, found in self.levels.items() if found is None)
        return frozenset(without) - self.booleans

    def few_rows(self) -> dict[str, Any]:
        """Return columns in which all levels occur, and which hold ones where they are numbers."""
        import pandas as pd

        n = max([2, *self.n_levels.values()])
        made: dict[str, Any] = {}
        for name, found in self.levels.items():
            made[name] = np.ones(n, dtype=bool if name in self.booleans else float)
            if found is not None:
                levels, _ = found.used()
                codes = np.arange(n) % len(levels)
                made[name] = pd.Categorical.from_codes(codes, categories=levels)
        return made

    def of_no_rows(self) -> dict[str, Any]:
        """Return columns without rows, factors with all their levels."""
        import pandas as pd

        return {
            name: np.zeros(0)
            if found is None
            else pd.Categorical.from_codes(np.zeros(0, np.int8), categories=found.used()[0])
            for name, found in self.levels.items()
        }

    def recoded(self, columns: Columns) -> dict[str, Any]:
        """Return the columns of some rows with the levels of all."""
        import pandas as pd

        made = dict(columns)
        for name, found in self.levels.items():
            if found is None and name not in self.booleans:
                made[name] = np.asarray(columns[name], dtype=float)
            elif found is not None:
                levels, _ = found.used()
                of_part = levels.get_indexer(columns[name].categories)
                codes = of_part[columns[name].codes]
                made[name] = pd.Categorical.from_codes(codes, categories=levels)
        return made


def _both(name: str, a: FacetSurvey | None, b: FacetSurvey | None) -> FacetSurvey | None:
    if a is None and b is None:
        return None
    if a is None or b is None:
        raise DataError(
            f"column {name!r} holds numbers in some rows and text in others; make it one of them"
        )
    return united_facets(a, b)[0]


def kinds_of(columns: Columns) -> ColumnKinds:
    """Return what the columns of some rows hold; of no rows nothing."""
    import pandas as pd

    if not columns or not len(next(iter(columns.values()))):
        return ColumnKinds({}, frozenset())
    levels: dict[str, FacetSurvey | None] = {}
    for name, column in columns.items():
        levels[name] = None
        if isinstance(column, pd.Categorical):
            counts = np.bincount(column.codes, minlength=len(column.categories))
            levels[name] = FacetSurvey(column.categories, counts)
    booleans = (
        name
        for name, column in columns.items()
        if isinstance(column, np.ndarray) and column.dtype.kind == "b"
    )
    return ColumnKinds(levels, frozenset(booleans))


@dataclass(frozen=True, slots=True, eq=False)
class XSums:
    """Sums of the columns of X; those of parts of the data add up.

    Attributes
    ----------
    n : number of rows
    total : (p,) sums
    gram : (p, p) squares and products
    low, high : (p,) ends
    """

    n: int
    total: Any
    gram: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, X: FloatArray) -> XSums:
        """Return the sums of some rows."""
        return cls(
            n=len(X),
            total=X.sum(axis=0, dtype=np.longdouble),
            gram=X.T @ X,
            low=X.min(axis=0, initial=np.inf),
            high=X.max(axis=0, initial=-np.inf),
        )

    def __add__(self, other: XSums) -> XSums:
        return XSums(
            self.n + other.n,
            self.total + other.total,
            self.gram + other.gram,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    def constant(self, names: tuple[str, ...]) -> FloatArray:
        """Return a with X a = 1 in the least squares sense, zeros if that is far from it."""
        a = np.zeros(len(names))
        if "Intercept" in names:
            a[names.index("Intercept")] = 1.0
            return a
        largest = np.maximum(np.abs(self.low), np.abs(self.high))
        scale = np.where(largest > 0.0, largest, 1.0)
        total = np.asarray(self.total, dtype=float)
        gram = self.gram / np.outer(scale, scale)
        for _ in range(4):
            a += np.linalg.lstsq(gram, (total - self.gram @ a) / scale, rcond=None)[0] / scale
        a[np.abs(a) * largest < 1e-6] = 0.0
        away = self.n - 2.0 * float(a @ total) + float(a @ self.gram @ a)
        return a if abs(away) < 1e-6 * self.n else np.zeros(len(names))

    def origin(self, constant: FloatArray) -> FloatArray:
        """Return the column means where the constant takes up what they leave, else zeros."""
        if not constant.any():
            return np.zeros(constant.size)
        means: FloatArray = np.asarray(self.total / self.n, dtype=float)
        means[constant != 0.0] = 0.0
        return means

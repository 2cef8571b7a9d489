"""How values lie, some of which may be infinite."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from vcomp._typing import FloatArray

__all__ = ["Span", "quantile", "span_of"]


@dataclass(frozen=True, slots=True)
class Span:
    """Mean, spread and quantiles of values; nan where there are none.

    Attributes
    ----------
    mean, sd : infinite and nan where a value is infinite
    low, median, high : quantiles
    endless : the share of values that are infinite
    """

    mean: float
    sd: float
    low: float
    median: float
    high: float
    endless: float

    @property
    def length(self) -> float:
        """From low to high; 0 where both are the same, infinity included."""
        return 0.0 if self.low == self.high else self.high - self.low

    def columns(self) -> dict[str, float]:
        """Return what a table has of it."""
        columns = asdict(self) | {"span": self.length}
        del columns["endless"]
        return columns


def span_of(values: FloatArray, alpha: float) -> Span:
    """Return how values lie, those that are nan left out.

    Parameters
    ----------
    values : (n,)
    alpha : a share of 1 − alpha lies between the outer quantiles

    Examples
    --------
    >>> span = span_of(np.array([1.0, 2.0, 3.0, np.inf]), 0.5)
    >>> span.mean, span.median, span.endless
    (inf, 2.5, 0.25)
    """
    known = np.sort(values[~np.isnan(values)])
    if not known.size:
        return Span(*[math.nan] * 6)
    endless = float(np.mean(np.isinf(known)))
    mean = math.inf if endless else float(known.mean())
    sd = float(known.std(ddof=1)) if known.size > 1 and not endless else math.nan
    low, median, high = (quantile(known, q) for q in (alpha / 2.0, 0.5, 1.0 - alpha / 2.0))
    return Span(mean, sd, low, median, high, endless)


def quantile(ordered: FloatArray, q: float) -> float:
    """Return the quantile of sorted values, between two of which it is on a straight line.

    It is that of R's type 7 and of numpy, which gives nan between infinite values.

    Examples
    --------
    >>> quantile(np.array([1.0, 2.0, np.inf, np.inf]), 0.9)
    inf
    """
    place = q * (ordered.size - 1)
    below = math.floor(place)
    a, b = float(ordered[below]), float(ordered[min(below + 1, ordered.size - 1)])
    return a if a == b or place == below else a + (place - below) * (b - a)

"""Which topics a collection has when they are no random sample (Urbano, 2016, sec. 5.2)."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray, LongArray

__all__ = ["choose_unevenly", "pool_size", "quantile_weights"]

_LEAST_POOL, _POOL_FACTOR = 200, 4
_SMALL_SHAPE, _LARGE_SHAPE = (0.01, 2.0), (2.0, 8.0)


def pool_size(n_topics: int) -> int:
    """Return how many topics to choose from: four times as many, at least 200."""
    return max(_LEAST_POOL, _POOL_FACTOR * n_topics)


def quantile_weights(size: int, a: float, b: float) -> FloatArray:
    """Return how likely topics are chosen, from the hardest to the easiest.

    Parameters
    ----------
    size : number of topics
    a, b : shapes of the Beta distribution whose density at (1, …, size) / (size + 2) the weights
        follow; they add up to one
    """
    place = np.arange(1.0, size + 1.0) / (size + 2.0)
    logs = (a - 1.0) * np.log(place) + (b - 1.0) * np.log1p(-place)
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def choose_unevenly(n_topics: int, size: int, rng: np.random.Generator) -> LongArray:
    """Return the places of topics in a pool that is sorted from the hardest to the easiest.

    One shape of a Beta distribution is drawn from [.01, 2] and one from [2, 8], swapped half of
    the time; its density says how likely each topic is chosen, without replacement. (Urbano's
    text speaks of topics at quantiles drawn from it; this is what the code of his paper does.)

    A draw one after the other without replacement is the order in which independent exponential
    times with these rates end.

    Parameters
    ----------
    n_topics : how many
    size : of the pool
    rng : random numbers
    """
    a, b = rng.uniform(*_SMALL_SHAPE), rng.uniform(*_LARGE_SHAPE)
    if rng.random() < 0.5:
        a, b = b, a
    times = rng.standard_exponential(size) / np.maximum(quantile_weights(size, a, b), 1e-300)
    return np.asarray(np.argsort(times, kind="stable")[:n_topics], dtype=np.int64)

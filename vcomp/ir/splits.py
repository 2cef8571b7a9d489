"""Pairs of disjoint random halves of the topics, and what measures say of them.

References
----------
Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Section 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import DataError
from vcomp.ir.measures.base import MeanMeasure, Measure

__all__ = ["Halves", "draw_halves", "observer", "published_sizes", "published_trials"]

FEWEST = 2
"""Topics of the smallest halves, in the paper and here."""

_MOST_SIZES = 20
_MOST_TRIALS = 100
_MOST_SPLITS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Halves:
    """Pairs of disjoint sets of n topics each.

    Attributes
    ----------
    collection : (m, n) places of the topics that stand for the collection
    truth : (m, n) places of those whose means are taken for the truth

    Examples
    --------
    >>> Halves.of([[0, 1]], [[2, 3]]).n_topics
    2
    """

    collection: LongArray
    truth: LongArray

    @classmethod
    def of(cls, collection: ArrayLike, truth: ArrayLike) -> Halves:
        """Return halves that were drawn elsewhere.

        Parameters
        ----------
        collection, truth : (m, n) places of topics, from 0 on

        Raises
        ------
        DataError
            If they are not whole numbers in two tables of one shape, or a topic is twice in one
            pair of halves.
        """
        sets = [np.asarray(one) for one in (collection, truth)]
        if any(one.ndim != 2 or one.dtype.kind not in "iu" for one in sets):
            raise DataError("halves are two tables of places of topics, a row a pair of halves")
        if sets[0].shape != sets[1].shape:
            raise DataError(
                f"halves have as many topics each; they are {sets[0].shape} and {sets[1].shape}"
            )
        ordered = np.sort(np.hstack(sets), axis=1)
        twice = np.flatnonzero((np.diff(ordered, axis=1) == 0).any(axis=1))
        if twice.size:
            raise DataError(f"a topic is twice in the pair of halves {int(twice[0])}")
        return cls(*(one.astype(np.int64) for one in sets))

    @property
    def n_topics(self) -> int:
        """Number of topics of each half."""
        return int(self.collection.shape[1])

    def __len__(self) -> int:
        return len(self.collection)


def published_sizes(n_topics: int) -> list[int]:
    """Return the numbers of topics of halves of a collection.

    They are the whole numbers nearest to 21 equidistant ones from 1 to half of the topics, the
    first of which is left out; an exact half goes to the even neighbour, as in R.

    Parameters
    ----------
    n_topics : of the collection

    Examples
    --------
    >>> published_sizes(10)
    [2, 3, 4, 5]
    >>> published_sizes(100)[:5]
    [3, 6, 8, 11, 13]
    """
    largest = n_topics // 2
    # Fractions: what lies half-way between two whole numbers must not depend on the last bit.
    steps = (round(1 + Fraction(k * (largest - 1), _MOST_SIZES)) for k in range(_MOST_SIZES + 1))
    return sorted(set(steps))[1:]


def published_trials(n_sizes: int) -> int:
    """Return the number of splits of each size: 1000 in all, from 1 to 100 a size.

    Examples
    --------
    >>> published_trials(4), published_trials(20)
    (100, 50)
    """
    return max(1, min(_MOST_TRIALS, _MOST_SPLITS // n_sizes))


def draw_halves(n_topics: int, size: int, trials: int, seed: int) -> Halves:
    """Draw pairs of halves at random; the first ones are the same for any number of trials.

    Parameters
    ----------
    n_topics : of the collection
    size : of each half
    trials : pairs of halves
    seed : of all sizes; each has a stream of its own

    Examples
    --------
    >>> halves = draw_halves(10, 5, 3, seed=1)
    >>> np.sort(np.hstack([halves.collection, halves.truth]), axis=1)[0].tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(size,))))
    order = rng.random((trials, n_topics)).argsort(axis=1)
    return Halves(order[:, :size], order[:, size : 2 * size])


def observer(X: FloatArray, measures: Sequence[Measure]) -> Callable[[Halves], FloatArray]:
    """Return what gives the accuracy of halves against the other halves, (measures, m).

    Measures of means look at all pairs of halves at once, from two products of matrices.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing
    measures : to take
    """
    need_means = any(isinstance(measure, MeanMeasure) for measure in measures)

    def observe(halves: Halves) -> FloatArray:
        values = np.empty((len(measures), len(halves)))
        if need_means:
            means = _means(X, halves.collection)
            true_means = _means(X, halves.truth)
        for row, measure in zip(values, measures, strict=True):
            if isinstance(measure, MeanMeasure):
                row[:] = measure.actual_of_means(means, true_means)
            else:
                for k, (one, other) in enumerate(
                    zip(halves.collection, halves.truth, strict=True)
                ):
                    row[k] = measure.actual_of_scores(X[one], X[other])
        return values

    return observe


def _means(X: FloatArray, topics: LongArray) -> FloatArray:
    """Return the mean scores over sets of topics, (m, n_systems)."""
    chosen = np.zeros((len(topics), len(X)))
    np.put_along_axis(chosen, topics, 1.0, axis=1)
    means: FloatArray = chosen @ X / topics.shape[1]
    return means

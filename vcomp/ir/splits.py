"""Pairs of disjoint random halves of the topics, and their agreement by any measure.

References
----------
Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Section 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import DataError, EstimationError
from vcomp.ir.agreement import MeanMeasure, MeanRows, Measure
from vcomp.ir.curve import Scale
from vcomp.ir.kernels.pair_differences import disjoint_sets, means_of_sets
from vcomp.numerics.kernels import at_once

FEWEST = 2
"""Number of topics of the smallest halves, as in the paper; but see :func:`fewest`."""

_SECONDS = 5e-7
"""Seconds per topic and draw of halves in Python."""

TOGETHER = 200
"""Pairs of halves evaluated at once, few enough for their means to fit into the cache."""

_MOST_SIZES = 20
_MOST_TRIALS = 100
_MOST_SPLITS = 1000

_MOST_TESTS = 5_000_000
"""Largest number of tests (pairs × subsets) per size by default."""


@dataclass(frozen=True, slots=True, eq=False)
class Halves:
    """Pairs of disjoint sets of n topics each.

    Attributes
    ----------
    collection : (m, n) places of the topics that stand for the collection
    truth : (m, n) places of those whose means serve as the truth

    Examples
    --------
    >>> Halves.of([[0, 1]], [[2, 3]]).n_topics
    2
    """

    collection: LongArray
    truth: LongArray

    @classmethod
    def of(cls, collection: ArrayLike, truth: ArrayLike) -> Halves:
        """Return halves from given places of topics.

        Parameters
        ----------
        collection, truth : (m, n) places of topics, from 0 on

        Raises
        ------
        DataError
            If they are not places from 0 on in two tables of one shape, or a topic is twice in
            one pair of halves.
        """
        sets = [np.asarray(one) for one in (collection, truth)]
        if any(one.ndim != 2 or one.dtype.kind not in "iu" for one in sets):
            raise DataError(
                "halves are two tables of places of topics, one row per pair of halves"
            )
        if sets[0].shape != sets[1].shape:
            raise DataError(
                f"halves have as many topics each; they are {sets[0].shape} and {sets[1].shape}"
            )
        if sets[0].size and min(one.min() for one in sets) < 0:
            raise DataError("places of topics are counted from 0; one of them is negative")
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


def fewest(measures: Sequence[Measure]) -> int:
    """Return the smallest permitted size of halves: 1 for measures of means, else 2."""
    return 1 if all(isinstance(measure, MeanMeasure) for measure in measures) else FEWEST


def published_sizes(n_topics: int, smallest: int = FEWEST) -> list[int]:
    """Return the numbers of topics of halves of a collection.

    They are the whole numbers nearest to 21 equidistant ones from 1 to half of the topics, the
    first of which is left out; an exact half goes to the even neighbour, as in R. Where that
    leaves one size only, of two topics, the code of Urbano (2016) has halves of one topic too.

    Parameters
    ----------
    n_topics : of the collection
    smallest : the fewest topics that halves may have

    Examples
    --------
    >>> published_sizes(10)
    [2, 3, 4, 5]
    >>> published_sizes(100)[:5]
    [3, 6, 8, 11, 13]
    >>> published_sizes(5), published_sizes(5, 1)
    ([2], [1, 2])
    """
    largest = n_topics // 2
    # Fractions: rounding of half-way cases must not depend on the last bit.
    steps = (round(1 + Fraction(k * (largest - 1), _MOST_SIZES)) for k in range(_MOST_SIZES + 1))
    sizes = sorted(set(steps))
    return sizes if len(sizes) == 2 and smallest == 1 else sizes[1:]


def published_trials(n_sizes: int) -> int:
    """Return the number of splits of each size: 1000 in all, from 1 to 100 per size.

    Examples
    --------
    >>> published_trials(4), published_trials(20)
    (100, 50)
    """
    return max(1, min(_MOST_TRIALS, _MOST_SPLITS // n_sizes))


def usual_subsets(n_systems: int) -> int:
    """Return the default number of subsets of each size: 100, or fewer for many pairs of systems.

    Examples
    --------
    >>> usual_subsets(318), usual_subsets(350), usual_subsets(4000)
    (99, 81, 1)
    """
    pairs = max(n_systems * (n_systems - 1) // 2, 1)
    return max(1, min(_MOST_TRIALS, _MOST_TESTS // pairs))


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
    draw = at_once(disjoint_sets, trials * n_topics * _SECONDS)
    return Halves(*draw(rng.random((trials, 2 * size)), n_topics))


def draw_subsets(n_topics: int, size: int, trials: int, seed: int) -> LongArray:
    """Draw subsets of the topics at random, (trials, size).

    Parameters
    ----------
    n_topics : of the collection
    size : of each subset, up to `n_topics`
    trials : number of subsets; the first ones are the same for any number of them
    seed : of all sizes; each has a stream of its own

    Examples
    --------
    >>> draw_subsets(10, 10, 3, seed=1).sum(axis=1)
    array([45, 45, 45])
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(size, 1))))
    order = np.argsort(rng.random((trials, n_topics)), axis=1, kind="stable")
    return np.ascontiguousarray(order[:, :size])


def evaluate_halves(
    X: FloatArray, measures: Sequence[Measure], halves: Sequence[Halves]
) -> FloatArray:
    """Return the accuracy of halves against the other halves, (measures, sizes, trials).

    Measures of means are computed for many pairs of halves at once and share intermediate results.
    The numbers are the same for any number of threads.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing
    measures : to compute
    halves : as many pairs of each size

    Raises
    ------
    DataError
        If there are more pairs of one size than of another, or `X` lacks a topic.

    Examples
    --------
    >>> from vcomp.ir.measures import get
    >>> X = np.random.default_rng(1).normal(size=(30, 8)) + np.arange(8) / 4
    >>> halves = [draw_halves(30, size, 100, seed=1) for size in (5, 10, 15)]
    >>> values = evaluate_halves(X, [get("tau"), get("tau_ap")], halves)
    >>> values.shape
    (2, 3, 100)
    """
    trials = len(halves[0])
    if any(len(one) != trials for one in halves):
        raise DataError(f"there are {trials} pairs of halves of one size, and not of another")
    for one in halves:
        _check_places(one, len(X))
    X = np.ascontiguousarray(X, dtype=float)
    step = max(1, TOGETHER // max(trials, 1))
    blocks = [observed(X, measures, halves[at : at + step]) for at in range(0, len(halves), step)]
    return np.concatenate(blocks, axis=1).reshape(len(measures), len(halves), trials)


def observed(X: FloatArray, measures: Sequence[Measure], halves: Sequence[Halves]) -> FloatArray:
    """Return the accuracy of all pairs of halves, (measures, m), one size after the other.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing, in order of rows
    measures : to compute
    halves : any number of pairs of each size, :data:`TOGETHER` or so in all for measures of means;
        their places are not checked
    """
    values = np.empty((len(measures), sum(map(len, halves))))
    if any(isinstance(measure, MeanMeasure) for measure in measures):
        in_rows = np.ascontiguousarray
        rows = MeanRows(
            np.concatenate([means_of_sets(X, in_rows(one.collection)) for one in halves]),
            np.concatenate([means_of_sets(X, in_rows(one.truth)) for one in halves]),
        )
    for row, measure in zip(values, measures, strict=True):
        if isinstance(measure, MeanMeasure):
            row[:] = measure.actual_of_rows(rows)
        else:
            row[:] = [
                measure.actual_of_scores(X[one], X[other])
                for pairs in halves
                for one, other in zip(pairs.collection, pairs.truth, strict=True)
            ]
    return values


def _check_places(halves: Halves, n_topics: int) -> None:
    """Refuse places of topics out of range."""
    for places in (halves.collection, halves.truth):
        if places.size and (places.min() < 0 or places.max() >= n_topics):
            raise DataError(
                f"halves have places of topics from {places.min()} to {places.max()}; there are "
                f"{n_topics} topics, from 0 to {n_topics - 1}"
            )


def scale_of(measure: Measure) -> Scale:
    """Return the scale on which curves of a measure are fitted.

    Raises
    ------
    EstimationError
        If its limits are neither those of a correlation, a share nor an error.
    """
    low, high = measure.limits
    if (low, high) == (-1.0, 1.0) and measure.larger_is_better:
        return "correlation"
    if low == 0.0 and not measure.larger_is_better:
        return "error"
    if (low, high) == (0.0, 1.0):
        return "share"
    raise EstimationError(
        f"curves are for measures between 0 and 1, or -1 and 1; {measure.symbol} goes from "
        f"{display.number(low)} to {display.number(high)}"
    )

"""Base classes of measures of the accuracy of a test collection.

The accuracy of a collection is how close its scores come to the truth (Urbano, 2016, sec. 2). A
measure has two methods: :meth:`Measure.actual` compares a collection with the truth, which is
known in a simulation, or estimated from other topics; :meth:`Measure.estimate` gives the expected
accuracy of collections of n topics, from one collection alone. The measures themselves are in
:mod:`vcomp.ir.measures`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import PlanError, is_real, warn
from vcomp.ir.kernels.rank_agreement import falling_order, swaps, swaps_by_arrays
from vcomp.ir.scores import (
    ScoreMatrix,
    ScoresLike,
    TruthLike,
    as_score_matrix,
    complete,
    read_truth,
)
from vcomp.numerics.kernels import at_once

_SECONDS = 4e-9
"""Seconds to count swaps with arrays, per pair of systems and row of means."""

_ROUNDING = 64 * float(np.finfo(float).eps)
"""Relative tolerance of ties: smaller differences of means are rounding errors."""


def rounding(means: FloatArray) -> FloatArray:
    """Return the tolerance for ties between means on the last axis."""
    largest: FloatArray = np.abs(means).max(axis=-1)
    return _ROUNDING * largest


@dataclass(frozen=True, eq=False)
class MeanRows:
    """Means of collections and true means, with cached results that measures share.

    Attributes
    ----------
    means, truth : (m, k) one row per collection, one column per system

    Examples
    --------
    >>> rows, shape = MeanRows.of(np.zeros((5, 4, 3)), np.zeros(3))
    >>> rows.truth.shape, shape
    ((20, 3), (5, 4))
    """

    means: FloatArray
    truth: FloatArray

    @classmethod
    def of(cls, means: FloatArray, true_means: FloatArray) -> tuple[MeanRows, tuple[int, ...]]:
        """Broadcast two arrays to rows; return these, and the shape of one result per row."""
        x, y = np.broadcast_arrays(means, true_means)
        k, shape = x.shape[-1], x.shape[:-1]
        rows = (np.ascontiguousarray(a, dtype=float).reshape(-1, k) for a in (x, y))
        return cls(*rows), shape

    @property
    def n_systems(self) -> int:
        """Number of systems k."""
        return int(self.means.shape[1])

    @cached_property
    def tolerances(self) -> tuple[FloatArray, FloatArray]:
        """(m,) and (m,): tolerances for ties between means, and between true means."""
        return rounding(self.means), rounding(self.truth)

    @cached_property
    def orders(self) -> tuple[LongArray, LongArray]:
        """(m, k) and (m, k): systems in descending order of means, and of true means."""
        return falling_order(self.means), falling_order(self.truth)

    @cached_property
    def swaps(self) -> tuple[LongArray, FloatArray]:
        """Swapped pairs, negative in rows with ties, and their shares; see the kernel."""
        seconds = self.means.size * self.n_systems * _SECONDS
        count = at_once(swaps, seconds, swaps_by_arrays)
        pairs, shares = count(self.means, self.truth, *self.tolerances, *self.orders)
        return pairs, shares

    def filled(self, untied: FloatArray, of_tied: Callable[[MeanRows], FloatArray]) -> FloatArray:
        """Return the values of untied rows, with those of tied rows from `of_tied`."""
        tied = self.swaps[0] < 0
        if tied.any():
            untied[tied] = of_tied(MeanRows(self.means[tied], self.truth[tied]))
        return untied


class Measure(ABC):
    """A measure of the accuracy of a test collection; its options are its fields.

    Attributes
    ----------
    name : in :func:`vcomp.ir.measures.get`
    symbol : in papers
    limits : smallest and largest possible value
    larger_is_better : whether larger values mean a more accurate collection
    of_means : whether the mean scores of systems suffice for :meth:`actual`
    has_estimator : whether :meth:`estimate` has a formula of its own; if not, it extrapolates
        accuracies of halves of the topics (:class:`vcomp.ir.measures.Extrapolated`)
    """

    __slots__ = ()

    name: ClassVar[str]
    symbol: ClassVar[str]
    limits: ClassVar[tuple[float, float]] = (0.0, 1.0)
    larger_is_better: ClassVar[bool] = True
    of_means: ClassVar[bool]
    has_estimator: ClassVar[bool] = False
    undefined: ClassVar[str] = "it is not a number"
    """Reason why the measure may be nan, as the end of a warning."""

    def actual(
        self,
        scores: ScoresLike,
        truth: TruthLike,
        *,
        system: str | None = None,
        topic: str | None = None,
        score: str | None = None,
    ) -> float:
        """Return how close the scores of a collection come to the truth.

        A bare matrix has **one row per topic and one column per system**.

        Parameters
        ----------
        scores : of the collection: long table, :class:`vcomp.ir.ScoreMatrix` or matrix
        truth : of the same systems: scores on other topics, in any form that `scores` may have; or
            one number a system, its true mean score, as a Series or dict by system or an array in
            the order of the systems of `scores`. Systems are matched by name, and by position
            where one of the two has no names
        system, topic, score : columns of `scores` if it is a long table, and of `truth` if it has
            them all

        Returns
        -------
        float
            nan if the measure is not defined; a warning gives the reason.

        Raises
        ------
        DataError
            If one of the two cannot be read (see :func:`vcomp.ir.as_score_matrix`), a system is in
            one and not in the other, or a score is missing.
        """
        columns = {"system": system, "topic": topic, "score": score}
        X = as_score_matrix(scores, **columns)
        Y = read_truth(truth, X, columns)
        value = float(self.actual_of_scores(complete(X), Y))
        if np.isnan(value):
            warn(f"{self.symbol} is undefined here: {self.undefined}")
        return value

    @abstractmethod
    def actual_of_scores(self, X: FloatArray, Y: FloatArray) -> float:
        """Return :meth:`actual` for arrays, unchecked: for loops.

        Parameters
        ----------
        X : (n_topics, n_systems) scores of the collection, none of them missing
        Y : (n_other_topics, n_systems) scores on other topics, or (n_systems,) true means
        """

    def estimate(
        self,
        scores: ScoresLike,
        n_topics: float | Iterable[float],
        *,
        system: str | None = None,
        topic: str | None = None,
        score: str | None = None,
    ) -> FloatArray:
        """Return the expected accuracy of collections of `n_topics` topics, from one collection.

        A bare matrix has **one row per topic and one column per system**.

        Parameters
        ----------
        scores : long table, :class:`vcomp.ir.ScoreMatrix` or matrix
        n_topics : one or more numbers of topics
        system, topic, score : columns of a long table; see :func:`vcomp.ir.as_score_matrix`

        Returns
        -------
        (len(n_topics),) array

        Raises
        ------
        PlanError
            If a number of topics is not positive, or not more than one for the F test, or if the
            measure has no estimator.
        DataError
            If the scores cannot be read, or do not suffice.
        """
        matrix = as_score_matrix(scores, system=system, topic=topic, score=score)
        return self.estimate_of_matrix(matrix, check_sizes(n_topics))

    def estimate_of_matrix(self, matrix: ScoreMatrix, n: FloatArray) -> FloatArray:
        """Return :meth:`estimate` for a matrix and checked numbers of topics."""
        raise PlanError(
            f"{self.name!r} has no estimator: derive it from vcomp.ir.measures.Extrapolated, or "
            "see vcomp.ir.split_half"
        )


class MeanMeasure(Measure):
    """A measure that compares the mean scores of systems with their true means."""

    __slots__ = ()

    of_means: ClassVar[bool] = True

    @abstractmethod
    def actual_of_means(self, means: FloatArray, true_means: FloatArray) -> FloatArray:
        """Compare means with true means, for any number of collections at once; unchecked.

        Parameters
        ----------
        means : (..., n_systems) mean scores
        true_means : (..., n_systems) true means; the leading axes broadcast with those of `means`

        Returns
        -------
        (...) array
            nan where the measure is not defined.
        """

    def actual_of_rows(self, rows: MeanRows) -> FloatArray:
        """Return :meth:`actual_of_means` of each row, with the cached results of `rows`."""
        return self.actual_of_means(rows.means, rows.truth)

    def actual_of_scores(self, X: FloatArray, Y: FloatArray) -> float:
        """Return :meth:`actual` for arrays, unchecked: for loops."""
        truth = Y.mean(axis=0) if Y.ndim == 2 else Y
        return float(self.actual_of_means(X.mean(axis=0), truth))


class RowMeasure(MeanMeasure):
    """A measure of means that uses the shared cached results of :class:`MeanRows`."""

    __slots__ = ()

    def actual_of_means(self, means: FloatArray, true_means: FloatArray) -> FloatArray:
        """Compare means with true means, for any number of collections at once; unchecked."""
        rows, shape = MeanRows.of(means, true_means)
        return self.actual_of_rows(rows).reshape(shape)

    @abstractmethod
    def actual_of_rows(self, rows: MeanRows) -> FloatArray:
        """Return the measure of each row."""


class TopicMeasure(Measure):
    """A measure that tests differences for significance and so needs the scores on each topic."""

    __slots__ = ()

    of_means: ClassVar[bool] = False


def check_sizes(n_topics: float | Iterable[float]) -> FloatArray:
    """Return numbers of topics as an array.

    Raises
    ------
    PlanError
        If there is none, or one is not a positive number.
    """
    values: list[Any] = [n_topics]
    if isinstance(n_topics, np.ndarray):
        values = list(np.atleast_1d(n_topics))
    elif isinstance(n_topics, Iterable) and not isinstance(n_topics, str):
        values = list(n_topics)
    if not values:
        raise PlanError("no number of topics is given")
    for n in values:
        if not is_real(n) or not 0 < n < np.inf:
            raise PlanError(f"the number of topics must be positive, not {n!r}")
    return np.array(values, dtype=float)


def whole(n: FloatArray) -> FloatArray | LongArray:
    """Return numbers of topics as integers if all are whole.

    Examples
    --------
    >>> whole(np.array([50.0, 100.0]))
    array([ 50, 100])
    """
    return n.astype(np.int64) if (n == np.floor(n)).all() else n


def named(measures: Iterable[Measure]) -> dict[str, Measure]:
    """Return measures by name; by name and options if several have the same name.

    Examples
    --------
    >>> from vcomp.ir.measures import get
    >>> list(named([get("tau"), get("tau", variant="a"), get("rmse")]))
    ["Tau(variant='b')", "Tau(variant='a')", 'rmse']
    """
    all_of_them = list(measures)
    names = Counter(measure.name for measure in all_of_them)
    return {m.name if names[m.name] == 1 else repr(m): m for m in all_of_them}

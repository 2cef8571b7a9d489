"""Estimators of accuracy: by pairs, D-study, power, halves or subsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError
from vcomp.gtheory import DStudy, PlannedName
from vcomp.ir.agreement import Measure
from vcomp.ir.curve import Model
from vcomp.ir.measures import (
    RMSE,
    DependabilityIndex,
    FromSubsets,
    FTest,
    GeneralizabilityCoefficient,
    TauAP,
)
from vcomp.ir.rank import PairedDifferences, TauEstimator, expected_correlation
from vcomp.ir.scores import ScoreMatrix
from vcomp.ir.splitting import SplitHalfStudy

PLANNED: Mapping[type[Measure], PlannedName] = {
    GeneralizabilityCoefficient: "Erho2",
    DependabilityIndex: "Phi",
    RMSE: "abs_sem",
}
"""Measures that a D-study projects, with its names for them."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimated:
    """Accuracies of tests of several sizes, with the ends of their intervals.

    Attributes
    ----------
    estimate, low, high : (m,) nan where there is none
    """

    estimate: FloatArray
    low: FloatArray
    high: FloatArray


class MeasureEstimator(Protocol):
    """Estimator of one measure."""

    @property
    def label(self) -> str:
        """Name of the estimator in tables."""

    @property
    def fewest(self) -> int | None:
        """Smallest number of topics that has an estimate; None if estimates are random."""

    def at(self, n_topics: FloatArray, alpha: float) -> Estimated:
        """Return the accuracy of tests of n topics, (m,), with intervals of level 1 − alpha."""


@dataclass(frozen=True, slots=True, eq=False)
class ByPairs:
    """Eτ or Eτ_AP, from the differences between every two systems.

    Attributes
    ----------
    measure : τ or τ_AP
    matrix : scores
    estimator : ``"shrunken"`` or ``"urbano"``
    seed : of the draws behind intervals
    """

    measure: Measure
    matrix: ScoreMatrix
    estimator: TauEstimator
    seed: int

    fewest: ClassVar[int | None] = 1

    @property
    def label(self) -> str:
        """The estimator's name."""
        return self.estimator

    def at(self, n_topics: FloatArray, alpha: float) -> Estimated:
        """Return accuracies of new tests; see :func:`vcomp.ir.expected_tau`."""
        return self._of(n_topics, alpha)

    def at_hand(self, alpha: float) -> Estimated:
        """Return the accuracy of the collection itself."""
        return self._of(None, alpha)

    def _of(self, n_topics: FloatArray | None, alpha: float) -> Estimated:
        table = expected_correlation(
            PairedDifferences.from_scores(self.matrix.scores, self.matrix.systems),
            n_topics,
            variant="ap" if isinstance(self.measure, TauAP) else "a",
            estimator=self.estimator,
            alpha=alpha,
            rng=self.seed,
        )
        return Estimated(*(table[c].to_numpy(dtype=float) for c in ("estimate", "low", "high")))


@dataclass(frozen=True, slots=True, eq=False)
class ByDStudy:
    """Eρ², Φ, and ε = √σ²(Δ), the absolute standard error of measurement, by a D-study.

    Attributes
    ----------
    study : a D-study of the components, of one plan or more
    sampled : the facet of the topics
    quantity : of :meth:`DStudy.quantity`
    """

    study: DStudy
    sampled: str
    quantity: PlannedName

    label: ClassVar[str] = "D-study"
    fewest: ClassVar[int | None] = 1

    def at(self, n_topics: FloatArray, alpha: float) -> Estimated:
        """Return the projections to n topics, all other sizes as in the study."""
        plan = self.study.plan
        sizes = np.repeat(plan.sizes[:1], n_topics.size, axis=0)
        sizes[:, plan.facets.index(self.sampled)] = n_topics
        planned = replace(self.study, plan=replace(plan, sizes=sizes), alpha=alpha)
        table = planned.quantity(self.quantity)
        return Estimated(*(table[c].to_numpy(dtype=float) for c in ("estimate", "low", "high")))


@dataclass(frozen=True, slots=True, eq=False)
class ByPower:
    """Power of the F test, from the relative error variance of a single topic.

    The power falls with this variance, so that its interval is that of the variance.

    Attributes
    ----------
    study, sampled : see :class:`ByDStudy`
    measure : the F test
    n_systems : number of systems
    """

    study: DStudy
    sampled: str
    measure: FTest
    n_systems: int

    label: ClassVar[str] = "power, D-study"
    fewest: ClassVar[int | None] = 2

    def at(self, n_topics: FloatArray, alpha: float) -> Estimated:
        """Return the power at the variance, and at the ends of its interval."""
        self.measure.check_topics(n_topics)
        of_one = ByDStudy(self.study, self.sampled, "rel_err_var").at(np.ones(1), alpha)

        def power(variance: FloatArray) -> FloatArray:
            if np.isnan(variance[0]):
                return np.full(n_topics.size, np.nan)
            return self.measure.power(float(variance[0]), self.n_systems, n_topics)

        return Estimated(power(of_one.estimate), power(of_one.high), power(of_one.low))


@dataclass(frozen=True, slots=True, eq=False)
class ByHalves:
    """A curve fitted to accuracies of halves of the topics, extrapolated to larger tests.

    Attributes
    ----------
    study : of :func:`vcomp.ir.split_half`
    name : of the measure in the study
    model : of the curve
    """

    study: SplitHalfStudy
    name: str
    model: Model

    fewest: ClassVar[int | None] = 1

    @property
    def label(self) -> str:
        """``split_half`` and the model of the curve."""
        return f"split_half, {self.model}"

    @property
    def problem(self) -> str | None:
        """Reason why no curve could be fitted; None if one was."""
        return self.study.problems.get((self.name, self.model))

    def at(self, n_topics: FloatArray, alpha: float) -> Estimated:
        """Return the curve, with prediction intervals of single tests."""
        curve = self.study.curves.get((self.name, self.model))
        if curve is None:
            return Estimated(*np.full((3, n_topics.size), np.nan))
        table = curve.predict(n_topics, alpha=alpha)
        columns = ("estimate", "obs_low", "obs_high")
        return Estimated(*(table[c].to_numpy(dtype=float) for c in columns))


@dataclass(frozen=True, slots=True, eq=False)
class BySubsets:
    """Measure of tests, by random subsets of the topics and by the noncentral t beyond.

    Attributes
    ----------
    measure : to estimate
    matrix : scores, none of them missing
    trials : subsets of each size; None for the default
    seed : of the subsets
    """

    measure: FromSubsets
    matrix: ScoreMatrix
    trials: int | None
    seed: int

    label: ClassVar[str] = "subsets, noncentral t"
    fewest: ClassVar[int | None] = None

    def at(self, n_topics: FloatArray, alpha: float) -> Estimated:
        """See :meth:`FromSubsets.estimate` and :meth:`FromSubsets.interval_of_matrix`."""
        measure, matrix, trials, seed = self.measure, self.matrix, self.trials, self.seed
        estimates = measure.estimate_of_matrix(matrix, n_topics, trials=trials, seed=seed)
        ends = measure.interval_of_matrix(matrix, n_topics, alpha, trials=trials, seed=seed)
        return Estimated(estimates, *ends)


@dataclass(frozen=True, slots=True, eq=False)
class ByItself:
    """The estimator of the measure itself, without an interval.

    Attributes
    ----------
    measure : any with an estimator
    matrix : scores
    """

    measure: Measure
    matrix: ScoreMatrix

    label: ClassVar[str] = "its own"
    fewest: ClassVar[int | None] = 1

    def at(self, n_topics: FloatArray, alpha: float) -> Estimated:
        """See :meth:`Measure.estimate`."""
        unknown = np.full(n_topics.size, np.nan)
        return Estimated(self.measure.estimate(self.matrix, n_topics), unknown, unknown)


MOST_TOPICS = 2**30
"""Largest number of topics that is tried."""


def smallest_size(
    estimator: MeasureEstimator, goal: float, measure: Measure, alpha: float
) -> tuple[float, float]:
    """Return the smallest number of topics with which a measure reaches a goal.

    Parameters
    ----------
    estimator : of the measure
    goal : to reach; of a measure of which less is better, not to exceed
    measure : to reach it
    alpha : of the intervals that the estimator makes

    Returns
    -------
    n : infinite if no number that is tried reaches the goal
    last : the measure at the last number that was tried

    Raises
    ------
    PlanError
        If the measure has no estimate, or random ones.
    """
    if estimator.fewest is None:
        raise PlanError(
            f"{measure.name} is counted on random subsets of the topics, so that it has no "
            "smallest number of topics; predict() has it at several sizes"
        )

    def value(n: int) -> float:
        return float(estimator.at(np.array([float(n)]), alpha).estimate[0])

    def reaches(found: float) -> bool:
        return found >= goal if measure.larger_is_better else found <= goal

    low, found = estimator.fewest - 1, value(estimator.fewest)
    if np.isnan(found):
        raise PlanError(f"{measure.name} has no estimate here, so that no size reaches a goal")
    high = estimator.fewest
    while not reaches(found):
        if high >= MOST_TOPICS:
            return np.inf, found
        low, high = high, min(2 * high, MOST_TOPICS)
        found = value(high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(value(middle)) else (middle, high)
    return float(high), value(high)

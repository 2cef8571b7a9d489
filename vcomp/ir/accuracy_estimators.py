"""Estimators of measures of accuracy: values that give a measure for tests of any size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError
from vcomp.gtheory import DStudy, PlannedName
from vcomp.ir.curve import Model
from vcomp.ir.measures import (
    RMSE,
    DependabilityIndex,
    FTest,
    GeneralizabilityCoefficient,
    Measure,
    Tau,
    TauAP,
)
from vcomp.ir.rank import TauEstimator, expected_tau, paired_differences
from vcomp.ir.scores import ScoreMatrix
from vcomp.ir.split_half_result import SplitHalfStudy

PLANNED: Mapping[type[Measure], PlannedName] = {
    GeneralizabilityCoefficient: "Erho2",
    DependabilityIndex: "Phi",
    RMSE: "abs_sem",
}
"""Measures that a D-study has, and what it calls them."""


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


class Estimator(Protocol):
    """Estimates one measure."""

    @property
    def label(self) -> str:
        """What it is called in tables."""

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

    @property
    def label(self) -> str:
        """The estimator's name."""
        return self.estimator

    def at(self, n_topics: FloatArray, alpha: float) -> Estimated:
        """Return those of new tests; see :func:`vcomp.ir.expected_tau`."""
        return self._of(n_topics, alpha)

    def at_hand(self, alpha: float) -> Estimated:
        """Return that of the collection itself, whose scores are known."""
        return self._of(None, alpha)

    def _of(self, n_topics: FloatArray | None, alpha: float) -> Estimated:
        table = expected_tau(
            paired_differences(self.matrix),
            n_topics,
            ap=isinstance(self.measure, TauAP),
            estimator=self.estimator,
            alpha=alpha,
            rng=self.seed,
        )
        return Estimated(*(table[c].to_numpy(dtype=float) for c in ("estimate", "low", "high")))


@dataclass(frozen=True, slots=True, eq=False)
class ByDStudy:
    """What a D-study projects: Eρ², Φ, and ε as the standard error of measurement √σ²(Δ).

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

    def at(self, n_topics: FloatArray, alpha: float) -> Estimated:
        """Plan so many topics, all else as in the study, and project."""
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
    n_systems : that are compared
    """

    study: DStudy
    sampled: str
    measure: FTest
    n_systems: int

    label: ClassVar[str] = "power, D-study"

    def at(self, n_topics: FloatArray, alpha: float) -> Estimated:
        """Return the power at the variance, and at the ends of its interval."""
        if (n_topics <= 1).any():
            few = n_topics[n_topics <= 1][0]
            raise PlanError(f"the F test needs more than one topic, not {few:g}")
        of_one = ByDStudy(self.study, self.sampled, "rel_err_var").at(np.ones(1), alpha)

        def power(variance: FloatArray) -> FloatArray:
            if np.isnan(variance[0]):
                return np.full(n_topics.size, np.nan)
            return self.measure.power(float(variance[0]), self.n_systems, n_topics)

        return Estimated(power(of_one.estimate), power(of_one.high), power(of_one.low))


@dataclass(frozen=True, slots=True, eq=False)
class ByHalves:
    """A curve through accuracies of halves of the topics, drawn out to larger tests.

    Attributes
    ----------
    study : of :func:`vcomp.ir.split_half`
    name : of the measure in the study
    model : of the curve
    """

    study: SplitHalfStudy
    name: str
    model: Model

    @property
    def label(self) -> str:
        """With the model of the curve."""
        return f"split_half, {self.model}"

    @property
    def problem(self) -> str | None:
        """Why there is no curve; None where there is one."""
        return self.study.problems.get((self.name, self.model))

    def at(self, n_topics: FloatArray, alpha: float) -> Estimated:
        """Return the curve, and where single tests lie about it."""
        curve = self.study.curves.get((self.name, self.model))
        if curve is None:
            return Estimated(*np.full((3, n_topics.size), np.nan))
        table = curve.predict(n_topics, alpha=alpha)
        columns = ("estimate", "obs_low", "obs_high")
        return Estimated(*(table[c].to_numpy(dtype=float) for c in columns))


@dataclass(frozen=True, slots=True, eq=False)
class ByItself:
    """The estimator that a measure brings along, without an interval.

    Attributes
    ----------
    measure : any with an estimator
    matrix : scores
    """

    measure: Measure
    matrix: ScoreMatrix

    label: ClassVar[str] = "its own"

    def at(self, n_topics: FloatArray, alpha: float) -> Estimated:
        """See :meth:`Measure.estimate`."""
        unknown = np.full(n_topics.size, np.nan)
        return Estimated(self.measure.estimate(self.matrix, n_topics), unknown, unknown)


def estimator_of(
    measure: Measure,
    matrix: ScoreMatrix | None,
    study: DStudy | None,
    sampled: str,
    estimator: TauEstimator,
    seed: int,
) -> Estimator | None:
    """Return the estimator of a measure; None where halves have to do.

    Parameters
    ----------
    measure : to estimate
    matrix : scores; None where no requested measure needs them
    study : a D-study; None where no requested measure needs one
    sampled : the facet of the topics
    estimator : of τ and τ_AP
    seed : of what is drawn
    """
    quantity = PLANNED.get(type(measure))
    if quantity is not None and study is not None:
        return ByDStudy(study, sampled, quantity)
    if matrix is None:
        return None
    if isinstance(measure, FTest) and study is not None:
        return ByPower(study, sampled, measure, matrix.n_systems)
    if isinstance(measure, Tau | TauAP):
        return ByPairs(measure, matrix, estimator, seed)
    return ByItself(measure, matrix) if measure.has_estimator else None

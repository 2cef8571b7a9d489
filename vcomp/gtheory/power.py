"""Power of tests of differences in planned measurements, and sizes that errors and power need."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, check_alpha, check_one_of, is_real, is_whole
from vcomp.gtheory.plan import DStudyPlan
from vcomp.gtheory.projection import composition, planned_limits, planned_quantity, weights
from vcomp.gtheory.published_tables import anova_of_components
from vcomp.gtheory.requirement import Requirement, free_facet, outer_facets
from vcomp.gtheory.study_record import StudyRecord, sizes_table
from vcomp.inference import used_components

if TYPE_CHECKING:
    import pandas as pd

ErrorName: TypeAlias = Literal[
    "rel_err_var", "abs_err_var", "rel_sem", "abs_sem", "se_difference", "width", "rank_set"
]

ERRORS: Mapping[str, str] = {
    "rel_err_var": "σ²(δ)",
    "abs_err_var": "σ²(Δ)",
    "rel_sem": "√σ²(δ)",
    "abs_sem": "√σ²(Δ)",
    "se_difference": "√(2σ²(δ))",
}
"""Symbols of errors that a plan is to reduce, by their names."""

OF_TESTS: Mapping[str, str] = {
    "width": "a width of {} of the interval of a difference",
    "rank_set": "a mean size of {} of simultaneous sets of ranks",
}
"""Goals of tests of differences, by their names, in words."""

_OF_TEST = "se_difference"

MOST_LEVELS = 2.0**30
"""Largest size that is tried."""

_AS_NORMAL = 1e8
"""Degrees of freedom above which t is normal to eight digits."""

_MOST_ERROR = 1e100
"""Error variance of a goal that any error meets."""

_TRIED = 16
"""Sizes that are tried at once."""

TestName: TypeAlias = Literal["t", "tukey"]
"""The t-test of one pair, or Tukey's test of all pairs."""


@dataclass(frozen=True, slots=True)
class DifferenceTest:
    """A two-sided test of the difference between two objects of measurement.

    Attributes
    ----------
    alpha : its level
    n_objects : objects in the planned data, whose error variance is estimated together
    test : ``"t"``, of one pair; ``"tukey"``, of this pair among all pairs of the objects
    """

    alpha: float = 0.05
    n_objects: int = 2
    test: TestName = "t"

    def __post_init__(self) -> None:
        """Refuse other values."""
        check_alpha(self.alpha)
        if not is_whole(self.n_objects) or self.n_objects < 2:
            raise PlanError(f"n_objects is a whole number from 2, not {self.n_objects!r}")
        check_one_of("test", self.test, ("t", "tukey"))

    def bounds(self, df: FloatArray) -> FloatArray:
        """Return the multiples of standard errors from which a difference is significant, (m,).

        Parameters
        ----------
        df : (m,) degrees of freedom
        """
        # Deferred for start-up time: few D-studies ask for power.
        from scipy.special import ndtri, stdtrit

        degrees, p = np.minimum(df, _AS_NORMAL), 1.0 - self.alpha / 2.0
        if self.test == "t":
            return np.where(df > _AS_NORMAL, ndtri(p), stdtrit(degrees, p))
        return _rank_bounds(degrees, self)

    def power(self, difference: FloatArray, se: FloatArray, df: FloatArray) -> FloatArray:
        """Return the probability of rejection, of the shape of the arguments.

        Parameters
        ----------
        difference : true one, above 0
        se, df : standard error of the estimated difference, and its degrees of freedom
        """
        difference, se, df = np.broadcast_arrays(difference, se, df)
        surely = np.full(difference.shape, np.inf)
        shifts = np.divide(difference, se, out=surely, where=se != 0.0)
        of_each = zip(shifts.tolist(), df.tolist(), self.bounds(df).tolist(), strict=True)
        return np.array([_of_shift(*of) for of in of_each])

    def detectable(self, power: float, se: float, df: float) -> float:
        """Return the true difference that the test finds with some probability."""
        from scipy.optimize import brentq

        bound = float(self.bounds(np.array([df]))[0])

        def excess(shift: float) -> float:
            return _of_shift(shift, df, bound) - power

        if se == 0.0 or excess(0.0) >= 0.0:
            return 0.0
        high = 4.0
        while excess(high) < 0.0:
            high *= 2.0
        return se * float(brentq(excess, 0.0, high, xtol=1e-12, rtol=1e-14))


def _of_shift(shift: float, df: float, bound: float) -> float:
    """Return the power at a difference in units of its standard error.

    Parameters
    ----------
    shift : the difference
    df : degrees of freedom of the standard error
    bound : multiple of the standard error from which a difference is significant
    """
    from scipy.special import log_ndtr

    from vcomp.inference.pairwise import Tail, studentized_sf

    if math.isnan(shift):
        return math.nan
    if math.isinf(shift):
        return 1.0
    # |t| > c where |z + shift| > c s: noncentral t, with all digits of power near 1.
    beyond = Tail(
        lambda w: np.logaddexp(log_ndtr(shift - w), log_ndtr(-shift - w)),
        rate=0.0,
        step=0.5 / max(shift, 1.0),
    )
    degrees = math.inf if df > _AS_NORMAL else df
    return float(studentized_sf(np.array([bound]), degrees, beyond)[0])


def difference_df(study: StudyRecord, plan: DStudyPlan, n_objects: int) -> FloatArray:
    """Return degrees of freedom of the error variance of differences in each plan, (m,).

    They are Satterthwaite's, 2 θ²/var θ̂ of θ = σ²(δ), of the analysis of variance of the planned
    data, with the rounded sizes of unbalanced ones; infinite where the plan has none: of layouts,
    of finite facets, and of objects of several facets.

    Parameters
    ----------
    study : of the components
    plan : of the sizes
    n_objects : objects in the planned data

    References
    ----------
    Satterthwaite, F. E. (1946). An approximate distribution of estimates of variance components.
    *Biometrics Bulletin*, 2, 110-114.
    """
    universe = plan.universe
    has_no_table = plan.labels is not None or universe.sizes or universe.within
    if has_no_table or len(plan.objects) > 1:
        return np.full(len(plan), np.inf)
    components = study.components
    roles, relative = composition(components, plan), weights(components, plan).relative
    values = used_components(components, study.negative).values
    return np.array(
        [
            _of_table(plan, row, roles.effects, values, relative[row], n_objects)
            for row in range(len(plan))
        ]
    )


def _of_table(
    plan: DStudyPlan,
    row: int,
    effects: Sequence[frozenset[str]],
    values: FloatArray,
    relative: FloatArray,
    n_objects: int,
) -> float:
    """Return the degrees of freedom in one plan."""
    sizes = dict(zip(plan.facets, plan.sizes[row].tolist(), strict=True))
    # What is observed at one level only has no degrees of freedom: it is known from elsewhere.
    sizes = {f: float(max(round(n), 1)) for f, n in sizes.items() if n > 1.5}
    kept = frozenset(sizes) | plan.objects
    sizes |= {next(iter(plan.objects)): float(n_objects)}
    facets = [f for f in plan.design.facets if f in kept]
    subsets = chain.from_iterable(combinations(facets, k) for k in range(1, len(facets) + 1))
    closed = dict.fromkeys(plan.design.closure(frozenset(s)) & kept for s in subsets)
    terms = sorted(closed, key=len)
    place = {term: k for k, term in enumerate(terms)}
    variances, error, w = (np.zeros(len(terms)) for _ in range(3))
    for effect, value, weight in zip(effects, values, relative, strict=True):
        if (term := effect & kept) in place:
            variances[place[term]] += value
            error[place[term]] += value * weight
            w[place[term]] = max(w[place[term]], weight)
    total = float(error.sum())
    if not total > 0.0 or not variances[-1] > 0.0:
        return math.inf
    # A component of zero has the weight of its estimate, which is not known to be zero.
    w = np.divide(error, variances, out=w, where=variances > 0.0)
    w[place[plan.objects]] = 0.0
    table = anova_of_components([":".join(sorted(t)) for t in terms], terms, variances, sizes)
    sampling = float(w @ table.covariance @ w)
    return 2.0 * total**2 / sampling if sampling > 0.0 else math.inf


class PlannedErrors(NamedTuple):
    """Error variances of plans with their limits, each (m,)."""

    estimate: FloatArray
    low: FloatArray
    high: FloatArray


def planned_errors(study: StudyRecord, plan: DStudyPlan, name: str) -> PlannedErrors:
    """Return an error of every plan with its limits; nan where these need maximisations.

    Parameters
    ----------
    study : of the components and intervals
    plan : of the sizes
    name : one of :data:`ERRORS`
    """
    q = planned_quantity(weights(study.components, plan), name)
    estimate = q.values(used_components(study.components, study.negative).values)
    if study.source.interval == "profile":
        unknown = np.full(len(plan), np.nan)
        return PlannedErrors(estimate, unknown, unknown)
    limits = planned_limits(name, q, study.components, plan, study.source, study.alpha)
    return PlannedErrors(estimate, limits.low, limits.high)


def power_table(study: StudyRecord, difference: Any, test: DifferenceTest) -> pd.DataFrame:
    """Return the power of every plan and difference; see :meth:`DStudy.power`."""
    plan, wanted = study.plan, _differences(difference)
    errors = planned_errors(study, plan, _OF_TEST)
    df = difference_df(study, plan, test.n_objects)
    own = ["difference", "std_error", "df", "power", "low", "high"]
    true = np.tile(wanted, len(plan))
    se, least, most = (np.repeat(of, wanted.size) for of in errors)
    df = np.repeat(df, wanted.size)
    # The larger the error, the smaller the power.
    powers = [test.power(true, of, df) for of in (se, most, least)]
    columns = dict(zip(own, (true, se, df, *powers), strict=True))
    return sizes_table(plan, columns, wanted.size)


def detectable_table(study: StudyRecord, power: float, test: DifferenceTest) -> pd.DataFrame:
    """Return the difference that every plan detects; see :meth:`DStudy.detectable`."""
    check_power(power, test)
    plan = study.plan
    errors = planned_errors(study, plan, _OF_TEST)
    df = difference_df(study, plan, test.n_objects)
    units = np.array([test.detectable(power, 1.0, float(of)) for of in df])
    own = {"std_error": errors.estimate, "df": df}
    found = dict(zip(("difference", "low", "high"), (units * of for of in errors), strict=True))
    return sizes_table(plan, own | found)


def _rank_bounds(df: FloatArray, test: DifferenceTest) -> FloatArray:
    """Return the multiples of standard errors from which two of all objects differ."""
    from vcomp.inference.pairwise import range_of_normals, studentized_isf

    distinct, places = np.unique(df, return_inverse=True)
    tail = range_of_normals(test.n_objects)
    return np.asarray(studentized_isf(test.alpha, distinct, tail) / math.sqrt(2.0))[places]


def allowed_error(name: str, largest: float, df: float, tau: float, test: DifferenceTest) -> float:
    """Return the error variance σ²(δ) with which a goal of a test is just met.

    Parameters
    ----------
    name : one of :data:`OF_TESTS`
    largest : the width, or mean size of a set of ranks
    df : degrees of freedom of the error
    tau : universe-score variance
    test : of the objects
    """
    from scipy.special import stdtrit

    degrees = np.array([min(df, _AS_NORMAL)])
    if name == "width":
        return float(0.125 * (largest / test.bounds(degrees)[0]) ** 2)
    alike = (largest - 1.0) / (test.n_objects - 1.0)
    share = float(-stdtrit(degrees, 0.5 * (1.0 - alike))[0] / _rank_bounds(degrees, test)[0])
    return _MOST_ERROR if share >= 1.0 else min(_MOST_ERROR, tau * share**2 / (1.0 - share**2))


def tested_value(
    name: str, se: FloatArray, df: FloatArray, tau: FloatArray | float, test: DifferenceTest
) -> FloatArray:
    """Return the width of intervals of differences, or the mean size of sets of ranks, (..., m).

    A set has the rank of its object and one for each other from which it does not differ
    significantly. Of two objects drawn from a normal population the observed difference has
    variance 2τ + se², so that over the estimate of its standard error it is a multiple of t.

    Parameters
    ----------
    name : one of :data:`OF_TESTS`
    se : (..., m) standard errors of a difference
    df : (m,) their degrees of freedom
    tau : universe-score variance, one or (m,)
    test : of the objects
    """
    from scipy.special import stdtr

    if name == "width":
        return np.asarray(2.0 * se * test.bounds(df))
    degrees = np.minimum(df, _AS_NORMAL)
    spread = np.sqrt(np.maximum(2.0 * tau + se**2, 0.0))
    share = np.divide(se, spread, out=np.ones_like(se), where=spread != 0.0)
    alike = 1.0 - 2.0 * stdtr(degrees, -share * _rank_bounds(degrees, test))
    return np.asarray(1.0 + (test.n_objects - 1.0) * alike)


def check_no_goal(goal: object) -> None:
    """Refuse a goal where a difference is given."""
    if goal is not None:
        raise PlanError("give a goal of a coefficient, or a difference= with its power=, not both")


def check_no_test(**options: object) -> None:
    """Refuse options of a test without a difference."""
    if any(value is not None for value in options.values()):
        raise PlanError(f"{', '.join(map('{}='.format, options))} are of a test of a difference=")


def required_error(
    study: StudyRecord,
    facet: str | None,
    goal: float | None,
    name: str,
    n_objects: int | None = None,
    alpha: float | None = None,
    test: TestName | None = None,
) -> Requirement:
    """Return the size of a facet with which an error is not above a goal.

    Parameters
    ----------
    study : of the components and intervals
    facet : may be None where only one has a size
    goal : that the error is not to exceed
    name : one of :data:`ERRORS` or :data:`OF_TESTS`
    n_objects, alpha, test : of tests, as for :meth:`DStudy.required`
    """
    if goal is None or not is_real(goal) or not 0.0 < goal < np.inf:
        raise PlanError(f"the goal of {name} must be a number above 0, not {goal!r}")
    largest, tested = float(goal), test_of(study, name, goal, n_objects, alpha, test)
    of_test = partial(difference_df, study, n_objects=tested.n_objects)

    def met(plan: DStudyPlan, which: int) -> FloatArray:
        of = error_of(plan, which)
        return np.where(np.isnan(of), np.nan, of <= largest)

    def error_of(plan: DStudyPlan, which: int) -> FloatArray:
        if name in ERRORS:
            return planned_errors(study, plan, name)[which]
        values = used_components(study.components, study.negative).values
        tau = weights(study.components, plan).universe @ values
        se = planned_errors(study, plan, _OF_TEST)[which]
        return tested_value(name, se, of_test(plan), tau, tested)

    value = display.number(largest)
    goal_words = OF_TESTS[name].format(value) if name in OF_TESTS else f"{ERRORS[name]} = {value}"
    df = None if name in ERRORS else of_test
    return _required(study, facet, met, Goal(name, largest, goal_words, df))


def test_of(
    study: StudyRecord,
    name: str,
    goal: float,
    n_objects: int | None,
    alpha: float | None,
    test: TestName | None,
) -> DifferenceTest:
    """Return the test whose intervals, or sets of ranks, are a goal.

    Parameters
    ----------
    study : of the components
    name : of the goal
    goal : its value
    n_objects, alpha, test : of the test; None for those of the study, or 2, 0.05 and ``"t"``
    """
    given = n_objects
    if name == "rank_set":
        if goal < 1.0:
            raise PlanError(f"a set of ranks has at least 1, so a mean of {goal!r} is too small")
        given = _objects_of(study) if n_objects is None else n_objects
    return given_test(given, alpha, test)


def given_test(
    n_objects: int | None, alpha: float | None, test: TestName | None
) -> DifferenceTest:
    """Return a test of a difference.

    Parameters
    ----------
    n_objects, alpha, test : 2, 0.05 and ``"t"`` if None
    """
    return DifferenceTest(
        0.05 if alpha is None else alpha,
        2 if n_objects is None else n_objects,
        "t" if test is None else test,
    )


def _objects_of(study: StudyRecord) -> int:
    """Return the number of objects of the G-study."""
    sizes = [study.components.sizes.get(facet) for facet in study.plan.objects]
    if None in sizes:
        raise PlanError(
            "a set of ranks depends on how many objects are ranked: give n_objects=, since the "
            f"number of {study.plan.object} in the G-study is not known"
        )
    return max(2, round(math.prod(float(n or 0.0) for n in sizes)))


def required_power(
    study: StudyRecord,
    facet: str | None,
    difference: float,
    power: float | None,
    n_objects: int | None,
    alpha: float | None,
    test: TestName | None,
) -> Requirement:
    """Return the size of a facet with which a test finds a difference.

    Parameters
    ----------
    study : of the components and intervals
    facet : may be None where only one has a size
    difference : the true one
    power, n_objects, alpha, test : 0.8, 2, 0.05 and ``"t"`` if None
    """
    tested = given_test(n_objects, alpha, test)
    wanted = check_power(0.8 if power is None else power, tested)
    true = _differences(difference, one=True)

    def met(plan: DStudyPlan, which: int) -> FloatArray:
        se = planned_errors(study, plan, _OF_TEST)[which]
        of = tested.power(true, se, difference_df(study, plan, tested.n_objects))
        return np.where(np.isnan(of), np.nan, of >= wanted)

    df = partial(difference_df, study, n_objects=tested.n_objects)
    words = power_in_words(wanted, true[0])
    return _required(study, facet, met, Goal("power", wanted, words, df))


def power_in_words(power: float, difference: float) -> str:
    """Return the goal of a test of a difference."""
    return f"power {display.number(power)} at a difference of {display.number(difference)}"


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a size: name of the quantity, its value, and both in words.

    The degrees of freedom in plans are those of a test, None of an error.
    """

    name: str
    value: float
    words: str
    df: Callable[[DStudyPlan], FloatArray] | None = None


Met: TypeAlias = Callable[[DStudyPlan, int], FloatArray]
"""Whether plans meet a goal, with the estimated error, 0, or a limit, 1 or 2; nan if not known."""


def _required(study: StudyRecord, facet: str | None, met: Met, goal: Goal) -> Requirement:
    chosen = free_facet(facet, study.plan)
    made = [_of_plan(study, plan, chosen, met, goal) for plan in study.plan.by_other_sizes(chosen)]
    return replace(made[0], further=tuple(made[1:]))


def _of_plan(
    study: StudyRecord, plan: DStudyPlan, facet: str, met: Met, goal: Goal
) -> Requirement:
    """Return the size that one plan needs, its other facets held."""
    column = plan.facets.index(facet)
    largest = plan.universe.sizes.get(facet, MOST_LEVELS)

    def planned(sizes: FloatArray) -> DStudyPlan:
        table = np.repeat(plan.sizes, sizes.size, axis=0)
        table[:, column] = sizes
        return replace(plan, sizes=table, inverse_n=None, unshared=None, labels=None)

    def smallest(which: int) -> float:
        return smallest_size(lambda sizes: met(planned(sizes), which), largest, least)

    # Where two levels show the error, with degrees of freedom, one shows none, for no test.
    df = np.zeros(2) if goal.df is None else goal.df(planned(np.array([1.0, 2.0])))
    least = 2.0 if largest > 1 and df[0] == np.inf > df[1] else 1.0
    # The smaller the error, the fewer levels.
    n, low, high = map(smallest, range(3))
    held = {f: s for f, s in zip(plan.facets, plan.sizes[0].tolist(), strict=True) if f != facet}
    why = ""
    if math.isinf(n):
        levels = display.levels_of(facet)
        are_all = f"all {display.count(largest)}" if largest < MOST_LEVELS else "any number of"
        why = f"{are_all} {levels} are too few; plan more of the other facets."
    within = outer_facets(facet, plan.design)
    return Requirement(
        goal.name, goal.value, facet, n, low, high, study.alpha, held, why=why, within=within,
        words=goal.words,
    )  # fmt: skip


def smallest_size(
    at: Callable[[FloatArray], FloatArray],
    largest: float,
    least: float = 1.0,
) -> float:
    """Return the smallest size that meets a goal, infinite if none does.

    Parameters
    ----------
    at : returns, for (m,) sizes, whether they meet it: 1, 0, or nan where that is not known
    largest, least : of the sizes
    """
    low, high = least - 1.0, largest
    sizes = np.unique(np.floor(np.geomspace(least, largest, _TRIED)))
    while True:
        found = at(sizes)
        if np.isnan(found).any():
            return math.nan
        reached = found > 0.0
        if not reached.any():
            return math.inf
        first = int(np.argmax(reached))
        high = float(sizes[first])
        low = float(sizes[first - 1]) if first else low
        if high - low <= 1.0:
            return high
        sizes = np.unique(np.floor(np.linspace(low + 1.0, high, _TRIED)))


def _differences(given: Any, *, one: bool = False) -> FloatArray:
    """Return true differences as an array."""
    wanted = [given] if is_real(given) else given
    is_list = isinstance(wanted, list | tuple | np.ndarray | range) and len(wanted) > 0
    is_list = is_list and not (one and wanted is given)
    if not is_list or not all(is_real(x) and 0.0 < x < np.inf for x in wanted):
        several = "" if one else ", or several"
        raise PlanError(
            f"difference must be a number above 0{several}, on the scale of the scores, "
            f"not {given!r}"
        )
    return np.array([float(x) for x in wanted])


def true_difference(given: Any) -> float:
    """Return a true difference, a number above 0."""
    return float(_differences(given, one=True)[0])


def check_power(power: Any, test: DifferenceTest) -> float:
    """Return a power, above the level of its test.

    Parameters
    ----------
    power : of the test
    test : of a difference
    """
    if not is_real(power) or not test.alpha < power < 1.0:
        raise PlanError(
            f"power must be between alpha, {display.number(test.alpha)}, and 1, not {power!r}"
        )
    return float(power)

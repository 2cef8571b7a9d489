"""The best design for a budget, or the cheapest that reaches a goal: reads the arguments.

:mod:`~vcomp.gtheory.allocation.solve` finds the sizes of each design that is compared,
:func:`best_for_power` the cheapest with which a test of a difference has some power, or its
interval some width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import PlanError, check_one_of, is_real, is_whole
from vcomp.gtheory.allocation.alternative import Aim, Alternative, shown
from vcomp.gtheory.allocation.cost import money, read_cost
from vcomp.gtheory.allocation.problem import (
    AllocationSolution,
    SizeProblem,
    counts_objects,
    evaluate,
    make_problem,
    read_bounds,
)
from vcomp.gtheory.allocation.result import Allocation
from vcomp.gtheory.plan import DStudyPlan, make_plans
from vcomp.gtheory.power import (
    ERRORS,
    MOST_LEVELS,
    OF_TESTS,
    DifferenceTest,
    ErrorName,
    TestName,
    allowed_error,
    check_no_goal,
    check_no_test,
    check_power,
    difference_df,
    given_test,
    power_in_words,
    smallest_size,
    test_of,
    tested_value,
    true_difference,
)
from vcomp.gtheory.projection import QUANTITIES, ObjectiveName, weights
from vcomp.gtheory.study_record import S, StudyRecord
from vcomp.inference import used_components

_MOST_COMBINATIONS = 200_000
"""Combinations of sizes of all facets but one that are examined."""

_MOST_AT_ONCE = 4_000_000
"""Combinations whose costs are computed together."""

_STEPS, _CLOSER = 12, 0.01
"""Steps towards a design of nearly the least cost, and how much closer each one aims."""

_SAME = 1.0 + 1e-12
"""Costs closer than this ratio are equal."""

_VARIANCES = {
    "rel_sem": ("rel_err_var", 1.0),
    "abs_sem": ("abs_err_var", 1.0),
    "se_difference": ("rel_err_var", 0.5),
}
"""Error variances of standard errors, and the multiples of their squares."""


@dataclass(frozen=True, slots=True, eq=False)
class DifferenceGoal:
    """A goal whose error variance depends on its degrees of freedom.

    Attributes
    ----------
    study : of the components
    test : of the differences
    """

    study: StudyRecord
    test: DifferenceTest

    def df(self, problem: SizeProblem, rows: FloatArray) -> FloatArray:
        """Return the degrees of freedom of the error variance at (m, F) sizes."""
        plan = replace(problem.plan, sizes=problem.sizes(rows))
        return difference_df(self.study, plan, self.test.n_objects)

    def aim(self, df: float) -> Aim:
        """Return the error variance allowed with these degrees of freedom, as an aim."""
        raise NotImplementedError

    def is_met(self, problem: SizeProblem, values: FloatArray, rows: FloatArray) -> BoolArray:
        """Return whether (m, F) sizes reach the goal, with (k,) components."""
        se = np.sqrt(2.0 * np.maximum(problem.errors(rows, values), 0.0))
        return self._is_met(se, self.df(problem, rows))

    def _is_met(self, se: FloatArray, df: FloatArray) -> BoolArray:
        """Return whether standard errors of differences reach the goal, (m,)."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class ErrorGoal(DifferenceGoal):
    """The width of an interval of a difference, or the mean size of sets of ranks, as the goal.

    Attributes
    ----------
    name : ``"width"`` or ``"rank_set"``
    largest : that it may be
    """

    name: str
    largest: float

    @property
    def _tau(self) -> float:
        values = used_components(self.study.components, self.study.negative).values
        return float((weights(self.study.components, self.study.plan).universe @ values)[0])

    def aim(self, df: float) -> Aim:
        """Return the error variance that the goal allows, as an aim."""
        words = OF_TESTS[self.name].format(display.number(self.largest))
        goal = allowed_error(self.name, self.largest, df, self._tau, self.test)
        return Aim("rel_err_var", goal=goal, words=words)

    def _is_met(self, se: FloatArray, df: FloatArray) -> BoolArray:
        return tested_value(self.name, se, df, self._tau, self.test) <= self.largest


@dataclass(frozen=True, slots=True, eq=False)
class PowerGoal(DifferenceGoal):
    """Power of a test of a difference, as the goal of a design.

    Attributes
    ----------
    difference : the true one
    power : that the test is to have
    """

    difference: float
    power: float

    def aim(self, df: float) -> Aim:
        """Return the error variance that the goal allows, as an aim."""
        detected = self.test.detectable(self.power, 1.0, df)
        words = power_in_words(self.power, self.difference)
        return Aim("rel_err_var", goal=0.5 * (self.difference / detected) ** 2, words=words)

    def _is_met(self, se: FloatArray, df: FloatArray) -> BoolArray:
        return self.test.power(np.array(self.difference), se, df) >= self.power


def best_for_power(
    problem: SizeProblem, values: FloatArray, goal: DifferenceGoal, top: int, near: float
) -> tuple[Alternative, Aim]:
    """Return the cheapest sizes of a design with some power, and the aim that they reach.

    With errors that were known, the power would be that of a normal test, which no design exceeds.
    So all sizes of all facets but the largest are examined in the order of what a normal test
    would cost there, until that exceeds the cost of a design that has the power.

    Parameters
    ----------
    problem : of its sizes
    values : (k,) components
    goal : the power
    top : number of designs that are returned at most
    near : share by which their cost may exceed the least
    """
    start = _start(problem, values, goal)
    if start is None:
        none = np.empty((0, len(problem.facets)))
        empty = AllocationSolution(none, np.empty(0), np.empty(0))
        unfit = Alternative(problem, empty, np.empty(0), (math.inf, math.inf))
        return unfit, goal.aim(math.inf)
    found = [start, *_cheaper(problem, values, goal, start)] if problem.facets else [start]
    rows = np.unique(np.array(found), axis=0)
    costs = problem.costs(rows)
    order = np.lexsort([*rows.T[::-1], costs]) if problem.facets else np.arange(1)
    order = order[costs[order] <= (1.0 + near) * costs.min()][:top]
    rows, costs = rows[order], costs[order]
    errors = problem.errors(rows, values)
    solution = AllocationSolution(rows, errors + float(problem.spared @ values), costs)
    aim = goal.aim(float(goal.df(problem, rows[:1])[0]))
    return Alternative(problem, solution, errors, (float(costs[0]), float(errors[0]))), aim


def _start(problem: SizeProblem, values: FloatArray, goal: DifferenceGoal) -> FloatArray | None:
    """Return some sizes with the power, of nearly the least cost; None if none have it."""
    df, sizes = math.inf, problem.lo
    for step in range(_STEPS):
        aim = goal.aim(df)
        # A little less error than the degrees of freedom allow, as others follow from it.
        closer = replace(aim, goal=(aim.goal or 0.0) * (1.0 - _CLOSER * step))
        (found,) = Alternative.of_each(problem, values[None, :], [closer])
        if not found.solution.found:
            break
        sizes = found.solution.sizes[0]
        if goal.is_met(problem, values, sizes[None, :])[0]:
            return sizes
        df = float(goal.df(problem, sizes[None, :])[0])
    while not goal.is_met(problem, values, sizes[None, :])[0]:
        more = np.minimum(2.0 * sizes, problem.hi)
        if (more == sizes).all() or more.max(initial=0.0) > MOST_LEVELS:
            return None
        sizes = more
    return sizes


def _cheaper(
    problem: SizeProblem, values: FloatArray, goal: DifferenceGoal, start: FloatArray
) -> list[FloatArray]:
    """Return designs with the power, the cheapest among them."""
    most = float(problem.costs(start[None, :])[0])
    last = int(np.argmax(start))
    others = _combinations(problem, most, last)
    error = _parts(problem, values, others, last)
    allowed = (goal.aim(math.inf).goal or 0.0) + float(problem.spared @ values)
    with np.errstate(divide="ignore", invalid="ignore"):
        n = np.ceil(error[:, 1] / (allowed - error[:, 0]) * (1.0 - 1e-12))
    n = np.where(error[:, 1] == 0.0, 1.0, n)
    within = (error[:, 0] <= allowed) & (n <= problem.hi[last])
    rows = others[within]
    rows[:, last] = np.maximum(n[within], problem.lo[last])
    least = problem.costs(rows) if len(rows) else np.empty(0)
    found: list[FloatArray] = []
    for place in np.argsort(least, kind="stable"):
        if least[place] > most:
            break
        row = _smallest_last(problem, values, goal, rows[place], last, most)
        if row is not None:
            found.append(row)
            most = min(most, float(problem.costs(row[None, :])[0]))
    return found


def _parts(problem: SizeProblem, values: FloatArray, rows: FloatArray, last: int) -> FloatArray:
    """Return the parts A and B of error variances A + B/n in the size n of one facet, (m, 2)."""
    inverse = 1.0 / rows
    parts = []
    for own in (0.0, 1.0):
        inverse[:, last] = own
        parts.append(evaluate(problem.error @ values, inverse))
    return np.stack([parts[0], parts[1] - parts[0]], axis=1)


def _combinations(problem: SizeProblem, most: float, last: int) -> FloatArray:
    """Return the sizes of all facets but one that cost no more than some amount with one of it."""
    rows = problem.lo[None, :]
    for j, facet in enumerate(problem.facets):
        if j == last:
            continue
        n = np.arange(problem.lo[j], min(problem.hi[j], problem.lo[j] + _MOST_COMBINATIONS) + 1.0)
        alone = np.repeat(problem.lo[None, :], n.size, axis=0)
        alone[:, j] = n
        n = n[problem.costs(alone) <= most * _SAME]
        if n.size * len(rows) > _MOST_AT_ONCE:
            raise _too_many(problem, facet, last)
        rows = np.repeat(rows, n.size, axis=0)
        rows[:, j] = np.tile(n, len(rows) // n.size)
        rows = rows[problem.costs(rows) <= most * _SAME]
        if len(rows) > _MOST_COMBINATIONS:
            raise _too_many(problem, facet, last)
    return rows


def _too_many(problem: SizeProblem, facet: str, last: int) -> PlanError:
    named = display.listed([f for k, f in enumerate(problem.facets) if k != last])
    return PlanError(
        f"more than {_MOST_COMBINATIONS:,} sizes of {named} would have to be compared; bound "
        f"them, such as bounds={{{facet!r}: (1, 10)}}"
    )


def _smallest_last(
    problem: SizeProblem,
    values: FloatArray,
    goal: DifferenceGoal,
    row: FloatArray,
    last: int,
    most: float,
) -> FloatArray | None:
    """Return the row with the smallest size of one facet that has the power, within a cost."""

    def at(sizes: FloatArray) -> FloatArray:
        rows = np.repeat(row[None, :], sizes.size, axis=0)
        rows[:, last] = sizes
        return rows

    def too_much(sizes: FloatArray) -> FloatArray:
        return (problem.costs(at(sizes)) > most * _SAME).astype(float)

    # Most combinations have no power within the cost: one evaluation at its end shows that.
    low, high = float(row[last]), min(float(problem.hi[last]), MOST_LEVELS)
    high = min(high, smallest_size(too_much, high, low) - 1.0)
    if high < low or not goal.is_met(problem, values, at(np.array([high])))[0]:
        return None
    while high > low:
        middle = np.floor(0.5 * (low + high))
        is_met = goal.is_met(problem, values, at(np.array([middle])))[0]
        low, high = (low, middle) if is_met else (middle + 1.0, high)
    return np.asarray(at(np.array([high]))[0])


NEAR = 0.25
"""Designs whose error (with a goal: cost) exceeds the least by up to this share are listed."""

MOST_LISTED = 10_000
"""Largest number of listed designs."""


def optimize(
    study: S,
    cost: Any,
    budget: float | None = None,
    goal: float | None = None,
    coefficient: ObjectiveName | ErrorName = "Erho2",
    designs: str | Sequence[str] | None = None,
    bounds: Mapping[str, Any] | None = None,
    n_objects: Any = None,
    top: int = 10,
    *,
    difference: float | None = None,
    power: float | None = None,
    alpha: float | None = None,
    test: TestName | None = None,
) -> Allocation[S]:
    """Return the best design for a budget, or the cheapest design that reaches a goal.

    Whole-number sizes are chosen for all facets that are not fixed; planned sizes are ignored.
    The optimum is exact: all other sizes are examined or shown to be worse. Of equally good
    designs the cheapest is chosen, and of these the one with the smallest first size.

    Parameters
    ----------
    study : has the components with their covariance, the object of measurement and the universe
    cost : of a measurement: prices per level of a facet and per combination of levels,
        ``{"topic": 50, "topic:judge": 2}``; a :class:`~vcomp.gtheory.allocation.Cost`, with a
        set-up cost; a text, ``"50*topic + 2*topic:judge + 1000"``; or a function of the sizes
        (as keywords, or of one mapping ``sizes``) that does not fall when a size grows. A nested
        facet is paid for in every level of the facets that it is nested in
    budget : upper limit of the cost of a measurement
    goal : instead of a budget, the value that the coefficient has to reach (an error variance:
        not to exceed)
    coefficient : ``"Erho2"``, ``"Phi"``, or an error: ``"rel_err_var"``, ``"abs_err_var"``,
        ``"rel_sem"``, ``"abs_sem"``, ``"se_difference"``; with a goal also ``"width"`` and
        ``"rank_set"``, as of :meth:`~vcomp.gtheory.DStudy.required`
    designs : alternatives in Brennan's notation, ``["p x i x a", "p x (a:i)"]``; the study's own
        if None
    bounds : facet → the size at which it is held, or (least, largest) with None for no bound
    n_objects : number of objects of measurement, if the cost of a design depends on it; the
        G-study's if None. A mapping by facet if the object has several facets
    top : number of designs near the best that are listed, at most 10,000
    difference : instead of a budget or goal, a true difference between two objects that a test is
        to find; see :meth:`~vcomp.gtheory.DStudy.power`. `n_objects`, 2 if None, is also that of
        the test
    power, alpha, test : of that test, 0.8, 0.05 and ``"t"`` if None

    Raises
    ------
    PlanError
        If no design is within the budget or none reaches the goal (the message says why), a facet
        without bound costs nothing, the cost falls when a size grows, negative components that are
        kept let errors rise with sizes, the search would take too long, or an argument is not
        allowed.

    References
    ----------
    Bodoff and Li (2007), SIGIR, sections 3.2.3 and 3.2.4, p. 373, for two facets and their product
    as the cost.

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> trec = from_components({"p": .00751, "i": .01596, "a": 0, "pi": .01258, "pa": .00002,
    ...                         "ia": .00143, "pia": .00176})
    >>> found = optimize(trec.dstudy(i=50, a=1), "10*i + i*a", budget=1000,
    ...                  designs=["p x i x a", "p x (a:i)"])
    >>> found.table[["design", "i", "a", "cost", "Erho2"]].head(2).round(4)
          design   i  a   cost   Erho2
    0  p x (a:i)  90  1  990.0  0.9792
    1  p x i x a  83  2  996.0  0.9776
    """
    tested = _read_power(
        study, difference, power, budget, goal, coefficient, (n_objects, alpha, test)
    )
    aim = _read_aim(budget, goal, coefficient) if tested is None else tested.aim(math.inf)
    priced = read_cost(cost)
    if not is_whole(top) or not 1 <= top <= MOST_LISTED:
        raise PlanError(f"top is a whole number from 1 to {MOST_LISTED:,}, not {top!r}")
    plans = _plans(study, designs)
    limits = read_bounds(bounds, plans[0].facets)
    for reserved in ("design", "cost"):
        if reserved in plans[0].facets:
            raise PlanError(
                f"a facet is called {reserved!r}, which is a column of the allocation's tables; "
                "rename it"
            )
    values = used_components(study.components, study.negative).values
    counted = [counts_objects(priced, plan) for plan in plans]
    alternatives, unfit = list[Alternative](), list[Alternative]()
    reached: dict[int, Aim] = {}
    for plan, is_counted in zip(plans, counted, strict=True):
        problem = make_problem(
            study.components,
            plan,
            priced,
            limits,
            relative=aim.is_relative,
            # Objects may have a cost in some designs only: those with facets nested in them.
            n_objects=n_objects if is_counted or not (any(counted) or tested) else None,
        )
        _check_falls(problem, values, study)
        if tested is not None:
            found, reached[id(problem)] = best_for_power(problem, values, tested, int(top), NEAR)
        else:
            (found,) = Alternative.of_each(
                problem, values[None, :], [aim], top=int(top), near=NEAR
            )
        if found.solution.found:
            _check_left(found, aim)
            alternatives.append(found)
        else:
            unfit.append(found)
    if not alternatives:
        raise PlanError(_why_not(study, unfit, values, aim))
    notes = tuple(
        f"{shown(a.problem.plan.design)} is left out: {_why_not(study, [a], values, aim)}."
        for a in unfit
    )
    alternatives.sort(key=lambda a: a.rank)
    aim = reached.get(id(alternatives[0].problem), aim)
    return Allocation(
        study, aim, priced, values, tuple(alternatives), int(top), notes, left_out=tuple(unfit)
    )


def _read_power(
    study: StudyRecord,
    difference: Any,
    power: Any,
    budget: Any,
    goal: Any,
    coefficient: str,
    of_test: tuple[Any, Any, Any],
) -> DifferenceGoal | None:
    """Return the goal of a test: power at a difference, a width or sets of ranks; or None."""
    n_objects, alpha, name = of_test
    n_tested = n_objects if is_whole(n_objects) else None
    if difference is None and coefficient in OF_TESTS:
        check_no_test(power=power)
        if goal is None or budget is not None:
            raise PlanError(
                f"{coefficient!r} depends on degrees of freedom: give its goal=; a budget= is "
                "spent on coefficient='rel_err_var'"
            )
        largest = _positive("the goal", goal)
        test = test_of(study, coefficient, largest, n_tested, alpha, name)
        if coefficient == "rank_set" and largest >= test.n_objects:
            raise PlanError(f"sets of the ranks of {test.n_objects} have a mean size below that")
        return ErrorGoal(study, test, coefficient, largest)
    if difference is None:
        check_no_test(power=power, alpha=alpha, test=name)
        return None
    if budget is not None or coefficient != "Erho2":
        other = "budget=" if budget is not None else "coefficient="
        raise PlanError(
            f"a difference= is found with some power= at the least cost: leave {other} out"
        )
    check_no_goal(goal)
    test = given_test(n_tested, alpha, name)
    wanted = check_power(0.8 if power is None else power, test)
    return PowerGoal(study, test, true_difference(difference), wanted)


def _read_aim(budget: float | None, goal: float | None, coefficient: str) -> Aim:
    check_one_of("coefficient", coefficient, (*QUANTITIES, *_VARIANCES, *OF_TESTS))
    if (budget is None) == (goal is None):
        given = "both are" if budget is not None else "neither is"
        raise PlanError(
            "give either budget=, for the best design within it, or goal=, for the cheapest "
            f"design that reaches it; {given} given"
        )
    name, factor = _VARIANCES.get(coefficient, (coefficient, 1.0))
    if budget is not None:
        return Aim(name, budget=_positive("the budget", budget))
    goal = _positive("the goal", goal)
    if coefficient in _VARIANCES:
        words = f"{ERRORS[coefficient]} = {display.number(goal, 10)}"
        return Aim(name, goal=factor * goal**2, words=words)
    if coefficient in ("Erho2", "Phi") and goal >= 1.0:
        raise PlanError(f"the goal of a coefficient must be between 0 and 1, not {goal!r}")
    return Aim(coefficient, goal=goal)


def _positive(what: str, value: Any) -> float:
    if is_real(value) and 0.0 < value < math.inf:
        return float(value)
    raise PlanError(f"{what} is a positive number, not {value!r}")


def _plans(study: StudyRecord, designs: str | Sequence[str] | None) -> list[DStudyPlan]:
    """Return one plan for each design that is compared."""
    study_plan = study.plan
    if designs is None:
        return [study_plan]
    texts = [designs] if isinstance(designs, str) else designs
    if not isinstance(texts, Iterable) or None in (texts := list(texts)):
        raise PlanError(f"designs are texts such as ['p x i x a', 'p x (a:i)'], not {designs!r}")
    if not texts:
        raise PlanError("designs is empty: leave it out, or name designs such as 'p x (a:i)'")
    sizes = dict(zip(study_plan.facets, study_plan.sizes[0].tolist(), strict=True))
    fixed = study_plan.universe.fixed
    plans: list[DStudyPlan] = []
    for text in texts:
        plan = make_plans(
            study.components,
            text,
            [f for f in study_plan.design.facets if f in study_plan.objects],
            {f: n if f in fixed else 1 for f, n in sizes.items()},
            fixed=sorted(fixed),
            universe=dict(study_plan.universe.sizes),
            within=sorted(study_plan.universe.within),
        )
        if any(plan.design.nested_in == other.design.nested_in for other in plans):
            raise PlanError(f"designs has '{plan.design}' twice")
        plans.append(plan)
    return plans


def _check_falls(problem: SizeProblem, values: FloatArray, study: StudyRecord) -> None:
    """Refuse negative components that would make the error rise with sizes."""
    if ((problem.error @ values) < -1e-15 * np.abs(values).max(initial=0.0)).any():
        named = zip(study.components.names, values, strict=True)
        below = {name: f"σ²({name}) = {display.number(v)}" for name, v in named if v < 0}
        raise PlanError(
            f'with negative="keep" {", ".join(below.values())} would let the error rise with '
            "larger samples, so that no sizes are best; set negative components to zero "
            '(negative="zero")',
            term=next(iter(below)),
        )


def _check_left(found: Alternative, aim: Aim) -> None:
    """Refuse a design that is the universe, in which nothing is left to generalize to."""
    row = found.solution.sizes[0]
    if found.problem.is_universe(row):
        what = "the budget buys" if aim.budget is not None else "the goal needs"
        raise PlanError(
            f"{what} all levels of the universe ({found.words(row)}), and nothing is left to "
            "generalize over: lower it, or leave a facet random"
        )


def _why_not(
    study: StudyRecord,
    unfit: Sequence[Alternative],
    values: FloatArray,
    aim: Aim,
) -> str:
    """Return the reason why no sizes keep the limit."""
    if aim.budget is not None:
        costs = [float(a.problem.costs(a.problem.lo[None, :])[0]) for a in unfit]
        cheapest = unfit[int(np.argmin(costs))]
        return (
            f"the budget of {money(aim.budget)} is too small: the cheapest design, "
            f"{cheapest.words(cheapest.problem.lo)}, costs {money(min(costs))}"
        )
    goal = aim.goal_words()
    nearest = min(unfit, key=lambda a: a.least_error(values))
    problem = nearest.problem
    if aim.is_coefficient and float(problem.universe @ values) <= 0.0:
        return (
            f"{goal} is out of reach: the variance of {problem.plan.object} is not "
            "estimated above zero"
        )
    left = nearest.components_left(values)
    if not left:
        return f"{goal} is out of reach: it would need more levels than can be counted"
    named = [f"σ²({study.components.names[c]}) = {display.number(values[c])}" for c in left]
    bounded = [
        f"{f} ≤ {display.count(n)}"
        for f, n in zip(problem.facets, problem.hi, strict=True)
        if math.isfinite(n)
    ]
    sizes = dict(zip(problem.plan.facets, problem.plan.sizes[0], strict=True))
    held = [f"{f} = {display.count(n)}" for f, n in sizes.items() if f not in problem.facets]
    return (
        f"{goal} is out of reach: error variance "
        f"{display.number(nearest.least_error(values))} remains, mostly from {', '.join(named)}, "
        f"with {', '.join([*bounded, *held])} and any other sizes; at most "
        f"{display.number(nearest.allowed(values, aim))} is allowed"
    )

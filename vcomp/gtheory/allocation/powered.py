"""The cheapest sizes of a design with which a test of a difference has some power."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError
from vcomp.gtheory.allocation.alternative import Aim, Alternative
from vcomp.gtheory.allocation.problem import AllocationSolution, SizeProblem, evaluate
from vcomp.gtheory.power import MOST_LEVELS, DifferenceTest, difference_df, smallest_size
from vcomp.gtheory.study_record import StudyRecord

_MOST_COMBINATIONS = 200_000
"""Combinations of sizes of all facets but one that are examined."""

_MOST_AT_ONCE = 4_000_000
"""Combinations whose costs are computed together."""

_STEPS, _CLOSER = 12, 0.01
"""Steps towards a design of nearly the least cost, and how much closer each one aims."""

_SAME = 1.0 + 1e-12
"""Costs closer than this ratio are equal."""


@dataclass(frozen=True, slots=True, eq=False)
class PowerGoal:
    """Power of a test of a difference, as the goal of a design.

    Attributes
    ----------
    study : of the components
    test : of the difference
    difference : the true one
    power : that the test is to have
    """

    study: StudyRecord
    test: DifferenceTest
    difference: float
    power: float

    @property
    def words(self) -> str:
        """The goal in words."""
        power, difference = display.number(self.power), display.number(self.difference)
        return f"power {power} at a difference of {difference}"

    def aim(self, df: float) -> Aim:
        """Return the error variance that the goal allows with some degrees of freedom, as an aim.

        Parameters
        ----------
        df : of the error variance
        """
        detected = self.test.detectable(self.power, 1.0, df)
        return Aim("rel_err_var", goal=0.5 * (self.difference / detected) ** 2, words=self.words)

    def df(self, problem: SizeProblem, rows: FloatArray) -> FloatArray:
        """Return the degrees of freedom of the error variance at (m, F) sizes."""
        plan = replace(problem.plan, sizes=problem.sizes(rows))
        return difference_df(self.study, plan, self.test.n_objects)

    def is_met(self, problem: SizeProblem, values: FloatArray, rows: FloatArray) -> FloatArray:
        """Return whether (m, F) sizes have the power, with (k,) components."""
        se = np.sqrt(2.0 * np.maximum(problem.errors(rows, values), 0.0))
        power = self.test.power(np.array(self.difference), se, self.df(problem, rows))
        return np.asarray(power >= self.power)


def best_for_power(
    problem: SizeProblem, values: FloatArray, goal: PowerGoal, top: int, near: float
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


def _start(problem: SizeProblem, values: FloatArray, goal: PowerGoal) -> FloatArray | None:
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
    problem: SizeProblem, values: FloatArray, goal: PowerGoal, start: FloatArray
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
    goal: PowerGoal,
    row: FloatArray,
    last: int,
    most: float,
) -> FloatArray | None:
    """Return the row with the smallest size of one facet that has the power, within a cost."""

    def at(sizes: FloatArray) -> FloatArray:
        rows = np.repeat(row[None, :], sizes.size, axis=0)
        rows[:, last] = sizes
        return rows

    def too_much(sizes: FloatArray) -> list[FloatArray]:
        return [(problem.costs(at(sizes)) > most * _SAME).astype(float)]

    # Most combinations have no power within the cost: one evaluation at its end shows that.
    low, high = float(row[last]), min(float(problem.hi[last]), MOST_LEVELS)
    high = min(high, smallest_size(too_much, 0, high, low) - 1.0)
    if high < low or not goal.is_met(problem, values, at(np.array([high])))[0]:
        return None
    while high > low:
        middle = np.floor(0.5 * (low + high))
        is_met = goal.is_met(problem, values, at(np.array([middle])))[0]
        low, high = (low, middle) if is_met else (middle + 1.0, high)
    return np.asarray(at(np.array([high]))[0])

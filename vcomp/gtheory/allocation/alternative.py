"""The aim of an allocation, the best sizes of one design, and the record of an allocation.

:class:`AllocationRecord` is what frontiers, stability and summaries are functions of.
:func:`solve_any` finds the sizes for a cost that is any function of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import PlanError
from vcomp.formula import REPLICATE, BrennanDesign
from vcomp.gtheory.allocation.cost import Cost, CostFunction, money
from vcomp.gtheory.allocation.problem import (
    EQUAL,
    ROOM,
    AllocationSolution,
    Limit,
    SizeProblem,
    evaluate,
    first_sizes,
    tie_class,
)
from vcomp.gtheory.allocation.solve import solve
from vcomp.gtheory.requirement import outer_facets
from vcomp.gtheory.study_record import S, of_other_plan
from vcomp.markup import encodable

_MOST_ROWS = 4_000_000
"""Largest number of combinations of all sizes but one that a search tries."""

_CHUNK = 1 << 18
"""Number of combinations of sizes with which the cost function is called at once."""

_LARGEST = 2.0**40
"""Size of a facet that no budget can pay for, if its cost grows at all."""

_SAMPLE, _FIRST = 500, 10.0
"""Number of sizes at which the cost is tested for falling, and range of the first such test."""

_FALL = 1e-12
"""Relative fall of a cost that is more than rounding."""


def solve_any(
    problem: SizeProblem, error: FloatArray, limit: Limit, *, top: int = 1, near: float = 0.0
) -> AllocationSolution:
    """Return the best sizes for a cost function that is only known not to fall.

    All affordable sizes are tried, except for one facet, whose size is the largest within the
    budget or the smallest that reaches the goal.

    Parameters
    ----------
    problem : whose cost is a function
    error : (2^F,) coefficients of products of 1/n
    limit : the limit
    top : how many designs, each of which no facet alone could improve within the limit
    near : their error (with a goal their cost) is at most (1 + near) times the best

    Raises
    ------
    PlanError
        If the cost falls where a size grows, a facet could have any size for a budget, or there
        are too many combinations of sizes.
    """
    F = problem.lo.size
    nothing = AllocationSolution(np.empty((0, F)), np.empty(0), np.empty(0))
    matters = np.array([error.reshape((2,) * F).take(1, axis=j).any() for j in range(F)])
    lo, hi = problem.lo, np.where(matters, problem.hi, problem.lo)
    most = limit.value
    if limit.budget is None:
        first = first_sizes(error[None, :], lo, hi[None, :], np.array([limit.value]))
        if float(evaluate(error, 1.0 / first)[0]) > limit.value:
            return nothing
        for j in range(F):
            first[:, j] = _smallest(error, first, j, limit.value, lo[[j]], float(first[0, j]))
        most = float(problem.costs(first)[0]) * (1.0 + near + ROOM)
    if float(problem.costs(lo[None, :])[0]) > most:
        return nothing
    reach = _reach(problem, lo, hi, most)
    rows = _candidates(problem, error, lo, reach, limit, most)
    _check_rises(problem, rows, reach)
    return _best(problem, error, rows, reach, limit, top, near)


def _reach(problem: SizeProblem, lo: FloatArray, hi: FloatArray, most: float) -> FloatArray:
    """Return the largest affordable size of every facet, with the least sizes of the others."""
    reach = lo.copy()
    for j, facet in enumerate(problem.facets):
        # Small sizes first: the affordable sizes of a falling cost have no limit.
        _check_axis(problem, lo, j, min(hi[j], lo[j] + _FIRST))
        top = np.array([min(hi[j], _LARGEST)])
        reach[j] = _largest(_paid(problem, lo[None, :], j, most), lo[[j]], top)[0]
        if reach[j] == _LARGEST < hi[j]:
            raise PlanError(
                f"any number of levels of {facet!r} can be paid: the cost does not grow with it; "
                f"give it a bound such as bounds={{{facet!r}: (1, 10)}}",
                column=facet,
            )
        _check_axis(problem, lo, j, reach[j])
    return reach


def _candidates(
    problem: SizeProblem,
    error: FloatArray,
    lo: FloatArray,
    reach: FloatArray,
    limit: Limit,
    most: float,
) -> FloatArray:
    """Return the sizes that may be best, (m, F)."""
    order = np.argsort(reach - lo, kind="stable")
    rows = lo[None, :].copy()
    for j in order[:-1]:
        top = _largest(_paid(problem, rows, j, most), lo[[j]].repeat(len(rows)), reach[[j]])
        counts = (top - lo[j] + 1.0).astype(np.int64)
        _check_number(problem, int(counts.sum()))
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        rows = np.repeat(rows, counts, axis=0)
        rows[:, j] = lo[j] + np.arange(len(rows)) - starts
        if limit.budget is None:
            ahead = order[list(order).index(j) + 1 :]
            strongest = rows.copy()
            strongest[:, ahead] = reach[ahead]
            rows = rows[evaluate(error, 1.0 / strongest) <= limit.value]
    last = int(order[-1])
    bottom, top = lo[[last]].repeat(len(rows)), reach[[last]]
    if limit.budget is not None:
        rows[:, last] = _largest(_paid(problem, rows, last, most), bottom, top)
    else:
        rows[:, last] = _smallest(error, rows, last, limit.value, bottom, float(top[0]))
        rows = rows[problem.costs(rows) <= most] if len(rows) else rows
    return rows


def _paid(
    problem: SizeProblem, rows: FloatArray, j: int, most: float
) -> Callable[[FloatArray, BoolArray], BoolArray]:
    """Return a function of sizes of facet j that determines which rows are affordable."""

    def is_paid(sizes: FloatArray, places: BoolArray) -> BoolArray:
        changed = rows[places]
        changed[:, j] = sizes
        chunks = [problem.costs(c) for c in np.array_split(changed, 1 + len(changed) // _CHUNK)]
        return np.asarray(np.concatenate(chunks) <= most)

    return is_paid


def _largest(
    is_paid: Callable[[FloatArray, BoolArray], BoolArray], bottom: FloatArray, top: FloatArray
) -> FloatArray:
    """Return the largest affordable size of each row: doubled steps, then bisection.

    The smallest, `bottom`, is affordable.
    """
    low, high = bottom.copy(), np.broadcast_to(top, bottom.shape).copy()
    step = np.ones_like(low)
    growing = low < high
    while growing.any():
        tried = np.minimum(low + step, high)[growing]
        paid = is_paid(tried, growing)
        places = np.flatnonzero(growing)
        low[places[paid]] = tried[paid]
        high[places[~paid]] = tried[~paid] - 1.0
        step *= 2.0
        growing[places[~paid]] = False
        growing &= low < high
    active = low < high
    while active.any():
        middle = np.ceil(0.5 * (low + high))[active]
        paid = is_paid(middle, active)
        places = np.flatnonzero(active)
        low[places[paid]] = middle[paid]
        high[places[~paid]] = middle[~paid] - 1.0
        active = low < high
    return low


def _smallest(
    error: FloatArray, rows: FloatArray, j: int, limit: float, bottom: FloatArray, top: float
) -> FloatArray:
    """Return the least size of facet j with which each row keeps the limit, from A + B/n."""
    ends = np.repeat(rows[None, :, :], 2, axis=0)
    ends[0, :, j], ends[1, :, j] = math.inf, 1.0
    A = evaluate(error, 1.0 / ends[0])
    B = evaluate(error, 1.0 / ends[1]) - A
    with np.errstate(divide="ignore", invalid="ignore"):
        n = np.where(B > 0.0, np.ceil(B / (limit - A)), 1.0)
    n = np.clip(np.where(limit > A, n, top), bottom, top)
    # The quotient may be off by rounding.
    fewer = np.maximum(n - 1.0, bottom)
    return np.where(A + B / fewer <= limit, fewer, n)


def _best(
    problem: SizeProblem,
    error: FloatArray,
    rows: FloatArray,
    reach: FloatArray,
    limit: Limit,
    top: int,
    near: float,
) -> AllocationSolution:
    """Return the best of the candidates that no facet alone could improve."""
    errors, costs = evaluate(error, 1.0 / rows), problem.costs(rows)
    budget = limit.budget is not None
    first, second = (errors, costs) if budget else (costs, errors)
    if not budget:
        kept = errors <= limit.value
        rows, errors, costs, first, second = (
            x[kept] for x in (rows, errors, costs, first, second)
        )
    keys = [*rows.T[::-1], tie_class(second), tie_class(first)]
    places: list[int] = []
    for place in np.lexsort(keys):
        if places and first[place] > first[places[0]] * (1.0 + near + EQUAL):
            break
        if _is_undominated(problem, error, rows[place], reach, limit):
            places.append(int(place))
        if len(places) == top:
            break
    return AllocationSolution(rows[places], errors[places], costs[places])


def _is_undominated(
    problem: SizeProblem, error: FloatArray, sizes: FloatArray, reach: FloatArray, limit: Limit
) -> bool:
    step = 1.0 if limit.budget is not None else -1.0
    moved = sizes + step * np.eye(sizes.size)
    moved = moved[((moved >= problem.lo) & (moved <= np.maximum(reach, problem.lo))).all(axis=1)]
    if not len(moved):
        return True
    within = problem.costs(moved) if limit.budget is not None else evaluate(error, 1.0 / moved)
    return not bool((within <= limit.value).any())


def _check_number(problem: SizeProblem, n: int) -> None:
    if n > _MOST_ROWS:
        raise PlanError(
            f"{display.count(n)} combinations of sizes of {', '.join(problem.facets)} would have "
            "to be tried, as the cost is a function: give bounds= to some of them, or write the "
            "cost as prices"
        )


def _check_axis(problem: SizeProblem, lo: FloatArray, j: int, reach: float) -> None:
    """Refuse a cost that falls along one facet."""
    sizes = np.unique(np.round(np.geomspace(lo[j], max(reach, lo[j]), _SAMPLE)))
    rows = np.repeat(lo[None, :], len(sizes), axis=0)
    rows[:, j] = sizes
    if len(sizes) > 1:
        _refuse_falls(problem, rows[:-1], rows[1:], j)


def _check_rises(problem: SizeProblem, rows: FloatArray, reach: FloatArray) -> None:
    """Refuse a cost that falls from one of the candidates to its neighbour."""
    some = rows[:: 1 + len(rows) // _SAMPLE]
    for j in range(reach.size):
        more = some.copy()
        more[:, j] += 1.0
        inside = more[:, j] <= reach[j]
        if inside.any():
            _refuse_falls(problem, some[inside], more[inside], j)


def _refuse_falls(problem: SizeProblem, fewer: FloatArray, more: FloatArray, j: int) -> None:
    low, high = problem.costs(fewer), problem.costs(more)
    falls = np.flatnonzero(high < low * (1.0 - _FALL))
    if falls.size:
        k = int(falls[0])
        facet, others = problem.facets[j], problem.sizes(fewer[[k]])[0]
        held = [
            f"{f} = {display.count(n)}"
            for f, n in zip(problem.plan.facets, others, strict=True)
            if f != facet
        ]
        raise PlanError(
            f"the cost falls from {display.number(low[k])} to {display.number(high[k])} when "
            f"{facet} grows from {display.count(fewer[k, j])} to {display.count(more[k, j])}"
            f"{' with ' + ', '.join(held) if held else ''}: a cost must not fall when a size "
            "grows",
            column=facet,
        )


SYMBOLS = {**display.SYMBOLS, "rel_err_var": "σ²(δ)", "abs_err_var": "σ²(Δ)"}
"""Coefficients and error variances that a design can aim at."""


@dataclass(frozen=True, slots=True)
class Aim:
    """The aim of an allocation: a coefficient, with a budget or a goal.

    Attributes
    ----------
    coefficient : ``"Erho2"``, ``"Phi"``, ``"rel_err_var"`` or ``"abs_err_var"``
    budget : upper limit of the cost, or None
    goal : value that the coefficient has to reach, or None
    words : the goal, where it is not a value of a coefficient
    """

    coefficient: str
    budget: float | None = None
    goal: float | None = None
    words: str = ""

    @property
    def is_relative(self) -> bool:
        """Whether relative error counts, that of differences; otherwise absolute error."""
        return self.coefficient in ("Erho2", "rel_err_var")

    @property
    def is_coefficient(self) -> bool:
        """Whether it is a coefficient, to be large; otherwise an error variance, to be small."""
        return self.coefficient in ("Erho2", "Phi")

    @property
    def symbol(self) -> str:
        """The coefficient as it is printed."""
        return SYMBOLS[self.coefficient]

    def goal_words(self, sign: str = "=") -> str:
        """Return the goal in words.

        Parameters
        ----------
        sign : between the coefficient and its value
        """
        return self.words or f"{self.symbol} {sign} {display.number(self.goal or 0.0, 10)}"

    def value(self, universe: float, error: FloatArray) -> FloatArray:
        """Return the coefficient for a universe-score variance and error variances."""
        if not self.is_coefficient:
            return error
        with np.errstate(invalid="ignore"):
            return np.asarray(universe / (universe + error))


@dataclass(frozen=True, slots=True, eq=False)
class Alternative:
    """One design with its best sizes.

    Attributes
    ----------
    problem : of its sizes
    solution : the best ones first
    values : (r,) the coefficient of each
    rank : what alternatives are sorted by, the best first
    """

    problem: SizeProblem
    solution: AllocationSolution
    values: FloatArray
    rank: tuple[float, float]

    @classmethod
    def of_each(
        cls,
        problem: SizeProblem,
        components: FloatArray,
        aims: Sequence[Aim],
        *,
        top: int = 1,
        near: float = 0.0,
    ) -> list[Alternative]:
        """Return the best sizes of a design for each of K components and aims.

        Parameters
        ----------
        problem : of its sizes
        components : (K, k) not negative
        aims : (K,) coefficient, and budget or goal; all budgets or all goals
        top, near : see :func:`~vcomp.gtheory.allocation.solve.solve`
        """
        errors = np.maximum(components @ problem.error.T, 0.0)
        limits = [limit_of(problem, v, aim) for v, aim in zip(components, aims, strict=True)]
        if isinstance(problem.cost, CostFunction):
            best = [
                solve_any(problem, error, limit, top=top, near=near)
                for error, limit in zip(errors, limits, strict=True)
            ]
        else:
            best = solve(errors, problem.cost, problem.lo, problem.hi, limits, top=top, near=near)
        each = zip(best, components, aims, strict=True)
        return [cls._of_solution(problem, solution, v, aim) for solution, v, aim in each]

    @classmethod
    def _of_solution(
        cls, problem: SizeProblem, solution: AllocationSolution, components: FloatArray, aim: Aim
    ) -> Alternative:
        error = solution.error - float(problem.spared @ components)
        values = aim.value(float(problem.universe @ components), error)
        if not solution.found:
            return cls(problem, solution, values, (math.inf, math.inf))
        worth = -float(values[0]) if aim.is_coefficient else float(values[0])
        worth = math.inf if math.isnan(worth) else worth
        # Designs that differ by rounding alone are equally good.
        pair = (_rounded(worth), _rounded(float(solution.cost[0])))
        return cls(problem, solution, values, pair if aim.budget is not None else pair[::-1])

    def words(self, row: FloatArray) -> str:
        """Return sizes in words, such as ``"topic = 96, judge = 1"``."""
        sizes = self.problem.sizes(np.asarray(row)[None, :])[0]
        return ", ".join(
            f"{f} = {display.count(n)}"
            for f, n in zip(self.problem.plan.facets, sizes, strict=True)
        )

    def allowed(self, components: FloatArray, aim: Aim) -> float:
        """Return the error variance that a goal allows."""
        return _allowed(self.problem, components, aim)

    def least_error(self, components: FloatArray) -> float:
        """Return the error variance with all sizes at their largest."""
        return float(self.problem.errors(self.problem.hi[None, :], components)[0])

    def components_left(self, components: FloatArray) -> list[int]:
        """Return the two components with the largest parts of the error that no sizes remove."""
        problem = self.problem
        each = error_of_each(problem, problem.hi) * components
        order = [int(c) for c in np.argsort(-each, kind="stable") if each[c] > 0.0]
        return order[:2]


def shown(design: BrennanDesign | str) -> str:
    """Return a design as it is printed.

    Parameters
    ----------
    design : or its text in Brennan's notation

    Examples
    --------
    >>> shown("p x (a:i)")
    'p × (a:i)'
    """
    return str(design).replace(" x ", " × ")


def error_of_each(problem: SizeProblem, row: FloatArray) -> FloatArray:
    """Return the error variance of a unit of each component, (k,)."""
    columns = [
        evaluate(problem.error[:, c], 1.0 / row[None, :])[0] for c in range(len(problem.spared))
    ]
    return np.array(columns) - problem.spared


def _rounded(value: float) -> float:
    return float(np.format_float_scientific(value, precision=11))


def limit_of(problem: SizeProblem, components: FloatArray, aim: Aim) -> Limit:
    """Return the limit that an aim sets to the sizes of a design.

    Parameters
    ----------
    problem : of its sizes
    components : (k,) not negative
    aim : coefficient, and budget or goal
    """
    if aim.budget is not None:
        return Limit(aim.budget)
    return Limit(None, _allowed(problem, components, aim) + float(problem.spared @ components))


def _allowed(problem: SizeProblem, components: FloatArray, aim: Aim) -> float:
    assert aim.goal is not None
    if not aim.is_coefficient:
        return aim.goal
    return float(problem.universe @ components) * (1.0 - aim.goal) / aim.goal


@dataclass(frozen=True, slots=True, eq=False)
class AllocatedDesign(Generic[S]):
    """A design with its sizes, cost and D-study.

    Attributes
    ----------
    design : in Brennan's notation
    sizes : facet → number of levels, of a nested facet within those that it is nested in
    cost : of the measurement
    study : the D-study of this one plan, with standard errors and intervals
    aim : coefficient, and budget or goal

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=1)
    >>> best = study.optimize("3*i + 10", budget=100).best
    >>> best.sizes, best.cost
    ({'i': 30}, 100.0)
    """

    design: str
    sizes: Mapping[str, float]
    cost: float
    study: S
    aim: Aim

    def __str__(self) -> str:
        return encodable(design_words(self))

    def __repr__(self) -> str:
        return f"<{self}>"


@dataclass(frozen=True, eq=False, repr=False)
class AllocationRecord(Generic[S]):
    """The designs that were compared, the best first.

    Attributes
    ----------
    study : that it was made from
    aim : the coefficient, and the budget or goal
    cost : of a measurement
    components : (k,) with negative ones as the study uses them
    alternatives : the designs with their best sizes, the best design first
    top : how many designs near the best are listed
    notes : what a reader should know
    left_out : designs that exceed the budget, or that miss the goal by the estimates
    """

    study: S
    aim: Aim
    cost: Cost | CostFunction
    components: FloatArray
    alternatives: tuple[Alternative, ...]
    top: int
    notes: tuple[str, ...] = ()
    left_out: tuple[Alternative, ...] = ()

    @cached_property
    def best(self) -> AllocatedDesign[S]:
        """The recommended design, with intervals from the source of the D-study."""
        problem, solution = self.alternatives[0].problem, self.alternatives[0].solution
        sizes = problem.sizes(solution.sizes[:1])
        plan = replace(problem.plan, sizes=sizes)
        by_facet = dict(zip(plan.facets, sizes[0].tolist(), strict=True))
        order = [f for f in plan.design.outer_first if f in by_facet]
        whole = {f: int(by_facet[f]) if by_facet[f].is_integer() else by_facet[f] for f in order}
        study = of_other_plan(self.study, plan, self.study.source)
        return AllocatedDesign(str(plan.design), whole, float(solution.cost[0]), study, self.aim)


def design_words(chosen: AllocatedDesign[Any]) -> str:
    """Return a design with its sizes, cost and coefficient in words.

    Parameters
    ----------
    chosen : the design
    """
    design = chosen.study.plan.design
    sizes = ", ".join(_size(f, n, design) for f, n in chosen.sizes.items())
    return (
        f"{shown(chosen.design)}: {sizes}; costs {money(chosen.cost)}; "
        f"{_worth(chosen, chosen.aim.coefficient)}"
    )


def _size(facet: str, n: float, design: BrennanDesign) -> str:
    if facet == REPLICATE:
        return f"{display.count(n)} {'score' if n == 1 else 'scores'} a cell"
    within = outer_facets(facet, design)
    levels = facet if n == 1 else display.plural(facet)
    return f"{display.count(n)} {levels}" + (f" in each {within}" if within else "")


def _worth(chosen: AllocatedDesign[Any], name: str) -> str:
    columns = chosen.study.columns
    value, low, high = (float(columns[f"{name}{end}"][0]) for end in ("", "_low", "_high"))
    if name in ("Erho2", "Phi"):
        text, interval = display.coefficient(value), display.coefficient_interval(low, high)
    else:
        text = display.number(value)
        interval = "" if math.isnan(low) else display.short_interval(low, high)
    level = display.level(chosen.study.alpha)
    return f"{SYMBOLS[name]} = {text}" + (f" ({level}: {interval})" if interval else "")

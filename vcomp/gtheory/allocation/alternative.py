"""The aim of an allocation, the best sizes of one design, and the record of an allocation.

:class:`AllocationRecord` is what frontiers, stability and summaries are functions of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.formula import REPLICATE, BrennanDesign
from vcomp.gtheory.allocation.cost import Cost, CostFunction, money
from vcomp.gtheory.allocation.problem import AllocationSolution, Limit, SizeProblem, evaluate
from vcomp.gtheory.allocation.solve import solve
from vcomp.gtheory.allocation.solve_any import solve_any
from vcomp.gtheory.requirement import outer_facets
from vcomp.gtheory.study_record import S, of_other_plan
from vcomp.markup import encodable

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

"""The frontier of cost: designs than which no other is both cheaper and better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display, plots
from vcomp._typing import FloatArray
from vcomp.exceptions import check_one_of
from vcomp.gtheory.allocation.alternative import (
    SYMBOLS,
    Aim,
    AllocationRecord,
    Alternative,
    shown,
)
from vcomp.gtheory.allocation.cost import CostFunction
from vcomp.gtheory.projection import quantities, weights

if TYPE_CHECKING:
    import pandas as pd

_MOST_POINTS = 300
_FEW_POINTS = 120
_LEAST_POINTS = 25
_MOST_WORK = 50_000_000
"""Largest number of sizes that are tried; beyond it fewer points are computed."""

_FUNCTION_POINTS, _FUNCTION_WORK = 60, 20_000
"""Points and work for a cost that is a function, whose search is slower."""

_CHEAPER = 1.0 - 1e-9
"""Costs closer than this ratio are equal."""

_BEYOND = 2.0
"""With a goal the frontier extends to this many times the cost of the best design."""


@dataclass(frozen=True, slots=True, eq=False)
class Frontiers:
    """The frontier of each design, and that of all together.

    Attributes
    ----------
    tables : design → its own frontier, the cheapest first
    aim : coefficient, and budget or goal
    is_whole : whether every design that is best for some budget is included
    """

    tables: dict[str, pd.DataFrame]
    aim: Aim
    is_whole: bool

    def whole(self) -> pd.DataFrame:
        """Return the designs of all frontiers than which no other is both cheaper and better."""
        import pandas as pd

        frames = list(self.tables.values())
        table = pd.concat(frames)
        worth = table[self.aim.coefficient] * (1.0 if self.aim.is_coefficient else -1.0)
        order = np.lexsort([-worth, table["cost"]])
        best, kept = -np.inf, []
        for place in order:
            if worth.iloc[place] > best:
                best = worth.iloc[place]
                kept.append(place)
        return table.iloc[kept].reset_index(drop=True)


def trace_frontiers(allocation: AllocationRecord[Any]) -> Frontiers:
    """Return the frontier of each design.

    The best design for a budget is on the frontier, and so is the best one for a budget just below
    its cost.

    Parameters
    ----------
    allocation : the recommendation
    """
    aim = allocation.aim
    best = allocation.best.cost
    most = aim.budget if aim.budget is not None else _BEYOND * best
    tables, is_whole = {}, True
    for alternative in allocation.alternatives:
        points = _points(alternative, most)
        steps = Aim(aim.coefficient, budget=most)
        slow = isinstance(alternative.problem.cost, CostFunction)
        found = []
        if not slow or alternative.solution.work <= _FUNCTION_WORK:
            found = list(_walk(alternative, allocation.components, steps, points))
        if not 0 < len(found) <= points:
            is_whole = False
            least = float(alternative.problem.costs(alternative.problem.lo[None, :])[0])
            budgets = np.geomspace(max(least, most * 1e-9), most, min(points, _FEW_POINTS))
            found = _best_for(alternative, allocation.components, aim.coefficient, budgets)
        tables[str(alternative.problem.plan.design)] = _table(allocation, alternative, found)
    return Frontiers(tables, aim, is_whole)


def _points(alternative: Alternative, most: float) -> int:
    work = max(alternative.solution.work, 1)
    if isinstance(alternative.problem.cost, CostFunction):
        return _FUNCTION_POINTS
    return int(np.clip(_MOST_WORK // work, _LEAST_POINTS, _MOST_POINTS))


def _walk(
    alternative: Alternative, components: FloatArray, aim: Aim, points: int
) -> Iterator[FloatArray]:
    """Yield the best sizes for budgets from the largest down, at most one more than `points`."""
    for _ in range(points + 1):
        found = Alternative.of(alternative.problem, components, aim)
        if not found.solution.found:
            return
        yield found.solution.sizes[0]
        aim = replace(aim, budget=float(found.solution.cost[0]) * _CHEAPER)
        if not aim.budget:
            return


def _best_for(
    alternative: Alternative, components: FloatArray, coefficient: str, budgets: FloatArray
) -> list[FloatArray]:
    found = [
        Alternative.of(alternative.problem, components, Aim(coefficient, budget=float(b))).solution
        for b in budgets[::-1]
    ]
    rows = [tuple(f.sizes[0].tolist()) for f in found if f.found]
    return [np.array(row) for row in dict.fromkeys(rows)]


def _table(
    allocation: AllocationRecord[Any], alternative: Alternative, found: list[FloatArray]
) -> pd.DataFrame:
    """Return the designs, the cheapest first, with error variances and coefficients."""
    import pandas as pd

    problem = alternative.problem
    # The universe itself has no error, and nothing is generalized from it.
    found = [row for row in found if not problem.is_universe(row)]
    rows = np.array(found[::-1]).reshape(len(found), len(problem.facets))
    sizes = problem.sizes(rows)
    plan = replace(problem.plan, sizes=sizes)
    made = quantities(weights(allocation.study.components, plan))
    columns: dict[str, Any] = {"cost": problem.costs(rows), "design": str(plan.design)}
    by_facet = dict(zip(plan.facets, sizes.T, strict=True))
    for facet in allocation.study.plan.facets:
        n = by_facet[facet]
        columns[facet] = n.astype(np.int64) if (n == np.floor(n)).all() else n
    for name in ("rel_err_var", "abs_err_var", "Erho2", "Phi"):
        columns[name] = made[name].values(allocation.components)
    return pd.DataFrame(columns)


def draw(
    allocation: AllocationRecord[Any],
    frontiers: Frontiers,
    coefficient: str | None,
    ax: Any | None,
) -> Any:
    """Return the axes on which frontiers are drawn; see :meth:`Allocation.plot`.

    Parameters
    ----------
    allocation : the recommendation
    frontiers : of :func:`trace_frontiers`
    coefficient : on the vertical axis, or None
    ax : matplotlib axes, or None
    """
    aim = allocation.aim
    name = aim.coefficient if coefficient is None else coefficient
    check_one_of("coefficient", name, tuple(SYMBOLS))
    best = allocation.best
    return plots.frontier(
        {shown(d): t for d, t in frontiers.tables.items()},
        name,
        is_whole=frontiers.is_whole,
        best=(shown(best.design), best.cost, float(best.study.columns[name][0])),
        best_label=", ".join(f"{f} = {display.count(n)}" for f, n in best.sizes.items()),
        best_interval=(
            float(best.study.columns[f"{name}_low"][0]),
            float(best.study.columns[f"{name}_high"][0]),
        ),
        budget=aim.budget,
        goal=aim.goal if name == aim.coefficient else None,
        alpha=allocation.study.alpha,
        ax=ax,
    )

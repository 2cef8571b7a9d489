"""The frontier of cost: designs than which no other is both cheaper and better."""

from __future__ import annotations

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

_MOST_POINTS, _FEW_POINTS = 300, 120
"""Largest number of designs on a frontier, and how many budgets it is thinned to beyond that."""

_FUNCTION_POINTS = 60
"""Both numbers for a cost that is a function, whose search is slower."""

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
        rows, has_all = _best_for_budgets(
            alternative, allocation.components, aim.coefficient, most
        )
        is_whole &= has_all
        tables[str(alternative.problem.plan.design)] = _table(allocation, alternative, rows)
    return Frontiers(tables, aim, is_whole)


def _best_for_budgets(
    alternative: Alternative, components: FloatArray, coefficient: str, most: float
) -> tuple[FloatArray, bool]:
    """Return the best sizes for budgets up to `most`, cheapest first, and whether all are there.

    A design that is best for a budget is so for all smaller budgets down to its cost. Just below
    that the next one is sought, until all budgets are covered or there are too many designs.
    """
    problem = alternative.problem
    slow = isinstance(problem.cost, CostFunction)
    points, few = (_FUNCTION_POINTS,) * 2 if slow else (_MOST_POINTS, _FEW_POINTS)
    least = float(problem.costs(problem.lo[None, :])[0])
    budgets = np.geomspace(max(least, most * 1e-9), most, few)
    known: dict[tuple[float, ...], tuple[float, float]] = {}
    thinned = None
    while True:
        aims = [Aim(coefficient, budget=float(b)) for b in budgets]
        values = np.repeat(components[None, :], len(aims), axis=0)
        for one, budget in zip(Alternative.of_each(problem, values, aims), budgets, strict=True):
            if one.solution.found:
                sizes, cost = tuple(one.solution.sizes[0].tolist()), float(one.solution.cost[0])
                known[sizes] = (cost, max(budget, known.get(sizes, (cost, 0.0))[1]))
        order = sorted(known, key=lambda sizes: known[sizes])
        rows = np.array(order).reshape(len(order), len(problem.facets))
        thinned = rows if thinned is None else thinned
        covered = np.array([known[sizes] for sizes in order]).reshape(-1, 2)
        below = covered[:, 0] * _CHEAPER
        budgets = below[(below > np.append(0.0, covered[:-1, 1])) & (below >= least)]
        if len(order) > points:
            return thinned, False
        if not budgets.size:
            return rows, True


def _table(
    allocation: AllocationRecord[Any], alternative: Alternative, rows: FloatArray
) -> pd.DataFrame:
    """Return the designs, the cheapest first, with error variances and coefficients."""
    import pandas as pd

    problem = alternative.problem
    # The universe itself has no error, and nothing is generalized from it.
    rows = rows[[not problem.is_universe(row) for row in rows]]
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

"""What can be had of every measure for the same money."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vcomp.exceptions import PlanError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.studies.comparison import MeasureComparison

__all__ = ["best_for_each"]


def best_for_each(
    compared: MeasureComparison,
    cost: Any,
    budget: float | None,
    target: float | None,
    coefficient: str,
    options: Mapping[str, Any],
) -> pd.DataFrame:
    """Return the best design of every measure; see :meth:`MeasureComparison.best`."""
    import pandas as pd

    costs = _costs(compared, cost)
    rows, reasons = [], {}
    for name, study in compared.studies.items():
        try:
            found = study.optimize(
                costs[name], budget=budget, target=target, coefficient=coefficient, **options
            )
        except PlanError as error:
            reasons[name] = str(error)
            continue
        first = found.table.iloc[[0]].reset_index(drop=True)
        first.insert(0, "measure", name)
        rows.append(first)
    if not rows:
        name, reason = next(iter(reasons.items()))
        raise PlanError(f"measure {name!r}: {reason}")
    table = pd.concat(rows, ignore_index=True)
    by_cost = target is not None
    column = "cost" if by_cost else coefficient
    up = by_cost or coefficient.endswith("_var")
    table = table.sort_values(column, ascending=up, kind="stable")
    if reasons:
        none = pd.DataFrame({"measure": list(reasons), "reason": list(reasons.values())})
        table = pd.concat([table, none])
    return table.reset_index(drop=True)


def _costs(compared: MeasureComparison, cost: Any) -> dict[str, Any]:
    """Return the cost of every measure: the same for all, or each its own."""
    names = list(compared.studies)
    if not isinstance(cost, Mapping) or not any(name in cost for name in names):
        return dict.fromkeys(names, cost)
    missing = [name for name in names if name not in cost]
    if missing:
        raise PlanError(
            f"cost has no entry for measure {missing[0]!r}{did_you_mean(missing[0], cost)}; with "
            "costs by measure each needs one"
        )
    return {name: cost[name] for name in names}

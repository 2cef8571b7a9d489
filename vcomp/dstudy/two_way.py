"""Which plans of a D-study the mean squares of a complete two-way table speak about."""

from __future__ import annotations

import numpy as np

from vcomp._typing import BoolArray
from vcomp.components import REPLICATE, TwoWayMeanSquares, VarianceComponents
from vcomp.dstudy.plan import DStudyPlan

__all__ = ["two_way_plans", "two_way_table"]


def two_way_table(components: VarianceComponents, plan: DStudyPlan) -> TwoWayMeanSquares | None:
    """Return the mean squares that give intervals from F quantiles, or None.

    They do when the G-study is a complete two-way table with both main effects in the model, and
    the D-study crosses the same two facets.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study

    Examples
    --------
    >>> from vcomp.dstudy import from_components, make_plans
    >>> g = from_components({"p": 2.0, "i": 1.0, "Residual": 4.0}).components
    >>> two_way_table(g, make_plans(g, n={"i": 10})) is None
    True
    """
    table = components.mean_squares
    if not plan.universe.is_infinite or len(plan.objects) > 1 or plan.labels is not None:
        return None
    if table is None or min(table.n_rows, table.n_columns) < 2:
        return None
    facets = [f for f in plan.design.facets if f != REPLICATE]
    if {table.rows, table.columns} != set(facets) or any(plan.design.nested_in[f] for f in facets):
        return None
    if any(frozenset({f}) not in components.facets for f in facets):
        return None
    # without residual or without any differences F has no meaning
    if not (table.ms_residual > 0 and table.ms_rows > 0 and table.ms_columns > 0):
        return None
    return table.oriented(plan.object)


def two_way_plans(table: TwoWayMeanSquares | None, plan: DStudyPlan) -> BoolArray:
    """Return which plans the mean squares speak about: those with as many replicates.

    Parameters
    ----------
    table : of :func:`two_way_table`
    plan : of the D-study

    Examples
    --------
    >>> from vcomp.dstudy import from_components, make_plans
    >>> g = from_components({"p": 2.0, "i": 1.0, "Residual": 4.0}).components
    >>> two_way_plans(None, make_plans(g, n={"i": [10, 20]}))
    array([False, False])
    """
    if table is None:
        return np.zeros(len(plan), dtype=bool)
    if REPLICATE not in plan.facets:
        return np.ones(len(plan), dtype=bool)
    replicates = plan.sizes[:, plan.facets.index(REPLICATE)]
    return np.asarray(replicates == table.n_replicates)

"""Measures side by side as a picture: what of them goes on which axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display, plots
from vcomp.components import REPLICATE
from vcomp.dstudy.project import quantities, weights
from vcomp.dstudy.requirement import SYMBOLS
from vcomp.exceptions import PlanError, did_you_mean
from vcomp.plots.canvas import escaped
from vcomp.uncertainty.taken import take_components

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.dstudy import DStudy
    from vcomp.studies.comparison import MeasureComparison

__all__ = ["KINDS", "draw"]

KINDS = ("dots", "curves")
_POINTS = 100
"""Points of a curve: more cannot be seen."""


def draw(
    compared: MeasureComparison,
    kind: str,
    coefficient: str | Sequence[str],
    x: str | None,
    plan: int,
    ax: Any | None,
) -> Any:
    """Return the axes on which measures are drawn; see :meth:`MeasureComparison.plot`."""
    chosen = (coefficient,) if isinstance(coefficient, str) else tuple(coefficient)
    unknown = [c for c in chosen if c not in SYMBOLS]
    if unknown or not chosen:
        given = repr(unknown[0]) if unknown else "none"
        raise PlanError(f"coefficient is 'Erho2', 'Phi' or both, not {given}")
    if kind == "dots":
        return _dots(compared, chosen, plan, ax)
    if kind == "curves":
        return _curves(compared, chosen[0], x, ax)
    raise PlanError(f"kind is 'dots' or 'curves', not {kind!r}{did_you_mean(kind, KINDS)}")


def _dots(compared: MeasureComparison, chosen: Sequence[str], plan: int, ax: Any | None) -> Any:
    fewest = min(len(study.plan) for study in compared.studies.values())
    if not isinstance(plan, Integral) or isinstance(plan, bool) or not 0 <= plan < fewest:
        raise PlanError(f"plan= is the number of a row, from 0 to {fewest - 1}, not {plan!r}")
    rows = compared.table.groupby("measure", sort=False).nth(int(plan))
    sizes = [
        tuple(zip(s.plan.facets, s.plan.sizes[plan].tolist(), strict=True))
        for s in compared.studies.values()
    ]
    same = ", ".join(f"{escaped(f)} = {display.count(n)}" for f, n in sizes[0])
    where = f"coefficient with {same}" if same and len(set(sizes)) == 1 else "coefficient"
    return plots.measures(
        rows, chosen, target=compared.target, alpha=compared.alpha, xlabel=where, ax=ax
    )


def _curves(compared: MeasureComparison, coefficient: str, x: str | None, ax: Any | None) -> Any:
    import pandas as pd

    studies = compared.studies
    facet = _horizontal(list(studies.values()), x)
    table = compared.table
    sizes = [table[facet].min(), table[facet].max()]
    low, high = sizes if sizes[0] < sizes[1] else (max(1.0, sizes[0] / 4.0), 2.0 * sizes[1])
    fine = np.geomspace(low, high, _POINTS)
    lines = [
        pd.DataFrame({"measure": name, facet: fine, coefficient: _line(study, facet, fine,
                                                                       coefficient)})
        for name, study in studies.items()
    ]  # fmt: skip
    plan = next(iter(studies.values())).plan
    others = {f: n for f, n in zip(plan.facets, plan.sizes[0].tolist(), strict=True) if f != facet}
    held = ", ".join(f"{escaped(f)} = {display.count(n)}" for f, n in others.items())
    return plots.measure_curves(
        _with_first(table, others),
        facet,
        coefficient,
        curves=pd.concat(lines, ignore_index=True),
        target=compared.target,
        alpha=compared.alpha,
        xlabel=f"levels of {escaped(facet)}" + (f"  (with {held})" if held else ""),
        ax=ax,
    )


def _line(study: DStudy, facet: str, fine: Any, coefficient: str) -> Any:
    """Return the coefficient at many sizes of a facet, the others as in the first plan."""
    plan = study.plan
    sizes = np.repeat(plan.sizes[[0]], fine.size, axis=0)
    sizes[:, plan.facets.index(facet)] = fine
    dense = replace(plan, sizes=sizes, inverse_n=None, labels=None)
    made = quantities(weights(study.components, dense))[coefficient]
    return made.values(take_components(study.components, study.negative).values)


def _with_first(table: pd.DataFrame, others: dict[str, float]) -> pd.DataFrame:
    """Return the rows whose other sizes are those of the first plan."""
    chosen = table
    for facet, n in others.items():
        chosen = chosen[chosen[facet] == n]
    return chosen


def _horizontal(studies: list[DStudy], x: str | None) -> str:
    common = [f for f in studies[0].plan.facets if all(f in s.plan.facets for s in studies)]
    named = [f for f in common if f != REPLICATE] or common
    if x is None and len(named) == 1:
        return named[0]
    if x is None:
        raise PlanError(f"which facet is on the horizontal axis? pass x=, one of {named}")
    if x not in common:
        raise PlanError(
            f"{x!r} has no size in all measures{did_you_mean(x, common)}; x= is one of {common}"
        )
    return x

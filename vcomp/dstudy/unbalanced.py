"""Plans whose levels do not all weigh the same: effective sizes and shares of the universe."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from vcomp.components import VarianceComponents, closure

if TYPE_CHECKING:
    from vcomp.dstudy.plan import DStudyPlan

__all__ = ["inverse_universe", "own_inverse_n", "own_sizes"]


def own_sizes(
    components: VarianceComponents,
    objects: frozenset[str],
    facets: tuple[str, ...],
    inverse: Mapping[str, float],
) -> dict[str, float]:
    """Return the exact effective size of each facet in the G-study's own design, where it has one.

    It is the ratio of the effective numbers of two components that differ by the facet alone.

    Parameters
    ----------
    components : of the G-study
    objects : the facets of the object of measurement
    facets : whose sizes are wanted
    inverse : exact 1/n of every component
    """
    by_facets = dict(zip(components.facets, components.names, strict=True))
    sizes = {}
    for facet in facets:
        above = components.nested_in.get(facet, frozenset())
        inner = by_facets.get(above | {facet}) or by_facets.get(above | {facet} | objects)
        outer = by_facets.get(above) or by_facets.get(above | objects)
        if inner is not None and (outer is not None or not above - objects):
            effective = (inverse[outer] if outer is not None else 1.0) / inverse[inner]
            known = components.sizes.get(facet, math.nan)
            # Of a balanced design the whole number, not one that rounding has moved.
            sizes[facet] = known if math.isclose(effective, known, rel_tol=1e-9) else effective
    return sizes


def inverse_universe(
    components: VarianceComponents,
    plan: DStudyPlan,
    row: int,
    inverse_n: Callable[[frozenset[str]], float],
) -> list[float]:
    """Return 1/N' of every component in a plan whose levels do not weigh the same.

    The universe score is the mean over all levels of finite facets, and over those of fixed ones
    with the weights that they are planned with.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study
    row : number of the plan
    inverse_n : exact 1/n of a set of facets
    """
    space, sizes = plan.universe, dict(zip(plan.facets, plan.sizes[row].tolist(), strict=True))
    shares = []
    for facets in components.facets:
        averaged = plan.design.closure(facets) - plan.objects
        kept = frozenset(
            f
            for f in averaged
            if f in space.fixed and plan.design.nested_in[f] - plan.objects <= space.fixed
        )
        share = inverse_n(kept) if kept else 1.0
        for facet in averaged - kept:
            # of a fixed facet within a finite one the planned levels are those of each level
            fixed = sizes[facet] if facet in space.fixed else math.inf
            share /= space.sizes.get(facet, fixed)
        shares.append(share)
    return shares


def own_inverse_n(
    components: VarianceComponents,
    objects: frozenset[str],
    exact: Mapping[str, float],
    sizes: Mapping[str, float],
    facets: frozenset[str],
) -> float:
    """Return the exact 1/n of some facets in the G-study's own design, where a component has it.

    Parameters
    ----------
    components : of the G-study
    objects : the facets of the object of measurement
    exact : 1/n of every component
    sizes : effective ones of the facets, whose product stands in where no component does
    facets : whose 1/n is wanted
    """
    by_facets = dict(zip(components.facets, components.names, strict=True))
    own = closure(facets, components.nested_in)
    name = by_facets.get(own) or by_facets.get(own | objects)
    if name is not None:
        return exact[name]
    return 1.0 / math.prod(sizes[f] for f in facets)

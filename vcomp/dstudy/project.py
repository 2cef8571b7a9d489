"""From the components of a G-study to the error variances and coefficients of a D-study.

Universe-score and error variances are linear in the components. The weights say it all: of each
component 1/n' where it is part of the variance, else 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray
from vcomp.components import REPLICATE, VarianceComponents
from vcomp.dstudy.plan import DStudyPlan, gstudy_design
from vcomp.exceptions import PlanError
from vcomp.notation import Design
from vcomp.uncertainty.quantity import Quantities

__all__ = [
    "QUANTITIES",
    "Weights",
    "quantities",
    "weights",
]

QUANTITIES = ("rel_err_var", "abs_err_var", "Erho2", "Phi")
"""What a D-study estimates with a standard error and an interval."""


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Universe-score and error variances of m plans as weights of k components.

    Attributes
    ----------
    universe : (k,)
    relative : (m, k)
    absolute : (m, k)

    Examples
    --------
    >>> w = Weights(np.array([1.0, 0.0]), np.array([[0.0, 0.1]]), np.array([[0.0, 0.1]]))
    >>> w.relative @ np.array([0.5, 2.0])
    array([0.2])
    """

    universe: FloatArray
    relative: FloatArray
    absolute: FloatArray


def weights(components: VarianceComponents, plan: DStudyPlan) -> Weights:
    """Return how the variances of every plan are composed of the components.

    A component of the G-study goes to the D-study's effect of its facets and of those that they
    are nested in there; so σ²(a) and σ²(ai) of a crossed G-study add up to σ²(a:i) of a nested
    D-study. It is divided by n' of the facets of that effect other than the object of measurement.
    Effects with the object and other facets are relative error; all but the object's own are
    absolute error.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study

    Raises
    ------
    PlanError
        The design needs apart what the G-study confounds, or there is no component of the object.

    References
    ----------
    Brennan (2001), Generalizability Theory, chap. 4; Bodoff and Li (2007), SIGIR, eq. (2), (3) and
    (5), pp. 370-371.

    Examples
    --------
    >>> from vcomp.dstudy import from_components, make_plans
    >>> g = from_components({"p": 2.0, "i": 1.0, "Residual": 4.0}).components
    >>> weights(g, make_plans(g, n={"i": [10, 20]})).absolute
    array([[0.  , 0.1 , 0.1 ],
           [0.  , 0.05, 0.05]])
    """
    _refuse_confounded(components, plan.design)
    effects = [plan.design.closure(f) for f in components.facets]
    universe = np.array([e == {plan.object} for e in effects], dtype=float)
    if not universe.any():
        raise PlanError(
            f"the G-study has no component of {plan.object!r} alone, so nothing tells its levels "
            f"apart; it has {', '.join(components.names)}"
        )
    with_object = np.array([plan.object in e for e in effects], dtype=float)
    inverse = _inverse_sizes(components, plan, effects)
    absolute = inverse * (1.0 - universe)
    return Weights(universe, absolute * with_object, absolute)


def quantities(w: Weights) -> dict[str, Quantities]:
    """Return the universe-score variance, error variances, Eρ² and Φ of every plan.

    Coefficients are the share of universe-score variance in itself and error variance.

    Parameters
    ----------
    w : of m plans

    References
    ----------
    Brennan (2001), chap. 4; Bodoff and Li (2007), SIGIR, eq. (4) and (6), pp. 370-371.

    Examples
    --------
    >>> w = Weights(np.array([1.0, 0.0]), np.array([[0.0, 0.1]]), np.array([[0.0, 0.1]]))
    >>> quantities(w)["Erho2"].values(np.array([3.0, 10.0]))
    array([0.75])
    """
    universe = np.broadcast_to(w.universe, w.relative.shape)
    return {
        "universe_var": Quantities("linear", universe),
        "rel_err_var": Quantities("linear", w.relative),
        "abs_err_var": Quantities("linear", w.absolute),
        "Erho2": Quantities("share", universe, w.relative),
        "Phi": Quantities("share", universe, w.absolute),
    }


def _inverse_sizes(
    components: VarianceComponents, plan: DStudyPlan, effects: list[frozenset[str]]
) -> FloatArray:
    sizes = np.array(plan.sizes, dtype=float).reshape(len(plan.sizes), len(plan.facets))
    inverse = np.empty((len(sizes), len(effects)))
    exact: Mapping[str, float] = plan.inverse_n or {}
    for j, (name, effect) in enumerate(zip(components.names, effects, strict=True)):
        part = [k for k, f in enumerate(plan.facets) if f in effect]
        inverse[:, j] = exact[name] if name in exact else 1.0 / sizes[:, part].prod(axis=1)
    return inverse


def _refuse_confounded(components: VarianceComponents, design: Design) -> None:
    """Refuse a design that needs apart what one component of the G-study holds together.

    A component of facets t stands for all crossed effects whose closure in the G-study is t. The
    smallest of them is that of the innermost facets; the largest is t. The design must not tell
    these two apart.
    """
    own = gstudy_design(components)
    for facets in sorted(components.facets, key=len):
        innermost = facets - frozenset().union(*(own.nested_in[f] for f in facets))
        small, large = design.closure(innermost), design.closure(facets)
        if small == large:
            continue
        outer = next(f for f in design.facets if f in facets & (large - small))
        inner = next(f for f in design.facets if f in innermost and outer in own.nested_in[f])
        raise PlanError(
            f"the G-study cannot tell {_effect(small, design)} from {_effect(large, design)} "
            f"apart ({inner} is nested in {outer}), and the design '{design}' needs them "
            f"separately; nest {inner} in {outer}, or collect data in which {inner} is crossed "
            f"with {outer}"
        )


def _effect(facets: frozenset[str], design: Design) -> str:
    return ":".join(f for f in design.facets if f in facets and f != REPLICATE)

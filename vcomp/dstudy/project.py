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
from vcomp.dstudy.notation import Design
from vcomp.dstudy.plan import DStudyPlan, gstudy_design
from vcomp.exceptions import PlanError

__all__ = [
    "QUANTITIES",
    "Taken",
    "Weights",
    "gradients",
    "quantities",
    "take_components",
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


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """The components as a D-study takes them.

    Attributes
    ----------
    values : (k,)
    cov : (k, k) or None; zero for components that are taken as known
    zeroed : names of negative components that are taken as zero
    bounded : names of other components without a standard error, those that are held not among
        them: these are known

    Examples
    --------
    >>> Taken(np.array([0.5, 0.0]), None, zeroed=("Residual",), bounded=()).zeroed
    ('Residual',)
    """

    values: FloatArray
    cov: FloatArray | None
    zeroed: tuple[str, ...]
    bounded: tuple[str, ...]


def take_components(components: VarianceComponents, negative: str) -> Taken:
    """Return the components under a policy for negative ones.

    A component that is held, taken as zero, or without a standard error because it is at its
    bound, counts as known: its variance is zero in the delta method.

    Parameters
    ----------
    components : of the G-study
    negative : ``"zero"`` or ``"keep"``

    Raises
    ------
    PlanError
        `negative` is neither.

    References
    ----------
    Brennan (2001), Generalizability Theory, chap. 3: negative estimates are set to zero once all
    components have been estimated.

    Examples
    --------
    >>> from vcomp.dstudy import from_components
    >>> g = from_components({"p": 2.0, "i": -0.1, "Residual": 4.0}).components
    >>> take_components(g, "zero").values
    array([2., 0., 4.])
    """
    if negative not in ("zero", "keep"):
        raise PlanError(f"negative is 'zero' or 'keep', not {negative!r}")
    below = (components.values < 0) & (negative == "zero")
    values = np.where(below, 0.0, components.values)
    cov = components.cov
    unknown = np.zeros_like(below)
    if cov is not None:
        unknown = ~np.isfinite(np.diagonal(cov))
        known = below | unknown
        cov = np.where(known[:, None] | known[None, :], 0.0, cov)
    names = np.array(components.names, dtype=object)
    held = np.isin(names, list(components.held))
    return Taken(values, cov, tuple(names[below]), tuple(names[unknown & ~below & ~held]))


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


def quantities(values: FloatArray, w: Weights) -> dict[str, FloatArray]:
    """Return the universe-score variance, error variances, Eρ² and Φ of every plan.

    A coefficient is nan where its universe-score and error variance add up to zero or less.

    Parameters
    ----------
    values : (k,) components
    w : of m plans

    Returns
    -------
    dict of (m,) arrays

    References
    ----------
    Brennan (2001), chap. 4; Bodoff and Li (2007), SIGIR, eq. (4) and (6), pp. 370-371.

    Examples
    --------
    >>> w = Weights(np.array([1.0, 0.0]), np.array([[0.0, 0.1]]), np.array([[0.0, 0.1]]))
    >>> quantities(np.array([3.0, 10.0]), w)["Erho2"]
    array([0.75])
    """
    relative, absolute = w.relative @ values, w.absolute @ values
    universe = np.full_like(relative, w.universe @ values)
    return {
        "universe_var": universe,
        "rel_err_var": relative,
        "abs_err_var": absolute,
        "Erho2": _share(universe, relative),
        "Phi": _share(universe, absolute),
    }


def gradients(values: FloatArray, w: Weights) -> dict[str, FloatArray]:
    """Return the derivatives of each of :data:`QUANTITIES` with respect to the components.

    With universe-score variance τ = u'σ² and error variance δ = w'σ², the gradient of τ/(τ + δ) is
    (δu − τw)/(τ + δ)².

    Parameters
    ----------
    values : (k,) components
    w : of m plans

    Returns
    -------
    dict of (m, k) arrays

    Examples
    --------
    >>> w = Weights(np.array([1.0, 0.0]), np.array([[0.0, 0.5]]), np.array([[0.0, 0.5]]))
    >>> gradients(np.array([1.0, 2.0]), w)["Erho2"]
    array([[ 0.25 , -0.125]])
    """
    return {
        "rel_err_var": w.relative,
        "abs_err_var": w.absolute,
        "Erho2": _share_gradient(values, w.universe, w.relative),
        "Phi": _share_gradient(values, w.universe, w.absolute),
    }


def _share(universe: FloatArray, error: FloatArray) -> FloatArray:
    total = universe + error
    return np.divide(universe, total, out=np.full_like(total, np.nan), where=total > 0)


def _share_gradient(values: FloatArray, u: FloatArray, w: FloatArray) -> FloatArray:
    tau, delta = u @ values, (w @ values)[:, None]
    total = tau + delta
    out = np.full_like(w, np.nan)
    return np.divide(delta * u - tau * w, total**2, out=out, where=total > 0)


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

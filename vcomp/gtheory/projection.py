"""From the components of a G-study to the error variances and coefficients of a D-study.

Universe-score and error variances are linear in the components. The weights say it all: of each
component 1/n' where it is part of the variance, else 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import PlanError
from vcomp.formula import REPLICATE, Design
from vcomp.gtheory.plan import DStudyPlan, gstudy_design
from vcomp.inference import Form, Quantities, VarianceComponents, used_components

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "PLANNED",
    "QUANTITIES",
    "Composition",
    "Weights",
    "composition",
    "effects_table",
    "planned_quantity",
    "quantities",
    "sampling_fractions",
    "weights",
]


QUANTITIES = ("rel_err_var", "abs_err_var", "Erho2", "Phi")
"""What a D-study estimates with a standard error and an interval."""


PLANNED: dict[str, tuple[str, Form]] = {
    "universe_var": ("universe_var", "linear"),
    "rel_err_var": ("rel_err_var", "linear"),
    "abs_err_var": ("abs_err_var", "linear"),
    "Erho2": ("Erho2", "share"),
    "Phi": ("Phi", "share"),
    "rel_sem": ("rel_err_var", "root"),
    "abs_sem": ("abs_err_var", "root"),
    "rel_signal_noise": ("Erho2", "ratio"),
    "abs_signal_noise": ("Phi", "ratio"),
}
"""What a D-study projects: made of which of :func:`quantities`, and in what form."""


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Universe-score and error variances of m plans as weights of k components.

    Attributes
    ----------
    universe, relative, absolute : (m, k)

    Examples
    --------
    >>> w = Weights(np.array([[1.0, 0.0]]), np.array([[0.0, 0.1]]), np.array([[0.0, 0.1]]))
    >>> w.relative @ np.array([0.5, 2.0])
    array([0.2])
    """

    universe: FloatArray
    relative: FloatArray
    absolute: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Composition:
    """How the effect that each of k components goes to depends on the F facets with sizes.

    Attributes
    ----------
    divides : (k, F) whether a component is averaged over the levels of a facet
    has_object : (k,) whether an effect tells objects of measurement apart
    effects : the facets of the D-study's effect of each component

    Examples
    --------
    >>> from vcomp.gtheory import from_components, make_plans
    >>> g = from_components({"p": 2.0, "i": 1.0, "Residual": 4.0}).components
    >>> made = composition(g, make_plans(g, n={"i": 10}))
    >>> made.divides[:, 0], made.has_object
    (array([False,  True,  True]), array([ True, False,  True]))
    """

    divides: BoolArray
    has_object: BoolArray
    effects: tuple[frozenset[str], ...]


def composition(components: VarianceComponents, plan: DStudyPlan) -> Composition:
    """Return which facets divide each component, and which components tell objects apart.

    A component of the G-study goes to the D-study's effect of its facets and of those that they
    are nested in there; so σ²(a) and σ²(ai) of a crossed G-study add up to σ²(a:i) of a nested
    D-study.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study

    Raises
    ------
    PlanError
        The design needs apart what the G-study confounds, or there is no component of the object.
    """
    _refuse_confounded(components, plan.design)
    effects = tuple(plan.design.closure(f) for f in components.facets)
    divides = np.array([[f in e for f in plan.facets] for e in effects], dtype=bool)
    divides = divides.reshape(len(effects), len(plan.facets))
    compared = plan.objects - plan.universe.within
    has_object = np.array([bool(e & compared) for e in effects])
    if not (has_object & ~divides.any(axis=1)).any():
        raise PlanError(
            f"the G-study has no component of {plan.object!r} alone, so nothing tells its levels "
            f"apart; it has {', '.join(components.names)}"
        )
    return Composition(divides, has_object, effects)


def weights(components: VarianceComponents, plan: DStudyPlan) -> Weights:
    """Return how the variances of every plan are composed of the components.

    The effect of a component is the mean of as many levels as its sized facets have together, n'.
    The universe score is that of all N' of them: n' of fixed facets, infinite of random ones. The
    variance of a mean of n' out of N' about that of all is 1/n' − 1/N', which is error; 1/N' is
    universe-score variance, of those effects that tell objects apart. Error of differences is
    relative, all error is absolute. In a layout whose objects meet different levels, differences
    hold effects of these levels too.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study

    Raises
    ------
    PlanError
        The design needs apart what the G-study confounds, there is no component of the object, or
        nothing is left over which scores are generalized.

    References
    ----------
    Brennan (2001), Generalizability Theory, chap. 4, and sections 4.4 and 5.1 for fixed facets
    and finite universes, whose rules by components of restricted models add up to this; Bodoff
    and Li (2007), SIGIR, eq. (2), (3) and (5), pp. 370-371.

    Examples
    --------
    >>> from vcomp.gtheory import from_components, make_plans
    >>> g = from_components({"p": 2.0, "i": 1.0, "Residual": 4.0}).components
    >>> weights(g, make_plans(g, n={"i": [10, 20]})).absolute
    array([[0.  , 0.1 , 0.1 ],
           [0.  , 0.05, 0.05]])
    >>> weights(g, make_plans(g, n={"i": 10}, universe={"i": 100})).universe
    array([[1.  , 0.  , 0.01]])
    """
    made = composition(components, plan)
    inverse = _inverse_sizes(plan, made.divides)
    universe = _inverse_universe(plan, made.divides, inverse)
    absolute = inverse - universe
    absolute[absolute < 1e-12 * inverse] = 0.0  # what is left by rounding alone
    _refuse_no_error(components, plan, absolute)
    relative = absolute * made.has_object
    if plan.inverse_n is not None and plan.unshared is not None:
        # What is universe score alone is the same for all objects.
        relative += plan.unshared * (~made.has_object & (absolute > 0.0))
    return Weights(universe * made.has_object, relative, absolute)


def planned_quantity(w: Weights, name: str) -> Quantities:
    """Return one of :data:`PLANNED` in every plan.

    Parameters
    ----------
    w : of m plans
    name : such as ``"rel_sem"``, √σ²(δ)

    Examples
    --------
    >>> w = Weights(np.array([[1.0, 0.0]]), np.array([[0.0, 0.1]]), np.array([[0.0, 0.1]]))
    >>> planned_quantity(w, "rel_signal_noise").values(np.array([3.0, 10.0]))
    array([3.])
    """
    of, form = PLANNED[name]
    made = quantities(w)[of]
    return Quantities(form, made.a, made.b)


def sampling_fractions(plan: DStudyPlan) -> FloatArray:
    """Return n'/N' of every facet in every plan, (m, F): 0 of random facets, 1 of fixed ones.

    Parameters
    ----------
    plan : of the D-study
    """
    fractions = np.zeros(plan.sizes.shape)
    for column, facet in enumerate(plan.facets):
        if facet in plan.universe.fixed:
            fractions[:, column] = 1.0
        elif facet in plan.universe.sizes:
            fractions[:, column] = plan.sizes[:, column] / plan.universe.sizes[facet]
    return fractions


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
    >>> w = Weights(np.array([[1.0, 0.0]]), np.array([[0.0, 0.1]]), np.array([[0.0, 0.1]]))
    >>> quantities(w)["Erho2"].values(np.array([3.0, 10.0]))
    array([0.75])
    """
    return {
        "universe_var": Quantities("linear", w.universe),
        "rel_err_var": Quantities("linear", w.relative),
        "abs_err_var": Quantities("linear", w.absolute),
        "Erho2": Quantities("share", w.universe, w.relative),
        "Phi": Quantities("share", w.universe, w.absolute),
    }


def _inverse_sizes(plan: DStudyPlan, divides: BoolArray) -> FloatArray:
    return _products(1.0 / plan.sizes, divides) if plan.inverse_n is None else plan.inverse_n


def _inverse_universe(plan: DStudyPlan, divides: BoolArray, inverse: FloatArray) -> FloatArray:
    """Return 1/N' of every component in every plan, (m, k)."""
    if plan.inverse_n is not None and plan.inverse_universe is not None:
        return plan.inverse_universe
    return inverse * _products(sampling_fractions(plan), divides)


def _products(factors: FloatArray, divides: BoolArray) -> FloatArray:
    """Return for each plan and component the product of the factors of its facets, (m, k)."""
    products = np.ones((len(factors), len(divides)))
    for column in range(divides.shape[1]):
        products[:, divides[:, column]] *= factors[:, [column]]
    return products


def _refuse_no_error(
    components: VarianceComponents, plan: DStudyPlan, absolute: FloatArray
) -> None:
    """Refuse plans in which all variance, the errors of the scores too, is universe score."""
    if (absolute > 0.0).any(axis=1).all():
        return
    facets = " and ".join(f for f in plan.facets if f != REPLICATE)
    whole = ":".join(f for f in plan.design.facets if f != REPLICATE)
    if not facets:
        raise PlanError(
            f"the object of measurement, {plan.object}, takes all facets, and none is left to "
            f"generalize over: the error of a score is confounded with {whole} in "
            f"{components.names[-1]}; leave a facet out of the object"
        )
    raise PlanError(
        f"with all planned levels of {facets} being the whole universe nothing is left to "
        f"generalize over: the error of a score is confounded with {whole} in "
        f"{components.names[-1]}; leave a facet random, or collect several scores in each cell"
    )


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


def effects_table(
    components: VarianceComponents, plan: DStudyPlan, negative: str, row: int
) -> pd.DataFrame:
    """Return a row an effect of one plan; see :meth:`DStudy.effects`.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study
    negative : how negative components are taken, ``"zero"`` or ``"keep"``
    row : number of the plan

    References
    ----------
    Brennan (2001), Generalizability Theory, Tables 4.1 to 4.3: D-study variance components and
    the error variances and universe-score variance that they belong to.
    """
    import pandas as pd

    made, w = composition(components, plan), weights(components, plan)
    values = used_components(components, negative).values
    inverse = 1.0 / plan.sizes[row]
    rows = []
    place = {facet: k for k, facet in enumerate(plan.design.facets)}
    for effect in sorted(set(made.effects), key=lambda e: (len(e), sorted(place[f] for f in e))):
        parts = np.array([e == effect for e in made.effects])
        taken = np.where(parts, values, 0.0)
        divides = made.divides[parts][0]
        exact = None if plan.inverse_n is None else plan.inverse_n[row]
        n = 1.0 / (inverse[divides].prod() if exact is None else exact[parts][0])
        rows.append(
            {
                "effect": ":".join(f for f in plan.design.facets if f in effect),
                "components": " + ".join(
                    name for name, part in zip(components.names, parts, strict=True) if part
                ),
                "variance": float(taken.sum()),
                "n": n,
                "universe_var": float(w.universe[row] @ taken),
                "rel_err_var": float(w.relative[row] @ taken),
                "abs_err_var": float(w.absolute[row] @ taken),
            }
        )
    return pd.DataFrame(rows).set_index("effect")

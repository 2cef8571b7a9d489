"""Error variances and coefficients of a D-study from the components of a G-study.

Universe-score and error variances are linear in the components. A component has weight 1/n' in a
variance that it is part of, else 0. Of a complete two-way table Eρ² and Φ have
exact limits from F quantiles; all other limits come from :mod:`vcomp.inference`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import PlanError
from vcomp.formula import REPLICATE, BrennanDesign
from vcomp.gtheory.plan import DStudyPlan, gstudy_design
from vcomp.inference import Form, Quantities, TwoWayMeanSquares, VarianceComponents
from vcomp.inference.intervals import F_INTERVALS, IntervalSource, Limits

CoefficientName: TypeAlias = Literal["Erho2", "Phi"]
"""Eρ² and Φ."""

ObjectiveName: TypeAlias = Literal["Erho2", "Phi", "rel_err_var", "abs_err_var"]
"""Coefficients and error variances that a design can be chosen for."""

QUANTITIES = ("rel_err_var", "abs_err_var", "Erho2", "Phi")
"""Quantities of a D-study with a standard error and an interval."""

PlannedName: TypeAlias = Literal[
    "universe_var", "rel_err_var", "abs_err_var", "Erho2", "Phi", "rel_sem", "abs_sem",
    "se_difference", "rel_signal_noise", "abs_signal_noise",
]  # fmt: skip

PLANNED: dict[str, tuple[str, Form]] = {
    "universe_var": ("universe_var", "linear"),
    "rel_err_var": ("rel_err_var", "linear"),
    "abs_err_var": ("abs_err_var", "linear"),
    "Erho2": ("Erho2", "share"),
    "Phi": ("Phi", "share"),
    "rel_sem": ("rel_err_var", "root"),
    "abs_sem": ("abs_err_var", "root"),
    "se_difference": ("rel_err_var", "root"),
    "rel_signal_noise": ("Erho2", "ratio"),
    "abs_signal_noise": ("Phi", "ratio"),
}
"""Projected quantities: their source among :func:`quantities`, and their form."""

_TIMES = {"se_difference": 2.0}
"""Factor of the source, if it is not 1: a difference has the errors of two objects."""


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
    """Roles of the F facets with sizes in the D-study's effects of k components.

    Attributes
    ----------
    divides : (k, F) whether a component is averaged over the levels of a facet
    has_object : (k,) whether an effect distinguishes objects of measurement
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
    """Return which facets divide each component, and which components distinguish objects.

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
        The design separates what the G-study confounds, or there is no component of the object.
    """
    _refuse_confounded(components, plan.design)
    effects = tuple(plan.design.closure(f) for f in components.facets)
    divides = np.array([[f in e for f in plan.facets] for e in effects], dtype=bool)
    divides = divides.reshape(len(effects), len(plan.facets))
    compared = plan.objects - plan.universe.within
    has_object = np.array([bool(e & compared) for e in effects])
    if not (has_object & ~divides.any(axis=1)).any():
        raise PlanError(
            f"the G-study has no component of {plan.object!r} alone, so its levels "
            f"cannot be distinguished; it has {', '.join(components.names)}",
            term=plan.object,
        )
    return Composition(divides, has_object, effects)


def weights(components: VarianceComponents, plan: DStudyPlan) -> Weights:
    """Return the variances of every plan as weights of the components.

    The effect of a component is the mean of as many levels as its sized facets have together, n'.
    The universe score is that of all N' of them: n' of fixed facets, infinite of random ones. The
    mean of n' out of N' levels has variance 1/n' − 1/N' about that of all, which is error; 1/N' is
    universe-score variance, of those effects that distinguish objects. Error of differences is
    relative, all error is absolute. In a layout whose objects have different levels, differences
    contain the effects of these levels too.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study

    Raises
    ------
    PlanError
        The design separates what the G-study confounds, there is no component of the object, or
        no facet is left to generalize over.

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
    roles = composition(components, plan)
    inverse = _inverse_sizes(plan, roles.divides)
    universe = _inverse_universe(plan, roles.divides, inverse)
    absolute = inverse - universe
    absolute[absolute < 1e-12 * inverse] = 0.0  # rounding error
    _refuse_no_error(components, plan, absolute)
    relative = absolute * roles.has_object
    if plan.inverse_n is not None and plan.unshared is not None:
        # Effects without error are the same for all objects.
        relative += plan.unshared * (~roles.has_object & (absolute > 0.0))
    return Weights(universe * roles.has_object, relative, absolute)


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
    projected = quantities(w)[of]
    return Quantities(form, _TIMES.get(name, 1.0) * projected.a, projected.b)


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


def constant_effects(components: VarianceComponents, plan: DStudyPlan) -> FloatArray:
    """Return 1/N' of the effects that are constant in the universe, 0 of others, (m, k).

    Constant are effects of fixed and finite facets only: their N' levels are the whole universe.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study
    """
    roles = composition(components, plan)
    inverse = _inverse_universe(plan, roles.divides, _inverse_sizes(plan, roles.divides))
    of_objects = np.array([bool(effect & plan.objects) for effect in roles.effects])
    return inverse * (roles.divides.any(axis=1) & ~of_objects)


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
    """Refuse plans without error variance: all variance is universe-score variance."""
    if (absolute > 0.0).any(axis=1).all():
        return
    facets = " and ".join(f for f in plan.facets if f != REPLICATE)
    whole = ":".join(f for f in plan.design.facets if f != REPLICATE)
    if not facets:
        raise PlanError(
            f"the object of measurement, {plan.object}, comprises all facets, and none is left to "
            f"generalize over: the error of a score is confounded with {whole} in "
            f"{components.names[-1]}; leave a facet out of the object"
        )
    raise PlanError(
        f"with all planned levels of {facets} being the whole universe nothing is left to "
        f"generalize over: the error of a score is confounded with {whole} in "
        f"{components.names[-1]}; leave a facet random, or collect several scores in each cell"
    )


def _refuse_confounded(components: VarianceComponents, design: BrennanDesign) -> None:
    """Refuse a design that separates effects confounded in one component of the G-study.

    A component of facets t stands for all crossed effects whose closure in the G-study is t. The
    smallest of them is that of the innermost facets; the largest is t. The design must not
    separate these two.
    """
    gstudy = gstudy_design(components)
    for facets in sorted(components.facets, key=len):
        innermost = facets - frozenset().union(*(gstudy.nested_in[f] for f in facets))
        small, large = design.closure(innermost), design.closure(facets)
        if small == large:
            continue
        outer = next(f for f in design.facets if f in facets & (large - small))
        inner = next(f for f in design.facets if f in innermost and outer in gstudy.nested_in[f])
        raise PlanError(
            f"the G-study cannot separate {_effect(small, design)} from {_effect(large, design)} "
            f"({inner} is nested in {outer}), and the design '{design}' needs them "
            f"separately; nest {inner} in {outer}, or collect data in which {inner} is crossed "
            f"with {outer}"
        )


def _effect(facets: frozenset[str], design: BrennanDesign) -> str:
    return ":".join(f for f in design.facets if f in facets and f != REPLICATE)


# Exact limits -----------------------------------------------------------------------------------


def two_way_table(components: VarianceComponents, plan: DStudyPlan) -> TwoWayMeanSquares | None:
    """Return the mean squares that give intervals from F quantiles, or None.

    The G-study has to be a complete two-way table with both main effects in the model, and the
    D-study has to cross the same two facets.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study

    Examples
    --------
    >>> from vcomp.gtheory import from_components, make_plans
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
    # F needs a positive residual and differences of rows and columns
    if not (table.ms_residual > 0 and table.ms_rows > 0 and table.ms_columns > 0):
        return None
    return table.oriented(plan.object)


def two_way_plans(table: TwoWayMeanSquares | None, plan: DStudyPlan) -> BoolArray:
    """Return a mask of the plans with limits from the mean squares: those with as many replicates.

    Parameters
    ----------
    table : of :func:`two_way_table`
    plan : of the D-study

    Examples
    --------
    >>> from vcomp.gtheory import from_components, make_plans
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


def first_two_way(components: VarianceComponents, plan: DStudyPlan) -> TwoWayMeanSquares | None:
    """Return the mean squares that give limits of the first plan from F quantiles, or None.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study
    """
    table = two_way_table(components, plan)
    return table if two_way_plans(table, plan)[0] else None


@dataclass(frozen=True, slots=True)
class _FLimits:
    """Intervals from F quantiles, for the plans with limits from the mean squares."""

    low: FloatArray
    high: FloatArray
    interval_method: str
    by_table: BoolArray
    n_replicates: int


def planned_limits(
    name: str,
    q: Quantities,
    components: VarianceComponents,
    plan: DStudyPlan,
    source: IntervalSource,
    alpha: float,
) -> Limits:
    """Return intervals of a projected quantity, from F quantiles where these are available.

    Parameters
    ----------
    name : of the quantity, see :data:`~vcomp.gtheory.projection.PLANNED`
    q : the quantity in every plan
    components : of the G-study
    plan : of the D-study
    source : of all other intervals
    alpha : intervals have confidence 1 − alpha
    """
    by_f = _f_interval(name, components, plan, alpha, source.interval)
    if by_f is not None and by_f.by_table.all():
        return Limits(by_f.low, by_f.high, by_f.interval_method)
    return _combined_limits(source.limits(q, alpha), by_f)


def _f_interval(
    name: str, components: VarianceComponents, plan: DStudyPlan, alpha: float, interval: str
) -> _FLimits | None:
    """Return the intervals of Eρ² or Φ that a complete two-way table gives from F quantiles.

    Parameters
    ----------
    name : of the quantity; only Eρ² and Φ have such intervals
    components : of the G-study
    plan : of the D-study
    alpha : intervals have confidence 1 − alpha
    interval : that was requested; only ``"auto"`` and ``"f"`` use F quantiles
    """
    by_f = name in F_INTERVALS and interval in ("auto", "f")
    table = two_way_table(components, plan) if by_f else None
    by_table = two_way_plans(table, plan)
    # Both limits may be below zero; other intervals are used then.
    if table is None or not by_table.any() or table.ms_rows <= table.ms_residual:
        return None
    f_interval = F_INTERVALS[name]
    n = plan.sizes[:, plan.facets.index(table.columns)]
    low, high = (f_interval.of(end, n) for end in f_interval.limits(table, alpha))
    return _FLimits(low, high, f_interval.words, by_table, table.n_replicates)


def _combined_limits(other: Limits, by_f: _FLimits | None) -> Limits:
    """Return F intervals for the plans that have them, other intervals for the rest.

    Parameters
    ----------
    other : of all plans
    by_f : of some of them, or None
    """
    if by_f is None:
        return other
    by_table = by_f.by_table
    low = np.where(by_table, by_f.low, other.low)
    high = np.where(by_table, by_f.high, other.high)
    mixed = bool((~by_table & np.isfinite(other.low)).any())
    where = (
        f" where {REPLICATE} = {by_f.n_replicates}, else {other.interval_method}" if mixed else ""
    )
    return Limits(low, high, by_f.interval_method + where, other.notes)

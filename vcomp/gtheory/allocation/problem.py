"""The choice of the sizes of a design: error variance and cost as functions of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, check_known, is_real
from vcomp.gtheory.allocation.cost import Cost, CostFunction
from vcomp.gtheory.plan import DStudyPlan
from vcomp.gtheory.projection import composition
from vcomp.inference import VarianceComponents

ROOM = 1e-10
"""Relative tolerance for rounding within which a budget or a goal is met."""

TIE = 1e-11
"""Relative width of the classes within which values are equal. Classes are used, as equality up to
a tolerance is not transitive."""

EQUAL = 4.0 * TIE
"""Relative difference of values within which they may be equal."""


@dataclass(frozen=True, slots=True, eq=False)
class SizeProblem:
    """The possible sizes of F facets of a design, with error variance and cost.

    A sum of products over sets of facets is an array of 2^F coefficients; the bits of an index are
    the set, the first facet being the highest bit.

    Attributes
    ----------
    plan : one plan of the design, with the sizes of facets that are held
    facets : the F facets whose sizes are chosen
    lo, hi : (F,) least and largest sizes; infinite where there is no bound
    error : (2^F, k) error variance of each of k components, over products of 1/n
    spared : (k,) reduction of the error variance by finite universes
    universe : (k,) weights of the universe-score variance
    cost : (2^F,) prices of products of n; or a function of all sizes
    """

    plan: DStudyPlan
    facets: tuple[str, ...]
    lo: FloatArray
    hi: FloatArray
    error: FloatArray
    spared: FloatArray
    universe: FloatArray
    cost: FloatArray | CostFunction

    def sizes(self, rows: FloatArray) -> FloatArray:
        """Return the sizes of all facets of the plan, (m, all), for (m, F) sizes of these."""
        sizes = np.repeat(self.plan.sizes[:1], len(rows), axis=0)
        for place, facet in enumerate(self.facets):
            sizes[:, self.plan.facets.index(facet)] = rows[:, place]
        return sizes

    def costs(self, rows: FloatArray) -> FloatArray:
        """Return the cost of (m, F) sizes."""
        if isinstance(self.cost, CostFunction):
            return self.cost.at(dict(zip(self.plan.facets, self.sizes(rows).T, strict=True)))
        return evaluate(self.cost, rows)

    def errors(self, rows: FloatArray, values: FloatArray) -> FloatArray:
        """Return the error variance of (m, F) sizes with (k,) components."""
        return evaluate(self.error @ values, 1.0 / rows) - float(self.spared @ values)

    def is_universe(self, row: FloatArray) -> bool:
        """Return whether (F,) sizes comprise the whole universe of all facets."""
        space = self.plan.universe
        sizes = zip(self.plan.facets, self.sizes(row[None, :])[0], strict=True)
        return all(f in space.fixed or n >= space.sizes.get(f, math.inf) for f, n in sizes)


def evaluate(coefficients: FloatArray, factors: FloatArray) -> FloatArray:
    """Return sums of products of factors.

    Parameters
    ----------
    coefficients : (2^F,) or (m, 2^F)
    factors : (m, F)

    Examples
    --------
    >>> evaluate(np.array([1000.0, 0.0, 50.0, 2.0]), np.array([[100.0, 3.0]]))
    array([6600.])
    """
    left = np.atleast_2d(coefficients)
    for factor in factors.T:
        half = left.shape[1] // 2
        left = left[:, :half] + left[:, half:] * factor[:, None]
    return np.array(np.broadcast_to(left[:, 0], len(factors)))


def first_sizes(
    errors: FloatArray, lo: FloatArray, hi: FloatArray, limit: FloatArray
) -> FloatArray:
    """Return sizes at which error variances are within their limits where any are, (K, F).

    All sizes are doubled until they are.

    Parameters
    ----------
    errors : (K, 2^F) coefficients of products of 1/n
    lo : (F,) least sizes
    hi : (K, F) largest sizes
    limit : (K,)
    """
    sizes = np.tile(lo, (len(errors), 1))
    # Largest number of times that all sizes are doubled, which is beyond any countable size
    for _ in range(60):
        more = evaluate(errors, 1.0 / sizes) > limit
        if not more.any():
            break
        sizes[more] = np.minimum(2.0 * sizes[more], hi[more])
    return sizes


def tie_class(values: FloatArray) -> FloatArray:
    """Return classes of values, ascending; values that rounding separates mostly share one."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.floor(np.log(values) / TIE))


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit that sizes have to keep: a budget, or an allowed error variance.

    Attributes
    ----------
    budget : largest cost of a measurement, or None
    allowed : otherwise the largest error variance, of the terms that fall with sizes
    """

    budget: float | None
    allowed: float = math.inf

    @property
    def value(self) -> float:
        """The upper limit of the cost, or else of the error variance."""
        limit = self.allowed if self.budget is None else self.budget
        return limit + ROOM * abs(limit)


@dataclass(frozen=True, slots=True, eq=False)
class AllocationSolution:
    """The best designs, the best one first; none if no sizes keep the limit.

    Attributes
    ----------
    sizes : (r, F)
    error : (r,) error variance, without the reduction by finite universes
    cost : (r,)
    """

    sizes: FloatArray
    error: FloatArray
    cost: FloatArray

    @property
    def found(self) -> bool:
        """Whether there is a solution."""
        return len(self.sizes) > 0


def make_problem(
    components: VarianceComponents,
    plan: DStudyPlan,
    cost: Cost | CostFunction,
    bounds: Mapping[str, tuple[float, float]],
    *,
    relative: bool,
    n_objects: Any = None,
) -> SizeProblem:
    """Return the problem of choosing the sizes of a design.

    Fixed facets keep the sizes of the plan's first row; finite universes are upper bounds.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study
    cost : of a measurement
    bounds : facet → least and largest size
    relative : whether the error is that of differences between objects, or else of their scores
    n_objects : number of objects, if the cost depends on it

    Raises
    ------
    PlanError
        If the cost or a bound does not fit the design, or a facet without bound costs nothing.
    """
    held, limits = _limits(plan, bounds)
    facets = tuple(limits)
    roles = composition(components, plan)
    sizes = dict(zip(plan.facets, plan.sizes[0].tolist(), strict=True)) | held
    plan = _with_sizes(plan, sizes, facets)
    counts = roles.has_object if relative else np.ones_like(roles.has_object)
    error = np.zeros((1 << len(facets), len(counts)))
    spared, universe = np.zeros(len(counts)), np.zeros(len(counts))
    for c, divides in enumerate(roles.divides):
        facets_of = [f for f, d in zip(plan.facets, divides, strict=True) if d]
        everything = math.prod(1.0 / _universe_size(plan, f, sizes[f]) for f in facets_of)
        universe[c] = everything * roles.has_object[c]
        if counts[c] and not plan.universe.fixed.issuperset(facets_of):
            mask = _mask(facets_of, facets)
            error[mask, c] = math.prod(1.0 / sizes[f] for f in facets_of if f not in facets)
            spared[c] = everything
    lo, hi = (np.array([limits[f][end] for f in facets], dtype=float) for end in (0, 1))
    if n_objects is not None and not counts_objects(cost, plan):
        raise PlanError(
            f"n_objects={n_objects!r} is given, and the cost ({cost}) has no price per "
            f"{plan.object}: leave it out, or add one"
        )
    if isinstance(cost, CostFunction):
        cost.check_facets(plan.facets)
        return SizeProblem(plan, facets, lo, hi, error, spared, universe, cost)
    prices = _prices(cost, plan, facets, sizes, n_objects, components)
    _check_unbounded(facets, hi, error, prices, cost)
    return SizeProblem(plan, facets, lo, hi, error, spared, universe, prices)


def counts_objects(cost: Cost | CostFunction, plan: DStudyPlan) -> bool:
    """Return whether the cost depends on the number of objects of measurement.

    Parameters
    ----------
    cost : of a measurement
    plan : of the D-study; what is nested in the objects is paid for each of them

    Raises
    ------
    PlanError
        If the cost has a price for something that is not a facet of the design.
    """
    if not isinstance(cost, Cost):
        return False
    return any(over & plan.objects for _, over in cost.terms(plan.design))


def read_bounds(given: Any, known: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Return least and largest sizes by facet.

    Parameters
    ----------
    given : mapping from facets to one size, at which the facet is held, or a pair of the least and
        the largest, None where there is none
    known : the facets with sizes

    Raises
    ------
    PlanError
        If a facet is not known, or a bound is not a whole number from 1 on.

    Examples
    --------
    >>> read_bounds({"i": (10, None), "a": 2}, ("i", "a"))
    {'i': (10.0, inf), 'a': (2.0, 2.0)}
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise PlanError(f"bounds are a mapping such as {{'topic': (10, 500)}}, not {given!r}")
    bounds = {}
    for facet, pair in given.items():
        said = "bounds has {}, which has no size in this D-study; there are"
        check_known(facet, known, said)
        if isinstance(pair, (tuple, list)) and len(pair) == 2:
            low = 1.0 if pair[0] is None else _whole(facet, pair[0])
            high = math.inf if pair[1] is None else _whole(facet, pair[1])
        else:
            low = high = _whole(facet, pair)
        if low > high:
            raise PlanError(
                f"the least size of {facet!r}, {low:g}, is above the largest, {high:g}",
                column=facet,
            )
        bounds[facet] = (low, high)
    return bounds


def _whole(facet: str, value: Any) -> float:
    whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    if whole and not isinstance(value, bool) and value >= 1:
        return float(value)
    raise PlanError(
        f"bounds of {facet!r} are a whole number of at least 1, or a pair (least, largest) "
        f"of such numbers or None; not {value!r}",
        column=facet,
    )


def _limits(
    plan: DStudyPlan, bounds: Mapping[str, tuple[float, float]]
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Return the sizes of facets that are held, and the limits of the others."""
    held, limits = {}, {}
    for place, facet in enumerate(plan.facets):
        low, high = bounds.get(facet, (1.0, math.inf))
        size = plan.universe.sizes.get(facet, math.inf)
        if facet in plan.universe.fixed:
            planned = float(plan.sizes[0, place])
            if not low <= planned <= high:
                raise PlanError(
                    f"{facet!r} is fixed at {planned:g} levels, which its bounds exclude; a "
                    "fixed facet keeps its size",
                    column=facet,
                )
            low = high = planned
        elif low > size:
            raise PlanError(
                f"bounds require {low:g} of {facet!r}, and there are {size:g} in all", column=facet
            )
        high = min(high, math.floor(size)) if math.isfinite(size) else high
        if low == high:
            held[facet] = low
        else:
            limits[facet] = (low, high)
    return held, limits


def _with_sizes(
    plan: DStudyPlan, sizes: Mapping[str, float], facets: tuple[str, ...]
) -> DStudyPlan:
    row = [1.0 if f in facets else sizes[f] for f in plan.facets]
    return replace(plan, sizes=np.array([row]), inverse_n=None, labels=None, is_own=False)


def _universe_size(plan: DStudyPlan, facet: str, planned: float) -> float:
    if facet in plan.universe.fixed:
        return planned
    return plan.universe.sizes.get(facet, math.inf)


def _mask(part: Any, facets: tuple[str, ...]) -> int:
    return sum(1 << (len(facets) - 1 - j) for j, f in enumerate(facets) if f in part)


def _prices(
    cost: Cost,
    plan: DStudyPlan,
    facets: tuple[str, ...],
    sizes: Mapping[str, float],
    n_objects: Any,
    components: VarianceComponents,
) -> FloatArray:
    """Return the prices of products of free sizes, with held sizes multiplied in."""
    prices = np.zeros(1 << len(facets))
    prices[0] = cost.setup
    for price, over in cost.terms(plan.design):
        held = math.prod(sizes[f] for f in over if f in sizes and f not in facets)
        held *= _objects(over & plan.objects, plan, n_objects, components)
        prices[_mask(over, facets)] += price * held
    return prices


def _objects(
    part: frozenset[str], plan: DStudyPlan, given: Any, components: VarianceComponents
) -> float:
    """Return the number of levels of the facets of the object."""
    if given is None:
        numbers: Any = {f: components.sizes.get(f) for f in part}
    elif isinstance(given, Mapping):
        numbers = given
        strange = [f for f in given if f not in plan.objects]
        if strange:
            raise PlanError(
                f"n_objects has {strange[0]!r}, which is not part of the object of measurement "
                f"{plan.object}",
                column=strange[0],
            )
    elif plan.objects == part:
        numbers = {next(iter(part)): given} | dict.fromkeys(list(part)[1:], 1)
    else:
        numbers = {}
    product = 1.0
    for facet in sorted(part):
        number = numbers.get(facet)
        if number is None:
            raise PlanError(
                f"the cost counts levels of {facet!r}, which belongs to the object of "
                f"measurement: say how many there will be with n_objects={{{facet!r}: …}}",
                column=facet,
            )
        if not is_real(number) or not 0.0 < number < math.inf:
            raise PlanError(f"n_objects is a positive number, not {number!r}")
        product *= float(number)
    return product


def _check_unbounded(
    facets: tuple[str, ...], hi: FloatArray, error: FloatArray, prices: FloatArray, cost: Cost
) -> None:
    """Refuse a facet that lowers the error, costs nothing and has no bound."""
    for j, facet in enumerate(facets):
        over = np.array([bool(mask >> (len(facets) - 1 - j) & 1) for mask in range(len(prices))])
        if math.isinf(hi[j]) and not prices[over].any() and error[over].any():
            raise PlanError(
                f"{facet!r} costs nothing ({cost}), so that its size is unlimited: "
                f"give it a price, or a bound such as bounds={{{facet!r}: (1, 10)}}",
                column=facet,
            )

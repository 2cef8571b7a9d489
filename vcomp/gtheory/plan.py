"""The plans of a D-study: its design, its object of measurement, and the sizes of its facets.

Every D-study starts here: the arguments of ``dstudy`` are read against the design of the G-study.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.display import listed
from vcomp.exceptions import PlanError
from vcomp.formula import REPLICATE, BrennanDesign, closure, parse_design
from vcomp.gtheory.layout import Layout, layout_divisors, layout_sizes, read_layouts
from vcomp.gtheory.universe import (
    Counts,
    Universe,
    check_facets,
    check_universe,
    effective_sizes,
    grid,
    read_object,
    read_sizes,
    read_universe,
)
from vcomp.inference import VarianceComponents, object_key


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
    facets : those with a size
    inverse : exact 1/n of every component
    """
    by_facets = dict(zip(components.facets, components.names, strict=True))
    sizes: dict[str, float] = {}
    for facet in sorted(facets, key=lambda f: len(components.nested_in.get(f, ()))):
        above = components.nested_in.get(facet, frozenset())
        inner = by_facets.get(above | {facet}) or by_facets.get(above | {facet} | objects)
        outer = by_facets.get(above) or by_facets.get(above | objects)
        if inner is not None:
            # Without a component of what is above, its number is the product of its sizes.
            known_above = (
                sizes.get(f, components.sizes.get(f, math.nan)) for f in above - objects
            )
            n_above = math.prod(known_above) if outer is None else 1.0 / inverse[outer]
            effective = 1.0 / (inverse[inner] * n_above)
            if math.isnan(effective):
                continue
            known = components.sizes.get(facet, math.nan)
            # In a balanced design use the whole number, without rounding error.
            sizes[facet] = known if math.isclose(effective, known, rel_tol=1e-9) else effective
    return sizes


def inverse_universe(
    components: VarianceComponents,
    plan: DStudyPlan,
    row: int,
    inverse_n: Callable[[frozenset[str]], float],
) -> list[float]:
    """Return 1/N' of every component in a plan with levels of unequal weight.

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
            # a fixed facet within a finite one has its planned levels in each level
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
    sizes : effective ones of the facets; their product is used if no component has these facets
    facets : the set of facets
    """
    by_facets = dict(zip(components.facets, components.names, strict=True))
    closed = closure(facets, components.nested_in)
    name = by_facets.get(closed) or by_facets.get(closed | objects)
    if name is not None:
        return exact[name]
    return 1.0 / math.prod(sizes[f] for f in facets)


@dataclass(frozen=True, slots=True, eq=False)
class DStudyPlan:
    """Plans that share a design and an object of measurement and differ in sizes.

    Attributes
    ----------
    object : of measurement: a facet, or several as ``"doctor:patient"``
    design : facets and nesting, with ``replicate`` where the G-study has replicates
    facets : those with a size: all but the object's
    sizes : (m, F) a row for each plan, n' of `facets`; of a nested facet within those it is
        nested in
    objects : the object's facets, with those that they are nested in
    universe : the universe of generalization
    inverse_n : (m, k) exact 1/n of every component, where the plan is the G-study's own
        unbalanced one or a layout; else None
    inverse_universe : (m, k) exact 1/N' of every component, where `inverse_n` is given: the part
        of the component that belongs to the universe score through fixed and finite facets
    unshared : (m, k) for layouts, the part of every effect without the object that differences
        between objects contain, as these have different levels; else None
    labels : names of layouts, else None
    is_own : whether the plan is the G-study's own

    Examples
    --------
    >>> sizes = np.array([[3.0, 20.0], [1.0, 60.0]])
    >>> plan = DStudyPlan("p", parse_design("p x (a:i)"), ("a", "i"), sizes, frozenset("p"))
    >>> len(plan), plan.sizes[0]
    (2, array([ 3., 20.]))
    """

    object: str
    design: BrennanDesign
    facets: tuple[str, ...]
    sizes: FloatArray
    objects: frozenset[str]
    universe: Universe = field(default_factory=Universe)
    inverse_n: FloatArray | None = None
    inverse_universe: FloatArray | None = None
    unshared: FloatArray | None = None
    labels: tuple[str, ...] | None = None
    is_own: bool = False

    def __len__(self) -> int:
        return len(self.sizes)

    def by_other_sizes(self, facet: str) -> tuple[DStudyPlan, ...]:
        """Return the first plan for each combination of the other facets' sizes.

        Parameters
        ----------
        facet : the facet whose size is disregarded
        """
        others = [k for k, name in enumerate(self.facets) if name != facet]
        first: dict[tuple[float, ...], int] = {}
        for row, sizes in enumerate(self.sizes[:, others].tolist()):
            first.setdefault(tuple(sizes), row)
        return tuple(map(self.alone, first.values()))

    def alone(self, row: int) -> DStudyPlan:
        """Return one plan by its number.

        Parameters
        ----------
        row : its number, from 0
        """
        exact = self.inverse_universe
        return replace(
            self,
            sizes=self.sizes[[row]],
            inverse_n=None if self.inverse_n is None else self.inverse_n[[row]],
            inverse_universe=None if exact is None else exact[[row]],
            unshared=None if self.unshared is None else self.unshared[[row]],
            labels=None if self.labels is None else (self.labels[row],),
        )


def gstudy_design(components: VarianceComponents) -> BrennanDesign:
    """Return the design of the G-study that `components` come from.

    Examples
    --------
    >>> facets = (frozenset({"p"}), frozenset({"p", "i"}))
    >>> g = VarianceComponents(("p", "Residual"), facets, np.ones(2), nested_in={"i": {"p"}})
    >>> print(gstudy_design(g))
    i:p
    """
    names = components.facet_names
    above = {f: frozenset(components.nested_in.get(f, ())) for f in names}
    if REPLICATE in above:
        above[REPLICATE] = frozenset(names) - {REPLICATE}
    return BrennanDesign.of(names, above)


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The arguments that describe plans; see :func:`make_plans`, whose `n` are the sizes."""

    design: str | None = None
    object: str | Sequence[str] | None = None
    sizes: Mapping[str, Any] | None = None
    fixed: str | Sequence[str] = ()
    universe: Mapping[str, float] | None = None
    within: str | Sequence[str] = ()
    layout: Any = None

    @property
    def is_given(self) -> bool:
        """Whether any of them is given."""
        named = self.design is not None or self.object is not None
        placed = bool(self.sizes or self.fixed or self.universe or self.within)
        return named or placed or self.layout is not None

    def plans(self, components: VarianceComponents) -> DStudyPlan:
        """Return the plans of a G-study with these arguments."""
        return make_plans(
            components,
            self.design,
            self.object,
            self.sizes,
            fixed=self.fixed,
            universe=self.universe,
            within=self.within,
            layout=self.layout,
        )


def make_plans(
    components: VarianceComponents,
    design: str | None = None,
    object: str | Sequence[str] | None = None,  # noqa: A002 - the word of the field
    n: Mapping[str, Any] | None = None,
    *,
    fixed: str | Sequence[str] = (),
    universe: Mapping[str, float] | None = None,
    within: str | Sequence[str] = (),
    layout: Any = None,
) -> DStudyPlan:
    """Return the plans of a D-study.

    Plans are the Cartesian product of the sizes in `n`, in the order given. A facet without a size
    has the G-study's. Where no size is given and the design is the G-study's own, the exact
    divisors of an unbalanced G-study are used (Brennan 2001, eq. 7.28).

    Parameters
    ----------
    components : of the G-study
    design : in Brennan's notation, see :func:`~vcomp.formula.parse_design`; the G-study's if None
    object : the object of measurement: a facet, which brings those that it is nested in, or
        several (``"doctor:patient"``, a list). If None, the first facet of `design` without a
        size; without a `design` the only facet without a size, else the first of the G-study
    n : one size or several for each facet; :class:`~vcomp.gtheory.Counts` where they differ
    fixed : facets whose planned levels are the whole universe
    universe : size N' of facets with finite universes
    within : facets of the object within whose levels objects are compared
    layout : planned observations as a frame of facets, or several by name; instead of `n`

    Raises
    ------
    PlanError
        A facet is unknown, left out or without a size; a size is not a positive number, or larger
        than its universe; the object of measurement is not clear, has a size, or is a part of
        another; a layout does not fit.

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> g = from_components({"p": 2.0, "i": 1.0, "Residual": 4.0}).components
    >>> plan = make_plans(g, "p x i", n={"i": [10, 20]})
    >>> plan.object, plan.facets, plan.sizes.tolist()
    ('p', ('i',), [[10.0], [20.0]])
    """
    gstudy = gstudy_design(components)
    check_facets(n or {}, gstudy.facets)
    given = {facet: read_sizes(facet, wanted) for facet, wanted in (n or {}).items()}
    d_design = gstudy if design is None else _read(design, gstudy)
    if object is None:
        object = _guess_object(d_design, given, from_text=design is not None)  # noqa: A001
    objects, name = read_object(object, d_design, given)
    facets = tuple(f for f in d_design.facets if f not in objects)
    space = read_universe(fixed, universe, within, d_design, objects)
    if layout is not None:
        if given:
            raise PlanError("give sizes or a layout of the planned observations, not both")
        layouts = read_layouts(layout, d_design, objects)
        return _of_layouts(components, d_design, objects, name, facets, space, layouts)
    same = not given and d_design.nested_in == gstudy.nested_in
    exact = components.inverse_n.get(object_key(objects)) if same else None
    effective = own_sizes(components, objects, facets, exact) if exact else {}
    sizes = _planned_sizes(components, d_design, objects, facets, given, effective)
    check_universe(space, _most_levels(components, facets, sizes, given, d_design, same=same))
    plan = DStudyPlan(name, d_design, facets, sizes, objects, space, is_own=same)
    if exact is None:
        return plan
    own_n = partial(
        own_inverse_n, components, objects, exact, dict(zip(facets, sizes[0], strict=True))
    )
    return replace(
        plan,
        inverse_n=np.array([[exact[c] for c in components.names]]),
        inverse_universe=np.array([inverse_universe(components, plan, 0, own_n)]),
    )


def _guess_object(design: BrennanDesign, given: Mapping[str, Any], *, from_text: bool) -> str:
    named = _named(design)
    without = [f for f in named if f not in given]
    if without and (from_text or len(without) == 1 or without[0] == named[0]):
        # A facet that is nested in another is an object only if the user says so.
        outermost = [f for f in without if not design.nested_in[f]]
        return (outermost or without)[0]
    if len(named) == 1:
        raise PlanError(
            f"{named[0]!r} is the only facet and so the object of measurement, which has no "
            f"size; pass {REPLICATE}=... for the number of scores of each",
            column=named[0],
        )
    raise PlanError(f"the object of measurement is not clear among {named}; pass object=...")


# Sizes ------------------------------------------------------------------------------------------


def _planned_sizes(
    components: VarianceComponents,
    design: BrennanDesign,
    objects: frozenset[str],
    facets: tuple[str, ...],
    given: Mapping[str, tuple[float | Counts, ...]],
    effective: Mapping[str, float],
) -> FloatArray:
    """Return n' of every plan, (m, F)."""
    counted = {f: v for f, v in given.items() if any(isinstance(x, Counts) for x in v)}
    implied: dict[str, str] = {}
    for facet in counted:
        outer = _outer_facet(facet, design)
        if outer in given:
            raise PlanError(
                f"the counts of {facet!r} give the number of levels of {outer!r}; leave out "
                f"{outer}=...",
                column=facet,
            )
        if outer in implied:
            raise PlanError(
                f"counts of both {implied[outer]!r} and {facet!r} within {outer!r}: pass layout=",
                column=facet,
            )
        implied[outer] = facet
    needed = [f for f in facets if f not in given and f not in implied]
    default = {f: _gstudy_size(f, components) for f in needed if f not in effective}
    default |= effective
    rows = grid([np.arange(len(v), dtype=float) for v in given.values()]).astype(np.int64)
    sizes = np.empty((len(rows), len(facets)))
    for column, facet in enumerate(facets):
        sizes[:, column] = default.get(facet, math.nan)
    for place, (facet, values) in enumerate(given.items()):
        numbers = np.array([math.nan if isinstance(v, Counts) else v for v in values])
        sizes[:, facets.index(facet)] = numbers[rows[:, place]]
    for facet, values in counted.items():
        which = rows[:, list(given).index(facet)]
        _fill_counts(sizes, facets, facet, _outer_facet(facet, design), values, which, objects)
    return sizes


def _most_levels(
    components: VarianceComponents,
    facets: tuple[str, ...],
    sizes: FloatArray,
    given: Mapping[str, tuple[float | Counts, ...]],
    design: BrennanDesign,
    *,
    same: bool,
) -> dict[str, float]:
    """Return the largest numbers of levels of facets in any plan; effective sizes are smaller."""
    most = dict(zip(facets, sizes.max(axis=0).tolist(), strict=True))
    if same:
        most |= {f: max(n, components.sizes.get(f, n)) for f, n in most.items()}
    for facet, values in given.items():
        counts = [v.counts for v in values if isinstance(v, Counts)]
        if counts:
            most[facet] = max(map(max, counts))
            most[_outer_facet(facet, design)] = max(map(len, counts))
    return most


def _fill_counts(
    sizes: FloatArray,
    facets: tuple[str, ...],
    facet: str,
    outer: str,
    values: tuple[float | Counts, ...],
    which: LongArray,
    objects: frozenset[str],
) -> None:
    """Replace counts by effective sizes in the plans that have counts."""
    for k, value in enumerate(values):
        if not isinstance(value, Counts):
            raise PlanError(
                f"give counts of {facet!r} in every plan, or a number in every plan", column=facet
            )
        n_outer, n_inner = effective_sizes(value, outer_is_object=outer in objects)
        sizes[which == k, facets.index(facet)] = n_inner
        if outer not in objects:
            sizes[which == k, facets.index(outer)] = n_outer


def _outer_facet(facet: str, design: BrennanDesign) -> str:
    """Return the one facet in which a counted facet is directly nested."""
    above = design.nested_in[facet]
    direct = above - frozenset().union(*(design.nested_in[f] for f in above))
    if len(direct) != 1:
        where = f"is nested in {listed(sorted(direct))}" if direct else "is not nested"
        raise PlanError(
            f"counts are for a facet that is nested in one other, and {facet!r} {where} in "
            f"'{design}'; pass layout= with the planned observations",
            column=facet,
        )
    return next(iter(direct))


def _gstudy_size(facet: str, components: VarianceComponents) -> float:
    size = components.sizes.get(facet, math.nan)
    if not (math.isfinite(size) and size > 0):
        raise PlanError(
            f"the size of {facet!r} in the G-study is not known; pass {facet}=...", column=facet
        )
    return size


def _of_layouts(
    components: VarianceComponents,
    design: BrennanDesign,
    objects: frozenset[str],
    name: str,
    facets: tuple[str, ...],
    space: Universe,
    layouts: Mapping[str, Layout],
) -> DStudyPlan:
    effects = [design.closure(f) for f in components.facets]
    divisors = np.array([layout_divisors(x, effects) for x in layouts.values()])
    sizes = np.array([layout_sizes(x, facets, design) for x in layouts.values()])
    most = {
        f: max(x.most_levels(f, design.nested_in[f]) for x in layouts.values()) for f in facets
    }
    check_universe(space, most)
    plan = DStudyPlan(name, design, facets, sizes, objects, space, labels=tuple(layouts))
    unshared = np.array([[x.unshared(e) for e in effects] for x in layouts.values()])
    if space.within and unshared.any():
        raise PlanError(
            "within= compares objects with the same levels, and in the layout they differ; "
            "leave out within=, or the columns of the object if all have the same rows"
        )
    return replace(
        plan,
        inverse_n=divisors,
        inverse_universe=np.array(
            [
                inverse_universe(components, plan, row, x.inverse_n)
                for row, x in enumerate(layouts.values())
            ]
        ),
        unshared=unshared,
    )


# Reading ----------------------------------------------------------------------------------------


def _read(text: str, own: BrennanDesign) -> BrennanDesign:
    design = parse_design(text, known=own.facets)
    if REPLICATE in design.facets:
        raise PlanError(
            f"{REPLICATE!r} is nested in all other facets and needs no place in the design; "
            f"pass {REPLICATE}=... for its size"
        )
    check_facets(design.facets, own.facets)
    left_out = [f for f in own.facets if f not in design.facets and f != REPLICATE]
    if left_out:
        raise PlanError(
            f"the design '{design}' leaves out {listed(left_out)}; a design has to name all "
            f"facets of the G-study ({', '.join(_named(own))}). A facet that the test does not "
            f"vary is named with one level: {left_out[0]}=1 (and "
            f"fixed={left_out[0]!r}, if no other level is of interest)",
            column=left_out[0],
        )
    if REPLICATE not in own.facets:
        return design
    above = {**design.nested_in, REPLICATE: frozenset(design.facets)}
    return BrennanDesign.of((*design.facets, REPLICATE), above)


def _named(design: BrennanDesign) -> list[str]:
    return [f for f in design.facets if f != REPLICATE]

"""What a D-study plans: its design, its object of measurement, and the sizes of its facets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from vcomp.components import REPLICATE, VarianceComponents
from vcomp.exceptions import PlanError, did_you_mean
from vcomp.notation import Design, parse_design

__all__ = ["DStudyPlan", "gstudy_design", "make_plans", "positive_size"]


@dataclass(frozen=True, slots=True)
class DStudyPlan:
    """Plans that share a design and an object of measurement and differ in sizes.

    Attributes
    ----------
    object : the facet whose levels are to be told apart
    design : facets and nesting, with ``replicate`` where the G-study has replicates
    facets : those with a size: all but the object
    sizes : a row for each plan, n' of `facets`; of a nested facet within those it is nested in
    inverse_n : for each component the exact 1/n of an unbalanced G-study, where the plan is the
        G-study's own; else None

    Examples
    --------
    >>> plan = DStudyPlan("p", parse_design("p x (a:i)"), ("a", "i"), ((3, 20), (1, 60)))
    >>> plan.sizes[0]
    (3, 20)
    """

    object: str
    design: Design
    facets: tuple[str, ...]
    sizes: tuple[tuple[float, ...], ...]
    inverse_n: Mapping[str, float] | None = None


def gstudy_design(components: VarianceComponents) -> Design:
    """Return the design of the G-study that `components` come from.

    Examples
    --------
    >>> import numpy as np
    >>> facets = (frozenset({"p"}), frozenset({"p", "i"}))
    >>> g = VarianceComponents(("p", "Residual"), facets, np.ones(2), nested_in={"i": {"p"}})
    >>> print(gstudy_design(g))
    i:p
    """
    names = components.facet_names
    above = {f: frozenset(components.nested_in.get(f, ())) for f in names}
    if REPLICATE in above:
        above[REPLICATE] = frozenset(names) - {REPLICATE}
    return Design.of(names, above)


def make_plans(
    components: VarianceComponents,
    design: str | None = None,
    object: str | None = None,  # noqa: A002 - the word of the field
    n: Mapping[str, Any] | None = None,
) -> DStudyPlan:
    """Return the plans that the arguments ask for.

    Plans are the Cartesian product of the sizes in `n`, in the order given. A facet without a size
    takes the G-study's. Where no size is given and the design is the G-study's own, the exact
    divisors of an unbalanced G-study are used (Brennan 2001, eq. 7.28).

    Parameters
    ----------
    components : of the G-study
    design : in Brennan's notation, see :func:`~vcomp.dstudy.parse_design`; the G-study's if None
    object : the object of measurement. If None, the first facet of `design` without a size;
        without a `design` the only facet without a size, else the first facet of the G-study
    n : one size or several for each facet

    Raises
    ------
    PlanError
        A facet is unknown, left out or without a size; a size is not a positive number; the object
        of measurement cannot be told, has a size, or is nested in another facet.

    Examples
    --------
    >>> from vcomp.dstudy import from_components
    >>> g = from_components({"p": 2.0, "i": 1.0, "Residual": 4.0}).components
    >>> plan = make_plans(g, "p x i", n={"i": [10, 20]})
    >>> plan.object, plan.facets, plan.sizes
    ('p', ('i',), ((10,), (20,)))
    """
    own = gstudy_design(components)
    given = {facet: _sizes(facet, wanted) for facet, wanted in (n or {}).items()}
    _check_known(given, own.facets)
    d_design = own if design is None else _read(design, own)
    if object is None:
        object = _guess_object(d_design, given, from_text=design is not None)  # noqa: A001
    _check_object(object, d_design, given)
    facets = tuple(f for f in d_design.facets if f != object)
    default = {f: _gstudy_size(f, components) for f in facets if f not in given}
    same = not given and d_design.nested_in == own.nested_in
    if same:
        default |= _effective_sizes(components, object, facets)
    return DStudyPlan(
        object=object,
        design=d_design,
        facets=facets,
        sizes=tuple(
            tuple({**default, **row}[f] for f in facets)
            for row in (
                dict(zip(given, r, strict=True)) for r in itertools.product(*given.values())
            )
        ),
        inverse_n=components.inverse_n.get(object) if same else None,
    )


def _read(text: str, own: Design) -> Design:
    design = parse_design(text)
    if REPLICATE in design.facets:
        raise PlanError(
            f"{REPLICATE!r} is nested in all other facets and needs no place in the design; "
            f"pass {REPLICATE}=... for its size"
        )
    _check_known(design.facets, own.facets)
    left_out = [f for f in own.facets if f not in design.facets and f != REPLICATE]
    if left_out:
        raise PlanError(
            f"the design '{design}' leaves out {_listed(left_out)}; a design has to name all "
            f"facets of the G-study ({', '.join(_named(own))}): "
            "fixing or dropping facets is not offered yet"
        )
    if REPLICATE not in own.facets:
        return design
    above = {**design.nested_in, REPLICATE: frozenset(design.facets)}
    return Design.of((*design.facets, REPLICATE), above)


def _guess_object(design: Design, given: Mapping[str, Any], *, from_text: bool) -> str:
    named = _named(design)
    without = [f for f in named if f not in given]
    if without and (from_text or len(without) == 1 or without[0] == named[0]):
        return without[0]
    if len(named) == 1:
        raise PlanError(
            f"{named[0]!r} is the only facet and so the object of measurement, which takes no "
            f"size; pass {REPLICATE}=... for the number of scores of each"
        )
    raise PlanError(f"cannot tell the object of measurement among {named}; pass object=...")


def _check_object(name: str, design: Design, given: Mapping[str, Any]) -> None:
    _check_known([name], design.facets)
    if name == REPLICATE:
        raise PlanError(f"replicates cannot be the object; choose one of {_named(design)}")
    if name in given:
        raise PlanError(
            f"{name!r} is the object of measurement and takes no size; leave out {name}=... "
            "or pass another object=..."
        )
    above = [f for f in design.facets if f in design.nested_in[name]]
    if above:
        raise PlanError(
            f"{name!r} is nested in {_listed(above)} and cannot be the object of measurement in "
            f"'{design}'; choose the outer facet with object={above[-1]!r}, or make a G-study "
            f"within one level of {above[-1]}"
        )


def _check_known(names: Iterable[str], known: tuple[str, ...]) -> None:
    for name in names:
        if name in known:
            continue
        hint = did_you_mean(name, known)
        parts = [p for p in str(name).split("x") if p]
        if len(parts) > 1 and all(p in known for p in parts):
            hint = f" (with spaces around x: {' x '.join(parts)!r})"
        raise PlanError(f"unknown facet {name!r}{hint}; the G-study has {', '.join(known)}")


def _gstudy_size(facet: str, components: VarianceComponents) -> float:
    size = components.sizes.get(facet, math.nan)
    if not (math.isfinite(size) and size > 0):
        raise PlanError(f"the size of {facet!r} in the G-study is not known; pass {facet}=...")
    return size


def _effective_sizes(
    components: VarianceComponents, object_: str, facets: tuple[str, ...]
) -> dict[str, float]:
    """Return the exact effective size of each facet in the G-study's own design, where it has one.

    It is the ratio of the effective numbers of two components that differ by the facet alone.
    """
    inverse = components.inverse_n.get(object_, {})
    by_facets = dict(zip(components.facets, components.names, strict=True))
    sizes = {}
    for facet in facets if inverse else ():
        above = components.nested_in.get(facet, frozenset())
        inner = by_facets.get(above | {facet}) or by_facets.get(above | {facet, object_})
        outer = by_facets.get(above) or by_facets.get(above | {object_})
        if inner is not None and (outer is not None or not above - {object_}):
            effective = (inverse[outer] if outer is not None else 1.0) / inverse[inner]
            known = components.sizes.get(facet, math.nan)
            # Of a balanced design the whole number, not one that rounding has moved.
            sizes[facet] = known if math.isclose(effective, known, rel_tol=1e-9) else effective
    return sizes


def _sizes(facet: str, wanted: Any) -> tuple[float, ...]:
    if isinstance(wanted, Iterable) and not isinstance(wanted, (str, bytes, Mapping)):
        # a zero-dimensional array is iterable by type only
        values = [wanted[()]] if getattr(wanted, "ndim", 1) == 0 else list(wanted)  # type: ignore[index]
    else:
        values = [wanted]
    if not values:
        raise PlanError(f"no size is given for {facet!r}: its list is empty")
    return tuple(positive_size(facet, value) for value in values)


def positive_size(facet: str, value: Any) -> float:
    """Return `value` as the size of `facet`: an int, or a float for an effective size.

    Raises
    ------
    PlanError
        It is not a positive number.

    Examples
    --------
    >>> positive_size("topic", 50)
    50
    """
    # Python's bool is a number, numpy's is not
    if isinstance(value, Real) and not isinstance(value, bool):
        size = float(value)
        if math.isfinite(size) and size > 0:
            return int(value) if isinstance(value, Integral) else size
    raise PlanError(f"the size of {facet!r} must be a positive number, not {value!r}")


def _named(design: Design) -> list[str]:
    return [f for f in design.facets if f != REPLICATE]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

"""Sums of components with standard errors and intervals, for the presets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import PlanError, did_you_mean, is_real
from vcomp.formula import REPLICATE, RESIDUAL, in_formula, refuse, traits_of
from vcomp.gtheory import PublishedComponents
from vcomp.inference import Projected, Quantities, VarianceComponents
from vcomp.inference.intervals import FromComponents, IntervalSource
from vcomp.model import VarianceComponentsResults, record_of


@dataclass(frozen=True, slots=True, eq=False)
class SummedComponents:
    """Quantities with standard errors and intervals.

    Attributes
    ----------
    values, se, low, high : (m,) nan where there is none
    interval_method : how intervals were made, in words
    notes : sentences on these quantities
    replaced : (m,) whether the interval is that of modified large samples, as Satterthwaite's has
        no degrees of freedom
    """

    values: FloatArray
    se: FloatArray
    low: FloatArray
    high: FloatArray
    interval_method: str
    notes: tuple[str, ...]
    replaced: BoolArray


def known_of(
    components: VarianceComponents,
    quantities: Quantities,
    source: IntervalSource,
    negative: Projected,
    alpha: float,
) -> SummedComponents:
    """Return quantities with errors and intervals; those of held components only have none.

    Satterthwaite's interval of an estimate with next to no degrees of freedom, or of zero, gives
    way to that of modified large samples.

    Parameters
    ----------
    components : of the fit
    quantities : m of one form
    source : of the intervals
    negative : how negative estimates are treated, ``"zero"`` or ``"keep"``
    alpha : intervals have confidence 1 − alpha
    """
    local = FromComponents.beside(source, components, negative)
    ends = source.limits(quantities, alpha)
    replaced = np.zeros(len(quantities), dtype=bool)
    if source.interval == "satterthwaite" and local.squares is not None:
        other = replace(local, interval="mls").limits(quantities, alpha)
        replaced = (np.isnan(ends.low) | np.isinf(ends.high)) & np.isfinite(other.low)
        low, high = (
            np.where(replaced, b, a) for a, b in ((ends.low, other.low), (ends.high, other.high))
        )
        ends = replace(ends, low=low, high=high)
    held = np.isin(np.array(components.names, dtype=object), list(components.held))
    only = quantities.used.any(axis=1) & ~(quantities.used & ~held).any(axis=1)
    replaced &= ~only
    se, low, high = (
        np.where(only, np.nan, x) for x in (local.standard_errors(quantities), ends.low, ends.high)
    )
    notes = [f"Intervals: {note}." for note in ends.notes]
    if only.any():
        notes.append("Sums of held components only have no standard error, as these are given.")
    zeroed = [f"σ²({n})" for n in local.used.zeroed]
    if zeroed:
        notes.append(f"{', '.join(zeroed)} below zero replaced by 0.")
    values, how = local.values(quantities), ends.interval_method
    return SummedComponents(values, se, low, high, how, tuple(notes), replaced)


def term_mask(components: VarianceComponents, chosen: Iterable[str]) -> FloatArray:
    """Return (k,) weights: 1 for the components of these names, else 0."""
    names = set(chosen)
    return np.array([float(n in names) for n in components.names])


def check_facet(role: str, name: object, components: VarianceComponents) -> str:
    """Return the name of a facet of the fit.

    Raises
    ------
    PlanError
        If there is no such facet among those of the random part.
    """
    known = [f for f in components.facet_names if f != REPLICATE]
    if name not in known:
        written = in_formula(str(name))
        raise PlanError(
            f"{role}={name!r} is not a facet of the random part{did_you_mean(name, known)}; "
            f"facets are {', '.join(known)}. A facet enters by a term (1|{written}), or by the "
            "name of a published component",
            column=name,
        )
    return str(name)


def positive_number(name: str, value: Any, what: str) -> float:
    """Return a number above 0.

    Raises
    ------
    PlanError
        If it is not a number above 0.
    """
    if is_real(value) and math.isfinite(value):
        number = float(value)
        if number > 0.0:
            return number
    raise PlanError(f"{name}, {what}, must be a number above 0, not {value!r}")


def held_in_residual(res: VarianceComponentsResults | PublishedComponents) -> str | None:
    """Return a sentence on effects that the residual holds in addition to error, or None."""
    if isinstance(res, PublishedComponents):
        facets = res.components.facet_names  # the residual has them all
        replicated = REPLICATE in facets
        effects = [] if replicated else [":".join(facets)]
    else:
        replicated = res.design.replicated
        effects = list(res.design.terms[RESIDUAL][:-1])
    if not effects:
        return None
    which = effects[0] if len(effects) == 1 else f"{', '.join(effects[:-1])} and {effects[-1]}"
    if replicated:
        term = f"(1|{in_formula(effects[-1])})"
        return f"Repeatability holds {which}, as the formula has no term {term}."
    return (
        f"Repeatability holds {which}, as every cell has a single score: measure more than once "
        "in the same conditions to separate them."
    )


def components_of(res: object, function: str) -> VarianceComponents:
    """Return the components of a fit, or published ones.

    Raises
    ------
    PlanError
        If it is another object.
    EstimationError
        If the fit has random slopes.
    """
    if isinstance(res, PublishedComponents):
        return res.components
    if isinstance(res, VarianceComponentsResults):
        components = record_of(res).components
        has, out = traits_of(components), "leave residual= out"
        refuse(f"{function}()", has, slopes="fit intercepts alone", residuals=out)
        return components
    raise PlanError(
        f"{function}() needs a result, such as vcomp.fit() returns, or published components of "
        f"vcomp.from_components() or vcomp.from_mean_squares(), not a {type(res).__name__}"
    )

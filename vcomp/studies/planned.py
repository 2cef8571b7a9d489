"""What studies ask of the plan of a D-study, and of the fits before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcomp.exceptions import EstimationError
from vcomp.formula import REPLICATE
from vcomp.gtheory import CoefficientName, DStudy, check_requirement

__all__ = [
    "COEFFICIENTS",
    "options_of_fit",
    "required_facet",
]


COEFFICIENTS: tuple[CoefficientName, ...] = ("Erho2", "Phi")


def required_facet(study: DStudy, target: float, facet: str | None) -> str | None:
    """Return the facet whose size is required; None where several have one and none is given.

    Parameters
    ----------
    study : whose plan has the facets
    target : of the coefficients
    facet : as it was given

    Raises
    ------
    PlanError
        If the target or the facet is not one that can be.

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=10)
    >>> required_facet(study, 0.95, None)
    'i'
    """
    plan = study.plan
    free = [f for f in plan.facets if f not in plan.universe.fixed]
    named = [f for f in free if f != REPLICATE] or free
    if facet is None and not named:
        return None
    found = check_requirement(plan, target, COEFFICIENTS[0], facet or named[0])
    return found if facet is not None or len(named) == 1 else None


def options_of_fit(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return further arguments of the fits.

    Parameters
    ----------
    given : by name, or None

    Raises
    ------
    EstimationError
        If it is no mapping.

    Examples
    --------
    >>> options_of_fit({"max_iter": 50})
    {'max_iter': 50}
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise EstimationError(
            "options is a mapping of arguments of fit(), such as {'max_iter': 50}, not "
            f"{given!r}"
        )
    return dict(given)

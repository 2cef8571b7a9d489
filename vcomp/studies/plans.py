"""What studies ask of the plan of a D-study."""

from __future__ import annotations

from vcomp.components import REPLICATE
from vcomp.dstudy import DStudy
from vcomp.dstudy.requirement import check_requirement

__all__ = ["COEFFICIENTS", "required_facet"]

COEFFICIENTS = ("Erho2", "Phi")


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
    >>> from vcomp.dstudy import from_components
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

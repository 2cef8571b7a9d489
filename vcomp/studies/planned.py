"""What studies share: the record of a comparison, and reading of plans and options of fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vcomp.exceptions import EstimationError, PlanError
from vcomp.formula import REPLICATE
from vcomp.gtheory import CoefficientName, DStudy, check_requirement
from vcomp.model import VarianceComponentsResults

__all__ = [
    "COEFFICIENTS",
    "ComparisonRecord",
    "options_of_fit",
    "planned",
    "required_facet",
]


COEFFICIENTS: tuple[CoefficientName, ...] = ("Erho2", "Phi")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ComparisonRecord:
    """The fits and D-studies of several measures, from which tables and differences are made.

    Attributes
    ----------
    results : the fit of each measure, by name
    studies : its D-study
    labels : the columns that distinguish it from others, empty where it has its name only
    failures : measures that could not be fitted, with the reason
    target : of the coefficients in required sizes
    facet : whose size is required, as it was given
    alpha : intervals have confidence 1 − alpha
    """

    results: Mapping[str, VarianceComponentsResults]
    studies: Mapping[str, DStudy]
    labels: Mapping[str, Mapping[str, Any]]
    failures: Mapping[str, str]
    target: float
    facet: str | None
    alpha: float


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


def planned(
    res: VarianceComponentsResults, dstudy: Mapping[str, Any] | None, alpha: float
) -> DStudy:
    """Return the D-study of one plan.

    Raises
    ------
    PlanError
        If it cannot be, has several plans, or its arguments are not a mapping.
    """
    if dstudy is not None and not isinstance(dstudy, Mapping):
        raise PlanError(
            f"dstudy is a mapping of arguments of res.dstudy(), such as {{'topic': 50}}, not "
            f"{dstudy!r}"
        )
    study = res.dstudy(**{"alpha": alpha, **(dstudy or {})})
    if len(study.plan) != 1:
        raise PlanError(
            f"the coefficients of subsets are those of one plan, and dstudy= has "
            f"{len(study.plan)}; with_plan() gives those of others without fitting again"
        )
    return study

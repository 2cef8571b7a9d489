"""The estimators by name: ``get_estimator`` finds the class for ``method="reml"`` and the like.

A new estimator needs an entry in ``MethodName`` and ``_class_of``.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, Protocol, TypeAlias, get_args

from vcomp.estimators import likelihood, quadratic
from vcomp.estimators.estimate import Estimate, Points
from vcomp.exceptions import EstimationError
from vcomp.statistics import Statistics


class Estimator(Protocol):
    """An estimator of components; its options are its fields."""

    name: Any

    def estimate(self, stats: Statistics, names: tuple[str, ...]) -> Estimate:
        """Return components and fixed effects with standard errors, from statistics alone."""


class ClosedForm(Estimator, Protocol):
    """An estimator whose point estimates cost much less than its standard errors."""

    def prepared(self, stats: Statistics, names: tuple[str, ...]) -> Points:
        """Return the point estimates of responses of these rows, as a function of them.

        What does not depend on the response is computed once.
        """


MethodName: TypeAlias = Literal["reml", "ml", "anova", "type1", "henderson3", "minque"]

METHODS: tuple[MethodName, ...] = get_args(MethodName)


def _class_of(method: str) -> Any:
    """Return the class of an estimator, whose file is imported when it is used."""
    match method:
        case "reml":
            return likelihood.REML
        case "ml":
            return likelihood.ML
        case "anova":
            return quadratic.ANOVA
        case "type1":
            return quadratic.Type1
        case "henderson3":
            return quadratic.Henderson3
    return quadratic.MINQUE


def get_estimator(method: str, **options: Any) -> Estimator:
    """Return the estimator called `method`, with its options.

    Raises
    ------
    EstimationError
        If the method is not known, or does not have one of the options.
    """
    name = str(method).lower()
    if name not in METHODS:
        raise EstimationError(
            f"method={method!r} is not known; the methods are {', '.join(map(repr, METHODS))}"
        )
    known = _class_of(name)
    names = [f.name for f in fields(known)]
    for option in options:
        if option not in names:
            allowed = f"takes {', '.join(names)}" if names else "takes no options"
            raise EstimationError(f"method {method!r} {allowed}, not {option!r}")
    estimator: Estimator = known(**options)
    return estimator

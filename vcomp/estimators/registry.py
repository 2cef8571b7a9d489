"""The estimators by name: ``get_estimator`` finds the class for ``method="reml"`` and the like.

A new estimator needs an entry in ``METHODS`` and ``MethodName``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal, Protocol, TypeAlias

from vcomp.estimators.estimate import Estimate, PointEstimate
from vcomp.estimators.likelihood import ML, REML
from vcomp.estimators.quadratic import ANOVA, MINQUE, Henderson3, Type1
from vcomp.exceptions import EstimationError
from vcomp.statistics import Statistics


class Estimator(Protocol):
    """An estimator of components; its options are its fields."""

    name: Any

    def estimate(self, stats: Statistics, names: tuple[str, ...]) -> Estimate:
        """Return components and fixed effects with standard errors, from statistics alone."""


class ClosedForm(Estimator, Protocol):
    """An estimator whose point estimates cost much less than its standard errors."""

    def points(self, stats: Sequence[Statistics], names: tuple[str, ...]) -> list[PointEstimate]:
        """Return components and fixed effects of responses of the same rows, no standard errors.

        What does not depend on the response is computed once.
        """


MethodName: TypeAlias = Literal["reml", "ml", "anova", "type1", "henderson3", "minque"]

METHODS: dict[str, Any] = {
    "reml": REML,
    "ml": ML,
    "anova": ANOVA,
    "type1": Type1,
    "henderson3": Henderson3,
    "minque": MINQUE,
}


def get_estimator(method: str, **options: Any) -> Estimator:
    """Return the estimator called `method`, with its options.

    Raises
    ------
    EstimationError
        If the method is not known, or does not have one of the options.
    """
    known = METHODS.get(str(method).lower())
    if known is None:
        raise EstimationError(
            f"method={method!r} is not known; the methods are {', '.join(map(repr, METHODS))}"
        )
    names = [f.name for f in fields(known)]
    for option in options:
        if option not in names:
            allowed = f"takes {', '.join(names)}" if names else "takes no options"
            raise EstimationError(f"method {method!r} {allowed}, not {option!r}")
    estimator: Estimator = known(**options)
    return estimator

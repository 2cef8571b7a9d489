"""The estimators by name: ``get_estimator`` returns that of a method such as ``"reml"``.

A new estimator needs an entry in ``MethodName`` and ``_CLASSES``.
"""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Protocol, TypeAlias, cast, get_args

from vcomp._plugins import plugin, plugin_names, refused
from vcomp.estimators import likelihood, quadratic
from vcomp.estimators.estimate import Estimate, Points
from vcomp.estimators.options import refuse_foreign
from vcomp.exceptions import EstimationError, did_you_mean
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


_CLASSES: dict[str, tuple[Any, str]] = {
    "reml": (likelihood, "REML"),
    "ml": (likelihood, "ML"),
    "anova": (quadratic, "ANOVA"),
    "type1": (quadratic, "Type1"),
    "henderson3": (quadratic, "Henderson3"),
    "minque": (quadratic, "MINQUE"),
}
"""Room and class of each method; the file of a class is imported when it is used."""

_OPTIMISER = "it is an optimiser of other libraries, and none is chosen here: leave method= out"

_FOREIGN = {
    "type2": "sums of squares of Type II are not available; 'henderson3' adjusts each term for "
    "the others, 'type1' for those before it",
    "type3": "'henderson3' adjusts each term for the others, as sums of squares of Type III do",
    "mivque0": "it is 'minque' with prior={…: 0} for each term and 1 for the Residual",
    "mivque": "it is 'minque', with prior components by prior=",
    "mle": "it is 'ml'",
    "henderson1": "it is 'anova'",
    "mom": "the method of moments is 'anova'",
    "bayes": "there are no priors; 'reml' is the likelihood with the least bias",
    **dict.fromkeys(("bfgs", "lbfgs", "cg", "powell", "nm", "newton", "bobyqa"), _OPTIMISER),
}
"""Advice for the methods of other libraries."""


def get_estimator(method: str, **options: Any) -> Estimator:
    """Return the estimator called `method`, with its options.

    Raises
    ------
    EstimationError
        If the method is not known, or does not have one of the options.
    """
    refuse_foreign(options)
    name = str(method).lower()
    known = getattr(*_CLASSES[name]) if name in METHODS else plugin("estimators", str(method))
    if known is None:
        methods = [*METHODS, *plugin_names("estimators")]
        listed = ", ".join(map(repr, methods))
        advice = next(
            (_FOREIGN[word] for word in re.findall(r"\w+", name) if word in _FOREIGN),
            f"the methods are {listed}{did_you_mean(name, methods)}",
        )
        raise EstimationError(f"method={method!r} is not known; {advice}")
    is_class = isinstance(known, type) and is_dataclass(known)
    if not (is_class and callable(getattr(known, "estimate", None))):
        raise refused("estimators", str(method), "a dataclass with the method estimate")
    names = [f.name for f in fields(known)]
    for option in options:
        if option not in names:
            allowed = f"takes {', '.join(names)}" if names else "takes no options"
            hint = did_you_mean(option, names)
            raise EstimationError(f"method {method!r} {allowed}, not {option!r}{hint}")
    return cast("Estimator", known(**options))

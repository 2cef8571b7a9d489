"""The margin of each system's scores: one family for all, or the best for each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import DataError, EstimationError, PlanError
from vcomp.simulate.continuous import (
    beta_kernel_margin,
    beta_margin,
    truncated_kernel_margin,
    truncated_normal_margin,
)
from vcomp.simulate.discrete import (
    beta_binomial_margin,
    discrete_kernel_margin,
    places_on,
    selected_width,
)
from vcomp.simulate.margin import Margin

__all__ = ["CONTINUOUS", "DISCRETE", "EFFECTS", "FAMILIES", "score_margin"]

EFFECTS = ("kernel", "normal")
"""Margins of residuals, which Urbano (2016) adds to effects of systems and topics."""

CONTINUOUS: dict[str, Callable[[FloatArray], Margin]] = {
    "truncated_normal": truncated_normal_margin,
    "beta": beta_margin,
    "truncated_kernel": truncated_kernel_margin,
    "beta_kernel": beta_kernel_margin,
}
"""Margins of scores anywhere between 0 and 1."""

DISCRETE: dict[str, Callable[[LongArray, FloatArray], Margin]] = {
    "beta_binomial": beta_binomial_margin,
    "discrete_kernel": discrete_kernel_margin,
}
"""Margins of scores that only take the values of a support."""

FAMILIES = (*EFFECTS, *CONTINUOUS, *DISCRETE, "auto")

_WIDER = (2.0, 5.0, 10.0)
"""How many times wider kernels are tried as well when the best is asked for; as in simIReff."""


def score_margin(x: FloatArray, family: str, support: FloatArray | None, system: str) -> Margin:
    """Fit the margin of one system's scores.

    Parameters
    ----------
    x : (n,) scores between 0 and 1
    family : a continuous or discrete family; or ``"auto"``, of all that can be fitted that with
        the smallest AIC: the discrete ones if there is a support, else the continuous ones
    support : possible scores, for discrete families
    system : its name, for messages

    Raises
    ------
    DataError
        If a score is not in the support, or all scores are the same.
    PlanError
        If a discrete family has no support, or a continuous one has one.
    EstimationError
        If no family can be fitted.
    """
    if float(np.ptp(x)) == 0.0:
        raise DataError(
            f"system {system!r} scores {x[0]:g} on every topic, so that its scores have no "
            "distribution to draw from; leave it out, or use margins='kernel' or 'normal'"
        )
    if support is None:
        if family in DISCRETE:
            raise PlanError(f"margins={family!r} needs support=, the scores that are possible")
        return _best(system, [f for name, f in CONTINUOUS.items() if family in (name, "auto")], x)
    if family in CONTINUOUS:
        raise PlanError(
            f"margins={family!r} gives any score between 0 and 1, not only those of support=; "
            "use 'beta_binomial', 'discrete_kernel' or 'auto'"
        )
    places = places_on(support, x)
    if (places < 0).any():
        raise DataError(
            f"system {system!r} has the score {x[int((places < 0).argmax())]:g}, which support= "
            "does not have"
        )
    if family != "auto":
        return _best(system, [_on(DISCRETE[family], support)], places)
    width = selected_width(places, support.size)
    ways = [_on(beta_binomial_margin, support)]
    ways += [_on_wider(support, wider, width) for wider in (1.0, *_WIDER)]
    return _best(system, ways, places)


def _on(fit: Callable[[LongArray, FloatArray], Margin], support: FloatArray) -> _Fit:
    return lambda places: fit(places, support)


def _on_wider(support: FloatArray, wider: float, width: float) -> _Fit:
    return lambda places: discrete_kernel_margin(places, support, wider, width)


_Fit = Callable[..., Margin]


def _best(system: str, ways: list[_Fit], x: FloatArray | LongArray) -> Margin:
    """Return the margin with the smallest AIC of those that can be fitted."""
    fitted, reasons = [], []
    for fit in ways:
        try:
            fitted.append(fit(x))
        except EstimationError as error:
            reasons.append(str(error))
    if not fitted:
        raise EstimationError(f"system {system!r}: {'; '.join(reasons)}")
    return min(fitted, key=lambda margin: margin.aic)

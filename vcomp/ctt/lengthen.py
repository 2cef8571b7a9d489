"""Longer and shorter tests: the Spearman-Brown formula and its inverse."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

from vcomp import display
from vcomp.exceptions import PlanError

__all__ = ["spearman_brown", "spearman_brown_factor"]


def spearman_brown(reliability: Any, factor: float = 2.0) -> Any:
    """Return the reliability of a test that is `factor` times as long.

        ρ' = m ρ / (1 + (m − 1) ρ)

    It is what a D-study does with one facet: n' = m n items of the same kind.

    Parameters
    ----------
    reliability : ρ, a number or an array of them, at most 1; of two halves their correlation
    factor : m, how many times as long, above 0; 2 makes a test of two halves

    Returns
    -------
    float, or an array of the shape of `reliability`

    Raises
    ------
    PlanError
        If a reliability is above 1 or so negative that no longer test has one (1 + (m − 1)ρ is
        not positive), or the factor is not a positive number.

    See Also
    --------
    spearman_brown_factor : how much longer a test has to be

    References
    ----------
    Spearman, C. (1910). Correlation calculated from faulty data. *British Journal of Psychology*,
    3, 271-295; Brown, W. (1910), pp. 296-322.

    Examples
    --------
    >>> round(spearman_brown(0.7), 4)
    0.8235
    >>> round(spearman_brown(0.9, factor=0.5), 4)
    0.8182
    """
    m = _positive(factor, "factor")
    rho = _reliability(reliability)
    below = 1.0 + (m - 1.0) * rho
    if np.any(below <= 0.0):
        raise PlanError(
            f"a reliability of {display.number(float(np.min(rho)))} is too negative for a test "
            f"{display.number(m)} times as long: 1 + (factor − 1) reliability is not above 0"
        )
    longer = m * rho / below
    return float(longer) if longer.ndim == 0 else longer


def spearman_brown_factor(reliability: float, target: float) -> float:
    """Return how many times as long a test has to be for a reliability of `target`.

        m = ρ' (1 − ρ) / (ρ (1 − ρ'))

    Parameters
    ----------
    reliability : ρ of the test as it is, above 0 and below 1
    target : ρ', above 0 and below 1

    Returns
    -------
    float
        Times the number of items, rounded up, it is the number needed.

    Raises
    ------
    PlanError
        If one of them is not between 0 and 1.

    References
    ----------
    Lord, F. M. and Novick, M. R. (1968). *Statistical theories of mental test scores*, eq. 5.10.1.

    Examples
    --------
    >>> round(spearman_brown_factor(0.8, 0.9), 4)
    2.25
    """
    for name, value in (("reliability", reliability), ("target", target)):
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not 0.0 < value < 1.0:
            raise PlanError(f"{name} lies between 0 and 1, not at {value!r}")
    odds = [float(x) / (1.0 - float(x)) for x in (target, reliability)]
    return odds[0] / odds[1]


def _positive(value: Any, name: str) -> float:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0.0:
        raise PlanError(f"{name} is a number above 0, not {value!r}")
    return float(value)


def _reliability(value: Any) -> Any:
    try:
        rho = np.asarray(value)
        if rho.dtype.kind not in "iuf":
            raise TypeError
    except (TypeError, ValueError):
        raise PlanError(f"reliability is a number, not {value!r}") from None
    rho = rho.astype(float)
    if np.any(rho > 1.0) or np.isinf(rho).any():
        raise PlanError(f"reliability is at most 1, not {display.number(float(np.max(rho)))}")
    return rho

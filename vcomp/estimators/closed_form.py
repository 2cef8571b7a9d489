"""What the estimators without a likelihood share: a covariance, fixed effects and a sentence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.choose import choose_engine
from vcomp.estimators.estimate import Estimate, Point
from vcomp.estimators.fixed_errors import FixedErrors, errors_of_fixed
from vcomp.estimators.quadratic_forms import TooLargeError
from vcomp.estimators.reductions import Reductions
from vcomp.estimators.refit import below_zero
from vcomp.exceptions import EstimationError
from vcomp.linalg.dense import covariance_of_solution, solve, solve_positive
from vcomp.statistics import Statistics

__all__ = [
    "estimate_from",
    "fixed_effects",
    "left_after_fixed",
    "negative_components",
    "no_variance",
    "point_from",
    "point_of",
]

_EXACT_FIT = 1e-13
"""y'Qy below this share of y'y is rounding: the fixed part reproduces the response."""

_NO_RESIDUAL = 1e-12
"""A residual component below this share of the largest is rounding: V cannot be inverted."""


def estimate_from(
    method: str, stats: Statistics, reductions: Reductions, names: tuple[str, ...]
) -> Estimate:
    """Return the components at which the sums of squares have their expectations.

    Parameters
    ----------
    method : name of the method
    stats : sums of the data
    reductions : sums of squares, none of them without degrees of freedom
    names : components, the residual last
    """
    nothing = no_variance(method, stats, names)
    if nothing is not None:
        return nothing
    values = solve(reductions.coefficients, reductions.sum_sq)
    covariance, reason = _covariance(reductions, values)
    fixed = fixed_effects(stats, values)
    return Estimate(
        method=method,
        names=names,
        values=values,
        covariances={"sampling": covariance},
        beta=fixed.beta,
        cov_beta=fixed.cov_beta,
        llf=np.nan,
        converged=True,
        status=f"Closed form{negative_components(names, values)}.{reason}{fixed.doubt}",
        engine="closed form: sums of squares and their expectations",
        fixed_errors=fixed.errors,
    )


def point_from(stats: Statistics, reductions: Reductions) -> Point:
    """Return the same components with fixed effects, without the work of standard errors.

    Parameters
    ----------
    stats, reductions : as for :func:`estimate_from`
    """
    if _is_without_variance(stats):
        return Point(np.zeros(len(stats.sizes) + 1), solve_positive(stats.XX, stats.Xy))
    return point_of(stats, solve(reductions.coefficients, reductions.sum_sq))


def point_of(stats: Statistics, values: FloatArray) -> Point:
    """Return components with the fixed effects at them."""
    return Point(values, fixed_effects(stats, values, slopes=False).beta)


def no_variance(method: str, stats: Statistics, names: tuple[str, ...]) -> Estimate | None:
    """Return zeros if the fixed part reproduces the response, a constant above all; else None."""
    if not _is_without_variance(stats):
        return None
    k, p = len(names), stats.Xy.size
    what = "The response is constant" if stats.yy == 0.0 else "The fixed part fits exactly"
    return Estimate(
        method=method,
        names=names,
        values=np.zeros(k),
        covariances={"sampling": np.zeros((k, k))},
        beta=solve_positive(stats.XX, stats.Xy),
        cov_beta=np.zeros((p, p)),
        llf=np.nan,
        converged=True,
        status=f"{what}: all components are 0.",
        engine="none: there is nothing to estimate",
    )


def _is_without_variance(stats: Statistics) -> bool:
    return not (stats.yy > 0.0 and left_after_fixed(stats) > _EXACT_FIT * stats.yy)


def left_after_fixed(stats: Statistics) -> float:
    """Return the sum of squares that ordinary least squares on X leaves."""
    return float(stats.yy - solve_positive(stats.XX, stats.Xy) @ stats.Xy)


def negative_components(names: tuple[str, ...], values: FloatArray) -> str:
    """Return half a sentence on the components below zero, empty if there are none."""
    below = below_zero(names, values)
    return f"; {below} and kept as estimated" if below else ""


@dataclass(frozen=True, slots=True)
class FixedPart:
    """The fixed effects of a closed form.

    Attributes
    ----------
    beta, cov_beta : nan, or of ordinary least squares and nan, where they cannot be had
    doubt : a sentence on that, empty if all is there
    errors : how their covariance moves with the components, None where it is not known
    """

    beta: FloatArray
    cov_beta: FloatArray
    doubt: str = ""
    errors: FixedErrors | None = None


def fixed_effects(stats: Statistics, values: FloatArray, *, slopes: bool = True) -> FixedPart:
    """Return generalised least squares at the components, negative ones as zero.

    Parameters
    ----------
    stats : sums of the data
    values : (k + 1,) components
    slopes : whether to find how the covariance of the effects moves with the components
    """
    p = stats.Xy.size
    nothing = np.full((p, p), np.nan)
    v = np.maximum(values, 0.0)
    if p == 0:
        return FixedPart(np.zeros(0), nothing)
    if v[-1] > _NO_RESIDUAL * v.max():
        try:
            engine = choose_engine(stats, reml=True)
            beta, cov_beta = engine.fixed_effects(v)
            return FixedPart(beta, cov_beta, errors=errors_of_fixed(engine, v) if slopes else None)
        except EstimationError:
            return FixedPart(
                np.full(p, np.nan),
                nothing,
                " No fixed effects: generalised least squares needs more memory than is free.",
            )
        except np.linalg.LinAlgError:
            pass
    return FixedPart(
        solve_positive(stats.XX, stats.Xy),
        nothing,
        " Fixed effects by ordinary least squares, without standard errors: no residual variance "
        "is left.",
    )


def _covariance(reductions: Reductions, values: FloatArray) -> tuple[FloatArray, str]:
    """Return the sampling covariance at the estimates, negative ones as they are."""
    try:
        quadratic = reductions.covariance(values)
    except TooLargeError:
        nothing = np.full((values.size, values.size), np.nan)
        return nothing, (
            " No standard errors: the covariance of its sums of squares takes too much memory or "
            "time."
        )
    return covariance_of_solution(reductions.coefficients, quadratic), ""

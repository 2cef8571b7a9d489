"""Negative estimates: the words on them, and ``negative="refit"``, which drops their terms.

See docs/explanation/mathematics.md, section 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, Protocol, TypeAlias, TypeVar, get_args

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.estimators.estimate import Estimate
from vcomp.exceptions import EstimationError
from vcomp.formula import RESIDUAL
from vcomp.numerics import solve_positive

Negative: TypeAlias = Literal["keep", "refit"]


class _HasValues(Protocol):
    @property
    def values(self) -> FloatArray: ...


_Found = TypeVar("_Found", bound=_HasValues)


def below_zero(names: Sequence[str], values: FloatArray) -> str:
    """Return half a sentence that names the components estimated below zero, empty if none is.

    Examples
    --------
    >>> below_zero(["a", "b"], np.array([-0.1, 2.0]))
    'σ²(a) is estimated below zero'
    """
    negative = [f"σ²({name})" for name, value in zip(names, values, strict=True) if value < 0.0]
    verb = "is" if len(negative) == 1 else "are"
    return f"{', '.join(negative)} {verb} estimated below zero" if negative else ""


def check_negative(negative: str, method: str) -> None:
    """Refuse an unknown policy for negative estimates, and ``"refit"`` for REML and ML.

    Raises
    ------
    EstimationError
        If it is; the message says what is allowed.
    """
    if negative not in get_args(Negative):
        raise EstimationError(f"negative={negative!r} is not known; it is 'keep' or 'refit'")
    if negative == "refit" and method in ("reml", "ml"):
        raise EstimationError(
            f"method={method!r} never estimates a component below zero; negative='refit' is for "
            "'anova' and the like"
        )


def refit_without_negative(
    first: Estimate, estimate: Callable[[tuple[int, ...]], Estimate]
) -> Estimate:
    """Return the estimate after dropping terms until none is negative, the most negative first.

    Parameters
    ----------
    first : estimate of all terms
    estimate : returns the estimate of the terms at these positions

    Returns
    -------
    Estimate of all components: those of dropped terms are 0, without a standard error, and the
    status names them with their negative estimates. A negative residual is kept, as every model
    has one.

    References
    ----------
    Brennan (2001), Generalizability Theory, sec. 3.4 on negative estimates; Searle, Casella and
    McCulloch (1992), Variance Components, sec. 4.4e.
    """
    found, kept, dropped = drop_negative(first, estimate)
    if not dropped:
        return first
    listed = (f"σ²({first.names[t]}) (was {display.number(was)})" for t, was in dropped.items())
    places = np.array([*kept, first.values.size - 1])
    values = np.zeros_like(first.values)
    values[places] = found.values
    return replace(
        found,
        names=first.names,
        values=values,
        # These belong to the kept terms only.
        fixed_errors=None,
        covariances={
            kind: _spread(covariance, places, values.size)
            for kind, covariance in found.covariances.items()
        },
        status=f"{found.status} Dropped for a negative estimate, and the others estimated again: "
        f"{', '.join(listed)}.",
    )


def drop_negative(
    first: _Found, estimate: Callable[[tuple[int, ...]], _Found]
) -> tuple[_Found, tuple[int, ...], dict[int, float]]:
    """Return the last estimate of :func:`refit_without_negative`, and which terms were dropped.

    Parameters
    ----------
    first : estimate of all terms and the residual
    estimate : returns the estimate of the terms at these positions

    Returns
    -------
    The last estimate, the positions of its terms, and the positions of the dropped terms in order,
    each with its negative estimate.
    """
    kept, found = tuple(range(first.values.size - 1)), first
    dropped: dict[int, float] = {}
    while kept and found.values[:-1].min() < 0.0:
        worst = int(np.argmin(found.values[:-1]))
        dropped[kept[worst]] = float(found.values[worst])
        kept = (*kept[:worst], *kept[worst + 1 :])
        found = estimate(kept)
    return found, kept, dropped


def residual_alone(method: str, n: int, XX: FloatArray, Xy: FloatArray, yy: float) -> Estimate:
    """Return the estimate of a model without random terms: ordinary least squares.

    Parameters
    ----------
    method : name of the requested method
    n : number of rows
    XX, Xy, yy : cross-products of the fixed part and the response, centred
    """
    beta = solve_positive(XX, Xy)
    df = n - Xy.size
    variance = float(yy - Xy @ beta) / df
    return Estimate(
        method=method,
        names=(RESIDUAL,),
        values=np.array([variance]),
        covariances={"sampling": np.array([[2.0 * variance**2 / df]])},
        beta=beta,
        cov_beta=variance * solve_positive(XX, np.eye(Xy.size)),
        llf=np.nan,
        converged=True,
        status="Closed form.",
        engine="closed form: ordinary least squares",
    )


def _spread(covariance: FloatArray, places: np.ndarray, size: int) -> FloatArray:
    whole = np.full((size, size), np.nan)
    whole[np.ix_(places, places)] = covariance
    return whole

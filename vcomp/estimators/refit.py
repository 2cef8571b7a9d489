"""Negative estimates: the clause that reports them, and ``negative="refit"``, which drops terms.

The estimators use the clause in their status; ``model`` and ``inference`` call the refits. See
docs/explanation/mathematics.md, section 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, TypeVar

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.estimators.estimate import Estimate, PointEstimate, Points
from vcomp.formula import RESIDUAL
from vcomp.numerics import solve_positive
from vcomp.statistics import Statistics

Negative: TypeAlias = Literal["keep", "refit"]


_Found = TypeVar("_Found", bound=Estimate | PointEstimate)


def below_zero(names: Sequence[str], values: FloatArray) -> str:
    """Return a clause that names the components estimated below zero, empty without any.

    Examples
    --------
    >>> below_zero(["a", "b"], np.array([-0.1, 2.0]))
    'σ²(a) is estimated below zero'
    """
    negative = [f"σ²({name})" for name, value in zip(names, values, strict=True) if value < 0.0]
    verb = "is" if len(negative) == 1 else "are"
    return f"{', '.join(negative)} {verb} estimated below zero" if negative else ""


def refit_without_negative(
    first: Estimate, stats: Statistics, estimate: Callable[[tuple[int, ...]], Estimate]
) -> Estimate:
    """Return the estimate after dropping terms, the most negative first, until none is negative.

    Parameters
    ----------
    first : estimate of all terms
    stats : sums of the data
    estimate : returns the estimate of a model with the terms at the given positions, at least one

    Returns
    -------
    Estimate of all components: those of dropped terms are 0, without a standard error, and the
    status names them with their negative estimates. A negative residual is kept, as the residual
    cannot be dropped.

    References
    ----------
    Brennan (2001), Generalizability Theory, sec. 3.4 on negative estimates; Searle, Casella and
    McCulloch (1992), Variance Components, sec. 4.4e.
    """

    def of_terms(terms: tuple[int, ...]) -> Estimate:
        return estimate(terms) if terms else _residual_alone(first.method, stats)

    last, kept, dropped = _drop_negative(first, of_terms)
    if not dropped:
        return first
    listed = (f"σ²({first.names[t]}) (was {display.number(was)})" for t, was in dropped.items())
    places = np.array([*kept, first.values.size - 1])
    values = np.zeros_like(first.values)
    values[places] = last.values
    return replace(
        last,
        names=first.names,
        values=values,
        # The derivatives are known for the components of the kept terms only.
        fixed_errors=None,
        covariances={
            kind: _spread(covariance, places, values.size)
            for kind, covariance in last.covariances.items()
        },
        status=f"{last.status} Terms with negative estimates were dropped, and the others "
        f"estimated again: {', '.join(listed)}.",
    )


def point_without_negative(
    prepared: Callable[[Statistics, tuple[str, ...]], Points],
    stats: Statistics,
    names: tuple[str, ...],
) -> PointEstimate:
    """Return point estimates after dropping terms as :func:`refit_without_negative` does.

    Parameters
    ----------
    prepared : of the method, see ``ClosedForm``
    stats : sums of the data
    names : components, the residual last
    """

    def of(these: Statistics, labels: tuple[str, ...]) -> PointEstimate:
        return prepared(these, labels)([these])[0]

    def of_terms(terms: tuple[int, ...]) -> PointEstimate:
        if not terms:
            alone = _residual_alone("", stats)
            return PointEstimate(alone.values, alone.beta)
        return of(stats.of_terms(terms), (*(names[t] for t in terms), names[-1]))

    fitted, kept, _ = _drop_negative(of(stats, names), of_terms)
    values = np.zeros(len(names))
    values[[*kept, -1]] = fitted.values
    return replace(fitted, values=values)


def _drop_negative(
    first: _Found, estimate: Callable[[tuple[int, ...]], _Found]
) -> tuple[_Found, tuple[int, ...], dict[int, float]]:
    """Return the last estimate, the positions of its terms, and the dropped terms in order.

    The dropped terms are given by position, each with its negative estimate.

    Parameters
    ----------
    first : estimate of all terms and the residual
    estimate : returns the estimate of a model with the terms at the given positions
    """
    kept, fitted = tuple(range(first.values.size - 1)), first
    dropped: dict[int, float] = {}
    while kept and fitted.values[:-1].min() < 0.0:
        worst = int(np.argmin(fitted.values[:-1]))
        dropped[kept[worst]] = float(fitted.values[worst])
        kept = (*kept[:worst], *kept[worst + 1 :])
        fitted = estimate(kept)
    return fitted, kept, dropped


def _residual_alone(method: str, stats: Statistics) -> Estimate:
    """Return the estimate of a model without random terms: ordinary least squares."""
    XX, Xy = stats.XX, stats.Xy
    beta = solve_positive(XX, Xy)
    df = stats.n - Xy.size
    variance = float(stats.yy - Xy @ beta) / df
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
    """Return the covariance matrix of all components, nan for those of dropped terms."""
    whole = np.full((size, size), np.nan)
    whole[np.ix_(places, places)] = covariance
    return whole

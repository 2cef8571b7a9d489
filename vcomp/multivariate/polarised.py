"""Covariance components of variables that were observed together, from estimators of one variable.

Every closed form is a set of quadratic forms q(y), and the same forms for two variables are

    q(y, z) = [q(y + z) − q(y − z)]/4,

unbiased for the covariances as q is for the variances (Brennan 2001, section 9.2: mean products
take the place of mean squares). Under normality the covariance of such forms is

    Cov[q(y_a, y_b), q(y_c, y_d)] = ½ [C(σ_ac, σ_bd) + C(σ_ad, σ_bc)],

where C(σ, σ') is the bilinear form that goes with the covariance matrix C(σ, σ) of q(y) at the
components σ, which is quadratic in them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators import get_estimator
from vcomp.estimators.quadratic import (
    Adjustment,
    Reductions,
    TooLargeError,
    adjusted,
    exact_sampling,
    henderson1,
    orthogonal_table,
)
from vcomp.multivariate.covariance_components import elements
from vcomp.multivariate.variable_layout import Layout
from vcomp.numerics import covariance_of_solution
from vcomp.statistics import Statistics

__all__ = [
    "columns_of",
    "polarised_components",
    "polarised_covariance",
]


Quadratic = Callable[[FloatArray], FloatArray]


def polarised_components(layout: Layout, method: str) -> FloatArray:
    """Return the (k + 1, v, v) components of variables with the same rows by a closed form.

    Parameters
    ----------
    layout : of variables that were observed together
    method : ``"anova"``, ``"type1"`` or ``"henderson3"``

    Raises
    ------
    EstimationError
        If the method cannot estimate the components of one variable.
    """
    stats = layout.scores.models[0].statistics
    estimator = get_estimator(method)
    Y, scale = columns_of(layout), layout.scale

    def q(y: FloatArray) -> FloatArray:
        values: FloatArray = estimator.point(  # type: ignore[attr-defined]
            stats.with_response(y), layout.names
        ).values
        return values

    k, v = len(layout.names), layout.n_variables
    values = np.empty((k, v, v))
    for a in range(v):
        values[:, a, a] = q(Y[:, a])
        for b in range(a):
            # In units of their standard deviations, so that neither drowns the other.
            mixed = (q(Y[:, a] + Y[:, b]) - q(Y[:, a] - Y[:, b])) / 4.0
            values[:, a, b] = values[:, b, a] = mixed
    return values * np.outer(scale, scale)


def polarised_covariance(
    layout: Layout, method: str, values: FloatArray
) -> tuple[FloatArray, str]:
    """Return the covariance matrix of these estimates under normality, and why there is none.

    Parameters
    ----------
    layout : of variables that were observed together
    method : as above
    values : (k + 1, v, v) the estimates, at which it is taken
    """
    places = elements(layout.linked)
    stats = layout.scores.models[0].statistics
    try:
        tensor = _tensor(_quadratic(stats, method, layout.names), len(layout.names))
    except TooLargeError:
        nothing = np.full((len(places), len(places)), np.nan)
        return (
            nothing,
            " No standard errors: they take too much memory or time; use method='reml'.",
        )
    return covariance_of_forms(tensor, values), ""


def covariance_of_forms(tensor: FloatArray, values: FloatArray) -> FloatArray:
    """Return the covariance of all elements, (m, m), from that of one variable.

    Parameters
    ----------
    tensor : (k + 1, k + 1, k + 1, k + 1) C_αβtu: the covariance of components α and β is
        Σ_tu C_αβtu σ_t σ_u
    values : (k + 1, v, v) components
    """
    k, v, _ = values.shape
    a, b = np.triu_indices(v)
    # (pairs, pairs, k): σ_ac, σ_bd, σ_ad and σ_bc of pairs (a, b) and (c, d).
    ac, bd = values[:, a[:, None], a[None, :]], values[:, b[:, None], b[None, :]]
    ad, bc = values[:, a[:, None], b[None, :]], values[:, b[:, None], a[None, :]]
    found = np.einsum("xytu,tpq,upq->xpyq", tensor, ac, bd, optimize=True)
    found = 0.5 * (found + np.einsum("xytu,tpq,upq->xpyq", tensor, ad, bc, optimize=True))
    matrix: FloatArray = found.reshape(k * a.size, k * a.size)
    return 0.5 * (matrix + matrix.T)


def columns_of(layout: Layout) -> FloatArray:
    """Return the scores of the same rows in their scale, (rows of the first variable, v)."""
    scores = layout.scores
    rows = scores.unit[scores.of(0)]
    place = np.empty(scores.n_units, dtype=np.int64)
    place[rows] = np.arange(rows.size)
    Y = np.empty((rows.size, layout.n_variables))
    for a in range(layout.n_variables):
        part = scores.of(a)
        Y[place[scores.unit[part]], a] = layout.y[part] / layout.scale[a]
    return Y


def _tensor(C: Quadratic, k: int) -> FloatArray:
    """Return the coefficients of a matrix that is quadratic in k numbers."""
    tensor = np.empty((k, k, k, k))
    unit = np.eye(k)
    alone = [C(unit[t]) for t in range(k)]
    for t in range(k):
        tensor[:, :, t, t] = alone[t]
        for u in range(t):
            mixed = 0.5 * (C(unit[t] + unit[u]) - alone[t] - alone[u])
            tensor[:, :, t, u] = tensor[:, :, u, t] = mixed
    return tensor


def _quadratic(stats: Statistics, method: str, names: tuple[str, ...]) -> Quadratic:
    """Return the covariance of a closed form of one variable as a function of its components."""
    if method == "anova" or orthogonal_table(stats, names) is not None:
        coefficients = henderson1(stats.group_sums)
        return lambda v: exact_sampling(stats, coefficients, v).covariance
    tables = stats.cross_products
    terms = range(tables.n_terms)
    if method == "henderson3":
        reductions = adjusted(tables)
    else:
        reductions = Reductions(tables, [Adjustment(t, frozenset(range(t))) for t in terms])
    return lambda v: covariance_of_solution(reductions.coefficients, reductions.covariance(v))

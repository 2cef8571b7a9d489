"""Likelihoods near one point as polynomials, of one response or of many, by conjugate gradients.

A right-hand side for each response and one for each of its terms give the derivatives of y'P y up
to the third. log|V| and log|X'V⁻¹X| are the same for all responses: their slopes are the traces of
the fit, by the same probes, at a few points. The Monte Carlo error of differences of likelihoods
is then that of a few coefficients. See docs/explanation/mathematics.md, section 8.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, permutations, product

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.likelihood.iterative_point import IterativePoint
from vcomp.estimators.likelihood.surface import NodeValues
from vcomp.statistics import CrossProducts

_DEGREE = 3
"""Of the polynomials in logarithms of ratios."""


@dataclass(frozen=True, slots=True)
class Series:
    """A polynomial with symmetric derivatives.

    Attributes
    ----------
    derivatives : at zero, of orders 0, 1, …: (…), (k, …), (k, k, …)
    """

    derivatives: tuple[FloatArray, ...]

    def __call__(self, x: FloatArray, order: int = 0) -> FloatArray:
        """Return the value at (k,) `x`, or the derivatives of an order."""
        *lower, found = self.derivatives[order:]
        for n, term in reversed(list(enumerate(lower, 1))):
            found = term + np.tensordot(x, found, 1) / n
        return found


def log_determinant(
    slopes: Callable[[FloatArray], FloatArray], value: float, centre: FloatArray, width: FloatArray
) -> Series:
    """Return the common part of likelihoods, log|V| and for REML log|X'V⁻¹X|, as a polynomial.

    Parameters
    ----------
    slopes : returns the derivatives by the ratios of all terms
    value : at the centre
    centre : (k,) ratios of the terms, 0 for those at zero
    width : (k,) half the width of the box in logarithms
    """
    free = np.flatnonzero(centre > 0.0)
    k = free.size
    monomials = []
    for degree in range(1, _DEGREE + 1):
        for terms in combinations_with_replacement(range(k), degree):
            derivatives = [np.zeros((k,) * n) for n in range(_DEGREE + 1)]
            for place in permutations(terms):
                derivatives[degree][place] = 1.0
            monomials.append(Series(tuple(derivatives)))
    rows, found = [], []
    for node in nodes_of(k):
        x, ratios = node * width[free], centre.copy()
        ratios[free] *= np.exp(x)
        found.append((ratios * slopes(ratios))[free])
        rows.append(np.column_stack([m(x, 1) for m in monomials]))
    coefficients = np.linalg.lstsq(np.concatenate(rows), np.concatenate(found))[0]
    terms_of = zip(*(m.derivatives for m in monomials), strict=True)
    fitted = [np.tensordot(coefficients, np.stack(of_order), 1) for of_order in terms_of]
    return Series((fitted[0] + value, *fitted[1:]))


def nodes_of(k: int) -> list[FloatArray]:
    """Return the points of k terms at which slopes are computed, in half widths of the box."""
    units = np.eye(k)
    return [np.zeros(k), *units, *-units, *(a + b for a, b in combinations(units, 2))]


def response_series(point: IterativePoint, sums: Sequence[CrossProducts]) -> tuple[Series, Series]:
    """Return (B,) y'P y and (p, B) β̂ of many responses, as series in logarithms of ratios.

    Parameters
    ----------
    point : at the centre, with a residual variance of 1
    sums : of the same rows with several responses
    """
    free = np.flatnonzero(point.v[:-1] > 0.0).tolist()
    ratios = point.v[free]
    solved = point.of_responses(sums)
    u, h = [solved.u[t] for t in free], [solved.h[t] for t in free]
    k, n = len(free), len(sums)
    slopes = -ratios[:, None] * np.array([np.square(a).sum(axis=0) for a in u]).reshape(k, n)
    second, middle = np.zeros((k, k, n)), np.zeros((k, k, k, n))
    fixed = [point.cov_beta @ point.projected_fixed()[t].T for t in free]
    of_u = np.array([c @ a for c, a in zip(fixed, u, strict=True)])
    beta_slopes = -ratios[:, None, None] * of_u.reshape(k, *solved.beta.shape)
    beta_second = np.zeros((k, k, *solved.beta.shape))
    for i, j in product(range(k), repeat=2):
        scale, own = ratios[i] * ratios[j], h[j][free[i]]  # effects of i in PZ_j u_j
        form = scale * np.einsum("ab,ab->b", own, u[i])
        of_beta = scale * (fixed[i] @ own)
        for at in ((i, j), (j, i)):
            second[at] += form
            beta_second[at] += of_beta
        for m in range(k):
            products = np.einsum("ab,ab->b", own, h[m][free[i]])
            middle[j, i, m] = scale * ratios[m] * products
    orders, same = ((0, 1, 2, 3), (1, 0, 2, 3), (0, 2, 1, 3)), np.eye(k)
    third = np.einsum("ij,jk,ib->ijkb", same, same, slopes) - 2.0 * sum(
        middle.transpose(axes) for axes in orders
    )
    # A ratio is the exponential of its logarithm, all of whose derivatives are the same.
    for pairs in ("ij,ikb->ijkb", "ik,ijb->ijkb", "jk,ijb->ijkb"):
        third += np.einsum(pairs, same, second)
    second += np.einsum("ij,ib->ijb", same, slopes)
    beta_second += np.einsum("ij,ipb->ijpb", same, beta_slopes)
    return (
        Series((solved.rss, slopes, second, third)),
        Series((solved.beta, beta_slopes, beta_second)),
    )


def node_values(
    log_det: Series, responses: tuple[Series, Series], centre: FloatArray
) -> Callable[[FloatArray], NodeValues]:
    """Return the values of many responses at ratios near the centre."""
    free: BoolArray = centre > 0.0
    rss, beta = responses

    def values(ratios: FloatArray) -> NodeValues:
        x = np.log(ratios[free] / centre[free])
        found = rss(x)
        return NodeValues(found, np.full(found.size, float(log_det(x))), beta(x).T)

    return values

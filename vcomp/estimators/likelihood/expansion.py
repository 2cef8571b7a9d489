"""Likelihoods of many responses of the same rows near one point, by conjugate gradients.

A right-hand side for each response and one for each of its terms give the derivatives of y'P y up
to the third. log|V| and log|X'V⁻¹X| are the same for all responses: their slopes are the traces of
the fit, by the same probes, at a few points. See docs/explanation/mathematics.md, section 8.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, combinations_with_replacement, product

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.likelihood.iterative_point import IterativePoint
from vcomp.estimators.likelihood.surface import NodeValues
from vcomp.statistics import CrossProducts

_DEGREE = 3
"""Of the polynomials in logarithms of ratios."""


class LogDeterminant:
    """The common part of the likelihoods, log|V| and for REML log|X'V⁻¹X|, a polynomial.

    Parameters
    ----------
    at : returns value and derivatives by the ratios of all terms; its solves start at the centre
    centre : (k,) ratios of the terms, 0 for those at zero
    width : (k,) half the width of the box in logarithms
    """

    def __init__(
        self,
        at: Callable[[FloatArray, bool], tuple[float, FloatArray]],
        centre: FloatArray,
        width: FloatArray,
    ) -> None:
        self._free = np.flatnonzero(centre > 0.0)
        k = self._free.size
        units = np.eye(k)
        nodes = [np.zeros(k), *units, *-units, *(a + b for a, b in combinations(units, 2))]
        self._powers = [
            np.bincount(terms, minlength=k)
            for degree in range(1, _DEGREE + 1)
            for terms in combinations_with_replacement(range(k), degree)
        ]
        rows, slopes = [], []
        for node in nodes:
            x = node * width[self._free]
            ratios = centre.copy()
            ratios[self._free] *= np.exp(x)
            value, derivatives = at(ratios, not node.any())
            if not node.any():
                self._value = value
            slopes.append((ratios * derivatives)[self._free])
            rows += [self._slopes(x, t) for t in range(k)]
        self._coefficients = np.linalg.lstsq(np.array(rows), np.concatenate(slopes))[0]

    def _slopes(self, x: FloatArray, t: int) -> list[float]:
        lowered = [(p[t], p - (np.arange(x.size) == t)) for p in self._powers]
        return [float(n * np.prod(x ** np.maximum(p, 0))) for n, p in lowered]

    def __call__(self, x: FloatArray) -> float:
        """Return the value at logarithms of ratios of the free terms, from those of the centre."""
        powers = [float(np.prod(x**p)) for p in self._powers]
        return self._value + float(self._coefficients @ powers)


class ResponseSeries:
    """y'P y and β̂ of many responses, as series in logarithms of ratios.

    Parameters
    ----------
    point : at the centre, with a residual variance of 1
    sums : of the same rows with several responses
    """

    def __init__(self, point: IterativePoint, sums: Sequence[CrossProducts]) -> None:
        free = np.flatnonzero(point.v[:-1] > 0.0).tolist()
        ratios = point.v[free]
        solved = point.of_responses(sums)
        u, h = [solved.u[t] for t in free], [solved.h[t] for t in free]
        k, n = len(free), len(sums)
        self._rss, self._beta = solved.rss, solved.beta
        self._slopes = -ratios[:, None] * [np.square(a).sum(axis=0) for a in u]
        self._second, middle = np.zeros((k, k, n)), np.zeros((k, k, k, n))
        fixed = [point.cov_beta @ point.projected_fixed()[t].T for t in free]
        slopes = np.array([c @ a for c, a in zip(fixed, u, strict=True)])
        self._beta_slopes = -ratios[:, None, None] * slopes
        self._beta_second = np.zeros((k, k, *self._beta.shape))
        for i, j in product(range(k), repeat=2):
            scale, own = ratios[i] * ratios[j], h[j][free[i]]  # effects of i in PZ_j u_j
            form = scale * np.einsum("ab,ab->b", own, u[i])
            of_beta = scale * (fixed[i] @ own)
            for at in ((i, j), (j, i)):
                self._second[at] += form
                self._beta_second[at] += of_beta
            for m in range(k):
                products = np.einsum("ab,ab->b", own, h[m][free[i]])
                middle[j, i, m] = scale * ratios[m] * products
        orders = ((0, 1, 2, 3), (1, 0, 2, 3), (0, 2, 1, 3))
        self._third = -2.0 * sum(middle.transpose(axes) for axes in orders)

    def __call__(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return y'P y and (B, p) β̂ at logarithms of ratios, from those of the centre."""
        to_second = x + 0.5 * x**2
        rss = self._rss + (to_second + x**3 / 6.0) @ self._slopes
        rss += 0.5 * np.einsum("i,j,ijb->b", x + x**2, x, self._second)
        rss += np.einsum("i,j,k,ijkb->b", x, x, x, self._third) / 6.0
        beta = self._beta + np.einsum("i,ipb->pb", to_second, self._beta_slopes)
        beta += 0.5 * np.einsum("i,j,ijpb->pb", x, x, self._beta_second)
        return rss, beta.T


def node_values(
    log_determinant: LogDeterminant, responses: ResponseSeries, centre: FloatArray
) -> Callable[[FloatArray], NodeValues]:
    """Return the values of many responses at ratios near the centre."""
    free: BoolArray = centre > 0.0

    def values(ratios: FloatArray) -> NodeValues:
        x = np.log(ratios[free] / centre[free])
        rss, beta = responses(x)
        return NodeValues(rss, np.full(rss.size, log_determinant(x)), beta)

    return values

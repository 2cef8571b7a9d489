"""Likelihoods of many data sets that are alike, as functions of the ratios of their components.

Up to the scale, which has a closed form, a likelihood depends on the ratios γ_t = σ²_t/σ²_e only,
and near the components at which data are drawn, or of which data are part, it is an analytic
function of log γ. It is computed at the Chebyshev points of a box, for all data sets by one factor
at each, and interpolated (docs/explanation/mathematics.md, section 7.4; Trefethen 2013,
Approximation Theory and Approximation Practice, chapters 3 and 8). The error follows from the last
coefficients. Maxima at the border of the box, or with too large an error, are left to others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

import numpy as np

from vcomp._typing import BoolArray, FloatArray

_ITERATIONS = 40
_INSIDE = 0.98
"""Half-width, in a box of half-width 1, within which a maximum counts as one of the likelihood."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeValues:
    """Values of B data sets at one set of ratios, with a residual variance of 1.

    Attributes
    ----------
    rss : (B,) y'P y
    log_det : (B,) log|V|, for REML with log|X'V⁻¹X|
    beta : (B, p) generalised least squares estimates
    """

    rss: FloatArray
    log_det: FloatArray
    beta: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class SurfaceMaxima:
    """The maxima of B likelihoods.

    Attributes
    ----------
    found : (B,) whether the maximum is inside the box and exact enough
    ratios, residual : (B, k) γ and (B,) σ²_e
    loglike, beta : (B,) and (B, p)
    errors : (B,) estimated distances from the exact maxima, in standard errors
    """

    found: BoolArray
    ratios: FloatArray
    residual: FloatArray
    loglike: FloatArray
    beta: FloatArray
    errors: FloatArray


def surface_maxima(
    values: Callable[[FloatArray], NodeValues],
    centre: FloatArray,
    width: FloatArray,
    degrees: FloatArray,
    *,
    n_nodes: int,
    tolerance: float,
    shift: FloatArray | None = None,
    bounded: BoolArray | None = None,
) -> SurfaceMaxima:
    """Return the maxima of likelihoods in a box of logarithms of ratios.

    Parameters
    ----------
    values : returns the values of all data sets at (k,) ratios
    centre, width : (k,) middle and half the width of the box, logarithms of ratios + `shift`
    degrees : (B,) numbers of rows, for REML less the columns of X
    n_nodes : number of points in each direction
    tolerance : largest error, in standard errors
    shift : (k,) added to ratios, so that zero has a logarithm; none if not given
    bounded : (k,) whether the lower end of the box is the bound of the component at zero
    """
    k = centre.size
    shift = np.zeros(k) if shift is None else shift
    bounded = np.zeros(k, dtype=bool) if bounded is None else bounded

    def ratios(x: FloatArray) -> FloatArray:
        found: FloatArray = np.exp(centre + width * x) - shift
        return np.where(bounded & ((x == -1.0) | (found < 0.0)), 0.0, found)

    points = np.cos(np.pi * (np.arange(n_nodes) + 0.5) / n_nodes)
    nodes = np.array(list(product(points, repeat=k)))
    at_nodes = [values(ratios(node)) for node in nodes]
    rss, log_det = np.array([m.rss for m in at_nodes]), np.array([m.log_det for m in at_nodes])
    beta = np.array([m.beta for m in at_nodes])
    shape = (n_nodes,) * k
    deviance = _coefficients(degrees * np.log(rss / degrees) + log_det, shape)
    x, hessian, settled = _minima(deviance, bounded)
    at_bound = bounded & (x == -1.0)
    errors = _errors(deviance, hessian, np.where(at_bound, 0.0, x))
    basis = _basis(x, n_nodes, k)
    at = [
        _contracted(_coefficients(part, shape), basis, (0,) * k)
        for part in (rss, *np.moveaxis(beta, 2, 0))
    ]
    value = _contracted(deviance, basis, (0,) * k)
    inside = settled & ((x <= _INSIDE) & (bounded | (x >= -_INSIDE))).all(axis=1)
    return SurfaceMaxima(
        found=inside & (errors <= tolerance),
        ratios=ratios(x),
        residual=at[0] / degrees,
        loglike=-0.5 * (value + degrees * (1.0 + np.log(2.0 * np.pi))),
        beta=np.array(at[1:]).T.reshape(len(x), beta.shape[2]),
        errors=errors,
    )


def _coefficients(values: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Return Chebyshev coefficients (n, …, n, B) from (nodes, B) values."""
    n = shape[0]
    i = np.arange(n)
    matrix = 2.0 / n * np.cos(np.pi * np.outer(i, i + 0.5) / n)
    matrix[0] *= 0.5
    coefficients = values.reshape(*shape, -1)
    for axis in range(len(shape)):
        coefficients = np.moveaxis(np.tensordot(matrix, coefficients, (1, axis)), 0, axis)
    return coefficients


def _basis(x: FloatArray, n: int, k: int) -> list[list[FloatArray]]:
    """Return for each direction the polynomials at x with two derivatives, (n, B) each."""
    basis = []
    for axis in range(k):
        at = x[:, axis]
        T, D, S = np.zeros((3, n, at.size))
        T[0] = 1.0
        if n > 1:
            T[1], D[1] = at, 1.0
        for j in range(2, n):
            T[j] = 2.0 * at * T[j - 1] - T[j - 2]
            D[j] = 2.0 * T[j - 1] + 2.0 * at * D[j - 1] - D[j - 2]
            S[j] = 4.0 * D[j - 1] + 2.0 * at * S[j - 1] - S[j - 2]
        basis.append([T, D, S])
    return basis


def _contracted(
    coefficients: FloatArray, basis: list[list[FloatArray]], orders: tuple[int, ...]
) -> FloatArray:
    """Return the interpolant, or a derivative of the given orders, of each data set, (B,)."""
    contracted = coefficients
    for direction, order in zip(basis, orders, strict=True):
        polynomials = direction[order]
        shape = (polynomials.shape[0], *[1] * (contracted.ndim - 2), polynomials.shape[1])
        contracted = (contracted * polynomials.reshape(shape)).sum(axis=0)
    return contracted


def _minima(
    coefficients: FloatArray, bounded: BoolArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return minima in [−1, 1]^k by Newton's method, the Hessians, and whether they are minima.

    A direction that is bounded below keeps −1 as long as the slope there is positive; it is
    then a minimum, and the Hessian is that of the others.
    """
    n, B, k = coefficients.shape[0], coefficients.shape[-1], bounded.size
    x, hessian = np.zeros((B, k)), np.empty((B, k, k))
    unit = np.eye(k, dtype=int)
    step = np.full((B, k), np.inf)
    for _ in range(_ITERATIONS):
        basis = _basis(x, n, k)
        slope = np.array([_contracted(coefficients, basis, tuple(u)) for u in unit]).T
        for s, t in combinations_with_replacement(range(k), 2):
            form = _contracted(coefficients, basis, tuple(unit[s] + unit[t]))
            hessian[:, s, t] = hessian[:, t, s] = form
        stays = bounded & (x == -1.0) & (slope >= 0.0)
        slope = np.where(stays, 0.0, slope)
        either = stays[:, :, None] | stays[:, None, :]
        scale = np.diagonal(hessian, axis1=1, axis2=2).max(axis=1)[:, None, None]
        hessian = np.where(either, np.eye(k) * scale, hessian)
        values, vectors = np.linalg.eigh(hessian)
        # Where the curvature is not that of a minimum, the step goes downhill.
        values = np.maximum(np.abs(values), 1e-10 * np.abs(values).max(axis=1, keepdims=True))
        along = (slope[:, None] @ vectors)[:, 0] / values
        step = np.clip(-(vectors @ along[:, :, None])[:, :, 0], -0.5, 0.5)
        moved = np.clip(x + step, -1.0, 1.0)
        step, x = moved - x, moved
        if np.abs(step).max(initial=0.0) <= 1e-13:
            break
    convex = np.linalg.eigvalsh(hessian)[:, 0] > 0.0
    return x, hessian, convex & (np.abs(step).max(axis=1) <= 1e-9)


def _errors(coefficients: FloatArray, hessian: FloatArray, x: FloatArray) -> FloatArray:
    """Return estimated errors of minima in standard errors, from the first left-out coefficients.

    Coefficients fall geometrically. The slope of what is left out is at most n/√(1 − x²) times as
    large inside the box (Bernstein's inequality), n² times at its border (Markov's).
    """
    n, k = coefficients.shape[0], x.shape[1]
    size, error = np.abs(coefficients), np.zeros(coefficients.shape[-1])
    for axis in range(k):
        by_degree = size.sum(axis=tuple(a for a in range(k) if a != axis))
        last, before = by_degree[-1], by_degree[-2]
        rate = np.minimum(last / np.maximum(before, 1e-300), 0.5)
        error += last * rate / (1.0 - rate)
    farthest = np.abs(x).max(axis=1, initial=0.0)
    steepest = n / np.sqrt(np.maximum(1.0 - np.square(farthest), 1.0 / n**2))
    least = np.maximum(np.linalg.eigvalsh(hessian)[:, 0], 1e-300)
    return steepest * error / np.sqrt(2.0 * least)

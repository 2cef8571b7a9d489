"""Solves with dense matrices, Newton steps within bounds or a hyperplane, and quantiles of F."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.numerics.parallel import limited_blas


def solve(A: FloatArray, b: FloatArray) -> FloatArray:
    """Solve A x = b.

    Raises
    ------
    numpy.linalg.LinAlgError
        If A is singular.
    """
    return np.asarray(np.linalg.solve(A, b), dtype=np.float64)


def covariance_of_solution(A: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return A⁻¹CA⁻ᵀ, exactly symmetric: the covariance of A⁻¹x if x has the covariance C.

    Examples
    --------
    >>> covariance_of_solution(np.array([[2.0]]), np.array([[8.0]]))
    array([[2.]])

    Raises
    ------
    numpy.linalg.LinAlgError
        If A is singular.
    """
    found = solve(A, solve(A, covariance).T)
    return 0.5 * (found + found.T)


class Positive:
    """A positive definite matrix factored once, scaled to a unit diagonal first.

    Scaling preserves digits if the units of columns differ by many orders of magnitude.

    Parameters
    ----------
    A : (n, n) matrix; n may be 0

    Raises
    ------
    numpy.linalg.LinAlgError
        If A is not positive definite.
    """

    def __init__(self, A: FloatArray) -> None:
        diagonal = np.diagonal(A)
        if not (diagonal > 0.0).all():
            raise np.linalg.LinAlgError("the diagonal is not positive")
        self._scale = np.sqrt(diagonal)
        self._lower = np.linalg.cholesky(A / np.outer(self._scale, self._scale))

    def log_determinant(self) -> float:
        """Return the logarithm of the determinant."""
        return float(2.0 * np.log(np.diagonal(self._lower) * self._scale).sum())

    def solve(self, b: FloatArray) -> FloatArray:
        """Solve A x = b for a vector or columns b."""
        if b.size == 0:
            return np.zeros_like(b)
        by_row = self._scale if b.ndim == 1 else self._scale[:, None]
        if self._scale.size == 1:  # SciPy takes longer to import than a balanced fit
            return b / np.square(by_row * self._lower[0])
        from scipy.linalg import cho_solve

        x: FloatArray = cho_solve((self._lower, True), b / by_row, check_finite=False)
        return x / by_row

    def whitened(self, rows: FloatArray) -> FloatArray:
        """Return R L⁻ᵀ of rows R (m, n), with A = L L': products of two of them are R A⁻¹ S'."""
        from scipy.linalg import solve_triangular

        if rows.size == 0:
            return np.zeros_like(rows)
        scaled = (rows / self._scale).T
        columns: FloatArray = solve_triangular(
            self._lower, scaled, lower=True, overwrite_b=True, check_finite=False
        )
        return columns.T

    def matrix(self) -> FloatArray:
        """Return the matrix itself."""
        product: FloatArray = self._lower @ self._lower.T
        product *= np.outer(self._scale, self._scale)
        return product

    def inverse(self) -> FloatArray:
        """Return the inverse, which is exactly symmetric."""
        from vcomp.numerics.kernels import inverse_by_factor  # deferred for start-up time

        # A third of the operations of a solve for all columns of the identity.
        with limited_blas(self._scale.size):
            inverse = inverse_by_factor(self._lower)
        inverse /= np.outer(self._scale, self._scale)
        return inverse


_SMALL = 12
"""Largest order of matrices that are inverted one by one, larger ones by products of parts."""


def inverses(
    A: FloatArray,
    logs: FloatArray,
    of_small: Callable[[FloatArray, FloatArray], FloatArray] | None = None,
) -> FloatArray:
    """Return the inverses of positive definite matrices (P, s, s), by those of their parts.

    No digit of one depends on the others.

    Parameters
    ----------
    A : the matrices
    logs : (P,) to which log-determinants are added
    of_small : does the same for matrices of order up to 12

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not positive definite.
    """
    s = A.shape[1]
    if s <= _SMALL:
        return (of_small or _inverses_by_numpy)(A, logs)
    h = s // 2
    first, B = inverses(A[:, :h, :h], logs, of_small), A[:, :h, h:]
    C = first @ B
    second = inverses(A[:, h:, h:] - B.swapaxes(1, 2) @ C, logs, of_small)
    D = C @ second
    X: FloatArray = np.empty(A.shape)
    X[:, :h, :h] = first
    X[:, :h, :h] += D @ C.swapaxes(1, 2)
    np.negative(D, out=X[:, :h, h:])
    X[:, h:, :h] = X[:, :h, h:].swapaxes(1, 2)
    X[:, h:, h:] = second
    return X


def _inverses_by_numpy(A: FloatArray, logs: FloatArray) -> FloatArray:
    logs += 2.0 * np.log(np.diagonal(np.linalg.cholesky(A), axis1=1, axis2=2)).sum(axis=1)
    return np.asarray(np.linalg.inv(A), dtype=np.float64)


def congruent(T: FloatArray, A: FloatArray) -> FloatArray:
    """Return T A T' of a matrix A (…, p, p), where T is mostly the identity.

    Examples
    --------
    >>> congruent(np.array([[1.0, 2.0], [0.0, 1.0]]), np.eye(2))
    array([[5., 2.],
           [2., 1.]])
    """
    rows = np.flatnonzero((np.eye(len(T)) != T).any(axis=1))
    product = A.copy()
    if rows.size:
        product[..., rows, :] = T[rows] @ A
        product[..., :, rows] = product @ T[rows].T
    return product


def solve_positive(A: FloatArray, b: FloatArray) -> FloatArray:
    """Solve A x = b for a positive definite A, scaled to a unit diagonal first.

    Raises
    ------
    numpy.linalg.LinAlgError
        If A is not positive definite.
    """
    return Positive(A).solve(b)


_RIDGE = 1e-14
"""Ridge on a unit diagonal, so that directions without information have a solution."""


def is_positive(matrix: FloatArray, least: float) -> bool:
    """Whether all eigenvalues on a unit diagonal are larger than `least`."""
    scale = np.diagonal(matrix)
    if not (scale > 0.0).all() or not np.isfinite(matrix).all():
        return False
    unit = np.sqrt(scale)
    values = np.linalg.eigvalsh(matrix / np.outer(unit, unit))
    return bool(values.min(initial=1.0) > least)


def bounded_step(
    information: FloatArray, score: FloatArray, lower: FloatArray
) -> tuple[FloatArray, float]:
    """Return the step d ≥ lower that maximises s'd − ½ d'Id, and the Newton decrement.

    The decrement is √(2 max), without bounds √(s'I⁻¹s). The method is a primal active-set method
    (Nocedal and Wright 2006, algorithm 16.3) for small matrices, scaled to a unit diagonal first.

    Parameters
    ----------
    information : (m, m) I, positive semi-definite
    score : (m,) s
    lower : (m,) lower bounds of d, none positive

    Examples
    --------
    >>> I = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> step, decrement = bounded_step(I, np.array([1.0, -4.0]), np.array([-1.0, -1.0]))
    >>> step, round(decrement**2, 12)
    (array([ 1., -1.]), 8.0)
    """
    m = score.size
    if m == 0:
        return np.zeros(0), 0.0
    scale = _scale(information)
    A = information / np.outer(scale, scale) + _RIDGE * np.eye(m)
    slope, floor = score / scale, lower * scale
    d = np.zeros(m)
    at_floor = (floor == 0.0) & (slope <= 0.0)
    for _ in range(20 * (m + 1)):
        gradient = slope - A @ d
        move = np.zeros(m)
        free = ~at_floor
        move[free] = _solve(A[np.ix_(free, free)], gradient[free])
        d, first = _moved(d, move, floor, free)
        if first is not None:
            at_floor[first] = True
            continue
        gradient = np.where(at_floor, slope - A @ d, -np.inf)
        released = int(np.argmax(gradient))
        if not gradient[released] > 1e-14 * np.abs(slope).max(initial=0.0):
            break
        at_floor[released] = False
    gain = float(slope @ d - 0.5 * d @ (A @ d))
    return np.where(d == floor, lower, d / scale), float(np.sqrt(max(2.0 * gain, 0.0)))


def _scale(information: FloatArray) -> FloatArray:
    scale = np.sqrt(np.abs(np.diagonal(information)))
    known = scale[scale > 0.0]
    # The unit of a component without information is arbitrary.
    return np.where(scale > 0.0, scale, known.min() if known.size else 1.0)


def _solve(A: FloatArray, b: FloatArray) -> FloatArray:
    if not b.size:
        return b
    try:
        step = solve(A, b)
    except np.linalg.LinAlgError:
        return b
    # If the matrix is indefinite by rounding error, the step is along the gradient.
    return step if step @ b > 0.0 else b


def _moved(
    d: FloatArray, move: FloatArray, floor: FloatArray, free: BoolArray
) -> tuple[FloatArray, int | None]:
    """Return d moved up to the first bound, and the component that reaches it."""
    falls = free & (d + move < floor)
    if not falls.any():
        return d + move, None
    fractions = np.full(d.size, np.inf)
    fractions[falls] = (floor[falls] - d[falls]) / move[falls]
    first = int(np.argmin(fractions))
    # Rounding may take a component below its bound: it would then fall without a move.
    moved = np.maximum(d + fractions[first] * move, floor)
    moved[first] = floor[first]
    return moved, first


def constrained_step(
    information: FloatArray,
    score: FloatArray,
    lower: FloatArray,
    normal: FloatArray,
    shift: float = 0.0,
) -> tuple[FloatArray, float, float]:
    """Return the step d ≥ lower with a'd = c that maximises s'd − ½ d'Id, λ, and √(2 max).

    The active-set method is that of :func:`bounded_step` with moves within the hyperplane. λ is
    the Lagrange multiplier of the equality: s − Id = λa for components above their bound, and
    s − Id ≤ λa for components at it. With c = 0 the last number is the distance to the maximum
    within the hyperplane, in standard errors; for other c it has no meaning.

    Parameters
    ----------
    information : (m, m) I, positive semi-definite within the hyperplane
    score : (m,) s
    lower : (m,) lower bounds of d, none positive
    normal : (m,) a, not all zero
    shift : c

    Raises
    ------
    numpy.linalg.LinAlgError
        If no d ≥ lower has a'd = c.

    Examples
    --------
    >>> I = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> lower = np.array([-9.0, -9.0])
    >>> step, multiplier, _ = constrained_step(I, np.array([4.0, 0.0]), lower, np.ones(2), 1.0)
    >>> step, round(multiplier, 9)
    (array([ 2.5, -1.5]), 0.5)
    """
    scale = _scale(information)
    A = information / np.outer(scale, scale) + _RIDGE * np.eye(score.size)
    slope, floor, across = score / scale, lower * scale, normal / scale
    d = _onto(across, shift, floor)
    at_floor, multiplier = d == floor, 0.0
    for _ in range(20 * (score.size + 1)):
        free = ~at_floor
        move = np.zeros(score.size)
        move[free] = _solve_within(A[np.ix_(free, free)], (slope - A @ d)[free], across[free])
        d, first = _moved(d, move, floor, free)
        if first is not None:
            at_floor[first] = True
            continue
        multiplier, released = _released(slope - A @ d, across, at_floor, np.abs(slope).max())
        if not released:
            break
        at_floor[released] = False
    gain = float(slope @ d - 0.5 * d @ (A @ d))
    step = np.where(d == floor, lower, d / scale)
    return step, multiplier, float(np.sqrt(max(2.0 * gain, 0.0)))


def _onto(normal: FloatArray, shift: float, floor: FloatArray) -> FloatArray:
    """Return the shortest d ≥ floor with a'd = c: max(τa, floor) by components, for some τ."""
    if shift == 0.0:
        return np.zeros(normal.size)
    clipped = np.zeros(normal.size, dtype=bool)
    while square := float(normal[~clipped] @ normal[~clipped]):
        along = (shift - float(normal[clipped] @ floor[clipped])) / square
        # A component that was below its floor stays there, as |τ| only grows.
        below = along * normal < floor
        if not (below & ~clipped).any():
            return np.where(clipped, floor, along * normal)
        clipped |= below
    raise np.linalg.LinAlgError("no step above the bounds leads to the hyperplane")


def _solve_within(A: FloatArray, b: FloatArray, normal: FloatArray) -> FloatArray:
    """Return the move p with a'p = 0 that maximises b'p − ½ p'Ap."""
    if not normal.any():
        return _solve(A, b)
    basis = np.linalg.qr(normal[:, None], mode="complete")[0][:, 1:]
    return basis @ _solve(basis.T @ A @ basis, basis.T @ b)


def _released(
    gradient: FloatArray, normal: FloatArray, at_floor: BoolArray, size: float
) -> tuple[float, list[int]]:
    """Return the multiplier of the equality, and the components that may leave their bounds."""
    free = ~at_floor
    square = float(normal[free] @ normal[free])
    if square > 0.0:
        multiplier = float(normal[free] @ gradient[free]) / square
        surplus = np.where(at_floor, gradient - multiplier * normal, -np.inf)
        first = int(np.argmax(surplus))
        return multiplier, [first] if surplus[first] > 1e-14 * size else []
    # All components of the equality are at their bounds. Any multiplier between these two limits
    # is valid; if the limits cross, two components leave their bounds together.
    rises, falls = normal > 0.0, normal < 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = gradient / normal
    least = float(np.where(rises, ratio, -np.inf).max(initial=-np.inf))
    most = float(np.where(falls, ratio, np.inf).min(initial=np.inf))
    if not rises.any() or not falls.any():
        multiplier = least if rises.any() else most
    else:
        multiplier = 0.5 * (least + most)
        if least - most > 1e-14 * (abs(least) + abs(most)):
            pair = np.where(rises, ratio, -np.inf), np.where(falls, ratio, np.inf)
            return multiplier, [int(np.argmax(pair[0])), int(np.argmin(pair[1]))]
    surplus = np.where(at_floor & (normal == 0.0), gradient, -np.inf)
    first = int(np.argmax(surplus))
    return multiplier, [first] if surplus[first] > 1e-14 * size else []


_WHOLE = 1e-9
"""Relative difference from a whole number below which degrees of freedom are that number."""


def f_quantile(p: Any, df_1: Any, df_2: Any) -> Any:
    """Return the value that F stays below with probability `p`; arrays are broadcast.

    Parameters
    ----------
    p : probability
    df_1, df_2 : degrees of freedom

    Examples
    --------
    >>> round(float(f_quantile(0.975, 2 + 7e-14, 2 + 1e-15)), 6)
    39.0
    """
    # scipy.stats gives the same numbers and takes a second to import.
    from scipy.special import fdtri

    return fdtri(*np.broadcast_arrays(_snapped(df_1), _snapped(df_2)), p)


def _snapped(df: Any) -> Any:
    """Return degrees of freedom, whole ones without their rounding error.

    At 2 + 7e-14 and 2 + 1e-15 degrees of freedom scipy's quantile of F is wrong by a quarter.
    """
    whole = np.round(df)
    with np.errstate(invalid="ignore"):  # infinite ones
        return np.where(np.abs(df - whole) <= _WHOLE * np.asarray(df), whole, df)

"""Modified large sample intervals: of sums, differences and ratios of expected mean squares.

For θ = Σ c_i λ_i with independent mean squares S_i, the interval ends are those of a large sample
interval, its variances modified so that the ends are exact where all but one, or two of opposite
sign, of the λ_i vanish (Graybill and Wang 1980 for sums; Ting, Burdick, Graybill, Jeyaratnam and
Lu 1990 for differences). A ratio ρ = a'λ/b'λ has as interval the ρ for which that of (a − ρb)'λ
holds 0; with two mean squares this is the exact interval from F.
"""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.uncertainty.mean_squares import MeanSquares

__all__ = ["linear_limits", "ratio_limits", "rests_on_two"]

_ENDLESS = 1e6
"""An upper limit beyond so many times the estimate is none: ∞."""


def linear_limits(
    squares: MeanSquares, weights: FloatArray, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return the limits of linear forms of the components, not cut at zero.

    Parameters
    ----------
    squares : mean squares that stand for the estimates
    weights : (m, k) of the components
    alpha : intervals have confidence 1 − alpha

    References
    ----------
    Graybill and Wang (1980), Journal of the American Statistical Association 75, 869-873; Ting,
    Burdick, Graybill, Jeyaratnam and Lu (1990), Journal of Statistical Computation and Simulation
    35, 135-143; Burdick and Graybill (1992), Confidence Intervals on Variance Components, sec.
    3.3.

    Examples
    --------
    >>> S = MeanSquares(
    ...     np.eye(1), np.array([0]), np.array([2.0]), np.array([10.0]), np.eye(1), np.zeros(1)
    ... )
    >>> low, high = linear_limits(S, np.array([[1.0]]), 0.05)
    >>> low.round(4), high.round(4)
    (array([0.9764]), array([6.1596]))
    """
    from vcomp.kernels.limits import lower_limits

    c = squares.coefficients(weights)
    terms, reach = c * squares.values, _reach(squares, alpha / 2.0)
    known = weights @ squares.known
    # A limit above is minus the lower limit of the opposite.
    return lower_limits(terms, *reach) + known, known - lower_limits(-terms, *reach)


def ratio_limits(
    squares: MeanSquares, a: FloatArray, b: FloatArray, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return the limits of ratios ρ = a'σ²/b'σ², cut at 0.

    Parameters
    ----------
    squares : mean squares that stand for the estimates
    a, b : (m, k) weights of the components
    alpha : intervals have confidence 1 − alpha

    Returns
    -------
    (m,) low, (m,) high; inf where the denominator may be zero

    References
    ----------
    Burdick and Graybill (1992), sec. 3.4, on ratios; Fieller (1954) for the inversion.

    Examples
    --------
    >>> S = MeanSquares(
    ...     np.eye(2), np.arange(2), np.array([8.0, 2.0]), np.array([9.0, 12.0]), np.eye(2),
    ...     np.zeros(2),
    ... )
    >>> low, high = ratio_limits(S, np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), 0.05)
    >>> low.round(4), high.round(4)  # 4 / F(9, 12) and 4 F(12, 9)
    (array([1.1642]), array([15.4729]))
    """
    from vcomp.kernels.limits import ratios_at_zero

    reach = _reach(squares, alpha / 2.0)
    A, B = (squares.coefficients(w) * squares.values for w in (a, b))
    known = a @ squares.known, b @ squares.known
    return ratios_at_zero(A, B, *known, 1.0, *reach), ratios_at_zero(A, B, *known, -1.0, *reach)


def rests_on_two(squares: MeanSquares, a: FloatArray, b: FloatArray) -> bool:
    """Return whether ratios a'σ²/b'σ² depend on two independent mean squares of a balanced design.

    Then :func:`ratio_limits` are exact.
    """
    used = (squares.coefficients(a) != 0.0) | (squares.coefficients(b) != 0.0)
    scale = np.maximum(np.abs(squares.coefficients(a)), np.abs(squares.coefficients(b)))
    used &= scale * squares.values > 1e-9 * (scale * squares.values).max(axis=1, keepdims=True)
    whole = np.abs(squares.df - np.round(squares.df)) < 1e-5 * squares.df
    correlated = (squares.correlation != 0.0).sum(axis=1) > 1
    independent = whole & ~correlated
    return bool((used.sum(axis=1) <= 2).all() and not (used & ~independent).any())


def _reach(
    squares: MeanSquares, tail: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return how far limits with a tail probability lie from sums of mean squares.

    Returns
    -------
    (K,) G and (K,) H, of positive and negative terms; (K, K) what pairs of opposite and of equal
    signs add; (K, K) correlations, (0, 0) where there are none

    References
    ----------
    Correlations enter as in intervals of sums of correlated estimates from the limits of each: Zou
    (2008), Statistics in Medicine 27, 5693-5702.
    """
    nu, R = squares.df, squares.correlation
    with np.errstate(divide="ignore", over="ignore"):
        G = 1.0 - nu / _chi2(nu, tail)
        H = nu / _chi2(nu, 1.0 - tail) - 1.0
    # With a small fraction of a degree of freedom the quantile is below the mean.
    G = np.where(G > 0.0, G, 1.0)
    H = np.where((H > 0.0) & (H < _ENDLESS), H, np.inf)
    off = R - np.eye(len(R))
    # The corrections of pairs are made as far as these are independent.
    independent = np.where(np.eye(len(R), dtype=bool), 0.0, 1.0 - np.abs(R))
    opposite = _opposite(nu, G, H, tail) * independent
    same = _same(nu, G, tail) * independent
    return G, H, opposite, same, off if off.any() else np.zeros((0, 0))


def _opposite(nu: FloatArray, G: FloatArray, H: FloatArray, tail: float) -> FloatArray:
    """Return what a pair of opposite signs adds, (K, K): the row's coefficient is positive."""
    F = _f_quantile(nu[:, None], nu[None, :], tail)
    finite = np.where(np.isfinite(H), H, 0.0)
    # Quantiles of tiny fractions of a degree of freedom overflow, and correct nothing.
    with np.errstate(all="ignore"):
        pair = (np.square(F - 1.0) - np.square(G[:, None] * F) - np.square(finite)) / F
    return np.where(np.isfinite(pair), pair, 0.0)


def _same(nu: FloatArray, G: FloatArray, tail: float) -> FloatArray:
    """Return what a pair of positive signs adds beside a negative one, half on either side."""
    n, m = nu[:, None], nu[None, :]
    with np.errstate(all="ignore"):
        ratio = (n + m) / _chi2(n + m, tail)
        both = np.square(1.0 - ratio) * ((n + m) / n) * ((n + m) / m)
        pair = both - np.square(G)[:, None] * (n / m) - np.square(G)[None, :] * (m / n)
    return 0.5 * np.where(np.isfinite(pair), pair, 0.0)


def _chi2(df: FloatArray, tail: float) -> FloatArray:
    """Return what χ² exceeds with probability `tail`."""
    from scipy.special import chdtri

    quantile: FloatArray = chdtri(df, tail)
    return quantile


def _f_quantile(df_1: FloatArray, df_2: FloatArray, tail: float) -> FloatArray:
    """Return what F exceeds with probability `tail`."""
    from scipy.special import fdtri

    quantile: FloatArray = fdtri(*np.broadcast_arrays(df_1, df_2), 1.0 - tail)
    return quantile

"""Intervals from mean squares in any design: modified large samples.

They need independent mean squares S_i with ν_i S_i/λ_i ~ χ². For any estimator they are made from
the covariance matrix of the components (docs/explanation/mathematics.md, eq. (10.4)): for balanced
designs they are the mean squares of the analysis of variance, each divided by the number of scores
in a group of its term; for unbalanced ones they are correlated, and the correlations enter the
intervals. Limits are eqs. (10.5) and (10.6), computed for many quantities at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray
from vcomp.inference.intervals.component_squares import MeanSquares
from vcomp.inference.quantities import Quantities
from vcomp.numerics import f_quantile

_CANCELLED = 1e-9
"""Terms of a sum below this fraction of the largest are rounding error."""

_ROUNDS = 180
"""Steps that close a bracket of [0, 1], which is halved at least every third step."""

_LAST_BIT = 4e-16

_NEAR = 1e-10
"""Relative size of a step below which the next would be rounding error."""

_AT_ONCE = 4096
"""Forms worked on at once, whose terms fit into a cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """How far limits reach from an estimate.

    Attributes
    ----------
    positive, negative : (K,) G and H of positive and negative terms; H may be inf
    opposite : (K, K) coefficient of a positive term (row) and a negative one (column)
    same : (K, K) coefficient of two positive terms, used if there are negative ones; symmetric,
        with zeros on the diagonal
    related : (K, K) correlations with zeros on the diagonal; (0, 0) if there are none
    """

    positive: FloatArray
    negative: FloatArray
    opposite: FloatArray
    same: FloatArray
    related: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Expansion:
    """The lower limits T − √V of sums, around a point.

    Attributes
    ----------
    T, V, q, V1, V2 : (m,) each; at a distance s a limit is T − q s − √(V − V1 s + V2 s²), as long
        as no term changes sign
    """

    T: FloatArray
    V: FloatArray
    q: FloatArray
    V1: FloatArray
    V2: FloatArray

    @property
    def limit(self) -> FloatArray:
        return self.T - np.sqrt(self.V)

    def moved(self, known: FloatArray, slope: FloatArray) -> _Expansion:
        """Return the expansion of sums with a part that is known without error, and its slope."""
        return _Expansion(self.T + known, self.V, self.q + slope, self.V1, self.V2)


def lower_limits(terms: FloatArray, reach: Reach) -> FloatArray:
    """Return the lower limits of sums of K terms, each a mean square with its coefficient.

    Parameters
    ----------
    terms : (m, K)
    reach : of the limits
    """
    found = np.empty(len(terms))
    for first in range(0, len(terms), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        found[some] = _expanded(terms[some], np.zeros_like(terms[some]), reach).limit
    return found


def ratios_at_zero(
    top: FloatArray,
    bottom: FloatArray,
    known_top: FloatArray,
    known_bottom: FloatArray,
    sign: float,
    reach: Reach,
) -> FloatArray:
    """Return for each row the ratio ρ at which a limit of top − ρ bottom is zero.

    Parameters
    ----------
    top, bottom : (m, K) terms of numerators and denominators
    known_top, known_bottom : (m,) parts of both that are known without error
    sign : 1 for the lower limit of the ratio, −1 for the upper one
    reach : of the limits

    Returns
    -------
    (m,) ρ; 0 if the limit is nowhere positive, inf if the denominator may be zero
    """
    # With ρ = t/(1 − t) size_a/size_b the form is (1 − t) a − t b, a and b of size 1.
    size_a = np.abs(known_top) + np.abs(top).sum(axis=1)
    size_b = np.abs(known_bottom) + np.abs(bottom).sum(axis=1)
    size_b = np.where(size_b > 0.0, size_b, 1.0)
    divisor = np.where(size_a > 0.0, size_a, 1.0)
    known_a = sign * known_top / divisor
    known_d = known_a + sign * known_bottom / size_b
    t = np.empty(len(top))
    for first in range(0, len(top), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        a = sign * top[some] / divisor[some, None]
        d = a + sign * bottom[some] / size_b[some, None]
        t[some] = _crossings(a, d, known_a[some], known_d[some], sign, reach)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(t < 1.0 - _LAST_BIT, size_a / size_b * t / (1.0 - t), np.inf)


def _crossings(
    a: FloatArray,
    d: FloatArray,
    known_a: FloatArray,
    known_d: FloatArray,
    sign: float,
    reach: Reach,
) -> FloatArray:
    """Return the t in [0, 1] at which the limits L of a − t d change sign, else an end.

    Between two t at which a term changes sign, L is T − √V with a linear T and a quadratic V, so
    that the next t is a root of a quadratic equation. If it has none, the bracket is bisected.
    """
    at_low = _expanded(a, d, reach).limit + known_a
    at_high = _expanded(a - d, d, reach).limit + known_a - known_d
    found = np.where(sign * at_low > 0.0, 1.0, 0.0)
    rows = np.flatnonzero((sign * at_low > 0.0) & (sign * at_high < 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):  # infinite limits, and rows that are left
        t = (at_low / (at_low - at_high))[rows]
    t = np.where(np.isfinite(at_low[rows]) & np.isfinite(at_high[rows]), t, 0.5)
    low, high, width = np.zeros(rows.size), np.ones(rows.size), np.ones(rows.size)
    for step in range(_ROUNDS if rows.size else 0):
        here = _expanded(a[rows] - t[:, None] * d[rows], d[rows], reach)
        here = here.moved(known_a[rows] - t * known_d[rows], known_d[rows])
        L = here.limit
        above = sign * L > 0.0
        low, high = np.where(above, t, low), np.where(above, high, t)
        s = _steps(here, low - t, high - t)
        near = np.abs(s) <= _NEAR * t
        ended = near | (L == 0.0) | (high - low <= _LAST_BIT * high)
        found[rows] = np.where(near, t + s, t)
        # If three steps have not halved the bracket it is bisected.
        slow = np.zeros(rows.size, dtype=bool)
        if step % 3 == 2:
            slow, width = high - low > 0.5 * width, high - low
        t = np.where(slow | np.isnan(s), 0.5 * (low + high), t + s)
        rows, t, low, high, width = (v[~ended] for v in (rows, t, low, high, width))
        if not rows.size:
            break
    found[rows] = t
    return found


def _steps(at: _Expansion, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the s between two ends with T − q s = √(V − V1 s + V2 s²), or nan.

    Of two such s it is the one nearer to zero.
    """
    with np.errstate(all="ignore"):
        root = np.sqrt(at.V)
        A, B = at.q * at.q - at.V2, 0.5 * at.V1 - at.T * at.q
        C = (at.T - root) * (at.T + root)
        # For T² = 0 both roots are equal, which rounding must not change.
        D = np.where(at.V > 0.0, B * B - A * C, 0.0)
        far = -(B + np.copysign(np.sqrt(np.maximum(D, 0.0)), B))
        one, other = C / far, far / A
        is_one = (low <= one) & (one <= high) & (at.T - at.q * one >= -_NEAR * np.abs(at.T))
        is_other = (A != 0.0) & (low <= other) & (other <= high)
        is_other &= at.T - at.q * other >= 0.0
        s = np.where(is_one, one, np.where(is_other, other, np.nan))
        return np.where(np.isinf(at.V) | (D < 0.0) | (far == 0.0), np.nan, s)


def _expanded(x: FloatArray, d: FloatArray, reach: Reach) -> _Expansion:
    """Return the lower limits of the sums of x, which change by −d, expanded around x."""
    # Terms that cancel to rounding error are zero and have no sign.
    least = _CANCELLED * np.abs(x).max(axis=1, initial=0.0)
    x = np.where(np.abs(x) > least[:, None], x, 0.0)
    plus, minus = x > 0.0, x < 0.0
    d = np.where(x != 0.0, d, 0.0)
    G, H = reach.positive, np.where(np.isinf(reach.negative), 0.0, reach.negative)
    endless = (minus & np.isinf(reach.negative)).any(axis=1)
    scale = np.where(plus, G, np.where(minus, H, 0.0))
    forms = list(_products(scale * x, scale * d))
    if minus.any():
        # Of a single positive term `same` has nothing.
        each = minus.any(axis=1) / np.maximum(plus.sum(axis=1) - 1, 1)
        x_plus, d_plus = np.where(plus, x, 0.0), np.where(plus, d, 0.0)
        x_minus, d_minus = np.where(minus, x, 0.0), np.where(minus, d, 0.0)
        xo, do = x_plus @ reach.opposite, d_plus @ reach.opposite
        both = _products(x_plus, d_plus, x_plus @ reach.same, d_plus @ reach.same)
        forms = [form + each * own for form, own in zip(forms, both, strict=True)]
        forms[0] -= (xo * x_minus).sum(axis=1)
        forms[1] -= (xo * d_minus + do * x_minus).sum(axis=1)
        forms[2] -= (do * d_minus).sum(axis=1)
    if reach.related.size:
        y, e = scale * x, scale * d
        both = _products(y, e, y @ reach.related, e @ reach.related)
        forms = [form + own for form, own in zip(forms, both, strict=True)]
    # Corrections of pairs can make a variance negative; it is then set to zero.
    is_zero = endless | (forms[0] < 0.0)
    V, V1, V2 = (np.where(is_zero, 0.0, form) for form in forms)
    T, q = (np.where(endless, 0.0, v.sum(axis=1)) for v in (x, d))
    return _Expansion(T, np.where(endless, np.inf, V), q, V1, V2)


def _products(
    x: FloatArray, d: FloatArray, Cx: FloatArray | None = None, Cd: FloatArray | None = None
) -> Iterator[FloatArray]:
    """Yield x'Cx, x'Cd + d'Cx and d'Cd of every row, C symmetric, or the unit matrix."""
    Cx, Cd = (x if Cx is None else Cx), (d if Cd is None else Cd)
    yield (x * Cx).sum(axis=1)
    yield 2.0 * (d * Cx).sum(axis=1)
    yield (d * Cd).sum(axis=1)


_ENDLESS = 1e6
"""An upper limit beyond this multiple of the estimate is set to ∞."""


def linear_limits(
    squares: MeanSquares, weights: FloatArray, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return the limits of linear forms of the components, eq. (10.6), not cut at zero.

    Parameters
    ----------
    squares : mean squares that represent the estimates
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
    c = squares.coefficients(weights)
    terms, reach = c * squares.values, _reach(squares, alpha / 2.0)
    known = weights @ squares.known
    # The upper limit is minus the lower limit of the negated form.
    return lower_limits(terms, reach) + known, known - lower_limits(-terms, reach)


def ratio_limits(
    squares: MeanSquares, a: FloatArray, b: FloatArray, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return the limits of ratios ρ = a'σ²/b'σ², cut at 0.

    Parameters
    ----------
    squares : mean squares that represent the estimates
    a, b : (m, k) weights of the components
    alpha : intervals have confidence 1 − alpha

    Returns
    -------
    (m,) low, (m,) high; inf if the denominator may be zero

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
    reach = _reach(squares, alpha / 2.0)
    A, B = (squares.coefficients(w) * squares.values for w in (a, b))
    known = a @ squares.known, b @ squares.known
    return ratios_at_zero(A, B, *known, 1.0, reach), ratios_at_zero(A, B, *known, -1.0, reach)


def limits_of(squares: MeanSquares, q: Quantities, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Return the limits of quantities; those of non-negative ones are cut at zero.

    Parameters
    ----------
    squares : independent or correlated
    q : of the components
    alpha : the intervals have confidence 1 − alpha
    """
    if q.form in ("linear", "root"):
        low, high = linear_limits(squares, q.a, alpha)
    else:
        low, high = ratio_limits(squares, q.a, q.denominator, alpha)
    signed = (q.a < 0.0).any(axis=1) if q.form == "linear" else np.zeros(len(q), dtype=bool)
    low = np.where(signed, low, np.maximum(low, 0.0))
    high = np.where(signed, high, np.maximum(high, 0.0))
    if q.form == "share":
        return _share(low), _share(high)
    return (np.sqrt(low), np.sqrt(high)) if q.form == "root" else (low, high)


def _share(ratio: FloatArray) -> FloatArray:
    """Return ρ/(1 + ρ), 1 for an infinite ρ."""
    endless = np.isinf(ratio)
    safe = np.where(endless, 0.0, ratio)
    return np.where(endless, 1.0, safe / (1.0 + safe))


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


def _reach(squares: MeanSquares, tail: float) -> Reach:
    """Return G, H and the pair coefficients of eqs. (10.5) and (10.5a) for a tail probability.

    References
    ----------
    Correlations enter as in intervals of sums of correlated estimates from the limits of each: Zou
    (2008), Statistics in Medicine 27, 5693-5702.
    """
    from scipy.special import chdtri

    nu, R = squares.df, squares.correlation
    above = nu if squares.df_upper is None else squares.df_upper
    with np.errstate(divide="ignore", over="ignore"):
        G = 1.0 - nu / chdtri(nu, tail)
        H = above / chdtri(above, 1.0 - tail) - 1.0
    # With a small fraction of a degree of freedom the quantile is below the mean.
    G = np.where(G > 0.0, G, 1.0)
    H = np.where((H > 0.0) & (H < _ENDLESS), H, np.inf)
    off = R - np.eye(len(R))
    # The corrections of pairs are scaled by 1 − |r|.
    independent = np.where(np.eye(len(R), dtype=bool), 0.0, 1.0 - np.abs(R))
    opposite = _opposite(nu, above, G, H, tail) * independent
    same = _same(nu, G, tail) * independent
    return Reach(G, H, opposite, same, off if off.any() else np.zeros((0, 0)))


def _opposite(
    nu: FloatArray, above: FloatArray, G: FloatArray, H: FloatArray, tail: float
) -> FloatArray:
    """Return G_ij of eq. (10.5), (K, K): the row's term is positive, the column's negative."""
    F = f_quantile(1.0 - tail, nu[:, None], above[None, :])
    finite = np.where(np.isfinite(H), H, 0.0)
    # Quantiles overflow for tiny degrees of freedom; the correction is then zero.
    with np.errstate(all="ignore"):
        pair = (np.square(F - 1.0) - np.square(G[:, None] * F) - np.square(finite)) / F
    return np.where(np.isfinite(pair), pair, 0.0)


def _same(nu: FloatArray, G: FloatArray, tail: float) -> FloatArray:
    """Return G*_ij/2 of eq. (10.5a), (K, K), the correction of a pair of positive terms."""
    from scipy.special import chdtri

    n, m = nu[:, None], nu[None, :]
    with np.errstate(all="ignore"):
        ratio = (n + m) / chdtri(n + m, tail)
        both = np.square(1.0 - ratio) * ((n + m) / n) * ((n + m) / m)
        pair = both - np.square(G)[:, None] * (n / m) - np.square(G)[None, :] * (m / n)
    return 0.5 * np.where(np.isfinite(pair), pair, 0.0)

"""Modified large sample intervals: of sums, differences and ratios of expected mean squares.

For θ = Σ c_i λ_i with independent mean squares S_i, the interval ends are those of a large sample
interval, its variances modified so that the ends are exact where all but one, or two of opposite
sign, of the λ_i vanish (Graybill and Wang 1980 for sums; Ting, Burdick, Graybill, Jeyaratnam and
Lu 1990 for differences). A ratio ρ = a'λ/b'λ has as interval the ρ for which that of (a − ρb)'λ
holds 0; with two mean squares this is the exact interval from F.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.uncertainty.mean_squares import MeanSquares

__all__ = ["linear_limits", "ratio_limits", "rests_on_two"]

_ENDLESS = 1e6
"""An upper limit beyond so many times the estimate is none: ∞."""

_CANCELLED = 1e-9
"""Terms of a form below this share of the largest are what rounding leaves of zero."""

_ROUNDS = 60
"""Halvings after which any bracket of [0, 1] is shut to the last bit."""

_NEAR, _ZERO = 1e-10, 1e-14
"""A root is found where steps and values, of forms scaled to 1, are smaller: steps of a secant
method then have all digits."""


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
    c = squares.coefficients(weights)
    bound = _Bound(squares, alpha / 2.0)
    known = weights @ squares.known
    return bound.lower(c) + known, known - bound.lower(-c)


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
    bound = _Bound(squares, alpha / 2.0)
    A, B = squares.coefficients(a), squares.coefficients(b)
    top, bottom = np.abs(A) @ squares.values, np.abs(B) @ squares.values
    known_a, known_b = a @ squares.known, b @ squares.known
    top, bottom = top + np.abs(known_a), bottom + np.abs(known_b)
    scaled = [A / _column(top), B / _column(bottom), known_a / _safe(top), known_b / _safe(bottom)]

    def end(sign: float) -> FloatArray:
        def above(t: FloatArray, rows: BoolArray) -> FloatArray:
            A_, B_, ka, kb = (part[rows] for part in scaled)
            c = (1.0 - t)[:, None] * A_ - t[:, None] * B_
            return bound.lower(sign * c) + sign * ((1.0 - t) * ka - t * kb)

        return _crossing(above, len(A), falls=sign > 0.0)

    # ρ = t/(1 − t) times what the sizes of numerator and denominator suggest.
    size = top / _safe(bottom)
    with np.errstate(divide="ignore"):
        low, high = (size * t / (1.0 - t) for t in (end(1.0), end(-1.0)))
    return np.where(top > 0.0, low, 0.0), np.where(top > 0.0, high, 0.0)


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


@dataclass
class _Bound:
    """The lower limits of linear forms of mean squares, each with a tail probability."""

    squares: MeanSquares
    tail: float

    def lower(self, c: FloatArray) -> FloatArray:
        """Return the lower limit of c'λ for (m, K) coefficients.

        A limit above is minus the lower limit of −c'λ.
        """
        G, H = self._G, self._H
        x = c * self.squares.values
        # What cancels to rounding has no sign: sums and differences have other formulas.
        x = np.where(np.abs(x) > _CANCELLED * np.abs(x).max(axis=1, keepdims=True), x, 0.0)
        plus, minus = np.maximum(x, 0.0), np.maximum(-x, 0.0)
        down = plus * G
        up = np.where(minus > 0.0, minus * np.where(minus > 0.0, H, 0.0), 0.0)
        V = np.square(down).sum(axis=1) + np.square(up).sum(axis=1)
        with np.errstate(invalid="ignore", over="ignore"):
            V = V + np.einsum("mi,ij,mj->m", plus, self._opposite, minus, optimize=True)
            V = V + self._same_sign(plus, minus)
            if self._related is not None:
                away = down - up
                V = V + np.einsum("mi,ij,mj->m", away, self._related, away, optimize=True)
        endless = np.isinf(up).any(axis=1)
        V = np.where(endless, np.inf, V)
        limit: FloatArray = x.sum(axis=1) - np.sqrt(np.maximum(V, 0.0))
        return limit

    @cached_property
    def _G(self) -> FloatArray:
        """1 − 1/F(α; ν, ∞)."""
        nu = self.squares.df
        with np.errstate(divide="ignore", over="ignore"):
            G = 1.0 - nu / _chi2(nu, self.tail)
        # With a small fraction of a degree of freedom the quantile is below the mean.
        return np.where(G > 0.0, G, 1.0)

    @cached_property
    def _H(self) -> FloatArray:
        """1/F(1 − α; ν, ∞) − 1."""
        nu = self.squares.df
        with np.errstate(divide="ignore", over="ignore"):
            H = nu / _chi2(nu, 1.0 - self.tail) - 1.0
        return np.where((H > 0.0) & (H < _ENDLESS), H, np.inf)

    @cached_property
    def _opposite(self) -> FloatArray:
        """What a pair of opposite signs adds, (K, K): the row's coefficient is positive."""
        nu = self.squares.df
        F = _f_quantile(nu[:, None], nu[None, :], self.tail)
        H = np.where(np.isfinite(self._H), self._H, 0.0)
        # Quantiles of tiny fractions of a degree of freedom overflow, and correct nothing.
        with np.errstate(all="ignore"):
            G_pair = (np.square(F - 1.0) - np.square(self._G[:, None] * F) - np.square(H)) / F
        pair: FloatArray = np.where(np.isfinite(G_pair), G_pair, 0.0) * self._independent
        return pair

    @cached_property
    def _same(self) -> FloatArray:
        """What a pair of positive signs adds, (K, K), half of it on either side."""
        nu = self.squares.df
        n, m = nu[:, None], nu[None, :]
        with np.errstate(all="ignore"):
            ratio = (n + m) / _chi2(n + m, self.tail)
            both = np.square(1.0 - ratio) * ((n + m) / n) * ((n + m) / m)
            G2 = np.square(self._G)
            pair = both - G2[:, None] * (n / m) - G2[None, :] * (m / n)
        np.fill_diagonal(pair, 0.0)
        half: FloatArray = 0.5 * np.where(np.isfinite(pair), pair, 0.0) * self._independent
        return half

    def _same_sign(self, plus: FloatArray, minus: FloatArray) -> FloatArray:
        """Return what pairs of positive signs add, where there are negative ones too."""
        n_plus = (plus > 0.0).sum(axis=1)
        pairs = np.einsum("mi,ij,mj->m", plus, self._same, plus, optimize=True)
        used = (n_plus > 1) & (minus > 0.0).any(axis=1)
        return np.where(used, pairs / np.maximum(n_plus - 1, 1), 0.0)

    @cached_property
    def _independent(self) -> FloatArray:
        """How far pairs are independent, for which alone the corrections of pairs are made."""
        R = self.squares.correlation
        return np.where(np.eye(len(R), dtype=bool), 0.0, 1.0 - np.abs(R))

    @cached_property
    def _related(self) -> FloatArray | None:
        """The correlations, None where there are none.

        They enter as in intervals of sums of correlated estimates from the limits of each (Zou
        2008, Statistics in Medicine 27, 5693-5702).
        """
        off = self.squares.correlation - np.eye(len(self.squares.df))
        return off if off.any() else None


def _crossing(
    above: Callable[[FloatArray, BoolArray], FloatArray], m: int, *, falls: bool
) -> FloatArray:
    """Return where in [0, 1] functions that are monotone change sign, an end where they do not.

    Parameters
    ----------
    above : values of the functions of some rows at t
    m : number of functions
    falls : positive at 0, or negative there
    """
    every = np.ones(m, dtype=bool)
    sign = 1.0 if falls else -1.0
    low, high = np.zeros(m), np.ones(m)
    f_low, f_high = sign * above(low, every), sign * above(high, every)
    never, always = ~(f_low > 0.0), ~(f_high < 0.0)
    active = ~(never | always)
    side, found = np.zeros(m), np.zeros(m)
    width = np.ones(m)
    for step in range(3 * _ROUNDS):
        if not active.any():
            break
        lo, hi, fl, fh = low[active], high[active], f_low[active], f_high[active]
        with np.errstate(invalid="ignore"):
            t = (lo * fh - hi * fl) / (fh - fl)
        # Secants that have not halved the bracket in three steps give way to halving it.
        slow = (hi - lo > 0.5 * width[active]) if step % 3 == 2 else np.zeros(lo.size, dtype=bool)
        usable = np.isfinite(t) & (t > lo) & (t < hi) & ~slow
        t = np.where(usable, t, 0.5 * (lo + hi))
        f = sign * above(t, active)
        up, last = f > 0.0, side[active]
        still = (np.abs(t - found[active]) > _NEAR * t) | (np.abs(f) > _ZERO)
        still &= (hi - lo > 4e-16 * hi) & (f != 0.0)
        if step % 3 == 2:
            width[active] = hi - lo
        low[active], high[active] = np.where(up, t, lo), np.where(up, hi, t)
        f_low[active] = np.where(up, f, _illinois(fl, last < 0))
        f_high[active] = np.where(up, _illinois(fh, last > 0), f)
        side[active], found[active] = np.where(up, 1.0, -1.0), t
        active[active] = still
    return np.where(never, 0.0, np.where(always, 1.0, found))


def _illinois(value: FloatArray, again: BoolArray) -> FloatArray:
    """Return the value of the end that stays, halved if it has stayed before (Illinois)."""
    return np.where(again, 0.5 * value, value)


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


def _safe(x: FloatArray) -> FloatArray:
    return np.where(x > 0.0, x, 1.0)


def _column(x: FloatArray) -> FloatArray:
    return _safe(x)[:, None]

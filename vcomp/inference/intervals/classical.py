"""Classical intervals from mean squares: modified large samples in any design, and two-way F.

Modified large samples need independent mean squares S_i with ν_i S_i/λ_i ~ χ². For any estimator
they are made from the covariance matrix of the components (docs/explanation/mathematics.md, eq.
(10.4)): for balanced designs they are the mean squares of the analysis of variance, each divided
by the number of scores in a group of its term; for unbalanced ones they are correlated, and the
correlations enter the intervals. Limits are eqs. (10.5) and (10.6). Complete two-way tables have
the intervals of Feldt, eq. (10.7), and of Arteaga, Jeyaratnam and Franklin, eq. (10.8).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.inference.intervals.interval_ends import Reach, lower_limits, ratios_at_zero
from vcomp.inference.quantities import TwoWayMeanSquares, VarianceComponents
from vcomp.numerics import solve

_KNOWN = 1e12
"""Largest degrees of freedom: those of a component known to one part in a million."""

_TINY = 1e-9
"""Smallest ratio of a mean square to its expectation: rounding, or unbalanced data, can make mean
squares negative."""


_NOTHING = 1e-9
"""Expectation of a mean square, in its standard errors, below which it is zero: where components
cancel, rounding leaves some 1e-16, of one sign or the other. Such a mean square has no degrees of
freedom (2e-18)."""


@dataclass(frozen=True, slots=True, eq=False)
class MeanSquares:
    """Mean squares with their degrees of freedom.

    Attributes
    ----------
    basis : (K, K) coefficients in the λ of the K estimated components
    places : (K,) positions of these components among all k
    values : (K,) the mean squares S
    df : (K,) degrees of freedom ν
    correlation : (K, K) of the mean squares; the unit matrix for balanced designs
    known : (k,) values of the components that were not estimated, 0 for others
    df_upper : (K,) degrees of freedom of upper limits, where they differ from those of lower ones
    """

    basis: FloatArray
    places: LongArray
    values: FloatArray
    df: FloatArray
    correlation: FloatArray
    known: FloatArray
    df_upper: FloatArray | None = None

    def coefficients(self, weights: FloatArray) -> FloatArray:
        """Return c with w'σ² = c'λ + known components, (m, K), for (m, k) weights w."""
        # Solved for single components first: there are many more weights than components.
        of_components = solve(self.basis, np.eye(len(self.basis)))
        return np.asarray(weights[:, self.places] @ of_components)

    def at(self, components: FloatArray) -> MeanSquares:
        """Return the mean squares raised to those of (k,) components, with the same df."""
        return replace(self, values=np.maximum(self.basis @ components[self.places], self.values))


def mean_squares(components: VarianceComponents) -> MeanSquares | None:
    """Return the mean squares that represent estimated components, eq. (10.4).

    If a component is at its bound they are those of the estimates without bounds.

    Returns
    -------
    None if there is no covariance matrix, or a mean square is zero in expectation: it has no
    degrees of freedom then

    References
    ----------
    Satterthwaite (1946), Biometrics Bulletin 2, 110-114; Burdick and Graybill (1992), Confidence
    Intervals on Variance Components, chap. 3, for balanced designs.

    Examples
    --------
    A balanced p × i design with 11 × 21 scores:

    >>> S = np.array([22.0, 13.0, 2.0])  # of p, i, pi; df 10, 20, 200
    >>> to_components = np.array([[1, 0, -1], [0, 1, -1], [0, 0, 1]]) / [[21.0], [11.0], [1.0]]
    >>> cov = to_components @ np.diag(2 * S**2 / [10, 20, 200]) @ to_components.T
    >>> facets = tuple(map(frozenset, ("p", "i", "pi")))
    >>> g = VarianceComponents(("p", "i", "Residual"), facets, to_components @ S, cov)
    >>> mean_squares(g).df.round(6)
    array([ 10.,  20., 200.])
    """
    estimates, cov = components.values, components.cov
    if components.without_bounds is not None:
        estimates, cov = components.without_bounds
    if cov is None:
        return None
    free = np.isfinite(np.diagonal(cov)) & (np.diagonal(cov) > 0.0)
    if not free.any():
        return None
    places = np.flatnonzero(free)
    inside = cov[np.ix_(free, free)]
    basis = _basis(inside, _is_finer(components.facets, free))
    expected = _expected(basis, components.values[free])
    spread = basis @ inside @ basis.T
    values = basis @ estimates[free]
    if not np.isfinite(spread).all() or (expected <= _NOTHING * _errors(spread)).any():
        return None
    # Rounding error may leave a variance at zero or below.
    variances = np.maximum(np.diagonal(spread), 2.0 * expected**2 / _KNOWN)
    df = 2.0 * expected**2 / variances
    return MeanSquares(
        basis,
        places,
        np.maximum(values, _TINY * expected),
        df,
        _correlation(spread, variances),
        np.where(free, 0.0, components.values),
    )


def _errors(spread: FloatArray) -> FloatArray:
    """Return the standard errors of mean squares, zero where rounding left a negative variance."""
    return np.sqrt(np.maximum(np.diagonal(spread), 0.0))


def expected_squares(components: VarianceComponents, squares: MeanSquares) -> FloatArray:
    """Return the expectations of mean squares at the estimates of the components, (K,)."""
    return _expected(squares.basis, components.values[squares.places])


def _expected(basis: FloatArray, values: FloatArray) -> FloatArray:
    expected: FloatArray = basis @ values
    # Only in unbalanced designs can negative estimates make an expectation negative.
    return np.where(expected > 0.0, expected, basis @ np.maximum(values, 0.0))


def unbiased_covariance(components: VarianceComponents) -> FloatArray | None:
    """Return the covariance matrix of the components by Brennan's normal procedure.

    The variance of a mean square S on ν degrees of freedom is estimated by 2S²/(ν + 2), which is
    unbiased, instead of 2S²/ν. Exact for balanced designs; in others it uses the mean squares that
    represent the estimates.

    Parameters
    ----------
    components : of the G-study, with their covariance

    Returns
    -------
    (k, k), nan where a component was not estimated; None if there is no covariance matrix

    References
    ----------
    Brennan (2001), Generalizability Theory, eq. 6.1: the standard errors that GENOVA prints, and
    those of Bodoff (2008).

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> one = from_components({"p": 2.0, "Residual": 4.0}, cov=np.diag([0.5, 3.2])).components
    >>> unbiased_covariance(one)[1, 1].round(4)  # 2 × 4²/10 becomes 2 × 4²/12
    np.float64(2.6667)
    """
    squares = mean_squares(components)
    if squares is None:
        return None
    to_components = solve(squares.basis, np.eye(len(squares.basis)))
    scale = squares.values * np.sqrt(2.0 / (squares.df + 2.0))
    inside = to_components @ (squares.correlation * np.outer(scale, scale)) @ to_components.T
    covariance = np.full((len(components.values),) * 2, np.nan)
    covariance[np.ix_(squares.places, squares.places)] = inside
    return covariance


def _is_finer(facets: tuple[frozenset[str], ...], free: BoolArray) -> BoolArray:
    """Return whether the column's term is finer than the row's."""
    kept = [f for f, used in zip(facets, free, strict=True) if used]
    return np.array([[t < u for u in kept] for t in kept], dtype=bool)


def _basis(cov: FloatArray, finer: BoolArray) -> FloatArray:
    """Return the coefficients b of the components in the λ, eq. (10.4), none negative."""
    scale = np.sqrt(np.diagonal(cov))
    R = cov / np.outer(scale, scale)
    basis = np.eye(len(cov))
    for t, below in enumerate(finer):
        used = np.flatnonzero(below)
        while used.size:
            b = -np.linalg.lstsq(R[np.ix_(used, used)], R[used, t], rcond=1e-12)[0]
            if b.min() >= 0.0:
                basis[t, used] = b * scale[t] / scale[used]
                break
            used = np.delete(used, int(np.argmin(b)))
    return basis


def _correlation(spread: FloatArray, variances: FloatArray) -> FloatArray:
    """Return the correlations; those at rounding error are zero."""
    scale = np.sqrt(variances)
    R = np.clip(spread / np.outer(scale, scale), -1.0, 1.0)
    R = np.where(np.abs(R) < _TINY, 0.0, R)
    np.fill_diagonal(R, 1.0)
    return R


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
    nu, R = squares.df, squares.correlation
    above = nu if squares.df_upper is None else squares.df_upper
    with np.errstate(divide="ignore", over="ignore"):
        G = 1.0 - nu / _chi2(nu, tail)
        H = above / _chi2(above, 1.0 - tail) - 1.0
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
    F = _f_quantile(nu[:, None], above[None, :], tail)
    finite = np.where(np.isfinite(H), H, 0.0)
    # Quantiles overflow for tiny degrees of freedom; the correction is then zero.
    with np.errstate(all="ignore"):
        pair = (np.square(F - 1.0) - np.square(G[:, None] * F) - np.square(finite)) / F
    return np.where(np.isfinite(pair), pair, 0.0)


def _same(nu: FloatArray, G: FloatArray, tail: float) -> FloatArray:
    """Return G*_ij/2 of eq. (10.5a), (K, K), the correction of a pair of positive terms."""
    n, m = nu[:, None], nu[None, :]
    with np.errstate(all="ignore"):
        ratio = (n + m) / _chi2(n + m, tail)
        both = np.square(1.0 - ratio) * ((n + m) / n) * ((n + m) / m)
        pair = both - np.square(G)[:, None] * (n / m) - np.square(G)[None, :] * (m / n)
    return 0.5 * np.where(np.isfinite(pair), pair, 0.0)


def _chi2(df: FloatArray, tail: float) -> FloatArray:
    """Return the value that χ² exceeds with probability `tail`."""
    from scipy.special import chdtri

    return chdtri(df, tail)


def _f_quantile(df_1: FloatArray, df_2: FloatArray, tail: float) -> FloatArray:
    """Return the value that F exceeds with probability `tail`."""
    from scipy.special import fdtri

    return fdtri(*np.broadcast_arrays(df_1, df_2), 1.0 - tail)


FELDT = "exact F of the mean squares (Feldt 1965)"
ARTEAGA = "approximate F of the mean squares (Arteaga, Jeyaratnam and Franklin 1982)"


def feldt_interval(table: TwoWayMeanSquares, alpha: float) -> tuple[float, float]:
    """Return the exact interval of ζ = σ²_s/σ²_e, eq. (10.7); Eρ² = n'ζ/(1 + n'ζ).

    Parameters
    ----------
    table : mean squares with the object of measurement as rows
    alpha : the interval has confidence 1 − alpha

    References
    ----------
    Feldt (1965), Psychometrika 30, 357-370; as eq. (8) of Urbano, Marrero and Martín (2013),
    SIGIR, where alpha is one tail: half of ours.

    Examples
    --------
    >>> trec3 = TwoWayMeanSquares("sys", "topic", 30, 50, 0.150737, 0.852955, 0.0101522)
    >>> low, high = feldt_interval(trec3, 0.05)
    >>> round(low, 4), round(high, 4)
    (0.1671, 0.5187)
    """
    df_s, df_q = table.n_rows - 1, table.n_columns - 1
    ratio = table.ms_rows / table.ms_residual

    def bound(tail: float) -> float:
        return (ratio / _upper_f(tail, df_s, df_s * df_q) - 1) / table.n_columns

    return bound(alpha / 2), bound(1 - alpha / 2)


def arteaga_interval(table: TwoWayMeanSquares, alpha: float) -> tuple[float, float]:
    """Return an interval of Λ = σ²_s/(σ²_s + σ²_q + σ²_e), eq. (10.8), cut at 0.

    The limits of Φ = n'Λ/(1 + (n' − 1)Λ) follow from those of Λ.

    Parameters
    ----------
    table : mean squares with the object of measurement as rows
    alpha : the interval has confidence 1 − alpha

    References
    ----------
    Arteaga, Jeyaratnam and Franklin (1982), Communications in Statistics: Theory and Methods 11,
    1643-1658; as eq. (9) of Urbano, Marrero and Martín (2013), SIGIR. The second quantile in the
    denominator has df_q degrees of freedom: the printed equation says df_e, but only df_q gives
    the intervals of that paper's Table 1.

    Examples
    --------
    >>> trec3 = TwoWayMeanSquares("sys", "topic", 30, 50, 0.150737, 0.852955, 0.0101522)
    >>> low, high = arteaga_interval(trec3, 0.05)
    >>> round(low, 4), round(high, 4)
    (0.0376, 0.1283)
    """
    n_s, n_q = table.n_rows, table.n_columns
    df_s, df_q = n_s - 1, n_q - 1
    M_s, M_q, M_e = table.ms_rows, table.ms_columns, table.ms_residual
    unit = max(M_s, M_q, M_e) or 1.0  # squares of very small or large ones are not numbers
    M_s, M_q, M_e = M_s / unit, M_q / unit, M_e / unit

    def bound(tail: float) -> float:
        F_inf = _upper_f(tail, df_s, math.inf)
        F_e = _upper_f(tail, df_s, df_s * df_q)
        F_q = _upper_f(tail, df_s, df_q)
        top = M_s**2 - F_inf * M_s * M_e + (F_inf - F_e) * F_e * M_e**2
        L = top / (df_s * F_inf * M_s * M_e + F_q * M_s * M_q)
        # below −n_q/n_s the ratio would change sign; a share of variance is at least 0
        return n_s * max(L, 0.0) / (n_s * max(L, 0.0) + n_q)

    return bound(alpha / 2), bound(1 - alpha / 2)


def erho2_of(zeta: float, n: FloatArray) -> FloatArray:
    """Return Eρ² of n levels from ζ = σ²_s/σ²_e; 0 where ζ is negative.

    Parameters
    ----------
    zeta : ratio of variances, or an end of its interval
    n : (m,) levels of the other facet

    References
    ----------
    Urbano, Marrero and Martín (2013), eq. (10).

    Examples
    --------
    >>> import numpy as np
    >>> erho2_of(0.1, np.array([10.0, 90.0]))
    array([0.5, 0.9])
    """
    odds = n * max(zeta, 0.0)
    return odds / (1 + odds)


def phi_of(lambda_: float, n: FloatArray) -> FloatArray:
    """Return Φ of n levels from Λ = σ²_s/(σ²_s + σ²_q + σ²_e); 0 where Λ is negative.

    Parameters
    ----------
    lambda_ : ratio of variances, or an end of its interval
    n : (m,) levels of the other facet

    References
    ----------
    Urbano, Marrero and Martín (2013), eq. (11).

    Examples
    --------
    >>> import numpy as np
    >>> phi_of(0.1, np.array([1.0, 9.0]))
    array([0.1, 0.5])
    """
    positive = max(lambda_, 0.0)
    return n * positive / (1 + (n - 1) * positive)


@dataclass(frozen=True, slots=True)
class FInterval:
    """The interval of a coefficient of a complete two-way table from F quantiles.

    Attributes
    ----------
    words : name of the method
    limits : of the ratio of variances or mean squares, from a table and α
    of : the coefficient of n levels at an end of it
    """

    words: str
    limits: Callable[[TwoWayMeanSquares, float], tuple[float, float]]
    of: Callable[[float, FloatArray], FloatArray]


F_INTERVALS = {
    "Erho2": FInterval(FELDT, feldt_interval, erho2_of),
    "Phi": FInterval(ARTEAGA, arteaga_interval, phi_of),
}
"""By the names of the coefficients."""


def _upper_f(tail: float, df_1: float, df_2: float) -> float:
    """Return the value that F exceeds with probability `tail`."""
    # scipy.stats gives the same numbers and takes a second to import
    from scipy.special import chdtri, fdtri

    if math.isinf(df_2):
        return float(chdtri(df_1, tail)) / df_1
    return float(fdtri(df_1, df_2, 1 - tail))

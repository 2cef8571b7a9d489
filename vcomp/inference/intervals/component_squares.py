"""Mean squares of components: from a covariance matrix, or with degrees of freedom from the data.

Those of a covariance matrix are eq. (10.4) of docs/explanation/mathematics.md. The robust ones do
not rest on normal effects: the variance of a mean square is estimated from the influences of rows
on the components, summed over the levels of the sampled facets. Pairs of rows that share levels
may be correlated, others are not (section 10.10). No distribution is assumed, and neither is one
variance for all cells. The degrees of freedom that follow are those of modified large samples, so
that every interval that is made from mean squares has its robust form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.exceptions import EstimationError, VcompError
from vcomp.inference.intervals.influences import FEWEST
from vcomp.inference.quantities import LevelVariances, VarianceComponents
from vcomp.numerics import solve

_CORRELATED = 0.99
"""Estimated correlations of mean squares are at most this large."""


_SURELY = 0.001
"""Level at which a component is shown to be below zero."""

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


def mean_squares(
    components: VarianceComponents, covariance: int | None = None
) -> MeanSquares | None:
    """Return the mean squares that represent estimated components, eq. (10.4).

    If a component is at its bound they are those of the estimates without bounds. A covariance of
    slopes is a mean product, which has no limits; it is the difference of two mean squares, of
    the sum and the difference of both effects in their units.

    Parameters
    ----------
    components : estimated
    covariance : position of the covariance that the mean squares represent; other ones are left
        out then

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
    if covariance is not None:
        if not free[covariance]:
            return None
        free[[place for place in components.covariance_pairs if place != covariance]] = False
    if not free.any():
        return None
    places = np.flatnonzero(free)
    inside = cov[np.ix_(free, free)]
    covariances = np.isin(places, [*components.covariance_pairs])
    finer = _is_finer(components.facets, free) & ~covariances & ~covariances[:, None]
    basis = _basis(inside, finer)
    if covariance is not None:
        basis = _of_covariance(components, basis, places, covariance)
    expected = _expected_squares(components, basis, places)
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


@dataclass(frozen=True, slots=True)
class BelowZero:
    """A component that is estimated at its bound 0, and the test of a component of 0 or more.

    Attributes
    ----------
    name : of the component
    estimate : without the bound, below 0
    ratio : of the mean squares whose difference it is
    df : of both
    p_value : probability of a ratio as small
    """

    name: str
    estimate: float
    ratio: float
    df: tuple[float, float]
    p_value: float

    @property
    def is_sure(self) -> bool:
        """Whether the data contradict a component of 0 or more, at a level of 0.001."""
        return self.p_value <= _SURELY

    def __str__(self) -> str:
        p = display.p_values([self.p_value])[0]
        shared = display.listed(self.name.split(":"))
        return (
            f"σ²({self.name}) is estimated at 0 and would be {display.number(self.estimate, 3)} "
            f"without this bound (F = {display.number(self.ratio, 3)}, "
            f"p {p if p.startswith('<') else f'= {p}'}): scores of the same {shared} differ more "
            "than others do. They may not be independent repetitions, or a term is missing."
        )


def below_zero(components: VarianceComponents) -> list[BelowZero]:
    """Return tests of the components that are below zero without bounds.

    A component is a difference of mean squares, or of sums of them with Satterthwaite's degrees of
    freedom, whose ratio is F or larger if the component is 0 or more. In balanced data the test is
    exact for normal effects.

    Parameters
    ----------
    components : estimated

    Examples
    --------
    >>> S = np.array([3.0, 13.0, 6.0])  # of p, i, pi; df 40, 20, 800
    >>> to_components = np.array([[1, 0, -1], [0, 1, -1], [0, 0, 1]]) / [[21.0], [41.0], [1.0]]
    >>> expected = np.array([6.0, 13.0, 6.0])
    >>> cov = to_components @ np.diag(2 * expected**2 / [40, 20, 800]) @ to_components.T
    >>> facets = tuple(map(frozenset, ("p", "i", "pi")))
    >>> v = to_components @ S
    >>> g = VarianceComponents(("p", "i", "Residual"), facets, np.maximum(v, 0.0),
    ...                        without_bounds=(v, cov))
    >>> found, = below_zero(g)
    >>> found.name, round(found.ratio, 6), round(found.p_value, 6)
    ('p', 0.5, 0.003886)
    """
    squares = None if components.without_bounds is None else mean_squares(components)
    if squares is None or components.without_bounds is None:
        return []
    from scipy.special import fdtr

    values, _ = components.without_bounds
    at_bound = np.flatnonzero((components.values == 0.0) & (values < 0.0))
    at_bound = at_bound[np.isin(at_bound, squares.places)]
    parts = squares.coefficients(np.eye(len(values))[at_bound]) * squares.values
    found = []
    for place, row in zip(at_bound.tolist(), parts, strict=True):
        sums, df = [], []
        for part in (np.maximum(row, 0.0), np.maximum(-row, 0.0)):
            sums.append(float(part.sum()))
            df.append(sums[-1] ** 2 / max(float((part**2 / squares.df).sum()), 1e-300))
        if sums[1] > 0.0:
            ratio = sums[0] / sums[1]
            name, estimate = components.names[place], float(values[place])
            p = float(fdtr(*df, ratio))
            found.append(BelowZero(name, estimate, ratio, (df[0], df[1]), p))
    return found


def _errors(spread: FloatArray) -> FloatArray:
    """Return the standard errors of mean squares, zero where rounding left a negative variance."""
    return np.sqrt(np.maximum(np.diagonal(spread), 0.0))


def expected_squares(components: VarianceComponents, squares: MeanSquares) -> FloatArray:
    """Return the expectations of mean squares at the estimates of the components, (K,).

    The unit of a mean product is the root of those of its two mean squares.
    """
    return _expected_squares(components, squares.basis, squares.places)


def _expected(basis: FloatArray, values: FloatArray) -> FloatArray:
    expected: FloatArray = basis @ values
    # Only in unbalanced designs can negative estimates make an expectation negative.
    return np.where(expected > 0.0, expected, basis @ np.maximum(values, 0.0))


def _expected_squares(
    components: VarianceComponents, basis: FloatArray, places: LongArray
) -> FloatArray:
    """Return the expectations; the unit of a mean product is the root of those of its squares."""
    found = _expected(basis, components.values[places])
    at = {int(place): k for k, place in enumerate(places)}
    for place, pair in components.covariance_pairs.items():
        if place in at and np.count_nonzero(basis[at[place]]) == 1:
            found[at[place]] = np.sqrt(np.prod([found[at[own]] for own in pair]))
    return found


def _of_covariance(
    components: VarianceComponents, basis: FloatArray, places: LongArray, covariance: int
) -> FloatArray:
    """Return the basis with mean squares of u_a/s_a ± u_b/s_b, s² those of two effects.

    They take the places of one variance and of the covariance.
    """
    a, b = (int(np.searchsorted(places, own)) for own in components.covariance_pairs[covariance])
    both = int(np.searchsorted(places, covariance))
    expected = _expected_squares(components, basis, places)
    alone = basis[a] / expected[a] + basis[b] / expected[b]
    product = 2.0 * basis[both] / expected[both]
    found = basis.copy()
    found[a], found[both] = alone + product, alone - product
    return found


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


def with_influences(
    components: VarianceComponents,
    n_levels: Mapping[str, int],
    made: Callable[[], LevelVariances | None],
) -> tuple[VarianceComponents, str]:
    """Return the components with influences by level where these are of use and can be made.

    Parameters
    ----------
    components : of a fit
    n_levels : of the facets
    made : sums the influences; None, or an error, if the rows cannot be read

    Returns
    -------
    components : with influences, or as given
    reason : why there are none; empty if there are, or components have no covariance matrix
    """
    if components.cov is None:
        return components, ""
    sampled = frozenset().union(*components.facets[:-1])
    levels = [n for facet, n in n_levels.items() if facet in sampled]
    if levels and max(levels) < FEWEST:
        return components, f"no facet has {FEWEST} or more levels"
    try:
        found = made()
    except VcompError as error:
        return components, re.split(r"[;:.] ", str(error))[0]  # without what to do about it
    if found is None:
        return components, "the result was stored without what is needed of the rows"
    return replace(components, levels=found), ""


def robust_mean_squares(
    components: VarianceComponents, covariance: int | None = None
) -> MeanSquares | None:
    """Return the mean squares of the components with degrees of freedom from the data.

    Parameters
    ----------
    components : with influences
    covariance : position of the covariance that they represent, as for ``mean_squares``

    Returns
    -------
    None if the components have no covariance matrix, or no influences by level

    Raises
    ------
    EstimationError
        If the information on the components is singular to rounding.
    """
    squares, levels = mean_squares(components, covariance), components.levels
    if squares is None or levels is None:
        return None
    expected = expected_squares(components, squares)
    # From scores of the components to relative influences on the mean squares
    to_squares = (squares.basis / expected[:, None]) @ _inverse(squares, levels)
    shared = np.stack([to_squares @ t @ to_squares.T for t in levels.shared])
    normal = np.einsum("ij,jk,ik->i", to_squares, levels.information, to_squares)
    relation = _Relation.of(components, squares, levels)
    lower, upper, correlation = _variances(shared, levels.sizes, normal, relation)
    # Estimates by another method than likelihood: the same excess over their normal variance
    scale = 2.0 / squares.df / normal
    return replace(
        squares,
        df=2.0 / (lower * scale),
        df_upper=2.0 / (upper * scale),
        correlation=correlation,
    )


def _inverse(squares: MeanSquares, levels: LevelVariances) -> FloatArray:
    """Return the rows of the information's inverse of the components of mean squares, (K, k)."""
    if levels.inverse is not None:
        return levels.inverse[squares.places]
    at = np.ix_(squares.places, squares.places)
    found = np.zeros((squares.places.size, len(levels.information)))
    try:
        found[:, squares.places] = solve(levels.information[at], np.eye(squares.places.size))
    except np.linalg.LinAlgError:
        raise EstimationError(
            "robust intervals cannot be computed: the information on the components is singular "
            "to rounding, as one of them is very small next to the others; use interval='log'"
        ) from None
    return found


@dataclass(frozen=True, slots=True)
class _Relation:
    """How sets of facets lie to the terms of the mean squares, each (m, K).

    Attributes
    ----------
    own : the set is that of the term
    coarser : the levels of the term lie within the groups of the set
    apart : neither contains the other
    few : the set has too few groups to show the variance of the mean square. Of a mean square on
        the levels of such a facet, and on those within them, it is at least that under normality
    """

    own: BoolArray
    coarser: BoolArray
    apart: BoolArray
    few: BoolArray

    @classmethod
    def of(
        cls, components: VarianceComponents, squares: MeanSquares, levels: LevelVariances
    ) -> _Relation:
        terms = [components.facets[place] for place in squares.places]
        *sets, _ = levels.sets

        def where(
            holds: Callable[[frozenset[str], frozenset[str]], bool], rows: bool
        ) -> BoolArray:
            # The last set, single rows, is finer than all terms but the residual.
            of_rows = [rows and term == components.facets[-1] for term in terms]
            return np.array([*([holds(s, t) for t in terms] for s in sets), of_rows], dtype=bool)

        return cls(
            own=where(lambda s, t: s == t, True),
            coarser=where(lambda s, t: s < t, False),
            apart=where(lambda s, t: not (s <= t or s >= t), False),
            few=where(lambda s, t: s <= levels.few.keys() and s <= t, False),
        )


@dataclass(frozen=True, slots=True)
class _Calibration:
    """The constants of eq. (10.20), found by simulation; all vanish with many levels.

    Attributes
    ----------
    bias, noise : what V and the normal variance are raised by, times 1/n
    light : multiple of V up to which the normal variance counts in `noise`
    lower : most that an excess counts in lower limits, and its multiple of 1/n
    upper : most that its root counts in upper limits, and its multiples of n and of 1/n
    differing : times 1/√n, what variances that differ between groups count
    negative : share of negative parts of coarser sets that is noise
    least : share of the normal variance that V is at least
    least_upper : the same in upper limits, at most, and its multiple of 1/n: samples of few levels
        without outliers have a small mean square and a small V together
    """

    bias: float = 2.0
    noise: float = 2.0
    light: float = 2.0
    lower: tuple[float, float] = 2.75, 80.0
    upper: tuple[float, float, float] = 2.0, 0.05, 240.0
    differing: float = 2.0
    negative: float = 0.7
    least: float = 0.05
    least_upper: tuple[float, float] = 1.0, 40.0


def _variances(
    shared: FloatArray,
    sizes: FloatArray,
    normal: FloatArray,
    relation: _Relation,
    by: _Calibration = _Calibration(),
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return relative variances for lower and upper limits, and correlations, eq. (10.20).

    Parameters
    ----------
    shared : (m, K, K) relative covariances by shared levels
    sizes : (m,) numbers of groups
    normal : (K,) relative variances under normality
    relation : of sets and mean squares
    by : constants
    """
    n = np.maximum(sizes, 3.0)[:, None]
    few = relation.few.any(axis=1, keepdims=True)
    root = np.sqrt(np.where(few, 0.0, _small_sample(n * np.einsum("mkk->mk", shared), n)))
    shared = shared * root[:, :, None] * root[:, None, :]
    diagonal = np.einsum("mkk->mk", shared)
    total = shared.sum(axis=0)
    # Negative parts are noise, or what the mean of the own levels takes away.
    dropped = np.where(relation.apart, 1.0, np.where(relation.coarser, by.negative, 0.0))
    variance = np.diagonal(total) - (dropped * np.minimum(diagonal, 0.0)).sum(axis=0)
    weight = np.abs(diagonal) + 1e-300
    inverse_n = (weight / n).sum(axis=0) / weight.sum(axis=0)
    of_normal = np.minimum(normal, by.light * np.maximum(variance, 0.0))
    base = (1.0 + by.bias * inverse_n) * variance + by.noise * inverse_n * of_normal
    # Variances that differ between few groups are uncertain themselves.
    differing = np.where(relation.coarser, diagonal - normal * np.sqrt(2.0 / n), 0.0)
    base = base + (by.differing / np.sqrt(n) * np.maximum(differing, 0.0)).sum(axis=0)
    of_levels = np.maximum(2.0 / (n - 1.0), np.where(relation.own, normal, 0.0))
    excess = np.maximum(diagonal - of_levels, 0.0)
    least = np.where(relation.few.any(axis=0), 1.0, by.least) * normal
    slope = np.minimum(by.lower[0], by.lower[1] / n)
    lower = base + (slope * excess).sum(axis=0)
    # Its root: with few levels large excesses are as large with normal effects.
    slope = np.minimum(np.minimum(by.upper[0], by.upper[1] * n), by.upper[2] / n)
    upper = base + (slope * np.sqrt(excess * 2.0 / (n - 1.0))).sum(axis=0)
    scale = np.sqrt(np.maximum(variance, least))
    correlation = np.clip(total / np.outer(scale, scale), -_CORRELATED, _CORRELATED)
    np.fill_diagonal(correlation, 1.0)
    share = np.minimum(by.least_upper[0], by.least_upper[1] * inverse_n)
    least_upper = np.maximum(least, share * normal)
    return np.maximum(lower, least), np.maximum(upper, least_upper), correlation


def _small_sample(nx: FloatArray, n: FloatArray) -> FloatArray:
    """Return by what sums over n groups are too small, eq. (10.19)."""
    kurtosis = np.clip(nx, 0.0, 2.0) / 2.0
    return n / (n - 1.0) * (1.0 + kurtosis * 3.0 / np.maximum(n - 2.0, 1.0))

"""Mean squares whose degrees of freedom follow from the data, not from normal effects.

The variance of a mean square is estimated from the influences of rows on the components, summed
over the levels of the sampled facets: pairs of rows that share levels may be correlated, others
are not (docs/explanation/mathematics.md, section 10.10). No distribution is assumed, and neither
is one variance for all cells. The degrees of freedom that follow are those of modified large
samples, so that every interval that is made from mean squares has its robust form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import EstimationError, VcompError
from vcomp.inference.intervals.classical import MeanSquares, expected_squares, mean_squares
from vcomp.inference.intervals.influences import FEWEST
from vcomp.inference.quantities import LevelVariances, VarianceComponents
from vcomp.numerics import solve

_CORRELATED = 0.99
"""Estimated correlations of mean squares are at most this large."""


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


def robust_covariance(components: VarianceComponents) -> FloatArray | None:
    """Return the (k, k) covariance matrix of the components that belongs to their robust limits.

    Rows and columns of components without a standard error are nan.
    """
    squares = robust_mean_squares(components)
    if squares is None or components.cov is None:
        return None
    spread = expected_squares(components, squares) * np.sqrt(2.0 / squares.df)
    half = solve(squares.basis, np.diag(spread))
    cov = np.full_like(components.cov, np.nan)
    cov[np.ix_(squares.places, squares.places)] = half @ squares.correlation @ half.T
    known: BoolArray = np.isnan(np.diag(components.cov))
    return np.where(known[:, None] | known[None, :], np.nan, cov)


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

"""Mean squares whose degrees of freedom follow from the data, not from normal effects.

The variance of a mean square is estimated from the influences of rows, summed over the levels of
the sampled facets: pairs of rows that share levels of a set of facets may be correlated, others
are not (docs/explanation/mathematics.md, section 10.11). No distribution is assumed, and neither
is one variance for all cells. The degrees of freedom that follow are those of modified large
samples, so that every interval that is made from mean squares has its robust form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.inference.intervals.classical import MeanSquares, expected_squares, mean_squares
from vcomp.inference.quantities import LevelVariances, VarianceComponents
from vcomp.numerics import solve

_CORRELATED = 0.99
"""Estimated correlations of mean squares are at most this large."""


def closed_sets(
    facets: Sequence[str], nested_in: Mapping[str, frozenset[str]]
) -> tuple[frozenset[str], ...]:
    """Return the sets of facets that hold all facets that theirs are nested in, small ones first.

    Examples
    --------
    >>> [sorted(s) for s in closed_sets(["p", "i", "h"], {"i": frozenset({"h"})})]
    [['h'], ['p'], ['h', 'i'], ['h', 'p'], ['h', 'i', 'p']]
    """
    found = [
        frozenset(chosen)
        for size in range(1, len(facets) + 1)
        for chosen in combinations(sorted(facets), size)
    ]
    return tuple(
        s for s in found if all(nested_in.get(f, frozenset()) <= s for f in s)
    )


def exactly_shared(sets: Sequence[frozenset[str]], products: FloatArray) -> FloatArray:
    """Return the products of pairs that share exactly a set from those that share at least it.

    Parameters
    ----------
    sets : (m,) closed sets, small ones first
    products : (m, k, k) Σ s_g s_g' over the groups g of each set, and of single rows after them:
        (m + 1, k, k)

    Returns
    -------
    (m + 1, k, k)
    """
    exact = products.copy()
    last = len(sets)
    for at in range(last - 1, -1, -1):
        exact[at] -= exact[last]
        for other in range(at + 1, last):
            if sets[at] < sets[other]:
                exact[at] -= exact[other]
    return exact


def robust_mean_squares(components: VarianceComponents) -> MeanSquares | None:
    """Return the mean squares of the components with degrees of freedom from the data.

    Returns
    -------
    None if the components have no covariance matrix, or no influences by level
    """
    squares, levels = mean_squares(components), components.levels
    if squares is None or levels is None:
        return None
    expected = expected_squares(components, squares)
    at = np.ix_(squares.places, squares.places)
    information = levels.information[at]
    # From scores of the components to relative influences on the mean squares
    to_squares = (squares.basis / expected[:, None]) @ solve(information, np.eye(len(information)))
    shared = np.stack([to_squares @ t[at] @ to_squares.T for t in levels.shared])
    normal = np.einsum("ij,jk,ik->i", to_squares, information, to_squares)
    own = _own_effects(components, squares, levels)
    lower, upper, correlation = _variances(shared, levels.sizes, normal, own)
    # Estimates by another method than likelihood: the same excess over their normal variance
    scale = 2.0 / squares.df / normal
    return replace(
        squares,
        df=2.0 / (lower * scale),
        df_upper=2.0 / (upper * scale),
        correlation=correlation,
    )


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
    known = np.isnan(np.diagonal(components.cov))
    return np.where(known[:, None] | known[None, :], np.nan, cov)


def _own_effects(
    components: VarianceComponents, squares: MeanSquares, levels: LevelVariances
) -> BoolArray:
    """Return which sets have too few groups to show the variance of a mean square, (m, K).

    Of a mean square on the levels of such a facet, and on those within them, the variance is at
    least that under normality.
    """
    few = np.zeros((len(levels.sets), len(squares.places)), dtype=bool)
    for m, facets in enumerate(levels.sets):
        for j, place in enumerate(squares.places):
            term = components.facets[place]
            few[m, j] = facets <= levels.few.keys() and facets <= term
    return few


def _variances(
    shared: FloatArray, sizes: FloatArray, normal: FloatArray, few: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return relative variances for lower and upper limits, and correlations, eq. (10.18).

    Parameters
    ----------
    shared : (m, K, K) relative covariances by shared levels
    sizes : (m,) numbers of groups
    normal : (K,) relative variances under normality
    few : (m, K) where the set has too few groups
    """
    diagonal = np.einsum("mkk->mk", shared)
    n = np.where(sizes < 3.0, 3.0, sizes)[:, None]
    kurtosis = np.clip(n * diagonal, 0.0, 2.0) / 2.0
    factor = n / (n - 1.0) * (1.0 + kurtosis * 3.0 / np.maximum(n - 2.0, 1.0))
    unused = few.any(axis=1)
    factor = np.where(unused[:, None], 0.0, factor)
    root = np.sqrt(factor)
    shared = shared * root[:, :, None] * root[:, None, :]
    diagonal = diagonal * factor
    total = shared.sum(axis=0)
    variance = np.diagonal(total)
    weight = np.abs(diagonal) + 1e-300
    inverse_n = (weight / n).sum(axis=0) / weight.sum(axis=0)
    base = (1.0 + 3.0 * inverse_n) * variance + 2.0 * inverse_n * normal
    excess = np.maximum(diagonal - 2.0 / (n - 1.0), 0.0)
    least = np.where(few.any(axis=0), 1.0, 0.3) * normal
    lower, upper = (
        np.maximum(base + ((slope - 1.0) * excess).sum(axis=0), least)
        for slope in (1.0 + np.minimum(2.75, 55.0 / n), 1.0 + np.minimum(6.0, 480.0 / n))
    )
    scale = np.sqrt(np.maximum(variance, least))
    correlation = np.clip(total / np.outer(scale, scale), -_CORRELATED, _CORRELATED)
    np.fill_diagonal(correlation, 1.0)
    return lower, upper, correlation

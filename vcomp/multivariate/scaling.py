"""Scales in which likelihoods are well conditioned, and the way back from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vcomp._typing import FloatArray
from vcomp.multivariate.covariance_components import elements
from vcomp.multivariate.layout import Layout
from vcomp.multivariate.matrices import positive_part
from vcomp.multivariate.polarised import columns_of
from vcomp.multivariate.strata import Strata

__all__ = ["element_map", "uncorrelated", "uncorrelated_strata"]

_LEAST = 1e-10
"""Least eigenvalue of the correlations of residuals that are taken out of the scores."""

_ROUNDS = 5
"""Rounds of taking off means: their residuals need not be exact to be a scale."""


def uncorrelated(layout: Layout) -> tuple[FloatArray, FloatArray | None]:
    """Return L and scores x with y = L x whose residuals are hardly correlated, (v, v) and (n,).

    Variables that measure nearly the same have residuals whose matrix is nearly singular, and
    digits are lost in its inverse. Where all variables were observed together any combinations of
    them have the same likelihood but for a constant, and L is lower triangular; elsewhere L has
    standard deviations alone, and x is None.
    """
    scale = np.diag(layout.scale)
    if not layout.same_rows:
        return scale, None
    scores, Y = layout.scores, columns_of(layout)
    rest = _without_terms(layout, Y)
    S = rest.T @ rest / len(rest)
    if not (np.diagonal(S) > 0.0).all():
        return scale, None
    C = _lower(S)
    X = np.linalg.solve(C, Y.T).T
    rows = scores.unit[scores.of(0)]
    place = np.empty(scores.n_units, dtype=np.int64)
    place[rows] = np.arange(rows.size)
    L: FloatArray = scale @ C
    return L, np.asarray(X[place[scores.unit], scores.variable])


def uncorrelated_strata(strata: Strata) -> tuple[FloatArray, Strata]:
    """Return L and mean products of x with y = L x whose residuals are not correlated, (v, v).

    Parameters
    ----------
    strata : with residuals that have a positive definite matrix
    """
    L = _lower(strata.products[-1])
    inverse = np.linalg.inv(L)
    return L, replace(strata, products=inverse @ strata.products @ inverse.T)


def _lower(S: FloatArray) -> FloatArray:
    """Return L with LL' = S, or near it where S is singular."""
    spread = np.sqrt(np.diagonal(S))
    C = np.linalg.cholesky(positive_part(S / np.outer(spread, spread), _LEAST))
    return np.asarray(C * spread[:, None])


def _without_terms(layout: Layout, Y: FloatArray) -> FloatArray:
    """Return what is left of columns after some rounds of taking off the means of every term."""
    own, rest = layout.scores.of(0), Y - Y.mean(axis=0)
    for _ in range(_ROUNDS):
        for groups, size in zip(layout.groups[:-1], layout.sizes[:-1], strict=True):
            codes = groups[own]
            n = np.bincount(codes, minlength=size)[:, None]
            sums = np.stack([np.bincount(codes, x, size) for x in rest.T], axis=1)
            rest = rest - (sums / np.maximum(n, 1))[codes]
    return np.asarray(rest)


def element_map(layout: Layout, L: FloatArray) -> FloatArray:
    """Return the derivatives of the elements of L Σ L' by those of Σ, (m, m).

    Parameters
    ----------
    layout : which elements there are
    L : (v, v), diagonal where not all variables are linked
    """
    places = elements(layout.linked)
    t, a, b = np.array(places).T
    same = t[:, None] == t[None, :]
    made = L[a[:, None], a[None, :]] * L[b[:, None], b[None, :]]
    across = L[a[:, None], b[None, :]] * L[b[:, None], a[None, :]]
    return np.asarray(np.where(same, made + np.where((a != b)[None, :], across, 0.0), 0.0))

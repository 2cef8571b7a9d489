"""How large the error of one object's mean score is: analysis of variance of its scores alone.

Within an object p a term and its interaction with p are one effect, S. Henderson's Method I on the
scores of p gives σ̂²(S|p), and

    σ̂²(Δ_p) = Σ_S σ̂²(S|p) / n_S
    σ̂²(δ_p) = Σ_S [σ̂²(S|p) + σ̂²(S) − 2 σ̂_S(p, others)] / n_S

(Brennan 2001, Generalizability Theory, section 5.4; 1998, Applied Psychological Measurement 22,
307-331). σ̂_S(p, others) is the same analysis of the products of the scores of p with the means of
the other objects in the same cells: for p × i that is Brennan's

    σ̂²(δ_p) = [(n_p + 1)/(n_p − 1) s²_p + σ̂²(i) − 2 n_p/(n_p − 1) cov(X_pi, X̄_i)] / n_i

Averaged over objects they are σ̂²(Δ) and σ̂²(δ) of the analysis of variance in balanced designs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.dstudy.layout import joined

__all__ = ["Within", "within_objects"]

_SINGULAR = 1e-10
"""Of the largest singular value of scaled coefficients."""


@dataclass(frozen=True, slots=True)
class Within:
    """Analyses of the scores of every object, the effects S in columns, the residual last.

    Attributes
    ----------
    components : (P, k + 1) σ̂²(S|p); nan for an object whose scores do not tell them apart
    shared : (P, k + 1) σ̂_S(p, others), None where objects do not have the same cells
    inverse_n : (P, k + 1) 1/n_S: Σ n²/(Σ n)² over the groups of S
    """

    components: FloatArray
    shared: FloatArray | None
    inverse_n: FloatArray


def within_objects(
    y: FloatArray, objects: LongArray, effects: Sequence[LongArray], cells: LongArray
) -> Within:
    """Analyse the scores of every object by themselves.

    Parameters
    ----------
    y : (n,) scores
    objects : (n,) object of each, numbered without gaps
    effects : for each effect but the residual (n,) its groups
    cells : (n,) the combination of all facets that objects can have in common
    """
    n = np.bincount(objects).astype(float)
    # About the mean of the object, so that no T term is a difference of large numbers.
    x = y - (np.bincount(objects, y) / n)[objects]
    groups = [joined(objects, codes) for codes in effects]
    coefficients, inverse_n = _coefficients(objects, n, groups)
    T = _squares(objects, groups, x, x)
    shared = None
    if n.size > 1 and _is_complete(objects, cells):
        # Products need no rows in pairs: those of a cell are replaced by their mean.
        profile = (np.bincount(cells, x) / np.bincount(cells))[cells]
        own = joined(objects, cells)
        mean = (np.bincount(own, x) / np.bincount(own))[own]
        crossed = _squares(objects, groups, x, profile)
        alone = _squares(objects, groups, x, mean)
        shared = _solved(coefficients, (n.size * crossed - alone) / (n.size - 1.0))
    return Within(_solved(coefficients, T), shared, inverse_n)


def _is_complete(objects: LongArray, cells: LongArray) -> bool:
    """Whether all objects have the same cells, equally often."""
    n_objects, n_cells = int(objects.max()) + 1, int(cells.max()) + 1
    if n_objects * n_cells > objects.size:
        return False
    counts = np.bincount(objects * n_cells + cells, minlength=n_objects * n_cells)
    counts = counts.reshape(n_objects, n_cells)
    return bool((counts == counts[0]).all())


def _coefficients(
    objects: LongArray, n: FloatArray, groups: Sequence[LongArray]
) -> tuple[FloatArray, FloatArray]:
    """Return the coefficients of E(T − T_μ), (P, k + 1, k + 1), and Σ n²/(Σ n)², (P, k + 1)."""
    k, P = len(groups), n.size
    coefficients, inverse_n = np.empty((P, k + 1, k + 1)), np.empty((P, k + 1))
    sizes = [np.bincount(g).astype(float) for g in groups]
    owner = [_owner(g, objects) for g in groups]
    for s in range(k):
        coefficients[:, s, k] = np.bincount(owner[s], minlength=P) - 1.0
        squares = np.bincount(owner[s], sizes[s] ** 2, minlength=P) / n
        inverse_n[:, s] = squares / n
        coefficients[:, k, s] = n - squares
        for u in range(k):
            both = joined(groups[s], groups[u])
            shared = np.bincount(both).astype(float)
            in_s = _owner(both, groups[s])
            terms = shared**2 / sizes[s][in_s]
            coefficients[:, s, u] = np.bincount(owner[s][in_s], terms, minlength=P)
    for u in range(k):
        coefficients[:, :k, u] -= (inverse_n[:, u] * n)[:, None]
    coefficients[:, k, k] = n - 1.0
    inverse_n[:, k] = 1.0 / n
    return coefficients, inverse_n


def _owner(groups: LongArray, coarser: LongArray) -> LongArray:
    """Return for each group the coarser group that its rows are in."""
    owner = np.empty(int(groups.max()) + 1, dtype=np.int64)
    owner[groups] = coarser
    return owner


def _squares(
    objects: LongArray, groups: Sequence[LongArray], x: FloatArray, z: FloatArray
) -> FloatArray:
    """Return Σ_g (Σ x)(Σ z)/n_g of every object and effect, Σ x z as the last, (P, k + 1)."""
    found = []
    for g in groups:
        product = np.bincount(g, x) * np.bincount(g, z) / np.bincount(g)
        found.append(np.bincount(_owner(g, objects), product))
    return np.column_stack([*found, np.bincount(objects, x * z)])


def _solved(coefficients: FloatArray, T: FloatArray) -> FloatArray:
    """Return the components of every object, nan where its equations are singular."""
    scale = np.abs(coefficients).max(axis=2, keepdims=True)
    scaled = coefficients / np.where(scale > 0.0, scale, 1.0)
    values = np.linalg.svd(scaled, compute_uv=False)
    regular = values[:, -1] > _SINGULAR * values[:, 0]
    found = np.full(T.shape, np.nan)
    right = T[regular] / scale[regular, :, 0]
    found[regular] = np.linalg.solve(scaled[regular], right[..., None])[..., 0]
    return found

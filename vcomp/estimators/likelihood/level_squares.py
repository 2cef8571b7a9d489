"""tr(V⁻¹V_tV⁻¹V_u) of levels that are absorbed one by one, for the expected information.

The forms R_t = P'V⁻¹V_tV⁻¹P, with P the selection of a cell, are carried upwards. What terms of
nodes above take away is known from Q, docs/explanation/mathematics.md, eqs. (4.9), (4.11) and
(4.12).

The trace of a product of matrices of two terms is the sum of the products of their elements. So
matrices are multiplied for each term, and for a pair of terms only elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.level_blocks import LevelBlocks, inside, mirrored
from vcomp.estimators.likelihood.level_covariance import LevelCovariance
from vcomp.numerics import in_threads
from vcomp.statistics import Alike, added_up

Sums = dict[int, FloatArray]
"""R_t of the components so far, each (nodes, C, C)."""


def squares_of(covariance: LevelCovariance) -> FloatArray:
    """Return tr(V⁻¹V_tV⁻¹V_u) of all components, (k + 1, k + 1)."""
    grid = covariance.grid
    squares = np.zeros((grid.n_terms + 1, grid.n_terms + 1))
    sums = _of_levels(covariance.blocks, covariance.above[0], squares)
    squares[-1, -1] += (grid.n - grid.n_filled) / covariance.v[-1] ** 2
    for depth in range(1, len(grid.n_nodes)):
        own = [t for t, term in enumerate(grid.terms) if term.depth == depth]
        sums = _absorbed(covariance, depth, own, sums, squares)
        if depth < len(grid.parents):
            sums = {t: added_up(R, grid.parents[depth]) for t, R in sums.items()}
    return squares


def _traces(
    left: Sequence[FloatArray], right: Sequence[FloatArray], weights: FloatArray | None = None
) -> FloatArray:
    """Return tr(X_t Y_u) of matrices X_t, Y_u (nodes, C, C), summed over nodes with weights."""
    rows = np.array([x if weights is None else x * weights[:, None, None] for x in left])
    columns = np.array([y.swapaxes(-1, -2) for y in right])
    found: FloatArray = rows.reshape(len(left), -1) @ columns.reshape(len(right), -1).T
    return found


def _add(squares: FloatArray, terms: Sequence[int], forms: FloatArray) -> None:
    """Add forms of pairs of terms, which are symmetric but for rounding."""
    squares[np.ix_(terms, terms)] += 0.5 * (forms + forms.T)


def _absorbed(
    covariance: LevelCovariance, depth: int, own: list[int], sums: Sums, squares: FloatArray
) -> Sums:
    """Return R_t after the terms of one depth were added, and add to the squares."""
    if not own:
        return sums
    nodes = covariance.nodes[depth - 1]
    T, S, W = nodes.gain, nodes.shrink, nodes.outer
    away = covariance.above[depth - 1] - T  # S'Q S of the nodes above
    below = list(sums)
    RT = [R @ T for R in sums.values()]
    once = [x + 2.0 * (R @ away) for x, R in zip(RT, sums.values(), strict=True)]
    _add(squares, below, _traces(RT, once))
    moved = {t: S @ R @ S.swapaxes(1, 2) for t, R in sums.items()}
    B = {t: covariance.grid.terms[t].alike for t in own}
    once = [np.broadcast_to(B[u], T.shape) for u in own]
    if depth < len(covariance.nodes):
        WQ = W @ covariance.above[depth][covariance.grid.parents[depth]]
        once = [b - 2.0 * (b @ WQ) for b in once]
    found = {t: W @ B[t] @ W for t in own}
    mixed = _traces(list(moved.values()), once)
    squares[np.ix_(below, own)] += mixed
    squares[np.ix_(own, below)] += mixed.T
    _add(squares, own, _traces(list(found.values()), once))
    return moved | found


def _of_levels(blocks: LevelBlocks, Q: FloatArray, squares: FloatArray) -> Sums:
    """Return R_t of the terms within levels and of the residual, and add to the squares."""
    K, k = blocks.K, blocks.grid.n_terms
    own = [*blocks.terms, k]
    B = dict(zip(own, blocks.between, strict=True))
    KBK = {t: K @ B[t] @ K for t in own}
    KQK = K @ Q @ K
    # By holes: H = Σ E X E', HAH = Σ E X A_mm X E' with A = K B_t K, and J = Σ E X (KQK)_mm X E'.
    found, HAH = ({t: blocks.empty_sums() for t in own} for _ in range(2))
    J = blocks.empty_sums()

    def part(both: tuple[Alike, FloatArray]) -> tuple[list[FloatArray], FloatArray]:
        a, inverse = both
        X = a.of_pairs(inverse)
        XQ = X @ inside(a, KQK if a.by_holes else Q)
        if a.by_holes:
            XA = [X @ a.of_pairs(inside(a, KBK[t])) for t in own]
            once = [2.0 * (XQ @ x) for x in XA]
        else:
            XA = [X @ a.of_pairs(inside(a, B[t])) for t in blocks.terms]
            XA.append(X / a.of_pairs(a.counts)[:, None, :])
            once = [x - 2.0 * (XQ @ x) for x in XA]
        return [x @ X for x in [*XA, XQ]], _traces(once, XA, a.pair_n)

    every = list(blocks.each())
    for (a, _), (made, forms) in zip(every, in_threads(part, every, blocks.cost), strict=True):
        _add(squares, own, forms)
        into = HAH if a.by_holes else found
        for t, values in zip(own, made, strict=False):
            blocks.add_embedded(a, values, into[t], of_pairs=True)
        if a.by_holes:
            blocks.add_embedded(a, made[-1], J, of_pairs=True)
    for sums in (*found.values(), *HAH.values(), J):
        mirrored(sums)
    H = blocks.holes
    if not blocks.n_by_holes.any():
        return found
    n = blocks.n_by_holes[:, None, None]
    whole = {}
    for t in own:
        mixed = KBK[t] @ H @ K
        whole[t] = n * KBK[t] - mixed - mixed.swapaxes(1, 2) + K @ HAH[t] @ K
        found[t] += whole[t]
    _add(squares, own, _traces([w.sum(axis=0) for w in whole.values()], [B[t] for t in own]))
    _add(squares, own, -2.0 * _crossed_by_nodes(blocks, Q, KBK, B, H, HAH, J.sum(axis=0)))
    return found


def _crossed_by_nodes(
    blocks: LevelBlocks,
    Q: FloatArray,
    KBK: Mapping[int, FloatArray],
    B: Mapping[int, FloatArray],
    H: FloatArray,
    HAH: Mapping[int, FloatArray],
    J: FloatArray,
) -> FloatArray:
    """Return tr(W B_t W B_u W Q) of the levels by holes but for what is within holes.

    W = K − K E X E' K of each level. Products with three or more factors in X are in the caller.
    """
    K, KQ = blocks.K, blocks.K @ Q
    n = blocks.n_by_holes[:, None, None]
    # Σ nQ − QKH − HKQ + J: what stands between K B_t K B_u K and itself.
    QKH = KQ.swapaxes(1, 2) @ H
    between = (n * Q - QKH - QKH.swapaxes(1, 2)).sum(axis=0) + J
    once = [b @ K for b in B.values()]
    forms = _traces(once, [x @ between @ K for x in once])
    # tr(HAH_u A_t Q …): the same product in two orders, whose forms are the transpose.
    inner = [K @ (KQ.swapaxes(1, 2) @ hah).sum(axis=0) @ K for hah in HAH.values()]
    mixed = _traces(list(B.values()), inner)
    forms += mixed + mixed.T
    forms -= _traces([a @ H for a in KBK.values()], [a @ Q for a in KBK.values()])
    return forms

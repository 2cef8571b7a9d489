"""tr(V⁻¹V_tV⁻¹V_u) of levels that are absorbed one by one, for the expected information.

The forms R_t = P'V⁻¹V_tV⁻¹P, with P the selection of a cell, are carried upwards. What terms of
nodes above take away is known from Q, docs/explanation/mathematics.md, eqs. (4.9), (4.11) and
(4.12).
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.level_covariance import (
    Alike,
    LevelBlocks,
    LevelCovariance,
    taken,
)
from vcomp.statistics import added_up

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
    # A pair was added once, in either order.
    both: FloatArray = squares + squares.T - np.diag(np.diagonal(squares))
    return both


def _trace(*matrices: FloatArray) -> float:
    """Return the sum over nodes of the trace of a product."""
    *first, last = matrices
    product = first[0]
    for matrix in first[1:]:
        product = product @ matrix
    return float(np.sum(product * last.swapaxes(-1, -2)))


def _absorbed(
    covariance: LevelCovariance, depth: int, own: list[int], sums: Sums, squares: FloatArray
) -> Sums:
    """Return R_t after the terms of one depth were added, and add to the squares."""
    if not own:
        return sums
    nodes = covariance.nodes[depth - 1]
    T, S, W = nodes.gain, nodes.shrink, nodes.outer
    away = covariance.above[depth - 1] - T  # S'Q S of the nodes above
    for t, u in combinations_with_replacement(sums, 2):
        RTR = sums[t] @ T @ sums[u]
        squares[t, u] += _trace(RTR, T) + 2.0 * _trace(RTR, away)
    moved = {t: S @ R @ S.swapaxes(1, 2) for t, R in sums.items()}
    B = {t: covariance.grid.terms[t].alike for t in own}
    Q = np.zeros_like(T)
    if depth < len(covariance.nodes):
        Q = covariance.above[depth][covariance.grid.parents[depth]]
    for u in own:
        for t, R in moved.items():
            squares[t, u] += _trace(R, B[u]) - 2.0 * _trace(R @ B[u], W @ Q)
    found = {t: W @ B[t] @ W for t in own}
    for t, u in combinations_with_replacement(own, 2):
        squares[t, u] += _trace(found[t], B[u]) - 2.0 * _trace(found[t] @ B[u], W @ Q)
    return moved | found


def _of_levels(blocks: LevelBlocks, Q: FloatArray, squares: FloatArray) -> Sums:
    """Return R_t of the terms within levels and of the residual, and add to the squares."""
    grid, K, k = blocks.grid, blocks.K, blocks.grid.n_terms
    own = [*blocks.terms, k]
    replicates = 1.0 if grid.replicates is None else grid.replicates
    B = {t: grid.terms[t].alike for t in blocks.terms} | {k: np.eye(grid.n_cells) / replicates}
    KBK, KQK = {t: K @ B[t] @ K for t in own}, K @ Q @ K
    found = {t: np.zeros_like(Q) for t in own}
    # By holes: H = Σ E X E', and HAH = Σ E X A_mm X E' with A = K B_t K.
    H, HAH = np.zeros_like(Q), {t: np.zeros_like(Q) for t in own}
    for a, inverse in blocks.each():
        X = taken(inverse, a.pair_pattern)
        if a.by_holes:
            XA = {t: X @ _inside(a, KBK[t]) for t in own}
            H += blocks.embedded(a, X, of_pairs=True)
            for t in own:
                HAH[t] += blocks.embedded(a, XA[t] @ X, of_pairs=True)
        else:
            XA = {t: X @ _inside(a, B[t]) for t in blocks.terms}
            XA[k] = X / a.counts[a.pair_pattern][:, None, :]
            for t in own:
                found[t] += blocks.embedded(a, XA[t] @ X, of_pairs=True)
        XQ = X @ _inside(a, KQK if a.by_holes else Q, of_nodes=True)
        for t, u in combinations_with_replacement(own, 2):
            both, n = XA[t] @ XA[u], a.pair_n[:, None, None]
            lost = float(np.sum(n * both * XQ.swapaxes(1, 2)))
            if a.by_holes:
                XD = X @ _inside(a, KBK[t] @ B[u] @ K)
                squares[t, u] -= 2.0 * (float(np.sum(n * XD * XQ.swapaxes(1, 2))) - lost)
            else:
                squares[t, u] += float(np.einsum("pii,p->", both, a.pair_n)) - 2.0 * lost
    n = blocks.n_by_holes[:, None, None]
    for t in own:
        once = KBK[t] @ H @ K
        whole = n * KBK[t] - once - once.swapaxes(1, 2) + K @ HAH[t] @ K
        found[t] += whole
        for u in own:
            if u >= t:
                squares[t, u] += _trace(whole, B[u])
    KQ = K @ Q
    for t, u in combinations_with_replacement(own, 2):
        A, C = KBK[t], KBK[u]
        D = A @ B[u] @ K
        forms = _trace(n * D, Q) - _trace(H @ D, KQ.swapaxes(1, 2)) - _trace(H, KQ @ D)
        forms += _trace(HAH[t] @ C, KQ.swapaxes(1, 2)) + _trace(HAH[u], KQ @ A)
        squares[t, u] -= 2.0 * (forms - _trace(A @ H @ C, Q))
    return found


def _inside(a: Alike, matrix: FloatArray, *, of_nodes: bool = False) -> FloatArray:
    """Return the elements of a matrix, or of that of each node, in the cells of each pair."""
    cells = a.cells[a.pair_pattern]
    rows, columns = cells[:, :, None], cells[:, None, :]
    inside: FloatArray = (
        matrix[a.pair_node[:, None, None], rows, columns] if of_nodes else matrix[rows, columns]
    )
    return inside

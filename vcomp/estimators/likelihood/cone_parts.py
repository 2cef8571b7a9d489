"""Factors of the positive semidefinite matrices of a model, and the equations of their steps."""

from __future__ import annotations

import numpy as np

from vcomp._typing import BoolArray, FloatArray

Block = tuple[int, tuple[int, ...]]
Parts = tuple[FloatArray, ...]
"""A matrix for each block: its factor L, or the gradient G."""


def updated_information(information: FloatArray, step: FloatArray, fall: FloatArray) -> FloatArray:
    """Return the information updated with the observed curvature along a step.

    This is the update of Broyden, Fletcher, Goldfarb and Shanno. The curvature is at least a fifth
    of that of the information (Powell).

    Parameters
    ----------
    information : (m, m)
    step : (m,) change of the elements
    fall : (m,) by how much the score fell
    """
    along = information @ step
    expected, seen = float(step @ along), float(step @ fall)
    if not expected > 0.0:
        return information
    if seen < 0.2 * expected:
        share = 0.8 * expected / (expected - seen)
        fall = share * fall + (1.0 - share) * along
        seen = 0.2 * expected
    change = np.outer(fall, fall) / seen - np.outer(along, along) / expected
    return np.asarray(information + change)


def without_rotations(
    factors: Parts, H: FloatArray, g: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return equations whose solution does not rotate the factors: rotations change no matrix.

    Curvature and slope along a rotation are rounding error. Columns of a factor are orthogonal,
    and so are the directions of rotations in the planes of two columns.

    Parameters
    ----------
    factors : with orthogonal columns
    H, g : equations of the stacked columns
    """
    rotations, first = [], 0
    for L in factors:
        size, rank = L.shape
        for c in range(rank):
            for d in range(c):
                rotation = np.zeros(g.size)
                rotation[first + c * size : first + (c + 1) * size] = L[:, d]
                rotation[first + d * size : first + (d + 1) * size] = -L[:, c]
                rotations.append(rotation / max(float(np.linalg.norm(rotation)), 1e-300))
        first += L.size
    if not rotations:
        return H, g
    W = np.array(rotations)
    unit = float(np.trace(H)) / g.size
    return H + max(unit, 0.0) * W.T @ W, g - W.T @ (W @ g)


def bends_of(factors: Parts, falls: list[FloatArray]) -> FloatArray:
    """Return 2 (I ⊗ F) of all blocks, with one F for each column of the factor."""
    bends = [2.0 * F for L, F in zip(factors, falls, strict=True) for _ in range(L.shape[1])]
    ends = np.cumsum([len(F) for F in bends])
    whole = np.zeros((ends[-1], ends[-1]))
    for F, end in zip(bends, ends, strict=True):
        whole[end - len(F) : end, end - len(F) : end] = F
    return whole


def stepped(factors: Parts, step: FloatArray) -> Parts:
    """Return the factors after a step of their stacked columns."""
    steps = np.split(step, np.cumsum([L.size for L in factors])[:-1])
    return tuple(L + d.reshape(L.shape, order="F") for L, d in zip(factors, steps, strict=True))


def orthogonal(L: FloatArray) -> FloatArray:
    """Return the factor of the same matrix with as many columns, which are orthogonal."""
    U, s, _ = np.linalg.svd(L, full_matrices=False)
    return U * s


def linked_blocks(linked: BoolArray) -> list[Block]:
    """Return for every term the sets of variables that are linked, directly or through others."""
    blocks: list[Block] = []
    for t, links in enumerate(linked):
        left = [a for a in range(len(links)) if links[a, a]]
        while left:
            connected = [left[0]]
            for a in connected:
                connected += [b for b in left if links[a, b] and b not in connected]
            blocks.append((t, tuple(sorted(connected))))
            left = [a for a in left if a not in connected]
    return blocks


def factor_of(S: FloatArray) -> FloatArray:
    """Return L with orthogonal columns of S = LL', which is positive semidefinite.

    Examples
    --------
    >>> L = factor_of(np.array([[4.0, 4.0], [4.0, 4.0]]))
    >>> (L @ L.T).round(12)
    array([[4., 4.],
           [4., 4.]])
    """
    values, vectors = np.linalg.eigh(S)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def null_space(L: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the null space of LL'."""
    if L.shape[1] == 0:
        return np.eye(L.shape[0])
    U, s, _ = np.linalg.svd(L, full_matrices=True)
    rank = int((s > 1e-7 * max(float(s[0]), 1e-300)).sum())
    return np.asarray(U[:, rank:])


def newton_decrement(H: FloatArray, g: FloatArray) -> float:
    """Return the distance to the maximum in standard errors, √(g'H⁻¹g), in any units."""
    if not g.size:
        return 0.0
    diagonal = np.diagonal(H)
    unit = np.sqrt(np.where(diagonal > 1e-30 * diagonal.max(), diagonal, 1.0))
    scaled = g / unit
    step = np.linalg.lstsq(H / np.outer(unit, unit), scaled, rcond=1e-12)[0]
    return float(np.sqrt(max(float(scaled @ step), 0.0)))

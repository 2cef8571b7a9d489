"""Small blocks: matrices between the variables of one group, or of what was observed together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.linalg.memory import slices
from vcomp.multivariate.layout import Layout

__all__ = [
    "Pattern",
    "ResidualBlocks",
    "block_diagonal",
    "block_quadratic",
    "by_block",
    "diagonal_blocks",
    "patterns_of",
    "root",
]

_CHUNK = 4_000_000


@dataclass(frozen=True, slots=True)
class Pattern:
    """Units in which the same variables were observed.

    Attributes
    ----------
    variables : (s,) which
    rows : (units, s) where their scores stand
    """

    variables: LongArray
    rows: LongArray


def patterns_of(layout: Layout) -> list[Pattern]:
    """Return the units of a layout by the variables that were observed in them."""
    unit, variable = layout.scores.unit, layout.scores.variable.astype(np.int64)
    order = np.lexsort((variable, unit))
    sizes = np.bincount(unit)
    starts = np.cumsum(sizes) - sizes
    names = np.add.reduceat(np.left_shift(1, variable[order]), starts)
    found = []
    for name in np.unique(names):
        units = np.flatnonzero(names == name)
        rows = order[starts[units][:, None] + np.arange(sizes[units[0]])]
        found.append(Pattern(variable[rows[0]], rows))
    return found


class ResidualBlocks:
    """Sparse matrices of one block for every unit.

    Parameters
    ----------
    patterns : of the units
    n : number of scores
    """

    def __init__(self, patterns: Sequence[Pattern], n: int) -> None:
        sides = [
            np.broadcast_to(p.rows[:, :, None], (*p.rows.shape, p.rows.shape[1])) for p in patterns
        ]
        rows = np.concatenate([side.ravel() for side in sides])
        columns = np.concatenate([side.transpose(0, 2, 1).ravel() for side in sides])
        self._units = [len(p.rows) for p in patterns]
        self._order = np.lexsort((columns, rows))
        self._columns = columns[self._order]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
        self._n = n

    def matrix(self, blocks: Sequence[FloatArray]) -> Any:
        """Return the (n, n) matrix with the same block in all units of a pattern."""
        from scipy.sparse import csr_array

        tiled = [np.tile(b.ravel(), u) for b, u in zip(blocks, self._units, strict=True)]
        data = np.concatenate(tiled)[self._order]
        return csr_array((data, self._columns, self._starts), shape=(self._n, self._n))


def root(S: FloatArray) -> FloatArray:
    """Return L with LL' = S for a positive semidefinite S.

    Examples
    --------
    >>> L = root(np.array([[4.0, 4.0], [4.0, 4.0]]))
    >>> (L @ L.T).round(12)
    array([[4., 4.],
           [4., 4.]])
    """
    values, vectors = np.linalg.eigh(S)
    factor: FloatArray = vectors * np.sqrt(np.maximum(values, 0.0))
    return factor


def diagonal_blocks(M: Any, q: int, v: int) -> FloatArray:
    """Return the (q, v, v) blocks of a sparse matrix that has nothing else."""
    M = M.tocoo()
    rows, columns = M.coords
    blocks = np.zeros((q, v, v))
    blocks[rows // v, rows % v, columns % v] = M.data
    return blocks


def block_diagonal(blocks: FloatArray) -> Any:
    """Return the sparse matrix of (q, v, v) blocks."""
    from scipy.sparse import bsr_array

    q, v, _ = blocks.shape
    return bsr_array((blocks, np.arange(q), np.arange(q + 1)), shape=(q * v, q * v)).tocsr()


def block_quadratic(A: Any, psi: FloatArray, v: int) -> FloatArray:
    """Return Σ_g A_g Ψ A_g' of a sparse matrix with v rows a group, (v, v), in parts."""
    found = np.zeros((v, v))
    groups = A.shape[0] // v
    for part in slices(groups, max(1, _CHUNK // max(1, v * psi.shape[0]))):
        rows = A[part.start * v : part.stop * v]
        made = rows @ psi
        for x in range(v):
            for z in range(v):
                found[x, z] += rows[z::v].multiply(made[x::v]).sum()
    return found


def by_block(blocks: FloatArray, x: FloatArray) -> FloatArray:
    """Return the product of a block diagonal matrix and a vector or columns.

    Parameters
    ----------
    blocks : (q, v, v)
    x : (q v,) or (q v, m)
    """
    q, v, _ = blocks.shape
    made = blocks @ x.reshape(q, v, -1)
    return np.asarray(made.reshape(x.shape))

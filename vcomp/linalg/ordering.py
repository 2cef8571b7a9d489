"""In which order to eliminate, and where to go over to a dense matrix: decided before allocating.

The unknowns come in blocks (terms). Two orders are weighed by what factorisation and inverse cost:
the blocks as given, largest first, so that the first is diagonal and further ones stay sparse
where they are nested in each other; and minimum degree, for sparse designs without such a block.
Of either the leading columns are eliminated sparsely and the rest is dense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.kernels.ordering import elimination_tree, minimum_degree

__all__ = ["Plan", "make_plan"]

_SPARSE_SECONDS = 2e-9
"""Seconds for a product of two entries of a sparse column, there and in the inverse."""

_DENSE_SECONDS = 3.5e-11
"""Seconds for m⁻³ of a dense Cholesky factor and inverse of order m, one thread."""

_GOOD_ENOUGH = 0.5
"""Seconds below which no other order is looked for."""

_MOST_WORK = 3e8
"""Entries that the search for an order looks at, at most: about three seconds."""

_DENSE_SHARE = 0.6
"""Share of the unknowns left that are neighbours of each other where the rest counts as dense."""

_MOST_ENTRIES = 450_000_000
"""Entries of L beyond which they are not counted to the end: 5 GiB, or a dense 30,000."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An order of elimination with its cost.

    Attributes
    ----------
    order : (n,) the unknowns in the order of elimination, None if that is their own
    cut : how many are eliminated sparsely
    lower : the strictly lower triangle of the matrix in that order, sparse rows
    parent, counts : (cut,) elimination tree and entries of L below the diagonal
    seconds : estimate for one factor and inverse
    """

    order: LongArray | None
    cut: int
    lower: Any
    parent: IntArray
    counts: LongArray
    seconds: float

    @property
    def n_dense(self) -> int:
        """Order of the dense part."""
        return int(self.lower.shape[0] - self.cut)

    @property
    def bytes_for_traces(self) -> float:
        """Bytes for factor and inverse, without squared norms."""
        return 36.0 * float(self.counts.sum()) + 8.0 * 3.0 * self.n_dense**2

    @property
    def bytes_for_norms(self) -> float:
        """Bytes with the squared norms of the inverse's blocks."""
        return 56.0 * float(self.counts.sum()) + 8.0 * 5.0 * self.n_dense**2


def make_plan(matrix: Any, sizes: list[int]) -> Plan | None:
    """Return how to eliminate, or None if L has too many entries in every order.

    Parameters
    ----------
    matrix : (n, n) symmetric, sparse rows, without its diagonal
    sizes : of the blocks, the first of them without entries within itself
    """
    from scipy.sparse import tril

    lower = tril(matrix, -1, format="csr")
    lower.sort_indices()
    best = _cheapest(lower, None, lower.shape[0], [0, *np.cumsum(sizes).tolist()])
    if best is None or best.seconds > _GOOD_ENOUGH:
        order, last = _minimum_degree(matrix)
        lower = tril(matrix[order][:, order], -1, format="csr")
        lower.sort_indices()
        other = _cheapest(lower, order, last, [0, last])
        if best is None or (other is not None and other.seconds < 0.8 * best.seconds):
            best = other
    return best


def _minimum_degree(matrix: Any) -> tuple[LongArray, int]:
    """Return an order and how far it is sparse; unknowns with very many neighbours come last.

    They would be neighbours of almost every other one, and slow down the search.
    """
    degree = np.diff(matrix.indptr)
    crowded = degree > max(32.0, 4.0 * np.sqrt(degree.size))
    kept = np.flatnonzero(~crowded)
    part = matrix[kept][:, kept]
    order, last = minimum_degree(
        part.indptr.astype(np.int64), part.indices.astype(np.int32), _DENSE_SHARE, _MOST_WORK
    )
    return np.concatenate([kept[order], np.flatnonzero(crowded)]), last


def _cheapest(lower: Any, order: LongArray | None, last: int, ends: list[int]) -> Plan | None:
    """Return the plan with the cheapest cut up to `last`, at one of `ends` if that is as good."""
    n = lower.shape[0]
    parent, counts = elimination_tree(
        lower.indptr.astype(np.int64), lower.indices.astype(np.int32), last, _MOST_ENTRIES
    )
    if counts.size < last:
        # The leading block alone, whose columns of L are those of the matrix.
        last = int(ends[1])
        parent, counts = elimination_tree(
            lower.indptr.astype(np.int64), lower.indices.astype(np.int32), last, _MOST_ENTRIES
        )
        if counts.size < last:
            return None
    seconds = _seconds(counts, n)
    cut = int(np.argmin(seconds))
    at_ends = [e for e in ends if e <= last]
    end = min(at_ends, key=lambda e: seconds[e])
    if seconds[end] <= 1.2 * seconds[cut] + 1e-3:
        cut = int(end)
    parent = np.where(parent[:cut] >= 0, parent[:cut], np.int32(n)).astype(np.int32)
    return Plan(order, cut, lower, parent, counts[:cut], float(seconds[cut]))


def _seconds(counts: LongArray, n: int) -> FloatArray:
    """Return the cost with a cut before each column, and after the last."""
    sparse = np.concatenate([[0.0], np.cumsum(_SPARSE_SECONDS * counts.astype(float) ** 2)])
    dense = n - np.arange(counts.size + 1.0)
    seconds: FloatArray = sparse + _DENSE_SECONDS * dense**3
    return seconds

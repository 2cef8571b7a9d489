"""Sums of the influences of rows over groups of levels, in one pass over coded rows.

Influences (docs/explanation/mathematics.md, eq. (10.17)) are computed when they are added and are
not stored. Called by :mod:`~vcomp.inference.intervals.level_passes`.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.numerics.kernels import njit

WordArray: TypeAlias = NDArray[np.uint64]

_BLOCK = 256
"""Rows of a block, whose influences fit into the fastest cache."""


@njit(cache=True, nogil=True)
def add_level_sums(
    rest: FloatArray,
    codes: IntArray,
    steps: LongArray,
    starts: LongArray,
    pulls: FloatArray,
    finer: FloatArray,
    own: FloatArray,
    set_steps: LongArray,
    set_starts: LongArray,
    sums: FloatArray,
    of_rows: FloatArray,
) -> None:
    """Add the influences of rows to the sums of their groups, and their products.

    The columns are the influences on the k components of terms, the squared residual, and its
    expectation up to a common factor.

    Parameters
    ----------
    rest : (n,) y − Xβ̂
    codes : (f, n) levels, or numbers of groups
    steps, starts : (k, f) and (k,); ``starts + steps @ codes`` are a row's groups in the terms
    pulls : (groups of all terms, 4) of ``write_pulls``
    finer : (k, k) 1 where the second term is finer than the first, else 0
    own : factor of the squared residual, and its expectation without terms
    set_steps, set_starts : (m, f) and (m,), the same for the sets of facets
    sums : (groups of all sets, k + 2), to which influences are added
    of_rows : (k + 3, k + 2), to whose lower triangle the products of single rows are added, and to
        whose last row their sums
    """
    k, m = steps.shape[0], set_steps.shape[0]
    # numba checks signed indices for negative values at every step.
    at = np.empty((max(k, 1), _BLOCK), dtype=np.uint64)
    alone = np.empty(k, dtype=np.bool_)  # whether a block is of one group of the term
    same = np.empty(codes.shape[0], dtype=np.bool_)  # whether it has one code
    effect, influence = np.empty((k, _BLOCK)), np.empty((k + 2, _BLOCK))
    of_row = np.empty((_BLOCK, k + 2))  # by row, as the sums are
    r, left, total = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(k + 2)
    for first in range(0, rest.size, _BLOCK):
        n = min(_BLOCK, rest.size - first)
        for f in range(codes.shape[0]):
            differ = np.int32(0)
            for i in range(n):
                differ |= codes[f, first + i] ^ codes[f, first]
            same[f] = differ == 0
        for i in range(n):  # an assignment of slices takes seconds to compile
            r[i] = rest[first + i]
        for t in range(k):
            alone[t] = _places(codes, steps[t], starts[t], same, first, n, at[t])
            if alone[t]:
                own_effect = pulls[at[t, 0], 0]
                for i in range(n):
                    effect[t, i] = own_effect
                    r[i] -= own_effect
            else:
                for i in range(n):
                    effect[t, i] = pulls[at[t, i], 0]
                    r[i] -= effect[t, i]
        for i in range(n):
            influence[k, i] = own[0] * r[i] * r[i]
            influence[k + 1, i] = own[1]
        for t in range(k):
            for i in range(n):
                left[i] = r[i]
            for other in range(k):
                if finer[t, other] != 0.0:
                    for i in range(n):
                        left[i] += effect[other, i]
            if alone[t]:
                constant, slope, share = pulls[at[t, 0], 1], pulls[at[t, 0], 2], pulls[at[t, 0], 3]
                for i in range(n):
                    influence[t, i] = constant + slope * left[i]
                    influence[k + 1, i] -= share
            else:
                for i in range(n):
                    h = at[t, i]
                    influence[t, i] = pulls[h, 1] + pulls[h, 2] * left[i]
                    influence[k + 1, i] -= pulls[h, 3]
        for a in range(k + 2):
            total[a] = _sum(influence[a], n)
            for i in range(n):
                of_row[i, a] = influence[a, i]
        for s in range(m):
            if _places(codes, set_steps[s], set_starts[s], same, first, n, at[0]):
                for a in range(k + 2):
                    sums[at[0, 0], a] += total[a]
            else:
                for i in range(n):
                    g = at[0, i]
                    for a in range(k + 2):
                        sums[g, a] += of_row[i, a]
        for a in range(k + 2):
            for b in range(a + 1):
                of_rows[a, b] += _inner(influence[a], influence[b], n)
            of_rows[k + 2, a] += total[a]


@njit(cache=True, nogil=True)
def _places(
    codes: IntArray,
    steps: LongArray,
    start: int,
    same: BoolArray,
    first: int,
    n: int,
    at: WordArray,
) -> bool:
    """Write the groups of `n` rows, the first at `first`, to `at`; only the first if all are one.

    Return whether they are.
    """
    begin, alone = np.uint64(start), True  # a negative start wraps around, and the sum wraps back
    for f in range(codes.shape[0]):
        if steps[f] != 0:
            if same[f]:
                begin += np.uint64(steps[f]) * np.uint64(codes[f, first])
            else:
                alone = False
    at[0] = begin
    if alone:
        return True
    for i in range(n):
        at[i] = begin
    for f in range(codes.shape[0]):
        if steps[f] != 0 and not same[f]:
            step = np.uint64(steps[f])
            for i in range(n):
                at[i] += step * np.uint64(codes[f, first + i])
    return False


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _sum(a: FloatArray, n: int) -> float:
    """Return the sum; its order depends on the machine only."""
    total = 0.0
    for i in range(n):
        total += a[i]
    return total


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _inner(a: FloatArray, b: FloatArray, n: int) -> float:
    """Return the inner product; the order of summation depends on the machine only."""
    total = 0.0
    for i in range(n):
        total += a[i] * b[i]
    return total

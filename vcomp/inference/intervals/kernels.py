"""Compiled: numbers of groups from which influences are computed, and their sums by level.

Influences of rows (docs/explanation/mathematics.md, eq. (10.17)) are added in one pass over coded
rows, and are not stored. Called by :mod:`~vcomp.inference.intervals.level_passes`. The order of a
sum depends on the machine only.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.numerics.kernels import njit


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def write_slopes(
    pulls: FloatArray,
    counts: FloatArray,
    u: FloatArray,
    effects: FloatArray,
    variances: FloatArray,
    within: FloatArray,
    own: float,
    error: float,
) -> tuple[float, float]:
    """Write effects, slopes and shares, and return what the scale of the shares is made from.

    Parameters
    ----------
    pulls : (q, 4), whose columns 0, 2 and 3 are written
    counts, u, effects : as for ``write_pulls``
    variances, within : as for ``write_pulls``; empty if there are none
    own, error : component of the term, and of the residual

    Returns
    -------
    Σ u² and Σ of the forms, over groups with rows
    """
    known_variances, has_finer = variances.size > 0, within.size > 0
    squares, forms = 0.0, 0.0
    for g in range(counts.size):
        n = max(counts[g], 1.0)
        there = 1.0 if counts[g] > 0.0 else 0.0
        spread = own + error / n
        if has_finer:
            spread += within[g] / (n * n)
        form = there / spread
        if known_variances:
            form = there * max(own - variances[g], 0.0) / (own * own)
        known = there * u[g]
        pulls[g, 0] = effects[g]
        pulls[g, 2] = known / (n * spread)
        pulls[g, 3] = form / n
        squares += known * known
        forms += form
    return squares, forms


@njit(cache=True, nogil=True, error_model="numpy")
def write_constants(
    pulls: FloatArray,
    counts: FloatArray,
    u: FloatArray,
    left: FloatArray,
    own: float,
    error: float,
    scale: float,
) -> None:
    """Write constants, and the share of each expectation in that of the squared residual.

    Parameters
    ----------
    pulls : (q, 4) of :func:`write_slopes`, whose columns 1 and 3 are written
    counts, u : as for ``write_pulls``
    left : as for ``write_pulls``; empty if there is none
    own, error : component of the term, and of the residual
    scale : of the shares
    """
    has_finer = left.size > 0
    for g in range(counts.size):
        n = max(counts[g], 1.0)
        known = u[g] if counts[g] > 0.0 else 0.0
        rest = error * known
        if has_finer:
            rest += left[g]
        share = pulls[g, 3]
        pulls[g, 1] = (known * known - pulls[g, 2] * rest) / n - scale * share
        pulls[g, 3] = own * share if scale > 0.0 else 0.0


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
    weights: FloatArray,
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
    weights : (n,) how often each row counts; empty if once
    """
    k, m = steps.shape[0], set_steps.shape[0]
    # numba checks signed indices for negative values at every step.
    at = np.empty((max(k, 1), _BLOCK), dtype=np.uint64)
    alone = np.empty(k, dtype=np.bool_)  # whether a block is of one group of the term
    same = np.empty(codes.shape[0], dtype=np.bool_)  # whether it has one code
    effect, influence = np.empty((k, _BLOCK)), np.empty((k + 2, _BLOCK))
    of_row = np.empty((_BLOCK, k + 2))  # by row, as the sums are
    weighted = np.empty((k + 2, _BLOCK)) if weights.size > 0 else influence
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
            if weights.size > 0:
                for i in range(n):
                    weighted[a, i] = influence[a, i] * weights[first + i]
            total[a] = _sum(weighted[a], n)
            for i in range(n):
                of_row[i, a] = weighted[a, i]
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
                of_rows[a, b] += _inner(weighted[a], influence[b], n)
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

"""Sums of the influences of rows over the levels of facets, in one pass over coded rows.

The influence of a row on the estimates is computed at every use and never stored
(docs/explanation/mathematics.md, eq. (10.17)).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from vcomp._typing import FloatArray, IntArray, LongArray


@njit(cache=True, nogil=True)
def add_level_sums(
    residuals: FloatArray,
    codes: IntArray,
    groups: IntArray,
    offsets: LongArray,
    effects: FloatArray,
    constant: FloatArray,
    slope: FloatArray,
    expected: FloatArray,
    finer: FloatArray,
    own: FloatArray,
    places: LongArray,
    sums: FloatArray,
    of_rows: FloatArray,
) -> None:
    """Add the influences of rows to the sums of their groups, and their products.

    Parameters
    ----------
    residuals : (n,) σ²_e r, with r = V⁻¹(y − Xβ̂)
    codes : (k, n) group of each row in each term
    groups : (m, n) group of each row in each set of facets
    offsets : (k,) first group of a term in `effects`, `constant` and `slope`
    effects : predicted effects of all groups of all terms
    constant, slope : of the influence of a row on a component, in what the terms that are finer
        leave of its residual
    expected : expectation of the product of a row with its group, of all groups of all terms
    finer : (k, k) 1 where the second term is finer than the first, else 0
    own : (2 + k,) of the influence on the residual: factor of the squared residual, constant, and
        factors of the expectations
    places : (m,) first row in `sums` of a set of facets
    sums : (groups of all sets, k + 1), added to
    of_rows : (k + 1, k + 1) products of the influences of single rows, lower triangle, added to
    """
    k, m = codes.shape[0], groups.shape[0]
    influence, effect = np.empty(k + 1), np.empty(k)
    for i in range(residuals.size):
        r = residuals[i]
        for t in range(k):
            effect[t] = effects[offsets[t] + codes[t, i]]
        last = own[0] * r * r - own[1]
        for t in range(k):
            left = r
            for other in range(k):
                left += finer[t, other] * effect[other]
            at = offsets[t] + codes[t, i]
            influence[t] = constant[at] + slope[at] * left
            last -= own[2 + t] * expected[at]
        influence[k] = last
        for s in range(m):
            at = places[s] + groups[s, i]
            for a in range(k + 1):
                sums[at, a] += influence[a]
        for a in range(k + 1):
            for b in range(a + 1):
                of_rows[a, b] += influence[a] * influence[b]

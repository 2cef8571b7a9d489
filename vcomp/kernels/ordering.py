"""Where the factor of a sparse symmetric matrix fills in, and an order that fills little."""

from __future__ import annotations

import numpy as np
from numba import njit

from vcomp._typing import IntArray, LongArray

__all__ = ["elimination_tree", "minimum_degree"]


@njit(cache=True, nogil=True)
def elimination_tree(
    indptr: LongArray, indices: IntArray, cut: int, limit: int
) -> tuple[IntArray, LongArray]:
    """Return parent and number of entries of L below the diagonal of the first `cut` columns.

    Parameters
    ----------
    indptr, indices : rows of the strictly lower triangle
    limit : once L has more entries than this there are no counts
    """
    n = indptr.size - 1
    parent = np.full(cut, -1, np.int32)
    seen = np.full(n, -1, np.int32)
    counts = np.zeros(cut, np.int64)
    total = 0
    for i in range(n):
        seen[i] = i
        for p in range(indptr[i], indptr[i + 1]):
            k = indices[p]
            while k < cut and seen[k] != i:
                if parent[k] == -1:
                    parent[k] = i
                counts[k] += 1
                total += 1
                seen[k] = i
                k = parent[k]
        if total > limit:
            return parent, np.zeros(0, np.int64)
    return parent, counts


@njit(cache=True, nogil=True)
def _grown(pool: IntArray, needed: int) -> IntArray:
    larger = np.empty(2 * needed, np.int32)
    larger[: pool.size] = pool
    return larger


@njit(cache=True, nogil=True)
def minimum_degree(
    indptr: LongArray, indices: IntArray, dense_share: float
) -> tuple[IntArray, int]:
    """Return an order of elimination, and how many come before the rest is nearly full.

    Each step eliminates a node of (about) the fewest neighbours in the graph that is left;
    neighbours are kept as the node's own and as cliques left by eliminated ones, with the bound on
    degrees of Amestoy, Davis & Duff (1996).

    Parameters
    ----------
    indptr, indices : rows of the whole matrix without its diagonal
    dense_share : it ends when the fewest neighbours exceed this share of the nodes that are left
    """
    n = indptr.size - 1
    # Lists of neighbours, then of cliques that the node is in, then the cliques' members.
    near_size, clique_size = np.empty(n, np.int64), np.zeros(n, np.int64)
    near, in_cliques = indices.copy(), np.empty(indices.size, np.int32)
    members = np.empty(max(indices.size, 1), np.int32)
    m_start, m_size, used = np.zeros(n, np.int64), np.zeros(n, np.int64), 0
    degree = np.empty(n, np.int64)
    head, after, before = np.full(n + 1, -1), np.full(n, -1), np.full(n, -1)
    for i in range(n - 1, -1, -1):
        near_size[i] = degree[i] = indptr[i + 1] - indptr[i]
        after[i] = head[degree[i]]
        if head[degree[i]] >= 0:
            before[head[degree[i]]] = i
        head[degree[i]] = i
    state = np.zeros(n, np.int8)  # 0 a node, 1 eliminated with a clique, 2 its clique absorbed
    mark, left, stamp = np.full(n, -1, np.int64), np.empty(n, np.int64), np.full(n, -1, np.int64)
    order = np.empty(n, np.int32)
    lowest = 0
    for step in range(n):
        while head[lowest] < 0:
            lowest += 1
        if lowest > dense_share * (n - step - 1) and lowest > 32:
            place = step
            for i in range(n):
                if state[i] == 0:
                    order[place] = i
                    place += 1
            return order, step
        pivot = head[lowest]
        head[lowest] = after[pivot]
        if after[pivot] >= 0:
            before[after[pivot]] = -1
        order[step] = pivot
        state[pivot] = 1
        mark[pivot] = step
        # The pivot's clique: its neighbours, its own and those through its cliques.
        bound = near_size[pivot]
        for q in range(clique_size[pivot]):
            bound += m_size[in_cliques[indptr[pivot] + q]]
        if used + bound > members.size:
            members = _grown(members, used + bound)
        m_start[pivot] = used
        for p in range(indptr[pivot], indptr[pivot] + near_size[pivot]):
            i = near[p]
            if state[i] == 0 and mark[i] != step:
                mark[i] = step
                members[used] = i
                used += 1
        for q in range(indptr[pivot], indptr[pivot] + clique_size[pivot]):
            e = in_cliques[q]
            for p in range(m_start[e], m_start[e] + m_size[e]):
                i = members[p]
                if state[i] == 0 and mark[i] != step:
                    mark[i] = step
                    members[used] = i
                    used += 1
            state[e] = 2
        m_size[pivot] = used - m_start[pivot]
        # How much of each other clique lies outside this one.
        for p in range(m_start[pivot], used):
            i = members[p]
            for q in range(indptr[i], indptr[i] + clique_size[i]):
                e = in_cliques[q]
                if state[e] == 1:
                    if stamp[e] != step:
                        stamp[e] = step
                        left[e] = m_size[e]
                    left[e] -= 1
        for p in range(m_start[pivot], used):
            i = members[p]
            kept, outside = indptr[i], m_size[pivot] - 1
            for q in range(indptr[i], indptr[i] + clique_size[i]):
                e = in_cliques[q]
                if state[e] == 1 and e != pivot:
                    if left[e] == 0:
                        state[e] = 2
                        continue
                    in_cliques[kept] = e
                    kept += 1
                    outside += left[e]
            clique_size[i] = kept - indptr[i]
            kept = indptr[i]
            for q in range(indptr[i], indptr[i] + near_size[i]):
                u = near[q]
                if state[u] == 0 and mark[u] != step:
                    near[kept] = u
                    kept += 1
            near_size[i] = kept - indptr[i]
            in_cliques[indptr[i] + clique_size[i]] = pivot
            clique_size[i] += 1
            new = min(n - step - 2, outside + near_size[i], degree[i] + m_size[pivot] - 1)
            new = max(new, 0)
            # Move it to the list of its new degree.
            if before[i] >= 0:
                after[before[i]] = after[i]
            else:
                head[degree[i]] = after[i]
            if after[i] >= 0:
                before[after[i]] = before[i]
            degree[i] = new
            before[i] = -1
            after[i] = head[new]
            if head[new] >= 0:
                before[head[new]] = i
            head[new] = i
            lowest = min(lowest, new)
    return order, n

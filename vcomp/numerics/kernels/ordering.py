"""Fill-in of the factor of a sparse symmetric matrix, and an order with little fill-in."""

from __future__ import annotations

import numpy as np

from vcomp._typing import IntArray, LongArray
from vcomp.numerics.kernels.compilation import njit

_NODE, _CLIQUE, _ABSORBED = 0, 1, 2
"""States: not eliminated; eliminated, its neighbours form a clique; part of a larger clique."""

_FEW = 32
"""Number of neighbours up to which the rest is never treated as full."""


def elimination_tree(
    indptr: LongArray, indices: IntArray, cut: int, limit: int
) -> tuple[IntArray, LongArray]:
    """Return the elimination tree (parents) and the column counts of L of the first `cut` columns.

    Counts are of entries below the diagonal.

    Parameters
    ----------
    indptr, indices : rows of the strictly lower triangle
    limit : number of entries of L above which counting stops; no counts are returned then
    """
    parent, seen = np.full(cut, -1, np.int32), np.full(indptr.size - 1, -1, np.int32)
    counts = np.zeros(cut, np.int64)
    is_whole = _grow_tree(indptr, indices, limit, parent, counts, seen)
    return parent, counts if is_whole else np.zeros(0, np.int64)


@njit(cache=True, nogil=True)
def _grow_tree(
    indptr: LongArray,
    indices: IntArray,
    limit: int,
    parent: IntArray,
    counts: LongArray,
    seen: IntArray,
) -> bool:
    cut, total = parent.size, 0
    for i in range(seen.size):
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
            return False
    return True


@njit(cache=True, nogil=True)
def _put(i: int, degree: int, head: LongArray, after: LongArray, before: LongArray) -> None:
    """Add node i to the list of nodes of a degree, in front."""
    before[i] = -1
    after[i] = head[degree]
    if head[degree] >= 0:
        before[head[degree]] = i
    head[degree] = i


@njit(cache=True, nogil=True)
def _take(i: int, degree: int, head: LongArray, after: LongArray, before: LongArray) -> None:
    """Remove node i from the list of nodes of a degree."""
    if before[i] >= 0:
        after[before[i]] = after[i]
    else:
        head[degree] = after[i]
    if after[i] >= 0:
        before[after[i]] = before[i]


@njit(cache=True, nogil=True)
def _add_new(
    found: IntArray, step: int, state: IntArray, mark: LongArray, members: IntArray, used: int
) -> int:
    """Append the found nodes that are neither eliminated nor marked; return the new end."""
    for i in found:
        if state[i] == _NODE and mark[i] != step:
            mark[i] = step
            members[used] = i
            used += 1
    return used


@njit(cache=True, nogil=True)
def _count_outside(
    members: IntArray,
    step: int,
    start: LongArray,
    n_cliques: LongArray,
    cliques: IntArray,
    state: IntArray,
    size: LongArray,
    stamp: LongArray,
    outside: LongArray,
) -> None:
    """Count the nodes of each other clique that are not among `members`."""
    for i in members:
        for q in range(start[i], start[i] + n_cliques[i]):
            e = cliques[q]
            if state[e] == _CLIQUE:
                if stamp[e] != step:
                    stamp[e] = step
                    outside[e] = size[e]
                outside[e] -= 1


@njit(cache=True, nogil=True)
def _prune(
    i: int,
    pivot: int,
    step: int,
    start: LongArray,
    near: IntArray,
    n_near: LongArray,
    cliques: IntArray,
    n_cliques: LongArray,
    state: IntArray,
    mark: LongArray,
    outside: LongArray,
) -> int:
    """Remove neighbours and cliques that the pivot's clique covers from the lists of node i.

    Return an upper bound on the number of its other neighbours.
    """
    kept, total = start[i], 0
    for q in range(start[i], start[i] + n_cliques[i]):
        e = cliques[q]
        if state[e] == _CLIQUE and e != pivot:
            if outside[e] == 0:
                state[e] = _ABSORBED
                continue
            cliques[kept] = e
            kept += 1
            total += outside[e]
    # The list has space: the pivot was a neighbour, or one of the pivot's cliques was removed.
    cliques[kept] = pivot
    n_cliques[i] = kept + 1 - start[i]
    kept = start[i]
    for q in range(start[i], start[i] + n_near[i]):
        u = near[q]
        if state[u] == _NODE and mark[u] != step:
            near[kept] = u
            kept += 1
    n_near[i] = kept - start[i]
    return int(total + n_near[i])


@njit(cache=True, nogil=True)
def minimum_degree(
    indptr: LongArray, indices: IntArray, dense_share: float, most_work: float
) -> tuple[IntArray, int]:
    """Return a minimum degree order, and the number of unknowns before the rest is nearly full.

    Each step eliminates a node with (about) the fewest neighbours in the remaining graph.
    Neighbours are stored as the node's own and as cliques of eliminated nodes, with the bound on
    degrees of Amestoy, Davis & Duff (1996).

    Parameters
    ----------
    indptr, indices : rows of the whole matrix without its diagonal
    dense_share : the search ends if every remaining node is coupled with more than this fraction
        of the remaining nodes
    most_work : the search also ends after so many visits of list entries: the rest is then too
        full for an order to help
    """
    n = indptr.size - 1
    near, cliques = indices.copy(), np.empty(indices.size, np.int32)
    n_near, n_cliques = indptr[1:] - indptr[:-1], np.zeros(n, np.int64)
    members, used = np.empty(max(indices.size, 1), np.int32), 0
    begin, size = np.zeros(n, np.int64), np.zeros(n, np.int64)
    degree = n_near.copy()
    head, after, before = np.full(n + 1, -1), np.full(n, -1), np.full(n, -1)
    for i in range(n - 1, -1, -1):
        _put(i, degree[i], head, after, before)
    state, order = np.zeros(n, np.int32), np.empty(n, np.int32)
    mark, stamp, outside = np.full(n, -1), np.full(n, -1), np.empty(n, np.int64)
    lowest, work = 0, 0.0
    for step in range(n):
        while head[lowest] < 0:
            lowest += 1
        full = lowest > dense_share * (n - step - 1) and lowest > _FEW
        if full or work > most_work:
            order[step:] = np.flatnonzero(state == _NODE)
            return order, step
        pivot = head[lowest]
        _take(pivot, lowest, head, after, before)
        order[step], state[pivot], mark[pivot] = pivot, _CLIQUE, step
        own = cliques[indptr[pivot] : indptr[pivot] + n_cliques[pivot]]
        bound = used + n_near[pivot] + size[own].sum()
        if bound > members.size:
            members = np.concatenate((members[:used], np.empty(2 * bound - used, np.int32)))
        begin[pivot] = used
        nodes = near[indptr[pivot] : indptr[pivot] + n_near[pivot]]
        used = _add_new(nodes, step, state, mark, members, used)
        for e in own:
            nodes = members[begin[e] : begin[e] + size[e]]
            used = _add_new(nodes, step, state, mark, members, used)
            state[e] = _ABSORBED
        clique = members[begin[pivot] : used]
        size[pivot] = clique.size
        _count_outside(clique, step, indptr, n_cliques, cliques, state, size, stamp, outside)
        for i in clique:
            rest = _prune(
                i, pivot, step, indptr, near, n_near, cliques, n_cliques, state, mark, outside
            )
            work += 1.0 + 2.0 * n_cliques[i] + n_near[i]
            _take(i, degree[i], head, after, before)
            # Cliques may overlap: the old degree plus the new neighbours is a bound as well.
            degree[i] = min(n - step - 2, rest + clique.size - 1, degree[i] + clique.size - 1)
            _put(i, degree[i], head, after, before)
            lowest = min(lowest, degree[i])
    return order, n

"""The minimum degree order against its rule with lists of nodes, and where nothing is filled."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from vcomp.numerics.kernels.ordering import minimum_degree


def by_lists(neighbours, dense_share, most_work):
    """Return order, number of sparse nodes and work: Amestoy, Davis & Duff (1996), eq. (2.2)."""
    n = len(neighbours)
    near, cliques, members = [list(x) for x in neighbours], [[] for _ in neighbours], {}
    degree = [len(x) for x in near]
    # Of equal degrees the node that came last is the next; at the start the first one.
    waiting = sorted(range(n), reverse=True)
    left, order, work = set(range(n)), [], 0.0
    for step in range(n):
        lowest = min(degree[i] for i in left)
        if (lowest > dense_share * (n - step - 1) and lowest > 32) or work > most_work:
            return [*order, *sorted(left)], step, work
        pivot = next(i for i in reversed(waiting) if degree[i] == lowest)
        waiting.remove(pivot)
        left.remove(pivot)
        order.append(pivot)
        own = [*near[pivot], *(i for e in cliques[pivot] for i in members.pop(e))]
        clique = [i for i in dict.fromkeys(own) if i in left]
        inside = set(clique)
        outside = {e: len(set(m) - inside) for e, m in members.items()}
        members = {e: m for e, m in members.items() if outside[e]} | {pivot: clique}
        for i in clique:
            others = [e for e in cliques[i] if outside.get(e)]
            cliques[i] = [*others, pivot]
            near[i] = [u for u in near[i] if u in left and u not in inside]
            work += 1.0 + 2.0 * len(cliques[i]) + len(near[i])
            rest = sum(outside[e] for e in others) + len(near[i])
            more = len(clique) - 1
            degree[i] = min(n - step - 2, rest + more, degree[i] + more)
            waiting.remove(i)
            waiting.append(i)
    return order, n, work


def graph_of(A):
    neighbours = [np.flatnonzero(row).astype(np.int32) for row in A]
    ends = np.cumsum([0, *(x.size for x in neighbours)]).astype(np.int64)
    return ends, np.concatenate([np.zeros(0, np.int32), *neighbours]), neighbours


@settings(deadline=None, max_examples=examples(60))
@given(
    st.integers(0, 60),
    st.sampled_from([0.0, 0.03, 0.08, 0.2, 0.5, 1.0]),
    st.sampled_from([0.3, 0.6, 1.0]),
    st.floats(0.0, 1.2),
    st.integers(0, 2**32 - 1),
)
def test_the_order_is_that_of_the_rule(n, density, share, part_of_work, seed):
    A = np.triu(np.random.default_rng(seed).random((n, n)) < density, 1)
    ends, indices, neighbours = graph_of(A | A.T)
    whole = by_lists(neighbours, share, np.inf)
    found, last = minimum_degree(ends, indices, share, np.inf)
    assert (found.tolist(), last) == (whole[0], whole[1])
    most = part_of_work * whole[2]
    expected = by_lists(neighbours, share, most)
    found, last = minimum_degree(ends, indices, share, most)
    assert (found.tolist(), last) == (expected[0], expected[1])


@pytest.mark.parametrize("k", [1, 2])  # the degrees are exact where few cliques overlap
@pytest.mark.parametrize("seed", range(3))
def test_a_graph_of_cliques_is_not_filled(k, seed):
    """Each node after the first k + 1 joins a clique of k: its elimination needs no entry."""
    rng, n = np.random.default_rng(seed), 120
    A = np.zeros((n, n), dtype=bool)
    A[: k + 1, : k + 1] = ~np.eye(k + 1, dtype=bool)
    sets = [np.delete(np.arange(k + 1), i) for i in range(k + 1)]
    for node in range(k + 1, n):
        clique = sets[rng.integers(len(sets))]
        A[node, clique] = A[clique, node] = True
        sets += [np.append(np.delete(clique, i), node) for i in range(k)]
    place = rng.permutation(n)
    A = A[np.ix_(place, place)]
    ends, indices, _ = graph_of(A)
    order, last = minimum_degree(ends, indices, 1.0, np.inf)
    assert last == n
    left = A[np.ix_(order, order)]
    for step in range(n):
        after = np.flatnonzero(left[step, step + 1 :]) + step + 1
        assert left[np.ix_(after, after)].sum() == after.size * (after.size - 1)

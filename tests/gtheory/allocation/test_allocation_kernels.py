"""The search for sizes against trying all of them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcomp.gtheory.allocation.search import relaxed, search, value_at

# Plain Python warns of what compiled code passes over.
pytestmark = pytest.mark.filterwarnings(
    "ignore:(overflow|divide by zero|invalid value) encountered"
)

MOST_WORK = 10**9
coefficient = st.one_of(st.just(0.0), st.floats(-3, 3).map(lambda x: 10.0**x))


@st.composite
def problems(draw):
    """Return objective, constraint, limit, lo, hi and which of both kinds of search it is."""
    F = draw(st.integers(2, 4))
    o, c = (np.array(draw(st.lists(coefficient, min_size=1 << F, max_size=1 << F))) for _ in "oc")
    for j in range(F):  # every facet matters to both
        o[1 << j] += 1e-3
        c[1 << j] += 1e-2
    lo = np.array(draw(st.lists(st.integers(1, 3), min_size=F, max_size=F)), dtype=float)
    widest = {2: 40, 3: 9, 4: 4}[F]
    hi = lo + np.array(draw(st.lists(st.integers(1, widest), min_size=F, max_size=F)))
    budget = draw(st.booleans())
    ends = [value_at(c, sizes, not budget) for sizes in (lo, hi)]
    # Below what is possible, between, and above what is needed.
    share = draw(st.floats(-0.1, 1.1))
    limit = np.exp((1 - share) * np.log(min(ends)) + share * np.log(max(ends)))
    # No sum is at the limit exactly, where rounding would decide.
    return o, c, float(limit) * (1 + 1e-10), lo, hi, budget


def value(coefficients, sizes, inverse):
    """Return Σ coefficient · Π n or Π 1/n, the first facet being the highest bit."""
    total = 0.0
    for mask, c in enumerate(coefficients):
        n = [sizes[j] for j in range(len(sizes)) if mask >> (len(sizes) - 1 - j) & 1]
        total += c / np.prod(n) if inverse else c * np.prod(n)
    return total


def brute_force(o, c, limit, lo, hi, budget):
    """Return every combination of sizes that keeps the limit: objective, constraint, sizes."""
    ranges = [range(int(a), int(b) + 1) for a, b in zip(lo, hi, strict=True)]
    rows = [(value(c, n, not budget), n) for n in itertools.product(*ranges)]
    return [(value(o, n, budget), used, n) for used, n in rows if used <= limit]


def run(o, c, limit, lo, hi, budget, *, top=1, near=0.0, ceiling=np.inf):
    order = np.arange(lo.size)
    return search(o, c, limit, lo, hi, budget, order, top, near, ceiling, MOST_WORK)


@settings(deadline=None, max_examples=150)
@given(problems())
def test_no_sizes_are_better(problem):
    found, others, work = run(*problem)
    everything = brute_force(*problem)
    assert work < MOST_WORK
    if not everything:
        assert np.isinf(found[0, 0])
        return
    best = min(v for v, _, _ in everything)
    # Errors within 1e-11 count as the same, and the cheapest of these is taken.
    np.testing.assert_allclose(found[0, 0], best, rtol=1.1e-11)
    cheapest = min(used for v, used, _ in everything if v <= best * (1 + 1e-14))
    assert others[0] <= cheapest * (1 + 1.1e-11)
    o, c, _, _, _, budget = problem
    np.testing.assert_allclose(value(o, found[0, 1:], budget), found[0, 0], rtol=1e-12)
    np.testing.assert_allclose(value(c, found[0, 1:], not budget), others[0], rtol=1e-12)


@settings(deadline=None)
@given(problems(), st.integers(1, 8), st.sampled_from([0.02, 0.3]))
def test_near_designs_are_those_that_no_facet_alone_improves(problem, top, near):
    budget = problem[-1]
    everything = {n: v for v, _, n in brute_force(*problem)}
    step = 1 if budget else -1

    def is_undominated(n):
        return not any((*n[:j], n[j] + step, *n[j + 1 :]) in everything for j in range(len(n)))

    values = sorted(v for n, v in everything.items() if is_undominated(n))
    values = [v for v in values if v <= values[0] * (1 + near)][:top]
    found, _, _ = run(*problem, top=top, near=near)
    kept = found[np.isfinite(found[:, 0])]
    np.testing.assert_allclose(kept[:, 0], values, rtol=1.1e-11)
    assert len({tuple(row[1:]) for row in kept}) == len(kept)
    assert all(is_undominated(tuple(int(x) for x in row[1:])) for row in kept)


@settings(deadline=None)
@given(problems())
def test_a_ceiling_hides_what_is_worse(problem):
    found, _, _ = run(*problem)
    if np.isfinite(found[0, 0]):
        above, _, _ = run(*problem, ceiling=found[0, 0])
        np.testing.assert_array_equal(above, found)
        below, _, _ = run(*problem, ceiling=found[0, 0] * 0.999)
        assert np.isinf(below[0, 0])


@settings(deadline=None, max_examples=100)
@given(problems())
def test_the_bound_is_below_all_whole_sizes_and_touches_real_ones(problem):
    o, c, limit, lo, hi, budget = problem
    best = lo.copy()
    bound = relaxed(o, c, lo.size, limit, lo, hi, budget, best)
    everything = brute_force(*problem)
    if not everything:
        return
    assert bound <= min(v for v, _, _ in everything) * (1 + 1e-12)
    # The sizes where it lies are within the limits, and as good as the bound says.
    assert value(c, best, not budget) <= limit * (1 + 1e-9)
    assert (best >= lo * (1 - 1e-9)).all()
    assert (best <= hi * (1 + 1e-9)).all()
    # Where hardly anything but a corner is left, a bound that is a little lower will do.
    if value(c, lo if budget else hi, not budget) < limit * (1 - 1e-3):
        assert value(o, best, budget) <= bound * (1 + 1e-6)


def test_a_search_can_be_given_up():
    o, c = np.zeros(16), np.zeros(16)
    for j, (a, b) in enumerate([(1.0, 1.234), (0.5, 2.777), (0.3, 3.333), (0.2, 5.12)]):
        o[1 << j], c[1 << j] = a, b
    lo, hi, order = np.ones(4), np.full(4, 1e5), np.arange(4)
    _, _, work = search(o, c, 1e6, lo, hi, True, order, 1, 0.0, np.inf, 5000)
    assert work > 5000


def test_equal_designs_are_compared_by_their_first_size():
    o, c = np.array([0.0, 1.0, 1.0, 0.0]), np.array([0.0, 0.0, 0.0, 1.0])
    lo, hi = np.ones(2), np.full(2, 6.0)
    for order, first in (([0, 1], [2.0, 3.0]), ([1, 0], [3.0, 2.0])):
        found, others, _ = search(o, c, 6.5, lo, hi, True, np.array(order), 1, 0.0, np.inf, 1000)
        np.testing.assert_array_equal(found[0, 1:], first)
        assert others[0] == 6.0

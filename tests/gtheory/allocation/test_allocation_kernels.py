"""The search for sizes against trying all of them."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from vcomp.gtheory.allocation.search import (
    _barrier,
    _bound_from,
    _centre,
    _furthest,
    _furthest_whole,
    _is_undominated,
    _keep,
    _log_slopes,
    _newton_step,
    _pair_bound,
    _pair_relaxed,
    _step_inside,
    relaxed,
    search,
    value_at,
)

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


def values(coefficients, sizes, inverse):
    """Return the same for columns of sizes."""
    n = 1.0 / sizes if inverse else sizes
    places = range(len(n))
    return sum(
        c * np.prod([n[j] for j in places if mask >> (len(n) - 1 - j) & 1], axis=0)
        for mask, c in enumerate(coefficients)
    )


def brute_force(o, c, limit, lo, hi, budget):
    """Return every combination of sizes that keeps the limit: objective, constraint, sizes."""
    ranges = [range(int(a), int(b) + 1) for a, b in zip(lo, hi, strict=True)]
    rows = [(value(c, n, not budget), n) for n in itertools.product(*ranges)]
    return [(value(o, n, budget), used, n) for used, n in rows if used <= limit]


def run(o, c, limit, lo, hi, budget, *, top=1, near=0.0, ceiling=np.inf):
    order = np.arange(lo.size)
    return search(o, c, limit, lo, hi, budget, order, top, near, ceiling, MOST_WORK)


@settings(deadline=None, max_examples=examples(150))
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


@settings(deadline=None, max_examples=examples(100))
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


def test_a_search_that_is_given_up_did_more_than_it_may():
    """By its work, so that the search is complete unless that is above the limit."""
    o, c, limit, lo, hi, budget = a_problem(True)
    rest = (o, c, limit, lo, hi, budget, np.arange(3), 400, 5.0, np.inf)
    whole, _, work = search(*rest, MOST_WORK)
    done = [0]
    while done[-1] < work:
        found, _, more = search(*rest, done[-1])
        assert more > done[-1]
        done.append(more)
    found, _, more = search(*rest, work)
    assert (more, len(done) > 10) == (work, True)
    np.testing.assert_array_equal(found, whole)


def test_designs_without_error_are_all_near_each_other():
    o, c = np.zeros(4), np.array([0.0, 0.0, 0.0, 1.0])
    lo, hi = np.ones(2), np.full(2, 6.0)
    found, _, _ = search(o, c, 6.5, lo, hi, True, np.arange(2), 5, 0.0, np.inf, 1000)
    np.testing.assert_array_equal(found[:4, 1:], [[1, 6], [2, 3], [3, 2], [6, 1]])
    assert np.isinf(found[4, 0])


def test_equal_designs_are_compared_by_their_first_size():
    o, c = np.array([0.0, 1.0, 1.0, 0.0]), np.array([0.0, 0.0, 0.0, 1.0])
    lo, hi = np.ones(2), np.full(2, 6.0)
    for order, first in (([0, 1], [2.0, 3.0]), ([1, 0], [3.0, 2.0])):
        found, others, _ = search(o, c, 6.5, lo, hi, True, np.array(order), 1, 0.0, np.inf, 1000)
        np.testing.assert_array_equal(found[0, 1:], first)
        assert others[0] == 6.0


# The relaxed problem, where sizes need not be whole -------------------------------------------


def a_problem(budget, n_facets=3):
    """Return objective, constraint, limit, lo, hi and kind of a problem far from size 1."""
    rng = np.random.default_rng(5)
    o, c = rng.uniform(0.1, 2.0, (2, 1 << n_facets))
    lo, hi = (
        np.array([2.0, 3.0, 5.0, 2.0])[:n_facets],
        np.array([30.0, 40.0, 60.0, 20.0])[:n_facets],
    )
    limit = np.sqrt(value(c, lo, not budget) * value(c, hi, not budget))
    return o, c, float(limit), lo, hi, budget


@pytest.mark.parametrize("budget", [True, False])
def test_the_centre_is_the_minimum_of_the_barrier(budget):
    """t f(x) − log(room) − Σ log of the distances from the box, by the sums of its definition."""
    o, c, limit, lo, hi, _ = a_problem(budget)
    sign, t = (1.0 if budget else -1.0), 40.0
    low, high = np.log(lo), np.log(hi)

    def barrier(x):
        n = np.exp(x)
        room = np.log(limit) - np.log(value(c, n, not budget))
        inside = np.log(x - low).sum() + np.log(high - x).sum()
        return t * np.log(value(o, n, budget)) - np.log(room) - inside

    x = np.empty(3)
    share = _step_inside(c, 3, sign, np.log(limit), low, high, x)
    corner = low if budget else high
    np.testing.assert_allclose(abs(x - corner), share * (high - low), rtol=1e-13)
    assert value(c, np.exp(x), not budget) < limit
    rest = (o, c, 3, sign, np.log(limit), low, high, t)
    assert _barrier(*rest, x) == pytest.approx(barrier(x), rel=1e-13)
    _centre(*rest, x)
    assert _barrier(*rest, x) == pytest.approx(barrier(x), rel=1e-13)
    for step in 1e-3 * np.vstack([np.eye(3), -np.eye(3)]):
        assert barrier(x + step) > barrier(x)
    beyond = high.copy() if budget else low.copy()
    assert np.isinf(_barrier(*rest, beyond))
    assert np.isinf(_barrier(*rest, 0.999 * beyond + 0.001 * low.mean()))  # beyond the limit


@pytest.mark.parametrize("budget", [True, False])
def test_slopes_are_those_of_the_logarithm_of_the_sum(budget):
    o, _, _, lo, hi, _ = a_problem(budget)
    sign, x, h = (1.0 if budget else -1.0), 0.5 * np.log(lo * hi), 1e-4
    slope, bend = np.empty(3), np.empty((3, 3))
    at = _log_slopes(o, 3, sign, x, slope, bend)

    def f(*moves):
        return np.log(value(o, np.exp(x + np.sum(moves, axis=0)), not budget))

    assert at == pytest.approx(f(np.zeros(3)), rel=1e-14)
    steps = h * np.eye(3)
    np.testing.assert_allclose(slope, [(f(s) - f(-s)) / (2 * h) for s in steps], atol=1e-7)
    second = [[f(a, b) - f(a, -b) - f(-a, b) + f(-a, -b) for a in steps] for b in steps]
    np.testing.assert_allclose(bend, np.array(second) / (4 * h * h), atol=1e-6)


@pytest.mark.parametrize("budget", [True, False])
@pytest.mark.parametrize("t", [3.0, 1e4])
def test_the_bound_holds_from_any_point_and_touches_from_the_centre(budget, t):
    o, c, limit, lo, hi, _ = a_problem(budget)
    sign, low, high = (1.0 if budget else -1.0), np.log(lo), np.log(hi)
    grid = np.exp(np.meshgrid(*np.linspace(low, high, 25).T)).reshape(3, -1)
    least = np.log(values(o, grid, budget)[values(c, grid, not budget) <= limit].min())
    x = np.empty(3)
    rest = (o, c, 3, sign, np.log(limit), low, high, t)
    _step_inside(c, 3, sign, np.log(limit), low, high, x)
    assert _bound_from(*rest, x) <= least
    _centre(*rest, x)
    bound = _bound_from(*rest, x)
    # Of 7 limits and t the duality gap is at most 7/t.
    assert np.log(value(o, np.exp(x), budget)) - 7.0 / t - 1e-6 <= bound <= least


@pytest.mark.parametrize("budget", [True, False])
def test_the_bound_of_two_facets_is_the_best_real_size_of_the_second(budget):
    o, c, limit, lo, hi, _ = a_problem(budget, 2)
    sizes = np.linspace(lo[1], hi[1], 20_001)
    least = []
    for n in np.arange(lo[0], hi[0] + 1.0):
        pairs = np.array([np.full_like(sizes, n), sizes])
        kept = values(c, pairs, not budget) <= limit
        expected = values(o, pairs, budget)[kept].min(initial=np.inf)
        found = _pair_bound(o, c, limit, lo, hi, budget, n)
        assert found == pytest.approx(expected, rel=2e-3)
        assert found <= expected
        least.append(found)
    assert np.isinf(least).any() or min(least) < least[0]
    bound, at = _pair_relaxed(o, c, limit, lo, hi, budget)
    assert bound <= min(least) * (1 + 1e-12)
    assert bound == pytest.approx(_pair_bound(o, c, limit, lo, hi, budget, at), rel=1e-12)
    near = int(np.argmin(least)) + lo[0]
    assert abs(at - near) <= 1.0


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_of_designs_as_good_and_as_dear_the_first_has_fewest_levels(order):
    """Of the first facet in the given order: 1/(n n' n'') is the error, and n n' n'' the cost."""
    both, lo, hi = np.eye(8)[7], np.ones(3), np.full(3, 12.0)
    sizes = itertools.product((1.0, 2.0, 3.0, 4.0, 6.0, 12.0), repeat=3)
    designs = sorted(
        (list(n) for n in sizes if np.prod(n) == 12.0), key=lambda n: [n[j] for j in order]
    )
    found, _, _ = search(
        both, both, 12.0, lo, hi, True, np.array(order), len(designs), 0.0, np.inf, MOST_WORK
    )
    assert found[:, 1:].tolist() == designs


def test_steps_of_newton_solve_the_equations():
    rng = np.random.default_rng(2)
    A, g, step = rng.normal(size=(4, 4)), rng.normal(size=4), np.empty(4)
    H = A @ A.T + np.eye(4)
    expected = np.linalg.solve(H, -g)
    decrease = _newton_step(H.copy(), g, 4, step)
    np.testing.assert_allclose(step, expected, rtol=1e-12)
    assert decrease == pytest.approx(-g @ expected, rel=1e-12)


@given(
    st.floats(0, 3), st.floats(0.01, 3), st.integers(1, 12), st.sampled_from([0, 1e-15, 1e-8]),
    st.booleans(), st.sampled_from([-1, 1]),
)  # fmt: skip
@example(1.07, 2.8, 5, 1.2e-16, True, -1)  # (limit - a) / b is 5, but a + 5b is above the limit
@example(0.56, 1.81, 5, 1.2e-16, False, -1)
@example(2.44, 0.06, 4, 0, True, 1)  # it is below 4, and 2.44 + 4 · 0.06 within the limit
@example(1.07, 2.8, 5, 0, False, 1)
def test_the_furthest_whole_size_is_the_last_that_keeps_the_limit(a, b, n, off, budget, side):
    """Also where the limit is that of a whole size, but for rounding or a little more."""
    lo, hi = 2.0, 9.0
    limit = (a + b * (n if budget else 1.0 / n)) * (1.0 + side * off)
    kept = [m for m in range(2, 10) if a + b * (m if budget else 1.0 / m) <= limit]
    found = _furthest_whole(a, b, limit, lo, hi, budget)
    if kept:
        assert found == (max(kept) if budget else min(kept))
        real = _furthest(a, b, limit, lo, hi, budget)
        assert lo <= real <= hi
        # It uses the limit up, or is at its end.
        used = a + b * (real if budget else 1.0 / real)
        assert used == pytest.approx(limit, rel=1e-12) or real == (hi if budget else lo)
    else:
        assert np.isnan(found)


@pytest.mark.parametrize("budget", [True, False])
def test_no_facet_alone_could_be_one_better(budget):
    """Against the limit itself, for all sizes of a small box."""
    c = a_problem(budget, 3)[1]
    lo, hi, step = np.ones(3), np.array([4.0, 3.0, 5.0]), 1 if budget else -1
    boxes = [range(int(a), int(b) + 1) for a, b in zip(lo, hi, strict=True)]
    used = {n: value(c, n, not budget) for n in itertools.product(*boxes)}
    limit = float(np.median(list(used.values())))
    for n in used:
        ahead = ((*n[:j], n[j] + step, *n[j + 1 :]) for j in range(3))
        expected = not any(used.get(m, np.inf) <= limit for m in ahead)
        sizes = np.array(n, dtype=float)
        assert _is_undominated(c, limit, hi, lo, sizes, budget) == expected
        np.testing.assert_array_equal(sizes, n)


@pytest.mark.parametrize("seed", range(5))
def test_the_best_designs_are_kept_in_order(seed):
    """By value, then by the other quantity, then by sizes in their order."""
    rng = np.random.default_rng(seed)
    designs = [(*rng.integers(1, 4, 2), *s) for s in itertools.product((1, 2, 3), repeat=2)]
    order = np.array([1, 0])
    found, others = np.full((4, 3), np.inf), np.full(4, np.inf)
    for value, other, *sizes in map(np.float64, rng.permutation(designs)):
        _keep(value, other, np.array(sizes), order, found, others)
    best = np.array(sorted(designs, key=lambda d: (d[0], d[1], d[3], d[2]))[:4])
    np.testing.assert_array_equal(found, best[:, [0, 2, 3]])
    np.testing.assert_array_equal(others, best[:, 1])

"""The best sizes of a design, against all sizes and against what algebra says."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from vcomp.exceptions import PlanError
from vcomp.gtheory.allocation.problem import ROOM, Limit, evaluate
from vcomp.gtheory.allocation.solve import continuous_sizes, solve

coefficient = st.one_of(st.just(0.0), st.floats(-3, 3).map(lambda x: 10.0**x))
WIDEST = {1: 300, 2: 50, 3: 12, 4: 6}
"""Largest sizes that are tried, by the number of facets."""


@st.composite
def designs(draw, most=4, bounded=False):
    """Return error and cost coefficients, and bounds, of which some are open."""
    F = draw(st.integers(1, most))
    error, cost = (
        np.array(draw(st.lists(coefficient, min_size=1 << F, max_size=1 << F))) for _ in "ec"
    )
    for j in range(F):  # nothing is free, though some facets do not matter
        cost[1 << j] += 0.02
    lo = np.array(draw(st.lists(st.integers(1, 3), min_size=F, max_size=F)), dtype=float)
    widest = st.integers(0, min(8, WIDEST[F] - 3))
    spans = [draw(widest if bounded else st.one_of(st.none(), widest)) for _ in range(F)]
    hi = np.array([math.inf if s is None else n + s for n, s in zip(lo, spans, strict=True)])
    return error, cost, lo, hi


def everything(error, cost, lo, hi):
    """Return all sizes up to some largest ones: rows, their errors and costs."""
    ends = np.minimum(hi, WIDEST[lo.size])
    ranges = [np.arange(a, b + 1) for a, b in zip(lo, ends, strict=True)]
    rows = np.array(list(itertools.product(*ranges)))
    return rows, evaluate(error, 1.0 / rows), evaluate(cost, rows)


def dearest_at_the_edge(cost, lo, hi):
    """Return what sizes beyond the largest ones tried cost at least."""
    edges = [math.inf]
    for j in range(lo.size):
        if hi[j] > WIDEST[lo.size]:
            edge = lo.copy()
            edge[j] = WIDEST[lo.size] + 1
            edges.append(float(evaluate(cost, edge[None, :])[0]))
    return min(edges)


def solve_one(error, cost, lo, hi, limit, **options):
    (found,) = solve(error[None, :], cost, lo, hi, [limit], **options)
    return found


@settings(deadline=None, max_examples=examples(120))
@given(designs(), st.floats(0.0, 1.0))
def test_the_least_error_for_a_budget(design, share):
    error, cost, lo, hi = design
    rows, errors, costs = everything(*design)
    most = min(dearest_at_the_edge(cost, lo, hi) * 0.999, costs.max() * 1.01)
    least = costs.min() * 0.99
    assume(most > least)
    limit = Limit(budget=least + share * (most - least))
    found = solve_one(error, cost, lo, hi, limit)
    paid = costs <= limit.value
    assert found.found == paid.any()
    if paid.any():
        best = errors[paid].min()
        # Errors within 1e-11 count as the same, and the cheapest of these is taken.
        np.testing.assert_allclose(found.error[0], best, rtol=1.1e-11)
        equal = paid & (errors <= best * (1 + 1e-14))
        assert found.cost[0] <= costs[equal].min() * (1 + 1.1e-11)
        assert (rows == found.sizes[0]).all(axis=1).any()


@settings(deadline=None, max_examples=examples(150))
@given(designs(), st.floats(0.0, 1.0))
def test_the_least_cost_for_a_goal(design, share):
    error, cost, lo, hi = design
    _, errors, costs = everything(*design)
    limit = Limit(None, errors.min() * 0.9 + share * (errors.max() - errors.min() * 0.9))
    assume(limit.allowed > 0)
    found = solve_one(error, cost, lo, hi, limit)
    reached = errors <= limit.value
    beyond = dearest_at_the_edge(cost, lo, hi)
    if reached.any() and costs[reached].min() < beyond:
        np.testing.assert_allclose(found.cost[0], costs[reached].min(), rtol=1.1e-11)
        assert found.error[0] <= limit.value * (1 + 1e-12)
    elif not reached.any() and np.isfinite(hi).all() and (hi <= WIDEST[lo.size]).all():
        assert not found.found
    elif found.found:
        assert found.cost[0] >= beyond * (1 - 1e-12)
        assert found.error[0] <= limit.value * (1 + 1e-12)


@settings(deadline=None, max_examples=examples(100))
@given(
    designs(bounded=True), st.floats(0.0, 1.0), st.booleans(), st.integers(1, 8),
    st.sampled_from([0.02, 0.3]),
)  # fmt: skip
def test_near_designs_are_those_that_no_facet_alone_improves(design, share, budget, top, near):
    error, cost, lo, hi = design
    matters = [error.reshape((2,) * lo.size).take(1, axis=j).any() for j in range(lo.size)]
    assume(all(matters))
    rows, errors, costs = everything(*design)
    value, used = (errors, costs) if budget else (costs, errors)
    level = used.min() + share * (used.max() - used.min())
    assume(level > 0)
    limit = Limit(level) if budget else Limit(None, level)
    inside = {tuple(n): v for n, v, u in zip(rows, value, used, strict=True) if u <= limit.value}
    step = 1 if budget else -1

    def is_undominated(n):
        return not any((*n[:j], n[j] + step, *n[j + 1 :]) in inside for j in range(len(n)))

    values = sorted(v for n, v in inside.items() if is_undominated(n))
    values = [v for v in values if v <= values[0] * (1 + near)][:top]
    found = solve_one(error, cost, lo, hi, limit, top=top, near=near)
    np.testing.assert_allclose(found.error if budget else found.cost, values, rtol=1.1e-11)
    assert len({tuple(row) for row in found.sizes}) == len(found.sizes)
    assert all(is_undominated(tuple(row)) for row in found.sizes)


@settings(deadline=None, max_examples=examples(40))
@given(designs(), st.lists(st.floats(-1, 1), min_size=32, max_size=32), st.booleans())
def test_problems_that_are_solved_together_are_solved_alone(design, logs, budget):
    """Also where some have no solution, or facets that do not matter."""
    error, cost, lo, hi = design
    errors = np.array([error, error * 10.0 ** np.array(logs[: error.size]), error, error])
    errors[2, 1::2] = 0.0
    base = float(evaluate(cost if budget else error, (lo if budget else 1.0 / lo)[None, :])[0])
    assume(base > 0)
    shares = (3.0, 2.0, 7.0, 0.9) if budget else (0.5, 0.8, 0.7, 1e-30)
    limits = [Limit(base * s) if budget else Limit(None, base * s) for s in shares]
    together = solve(errors, cost, lo, hi, limits, top=3, near=0.25)
    for one, of_one, limit in zip(together, errors, limits, strict=True):
        alone = solve_one(of_one, cost, lo, hi, limit, top=3, near=0.25)
        np.testing.assert_array_equal(one.sizes, alone.sizes)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_of_equally_good_and_cheap_designs_the_first_has_fewest_levels(order):
    """1/(n n' n'') is the error, and n n' n'' the cost; bounds change the order of the search."""
    both, lo = np.eye(8)[7], np.ones(3)
    hi = np.array([12.0, 13.0, 14.0])[list(order)]
    sizes = itertools.product((1.0, 2.0, 3.0, 4.0, 6.0, 12.0), repeat=3)
    designs = sorted(list(n) for n in sizes if np.prod(n) == 12.0)
    found = solve_one(both, both, lo, hi, Limit(12.0), top=len(designs))
    assert found.sizes.tolist() == designs


# The relaxed problem -----------------------------------------------------------------------------


@settings(deadline=None, max_examples=examples(100))
@given(designs(), st.floats(0.05, 0.95), st.booleans())
def test_sizes_that_need_not_be_whole_are_the_best_of_all(design, share, budget):
    """Against whole sizes, and against steps along the limit."""
    error, cost, lo, hi = design
    _, errors, costs = everything(*design)
    objective, used = (errors, costs) if budget else (costs, errors)
    assume(used.min() > 0)
    level = np.exp(np.log(used.min()) * (1 - share) + np.log(used.max()) * share)
    limit = Limit(level) if budget else Limit(None, level)
    best = continuous_sizes(error, cost, lo, hi, limit)
    parts = (error, 1.0 / best[None, :]), (cost, best[None, :])
    least, at = (float(evaluate(*part)[0]) for part in (parts if budget else parts[::-1]))
    assert at <= limit.value * (1 + 1e-9)
    assert ((best >= lo * (1 - 1e-9)) & (best <= hi * (1 + 1e-9))).all()
    assert least <= objective[used <= limit.value].min(initial=np.inf) * (1 + 1e-12)
    moves = np.exp(1e-3 * np.array(list(itertools.product([-2, -1, 0, 1, 2], repeat=lo.size))))
    others = np.clip(best * moves, lo, hi)
    values = evaluate(error, 1.0 / others), evaluate(cost, others)
    value, amount = values if budget else values[::-1]
    assert value[amount <= limit.value].min(initial=np.inf) >= least * (1 - 1e-9)


@settings(deadline=None)
@given(st.floats(0.01, 100), st.floats(0.01, 100), st.floats(0, 100), st.floats(4, 1e6))
def test_products_of_two_sizes_are_shared_in_the_ratio_of_variances(a, b, both, budget):
    # Bodoff and Li (2007), section 3.2.3: n_i n_a = K makes n_i/n_a = A/B.
    found = continuous_sizes(
        np.array([0.0, b, a, both]),
        np.array([0.0, 0.0, 0.0, 1.0]),
        np.full(2, 1e-6),
        np.full(2, np.inf),
        Limit(budget),
    )
    expected = [math.sqrt(budget * a / b), math.sqrt(budget * b / a)]
    np.testing.assert_allclose(found, expected, rtol=2e-10)  # the limit has a tolerance of 1e-10


@settings(deadline=None)
@given(*[st.floats(0.01, 100)] * 4, st.floats(1e3, 1e6))
def test_nested_sizes_depend_on_prices_and_variances(outer, inner, price, each, budget):
    # Error A/n_i + B/(n_i n_a) and cost n_i (c + d n_a): n_a = √(B c/(A d)) (Cochran 1977,
    # Sampling Techniques, eq. 10.21).
    n_a = math.sqrt(inner * price / (outer * each))
    assume(n_a > 1.01)
    found = continuous_sizes(
        np.array([0.0, 0.0, outer, inner]), np.array([0.0, 0.0, price, each]), np.ones(2),
        np.full(2, np.inf), Limit(budget),
    )  # fmt: skip
    assume(budget / (price + each * n_a) > 1.01)
    np.testing.assert_allclose(found, [budget / (price + each * n_a), n_a], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("n_facets", [3, 4, 5])
def test_a_budget_of_a_million(n_facets):
    # Prices per level alone: the sizes are as √(variance/price), by Lagrange's condition.
    variances = np.array([1.0, 0.5, 0.3, 0.2, 0.7])[:n_facets]
    each = np.array([7.123, 11.777, 13.131, 5.5, 3.3])[:n_facets]
    budget = 1e6 if n_facets == 3 else 1e4
    error, cost = np.zeros(1 << n_facets), np.zeros(1 << n_facets)
    error[1 << np.arange(n_facets)], cost[1 << np.arange(n_facets)] = variances, each
    limit, lo, hi = Limit(budget), np.ones(n_facets), np.full(n_facets, np.inf)
    expected = np.sqrt(variances / each) * budget / np.sqrt(variances * each).sum()
    np.testing.assert_allclose(
        continuous_sizes(error, cost, lo, hi, limit), expected[::-1], rtol=1e-6
    )
    found = solve_one(error, cost, lo, hi, limit)
    assert found.cost[0] <= budget * (1 + ROOM)
    least = np.sqrt(variances * each).sum() ** 2 / budget
    assert least * (1 - 1e-9) <= found.error[0] <= least * (1 + (1e-7 if n_facets == 3 else 1e-4))
    # All sizes around the real ones, of which the last takes what the budget leaves.
    width = {3: 300, 4: 12, 5: 4}[n_facets]
    around = [np.round(n) + np.arange(-width, width + 1) for n in expected[:-1]]
    rows = np.stack(np.meshgrid(*around), axis=-1).reshape(-1, n_facets - 1)
    last = np.floor((budget * (1 + ROOM) - rows @ each[:-1]) / each[-1])
    rows, last = rows[last >= 1], last[last >= 1]
    errors = (variances[:-1] / rows).sum(axis=1) + variances[-1] / last
    np.testing.assert_allclose(found.error[0], errors.min(), rtol=1.1e-11)


# Limits ------------------------------------------------------------------------------------------


def test_equally_good_sizes():
    # The second facet does not matter: it has its least size, and the rest is not spent.
    error, cost = np.array([0.0, 0.0, 1.0, 0.0]), np.array([5.0, 1.0, 10.0, 0.0])
    found = solve_one(error, cost, np.array([1.0, 3.0]), np.full(2, np.inf), Limit(100))
    assert found.sizes.tolist() == [[9.0, 3.0]]
    assert found.cost.tolist() == [98.0]
    # Nothing matters.
    found = solve_one(np.zeros(4), cost, np.array([2.0, 3.0]), np.full(2, np.inf), Limit(100))
    assert found.sizes.tolist() == [[2.0, 3.0]]
    # What costs nothing is as large as may be.
    cost = np.array([5.0, 0.0, 10.0, 0.0])
    error = np.array([0.0, 1.0, 1.0, 1.0])
    found = solve_one(error, cost, np.ones(2), np.array([np.inf, 7.0]), Limit(100))
    assert found.sizes.tolist() == [[9.0, 7.0]]


def test_rounding_takes_no_level_away():
    # 0.1 · 3 is above 0.3 in floating point, and 69 tenths are 6.9.
    error, cost = np.array([0.0, 1.0]), np.array([0.0, 0.1])
    for n in (3, 7, 69):
        for limit in (Limit(n / 10), Limit(None, 1 / n)):
            found = solve_one(error, cost, np.ones(1), np.full(1, np.inf), limit)
            assert found.sizes.tolist() == [[n]]


def test_what_cannot_be():
    error, cost = np.array([0.1, 1.0]), np.array([5.0, 1.0])
    lo, hi = np.ones(1), np.full(1, np.inf)
    assert not solve_one(error, cost, lo, hi, Limit(5.9)).found
    assert not solve_one(error, cost, lo, hi, Limit(None, 0.0)).found
    assert not solve_one(error, cost, lo, np.full(1, 9.0), Limit(None, 0.2)).found
    assert np.isnan(continuous_sizes(error, cost, lo, hi, Limit(5.9))).all()
    # More levels than can be counted.
    for allowed in (0.1, 0.1 * (1 - ROOM), 0.1 + 1e-17):
        assert not solve_one(error, cost, lo, hi, Limit(None, allowed)).found


@pytest.mark.slow
def test_large_numbers():
    # Products of sizes are beyond what can be counted, and the sizes are not.
    error, cost = np.array([0.0, 1.0, 4.0, 0.0]), np.array([0.0, 0.0, 0.0, 1.0])
    found = solve_one(error, cost, np.ones(2), np.full(2, np.inf), Limit(4e20))
    np.testing.assert_allclose(found.sizes[0], [4e10, 1e10], rtol=1e-4)
    assert found.error[0] == pytest.approx(2e-10, rel=1e-8)
    for budget, price in ((1e300, 1.0), (1.0, 1e-300)):
        with pytest.raises(PlanError, match="more levels of a facet than can be counted"):
            solve_one(error, price * cost, np.ones(2), np.full(2, np.inf), Limit(budget))


def test_a_hopeless_search_is_refused():
    error, cost = np.zeros(16), np.zeros(16)
    error[[8, 4, 2, 1]], cost[[8, 4, 2, 1]] = [1, 0.5, 0.3, 0.2], [1.2, 2.7, 3.3, 5.1]
    with pytest.raises(PlanError, match=r"best sizes of 4 facets are not found .* give bounds="):
        solve_one(error, cost, np.ones(4), np.full(4, np.inf), Limit(1e6), most_rows=50)

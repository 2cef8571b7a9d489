"""The best sizes of a design, against all sizes and against what algebra says."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from vcomp.exceptions import PlanError
from vcomp.gtheory.allocation.problem import evaluate
from vcomp.gtheory.allocation.solve import (
    ROOM,
    Limit,
    continuous_sizes,
    first_that_reaches,
    solve,
)

coefficient = st.one_of(st.just(0.0), st.floats(-2, 2).map(lambda x: 10.0**x))
WIDEST = {1: 300, 2: 50, 3: 12}


@st.composite
def designs(draw):
    """Return error and cost coefficients, and bounds, of which some are open."""
    F = draw(st.integers(1, 3))
    error, cost = (
        np.array(draw(st.lists(coefficient, min_size=1 << F, max_size=1 << F))) for _ in "ec"
    )
    for j in range(F):  # nothing is free, though some facets do not matter
        cost[1 << j] += 0.02
    lo = np.array(draw(st.lists(st.integers(1, 3), min_size=F, max_size=F)), dtype=float)
    spans = [draw(st.one_of(st.none(), st.integers(0, 8))) for _ in range(F)]
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


@settings(deadline=None, max_examples=examples(300))
@given(designs(), st.floats(0.0, 1.0))
def test_the_least_error_for_a_budget(design, share):
    error, cost, lo, hi = design
    rows, errors, costs = everything(*design)
    most = min(dearest_at_the_edge(cost, lo, hi) * 0.999, costs.max() * 1.01)
    least = costs.min() * 0.99
    assume(most > least)
    limit = Limit(budget=least + share * (most - least))
    found = solve(error, cost, lo, hi, limit)
    paid = costs <= limit.value
    assert found.found == paid.any()
    if paid.any():
        best = errors[paid].min()
        # Errors within 1e-11 count as the same, and the cheapest of these is taken.
        np.testing.assert_allclose(found.error[0], best, rtol=1.1e-11)
        equal = paid & (errors <= best * (1 + 1e-14))
        assert found.cost[0] <= costs[equal].min() * (1 + 1.1e-11)
        assert (rows == found.sizes[0]).all(axis=1).any()


@settings(deadline=None, max_examples=examples(300))
@given(designs(), st.floats(0.0, 1.0))
def test_the_least_cost_for_a_goal(design, share):
    error, cost, lo, hi = design
    _, errors, costs = everything(*design)
    limit = Limit(None, errors.min() * 0.9 + share * (errors.max() - errors.min() * 0.9))
    assume(limit.allowed > 0)
    found = solve(error, cost, lo, hi, limit)
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
    np.testing.assert_allclose(found, expected, rtol=1e-6)  # an interior point stops before 1e-10


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
    # At its optimum the error is flat: sizes are known to the root of its precision, 1e-10.
    np.testing.assert_allclose(found, [budget / (price + each * n_a), n_a], rtol=1e-4)


def test_three_facets_and_a_budget_of_a_million():
    # Prices per level alone: the sizes are as √(variance/price), by Lagrange's condition.
    variances, each = np.array([1.0, 0.5, 0.3]), np.array([7.123, 11.777, 13.131])
    error, cost = np.zeros(8), np.zeros(8)
    error[[4, 2, 1]], cost[[4, 2, 1]] = variances, each
    limit, lo, hi = Limit(1e6), np.ones(3), np.full(3, np.inf)
    expected = np.sqrt(variances / each) * 1e6 / np.sqrt(variances * each).sum()
    np.testing.assert_allclose(continuous_sizes(error, cost, lo, hi, limit), expected, rtol=1e-6)
    found = solve(error, cost, lo, hi, limit)
    assert found.work < 10**6  # of 10^15 triples of sizes within the budget
    # Errors grow by the square of relative distances: beyond ±300 (0.6 %) they are 1e-5 larger.
    least = np.sqrt(variances * each).sum() ** 2 / 1e6
    assert least <= found.error[0] <= least * (1 + 1e-7)
    n_1, n_2 = np.meshgrid(*(np.round(n) + np.arange(-300, 301) for n in expected[:2]))
    n_3 = np.floor((1e6 * (1 + ROOM) - each[0] * n_1 - each[1] * n_2) / each[2])
    errors = variances[0] / n_1 + variances[1] / n_2 + variances[2] / n_3
    np.testing.assert_allclose(found.error[0], errors.min(), rtol=1.1e-11)
    assert found.cost[0] <= 1e6 * (1 + ROOM)


def test_a_search_may_do_all_the_work_that_is_allowed():
    error, cost = np.array([0.0, 0.5, 1.0, 2.0]), np.array([0.0, 0.0, 10.0, 1.0])
    problem = error, cost, np.ones(2), np.full(2, np.inf), Limit(200)
    found = solve(*problem)
    again = solve(*problem, most_work=found.work)
    assert (again.work, again.sizes.tolist()) == (found.work, found.sizes.tolist())
    with pytest.raises(PlanError, match="are not found among"):
        solve(*problem, most_work=found.work - 1)


@pytest.mark.parametrize("n", [1, 2, 5, 8, 9])
def test_a_limit_that_whole_sizes_just_keep(n):
    """In powers of two, without rounding: 1/n₁ + 1/n₂ with n₁ up to 8, n₂ up to 4."""
    error, hi = np.array([0.0, 1.0, 1.0, 0.0]), np.array([8.0, 4.0])
    goal = 1.0 / n + 0.25
    first = first_that_reaches(error, np.ones(2), hi, goal)
    if n == 9:
        assert first is None
        return
    assert evaluate(error, 1.0 / first[None, :])[0] <= goal
    # With one level less of the facet that was reduced last, the limit is not kept.
    less = first - [0.0, 1.0]
    assert first[1] == 1.0 or evaluate(error, 1.0 / less[None, :])[0] > goal
    alone = first_that_reaches(np.array([0.0, 1.0]), np.ones(1), np.array([16.0]), 1.0 / 6.0)
    assert alone.tolist() == [6.0]


def test_equally_good_sizes():
    # The second facet does not matter: it has its least size, and the rest is not spent.
    error, cost = np.array([0.0, 0.0, 1.0, 0.0]), np.array([5.0, 1.0, 10.0, 0.0])
    found = solve(error, cost, np.array([1.0, 3.0]), np.full(2, np.inf), Limit(100))
    assert found.sizes.tolist() == [[9.0, 3.0]]
    assert found.cost.tolist() == [98.0]
    # Nothing matters.
    found = solve(np.zeros(4), cost, np.array([2.0, 3.0]), np.full(2, np.inf), Limit(100))
    assert found.sizes.tolist() == [[2.0, 3.0]]
    # What costs nothing is as large as may be.
    cost = np.array([5.0, 0.0, 10.0, 0.0])
    error = np.array([0.0, 1.0, 1.0, 1.0])
    found = solve(error, cost, np.ones(2), np.array([np.inf, 7.0]), Limit(100))
    assert found.sizes.tolist() == [[9.0, 7.0]]


def test_rounding_takes_no_level_away():
    # 0.1 · 3 is above 0.3 in floating point, and 69 tenths are 6.9.
    error = np.array([0.0, 1.0])
    for n in (3, 7, 69):
        found = solve(error, np.array([0.0, 0.1]), np.ones(1), np.full(1, np.inf), Limit(n / 10))
        assert found.sizes.tolist() == [[n]]
        found = solve(
            error, np.array([0.0, 0.1]), np.ones(1), np.full(1, np.inf), Limit(None, 1 / n)
        )
        assert found.sizes.tolist() == [[n]]


def test_what_cannot_be():
    error, cost = np.array([0.1, 1.0]), np.array([5.0, 1.0])
    lo, hi = np.ones(1), np.full(1, np.inf)
    assert not solve(error, cost, lo, hi, Limit(5.9)).found
    assert not solve(error, cost, lo, hi, Limit(None, 0.1)).found
    assert not solve(error, cost, lo, hi, Limit(None, 0.0)).found
    assert not solve(error, cost, lo, np.full(1, 9.0), Limit(None, 0.2)).found
    assert np.isnan(continuous_sizes(error, cost, lo, hi, Limit(5.9))).all()
    # More levels than can be counted.
    assert not solve(error, cost, lo, hi, Limit(None, 0.1 + 1e-17)).found


def test_large_numbers():
    # Products of sizes are beyond what can be counted, and the sizes are not.
    error, cost = np.array([0.0, 1.0, 4.0, 0.0]), np.array([0.0, 0.0, 0.0, 1.0])
    found = solve(error, cost, np.ones(2), np.full(2, np.inf), Limit(4e20))
    np.testing.assert_allclose(found.sizes[0], [4e10, 1e10], rtol=1e-4)
    assert found.error[0] == pytest.approx(2e-10, rel=1e-8)
    for budget, price in ((1e300, 1.0), (1.0, 1e-300)):
        with pytest.raises(PlanError, match="more levels of a facet than can be counted"):
            solve(error, price * cost, np.ones(2), np.full(2, np.inf), Limit(budget))


def test_a_hopeless_search_is_refused():
    error, cost = np.zeros(16), np.zeros(16)
    error[[8, 4, 2, 1]], cost[[8, 4, 2, 1]] = [1, 0.5, 0.3, 0.2], [1.2, 2.7, 3.3, 5.1]
    with pytest.raises(PlanError, match=r"best sizes of 4 facets are not found .* give bounds="):
        solve(error, cost, np.ones(4), np.full(4, np.inf), Limit(1e6), most_work=3000)

"""Any cost: against prices, which are solved otherwise, and against all sizes."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.gstudies import BODOFF_LI
from vcomp.exceptions import PlanError
from vcomp.gtheory.allocation.alternative import _refuse_falls, solve_any
from vcomp.gtheory.allocation.cost import Cost, read_cost
from vcomp.gtheory.allocation.problem import Limit, make_problem
from vcomp.gtheory.allocation.solve import solve
from vcomp.gtheory.plan import make_plans
from vcomp.gtheory.published import from_components

TREC5 = from_components(BODOFF_LI).components
PLAN = make_plans(TREC5, None, "p", {"i": 1, "a": 1})
PRICES = {"i": 10.0, "a": 3.0, "i:a": 1.5}


def problem_of(cost, bounds=None, values=TREC5.values, *, relative=False):
    problem = make_problem(TREC5, PLAN, read_cost(cost), bounds or {}, relative=relative)
    return problem, problem.error @ values


def by_prices(problem, error, limit, **options):
    (found,) = solve(error[None, :], problem.cost, problem.lo, problem.hi, [limit], **options)
    return found


def priced(i, a):
    return 10 * i + 3 * a + 1.5 * i * a + 20


@settings(deadline=None, max_examples=examples(50))
@given(
    values=st.lists(st.floats(1e-3, 1.0), min_size=7, max_size=7),
    budget=st.floats(36.0, 3000.0),
    largest=st.one_of(st.none(), st.integers(2, 30)),
    top=st.integers(1, 6),
)
def test_prices_as_a_function(values, budget, largest, top):
    bounds = {} if largest is None else {"a": (1, largest)}
    problem, error = problem_of(priced, bounds, np.array(values))
    known, _ = problem_of(Cost(PRICES, setup=20), bounds)
    for limit in (Limit(budget), Limit(None, error.sum() * 30 / budget)):
        expected = by_prices(known, error, limit, top=top, near=0.25)
        found = solve_any(problem, error, limit, top=top, near=0.25)
        assert found.found == expected.found
        np.testing.assert_allclose(found.error, expected.error, rtol=1e-12)
        np.testing.assert_allclose(found.cost, expected.cost, rtol=1e-12)


COSTS = [
    lambda i, a: 5 * i * a + 40 * np.ceil(i / 20),  # a batch of twenty topics
    lambda i, a: 3 * i * a**1.5 + 2 * i,
    lambda i, a: max(50, 7 * i) + (30 if a > 2 else 0) * a + i * a,  # of single numbers alone
    lambda sizes: 4 * sizes["i"] + np.minimum(sizes["i"] * sizes["a"], 100) * 3 + sizes["a"],
]


def test_facets_at_their_bounds_are_improved_upon():
    """One level of each reaches the goal; a second level of a is paid by every budget."""
    problem, error = problem_of(lambda i, a: 100 + i + a)
    found = solve_any(problem, error, Limit(None, error.sum()), top=5, near=0.25)
    assert found.sizes.tolist() == [[1.0, 1.0]]
    problem, error = problem_of(lambda i: 3 * i, {"a": (1, 2)})
    found = solve_any(problem, error, Limit(15.0), top=5, near=9.0)
    assert dict(zip(problem.facets, found.sizes.T.tolist(), strict=True)) == {"i": [5], "a": [2]}


def test_a_cost_that_falls_at_the_largest_sizes_is_refused():
    def cost(i, a):
        return 10 * i * a - 100 * ((i == 3) & (a == 9))

    with pytest.raises(PlanError, match="cost falls from 180 to 170 when i grows from 2 to 3"):
        solve_any(*problem_of(cost, {"i": (1, 3), "a": (1, 9)}), Limit(500.0))


@pytest.mark.parametrize("function", COSTS)
@pytest.mark.parametrize("budget", [60.0, 333.0, 900.0])
def test_functions_against_all_sizes(function, budget):
    bounds = {"i": (1, 90), "a": (1, 25)}
    problem, error = problem_of(function, bounds)
    rows = np.array(list(itertools.product(range(1, 91), range(1, 26))), dtype=float)
    if problem.facets != ("i", "a"):
        rows = rows[:, ::-1]
    costs, errors = problem.costs(rows), problem.errors(rows, TREC5.values)
    found = solve_any(problem, error, Limit(budget))
    paid = costs <= budget
    np.testing.assert_allclose(found.error[0], errors[paid].min(), rtol=1e-12)
    equal = paid & (errors <= errors[paid].min() * (1 + 1e-12))
    np.testing.assert_allclose(found.cost[0], costs[equal].min(), rtol=1e-12)
    allowed = errors.min() * 2000.0 / budget
    found = solve_any(problem, error, Limit(None, allowed))
    reached = errors <= allowed * (1 + 1e-10)
    np.testing.assert_allclose(found.cost[0], costs[reached].min(), rtol=1e-12)


def test_what_cannot_be():
    problem, error = problem_of(priced)
    assert not solve_any(problem, error, Limit(34.0)).found
    assert not solve_any(problem, error, Limit(None, 1e-12 * error[0])).found
    assert solve_any(problem, error, Limit(34.5)).sizes.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda i, a: 100 - i + a,
            "cost falls from 100 to 99 when i grows from 1 to 2 with a = 1",
        ),
        (lambda i, a: i + 50 * a - 20 * (a > 3) * a, "when a grows from 3 to 4 with i = 1"),
        (lambda i, a: i + a - 3 * (a > 2) * (i > 2), "when . grows from 2 to 3 with"),
        (lambda i, a: 3 * i, "any number of levels of 'a' can be paid"),
        (lambda i, a: 5, "any number of levels of 'i' can be paid"),
    ],
)
def test_costs_that_do_not_rise(function, message):
    problem, error = problem_of(function)
    with pytest.raises(PlanError, match=message):
        solve_any(problem, error, Limit(150.0))


def test_too_many_combinations_are_refused():
    problem, error = problem_of(lambda i, a: i + a)
    with pytest.raises(PlanError, match=r"combinations of sizes of i, a .* bounds="):
        solve_any(problem, error, Limit(5e6))


def test_a_facet_that_does_not_matter_has_its_least_size():
    values = np.where([set(n) <= {"p", "i"} for n in TREC5.names], TREC5.values, 0.0)
    problem, error = problem_of(priced, {"a": (2, None)}, values)
    found = solve_any(problem, error, Limit(300.0))
    i = math.floor((300 - 20 - 6) / 13)
    assert dict(zip(problem.facets, found.sizes[0], strict=True)) == {"i": i, "a": 2}


@pytest.mark.parametrize(
    ("costs", "falls"),
    [
        ([0.0, 0.0], False),
        ([5.0, 5.0], False),
        ([5.0, 5.0 * (1.0 - 4e-13)], False),  # rounding
        ([5.0, 5.0 * (1.0 - 1e-11)], True),
        ([5.0, 0.0], True),
        ([0.0, 5.0], False),
    ],
)
def test_a_cost_may_stay_but_not_fall(costs, falls):
    problem = SimpleNamespace(
        costs=lambda rows: np.array(costs)[rows[:, 1].astype(int) - 1],
        facets=("a", "i"),
        sizes=lambda rows: rows,
        plan=SimpleNamespace(facets=("a", "i")),
    )
    rows = np.array([[3.0, 1.0]]), np.array([[3.0, 2.0]])
    if not falls:
        _refuse_falls(problem, *rows, 1)
        return
    with pytest.raises(PlanError, match=r"when i grows from 1 to 2 with a = 3: a cost must not"):
        _refuse_falls(problem, *rows, 1)


@pytest.mark.parametrize("budget", [11.0, 12.5, 40.0])
def test_a_cost_function_is_never_called_without_sizes(budget):
    """Such as one that takes the largest of its sizes."""

    def cost(i, a):
        assert np.size(i)
        assert np.size(a)
        return 10 * i + a

    found = solve_any(*problem_of(cost), Limit(budget))
    assert found.cost[0] <= budget
    for limit in (Limit(None, 0.05), Limit(None, 0.02)):
        assert solve_any(*problem_of(cost), limit).found


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_the_unit_of_costs_does_not_matter(unit):
    problem, error = problem_of(lambda i, a: unit * priced(i, a))
    plain, _ = problem_of(priced)
    for limit in (300.0, 77.0):
        found = solve_any(problem, error, Limit(unit * limit), top=3, near=0.25)
        expected = solve_any(plain, error, Limit(limit), top=3, near=0.25)
        np.testing.assert_array_equal(found.sizes, expected.sizes)
    goal = Limit(None, error.sum() / 20)
    np.testing.assert_array_equal(
        solve_any(problem, error, goal).sizes, solve_any(plain, error, goal).sizes
    )


def test_many_sizes_and_three_facets():
    """Against prices: more than 500 sizes of a facet, and two that come after the first."""
    for budget in (690.5, 1_400.5):
        problem, error = problem_of(lambda i, a: i + a)
        known, _ = problem_of(Cost({"i": 1, "a": 1}))
        expected = by_prices(known, error, Limit(budget))
        found = solve_any(problem, error, Limit(budget))
        np.testing.assert_allclose(found.error, expected.error, rtol=1e-12)
    values = {
        "p": 1,
        "i": 0.5,
        "a": 0.2,
        "t": 0.1,
        "p:i": 1,
        "p:a": 0.7,
        "p:t": 0.9,
        "Residual": 2,
    }
    study = from_components(values).dstudy(i=1, a=1, t=1)
    for goal in (0.6, 0.75, 0.8):
        by_function = study.optimize(lambda i, a, t: 9 * i + 4 * a + 2 * t, goal=goal).best
        of_prices = study.optimize("9*i + 4*a + 2*t", goal=goal).best
        assert (by_function.sizes, by_function.cost) == (of_prices.sizes, of_prices.cost)

"""Error variance and cost as functions of sizes, against the D-study itself."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.gstudies import BODOFF_LI, PER_DOCUMENT, REPLICATED, gstudy
from vcomp.exceptions import PlanError
from vcomp.gtheory.allocation.cost import Cost, read_cost
from vcomp.gtheory.allocation.problem import evaluate, make_problem, read_bounds
from vcomp.gtheory.plan import make_plans
from vcomp.gtheory.planned_quantity import dstudy
from vcomp.gtheory.published import from_components
from vcomp.gtheory.study import DStudy
from vcomp.gtheory.study_record import project

TREC5 = from_components(BODOFF_LI).components
COMPOSITE = gstudy(
    {"doctor": 0.5, "patient:doctor": 2.0, "item": 1.0, "doctor:item": 0.4, "Residual": 3.0},
    {"patient": {"doctor"}},
    sizes={"doctor": 10, "patient": 5, "item": 4},
)


@settings(max_examples=examples(15), deadline=None)
@pytest.mark.parametrize(
    ("components", "design", "given_plan"),
    [
        (TREC5, "p x i x a", {}),
        (TREC5, "p x (a:i)", {}),
        (TREC5, "p x i x a", {"fixed": "a"}),
        (TREC5, "p x i x a", {"universe": {"i": 60}}),
        (TREC5, "p x i x a", {"universe": {"i": 60, "a": 40}}),
        (TREC5, "p x (a:i)", {"fixed": "a", "universe": {"i": 60}}),
        (PER_DOCUMENT, None, {}),
        (PER_DOCUMENT, None, {"universe": {"doc": 60, "topic": 60}}),
        (REPLICATED, None, {}),
        (COMPOSITE, None, {"object": "patient:doctor"}),
        (COMPOSITE, None, {"object": "patient:doctor", "within": "doctor"}),
    ],
)
@pytest.mark.parametrize("relative", [True, False])
@given(rows=st.lists(st.lists(st.integers(1, 40), min_size=3, max_size=3), min_size=1, max_size=5))
def test_errors_are_those_of_the_dstudy(components, design, given_plan, relative, rows):
    object_ = given_plan.get("object", components.names[0])
    rest = {k: v for k, v in given_plan.items() if k != "object"}
    sizes = {f: 3 for f in components.facet_names if f not in object_.split(":")}
    plan = make_plans(components, design, object_, sizes, **rest)
    problem = make_problem(components, plan, read_cost(lambda **n: 1), {}, relative=relative)
    chosen = np.array(rows, dtype=float)[:, : len(problem.facets)]
    study = project(DStudy, components, replace(plan, sizes=problem.sizes(chosen)))
    column = "rel_err_var" if relative else "abs_err_var"
    errors = problem.errors(chosen, components.values)
    np.testing.assert_allclose(errors, study.columns[column], rtol=1e-12, atol=1e-15)
    universe = np.repeat(problem.universe @ components.values, len(rows))
    np.testing.assert_allclose(universe, study.columns["universe_var"], rtol=1e-12)


@given(
    st.lists(st.floats(0, 100), min_size=8, max_size=8),
    st.lists(st.integers(1, 30), min_size=3, max_size=3),
)
def test_sums_of_products(coefficients, n):
    a, b, c = n
    terms = [1, c, b, b * c, a, a * c, a * b, a * b * c]
    found = evaluate(np.array(coefficients), np.array([n], dtype=float))
    np.testing.assert_allclose(found, np.dot(coefficients, terms), rtol=1e-13)


@pytest.mark.parametrize(
    ("design", "per", "expected"),
    [
        ("p x i x a", {"i": 3, "a": 5, "i:a": 7}, lambda i, a: 3 * i + 5 * a + 7 * i * a),
        ("p x (a:i)", {"i": 3, "a": 5, "i:a": 7}, lambda i, a: 3 * i + 12 * i * a),
        ("p x (i:a)", {"i": 3, "a": 5}, lambda i, a: 3 * i * a + 5 * a),
        ("p x i x a", {"p": 2, "p:i": 1, "i:a": 7}, lambda i, a: 40 + 20 * i + 7 * i * a),
    ],
)
def test_costs(design, per, expected):
    plan = make_plans(TREC5, design, "p", {"i": 1, "a": 1})
    n = 20 if "p" in per else None
    problem = make_problem(
        TREC5, plan, Cost(per, setup=11), {"a": (1, 50)}, relative=True, n_objects=n
    )
    rng = np.random.default_rng(1)
    rows = rng.integers(1, 50, (20, 2)).astype(float)
    by_facet = dict(zip(problem.facets, rows.T, strict=True))
    np.testing.assert_allclose(problem.costs(rows), expected(**by_facet) + 11, rtol=1e-14)


def test_objects_are_counted():
    plan = make_plans(TREC5, None, "p", {"i": 1, "a": 1})
    with pytest.raises(PlanError, match=r"levels of 'p'.*n_objects=\{'p': …\}"):
        make_problem(TREC5, plan, Cost({"p:i": 1, "a": 1}), {}, relative=True)
    for wrong in (0, -1, np.nan, "5", True):
        with pytest.raises(PlanError, match="n_objects is a positive number"):
            make_problem(TREC5, plan, Cost({"p:i": 1}), {}, relative=True, n_objects=wrong)
    # The G-study's own, and those of composite objects.
    plan = make_plans(COMPOSITE, None, "patient:doctor", {"item": 1})
    for given_number, number in ((None, 50), (30, 30), ({"doctor": 2, "patient": 4}, 8)):
        cost = Cost({"patient:item": 1})
        problem = make_problem(COMPOSITE, plan, cost, {}, relative=True, n_objects=given_number)
        assert problem.costs(np.array([[3.0]])) == 3 * number
    doctors = Cost({"doctor": 1, "item": 1})
    problem = make_problem(COMPOSITE, plan, doctors, {}, relative=True)
    assert problem.costs(np.array([[3.0]])) == 13
    with pytest.raises(PlanError, match="levels of 'doctor'"):
        make_problem(COMPOSITE, plan, doctors, {}, relative=True, n_objects=50)


def test_objects_that_are_not_counted():
    plan = make_plans(TREC5, None, "p", {"i": 1, "a": 1})
    for cost in (Cost({"i": 1, "a": 1}), read_cost(lambda i, a: i * a)):
        with pytest.raises(
            PlanError, match=r"n_objects=20 is given, and the cost .* no price per p"
        ):
            make_problem(TREC5, plan, cost, {}, relative=True, n_objects=20)
    with pytest.raises(PlanError, match="n_objects has 'q', which is not part of"):
        make_problem(TREC5, plan, Cost({"p:i": 1}), {}, relative=True, n_objects={"q": 3})


def test_bounds_are_read():
    known = ("topic", "judge")
    assert read_bounds(None, known) == {}
    bounds = {"topic": (np.int64(2), None), "judge": [None, 3.0]}
    assert read_bounds(bounds, known) == {"topic": (2.0, np.inf), "judge": (1.0, 3.0)}
    assert read_bounds({"topic": (4, 4), "judge": 1}, known) == {"topic": (4, 4), "judge": (1, 1)}
    for wrong in (0, -1, 2.5, "3", True, (1, 2, 3), (1, 2.5), np.nan, np.inf):
        with pytest.raises(PlanError, match="bounds of 'topic' are a whole number"):
            read_bounds({"topic": wrong}, known)
    with pytest.raises(PlanError, match=r"'topc', .* \(did you mean 'topic'\?\)"):
        read_bounds({"topc": 3}, known)
    with pytest.raises(PlanError, match="least size of 'topic', 5, is above"):
        read_bounds({"topic": (5, 3)}, known)
    with pytest.raises(PlanError, match="bounds are a mapping"):
        read_bounds([("topic", 3)], known)


def test_bounds_of_fixed_facets_and_finite_universes():
    plan = make_plans(TREC5, None, "p", {"i": 10, "a": 3}, fixed="a", universe={"i": 30.5})
    problem = make_problem(TREC5, plan, Cost({"i": 1}), {}, relative=False)
    assert (problem.facets, problem.hi.tolist()) == (("i",), [30.0])
    assert problem.sizes(np.array([[7.0]])).tolist() == [[7.0, 3.0]]
    for ends in ((3, 9), (1, 3), (3, 3)):
        held = make_problem(TREC5, plan, Cost({"i": 1}), {"a": ends}, relative=False)
        assert held.facets == ("i",)
    whole = make_plans(TREC5, None, "p", {"i": 10, "a": 3}, fixed="a", universe={"i": 30})
    alone = make_problem(TREC5, whole, Cost({"i": 1}), {"i": (30, 50)}, relative=False)
    assert (alone.facets, alone.sizes(np.empty((1, 0))).tolist()) == ((), [[30.0, 3.0]])
    with pytest.raises(PlanError, match="'a' is fixed at 3 levels"):
        make_problem(TREC5, plan, Cost({"i": 1}), {"a": (5, 9)}, relative=False)
    with pytest.raises(PlanError, match=r"require 40 of 'i', and there are 30\.5 in all"):
        make_problem(TREC5, plan, Cost({"i": 1}), {"i": (40, 50)}, relative=False)


def test_what_costs_nothing_needs_a_bound():
    plan = dstudy(TREC5, "p x (a:i)", i=1, a=1).plan
    with pytest.raises(PlanError, match="'a' costs nothing"):
        make_problem(TREC5, plan, Cost({"i": 5}), {}, relative=True)
    problem = make_problem(TREC5, plan, Cost({"i": 5}), {"a": (1, 4)}, relative=True)
    assert set(problem.facets) == {"a", "i"}

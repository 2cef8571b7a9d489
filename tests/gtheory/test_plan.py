import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from tests.helpers.gstudies import BODOFF_LI, PER_DOCUMENT, REPLICATED, TREC3, gstudy
from vcomp.exceptions import PlanError
from vcomp.gtheory.plan import PlanOptions, make_plans
from vcomp.gtheory.published import from_components
from vcomp.gtheory.universe import check_facets

CROSSED = from_components(BODOFF_LI, sizes={"p": 14, "i": 49, "a": 2}).components


def test_plans_are_the_product_in_the_order_given():
    plan = make_plans(CROSSED, n={"a": [1, 2], "i": [50, 100]})
    assert plan.facets == ("i", "a")
    assert plan.sizes.tolist() == [[50, 1], [100, 1], [50, 2], [100, 2]]


def test_facets_without_a_size_take_the_gstudys():
    assert make_plans(CROSSED, object="p", n={"i": [10, 20]}).sizes.tolist() == [[10, 2], [20, 2]]
    assert make_plans(REPLICATED, n={"topic": 50}).sizes.tolist() == [[50, 2]]
    assert make_plans(REPLICATED, "sys x topic", n={"replicate": 1}).sizes.tolist() == [[20, 1]]


@pytest.mark.parametrize(
    "given",
    [
        50,
        50.0,
        np.int64(50),
        np.array(50),
        np.array([50]),
        [50],
        (50,),
        range(50, 51),
        pd.Series(50),
        Fraction(50),
    ],
    ids=lambda g: type(g).__name__,
)
def test_sizes_come_as_numbers_or_anything_that_holds_some(given):
    assert make_plans(TREC3, n={"topic": given}).sizes.tolist() == [[50]]


def test_effective_sizes_are_kept():
    assert make_plans(TREC3, n={"topic": 4.77}).sizes.tolist() == [[4.77]]


@pytest.mark.parametrize(
    ("design", "named", "n", "expected"),
    [
        (None, None, {}, "p"),
        (None, "i", {}, "i"),
        (None, None, {"i": 1}, "p"),
        (None, None, {"p": 1, "i": 1}, "a"),
        ("i x p x a", None, {}, "i"),
        ("i x p x a", None, {"i": 1}, "p"),
        ("p x (a:i)", None, {"a": 1}, "p"),
        ("p x (a:i)", "i", {"a": 1}, "i"),
    ],
)
def test_which_facet_is_the_object(design, named, n, expected):
    assert make_plans(CROSSED, design, named, n).object == expected


def test_replicates_are_never_the_object():
    assert make_plans(REPLICATED, n={"sys": 5}).object == "topic"
    with pytest.raises(PlanError, match="replicates cannot be the object"):
        make_plans(REPLICATED, object="replicate")


@pytest.mark.parametrize("n", [{"p": 1}, {"p": 1, "i": 2, "a": 3}])
def test_object_that_cannot_be_told(n):
    with pytest.raises(
        PlanError,
        match=r"the object of measurement is not clear among \['p', 'i', 'a'\]; pass object=",
    ):
        make_plans(CROSSED, n=n)


def test_the_gstudys_own_plan_has_its_exact_divisors():
    exact = {"sys": 1.0, "topic": 0.021, "Residual": 0.021}
    unbalanced = replace(TREC3, inverse_n={"sys": exact})
    divisors = [list(exact.values())]
    assert make_plans(unbalanced).inverse_n.tolist() == divisors
    assert make_plans(unbalanced, "sys x topic").inverse_n.tolist() == divisors
    assert make_plans(unbalanced, n={"topic": 50}).inverse_n is None
    assert make_plans(unbalanced, "topic:sys", object="sys").inverse_n is None
    assert make_plans(unbalanced, object="topic").inverse_n is None


@pytest.mark.parametrize(
    "size", [0, -1, 0.0, math.nan, math.inf, True, np.True_, "50", None, 1j, [10, 0], {"n": 5}]
)
def test_sizes_that_are_none(size):
    with pytest.raises(PlanError, match="the size of 'topic' must be a positive number, not"):
        make_plans(TREC3, n={"topic": size})


def test_no_sizes():
    with pytest.raises(PlanError, match="no size is given for 'topic'"):
        make_plans(TREC3, n={"topic": []})
    without = from_components(BODOFF_LI).components
    with pytest.raises(PlanError, match=r"size of 'i' in the G-study is not known; pass i=\.\.\."):
        make_plans(without)
    with pytest.raises(PlanError, match=r"pass a=\.\.\."):
        make_plans(without, "p x (a:i)", n={"i": 20})
    with pytest.raises(PlanError, match=r"pass replicate=\.\.\."):
        make_plans(replace(REPLICATED, sizes={"topic": 20}))


def test_unknown_facets():
    with pytest.raises(PlanError, match=r"'topc' \(did you mean 'topic'\?\).*has sys, topic"):
        make_plans(TREC3, n={"topc": 5})
    with pytest.raises(PlanError, match="unknown facet 'judge'; the G-study has sys, topic"):
        make_plans(TREC3, "sys x judge x topic")
    with pytest.raises(PlanError, match="unknown facet 'run'"):
        make_plans(TREC3, object="run")
    with pytest.raises(PlanError, match="unknown facet 'qxi'; the G-study has"):
        check_facets(["qxi"], ("p", "i"))
    for name in ("px", "xp", "x"):
        with pytest.raises(PlanError, match=f"unknown facet '{name}'.*; the G-study") as error:
            check_facets([name], ("p", "i"))
        assert "spaces" not in str(error.value)
    with pytest.raises(PlanError, match=r"unknown facet 'pxi' \(with spaces around x: 'p x i'\)"):
        make_plans(CROSSED, "pxi x a")


def test_the_object_takes_no_size():
    with pytest.raises(PlanError, match="'sys' is the object of measurement and has no size"):
        make_plans(TREC3, object="sys", n={"sys": 5})


def test_a_design_names_all_facets():
    with pytest.raises(
        PlanError, match=r"leaves out i and a; .* all facets .*with one level: i=1"
    ):
        make_plans(CROSSED, "p")
    with pytest.raises(PlanError, match="leaves out a; "):
        make_plans(CROSSED, "p x i")


def test_replicates_have_no_place_in_a_design():
    with pytest.raises(PlanError, match="'replicate' is nested in all other facets"):
        make_plans(REPLICATED, "sys x topic x replicate")


def test_a_nested_object_brings_what_it_is_nested_in():
    plan = make_plans(PER_DOCUMENT, object="doc")
    assert (plan.object, plan.objects) == ("topic:doc", {"doc", "topic"})
    assert plan.facets == ("sys",)
    crossed = make_plans(CROSSED, "(p:i) x a", object="p")
    assert (crossed.objects, crossed.facets) == ({"p", "i"}, ("a",))
    with pytest.raises(
        PlanError, match="'topic' is a part of the object of measurement topic:doc"
    ):
        make_plans(PER_DOCUMENT, object="doc", n={"topic": 3})


def test_a_nested_facet_is_not_guessed_to_be_the_object():
    assert make_plans(CROSSED, "(p:i) x a", n={"a": 1}).object == "i"
    assert make_plans(CROSSED, "(i:p) x a", n={"a": 1}).object == "p"


@pytest.mark.parametrize("named", ["p:a", "p x a", ["p", "a"], ("a", "p")])
def test_several_facets_as_the_object(named):
    plan = make_plans(CROSSED, object=named, n={"i": 5})
    assert (plan.object, plan.objects, plan.facets) == ("p:a", {"p", "a"}, ("i",))


def test_own_design_of_the_gstudy():
    plan = make_plans(PER_DOCUMENT)
    assert str(plan.design) == "sys x (doc:topic)"
    assert plan.facets == ("topic", "doc")
    plan = make_plans(REPLICATED)
    assert str(plan.design) == "sys x topic"
    assert plan.design.nested_in["replicate"] == {"sys", "topic"}


def test_a_term_named_first_makes_the_object():
    g = gstudy({"topic": 1.0, "sys": 1.0, "Residual": 1.0}, sizes={"topic": 3, "sys": 4})
    assert make_plans(g).object == "topic"


@pytest.mark.parametrize(
    "option",
    [
        {"design": "p x i"}, {"object": "p"}, {"sizes": {"i": 3}}, {"fixed": "i"},
        {"universe": {"i": 9}}, {"within": "h"}, {"layout": "i in h"},
    ],
)  # fmt: skip
def test_any_option_of_a_plan_is_given(option):
    assert PlanOptions(**option).is_given
    assert not PlanOptions().is_given

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.examples import examples
from tests.helpers.gstudies import BODOFF_LI, PER_DOCUMENT, REPLICATED, TREC3
from vcomp.exceptions import PlanError
from vcomp.gtheory.planned_quantity import dstudy
from vcomp.gtheory.published import from_components
from vcomp.inference.intervals.limits import LOG_SCALE

NAMES = list(BODOFF_LI)
variances = st.floats(1e-4, 10.0)


@pytest.mark.parametrize("design", ["p x i x a", "p x (a:i)"])
@pytest.mark.parametrize("coefficient", ["Erho2", "Phi"])
@pytest.mark.parametrize(("facet", "other"), [("i", "a"), ("a", "i")])
@settings(max_examples=examples(10))
@given(
    values=st.lists(variances, min_size=7, max_size=7),
    held=st.integers(1, 100),
    goal=st.floats(0.05, 0.99),
)
def test_required_size_is_the_smallest(design, coefficient, facet, other, values, held, goal):
    g = from_components(dict(zip(NAMES, values, strict=True)))
    found = g.dstudy(design, **{facet: 1, other: held}).required(goal, coefficient, facet)
    assert found.held == {other: held}

    def reached(n):
        return g.dstudy(design, **{facet: n, other: held}).table[coefficient][0]

    if np.isinf(found.n):
        assert reached(10**12) < goal * (1 + 1e-9)
        assert "does not fall with more" in found.why
        return
    assume(found.n < 10**9)
    assert isinstance(found.n, int)
    assert reached(found.n) >= goal * (1 - 1e-8)
    if found.n > 1:
        assert reached(found.n - 1) < goal


@pytest.mark.parametrize("design", ["p x i x a", "p x (a:i)"])
@pytest.mark.parametrize("coefficient", ["Erho2", "Phi"])
@pytest.mark.parametrize(("facet", "other"), [("i", "a"), ("a", "i")])
def test_required_size_of_a_finite_universe_is_the_smallest(design, coefficient, facet, other):
    """Of all sizes up to the whole universe."""
    rng = np.random.default_rng(2)
    universe = {"i": 30, "a": 12}
    sizes = np.arange(1, universe[facet] + 1)
    reached = 0
    for _ in range(6):
        g = from_components(dict(zip(NAMES, rng.uniform(0.02, 1.0, 7), strict=True)))
        held = {other: int(rng.integers(2, 9))}
        table = g.dstudy(design, **{facet: sizes}, **held, universe=universe).table[coefficient]
        goal = float(rng.uniform(*table.iloc[[0, -1]]))
        found = g.dstudy(design, **{facet: 1}, **held, universe=universe).required(
            goal, coefficient, facet
        )
        assert found.n == sizes[np.argmax(table.to_numpy() >= goal)]
        reached += found.n < universe[facet]
    assert reached > 1


def test_levels_of_a_nested_facet_are_those_in_each_outer_level():
    g = from_components(
        {"sys": 1, "genre": 0.1, "task:genre": 0.3, "sys:genre": 0.1, "Residual": 2}
    )
    study = g.dstudy("sys x (task:genre)", genre=4, task=2)
    assert str(study.required(0.8, facet="task")).startswith(
        "For Eρ² = 0.8, 3 tasks in each genre "
    )
    assert "in each" not in str(study.required(0.8, facet="genre"))
    crossed = from_components(BODOFF_LI).dstudy("p x i x a", i=5, a=2)
    assert "in each" not in str(crossed.required(0.9, facet="a"))


@given(p=st.integers(1, 1000), k=st.integers(1, 10_000))
def test_exact_sizes_are_not_rounded_up(p, k):
    # π = .9 asks for n = 9 σ²_e/σ²_p = 9 k
    g = from_components({"p": p / 7, "i": 0.0, "Residual": k * p / 7})
    assert g.dstudy(i=1).required(0.9).n == 9 * k


def test_first_plan_holds_the_other_facets():
    g = from_components(BODOFF_LI)
    one = g.dstudy(i=20, a=1).required(0.95, facet="i")
    assert g.dstudy(i=20, a=[1, 50]).required(0.95, facet="i") == one
    assert g.dstudy(i=20, a=[50, 1]).required(0.95, facet="i").n <= one.n
    assert str(one) == "For Eρ² = 0.95, 39 levels of i are needed, with a = 1."


def test_nested_facets_keep_their_size_within_levels():
    found = dstudy(PER_DOCUMENT, doc=4).required(0.9, "Phi", "topic")
    assert found.held == {"doc": 4}
    # τ = 2, error = (1 + .5 + 7/4)/n
    assert found.n == np.ceil(3.25 * 0.9 / (0.1 * 2))


def test_out_of_reach():
    found = dstudy(PER_DOCUMENT, topic=2, doc=1).required(0.95, facet="doc")
    assert found.n == np.inf
    assert np.isnan([found.low, found.high]).all()
    assert "error variance 0.25 does not fall with more doc" in str(found)
    nothing = from_components({"p": 0.0, "i": 1.0, "Residual": 1.0}).dstudy(i=5).required()
    assert "the variance of p is not estimated above zero" in str(nothing)


def test_one_level_is_enough():
    found = from_components({"p": 1.0, "i": 0.0, "Residual": 0.0}).dstudy(i=5).required(0.99)
    assert found.n == 1
    assert str(found) == "For Eρ² = 0.99, 1 level of i is needed."


def test_delta_method_on_the_log_scale():
    g = replace(TREC3, mean_squares=None)
    found = dstudy(g, interval="log").required(0.95)
    assert found.interval_method == LOG_SCALE
    assert found.low < found.n == 69 < found.high
    s, e = g.values[[0, 2]]
    v = g.cov[0, 0] / s**2 + g.cov[2, 2] / e**2 - 2 * g.cov[0, 2] / (s * e)
    n = 19 * e / s
    assert found.low == np.ceil(n * np.exp(-1.959964 * np.sqrt(v)))
    assert found.high == np.ceil(n * np.exp(1.959964 * np.sqrt(v)))


def test_intervals_that_know_next_to_nothing():
    g = from_components({"p": 1e-9, "i": 1.0, "Residual": 1.0}, np.eye(3) * 1e6)
    found = g.dstudy(i=5).required()
    assert found.high == np.inf
    assert found.low == 1


def test_the_only_facet_needs_no_name():
    assert dstudy(TREC3).required().facet == "topic"
    assert dstudy(REPLICATED).required().facet == "topic"
    with pytest.raises(PlanError, match=r"pass facet=, one of \['topic', 'doc'\]"):
        dstudy(PER_DOCUMENT).required()


def test_errors():
    study = dstudy(TREC3)
    with pytest.raises(PlanError, match="coefficient is 'Erho2' or 'Phi', not 'phi'"):
        study.required(coefficient="phi")
    with pytest.raises(PlanError, match=r"'sys' has no size in this D-study; .*\['topic'\]"):
        study.required(facet="sys")
    g = from_components({"p": 0.5, "i": 0.2, "a": 0.1, "Residual": 1.0})
    with pytest.raises(PlanError, match="'i' is fixed: its planned levels are the whole universe"):
        g.dstudy(i=3, a=2, fixed="i").required(facet="i")
    for goal in (0, 1, 1.5, np.nan, "0.9"):
        with pytest.raises(PlanError, match="between 0 and 1"):
            study.required(goal)


def test_a_goal_that_is_only_approached():
    # τ/(τ + A) is .9 itself: no size of a gets there, and rounding must not invent one
    g = from_components(
        {"p": 0.9, "i": 0.0, "a": 0.0, "pi": 0.3, "pa": 0.7, "ia": 0.0, "pia": 0.2}
    )
    assert g.dstudy(i=3, a=2).required(0.9, facet="a").n == np.inf


def test_a_whole_universe_is_not_required():
    g = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0})
    study = g.dstudy(i=3, universe={"i": 6})
    found = study.required(0.99, "Phi")
    assert found.n == np.inf
    assert "all 6 levels of i are needed, and with them nothing is left" in str(found)
    most = study.required(0.93, "Phi").n
    assert most < 6
    assert g.dstudy(i=most, universe={"i": 6}).table["Phi"].iloc[0] >= 0.93


def test_other_facets_of_a_layout_keep_the_sizes_that_they_have_there():
    g = from_components(
        {"p": 0.9, "i": 0.1, "a": 0.1, "pi": 0.3, "pa": 0.2, "ia": 0.1, "pia": 0.2},
        sizes={"p": 30, "i": 7, "a": 5},
    )
    layout = pd.DataFrame({"i": [0, 0, 1, 1, 2, 2], "a": [0, 1, 0, 1, 0, 1]})
    found = g.dstudy(layout=layout).required(0.8, facet="i")
    assert found.held == {"a": 2}
    assert found.n == g.dstudy(i=3, a=2).required(0.8, facet="i").n


def test_every_plan_has_its_answer():
    g = from_components(BODOFF_LI)
    found = g.dstudy(i=[20, 40], a=[1, 50]).required(0.95, facet="i")
    alone = [g.dstudy(i=20, a=a).required(0.95, facet="i") for a in (1, 50)]
    assert (found, *found.further) == tuple(alone)
    assert found.table["a"].tolist() == [1, 50]
    assert found.table["n"].tolist() == [one.n for one in alone]
    assert str(found).splitlines() == [str(one) for one in alone]
    assert all(f"<p>{one}</p>" in found._repr_html_() for one in alone)


def test_a_goal_out_of_reach_says_with_which_plan():
    g = from_components(
        {"p": 0.9, "i": 0.0, "a": 0.0, "pi": 0.3, "pa": 0.7, "ia": 0.0, "pia": 0.2}
    )
    lines = str(g.dstudy(i=[1, 30], a=2).required(0.75, facet="a")).splitlines()
    assert lines[0].startswith("Eρ² = 0.75 is out of reach with i = 1: error variance 0.3 ")
    assert lines[1] == "For Eρ² = 0.75, 3 levels of a are needed, with i = 30."


def test_the_accuracy_of_rankings_is_required_of_its_measures():
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
    with pytest.raises(vcomp.PlanError, match=r"res\.accuracy\('tau'\)\.required\('tau', 0\.9\)"):
        res.dstudy("sys x topic").required(0.9, "Etau")
    least = res.accuracy("tau").required("tau", 0.9)
    assert res.accuracy("tau", topic=[least.n]).table["estimate"].iloc[0] >= 0.9

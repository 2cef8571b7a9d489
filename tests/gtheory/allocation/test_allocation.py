"""Recommendations: against the papers, all designs of a D-study table, and wrong questions."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.examples import examples
from tests.helpers.gstudies import BODOFF_LI, PER_DOCUMENT, REPLICATED, TREC3
from tests.helpers.printed_tables import printed_columns
from vcomp.exceptions import PlanError
from vcomp.gtheory.allocation.cost import Cost
from vcomp.gtheory.planned_quantity import dstudy
from vcomp.gtheory.published import from_components

TREC5 = from_components(BODOFF_LI)
KINDS = ["p x i x a", "p x (a:i)"]
variances = st.floats(1e-4, 1.0)


def study(**values):
    return from_components({**BODOFF_LI, **values}).dstudy(i=1, a=1)


# Bodoff and Li (2007) ----------------------------------------------------------------------------


def test_ratio_of_queries_to_assessors():  # section 3.2.3
    # The paper's 1826 and 805 come from components with more digits than are printed: they lie
    # between the ratios of the smallest and largest values that round to the printed ones.
    half = Fraction(5, 10**6)
    i, pi, pa = Fraction(1596, 10**5), Fraction(1258, 10**5), Fraction(2, 10**5)
    for coefficient, top, printed in (("Phi", i + pi, 1826), ("Erho2", pi, 805)):
        found = study().optimize("i*a", budget=5000, coefficient=coefficient).ratio
        assert found.estimate == pytest.approx(float(top / pa), rel=1e-12)
        assert found.name == "n(i)/n(a)"
        few = 1 if coefficient == "Erho2" else 2
        ends = [(top - few * half) / (pa + half), (top + few * half) / (pa - half)]
        assert ends[0] < printed < ends[1]
    # Both ratios have one denominator: σ²(a) is 0 in print.
    assert abs(1826 / 805 - float((i + pi) / pi)) < 0.002


def test_ratio_of_the_poster():  # Bodoff (2006), percentages of variance, p. 1
    # What is printed there adds the product's terms to both sides, which n_i n_a = K does not:
    # they are divided by n_i n_a, and do not depend on how it is shared.
    poster = {"p": 11.3, "i": 35.3, "a": 0.05, "pi": 49.9, "pa": 0, "ia": 1.5, "pia": 2.0}
    absolute = from_components(poster).dstudy(i=1, a=1)
    found = absolute.optimize("i*a", budget=100, coefficient="Phi").ratio
    assert found.estimate == pytest.approx((35.3 + 49.9) / 0.05, rel=1e-12)
    relative = absolute.optimize("i*a", budget=100).ratio
    assert relative.estimate == math.inf
    assert "one level of it is enough" in str(relative)


@pytest.mark.parametrize(("i", "a"), [(50, 1), (50, 2), (100, 1), (100, 2)])
def test_table_4(i, a):
    bounds = {"i": (1, i), "a": (1, a)}
    best = study().optimize("i*a", budget=i * a, bounds=bounds).best
    assert best.sizes == {"i": i, "a": a}
    printed = {(50, 1): (0.920, 0.961), (50, 2): (0.925, 0.964), (100, 1): (0.958, 0.979),
               (100, 2): (0.960, 0.981)}  # fmt: skip
    row = best.study.table.iloc[0]
    # .958 in print is .957 from the printed components
    np.testing.assert_allclose(row[["Phi", "Erho2"]].astype(float), printed[i, a], atol=1.001e-3)


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.just(0.0), variances), min_size=7, max_size=7),
    st.integers(1, 99),
    st.integers(1, 9),
)
def test_the_relative_error_of_nested_assessors_is_never_larger(values, i, a):  # section 3.2.4
    g = from_components(dict(zip(BODOFF_LI, values, strict=True)))
    crossed, nested = (g.dstudy(kind, i=i, a=a).table["rel_err_var"][0] for kind in KINDS)
    assert nested <= crossed * (1 + 1e-12)


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(variances, min_size=7, max_size=7), st.integers(20, 400))
def test_nested_assessors_are_preferred_when_they_cost_the_same(values, budget):
    g = from_components(dict(zip(BODOFF_LI, values, strict=True))).dstudy(i=1, a=1)
    found = g.optimize("3*i + i*a", budget=budget, designs=KINDS)
    crossed = g.optimize("3*i + i*a", budget=budget).best.study.table["rel_err_var"][0]
    error = found.best.study.table["rel_err_var"][0]
    assert error <= crossed * (1 + 1e-12)
    # With one query both are the same design.
    assert (found.best.design == KINDS[1]) == (error < crossed * (1 - 1e-10))


# against all designs -----------------------------------------------------------------------------


@settings(deadline=None, max_examples=examples(30))
@given(
    values=st.lists(variances, min_size=7, max_size=7),
    prices=st.tuples(*[st.floats(0.5, 20)] * 3),
    coefficient=st.sampled_from(["Erho2", "Phi", "rel_err_var", "abs_err_var"]),
    share=st.floats(0.05, 0.95),
)
def test_recommendations_against_the_table_of_all_plans(values, prices, coefficient, share):
    g = from_components(dict(zip(BODOFF_LI, values, strict=True)))
    cost = Cost(dict(zip(["i", "a", "i:a"], prices, strict=True)))
    n = range(1, 31)
    frames = []
    for kind in KINDS:
        one = g.dstudy(kind, i=n, a=n)
        frame = one.table
        frame["cost"] = [
            cost.total({"i": r.i, "a": r.a}, one.plan.design) for r in frame.itertuples()
        ]
        frames.append(frame.assign(design=kind))
    sign = -1 if coefficient.endswith("var") else 1
    # Whatever is beyond the table costs more.
    most = min(cost.total(s) for s in ({"i": 31, "a": 1}, {"i": 1, "a": 31})) * 0.999
    least = min(f["cost"].min() for f in frames)
    budget = least + share * (most - least)
    found = g.dstudy(i=1, a=1).optimize(
        cost, budget=budget, coefficient=coefficient, designs=KINDS
    )
    inside = [f[f["cost"] <= budget] for f in frames]
    best = max((sign * f[coefficient]).max() for f in inside)
    row = found.table.iloc[0]
    np.testing.assert_allclose(sign * row[coefficient], best, rtol=1e-10)
    assert row["cost"] <= budget * (1 + 1e-9)
    for kind, frame in zip(KINDS, inside, strict=True):
        own = found.table[found.table["design"] == kind].iloc[0]
        np.testing.assert_allclose(
            sign * own[coefficient], (sign * frame[coefficient]).max(), rtol=1e-10
        )
    # And back: the cheapest design that is as good costs no more.
    goal = float(row[coefficient])
    assume(0 < goal < 1)
    back = g.dstudy(i=1, a=1).optimize(
        cost, goal=goal * (1 - sign * 1e-9), coefficient=coefficient, designs=KINDS
    )
    assert back.best.cost <= row["cost"] * (1 + 1e-9)
    assert back.aim.goal == pytest.approx(goal)


@pytest.mark.parametrize("plan", [{}, {"fixed": "a"}, {"universe": {"i": 25, "a": 12}}])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("coefficient", ["Erho2", "Phi"])
def test_fixed_facets_and_finite_universes(plan, kind, coefficient):
    g = from_components({**BODOFF_LI, "a": 0.004, "pa": 0.003})
    if "fixed" in plan and "(a:i)" in kind:
        # Other topics have other assessors, so that fixed ones would fix nothing.
        with pytest.raises(PlanError, match="'a' cannot be in fixed=: it is nested in i"):
            g.dstudy(kind, i=5, a=3, **plan)
        return
    fixed = "fixed" in plan
    largest = {"i": 25 if "universe" in plan else 60, "a": 3 if fixed else 12}
    n = {"i": range(1, largest["i"] + 1), "a": 3 if fixed else range(1, 12)}
    frame = g.dstudy(kind, **n, **plan).table
    if not fixed:
        # All 25 × 12 levels of the finite universes would be no D-study.
        more = g.dstudy(kind, i=range(1, largest["i"]), a=12, **plan).table
        frame = pd.concat([frame, more], ignore_index=True)
    each = 4 * frame["i"] + frame["i"] * frame["a"]
    own = g.dstudy(kind, i=10, a=3, **plan)
    bounds = None if "universe" in plan else {"i": (1, 60), "a": (1, 12)}
    bounds = {"i": (1, 60)} if fixed else bounds
    for budget in (20, 77, 200):
        found = own.optimize("4*i + i*a", budget=budget, coefficient=coefficient, bounds=bounds)
        best = frame.loc[each <= budget, coefficient].max()
        np.testing.assert_allclose(found.best.study.columns[coefficient][0], best, rtol=1e-12)
    # A design that is named keeps the fixed levels and the universes.
    named = own.optimize(
        "4*i + i*a", budget=200, coefficient=coefficient, bounds=bounds, designs=kind
    )
    assert named.best.sizes == found.best.sizes
    assert named.best.study.columns[coefficient][0] == found.best.study.columns[coefficient][0]
    found = own.optimize("4*i + i*a", goal=0.84, coefficient=coefficient, bounds=bounds)
    assert found.best.cost == each[frame[coefficient] >= 0.84].min()


def test_replicates_and_three_facets():
    prices = {"topic": 10, "sys:topic:replicate": 0.25}
    found = dstudy(REPLICATED).optimize(prices, budget=500)
    frame = dstudy(REPLICATED, topic=range(1, 41), replicate=range(1, 30)).table
    cost = frame["topic"] * (10 + 2.5 * frame["replicate"])
    best = frame.loc[cost[cost <= 500].index, "Erho2"].max()
    assert found.best.study.columns["Erho2"][0] == pytest.approx(best, rel=1e-12)
    assert "scores a cell" in str(found.best) or found.best.sizes["replicate"] == 1
    # sys × (doc:topic): documents are paid in every topic.
    nested = dstudy(PER_DOCUMENT).optimize("20*topic + doc", budget=1000)
    assert nested.best.cost == nested.best.sizes["topic"] * (20 + nested.best.sizes["doc"])
    assert list(nested.best.sizes) == ["topic", "doc"]
    assert "in each topic" in str(nested.best)


def test_three_facets_and_a_million():
    values = {"p": 1, "i": 0.5, "a": 0.2, "t": 0.1, "p:i": 1, "p:a": 0.3, "p:t": 0.2, "i:a": 0.1,
              "Residual": 2}  # fmt: skip
    everything = from_components(values).dstudy(i=1, a=1, t=1)
    found = everything.optimize("7.1*i + 11.3*a + 5.7*t + 0.01*i*a*t", budget=1e6)
    real = found.continuous.loc["p x i x a x t"]
    sizes = found.best.sizes
    # Whole sizes lie near the others, and no other whole ones around these are as good.
    assert all(abs(sizes[f] / real[f] - 1) < 0.2 for f in sizes)
    best = found.best.study.table["rel_err_var"][0]
    around = [range(max(1, sizes[f] - 3), sizes[f] + 4) for f in "iat"]
    rows = np.array(list(itertools.product(*around)), dtype=float)
    i, a, t = rows.T
    paid = 7.1 * i + 11.3 * a + 5.7 * t + 0.01 * i * a * t <= 1e6
    error = 1 / i + 0.3 / a + 0.2 / t + 2 / (i * a * t)
    assert best <= error[paid].min() * (1 + 1e-12)


# the result --------------------------------------------------------------------------------------


def test_the_table():
    cov = np.diag((0.3 * np.maximum(list(BODOFF_LI.values()), 1e-5)) ** 2)
    own = from_components(BODOFF_LI, cov=cov).dstudy(i=1, a=1)
    found = own.optimize("10*i + i*a", budget=1000, designs=KINDS, top=4)
    frame = found.table
    assert frame.columns.tolist() == [
        "design", "i", "a", "cost", "universe_var", "rel_err_var", "abs_err_var", "Erho2", "Phi",
        "Erho2_low", "Erho2_high",
    ]  # fmt: skip
    assert len(frame) == len(KINDS) + 3
    assert frame["design"][:2].tolist() == [KINDS[1], KINDS[0]]
    assert (np.diff(frame["Erho2"][2:]) <= 0).all()
    for row in frame.itertuples():
        one = (
            from_components(BODOFF_LI, cov=cov).dstudy(row.design, i=row.i, a=row.a).table.iloc[0]
        )
        for name in ("Erho2", "Phi", "Erho2_low", "Erho2_high", "rel_err_var"):
            assert getattr(row, name) == pytest.approx(one[name], rel=1e-12)
    assert found.best.study.table["Erho2_low"][0] == frame["Erho2_low"][0]


def test_the_ratio_has_an_interval_where_components_have():
    res = vcomp.fit(
        "score ~ (1|sys) + (1|topic) + (1|query) + (1|sys:topic) + (1|sys:query) + "
        "(1|topic:query)",
        vcomp.datasets.load("docsearch"),
    )
    found = res.dstudy(object="sys").optimize("topic*query", budget=500).ratio
    direct = res.quantity("sys:topic / sys:query")
    assert found.estimate == pytest.approx(direct.estimate, rel=1e-12)
    assert found.se == pytest.approx(direct.se, rel=1e-10)
    assert (found.low, found.high) == pytest.approx((direct.low, direct.high), rel=1e-10)
    # No ratio where levels have prices of their own, nor within one another.
    assert res.dstudy(object="sys").optimize("topic*query + topic", budget=500).ratio is None
    assert res.dstudy("sys x (query:topic)").optimize("topic*query", budget=500).ratio is None


def test_the_required_size_of_one_facet():
    found = dstudy(TREC3).optimize("25*topic", goal=0.95, coefficient="Phi")
    required = dstudy(TREC3).required(0.95, "Phi")
    assert found.required.n == required.n == found.best.sizes["topic"]
    assert (found.required.low, found.required.high) == (required.low, required.high)
    assert "130 to 487" in str(found)
    assert dstudy(TREC3).optimize("25*topic", budget=100).required is None


def test_what_is_printed():
    text = str(study().optimize("10*i + i*a + 100", budget=1100, designs=KINDS))
    for words in (
        "The best design for a budget of 1,100: highest Eρ²",
        "Recommended is p × (a:i): 90 i, 1 a in each i; costs 1,090; Eρ² = 0.979.",
        "Cost: 10 per i + 1 per i:a + 100.",
        "Best of the other designs: p × i × a, i = 83, a = 2; Eρ² is lower by 0.0016.",
    ):
        assert words in " ".join(text.split())
    text = str(study().optimize("i*a", goal=0.001, coefficient="abs_err_var"))
    assert "The cheapest design with σ²(Δ) ≤ 0.001" in text
    found = study().optimize("i*a", budget=10)
    assert repr(found).startswith("Allocation(p × i × a: ")
    assert "<table" in found._repr_html_()
    assert str(study(i=-0.1).optimize("i*a", budget=10)).count("is replaced by 0") == 1


def test_other_policies_and_functions():
    own = from_components({**BODOFF_LI, "a": -0.0001, "ia": 0.002, "pa": 0.0}).dstudy(
        i=1, a=1, negative="keep"
    )
    with pytest.raises(PlanError, match=r'negative="keep" σ²\(a\) = -0\.0001 would let the error'):
        own.optimize("i*a", budget=10, coefficient="Phi")
    nothing = from_components(dict.fromkeys(BODOFF_LI, 0.0)).dstudy(i=1, a=1, negative="keep")
    assert nothing.optimize("i*a", budget=10, coefficient="abs_err_var").best.cost == 1
    # Where the sum of what is divided alike is positive the sign of a part does not matter.
    assert own.optimize("i*a", budget=10, coefficient="Phi", designs="p x (a:i)").best.cost == 10
    assert own.optimize("i*a", budget=10).best.cost == 10
    found = study().optimize(lambda i, a: 10 * i + i * a + 100, budget=1100, designs=KINDS)
    assert found.table["cost"][:2].tolist() == [1090, 1096]
    assert found.continuous.isna().all(axis=None)
    assert found.ratio is None
    assert "Cost: by the function of the user." in str(found)


def test_polars_and_numpy_arguments():
    found = study().optimize({"i": np.int32(3)}, budget=np.float64(30), bounds={"a": np.int8(2)})
    assert found.best.sizes == {"i": 10, "a": 2}


def test_as_many_designs_are_listed_as_may_be():
    assert len(study().optimize("i + i*a", budget=100, top=1).table) == 1
    assert len(study().optimize("i + i*a", budget=100, top=10_000).table) >= 1
    # A variance may have a goal of 1 and above.
    cheapest = study().optimize("i + i*a", goal=1.0, coefficient="abs_err_var").best
    assert (cheapest.sizes, cheapest.cost) == ({"i": 1, "a": 1}, 2.0)


# mistakes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either budget=.* or goal=.*; neither is given"),
        ({"budget": 5, "goal": 0.9}, "both are given"),
        ({"budget": 0}, "the budget is a positive number, not 0"),
        ({"budget": -5}, "the budget is a positive number"),
        ({"budget": np.nan}, "the budget is a positive number"),
        ({"budget": np.inf}, "the budget is a positive number"),
        ({"budget": "100"}, "the budget is a positive number, not '100'"),
        ({"budget": True}, "the budget is a positive number"),
        ({"goal": 1.0}, "must be between 0 and 1, not 1.0"),
        ({"goal": 0}, "the goal is a positive number"),
        ({"goal": 0.9, "coefficient": "phi"}, r"not 'phi' \(did you mean 'Phi'\?\)"),
        ({"budget": 100, "coefficient": None}, "coefficient must be 'rel_err_var'"),
        ({"budget": 100, "top": 0}, "top is a whole number from 1 to 10,000"),
        ({"budget": 100, "top": 10_001}, "top is a whole number from 1 to 10,000"),
        ({"budget": 100, "top": 10**9}, "top is a whole number from 1 to 10,000, not 1000000000"),
        ({"budget": 100, "designs": []}, "designs is empty"),
        ({"budget": 100, "designs": [None]}, r"designs are texts .* not \[None\]"),
        ({"budget": 100, "designs": ["p x i"]}, "leaves out a"),
        ({"budget": 100, "designs": ["p x i x a", "p x a x i"]}, "designs has 'p x a x i' twice"),
        ({"budget": 100, "bounds": {"j": 3}}, "bounds has 'j', which has no size"),
        ({"budget": 100, "bounds": {"i": (200, None)}}, "too small: the cheapest design, i = 200"),
        ({"budget": 1.5}, "the cheapest design, i = 1, a = 1, costs 2"),
        ({"goal": 0.95, "bounds": {"i": (1, 9)}}, r"mostly from σ²\(pi\) = 0.01258.*with i ≤ 9"),
        ({"goal": 0.99, "bounds": {"a": 1, "i": (1, 9)}}, "a = 1"),
    ],
)  # fmt: skip
def test_arguments_that_cannot_be(arguments, message):
    with pytest.raises(PlanError, match=message):
        study().optimize("i + i*a", **arguments)


def test_objects_that_are_counted_in_one_alternative_alone():
    # Items of their own are paid for each of 20 persons, common ones once.
    costs = {
        "p x i x a": lambda i, a: 2 * i + i * a,
        "(i:p) x a": lambda i, a: 20 * (2 * i + i * a),
    }
    found = study().optimize("2*i + i*a", budget=600, designs=list(costs), n_objects=20)
    assert set(found.table["design"]) == set(costs)
    for row in found.table.itertuples():
        assert row.cost == costs[row.design](row.i, row.a)
    with pytest.raises(PlanError, match="has no price per p"):
        study().optimize("i", budget=9, designs=KINDS, bounds={"a": 1}, n_objects=20)


def test_other_mistakes():
    with pytest.raises(
        PlanError, match=r"Eρ² = 0\.9 is out of reach: the variance of p is not estimated above"
    ):
        study(p=0).optimize("i*a", goal=0.9)
    # Of what remains, only what no sizes remove is named: with many a, σ²(pi) alone.
    number = r"= 0\.\d+"
    relative = rf"σ²\(pi\) {number}"
    absolute = rf"σ²\(i\) {number}, {relative}"
    for coefficient, left in (("Erho2", relative), ("Phi", absolute)):
        with pytest.raises(PlanError, match=f"mostly from {left}, with i ≤ 5"):
            study().optimize("i*a", goal=0.99, coefficient=coefficient, bounds={"i": (1, 5)})
    with pytest.raises(PlanError, match=r"'topc' is not a facet \(did you mean 'topic'\?\)"):
        dstudy(TREC3).optimize({"topc": 5}, budget=100)
    with pytest.raises(PlanError, match="'a' costs nothing"):
        study().optimize({"i": 5}, budget=100)
    g = from_components({"p": 1, "cost": 1, "Residual": 1}).dstudy(cost=1)
    with pytest.raises(PlanError, match="a facet is called 'cost'"):
        g.optimize("cost", budget=5)
    # All that there is.
    finite = from_components(BODOFF_LI).dstudy(i=2, a=1, universe={"i": 5, "a": 3})
    with pytest.raises(
        PlanError, match=r"budget buys all levels of the universe \(i = 5, a = 3\)"
    ):
        finite.optimize("i*a", budget=15)
    # All queries have no error of queries left, as 4 · 3 would.
    assert finite.optimize("i*a", budget=14).best.sizes == {"i": 5, "a": 2}
    for coefficient in ("Erho2", "Phi", "rel_err_var", "abs_err_var"):
        best = finite.optimize("i*a", budget=9, coefficient=coefficient, designs=KINDS)
        for one in best.alternatives:
            row = best.frontiers.tables[str(one.problem.plan.design)].iloc[-1]
            assert one.values[0] == pytest.approx(row[coefficient], rel=1e-9)
    # An alternative that cannot be had is left out, and said.
    found = study().optimize({"a": 1, "i": 1}, budget=9, designs=KINDS, bounds={"i": 4, "a": 2})
    assert [str(a.problem.plan.design) for a in found.alternatives] == [KINDS[0]]
    assert found.notes[0].startswith("p × (a:i) is left out: the budget of 9 is too small")
    assert found.notes[0] in " ".join(str(found).split())


def test_what_remains_most_is_named_first():
    """Of 5 items and 2 assessors 0.3/5 is more than 0.5/10."""
    values = {"p": 1, "i": 0, "a": 0, "pi": 0.3, "pa": 0, "ia": 0, "pia": 0.5}
    own = from_components(values).dstudy(i=1, a=1)
    with pytest.raises(PlanError, match=r"mostly from σ²\(pi\) = 0\.3, σ²\(pia\) = 0\.5, with"):
        own.optimize("i*a", goal=0.99, bounds={"i": (1, 5), "a": (1, 2)})


def test_a_budget_or_goal_that_the_least_sizes_just_meet():
    for designs in (None, KINDS):
        found = study().optimize("4*i + i*a", budget=5, designs=designs)
        assert (found.best.sizes, found.best.cost) == ({"i": 1, "a": 1}, 5)
        with pytest.raises(PlanError):
            study().optimize("4*i + i*a", budget=4.999, designs=designs)
    by_function = study().optimize(lambda i, a: 4 * i + i * a, budget=5)
    assert by_function.best.sizes == {"i": 1, "a": 1}
    least = float(study().table["Erho2"][0])
    assert study().optimize("4*i + i*a", goal=least).best.sizes == {"i": 1, "a": 1}


def test_what_is_printed_is_the_table():
    """The design is a column only where there are several."""
    several = study().optimize("4*i + i*a", budget=77, designs=KINDS)
    one = study().optimize("4*i + i*a", budget=77)
    for found in (several, one):
        printed = printed_columns(found.summary())
        frame = found.table.head(len(next(iter(printed.values()))))
        assert ("design" in printed) == (found is several)
        if found is several:
            assert printed["design"] == [d.replace(" x ", " × ") for d in frame["design"]]
        for facet in ("i", "a"):
            assert printed[facet] == [f"{n:.0f}" for n in frame[facet]]
        assert [float(x) for x in printed["cost"]] == frame["cost"].tolist()
        np.testing.assert_allclose([float(x) for x in printed["Eρ²"]], frame["Erho2"], atol=5e-4)


# Power -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cost", "held"),
    [("i + 5*a + 0.1*i*a", {}), ("20*i + 30*a + i*a", {}), ("i + 9*a", {"a": (1, 4)})],
)
def test_the_cheapest_design_with_some_power(cost, held):
    values = {"p": 1.0, "i": 0.3, "a": 0.1, "pi": 0.6, "pa": 0.05, "ia": 0.05, "pia": 1.2}
    planned = from_components(values)
    best = planned.dstudy(i=9, a=2).optimize(cost, difference=1.0, power=0.9, bounds=held).best
    most = held.get("a", (1, 15))[1]
    every = planned.dstudy(i=np.arange(10, 60), a=np.arange(1, most + 1)).power(1.0)
    price = [Cost.parse(cost).total({"i": i, "a": a}) for i, a in every[["i", "a"]].to_numpy()]
    assert best.cost == pytest.approx(min(np.array(price)[every["power"] >= 0.9]), rel=1e-12)
    assert best.study.power(1.0)["power"].item() >= 0.9


def test_designs_are_compared_by_the_cost_of_power():
    made = from_components(BODOFF_LI).dstudy(i=50, a=1)
    found = made.optimize({"i": 5, "a": 1}, difference=0.1, designs=KINDS, n_objects=4)
    assert found.table["cost"].is_monotonic_increasing or found.table["design"].nunique() == 2
    alone = [made.optimize({"i": 5, "a": 1}, difference=0.1, designs=d, n_objects=4).best.cost
             for d in KINDS]  # fmt: skip
    assert found.best.cost == min(alone)
    assert "The cheapest design with power 0.8 at a difference of 0.1" in str(found)
    assert found.aim.goal == pytest.approx(
        (0.1 / found.best.study.detectable(n_objects=4)["difference"].item()) ** 2
        * found.best.study.columns["rel_err_var"][0], rel=1e-9,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"difference": 0.1, "budget": 5.0}, "at the least cost: leave budget= out"),
        ({"difference": 0.1, "coefficient": "Phi"}, "leave coefficient= out"),
        ({"difference": 0.1, "goal": 0.9}, "a goal of a coefficient, or a difference="),
        ({"difference": -1}, "difference must be a number above 0"),
        ({"difference": 0.1, "power": 1}, "power must be between alpha"),
        ({"power": 0.9, "budget": 9}, "power=, alpha=, test= are of a test of a difference="),
        ({"difference": 1e-4, "bounds": {"a": 1}}, "power 0.8 at a difference of 0.0001 is out"),
        ({"difference": 1e-3, "bounds": {"i": (1, None)}}, r"bound them, such as bounds=\{'.'"),
    ],
)
def test_power_that_is_refused(options, words):
    with pytest.raises(PlanError, match=words):
        from_components({**BODOFF_LI, "pa": 0.01}).dstudy(i=5, a=2).optimize("i+a", **options)

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.gstudies import BODOFF_LI, PER_DOCUMENT, REPLICATED, TREC3, gstudy
from vcomp.exceptions import PlanError
from vcomp.formula.brennan import closure, parse_design
from vcomp.gtheory.plan import gstudy_design
from vcomp.gtheory.planned_quantity import dstudy
from vcomp.gtheory.projection import _combined_limits, _FLimits
from vcomp.gtheory.published import from_components
from vcomp.inference.intervals.limits import Limits
from vcomp.inference.quantities import VarianceComponents

TREC5 = from_components(BODOFF_LI)


def first(study):
    return study.table.iloc[0]


# published ---------------------------------------------------------------------------------------


def test_bodoff_and_li_worked_example():  # 2007, pp. 370-371
    row = first(TREC5.dstudy(i=20, a=3))
    assert row["abs_err_var"] == pytest.approx(0.00149, abs=5e-6)
    assert row["rel_err_var"] == pytest.approx(0.00066, abs=6e-6)
    assert row["Phi"] == pytest.approx(0.835, abs=5e-4)
    assert row["Erho2"] == pytest.approx(0.919, abs=5e-4)


def test_bodoff_and_li_table_4():
    table = TREC5.dstudy(i=[50, 100], a=[1, 2]).table
    # .958 in print is .957 from the printed components: σ²(pa) = .00002 has one digit
    np.testing.assert_allclose(table["Phi"], [0.920, 0.925, 0.958, 0.960], rtol=0, atol=1e-3)
    np.testing.assert_allclose(table["Erho2"], [0.961, 0.964, 0.979, 0.981], rtol=0, atol=5e-4)


# by exact rules ----------------------------------------------------------------------------------


def check(study, rows):
    table = study.table
    for column, key in [
        ("universe_var", "tau"), ("rel_err_var", "sigma2_delta"), ("abs_err_var", "sigma2_Delta"),
        ("Erho2", "Erho2"), ("Phi", "Phi"),
    ]:  # fmt: skip
        np.testing.assert_allclose(table[column], [r[key] for r in rows], rtol=1e-10)


def rows_by_plan(components, design, rows, **facets):
    """One D-study a row, so that rows need be no grid."""
    for row in rows:
        check(dstudy(components, design, **{f: row[k] for f, k in facets.items()}), [row])


def test_synthetic_1(reference):
    values = reference("dstudy_brennan_synthetic1")["values"]
    g = gstudy(values["components"])
    crossed, nested = values["p_x_I"], values["I_nested_in_p"]
    check(dstudy(g, item=[r["n_i"] for r in crossed]), crossed)
    check(dstudy(g, "item:person", object="person", item=[r["n_i"] for r in nested]), nested)
    for goal, needed in values["required_n"].items():
        for coefficient, n in needed.items():
            found = dstudy(g, item=1).required(float(goal), coefficient)
            assert found.n == n["n_ceil"]


def test_synthetic_2_has_items_as_replicates(reference):
    values = reference("dstudy_brennan_synthetic2")["values"]
    g = gstudy(values["components"], replicated=True)
    rows = values["I_nested_in_p"]
    check(dstudy(g, replicate=[r["n_i"] for r in rows]), rows)
    for goal, needed in values["required_n"].items():
        for coefficient, n in needed.items():
            assert dstudy(g, replicate=1).required(float(goal), coefficient).n == n["n_ceil"]


def test_synthetic_3(reference):
    values = reference("dstudy_brennan_synthetic3")["values"]
    g = gstudy(values["components"])
    rows_by_plan(g, None, values["random"], i="n_i", o="n_o")
    designs = {row["design"] for row in values["nested"]}
    assert len(designs) == 2
    for row in values["nested"]:
        text = row["design"].replace("p", "person").lower()
        rows_by_plan(g, text, [row], i="n_i", o="n_o")


def test_synthetic_4(reference):
    values = reference("dstudy_brennan_synthetic4")["values"]
    g = gstudy(values["components"], {"r": {"t"}})
    rows_by_plan(g, None, values["random"], t="n_t", r="n_r")
    rows_by_plan(g, "person x (r:t)", values["random"], t="n_t", r="n_r")


@pytest.mark.parametrize(
    ("name", "nested_in"),
    [
        ("brennan_missing_pxi", {}),
        ("brennan_synthetic1_unbal", {}),
        ("brennan_synthetic4_missing", {"r": {"t"}}),
    ],
)
def test_unbalanced_gstudies_have_exact_effective_sizes(reference, name, nested_in):
    values = reference(f"dstudy_{name}")["values"]
    object_, exact = values["object"], values["inverse_effective_n"]
    others = {part for c in exact for part in c.split(":")} - {object_, "Residual"}
    g = gstudy(
        values["components"],
        nested_in,
        sizes=dict.fromkeys(others, 2.5),
        inverse_n={object_: exact},
    )
    study = dstudy(g)
    check(study, [values])
    # What is shown is the effective size of each facet, within those that it is nested in.
    effective = values["effective_n"]
    shown = study.table.iloc[0]
    for facet in others:
        inner = next(c for c in exact if c.split(":")[-1] == facet and object_ not in c)
        outer = effective[inner.rpartition(":")[0]] if ":" in inner else 1.0
        assert shown[facet] == pytest.approx(effective[inner] / outer, rel=1e-12)
    assert "unbalanced" in study.notes[0]


def test_r_gtheory(reference):
    printed = reference("gtheory_brennan_3_2")["values"]
    var = {name: printed["gstudy"][name]["var"] for name in printed["gstudy"]}
    names = {
        "Person": "p", "Task": "t", "Person:Task": "p:t", "Rater:Task": "t:r",
        "Residual": "Residual",
    }  # fmt: skip
    g = gstudy({new: var[old] for old, new in names.items()}, {"r": {"t"}})
    row = first(dstudy(g, object="p", t=3, r=4))
    assert row["Erho2"] == pytest.approx(printed["dstudy"]["generalizability"], rel=1e-10)
    assert row["Phi"] == pytest.approx(printed["dstudy"]["dependability"], rel=1e-10)
    assert row["rel_err_var"] == pytest.approx(printed["dstudy"]["var_error_rel"], rel=1e-10)
    assert row["abs_err_var"] == pytest.approx(printed["dstudy"]["var_error_abs"], rel=1e-10)


# against an independent formula ------------------------------------------------------------------

NAMES = list(BODOFF_LI)
variances = st.floats(0.0, 1e3, allow_subnormal=False).filter(lambda v: v == 0 or v > 1e-6)
seven = st.lists(variances, min_size=7, max_size=7)
sizes = st.integers(1, 10_000)


def crossed_by_hand(values, n_i, n_a):
    p, i, a, pi, pa, ia, pia = (Fraction(v) for v in values)
    delta = pi / n_i + pa / n_a + pia / (n_i * n_a)
    return p, delta, delta + i / n_i + a / n_a + ia / (n_i * n_a)


def nested_by_hand(values, n_i, n_a):
    p, i, a, pi, pa, ia, pia = (Fraction(v) for v in values)
    delta = pi / n_i + (pa + pia) / (n_i * n_a)
    return p, delta, delta + i / n_i + (a + ia) / (n_i * n_a)


@pytest.mark.parametrize(
    ("design", "by_hand"), [("p x i x a", crossed_by_hand), ("p x (a:i)", nested_by_hand)]
)
@given(values=seven, n_i=sizes, n_a=sizes)
def test_exact_arithmetic(design, by_hand, values, n_i, n_a):
    row = first(
        from_components(dict(zip(NAMES, values, strict=True))).dstudy(design, i=n_i, a=n_a)
    )
    p, delta, Delta = by_hand(values, n_i, n_a)
    assert row["universe_var"] == float(p)
    assert row["rel_err_var"] == pytest.approx(float(delta), rel=1e-12)
    assert row["abs_err_var"] == pytest.approx(float(Delta), rel=1e-12)
    if p + delta:
        assert row["Erho2"] == pytest.approx(float(p / (p + delta)), rel=1e-12)
    if p + Delta:
        assert row["Phi"] == pytest.approx(float(p / (p + Delta)), rel=1e-12)


@given(values=seven, n_i=sizes, n_a=sizes, more=st.integers(1, 50))
def test_order_of_coefficients(values, n_i, n_a, more):
    g = from_components(dict(zip(NAMES, values, strict=True)))
    crossed = g.dstudy(i=n_i, a=n_a).table.iloc[0]
    nested = g.dstudy("p x (a:i)", i=n_i, a=n_a).table.iloc[0]
    larger = g.dstudy(i=n_i + more, a=n_a).table.iloc[0]
    slack = 1 + 1e-12
    assert nested["rel_err_var"] <= crossed["rel_err_var"] * slack  # Bodoff and Li (2007), 3.2.4
    if values[0] > 0:
        assert crossed["Phi"] <= crossed["Erho2"] * slack
        for coefficient in ("Erho2", "Phi"):
            assert crossed[coefficient] <= larger[coefficient] * slack


def effects(facets):
    return [frozenset(u) for k in range(1, len(facets) + 1) for u in combinations(facets, k)]


NESTINGS = ["p x i x h", "p x (i:h)", "p x (h:i)", "(i:p) x h", "i:h:p", "i:(p x h)", "(i x h):p"]


@pytest.mark.parametrize("own", NESTINGS)
@pytest.mark.parametrize("planned", NESTINGS)
def test_designs_that_the_gstudy_supports(own, planned):
    """A component stands for all crossed effects of its closure; the plan must keep them whole."""
    g_design, d_design = parse_design(own), parse_design(planned)
    terms = {g_design.closure(u) for u in effects("pih")}
    facets = tuple(sorted(terms, key=lambda t: (len(t), sorted(t))))
    names = tuple(":".join(sorted(t)) for t in facets)
    g = VarianceComponents(names, facets, np.ones(len(names)), nested_in=g_design.nested_in)
    supported = all(
        len({d_design.closure(u) for u in effects("pih") if g_design.closure(u) == t}) == 1
        for t in terms
    )
    if supported:
        study = dstudy(g, planned, object="p", i=3, h=5)
        n = {"i": 3, "h": 5, "p": 1}
        shares = {t: 1.0 / np.prod([n[f] for f in d_design.closure(t)]) for t in terms}
        del shares[frozenset("p")]
        assert first(study)["abs_err_var"] == pytest.approx(sum(shares.values()))
    else:
        with pytest.raises(PlanError, match="cannot separate"):
            dstudy(g, planned, object="p", i=3, h=5)


def test_confounded_components_are_named():
    nested = from_components({"p": 1, "i": 1, "a:i": 1, "p:i": 1, "Residual": 1})
    message = (
        r"cannot separate a from i:a \(a is nested in i\), and the design 'p x i x a' needs "
        r"them separately; nest a in i, or collect data in which a is crossed with i"
    )
    with pytest.raises(PlanError, match=message):
        nested.dstudy("p x i x a", i=20, a=3)
    with pytest.raises(PlanError, match="cannot separate doc from topic:doc"):
        dstudy(PER_DOCUMENT, "sys x topic x doc")
    with pytest.raises(PlanError, match="cannot separate doc from topic:doc"):
        dstudy(PER_DOCUMENT, "sys x (topic:doc)")


def test_the_confounded_facets_are_those_that_are_nested():
    """Not a facet that only is in the same component, as persons are."""
    g = gstudy({"p": 1.0, "i": 1.0, "p:i": 1.0, "p:i:a": 1.0}, {"a": {"i"}})
    with pytest.raises(PlanError, match=r"p:a from p:i:a \(a is nested in i\)"):
        dstudy(g, "p x i x a", i=20, a=3)


def test_no_component_of_the_object():
    g = gstudy({"topic": 1.0, "Residual": 1.0}, sizes={"topic": 5, "sys": 4})
    g = replace(g, facets=(frozenset({"topic"}), frozenset({"topic", "sys"})))
    with pytest.raises(PlanError, match="no component of 'sys' alone"):
        dstudy(g, object="sys")


def test_an_effect_that_the_model_does_not_have_is_zero():
    g = gstudy({"p": 2.0, "i": 1.0, "a": 0.5, "Residual": 3.0})
    row = first(dstudy(g, i=10, a=2))
    assert row["rel_err_var"] == pytest.approx(3 / 20)
    assert row["abs_err_var"] == pytest.approx(1 / 10 + 0.5 / 2 + 3 / 20)


def test_replicates_divide_the_residual_alone():
    row = first(dstudy(REPLICATED, topic=10, replicate=4))
    assert row["rel_err_var"] == pytest.approx(0.5 / 10 + 4 / 40)
    row = first(dstudy(REPLICATED, "topic:sys", object="sys", topic=10, replicate=4))
    assert row["rel_err_var"] == pytest.approx(1.5 / 10 + 4 / 40)


def test_nested_facets_are_counted_within():
    row = first(dstudy(PER_DOCUMENT, topic=10, doc=4))
    assert row["rel_err_var"] == pytest.approx(0.5 / 10 + 4 / 40)
    assert row["abs_err_var"] == pytest.approx(1.5 / 10 + 7 / 40)
    row = first(dstudy(PER_DOCUMENT, object="topic", sys=10, doc=4))
    assert row["rel_err_var"] == pytest.approx(3 / 4 + 0.5 / 10 + 4 / 40)


# uncertainty -------------------------------------------------------------------------------------


def complex_step(f, values):
    steps = np.eye(len(values)) * 1e-30j
    return np.array([f(values + h).imag for h in steps]) / 1e-30


QUANTITY = {
    "rel_err_var": lambda p, d, D: d,
    "abs_err_var": lambda p, d, D: D,
    "Erho2": lambda p, d, D: p / (p + d),
    "Phi": lambda p, d, D: p / (p + D),
}


@pytest.mark.parametrize("quantity", QUANTITY)
@settings(max_examples=examples(30), deadline=None)
@given(
    values=st.lists(st.floats(0.1, 10.0), min_size=7, max_size=7),
    root=st.lists(st.floats(-1.0, 1.0), min_size=49, max_size=49),
)
def test_delta_method_against_complex_steps(quantity, values, root):
    cov = np.reshape(root, (7, 7)) @ np.reshape(root, (7, 7)).T
    study = from_components(dict(zip(NAMES, values, strict=True)), cov).dstudy(
        "p x (a:i)", i=20, a=3
    )

    def f(v):
        p, i, a, pi, pa, ia, pia = v
        delta = pi / 20 + (pa + pia) / 60
        return QUANTITY[quantity](p, delta, delta + i / 20 + (a + ia) / 60)

    gradient = complex_step(f, np.array(values, dtype=complex))
    expected = np.sqrt(max(gradient @ cov @ gradient, 0.0))
    scale = np.abs(gradient).max() * np.sqrt(np.abs(cov).max())
    assert first(study)[f"{quantity}_se"] == pytest.approx(expected, rel=1e-9, abs=1e-7 * scale)


def test_components_at_their_bound_are_taken_as_known():
    cov = np.diag([4.0, 9.0, np.nan])
    cov[2, :] = cov[:, 2] = np.nan
    g = replace(TREC3, values=np.array([2.0, 1.0, 0.0]), cov=cov, mean_squares=None)
    study = dstudy(g, topic=10)
    row = first(study)
    assert row["abs_err_var_se"] == pytest.approx(0.3)
    assert np.isnan(row["rel_err_var_se"])  # nothing but the bounded component
    assert row["Erho2"] == 1.0
    assert np.isnan(row["Erho2_low"])
    assert any("σ²(Residual) has no standard error" in note for note in study.notes)


def test_no_covariance_matrix():
    study = TREC5.dstudy(i=20, a=3)
    assert study.table.filter(regex="_se|_low|_high").isna().all(axis=None)
    assert study.interval_methods == {}
    assert any("covariance matrix of the components is not known" in note for note in study.notes)


# negative and zero -------------------------------------------------------------------------------


def test_negative_components():
    g = from_components({"p": 2.0, "i": -1.0, "Residual": 3.0}, np.eye(3))
    zero, keep = g.dstudy(i=10), g.dstudy(i=10, negative="keep")
    assert first(zero)["abs_err_var"] == pytest.approx(0.3)
    assert first(keep)["abs_err_var"] == pytest.approx(0.2)
    assert first(zero)["abs_err_var_se"] == pytest.approx(0.1)
    assert first(keep)["abs_err_var_se"] == pytest.approx(np.sqrt(0.02))
    assert 'σ²(i) = -1 is replaced by 0 (negative="keep"' in zero.notes[0]
    assert "used as estimated" in keep.notes[0]
    assert zero.components.values[1] == -1.0
    with pytest.raises(PlanError, match="negative must be 'zero' or 'keep', not 'drop'"):
        g.dstudy(i=10, negative="drop")


def test_no_universe_variance():
    study = from_components({"p": -0.1, "i": 1.0, "Residual": 3.0}, np.eye(3)).dstudy(i=10)
    row = first(study)
    assert row["universe_var"] == row["Erho2"] == row["Phi"] == 0.0
    assert np.isnan(row["Erho2_se"])
    assert np.isnan(row["Erho2_low"])
    assert any("σ²(p) is 0" in note for note in study.notes)
    assert study.required().n == np.inf
    kept = from_components({"p": -0.1, "i": 1.0, "Residual": 3.0}).dstudy(i=10, negative="keep")
    assert first(kept)["Erho2"] == pytest.approx(-0.1 / 0.2)


def test_nothing_at_all():
    study = from_components({"p": 0.0, "i": 0.0, "Residual": 0.0}, np.eye(3)).dstudy(i=10)
    assert study.table[["Erho2", "Phi"]].isna().all(axis=None)
    assert any("Eρ² and Φ are not defined" in note for note in study.notes)
    assert str(study)


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 5, np.nan, "0.05", None])
def test_alpha(alpha):
    with pytest.raises(PlanError, match="alpha must be between 0 and 1"):
        dstudy(TREC3, topic=5, alpha=alpha)


def test_gstudy_design_closes_the_nesting():
    g = gstudy({"p": 1, "h": 1, "h:i": 1, "h:i:d": 1, "Residual": 1}, {"d": {"i"}, "i": {"h"}})
    design = gstudy_design(g)
    assert design.nested_in["d"] == {"i", "h"} == closure({"d"}, design.nested_in) - {"d"}
    assert str(design) == "p x (d:i:h)"


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ([0.3, 0.4, 0.5], "F where replicate = 3, else MLS"),
        # Where the others have no interval they are not named.
        ([0.3, np.nan, np.nan], "F"),
    ],
)
def test_intervals_of_some_plans_are_by_f(others, words):
    low = np.array(others)
    other = Limits(low, low + 0.2, "MLS", ("a note",))
    by_table = np.array([True, False, False])
    by_f = _FLimits(np.full(3, 0.1), np.full(3, 0.9), "F", by_table, 3)
    found = _combined_limits(other, by_f)
    np.testing.assert_array_equal(found.low, [0.1, *low[1:]])
    np.testing.assert_array_equal(found.high, [0.9, *(low[1:] + 0.2)])
    assert found.interval_method == words
    assert found.notes == ("a note",)
    assert _combined_limits(other, None) is other

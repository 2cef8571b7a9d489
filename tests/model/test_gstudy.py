"""G-studies by their design: formulas, components of the books, what data do not distinguish."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.brennan_designs import DESIGNS, balanced_data, small_designs
from tests.helpers.cases import alternately
from tests.helpers.examples import examples
from tests.helpers.reference_frames import by_name
from vcomp.formula.brennan import parse_design
from vcomp.formula.effects import design_effects, design_formula

P, T = {"p": "person"}, {"t": "task", "r": "rater"}


def sizes_of(design, n=2):
    return {f: n + k % 2 for k, f in enumerate(design.facets)}


def data_of(text, n=2, replicates=1, unique=(), seed=0):
    design = parse_design(text)
    return balanced_data(design, sizes_of(design, n), replicates, seed, unique)


def gstudy(text, data, **options):
    return vcomp.gstudy(text, data, "score", method="anova", **options)


# Components -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "design", "facets", "reference_id"),
    [
        ("brennan_synthetic1", "person x item", None, "anova_brennan_synthetic1"),
        ("brennan_synthetic3", "person x i x o", None, "anova_brennan_synthetic3"),
        ("brennan_synthetic4", "person x (r:t)", None, "anova_brennan_synthetic4"),
        ("brennan_synthetic1_unbal", "person x item", None, "anova_brennan_synthetic1_unbal"),
        ("brennan_synthetic4_missing", "person x (r:t)", None, "anova_brennan_synthetic4_missing"),
        ("brennan_missing_pxi", "p x i", None, "anova_brennan_missing_pxi"),
        ("brennan_synthetic2", "i:person", {"i": "item"}, "anova_brennan_synthetic2"),
        ("brennan_synthetic2_unbal", "i:person", {"i": "item"}, "anova_brennan_synthetic2_unbal"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*not fully crossed")
def test_components_of_brennan(file, design, facets, reference_id, reference, shared_data):
    """Exact ANOVA components of balanced and unbalanced data."""
    stored = reference(reference_id)
    res = gstudy(design, shared_data(f"{file}.csv"), facets=facets)
    expected = stored["values"]["hm1"]["vc"]
    names = list(res.vcomp.index)
    assert set(names) == set(expected)
    np.testing.assert_allclose(res.vcomp, by_name(expected, names), rtol=2e-11)


def test_reml_components_of_gtheory(reference, shared_data):
    """gtheory 0.1.2 on Brennan's Table 3.2; it takes lme4's optimiser as it is, about 1e-4."""
    stored = reference("gtheory_brennan_3_2")["values"]
    res = vcomp.gstudy("p x (r:t)", shared_data("brennan_3_2.csv"), "score", facets={**P, **T})
    names = {"Person": "p", "Task": "t", "Rater:Task": "t:r", "Person:Task": "p:t"}
    for name, row in stored["gstudy"].items():
        ours = res.vcomp[names.get(name, name)]
        # lme4's default optimiser, which gtheory takes, ends this near.
        assert ours == pytest.approx(row["var"], abs=2e-4)
    table = res.dstudy("p x (R:T)").table.iloc[0]
    assert table["Erho2"] == pytest.approx(stored["dstudy"]["generalizability"], abs=2e-4)
    assert table["Phi"] == pytest.approx(stored["dstudy"]["dependability"], abs=2e-4)


def test_doctors_of_narayanan(reference, shared_data):
    stored = reference("narayanan2010_published")["values"]["vc"]
    res = vcomp.gstudy(
        "(p:d) x i", shared_data("narayanan2010.csv"), "rating", method="anova",
        facets={"p": "patient", "d": "doctor", "i": "item"},
    )  # fmt: skip
    names = {"doctor": "d", "doctor:patient": "d:p", "item": "i", "doctor:item": "d:i"}
    for name, value in stored.items():
        ours = res.vcomp[names.get(name, "Residual")]
        assert ours == pytest.approx(value, abs=5.1e-4)  # printed with three decimals


def test_a_facet_within_all_others_is_the_scores_of_a_cell(reference, shared_data):
    """i:p: the formula has p alone; D-studies know of i all the same."""
    printed = reference("brennan_published_synthetic2")["values"]["published"]
    facets = {"i": "item", **P}
    res = gstudy("i:p", shared_data("brennan_synthetic2.csv"), facets=facets)
    assert res.formula == "score ~ (1|p)"
    assert res.design.nested_in == {"p": frozenset(), "i": {"p"}}
    assert res.design.sizes == {"p": 10.0, "i": 8.0}
    assert res.design.terms["Residual"] == ("i", "p:i", "error")
    table = res.dstudy().table.iloc[0]
    assert table["i"] == 8
    assert table["Erho2"] == pytest.approx(printed["Erho2"], abs=5.1e-3)
    p, e = res.vcomp
    longer = res.dstudy("I:p", i=20).table.iloc[0]
    assert longer["Erho2"] == pytest.approx(p / (p + e / 20), rel=1e-12)
    plain = vcomp.fit("score ~ (1|person)", shared_data("brennan_synthetic2.csv"), method="anova")
    assert plain.dstudy(replicate=20).table["Erho2"].item() == pytest.approx(longer["Erho2"])
    again = vcomp.VarianceComponentsResults.from_json(res.to_json())
    assert again.design == res.design
    assert again.dstudy(i=20).table["Phi"].item() == longer["Phi"]
    with pytest.raises(vcomp.EstimationError, match="each level of 'i' is one score"):
        res.jackknife("i")


@pytest.mark.parametrize(("text", "replicates"), alternately(DESIGNS, 2, 1))
def test_balanced_data_of_any_design(text, replicates):
    """All terms are there, and the G-study's design is the one that was claimed."""
    data = data_of(text, replicates=replicates)
    res = gstudy(text, data)
    assert res.formula == design_formula(text, replicated=replicates > 1)
    assert res.design.notation == str(parse_design(text))
    assert dict(res.design.nested_in) == dict(parse_design(text).nested_in)
    assert res.design.claim == str(parse_design(text))
    assert res.design.balanced
    terms = [e.term for e in design_effects(parse_design(text))]
    expected = [*terms, "Residual"] if replicates > 1 else [*terms[:-1], "Residual"]
    assert list(res.vcomp.index) == expected
    np.testing.assert_array_equal(res.vcomp, vcomp.fit(res.formula, data, method="anova").vcomp)


@settings(max_examples=examples(20), deadline=None)
@given(small_designs(most=4), st.data())
def test_labels_may_start_anew_or_not(design, data):
    if len(design.facets) == 1:
        return
    sizes = {f: data.draw(st.integers(2, 3)) for f in design.facets}
    nested = [f for f in design.facets if design.nested_in[f]]
    unique = data.draw(st.sets(st.sampled_from(nested))) if nested else set()
    anew = balanced_data(design, sizes, replicates=2)
    apart = balanced_data(design, sizes, replicates=2, unique=unique)
    a, b = gstudy(str(design), anew), gstudy(str(design), apart)
    assert a.formula == b.formula
    np.testing.assert_allclose(a.vcomp, b.vcomp, rtol=1e-9, atol=1e-11)
    assert a.design.nested_in == b.design.nested_in == design.nested_in
    # a drawn design may have its facets in another order than its text names them
    assert a.design.notation == str(parse_design(str(design)))


def test_a_d_study_goes_back_and_forth():
    res = gstudy("p x (i:h)", data_of("p x (i:h)", n=3))
    own = res.dstudy(object="p").table
    for text in ("p x (i:h)", "P x (I:H)", "p × (I : H)", res.design.notation):
        table = res.dstudy(text, object="p").table
        pd.testing.assert_frame_equal(table[own.columns], own)


# What goes in ---------------------------------------------------------------------------------


def test_containers_and_columns_of_any_name(tmp_path):
    frame = data_of("p x (i:h)", n=3).rename(columns={"i": "exam item", "score": "my score"})
    expected = vcomp.fit(
        "Q('my score') ~ (1|p) + (1|h) + (1|h:Q('exam item')) + (1|p:h)", frame, method="anova"
    ).vcomp
    frame.to_csv(tmp_path / "scores.csv", index=False)
    design, names = "p x ('exam item':h)", {"i": "exam item"}
    arrow, arrays = pl.from_pandas(frame).to_arrow(), {c: frame[c].to_numpy() for c in frame}
    for data in (frame, pl.from_pandas(frame), arrow, arrays,
                 tmp_path / "scores.csv", str(tmp_path / "scores.csv")):  # fmt: skip
        res = vcomp.gstudy(design, data, "my score", method="anova")
        np.testing.assert_allclose(res.vcomp, expected, rtol=1e-12)
        assert list(res.vcomp.index) == ["p", "h", "h:exam item", "p:h", "Residual"]
        short = vcomp.gstudy("p x (i:h)", data, "my score", facets=names, method="anova")
        np.testing.assert_array_equal(short.vcomp, res.vcomp)
        assert short.dstudy(i=[2, 4], h=2, object="p").table["i"].tolist() == [2, 4]


def test_a_stream_is_read_once():
    frame = data_of("p x i", n=3)
    stream = pl.from_pandas(frame).to_arrow().to_reader()
    np.testing.assert_array_equal(gstudy("p x i", stream).vcomp, gstudy("p x i", frame).vcomp)


def test_variables_of_the_scope_and_expressions():
    frame = data_of("p x i", n=3)
    p, i, score = (frame[c].to_numpy() for c in ("p", "i", "score"))
    assert p.size == i.size == score.size
    res = vcomp.gstudy("p x i", None, "score", method="anova")
    np.testing.assert_array_equal(res.vcomp, gstudy("p x i", frame).vcomp)
    factor = 10.0
    assert factor == p.dtype.type(10)
    scaled = vcomp.gstudy("p x i", frame, "I(factor * score)", method="anova")
    np.testing.assert_allclose(scaled.vcomp, 100.0 * res.vcomp, rtol=1e-12)


def test_rows_keep_their_labels_and_missing_ones_are_left_out_once():
    frame = data_of("p x i", n=4).set_index(np.arange(100, 120))
    frame.loc[103, "score"] = np.nan
    with pytest.warns(vcomp.VcompWarning, match="1 of 20 rows have a missing value") as caught:
        res = vcomp.gstudy("p x i", frame, "score")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert list(res.resid.index) == [k for k in range(100, 120) if k != 103]
    with pytest.raises(vcomp.DataError, match="1 of 20 rows"):
        vcomp.gstudy("p x i", frame, "score", missing="raise")


def test_options_of_the_method_are_passed_on():
    frame = data_of("p x i", n=5)
    held = vcomp.gstudy("p x i", frame, "score", method="ml", hold={"p": 0.5})
    assert held.vcomp["p"] == 0.5
    assert held.method == "ml"
    with pytest.raises(vcomp.EstimationError):
        vcomp.gstudy("p x i", frame, "score", nonsense=1)


# What the data do not distinguish ---------------------------------------------------------------


def test_a_facet_with_one_level():
    frame = data_of("p x i", n=4).assign(o="once")
    with pytest.warns(vcomp.VcompWarning, match="o has one level only.*use several levels of o"):
        res = gstudy("p x i x o", frame)
    assert res.formula == "score ~ (1|p) + (1|i)"
    np.testing.assert_array_equal(res.vcomp, gstudy("p x i", frame).vcomp)
    assert "several levels of o" in " ".join(str(res.design).split())
    assert res.design.claim == "p x i x o"
    assert res.design.notation == "p x i"
    again = vcomp.VarianceComponentsResults.from_json(res.to_json())
    assert again.design == res.design


def test_a_nested_facet_with_one_level_in_each():
    frame = data_of("p x h", n=4)
    for labels in (0, frame["h"] * 7):
        with pytest.warns(vcomp.VcompWarning, match="i has one level in each level of h") as found:
            res = gstudy("p x (i:h)", frame.assign(i=labels))
        assert "components of h hold those of h:i as well" in str(found[0].message)
        assert res.formula == "score ~ (1|p) + (1|h)"


def test_deep_designs_lose_a_facet_in_the_middle():
    frame = data_of("d:h", n=3, replicates=2).assign(i=1)
    with pytest.warns(vcomp.VcompWarning, match="i has one level in each level of h"):
        res = gstudy("d:i:h", frame)
    assert res.formula == "score ~ (1|h) + (1|h:d)"
    assert res.design.notation == "d:h"


def test_facets_that_go_together_one_to_one():
    frame = data_of("p x i", n=4)
    frame["judge"] = frame["i"].map(lambda k: f"judge {k}")
    with pytest.warns(vcomp.VcompWarning, match="Levels of i and judge correspond one to one"):
        res = gstudy("p x i x judge", frame)
    assert res.formula == "score ~ (1|p) + (1|i)"
    deeper = data_of("p x (d:i)", n=3).assign(judge=lambda d: d["i"] + 10)
    with pytest.warns(vcomp.VcompWarning, match="Levels of i and judge correspond"):
        res = gstudy("p x i x (d:judge)", deeper)
    assert res.formula == design_formula("p x (d:i)")
    assert res.design.nested_in["d"] == {"i"}


def test_a_latin_square():
    frame = pd.DataFrame(
        [(p, i, (p + i) % 5) for p in range(5) for i in range(5)], columns=[*"pio"]
    )
    frame["score"] = np.random.default_rng(1).normal(size=25)
    with pytest.warns(
        vcomp.VcompWarning, match="Residual holds p:i, p:o and i:o as well"
    ) as found:
        res = gstudy("p x i x o", frame)
    assert "each combination of p and i occurs with one level of o only" in str(found[0].message)
    assert "The formula is 'score ~ (1|p) + (1|i) + (1|o)'" in str(found[0].message)
    assert list(res.vcomp.index) == ["p", "i", "o", "Residual"]


def test_an_interaction_of_which_nothing_is_crossed_further():
    """Every person meets an item on one occasion only, where two judges score."""
    rows = [(p, i, (p + i) % 3, j) for p in range(6) for i in range(6) for j in range(2)]
    frame = pd.DataFrame(rows, columns=[*"pioj"])
    frame["score"] = np.random.default_rng(2).normal(size=len(frame))
    with pytest.warns(vcomp.VcompWarning) as found:
        res = gstudy("p x i x o x j", frame)
    words = str(found[0].message)
    assert (
        "p:i holds p:i:o as well: each combination of p and i occurs with one level of o" in words
    )
    assert "Residual holds p:i:j as well" in words
    assert list(res.vcomp.index) == [
        "p", "i", "o", "j", "p:i", "p:o", "p:j", "i:o", "i:j", "o:j", "p:o:j", "i:o:j", "Residual",
    ]  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(small_designs(most=3), st.data())
@pytest.mark.filterwarnings("ignore::vcomp.VcompWarning")
def test_terms_that_are_kept_group_the_rows_differently(design, data):
    """Of any rows: every effect groups the rows as a kept term does, or by rows, or not at all."""
    n = data.draw(st.integers(10, 24))
    columns = {
        f: data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)) for f in design.facets
    }
    frame = pd.DataFrame({**columns, "score": np.random.default_rng(0).normal(size=n)})

    def grouping(facets):
        return tuple(frame.groupby(sorted(facets)).ngroup())

    try:
        res = gstudy(str(design), frame)
    except (vcomp.DesignError, vcomp.DataError) as error:
        refused = str(error)
    else:
        refused = None
    if refused is not None:
        allowed = (
            "is nested in|one level only|can be distinguished from error|"
            "cannot distinguish|too few"
        )
        assert re.search(allowed, refused)
        return
    kept = [grouping(term.split(":")) for term in res.vcomp.index[:-1]]
    assert len(set(kept)) == len(kept)
    known = {*kept, tuple(range(n)), (0,) * n}
    partitions = {tuple(pd.factorize(np.array(g))[0]) for g in known}
    for effect in design_effects(design):
        assert tuple(pd.factorize(np.array(grouping(effect.facets)))[0]) in partitions


# Designs that the data contradict ---------------------------------------------------------------


def test_crossed_by_the_design_and_nested_by_the_labels():
    frame = data_of("p x (i:h)", n=3, unique=["i"])
    with pytest.raises(vcomp.DesignError) as error:
        gstudy("p x i x h", frame)
    message = str(error.value)
    assert (
        "says that i and h are crossed, but each level of i occurs with one level of h" in message
    )
    assert "Write 'p x (i:h)'" in message
    assert gstudy("p x (i:h)", frame).converged


def test_crossed_by_the_design_and_nested_in_two():
    frame = data_of("r:(p x t)", n=3, unique=["r"])
    with pytest.raises(vcomp.DesignError, match=r"Write 'r:\(p x t\)'"):
        gstudy("r x p x t", frame.assign(score=frame["score"]).sample(frac=1.0, random_state=1))


@pytest.mark.parametrize("n", [2, 3])
def test_nested_the_other_way_round(n):
    frame = data_of("p x (i:h)", n=n, unique=["i"])
    with pytest.raises(vcomp.DesignError, match=r"fewer levels: i is nested in h; write i:h"):
        gstudy("p x (h:i)", frame)


@pytest.mark.parametrize(
    ("design", "message"),
    [
        ("p", "one score for each level of p"),
        ("q", "every facet of 'q' has one level only"),
        ("i:q", "one score for each level of i"),
    ],
)
@pytest.mark.filterwarnings("ignore::vcomp.VcompWarning")
def test_nothing_to_estimate(design, message):
    frame = pd.DataFrame({"p": range(6), "q": 1, "i": range(6), "score": np.arange(6.0) ** 2})
    with pytest.raises(vcomp.DesignError, match=message):
        gstudy(design, frame)


# Bad input --------------------------------------------------------------------------------------

CROSSED = data_of("p x i", n=3).rename(columns={"p": "person", "i": "item"})


@pytest.mark.parametrize(
    ("design", "options", "error", "message"),
    [
        ("persn x item", {}, vcomp.DataError, "no column 'persn'.*did you mean 'person'"),
        ("p x item", {}, vcomp.DataError, r"column of a facet by facets=\{'p': 'person'\}$"),
        ("z x item", {}, vcomp.DataError, r"facets=\{'z': '…'\}"),
        ("p x item", {"facets": {"p": "persn"}}, vcomp.DataError, "did you mean 'person'"),
        ("p x i", {"facets": {"q": "person"}}, vcomp.PlanError,
         "'q' is not a facet of the design"),
        ("p x i", {"facets": "person"}, vcomp.PlanError,
         "facets must be a mapping from the names"),
        ("p x i", {"facets": ["p"]}, vcomp.PlanError, "facets must be a mapping from the names"),
        ("p x i", {"facets": {"person": "p"}}, vcomp.PlanError, r"\{'p': 'person'\}"),
        ("p x i", {"facets": {"p": 3}}, vcomp.PlanError, "the column of facet 'p' must be a name"),
        ("p x item", {"facets": {"p": "item"}}, vcomp.PlanError, "are both column 'item'"),
        ("person x", {}, vcomp.PlanError, "expected a facet"),
        ("person x replicate", {}, vcomp.PlanError, "the design of a G-study does not name"),
        ("person x score", {}, vcomp.FormulaError, "right of ~ as well"),
    ],
)  # fmt: skip
def test_designs_and_facets_that_do_not_fit(design, options, error, message):
    with pytest.raises(error, match=message):
        vcomp.gstudy(design, CROSSED, "score", **options)


@pytest.mark.parametrize(
    ("response", "error", "message"),
    [
        ("scor", vcomp.DataError, "no column 'scor'.*did you mean 'score'"),
        ("person_name", vcomp.DataError, "no column 'person_name'"),
        ("text", vcomp.DataError, "not numeric"),
        (3, vcomp.FormulaError, "response must be the name of the column"),
        ("", vcomp.FormulaError, "response must be the name of the column"),
        (None, vcomp.FormulaError, "response must be the name of the column"),
        ("score +", vcomp.FormulaError, "on the left of ~"),
    ],
)
def test_responses_that_cannot_be(response, error, message):
    frame = CROSSED.assign(text=list("abcdefghijkl"))
    with pytest.raises(error, match=message):
        vcomp.gstudy("person x item", frame, response)


def test_arguments_in_another_order():
    with pytest.raises(vcomp.PlanError, match=r"a design must be text such as .*, not DataFrame"):
        vcomp.gstudy(CROSSED, "p x i", "score")


@pytest.mark.parametrize("data", [CROSSED.iloc[:0], CROSSED.assign(score=np.nan), 7, [1, 2]])
def test_data_without_scores(data):
    with pytest.raises(vcomp.DataError):
        vcomp.gstudy("person x item", data, "score")


def test_a_constant_score_has_no_variance():
    res = vcomp.gstudy("person x item", CROSSED.assign(score=2.0), "score", method="anova")
    assert (res.vcomp == 0.0).all()


def test_logical_and_whole_scores_are_numbers():
    right = CROSSED["score"] > 0
    by_bool = vcomp.gstudy("person x item", CROSSED.assign(score=right), "score", method="anova")
    whole = right.astype("int8")
    by_int = vcomp.gstudy("person x item", CROSSED.assign(score=whole), "score", method="anova")
    np.testing.assert_array_equal(by_bool.vcomp, by_int.vcomp)

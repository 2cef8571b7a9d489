"""The printed summary of a fit beside its tables, cell by cell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import vcomp
from tests.helpers.printed_tables import fixed_column, printed_columns, printed_words


def scores(seed=3, n=(8, 6)):
    rng = np.random.default_rng(seed)
    a, b = np.indices(n).reshape(2, -1)
    x = rng.normal(size=a.size)
    y = 5 + 0.7 * x + rng.normal(size=n[0])[a] + 0.5 * rng.normal(size=n[1])[b]
    return {"a": a, "b": b, "x": x, "y": y + 0.4 * rng.normal(size=a.size)}


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_components(alpha):
    res = vcomp.fit("y ~ x + (1|a) + (1|b)", scores())
    printed = printed_columns(res.summary(alpha=alpha), 1)
    table = res.gstudy(alpha=alpha)
    assert printed["estimate"] == fixed_column(table["estimate"], 4)
    assert printed["std. dev."] == fixed_column(np.sqrt(table["estimate"]), 4)
    assert printed["std. err."] == fixed_column(table["se"], 3)
    assert printed["share"] == [f"{p:.1f} %" for p in table["percent"]]
    # The last column has no header: bars of 18 blocks for 100 %.
    bars = list(printed.values())[-1]
    for bar, share in zip(bars, table["percent"], strict=True):
        assert len(bar) == pytest.approx(18 * share / 100, abs=1.0)
    lines = [line for line in str(res.summary(alpha=alpha)).splitlines() if "█" in line]
    assert len({line.index("█") for line in lines}) == 1  # they start in one column
    assert len({line.index(" %") for line in lines}) == 1  # and shares end in one
    (interval,) = (name for name in printed if "interval" in name)
    assert interval == f"{100 * (1 - alpha):g} % interval"
    for cell, low, high in zip(printed[interval], table["low"], table["high"], strict=True):
        shown = [float(part.strip("[] ")) for part in cell.split(",")]
        assert shown == pytest.approx([low, high], rel=6e-3)


def test_fixed_effects():
    res = vcomp.fit("y ~ x + (1|a) + (1|b)", scores())
    printed, table = printed_columns(res.summary(), 2), res.fixed_effects()
    assert printed["coef"] == fixed_column(table["coef"], 4)
    assert printed["std. err."] == fixed_column(table["std_error"], 3)
    assert printed["df"] == fixed_column(table["df"], decimals=1)
    assert printed["t"] == fixed_column(table["t"], decimals=2)
    # Both are below 0.001, which 0.000 would hide.
    assert printed["P>|t|"] == ["< 0.001" if p < 0.001 else f"{p:.3f}" for p in table["p_value"]]
    words = printed_words(res.summary())
    assert "t with Satterthwaite's degrees of freedom." in words
    assert "confounded" not in words
    assert "average information" not in words
    assert "Converged." not in words  # the head says so
    assert "Residual holds a:b and error." in words


def test_the_head():
    data = scores()
    names = {
        "reml": "REML", "ml": "ML", "anova": "ANOVA", "type1": "ANOVA (Type I)",
        "minque": "MINQUE", "henderson3": "Henderson's Method III",
    }  # fmt: skip
    for method, name in names.items():
        words = "converged" if method in ("reml", "ml") else "closed form"
        res = vcomp.fit("y ~ (1|a) + (1|b)", data, method=method)
        text = printed_words(res.summary())
        assert f"Variance components by {name}" in text
        assert "48 scores" in text
        assert words in text
        assert ("log-likelihood" in text) == (method in ("reml", "ml"))
        if method in ("reml", "ml"):
            assert f"log-likelihood {res.llf:.8g}" in text


@pytest.mark.parametrize(
    ("response", "unit"),
    [("log(y)", "log(y)"), ("I(`y`^2)", "I(y**2)"), ("y", None), ("`a y`", None)],
)
def test_the_units_of_a_transformed_response_are_named(response, unit):
    y = np.array([1.2, 2.1, 3.3, 2.4, 4.1, 6.2, 2.3, 1.1])
    data = {"y": y, "a y": y, "g": [1, 1, 2, 2, 3, 3, 4, 4]}
    printed = str(vcomp.fit(f"{response} ~ (1|g)", data).summary())
    if unit is None:
        assert "Units" not in printed
    else:
        assert f"Units are those of {unit}, squared for components." in printed


def test_notes_on_bounds_and_held_components():
    data = scores(5)
    noise = np.random.default_rng(1).normal(size=48)
    data["y"] = noise - noise.reshape(8, 6).mean(axis=1)[data["a"]]
    bound = vcomp.fit("y ~ x + (1|a) + (1|b)", data)
    assert bound.vcomp["a"] == 0.0
    printed = printed_columns(bound.summary(), 1)
    assert float(printed["std. dev."][0]) == 0.0
    text = printed_words(bound.summary())
    assert bound.status in text
    assert "A component at its bound 0 has no standard error." in text
    assert "which take a component at its bound 0 as known." in text
    assert "A negative estimate" not in text
    below = vcomp.fit("y ~ (1|a) + (1|b)", data, method="anova")
    assert below.vcomp["a"] < 0.0
    printed = printed_columns(below.summary(), 1)
    place = printed[""].index("a") if "" in printed else 0
    assert printed["std. dev."][place] == "–"
    assert printed["share"][place] == "0.0 %"
    assert "A negative estimate has no share of the variance." in printed_words(below.summary())
    held = vcomp.fit("y ~ x + (1|a) + (1|b)", scores(), hold={"a": 0.0})
    printed = printed_columns(held.summary(), 1)
    assert printed["std. err."].count("held") == 1
    text = printed_words(held.summary())
    assert "at its bound 0" not in text
    known = vcomp.fit("y ~ x + (1|a)", scores(), hold={"a": 1.0, "Residual": 0.5})
    text = printed_words(known.summary())
    assert "Fixed effects: normal distribution, as no component is estimated." in text
    assert "P>|z|" in printed_columns(known.summary(), 2)
    assert "df" not in printed_columns(known.summary(), 2)


def test_the_residual_of_repeated_scores_holds_nothing_else():
    data = {name: np.concatenate([x, x]) for name, x in scores().items()}
    data["y"] = data["y"] + np.random.default_rng(2).normal(size=96)
    words = printed_words(vcomp.fit("y ~ (1|a) + (1|b) + (1|a:b)", data).summary())
    assert "Residual holds" not in words


def test_monte_carlo_errors_stand_beside_standard_errors():
    res = vcomp.fit("y ~ (1|a) + (1|b)", scores())
    errors = {"a": 0.01, "b": 0.0, "Residual": 0.002}
    record = replace(res._record, estimate=replace(res._record.estimate, monte_carlo=errors))
    printed = printed_columns(type(res)(record, res._row_access).summary(), 1)
    assert list(printed)[1:5] == ["estimate", "std. dev.", "std. err.", "Monte Carlo"]
    assert printed["Monte Carlo"] == ["0.0100", "–", "0.0020"]
    assert "Monte Carlo" not in printed_columns(res.summary(), 1)


def test_the_term_whose_effects_are_drawn():
    both = vcomp.fit("y ~ (1|a) + (1|b)", scores())
    one = vcomp.fit("y ~ (1|a)", scores())
    assert one.plot(kind="effects").get_xlabel().startswith("predicted effect of a,")
    label = both.plot(kind="effects", term="b").get_xlabel()
    assert label.startswith("predicted effect of b,")
    with pytest.raises(vcomp.DataError, match=r"needs a term; .*one of \['a', 'b'\]"):
        both.plot(kind="effects")
    for res in (one, both):
        with pytest.raises(vcomp.DataError, match="'c' has no predicted effects") as caught:
            res.plot(kind="effects", term="c")
        assert caught.value.term == "c"


def test_a_design_in_parts_is_named():
    data = scores()
    kept = (data["a"] < 4) == (data["b"] < 3)
    apart = {name: values[kept] for name, values in data.items()}
    res = vcomp.fit("y ~ (1|a) + (1|b)", apart)
    assert "falls into 2 parts that share no level" in printed_words(res.summary())
    assert "parts that share" not in printed_words(vcomp.fit("y ~ (1|a)", data).summary())


def test_what_is_printed_of_a_fit_that_did_not_converge_has_a_sentence_on_its_errors():
    data = scores()
    with pytest.warns(vcomp.VcompWarning, match="the limit of 1 step"):
        ended = vcomp.fit("y ~ x + (1|a) + (1|b)", data, max_iter=1, start={"a": 9.0})
    sentence = "the fit did not converge, and standard errors, intervals and p-values are those"
    for res, count in ((ended, 1), (vcomp.fit("y ~ x + (1|a) + (1|b)", data), 0)):
        printed = [res.summary(), res.dstudy("a x b"), res.get_prediction()]
        printed += [ended.get_prediction()._repr_html_()] * count
        for text in printed:
            words = " ".join(str(text).split()).replace("The fit did", "the fit did")
            assert words.count(sentence) == count

"""Gauge studies against exact fractions, published output and the mechanism they read from."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import vcomp
from tests.helpers.examples import examples
from tests.helpers.printed_tables import fixed_column, printed_columns
from vcomp.exceptions import EstimationError, PlanError
from vcomp.inference.intervals import FromComponents
from vcomp.model import record_of
from vcomp.studies.component_sums import SummedComponents
from vcomp.studies.gauge import _GRADES, _categories, _grade, _pooling

CROSSED = "y ~ (1|part) + (1|operator) + (1|part:operator)"
POOLED = "y ~ (1|part) + (1|operator)"

AIAG = """
0.29 -0.56 1.34 0.47 -0.80 0.02 0.59 -0.31 2.26 -1.36
0.41 -0.68 1.17 0.50 -0.92 -0.11 0.75 -0.20 1.99 -1.25
0.64 -0.58 1.27 0.64 -0.84 -0.21 0.66 -0.17 2.01 -1.31
0.08 -0.47 1.19 0.01 -0.56 -0.20 0.47 -0.63 1.80 -1.68
0.25 -1.22 0.94 1.03 -1.20 0.22 0.55 0.08 2.12 -1.62
0.07 -0.68 1.34 0.20 -1.28 0.06 0.83 -0.34 2.19 -1.50
0.04 -1.38 0.88 0.14 -1.46 -0.29 0.02 -0.46 1.77 -1.49
-0.11 -1.13 1.09 0.20 -1.07 -0.67 0.01 -0.56 1.45 -1.77
-0.15 -0.96 0.67 0.11 -1.45 -0.49 0.21 -0.49 1.87 -2.16
"""
"""AIAG, Measurement Systems Analysis, chap. III: a line for each of three trials of operators A, B
and C, a column a part. The published sums of squares below check every digit."""


def aiag():
    """Return the rows with exact scores in hundredths."""
    rows = []
    for line, text in enumerate(AIAG.split("\n")[1:-1]):
        for part, score in enumerate(text.split()):
            rows.append({"operator": "ABC"[line // 3], "part": part, "exact": Fraction(score)})
    return pd.DataFrame(rows).assign(y=lambda d: d["exact"].astype(float))


def exact_mean_squares(data):
    """Return the mean squares of part, operator, interaction and repetition as fractions."""

    def squares(*facets):
        """Return Σ (group sum)²/(group size)."""
        groups = data.groupby(list(facets))["exact"] if facets else [((), data["exact"])]
        return sum(sum(g, Fraction(0)) ** 2 / len(g) for _, g in groups)

    n_p, n_o = data["part"].nunique(), data["operator"].nunique()
    n_r = len(data) // (n_p * n_o)
    mean, p, o = squares(), squares("part"), squares("operator")
    cells, scores = squares("part", "operator"), sum(x**2 for x in data["exact"])
    sums = {
        "part": p - mean, "operator": o - mean, "part:operator": cells - p - o + mean,
        "Residual": scores - cells,
    }  # fmt: skip
    df = {
        "part": n_p - 1, "operator": n_o - 1, "part:operator": (n_p - 1) * (n_o - 1),
        "Residual": n_p * n_o * (n_r - 1),
    }  # fmt: skip
    return sums, df, (n_p, n_o, n_r)


def fitted(formula=CROSSED, data=None, method="anova", **options):
    return vcomp.fit(formula, aiag().drop(columns="exact") if data is None else data,
                     method=method, **options)  # fmt: skip


def test_variances_are_those_of_the_exact_mean_squares():
    sums, df, (n_p, n_o, n_r) = exact_mean_squares(aiag())
    assert [round(float(x), 4) for x in sums.values()] == [88.3619, 3.1673, 0.3590, 2.7589]
    M = {name: sums[name] / df[name] for name in sums}
    operator = (M["operator"] - M["part:operator"]) / (n_p * n_r)
    part = (M["part"] - M["part:operator"]) / (n_o * n_r)
    interaction = (M["part:operator"] - M["Residual"]) / n_r
    assert interaction < 0  # and taken as zero, or kept
    expected = {
        "total gauge R&R": operator + M["Residual"], "repeatability": M["Residual"],
        "reproducibility": operator, "operator": operator, "part:operator": 0,
        "part-to-part": part, "total variation": operator + part + M["Residual"],
    }  # fmt: skip
    table = vcomp.presets.gauge_rr(fitted(), "part", "operator").table
    assert list(table.index) == list(expected)
    np.testing.assert_allclose(
        table["variance"], [float(x) for x in expected.values()], rtol=1e-12
    )
    kept = vcomp.presets.gauge_rr(fitted(), "part", "operator", negative="keep").table["variance"]
    assert kept["part:operator"] == pytest.approx(float(interaction), rel=1e-11)
    assert kept["reproducibility"] == pytest.approx(float(operator + interaction), rel=1e-11)
    total = expected["total variation"] + interaction
    assert kept["total variation"] == pytest.approx(float(total), rel=1e-12)


def test_published_output_without_the_interaction():
    """The analysis that Minitab prints of these data, with a tolerance of 8."""
    study = vcomp.presets.gauge_rr(fitted(POOLED), "part", "operator", tolerance=8)
    rows = ["total gauge R&R", "repeatability", "reproducibility", "part-to-part"]
    printed = {
        "variance": [0.09143, 0.03997, 0.05146, 1.08645, 1.17788],
        "percent_contribution": [7.76, 3.39, 4.37, 92.24, 100.00],
        "sd": [0.30237, 0.19993, 0.22684, 1.04233, 1.08530],
        "study_variation": [1.81423, 1.19960, 1.36103, 6.25396, 6.51180],
        "percent_study_variation": [27.86, 18.42, 20.90, 96.04, 100.00],
        "percent_tolerance": [22.68, 14.99, 17.01, 78.17, 81.40],
    }
    for column, values in printed.items():
        decimals = 2 if column.startswith("percent") else 5
        # one unit of the last printed digit
        np.testing.assert_allclose(
            study.table.loc[[*rows, "total variation"], column], values, atol=10.0**-decimals
        )
    assert study.categories == 4
    assert study.precision_to_tolerance == pytest.approx(0.2268, abs=5e-5)


def test_numbers_are_those_of_the_one_mechanism():
    res = fitted(POOLED, method="reml")
    study = vcomp.presets.gauge_rr(
        res, "part", "operator", tolerance=8.0, process_sd=1.2, multiplier=5.15
    )
    table = study.table
    for row, text in {
        "total gauge R&R": "operator + Residual", "repeatability": "Residual",
        "part-to-part": "part", "total variation": "total",
    }.items():  # fmt: skip
        one = res.quantity(text)
        np.testing.assert_allclose(
            table.loc[row, ["variance", "se", "low", "high"]].astype(float),
            [one.estimate, one.se, one.low, one.high], rtol=1e-12,
        )  # fmt: skip
        share = res.quantity(f"({text}) / total")
        assert table.loc[row, "percent_contribution"] == pytest.approx(100 * share.estimate)
        ends = table.loc[row, ["percent_study_low", "percent_study_high"]].astype(float)
        np.testing.assert_allclose((ends / 100) ** 2, [share.low, share.high], rtol=1e-9)
        low = np.sqrt(one.low)
        assert table.loc[row, "percent_tolerance_low"] == pytest.approx(100 * 5.15 * low / 8)
        assert table.loc[row, "percent_process_low"] == pytest.approx(100 * low / 1.2)
    ratio = res.quantity("part / (operator + Residual)")
    found = [study.categories, study.categories_low, study.categories_high]
    expected = [ratio.estimate, ratio.low, ratio.high]
    assert found == [max(1, int(1.41 * x**0.5)) for x in expected]


def test_repeatability_has_its_exact_interval():
    sums, df, _ = exact_mean_squares(aiag())
    table = vcomp.presets.gauge_rr(fitted(), "part", "operator", alpha=0.1, interval="mls").table
    expected = float(sums["Residual"]) / stats.chi2.isf([0.05, 0.95], df["Residual"])
    found = table.loc["repeatability", ["low", "high"]].astype(float)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@settings(max_examples=examples(20), deadline=None)
@given(
    st.integers(2, 6), st.integers(2, 4), st.integers(2, 3), st.integers(0, 10**6),
    st.sampled_from([1e-3, 1.0, 250.0]),
)  # fmt: skip
def test_shares_add_up_in_any_units(n_p, n_o, n_r, seed, unit):
    rng = np.random.default_rng(seed)
    rows = np.array(list(product(range(n_p), range(n_o), range(n_r))))
    effects = rng.normal(size=n_p)[rows[:, 0]] + 0.5 * rng.normal(size=n_o)[rows[:, 1]]
    y = effects + 0.3 * rng.normal(size=len(rows))
    data = {"part": rows[:, 0], "operator": rows[:, 1], "y": y}
    table = vcomp.presets.gauge_rr(fitted(data=data), "part", "operator").table
    contribution = table["percent_contribution"]
    assert contribution["total variation"] == pytest.approx(100.0, rel=1e-12)
    parts = contribution["total gauge R&R"] + contribution["part-to-part"]
    assert parts == pytest.approx(100.0, rel=1e-12)
    assert (table["percent_study_variation"] ** 2 / 100).to_numpy() == pytest.approx(contribution)
    other = vcomp.presets.gauge_rr(fitted(data={**data, "y": unit * y}), "part", "operator").table
    pd.testing.assert_series_equal(
        other["percent_study_variation"], table["percent_study_variation"], rtol=1e-9, atol=1e-9
    )
    pd.testing.assert_series_equal(other["sd"], unit * table["sd"], rtol=1e-9, atol=1e-9 * unit)


# Which component belongs where ------------------------------------------------------------------


def grid(**levels):
    """Return all combinations of levels with scores that vary with everything."""
    rows = pd.DataFrame(product(*(range(n) for n in levels.values())), columns=list(levels))
    rng = np.random.default_rng(1)
    y = rng.normal(size=len(rows))
    for depth in range(1, len(levels)):
        codes = rows.groupby(list(levels)[:depth]).ngroup()
        y += 2.0 * rng.normal(size=codes.max() + 1)[codes]
    return rows.assign(y=y)


def test_parts_that_measuring_destroys_are_nested_in_operators():
    data = grid(operator=4, part=5, piece=2)
    res = fitted("y ~ (1|operator/part)", data)
    study = vcomp.presets.gauge_rr(res, "part", "operator")
    assert study.sources["part-to-part"] == ("operator:part",)
    assert study.sources["reproducibility"] == ("operator",)
    assert study.sources["total gauge R&R"] == ("operator", "Residual")
    assert "AIAG pools" not in str(study)


def test_what_parts_are_nested_in_is_part_variation_and_what_else_there_is_reproducibility():
    data = grid(batch=3, part=4, lab=3, operator=2, trial=2)
    formula = "y ~ (1|batch/part) + (1|lab/operator) + (1|batch:lab) + (1|batch:part:lab:operator)"
    study = vcomp.presets.gauge_rr(fitted(formula, data, method="reml"), "part", "operator")
    assert study.sources["part-to-part"] == ("batch", "batch:part")
    assert study.sources["reproducibility"] == (
        "lab", "lab:operator", "batch:lab", "batch:part:lab:operator",
    )  # fmt: skip
    assert list(study.table.index[-4:]) == [
        "part-to-part", "batch", "batch:part", "total variation",
    ]  # fmt: skip
    variance = study.table["variance"]
    assert variance["part-to-part"] == pytest.approx(variance["batch"] + variance["batch:part"])
    indents: dict[str, set[int]] = {}
    # Parts of a sum are printed below it, each level two places further to the right.
    for line in str(study).splitlines():
        name = next((n for n in study.table.index if line.strip().startswith(f"{n}  ")), None)
        if name is not None:
            indents.setdefault(name, set()).add(len(line) - len(line.lstrip()))
    assert indents == {
        "total gauge R&R": {0}, "repeatability": {2}, "reproducibility": {2}, "lab": {4},
        "lab:operator": {4}, "batch:lab": {4}, "batch:part:lab:operator": {4},
        "part-to-part": {0}, "batch": {2}, "batch:part": {2}, "total variation": {0},
    }  # fmt: skip


def test_operators_of_their_own_parts_are_reproducibility():
    study = vcomp.presets.gauge_rr(
        fitted("y ~ (1|part/operator)", grid(part=5, operator=3, trial=2)), "part", "operator"
    )
    assert study.sources["part-to-part"] == ("part",)
    assert study.sources["reproducibility"] == ("part:operator",)


# What it says -----------------------------------------------------------------------------------


def test_what_is_confounded_is_said():
    once = grid(part=6, operator=3)
    text = " ".join(str(vcomp.presets.gauge_rr(fitted(POOLED, once), "part", "operator")).split())
    assert "Repeatability holds part:operator, as every cell has a single score" in text
    assert "measure more than once" in text
    text = " ".join(str(vcomp.presets.gauge_rr(fitted(POOLED), "part", "operator")).split())
    assert "holds part:operator, as the formula has no term (1|part:operator)" in text
    assert "holds" not in str(vcomp.presets.gauge_rr(fitted(), "part", "operator"))
    small = aiag().drop(columns="exact").assign(y=lambda d: d["y"] / 1e3)
    notes = vcomp.presets.gauge_rr(fitted(POOLED, small), "part", "operator").notes
    assert [note.split(":")[0] for note in notes] == ["Intervals", "Repeatability holds part"]


def test_pooling_is_told_and_not_done():
    sums, df, _ = exact_mean_squares(aiag())
    F = float(sums["part:operator"] / df["part:operator"] / (sums["Residual"] / df["Residual"]))
    p = stats.f.sf(F, df["part:operator"], df["Residual"])
    assert p > 0.25
    text = " ".join(str(vcomp.presets.gauge_rr(fitted(), "part", "operator")).split())
    assert f"part:operator: F = {F:.3g}, p = {p:.3g}" in text
    assert "fit without (1|part:operator)" in text
    strong = grid(part=6, operator=3, trial=2)
    strong["y"] += 9.0 * np.random.default_rng(2).normal(size=18).repeat(2)
    assert "AIAG pools" not in str(vcomp.presets.gauge_rr(fitted(data=strong), "part", "operator"))


def test_the_verdict_follows_the_criteria_and_its_interval():
    study = vcomp.presets.gauge_rr(fitted(POOLED), "part", "operator", tolerance=8, interval="mls")
    text = " ".join(str(study).split())
    assert "Total gauge R&R is 27.9 % of study variation" in text
    allowed = "the interval also allows: not acceptable (above 30 %)"
    assert f"may be acceptable (10–30 %); {allowed}" in text
    assert "Total gauge R&R is 22.7 % of the tolerance" in text
    assert "Distinct categories of part: 4 (95 % interval 1 to 9)" in text
    good = aiag().drop(columns="exact").assign(y=lambda d: 100.0 * d["part"] + d["y"])
    text = " ".join(str(vcomp.presets.gauge_rr(fitted(POOLED, good), "part", "operator")).split())
    assert ": acceptable" in text
    assert "may be" not in text.split("AIAG:")[0]
    bad = aiag().assign(y=np.random.default_rng(3).normal(size=90)).drop(columns="exact")
    assert "not acceptable" in str(vcomp.presets.gauge_rr(fitted(POOLED, bad), "part", "operator"))


def test_a_gauge_with_next_to_no_variance_tells_any_number_of_categories_apart():
    data = grid(part=5, operator=2, trial=2)
    noise = np.random.default_rng(4).normal(size=len(data))
    study = vcomp.presets.gauge_rr(
        fitted(POOLED, data.assign(y=data["part"] + 1e-7 * noise)), "part", "operator"
    )
    assert study.table.loc["total gauge R&R", "percent_study_variation"] < 1e-3
    assert study.categories > 1e6
    nothing = vcomp.presets.gauge_rr(
        fitted(POOLED, data.assign(y=1.0 * data["part"])), "part", "operator"
    )
    assert nothing.categories == np.inf
    assert "A source whose components have no standard error has no" in " ".join(
        str(nothing).split()
    )
    constant = vcomp.presets.gauge_rr(fitted(POOLED, data.assign(y=1.0)), "part", "operator")
    assert np.isnan(constant.categories)
    assert "All components are estimated at zero" in str(constant)


def test_it_travels_and_is_drawn():
    from matplotlib.figure import Figure

    res = fitted()
    study = vcomp.presets.gauge_rr(res, "part", "operator", tolerance=8)
    loaded = vcomp.presets.gauge_rr(
        type(res).from_json(res.to_json()), "part", "operator", tolerance=8
    )
    pd.testing.assert_frame_equal(loaded.table, study.table)
    assert "28.8" in repr(study)
    table, first, second = study.table, *(printed_columns(study.summary(), k) for k in (0, 1))
    for printed in (first, second):
        assert next(iter(printed.values())) == list(table.index)
    assert first["variance"] == fixed_column(table["variance"], 4)
    assert first["std. err."] == fixed_column(table["se"], 3)
    assert first["contribution"] == [f"{p:.1f} %" for p in table["percent_contribution"]]
    assert second["std. dev."] == fixed_column(table["sd"], 4)
    assert second["6 × s.d."] == fixed_column(table["study_variation"], 4)
    for name in ("study variation", "tolerance"):
        of_width = table[f"percent_{name.replace(' ', '_')}"]
        assert second[f"% {name}"] == fixed_column(of_width, decimals=1)
    rows = [str(row[0].data) for row in study.summary().tables[1]][1:]
    assert rows == [
        "total gauge R&R", "  repeatability", "  reproducibility", "    operator",
        "    part:operator", "part-to-part", "total variation",
    ]  # fmt: skip
    assert study._repr_html_().count("<table") == 2
    ax = study.plot(ax=Figure().subplots())
    assert ax.get_xlabel().startswith("variance σ², 95 %")
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert [label.lstrip() for label in labels] == list(study.table.index)
    indented = [[len(t) - len(t.lstrip()) for t in texts] for texts in (labels, rows)]
    np.testing.assert_array_equal(indented[0], 3 * np.array(indented[1]))
    assert {t.get_horizontalalignment() for t in ax.get_yticklabels()} == {"left"}


def test_other_intervals():
    res = fitted(POOLED, method="reml")
    replicates = res.bootstrap(200, rng=1)
    table = vcomp.presets.gauge_rr(res, "part", "operator", interval=replicates).table
    assert (table["low"] <= table["variance"]).all()
    assert (table["variance"] <= table["high"]).all()
    with pytest.raises(EstimationError, match="not for ratios"):
        vcomp.presets.gauge_rr(res, "part", "operator", interval="satterthwaite")


def test_held_components_have_no_error():
    study = vcomp.presets.gauge_rr(
        fitted(POOLED, method="reml", hold={"operator": 0.05}), "part", "operator"
    )
    row = study.table.loc["reproducibility"]
    assert row["variance"] == 0.05
    assert np.isnan([row["se"], row["low"], row["high"]]).all()
    assert "Sums of held components only have no standard error" in " ".join(str(study).split())


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (("prat", "operator"), {}, r"part='prat' is not a facet .*did you mean 'part'"),
        (("part", "day"), {}, r"operator='day' is not a facet .*facets are part, operator"),
        (("part", "part"), {}, "both 'part'; they must be different"),
        ((None, "operator"), {}, "part=None is not a facet"),
        ((["part"], "operator"), {}, r"part=\['part'\] is not a facet"),
        (
            ("part", "operator"),
            {"tolerance": 0},
            "tolerance, the upper minus the lower limit, must be",
        ),
        (("part", "operator"), {"tolerance": "8"}, "not '8'"),
        (("part", "operator"), {"tolerance": True}, "not True"),
        (
            ("part", "operator"),
            {"process_sd": np.nan},
            "process_sd, a standard deviation, must be",
        ),
        (("part", "operator"), {"multiplier": -6}, "6 or 5.15"),
        (("part", "operator"), {"multiplier": np.inf}, "above 0, not inf"),
        (("part", "operator"), {"alpha": 2}, "alpha must be between 0 and 1"),
        (("part", "operator"), {"negative": "drop"}, "negative must be 'zero' or 'keep'"),
    ],
)
def test_errors(arguments, options, said):
    with pytest.raises(PlanError, match=said):
        vcomp.presets.gauge_rr(fitted(), *arguments, **options)


def test_errors_of_formulas():
    data = grid(part=4, operator=3, day=2, trial=2)
    only_cells = fitted("y ~ (1|operator) + (1|day) + (1|part:operator) + (1|part:day)", data)
    with pytest.raises(PlanError, match=r"there is no component of 'part', so.*add \(1\|part\)"):
        vcomp.presets.gauge_rr(only_cells, "part", "operator")
    own_parts = aiag().drop(columns="exact")
    own_parts["part"] = own_parts["operator"] + own_parts["part"].astype(str)
    no_operator = fitted("y ~ (1|operator:part)", own_parts)
    with pytest.raises(
        PlanError, match=r"there is no component of 'operator', so.*add \(1\|operator\)"
    ):
        vcomp.presets.gauge_rr(no_operator, "part", "operator")
    with pytest.raises(EstimationError, match="is not known"):
        vcomp.presets.gauge_rr(fitted(), "part", "operator", interval="exact")


def test_categories_have_an_interval_where_ratios_reach_below_zero():
    data = pd.DataFrame(product(range(10), range(3), range(2)), columns=["part", "operator", "k"])
    draw = np.random.default_rng(2)
    data["y"] = draw.normal(size=10)[data["part"]] + 0.3 * draw.normal(size=3)[data["operator"]]
    data["y"] += 0.2 * draw.normal(size=60)
    study = vcomp.presets.gauge_rr(
        vcomp.fit(CROSSED, data, method="anova"), "part", "operator", interval="wald"
    )
    assert study.categories_low == 1.0
    assert study.categories_high > study.categories


def test_robust_intervals():
    res = fitted(method="reml")
    found = vcomp.presets.gauge_rr(res, "part", "operator", interval="robust")
    row = found.table.loc["repeatability"]
    wanted = res.quantity("Residual", interval="robust")
    np.testing.assert_allclose([row.low, row.high], [wanted.low, wanted.high], rtol=1e-12)
    source = FromComponents(record_of(res).robust_components(), "robust")
    spread = np.sqrt(np.diag(source.robust_covariance))
    assert row.se == pytest.approx(spread[-1], rel=1e-12)
    text = " ".join(str(found).split())
    assert "95 % intervals: robust modified large sample." in text
    assert "whose effects are treated as normal: operator (3)" in text


@pytest.mark.parametrize("of_parts", [0.005, 0.5, 50.0])
def test_a_gauge_without_variance_distinguishes_any_parts(of_parts):
    """However small the variance of the parts is: a unit says nothing of categories."""
    unknown = np.array([np.nan])
    ratio = SummedComponents(unknown, unknown, unknown, unknown, "", (), np.array([False]))
    assert _categories(ratio, of_parts)[0] == np.inf
    assert np.isnan(_categories(ratio, 0.0)).all()  # parts do not differ either


@pytest.mark.parametrize(
    ("percent", "words"),
    [
        (9.999, "acceptable (below"), (10.0, "may be acceptable"), (30.0, "may be acceptable"),
        (30.001, "not acceptable"),
    ],
)  # fmt: skip
def test_criteria_of_study_variation(percent, words):
    assert _GRADES[_grade(percent)].startswith(words)


@pytest.mark.parametrize(("F", "told"), [(1.0, True), (1.38, True), (1.42, False), (4.0, False)])
def test_pooling_is_told_above_a_p_value_of_a_quarter(F, told):
    """With 4 and 45 degrees of freedom p is a quarter at F = 1.40."""
    published = vcomp.from_mean_squares(
        {"part": 40.0, "operator": 9.0, "part:operator": 1.5 * F, "Residual": 1.5},
        sizes={"part": 3, "operator": 3, "replicate": 6},
    )
    p = stats.f.sf(F, 4, 45)
    assert (p > 0.25) == told
    notes = " ".join(_pooling(published, "part:operator"))
    assert ("AIAG pools an interaction" in notes) == told
    assert not told or f"F = {F:.3g}, p = {p:.3g}" in notes

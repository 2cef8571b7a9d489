"""Precision of a method: what varies under each condition, and how well that is known."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

import vcomp
from tests.helpers.examples import examples
from tests.helpers.printed_tables import fixed_column, printed_columns
from vcomp.exceptions import EstimationError, PlanError


def scores(seed=0, mean=50.0, **levels):
    """Return all combinations of levels, nested in the order given, with their scores."""
    rows = pd.DataFrame(product(*(range(n) for n in levels.values())), columns=list(levels))
    rng = np.random.default_rng(seed)
    y = mean + rng.normal(size=len(rows))
    for depth in range(1, len(levels)):
        codes = rows.groupby(list(levels)[:depth]).ngroup()
        y += 1.5 * rng.normal(size=codes.max() + 1)[codes]
    return rows.assign(y=y)


def mean_squares(data, *facets):
    """Return mean squares and degrees of freedom of nested facets, the residual last."""
    mean = np.full(len(data), data["y"].mean())
    found, groups = [], 1
    for depth in range(1, len(facets) + 1):
        finer = data.groupby(list(facets[:depth]))["y"].transform("mean").to_numpy()
        n = data.groupby(list(facets[:depth])).ngroups
        found.append((((finer - mean) ** 2).sum() / (n - groups), n - groups))
        mean, groups = finer, n
    rest = ((data["y"] - mean) ** 2).sum()
    found.append((rest / (len(data) - groups), len(data) - groups))
    return np.array([m for m, _ in found]), np.array([df for _, df in found])


def of_combination(c, S, df):
    """Return the variance c'S with Satterthwaite's degrees of freedom, from mean squares."""
    value = np.array(c) @ S
    return value, value**2 / ((np.array(c) * S) ** 2 / df).sum()


@settings(max_examples=examples(15), deadline=None)
@given(
    st.integers(3, 8), st.integers(2, 3), st.integers(2, 4), st.integers(0, 10**6),
    st.sampled_from(["anova", "reml"]), st.sampled_from([0.05, 0.2]),
)  # fmt: skip
def test_conditions_are_combinations_of_mean_squares(n_day, n_run, n_rep, seed, method, alpha):
    data = scores(seed, day=n_day, run=n_run, replicate_number=n_rep)
    res = vcomp.fit("y ~ (1|day/run)", data, method=method)
    S, df = mean_squares(data, "day", "run")
    assume(S[0] > 1.01 * S[1] and S[1] > 1.01 * S[2])  # else a component is at its bound
    found = vcomp.presets.precision(res, alpha=alpha)
    n, r = n_rep, n_run
    combinations = {
        "repeatability": [0, 0, 1],
        "within-day": [0, 1 / n, 1 - 1 / n],
        "within-laboratory": [1 / (r * n), (1 - 1 / r) / n, 1 - 1 / n],
    }
    assert list(found.table.index) == list(combinations)
    assert list(found.table) == [*found.sources, "limit"]
    for name, c in combinations.items():
        value, nu = of_combination(c, S, df)
        ends = nu * value / stats.chi2.isf([alpha / 2, 1 - alpha / 2], nu)
        row = found.table.loc[name]
        # REML stops where its certificate is below 1e-8 or so.
        near = {"rel": 1e-9 if method == "anova" else 1e-5}
        assert row["variance"] == pytest.approx(value, **near)
        assert row["df"] == pytest.approx(nu, **near)
        np.testing.assert_allclose(row[["sd_low", "sd_high"]].astype(float) ** 2, ends,
                                   rtol=near["rel"])  # fmt: skip
        assert row["sd"] == pytest.approx(value**0.5, **near)
        assert row["limit"] == pytest.approx(2.8 * value**0.5, **near)
        percent = 100 / data["y"].mean()
        cv = row[["cv", "cv_low", "cv_high"]].astype(float)
        sd = row[["sd", "sd_low", "sd_high"]].astype(float)
        np.testing.assert_allclose(cv, sd * percent, rtol=1e-9)
    sources = {
        "between day": [1 / (r * n), -1 / (r * n), 0],
        "between day:run": [0, 1 / n, -1 / n],
    }
    for name, c in sources.items():
        value, nu = of_combination(c, S, df)
        assert found.sources.loc[name, "variance"] == pytest.approx(value, **near)
        assert found.sources.loc[name, "df"] == pytest.approx(nu, **near)


# Conditions -------------------------------------------------------------------------------------


def test_a_site_is_a_laboratory():
    data = scores(site=3, day=4, run=2, trial=2)
    found = vcomp.presets.precision(vcomp.fit("y ~ (1|site/day/run)", data))
    assert found.laboratory == "site"
    assert found.conditions == {
        "repeatability": ("Residual",),
        "within-day": ("site:day:run", "Residual"),
        "within-laboratory": ("site:day", "site:day:run", "Residual"),
        "reproducibility": ("site", "site:day", "site:day:run", "Residual"),
    }
    other = vcomp.fit("y ~ (1|centre/day)", data.rename(columns={"site": "centre"}))
    assert list(vcomp.presets.precision(other).table.index) == [
        "repeatability", "within-centre", "within-laboratory",
    ]  # fmt: skip
    assert list(vcomp.presets.precision(other, laboratory="centre").table.index) == [
        "repeatability", "within-laboratory", "reproducibility",
    ]  # fmt: skip


def test_sites_alone_have_repeatability_and_reproducibility():
    data = scores(site=5, trial=3)
    found = vcomp.presets.precision(vcomp.fit("y ~ (1|site)", data))
    assert found.conditions == {
        "repeatability": ("Residual",), "reproducibility": ("site", "Residual"),
    }  # fmt: skip


def test_crossed_facets_have_a_condition_each():
    """With the lot held all varies but what the lot alone does; and with the day likewise."""
    data = scores(day=4, lot=3, trial=2)
    found = vcomp.presets.precision(vcomp.fit("y ~ (1|day) + (1|lot) + (1|day:lot)", data))
    assert found.conditions == {
        "repeatability": ("Residual",),
        "within-day": ("lot", "day:lot", "Residual"),
        "within-lot": ("day", "day:lot", "Residual"),
        "within-laboratory": ("day", "lot", "day:lot", "Residual"),
    }
    assert vcomp.presets.precision(vcomp.fit("y ~ (1|day) + (1|lot)", data)).conditions == {
        "repeatability": ("Residual",),
        "within-day": ("lot", "Residual"),
        "within-lot": ("day", "Residual"),
        "within-laboratory": ("day", "lot", "Residual"),
    }
    res = vcomp.fit("y ~ (1|day) + (1|lot) + (1|day:lot)", data)
    one = res.quantity("lot + day:lot + Residual", interval="satterthwaite")
    row = vcomp.presets.precision(res).table.loc["within-day"]
    found = row[["variance", "se"]].astype(float)
    np.testing.assert_allclose(found, [one.estimate, one.se], rtol=1e-12)
    ends = row[["sd_low", "sd_high"]].astype(float)
    np.testing.assert_allclose(ends**2, [one.low, one.high], rtol=1e-12)


def test_other_words():
    data = scores(day=5, run=2, trial=2)
    words = {"within-day": "intermediate precision", "repeatability": "within-run"}
    res = vcomp.fit("y ~ (1|day/run)", data)
    assert list(vcomp.presets.precision(res, labels=words).table.index) == [
        "within-run", "intermediate precision", "within-laboratory",
    ]  # fmt: skip
    with pytest.raises(
        PlanError, match=r"'within-dya'.*did you mean 'within-day'.*conditions are"
    ):
        vcomp.presets.precision(res, labels={"within-dya": "x"})
    with pytest.raises(PlanError, match="two conditions the same name"):
        vcomp.presets.precision(res, labels={"within-day": "repeatability"})
    with pytest.raises(PlanError, match="labels must be a mapping of conditions"):
        vcomp.presets.precision(res, labels=["a"])


# What it says -----------------------------------------------------------------------------------


def test_coefficients_of_variation_need_a_positive_mean():
    data = scores(day=5, run=2, trial=2).assign(x=lambda d: d["trial"] - 0.5)
    for formula, shift, why in (
        ("y ~ x + (1|day/run)", 0.0, "the mean depends on the fixed part"),
        ("y ~ (1|day/run)", -80.0, "is not above zero"),
    ):
        found = vcomp.presets.precision(vcomp.fit(formula, data.assign(y=data["y"] + shift)))
        assert "cv" not in found.table
        assert "cv" not in found.sources
        assert np.isnan(found.mean)
        text = " ".join(str(found).split())
        assert "No coefficients of variation" in text
        assert why in text


def test_without_degrees_of_freedom_there_is_another_interval_and_a_note():
    rng = np.random.default_rng(5)
    data = pd.DataFrame({"day": np.repeat(range(6), 4), "y": 9 + np.tile([-1.0, 1, 2, -2], 6)})
    data["y"] += 0.01 * rng.normal(size=24)
    res = vcomp.fit("y ~ (1|day)", data)
    assert res.vcomp["day"] == 0.0
    found = vcomp.presets.precision(res)
    row = found.sources.loc["between day"]
    wanted = res.quantity("day", interval="mls", negative="zero")
    assert (row.sd_low**2, row.sd_high**2) == pytest.approx((wanted.low, wanted.high), rel=1e-12)
    words = (
        "between day: interval by modified large sample, as Satterthwaite's has too few degrees"
    )
    assert words in " ".join(str(found).split())
    # Others keep Satterthwaite's.
    assert "repeatability: interval" not in str(found)
    assert np.isfinite(found.table["sd_high"]).all()
    other = vcomp.presets.precision(res, interval="mls")
    assert other.sources.loc["between day", "sd_low"] == 0.0 < other.sources["sd_high"].iloc[0]


def test_single_scores_do_not_tell_repeatability():
    data = scores(day=6, operator=3)
    found = vcomp.presets.precision(vcomp.fit("y ~ (1|day) + (1|operator)", data))
    text = " ".join(str(found).split())
    said = "Repeatability holds day:operator, as every cell has a single score"
    assert said in text


def test_it_prints_and_travels():
    data = scores(site=3, day=4, trial=2)
    res = vcomp.fit("y ~ (1|site/day)", data, method="anova")
    found = vcomp.presets.precision(res)
    loaded = vcomp.presets.precision(type(res).from_json(res.to_json()))
    pd.testing.assert_frame_equal(loaded.table, found.table)
    for place, frame in enumerate((found.table, found.sources)):
        printed = printed_columns(found.summary(), place)
        assert printed[""] == list(frame.index)
        assert printed["std. dev."] == fixed_column(frame["sd"], 4)
        assert printed["CV %"] == fixed_column(frame["cv"], decimals=2)
        assert printed["df"] == fixed_column(frame["df"], decimals=1)
        for name, ends in (("95 % interval", "sd"), ("95 % interval #2", "cv")):
            shown = [[float(x) for x in cell.strip("[]").split(",")] for cell in printed[name]]
            np.testing.assert_allclose(shown, frame[[f"{ends}_low", f"{ends}_high"]], rtol=6e-3)
        assert ("2.8 s.d." in printed) == (place == 0)
    assert printed_columns(found.summary())["2.8 s.d."] == fixed_column(found.table["limit"], 4)
    lines = str(found).splitlines()
    assert lines[0].startswith("Precision at mean ")
    assert any(line.startswith("reproducibility") for line in lines)
    assert "reproducibility: site + site:day + Residual." in lines
    assert found._repr_html_().count("<table") == 2
    assert "reproducibility" in repr(found)


def test_errors():
    res = vcomp.fit("y ~ (1|day/run)", scores(day=5, run=2, trial=2))
    with pytest.raises(PlanError, match=r"laboratory='dya' is not a facet.*did you mean 'day'"):
        vcomp.presets.precision(res, laboratory="dya")
    with pytest.raises(PlanError, match="alpha must be between"):
        vcomp.presets.precision(res, alpha=0)
    with pytest.raises(PlanError, match="negative must be"):
        vcomp.presets.precision(res, negative="drop")
    with pytest.raises(EstimationError, match="'exact' is not known"):
        vcomp.presets.precision(res, interval="exact")


def test_robust_intervals_are_those_of_the_components():
    rng = np.random.default_rng(5)
    data = pd.DataFrame({"day": np.repeat(range(12), 4)})
    data["y"] = 9.0 + rng.exponential(size=12)[data.day] + rng.exponential(size=48)
    res = vcomp.fit("y ~ (1|day)", data)
    found = vcomp.presets.precision(res, interval="robust")
    assert found.interval_method == "robust modified large sample"
    rows = {"repeatability": "Residual", "within-laboratory": "day + Residual"}
    for row, what in rows.items():
        wanted = res.quantity(what, interval="robust")
        ends = found.table.loc[row, ["sd_low", "sd_high"]].astype(float) ** 2
        np.testing.assert_allclose(ends, [wanted.low, wanted.high], rtol=1e-12)


def test_the_mean_is_that_of_the_scores():
    """VCA divides by the arithmetic mean; that of generalized least squares is another one."""
    rng = np.random.default_rng(5)
    day = np.repeat(range(5), [1, 8, 2, 6, 3])
    y = 20.0 + 3.0 * rng.normal(size=5)[day] + rng.normal(size=day.size)
    for method in ("reml", "anova"):
        res = vcomp.fit("y ~ (1|day)", {"day": day, "y": y}, method=method)
        found = vcomp.presets.precision(res)
        assert found.mean == pytest.approx(y.mean(), rel=1e-12)
        row = found.table.loc["repeatability"]
        assert row["cv"] == pytest.approx(100.0 * row["sd"] / y.mean(), rel=1e-12)
        # Results that were stored without it have the other one.
        older = type(res)(replace(res._record, response_sums=None), res._row_access)
        assert vcomp.presets.precision(older).mean == res.fe_params["Intercept"]
    assert vcomp.fit("y ~ (1|day)", {"day": day, "y": y}).fe_params.item() != pytest.approx(
        y.mean(), rel=1e-3
    )


def test_pooled_samples_are_noted_and_single_ones_are_not():
    """CLSI EP05: precision is of one sample; of three it would have a CV of 64 %."""
    data = vcomp.datasets.load("assay")
    fixed = vcomp.fit("result ~ sample + (1|sample:day) + (1|sample:day:run)", data)
    (advice,) = [n for n in vcomp.presets.precision(fixed).notes if "fit each value of" in n]
    assert advice.startswith("Standard deviations are means over all values of sample.")
    formula = vcomp.datasets.available().loc["assay", "formula"]
    pooled = vcomp.presets.precision(vcomp.fit(formula, data))
    assert pooled.table["cv"].min() > 60.0
    assert any("fall into groups: none is between 6.33 and 14.18" in n for n in pooled.notes)
    for _, rows in data.groupby("sample"):  # the advice, followed
        found = vcomp.presets.precision(vcomp.fit(formula, rows))
        assert found.table["cv"].max() < 5.0
        within = rows.groupby(["day", "run"])["result"].var(ddof=1).mean()
        assert found.table.loc["repeatability", "variance"] == pytest.approx(within, rel=1e-6)
        assert not [note for note in found.notes if "fit each" in note]


@pytest.mark.parametrize("samples", [[5.0], [5.0, 10.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
@pytest.mark.parametrize("between_days", [0.0, 1.0])
def test_days_that_differ_are_not_samples(samples, between_days):
    """Results of one sample have gaps between days; those of several have them within each run."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        sample, day, run, _ = np.indices((len(samples), 10, 2, 2)).reshape(4, -1)
        y = np.array(samples)[sample] + 0.02 * rng.normal(size=day.size)
        # Gaps between days exceed the standard deviation of repeatability.
        y += 0.05 * between_days * rng.uniform(-1, 1, size=10)[day]
        res = vcomp.fit("y ~ (1|day/run)", {"day": day, "run": run, "y": y})
        found = [n for n in vcomp.presets.precision(res).notes if "fall into groups" in n]
        assert len(found) == (len(samples) > 1)


def test_one_run_with_several_lots_is_not_within_run():
    """CLSI's within-run precision is repeatability; a lot that is crossed with runs varies."""
    data = scores(day=4, run=2, lot=3, trial=2)
    found = vcomp.presets.precision(vcomp.fit("y ~ (1|day/run) + (1|lot)", data))
    assert found.conditions["one-run"] == ("lot", "Residual")
    assert "within-run" not in found.conditions


def test_a_component_at_zero_pools_repeatability_and_a_note_says_what_ep05_does():
    data = scores(0, day=20, run=2, replicate_number=2)
    # Runs of a day have the same mean: their mean square is 0, below that of replicates.
    data["y"] -= data.groupby(["day", "run"])["y"].transform("mean")
    data["y"] += 50.0 + 2.0 * np.sin(data["day"])
    S, df = mean_squares(data, "day", "run")
    found = vcomp.presets.precision(vcomp.fit("y ~ (1|day/run)", data))
    assert found.table.loc["repeatability", "df"] == pytest.approx(60.0, rel=1e-5)
    (note,) = (text for text in found.notes if "estimated at 0" in text)
    assert note.startswith("σ²(day:run) is estimated at 0 by REML, which pools its degrees")
    assert "method='anova'" in note
    followed = vcomp.presets.precision(vcomp.fit("y ~ (1|day/run)", data, method="anova"))
    row = followed.table.loc["repeatability"]
    assert df[2] == 40
    assert row["df"] == pytest.approx(40.0, rel=1e-9)
    assert row["variance"] == pytest.approx(S[2], rel=1e-9)
    assert not any("estimated at 0" in text for text in followed.notes)


# Means of several results -----------------------------------------------------------------------


def test_the_precision_of_a_mean_is_a_combination_of_mean_squares():
    """A mean over d days, r runs a day and m replicates a run, from the mean squares."""
    data = scores(3, day=12, run=2, replicate_number=3)
    res = vcomp.fit("y ~ (1|day/run)", data, method="anova")
    S, df = mean_squares(data, "day", "run")
    d, r, m = 2, 3, 4
    day, run, error = np.array([1, -1, 0]) / 6, np.array([0, 1, -1]) / 3, np.array([0, 0, 1])
    c = day / d + run / (d * r) + error / (d * r * m)
    value, nu = of_combination(c, S, df)
    found = vcomp.presets.precision(res, day=d, run=r, replicate=m)
    row = found.table.loc["within-laboratory"]
    assert row["variance"] == pytest.approx(value, rel=1e-9)
    assert row["df"] == pytest.approx(nu, rel=1e-9)
    plan = res.quantity("sqrt(day / 2 + day:run / 6 + Residual / 24)", interval="satterthwaite")
    assert row["sd"] == pytest.approx(plan.estimate, rel=1e-9)
    np.testing.assert_allclose(row[["sd_low", "sd_high"]].astype(float), (plan.low, plan.high))
    assert row["limit"] == pytest.approx(2.8 * plan.estimate, rel=1e-9)
    within = found.table.loc["within-day", "variance"]
    assert within == pytest.approx((run / (d * r) + error / (d * r * m)) @ S, rel=1e-9)
    assert found.sources.loc["between day", "variance"] == pytest.approx(day @ S / d, rel=1e-9)
    assert found.sizes == {"day": d, "run": r, "replicate": m}
    text = " ".join(str(found).split())
    assert "Precision of a mean over 2 days × 3 runs × 4 replicates at mean" in text
    assert "conditions are those of two such results" in text


def test_a_facet_without_a_number_has_one_level():
    res = vcomp.fit("y ~ (1|day/run)", scores(3, day=12, run=2, replicate_number=3))
    three = vcomp.presets.precision(res, run=3)
    assert three.sizes == {"day": 1, "run": 3, "replicate": 1}
    same = vcomp.presets.precision(res, sizes={"run": 3, "day": 1, "replicate": 1})
    pd.testing.assert_frame_equal(three.table, same.table)
    single, ones = vcomp.presets.precision(res), vcomp.presets.precision(res, day=1)
    pd.testing.assert_frame_equal(single.table, ones.table)
    assert single.sizes == {}


def test_published_components_have_means_of_results():
    published = vcomp.from_components(
        {"day": 1.2, "run:day": 0.5, "Residual": 1.0},
        sizes={"day": 20, "run": 2, "replicate": 2},
        mean=50,
    )
    row = vcomp.presets.precision(published, day=4).table.loc["within-laboratory"]
    assert row["variance"] == pytest.approx((1.2 + 0.5 + 1.0) / 4, rel=1e-12)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"days": 2}, r"'days' is not a facet of the random part \(did you mean 'day'"),
        (
            {"day": [1, 2]},
            r"day, the levels in one result, must be a number above 0, not \[1, 2\]",
        ),
        ({"day": 0}, "must be a number above 0, not 0"),
        ({"sizes": [2]}, "sizes is a mapping"),
    ],
)
def test_sizes_that_cannot_be(sizes, message):
    res = vcomp.fit("y ~ (1|day/run)", scores(3, day=5, run=2, replicate_number=2))
    with pytest.raises(PlanError, match=message):
        vcomp.presets.precision(res, **sizes)


def test_replicates_of_single_scores_are_no_facet():
    res = vcomp.fit("y ~ (1|day)", scores(3, day=5, run=2))
    vcomp.presets.precision(res, replicate=2)
    crossed = vcomp.fit("y ~ (1|day) + (1|run)", scores(3, day=5, run=2))
    with pytest.raises(PlanError, match=r"'replicate' is not .* every cell has a single score"):
        vcomp.presets.precision(crossed, replicate=2)


# Intervals of the summary -----------------------------------------------------------------------


def test_the_intervals_of_the_summary_are_those_of_auto():
    """The note of the default table says how to have the intervals of ``summary()``."""
    res = vcomp.fit("y ~ (1|day/run)", scores(3, day=12, run=2, replicate_number=3))
    note = "The intervals of summary() and conf_int() are made otherwise: precision(res, "
    assert note + "interval='auto') has them." in vcomp.presets.precision(res).notes
    found = vcomp.presets.precision(res, interval="auto")
    assert not [text for text in found.notes if "made otherwise" in text]
    wanted = res.conf_int()
    np.testing.assert_allclose(
        found.sources[["sd_low", "sd_high"]].to_numpy() ** 2,
        wanted.loc[["var(day)", "var(day:run)"]].to_numpy(),
        rtol=1e-9,
    )
    ends = found.table.loc["repeatability", ["sd_low", "sd_high"]].astype(float) ** 2
    np.testing.assert_allclose(ends, wanted.loc["var(Residual)"], rtol=1e-9)
    beside = res.conf_int(interval="satterthwaite").loc["var(Residual)"]
    row = vcomp.presets.precision(res).table.loc["repeatability", ["sd_low", "sd_high"]]
    np.testing.assert_allclose(row.astype(float) ** 2, beside, rtol=1e-9)

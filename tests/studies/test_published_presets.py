"""Gauge studies and precision from published results: those of the fit that they describe."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vcomp
from tests.helpers.command_line import output_of
from tests.studies.test_gauge import aiag
from tests.studies.test_precision import scores
from vcomp.exceptions import PlanError
from vcomp.presets import gauge_rr, precision
from vcomp.studies.gauge import _published_f

CROSSED = "y ~ (1|part) + (1|operator) + (1|part:operator)"
SIZES = {"part": 10, "operator": 3, "replicate": 3}


@pytest.fixture(scope="module")
def fitted():
    return vcomp.fit(CROSSED, aiag(), method="anova")


def published_squares(res, sizes, mean=None):
    squares = res.anova_table()["mean_sq"]
    return vcomp.from_mean_squares(squares.to_dict(), sizes=sizes, mean=mean)


def test_published_mean_squares_give_the_gauge_study_of_the_fit(fitted):
    options = {"tolerance": 8.0, "process_sd": 1.2, "alpha": 0.1, "interval": "mls"}
    whole = gauge_rr(fitted, "part", "operator", **options)
    made = gauge_rr(published_squares(fitted, SIZES), "part", "operator", **options)
    pd.testing.assert_frame_equal(made.table, whole.table, rtol=1e-9, atol=1e-12)
    assert made.sources == whole.sources
    assert (made.categories, made.categories_low) == (whole.categories, whole.categories_low)
    extra = set(made.notes) - set(whole.notes)  # all else, with the F-test of the interaction
    assert len(made.notes) == len(whole.notes) + 1
    assert [note for note in extra if "mean squares do not show" not in note] == []
    assert any("AIAG pools" in note for note in made.notes)


def test_published_components_give_it_too():
    rows = scores(1, part=9, operator=3, trial=2)
    rows["y"] += np.random.default_rng(2).normal(size=9)[rows["part"]] * 4.0
    rows["y"] += np.random.default_rng(3).normal(size=3)[rows["operator"]]
    res = vcomp.fit(CROSSED, rows, method="anova")
    assert (res.vcomp > 0.0).all()
    sizes = {"part": 9, "operator": 3, "replicate": 2}
    published = vcomp.from_components(res.vcomp.to_dict(), sizes=sizes)
    made, whole = (gauge_rr(r, "part", "operator", interval="mls") for r in (published, res))
    pd.testing.assert_frame_equal(made.table, whole.table, rtol=1e-8, atol=1e-12)


def test_published_mean_squares_give_the_precision_of_the_fit():
    res = vcomp.fit("y ~ (1|day/run)", scores(4, day=8, run=2, r=3), method="anova")
    sizes, mean = {"day": 8, "run": 2, "replicate": 3}, float(res.fe_params.iloc[0])
    squares = res.anova_table()["mean_sq"].to_numpy()
    named = dict(zip(["day", "run:day", "Residual"], squares, strict=True))
    published = vcomp.from_mean_squares(named, sizes=sizes, mean=mean)
    made, whole = precision(published), precision(res)
    np.testing.assert_allclose(made.table, whole.table, rtol=1e-9)
    np.testing.assert_allclose(made.sources, whole.sources, rtol=1e-9)
    assert list(made.table.index) == list(whole.table.index)


@pytest.mark.parametrize(("mean", "has_cv"), [(0.0, False), (0.5, True)])
def test_coefficients_of_variation_need_a_mean_above_zero(mean, has_cv):
    sizes = {"day": 4, "replicate": 3}
    found = precision(vcomp.from_components({"day": 2.0, "Residual": 1.0}, sizes=sizes, mean=mean))
    assert ("cv" in found.table) == has_cv


@pytest.mark.parametrize(("triple", "expected"), [(2.0, 1.5), (0.0, None)])
def test_an_interaction_is_tested_by_its_own_mean_square_of_error(triple, expected):
    """Of part and operator on several days by that of all three facets; not if this is 0."""
    squares = {"p": 12.0, "o": 3.0, "d": 4.0, "po": 3.0, "pd": 2.0, "od": 2.0, "pod": triple}
    sizes = {"p": 5, "o": 3, "d": 2, "replicate": 2}
    found = _published_f(vcomp.from_mean_squares({**squares, "Residual": 1.0}, sizes=sizes), "po")
    if expected is None:
        assert found is None
    else:
        assert found == pytest.approx((expected, stats.f.sf(expected, 8, 8)))


def test_without_sizes_there_are_variances_and_the_reason():
    bare = {"day": 1.2, "run:day": 0.5, "Residual": 1.0}
    made = precision(vcomp.from_components(bare))
    assert made.table["variance"].tolist() == [1.0, 1.5, 2.7]
    assert made.table["sd_low"].isna().all()
    assert "give sizes= of all facets" in str(made).replace("\n  ", " ")
    assert "give mean= with the published values" in str(made)
    half = vcomp.from_components(bare, sizes={"day": 20, "run": 2})
    assert half.reason
    assert half.reason in " ".join(str(precision(half)).split())
    single = precision(vcomp.from_components({"day": 1.2, "run:day": 0.5}))
    assert any("every cell has a single score" in note for note in single.notes)


def test_mistakes(fitted):
    published = published_squares(fitted, SIZES)
    with pytest.raises(PlanError, match="operator='who' is not a facet of the random part"):
        gauge_rr(published, "part", "who")
    with pytest.raises(PlanError, match=r"or published components of .* not a dict"):
        precision({"day": 1.0})


def test_commands_print_what_python_prints(fitted, tmp_path):
    squares = fitted.anova_table()["mean_sq"]
    text = " ".join(f"{name}={value!r}" for name, value in squares.items())
    given = ("--mean-squares", text, "--sizes", "part=10 operator=3 replicate=3",
             "--part", "part", "--operator", "operator", "--tolerance", "8")  # fmt: skip
    made = gauge_rr(published_squares(fitted, SIZES), "part", "operator", tolerance=8.0)
    picture = tmp_path / "gauge.svg"
    assert output_of("gauge", *given, "--plot", picture) == f"{made}\n"
    assert picture.stat().st_size > 1000
    stored = tmp_path / "fit.json"
    fitted.to_json(stored)
    found = gauge_rr(vcomp.VarianceComponentsResults.from_json(stored), "part", "operator")
    assert output_of("gauge", stored, "--part", "part", "--operator", "operator") == f"{found}\n"
    table = output_of("gauge", *given, "--format", "csv")
    assert table.splitlines()[0].startswith("source,variance,se,low,high")
    of_days = ("--components", "day=1.2 run:day=.5 Residual=1", "--sizes",
               "day=20 run=2 replicate=2", "--mean", "50")  # fmt: skip
    published = vcomp.from_components(
        {"day": 1.2, "run:day": 0.5, "Residual": 1.0},
        sizes={"day": 20, "run": 2, "replicate": 2}, mean=50,
    )  # fmt: skip
    assert output_of("precision", *of_days) == f"{precision(published)}\n"


@pytest.mark.parametrize("interval", ["mls", "f", "satterthwaite", "wald", "log"])
def test_an_interval_without_standard_errors_is_refused(interval):
    """The default intervals are left out, with the reason."""
    published = vcomp.from_components({"part": 2.0, "operator": 1.0, "Residual": 3.0})
    message = f"interval='{interval}' needs standard errors, .* pass sizes="
    with pytest.raises(vcomp.EstimationError, match=message):
        precision(published, interval=interval)
    with pytest.raises(vcomp.EstimationError, match=message):
        gauge_rr(published, "part", "operator", interval=interval)
    assert "No standard errors and intervals: give sizes=" in str(precision(published))
    assert np.isnan(gauge_rr(published, "part", "operator").table["low"]).all()

"""Extrapolation from halves as a whole: what a user calls, sees and may get wrong."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vcomp
from tests.helpers.printed_tables import printed_columns
from vcomp.exceptions import DataError, EstimationError, PlanError, VcompWarning
from vcomp.ir import measures
from vcomp.ir.curve import MODELS, fit_curve
from vcomp.ir.measures import MeanMeasure
from vcomp.ir.splits import published_sizes
from vcomp.ir.splitting import _sizes, split_half


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(11)
    effects = rng.normal(size=12) / 12 + rng.normal(size=(30, 1)) / 8
    return 1.0 / (1.0 + np.exp(-4.0 * (effects + rng.normal(size=(30, 12)) / 6)))


@pytest.fixture(scope="module")
def study(scores):
    return split_half(scores, ["tau", "sens_abs"], [10, 30, 100], rng=4, trials=20)


def test_frame_has_a_row_a_split(study):
    frame = study.frame
    assert list(frame.columns) == ["n", "trial", "tau", "sens_abs"]
    assert len(frame) == 20 * len(published_sizes(30))
    assert frame.groupby("n")["trial"].max().eq(19).all()
    assert study.sizes == tuple(published_sizes(30))


def test_observations_are_those_of_the_measures(study, scores):
    """The public ``actual`` on the scores of each half, one by one."""
    tau, frame = measures.get("tau"), study.frame.set_index(["n", "trial"])
    for halves in study.halves[::4]:
        for k in (0, 7):
            one, other = scores[halves.collection[k]], scores[halves.truth[k]]
            found = frame.loc[(halves.n_topics, k)]
            assert found["tau"] == pytest.approx(tau.actual(one, other), abs=1e-14)


def test_curves_are_fitted_to_the_frame(study):
    frame, table = study.frame, study.table
    for name, scale in (("tau", "correlation"), ("sens_abs", "error")):
        for model in MODELS:
            curve = fit_curve(frame["n"], frame[name], model, scale=scale)
            mine = table[(table["measure"] == name) & (table["model"] == model)]
            expected = curve.predict([10, 30, 100])
            pd.testing.assert_frame_equal(
                mine[expected.columns].reset_index(drop=True), expected, rtol=1e-12
            )
    row = study.fits.set_index(["measure", "model"]).loc[("tau", "exp1")]
    curve = study.curves["tau", "exp1"]
    assert [row["a"], row["b"]] == curve.params.tolist()
    assert row["bse_b"] == pytest.approx(np.sqrt(curve.cov_params[1, 1]))


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_change_nothing(study, scores, workers):
    again = split_half(scores, ["tau", "sens_abs"], rng=4, trials=20, workers=workers)
    np.testing.assert_array_equal(again.values, study.values)


def test_more_trials_or_other_sizes_keep_what_was_drawn(study, scores):
    more = split_half(scores, "tau", rng=4, trials=60, sizes=[15, 5])
    assert more.sizes == (5, 15)
    for mine, k in ((0, study.sizes.index(5)), (1, study.sizes.index(15))):
        np.testing.assert_allclose(more.values[0, mine, :20], study.values[0, k], atol=1e-14)


def test_seeds(scores):
    one = split_half(scores, "tau", rng=np.random.default_rng(1))
    same = split_half(scores, "tau", rng=np.random.default_rng(1))
    other = split_half(scores, "tau", rng=np.random.default_rng(2))
    np.testing.assert_array_equal(one.values, same.values)
    assert not np.array_equal(one.values, other.values)


def test_by_default_the_test_is_the_collection(scores):
    study = split_half(scores)
    assert study.table["n"].unique().tolist() == [30]
    assert study.trials == 71  # 14 sizes: ⌊1000/14⌋
    assert study.table["measure"].unique().tolist() == ["tau", "tau_ap"]


def test_the_worst_systems_are_left_out(scores):
    kept = scores[:, np.argsort(scores.mean(axis=0))[3:]]
    study = split_half(scores, "tau", drop_worst=0.25)
    assert study.n_systems == 9
    np.testing.assert_allclose(np.sort(study.values), np.sort(split_half(kept, "tau").values))


@pytest.mark.filterwarnings("ignore:.* is not extrapolated")
def test_every_measure_can_be_split(scores):
    study = split_half(scores, measures.available(), [60], trials=10, sizes=[5, 10, 15])
    assert list(study.measures) == measures.available()
    fitted = {name for name, _ in study.curves}
    assert {"tau", "tau_ap", "sens_abs", "sens_rel"} <= fitted
    table = study.table.set_index("measure")
    for name in measures.available():
        assert table.loc[name, "estimate"].notna().any() == (name in fitted)


def test_one_measure_with_several_options(scores):
    kinds = [measures.get("tau"), measures.get("tau", variant="a"), "tau"]
    study = split_half(scores, kinds, sizes=[5, 15], trials=5)
    assert list(study.measures) == ["Tau(variant='b')", "Tau(variant='a')"]
    assert "Tau(variant='a')" in str(study)


def test_scores_and_systems_may_have_any_scale_and_order(scores):
    plain = split_half(scores, "tau", rng=1)
    changed = split_half(1e6 + 1e3 * scores[:, ::-1], "tau", rng=1)
    np.testing.assert_allclose(changed.values, plain.values, atol=1e-12)


def test_predict_takes_other_sizes_and_levels(study):
    wide, narrow = study.predict(200, alpha=0.01), study.predict(200, alpha=0.5)
    assert (wide["obs_low"] <= narrow["obs_low"]).all()
    assert (wide["high"] >= narrow["high"]).all()
    with pytest.raises(PlanError, match="must be positive"):
        study.predict(-1)


def test_halves_of_one_size_have_no_curve(scores):
    with pytest.warns(VcompWarning, match="tau is not .* by exp1: .* two numbers of topics"):
        study = split_half(scores, "tau", 50, sizes=10, models="exp1")
    assert study.table["estimate"].isna().all()
    assert study.table["n"].tolist() == [50]
    text = str(study)
    assert "τ has no curve by exp1: a curve needs three observations or more" in text
    assert "100 random splits into halves of 10 topics." in text
    assert repr(study) == "<SplitHalfStudy: tau of 100 splits of 10 topics>"


class Distance(MeanMeasure):
    """Goes from 0 up without end, and is better the larger it is."""

    name, symbol, limits = "distance", "D", (0.0, np.inf)

    def actual_of_means(self, means, true_means):
        return np.abs(means - true_means).max(axis=-1) + 2.0


def test_measures_without_a_scale_are_observed_but_not_extrapolated(scores):
    with pytest.warns(VcompWarning, match="D goes from 0 to ∞"):
        study = split_half(scores, Distance(), models="exp1")
    assert (study.frame["distance"] > 2.0).all()


def test_values_beyond_their_scale_are_not_extrapolated(scores):
    with pytest.warns(
        VcompWarning, match=r"rmse is not extrapolated by .*: an accuracy is .* outside"
    ):
        study = split_half(100.0 * scores, "rmse")
    assert not study.curves


def test_constant_systems_are_explained():
    flat = np.tile(np.arange(12.0)[:, None], (1, 3))
    with pytest.warns(VcompWarning, match="tau is not extrapolated"):
        study = split_half(flat, "tau")
    assert "τ has no value in 500 of 500 splits: all systems have the same mean" in str(study)


def test_tests_without_error_are_explained():
    """Systems that never swap: no logarithm of an error, and no finite logit."""
    clear = np.arange(20)[:, None] / 100 + np.arange(4.0)
    with pytest.warns(VcompWarning, match="by exp1, exp2, logit: .*all have error zero"):
        study = split_half(clear, "tau")
    assert (study.frame["tau"] == 1.0).all()
    text = " ".join(str(study).split())
    assert "τ has no curve by exp1, exp2: a curve needs three" in text
    assert "there are 0 at 0 (900 without any error left out)" in text
    assert (
        "τ has no curve by logit: logit has no finite fit: of 900 observations all have error zero"
        in text
    )


def test_some_without_error_are_counted():
    rng = np.random.default_rng(3)
    easy = rng.normal(size=(20, 4)) * 1.5 + np.arange(4.0)
    study = split_half(easy, "tau", 100)
    n_zero = int((study.frame["tau"] == 1.0).sum())
    assert 100 < n_zero < 800
    text = " ".join(str(study).split())
    assert f"τ: {n_zero} splits without any error are left out of exp1 and exp2" in text


def test_summary_says_what_the_numbers_are(scores):
    text = str(split_half(scores, ["tau", "tau_ap"], [15, 100], trials=20))
    for piece in (
        "Accuracy extrapolated from halves of 30 topics, 12 systems",
        "20 random splits of each of 14 sizes, with halves of 2 to 15 topics.",
        "In brackets: where 95 % of splits into tests of that size lie, by the fitted curve.",
        "with another test of its size, not with the true means.",
        "Beyond 15 topics curves are extrapolated",
        "τ_AP",
    ):
        assert piece in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100
    both = " ".join(str(split_half(scores, "tau", 15, sizes=[5, 9], trials=20)).split())
    assert "20 random splits of each of 2 sizes, with halves of 5 to 9 topics." in both
    inside = str(split_half(scores, "tau", 10, models="logit", alpha=0.1))
    assert "Beyond" not in inside
    assert "Beyond" not in str(split_half(scores, "tau", 15, trials=20))
    one, two = (" ".join(str(split_half(scores, "tau", 16, models=m, trials=20)).split())
                for m in ("logit", ["exp1", "logit"]))  # fmt: skip
    assert "need not agree" not in one
    assert "known to be biased; the models need not agree." in two
    assert "90 % of splits" in inside


def test_every_cell_of_the_summary_is_that_of_the_table(scores):
    study = split_half(scores, ["tau", "tau_ap"], [10, 30, 100], rng=4, trials=20)
    printed, table = printed_columns(study.summary()), study.table
    assert printed["topics"] == ["10", "30", "100"] * 2
    for model in study.models:
        own = table[table["model"] == model]
        rows = pd.concat([own[own["measure"] == name] for name in study.measures])
        cells = [cell.translate(str.maketrans("[,]", "   ")).split() for cell in printed[model]]
        expected = rows[["estimate", "obs_low", "obs_high"]].to_numpy()
        np.testing.assert_allclose(np.array(cells, dtype=float), expected, atol=5.1e-4)


def test_html_and_repr(study):
    assert "<table" in study._repr_html_()
    assert repr(study) == (
        "<SplitHalfStudy: tau, sens_abs of 20 splits of each of 14 sizes, from 2 to 15 topics>"
    )


def test_extrapolations_are_biased_as_documented():
    """Normal effects, 50 topics, 30 systems: what halves say of τ, and what it is (by scipy).

    Halves are compared with halves, not with the truth, so that exp1 and logit say too little, as
    Urbano (2016, sec. 6) found; ``AccuracyCurve.predict`` gives the figures.
    """
    rng = np.random.default_rng(0)
    true_means = rng.normal(0.3, 0.05, 30)

    def collection():
        return true_means + rng.normal(0, 0.12, (50, 1)) + rng.normal(0, 0.12, (50, 30))

    means = [collection().mean(axis=0) for _ in range(200)]
    truth = np.mean([stats.kendalltau(m, true_means).statistic for m in means])
    tables = [split_half(collection(), "tau", 50, rng=k).table for k in range(15)]
    found = pd.concat(tables).groupby("model")["estimate"].mean()
    # 15 collections: standard errors of some 0.015.
    assert found["exp1"] < truth - 0.1
    assert found["logit"] < truth - 0.1
    assert abs(found["exp2"] - truth) < 0.06


@pytest.mark.slow
def test_real_data():
    data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
    matrix = data.pivot_table(index="topic", columns="sys", values="score")
    study = split_half(matrix, "tau", [25, 50])
    by_model = study.table.pivot_table(index="n", columns="model", values="estimate")
    assert (by_model.loc[50] > by_model.loc[25]).all()
    assert by_model.loc[25].between(0.3, 1.0).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"measures": "taau"}, PlanError, r"no measure 'taau' \(did you mean 'tau'"),
        ({"measures": []}, PlanError, "no measure is given"),
        ({"models": "exp3"}, PlanError, "model must be 'exp1'.*did you mean 'exp"),
        ({"models": []}, PlanError, "no model is given"),
        ({"models": None}, PlanError, "model must be 'exp1', 'exp2' or 'logit', not None"),
        ({"measures": None}, PlanError, "no measure None; there are tau"),
        ({"n_topics": 0}, PlanError, "must be positive"),
        ({"n_topics": "50"}, PlanError, "number of topics"),
        ({"n_topics": []}, PlanError, "no number of topics"),
        ({"alpha": 95}, PlanError, "alpha must be between"),
        ({"sizes": 16}, EstimationError, "whole number of topics from 1 to 15, not 16"),
        ({"sizes": [0, 5]}, EstimationError, "not 0"),
        ({"sizes": [1, 5], "measures": "p_value"}, EstimationError, "from 2 to 15, not 1"),
        ({"sizes": [True]}, EstimationError, "not True"),
        ({"sizes": 7.5}, EstimationError, "not 7.5"),
        ({"sizes": []}, EstimationError, "sizes is empty"),
        ({"trials": 0}, EstimationError, "trials must be a whole number"),
        ({"workers": 1.5}, EstimationError, "workers must be a whole number"),
        ({"rng": "one"}, EstimationError, "rng"),
        ({"drop_worst": 1.0}, DataError, "drop_worst must be"),
    ],
)
def test_bad_arguments(scores, options, error, message):
    with pytest.raises(error, match=message):
        split_half(scores, **options)


def test_bad_scores(scores):
    with pytest.raises(DataError, match="need 4 topics; there are 3"):
        split_half(scores[:3])
    holes = scores.copy()
    holes[2, 3] = np.nan
    with pytest.raises(DataError, match="that of system '3' on topic '2' among them"):
        split_half(holes)
    with pytest.raises(DataError, match="is infinite"):
        split_half(np.where(np.isnan(holes), np.inf, holes))
    with pytest.raises(DataError, match="two systems"):
        split_half(scores[:, :1])


def test_other_tables_are_read(scores):
    import polars as pl

    frame = pl.DataFrame(scores, schema=[f"s{k}" for k in range(12)], orient="row")
    np.testing.assert_array_equal(
        split_half(frame, "tau").values, split_half(scores, "tau").values
    )


def test_the_smallest_and_the_largest_halves():
    for smallest in (1, 2):
        assert _sizes([5, smallest], 10, smallest) == [smallest, 5]
        for wrong in (smallest - 1, 6):
            with pytest.raises(EstimationError, match=f"from {smallest} to 5, not {wrong}"):
                _sizes(wrong, 10, smallest)

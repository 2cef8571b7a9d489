"""Curves of one's own: the points, the fit, what is printed and drawn, bad input."""

from __future__ import annotations

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize

import vcomp
from vcomp.exceptions import DataError, EstimationError, PlanError
from vcomp.ir import as_score_matrix, measures
from vcomp.ir.mapping import PUBLISHED, map_reliability
from vcomp.ir.mapping_fit import _coefficients, _smallest, fit_mapping
from vcomp.ir.measures import RMSE
from vcomp.ir.reliability_map import _FEWEST_POINTS as FEWEST
from vcomp.ir.reliability_map import (
    _fitted,
    _used,
    curve_through,
    exponents_by_collection,
    fit_exponent,
)
from vcomp.ir.significance import mean_squares
from vcomp.ir.splits import FEWEST as FEWEST_TOPICS


@pytest.fixture(scope="module")
def collections():
    rng = np.random.default_rng(7)
    spreads = {"first": 0.10, "second": 0.14, "third": 0.18}
    return {
        name: np.clip(
            0.5 + spread * rng.normal(size=16) + 0.1 * rng.normal(size=(44, 1))
            + 0.15 * rng.normal(size=(44, 16)), 0.0, 1.0,
        )
        for name, spread in spreads.items()
    }  # fmt: skip


@pytest.fixture(scope="module")
def study(collections):
    return fit_mapping(collections, ["tau", "rmse", "power_ratio"], trials=10, rng=3)


def test_points_are_halves_of_the_published_sizes(study):
    points = study.points
    assert list(points) == ["collection", "n", "trial", "Erho2", "Phi", "n_systems", "topic_share",
                            "tau", "rmse", "power_ratio"]  # fmt: skip
    assert points.index.tolist() == list(range(len(points)))
    sizes = points.groupby(["collection", "n"]).size()
    assert sizes.eq(20).all()  # two halves of ten splits
    assert sorted(set(points["n"])) == [10, 20]
    # τ and ε do not depend on which of the halves is the truth; Eρ² and β are of one half.
    for _, pair in points.groupby(["collection", "n", "trial"]):
        assert np.ptp(pair["tau"]) == 0.0
        assert np.ptp(pair["Erho2"]) > 0.0


def test_coefficients_of_points_are_those_of_a_dstudy(collections):
    X = collections["second"][:8]
    frame = pd.DataFrame(X).rename_axis("t").reset_index().melt("t", var_name="s")
    table = vcomp.fit("value ~ (1|s) + (1|t)", frame, method="anova").dstudy(t=8).table
    res = vcomp.fit("value ~ (1|s) + (1|t)", frame, method="anova").vcomp
    share = res["t"] / (res["t"] + res["Residual"])
    expected = (table["Erho2"][0], table["Phi"][0], share)
    assert _coefficients(X) == pytest.approx(expected, rel=1e-10)


def test_the_curve_is_the_least_squares_one(study):
    """The derivative of the sum of squares is zero at the exponent, and nowhere below."""
    points = study.points
    for name, x, base in (
        ("tau", "Erho2", lambda x: x),
        ("power_ratio", "Erho2", lambda x: x),
        ("rmse", "Phi", lambda x: 1.0 - x),
    ):
        curve = study.maps[name]
        used = points[points[x] >= {"Erho2": 0.8, "Phi": 0.5}[x]]
        assert curve.nobs == len(used)
        b, y = base(used[x].to_numpy()), used[name].to_numpy()

        def slope(a, b=b, y=y):
            return np.sum((b**a - y) * b**a * np.log(b))

        assert curve.exponent == pytest.approx(brentq(slope, 0.05, 50.0), rel=1e-7)
        residual = b**curve.exponent - y
        assert curve.resid_sd == pytest.approx(np.sqrt(residual @ residual / (len(y) - 1)))


def test_standard_errors_take_collections_as_independent(study):
    points, curve = study.points, study.maps["tau"]
    used = points[points["Erho2"] >= 0.8]
    x = used["Erho2"].to_numpy()
    slope = x**curve.exponent * np.log(x)
    score = slope * (used["tau"].to_numpy() - x**curve.exponent)
    names = used["collection"].unique()
    totals = [score[used["collection"] == name].sum() for name in names]
    k = len(names)
    assert curve.n_collections == k >= 2
    sandwich = k / (k - 1) * np.square(totals).sum() / (slope @ slope) ** 2
    assert curve.bse == pytest.approx(np.sqrt(sandwich), rel=1e-9)


def test_one_collection(collections):
    study = fit_mapping([collections["third"]], "tau", trials=10, rng=3)
    curve = study.maps["tau"]
    used = study.points[study.points["Erho2"] >= 0.8]
    x = used["Erho2"].to_numpy()
    slope = x**curve.exponent * np.log(x)
    assert curve.bse == pytest.approx(curve.resid_sd / np.sqrt(slope @ slope), rel=1e-9)
    assert list(curve.by_collection) == ["1"]
    assert curve.by_collection["1"] == pytest.approx(curve.exponent)
    assert "they are too small" in " ".join(str(study).split())


@pytest.mark.parametrize("measure", ["tau", "rmse"])
def test_each_collection_by_itself(study, measure):
    """A measure falls with 1 − x where smaller is better."""
    curve, points = study.maps[measure], study.points
    x = {"tau": "Erho2", "rmse": "Phi"}[measure]
    assert len(curve.by_collection) >= 2
    for name, exponent in curve.by_collection.items():
        used = points[points["collection"] == name]
        used = used[used[x] >= {"tau": 0.8, "rmse": 0.5}[measure]]
        base = used[x] if measure == "tau" else 1.0 - used[x]
        b, y = base.to_numpy(), used[measure].to_numpy()
        assert brentq(lambda a, b=b, y=y: np.sum((b**a - y) * b**a * np.log(b)), 0.05, 50.0) == (
            pytest.approx(exponent, rel=1e-6)
        )
    assert min(curve.by_collection.values()) <= curve.exponent <= max(curve.by_collection.values())


def test_collections_are_in_the_order_of_their_points(study):
    backwards = study.points.sort_values("collection", ascending=False, kind="stable")
    found = exponents_by_collection(study.measures["tau"], backwards, study.smallest)
    order = dict.fromkeys(backwards["collection"])
    assert list(found) == [name for name in order if name in found]
    assert len(found) >= 2


def test_points_at_the_limit_are_used(study):
    limit = study.points["Phi"].sort_values().iloc[-30]
    limits = {"Erho2": 0.8, "Phi": limit}
    used = _used(study.measures["rmse"], study.points, limits)[1]
    assert len(used) == 30
    drawn = replace(study, smallest=limits).plot("rmse").lines[0].get_xdata()
    assert sorted(drawn) == sorted(used["Phi"])
    plt.close("all")


@given(st.floats(0.05, 12.0), st.integers(0, 2**32))
def test_exact_points_give_their_exponent(a, seed):
    x = np.random.default_rng(seed).uniform(0.3, 0.99, 6)
    assert fit_exponent(x, x**a) == pytest.approx(a, rel=1e-6)
    ends = np.array([0.0, 1.0, 1.0])
    more = np.append(x**a, [0.1, 0.9, 1.0])
    assert fit_exponent(np.append(x, ends), more) == pytest.approx(a, rel=1e-6)


def test_values_below_zero_and_at_the_ends_are_fitted():
    x = np.array([0.5, 0.6, 0.8, 1.0])
    y = np.array([-0.1, 0.2, 0.5, 1.0])

    def slope(a):
        return np.sum((x[:3] ** a - y[:3]) * x[:3] ** a * np.log(x[:3]))

    assert fit_exponent(x, y) == pytest.approx(brentq(slope, 0.5, 20.0), rel=1e-7)
    assert fit_exponent(x, np.array([0.0, 0.0, 0.0, 1.0])) > 20


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_change_nothing(study, collections, workers):
    again = fit_mapping(
        collections, ["tau", "rmse", "power_ratio"], trials=10, rng=3, workers=workers
    )
    pd.testing.assert_frame_equal(again.points, study.points, check_exact=True)
    other = fit_mapping(collections, "tau", trials=10, rng=4)
    assert not np.array_equal(other.points["tau"], study.points["tau"])


def test_curves_are_used_as_the_published_ones(study):
    own = map_reliability("tau", Erho2=0.9, mapping=study.maps)
    assert own == pytest.approx(0.9 ** study.maps["tau"].exponent)
    table = study.table.set_index("indicator")
    assert table.loc["tau", "exponent"] == study.maps["tau"].exponent
    assert table.loc["tau", "published"] == PUBLISHED["tau"].exponent
    assert table.loc["rmse", "coefficient"] == "Phi"


def test_trec_collections_lie_near_the_published_curve(shared_data):
    """Three of the 43 collections of the paper: their τ is within its single collections."""
    names = ["adhoc3", "enterprise2006", "genomics2004"]
    few = {name: pd.read_csv(shared_data(f"{name}.csv")) for name in names}
    study = fit_mapping(few, ["tau", "power_ratio"], trials=20, rng=1)
    for name, curve in study.maps.items():
        published = PUBLISHED[name].exponent
        # Figure 2 of the paper: single collections are some 20 % to either side.
        assert curve.exponent == pytest.approx(published, rel=0.2), name
        inside = study.points[study.points["Erho2"] >= 0.8]
        frame = curve.predict(inside["Erho2"].to_numpy())
        y = inside[name].to_numpy()
        covered = ((frame["obs_low"] <= y) & (y <= frame["obs_high"])).mean()
        assert 0.9 < covered <= 1.0


def test_summary(study):
    text = str(study)
    for piece in (
        "Curves from Eρ² and Φ to other indicators, from halves of 3 collections",
        "x^exponent for tau, power_ratio; (1 − x)^exponent for rmse",
        "Points with Eρ² ≥ 0.8 and Φ ≥ 0.5.",
        "By collection: smallest and largest exponent",
    ):
        assert piece in " ".join(text.split()), piece
    for curve in study.maps.values():
        assert f"{curve.bse:.2g}" in text.split()
    fewer = any(curve.n_collections < 3 for curve in study.maps.values())
    assert ("Not every collection" in text) == fewer
    some = {"rmse": 2, "tau": 1}
    maps = {
        name: replace(curve, n_collections=some.get(name, curve.n_collections))
        for name, curve in study.maps.items()
    }
    said = "Not every collection has such points: there are 1 for tau, 2 for rmse."
    assert said in " ".join(str(replace(study, maps=maps)).split())
    assert max(map(len, text.splitlines())) <= 100
    assert "<table" in study._repr_html_()
    assert repr(study) == "<MappingStudy: tau, rmse, power_ratio from 120 points of 3 collections>"


def test_the_table_has_the_curves(study):
    table = study.table.set_index("indicator")
    for name, curve in study.maps.items():
        single = curve.by_collection.values()
        assert tuple(table.loc[name, ["lowest", "highest"]]) == (min(single), max(single))
        assert table.loc[name, "nobs"] == curve.nobs
    curves = {"tau": replace(study.maps["tau"], by_collection={})}
    alone = replace(study, maps=curves).table
    assert alone[["lowest", "highest"]].isna().all(axis=None)


def test_picture(study):
    plt.switch_backend("Agg")
    ax = study.plot("rmse")
    points, curve = ax.lines
    used = study.points[study.points["Phi"] >= 0.5]
    np.testing.assert_array_equal(points.get_xdata(), used["Phi"])
    np.testing.assert_array_equal(points.get_ydata(), used["rmse"])
    np.testing.assert_allclose(curve.get_ydata(), study.maps["rmse"].at(curve.get_xdata()))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Φ", measures.get("rmse").symbol)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        "95 % of pairs", "90 % of pairs", "curve",
    ]  # fmt: skip
    with pytest.raises(PlanError, match=r"no curve for 'taus' \(did you mean 'tau'"):
        study.plot("taus")
    plt.close("all")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"indicators": "tua"}, PlanError, "no measure 'tua'"),
        ({"indicators": []}, PlanError, "no measure is given"),
        (
            {"indicators": [measures.get("tau"), measures.get("tau", variant="a")]},
            PlanError,
            "twice",
        ),
        ({"sizes": 1}, EstimationError, "whole numbers of at least 2, not 1"),
        ({"sizes": []}, EstimationError, "sizes is empty"),
        ({"sizes": [5.5]}, EstimationError, "not 5.5"),
        ({"sizes": 23}, DataError, "'first' has 44 topics, and the smallest halves need 46"),
        ({"trials": 0}, EstimationError, "trials must be a whole number"),
        ({"smallest": {"Rho": 0.1}}, PlanError, "'Erho2' and 'Phi', not 'Rho'"),
        ({"smallest": {"Phi": 1.0}}, PlanError, "at least 0 and less than 1, not 1.0"),
        ({"smallest": {"Erho2": 0.999}}, EstimationError, "'tau' has 0 points with Erho2"),
        ({"smallest": 0.5}, PlanError, r"smallest is a dict such as .*, not 0.5"),
        ({"indicators": None}, PlanError, "no measure None; there are tau"),
        ({"drop_worst": 2}, DataError, "drop_worst must be"),
        ({"drop_worst": 0.99}, DataError, "collection 'first': drop_worst=0.99 leaves"),
    ],
)
def test_bad_options(collections, options, error, message):
    with pytest.raises(error, match=message):
        fit_mapping(collections, **{"indicators": "tau", "trials": 5, **options})


def test_values_beyond_one_have_no_curve(collections):
    """A distance has no upper limit, nor has the error of scores that are percentages."""
    with pytest.raises(EstimationError, match=r"'rmse' has values up to .*, and curves lie below"):
        fit_mapping([100.0 * X for X in collections.values()], "rmse")
    measure = measures.get("d_rank", shrinkage=0.5)
    with pytest.raises(EstimationError, match=r"'d_rank' has values up to"):
        fit_mapping(collections, measure, trials=5)


class SignalToNoise(RMSE):
    """Grows without limit as Eρ² goes to 1."""

    name = "signal"
    larger_is_better = True


class Conflict(RMSE):
    """Falls to one half, but not to zero."""

    name = "conflict"
    limits = (0.5, 1.0)


@pytest.mark.parametrize("measure", [SignalToNoise(), Conflict()])
def test_measures_whose_limit_is_neither_zero_nor_one_have_no_curve(collections, measure):
    with pytest.raises(PlanError, match=r"goes neither to 1 nor to 0 as Eρ² goes to 1"):
        fit_mapping(collections, measure, trials=5)


def test_rows_of_coefficients_are_refused(study):
    with pytest.raises(DataError, match="one row per value of Eρ²; these have 2 dimensions"):
        study.maps["tau"].predict([[0.8, 0.9]])


def test_bad_collections(collections):
    one = pd.DataFrame(collections["first"])
    for single in (one, one.to_numpy(), as_score_matrix(one), pl.from_pandas(one)):
        with pytest.raises(DataError, match="put a single one in a list"):
            fit_mapping(single)
    with pytest.raises(DataError, match="no collection is given"):
        fit_mapping([])
    with pytest.raises(DataError, match="put a single one in a list"):
        fit_mapping(pd.DataFrame(collections["first"]))
    with pytest.raises(DataError, match="put a single one in a list"):
        fit_mapping(collections["first"])
    holes = collections["first"].copy()
    holes[3, 4] = np.nan
    with pytest.raises(DataError, match="collection 'b': scores: 1 of"):
        fit_mapping({"a": collections["first"], "b": holes}, drop_worst=0.0)
    named = pd.DataFrame(holes, index=[f"q{k}" for k in range(len(holes))]).add_prefix("s")
    with pytest.raises(DataError, match="that of system 's4' on topic 'q3' among them"):
        fit_mapping({"b": named}, drop_worst=0.25)
    with pytest.raises(DataError, match=r"'a' has 10 topics.* need 20; sizes= allows smaller"):
        fit_mapping({"a": collections["first"][:10]})


def test_the_least_coefficient_is_at_least_0_and_less_than_1():
    assert _smallest({"Erho2": 0.0, "Phi": 0.99}) == {"Erho2": 0.0, "Phi": 0.99}
    for wrong in (1.0, -1e-9, True, "0.5", None, np.nan):
        with pytest.raises(PlanError, match="at least 0 and less than 1"):
            _smallest({"Phi": wrong})


@pytest.mark.parametrize("variance", ["constant", "shrinking"])
def test_points_at_the_ends_leave_the_curve(study, variance):
    """A curve is 0 at 0 and 1 at 1 whatever its exponent, and so is a point there."""
    tau, limits = study.measures["tau"], {"Erho2": 0.0, "Phi": 0.0}
    points = study.points[study.points["Erho2"].between(0.0, 1.0, inclusive="neither")]
    ends = points.iloc[:4].assign(Erho2=[0.0, 0.0, 1.0, 1.0], tau=[0.0, 0.0, 1.0, 1.0])
    expected = curve_through(tau, points, limits, variance)
    found = curve_through(tau, pd.concat([points, ends]), limits, variance)
    assert found.exponent == pytest.approx(expected.exponent, rel=1e-7)
    assert found.bse == pytest.approx(expected.bse, rel=1e-6)


@pytest.mark.parametrize("n_features", [0, 2])
def test_curve_and_spread_have_the_highest_normal_likelihood(n_features):
    """Of y about x^a with the standard deviation s (1 - x)^b, log a linear in features."""
    rng = np.random.default_rng(5)
    x, Z = rng.uniform(0.2, 0.95, 400), rng.normal(size=(400, n_features))
    slopes = np.array([0.4, -0.3])[:n_features]
    y = x ** np.exp(0.5 + Z @ slopes) + 0.2 * (1.0 - x) ** 1.3 * rng.normal(size=400)

    def negative(at):
        theta, log_s, b = at[: n_features + 1], at[-2], at[-1]
        sd = np.exp(log_s) * (1.0 - x) ** b
        return (np.log(sd) + np.square((y - x ** np.exp(theta[0] + Z @ theta[1:])) / sd) / 2).sum()

    best = minimize(negative, [0.5, *slopes, np.log(0.2), 1.3], tol=1e-12)
    theta, power = _fitted(x, y, Z, 1.0 - x, "shrinking")
    np.testing.assert_allclose([*theta, power], [*best.x[: n_features + 1], best.x[-1]], atol=1e-4)


def test_coefficients_without_error():
    assert _coefficients(np.tile([1.0, 2.0, 4.0], (5, 1))) == pytest.approx(
        (1.0, 1.0, np.nan), nan_ok=True
    )


def test_only_points_between_the_ends_are_enough():
    tau, limits = measures.get("tau"), {"Erho2": 0.0, "Phi": 0.0}
    x = np.linspace(0.3, 0.9, FEWEST)
    points = pd.DataFrame({"collection": "one", "Erho2": x, "tau": x})
    assert len(_used(tau, points, limits)[1]) == FEWEST
    for end in (0.0, 1.0):
        points.loc[0, "Erho2"] = end
        with pytest.raises(EstimationError, match=f"has {FEWEST - 1} points .* needs {FEWEST}"):
            _used(tau, points, limits)
    with pytest.raises(EstimationError, match=f"has {FEWEST - 1} points .* needs {FEWEST + 1}"):
        _used(tau, points, limits, 1)


def test_points_at_the_ends_do_not_count():
    """A curve is 0 at 0 and 1 at 1 whatever its exponent."""
    x = np.linspace(0.3, 0.9, FEWEST)
    few = np.concatenate([[0.0, 0.0, 1.0], x[1:]])
    points = pd.DataFrame({
        "collection": ["many"] * x.size + ["few"] * few.size,
        "Erho2": np.concatenate([x, few]), "tau": np.concatenate([x, few]) ** 2.0,
    })  # fmt: skip
    found = exponents_by_collection(measures.get("tau"), points, {"Erho2": 0.0, "Phi": 0.0})
    assert list(found) == ["many"]
    assert found["many"] == pytest.approx(2.0, rel=1e-9)


def test_halves_have_two_topics_or_more(collections):
    points = fit_mapping(collections, "tau", sizes=[FEWEST_TOPICS, 22], trials=4, rng=1).points
    assert sorted(set(points["n"])) == [FEWEST_TOPICS, 22]
    assert set(fit_mapping(collections, "tau", sizes=22, trials=4).points["n"]) == {22}
    for wrong in (FEWEST_TOPICS - 1, 2.5, True, "2"):
        with pytest.raises(EstimationError, match="whole numbers of at least 2, not "):
            fit_mapping(collections, "tau", sizes=[wrong])


def test_a_value_just_beyond_one_has_no_curve():
    points = pd.DataFrame({"Erho2": [0.5, 0.7], "Phi": [0.4, 0.6], "rmse": [0.9, 1.5]})
    with pytest.raises(EstimationError, match=r"values up to 1\.5, and curves lie below 1"):
        _used(RMSE(), points, {"Erho2": 0.0, "Phi": 0.0})


@pytest.mark.parametrize(
    ("systems", "expected"), [(0.0, (np.nan,) * 3), (1.0, (1.0, 1.0, np.nan))]
)
def test_coefficients_of_scores_that_are_equal(systems, expected):
    X = 3.0 + systems * np.tile(np.arange(3.0), (5, 1))
    np.testing.assert_array_equal(_coefficients(X), expected)


def test_coefficients_of_units_of_variance():
    """A variance of exactly one, of systems or of error, is not none."""
    H = np.array([[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, 1.0, -1.0], [1.0, -1.0, -1.0, 1.0]]).T
    system = np.sqrt(3 / 4) * np.array([1.0, 1.0, -1.0, -1.0])
    residual = np.outer(H[:, 0], H[:, 1]) * 3 / 4
    ms_s, _, ms_e = mean_squares(system + residual)
    assert ms_e == pytest.approx(1.0, rel=1e-14)
    found = _coefficients(system + residual)
    assert found[0] == pytest.approx(1.0 - ms_e / ms_s, rel=1e-12)
    assert _coefficients(np.outer(H[:, 0], H[:, 1]))[:2] == (0.0, 0.0)

"""Curves whose variance shrinks, with features, and their validation on collections left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from vcomp.exceptions import EstimationError, PlanError
from vcomp.ir import fit_mapping, measures, validate_mapping
from vcomp.ir.mapping import MappingStudy
from vcomp.ir.mapping_fit import _scores
from vcomp.ir.reliability_map import _fit_spread, curve_through

TAU = measures.get("tau")
SMALLEST = {"Erho2": 0.8, "Phi": 0.5}


def simulated(n_collections=40, a=3.0, s=0.3, b=0.7, slope=0.0, seed=1):
    """Return points about x^a with the standard deviation s (1 - x)^b."""
    rng = np.random.default_rng(seed)
    parts = []
    for name in range(n_collections):
        k, n = int(rng.integers(10, 100)), rng.choice([10, 20, 30], 40)
        x = rng.uniform(0.8, 0.995, 40)
        exponent = a * np.exp(slope * (np.log(k) - 3.5))
        y = np.minimum(x**exponent + s * (1 - x) ** b * rng.normal(size=40), 1.0)
        parts.append(pd.DataFrame({
            "collection": str(name), "n": n, "trial": 0, "Erho2": x, "Phi": x, "n_systems": k,
            "topic_share": rng.uniform(0.2, 0.8, 40), "tau": y,
        }))  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def test_the_spread_is_of_maximum_likelihood():
    rng = np.random.default_rng(2)
    away = rng.uniform(0.01, 0.3, 500)
    residual = 0.4 * away**0.6 * rng.normal(size=500)
    s, b = _fit_spread(away, residual)
    best = norm.logpdf(residual, scale=s * away**b).sum()
    for ds, db in ((1.01, 0.0), (0.99, 0.0), (1.0, 0.01), (1.0, -0.01)):
        assert norm.logpdf(residual, scale=s * ds * away ** (b + db)).sum() < best
    assert _fit_spread(away, residual * away**-1.2)[1] == 0.0  # no spread that grows towards 1
    assert _fit_spread(away, np.zeros(500)) == (0.0, 0.0)


def test_shrinking_curves_are_found():
    curve = curve_through(TAU, simulated(), SMALLEST, "shrinking")
    assert curve.exponent == pytest.approx(3.0, abs=4 * curve.bse)
    assert curve.sd_power == pytest.approx(0.7, abs=0.1)
    frame = curve.predict([0.8, 0.9, 0.99])
    width = (frame["obs_high"] - frame["obs_low"]).to_numpy()
    assert width[0] > 1.5 * width[1] > 2.25 * width[2]
    # weighted least squares are at their minimum
    x, y = simulated()["Erho2"], simulated()["tau"]
    squares = [(((1 - x) ** -curve.sd_power * (y - x**a)) ** 2).sum()
               for a in curve.exponent * np.array([0.999, 1.0, 1.001])]  # fmt: skip
    assert squares[1] < min(squares[0], squares[2])


def test_constant_variance_is_the_published_kind():
    points = simulated(b=0.0, s=0.02)
    plain = curve_through(TAU, points, SMALLEST)
    assert (plain.sd_power, dict(plain.slopes)) == (0.0, {})
    frame = plain.predict([0.85, 0.9])
    half = (frame["obs_high"] - frame["obs_low"]).to_numpy() / 2
    np.testing.assert_allclose(half, 1.96 * plain.resid_sd, rtol=0.02)


def test_features_move_the_exponent():
    curve = curve_through(TAU, simulated(slope=0.3), SMALLEST, "shrinking", ("n_systems",))
    error = np.sqrt(curve.covariance[1, 1])
    assert curve.slopes["n_systems"] == pytest.approx(0.3, abs=4 * error)
    assert error < 0.05
    assert curve.exponents({"n_systems": np.exp(3.5)}) == pytest.approx(3.0, rel=0.03)
    assert curve.at(0.9, {"n_systems": 80}) < curve.at(0.9) < curve.at(0.9, {"n_systems": 12})
    goal = curve.at(0.9, {"n_systems": 80})
    assert curve.required(goal, {"n_systems": 80}) == pytest.approx(0.9)
    at_mean = curve.predict(0.9).iloc[0]
    far = curve.predict(0.9, features={"n_systems": 1000}).iloc[0]
    # the delta method of the mean alone, and errors that grow away from it
    half = (at_mean["high"] - at_mean["low"]) / 2
    slope = abs(0.9**curve.exponent * np.log(0.9)) * curve.bse
    assert half == pytest.approx(2.0227 * slope, rel=1e-3)  # t(39)
    assert far["high"] - far["low"] > at_mean["high"] - at_mean["low"]
    with pytest.raises(PlanError, match="no feature 'n_topics'"):
        curve.at(0.9, {"n_topics": 50})


def test_left_out_collections_have_the_coverage_of_their_intervals():
    points = simulated(20, a=3.0)
    maps = {"tau": curve_through(TAU, points, SMALLEST)}
    study = MappingStudy(maps, {"tau": TAU}, points, SMALLEST)
    found = validate_mapping(study).set_index("kind")
    assert found.index.tolist() == ["published", "shrinking", "shrinking, features"]
    shrinking = found.loc["shrinking"]
    # 800 independent points, of which the tenth is at the top
    assert shrinking["coverage"] == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 800))
    assert shrinking["coverage_top"] == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 80))
    # a constant variance is too large at the top
    assert found["coverage_top"]["published"] > 0.98
    assert found["length"]["shrinking"] < found["length"]["published"]


def test_predictions_are_of_the_other_collections():
    points = simulated(4)
    maps = {"tau": curve_through(TAU, points, SMALLEST)}
    study = MappingStudy(maps, {"tau": TAU}, points, SMALLEST)
    row = validate_mapping(study, {"plain": {}}).iloc[0]
    errors = []
    for name in "0123":
        own = points["collection"] == name
        a = curve_through(TAU, points[~own], SMALLEST).exponent
        errors.append(points["Erho2"][own] ** a - points["tau"][own])
    errors = np.concatenate(errors)
    assert row["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert row["bias"] == pytest.approx(errors.mean())


def test_bad_options():
    rng = np.random.default_rng(1)
    few = [rng.normal(size=(40, 8)) + np.linspace(0, 2, 8) for _ in range(2)]
    options = {"drop_worst": 0.0, "trials": 3}
    with pytest.raises(PlanError, match="variance is 'constant' or 'shrinking'"):
        fit_mapping(few, "tau", variance="less", **options)
    with pytest.raises(PlanError, match=r"'n_topic' is not a feature.*mean 'n_topics'"):
        fit_mapping(few, "tau", features="n_topic", **options)
    with pytest.raises(PlanError, match="given twice"):
        fit_mapping(few, "tau", features=["n_topics", "n_topics"], **options)
    with pytest.raises(EstimationError, match="1 features need 3 collections"):
        fit_mapping(few, "tau", features="n_topics", **options)
    with pytest.raises(EstimationError, match="'n_systems' is the same in all points"):
        fit_mapping([*few, few[0]], "tau", features="n_systems", **options)
    study = fit_mapping(few, "tau", **options)
    with pytest.raises(EstimationError, match="needs three collections"):
        validate_mapping(study)
    more = fit_mapping([*few, *few], "tau", **options)
    words = "'shrinking, features' has 3 features: it needs 6 collections.*has 4; give kinds="
    with pytest.raises(EstimationError, match=words):
        validate_mapping(more)
    assert len(validate_mapping(more, {"plain": {}})) == 1
    with pytest.raises(PlanError, match="study is a result of fit_mapping"):
        validate_mapping(study.points)
    with pytest.raises(PlanError, match="unknown option 'sizes'"):
        validate_mapping(replace(study), {"own": {"sizes": 3}})


def test_points_at_a_limit_count():
    """Those with the least coefficient are used, and those at an end of their interval inside."""
    points = simulated(4, s=6.0)
    points["tau"] = points["tau"].clip(lower=-1.0)
    assert min((points["tau"] == 1.0).sum(), (points["tau"] == -1.0).sum()) > 3
    limits = {"Erho2": points["Erho2"].sort_values().iloc[5], "Phi": 0.5}
    maps = {"tau": curve_through(TAU, points, limits)}
    row = validate_mapping(MappingStudy(maps, {"tau": TAU}, points, limits), {"plain": {}}).iloc[0]
    used = points[points["Erho2"].rank() > 5]
    outside = 0
    for name, own in used.groupby("collection"):
        curve = curve_through(TAU, points[points["collection"] != name], limits)
        found, y = curve.predict(own["Erho2"]), own["tau"].to_numpy()
        outside += int(((y < found["obs_low"]) | (y > found["obs_high"])).sum())
    assert row["nobs"] == len(used) == len(points) - 5
    assert row["coverage"] == pytest.approx(1.0 - outside / len(used), rel=1e-12)


def test_a_feature_needs_three_more_collections():
    for n in (3, 4):
        points = simulated(n)
        study = MappingStudy({"tau": curve_through(TAU, points, SMALLEST)}, {"tau": TAU}, points,
                             SMALLEST)  # fmt: skip
        kinds = {"one": {"features": "n_systems"}}
        if n == 4:
            assert len(validate_mapping(study, kinds)) == 1
            continue
        with pytest.raises(EstimationError, match="'one' has 1 features: it needs 4 collections"):
            validate_mapping(study, kinds)


def test_the_top_is_the_tenth_with_the_largest_coefficients():
    found = pd.DataFrame({
        "collection": "one", "x": np.arange(11.0), "error": 0.0, "length": 1.0,
        "inside": [*[True] * 8, False, True, False],
    })  # fmt: skip
    assert _scores(found)["coverage_top"] == 0.5

"""Profile likelihood at the ends of ranges, of fixed effects, of a result, and in many designs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

import vcomp
from tests.helpers.altered_engines import Probing
from tests.helpers.dense_likelihood import DenseLikelihood
from tests.helpers.designs import DESIGNS, balanced, unbalanced
from tests.helpers.examples import examples
from tests.helpers.profile_models import Z, component, engine_of, fitted, one_way, two_way
from vcomp.estimators.likelihood import choose_engine
from vcomp.estimators.likelihood.iterative import IterativeLikelihood
from vcomp.exceptions import EstimationError, PlanError
from vcomp.inference.profile.constrained import (
    ConstraintSurface,
    LinearConstraint,
    RatioConstraint,
    SmoothConstraint,
    maximise_on,
    search_point,
)
from vcomp.inference.profile.profile import engine_without, profile_fixed_effect, profile_quantity

# Ends of ranges ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def without_a():
    """Groups that differ less than chance would have it."""
    rng = np.random.default_rng(8)
    y = rng.normal(size=(10, 6))
    y -= 0.9 * (y.mean(axis=1, keepdims=True) - y.mean())
    data = pd.DataFrame({"y": y.ravel(), "a": np.repeat(np.arange(10), 6)})
    model = vcomp.VarianceComponentsModel("y ~ (1|a)", data)
    return model, model.fit().vcomp.to_numpy()


def test_an_estimate_at_zero_has_an_upper_end(without_a):
    model, v = without_a
    assert v[0] == 0.0
    curve = profile_quantity(engine_of(model), v, component(0, 2), name="a")
    assert curve.low == 0.0
    assert "estimated at its bound 0" in curve.notes[0]
    dense = DenseLikelihood(model, reml=True)
    best = brentq(lambda e: dense.score(np.array([curve.high, e]))[1], 0.1, 10.0, rtol=1e-14)
    drop = 2.0 * (dense.loglike(v) - dense.loglike(np.array([curve.high, best])))
    assert drop == pytest.approx(Z**2, rel=1e-9)
    assert (np.diff(curve.z) > 0.0).all()


def test_infinite_ratios_are_turned_over(without_a):
    model, v = without_a
    a, e = np.eye(2)
    noise = profile_quantity(engine_of(model), v, RatioConstraint(e, a), name="e/a")
    signal = profile_quantity(engine_of(model), v, RatioConstraint(a, e))
    assert noise.estimate == noise.high == np.inf
    assert noise.low == pytest.approx(1.0 / signal.high, rel=1e-10)
    assert noise.interval(0.2)[0] == pytest.approx(1.0 / signal.interval(0.2)[1], rel=1e-8)
    assert "bound infinity" in noise.notes[0]
    of_error = profile_quantity(engine_of(model), v, RatioConstraint(e, np.ones(2)))
    assert of_error.high == of_error.estimate == 1.0
    assert of_error.low == pytest.approx(1.0 / (1.0 + signal.high), rel=1e-9)


def test_zero_that_is_not_excluded_is_the_end():
    model, v = two_way()
    curve = profile_quantity(engine_of(model), v, component(1, 3), name="topic")
    assert v[1] > 0.0
    assert curve.low == 0.0
    (note,) = curve.notes
    assert note.startswith("the data do not exclude 0 for topic: the lower end")
    # At a level that excludes it there is an end, and no more than one.
    low, high = curve.interval(0.9)
    assert 0.0 < low < v[1] < high < curve.high


def test_a_ratio_without_an_upper_end():
    model, v = two_way()
    ratio = RatioConstraint(np.eye(3)[0], np.eye(3)[1])
    curve = profile_quantity(engine_of(model), v, ratio, name="sys/topic")
    assert curve.high == np.inf
    assert "has no upper end" in curve.notes[-1]
    over = profile_quantity(
        engine_of(model), v, RatioConstraint(np.eye(3)[1], np.eye(3)[0]), name="topic/sys"
    )
    assert over.low == 0.0
    assert over.high == pytest.approx(1.0 / curve.low, rel=1e-8)
    assert np.isfinite(curve.theta).all()


def test_a_smooth_function_that_approaches_its_limit():
    model, v = two_way()
    share = SmoothConstraint(
        lambda x: x[1] / (x[1] + x[2]),
        lambda x: np.array([0.0, x[2], -x[1]]) / (x[1] + x[2]) ** 2,
        low=0.0,
        high=1.0,
    )
    exact = RatioConstraint(np.eye(3)[1], np.array([0.0, 1.0, 1.0]))
    a, b = (profile_quantity(engine_of(model), v, c, points=0) for c in (share, exact))
    assert a.low == b.low == 0.0
    assert a.high == pytest.approx(b.high, rel=1e-8)
    assert "do not exclude 0" in a.notes[0]


# Held components, fixed effects -----------------------------------------------------------------


def test_held_components_stay():
    formula, data = balanced("crossed")
    model = vcomp.VarianceComponentsModel(formula, data)
    v = model.fit(hold={"b": 1.5}).vcomp.to_numpy()
    held = np.array([False, True, False])
    engine = engine_of(model)
    total = profile_quantity(engine, v, LinearConstraint(np.ones(3)), held=held)
    assert (total.components[:, 1] == 1.5).all()
    assert total.low > 1.5
    share = profile_quantity(engine, v, RatioConstraint(np.eye(3)[0], np.ones(3)), held=held)
    assert 0.0 < share.low < share.estimate < share.high < 1.0
    with pytest.raises(EstimationError, match="does not depend on the estimated components"):
        profile_quantity(engine, v, component(1, 3), held=held)


def test_a_fixed_effect_against_dense_least_squares():
    model = one_way()
    res = model.fit("ml")
    curve = res.profile("x").curves["x"]
    dense = DenseLikelihood(model, reml=False)
    top = dense.loglike(res.vcomp.to_numpy())
    for b, z, v in zip(curve.theta, curve.z, curve.components, strict=True):
        _, _, _, covariance, beta = dense.matrices(v)
        # ℓ(v, b) = ℓ(v) − ½ (β̂ − b)²/Var β̂, its derivative by v zero.
        least = dense.loglike(v) - 0.5 * (beta[1] - b) ** 2 / covariance[1, 1]
        assert 2.0 * (top - least) == pytest.approx(z**2, abs=1e-8)
        np.testing.assert_allclose(dense_slopes(dense, v, b), 0.0, atol=1e-6)
    assert np.interp(curve.low, curve.theta, curve.z) == pytest.approx(-Z, abs=1e-5)


def dense_slopes(dense, v, b):
    """Return σ² times the derivatives of ℓ(v, b) by the components, by complex steps."""
    slopes = []
    for t in range(v.size):
        moved = v.astype(complex)
        moved[t] += 1e-30j
        _, _, _, covariance, beta = dense.matrices(moved)
        value = dense.loglike(moved) - 0.5 * (beta[1] - b) ** 2 / covariance[1, 1]
        slopes.append(v[t] * value.imag / 1e-30)
    return np.array(slopes)


def test_intervals_of_means_far_from_zero_keep_their_digits():
    formula, data = unbalanced("crossed")
    ends = []
    for shift in (0.0, 1e6):
        shifted = data.assign(y=data["y"] + shift)
        res = vcomp.fit(formula, shifted, method="ml")
        ends.append(res.profile("Intercept").conf_int().to_numpy() - shift)
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-8)


@pytest.mark.parametrize("engine", ["strata", "blocked"])
def test_a_model_with_a_given_effect_is_one_of_a_shifted_response(engine):
    formula, data = balanced("crossed")
    data["x"] = np.random.default_rng(1).normal(size=len(data))
    with_x = vcomp.VarianceComponentsModel(formula.replace("~", "~ x +"), data)
    given_x = vcomp.VarianceComponentsModel(formula, data.assign(y=data["y"] - 0.7 * data["x"]))
    whole = choose_engine(with_x.statistics, engine, reml=False)
    less = engine_without(whole, np.array([0.0, 1.0]), 0.7)
    expected = choose_engine(given_x.statistics, engine, reml=False)
    v = np.array([0.5, 1.5, 2.0])
    assert less.n_fixed == 1
    assert less.loglike(v) == pytest.approx(expected.loglike(v), rel=1e-12)
    np.testing.assert_allclose(less.derivatives(v).score, expected.derivatives(v).score, rtol=1e-9)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("n_fixed", [1, 2])
def test_levels_have_the_profile_of_elimination(twice, n_fixed):
    """By the holes of two facets, and by levels where cells have several scores."""
    formula, data = balanced("crossed")
    rng = np.random.default_rng(7)
    data = pd.concat([data] * (2 if twice else 1), ignore_index=True)
    data["y"] += rng.normal(size=len(data)) + 50.0
    data["x"] = rng.normal(size=len(data))
    data = data[rng.random(len(data)) < 0.85]
    model = vcomp.VarianceComponentsModel(
        formula.replace("~", "~ x +") if n_fixed == 2 else formula, data
    )
    v, sides = np.array([0.5, 1.5, 2.0]), []
    combination = np.array([0.5, -1.0])[-n_fixed:]
    for engine in ("levels", "blocked"):
        less = engine_without(
            choose_engine(model.statistics, engine, reml=False), combination, 0.7
        )
        assert less.name == engine
        assert less.n_fixed == n_fixed - 1
        sides.append((less.loglike(v), less.derivatives(v).score))
    assert sides[0][0] == pytest.approx(sides[1][0], rel=1e-11)
    np.testing.assert_allclose(sides[0][1], sides[1][1], rtol=1e-8)


# What is asked of a result ----------------------------------------------------------------------


def test_names_of_parameters():
    res = one_way().fit("ml")
    everything = res.profile(["Intercept", "x", "a", "var(Residual)"])
    assert list(everything.curves) == ["Intercept", "x", "a", "Residual"]
    frame = everything.frame
    assert list(frame.columns) == ["parameter", "value", "z"]
    assert set(frame["parameter"]) == set(everything.curves)
    ends = everything.conf_int()
    assert list(ends.columns) == [0, 1]
    np.testing.assert_array_equal(ends.loc[["a"]], res.profile("a").conf_int())
    assert list(res.profile().curves) == ["a", "Residual"]
    assert "low" in str(everything)


def test_refusals_of_a_result():
    model = one_way()
    reml = model.fit()
    with pytest.raises(EstimationError, match=r"restricted likelihood does not contain.*x.*ml"):
        reml.profile("x")
    with pytest.raises(
        EstimationError, match=r"'b' is neither a parameter.*Intercept, x.*a, Residual"
    ):
        reml.profile("b")
    with pytest.raises(PlanError, match="alpha"):
        reml.profile(alpha=1.5)
    with pytest.raises(EstimationError, match="what= names no parameter"):
        reml.profile([])
    with pytest.raises(EstimationError, match="does not maximise a likelihood"):
        model.fit("minque").profile()
    held = model.fit(hold={"a": 1.0})
    assert list(held.profile().curves) == ["Residual"]
    with pytest.raises(EstimationError, match="was held"):
        held.profile("a")
    with pytest.warns(vcomp.VcompWarning, match="Not converged"):
        early = model.fit(max_iter=0)
    with pytest.raises(EstimationError, match="the fit did not converge"):
        early.profile()
    constant = pd.DataFrame({"y": np.ones(6), "a": [0, 0, 1, 1, 2, 2]})
    with pytest.warns(vcomp.VcompWarning, match="the response is constant"):
        res = vcomp.fit("y ~ (1|a)", constant)
    with pytest.raises(EstimationError, match="constant"):
        res.profile()
    with pytest.raises(vcomp.VcompError, match="without its rows"):
        vcomp.VarianceComponentsResults.from_json(reml.to_json()).profile()


def test_refusals_of_a_quantity(without_a):
    model, v = without_a
    engine, both = engine_of(model), np.array([1.0, 0.0])
    with pytest.raises(EstimationError, match="random probes"):
        profile_quantity(Probing(model.statistics.cross_products, reml=True), v, component(0, 2))
    with pytest.raises(EstimationError, match="not a maximum"):
        profile_quantity(engine, 2.0 * v, component(0, 2))
    with pytest.raises(EstimationError, match="positive residual"):
        profile_quantity(engine, np.array([-1.0, 1.0]), component(0, 2))
    with pytest.raises(EstimationError, match="0/0"):
        profile_quantity(engine, v, RatioConstraint(both, 2.0 * both))
    with pytest.raises(EstimationError, match="does not depend on the estimated components"):
        profile_quantity(engine, v, LinearConstraint(np.zeros(2)))
    with pytest.raises(EstimationError, match="does not depend on the estimated components"):
        profile_quantity(engine, v, RatioConstraint(np.ones(2), 2.0 * np.ones(2)))
    with pytest.raises(EstimationError, match="must have non-negative weights"):
        RatioConstraint(both, -both)
    with pytest.raises(EstimationError, match="infinite at the estimates"):
        profile_quantity(engine, v, RatioConstraint(np.array([-1.0, 1.0]), both))
    ml = engine_of(model, reml=False)
    with pytest.raises(EstimationError, match="for all fixed effects"):
        profile_fixed_effect(ml, v, np.zeros(1))
    solving = IterativeLikelihood(model.statistics.cross_products, reml=False)
    with pytest.raises(EstimationError, match="no profile of fixed effects"):
        engine_without(solving, np.ones(1), 0.0)


def test_a_surface_without_components_is_refused():
    model, v = fitted("one way")
    engine = engine_of(model)
    below = ConstraintSurface(normal=lambda x: np.ones(2), gap=lambda x: -1.0 - x.sum())
    with pytest.raises(EstimationError, match="cannot be traced"):
        maximise_on(engine, search_point(engine, v), below, np.zeros(2, dtype=bool))


# Many designs -----------------------------------------------------------------------------------


@settings(max_examples=examples(12), deadline=None)
@given(
    name=st.sampled_from(sorted(DESIGNS)),
    seed=st.integers(0, 20),
    rows=st.sampled_from(["balanced", "unbalanced"]),
    weights=st.lists(st.sampled_from([0.0, 0.02, 1.0]), min_size=7, max_size=7),
)
def test_intervals_contain_the_estimate_and_end_at_the_level(name, seed, rows, weights):
    model, v = fitted(name, rows=rows, seed=seed)
    k, engine = v.size, engine_of(model)
    a, b = np.eye(k)[seed % k], np.array([*weights[: k - 1], 1.0])
    for constraint in (LinearConstraint(a + b), RatioConstraint(a, a + b)):
        if isinstance(constraint, RatioConstraint) and seed % k == k - 1 and not b[:-1].any():
            continue
        curve = profile_quantity(engine, v, constraint, points=5)
        assert curve.low <= curve.estimate <= curve.high
        assert (np.diff(curve.theta) > 0.0).all()
        assert (np.diff(curve.z) > -1e-6).all()
        top, limits = engine.loglike(v), constraint.range(v, np.zeros(k, dtype=bool))
        for theta, z, at in zip(curve.theta, curve.z, curve.components, strict=True):
            assert constraint.value(at) == pytest.approx(theta, rel=1e-9, abs=1e-12)
            assert 2.0 * (top - engine.loglike(at)) == pytest.approx(z**2, abs=1e-6)
        for end, level in ((curve.low, -Z), (curve.high, Z)):
            if end not in (limits.low, limits.high):
                nearest = np.argmin(np.abs(curve.theta - end))
                assert curve.theta[nearest] == pytest.approx(end, rel=1e-4)
                assert curve.z[nearest] == pytest.approx(level, abs=1e-3)

"""Profile likelihood against dense formulas, and what does not change it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import brentq

import vcomp
from tests.helpers.altered_engines import AverageOnly
from tests.helpers.dense_likelihood import DenseLikelihood
from tests.helpers.designs import balanced, unbalanced
from tests.helpers.profile_models import Z, component, engine_of, fitted, one_way, two_way
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.exceptions import EstimationError, PlanError
from vcomp.inference.profile import profile
from vcomp.inference.profile.constrained import (
    LinearConstraint,
    Range,
    RatioConstraint,
    SmoothConstraint,
)
from vcomp.inference.profile.profile import _Quantity, coordinate_of, profile_quantity

# Against dense formulas -------------------------------------------------------------------------


def scaled_profile(dense, share):
    """Return PL of a share in a model of two components: its scale has a closed form."""
    n, p = dense.X.shape
    v = np.array([share, 1.0 - share])
    degrees = n - p if dense.reml else n
    _, _, P, _, _ = dense.matrices(v)
    return dense.loglike(v * (dense.y @ P @ dense.y) / degrees)


@pytest.mark.parametrize("reml", [True, False])
@pytest.mark.parametrize("n_items", [1.0, 20.0])
def test_a_share_against_its_closed_form(reml, n_items):
    model = one_way()
    v = model.fit("reml" if reml else "ml").vcomp.to_numpy()
    dense = DenseLikelihood(model, reml=reml)
    a, error = np.array([1.0, 0.0]), np.array([0.0, 1.0 / n_items])
    curve = profile_quantity(engine_of(model, reml=reml), v, RatioConstraint(a, a + error))
    top = dense.loglike(v)

    def z_less(share):
        # v₁/(v₁ + v₂/n) = s has v₁/(v₁ + v₂) = s/(s + n(1 − s)).
        plain = share / (share + n_items * (1.0 - share))
        return np.sqrt(2.0 * max(top - scaled_profile(dense, plain), 0.0)) - Z

    low = brentq(z_less, 1e-6, curve.estimate, xtol=1e-15, rtol=1e-14)
    high = brentq(z_less, curve.estimate, 1.0 - 1e-9, xtol=1e-15, rtol=1e-14)
    assert (curve.low, curve.high) == pytest.approx((low, high), rel=1e-9)


@pytest.mark.parametrize("reml", [True, False])
@pytest.mark.parametrize("place", [0, 1])
def test_a_component_against_a_dense_profile(reml, place):
    model = one_way()
    v = model.fit("reml" if reml else "ml").vcomp.to_numpy()
    dense = DenseLikelihood(model, reml=reml)
    curve = profile_quantity(engine_of(model, reml=reml), v, component(place, 2))
    top = dense.loglike(v)

    def z_less(value):
        def at(other):
            return np.array([value, other] if place == 0 else [other, value])

        other = 1 - place
        best = brentq(lambda x: dense.score(at(x))[other], 1e-6, 1e4, xtol=1e-14, rtol=1e-14)
        return np.sqrt(2.0 * max(top - dense.loglike(at(best)), 0.0)) - Z

    for end, bracket in ((curve.low, (0.5 * curve.low, curve.estimate)),
                         (curve.high, (curve.estimate, 2.0 * curve.high))):  # fmt: skip
        assert end == pytest.approx(brentq(z_less, *bracket, rtol=1e-14), rel=1e-9)


def test_balanced_one_way_against_mean_squares():
    formula, data = balanced("one way", seed=2)
    model = vcomp.VarianceComponentsModel(formula, data)
    groups = data.groupby("a")["y"]
    a, n = groups.ngroups, len(data) // groups.ngroups
    between = n * float(((groups.mean() - data["y"].mean()) ** 2).sum())
    within = float(((data["y"] - groups.transform("mean")) ** 2).sum())

    def twice(q, e):
        """−2ℓ with q = nτ + σ: one χ² each."""
        return (a - 1) * np.log(q) + between / q + a * (n - 1) * np.log(e) + within / e

    e_hat, q_hat = within / (a * (n - 1)), between / (a - 1)
    least = twice(q_hat, e_hat)
    v = np.array([(q_hat - e_hat) / n, e_hat])
    error = profile_quantity(engine_of(model), v, component(1, 2))
    # While the component is above zero q is free, and the profile that of one χ².
    for end in (error.low, error.high):
        assert twice(q_hat, end) - least == pytest.approx(Z**2, rel=1e-9)
    odds = profile_quantity(
        engine_of(model), v, RatioConstraint(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    )
    for end in (odds.low, odds.high):
        factor = 1.0 + n * end
        e = (between / factor + within) / (a * n - 1)
        assert twice(factor * e, e) - least == pytest.approx(Z**2, rel=1e-9)


def test_a_profile_with_two_branches_is_the_higher_one():
    model, v = two_way()
    dense = DenseLikelihood(model, reml=True)
    ratio = RatioConstraint(np.array([0.0, 1.0, 0.0]), np.array([1.0, 0.0, 0.0]))
    curve = profile_quantity(engine_of(model), v, ratio)

    # On t/s = θ the likelihood has a second maximum, at s = t = 0. All of the surface, densely:
    # the scale has a closed form, and r = s/e is one number.
    def best(theta):
        values = []
        for r in np.concatenate([[0.0], np.geomspace(1e-6, 1e4, 400)]):
            w = np.array([r, theta * r, 1.0])
            _, _, P, _, _ = dense.matrices(w)
            values.append(dense.loglike(w * (dense.y @ P @ dense.y) / (dense.y.size - 1)))
        return max(values)

    drop = 2.0 * (dense.loglike(v) - best(curve.high))
    assert drop == pytest.approx(Z**2, abs=1e-3)
    assert best(0.8 * curve.high) > best(curve.high) > best(1.25 * curve.high)


def test_a_point_has_the_observed_information_of_components_above_zero():
    engine = BlockedLikelihood(two_way()[0].statistics.cross_products, reml=True)
    point = profile.search_point(engine, np.array([0.0, 0.5, 1.0]))
    whole = engine.information(point.v, "observed")
    assert np.isnan(point.observed[0]).all()
    assert np.isnan(point.observed[:, 0]).all()
    np.testing.assert_allclose(point.observed[1:, 1:], whole[1:, 1:], rtol=1e-12)


@pytest.mark.parametrize("is_held", [True, False])
def test_other_climbs_start_with_half_of_the_free_components_in_one(is_held, monkeypatch):
    model, v = two_way()
    engine, held = engine_of(model), np.array([False, False, is_held])
    total = LinearConstraint(np.array([1.0, 1.0, 0.0]))
    here, starts, onto = profile.search_point(engine, v), [], profile.rescaled
    monkeypatch.setattr(profile, "rescaled", lambda v, *of: starts.append(v) or onto(v, *of))
    quantity = profile._Quantity(engine, total, held, total.range(v, held), here, total.value(v))
    low = np.array([v[0], 0.0, v[2]])
    near = profile.Visit(v[0], 0.0, 0.0, low, profile.search_point(engine, low))
    quantity.other(1.5 * v[0], near)
    half = 0.5 * (v[0] if is_held else v[0] + v[2])
    np.testing.assert_allclose(starts, [v, [v[0], half, v[2]]], rtol=1e-15)


@pytest.mark.parametrize(
    ("name", "reml"),
    [
        ("crossed, replicated", True), ("crossed, replicated", False), ("three facets", True),
        ("deeply nested", False),
    ],
)  # fmt: skip
def test_points_of_a_curve_are_maxima_on_their_surface(name, reml):
    model, v = fitted(name, "reml" if reml else "ml", rows="unbalanced")
    dense, k = DenseLikelihood(model, reml=reml), v.size
    ratio = RatioConstraint(np.eye(k)[0], np.ones(k))
    curve = profile_quantity(engine_of(model, reml=reml), v, ratio)
    assert curve.theta.size >= 8
    for theta, z, at in zip(curve.theta, curve.z, curve.components, strict=True):
        assert ratio.value(at) == pytest.approx(theta, rel=1e-10, abs=1e-15)
        assert 2.0 * (dense.loglike(v) - dense.loglike(at)) == pytest.approx(z**2, abs=1e-7)
        if theta == 0.0:
            continue
        normal, score = ratio.surface(theta).normal(at), dense.score(at)
        inside = at > 0.0
        # s = λ a inside, s ≤ λ a at zero, in units of standard errors.
        units = 1.0 / np.sqrt(np.abs(np.diagonal(dense.expected(at))))
        multiplier = (normal[inside] * units[inside] ** 2 @ score[inside]) / (
            normal[inside] ** 2 @ units[inside] ** 2
        )
        rest = (score - multiplier * normal) * units
        np.testing.assert_allclose(rest[inside], 0.0, atol=1e-4)
        assert (rest <= 1e-4).all()


# What does not change an interval ---------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e-6, 1e5])
def test_units_of_the_response(factor):
    formula, data = unbalanced("crossed", 4)
    ends = []
    for scale in (1.0, factor):
        model = vcomp.VarianceComponentsModel(formula, data.assign(y=scale * data["y"] + 3.0))
        v, engine = model.fit().vcomp.to_numpy(), engine_of(model)
        constraints = [component(t, 3) for t in range(3)] + [LinearConstraint(np.ones(3))]
        curves = [profile_quantity(engine, v, c, points=0) for c in constraints]
        ends.append([[c.low, c.high] for c in curves])
    np.testing.assert_allclose(np.array(ends[1]), factor**2 * np.array(ends[0]), rtol=1e-8)


@pytest.mark.parametrize(
    ("name", "n_topics", "reml"),
    [("crossed", 50.0, True), ("nested", 1.0, True), ("nested", 50.0, False)],
)
def test_a_quantity_in_other_words(name, n_topics, reml):
    model, v = fitted(name, "reml" if reml else "ml")
    engine = engine_of(model, reml=reml)
    a, b = np.eye(3)[0], np.eye(3)[2] / n_topics

    def slope(x):
        return a / (a @ x) - b / (b @ x)

    odds = profile_quantity(engine, v, RatioConstraint(a, b), points=0)
    share = profile_quantity(engine, v, RatioConstraint(a, a + b), points=0)
    logs = profile_quantity(
        engine, v, SmoothConstraint(lambda x: np.log(a @ x / (b @ x)), slope), points=0
    )
    for end in ("estimate", "low", "high"):
        value = getattr(odds, end)
        assert getattr(share, end) == pytest.approx(value / (1.0 + value), rel=1e-9)
        assert np.exp(getattr(logs, end)) == pytest.approx(value, rel=1e-8)


def test_a_root_and_its_square():
    model, v = fitted("crossed")
    w = np.array([1.0, 0.0, 0.1])
    plain = profile_quantity(engine_of(model), v, LinearConstraint(w), points=0)
    root = profile_quantity(
        engine_of(model),
        v,
        SmoothConstraint(lambda x: np.sqrt(w @ x), lambda x: 0.5 * w / np.sqrt(w @ x), low=0.0),
        points=0,
    )
    assert (root.low**2, root.high**2) == pytest.approx((plain.low, plain.high), rel=1e-8)
    turned = profile_quantity(engine_of(model), v, LinearConstraint(-w), points=0)
    assert (-turned.high, -turned.low) == pytest.approx((plain.low, plain.high), rel=1e-10)


@pytest.mark.parametrize("name", ["crossed", "three facets", "crossed and nested"])
def test_engines_agree(name):
    model, v = fitted(name)
    strata, k = engine_of(model), v.size
    blocked = BlockedLikelihood(model.statistics.cross_products, reml=True)
    assert strata.name == "strata"
    for constraint in [component(0, k), RatioConstraint(np.eye(k)[0], np.ones(k))]:
        a, b = (profile_quantity(e, v, constraint, points=0) for e in (strata, blocked))
        assert (a.low, a.high) == pytest.approx((b.low, b.high), rel=1e-8)


def test_the_average_information_is_enough():
    model, v = fitted("crossed", rows="unbalanced")
    less = AverageOnly(model.statistics.cross_products, reml=True)
    for place in range(3):
        a, b = (
            profile_quantity(e, v, component(place, 3), points=0) for e in (engine_of(model), less)
        )
        assert (a.low, a.high) == pytest.approx((b.low, b.high), rel=1e-8)


def test_another_level_is_another_trace():
    model, v = fitted("crossed")
    engine = engine_of(model)
    curve = profile_quantity(engine, v, component(0, 3), points=0)
    assert curve.interval(0.05) == (curve.low, curve.high)
    for alpha in (1e-6, 0.01, 0.32, 0.9):
        fresh = profile_quantity(engine, v, component(0, 3), alpha=alpha, points=0)
        assert curve.interval(alpha) == pytest.approx((fresh.low, fresh.high), rel=1e-8)
    with pytest.raises(PlanError, match="alpha"):
        curve.interval(0.0)


@pytest.mark.parametrize(
    ("v", "held", "score", "expected"),
    [
        ([0.0, 0.0, 2.0], [False, False, False], [-3.0, -1.0, 0.0], -1.0),
        ([0.0, 0.0, 2.0], [False, True, False], [-3.0, -1.0, 0.0], -3.0),
        ([0.0, 1.0, 2.0], [False, True, False], [-3.0, -1.0, 0.0], -3.0),
        ([0.0, 0.0, 2.0], [False, False, False], [-3.0, 1.0, 0.0], 0.0),
        ([0.0, 1.0, 2.0], [False, False, False], [-3.0, -1.0, 0.0], 0.0),
        ([0.0, 0.0, 2.0], [True, True, False], [-3.0, -1.0, 0.0], 0.0),
    ],
)
def test_the_slope_at_a_bound_is_that_of_the_free_component_that_lowers_least(
    v, held, score, expected
):
    """Of σ²(1) + σ²(2); inside of the range the slope of the profile is zero."""
    here = SimpleNamespace(v=np.array(v), score=np.array(score))
    of = SimpleNamespace(
        constraint=LinearConstraint(np.array([1.0, 1.0, 0.0])), estimate=v[0] + v[1],
        here=here, held=np.array(held),
    )  # fmt: skip
    assert _Quantity._slope(of, 1.0) == expected


AT = {
    # a quantity, whose estimate is inside of its range or at its end 0, and what was held
    "sum": (LinearConstraint(np.array([1.0, 1.0, 0.0])), [0.8, 1.5, 2.0], [0, 0, 0]),
    "weighted, held": (LinearConstraint(np.array([2.0, 1.0, 0.5])), [0.8, 1.5, 2.0], [0, 1, 0]),
    "sum at 0": (LinearConstraint(np.array([1.0, 1.0, 0.0])), [0.0, 0.0, 2.0], [0, 0, 0]),
    "weighted at 0": (LinearConstraint(np.array([2.0, 0.5, 0.0])), [0.0, 0.0, 2.0], [0, 0, 0]),
    "share": (RatioConstraint(np.array([1.0, 0, 0]), np.array([1.0, 0.5, 0.1])), [0.8, 1.5, 2.0],
              [0, 0, 0]),
    "share at 0": (RatioConstraint(np.array([1.0, 0, 0]), np.array([1.0, 0.5, 0.1])),
                   [0.0, 1.5, 2.0], [0, 0, 0]),
    "share, held": (RatioConstraint(np.array([1.0, 1, 0]), np.array([1.0, 1, 3])), [0.8, 0.0, 2.0],
                    [1, 0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("name", AT)
@pytest.mark.parametrize("side", [-1.0, 1.0])
@pytest.mark.parametrize("level", [1e-4, 1.6])
def test_the_first_guess_is_the_end_of_a_parabola(name, side, level):
    """Its slope λ is that at a bound, and its curvature that of the information of what moves."""
    constraint, v, held = AT[name]
    v, held = np.array(v), np.array(held, dtype=bool)
    rng = np.random.default_rng(5)
    root = rng.normal(size=(3, 8))
    J, at_zero = root @ root.T, v == 0.0
    here = SimpleNamespace(v=v, average=J, score=np.where(at_zero, [-0.7, -0.3, 0.0], 0.0))
    theta = constraint.value(v)
    of = _Quantity(None, constraint, held, constraint.range(v, held), here, theta)
    if theta == 0.0 and side < 0.0:
        return
    denominator = getattr(constraint, "denominator", np.zeros(3))
    weights = getattr(constraint, "weights", getattr(constraint, "numerator", None))
    size = denominator @ v if denominator.any() else 1.0
    slope = (weights - theta * denominator) / size  # ∂θ/∂v
    moves = ~held & ((v > 0.0) | (side * slope > 0.0))
    a = slope[moves]
    V = a @ np.linalg.solve(J[np.ix_(moves, moves)], a)
    rises = moves & at_zero & (slope > 0.0)
    steepest = max(here.score[rises] / slope[rises], default=0.0) if theta == 0.0 else 0.0
    distance = of._distance(side, level)
    drop = steepest * distance - distance**2 / (2.0 * V)
    assert drop == pytest.approx(-0.5 * level**2, rel=1e-10)
    of.trace(0.1)
    reached = of.scale.theta_of(of.guess(side * level))[0]
    if level < 1e-3 or theta == 0.0:  # the scale is straight over so little
        assert reached - theta == pytest.approx(side * distance, rel=1e-3)
    assert side * (reached - theta) > 0.0


def test_a_quantity_that_nothing_moves_is_guessed_by_its_size():
    for v, size in (([0.5, 2.0], 0.5), ([0.0, 2.0], 2.0)):
        here = SimpleNamespace(v=np.array(v), average=np.zeros((2, 2)), score=np.zeros(2))
        plane = LinearConstraint(np.array([1.0, 0.0]))
        of = _Quantity(None, plane, np.array([True, False]), None, here, v[0])
        assert of._distance(1.0, 3.0) == 3.0 * size


@pytest.mark.parametrize(
    ("low", "high", "attained", "estimate", "distances", "centre", "unit"),
    [
        (-np.inf, np.inf, "", 3.0, (0.2, 0.7), 3.0, 0.7),
        (-np.inf, np.inf, "", 3.0, (0.9, 0.7), 3.0, 0.9),
        (0.0, np.inf, "", 3.0, (9.0, 8.0), 3.0, 3.0),
        (1.0, np.inf, "low", 3.0, (9.0, 0.4), 3.0, 2.0),
        (1.0, np.inf, "low", 1.1, (9.0, 0.4), 1.2, 0.2),  # half the distance to the upper end
        (1.0, np.inf, "", 1.0, (9.0, 0.4), 1.2, 0.2),
        (-np.inf, 5.0, "", 3.0, (9.0, 8.0), 3.0, 2.0),
        (-np.inf, 5.0, "high", 4.9, (0.4, 8.0), 4.8, 0.2),
        (-np.inf, 5.0, "", 5.0, (0.4, 8.0), 4.8, 0.2),
        (-2.0, 5.0, "", -2.0, (1.0, 20.0), 1.5, 1.0),  # not beyond the middle of the range
        (-2.0, 5.0, "", 5.0, (20.0, 1.0), 1.5, 1.0),
        (0.0, 1.0, "low high", 0.9, (0.3, 0.1), 0.85, 0.15 / 0.85),
        (0.0, 1.0, "low high", 0.02, (0.3, 0.1), 0.05, 0.95 / 0.05),
        (0.0, 1.0, "", 0.9, (0.3, 0.1), 0.9, 0.1 / 0.9),
    ],
)  # fmt: skip
def test_the_scale_of_a_trace(low, high, attained, estimate, distances, centre, unit):
    """About the estimate, or about what is next to it where an end of the range is attained."""
    zeros = [np.ones(2, dtype=bool) if end in attained else None for end in ("low", "high")]
    found = coordinate_of(Range(low, high, *zeros), estimate, *distances)
    assert (found.low, found.high) == (low, high)
    assert (found.centre, found.unit) == pytest.approx((centre, unit), rel=1e-12)
    assert [found.soft_low > 0.0, found.soft_high > 0.0] == [zero is not None for zero in zeros]


@pytest.mark.parametrize(("saturated", "converged"), [(True, True), (False, False), (True, False)])
def test_an_end_whose_maximum_is_not_found_is_refused(saturated, converged, monkeypatch):
    found = SimpleNamespace(saturated=saturated, converged=converged)
    monkeypatch.setattr(profile, "maximise", lambda *_, **__: found)
    zero = np.array([True, False])
    of = SimpleNamespace(
        span=SimpleNamespace(zero_low=zero, zero_high=None), held=~zero & False,
        engine=SimpleNamespace(sizes=(3,), n=9), here=SimpleNamespace(v=np.ones(2)),
    )  # fmt: skip
    with pytest.raises(EstimationError, match="components at zero was not found"):
        _Quantity.edge(of, -1.0)
    assert _Quantity.edge(of, 1.0) is None

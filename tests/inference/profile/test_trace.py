"""Ends of profile intervals by searches on profiles that are known as formulas."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import vcomp
from vcomp.estimators.likelihood.choose import choose_engine
from vcomp.exceptions import EstimationError, PlanError
from vcomp.inference.profile.constrained import Range
from vcomp.inference.profile.trace import (
    Coordinate,
    End,
    Trace,
    Visit,
    checked_maximum,
    signed_root,
    trace_curve,
)

INF = np.inf


# The scale ------------------------------------------------------------------------------------

SCALES = {
    "real": Coordinate(-INF, INF, 0.7, 0.4, 0.0, 0.0),
    "above": Coordinate(-2.0, INF, 1.0, 3.0, 0.0, 0.0),
    "above, soft": Coordinate(-2.0, INF, 1.0, 3.0, 0.05, 0.0),
    "below": Coordinate(-INF, 5.0, 1.0, 4.0, 0.0, 0.0),
    "below, soft": Coordinate(-INF, 5.0, 1.0, 4.0, 0.0, 0.05),
    "between": Coordinate(-1.0, 3.0, 0.5, 2.5 / 1.5, 0.0, 0.0),
    "between, soft": Coordinate(-1.0, 3.0, 0.5, 2.5 / 1.5, 0.02, 0.05),
}


def t_by_definition(at, theta):
    """Return log (o + κ) − log (1 + κ' o), o the odds of θ relative to those of the centre."""
    if np.isinf(at.low) and np.isinf(at.high):
        return (theta - at.centre) / at.unit
    above = 1.0 if np.isinf(at.low) else theta - at.low
    below = 1.0 if np.isinf(at.high) else at.high - theta
    of_centre = (1.0 if np.isinf(at.low) else at.centre - at.low) / (
        1.0 if np.isinf(at.high) else at.high - at.centre
    )
    odds = above / below / of_centre
    return np.log(odds + at.soft_low) - np.log(1.0 + at.soft_high * odds)


@pytest.mark.parametrize("name", SCALES)
def test_the_scale_is_the_logarithm_of_odds(name):
    at = SCALES[name]
    low, high = max(at.low, -6.0), min(at.high, 7.0)
    for theta in low + (high - low) * np.array([1e-6, 0.1, 0.3, 0.5, 0.77, 0.999]):
        t = t_by_definition(at, theta)
        assert at.t_of(theta) == pytest.approx(t, rel=1e-9, abs=1e-13)
        back, slope = at.theta_of(t)
        assert back == pytest.approx(theta, rel=1e-9, abs=1e-13)
        h = 1e-5 * min(theta - at.low, at.high - theta, 1.0)
        rate = (t_by_definition(at, theta + h) - t_by_definition(at, theta - h)) / (2.0 * h)
        assert slope == pytest.approx(1.0 / rate, rel=1e-5)


def test_places_next_to_an_end_keep_their_digits():
    low, high = (
        Coordinate(0.0, 4.0, 2.0, 1.0, 0.0, 0.0),
        Coordinate(-4.0, 0.0, -2.0, 1.0, 0.0, 0.0),
    )
    for t in (-40.0, -1.0, 0.0, 1.0):
        theta = low.theta_of(t)[0]
        assert theta == pytest.approx(4.0 / (1.0 + np.exp(-t)), rel=1e-14)
        assert high.theta_of(-t)[0] == pytest.approx(-theta, rel=1e-14)
    assert low.t_of(5.0) == INF  # beyond the end
    assert Coordinate(0.0, INF, 1.0, 1.0, 0.1, 0.0).theta_of(np.log(0.05))[0] == 0.0


# Profiles that are known ----------------------------------------------------------------------


class Known:
    """A profile whose signed root is a function of t that is zero at the centre's t."""

    def __init__(self, scale, z, rate, edges=(None, None)):
        self.scale, self.z, self.rate, self.edges = scale, z, rate, edges
        self.calls, self.asked = [], []

    def point(self, theta):
        t = t_by_definition(self.scale, theta)
        pace = self.scale.theta_of(t)[1]
        z = self.z(t - self.origin)
        return Visit(theta, z, -z * self.rate(t - self.origin) / pace, np.array([theta]), theta)

    @property
    def origin(self):
        return t_by_definition(self.scale, self.scale.centre)

    def visit(self, theta, near):
        self.calls.append((theta, near.theta))
        return self.point(theta)

    def edge(self, side):
        self.asked.append(side)
        z = self.edges[int(side > 0.0)]
        limit = self.scale.low if side < 0.0 else self.scale.high
        return None if z is None else Visit(limit, z, 0.0, np.array([limit]), limit)

    def trace(self, other=lambda theta, near: None):
        start = Visit(self.scale.centre, 0.0, 0.0, np.array([self.scale.centre]), None)
        return Trace(self.visit, self.edge, other, self.scale, [start])

    def root(self, level):
        t = brentq(lambda t: self.z(t) - level, -8.0, 8.0, xtol=1e-14) + self.origin
        return brentq(
            lambda theta: t_by_definition(self.scale, theta) - t,
            max(self.scale.low + 1e-12, -1e6), min(self.scale.high - 1e-12, 1e6), xtol=1e-14,
        )  # fmt: skip


SHAPES = {
    "linear": (lambda t: 1.3 * t, lambda t: 1.3),
    "bent": (lambda t: t + 0.08 * t * abs(t), lambda t: 1.0 + 0.16 * abs(t)),
    "steeper": (lambda t: np.sinh(1.5 * t) / 2.0, lambda t: 0.75 * np.cosh(1.5 * t)),
    "flatter": (lambda t: 4.0 * np.arcsinh(0.5 * t), lambda t: 2.0 / np.hypot(1.0, 0.5 * t)),
    "steps": (lambda t: t + 0.9 * np.sin(t), lambda t: 1.0 + 0.9 * np.cos(t)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("level", [-2.6, -1.0, 1.0, 2.6])
def test_ends_are_where_the_root_has_its_level(name, shape, level):
    """From any first guess, in few steps; within the bracket, and from points inside."""
    scale = SCALES[name]
    for guess in (0.8 * level, 20.0 * level, 0.01 * level, -level, 1e3 * level):
        if scale.soft_low or scale.soft_high:
            guess = float(np.clip(guess, -2.5, 2.5))
        of_shape = SHAPES[shape]
        edges = (-9.0 if scale.soft_low else None, 9.0 if scale.soft_high else None)
        known = Known(scale, *of_shape, edges)
        trace = known.trace()
        reachable = (
            t_by_definition(scale, scale.low + 1e-13) if scale.soft_low and level < 0 else -INF,
            t_by_definition(scale, scale.high - 1e-13) if scale.soft_high and level > 0 else INF,
        )
        wanted = brentq(lambda t, z=of_shape[0]: z(t) - level, -8.0, 8.0) + known.origin
        if not reachable[0] < wanted < reachable[1]:
            continue
        end = trace.crossing(level, guess)
        assert end.reached
        assert end.theta == pytest.approx(known.root(level), rel=1e-9, abs=1e-10)
        assert len(known.calls) <= (4 if shape == "linear" else 14)
        thetas = [v.theta for v in trace.visits]
        assert thetas == sorted(thetas)
        middle = scale.centre
        for k, (theta, near) in enumerate(known.calls):
            before = [middle, *(other for other, _ in known.calls[:k])]
            between = [x for x in before if min(middle, theta) <= x <= max(middle, theta)]
            # The nearest of the points between it and the estimate.
            assert near == min(between, key=lambda x: abs(scale.t_of(x) - scale.t_of(theta)))


@pytest.mark.parametrize("name", ["real", "above", "below", "between"])
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_trials_go_towards_the_level(name, side):
    """Without a bracket away from the estimate, but not far; within one, between its ends."""
    known = Known(SCALES[name], *SHAPES["bent"])
    trace = known.trace()
    for away in (0.0, 0.4, 2.0):
        inner = known.point(trace.coordinate.theta_of(known.origin + side * away)[0])
        a = t_by_definition(known.scale, inner.theta)
        for t in (a - 1e3, a - 0.01, a, a + 0.01, a + 2.5, a - 2.5, a + 1e3):
            trial = trace._safe(t, inner, None, 3.0 * side)
            assert 0.0 < side * (trial - a) <= 3.0 + abs(a) + 1e-9
            if 0.0 < side * (t - a) <= 3.0:
                assert trial == t
            else:  # half a unit towards the level, or as far as is allowed
                far = 0.5 if side * (t - a) <= 0.0 else 3.0 + abs(a)
                assert trial == pytest.approx(a + side * far, rel=1e-9, abs=1e-12)
        outer = known.point(trace.coordinate.theta_of(known.origin + side * (away + 2.0))[0])
        b = t_by_definition(known.scale, outer.theta)
        for share in (-9.0, 0.3, 9.0):
            t = a + share * (b - a)
            trial = trace._safe(t, inner, outer, 0.5 * (inner.z + outer.z))
            assert min(a, b) < trial < max(a, b)
            assert (trial == t) == (share == 0.3)
        for share in (
            0.05,
            0.15,
            0.3,
            0.8,
            0.95,
        ):  # of z, which is straight, unless next to an end
            level = inner.z + share * (outer.z - inner.z)
            expected = a + (share if 0.1 < share < 0.9 else 0.5) * (b - a)
            trial = trace._safe(b, inner, outer, level)
            assert trial == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_a_visited_point_is_not_computed_again():
    known = Known(SCALES["real"], *SHAPES["bent"])
    trace = known.trace()
    first = trace.at(2.0)
    assert trace.at(2.0) is first
    assert trace.at(0.7).theta == 0.7
    assert trace.at(-2.0).theta == -2.0
    assert [theta for theta, _ in known.calls] == [2.0, -2.0]
    again = trace.crossing(1.0, 1.0)
    assert trace.crossing(1.0, 1.0).theta == pytest.approx(again.theta, rel=1e-12)


@pytest.mark.parametrize("side", [-1.0, 1.0])
@pytest.mark.parametrize(("z", "reached"), [(1.9, False), (1.96, False), (1.97, True)])
def test_an_end_of_the_range_that_is_attained(side, z, reached):
    """It is the end of the interval unless it is beyond the level there."""
    scale = SCALES["between, soft"]
    wall = [
        t_by_definition(scale, end) - t_by_definition(scale, scale.centre)
        for end in (scale.low, scale.high - 1e-14)
    ][int(side > 0)]
    shape = (lambda t: z * t / abs(wall), lambda t: z / abs(wall))
    known = Known(scale, *shape, edges=(-z, z))
    trace = known.trace()
    end = trace.crossing(side * 1.96, side * 50.0)
    assert known.asked == [side]
    limit = scale.low if side < 0 else scale.high
    if reached:
        assert end.theta == pytest.approx(known.root(side * 1.96), rel=1e-8)
        assert abs(end.theta - limit) > 1e-4
    else:
        assert end == End(limit, reached=False)
    trace.crossing(side * 1.96, side * 50.0)
    assert known.asked == [side]  # it is known


@pytest.mark.parametrize("name", ["real", "above", "below", "between"])
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_root_that_never_gets_there(name, side):
    """The interval is open, or ends with the range."""
    scale = SCALES[name]
    known = Known(scale, lambda t: 1.9 * np.tanh(t), lambda t: 1.9 / np.cosh(t) ** 2)
    end = known.trace().crossing(side * 1.96, side * 2.0)
    assert end == End(scale.low if side < 0 else scale.high, reached=False)
    found = known.trace().crossing(side * 1.8, side * 2.0)
    assert found.reached
    assert found.theta == pytest.approx(known.root(side * 1.8), rel=1e-8)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_jump_across_the_level_is_no_end(side):
    """Another maximum takes over; a jump that is rounding is an end."""
    at = 0.7 + side * 1.5 * 0.4
    for jump, is_lost in ((0.5, True), (5e-4, False)):
        known = Known(
            SCALES["real"],
            lambda t, jump=jump: t + (np.sign(t) * jump if abs(t) > 1.5 else 0.0),
            lambda t: 1.0,
        )
        level = side * (1.5 + 0.5 * jump)
        if is_lost:
            word = "lower" if side < 0 else "upper"
            with pytest.raises(EstimationError, match=f"the search for the {word} end"):
                known.trace().crossing(level, level)
        else:
            assert known.trace().crossing(level, level).theta == pytest.approx(at, abs=1e-3)


# Two maxima -----------------------------------------------------------------------------------


class Branches:
    """Two maxima at each θ: z = θ, and z = side + 0.4 θ, the higher one from 5/3 on."""

    def __init__(self, side):
        self.side, self.calls = side, []

    def visit(self, theta, near):
        self.calls.append((theta, near.theta))
        return self.point(theta, near.point)

    def point(self, theta, branch):
        z = theta if branch == "own" else self.side + 0.4 * theta
        slope = -z * (1.0 if branch == "own" else 0.4)
        return Visit(theta, z, slope, np.array([theta]), branch)

    def trace(self):
        scale = Coordinate(-INF, INF, 0.0, 1.0, 0.0, 0.0)
        return Trace(
            self.visit,
            lambda side: None,
            lambda theta, near: self.point(theta, "other" if self.side * theta > 0 else "own"),
            scale,
            [self.point(0.0, "own")],
        )


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_of_two_maxima_the_higher_one_counts(side):
    of = Branches(side)
    trace = of.trace()
    end = trace.crossing(side * 1.96, side * 1.9)
    assert end.reached
    assert end.theta == pytest.approx(side * 2.4, rel=1e-9)
    assert trace.branched == {side}
    assert all(v.point == "other" for v in trace.visits if side * v.theta > 5 / 3)
    for theta in (0.5, 1.0, 1.5, 1.6, 1.7, 1.8, 2.0, 2.2, 3.0):
        z = min(theta, 1.0 + 0.4 * theta)
        known = sorted(side * v.theta for v in trace.visits if side * v.theta >= 0.0)
        of.calls.clear()
        assert trace.at(side * theta).z == pytest.approx(side * z, rel=1e-12)
        # Both maxima are traced: from the next point inside, and from the next one farther out.
        starts = [max(x for x in known if x <= theta), *[x for x in known if x > theta][:1]]
        assert of.calls == [(side * theta, side * start) for start in starts]
    assert trace.crossing(-side * 1.96, -side * 1.9).theta == pytest.approx(-side * 1.96)
    assert trace.branched == {side}
    z = [v.z for v in trace.visits]
    assert z == sorted(z)


def test_another_start_that_finds_the_same_or_less_changes_nothing():
    for excess in (0.0, 1e-7, 0.5):
        known = Known(SCALES["real"], *SHAPES["bent"])

        def other(theta, near, known=known, excess=excess):
            here = known.point(theta)
            z = here.z + np.sign(here.z) * (excess if excess > 0.01 else -excess)
            return Visit(theta, z, here.slope, here.v, None)

        trace = known.trace(other)
        for level in (-1.3, 1.3):
            assert trace.crossing(level, level).theta == pytest.approx(known.root(level), rel=1e-9)
        assert trace.branched == set()


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_search_that_is_led_astray_again_and_again_ends(side):
    known, calls = Known(SCALES["real"], *SHAPES["linear"]), []

    def other(theta, near):
        calls.append(theta)
        here = known.point(theta)
        return Visit(theta, 0.9 * here.z, here.slope, here.v, None)

    with pytest.raises(EstimationError, match="lower" if side < 0 else "upper"):
        known.trace(other).crossing(side * 2.0, side)
    assert len(calls) == 8


# Curves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["real", "above", "below", "between"])
@pytest.mark.parametrize("points", [3, 9, 20])
def test_a_curve_has_points_at_equal_distances(name, points):
    """On a scale on which z is linear, interpolated levels are exact."""
    scale = SCALES[name]
    known = Known(scale, *SHAPES["linear"])
    trace = known.trace()
    low, high = (trace.crossing(z, z).theta for z in (-1.5, 2.5))
    n = len(trace.visits)
    trace.fill(low, high, points)
    z = np.array([v.z for v in trace.visits])
    assert (np.diff(z) > 0.0).all()
    first, last = (known.point(end).z for end in (low, high))
    levels = np.linspace(first, last, points)
    off = np.abs(z[:, np.newaxis] - levels).min(axis=0)
    assert off.max() <= 0.5 * (last - first) / points * (1 + 1e-6)
    fresh = {theta for theta, _ in known.calls[n - 1 :]}
    assert len(fresh) <= points
    for theta in fresh:
        assert np.abs(known.point(theta).z - levels).min() < 1e-5
    before = len(known.calls)
    trace.fill(low, high, points)
    assert len(known.calls) == before


def test_a_single_visit_has_nothing_to_fill():
    known = Known(SCALES["real"], *SHAPES["linear"])
    trace = known.trace()
    centre = known.scale.centre
    trace.fill(centre, centre, 5)
    assert known.calls == []
    assert len(trace.visits) == 1


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_points_reach_an_end_at_zero(side):
    """Rounding errors are relative to an end, and zero has none."""
    span = (0.0, INF) if side < 0.0 else (-INF, 0.0)
    known = Known(Coordinate(*span, -side, 1.0, 0.1, 0.1), *SHAPES["linear"])
    trace = known.trace()
    z = known.z(known.scale.t_of(0.0) - known.origin)
    end = trace.add(Visit(0.0, z, 0.0, np.zeros(1), None))
    trace.fill(*sorted((0.0, -side)), 3)
    visited = np.array([v.z for v in trace.visits])
    assert np.abs(visited - 0.5 * end.z).min() <= abs(end.z) / 6.0


def curve_of(name, shape="linear", alpha=0.1, points=5, span=None, edges=(None, None)):
    scale = SCALES[name]
    known = Known(scale, *SHAPES[shape], edges)
    span = span or Range(scale.low, scale.high)
    return known, trace_curve(known.trace(), span, lambda z: z, "q", alpha, points)


def test_a_curve_and_its_intervals():
    known, curve = curve_of("above", "bent")
    z = norm.isf(0.05)
    assert (curve.low, curve.high) == (
        pytest.approx(known.root(-z), rel=1e-9), pytest.approx(known.root(z), rel=1e-9)
    )  # fmt: skip
    assert curve.interval(0.1) == (curve.low, curve.high)
    wider = norm.isf(0.005)
    assert curve.interval(0.01) == pytest.approx((known.root(-wider), known.root(wider)), rel=1e-9)
    with pytest.raises(PlanError, match="alpha"):
        curve.interval(0.0)
    assert curve.notes == ()
    assert curve.estimate == known.scale.centre
    # All points within half a unit of the level, in the order of θ.
    assert abs(curve.z).max() <= z + 0.5
    assert (np.diff(curve.theta) > 0.0).all()
    np.testing.assert_allclose(curve.z, [known.point(x).z for x in curve.theta], rtol=1e-12)
    np.testing.assert_array_equal(curve.components[:, 0], curve.theta)
    frame = curve.frame
    assert frame.columns.tolist() == ["parameter", "value", "z"]
    assert set(frame["parameter"]) == {"q"}
    np.testing.assert_array_equal(frame[["value", "z"]], np.column_stack([curve.theta, curve.z]))
    assert len(curve_of("above", "bent", points=0)[1].theta) < len(curve.theta)


def test_trials_far_beyond_an_end_are_left_out():
    scale = SCALES["real"]
    known = Known(scale, *SHAPES["linear"])
    made = trace_curve(known.trace(), Range(-INF, INF), lambda z: 3.0 * z, "q", 0.1, 0)
    z = norm.isf(0.05)
    tried = [known.point(theta).z for theta, _ in known.calls]
    assert max(np.abs(tried)) > z + 0.5
    kept = sorted([0.0, *(x for x in tried if abs(x) <= z + 0.5)])
    np.testing.assert_allclose(made.z, kept, atol=1e-13)


def test_the_reciprocal_of_a_curve():
    scale = Coordinate(0.0, INF, 2.0, 2.0, 0.0, 0.0)
    known = Known(scale, *SHAPES["bent"])
    curve = trace_curve(known.trace(), Range(0.0, INF), lambda z: z, "q", 0.05, 5)
    turned = curve.reciprocal()
    assert turned.estimate == 0.5
    assert (turned.low, turned.high) == pytest.approx((1 / curve.high, 1 / curve.low), rel=1e-12)
    np.testing.assert_allclose(turned.theta * curve.theta[::-1], 1.0)
    np.testing.assert_array_equal(turned.z, -curve.z[::-1])
    np.testing.assert_array_equal(turned.components, curve.components[::-1])
    low, high = curve.interval(0.2)
    assert turned.interval(0.2) == pytest.approx((1.0 / high, 1.0 / low), rel=1e-12)
    assert turned.name == "q"
    assert turned.alpha == 0.05


@pytest.mark.parametrize("end", ["low", "high"])
def test_what_is_said_of_ends(end):
    """An estimate at its bound, a bound that is not excluded, and no end."""
    at = 1.0
    span = Range(at, INF) if end == "low" else Range(-INF, at)
    low, high = span.low, span.high
    scale = Coordinate(-INF, INF, at, 1.0, 0.0, 0.0)
    known = Known(scale, *SHAPES["linear"])
    curve = trace_curve(known.trace(), span, lambda z: z, "q", 0.05, 0)
    assert (curve.low if end == "low" else curve.high) == at
    assert curve.notes == (
        (
            "q is estimated at its bound 1: the interval is one-sided, and its "
            "other end is where the likelihood ratio reaches the same χ² quantile"
        ),
    )
    assert len(known.calls) > 0
    assert (curve.high if end == "low" else curve.low) == pytest.approx(
        at + (1 if end == "low" else -1) * norm.isf(0.025) / 1.3
    )
    scale = Coordinate(low, high, at + (2.0 if end == "low" else -2.0), 2.0, 0.0, 0.0)
    known = Known(scale, lambda t: 1.9 * np.tanh(t), lambda t: 1.9 / np.cosh(t) ** 2)
    curve = trace_curve(known.trace(), span, lambda z: z, "q", 0.05, 0)
    word, sign = ("lower", "above") if end == "low" else ("upper", "below")
    other = "upper" if end == "low" else "lower"
    bound = (
        f"the data do not exclude 1 for q: the {word} end of the interval is the end of its range"
    )
    opened = (
        f"the interval of q has no {other} end: the likelihood stays above the level at all "
        f"values {sign} the estimate"
    )
    assert set(curve.notes) == {bound, opened}
    assert (curve.low, curve.high) == (low, high)


# The maximum ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("drop", "root"), [(0.5, 1.0), (8.0, 4.0), (0.0, 0.0), (-9e-8, 0.0)])
def test_signed_roots(drop, root):
    assert signed_root(2.0, drop) == root
    assert signed_root(-2.0, drop) == -root
    assert np.copysign(1.0, signed_root(-1e-9, drop)) == -1.0


def test_a_profile_above_the_maximum_is_refused():
    with pytest.raises(EstimationError, match=r"rises above the maximum .* \(by 1\.1e-07\)"):
        signed_root(1.0, -1.1e-7)


@pytest.mark.parametrize("distance", [0.0009, 0.0011, 0.3])
def test_components_have_to_be_a_maximum(distance):
    """Newton decrement, in standard errors, of components next to those of a fit."""
    rng = np.random.default_rng(4)
    a = np.repeat(np.arange(12), 5)
    data = {"a": a, "y": rng.normal(size=12)[a] + rng.normal(size=60)}
    model = vcomp.VarianceComponentsModel("y ~ (1|a)", data)
    engine = choose_engine(model.statistics, reml=True)
    v = np.asarray(model.fit("reml").vcomp)

    def decrement(x):
        score = engine.derivatives(x).score
        return np.sqrt(score @ np.linalg.solve(engine.information(x, "average"), score))

    assert decrement(v) < 1e-5
    moved = brentq(lambda s: decrement(v * np.array([1.0 + s, 1.0])) - distance, 1e-9, 1.0)
    x, held = v * np.array([1.0 + moved, 1.0]), np.zeros(2, dtype=bool)
    if distance < 1e-3:
        np.testing.assert_array_equal(checked_maximum(engine, x, held).v, x)
    else:
        with pytest.raises(EstimationError, match=f"it is {distance:.2g} standard errors away"):
            checked_maximum(engine, x, held)
    # A component that is held need not be at its maximum.
    assert checked_maximum(engine, v, np.array([True, False])) is not None
    for wrong in ([-0.1, 1.0], [0.5, 0.0]):
        with pytest.raises(EstimationError, match="non-negative components and a positive"):
            checked_maximum(engine, np.array(wrong), held)

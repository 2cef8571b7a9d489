"""Ends of profile intervals from those of quantities that are alike, against traced ones."""

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.quadratic import quadratic
from vcomp.inference.profile import (
    LinearConstraint,
    NearbyEnds,
    RatioConstraint,
    profile_quantity,
)
from vcomp.inference.profile.constrained import search_point
from vcomp.model.profiling import MaximisedLikelihood


def fitted(formula="y ~ (1|a) + (1|b) + (1|c) + (1|a:b) + (1|a:c)", *, effect=0.5, **options):
    rng = np.random.default_rng(1)
    a, b, c = map(np.ravel, np.indices((10, 12, 3)))
    y = rng.normal(size=10)[a] + rng.normal(size=12)[b] + 0.3 * rng.normal(size=3)[c]
    y += effect * rng.normal(size=(10, 12))[a, b] + 0.3 * rng.normal(size=(10, 3))[a, c]
    data = pd.DataFrame({"a": a, "b": b, "c": c, "y": y + rng.normal(size=a.size)})
    return vcomp.fit(formula, data[rng.random(len(data)) > 0.05], **options)


def constraints(n_b, n_c):
    """Return the absolute error variance, Eρ² and Φ of a plan."""
    absolute = np.array([0.0, 1 / n_b, 1 / n_c, 1 / n_b, 1 / n_c, 1 / n_b / n_c])
    relative = absolute * [0, 0, 0, 1, 1, 1]
    object_ = np.array([1.0, 0, 0, 0, 0, 0])
    return (
        LinearConstraint(absolute),
        RatioConstraint(object_, object_ + relative),
        RatioConstraint(object_, object_ + absolute),
    )


@pytest.mark.parametrize(
    ("effect", "options", "fewest"),
    [(0.5, {"method": "ml"}, 3), (0.0, {}, 2), (0.5, {"hold": {"c": 0.1}}, 3)],
)
def test_ends_are_those_of_traced_profiles(effect, options, fewest):
    likelihood = MaximisedLikelihood.of(fitted(effect=effect, **options)._row_access)
    nearby = likelihood.nearby_ends(0.1)
    engine, v, held = likelihood.engine, likelihood.estimate.values, likelihood.held
    found = 0
    for n_b, n_c in ((20, 2), (25, 2)):
        for constraint in constraints(n_b, n_c):
            curve = profile_quantity(engine, v, constraint, held=held, alpha=0.1, points=0)
            ends = nearby.interval(constraint)
            if ends is None:
                nearby.add(constraint, curve)
            else:
                found += 1
                np.testing.assert_allclose(ends, (curve.low, curve.high), rtol=1e-7)
    assert found >= fewest


def test_nothing_is_near_where_nothing_is_known():
    likelihood = MaximisedLikelihood.of(fitted()._row_access)
    assert likelihood.nearby_ends(0.05).interval(constraints(20, 2)[0]) is None


def test_ends_of_the_range_are_not_added():
    """A component at zero: the lower end of its profile is that of its range."""
    likelihood = MaximisedLikelihood.of(
        fitted("y ~ (1|a) + (1|b) + (1|a:b)", effect=0.0)._row_access
    )
    engine, v = likelihood.engine, likelihood.estimate.values
    constraint = LinearConstraint(np.array([0.0, 0.0, 1.0, 0.0]))
    curve = profile_quantity(engine, v, constraint, points=0)
    assert curve.notes
    nearby = NearbyEnds(engine, likelihood.held, curve.low)
    nearby.add(constraint, curve)
    assert not nearby.known


def test_plans_of_a_dstudy_have_the_intervals_of_each_alone():
    res = fitted()
    table = res.dstudy(b=[10, 20], c=[3], interval="profile").table
    for row in table.to_dict("records")[1:]:  # the first one is alone as well
        alone = res.dstudy(b=row["b"], c=row["c"], interval="profile").table.iloc[0]
        for name in ("Erho2", "Phi", "rel_err_var", "abs_err_var"):
            for end in ("low", "high"):
                assert row[f"{name}_{end}"] == pytest.approx(alone[f"{name}_{end}"], rel=1e-7)


# In quadratic log-likelihoods a region is an ellipsoid, whose extremes are known.

ROOT = np.random.default_rng(7).normal(size=(4, 9))
A, TOP, LEVEL = ROOT @ ROOT.T, np.array([9.0, 7.0, 8.0, 12.0]), -1.7
WEIGHTS = np.array([[1.0, 0.5, 0.0, 2.0], [1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0]])
RATIOS = [([1.0, 0, 0, 0], [1.0, 0.2, 0.0, 0.1]), ([0.3, 0, 2.0, 0], [0.0, 1.0, 0.0, 1.0])]


def ends_of(a, b, held, start):
    """Return the least and largest a'v / b'v, or a'v, with some components held.

    Those of a ratio are where (a − θb)'v has an extreme of zero (Fieller).
    """
    free = ~held
    J = A[np.ix_(free, free)]
    off = A[np.ix_(free, held)] @ (start - TOP)[held]
    centre = TOP.copy()
    centre[held] = start[held]
    centre[free] -= np.linalg.solve(J, off)
    height = -0.5 * (centre - TOP) @ A @ (centre - TOP) - LEVEL
    assert height > 0.0
    cov = np.zeros((4, 4))
    cov[np.ix_(free, free)] = 2.0 * height * np.linalg.inv(J)
    if b is None:
        half = np.sqrt(a @ cov @ a)
        return a @ centre - half, a @ centre + half
    of = [a @ centre, b @ centre]
    poly = [
        of[1] ** 2 - b @ cov @ b, -2.0 * (of[0] * of[1] - a @ cov @ b), of[0] ** 2 - a @ cov @ a,
    ]  # fmt: skip
    return tuple(np.sort(np.roots(poly).real))


QUANTITIES = [*((w, None) for w in WEIGHTS), *((np.array(a), np.array(b)) for a, b in RATIOS)]


@pytest.mark.parametrize("which", range(len(QUANTITIES)))
@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("average", [1.0, 0.6])
def test_ends_in_an_ellipsoid(which, is_held, average):
    a, b = QUANTITIES[which]
    constraint = LinearConstraint(a) if b is None else RatioConstraint(a, b)
    held, engine = np.array([False, is_held, False, False]), quadratic(A, TOP, average)
    start = TOP + np.array([0.0, 0.1, 0.0, 0.0])
    low, high = ends_of(a, b, held, start)
    nearby = NearbyEnds(engine, held, LEVEL)
    rng = np.random.default_rng(which)
    for side, end in ((-1.0, low), (1.0, high)):
        point = search_point(engine, start + 0.2 * ~held * rng.normal(size=4))
        step = nearby._step(point, constraint, side)
        assert step.length == pytest.approx(np.sqrt(average * step.d @ A @ step.d), rel=1e-12)
        np.testing.assert_array_equal(step.d[held], 0.0)
        if b is None:  # one step leads to the extreme
            there = search_point(engine, point.v + step.d)
            assert constraint.value(there.v) == pytest.approx(end, rel=1e-11)
            assert there.loglike == pytest.approx(LEVEL, rel=1e-11)
            nearby._points(constraint, side).append(there)
        else:
            for _ in range(30):
                point = search_point(engine, point.v + step.d)
                step = nearby._step(point, constraint, side)
            nearby._points(constraint, side).append(point)
    assert nearby.interval(constraint) == pytest.approx((low, high), rel=1e-9)


def test_ends_are_not_searched_from_far_away():
    constraint, engine = LinearConstraint(WEIGHTS[0]), quadratic(A, TOP)
    nearby = NearbyEnds(engine, np.zeros(4, dtype=bool), LEVEL)
    for side in (-1.0, 1.0):
        nearby._points(constraint, side).append(search_point(engine, TOP + 3.0))
    assert nearby.interval(constraint) is None


def test_there_is_no_step_without_a_concave_likelihood_or_out_of_the_range():
    constraint, free = LinearConstraint(WEIGHTS[0]), np.zeros(4, dtype=bool)
    for engine, top in (
        (quadratic(-A, TOP), TOP),  # convex
        (quadratic(A, TOP, observed=False), TOP),
        (quadratic(A, 0.05 * TOP), 0.05 * TOP),  # the end has components below zero
    ):
        point = search_point(engine, top)
        assert NearbyEnds(engine, free, LEVEL)._step(point, constraint, -1.0) is None
    engine = quadratic(A, TOP)
    nearby = NearbyEnds(engine, free, LEVEL)
    point = search_point(engine, TOP)
    assert nearby._step(point, LinearConstraint(np.zeros(4)), 1.0) is None
    # No point has a likelihood above the largest.
    assert NearbyEnds(engine, free, 1.0)._step(point, constraint, 1.0) is None
    assert nearby._step(point, constraint, 1.0) is not None
    # A component at zero stays there, unless it would move the end outwards.
    for slope in (-5.0, 5.0):
        tilted = TOP.copy()
        tilted[2] = 0.0
        at_zero = quadratic(np.eye(4), tilted + np.array([0.0, 0.0, slope, 0.0]))
        level = at_zero.derivatives(tilted).loglike - 1.0
        found = NearbyEnds(at_zero, free, level)._step(
            search_point(at_zero, tilted), constraint, 1.0
        )
        assert (found is None) is (slope > 0.0)
        if found is not None:
            assert found.d[2] == 0.0

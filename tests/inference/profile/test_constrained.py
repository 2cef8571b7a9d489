"""Maxima on a surface of quadratic log-likelihoods, whose active sets can be enumerated."""

from __future__ import annotations

from itertools import pairwise, product
from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers.quadratic import quadratic
from vcomp.estimators.likelihood.engine import Derivatives
from vcomp.exceptions import EstimationError
from vcomp.inference.profile.constrained import (
    ConstraintSurface,
    LinearConstraint,
    RatioConstraint,
    _Search,
    is_positive_within,
    maximise_on,
    rescaled,
    search_point,
)


def best_on(A, top, normal, shift, start, held):
    """Return the best v ≥ 0 with normal'v = shift, by enumeration of those at zero."""
    best, value = None, -np.inf
    for zeros in product([False, True], repeat=top.size):
        zero = np.array(zeros) & ~held
        free = ~zero & ~held
        v = np.where(held, start, 0.0)
        left = shift - normal @ v
        f = int(free.sum())
        if not normal[free].any():
            continue
        system = np.zeros((f + 1, f + 1))
        system[:f, :f] = A[np.ix_(free, free)]
        system[:f, f] = system[f, :f] = normal[free]
        right = (A @ (top - v))[free]
        v[free] = np.linalg.solve(system, np.append(right, left))[:f]
        gain = -0.5 * (v - top) @ A @ (v - top)
        if (v >= -1e-11).all() and gain > value:
            best, value = v, gain
    return best, value


CONSTRAINTS = {
    "sum": (LinearConstraint(np.array([1.0, 1.0, 1.0, 1.0])), 5.0),
    "weighted": (LinearConstraint(np.array([1.0, 0.0, 2.0, 0.25])), 3.0),
    "difference": (LinearConstraint(np.array([1.0, -1.0, 0.0, 0.0])), 0.7),
    "share": (
        RatioConstraint(np.array([1.0, 0.0, 0.0, 0.0]), np.array([1.0, 0.5, 1.0, 0.1])),
        0.4,
    ),
    "ratio": (
        RatioConstraint(np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.0, 0.0, 0.3, 1.0])),
        2.5,
    ),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("observed", [True, False])
@pytest.mark.parametrize("is_held", [False, True])
def test_the_maximum_on_a_surface_is_the_best_of_all_active_sets(name, seed, observed, is_held):
    constraint, theta = CONSTRAINTS[name]
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(4, 7))
    A, top = root @ root.T, rng.uniform(-0.5, 3.0, 4)
    held = np.array([False, is_held, False, False])
    start = rng.uniform(0.2, 2.0, 4)
    engine = quadratic(A, top, average=0.8, observed=observed)
    normal, shift = constraint_plane(constraint, theta)
    expected, value = best_on(A, top, normal, shift, start, held)
    assert expected is not None, "no components above zero are on the surface"
    found = maximise_on(engine, search_point(engine, start), constraint.surface(theta), held)
    np.testing.assert_allclose(found.v, expected, rtol=1e-5, atol=1e-6)
    assert found.loglike == pytest.approx(value, abs=1e-9)
    assert constraint.value(found.v) == pytest.approx(theta, rel=1e-9)
    inside = (found.v > 1e-9) & ~held
    across = constraint.surface(theta).normal(found.v)
    slope = A @ (top - found.v)
    if across[inside].any():
        np.testing.assert_allclose(slope[inside], found.multiplier * across[inside], atol=1e-4)


def constraint_plane(constraint, theta):
    """Return the plane of a constraint: a'v = θ b'v goes through zero."""
    if isinstance(constraint, LinearConstraint):
        return constraint.weights, theta
    return constraint.numerator - theta * constraint.denominator, 0.0


SURFACES = {
    "share": CONSTRAINTS["share"][0],
    "ratio": CONSTRAINTS["ratio"][0],
    "error over signal": RatioConstraint(
        np.array([0.0, 0.1, 0.0, 2.0]), np.array([3.0, 0.0, 0.0, 0.0])
    ),
}


@pytest.mark.parametrize("name", SURFACES)
@pytest.mark.parametrize("theta", [1e-6, 0.05, 0.4, 0.9, 0.999])
@pytest.mark.parametrize("held", [(), (1,), (2,)])
def test_components_are_rescaled_to_a_surface(name, theta, held):
    """By one factor for those that raise the quantity, and its inverse for those that lower it."""
    constraint, v = SURFACES[name], np.array([0.7, 2.0, 0.4, 5.0])
    keep = np.isin(np.arange(4), held)
    surface = constraint.surface(theta)
    found = rescaled(v, surface, keep)
    assert constraint.value(found) == pytest.approx(theta, rel=1e-11)
    slope = np.where(keep, 0.0, surface.normal(v))
    factors = found / v
    assert (factors > 0.0).all()
    np.testing.assert_array_equal(factors[slope == 0.0], 1.0)
    raises, lowers = factors[slope > 0.0], factors[slope < 0.0]
    np.testing.assert_allclose(raises, raises[0], rtol=1e-12)
    np.testing.assert_allclose(lowers, 1.0 / raises[0], rtol=1e-12)


@pytest.mark.parametrize("weights", [[1.0, 2.0, 0.0], [1.0, -3.0, 0.0], [-1.0, -1.0, 0.0]])
def test_components_are_rescaled_to_a_plane_in_one_step(weights):
    v, w = np.array([2.0, 1.0, 5.0]), np.array(weights)
    for theta in (7.0, 0.3, -0.2, -6.0):
        surface = LinearConstraint(w).surface(theta)
        if (theta > 0.0 and (w <= 0.0).all()) or (theta < 0.0 and (w >= 0.0).all()):
            with pytest.raises(np.linalg.LinAlgError, match="does not lead"):
                rescaled(v, surface, np.zeros(3, dtype=bool))
            continue
        found = rescaled(v, surface, np.zeros(3, dtype=bool))
        assert w @ found == pytest.approx(theta, rel=1e-13)
        assert (found > 0.0).all()
        assert found[2] == 5.0


def test_what_has_no_value_cannot_be_rescaled():
    nothing = np.zeros(2, dtype=bool)
    for normal, gap in ((np.nan, 1.0), (1.0, np.nan), (0.0, 1.0), (np.inf, 1.0)):
        surface = ConstraintSurface(
            lambda v, x=normal: np.full(2, x), lambda v, x=gap: x, is_flat=False
        )
        with pytest.raises(np.linalg.LinAlgError):
            rescaled(np.ones(2), surface, nothing)
    there = ConstraintSurface(lambda v: np.zeros(2), lambda v: 0.0, is_flat=False)
    assert rescaled(np.ones(2), there, nothing).tolist() == [1.0, 1.0]


def test_a_step_that_does_not_come_nearer_is_none():
    surface = ConstraintSurface(lambda v: np.ones(2), lambda v: 1.0, is_flat=False)
    search = SimpleNamespace(surface=surface)
    assert _Search._nearer(search, np.ones(2), np.full(2, -0.5), 1.0) is None


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_components_return_to_a_curved_surface_of_any_unit(unit):
    surface = ConstraintSurface(
        lambda v: unit * np.array([v[1], v[0], 0.0]), lambda v: unit * (2.0 - v[0] * v[1]),
        is_flat=False,
    )  # fmt: skip
    held = np.array([False, False, True])
    search = _Search(quadratic(np.eye(3), np.ones(3)), surface, held)
    for start in ([1.1, 1.6, 0.3], [3.0, 3.0, 0.3], [0.2, 9.0, 0.3], [-0.1, 5.0, 0.3]):
        found = search._returned(np.array(start))
        assert found[0] * found[1] == pytest.approx(2.0, rel=1e-13)
        assert found[2] == 0.3
        assert (found > 0.0).all()


@pytest.mark.parametrize("shift", [0.0, 0.3])
@pytest.mark.parametrize("observed", [True, False])
def test_steps_are_newtons_where_the_observed_information_is_known(shift, observed):
    """Of (J a; a' 0)(d, λ) = (s, shift), with the observed or the average information J."""
    rng = np.random.default_rng(6)
    root = rng.normal(size=(4, 9))
    A, top = root @ root.T, np.array([1.0, 2.0, 0.5, 3.0])
    held = np.array([False, True, False, False])
    engine = quadratic(A, top, average=0.6, observed=observed)
    v = top + np.array([0.02, 0.3, -0.01, 0.01])
    a = np.array([1.0, 5.0, -2.0, 0.5])
    surface = LinearConstraint(a).surface(float(a @ v) + shift)
    step = _Search(engine, surface, held)._step(search_point(engine, v), shift)
    free, J = ~held, A if observed else 0.6 * A
    system = np.zeros((4, 4))
    system[:3, :3] = J[np.ix_(free, free)]
    system[:3, 3] = system[3, :3] = a[free]
    expected = np.linalg.solve(system, np.append((A @ (top - v))[free], shift))
    np.testing.assert_allclose(step.d[free], expected[:3], rtol=1e-9)
    assert step.d[1] == 0.0
    assert step.multiplier == pytest.approx(expected[3], rel=1e-9)
    assert step.is_newton is observed


def test_no_step_is_said():
    """A likelihood whose score has the wrong sign."""
    engine = quadratic(np.eye(2), np.array([1.0, 3.0]))
    right = engine.derivatives

    def wrong(v):
        found = right(v)
        return Derivatives(found.loglike, -found.score, found.average)

    engine.derivatives = wrong
    engine.kinds = ("average",)
    start = search_point(engine, np.array([2.0, 1.0]))
    surface = LinearConstraint(np.ones(2)).surface(3.0)
    with pytest.raises(EstimationError, match="no step along it raises the likelihood"):
        maximise_on(engine, start, surface, np.zeros(2, dtype=bool))


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        ([[1.0, 0.0], [0.0, 1.0]], True),
        ([[1.0, -3.0], [-3.0, 1.0]], True),  # along (1, 1) only it is negative
        ([[1.0, 3.0], [3.0, 1.0]], False),
        ([[1.0, 1.0], [1.0, 1.0]], False),  # zero along (1, −1)
        ([[0.0, 0.0], [0.0, 1.0]], False),
        ([[1.0, np.nan], [np.nan, 1.0]], False),
        ([[-1.0, -5.0], [-5.0, 8.0]], True),
    ],
)
def test_a_matrix_is_positive_within_a_plane(matrix, expected):
    assert is_positive_within(np.array(matrix), np.ones(2)) is expected
    units = np.array([1e5, 1e-4])
    scaled = np.array(matrix) * np.outer(units, units)
    assert is_positive_within(scaled, units) is expected


def test_the_curvature_of_a_quadratic_surface_is_that_of_all_steps():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(3, 3))
    H = root + root.T
    surface = ConstraintSurface(
        lambda v: H @ v, lambda v: 1.0 - 0.5 * float(v @ H @ v), is_flat=False
    )
    engine = quadratic(np.eye(3), np.ones(3), average=1.0, observed=True)
    search = _Search(engine, surface, np.zeros(3, dtype=bool))
    path = [search_point(engine, v) for v in rng.uniform(0.5, 2.0, (4, 3))]
    for here, there in pairwise(path):
        search._update_curvature(here, there, 0.3)
    np.testing.assert_allclose(search.curvature, H, rtol=1e-9, atol=1e-10)

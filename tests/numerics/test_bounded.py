"""Steps above bounds: the conditions of a maximum, and the maximum by trying every active set."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from vcomp.numerics.dense import bounded_step, constrained_step


def by_enumeration(A, s, lower):
    """Return the best feasible stationary point over all choices of components at their bound."""
    best, best_gain = None, -np.inf
    for at_bound in product([False, True], repeat=s.size):
        fixed = np.array(at_bound)
        d = np.where(fixed, lower, 0.0)
        free = ~fixed
        if free.any():
            d[free] = np.linalg.solve(A[np.ix_(free, free)], s[free] - A[free] @ d)
        gain = s @ d - 0.5 * d @ A @ d
        if (d >= lower - 1e-12).all() and gain > best_gain:
            best, best_gain = d, gain
    return best, np.sqrt(2.0 * best_gain)


@pytest.mark.parametrize("seed", range(60))
def test_it_is_the_best_of_all_active_sets(seed):
    rng = np.random.default_rng(seed)
    m = rng.integers(1, 7)
    root = rng.normal(size=(m, m + 1))
    units = 10.0 ** rng.uniform(-4, 4, m)
    A = root @ root.T / np.outer(units, units)
    s = 3.0 * rng.normal(size=m) / units
    lower = -rng.choice([0.0, 0.1, 1.0], size=m) * units
    step, decrement = bounded_step(A, s, lower)
    expected, expected_decrement = by_enumeration(A, s, lower)
    assert (step >= lower).all()
    np.testing.assert_allclose(step / units, expected / units, rtol=1e-8, atol=1e-10)
    assert decrement == pytest.approx(expected_decrement, rel=1e-8, abs=1e-10)
    # Any unit of the response, and of each component: powers of two change no digit.
    u = 2.0 ** rng.integers(-60, 60, m)
    for unit in (2.0**-70, 1.0, 2.0**70):
        again, other = bounded_step(A / np.outer(u, u), unit * s / u, unit * lower * u)
        np.testing.assert_allclose(again / (u * unit), step, rtol=1e-13)
        assert other == pytest.approx(unit * decrement, rel=1e-13, abs=0.0)


def test_without_bounds_it_is_newtons_step():
    A, s = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([1.0, -2.0])
    step, decrement = bounded_step(A, s, np.array([-np.inf, -1e9]))
    np.testing.assert_allclose(step, np.linalg.solve(A, s), rtol=1e-12)
    assert decrement**2 == pytest.approx(s @ np.linalg.solve(A, s), rel=1e-12)


def test_a_flat_direction_has_a_finite_step():
    A, s = np.ones((2, 2)), np.array([1.0, 1.0])
    step, decrement = bounded_step(A, s, np.array([-1.0, -1.0]))
    assert step.sum() == pytest.approx(1.0, rel=1e-6)
    assert decrement == pytest.approx(1.0, rel=1e-6)


def test_a_component_without_information_falls_to_its_bound():
    step, decrement = bounded_step(
        np.diag([4.0, 0.0]), np.array([4.0, -1.0]), np.array([-1.0, -2.0])
    )
    np.testing.assert_allclose(step, [1.0, -2.0], rtol=1e-12)
    assert decrement**2 == pytest.approx(8.0, rel=1e-12)
    # Also where it has no part in a hyperplane, in which the first two are equal.
    step, _, decrement = constrained_step(
        np.diag([4.0, 4.0, 0.0]),
        np.array([4.0, 4.0, -1.0]),
        np.array([-1.0, -1.0, -2.0]),
        np.array([1.0, -1.0, 0.0]),
    )
    np.testing.assert_allclose(step, [1.0, 1.0, -2.0], rtol=1e-12)
    assert decrement**2 == pytest.approx(12.0, rel=1e-12)


def test_nothing_is_free():
    step, decrement = bounded_step(np.zeros((0, 0)), np.zeros(0), np.zeros(0))
    assert step.size == 0
    assert decrement == 0.0


def within_by_enumeration(A, s, lower, normal, shift):
    """Return the best feasible stationary point in the hyperplane, None if there is none."""
    best, best_gain = None, -np.inf
    for at_bound in product([False, True], repeat=s.size):
        fixed = np.array(at_bound)
        free, d = ~fixed, np.where(fixed, lower, 0.0)
        left = shift - normal @ d
        f = int(free.sum())
        if normal[free].any():
            system = np.zeros((f + 1, f + 1))
            system[:f, :f] = A[np.ix_(free, free)]
            system[:f, f] = system[f, :f] = normal[free]
            d[free] = np.linalg.solve(system, np.append((s - A @ d)[free], left))[:f]
        elif abs(left) > 1e-12:
            continue
        elif f:
            d[free] = np.linalg.solve(A[np.ix_(free, free)], (s - A @ d)[free])
        gain = s @ d - 0.5 * d @ A @ d
        if (d >= lower - 1e-11).all() and gain > best_gain:
            best, best_gain = d, gain
    return best


@pytest.mark.parametrize("seed", range(60))
def test_within_a_hyperplane_it_is_the_best_of_all_active_sets(seed):
    rng = np.random.default_rng(seed)
    m = rng.integers(1, 7)
    root = rng.normal(size=(m, m + 1))
    units = 10.0 ** rng.uniform(-3, 3, m)
    A = root @ root.T / np.outer(units, units)
    s = 3.0 * rng.normal(size=m) / units
    lower = -rng.choice([0.0, 0.1, 1.0], size=m) * units
    normal = rng.normal(size=m) * rng.choice([0.0, 1.0, 1.0], size=m) / units
    normal[0] = 1.0 / units[0]
    shift = rng.choice([0.0, 0.3, -0.3, -2.0])
    expected = within_by_enumeration(A, s, lower, normal, shift)
    if expected is None:
        with pytest.raises(np.linalg.LinAlgError, match="hyperplane"):
            constrained_step(A, s, lower, normal, shift)
        return
    step, multiplier, _ = constrained_step(A, s, lower, normal, shift)
    assert (step >= lower).all()
    np.testing.assert_allclose(step / units, expected / units, rtol=1e-7, atol=1e-9)
    assert normal @ step == pytest.approx(shift, abs=1e-12)
    u = 2.0 ** rng.integers(-60, 60, m)
    for unit in (2.0**-70, 1.0, 2.0**70):
        again, other, _ = constrained_step(
            A / np.outer(u, u), unit * s / u, unit * lower * u, normal / u, unit * shift
        )
        np.testing.assert_allclose(again / (u * unit), step, rtol=1e-13)
        assert other == pytest.approx(unit * multiplier, rel=1e-13, abs=0.0)
    if normal[step > lower].any():
        # Where a component is free, its score is the multiplier's share.
        rest = (s - A @ step - multiplier * normal) * units
        np.testing.assert_allclose(rest[step > lower], 0.0, atol=1e-7)
        assert (rest <= 1e-7).all()


@pytest.mark.parametrize("unit", [1.0, 1e-20, 1e20])
def test_components_of_a_hyperplane_leave_zero_in_pairs(unit):
    # d₁ = d₂ is kept from zero on: both rise together, as their mean score is positive.
    step, multiplier, decrement = constrained_step(
        np.eye(2), unit * np.array([3.0, -1.0]), np.zeros(2), np.array([1.0, -1.0])
    )
    np.testing.assert_allclose(step / unit, [1.0, 1.0], rtol=1e-12)
    assert multiplier == pytest.approx(2.0 * unit, rel=1e-12)
    assert (decrement / unit) ** 2 == pytest.approx(2.0, rel=1e-12)
    stays, _, _ = constrained_step(
        np.eye(2), unit * np.array([1.0, -3.0]), np.zeros(2), np.array([1.0, -1.0])
    )
    np.testing.assert_array_equal(stays, 0.0)


@pytest.mark.parametrize(
    ("score", "normal", "least", "most"),
    [
        ((1.0, -3.0, 2.0), (1.0, -1.0, 0.0), 1.0, 3.0),
        ((1.0, -3.0, -2.0), (1.0, -1.0, 0.0), 1.0, 3.0),
        ((2.0, -3.0, -2.0), (2.0, -1.0, 0.0), 1.0, 3.0),
        ((0.5, -6.0, 2.0), (0.5, -2.0, 0.0), 1.0, 3.0),
        ((-3.0, 2.0), (1.0, 0.0), -3.0, np.inf),
        ((-3.0, -2.0), (-1.0, 0.0), -np.inf, 3.0),
    ],
)
@pytest.mark.parametrize("unit", [1.0, 1e-20, 1e20])
def test_components_outside_of_a_hyperplane_leave_zero_alone(score, normal, least, most, unit):
    # The components of the hyperplane stay at zero, as s ≤ λa has solutions; the last is its own.
    zero = np.zeros(len(score))
    step, multiplier, _ = constrained_step(
        np.eye(zero.size), unit * np.array(score), zero, np.array(normal)
    )
    np.testing.assert_allclose(step[-1] / unit, max(score[-1], 0.0), rtol=1e-12)
    np.testing.assert_array_equal(step[:-1], 0.0)
    assert least <= multiplier / unit <= most
    assert np.isfinite(multiplier)


def test_the_step_to_a_hyperplane_goes_as_far_as_it_has_to():
    step, _, _ = constrained_step(
        np.eye(2), np.zeros(2), np.array([-np.inf, -0.25]), np.ones(2), -1.0
    )
    np.testing.assert_allclose(step, [-0.75, -0.25], rtol=1e-12)


def test_rounding_takes_no_component_below_its_bound():
    # The first move ends a digit below the bound; the next one, zero there, was 0/0 of the way.
    information = np.array(
        [
            [13552.136691631116, 1.4210854715202004e-14, 4517.378897210369],
            [1.4210854715202004e-14, -136.36776337570106, -27.273552675140216],
            [4517.378897210369, -27.273552675140216, 203956.19506241323],
        ]
    )
    score = np.array([-0.8819455916546133, -11.68683291765812, 185.13564610609512])
    lower = np.array([-0.010260572709766772, -0.08121254105403748, -0.004921291701773897])
    normal = np.array([-7.915010531208787, 1.0, 0.0])
    step, multiplier, _ = constrained_step(information, score, lower, normal)
    assert (step >= lower).all()
    assert normal @ step == pytest.approx(0.0, abs=1e-15)
    # The hyperplane meets the bounds of d₁ and d₂ in one point; d₃ is free.
    assert step[0] == lower[0]
    assert step[1] == pytest.approx(lower[1], rel=1e-12)
    rest = score - information @ step - multiplier * normal
    np.testing.assert_allclose(rest[1:], 0.0, atol=1e-9)
    assert rest[0] <= 0.0

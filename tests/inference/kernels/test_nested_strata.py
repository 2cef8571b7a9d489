"""Climbs over nested strata: derivatives, steps and ends."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import GRIDS, gridded
from vcomp.estimators.likelihood.strata_likelihood import StrataLikelihood
from vcomp.inference.kernels.nested_strata import (
    _bounded,
    _combined,
    _inverse,
    _suggested,
    climb_nested,
    nested_derivatives,
)
from vcomp.inference.resampling.draws import StrataDraws
from vcomp.inference.resampling.refits import Packed
from vcomp.numerics.parallel import stream

NESTED = sorted(name for name in GRIDS if "not nested" not in name)


def model(name, fixed=""):
    formula, data = gridded(name)
    return vcomp.VarianceComponentsModel(formula.replace("~ ", f"~ {fixed}"), data)


@pytest.mark.parametrize(("name", "fixed"), alternately(NESTED, "", "x + "))
@pytest.mark.parametrize("reml", [True, False])
def test_derivatives_are_those_of_the_engine(name, fixed, reml):
    of_data = model(name, fixed).statistics.strata
    rng = np.random.default_rng(0)
    for zero in (None, 0):
        v = rng.uniform(0.2, 3.0, of_data.n_terms + 1)
        if zero is not None:
            v[zero] = 0.0
        stats = StrataDraws(of_data).draw(v, stream(0, 1))
        packed, engine = Packed(of_data), StrataLikelihood(stats, reml=reml)
        ok, value, score, average, observed, beta = nested_derivatives(
            v, packed.tree, packed.filled(stats), packed.n_fixed, reml
        )
        exact = engine.derivatives(v)
        assert ok
        np.testing.assert_allclose(value, exact.loglike, rtol=1e-12)
        size = np.abs(exact.score).max()
        np.testing.assert_allclose(score, exact.score, rtol=0, atol=1e-11 * size)
        for found, kind in ((average, "average"), (observed, "observed")):
            wanted = engine.information(v, kind)
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11 * np.abs(wanted).max())
        np.testing.assert_allclose(beta, engine.fixed_effects(v)[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_bounded_steps_are_the_best_in_their_box(k):
    """Against all ways to be at some bounds, also where the information is singular."""
    rng = np.random.default_rng(k)
    for trial in range(30):
        A = rng.normal(size=(k, k if trial % 2 else max(k - 1, 1)))
        information, lower = A @ A.T, -rng.uniform(0.0, 1.0, k) * rng.integers(0, 2, k)
        score = information @ rng.normal(size=k)  # within its range
        best = 0.0
        for at in itertools.product((False, True), repeat=k):
            free = ~np.array(at)
            d = np.where(free, 0.0, lower)
            left = score[free] - information[np.ix_(free, ~free)] @ lower[~free]
            d[free] = np.linalg.lstsq(information[np.ix_(free, free)], left, rcond=1e-10)[0]
            if (d >= lower - 1e-9).all():
                best = max(best, score @ d - 0.5 * d @ information @ d)
        step, length = _bounded(information, score, lower, np.ones(k, dtype=bool))
        assert (step >= lower - 1e-12).all()
        gain = score @ step - 0.5 * step @ information @ step
        # A ridge of 1e-14 leaves few digits of a singular step.
        rel = 1e-9 if trial % 2 or k == 1 else 1e-3
        assert gain == pytest.approx(best, rel=rel, abs=1e-12)
        assert length == pytest.approx(np.sqrt(2.0 * max(gain, 0.0)), rel=rel, abs=1e-6)
        # A step of other lengths is as long as they are.
        if trial % 2:
            small, _ = _bounded(information, 1e-8 * score, 1e-8 * lower, np.ones(k, dtype=bool))
            np.testing.assert_allclose(small, 1e-8 * step, rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_inverses_and_determinants(k):
    """Scaled by the diagonal; what is not positive definite, or nearly so, is refused."""
    rng = np.random.default_rng(k)
    A = rng.normal(size=(k, k))
    matrix = (A @ A.T + 0.1 * np.eye(k)) * np.outer(10.0 ** np.arange(k), 10.0 ** np.arange(k))
    ok, log_det, inverse = _inverse(matrix, 0.0)
    assert ok
    np.testing.assert_allclose(inverse @ matrix, np.eye(k), atol=1e-8)
    np.testing.assert_allclose(inverse, np.linalg.inv(matrix), rtol=1e-8)
    assert log_det == pytest.approx(np.linalg.slogdet(matrix)[1], rel=1e-12)
    assert not _inverse(-matrix, 0.0)[0]
    assert not _inverse(np.full((k, k), np.nan), 0.0)[0]
    smallest = np.linalg.eigvalsh(matrix / np.sqrt(np.outer(*[np.diagonal(matrix)] * 2)))[0]
    assert _inverse(matrix, -0.999 * smallest)[0]
    assert not _inverse(matrix, -1.001 * smallest)[0]


def test_singular_matrices_have_no_inverse():
    for matrix in (
        [[0.0]],
        [[1.0, 0.0], [0.0, 0.0]],
        [[1.0, 1.0], [1.0, 1.0]],
        [[4.0, 2], [2, 1]],
    ):
        assert not _inverse(np.array(matrix), 0.0)[0]
        assert _inverse(np.array(matrix) + np.eye(len(matrix)), 0.0)[0]
        assert _inverse(np.array(matrix), 1e-3)[0] is (0.0 not in np.diagonal(matrix))


@pytest.mark.parametrize(
    ("own", "log_det", "known"), [(2.0, 0.3, True), (-2.0, 0.3, False), (2.0, np.inf, False)]
)
@pytest.mark.parametrize("reml", [True, False])
def test_a_likelihood_needs_a_positive_matrix_and_a_finite_value(own, log_det, known, reml):
    """Of y'V⁻¹y = 5 and one column of X with x'V⁻¹y = 1."""
    sums = (
        np.ones(2), np.eye(2), np.array([[5.0, 1.0], [1.0, own]]), np.ones((2, 2, 2)),
        np.ones((2, 2, 2, 2)),
    )  # fmt: skip
    ok, value, *_, beta = _combined(log_det, 7.0, sums, reml)
    assert ok == known
    if known:
        deviance = log_det + 4.5 + (np.log(2.0) + 6.0 * np.log(2.0 * np.pi) if reml
                                    else 7.0 * np.log(2.0 * np.pi))  # fmt: skip
        assert value == pytest.approx(-0.5 * deviance, rel=1e-14)
        assert beta == pytest.approx([0.5], rel=1e-14)


FREE = np.zeros(3, dtype=bool)


def symmetric(rng, k=3):
    A = rng.normal(size=(k, k + 2))
    return A @ A.T


def test_newton_steps_are_suggested_close_to_a_maximum_inside():
    """Where the observed information is positive definite; else those of the average one."""
    rng = np.random.default_rng(1)
    average, observed = symmetric(rng), symmetric(rng)
    v, near = np.array([3.0, 2.0, 1.0]), 0.01 * average @ rng.normal(size=3)
    average_step, newton_step = (np.linalg.solve(A, near) for A in (average, observed))
    length = np.sqrt(near @ average_step)
    assert length < 0.05
    step, decrement = _suggested(v, near, average, observed, FREE, 1e-8)
    np.testing.assert_allclose(step, newton_step, rtol=1e-9)
    assert decrement == pytest.approx(np.sqrt(near @ newton_step), rel=1e-9)
    for far, at, matrix in (
        (1.001 * 0.05 / length, v, observed),
        (1.0, v, observed - 2.0 * np.linalg.eigvalsh(observed)[-1] * np.eye(3)),
        (1.0, np.array([3.0, 0.0, 1.0]), observed),  # at a bound, with a score that leads inside
    ):
        score = far * near * np.sign(average_step[1])
        step, decrement = _suggested(at, score, average, matrix, FREE, 1e-8)
        np.testing.assert_allclose(step, np.linalg.solve(average, score), rtol=1e-9)
        assert decrement == pytest.approx(far * length, rel=1e-9)
    # A component that stays at its bound, or is held, does not keep others from Newton's steps.
    score = near.copy()
    score[1] = -1.0
    for held, second in ((FREE, 0.0), (np.array([False, True, False]), 2.0)):
        at = np.array([3.0, second, 1.0])
        step, _ = _suggested(at, score, average, observed, held, 1e-8)
        expected = np.linalg.solve(observed[::2, ::2], score[::2])
        np.testing.assert_allclose(step, [expected[0], 0.0, expected[1]], rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-5, 1.0, 1e5])
@pytest.mark.parametrize(("score", "moves"), [(0.5e-8, False), (2e-8, True)])
def test_a_component_at_zero_moves_for_a_score_above_the_tolerance(unit, score, moves):
    """In units of its standard error, whatever those of the response are."""
    sd = unit * np.array([2.0, 3.0, 1.0])
    v, score = np.array([3.0, 0.0, 1.0]) / unit, sd * np.array([1e-3, score, 1e-3])
    step, _ = _suggested(v, score, np.diag(sd**2), np.diag(sd**2), FREE, 1e-8)
    np.testing.assert_allclose(step, score / sd**2 * np.array([1.0, moves, 1.0]), rtol=1e-12)


def test_a_step_leaves_a_tenth_of_the_residual():
    step, _ = _suggested(np.ones(3), np.full(3, -1e3), np.eye(3), np.eye(3), FREE, 1e-8)
    np.testing.assert_allclose(step, [-1.0, -1.0, -0.9], rtol=1e-12)


def climb(start, held=FREE, known=None, seed=1):
    """Return a climb for drawn scores of a crossed table, and its likelihood by the engine."""
    strata = model("crossed").statistics.strata
    stats = StrataDraws(strata).draw(np.ones(3), stream(3, seed))
    packed, none = Packed(strata), (np.zeros(0), np.zeros(0))
    likelihood = packed.tree, packed.filled(stats), packed.n_fixed, True
    made = climb_nested(np.asarray(start), (held, 1e-8, 100), likelihood, known or none)
    return *made, StrataLikelihood(stats, reml=True)


def test_a_climb_to_a_known_maximum_is_given_up():
    ended, top, found, _ = climb(np.ones(3))
    assert ended == 1
    assert (top > 0.0).all()
    assert found[2] == pytest.approx(0.0, abs=1e-6)
    units = np.full(3, 50.0)
    for away, end in ((0.0, -1), (0.2, -1), (-0.2, -1), (0.5, 1), (-0.5, 1)):
        known = top.copy()
        known[1] += away / units[1]
        ended, there, _, _ = climb(1.001 * top, known=(known, units))
        assert ended == end
        if end == 1:
            np.testing.assert_allclose(there, top, rtol=1e-6)


def test_a_climb_ends_at_once_where_nothing_moves_or_without_a_residual():
    start = np.array([0.4, 0.0, 0.7])
    ended, v, found, engine = climb(start, held=~FREE)
    assert ended == 1
    assert v.tolist() == start.tolist()
    assert found[1] == pytest.approx(engine.loglike(start), rel=1e-13)
    for start in ([1.0, 1.0, 1e-30], [1e3, 1e3, 5e-28]):
        ended, v, _, _ = climb(start)
        assert ended == 0
        assert v.tolist() == start


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_only_free_component_ends_at_zero_where_it_lowers_the_likelihood(seed):
    held = np.array([False, True, True])
    _, _, derived, engine = climb([0.0, 40.0, 40.0], held=held, seed=seed)
    assert derived[2][0] < 0.0
    ended, v, derived, _ = climb([1e-20, 40.0, 40.0], held=held, seed=seed)
    assert ended == 1
    assert v.tolist() == [0.0, 40.0, 40.0]
    assert derived[1] == pytest.approx(engine.loglike(v), rel=1e-13)


@pytest.mark.parametrize("term", [0, 1])
@pytest.mark.parametrize("reml", [True, False])
def test_a_component_that_is_nothing_ends_at_zero(reml, term):
    """From the maximum, but for a component that is a little above its bound."""
    whole = model("crossed")
    draws, packed = StrataDraws(whole.statistics.strata), Packed(whole.statistics.strata)
    v = np.where(np.arange(3) == term, 0.0, 1.0)
    assert whole.statistics.strata.n_terms == 2
    ends = set()
    for b in range(12):
        stats = draws.draw(v, stream(3, b))
        likelihood = packed.tree, packed.filled(stats), packed.n_fixed, reml
        rule, none = (FREE, 1e-8, 100), (np.zeros(0), np.zeros(0))
        ended, top, found = climb_nested(v + 0.1, rule, likelihood, none)
        assert ended == 1
        at_bound = top[term] == 0.0
        ends.add(bool(at_bound))
        # So little that the likelihood is the same to its last digit.
        little = top.copy()
        little[term] += 1e-18 / np.sqrt(found[3][term, term]) if at_bound else 0.0
        ended, again, derived = climb_nested(little, rule, likelihood, none)
        assert ended == 1
        np.testing.assert_array_equal(again == 0.0, top == 0.0)
        np.testing.assert_allclose(again, top, rtol=1e-7)
        exact = StrataLikelihood(stats, reml=reml).loglike(again)
        assert derived[1] == pytest.approx(exact, rel=1e-12)
    assert ends == {True, False}

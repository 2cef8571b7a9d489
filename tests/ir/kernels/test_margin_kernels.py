"""Quantiles of kernel estimates, tables and distances against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from vcomp.ir.kernels.quantile_tables import (
    distances,
    effects_at,
    kernel_quantiles,
    scores_from_effects,
    scores_from_margins,
    scores_from_steps,
)

Z = np.linspace(-6.0, 6.0, 241)


@settings(deadline=None)
@given(
    st.lists(st.floats(-0.9, 0.9), min_size=2, max_size=30),
    st.floats(0.003, 2.0),
    st.sampled_from([(-1.0, 1.0), (-0.9, 3.0), (-5.0, 0.95)]),
)
@example([-0.5, -0.2, 0.5], 0.01, (-1.0, 1.0))
@example([0.85, -0.9], 0.3, (-0.9, 3.0))
def test_kernel_quantiles_have_their_probabilities(x, h, ends):
    x = np.array(x)
    q = kernel_quantiles(x, h, *ends, Z)

    def tail(t, sign):
        return ndtr(sign * (np.atleast_1d(t)[:, None] - x) / h).mean(axis=1)

    mass = 1.0 - tail(ends[0], 1) - tail(ends[1], -1)
    lower, upper = (tail(q, 1) - tail(ends[0], 1)) / mass, (tail(q, -1) - tail(ends[1], -1)) / mass
    # Halley steps of 1e-4 widths leave about their cube, where the density is at most .4 a width.
    np.testing.assert_allclose(np.where(Z > 0, upper, lower), ndtr(-np.abs(Z)), rtol=0, atol=1e-11)
    assert (np.diff(q) >= 0).all()
    assert ends[0] <= q[0] <= q[-1] <= ends[1]


@pytest.mark.parametrize("h", [0.004, 0.3])
@pytest.mark.parametrize("unit", [2.0**-40, 2.0**40])
def test_quantiles_follow_the_unit(h, unit):
    x = np.array([-0.5, -0.1, 0.0, 0.45, 0.9])
    found = kernel_quantiles(unit * x, unit * h, -unit, unit, Z)
    expected = unit * kernel_quantiles(x, h, -1.0, 1.0, Z)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * h * unit)


def test_far_quantiles_keep_their_digits():
    x, h = np.array([0.0, 0.1]), 0.05
    q = kernel_quantiles(x, h, -np.inf, np.inf, np.array([-6.0, 6.0]))
    np.testing.assert_allclose(ndtr((q[0] - x) / h).mean(), ndtr(-6.0), rtol=1e-7)
    np.testing.assert_allclose(ndtr((x - q[1]) / h).mean(), ndtr(-6.0), rtol=1e-7)


@pytest.fixture
def drawn():
    rng = np.random.default_rng(5)
    tables = np.sort(rng.normal(size=(3, 31)), axis=1)
    return rng.normal(scale=3.0, size=(50, 3)), tables, rng.normal(size=50), rng.normal(size=3)


GRID = np.linspace(-6.0, 6.0, 31)


def looked_up(z, tables):
    return np.column_stack([np.interp(z[:, s], GRID, tables[s]) for s in range(z.shape[1])])


@pytest.mark.parametrize("smoothing", [-1.0, 0.05, 0.0])
def test_scores_from_effects(drawn, smoothing):
    z, tables, topics, systems = drawn
    out = np.empty_like(z)
    scores_from_effects(z, topics, systems, tables, -6.0, 2.5, smoothing, out)
    sums = systems + topics[:, None] + looked_up(z, tables)
    expected = sums
    if smoothing >= 0:  # as R's invlogit(p, a) of the paper's code
        e = np.exp(sums)
        expected = np.clip((e + smoothing * e - smoothing) / (1.0 + e), 0.0, 1.0)
    np.testing.assert_allclose(out, expected, rtol=1e-13, atol=1e-14)


def test_margins_are_on_straight_lines_between_entries(drawn):
    z, tables, _, _ = drawn
    out = np.empty_like(z)
    scores_from_margins(z, tables, -6.0, 2.5, out)
    np.testing.assert_allclose(out, looked_up(z, tables), rtol=1e-13, atol=1e-14)
    np.testing.assert_array_equal(effects_at(tables[1], z[:, 1], -6.0, 2.5), out[:, 1])


def test_steps(drawn):
    z, _, _, _ = drawn
    limits = np.array([[-1.0, 0.0, 2.0], [-np.inf, 0.5, np.inf], [0.0, 0.0, 0.0]])
    support = np.array([0.0, 0.25, 0.5, 1.0])
    out = np.empty_like(z)
    scores_from_steps(z, limits, support, out)
    expected = [[support[(limits[s] < v).sum()] for s, v in enumerate(row)] for row in z]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("n", [4, 7, 30])
def test_distances(n):
    rng = np.random.default_rng(n)
    values = np.sort(rng.normal(size=(5, n)).round(1), axis=1)  # with ties
    values[0, 0], values[1, -1] = -1.0, 1.5  # the ends of the table
    values.sort(axis=1)
    points = np.sort(np.append(rng.normal(size=5), [-1.0, 1.5]))
    table = 0.1 + 0.8 * np.linspace(0.0, 1.0, 21) ** 2
    found = distances(values, points, table, -1.0, 1.5)
    for sample, omega2 in zip(values, found, strict=True):
        where = points if n < 7 else sample
        F = np.interp(where, np.linspace(-1.0, 1.5, 21), table, left=0.0, right=1.0)
        G = np.array([(sample <= t).mean() for t in where])
        assert omega2 == pytest.approx(((F - G) ** 2).mean(), rel=1e-12)

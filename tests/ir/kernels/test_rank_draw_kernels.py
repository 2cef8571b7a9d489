"""Kernels of drawn rankings against loops over pairs, and Student's distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import t as student

from vcomp.ir.kernels.rank_agreement import (
    _counted_agreement,
    _drawn_agreement,
    drawn_agreement,
    drawn_expectation,
    pair_agreement,
    student_cdf,
)


def sign(d, threshold):
    return int(d > threshold) - int(d < -threshold)


def slow_agreement(x, y, threshold):
    """Return the four sums of one draw, pair by pair."""
    sums = np.zeros(4)
    for i in range(1, x.size):
        for j in range(i):
            in_test, in_truth = sign(x[j] - x[i], threshold), sign(y[j] - y[i], threshold)
            sums += [
                in_test * in_truth, in_test * in_truth / i, abs(in_truth), abs(in_test),
            ]  # fmt: skip
    return sums


@pytest.mark.parametrize("threshold", [0.0, 0.25])
@pytest.mark.parametrize("step", [1e-6, 0.125])
def test_agreement_equals_a_loop(threshold, step):
    """Also where many differences are exactly the threshold."""
    rng = np.random.default_rng(1)
    x, y = (rng.normal(size=(2, 20, 9)) / step).round() * step
    y = -np.sort(-y, axis=1)
    found = drawn_agreement(x, y, threshold)
    expected = [slow_agreement(*row, threshold) for row in zip(x, y, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
    counts = pair_agreement(x, y, np.full(20, threshold), np.full(20, threshold))
    np.testing.assert_array_equal(found[:, [0, 3, 2]], counts)
    # The loop of larger tables, which starts from scratch at each of them.
    np.testing.assert_allclose(_drawn_agreement(x, y, threshold), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("digits", [1, 8])
@pytest.mark.parametrize("threshold", [0.0, 0.25])
def test_counting_by_sorting_equals_a_loop(threshold, digits):
    rng = np.random.default_rng(3)
    for k in (2, 3, 17, 40):
        y = np.sort(rng.normal(size=(6, k)).round(digits), axis=1)[:, ::-1]
        x = (y + rng.normal(size=y.shape)).round(digits)
        found = _counted_agreement(x, y, threshold)
        expected = [slow_agreement(*row, threshold) for row in zip(x, y, strict=True)]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("threshold", [0.0, 0.25])
def test_expectation_is_the_mean_over_normal_tests(threshold):
    """Against normal probabilities of each pair, by the standard library."""
    rng = np.random.default_rng(2)
    m, k = 5, 6
    y = -np.sort(-rng.normal(size=(m, k)), axis=1)
    y[0, 2] = y[0, 1]  # two systems that are truly the same
    y[1], y[2] = (-np.sort(-rng.integers(0, 6, k)) / 8.0 for _ in range(2))  # some at 1/4
    order = np.argsort(rng.random((m, k)), axis=1)
    s = rng.uniform(0.5, 2.0, (k, k))
    s = s + s.T
    for i, j in ((0, 3), (1, 2), (2, 4), (0, 5)):
        s[order[1, i], order[1, j]] = s[order[1, j], order[1, i]] = 0.0
    with np.errstate(divide="ignore"):
        precision = 1.0 / (math.sqrt(2.0) * s)
    scales = rng.uniform(1.0, 4.0, m)
    found = drawn_expectation(y, order, precision, scales, threshold)

    def below(z, deviation):
        """Return P(N(0, deviation²) < z)."""
        if deviation == 0.0:  # at a threshold it is a tie, without one half a swap
            return 0.5 if z == threshold == 0.0 else float(z > 0)
        return 0.5 * math.erfc(-z / deviation / math.sqrt(2.0))

    for row in range(m):
        sums = np.zeros(4)
        for i in range(1, k):
            for j in range(i):
                d = y[row, j] - y[row, i]
                deviation = s[order[row, i], order[row, j]] / scales[row]
                ahead, behind = below(d - threshold, deviation), below(-d - threshold, deviation)
                unequal = float(d > threshold or threshold == 0.0)
                agreement = unequal * (ahead - behind)
                sums += [agreement, agreement / i, unequal, ahead + behind]
        np.testing.assert_allclose(found[row], sums, rtol=0, atol=1e-13)


@pytest.mark.parametrize("df", [2, 3, 4, 5, 12, 49, 500])
def test_student_is_scipys(df):
    """All but one degree of freedom, of which scipy loses digits near zero."""
    x = np.concatenate([np.linspace(-40, 40, 401), [-1e200, 1e-9, 0.0, 1e200]])
    np.testing.assert_allclose(student_cdf(x, df), student.cdf(x, df), rtol=0, atol=1e-12)
    assert student_cdf(np.array([-np.inf, np.inf]), df).tolist() == [0.0, 1.0]


def test_student_of_one_and_two_degrees_of_freedom_in_closed_form():
    x = np.array([-7.0, -0.2, 0.0, 3.5])
    np.testing.assert_allclose(student_cdf(x, 1), 0.5 + np.arctan(x) / np.pi, atol=1e-15)
    np.testing.assert_allclose(student_cdf(x, 2), 0.5 + x / 2 / np.sqrt(2 + x * x), atol=1e-15)

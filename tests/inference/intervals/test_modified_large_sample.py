"""Interval ends against exact distributions, and against the published formulas term by term."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.helpers.examples import examples
from vcomp.inference.intervals.closed_forms import feldt_interval
from vcomp.inference.intervals.component_squares import MeanSquares
from vcomp.inference.intervals.modified_large_sample import _reach, linear_limits, ratio_limits
from vcomp.inference.quantities import TwoWayMeanSquares


def squares(values, df, correlation=None):
    k = len(values)
    R = np.eye(k) if correlation is None else np.array(correlation)
    return MeanSquares(
        np.eye(k), np.arange(k), np.array(values, float), np.array(df, float), R, np.zeros(k)
    )


def f_upper(tail, n, m):
    return stats.f.isf(tail, n, m) if np.isfinite(m) else stats.chi2.isf(tail, n) / n


def ting_lower(c, S, df, tail):
    """Return Ting et al.'s lower limit, Graybill and Wang's where no coefficient is negative.

    Burdick and Graybill (1992), section 3.3, with loops as printed.
    """
    G = [1 - 1 / f_upper(tail, n, np.inf) for n in df]
    H = [1 / f_upper(1 - tail, n, np.inf) - 1 for n in df]
    plus = [i for i in range(len(c)) if c[i] > 0]
    minus = [i for i in range(len(c)) if c[i] < 0]
    V = sum((G[q] * c[q] * S[q]) ** 2 for q in plus)
    V += sum((H[r] * c[r] * S[r]) ** 2 for r in minus)
    for q in plus:
        for r in minus:
            F = f_upper(tail, df[q], df[r])
            pair = ((F - 1) ** 2 - G[q] ** 2 * F**2 - H[r] ** 2) / F
            V += pair * c[q] * -c[r] * S[q] * S[r]
    if minus:
        for i, q in enumerate(plus):
            for t in plus[i + 1 :]:
                n, m = df[q], df[t]
                both = (1 - 1 / f_upper(tail, n + m, np.inf)) ** 2 * (n + m) ** 2 / (n * m)
                star = both - G[q] ** 2 * n / m - G[t] ** 2 * m / n
                V += star / (len(plus) - 1) * c[q] * c[t] * S[q] * S[t]
    return np.dot(c, S) - np.sqrt(max(V, 0))


@settings(max_examples=examples(60), deadline=None)
@given(
    c=st.lists(st.floats(-3, 3).filter(lambda x: abs(x) > 1e-3), min_size=4, max_size=4),
    S=st.lists(st.floats(0.01, 100), min_size=4, max_size=4),
    df=st.lists(st.integers(1, 200), min_size=4, max_size=4),
    alpha=st.sampled_from([0.01, 0.05, 0.2]),
)
def test_the_published_formulas(c, S, df, alpha):
    low, high = linear_limits(squares(S, df), np.array([c]), alpha)
    scale = np.abs(c) @ S
    assert low[0] == pytest.approx(ting_lower(c, S, df, alpha / 2), rel=1e-9, abs=1e-9 * scale)
    opposite = -np.array(c)
    upper = -ting_lower(opposite, S, df, alpha / 2)
    assert high[0] == pytest.approx(upper, rel=1e-9, abs=1e-9 * scale)


@pytest.mark.parametrize("df", [1, 7, 400])
def test_one_mean_square_has_the_exact_interval(df):
    low, high = linear_limits(squares([3.0], [df]), np.array([[2.0]]), 0.1)
    expected = 6.0 * df / stats.chi2.isf([0.05, 0.95], df)
    np.testing.assert_allclose([low[0], high[0]], expected, rtol=1e-12)


@settings(max_examples=examples(50), deadline=None)
@given(
    S=st.lists(st.floats(0.1, 50), min_size=2, max_size=2),
    df=st.lists(st.integers(1, 500), min_size=2, max_size=2),
    w=st.lists(st.floats(0.01, 20), min_size=3, max_size=3),
)
def test_a_ratio_of_two_mean_squares_has_the_exact_interval(S, df, w):
    """ρ = (a λ₁ − b λ₂)/(c λ₂) is a monotone function of λ₁/λ₂, which F gives exactly."""
    a, b, c = w
    low, high = ratio_limits(squares(S, df), np.array([[a, -b]]), np.array([[0.0, c]]), 0.05)
    F = S[0] / S[1] / stats.f.isf([0.025, 0.975], df[0], df[1])
    expected = np.maximum((a * F - b) / c, 0.0)
    np.testing.assert_allclose([low[0], high[0]], expected, rtol=1e-8, atol=1e-8 * a / c)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_two_way_tables_have_feldts_interval(alpha):
    table = TwoWayMeanSquares("sys", "topic", 30, 50, 0.150737, 0.852955, 0.0101522)
    S = squares([table.ms_rows, table.ms_residual], [29, 29 * 49])
    low, high = ratio_limits(S, np.array([[1 / 50, -1 / 50]]), np.array([[0.0, 1.0]]), alpha)
    np.testing.assert_allclose([low[0], high[0]], feldt_interval(table, alpha), rtol=1e-10)


def test_a_ratio_and_its_inverse_have_the_same_interval():
    S, a, b = squares([5.0, 2.0, 1.0], [9, 19, 171]), [[1.0, 0.0, -1.0]], [[0.0, 1.0, 2.0]]
    low, high = ratio_limits(S, np.array(a), np.array(b), 0.05)
    below, above = ratio_limits(S, np.array(b), np.array(a), 0.05)
    np.testing.assert_allclose([1 / high[0], 1 / low[0]], [below[0], above[0]], rtol=1e-9)


def test_many_ratios_at_once_are_those_one_by_one():
    rng = np.random.default_rng(3)
    S = squares([5.0, 2.0, 1.0, 0.4], [9, 19, 171, 400])
    a, b = rng.normal(size=(40, 4)), rng.uniform(0.1, 1.0, size=(40, 4))
    together = ratio_limits(S, a, b, 0.05)
    apart = [ratio_limits(S, a[i : i + 1], b[i : i + 1], 0.05) for i in range(40)]
    for end in range(2):
        np.testing.assert_allclose(together[end], [x[end][0] for x in apart], rtol=1e-9)


def test_a_denominator_that_may_be_nothing_leaves_no_upper_limit():
    S = squares([1.0, 1.05, 1.0], [5, 5, 100])
    low, high = ratio_limits(S, np.array([[1.0, 0, 0]]), np.array([[0, 1.0, -1.0]]), 0.05)
    assert 0.0 < low[0] < np.inf
    assert high[0] == np.inf


def test_correlation_moves_the_limits_towards_those_of_one_variable():
    """Two mean squares with correlation 1 and equal df are one: sums have its exact interval."""
    S = squares([2.0, 2.0], [10, 10], [[1.0, 1.0], [1.0, 1.0]])
    low, high = linear_limits(S, np.array([[1.0, 1.0]]), 0.05)
    one = linear_limits(squares([4.0], [10]), np.array([[1.0]]), 0.05)
    np.testing.assert_allclose([low[0], high[0]], [one[0][0], one[1][0]], rtol=1e-12)
    low, high = linear_limits(squares([2.0, 2.0], [10, 10]), np.array([[1.0, 1.0]]), 0.05)
    assert one[0][0] < low[0] < 4.0 < high[0] < one[1][0]


def test_corrections_of_pairs_shrink_with_their_correlation():
    """By 1 − |r|, as two that are one variable need none."""
    R = np.array([[1.0, 0.4, 0.0], [0.4, 1.0, -0.7], [0.0, -0.7, 1.0]])
    values, df = [3.0, 2.0, 5.0], [6, 10, 25]
    alone, related = (_reach(squares(values, df, C), 0.025) for C in (None, R))
    for name in ("opposite", "same"):
        plain = getattr(alone, name)
        assert (plain[~np.eye(3, dtype=bool)] != 0.0).all()
        np.testing.assert_array_equal(np.diagonal(plain), 0.0)
        expected = plain * (1.0 - np.abs(R))
        np.testing.assert_allclose(getattr(related, name), expected, rtol=1e-14)
    np.testing.assert_allclose(related.related, R - np.eye(3), rtol=1e-15)
    assert alone.related.shape == (0, 0)
    for name in ("positive", "negative"):
        np.testing.assert_array_equal(getattr(related, name), getattr(alone, name))


def test_a_fraction_of_a_degree_of_freedom_says_nothing():
    low, high = linear_limits(squares([1.0], [1e-3]), np.array([[1.0]]), 0.05)
    assert (low[0], high[0]) == (0.0, np.inf)

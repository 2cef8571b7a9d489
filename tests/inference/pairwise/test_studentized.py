"""Tails of studentized statistics that have closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm
from scipy.stats import t as student

from vcomp.inference.pairwise.studentized import Tail, studentized_isf, studentized_sf

TWO_SIDED = Tail(lambda w: np.log(2.0) + log_ndtr(-w), 1.0)
"""|Z| exceeds w: studentized, that is Student's distribution."""

DFS = [0.5, 1.0, 2.0, 7.3, 40.0, 1e3, 1e6]


def exponential(rate):
    """S(w) = exp(−rate w²/2), whose studentized tail is (1 + rate q²/df)^(−df/2)."""
    return Tail(lambda w: -0.5 * rate * w**2, rate)


Q = np.array([3.0, 1e-6, 0.02, 0.7, 1.0, 9.0, 2.2, 40.0, 300.0])


@pytest.mark.parametrize("df", DFS)
def test_studentized_normals_are_students(df):
    found = studentized_sf(Q, df, TWO_SIDED)
    exact = 2.0 * student.sf(Q, df) if df != 1.0 else 1.0 - 2.0 / np.pi * np.arctan(Q)
    np.testing.assert_allclose(found, exact, rtol=1e-11 + 1e-15 * df, atol=1e-300)


@pytest.mark.parametrize("df", DFS)
@pytest.mark.parametrize("rate", [0.25, 1.0, 2.0])
def test_an_exponential_tail_has_a_closed_form(df, rate):
    found = studentized_sf(Q, df, exponential(rate))
    logs = -0.5 * df * np.log1p(rate * Q**2 / df)
    # Logarithms of gamma functions cancel, the larger df is.
    np.testing.assert_allclose(found, np.exp(logs), rtol=1e-11 + 1e-15 * df, atol=1e-300)
    # One by one as all together, in any order.
    alone = [studentized_sf(np.array([q]), df, exponential(rate))[0] for q in Q]
    np.testing.assert_allclose(found, alone, rtol=1e-11, atol=1e-300)


def test_many_values_are_computed_in_parts():
    q = np.random.default_rng(1).uniform(0.0, 9.0, 20_000)
    found = studentized_sf(q, 5.0, exponential(1.0))
    np.testing.assert_allclose(found, (1.0 + q**2 / 5.0) ** -2.5, rtol=1e-11)


def test_ends():
    for df in (3.0, np.inf):
        ends = studentized_sf(np.array([0.0, np.inf, 1.0]), df, TWO_SIDED)
        assert ends[:2].tolist() == [1.0, 0.0]
        assert 0.3 < ends[2] < 0.4
    known = studentized_sf(np.array([0.5, 2.0]), np.inf, TWO_SIDED)
    np.testing.assert_allclose(known, 2.0 * norm.sf([0.5, 2.0]), rtol=1e-14)
    assert studentized_sf(np.empty(0), 4.0, TWO_SIDED).size == 0
    assert studentized_sf(np.array([1e-12]), 4.0, TWO_SIDED)[0] <= 1.0


@pytest.mark.parametrize("df", [1.0, 4.0, 60.0, np.inf])
@pytest.mark.parametrize("p", [1e-9, 0.01, 0.5, 0.97, 0.9999])
def test_quantiles(df, p):
    expected = norm.isf(p / 2.0) if np.isinf(df) else student.isf(p / 2.0, df)
    # Next to p = 1 the quantile has the digits of 1 − p.
    assert studentized_isf(p, df, TWO_SIDED) == pytest.approx(expected, rel=3e-12 / (1.0 - p))

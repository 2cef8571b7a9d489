"""Forecasts of tests of pairs, some of which differ equally on all topics."""

from dataclasses import replace

import numpy as np
import pytest

from vcomp.ir.pair_forecast import PairForecast

VARYING = PairForecast.from_scores(
    np.random.default_rng(4).normal(size=(20, 4)) + np.array([0.0, 0.3, 0.5, 0.9])
)
SOME_FIXED = replace(VARYING, certain=0.2, equal=0.3, fixed=np.array([0.1, 0.1, 0.7, 2.5]))


def test_pairs_of_equal_differences_are_counted():
    x = np.arange(6.0)
    X = np.column_stack([x, x + 0.5, x, x**2])
    found = PairForecast.from_scores(X)
    # Of six pairs, the first with the second, and that with the third, differ by a half.
    assert (found.certain, found.equal) == (2 / 6, 1 / 6)
    np.testing.assert_array_equal(found.fixed, [0.5, 0.5])
    d = (x**2 - x, x**2 - x - 0.5, x**2 - x)
    t = sorted(abs(e.mean()) / e.std(ddof=1) * np.sqrt(6) for e in d)
    np.testing.assert_allclose(found.t, t, rtol=1e-12)


def test_pairs_of_equal_differences_are_significant_or_never():
    """The definitions of the attributes: shares of all pairs beside those that vary."""
    power = VARYING.power(35, 0.05)
    assert SOME_FIXED.power(35, 0.05) == pytest.approx(0.2 + 0.5 * power, rel=1e-12)
    for significantly in (True, False):
        ratio = VARYING.conflicts(35, 0.05, significantly=significantly)
        expected = 0.5 * ratio * power / (0.2 + 0.5 * power)
        found = SOME_FIXED.conflicts(35, 0.05, significantly=significantly)
        assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("alpha", [None, 0.05])
def test_pairs_of_equal_differences_by_the_size_of_the_difference(alpha):
    bounds = np.array([0.0, 0.4, 1.0, 2.0])
    varying = VARYING.by_difference(35, bounds, alpha)
    found = SOME_FIXED.by_difference(35, bounds, alpha)
    # A quarter of the differences lies beyond the bounds.
    np.testing.assert_allclose(found[0], 0.5 * varying[0] + [0.1, 0.05, 0.0], rtol=1e-12)
    np.testing.assert_allclose(found[1:], 0.5 * varying[1:], rtol=1e-12)


def test_many_pairs_are_represented_by_their_quantiles():
    """Of 202 systems there are 20,301 pairs; 20,000 places are evenly spread over their order."""
    X = np.random.default_rng(2).normal(size=(5, 202)) + np.linspace(0.0, 1.0, 202)
    found = PairForecast.from_scores(X)
    i, j = np.triu_indices(202, 1)
    D = X[:, i] - X[:, j]
    t = np.sort(np.abs(D.mean(axis=0)) / D.std(axis=0, ddof=1) * np.sqrt(5))
    places = [(2 * k + 1) * t.size // 40_000 for k in range(20_000)]
    np.testing.assert_allclose(found.t, t[places], rtol=1e-10)
    order = np.argsort(np.abs(D.mean(axis=0)) / D.std(axis=0, ddof=1))
    np.testing.assert_allclose(found.deviations, D.std(axis=0, ddof=1)[order][places], rtol=1e-9)

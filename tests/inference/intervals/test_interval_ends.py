"""Limits of sums of mean squares against the matrix formulas, and their roots against scipy's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

import vcomp
from tests.helpers.kernel_twins import lower_limit
from vcomp.inference.intervals.modified_large_sample import (
    Reach,
    _expanded,
    _Expansion,
    _steps,
    lower_limits,
    ratios_at_zero,
)


def reach(rng, K, *, correlated, endless=False):
    """Return how far terms reach, of a size that degrees of freedom from 2 on have."""
    G, H = rng.uniform(0.01, 0.9, K), rng.uniform(0.01, 30.0, K)
    if endless:
        H[rng.integers(K)] = np.inf
    opposite = rng.uniform(-1.0, 0.2, (K, K)) * G[:, None]
    same = rng.uniform(-0.1, 0.1, (K, K))
    same = same + same.T
    np.fill_diagonal(same, 0.0)
    np.fill_diagonal(opposite, 0.0)
    related = np.zeros((0, 0))
    if correlated:
        related = np.atleast_2d(np.corrcoef(rng.normal(size=(K, K + 4)))) - np.eye(K)
    return G, H, opposite, same, related


cases = st.tuples(st.integers(0, 10**6), st.integers(1, 8), st.booleans(), st.booleans())


@settings(deadline=None)
@given(cases)
def test_limits_are_those_of_the_matrix_formulas(case):
    seed, K, correlated, endless = case
    rng = np.random.default_rng(seed)
    parts = reach(rng, K, correlated=correlated, endless=endless)
    terms = rng.normal(size=(20, K)) * np.exp(rng.normal(size=K))
    terms[rng.random(terms.shape) < 0.2] = 0.0
    terms[0, :1] = 1e-12 * np.abs(terms[0]).max()
    found = lower_limits(terms, Reach(*parts))
    expected = [lower_limit(x, *parts) for x in terms]
    # Two sums of squares in another order: √V has half the digits where it cancels to zero.
    scale = np.abs(terms).max()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-8 * scale)
    clear = np.isfinite(expected) & (np.abs(terms.sum(axis=1) - expected) > 1e-3 * scale)
    np.testing.assert_allclose(
        found[clear], np.array(expected)[clear], rtol=1e-12, atol=1e-12 * scale
    )


@settings(deadline=None)
@given(cases)
def test_expansions_give_the_limits_of_terms_that_keep_their_signs(case):
    seed, K, correlated, endless = case
    rng = np.random.default_rng(seed)
    parts = Reach(*reach(rng, K, correlated=correlated, endless=endless))
    x, d = rng.normal(size=(2, 20, K))
    s = 0.5 * np.abs(x / d).min(axis=1)
    at, limits = _expanded(x, d, parts), lower_limits(x - s[:, None] * d, parts)
    T, V = at.T - at.q * s, at.V - at.V1 * s + at.V2 * s * s
    # Variances below zero are cut off, and their expansions with them.
    there = np.isfinite(limits) & (at.V > 0.0) & (V > 0.0)
    np.testing.assert_allclose(
        (T - np.sqrt(V, where=there, out=V))[there], limits[there], rtol=1e-8, atol=1e-8
    )


@settings(deadline=None)
@given(cases, st.sampled_from([1.0, -1.0]))
def test_limits_change_sign_at_the_ratios(case, sign):
    seed, K, correlated, endless = case
    rng = np.random.default_rng(seed)
    parts = reach(rng, K, correlated=correlated, endless=endless)
    top = rng.normal(0.5, 1.0, size=(10, K)) * np.exp(rng.normal(size=(10, 1)))
    bottom = rng.uniform(0.0, 1.0, size=(10, K)) * np.exp(3.0 * rng.normal(size=(10, 1)))
    known = rng.uniform(0.0, 1.0, size=(2, 10)) * (rng.random((2, 10)) < 0.3)
    found = ratios_at_zero(top, bottom, *known, sign, Reach(*parts))
    for row, ratio in enumerate(found):

        def signed(rho, row=row):
            """Return the limit: positive below the end of the interval, negative above."""
            x = sign * (top[row] - rho * bottom[row])
            # Neither rounding nor scale: divided by the sizes of its parts.
            size = np.abs(top[row]).sum() + rho * np.abs(bottom[row]).sum() + known[:, row].max()
            return (
                sign
                * (lower_limit(x, *parts) + sign * (known[0, row] - rho * known[1, row]))
                / size
            )

        if ratio == 0.0:
            assert not signed(0.0) > 0.0
        elif ratio == np.inf:
            assert not signed(1e300) < 0.0
        else:
            # From one side of the root to the other, at steps that rounding does not reach.
            assert signed(ratio * (1.0 - 1e-7)) > -1e-12
            assert signed(ratio * (1.0 + 1e-7)) < 1e-12


@pytest.mark.parametrize("K", [1, 3, 7, 11])
@pytest.mark.parametrize("correlated", [False, True])
def test_ratios_are_the_roots_that_brent_finds(K, correlated):
    """Sums with positive coefficients below, and few degrees of freedom: one root each."""
    rng = np.random.default_rng(K)
    for _ in range(10):
        parts = reach(rng, K, correlated=correlated)
        top, bottom = rng.uniform(0.1, 1.0, (2, 1, K))
        low = ratios_at_zero(top, bottom, np.zeros(1), np.zeros(1), 1.0, Reach(*parts))[0]

        def limit(rho, top=top[0], bottom=bottom[0], parts=parts):
            return lower_limit(top - rho * bottom, *parts)

        grid = np.geomspace(1e-6, 1e3, 401)
        signs = np.array([limit(rho) > 0.0 for rho in grid])
        if signs[0] and (np.diff(signs.astype(int)) != 0).sum() == 1:
            place = int(np.flatnonzero(~signs)[0])
            root = brentq(limit, grid[place - 1], grid[place], xtol=1e-15, rtol=1e-15)
            assert low == pytest.approx(root, rel=1e-11)
        elif not limit(0.0) > 0.0:
            assert low == 0.0


@pytest.mark.parametrize("unit", [1e-12, 1e12])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_ratios_have_the_unit_of_what_is_above_and_below(unit, sign):
    rng = np.random.default_rng(8)
    parts, zero = Reach(*reach(rng, 4, correlated=True)), np.zeros(3)
    top, bottom = rng.uniform(1.0, 2.0, (2, 3, 4))
    one = ratios_at_zero(top, bottom, zero, zero + 0.3, sign, parts)
    above = ratios_at_zero(unit * top, bottom, zero, zero + 0.3, sign, parts)
    below = ratios_at_zero(top, unit * bottom, zero, unit * (zero + 0.3), sign, parts)
    np.testing.assert_allclose(above, unit * one, rtol=1e-10)
    np.testing.assert_allclose(below, one / unit, rtol=1e-10)


def test_ends_where_there_is_no_root():
    parts = (np.array([0.5]), np.array([2.0]), *np.zeros((2, 1, 1)), np.zeros((0, 0)))
    one, nothing = np.ones((1, 1)), np.zeros((1, 1))
    zero, known = np.zeros(1), np.ones(1)

    def ratio(*arguments):
        return ratios_at_zero(*arguments, Reach(*parts))[0]

    # Of one mean square and itself nothing is uncertain.
    assert ratio(4.0 * one, one, zero, zero, 1.0) == pytest.approx(4.0, rel=1e-14)
    assert ratio(nothing, one, zero, zero, 1.0) == 0.0
    assert ratio(-one, one, zero, zero, 1.0) == 0.0
    assert ratio(one, nothing, zero, zero, 1.0) == np.inf
    assert ratio(one, -one, zero, zero, -1.0) == np.inf
    # A limit that is zero at most.
    wide = Reach(np.ones(2), np.ones(2), *np.zeros((2, 2, 2)), np.zeros((0, 0)))
    assert ratios_at_zero(np.eye(2)[:1], np.eye(2)[1:], zero, zero, 1.0, wide)[0] == 0.0
    # What is known has no error, and what is not does: 2/[.5, 3] and [.5, 3]/2
    assert ratio(nothing, one, 2.0 * known, zero, 1.0) == pytest.approx(2.0 / 3.0, rel=1e-14)
    assert ratio(nothing, one, 2.0 * known, zero, -1.0) == pytest.approx(4.0, rel=1e-14)
    assert ratio(one, nothing, zero, 2.0 * known, 1.0) == pytest.approx(0.25, rel=1e-14)
    assert ratio(one, nothing, zero, 2.0 * known, -1.0) == pytest.approx(1.5, rel=1e-14)
    assert ratio(nothing, nothing, 3.0 * known, known, 1.0) == pytest.approx(3.0, rel=1e-14)
    # An upper limit that is infinite: the denominator may be as small as it likes.
    endless = Reach(parts[0], np.array([np.inf]), *parts[2:])
    assert ratios_at_zero(nothing, one, known, zero, -1.0, endless)[0] == pytest.approx(2.0)
    assert ratios_at_zero(nothing, one, known, zero, 1.0, endless)[0] == pytest.approx(0.0)
    assert ratios_at_zero(one, nothing, zero, known, -1.0, endless)[0] == np.inf


def test_a_variance_below_zero_counts_as_zero():
    """Its limit is the sum itself, with the sum's root."""
    opposite = np.array([[0.0, -9.0], [-9.0, 0.0]])
    parts = (np.full(2, 0.5), np.full(2, 0.5), opposite, np.zeros((2, 2)), np.zeros((0, 0)))
    terms = np.array([[3.0, -2.0]])
    np.testing.assert_allclose(lower_limits(terms, Reach(*parts)), 1.0, rtol=1e-15)
    top, bottom = np.array([[3.0, 0.0]]), np.array([[0.0, 2.0]])
    none = np.zeros(1)
    for sign in (1.0, -1.0):
        found = ratios_at_zero(top, bottom, none, none, sign, Reach(*parts))
        np.testing.assert_allclose(found, 1.5, rtol=1e-14)


def test_a_step_ends_at_the_nearer_root():
    """Of two solutions of T − q s = √(V − V₁s + V₂s²) within the bracket, against numpy.roots."""
    rng = np.random.default_rng(1)
    n_two = n_one = n_none = 0
    for _ in range(600):
        T, q, V1 = rng.normal(size=3)
        V, V2 = rng.uniform(0.1, 2.0, size=2)
        low, high = -rng.uniform(0.0, 4.0), rng.uniform(0.0, 4.0)
        roots = np.roots([q * q - V2, V1 - 2.0 * T * q, T * T - V])
        roots = roots[np.abs(roots.imag) < 1e-12].real
        possible = [s for s in roots if low <= s <= high and T - q * s >= 0.0]
        at = _Expansion(*(np.array([v]) for v in (T, V, q, V1, V2)))
        found = _steps(at, np.array([low]), np.array([high]))[0]
        n_two, n_one = n_two + (len(possible) == 2), n_one + (len(possible) == 1)
        n_none += not possible
        if not possible:
            assert np.isnan(found)
        else:
            assert found == pytest.approx(min(possible, key=abs), rel=1e-7, abs=1e-9)
    assert min(n_two, n_one, n_none) > 10


def test_an_interval_that_ends_at_its_estimate_is_explained():
    """Of two runs that swing, the mean square of runs is above the residual at the bound."""
    rng = np.random.default_rng(1)
    swing = rng.normal(size=(30, 10, 1)) * np.array([1.0, -1.0])
    y = rng.normal(size=(30, 1, 1)) + 0.3 * rng.normal(size=(30, 10, 2)) + swing
    codes = np.indices(y.shape).reshape(3, -1)
    data = pd.DataFrame({"p": codes[0], "i": codes[1], "y": y.ravel()})
    formula = "y ~ (1|p) + (1|i) + (1|p:i)"
    res = vcomp.fit(formula, data)
    runs = ((y - y.mean(axis=2, keepdims=True)) ** 2).sum() / (30 * 10)
    low, high = res.conf_int().loc["var(Residual)"]
    assert low == pytest.approx(res.vcomp["Residual"], rel=1e-9)
    assert low < runs < high
    words = "an interval that ends at its estimate is extended to it"
    assert words in " ".join(str(res.summary()).split())
    rest = y - swing + rng.normal(size=(30, 10, 1))
    plain = vcomp.fit(formula, data.assign(y=rest.ravel()))
    assert words not in " ".join(str(plain.summary()).split())

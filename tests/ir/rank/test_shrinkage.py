"""The share of error against quadrature and a two-way analysis of variance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq

from tests.helpers.examples import examples
from vcomp.ir.rank.correlation import ErrorShare, error_share
from vcomp.ir.rank.paired import PairedDifferences


def log_density(log_b, share):
    """Return the logarithm of the density of log B, but for a constant."""
    nu, nu_e = share.df, share.df_error
    b = np.exp(log_b)
    return (nu / 2 - 1) * log_b - (nu + nu_e) / 2 * np.log1p(nu * share.F * b / nu_e)


def moments(share, below=0.0):
    """Return the mean of B, and the probability that log B is below a number, by quadrature."""
    grid = np.linspace(-60, 0, 6_001)
    values = log_density(grid, share)
    top, peak = values.max(), grid[values.argmax()]

    def integral(f, high=0.0):
        points = [p for p in (peak - 3, peak, peak + 0.5) if -60 < p < high]
        return quad(f, -60, high, points=points or None, limit=400)[0]

    def weight(t):
        return np.exp(log_density(t, share) - top)

    total = integral(weight)
    return integral(lambda t: np.exp(t) * weight(t)) / total, integral(weight, below) / total


SHARES = st.builds(
    ErrorShare, F=st.floats(0.05, 50), df=st.floats(3, 60), df_error=st.floats(8, 3000)
)


@given(SHARES)
@settings(max_examples=examples(30), deadline=None)
def test_mean_and_median_are_those_of_the_density(share):
    median = float(share.quantile([0.5])[0])
    mean, below = moments(share, np.log(median))
    assert share.mean == pytest.approx(mean, rel=1e-6)
    assert below == pytest.approx(0.5, abs=1e-6)


def test_stein_far_from_one():
    """Where F is large nothing is cut off: E[B] = (ν - 2)/(ν F)."""
    assert ErrorShare(50.0, 40.0, 2000.0).mean == pytest.approx(38 / 40 / 50, rel=1e-12)


def test_tiny_ratios_do_not_underflow():
    share = ErrorShare(1e-3, 4_000.0, 200_000.0)
    assert share.mean == pytest.approx(moments(share)[0], rel=1e-5)  # an expansion about B = 1
    quantiles = share.quantile([0.01, 0.5, 0.99])
    assert (np.diff(quantiles) > 0).all()
    assert ((quantiles > 0.99) & (quantiles <= 1)).all()


@pytest.mark.parametrize(("a", "b", "x"), [(1e4, 1e4, 0.3), (3e3, 2e4, 0.05), (2e4, 500.0, 0.8)])
def test_the_density_next_to_one_is_that_of_a_power(a, b, x):
    """Where nearly all of it is: the beta density times e^-sv has the slope s in log B at one."""
    df, df_error = 2.0 * (a + 1.0), 2.0 * (b - 1.0)
    share = ErrorShare(x / (1.0 - x) * df_error / df, df, df_error)
    t = np.linspace(-0.2, 0.0, 400_001)
    weight = np.exp(log_density(t, share) - log_density(0.0, share))
    expected = (-np.expm1(t) * weight).sum() / weight.sum()
    assert 1.0 - share.mean == pytest.approx(expected, rel=0.02)  # an expansion about B = 1
    below = np.cumsum(weight) / weight.sum()
    found = np.log(share.quantile(below[-2_000:-1]))
    np.testing.assert_allclose(found, t[-2_000:-1], rtol=0.02, atol=1e-6)


def test_means_go_on_where_the_expansion_begins():
    means = [ErrorShare(F, 1_500.0, 60_000.0).mean for F in np.linspace(0.2, 0.5, 61)]
    assert (np.diff(means) < 0).all()
    assert np.abs(np.diff(means, 2)).max() < 1e-5


@pytest.mark.parametrize("share", [ErrorShare(0.5, 2.0, 50.0), ErrorShare(np.inf, 9.0, 50.0)])
def test_where_nothing_is_known_nothing_is_shrunk(share):
    assert share.mean == 0.0
    assert share.quantile([0.1, 0.9]).tolist() == [0.0, 0.0]


def test_zero_differences_have_a_share():
    share = ErrorShare(0.0, 6.0, 60.0)
    assert share.mean == pytest.approx(2 / 3)  # the prior B^(ν/2 - 2) is all that is left
    assert share.quantile([0.25])[0] == pytest.approx(0.5)


def test_f_is_that_of_the_analysis_of_variance():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(12, 7)) + rng.normal(size=7) + 5 * rng.normal(size=(12, 1))
    found = error_share(PairedDifferences.from_scores(X, "abcdefg"))
    residual = X - X.mean(axis=0) - X.mean(axis=1, keepdims=True) + X.mean()
    ms_e = (residual**2).sum() / (11 * 6)
    expected = 12 * X.mean(axis=0).var(ddof=1) / ms_e
    np.testing.assert_allclose(found.F, expected, rtol=1e-12)


def slow_df(X):
    """Huynh and Feldt's degrees of freedom: ε(k-1) of the double-centred covariances."""
    n, k = X.shape
    contrasts = np.linalg.qr(np.column_stack([np.ones(k), np.eye(k)[:, 1:]]))[0][:, 1:]
    eigenvalues = np.linalg.eigvalsh(np.cov(X @ contrasts, rowvar=False))
    epsilon = eigenvalues.sum() ** 2 / (eigenvalues**2).sum() / (k - 1)
    corrected = (n * (k - 1) * epsilon - 2) / ((k - 1) * (n - 1 - (k - 1) * epsilon))
    return (k - 1) * min(1.0, corrected)


@pytest.mark.parametrize(("n", "k"), [(6, 12), (40, 5), (15, 15)])
def test_df_are_those_of_huynh_and_feldt(n, k):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, k)) + 0.3 * rng.normal(size=(n, k))
    pairs = PairedDifferences.from_scores(X, [f"s{j}" for j in range(k)])
    assert pairs.df == pytest.approx(slow_df(X), rel=1e-10)


def test_df_of_two_topics_and_of_constant_differences():
    two = PairedDifferences.from_scores([[1.0, 2.0, 4.0], [2.0, 2.0, 3.0]], "abc")
    assert two.df == pytest.approx(1.0)
    constant = PairedDifferences.from_scores([[1.0, 2.0, 4.0], [2.0, 3.0, 5.0]], "abc")
    assert 1.0 <= constant.df <= 2.0
    assert error_share(constant).mean == 0.0


def test_random_deletions_change_little():
    """Five per cent of cells missing leave F and df near those of complete data."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 20)) + 0.4 * rng.normal(size=20) + rng.normal(size=(60, 1))
    names = [f"s{j}" for j in range(20)]
    whole = error_share(PairedDifferences.from_scores(X, names))
    X[rng.random(X.shape) < 0.05] = np.nan
    part = error_share(PairedDifferences.from_scores(X, names))
    # Sampling error: the means of 60 topics move by a fifth of their standard error.
    np.testing.assert_allclose((part.F, part.df), (whole.F, whole.df), rtol=0.1)


def test_quantiles_invert_the_density():
    share = ErrorShare(1.5, 8.0, 72.0)
    for q in (0.1, 0.6, 0.95):
        found = brentq(lambda t, q=q: moments(share, t)[1] - q, -8, -1e-9)
        assert share.quantile([q])[0] == pytest.approx(np.exp(found), rel=1e-6)

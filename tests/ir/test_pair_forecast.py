"""Forecasts of tests of pairs, some of which differ equally on all topics."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr, owens_t

from vcomp.ir.measures import get
from vcomp.ir.pair_forecast import PairForecast, _exceeds, _mean_p
from vcomp.ir.rank import PairedDifferences
from vcomp.ir.significance import mean_squares

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


def test_far_differences_on_two_topics_have_a_forecast():
    """SciPy has no noncentral t of one degree of freedom that far out; its tail is empty there."""
    X = np.random.default_rng(4).normal(size=(5, 20)) + 5.0 * np.arange(20)
    forecast = PairForecast.from_scores(X)
    assert np.sqrt(2 / 5) * forecast.t.max() > 7.6
    delta = forecast.reliability * forecast.t[:, None] / np.sqrt(5) + np.sqrt(
        forecast.reliability / 5
    ) * stats.norm.ppf((np.arange(400) + 0.5) / 400)
    # t = (Z + c)/|W| exceeds the limit if Z > limit |W| - c: the mean over W is Owen's.
    limit = stats.t.isf(0.025, 1)
    up, down = (
        ndtr(s * np.sqrt(2) * delta / np.sqrt(1 + limit**2))
        - 2 * owens_t(s * np.sqrt(2) * delta / np.sqrt(1 + limit**2), limit)
        for s in (1, -1)
    )
    assert forecast.power(2, 0.05) == pytest.approx((up + down).mean(), rel=1e-3)
    major = (2 * up * down).mean() / (up + down).mean()
    assert forecast.conflicts(2, 0.05, significantly=True) == pytest.approx(major, rel=5e-3)
    assert get("major_conflicts").estimate(X, 10).item() < 0.01


def test_true_differences_are_shrunk_as_for_rank_accuracy():
    """r is one less the mean of B = 1 - Eρ² given F, with a flat prior of σ²(s) (eq. 15.7)."""
    X = np.random.default_rng(3).normal(size=(25, 12)) + 0.3 * np.arange(12) / 12
    pairs = PairedDifferences.from_scores(X, list("abcdefghijkl"))
    F = 25 * X.mean(axis=0).var(ddof=1) / (pairs.mean_error * 25 / 2)
    B = (np.arange(200_000) + 0.5) / 200_000
    density = B ** (pairs.df / 2 - 2) * (1 + pairs.df * F * B / pairs.error_df) ** (
        -(pairs.df + pairs.error_df) / 2
    )
    expected = 1 - (B * density).sum() / density.sum()
    assert PairForecast.from_scores(X).reliability == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_signed_ranks_are_forecast_from_their_own_p_values():
    """Scores with outliers, in which signed ranks find more than t-tests do."""
    X = np.random.default_rng(6).standard_t(2, size=(20, 6)) + 0.5 * np.arange(6)
    by_ranks, by_t = (PairForecast.from_scores(X, test) for test in ("wilcoxon", "t"))
    p = [stats.wilcoxon(X[:, i] - X[:, j]).pvalue for i in range(6) for j in range(i)]
    np.testing.assert_allclose(2 * stats.t.sf(by_ranks.t, 19), np.sort(p)[::-1], rtol=1e-9)
    assert by_ranks.power(40, 0.05) > by_t.power(40, 0.05) + 0.02
    power, conflicts = get("power_ratio", test="wilcoxon"), get("minor_conflicts", test="wilcoxon")
    observed, now, then = (1 - x for x in (power.estimate(X, 20).item(), by_ranks.power(20, 0.05),
                                           by_ranks.power(40, 0.05)))  # fmt: skip
    assert power.estimate(X, 40) == pytest.approx(1 - observed * then / now, rel=1e-12)
    ratio = [by_ranks.conflicts(n, 0.05, significantly=False) for n in (10, 40)]
    expected = conflicts.estimate(X, 10) * ratio[1] / ratio[0]
    assert conflicts.estimate(X, 40) == pytest.approx(expected, rel=1e-12)


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


@pytest.mark.parametrize(
    ("limit", "df"), [(2.0, 30.0), (0.0, 5.0), (12.7, 1.0), (60.0, 1.0), (50.0, 3.0)]
)
def test_tails_of_noncentral_t(limit, df):
    """scipy's where it has them, Johnson and Welch's normal approximation far away."""
    near, far = np.array([-7.5, -3.0, 0.0, 1.0, 5.0, 30.0]), np.array([30.1, 55.0, 80.0])
    found = _exceeds(near, limit, df)
    np.testing.assert_allclose(found, stats.nct.sf(limit, df, near), rtol=1e-6, atol=1e-12)
    expected = stats.norm.cdf(
        (far - limit * (1.0 - 0.25 / df)) / np.sqrt(1.0 + limit**2 / 2.0 / df)
    )
    np.testing.assert_allclose(_exceeds(far, limit, df), expected, rtol=1e-12)
    assert _exceeds(np.array([-7.6, -40.0]), limit, df).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("n", "is_exact"), [(0, True), (161, True), (162, False)])
def test_means_over_few_pairs_are_exact(n, is_exact):
    t = np.linspace(0.0, 9.0, n)
    found = PairForecast._over_pairs(SimpleNamespace(t=t), lambda x: np.sin(40.0 * x))
    expected = np.sin(40.0 * t).mean() if n else 0.0
    assert (found == pytest.approx(expected, rel=1e-12)) == is_exact


def test_systems_with_the_same_means_do_not_differ_reliably():
    """Of three systems, with no more than two degrees of freedom, by the ANOVA method."""
    Z = np.random.default_rng(2).integers(-9, 9, size=(6, 3)).astype(float)
    X = np.concatenate([Z, -Z])
    assert PairForecast.from_scores(X).reliability == 0.0
    for shift in (0.1, 40.0):
        Y = X + shift * np.arange(3.0)
        ms_s, _, ms_e = mean_squares(Y)
        expected = max(0.0, 1.0 - ms_e / ms_s)
        assert PairForecast.from_scores(Y).reliability == pytest.approx(expected, rel=1e-12)


def test_no_difference_has_a_p_value_of_1():
    sizes = np.array([0.0, 0.5, 3.0])
    found = _mean_p(sizes, 5.0, None)
    assert found[0] == pytest.approx(1.0, rel=1e-12)
    # Of a normal difference given, over the distribution of S.
    for size, p in zip(sizes, found, strict=True):
        mean = stats.chi2(5).expect(lambda q, s=size: 2 * stats.t.sf(s / np.sqrt(q / 5), 5))
        assert p == pytest.approx(mean, abs=0.005)  # of 64 quantiles
    assert _mean_p(sizes, 5.0, 0.05)[0] == 0.0


def test_without_power_there_are_no_conflicts():
    equal = PairForecast.from_scores(np.tile(np.arange(6.0)[:, None], (1, 3)))
    assert (equal.equal, equal.power(20, 0.05)) == (1.0, 0.0)
    assert np.isnan(equal.conflicts(20, 0.05, significantly=True))


@pytest.mark.parametrize("significantly", [True, False])
def test_conflicts_of_small_differences_by_quadrature(significantly):
    """Over the normal distribution of δ given t, without the splines between."""
    pairs = replace(VARYING, t=np.array([0.0, 0.4, 1.1]))
    z, w = np.polynomial.hermite_e.hermegauss(100)
    delta = pairs.reliability * pairs.t[:, None] / np.sqrt(20) + np.sqrt(pairs.variance) * z
    c, limit = np.sqrt(30) * np.abs(delta), stats.t.isf(0.1, 29)
    up, down = stats.nct.sf(limit, 29, c), stats.nct.cdf(-limit, 29, c)
    down = np.where(c > 7.5, 0.0, down)  # scipy has no smaller ones
    swapped = 2 * up * down if significantly else up * (ndtr(-c) - down) + down * (ndtr(c) - up)
    expected = (swapped @ w).mean() / ((up + down) @ w).mean()
    found = pairs.conflicts(30, 0.2, significantly=significantly)
    assert found == pytest.approx(expected, rel=1e-6)


def test_without_reliable_differences_all_tests_are_of_their_level():
    """A fifth is significant, half of it either way; swapped ones without it are the rest."""
    same = replace(VARYING, reliability=0.0)
    assert same.conflicts(30, 0.2, significantly=True) == pytest.approx(0.1, rel=1e-9)
    assert same.conflicts(30, 0.2, significantly=False) == pytest.approx(0.4, rel=1e-9)


@pytest.mark.parametrize("n", [2, 4, 30])
def test_shares_of_significant_pairs_add_up_to_the_power(n):
    found = VARYING.by_difference(n, np.array([0.0, 1.0, 1e6]), 0.05)[0].sum()
    assert found == pytest.approx(VARYING.power(n, 0.05), rel=2e-3)  # of a sum over quantiles


def test_one_difference_that_does_not_vary_has_the_whole_share():
    bounds = np.array([0.0, 0.5, 0.9, 1e6])
    one = replace(VARYING, certain=0.2, equal=0.0, fixed=np.array([0.7]))
    expected = 0.8 * VARYING.by_difference(30, bounds)[0] + [0.0, 0.2, 0.0]
    np.testing.assert_allclose(one.by_difference(30, bounds)[0], expected, rtol=1e-12)

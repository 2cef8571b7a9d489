"""Discrete margins against scipy, R's formulas written out, and brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, stats

from vcomp.exceptions import DataError, EstimationError
from vcomp.ir.simulate.margin_families import (
    beta_binomial_margin,
    discrete_kernel_margin,
    places_on,
    score_margin,
    selected_width,
    support_of,
)

RNG = np.random.default_rng(11)
SUPPORT = support_of("P@10")
PLACES = RNG.binomial(10, RNG.beta(1.0, 2.0, 70))
SCORES = SUPPORT[PLACES]


def test_supports():
    np.testing.assert_array_equal(support_of("p10"), np.arange(11) / 10)
    assert support_of("RR").size == 1001
    assert support_of("RR@1").tolist() == support_of("P@1").tolist() == [0.0, 1.0]
    assert support_of("rr@4").tolist() == [0.0, 0.25, 1 / 3, 0.5, 1.0]
    assert support_of([1.0, 0.0, 0.5, 0.5]).tolist() == [0.0, 0.5, 1.0]
    assert support_of([1.0, 0.0]).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("wrong", ["nDCG", "P@", "P@0", "RR@0", [0.5], [0.0, np.nan], ["a", "b"]])
def test_what_is_no_support(wrong):
    with pytest.raises(DataError, match="support"):
        support_of(wrong)


def test_scores_are_found_though_they_were_rounded():
    support = support_of("RR")
    scores = np.array([0.0, 1.0, 0.3333, 0.1429, 0.6, 0.0312])
    np.testing.assert_array_equal(places_on(support, scores), [0, 1000, 998, 994, -1, 969])
    np.testing.assert_array_equal(places_on(SUPPORT, SCORES), PLACES)


def test_scores_beyond_the_support_have_no_place():
    found = places_on(SUPPORT, np.array([1.3, -0.2, 1.00004, -0.00004, 1.001]))
    assert found.tolist() == [-1, -1, 10, 0, -1]


def test_beta_binomial_is_that_of_scipy():
    margin = beta_binomial_margin(PLACES, SUPPORT)
    a, b = margin.parameters["a"], margin.parameters["b"]
    found = stats.betabinom(10, a, b)
    probabilities = np.diff(margin.cumulative, prepend=0.0)
    np.testing.assert_allclose(probabilities, found.pmf(np.arange(11)), rtol=1e-10)
    assert margin.log_likelihood == pytest.approx(found.logpmf(PLACES).sum(), rel=1e-12)
    best = optimize.minimize(
        lambda at: -stats.betabinom(10, *np.exp(at)).logpmf(PLACES).sum(), [0.0, 0.0]
    )
    assert margin.log_likelihood >= -best.fun - 1e-7
    assert margin.mean == pytest.approx(found.mean() / 10, rel=1e-12)
    assert margin.variance == pytest.approx(found.var() / 100, rel=1e-10)


@pytest.mark.rounding
def test_scores_may_vary_less_than_those_of_one_coin():
    places = np.array([4, 5, 5, 5, 6, 5, 4, 5])
    margin = beta_binomial_margin(places, SUPPORT)
    binomial = stats.binom(10, places.mean() / 10).logpmf(places).sum()
    assert margin.log_likelihood == pytest.approx(binomial, abs=1e-3)  # its limit


@pytest.mark.rounding
def test_the_limit_is_reached_wherever_a_search_would_stop():
    """Without a margin, rounding ends the search up to 0.001 a score below the binomial."""
    rng = np.random.default_rng(0)
    n_samples = 0
    for _ in range(20):
        places = np.clip(rng.integers(1, 9) + rng.integers(-1, 2, rng.integers(4, 40)), 0, 10)
        p = places.mean() / 10
        if places.var() > 0.9 * 10 * p * (1 - p):
            continue
        n_samples += 1
        margin = beta_binomial_margin(places, SUPPORT)
        binomial = stats.binom(10, p).logpmf(places).mean()
        # The shapes stand for the limit: the variance of a score is 1 + 9/326,000 times as large.
        assert margin.log_likelihood / places.size == pytest.approx(binomial, abs=5e-5)
        again = beta_binomial_margin(rng.permutation(places), SUPPORT)
        assert again.parameters == margin.parameters
    assert n_samples > 17


def kernel(i, j, h):  # Wang and van Ryzin (1981), eq. 2.2
    return 1.0 - h if i == j else 0.5 * (1.0 - h) * h ** abs(i - j)


def loss(h):
    n = len(PLACES)
    p = [np.mean([kernel(i, j, h) for j in PLACES]) for i in range(11)]
    left_out = [
        sum(kernel(i, j, h) for at, j in enumerate(PLACES) if at != me) / (n - 1)
        for me, i in enumerate(PLACES)
    ]
    return np.sum(np.square(p)) - 2.0 * np.mean(left_out)


def test_discrete_kernels():
    margin = discrete_kernel_margin(PLACES, SUPPORT)
    h = margin.parameters["bandwidth"]
    assert loss(h) <= min(loss(w) for w in np.linspace(0.0, 0.95, 39)) + 1e-12
    assert loss(h) < min(loss(h - 1e-4), loss(h + 1e-4))  # the bottom of its valley
    p = np.array([np.mean([kernel(i, j, h) for j in PLACES]) for i in range(11)])
    p /= p.sum()
    np.testing.assert_allclose(np.diff(margin.cumulative, prepend=0.0), p, rtol=1e-10)
    assert margin.log_likelihood == pytest.approx(np.log(p[PLACES]).sum(), rel=1e-12)
    assert margin.df == pytest.approx(np.mean((1.0 - h) / p[PLACES]), rel=1e-12)


def test_wider_kernels():
    once = discrete_kernel_margin(PLACES, SUPPORT)
    h = once.parameters["bandwidth"]
    wider = discrete_kernel_margin(PLACES, SUPPORT, 1.5)
    assert wider.parameters["bandwidth"] == pytest.approx(1.5 * h, rel=1e-14)
    with pytest.raises(EstimationError, match="have no end"):
        discrete_kernel_margin(PLACES, SUPPORT, 2.0 / h)
    for width in (1.0, 1.5):
        with pytest.raises(EstimationError, match="have no end"):
            discrete_kernel_margin(PLACES, SUPPORT, selected=width)


def test_quantiles_are_scores():
    margin = beta_binomial_margin(PLACES, SUPPORT)
    u = RNG.random(300)
    expected = SUPPORT[np.searchsorted(margin.cumulative, u)]
    np.testing.assert_array_equal(margin.quantile(u), expected)


@pytest.mark.parametrize("mean", [0.1, 0.9])
def test_means_can_be_given(mean):
    fitted = beta_binomial_margin(PLACES, SUPPORT)
    moved = fitted.with_mean(mean)
    assert moved.mean == pytest.approx(mean, abs=1e-12)
    F = fitted.cumulative

    def cumulative(shape):
        return F**shape if mean > fitted.mean else 1.0 - (1.0 - F) ** shape

    def excess(shape):
        return (np.diff(cumulative(shape), prepend=0.0) * SUPPORT).sum() - mean

    np.testing.assert_allclose(
        moved.cumulative, cumulative(optimize.brentq(excess, 1.0, 100.0)), atol=1e-9
    )


def test_the_best_discrete_margin():
    best = score_margin(SCORES, "auto", SUPPORT, "bm25")
    tried = [beta_binomial_margin(PLACES, SUPPORT), discrete_kernel_margin(PLACES, SUPPORT)]
    assert best.aic <= min(margin.aic for margin in tried)
    assert best.is_discrete


def test_scores_at_both_ends_and_in_the_middle_are_of_kernels():
    """No beta-binomial has three modes, and wider kernels fill the gaps between them."""
    places = np.repeat([0, 5, 10], 20)
    best = score_margin(SUPPORT[places], "auto", SUPPORT, "bm25")
    assert best.name == "discrete_kernel"
    assert best.parameters == discrete_kernel_margin(places, SUPPORT).parameters


def test_scores_that_spread_less_than_binomial_ones_have_a_binomial_margin():
    """The likelihood rises for ever with a + b; where it is flat a limit is used."""
    places = np.repeat([4, 5, 6, 7], [8, 22, 20, 6])
    for seen in (places, np.repeat(places, 3), 10 - places):
        found, p = beta_binomial_margin(seen, SUPPORT), seen.mean() / 10
        a, b = found.parameters["a"], found.parameters["b"]
        assert a + b == pytest.approx(2.0 * np.exp(12.0), rel=1e-12)
        assert a / (a + b) == pytest.approx(p, rel=1e-12)
        exact = stats.binom(10, p)
        assert found.log_likelihood == pytest.approx(exact.logpmf(seen).sum(), rel=1e-5)
        pmf = np.diff(found.cumulative, prepend=0.0)
        np.testing.assert_allclose(pmf, exact.pmf(np.arange(11)), atol=1e-4)


@pytest.mark.parametrize("seen", [[1, 2], [998, 999]])
def test_binomial_margins_near_an_end_keep_their_mean(seen):
    """Of a thousand trials: a probability of .0015 is not yet one that is moved to .001."""
    support, places = np.arange(1001) / 1000.0, np.repeat(seen, 30)
    found, p = beta_binomial_margin(places, support), places.mean() / 1000.0
    a, b = found.parameters["a"], found.parameters["b"]
    assert (a + b, a / (a + b)) == pytest.approx((2.0 * np.exp(12.0), p), rel=1e-12)


def test_limits_beyond_the_last_score_that_occurs():
    """Rounded sums of probabilities may exceed 1, of which there is no normal quantile."""
    p = np.array([0.1, 0.7, 0.1, 0.1, 0.0])
    sums = np.array([0.1, 0.8, 0.9, np.nextafter(1.0, 2.0), 1.0])
    margin = replace(beta_binomial_margin(PLACES, SUPPORT), cumulative=sums)
    expected = [*stats.norm.ppf(np.cumsum(p)[:3]), np.inf]
    np.testing.assert_allclose(margin.limits, expected, rtol=1e-12)


def test_a_score_that_is_not_in_the_support():
    with pytest.raises(DataError, match=r"system 'rm3' has the score 0.55"):
        score_margin(np.array([0.1, 0.55]), "auto", SUPPORT, "rm3")


@pytest.mark.parametrize("end", [0.0, 1.0, -0.1, 1.1])
def test_a_mean_is_between_the_smallest_and_the_largest_score(end):
    for margin in (beta_binomial_margin, discrete_kernel_margin):
        with pytest.raises(EstimationError, match="cannot have the mean"):
            margin(PLACES, SUPPORT).with_mean(end)


@pytest.mark.parametrize(
    "places", [[0, 10], [3] * 40 + [7] * 40, PLACES, [0] * 30 + [1] * 3, [0, 0, 0, 5], [9, 10, 10]]
)
def test_the_selected_width_has_the_smallest_loss_of_all(places):
    """Leave-one-out by loops, at a thousand widths; widths are from 0 to 1."""
    places = np.asarray(places)
    apart = np.abs(np.subtract.outer(np.arange(11), places))
    n = places.size

    def loss_at(width):
        kernels = np.where(apart == 0, 1.0 - width, 0.5 * (1.0 - width) * width**apart)
        left_out = [(kernels[j].sum() - (1.0 - width)) / (n - 1) for j in places]
        return np.sum(kernels.mean(axis=1) ** 2) - 2.0 * np.mean(left_out)

    found = selected_width(places, 11)
    assert 0.0 <= found <= 1.0
    assert loss_at(found) <= min(map(loss_at, np.linspace(0.0, 1.0, 1001))) + 1e-14


@pytest.mark.parametrize("places", [[100, 400, 700], [0, 500, 999], [3, 250, 430, 600, 990]])
def test_few_scores_of_many_have_wide_kernels(places):
    """On 1000 possible scores: widths near 1, sought at ten thousand of them."""
    places = np.array(places)
    apart = np.abs(np.subtract.outer(np.arange(1000), places))
    own = np.arange(places.size)

    def loss_at(width):
        kernels = np.where(apart == 0, 1.0 - width, 0.5 * (1.0 - width) * width**apart)
        others = kernels[places].sum(axis=1) - kernels[places, own]
        return np.sum(kernels.mean(axis=1) ** 2) - 2.0 * np.mean(others / (places.size - 1))

    found = selected_width(places, 1000)
    assert found > 0.98
    best = min(map(loss_at, np.linspace(0.9, 1.0, 2001)))
    assert loss_at(found) <= best + 1e-14


def test_two_shapes_are_two_parameters():
    margin = beta_binomial_margin(PLACES, SUPPORT)
    assert margin.aic == pytest.approx(4.0 - 2.0 * margin.log_likelihood, rel=1e-14)


@pytest.mark.parametrize("places", [[0] * 66 + [1], [10] * 66 + [9]])
def test_the_limit_of_rare_scores_has_their_mean(places):
    """A mean of 1/670, which varies less than the binomial distribution."""
    margin = beta_binomial_margin(np.array(places), SUPPORT)
    binomial = stats.binom(10, np.mean(places) / 10).logpmf(places).sum()
    # The limit is not reached: shapes end at e to the power of 12.
    assert margin.log_likelihood == pytest.approx(binomial, abs=1e-4)


@pytest.mark.parametrize("seen", [[999, 999], [1, 1, 1], [5, 2], [2] * 6])
def test_rare_scores_are_as_likely_as_by_binomial_margins_from_both_ends(seen):
    """Of 3,000 scores of 1,000 trials all others are 0, or all others are 1."""
    places, support = np.zeros(3000, dtype=np.int64), np.arange(1001) / 1000.0
    places[: len(seen)] = seen
    binomial = stats.binom.logpmf(places, 1000, places.mean() / 1000.0).sum()
    for one in (places, 1000 - places):
        fitted = beta_binomial_margin(one, support)
        assert fitted.log_likelihood >= binomial - 0.01  # sizes end at 2e¹²


@pytest.mark.parametrize("place", [0, 10])
def test_scores_that_are_all_at_an_end_are_certain(place):
    margin = beta_binomial_margin(np.full(20, place), SUPPORT)
    assert margin.mean == pytest.approx(place / 10, abs=1e-8)
    assert margin.log_likelihood == pytest.approx(0.0, abs=1e-5)

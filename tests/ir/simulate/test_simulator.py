"""Algorithm 1 of Urbano (2016) written out line by line, and what its switches promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from vcomp.exceptions import EstimationError, PlanError
from vcomp.ir.kernels.quantile_tables import scores_from_margins
from vcomp.ir.simulate.copula import decompose
from vcomp.ir.simulate.margin import LOW, PER_UNIT
from vcomp.ir.simulate.margin_families import cdf_bandwidth
from vcomp.ir.simulate.simulator import (
    choose_unevenly,
    draw_weighted,
    pool_size,
    quantile_weights,
    topics_at_a_time,
)
from vcomp.numerics.parallel import stream
from vcomp.simulate import fit_collection

SWITCHES = [
    (margins, homoscedastic, uncorrelated, random)
    for margins in ("kernel", "normal")
    for homoscedastic in (False, True)
    for uncorrelated in (False, True)
    for random in (False, True)
]


def inverse_kernel(x, low, high, u):
    """Return quantiles of a kernel estimate between its ends, by bisection."""
    h = cdf_bandwidth(x)
    low, high = min(low, x.min()), max(high, x.max())

    def F(t):
        return ndtr((np.atleast_1d(t)[:, None] - x) / h).mean(axis=1)

    at_low, at_high = F(low), F(high)
    a, b = np.full(u.size, low), np.full(u.size, high)
    for _ in range(60):
        t = 0.5 * (a + b)
        over = (F(t) - at_low) / (at_high - at_low) > u
        a, b = np.where(over, a, t), np.where(over, t, b)
    return 0.5 * (a + b)


def algorithm_1(X, n_topics, rng, margins, homoscedastic, uncorrelated, random):
    """Return one collection, the lines of the algorithm in their order."""
    low, high = (-1.0, 1.0) if margins == "normal" else (-np.log(21.0), np.log(21.0))
    if margins == "kernel":
        X = np.log((X + 0.05) / (1.0 - X + 0.05))  # lines 2-4
    mu = X.mean()
    nu_s, nu_t = X.mean(axis=0) - mu, X.mean(axis=1) - mu  # lines 5-6
    E = X - mu - nu_s - nu_t[:, None]
    if homoscedastic:  # lines 7-10
        E = E / E.std(axis=0, ddof=1) * np.sqrt(E.var(axis=0, ddof=1).mean())
    sigma = np.cov(np.column_stack([nu_t, E]), rowvar=False)
    values, vectors = np.linalg.eigh(sigma)
    nearest = vectors @ np.diag(np.maximum(values, 1e-8 * values.max())) @ vectors.T
    scale = np.sqrt(np.diag(sigma) / np.diag(nearest))
    sigma = nearest * np.outer(scale, scale)  # line 13
    if uncorrelated:
        sigma = np.diag(np.diag(sigma))  # lines 14-16
    C = np.linalg.cholesky(sigma)
    if random:
        first = rng.standard_normal(n_topics)
    else:  # lines 17-21 and 30-32: the topics that are kept, by their effects
        pool = np.sort(rng.standard_normal(max(200, 4 * n_topics)))
        first = pool[choose_unevenly(n_topics, pool.size, rng)]
    R = np.column_stack([first, rng.standard_normal((n_topics, X.shape[1]))]) @ C.T  # lines 22-24
    U = ndtr(R / np.sqrt(np.diag(sigma)))  # line 25
    Z = np.empty_like(U)
    Z[:, 0] = inverse_kernel(nu_t, low, high, U[:, 0])
    for s in range(X.shape[1]):  # lines 26-29
        if margins == "normal":
            Z[:, s + 1] = stats.norm.ppf(U[:, s + 1], scale=np.sqrt(sigma[s + 1, s + 1]))
        else:
            Z[:, s + 1] = inverse_kernel(E[:, s], low, high, U[:, s + 1])
    Y = mu + nu_s + Z[:, :1] + Z[:, 1:]  # line 33
    if margins == "kernel":  # lines 34-36
        Y = np.clip((np.exp(Y) + 0.05 * np.exp(Y) - 0.05) / (1.0 + np.exp(Y)), 0.0, 1.0)
    return Y


@pytest.mark.parametrize(("margins", "homoscedastic", "uncorrelated", "random"), SWITCHES)
def test_algorithm_1(scores, margins, homoscedastic, uncorrelated, random):
    simulator = fit_collection(
        scores,
        margins=margins,
        heteroscedasticity=float(not homoscedastic),
        correlation=float(not uncorrelated),
        random_sampling=random,
        means="fitted",
    )
    found = simulator.simulate(60, n=3, rng=5, first=2)
    for number, Y in enumerate(found, start=2):
        rng = stream(5, number)
        expected = algorithm_1(scores, 60, rng, margins, homoscedastic, uncorrelated, random)
        # Margins are tabulated at 1025 quantiles, on straight lines between them.
        np.testing.assert_allclose(Y, expected, rtol=0, atol=2e-4)


def test_collections_are_numbered(scores):
    simulator = fit_collection(scores, random_sampling=False)
    together = simulator.simulate(50, 7, rng=9)
    parts = [simulator.simulate(50, 3, rng=9), simulator.simulate(50, 4, rng=9, first=3)]
    np.testing.assert_array_equal(together.scores, np.concatenate([p.scores for p in parts]))
    threads = simulator.simulate(50, 7, rng=9, workers=3)
    np.testing.assert_array_equal(together.scores, threads.scores)
    np.testing.assert_array_equal(simulator.draw(50, stream(9, 4)), together[4])
    assert not np.array_equal(together[0], together[1])
    assert not np.array_equal(together[0], simulator.simulate(50, rng=10)[0])


def test_a_generator_gives_one_seed(scores):
    simulator = fit_collection(scores)
    one = simulator.simulate(20, rng=np.random.default_rng(3))
    other = simulator.simulate(20, rng=np.random.default_rng(3))
    np.testing.assert_array_equal(one.scores, other.scores)
    assert one.seed == other.seed


def effects_of(simulator, n_topics=40_000):
    """Return residuals and topic effects on the scale of a simulator, of very many topics."""
    Y = simulator.simulate(n_topics, rng=2)[0]
    inside = ((Y > 0) & (Y < 1)).all(axis=1) if simulator.scale.logit else slice(None)
    Y = simulator.scale.forward(Y[inside])
    return Y


def test_normal_residuals_are_normal(scores):
    simulator = fit_collection(scores, margins="normal", correlation=0)
    Y = effects_of(simulator)
    # With topic effects independent of residuals, differences of systems are normal.
    D = Y[:, 1:] - Y[:, :-1]
    n = len(D)
    assert np.abs(stats.skew(D)).max() < 5 * np.sqrt(6 / n)
    assert np.abs(stats.kurtosis(D)).max() < 5 * np.sqrt(24 / n)
    assert np.abs(stats.kurtosis(scores[:, 1:] - scores[:, :-1])).max() > 5 * np.sqrt(24 / n)


@pytest.mark.slow
def test_homoscedastic_residuals_have_one_variance(scores):
    sd = decompose(scores).residuals.std(axis=0, ddof=1)
    unequal = fit_collection(scores, margins="normal", correlation=0)
    equal = fit_collection(scores, margins="normal", correlation=0, heteroscedasticity=0)
    # Var(Y_s) = σ²(T) + σ²_s, independent of each other; σ²_s is the mean of variances.
    var_t = equal.topic_margin.variance
    reach = 5 * np.sqrt(2 / 40_000)
    pooled = effects_of(equal).var(axis=0) / (var_t + np.mean(sd**2))
    assert np.abs(pooled - 1).max() < reach
    own = effects_of(unequal).var(axis=0) / (var_t + sd**2)
    assert np.abs(own - 1).max() < reach
    assert np.ptp(effects_of(unequal).var(axis=0)) > reach * var_t
    for margin in equal.margins:
        assert margin.variance == pytest.approx(np.mean(sd**2), rel=1e-6)


@pytest.mark.slow
def test_correlations_are_kept_or_not(scores):
    n = 40_000
    kept = fit_collection(scores, margins="normal")
    residuals = decompose(scores).residuals
    effects = np.column_stack([decompose(scores).topics, residuals])
    wanted = np.corrcoef(effects, rowvar=False)
    np.testing.assert_allclose(kept.factor @ kept.factor.T, wanted, atol=1e-6)
    # Cov(Y_s, Y_u) - Cov(Y_s, Y_v) has no variance of topic effects; all of Σ stays in.
    Y = effects_of(kept)
    sigma = np.cov(residuals, rowvar=False)
    S = np.cov(Y, rowvar=False)
    centring = np.eye(8) - 1 / 8
    largest = np.diag(S).max()
    np.testing.assert_allclose(
        centring @ S @ centring, centring @ sigma @ centring, atol=6 * largest / np.sqrt(n)
    )
    lost = fit_collection(scores, margins="normal", correlation=0)
    Y = effects_of(lost)
    S = np.cov(Y, rowvar=False)
    off = S[~np.eye(8, dtype=bool)]
    np.testing.assert_allclose(off, lost.topic_margin.variance, atol=6 * largest / np.sqrt(n))


def test_random_sampling_or_not(scores):
    random = fit_collection(scores)
    uneven = fit_collection(scores, random_sampling=False)
    n, size = 50, 300
    spread = random.simulate(n, size).scores.mean(axis=(1, 2)).std()
    wider = uneven.simulate(n, size).scores.mean(axis=(1, 2)).std()
    assert wider > 3 * spread  # Urbano (2016), fig. 4: "much more variable"


@pytest.mark.parametrize(("a", "b"), [(0.01, 8.0), (2.0, 2.0), (0.5, 3.0)])
def test_weights_are_a_density(a, b):
    at = np.arange(1, 21) / 22
    expected = stats.beta.pdf(at, a, b)
    np.testing.assert_allclose(quantile_weights(20, a, b), expected / expected.sum(), rtol=1e-11)


def test_topics_are_drawn_one_after_the_other_without_replacement():
    """R's sample(prob =): the second topic by the weights of those that are left."""
    p = np.array([0.5, 0.3, 0.15, 0.05])
    rng = np.random.default_rng(1)
    n = 40_000
    drawn = np.array([draw_weighted(2, p, rng) for _ in range(n)])
    for i in range(4):
        for j in range(4):
            chance = 0.0 if i == j else p[i] * p[j] / (1 - p[i])
            share = (drawn == [i, j]).all(axis=1).mean()
            assert share == pytest.approx(chance, abs=5 * np.sqrt(chance / n))


def test_the_pool_has_four_times_as_many_topics():
    assert [pool_size(n) for n in (5, 50, 51, 500)] == [200, 200, 204, 2000]


@pytest.mark.parametrize("family", ["beta", "auto"])
def test_margins_of_scores_and_their_correlations(scores, family):
    simulator = fit_collection(scores, margins=family)
    n = 20_000
    Y = simulator.simulate(n, rng=4)[0]
    for s, margin in enumerate(simulator.margins):
        u = np.array([0.1, 0.5, 0.9])
        share = (Y[:, s] <= margin.quantile(u)[:, None]).mean(axis=1)
        np.testing.assert_allclose(share, u, atol=5 * np.sqrt(0.25 / n))
    # A Gaussian copula has ρ_S = 6/π asin(ρ/2), whatever its margins.
    ranks = stats.rankdata(scores, axis=0) / (len(scores) + 1)
    rho = np.corrcoef(stats.norm.ppf(ranks), rowvar=False)
    np.testing.assert_allclose(
        stats.spearmanr(Y).statistic, 6 / np.pi * np.arcsin(rho / 2), atol=5 / np.sqrt(n)
    )
    np.testing.assert_allclose(simulator.means, scores.mean(axis=0), atol=1e-10)


def test_discrete_scores(scores):
    rounded = np.round(scores * 10) / 10
    simulator = fit_collection(rounded, margins="auto", support="P@10", random_sampling=False)
    Y = simulator.simulate(30, 20).scores
    assert set(np.unique(np.round(Y * 10, 9))) <= set(range(11))
    np.testing.assert_allclose(simulator.means, rounded.mean(axis=0), atol=1e-10)


@pytest.mark.parametrize("n_topics", [0, -1, 2.5, True, "50", None])
def test_numbers_of_topics_are_checked(scores, n_topics):
    with pytest.raises(PlanError, match="n_topics must be a whole number of at least 1"):
        fit_collection(scores).simulate(n_topics)


def test_other_numbers_are_checked(scores):
    simulator = fit_collection(scores)
    for name, value in (("n", 0), ("first", -1), ("workers", 0)):
        with pytest.raises(PlanError, match=f"{name} must be a whole number"):
            simulator.simulate(10, **{name: value})
    with pytest.raises(EstimationError, match="rng must be a seed"):
        simulator.simulate(10, rng="seed")
    with pytest.raises(PlanError, match="go on with first="):
        simulator.simulate(10**9, 10**6)


def test_numpy_numbers_will_do(scores):
    simulator = fit_collection(scores)
    found = simulator.simulate(np.int64(10), np.int32(2), rng=np.int64(1))
    assert found.scores.shape == (2, 10, 8)


def test_topics_worked_on_in_parts_are_those_of_one(scores):
    simulator = fit_collection(scores, margins="beta")
    n_topics = 2 * topics_at_a_time(scores.shape[1]) + 3
    z = stream(5, 0).standard_normal((n_topics, scores.shape[1])) @ simulator.factor.T
    wanted = np.empty_like(z)
    scores_from_margins(z, simulator.tables, LOW, PER_UNIT, wanted)
    found = simulator.simulate(n_topics, rng=5)[0]
    # Products of parts may add in another order.
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


@pytest.mark.parametrize("margins", ["kernel", "beta"])
def test_one_large_collection_needs_little_more_than_itself(scores, margins):
    import tracemalloc

    simulator = fit_collection(scores, margins=margins)
    simulator.simulate(50, rng=1)
    tracemalloc.start()
    made = simulator.simulate(100_000, rng=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.2 * made.scores.nbytes


def test_the_memory_of_eight_bytes_a_score_is_told():
    simulator = fit_collection(
        np.random.default_rng(3).uniform(size=(12, 4)), random_sampling=True
    )
    needed = f"{8 * 10**8 * 1000 * 4 / 2**30:,.1f} GiB"
    with pytest.raises(PlanError, match=f"1,000 topics × 4 systems need {needed}"):
        simulator.simulate(1000, 10**8)
    # Topics that are not drawn at random are chosen from four times as many.
    uneven = fit_collection(simulator.scores, random_sampling=False)
    needed = f"{8 * (1 + 4) * 10**10 * 4 / 2**30:,.1f} GiB"
    with pytest.raises(PlanError, match=f"10,000,000,000 topics × 4 systems need {needed}"):
        uneven.simulate(10**10, 1)

"""The copulas: t densities of pairs, extremes that come together, margins that stay."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtr

from vcomp.exceptions import PlanError
from vcomp.ir.simulate.copula import (
    Scale,
    Spread,
    fitted_df,
    gaussian,
    normal_scores,
    pair_likelihood,
    student,
    student_quantiles,
)
from vcomp.ir.simulate.margin import GRID, normal_weights
from vcomp.ir.simulate.simulator import choose_unevenly, pool_size
from vcomp.numerics.parallel import stream
from vcomp.simulate import fit_collection


def t_vectors(n, R, df, seed):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, len(R))) @ np.linalg.cholesky(R).T
    return z * np.sqrt(df / rng.chisquare(df, (n, 1)))


def equal_correlations(k, r):
    return np.full((k, k), r) + (1.0 - r) * np.eye(k)


@pytest.fixture
def X():
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(40, 1)) + rng.normal(size=(40, 5)) * np.linspace(0.4, 1.0, 5)
    return 1.0 / (1.0 + np.exp(-logits - np.linspace(-1.0, 0.5, 5)))


@pytest.mark.parametrize("df", [1.0, 2.5, 7.0, 200.0])
def test_quantiles_of_t(df):
    found = student_quantiles(df, GRID)
    np.testing.assert_allclose(stats.t.cdf(found[GRID < 0], df), ndtr(GRID[GRID < 0]), rtol=1e-8)
    np.testing.assert_array_equal(found, -found[::-1])


@pytest.mark.parametrize("df", [1.5, 4.0, 60.0])
def test_the_likelihood_of_pairs_is_that_of_bivariate_t_densities(df):
    R = np.array([[1.0, 0.7, -0.4], [0.7, 1.0, 0.1], [-0.4, 0.1, 1.0]])
    u = np.random.default_rng(1).uniform(0.02, 0.98, size=(12, 3))
    x = stats.t.ppf(u, df)
    expected = 0.0
    for i, j in ((0, 1), (0, 2), (1, 2)):
        both = stats.multivariate_t(shape=[[1.0, R[i, j]], [R[i, j], 1.0]], df=df)
        expected += both.logpdf(x[:, [i, j]]).sum()
        expected -= stats.t.logpdf(x[:, [i, j]], df).sum()
    assert pair_likelihood(u, R, df) == pytest.approx(expected, rel=1e-9)


def test_columns_that_are_one_say_nothing():
    x = np.random.default_rng(1).normal(size=(20, 2))
    R = np.array([[1.0, 1.0, 0.3], [1.0, 1.0, 0.3], [0.3, 0.3, 1.0]])
    u = ndtr(np.column_stack([x[:, 0], x]))
    once = pair_likelihood(u[:, 1:], R[1:, 1:], 5.0)
    assert pair_likelihood(u, R, 5.0) == pytest.approx(2.0 * once, rel=1e-12)


def test_degrees_of_freedom_are_found_again():
    R = equal_correlations(6, 0.5)
    found = [fitted_df(t_vectors(1500, R, 4.0, seed), R) for seed in range(6)]
    assert np.std(found) < 0.5
    assert abs(np.mean(found) - 4.0) < 3.0 * np.std(found, ddof=1) / np.sqrt(6)
    z = np.random.default_rng(0).standard_normal((1500, 6)) @ np.linalg.cholesky(R).T
    assert fitted_df(z, R) > 40.0


@pytest.mark.parametrize("df", [2.0, 6.0])
def test_extremes_come_together_and_margins_stay(df):
    n, r, q = 200_000, 0.5, 0.01
    copula, rng = student(df), np.random.default_rng(7)
    z = rng.standard_normal((n, 2)) @ np.linalg.cholesky(equal_correlations(2, r)).T
    x = copula.normals(z, copula.scales(n, rng))
    # The table is on straight lines between quantiles; 200,000 values see 3e-3.
    for column in x.T:
        assert stats.kstest(column, "norm").statistic < 1.63 / np.sqrt(n)
    tau = stats.kendalltau(*x[:20_000].T).statistic
    assert abs(tau - 2.0 / np.pi * np.arcsin(r)) < 4 * 0.7 / np.sqrt(20_000)
    both = stats.multivariate_t(shape=[[1.0, r], [r, 1.0]], df=df)
    expected = both.cdf([stats.t.ppf(q, df)] * 2, random_state=1)
    for tail in (ndtr(x) < q, ndtr(-x) < q):
        share = tail.all(axis=1).mean()
        assert abs(share - expected) < 4.0 * np.sqrt(expected / n)


@pytest.mark.parametrize("correlation", [-0.9, 0.0, 0.6, 1.0])
def test_conditional_normals_have_the_joint_distribution(correlation):
    z = GRID[::4]
    weights = np.outer(normal_weights(z), normal_weights(z))
    copula = student(3.0)
    other = copula.conditional(correlation, z)
    assert np.sum(weights * other) == pytest.approx(0.0, abs=1e-10)
    assert np.sum(weights * other**2) == pytest.approx(1.0, abs=2e-3)  # of a sum over steps
    rng = np.random.default_rng(2)
    n = 400_000
    pair = rng.standard_normal((n, 2))
    pair[:, 1] = correlation * pair[:, 0] + np.sqrt(1.0 - correlation**2) * pair[:, 1]
    x, y = copula.normals(pair, copula.scales(n, rng)).T
    for f in (lambda a, b: a * b, lambda a, b: a**2 * b**2, lambda a, b: np.tanh(a + b) ** 2):
        values = f(x, y)
        found = np.sum(weights * f(z[:, None], other))
        assert abs(found - values.mean()) < 4.0 * values.std() / np.sqrt(n) + 2e-3


def test_many_degrees_of_freedom_are_the_normal_copula():
    z = GRID[::8]
    inside = np.abs(z) < 4.0
    expected = gaussian().conditional(0.4, z)[inside][:, inside]
    found = student(1e7).conditional(0.4, z)[inside][:, inside]
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("margins", ["kernel", "normal", "beta"])
@pytest.mark.parametrize("df", [1.5, 5.0, None])
def test_true_means_are_those_of_many_topics(X, margins, df):
    simulator = fit_collection(X, margins=margins, copula="t", df=df, means="fitted")
    drawn = simulator.simulate(200_000, rng=4)[0]
    error = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - simulator.means) < 4.5 * error + 1e-4).all()
    assert simulator.copula.df == df or df is None


@pytest.mark.parametrize("random", [True, False])
def test_effects_line_by_line(X, random):
    df, n_topics = 3.0, 30
    simulator = fit_collection(X, margins="normal", copula="t", df=df, random_sampling=random)
    rng, drawn = stream(5, 0), n_topics if random else pool_size(n_topics)
    first = rng.standard_normal(drawn)
    scale = np.sqrt(df / rng.chisquare(df, drawn))
    chosen = np.arange(drawn)
    if not random:
        by_effect = np.argsort(first * scale, kind="stable")
        chosen = by_effect[choose_unevenly(n_topics, drawn, rng)]
    vectors = np.column_stack([first[chosen], rng.standard_normal((n_topics, 5))])
    u = stats.t.cdf(vectors @ simulator.factor.T * scale[chosen, None], df)
    topics = simulator.topic_margin.quantile(u[:, 0])
    residuals = [m.quantile(p) for m, p in zip(simulator.margins, u[:, 1:].T, strict=True)]
    expected = simulator.offsets + topics[:, None] + np.column_stack(residuals)
    # Quantiles of t are tabulated: on straight lines between steps of .012 standard deviations.
    np.testing.assert_allclose(simulator.simulate(n_topics, rng=5)[0], expected, atol=2e-5)


def test_parts_and_words(X):
    simulator = fit_collection(X, copula="t", df=3)
    whole = simulator.simulate(20, n=3, rng=2)
    np.testing.assert_array_equal(simulator.simulate(20, rng=2, first=2)[0], whole[2])
    assert repr(simulator.copula) == "<t copula with 3 degrees of freedom>"
    assert "t with 3 degrees of freedom" in str(simulator.summary())
    assert "Gaussian" in str(fit_collection(X).summary())
    assert repr(fit_collection(X).copula) == "<gaussian copula>"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"copula": "student"}, "copula='student' is not known; it is 'gaussian' or 't'"),
        ({"copula": "gausian"}, "did you mean 'gaussian'"),
        ({"copula": None}, "copula=None is not known"),
        ({"df": 4}, "the Gaussian one has none"),
        ({"copula": "t", "df": 0.5}, "df= must be finite and at least 1, not 0.5"),
        ({"copula": "t", "df": np.inf}, "for infinitely many use copula='gaussian'"),
        ({"copula": "t", "df": np.nan}, "df= must be finite and at least 1"),
        ({"copula": "t", "df": True}, "df= must be finite and at least 1"),
        ({"copula": "t", "df": "4"}, "df= must be finite and at least 1"),
        ({"copula": "t", "correlation": 0}, "use copula='gaussian' with correlation=0"),
    ],
)
def test_bad_copulas(X, options, message):
    with pytest.raises(PlanError, match=message):
        fit_collection(X, **options)


@pytest.mark.parametrize("width", [0.0, 0.3, 3.0, 12.0])
@pytest.mark.parametrize("mean", [1e-6, 0.03, 0.5, 0.8, 1.0 - 1e-6])
@pytest.mark.parametrize("start", [0.0, -2.0, 3.5, 40.0, -40.0])
def test_offsets_give_scores_their_mean(width, mean, start):
    """From any start, also one at which all scores are cut off and nothing has a slope."""
    rng = np.random.default_rng(5)
    values, weights = width * rng.standard_normal(40), rng.dirichlet(np.ones(40))
    spread, scale = Spread(values, weights), Scale(logit=True)
    found = spread.offset(mean, scale, start)
    assert spread.mean(found, scale) == pytest.approx(mean, rel=1e-7)
    reach = np.abs(values).max() + scale.reach
    exact = brentq(lambda at: spread.mean(at, scale) - mean, -reach, reach, xtol=1e-13)
    # Where the mean is near 0 or 1 few scores are not cut off.
    assert spread.mean(exact, scale) == pytest.approx(spread.mean(found, scale), rel=1e-7)


def test_offsets_of_scores_as_they_are():
    values, weights = np.array([-1.0, 0.5, 2.0]), np.array([0.2, 0.5, 0.3])
    spread, scale = Spread(values, weights), Scale(logit=False)
    assert spread.offset(0.4, scale, 9.0) == pytest.approx(0.4 - 0.65, rel=1e-14)
    assert spread.mean(-0.25, scale) == pytest.approx(0.4, rel=1e-14)


def test_fitted_degrees_of_freedom_have_the_largest_likelihood_of_ranks():
    R = np.array([[1.0, 0.6, 0.2], [0.6, 1.0, 0.3], [0.2, 0.3, 1.0]])
    columns = t_vectors(40, R, 3.0, 5)
    found = fitted_df(columns, R)
    assert 1.5 < found < 20.0
    u = stats.rankdata(columns, axis=0) / 41.0
    best = minimize_scalar(
        lambda df: -pair_likelihood(u, R, df), bounds=(0.5 * found, 2.0 * found), method="bounded"
    ).x
    assert found == pytest.approx(best, rel=1e-4)  # both searches stop in the flat top


@pytest.mark.parametrize("df", [1.5, 4.0])
def test_conditional_distributions_are_those_of_the_bivariate_t_density(df):
    correlation, z = 0.6, GRID[::128]
    copula = student(df)
    other = copula.conditional(correlation, z)
    joint = stats.multivariate_t(shape=equal_correlations(2, correlation), df=df)
    inner = np.flatnonzero(np.abs(z) < 2.5)
    assert inner.size > 2
    for i in inner:
        x = stats.t.ppf(ndtr(z[i]), df)
        for j in inner:
            y = stats.t.ppf(ndtr(other[i, j]), df)
            below = quad(lambda v, x=x: joint.pdf([x, v]), -np.inf, y)[0]
            # The quantiles of t are interpolated in a table.
            assert below / stats.t.pdf(x, df) == pytest.approx(ndtr(z[j]), abs=1e-4)


def test_degrees_of_freedom_are_one_or_more():
    R = equal_correlations(3, 0.5)
    # A search between bounds stops just before one.
    assert fitted_df(t_vectors(60, R, 0.3, 2), R) == pytest.approx(1.0, rel=1e-4)


def test_normal_scores_are_those_of_ranks():
    X = np.array([[3.0, 0.1], [1.0, 0.1], [2.0, 0.7]])
    expected = stats.norm.ppf(np.array([[3, 1.5], [1, 1.5], [2, 3]]) / 4)
    np.testing.assert_allclose(normal_scores(X), expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("offset", [-1.0, 0.3, 4.0])
def test_the_slope_of_an_expected_score_is_its_derivative(offset):
    values = np.linspace(-3.0, 3.0, 41)
    spread = Spread(values, np.full(41, 1 / 41))
    scale = Scale(logit=True)
    h = 1e-6
    up, down = (spread.mean(offset + s * h, scale) for s in (1, -1))
    mean, slope = spread._with_slope(offset, scale)
    assert mean == pytest.approx(spread.mean(offset, scale), rel=1e-14)
    assert slope == pytest.approx((up - down) / (2 * h), rel=1e-6)


def test_points_of_a_circle_have_the_most_degrees_of_freedom_that_are_fitted():
    """Their extremes never come together."""
    at = np.linspace(0.0, 2.0 * np.pi, 60, endpoint=False)
    columns = np.column_stack([np.cos(at), np.sin(at)])
    # The search of their reciprocal stops just before the bound.
    assert fitted_df(columns, np.eye(2)) == pytest.approx(200.0, rel=1e-2)

"""The largest of correlated |t| against published tables, quadrature and the t-distribution."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import stdtr
from scipy.stats import multivariate_t, norm

from vcomp.inference.pairwise import (
    maximum_of_correlated,
    maximum_of_normals,
    product_loadings,
    simultaneous,
)

HALF = np.sqrt(0.5)


def critical(loadings, df, alpha=0.05):
    tail = maximum_of_normals(np.asarray(loadings))
    return simultaneous(np.array([1.0]), np.array([df]), tail, alpha)[1][0]


@pytest.mark.parametrize("df", [5, 20])
@pytest.mark.parametrize("m", [2, 4])
def test_critical_value_of_differences_to_one_of_equal_groups(m, df):
    """Against the probability of the box by scipy's quasi-random multivariate t."""
    limit = np.full(m, critical(np.full(m, HALF), df))
    correlations = 0.5 + 0.5 * np.eye(m)
    inside = multivariate_t.cdf(
        limit, shape=correlations, df=df, lower_limit=-limit, maxpts=200_000, random_state=1
    )
    assert inside == pytest.approx(0.95, abs=2e-4)


@pytest.mark.parametrize("loadings", [(HALF,) * 3, (0.2, 0.5, 0.9, 0.99), (0.0, 0.0)])
def test_normal_tail_is_the_integral(loadings):
    loadings = np.array(loadings)
    spread = np.sqrt(1.0 - loadings**2)

    def within(z, w):
        ends = [norm.cdf((side * w - loadings * z) / spread) for side in (1.0, -1.0)]
        return norm.pdf(z) * np.prod(ends[0] - ends[1])

    values = np.array([0.3, 1.0, 2.3, 4.0])
    found = simultaneous(values, np.full(4, np.inf), maximum_of_normals(loadings), 0.05)[0]
    whole = [1.0 - quad(within, -9, 9, (w,), 0, 1e-14, 1e-13, limit=400)[0] for w in values]
    # The spline is through every 32nd of a unit; its error is largest for small values.
    assert found == pytest.approx(whole, abs=2e-11)


@pytest.mark.parametrize("df", [1.5, 4.0, 30.0])
def test_one_difference_has_the_t_distribution(df):
    t = np.array([0.5, 2.0, 5.0, 30.0, 1000.0])
    p, limit = simultaneous(t, np.full(5, df), maximum_of_normals(np.zeros(1)), 0.01)
    assert p == pytest.approx(2.0 * stdtr(df, -t), rel=1e-13)
    assert 2.0 * stdtr(df, -limit) == pytest.approx(0.01, rel=1e-11)


def test_equal_loadings_are_those_of_a_study_with_t():
    """With df degrees of freedom: the mean of the normal tail over the error of the variance."""
    from scipy.stats import chi

    tail, df, q = maximum_of_normals(np.full(4, 0.6)), 7.0, 2.4

    def part(s):
        normal = simultaneous(np.array([q * s]), np.array([np.inf]), tail, 0.05)[0][0]
        return normal * chi.pdf(s * np.sqrt(df), df) * np.sqrt(df)

    found = simultaneous(np.array([q]), np.array([df]), tail, 0.05)[0][0]
    assert found == pytest.approx(quad(part, 1e-9, 6.0, epsabs=1e-12)[0], rel=1e-9)


def test_every_pair_has_its_own_degrees_of_freedom():
    tail = maximum_of_normals(np.full(3, HALF))
    df = np.array([20.0, 5.0, np.nan, 20.0 * (1.0 + 1e-12)])
    p, limits = simultaneous(np.full(4, 2.54), df, tail, 0.05)
    for place, own in enumerate([20.0, 5.0, np.inf, 20.0]):
        alone = simultaneous(np.array([2.54]), np.array([own]), tail, 0.05)
        assert (p[place], limits[place]) == pytest.approx((alone[0][0], alone[1][0]), rel=1e-10)


def test_loadings_of_products():
    rng = np.random.default_rng(2)
    for m in (3, 4, 9):
        loadings = rng.uniform(0.1, 0.99, m)
        R = np.outer(loadings, loadings)
        np.fill_diagonal(R, 1.0)
        assert product_loadings(R) == pytest.approx(loadings, rel=1e-9)
        R[0, 1] = R[1, 0] = R[0, 1] * 0.9
        assert product_loadings(R) is None or m == 3  # three correlations are always products
    assert product_loadings(np.array([[1.0, -0.25], [-0.25, 1.0]])).tolist() == [0.5, 0.5]
    assert product_loadings(np.eye(3)) is None
    assert product_loadings(np.eye(1)).tolist() == [0.0]
    for beyond in (1.0 + 1e-12, -1.0 - 1e-12):  # covariances are rounded
        assert product_loadings(np.array([[1.0, beyond], [beyond, 1.0]])).tolist() == [1.0, 1.0]
    # 1.25 · 0.5 and 0.5 · 0.5: products, but not of correlations with a common variable.
    heywood = np.array([[1.0, 0.625, 0.625], [0.625, 1.0, 0.25], [0.625, 0.25, 1.0]])
    assert product_loadings(heywood) is None
    one = np.array([[1.0, 0.5, 0.7], [0.5, 1.0, 0.35], [0.7, 0.35, 1.0]])  # the common variable
    assert product_loadings(one) == pytest.approx([1.0, 0.5, 0.7], rel=1e-12)
    for error, known in ((1e-9, True), (1e-7, False)):
        R = np.outer([0.5, 0.6, 0.7, 0.8], [0.5, 0.6, 0.7, 0.8])
        R[0, 1] = R[1, 0] = R[0, 1] + error
        assert (product_loadings(R) is not None) == known


def test_any_correlations_against_those_that_are_products():
    """Sobol points, some 8,000 of them: three digits, at every size."""
    loadings = np.array([0.7, 0.6, 0.75, 0.5])
    correlations = np.outer(loadings, loadings)
    np.fill_diagonal(correlations, 1.0)
    w = np.array([0.1, 0.5, 1.0, 1.7, 2.5, 3.0, 4.0, 6.5, 10.0, 30.0])
    found = maximum_of_correlated(correlations).log_sf(w)
    np.testing.assert_allclose(found, maximum_of_normals(loadings).log_sf(w), atol=1e-3)

"""Correlations behind grades, against SciPy's bivariate normal and its optimisers."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal, norm

from vcomp.ir.documents.relevance import bivariate_normal, polychoric_correlations, thresholds


def _below(h, k, rho):
    return multivariate_normal.cdf([h, k], cov=[[1.0, rho], [rho, 1.0]])


def test_the_bivariate_normal_is_that_of_scipy():
    rng = np.random.default_rng(0)
    h, k = 1.5 * rng.normal(size=(2, 100))
    rho = rng.uniform(-0.999, 0.999, 100)
    h[:4], k[2:6] = 0.0, 0.0
    expected = [_below(*one) for one in zip(h, k, rho, strict=True)]
    np.testing.assert_allclose(bivariate_normal(h, k, rho), expected, rtol=0.0, atol=1e-14)


def test_far_limits_have_the_probability_of_the_other():
    far, near = np.full(3, 30.0), np.array([-1.0, 0.0, 2.0])
    rho = np.full(3, 0.4)
    np.testing.assert_allclose(bivariate_normal(far, near, rho), norm.cdf(near), rtol=1e-14)
    np.testing.assert_allclose(bivariate_normal(-far, near, rho), 0.0, atol=1e-15)


def test_thresholds_of_shares():
    shares = np.array([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]])
    np.testing.assert_allclose(
        thresholds(shares), [norm.ppf([0.2, 0.7]), [-30.0, 30.0]], rtol=1e-14
    )


def _cells(shares, rho):
    """Return the probabilities of pairs of grades."""
    at = [-9.0, *norm.ppf(np.cumsum(shares)[:-1]), 9.0]
    F = np.array([[_below(h, k, rho) for k in at] for h in at])
    return np.diff(np.diff(F, axis=0), axis=1)


@pytest.mark.parametrize("rho", [-0.7, 0.0, 0.3, 0.95])
@pytest.mark.parametrize("shares", [(0.9, 0.1), (0.5, 0.3, 0.2), (0.1, 0.2, 0.3, 0.4)])
def test_exact_probabilities_give_their_correlation(shares, rho):
    found = polychoric_correlations(_cells(shares, rho)[np.newaxis], np.array([shares]))
    assert found == pytest.approx([rho], abs=1e-9)


def test_observed_tables_have_the_correlation_with_the_highest_likelihood():
    rng = np.random.default_rng(1)
    tables = rng.integers(1, 60, (4, 3, 3)).astype(float)
    tables += tables.transpose(0, 2, 1)
    shares = tables.sum(axis=2) / tables.sum(axis=(1, 2))[:, np.newaxis]
    for table, share, found in zip(
        tables, shares, polychoric_correlations(tables, shares), strict=True
    ):
        best = minimize_scalar(
            lambda rho, n=table, p=share: -np.sum(n * np.log(_cells(p, rho))),
            bounds=(-0.95, 0.95), method="bounded", options={"xatol": 1e-9},
        )  # fmt: skip
        # A minimum of values is found to the root of their precision.
        assert found == pytest.approx(best.x, abs=1e-5)


def test_perfect_agreement_empty_tables_and_grades_that_do_not_occur():
    tables = np.array([np.diag([3.0, 1.0, 0.0]), np.zeros((3, 3))])
    shares = np.array([[0.75, 0.25, 0.0], [0.75, 0.25, 0.0]])
    same, none = polychoric_correlations(tables, shares)
    assert same > 0.99999
    assert np.isnan(none)


def test_shares_that_add_up_to_more_than_one_by_rounding():
    shares = np.array([0.666, 0.063, 0.04, 0.231, 0.0])
    assert np.cumsum(shares)[3] > 1.0
    assert thresholds(shares)[3] == 30.0

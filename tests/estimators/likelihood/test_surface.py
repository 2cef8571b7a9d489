"""Interpolated likelihoods of many data sets against closed forms of balanced designs."""

import numpy as np
import pytest
from numpy.polynomial import chebyshev
from scipy.stats import multivariate_normal

from vcomp.estimators.likelihood.surface import NodeValues, surface_maxima

A, B = 6, 9
DEGREES = A * B - 1.0


def tables():
    """Return a × b tables that are alike, as those of a bootstrap are."""
    rng = np.random.default_rng(4)
    rows, columns = rng.normal(0.0, 1.2, (A, 1)), rng.normal(0.0, 0.9, (1, B))
    return 3.0 + rows + columns + rng.normal(0.0, 1.1, (5, A, B))


def squares(y):
    """Return sums of squares of rows, columns and residual."""
    mean = y.mean(axis=(1, 2), keepdims=True)
    rows, columns = y.mean(axis=2, keepdims=True), y.mean(axis=1, keepdims=True)
    rest = y - rows - columns + mean
    return (
        B * np.square(rows - mean).sum(axis=(1, 2)),
        A * np.square(columns - mean).sum(axis=(1, 2)),
        np.square(rest).sum(axis=(1, 2)),
    )


def of_tables(y):
    """Return the REML values of crossed tables at ratios, by the eigenvalues of V."""
    of_rows, of_columns, rest = squares(y)

    def values(ratios):
        own, other = 1.0 + B * ratios[0], 1.0 + A * ratios[1]
        log_det = (A - 1) * np.log(own) + (B - 1) * np.log(other) + np.log(A * B)
        rss = rest + of_rows / own + of_columns / other
        # A column of X that is estimated differently at every ratio: its value at the maximum.
        beta = np.stack([y.mean(axis=(1, 2)), np.log(ratios[0]) * y[:, 0, 0]], axis=1)
        return NodeValues(rss, np.full(len(y), log_det), beta)

    return values


def expected(y):
    """Return the ratios and the residual of the analysis of variance, which are those of REML."""
    of_rows, of_columns, rest = squares(y)
    residual = rest / ((A - 1) * (B - 1))
    ratios = np.stack(
        [
            (of_rows / (A - 1) / residual - 1.0) / B,
            (of_columns / (B - 1) / residual - 1.0) / A,
        ],
        axis=1,
    )
    return ratios, residual


def maxima(y, *, n_nodes=14, tolerance=1e-3, width=1.6, shift=0.0):
    ratios, _ = expected(y)
    centre = np.log(ratios).mean(axis=0) + shift
    return surface_maxima(
        of_tables(y),
        centre,
        np.full(2, width),
        np.full(len(y), DEGREES),
        n_nodes=n_nodes,
        tolerance=tolerance,
    )


def test_maxima_of_crossed_tables_are_those_of_the_analysis_of_variance():
    y = tables()
    ratios, residual = expected(y)
    found = maxima(y)
    assert found.found.all()
    # The interpolation's own error, in standard errors, which are below 2 on the log scale.
    within = 4.0 * found.errors.max()
    assert within < 1e-2
    np.testing.assert_allclose(found.ratios, ratios, rtol=within)
    np.testing.assert_allclose(found.residual, residual, rtol=within)
    np.testing.assert_allclose(found.beta[:, 0], y.mean(axis=(1, 2)), rtol=1e-12)
    np.testing.assert_allclose(found.beta[:, 1], np.log(ratios[:, 0]) * y[:, 0, 0], atol=within)


def test_the_likelihood_is_that_of_contrasts_under_the_normal_distribution():
    y = tables()
    ratios, residual = expected(y)
    found = maxima(y)
    n = A * B
    contrasts = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, 1:]]))[0][:, 1:]
    for table, (row, column), rest, loglike in zip(
        y, ratios, residual, found.loglike, strict=True
    ):
        V = row * np.kron(np.eye(A), np.ones((B, B))) + column * np.kron(
            np.ones((A, A)), np.eye(B)
        )
        V = rest * (V + np.eye(n))
        dense = multivariate_normal(np.zeros(n - 1), contrasts.T @ V @ contrasts)
        # log|X'X| is no part of the likelihood of orthonormal contrasts.
        of_X = 0.5 * np.log(n)
        assert loglike == pytest.approx(dense.logpdf(contrasts.T @ table.ravel()) - of_X, rel=1e-6)


def test_maxima_outside_the_box_or_too_inexact_are_left_to_others():
    y = tables()
    assert not maxima(y, shift=np.array([4.0, 0.0])).found.any()
    assert not maxima(y, shift=np.array([0.0, -4.0])).found.any()
    few = maxima(y, n_nodes=6, tolerance=np.inf)
    assert few.found.all()
    assert (few.errors > maxima(y).errors).all()
    between = float(np.median(few.errors))
    some = maxima(y, n_nodes=6, tolerance=between)
    np.testing.assert_array_equal(some.found, few.errors <= between)


def test_estimated_errors_are_not_below_the_true_ones():
    y = tables()
    ratios, _ = expected(y)
    for n_nodes in (5, 7, 9):
        found = maxima(y, n_nodes=n_nodes, tolerance=np.inf)
        assert found.found.all()
        off = np.log(found.ratios / ratios)
        # Standard errors of log γ are at least those of an F ratio, √(2/df).
        of = np.abs(off) / np.sqrt([2.0 / (A - 1), 2.0 / (B - 1)])
        assert (of.max(axis=1) <= found.errors + 1e-9).all()


@pytest.mark.parametrize(
    "series", [(0.3, 0.1, 1.0, 0.02, 0.004), (0.3, -0.4, 1.0, 0.2, 0.15, 0.02), (0.0, 0.0, 2.0)]
)
def test_one_direction_is_a_chebyshev_series(series):
    """The deviance is the series itself; its minimum and errors follow by numpy's polynomials."""
    centre, width = -0.7, 1.3

    def values(ratios):
        x = (np.log(ratios[0]) - centre) / width
        rss = np.array([12.0, 30.0])
        return NodeValues(rss, np.full(2, chebyshev.chebval(x, series)), np.zeros((2, 0)))

    found = surface_maxima(
        values,
        np.array([centre]),
        np.array([width]),
        np.array([12.0, 15.0]),
        n_nodes=len(series),
        tolerance=np.inf,
    )
    roots = chebyshev.chebroots(chebyshev.chebder(series)).real
    lowest = roots[np.abs(roots) < 1.0]
    least = lowest[np.argmin(chebyshev.chebval(lowest, series))]
    np.testing.assert_allclose(found.ratios[:, 0], np.exp(centre + width * least), rtol=1e-9)
    np.testing.assert_allclose(found.residual, [1.0, 2.0], rtol=1e-12)
    value = chebyshev.chebval(least, series)
    expected_value = [
        -0.5 * (df * np.log(mean) + value + df * (1.0 + np.log(2.0 * np.pi)))
        for df, mean in ((12.0, 1.0), (15.0, 2.0))
    ]
    np.testing.assert_allclose(found.loglike, expected_value, rtol=1e-12)
    assert found.beta.shape == (2, 0)
    # Left-out coefficients are a geometric series, which halves at most.
    last, before = abs(series[-1]), abs(series[-2])
    rate = min(last / before, 0.5) if before else 0.5
    n = len(series)
    curvature = chebyshev.chebval(least, chebyshev.chebder(series, 2))
    # Bernstein's inequality bounds the slope of what is left out.
    steepest = n / np.sqrt(max(1.0 - least**2, 1.0 / n**2))
    error = steepest * sum(last * rate**j for j in range(1, 60)) / np.sqrt(2.0 * curvature)
    # With equal values of all data sets, the middle coefficients are rounding.
    np.testing.assert_allclose(found.errors, error, rtol=1e-6)


def test_a_saddle_is_no_minimum():
    """A deviance that is highest in the middle leads to the border of the box."""

    def values(ratios):
        x = np.log(ratios[0])
        return NodeValues(np.ones(1), np.array([-(x**2) + 0.1 * x]), np.zeros((1, 0)))

    found = surface_maxima(
        values, np.zeros(1), np.ones(1), np.ones(1), n_nodes=6, tolerance=np.inf
    )
    assert not found.found.any()
    assert found.ratios[0, 0] == pytest.approx(np.exp(-1.0), rel=1e-9)

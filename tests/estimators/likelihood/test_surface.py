"""Interpolated likelihoods of many data sets against closed forms of balanced designs."""

from itertools import product

import numpy as np
import pytest
from numpy.polynomial import chebyshev
from scipy.stats import multivariate_normal

from vcomp.estimators.likelihood import surface
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


# Chebyshev series -------------------------------------------------------------------------------


def random_series(n, k, B, seed):
    """Return coefficients of B polynomials, and the values of each at the points."""
    c = np.random.default_rng(seed).normal(size=(*(n,) * k, B))
    points = np.cos(np.pi * (np.arange(n) + 0.5) / n)
    grid = np.meshgrid(*[points] * k, indexing="ij")
    values = np.array([evaluated(c[..., b], [g.ravel() for g in grid]) for b in range(B)]).T
    return c, values


def evaluated(c, x, orders=None):
    """Return a series, or a derivative of it, at points (k, m), by numpy."""
    for axis, order in enumerate(orders or ()):
        c = chebyshev.chebder(c, order, axis=axis)
    return (chebyshev.chebval, chebyshev.chebval2d, chebyshev.chebval3d)[len(x) - 1](*x, c)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (7, 1), (4, 2), (3, 3)])
def test_series_and_their_derivatives_are_those_of_numpy(n, k):
    c, values = random_series(n, k, 5, n + k)
    found = surface._coefficients(values, (n,) * k)
    np.testing.assert_allclose(found, c, rtol=1e-11, atol=1e-11)
    x = np.random.default_rng(2).uniform(-1.0, 1.0, (5, k))
    basis = surface._basis(x, n, k)
    for orders in product(range(3), repeat=k):
        at = surface._contracted(c, basis, orders)
        expected = [evaluated(c[..., b], list(x[b][:, None]), orders)[0] for b in range(5)]
        np.testing.assert_allclose(at, expected, rtol=1e-10, atol=1e-10)


def test_minima_of_parabolas_are_inside_or_at_the_bound():
    """a(x − m)² + b(y − l)² + c(x − m)(y − l): the bound at −1 is one of y alone."""
    n = 5
    points = np.cos(np.pi * (np.arange(n) + 0.5) / n)
    X, Y = (g.ravel() for g in np.meshgrid(points, points, indexing="ij"))
    cases = [  # a, b, c, m, l, and where the minimum is
        (2.0, 3.0, 1.0, 0.3, -0.4, (0.3, -0.4)),
        (2.0, 3.0, 0.0, -0.9, 0.8, (-0.9, 0.8)),
        # At y = −1 the slope in x is 2a(x − m) + c(y − l) = 0.
        (2.0, 3.0, 1.0, 0.3, -1.4, (0.3 - 0.4 / 4.0, -1.0)),
        (2.0, 3.0, -2.0, 0.0, -1.2, (0.2 * 2.0 / 4.0, -1.0)),
        (2.0, 3.0, 1.0, 0.3, -1.1, (0.3 - 0.1 / 4.0, -1.0)),
    ]
    values = np.array(
        [
            a * (X - m) ** 2 + b * (Y - ell) ** 2 + c * (X - m) * (Y - ell)
            for a, b, c, m, ell, _ in cases
        ]
    ).T
    coefficients = surface._coefficients(values, (n, n))
    x, hessian, settled = surface._minima(coefficients, np.array([False, True]))
    assert settled.all()
    np.testing.assert_allclose(x, [at for *_, at in cases], rtol=0, atol=1e-12)
    for (a, b, c, *_, at), found in zip(cases, hessian, strict=True):
        if at[1] > -1.0:
            np.testing.assert_allclose(found, [[2 * a, c], [c, 2 * b]], atol=1e-12)
        else:
            np.testing.assert_allclose(found, [[2 * a, 0.0], [0.0, max(2 * a, 2 * b)]], atol=1e-12)
    # Where y may not stay at its end, the same minimum is beyond the box.
    x, _, _ = surface._minima(coefficients, np.zeros(2, dtype=bool))
    np.testing.assert_allclose(x[2:, 1], -1.0)
    # A saddle and a maximum are no minima.
    wrong = np.array([X**2 - Y**2, -(X**2) - Y**2]).T
    _, _, settled = surface._minima(surface._coefficients(wrong, (n, n)), np.zeros(2, dtype=bool))
    assert not settled.any()


@pytest.mark.parametrize("ends", [(1e-6, 4e-6), (3e-6, 1e-6), (0.0, 1e-6), (1e-6, 0.0)])
def test_the_error_is_that_of_coefficients_that_fall_as_the_last_ones(ends):
    n = 6
    last, before = ends
    c = np.zeros((n, 1))
    c[:, 0] = [1.0, 0.0, 2.0, 0.5, -before, last]
    rate = min(last / before, 0.5) if before else 0.5
    left = last * rate / (1.0 - rate)
    for x, steepest in ((0.0, n), (0.6, n / 0.8), (1.0, n**2), (-1.0, n**2)):
        found = surface._errors(c, np.array([[[8.0]]]), np.array([[x]]))
        assert found[0] == pytest.approx(steepest * left / 4.0, rel=1e-12, abs=1e-300)
    two = np.zeros((n, n, 1))
    two[-1, 0], two[-2, 0], two[0, -1], two[0, -2] = last, before, last, before
    # Each direction sees all coefficients of the other: those of degree 0 do not count.
    found = surface._errors(two, np.array([np.diag([8.0, 32.0])]), np.zeros((1, 2)))
    assert found[0] == pytest.approx(2.0 * n * left / 4.0, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("end", [1e-9, -1e-9])
def test_the_lower_end_of_a_bounded_direction_is_zero(bounded, end):
    """Up to the rounding of its logarithm, which is neither a ratio nor less than nothing."""
    centre, width, shift = 0.3, 1.1, np.exp(0.3 - 1.1) - end
    asked = []

    def values(ratios):
        asked.append(ratios[0])
        x = (np.log(ratios[0] + shift) - centre) / width
        return NodeValues(np.ones(1), np.array([3.0 + x + 0.25 * x**2]), np.zeros((1, 0)))

    found = surface_maxima(
        values,
        np.array([centre]),
        np.array([width]),
        np.ones(1),
        n_nodes=5,
        tolerance=1e-6,
        shift=np.array([shift]),
        bounded=np.array([bounded]),
    )
    assert found.found[0] == bounded
    assert min(asked) > 0.0
    if bounded:
        assert found.ratios[0, 0] == 0.0
    else:
        assert found.ratios[0, 0] == pytest.approx(end, rel=1e-5)
    # −½ (D + 1 + log 2π) at x = −1, where D is 2.25.
    assert found.loglike[0] == pytest.approx(-0.5 * (3.25 + np.log(2.0 * np.pi)), rel=1e-12)


@pytest.mark.parametrize(("linear", "at_bound"), [(3.0, True), (2.5, True), (-1.2, False)])
def test_errors_of_what_stays_at_the_bound_are_those_of_the_middle(linear, at_bound):
    """An end at a bound is not moved by what is left out: only the value is, as in the middle."""
    n, centre, width = 6, 0.3, 1.1
    series = np.array([1.0, linear, 0.5, 0.0, -4e-4, 1e-4])

    def values(ratios):
        x = (np.log(ratios[0] + np.exp(centre - width)) - centre) / width
        return NodeValues(np.ones(1), np.array([chebyshev.chebval(x, series)]), np.zeros((1, 0)))

    found = surface_maxima(
        values,
        np.array([centre]),
        np.array([width]),
        np.ones(1),
        n_nodes=n,
        tolerance=np.inf,
        shift=np.array([np.exp(centre - width)]),
        bounded=np.array([True]),
    )
    roots = chebyshev.chebroots(chebyshev.chebder(series)).real
    least = -1.0 if at_bound else float(roots[np.abs(roots) < 1.0][0])
    assert found.found[0]
    assert bool(found.ratios[0, 0] == 0.0) is at_bound
    curvature = chebyshev.chebval(least, chebyshev.chebder(series, 2))
    steepest = n if at_bound else n / np.sqrt(1.0 - least**2)
    left = 1e-4 * 0.25 / 0.75
    expected = steepest * left / np.sqrt(2.0 * curvature)
    assert found.errors[0] == pytest.approx(expected, rel=1e-6)

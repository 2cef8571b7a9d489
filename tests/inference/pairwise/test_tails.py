"""Studentized tails against closed forms, scipy, R, published tables and quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr, stdtr
from scipy.stats import chi, chi2, multivariate_t, norm
from scipy.stats import t as student

from vcomp.inference.pairwise import (
    maximum_of_correlated,
    range_of_normals,
    simultaneous,
)
from vcomp.inference.pairwise.tails import (
    Tail,
    maximum_of_normals,
    probabilities_of_best,
    product_loadings,
    root_of_differences,
    studentized_isf,
    studentized_sf,
)

TWO_SIDED = Tail(lambda w: np.log(2.0) + log_ndtr(-w), 1.0)
"""|Z| exceeds w: studentized, that is Student's distribution."""

DFS = [0.5, 1.0, 2.0, 7.3, 40.0, 1e3, 1e6]


def exponential(rate):
    """S(w) = exp(−rate w²/2), whose studentized tail is (1 + rate q²/df)^(−df/2)."""
    return Tail(lambda w: -0.5 * rate * w**2, rate)


Q = np.array([3.0, 1e-6, 0.02, 0.7, 1.0, 9.0, 2.2, 40.0, 300.0])


@pytest.mark.parametrize("df", DFS)
def test_studentized_normals_are_students(df):
    found = studentized_sf(Q, df, TWO_SIDED)
    exact = 2.0 * student.sf(Q, df) if df != 1.0 else 1.0 - 2.0 / np.pi * np.arctan(Q)
    np.testing.assert_allclose(found, exact, rtol=1e-11 + 1e-15 * df, atol=1e-300)


@pytest.mark.parametrize("df", DFS)
@pytest.mark.parametrize("rate", [0.25, 1.0, 2.0])
def test_an_exponential_tail_has_a_closed_form(df, rate):
    found = studentized_sf(Q, df, exponential(rate))
    logs = -0.5 * df * np.log1p(rate * Q**2 / df)
    # Logarithms of gamma functions cancel, the larger df is.
    np.testing.assert_allclose(found, np.exp(logs), rtol=1e-11 + 1e-15 * df, atol=1e-300)
    # One by one as all together, in any order.
    alone = [studentized_sf(np.array([q]), df, exponential(rate))[0] for q in Q]
    np.testing.assert_allclose(found, alone, rtol=1e-11, atol=1e-300)


def test_many_values_are_computed_in_parts():
    q = np.random.default_rng(1).uniform(0.0, 9.0, 20_000)
    found = studentized_sf(q, 5.0, exponential(1.0))
    np.testing.assert_allclose(found, (1.0 + q**2 / 5.0) ** -2.5, rtol=1e-11)


def test_ends():
    for df in (3.0, np.inf):
        ends = studentized_sf(np.array([0.0, np.inf, 1.0]), df, TWO_SIDED)
        assert ends[:2].tolist() == [1.0, 0.0]
        assert 0.3 < ends[2] < 0.4
    known = studentized_sf(np.array([0.5, 2.0]), np.inf, TWO_SIDED)
    np.testing.assert_allclose(known, 2.0 * norm.sf([0.5, 2.0]), rtol=1e-14)
    assert studentized_sf(np.empty(0), 4.0, TWO_SIDED).size == 0
    assert studentized_sf(np.array([1e-12]), 4.0, TWO_SIDED)[0] <= 1.0


@pytest.mark.parametrize("df", [1.0, 4.0, 60.0, np.inf])
@pytest.mark.parametrize("p", [1e-9, 0.01, 0.5, 0.97, 0.9999])
def test_quantiles(df, p):
    expected = norm.isf(p / 2.0) if np.isinf(df) else student.isf(p / 2.0, df)
    # Next to p = 1 the quantile has the digits of 1 − p.
    assert studentized_isf(p, df, TWO_SIDED) == pytest.approx(expected, rel=3e-12 / (1.0 - p))


def test_many_degrees_of_freedom_at_once():
    rng = np.random.default_rng(1)
    df = np.append(10.0 ** rng.uniform(-0.3, 5.0, 400), [np.inf, 3.0, 3.0])
    q = rng.uniform(0.0, 8.0, df.size)
    expected = 2.0 * student.sf(q, df)
    np.testing.assert_allclose(studentized_sf(q, df, TWO_SIDED), expected, rtol=1e-9)
    quantiles = studentized_isf(0.05, df, TWO_SIDED)
    np.testing.assert_allclose(quantiles, student.isf(0.025, df), rtol=1e-10)
    p, critical = simultaneous(q, df, TWO_SIDED, 0.05)
    np.testing.assert_allclose(p, expected, rtol=1e-7)
    np.testing.assert_allclose(critical, student.isf(0.025, df), rtol=1e-8)
    assert all(x.size == 0 for x in simultaneous(df[:0], df[:0], TWO_SIDED, 0.05))


@pytest.mark.parametrize("df", [3.0, 14.5])
def test_the_range_of_many_means_has_its_digits(df):
    q, k = 8.2, 200
    z, s = np.linspace(-9.0, 22.0, 601), np.linspace(1e-4, 4.0, 4_001)
    inside = np.array([ndtr(z) - ndtr(z - q * of) for of in s]) ** (k - 1)
    of_s = 1.0 - k * (inside * norm.pdf(z)).sum(axis=1) * (z[1] - z[0])
    expected = (of_s * chi.pdf(s * np.sqrt(df), df)).sum() * np.sqrt(df) * (s[1] - s[0])
    assert range_sf(np.array([q]), k, df)[0] == pytest.approx(expected, rel=1e-9)


# The studentized range ---------------------------------------------------------------------------

RANGES = np.array([0.3, 1.0, 2.5, 4.0, 7.0, 30.0])


def range_sf(q, k, df):
    return studentized_sf(q, df, range_of_normals(k))


def range_isf(p, k, df):
    return studentized_isf(p, df, range_of_normals(k))


@pytest.mark.parametrize("df", [1.0, 2.0, 3.5, 30.0, 2000.0])
def test_two_means_have_students_distribution(df):
    t = 2.0 * stats.t.sf(RANGES / np.sqrt(2.0), df)
    np.testing.assert_allclose(range_sf(RANGES, 2, df), t, rtol=3e-13)


def test_infinite_degrees_of_freedom_against_two_normals():
    np.testing.assert_allclose(
        range_sf(RANGES, 2, np.inf), 2.0 * stats.norm.sf(RANGES / np.sqrt(2.0)), rtol=1e-11
    )


@pytest.mark.parametrize(("k", "df"), [(3, 2.0), (3, 10.0), (20, 30.0), (48, 2303.0)])
def test_as_scipy(k, df):
    q = np.array([1.0, 3.5, 5.0])
    # scipy integrates to about ten digits.
    np.testing.assert_allclose(range_sf(q, k, df), stats.studentized_range.sf(q, k, df), rtol=2e-9)


def test_as_r():
    """ptukey(c(2, 4, 6), c(3, 10, 5), c(4, 20, 12), lower.tail = FALSE) of R 4.2.2."""
    cases = [(2.0, 3, 4.0), (4.0, 10, 20.0), (6.0, 5, 12.0)]
    made = [range_sf(np.array([q]), k, df)[0] for q, k, df in cases]
    # R promises about ten digits.
    np.testing.assert_allclose(
        made, [0.41669321356421785, 0.19203084788679359, 0.00821321270651698], rtol=1e-8
    )


@pytest.mark.parametrize(("k", "w"), [(3, 0.5), (3, 6.0), (200, 4.0), (200, 9.0), (1000, 6.0)])
def test_the_range_of_normal_variables_by_adaptive_quadrature(k, w):
    def density(z):
        below, missed = ndtr(z), ndtr(z - w)
        ratio = -np.expm1((k - 1) * np.log1p(-missed / below)) if missed < below else 1.0
        return k * stats.norm.pdf(z) * below ** (k - 1) * ratio

    expected = quad(density, -8.0, 14.0, epsabs=0.0, epsrel=1e-12, limit=400, points=[0, 2, 4])[0]
    made = range_sf(np.array([w]), k, np.inf)[0]
    np.testing.assert_allclose(made, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("k", "df", "quantile"),
    [(3, 5.0, 4.602), (3, 10.0, 3.877), (10, 20.0, 5.008), (5, 60.0, 3.977)],
)
def test_printed_quantiles(k, df, quantile):
    """Tables of the studentized range at 5 %, such as Pearson and Hartley's table 29."""
    assert round(range_isf(0.05, k, df), 3) == quantile


def test_quantiles_invert_probabilities():
    for p in (0.999, 0.5, 0.05, 1e-6, 1e-40):
        for k, df in ((2, 1.0), (30, 50.0), (1415, 70_000.0), (4, np.inf)):
            q = range_isf(p, k, df)
            np.testing.assert_allclose(range_sf(np.array([q]), k, df), p, rtol=1e-10)


def test_ends_and_order_of_ranges():
    values = np.array([0.0, np.inf, 1e-9, 3.0, 60.0, 3.0, 1e200])
    p = range_sf(values, 10, 50.0)
    assert p[[0, 1, 6]].tolist() == [1.0, 0.0, 0.0]
    assert p[2] == pytest.approx(1.0, abs=1e-14)
    assert p[3] == p[5]
    assert 0.0 < p[4] < 1e-20
    line = np.linspace(0.0, 9.0, 2000)
    many = range_sf(line, 10, 50.0)
    # Near 1 the quadrature has errors of some units in the last place.
    assert (np.diff(many) <= 1e-12).all()
    some = range_sf(line[::400], 10, 50.0)
    np.testing.assert_allclose(many[::400], some, rtol=1e-12)
    assert range_sf(np.empty(0), 3, 4.0).size == 0


@pytest.mark.parametrize("k", [3, 10, 1000])
@pytest.mark.parametrize("df", [np.inf, 7.0])
def test_no_probability_is_above_1(k, df):
    assert range_sf(np.linspace(0.0, 1.0, 4001), k, df).max() <= 1.0


# The largest of correlated |t| -------------------------------------------------------------------

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


@pytest.mark.slow
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
    found = maximum_of_correlated(np.linalg.cholesky(correlations)).log_sf(w)
    np.testing.assert_allclose(found, maximum_of_normals(loadings).log_sf(w), atol=1e-3)


def test_the_largest_of_all_differences_of_alike_means_is_their_range():
    first, second = np.triu_indices(5, 1)
    rows = (np.eye(5)[first] - np.eye(5)[second]) * HALF
    w = np.array([0.3, 1.0, 1.7, 2.5, 3.0, 4.0, 6.5, 10.0])
    found = maximum_of_correlated(rows).log_sf(w)
    expected = range_of_normals(5).log_sf(np.sqrt(2.0) * w)
    # 65,536 points.
    np.testing.assert_allclose(found, expected, atol=3e-3)


def test_the_largest_of_three_differences_is_an_integral_over_their_plane():
    variances = np.array([[0.0, 2.0, 5.0], [2.0, 0.0, 4.5], [5.0, 4.5, 0.0]])
    root = root_of_differences(variances)
    rows = np.array([root[0] - root[1], root[0] - root[2], root[1] - root[2]])
    lengths = np.linalg.norm(rows, axis=1)
    np.testing.assert_allclose(lengths**2, variances[[0, 0, 1], [1, 2, 2]], rtol=1e-13)
    rows /= lengths[:, None]
    angle = np.linspace(0.0, np.pi, 4001)[:-1]
    reach = np.abs(rows @ np.array([np.cos(angle), np.sin(angle)])).max(axis=0)
    w = np.array([0.5, 1.0, 2.0, 3.0, 5.0])
    # The length of two normals exceeds r with probability exp(-r²/2).
    expected = np.exp(-0.5 * (w[:, None] / reach) ** 2).mean(axis=1)
    found = np.exp(maximum_of_correlated(rows).log_sf(w))
    np.testing.assert_allclose(found, expected, rtol=3e-3)


def test_the_probability_of_the_best_of_independent_means():
    means, own = np.array([0.3, 0.0, 0.5, -1.0]), np.array([0.4, 1.0, 0.2, 2.0])
    root = root_of_differences((own + own[:, None]) * (1.0 - np.eye(4)))
    found, error = probabilities_of_best(means, root, np.inf)
    sd = np.sqrt(own)

    def density(x, i):
        others = np.delete(np.arange(4), i)
        return norm.pdf(x, means[i], sd[i]) * norm.cdf(x, means[others], sd[others]).prod()

    expected = [quad(density, -12, 12, (i,), 0, 1e-12, limit=200)[0] for i in range(4)]
    assert (np.abs(found - expected) < 5.0 * error + 1e-5).all()
    assert error.max() < 5e-4
    assert found.sum() == pytest.approx(1.0, rel=1e-12)
    for df in (0.05, 3.0, 47.3):  # the smallest quantiles of the first underflow
        pair, of_pair = probabilities_of_best(means[:2], root[:2, :1], df)
        t = 0.3 / np.abs(root[1, 0])
        assert pair[0] == pytest.approx(student.cdf(t, df), abs=5.0 * of_pair[0] + 1e-5)


def test_few_degrees_of_freedom_of_one_level_are_its_own():
    """Of a level far below, a t with few degrees of freedom; the rest as without it, and drawn."""
    root = root_of_differences(0.2 * (1.0 - np.eye(3)))
    far, of_far = probabilities_of_best(np.array([0.9, 0.0, -9.0]), root, np.array([9, 59.0, 3.0]))
    expected = student.cdf(0.9 / np.sqrt(0.2), 59.0)
    assert far[0] == pytest.approx(expected, abs=student.cdf(-9.9 / np.sqrt(0.2), 3.0) + 1e-4)
    assert far[2] == pytest.approx(student.cdf(-9.9 / np.sqrt(0.2), 3.0), abs=5.0 * of_far[2])
    means, df = np.array([0.4, 0.0, -0.3]), np.array([np.inf, 40.0, 2.0])
    found, error = probabilities_of_best(means, root, df)
    rng, n = np.random.default_rng(3), 400_000
    z, u = rng.normal(size=(n, 2)) @ root.T, rng.random(n)
    drawn = means + z / np.sqrt(
        np.column_stack([np.ones(n), *(chi2.ppf(u, d) / d for d in df[1:])])
    )
    shares = np.bincount(drawn.argmax(axis=1)) / n
    assert (np.abs(found - shares) < 5.0 * (error + np.sqrt(shares * (1.0 - shares) / n))).all()


def test_the_probability_of_the_best_is_the_same_in_other_units():
    means, variances = np.array([0.3, 0.2, 0.0, -0.1]), 0.1 * (1.0 - np.eye(4))
    found, _ = probabilities_of_best(means, root_of_differences(variances), 12.0)
    for scale in (1e-8, 0.3, 1e8):
        root = root_of_differences(scale**2 * variances)
        again, _ = probabilities_of_best(scale * means, root, 12.0)
        np.testing.assert_allclose(again, found, atol=1e-4)
    semidefinite = np.array([[0.0, 0.0, 2.0], [0.0, 0.0, 2.0], [2.0, 2.0, 0.0]])
    shares, error = probabilities_of_best(np.zeros(3), root_of_differences(semidefinite), np.inf)
    np.testing.assert_allclose(shares, [0.25, 0.25, 0.5], atol=5.0 * error.max() + 1e-12)


def test_levels_far_from_the_best_change_no_probability():
    """Levels of many standard errors below are never the best: the rest is as without them."""
    means, own = np.array([0.3, 0.0, 0.5, -30.0, -90.0]), np.array([0.4, 1.0, 0.2, 2.0, 0.1])
    root = root_of_differences((own + own[:, None]) * (1.0 - np.eye(5)))
    for df in (np.inf, 7.0):
        some, of_some = probabilities_of_best(means[:3], root[:3, :2], df)
        found, error = probabilities_of_best(means, root, df)
        assert (np.abs(found[:3] - some) < 5.0 * (error[:3] + of_some) + 1e-5).all()
    assert not probabilities_of_best(means, root, np.inf)[0][3:].any()


def test_next_to_no_degrees_of_freedom():
    """Critical values are those of t for two means; beyond all numbers they are infinite."""
    df = np.array([0.5, 0.05, 0.02, 1e-3, 1e-9])
    found = studentized_isf(0.05, df, range_of_normals(2))
    np.testing.assert_allclose(found[:3], np.sqrt(2.0) * stats.t.isf(0.025, df[:3]), rtol=1e-9)
    assert np.isinf(found[3:]).all()
    tails = studentized_sf(np.full(5, 3.0), df, range_of_normals(2))
    assert (np.diff(tails) > -1e-12).all()
    assert tails[-1] > 0.97

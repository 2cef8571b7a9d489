"""Mean squares of a matrix by projections, and what is rounding in them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from vcomp.exceptions import DataError, EstimationError
from vcomp.gtheory import crossed_components
from vcomp.ir import as_score_matrix
from vcomp.ir.pair_forecast import compare_pairs, two_sided
from vcomp.ir.significance import SYSTEM, TOPIC, TwoWay, mean_squares, two_way_components


def scores(seed=1, n=9, k=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 1)) + 0.6 * rng.normal(size=k) + rng.normal(size=(n, k))


@pytest.mark.parametrize(("n", "k"), [(9, 4), (2, 2), (3, 7)])
@pytest.mark.parametrize("origin", [0.0, 1e6])
def test_mean_squares_by_dense_projections(n, k, origin):
    X = scores(n, n, k)
    y = X.ravel()
    t, s = np.indices((n, k)).reshape(2, -1)
    P = [np.ones((n * k, n * k)) / (n * k)]
    for code in (s, t):
        D = np.eye(int(code.max()) + 1)[code]
        P.append(D @ np.linalg.inv(D.T @ D) @ D.T)
    rest = np.eye(n * k) - P[1] - P[2] + P[0]
    expected = [
        y @ (P[1] - P[0]) @ y / (k - 1), y @ (P[2] - P[0]) @ y / (n - 1),
        y @ rest @ y / ((n - 1) * (k - 1)),
    ]  # fmt: skip
    np.testing.assert_allclose(
        mean_squares(X + origin), expected, rtol=1e-9 if not origin else 1e-6
    )
    made = TwoWay.from_scores(X)
    assert made.system == pytest.approx(max(0.0, (expected[0] - expected[2]) / n), rel=1e-9)
    assert made.topic == pytest.approx(max(0.0, (expected[1] - expected[2]) / k), rel=1e-9)
    assert made.residual == pytest.approx(expected[2], rel=1e-9)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_rounding_is_zero(unit):
    """Additive scores have no residual, equal systems no variance, in any unit."""
    rng = np.random.default_rng(2)
    topic, system = rng.normal(size=(30, 1)), rng.normal(size=6)
    of_s, of_t, rest = mean_squares(unit * (topic + system + 0.1))
    assert rest == 0.0
    assert of_s > 0.0
    assert of_t > 0.0
    assert mean_squares(unit * (topic + np.zeros(6) + 0.1))[0] == 0.0
    assert mean_squares(unit * (np.zeros((30, 1)) + system + 0.1))[1] == 0.0
    tiny = unit * (topic + system + 1e-11 * rng.normal(size=(30, 6)))
    assert mean_squares(tiny)[2] > 0.0


def test_negative_components_are_zero():
    X = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [2.0, 2.1, 1.9]])
    made = TwoWay.from_scores(X)
    assert made.system == 0.0
    assert made.residual > 0.0
    with pytest.raises(DataError, match="missing"):
        TwoWay.from_scores(np.where(X == 3.0, np.nan, X))


@pytest.mark.parametrize(("n", "k"), [(9, 4), (2, 3), (3, 9), (30, 7)])
@pytest.mark.parametrize("kind", ["all", "residual alone", "few values"])
def test_a_complete_matrix_has_the_components_and_influences_of_its_rows(n, k, kind):
    X = scores(n + k, n, k)
    if kind == "residual alone":
        X = np.random.default_rng(n).normal(size=(n, k))
    if kind == "few values":
        X = np.clip(X.round(), -1.0, 1.0)
    rows, columns = np.indices(X.shape).reshape(2, -1)
    wanted, influences = crossed_components(X.ravel(), {SYSTEM: columns, TOPIC: rows}, "anova")
    found, by_levels = two_way_components(as_score_matrix(X))
    largest = np.abs(wanted.values).max()
    np.testing.assert_allclose(found.values, wanted.values, rtol=1e-10, atol=1e-13 * largest)
    np.testing.assert_allclose(found.cov, wanted.cov, rtol=1e-10, atol=1e-13 * largest**2)
    for name in ("names", "facets", "response_values", "held", "without_bounds"):
        assert getattr(found, name) == getattr(wanted, name)
    of_cells, of_rows = by_levels(), influences()
    for name in ("sets", "few"):
        assert getattr(of_cells, name) == getattr(of_rows, name)
    for name in ("sizes", "information", "shared"):
        other = getattr(of_rows, name)
        rounding = 1e-12 * np.abs(other).max()
        np.testing.assert_allclose(getattr(of_cells, name), other, rtol=1e-9, atol=rounding)


def test_influences_need_a_residual():
    X = np.add.outer(np.arange(7.0), [0.0, 0.5, 2.0])
    with pytest.raises(EstimationError, match=r"robust.* needs a residual above zero"):
        two_way_components(as_score_matrix(X))[1]()


@pytest.mark.parametrize("sides", [1, 2])
def test_pairs_have_the_tests_of_scipy(sides):
    X = scores(4, 12, 4).round(1)
    i, j = np.triu_indices(4, 1)
    for test in ("t", "wilcoxon"):
        found = compare_pairs(X, test, sides)
        for k, (a, b) in enumerate(zip(i, j, strict=True)):
            d = X[:, a] - X[:, b]
            if d.mean() < 0.0:
                d = -d
            side = "greater" if sides == 1 else "two-sided"
            if test == "t":
                expected = stats.ttest_1samp(d, 0.0, alternative=side).pvalue
            else:
                d = d[np.abs(d) > 1e-12]
                ranks = stats.rankdata(np.abs(d).round(9))
                sums = np.zeros(1)
                for r in ranks:  # all signs
                    sums = np.concatenate([sums, sums + r])
                observed = ranks[d > 0].sum()
                upper = np.mean(sums >= observed - 1e-9)
                lower = np.mean(sums <= observed + 1e-9)
                expected = upper if sides == 1 else min(1.0, 2.0 * min(upper, lower))
            assert found.p_values[k] == pytest.approx(expected, rel=1e-8)
            assert abs(found.differences[k]) == pytest.approx(abs((X[:, a] - X[:, b]).mean()))


def test_levels_of_one_sided_tests():
    assert two_sided(0.05, 2) == 0.05
    assert two_sided(0.05, 1) == 0.1
    assert two_sided(0.7, 1) < 1.0


@pytest.mark.parametrize("alpha", [0.5, 0.7])
def test_a_one_sided_test_of_a_high_level_finds_each_difference_of_its_sign(alpha):
    assert two_sided(alpha, 1) == pytest.approx(1.0, rel=1e-11)
    assert two_sided(alpha, 1) < 1.0

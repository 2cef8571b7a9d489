"""Sphericity and John's test, against explicit formulas and published values."""

import numpy as np
import pytest
from scipy import stats

from vcomp.inference.assumptions.sphericity import (
    f_level,
    sphericity,
    unequal_differences,
)
from vcomp.inference.assumptions.two_way_table import TwoWayTable


def epsilon(values):
    table = TwoWayTable.of(values)
    return sphericity(table.covariance, len(values) - 1.0)


def test_sphericity_is_that_of_the_population():
    rng = np.random.default_rng(3)
    sd = np.array([1.0, 1.0, 1.0, 1.0, 4.0])
    C = np.eye(5) - 0.2
    S = C @ np.diag(sd**2) @ C
    true = np.trace(S) ** 2 / (4 * np.trace(S @ S))
    found = [epsilon(rng.normal(size=(400, 5)) * sd) for _ in range(20)]
    assert np.mean(found) == pytest.approx(true, abs=0.02)
    # Huynh and Feldt's estimator as Lecoutre corrected it, with n - 1 degrees of freedom.
    made = TwoWayTable.of(rng.normal(size=(12, 5)) * sd)
    S = np.cov(made.residuals, rowvar=False)
    greenhouse = np.trace(S) ** 2 / (4 * np.trace(S @ S))
    corrected = (12 * 4 * greenhouse - 2) / (4 * (11 - 4 * greenhouse))
    assert epsilon(made.values) == pytest.approx(min(1.0, corrected), rel=1e-10)


@pytest.mark.parametrize("k", [3, 4, 6])
def test_sphericity_is_between_its_bounds(k):
    """1/(k − 1) where all residuals are along one contrast, 1 where all contrasts are alike."""
    n = 12
    rng = np.random.default_rng(k)
    contrasts = stats.ortho_group.rvs(k, random_state=1)
    contrasts[0] = 1.0
    contrasts = np.linalg.qr(contrasts.T)[0].T[1:]
    rows = np.linalg.qr(np.column_stack([np.ones(n), rng.normal(size=(n, k - 1))]))[0][:, 1:]
    one, all_alike = rows[:, :1] @ contrasts[:1], rows @ contrasts
    assert epsilon(one) == pytest.approx(1.0 / (k - 1), rel=1e-9)
    assert epsilon(all_alike) == 1.0
    few = [
        epsilon(rng.normal(size=(4, 1)) @ contrasts[:1]
                                   + 0.3 * rng.normal(size=(4, k)))
        for _ in range(60)
    ]  # fmt: skip
    assert 1.0 / (k - 1) <= min(few) <= max(few) <= 1.0


def test_a_table_without_residuals_is_spherical():
    assert epsilon(np.add.outer(np.arange(8.0), np.arange(4.0))) == 1.0


def test_the_level_of_f_is_that_of_boxs_approximation():
    assert f_level(6, 19, 1.0) == pytest.approx(0.05)
    critical = stats.f.isf(0.05, 5, 95)
    assert f_level(6, 19, 0.5) == pytest.approx(stats.f.sf(critical, 2.5, 47.5), rel=1e-12)


def test_johns_test_is_of_orthonormal_contrasts():
    rng = np.random.default_rng(5)
    y = rng.normal(size=(15, 4)) * np.array([1.0, 1.5, 1.0, 2.0]) + rng.normal(size=(15, 1))
    # Helmert's contrasts, each of length 1.
    C = np.array([[1, -1, 0, 0], [1, 1, -2, 0], [1, 1, 1, -3]]) / np.sqrt([[2.0], [6.0], [12.0]])
    S, p, n = C @ np.cov(y, rowvar=False) @ C.T, 3, 15
    u = np.trace(np.linalg.matrix_power(S / (np.trace(S) / p) - np.eye(p), 2)) / p
    expected = stats.chi2.sf((n - 1) * p * u / 2, p * (p + 1) / 2 - 1)
    found = unequal_differences(y)
    assert found == pytest.approx(expected, rel=1e-10)
    # Neither effects of rows and columns nor the unit matter, nor rows with one value.
    other = 1e9 * (y + 100.0 * rng.normal(size=(15, 1)) + np.arange(4.0))
    alone = np.array([[7e9, np.nan, np.nan, np.nan]])
    assert unequal_differences(np.vstack([other, alone])) == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize(("n", "k"), [(30, 5), (20, 30)])
def test_johns_test_has_its_level(n, k):
    rng = np.random.default_rng(6)
    p = [
        unequal_differences(rng.normal(size=(n, 1)) + rng.normal(size=(n, k))) for _ in range(400)
    ]
    # 99.9 % of 400 data sets.
    assert 0.02 < np.mean(np.array(p) < 0.05) < 0.09


def test_of_missing_cells_the_test_is_conservative_and_finds_large_ratios():
    rng = np.random.default_rng(7)
    for sd, low, high in ((1.0, 0.0, 0.01), (3.0, 0.95, 1.0)):
        found = []
        for _ in range(60):
            y = rng.normal(size=(60, 1)) + rng.normal(size=(60, 8)) * np.r_[sd, np.ones(7)]
            y[rng.random(y.shape) < 0.2] = np.nan
            found.append(unequal_differences(y) < 0.001)
        assert low <= np.mean(found) <= high


def test_columns_that_share_no_rows_have_no_difference():
    rng = np.random.default_rng(2)
    y = rng.normal(size=(2, 40, 3)) * np.array([1.0, 1.0, 3.0])
    values = np.full((80, 6), np.nan)
    values[:40, :3], values[40:, 3:] = y
    C = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])
    S = np.zeros((4, 4))
    for k in range(2):
        S[2 * k :, 2 * k :][:2, :2] = 39.0 / 40.0 * C @ np.cov(y[k], rowvar=False) @ C.T
    departure = np.square(S / (np.trace(S) / 4.0) - np.eye(4)).sum()
    expected = stats.chi2.sf(39.0 * departure / 2.0, 4 * 5 / 2 - 1)
    assert unequal_differences(values) == pytest.approx(expected, rel=1e-8)
    assert unequal_differences(np.where(np.eye(6), 1.0, np.nan)[rng.integers(6, size=30)]) == 1.0


def test_columns_without_contrasts_are_spherical_and_exact_dependence_is_not():
    common = np.arange(8.0)[:, None]
    assert unequal_differences(common + np.zeros(4)) == 1.0
    assert unequal_differences(common + 0.1 * np.arange(4.0)) == 1.0
    rng = np.random.default_rng(1)
    one = rng.normal(size=(8, 1)) @ np.array([[1.0, -1.0, 0.0, 0.0]])
    assert unequal_differences(one) < 1e-3
    assert unequal_differences(one[:, :2]) == 1.0

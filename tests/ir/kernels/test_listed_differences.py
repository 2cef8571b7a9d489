"""Differences down a list of pairs, against a list made in plain numpy."""

from __future__ import annotations

import numpy as np
import pytest

from vcomp.ir.kernels.listed_differences import _sort, listed_safe_difference
from vcomp.ir.measures import get

NAMES = ("sens_abs", "sens_rel")


def by_a_list(x, y, relative, rate=0.05, ex=0.0, ey=0.0):
    """Go down the list of pairs, as Urbano's article has it in words and his code in R."""
    i, j = np.triu_indices(x.size, 1)
    d = x[i] - x[j]
    d[np.abs(d) <= ex] = 0.0
    dy = y[i] - y[j]
    dy[np.abs(dy) <= ey] = 0.0
    if relative:
        with np.errstate(divide="ignore", invalid="ignore"):
            d = d / np.maximum(x[i], x[j])
    agrees = np.sign(d) * np.sign(dy)
    order = np.argsort(-np.abs(d), kind="stable")  # not a number comes last
    right = wrong = 0
    last = np.nan
    for size, sign in zip(np.abs(d)[order], agrees[order], strict=True):
        if np.isnan(size):
            break
        right, wrong = right + (sign > 0), wrong + (sign < 0)
        if right + wrong > 0 and wrong / (right + wrong) <= rate:
            last = min(1.0, size)
    return last


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["continuous", "quarters", "counts", "positive"])
def test_a_list_of_pairs(name, kind):
    rng = np.random.default_rng(len(kind))
    for _ in range(40):
        k = int(rng.integers(2, 25))
        x = rng.normal(size=(4, k))
        y = x + rng.normal(size=(4, k)) * rng.choice([0.1, 0.5, 2.0])
        if kind == "quarters":
            x, y = np.round(4 * x) / 4 + 0.0, np.round(4 * y) / 4 + 0.0  # no -0
        elif kind == "counts":
            x, y = np.abs(np.round(2 * x)), np.abs(np.round(2 * y))
        elif kind == "positive":
            x, y = np.abs(x), np.abs(y)
        expected = [by_a_list(*row, name == "sens_rel") for row in zip(x, y, strict=True)]
        found = get(name, ties="listed").actual_of_means(x, y)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_sorting():
    rng = np.random.default_rng(1)
    for n in (0, 1, 2, 3, 8, 50):
        values = rng.integers(-9, 9, n)
        expected = np.sort(values)
        _sort(values)
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.4, 0.7])
@pytest.mark.parametrize("relative", [False, True])
def test_any_rate_and_tolerance(relative, rate):
    """Differences up to a tolerance are ties; rows without a span, or with nan, have none."""
    rng = np.random.default_rng(4)
    x, y = rng.uniform(0.1, 0.9, (2, 8, 12))
    y[:5] = 0.7 * x[:5] + 0.3 * y[:5]
    ex, ey = rng.choice([0.0, 0.02], (2, 8))
    expected = [by_a_list(*row, relative, rate, *e) for row, e in zip(
        zip(x, y, strict=True), zip(ex, ey, strict=True), strict=True)]  # fmt: skip
    found = listed_safe_difference(x, y, ex, ey, rate, relative)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    strange = np.array([[0.2, np.nan, 0.4], [np.inf, 0.1, 0.2], [0.3, 0.2, 0.1]])
    truth = np.tile([3.0, 2.0, 1.0], (3, 1))
    found = listed_safe_difference(strange, truth, np.zeros(3), np.zeros(3), rate, relative)
    np.testing.assert_array_equal(np.isnan(found), [True, True, False])


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("e", [0, 1])
def test_differences_that_are_equal_or_as_large_as_the_tolerance(e, relative):
    """Eighths are exact; differences of tenths are equal but for rounding."""
    rng = np.random.default_rng(e)
    for _ in range(30):
        eighths = np.array([np.append(rng.permutation(9), rng.integers(0, 9, 3))] * 2) / 8.0
        eighths[1] += rng.integers(-2, 3, 12) / 8.0
        order = rng.permutation(12)
        x, y = eighths[:, order]
        rate = rng.choice([0.0, 0.1, 0.3])
        expected = by_a_list(x, y, relative, rate, e / 8.0, e / 8.0)
        tied = np.array([e / 8.0])
        found = listed_safe_difference(x[None, :], y[None, :], tied, tied, rate, relative)
        np.testing.assert_array_equal(found, [expected])
        tenths, near = 0.1 * np.round(8.0 * np.array([[x], [y]])), np.array([0.1 * e + 1e-12])
        found = listed_safe_difference(*tenths, near, near, rate, relative)
        np.testing.assert_allclose(found, expected * (1.0 if relative else 0.8), rtol=1e-12)


def test_the_smallest_difference_on_the_grid_comes_before_none():
    """Of four systems in the right order, the first two of which are tied."""
    x, y, zero = (
        np.array([[0.0, 0.0, 2.0**-36, 1.0]]),
        np.array([[0.0, 1.0, 2.0, 3.0]]),
        np.zeros(1),
    )
    assert by_a_list(x[0], y[0], False) == 0.0
    assert listed_safe_difference(x, y, zero, zero, 0.05, False).tolist() == [0.0]


def test_differences_are_of_many_bins():
    """A thousand pairs; the rate holds until a place far down the list, in a bin of its own."""
    x = np.linspace(1.0, 0.0, 46)[None, :] ** 1.3
    y = x.copy()
    y[0, 20:] = y[0, :19:-1]  # the lower half is upside down
    for rate in (0.01, 0.05, 0.2):
        found = listed_safe_difference(x, y, np.zeros(1), np.zeros(1), rate, False)
        assert found[0] == pytest.approx(by_a_list(x[0], y[0], False, rate), rel=1e-12)

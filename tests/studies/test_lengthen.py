"""Spearman and Brown: D-studies of longer tests, the inverse, and errors."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vcomp
from vcomp.exceptions import PlanError
from vcomp.studies.internal_consistency import spearman_brown, spearman_brown_factor


@given(st.integers(1, 99), st.integers(1, 20), st.integers(1, 20))
def test_exact_fractions(percent, above, below):
    rho, m = Fraction(percent, 100), Fraction(above, below)
    exact = m * rho / (1 + (m - 1) * rho)
    assert spearman_brown(float(rho), float(m)) == pytest.approx(float(exact), rel=1e-13)
    back = m if exact < 1 else None
    assert spearman_brown_factor(float(rho), float(exact)) == pytest.approx(float(back), rel=1e-10)


def test_it_is_a_d_study():
    study = vcomp.from_components({"p": 0.4, "i": 0.3, "Residual": 1.7}).dstudy(i=[10, 35])
    short, long = study.table["Erho2"]
    assert spearman_brown(short, 3.5) == pytest.approx(long, rel=1e-14)


def test_arrays_and_numpy_numbers():
    found = spearman_brown(np.array([0.5, 0.0, 1.0, -0.2]), np.int64(2))
    np.testing.assert_allclose(found, [2 / 3, 0.0, 1.0, -0.5], rtol=1e-15)
    assert isinstance(spearman_brown(np.float64(0.5)), float)


@pytest.mark.parametrize(
    ("reliability", "factor", "message"),
    [
        (1.2, 2, "at most 1, not 1.2"),
        ("0.5", 2, "is a number, not '0.5'"),
        (None, 2, "is a number, not None"),
        (True, 2, "is a number, not True"),
        (0.5, 0, "factor is a number above 0"),
        (0.5, -1, "factor is a number above 0"),
        (0.5, np.inf, "factor is a number above 0"),
        (0.5, True, "factor is a number above 0"),
        (0.5, "2", "factor is a number above 0"),
        (-1.0, 2, "too negative for a test 2 times as long"),
    ],
)
def test_numbers_that_cannot_be(reliability, factor, message):
    with pytest.raises(PlanError, match=message):
        spearman_brown(reliability, factor)


@pytest.mark.parametrize(
    ("reliability", "goal", "name"),
    [
        (0.0, 0.9, "reliability"),
        (1.0, 0.9, "reliability"),
        (0.5, 1.0, "goal"),
        (0.5, "x", "goal"),
    ],
)
def test_goals_that_cannot_be(reliability, goal, name):
    with pytest.raises(PlanError, match=f"{name} lies between 0 and 1"):
        spearman_brown_factor(reliability, goal)

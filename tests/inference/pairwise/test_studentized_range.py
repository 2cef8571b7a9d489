"""The studentized range against Student's t, scipy, R and published quantiles."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import ndtr

from vcomp.inference.pairwise import studentized_range_isf, studentized_range_sf

Q = np.array([0.3, 1.0, 2.5, 4.0, 7.0, 30.0])


@pytest.mark.parametrize("df", [1.0, 2.0, 3.5, 30.0, 2000.0])
def test_two_means_have_students_distribution(df):
    t = 2.0 * stats.t.sf(Q / np.sqrt(2.0), df)
    np.testing.assert_allclose(studentized_range_sf(Q, 2, df), t, rtol=3e-13)


def test_infinite_degrees_of_freedom_against_two_normals():
    np.testing.assert_allclose(
        studentized_range_sf(Q, 2, np.inf), 2.0 * stats.norm.sf(Q / np.sqrt(2.0)), rtol=1e-11
    )


@pytest.mark.parametrize(("k", "df"), [(3, 2.0), (3, 10.0), (20, 30.0), (48, 2303.0)])
def test_as_scipy(k, df):
    q = np.array([1.0, 3.5, 5.0])
    # scipy integrates to about ten digits.
    np.testing.assert_allclose(
        studentized_range_sf(q, k, df), stats.studentized_range.sf(q, k, df), rtol=2e-9
    )


def test_as_r():
    """ptukey(c(2, 4, 6), c(3, 10, 5), c(4, 20, 12), lower.tail = FALSE) of R 4.2.2."""
    cases = [(2.0, 3, 4.0), (4.0, 10, 20.0), (6.0, 5, 12.0)]
    made = [studentized_range_sf(np.array([q]), k, df)[0] for q, k, df in cases]
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
    made = studentized_range_sf(np.array([w]), k, np.inf)[0]
    np.testing.assert_allclose(made, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("k", "df", "quantile"),
    [(3, 5.0, 4.602), (3, 10.0, 3.877), (10, 20.0, 5.008), (5, 60.0, 3.977)],
)
def test_printed_quantiles(k, df, quantile):
    """Tables of the studentized range at 5 %, such as Pearson and Hartley's table 29."""
    assert round(studentized_range_isf(0.05, k, df), 3) == quantile


def test_quantiles_invert_probabilities():
    for p in (0.999, 0.5, 0.05, 1e-6, 1e-40):
        for k, df in ((2, 1.0), (30, 50.0), (1415, 70_000.0), (4, np.inf)):
            q = studentized_range_isf(p, k, df)
            np.testing.assert_allclose(studentized_range_sf(np.array([q]), k, df), p, rtol=1e-10)


def test_ends_and_order():
    values = np.array([0.0, np.inf, 1e-9, 3.0, 60.0, 3.0, 1e200])
    p = studentized_range_sf(values, 10, 50.0)
    assert p[[0, 1, 6]].tolist() == [1.0, 0.0, 0.0]
    assert p[2] == pytest.approx(1.0, abs=1e-14)
    assert p[3] == p[5]
    assert 0.0 < p[4] < 1e-20
    line = np.linspace(0.0, 9.0, 2000)
    many = studentized_range_sf(line, 10, 50.0)
    # Near 1 the quadrature has errors of some units in the last place.
    assert (np.diff(many) <= 1e-12).all()
    some = studentized_range_sf(line[::400], 10, 50.0)
    np.testing.assert_allclose(many[::400], some, rtol=1e-12)
    assert studentized_range_sf(np.empty(0), 3, 4.0).size == 0


@pytest.mark.parametrize("k", [3, 10, 1000])
@pytest.mark.parametrize("df", [np.inf, 7.0])
def test_no_probability_is_above_1(k, df):
    assert studentized_range_sf(np.linspace(0.0, 1.0, 4001), k, df).max() <= 1.0

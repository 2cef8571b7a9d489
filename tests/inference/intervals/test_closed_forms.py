"""Intervals in closed form, against scipy's quantiles and the equations as printed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from vcomp.gtheory import from_components
from vcomp.inference.intervals import note_on_scores
from vcomp.inference.intervals.closed_forms import (
    arteaga_interval,
    erho2_of,
    feldt_interval,
    log_interval,
    phi_of,
)
from vcomp.inference.intervals.component_squares import unbiased_covariance
from vcomp.inference.intervals.level_passes import LevelSums
from vcomp.inference.quantities import TwoWayMeanSquares

TREC3 = TwoWayMeanSquares("sys", "topic", 30, 50, 0.150737, 0.852955, 0.0101522, 2)


@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_the_log_scale(alpha):
    """log σ² ± z se/σ²; none where the estimate is not positive."""
    value, se = np.array([2.0, 0.5, 0.0, -1.0]), np.array([0.5, 0.7, 0.1, 0.1])
    low, high = log_interval(value, se, alpha)
    reach = stats.norm.isf(alpha / 2) * se[:2] / value[:2]
    np.testing.assert_allclose(np.log(low[:2] / value[:2]), -reach, rtol=1e-12)
    np.testing.assert_allclose(np.log(high[:2] / value[:2]), reach, rtol=1e-12)
    assert np.isnan([low[2:], high[2:]]).all()


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_feldt_and_arteaga_as_printed(alpha):
    """Urbano, Marrero and Martín (2013), equations 8 and 9; with F(df, ∞) as χ²/df."""
    ends = []
    for tail in (alpha / 2, 1 - alpha / 2):
        F_e, F_q = stats.f.isf(tail, 29, 29 * 49), stats.f.isf(tail, 29, 49)
        F = stats.chi2.isf(tail, 29) / 29
        s, q, e = TREC3.ms_rows, TREC3.ms_columns, TREC3.ms_residual
        L = (s * s - F * s * e + (F - F_e) * F_e * e * e) / (29 * F * s * e + F_q * s * q)
        ends.append(((s / e / F_e - 1) / 50, 30 * L / (30 * L + 50)))
    zeta, share = zip(*ends, strict=True)
    np.testing.assert_allclose(feldt_interval(TREC3, alpha), zeta, rtol=1e-10)
    np.testing.assert_allclose(arteaga_interval(TREC3, alpha), share, rtol=1e-10)
    nothing = replace(TREC3, ms_rows=1e-4)
    assert arteaga_interval(nothing, alpha)[0] == 0.0
    assert feldt_interval(nothing, alpha)[0] < 0.0


def test_coefficients_of_ratios_and_shares():
    n = np.array([1.0, 4.0, 50.0])
    for v in ((0.3, 0.2, 0.5), (2.0, 0.01, 0.3)):
        s, q, e = v
        np.testing.assert_allclose(erho2_of(s / e, n), s / (s + e / n), rtol=1e-13)
        np.testing.assert_allclose(phi_of(s / sum(v), n), s / (s + (q + e) / n), rtol=1e-13)
    assert erho2_of(-0.2, n).tolist() == phi_of(-0.2, n).tolist() == [0.0, 0.0, 0.0]


def test_tables_are_turned():
    turned = TREC3.oriented("topic")
    assert turned == TwoWayMeanSquares(
        "topic", "sys", 50, 30, TREC3.ms_columns, TREC3.ms_rows, TREC3.ms_residual, 2
    )
    assert turned.oriented("sys") == TREC3
    assert TREC3.oriented("sys") is TREC3


def test_unbiased_covariances_have_two_more_degrees_of_freedom():
    """2 S²/(ν + 2) of each mean square of p × i instead of 2 S²/ν (Brennan 2001, eq. 6.1)."""
    n_p, n_i, values = 11, 7, np.array([2.0, 1.0, 4.0])
    expected = np.array([[n_i, 0, 1], [0, n_p, 1], [0, 0, 1]]) @ values
    inverse = np.linalg.inv([[n_i, 0, 1], [0, n_p, 1], [0, 0, 1]])
    df = np.array([n_p - 1.0, n_i - 1.0, (n_p - 1.0) * (n_i - 1.0)])

    def covariance(below):
        return inverse @ np.diag(2 * expected**2 / below) @ inverse.T

    names = dict(zip(("p", "i", "Residual"), values, strict=True))
    g = from_components(names, cov=covariance(df)).components
    np.testing.assert_allclose(unbiased_covariance(g), covariance(df + 2), rtol=1e-9, atol=1e-12)
    assert unbiased_covariance(replace(g, cov=None)) is None


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ([], "defined."),
        (["robust modified large sample"], "(robust modified large sample) do not assume"),
        (["modified large sample"], "(modified large sample) assume normal effects, interval="),
        (
            ["robust modified large sample", "modified large sample"],
            "(robust modified large sample, modified large sample) assume normal effects",
        ),
    ],
)
def test_notes_on_scores_of_few_values(methods, said):
    (note,) = note_on_scores((0.0, 0.5, 1.0), methods)
    assert note.startswith("Scores are 3 grades from 0 to 1: components are on the observed scale")
    assert said in note
    assert note_on_scores((2.0, 5.0), methods)[0].startswith("Scores are 2 or 5: ")
    for other in (None, (1.0,), (0.0, 0.1, 1.0)):
        assert note_on_scores(other, methods) == ()


def test_sums_of_parts_are_added_table_by_table():
    one, two = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
    slabs = np.full((2, 2), 3.0)
    a = LevelSums(one, (one, None, two), slabs)
    b = LevelSums(two, (two, None, one), 2.0 * slabs)
    found = a + b
    np.testing.assert_array_equal(found.products, one + two)
    assert found.tables[1] is None
    np.testing.assert_array_equal([found.tables[0], found.tables[2]], [one + two] * 2)
    np.testing.assert_array_equal(found.slabs, 3.0 * slabs)
    assert (LevelSums(one, ()) + LevelSums(two, ())).slabs is None

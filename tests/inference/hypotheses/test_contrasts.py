"""Contrasts in words, and hypotheses without those rows that follow from others."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

import vcomp
from vcomp.exceptions import DataError, EstimationError
from vcomp.inference.hypotheses.contrasts import Contrasts, FixedFit, contrasts_of

NAMES = ("Intercept", "x", "z")


@pytest.mark.parametrize(
    ("row", "label"),
    [
        ([0, 1, -1], "x - z"),
        ([0, -1, 1], "-x + z"),
        ([0, 2, 0], "2 x"),
        ([0, 0.5, 0], "0.5 x"),
        ([1, 0.25, -0.25], "Intercept + 0.25 x - 0.25 z"),
        ([0, 0, -0.5], "-0.5 z"),
        ([1, 0, 0], "Intercept"),
        ([1, -3, 1.5], "Intercept - 3 x + 1.5 z"),
        ([-2, 0, 1], "-2 Intercept + z"),
    ],
)
def test_names_of_contrasts(row, label):
    found = contrasts_of(np.array(row, dtype=float), NAMES)
    assert found.names == (label,)
    assert found.L.tolist() == [row]
    assert found.constants.tolist() == [0.0]


def test_contrasts_in_words():
    found = contrasts_of("x = z, 2*z = 3", NAMES)
    assert found.L.tolist() == [[0, 1, -1], [0, 0, 2]]
    assert found.constants.tolist() == [0.0, 3.0]
    assert found.names == ("x - z", "2 z")


@pytest.mark.parametrize(
    ("hypothesis", "names", "message"),
    [
        ("x = 1", (), "no fixed effects"),
        ("w = 1", NAMES, "'w = 1' is not a contrast of the 3 fixed effects Intercept, x, z"),
        (np.ones(2), NAMES, "is not a contrast of the 3 fixed effects"),
        ([[0, 1, 0], [0, 0, 0]], NAMES, "row 2 of the contrasts is zero"),
        (np.array([0.0, np.nan, 1.0]), NAMES, "finite"),
        ("x = 1e999", NAMES, "finite"),
        (np.zeros((0, 3)), NAMES, "must have at least one row"),
        (np.array([0.0, np.inf, 1.0]), NAMES, "finite"),
    ],
)
def test_what_is_no_contrast(hypothesis, names, message):
    with pytest.raises(EstimationError, match=message):
        contrasts_of(hypothesis, names)


@pytest.mark.parametrize(
    ("term", "columns"),
    [
        ("f", ["f[T.b]", "f[T.c d]"]),
        (" C(f) ", ["f[T.b]", "f[T.c d]"]),
        ("n", ["C(n)[T.2]"]),
        ("C(n)", ["C(n)[T.2]"]),
        ("f:x", ["f[T.b]:x", "f[T.c d]:x"]),
    ],
)
def test_terms_are_tested_by_their_columns(term, columns):
    names = ("Intercept", "f[T.b]", "f[T.c d]", "C(n)[T.2]", "x", "f[T.b]:x", "f[T.c d]:x")
    with pytest.raises(EstimationError, match="is a term and not a column") as caught:
        contrasts_of(term, names)
    assert caught.value.term == term.strip()
    (advised,) = re.findall("tested by '(.*)', and", str(caught.value))
    found = contrasts_of(advised, names)
    expected = [[float(name == column) for name in names] for column in columns]
    assert found.L.tolist() == expected


def test_random_terms_have_a_test_of_their_own():
    data = {"y": [1.0, 2.0, 4.0, 3.0, 5.0, 7.0], "g": [0, 0, 1, 1, 2, 2], "x": [0, 1] * 3}
    res = vcomp.fit("y ~ x + (1|g)", data)
    for test in (res.f_test, res.t_test):
        with pytest.raises(EstimationError, match=r"'g' is a random term, .*res.test\('g'\)"):
            test("g")
    assert res.test("g").p_value < 1.0


@pytest.mark.parametrize(("stats", "design"), [(None, 1), (1, None), (None, None)])
def test_the_correction_of_kenward_and_roger_needs_rows(stats, design):
    loaded = SimpleNamespace(estimate=SimpleNamespace(method="reml"), stats=stats, design=design)
    with pytest.raises(DataError, match="loaded without its rows, which ddf='kenward-roger'"):
        FixedFit._kenward_roger(loaded, np.eye(2))


def test_the_correction_of_kenward_and_roger_needs_a_residual():
    estimate = SimpleNamespace(method="reml", covariances={"expected": 1}, values=[2.0, 0.0])
    exact = SimpleNamespace(estimate=estimate, stats=1, design=1)
    with pytest.raises(EstimationError, match="needs a positive residual component"):
        FixedFit._kenward_roger(exact, np.eye(2))


def of(L, constants):
    L = np.array(L, dtype=float)
    return Contrasts(L, np.array(constants, dtype=float), tuple(f"c{k}" for k in range(len(L))))


@pytest.mark.parametrize("seed", range(5))
def test_rows_that_follow_from_others_are_left_out(seed):
    """In any units: the rows that raise the rank are kept, with their constants."""
    rng = np.random.default_rng(seed)
    beta, free = rng.normal(size=5), rng.normal(size=(3, 5))
    L = [free[0], 2.0 * free[0], free[1], free[0] - 3.0 * free[1], free[2], free.sum(axis=0)]
    L = np.array(L) * 10.0 ** rng.integers(-6, 7, 6)[:, None]
    found = of(L, L @ beta).independent()
    np.testing.assert_array_equal(found.L, L[[0, 2, 4]])
    np.testing.assert_array_equal(found.constants, (L @ beta)[[0, 2, 4]])
    assert found.names == ("c0", "c2", "c4")
    wrong = L @ beta
    wrong[3] *= 1.0 + 1e-5
    with pytest.raises(EstimationError, match=r"c3 = .* is inconsistent with those before it"):
        of(L, wrong).independent()


def test_a_hypothesis_that_only_repeats_itself():
    found = of([[0, 1, 0], [0, 3, 0]], [0.0, 0.0]).independent()
    assert found.L.tolist() == [[0, 1, 0]]
    with pytest.raises(EstimationError, match="c1 = 1 is inconsistent"):
        of([[0, 1, 0], [0, 3, 0]], [0.0, 1.0]).independent()

"""Differences between two measures: true values, data, and rows that are added to."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from benchmarks.coverage import pairs
from benchmarks.coverage.populations import SCORES
from vcomp.numerics import stream

CELLS = {(cell.name, population): cell for cell, population in pairs.cells()}
CELL = CELLS["st20x25", "normal"]


def test_true_values_are_those_of_dstudies():
    coefficients, required = [], []
    for factor in pairs._SHARES:
        v = dict(CELL.components) | {"s": CELL.components["s"] * factor}
        study = vcomp.from_components(v).dstudy(object="s", t=25)
        coefficients.append(study.table[["Erho2", "Phi"]].to_numpy()[0])
        required.append(v["Residual"] / v["s"])
    one, two = coefficients
    expected = [*(one - two), required[0] / required[1]]
    np.testing.assert_allclose(pairs._true_values("normal", CELL), expected, rtol=1e-12)


@pytest.mark.parametrize("population", ["normal", "exponential", "0/1 .86"])
def test_measures_have_their_components_and_are_correlated(population):
    """Means over many data sets of the variance of all scores, and their correlation."""
    frame = CELL.frame().drop(columns="y")
    drawn = [pairs._scores(CELL, frame, population, stream(1, i)) for i in range(120)]
    values = np.array([d[["0", "1"]].to_numpy() for d in drawn])
    if population in SCORES:
        assert set(np.unique(values)) == {0.0, 1.0}
        assert values.mean() == pytest.approx(0.86, abs=0.02)
    else:
        expected = [
            sum(v * (factor if name == "s" else 1.0) for name, v in CELL.components.items())
            for factor in pairs._SHARES
        ]
        np.testing.assert_allclose(np.square(values).mean(axis=(0, 1)), expected, rtol=0.05)
        r = np.corrcoef(values.reshape(-1, 2).T)[0, 1]
        assert r == pytest.approx(pairs._SHARED, abs=0.03)


def test_rows_are_added_to(tmp_path):
    path, chosen = tmp_path / "pairs.csv", [(CELL, "normal")]
    first = pairs.study_pairs(path, seed=3, data_sets=1, chosen=chosen)
    assert {r.n for r in first} == {1}
    both = pairs.study_pairs(path, seed=3, data_sets=2, chosen=chosen)
    assert {r.n for r in both} == {2}
    again = pairs.study_pairs(path, seed=4, data_sets=2, chosen=chosen)
    assert [r.coverage for r in again] == [r.coverage for r in both]
    whole = pairs.compare_pairs(CELL, "normal", seed=3, first=0, n=2)
    assert [r.coverage for r in whole] == [r.coverage for r in both]


def test_the_section_has_a_line_for_each_cell():
    rows = pairs.compare_pairs(CELL, "normal", seed=3, first=0, n=1)
    text = pairs.section(rows)
    assert text.count("| st20x25 | normal | 1 |") == 1
    assert pairs.section([]) == ""

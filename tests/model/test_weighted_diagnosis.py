"""Diagnoses of weighted scores and residual groups, against dense matrices."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp

RNG = np.random.default_rng(5)


def _scores():
    a, b, _ = (column.ravel() for column in np.indices((6, 8, 3)))
    w = RNG.integers(1, 6, a.size).astype(float)
    x, kind = RNG.normal(size=a.size), np.where(a % 2, "hi", "lo")
    e = RNG.normal(size=a.size) * np.where(a % 2, 2.0, 0.7) / np.sqrt(w)
    y = 1.0 + 0.5 * x + RNG.normal(size=6)[a] + RNG.normal(size=8)[b] + e
    data = pd.DataFrame({"y": y, "a": a, "b": b, "x": x, "w": w, "v": 1.0 / w, "kind": kind})
    data.loc[10, "y"] += 9.0
    return data.drop(index=[3, 4, 5, 30])


DATA = _scores()
FORMULA = "y ~ x + (1|a) + (1|b)"
OPTIONS = [{"weights": "w"}, {"known_variance": "v"}, {"weights": "w", "residual": "kind"}]


def _indicators(column):
    return (np.asarray(column)[:, None] == np.unique(column)).astype(float)


def _whitened(res):
    """Return the roots of the precisions of the scores, and the columns of all effects."""
    w = DATA["w"].to_numpy()
    if len(res.vcomp) > 3:
        w = w / res.vcomp[[f"Residual[kind={k}]" for k in DATA["kind"]]].to_numpy()
    columns = [np.ones((len(DATA), 1)), DATA[["x"]], *(_indicators(DATA[f]) for f in "ab")]
    return np.sqrt(w), np.hstack(columns)


def _removed(roots, columns, y):
    """Return what all effects leave of scores that have one variance, and their number."""
    q, r, _ = np.linalg.svd(columns * roots[:, None], full_matrices=False)
    q = q[:, r > 1e-9 * r[0]]
    return y * roots - q @ (q.T @ (y * roots)), len(y) - q.shape[1]


@pytest.fixture(scope="module", params=OPTIONS, ids=str)
def fitted(request):
    res = vcomp.fit(FORMULA, DATA, **request.param)
    return res, res.diagnose(n=99, rng=2)


def _sample(diagnosis, name):
    return next(sample for sample in diagnosis.samples if sample.name == name)


def test_residuals_have_the_variance_of_their_row(fitted):
    res, found = fitted
    roots, columns = _whitened(res)
    e, df = _removed(roots, columns, DATA["y"].to_numpy())
    if len(res.vcomp) > 3:  # in each group relative to its own mean square
        squares = pd.Series(e**2).groupby(DATA["kind"].to_numpy()).transform("mean")
        e = e / np.sqrt(squares.to_numpy())
    wanted = e / np.sqrt(e @ e / df)
    np.testing.assert_allclose(_sample(found, "residuals").values, wanted, rtol=1e-7, atol=1e-9)
    scores = found.outlying_scores
    assert scores.index[0] == 10
    assert scores["deviate"].iloc[0] == pytest.approx(
        ((wanted - wanted.mean()) / wanted.std(ddof=1))[DATA.index.get_loc(10)], rel=1e-7
    )
    # Cells have the weighted sum of their residuals, in units of its standard deviation.
    cell = DATA["a"].to_numpy() * 8 + DATA["b"].to_numpy()
    sums = pd.Series(roots * wanted).groupby(cell).sum()
    totals = pd.Series(roots**2).groupby(cell).sum()
    cells = _sample(found, "cells of a and b")
    np.testing.assert_allclose(cells.values, sums / np.sqrt(totals), rtol=1e-7, atol=1e-9)


def test_the_variance_without_an_outlying_row_is_that_of_the_others(fitted):
    res, found = fitted
    roots, columns = _whitened(res)
    y, keep = DATA["y"].to_numpy(), DATA.index != 10
    whole, df = _removed(roots, columns, y)
    rest, left = _removed(roots[keep], columns[keep], y[keep])
    assert left == df - 1
    inside = np.ones(len(DATA), dtype=bool)
    rows = found.outlying_rows
    assert len(rows.labels) == 1
    if len(res.vcomp) > 3:
        inside = DATA["kind"].to_numpy() == "lo"
        assert rows.of == " of kind=lo"
        assert "residual variance of kind=lo would be" in " ".join(str(found.summary()).split())
    before, after = np.square(whole[inside]).sum(), np.square(rest[inside[keep]]).sum()
    own_df = df * inside.mean()
    variance = before / own_df if len(res.vcomp) == 3 else res.vcomp["Residual[kind=lo]"]
    assert rows.variance == pytest.approx(variance, rel=1e-8)
    wanted = variance * after / before * own_df / (own_df - 1.0)
    assert rows.without == pytest.approx(wanted, rel=1e-8)
    assert rows.share == pytest.approx(1.0 - after / before, rel=1e-8)


def test_pictures_divide_residuals_by_their_standard_deviations(fitted):
    from matplotlib.figure import Figure

    res, found = fitted
    roots, _ = _whitened(res)
    unit = res.vcomp["Residual"] if len(res.vcomp) == 3 else 1.0
    np.testing.assert_allclose(found.rows.sd * roots, np.sqrt(unit), rtol=1e-12)
    n = len(found.samples) + len(found.spreads) + 2
    axes = found.plot(ax=Figure().subplots(1, n).tolist())
    assert [ax.get_ylabel() for ax in axes[:2]] == ["standardised residual"] * 2
    drawn = np.sort(axes[0].lines[0].get_ydata())
    np.testing.assert_allclose(drawn, np.sort(found.rows.resid / found.rows.sd), rtol=1e-12)


def test_levels_with_a_variance_each_are_not_compared_again():
    res = vcomp.fit(FORMULA, DATA, residual="a")
    found = res.diagnose(n=99)
    assert any("levels of a are not tested: each has its own" in s for s in found.not_tested)
    assert "residuals by a" not in set(found.table["of"])
    np.testing.assert_allclose(found.variances("a")["variance"], res.vcomp.iloc[2:], rtol=1e-12)
    assert res.test("Residual").p_value < 0.05  # as the note advises


def test_equal_weights_change_no_diagnosis():
    data = DATA.assign(c=3.0)
    plain = vcomp.fit(FORMULA, data).diagnose(n=99, rng=4)
    found = vcomp.fit(FORMULA, data, weights="c").diagnose(n=99, rng=4)
    same = plain.table[~plain.table["of"].str.contains("every two|with|additivity|over")]
    both = found.table.merge(same, on=["assumption", "of"], suffixes=("", "_plain"))
    assert len(both) == len(found.table) == 9
    for column in ("statistic", "p_value", "effect"):
        np.testing.assert_allclose(both[column], both[f"{column}_plain"], rtol=1e-5, atol=1e-9)
    assert found.outlying_rows.variance == pytest.approx(3.0 * plain.outlying_rows.variance)
    assert found.outlying_rows.labels == plain.outlying_rows.labels

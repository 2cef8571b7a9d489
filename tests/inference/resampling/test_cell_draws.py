"""Data whose rows were summed in cells are drawn as the rows themselves would be."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats as scipy_stats

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import gridded, unbalanced
from tests.helpers.moments import agree_in_mean, score_agrees
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.inference.resampling.draws import RowDraws, _Inside, factor_of
from vcomp.numerics.parallel import stream

CASES = {
    "no grid": unbalanced("crossed, replicated"),
    "nested, no grid": unbalanced("nested"),
    "grid with a crossed rest": gridded("not nested, replicated"),
}


def data_of(case):
    formula, data = CASES[case]
    rng = np.random.default_rng(5)
    n = len(data)
    x, g = rng.normal(size=n), np.array(["u", "v", "w"])[rng.integers(0, 3, n)]
    return formula, data.assign(x=x, g=g)


def both(case, fixed=""):
    """Return the model of rows in memory, and that of their cells."""
    formula, data = data_of(case)
    formula = formula.replace("~ ", f"~ {fixed}")
    return tuple(
        vcomp.VarianceComponentsModel(formula, data, stream=stream) for stream in (False, True)
    )


def sums_in_cells(model, cells, y):
    """Return the means of a response of rows in the cells, and products within, in plain steps."""
    chunk = model.statistics.rows
    codes = [np.asarray(c) for c in chunk.compact_codes]
    of_cells = list(zip(*(np.asarray(c).tolist() for c in cells.compact_codes), strict=True))
    number = {cell: k for k, cell in enumerate(of_cells)}
    at = np.array([number[row] for row in zip(*(c.tolist() for c in codes), strict=True)])
    columns = np.column_stack([y, chunk.X])
    means = np.array([columns[at == k].mean(axis=0) for k in range(len(of_cells))])
    rest = columns - means[at]
    return means[:, 0], rest.T @ rest


@pytest.mark.parametrize("fixed", ["", "x + g + "])
@pytest.mark.parametrize("case", CASES)
def test_statistics_with_a_response_are_those_of_the_rows(case, fixed):
    kept, streamed = both(case, fixed)
    y = np.random.default_rng(8).normal(size=kept.nobs)
    means, within = sums_in_cells(kept, streamed.statistics.cells, y)
    a = kept.statistics.with_response(y)
    b = streamed.statistics.with_response(means, within)
    assert (a.strata is None) == (b.strata is None)
    scale = np.sqrt(kept.nobs)
    for name in ("Zy", "ZX", "group_n"):
        pairs = zip(getattr(a.cross_products, name), getattr(b.cross_products, name), strict=True)
        for one, other in pairs:
            np.testing.assert_allclose(other, one, rtol=1e-11, atol=1e-11 * scale)
    for name in ("XX", "Xy", "yy"):
        np.testing.assert_allclose(getattr(b, name), getattr(a, name), rtol=1e-10, atol=1e-10)
    if a.strata is not None:
        for s, t in zip(a.strata.strata, b.strata.strata, strict=True):
            assert s.fixed == t.fixed
            np.testing.assert_allclose(t.columns.within, s.columns.within, rtol=1e-9, atol=1e-9)
    v = np.linspace(0.7, 1.3, len(kept.component_names))
    ours, theirs = (BlockedLikelihood(m.cross_products, reml=True).loglike(v) for m in (a, b))
    np.testing.assert_allclose(theirs, ours, rtol=1e-10)


@pytest.mark.parametrize(("case", "fixed"), alternately(CASES, "x + ", ""))
def test_the_score_has_mean_zero_and_variance_information(case, fixed):
    """Means, and squares and products within cells, all have a part in the score of the rows."""
    kept, streamed = both(case, fixed)
    v = np.random.default_rng(4).uniform(0.5, 2.0, len(kept.component_names))
    draws = RowDraws(streamed.statistics)
    engine = BlockedLikelihood(kept.statistics.cross_products, reml=True)
    of_cells = BlockedLikelihood(streamed.statistics.cross_products, reml=True)
    np.testing.assert_allclose(
        of_cells.information(v, "expected"), engine.information(v, "expected"), rtol=1e-9
    )
    score_agrees(lambda b: draws.draw(v, stream(2, b)), of_cells.with_response, v, n=120)


def test_the_bootstrap_is_that_of_the_rows():
    kept, streamed = (model.fit() for model in both("nested, no grid"))
    np.testing.assert_allclose(streamed.vcomp, kept.vcomp, rtol=1e-8)
    ours, theirs = (res.bootstrap(60, rng=k).values for k, res in enumerate((kept, streamed)))
    for one, other in zip(ours.T, theirs.T, strict=True):
        assert scipy_stats.ks_2samp(one, other).pvalue > 1e-3


def test_products_within_cells_have_their_distribution():
    """X'e and e'e within cells against rows that are drawn and centred one cell at a time."""
    kept, streamed = both("no grid", "x + ")
    v = np.r_[np.zeros(len(kept.component_names) - 1), 1.7]
    cells = streamed.statistics.cells
    draws = RowDraws(streamed.statistics)
    found, own = [], []
    for b in range(300):
        found.append(draws._inside.draw(v[-1], stream(3, b))[0])
        e = stream(4, b).standard_normal(kept.nobs) * np.sqrt(v[-1])
        own.append(sums_in_cells(kept, cells, e)[1][0])
    for k in (0, 2):  # e'e and x'e; the constant has no part within cells
        assert scipy_stats.ks_2samp(np.array(found)[:, k], np.array(own)[:, k]).pvalue > 1e-3
    correlations = [np.corrcoef(np.array(d)[:, [0, 2]].T)[0, 1] for d in (found, own)]
    assert np.ptp(correlations) < 4.0 * np.sqrt(2 / 300)


@pytest.mark.parametrize(("df", "rank"), [(1, 1), (2, 2), (5, 2), (4, 0)])
def test_products_within_cells_are_those_of_so_many_vectors(df, rank):
    """Of e of `df` dimensions with the products of e and X: X'X = FF' has a part of F for each."""
    F = np.array([[0.0, 0.0], [2.0, 0.5], [0.7, -1.0]])[:, :rank]
    within = np.zeros((4, 4))
    within[1:, 1:] = F @ F.T
    within[0, 0] = 9.0
    cells = SimpleNamespace(within=within, n=20 + df, response=np.zeros(20))
    inside = _Inside(cells)
    made = np.array([inside.draw(1.7, stream(1, b)) for b in range(500)])
    np.testing.assert_array_equal(made[:, 1:, 1:], np.broadcast_to(within[1:, 1:], (500, 3, 3)))
    np.testing.assert_array_equal(made, made.transpose(0, 2, 1))
    agree_in_mean(made[:, 0, 0], 1.7 * df, 2.0 * df * 1.7**2)
    agree_in_mean(made[:, 0, 1:] + 1e-9, 1e-9, 1.7 * np.diagonal(within)[1:] + 1e-12)
    # No more of e is in the space of X than there is of e.
    fitted = [np.linalg.pinv(F) @ m[0, 1:] for m in made]
    rest = made[:, 0, 0] - np.square(fitted).sum(axis=1)
    if df == rank:
        np.testing.assert_allclose(rest, 0.0, atol=1e-12 * made[:, 0, 0].max())
    else:
        agree_in_mean(rest, 1.7 * (df - rank), 2.0 * (df - rank) * 1.7**2)
        assert (rest > 0.0).all()
    assert inside._within is within
    assert within[0, 0] == 9.0


@pytest.mark.parametrize("most", [0, 1, 2, 3, 5])
def test_factors_have_at_most_so_many_columns(most):
    """Those of most length: products without them have the smallest eigenvalues left."""
    F = np.array([[3.0, 0.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    made = factor_of(F @ F.T, most)
    assert made.shape == (4, min(most, 3))
    if most >= 3:
        np.testing.assert_allclose(made @ made.T, F @ F.T, atol=1e-14)
    unit = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    values, vectors = np.linalg.eigh(unit)
    made, kept = factor_of(unit, most), slice(max(3 - most, 0), 3)
    expected = (vectors[:, kept] * values[kept]) @ vectors[:, kept].T
    np.testing.assert_allclose(made @ made.T, expected, atol=1e-14)


def test_cells_of_single_scores_are_rows():
    formula, data = unbalanced("crossed")
    streamed = vcomp.VarianceComponentsModel(formula, data, stream=True)
    assert streamed.statistics.cells is streamed.statistics.rows
    assert RowDraws(streamed.statistics)._inside is None


def test_profiles_and_functions_need_no_rows():
    """Intervals from the drawn statistics are had by the names they have for rows."""
    kept, streamed = (model.fit() for model in both("no grid"))
    first = streamed.vcomp.index[0]
    boot = streamed.bootstrap(20, rng=1)
    assert np.isfinite(streamed.conf_int(interval=boot).loc[f"var({first})"].to_numpy()).all()
    a, b = (res.conf_int(interval="profile") for res in (kept, streamed))
    np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-8)  # ends are searched to 1e-6

"""Fixed parts with many columns: sparse columns of factors against the same columns dense."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.formula import coding
from vcomp.numerics import MixedColumns
from vcomp.statistics import Statistics, find_wide_products
from vcomp.statistics.cross_products import accumulate, cell_moments
from vcomp.statistics.roll_up import RollUp

FORMULAS = [
    "y ~ C(f) + x + (1|g)",
    "y ~ 0 + C(f) + x + (1|g)",
    "y ~ s*x + (1|g/h)",
    "y ~ C(f) + C(f):C(k) + (1|g) + (1|h)",
]


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    n = 900
    data = pd.DataFrame(
        {
            "f": rng.integers(0, 15, n),
            "k": rng.integers(0, 2, n),
            "g": rng.integers(0, 20, n),
            "h": rng.integers(0, 60, n),
            "x": rng.normal(10.0, 1.0, n),
            "s": [f"s{i}" for i in rng.integers(0, 12, n)],
        }
    )
    effects = [rng.normal(size=data[name].nunique())[data[name]] for name in ("f", "g", "h")]
    return data.assign(y=0.5 * data["x"] + sum(effects) + rng.normal(size=n))


def sparse_columns(model: vcomp.VarianceComponentsModel) -> MixedColumns:
    """Return X of the rows of a model with the columns of its factors sparse."""
    fixed, rows = model.design.fixed, model.rows
    found = fixed.mixed(rows.fixed, model.nobs, coding.WideLimits(columns=5, elements=0))
    assert found is not None
    return found


@pytest.mark.parametrize("formula", FORMULAS)
def test_sparse_columns_are_the_columns_of_patsy(frame, formula):
    from patsy import build_design_matrices

    model = vcomp.VarianceComponentsModel(formula, frame)
    (expected,) = build_design_matrices([model.design.fixed.design_info], model.rows.fixed)
    mixed = sparse_columns(model)
    np.testing.assert_array_equal(mixed.toarray(), expected)
    np.testing.assert_array_equal(model.exog, expected)
    rows = np.array([5, 2, 2])
    np.testing.assert_array_equal(mixed[rows].toarray(), np.asarray(expected)[rows])
    beta = np.arange(mixed.shape[1])
    np.testing.assert_allclose(mixed @ beta, expected @ beta, rtol=1e-13)
    ends = np.min(expected, axis=0), np.max(expected, axis=0), np.mean(expected, axis=0)
    np.testing.assert_allclose(mixed.ends(), ends, rtol=1e-13)


@pytest.mark.parametrize("formula", FORMULAS)
def test_sums_of_sparse_columns_are_those_of_dense_ones(frame, formula):
    model = vcomp.VarianceComponentsModel(formula, frame)
    mixed = sparse_columns(model)
    chunk = replace(model.statistics.rows, columns=mixed)
    dense = replace(model.statistics.rows, columns=mixed.toarray())
    found, expected = accumulate(chunk), accumulate(dense)
    np.testing.assert_allclose(found.XX, expected.XX, rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(found.Xy, expected.Xy, rtol=1e-12, atol=1e-10)
    for one, other in zip(found.ZX, expected.ZX, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-10)
    places = chunk.codes[0]
    counts = np.bincount(places).astype(float)
    for one, other in zip(
        cell_moments(places, chunk.y, mixed, counts),
        cell_moments(places, chunk.y, dense.X, counts),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-10)
    # A dense formula: squares and products about the means of cells
    Z, B = np.eye(counts.size)[places], np.column_stack([chunk.y, dense.X])
    means = Z.T @ B / counts[:, None]
    away = B - Z @ means
    found_means, within = cell_moments(places, chunk.y, mixed, counts)
    np.testing.assert_allclose(found_means, means.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(within, away.T @ away, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("method", ["reml", "ml"])
def test_fits_with_sparse_columns_are_those_with_dense_ones(frame, formula, method, monkeypatch):
    dense = vcomp.fit(formula, frame, method=method)
    few = coding.WideLimits(columns=5, elements=0)
    monkeypatch.setattr("vcomp.formula.fixed.FixedPart.mixed.__defaults__", (few,))
    monkeypatch.setattr("vcomp.formula.fixed.FixedPart.ends.__defaults__", (few,))
    sparse = vcomp.fit(formula, frame, method=method)
    assert isinstance(sparse.model.statistics.rows.columns, MixedColumns)
    assert sparse.llf == pytest.approx(dense.llf, abs=1e-9)
    np.testing.assert_allclose(sparse.vcomp, dense.vcomp, rtol=1e-7)
    np.testing.assert_allclose(sparse.fe_params, dense.fe_params, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(sparse.bse_fe, dense.bse_fe, rtol=1e-8)
    np.testing.assert_allclose(sparse.fittedvalues, dense.fittedvalues, rtol=1e-8, atol=1e-8)
    some = frame.iloc[:20]
    pair = sparse.get_prediction(some).se_mean, dense.get_prediction(some).se_mean
    np.testing.assert_allclose(*pair, rtol=1e-7)


def test_a_response_in_other_strata_keeps_sparse_columns(frame):
    model = vcomp.VarianceComponentsModel("y ~ C(f) + x + (1|g)", frame)
    chunk = replace(model.statistics.rows, columns=sparse_columns(model))
    stats = Statistics.from_rows(chunk, model.design.grid)
    again = stats.with_response(2.0 * chunk.y)
    assert stats.strata is not None
    assert again.strata is not None
    np.testing.assert_allclose(again.strata.Xy, 2.0 * stats.strata.Xy, rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(again.cross_products.Xy, 2.0 * stats.cross_products.Xy, atol=1e-9)


def test_many_levels_as_streamed_and_stored(frame, tmp_path, monkeypatch):
    few = coding.WideLimits(columns=5, elements=0)
    monkeypatch.setattr("vcomp.formula.fixed.FixedPart.mixed.__defaults__", (few,))
    monkeypatch.setattr("vcomp.formula.fixed.FixedPart.ends.__defaults__", (few,))
    formula = "y ~ C(f) + (1|g)"
    whole = vcomp.fit(formula, frame)
    assert isinstance(whole.model.statistics.rows.columns, MixedColumns)
    parts = [vcomp.accumulate(formula, frame[k::2]) for k in range(2)]
    parts[0].save(tmp_path / "sums.vcomp")
    stored = type(parts[0]).load(tmp_path / "sums.vcomp")
    for found in (vcomp.accumulate(formula, frame).fit(), (stored + parts[1]).fit()):
        assert found.llf == pytest.approx(whole.llf, abs=1e-9)
        np.testing.assert_allclose(found.vcomp, whole.vcomp, rtol=1e-8)
        np.testing.assert_allclose(found.fe_params, whole.fe_params, rtol=1e-8)


def check_wide(found, chunk, X):
    """Compare with products of all columns of X as a dense matrix, and with indicators."""
    y, Z = chunk.y, [np.eye(q)[c] for c, q in zip(chunk.codes, chunk.sizes, strict=True)]
    close = {"rtol": 1e-11, "atol": 1e-10}
    assert (found.n, found.n_fixed, found.sizes) == (len(y), X.shape[1], chunk.sizes)
    assert found.n_terms == len(Z)
    np.testing.assert_allclose(found.XX, X.T @ X, **close)
    np.testing.assert_allclose(found.Xy, X.T @ y, **close)
    assert found.yy == pytest.approx(y @ y, rel=1e-12)
    a = np.random.default_rng(4).normal(size=X.shape[1])
    np.testing.assert_allclose(found.products_with(a), X.T @ (X @ a), **close)
    for t, z in enumerate(Z):
        np.testing.assert_allclose(found.dense.ZX[t], z.T @ X, **close)
        np.testing.assert_allclose(found.dense.Zy[t], z.T @ y, **close)
        assert found.group_squares(t) == np.square(z.sum(axis=0)).sum()
        for u, w in enumerate(Z):
            assert found.is_finer(t, u) == bool((((z.T @ w) > 0.0).sum(axis=1) == 1).all())


def test_products_with_a_wide_factor_are_those_of_dense_columns(frame):
    data = frame.assign(k=frame["h"] % 7, z=np.random.default_rng(5).normal(size=900))
    model = vcomp.VarianceComponentsModel("y ~ x + C(f) + z + x:z + (1|h) + (1|k) + (1|g)", data)
    chunk = replace(model.statistics.rows, columns=sparse_columns(model))
    assert (chunk.columns.dense_at.size, chunk.columns.sparse_at.size) == (4, 14)
    rolled = RollUp(chunk)
    assert find_wide_products(chunk, rolled, 15) is None
    found, X = find_wide_products(chunk, rolled, 14), chunk.columns.toarray()
    check_wide(found, chunk, X)
    again = chunk.with_response(np.random.default_rng(6).normal(size=900))
    check_wide(found.with_response(again, rolled), again, X)
    check_wide(found.of_terms([0, 2]), replace(chunk, terms=chunk.terms[::2]), X)
    some = chunk.columns[np.flatnonzero(frame["f"] != 3)]
    few = replace(chunk, response=chunk.response[: len(some.dense)], columns=some)
    few = replace(few, compact_codes=tuple(c[: len(some.dense)] for c in chunk.compact_codes))
    assert find_wide_products(few, RollUp(few), 14) is None  # a column of zeros


def test_a_level_that_did_not_occur_is_refused(frame):
    res = vcomp.fit("y ~ C(f) + (1|g)", frame)
    with pytest.raises(vcomp.exceptions.DataError, match=r"observation with value .*99"):
        res.predict(frame.head(3).assign(f=99))


def test_a_factor_is_nearly_a_random_term_with_a_large_variance(frame):
    fixed = vcomp.fit("y ~ C(f) + x + (1|g)", frame)
    held = 1e6 * float(frame["y"].var())
    random = vcomp.fit("y ~ x + (1|f) + (1|g)", frame, hold={"f": held})
    # The ridge of the held term is the residual in a ten-millionth of the scores of a level.
    for name in ("g", "Residual"):
        assert random.vcomp[name] == pytest.approx(fixed.vcomp[name], rel=1e-5)
    assert random.fe_params["x"] == pytest.approx(fixed.fe_params["x"], rel=1e-5)
    assert random.bse_fe["x"] == pytest.approx(fixed.bse_fe["x"], rel=1e-5)
    effects = random.random_effects["f"].iloc[:, 0].to_numpy()
    contrasts = fixed.fe_params.filter(like="C(f)").to_numpy()
    np.testing.assert_allclose(effects[1:] - effects[0], contrasts, rtol=1e-4, atol=1e-6)


def test_a_factor_whose_columns_do_not_fit_is_refused_with_a_way_out(frame, monkeypatch):
    from vcomp.formula import fixed as module
    from vcomp.numerics import check_memory

    def with_little(*arguments):
        check_memory(*arguments, free_bytes=lambda: 1e4)

    monkeypatch.setattr(module, "check_memory", with_little)
    match = (
        r"'s' of the fixed part has 12 levels.*as a random term, \(1\|s\).*hold=\{'s': \.\.\.\}"
    )
    with pytest.raises(vcomp.exceptions.EstimationError, match=match):
        vcomp.fit("y ~ s + (1|g)", frame)

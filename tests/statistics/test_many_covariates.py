"""Sums of many covariates in blocks of rows, against the same sums of whole columns."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.numerics.kernels import FEW_ROWS
from vcomp.statistics.cross_products import accumulate, cell_moments

N, P = 6_000, 24


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    data = pd.DataFrame(rng.normal(5.0, 1.0, (N, P)), columns=[f"x{j}" for j in range(P)])
    data["school"] = rng.integers(0, 20, N)
    data["pupil"] = 10 * data["school"] + rng.integers(0, 10, N)
    data["rater"] = rng.integers(0, 15, N)
    effects = [rng.normal(size=200)[data[f]] for f in ("school", "pupil", "rater")]
    return data.assign(y=data["x0"] + sum(effects) + rng.normal(size=N))


FORMULA = f"y ~ {' + '.join(f'x{j}' for j in range(P))} + (1|school/pupil) + (1|rater)"


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_by_blocks_are_those_of_whole_columns(frame, weighted):
    chunk = vcomp.VarianceComponentsModel(FORMULA, frame).statistics.rows
    assert chunk.X.size > FEW_ROWS
    counts = np.ones(N)
    if weighted:
        counts = np.random.default_rng(5).integers(1, 4, N).astype(float)
        chunk = replace(chunk, counts=counts)
    found = accumulate(chunk)
    B = np.column_stack([chunk.y, chunk.X])
    products = (B * counts[:, None]).T @ B
    np.testing.assert_allclose(found.XX, products[1:, 1:], rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(found.Xy, products[1:, 0], rtol=1e-12, atol=1e-9)
    assert found.yy == pytest.approx(products[0, 0], rel=1e-13)
    for codes, size, Zy, ZX in zip(chunk.codes, chunk.sizes, found.Zy, found.ZX, strict=True):
        sums = np.zeros((size, 1 + chunk.n_fixed))
        np.add.at(sums, codes, B * counts[:, None])
        np.testing.assert_allclose(np.column_stack([Zy, ZX]), sums, rtol=1e-12, atol=1e-10)


def test_means_in_cells_by_blocks_are_those_of_whole_columns(frame):
    chunk = vcomp.VarianceComponentsModel(FORMULA, frame).statistics.rows
    places = chunk.codes[0]
    counts = np.bincount(places).astype(float)
    means, within = cell_moments(places, chunk.y, chunk.X, counts)
    B = np.column_stack([chunk.y, chunk.X])
    expected = np.array([np.bincount(places, b) / counts for b in B.T])
    away = B - expected.T[places]
    np.testing.assert_allclose(means, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(within, away.T @ away, rtol=1e-11, atol=1e-9)


def test_the_columns_of_a_fit_are_those_of_patsy(frame):
    from patsy import build_design_matrices

    model = vcomp.VarianceComponentsModel(
        "y ~ x0 + np.log(x1 + 20):C(rater) + x2:x3 + bs(x4, df=4) + (1|school)", frame
    )
    (expected,) = build_design_matrices([model.design.fixed.design_info], model.rows.fixed)
    np.testing.assert_allclose(model.exog, expected, rtol=1e-14, atol=1e-14)
    ends = model.design.fixed.ends(model.rows.fixed, N)
    np.testing.assert_array_equal(ends.low, np.min(expected, axis=0))
    np.testing.assert_array_equal(ends.high, np.max(expected, axis=0))
    np.testing.assert_allclose(ends.mean, np.mean(expected, axis=0), rtol=1e-12)


def test_cells_of_levels_have_no_means_until_an_engine_needs_them(frame):
    stats = vcomp.VarianceComponentsModel("y ~ x0 + (1|pupil) + (1|rater)", frame).statistics
    levels = stats.levels
    assert levels is not None
    assert "_means" not in vars(levels)
    assert levels.XX.shape == (levels.n_fixed, levels.n_fixed) == (2, 2)
    np.testing.assert_allclose(levels.XX, stats.cross_products.XX, rtol=1e-12, atol=1e-9)


def test_a_complete_table_with_many_covariates(frame):
    rng = np.random.default_rng(6)
    a, b = np.divmod(np.arange(N), 60)
    effects = rng.normal(size=100)[a] + rng.normal(size=60)[b]
    data = frame.assign(a=a, b=b, y=effects + frame["x0"] + rng.normal(size=N))
    columns = " + ".join(f"x{j}" for j in range(12))
    formula = f"y ~ {columns} + (1|a) + (1|b)"
    strata, blocked = (vcomp.fit(formula, data, engine=e) for e in ("strata", "blocked"))
    assert strata.llf == pytest.approx(blocked.llf, abs=1e-7)
    np.testing.assert_allclose(strata.vcomp, blocked.vcomp, rtol=1e-7)
    np.testing.assert_allclose(strata.fe_params, blocked.fe_params, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(strata.bse_fe, blocked.bse_fe, rtol=1e-8)
    np.testing.assert_allclose(
        strata.random_effects["a"], blocked.random_effects["a"], rtol=1e-6, atol=1e-8
    )

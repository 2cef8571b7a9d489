"""Sparse columns that follow an axis: their strata against those of the same columns dense."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.design import Chunk
from vcomp.formula import coding
from vcomp.numerics import MixedColumns
from vcomp.statistics import Statistics


def table(runs: int, models: int = 13, items: int = 5) -> pd.DataFrame:
    """Return scores of models on items, in rows of no order."""
    rng = np.random.default_rng(8)
    m, i = (a.ravel() for a in np.indices((models, items * runs)))
    columns = {"m": m, "i": i // runs, "k": i % runs, "x": rng.normal(3.0, 1.0, m.size)}
    data = pd.DataFrame(columns)
    effects = rng.normal(size=models)[m] + rng.normal(size=items)[data["i"]]
    return data.assign(y=2.0 + effects + rng.normal(size=m.size)).sample(frac=1.0, random_state=3)


def rows_of(formula: str, data: pd.DataFrame):
    """Return a model with its rows, the columns of its factor sparse."""
    model = vcomp.VarianceComponentsModel(formula, data)
    few = coding.WideLimits(columns=5, elements=0)
    columns = model.design.fixed.mixed(model.rows.fixed, model.nobs, few)
    assert isinstance(columns, MixedColumns)
    return model, replace(model.statistics.rows, columns=columns)


@pytest.mark.parametrize("sampled", ["(1|i) + (1|m:i)", "(1|i) + (1|m:i) + (1|k)"])
@pytest.mark.parametrize("fixed", ["C(m)", "0 + C(m)", "x + C(m)"])
@pytest.mark.parametrize("is_shifted", [False, True])
def test_columns_of_a_facet_are_in_two_strata(sampled, fixed, is_shifted, monkeypatch):
    model, chunk = rows_of(f"y ~ {fixed} + {sampled}", table(3))
    if is_shifted:
        chunk = chunk.without_fixed(np.arange(chunk.n_fixed) / 3.0)
    # No table of the sparse columns is made, whatever the number of cells.
    monkeypatch.setattr("vcomp.statistics.stratification.stratify.__kwdefaults__", {
        **vcomp.statistics.stratification.stratify.__kwdefaults__, "most_wide": 0.0,
    })  # fmt: skip
    sparse = Statistics.from_rows(chunk, model.design.grid).strata
    dense = replace(chunk, columns=chunk.columns.toarray())
    expected = Statistics.from_rows(dense, model.design.grid).strata
    close = {"rtol": 1e-12, "atol": 1e-11}
    np.testing.assert_allclose(sparse.XX, dense.X.T @ dense.X, **close)
    np.testing.assert_allclose(sparse.Xy, dense.X.T @ dense.y, **close)
    assert sparse.yy == pytest.approx(expected.yy, rel=1e-13)
    for one, other in zip(sparse.strata, expected.strata, strict=True):
        assert (one.contrasts, one.fixed) == (other.contrasts, other.fixed)
        np.testing.assert_allclose(one.columns.within, other.columns.within, **close)
        np.testing.assert_allclose(one.columns.means[0], other.columns.means[0], **close)


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_a_wide_factor_of_a_complete_table_is_fitted_by_strata(method, monkeypatch):
    data, formula = table(2, models=110), "y ~ C(m) + (1|i) + (1|m:i)"
    found = vcomp.fit(formula, data, method=method)
    assert found.engine.startswith("strata")
    monkeypatch.setattr("vcomp.statistics.statistics.stratify", lambda *_: None)
    other = vcomp.fit(formula, data, method=method)
    assert other.model.statistics.wide is not None
    assert found.llf == pytest.approx(other.llf, rel=1e-10)
    np.testing.assert_allclose(found.vcomp, other.vcomp, rtol=1e-7)
    np.testing.assert_allclose(found.fe_params, other.fe_params, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found.bse_fe, other.bse_fe, rtol=1e-8)


def test_a_wide_factor_across_axes_has_no_strata(monkeypatch):
    data = table(1)
    data["f"] = (data["m"] + data["i"]) % 12
    model, chunk = rows_of("y ~ C(f) + (1|i) + (1|m)", data)
    assert Statistics.from_rows(chunk, model.design.grid).strata is not None
    monkeypatch.setattr("vcomp.statistics.strata.has_wide_factor.__defaults__", (11,))
    assert Statistics.from_rows(chunk, model.design.grid).strata is None


def test_the_response_is_centred_once_and_then_by_blocks(monkeypatch):
    model = vcomp.VarianceComponentsModel("y ~ 1 + (1|m) + (1|i) + (1|m:i)", table(3))
    chunk, sizes = model.statistics.rows, []

    def counted(self, rows, centred=Chunk.centred):
        found = centred(self, rows)
        sizes.append(found.size)
        return found

    monkeypatch.setattr(Chunk, "centred", counted)
    strata = Statistics.from_rows(chunk, model.design.grid).strata
    assert strata.yy == pytest.approx(model.statistics.yy, rel=1e-13)
    assert sum(sizes) == 2 * chunk.n

"""Two nested terms in a table; forms of the engine are compared in test_conformance.py."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.estimators.likelihood.nested_likelihood import NestedTableLikelihood
from vcomp.statistics import find_column_table, find_nested_table
from vcomp.statistics.groupings import product_group_sums

FORMULA = "score ~ C(model) + (1|item) + (1|model:item)"
COLUMNS = "score ~ (1|model) + (1|item) + (1|model:item)"


def scores(models, items, runs, missing, noise=1.0):
    rng = np.random.default_rng(7)
    grid = np.meshgrid(np.arange(models), np.arange(items), np.arange(runs), indexing="ij")
    m, i, _ = (g.ravel() for g in grid)
    y = 0.1 * m + rng.normal(size=items)[i] + 0.7 * rng.normal(size=(models, items))[m, i]
    y += noise * rng.normal(size=y.size)
    data = pd.DataFrame({"model": m, "item": i, "x": rng.normal(size=y.size), "score": y})
    return data[rng.random(y.size) >= missing].reset_index(drop=True)


@pytest.fixture(scope="module")
def many():
    """Return scores of so many cells that the table is preferred."""
    return scores(150, 250, 2, 0.2)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "formula",
    [
        FORMULA,
        "score ~ C(model) + (1|model:item) + (1|item)",
        COLUMNS,
        "score ~ (1|model:item) + (1|item) + (1|model)",
    ],
)
def test_a_table_of_many_cells_has_the_maximum_of_elimination(many, stream, formula):
    fit = vcomp.fit(formula, many, stream=stream)
    assert fit.engine.startswith("levels")
    assert "in one table" in fit.engine
    wanted = vcomp.fit(formula, many, engine="blocked")
    np.testing.assert_allclose(fit.vcomp, wanted.vcomp, rtol=1e-7)
    assert fit.llf == pytest.approx(wanted.llf, abs=1e-7)
    np.testing.assert_allclose(fit.params, wanted.params, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(fit.bse_fe, wanted.bse_fe, rtol=1e-7)
    np.testing.assert_allclose(fit.bse, wanted.bse, rtol=1e-6)
    robust, other = (of.conf_int(interval="robust") for of in (fit, wanted))
    np.testing.assert_allclose(robust, other, rtol=1e-6)
    for term, effects in wanted.random_effects.items():
        numbers = effects.select_dtypes("number")
        found = fit.random_effects[term][numbers.columns]
        np.testing.assert_allclose(found, numbers, rtol=1e-6, atol=1e-9)


def test_a_residual_a_billionth_of_the_cells_keeps_its_digits():
    data = scores(8, 40, 3, 0.0, noise=2e-5)
    data = data.drop(index=data.index[::7]).reset_index(drop=True)
    model = vcomp.VarianceComponentsModel(FORMULA, data)
    engine = NestedTableLikelihood(find_nested_table(model.statistics.cells), reml=True)
    cells = data.groupby(["model", "item"])["score"]
    within = float(cells.transform(lambda y: (y - y.mean()) ** 2).sum())
    free = len(data) - cells.ngroups
    v = np.array([1.0, 0.5, within / free])
    # What cells tell of the residual is a billionth of what scores within them tell.
    assert engine.derivatives(v).score[-1] * v[-1] / free == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize("formula", [FORMULA, "score ~ C(model) + (1|model:item) + (1|item)"])
def test_group_sums_of_a_table_are_those_of_pair_tables(formula):
    stats = vcomp.VarianceComponentsModel(formula, scores(4, 12, 3, 0.4)).statistics
    found = find_nested_table(stats.cells).group_sums()
    wanted = product_group_sums(stats.cross_products)
    for name in (f.name for f in fields(wanted)):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), atol=1e-12)


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("formula", [COLUMNS, "score ~ (1|model:item) + (1|item) + (1|model)"])
def test_group_sums_with_columns_are_those_of_pair_tables(formula, missing):
    data = scores(4, 12, 3, missing)
    stats = vcomp.VarianceComponentsModel(formula, data).statistics
    table = find_column_table(stats.cells)
    wanted = product_group_sums(stats.cross_products)
    for name in (f.name for f in fields(wanted)):
        np.testing.assert_allclose(
            getattr(table.group_sums(), name), getattr(wanted, name), atol=1e-12
        )


@pytest.mark.parametrize(
    "formula",
    [
        "score ~ 1 + (1|item) + (1|model:item)",
        "score ~ x + (1|model) + (1|item) + (1|model:item)",
        "score ~ 0 + (1|model) + (1|item) + (1|model:item)",
        "score ~ 1 + (1|model) + (1|item) + (1|run)",
    ],
)
def test_other_designs_have_no_table_with_columns(formula):
    data = scores(4, 12, 3, 0.2).assign(
        run=lambda table: table.groupby(["model", "item"]).cumcount()
    )
    cells = vcomp.VarianceComponentsModel(formula, data).statistics.cells
    assert find_column_table(cells) is None


@pytest.mark.parametrize(
    "formula",
    [
        "score ~ C(model) + x + (1|item) + (1|model:item)",  # X varies within a level
        "score ~ 1 + (1|item) + (1|model)",  # not nested
        "score ~ C(model) + (1|item)",
        "score ~ 0 + (1|item) + (1|model:item)",  # no fixed part
    ],
)
def test_other_designs_have_no_table(formula):
    cells = vcomp.VarianceComponentsModel(formula, scores(4, 12, 3, 0.2)).statistics.cells
    assert find_nested_table(cells) is None


def test_columns_that_vary_within_cells_have_no_table():
    """Also where their means are the same in all cells, as those of two runs of each."""
    data = scores(4, 12, 2, 0.0).assign(run=np.tile([-1.0, 1.0], 48))
    formula = "score ~ C(model) + run + (1|item) + (1|model:item)"
    cells = vcomp.VarianceComponentsModel(formula, data, stream=True).statistics.cells
    assert find_nested_table(cells) is None


def test_a_table_that_is_mostly_empty_is_not_formed():
    cells = vcomp.VarianceComponentsModel(FORMULA, scores(12, 40, 3, 0.96)).statistics.cells
    assert find_nested_table(cells) is None
    cells = vcomp.VarianceComponentsModel(COLUMNS, scores(12, 40, 3, 0.96)).statistics.cells
    assert find_column_table(cells) is None

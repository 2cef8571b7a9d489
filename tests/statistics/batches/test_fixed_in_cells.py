"""Fixed factors that are facets: their columns follow from the cells, and are not summed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.model import model_of_same_rows
from vcomp.statistics.groupings import product_group_sums


def _scores(models: int, items: int, runs: int, missing: float) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    rows = list(product(range(models), range(items), range(runs)))
    data = pd.DataFrame(rows, columns=["model", "item", "run"])
    latent = 0.3 * rng.normal(size=models)[data["model"]] + rng.normal(size=items)[data["item"]]
    latent += 0.5 * rng.normal(size=(models, items))[data["model"], data["item"]]
    score = (latent + rng.normal(size=len(data)) > 0.0).astype(float)
    data = data.assign(score=score, task="t" + (data["item"] % 3).astype(str))
    return data[rng.random(len(data)) >= missing].reset_index(drop=True)


_CROSSED = "score ~ C(model) + (1|item) + (1|model:item)"


@pytest.mark.parametrize(
    "formula",
    [
        _CROSSED,
        "score ~ 0 + C(model) + (1|item) + (1|model:item)",
        "score ~ model + (1|item) + (1|model:item)",
        "score ~ C(model) * C(task) + (1|task:item) + (1|model:item)",
        "score ~ C(model) + (1|model:item)",
        "score ~ center(model) + (1|item) + (1|model:item)",
    ],
)
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("text", [True, False])
def test_fits_of_cells_are_those_of_rows(formula: str, missing: float, text: bool) -> None:
    data = _scores(4, 24, 3, missing)
    if text and "C(" in formula:
        data["model"] = pd.Categorical("m" + data["model"].astype(str), ["m2", "m0", "m1", "m3"])
    _check_same(formula, data)


@pytest.mark.parametrize(
    ("models", "random"),
    [(150, "(1|item) + (1|model:item)"), (150, "(1|item) + (1|model:task)")],
)
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_factors_of_many_levels(models: int, random: str, missing: float) -> None:
    data = _scores(models, 100, 3, missing)
    data["model"] = pd.Categorical("m" + data["model"].astype(str))
    _check_same(f"score ~ C(model) + {random}", data)


@pytest.mark.slow
def test_sums_of_sparse_columns_count_the_rows_of_cells() -> None:
    """Two factors of several columns, sparse in tables of this size."""
    data = _scores(60, 300, 2, 0.1)
    data["model"] = pd.Categorical("m" + data["model"].astype(str))
    _check_same("score ~ C(model) * C(task) + (1|task:item) + (1|model:item)", data)


def _check_same(formula: str, data: pd.DataFrame) -> None:
    rows, cells = vcomp.fit(formula, data), vcomp.fit(formula, data, stream=True)
    assert cells.nobs == rows.nobs == len(data)
    assert list(cells.params.index) == list(rows.params.index)
    np.testing.assert_allclose(cells.vcomp, rows.vcomp, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(cells.params, rows.params, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(cells.bse_fe, rows.bse_fe, rtol=1e-8, atol=1e-12)
    assert cells.llf == pytest.approx(rows.llf, rel=1e-10)


class _Frames:
    """Frames that count how often they are read."""

    def __init__(self, data: pd.DataFrame) -> None:
        self._frames, self.passes = [part for _, part in data.groupby("item")], 0

    def __iter__(self) -> Iterator[pd.DataFrame]:
        self.passes += 1
        return iter(self._frames)


@pytest.mark.parametrize(
    ("values", "again"), [((0, 1), 0), ((1e7 - 0.5, 1e7 + 2), 0), ((0, 0.25, 1), 1)]
)
@pytest.mark.parametrize("formula", [_CROSSED, "score ~ (1|model) + (1|item) + (1|model:item)"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_robust_intervals_of_two_values_need_the_cells_alone(
    values: tuple[float, ...], again: int, formula: str, missing: float
) -> None:
    """Of other scores the rows are read again."""
    data = _scores(4, 40, 3, missing)
    data["model"] = "m" + data["model"].astype(str)
    data["score"] = np.array(values)[data["score"].astype(int) * (len(values) - 1)]
    data.loc[:20, "score"] = values[1]
    frames = _Frames(data)
    rows, cells = vcomp.fit(formula, data), vcomp.fit(formula, frames, stream=True)
    expected, passes = rows.conf_int(interval="robust"), frames.passes
    found = cells.conf_int(interval="robust")
    assert (frames.passes > passes) == again
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-12)
    shared = [res._record.tables.levels.shared for res in (cells, rows)]
    np.testing.assert_allclose(shared[0], shared[1], atol=1e-7 * np.abs(shared[1]).max())
    if values == (0, 1):
        np.testing.assert_allclose(shared[0], shared[1], atol=1e-11 * np.abs(shared[1]).max())


def test_sums_of_groups_need_no_columns_of_a_wide_factor() -> None:
    data = _scores(150, 100, 3, 0.1)
    data["model"] = pd.Categorical("m" + data["model"].astype(str))
    made = vcomp.VarianceComponentsModel(_CROSSED, data, stream=True).statistics
    products = made.cross_products
    assert made.wide is not None
    np.testing.assert_allclose(made.group_sums.parts, product_group_sums(products).parts)
    np.testing.assert_allclose(made.group_sums.total, product_group_sums(products).total)
    np.testing.assert_array_equal(made.group_sums.finer, product_group_sums(products).finer)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("values", [2, 5])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (_CROSSED, "score ~ (1|model) + (1|item) + (1|model:item)"),
        (_CROSSED, "score ~ (1|model) + (1|item)"),
        (
            "score ~ C(model) * C(task) + (1|task:item) + (1|model:item)",
            "score ~ C(task) + (1|model) + (1|model:task) + (1|item)",
        ),
    ],
)
def test_another_formula_has_the_sums_of_the_same_cells(
    first: str, second: str, missing: float, values: int
) -> None:
    """Rows are read for the first formula alone."""
    data = _scores(5, 24, 4, missing)
    rng = np.random.default_rng(2)
    data["score"] = np.where(data["score"] > 0.0, rng.integers(1, values, len(data)), 0.0)
    frames = _Frames(data)
    fitted = vcomp.fit(first, frames, stream=True)
    passes = frames.passes
    model = model_of_same_rows(fitted, second)
    assert model is not None
    found, expected = model.fit(), vcomp.fit(second, data)
    assert frames.passes == passes
    np.testing.assert_allclose(found.vcomp, expected.vcomp, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(found.params, expected.params, rtol=1e-9)
    assert found.llf == pytest.approx(expected.llf, rel=1e-10)
    robust = [fit.conf_int(interval="robust").to_numpy() for fit in (found, expected)]
    np.testing.assert_allclose(*robust, rtol=1e-6, atol=1e-9)


def test_facets_that_were_not_read_are_not_derived() -> None:
    fitted = vcomp.fit(_CROSSED, _scores(4, 12, 3, 0.0), stream=True)
    assert model_of_same_rows(fitted, "score ~ (1|model) + (1|task)") is None
    assert model_of_same_rows(fitted, "score ~ run + (1|model) + (1|item)") is None
    in_memory = vcomp.fit(_CROSSED, _scores(4, 12, 3, 0.0))
    assert model_of_same_rows(in_memory, "score ~ (1|model) + (1|item)") is None

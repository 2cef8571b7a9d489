"""Cells that are complete are put together in groups, and the strata come out the same."""

import numpy as np
import pandas as pd
import pytest
from designs import GRIDS, gridded

import vcomp
from vcomp.statistics import gather as module
from vcomp.statistics.sealed import sealing_of

SEALED = ["nested, balanced", "per document", "single cells", "deep", "deep, replicated"]


@pytest.fixture(autouse=True)
def _always(monkeypatch):
    monkeypatch.setattr(module, "_LARGE", 0.0)


def sealed(formula, data, rows, monkeypatch):
    """Return the model of rows in batches, and whether its cells were sealed."""
    monkeypatch.setattr(module, "BATCH", rows)
    found = []
    monkeypatch.setattr(module, "sealing_of", lambda x: found.append(sealing_of(x)) or found[-1])
    model = vcomp.VarianceComponentsModel(formula, data, stream=True)
    return model, found[0]


@pytest.mark.parametrize("fixed", ["1", "x + g", "0 + x"])
@pytest.mark.parametrize("rows", [7, 10_000])
@pytest.mark.parametrize("name", SEALED)
def test_strata_are_those_of_rows_in_memory(name, rows, fixed, monkeypatch):
    formula, data = gridded(name, seed=4)
    rng = np.random.default_rng(1)
    data = data.assign(
        x=rng.normal(size=len(data)), g=np.array(list("uvw"))[rng.integers(0, 3, len(data))]
    ).sample(frac=1.0, random_state=1)
    formula = formula.replace("~", f"~ {fixed} +")
    model, sealing = sealed(formula, data, rows, monkeypatch)
    assert sealing is not None
    kept, streamed = vcomp.fit(formula, data), model.fit()
    scale = kept.vcomp.abs().max()
    np.testing.assert_allclose(streamed.vcomp, kept.vcomp, rtol=1e-11, atol=1e-12 * scale)
    np.testing.assert_allclose(streamed.llf, kept.llf, rtol=1e-12)
    assert str(streamed.summary()) == str(kept.summary())
    assert str(streamed.design) == str(kept.design)


@pytest.mark.parametrize("name", sorted(set(GRIDS) - set(SEALED)))
def test_other_designs_are_not_sealed(name, monkeypatch):
    formula, data = gridded(name, seed=4)
    model, sealing = sealed(formula, data, 11, monkeypatch)
    assert sealing is None
    np.testing.assert_allclose(model.fit().vcomp, vcomp.fit(formula, data).vcomp, rtol=1e-9)


def grid(n_persons=4, n_topics=3, n_documents=5):
    rng = np.random.default_rng(2)
    p, d = np.divmod(np.arange(n_persons * n_topics * n_documents), n_topics * n_documents)
    data = pd.DataFrame({"p": p, "d": d, "i": d // n_documents})
    return data.assign(y=rng.normal(size=len(data)) + data["p"] + rng.normal(size=15)[data["d"]])


def test_a_cell_filled_twice_while_another_is_empty(monkeypatch):
    """The numbers of rows of all levels are those of a grid, and yet it is none."""
    data = grid()
    # Persons 0 and 1 swap one row each between documents 0 and 1: margins stay as they were.
    data.loc[(data["p"] == 0) & (data["d"] == 0), "d"] = 1
    data.loc[(data["p"] == 1) & (data["d"] == 1), "d"] = 0
    formula = "y ~ (1|p) + (1|i) + (1|d)"
    model, sealing = sealed(formula, data, 7, monkeypatch)
    assert sealing is not None
    assert model.statistics.strata is None
    np.testing.assert_allclose(model.fit().vcomp, vcomp.fit(formula, data).vcomp, rtol=1e-9)


def test_what_needs_cells_says_that_they_are_gone(monkeypatch):
    model, _ = sealed("y ~ (1|p) + (1|i) + (1|d)", grid(), 7, monkeypatch)
    with pytest.raises(vcomp.DataError, match="as soon as they were complete"):
        model.fit().jackknife("p")
    with pytest.raises(vcomp.DataError, match="as soon as they were complete"):
        model.fit(engine="blocked")


def test_bootstrap_and_d_studies_need_no_cells(monkeypatch):
    data = grid()
    formula = "y ~ (1|p) + (1|i) + (1|d)"
    kept, streamed = vcomp.fit(formula, data), sealed(formula, data, 7, monkeypatch)[0].fit()
    pd.testing.assert_frame_equal(
        kept.dstudy(i=[3, 9], d=5).table, streamed.dstudy(i=[3, 9], d=5).table, rtol=1e-9
    )
    np.testing.assert_allclose(
        kept.bootstrap(10, rng=1).values, streamed.bootstrap(10, rng=1).values, rtol=1e-7
    )

"""Cells that are complete are put together in groups, and the strata come out the same."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from patsy import EvalEnvironment

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import GRIDS, gridded
from tests.helpers.readings import model_of
from vcomp.data.reading import Reading
from vcomp.data.rows import CompleteRows
from vcomp.formula import parse
from vcomp.io import open_source
from vcomp.statistics.batches.cell_table import sum_cells
from vcomp.statistics.batches.collapsed_cells import PartSums, collapse_plan
from vcomp.statistics.batches.passes import Batches, Coder, gather, learn_in_passes

SEALED = ["nested, balanced", "per document", "single cells", "deep", "deep, replicated"]


ALWAYS = {"stream": True, "large_share": 0.0}


def collapsed(formula, data, rows):
    """Return the model of rows in batches, and their sums."""
    model = model_of(formula, data, **ALWAYS, batch_rows=rows)
    reading = Reading(EvalEnvironment([{}]), **ALWAYS, batch_rows=rows)
    return model, gather(parse(formula), open_source(data), reading, collapse=True)


@pytest.mark.parametrize(
    ("name", "rows", "fixed"),
    [
        (name, rows, fixed)
        for (name, fixed), rows in alternately(
            list(product(SEALED, ["1", "x + g", "0 + x"]))[::2], 7, 10_000
        )
    ],
)
def test_strata_are_those_of_rows_in_memory(name, rows, fixed):
    formula, data = gridded(name, seed=4)
    rng = np.random.default_rng(1)
    data = data.assign(
        x=rng.normal(size=len(data)), g=np.array(list("uvw"))[rng.integers(0, 3, len(data))]
    ).sample(frac=1.0, random_state=1)
    formula = formula.replace("~", f"~ {fixed} +")
    model, sums = collapsed(formula, data, rows)
    assert sums.collapsed is not None
    kept, streamed = vcomp.fit(formula, data), model.fit()
    scale = kept.vcomp.abs().max()
    np.testing.assert_allclose(streamed.vcomp, kept.vcomp, rtol=1e-11, atol=1e-12 * scale)
    np.testing.assert_allclose(streamed.llf, kept.llf, rtol=1e-12)
    assert str(streamed.summary()) == str(kept.summary())
    assert str(streamed.design) == str(kept.design)
    of_rows, of_cells = (found.model.statistics.strata for found in (kept, streamed))
    for one, other in zip(of_rows.strata, of_cells.strata, strict=True):
        assert (one.contrasts, one.fixed) == (other.contrasts, other.fixed)
        close = {"rtol": 1e-11, "atol": 1e-10}
        np.testing.assert_allclose(other.columns.within, one.columns.within, **close)
        np.testing.assert_allclose(other.columns.means, one.columns.means, **close)


@pytest.mark.parametrize("name", sorted(set(GRIDS) - set(SEALED))[::2])
def test_other_designs_are_not_sealed(name):
    formula, data = gridded(name, seed=4)
    model, sums = collapsed(formula, data, 11)
    assert collapse_plan(sums.coding) is None
    assert sums.collapsed is None
    np.testing.assert_allclose(model.fit().vcomp, vcomp.fit(formula, data).vcomp, rtol=1e-9)


def grid(n_persons=4, n_topics=3, n_documents=5):
    rng = np.random.default_rng(2)
    p, d = np.divmod(np.arange(n_persons * n_topics * n_documents), n_topics * n_documents)
    data = pd.DataFrame({"p": p, "d": d, "i": d // n_documents})
    of_documents = rng.normal(size=n_topics * n_documents)
    return data.assign(y=rng.normal(size=len(data)) + data["p"] + of_documents[data["d"]])


def test_a_cell_filled_twice_while_another_is_empty():
    """The numbers of rows of all levels are those of a grid, and yet it is none."""
    data = grid()
    # Persons 0 and 1 swap one row each between documents 0 and 1: margins stay as they were.
    data.loc[(data["p"] == 0) & (data["d"] == 0), "d"] = 1
    data.loc[(data["p"] == 1) & (data["d"] == 1), "d"] = 0
    formula = "y ~ (1|p) + (1|i) + (1|d)"
    model, sums = collapsed(formula, data, 7)
    assert collapse_plan(sums.coding) is not None
    assert sums.collapsed is None
    assert model.statistics.strata is None
    np.testing.assert_allclose(model.fit().vcomp, vcomp.fit(formula, data).vcomp, rtol=1e-9)


def test_what_needs_cells_says_that_they_are_gone():
    model, _ = collapsed("y ~ (1|p) + (1|i) + (1|d)", grid(), 7)
    with pytest.raises(vcomp.DataError, match="as soon as they were complete"):
        model.fit().jackknife("p")
    with pytest.raises(vcomp.DataError, match="as soon as they were complete"):
        model.fit(engine="blocked")


def test_bootstrap_and_d_studies_need_no_cells():
    data = grid()
    formula = "y ~ (1|p) + (1|i) + (1|d)"
    kept, streamed = vcomp.fit(formula, data), collapsed(formula, data, 7)[0].fit()
    pd.testing.assert_frame_equal(
        kept.dstudy(i=[3, 9], d=5).table, streamed.dstudy(i=[3, 9], d=5).table, rtol=1e-9
    )
    np.testing.assert_allclose(
        kept.bootstrap(10, rng=1).values, streamed.bootstrap(10, rng=1).values, rtol=1e-7
    )


@pytest.mark.parametrize(
    ("case", "spread"),
    alternately(product(SEALED, [0.0, 0.05, 0.3, 0.6, 1.0]), 0, 2, 10**9),
)
def test_rows_are_put_away_as_their_cells_are(case, spread):
    """By a table of all combinations, or by sorted places: the same groups, the same rest."""
    name, share = case
    formula, data = gridded(name, seed=4)
    model = parse(formula)
    source = open_source(data)
    batches = Batches(model, source, Reading(EvalEnvironment([{}])))
    learned = learn_in_passes(model, batches, Reading(EvalEnvironment([{}])))
    plan = collapse_plan(learned)
    rows = data.sort_values([f for f in ("d", "i", "h") if f in data])
    some = rows.iloc[: round(share * len(rows))].sample(frac=1.0, random_state=1)
    part = CompleteRows.of(model, some.reset_index(drop=True), EvalEnvironment([{}]))
    places, values = Coder(learned)(part)
    by_cells = PartSums.of(plan, sum_cells(plan.by_cell(places), values))
    found = PartSums.of_rows(plan, places.copy(), values, spread=spread)
    assert found.n == by_cells.n == len(some)
    assert found.is_complete == by_cells.is_complete
    np.testing.assert_array_equal(found.open.places, by_cells.open.places)
    np.testing.assert_array_equal(found.open.counts, by_cells.open.counts)
    np.testing.assert_allclose(found.open.means, by_cells.open.means, rtol=1e-14)
    np.testing.assert_allclose(found.open.within, by_cells.open.within, rtol=1e-12)
    assert (found.collapsed is None) == (by_cells.collapsed is None)
    if found.collapsed is not None:
        np.testing.assert_array_equal(found.collapsed.groups, by_cells.collapsed.groups)
        np.testing.assert_array_equal(found.collapsed.n, by_cells.collapsed.n)
        np.testing.assert_allclose(found.collapsed.means, by_cells.collapsed.means, rtol=1e-13)
        np.testing.assert_allclose(found.collapsed.within, by_cells.collapsed.within, rtol=1e-11)


def test_what_needs_the_rows_says_how_much_memory_they_take():
    formula, data = gridded("per document", seed=4)
    kept = model_of(formula, data, **ALWAYS).fit()
    with pytest.raises(
        vcomp.DataError, match=r"stream=False keeps them in memory, about 0\.1 MiB"
    ):
        kept.resid  # noqa: B018
    res = model_of(formula, data, **ALWAYS).fit()
    size = r"this needs the rows in memory, about 0\.1 MiB: fit with stream=False"
    with pytest.raises(vcomp.DataError, match=size):
        res.jackknife(kept.design.facets[0])
    model = model_of(formula, data, **ALWAYS)
    with pytest.raises(vcomp.DataError, match=size):
        model.fit("minque")
    # 24 bytes for each value of 4,000 rows: three facets, y and x.
    data = grid(40, 10, 10).assign(x=np.random.default_rng(3).normal(size=4000))
    model, _ = collapsed("y ~ x + (1|p) + (1|i) + (1|d)", data, 500)
    with pytest.raises(vcomp.DataError, match=r"in memory, about 0\.5 MiB"):
        model.fit().jackknife("p")

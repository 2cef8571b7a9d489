"""Sums rolled up from finer terms equal sums over rows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from patsy import EvalEnvironment

import vcomp
from vcomp.data.reading import Reading
from vcomp.data.rows import Rows
from vcomp.design import learn
from vcomp.formula import parse
from vcomp.statistics import roll_up as rollup
from vcomp.statistics.roll_up import RollUp

FORMULAS = [
    "y ~ (1|p) + (1|a) + (1|i) + (1|d) + (1|p:a) + (1|p:i) + (1|a:i) + (1|p:d) + (1|a:d)",
    "y ~ (1|a:p) + (1|d:p) + (1|i)",
    "y ~ (1|i/d) + (1|p)",
    "y ~ (1|d) + (1|i:a)",
]


def table(seed):
    rng = np.random.default_rng(seed)
    n = 400
    d = rng.integers(0, 30, n)
    data = {"p": rng.integers(0, 6, n), "a": rng.integers(0, 3, n), "d": d, "i": d % 7}
    return pd.DataFrame({"y": rng.normal(size=n), **data})


def chunk_of(formula, data, part=None):
    scope, parsed = EvalEnvironment([{}]), parse(formula)
    rows = Rows.select(parsed, data, Reading(scope))
    design = learn(parsed, rows, scope)
    if part is not None:
        rows = Rows.select(parsed, data.iloc[part], Reading(scope))
    return design.encode(rows)


@pytest.mark.parametrize("part", [None, slice(0, 40), slice(7, 8)], ids=["all", "few", "one"])
@pytest.mark.parametrize("formula", FORMULAS)
def test_rolled_up_sums_are_those_of_the_rows(formula, part):
    data = table(len(formula))
    chunk = chunk_of(formula, data, part)
    rolled = RollUp(chunk)
    y = np.column_stack([chunk.y, chunk.y**2])
    sums, pairs = rolled.sums(y), rolled.pairs()
    for t, (codes, size) in enumerate(zip(chunk.codes, chunk.sizes, strict=True)):
        np.testing.assert_array_equal(rolled.group_n[t], np.bincount(codes, minlength=size))
        for column in range(2):
            expected = np.bincount(codes, weights=y[:, column], minlength=size)
            np.testing.assert_allclose(sums[t][:, column], expected, rtol=0, atol=1e-12)
    for (t, u), found in pairs.items():
        expected = np.zeros((chunk.sizes[t], chunk.sizes[u]))
        np.add.at(expected, (chunk.codes[t], chunk.codes[u]), 1.0)
        np.testing.assert_array_equal(found.matrix.toarray(), expected)
        assert (found.counts > 0.0).all()
        for g in range(chunk.sizes[t]):
            row = found.indices[found.indptr[g] : found.indptr[g + 1]]
            assert (np.diff(row) > 0).all()


def test_rows_are_passed_over_only_where_no_term_is_fine_enough():
    rolled = RollUp(chunk_of(FORMULAS[0], table(1)))
    sources = [rolled._source(pair) for pair in rolled.pairs()]
    # Eight pairs hold p, a and d together, six p, a and i.
    assert (len(sources), sources.count(rollup._ROWS)) == (36, 14)


def test_tables_that_do_not_fit_are_refused_before_they_are_made():
    chunk = chunk_of(FORMULAS[0], table(1))
    rolled = RollUp(chunk)
    with pytest.raises(
        vcomp.EstimationError, match=r"pairs of groups .* 400 rows may need .* [GM]iB"
    ):
        rolled.pairs(free_bytes=lambda: 1e4)
    assert not rolled._maps  # no codes were computed yet


def test_pair_tables_of_the_design_are_not_counted_again():
    data = table(5)
    scope, parsed = EvalEnvironment([{}]), parse("y ~ (1|p) + (1|a) + (1|i/d)")
    rows, counted = Rows.select(parsed, data, Reading(scope)), {}
    chunk = learn(parsed, rows, scope, counted).encode(rows)
    found, expected = RollUp(chunk, counted).pairs(), RollUp(chunk).pairs()
    assert found[0, 1].indices is counted[0, 1][1]  # p and a, which no term has together
    for pair, known in expected.items():
        np.testing.assert_array_equal(found[pair].matrix.toarray(), known.matrix.toarray())
    weighted = replace(chunk, counts=np.arange(1.0, 1.0 + chunk.n))
    table_of = RollUp(weighted, counted).pairs()[0, 1]
    Z = [np.eye(q)[c] for c, q in zip(weighted.codes, weighted.sizes, strict=True)]
    np.testing.assert_allclose(
        table_of.matrix.toarray(), Z[0].T @ (weighted.counts[:, None] * Z[1])
    )

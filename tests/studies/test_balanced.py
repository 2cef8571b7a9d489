"""The analysis of variance of balanced tables, against fits of the rows."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.designs import DESIGNS, balanced, unbalanced
from tests.helpers.examples import examples
from vcomp.model.row_access import fitted_again
from vcomp.studies.balanced import BalancedEstimator, BalancedTable, stratum_squares


def table_of(formula, frame, method="anova"):
    res = vcomp.fit(formula, frame, method=method)
    fit, design = fitted_again(res)
    return res, design, BalancedTable.of(design, fit.stats.rows)


@pytest.mark.parametrize("name", sorted(DESIGNS))
@settings(max_examples=examples(5), deadline=None)
@given(seed=st.integers(0, 1000), offset=st.sampled_from([0.0, 1e6]))
def test_components_are_those_of_the_fit(name, seed, offset):
    formula, frame = balanced(name, seed)
    res, design, table = table_of(formula, frame.assign(y=frame["y"] + offset))
    found, mean = BalancedEstimator(res.components, design.structure.facets, table.scores.shape)(
        table.scores
    )
    # Of an offset a million times the spread six digits are lost in the scores themselves.
    tolerance = 1e-10 if offset == 0.0 else 1e-8
    size = np.abs(res.vcomp).max()
    np.testing.assert_allclose(found, res.vcomp, rtol=0.0, atol=tolerance * size)
    assert mean + design.origin == pytest.approx(frame["y"].mean() + offset, rel=1e-12)


def test_small_components_keep_their_digits_beside_large_ones():
    """Of integers, by exact fractions: rounding of the large sum of squares stays in it."""
    rng = np.random.default_rng(2)
    a, b = (x.ravel() for x in np.indices((6, 5)))
    noise = rng.integers(-9, 10, 30) + rng.integers(-9, 10, 5)[b]
    y = 10**6 * rng.integers(-9, 10, 6)[a] + noise
    _, design, table = table_of("y ~ (1|a) + (1|b)", pd.DataFrame({"a": a, "b": b, "y": y * 1.0}))
    cells = [[Fraction(int(y[5 * i + j])) for j in range(5)] for i in range(6)]
    rows = [sum(row) / 5 for row in cells]
    columns = [sum(row[j] for row in cells) / 6 for j in range(5)]
    mean = sum(rows) / 6
    ms_b = 6 * sum((c - mean) ** 2 for c in columns) / 4
    left = [cells[i][j] - rows[i] - columns[j] + mean for i in range(6) for j in range(5)]
    ms_e = sum(e**2 for e in left) / 20
    res = vcomp.fit("y ~ (1|a) + (1|b)", balanced("crossed", 1)[1], method="anova")
    made = BalancedEstimator(res.components, design.structure.facets, table.scores.shape)
    found, _ = made(table.scores)
    # The scores themselves have an error of 1e7 · 1e-16 beside residuals of size 1.
    assert found[1:] == pytest.approx([float((ms_b - ms_e) / 6), float(ms_e)], rel=1e-8)


@pytest.mark.parametrize(
    ("formula", "closed"),
    [
        ("y ~ (1|a) + (1|b)", True),
        ("y ~ (1|a) + (1|b) + (1|c)", True),
        ("y ~ (1|a:b) + (1|c)", True),
        ("y ~ (1|a:b) + (1|b:c)", False),
        ("y ~ (1|a) + (1|a:b) + (1|a:c)", True),
        ("y ~ (1|b) + (1|a:b) + (1|a:c)", False),
    ],
)
def test_models_without_all_terms(formula, closed):
    _, frame = balanced("three facets", 3)
    res, design, table = table_of(formula, frame)
    assert res.components.is_closed is closed
    found, _ = BalancedEstimator(res.components, design.structure.facets, table.scores.shape)(
        table.scores
    )
    np.testing.assert_allclose(found, res.vcomp, rtol=1e-10, atol=1e-12)


@settings(max_examples=examples(30), deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    seed=st.integers(0, 10_000),
)
def test_strata_share_out_the_sum_of_squares(shape, seed):
    y = np.random.default_rng(seed).normal(size=shape) + 5.0
    squares, mean = stratum_squares(y, tuple(shape))
    assert mean == pytest.approx(y.mean(), rel=1e-13)
    assert squares.sum() == pytest.approx(np.square(y).sum(), rel=1e-12)
    # Of every axis the mean or what is left: the projections are written out one by one.
    strata = [()]
    for axis in range(len(shape)):
        strata = [s for part in strata for s in (part, (*part, axis))]
    for found, contrasts in zip(squares, strata, strict=True):
        part = y
        for axis in range(len(shape)):
            level = part.mean(axis=axis, keepdims=True)
            part = part - level if axis in contrasts else np.broadcast_to(level, part.shape)
        assert found == pytest.approx(np.square(part).sum(), rel=1e-9, abs=1e-10)


def test_a_part_of_a_table_is_that_of_its_levels():
    formula, frame = balanced("crossed and nested", 1)
    _, design, table = table_of(formula, frame)
    facets = design.structure.facets
    chosen = {
        "a": np.array([0, 2, 5]),
        "b": np.array([1, 3]),
        "c": np.array([[0, 2], [1, 2]]),  # of each b that stays its own
    }
    part = table.take([chosen[f] for f in facets])
    levels = {f.name: list(f.levels) for f in design.facets}
    mean = design.origin
    order = [facets.index(f) for f in ("a", "b", "c")]
    part = part[..., 0].transpose(order)
    for (i, a), (j, b), k in product(enumerate(chosen["a"]), enumerate(chosen["b"]), range(2)):
        row = frame[
            (frame["a"] == levels["a"][a])
            & (frame["b"] == levels["b"][b])
            & (frame["c"] == levels["c"][chosen["c"][j, k]])
        ]
        assert part[i, j, k] == row["y"].item() - mean


@pytest.mark.parametrize("name", ["crossed", "nested", "crossed and nested"])
def test_there_is_no_table_of_unbalanced_data(name):
    assert table_of(*unbalanced(name, 1), "reml")[2] is None


def test_replicates_where_the_last_facet_has_one_level():
    """Cells of one b are those of a one-way design."""
    _, frame = balanced("crossed, replicated", 2)
    res, design, table = table_of("y ~ (1|a:b)", frame)
    part = table.scores[:, :1]
    found, _ = BalancedEstimator(res.components, design.structure.facets, part.shape)(part)
    alone = vcomp.fit("y ~ (1|a)", frame[frame["b"] == frame["b"].iloc[0]], method="anova")
    np.testing.assert_allclose(found, alone.vcomp, rtol=1e-10)


def test_components_that_cannot_be_told_apart():
    res, design, table = table_of(*balanced("nested", 1))
    with pytest.raises(np.linalg.LinAlgError):
        BalancedEstimator(res.components, design.structure.facets, (4, 1, table.scores.shape[-1]))

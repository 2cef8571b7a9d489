"""Strata of a complete grid: against projections written out as dense matrices."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.designs import GRIDS, gridded
from vcomp.statistics import stratification as module
from vcomp.statistics.axis_splits import Blocks, split_columns, split_combinations, split_means
from vcomp.statistics.completed_grid import complete
from vcomp.statistics.cross_products import accumulate
from vcomp.statistics.groupings import find_groupings
from vcomp.statistics.stratification import stratify


def model_of(name, fixed="1", seed=0):
    formula, data = gridded(name, seed)
    return vcomp.VarianceComponentsModel(formula.replace("~", f"~ {fixed} +"), data)


def indicator(codes):
    _, inverse = np.unique(np.asarray(codes), axis=0, return_inverse=True)
    return np.eye(inverse.max() + 1)[inverse]


def mean_projector(Z):
    """Return the projector on what is constant within groups."""
    return Z @ np.diag(1.0 / Z.sum(axis=0)) @ Z.T


def stratum_projector(model, contrasts):
    """Return the projector on the contrasts of some axes, in the means of the others.

    What is left within cells belongs to the stratum of all means.
    """
    chunk, grid, n = model.chunk, model.design.grid, model.nobs
    facets = range(len(model.design.facets))
    cells = mean_projector(indicator(np.column_stack([chunk.level_codes(f) for f in facets])))
    P = cells
    for position, axis in enumerate(grid.axes):
        others = [chunk.level_codes(f) for f in facets if f != axis]
        # The mean over one axis is constant in the cells of all other facets.
        mean = mean_projector(indicator(np.column_stack([np.zeros(n, int), *others])))
        P = P @ (cells - mean if position in contrasts else mean)
    return P if contrasts else P + np.eye(n) - cells


def grouping_projectors(model):
    """Return for each term what is constant in the groups of its facets that are no axes."""
    chunk, grid, n = model.chunk, model.design.grid, model.nobs
    projectors = []
    for term in model.design.terms:
        rest = [chunk.level_codes(f) for f in term.facets if f not in grid.axes]
        axes = [chunk.level_codes(f) for f in grid.axes]
        columns = [*axes, *rest]
        Z = indicator(np.column_stack(columns)) if columns else np.ones((n, 1))
        projectors.append(mean_projector(Z))
    return projectors


def squares_of(stats, stratum):
    """Return Σ n m² of the columns in each grouping, and of single observations as the last."""
    tables, columns = stats.remainder.tables, stratum.columns
    if stats.remainder.parents is None:
        squares = [
            np.einsum("q,qbr,qdr->bd", n, m, m)
            for n, m in zip(tables.group_n, columns.means, strict=True)
        ]
        return [*squares, columns.within]
    codes = np.arange(tables.group_n[-1].size)
    squares = []
    for level in range(stats.remainder.n_groupings - 1, -1, -1):
        n, inner = tables.group_n[level], tables.group_n[-1]
        sums = np.zeros((n.size, *columns.means[0].shape[1:]))
        np.add.at(sums, codes, inner[:, None, None] * columns.means[0])
        squares.append(np.einsum("qbr,qdr,q->bd", sums, sums, 1.0 / n))
        if level:
            codes = stats.remainder.parents[level - 1][codes]
    return [*squares[::-1], squares[0] + columns.within]


CASES = [(name, "1") for name in GRIDS]
CASES += [(name, "xp") for name in ("per document", "deep", "crossed", "replicated")]
CASES += [(name, "xi + xd") for name in ("per document", "not nested, replicated", "nested")]
CASES += [(name, "xp + xi") for name in ("single cells", "two axes, not nested")]


@pytest.mark.parametrize(("name", "fixed"), CASES)
def test_squares_of_strata_are_those_of_projections(name, fixed):
    model = model_of(name, fixed)
    stats, chunk = model.statistics.strata, model.chunk
    B = np.column_stack([chunk.y, chunk.X])
    groupings = grouping_projectors(model)
    k = len(model.design.grid.axes)
    subsets = [s for size in range(k + 1) for s in combinations(range(k), size)]
    assert {s.contrasts for s in stats.strata} == set(subsets)
    assert len(stats.strata) == len(subsets)
    for stratum in stats.strata:
        columns = [0, *(1 + j for j in stratum.fixed)]
        part = stratum_projector(model, stratum.contrasts) @ B[:, columns]
        squares = squares_of(stats, stratum)
        np.testing.assert_allclose(squares[-1], part.T @ part, atol=1e-11)
        for t, M in enumerate(groupings):
            found = squares[stats.term_groupings[t]]
            np.testing.assert_allclose(found, part.T @ M @ part, atol=1e-11)
        shape = model.design.grid.shape
        assert stratum.multiplicity == np.prod([shape[f] - 1 for f in stratum.contrasts])


@pytest.mark.parametrize(("name", "fixed"), CASES)
def test_strata_hold_everything(name, fixed):
    """Their covariance matrices on their spaces make up V, and their squares those of the rows."""
    model = model_of(name, fixed)
    stats, sums = model.statistics.strata, accumulate(model.chunk)
    total = sum(squares_of(stats, s)[-1][0, 0] for s in stats.strata)
    assert total == pytest.approx(sums.yy, rel=1e-12)
    assert sorted(j for s in stats.strata for j in s.fixed) == list(range(sums.n_fixed))
    v = np.linspace(0.5, 2.0, stats.n_terms + 1)
    Z = [np.eye(q)[c] for c, q in zip(model.chunk.codes, model.chunk.sizes, strict=True)]
    V = sum(s * z @ z.T for s, z in zip(v, Z, strict=False)) + v[-1] * np.eye(model.nobs)
    trace = trace_of_square = 0.0
    for stratum in stats.strata:
        P, c = stratum_projector(model, stratum.contrasts), stratum.coefficients @ v
        assert np.abs(P @ V - V @ P).max() < 1e-11
        trace_of_square += stratum.multiplicity * square_of(stats, c)
        trace += np.trace(P)
    assert trace == pytest.approx(model.nobs)
    assert trace_of_square == pytest.approx(np.sum(V**2), rel=1e-12)
    for at in ("n", "sizes", "n_terms", "n_fixed"):
        assert getattr(stats, at) == getattr(sums, at)
    for at in ("XX", "Xy", "yy"):
        np.testing.assert_allclose(getattr(stats, at), getattr(sums, at), rtol=1e-13, atol=1e-11)
    for t, u in product(range(stats.n_terms), repeat=2):
        assert stats.is_finer(t, u) == sums.is_finer(t, u)


def square_of(stats, c):
    """Return tr(V_s²) of one vector of a stratum."""
    tables = stats.remainder.tables
    total = c[-1] ** 2 * tables.n
    for a, n in enumerate(tables.group_n):
        total += 2.0 * c[a] * c[-1] * n.sum()
        for b in range(tables.n_terms):
            total += c[a] * c[b] * np.square(tables.gram(a, b).toarray()).sum()
    return total


# The same numbers, however they are computed ----------------------------------------------------


def numbers_of(stats):
    """Return all numbers of the strata, as bytes."""
    arrays = [stats.XX]
    for stratum in stats.strata:
        arrays += [stratum.coefficients, stratum.columns.within, *stratum.columns.means]
    return bytes_of(*arrays)


def bytes_of(*arrays):
    return b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)


def reordered(chunk, order):
    codes = tuple(np.ascontiguousarray(c[order]) for c in chunk.compact_codes)
    X = chunk.X if chunk.X.strides[0] == 0 else chunk.X[order]
    return replace(chunk, response=chunk.response[order], columns=X, compact_codes=codes)


@pytest.mark.parametrize("name", GRIDS)
def test_order_of_rows(name):
    """With one row in a cell it changes no bit; otherwise sums within cells are rounded anew."""
    model = model_of(name)
    chunk, grid = model.chunk, model.design.grid
    order = np.random.default_rng(1).permutation(model.nobs)
    once, again = stratify(chunk, grid), stratify(reordered(chunk, order), grid)
    if (grid.cell_n == 1.0).all():
        assert numbers_of(once) == numbers_of(again)
    for one, other in zip(once.strata, again.strata, strict=True):
        for a, b in zip(squares_of(once, one), squares_of(again, other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("block", [1, 7, 10**6])
@pytest.mark.parametrize("fixed", ["1", "xp"], ids=["one column", "several columns"])
@pytest.mark.parametrize(
    "name", ["per document", "not nested", "unequally replicated", "three facets"]
)
def test_threads_change_no_bit_and_blocks_only_the_last_ones(name, fixed, block):
    model = model_of(name, fixed)
    chunk, grid = model.chunk, model.design.grid
    groupings = find_groupings(chunk.terms, grid)
    cells = module._tabulate(chunk, grid, groupings, module._vary(chunk))
    usual = split_columns(cells, groupings)
    found = [
        split_columns(cells, groupings, Blocks(block, block, threads)) for threads in (1, 2, 5)
    ]
    for contrasts, columns in usual.items():
        several = [split[contrasts] for split in found]
        assert len({bytes_of(one.within, *one.means) for one in several}) == 1
        np.testing.assert_allclose(several[0].within, columns.within, rtol=1e-13, atol=1e-13)


def test_too_many_axes_are_left_to_other_engines():
    model = model_of("three facets")
    assert stratify(model.chunk, model.design.grid, most_axes=2) is None


# Far from zero ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["per document", "replicated", "not nested", "nested"])
def test_a_far_response_keeps_its_digits(name):
    """Adding 2⁴⁰ to a response of few binary digits changes nothing but the mean."""
    formula, data = gridded(name)
    data["y"] = np.round(data["y"] * 64.0) / 64.0
    near = vcomp.VarianceComponentsModel(formula, data).statistics.strata
    far = vcomp.VarianceComponentsModel(
        formula, data.assign(y=data["y"] + 2.0**40)
    ).statistics.strata
    for one, other in zip(near.strata, far.strata, strict=True):
        if one.contrasts:
            for a, b in zip(squares_of(near, one), squares_of(far, other), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-11)


def test_tables_that_do_not_fit_are_refused_before_they_are_made():
    formula, data = gridded("per document")
    model = vcomp.VarianceComponentsModel(formula, data)
    uncoded = replace(model.chunk, compact_codes=())  # places of its rows cannot be found
    with pytest.raises(vcomp.EstimationError, match=r"1 columns in 80 cells need .* are free"):
        stratify(uncoded, model.design.grid, free_bytes=lambda: 1e5)
    # A grid with holes that does not fit is left to other engines.
    model = vcomp.VarianceComponentsModel(formula, data[1:])
    assert model.statistics.completed is not None
    partial = model.design.partial_grid
    assert complete(model.chunk, partial) is not None
    assert complete(model.chunk, partial, free_bytes=lambda: 1e3) is None


@pytest.mark.parametrize("name", sorted(GRIDS))
@pytest.mark.parametrize("shuffled", [False, True])
def test_groups_are_found_where_their_rows_are(name, shuffled):
    """The place of a group: combinations of its axes' levels, then groups of cells."""
    formula, data = gridded(name, 3)
    if shuffled:  # levels are numbered as they come
        data = data.sample(frac=1.0, random_state=5)
    model = vcomp.VarianceComponentsModel(formula, data)
    layout, grid = model.statistics.strata.layout, model.design.grid
    for t, term in enumerate(model.design.terms):
        places = layout.places(t)
        assert np.unique(places).size == places.size == term.size
        (kept,) = layout.at_places(t, [np.arange(float(places.max() + 1))])
        np.testing.assert_array_equal(kept, places)
        axes = [axis for axis in grid.axes if axis in term.facets]
        if axes == list(term.facets):
            shape = [model.design.n_levels[axis] for axis in axes]
            np.testing.assert_array_equal(places, np.arange(np.prod(shape)))


@pytest.mark.parametrize("shape", [(3,), (4, 5), (2, 3, 4)])
def test_combinations_are_split_in_place_as_tables_of_cells_are(shape):
    rng = np.random.default_rng(8)
    n, vary, first = math.prod(shape), [False, True, False, True], np.array([1.0, 0.3, 2.0, 0.1])
    y, x, z = rng.normal(size=(3, n))
    columns = [y, np.ones(n), x, np.full(n, 2.0), z]
    usual = split_means([column[:, None] for column in columns], shape)
    found = split_combinations(np.array([y, x, z]), shape, first, vary)
    assert found.keys() == usual.keys()
    for contrasts, means in usual.items():
        kept = [0, 2, 4] if contrasts else [0, 1, 2, 3, 4]
        np.testing.assert_allclose(found[contrasts], means[:, kept], rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(np.delete(means, kept, axis=1), 0.0, atol=1e-14)


def test_a_complete_table_with_constant_columns_has_the_products_of_its_rows():
    rng = np.random.default_rng(9)
    a, b = (codes.ravel() for codes in np.indices((7, 6)))
    data = pd.DataFrame({"a": a, "b": b, "x": rng.normal(size=42), "y": rng.normal(size=42)})
    model = vcomp.VarianceComponentsModel("y ~ x + I(a - a + 3) - 1 + (1|a) + (1|b)", data)
    B = np.column_stack([model.chunk.y, model.chunk.X])
    strata = model.statistics.strata
    np.testing.assert_allclose(strata.XX, (B.T @ B)[1:, 1:], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(strata.Xy, (B.T @ B)[1:, 0], rtol=1e-13, atol=1e-13)
    assert strata.yy == pytest.approx(B[:, 0] @ B[:, 0], rel=1e-13)

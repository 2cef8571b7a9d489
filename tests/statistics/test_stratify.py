"""Strata of a complete grid: against projections written out as dense matrices."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import GRIDS, gridded
from vcomp.numerics import MixedColumns
from vcomp.statistics import stratification as module
from vcomp.statistics.cross_products import accumulate
from vcomp.statistics.groupings import (
    Blocks,
    find_groupings,
    split_columns,
    split_combinations,
    split_means,
)
from vcomp.statistics.stratification import complete, stratify


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
    chunk, grid, n = model.statistics.rows, model.design.grid, model.nobs
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
    chunk, grid, n = model.statistics.rows, model.design.grid, model.nobs
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
    stats, chunk = model.statistics.strata, model.statistics.rows
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
    stats, sums = model.statistics.strata, accumulate(model.statistics.rows)
    total = sum(squares_of(stats, s)[-1][0, 0] for s in stats.strata)
    assert total == pytest.approx(sums.yy, rel=1e-12)
    assert sorted(j for s in stats.strata for j in s.fixed) == list(range(sums.n_fixed))
    v = np.linspace(0.5, 2.0, stats.n_terms + 1)
    Z = [
        np.eye(q)[c]
        for c, q in zip(model.statistics.rows.codes, model.statistics.rows.sizes, strict=True)
    ]
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
    chunk, grid = model.statistics.rows, model.design.grid
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
    chunk, grid = model.statistics.rows, model.design.grid
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
    assert stratify(model.statistics.rows, model.design.grid, most_axes=2) is None


@pytest.mark.parametrize("name", GRIDS)
def test_terms_with_the_same_groups_of_cells_have_one_grouping(name):
    model = model_of(name)
    grid = model.design.grid
    groupings = find_groupings(model.statistics.rows.terms, grid)
    levels = dict(zip(grid.rest, grid.levels, strict=True))
    wanted = []
    for term in model.statistics.rows.terms:
        own = [levels[f].tolist() for f in term.facets if f in levels]
        keys = list(zip(*own, strict=True)) if own else [()] * grid.n_cells
        wanted.append(tuple(keys.index(key) for key in keys))
    tables = groupings.remainder.tables  # of groups alone, without any columns
    assert (tables.n, tables.yy, tables.XX.shape) == (grid.cell_n.sum(), 0.0, (0, 0))
    assert [Zy.any() for Zy in (*tables.Zy, *tables.ZX, tables.Xy)] == [False] * len(
        (*tables.Zy, *tables.ZX, tables.Xy)
    )
    assert [ZX.shape for ZX in tables.ZX] == [(n.size, 0) for n in tables.group_n]
    alone = tuple(range(grid.n_cells))
    is_single = grid.n_cells > 1 and (grid.cell_n == 1.0).all()
    different = {(0,) * grid.n_cells, *wanted} - ({alone} if is_single else set())
    assert len(groupings.codes) == groupings.remainder.n_groupings == len(different)
    for t, first in enumerate(wanted):
        if is_single and first == alone:
            assert groupings.of_term[t] == len(different)
            continue
        own = groupings.codes[groupings.of_term[t]][groupings.rank].tolist()
        assert tuple(own.index(code) for code in own) == first


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
    uncoded = replace(
        model.statistics.rows, compact_codes=()
    )  # places of its rows cannot be found
    with pytest.raises(vcomp.EstimationError, match=r"1 columns in 80 cells need .* are free"):
        stratify(uncoded, model.design.grid, free_bytes=lambda: 1e5)


@pytest.mark.parametrize("name", [name for name, grid in GRIDS.items() if grid[1]])
def test_the_rounded_mean_of_a_far_column_is_no_part_of_it(name):
    """Of a column of the first axis, about a thousand million, or in a large unit."""
    formula, data = gridded(name)
    formula = formula.replace("~", "~ xp + x +")
    near, far, small = (
        vcomp.VarianceComponentsModel(
            formula, data.assign(xp=unit * data["xp"] + shift)
        ).statistics.strata.strata
        for unit, shift in ((1.0, 0.0), (1.0, 1e9 / 3.0), (1e-8, 0.0))
    )
    assert [s.fixed for s in near if 1 in s.fixed and 0 not in s.contrasts] == []
    assert [s.fixed for s in far] == [s.fixed for s in small] == [s.fixed for s in near]


@pytest.mark.parametrize("n", [199_999, 200_000, 200_001])
def test_many_rows_fill_their_cells_in_threads(n):
    rng = np.random.default_rng(1)
    places, columns = rng.permutation(n), rng.normal(size=(2, n))
    expected = np.empty((2, n))
    expected[0, places], expected[1, places] = columns[0] - 0.5, columns[1] + 2.0
    values = [lambda rows: columns[0, rows] - 0.5, lambda rows: columns[1, rows] + 2.0]
    np.testing.assert_array_equal(module._filled(places, values, n), expected)


@pytest.mark.parametrize(
    ("name", "share", "is_known"),
    [("not nested", 0.999e-3, True), ("not nested", 1.001e-3, False),
     ("deep, replicated", 0.5, True), ("unequally replicated", 0.9, True)],
)  # fmt: skip
def test_squares_about_the_mean_are_known_unless_they_cancel(name, share, is_known):
    """Of groupings that are not nested, if the mean has a thousandth of the squares at most."""
    model = model_of(name, "0")
    n = model.nobs
    z = np.random.default_rng(1).normal(size=n)
    z -= z.mean()
    z *= 7.0 * np.sqrt((1.0 - share) * n / (z @ z))
    mean = -7.0 * np.sqrt(share)
    found = stratify(
        model.statistics.rows.with_response(z + mean), model.design.grid
    ).response_sums()
    assert (found is not None) == is_known
    if is_known:
        np.testing.assert_allclose(found, [mean, z @ z], rtol=1e-11)


def least_bytes(is_enough, digits=9):
    """Return the smallest number of free bytes that is enough."""
    low, high = 1e3, 1e9
    while high > low * (1.0 + 10.0**-digits):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def fits(chunk, grid, free):
    try:
        stratify(chunk, grid, free_bytes=lambda: free)
    except vcomp.EstimationError:
        return False
    return True


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("fixed", ["1", "x", "x + z"])
def test_as_much_memory_is_asked_for_as_strata_take(fixed, times):
    """What numpy allocates at most is between 0.6 and 1.1 of it."""
    p, d = 60, 1500
    frame = pd.DataFrame(np.indices((p, d, times)).reshape(3, -1).T, columns=["p", "d", "k"])
    frame["i"] = frame["d"] // 7
    frame["x"], frame["z"], frame["y"] = np.random.default_rng(1).normal(size=(3, len(frame)))
    formula = f"y ~ {fixed} + (1|p) + (1|i) + (1|p:i) + (1|d)"
    model = vcomp.VarianceComponentsModel(formula, frame)
    chunk, grid = model.statistics.rows, model.design.grid
    once = stratify(chunk, grid)
    assert (once.shape, grid.n_cells) == ((p,), d)
    tracemalloc.start()
    stratify(chunk, grid)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    asked = 0.8 * least_bytes(lambda free: fits(chunk, grid, free), digits=3)
    assert 0.6 * asked < taken < 1.1 * asked
    # A cell of many scores takes no more memory than one of few.
    many = replace(chunk, counts=np.full(chunk.n, 1e6), within=np.zeros((1 + chunk.n_fixed,) * 2))
    assert fits(many, grid, 1.3 * asked)


def test_a_grid_with_holes_that_does_not_fit_is_left_to_other_engines():
    """The engine fills a copy of the tables, and a tenth of it is for the rest."""
    formula, data = gridded("per document")
    model = vcomp.VarianceComponentsModel(formula.replace("~", "~ xp + x +"), data[1:])
    chunk, partial = model.statistics.rows, model.design.partial_grid
    tables = model.statistics.completed.tables
    assert tables.shape == (4, 8, 10)
    least = least_bytes(lambda free: complete(chunk, partial, free_bytes=lambda: free) is not None)
    assert 0.8 * least == pytest.approx(2.2 * tables.nbytes + 8.0 * 79, rel=1e-8)


def test_places_of_more_cells_than_an_int32_counts():
    """Combinations of the levels of two axes, each with the cells of the other facets."""
    model = model_of("two axes, not nested")
    chunk, grid = model.statistics.rows, model.design.grid
    groupings = find_groupings(chunk.terms, grid)
    for shape in ((3, 2), (3, 2**27), (50_000, 50_000)):
        places = module.place_in_grid(chunk, replace(grid, shape=shape), groupings)
        p, q, i, j = (chunk.level_codes(f).astype(object) for f in range(4))
        keys = list(zip(*(np.asarray(levels).tolist() for levels in grid.levels), strict=True))
        cell = [groupings.rank[keys.index(key)] for key in zip(i, j, strict=True)]
        assert places.tolist() == ((p * shape[1] + q) * 10 + cell).tolist()


def test_sparse_columns_are_not_spread_over_very_many_cells():
    """Of columns, combinations of axis levels, and cells."""
    model = model_of("per document")
    grid = model.design.grid
    size, X = 3 * grid.n_combinations * grid.n_cells, np.eye(80)[:, :3]
    wide = MixedColumns(X[:, :1], csr_array(X[:, 1:]), np.arange(1), np.arange(1, 3))
    chunk = replace(model.statistics.rows, columns=wide)
    assert stratify(chunk, grid, most_wide=size - 1) is None
    assert stratify(chunk, grid, most_wide=size) is not None
    assert stratify(replace(chunk, columns=X), grid, most_wide=size - 1) is not None


@pytest.mark.parametrize("wide", [False, True])
def test_columns_that_vary_do_so_between_rows_or_within_cells(wide):
    """The last row of 300 alone differs in one column; of another only squares within do."""
    X = np.ones((300, 4))
    X[:, 2] = np.arange(300)
    X[299, 3] = 1.5
    columns = MixedColumns(X[:, :3], csr_array(X[:, 3:]), np.arange(3), np.array([3]))
    chunk = replace(model_of("crossed").statistics.rows, columns=columns if wide else X)
    assert module._vary(chunk) == [False, False, True, True]
    within = np.diag([5.0, 0.0, 1e-9, 0.0, 2.0])
    assert module._vary(replace(chunk, within=within)) == [False, True, True, True]
    assert module._vary(replace(chunk, within=0.0 * within)) == [False, False, True, True]


def reversed_terms(formula):
    """Return the formula with its terms, and the facets of each, in the opposite order."""
    response, terms = formula.split(" ~ ")
    names = [term[3:-1].split(":")[::-1] for term in terms.split(" + ")[::-1]]
    return f"{response} ~ " + " + ".join(f"(1|{':'.join(own)})" for own in names)


@pytest.mark.parametrize(("name", "turned"), alternately(sorted(GRIDS), False, True))
def test_groups_are_found_where_their_rows_are(name, turned):
    """The place of a group: combinations of its axes' levels, then groups of cells."""
    formula, data = gridded(name, 3)
    if turned:  # levels are numbered as they come, and axes come after other facets
        data = data.sample(frac=1.0, random_state=5)
        formula = formula if "/" in formula else reversed_terms(formula)
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
    B = np.column_stack([model.statistics.rows.y, model.statistics.rows.X])
    strata = model.statistics.strata
    np.testing.assert_allclose(strata.XX, (B.T @ B)[1:, 1:], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(strata.Xy, (B.T @ B)[1:, 0], rtol=1e-13, atol=1e-13)
    assert strata.yy == pytest.approx(B[:, 0] @ B[:, 0], rel=1e-13)

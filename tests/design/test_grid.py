"""Which facets are fully crossed with everything: against a definition that counts rows."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.designs import DESIGNS, GRIDS, balanced, gridded, unbalanced
from tests.helpers.examples import examples
from tests.helpers.learned_designs import design_of, rows_of, tables
from vcomp.design.grid import (
    _places,
    are_nested,
    find_combinations,
    find_grid,
    find_partial_grid,
    finest_facets,
    number_combinations,
)
from vcomp.design.nesting import describe_structure
from vcomp.formula import parse

FACETS = ("a", "b", "c", "d")

# Definitions, row by row ------------------------------------------------------------------------


def coded(table):
    """Return codes and numbers of levels of all columns."""
    pairs = [np.unique(table[f], return_inverse=True) for f in table]
    return [codes.astype(np.int32) for _, codes in pairs], [levels.size for levels, _ in pairs]


def is_axis(facet, codes, n_levels):
    """Every level occurs with the same cells of the other facets, in each equally often."""
    others = [c for f, c in enumerate(codes) if f != facet]
    counts = Counter(zip(codes[facet].tolist(), *(c.tolist() for c in others), strict=True))
    cells = {key[1:] for key in counts}
    return all(
        len({counts[level, *cell] for level in range(n_levels[facet])}) == 1 for cell in cells
    )


def refines(fine, coarse):
    """Every group of the one lies in one group of the other."""
    within = {}
    for inner, outer in zip(fine, coarse, strict=True):
        within.setdefault(inner, set()).add(outer)
    return all(len(outers) == 1 for outers in within.values())


def groups_of(term, codes):
    return list(zip(*(codes[f].tolist() for f in term), strict=True))


def check_grid(table, terms=()):
    codes, n_levels = coded(table)
    axes = tuple(f for f in range(len(codes)) if is_axis(f, codes, n_levels))
    grid = find_grid(codes, n_levels, terms)
    if grid is None:
        assert axes == ()
        return None
    assert grid.axes == axes
    if not axes:
        groups = [groups_of(term, codes) for term in terms]
        assert all(refines(g, h) or refines(h, g) for g, h in product(groups, groups))
    assert grid.shape == tuple(n_levels[f] for f in axes)
    assert grid.rest == tuple(f for f in range(len(codes)) if f not in axes)
    check_cells(grid, codes, n_levels)
    return grid


def check_cells(grid, codes, n_levels):
    """The cells are those that occur, and joining the facets leads each row to its own."""
    n = codes[0].size
    occurring = Counter(groups_of(grid.rest, codes)) if grid.rest else Counter({(): n})
    assert grid.n_cells == len(occurring)
    assert grid.n_combinations == np.prod(grid.shape, dtype=int)
    cells = list(zip(*(levels.tolist() for levels in grid.levels), strict=True)) or [()]
    assert set(cells) == set(occurring)
    for cell, rows in zip(cells, grid.cell_n, strict=True):
        assert rows * grid.n_combinations == occurring[cell]
    if not grid.rest:
        assert grid.joins == ()
        return
    (first, keys), *joins = grid.joins
    np.testing.assert_array_equal(keys, np.arange(n_levels[first]))
    number = codes[first]
    for facet, keys in joins:
        assert (np.diff(keys) > 0).all()
        number = find_combinations(keys, number.astype(np.int64) * n_levels[facet] + codes[facet])
    for facet, levels in zip(grid.rest, grid.levels, strict=True):
        assert levels.dtype == np.int32
        np.testing.assert_array_equal(levels[number], codes[facet])


# Tables -----------------------------------------------------------------------------------------


@st.composite
def grids(draw):
    """Return a table of a grid: axes in any places, cells of any kind, in any order of rows."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    names = list(rng.permutation(FACETS[: draw(st.integers(1, 4))]))
    n_axes = draw(st.integers(0, len(names)))
    axes, rest = names[:n_axes], names[n_axes:]
    cells = pd.DataFrame({f: rng.integers(0, rng.integers(2, 4), 6) for f in rest})
    kind = draw(st.sampled_from(["any", "nested by label", "starting anew"]))
    if len(rest) > 1 and kind == "nested by label":
        cells[rest[1]] = cells[rest[0]] * 10 + cells[rest[1]]
    cells = cells.drop_duplicates() if rest else pd.DataFrame({"one": [0]})
    for facet in rest:
        if len(set(cells[facet])) == 1:
            cells = pd.concat([cells, cells.assign(**{facet: 99})]).drop_duplicates()
    replicates = draw(st.sampled_from(["one", "two", "unequal"]))
    n = {"one": 1, "two": 2, "unequal": rng.integers(1, 4, len(cells))}[replicates]
    table = (
        cells.loc[cells.index.repeat(n)]
        if np.ndim(n) == 0
        else cells.iloc[np.repeat(np.arange(len(cells)), n)]
    )
    for axis in axes:
        table = table.merge(pd.DataFrame({axis: range(rng.integers(2, 4))}), how="cross")
    table = table[[f for f in FACETS if f in names]]
    return table.sample(frac=1.0, random_state=int(rng.integers(10**6))).reset_index(drop=True)


def some_terms(n_facets, seed):
    rng = np.random.default_rng(seed)
    every = [tuple(np.flatnonzero(list(s))) for s in product([0, 1], repeat=n_facets) if any(s)]
    chosen = rng.permutation(len(every))[: rng.integers(1, 4)]
    return [tuple(int(f) for f in every[k]) for k in chosen]


@settings(deadline=None, max_examples=examples(200))
@given(grids(), st.integers(0, 10**6))
def test_a_grid_has_all_its_axes(table, seed):
    grid = check_grid(table, some_terms(table.shape[1], seed))
    if table.shape[1] == 1:
        assert grid is not None


@settings(deadline=None, max_examples=examples(100))
@given(grids(), st.integers(0, 10**6), st.booleans())
def test_one_row_more_or_less(table, seed, more):
    row = seed % len(table)
    changed = pd.concat([table, table.iloc[[row]]]) if more else table.drop(index=row)
    if all(len(set(changed[f])) > 1 for f in changed):
        check_grid(changed, some_terms(table.shape[1], seed))


@settings(deadline=None, max_examples=examples(100))
@given(tables(), st.integers(0, 10**6))
def test_any_table(table, seed):
    check_grid(table, some_terms(3, seed))


@pytest.mark.parametrize("name", GRIDS)
def test_axes_of_simulated_designs(name):
    formula, data = gridded(name)
    design = design_of(formula, data)
    found = {design.facets[f].name for f in design.grid.axes}
    expected = set(GRIDS[name][1])
    assert found == expected
    check_grid(data[[f.name for f in design.facets]], [t.facets for t in design.terms])


def test_nested_terms_need_no_axes():
    _, table = gridded("nested")
    codes, n_levels = coded(table[["a", "b", "c"]])
    assert find_grid(codes, n_levels, [(0,), (0, 1), (0, 1, 2)]).axes == ()
    # Labels say that c lies in b, and b in a.
    assert find_grid(codes, n_levels, [(2,), (0,), (1,)]).axes == ()


def test_crossed_terms_without_an_axis_have_no_grid():
    codes, n_levels = coded(pd.DataFrame({"a": [0, 0, 1, 1, 2], "b": [0, 1, 1, 2, 2]}))
    assert find_grid(codes, n_levels, [(0,), (1,)]) is None
    assert find_grid(codes, n_levels, [(0,), (0, 1)]).axes == ()


def test_thirty_facets_are_too_many_combinations_for_a_grid():
    """8³⁰ combinations exceed 64 bits."""
    rng = np.random.default_rng(0)
    codes = [rng.permutation(np.arange(800, dtype=np.int32) % 8) for _ in range(30)]
    assert find_grid(codes, [8] * 30, [(f,) for f in range(30)]) is None


# The structure ----------------------------------------------------------------------------------


def check_structures(formula, data):
    """The cells of the grid say of the design what the rows say."""
    design = design_of(formula, data)
    codes = encode_facets(design, formula, data)
    n_levels = tuple(facet.size for facet in design.facets)
    found = describe_structure(design.formula, n_levels, codes, len(data), design.grid)
    expected = describe_structure(design.formula, n_levels, codes, len(data), None)
    # Harmonic means of as many numbers in another order.
    assert found.sizes == pytest.approx(expected.sizes, rel=1e-14)
    assert replace(found, sizes=expected.sizes) == expected
    assert found.report() == expected.report()


def encode_facets(design, formula, data):
    chunk = design.encode(rows_of(formula, data))
    return tuple(chunk.level_codes(f) for f in range(len(design.facets)))


@pytest.mark.parametrize("name", GRIDS)
def test_structure_from_the_grid(name):
    check_structures(*gridded(name))


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("make", [balanced, unbalanced])
def test_structure_of_other_designs(name, make):
    check_structures(*make(name))


FORMULAS = [
    "y ~ (1|a) + (1|b) + (1|c)",
    "y ~ (1|a/b) + (1|c)",
    "y ~ (1|a) + (1|b/c)",
    "y ~ (1|a) + (1|c/b) + (1|a:c)",
    "y ~ (1|a:b) + (1|c)",
    "y ~ (1|a/b/c)",
    "y ~ (1|b:c) + (1|a:c)",
]


@settings(deadline=None, max_examples=examples(100))
@given(grids().filter(lambda t: {"a", "b", "c"} <= set(t.columns)), st.sampled_from(FORMULAS))
def test_structure_of_drawn_grids(table, formula):
    data = table.drop(columns="d", errors="ignore")
    data = data.assign(y=np.random.default_rng(0).normal(size=len(data)))
    terms = [term.facets for term in parse(formula).random]
    if len(data) > 12 and all(len(data.drop_duplicates(list(t))) < len(data) for t in terms):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_structures(formula, data)


@given(st.integers(0, 2**32 - 1))
def test_the_finest_facets_have_none_nested_in_them(seed):
    """Of facets with equal levels the first is kept; the definition goes through all rows."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(3, size=(4, int(rng.integers(3, 7))))
    codes[2] = rng.permutation(3)[codes[0]]  # equal levels by other codes
    facets = rng.permutation(4).tolist()

    def nested(inner, outer):
        return len(set(zip(codes[inner], codes[outer], strict=True))) == len(set(codes[inner]))

    pairs = [(a, b) for a in facets for b in facets if a != b and nested(a, b)]
    finer = {b for a, b in pairs if (b, a) not in pairs or a < b}
    found = finest_facets(facets, dict.fromkeys(pairs, np.zeros(0, dtype=np.int32)))
    assert found == [f for f in facets if f not in finer]


# Partial grids ----------------------------------------------------------------------------------


def check_partial(codes, n_levels):
    """Compare with a count of the rows in every cell of the grid."""
    facets = range(len(codes))

    def nested(inner, outer):
        pairs = set(zip(codes[inner].tolist(), codes[outer].tolist(), strict=True))
        return len(pairs) == n_levels[inner] >= n_levels[outer]

    bound = {f for a in facets for b in facets if a != b and nested(a, b) for f in (a, b)}
    axes = tuple(f for f in facets if f not in bound)
    rest = tuple(f for f in facets if f in bound)
    cells = sorted(set(groups_of(rest, codes))) if rest else [()]
    of_rest = groups_of(rest, codes) if rest else [()] * codes[0].size
    counts = Counter(zip(groups_of(axes, codes), of_rest, strict=False))
    places = list(product(product(*(range(n_levels[f]) for f in axes)), cells))
    found = find_partial_grid(codes, n_levels)
    if not axes or codes[0].size < 0.5 * len(places) or max(counts.values()) > 1:
        assert found is None
        return found
    assert (found.grid.axes, found.grid.rest) == (axes, rest)
    assert found.grid.shape == tuple(n_levels[f] for f in axes)
    assert (found.grid.cell_n == 1.0).all()
    own = list(zip(*(levels.tolist() for levels in found.grid.levels), strict=True)) or [()]
    assert sorted(own) == cells
    combination, cell = np.divmod(found.holes, found.grid.n_cells)
    assert (np.diff(found.holes) > 0).all()
    levels = np.unravel_index(combination, found.grid.shape)
    holes = {
        (tuple(int(level[h]) for level in levels), own[cell[h]]) for h in range(found.holes.size)
    }
    assert holes == {place for place in places if place not in counts}
    return found


@settings(deadline=None, max_examples=examples(150))
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([(2, 3), (4, 3), (3, 2, 2), (2, 5, 2), (2, 2, 2, 2)]),
    st.sampled_from([0.4, 0.6, 0.8, 1.0]),
    st.booleans(),
)
def test_partial_grids(seed, shape, kept, nested):
    rng = np.random.default_rng(seed)
    cells = np.stack([g.ravel() for g in np.indices(shape)], axis=1)
    if nested:  # another facet, whose levels contain those of the first one
        cells = np.column_stack([cells, cells[:, 0] // 2])
    cells = cells[rng.random(len(cells)) < kept]
    if rng.random() < 0.2:
        cells = np.concatenate([cells, cells[:1]])
    table = pd.DataFrame(rng.permutation(cells)).add_prefix("f")
    if len(table) and all(len(set(table[f])) > 1 for f in table):
        check_partial(*coded(table))


@pytest.mark.parametrize(("n", "is_found"), [(25, True), (24, False)])
def test_half_of_a_partial_grid_is_filled(n, is_found):
    """25 of 5 × 10 cells."""
    rows = [(i % 5, (i // 5 + 3 * i) % 10) for i in range(50)]
    table = pd.DataFrame(list(dict.fromkeys(rows)), columns=["a", "b"]).iloc[:n]
    assert table.nunique().tolist() == [5, 10]
    assert (check_partial(*coded(table)) is not None) == is_found


@pytest.mark.parametrize(("n", "is_found"), [(25, True), (24, False)])
def test_half_of_a_partial_grid_with_nested_cells_is_filled(n, is_found):
    """25 of 5 × 10 cells, two of each of five levels."""
    rows = [(i % 5, (i // 5 + 3 * i) % 10) for i in range(50)]
    table = pd.DataFrame(list(dict.fromkeys(rows)), columns=["a", "b"]).iloc[:n]
    table["c"] = table["b"] // 2
    assert table.nunique().tolist() == [5, 10, 5]
    assert (check_partial(*coded(table)) is not None) == is_found


def test_nested_facets_alone_have_no_partial_grid():
    table = pd.DataFrame({"a": [0, 0, 0, 1, 1, 2], "b": range(6)})
    assert check_partial(*coded(table)) is None


@pytest.mark.parametrize("shape", [(3, 4), (3, 2**27), (2**16, 2**16)])
def test_places_of_more_cells_than_an_int32_counts(shape):
    rng = np.random.default_rng(1)
    codes = [rng.integers(0, 3, 9, dtype=np.int32) + n - 3 for n in shape[::-1]]
    cells = rng.integers(0, 6, 9, dtype=np.int32)
    places = _places((1, 0), shape, codes, cells, 6)
    a, b = (code.astype(object) for code in codes)
    assert places.tolist() == ((b * shape[1] + a) * 6 + cells).tolist()


# Combinations -----------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=12),
    st.sampled_from([(5, 7), (5, 199_999), (5, 200_000), (5, 200_001), (2**20, 2**20)]),
)
def test_combinations_of_few_and_of_many_levels(rows, sizes):
    """Up to a million combinations have a table; of more the rows are sorted."""
    groups, codes = np.array(rows, dtype=np.int32).reshape(-1, 2).T
    codes = np.where(codes == 6, sizes[1] - 1, codes).astype(np.int32)
    keys, numbers = number_combinations(groups, sizes[0], codes, sizes[1])
    joined = [int(g) * sizes[1] + int(c) for g, c in zip(groups, codes, strict=True)]
    assert keys.tolist() == sorted(set(joined))
    assert keys[numbers].tolist() == joined
    assert numbers.dtype == np.int32


@settings(deadline=None)
@given(
    st.sets(st.sampled_from([0, 1, 5, 8, 999_998, 999_999, 1_000_000, 2**40]), min_size=1),
    st.lists(st.sampled_from([-1, 0, 1, 2, 5, 6, 8, 9, 999_999, 1_000_000, 2**40, 2**41])),
)
def test_combinations_are_found_among_few_and_many(keys, wanted):
    keys = sorted(keys)
    found = find_combinations(np.array(keys), np.array(wanted, dtype=np.int64))
    assert found.tolist() == [keys.index(key) if key in keys else -1 for key in wanted]
    assert found.dtype == np.int32


@given(st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=4), st.booleans())
def test_terms_are_nested_if_each_holds_the_next(terms, is_nested):
    determined = {(3, 0): np.zeros(0, dtype=np.int32)} if is_nested else {}
    whole = [t | ({0} if is_nested and 3 in t else set()) for t in terms]
    expected = all(a <= b or b <= a for a, b in product(whole, whole))
    assert are_nested([tuple(sorted(t)) for t in terms], determined) == expected

"""What analysis of variance needs of the groups: by counting rows, in strata and in general."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.designs import DESIGNS, GRIDS, gridded, unbalanced
from tests.helpers.examples import examples
from vcomp.statistics.groupings import (
    Blocks,
    group_means,
    product_group_sums,
    split_axes,
    split_means,
    squares_within,
    stratum_group_sums,
)
from vcomp.statistics.strata import Cells


def by_counting(chunk):
    """Return sums and coefficients from dense indicator matrices."""
    Z = [np.eye(q)[c] for c, q in zip(chunk.codes, chunk.sizes, strict=True)]
    n = [z.sum(axis=0) for z in Z]
    y, rows = chunk.y, chunk.y.size
    shared = [[(z.T @ w) ** 2 for w in Z] for z in Z]
    k = len(Z)
    inverse = [[np.mean(shared[t][u].sum(axis=1) / n[t] ** 2) for u in range(k)] for t in range(k)]
    return {
        "total": y.sum(),
        "yy": y @ y,
        "T": [((z.T @ y) ** 2 / m).sum() for z, m in zip(Z, n, strict=True)],
        "coefficients": [
            [(shared[t][u].sum(axis=1) / n[t]).sum() for u in range(k)] for t in range(k)
        ],
        "squares": [m @ m for m in n],
        "inverse_n": [[*inverse[t], np.mean(1.0 / n[t])] for t in range(k)],
        # One of finer groups: every group meets one group of the other.
        "finer": [[((z.T @ w) > 0).sum() == z.shape[1] for w in Z] for z in Z],
    }, rows


def check(sums, chunk):
    expected, rows = by_counting(chunk)
    assert sums.n == rows
    assert sums.sizes == chunk.sizes
    assert sums.n_terms == len(chunk.sizes)
    # Then those of all rows, and of their mean.
    T = [*expected["T"], expected["yy"], expected["total"] ** 2 / rows]
    np.testing.assert_allclose(sums.holds @ sums.parts, T, rtol=1e-12, atol=1e-11)
    for name, values in expected.items():
        # The response is centred: its total is rounding.
        np.testing.assert_allclose(
            getattr(sums, name), values, rtol=1e-12, atol=1e-11, err_msg=name
        )


@pytest.mark.parametrize("name", [*GRIDS, *DESIGNS])
def test_sums_of_another_response(name):
    """Counts are those of the first response, what depends on the response is its own."""
    formula, data = gridded(name, seed=4) if name in GRIDS else unbalanced(name)
    stats = vcomp.VarianceComponentsModel(formula, data).statistics
    y = np.random.default_rng(0).normal(size=stats.n)
    other = stats.with_response(y - y.mean())
    check(other.group_sums, other.cells)


@pytest.mark.parametrize("fixed", ["1", "0"])
@pytest.mark.parametrize("name", GRIDS)
def test_sums_of_strata(name, fixed):
    formula, data = gridded(name, seed=4)
    model = vcomp.VarianceComponentsModel(formula.replace("~", f"~ {fixed} +"), data)
    check(stratum_group_sums(model.statistics.strata), model.statistics.rows)
    check(product_group_sums(model.statistics.cross_products), model.statistics.rows)


@pytest.mark.parametrize("fixed", ["1", "0"])
@pytest.mark.parametrize("name", DESIGNS)
def test_sums_of_other_designs(name, fixed):
    formula, data = unbalanced(name)
    model = vcomp.VarianceComponentsModel(formula.replace("~", f"~ {fixed} +"), data)
    check(product_group_sums(model.statistics.cross_products), model.statistics.rows)
    check(model.statistics.group_sums, model.statistics.rows)


CLOSE = {"rtol": 1e-11, "atol": 1e-11}


def subsets(n):
    return [c for r in range(n + 1) for c in combinations(range(n), r)]


def projection(shape, contrasts):
    """Return the matrix onto the contrasts of some axes in the means of the others."""
    found = np.ones((1, 1))
    for axis, size in enumerate(shape):
        mean = np.full((size, size), 1.0 / size)
        found = np.kron(found, np.eye(size) - mean if axis in contrasts else mean)
    return found


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (3, 1, 2), (2, 3, 2, 2)])
def test_parts_have_the_products_of_their_projections(shape):
    table = np.random.default_rng(1).normal(size=(int(np.prod(shape, dtype=int)), 4))
    parts = split_axes(table.copy(), shape)
    assert set(parts) == set(subsets(len(shape)))
    for contrasts, part in parts.items():
        P = projection(shape, contrasts)
        assert part.shape == (np.prod([shape[a] for a in contrasts], dtype=int), 4)
        np.testing.assert_allclose(part.T @ part, table.T @ P @ table, **CLOSE)
        # The contrasts of a column of a row alone: what is left of it along the other axes.
        whole = (P @ table).reshape(*shape, 4) * np.sqrt(
            np.prod([n for a, n in enumerate(shape) if a not in contrasts])
        )
        here = tuple(slice(None) if a in contrasts else 0 for a in range(len(shape)))
        np.testing.assert_allclose(part, whole[here].reshape(part.shape), **CLOSE)
    two = split_means([table, 2.0 * table], shape)
    for contrasts, part in parts.items():
        np.testing.assert_allclose(two[contrasts][:, 0], part.T, **CLOSE)
        np.testing.assert_allclose(two[contrasts][:, 1], 2.0 * part.T, **CLOSE)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=9),
    st.sampled_from(["any", "sorted", "single"]),
    st.booleans(),
    st.sampled_from([0.0, 1.0, 2.0]),
    st.integers(0, 10**6),
)
@example([0, 1, 0, 1, 1], "any", False, 2.0, 1)
def test_means_in_groups_of_cells(groups, kind, constant, equal, seed):
    rng = np.random.default_rng(seed)
    groups = np.unique(groups, return_inverse=True)[1].astype(np.int32)
    if kind == "sorted":
        groups = np.sort(groups)
    if kind == "single":
        groups = np.arange(groups.size, dtype=np.int32)
    M = groups.size
    n = np.full(M, equal) if equal else rng.integers(1, 4, M).astype(float)
    table = rng.normal(size=(3, 1 if constant else M))
    Z = np.eye(groups.max() + 1)[groups]
    whole = np.broadcast_to(table, (3, M))
    expected = ((whole * n) @ Z) / (n @ Z)
    np.testing.assert_allclose(group_means(table, n, groups), expected, **CLOSE)


@settings(deadline=None, max_examples=examples(60))
@given(
    st.sampled_from([(), (3,), (2, 3)]),
    st.integers(1, 3),
    st.integers(1, 7),
    st.sampled_from([0.0, 1.0, 2.0]),
    st.sampled_from([1, 7, 12, 10**6]),
    st.integers(0, 10**6),
)
def test_squares_about_centres_in_blocks_of_any_size(shape, b, M, equal, values, seed):
    """Columns may be constant in all cells; one that varies is summed by a kernel."""
    rng = np.random.default_rng(seed)
    R = int(np.prod(shape, dtype=int))
    q = int(rng.integers(1, M + 1))
    inner = np.sort(rng.permutation(np.arange(M) % q)).astype(np.int32)
    n = np.full(M, equal) if equal else rng.integers(1, 4, M).astype(float)
    tables, centres = [], []
    for _ in range(b):
        is_constant = rng.random() < 0.4
        table = rng.normal(size=(R, 1 if is_constant else M))
        own = is_constant and rng.random() < 0.5
        tables.append(table)
        centres.append(np.repeat(table, q, axis=1) if own else rng.normal(size=(R, q)))
    cells = Cells(shape, n, tuple(tables), np.zeros((b, b)))
    strata = subsets(len(shape))
    away = [np.broadcast_to(t, (R, M)) - c[:, inner] for t, c in zip(tables, centres, strict=True)]
    expected = [
        [[np.sum((projection(shape, s) @ x) * y * n) for y in away] for x in away] for s in strata
    ]
    for threads in (1, 2):
        blocks = Blocks(values=values, of_one_column=values, threads=threads)
        found = squares_within(cells, centres, inner, strata, blocks)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)

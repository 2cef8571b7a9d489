"""Codes of terms: what they stand for, and that any part of the rows gets the same."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.learned_designs import design_of, rows_of, tables
from vcomp.data.rows import Rows
from vcomp.design import Facet
from vcomp.design.learning import _distinct

FORMULA = "y ~ x + (1|a) + (1|b:a) + (1|c:a:b) + (1|c)"


def with_numbers(table):
    n = len(table["a"])
    rng = np.random.default_rng(n)
    return {"y": rng.normal(5.0, 1.0, n), "x": rng.normal(100.0, 1.0, n), **table}


def distinct(table, facets):
    return set(zip(*(table[f].tolist() for f in facets), strict=True))


def estimable(table):
    """Leave out what is refused: a group for every row."""
    return len(distinct(table, ["a", "b", "c"])) < len(table["a"])


@settings(deadline=None)
@given(tables())
def test_a_code_stands_for_the_levels_of_its_row(table):
    assume(estimable(table))
    data = with_numbers(table)
    design = design_of(FORMULA, data)
    chunk = design.encode(rows_of(FORMULA, data))
    for term, codes, size in zip(design.terms, chunk.codes, chunk.sizes, strict=True):
        names = [design.facets[f].name for f in term.facets]
        assert size == len(distinct(table, names))
        assert sorted(set(codes.tolist())) == list(range(size))
        for facet, levels in zip(term.facets, term.level_codes(design.n_levels), strict=True):
            np.testing.assert_array_equal(levels[codes], chunk.facet_codes[facet])
            shown = design.facets[facet].levels[levels[codes]]
            np.testing.assert_array_equal(shown, table[design.facets[facet].name])


@settings(deadline=None)
@given(tables(), st.data())
def test_any_part_of_the_rows_gets_the_codes_it_has_in_the_whole(table, data):
    assume(estimable(table))
    frame = pd.DataFrame(with_numbers(table))
    design = design_of(FORMULA, frame)
    rows = rows_of(FORMULA, frame)
    whole = design.encode(rows)
    chosen = data.draw(st.lists(st.sampled_from(range(len(frame))), min_size=1))
    part = design.encode(some(rows, chosen))
    np.testing.assert_array_equal(part.y, whole.y[chosen])
    np.testing.assert_allclose(part.X, whole.X[chosen], atol=1e-13)
    for of_part, of_whole in zip(part.codes, whole.codes, strict=True):
        np.testing.assert_array_equal(of_part, of_whole[chosen])
        assert of_part.dtype == np.int32
        assert of_part.flags.c_contiguous
    assert (part.sizes, part.facet_sizes) == (whole.sizes, whole.facet_sizes)


def some(rows, chosen):
    """Return some rows, under the labels that they had."""
    facets = {name: column.iloc[chosen] for name, column in rows.facets.items()}
    fixed = {name: column[chosen] for name, column in rows.fixed.items()}
    return Rows(rows.y[chosen], facets, fixed, rows.labels[chosen])


def data_of_two():
    a = np.repeat(["p", "q", "r"], 4)
    return {"y": np.arange(12.0) ** 2, "a": a, "b": np.resize([1, 2], 12)}


def test_response_and_covariates_are_centred():
    data = with_numbers(
        {k: np.resize(np.arange(m), 24) for k, m in zip("abc", (2, 3, 4), strict=True)}
    )
    design = design_of("y ~ x + (1|a)", data)
    chunk = design.encode(rows_of("y ~ x + (1|a)", data))
    assert design.origin == pytest.approx(data["y"].mean())
    np.testing.assert_allclose(chunk.y + design.origin, data["y"])
    np.testing.assert_allclose(chunk.X.mean(axis=0), [1.0, 0.0], atol=1e-13)
    np.testing.assert_allclose(chunk.X[:, 1] + design.x_origin[1], data["x"])
    # A full set of dummies makes up the constant as well.
    dummies = design_of("y ~ 0 + C(b) + x + (1|a)", data)
    assert dummies.origin == pytest.approx(data["y"].mean())
    np.testing.assert_allclose(dummies.constant, [1.0, 1.0, 1.0, 0.0], rtol=1e-12)
    np.testing.assert_allclose(dummies.x_origin, [0.0, 0.0, 0.0, data["x"].mean()])
    # Without a constant in X nothing can take up the mean.
    bare = design_of("y ~ 0 + x + (1|a)", data)
    assert bare.origin == 0.0
    assert not bare.x_origin.any()


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_uncentred_coefficients_give_the_same_means(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal([1000.0, 50.0], 1.0, size=(20, 2)).T
    data = {"y": y, "x": x, "g": np.resize([1, 2, 3], 20), "a": np.resize([0, 1], 20)}
    for right in ("x + C(g)", "0 + C(g) + x", "1"):
        formula = f"y ~ {right} + (1|a)"
        design = design_of(formula, data)
        rows = rows_of(formula, data)
        X, X_centred = design.fixed.matrix(rows.fixed, 20), design.encode(rows).X
        b = rng.normal(size=X.shape[1])
        beta, cov = design.uncentre(b, np.eye(b.size))
        np.testing.assert_allclose(X @ beta, design.origin + X_centred @ b, rtol=1e-9)
        # The same for the variance of a mean: x'Cov(beta)x = x_c'Cov(b)x_c.
        np.testing.assert_allclose(X @ cov @ X.T, X_centred @ X_centred.T, atol=1e-6)


def test_a_level_that_was_not_learned():
    data = data_of_two()
    design, rows = design_of("y ~ (1|a) + (1|b)", data), rows_of("y ~ (1|a) + (1|b)", data)
    new = rows.facets["a"].astype(object)
    new.iloc[3] = "new"
    later = replace(rows, facets={**rows.facets, "a": new.set_axis(range(50, 62))})
    with pytest.raises(
        vcomp.DataError, match=r"facet 'a' has a level that the design does not have: 'new'"
    ):
        design.encode(later)


def test_a_combination_that_was_not_learned():
    a, b = ["p", "p", "q", "q", "p", "q"] * 2, [1, 1, 1, 2, 1, 2] * 2
    data = {"y": np.arange(12.0), "a": a, "b": b}
    design = design_of("y ~ (1|a:b)", data)
    codes = [np.array([0, 0, 1, -1, 1]), np.array([0, 1, 0, 0, -1])]
    groups = design.terms[0].groups(codes, design.n_levels)
    assert groups.tolist() == [0, -1, 1, -1, -1]


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1))
def test_combinations_that_occur_in_order(rows):
    levels = np.array(rows, dtype=np.int32).T
    for some in (levels[:2], levels):
        np.testing.assert_array_equal(_distinct(list(some)), np.unique(some, axis=1))


def test_codes_of_categories_are_neither_copied_nor_left_open_to_changes():
    column = pd.Series(pd.Categorical(["b", "a", "b"], categories=["a", "b"]))
    codes = Facet("f", column.cat.categories).codes(column)
    assert codes.tolist() == [1, 0, 1]
    assert np.shares_memory(codes, column.array.codes)
    assert codes.flags.writeable  # else kernels are compiled a second time
    assert not column.array.codes.flags.writeable

"""What is learned of covariates in parts is what the whole would tell."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.examples import examples
from vcomp.design import Centre
from vcomp.formula import parse
from vcomp.statistics.batches.survey import XSums, add_up, kinds_of

COLUMNS = st.integers(1, 40).flatmap(
    lambda n: st.tuples(
        st.lists(st.sampled_from("uvwxyz"), min_size=n, max_size=n),
        st.lists(st.integers(0, 3), min_size=n, max_size=n),
        st.integers(0, 1000),
    )
)


def columns_of(text, rows, seed):
    rng = np.random.default_rng(seed)
    n = len(text)
    every = {"g": np.array(text), "x": rng.normal(size=n), "b": rng.random(n) < 0.5}
    return {
        "g": pd.Categorical(every["g"][rows]), "x": every["x"][rows], "b": every["b"][rows],
    }  # fmt: skip


@settings(max_examples=examples(100), deadline=None)
@given(COLUMNS, st.permutations(range(4)))
def test_kinds_of_parts_add_up_in_any_order(case, order):
    text, parts, seed = case
    part_of = np.array(parts)
    made = [kinds_of(columns_of(text, part_of == k, seed), {}) for k in order]
    found = add_up(made)
    levels, _ = found.levels["g"].used()
    assert levels.tolist() == sorted(set(text))
    assert found.n_levels == {"g": len(set(text))}
    assert found.numbers == {"x"}
    assert found.booleans == {"b"}
    for k in order:
        columns = columns_of(text, part_of == k, seed)
        coded = found.recoded(columns)
        assert coded["g"].categories.tolist() == sorted(set(text))
        assert coded["g"].tolist() == columns["g"].tolist()
        np.testing.assert_array_equal(coded["x"], columns["x"])


def test_true_and_false_in_one_part_and_numbers_in_another_are_numbers():
    some, others = {"b": np.array([True, False])}, {"b": np.array([0.5, 2.0])}
    both = kinds_of(some, {}) + kinds_of(others, {})
    assert both.numbers == {"b"}
    assert both.recoded(some)["b"].dtype == float


def test_numbers_in_one_part_and_text_in_another():
    with pytest.raises(vcomp.DataError, match="'x' holds numbers in some rows and text in others"):
        kinds_of({"x": np.ones(2)}, {}) + kinds_of({"x": pd.Categorical(["a"])}, {})


def test_of_no_rows_nothing_is_known():
    none = kinds_of({"x": np.zeros(0)}, {})
    some = kinds_of({"x": np.ones(2)}, {})
    assert none.levels == {}
    assert (none + some) is some
    assert (some + none) is some
    assert kinds_of({}, {}).levels == {}


def test_few_rows_have_all_levels_and_no_rows_have_them_too():
    kinds = kinds_of({"g": pd.Categorical(list("uvw")), "x": np.arange(3.0)}, {})
    few = kinds.few_rows()
    assert few["g"].tolist() == ["u", "v", "w"]
    assert few["x"].tolist() == [1.0, 1.0, 1.0]
    assert kinds.of_no_rows()["g"].categories.tolist() == ["u", "v", "w"]
    assert len(kinds.of_no_rows()["x"]) == 0


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1000), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_sums_of_columns_add_up(seed, sizes):
    X = np.random.default_rng(seed).normal(loc=20.0, size=(sum(sizes), 3))
    found = add_up(XSums.of(part) for part in np.split(X, np.cumsum(sizes)[:-1]))
    assert found.n == len(X)
    np.testing.assert_allclose(found.mean, X.mean(axis=0), rtol=1e-14)
    centred = X - X.mean(axis=0)
    np.testing.assert_allclose(found.gram, centred.T @ centred, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found.low, X.min(axis=0))
    np.testing.assert_array_equal(found.high, X.max(axis=0))
    X_ends = (found.low, found.high, found.mean)
    for constant, kept in (([0.0, 1.0, 0.0], [1, 0, 1]), ([0.0, 0.0, 0.0], [0, 0, 0])):
        centre = Centre.of(
            parse("y ~ (1|g)"), ("a", "b", "c"), np.array(constant), (0.0, 1.0, 0.5), X_ends
        )
        np.testing.assert_allclose(centre.x_origin, X.mean(axis=0) * kept)


@pytest.mark.parametrize("seed", range(5))
def test_dummies_that_make_up_the_constant_are_found(seed):
    """Without an intercept, beside covariates far from zero; without one of them they do not."""
    rng = np.random.default_rng(seed)
    g = rng.integers(0, 3, 60)
    dummies = (g[:, None] == np.arange(3)).astype(float)
    X = np.column_stack([dummies, rng.normal(size=60) + 1e4])
    names = ("g[0]", "g[1]", "g[2]", "x")
    sums = add_up(XSums.of(part) for part in np.array_split(X, 4))
    np.testing.assert_allclose(sums.constant(names), [1.0, 1.0, 1.0, 0.0], atol=1e-9)
    X[:, 3] -= 9.99e3  # what is all but constant is told from it in another pass
    lacking = add_up(XSums.of(part[:, 1:]) for part in np.array_split(X, 4))
    assert not lacking.constant(names[1:]).any()


def test_the_intercept_is_the_constant():
    sums = XSums.of(np.column_stack([np.ones(4), np.arange(4.0)]))
    assert sums.constant(("Intercept", "x")).tolist() == [1.0, 0.0]

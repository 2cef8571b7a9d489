"""Groups of rows by the levels of columns, against those of pandas."""

import numpy as np
import pandas as pd
import pytest

from vcomp.evals.partitions import Partitions


@pytest.mark.parametrize("n", [40, 3000])
@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c", "d"]])
def test_groups_are_those_of_pandas(n, names):
    rng = np.random.default_rng(6)
    table = pd.DataFrame(
        {
            "a": pd.Categorical(rng.choice(["x", "y", "z"], n), ["z", "y", "x", "unused"]),
            "b": rng.choice([1.0, 2.0, np.nan], n),
            "c": rng.integers(0, 200, n),
            "d": rng.choice(["u", None, "v"], n),
            "score": rng.integers(0, 2, n),
        }
    )
    groups = Partitions(table)
    assert groups.n_groups(names) == len(table[names].drop_duplicates())
    np.testing.assert_array_equal(groups.repeated(names), table.duplicated(names))
    most = table.groupby(names, observed=True, dropna=False)["score"].nunique().max()
    assert groups.are_constant(table["score"], names) == (most == 1)
    of_groups = table.groupby(names, observed=True, dropna=False)["score"].transform("max")
    assert groups.are_constant(of_groups, names)
    assert not groups.repeated([*names, "c", "score"]).all()


def test_groups_of_some_columns_are_counted_among_distinct_ones():
    rng = np.random.default_rng(6)
    table = pd.DataFrame(
        {
            "a": pd.Categorical(rng.choice(["x", "y", None], 600)),
            "b": rng.integers(0, 9, 600),
            "c": rng.integers(0, 4, 600),
        }
    )
    groups = Partitions(table)
    for names in (["b", "a", "c"], ["c", "a"], ["a"], ["b", "c"], ["a", "c"]):
        assert groups.n_groups(names) == len(table[names].drop_duplicates())


def test_numbers_of_repetitions_in_a_byte_from_its_least_one():
    table = pd.DataFrame({"epoch": np.array([-128, 127, 0, -128], np.int8), "item": [1, 1, 2, 2]})
    groups = Partitions(table)
    assert groups.n_groups(["epoch"]) == 3
    assert groups.n_groups(["epoch", "item"]) == 4


def test_combinations_of_each_level_are_those_of_pandas():
    rng = np.random.default_rng(8)
    levels = ["z", "unused", "x", "y"]
    table = pd.DataFrame(
        {
            "model": pd.Categorical(rng.choice(["x", "y", "z"], 90), levels),
            "item": rng.choice(["a", "b", None, "c"], 90),
            "task": 1,
            "epoch": rng.integers(0, 2**20, 90),
        }
    )
    table = table[(table["model"] != "x") | (table["item"] == "a")]
    for over in (["item", "task"], ["item", "epoch"]):
        expected = table[["model", *over]].drop_duplicates()["model"].value_counts().to_dict()
        for column in (table["model"], table["model"].astype(object)):
            found = Partitions(table.assign(model=column)).n_of_each("model", over)
            assert found.to_dict() == {k: expected[k] for k in "xyz"}

"""Squares, groups and the printed form of comparisons, from a table made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tests.helpers.printed_tables import printed_columns, printed_words
from vcomp.exceptions import PlanError
from vcomp.inference.pairwise import PairwiseComparisons

MEANS = pd.Series([0.30, 0.10, 0.25], index=["a", "b", "c"])
TABLE = pd.DataFrame({
    "first": ["a", "a", "b"], "second": ["b", "c", "c"], "n_topics": [20, 20, 18],
    "difference": [0.2, 0.05, -0.15], "statistic": [3.0, 0.7, -2.1],
    "p_value": [0.001, 0.4, 0.02], "p_adjusted": [0.003, 0.4, 0.04],
    "significant": [True, False, True], "low": [0.1, -0.1, -0.25], "high": [0.3, 0.2, -0.05],
})  # fmt: skip
MADE = PairwiseComparisons(TABLE, MEANS, "system", "paired t-test", "t", "holm", 0.05, ("So.",))


def test_levels_are_in_the_order_of_their_means():
    groups = MADE.groups
    assert groups.index.tolist() == ["a", "c", "b"]
    assert groups.index.name == "system"
    assert groups["mean"].tolist() == [0.3, 0.25, 0.1]
    a, c, b = map(set, groups["group"])
    assert a & c
    assert not a & b
    assert not b & c


def test_squares():
    nan = np.nan
    expected = {
        "p_adjusted": [[nan, 0.4, 0.003], [0.4, nan, 0.04], [0.003, 0.04, nan]],
        "p_value": [[nan, 0.4, 0.001], [0.4, nan, 0.02], [0.001, 0.02, nan]],
        "difference": [[nan, 0.05, 0.2], [-0.05, nan, 0.15], [-0.2, -0.15, nan]],
        "significant": [[False, False, True], [False, False, True], [True, True, False]],
    }
    for column, square in expected.items():
        found = MADE.matrix(column)
        assert found.index.tolist() == found.columns.tolist() == ["a", "c", "b"]
        np.testing.assert_array_equal(found, np.array(square))
    with pytest.raises(PlanError, match="no square of 'statistic'"):
        MADE.matrix("statistic")


def test_a_baseline_has_neither_groups_nor_squares():
    some = replace(MADE, table=TABLE.iloc[:2])
    assert MADE.is_of_all_pairs
    assert not some.is_of_all_pairs
    with pytest.raises(PlanError, match="these are 2 pairs of 3 systems, with one baseline"):
        some.matrix()
    assert "share a letter" not in str(some)
    assert "of a single pair" not in str(some)
    assert "p adj.: of all pairs at once" in str(replace(some, correction=None))
    assert repr(some) == "<PairwiseComparisons: paired t-test, 1 of 2 pairs of system distinct>"


def test_the_printed_form():
    summary = MADE.summary()
    means, pairs = printed_columns(summary), printed_columns(summary, 1)
    assert means == {"": ["a", "c", "b"], "mean": ["0.3000", "0.2500", "0.1000"],
                     "group": list(MADE.groups["group"])}  # fmt: skip
    # By p-value, each from the larger mean: no difference is negative.
    assert pairs[""] == ["a − b", "c − b", "a − c"]
    assert pairs["topics"] == ["20", "18", "20"]
    assert [float(x.replace("−", "-")) for x in pairs["difference"]] == [0.2, 0.15, 0.05]
    assert [float(x.replace("−", "-")) for x in pairs["t"]] == [3.0, 2.1, 0.7]
    assert pairs["95 % interval"][1] == "[0.0500, 0.250]"
    assert [float(x) for x in pairs["p"]] == [0.001, 0.02, 0.4]
    assert [float(x) for x in pairs["p adj."]] == [0.003, 0.04, 0.4]
    values = TABLE.assign(p_value=0.0123456, p_adjusted=0.0246912)
    digits = printed_columns(replace(MADE, table=values).summary(), 1)
    assert (digits["p"][0], digits["p adj."][0]) == ("0.0123", "0.0247")
    tied = printed_columns(replace(MADE, table=TABLE.assign(p_adjusted=0.02)).summary(), 1)
    assert tied[""] == ["a − b", "c − b", "a − c"]  # by the size of the difference
    # The direction of a one-sided test, and of a comparison with a baseline, is the reader's.
    sided = printed_columns(replace(MADE, test="paired t-test, greater").summary(), 1)
    assert sided[""] == ["a − b", "b − c", "a − c"]
    least = printed_columns(replace(MADE, table=TABLE.assign(p_adjusted=0.0)).summary(), 1)
    assert least["p adj."] == ["< 1e-300"] * 3
    text = printed_words(summary)
    assert text.count("*") == 2
    assert "Two systems share a letter if their difference is not significant. So." in text
    assert "pairs are listed" not in text
    one = printed_columns(MADE.summary(1), 1)
    assert one[""] == ["a − b"]
    assert "1 of 3 pairs are listed" in printed_words(MADE.summary(1))
    assert len(MADE.summary(0).tables) == 1


def test_columns_that_say_nothing_are_left_out():
    without = replace(MADE, table=TABLE.assign(low=np.nan, high=np.nan), symbol="difference")
    pairs = printed_columns(without.summary(), 1)
    assert not {"95 % interval", "t"} & set(pairs)
    assert list(pairs).count("difference") == 1
    at_once = replace(MADE, correction=None)
    pairs = printed_columns(at_once.summary(), 1)
    assert "p" not in pairs  # a test of all pairs at once has no other p-value
    assert [float(x) for x in pairs["p adj."]] == [0.003, 0.04, 0.4]
    assert "p adj.: of all pairs at once; significant if it is at most 0.05." in str(at_once)
    plain = replace(MADE, correction="none")
    assert "p adj." not in printed_columns(plain.summary(), 1)
    assert "p: not adjusted for the number of pairs; significant" in str(plain)
    single = replace(MADE, table=TABLE.iloc[:1], means=MEANS[:2])
    assert "share a letter" not in str(single)
    for one in (single, replace(single, correction=None)):
        assert "Significant if p is at most 0.05." in str(one)
        assert "p adj." not in printed_columns(one.summary())


def of_levels(k):
    """Return comparisons of k levels, those at least two apart being different."""
    i, j = np.triu_indices(k, 1)
    means = pd.Series(np.arange(k, 0, -1.0), index=[f"s{n}" for n in range(k)])
    p = np.where(j - i > 1, 1e-4 * (j - i), 0.5)
    table = pd.DataFrame({
        "first": means.index[i], "second": means.index[j], "difference": (j - i).astype(float),
        "statistic": (j - i) * 2.0, "p_value": p, "p_adjusted": p, "significant": p < 0.05,
        "low": j - i - 1.5, "high": j - i + 1.5,
    })  # fmt: skip
    return PairwiseComparisons(table, means, "system", "paired t-test", "t", "holm", 0.05)


@pytest.mark.parametrize(("k", "has_groups"), [(2, False), (3, True), (60, True), (61, False)])
def test_groups_are_printed_of_three_to_sixty_levels(k, has_groups):
    summary = of_levels(k).summary()
    assert ("share a letter" in printed_words(summary)) == has_groups
    assert len(summary.tables) == 1 + has_groups
    if has_groups:
        printed = printed_columns(summary)
        assert printed[""] == [f"s{n}" for n in range(k)]
        assert [float(x) for x in printed["mean"]] == list(range(k, 0, -1))
        letters = [set(cell.split() if k > 27 else cell) for cell in printed["group"]]
        for a in range(k):
            for b in range(a):
                assert bool(letters[a] & letters[b]) == (a - b < 2)


@pytest.mark.parametrize(("show", "listed"), [(0, 0), (1, 1), (9, 9), (10, 10), (11, 10)])
def test_so_many_pairs_are_listed(show, listed):
    """Those with the smallest p-values, and of equal ones the largest differences."""
    summary = of_levels(5).summary(show)
    text = printed_words(summary)
    assert (f"{show} of 10 pairs are listed" in text) == (show < 10)
    assert len(summary.tables) == 1 + (listed > 0)
    if listed:
        printed = printed_columns(summary, 1)
        assert len(printed[""]) == listed
        p = [float(x) for x in printed["p adj."]]
        assert p == sorted(p)
        assert p[0] == 2e-4
    two = of_levels(2).summary(0)  # the only table has one pair at least
    assert printed_columns(two)[""] == ["s0 − s1"]
    assert len(printed_columns(of_levels(61).summary(0))[""]) == 1
    for bad in (-1, True, 1.5):
        with pytest.raises(PlanError, match="show is a whole number"):
            of_levels(3).summary(bad)


@pytest.mark.parametrize(
    ("df", "shown"),
    [
        ([9.0, 9.0, 9.0], False), ([9.0, 9.0 + 1e-9, 9.0], False), ([9.0, 9.1, 12.5], True),
        ([2e6, 2e6 + 1e-3, 2e6], False), ([9.0, np.inf, 9.0], False), ([9.0, np.nan, 9.0], False),
    ],
)  # fmt: skip
def test_degrees_of_freedom_are_listed_if_they_differ(df, shown):
    made = replace(of_levels(3), table=of_levels(3).table.assign(std_error=0.5, df=df))
    printed = printed_columns(made.summary(), 1)
    assert ("df" in printed) == shown
    assert [float(x) for x in printed["std err"]] == [0.5] * 3
    if shown:
        assert sorted(float(x) for x in printed["df"]) == sorted(df)

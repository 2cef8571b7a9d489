"""Pictures of compared pairs: groups that are not distinguished, and p-values."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

import vcomp
from vcomp import plots
from vcomp.exceptions import DataError, PlanError
from vcomp.plots.canvas import COLOURS

TABLE = pd.DataFrame({"mean": [0.5, 0.4, 0.2], "group": ["a", "ab", "b"]}, index=["x", "y$", "z"])


@pytest.fixture(scope="module")
def compared():
    scores = np.random.default_rng(1).normal(size=(40, 5)) + np.arange(5) / 3
    return vcomp.ir.compare_systems(scores, "tukey")


def test_each_group_is_a_line_through_its_levels():
    ax = plots.alike_groups(TABLE, facet="run")
    means, *groups = ax.lines
    assert means.get_xdata().tolist() == [0.5, 0.4, 0.2]
    assert [line.get_ydata().tolist() for line in groups] == [[0, 1], [1, 2]]
    right = [line.get_xdata()[0] for line in groups]
    assert 0.5 < right[0] < right[1] < ax.get_xlim()[1]
    assert max(ax.get_xticks()) <= 0.5
    assert [label.get_text() for label in ax.get_yticklabels()] == ["x", r"y\$", "z"]
    assert ax.get_ylim() == (2.5, -0.5)
    assert ax.get_xlabel().startswith("mean of the run\n")


def test_letters_of_many_groups_and_many_levels():
    spaced = pd.DataFrame({"mean": [2.0, 1.0], "group": ["a aa", "aa b"]}, index=["x", "y"])
    drawn = [line.get_ydata().tolist() for line in plots.alike_groups(spaced).lines[1:]]
    assert drawn == [[0], [0, 1], [1]]
    many = pd.DataFrame({"mean": np.arange(70.0)[::-1], "group": ["a"] * 70})
    assert plots.alike_groups(many).get_ylabel() == "rank among 70 levels"
    same = pd.DataFrame({"mean": [1.0, 1.0], "group": ["a", "a"]}, index=["x", "y"])
    assert len(plots.alike_groups(same).lines) == 2


def test_colours_tell_who_is_better_and_how_surely():
    p = pd.DataFrame([[np.nan, 0.0009, 0.03], [0.0009, np.nan, 0.2], [0.03, 0.2, np.nan]])
    d = pd.DataFrame([[np.nan, 1.0, -1.0], [-1.0, np.nan, 1.0], [1.0, -1.0, np.nan]])
    image = plots.pair_p_values(p, d).images[0].get_array()
    np.testing.assert_allclose(image[0, 1], to_rgb(COLOURS[0]))
    np.testing.assert_allclose(image[1, 0], to_rgb(COLOURS[1]))
    np.testing.assert_allclose(image[0, 0], 1.0)
    np.testing.assert_allclose(image[1, 2], 0.95)
    paler = 1.0 - 0.35 * (1.0 - np.array(to_rgb(COLOURS[1])))
    np.testing.assert_allclose(image[0, 2], paler)


def test_a_result_draws_both(compared):
    groups = compared.plot()
    assert groups.get_xlabel().startswith("mean of the system")
    square = compared.plot("p_values")
    words = [text.get_text() for text in square.get_legend().get_texts()]
    assert words[0] == "row better, p ≤ 0.05"
    assert words[-1] == "not significant"
    assert square.images[0].get_array().shape == (5, 5, 3)
    large = pd.DataFrame(np.full((61, 61), 0.5))
    assert plots.pair_p_values(large, large).get_xlabel() == "rank among 61 levels"


def test_mistakes(compared):
    with pytest.raises(
        PlanError, match="kind must be 'groups', 'p_values' or 'ranks', not 'square'"
    ):
        compared.plot("square")
    with pytest.raises(DataError, match="the table of groups has no column 'group'"):
        plots.alike_groups(TABLE[["mean"]])
    with pytest.raises(DataError, match="there is no level to draw"):
        plots.alike_groups(TABLE.iloc[:0])
    square = pd.DataFrame(np.zeros((2, 2)))
    with pytest.raises(DataError, match="they are 2 × 2 and 2 × 1"):
        plots.pair_p_values(square, square.iloc[:, :1])
    with pytest.raises(PlanError, match="alpha must be between"):
        plots.pair_p_values(square, square, alpha=2.0)


def test_ranks_are_dots_on_the_lines_of_their_sets(compared):
    ax = compared.plot("ranks")
    (lines,) = ax.collections
    ranks = compared.ranks()
    assert [segment[:, 0].tolist() for segment in lines.get_segments()] == (
        ranks[["low", "high"]].to_numpy().tolist()
    )
    assert ax.lines[0].get_xdata().tolist() == ranks["rank"].tolist()
    assert ax.get_xlabel() == "rank of the system, with its confidence set"
    many = pd.DataFrame({"rank": np.arange(1, 71), "low": 1, "high": 70})
    assert plots.rank_sets(many, plural="runs").get_ylabel() == "place among 70 runs"
    with pytest.raises(DataError, match="the table of ranks has no column 'low'"):
        plots.rank_sets(many[["rank"]])
    with pytest.raises(DataError, match="there is no level to draw"):
        plots.rank_sets(many.iloc[:0])


def test_a_leaderboard_has_intervals_groups_and_ranks():
    table = TABLE.assign(low=TABLE["mean"] - 0.1, high=TABLE["mean"] + 0.2)
    k = len(table)
    table = table.assign(rank=range(1, k + 1), rank_low=1, rank_high=k)
    table.loc[table.index[-1], ["low", "high"]] = [-np.inf, np.inf]
    scores, ranks = plots.leaderboard(table, alpha=0.1, facet="run")
    assert scores.get_xlabel().startswith("mean of the run, 90 % interval\n")
    left, right = scores.get_xlim()
    ends = [[x for x, _ in bar] for bar in scores.collections[0].get_segments()]
    np.testing.assert_allclose(ends[:-1], table[["low", "high"]].to_numpy()[:-1])
    assert left < min(table["low"].iloc[:-1])
    assert ends[-1][0] == pytest.approx(left, abs=0.2 * (right - left))
    of_groups = plots.alike_groups(TABLE, facet="run")
    assert len(scores.lines) >= len(of_groups.lines)
    spans = [[x for x, _ in bar] for bar in ranks.collections[0].get_segments()]
    assert spans == [[1.0, float(k)]] * k
    with pytest.raises(vcomp.DataError, match="there are 1 axes for 2 pictures"):
        plots.leaderboard(table, ax=scores)
    with pytest.raises(vcomp.DataError, match="rank_low"):
        plots.leaderboard(table.drop(columns="rank_low"))

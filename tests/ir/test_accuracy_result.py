"""The printed accuracies beside their table, and the sizes that curves have."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import vcomp
from tests.helpers.printed_tables import printed_columns, printed_words
from vcomp.exceptions import PlanError

SIZES = [6, 24, 75]
MEASURES = ["tau", "Erho2", "rmse", "tau_ap", "Phi", "F"]


@pytest.fixture(scope="module")
def found():
    rng = np.random.default_rng(7)
    scores = 0.4 + 0.12 * rng.normal(size=9) + 0.1 * rng.normal(size=(24, 1))
    scores = np.clip(scores + 0.08 * rng.normal(size=(24, 9)), 0.0, 1.0)
    return vcomp.ir.accuracy(scores, MEASURES, SIZES, alpha=0.1)


def test_every_cell_is_that_of_the_table(found):
    printed, table = printed_columns(found.summary()), found.table
    assert printed["topic"] == [str(n) for n in SIZES] * 6
    symbols = ["τ", "Eρ²", "ε", "τ_AP", "Φ", "F"]
    for k, name in enumerate(MEASURES):
        rows = table[table["measure"] == name]
        part = slice(3 * k, 3 * k + 3)
        labels = printed[""][part]
        assert labels[1:] == ["", ""]
        assert labels[0].lower() == symbols[k].lower()
        estimators = printed["estimator"][part]
        assert estimators == [rows["estimator"].iloc[0], "", ""]
        if math.isfinite(max(found.measures[name].limits)):
            estimates = [f"{x:.3f}" for x in rows["estimate"]]
            intervals = [
                "" if np.isnan(low) else f"[{low:.3f}, {high:.3f}]"
                for low, high in zip(rows["low"], rows["high"], strict=True)
            ]
            assert printed["90 % interval"][part] == intervals
        else:
            decimals = 2 - math.floor(math.log10(rows["estimate"].min()))
            estimates = [f"{x:.{decimals}f}" for x in rows["estimate"]]
            for cell, low, high in zip(
                printed["90 % interval"][part], rows["low"], rows["high"], strict=True
            ):
                ends = [float(end.strip("[] ")) for end in cell.split(",")]
                assert ends == pytest.approx([low, high], rel=6e-3)
        assert printed["estimate"][part] == estimates
    words = printed_words(found.summary())
    assert "estimated from 9 systems × 24 topics" in words
    assert "power of the F test" in words
    assert "from variance components, with their uncertainty" in words


def test_intervals_over_the_whole_range_are_said(found):
    """Those near the upper end are short."""
    assert "carries no information" not in printed_words(found.summary())
    values = dict(found.values)
    for name, low, high in (("Erho2", 0.0, 0.995), ("tau", -0.99, 1.0), ("Phi", 0.0, 0.985)):
        ends = np.array([0.9, low, 0.9]), np.array([0.95, high, 0.95])
        values[name] = replace(values[name], low=ends[0], high=ends[1])
    words = printed_words(replace(found, values=values).summary())
    assert "τ, Eρ²: an interval over the whole range of a measure carries no information" in words


def test_rows_are_numbered(found):
    assert found.table.index.tolist() == list(range(len(MEASURES) * len(SIZES)))
    assert found.predict([5, 9]).index.tolist() == list(range(len(MEASURES) * 2))


def test_lines_have_enough_points_between_the_sizes(found):
    curves = found._curves(["Erho2", "rmse"])
    for name in ("Erho2", "rmse"):
        n = curves.loc[curves["measure"] == name, "n"].to_numpy()
        assert (n[0], n[-1]) == (6.0, 75.0)
        assert (np.diff(n) > 0.0).all()
        assert set(SIZES) <= set(n.tolist())
        assert len(n) > 30
        own = curves[(curves["measure"] == name) & curves["n"].isin(SIZES)]
        rows = found.table[found.table["measure"] == name]
        np.testing.assert_allclose(own["estimate"], rows["estimate"], rtol=1e-12)
    one = vcomp.ir.accuracy(found_scores(), ["Erho2"], [8])._curves(["Erho2"])["n"]
    assert (one.min(), one.max()) == (2.0, 16.0)
    few = vcomp.ir.accuracy(found_scores(), ["Erho2"], [3])._curves(["Erho2"])["n"]
    assert (few.min(), few.max()) == (2.0, 6.0)
    many = vcomp.ir.accuracy(found_scores(), ["Erho2"], [20])._curves(["Erho2"])["n"]
    assert (many.min(), many.max()) == (5.0, 40.0)


def test_lines_of_what_is_slow_have_the_sizes_alone():
    """As that of tests of many subsets."""
    subsets = vcomp.ir.accuracy(found_scores(), ["power_ratio"], [3, 5], trials=10, rng=1)
    assert subsets._curves(["power_ratio"])["n"].tolist() == [3, 5]


def found_scores():
    return np.random.default_rng(2).uniform(size=(10, 5))


def test_only_correlations_of_ranks_are_labelled_by_their_estimator(found):
    assert [found._label(name) for name in MEASURES] == [
        "τ (shrunken)", "Eρ²", "ε", "τ_AP (shrunken)", "Φ", "F",
    ]  # fmt: skip
    halves = vcomp.ir.accuracy(found_scores(), ["sens_rel"], [8], trials=20, rng=1)
    assert halves._label("sens_rel") == "sens_rel"


def test_what_is_drawn(found):
    assert found._chosen(None) == MEASURES
    assert found._chosen(["Phi", "tau", "Phi"]) == ["Phi", "tau"]
    assert found._chosen("rmse") == ["rmse"]
    with pytest.raises(PlanError, match=r"'Tau' was not estimated.*did you mean 'tau'"):
        found._chosen(["Tau"])


def test_in_one_line(found):
    assert repr(found) == (
        "<Accuracy: tau, Erho2, rmse, tau_ap, Phi, F of 9 system on 6 to 75 topic>"
    )
    one = vcomp.ir.accuracy(found_scores(), ["Erho2"], [8])
    assert repr(one) == "<Accuracy: Erho2 of 5 system on 8 topic>"


# Numbers of topics for a goal -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measure", "goal"),
    [("tau", 0.9), ("tau_ap", 0.85), ("Erho2", 0.97), ("Phi", 0.97), ("rmse", 0.012), ("F", 0.9)],
)
def test_the_goal_is_reached_with_these_topics_and_not_with_one_less(found, measure, goal):
    needed = found.required(measure, goal)
    n = int(needed.n)
    assert n > 2
    at = found.predict([n - 1, n]).set_index(["measure", "n"])["estimate"].loc[measure]
    sign = 1 if found.measures[measure].larger_is_better else -1
    assert sign * at[n - 1] < sign * goal <= sign * at[n]
    symbol = found.symbol(measure)
    assert str(needed).startswith(f"For {symbol} = {goal}, {n:,} topics are needed")
    assert needed.facet == "topic"


def test_expected_tau_of_the_required_topics_is_that_of_expected_tau(found):
    """By the function for scores, which the result is not made of."""
    scores = found.estimators["tau"].matrix
    n = int(found.required("tau", 0.9).n)
    before, at = vcomp.ir.expected_tau(scores, [n - 1, n])["estimate"]
    assert before < 0.9 <= at


def test_erho2_has_the_interval_of_its_d_study(found):
    needed = found.required("Erho2", 0.97)
    wanted = replace(found.dstudy, alpha=0.1).required(0.97)
    assert (needed.n, needed.low, needed.high) == (wanted.n, wanted.low, wanted.high)
    assert needed.low < needed.n < needed.high


def test_goals_that_no_number_of_topics_reaches():
    """Two systems with equal scores stay in any order."""
    scores = np.random.default_rng(0).normal(size=(12, 4))
    scores[:, 1] = scores[:, 0]
    found = vcomp.ir.accuracy(scores, "tau", 12, estimator="urbano")
    needed = found.required("tau", 0.99)
    assert math.isinf(needed.n)
    assert "τ = 0.99 is out of reach: with 1,073,741,824 topics it is" in str(needed)


@pytest.mark.parametrize(
    ("measure", "goal", "message"),
    [
        ("taus", 0.9, r"'taus' was not estimated \(did you mean 'tau'"),
        ("tau", 1.0, "the goal of tau must be between -1 and 1, not 1"),
        ("Phi", "0.9", "the goal of Phi must be between 0 and 1, not '0.9'"),
        ("rmse", -1, "the goal of rmse must be above 0, not -1"),
    ],
)
def test_goals_that_cannot_be(found, measure, goal, message):
    with pytest.raises(PlanError, match=message):
        found.required(measure, goal)


def test_random_subsets_have_no_smallest_number(found):
    scores = found.estimators["tau"].matrix
    counted = vcomp.ir.accuracy(scores, "p_value", 20)
    with pytest.raises(PlanError, match=r"random subsets of the topics.*predict"):
        counted.required("p_value", 0.1)

"""Pictures of accuracy over the number of topics."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.drawn_axes import bands, legend, segments
from vcomp import plots
from vcomp.exceptions import DataError, PlanError, VcompWarning

SCORES = np.random.default_rng(1).normal(size=(30, 8)) + np.arange(8) / 4


@pytest.fixture(scope="module")
def accuracy():
    return vcomp.ir.accuracy(SCORES, None, [10, 30, 60])


def points(ax):
    """Return the drawn points of each line, by colour."""
    return {
        line.get_color(): (line.get_xdata(), line.get_ydata())
        for line in ax.lines
        if line.get_marker() == "o" and line.get_linestyle() == "None"
    }


def test_a_panel_a_scale_with_bands(accuracy):
    correlations, errors = accuracy.plot()
    assert legend(correlations) == [
        "τ (shrunken)",
        "τ_AP (shrunken)",
        "Eρ²",
        "Φ",
        "this collection",
    ]
    assert correlations.get_ylabel() == "accuracy  (more is better), 95 % intervals"
    assert errors.get_ylabel() == "ε  (less is better), 95 % intervals"
    assert errors.get_legend() is None
    assert len(bands(correlations)) == 4
    assert len(bands(errors)) == 1
    assert correlations.get_xlabel() == "topics"


def test_points_and_lines_are_those_of_the_table(accuracy):
    ax, _ = accuracy.plot()
    drawn = list(points(ax).values())
    for name, (n, estimate) in zip(["tau", "tau_ap", "Erho2", "Phi"], drawn, strict=True):
        rows = accuracy.table[accuracy.table["measure"] == name]
        np.testing.assert_array_equal(n, rows["n"])
        np.testing.assert_array_equal(estimate, rows["estimate"])
    line = ax.lines[0]
    expected = accuracy.predict(line.get_xdata())
    np.testing.assert_allclose(
        line.get_ydata(), expected[expected["measure"] == "tau"]["estimate"], rtol=1e-12
    )


def test_bands_reach_to_the_intervals(accuracy):
    (ax,) = accuracy.plot("Phi")
    (band,) = bands(ax)
    corners = band.get_paths()[0].vertices
    row = accuracy.table.query("measure == 'Phi' and n == 60").iloc[0]
    at_60 = corners[corners[:, 0] == 60.0, 1]
    assert at_60.min() == pytest.approx(row["low"])
    assert at_60.max() == pytest.approx(row["high"])
    assert legend(ax)[0] == "Φ"


def test_bands_of_rank_correlations_have_no_steps():
    collection = vcomp.datasets.load("docsearch").query("query == 'keywords'")
    made = vcomp.ir.accuracy(
        vcomp.ir.ScoreMatrix.from_long(collection, system="sys"), "tau", [25, 50, 100, 200, 400]
    )
    (ax,) = made.plot()
    edges = [line.get_data() for line in ax.lines if line.get_linewidth() == 0.6]
    step = 2.0 / (44 * 43 / 2)  # of τ between 44 systems
    for (n, drawn), name in zip(edges, ("low", "high"), strict=True):
        assert (np.diff(drawn) > 0.0).all()
        # Curvature over log n: a step of the quantiles shows as a jump of its size.
        bend = np.diff(np.diff(drawn) / np.diff(np.log(n)))
        assert abs(bend).max() < 0.04
        at = np.interp(made.table["n"], n, drawn)
        np.testing.assert_allclose(at, made.table[name], atol=2.0 * step)


def test_more_than_four_have_whiskers():
    names = ["tau", "tau_ap", "Erho2", "Phi", "F"]
    made = vcomp.ir.accuracy(SCORES, names, [10, 30])
    (ax,) = made.plot()
    assert not bands(ax)
    assert len([s for s in segments(ax) if len(s)]) == 10
    assert ax.get_ylim()[0] < made.table["low"].min()


def test_where_the_collection_is(accuracy):
    (ax,) = accuracy.plot("tau")
    assert legend(ax) == ["τ (shrunken)", "this collection"]
    assert ax.lines[-1].get_xdata() == [30, 30]
    far = vcomp.ir.accuracy(SCORES, "tau", [100, 200])
    assert legend(far.plot()[0]) == ["τ (shrunken)"]


def test_one_size_has_a_curve_around_it():
    (ax,) = vcomp.ir.accuracy(SCORES, "tau", 30).plot()
    x = ax.lines[0].get_xdata()
    assert (x.min(), x.max()) == pytest.approx((30 / 4, 2 * 30), rel=1e-12)


def test_far_sizes_need_a_logarithmic_axis(accuracy):
    assert accuracy.plot("tau")[0].get_xscale() == "linear"
    assert vcomp.ir.accuracy(SCORES, "tau", [5, 500]).plot()[0].get_xscale() == "log"


def test_axes_that_are_given_are_used(accuracy):
    _, axes = plt.subplots(1, 2)
    assert accuracy.plot(ax=axes) == list(axes)
    with pytest.raises(DataError, match="there are 1 axes for 2 pictures"):
        accuracy.plot(ax=axes[:1])


def test_what_has_no_estimate_is_not_drawn():
    with pytest.warns(VcompWarning, match="d_rank"):
        made = vcomp.ir.accuracy(SCORES[:9], ["tau", "d_rank"], 20, trials=3)
    (ax,) = made.plot()
    assert legend(ax)[0] == "τ (shrunken)"
    assert "d_rank" not in legend(ax)
    with pytest.raises(PlanError, match="there is nothing to draw"):
        made.plot("d_rank")


def test_pictures_that_cannot_be(accuracy):
    with pytest.raises(PlanError, match=r"'taus' was not estimated \(did you mean 'tau'"):
        accuracy.plot("taus")
    table = pd.DataFrame({"measure": ["tau"], "n": [5]})
    with pytest.raises(DataError, match="the table of accuracies has no column 'estimate'"):
        plots.accuracies(table, table, {"y": ["tau"]}, labels={"tau": "τ"})


def test_the_axis_names_the_size_that_has_whiskers():
    names, sizes = list("abcde"), np.arange(10.0, 200.0, 10.0)
    table = pd.concat(
        pd.DataFrame({"measure": m, "n": sizes, "estimate": 0.7, "low": 0.6, "high": 0.8})
        for m in names
    )
    panels = plots.accuracies(
        table, table, {"accuracy": names}, labels={m: m for m in names}, xlabel="query"
    )
    assert panels[0].get_ylabel().endswith(",\nat the largest number of queries")

"""Pictures of accuracies of halves and the curves through them."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from tests.helpers.drawn_axes import bands
from vcomp import plots
from vcomp.exceptions import DataError, PlanError
from vcomp.ir.splitting import split_half


@pytest.fixture(scope="module")
def study():
    scores = np.random.default_rng(1).normal(size=(30, 8)) + np.arange(8) / 4
    return split_half(scores, ["tau", "tau_ap"], 60, trials=10)


def by_label(ax):
    return {line.get_label(): line for line in ax.lines}


def test_points_means_and_curves_are_those_of_the_study(study):
    ax = study.plot("tau_ap")
    assert ax.get_ylabel() == "τ_AP"
    points, means = ax.lines[:2]
    frame = study.frame
    np.testing.assert_array_equal(points.get_ydata(), frame["tau_ap"])
    np.testing.assert_array_equal(points.get_xdata(), frame["n"])
    np.testing.assert_allclose(means.get_ydata(), frame.groupby("n")["tau_ap"].mean())
    for model in study.models:
        line = by_label(ax)[model]
        expected = study.curves["tau_ap", model].at(line.get_xdata())
        np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-12)
        assert line.get_xdata()[-1] == pytest.approx(60.0)
    assert not bands(ax)
    assert [text.get_text() for text in ax.texts] == ["extrapolated →"]


def test_one_curve_has_a_band(study):
    one = split_half(np.random.default_rng(1).normal(size=(30, 8)), "tau", 10, models="logit")
    ax = one.plot()
    assert len(bands(ax)) == 1
    assert not ax.texts
    assert ax.get_xlim()[1] < 16
    (line,) = (line for line in ax.lines if len(line.get_xdata()) == 200)
    assert (line.get_xdata()[0], line.get_xdata()[-1]) == pytest.approx((2.0, 15.0))


def test_far_tests_need_a_logarithmic_axis(study):
    scores = np.random.default_rng(1).normal(size=(30, 8)) + np.arange(8) / 4
    assert study.plot().get_xscale() == "linear"
    assert split_half(scores, "tau", 500, trials=10).plot().get_xscale() == "log"


def test_axes_that_are_given_are_used(study):
    _, ax = plt.subplots()
    assert study.plot(ax=ax) is ax


def test_curves_that_are_not_there_are_not_drawn():
    seen = pd.DataFrame({"n": [5, 10], "accuracy": [0.5, np.nan]})
    none = pd.DataFrame({c: [] for c in ("model", "n", "estimate", "obs_low", "obs_high")})
    ax = plots.accuracy_curves(seen, none)
    assert ax.lines[0].get_xdata().tolist() == [5]
    assert ax.get_legend() is None


def test_pictures_that_cannot_be(study):
    with pytest.raises(PlanError, match=r"'taus' was not measured \(did you mean 'tau'"):
        study.plot("taus")
    with pytest.raises(DataError, match="the table of observations has no column 'accuracy'"):
        plots.accuracy_curves(study.frame, study.table)


def test_curves_begin_at_the_smallest_half(study):
    begins = {line.get_label(): line.get_xdata()[0] for line in study.plot("tau").lines}
    drawn = [begins[label] for label in begins if "exp" in label or "logit" in label]
    assert len(drawn) > 0
    assert drawn == pytest.approx([study.sizes[0]] * len(drawn), rel=1e-12)

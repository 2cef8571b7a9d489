"""Predicted effects, profiles and replicates as pictures."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import vcomp
from tests.helpers.designs import balanced
from tests.helpers.drawn_axes import (
    INF,
    NAN,
    drawn_text,
    legend,
    markers,
    segments,
    zeta,
)
from vcomp import plots
from vcomp.exceptions import DataError, PlanError, VcompError
from vcomp.inference.resampling.replicates import Replicates


def test_effects_are_sorted_with_their_intervals(crossed):
    frame = crossed.random_effects["b"].sort_values("estimate")
    ax = crossed.plot("effects", term="b", alpha=0.1)
    assert drawn_text(ax) == [str(level) for level in frame.index]
    np.testing.assert_array_equal(list(markers(ax).values()), frame["estimate"])
    z = 1.6448536269514722  # the normal quantile of .95
    ends = np.array([segment[:, 0] for segment in segments(ax)])
    np.testing.assert_allclose(ends[:, 0], frame["estimate"] - z * frame["se"], rtol=1e-12)
    np.testing.assert_allclose(ends[:, 1], frame["estimate"] + z * frame["se"], rtol=1e-12)
    assert ax.get_xlabel() == "predicted effect of b, 90 % interval"


def test_many_levels_are_thinned_by_rank_and_the_axis_says_so():
    estimate = np.random.default_rng(1).normal(size=1000)
    frame = pd.DataFrame({"estimate": estimate, "low": estimate - 1, "high": estimate + 1})
    ax = plots.effects(frame, "s")
    ranks = np.array(list(markers(ax)))
    assert ranks.size == len(segments(ax)) == 100
    assert (ranks[0], ranks[-1]) == (1, 1000)
    assert set(np.diff(ranks)) <= {10, 11}
    np.testing.assert_array_equal(
        list(markers(ax).values()), np.sort(estimate)[ranks.astype(int) - 1]
    )
    assert ax.get_ylabel() == "rank of 100 of 1,000 levels of s,\nevenly spaced"
    every = plots.effects(frame, "s", max_levels=1000)
    assert len(segments(every)) == 1000
    assert every.get_ylabel() == "rank among 1,000 levels of s"


def test_low_axes_have_ranks_for_names():
    estimate = np.arange(30.0)
    frame = pd.DataFrame({"estimate": estimate, "low": estimate - 1, "high": estimate + 1})
    assert len(drawn_text(plots.effects(frame, "s"))) == 30
    low = plt.figure(figsize=(6, 2)).subplots()
    assert plots.effects(frame, "s", ax=low).get_ylabel() == "rank among 30 levels of s"


def test_effects_without_standard_errors_are_hollow():
    frame = pd.DataFrame({"estimate": [1.0, -1.0], "low": [0.5, NAN], "high": [1.5, NAN]})
    ax = plots.effects(frame, "s")
    assert len(segments(ax)) == 1
    assert ax.get_xlabel().endswith("95 % interval\n○  no standard error, no interval")
    nothing = plots.effects(frame.assign(low=NAN, high=NAN), "s")
    assert nothing.get_xlabel() == "predicted effect of s\n○  no standard error, no interval"


def test_levels_of_several_facets_are_written_as_terms():
    formula, data = balanced("nested", seed=3)
    res = vcomp.fit(formula, data)
    labels = drawn_text(res.plot("effects", term="a:b"))
    assert len(labels) == 24
    assert all(len(label.split(":")) == 2 for label in labels)


def test_what_cannot_be_drawn_is_refused(crossed):
    for kind, term, message in (
        ("forest", None, "kind must be 'components' or 'effects', not 'forest'"),
        ("components", "a", "use kind='effects'"),
        ("effects", None, r"pass term=, one of \['a', 'b'\]"),
        ("effects", "Residual", r"'Residual' has no predicted effects; term= must be one of"),
        ("effects", "bb", r"did you mean 'b'\?"),
    ):
        with pytest.raises(VcompError, match=message):
            crossed.plot(kind, term=term)
    with pytest.raises(VcompError, match="leave out interval="):
        crossed.plot("effects", term="a", interval="wald")
    for alpha_of in (crossed.plot, lambda alpha: crossed.plot("effects", term="a", alpha=alpha)):
        with pytest.raises(PlanError, match="alpha must be between 0 and 1"):
            alpha_of(alpha=5)
    stored = vcomp.VarianceComponentsResults.from_json(crossed.to_json())
    assert drawn_text(stored.plot()) == ["a", "b", "Residual"]
    with pytest.raises(DataError, match="loaded without its rows"):
        stored.plot("effects", term="a")
    frame = pd.DataFrame({"estimate": [1.0], "low": [0.0], "high": [2.0]})
    with pytest.raises(DataError, match="no level of 's'"):
        plots.effects(frame.iloc[:0], "s")
    with pytest.raises(DataError, match="max_levels is at least 2, not 1"):
        plots.effects(frame, "s", max_levels=1)
    with pytest.raises(DataError, match="no column 'low', 'high'"):
        plots.components(frame[["estimate"]])
    assert not plt.get_fignums()[1:]  # only that of the stored result


def test_one_term_needs_no_name():
    formula, data = balanced("one way", seed=3)
    assert (
        vcomp.fit(formula, data).plot("effects").get_xlabel().startswith("predicted effect of a")
    )


def test_a_profile_is_a_curve_with_its_interval():
    z = 1.959963984540054
    grid = np.sort([*np.linspace(-3, 3, 9), -z, z])
    curve = zeta(2.0, 2.0 * np.exp(-z / 3), 2.0 * np.exp(z / 3), grid)
    (ax,) = plots.profile({"var(a)": curve})
    x, y = ax.lines[0].get_data()
    np.testing.assert_allclose(np.interp(curve.theta, x, y), curve.z, rtol=0.0, atol=1e-12)
    # Between its points, the curve is 3 log(θ/2); straight segments are up to .04 away.
    np.testing.assert_allclose(y, 3.0 * np.log(x / 2.0), rtol=0.0, atol=0.005)
    low, high = segments(ax)
    np.testing.assert_allclose(low, [[curve.low, -z], [curve.low, 0.0]], rtol=1e-12)
    np.testing.assert_allclose(high, [[curve.high, 0.0], [curve.high, z]], rtol=1e-12)
    levels = [line.get_ydata()[0] for line in ax.lines[1:4]]
    np.testing.assert_allclose(levels, [-z, 0.0, z], rtol=1e-12)
    assert ax.get_xlabel() == "var(a)"
    assert ax.get_title() == "95 %: [1.04, 3.84]"


def test_the_profiles_of_a_fit_draw_themselves(crossed):
    profile = crossed.profile(["a", "b"], alpha=0.1)
    axes = profile.plot()
    assert [ax.get_xlabel() for ax in axes] == list(profile.curves)
    for ax, curve in zip(axes, profile.curves.values(), strict=True):
        (left, right) = segments(ax)
        np.testing.assert_array_equal([left[0, 0], right[0, 0]], [curve.low, curve.high])
        # the curve crosses the quantiles of .05 and .95 at the ends
        np.testing.assert_allclose([left[0, 1], right[1, 1]], [-1.644854, 1.644854], rtol=1e-6)


def test_a_profile_over_decades_has_a_logarithmic_axis():
    z = np.linspace(-2, 2, 9)
    wide = SimpleNamespace(
        theta=np.exp(2 * z), z=z, estimate=1.0, low=np.exp(-3.9), high=np.exp(3.9), alpha=0.05
    )
    at_zero = SimpleNamespace(**{**vars(wide), "theta": np.r_[0.0, wide.theta[1:]]})
    near = zeta(1.0, 0.5, 2.0, z)
    signed = SimpleNamespace(**{**vars(wide), "theta": wide.theta - 1.0, "low": -0.9})
    axes = plots.profile({"a": wide, "b": near, "c": signed, "d": at_zero})
    axes[0].figure.canvas.draw()
    assert [ax.get_xscale() for ax in axes] == ["log", "linear", "linear", "log"]
    assert axes[3].lines[0].get_xdata()[[0, -1]].tolist() == wide.theta[[1, -1]].tolist()


def test_profiles_have_a_panel_each_and_open_ends_no_mark():
    open_end = zeta(1.0, 0.5, INF, np.linspace(-3, 1, 7))
    at_bound = SimpleNamespace(**{**vars(zeta(1.0, 0.0, 2.0, np.linspace(-1, 3, 9)))})
    at_bound.theta = np.linspace(0.0, 4.0, 9)
    axes = plots.profile({"a": open_end, "b": at_bound, "c": open_end, "d": open_end})
    assert len(axes) == 4
    assert len(axes[0].figure.axes) == 4
    assert len(segments(axes[0])) == 1
    low, _ = segments(axes[1])
    np.testing.assert_array_equal(low, [[0.0, -1.0], [0.0, 0.0]])  # the curve ends at the bound
    with pytest.raises(DataError, match="no profile"):
        plots.profile({})
    with pytest.raises(DataError, match="there are 2 axes for 1 picture"):
        plots.profile({"a": open_end}, ax=axes[:2])


def test_replicates_are_counted_in_bins():
    values = np.random.default_rng(3).gamma(4.0, size=500)
    ax = plots.replicates(values, "σ²(a)", estimate=4.0, interval=(1.0, 9.0), alpha=0.1)
    assert sum(bar.get_height() for bar in ax.patches[:-1]) == 500
    span = ax.patches[-1]
    assert (span.get_x(), span.get_x() + span.get_width()) == (1.0, 9.0)
    assert [line.get_xdata()[0] for line in ax.lines] == [1.0, 9.0, 4.0]
    assert legend(ax) == ["90 % interval [1.00, 9.00]", "estimate 4"]
    assert ax.get_xlabel() == "σ²(a)"
    plain = plots.replicates(values, "σ²(a)")
    assert plain.get_legend() is None


def test_replicates_that_are_not_drawn_or_stand_at_zero_are_counted():
    values = [0.0] * 30 + list(np.linspace(1, 2, 968)) + [1e6, NAN]
    ax = plots.replicates(values, "ratio", interval=(0.0, INF))
    assert ax.get_xlabel() == "ratio\n30 exactly 0, 1 farther out"
    assert ax.get_ylabel() == "replicates in each bin, 999 of 1,000 finite"
    assert sum(bar.get_height() for bar in ax.patches[:-1]) == 998
    assert ax.get_xlim()[1] < 5
    same = plots.replicates([2.0] * 10, "σ²(a)")
    assert sum(bar.get_height() for bar in same.patches) == 10
    with pytest.raises(DataError, match="needs 2 replicates; there are 1"):
        plots.replicates([1.0, NAN], "σ²(a)")
    with pytest.raises(DataError, match="an end that is not a number"):
        plots.replicates(values, "σ²(a)", interval=(0.0, NAN))


def test_replicates_are_drawn_by_component():
    numbers = np.arange(50)
    values = np.random.default_rng(1).gamma(4.0, size=(50, 3))
    replicates = Replicates(
        kind="parametric",
        names=("a", "b", "Residual"),
        fixed_names=("Intercept",),
        numbers=numbers,
        values=values,
        beta=np.zeros((50, 1)),
        llf=np.zeros(50),
        converged=numbers >= 0,
        seed=1,
        requested=50,
    )
    ax = replicates.plot("b", estimate=4.0)
    assert ax.get_xlabel().startswith("σ²(b)")
    bars = np.array([(bar.get_x(), bar.get_height()) for bar in ax.patches])
    assert bars[:, 1].sum() == 50
    assert bars[0, 0] == values[:, 1].min()
    assert legend(ax) == ["estimate 4"]
    # Without one, it is the estimate of the refitted fit.
    known = replace(replicates, fingerprint={"estimates": [1.0, 3.5, 2.0]})
    assert legend(known.plot("b")) == ["estimate 3.5"]
    adjusted = replace(replicates, adjusted=values + 7.0).plot("b")
    assert adjusted.patches[0].get_x() == (values[:, 1] + 7.0).min()
    with pytest.raises(DataError, match="there is no component 'c'; there are 'a', 'b'"):
        replicates.plot("c")


def test_a_term_with_slopes_has_a_panel_for_each_effect():
    rng = np.random.default_rng(4)
    g, x = np.repeat(np.arange(8), 6), np.tile(np.arange(6.0), 8)
    y = rng.normal(size=8)[g] + rng.normal(size=8)[g] * x + rng.normal(size=48)
    res = vcomp.fit("y ~ x + (x|g)", {"y": y, "x": x, "g": g})
    first, second = res.plot("effects", term="g")
    frames = res.random_effects
    order = frames["g"]["estimate"].sort_values().index
    for ax, name in ((first, "g"), (second, "g[x]")):
        np.testing.assert_allclose(
            ax.lines[-1].get_xdata(), frames[name]["estimate"].loc[order], rtol=1e-12
        )
        assert ax.get_xlabel() == f"predicted effect of {name}, 95 % interval"
        assert [t.get_text() for t in ax.get_yticklabels()] == [str(k) for k in order]
    assert len(res.plot("effects")) == 2  # the only bar
    assert res.plot("effects", term="g[x]").get_xlabel().startswith("predicted effect of g[x]")
    with pytest.raises(DataError, match="there are no effects to draw"):
        plots.effects_of_bar({})
    with pytest.raises(DataError, match="there are 1 axes for 2 pictures"):
        plots.effects_of_bar({n: f.assign(low=NAN, high=NAN) for n, f in frames.items()},
                             ax=Figure().subplots())  # fmt: skip


def test_probability_plots_have_the_envelope():
    z = np.random.default_rng(1).normal(size=50)
    envelope = np.array([[-2.0, 0.0, 2.0], [-3.0, -0.4, 1.2], [-1.2, 0.4, 3.0]])
    ax = plots.qq(z, "topic", envelope=envelope)
    assert ax.get_title() == "topic"
    np.testing.assert_allclose(ax.lines[-1].get_ydata(), np.sort(z))
    (band,) = ax.collections
    corners = band.get_paths()[0].vertices
    for x, low, high in envelope.T:
        assert [x, low] in corners.tolist()
        assert [x, high] in corners.tolist()
    assert not plots.qq(z, "topic").collections
    with pytest.raises(DataError, match="needs 2 values; there are 1"):
        plots.qq([1.0], "topic")


@pytest.mark.parametrize("n", [60, 30_000])
def test_residuals_have_their_means_by_groups(n):
    rng = np.random.default_rng(2)
    x, e = rng.integers(0, 4, n).astype(float), rng.normal(size=n)
    e[17] = 40.0
    ax = plots.residuals_against(x, e, "days")
    points, means = ax.lines[0], ax.lines[-1]
    assert 40.0 in points.get_ydata()
    assert points.get_xdata().size <= 3_000
    np.testing.assert_allclose(means.get_xdata(), [0.0, 1.0, 2.0, 3.0])
    np.testing.assert_allclose(means.get_ydata(), [e[x == k].mean() for k in range(4)])
    with pytest.raises(DataError, match="3 values of days and 2 residuals"):
        plots.residuals_against([1.0, 2.0, 3.0], [0.0, 1.0], "days")


def test_influence_is_sorted_and_has_its_limit():
    values = pd.Series([0.1, NAN, 0.7, 0.3], index=list("abcd"))
    ax = plots.influence(values, "g", "Cook's distance", limit=0.5)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["c", "d", "a"]
    assert ax.lines[1].get_xdata()[0] == 0.5
    few = plots.influence(values, "g", "Cook's distance", max_levels=2)
    assert few.get_xlabel() == "Cook's distance without one g, 2 of 3 levels of g"
    with pytest.raises(DataError, match="no level of 'g' with a known influence"):
        plots.influence(values.iloc[[1]], "g", "Cook's distance")
    with pytest.raises(DataError, match="max_levels is at least 1, not 0"):
        plots.influence(values, "g", "Cook's distance", max_levels=0)

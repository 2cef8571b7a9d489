"""Pictures of components, and what all pictures share: what is drawn is in the frames."""

from __future__ import annotations

import builtins
import warnings
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.drawn_axes import (
    INF,
    NAN,
    drawn_text,
    markers,
    segments,
    table,
    zeta,
)
from tests.helpers.examples import examples
from vcomp import plots
from vcomp.exceptions import VcompError


def test_components_are_dots_and_whiskers_of_the_table(crossed):
    frame = crossed.gstudy(0.1)
    ax = crossed.plot(alpha=0.1)
    assert drawn_text(ax) == list(frame.index)
    assert markers(ax) == dict(enumerate(frame["estimate"]))
    caps = [line for line in ax.lines if line.get_marker() == "|"]
    np.testing.assert_array_equal(caps[0].get_xdata(), frame["low"])
    np.testing.assert_array_equal(caps[1].get_xdata(), frame["high"])
    for place, segment in zip(range(3), segments(ax), strict=True):
        low, high = frame.iloc[place][["low", "high"]]
        np.testing.assert_array_equal(segment, [[low, place], [high, place]])
    assert "90 % interval" in ax.get_xlabel()
    shares = [text.get_text() for text in ax.texts]
    assert shares == [*(vcomp.display.percent(p / 100) for p in frame["percent"]), "share"]
    assert ax.yaxis_inverted()  # the first component is on top


def test_intervals_by_another_method_are_drawn(crossed):
    frame = crossed.gstudy(interval="wald")
    drawn = [list(segment[:, 0]) for segment in segments(crossed.plot(interval="wald"))]
    assert drawn == frame[["low", "high"]].to_numpy().tolist()


def test_the_axis_is_logarithmic_where_components_are_decades_apart():
    near = table({"a": (1.0, 0.5, 2.0), "Residual": (3.0, 2.0, 5.0)})
    apart = table({"a": (0.001, 0.0005, 0.002), "Residual": (3.0, 2.0, 5.0)})
    wide = table({"a": (1.0, 0.5, 90.0), "Residual": (3.0, 2.0, 5.0)})
    negative = table({"a": (-0.001, NAN, NAN), "b": (0.001, 0.0, 1.0), "Residual": (3.0, 2, 5)})
    scales = [plots.components(t).get_xscale() for t in (near, apart, wide, negative)]
    assert scales == ["linear", "log", "log", "linear"]
    assert plots.components(near, scale="log").get_xscale() == "log"
    assert plots.components(apart, scale="linear").get_xscale() == "linear"
    with pytest.raises(VcompError, match=r"go from -0.001 to 3: use scale='linear'"):
        plots.components(negative, scale="log")
    with pytest.raises(VcompError, match="scale is 'auto', 'linear' or 'log', not 'sqrt'"):
        plots.components(near, scale="sqrt")


def test_what_has_no_interval_is_hollow_and_told():
    frame = table({"a": (-1.3, NAN, NAN), "b": (0.0, NAN, NAN), "Residual": (14.9, 9.1, 28.9)})
    ax = plots.components(frame)
    assert len(segments(ax)) == 1
    assert markers(ax) == {0: -1.3, 1: 0.0, 2: 14.9}
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert [list(line.get_ydata()) for line in hollow] == [[0.0, 1.0]]
    assert "no interval" in ax.get_xlabel()
    assert ax.get_xlim()[0] < -1.3
    everywhere = plots.components(table({"a": (1.0, 0.5, 2.0), "Residual": (3.0, 2.0, 5.0)}))
    assert "no interval" not in everywhere.get_xlabel()


def test_ends_beyond_the_axis_have_arrows():
    frame = table({
        "a": (1e-4, 0.0, INF), "b": (0.0, 0.0, 0.003), "c": (0.0, NAN, NAN),
        "Residual": (0.5, 0.4, 0.6),
    })  # fmt: skip
    ax = plots.components(frame)
    assert ax.get_xscale() == "log"
    left, right = ax.get_xlim()
    a, b, residual = segments(ax)
    np.testing.assert_array_equal(a[:, 0], [left, right])
    np.testing.assert_array_equal(b[:, 0], [left, 0.003])
    np.testing.assert_array_equal(residual[:, 0], [0.4, 0.6])
    arrows = {line.get_marker(): list(line.get_ydata()) for line in ax.lines}
    assert arrows["<"] == [0, 1]
    assert arrows[">"] == [0]
    # zero has no place on the axis: at its edge, and named
    assert markers(ax) == {0: 1e-4, 1: left, 2: left, 3: 0.5}
    assert [t.get_text() for t in ax.texts].count("0") == 2


def test_components_made_by_rounding_do_not_stretch_the_axis():
    ax = plots.components(table({"a": (3e-21, NAN, NAN), "Residual": (0.5, 0.4, 0.6)}))
    assert ax.get_xlim()[0] > 1e-11
    assert markers(ax)[0] == ax.get_xlim()[0]
    assert ax.texts[0].get_text() == "3e-21"


def test_a_constant_response_can_be_drawn():
    frame = table({"a": (0.0, NAN, NAN), "Residual": (0.0, NAN, NAN)})
    ax = plots.components(frame)
    ax.figure.canvas.draw()
    assert markers(ax) == {0: 0.0, 1: 0.0}
    assert [t.get_text() for t in ax.texts] == ["–", "–", "share"]


@settings(max_examples=examples(15), deadline=None)
@example([(5e-324, (0.0, 1e4))])
@given(
    st.lists(
        st.tuples(
            st.one_of(st.just(0.0), st.floats(-1.0, 1e6), st.floats(0.0, 1e-6)),
            st.sampled_from([(NAN, NAN), (0.0, INF), (0.5, 2.0), (0.0, 1e4)]),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_any_table_of_components_can_be_drawn(rows):
    ends = {str(k): (v, abs(v) * a, abs(v) * b) for k, (v, (a, b)) in enumerate(rows)}
    finite = {k: (v, a, INF if np.isnan(b) and not np.isnan(a) else b)
              for k, (v, a, b) in ends.items()}  # fmt: skip
    ax = plots.components(table(finite))
    ax.figure.canvas.draw()
    left, right = ax.get_xlim()
    assert len(markers(ax)) == len(rows)
    assert all(left <= x <= right for x in markers(ax).values())
    plt.close("all")


def test_names_are_not_taken_for_formulas():
    frame = table({"US$ and k$": (1.0, 0.5, 2.0), "_x_1": (3.0, 2.0, 5.0)})
    ax = plots.components(frame)
    ax.figure.canvas.draw()
    first, second = ax.get_yticklabels()
    assert first.get_text() == r"US\$ and k\$"
    assert first._preprocess_math(first.get_text()) == ("US$ and k$", False)
    assert second.get_text() == "_x_1"


def test_axes_that_are_passed_are_used(crossed):
    figure, axes = plt.subplots(2, 3)
    study = crossed.dstudy(b=[5, 10])
    curve = SimpleNamespace(
        theta=np.array([1.0, 2.0, 3.0]), z=np.array([-2.5, 0.0, 2.5]),
        estimate=2.0, low=1.2, high=2.8, alpha=0.05,
    )  # fmt: skip
    assert crossed.plot(ax=axes[0, 0]) is axes[0, 0]
    assert crossed.plot("effects", term="a", ax=axes[0, 1]) is axes[0, 1]
    assert study.plot(ax=axes[0, 2]) is axes[0, 2]
    assert plots.profile({"a": curve}, ax=[axes[1, 0]]) == [axes[1, 0]]
    assert plots.replicates([1.0, 2.0, 3.0], "a", ax=axes[1, 1]) is axes[1, 1]
    assert plt.get_fignums() == [figure.number]
    assert all(ax.has_data() for ax in axes.flat[:5])


def test_every_symbol_can_be_written(crossed):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a missing glyph is a warning of matplotlib's
        for ax in (crossed.plot(), crossed.dstudy(b=[5, 10]).plot(goal=0.9)):
            ax.figure.canvas.draw()


def test_without_matplotlib_the_message_says_what_to_install(crossed, monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **kwargs)

    study, frame = (
        crossed.dstudy(b=[5, 10]),
        pd.DataFrame({"estimate": [1.0], "low": 0, "high": 2}),
    )
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", refuse)
        for draw in (
            crossed.plot,
            study.plot,
            lambda: plots.effects(frame, "s"),
            lambda: plots.replicates([1.0, 2.0], "a"),
            lambda: plots.profile({"a": zeta(1.0, 0.5, 2.0, [-2, 0, 2])}),
        ):
            with pytest.raises(VcompError, match=r"pip install 'variance-components\[plot\]'"):
                draw()

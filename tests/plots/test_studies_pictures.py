"""Measures side by side and random parts of the data as pictures."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.designs import balanced
from tests.helpers.drawn_axes import INF, NAN, bands, drawn_text, legend, segments
from vcomp import plots
from vcomp.exceptions import DataError, PlanError

FORMULA = "y ~ (1|a) + (1|b)"


@pytest.fixture(scope="module")
def compared():
    frame = balanced("crossed", 4)[1]
    frame["z"] = frame["y"] + np.random.default_rng(1).normal(size=len(frame))
    return vcomp.compare_measures("~ (1|a) + (1|b)", frame, responses=["y", "z"], b=[10, 100])


@pytest.fixture(scope="module")
def study():
    frame = balanced("crossed", 4)[1]
    return vcomp.subsample_study(FORMULA, frame, sizes={"a": [3, 5, 7], "b": [4, 9]}, trials=30)


def test_dots_are_the_table(compared):
    ax = compared.plot(plan=1)
    rows = compared.table[compared.table["b"] == 100]
    assert drawn_text(ax) == ["y", "z"]
    assert legend(ax) == ["Eρ²", "Φ"]
    by_label = {line.get_label(): line for line in ax.lines}
    np.testing.assert_array_equal(by_label["Eρ²"].get_xdata(), rows["Erho2"])
    np.testing.assert_array_equal(by_label["Φ"].get_xdata(), rows["Phi"])
    ends = np.array([segment[:, 0] for segment in segments(ax)])
    expected = np.vstack([rows[[f"{c}_low", f"{c}_high"]] for c in ("Erho2", "Phi")])
    np.testing.assert_allclose(ends, expected)
    assert ax.get_xlabel() == "coefficient with b = 100, 95 % intervals"
    low, high = ax.get_xlim()
    assert low <= expected.min()
    assert expected.max() < high
    assert by_label["_child4"].get_xdata()[0] == 0.95


@pytest.mark.parametrize("plan", [-1, 2, 1.0, True, "1"])
def test_a_plan_is_the_number_of_a_row(compared, plan):
    with pytest.raises(
        PlanError, match=f"plan= is the number of a row, from 0 to 1, not {plan!r}"
    ):
        compared.plot(plan=plan)


def test_plans_of_different_sizes_are_not_named():
    frame = balanced("crossed", 4)[1]
    fewer = frame[frame["b"] != frame["b"].iloc[0]]
    found = vcomp.compare_measures(FORMULA, {"all": frame, "fewer": fewer})
    assert found.plot().get_xlabel() == "coefficient, 95 % intervals"


def test_one_coefficient_needs_no_legend(compared):
    ax = compared.plot(coefficient="Phi", ax=plt.figure().subplots())
    assert ax.get_legend() is None


def test_there_are_no_curves_over_what_is_no_facet(compared):
    with pytest.raises(PlanError, match="'c' does not have a size in all measures"):
        compared.plot("curves", x="c")


def test_curves_go_through_the_table(compared):
    ax = compared.plot("curves", coefficient="Phi")
    table = compared.table.set_index(["measure", "b"])
    assert legend(ax) == ["y", "z"]
    for name, line in zip(("y", "z"), [x for x in ax.lines if x.get_linestyle() == "-"],
                          strict=False):  # fmt: skip
        x, y = line.get_data()
        res = compared.results[name]
        own = res.dstudy(b=float(x[50])).table["Phi"].item()
        assert y[50] == pytest.approx(own, rel=1e-12)
        assert (x[0], x[-1]) == pytest.approx((10.0, 100.0))
    points = {x.get_label(): x for x in ax.lines if x.get_marker() == "o"}
    np.testing.assert_array_equal(points["z"].get_ydata(), table.loc["z"]["Phi"])
    low = min(segment[:, 1].min() for segment in segments(ax))
    assert low == pytest.approx(table["Phi_low"].min())
    assert ax.get_ylim()[0] <= low
    assert ax.get_ylabel() == "Φ, 95 % intervals"


@pytest.mark.parametrize(("size", "low", "high"), [(20, 5.0, 40.0), (3, 1.0, 6.0)])
def test_curves_of_one_size_go_from_a_quarter_of_it_to_twice_it(size, low, high):
    formula, frame = balanced("crossed", 3)
    frame["z"] = frame["y"] ** 2
    found = vcomp.compare_measures(
        "~" + formula.partition("~")[2], frame, responses=["y", "z"], b=size
    )
    curves = [line for line in found.plot("curves").lines if line.get_linestyle() == "-"]
    assert len(curves) >= 2
    for line in curves[:2]:
        x = line.get_xdata()
        assert (x[0], x[-1]) == pytest.approx((low, high))
        assert np.diff(np.log(x)).std() < 1e-9


@pytest.mark.filterwarnings("ignore:.*(response is constant|could not be fitted)")
def test_pictures_of_the_only_measure_that_could_be_fitted():
    formula, frame = balanced("crossed", 3)
    frame["flat"] = 1.0
    found = vcomp.compare_measures(formula[1:], frame, responses=["y", "flat"], b=[10, 40])
    assert list(found.failures) == ["flat"]
    line = next(x for x in found.plot("curves").lines if x.get_linestyle() == "-")
    x, y = line.get_data()
    assert (x[0], x[-1]) == pytest.approx((10.0, 40.0))
    assert y[[0, -1]] == pytest.approx(found.table["Erho2"])
    assert found.plot().get_xlabel() == "coefficient with b = 10, 95 % intervals"


def test_curves_with_other_sizes_held():
    formula, frame = balanced("three facets", 2)
    frame["z"] = frame["y"] ** 2
    found = vcomp.compare_measures(
        "~" + formula.partition("~")[2], frame, responses=["y", "z"], b=[5, 10], c=[2, 4]
    )
    with pytest.raises(PlanError, match="the facet of the horizontal axis is not known"):
        found.plot("curves")
    ax = found.plot("curves", x="b")
    assert ax.get_xlabel() == "levels of b  (with c = 2)"
    (points,) = [x for x in ax.lines if x.get_label() == "y"]
    rows = found.table.query("measure == 'y' and c == 2")
    np.testing.assert_array_equal(points.get_ydata(), rows["Erho2"])
    with pytest.raises(PlanError, match="'d' does not have a size in all measures"):
        found.plot("curves", x="d")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "bars"}, "kind must be 'dots' or 'curves'"),
        ({"coefficient": "Rho"}, "not 'Rho'"),
        ({"coefficient": []}, "not none"),
        ({"plan": 2}, "from 0 to 1, not 2"),
        ({"plan": True}, "not True"),
    ],
)
def test_pictures_of_measures_that_cannot_be(compared, arguments, message):
    with pytest.raises(PlanError, match=message):
        compared.plot(**arguments)


def test_more_measures_than_lines():
    table = pd.DataFrame(
        {"measure": [str(i) for i in range(13)], "n": 5, "Phi": 0.5, "Phi_low": NAN,
         "Phi_high": NAN}
    )  # fmt: skip
    with pytest.raises(PlanError, match="13 measures make as many lines, and 12"):
        plots.measure_curves(table, "n", "Phi")
    assert len(drawn_text(plots.measures(table, ["Phi"]))) == 13
    with pytest.raises(DataError, match="the table of measures has no column"):
        plots.measures(table, ["Erho2"])
    ax = plots.measure_curves(table[:2], "n", "Phi", goal=0.9)
    assert len(segments(ax)) == 0


def test_spans(study):
    ax = study.plot(x="a")
    table = study.table.query("quantity == 'Erho2'")
    lines = {line.get_label(): line for line in ax.lines}
    assert list(lines) == ["b = 4", "b = 9"]
    for size in (4, 9):
        rows = table[table["b"] == size]
        np.testing.assert_array_equal(lines[f"b = {size}"].get_xdata(), rows["a"])
        np.testing.assert_array_equal(lines[f"b = {size}"].get_ydata(), rows["span"])
    assert ax.get_ylabel() == "Eρ²\nlength of the 95 % span"
    assert ax.get_ylim()[0] == 0.0
    assert study.plot().get_xlabel() == "levels of a in a subset"


def test_values_with_their_spans(study):
    ax = study.plot("Phi", x="a", kind="values")
    table = study.table.query("quantity == 'Phi'")
    assert len(bands(ax)) == 2
    lines = {line.get_label(): line for line in ax.lines}
    rows = table[table["b"] == 9]
    np.testing.assert_array_equal(lines["b = 9"].get_ydata(), rows["median"])
    full = [line for line in ax.lines if line.get_color() == plots.canvas.GREY]
    assert full[0].get_ydata()[0] == study.full("Phi")
    many = study.plot("Phi", x="b", kind="values")
    assert not bands(many)
    ends = np.array([segment[:, 1] for segment in segments(many)])
    assert len(ends) == 6
    low, high = many.get_ylim()
    assert low < ends.min()
    assert ends.max() < high


def test_names_of_what_is_drawn(study):
    assert study.plot("a").get_ylabel() == "σ²(a)\nlength of the 95 % span"
    # A long label is not cut off.
    table = study.table.query("quantity == 'Phi'")
    ax = plots.subsets(table, "a", ["b"], label="topic needed for Φ = 0.95")
    ax.figure.draw_without_rendering()
    box = ax.yaxis.label.get_window_extent()
    assert 0 <= box.y0 < box.y1 <= ax.figure.bbox.height
    needed = study.plot("n_Phi", x="a", kind="values")
    assert needed.get_ylabel().startswith("b needed for Φ = 0.95\n")


def test_infinite_ends_are_left_out():
    table = pd.DataFrame({"t": [5, 10], "low": [2.0, 3.0], "median": [9.0, 8.0],
                          "high": [INF, 50.0], "span": [INF, 47.0]})  # fmt: skip
    ax = plots.subsets(table, "t", kind="values", label="n")
    assert ax.get_yscale() == "log"
    assert ax.get_ylim()[1] < 100.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"what": "Rho"}, "'Rho' was not estimated"),
        ({"kind": "bars"}, "kind must be 'span' or 'values'"),
        ({"x": "c"}, "levels of 'c' were not drawn"),
    ],
)
def test_pictures_of_subsets_that_cannot_be(study, arguments, message):
    with pytest.raises(PlanError, match=message):
        study.plot(**arguments)


def test_more_sizes_than_lines():
    table = pd.DataFrame({"t": 5, "s": range(13), "low": 0.1, "median": 0.2, "high": 0.3,
                          "span": 0.2})  # fmt: skip
    with pytest.raises(PlanError, match="13 sizes of s make as many lines"):
        plots.subsets(table, "t", ["s"])
    with pytest.raises(DataError, match="the table of subsets has no column 'x'"):
        plots.subsets(table, "x")

"""D-studies as pictures: the lines are the coefficients, the bands their intervals."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.designs import balanced
from tests.helpers.drawn_axes import (
    INF,
    bands,
    colour_of,
    curve_of,
    legend,
    segments,
)
from vcomp import plots
from vcomp.exceptions import DataError, PlanError
from vcomp.gtheory.plan import make_plans
from vcomp.gtheory.study import DStudy
from vcomp.gtheory.study_record import project
from vcomp.inference.intervals.limits import Limits
from vcomp.plots.dependability import Required

PUBLISHED = vcomp.from_components(
    {"p": .00751, "i": .01596, "a": 0, "pi": .01258, "pa": .00002, "ia": .00143, "pia": .00176}
)  # fmt: skip


@pytest.fixture(scope="module")
def three_facets():
    formula, data = balanced("three facets", seed=2)
    return vcomp.fit(formula, data)


def test_coefficients_are_points_on_curves_with_bands(crossed):
    study = crossed.dstudy(b=[5, 10, 40], alpha=0.1)
    ax = study.plot()
    frame = study.table
    assert ax.get_xlabel() == "levels of b"
    assert ax.get_ylabel() == "coefficient"
    assert legend(ax) == ["Eρ²", "Φ"]
    assert ax.get_legend().get_title().get_text() == "90 % intervals"
    points = [line for line in ax.lines if line.get_linestyle() == "None"]
    for line, name, band in zip(points, ("Erho2", "Phi"), bands(ax), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), frame["b"])
        np.testing.assert_array_equal(line.get_ydata(), frame[name])
        corners = band.get_paths()[0].vertices
        for _, row in frame.iterrows():
            ends = sorted(set(corners[corners[:, 0] == row["b"], 1]))
            np.testing.assert_allclose(
                [ends[0], ends[-1]], row[[f"{name}_low", f"{name}_high"]].astype(float), rtol=1e-12
            )


def test_curves_are_the_dstudy_at_sizes_between(crossed):
    study = crossed.dstudy(b=[5, 10, 40])
    x, y = curve_of(study.plot(), "Φ").get_data()
    assert set(study.table["b"]) <= set(x)
    assert len(x) > 90
    np.testing.assert_allclose(y, crossed.dstudy(b=list(map(float, x))).table["Phi"], rtol=1e-12)


def test_a_line_for_every_combination_of_the_other_facets():
    study = PUBLISHED.dstudy(i=[5, 20, 100], a=[1, 2])
    ax = study.plot()  # most sizes are planned of i
    assert ax.get_xlabel() == "levels of i"
    assert legend(ax) == ["Eρ²  a = 1", "Eρ²  a = 2", "Φ  a = 1", "Φ  a = 2"]
    assert colour_of(ax, "Eρ²  a = 1") == colour_of(ax, "Φ  a = 1")
    assert colour_of(ax, "Eρ²  a = 1") != colour_of(ax, "Eρ²  a = 2")
    points = [line for line in ax.lines if line.get_linestyle() == "None"]
    wanted = [(c, a) for c in ("Erho2", "Phi") for a in (1, 2)]
    for line, (name, a) in zip(points, wanted, strict=True):
        np.testing.assert_array_equal(
            line.get_ydata(), study.table.loc[study.table["a"] == a, name]
        )
    # no intervals are known of published components: none are drawn or named
    assert not bands(ax)
    assert ax.get_legend().get_title().get_text() == ""
    assert not segments(ax)


def test_more_lines_have_whiskers_side_by_side(three_facets):
    study = three_facets.dstudy(b=[5, 10, 20], c=[2, 4, 8, 16], object="a")
    ax = study.plot(coefficient="Phi")
    assert ax.get_xlabel() == "levels of c"
    assert ax.get_ylabel() == "Φ"
    assert not bands(ax)
    frame = study.table.sort_values(["b", "c"])
    expected = frame[["c", "Phi_low", "Phi_high"]].to_numpy(dtype=float)
    drawn = np.array([[s[0, 0], s[0, 1], s[1, 1]] for s in segments(ax)])
    np.testing.assert_array_equal(drawn, expected)
    offsets = {tuple(c.get_transform().transform((5.0, 0.5))) for c in ax.collections}
    assert len(offsets) == 3


def test_many_lines_have_whiskers_at_the_largest_size_only(three_facets):
    study = three_facets.dstudy(b=[5, 10, 20], c=[2, 4, 8, 16, 32], object="a")
    ax = study.plot()
    assert "at the largest number of levels of c" in ax.get_legend().get_title().get_text()
    frame = study.table[study.table["c"] == 32].sort_values("b")
    expected = [frame[[f"{name}_low", f"{name}_high"]].to_numpy() for name in ("Erho2", "Phi")]
    drawn = np.array([[s[0, 1], s[1, 1]] for s in segments(ax)])
    np.testing.assert_array_equal(drawn, np.concatenate(expected))


def test_the_facet_and_the_coefficient_can_be_chosen():
    study = PUBLISHED.dstudy(i=[5, 20, 100], a=[1, 2])
    ax = study.plot("a", "Erho2")
    assert ax.get_xlabel() == "levels of a"
    assert ax.get_ylabel() == "Eρ²"
    assert legend(ax) == ["Eρ²  i = 5", "Eρ²  i = 20", "Eρ²  i = 100"]
    with pytest.raises(PlanError, match=r"'p' has no size.*one of \['i', 'a'\]"):
        study.plot("p")
    with pytest.raises(PlanError, match="coefficient is 'Erho2', 'Phi' or both, not 'phi'"):
        study.plot(coefficient="phi")
    with pytest.raises(PlanError, match="not none"):
        study.plot(coefficient=())
    with pytest.raises(PlanError, match="7 combinations of sizes of a and 2 coefficients make 14"):
        PUBLISHED.dstudy(i=range(1, 9), a=range(1, 8)).plot()


def test_sizes_that_do_not_vary_are_told_below():
    g = vcomp.from_components({"p": 0.5, "h": 0.1, "p:h": 0.2, "i:h": 0.3, "Residual": 1.0})
    study = g.dstudy("p x (i:h)", i=[5, 10], h=3)
    assert study.plot("i").get_xlabel() == "levels of i in each h  (with h = 3)"


def test_a_goal_says_which_size_reaches_it(crossed):
    study = crossed.dstudy(b=[5, 10])
    ax = study.plot(goal=0.9)
    for label, name in zip(legend(ax), ("Erho2", "Phi"), strict=True):
        needs = study.required(0.9, name)
        size, low, high = map(vcomp.display.count, (needs.n, needs.low, needs.high))
        assert label.endswith(f"0.9 at {size} ({low} to {high})")
    assert any(list(line.get_ydata()) == [0.9, 0.9] for line in ax.lines)
    drops = [line for line in ax.lines if line.get_linestyle() == ":"]
    assert [line.get_xdata()[0] for line in drops] == [
        study.required(0.9, name).n for name in ("Erho2", "Phi")
    ]
    with pytest.raises(PlanError, match="between 0 and 1, not 95"):
        study.plot(goal=95)


def test_every_combination_has_its_own_required_size():
    study = PUBLISHED.dstudy(i=[5, 20], a=[1, 2])
    sizes = [PUBLISHED.dstudy(i=5, a=a).required(0.9, c, "i").n for c in ("Erho2", "Phi")
             for a in (1, 2)]  # fmt: skip
    assert [label.split(" at ")[1] for label in legend(study.plot("i", goal=0.9))] == [
        str(n) for n in sizes
    ]
    labels = legend(study.plot("a", goal=0.99))
    assert labels[0] == "Eρ²  i = 5:  0.99 is out of reach"


def test_one_plan_has_a_curve_around_it_and_the_gstudys_own_has_none(crossed):
    ax = crossed.dstudy(b=8).plot()
    x = curve_of(ax, "Eρ²").get_xdata()
    assert (x.min(), x.max()) == (2.0, 16.0)
    formula, data = balanced("crossed", seed=1)
    unbalanced = vcomp.fit(formula, data.drop(index=range(0, 60, 7)))
    own = unbalanced.dstudy().plot()
    table = unbalanced.dstudy().table
    assert not bands(own)
    erho2, phi = segments(own)
    np.testing.assert_array_equal(erho2[:, 1], table[["Erho2_low", "Erho2_high"]].iloc[0])
    np.testing.assert_array_equal(phi[:, 1], table[["Phi_low", "Phi_high"]].iloc[0])


def test_coefficients_without_value_can_be_drawn():
    study = vcomp.from_components({"p": 0.0, "i": 0.0, "Residual": 0.0}).dstudy(i=[1, 2])
    assert study.table["Phi"].isna().all()
    study.plot().figure.canvas.draw()


def test_a_table_alone_can_be_drawn():
    frame = PUBLISHED.dstudy(i=[5, 20], a=1).table
    needs = {("Phi", (1.0,)): Required(7.0, 3.0, INF)}
    ax = plots.dstudy(
        frame, "i", ["a"], coefficients=["Phi"], goal=0.8, required=needs, xlabel="queries"
    )
    assert legend(ax) == ["Φ:  0.8 at 7 (3 to ∞)"]
    assert ax.get_xlabel() == "queries"
    np.testing.assert_array_equal(curve_of(ax, legend(ax)[0]).get_ydata(), frame["Phi"])
    with pytest.raises(DataError, match="no column 'Phi_low'"):
        plots.dstudy(frame.drop(columns="Phi_low"), "i", ["a"])
    with pytest.raises(PlanError, match="not 'rho'"):
        plots.dstudy(frame, "i", ["a"], coefficients=["rho"])


class Slow:
    """A source of intervals ± 0.1 that must not be asked for more than the planned sizes."""

    interval = "profile"

    def limits(self, quantities, alpha):
        values = quantities.values(np.array([0.5, 0.2, 1.0]))
        assert len(values) == 2
        return Limits(values - 0.1, values + 0.1, "slow")


def test_slow_intervals_stand_at_the_planned_sizes_alone():
    g = vcomp.from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).components
    study = project(DStudy, g, make_plans(g, n={"i": [10, 20]}), source=Slow())
    ax = study.plot()
    assert not bands(ax)
    ends = np.array([segment[:, 1] for segment in segments(ax)])
    table = study.table
    expected = [table[[f"{c}_low", f"{c}_high"]].to_numpy() for c in ("Erho2", "Phi")]
    np.testing.assert_array_equal(ends, np.concatenate(expected))
    assert len(curve_of(ax, "Φ").get_xdata()) > 90


def test_curves_end_where_the_universe_does():
    study = PUBLISHED.dstudy(i=[10, 20], a=3, universe={"a": 4, "i": 25})
    for facet, largest in (("a", 4), ("i", 25)):
        x, y = curve_of(study.plot(x=facet), "Φ" if facet == "i" else "Φ  i = 10").get_data()
        assert max(x) <= largest
        assert max(y) < 1.0


def test_curves_of_the_only_random_facet_end_before_nothing_is_left_of_error():
    study = vcomp.from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(
        i=3, universe={"i": 6}
    )
    x, y = curve_of(study.plot(), "Φ").get_data()
    assert max(x) < 6
    assert 0.9 < max(y) < 1.0


@pytest.mark.parametrize("coefficient", [3, None, [["Phi"]]])
def test_coefficients_have_names(coefficient):
    with pytest.raises(PlanError, match="coefficient is 'Erho2', 'Phi' or both"):
        PUBLISHED.dstudy(i=20, a=3).plot(coefficient=coefficient)

"""The frontier as a picture: its lines are the tables, its mark the recommendation."""

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.drawn_axes import legend, segments
from vcomp import plots
from vcomp.exceptions import DataError, PlanError

VALUES = {"p": .00751, "i": .01596, "a": .0004, "pi": .01258, "pa": .0002, "ia": .00143,
          "pia": .00176}  # fmt: skip
STUDY = vcomp.from_components(VALUES, cov=np.diag(np.square(list(VALUES.values())) / 20)).dstudy(
    i=1, a=1
)
KINDS = ["p x i x a", "p x (a:i)"]


def curve(ax, label):
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return line


def test_lines_are_the_frontiers_and_the_mark_is_the_best():
    found = STUDY.optimize("10*i + i*a + 100", budget=300, designs=KINDS, coefficient="Phi")
    ax = found.plot()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("cost", "Φ")
    for design, table in found.frontiers.tables.items():
        line = curve(ax, design.replace(" x ", " × "))
        np.testing.assert_array_equal(line.get_xdata(), table["cost"])
        np.testing.assert_array_equal(line.get_ydata(), table["Phi"])
        assert line.get_drawstyle() == "steps-post"
    assert legend(ax)[-1] == "budget 300"
    chosen = ", ".join(f"{f} = {n}" for f, n in found.best.sizes.items())
    mark = curve(ax, f"chosen: {chosen}\n(95 % interval)")
    row = found.best.study.table.iloc[0]
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (found.best.cost, row["Phi"])
    (whisker,) = segments(ax)
    np.testing.assert_allclose(whisker[:, 1], [row["Phi_low"], row["Phi_high"]])


def test_a_goal_and_another_coefficient():
    found = STUDY.optimize("10*i + i*a", goal=0.95)
    assert legend(found.plot())[-1] == "goal 0.95"
    ax = found.plot("abs_err_var")
    assert ax.get_ylabel() == "absolute error variance σ²(Δ)"
    assert not any("goal" in text for text in legend(ax))
    with pytest.raises(PlanError, match=r"not 'phi' \(did you mean 'Phi'\?\)"):
        found.plot("phi")


def test_thinned_frontiers_have_no_steps():
    found = STUDY.optimize("i*a", budget=1e5)
    line = curve(found.plot(), "p × i × a")
    assert line.get_drawstyle() == "default"
    assert found.plot().get_xscale() == "log"


def test_its_own_axes_and_faults():
    from matplotlib.figure import Figure

    own = Figure().subplots()
    table = pd.DataFrame({"cost": [1.0, 2.0], "Phi": [0.2, 0.5]})
    assert plots.frontier({"a$b": table}, "Phi", ax=own) is own
    assert legend(own) == [r"a\$b"]
    with pytest.raises(DataError, match="no column 'Erho2'"):
        plots.frontier({"a": table})
    with pytest.raises(PlanError, match="coefficient must be"):
        plots.frontier({"a": table}, "tau")
    with pytest.raises(PlanError, match="no frontier"):
        plots.frontier({})

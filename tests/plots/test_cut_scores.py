import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import vcomp
from vcomp import plots
from vcomp.exceptions import DataError, PlanError

RES = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))


def axes():
    return Figure().subplots()


def test_the_curve_is_the_table():
    study = RES.dstudy(topic=[3, 12])
    ax = study.plot_phi_lambda(np.linspace(0.3, 1.0, 9), ax=axes())
    curves = [line for line in ax.lines if len(line.get_xdata()) == 9]
    table = study.phi_lambda(np.linspace(0.3, 1.0, 9))
    for topics, line in zip((3, 12), curves, strict=True):
        expected = table[table["topic"] == topics]["estimate"]
        np.testing.assert_array_equal(line.get_ydata(), expected)
    texts = [t.get_text() for t in ax.get_legend().get_texts()]
    assert texts == ["topic = 3", "topic = 12", "mean score"]
    assert len(ax.collections) == 2  # two bands


def test_without_cut_scores_three_standard_deviations_are_drawn():
    ax = RES.dstudy(topic=5).plot_phi_lambda(ax=axes())
    x = ax.lines[0].get_xdata()
    sd = RES.vcomp["sys"] ** 0.5
    mean = RES.fe_params.iloc[0]
    np.testing.assert_allclose([x[0], x[-1]], [mean - 3 * sd, mean + 3 * sd])
    # Decisions are the least dependable around the mean.
    y = ax.lines[0].get_ydata()
    assert y[np.argmin(abs(x - mean))] == y.min()


def test_a_mean_is_asked_for_where_there_is_none():
    study = vcomp.from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=10)
    with pytest.raises(PlanError, match="compares the mean of all scores with the cut score"):
        study.plot_phi_lambda(ax=axes())


def test_errors():
    with pytest.raises(PlanError, match="9 curves cannot be distinguished"):
        RES.dstudy(topic=range(1, 10)).plot_phi_lambda(0.5, ax=axes())
    with pytest.raises(DataError, match="no column 'low'"):
        plots.cut_scores({"a": pd.DataFrame({"cut": [1], "estimate": [1]})}, ax=axes())

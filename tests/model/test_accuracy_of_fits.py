"""Accuracy from a fit: its own components, its cell means, and what a design does not have."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.exceptions import DataError, PlanError

FORMULA = "score ~ (1|sys) + (1|topic)"


@pytest.fixture(scope="module")
def scores():
    return vcomp.datasets.load("docsearch").query("query == 'keywords'").reset_index(drop=True)


@pytest.fixture(scope="module")
def res(scores):
    return vcomp.fit(FORMULA, scores)


def of(accuracy, measure):
    return accuracy.table[accuracy.table["measure"] == measure].reset_index(drop=True)


def test_each_measure_is_that_of_the_fit(res):
    made = res.accuracy(topic=[50, 150])
    study = res.dstudy(topic=[50, 150])
    for name in ("Erho2", "Phi"):
        for column in ("", "_low", "_high"):
            mine = of(made, name)[column.lstrip("_") or "estimate"]
            np.testing.assert_array_equal(mine, study.table[name + column])
    sem = study.quantity("abs_sem")
    pd.testing.assert_frame_equal(
        of(made, "rmse")[["estimate", "low", "high"]], sem[["estimate", "low", "high"]]
    )
    for name, table in (
        ("tau", res.expected_tau(topic=[50, 150])),
        ("tau_ap", res.expected_tau(variant="ap", topic=[50, 150])),
    ):
        columns = ["n", "estimate", "low", "high"]
        pd.testing.assert_frame_equal(of(made, name)[columns], table[columns])


def test_it_is_that_of_the_matrix(res, scores):
    matrix = scores.pivot(index="topic", columns="sys", values="score")
    names = ["tau", "Erho2", "F", "p_value"]
    mine = res.accuracy(names, topic=40, trials=10, rng=1).table
    bare = vcomp.ir.accuracy(matrix, names, 40, trials=10, rng=1).table
    pd.testing.assert_frame_equal(mine, bare, rtol=1e-6)


def test_options_go_to_the_dstudy(res):
    wald = res.accuracy("Phi", interval="wald", alpha=0.2, topic=60).table.iloc[0]
    study = res.dstudy(topic=60, interval="wald", alpha=0.2).table.iloc[0]
    assert (wald["low"], wald["high"]) == (study["Phi_low"], study["Phi_high"])


def test_replicates_give_intervals_too(res):
    replicates = res.bootstrap(60, rng=1)
    made = res.accuracy(["Erho2", "rmse"], interval=replicates, topic=60)
    study = res.dstudy(topic=60, interval=replicates)
    assert of(made, "Erho2")["low"].item() == study.table["Erho2_low"].item()
    assert np.isfinite(made.table[["low", "high"]].to_numpy()).all()


def test_topics_can_be_what_is_ranked(res):
    made = res.accuracy(["tau", "Erho2"], sys=[44, 88])
    assert made.facets == ("topic", "sys")
    assert made.counts == (150, 44)
    pd.testing.assert_series_equal(
        of(made, "tau")["estimate"], res.expected_tau(sys=[44, 88])["estimate"]
    )
    assert of(made, "Erho2")["estimate"][0] == res.dstudy(object="topic").table["Erho2"][0]


def test_without_a_size_it_is_the_tests_own(res):
    made = res.accuracy(["tau", "Phi"])
    assert made.table["n"].tolist() == [150, 150]
    columns = ["n", "estimate", "low", "high"]
    pd.testing.assert_frame_equal(of(made, "tau")[columns], res.expected_tau()[columns])
    assert made.facets == ("sys", "topic")


def test_several_scores_a_cell_are_averaged():
    data = vcomp.datasets.load("docsearch")
    res = vcomp.fit("score ~ (1|sys*topic)", data)
    made = res.accuracy(["tau", "Erho2"], topic=[30, 150])
    means = data.groupby(["topic", "sys"])["score"].mean().unstack()
    np.testing.assert_allclose(
        of(made, "tau")["estimate"],
        vcomp.ir.expected_tau(means, [30, 150])["estimate"],
        rtol=1e-9,
    )
    bare = vcomp.ir.accuracy(means, "Erho2", [30, 150])
    np.testing.assert_allclose(of(made, "Erho2")["estimate"], bare.table["estimate"], rtol=1e-6)


def test_loaded_results_know_it_too(res):
    again = vcomp.VarianceComponentsResults.from_json(res.to_json())
    pd.testing.assert_frame_equal(again.accuracy(topic=50).table, res.accuracy(topic=50).table)


def test_more_facets_have_what_dstudies_have():
    data = vcomp.datasets.load("docsearch")
    res = vcomp.fit("score ~ (1|sys) + (1|topic) + (1|query) + (1|sys:topic)", data)
    made = res.accuracy(topic=[50, 150])
    study = res.dstudy(topic=[50, 150])
    assert list(made.measures) == ["Erho2", "Phi", "rmse"]
    np.testing.assert_array_equal(of(made, "Phi")["estimate"], study.table["Phi"])
    with pytest.raises(PlanError, match="'tau' is estimated from the cell means of two crossed"):
        res.accuracy(["Phi", "tau"], topic=50)
    with pytest.raises(PlanError, match="'F' is estimated from the cell means"):
        res.accuracy("F", topic=50)
    with pytest.raises(PlanError, match=r"such as query=50; .* sizes are given for none"):
        res.accuracy()


def test_profiles_are_not_drawn_between_the_sizes(res):
    made = res.accuracy(["tau", "Erho2"], interval="profile", topic=[50, 100])
    (ax,) = made.plot()
    drawn = [len(line.get_xdata()) for line in ax.lines if line.get_linestyle() in ("-", "--")]
    # A line of τ, and a straight one of Eρ², each with the two edges of its band.
    assert [n for n in drawn if n] == [40, 40, 40, 2, 2, 2]


def test_empty_cells(scores):
    some = scores.drop(index=[5, 700])
    res = vcomp.fit(FORMULA, some)
    made = res.accuracy(["tau", "Phi"], topic=50)
    assert made.table["estimate"].between(0.3, 1.0).all()
    with pytest.raises(DataError, match=r"sens_abs has no estimator of its own.* 2 of 6,600 are"):
        res.accuracy("sens_abs", topic=50)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topics": 50}, r"no facet 'topics' \(did you mean 'topic'\?\); the facets are 'sys'"),
        (
            {"topic": 50, "sys": 20},
            r"one facet, and topic and sys have sizes; expected_tau\(topic=50, sys=20\)",
        ),
        ({"topic": 0}, "must be positive, not 0"),
        ({"topic": "many"}, "must be positive, not 'many'"),
        ({"topic": []}, "no number of topics is given"),
        ({"topic": 5, "measures": "tua"}, r"no measure 'tua' \(did you mean 'tau'\?\)"),
        ({"topic": 5, "measures": "tau", "trials": 7}, "trials= applies to measures that are"),
        ({"topic": 5, "estimator": "own"}, "'shrunken', 'urbano' or 'split_half', not 'own'"),
        (
            {"topic": 5, "measures": "tau", "interval": "wald"},
            "interval= applies to measures from a D-study",
        ),
        ({"topic": 5, "alpha": 0}, "alpha must be between 0 and 1"),
        ({"topic": 5, "sizes": {"topic": 5}}, "topic"),
    ],
)
def test_mistakes(res, given, message):
    with pytest.raises(PlanError, match=message):
        res.accuracy(**given)


def test_results_without_facets_to_sample():
    res = vcomp.fit("score ~ (1|sys)", vcomp.datasets.load("bodoff2007_alpha"))
    with pytest.raises(PlanError, match="the facets are 'sys', and sizes are given for none"):
        res.accuracy()

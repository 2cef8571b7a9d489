"""Published components and D-studies as JSON and back."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.gtheory import PublishedComponents

MADE = {
    "values alone": lambda: vcomp.from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}),
    "sizes and mean": lambda: vcomp.from_components(
        {"p": 0.5, "i": 0.2, "Residual": 1.0}, sizes={"p": 20, "i": 8}, mean=0.4
    ),
    "mean squares": lambda: vcomp.from_mean_squares(
        {"p": 5.0, "i": 3.0, "pi": 1.0}, df={"p": 19, "i": 7, "pi": 133}
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_everything_is_as_before(name, tmp_path):
    published = MADE[name]()
    published.to_json(tmp_path / "published.json")
    for source in (tmp_path / "published.json", published.to_json()):
        again = PublishedComponents.from_json(source)
        assert str(again.summary()) == str(published.summary())
        before, after = published.dstudy(i=[5, 10]), again.dstudy(i=[5, 10])
        np.testing.assert_array_equal(before.table, after.table)
        assert before.notes == after.notes


def test_other_json_and_damage_are_refused():
    text = MADE["mean squares"]().to_json()
    fit = vcomp.fit("score ~ (1|sys)", vcomp.datasets.load("bodoff2007_alpha")).to_json()
    with pytest.raises(vcomp.DataError, match="not published components"):
        PublishedComponents.from_json(fit)
    stored = json.loads(text)
    stored["components"]["values"] = [1.0]
    with pytest.raises(vcomp.DataError, match="incomplete or damaged"):
        PublishedComponents.from_json(json.dumps(stored))


@pytest.mark.parametrize(
    "plan", [{"i": [5, 10]}, {"i": 10, "universe": {"i": 40}}, {"design": "i:p", "i": 3}]
)
@pytest.mark.parametrize("name", MADE)
def test_a_d_study_is_as_before(name, plan):
    study = MADE[name]().dstudy(**plan)
    again = vcomp.DStudy.from_json(study.to_json())
    assert again.table.equals(study.table)
    assert str(again.summary()) == str(study.summary())
    assert again.to_json() == study.to_json()
    assert str(again.required(0.8)) == str(study.required(0.8))


def test_a_d_study_of_a_fit_is_stored_unless_intervals_need_more(tmp_path):
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
    study = res.dstudy(topic=[10, 20])
    study.to_json(tmp_path / "study.json")
    again = vcomp.DStudy.from_json(tmp_path / "study.json")
    assert again.table.equals(study.table)
    assert str(again.summary()) == str(study.summary())
    with pytest.raises(vcomp.PlanError, match="JSON would lose them"):
        res.dstudy(topic=10, interval=res.bootstrap(20, rng=1)).to_json()
    # As the message says: intervals from the components are those of the D-study that is read.
    advised = res.dstudy(topic=10, interval="auto")
    assert vcomp.DStudy.from_json(advised.to_json()).table.equals(advised.table)


def _study(interval):
    rng = np.random.default_rng(5)
    p, i = (axis.ravel() for axis in np.indices((24, 12)))
    y = rng.normal(size=24)[p] + rng.normal(size=12)[i] + rng.normal(size=p.size)
    res = vcomp.fit("y ~ (1|p) + (1|i)", pd.DataFrame({"p": p, "i": i, "y": y}))
    return res.dstudy(object="p", i=[5, 10], interval=interval)


@pytest.mark.parametrize("interval", ["auto", "robust", "wald"])
def test_a_stored_study_of_a_fit_answers_all_that_the_study_does(interval):
    study = _study(interval)
    again = vcomp.DStudy.from_json(study.to_json())
    assert again.source.interval == study.source.interval
    for asked in (
        lambda s: s.phi_lambda([0.5, 1.0]),
        lambda s: s.required(0.9).table,
        lambda s: s.quantity("Phi"),
        lambda s: s.quantity("abs_sem", se="unbiased"),
    ):
        pd.testing.assert_frame_equal(asked(again), asked(study), rtol=1e-14)
    assert str(again.summary()) == str(study.summary())


def test_a_study_stored_without_influences_is_printed_and_plans_under_normal_effects():
    study = _study("robust")
    stored = json.loads(study.to_json())
    assert stored["source"]["interval"] == "robust"
    stored["source"] = "robust"  # as versions before influences wrote it
    again = vcomp.DStudy.from_json(json.dumps(stored))
    pd.testing.assert_frame_equal(again.table, study.table)
    assert again.required(0.9).table["n"].equals(study.required(0.9).table["n"])
    normal = _study("mls").required(0.9).table
    pd.testing.assert_frame_equal(
        again.required(0.9).table[["low", "high"]], normal[["low", "high"]]
    )
    assert "no influences were stored" in str(again.summary())
    assert str(again.summary().tables[0]) == str(study.summary().tables[0])

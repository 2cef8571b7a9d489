"""Published components and D-studies as JSON and back."""

from __future__ import annotations

import json

import numpy as np
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

"""Measures, intervals and estimators of installed packages are found by their names."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import vcomp

MODULE = """
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
from vcomp.estimators import get_estimator
from vcomp.inference.intervals import Limits
from vcomp.ir.measures import MeanMeasure, Extrapolated

@dataclass(frozen=True)
class Regret(Extrapolated, MeanMeasure):
    name: ClassVar[str] = "regret"
    symbol: ClassVar[str] = "regret"
    limits: ClassVar[tuple[float, float]] = (0.0, np.inf)
    larger_is_better: ClassVar[bool] = False

    def actual_of_means(self, means, true_means):
        chosen = means == means.max(axis=-1, keepdims=True)
        of_chosen = (true_means * chosen).sum(axis=-1) / chosen.sum(axis=-1)
        return true_means.max(axis=-1) - of_chosen

class Twice:
    interval = "twice"

    def __init__(self, components):
        self.components = components

    def __len__(self):
        return 0

    def limits(self, quantities, alpha):
        values = quantities.values(self.components.values)
        return Limits(values / 2, values * 2, "half to twice")

@dataclass(frozen=True)
class Doubled:
    name: ClassVar[str] = "doubled"
    factor: float = 2.0

    def estimate(self, stats, names):
        from dataclasses import replace
        made = get_estimator("anova").estimate(stats, names)
        return replace(made, values=self.factor * made.values, method="doubled")

INSTANCE = Doubled()

@dataclass
class WithoutEstimate:
    pass
"""
POINTS = """
[vcomp.measures]
regret = plugged_parts:Regret
absent = module_that_is_not_there:Measure
wrong = plugged_parts:MODULE_IS_NOT

[vcomp.intervals]
twice = plugged_parts:Twice
wrong = plugged_parts:dataclass

[vcomp.estimators]
doubled = plugged_parts:Doubled
wrong = plugged_parts:np
instance = plugged_parts:INSTANCE
without = plugged_parts:WithoutEstimate
"""


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """Put a package with entry points on the path, as if it were installed."""
    (tmp_path / "plugged_parts.py").write_text(MODULE)
    folder = tmp_path / "plugged-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("plugged_parts", None)


@pytest.fixture(scope="module")
def res():
    data = vcomp.datasets.load("bodoff2007_alpha")
    return vcomp.fit("score ~ (1|sys) + (1|topic)", data, method="anova")


def test_a_measure_is_listed_without_an_import():
    assert "regret" in vcomp.ir.measures.available()
    assert "plugged_parts" not in sys.modules


def test_a_measure_is_used_by_name():
    matrix = vcomp.ir.ScoreMatrix.from_long(
        vcomp.datasets.load("docsearch").query("query == 'keywords'"), system="sys"
    )
    assert "regret" in str(vcomp.ir.accuracy(matrix, ["regret"], [75], rng=1, trials=5))


def test_an_interval_is_used_by_name(res):
    low, high = res.conf_int(interval="twice").filter(like="sys", axis=0).to_numpy()[0]
    np.testing.assert_allclose([low, high], [res.vcomp["sys"] / 2, res.vcomp["sys"] * 2])
    study = res.dstudy(topic=20, interval="twice")
    assert "half to twice" in str(study.summary())
    published = vcomp.from_components({"p": 2.0, "Residual": 4.0})
    assert published.gstudy(interval="twice").loc["p", "high"] == 4.0


def test_an_interval_by_name_serves_studies_of_components_tables_and_several_scores():
    data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
    components = vcomp.from_components({"p": 2.0, "i": 1.0, "Residual": 4.0}).components
    accuracy = vcomp.ir.accuracy(data, ["Phi"], system="sys", interval="twice")
    data["rr"] = data["score"] ** 2
    several = vcomp.fit_multivariate("score + rr ~ (1|sys) + (1|topic)", data)
    studies = [
        vcomp.gtheory.dstudy(components, i=4, interval="twice"),
        accuracy.dstudy,
        several.dstudy(topic=20, interval="twice").studies[0][1],
    ]
    for study in studies:
        assert "half to twice" in str(study.summary())


def test_an_estimator_is_used_by_name_and_stored(res):
    data = vcomp.datasets.load("bodoff2007_alpha")
    doubled = vcomp.fit("score ~ (1|sys) + (1|topic)", data, method="doubled", factor=3.0)
    np.testing.assert_allclose(doubled.vcomp, 3.0 * res.vcomp)
    again = vcomp.VarianceComponentsResults.from_json(doubled.to_json())
    np.testing.assert_allclose(again.vcomp, doubled.vcomp)
    with pytest.raises(vcomp.EstimationError, match="'doubled' takes factor, not 'tol'"):
        vcomp.fit("score ~ (1|sys)", data, method="doubled", tol=1.0)


def test_a_broken_package_is_named(res):
    data = vcomp.datasets.load("bodoff2007_alpha")
    for call, named in (
        (
            lambda: vcomp.ir.measures.get("absent"),
            "'plugged', which cannot be imported: ModuleNot",
        ),
        (lambda: vcomp.ir.measures.get("wrong"), "'plugged', which cannot be imported: Attribute"),
        (lambda: res.conf_int(interval="wrong"), "of the package 'plugged', which is not a func"),
        (
            lambda: vcomp.fit("score ~ (1|sys)", data, method="wrong"),
            "'plugged', which is not a d",
        ),
        *(
            (
                lambda name=name: vcomp.fit("score ~ (1|sys)", data, method=name),
                "'plugged', which is not a dataclass with the method estimate",
            )
            for name in ("instance", "without")
        ),
    ):
        with pytest.raises(vcomp.VcompError, match=named):
            call()


def test_unknown_names_are_refused_with_those_of_packages(res):
    with pytest.raises(vcomp.PlanError, match=r"there are tau, .*regret"):
        vcomp.ir.measures.get("kendall")
    with pytest.raises(vcomp.EstimationError, match="'minque', 'doubled'"):
        vcomp.fit("score ~ (1|sys)", vcomp.datasets.load("bodoff2007_alpha"), method="map")
    with pytest.raises(vcomp.EstimationError, match="interval='own' is not known"):
        res.conf_int(interval="own")

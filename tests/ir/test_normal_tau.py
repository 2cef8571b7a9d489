"""Eτ and Eτ_AP of normal effects from Eρ², against other formulae and simulated rankings."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import vcomp
from vcomp.exceptions import PlanError
from vcomp.ir.mapping import normal_tau, tau_ap_of_erho2, tau_of_erho2
from vcomp.ir.measures import Tau, TauAP


@pytest.mark.parametrize("erho2", [0.1, 0.5, 0.9])
def test_tau_is_the_probability_of_a_quadrant(erho2):
    rho = np.sqrt(erho2)
    both = multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf([0, 0])
    assert tau_of_erho2(erho2) == pytest.approx(4.0 * both - 1.0, rel=1e-9)


def test_two_systems_have_no_top():
    erho2 = np.linspace(0.0, 1.0, 11)
    np.testing.assert_allclose(tau_ap_of_erho2(erho2, 2), tau_of_erho2(erho2), atol=1e-9)


@pytest.mark.parametrize(("erho2", "k"), [(0.3, 5), (0.8, 25)])
def test_simulated_rankings(erho2, k):
    rng = np.random.default_rng(4)
    truth = rng.normal(size=(200, k))
    means = np.sqrt(erho2) * truth + np.sqrt(1.0 - erho2) * rng.normal(size=truth.shape)
    for measure, expected in (
        (Tau(), tau_of_erho2(erho2)),
        (TauAP(), tau_ap_of_erho2(erho2, k)),
    ):
        found = [measure.actual(np.array([x, x]), y) for x, y in zip(means, truth, strict=True)]
        error = np.std(found) / np.sqrt(len(found))
        assert expected == pytest.approx(np.mean(found), abs=3.0 * error)


def test_plans_of_several_facets_depend_on_their_erho2_alone():
    published = vcomp.from_components(
        {"p": 0.5, "i": 0.2, "a": 0.1, "p:i": 0.8, "p:a": 0.1, "Residual": 1.0}
    )
    study = published.dstudy("p x i x a", i=[10, 40], a=[2, 5])
    table = normal_tau(study, 12)
    assert table.columns.tolist() == ["i", "a", "measure", "estimate", "low", "high", "estimator"]
    erho2 = study.table["Erho2"].to_numpy()
    for measure, expected in (
        ("tau", tau_of_erho2(erho2)),
        ("tau_ap", tau_ap_of_erho2(erho2, 12)),
    ):
        rows = table[table["measure"] == measure]
        np.testing.assert_allclose(rows["estimate"], expected)
        assert rows["low"].isna().all()
    assert set(table["estimator"]) == {"normal"}


def test_intervals_are_those_of_the_coefficient():
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
    study = res.dstudy(topic=[5, 50])
    table, made = study.table, normal_tau(study)
    rows = made[made["measure"] == "tau"]
    for end in ("low", "high"):
        np.testing.assert_allclose(rows[end], tau_of_erho2(table[f"Erho2_{end}"]))
    ap = made[made["measure"] == "tau_ap"]
    np.testing.assert_allclose(ap["estimate"], tau_ap_of_erho2(table["Erho2"], 5))


def test_an_interval_beyond_one_ends_there():
    X = np.random.default_rng(1).normal(size=(5, 4)) + 1.5 * np.arange(4.0)
    frame = pd.DataFrame(X).rename_axis("t").reset_index().melt("t", var_name="s")
    study = vcomp.fit("value ~ (1|s) + (1|t)", frame).dstudy(t=5, interval="wald")
    assert study.table["Erho2_high"].item() > 1.0
    np.testing.assert_allclose(normal_tau(study)["high"], 1.0, rtol=1e-12)


def test_mistakes():
    study = vcomp.from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=10)
    with pytest.raises(PlanError, match="the number of p in the G-study is not known"):
        normal_tau(study)
    with pytest.raises(PlanError, match="at least two systems, not 1"):
        normal_tau(study, 1)
    with pytest.raises(PlanError, match="study is a D-study"):
        normal_tau(0.9)
    with pytest.raises(PlanError, match="between 0 and 1"):
        tau_of_erho2(1.1)

"""Named quantities of a plan, by the one function that estimates them all."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import vcomp
from vcomp.exceptions import EstimationError, PlanError

COV = np.diag([0.04, 0.01, 0.02])


@pytest.fixture(scope="module")
def res():
    return vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))


@pytest.fixture(scope="module")
def published():
    return vcomp.from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}, cov=COV)


@pytest.mark.parametrize("name", ["rel_err_var", "abs_err_var", "Erho2", "Phi"])
@pytest.mark.parametrize("method", ["auto", "mls", "log", "wald"])
def test_they_are_those_of_the_d_study(res, name, method):
    row = res.dstudy(topic=6, interval=method, alpha=0.1).table.iloc[0]
    found = res.quantity(name, topic=6, interval=method, alpha=0.1)
    expected = [row[name], row[f"{name}_se"], row[f"{name}_low"], row[f"{name}_high"]]
    np.testing.assert_allclose(
        [found.estimate, found.se, found.low, found.high], expected, rtol=1e-12
    )


def test_standard_errors_of_measurement_are_roots(published):
    for sem, var in (("rel_sem", "rel_err_var"), ("abs_sem", "abs_err_var")):
        root, square = published.quantity(sem, i=10), published.quantity(var, i=10)
        np.testing.assert_allclose(
            np.square([root.estimate, root.low, root.high]),
            [square.estimate, square.low, square.high],
            rtol=1e-12,
        )
        assert root.se == pytest.approx(square.se / (2 * root.estimate), rel=1e-12)


def test_signal_to_noise_is_the_odds_of_the_coefficient(published):
    for ratio, coefficient in (("rel_signal_noise", "Erho2"), ("abs_signal_noise", "Phi")):
        odds, share = published.quantity(ratio, i=10), published.quantity(coefficient, i=10)
        of_share = np.array([share.estimate, share.low, share.high])
        np.testing.assert_allclose(
            [odds.estimate, odds.low, odds.high], of_share / (1 - of_share), rtol=1e-9
        )


def test_required_size(published):
    study = published.dstudy(i=10, interval="log")
    required = study.required(0.9, "Phi")
    found = published.quantity("n", i=10, goal=0.9, coefficient="Phi", interval="log")
    assert found.estimate == pytest.approx(9 * 1.2 / 0.5, rel=1e-12)
    assert (found.low, found.high) == (required.low, required.high)
    # log n = log(σ²_i + σ²_e) − log σ²_p + log 9
    se = found.estimate * np.sqrt(0.04 / 0.25 + 0.03 / 1.44)
    assert found.se == pytest.approx(se, rel=1e-12)
    with pytest.raises(PlanError, match="coefficient is 'Erho2' or 'Phi', not 'alpha'"):
        published.quantity("n", i=10, coefficient="alpha")
    nothing = vcomp.from_components({"p": 0.0, "i": 1.0, "Residual": 1.0}, cov=COV)
    assert nothing.quantity("n", i=5).estimate == np.inf


def test_phi_lambda(res):
    """Brennan (2001, eq. 2.54), with the mean's variance taken from its square."""
    mean, variance = res.fe_params["Intercept"], res.bse_fe["Intercept"] ** 2
    tau, topic, error = res.vcomp
    away = (mean - 0.5) ** 2 - variance
    expected = (tau + away) / (tau + away + (topic + error) / 6)
    found = res.quantity("Phi_lambda", cut=0.5, topic=6)
    assert found.estimate == pytest.approx(expected, rel=1e-12)
    # Where the cut score is the mean it is Φ.
    for interval in ("auto", "log", "wald"):
        phi = res.quantity("Phi", topic=6, interval=interval)
        at_mean, away = (
            res.quantity("Phi_lambda", cut=cut, topic=6, interval=interval)
            for cut in (mean, mean + 0.2)
        )
        assert at_mean.estimate == pytest.approx(phi.estimate, rel=1e-12)
        assert (at_mean.low, at_mean.high) == (phi.low, phi.high)
        assert away.low >= phi.low
        assert away.high >= phi.high
    # The delta method once more, by complex steps in components and mean.
    total = np.block([[res.cov_vcomp().to_numpy(), np.zeros((3, 1))], [np.zeros(3), variance]])

    def f(theta):
        s, t, e, m = theta
        a = s + (m - 0.5) ** 2 - variance
        return a / (a + (t + e) / 6)

    theta = np.array([tau, topic, error, mean], dtype=complex)
    steps = np.array([f(theta + 1e-30j * row).imag / 1e-30 for row in np.eye(4)])
    se = np.sqrt(steps @ total @ steps)
    assert found.se == pytest.approx(se, rel=1e-9)
    reach = stats.norm.isf(0.025) * se / (expected * (1 - expected))
    low = 1 / (1 + (1 - expected) / expected * np.exp(reach))
    assert found.low == pytest.approx(low, rel=1e-9)
    with pytest.raises(PlanError, match="needs the cut score"):
        res.quantity("Phi_lambda", topic=6)
    with pytest.raises(EstimationError, match="depends on the fixed effects has no profile"):
        res.quantity("Phi_lambda", cut=0.5, topic=6, interval="profile")


def test_sentences(published):
    found = published.quantity("p", interval="wald", alpha=0.2)
    half = stats.norm.isf(0.1) * 0.2
    assert str(found) == (
        f"p = 0.5 (standard error 0.2), 80 % interval [{0.5 - half:.3g}, {0.5 + half:.3g}] by Wald"
    )


def test_negative_estimates():
    negative = vcomp.from_components({"p": 0.5, "i": -0.2, "Residual": 1.0}, cov=COV)
    assert negative.quantity("i").estimate == -0.2
    assert negative.quantity("i", negative="zero").estimate == 0.0
    zero = negative.quantity("abs_err_var", i=10)
    assert zero.estimate == pytest.approx(0.1)
    assert "σ²(i) below zero replaced by 0" in zero.notes
    assert negative.quantity("abs_err_var", i=10, negative="keep").estimate == pytest.approx(0.08)


def test_errors(res, published):
    with pytest.raises(PlanError, match="is estimated for one plan, and these sizes make 2"):
        res.quantity("Phi", topic=[3, 6])
    with pytest.raises(PlanError, match="'sys' needs no plan"):
        res.quantity("sys", topic=6)
    with pytest.raises(PlanError, match="cut= is an option of 'Phi_lambda', not of 'sys'"):
        res.quantity("sys", cut=0.5)
    with pytest.raises(PlanError, match="unknown facet 'topics'"):
        res.quantity("Phi", topics=6)
    with pytest.raises(EstimationError, match="did you mean 'Erho2'"):
        res.quantity("Ehro2")
    with pytest.raises(EstimationError, match="a quantity is a text such as"):
        res.quantity(5)
    with pytest.raises(EstimationError, match="is not defined at these estimates"):
        vcomp.from_components({"p": 0.0, "Residual": 0.0}).quantity("p / Residual")
    with pytest.raises(EstimationError, match="'bootstrap' needs the rows of a fit"):
        published.quantity("p", interval="bootstrap")
    with pytest.raises(PlanError, match="alpha must be between 0 and 1"):
        res.quantity("sys", alpha=95)


def test_no_interval_has_its_reason():
    found = vcomp.from_components({"p": 0.5, "Residual": 1.0}).quantity("p")
    assert np.isnan([found.se, found.low, found.high]).all()
    assert "the covariance matrix of the components is not known" in str(found)


def test_shares_lie_between_0_and_1():
    negative = vcomp.from_components({"p": -0.3, "i": 0.2, "Residual": 1.0}, cov=COV)
    found = negative.quantity("share(Residual)")
    assert found.estimate == pytest.approx(1 / 1.2)
    assert "σ²(p) below zero replaced by 0" in found.notes
    assert negative.quantity("share(p)").estimate == 0.0
    kept = negative.quantity("share(Residual)", negative="keep")
    assert kept.estimate == pytest.approx(1 / 0.9)


@pytest.mark.parametrize("negative", ["zero", "keep", None])
def test_a_function_has_the_interval_of_the_quantity_that_it_computes(negative):
    g = vcomp.from_components({"p": -0.3, "i": 0.2, "Residual": 1.0}, cov=COV)
    found = g.quantity(lambda v: 2.0 * v["p"] + v["i"] + v["Residual"], negative=negative)
    text = g.quantity("2*p + i + Residual", negative=negative)
    assert (found.estimate, found.se) == pytest.approx((text.estimate, text.se), rel=1e-9)
    wald = found.estimate + np.array([-1.0, 1.0]) * 1.959963985 * found.se
    np.testing.assert_allclose([found.low, found.high], wald, rtol=1e-8)


def test_what_is_held_has_no_error():
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", data, hold={"topic": 0.01})
    found = res.quantity("topic")
    assert np.isnan([found.se, found.low, found.high]).all()
    assert "it is held, not estimated" in str(found)
    assert np.isnan(res.conf_int().loc["var(topic)"]).all()


def test_a_component_that_has_the_name_of_a_quantity():
    g = vcomp.from_components({"n": 0.5, "Residual": 1.0}, cov=np.eye(2))
    assert g.quantity("n").estimate == 0.5
    with pytest.raises(PlanError, match=r"'n' needs no plan: .*Phi_lambda$"):
        g.quantity("n", replicate=3)


@pytest.mark.parametrize(
    "option", [{"fixed": "topic"}, {"universe": {"topic": 50}}, {"within": "sys"}, {"topic": 6}]
)
@pytest.mark.parametrize("what", ["sys", "sys / total", lambda v: v["sys"]])
def test_a_plan_is_not_ignored_where_none_is_needed(res, what, option):
    with pytest.raises(PlanError, match="needs no plan: design=, object=, fixed=, universe="):
        res.quantity(what, **option)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": 6, "sizes": {"topic": 3}}, "the size of 'topic' is given twice"),
        ({"sizes": [3]}, "sizes is a mapping"),
    ],
)
def test_sizes_are_given_once(res, options, message):
    for study in (res.quantity, vcomp.from_components({"topic": 1, "Residual": 1}).quantity):
        with pytest.raises(PlanError, match=message):
            study("Phi", **options)


def test_phi_lambda_is_of_one_cut_score(res):
    assert res.quantity("Phi_lambda", cut=[0.5], topic=6).estimate > 0.9
    with pytest.raises(PlanError, match="one cut score, and cut= has 2"):
        res.quantity("Phi_lambda", cut=[0.5, 0.6], topic=6)

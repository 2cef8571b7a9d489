"""Advice of studies, presets, simulated collections and stored results, followed."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.advice.test_followed import (
    ANOVA,
    FIXED,
    MS_RESIDUAL,
    MS_SYS,
    MS_TOPIC,
    RANDOM,
    SCORES,
    TWO,
    WIDE,
    grid,
    refused,
)  # fmt: skip
from vcomp import ir

MEASURES = SCORES.assign(p20=2.0 * SCORES["score"] + 1.0)
UNIT = (WIDE - WIDE.min().min() + 0.1) / (np.ptp(WIDE.to_numpy()) + 0.2)


def test_components_at_zero_are_compared_as_fixed():
    """Of scores without differences between systems the fixed fit has differences of zero."""
    flat = SCORES.assign(score=SCORES["score"] - SCORES.groupby("sys")["score"].transform("mean"))
    res = vcomp.fit(RANDOM, flat)
    refused(lambda: res.compare_levels("sys"), "fit C(sys) in place of (1|sys)")
    found = vcomp.fit("score ~ C(sys) + (1|topic)", flat).compare_levels("sys").table
    np.testing.assert_allclose(found["difference"], 0.0, atol=1e-14)
    np.testing.assert_allclose(found["std_error"] ** 2, 2 * MS_RESIDUAL / 12, rtol=1e-6)


def test_replicates_of_a_fit_with_a_held_component():
    held = vcomp.fit(RANDOM, SCORES, hold={"sys": 1.0})
    refused(lambda: held.resample("topic", n=20, rng=1), "use adjust=False")
    found = held.resample("topic", n=20, rng=1, adjust=False)
    assert len(found.frame) == 20


def test_other_methods_have_profiles():
    anova = vcomp.fit(RANDOM, SCORES, method="anova")
    refused(
        lambda: anova.profile("sys"), "fit with method='reml' or 'ml', or use another interval"
    )
    res = vcomp.fit(RANDOM, SCORES)
    low, high = res.profile("sys").conf_int().iloc[0]
    assert low < ANOVA["sys"] < high
    refused(lambda: res.profile("sqrt(sys)"), "res.quantity(…, interval='profile')")
    root = res.quantity("sqrt(sys)", interval="profile")
    np.testing.assert_allclose([root.low**2, root.high**2], [low, high], rtol=1e-3)
    refused(lambda: res.quantity("sys/topic", interval="f"), "use interval='mls'")
    found = res.quantity("sys/topic", interval="mls")
    assert found.low < ANOVA["sys"] / ANOVA["topic"] < found.high


def test_an_analysis_of_variance_with_a_fixed_part():
    """Type I: sums of squares in the order of the formula, as by hand."""
    res = vcomp.fit(FIXED, SCORES, method="reml")
    refused(lambda: res.anova_table(), "method='type1' and 'henderson3' have one with covariates")
    for method in ("type1", "henderson3"):
        table = vcomp.fit(FIXED, SCORES, method=method).anova_table()
        assert table.loc["topic", "mean_sq"] == pytest.approx(MS_TOPIC, rel=1e-9)


def test_presets_need_their_terms():
    data = grid(part=6, operator=3, trial=3)
    without = vcomp.fit("score ~ (1|operator)", data)
    refused(lambda: vcomp.presets.gauge_rr(without, "part", "operator"), "a term (1|part)")
    res = vcomp.fit("score ~ (1|part) + (1|operator) + (1|part:operator)", data)
    found = vcomp.presets.gauge_rr(res, "part", "operator").table
    within = data.groupby(["part", "operator"])["score"].var(ddof=1).mean()
    values = found["variance"] if "variance" in found else found.iloc[:, 0] ** 2
    assert values.loc["repeatability"] == pytest.approx(within, rel=0.2)  # pooled at zero


def test_alpha_of_available_scores():
    holes = WIDE.T.copy()
    holes.iloc[0, 0] = np.nan
    refused(
        lambda: vcomp.ctt.cronbach_alpha(holes),
        "drop the rows or items that have them, or use vcomp.reliability(scores).cronbach_alpha",
    )
    rows = holes.dropna()
    k = rows.shape[1]
    expected = k / (k - 1) * (1 - rows.var(ddof=1).sum() / rows.sum(axis=1).var(ddof=1))
    assert vcomp.ctt.cronbach_alpha(rows) == pytest.approx(expected, rel=1e-12)
    assert vcomp.reliability(holes).cronbach_alpha == pytest.approx(
        expected, abs=0.15
    )  # one score less


@pytest.mark.parametrize("margins", ["normal", "kernel"])
def test_margins_that_serve(margins):
    """Simulated collections have the observed means and variances of the systems."""
    refused(lambda: ir.fit_collection(WIDE, margins="beta"), "use margins='normal'")
    constant = UNIT.copy()
    constant.iloc[:, 0] = 0.5
    refused(
        lambda: ir.fit_collection(constant, margins="beta"),
        "leave it out, or use margins='kernel' or 'normal'",
    )
    made = ir.fit_collection(constant, margins=margins, means="fitted")
    drawn = made.simulate(500, rng=1).scores[0]
    error = 4.0 * constant.std().to_numpy() / 12**0.5 + 0.01
    assert (np.abs(drawn.mean(axis=0) - constant.mean().to_numpy()) < error).all()
    assert ir.fit_collection(UNIT.drop(columns="s0"), margins="beta").n_systems == 4


def test_copulas_and_means_that_serve():
    refused(
        lambda: ir.fit_collection(WIDE, margins="normal", copula="t", correlation=0),
        "use copula='gaussian' with correlation=0",
    )
    made = ir.fit_collection(WIDE, margins="normal", copula="gaussian", correlation=0)
    drawn = made.simulate(500, rng=1).scores[0]
    residuals = drawn - drawn.mean(axis=1, keepdims=True)
    r = np.corrcoef(residuals, rowvar=False)[np.triu_indices(5, 1)]
    assert np.abs(r).max() < 0.6  # centring alone makes −1/(k − 1), more with unequal variances
    refused(
        lambda: ir.fit_collection(UNIT, margins="beta", means=[0.99999] * 5), "use means='fitted'"
    )
    ir.fit_collection(UNIT, margins="beta", means="fitted")
    refused(
        lambda: ir.fit_collection(WIDE, margins="normal", copula="t", df=np.inf),
        "use copula='gaussian'",
    )


def test_published_components_are_given_as_such():
    values = {"sys": ANOVA["sys"], "topic": ANOVA["topic"], "Residual": MS_RESIDUAL}
    refused(lambda: vcomp.presets.precision(values), "vcomp.from_components()")
    refused(lambda: vcomp.simulate.simulate_effects(values), "vcomp.from_components() makes")
    found = vcomp.presets.precision(vcomp.from_components(values)).table
    assert found.loc["repeatability", "variance"] == MS_RESIDUAL
    drawn = vcomp.simulate.simulate_effects(
        vcomp.from_components(values), sizes={"sys": 40, "topic": 50}, rng=1
    )
    again = vcomp.fit(RANDOM, drawn.to_frame()).vcomp["Residual"]
    assert again == pytest.approx(MS_RESIDUAL, rel=4 * (2 / 1911) ** 0.5)


def test_published_components_have_intervals_with_sizes():
    values = {"sys": ANOVA["sys"], "topic": ANOVA["topic"], "Residual": MS_RESIDUAL}
    share = "sys / (sys + Residual)"
    alone = vcomp.from_components(values)
    refused(lambda: alone.quantity(share, interval="mls"), "pass sizes= of all facets")
    refused(lambda: alone.quantity(share, interval="robust"), "interval='mls'")
    found = vcomp.from_components(values, sizes={"sys": 5, "topic": 12}).quantity(
        share, interval="mls"
    )
    expected = vcomp.fit(RANDOM, SCORES).quantity(share, interval="mls")
    np.testing.assert_allclose([found.low, found.high], [expected.low, expected.high], rtol=1e-5)


def test_loaded_results_fit_again():
    """What a loaded result lacks, a new fit has."""
    text = vcomp.fit(FIXED, TWO).to_json()
    loaded = vcomp.VarianceComponentsResults.from_json(text)
    refused(
        lambda: loaded.fixed_effects(ddf="kenward-roger"),
        "fit the model again, or use ddf='satterthwaite'",
    )
    fresh = vcomp.fit(FIXED, TWO)
    for made in (loaded, fresh):
        row = made.fixed_effects(ddf="satterthwaite").loc["sys[T.s1]"]
        assert row["df"] == pytest.approx(11, rel=1e-5)
    assert fresh.fixed_effects(ddf="kenward-roger")["df"].iloc[1] == pytest.approx(11, rel=1e-5)


def test_measures_of_one_table():
    refused(
        lambda: vcomp.compare_measures(RANDOM, {"sys": [1, 2]}), "responses=['ap', 'p20']", "by="
    )
    made = vcomp.compare_measures(
        "~ (1|sys) + (1|topic)", MEASURES, responses=["score", "p20"], object="sys"
    )
    expected = MS_SYS / (MS_SYS)  # Erho2 does not depend on the unit of a measure
    values = made.table.filter(like="Erho2").iloc[:, 0].to_numpy()
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    assert 0 < values[0] < expected


def test_composites_have_what_one_score_has():
    formula = "score + p20 ~ (1|sys) + (1|topic)"
    refused(lambda: vcomp.fit_multivariate(formula, MEASURES), "or use method='anova'")
    res = vcomp.fit_multivariate(formula, MEASURES, method="anova")
    refused(lambda: res.dstudy(topic=3, fixed="topic"), "res.composite(weights).dstudy(")
    made = res.composite({"score": 1.0, "p20": 0.0}).dstudy(topic=3, universe={"topic": 6})
    expected = ANOVA["sys"] + MS_RESIDUAL / 6
    assert made.table["universe_var"].iloc[0] == pytest.approx(expected, rel=1e-4)


def test_scores_of_cuts():
    """Brennan and Kane (1977), the error variance of the mean subtracted."""
    study = vcomp.fit(RANDOM, SCORES).dstudy(object="sys", topic=5)
    refused(lambda: study.phi_lambda("x"), "as a finite number, cut=…")
    of_mean = ANOVA["sys"] / 5 + ANOVA["topic"] / 12 + MS_RESIDUAL / 60
    signal = ANOVA["sys"] + 3.0**2 - of_mean
    expected = signal / (signal + (ANOVA["topic"] + MS_RESIDUAL) / 5)
    found = study.phi_lambda(SCORES["score"].mean() + 3.0)["estimate"].iloc[0]
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_factor_as_a_random_term_with_a_large_variance():
    """What is advised for factors of very many levels: components are those beside the factor."""
    factor = vcomp.fit(FIXED, SCORES)
    held = vcomp.fit(RANDOM, SCORES, hold={"sys": 1e6 * SCORES["score"].var()})
    for name in ("topic", "Residual"):
        assert held.vcomp[name] == pytest.approx(factor.vcomp[name], rel=1e-4)  # 1e6 is not ∞


def test_terms_that_notes_advise():
    """The interaction that a note of a D-study asks for, by mean squares."""
    data = grid(sys=5, topic=8, replicate_=3).rename(columns={"replicate_": "copy"})
    data["score"] += np.random.default_rng(9).normal(size=40)[
        data.groupby(["sys", "topic"]).ngroup()
    ]
    res = vcomp.fit(RANDOM, data)
    text = " ".join(str(res.dstudy(object="sys")).split())
    assert "include sys:topic, in a formula as (1|sys:topic)" in text
    within = data.groupby(["sys", "topic"])["score"].var(ddof=1).mean()
    found = vcomp.fit(f"{RANDOM} + (1|sys:topic)", data)
    assert found.vcomp["Residual"] == pytest.approx(within, rel=1e-4)
    assert "include sys:topic" not in " ".join(str(found.dstudy(object="sys")).split())


def test_intraclass_correlations_of_two_facets():
    one = vcomp.fit("score ~ (1|topic)", SCORES)
    refused(lambda: vcomp.icc(one), "(1|topic) + (1|rater)")
    found = vcomp.icc(vcomp.fit(RANDOM, SCORES), object="topic").table
    expected = (MS_TOPIC - MS_RESIDUAL) / (MS_TOPIC + 4 * MS_RESIDUAL)  # ICC(C,1)
    assert np.isclose(found.filter(like="estimate").to_numpy(), expected, rtol=1e-4).any()


def test_tests_of_components():
    """The score test of an engine without it is replaced by the likelihood ratio."""
    res = vcomp.fit(RANDOM, SCORES)
    p = {test: res.test("sys", test=test).p_value for test in ("f", "lrt", "score")}
    assert max(p.values()) < 1e-3
    simulated = res.test("sys", test="simulated", n=99, rng=1).p_value
    assert simulated == pytest.approx(0.01)  # 1 / (99 + 1)


def test_the_tau_of_a_small_test():
    refused(
        lambda: ir.expected_tau(WIDE, [12, 30], target="expectation", interval="independent"),
        "use interval='draws'",
    )
    found = ir.expected_tau(WIDE, [12, 30], target="expectation", interval="draws")
    assert (found["low"] <= found["estimate"]).all()
    assert (found["estimate"] <= found["high"]).all()

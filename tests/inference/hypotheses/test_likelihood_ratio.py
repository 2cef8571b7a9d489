"""Likelihood ratios of components: closed forms, exact distributions, scores written out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vcomp
from tests.helpers.altered_engines import AverageOnly
from tests.helpers.dense_likelihood import DenseLikelihood
from tests.helpers.designs import gridded, unbalanced
from vcomp.estimators.likelihood import ML, REML
from vcomp.inference.hypotheses import component_tests
from vcomp.inference.hypotheses.component import score_test
from vcomp.inference.hypotheses.component_tests import (
    likelihoods_under,
    null_fit,
    simulated_tail,
)
from vcomp.inference.resampling import drawn_refits


def one_way(seed, *, sizes=(4,) * 7, sd=0.5):
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(len(sizes)), sizes)
    return pd.DataFrame(
        {"g": g, "y": rng.normal(size=g.size) + sd * rng.normal(size=len(sizes))[g]}
    )


def two_way(seed, sd_a=2.0, sd_b=0.5, n_a=6, n_b=5):
    rng = np.random.default_rng(seed)
    data = pd.MultiIndex.from_product([range(n_a), range(n_b)], names=["a", "b"]).to_frame(False)
    data["y"] = rng.normal(size=len(data)) + sd_a * rng.normal(size=n_a)[data["a"]]
    data["y"] += sd_b * rng.normal(size=n_b)[data["b"]]
    return data


@pytest.mark.parametrize("seed", range(4))
def test_one_way_ratio_has_a_closed_form(seed):
    """2(ℓ₁ − ℓ₀) of REML in balanced data, from the sums of squares."""
    data = one_way(seed)
    res = vcomp.fit("y ~ (1|g)", data)
    table = res.anova_table()
    ss, df = table["sum_sq"].to_numpy(), table["df"].to_numpy()
    ms, total = ss / df, ss.sum() / df.sum()
    expected = df.sum() * np.log(total) - df @ np.log(ms) if ms[0] > ms[1] else 0.0
    found = res.test("g", "lrt")
    # A difference of two log-likelihoods near 50 in value.
    assert found.statistic == pytest.approx(expected, abs=1e-10)
    p = 0.5 * stats.chi2.sf(expected, 1) if expected > 0.0 else 1.0
    assert found.p_value == pytest.approx(p, abs=1e-9)
    assert found.df == (0.0, 1.0)
    assert not found.exact


def test_an_estimate_at_its_bound_has_p_1():
    data = pd.DataFrame({"g": list("aabbccdd"), "y": [1.0, 3.0, 1.1, 2.8, 0.9, 3.2, 1.2, 3.1]})
    res = vcomp.fit("y ~ (1|g)", data)
    assert res.vcomp["g"] == 0.0
    assert res.test("g", "lrt").p_value == 1.0
    assert res.test("g", "lrt").statistic == 0.0
    whole = res._record.estimate  # nor does rounding give it one
    lifted = replace(whole, llf=whole.llf + 1e-12)
    assert null_fit(res.model.statistics, lifted, "g").statistic == 0.0
    simulated = res.test("g", "simulated", n=50)
    assert simulated.p_value == 1.0
    assert simulated.p_error == 0.0
    assert res.test("g", "score").p_value > 0.5


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("seed", [0, 2])
def test_simulated_one_way_test_is_the_exact_one(seed, method):
    """The ratio rises with F: under σ² = 0 its exact tail is that of F (Crainiceanu & Ruppert)."""
    res = vcomp.fit("y ~ (1|g)", one_way(seed), method=method)
    exact = res.test("g", "f")
    found = res.test("g", "simulated", n=500, rng=1)
    assert found.statistic > 0.0
    assert abs(found.p_value - exact.p_value) < 4.0 * found.p_error + 1.0 / 501.0
    assert found.p_error == pytest.approx(np.sqrt(found.p_value * (1.0 - found.p_value) / 500.0))


def test_simulated_test_of_one_component_among_several():
    """With the other component far from 0 the ratio is a function of F here too."""
    res = vcomp.fit("y ~ (1|a) + (1|b)", two_way(3))
    exact = res.test("b", "f")
    found = res.test("b", "simulated", n=700, rng=2)
    assert 0.01 < exact.p_value < 0.5
    assert abs(found.p_value - exact.p_value) < 4.0 * found.p_error


def test_numbers_do_not_depend_on_workers():
    res = vcomp.fit("y ~ (1|a) + (1|b)", two_way(3))
    one = res.test("b", "simulated", n=60, rng=5)
    assert res.test("b", "simulated", n=60, rng=5, workers=2) == one
    assert res.test("b", "simulated", n=60, rng=np.random.default_rng(5)).p_value <= 1.0


def spectral_draws(model, n, rng):
    """Draw the restricted likelihood ratio from its spectrum (Crainiceanu & Ruppert 2004, eq. 9).

    With μ_s the eigenvalues of Z'QZ and w² of χ²₁: the supremum over λ = σ²_g/σ²_e of
    (N − p) log(1 + N(λ)/D(λ)) − Σ log(1 + λμ_s).
    """
    X, g = model.exog, model.statistics.rows.codes[0]
    Z = np.eye(g.max() + 1)[g]
    Q = np.eye(model.nobs) - X @ np.linalg.pinv(X)
    mu = np.linalg.eigvalsh(Z.T @ Q @ Z)
    mu = mu[mu > 1e-9 * mu.max()]
    degrees = model.nobs - X.shape[1]
    w2 = rng.chisquare(1.0, size=(n, mu.size))
    rest = rng.chisquare(degrees - mu.size, size=n)
    best = np.zeros(n)
    for ratio in np.concatenate([np.geomspace(1e-5, 1e3, 3000)]):
        above = w2 @ (ratio * mu / (1.0 + ratio * mu))
        below = w2 @ (1.0 / (1.0 + ratio * mu)) + rest
        value = degrees * np.log1p(above / below) - np.log1p(ratio * mu).sum()
        best = np.maximum(best, value)
    return best


@pytest.mark.parametrize("fixed", ["1", "x"])
def test_drawn_ratios_have_the_exact_distribution_of_unbalanced_data(fixed):
    data = one_way(1, sizes=(2, 7, 3, 9, 4))
    data["x"] = np.random.default_rng(3).normal(size=len(data)) + data["g"]
    model = vcomp.VarianceComponentsModel(f"y ~ {fixed} + (1|g)", data)
    v0 = np.array([0.0, 1.7])
    drawn = likelihoods_under(
        model.statistics, model.component_names, v0, [{}, {"g": 0.0}], 800, rng=4
    )
    ours = np.maximum(2.0 * (drawn[:, 0] - drawn[:, 1]), 0.0)
    exact = spectral_draws(model, 8_000, np.random.default_rng(5))
    zero = np.mean(ours < 1e-8), np.mean(exact < 1e-8)
    assert abs(zero[0] - zero[1]) < 4.0 * 0.5 / np.sqrt(800)
    # The grid of λ leaves a few parts in 1e5 of each ratio.
    assert stats.ks_2samp(ours[ours > 1e-3], exact[exact > 1e-3]).pvalue > 0.001


def test_draws_are_made_quietly_at_components_with_a_residual(capfd):
    model = vcomp.VarianceComponentsModel("y ~ (1|g)", one_way(1, sizes=(2, 7, 3)))
    arguments = model.statistics, model.component_names
    assert likelihoods_under(*arguments, [0.0, 1e-9], [{}], 3, rng=1).shape == (3, 1)
    assert likelihoods_under(*arguments, [0.0, 1.0], [], 3, rng=1).shape == (3, 0)
    assert capfd.readouterr() == ("", "")
    for wrong in ([0.5, 0.0], [-0.1, 1.0], [np.nan, 1.0], [1.0], [1.0, 1.0, 1.0]):
        with pytest.raises(vcomp.EstimationError, match="2 non-negative components, the residual"):
            likelihoods_under(*arguments, wrong, [{}], 3)


def test_each_maximum_of_a_draw_is_that_of_one_climb(monkeypatch):
    model = vcomp.VarianceComponentsModel("y ~ (1|g)", one_way(1, sizes=(2, 7, 3)))
    found = []

    def refits(stats, recipes, *arguments, **options):
        found.extend((recipe.estimator, recipe.once) for recipe in recipes)
        return drawn_refits(stats, recipes, *arguments, **options)

    monkeypatch.setattr(component_tests, "drawn_refits", refits)
    holds = [{}, {"g": 0.0}]
    for reml, method in ((True, REML), (False, ML)):
        found.clear()
        arguments = model.statistics, model.component_names, [0.1, 1.0], holds, 3
        likelihoods_under(*arguments, reml=reml, rng=1)
        assert found == [(method(hold=hold), True) for hold in holds]


def test_the_tail_of_drawn_ratios():
    drawn = np.array([0.0, 0.0, 1.0, 2.0, 3.0, np.nan])
    found = simulated_tail(2.0, drawn)
    assert found.p_value == 3.0 / 6.0
    assert (found.n, found.share_zero) == (5, 0.4)
    assert simulated_tail(0.0, drawn).p_value == 1.0
    with pytest.raises(vcomp.EstimationError, match="only 1 of 3 drawn data sets"):
        simulated_tail(0.0, np.array([np.nan, 0.0, np.nan]))
    assert simulated_tail(0.0, np.array([np.nan, 0.0])).n == 1  # half of them are enough


def test_components_that_were_held_stay_so():
    formula, data = unbalanced("crossed", seed=2)
    res = vcomp.fit(formula, data, hold={"a": 2.5})
    found = res.test("b", "lrt")
    model = res.model
    without = model.fit(hold={"a": 2.5, "b": 0.0})
    assert found.statistic == pytest.approx(2.0 * (res.llf - without.llf), rel=1e-12)
    assert res.test("b", "simulated", n=20).p_value == pytest.approx(1.0 / 21.0)
    with pytest.raises(vcomp.EstimationError, match=r"σ²\(a\) is held at 2.5"):
        res.test("a")


def test_other_components_at_their_bound_are_named():
    formula, data = gridded("per document")
    res = vcomp.fit(formula, data)
    zero = [name for name in res.vcomp.index if res.vcomp[name] == 0.0]
    assert zero
    positive = next(n for n in res.vcomp.index if res.vcomp[n] > 0.0)
    note = " ".join(res.test(positive, "lrt").notes)
    for name in zero:
        assert f"σ²({name})" in note
    assert "test='simulated'" in note


def test_random_probes_leave_an_error_that_is_said():
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 300, 2000), rng.integers(0, 200, 2000)
    y = rng.normal(size=2000) + 0.3 * rng.normal(size=300)[a] + rng.normal(size=200)[b]
    formula, data = "y ~ (1|a) + (1|b)", {"y": y, "a": a, "b": b}
    res = vcomp.fit(formula, data, engine="iterative", n_probes=4)
    found, exact = res.test("a", "lrt"), vcomp.fit(formula, data).test("a", "lrt")
    assert res.mc_error_llf > 0.0
    assert "Monte Carlo error" in found.notes[-1]
    assert abs(found.statistic - exact.statistic) < 2.0 * 5.0 * res.mc_error_llf
    assert not exact.notes


# The score test ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize(("name", "term"), [("crossed", "b"), ("nested", "a:b"), ("one way", "a")])
def test_score_test_written_out(name, term, method):
    formula, data = unbalanced(name, seed=11)
    data["y"] = data["y"] + 8.0 * np.random.default_rng(0).normal(size=len(data))
    model = vcomp.VarianceComponentsModel(formula, data)
    res = model.fit(method)
    null = model.fit("reml", hold={term: 0.0})
    v = null.vcomp.to_numpy()
    t = model.component_names.index(term)
    dense = DenseLikelihood(model, reml=True)
    _, _, P, _, _ = dense.matrices(v)
    Py = P @ dense.y
    Q, e = 0.5 * Py @ dense.K[t] @ Py, 0.5 * np.trace(P @ dense.K[t])
    information = dense.expected(v)
    free = (v > 0.0) & (np.arange(v.size) != t)
    variance = information[t, t] - information[t, free] @ np.linalg.solve(
        information[np.ix_(free, free)], information[free, t]
    )
    scale, df = variance / (2.0 * e), 2.0 * e**2 / variance
    found = res.test(term, "score")
    assert found.statistic == pytest.approx(Q / scale, rel=1e-7)
    assert found.df == (pytest.approx(df, rel=1e-7),)
    assert found.p_value == pytest.approx(stats.chi2.sf(Q / scale, df), rel=1e-6)
    z = (Q - e) / np.sqrt(variance)
    assert f"{z:.3g} standard deviations" in found.notes[0].replace("−", "-")
    for unit in (1e-5, 1e5):
        scaled = vcomp.fit(formula, data.assign(y=unit * data["y"]), method=method)
        assert scaled.test(term, "score").statistic == pytest.approx(Q / scale, rel=1e-5)


def test_a_score_far_below_its_expectation_has_a_p_value_next_to_1():
    """Levels of b with equal sums: Q is nothing, and of χ² with df its upper tail is 1."""
    rng = np.random.default_rng(4)
    a, b = (x.ravel() for x in np.indices((5, 6)))
    y = rng.normal(size=(5, 6)) + rng.normal(size=(5, 1))
    y += (y.mean() - y.mean(axis=0)) * rng.uniform(0.6, 0.7)
    found = vcomp.fit("y ~ (1|a) + (1|b)", {"a": a, "b": b, "y": y.ravel()}).test("b", "score")
    assert 0.1 < found.statistic < 0.9
    tail = stats.chi2.sf(found.statistic, found.df[0])
    assert found.p_value == pytest.approx(tail, rel=1e-12)


def test_score_needs_the_expected_information():
    res = vcomp.fit(*unbalanced("crossed", seed=1))
    stats = res.model.statistics
    null = REML(hold={"a": 0.0}).estimate(stats, res.model.component_names)
    engine = AverageOnly(stats.cross_products, reml=True)
    with pytest.raises(
        vcomp.EstimationError,
        match="and the blocked engine of these data has the average one only",
    ):
        score_test(stats, null, "a", engine)

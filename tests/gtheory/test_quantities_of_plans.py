"""Quantities of every plan, Φ(λ), effects, and the mean of published components."""

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.gstudies import BODOFF_LI, TREC3
from vcomp.exceptions import PlanError
from vcomp.gtheory.planned_quantity import dstudy
from vcomp.gtheory.projection import PLANNED
from vcomp.gtheory.published import from_components

RES = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))


@pytest.mark.parametrize("name", PLANNED)
def test_every_quantity_is_what_estimate_says(name):
    study = RES.dstudy(topic=[3, 12])
    table = study.quantity(name)
    assert list(table.columns) == ["topic", "estimate", "se", "low", "high"]
    for row in table.itertuples():
        alone = RES.quantity(name, topic=row.topic)
        expected = [alone.estimate, alone.se, alone.low, alone.high]
        found = [row.estimate, row.se, row.low, row.high]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["rel_err_var", "abs_err_var", "Erho2", "Phi"])
def test_quantities_of_the_table(name):
    study = dstudy(TREC3, topic=[25, 50])
    table = study.quantity(name)
    columns = [name, f"{name}_se", f"{name}_low", f"{name}_high"]
    np.testing.assert_array_equal(
        table[["estimate", "se", "low", "high"]].to_numpy(), study.table[columns].to_numpy()
    )


def test_signal_noise_ratios_and_standard_errors_of_measurement():
    study = from_components(BODOFF_LI).dstudy(i=[20, 50], a=3)
    row = study.table
    found = {name: study.quantity(name)["estimate"].to_numpy() for name in PLANNED}
    np.testing.assert_allclose(found["rel_sem"] ** 2, row["rel_err_var"], rtol=1e-12)
    np.testing.assert_allclose(found["abs_sem"] ** 2, row["abs_err_var"], rtol=1e-12)
    ratio = row["Phi"] / (1 - row["Phi"])
    np.testing.assert_allclose(found["abs_signal_noise"], ratio, rtol=1e-12)
    ratio = row["universe_var"] / row["rel_err_var"]
    np.testing.assert_allclose(found["rel_signal_noise"], ratio, rtol=1e-12)


def test_the_standard_error_of_a_difference():
    """That of two systems as fixed effects on the same topics: √(2 MS/n)."""
    data = vcomp.datasets.load("bodoff2007_alpha")
    study = RES.dstudy(topic=[3, 12])
    found = study.quantity("se_difference")
    pair = vcomp.fit("score ~ C(sys) + (1|topic)", data).compare_levels("sys").table
    assert found["estimate"][0] == pytest.approx(pair["std_error"][0], rel=1e-6)
    np.testing.assert_allclose(found["estimate"] ** 2, 2 * study.table["rel_err_var"], rtol=1e-12)
    half = study.quantity("rel_sem")
    for column in ("se", "low", "high"):
        np.testing.assert_allclose(found[column], 2**0.5 * half[column], rtol=1e-9)


@pytest.mark.parametrize(
    ("what", "goal"),
    [("rel_err_var", 2e-3), ("abs_err_var", 2e-3), ("rel_sem", 0.05), ("abs_sem", 0.05),
     ("se_difference", 0.05)],
)  # fmt: skip
def test_the_size_for_an_error_is_that_of_optimize(what, goal):
    study = RES.dstudy(topic=3)
    n = int(study.required(goal, what).n)
    at, before = RES.dstudy(topic=[n, n - 1]).quantity(what)["estimate"]
    assert at <= goal < before
    variance, value = {
        "rel_sem": ("rel_err_var", goal**2), "abs_sem": ("abs_err_var", goal**2),
        "se_difference": ("rel_err_var", goal**2 / 2),
    }.get(what, (what, goal))  # fmt: skip
    best = study.optimize({"topic": 1}, goal=value, coefficient=variance).best
    assert best.sizes["topic"] == n


def test_unknown_quantities():
    with pytest.raises(PlanError, match=r"unknown quantity 'rel_smm' \(did you mean 'rel_sem'"):
        RES.dstudy().quantity("rel_smm")


# Φ(λ) ------------------------------------------------------------------------------------------


def test_phi_lambda_by_brennan_and_kanes_formula():
    v, mean = RES.vcomp, RES.fe_params.iloc[0]
    table = RES.dstudy(topic=[3, 12]).phi_lambda([0.5, 0.7, float(mean)])
    assert table["cut"].tolist() == [0.5, 0.7, mean] * 2
    assert list(table) == ["topic", "cut", "estimate", "se", "low", "high"]
    assert table.index.tolist() == list(range(6))
    error_of_mean = v["sys"] / 5 + v["topic"] / 3 + v["Residual"] / 15
    for row in table.itertuples():
        away = max((mean - row.cut) ** 2 - error_of_mean, 0.0)
        error = (v["topic"] + v["Residual"]) / row.topic
        expected = (v["sys"] + away) / (v["sys"] + away + error)
        assert row.estimate == pytest.approx(expected, rel=1e-10)
        assert row.low <= row.estimate <= row.high
    # At the mean itself decisions are the hardest: Φ.
    at_mean = table[table["cut"] == mean]["estimate"]
    np.testing.assert_allclose(at_mean, RES.dstudy(topic=[3, 12]).table["Phi"], rtol=1e-12)


def _mean_error_given(fixed_g, v, n):
    """Return Var(mean) of p × (t:g) scores, entry by entry; effects of fixed g are constants."""
    cells = np.array(
        [(p, g, t) for p in range(n["p"]) for g in range(n["g"]) for t in range(n["t"])]
    )
    p, g, t = cells.T
    same_p, same_g = p[:, None] == p, g[:, None] == g
    same_t = same_g & (t[:, None] == t)
    dense = v["p"] * same_p + v["t:g"] * same_t + v["pg"] * (same_p & same_g)
    dense = dense + v["pt:g"] * (same_p & same_t) + (0.0 if fixed_g else v["g"]) * same_g
    return dense.sum() / len(cells) ** 2


@pytest.mark.parametrize("options", [{"fixed": "g"}, {"universe": {"g": 8}}, {}])
def test_mean_of_phi_lambda_is_that_of_the_universe(options):
    values = {"p": 1.2, "g": 3.66, "t:g": 0.15, "p:g": 0.3, "p:t:g": 0.8}
    n = {"p": 6, "g": 2, "t": 3}
    mean, cut = 5.0, 4.0
    published = from_components(values, sizes=n, mean=mean)
    named = values | {"pg": values["p:g"], "pt:g": values["p:t:g"]}
    given, free = (_mean_error_given(fixed, named, n) for fixed in (True, False))
    # Of 8 levels of g, the mean of 2 has the variance σ²(g)(1/2 − 1/8) about that of all.
    error_of_mean = given if "fixed" in options else free - 3.66 / 8 * ("universe" in options)
    study = published.dstudy(g=2, t=3, **options)
    universe = study.table["universe_var"][0]
    away = max((mean - cut) ** 2 - error_of_mean, 0.0)
    expected = (universe + away) / (universe + away + study.table["abs_err_var"][0])
    row = study.phi_lambda(cut).iloc[0]
    assert row["estimate"] == pytest.approx(expected, rel=1e-12)
    alone = published.quantity("Phi_lambda", cut=cut, g=2, t=3, **options)
    assert [alone.estimate, alone.se] == [row["estimate"], row["se"]]
    # With five levels planned as the universe, the two of the G-study are in error by 1/2 − 1/5.
    if "fixed" in options:
        more = published.dstudy(g=5, t=3, fixed="g")
        away = (mean - 1.0) ** 2 - given - 3.66 * (1 / 2 - 1 / 5)
        signal = more.table["universe_var"][0] + away
        expected = signal / (signal + more.table["abs_err_var"][0])
        assert more.phi_lambda(1.0)["estimate"][0] == pytest.approx(expected, rel=1e-12)


def test_phi_lambda_of_a_fit_with_a_fixed_facet():
    rng = np.random.default_rng(3)
    p, g, t = (axis.ravel() for axis in np.indices((12, 2, 3)))
    effects = [rng.normal(size=size) for size in ((12,), (2, 3), (12, 2), (12, 2, 3))]
    y = effects[0][p] + effects[1][g, t] + effects[2][p, g] + effects[3][p, g, t] + 2.5 * g
    data = pd.DataFrame({"p": p, "g": g, "t": t, "y": y})
    res = vcomp.fit("y ~ (1|p) + (1|g) + (1|g:t) + (1|p:g)", data, method="anova")
    v, study = res.vcomp, res.dstudy(object="p", g=2, t=3, fixed="g")
    error = v["p"] / 12 + v["g:t"] / 6 + v["p:g"] / 24 + v["Residual"] / 72
    away = (y.mean() + 1.0) ** 2 - error
    signal = study.table["universe_var"][0] + away
    expected = signal / (signal + study.table["abs_err_var"][0])
    assert study.phi_lambda(-1.0)["estimate"][0] == pytest.approx(expected, rel=1e-9)


@pytest.fixture(scope="module")
def fixed_facet():
    """Two scores in each cell of 40 persons and three levels of g, which are far apart."""
    rng = np.random.default_rng(3)
    p, g, _ = (axis.ravel() for axis in np.indices((40, 3, 2)))
    y = 0.7 * rng.normal(size=40)[p] + np.array([-2.0, 0.0, 2.0])[g]
    y += 0.5 * rng.normal(size=(40, 3))[p, g] + 0.6 * rng.normal(size=p.size)
    formula = "y ~ (1|p) + (1|g) + (1|p:g)"
    return vcomp.fit(formula, {"p": p, "g": g, "y": y}, method="anova")


def test_phi_lambda_of_replicates_holds_the_effects_of_fixed_facets(fixed_facet):
    """Their mean varies about that of the universe, which has the effects of the fixed facet."""
    res, drawn = fixed_facet, fixed_facet.bootstrap(2000, rng=1)
    options = {"object": "p", "g": 3, "fixed": "g", "replicate": 2}
    # Components and the mean are independent: means of an error that has no share of g.
    v, estimates = np.maximum(drawn.values, 0.0), res.vcomp
    error = (estimates["p"] + estimates["p:g"] / 3 + estimates["Residual"] / 6) / 40
    means = res.fe_params.iloc[0] + np.sqrt(error) * np.random.default_rng(2).normal(size=len(v))
    signal = v[:, 0] + v[:, 2] / 3 + np.maximum((means - 1.0) ** 2 - error, 0.0)
    ends = np.quantile(signal / (signal + v[:, 3] / 6), [0.025, 0.975])
    row = res.dstudy(**options, interval=drawn).phi_lambda(1.0).iloc[0]
    # 50 replicates are beyond each end: their standard error is a twentieth of the length.
    np.testing.assert_allclose([row["low"], row["high"]], ends, atol=np.ptp(ends) / 7)
    alone = res.quantity("Phi_lambda", cut=1.0, interval=drawn, **options)
    assert [alone.low, alone.high] == [row["low"], row["high"]]


@pytest.mark.parametrize("made", ["resample", "jackknife"])
def test_phi_lambda_has_no_interval_from_other_levels_of_a_fixed_facet(fixed_facet, made):
    number = {"n": 30} if made == "resample" else {}
    drawn = {facet: getattr(fixed_facet, made)(facet, **number) for facet in ("p", "g")}
    options = {"object": "p", "g": 3, "fixed": "g"}
    with pytest.raises(PlanError, match=r"are of other levels of 'g', which the plan fixes"):
        fixed_facet.dstudy(**options, interval=drawn["g"]).phi_lambda(0.5)
    row = fixed_facet.dstudy(**options, interval=drawn["p"]).phi_lambda(0.5).iloc[0]
    assert row["low"] < row["high"]
    free = fixed_facet.dstudy(object="p", g=3, interval=drawn["g"]).phi_lambda(0.5)
    assert free["low"].notna().all()


def test_phi_lambda_is_what_estimate_says():
    alone = RES.quantity("Phi_lambda", cut=0.6, topic=5)
    row = RES.dstudy(topic=5).phi_lambda(0.6).iloc[0]
    found = [row["estimate"], row["se"], row["low"], row["high"]]
    expected = [alone.estimate, alone.se, alone.low, alone.high]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_phi_lambda_of_published_components():
    table_of = dict(zip(RES.vcomp.index, RES.vcomp, strict=True))
    mean = float(RES.fe_params.iloc[0])
    published = from_components(table_of, sizes={"sys": 5, "topic": 3}, mean=mean)
    row = published.dstudy("sys x topic", topic=5).phi_lambda(0.6).iloc[0]
    assert row["estimate"] == pytest.approx(
        RES.quantity("Phi_lambda", cut=0.6, topic=5).estimate, rel=1e-9
    )
    assert published.quantity("Phi_lambda", cut=0.6, topic=5).estimate == row["estimate"]


def test_phi_lambda_of_layouts_has_their_names():
    layouts = {"few": {"topic": [1, 2]}, "many": {"topic": [1, 2, 3, 4]}}
    table = RES.dstudy(object="sys", layout=layouts).phi_lambda([0.5, 0.6])
    assert list(table.index) == ["few", "few", "many", "many"]


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (None, "needs the cut score λ as a finite number"),
        ("0.5", "not '0.5'"),
        ([0.5, np.nan], "not nan"),
        ([], "cut= is empty"),
        (True, "not True"),
    ],
)
def test_cut_scores_that_are_none(cut, message):
    with pytest.raises(PlanError, match=message):
        RES.dstudy().phi_lambda(cut)


def test_phi_lambda_needs_a_mean():
    with pytest.raises(PlanError, match="published components with mean= and sizes="):
        from_components(BODOFF_LI).dstudy(i=5, a=1).phi_lambda(0.2)
    with pytest.raises(PlanError, match=r"sizes= lacks sys, topic"):
        from_components({"sys": 1, "topic": 1, "Residual": 1}, mean=0.5)
    for mean in ("0.5", np.inf, True):
        with pytest.raises(PlanError, match="the mean of the scores is a finite number"):
            from_components({"p": 1.0, "i:p": 1.0}, sizes={"p": 3, "i": 2}, mean=mean)
    data = vcomp.datasets.load("bodoff2007_alpha").assign(x=np.arange(15.0))
    res = vcomp.fit("score ~ x + (1|sys) + (1|topic)", data)
    with pytest.raises(PlanError, match="whose fixed part is one constant"):
        res.dstudy(topic=5).phi_lambda(0.2)


# effects -----------------------------------------------------------------------------------------


def test_effects_of_a_nested_dstudy():
    table = from_components(BODOFF_LI).dstudy("p x (a:i)", i=20, a=3).effects()
    assert table.index.tolist() == ["p", "i", "p:i", "a:i", "p:a:i"]
    assert table.loc["a:i", "components"] == "a + ia"
    assert table.loc["p:a:i", "components"] == "pa + pia"
    assert table["n"].tolist() == pytest.approx([1, 20, 20, 60, 60])
    v = BODOFF_LI
    expected = {
        "i": v["i"] / 20,
        "p:i": v["pi"] / 20,
        "a:i": (v["a"] + v["ia"]) / 60,
        "p:a:i": (v["pa"] + v["pia"]) / 60,
    }
    for effect, variance in expected.items():
        assert table.loc[effect, "abs_err_var"] == pytest.approx(variance, rel=1e-12)
        relative = variance if "p" in effect else 0.0
        assert table.loc[effect, "rel_err_var"] == pytest.approx(relative, rel=1e-12)


def test_effects_of_another_plan():
    study = from_components(BODOFF_LI).dstudy(i=[20, 40], a=1)
    assert isinstance(study.effects(1), pd.DataFrame)
    assert study.effects(1)["abs_err_var"].sum() == pytest.approx(
        study.table["abs_err_var"].iloc[1], rel=1e-12
    )
    with pytest.raises(PlanError, match="there is no plan 2: they are 0 to 1"):
        study.effects(2)


# Brennan's normal procedure ----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["anova", "reml"])
def test_standard_errors_of_the_normal_procedure(method):
    """Each mean square has the variance 2 MS²/(df + 2); the rest is linear (Brennan 2001, 6.1)."""
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", data, method=method)
    ms, df = res.anova_table()["mean_sq"].to_numpy(), res.anova_table()["df"].to_numpy()
    of_ms = np.array([[1 / 3, 0, -1 / 3], [0, 1 / 5, -1 / 5], [0, 0, 1]])
    cov = of_ms @ np.diag(2 * ms**2 / (df + 2)) @ of_ms.T
    np.testing.assert_allclose(res.cov_vcomp("unbiased"), cov, rtol=1e-8)
    study = res.dstudy(topic=[3, 12])
    weights = {
        "universe_var": [[1, 0, 0], [1, 0, 0]],
        "rel_err_var": [[0, 0, 1 / 3], [0, 0, 1 / 12]],
        "abs_err_var": [[0, 1 / 3, 1 / 3], [0, 1 / 12, 1 / 12]],
    }
    for name, w in weights.items():
        se = study.quantity(name, se="unbiased")["se"]
        expected = np.sqrt(np.diag(np.array(w) @ cov @ np.array(w).T))
        np.testing.assert_allclose(se, expected, rtol=1e-8)
    plain = study.quantity("abs_err_var")
    np.testing.assert_array_equal(
        plain["low"], study.quantity("abs_err_var", se="unbiased")["low"]
    )


def test_kinds_of_standard_errors_that_are_none():
    with pytest.raises(PlanError, match="se is 'delta' or 'unbiased', not 'normal'"):
        RES.dstudy(topic=3).quantity("Phi", se="normal")
    with pytest.raises(PlanError, match="the covariance matrix of the components, which is not"):
        from_components(BODOFF_LI).dstudy(i=5, a=1).quantity("Phi", se="unbiased")

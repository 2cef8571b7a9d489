"""Unequal residual variances: dense matrices, identities, refusals and what follows from a fit."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

import vcomp
from vcomp.estimators.likelihood import MatricesLikelihood

FORMULA = "y ~ x + (1|sys) + (1|topic)"


def _scores(seed=7, n_sys=5, n_topic=12):
    rng = np.random.default_rng(seed)
    sys, topic = (a.ravel() for a in np.indices((n_sys, n_topic)))
    x = rng.normal(size=sys.size)
    e = rng.normal(size=sys.size) * np.linspace(0.5, 2.0, n_sys)[sys]
    y = 1.0 + 0.5 * x + 1.5 * rng.normal(size=n_sys)[sys] + rng.normal(size=n_topic)[topic] + e
    data = pd.DataFrame({"y": y, "x": x, "sys": [f"s{i}" for i in sys], "topic": topic})
    return data.assign(half=np.where(topic < 5, "early", "late")).iloc[:-3]


DATA = _scores()
NAMES = ["sys", "topic", *(f"Residual[sys=s{i}]" for i in range(5))]
V = np.array([2.0, 0.8, 0.3, 0.6, 1.1, 1.7, 3.0])


@pytest.fixture(scope="module")
def model():
    return vcomp.VarianceComponentsModel(FORMULA, DATA, residual="sys")


@pytest.fixture(scope="module")
def res(model):
    return model.fit()


@pytest.fixture(scope="module")
def equal():
    return vcomp.fit(FORMULA, DATA)


def _dummies(column):
    return (column.to_numpy()[:, None] == np.unique(column)).astype(float)


def _parts(data=DATA, residual="sys"):
    """Return the derivatives V_t of the covariance matrix by the components, X and y."""
    Z = [_dummies(data["sys"]), _dummies(data["topic"])]
    parts = [z @ z.T for z in Z] + [np.diag(column) for column in _dummies(data[residual]).T]
    return parts, np.column_stack([np.ones(len(data)), data["x"]]), data["y"].to_numpy()


def _dense(v, *, reml):
    """Return likelihood, score and the three informations of dense matrices."""
    parts, X, y = _parts()
    cov = sum(x * part for x, part in zip(v, parts, strict=True))
    W = np.linalg.inv(cov)
    fixed = X.T @ W @ X
    P = W - W @ X @ np.linalg.solve(fixed, X.T @ W)
    Q = P if reml else W
    r = y @ P @ y
    n = y.size - X.shape[1] * reml
    logs = np.linalg.slogdet(cov)[1] + reml * np.linalg.slogdet(fixed)[1]
    score = [-0.5 * (np.trace(Q @ A) - y @ P @ A @ P @ y) for A in parts]
    expected = [[0.5 * np.trace(Q @ A @ Q @ B) for B in parts] for A in parts]
    average = [[0.5 * y @ P @ A @ P @ B @ P @ y for B in parts] for A in parts]
    found = np.array(expected), np.array(average)
    value = -0.5 * (logs + r + n * np.log(2.0 * np.pi))
    return value, np.array(score), {"expected": found[0], "average": found[1]}


@pytest.mark.parametrize("reml", [True, False])
def test_likelihood_and_derivatives_are_those_of_dense_matrices(model, reml):
    value, score, informations = _dense(V, reml=reml)
    assert model.loglike(V, reml=reml) == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(model.score(V, reml=reml), score, rtol=1e-9, atol=1e-9)
    observed = 2.0 * informations["average"] - informations["expected"]
    for kind, wanted in {**informations, "observed": observed}.items():
        found = model.information(V, information=kind, reml=reml)
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_estimate_is_where_the_dense_score_is_zero(model, method):
    res = model.fit(method)
    assert list(res.vcomp.index) == NAMES
    value, score, informations = _dense(res.vcomp.to_numpy(), reml=method == "reml")
    assert res.llf == pytest.approx(value, rel=1e-12)
    # Scores in units of the standard errors of the components.
    assert (
        np.abs(score * np.sqrt(np.diagonal(np.linalg.inv(informations["expected"])))).max() < 1e-6
    )
    observed = 2.0 * informations["average"] - informations["expected"]
    errors = np.sqrt(np.diagonal(np.linalg.inv(observed)))
    np.testing.assert_allclose(res.bse_vcomp, errors, rtol=1e-6)


def test_effects_and_predictions_are_those_of_dense_matrices(res):
    parts, X, y = _parts()
    v = res.vcomp.to_numpy()
    W = np.linalg.inv(sum(x * part for x, part in zip(v, parts, strict=True)))
    cov = np.linalg.inv(X.T @ W @ X)
    beta = cov @ X.T @ W @ y
    np.testing.assert_allclose(res.fe_params, beta, rtol=1e-9)
    np.testing.assert_allclose(res.bse_fe, np.sqrt(np.diagonal(cov)), rtol=1e-9)
    P = W - W @ X @ cov @ X.T @ W
    Z = np.column_stack([_dummies(DATA["sys"]), _dummies(DATA["topic"])])
    D = np.diag(np.repeat(v[:2], [5, 12]))
    u, error = D @ Z.T @ P @ y, D - D @ Z.T @ P @ Z @ D
    found = pd.concat([res.random_effects["sys"], res.random_effects["topic"]])
    np.testing.assert_allclose(found["estimate"], u, atol=1e-9)
    np.testing.assert_allclose(found["se"], np.sqrt(np.diagonal(error)), rtol=1e-8)
    np.testing.assert_allclose(res.fittedvalues, X @ beta + Z @ u, atol=1e-9)
    known = D - D @ Z.T @ W @ Z @ D
    rows = X - Z @ D @ Z.T @ W @ X
    mean = ((Z @ known) * Z).sum(axis=1) + ((rows @ cov) * rows).sum(axis=1)
    predicted = res.get_prediction()
    np.testing.assert_allclose(predicted.se_mean**2, mean, rtol=1e-8)
    of_row = v[2:][DATA["sys"].str[1].astype(int)]
    np.testing.assert_allclose(predicted.se_obs**2, mean + of_row, rtol=1e-8)
    again = res.get_prediction(DATA[["x", "sys", "topic"]])
    np.testing.assert_allclose(again.se_obs, predicted.se_obs, rtol=1e-12)


def test_forms_of_the_fixed_part_are_those_of_dense_matrices(model):
    parts, X, _ = _parts()
    X = X - [0.0, X[:, 1].mean()]
    W = np.linalg.inv(sum(x * part for x, part in zip(V, parts, strict=True)))
    likelihood = MatricesLikelihood(model.statistics, reml=True)
    forms = likelihood.fixed_forms(likelihood.matrices_of(V), second=True)
    first = np.array([X.T @ W @ A @ W @ X for A in parts])
    second = np.array([[X.T @ W @ A @ W @ B @ W @ X for B in parts] for A in parts])
    second = 0.5 * (second + second.swapaxes(2, 3))
    np.testing.assert_allclose(forms.first, first, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(forms.second, second, rtol=1e-8, atol=1e-10)


def test_equal_variances_have_the_likelihood_of_one(model, equal):
    v = equal.vcomp.to_numpy()
    assert model.loglike([*v[:2], *[v[2]] * 5]) == pytest.approx(equal.llf, rel=1e-13)


def test_weights_divide_the_variance_of_their_group():
    w = np.arange(1.0, 1.0 + len(DATA)) % 4 + 0.5
    model = vcomp.VarianceComponentsModel(FORMULA, DATA.assign(w=w), residual="sys", weights="w")
    parts, X, y = _parts()
    cov = sum(x * part for x, part in zip(V[:2], parts[:2], strict=True))
    cov = cov + sum(x * part / w for x, part in zip(V[2:], parts[2:], strict=True))
    W = np.linalg.inv(cov)
    fixed = X.T @ W @ X
    r = y - X @ np.linalg.solve(fixed, X.T @ W @ y)
    deviance = np.linalg.slogdet(cov)[1] + np.linalg.slogdet(fixed)[1] + r @ W @ r
    value = -0.5 * (deviance + (y.size - 2) * np.log(2.0 * np.pi))
    assert model.loglike(V) == pytest.approx(value, rel=1e-12)


def test_with_slopes_the_likelihood_is_that_of_dense_matrices():
    res = vcomp.fit("y ~ x + (x|topic) + (1|sys)", DATA, residual="half")
    v = res.vcomp
    Z, x = _dummies(DATA["topic"]), DATA["x"].to_numpy()
    across = Z @ Z.T * v["topic[(Intercept),x]"]
    cov = (
        v["topic"] * Z @ Z.T
        + v["topic[x]"] * np.outer(x, x) * (Z @ Z.T)
        + across * (x[:, None] + x)
        + v["sys"] * _dummies(DATA["sys"]) @ _dummies(DATA["sys"]).T
        + np.diag(_dummies(DATA["half"]) @ v.to_numpy()[-2:])
    )
    assert list(v.index[-3:]) == [
        "topic[(Intercept),x]", "Residual[half=early]", "Residual[half=late]",
    ]  # fmt: skip
    _, X, y = _parts()
    W = np.linalg.inv(cov)
    fixed = X.T @ W @ X
    r = y - X @ np.linalg.solve(fixed, X.T @ W @ y)
    deviance = np.linalg.slogdet(cov)[1] + np.linalg.slogdet(fixed)[1] + r @ W @ r
    value = -0.5 * (deviance + (y.size - 2) * np.log(2.0 * np.pi))
    assert res.llf == pytest.approx(value, rel=1e-11)


def test_equal_variances_are_tested_by_the_likelihood_ratio(res, equal):
    statistic = 2.0 * (res.llf - equal.llf)
    found = res.test("Residual")
    assert found.statistic == pytest.approx(statistic, rel=1e-8)
    assert found.p_value == pytest.approx(chi2.sf(statistic, 4), rel=1e-7)
    table = vcomp.compare(equal, res).table
    assert table["statistic"].iloc[1] == pytest.approx(statistic, rel=1e-8)
    assert table["df"].iloc[1] == 4
    assert table["npar"].tolist() == [5, 9]
    assert table["p_value"].iloc[1] == pytest.approx(chi2.sf(statistic, 4), rel=1e-7)
    assert res.aic == pytest.approx(-2.0 * res.llf + 2 * 9)


def test_finer_groups_contain_coarser_ones(res):
    data = DATA.assign(many=DATA["sys"].str[1].astype(int) > 2)
    finer = vcomp.fit(FORMULA, data, residual="half:many")
    assert finer.vcomp.index[2] == "Residual[half=early,many=False]"
    other = vcomp.fit(FORMULA, data, residual="half")
    assert vcomp.compare(other, finer).comparisons[0].df == 2
    assert (
        "only the first has residual variances by half"
        in vcomp.compare(other, res).comparisons[0].notes[0]
    )


def test_a_component_is_tested_next_to_several_residuals(res):
    smaller = vcomp.fit("y ~ x + (1|sys)", DATA, residual="sys")
    statistic = 2.0 * (res.llf - smaller.llf)
    assert res.test("topic").statistic == pytest.approx(statistic, rel=1e-7)
    # Without the only term there are residuals alone: weighted least squares of each half.
    alone = vcomp.fit("y ~ 0 + half + (1|topic)", DATA, method="ml", residual="half")
    y = DATA["y"].to_numpy()
    loglike = 0.0
    for level in ("early", "late"):
        own = y[DATA["half"] == level]
        loglike -= 0.5 * own.size * (np.log(2.0 * np.pi * own.var()) + 1.0)
    wanted = 2.0 * (alone.llf - loglike)
    assert alone.test("topic").statistic == pytest.approx(max(wanted, 0.0), rel=1e-7, abs=1e-9)


def test_order_of_rows_and_names_of_levels_do_not_matter(res):
    shuffled = DATA.sample(frac=1.0, random_state=1)
    renamed = shuffled.assign(sys=shuffled["sys"].map(lambda name: f"z{9 - int(name[1])}"))
    other = vcomp.fit(FORMULA, renamed, residual="sys")
    np.testing.assert_allclose(other.vcomp.iloc[[0, 1]], res.vcomp.iloc[[0, 1]], rtol=1e-7)
    np.testing.assert_allclose(other.vcomp.iloc[:1:-1], res.vcomp.iloc[2:], rtol=1e-7)


def test_error_variances_are_the_components_and_their_dstudies(res):
    table = res.error_variances(interval="wald")
    assert table.index.tolist() == [f"s{i}" for i in range(5)]
    assert table["n"].tolist() == [12, 12, 12, 12, 9]
    np.testing.assert_allclose(table["variance"], res.vcomp.iloc[2:])
    np.testing.assert_allclose(table["se"], res.bse_vcomp.iloc[2:])
    v = res.vcomp.to_numpy()
    plans = res.error_variances(object="sys", topic=[5, 20])
    for n in (5, 20):
        rows = plans[plans["topic"] == n]
        relative = v[2:] / n
        absolute = (v[1] + v[2:]) / n
        np.testing.assert_allclose(rows["rel_err_var"], relative, rtol=1e-12)
        np.testing.assert_allclose(rows["rel_sem"], np.sqrt(relative), rtol=1e-12)
        np.testing.assert_allclose(rows["abs_sem"], np.sqrt(absolute), rtol=1e-12)
        np.testing.assert_allclose(rows["Phi"], v[0] / (v[0] + absolute), rtol=1e-12)


def test_a_dstudy_has_the_mean_of_the_error_variances(res):
    study = res.dstudy(object="sys", topic=20, interval="mls")
    wanted = res.error_variances(object="sys", topic=20)["abs_err_var"].mean()
    assert study.table["abs_err_var"].iloc[0] == pytest.approx(wanted, rel=1e-12)
    J = np.array([0.0, 1.0, *[0.2] * 5]) / 20
    se = np.sqrt(J @ res.cov_vcomp().to_numpy() @ J)
    assert study.table["abs_err_var_se"].iloc[0] == pytest.approx(se, rel=1e-10)
    assert any("mean of the residual variances" in note for note in study.notes)
    quantity = res.quantity("abs_err_var", object="sys", topic=20, interval="mls")
    assert quantity.estimate == pytest.approx(wanted, rel=1e-12)
    assert quantity.se == pytest.approx(se, rel=1e-10)


def test_each_level_has_the_dstudy_of_its_residual(res):
    study, v = res.dstudy(object="sys", topic=[5, 20], interval="mls"), res.vcomp
    assert list(study.by_level) == [f"s{i}" for i in range(5)]
    for level, own in study.by_level.items():
        values = {"sys": v["sys"], "topic": v["topic"], "Residual": v[f"Residual[sys={level}]"]}
        places = [0, 1, list(v.index).index(f"Residual[sys={level}]")]
        cov = res.cov_vcomp().to_numpy()[np.ix_(places, places)]
        published = vcomp.from_components(values, cov=cov)
        alone = published.dstudy(object="sys", topic=[5, 20], interval="mls").table
        np.testing.assert_allclose(own.table[alone.columns], alone, rtol=1e-10)
    loaded = vcomp.gtheory.DStudy.from_json(study.to_json())
    assert str(loaded.summary()) == str(study.summary())
    cheapest = study.optimize({"topic": 1}, goal=0.9).best.study
    assert list(cheapest.by_level) == list(study.by_level)


def test_levels_of_a_dstudy_have_names():
    res = vcomp.fit(FORMULA, DATA, residual="half")
    assert list(res.dstudy(topic=5).by_level) == ["early", "late"]
    several = vcomp.fit(FORMULA, DATA.assign(part=DATA["sys"] < "s2"), residual="half:part")
    assert "half=early,part=True" in several.dstudy(topic=5).by_level


def test_one_residual_has_no_levels(equal, res):
    assert len(equal.dstudy(topic=5).by_level) == 0
    levels = res.dstudy(topic=5).by_level
    assert "s9" not in levels
    assert list(levels) == ["s0", "s1", "s2", "s3", "s4"]


def test_a_gstudy_has_residual_variances_by_level(res):
    data = DATA.rename(columns={"sys": "system"})
    intercept = vcomp.fit("y ~ (1|sys) + (1|topic)", DATA, residual="sys")
    for residual in ("s", "system"):
        facets = {"s": "system", "t": "topic"}
        study = vcomp.gstudy("s x t", data, "y", facets=facets, residual=residual)
        np.testing.assert_allclose(study.vcomp, intercept.vcomp, rtol=1e-9)
        assert study.vcomp.index[-1] == "Residual[s=s4]"
        assert list(study.dstudy("s x T", t=9).by_level) == [f"s{i}" for i in range(5)]
    study = vcomp.gstudy("sys x topic", DATA, "y", residual="half")
    other = vcomp.fit("y ~ (1|sys) + (1|topic)", DATA, residual="half")
    np.testing.assert_allclose(study.vcomp, other.vcomp, rtol=1e-9)
    with pytest.raises(vcomp.DataError, match="no column 'halve'"):
        vcomp.gstudy("sys x topic", DATA, "y", residual="halve")


def test_robust_dstudies_have_the_influences_on_the_mean_residual(res):
    """The relative variances of the mean's squares are those of the influences of the rows."""
    components = res._record.robust_components()
    levels, mean = components.levels, components.with_one_residual().levels
    A = np.zeros((3, 7))
    A[:2, :2], A[2, 2:] = np.eye(2), 0.2
    influences = A @ levels.inverse
    expected = influences @ levels.shared @ influences.T
    found = mean.inverse @ mean.shared @ mean.inverse
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-14)
    normal = mean.inverse @ mean.information @ mean.inverse
    np.testing.assert_allclose(normal, A @ levels.inverse @ A.T, rtol=1e-9)
    row = res.dstudy(object="sys", topic=20, interval="robust").table.iloc[0]
    assert row["abs_err_var_low"] < row["abs_err_var"] < row["abs_err_var_high"]


def test_universe_scores_have_the_error_of_their_level(res):
    v, n = res.vcomp.to_numpy(), np.array([12, 12, 12, 12, 9])
    found = res.universe_scores("sys")
    np.testing.assert_allclose(found["sem_rel"], np.sqrt(v[2:] / n), rtol=1e-12)
    np.testing.assert_allclose(found["sem_abs"], np.sqrt((v[1] + v[2:]) / n), rtol=1e-12)
    planned = res.universe_scores("sys", topic=20)
    wanted = res.error_variances(object="sys", topic=20)
    np.testing.assert_allclose(planned[["sem_rel", "sem_abs"]], wanted[["rel_sem", "abs_sem"]])
    # Conditional errors are from the scores of each object.
    equal = vcomp.fit(FORMULA, DATA).universe_scores("sys")
    np.testing.assert_allclose(found["csem_abs"], equal["csem_abs"], rtol=1e-10)
    np.testing.assert_allclose(found["mean"], DATA.groupby("sys")["y"].mean(), rtol=1e-12)
    # μ̂ + û at the mean of x, and its error, from dense matrices.
    parts, X, y = _parts()
    W = np.linalg.inv(sum(x * part for x, part in zip(v, parts, strict=True)))
    cov = np.linalg.inv(X.T @ W @ X)
    beta, Z, mean = cov @ X.T @ W @ y, _dummies(DATA["sys"]), X.mean(axis=0)
    u = v[0] * Z.T @ W @ (y - X @ beta)
    np.testing.assert_allclose(found["universe_score"], mean @ beta + u, rtol=1e-9)
    known = v[0] * np.eye(5) - v[0] ** 2 * Z.T @ W @ Z
    L = mean - v[0] * Z.T @ W @ X
    se = np.sqrt(np.diagonal(known + L @ cov @ L.T))
    np.testing.assert_allclose(found["se"], se, rtol=1e-8)


def test_universe_scores_have_the_mean_error_of_their_scores():
    res = vcomp.fit(FORMULA, DATA, residual="half")
    v = res.vcomp
    early = (DATA["half"] == "early").groupby(DATA["sys"]).mean()
    residual = early * v["Residual[half=early]"] + (1 - early) * v["Residual[half=late]"]
    found = res.universe_scores("sys", topic=6)
    np.testing.assert_allclose(found["sem_rel"], np.sqrt(residual / 6), rtol=1e-12)


def test_r2_has_the_mean_residual_of_the_rows(res):
    v, n = res.vcomp.to_numpy(), np.array([12, 12, 12, 12, 9])
    _, X, _ = _parts()
    fixed = np.var(X @ res.fe_params.to_numpy(), ddof=1)
    total = fixed + v[0] + v[1] + v[2:] @ n / n.sum()
    assert res.r2()["marginal"] == pytest.approx(fixed / total, rel=1e-10)


def test_stored_results_keep_the_groups(res):
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    pickled = pickle.loads(pickle.dumps(res))
    for other in (loaded, pickled):
        pd.testing.assert_frame_equal(other.error_variances(), res.error_variances())
        pd.testing.assert_frame_equal(other.error_variances(topic=9), res.error_variances(topic=9))
        assert str(other.summary()) == str(res.summary())
        with pytest.raises(vcomp.DataError, match="fit the model again"):
            other.test("Residual")


def test_refits_of_drawn_scores_are_fits_of_them(res):
    # In the first of the drawn sets a residual variance goes to zero.
    with pytest.warns(vcomp.VcompWarning, match="1 of 3"):
        draws = res.bootstrap(3, rng=3)
    drawn = res.simulate(3, rng=3)
    assert draws.converged.tolist() == [False, True, True]
    for b in (1, 2):
        again = vcomp.fit(FORMULA, DATA.assign(y=drawn[b]), residual="sys")
        np.testing.assert_allclose(draws.values[b], again.vcomp, rtol=1e-5)


def test_drawn_scores_have_the_variances_of_their_groups(res):
    drawn = res.simulate(4000, rng=1).to_numpy()
    v = res.vcomp.to_numpy()
    wanted = v[0] + v[1] + v[2:][DATA["sys"].str[1].astype(int)]
    # A variance of 4,000 normal numbers has a standard error of 2.2 %; there are 57 of them.
    np.testing.assert_allclose(drawn.var(axis=1), wanted, rtol=4.5 * 0.0224)


def test_summary_names_the_groups(res):
    text = str(res.summary())
    assert "residual='sys'" in text
    assert "Residual[sys=s4]" in text
    assert "share" not in text


REFUSED = [
    (lambda r: r.crosscheck(), "fit by the other"),
    (lambda r: r.resample("topic"), "use adjust=False"),
    (lambda r: r.components, "error_variances()"),
    (lambda r: r.compare_levels("sys"), "res.random_effects"),
    (lambda r: r.icc(), "varcorr()"),
    (lambda r: r.scale, "error_variances()"),
    (lambda r: r.test("topic", test="f"), "test='lrt'"),
    (lambda r: r.test("Residual[sys=s0]"), "test('Residual')"),
    (lambda r: r.dstudy(topic=5, interval="f"), "interval='mls'"),
    (lambda r: vcomp.presets.precision(r), "leave residual= out"),
]


@pytest.mark.parametrize(("call", "instead"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_needs_one_residual_is_refused(res, call, instead):
    with pytest.raises(vcomp.EstimationError, match=re.escape(instead)):
        call(res)


def test_what_refusals_advise_leads_on(res):
    assert res.dstudy(object="sys", topic=5, interval="mls").table["Phi_low"].notna().all()
    assert res.test("topic", test="lrt").p_value < 1.0
    assert len(vcomp.fit(FORMULA, DATA, residual="sys").error_variances()) == 5
    both = vcomp.fit(FORMULA, DATA, residual="sys", method="ml")
    assert both.vcomp.index[-1] == "Residual[sys=s4]"
    one = vcomp.fit(FORMULA, DATA)
    assert len(one.universe_scores("sys")) == 5


BAD = [
    ({"method": "anova"}, "use method='reml' or 'ml'"),
    ({"method": "minque"}, "use method='reml' or 'ml'"),
    ({"method": "henderson3"}, "use method='reml' or 'ml'"),
    ({"hold": {"Residual": 1.0}}, "'Residual', which is not in the model"),
    ({"hold": {"Residual[sys=s0]": 0.0}}, "hold the residual at a positive value"),
    ({"engine": "iterative"}, "use engine='auto'"),
    ({"residual": "1|sys"}, "residual='sys'"),
    ({"residual": 3}, "residual='sys'"),
    ({"residual": ""}, "residual='sys'"),
    ({"residual": "system"}, "no column 'system'"),
    ({"residual": "sys:topic"}, "sys=s0,topic=0 has one row, and so have 56 more levels"),
    ({"residual": "one"}, "one level only"),
    ({"residual": "row"}, "row=a has one row, and a variance needs two"),
]


@pytest.mark.parametrize(("options", "words"), BAD, ids=[str(options) for options, _ in BAD])
def test_bad_input_is_named(options, words):
    data = DATA.assign(one=1, row=np.where(np.arange(len(DATA)) == 4, "a", "b"))
    with pytest.raises(vcomp.VcompError, match=re.escape(words)):
        vcomp.fit(FORMULA, data, **{"residual": "sys", **options})


def test_a_variance_that_goes_to_zero_is_named():
    data = DATA.assign(y=np.where(DATA["half"] == "early", DATA["topic"] * 0.7, DATA["y"]))
    with pytest.raises(vcomp.EstimationError, match=r"Residual\[half=early\] goes to zero"):
        vcomp.fit("y ~ (1|topic)", data, residual="half")


def test_a_new_level_has_no_error():
    res = vcomp.fit("y ~ x + (1|topic)", DATA, residual="sys")
    new = pd.DataFrame({"x": [1.0], "sys": ["s9"], "topic": [3]})
    assert np.isfinite(res.predict(new)).all()
    with pytest.raises(vcomp.DataError, match="sys=s9 did not occur in the fit"):
        res.get_prediction(new)


def test_missing_levels_are_left_out():
    data = DATA.assign(half=DATA["half"].where(np.arange(len(DATA)) > 1))
    with pytest.warns(vcomp.VcompWarning, match="half 2"):
        res = vcomp.fit("y ~ x + (1|topic)", data, residual="half")
    assert res.error_variances()["n"].sum() == len(DATA) - 2


def test_one_residual_has_no_table(equal):
    with pytest.raises(vcomp.EstimationError, match="residual='sys'"):
        equal.error_variances()
    with pytest.raises(vcomp.EstimationError, match="residual cannot be tested"):
        equal.test("Residual")

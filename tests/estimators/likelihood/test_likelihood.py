"""REML and ML as a user asks for them: held components, starts, certificates, what goes wrong."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.altered_engines import AverageOnly, Flat, Probing, Saddle
from tests.helpers.cases import alternately
from tests.helpers.designs import DESIGNS, balanced, unbalanced
from vcomp.estimators.likelihood import likelihood
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.strata_likelihood import StrataLikelihood
from vcomp.estimators.registry import get_estimator

METHODS = ("reml", "ml")


def one_way(seed=1, a=12, n=5):
    """Return balanced one-way data with its mean squares."""
    rng = np.random.default_rng(seed)
    y = 1.5 * rng.normal(size=a)[np.repeat(range(a), n)] + rng.normal(size=a * n)
    table = y.reshape(a, n)
    means = table.mean(1)
    between = n * means.var(ddof=1)
    within = ((table - means[:, None]) ** 2).sum() / (a * (n - 1))
    return pd.DataFrame({"a": np.repeat(range(a), n), "y": y}), between, within, a, n


def with_engine(monkeypatch, kind):
    """Make every likelihood one of this kind."""
    monkeypatch.setattr(
        likelihood,
        "choose_engine",
        lambda stats, engine="auto", *, reml, **_: kind(stats.cross_products, reml=reml),
    )


# Held components ------------------------------------------------------------------------------


def test_a_held_residual_in_closed_form():
    """With σ²_e known, (σ²_e + n σ²_a) is the mean square between, and the only unknown."""
    data, between, _, a, n = one_way()
    res = vcomp.fit("y ~ (1|a)", data, hold={"Residual": 0.9})
    assert res.vcomp["Residual"] == 0.9
    assert res.vcomp["a"] == pytest.approx((between - 0.9) / n, rel=1e-10)
    # I = (a − 1) n² / 2 (E MS)² at the maximum, where E MS = MS.
    assert res.bse_vcomp["a"] == pytest.approx(between / n * np.sqrt(2 / (a - 1)), rel=1e-9)
    assert np.isnan(res.bse_vcomp["Residual"])
    assert res.held == ("Residual",)
    assert res.status == "Converged; σ²(Residual) is held at 0.9."


def test_a_held_term_in_closed_form():
    """With σ²_a known, the score of σ²_e is a cubic: its root, and its slope there."""
    data, between, within, a, n = one_way()
    known = 0.7
    e = np.polynomial.Polynomial([0.0, 1.0])
    m = e + n * known
    # −2 ∂ℓ/∂e = (a−1)/m − (a−1) MSB/m² + a(n−1)/e − a(n−1) MSW/e², times m² e².
    outer, inner = a - 1, a * (n - 1)
    cubic = outer * e**2 * (m - between) + inner * m**2 * (e - within)
    (root,) = [r.real for r in cubic.roots() if abs(r.imag) < 1e-12 and r.real > 0]
    res = vcomp.fit("y ~ (1|a)", data, hold={"a": known})
    assert res.vcomp["Residual"] == pytest.approx(root, rel=1e-10)
    at = root + n * known
    curvature = 0.5 * (
        -outer / at**2
        + 2 * outer * between / at**3
        - inner / root**2
        + 2 * inner * within / root**3
    )
    assert res.bse_vcomp["Residual"] == pytest.approx(1 / np.sqrt(curvature), rel=1e-9)
    deviance = outer * np.log(at) + outer * between / at + inner * np.log(root)
    deviance += inner * within / root + np.log(a * n) + (a * n - 1) * np.log(2 * np.pi)
    assert res.llf == pytest.approx(-0.5 * deviance, rel=1e-12)


def test_a_term_held_at_zero_is_not_there():
    formula, data = unbalanced("three facets", seed=2)
    held = vcomp.fit(formula, data, hold={"a:b": 0})
    without = vcomp.fit(formula.replace(" + (1|a:b)", ""), data)
    names = list(without.vcomp.index)
    np.testing.assert_allclose(held.vcomp[names], without.vcomp, rtol=1e-8)
    np.testing.assert_allclose(held.bse_vcomp[names], without.bse_vcomp, rtol=1e-7)
    assert held.llf == pytest.approx(without.llf, rel=1e-12)
    assert held.aic == pytest.approx(without.aic, rel=1e-12)
    assert held.bic == pytest.approx(without.bic, rel=1e-12)
    assert "a:b" not in held.certificate.bounded
    assert held.certificate.held == ("a:b",)


@pytest.mark.parametrize(("name", "method"), alternately(sorted(DESIGNS), *METHODS))
def test_held_at_their_estimates_the_others_do_not_move(name, method):
    formula, data = unbalanced(name, seed=4)
    free = vcomp.fit(formula, data, method=method)
    positive = free.vcomp.index[free.vcomp > 0.0]
    for held in (positive[:1], positive[-1:]):
        res = vcomp.fit(formula, data, method=method, hold=free.vcomp[held].to_dict())
        np.testing.assert_allclose(res.vcomp, free.vcomp, rtol=1e-8)
        assert res.llf == pytest.approx(free.llf, rel=1e-12)
        # The information of the others, those held taken as known, is their own block.
        rest = [n for n in positive if n not in held]
        names = list(free.vcomp.index)
        at = [names.index(n) for n in rest]
        information = free.model.information(free.vcomp, reml=method == "reml")
        expected = np.linalg.inv(information[np.ix_(at, at)])
        np.testing.assert_allclose(res.cov_vcomp().loc[rest, rest], expected, rtol=1e-6)
        assert res.bse_vcomp[held].isna().all()
        assert set(res.certificate.free) == set(rest)


def test_everything_may_be_held():
    formula, data = unbalanced("crossed")
    values = {"a": 1.0, "b": 0.0, "Residual": 2.0}
    res = vcomp.fit(formula, data, hold=values)
    assert res.vcomp.to_dict() == values
    assert res.llf == pytest.approx(res.model.loglike(values), rel=1e-13)
    assert res.converged
    assert res.certificate.free == ()
    assert res.bse_vcomp.isna().all()
    assert res.bse_fe.notna().all()


def test_a_constant_response_with_held_components():
    data = {"a": [1, 1, 2, 2, 3, 3], "y": [2.0] * 6}
    with pytest.raises(vcomp.EstimationError, match="response is constant: with components held"):
        vcomp.fit("y ~ (1|a)", data, hold={"a": 1.0})
    res = vcomp.fit("y ~ (1|a)", data, hold={"Residual": 1.0})
    assert res.vcomp.tolist() == [0.0, 1.0]


def test_what_a_held_component_means_for_a_dstudy():
    """It is known: it has no part in standard errors, and no interval needs mean squares."""
    formula, data = balanced("crossed", seed=1)
    res = vcomp.fit(formula, data, hold={"b": 0.5})
    study = res.dstudy(object="a", b=10, interval="mls")
    row = study.table.iloc[0]
    cov = res.cov_vcomp().loc[["a", "Residual"], ["a", "Residual"]].to_numpy()
    s2_a, _, s2_e = res.vcomp
    for error, column in ((s2_e / 10, "rel_err_var"), ((0.5 + s2_e) / 10, "abs_err_var")):
        assert row[column] == pytest.approx(error)
        assert row[f"{column}_se"] == pytest.approx(np.sqrt(cov[1, 1]) / 10)
        coefficient = "Erho2" if column == "rel_err_var" else "Phi"
        gradient = np.array([error, -s2_a / 10]) / (s2_a + error) ** 2
        assert row[f"{coefficient}_se"] == pytest.approx(np.sqrt(gradient @ cov @ gradient))
    assert study.interval_methods["Erho2"].startswith("modified large sample")
    (note,) = [n for n in study.notes if "held" in n]
    assert note.startswith("σ²(b) has no standard error, being held;")
    assert study.required(0.9, "Phi", "b").n > 0


def test_what_is_known_altogether_has_no_error():
    formula, data = balanced("crossed", seed=1)
    res = vcomp.fit(formula, data, hold={"a": 2.0, "Residual": 1.0})
    row = res.dstudy(object="a", b=10).table.iloc[0]
    assert row["Erho2_se"] == 0.0
    assert row["Erho2_low"] == row["Erho2"] == row["Erho2_high"]
    assert row["Phi_se"] > 0.0


def test_held_components_in_tables_and_in_print():
    formula, data = balanced("crossed", seed=1)
    res = vcomp.fit(formula, data, hold={"b": 0.5})
    for interval in ("robust", "mls"):
        table = res.gstudy(interval=interval)
        assert table.loc["b", ["se", "low", "high"]].isna().all()
        assert table.drop("b").notna().all(axis=None)
    assert res.gstudy()["percent"].sum() == pytest.approx(100.0)
    line = next(x for x in str(res.summary()).splitlines() if x.startswith("b "))
    _, estimate, sd, error = line.split()[:4]
    assert (float(estimate), error) == (0.5, "held")
    assert float(sd) == pytest.approx(0.5**0.5, abs=1e-4)
    assert "σ²(b) is held at 0.5" in str(res.summary())
    at_zero = vcomp.fit(formula, data, hold={"b": 0.0})
    assert "at its bound" not in str(at_zero.summary())


# Starts ---------------------------------------------------------------------------------------


def test_starts_lead_to_the_same_answer():
    formula, data = unbalanced("three facets", seed=2)
    expected = vcomp.fit(formula, data)
    names = list(expected.vcomp.index)
    whole = np.linspace(0.1, 2.0, len(names))
    for start in (
        {"a": 5.0},
        {"Residual": 1e-3, "a:b": 0},
        pd.Series({"c": 1e5}),
        whole,
        whole.tolist(),
        dict(zip(names, whole, strict=True)),
    ):
        res = vcomp.fit(formula, data, start=start)
        scale = expected.vcomp.sum()
        np.testing.assert_allclose(res.vcomp, expected.vcomp, rtol=1e-7, atol=1e-10 * scale)
        first = res.iterations.iloc[0]
        given = dict(zip(names, start, strict=True)) if not hasattr(start, "keys") else start
        assert all(first[f"var({name})"] == given[name] for name in given.keys())  # noqa: SIM118
    by_default = vcomp.fit(formula, data, start={"a": 5.0}).iterations.iloc[0]
    assert by_default["var(b)"] == expected.iterations.iloc[0]["var(b)"]


def test_a_start_at_the_answer_takes_no_step():
    formula, data = unbalanced("nested")
    answer = vcomp.fit(formula, data).vcomp
    assert vcomp.fit(formula, data, start=answer).certificate.iterations == 0


MISTAKES = [
    (
        {"hold": {"d": 1.0}},
        "hold names component 'd', which is not in the model; components are a, b, Residual",
    ),
    ({"hold": {"a": -1.0}}, "hold={'a': -1.0}: a component must be a number of at least 0"),
    ({"hold": {"a": np.nan}}, "a component must be a number of at least 0"),
    ({"hold": {"a": "x"}}, "a component must be a number of at least 0"),
    ({"hold": {"a": True}}, "a component must be a number of at least 0"),
    ({"hold": {"Residual": 0}}, "hold the residual at a positive value, or estimate it"),
    ({"hold": "a"}, "hold must be a mapping such as {'a': 0.01}"),
    ({"start": {"d": 1.0}}, "start names component 'd', which is not in the model"),
    ({"start": {"Residual": 0.0}}, "the start of 'Residual' must be positive, not 0"),
    ({"start": [1.0, 2.0]}, "3 numbers in the order a, b, Residual, not [1.0, 2.0]"),
    ({"start": ["x", 1.0, 2.0]}, "3 numbers in the order a, b, Residual"),
    ({"start": [1.0, -1.0, 2.0]}, "start={'b': -1.0}: a component must be a number of at least 0"),
    ({"start": {"a": 1.0}, "hold": {"a": 1.0}}, "start and hold both name component 'a'"),
    ({"tol": 0.0}, "tol must be a number between 0 and 1, not 0.0"),
    ({"tol": "small"}, "tol must be a number between 0 and 1, not 'small'"),
    ({"max_iter": -1}, "max_iter must be a whole number of at least 0, not -1"),
    ({"max_iter": 2.5}, "max_iter must be a whole number of at least 0, not 2.5"),
    ({"engine": "fast"}, "engine='fast' is not known; it is one of 'auto', 'strata', 'levels'"),
    ({"steps": 5}, "not 'steps'"),
]


@pytest.mark.parametrize(("options", "message"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_options_that_cannot_be(options, message):
    formula, data = unbalanced("crossed")
    with pytest.raises(vcomp.EstimationError) as error:
        vcomp.fit(formula, data, **options)
    assert message in str(error.value)


# Certificates ---------------------------------------------------------------------------------


def test_a_component_at_its_bound_is_an_ordinary_answer():
    """Without an effect of a, and with means of a closer than chance, σ²(a) is 0."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": np.repeat(range(8), 6), "y": rng.normal(size=48)})
    data["y"] -= data.groupby("a")["y"].transform("mean")
    res = vcomp.fit("y ~ (1|a)", data)
    assert res.converged
    assert res.vcomp["a"] == 0.0
    assert res.certificate.bounded == ("a",)
    assert res.certificate.bound_scores["a"] < 0.0
    assert "σ²(a) is estimated at its bound 0 (derivative of the log-likelihood" in res.status
    assert np.isnan(res.bse_vcomp["a"])
    # What is left is a sample with one mean: SS/(n − 1), and its variance 2σ⁴/(n − 1).
    s2 = data["y"].var()
    # The iteration ends within 1e-10 standard errors.
    assert res.vcomp["Residual"] == pytest.approx(s2, rel=1e-10)
    assert res.bse_vcomp["Residual"] == pytest.approx(s2 * np.sqrt(2 / 47), rel=1e-10)
    score = vcomp.VarianceComponentsModel("y ~ (1|a)", data).score(res.vcomp)
    assert score[0] == pytest.approx(res.certificate.bound_scores["a"])
    words = str(res.certificate)
    assert "At a maximum" in words
    assert "at the bound 0: a (derivative -" in words


@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_a_certificate_in_words(name):
    formula, data = unbalanced(name, seed=4)
    res = vcomp.fit(formula, data)
    shown = res.certificate
    words = repr(shown)
    assert words == str(shown)
    for what in ("At a maximum: Newton decrement", "tolerance 1e-10", "positive definite", " s ("):
        assert what in words
    assert all(component in words for component in res.vcomp.index)
    assert f"Engine: {shown.engine}" in words
    assert res.engine == f"{shown.engine}: {shown.reason}"
    assert max(map(len, words.splitlines())) <= 92
    assert set(shown.seconds) >= {"start", "maximise", "information"}
    assert res.seconds == dict(shown.seconds)
    assert shown.iterations == len(res.iterations) - 1


def test_the_log_is_a_frame():
    formula, data = unbalanced("three facets")
    res = vcomp.fit(formula, data, start={"a": 1e3})
    log = res.iterations
    names = [f"var({n})" for n in res.vcomp.index]
    fixed = ["llf", "step", "fraction", "newton_decrement", "kkt_residual", "n_bound"]
    assert list(log.columns) == [*fixed, *names]
    assert log.index.name == "iteration"
    np.testing.assert_array_equal(log[names].iloc[-1], res.vcomp)
    assert log["llf"].iloc[-1] == res.llf
    assert log["newton_decrement"].iloc[-1] == res.certificate.newton_decrement
    assert vcomp.fit(formula, data, method="anova").iterations.empty


def test_limit_of_steps_is_said_and_warned_of():
    formula, data = unbalanced("three facets")
    with pytest.warns(vcomp.VcompWarning, match="limit of 1 step was reached; raise max_iter"):
        res = vcomp.fit(formula, data, method="ml", max_iter=1)
    assert not res.converged
    assert res.status.startswith("Not converged")
    assert "NOT CONVERGED" in str(res.summary())
    assert "NOT shown to be a maximum" in str(res.certificate)
    assert len(res.iterations) == 2


@pytest.mark.parametrize("limit", [0, 1, 3, 5, 8, 11])
def test_what_is_not_a_maximum_is_never_marked_converged(limit):
    """Stopped after any number of steps: converged says whether the maximum is there."""
    formula, data = unbalanced("three facets", seed=5)
    expected = vcomp.fit(formula, data)
    start = {"a": 1e4, "Residual": 1e-3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        res = vcomp.fit(formula, data, start=start, max_iter=limit)
    close = np.allclose(res.vcomp, expected.vcomp, rtol=1e-7, atol=1e-10)
    assert close or not res.converged
    decrement = res.certificate.newton_decrement
    assert decrement <= 1e-6 if res.converged else decrement > 1e-10


def test_a_saddle_is_not_a_maximum(monkeypatch):
    formula, data = unbalanced("crossed")
    with_engine(monkeypatch, Saddle)
    with pytest.warns(vcomp.VcompWarning, match=r"rises: a saddle point; try another start="):
        res = vcomp.fit(formula, data, engine="blocked")
    assert not res.converged
    assert max(res.certificate.information_eigenvalues) < 0.0
    assert "NOT positive definite" in str(res.certificate)
    assert res.bse_vcomp.isna().all()


def test_a_flat_likelihood_is_no_maximum(monkeypatch):
    formula, data = unbalanced("crossed")
    with_engine(monkeypatch, Flat)
    with pytest.warns(vcomp.VcompWarning, match="Not converged: .* flat along"):
        res = vcomp.fit(formula, data, engine="blocked")
    assert not res.converged
    # Of two components with information [1 2; 2 4] nothing is known of σ²(a) − ½ σ²(b).
    assert res.certificate.flat == ("σ²(a) − 0.5 σ²(b)",)
    assert "flat along σ²(a) − 0.5 σ²(b): other values are as likely" in res.status
    assert "Flat along σ²(a) − 0.5 σ²(b)." in str(res.certificate).replace("\n  ", " ")


# Engines of other kinds -----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "method"), alternately(sorted(DESIGNS), *METHODS))
def test_an_engine_with_the_average_information_only(monkeypatch, name, method):
    formula, data = unbalanced(name, seed=6)
    expected = vcomp.fit(formula, data, method=method)
    with_engine(monkeypatch, AverageOnly)
    res = vcomp.fit(formula, data, method=method)
    assert res.converged
    scale = expected.vcomp.sum()
    np.testing.assert_allclose(res.vcomp, expected.vcomp, rtol=1e-6, atol=1e-9 * scale)
    average = np.sqrt(np.diagonal(expected.cov_vcomp("average")))
    np.testing.assert_allclose(res.bse_vcomp, average, rtol=1e-5)
    assert "Newton" not in set(res.iterations["step"])
    assert res.certificate.information == "average"
    assert "Standard errors: from the average information" in str(res.summary())
    assert "Average information of the free components" in str(res.certificate)
    with pytest.raises(vcomp.EstimationError, match="it has 'average'"):
        res.cov_vcomp("observed")


def test_monte_carlo_errors_are_beside_the_standard_errors(monkeypatch):
    formula, data = unbalanced("crossed")
    expected = vcomp.fit(formula, data)
    assert (expected.mc_error == 0.0).all()
    assert expected.mc_error_llf == 0.0
    assert "mc_error" not in expected.gstudy()
    with_engine(monkeypatch, Probing)
    res = vcomp.fit(formula, data, hold={"b": 2.0})
    assert res.converged
    # The probes' own, and what was left of the way to the maximum.
    left = res.certificate.newton_decrement * res.bse_vcomp.fillna(0.0)
    probes = 0.001 * res.vcomp * (res.vcomp.index != "b")
    np.testing.assert_allclose(res.mc_error, np.hypot(probes, left))
    assert list(res.gstudy())[:3] == ["estimate", "se", "mc_error"]
    assert res.mc_error_llf == 0.25
    assert res.llf == pytest.approx(res.model.loglike(res.vcomp))
    page = str(res.summary())
    assert "Monte Carlo" in page
    assert "that of the log-likelihood is 0.25." in page
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    pd.testing.assert_series_equal(loaded.mc_error, res.mc_error)
    assert loaded.mc_error_llf == 0.25
    assert str(loaded.summary()) == page


# Interruption ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "engine"),
    [
        ("derivatives", "blocked"),
        ("derivatives", "strata"),
        ("information", "blocked"),
        ("loglike", "strata"),
        ("solution", "blocked"),
    ],
)
def test_an_interrupted_fit_leaves_the_model_usable(monkeypatch, engine, method):
    """A model that was interrupted early or late gives the same results bit by bit."""
    kind = {"blocked": BlockedLikelihood, "strata": StrataLikelihood}[engine]
    formula, data = balanced("crossed, replicated", seed=2)
    options = {"start": {"a": 50.0, "Residual": 1e-4}, "engine": engine}
    undisturbed = vcomp.fit(formula, data, **options)
    model = vcomp.VarianceComponentsModel(formula, data)
    original = getattr(kind, method)
    calls = {"n": 0, "at": 0}

    def interrupted(self, *args, **kwargs):
        calls["n"] += 1
        if calls["n"] == calls["at"]:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    monkeypatch.setattr(kind, method, interrupted)
    model.fit(**options)
    for at in np.linspace(1, calls["n"], min(calls["n"], 2), dtype=int):
        calls.update(n=0, at=at)
        with pytest.raises(KeyboardInterrupt):
            model.fit(**options)
        calls.update(n=0, at=0)
        again = model.fit(**options)
        pd.testing.assert_series_equal(again.vcomp, undisturbed.vcomp, check_exact=True)
        pd.testing.assert_frame_equal(
            again.cov_params(), undisturbed.cov_params(), check_exact=True
        )
        assert again.llf == undisturbed.llf


def test_options_are_fields():
    estimator = get_estimator("ml", hold={"a": 1.0}, max_iter=7)
    assert estimator.hold == {"a": 1.0}
    assert estimator.max_iter == 7
    assert estimator.engine == "auto"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_probes": 1}, "n_probes must be a whole number of at least 2, not 1"),
        ({"n_probes": 2.5}, "not 2.5"),
        ({"rng": -1}, "rng must be a seed of at least 0 or a numpy Generator, not -1"),
        ({"rng": "seed"}, "not 'seed'"),
        ({"engine": "strata", "rng": 1}, "engine='strata' has no random probes"),
        ({"engine": "blocked", "n_probes": 8}, "leave n_probes= and rng= out"),
    ],
)
def test_probes_that_cannot_be_meant_are_refused(options, words):
    with pytest.raises(vcomp.EstimationError, match=re.escape(words)):
        likelihood.REML(**options)


def test_the_same_seed_gives_the_same_probes():
    formula, data = unbalanced("crossed", seed=3)
    fits = [
        vcomp.fit(formula, data, engine="iterative", n_probes=4, rng=rng).vcomp.to_numpy()
        for rng in (7, 7, np.random.default_rng(7), np.random.default_rng(7), 8)
    ]
    np.testing.assert_array_equal(fits[0], fits[1])
    np.testing.assert_array_equal(fits[2], fits[3])

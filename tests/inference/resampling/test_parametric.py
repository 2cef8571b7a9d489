"""The parametric bootstrap: against theory, against fits of simulated data, and as a job."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.clock import ticking
from tests.helpers.designs import balanced, drop_rows, gridded
from tests.helpers.moments import agree_in_mean
from vcomp.exceptions import DataError, EstimationError, VcompWarning
from vcomp.inference.hypotheses.component_tests import likelihoods_under
from vcomp.inference.resampling import parametric
from vcomp.inference.resampling.draws import RowDraws, draws_of
from vcomp.inference.resampling.parametric import parametric_bootstrap
from vcomp.inference.resampling.replicates import Replicates
from vcomp.numerics import BatchedWork

CROSSED = "score ~ (1|sys) + (1|topic)"


@pytest.fixture(scope="module")
def crossed():
    return vcomp.fit(CROSSED, vcomp.datasets.load("bodoff2007_alpha"))


def holes():
    """A crossed design with covariates and rows missing: its replicates are drawn row by row."""
    formula, data = gridded("crossed", 3)
    data["y"] += 2.0 * np.array([1.0, -1.0, 0.5, -0.5, 0.0])[data["p"]]
    return formula.replace("~ ", "~ x + "), drop_rows(data, 0.15, 4)


# Against theory ----------------------------------------------------------------------------------


def test_analysis_of_variance_has_the_moments_of_mean_squares():
    """Balanced estimates are linear in independent mean squares, EMS χ²_df / df each."""
    formula, data = balanced("crossed, replicated", scale=1.0)
    data["y"] += 2.0 * data["a"] + data["b"]
    res = vcomp.fit(formula, data, method="anova")
    made = res.bootstrap(600, rng=11)
    a, b, n = 5, 6, 3
    v = res.vcomp
    assert (v > 0.0).all()
    ems = np.array(
        [
            v["Residual"] + n * v["a:b"] + n * b * v["a"],
            v["Residual"] + n * v["a:b"] + n * a * v["b"],
            v["Residual"] + n * v["a:b"],
            v["Residual"],
        ]
    )
    df = np.array([a - 1, b - 1, (a - 1) * (b - 1), a * b * (n - 1)])
    to_components = np.array(
        [
            [1 / (n * b), 0, -1 / (n * b), 0],
            [0, 1 / (n * a), -1 / (n * a), 0],
            [0, 0, 1 / n, -1 / n],
            [0, 0, 0, 1],
        ]
    )
    covariance = to_components @ np.diag(2.0 * ems**2 / df) @ to_components.T
    agree_in_mean(made.values, v.to_numpy(), np.diagonal(covariance), sigmas=4.0)
    away = made.values - v.to_numpy()
    agree_in_mean(away[:, :, None] * away[:, None, :], covariance, sigmas=4.0)
    # The grand mean: its variance is that of the mean of all cells.
    variance = v["a"] / a + v["b"] / b + v["a:b"] / (a * b) + v["Residual"] / (a * b * n)
    agree_in_mean(made.beta, res.fe_params.to_numpy(), variance, sigmas=4.0)
    agree_in_mean((made.beta - res.fe_params.to_numpy()) ** 2, variance, 2 * variance**2)


def test_reml_is_nearly_unbiased_away_from_the_bound():
    rng = np.random.default_rng(0)
    grid = np.indices((60, 50)).reshape(2, -1)
    y = rng.normal(size=60)[grid[0]] + rng.normal(size=50)[grid[1]] + rng.normal(size=3000)
    res = vcomp.fit("y ~ (1|a) + (1|b)", {"y": y, "a": grid[0], "b": grid[1]})
    made = res.bootstrap(400, rng=2)
    assert (made.values > 0.0).all()
    # Balanced and inside the bounds REML is the analysis of variance, without any bias.
    agree_in_mean(made.values, res.vcomp.to_numpy(), sigmas=4.0)
    mean_square = res.vcomp["Residual"] + 50 * res.vcomp["a"]
    variance = 2 * mean_square**2 / 59 + 2 * res.vcomp["Residual"] ** 2 / (59 * 49)
    agree_in_mean((made.values[:, 0] - res.vcomp["a"]) ** 2, variance / 50**2, sigmas=4.0)
    agree_in_mean(made.beta, res.fe_params.to_numpy(), sigmas=4.0)


def test_strata_and_rows_give_the_same_distribution():
    formula, data = gridded("per document", 2)
    res = vcomp.fit(formula.replace("~ ", "~ xp + xd + "), data)
    by_strata = res.bootstrap(30, rng=5)
    fit = res._row_access.generating()
    by_rows = parametric_bootstrap(fit, 30, rng=5, draws=RowDraws(fit.stats))
    assert type(draws_of(fit.stats, fit.recipe)).__name__ == "_OfStrata"
    for name in ("values", "beta", "llf"):
        a, b = np.array(getattr(by_strata, name)), np.array(getattr(by_rows, name))
        assert not np.array_equal(a, b)
        error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / 30)
        assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) < 4.5 * error).all()


# Against fits of simulated data ------------------------------------------------------------------

METHODS = [
    ("reml", {}),
    ("ml", {}),
    ("reml", {"hold": {"p": 0.5}}),
    ("reml", {"engine": "blocked"}),
    ("reml", {"engine": "iterative", "n_probes": 40}),
    ("anova", {}),
    ("anova", {"negative": "refit"}),
    ("type1", {}),
    ("henderson3", {}),
    ("henderson3", {"negative": "refit"}),
    ("minque", {"prior": 0}),
    ("minque", {"prior": {"p": 1.0, "q": 2.0, "Residual": 3.0}}),
    ("minque", {"iterated": True}),
]


def poor_method(method):
    """Expect the warning that Method I has for partly crossed data."""
    return pytest.warns(VcompWarning, match="Method I") if method == "anova" else nullcontext()


@pytest.mark.parametrize(("method", "options"), METHODS, ids=str)
def test_a_replicate_is_the_fit_of_the_response_simulated_with_its_number(method, options):
    formula, data = holes()
    if method == "anova":
        formula = formula.replace("x + ", "")
    with poor_method(method):
        res = vcomp.fit(formula, data, method=method, **options)
    made = res.bootstrap(2, rng=9)
    responses = res.simulate(2, rng=9)
    assert made.converged.all()
    for b in range(2):
        again = data.assign(y=responses[b])
        with poor_method(method):
            fit = vcomp.fit(formula, again, method=method, **options)
        close = 1e-3 if options.get("engine") == "iterative" else 1e-6
        size = fit.vcomp.abs().max()
        np.testing.assert_allclose(made.values[b], fit.vcomp, rtol=close, atol=close * size)
        scale = np.sqrt(size)
        np.testing.assert_allclose(made.beta[b], fit.fe_params, rtol=close, atol=close * scale)
        np.testing.assert_allclose(made.llf[b], fit.llf, rtol=1e-6)


@pytest.mark.parametrize("name", ["two axes, not nested", "not nested, replicated"])
def test_crossed_remainders_are_drawn_row_by_row(name):
    formula, data = gridded(name, 1)
    res = vcomp.fit(formula, data)
    assert res.engine.startswith("strata")
    made, responses = res.bootstrap(2, rng=4), res.simulate(2, rng=4)
    fit = vcomp.fit(formula, data.assign(y=responses[1]))
    np.testing.assert_allclose(made.llf[1], fit.llf, rtol=1e-9)
    size = fit.vcomp.max()
    np.testing.assert_allclose(made.values[1], fit.vcomp, rtol=1e-5, atol=1e-6 * size)


def test_a_nearly_complete_grid_is_drawn_row_by_row():
    formula, data = gridded("per document", 1)
    data = drop_rows(data, 0.05, 2)
    res = vcomp.fit(formula, data, engine="iterative")
    made, responses = res.bootstrap(1, rng=4), res.simulate(1, rng=4)
    fit = vcomp.fit(formula, data.assign(y=responses[0]), engine="iterative")
    np.testing.assert_allclose(made.llf[0], fit.llf, rtol=1e-8)
    size = fit.vcomp.max()
    np.testing.assert_allclose(made.values[0], fit.vcomp, rtol=1e-4, atol=1e-5 * size)


@pytest.mark.parametrize("method", ["anova", "type1", "henderson3"])
def test_closed_forms_need_strata_only_where_terms_are_orthogonal(method):
    formula, data = gridded("nested, balanced", 2)
    data["y"] += 3.0 * data["i"]
    res = vcomp.fit(formula, data, method=method)
    fit = res._row_access.generating()
    assert type(draws_of(fit.stats, fit.recipe)).__name__ == "_OfStrata"
    assert (res.vcomp > 0.0).all()
    agree_in_mean(res.bootstrap(150, rng=1).values, res.vcomp.to_numpy())
    refit = vcomp.fit(formula, data, method=method, negative="refit")
    assert (refit.bootstrap(20, rng=1).values[:, :-1] >= 0.0).all()


def test_held_components_stay(crossed):
    data = vcomp.datasets.load("bodoff2007_alpha")
    held = vcomp.fit(CROSSED, data, hold={"topic": 0.002})
    made = held.bootstrap(20)
    assert (made.values[:, 1] == 0.002).all()
    assert np.ptp(made.values[:, 0]) > 0.0


def test_negative_estimates_are_drawn_as_zero():
    rng = np.random.default_rng(1)
    data = {"y": rng.normal(size=40), "a": np.repeat(range(10), 4)}
    data["y"] -= np.repeat(data["y"].reshape(10, 4).mean(axis=1), 4) * 0.9
    res = vcomp.fit("y ~ (1|a)", data, method="anova")
    assert res.vcomp["a"] < 0.0
    with pytest.warns(VcompWarning, match=r"σ²\(a\) is estimated below zero and set to 0"):
        made = res.bootstrap(600, rng=3)
    ms = res.vcomp["Residual"]
    # σ̂²(a) = (MS_a − MS_e)/4 around zero.
    agree_in_mean(made.values[:, 0], 0.0, (2 * ms**2 / 9 + 2 * ms**2 / 30) / 16)
    with pytest.warns(VcompWarning, match="set to 0"):
        res.simulate(1)


# As a job ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["strata", "rows"])
def test_workers_and_others_do_not_change_a_replicate(crossed, which):
    res = crossed if which == "strata" else vcomp.fit(*holes())
    one = res.bootstrap(6, rng=7)
    two = res.bootstrap(6, rng=7, workers=2)
    few = res.bootstrap(3, rng=7)
    for name in ("numbers", "values", "beta", "llf", "converged"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
        np.testing.assert_array_equal(getattr(one, name)[:3], getattr(few, name))
    assert one.seed == 7
    other = res.bootstrap(3, rng=8)
    assert not np.array_equal(other.values, few.values)


def test_probes_are_the_same_for_all_workers():
    res = vcomp.fit(*holes(), engine="iterative", rng=np.random.default_rng(3), n_probes=5)
    one, two = res.bootstrap(4, rng=7), res.bootstrap(4, rng=7, workers=2)
    np.testing.assert_array_equal(one.values, two.values)


def test_a_seed_is_drawn_from_a_generator_once(crossed):
    a = crossed.bootstrap(5, rng=np.random.default_rng(1))
    b = crossed.bootstrap(5, rng=np.random.default_rng(1))
    np.testing.assert_array_equal(a.values, b.values)
    again = crossed.bootstrap(5, rng=a.seed)
    np.testing.assert_array_equal(a.values, again.values)
    assert crossed.bootstrap(5).seed == 0


def test_continued_is_as_if_never_ended(crossed, tmp_path):
    path = tmp_path / "replicates"
    whole = crossed.bootstrap(40, rng=3)
    crossed.bootstrap(15, rng=3, path=path)
    made = crossed.bootstrap(40, rng=3, path=path)
    stored = Replicates.load(path)
    for found in (made, stored):
        assert len(found) == 40
        for name in ("numbers", "values", "beta", "llf", "converged"):
            np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    fewer = crossed.bootstrap(25, rng=3, path=path)
    np.testing.assert_array_equal(fewer.values, whole.values[:25])
    assert len(Replicates.load(path)) == 40
    # A generator stands for whatever seed the file has.
    more = crossed.bootstrap(41, rng=np.random.default_rng(0), path=path)
    assert more.seed == 3
    np.testing.assert_array_equal(more.values[:40], whole.values)


def test_without_time_nothing_is_done(crossed, tmp_path):
    with pytest.warns(VcompWarning, match=r"time limit of 1e-09 s.*0 of 50 replicates"):
        made = crossed.bootstrap(50, time_limit=1e-9, path=tmp_path / "replicates")
    assert len(made) == 0
    assert made.frame.shape == (0, 6)


def test_what_was_done_is_kept_when_time_is_up(crossed, tmp_path, monkeypatch):
    ticking(monkeypatch, 0.02)
    path = tmp_path / "replicates"
    with pytest.warns(VcompWarning, match=r"of 1,000,000 replicates"):
        made = crossed.bootstrap(1_000_000, time_limit=0.3, path=path, workers=2)
    assert 0 < len(made) < 1_000_000
    stored = Replicates.load(path)
    np.testing.assert_array_equal(stored.values, made.values)
    # The same numbers as without a limit, whichever were made.
    first = made.first(50)
    assert len(first) > 0
    np.testing.assert_array_equal(crossed.bootstrap(50).values[first.numbers], first.values)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interruption_saves_what_is_done(crossed, tmp_path, monkeypatch, workers):
    path, real = tmp_path / "replicates", parametric._replicates

    def interrupted(*args, **options):
        several = real(*args, **options)

        def work(numbers):
            if 50 in numbers:
                raise KeyboardInterrupt
            return several.work(numbers)

        return BatchedWork(work, 20)

    monkeypatch.setattr(parametric, "_replicates", interrupted)
    with pytest.raises(KeyboardInterrupt):
        crossed.bootstrap(200, rng=2, path=path, workers=workers)
    stored = Replicates.load(path)
    assert 0 < len(stored) < 200
    monkeypatch.undo()
    made = crossed.bootstrap(60, rng=2, path=path)
    np.testing.assert_array_equal(made.values, crossed.bootstrap(60, rng=2).values)


def test_a_file_of_another_fit_or_seed_is_refused(crossed, tmp_path):
    path = tmp_path / "replicates"
    crossed.bootstrap(5, rng=1, path=path)
    with pytest.raises(DataError, match="seed 1, and the seed here is 2; give rng=1"):
        crossed.bootstrap(5, rng=2, path=path)
    data = vcomp.datasets.load("bodoff2007_alpha")
    for other, what in (
        (vcomp.fit(CROSSED, data, method="ml"), "method"),
        (vcomp.fit("score ~ (1|topic) + (1|sys)", data), "formula"),
        (vcomp.fit(CROSSED, data.iloc[:-1]), "number of rows"),
        (vcomp.fit(CROSSED, data.assign(score=data["score"] * 2)), "estimates"),
        (vcomp.fit(CROSSED, data.assign(score=data["score"] + 2)), "fixed effects"),
        (vcomp.fit(CROSSED, data, hold={"topic": 0.1}), "options"),
    ):
        with pytest.raises(DataError, match=f"another fit: their {what} is"):
            other.bootstrap(5, rng=1, path=path)
    path.write_text("not replicates")
    with pytest.raises(DataError, match="does not hold replicates"):
        crossed.bootstrap(5, rng=1, path=path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n must be a whole number of at least 1, not 0"),
        ({"n": 2.5}, "n must be a whole number"),
        ({"n": 5, "workers": 0}, "workers must be a whole number"),
        ({"n": 5, "rng": "x"}, "rng must be a seed"),
        ({"n": 5, "rng": -1}, "rng must be a seed"),
        ({"n": 5, "time_limit": 0}, "time_limit must be a positive number"),
    ],
)
def test_options_that_cannot_be_meant(crossed, options, message):
    with pytest.raises(EstimationError, match=message):
        crossed.bootstrap(**options)


def test_a_place_that_cannot_be_written_to(crossed, tmp_path):
    with pytest.raises(DataError, match=r"cannot write .*there is no such folder"):
        crossed.bootstrap(3, path=tmp_path / "no" / "folder")


def test_without_rows_nothing_is_drawn(crossed):
    loaded = vcomp.VarianceComponentsResults.from_json(crossed.to_json())
    with pytest.raises(DataError, match="rows"):
        loaded.bootstrap(5)
    with pytest.raises(DataError, match="rows"):
        loaded.simulate(5)


def test_without_variance_nothing_is_drawn():
    data = {"y": np.ones(12), "a": np.repeat(range(4), 3)}
    res = vcomp.fit("y ~ (1|a)", data, method="anova")
    with pytest.raises(EstimationError, match="data cannot be drawn"):
        res.bootstrap(5)


def test_estimations_that_fail_are_counted():
    data = vcomp.datasets.load("bodoff2007_alpha")
    with pytest.warns(VcompWarning, match="Not converged"):
        res = vcomp.fit(CROSSED, data, max_iter=1, start={"sys": 1.0})
    with pytest.warns(VcompWarning, match=r"of 6 replicates did not converge"):
        made = res.bootstrap(6)
    assert not made.converged.all()


def test_a_bar_is_shown_on_request(crossed, capsys):
    crossed.bootstrap(5, progress=True)
    assert "bootstrap: 100%" in capsys.readouterr().err
    crossed.bootstrap(5)
    assert capsys.readouterr().err == ""


# Likelihoods of drawn data -----------------------------------------------------------------------


@pytest.mark.parametrize(("which", "reml"), [("strata", False), ("rows", True)])
def test_likelihoods_are_those_of_fits(which, reml):
    formula, data = gridded("crossed", 3)
    if which == "rows":
        data = drop_rows(data, 0.15, 4)
    method = "reml" if reml else "ml"
    model = vcomp.VarianceComponentsModel(formula, data)
    names, holds = model.component_names, [{}, {"p": 0.0}, {"q": 0.4, "Residual": 1.0}]
    v0 = np.array([0.0, 1.2, 0.8])
    found = likelihoods_under(model.statistics, names, v0, holds, 3, rng=4, reml=reml)
    assert found.shape == (3, 3)
    assert (found[:, 0] >= found[:, 1] - 1e-8).all()
    fit = model.fit(method)._row_access.generating()
    draws = draws_of(fit.stats, fit.recipe)
    for b in range(3):
        drawn = draws.draw(v0, parametric.stream(4, b))
        for j, hold in enumerate(holds):
            estimator = vcomp.estimators.get_estimator(method, hold=hold)
            exact = estimator.estimate(drawn, names)
            np.testing.assert_allclose(found[b, j], exact.llf, rtol=1e-9, atol=1e-9)
    two = likelihoods_under(model.statistics, names, v0, holds, 3, rng=4, reml=reml, workers=2)
    np.testing.assert_array_equal(two, found)


def test_likelihoods_need_components_that_can_be_drawn(crossed):
    stats, names = crossed.model.statistics, crossed.model.component_names
    with pytest.raises(EstimationError, match="v0 must have 3 non-negative components"):
        likelihoods_under(stats, names, np.array([1.0, -1.0, 1.0]), [{}], 2)
    with pytest.raises(EstimationError, match="which is not in the model"):
        likelihoods_under(stats, names, np.ones(3), [{"who": 0.0}], 2)
    assert likelihoods_under(stats, names, np.ones(3), [], 2).shape == (2, 0)


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
@pytest.mark.parametrize(
    ("formula", "surface"),
    [("y ~ (1|a)", "NestedSurface"), ("y ~ (1|a) + (1|b)", "DrawnSurface")],
)
def test_where_time_is_limited_data_are_not_collected(formula, surface, monkeypatch):
    rng = np.random.default_rng(2)
    data = pd.DataFrame({"a": rng.integers(9, size=60), "b": rng.integers(5, size=60)})
    res = vcomp.fit(formula, data.assign(y=rng.normal(size=60) + 2.0 * rng.normal(size=9)[data.a]))
    asked = []
    monkeypatch.setattr(getattr(parametric, surface), "of", lambda *_, **__: asked.append(1))
    limited = res.bootstrap(3, rng=1, time_limit=600.0)
    assert not asked
    whole = res.bootstrap(3, rng=1)
    assert asked
    np.testing.assert_allclose(limited.values, whole.values, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("make", "method", "options", "collected"),
    [
        (lambda: gridded("crossed", 3), "reml", {}, (True, True)),  # in stacks of strata
        (holes, "reml", {"engine": "blocked"}, (False, False)),
        (holes, "reml", {}, (True, True)),  # in stacks, which are as fast for a few
        (lambda: gridded("crossed", 3), "anova", {}, (False, True)),
        (holes, "henderson3", {}, (False, True)),
    ],
)
def test_few_data_sets_are_refitted_one_by_one(make, method, options, collected):
    """Closed forms of many are one product; with a limit of time each is a step of its own."""
    res = vcomp.fit(*make(), method=method, **options)
    fit = res._row_access.generating()
    draws, v = draws_of(fit.stats, fit.recipe), np.ones(len(fit.recipe.names))
    for limited, several in zip((True, False), collected, strict=True):
        work = parametric._of_draws(fit.stats, draws, fit.recipe, v, 2, limited=limited)
        assert work.most > 1 if several else work.most == 1

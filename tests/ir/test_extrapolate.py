"""Curves of accuracy: the published fits, statsmodels' regressions, and what cannot be fitted."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import expit

from tests.helpers.reference_frames import COLLECTIONS
from vcomp.exceptions import DataError, EstimationError, PlanError
from vcomp.ir.curve import MODELS, fit_curve, fit_curves

SCALES = {
    "tau": "correlation",
    "tauAP": "correlation",
    "sens_abs": "error",
    "sens_rel": "error",
}


def observations(values, measure):
    y = values["observations"][measure]
    return values["observations"]["x"], [np.nan if v is None else v for v in y]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("measure", SCALES)
@pytest.mark.parametrize("name", COLLECTIONS)
def test_published_fits(name, measure, model, reference):
    """Coefficients and predictions of R for the observations that are stored with them."""
    values = reference(f"irj2015_splithalf_{name}")["values"]
    curve = fit_curve(*observations(values, measure), model, scale=SCALES[measure])
    stored = values["fitted_coefficients"][measure]
    expected = [stored[model]["intercept"], stored[model]["slope"]]
    # R's glm stops once the deviance moves by 1e-8 of itself; ours goes on to the last digits.
    rtol = 1e-8 if model == "logit" else 1e-12
    np.testing.assert_allclose(curve.params, expected, rtol=rtol)
    predicted = curve.predict(values["n_prime"])
    assert predicted["n"].tolist() == values["n_prime"]
    np.testing.assert_allclose(
        predicted["estimate"], values["estimates"][measure][model], rtol=0, atol=1e-9
    )
    np.testing.assert_array_equal(predicted["estimate"], curve.at(predicted["n"].to_numpy()))
    assert curve.n_missing == stored["n_missing"]
    if model != "logit":
        assert (curve.n_zero, curve.nobs) == (stored["n_zero"], stored["n_used"])


def noisy(seed=5, m=60):
    rng = np.random.default_rng(seed)
    n = rng.integers(2, 26, m)
    return n, 1.0 - 2.0 * expit(0.2 - 0.6 * np.log(n) + 0.3 * rng.normal(size=m))


@pytest.mark.parametrize("model", ["exp1", "exp2"])
def test_intervals_of_least_squares_are_those_of_statsmodels(model):
    n, tau = noisy()
    curve = fit_curve(n, tau, model)
    column = n if model == "exp2" else np.log(n)
    fit = sm.OLS(np.log((1.0 - tau) / 2.0), sm.add_constant(column)).fit()
    np.testing.assert_allclose(curve.params, fit.params, rtol=1e-11)
    np.testing.assert_allclose(curve.cov_params, fit.cov_params(), rtol=1e-10)
    assert curve.dispersion == pytest.approx(fit.scale, rel=1e-11)
    assert curve.df_resid == fit.df_resid
    ahead = np.array([10.0, 50.0, 200.0])
    frame = fit.get_prediction(
        sm.add_constant(ahead if model == "exp2" else np.log(ahead))
    ).summary_frame(alpha=0.1)
    ours = curve.predict(ahead, alpha=0.1)
    for column, theirs in (
        ("estimate", "mean"),
        ("low", "mean_ci_upper"),
        ("high", "mean_ci_lower"),
        ("obs_low", "obs_ci_upper"),
        ("obs_high", "obs_ci_lower"),
    ):
        expected = 1.0 - 2.0 * np.minimum(np.exp(frame[theirs]), 1.0)
        np.testing.assert_allclose(ours[column], expected, rtol=1e-10)


def test_logit_is_the_quasi_binomial_model_of_statsmodels():
    n, tau = noisy()
    e = (1.0 - tau) / 2.0
    curve = fit_curve(n, tau, "logit")
    glm = sm.GLM(e, sm.add_constant(np.log(n)), family=sm.families.Binomial())
    fit = glm.fit(tol=1e-14, scale="X2")
    np.testing.assert_allclose(curve.params, fit.params, rtol=1e-10)
    np.testing.assert_allclose(curve.cov_params, fit.cov_params(), rtol=1e-9)
    assert curve.dispersion == pytest.approx(fit.scale, rel=1e-10)
    ahead = curve.predict([10, 80], alpha=0.2)
    t = stats.t(58).ppf(0.9)
    for row in ahead.itertuples():
        x = np.array([1.0, np.log(row.n)])
        line, variance = x @ fit.params, x @ fit.cov_params() @ x
        mu = expit(line)
        one = fit.scale / (mu * (1.0 - mu))
        for low, high, v in (
            (row.low, row.high, variance),
            (row.obs_low, row.obs_high, variance + one),
        ):
            assert low == pytest.approx(1.0 - 2.0 * expit(line + t * np.sqrt(v)), rel=1e-9)
            assert high == pytest.approx(1.0 - 2.0 * expit(line - t * np.sqrt(v)), rel=1e-9)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=3, max_size=30).filter(
        lambda rows: len({n for n, _ in rows}) > 1
    )
)
def test_logit_solves_its_score_equations(rows):
    """Σ (e - μ) = 0 and Σ x (e - μ) = 0: the maximum of the binomial likelihood."""
    n, e = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    e = e / 40.0
    try:
        curve = fit_curve(n, e, "logit", scale="error")
    except EstimationError:
        # No finite fit: all errors are on one side of some size, on the other side is none.
        assert any(
            (not e[n < m].any() and (1.0 - e[n > m] == 0).all())
            or (not e[n > m].any() and (1.0 - e[n < m] == 0).all())
            for m in np.unique(n)
        )  # fmt: skip
        return
    left = e - expit(curve.params[0] + curve.params[1] * np.log(n))
    assert abs(left.sum()) < 1e-8 * n.size
    assert abs(left @ np.log(n)) < 1e-8 * n.size * np.log(40)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("scale", "a"), [("correlation", -0.4), ("share", -1.0), ("error", -0.1)])
def test_a_curve_without_noise_is_found(model, scale, a):
    n = np.array([2.0, 3.0, 5.0, 9.0, 14.0])
    b = -0.02 if model == "exp2" else -0.7
    line = a + b * (n if model == "exp2" else np.log(n))
    e = expit(line) if model == "logit" else np.exp(line)
    accuracy = {"correlation": 1.0 - 2.0 * e, "share": 1.0 - e, "error": e}[scale]
    curve = fit_curve(n, accuracy, model, scale=scale)
    np.testing.assert_allclose(curve.params, [a, b], rtol=1e-11)
    np.testing.assert_allclose(curve.at(n), accuracy, rtol=1e-12)
    row = curve.predict(9).iloc[0]
    assert row["low"] == pytest.approx(row["high"], abs=1e-7)


@pytest.mark.parametrize("model", MODELS)
def test_order_does_not_matter_and_missing_ones_are_counted(model):
    n, tau = noisy()
    plain = fit_curve(n, tau, model)
    mixed = fit_curve([*n[::-1], 7], [*tau[::-1], np.nan], model)
    np.testing.assert_allclose(mixed.params, plain.params, rtol=1e-12)
    assert (mixed.n_missing, mixed.nobs) == (1, plain.nobs)


@pytest.mark.parametrize("model", ["exp1", "exp2"])
def test_observations_without_error_have_no_logarithm(model):
    n, tau = noisy()
    plain = fit_curve(n, tau, model)
    more = fit_curve([*n, 20, 24], [*tau, 1.0, np.nextafter(1.0, 0.0)], model)
    np.testing.assert_array_equal(more.params, plain.params)
    assert more.n_zero == 2


def test_errors_above_one_are_cut():
    curve = fit_curve([2, 4, 8, 16], [1.0, 0.6, 0.2, 0.05], "exp1", scale="error")
    assert curve.at(np.array(0.1)) == 1.0
    assert curve.predict(0.1)["obs_high"].item() == 1.0


@pytest.mark.parametrize("model", MODELS)
def test_a_prediction_interval_holds_the_confidence_interval(model):
    frame = fit_curve(*noisy(), model).predict(np.geomspace(2, 500, 9))
    ordered = frame[["obs_low", "low", "estimate", "high", "obs_high"]].to_numpy()
    assert (np.diff(ordered, axis=1) >= 0).all()
    assert frame["n"].dtype == float


@pytest.mark.parametrize(
    ("n", "tau", "model", "message"),
    [
        (
            [5, 5, 5],
            [0.5, 0.6, 0.7],
            "logit",
            "at two numbers of topics or more; there are 3 at 1",
        ),
        ([5, 10], [0.5, 0.6], "exp1", "three observations or more.* there are 2 at 2"),
        ([5, 9, 9], [0.5, 1, 1], "exp1", r"there are 1 at 1 \(2 without any error left out\)"),
        ([5, 9, 9], [1, 1, 1], "logit", "of 3 observations all have error zero"),
        ([5, 9, 9], [-1, -1, -1], "logit", "all have error one"),
        (
            [5, 9, 9],
            [0.5, 1, 1],
            "logit",
            "no finite fit: observations have errors between zero and one",
        ),
        ([3, 5, 9, 12], [1, 0.5, -1, -1], "logit", "between zero and one at one number of topics"),
        ([3, 5, 9, 12], [-1, -1, 0.5, 1], "logit", "between zero and one at one number of topics"),
        ([3, 5, 9], [1, -1, -1], "logit", "between zero and one at one number of topics"),
        ([], [], "exp2", "there are 0 at 0"),
        ([5, 9], [np.nan, np.nan], "exp2", "there are 0 at 0"),
    ],
)
def test_what_has_no_curve(n, tau, model, message):
    with pytest.raises(EstimationError, match=message):
        fit_curve(n, tau, model)


@pytest.mark.parametrize(
    ("n", "y", "options", "error", "message"),
    [
        ([5, 9], [0.5], {}, DataError, r"shapes \(2,\) and \(1,\)"),
        ([[5, 9]], [[0.5, 0.6]], {}, DataError, "two columns of one length"),
        ([5, "x"], [0.5, 0.6], {}, DataError, "must be numbers"),
        ([5, 0, 3], [0.5, 0.6, 0.6], {}, DataError, "must be positive, not 0"),
        ([5, np.nan, 3], [0.5, 0.6, 0.6], {}, DataError, "must be positive, not nan"),
        ([5, np.inf, 3], [0.5, 0.6, 0.6], {}, DataError, "must be positive, not inf"),
        ([5, 9, 3], [0.5, 1.2, 0.6], {}, DataError, r"is 1.2, outside of \[-1, 1\]"),
        ([5, 9, 3], [0.5, -1.2, 0.6], {}, DataError, r"is -1.2, outside of \[-1, 1\]"),
        ([5, 9, 3], [0.5, -0.2, 0.6], {"scale": "error"}, DataError, r"outside of \[0, 1\]"),
        ([5, 9, 3], [0.5, np.inf, 0.6], {}, DataError, "is ∞"),
        ([5, 9, 3], [0.5, 0.6, 0.7], {"model": "exp3"}, PlanError, "did you mean 'exp"),
        (
            [5, 9, 3],
            [0.5, 0.6, 0.7],
            {"scale": "correlations"},
            PlanError,
            "did you mean 'correlation'",
        ),
    ],
)
def test_bad_input(n, y, options, error, message):
    with pytest.raises(error, match=message):
        fit_curve(n, y, **options)


@pytest.mark.parametrize("n", [0, -3, True, "50", [], np.nan, np.inf, None])
def test_bad_sizes_of_predictions(n):
    with pytest.raises(PlanError, match="number of topics"):
        fit_curve(*noisy()).predict(n)


def test_bad_alpha():
    with pytest.raises(PlanError, match="alpha must be between 0 and 1"):
        fit_curve(*noisy()).predict(50, alpha=5)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("scale", ["correlation", "share", "error"])
def test_the_smallest_test_that_is_accurate_enough(model, scale):
    n = np.array([2.0, 3.0, 5.0, 9.0, 14.0, 20.0])
    e = expit(0.2 - 0.6 * np.log(n)) + 0.01 * np.sin(n)
    accuracy = {"correlation": 1.0 - 2.0 * e, "share": 1.0 - e, "error": e}[scale]
    curve = fit_curve(n, accuracy, model, scale=scale)
    for wanted in (0.15, 0.05):
        target = {"correlation": 1.0 - 2.0 * wanted, "share": 1.0 - wanted, "error": wanted}[scale]
        needed = curve.required(target)
        assert needed == round(needed) > 1
        reached, short = curve.at(np.array([needed, needed - 1.0]))
        worse = -1.0 if scale == "error" else 1.0
        assert worse * (reached - target) >= -1e-9
        assert worse * (short - target) < 0.0
    easy = {"correlation": -0.9, "share": 0.05, "error": 0.95}[scale]
    assert curve.required(easy) == 1.0


def test_a_size_that_gives_the_accuracy_is_enough():
    n = np.array([2.0, 4.0, 8.0])
    curve = fit_curve(n, 0.8 * n**-0.5, "exp1", scale="error")
    assert curve.required(0.1) == 64.0


def test_accuracies_that_no_test_reaches():
    flat = fit_curve([2, 4, 8, 16], [0.5, 0.5, 0.5, 0.4], "logit", scale="share")
    assert flat.required(0.9) == np.inf
    slow = fit_curve([2, 4, 8, 16], [0.5, 0.5, 0.5, 0.50001], "exp1", scale="share")
    assert slow.required(0.999) == np.inf
    level = replace(slow, params=np.array([-0.5, 0.0]))
    assert level.required(0.9) == np.inf


@pytest.mark.parametrize("accuracy", [1.0, -1.0, 90, np.nan, "0.9", True, None])
def test_accuracies_that_cannot_be_asked_for(accuracy):
    with pytest.raises(PlanError, match="goal must be between -1 and 1, not"):
        fit_curve(*noisy()).required(accuracy)


@pytest.mark.parametrize("model", ["exp1", "exp2"])
def test_successes_and_failures_have_no_logarithm(model):
    """Of successes and failures only failures would be left, and the curve never rise."""
    n, success = [5, 5, 5, 20, 20, 20], [0.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    with pytest.raises(
        EstimationError, match=f"{model} fits .* of 6 observations 3 have error zero and"
    ):
        fit_curve(n, success, model, scale="share")
    curve = fit_curve(n, success, "logit", scale="share")
    np.testing.assert_allclose(curve.at(np.array([5.0, 20.0])), [1 / 3, 2 / 3], rtol=1e-12)
    np.testing.assert_allclose(fit_curve(n, [0.0] * 6, model, scale="share").at(5.0), 0.0)


# --- several curves of the same observations -----------------------------------------------------


@given(st.integers(0, 10**6), st.integers(2, 20), st.integers(1, 30), st.sampled_from(["a", "b"]))
def test_curves_fitted_together_are_those_fitted_alone(seed, g, t, kind):
    rng = np.random.default_rng(seed)
    sizes = np.sort(rng.choice(np.arange(2, 60), g, replace=False))
    e = expit(0.2 - 0.6 * np.log(sizes) + 0.5 * rng.normal(size=(t, g))).T
    e[rng.random(e.shape) < (0.4 if kind == "b" else 0.02)] = 0.0
    e[rng.random(e.shape) < (0.4 if kind == "b" else 0.02)] = np.nan
    curves, problems = fit_curves(sizes, e, scale="error")
    assert [*curves, *problems] == sorted(MODELS, key=lambda m: (m in problems, MODELS.index(m)))
    for model in MODELS:
        n = np.repeat(sizes, t)
        if model in problems:
            with pytest.raises(EstimationError, match=r"^" + re.escape(str(problems[model]))):
                fit_curve(n, e.ravel(), model, scale="error")
            continue
        together, alone = curves[model], fit_curve(n, e.ravel(), model, scale="error")
        for name in ("params", "cov_params", "dispersion", "nobs", "n_missing", "n_zero"):
            np.testing.assert_allclose(
                getattr(together, name), getattr(alone, name), rtol=1e-12, atol=0
            )


def test_only_the_models_that_are_wanted():
    curves, problems = fit_curves([2, 4, 8], [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], ["logit"])
    assert (list(curves), problems) == (["logit"], {})


@pytest.mark.parametrize(
    ("sizes", "rows", "options", "error", "message"),
    [
        ([5, 9], [[0.5], [0.6], [0.7]], {}, DataError, r"shapes \(3, 1\) and \(2,\)"),
        ([5, 9], [0.5, 0.6], {}, DataError, "a row for each size"),
        ([9, 5], [[0.5], [0.6]], {}, DataError, "sizes must increase"),
        ([5, 5], [[0.5], [0.6]], {}, DataError, "sizes must increase"),
        ([0, 5], [[0.5], [0.6]], {}, DataError, "must be positive, not 0"),
        ([5, 9], [[0.5], [1.6]], {}, DataError, "is 1.6, outside of"),
        ([5, 9], [[0.5], [0.6]], {"models": ["exp3"]}, PlanError, "did you mean 'exp"),
        ([5, 9], [[0.5], [0.6]], {"scale": "errors"}, PlanError, "did you mean 'error'"),
    ],
)
def test_bad_rows(sizes, rows, options, error, message):
    with pytest.raises(error, match=message):
        fit_curves(sizes, rows, **options)


def test_errors_above_one_by_rounding_are_one():
    tau = [1.0, 1.0, -1.0, -1.0 - 1e-13]
    with pytest.raises(EstimationError, match="errors between zero and one at one"):
        fit_curve([5, 10, 20, 40], tau, "logit")

"""MINQUE against n × n matrices: equations, errors, options, rounds."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.dense_quadratic import (
    FIXED,
    NAMES,
    assert_covariance,
    basis_of_fixed,
    covariance_matrix,
    generalised_least_squares,
    incidences,
    model_of,
)
from tests.helpers.designs import UNBALANCED, balanced, unbalanced
from tests.helpers.examples import examples
from vcomp.estimators.likelihood import Projector
from vcomp.estimators.likelihood.choose import EngineLimits
from vcomp.estimators.quadratic.minque import (
    _DENSE_BELOW,
    _STEPS,
    _TOLERANCE,
    MINQUE,
    _next,
    _priors,
    _Solved,
    prior_components,
)
from vcomp.estimators.quadratic.probed_priors import ProbedPriors


class Dense:
    """Rao's equations with P = V⁻¹ − V⁻¹X(X'V⁻¹X)⁻¹X'V⁻¹ at prior weights."""

    def __init__(self, model, w):
        X, y = basis_of_fixed(model), model.endog
        inverse = np.linalg.inv(covariance_matrix(model, np.asarray(w, dtype=float)))
        P = inverse
        if X.shape[1]:
            P = inverse - inverse @ X @ np.linalg.solve(X.T @ inverse @ X, X.T @ inverse)
        forms = [P @ Z @ Z.T @ P for Z in incidences(model)] + [P @ P]
        V = [Z @ Z.T for Z in incidences(model)] + [np.eye(model.nobs)]
        matrix = np.array([[np.sum(A * K) for K in V] for A in forms])
        self.estimates = np.linalg.solve(matrix, [y @ A @ y for A in forms])
        AV = [A @ covariance_matrix(model, self.estimates) for A in forms]
        right = 2.0 * np.array([[np.sum(a * b.T) for b in AV] for a in AV])
        inverse = np.linalg.inv(matrix)
        self.covariance = inverse @ right @ inverse.T


def weights_of(model, kind):
    k = len(model.component_names)
    if kind == "given":
        return np.random.default_rng(k).uniform(0.1, 3.0, size=k)
    return np.append(np.full(k - 1, float(kind)), 1.0)


@pytest.mark.parametrize(
    ("name_and_fixed", "kind"), alternately(product(NAMES, FIXED), 0, 1, "given"), ids=str
)
def test_against_dense_equations(name_and_fixed, kind):
    name, fixed = name_and_fixed
    model = model_of(name, fixed)
    w = weights_of(model, kind)
    dense = Dense(model, w)
    res = model.fit("minque", prior=w if kind == "given" else kind)
    scale = np.abs(dense.estimates).max()
    np.testing.assert_allclose(res.vcomp, dense.estimates, rtol=1e-8, atol=1e-8 * scale)
    assert_covariance(res.cov_vcomp(), dense.covariance, 1e-8)
    if dense.estimates[-1] > 0.0:
        beta, _ = generalised_least_squares(model, dense.estimates)
        np.testing.assert_allclose(res.fe_params, beta, rtol=1e-6)
    assert res.converged


def estimate(model, dense_below=0, **options):
    """Return the estimate as if there were many groups, through an engine."""
    stats, names = model.statistics, model.component_names
    return MINQUE(**options).estimate(stats, names, dense_below=dense_below)


@pytest.mark.parametrize("kind", [1, "given"])
@pytest.mark.parametrize("name", NAMES)
def test_many_groups_are_solved_through_an_engine(name, kind):
    model = model_of(name, "x + C(g)")
    w = weights_of(model, kind)
    dense = model.fit("minque", prior=w)
    found = estimate(model, prior=w)
    scale = np.abs(dense.vcomp).max()
    np.testing.assert_allclose(found.values, dense.vcomp, rtol=1e-8, atol=1e-9 * scale)
    assert np.isnan(found.covariances["sampling"]).all()
    assert "No standard errors" in found.status


def test_where_no_engine_has_exact_traces_they_are_probed():
    model = model_of("crossed", "x")
    stats, expected = model.statistics, model.fit("minque").vcomp
    limits = EngineLimits(grid_seconds=0.0, seconds=-1.0)
    priors = _priors(stats, 0, limits)
    assert isinstance(priors, ProbedPriors)
    found = MINQUE()._solution(stats, priors, prior_components(1.0, model.component_names))
    assert (np.abs(found.values - expected) < 4.5 * found.forms.monte_carlo).all()
    first = MINQUE()._solution(stats, priors, prior_components(0.0, model.component_names))
    np.testing.assert_allclose(first.values, model.fit("minque", prior=0).vcomp, rtol=1e-9)
    with pytest.raises(vcomp.EstimationError, match=r"random columns of .* need"):
        _priors(stats, 0, EngineLimits(seconds=-1.0, free_bytes=lambda: 0.0))


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_scale_of_weights_and_scores_does_not_matter(scale):
    formula, (_, data) = "y ~ (1|a) + (1|b)", unbalanced("crossed", seed=6)
    weights = {"Residual": 3 * scale, "a": scale, "b": 2 * scale}
    model = vcomp.VarianceComponentsModel(formula, data)
    other = vcomp.VarianceComponentsModel(formula, data.assign(y=data["y"] / scale))
    for limit in (_DENSE_BELOW, 0):
        first = estimate(model, limit, prior=[1, 2, 3])
        second = estimate(other, limit, prior=weights)
        np.testing.assert_allclose(second.values * scale**2, first.values, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-160, 1e160])
@pytest.mark.parametrize("dense_below", [_DENSE_BELOW, 0])
def test_the_unit_of_the_prior_does_not_matter(unit, dense_below):
    """Up to squares that are no numbers; of one round, which may be asked for, and of two."""
    model, prior = model_of("crossed", seed=6), np.array([1.0, 2.0, 3.0])
    for options in ({}, {"iterated": 1}, {"iterated": 2}):
        rounds = options.get("iterated", 1)
        expected = estimate(model, dense_below, prior=prior, iterated=rounds)
        found = estimate(model, dense_below, prior=unit * prior, **options)
        np.testing.assert_allclose(found.values, expected.values, rtol=1e-9)
        prepared = MINQUE(prior=unit * prior, **options).prepared(
            model.statistics, model.component_names
        )
        (point,) = prepared([model.statistics])
        np.testing.assert_allclose(point.values, expected.values, rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_mivque0_of_many_groups(name):
    model = model_of(name)
    dense = model.fit("minque", prior=0).vcomp
    np.testing.assert_allclose(
        dense,
        Projector(model.statistics.cross_products).mivque0(),
        rtol=1e-8,
        atol=1e-9 * dense.abs().max(),
    )
    found = estimate(model, prior=0)
    np.testing.assert_allclose(
        found.values, Projector(model.statistics.cross_products).mivque0(), rtol=1e-12
    )
    assert "No standard errors" in found.status


def test_rounds_from_mivque0_of_many_groups():
    model = model_of("crossed", seed=1)
    expected = model.fit("minque", prior=0, iterated=3)
    found = estimate(model, prior=0, iterated=3)
    np.testing.assert_allclose(found.values, expected.vcomp, rtol=1e-9)
    assert found.status.startswith("3 rounds, as requested")


@pytest.mark.parametrize("dense_below", [_DENSE_BELOW, 0])
def test_rounds_are_estimates_at_the_last_estimates(dense_below):
    model = model_of("crossed", seed=1)
    found = estimate(model, dense_below)
    for rounds in (2, 3):
        found = estimate(model, dense_below, prior=found.values)
        at_once = estimate(model, dense_below, iterated=rounds)
        np.testing.assert_allclose(at_once.values, found.values, rtol=1e-9)
        assert at_once.converged
        assert at_once.status.startswith(f"{rounds} rounds, as requested")


def test_the_next_prior_is_as_far_as_the_covariance_matrix_is_positive_definite():
    model = model_of("crossed", seed=1)
    w, target = np.ones(3), np.array([-9.0, 2.0, 1.0])
    priors, fraction = _priors(model.statistics), 1.0
    while np.linalg.eigvalsh(covariance_matrix(model, w + fraction * (target - w)))[0] <= 0.0:
        fraction *= 0.5
    assert 0.01 < fraction < 0.5
    np.testing.assert_array_equal(_next(priors, w, target).w, w + fraction * (target - w))
    np.testing.assert_array_equal(_next(priors, w, 2.0 * w).w, 2.0 * w)
    assert _next(priors, -w, -w) is None


def test_with_many_groups_the_next_prior_may_be_zero_but_not_below():
    priors = _priors(model_of("crossed", seed=1).statistics, 0)
    at_zero = np.array([0.0, 0.5, 1.0])
    found = _next(priors, np.ones(3), at_zero).w
    np.testing.assert_allclose(found / found[-1], at_zero, rtol=1e-12)
    with pytest.raises(vcomp.EstimationError, match="reaches negative components"):
        _next(priors, np.ones(3), np.array([-1e-12, 0.5, 1.0]))


@given(case=UNBALANCED, power=st.integers(-3, 3))
@settings(max_examples=examples(25), deadline=None)
def test_iterated_is_reml_where_that_is_interior(case, power):
    formula, data = unbalanced(*case)
    by_reml = vcomp.fit(formula, data)
    if (by_reml.vcomp == 0.0).any():
        return
    res = vcomp.fit(formula, data, method="minque", prior=10.0**power, iterated=True)
    assert res.status == "Converged."
    np.testing.assert_allclose(res.vcomp, by_reml.vcomp, rtol=1e-7)
    np.testing.assert_allclose(res.fe_params, by_reml.fe_params, rtol=1e-7)
    expected = by_reml.cov_vcomp("expected").to_numpy()
    assert_covariance(res.cov_vcomp(), expected, 1e-7)


@pytest.mark.parametrize("weights", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_iterated_of_many_groups(name, weights):
    model = model_of(name, "x")
    by_reml = model.fit("reml")
    if (by_reml.vcomp == 0.0).any():
        # Without a bound it goes on below zero, which the engines cannot.
        with pytest.raises(vcomp.EstimationError, match="method='reml'"):
            estimate(model, iterated=True, prior=weights)
        return
    found = estimate(model, iterated=True, prior=weights)
    assert found.status == "Converged."
    np.testing.assert_allclose(found.values, by_reml.vcomp, rtol=1e-8)
    expected = by_reml.cov_vcomp("expected").to_numpy()
    assert_covariance(found.covariances["sampling"], expected, 1e-8)


def between_groups(share, seed=1):
    """Return a one-way design whose group means lie nearer to each other than chance has them."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame({"a": np.repeat(range(8), 5), "y": rng.normal(size=40)})
    data["y"] -= data.groupby("a")["y"].transform("mean") * share
    return data


def test_iterated_goes_below_zero():
    """REML without its bound: in a balanced one-way design that is the ANOVA estimate."""
    data = between_groups(0.9)
    by_anova = vcomp.fit("y ~ (1|a)", data, method="anova")
    assert by_anova.vcomp["a"] < 0.0
    res = vcomp.fit("y ~ (1|a)", data, method="minque", iterated=True)
    np.testing.assert_allclose(res.vcomp, by_anova.vcomp, rtol=1e-10)
    np.testing.assert_allclose(res.cov_vcomp(), by_anova.cov_vcomp(), rtol=1e-9)
    assert "σ²(a) is estimated below zero" in res.status
    with pytest.raises(vcomp.EstimationError, match=r"reaches negative components.*method='reml'"):
        estimate(res.model, iterated=True)


def test_equal_means_have_no_solution():
    """The likelihood rises until V is singular; that is said."""
    with pytest.warns(vcomp.VcompWarning, match="Not converged"):
        res = vcomp.fit("y ~ (1|a)", between_groups(1.0), method="minque", iterated=True)
    assert not res.converged
    assert vcomp.fit("y ~ (1|a)", between_groups(1.0), method="minque").converged


def test_a_number_for_every_term():
    formula, data = balanced("three facets")
    by_number = vcomp.fit(formula, data, method="minque", prior=0.5)
    k = len(by_number.vcomp)
    by_sequence = vcomp.fit(formula, data, method="minque", prior=[0.5] * (k - 1) + [1.0])
    by_series = vcomp.fit(
        formula, data, method="minque", prior=pd.Series(0.5, by_number.vcomp.index).mask(
            by_number.vcomp.index == "Residual", 1.0)
    )  # fmt: skip
    np.testing.assert_array_equal(by_sequence.vcomp, by_number.vcomp)
    np.testing.assert_array_equal(by_series.vcomp, by_number.vcomp)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"prior": [1.0, 1.0]},
            r"shape \(2,\), but there are 3 components, in the order a, b, Resid",
        ),
        (
            {"prior": {"a": 1.0, "b": 1.0}},
            r"no component 'Residual'; give one for each of a, b, Residual",
        ),
        (
            {"prior": {"a": 1, "c": 1}},
            r"prior names component 'c', .* components are a, b, Residual",
        ),
        ({"prior": [1.0, -1.0, 1.0]}, r"the prior component of b is -1.0: .* not negative"),
        ({"prior": np.nan}, r"the prior component of a is nan: it must be finite"),
        ({"prior": [1.0, 1.0, 0.0]}, r"the prior component of Residual is 0: .* singular"),
        ({"prior": [1.0, 1.0, 1e-200]}, r"prior=\{'Residual': 1e-200\} .*: use a larger number"),
        ({"prior": "one"}, r"prior must be a number, a mapping .* not 'one'"),
        ({"prior": None}, r"prior must be a number, a mapping .* not None"),
        (
            {"iterated": 0},
            r"iterated must be True, False or a number of rounds \(at least 1\), not 0",
        ),
        (
            {"iterated": 2.5},
            r"iterated must be True, False or a number of rounds \(at least 1\), not 2.5",
        ),
        ({"tol": 1e-3}, r"method 'minque' takes prior, iterated, not 'tol'"),
    ],
)
def test_options_are_checked(options, message):
    _, data = unbalanced("crossed")
    with pytest.raises(vcomp.EstimationError, match=message):
        vcomp.fit("y ~ (1|a) + (1|b)", data, method="minque", **options)


def test_nothing_to_estimate():
    _, data = unbalanced("crossed")
    res = vcomp.fit("y ~ (1|a) + (1|b)", data.assign(y=2.5), method="minque")
    assert (res.vcomp == 0.0).all()
    assert res.fe_params["Intercept"] == 2.5
    assert res.status == "The response is constant: all components are 0."


def test_the_iterated_one_shows_that_it_solves_the_equations():
    formula, data = unbalanced("crossed", seed=4)
    res = vcomp.fit(formula, data, method="minque", iterated=True)
    shown = res.certificate
    assert shown.at_maximum
    assert shown.free == tuple(res.vcomp.index)
    assert shown.newton_decrement < 1e-8
    score = res.model.score(res.vcomp)
    assert shown.kkt_residual < 1e-8
    np.testing.assert_allclose(score * res.vcomp, 0.0, atol=1e-7)
    assert min(shown.information_eigenvalues) > 0.0
    assert "estimate" in res.seconds
    assert vcomp.fit(formula, data, method="minque").certificate is None


def test_the_limit_of_rounds_is_not_convergence():
    rounds = 60
    at_limit = _Solved(np.ones(2), None, rounds, 1e-3, trapped=False)
    assert not at_limit.is_end(given=False)
    assert at_limit.status(given=False) == (
        f"Not converged: the limit of {_STEPS} rounds was reached (last step 1.0e-03 standard "
        "errors)"
    )
    assert at_limit.is_end(given=True)
    assert at_limit.status(given=True) == "60 rounds, as requested"
    one = _Solved(np.ones(2), None, 1, 1e-3, trapped=False)
    assert one.status(given=True) == "Closed form"
    at_end = _Solved(np.ones(2), None, 5, _TOLERANCE, trapped=False)
    assert at_end.is_end(given=False)
    assert at_end.status(given=False) == "Converged"
    trapped = _Solved(np.ones(2), None, 5, 0.0, trapped=True)
    assert not trapped.is_end(given=True)
    assert trapped.status(given=True).startswith("Not converged: no further step keeps")


def test_estimates_of_an_engine_at_a_prior_of_zero_are_final():
    """They come without the forms that other priors have."""
    model = vcomp.VarianceComponentsModel(*unbalanced("crossed"))
    found, dense = (estimate(model, below, prior=0.0) for below in (0, 1000))
    assert found.converged
    assert found.status.startswith("Closed form. No standard errors")
    np.testing.assert_allclose(found.values, dense.values, rtol=1e-9)

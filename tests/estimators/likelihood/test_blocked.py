"""The likelihood engine against dense matrices: V, P and traces written out."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.designs import DESIGNS, unbalanced
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.blocked_covariance import Eliminations
from vcomp.estimators.likelihood.equations import SquareLimits

LOG_2_PI = np.log(2.0 * np.pi)


class Dense:
    """The textbook formulas with n × n matrices (Searle, Casella & McCulloch 1992, chapter 6)."""

    def __init__(self, model, v, *, reml):
        self.model, self.v, self.reml = model, np.asarray(v, float), reml
        n = model.nobs
        self.X, self.y = model.exog, model.endog
        incidences = [
            np.eye(s)[c]
            for c, s in zip(model.statistics.rows.codes, model.statistics.rows.sizes, strict=True)
        ]
        self.Vt = [Z @ Z.T for Z in incidences] + [np.eye(n)]
        self.V = sum(s * Vt for s, Vt in zip(self.v, self.Vt, strict=True))
        self.Vi = np.linalg.inv(self.V)
        if self.X.shape[1]:
            ViX = self.Vi @ self.X
            self.P = self.Vi - ViX @ np.linalg.solve(self.X.T @ ViX, ViX.T)
        else:
            self.P = self.Vi
        self.Q = self.P if reml else self.Vi

    def loglike(self):
        n, p = self.X.shape
        deviance = np.linalg.slogdet(self.V)[1] + self.y @ self.P @ self.y
        if self.reml:
            deviance += np.linalg.slogdet(self.X.T @ self.Vi @ self.X)[1] if p else 0.0
            return -0.5 * (deviance + (n - p) * LOG_2_PI)
        return -0.5 * (deviance + n * LOG_2_PI)

    def score(self):
        Py = self.P @ self.y
        return np.array([0.5 * (Py @ Vt @ Py - np.trace(self.Q @ Vt)) for Vt in self.Vt])

    def average(self):
        columns = np.column_stack([Vt @ self.P @ self.y for Vt in self.Vt])
        return 0.5 * columns.T @ self.P @ columns

    def expected(self):
        QV = [self.Q @ Vt for Vt in self.Vt]
        return 0.5 * np.array([[np.sum(a * b.T) for b in QV] for a in QV])


def cases():
    for name in sorted(DESIGNS):
        for zeros in ((), (0,), (0, 1), "all"):
            yield pytest.param(name, zeros, id=f"{name}, zeros {zeros}")


def model_of(name, fixed):
    formula, data = unbalanced(name, seed=3)
    rng = np.random.default_rng(0)
    data = data.assign(x=rng.normal(size=len(data)) + 1e4, g=rng.integers(0, 3, len(data)))
    return vcomp.VarianceComponentsModel(formula.replace("~", f"~ {fixed} +"), data)


def point(model, zeros):
    k = len(model.component_names)
    v = np.random.default_rng(k).uniform(0.3, 2.0, size=k)
    at_zero = range(k - 1) if zeros == "all" else [z for z in zeros if z < k - 1]
    v[list(at_zero)] = 0.0
    return v


@pytest.mark.parametrize(
    ("fixed", "reml"), [("1", True), ("x + C(g)", True), ("x + C(g)", False), ("0", False)]
)
@pytest.mark.parametrize(("name", "zeros"), list(cases()))
def test_likelihood_and_derivatives(name, zeros, fixed, reml):
    model = model_of(name, fixed)
    v = point(model, zeros)
    dense = Dense(model, v, reml=reml)
    engine = BlockedLikelihood(model.statistics.cross_products, reml=reml)
    # A covariate around 1e4 costs the dense formulas some digits, not the centred ones.
    rtol = 1e-7 if "x" in fixed else 1e-9
    assert engine.loglike(v) == pytest.approx(dense.loglike(), rel=rtol)
    scale = np.abs(dense.score()).max()
    found = engine.derivatives(v)
    assert found.loglike == engine.loglike(v)
    np.testing.assert_allclose(found.score, dense.score(), atol=rtol * scale)
    for kind, expected in (
        ("average", dense.average()),
        ("expected", dense.expected()),
        ("observed", 2.0 * dense.average() - dense.expected()),
    ):
        information = engine.information(v, kind)
        np.testing.assert_allclose(information, expected, atol=rtol * np.abs(expected).max())
    np.testing.assert_array_equal(found.average, engine.information(v, "average"))


@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_predictions_and_their_variances(name):
    """BLUPs are D Z'P y; their prediction error variance is D − D Z'P Z D."""
    model = model_of(name, "C(g)")
    res = model.fit("reml", engine="blocked")
    v = res.vcomp.to_numpy()
    dense = Dense(model, v, reml=True)
    for t, (term, frame) in enumerate(res.random_effects.items()):
        Z = np.eye(model.statistics.rows.sizes[t])[model.statistics.rows.codes[t]]
        np.testing.assert_allclose(
            frame["estimate"], v[t] * Z.T @ dense.P @ dense.y, atol=1e-8, err_msg=term
        )
        for column, projection in (("se", dense.P), ("conditional_se", dense.Vi)):
            variance = v[t] - v[t] ** 2 * np.diagonal(Z.T @ projection @ Z)
            np.testing.assert_allclose(frame[column] ** 2, variance, atol=1e-9, err_msg=term)
    ViX = dense.Vi @ dense.X
    beta = np.linalg.solve(dense.X.T @ ViX, ViX.T @ dense.y)
    np.testing.assert_allclose(res.fe_params, beta, rtol=1e-9)
    covariance = np.linalg.inv(dense.X.T @ ViX)
    np.testing.assert_allclose(res.cov_params().iloc[: beta.size, : beta.size], covariance)


def test_components_by_name_and_as_a_list():
    formula, data = unbalanced("crossed")
    model = vcomp.VarianceComponentsModel(formula, data)
    by_name = {"b": 2.0, "Residual": 1.0, "a": 3.0}
    assert model.loglike(by_name) == model.loglike(pd.Series(by_name)) == model.loglike([3, 2, 1])


@pytest.mark.parametrize(
    ("components", "message"),
    [
        ([1.0, 2.0], r"shape \(2,\); there are 3: a, b, Residual"),
        ([1.0, -2.0, 1.0], "must not be negative"),
        ([1.0, 2.0, 0.0], "and the residual positive"),
        ([1.0, np.nan, 1.0], "must not be negative"),
        ({"a": 1.0, "Residual": 1.0}, "component 'b' is missing"),
    ],
)
def test_components_that_are_none(components, message):
    formula, data = unbalanced("crossed")
    model = vcomp.VarianceComponentsModel(formula, data)
    with pytest.raises(vcomp.EstimationError, match=message):
        model.loglike(components)


def test_unknown_information():
    formula, data = unbalanced("crossed")
    model = vcomp.VarianceComponentsModel(formula, data)
    with pytest.raises(vcomp.EstimationError, match="information='fisher' is not known"):
        model.information([1, 1, 1], information="fisher")


def test_a_factor_that_does_not_fit_is_refused():
    formula, data = unbalanced("three facets")
    message = (
        r"elimination of these \d+ random effects needs .*[GM]iB, and .* are free; "
        r"use engine='iterative', or method='anova'"
    )
    stats = vcomp.VarianceComponentsModel(formula, data).statistics.cross_products
    with pytest.raises(vcomp.EstimationError, match=message):
        Eliminations(stats, free_bytes=lambda: 1e3)


@pytest.mark.parametrize(
    ("at_zero", "evaluation", "is_cheap"),
    [(0.1, 1e-3, True), (0.11, 1e-3, False), (0.5, 0.1, True), (0.51, 0.1, False)],
)
def test_the_expected_information_may_cost_five_evaluations(at_zero, evaluation, is_cheap):
    model = vcomp.VarianceComponentsModel(*unbalanced("crossed"))
    engine = BlockedLikelihood(model.statistics.cross_products, reml=True)
    point = SimpleNamespace(seconds_at_zero=lambda: at_zero)
    engine.eliminations = SimpleNamespace(at=lambda v: point, seconds=evaluation)
    assert engine.expects_cheaply(np.ones(3)) is is_cheap


def test_the_time_of_squares_at_zero_is_that_of_a_solve_for_each_group():
    """A billion multiplications take a second; of very many groups a cube of the others."""
    model = vcomp.VarianceComponentsModel(*unbalanced("three facets"))
    engine = BlockedLikelihood(model.statistics.cross_products, reml=True)
    k = model.statistics.cross_products.n_terms
    for zeros in ([], [0], [1, 3]):
        v = np.where(np.isin(np.arange(k + 1), zeros), 0.0, 1.0)
        point = engine.eliminations.at(v)
        pattern = point.equations.pattern
        solved = sum(model.statistics.cross_products.sizes[t] for t in zeros)
        expected = 1e-9 * solved * (pattern.rows.size + pattern.n_dense**2)
        assert point.seconds_at_zero() == pytest.approx(expected, rel=1e-12)
        rank = (
            sum(model.statistics.cross_products.sizes)
            - solved
            + model.statistics.cross_products.n_fixed
        )
        limits = SquareLimits(many_elements=0.0, times_as_many=0)
        expected = 1e-9 * len(zeros) * float(rank) ** 3
        assert point.seconds_at_zero(limits) == pytest.approx(expected, rel=1e-12)


def test_without_memory_for_norms_the_average_information_is_left():
    model = vcomp.VarianceComponentsModel(*unbalanced("crossed"))
    whole = BlockedLikelihood(model.statistics.cross_products, reml=True)
    plan, v = whole.eliminations._whole_plan, np.ones(3)
    for factor, is_tight in ((0.999, True), (1.001, False)):
        free = factor * plan.bytes_for_norms / 0.8
        eliminations = Eliminations(
            model.statistics.cross_products, None, free_bytes=lambda free=free: free
        )
        engine = BlockedLikelihood(
            model.statistics.cross_products, reml=True, eliminations=eliminations
        )
        average = engine.information(v, "average")
        np.testing.assert_array_equal(average, whole.information(v, "average"))
        for kind in ("observed", "expected"):
            if is_tight:
                with pytest.raises(vcomp.EstimationError, match=f"the {kind} information needs"):
                    engine.information(v, kind)
            else:
                np.testing.assert_array_equal(
                    engine.information(v, kind), whole.information(v, kind)
                )

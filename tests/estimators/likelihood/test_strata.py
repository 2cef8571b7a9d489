"""The likelihood by orthogonal strata against dense matrices and against blocked elimination."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import vcomp
from tests.helpers.dense_likelihood import DenseLikelihood, hessian_of, score_of
from tests.helpers.designs import GRIDS, gridded
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.choose import choose_engine
from vcomp.estimators.likelihood.strata_likelihood import StrataLikelihood

RTOL = 1e-12
"""Relative to the largest number of its kind; on 80 rows rounding is about 1e-14."""


def fixed_parts(name):
    """Return parts with columns in one stratum each, and in several of them."""
    _, axes, cells, _ = GRIDS[name]
    parts = ["1", "0"]
    if axes:
        parts += ["xp", "C(half)"]
    if cells:
        parts += ["xi + xd"]
    if axes and cells:
        parts += ["xp + xi"]
    if axes and cells:
        parts += ["xp:xi + xp"]
    return [*parts, "x", "0 + C(half) + x"]


@cache
def model_of(name, fixed="1"):
    formula, data = gridded(name)
    axes = GRIDS[name][1]
    data["half"] = data[next(iter(axes), "i" if "i" in data else "a")] % 2
    if axes:
        # As many levels in each half as can be: the factor then lives in the contrasts alone.
        data["half"] = data["half"].map({0: "even", 1: "odd"})
    return vcomp.VarianceComponentsModel(formula.replace("~", f"~ {fixed} +"), data)


def points(n_components):
    """Return components inside, on faces, and where the residual alone is left."""
    rng = np.random.default_rng(n_components)
    inside = rng.uniform(0.3, 2.0, n_components)
    yield inside
    for zeros in ([0], [n_components // 2 - 1, n_components - 2]):
        at_bound = rng.uniform(0.3, 2.0, n_components)
        at_bound[zeros] = 0.0
        yield at_bound
    yield np.where(np.arange(n_components) == n_components - 1, 0.7, 0.0)
    # Three decades between neighbours.
    yield 10.0 ** rng.uniform(-2.0, 1.0, n_components)


CASES = [(name, fixed) for name in GRIDS for fixed in fixed_parts(name)]

ALTERNATING = [(*case, k % 2 == 0) for k, case in enumerate(CASES)]
"""Each case by REML or by ML; fixed parts have both, as designs have odd numbers of them."""


@pytest.mark.parametrize(("name", "fixed", "reml"), ALTERNATING)
def test_value_score_and_informations(name, fixed, reml):
    model = model_of(name, fixed)
    strata = choose_engine(model.statistics, "strata", reml=reml)
    dense = DenseLikelihood(model, reml=reml)
    assert isinstance(strata, StrataLikelihood)
    assert strata.n_fixed == model.exog.shape[1]
    for v in points(len(model.component_names)):
        assert strata.loglike(v) == pytest.approx(dense.loglike(v), rel=RTOL)
        derivatives = strata.derivatives(v)
        assert derivatives.loglike == strata.loglike(v)
        score = score_of(dense, v)
        np.testing.assert_allclose(derivatives.score, score, atol=RTOL * np.abs(score).max())
        expected = {
            "average": dense.average(v),
            "expected": dense.expected(v),
            "observed": -hessian_of(dense, v),
        }
        for kind, matrix in expected.items():
            found = strata.information(v, kind)
            atol = 10 * RTOL * np.abs(matrix).max()
            np.testing.assert_allclose(found, matrix, atol=atol, err_msg=kind)
            np.testing.assert_allclose(found, found.T, atol=1e-15 * np.abs(matrix).max())
        np.testing.assert_array_equal(derivatives.average, strata.information(v, "average"))


@pytest.mark.parametrize(("name", "fixed", "reml"), ALTERNATING)
def test_as_blocked_elimination(name, fixed, reml):
    """At one point: at all of them both engines are compared with dense matrices."""
    model = model_of(name, fixed)
    strata = choose_engine(model.statistics, "strata", reml=reml)
    blocked = BlockedLikelihood(model.statistics.cross_products, reml=reml)
    for at in ("n", "n_fixed", "sizes", "yy", "rss"):
        assert getattr(strata, at) == pytest.approx(getattr(blocked, at), rel=1e-12), at
    np.testing.assert_allclose(strata.mivque0(), blocked.mivque0(), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(strata.least_squares(), blocked.least_squares(), atol=1e-12)
    *_, v = points(len(model.component_names))
    assert strata.loglike(v) == pytest.approx(blocked.loglike(v), rel=1e-12)
    one, other = strata.derivatives(v), blocked.derivatives(v)
    scale = np.abs(other.score).max()
    np.testing.assert_allclose(one.score, other.score, atol=1e-11 * scale)
    for kind in strata.kinds:
        found, expected = strata.information(v, kind), blocked.information(v, kind)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, atol=1e-11 * scale, err_msg=kind)


@pytest.mark.parametrize(("name", "fixed"), CASES)
def test_fixed_effects(name, fixed):
    model = model_of(name, fixed)
    dense = DenseLikelihood(model, reml=True)
    strata = choose_engine(model.statistics, "strata", reml=True)
    for v in points(len(model.component_names)):
        beta, covariance = model.design.uncentre(*strata.fixed_effects(v))
        _, _, _, inverse, estimate = dense.matrices(v)
        np.testing.assert_allclose(beta, estimate, rtol=1e-10, atol=1e-11)
        np.testing.assert_allclose(covariance, inverse, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "fixed", "engine"),
    [(*case, "strata" if reml else "blocked") for *case, reml in ALTERNATING],
)
def test_quadratic_forms(name, fixed, engine):
    """y'P V_t P y, first without the other forms of the point, then with them."""
    model = model_of(name, fixed)
    dense = DenseLikelihood(model, reml=True)
    made = choose_engine(model.statistics, engine, reml=True)
    for v in points(len(model.component_names)):
        Py = dense.matrices(v)[2] @ dense.y
        expected = np.array([Py @ K @ Py for K in dense.K])
        atol = 10 * RTOL * np.abs(expected).max()
        np.testing.assert_allclose(made.quadratics(v), expected, atol=atol)
        before = made.fixed_effects(v)
        made.derivatives(v)
        np.testing.assert_allclose(made.quadratics(v), expected, atol=atol)
        for one, other in zip(before, made.fixed_effects(v), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("name", "fixed"), CASES)
def test_predicted_effects_and_their_variances(name, fixed):
    """BLUPs are D Z'P y, their variances D − D Z'P Z D, and with V⁻¹ in place of P given β."""
    model = model_of(name, fixed)
    dense = DenseLikelihood(model, reml=True)
    strata = choose_engine(model.statistics, "strata", reml=True)
    if not strata.gives_effects:
        with pytest.raises(vcomp.EstimationError, match="use engine='blocked'"):
            strata.solution(np.ones(len(model.component_names)))
        return
    for v in points(len(model.component_names)):
        found = strata.solution(v)
        _, Vi, P, _, _ = dense.matrices(v)
        beta, covariance = strata.fixed_effects(v)
        np.testing.assert_allclose(found.beta, beta, atol=1e-12)
        np.testing.assert_allclose(found.cov_beta, covariance, atol=1e-12)
        for t, Z in enumerate(dense.Z):
            close = {"atol": 1e-11 * max(v[t], 1.0), "err_msg": model.component_names[t]}
            np.testing.assert_allclose(found.effects[t], v[t] * Z.T @ P @ dense.y, **close)
            for variance, M in ((found.prediction_var, P), (found.conditional_var, Vi)):
                expected = v[t] - v[t] ** 2 * np.diagonal(Z.T @ M @ Z)
                np.testing.assert_allclose(variance[t], expected, **close)


def test_no_grid_needs_another_engine():
    formula, data = gridded("per document")
    with pytest.raises(vcomp.EstimationError, match="engine='strata' needs a facet that is"):
        vcomp.fit(formula, data.iloc[1:], engine="strata")


@pytest.mark.parametrize("name", ["per document", "deep", "crossed", "not nested"])
def test_far_covariates_lose_no_digits(name):
    """Columns are centred: adding 1e6 to a covariate moves the intercept and nothing else."""
    formula, data = gridded(name)
    text = formula.replace("~", "~ xp +")
    near = vcomp.fit(text, data, engine="strata")
    far = vcomp.fit(text, data.assign(xp=data["xp"] + 1e6), engine="strata")
    assert far.llf == pytest.approx(near.llf, rel=1e-9)
    np.testing.assert_allclose(far.fe_params["xp"], near.fe_params["xp"], rtol=1e-8)
    np.testing.assert_allclose(far.vcomp, near.vcomp, rtol=1e-7)

"""Forms of X in V⁻¹ by every engine, against the formulas with n × n matrices."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.dense_likelihood import DenseLikelihood
from tests.helpers.designs import DESIGNS, GRIDS, drop_rows, gridded, unbalanced
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.choose import choose_engine
from vcomp.estimators.likelihood.incomplete import CompletedLikelihood
from vcomp.estimators.likelihood.iterative import IterativeLikelihood

FIXED = ["1", "x + C(g)", "0 + x"]


def model_of(name, fixed):
    formula, data = unbalanced(name, seed=3)
    rng = np.random.default_rng(0)
    data = data.assign(x=rng.normal(size=len(data)) + 5.0, g=rng.integers(0, 3, len(data)))
    return vcomp.VarianceComponentsModel(formula.replace("~", f"~ {fixed} +"), data)


def points(k):
    for zeros in ((), (0,), tuple(range(k - 1))):
        v = np.random.default_rng(k).uniform(0.3, 2.0, size=k)
        v[[z for z in zeros if z < k - 1]] = 0.0
        yield v


def expected_forms(model, v):
    """Return Φ, X'V⁻¹V_t V⁻¹X and X'V⁻¹V_t V⁻¹V_u V⁻¹X of the centred columns."""
    dense = DenseLikelihood(model, reml=True)
    Vi = dense.matrices(v)[1]
    X = model.statistics.rows.X
    ViX = Vi @ X
    first = np.array([ViX.T @ K @ ViX for K in dense.K])
    second = np.array([[ViX.T @ K @ Vi @ L @ ViX for L in dense.K] for K in dense.K])
    return np.linalg.inv(X.T @ ViX), first, second


def check(engine, model, *, second, rtol=1e-9):
    for v in points(len(model.component_names)):
        found = engine.fixed_forms(v, second=second)
        cov_beta, first, both = expected_forms(model, v)
        for ours, theirs in ((found.cov_beta, cov_beta), (found.first, first)):
            np.testing.assert_allclose(ours, theirs, atol=rtol * np.abs(theirs).max(), rtol=rtol)
        slopes = cov_beta @ first @ cov_beta
        np.testing.assert_allclose(found.slopes, slopes, atol=10 * rtol * np.abs(slopes).max())
        if second:
            np.testing.assert_allclose(found.second, both, atol=10 * rtol * np.abs(both).max())
        else:
            assert found.second is None


@pytest.mark.parametrize("fixed", FIXED)
@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_elimination(name, fixed):
    model = model_of(name, fixed)
    check(BlockedLikelihood(model.statistics.cross_products, reml=True), model, second=True)


@pytest.mark.parametrize("n_levels", [0, 12, 1000])
@pytest.mark.parametrize("fixed", FIXED)
@pytest.mark.parametrize("name", ["one way", "nested", "three facets"])
def test_iterative_solves(name, fixed, n_levels):
    model = model_of(name, fixed)
    engine = IterativeLikelihood(
        model.statistics.cross_products, reml=True, n_levels=n_levels, tol=1e-12
    )
    # There are no second forms, whoever asks.
    assert engine.fixed_forms(np.ones(len(model.component_names)), second=True).second is None
    check(engine, model, second=False, rtol=1e-8)


@pytest.mark.parametrize("fixed", ["1", "xp + xi + x", "0 + xp"])
@pytest.mark.parametrize("name", sorted(GRIDS))
def test_strata(name, fixed):
    formula, data = gridded(name)
    model = vcomp.VarianceComponentsModel(formula.replace("~", f"~ {fixed} +"), data)
    check(choose_engine(model.statistics, "strata", reml=True), model, second=True)


@pytest.mark.parametrize("fixed", ["1", "xp + x"])
def test_a_grid_with_holes(fixed):
    formula, data = gridded("per document")
    data = drop_rows(data, 0.1, 4)
    model = vcomp.VarianceComponentsModel(formula.replace("~", f"~ {fixed} +"), data)
    grid = model.statistics.completed
    assert grid is not None
    # The holes are solved for to 1e-10 of the right-hand side.
    check(
        CompletedLikelihood(model.statistics.cross_products, grid, reml=True),
        model,
        second=False,
        rtol=1e-7,
    )

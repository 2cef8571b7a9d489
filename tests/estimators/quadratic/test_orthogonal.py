"""Designs in which the order of adjustment does not matter, found and computed from group sums."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.dense_quadratic import assert_covariance
from tests.helpers.designs import DESIGNS, balanced, unbalanced
from vcomp.estimators.quadratic.closed_form import (
    Henderson3,
    Type1,
    estimate_from,
    orthogonal_table,
)


def documents(seed=0):
    """Return p × a × (d:i) with unequal numbers of documents in the topics."""
    rng = np.random.default_rng(seed)
    topics = np.repeat(range(5), [2, 5, 3, 4, 1])
    grid = pd.MultiIndex.from_product(
        [range(6), range(3), range(topics.size)], names=["p", "a", "d"]
    )
    data = grid.to_frame(index=False)
    data["i"] = topics[data["d"]]
    y = rng.normal(size=len(data))
    for facets in ("p", "a", "i", "d", ["p", "a"], ["p", "i"], ["a", "i"], ["p", "d"], ["a", "d"]):
        groups = data.groupby(facets).ngroup()
        y = y + rng.normal(size=groups.max() + 1)[groups]
    return data.assign(y=y)


FULL = "y ~ (1|p) + (1|a) + (1|i) + (1|i:d) + (1|p:a) + (1|p:i) + (1|a:i) + (1|p:i:d) + (1|a:i:d)"
METHODS = [Type1(), Henderson3()]


def assert_same_by_reductions(formula, data):
    model = vcomp.VarianceComponentsModel(formula, data)
    stats, names = model.statistics, model.component_names
    assert orthogonal_table(stats, names) is not None
    for method in METHODS:
        res, found = model.fit(method.name), method.estimate(stats, names)
        np.testing.assert_array_equal(res.vcomp, found.values)
        reductions = method.reductions(stats.cross_products)
        expected = estimate_from(method.name, stats, reductions, names)
        fast, slow = method.table(stats, names), reductions.table(names)
        scale = np.abs(expected.values).max()
        np.testing.assert_allclose(found.values, expected.values, rtol=1e-9, atol=1e-11 * scale)
        assert_covariance(found.covariances["sampling"], expected.covariances["sampling"], 1e-9)
        origin = model.design.origin
        np.testing.assert_allclose(found.beta + origin, expected.beta + origin, rtol=1e-9)
        np.testing.assert_allclose(np.sqrt(found.cov_beta), np.sqrt(expected.cov_beta), rtol=1e-9)
        np.testing.assert_array_equal(fast.df, slow.df)
        np.testing.assert_allclose(fast.sum_sq, slow.sum_sq, atol=1e-11 * slow.sum_sq.sum())
        np.testing.assert_allclose(fast.expected, slow.expected, atol=1e-10)
        assert res.method == method.name


@pytest.mark.parametrize("seed", range(2))
def test_documents_of_unequal_topics(seed):
    assert_same_by_reductions(FULL, documents(seed))


@pytest.mark.parametrize("name", ["one way", "nested", "deeply nested"])
def test_nested_data_of_unequal_sizes(name):
    assert_same_by_reductions(*unbalanced(name, seed=2))


@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_balanced_data(name):
    assert_same_by_reductions(*balanced(name, seed=2))


@pytest.mark.parametrize(
    "formula",
    [
        # What two terms have in common, p, is not in the model.
        "y ~ (1|i) + (1|p:a) + (1|p:i)",
        # Covariates, and no mean at all.
        "y ~ a + (1|p) + (1|i)",
        "y ~ 0 + (1|p) + (1|i)",
        "y ~ 0 + a + (1|p) + (1|i)",
    ],
)
def test_others_are_adjusted(formula):
    model = vcomp.VarianceComponentsModel(formula, documents())
    assert orthogonal_table(model.statistics, model.component_names) is None
    for method in METHODS:
        assert model.fit(method.name).converged


def test_a_finer_term_first_is_refused_all_the_same():
    with pytest.raises(vcomp.EstimationError, match="term 'p' has no degrees of freedom after"):
        vcomp.fit("y ~ (1|p:a) + (1|p) + (1|a)", documents(), method="type1")
    assert vcomp.fit("y ~ (1|p:a) + (1|p) + (1|a)", documents(), method="henderson3").converged


def test_crossed_data_with_missing_cells_are_not_orthogonal():
    model = vcomp.VarianceComponentsModel(*unbalanced("crossed"))
    assert orthogonal_table(model.statistics, model.component_names) is None


def test_constant_response():
    res = vcomp.fit(FULL, documents().assign(y=3.0), method="type1")
    assert (res.vcomp == 0.0).all()
    assert res.status == "The response is constant: all components are 0."


def test_a_covariate_without_a_mean_is_no_mean():
    """One covariate and no intercept: terms are not orthogonal to it, and it is adjusted for."""
    rng = np.random.default_rng(0)
    a, b = (axis.ravel() for axis in np.indices((6, 4)))
    x = rng.normal(size=24)
    y = rng.normal(size=6)[a] + rng.normal(size=4)[b] + 3.0 * x + rng.normal(size=24)
    data = pd.DataFrame({"y": y, "x": x, "a": a, "b": b})
    for method in ("type1", "henderson3"):
        res = vcomp.fit("y ~ 0 + x + (1|a) + (1|b)", data, method=method)
        X = np.column_stack([x, np.eye(6)[a], np.eye(4)[b]])
        rest = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
        error = rest @ rest / (24 - np.linalg.matrix_rank(X))
        assert res.vcomp["Residual"] == pytest.approx(error, rel=1e-10)

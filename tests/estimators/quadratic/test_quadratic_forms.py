"""The covariance of sums of squares by chains of tables and by one dense product."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.designs import DESIGNS, unbalanced
from vcomp.estimators.quadratic import quadratic_forms


@pytest.mark.parametrize("name", DESIGNS)
def test_chains_and_a_dense_product_against_matrices_of_all_rows(name, monkeypatch):
    model = vcomp.VarianceComponentsModel(*unbalanced(name))
    stats, n = model.statistics.cross_products, model.nobs
    v = np.linspace(-0.2, 1.5, stats.n_terms + 1)
    Z = [np.eye(q)[c] for c, q in zip(model.chunk.codes, model.chunk.sizes, strict=True)]
    V = sum(s * z @ z.T for s, z in zip(v, Z, strict=False)) + v[-1] * np.eye(n)
    mean = np.full((n, n), 1.0 / n)
    A = [z @ np.diag(1.0 / z.sum(axis=0)) @ z.T - mean for z in Z] + [np.eye(n) - mean]
    expected = 2.0 * np.array([[np.trace(a @ V @ b @ V) for b in A] for a in A])
    scale = np.abs(expected).max()
    for few_terms in (1, 1000):
        monkeypatch.setattr(quadratic_forms, "_MANY_TERMS", few_terms)
        found = quadratic_forms.quadratic_covariance(stats, v)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12 * scale)


def test_what_is_too_large_is_refused_before_any_product_is_made(monkeypatch):
    stats = vcomp.VarianceComponentsModel(*unbalanced("three facets")).stats
    monkeypatch.setattr(quadratic_forms, "_MOST_ELEMENTS", 0)
    monkeypatch.setattr(quadratic_forms, "_DENSE_BELOW", 0)
    made = []
    monkeypatch.setattr(quadratic_forms._Chains, "_product", lambda *at: made.append(at))
    with pytest.raises(quadratic_forms.TooLargeError):
        quadratic_forms.quadratic_covariance(stats, np.ones(stats.n_terms + 1))
    assert not made

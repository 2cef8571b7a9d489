from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers.multivariate_scores import (
    alone_of,
    dense_parts,
    layout_of,
    specification,
    unit_matrices,
    vector,
)
from vcomp.estimators.likelihood import elements
from vcomp.exceptions import EstimationError
from vcomp.multivariate.analogous import (
    _solved,
    analogous_components,
    analogous_covariance,
    find_axis,
)

FORMULA = "y ~ (1|p) + (1|i)"
CASES = {
    "specification": {},
    "specification, missing": {"missing": 0.25},
    "linked, missing": {"n_i": (4, 4, 4), "linked": True, "missing": 0.25},
    "partly linked": {"n_i": (3, 5, 4), "linked": True},
    "one item shared": {},
}


def case(name, seed=0):
    data = specification(seed, **CASES[name])
    if name == "one item shared":  # the last one of a is the first one of b
        data["i"] -= (data["i"] > 2).astype(int)
    return layout_of(FORMULA, data, variable="test")


def dense_forms(layout):
    """Return the symmetric matrices A of the products y'Ay, term after term."""
    w, n = layout.scores.variable, layout.scores.n
    forms = []
    for t, a, b in elements(layout.linked):
        q, counts = layout.sizes[t], layout.counts[t]
        weights = np.sqrt(counts[:, a] * counts[:, b])
        means = np.zeros((2, q, n))
        for row, g in enumerate(layout.groups[t]):
            for side, variable in enumerate((a, b)):
                if w[row] == variable:
                    means[side, g, row] = 1.0 / counts[g, variable]
        H = np.diag(weights) - np.outer(weights, weights) / weights.sum()
        A = means[0].T @ H @ means[1]
        forms.append(0.5 * (A + A.T))
    return forms


@pytest.mark.parametrize("name", CASES)
def test_estimates_solve_the_expectations_of_dense_forms(name):
    layout = case(name)
    forms, D = dense_forms(layout), unit_matrices(layout)
    K = np.array([[np.sum(A * d) for d in D] for A in forms])
    expected = np.linalg.solve(K, [layout.y @ A @ layout.y for A in forms])
    values = analogous_components(layout)
    np.testing.assert_allclose(vector(values, layout), expected, rtol=1e-9, atol=1e-11)
    assert np.isnan(values[~layout.linked]).all()


@pytest.mark.parametrize("name", CASES)
def test_standard_errors_are_those_of_normal_quadratic_forms(name):
    layout = case(name)
    values = analogous_components(layout)
    forms, D = dense_forms(layout), unit_matrices(layout)
    K = np.array([[np.sum(A * d) for d in D] for A in forms])
    V = np.einsum("m,mij->ij", vector(values, layout), D)
    C = np.array([[2.0 * np.trace(A @ V @ B @ V) for B in forms] for A in forms])
    expected = np.linalg.solve(K, np.linalg.solve(K, C).T)
    found, why = analogous_covariance(layout, values)
    assert why == ""
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("allowed", [True, False])
def test_standard_errors_of_too_many_products_are_left_out(allowed):
    """Products of groups of any two terms, but of two units, by pairs of variables."""
    layout = case("specification, missing")
    p, i, n = (float(size) for size in layout.sizes)
    products = 36 * (p * p + i * p + i * i + n * p + n * i)
    most = products - (not allowed)
    cov, why = analogous_covariance(layout, analogous_components(layout), most_products=most)
    assert np.isfinite(cov).all() == allowed
    assert ("too much memory or time" in why) is not allowed


@pytest.mark.parametrize("name", ["specification", "partly linked"])
def test_standard_errors_by_columns_of_a_crossed_facet_are_the_same(name):
    layout = case(name)
    axis = find_axis(layout)
    assert axis is not None
    values = analogous_components(layout)
    expected, _ = analogous_covariance(layout, values)
    found, _ = analogous_covariance(layout, values, axis)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_a_table_of_specifications_has_covariances_of_person_means():
    """Complete data, own items: σ_p(a, b) is the covariance of the persons' mean scores."""
    data = specification(2)
    layout = case("specification", 2)
    means = data.groupby(["p", "test"])["y"].mean().unstack()
    values = analogous_components(layout)
    expected = means.cov().to_numpy()
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(values[0][off], expected[off], rtol=1e-11)
    assert layout.linked[0].all()
    assert not layout.linked[1:, off].any()


def test_variances_are_henderson_one_of_each_variable():
    data = specification(3, missing=0.3)
    layout = layout_of(FORMULA, data, variable="test")
    values = analogous_components(layout)
    cov, _ = analogous_covariance(layout, values)
    places = elements(layout.linked)
    for k, name in enumerate("abc"):
        alone = alone_of(FORMULA, data[data["test"] == name], method="anova")
        np.testing.assert_allclose(values[:, k, k], alone.vcomp, rtol=1e-9)
        own = [places.index((t, k, k)) for t in range(3)]
        np.testing.assert_allclose(cov[np.ix_(own, own)], alone.cov_vcomp(), rtol=1e-8)


def test_means_do_not_matter():
    data = specification(4, missing=0.3)
    plain = analogous_components(layout_of(FORMULA, data, variable="test"))
    moved = data.assign(y=data["y"] + data["test"].map({"a": 100.0, "b": -50.0, "c": 7.0}))
    found = analogous_components(layout_of(FORMULA, moved, variable="test"))
    np.testing.assert_allclose(found, plain, rtol=1e-9, atol=1e-11)


def test_the_dense_parts_are_what_they_say():
    """The tests' own likelihood equals the sum of one-variable ones at covariances of zero."""
    data = specification(5, missing=0.2)
    layout = layout_of(FORMULA, data, variable="test")
    total, S = 0.0, np.zeros((3, 3, 3))
    for k, name in enumerate("abc"):
        alone = alone_of(FORMULA, data[data["test"] == name])
        S[:, k, k] = alone.vcomp
        total += alone.llf
    _, _, (reml, _) = dense_parts(vector(S, layout), layout, layout.scores.y)
    assert reml == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("pair", [(0, 0), (0, 1)])
def test_components_that_sums_of_products_do_not_distinguish_are_refused(pair):
    scores = SimpleNamespace(variables=("a", "b"))
    layout = SimpleNamespace(scores=scores, names=("p", "i", "Residual"))
    units = np.array([1e-5, 1e7])
    K, right = np.array([[2.0, 1.0], [1.0, 3.0]]) * units, np.array([3.0, -1.0])
    np.testing.assert_allclose(K @ _solved(K, right, layout, pair, [0, 2]), right, rtol=1e-12)
    named = "variable 'a'" if pair == (0, 0) else "variables 'a' and 'b'"
    for singular in (
        np.array([[1.0, 2.0], [1.0, 2.0 + 1e-10]]) * units,
        np.array([[1.0, 0.0], [1.0, 0.0]]),
    ):
        words = f"components of p, Residual cannot be distinguished in {named} by"
        with pytest.raises(EstimationError, match=words):
            _solved(singular, right, layout, pair, [0, 2])

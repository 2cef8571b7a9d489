"""Forms of fixed parts with many columns, against dense matrices."""

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.nested import NestedCovariance, fewer_vectors
from vcomp.numerics import Positive, congruent
from vcomp.statistics import GroupedColumns


@pytest.mark.parametrize("n_columns", [2, 8, 30])
@pytest.mark.parametrize("kind", ["expected", "observed"])
def test_information_with_more_and_fewer_columns_than_groups(n_columns, kind):
    rng = np.random.default_rng(n_columns)
    n = 120
    data = pd.DataFrame({"a": rng.integers(0, 12, n), "b": rng.integers(0, 5, n)})
    X = rng.normal(size=(n, n_columns))
    for j in range(n_columns):
        data[f"x{j}"] = X[:, j]
    data["y"] = rng.normal(size=n) + rng.normal(size=12)[data["a"]]
    fixed = " + ".join(f"x{j}" for j in range(n_columns))
    model = vcomp.VarianceComponentsModel(f"y ~ {fixed} + (1|a) + (1|b)", data)
    engine = BlockedLikelihood(model.statistics.cross_products, reml=True)
    v = np.array([0.7, 0.4, 1.3])
    Z = [np.eye(12)[data["a"]], np.eye(5)[data["b"]], np.eye(n)]
    parts = [z @ z.T for z in Z]
    V = sum(c * part for c, part in zip(v, parts, strict=True))
    W = np.column_stack([np.ones(n), X])
    inverse = np.linalg.inv(V)
    P = inverse - inverse @ W @ np.linalg.solve(W.T @ inverse @ W, W.T @ inverse)
    expected = np.array([[0.5 * np.trace(P @ s @ P @ t) for s in parts] for t in parts])
    if kind == "observed":
        y = data["y"].to_numpy()
        expected = np.array([[y @ P @ s @ P @ t @ P @ y for s in parts] for t in parts]) - expected
    np.testing.assert_allclose(engine.information(v, kind), expected, rtol=1e-9, atol=1e-11)
    variances = engine.solution(v).prediction_var
    C = np.block(
        [
            [Z[0].T @ Z[0] + v[2] / v[0] * np.eye(12), Z[0].T @ Z[1], Z[0].T @ W],
            [Z[1].T @ Z[0], Z[1].T @ Z[1] + v[2] / v[1] * np.eye(5), Z[1].T @ W],
            [W.T @ Z[0], W.T @ Z[1], W.T @ W],
        ]
    )
    diagonal = v[2] * np.diagonal(np.linalg.inv(C))
    np.testing.assert_allclose(np.concatenate(variances), diagonal[:17], rtol=1e-9)


def test_many_vectors_are_replaced_by_fewer_with_the_same_forms():
    rng = np.random.default_rng(2)
    means = rng.normal(size=(3, 4, 5_000)) * np.array([1.0, 1e-3, 1e3, 1.0])[:, None]
    fewer = fewer_vectors(GroupedColumns((means,), np.zeros((4, 4))))
    assert fewer.shape == (3, 4, 12)
    scale = np.sqrt(np.square(means).sum(axis=2))
    whole, few = (np.einsum("qbr,sdr->qbsd", m, m) for m in (means, fewer))
    error = np.abs(few - whole) / np.einsum("qb,sd->qbsd", scale, scale)
    assert error.max() < 1e-14


def test_vectors_that_depend_on_each_other_stay():
    x = np.random.default_rng(3).normal(size=20_000)
    means = np.stack([x, x])[None]
    assert fewer_vectors(GroupedColumns((means,), np.zeros((2, 2)))) is means


def test_a_stratum_of_many_vectors_has_the_same_forms(monkeypatch):
    rng = np.random.default_rng(4)
    model = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b)", _table(rng))
    remainder = model.statistics.strata.remainder
    columns = GroupedColumns((rng.normal(size=(1, 9, 6_000)),), np.zeros((9, 9)))
    c = np.array([0.5, 1.5, 0.7])[: 1 + len(remainder.parents) + 1]
    found = NestedCovariance(remainder, columns).forms(c)
    monkeypatch.setattr("vcomp.estimators.likelihood.nested.fewer_vectors", lambda c: c.means[0])
    expected = NestedCovariance(remainder, columns).forms(c)
    for name in ("gram", "first", "second"):
        one, other = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-9)


def _table(rng):
    a, b = np.divmod(np.arange(60), 6)
    return pd.DataFrame({"a": a, "b": b, "y": rng.normal(size=60)})


def test_whitened_rows_have_the_products_of_the_inverse():
    rng = np.random.default_rng(5)
    A = rng.normal(size=(40, 6)) * np.logspace(-4, 4, 6)
    R = rng.normal(size=(3, 6)) * np.logspace(-4, 4, 6)
    white = Positive(A.T @ A).whitened(R)
    scale = np.logspace(-4, 4, 6)
    expected = (R / scale) @ np.linalg.inv((A / scale).T @ (A / scale)) @ (R / scale).T
    np.testing.assert_allclose(white @ white.T, expected, rtol=1e-11)


def test_congruent_is_the_product_of_three():
    rng = np.random.default_rng(6)
    T = np.eye(5)
    T[[0, 3]] = rng.normal(size=(2, 5))
    A = rng.normal(size=(4, 5, 5))
    np.testing.assert_allclose(congruent(T, A), T @ A @ T.T, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(congruent(np.eye(5), A), A)

"""Responses that are drawn for cells have the moments of responses that are drawn for rows."""

import numpy as np
import pandas as pd
import pytest

from tests.helpers.readings import accumulated, model_of
from vcomp.inference.resampling.draws import RowDraws

N_DRAWS = 1500


def made():
    rng = np.random.default_rng(7)
    n = 90
    a = rng.integers(0, 5, n)
    x, w = rng.normal(size=n), rng.uniform(0.5, 4.0, n)
    slopes = rng.normal(size=5)
    half = np.where(rng.random(n) < 0.5, "one", "two")
    y = rng.normal(size=5)[a] + slopes[a] * x + rng.normal(size=n)
    return pd.DataFrame({"y": y, "x": x, "w": w, "a": a, "half": half})


DATA = made()

CASES = [
    ("y ~ x + (x|a)", {}, [1.0, 0.5, 0.4, 2.0]),
    ("y ~ x + (x|a)", {"weights": "w", "residual": "half"}, [1.0, 0.5, -0.4, 2.0, 0.7]),
    ("y ~ x + (1|a)", {"residual": "half"}, [1.0, 2.0, 0.7]),
]


def dense(formula, options, v):
    """Return √W V √W of rows, and the columns [X Z] multiplied by √w."""
    w = DATA["w"].to_numpy() if "weights" in options else np.ones(len(DATA))
    x, levels = DATA["x"].to_numpy(), (DATA["a"].to_numpy()[:, None] == np.arange(5)).astype(float)
    columns = [np.ones(len(DATA))] + ([x] if "(x|a)" in formula else [])
    Z = [levels * c[:, None] for c in columns]
    q = len(Z)
    matrix = np.diag(v[:q])
    if q == 2:
        matrix[0, 1] = matrix[1, 0] = v[2]
    first = q * (q + 1) // 2
    of_group = (DATA["half"] == "two").to_numpy().astype(int) if "residual" in options else 0
    residual = np.asarray(v[first:])[of_group] / w
    V = np.diag(np.broadcast_to(residual, len(DATA)).astype(float))
    for i, j in np.ndindex(q, q):
        V += matrix[i, j] * Z[i] @ Z[j].T
    root = np.sqrt(w)
    B = np.column_stack([np.ones(len(DATA)), x - x.mean(), levels]) * root[:, None]
    return root[:, None] * V * root, B


@pytest.mark.parametrize(("formula", "options", "v"), CASES)
def test_moments_are_those_of_dense_matrices(formula, options, v):
    sums = accumulated(formula, DATA, **options)
    stats = sums.model().statistics
    assert stats.cells.response.size < len(DATA) / 4
    V, B = dense(formula, options, v)
    draws, found = RowDraws(stats), []
    root = np.sqrt(stats.mean_weight)
    for number in range(N_DRAWS):
        drawn = draws.draw(np.array(v), np.random.default_rng(number)).cross_products
        found.append([drawn.yy, *drawn.Xy, *(root * drawn.Zy[0])])
    found = np.array(found)
    # The mean of y'y is tr V, its variance 2 tr V²; X'y and Z'y have the covariance matrix B'VB.
    away = found[:, 0].mean() - np.trace(V)
    assert abs(away) < 4.0 * np.sqrt(2.0 * np.trace(V @ V) / N_DRAWS)
    expected, rest = B.T @ V @ B, found[:, 1:]
    products = rest.T @ rest / N_DRAWS
    scale = np.sqrt(np.diagonal(expected))
    # The variance of a mean of products of normal numbers is at most 2 σ²σ'² / n.
    assert (
        np.abs(products - expected) < 4.5 * np.outer(scale, scale) * np.sqrt(2 / N_DRAWS)
    ).all()
    yy = found[:, 0]
    assert yy.var() == pytest.approx(2.0 * np.trace(V @ V), rel=0.3)


def test_cells_of_one_score_have_no_squares_of_their_own():
    rows = DATA.assign(own=np.arange(len(DATA)))
    model = model_of("y ~ (x|a) + (0 + x|own)", rows, stream=True, weights="w")
    drawn = RowDraws(model.statistics).draw(
        np.array([1.0, 0.5, 0.3, 0.4, 2.0]), np.random.default_rng(5)
    )
    assert drawn.cells.products is None
    y, w = drawn.cells.y, drawn.cells.weights
    assert drawn.cross_products.yy == pytest.approx(float(w @ y**2), rel=1e-12)


def test_the_bootstrap_of_cells_has_the_spread_of_that_of_rows():
    kept, streamed = (
        model_of("y ~ x + (x|a)", DATA, stream=stream)
        .fit()
        .bootstrap(30, rng=3)
        .values.std(axis=0)
        for stream in (False, True)
    )
    np.testing.assert_allclose(streamed, kept, rtol=0.5)

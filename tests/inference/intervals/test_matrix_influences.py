"""Robust intervals of covariance matrices, residual groups and weights, against dense matrices."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2, f

import vcomp
from vcomp.inference.intervals.influences import _of_matrices

SINGLE = {
    "one-way": ("y ~ (1|s)", ["s"], {"s": 8, "k": 5}, 0.3),
    "s x t with holes": ("y ~ (1|s) + (1|t)", ["s", "t"], {"s": 7, "t": 9}, 0.2),
    "nested": ("y ~ (1|p) + (1|h/i)", ["p", "h", "hi"], {"p": 7, "h": 6, "i": 3}, 0.1),
    "covariate": (
        "y ~ x + (1|s) + (1|t) + (1|s:t)", ["s", "t", "st"], {"s": 7, "t": 6, "k": 3}, 0.2
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SINGLE)
def test_single_variances_are_matrices_of_one_effect(name):
    formula, terms, sizes, missing = SINGLE[name]
    rng = np.random.default_rng(3)
    grid = np.meshgrid(*(np.arange(n) for n in sizes.values()), indexing="ij")
    frame = pd.DataFrame({s: g.ravel() for s, g in zip(sizes, grid, strict=True)})
    y = rng.exponential(size=len(frame))
    for facets in map(list, terms):
        groups = frame.groupby(facets).ngroup().to_numpy()
        y += 4.0 * rng.exponential(size=groups.max() + 1)[groups]
    frame = frame.assign(y=y, x=rng.normal(size=len(frame)))
    res = vcomp.fit(formula, frame[rng.random(len(frame)) >= missing])
    assert (res.vcomp > 0.0).all()
    model, data = res._row_access.model, res._row_access.data
    values = res.vcomp.to_numpy()
    found = _of_matrices(model.design, model.statistics, data.total, values, None)
    expected = res._record.tables.levels
    assert found.sets == expected.sets
    np.testing.assert_array_equal(found.sizes, expected.sizes)
    unit = np.sqrt(np.diagonal(expected.information))
    np.testing.assert_allclose(found.information, expected.information, rtol=1e-9)
    scaled = [levels.shared / np.outer(unit, unit) for levels in (found, expected)]
    np.testing.assert_allclose(*scaled, rtol=0.0, atol=1e-11)


def _rows(seed=4, n=18, m=6):
    """Return rows of slopes whose numbers, weights and residual variances differ."""
    rng = np.random.default_rng(seed)
    g, t = (a.ravel() for a in np.indices((n, m)))
    x, w, r = rng.normal(1.0, 1.0, n * m), rng.uniform(0.5, 2.0, n * m), rng.integers(0, 2, n * m)
    u = rng.exponential(size=(n, 2)) @ np.array([[2.0, 0.0], [0.6, 1.5]]).T
    y = u[g, 0] + u[g, 1] * x + rng.exponential(size=n * m) * (1 + r) / np.sqrt(w)
    frame = pd.DataFrame({"y": y, "x": x, "z": rng.normal(size=n)[g], "g": g, "t": t})
    return frame.assign(w=w, r=r)[rng.random(n * m) < 0.85].reset_index(drop=True)


ROWS = _rows()
FORMULAS = ["y ~ x + z + (x|g)", "y ~ x + z + (x||g)", "y ~ x + z + (1|g)"]
OPTIONS = [{}, {"weights": "w"}, {"residual": "r"}, {"weights": "w", "residual": "r"}]


def _dense(res, options, rows=ROWS):
    """Return y, X, V and its derivatives by the components, in their order."""
    levels = rows["g"].to_numpy()[:, None] == np.unique(rows["g"])
    columns = {"g": levels * 1.0, "g[x]": levels * rows["x"].to_numpy()[:, None]}
    D = np.diag(1.0 / rows["w"]) if "weights" in options else np.eye(len(rows))
    derivatives = []
    for name in res.vcomp.index:
        if name in columns:
            derivatives.append(columns[name] @ columns[name].T)
        elif name.startswith("g["):
            half = columns["g"] @ columns["g[x]"].T
            derivatives.append(half + half.T)
        elif name == "Residual":
            derivatives.append(D)
        else:
            derivatives.append(D * (rows["r"].astype(str) == name[-2]).to_numpy()[:, None])
    V = np.tensordot(res.vcomp.to_numpy(), derivatives, 1)
    X = np.column_stack([np.ones(len(rows)), rows["x"], rows["z"]])
    return rows["y"].to_numpy(), X, V, np.array(derivatives)


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_fixed_effects_have_the_sandwich_of_dense_matrices(formula, options):
    res = vcomp.fit(formula, ROWS, **options)
    y, X, V, _ = _dense(res, options)
    W = np.linalg.solve(V, X)
    phi = np.linalg.inv(X.T @ W)
    e, meat = y - X @ phi @ W.T @ y, np.zeros_like(phi)
    for _, at in ROWS.groupby("g").indices.items():
        s = W[at].T @ e[at]
        meat += np.outer(s, s) + W[at].T @ X[at] @ phi @ X[at].T @ W[at]
    # Variances are at least 0.3 of the model's, in all directions.
    half = np.linalg.cholesky(phi)
    values, vectors = np.linalg.eigh(half.T @ meat @ half)
    root = half @ vectors * np.sqrt(np.maximum(values, 0.3))
    found = res.fixed_effects(cov_type="robust")
    expected = np.sqrt(np.square(root).sum(axis=1))
    np.testing.assert_allclose(found["std_error"], expected, rtol=1e-10)
    np.testing.assert_allclose(found["df"], ROWS["g"].nunique() - 1.0, rtol=1e-12)


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_one_grouping_factor_has_the_sandwich_of_dense_matrices(formula, options):
    """The scores of groups are those of u_h u_h' and of the squares, less their expectations."""
    res = vcomp.fit(formula, ROWS, **options)
    y, X, V, derivatives = _dense(res, options)
    W = np.linalg.inv(V)
    P = W - W @ X @ np.linalg.solve(X.T @ W @ X, X.T @ W)
    r, n, p = P @ y, *X.shape
    names, v = list(res.vcomp.index), res.vcomp.to_numpy()
    left = 1.0 - p / n - _taken(res, options, P, n)
    scores = []
    for at in ROWS.groupby("g").indices.values():
        inside = np.zeros(n)
        inside[at] = 1.0
        square, expected = np.empty(len(v)), np.empty(len(v))
        for k, D in enumerate(derivatives):
            own = D * inside[:, None]
            square[k] = r @ own @ r
            expected[k] = (P * own.T).sum()
        for k, name in enumerate(names):
            if name.startswith("Residual"):
                of_group = np.diagonal(derivatives[k]) > 0.0
                own = inside * of_group
                total = r @ derivatives[k] @ r
                square[k] = r * own @ derivatives[k] @ r
                expected[k] = total / (of_group @ left) * (own @ left)
        scores.append(0.5 * (square - expected))
    scores = np.array(scores)
    levels = res._record.tables.levels
    unit = np.sqrt(np.diagonal(levels.information))
    found = levels.shared.sum(axis=0) / np.outer(unit, unit)
    expected = scores.T @ scores / np.outer(unit, unit)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-8)
    information = np.empty((len(v), len(v)))
    products = [P @ D for D in derivatives]
    for i, j in combinations_with_replacement(range(len(v)), 2):
        both = (products[i] * products[j].T).sum()
        information[i, j] = information[j, i] = 0.5 * both
    np.testing.assert_allclose(levels.information, information, rtol=1e-8)


def _taken(res, options, P, n):
    """Return what the effects of the levels take of the expected square of each residual.

    It is tr(Λ Z_h'PZ_h) in a level, to which a row belongs by its weight in the least squares of
    its level.
    """
    names = [name for name in ("g", "g[x]") if name in res.vcomp.index]
    z = np.column_stack([np.ones(n), ROWS["x"]])[:, : len(names)]
    Lambda = np.diag(res.vcomp[names].to_numpy())
    if "g[(Intercept),x]" in res.vcomp.index:
        Lambda[0, 1] = Lambda[1, 0] = res.vcomp["g[(Intercept),x]"]
    weight = ROWS["w"].to_numpy() if "weights" in options else np.ones(n)
    of_row = [res.vcomp.get(f"Residual[r={k}]", res.vcomp.iloc[-1]) for k in ROWS["r"]]
    precision, taken = weight / np.array(of_row), np.empty(n)
    for at in ROWS.groupby("g").indices.values():
        E = z[at].T @ P[np.ix_(at, at)] @ z[at]
        G = (z[at].T * precision[at]) @ z[at]
        to_rows = Lambda @ E @ np.linalg.pinv(G)
        taken[at] = precision[at] * np.einsum("ij,jk,ik->i", z[at], to_rows, z[at])
    return taken


@pytest.mark.parametrize("formula", [FORMULAS[0], "y ~ x + (x|g) + (1|t)", "y ~ (x||g) + (1|g:r)"])
def test_units_and_order_do_not_matter(formula):
    res = vcomp.fit(formula, ROWS)
    other = ROWS.assign(y=10.0 * ROWS["y"] + 3.0, x=4.0 * ROWS["x"])
    other = other.sample(frac=1.0, random_state=2)
    units = [
        100.0 / 4.0 ** (name.startswith("g[x") * 2 or name.count(",x")) for name in res.vcomp.index
    ]
    again = vcomp.fit(formula, other).conf_int(interval="robust").tail(len(units))
    expected = res.conf_int(interval="robust").tail(len(units)).mul(units, axis=0)
    np.testing.assert_allclose(again, expected, rtol=1e-5)


def test_covariances_of_balanced_data_are_differences_of_independent_mean_squares():
    """With u_a/s_a ± u_b/s_b on n − 1 degrees of freedom each (Ting et al. 1990)."""
    rng = np.random.default_rng(8)
    n, m = 15, 6
    g, x = np.repeat(np.arange(n), m), np.tile(np.arange(m) - 2.5, n)
    u = rng.multivariate_normal([0.0, 0.0], [[4.0, 1.5], [1.5, 2.0]], size=n)
    frame = pd.DataFrame({"g": g, "x": x, "y": u[g, 0] + u[g, 1] * x + rng.normal(size=n * m)})
    res = vcomp.fit("y ~ x + (x|g)", frame)
    z = np.column_stack([np.ones(m), x[:m]])
    b = np.linalg.lstsq(z, frame["y"].to_numpy().reshape(n, m).T, rcond=None)[0]
    S = np.cov(b)
    s = np.sqrt(np.diagonal(S))
    plus, minus = (np.var(b[0] / s[0] + sign * b[1] / s[1], ddof=1) for sign in (1.0, -1.0))
    assert res.vcomp["g[(Intercept),x]"] == pytest.approx(S[0, 1], rel=1e-6)
    for alpha in (0.05, 0.2):
        half, nu = alpha / 2.0, n - 1
        G, H = 1.0 - nu / chi2.isf(half, nu), nu / chi2.ppf(half, nu) - 1.0
        F = f.isf(half, nu, nu)
        both = ((F - 1.0) ** 2 - (G * F) ** 2 - H**2) / F
        low, high = (
            sign * (a - c) - np.sqrt((G * a) ** 2 + (H * c) ** 2 + both * a * c)
            for sign, a, c in ((1.0, plus, minus), (1.0, minus, plus))
        )
        limits = s.prod() / 4.0 * np.array([low, -high])
        found = res.conf_int(alpha=alpha, interval="mls").loc["cov(g[(Intercept),x])"]
        np.testing.assert_allclose(found, limits, rtol=1e-5)

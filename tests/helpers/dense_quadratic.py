"""Quadratic estimators written out with n × n matrices, and designs to compare them on."""

from __future__ import annotations

import numpy as np
import pandas as pd

import vcomp
from tests.helpers.designs import DESIGNS, unbalanced

FIXED = ("1", "x + C(g)", "0 + C(g)", "0")
NAMES = sorted(DESIGNS)


def model_of(name, fixed="1", seed=3):
    """Return the model of an unbalanced design with a covariate far from zero and a factor."""
    formula, data = unbalanced(name, seed)
    rng = np.random.default_rng(seed)
    data = data.assign(x=rng.normal(size=len(data)) + 1e3, g=rng.integers(0, 3, len(data)))
    return vcomp.VarianceComponentsModel(formula.replace("~", f"~ {fixed} +"), data)


def two_parts():
    """Return crossed data that fall into two parts which share no level."""
    rng = np.random.default_rng(5)
    grid = [(a, b) for a in range(9) for b in range(8) if (a < 4) == (b < 3)]
    data = pd.DataFrame(grid, columns=["a", "b"])
    data = data[rng.random(len(data)) < 0.9]
    y = rng.normal(size=9)[data["a"]] + rng.normal(size=8)[data["b"]]
    return data.assign(y=y + rng.normal(size=len(data)))


def incidences(model):
    """Return Z of every term."""
    return [
        np.eye(s)[c]
        for c, s in zip(model.statistics.rows.codes, model.statistics.rows.sizes, strict=True)
    ]


def covariance_matrix(model, v):
    """Return V."""
    V = v[-1] * np.eye(model.nobs)
    return V + sum(s * Z @ Z.T for s, Z in zip(v[:-1], incidences(model), strict=True))


def projector(columns):
    """Return the projector on the columns and its rank, from a singular value decomposition."""
    if columns.shape[1] == 0:
        return np.zeros((columns.shape[0],) * 2), 0
    # Without a common scale a covariate would decide what counts as zero.
    columns = columns / np.linalg.norm(columns, axis=0)
    U, s, _ = np.linalg.svd(columns, full_matrices=False)
    U = U[:, s > 1e-7]
    return U @ U.T, U.shape[1]


def basis_of_fixed(model):
    """Return an orthonormal basis of X, whose columns may lie far from zero."""
    X = model.exog
    M, _ = projector(X)
    ones = np.ones((len(X), 1))
    if X.shape[1] and np.allclose(M @ ones, ones):
        centred = X - X.mean(axis=0)
        kept = centred[:, np.linalg.norm(centred, axis=0) > 1e-9]
        X = np.column_stack([ones, kept])
    if not X.shape[1]:
        return X
    U, s, _ = np.linalg.svd(X / np.linalg.norm(X, axis=0), full_matrices=False)
    return U[:, s > 1e-7]


class DenseReductions:
    """Sums of squares y'A y of terms adjusted for others, with A as n × n matrices.

    Parameters
    ----------
    model : formula and data
    others : for each term the positions of those that it is adjusted for
    """

    def __init__(self, model, others):
        Z, X, y = incidences(model), basis_of_fixed(model), model.endog
        k, n = len(Z), model.nobs
        spaces = [[projector(np.column_stack([X, *(Z[u] for u in both)]))
                   for both in (list(o), [*o, t])] for t, o in enumerate(others)]  # fmt: skip
        full, rank = projector(np.column_stack([X, *Z]))
        self.A = [big[0] - small[0] for small, big in spaces] + [np.eye(n) - full]
        self.df = np.array([big[1] - small[1] for small, big in spaces] + [n - rank])
        self.sum_sq = np.array([y @ A @ y for A in self.A])
        self.coefficients = np.array(
            [[*(np.sum((A @ Z[u]) * Z[u]) for u in range(k)), d]
             for A, d in zip(self.A, self.df, strict=True)]
        )  # fmt: skip
        self.estimates = np.linalg.solve(self.coefficients, self.sum_sq)
        self.covariance = self._covariance(covariance_matrix(model, self.estimates))
        self.expected = self.coefficients / self.df[:, None]

    def _covariance(self, V):
        AV = [A @ V for A in self.A]
        quadratic = 2.0 * np.array([[np.sum(a * b.T) for b in AV] for a in AV])
        inverse = np.linalg.inv(self.coefficients)
        return inverse @ quadratic @ inverse.T


def assert_covariance(actual, expected, atol):
    """Compare two covariance matrices on the scale of their standard errors."""
    scale = np.sqrt(np.diagonal(expected))
    np.testing.assert_allclose(
        np.asarray(actual) / np.outer(scale, scale),
        expected / np.outer(scale, scale),
        atol=atol,
        rtol=0,
    )


def generalised_least_squares(model, v):
    """Return fixed effects and their covariance at components.

    Negative ones are zero where they make no covariance matrix.
    """
    V = covariance_matrix(model, np.asarray(v))
    if np.linalg.eigvalsh(V)[0] <= 0.0:
        V = covariance_matrix(model, np.maximum(v, 0.0))
    ViX = np.linalg.solve(V, model.exog)
    information = model.exog.T @ ViX
    return np.linalg.solve(information, ViX.T @ model.endog), np.linalg.inv(information)


def eliminated(rows):
    """Return [I | A⁻¹B] for the rows of [A | B], by Gauss and Jordan without pivoting."""
    rows, n = list(rows), len(rows)
    for i in range(n):
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(n):
            if j != i and rows[j][i]:
                factor = rows[j][i]
                rows[j] = [x - factor * z for x, z in zip(rows[j], rows[i], strict=True)]
    return rows

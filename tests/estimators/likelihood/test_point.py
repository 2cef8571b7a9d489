"""Blocks of slopes, row weights and residual groups against matrices of rows by rows.

The textbook is written out in extended precision: V = Σ_ab Λ_ab Z_a Z_b' + diag(σ²_r/w).
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.estimators.likelihood.test_conformance import (
    EXTENDED,
    blocked,
    extremes,
    inverted,
    model_of,
    textbook,
)
from vcomp.estimators.likelihood.equations import BlockSums, Equations
from vcomp.estimators.likelihood.point import Point
from vcomp.statistics import CrossProducts
from vcomp.statistics.roll_up import PairTable


class Rows:
    """Rows with terms of several columns, and their sums."""

    def __init__(self, n, terms, p, weights=None, groups=1, seed=0):
        rng = np.random.default_rng(seed)
        self.weights = np.ones(n) if weights is None else rng.uniform(0.5, 3.0, n)
        self.group = rng.integers(0, groups, n)
        self.X = np.column_stack([np.ones(n), rng.normal(size=(n, 3))])[:, :p]
        self.Z, self.terms, x = [], [], rng.normal(size=n)
        y = self.X.sum(axis=1) + rng.normal(size=n) / np.sqrt(self.weights)
        for levels, q in terms:
            codes = np.concatenate([np.arange(levels), rng.integers(0, levels, n - levels)])
            columns = [np.ones(n), x, rng.normal(size=n)][:q]
            own = [np.eye(levels)[codes] * column[:, None] for column in columns]
            self.terms.append(tuple(range(len(self.Z), len(self.Z) + q)))
            self.Z += own
            y += sum(z @ rng.normal(size=levels) for z in own)
        self.y = y

    def sums(self):
        groups = []
        for r in range(self.group.max() + 1):
            at = self.group == r
            w, X, y, Z = self.weights[at], self.X[at], self.y[at], [z[at] for z in self.Z]
            pairs = {
                (a, b): PairTable.from_matrix(csr_array((Z[a].T * w) @ Z[b]))
                for b in range(len(Z))
                for a in range(b)
            }
            groups.append(
                CrossProducts(
                    n=int(at.sum()),
                    group_n=tuple(np.square(z).T @ w for z in Z),
                    pairs=pairs,
                    Zy=tuple(z.T @ (w * y) for z in Z),
                    ZX=tuple((z.T * w) @ X for z in Z),
                    XX=(X.T * w) @ X,
                    Xy=X.T @ (w * y),
                    yy=float(w @ y**2),
                )
            )
        return BlockSums(tuple(groups), tuple(self.terms), float(np.log(self.weights).sum()))

    def textbook(self, residuals, matrices, *, reml):
        """Return what a point gives, by formulas of dense matrices."""
        X, y = self.X.astype(EXTENDED), self.y.astype(EXTENDED)
        Z, n = [z.astype(EXTENDED) for z in self.Z], self.y.size
        K = [
            np.diag((self.group == r) / self.weights.astype(EXTENDED))
            for r in range(len(residuals))
        ]
        theta = [*residuals]
        for columns, L in zip(self.terms, matrices, strict=True):
            for a, b in combinations_with_replacement(range(len(columns)), 2):
                both = Z[columns[a]] @ Z[columns[b]].T
                K.append(both if a == b else both + both.T)
                theta.append(L[a, b])
        W, log_det = inverted(sum(EXTENDED(s) * k for s, k in zip(theta, K, strict=True)))
        cov, log_det_X = inverted(X.T @ W @ X)
        P = W - W @ X @ cov @ X.T @ W
        Py, Q = P @ y, P if reml else W
        moved, QK = np.column_stack([k @ Py for k in K]), [Q @ k for k in K]
        deviance = log_det + y @ Py + n * np.log(2.0 * np.pi)
        if reml:
            deviance += log_det_X - X.shape[1] * np.log(2.0 * np.pi)
        found = {
            "loglike": -0.5 * deviance,
            "score": [0.5 * (Py @ k @ Py - np.trace(q)) for k, q in zip(K, QK, strict=True)],
            "average": 0.5 * moved.T @ P @ moved,
            "expected": 0.5 * np.array([[np.sum(a * b.T) for b in QK] for a in QK]),
            "beta": cov @ (X.T @ (W @ y)),
            "cov_beta": cov,
            "first forms": np.array([X.T @ W @ k @ W @ X for k in K]),
        }
        for t, (columns, L) in enumerate(zip(self.terms, matrices, strict=True)):
            ZPZ = np.array([[np.diagonal(Z[a].T @ P @ Z[b]) for b in columns] for a in columns])
            projected = np.column_stack([Z[a].T @ Py for a in columns])
            found[f"effects {t}"] = projected @ L
            found[f"covariances {t}"] = L - np.einsum("ab,bci,cd->iad", L, ZPZ, L)
        return found


def given_by(point, reml):
    beta, cov_beta = point.fixed_effects()
    found = {
        "loglike": point.loglike(with_fixed=reml),
        "score": point.score(with_fixed=reml),
        "average": point.average(),
        "expected": point.expected(with_fixed=reml),
        "beta": beta,
        "cov_beta": cov_beta,
        "first forms": point.fixed_forms(),
    }
    for t in range(len(point.equations.sums.terms)):
        found[f"effects {t}"] = point.effects(t)
        found[f"covariances {t}"] = point.prediction_covariances(point.equations.positions(t))
    return found


def covariance(q, seed=0):
    half = np.random.default_rng(seed).normal(size=(q, q))
    return half @ half.T + 0.3 * np.eye(q)


def compare(rows, residuals, matrices, reml, rtol=1e-10, without=()):
    wanted = rows.textbook(residuals, matrices, reml=reml)
    found = given_by(Point(Equations(rows.sums()), residuals, matrices), reml)
    assert found.keys() == wanted.keys()
    for what in wanted.keys() - set(without):
        value = np.asarray(wanted[what], dtype=float)
        atol = rtol * np.abs(value).max(initial=1e-300)
        np.testing.assert_allclose(found[what], value, rtol=0.0, atol=atol, err_msg=what)


CASES = {
    "correlated slopes": Rows(40, [(8, 2)], 2),
    "intercepts, as elsewhere": Rows(40, [(8, 1), (5, 1)], 2),
    "crossed, slopes of both": Rows(50, [(9, 2), (6, 3)], 2),
    "no fixed part": Rows(40, [(8, 2), (4, 1)], 0),
    "row weights": Rows(45, [(7, 2), (5, 1)], 3, weights=True),
    "residual groups": Rows(50, [(6, 2), (7, 1)], 2, groups=3),
    "all of them": Rows(60, [(5, 1), (9, 2), (4, 2)], 4, weights=True, groups=2),
}


@pytest.mark.parametrize("reml", [True, False], ids=["reml", "ml"])
@pytest.mark.parametrize("name", CASES)
def test_blocks_give_what_the_textbook_has(name, reml):
    rows = CASES[name]
    matrices = [covariance(len(columns), 7) for columns in rows.terms]
    compare(rows, 0.4 + 0.5 * np.arange(rows.group.max() + 1.0), matrices, reml)


@pytest.mark.parametrize("reml", [True, False], ids=["reml", "ml"])
@pytest.mark.parametrize("name", CASES)
def test_a_small_residual_keeps_its_digits(name, reml):
    """Informations and forms of X too, which the differences of eq. (5.9) lose."""
    rows = CASES[name]
    matrices, groups = [covariance(len(c), 7) for c in rows.terms], rows.group.max() + 1
    # Of several groups the expected information cancels where effects are nearly confounded.
    without = ["expected"] if groups > 1 else []
    compare(rows, 1e-6 * (1.0 + np.arange(groups)), matrices, reml, 1e-8, without)


@pytest.mark.parametrize("ratio", [1e4, 1e6])
@pytest.mark.parametrize("groups", [1, 2])
def test_informations_keep_digits_at_large_ratios(groups, ratio):
    """On a unit diagonal, and so do standard errors; elements of 1e-8 there keep none."""
    rtol = 150 * np.finfo(float).eps * ratio  # of sums of 150 rows, in units of the residual
    rows = Rows(150, [(12, 2), (8, 2)], 2, groups=groups, seed=3)
    rng, matrices = np.random.default_rng(4), [covariance(2, 7), covariance(2, 8)]
    residuals = (1.0 + np.arange(groups)) / ratio
    rows.y = rows.X.sum(axis=1) + np.sqrt(residuals[rows.group]) * rng.normal(size=150)
    for columns, L in zip(rows.terms, matrices, strict=True):
        u = rng.normal(size=(rows.Z[columns[0]].shape[1], 2)) @ np.linalg.cholesky(L).T
        rows.y += sum(rows.Z[c] @ own for c, own in zip(columns, u.T, strict=True))
    wanted = rows.textbook(residuals, matrices, reml=True)
    point = Point(Equations(rows.sums()), residuals, matrices)
    expected = wanted["expected"].astype(float)
    observed = (2.0 * wanted["average"] - wanted["expected"]).astype(float)
    size = np.sqrt(np.outer(np.diagonal(expected), np.diagonal(expected)))
    found = 2.0 * point.average() - point.expected(with_fixed=True)
    np.testing.assert_allclose(
        point.expected(with_fixed=True) / size, expected / size, rtol=0.0, atol=rtol
    )
    np.testing.assert_allclose(found / size, observed / size, rtol=0.0, atol=rtol)
    errors, own = (np.diagonal(np.linalg.inv(A / size)) for A in (observed, found))
    np.testing.assert_allclose(own, errors, rtol=10.0 * rtol)


@pytest.mark.parametrize("name", ["half missing", "sparse, three facets", "far covariate"])
def test_forms_of_the_fixed_part_keep_digits_next_to_a_small_residual(name):
    """Of each component, the residual's too, of which eq. (5.9) keeps one digit or none."""
    model = model_of(name)
    for v in extremes(len(model.component_names)):
        wanted = textbook(name, tuple(v.tolist()), True)["first forms"].astype(float)
        found = blocked(model.statistics, True).fixed_forms(v).first
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=0.0, atol=5e-4 * np.abs(other).max())

"""Degrees of freedom next to a small residual, against arithmetic with 50 digits."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.crossed import CrossedLikelihood
from vcomp.estimators.likelihood.incomplete import CompletedLikelihood
from vcomp.estimators.likelihood.iterative import IterativeLikelihood
from vcomp.estimators.likelihood.levels import LevelsLikelihood
from vcomp.estimators.likelihood.strata_likelihood import StrataLikelihood


def decimal(matrix):
    return np.array([[Decimal(float(x)) for x in row] for row in matrix], dtype=object)


def solved(A, B):
    """Return A⁻¹B of a positive definite matrix by Gaussian elimination."""
    A, B = A.copy(), B.copy()
    for k in range(len(A)):
        for i in range(k + 1, len(A)):
            factor = A[i, k] / A[k, k]
            A[i, k:] -= factor * A[k, k:]
            B[i] -= factor * B[k]
    for k in reversed(range(len(A))):
        B[k] = (B[k] - A[k, k + 1 :] @ B[k + 1 :]) / A[k, k]
    return B


def satterthwaite(cov, slopes, information):
    """Return the degrees of freedom 2Φ²/Var(Φ̂) of each coefficient."""
    unit = 1.0 / np.sqrt(np.diagonal(information))
    scale = np.outer(unit, unit)
    of_components = scale * np.linalg.inv(scale * information)
    gradient = np.diagonal(slopes, axis1=1, axis2=2)
    variance = np.einsum("tp,tu,up->p", gradient, of_components, gradient)
    return 2.0 * np.square(np.diagonal(cov)) / variance


def exact(model, v):
    """Return the degrees of freedom from dense matrices, and the expected information."""
    rows = model.statistics.rows
    with localcontext() as context:
        context.prec = 50
        same = [decimal(codes[:, None] == codes) for codes in rows.codes]
        parts = [*same, decimal(np.eye(rows.n))]
        V = sum(Decimal(float(u)) * part for u, part in zip(v, parts, strict=True))
        X, inverse = decimal(rows.X), solved(V, decimal(np.eye(rows.n)))
        W = inverse @ X
        cov = solved(X.T @ W, decimal(np.eye(X.shape[1])))
        P = inverse - W @ cov @ W.T
        PV = [P @ part for part in parts]
        information = [[(a * b.T).sum() / 2 for b in PV] for a in PV]
        slopes = [cov @ (W.T @ part @ W) @ cov for part in parts]
        found = (np.array(x, dtype=float) for x in (cov, slopes, information))
    cov, slopes, information = found
    return satterthwaite(cov, slopes, information), information


def frame(kept, **sizes):
    """Return rows with a covariate of rows, and one of the levels of the first facet."""
    rng = np.random.default_rng(5)
    grid = np.meshgrid(*(np.arange(n) for n in sizes.values()), indexing="ij")
    data = pd.DataFrame({f: g.ravel() for f, g in zip(sizes, grid, strict=True)})
    data["x"], data["y"] = rng.normal(size=(2, len(data)))
    data["w"] = rng.normal(size=sizes["a"])[data["a"]]
    return data.loc[np.sort(rng.permutation(len(data))[: round(kept * len(data))])]


TWO, THREE = "y ~ x + w + (1|a) + (1|b)", "y ~ x + w + (1|a) + (1|b) + (1|a:b)"
CASES = {
    "complete": (TWO, frame(1.0, a=6, b=5)),
    "holes": (TWO, frame(0.8, a=7, b=6)),
    "two scores a cell": (THREE, frame(0.8, a=5, b=4, c=2)),
}


@pytest.mark.parametrize("case", CASES)
def test_degrees_of_freedom_keep_digits_next_to_a_small_residual(case):
    """The forms of the residual lose theirs, but their share of the variance of Φ̂ is as small."""
    model = vcomp.VarianceComponentsModel(*CASES[case])
    stats = model.statistics
    v = np.array([*(1.0, 0.5, 0.7)[: stats.n_terms], 1e-6])
    expected, information = exact(model, v)
    engines = [BlockedLikelihood(stats.cross_products, reml=True)]
    engines.append(IterativeLikelihood(stats.cross_products, reml=True))
    if stats.levels is not None:
        engines.append(LevelsLikelihood(stats.levels, reml=True))
    if stats.strata is not None:
        engines.append(StrataLikelihood(stats.strata, reml=True))
    if stats.crossed is not None:
        engines.append(CrossedLikelihood(stats.crossed, reml=True))
    if stats.completed is not None:
        engines.append(CompletedLikelihood(stats.cross_products, stats.completed, reml=True))
    assert len(engines) >= 3
    for engine in engines:
        forms = engine.fixed_forms(v)
        found = satterthwaite(forms.cov_beta, forms.slopes, information)
        np.testing.assert_allclose(found, expected, rtol=1e-7, err_msg=type(engine).__name__)

"""lme4's profiled deviance, evaluated literally at the estimates of vcomp.

Bates, Mächler, Bolker and Walker (2015), Fitting linear mixed-effects models using lme4, Journal
of Statistical Software 67(1), section 3, eqs. (33) to (41), with dense matrices.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import cholesky, solve_triangular

from tests.reference.test_slopes import STORED, fit_of

SMALL = (
    "sleepstudy", "sleepstudy_uncorrelated", "sleepstudy_no_intercept", "orthodont",
    "orthodont_sex", "machines", "machines_no_intercept", "gun", "cake", "cake_nested", "oats",
    "pixel", "oxboys", "oxboys_quadratic", "chickweight", "chickweight_diet", "bodyweight",
    "glucose", "arabidopsis", "ovary", "dialyzer", "wafer", "igf", "rat_pups", "sitka", "soybean",
)  # fmt: skip
"""Tables of which dense matrices are small."""


def relative_factor(matrix, residual):
    """Return Λ with ΛΛ' the covariance matrix in units of the residual variance."""
    values, vectors = np.linalg.eigh(matrix / residual)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def random_effects(res):
    """Return ZΛ of all effects, a block for each bar."""
    model, v = res.model, res.vcomp.to_numpy()
    chunk, blocks = model.statistics.cells, model.design.blocks
    columns = blocks.values(model.rows.fixed, res.nobs, centred=False)
    found = []
    for term, matrix in zip(blocks.terms, blocks.matrices, strict=True):
        z = np.column_stack(
            [np.ones(res.nobs) if columns[t] is None else columns[t] for t in term]
        )
        z = z @ relative_factor(v[np.array(matrix.places)], v[-1])
        levels = chunk.codes[term[0]][:, None] == np.arange(chunk.sizes[term[0]])
        found += [levels * column[:, None] for column in z.T]
    return np.concatenate(found, axis=1)


def profiled_deviance(ZL, X, y, *, reml):
    """Return −2 log-likelihood, maximised over β and σ² at the relative factor."""
    n, p = X.shape
    # LL' = Λ'Z'ZΛ + I, with the border of the fixed effects
    L = cholesky(ZL.T @ ZL + np.eye(ZL.shape[1]), lower=True)
    R_zx = solve_triangular(L, ZL.T @ X, lower=True)
    R_x = cholesky(X.T @ X - R_zx.T @ R_zx)
    c_u = solve_triangular(L, ZL.T @ y, lower=True)
    beta = solve_triangular(R_x, solve_triangular(R_x.T, X.T @ y - R_zx.T @ c_u, lower=True))
    u = solve_triangular(L.T, c_u - R_zx @ beta)
    # The penalised residual sum of squares
    rss = np.square(y - X @ beta - ZL @ u).sum() + np.square(u).sum()
    log_L, log_R = (2.0 * np.log(np.diagonal(F)).sum() for F in (L, R_x))
    if reml:
        return log_L + log_R + (n - p) * (1.0 + np.log(2.0 * np.pi * rss / (n - p)))
    return log_L + n * (1.0 + np.log(2.0 * np.pi * rss / n))


@pytest.mark.parametrize("method", ["REML", "ML"])
@pytest.mark.parametrize("name", SMALL)
def test_lme4s_deviance_is_not_lower_at_its_own_optimum(name, method):
    res = fit_of(name, method.lower())
    ZL = random_effects(res)
    deviance = profiled_deviance(ZL, res.model.exog, res.model.endog, reml=method == "REML")
    lme4 = -2.0 * STORED[name][method]["loglike"]
    assert deviance <= lme4 + 1e-8 * abs(lme4)
    assert -0.5 * deviance == pytest.approx(res.llf, rel=1e-9)

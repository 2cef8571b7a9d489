"""Fits with hardly any residual and effects that are multiples of each other."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.estimators.likelihood import MatricesLikelihood
from vcomp.estimators.likelihood.cone import ConeSearch

LEVELS = np.array([-1.2, -0.3, 0.4, 0.9, 1.7])


def scores(residual, unit_of_x, unit_of_y, seed=2):
    """Return rows of effects a and 2a, with a residual that is a share of the variance."""
    rng = np.random.default_rng(seed)
    g, x = np.repeat(np.arange(5), 8), np.tile(np.linspace(0.0, 1.0, 8), 5)
    y = 3.0 + LEVELS[g] * (1.0 + 2.0 * x)
    y = y / y.std() + np.sqrt(residual) * rng.standard_normal(y.size)
    return pd.DataFrame({"g": g, "x": unit_of_x * x, "y": unit_of_y * y})


class Dense:
    """The restricted likelihood from matrices of rows, in extended precision."""

    def __init__(self, frame):
        self.y = frame["y"].to_numpy(np.longdouble)
        one = np.ones(len(frame), np.longdouble)
        self.z = np.column_stack([one, frame["x"].to_numpy(np.longdouble)])
        self.same = frame["g"].to_numpy()[:, None] == frame["g"].to_numpy()

    def loglike(self, matrix, residual):
        V = self.same * (self.z @ matrix @ self.z.T) + residual * np.eye(self.y.size)
        whole, log_det = np.column_stack([self.z, self.y]), np.longdouble(0.0)
        # Forms in V⁻¹, then the rest of y by X, by Cholesky's elimination.
        for M, p in ((V, V.shape[0]), (None, 2)):
            M = whole.T @ whole if M is None else M
            L = np.linalg.cholesky(M.astype(float)) * np.longdouble(0.0)
            for j in range(p):
                L[j, j] = np.sqrt(M[j, j] - L[j, :j] @ L[j, :j])
                L[j + 1 :, j] = (M[j + 1 :, j] - L[j + 1 :, :j] @ L[j, :j]) / L[j, j]
                log_det += 2.0 * np.log(L[j, j])
                if p > 2:
                    whole[j] = (whole[j] - L[j, :j] @ whole[:j]) / L[j, j]
        form = M[2, 2] - L[2, :2] @ L[2, :2]
        n = self.y.size - 2
        return float(-0.5 * (log_det + form + n * np.log(2.0 * np.pi)))


RESIDUALS = (1e-2, 1e-4, 1e-6, 1e-7, 1e-8)
UNITS = ((1.0, 1.0), (1e-6, 1.0), (1e6, 1.0), (1.0, 1e-6), (1.0, 1e6))
CASES = [
    (r, UNITS[(i + j) % 5], 2 + j) for i, r in enumerate(RESIDUALS) for j in range(1 + (r < 1e-6))
]


@pytest.mark.parametrize(("residual", "units", "seed"), CASES)
def test_the_likelihood_is_not_higher_nearby(residual, units, seed):
    frame = scores(residual, *units, seed)
    res = vcomp.VarianceComponentsModel("y ~ x + (x|g)", frame).fit()
    assert res.converged
    v, dense = res.vcomp, Dense(frame)
    x = float(np.abs(frame["x"]).max())
    covariance = v["g[(Intercept),x]"] * x
    matrix = np.array([[v["g"], covariance], [covariance, v["g[x]"] * x**2]])
    values, U = np.linalg.eigh(matrix)
    back = U / np.array([[1.0], [x]])
    error = v["Residual"] / 8.0
    lengths = np.sqrt(np.maximum(values, 0.0)).astype(np.longdouble)

    def at(L, share=1.0):
        L = back.astype(np.longdouble) @ L
        return dense.loglike(L @ L.T, np.longdouble(v["Residual"]) * np.longdouble(share))

    here = np.diag(lengths)
    assert res.llf == pytest.approx(at(here), abs=1e-5)
    moves = [at(here, 1.0 + d) for d in (-0.1, -1e-3, 1e-3, 0.1)]
    small, large = np.sqrt(error), float(lengths[1])
    for d in (-0.3, -0.01, 0.01, 0.3):
        for i, j, unit in ((0, 0, small), (0, 1, small), (1, 1, large)):
            moved = here.copy()
            moved[i, j] += d * unit
            moves.append(at(moved))
    assert max(moves) <= res.llf + 1e-5
    assert min(moves) < res.llf - 1e-3


START = np.array([0.25 * np.eye(2), np.diag([0.5, 0.0])])


@cache
def maximum_of(residual):
    statistics = vcomp.VarianceComponentsModel("y ~ x + (x|g)", scores(residual, 1, 1)).statistics
    likelihood = MatricesLikelihood(statistics, reml=True)
    return likelihood, *likelihood.maximum(START, 200, 1e-9)


@pytest.mark.parametrize("residual", [1e-4, 1e-8])
def test_the_certificate_refuses_points_nearby(residual):
    raw, likelihood, end = maximum_of(residual)
    assert end.converged
    assert end.ranks == (1, 1)
    search = ConeSearch(likelihood)
    own = search.start(end.S)
    assert max(own.decrement, own.violation) <= 1e-4
    # The larger direction, one with the variance of an error, and the residual.
    _, U = np.linalg.eigh(end.S[0])
    for change in (U[:, 1:] @ U[:, 1:].T, U[:, :1] @ U[:, :1].T, None):
        for size in (1e-3, 0.1):
            S = end.S.copy()
            if change is None:
                S[1] *= 1.0 + size
            else:
                S[0] += size * change
            place = search.start(S)
            assert max(place.decrement, place.violation) > 1e-4
    assert not raw.maximum(START, 1, 1e-9)[1].converged


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_other_terms_and_three_effects(method):
    rng = np.random.default_rng(7)
    g, h = (codes.ravel() for codes in np.indices((9, 6)))
    g, h = np.tile(g, 2), np.tile(h, 2)
    x, z = rng.normal(size=(2, g.size))
    u, w = rng.normal(size=9)[g], rng.normal(size=6)[h]
    y = u * (1.0 - 0.7 * x + 0.2 * z) + w + 1e-4 * rng.normal(size=g.size)
    frame = pd.DataFrame({"y": y, "g": g, "h": h, "x": x, "z": z})
    res = vcomp.VarianceComponentsModel("y ~ x + z + (x + z|g) + (1|h)", frame).fit(method)
    assert res.converged
    assert "g is singular" in res.status
    v = res.vcomp
    assert v["g[(Intercept),x]"] == pytest.approx(-0.7 * v["g"], rel=1e-3)
    assert v["Residual"] == pytest.approx(1e-8, rel=0.2)

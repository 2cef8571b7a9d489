"""Spaces of terms, and MINQUE's equations, against projectors of n × n matrices."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.dense_likelihood import DenseLikelihood
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.quadratic.spaces import (
    EngineForms,
    PriorForms,
    Space,
    SpaceContrasts,
    finest_terms,
)


def frame(n=60):
    """Return rows of unequally large groups: b has more than a, c is within a."""
    rng = np.random.default_rng(12)
    a = rng.integers(0, 5, n)
    b = rng.integers(0, 9, n)
    b[:20] = a[:20]
    c = 4 * a + rng.integers(0, 4, n)
    y = 2.0 + 3.0 * rng.normal(size=5)[a] + rng.normal(size=9)[b] + rng.normal(size=n)
    x, of_a = rng.normal(size=n), rng.normal(size=5)[a]
    return pd.DataFrame({"a": a, "b": b, "c": c, "x": x, "of_a": of_a, "y": 10.0 * y})


FORMULAS = {
    "one term": "y ~ (1|a)",
    "crossed": "y ~ (1|a) + (1|b)",
    "a covariate of a group": "y ~ x + of_a + (1|a) + (1|b)",
    "no fixed part": "y ~ 0 + (1|b) + (1|a)",
    "a covariate alone": "y ~ 0 + x + (1|a) + (1|b)",
    "nested": "y ~ x + (1|a) + (1|a:c) + (1|b)",
    "three": "y ~ (1|c) + (1|b) + (1|a:b)",
}


class Dense:
    """Projectors, and what follows from them."""

    def __init__(self, name):
        self.formula = FORMULAS[name]
        self.model = vcomp.VarianceComponentsModel(self.formula, frame())
        self.stats = self.model.statistics.cross_products
        full = DenseLikelihood(self.model, reml=True)
        self.Z, self.K = full.Z, full.K
        has_mean = "0 +" not in self.formula
        # Columns are centred, as in the statistics.
        self.y = full.y - has_mean * full.y.mean()
        moved = has_mean * (np.ptp(full.X, axis=0) > 0.0) if full.X.shape[1] else 0.0
        self.X = full.X - moved * full.X.mean(axis=0)

    def projector(self, terms):
        columns = np.concatenate([self.X, *(self.Z[t] for t in sorted(terms))], axis=1)
        left, values, _ = np.linalg.svd(columns, full_matrices=False)
        kept = left[:, values > 1e-10 * values.max(initial=1.0)]
        return kept @ kept.T

    def P(self, w):
        V = sum(s * K for s, K in zip(w, self.K, strict=True))
        Vi = np.linalg.inv(V)
        ViX = Vi @ self.X
        return Vi - ViX @ np.linalg.solve(self.X.T @ ViX, ViX.T), V


@pytest.fixture(scope="module", params=FORMULAS)
def dense(request):
    return Dense(request.param)


def subsets(dense, least=0):
    k = dense.stats.n_terms
    return [frozenset(s) for n in range(least, k + 1) for s in combinations(range(k), n)]


def near(found, expected, rtol=1e-10):
    scale = np.abs(expected).max(initial=1.0)  # zeros are rounding of sums of this size
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * scale)


def test_ranks_reductions_and_traces(dense):
    identity = np.eye(dense.y.size)
    for terms in subsets(dense):
        space, M = Space(dense.stats, terms), dense.projector(terms)
        assert space.rank == round(np.trace(M))
        assert space.rank - space.tail_rank == (
            0 if not terms else max(dense.Z[t].shape[1] for t in finest_terms(dense.stats, terms))
        )
        near(space.reduction(dense.stats), dense.y @ M @ dense.y)
        near(np.square(space.coordinates_of_response(dense.stats)).sum(), dense.y @ M @ dense.y)
        for t, Z in enumerate(dense.Z):
            expected = np.trace(Z.T @ (identity - M) @ Z)
            assert space.trace(t) == pytest.approx(expected, rel=1e-10, abs=1e-10)
            if t in terms:
                assert space.trace(t) == 0.0


def test_coordinates(dense):
    X, y = dense.X, dense.y
    for terms in subsets(dense):
        space, M = Space(dense.stats, terms), dense.projector(terms)
        fixed, response = space.coordinates_of_fixed(), space.coordinates_of_response(dense.stats)
        assert fixed.shape == (X.shape[1], space.rank)
        near(fixed @ fixed.T, X.T @ M @ X)
        near(fixed @ response, X.T @ M @ y)
        found = [space.coordinates(t).dense() for t in range(len(dense.Z))]
        for A, Z in zip(found, dense.Z, strict=True):
            near(A @ response, Z.T @ M @ y)
            near(fixed @ A.T, X.T @ M @ Z)
            for B, other in zip(found, dense.Z, strict=True):
                near(A @ B.T, Z.T @ M @ other)


def test_what_spaces_have_in_common(dense):
    every = [(s, Space(dense.stats, s), dense.projector(s)) for s in subsets(dense)]
    for _, a, M in every:
        for _, b, N in every:
            common = np.sum(M * N)
            products = a.basis_products(b)
            assert products.shape == (a.rank, b.rank)
            near(np.square(products).sum(), common)
            left = a.coordinates_of_response(dense.stats)
            near(
                left @ products @ b.coordinates_of_response(dense.stats), dense.y @ M @ N @ dense.y
            )
            if a.lead is None or b.lead is None:
                continue
            if a.lead != b.lead:
                near(a.common_squares(b), common)
            else:
                Z = dense.Z[a.lead]
                lead = Z @ np.linalg.solve(Z.T @ Z, Z.T)
                tails = a.tail_products(b)
                assert tails.shape == (a.tail_rank, b.tail_rank)
                near(np.square(tails).sum(), np.sum((M - lead) * (N - lead)), rtol=1e-8)


def priors(dense):
    k = len(dense.Z)
    rng = np.random.default_rng(k)
    return [np.ones(k + 1), rng.uniform(0.3, 2.0, k + 1), np.append(np.full(k, -0.01), 3.0)]


def test_equations_of_minque_at_any_prior(dense):
    contrasts = SpaceContrasts(dense.stats)
    other = vcomp.VarianceComponentsModel(
        dense.formula,
        frame().assign(y=lambda d: np.exp(0.1 * d["y"]) + d["x"]),
    )
    for w in priors(dense):
        P, _ = dense.P(w)
        forms = contrasts.at(w)
        PK = [P @ K for K in dense.K]
        near(forms.matrix, [[np.sum(A * B.T) for B in PK] for A in PK])
        Py = P @ dense.y
        near(forms.right, [Py @ K @ Py for K in dense.K])
        near(forms.second, [[Py @ A @ P @ B @ Py for B in dense.K] for A in dense.K])
        near(forms.solution, np.linalg.solve(forms.matrix, forms.right))
        near(forms.information, forms.second - forms.matrix / 2.0)
        assert forms.monte_carlo is None
        Pz = P @ other.endog
        rights = contrasts.rights(w, [dense.model.statistics, other.statistics])
        near(rights, [[u @ K @ u for K in dense.K] for u in (Py, Pz)])


def test_covariance_of_the_equations_at_other_components(dense):
    contrasts = SpaceContrasts(dense.stats)
    first, second, _ = priors(dense)
    for w, v in ((first, second), (second, first), (second, second)):
        P, _ = dense.P(w)
        V = sum(s * K for s, K in zip(v, dense.K, strict=True))
        PKPV = [P @ K @ P @ V for K in dense.K]
        expected = [[2.0 * np.trace(A @ B) for B in PKPV] for A in PKPV]
        near(contrasts.covariance(contrasts.at(w), v), expected)


@pytest.mark.parametrize("w", [[1.0, 0.0], [1.0, -1.0], [-10.0, 1.0]])
def test_priors_without_a_positive_definite_matrix_are_refused(w):
    contrasts = SpaceContrasts(Dense("one term").stats)
    with pytest.raises(np.linalg.LinAlgError):
        contrasts.at(np.array(w))


def test_equations_from_an_engine(dense):
    engine = BlockedLikelihood(dense.stats, reml=True)
    forms = EngineForms(engine, lambda s: BlockedLikelihood(s.cross_products, reml=True))
    n, p = dense.X.shape
    near(forms.mivque0(), engine.mivque0())
    for w in priors(dense)[:2]:
        found = forms.at(w)
        near(found.w / found.w[-1], w / w[-1], 1e-13)
        P, _ = dense.P(found.w)
        Py = P @ dense.y
        assert dense.y @ Py == pytest.approx(n - p, rel=1e-9)
        PK = [P @ K for K in dense.K]
        near(found.matrix, [[np.sum(A * B.T) for B in PK] for A in PK], 1e-8)
        near(found.right, [Py @ K @ Py for K in dense.K], 1e-8)
        near(found.second, [[Py @ A @ P @ B @ Py for B in dense.K] for A in dense.K], 1e-8)
        Py = dense.P(w)[0] @ dense.y
        rights = forms.rights(w, [dense.model.statistics])
        near(rights, [[Py @ K @ Py for K in dense.K]], 1e-7)
        assert forms.covariance(found, w) is None


def test_monte_carlo_errors_are_those_of_the_mean_of_solutions():
    """Of the first order: the deviation of each probe's equations at the solution, solved."""
    rng = np.random.default_rng(2)
    samples = rng.normal(size=(7, 2, 2))
    samples = samples @ samples.swapaxes(1, 2) + 3.0 * np.eye(2)
    right = np.array([3.0, -1.0])
    matrix = samples.mean(axis=0)
    forms = PriorForms(np.ones(2), matrix, right, matrix, samples)
    solution = np.linalg.solve(matrix, right)
    away = [np.linalg.solve(matrix, right - S @ solution) for S in samples]
    near(forms.monte_carlo, np.std(away, axis=0, ddof=1) / np.sqrt(7))

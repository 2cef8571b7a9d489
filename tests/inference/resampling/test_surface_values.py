"""Likelihoods of many data sets at points of a surface against n × n matrices of each."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.unit_probes import AllUnits
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.iterative import IterativeLikelihood
from vcomp.inference.resampling.deleted_surface import (
    DeletedSurface,
    _inversions,
    _padded,
    _rounded_up,
)
from vcomp.inference.resampling.draws import RowDraws
from vcomp.inference.resampling.surfaces import (
    Absorbing,
    Surface,
    _DenseForms,
)
from vcomp.numerics import stream

FORMULAS = {
    "one term": "y ~ (1|a)",
    "two": "y ~ x + (1|a) + (1|b)",
    "no fixed part": "y ~ 0 + (1|a) + (1|b)",
    "three": "y ~ x + (1|b) + (1|a) + (1|c)",
}
RATIOS = np.array([[0.3, 1.7, 0.6], [4.0, 0.05, 2.0]])


def frame(n=70):
    rng = np.random.default_rng(9)
    codes = {f: rng.integers(q, size=n) for f, q in {"a": 9, "b": 6, "c": 4}.items()}
    y = 5.0 * rng.normal(size=n) + 3.0 * codes["c"] + 40.0
    return pd.DataFrame({**codes, "x": rng.normal(size=n) + codes["a"], "y": y})


@pytest.fixture(scope="module", params=[(f, reml) for f in FORMULAS for reml in (True, False)])
def case(request):
    name, reml = request.param
    model = vcomp.VarianceComponentsModel(FORMULAS[name], frame())
    stats = model.statistics
    engine = BlockedLikelihood(stats.cross_products, reml=reml)
    k = len(stats.sizes)
    return stats, Surface(engine, np.arange(k), np.zeros(k), np.full(k, 0.1), np.zeros(k)), reml


def by_matrices(cells, ratios, rows, y, reml):
    """Return y'Py, log-determinants and β̂ of some rows, for a residual variance of one."""
    X, y = cells.X[rows], y[rows]
    V = np.eye(len(y))
    for ratio, codes in zip(ratios, cells.codes, strict=False):
        V += ratio * np.equal.outer(codes[rows], codes[rows])
    VX, Vy = np.linalg.solve(V, X), np.linalg.solve(V, y)
    log_det = np.linalg.slogdet(V)[1]
    beta = np.zeros(0)
    if X.shape[1]:
        beta = np.linalg.solve(X.T @ VX, X.T @ Vy)
        log_det += np.linalg.slogdet(X.T @ VX)[1] if reml else 0.0
    return y @ (Vy - VX @ beta), log_det, beta


def deleted_rows(stats):
    """Return sets of one row up to twenty, some of one level, some of the same groups."""
    codes, rng = stats.cells.codes, np.random.default_rng(1)
    some = [np.sort(rng.choice(70, size=n, replace=False)) for n in (1, 2, 7, 8, 9, 16, 17, 20)]
    return [*some, *(np.flatnonzero(codes[0] == j) for j in range(3)), np.array([69, 0, 33])]


@pytest.mark.parametrize("ratios", RATIOS)
def test_values_without_some_rows(case, ratios):
    stats, surface, reml = case
    deleted, k = deleted_rows(stats), len(stats.sizes)
    found = DeletedSurface(surface, stats, deleted)
    batches = found._batches(deleted)
    assert sorted(np.concatenate([b.numbers for b in batches])) == list(range(len(deleted)))
    values = found._values(ratios[:k], len(deleted), batches, found._parts)
    for b, rows in enumerate(deleted):
        left = np.setdiff1d(np.arange(70), rows)
        rss, log_det, beta = by_matrices(stats.cells, ratios[:k], left, stats.cells.y, reml)
        assert values.rss[b] == pytest.approx(rss, rel=1e-10)
        assert values.log_det[b] == pytest.approx(log_det, rel=1e-11, abs=1e-10)
        np.testing.assert_allclose(values.beta[b], beta, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("ratios", RATIOS)
@pytest.mark.parametrize("effects", [1000, 0])
def test_values_of_drawn_responses(case, ratios, effects):
    stats, surface, reml = case
    k = len(stats.sizes)
    draws = RowDraws(stats)
    v = np.append(ratios[:k], 1.0)
    drawn = [stats, *(draws.draw(v, stream(3, b)) for b in range(3))]
    sums = [each.cross_products for each in drawn]
    if effects:
        values = _DenseForms(sums, range(k)).values(ratios[:k], reml=reml)
    else:
        values = surface.engine.node_values(sums, ratios[:k], np.ones(k))(ratios[:k])
    for b, each in enumerate(drawn):
        cells = each.cells
        rss, log_det, beta = by_matrices(cells, ratios[:k], np.arange(70), cells.y, reml)
        assert values.rss[b] == pytest.approx(rss, rel=1e-10)
        assert values.log_det[b] == pytest.approx(log_det, rel=1e-11, abs=1e-10)
        if effects or k > 1:
            np.testing.assert_allclose(values.beta[b], beta, rtol=1e-9, atol=1e-9)


def test_factors_of_all_but_one_term(case):
    stats, _, _ = case
    sums, codes = stats.cross_products, stats.cells.codes
    Z = [np.eye(q)[c] for q, c in zip(sums.sizes, codes, strict=True)]
    for lead in range(len(Z)):
        absorbing = Absorbing(sums, lead, [t for t in range(len(Z)) if t != lead])
        for ratios in RATIOS[:, : len(Z)]:
            lower, D, log_det = absorbing.factor(ratios)
            np.testing.assert_allclose(D, Z[lead].sum(axis=0) + 1.0 / ratios[lead], rtol=1e-14)
            V = np.eye(70) + sum(r * z @ z.T for r, z in zip(ratios, Z, strict=True))
            assert log_det == pytest.approx(np.linalg.slogdet(V)[1], rel=1e-12)
            others = [z for t, z in enumerate(Z) if t != lead]
            right = np.random.default_rng(0).normal(size=(sum(z.shape[1] for z in others), 2))
            half = absorbing.halved(np.tril(lower), right)
            if others:
                own, U = Z[lead], np.concatenate(others, axis=1)
                gamma = np.concatenate([np.full(z.shape[1], r) for z, r in zip(
                    others, np.delete(ratios, lead), strict=True)])  # fmt: skip
                S = U.T @ U + np.diag(1.0 / gamma) - U.T @ own @ np.diag(1.0 / D) @ own.T @ U
                np.testing.assert_allclose(half.T @ half, right.T @ np.linalg.solve(S, right))


def test_sizes_of_boxes_of_deleted_levels_shrink_with_their_number(case):
    stats, surface, _ = case
    deleted = deleted_rows(stats)
    found = DeletedSurface(surface, stats, deleted)
    np.testing.assert_allclose(found._width(2.0), 2.0 * 0.1 / np.sqrt(len(deleted)))
    assert (found._width(1e3) == 1.0).all()


def test_rows_are_padded_to_the_next_multiple_of_eight():
    assert [_rounded_up(n) for n in (0, 1, 7, 8, 9, 16, 17)] == [0, 8, 8, 8, 16, 16, 24]
    padded = _padded([np.array([4]), np.array([], dtype=int), np.array([1, 2, 3])], 3)
    assert padded.tolist() == [[4, -1, -1], [-1, -1, -1], [1, 2, 3]]


def test_the_term_that_is_absorbed_is_that_of_least_work():
    """A cube of the other effects, and for each data set the products of its block."""
    codes = [np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 0, 1, 0, 1])]
    deleted = [np.array([0, 1]), np.array([2, 3]), np.array([4, 5])]
    # Of the three groups one is touched, with two rows: two effects. Of the two groups both are.
    assert _inversions((3, 2), codes, deleted, 0) == 2**3 + 3 * (2 * 2**2 + 2**2 * 2 + 2**3)
    assert _inversions((3, 2), codes, deleted, 1) == 3**3 + 3 * (2 * 3**2 + 2**2 * 3 + 2**3)


@pytest.mark.parametrize("reml", [True, False])
@pytest.mark.parametrize("formula", ["y ~ x + (1|a) + (1|b)", "y ~ x + (1|a) + (1|b) + (1|c)"])
@pytest.mark.parametrize("n_levels", [0, 5])
def test_series_of_drawn_responses(formula, reml, n_levels):
    """A cubic: a step half as long has an error a sixteenth; of β̂, a square, an eighth."""
    rng = np.random.default_rng(1)
    data = {name: rng.integers(size, size=70) for name, size in (("a", 9), ("b", 7), ("c", 5))}
    data |= {"x": rng.normal(size=70), "y": rng.normal(size=70)}
    stats = vcomp.VarianceComponentsModel(formula, data).statistics
    k = len(stats.sizes)
    centre, direction = np.array([0.7, 0.4, 0.3])[:k], np.array([0.8, -0.5, 0.6])[:k]
    engine = IterativeLikelihood(
        stats.cross_products, reml=reml, probes=AllUnits(), n_levels=n_levels, tol=1e-14
    )
    draws = RowDraws(stats)
    drawn = [stats, *(draws.draw(np.append(centre, 1.0), stream(3, b)) for b in range(2))]
    errors = []
    for step in (0.4, 0.2):
        width, ratios = step * np.ones(k), centre * np.exp(step * direction)
        sums = [each.cross_products for each in drawn]
        values = engine.node_values(sums, centre, width)(ratios)
        found = []
        for b, each in enumerate(drawn):
            rows = each.cells
            rss, log_det, beta = by_matrices(rows, ratios, np.arange(70), rows.y, reml)
            found.append([values.rss[b] - rss, *(values.beta[b] - beta)])
            found[-1].append(values.log_det[b] - log_det)
        errors.append(np.abs(found).max(axis=0))
    assert errors[1][0] < errors[0][0] / 12.0
    assert (errors[1][1:] < errors[0][1:] / 6.0).all()

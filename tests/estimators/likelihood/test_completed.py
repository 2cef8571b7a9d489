"""Nearly complete grids: the holes solved for, against elimination of the same rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.choose import choose_engine
from vcomp.estimators.likelihood.incomplete import CompletedLikelihood, HoleMatrix
from vcomp.estimators.likelihood.likelihood import (
    REML,
    _estimate_or_change_engine,
    estimate_by_likelihood,
)
from vcomp.statistics import split_axes

FULL = "y ~ (1|p) + (1|a) + (1|i) + (1|d) + (1|p:a) + (1|p:i) + (1|a:i) + (1|p:d) + (1|p:a:i)"
FORMULAS = {
    "per document": FULL,
    "covariates": "y ~ xp + x + (1|p) + (1|a) + (1|i) + (1|d) + (1|p:d)",
    "no mean": "y ~ 0 + (1|p) + (1|a) + (1|i) + (1|d)",
    "two facets": "y ~ (1|p) + (1|d)",
    "no term for an axis": "y ~ (1|p) + (1|i/d) + (1|p:a)",
}


def frame_of(name, share=0.1, seed=1):
    """Return scores of persons, assessors and documents within topics, some of them missing."""
    rng = np.random.default_rng(seed)
    sizes = np.array([2, 5, 3, 7, 1])
    n_d = int(sizes.sum())
    p, a, d = (axis.ravel() for axis in np.indices((6, 3, n_d)))
    if name == "two facets":
        p, a, d = p[a == 0], a[a == 0], d[a == 0]
    i = np.repeat(np.arange(sizes.size), sizes)[d]
    data = pd.DataFrame({"p": p, "a": a, "i": i, "d": d})
    y = rng.normal(size=len(data))
    for facets in ("p", "a", "i", "d", ["p", "i"], ["p", "d"], ["a", "i"]):
        groups = data.groupby(facets).ngroup().to_numpy()
        y += 0.7 * rng.normal(size=groups.max() + 1)[groups]
    data["y"] = y + 20.0
    data["x"] = rng.normal(size=len(data))
    data["xp"] = np.sin(3.0 * p)
    kept = rng.random(len(data)) >= share
    return data[kept].sample(frac=1.0, random_state=seed).reset_index(drop=True)


def engines(name, *, reml, share=0.1):
    model = vcomp.VarianceComponentsModel(FORMULAS[name], frame_of(name, share))
    grid = model.statistics.completed
    assert grid is not None
    assert grid.holes.n > 0
    stats = model.statistics.cross_products
    return CompletedLikelihood(stats, grid, reml=reml), BlockedLikelihood(stats, reml=reml)


def points(k):
    rng = np.random.default_rng(k)
    yield rng.uniform(0.3, 2.0, k)
    at_bound = rng.uniform(0.3, 2.0, k)
    at_bound[[0, k - 2]] = 0.0
    yield at_bound
    yield np.where(np.arange(k) == k - 1, 0.7, 0.0)
    yield 10.0 ** rng.uniform(-2.0, 1.0, k)


@pytest.mark.parametrize("reml", [True, False], ids=["reml", "ml"])
@pytest.mark.parametrize("name", FORMULAS)
def test_few_holes_are_solved_for_exactly(name, reml):
    ours, blocked = engines(name, reml=reml)
    assert ours.exact_value
    for v in points(len(blocked.sizes) + 1):
        assert ours.loglike(v) == pytest.approx(blocked.loglike(v), rel=1e-9)
        one, other = ours.derivatives(v), blocked.derivatives(v)
        assert one.loglike == ours.loglike(v)
        # The solves end at 1e-10 of their right-hand sides.
        np.testing.assert_allclose(one.score, other.score, atol=1e-8 * np.abs(other.score).max())
        scale = np.abs(other.average).max()
        np.testing.assert_allclose(one.average, other.average, atol=1e-8 * scale)
        for found, expected in zip(ours.fixed_effects(v), blocked.fixed_effects(v), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)
        for t, errors in enumerate(ours.solution(v).prediction_var):
            assert (errors == 0.0).all() if v[t] == 0.0 else np.isnan(errors).all()
        effects = zip(ours.solution(v).effects, blocked.solution(v).effects, strict=True)
        for found, expected in effects:
            np.testing.assert_allclose(
                found, expected, atol=1e-8 * max(np.abs(expected).max(), 1.0)
            )


@pytest.mark.parametrize("kind", ["expected", "observed"])
def test_another_information_is_that_of_the_blocked_engine(kind):
    """By the advice of the refusal; ½ tr(PV_tPV_u) with matrices of the order of the rows."""
    name = next(iter(FORMULAS))
    ours, blocked = engines(name, reml=True)
    v = next(points(len(blocked.sizes) + 1))
    with pytest.raises(vcomp.EstimationError, match=rf"not the {kind} one; use engine='blocked'"):
        ours.information(v, kind)
    data = frame_of(name, 0.1)
    rows = vcomp.VarianceComponentsModel(FORMULAS[name], data).statistics.cells
    kernels = [(c[:, None] == c).astype(float) for c in rows.codes] + [np.eye(len(data))]
    W = np.linalg.inv(sum(s * K for s, K in zip(v, kernels, strict=True)))
    P = W - W @ rows.X @ np.linalg.solve(rows.X.T @ W @ rows.X, rows.X.T @ W)
    moved = [P @ K for K in kernels]
    expected = 0.5 * np.array([[(a * b.T).sum() for b in moved] for a in moved])
    if kind == "observed":
        expected = 2.0 * ours.information(v, "average") - expected
    found = blocked.information(v, kind)
    np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())


def test_matrix_of_the_holes_is_that_of_the_grid():
    """P_mm and [P V_t P]_mm against the inverse of the whole grid's covariance, written out."""
    name = "per document"
    model = vcomp.VarianceComponentsModel(FULL, frame_of(name))
    grid = model.statistics.completed
    v = np.random.default_rng(2).uniform(0.3, 2.0, len(model.component_names))
    ours = CompletedLikelihood(model.statistics.cross_products, grid, reml=True)
    matrix = ours._at(v).matrix
    R, M = grid.tables.shape[1:]
    levels = dict(zip("pa", np.unravel_index(np.arange(R), grid.shape), strict=True))
    order = np.argsort(grid.layout.rank)
    cells = {
        model.design.facets[f].name: codes[order]
        for f, codes in zip(grid.layout.grid.rest, grid.layout.grid.levels, strict=True)
    }
    columns = {f: np.repeat(x, M) for f, x in levels.items()}
    columns |= {f: np.tile(x, R) for f, x in cells.items()}
    whole = pd.DataFrame(columns)
    parts = []
    for term in model.design.formula.random:
        groups = whole.groupby(list(term.facets)).ngroup().to_numpy()
        parts.append(np.equal.outer(groups, groups).astype(float))
    parts.append(np.eye(R * M))
    P = np.linalg.inv(sum(c * K for c, K in zip(v, parts, strict=True)))
    holes = grid.holes.combination * M + grid.holes.cell
    expected = P[np.ix_(holes, holes)]
    x = np.eye(holes.size)
    np.testing.assert_allclose(matrix.times(x), expected, atol=1e-12)
    found = matrix.derivatives(matrix.columns(x))
    for K, one in zip(parts, found, strict=True):
        np.testing.assert_allclose(one, (P @ K @ P)[np.ix_(holes, holes)], atol=1e-11)


def test_fits_agree_with_elimination():
    data = frame_of("per document", 0.05)
    exact = vcomp.fit(FULL, data, engine="blocked")
    ours = vcomp.fit(FULL, data, engine="iterative")
    np.testing.assert_allclose(ours.vcomp, exact.vcomp, rtol=1e-6, atol=1e-8)
    assert ours.llf == pytest.approx(exact.llf, rel=1e-10)
    np.testing.assert_allclose(ours.fe_params, exact.fe_params, rtol=1e-8)
    assert "cells empty" in ours.certificate.reason
    assert not ours.mc_error.any()  # without probes


def test_auto_solves_for_few_holes_where_blocks_of_levels_take_longer():
    rng = np.random.default_rng(0)
    a, b, c = (axis.ravel() for axis in np.indices((30, 30, 30)))
    data = pd.DataFrame({"a": a, "b": b, "c": c, "y": rng.normal(size=a.size)}).iloc[20:]
    formula = "y ~ (1|a) + (1|b) + (1|c) + (1|a:b) + (1|a:c) + (1|b:c)"
    model = vcomp.VarianceComponentsModel(formula, data)
    assert isinstance(choose_engine(model.statistics, reml=True), CompletedLikelihood)


def test_designs_without_such_a_grid():
    data = frame_of("per document", 0.05)
    model = vcomp.VarianceComponentsModel
    assert model(FULL, pd.concat([data, data[:1]])).statistics.completed is None  # two in a cell
    assert model(FULL, frame_of("per document", 0.7)).statistics.completed is None  # mostly holes
    crossed = "y ~ (1|p) + (1|i) + (1|j) + (1|i:j)"
    rng = np.random.default_rng(3)
    p, i, j = (axis.ravel() for axis in np.indices((5, 6, 7)))
    table = pd.DataFrame({"y": rng.normal(size=p.size), "p": p, "i": i, "j": j})
    assert model(crossed, table[rng.random(p.size) > 0.1]).statistics.completed is not None
    complete = choose_engine(model(crossed, table).statistics, reml=True)
    assert complete.name == "strata"


def test_an_evaluation_leaves_the_model_as_it_was():
    data = frame_of("per document", 0.05)
    model = vcomp.VarianceComponentsModel(FULL, data)
    before = model.statistics.completed.tables.copy()
    first = model.fit(engine="iterative")
    np.testing.assert_array_equal(model.statistics.completed.tables, before)
    np.testing.assert_array_equal(model.fit(engine="iterative").vcomp, first.vcomp)


def test_the_matrix_of_the_holes_is_positive_definite():
    ours, _ = engines("covariates", reml=True)
    for v in points(len(ours.sizes) + 1):
        matrix = ours._at(v).matrix
        assert isinstance(matrix, HoleMatrix)
        product = matrix.times(np.eye(ours.grid.holes.n))
        np.testing.assert_allclose(product, product.T, atol=1e-12 * np.abs(product).max())
        assert np.linalg.eigvalsh(product)[0] > 0.0


@pytest.mark.parametrize("residual", [1e-4, 1e-6, 1e-8, 1e-10])
def test_components_many_decades_apart_with_cells_missing(residual):
    """Elimination loses the residual beside components of 1e4; the strata of the grid do not."""
    rng = np.random.default_rng(1)
    a, b = (axis.ravel() for axis in np.indices((12, 15)))
    kept = ~np.isin(np.arange(a.size), [3, 70])
    a, b = a[kept], b[kept]
    y = 100.0 * rng.normal(size=12)[a] + rng.normal(size=15)[b]
    y += np.sqrt(residual) * rng.normal(size=a.size)
    # So far below the others the residual is the mean square of what additive effects leave.
    left, kept_columns = y.astype(np.longdouble), []
    for column in np.column_stack([np.eye(12)[a], np.eye(15)[b]]).astype(np.longdouble).T:
        for _ in range(2):
            for q in kept_columns:
                column = column - q * (q @ column)
        if np.sqrt(column @ column) > 1e-9:
            kept_columns.append(column / np.sqrt(column @ column))
    for _ in range(2):
        for q in kept_columns:
            left = left - q * (q @ left)
    expected = float(left @ left) / (a.size - len(kept_columns))
    res = vcomp.fit("y ~ (1|a) + (1|b)", pd.DataFrame({"y": y, "a": a, "b": b}))
    assert res.converged
    # The additive effects are not quite free: they share out residual / 15 of 1.
    assert res.vcomp["Residual"] == pytest.approx(expected, rel=max(1e-9, residual / 1e3))


def test_a_small_residual_beside_interactions():
    """Blocks of levels lose the residual from 1e-6 of the others on; other engines do not.

    Their climb then ends before its limit of steps, converged or not as rounding has it. One that
    ends at the limit is kept.
    """
    rng = np.random.default_rng(2)
    codes = np.indices((4, 8, 3)).reshape(3, -1)
    codes = codes[:, rng.random(codes.shape[1]) < 0.6]
    y = 1e-3 * rng.normal(size=codes.shape[1])
    for facets in ([0], [1], [2], [0, 1]):
        _, group = np.unique(codes[facets], axis=1, return_inverse=True)
        y += rng.normal(size=group.max() + 1)[group.ravel()]
    frame = pd.DataFrame(dict(zip("abc", codes, strict=True)) | {"y": y})
    model = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b) + (1|c) + (1|a:b)", frame)
    stats, names = model.statistics, model.component_names
    levels = choose_engine(stats, "levels", reml=True)
    lost = estimate_by_likelihood(levels, names, REML())
    assert lost.certificate.newton_decrement > 1e-6
    for steps, kept in ((len(lost.log) - 1, True), (len(lost.log), False)):
        res = _estimate_or_change_engine(stats, levels, names, REML(max_iter=steps))
        assert res.engine.startswith("levels") == kept
    # Elimination itself has lost some digits, and may not converge either.
    blocked = choose_engine(stats, "blocked", reml=True)
    values = estimate_by_likelihood(blocked, names, REML()).values
    np.testing.assert_allclose(res.values, values, rtol=1e-4)


def test_the_limit_of_steps_is_not_a_loss_of_digits():
    data = frame_of("per document", 0.05)
    with pytest.warns(vcomp.VcompWarning, match="limit of 0 steps"):
        res = vcomp.fit(FULL, data, max_iter=0)
    assert not res.engine.startswith("iterative")


def test_the_reason_says_how_many_cells_are_empty():
    table = pd.DataFrame({"a": np.repeat(np.arange(6), 6), "b": np.tile(np.arange(6), 6)})
    table["y"] = np.random.default_rng(2).normal(size=36)
    data = table.drop(index=[0, 1, 7, 8, 14, 15])
    stats = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b)", data).statistics
    assert choose_engine(stats, "iterative", reml=True).reason == (
        "orthogonal strata of a grid with 16.7% of its cells empty, traces over these exact"
    )


def test_values_do_not_depend_on_what_was_evaluated_before():
    ours, _ = engines("per document", reml=True)
    again, (first, second, *_) = engines("per document", reml=True)[0], points(len(ours.sizes) + 1)
    ours.derivatives(second)
    assert ours.derivatives(first).loglike == again.derivatives(first).loglike


@pytest.mark.parametrize("block", [1, 90, 10**6])
@pytest.mark.parametrize("name", ["covariates", "two facets"])
def test_columns_in_the_holes_are_taken_from_blocks_of_cells(name, block):
    """However many at a time, as of the whole table."""
    ours, _ = engines(name, reml=True)
    grid, tables = ours.grid, ours.grid.tables
    found = ours._columns_in_holes(block)
    for contrasts, columns in found.items():
        parts = [split_axes(table.copy(), grid.shape)[contrasts] for table in tables]
        place = grid.holes.place(contrasts, grid.shape)
        for j, part in enumerate(parts):
            np.testing.assert_array_equal(columns.values[:, j], part[place, grid.holes.cell])

"""Likelihoods of many data sets at once: dense matrices, and maxima against single fits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.estimators.likelihood import maximise_stack
from vcomp.estimators.likelihood.stacked import StackedLikelihood, _inverses
from vcomp.estimators.likelihood.stacked_climb import _bounded_steps
from vcomp.statistics import Stack, StackLayout, StackTables

FORMULA = "y ~ x + (1|a) + (1|b) + (1|a:b)"


def frame(seed, n=60, a=5, b=4):
    rng = np.random.default_rng(seed)
    codes = rng.integers(a, size=n), rng.integers(b, size=n)
    effects = rng.normal(size=a)[codes[0]] + rng.normal(size=b)[codes[1]]
    x = 40.0 + 9.0 * rng.normal(size=n)
    return pd.DataFrame(
        {"a": codes[0], "b": codes[1], "x": x, "y": effects + rng.normal(size=n) + 0.1 * x}
    )


def stack_of(*frames):
    """Return a stack of the data of several frames with the same levels, and their parts."""
    tables, dense = [], []
    for data in frames:
        chunk = vcomp.VarianceComponentsModel(FORMULA, data).statistics.cells
        layout = StackLayout.of(tuple(max(chunk.sizes) for _ in chunk.sizes), chunk.X.shape[1])
        columns = np.vstack([chunk.X.T, chunk.y])
        tables.append((layout, chunk, columns))
        Z = [np.eye(q)[c] for c, q in zip(chunk.codes, chunk.sizes, strict=True)]
        dense.append((Z, chunk.X, chunk.y))
    sizes = np.max([chunk.sizes for _, chunk, _ in tables], axis=0)
    layout = StackLayout.of(sizes.tolist(), 2)
    made = [StackTables.of(layout, chunk.codes, columns) for _, chunk, columns in tables]
    return Stack.of(made, np.array([1.0, 9.0])), dense


def by_dense_matrices(Z, X, y, v, *, reml):
    """Return value, score, observed information and fixed effects from matrices of order N."""
    kernels = [*(z @ z.T for z in Z), np.eye(y.size)]
    V = sum(s * K for s, K in zip(v, kernels, strict=True))
    W = np.linalg.inv(V)
    XWX = X.T @ W @ X
    P = W - W @ X @ np.linalg.solve(XWX, X.T @ W)
    Q = P if reml else W
    value = np.linalg.slogdet(V)[1] + y @ P @ y + y.size * np.log(2.0 * np.pi)
    if reml:
        value += np.linalg.slogdet(XWX)[1] - X.shape[1] * np.log(2.0 * np.pi)
    score = [0.5 * (y @ P @ K @ P @ y - np.trace(Q @ K)) for K in kernels]
    observed = [
        [y @ P @ K @ P @ L @ P @ y - 0.5 * np.trace(Q @ K @ Q @ L) for L in kernels]
        for K in kernels
    ]
    return -0.5 * value, np.array(score), np.array(observed), np.linalg.solve(XWX, X.T @ W @ y)


@pytest.mark.parametrize("reml", [True, False])
def test_derivatives_are_those_of_dense_matrices(reml):
    # Data sets with other numbers of levels are filled up, and components may be zero.
    stack, dense = stack_of(frame(1), frame(2, n=50, a=4), frame(3, b=3))
    v = np.array([[0.5, 0.7, 0.3, 1.1], [0.0, 0.4, 0.2, 2.0], [1.5, 0.0, 0.0, 0.3]])
    found = StackedLikelihood(stack, reml=reml).derivatives(v)
    for b, (Z, X, y) in enumerate(dense):
        value, score, observed, beta = by_dense_matrices(Z, X, y, v[b], reml=reml)
        assert found.loglike[b] == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(found.score[b], score, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(found.observed[b], observed, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(found.beta[b], beta, rtol=1e-9)
        # Slopes of the fixed effects: a central difference.
        step = np.append(np.zeros(3), 1e-5)
        ends = [by_dense_matrices(Z, X, y, v[b] + s * step, reml=reml)[3] for s in (1.0, -1.0)]
        slope = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(found.slopes[b, -1], slope, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("reml", [True, False])
def test_maxima_are_those_of_single_fits(reml):
    frames = [frame(seed) for seed in range(12)]
    stack, _ = stack_of(*frames)
    start, held = np.array([1.0, 1.0, 0.1, 1.0]), np.zeros(4, dtype=bool)
    found = maximise_stack(stack, start, held, reml=reml)
    assert found.found.sum() >= 10
    zeros = 0
    for b in np.flatnonzero(found.found):
        res = vcomp.fit(FORMULA, frames[b], method="reml" if reml else "ml", tol=1e-11)
        values = res.vcomp.to_numpy()
        np.testing.assert_allclose(found.v[b], values, rtol=1e-8, atol=1e-8 * values.sum())
        assert found.loglike[b] == pytest.approx(res.llf, abs=1e-9)
        assert found.beta[b][1] == pytest.approx(res.params["x"], rel=1e-8)
        zeros += int((values == 0.0).sum())
    assert zeros  # bounds are met


def test_held_components_stay():
    frames = [frame(seed) for seed in range(4)]
    stack, _ = stack_of(*frames)
    start, held = np.array([1.0, 1.0, 0.0, 1.0]), np.array([False, False, True, False])
    found = maximise_stack(stack, start, held, reml=True)
    for b in np.flatnonzero(found.found):
        res = vcomp.fit(FORMULA, frames[b], hold={"a:b": 0.0}, tol=1e-11)
        np.testing.assert_allclose(found.v[b], res.vcomp.to_numpy(), rtol=1e-8, atol=1e-9)


def test_data_that_do_not_determine_the_components_are_left_to_others():
    # One row in each cell of a and b: their interaction is the residual.
    data = pd.DataFrame([(i, j) for i in range(5) for j in range(4)], columns=["a", "b"])
    data["x"], data["y"] = np.random.default_rng(0).normal(size=(2, 20))
    codes = [data["a"].to_numpy(), data["b"].to_numpy(), np.arange(20)]
    columns = np.vstack([np.ones(20), data["x"], data["y"]])
    tables = StackTables.of(StackLayout.of((5, 4, 20), 2), codes, columns)
    stack = Stack.of([tables], np.ones(2))
    found = maximise_stack(stack, np.ones(4), np.zeros(4, dtype=bool), reml=True)
    assert not found.found.any()


def test_sums_without_rows_are_those_of_the_others():
    rng = np.random.default_rng(5)
    codes = [rng.integers(30, size=200), rng.integers(6, size=200)]
    columns, gone = rng.normal(size=(3, 200)), np.flatnonzero(codes[0] == 7)
    layout = StackLayout.of((30, 6), 2)
    left = np.setdiff1d(np.arange(200), gone)
    whole = StackTables.of(layout, codes, columns)
    part = whole.without(StackTables.of(layout, [c[gone] for c in codes], columns[:, gone]))
    anew = StackTables.of(layout, [c[left] for c in codes], columns[:, left])
    stacks = [Stack.of([tables], np.ones(2)) for tables in (part, anew)]
    for name in ("whole", "whole_y", "yy", "n", "sizes"):
        a, b = (getattr(stack, name) for stack in stacks)
        np.testing.assert_allclose(a, b, atol=1e-12)
    for weights in (lambda n: 1.0 / n, lambda n: n**2):
        sums = [
            np.einsum("bd,bdij->bij", weights(np.maximum(s.group_n, 1.0)), s.grams) for s in stacks
        ]
        np.testing.assert_allclose(*sums, atol=1e-10)


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1e5, 1e9])
def test_starts_of_any_unit_lead_to_the_same_maxima(unit):
    frames = [frame(seed) for seed in range(6)]
    stack, _ = stack_of(*frames)
    start, held = np.array([1.0, 1.0, 0.1, 1.0]), np.zeros(4, dtype=bool)
    expected, found = (maximise_stack(stack, s * start, held, reml=True) for s in (1.0, unit))
    np.testing.assert_array_equal(found.found, expected.found)
    both = expected.found
    assert both.sum() >= 4
    np.testing.assert_allclose(found.v[both], expected.v[both], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.loglike[both], expected.loglike[both], rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_steps_of_data_sets_end_within_their_bounds(seed):
    """Where none reaches a bound they are Newton's; at a bound the others move accordingly."""
    rng = np.random.default_rng(seed)
    B, m = 6, int(rng.integers(1, 5))
    units = 10.0 ** rng.uniform(-3.0, 3.0, m)
    half = rng.normal(size=(B, m, m + 2))
    information = (half @ half.swapaxes(1, 2)) / np.outer(units, units)
    information[0] = 0.0  # not positive definite
    score = rng.normal(size=(B, m)) * rng.choice([1.0, 10.0], (B, 1)) / units
    v = rng.choice([0.0, 0.2, 5.0], (B, m)) * units
    v[:, -1] = units[-1]
    moves = rng.random((B, m)) < 0.8
    if m > 1:
        information[1, 0, 1] = information[1, 1, 0] = np.nan
        moves[1] = True
    lower = -v
    lower[:, -1] *= 0.9
    step, decrement, inside, well = _bounded_steps(information.copy(), score, v, moves)
    for b in range(B):
        own = np.flatnonzero(moves[b])
        part = information[np.ix_([b], own, own)][0]
        if own.size and (b == 0 or not np.isfinite(part).all()):
            assert not well[b]
            continue
        assert well[b]
        np.testing.assert_array_equal(step[b, ~moves[b]], 0.0)
        d = step[b, own]
        at_bound = d <= lower[b, own]
        np.testing.assert_array_equal(d[at_bound], lower[b, own][at_bound])
        slope = (score[b, own] - part @ d) * units[own]
        np.testing.assert_allclose(slope[~at_bound], 0.0, atol=1e-8)
        gain = score[b, own] @ d - 0.5 * d @ part @ d
        assert decrement[b] == pytest.approx(np.sqrt(max(2.0 * gain, 0.0)), rel=1e-9, abs=1e-9)
        assert inside[b] == (not at_bound.any())


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1e3, 1e6])
@pytest.mark.parametrize("start", [[1.0, 1.0, 0.1, 1.0], [0.0, 0.0, 0.0, 2.0]])
def test_maxima_of_responses_in_any_unit_are_the_same(unit, start):
    """Also where components start at zero, which a gradient in that unit has to move."""
    frames = [frame(seed) for seed in range(8)]
    scaled = [data.assign(y=unit * data["y"]) for data in frames]
    held = np.zeros(4, dtype=bool)
    one, other = (
        maximise_stack(stack_of(*data)[0], u**2 * np.array(start), held, reml=True)
        for data, u in ((frames, 1.0), (scaled, unit))
    )
    np.testing.assert_array_equal(one.found, other.found)
    assert one.found.sum() >= 7
    there = one.found
    size = one.v[there].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(other.v[there] / unit**2 / size, one.v[there] / size, atol=1e-9)


def test_only_positive_definite_matrices_have_a_determinant():
    """Two negative eigenvalues have a positive product."""
    each = [np.diag(d) for d in ([2.0, 3.0, 1.0], [-2.0, -3.0, 1.0], [-2.0, 3.0, 1.0])]
    found = _inverses(np.array(each))[1]
    np.testing.assert_allclose(found, [np.log(6.0), np.nan, np.nan], rtol=1e-15)

"""Likelihoods of many data sets at once: dense matrices, and maxima against single fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.estimators.likelihood import Place, StackedEquations, StackedLikelihood, maximise_stack
from vcomp.estimators.likelihood.stacked import (
    StackedDerivatives,
    _bounded_steps,
    _Climb,
)
from vcomp.estimators.likelihood.stacked_forms import inverses_or_nan
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


def likelihoods(stack, *, reml):
    return StackedLikelihood(StackedEquations(stack), reml=reml)


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
    found = likelihoods(stack, reml=reml).derivatives(v)
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
    frames = [frame(seed) for seed in range(7)]
    stack, _ = stack_of(*frames)
    start, held = np.array([1.0, 1.0, 0.1, 1.0]), np.zeros(4, dtype=bool)
    found = maximise_stack(likelihoods(stack, reml=reml), start, held)
    assert found.found.sum() >= 6
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
    found = maximise_stack(likelihoods(stack, reml=True), start, held)
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
    found = maximise_stack(likelihoods(stack, reml=True), np.ones(4), np.zeros(4, dtype=bool))
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
    expected, found = (
        maximise_stack(likelihoods(stack, reml=True), s * start, held) for s in (1.0, unit)
    )
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


@pytest.mark.parametrize("unit", [1e-6, 1e6])
@pytest.mark.parametrize("start", [[1.0, 1.0, 0.1, 1.0], [0.0, 0.0, 0.0, 2.0]])
def test_maxima_of_responses_in_any_unit_are_the_same(unit, start):
    """Also where components start at zero, which a gradient in that unit has to move."""
    frames = [frame(seed) for seed in range(8)]
    scaled = [data.assign(y=unit * data["y"]) for data in frames]
    held = np.zeros(4, dtype=bool)
    one, other = (
        maximise_stack(likelihoods(stack_of(*data)[0], reml=True), u**2 * np.array(start), held)
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
    inverses, found = inverses_or_nan(np.array(each))
    np.testing.assert_allclose(found, [np.log(6.0), np.nan, np.nan], rtol=1e-15)
    # The first has the digits that it has without the others.
    alone, log = inverses_or_nan(np.array(each[:1]))
    np.testing.assert_array_equal(inverses[0], alone[0])
    assert found[0] == log[0]


def test_tables_with_about_as_many_effects_as_rows_are_left_out():
    """5 + 6 levels and 30 cells in 40 rows: other starts may lead to a residual of zero."""
    cell = np.arange(40) % 30
    frames = [frame(s, n=40).assign(a=cell // 6, b=cell % 6) for s in range(6)]
    stack, _ = stack_of(*frames, frame(7, n=40))
    start, held = np.array([1.0, 1.0, 1.0, 1.0]), np.zeros(4, dtype=bool)
    assert maximise_stack(likelihoods(stack, reml=True), start, held, once=True).found[:6].any()
    assert not maximise_stack(likelihoods(stack, reml=True), start, held).found[:6].any()


def test_a_climb_from_another_start_that_fails_leaves_the_maximum_uncertain(monkeypatch):
    stack, _ = stack_of(*(frame(s) for s in range(8)))
    start, held = np.ones(4), np.zeros(4, dtype=bool)
    found = maximise_stack(likelihoods(stack, reml=True), start, held)
    doubtful = (found.v[:, :-1] == 0.0).any(axis=1)  # of few levels
    assert doubtful.any()
    assert found.found[doubtful].any()
    of_starts = _Climb.of_starts

    def failing(*arguments):
        ends = of_starts(*arguments)
        return replace(ends, found=np.zeros_like(ends.found))

    monkeypatch.setattr(_Climb, "of_starts", failing)
    left = maximise_stack(likelihoods(stack, reml=True), start, held).found
    assert not left[doubtful].any()


# Climbs whose derivatives are told ---------------------------------------------------------------


class Rows:
    """A stack of some data sets, of which only numbers are asked."""

    n_fixed = 1

    def __init__(self, ids, n, whole=None):
        self.ids, self.all_n, self.n = np.asarray(ids), n, n[ids]
        self.whole = np.ones((len(self.ids), 2, 2)) if whole is None else whole
        self.sums = self

    def __len__(self):
        return len(self.ids)

    def take(self, chosen):
        return Rows(self.ids[chosen], self.all_n, self.whole[chosen])


TOP = np.array([2.0, 1.0, 3.0])
INFORMATION = np.array([[4.0, 0.3, 0.2], [0.3, 0.25, 0.1], [0.2, 0.1, 9.0]])


def quadratics(ids, v):
    """Return quadratic likelihoods of value 7 at `TOP`, with β = 5 + 2 (v − TOP)."""
    B, away = len(v), v - TOP
    slope = -away @ INFORMATION
    return {
        "loglike": 7.0 + 0.5 * (slope * away).sum(axis=1),
        "score": slope,
        "average": np.tile(INFORMATION, (B, 1, 1)),
        "observed": np.tile(INFORMATION, (B, 1, 1)),
        "beta": (5.0 + 2.0 * away.sum(axis=1))[:, None],
        "slopes": np.full((B, 3, 1), 2.0),
        "scale_factor": np.ones(B),
    }


def told_climb(start, changed=lambda ids, v, found: None, *, held=(), n=None):
    """Return a climb of quadratic likelihoods, some of it changed, and its points."""
    points = []

    class Told(_Climb):
        def _derivatives(self, stack, v):
            found = quadratics(stack.ids, v)
            changed(stack.ids, v, found)
            points.append({int(b): row.copy() for b, row in zip(stack.ids, v, strict=True)})
            return StackedDerivatives(**found)

    start = np.array(start, dtype=float)
    rows = Rows(np.arange(len(start)), np.full(len(start), 12.0) if n is None else n)
    return Told(rows, np.isin(np.arange(3), held), start), points


def test_climbs_end_at_their_maxima_by_a_last_step():
    start = [np.add(TOP, [0.1, -0.2, 0.3]), TOP, TOP + 1e-6, TOP - 1e-10]
    climb, points = told_climb(start)
    climb.run()
    assert climb.done.all()
    np.testing.assert_allclose(climb.v, np.tile(TOP, (4, 1)), rtol=1e-12)
    np.testing.assert_allclose(climb.at.loglike, 7.0, rtol=1e-14)
    np.testing.assert_allclose(climb.at.beta, 5.0, rtol=1e-12)
    # A step of the first; those whose next step leaves nothing are not evaluated again.
    assert [sorted(p) for p in points] == [[0, 1, 2, 3], [0]]
    found = climb.maxima()
    assert found.found.all()


def test_what_a_stack_requires_is_what_one_climb_requires():
    start = TOP + np.array([[7e-4, 0.0, 0.0], [4e-4, 0.0, 0.0], [0.3, 0.3, 0.0]])

    def changed(ids, v, found):
        found["loglike"] += np.array([-90.0, -1e4, 4.0])[ids]

    climb, _ = told_climb(start, changed, n=np.array([12.0, 30.0, 1e5]))
    assert climb.decrement[1] < 1e-3 < climb.decrement[[0, 2]].min()
    gain = np.array([1.0, 0.25, 0.5]) * (climb.step * climb.at.score).sum(axis=1)
    rows = climb.at.loglike, gain, climb.decrement, climb.stack.n
    expected = [
        value + 1e-4 * rise - (1e-12 if decrement < 1e-3 else 1e-14) * max(abs(value), n)
        for value, rise, decrement, n in zip(*rows, strict=True)
    ]
    np.testing.assert_array_equal(Place.required(*rows), expected)
    np.testing.assert_array_equal(
        [Place.required(*one) for one in zip(*rows, strict=True)], expected
    )


@pytest.mark.parametrize("factor", [0.3, 0.49, 0.51, 1.9, 2.1, 7.0, -1.0, 0.0, np.inf, np.nan])
@pytest.mark.parametrize("held", [(), (1,)])
def test_stacked_components_of_another_unit_are_scaled_first(factor, held):
    start = np.tile(np.add(TOP, [0.5, -0.3, 0.2]), (2, 1))

    def changed(ids, v, found):
        found["scale_factor"] = np.where((ids == 0) & (v == start[0]).all(axis=1), factor, 1.0)

    climb, points = told_climb(start, changed, held=held)
    climb.run()
    assert climb.done.all()
    beyond = factor > 2.0 or 0.0 < factor < 0.5
    scaled = np.isfinite(factor) and beyond and not held
    first = points[1][0]
    np.testing.assert_allclose(first, factor * start[0] if scaled else points[1][1], rtol=1e-12)
    if not held:
        np.testing.assert_allclose(climb.v, np.tile(TOP, (2, 1)), rtol=1e-9)


@pytest.mark.parametrize("halvings", range(11))
def test_a_step_of_a_data_set_is_halved_until_it_rises(halvings):
    """At most eight times, beside others that go on; a step that is accepted is whole again."""
    start = np.tile(np.add(TOP, [0.5, -0.3, 0.2]), (3, 1))
    whole = TOP - start[0]
    asked = []

    def changed(ids, v, found):
        for row in np.flatnonzero(ids == 1):
            asked.append(v[row].copy())
            if 1 < len(asked) <= 1 + halvings:
                found["loglike"][row] = -1e9

    climb, _ = told_climb(start, changed)
    climb.run()
    expected = [start[1], *(start[1] + 0.5**h * whole for h in range(min(halvings, 8) + 1))]
    for trial, at in zip(asked, expected, strict=False):
        np.testing.assert_allclose(trial, at, rtol=1e-12)
    assert climb.failed.tolist() == [False, halvings > 8, False]
    assert climb.done.tolist() == [True, halvings <= 8, True]
    np.testing.assert_allclose(climb.v[climb.done], np.tile(TOP, (int(climb.done.sum()), 1)))


def test_climbs_without_a_value_or_an_information_have_failed():
    start = np.tile(np.add(TOP, [0.1, -0.2, 0.3]), (3, 1))

    def changed(ids, v, found):
        found["loglike"][ids == 0] = np.nan
        found["average"][ids == 1] = -INFORMATION

    climb, _ = told_climb(start, changed)
    assert climb.failed.tolist() == [True, True, False]
    climb.run()
    assert climb.done.tolist() == [False, False, True]
    assert climb.maxima().found.tolist() == [False, False, True]
    np.testing.assert_array_equal(climb.v[:2], start[:2])


@pytest.mark.parametrize(
    ("v", "held", "is_found"),
    [
        ([2.0, 1.0, 3.0], (), True),
        ([0.0, 1.0, 3.0], (), True),  # at its bound
        ([0.49e-6, 1.0, 3.0], (), False),  # within 10⁻⁶ of a standard error, 1/√I
        ([0.51e-6, 1.0, 3.0], (), True),
        ([2.0, 1.9e-6, 3.0], (), False),
        ([2.0, 2.1e-6, 3.0], (), True),
        ([0.49e-6, 1.0, 3.0], (0,), True),
        ([0.49e-6, 1.0, 3.0], (1,), False),
        ([2.0, 1.0, 3.1e-6], (), True),  # a residual of a millionth
        ([2.0, 1.0, 2.9e-6], (), False),
    ],
)
def test_what_is_next_to_a_bound_is_left_to_others(v, held, is_found):
    climb, _ = told_climb([TOP, TOP], held=held)
    climb.v[:] = v
    climb.done[:] = [True, False]
    assert climb.maxima().found.tolist() == [is_found, False]


@pytest.mark.parametrize(
    ("away", "changes", "is_last"),
    [
        # By Newton's steps after one of 0.01: d³/0.01² is 10⁻⁹ for d = 10^(−13/3).
        (0.99 * 10 ** (-13 / 3), {}, True),
        (1.01 * 10 ** (-13 / 3), {}, False),
        (0.99e-8, {"observed": -1.0}, True),  # by the average information: 10⁻⁸
        (1.01e-8, {"observed": -1.0}, False),
        (0.99e-8, {"n": 1.5e-7}, False),  # σ²s is 4e-8, more than 10⁻⁴ √n
        (0.99e-8, {"n": 1.7e-7}, True),
    ],
)
def test_a_step_that_ends_a_climb_is_known(away, changes, is_last):
    """Away by so many standard errors along the first component, from its maximum at 2."""

    def changed(ids, v, found):
        found["observed"] *= changes.get("observed", 1.0)

    start = np.add(TOP, [away / 2.0, 0.0, 0.0])
    climb, _ = told_climb([start], changed, n=np.full(1, changes.get("n", 12.0)))
    assert climb.decrement[0] == pytest.approx(away, rel=1e-6)
    assert climb.is_last.tolist() == [is_last]


def test_the_observed_information_is_used_within_a_standard_error():
    def changed(ids, v, found):
        found["average"] = 2.0 * found["average"]

    for away, factor in ((1.41, 1.0), (1.42, 0.5)):  # by the average one √½ of it
        climb, _ = told_climb([np.add(TOP, [away / 2.0, 0.0, 0.0])], changed)
        np.testing.assert_allclose(climb.step[0], [-factor * away / 2.0, 0.0, 0.0], atol=1e-9)


def test_a_component_at_zero_moves_if_its_score_is_above_rounding():
    """By more than 10⁻⁸ of a standard error of the score, √I: half of that for the second."""
    for score, moves in ((0.49e-8, False), (0.51e-8, True)):

        def changed(ids, v, found, score=score):
            found["score"][:, 1] = score
            found["average"] = found["observed"] = np.diag([4.0, 0.25, 9.0])[None]

        climb, _ = told_climb([[2.0, 0.0, 3.0]], changed)
        assert bool(climb.step[0, 1] > 0.0) is moves


def test_steps_by_the_average_information_are_whole_ones_each():
    """One that is 1.25 times too large leaves a fifth of the way."""

    def changed(ids, v, found):
        found["average"] = 1.25 * found["average"]
        found["observed"] = -found["observed"]

    start = np.add(TOP, [0.5, -0.3, 0.2])
    climb, points = told_climb([start], changed)
    climb.run()
    assert climb.done.all()
    for k, point in enumerate(points[:8]):
        np.testing.assert_allclose(point[0] - TOP, 0.2**k * (start - TOP), rtol=1e-6)


@pytest.mark.parametrize("unit", [1.0, 1e-5, 1e5])
@pytest.mark.parametrize("shared", [0.9, 1.0])
@pytest.mark.parametrize("of_columns", [0.9, 1.0])
def test_data_sets_identify_what_is_not_collinear(unit, shared, of_columns):
    """Components by the expected information, which is 2 I_A − I_O, and columns of X by X'X."""
    units = np.array([unit, 1.0, 2.0])
    expected = np.array([[1.0, shared, 0.0], [shared, 1.0, 0.0], [0.0, 0.0, 1.0]])
    expected = expected * np.outer(units, units)

    def changed(ids, v, found):
        found["average"] = np.diag(3.0 * units**2)[None]
        found["observed"] = 2.0 * found["average"] - expected

    climb, _ = told_climb([TOP], changed)
    climb.stack.n_fixed = 2
    XX = np.array([[1.0, of_columns * unit], [of_columns * unit, unit**2]])
    climb.stack.XX = XX[None]
    assert climb.is_identified().tolist() == [shared < 1.0 and of_columns < 1.0]
    climb.stack.n_fixed = 0
    assert climb.is_identified().tolist() == [shared < 1.0]


def test_terms_may_have_two_levels():
    stack, _ = stack_of(frame(1), frame(2, b=3), frame(3, a=3), frame(4, b=2))
    found = maximise_stack(
        likelihoods(stack, reml=True), np.ones(4), np.zeros(4, dtype=bool), once=True
    )
    assert found.found.all()

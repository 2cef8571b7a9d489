"""Prediction error variances by strata, elimination and iteration, against dense matrices."""

import numpy as np
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import DESIGNS, GRIDS, balanced, gridded, unbalanced
from vcomp.estimators.likelihood import EngineLimits
from vcomp.estimators.likelihood.prediction_errors import (
    _by_equations,
    _by_iteration,
    _by_levels,
    difference_variances,
    predicted_columns,
    prediction_variances,
)
from vcomp.exceptions import EstimationError

MAKE = {"balanced": balanced, "unbalanced": unbalanced, "gridded": gridded}
CASES = [
    *(("balanced", name) for name in sorted(DESIGNS)),
    *(("unbalanced", name) for name in sorted(DESIGNS)),
    *(("gridded", name) for name in sorted(GRIDS)),
]
ITERATION = EngineLimits(for_variances=0.0)
SLOW = EngineLimits(exact=0.0)


def problem(kind, name, fixed="1"):
    formula, data = MAKE[kind](name)
    data = data.assign(x=np.random.default_rng(2).normal(size=len(data)))
    model = vcomp.VarianceComponentsModel(formula.replace("~", f"~ {fixed} +"), data)
    rng = np.random.default_rng(1)
    v = rng.uniform(0.2, 2.0, len(model.component_names))
    return model, v, rng


def inverse_of_equations(model, v):
    """Return the covariance of [û − u, β̂ − β], zero for terms at zero."""
    Z = [
        np.eye(q)[c]
        for c, q in zip(model.statistics.rows.codes, model.statistics.rows.sizes, strict=True)
    ]
    W = np.column_stack([*Z, model.statistics.rows.X])
    with np.errstate(divide="ignore"):
        ridge = [np.full(z.shape[1], 1.0 / s) for z, s in zip(Z, v, strict=False)]
    ridge = np.concatenate([*ridge, np.zeros(model.statistics.rows.n_fixed)])
    there = np.isfinite(ridge)
    C = W[:, there].T @ W[:, there] / v[-1] + np.diag(ridge[there])
    found = np.zeros((W.shape[1], W.shape[1]))
    found[np.ix_(there, there)] = np.linalg.inv(C)
    return found


@pytest.mark.parametrize(("case", "zero"), alternately(CASES, False, True), ids=str)
def test_variances_of_combinations(case, zero):
    """Of rows of the data, of single effects, of any groups together, and of the fixed part."""
    (kind, name), limits = case, ITERATION if zero else EngineLimits()
    model, v, rng = problem(kind, name, "x")
    sizes, k = model.statistics.rows.sizes, len(model.statistics.rows.sizes)
    if zero:
        v[0] = 0.0
    whole, starts = inverse_of_equations(model, v), np.cumsum([0, *sizes])
    rows = rng.integers(0, model.nobs, 4)
    groups = np.array([[c[r] for c in model.statistics.rows.codes] for r in rows])
    single = np.full((k, k), -1)
    single[np.diag_indices(k)] = [rng.integers(0, q) for q in sizes]
    any_of_them = np.array([[rng.integers(-1, q) for q in sizes] for _ in range(5)])
    groups = np.concatenate([groups, single, any_of_them, np.full((1, k), -1)])
    X = rng.normal(size=(len(groups), model.statistics.rows.n_fixed))
    X[4 : 4 + k] = 0.0
    c = np.zeros((len(groups), whole.shape[0]))
    for row, of in zip(c, groups, strict=True):
        row[[starts[t] + g for t, g in enumerate(of) if g >= 0]] = 1.0
    c[:, starts[-1] :] = X
    expected = np.einsum("ij,jk,ik->i", c, whole, c)
    found = prediction_variances(model.statistics, v, groups, X, limits)
    rtol = 1e-9 if limits is not ITERATION else 1e-7
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-10)
    assert prediction_variances(model.statistics, v, groups[:0], X[:0], limits).size == 0


@pytest.mark.parametrize("limits", [EngineLimits(), ITERATION], ids=["exact", "iteration"])
@pytest.mark.parametrize("fixed", ["1", "x", "0"])
@pytest.mark.parametrize("name", ["crossed", "nested", "three facets"])
def test_variances_of_differences(name, fixed, limits):
    model, v, rng = problem("unbalanced", name, fixed)
    whole, starts = inverse_of_equations(model, v), np.cumsum([0, *model.statistics.rows.sizes])
    for t, q in enumerate(model.statistics.rows.sizes):
        pairs = rng.integers(0, q, (2, 20))  # more than are solved for at once
        c = np.zeros((20, whole.shape[0]))
        np.add.at(c, (np.arange(20), starts[t] + pairs[0]), 1.0)
        np.add.at(c, (np.arange(20), starts[t] + pairs[1]), -1.0)
        expected = np.einsum("ij,jk,ik->i", c, whole, c)
        found = difference_variances(model.statistics, v, t, (pairs[0], pairs[1]), limits)
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("fixed", ["1", "x", "0"])
def test_few_effects_over_many_levels_need_no_factor(fixed):
    """Of universe scores: the other facet's levels are absorbed one by one."""
    rng = np.random.default_rng(3)
    p, a, d = np.indices((4, 2, 15)).reshape(3, -1)[:, rng.random(120) > 0.1]
    data = {"p": p, "a": a, "d": d, "i": d % 3, "x": rng.normal(size=p.size), "y": p + d}
    terms = "(1|p) + (1|a) + (1|p:a) + (1|i) + (1|p:i) + (1|i:d) + (1|i:d:p)"
    model = vcomp.VarianceComponentsModel(f"y ~ {fixed} + {terms}", data)
    v = rng.uniform(0.2, 2.0, len(model.component_names))
    v[1] = 0.0
    whole, starts = inverse_of_equations(model, v), np.cumsum([0, *model.statistics.rows.sizes])
    names = [term.name for term in model.design.terms]
    groups = np.full((2, 6, len(names)), -1)
    for t, name in enumerate(names):
        if "d" not in name:
            groups[:, :, t] = rng.integers(-1, model.statistics.rows.sizes[t], (2, 6))
    X = rng.normal(size=(6, model.statistics.rows.n_fixed))
    c = np.zeros((6, whole.shape[0]))
    c[:, starts[-1] :] = X
    for sign, some in ((1.0, groups[0]), (-1.0, groups[1])):
        for row, of in zip(c, some, strict=True):
            for t, g in enumerate(of):
                row[starts[t] + g] += sign * (g >= 0)
    expected = np.einsum("ij,jk,ik->i", c, whole, c)
    found = _by_levels(model.statistics, v, groups[0], X, groups[1])
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    inner = np.full((1, len(names)), 0)
    assert _by_levels(model.statistics, v, inner, X[:1]) is None


@pytest.mark.parametrize(("terms", "is_faster"), [("", True), (" + (1|a:b)", False)])
def test_levels_are_not_evaluated_where_elimination_is_faster(terms, is_faster):
    """A fit has its factor at the maximum, and levels would be evaluated for each term."""
    rng = np.random.default_rng(0)
    a, b = np.tile(np.indices((12, 200)).reshape(2, -1), 2)[:, rng.random(4800) < 0.6]
    data = {"a": a, "b": b, "y": rng.normal(size=a.size)}
    stats = vcomp.VarianceComponentsModel(f"y ~ (1|a) + (1|b){terms}", data).statistics
    v, X = np.array([0.8, 1.3, *[0.5] * (terms != ""), 1.0]), np.zeros((5, 1))
    groups = np.full((5, v.size - 1), -1)
    groups[:, 0] = np.arange(5)
    assert (_by_levels(stats, v, groups, X, None, EngineLimits()) is None) == is_faster
    expected = _by_levels(stats, v, groups, X)
    np.testing.assert_allclose(prediction_variances(stats, v, groups, X), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("case", "zero_and_fixed"),
    alternately(CASES, (False, "x"), (True, "1"), (True, "0")),
    ids=str,
)
def test_predicted_effects_of_the_columns_of_the_fixed_part(case, zero_and_fixed):
    (kind, name), (zero, fixed) = case, zero_and_fixed
    model, v, _ = problem(kind, name, fixed)
    if zero:
        v[0] = 0.0
    Z = [
        np.eye(q)[c]
        for c, q in zip(model.statistics.rows.codes, model.statistics.rows.sizes, strict=True)
    ]
    V = v[-1] * np.eye(model.nobs) + sum(s * z @ z.T for s, z in zip(v, Z, strict=False))
    VX = np.linalg.solve(V, model.statistics.rows.X)
    for t, found in enumerate(predicted_columns(model.statistics, v)):
        np.testing.assert_allclose(found, v[t] * Z[t].T @ VX, rtol=1e-7, atol=1e-9)


def test_too_many_solves_are_refused():
    model, v, _ = problem("unbalanced", "crossed")
    stats = model.statistics.cross_products
    groups, X = np.zeros((5, 2), dtype=np.int64), np.ones((5, 1))
    entries = float(stats.n_entries)
    assert _by_iteration(stats, v, groups, X, 5.0 * entries).shape == (5,)
    for most, advice in ((4.99 * entries, 4), (0.5 * entries, 1)):
        with pytest.raises(EstimationError, match=f"the 16 random .* at most {advice} predict"):
            _by_iteration(stats, v, groups, X, most)


def test_many_combinations_have_variances_from_probes():
    """Where a factor takes longer than a fit may; within a hundredth of the exact ones."""
    rng, n = np.random.default_rng(3), 6_000
    a, b = rng.integers(0, 300, n), rng.integers(0, 290, n)
    data = {"y": rng.normal(size=n) + rng.normal(size=300)[a], "a": a, "b": b, "x": rng.random(n)}
    stats = vcomp.VarianceComponentsModel("y ~ x + (1|a) + (1|b)", data).statistics
    v, X = np.array([1.0, 0.4, 1.1]), rng.normal(size=(40, 2))
    groups = np.full((40, 2), -1)
    groups[:20, 0], groups[20:39, 1] = rng.integers(0, 300, 20), rng.integers(0, 290, 19)
    solved = prediction_variances(stats, v, groups, X)
    np.testing.assert_allclose(solved, _by_iteration(stats.cross_products, v, groups, X), 1e-8)
    given = (stats, v, groups, X)
    np.testing.assert_array_equal(_by_equations(*given, EngineLimits(), most_solved=0.0), solved)
    found = _by_equations(*given, SLOW, most_solved=0.0)
    np.testing.assert_allclose(found, solved, rtol=0.01)
    assert (found[:39] != solved[:39]).all()
    groups[:] = np.column_stack([rng.integers(0, 300, 40), rng.integers(0, 290, 40)])
    solved = _by_iteration(stats.cross_products, v, groups, X)
    found = _by_equations(*given, SLOW, most_solved=0.0)
    np.testing.assert_allclose(found, solved, rtol=0.02)
    assert (found != solved).all()


def test_large_errors_of_probes_are_no_variances():
    """With two scores a level, more than 128 probes would be needed: each variance has a solve."""
    rng, n = np.random.default_rng(3), 600
    a, b = rng.integers(0, 300, n), rng.integers(0, 290, n)
    stats = vcomp.VarianceComponentsModel(
        "y ~ (1|a) + (1|b)", {"y": rng.normal(size=n), "a": a, "b": b}
    ).statistics
    v, groups = np.array([1.0, 1.0, 0.01]), np.column_stack(stats.cells.codes)[:9].astype(int)
    given = (stats, v, groups, np.ones((9, 1)))
    solved = _by_iteration(stats.cross_products, *given[1:])
    found = _by_equations(*given, EngineLimits(exact=0.0, for_variances=0.0), most_solved=0.0)
    np.testing.assert_allclose(found, solved, rtol=1e-8)

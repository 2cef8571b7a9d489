"""Residuals of least squares on several terms, against dense least squares."""

import numpy as np
import pytest

from vcomp.inference.assumptions import Projection


def dense(y, groups, X=None):
    columns = [np.eye(int(g.max()) + 1)[g] for g in groups]
    Z = np.column_stack(columns if X is None else [*columns, X])
    return y - Z @ np.linalg.lstsq(Z, y, rcond=None)[0], y.size - np.linalg.matrix_rank(Z)


@pytest.mark.parametrize("n_terms", [1, 2, 3])
@pytest.mark.parametrize("fixed", [False, True])
def test_residuals_and_their_degrees_of_freedom(n_terms, fixed):
    rng = np.random.default_rng(n_terms)
    groups = [rng.integers(0, k, 80) for k in (9, 6, 4)[:n_terms]]
    groups = [np.unique(g, return_inverse=True)[1] for g in groups]
    X = rng.normal(size=(80, 2)) if fixed else None
    y = rng.normal(size=(80, 3))
    projection = Projection.of(groups, X)
    wanted, df = dense(y[:, 0], groups, X)
    np.testing.assert_allclose(projection.residuals(y[:, 0]), wanted, atol=1e-12)
    each = np.column_stack([dense(column, groups, X)[0] for column in y.T])
    np.testing.assert_allclose(projection.residuals(y), each, atol=1e-12)
    assert projection.df == df


def test_terms_that_others_are_nested_in_are_left_out():
    inner = np.arange(24) // 2
    outer = inner // 3
    projection = Projection.of([outer, inner])
    assert len(projection.groups) == 1
    y = np.random.default_rng(1).normal(size=24)
    np.testing.assert_allclose(projection.residuals(y), dense(y, [inner])[0], atol=1e-14)


def test_sweeps_give_the_same_residuals():
    rng = np.random.default_rng(5)
    groups = [np.arange(300) % 30, rng.integers(0, 20, 300)]
    X = rng.normal(size=(300, 1))
    projection = Projection.of(groups, X)
    y = rng.normal(size=(300, 2))
    for unit in (1e-8, 1.0, 1e8):
        found = projection._by_sweeps(unit * y)
        np.testing.assert_allclose(found, unit * projection.residuals(y), atol=1e-7 * unit)
    assert projection.df == 300 - 30 - 19 - 1
    vast = Projection.of(groups, X)
    vast.__dict__["_solved"] = None, np.nan  # too large for a dense matrix
    assert vast.df == projection.df
    np.testing.assert_allclose(vast.residuals(y), projection.residuals(y), atol=1e-7)
    # Of columns of X only what the terms do not have counts, in any unit.
    for unit in (1e-6, 1e6):
        both = Projection.of(groups, np.column_stack([np.ones(300), unit * X]))
        both.__dict__["_solved"] = None, np.nan
        assert both.df == projection.df


@pytest.mark.parametrize("by_sweeps", [True, False])
def test_weighted_rows_are_those_of_multiplied_columns(by_sweeps):
    rng = np.random.default_rng(9)
    g, h = np.arange(90) % 10, rng.integers(0, 4, 90)
    x, z, y = rng.normal(2.0, 1.0, size=(3, 90))
    z[g == 3] = 1.5  # constant in a group, where the intercept has all of it
    roots = np.sqrt(rng.integers(1, 9, 90))
    projection = Projection.of([g, h], x[:, None], [(g, z)], roots)
    if by_sweeps:
        projection.__dict__["_solved"] = None, np.nan
    Z = np.column_stack([np.eye(10)[g], np.eye(4)[h], np.eye(10)[g] * z[:, None], x])
    Z = roots[:, None] * Z
    wanted = roots * y - Z @ np.linalg.lstsq(Z, roots * y, rcond=None)[0]
    np.testing.assert_allclose(
        projection.residuals(roots * y), wanted, atol=1e-6 if by_sweeps else 1e-11
    )
    assert projection.df == 90 - np.linalg.matrix_rank(Z)


@pytest.mark.parametrize("with_intercepts", [True, False])
@pytest.mark.parametrize("by_sweeps", [True, False])
def test_slopes_are_removed_group_by_group(with_intercepts, by_sweeps):
    rng = np.random.default_rng(7)
    g, h = np.arange(120) % 12, rng.integers(0, 5, 120)
    z, w = rng.normal(3.0, 1.0, size=(2, 120))
    z[g == 4] = 2.5  # constant in a group, where an intercept has all of it
    groups = [h, g] if with_intercepts else [h]
    projection = Projection.of(groups, z[:, None], [(g, z), (g, w)])
    columns = [np.eye(5)[h], np.eye(12)[g] * z[:, None], np.eye(12)[g] * w[:, None]]
    columns += [np.eye(12)[g]] if with_intercepts else []
    Z = np.column_stack(columns)
    y = rng.normal(size=120)
    wanted = y - Z @ np.linalg.lstsq(Z, y, rcond=None)[0]
    if by_sweeps:  # too large for a dense matrix; they converge slowly where columns correlate
        projection.__dict__["_solved"] = None, np.nan
    close = 1e-5 if by_sweeps else 1e-12
    np.testing.assert_allclose(projection.residuals(y), wanted, atol=close)
    assert projection.df == 120 - np.linalg.matrix_rank(Z)

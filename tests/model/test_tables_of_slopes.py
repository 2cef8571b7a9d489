"""Tests of whole factors and marginal means of models with slopes, against dense matrices."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vcomp
from tests.helpers.dense_tests import DenseMatrices, kenward_roger, satterthwaite, several

FORMULAS = ("y ~ m + x + (m|w)", "z ~ m * x + (x|w) + (1|v)")
"""A factor whose effects vary, as of nlme's Machines, and a covariate whose slope does."""


def scores():
    rng = np.random.default_rng(14)
    w, m, _ = (a.ravel() for a in np.indices((9, 3, 3)))
    x, v = rng.normal(size=w.size), rng.integers(0, 5, w.size)
    e, u = 0.5 * rng.normal(size=w.size), 2.0 * rng.normal(size=9)[w] + np.array([0, 1, 3.0])[m]
    y = u + rng.normal(size=(9, 3))[w, m] + 0.5 * x + e
    z = u + rng.normal(size=5)[v] + x * (1.0 + rng.normal(size=9))[w] + e
    columns = {"y": y, "z": z, "w": w, "m": np.array(list("abc"))[m], "x": x, "v": v}
    data = pd.DataFrame(columns)
    return data[rng.random(w.size) < 0.8]  # unbalanced


DATA = scores()


@pytest.fixture(scope="module", params=FORMULAS)
def fitted(request):
    res = vcomp.fit(request.param, DATA)
    v, names = res.vcomp.to_numpy(), list(res.fe_params.index)
    return res, DenseMatrices(res), v, np.ones(v.size, dtype=bool), names


def of_term(names):
    """Return the term of type 3 that has two degrees of freedom last, and the rows of its test."""
    term = "m:x" if "m[T.b]:x" in names else "m"
    L = np.zeros((2, len(names)))
    for row, level in enumerate("bc"):
        L[row, names.index(f"m[T.{level}]" + term[1:])] = 1.0
    return term, L


def test_the_likelihood_has_an_inner_maximum(fitted):
    res, dense, v, _, _ = fitted
    assert res.status == "Converged."
    assert res.llf == pytest.approx(dense.loglike(v), rel=1e-12)


def test_a_term_is_tested_as_a_whole_by_satterthwaite(fitted):
    res, dense, v, free, names = fitted
    term, L = of_term(names)
    F, df = several(dense, v, free, L)
    found = res.f_test(L)
    assert (found.statistic, *found.df) == pytest.approx((F, 2.0, df), rel=1e-6)
    # The degrees of freedom depend on the rows that a hypothesis is written in, F does not.
    row = res.anova().loc[term]
    assert (row["F"], row["df_num"]) == pytest.approx((F, 2.0), rel=1e-6)
    assert row["p_value"] == pytest.approx(stats.f.sf(F, 2.0, row["df_denom"]), rel=1e-6)


def test_a_term_is_tested_as_a_whole_by_kenward_and_roger(fitted):
    res, dense, v, free, names = fitted
    term, L = of_term(names)
    adjusted, df, scale = kenward_roger(dense, v, free, L)
    difference = L @ dense.matrices(v)[4]
    F = scale * difference @ np.linalg.solve(L @ adjusted @ L.T, difference) / 2.0
    row = res.anova(ddf="kenward-roger").loc[term]
    assert tuple(row[["F", "df_num", "df_denom"]]) == pytest.approx((F, 2.0, df), rel=1e-6)
    assert row["p_value"] == pytest.approx(stats.f.sf(F, 2.0, df), rel=1e-5)


@pytest.mark.parametrize("ddf", ["satterthwaite", "kenward-roger"])
def test_marginal_means_are_combinations_of_the_fixed_effects(fitted, ddf):
    res, dense, v, free, names = fitted
    at, beta, phi = 0.4, dense.matrices(v)[4], dense.matrices(v)[3]
    table = res.marginal_means("m", at={"x": at}, ddf=ddf).table
    for level in "abc":
        L = np.zeros((1, len(names)))
        for column, name in enumerate(names):
            has_level = "[" not in name or f"[T.{level}]" in name
            L[0, column] = has_level * (at if name.endswith("x") else 1.0)
        if ddf == "satterthwaite":
            variance, df = (L @ phi @ L.T).item(), satterthwaite(dense, v, free, L).item()
        else:
            adjusted, df, _ = kenward_roger(dense, v, free, L)
            variance = (L @ adjusted @ L.T).item()
        row = table.loc[level]
        assert row["mean"] == pytest.approx((L @ beta).item(), rel=1e-8)
        assert row["std_error"] == pytest.approx(variance**0.5, rel=1e-7)
        assert row["df"] == pytest.approx(df, rel=1e-6)

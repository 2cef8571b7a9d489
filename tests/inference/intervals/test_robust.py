"""Robust degrees of freedom against brute force over pairs of rows, and closed forms."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from vcomp.inference.intervals.classical import mean_squares
from vcomp.inference.intervals.robust import (
    closed_sets,
    exactly_shared,
    level_variances,
    robust_mean_squares,
)


def crossed(sizes, seed=0, missing=0.0):
    """Return a table of crossed facets, with effects that are not normal."""
    rng = np.random.default_rng(seed)
    grid = np.meshgrid(*(np.arange(n) for n in sizes.values()), indexing="ij")
    frame = pd.DataFrame({f: g.ravel() for f, g in zip(sizes, grid, strict=True)})
    frame["y"] = rng.exponential(size=len(frame))
    for facet in sizes:
        frame["y"] += 2.0 * rng.exponential(size=sizes[facet])[frame[facet]]
    keep = rng.random(len(frame)) >= missing
    return frame[keep].reset_index(drop=True)


DESIGNS = {
    "one-way": ("y ~ (1|s)", {"s": 8, "k": 5}, 0.3),
    "s x t": ("y ~ (1|s) + (1|t)", {"s": 7, "t": 9}, 0.0),
    "s x t with holes": ("y ~ (1|s) + (1|t)", {"s": 7, "t": 9}, 0.2),
    "p x i x a": ("y ~ (1|p) + (1|i) + (1|a) + (1|p:i)", {"p": 7, "i": 6, "a": 6}, 0.0),
    "p x (i:h)": ("y ~ (1|p) + (1|h/i)", {"p": 7, "h": 6, "i": 3}, 0.1),
    "covariate": ("y ~ x + (1|s) + (1|t)", {"s": 7, "t": 9}, 0.2),
}


def fitted(name, method="reml", seed=0):
    formula, sizes, missing = DESIGNS[name]
    frame = crossed(sizes, seed, missing)
    frame["x"] = np.random.default_rng(seed + 1).normal(size=len(frame))
    return vcomp.fit(formula, frame, method=method), frame


def levels_of(res):
    access = res._row_access
    model, chunk = access.model, access.model.chunk
    return level_variances(
        model.design, model.statistics, lambda of, *known: of(*known, chunk), access.components
    )


def robust_squares(res):
    return robust_mean_squares(replace(res._record.components, levels=levels_of(res)))


@given(st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_pairs_that_share_exactly_a_set(seed):
    """Σ ψψ' over pairs of rows, counted one by one."""
    rng = np.random.default_rng(seed)
    n, nested_in = 30, {"i": frozenset({"h"})}
    codes = {"p": rng.integers(0, 3, n), "h": rng.integers(0, 3, n)}
    codes["i"] = 3 * codes["h"] + rng.integers(0, 2, n)
    psi = rng.normal(size=(n, 2))
    sets = closed_sets(["p", "i", "h"], nested_in)
    products = []
    for chosen in sets:
        keys = pd.DataFrame({f: codes[f] for f in chosen}).apply(tuple, axis=1)
        sums = pd.DataFrame(psi).groupby(keys).sum().to_numpy()
        products.append(sums.T @ sums)
    found = exactly_shared(sets, np.array([*products, psi.T @ psi]))
    expected = {s: np.zeros((2, 2)) for s in sets}
    for i, j in combinations(range(n), 2):
        shared = frozenset(f for f in codes if codes[f][i] == codes[f][j])
        if shared:
            both = np.outer(psi[i], psi[j])
            expected[shared] += both + both.T
    for matrix, chosen in zip(found, sets, strict=False):
        np.testing.assert_allclose(matrix, expected[chosen], atol=1e-12)
    np.testing.assert_allclose(found[-1], psi.T @ psi, rtol=1e-13)


@pytest.mark.parametrize("n", [6, 20, 100])
def test_of_one_way_data_they_follow_from_the_kurtosis_of_the_means(n):
    """W of (10.18) is (b₂ − 1)/n, with b₂ Pearson's kurtosis of the means of the groups."""
    rng = np.random.default_rng(n)
    frame = pd.DataFrame({"s": np.repeat(np.arange(n), 4)})
    frame["y"] = rng.exponential(size=n)[frame.s] + 0.1 * rng.normal(size=len(frame))
    res = vcomp.fit("y ~ (1|s)", frame)
    levels, components = levels_of(res), res._record.components
    means = frame.groupby("s").y.mean().to_numpy()
    away = means - means.mean()
    kurtosis = np.mean(away**4) / np.mean(away**2) ** 2
    squares = mean_squares(components)
    to_squares = squares.basis @ np.linalg.inv(levels.information) / squares.values[:, None]
    found = to_squares @ levels.shared.sum(axis=0) @ to_squares.T
    assert found[0, 0] == pytest.approx((kurtosis - 1.0) / n, rel=1e-9)
    robust = robust_squares(res)
    assert robust.df[0] < n - 1
    assert robust.df_upper[0] < robust.df[0]


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("method", ["reml", "ml", "minque"])
def test_units_origin_and_order_do_not_matter(name, method):
    res, frame = fitted(name, method)
    squares = robust_squares(res)
    formula = DESIGNS[name][0]
    shuffled = frame.sample(frac=1.0, random_state=3).assign(y=lambda d: 100.0 * d.y - 7.0)
    other = vcomp.fit(formula, shuffled, method=method)
    again = robust_squares(other)
    np.testing.assert_allclose(again.df, squares.df, rtol=1e-5)
    np.testing.assert_allclose(again.df_upper, squares.df_upper, rtol=1e-5)
    np.testing.assert_allclose(again.correlation, squares.correlation, atol=1e-5)


@pytest.mark.parametrize("name", DESIGNS)
def test_rows_in_parts_give_the_same(name):
    res, _ = fitted(name)
    access = res._row_access
    model = access.model
    whole = levels_of(res)
    chunk = model.chunk

    def total(of, *known):
        parts = [
            replace(
                chunk,
                response=chunk.response[rows],
                X=chunk.X[rows],
                compact_codes=tuple(c[rows] for c in chunk.compact_codes),
            )
            for rows in (slice(0, 11), slice(11, 30), slice(30, None))
        ]
        first, *rest = (of(*known, part) for part in parts)
        for other in rest:
            first = first + other
        return first

    found = level_variances(model.design, model.statistics, total, access.components)
    assert found.sets == whole.sets
    np.testing.assert_array_equal(found.sizes, whole.sizes)
    scale = np.abs(whole.shared).max()
    np.testing.assert_allclose(found.shared, whole.shared, atol=1e-12 * scale)

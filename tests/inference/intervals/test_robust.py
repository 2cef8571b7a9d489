"""Robust degrees of freedom against brute force over pairs of rows, and closed forms."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.examples import examples
from vcomp.estimators.likelihood import prediction_engine
from vcomp.exceptions import EstimationError
from vcomp.inference.intervals import FromComponents
from vcomp.inference.intervals.component_squares import (
    _Relation,
    _variances,
    mean_squares,
    robust_mean_squares,
    with_influences,
)
from vcomp.inference.intervals.influences import (
    FEWEST,
    _by_set,
    _InfluencePoint,
    _sets,
    closed_sets,
    exactly_shared,
    level_variances,
)
from vcomp.inference.intervals.level_passes import _FEW_ROWS, sum_influences
from vcomp.inference.intervals.margin_sums import DenseLimits, LevelLayout


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


def levels_of(res, made=None, **options):
    """Return the products by shared levels; options are of the sums of influences."""
    access = res._row_access
    model, chunk = access.model, access.model.statistics.rows
    made = [] if made is None else made

    def total(of, *known):
        made.append(of(*known, chunk, **(options if of is sum_influences else {})))
        return made[-1]

    return level_variances(model.design, model.statistics, total, access.components)


def shared_in(res, limits):
    """Return the numbers of groups of all sets, and the products of pairs that share them."""
    access = res._row_access
    model, chunk = access.model, access.model.statistics.rows

    def total(of, *known):
        return of(*known, chunk)

    layout = LevelLayout.of(model.design, _sets(model.design), total, limits)
    point = _InfluencePoint.of(
        layout, prediction_engine(model.statistics), total, access.components
    )
    sums = total(sum_influences, point.work(slabs=True))
    products = np.array([*_by_set(layout, sums), sums.of_rows])
    numbers = [np.count_nonzero(layout.counts[s]) for s in layout.sets]
    return layout, numbers, exactly_shared(layout.sets, products)


def robust_squares(res):
    return robust_mean_squares(replace(res._record.components, levels=levels_of(res)))


@given(st.integers(0, 1000))
@settings(max_examples=examples(20), deadline=None)
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
    assert robust.df_upper[0] < n - 1


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
    chunk = model.statistics.rows

    def total(of, *known):
        parts = [
            replace(
                chunk,
                response=chunk.response[rows],
                columns=chunk.X[rows],
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


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("largest", [2**62, 100, 30, 10])
def test_groups_that_are_looked_up_give_the_same(name, largest):
    """Sorted keys, of pairs of keys where numbers would become too large, in place of tables."""
    res, _ = fitted(name)
    tables, sizes, whole = shared_in(res, DenseLimits())
    looked_up, again, found = shared_in(res, DenseLimits(8, 0, largest))
    assert all(g.keys is None and g.head is None for g in tables.groups.values())
    assert any(g.keys is not None for g in looked_up.groups.values()) == any(
        g.possible > 8 for g in tables.groups.values()
    )
    assert again == sizes
    np.testing.assert_allclose(found, whole, atol=1e-12 * np.abs(whole).max())


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("shuffled", [False, True])
def test_threads_and_slabs_give_the_same(name, shuffled):
    formula, sizes, missing = DESIGNS[name]
    frame = crossed(sizes, 0, missing)
    frame["x"] = np.random.default_rng(1).normal(size=len(frame))
    if shuffled:
        frame = frame.sample(frac=1.0, random_state=5)
    res = vcomp.fit(formula, frame)
    whole = levels_of(res)
    scale = np.abs(whole.shared).max()
    for slab in (2**19, 8):
        found = levels_of(res, many_rows=0, slab=slab)
        np.testing.assert_allclose(found.shared, whole.shared, atol=1e-12 * scale)
        again = levels_of(res, many_rows=0, slab=slab)
        np.testing.assert_array_equal(again.shared, found.shared)


@pytest.mark.parametrize("n", [300, _FEW_ROWS + 1])
def test_rows_with_weights_count_as_often(n):
    """Means of two rows each have twice the sums and products of the same rows alone."""
    rng = np.random.default_rng(1)
    data = {"s": rng.integers(0, 9, n), "y": rng.normal(size=n)}
    model = vcomp.VarianceComponentsModel("y ~ (1|s)", data)
    chunk, v = model.statistics.rows, np.array([0.5, 1.0])

    def total(of, *known):
        return of(*known, chunk)

    layout = LevelLayout.of(model.design, _sets(model.design), total)
    work = _InfluencePoint.of(layout, prediction_engine(model.statistics), total, v).work(
        slabs=False
    )
    one = sum_influences(work, chunk)
    both = sum_influences(work, replace(chunk, counts=np.full(n, 2.0)))
    # Sums of n terms that cancel, in units of their size.
    size = np.sqrt(np.diagonal(one.of_rows))
    assert (np.abs(both.of_rows - 2.0 * one.of_rows) <= 1e-12 * np.outer(size, size)).all()
    for sums, others in ((both.products[-1], one.products[-1]), *(
        (table.dense, other.dense) for table, other in zip(both.tables, one.tables, strict=True)
    )):  # fmt: skip
        assert (np.abs(sums - 2.0 * others) <= 1e-12 * np.sqrt(n) * size).all()


def test_slabs_are_used():
    frame = crossed({"p": 7, "i": 6, "a": 6})
    formula = "y ~ (1|p) + (1|i) + (1|a) + (1|p:i) + (1|p:a) + (1|i:a)"
    res = vcomp.fit(formula, frame)
    whole = levels_of(res)
    made = []
    found = levels_of(res, made, many_rows=0, slab=8)
    assert made[-1].slabs is not None
    np.testing.assert_allclose(found.shared, whole.shared, atol=1e-12 * np.abs(whole.shared).max())


def brute_force(res, chunk):
    """Sums of influences of rows over sets of facets, from (10.16) and (10.17), dense."""
    access = res._row_access
    design, v = access.model.design, access.components
    n, k = chunk.y.size, v.size - 1
    Z = [np.eye(term.size)[codes] for term, codes in zip(design.terms, chunk.codes, strict=True)]
    V = v[-1] * np.eye(n) + sum(s * z @ z.T for s, z in zip(v, Z, strict=False))
    inverse, X = np.linalg.inv(V), chunk.X
    P = inverse - inverse @ X @ np.linalg.inv(X.T @ inverse @ X) @ X.T @ inverse
    r = P @ chunk.y
    nested_in = design.structure.nested_in
    sets = [
        frozenset(f.facets).union(*(nested_in[g] for g in f.facets)) for f in design.formula.random
    ]
    influence, expected = np.zeros((n, k + 1)), np.zeros((n, k + 1))
    for t in range(k):
        z, size = Z[t], Z[t].sum(axis=0)
        d = v[-1] * r
        spread = v[t] + v[-1] / size
        for other in range(k):
            if sets[t] < sets[other]:
                d = d + v[other] * Z[other] @ (Z[other].T @ r)
                inside = (Z[other].T @ z) ** 2
                spread = spread + v[other] * inside.sum(axis=0) / size**2
        u = z.T @ r
        mean = z.T @ d / size
        c = z @ (u**2 / size) + (z @ (u / (size * spread))) * (d - z @ mean)
        e = z @ (np.diag(z.T @ P @ z) / size)
        influence[:, t], expected[:, t] = c, e
    influence[:, k] = r**2
    for t in range(k):
        expected[:, t] *= influence[:, t].sum() / expected[:, t].sum()
    expected[:, k] = (1.0 - X.shape[1] / n) / v[-1]
    for t in range(k):
        form = Z[t] @ (np.diag(Z[t].T @ P @ Z[t]) / Z[t].sum(axis=0))
        expected[:, k] -= v[t] * form / v[-1]
    expected[:, k] *= influence[:, k].sum() / expected[:, k].sum()
    return influence - expected


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("method", ["reml", "minque"])
def test_influences_by_matrices(name, method):
    """Single rows and all sets against the equations with V inverted."""
    res, frame = fitted(name, method, seed=2)
    # At a bound the expectation is spread by the variances of means.
    assert (res._row_access.components > 0.0).all()
    chunk = res._row_access.model.statistics.rows
    psi = brute_force(res, chunk)
    found = levels_of(res)
    products = []
    for chosen in found.sets[:-1]:
        keys = pd.Series(list(zip(*(frame[f] for f in sorted(chosen)), strict=True)))
        sums = pd.DataFrame(psi).groupby(keys).sum().to_numpy()
        products.append(sums.T @ sums)
    expected = 0.25 * exactly_shared(found.sets[:-1], np.array([*products, psi.T @ psi]))
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found.shared, expected, atol=1e-7 * scale)


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
@pytest.mark.parametrize("name", DESIGNS)
def test_influences_are_continuous_at_the_bound(name):
    """Of every term: with a component of zero, and with one of nearly zero, which is divided by.

    Only the expectation (the second factor) has another rule at a bound.
    """
    res, _ = fitted(name, seed=2)
    access = res._row_access
    model, chunk = access.model, access.model.statistics.rows

    def total(of, *known):
        return of(*known, chunk)

    layout = LevelLayout.of(model.design, _sets(model.design), total, DenseLimits())
    for term in range(access.components.size - 1):
        made = []
        for share in (1.0, 1e-7, 0.0):
            v = access.components.copy()
            v[term] *= share
            made.append(
                _InfluencePoint.of(layout, prediction_engine(model.statistics), total, v).pulls[
                    :, [0, 2, 3]
                ]
            )
        _, near, bound = made
        scale = np.abs(made).max(axis=(0, 1))
        np.testing.assert_allclose(bound / scale, near / scale, atol=1e-3)


def by_the_page(x, n, nu, own, coarser, apart, upper):
    """Return V of one mean square by eqs. (10.19) and (10.20), number by number."""
    fx = [
        value * m / (m - 1.0) * (1.0 + 3.0 * min(1.0, max(m * value, 0.0) / 2.0) / (m - 2.0))
        for value, m in zip(x, n, strict=True)
    ]
    kept = [
        max(value, 0.0) if a else value * (0.3 if c and value < 0.0 else 1.0)
        for value, a, c in zip(fx, apart, coarser, strict=True)
    ]
    one_over_n = sum(abs(v) / m for v, m in zip(fx, n, strict=True)) / sum(map(abs, fx))
    w = sum(kept)
    found = (1.0 + 2.0 * one_over_n) * w + 2.0 * one_over_n * min(2.0 / nu, 2.0 * max(w, 0.0))
    for value, m, o, c in zip(fx, n, own, coarser, strict=True):
        excess = max(value - (max(2.0 / (m - 1.0), 2.0 / nu) if o else 2.0 / (m - 1.0)), 0.0)
        if upper:
            found += min(2.0, m / 20.0, 240.0 / m) * (excess * 2.0 / (m - 1.0)) ** 0.5
        else:
            found += min(2.75, 80.0 / m) * excess
        if c:
            found += 2.0 / m**0.5 * max(value - 2.0 / nu * (2.0 / m) ** 0.5, 0.0)
    share = max(0.05, min(1.0, 40.0 * one_over_n)) if upper else 0.05
    return max(found, share * 2.0 / nu)


@given(
    x=st.lists(st.floats(-0.05, 0.5), min_size=4, max_size=4),
    n=st.lists(st.integers(6, 400), min_size=4, max_size=4),
    nu=st.floats(5.0, 400.0),
)
@settings(deadline=None)
def test_variances_are_those_of_the_page(x, n, nu):
    """Of a mean square on the second set, which lies in the first; the third is apart."""
    x = [value if abs(value) > 1e-3 else 1e-3 for value in x]
    own, coarser = [False, True, False, False], [True, False, False, False]
    apart, few = [False, False, True, False], [False] * 4
    relation = _Relation(*(np.array([v]).T for v in (own, coarser, apart, few)))
    shared = np.array(x)[:, None, None]
    lower, upper, correlation = _variances(
        shared, np.array(n, dtype=float), np.array([2.0 / nu]), relation
    )
    assert lower[0] == pytest.approx(by_the_page(x, n, nu, own, coarser, apart, False), rel=1e-12)
    assert upper[0] == pytest.approx(by_the_page(x, n, nu, own, coarser, apart, True), rel=1e-12)
    assert correlation == np.eye(1)


def test_mean_squares_of_few_levels_vary_as_with_normal_effects_at_least():
    """Two mean squares without any influences; the first one's set has few levels."""
    nothing, few = np.zeros((1, 2), dtype=bool), np.array([[True, False]])
    relation = _Relation(own=few, coarser=nothing, apart=nothing, few=few)
    normal = np.array([0.3, 0.7])
    lower, upper, correlation = _variances(np.zeros((1, 2, 2)), np.array([9.0]), normal, relation)
    np.testing.assert_allclose(lower, normal * [1.0, 0.05], rtol=1e-14)
    np.testing.assert_allclose(upper, normal, rtol=1e-14)  # min(1, 40/9)
    np.testing.assert_array_equal(correlation, np.eye(2))


def test_mean_squares_are_not_robust_without_influences_or_variances():
    components = fitted("s x t")[0]._record.robust_components()
    assert robust_mean_squares(components) is not None
    for lacking in ({"levels": None}, {"cov": None}):
        fewer = replace(components, **lacking)
        assert robust_mean_squares(fewer) is None
        assert FromComponents(fewer, "robust").robust_covariance is None


def test_influences_need_levels_and_rows():
    """Enough levels of some facet of a term, and what sums them."""
    components = fitted("s x t")[0]._record.components
    levels = object()

    def refused():
        raise EstimationError("the rows are not at hand; fit again")

    few, enough = {"s": FEWEST - 1, "t": 2, "other": 99}, {"s": FEWEST, "t": 2}
    for sizes, made, found, reason in (
        (few, lambda: levels, None, f"no facet has {FEWEST} or more levels"),
        (enough, lambda: levels, levels, ""),
        ({}, lambda: levels, levels, ""),
        (enough, refused, None, "the rows are not at hand"),
        (enough, lambda: None, None, "the result was stored without what is needed of the rows"),
    ):
        given, why = with_influences(replace(components, levels=None), sizes, made)
        assert (given.levels, why) == (found, reason)
    unknown = replace(components, levels=None, cov=None)
    given, why = with_influences(unknown, few, lambda: levels)
    assert given is unknown
    assert why == ""


def test_a_facet_that_stands_in_a_term_with_another_only():
    """Digits contain images; the formula has them only together with seeds."""
    data = crossed({"s": 6, "d": 6, "i": 6})
    data["i"] += 10 * data["d"]
    res = vcomp.fit("y ~ (1|s) + (1|s:d) + (1|i)", data)
    low, high = res.conf_int(interval="robust").iloc[1:].to_numpy().T
    assert (low <= res.vcomp).all()
    assert (res.vcomp <= high).all()


def test_information_that_is_singular_to_rounding():
    """A residual of rounding error beside the other components makes it so."""
    components = fitted("s x t")[0]._record.robust_components()
    levels = components.levels
    flat = replace(levels, information=np.ones_like(levels.information))
    with pytest.raises(vcomp.EstimationError, match="singular to rounding"):
        robust_mean_squares(replace(components, levels=flat))


def test_how_sets_of_facets_lie_to_terms():
    """Of p × (i:h) with the residual: each set beside each term, by inclusion."""
    terms = [frozenset(x) for x in ("p", "h", "hi", "phi")]
    sets = [frozenset(x) for x in ("p", "h", "hi", "ph", "phi")]
    found = _Relation.of(
        SimpleNamespace(facets=terms),
        SimpleNamespace(places=range(4)),
        SimpleNamespace(sets=(*sets, frozenset({"p", "h", "i", "row"})), few={"h": 3, "i": 9}),
    )
    expected = {
        #            p h hi phi   of each set, and of single rows
        "own": "1000 0100 0010 0000 0001 0001",
        "coarser": "0001 0011 0001 0001 0000 0000",
        "apart": "0110 1000 1000 0010 0000 0000",
        "few": "0000 0111 0011 0000 0000 0000",
    }
    for name, rows in expected.items():
        wanted = [[bit == "1" for bit in row] for row in rows.split()]
        assert getattr(found, name).tolist() == wanted, name

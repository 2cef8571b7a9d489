"""The engine of two crossed facets; its forms are compared in test_conformance.py."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.dense_likelihood import DenseLikelihood
from tests.helpers.examples import examples
from vcomp.estimators.likelihood import EngineLimits, choose_engine
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.crossed import CrossedLikelihood
from vcomp.exceptions import DataError, EstimationError
from vcomp.statistics import CrossedTable, Statistics, find_crossed_table


def crossed(a, b, kept, seed=0):
    rng = np.random.default_rng(seed)
    rows, columns = np.nonzero(rng.random((a, b)) < kept)
    frame = pd.DataFrame({"a": rows, "b": columns, "x": rng.normal(size=rows.size)})
    frame["y"] = 3.0 + rng.normal(size=a)[rows] + 0.5 * rng.normal(size=b)[columns]
    frame["y"] += rng.normal(size=rows.size)
    return frame.sample(frac=1.0, random_state=seed)


CASES = {
    "few holes": ("y ~ (1|a) + (1|b)", crossed(14, 9, 0.9)),
    "shorter first": ("y ~ (1|b) + (1|a)", crossed(14, 9, 0.9)),
    "more columns": ("y ~ x + (1|a) + (1|b)", crossed(8, 15, 0.7)),
    "half missing": ("y ~ x + (1|a) + (1|b)", crossed(14, 9, 0.5)),
    "no fixed part": ("y ~ 0 + (1|a) + (1|b)", crossed(11, 11, 0.8)),
    "no holes": ("y ~ x + (1|a) + (1|b)", crossed(9, 5, 1.0)),
}
POINTS = ([0.9, 0.4, 1.1], [0.0, 0.4, 1.1], [0.9, 0.0, 1.1], [0.0, 0.0, 1.3], [30.0, 20.0, 0.5])


def engines(name, *, reml):
    model = vcomp.VarianceComponentsModel(*CASES[name])
    table = find_crossed_table(model.statistics.cells)
    blocked = BlockedLikelihood(model.statistics.cross_products, reml=reml)
    return model, CrossedLikelihood(table, reml=reml), blocked


def near(found, wanted, digits=1e-10):
    np.testing.assert_allclose(found, wanted, rtol=0.0, atol=digits * np.abs(wanted).max())


def test_a_small_component_does_not_cancel():
    model, engine, _ = engines("few holes", reml=True)
    dense = DenseLikelihood(model, reml=True)
    for v in (np.array([1.0, 1e-9, 1.0]), np.array([1e-9, 1.0, 1.0])):
        near(engine.derivatives(v).score, dense.score(v))
        near(engine.information(v, "expected"), dense.expected(v))


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_fits_are_those_of_elimination(method):
    formula, data = "y ~ x + (1|a) + (1|b)", crossed(40, 25, 0.85, 3)
    found, wanted = (
        vcomp.fit(formula, data, method=method, engine=e) for e in ("levels", "blocked")
    )
    empty = f"{(1000 - len(data)) / 10:.1f}%"
    assert (
        found.certificate.reason == f"40 levels of 25 cells, {empty} of them empty, by their holes"
    )
    np.testing.assert_allclose(found.vcomp, wanted.vcomp, rtol=1e-9)
    np.testing.assert_allclose(found.components.cov, wanted.components.cov, rtol=1e-7)
    assert found.llf == pytest.approx(wanted.llf, abs=1e-9)


def test_products_with_the_table_of_numbers_by_holes_and_by_cells():
    rng = np.random.default_rng(2)
    for kept in (0.95, 0.4):  # holes of each level are multiplied, or all cells
        empty = rng.random((60, 12)) >= kept
        centred = np.where(empty, 0.0, rng.normal(size=empty.shape))
        for matrix, blank in ((centred, empty), (centred.T, empty.T)):
            table = CrossedTable.of_matrix(matrix, blank)
            F = (~empty).astype(float)
            w, x, z = rng.uniform(size=60), rng.normal(size=(12, 3)), rng.normal(size=(60, 3))
            T = x @ x.T
            np.testing.assert_allclose(table.weighted(w), (F.T * w) @ F, atol=1e-12)
            np.testing.assert_allclose(table.times(x), F @ x, atol=1e-12)
            np.testing.assert_allclose(table.transposed_times(z), F.T @ z, atol=1e-12)
            np.testing.assert_allclose(table.forms(T), np.diag(F @ T @ F.T), atol=1e-11)
            assert table.n == F.sum()
            assert table.yy == pytest.approx((centred**2).sum(), rel=1e-13)


def test_a_matrix_gives_the_sums_of_its_rows():
    data = crossed(12, 7, 0.8, 5)
    y = data["y"] - data["y"].mean()
    wide = data.assign(y=y).pivot(index="a", columns="b", values="y").to_numpy()
    found = CrossedTable.of_matrix(np.nan_to_num(wide), np.isnan(wide))
    model = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b)", data)
    wanted = find_crossed_table(model.statistics.cells)
    for own, other in zip(found.sums, wanted.sums, strict=True):
        np.testing.assert_allclose(own, other, atol=1e-12)
    np.testing.assert_allclose(found.gram, wanted.gram, atol=1e-11)
    np.testing.assert_array_equal(found.holes, wanted.holes)
    np.testing.assert_array_equal(found.ends, wanted.ends)


@pytest.mark.parametrize(
    ("formula", "data"),
    [
        ("y ~ (1|a) + (1|b) + (1|a:b)", pd.concat([crossed(9, 6, 0.9), crossed(9, 6, 0.8)])),
        ("y ~ (1|a) + (1|b)", pd.concat([crossed(9, 6, 0.9), crossed(9, 6, 0.1)])),
        ("y ~ (1|a) + (1|b)", crossed(40, 40, 0.15)),
        ("y ~ (1|a)", crossed(9, 6, 0.9)),
    ],
    ids=["three terms", "two scores in a cell", "sparse", "one facet"],
)
def test_other_rows_are_no_such_table(formula, data):
    assert (
        find_crossed_table(vcomp.VarianceComponentsModel(formula, data).statistics.cells) is None
    )


def test_it_is_not_made_without_memory():
    chunk = vcomp.VarianceComponentsModel(*CASES["few holes"]).statistics.cells
    assert find_crossed_table(chunk, free_bytes=lambda: 10.0) is None


def test_auto_uses_it_where_it_fits_and_where_there_are_no_rows():
    stats = vcomp.VarianceComponentsModel(*CASES["few holes"]).statistics
    assert isinstance(choose_engine(stats, reml=True), CrossedLikelihood)
    no_memory = EngineLimits(free_bytes=lambda: 0.0)
    assert not isinstance(choose_engine(stats, reml=True, limits=no_memory), CrossedLikelihood)
    alone = Statistics.from_crossed(stats.crossed)
    assert isinstance(choose_engine(alone, reml=True), CrossedLikelihood)
    with pytest.raises(DataError, match="a table of two facets: cross-products need the rows"):
        _ = alone.cross_products


def test_a_small_residual_keeps_its_digits():
    rng = np.random.default_rng(6)
    data = crossed(30, 20, 0.97, 6)
    u, w = rng.normal(size=30), rng.normal(size=20)
    data["y"] = u[data["a"]] + w[data["b"]] + 1e-3 * rng.normal(size=len(data))
    found, strata = (
        vcomp.fit("y ~ (1|a) + (1|b)", data, engine=e) for e in ("levels", "iterative")
    )
    assert strata.certificate.engine == "iterative"  # by few holes: exact, nothing cancels
    np.testing.assert_allclose(found.vcomp, strata.vcomp, rtol=1e-7)


@pytest.mark.parametrize("facets", ["ab", "ba"])
def test_effects_beside_a_small_residual_are_exact(facets):
    """Of scores whose sums are exact, against a solution refined in extended precision."""
    rng = np.random.default_rng(6)
    data = crossed(30, 20, 0.97, 6)
    u, w = rng.normal(size=30), rng.normal(size=20)
    y = u[data["a"]] + w[data["b"]] + 1e-3 * rng.normal(size=len(data))
    data["y"] = np.round(2.0**24 * y) / 2.0**24
    formula = "y ~ 0 + (1|{}) + (1|{})".format(*facets)
    stats = vcomp.VarianceComponentsModel(formula, data).statistics
    v, sizes = np.array([0.9, 0.4, 1e-6]), [data[f].max() + 1 for f in facets]
    Z = np.hstack([np.eye(q)[data[f]] for f, q in zip(facets, sizes, strict=True)])
    ridge = np.repeat(np.longdouble(v[-1]) / v[:-1].astype(np.longdouble), sizes)
    C = (Z.T @ Z).astype(np.longdouble) + np.diag(ridge)
    sums, expected = Z.T @ data["y"].to_numpy(), np.zeros(sum(sizes), np.longdouble)
    for _ in range(5):
        rest = (sums - C @ expected).astype(float)
        expected = expected + np.linalg.solve(C.astype(float), rest)
    found = CrossedLikelihood(find_crossed_table(stats.cells), reml=True).solution(v).effects
    np.testing.assert_allclose(np.concatenate(found), expected.astype(float), atol=1e-12)


def test_scores_without_residual_are_refused_as_by_elimination():
    data = crossed(30, 20, 0.9, 1)
    data["y"] = data["a"] % 7 + 0.25 * (data["b"] % 5)
    for engine in ("levels", "blocked"):
        with pytest.raises(EstimationError, match="the residual variance is zero") as refused:
            vcomp.fit("y ~ (1|a) + (1|b)", data, engine=engine)
        assert refused.type is EstimationError


@settings(max_examples=examples(25), deadline=None)
@given(
    st.integers(0, 10_000),
    st.floats(0.4, 1.0),
    # Elimination divides by components: by fourth powers of them.
    st.tuples(*[st.one_of(st.just(0.0), st.floats(1e-60, 5.0))] * 2),
)
def test_any_table_has_the_likelihood_of_elimination(seed, kept, components):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(3, 12, 2)
    data = crossed(int(a), int(b), kept, seed)
    assume(len(data) > 4)  # more rows than parameters, and some level has two
    model = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b)", data)
    table = find_crossed_table(model.statistics.cells)
    assume(table is not None)
    engine = CrossedLikelihood(table, reml=True)
    blocked = BlockedLikelihood(model.statistics.cross_products, reml=True)
    v = np.array([*components, 1.0])
    found, wanted = engine.derivatives(v), blocked.derivatives(v)
    assert found.loglike == pytest.approx(wanted.loglike, rel=1e-11)
    near(found.score, wanted.score, 1e-8)  # of elimination a small component's score cancels


@pytest.mark.parametrize(("a", "b", "kept"), [(300, 200, 0.5), (500, 250, 0.9)])
def test_the_memory_of_an_evaluation_is_expected(a, b, kept):
    """At most what is expected, and about half of it or more."""
    model = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b)", crossed(a, b, kept))
    engine = CrossedLikelihood(model.statistics.crossed, reml=True)
    v = np.array([0.5, 0.4, 1.0])
    engine.information(v, "expected")  # what is made once is not of an evaluation
    tracemalloc.start()
    engine.derivatives(0.9 * v)
    engine.information(0.9 * v, "expected")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.45 * engine.bytes < peak <= engine.bytes


def test_the_last_step_of_a_slow_engine_is_by_the_average_information():
    """The observed one costs half an evaluation there, and saves none."""

    class Slow(CrossedLikelihood):
        seconds = 0.01

    class Quick(CrossedLikelihood):
        seconds = 0.0099

    table = find_crossed_table(
        vcomp.VarianceComponentsModel(*CASES["half missing"]).statistics.cells
    )
    v = np.array(POINTS[0])
    for kind, decrement, steps in (
        (Quick, 5e-10, "Newton"),
        (Slow, 2e-9, "Newton"),
        (Slow, 5e-10, None),
        (Quick, 0.06, None),
        (Slow, 0.06, None),
    ):
        engine = kind(table, reml=True)
        found = engine.curvature(v, decrement)
        assert (found and found.kind) == steps
        if found:
            near(found.information, engine.information(v, "observed"))

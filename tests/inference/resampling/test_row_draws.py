"""Rows drawn anew: what is shared with the data is the same, the rest has its distribution."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import assume, given, settings

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import GRIDS, UNBALANCED, balanced, drop_rows, gridded, unbalanced
from tests.helpers.examples import examples
from tests.helpers.moments import agree_in_mean, score_agrees
from vcomp.estimators import get_estimator
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.exceptions import DataError, DesignError
from vcomp.inference.resampling import draws
from vcomp.inference.resampling.draws import (
    RowDraws,
    draw_errors,
    draws_of,
    simulate_responses,
)
from vcomp.inference.resampling.refits import Recipe
from vcomp.numerics.parallel import stream
from vcomp.statistics.statistics import Statistics


def model_of(case, fixed=""):
    """Return the model of a grid, complete or with rows missing, or of an unbalanced design."""
    name, kind = case
    formula, data = unbalanced(name) if kind == "unbalanced" else gridded(name)
    if kind == "holes":
        data = drop_rows(data, 0.1, 3)
    return vcomp.VarianceComponentsModel(formula.replace("~ ", f"~ {fixed}"), data)


CASES = [
    *((name, "complete") for name in sorted(GRIDS)),
    ("per document", "holes"),
    ("deep", "holes"),
    ("three facets", "holes"),
    ("crossed", "unbalanced"),
    ("crossed and nested", "unbalanced"),
]


@pytest.mark.parametrize(("case", "fixed"), alternately(CASES, "", "x + xp + "))
def test_statistics_with_a_response_are_those_made_from_scratch(case, fixed):
    if case[1] == "unbalanced":
        fixed = ""
    model = model_of(case, fixed)
    y = np.random.default_rng(8).normal(size=model.nobs)
    design = model.design
    anew = Statistics.from_rows(
        model.statistics.rows.with_response(y), design.grid, design.partial_grid
    )
    shared = model.statistics.with_response(y)
    a, b = anew.cross_products, shared.cross_products
    for left, right in ((a.Zy, b.Zy), (a.ZX, b.ZX), (a.group_n, b.group_n)):
        for x, z in zip(left, right, strict=True):
            np.testing.assert_allclose(x, z, rtol=0, atol=1e-12 * np.sqrt(model.nobs))
    for name in ("XX", "Xy", "yy"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-12, atol=1e-12)
    assert b.pairs is model.statistics.cross_products.pairs
    assert (anew.strata is None) == (shared.strata is None)
    if anew.strata is not None:
        for s, t in zip(anew.strata.strata, shared.strata.strata, strict=True):
            assert s.fixed == t.fixed
            np.testing.assert_array_equal(s.columns.within, t.columns.within)
            for x, z in zip(s.columns.means, t.columns.means, strict=True):
                np.testing.assert_array_equal(x, z)
        assert anew.strata.yy == shared.strata.yy
    assert (anew.completed is None) == (shared.completed is None)
    if anew.completed is not None:
        np.testing.assert_array_equal(anew.completed.tables, shared.completed.tables)


@settings(max_examples=examples(25), deadline=None)
@given(UNBALANCED)
def test_any_design_is_summed_again_as_at_first(case):
    try:
        model = vcomp.VarianceComponentsModel(*unbalanced(*case))
    except DesignError:  # what was left out left nothing of a term
        assume(False)
    y = np.random.default_rng(case[1]).normal(size=model.nobs)
    anew = Statistics.from_rows(
        model.statistics.rows.with_response(y), model.design.grid
    ).cross_products
    shared = model.statistics.with_response(y).cross_products
    for x, z in zip(anew.Zy, shared.Zy, strict=True):
        np.testing.assert_allclose(x, z, rtol=0, atol=1e-12 * np.sqrt(model.nobs))
    np.testing.assert_allclose(anew.Xy, shared.Xy, rtol=0, atol=1e-12 * np.sqrt(model.nobs))
    assert anew.yy == shared.yy


def test_the_data_stay_as_they_are():
    model = model_of(("per document", "holes"))
    before = model.statistics.cross_products
    tables = model.statistics.completed.tables.copy()
    drawn = model.statistics.with_response(np.ones(model.nobs))
    assert drawn.cross_products.yy == model.nobs
    assert drawn.completed is not None
    assert model.statistics.cross_products is before
    assert model.statistics.rows.origin != 0.0
    np.testing.assert_array_equal(model.statistics.completed.tables, tables)


def test_statistics_without_rows_take_no_response():
    stats = Statistics.from_cross_products(
        model_of(("crossed", "complete")).statistics.cross_products
    )
    with pytest.raises(DataError, match="made from parts, have none; fit the data as a whole"):
        stats.with_response(np.zeros(20))
    strata = Statistics.from_strata(model_of(("crossed", "complete")).statistics.strata)
    with pytest.raises(DataError, match="strata only"):
        _ = strata.cross_products


@pytest.mark.parametrize("name", ["crossed and nested", "three facets"])
def test_the_score_has_mean_zero_and_variance_information(name):
    model = model_of((name, "unbalanced"))
    v = np.random.default_rng(4).uniform(0.5, 2.0, len(model.component_names))
    v[0] = 0.0
    source = RowDraws(model.statistics)
    # With the plan of the data: a test below compares with engines that make their own.
    engine = BlockedLikelihood(model.statistics.cross_products, reml=True)
    score_agrees(lambda b: source.draw(v, stream(2, b)), engine.with_response, v, n=300)


def test_two_rows_covary_by_the_groups_that_they_share():
    model = vcomp.VarianceComponentsModel(*balanced("nested"))
    v, rows = np.array([2.0, 1.0, 0.5]), model.statistics.rows
    errors = np.array([draw_errors(rows, v, stream(6, b)) for b in range(2000)])[:, :6]
    V = v[-1] * np.eye(6)
    for codes, component in zip(rows.codes, v, strict=False):
        V += component * (codes[:6, None] == codes[None, :6])
    variance = np.outer(np.diagonal(V), np.diagonal(V)) + V**2
    agree_in_mean(errors[:, :, None] * errors[:, None, :], V, variance)


def test_terms_without_variance_use_no_random_numbers():
    formula, data = balanced("crossed")
    rows = vcomp.VarianceComponentsModel(formula, data).statistics.rows
    alone = vcomp.VarianceComponentsModel("y ~ (1|b)", data).statistics.rows
    np.testing.assert_array_equal(
        draw_errors(rows, np.array([0.0, 2.0, 0.5]), stream(1, 2)),
        draw_errors(alone, np.array([2.0, 0.5]), stream(1, 2)),
    )


def test_a_response_is_a_sum_of_effects_that_are_drawn_term_after_term():
    """A seed gives the same response in every version: effects by term, then one for each row."""
    rows, v = model_of(("three facets", "unbalanced")).statistics.rows, np.arange(1.0, 8.0)
    assert len(rows.codes) == 6
    rng = stream(1, 2)
    expected = np.zeros(rows.n)
    for variance, size, codes in zip(v, rows.sizes, rows.codes, strict=False):
        expected += np.sqrt(variance) * rng.standard_normal(size)[codes]
    expected += np.sqrt(v[-1]) * rng.standard_normal(rows.n)
    np.testing.assert_allclose(draw_errors(rows, v, stream(1, 2)), expected, rtol=1e-12)


@pytest.mark.parametrize("method", ["type1", "henderson3"])
def test_rows_are_drawn_where_sums_by_strata_are_not_enough(method):
    """Reductions in order need the products of the fixed part with the groups."""
    formula, data = gridded("one way")
    res = vcomp.fit(formula.replace("~ ", "~ x + "), data, method=method)
    assert (res.vcomp > 0.0).all()
    made = res.bootstrap(n=100, rng=1, progress=False)
    assert made.converged.all()
    error = made.values.std(axis=0) / np.sqrt(100)
    assert (np.abs(made.values.mean(axis=0) - res.vcomp) < 4.0 * error).all()  # unbiased


def test_blocks_do_not_change_the_numbers():
    rows, v = model_of(("per document", "holes")).statistics.rows, np.linspace(0.5, 1.5, 11)
    whole = draw_errors(rows, v, stream(1, 2))
    np.testing.assert_array_equal(draw_errors(rows, v, stream(1, 2), block=7), whole)


def test_memory_is_that_of_responses_and_groups(monkeypatch):
    """Of a drawn response, what is added to it, and its square, or of many; and of all groups."""
    model = model_of(("three facets", "holes"), "x + ")
    rows, stats = model.statistics.rows, model.statistics
    groups = sum(codes.nbytes for codes in rows.codes)
    asked = []
    monkeypatch.setattr(draws, "check_memory", lambda needed, *_: asked.append(needed))
    draws_of(stats, Recipe(get_estimator("reml"), model.component_names))
    assert asked == [3 * rows.y.nbytes + groups]
    monkeypatch.undo()
    v, beta = np.ones(len(model.component_names)), np.array([2.0, -1.0])
    made = simulate_responses(rows, v, beta, 9, rng=4)
    whole = made.nbytes + 3 * rows.y.nbytes + groups
    for share, is_enough in ((1.001, True), (0.999, False)):
        refused = pytest.raises(vcomp.EstimationError, match=r"9 responses of .* rows need")
        with nullcontext() if is_enough else refused:
            simulate_responses(rows, v, beta, 9, free_bytes=lambda: share * whole / 0.8)  # noqa: B023
    mean = rows.origin + rows.columns @ beta
    for j in (0, 8):
        np.testing.assert_allclose(
            made[:, j], mean + draw_errors(rows, v, stream(4, j)), rtol=1e-12
        )


@pytest.mark.parametrize("case", [("crossed", "unbalanced"), ("three facets", "unbalanced")])
def test_an_engine_with_another_response_is_that_of_the_other_response(case):
    model = model_of(case)
    rng = np.random.default_rng(1)
    engine = BlockedLikelihood(model.statistics.cross_products, reml=True)
    k = len(model.component_names)
    for active in (np.ones(k), np.r_[0.0, np.ones(k - 1)], np.ones(k)):
        v = active * rng.uniform(0.5, 2.0, k)
        engine.derivatives(v)  # so that there is something to be left behind
        stats = model.statistics.with_response(rng.normal(size=model.nobs))
        engine = engine.with_response(stats)
        fresh = BlockedLikelihood(stats.cross_products, reml=True)
        a, b = engine.derivatives(v), fresh.derivatives(v)
        assert engine.rss == fresh.rss
        assert engine.loglike(v) == fresh.loglike(v) == a.loglike == b.loglike
        np.testing.assert_array_equal(a.score, b.score)
        np.testing.assert_array_equal(engine.information(v), fresh.information(v))


@pytest.mark.parametrize("terms", [(0,), (1,), (0, 2), (1, 2)])
def test_statistics_of_some_terms_are_those_of_their_model(terms):
    for case in (("nested, balanced", "complete"), ("nested, balanced", "holes")):
        model = model_of(case)
        names = [model.component_names[t] for t in terms]
        fewer = vcomp.VarianceComponentsModel(
            f"y ~ {' + '.join(f'(1|{name})' for name in names)}", model_data(case)
        )
        v = np.linspace(0.7, 1.1, len(terms) + 1)
        stats = model.statistics.of_terms(terms)
        engine = BlockedLikelihood(stats.cross_products, reml=True)
        np.testing.assert_allclose(engine.loglike(v), fewer.loglike(v), rtol=1e-11)
        if stats.strata is not None:
            from vcomp.estimators.likelihood.strata_likelihood import StrataLikelihood

            strata = StrataLikelihood(stats.strata, reml=True)
            np.testing.assert_allclose(strata.loglike(v), fewer.loglike(v), rtol=1e-11)
            np.testing.assert_allclose(stats.group_sums.T, fewer.statistics.group_sums.T)


def model_data(case):
    _, data = gridded(case[0])
    return drop_rows(data, 0.1, 3) if case[1] == "holes" else data

"""Refits of many data sets together: against fits of each data set alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.refits import fit_again
from vcomp.estimators import get_estimator
from vcomp.estimators.likelihood import ML, REML, choose_engine
from vcomp.inference.resampling import refits
from vcomp.inference.resampling.deleted_surface import DeletedSurface
from vcomp.inference.resampling.draws import Responses, RowDraws
from vcomp.inference.resampling.parametric import NestedSurface
from vcomp.inference.resampling.refits import InClosedForm, Recipe, StackedRefits
from vcomp.inference.resampling.row_samples import Levels, Sample
from vcomp.inference.resampling.surfaces import _SPREAD, DrawnSurface, Surface, SurfaceLimits
from vcomp.numerics import stream

TIGHT = 1e-11


def crossed(n, a, b, seed=1):
    rng = np.random.default_rng(seed)
    codes = rng.integers(a, size=n), rng.integers(b, size=n)
    x = rng.normal(size=n)
    y = rng.normal(size=a)[codes[0]] + rng.normal(size=b)[codes[1]] + rng.normal(size=n) + x
    return pd.DataFrame({"a": codes[0], "b": codes[1], "x": x, "y": y})


def alone(formula, data, method):
    res = vcomp.fit(formula, data, method=method, tol=TIGHT)
    return res.vcomp.to_numpy(), res.fe_params.to_numpy(), res.llf


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("facet", ["a", "b"])
def test_jackknife_of_a_table_with_holes(method, facet):
    data, formula = crossed(150, 12, 9), "y ~ x + (1|a) + (1|b)"
    res = vcomp.fit(formula, data, method=method)
    found = res.jackknife(facet)
    for j in (0, 3, 8):
        values, beta, llf = alone(formula, data[data[facet] != j], method)
        np.testing.assert_allclose(found.values[j], values, rtol=1e-8)
        np.testing.assert_allclose(found.beta[j], beta, rtol=1e-8, atol=1e-9)
        assert found.llf[j] == pytest.approx(llf, abs=1e-9)


@pytest.mark.parametrize("failing", [{0, 1, 2}, {1}])
def test_samples_that_cannot_be_drawn_have_the_reason(failing):
    data = crossed(150, 12, 9)
    res = vcomp.fit("y ~ x + (1|a) + (1|b)", data)
    fit = res._row_access.generating()

    def draw(number):
        if number in failing:
            raise vcomp.EstimationError(f"no sample {number}")
        return Sample.whole(fit.stats.rows)

    work = fit.refits_of_samples(res.model.design, draw)
    assert fit.stacked() is not None
    for number, made in enumerate(work.work([0, 1, 2])):
        assert made.converged == (number not in failing)
        if number in failing:
            assert made.reason == f"no sample {number}"
        else:
            np.testing.assert_allclose(made.values, res.vcomp, rtol=1e-6)


def test_small_data_are_refitted_together(monkeypatch):
    data = crossed(150, 12, 9)
    res = vcomp.fit("y ~ (1|a) + (1|b)", data)
    made = res.bootstrap(10, rng=1), res.resample("a", n=10, rng=1), res.jackknife("b")
    monkeypatch.setattr(StackedRefits, "of", lambda *_: None)
    one_by_one = res.bootstrap(10, rng=1), res.resample("a", n=10, rng=1), res.jackknife("b")
    for found, other in zip(made, one_by_one, strict=True):
        np.testing.assert_array_equal(found.converged, other.converged)
        scale = 1e-7 * float(res.vcomp.max())
        np.testing.assert_allclose(found.values, other.values, rtol=1e-7, atol=scale)
        np.testing.assert_allclose(found.llf, other.llf, atol=1e-7)


def test_errors_of_a_surface_are_those_of_logarithms_of_ratios():
    """Var(log v_t/v_e) = C_tt/v_t² − 2 C_te/(v_t v_e) + C_ee/v_e², C the inverse information."""
    fit, _, _, _ = fit_again("y ~ (1|a) + (1|b)", crossed(2000, 120, 110), "reml")
    surface = Surface.of(fit.stats, fit.recipe, fit.values)
    C = np.linalg.inv(surface.engine.information(fit.values, "average"))
    relative = C / np.outer(fit.values, fit.values)
    own = np.diagonal(relative)
    expected = np.sqrt(own[:-1] - 2.0 * relative[:-1, -1] + own[-1])
    np.testing.assert_allclose(surface.errors, expected, rtol=1e-8)
    np.testing.assert_allclose(surface.centre, np.log(fit.values[:-1] / fit.values[-1]))


def test_responses_of_a_wide_table_are_refitted_by_a_surface():
    fit, _, _, _ = fit_again("y ~ (1|a) + (1|b)", crossed(2000, 120, 110), "reml")
    stacked = StackedRefits.of(fit.stats, fit.recipe, fit.values)
    surface = DrawnSurface.of(fit.stats, fit.recipe, fit.values, 100, alone=stacked.seconds)
    assert surface is not None
    draws = RowDraws(fit.stats)
    drawn = Responses(draws.draw(fit.values, stream(1, b)) for b in range(20))
    for one, other in zip(
        stacked.with_responses(drawn), surface.with_responses(drawn), strict=True
    ):
        # A surface is exact to 1e-6 standard errors, a stack to its Newton decrement of 1e-8.
        np.testing.assert_allclose(one.values, other.values, rtol=1e-6)
        np.testing.assert_allclose(one.llf, other.llf, rtol=1e-10)


def test_jackknife_of_a_wide_sparse_table_is_that_of_a_stack(monkeypatch):
    res = vcomp.fit("y ~ (1|a) + (1|b)", crossed(1500, 150, 150))
    fast, used = DeletedSurface.refitted, []
    monkeypatch.setattr(DeletedSurface, "refitted", lambda own: used.append(1) or fast(own))
    found = res.jackknife("a")
    assert used
    monkeypatch.setattr(DeletedSurface, "of", lambda *_, **__: None)
    other = res.jackknife("a")
    np.testing.assert_allclose(found.values, other.values, rtol=1e-7)
    np.testing.assert_allclose(found.llf, other.llf, rtol=1e-10)


def test_simulated_test_is_that_of_refits_one_by_one(monkeypatch):
    data = crossed(60, 8, 5, seed=2)
    data["c"] = np.random.default_rng(3).integers(3, size=60)
    res = vcomp.fit("y ~ (1|a) + (1|b) + (1|a:c)", data)
    found = res.test("a:c", test="simulated", n=25)
    monkeypatch.setattr(StackedRefits, "of", lambda *_: None)
    assert res.test("a:c", test="simulated", n=25).p_value == found.p_value


@pytest.fixture(scope="module")
def sparse():
    data = crossed(2000, 120, 110)
    return data, fit_again("y ~ x + (1|a) + (1|b)", data, "reml")


ALWAYS = SurfaceLimits(slow=0.0, evaluations=100)


@pytest.mark.parametrize("most_effects", [3000, 0])
def test_drawn_responses_by_a_surface(sparse, most_effects):
    _, (fit, _, _, _) = sparse
    limits = replace(ALWAYS, effects=most_effects)
    surface = DrawnSurface.of(fit.stats, fit.recipe, fit.values, 8, limits)
    assert surface is not None
    draws = RowDraws(fit.stats)
    drawn = Responses(draws.draw(fit.values, stream(1, b)) for b in range(4))
    found = surface.with_responses(drawn)
    (alone,) = surface.with_responses(Responses(drawn[1:2]))
    np.testing.assert_allclose(alone.values, found[1].values, rtol=1e-7)
    options = type(fit.recipe.estimator)(tol=TIGHT)
    for made, stats in zip(found, drawn, strict=True):
        one = options.estimate(stats, fit.recipe.names)
        assert made is not None
        np.testing.assert_allclose(made.values, one.values, rtol=1e-7)
        np.testing.assert_allclose(made.beta, one.beta, rtol=1e-6, atol=1e-9)
        assert made.llf == pytest.approx(one.llf, abs=1e-6)


def test_methods_share_the_forms_of_drawn_responses(sparse):
    """REML and ML have the same points; both estimates are those of each method alone."""
    _, (fit, _, _, _) = sparse
    ml = Recipe(get_estimator("ml"), fit.recipe.names)
    surfaces = [DrawnSurface.of(fit.stats, r, fit.values, 8, ALWAYS) for r in (fit.recipe, ml)]
    draws = RowDraws(fit.stats)
    drawn = Responses(draws.draw(fit.values, stream(1, b)) for b in range(4))
    for surface in surfaces:
        together, alone = surface.with_responses(drawn), surface.with_responses(Responses(drawn))
        for made, other in zip(together, alone, strict=True):
            np.testing.assert_array_equal(made.values, other.values)
            assert made.llf == other.llf
    n_nodes = surfaces[0]._surface.n_nodes(surfaces[0]._width)
    assert len(drawn.__dict__["dense forms of [0, 1]"]._made) == n_nodes**2


def test_drawn_responses_of_an_iterative_fit_have_exact_maxima(sparse):
    _, (fit, _, _, _) = sparse
    exact = DrawnSurface.of(fit.stats, fit.recipe, fit.values, 8, ALWAYS)
    iterative = choose_engine(fit.stats, "iterative", reml=True)
    draws = RowDraws(fit.stats)
    drawn = Responses(draws.draw(fit.values, stream(1, b)) for b in range(4))
    found = DrawnSurface(replace(exact._surface, engine=iterative)).with_responses(drawn)
    for made, other in zip(found, exact.with_responses(Responses(drawn)), strict=True):
        np.testing.assert_allclose(made.values, other.values, rtol=1e-12)
        assert made.llf == pytest.approx(other.llf, rel=1e-12)


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_drawn_responses_by_a_series(method):
    """By conjugate gradients: within a hundredth of a standard error of fits of each response."""
    data = crossed(4000, 250, 200)
    data["c"] = np.random.default_rng(3).integers(180, size=4000)
    data["y"] += np.random.default_rng(4).normal(size=180)[data["c"]]
    fit, _, _, _ = fit_again("y ~ x + (1|a) + (1|b) + (1|c)", data, "reml")
    options = {"reml": REML, "ml": ML}[method](engine="iterative")
    recipe = Recipe(options, fit.recipe.names)
    surface = DrawnSurface.of(fit.stats, recipe, fit.values, 99, replace(ALWAYS, effects=0))
    draws = RowDraws(fit.stats)
    drawn = Responses(draws.draw(fit.values, stream(1, b)) for b in range(6))
    found, iterative = surface.with_responses(drawn), surface._surface.engine
    assert iterative.name == "iterative"
    refit = refits.ByLikelihood(fit.stats, replace(options, tol=1e-6), recipe.names, fit.values)
    errors = np.sqrt(np.diagonal(np.linalg.inv(iterative.information(fit.values))))
    assert sum(made is not None for made in found) >= 3  # few levels: half are too far
    for made, stats in zip(found, drawn, strict=True):
        if made is None:
            continue
        one = refit(stats)
        assert np.abs((made.values - one.values) / errors).max() < 0.01
        np.testing.assert_allclose(made.beta, one.beta, atol=1e-4)
        assert made.llf == pytest.approx(one.llf, abs=0.05)


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_deleted_levels_by_a_surface(sparse, method):
    data, (fit, design, _, _) = sparse
    recipe, v = fit.recipe, fit.values
    if method == "ml":
        res = vcomp.fit("y ~ x + (1|a) + (1|b)", data, method="ml")
        recipe, v = Recipe(type(res._row_access.recipe().estimator)(), recipe.names), None
        v = res.vcomp.to_numpy()
    whole, structure = Sample.whole(fit.stats.rows), design.structure
    levels = Levels.of(whole, structure.facets, structure.nested_in, "a")
    deleted = [levels.rows(j) for j in range(levels.n)]
    surface = DeletedSurface.of(fit.stats, recipe, v, deleted, ALWAYS)
    assert surface is not None
    found = surface.refitted()
    assert sum(made is not None for made in found) >= 0.95 * levels.n
    # What does not depend on components need not fit into memory.
    limits = replace(ALWAYS, kept_bytes=0.0)
    again = DeletedSurface.of(fit.stats, recipe, v, deleted, limits).refitted()
    effects = sum(fit.stats.sizes)
    for most, is_made in ((effects, True), (effects - 1, False)):
        limits = replace(ALWAYS, effects=most)
        made = DeletedSurface.of(fit.stats, recipe, v, deleted, limits)
        assert (made is not None) is is_made
    for made, other in zip(found, again, strict=True):
        assert (made is None) == (other is None)
        if made is not None:
            np.testing.assert_array_equal(made.values, other.values)
    for j in (0, 50, 119):
        values, beta, llf = alone("y ~ x + (1|a) + (1|b)", data[data["a"] != j], method)
        assert found[j] is not None
        np.testing.assert_allclose(found[j].values, values, rtol=1e-7)
        np.testing.assert_allclose(found[j].beta[1], beta[1], rtol=1e-7)
        assert found[j].llf == pytest.approx(llf, abs=1e-6)


def test_surfaces_are_not_for_components_near_zero(sparse):
    _, (fit, _, _, _) = sparse
    for share in (1e-3, 0.0):
        near = fit.values * np.array([share, 1.0, 1.0])
        assert DrawnSurface.of(fit.stats, fit.recipe, near, 1000, ALWAYS) is None


@pytest.mark.parametrize(
    ("method", "share", "zeros", "most_effects"),
    [("reml", 0.0, 0.5, 3000), ("reml", 0.02, 0.2, 0), ("ml", 0.0, 0.5, 0)],
)
def test_null_distributions_of_crossed_terms_reach_the_bound(
    sparse, method, share, zeros, most_effects
):
    """Of a component at zero, or so near that its box begins there; the other model holds it."""
    _, (fit, _, _, _) = sparse
    names, v = fit.recipe.names, fit.values * np.array([share, 1.0, 1.0])
    limits = replace(ALWAYS, effects=most_effects)
    draws, exact = RowDraws(fit.stats), get_estimator(method, tol=TIGHT)
    drawn = Responses(draws.draw(v, stream(1, b)) for b in range(20))
    for hold in ({}, {names[0]: 0.0}):
        start = v if not hold else v * np.array([0.0, 1.0, 1.0])
        recipe = Recipe(get_estimator(method, hold=hold), names, once=True)
        surface = DrawnSurface.of(fit.stats, recipe, start, 100, limits)
        found = surface.with_responses(drawn)
        assert all(made is not None for made in found)
        at_bound = sum(made.values[0] == 0.0 for made in found)
        for made, stats in list(zip(found, drawn, strict=True))[::3]:
            one = replace(exact, hold=hold).estimate(stats, names)
            assert made.llf == pytest.approx(one.llf, abs=1e-7)
            # Surfaces of tests may err by 1e-4 standard errors, and the ratio by its square.
            np.testing.assert_allclose(made.values, one.values, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(made.beta, one.beta, rtol=1e-4, atol=1e-7)
        assert at_bound == 20 if hold else abs(at_bound / 20 - zeros) < 0.25


@pytest.mark.parametrize("held", [0.3, 0.0])
def test_surfaces_hold_components_at_zero_only(sparse, held):
    _, (fit, _, _, _) = sparse
    names = fit.recipe.names
    recipe = Recipe(get_estimator("reml", hold={names[0]: held}), names, once=True)
    v = np.append(held, fit.values[1:])
    assert (DrawnSurface.of(fit.stats, recipe, v, 1000, ALWAYS) is not None) is (held == 0.0)
    nothing = Recipe(get_estimator("reml", hold=dict.fromkeys(names[:-1], 0.0)), names, once=True)
    v[:-1] = 0.0
    assert DrawnSurface.of(fit.stats, nothing, v, 1000, ALWAYS) is None


def test_what_cannot_be_computed_together_is_refitted_alone(sparse, monkeypatch):
    """As equations of one are singular, or a corner of a box has no likelihood."""
    _, (fit, _, _, _) = sparse

    def fails(*_, **__):
        raise np.linalg.LinAlgError

    surface = DrawnSurface.of(fit.stats, fit.recipe, fit.values, 8, ALWAYS)
    stack = StackedRefits.of(fit.stats, fit.recipe, fit.values)
    closed = InClosedForm(Recipe(get_estimator("henderson3"), fit.recipe.names))
    monkeypatch.setattr(Surface, "refitted", fails)
    monkeypatch.setattr(refits, "maximise_stack", fails)
    monkeypatch.setattr(closed, "_points", fails)
    drawn = Responses(RowDraws(fit.stats).draw(fit.values, stream(1, b)) for b in range(3))
    for several in (surface, stack, closed):
        assert several.with_responses(drawn) == [None] * 3


@pytest.mark.parametrize(
    ("given", "is_made"),
    [
        ({}, True),
        ({"tol": 1e-8}, True),
        ({"tol": 1e-9}, False),
        ({"engine": "blocked"}, False),
        ({"engine": "blocked", "tol": 1e-9}, False),
        ({"max_iter": 3}, False),
    ],
)
def test_stacks_are_for_the_usual_options(given, is_made):
    fit, _, _, _ = fit_again("y ~ (1|a) + (1|b)", crossed(60, 8, 5), "reml")
    recipe = replace(fit.recipe, estimator=REML(**given))
    assert StackedRefits.of(fit.stats, recipe, fit.values * [1.0, 1.0, 0.0]) is None
    assert (StackedRefits.of(fit.stats, recipe, fit.values) is not None) is is_made


@pytest.mark.parametrize(
    ("given", "is_made"),
    [
        ({}, True),
        ({"tol": 1e-8}, True),
        ({"tol": 1e-9}, False),
        ({"engine": "blocked"}, True),
        ({"engine": "blocked", "tol": 1e-9}, False),
        ({"engine": "iterative"}, True),
        ({"hold": {"a": 0.5}}, False),
        ({"hold": {"a": 0.5}, "tol": 1e-8}, False),
    ],
)
def test_surfaces_are_for_the_usual_options(given, is_made):
    fit, _, _, _ = fit_again("y ~ (1|a) + (1|b)", crossed(4000, 150, 130), "reml")
    recipe = replace(fit.recipe, estimator=REML(**given))
    assert (Surface.of(fit.stats, recipe, fit.values) is not None) is is_made
    for t in range(3):
        zero = np.where(np.arange(3) == t, 0.0, fit.values)
        made = Surface.of(fit.stats, recipe, zero)
        assert (made is not None) is ("hold" in given and t == 0)  # held there


@pytest.mark.parametrize("share", [0.0, 0.02])
def test_boxes_near_zero_begin_there(sparse, share):
    """Of log(γ + 1/n), n the rows of the largest group, up to γ and so many standard errors."""
    data, (fit, _, _, _) = sparse
    v = fit.values * np.array([share, 1.0, 1.0])
    surface = Surface.of(fit.stats, replace(fit.recipe, once=True), v)
    C = np.linalg.inv(surface.engine.information(v, "expected"))
    assert surface.may_be_zero.tolist() == [True, False]
    recipe = replace(fit.recipe, once=True)
    assert DrawnSurface.of(fit.stats, recipe, v, 1000, ALWAYS) is not None
    for t, group in enumerate("ab"):
        r = v[t] / v[-1]
        error = np.sqrt(C[t, t] - 2.0 * r * C[t, -1] + r**2 * C[-1, -1]) / v[-1]
        ends = surface.centre[t] + _SPREAD * surface.errors[t] * np.array([-1.0, 1.0])
        if t == 0:
            shift = 1.0 / data[group].value_counts().max()
            assert surface.shift[t] == pytest.approx(shift, rel=1e-12)
            expected = [np.log(shift), np.log(r + _SPREAD * error + shift)]
        else:
            assert surface.shift[t] == 0.0
            expected = np.log(r) + _SPREAD * error / r * np.array([-1.0, 1.0])
        np.testing.assert_allclose(ends, expected, rtol=1e-8)


@pytest.mark.parametrize("n", [100, 10**4, 10**6, 10**8])
@pytest.mark.parametrize("n_terms", [1, 6])
def test_as_many_are_refitted_at_once_as_fit_into_memory(n, n_terms):
    """Each has its response and the sums of all groups, and up to twenty times as much beside."""
    q = int(0.8 * n)
    stats = SimpleNamespace(n=n, sizes=(q,) * n_terms)
    nested = SimpleNamespace(_n=np.empty(q))
    width = 20 * n_terms
    stack = SimpleNamespace(
        layout=SimpleNamespace(width=width, sizes=(q,), lead=0), tables=SimpleNamespace(n=n)
    )
    stack._most = partial(StackedRefits._most, stack)
    for most, largest, numbers, memory in (
        (DrawnSurface.most(stats), 1000, n + n_terms * q, 4e8),
        (NestedSurface.most.fget(nested), 500, q, 1e8),
        (StackedRefits.most_responses.fget(stack), 256, n + q + width**2, 24e6),
    ):
        assert 1 <= most <= largest
        assert most == 1 or 8.0 * most * numbers <= memory
        assert most == largest or 8.0 * (most + 1) * 21.0 * numbers >= memory

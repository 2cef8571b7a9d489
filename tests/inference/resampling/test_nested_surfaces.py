"""Refits of drawn nested data by a surface: against climbs of each data set alone."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from tests.helpers.refits import fit_again
from vcomp.estimators import get_estimator
from vcomp.estimators.likelihood import choose_engine
from vcomp.inference.hypotheses.component_tests import likelihoods_under
from vcomp.inference.resampling.draws import Responses, draws_of
from vcomp.inference.resampling.parametric import (
    _SPREAD,
    NestedSurface,
    _groupings_of,
    _largest_precisions,
    parametric_bootstrap,
)
from vcomp.inference.resampling.refits import Recipe
from vcomp.numerics import stream

FORMULA = "y ~ x + (1|school/room)"


@pytest.fixture(scope="module")
def nested():
    rng = np.random.default_rng(3)
    room = np.sort(rng.integers(600, size=5000))
    school = room // 6
    y = 1.2 * rng.normal(size=100)[school] + 0.8 * rng.normal(size=600)[room]
    data = pd.DataFrame({"school": school, "room": room, "x": rng.normal(size=5000)})
    data["y"] = y + data["x"] + rng.normal(size=5000)
    return fit_again(FORMULA, data, "reml")[0]


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_maxima_are_those_of_fits_of_each_data_set(nested, method):
    recipe = Recipe(get_estimator(method), nested.recipe.names)
    surface = NestedSurface.of(nested.stats, recipe, nested.values, 1000)
    assert surface is not None
    draws = draws_of(nested.stats, recipe)
    drawn = Responses(draws.draw(nested.values, stream(5, b)) for b in range(6))
    found = surface.with_responses(drawn)
    exact = get_estimator(method, tol=1e-11)
    for made, stats in zip(found, drawn, strict=True):
        assert made is not None
        one = exact.estimate(stats, recipe.names)
        np.testing.assert_allclose(made.values, one.values, rtol=1e-7)
        np.testing.assert_allclose(made.beta, one.beta, rtol=1e-7, atol=1e-9)
        assert made.llf == pytest.approx(one.llf, abs=1e-7)


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_models_share_the_forms_of_drawn_responses(nested, method):
    """Both models of a likelihood ratio have the estimates of each alone."""
    names, draws = nested.recipe.names, draws_of(nested.stats, nested.recipe)
    v = nested.values * np.array([0.0, 1.0, 1.0])
    drawn = Responses(draws.draw(v, stream(5, b)) for b in range(6))
    for hold in ({}, {names[0]: 0.0}):
        recipe = Recipe(get_estimator(method, hold=hold), names, once=True)
        surface = NestedSurface.of(nested.stats, recipe, v, 1000)
        together, alone = surface.with_responses(drawn), surface.with_responses(Responses(drawn))
        for made, other in zip(together, alone, strict=True):
            assert (made is None) == (other is None)
            if made is not None:
                np.testing.assert_array_equal(made.values, other.values)
                assert made.llf == other.llf


@pytest.mark.slow
@pytest.mark.parametrize("term", [0, 1])
def test_null_distributions_reach_the_bound(nested, term, monkeypatch):
    names = nested.recipe.names
    v = np.where(np.arange(3) == term, 0.0, nested.values)
    holds = [{}, {names[term]: 0.0}]
    made = likelihoods_under(nested.stats, names, v, holds, 120, rng=2)
    with monkeypatch.context() as patch:
        patch.setattr(NestedSurface, "of", lambda *_: None)
        alone = likelihoods_under(nested.stats, names, v, holds, 120, rng=2)
    np.testing.assert_allclose(made, alone, rtol=0.0, atol=1e-6)
    zeros = (made[:, 0] - made[:, 1] <= 1e-9).mean()
    assert 0.3 < zeros < 0.7


@pytest.mark.slow
def test_memory_is_that_of_a_block_of_drawn_data(nested):
    """A replicate keeps some numbers, and not its 600 means, products and sums of groups."""

    def peak(n):
        tracemalloc.start()
        try:
            parametric_bootstrap(nested, n, rng=1, progress=False)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(20)  # what is imported and made once
    drawn = 600 * 3 * 8
    of_block = peak(500)
    assert of_block > 300 * drawn
    assert peak(1000) - of_block < 500 * drawn / 4


def test_most_maxima_are_certain(nested):
    v = nested.values * np.array([0.0, 1.0, 1.0])
    recipe = Recipe(get_estimator("reml"), nested.recipe.names, once=True)
    surface = NestedSurface.of(nested.stats, recipe, v, 1000)
    assert surface is not None
    draws = draws_of(nested.stats, recipe)
    found = surface.with_responses(Responses(draws.draw(v, stream(1, b)) for b in range(100)))
    assert sum(made is not None for made in found) >= 95


def test_boxes_reach_a_multiple_of_the_errors_of_ratios(nested):
    """Var(v_t/v_e) = (C_tt − 2r C_te + r² C_ee) / v_e², with C the inverse information."""
    v, recipe = nested.values, Recipe(get_estimator("reml"), nested.recipe.names)
    surface = NestedSurface.of(nested.stats, recipe, v, 1000)
    C = np.linalg.inv(choose_engine(nested.stats).information(v, "average"))
    assert surface._terms == [1, 0]
    inner, shifts = surface._box.centre[0] - surface._box.width[0], surface._box.shift
    for term, centre, width, shift in zip(
        surface._terms, surface._box.centre, surface._box.width, surface._box.shift, strict=True
    ):
        r = v[term] / v[-1]
        error = np.sqrt(C[term, term] - 2.0 * r * C[term, -1] + r**2 * C[-1, -1]) / v[-1]
        n, rooms = nested.stats.strata.remainder.tables.group_n[-1], np.arange(600) // 6
        if term == 0:  # the largest precision of a school's mean, of rooms in their box
            n = np.bincount(rooms, n / (1.0 + (np.exp(inner) - shifts[0]) * n))
        assert shift == pytest.approx(1.0 / n.max(), rel=1e-8)
        ends = np.exp(centre + np.array([-width, width])) - shift
        np.testing.assert_allclose(ends, r + _SPREAD * error * np.array([-1, 1]), rtol=1e-8)


def test_surfaces_are_not_for_what_needs_other_climbs(nested):
    names, v = nested.recipe.names, nested.values
    near = v * np.array([1e-3, 1.0, 1.0])

    def surface(recipe, v, n=1000):
        return NestedSurface.of(nested.stats, recipe, v, n)

    usual = Recipe(get_estimator("reml"), names)
    assert surface(usual, near) is None
    assert surface(usual, v, 5) is None
    held = Recipe(get_estimator("reml", hold={names[0]: 0.5}), names)
    assert surface(held, v) is None
    nothing = Recipe(get_estimator("reml", hold=dict.fromkeys(names[:-1], 0.0)), names)
    assert surface(nothing, v) is None
    without_rooms = Recipe(get_estimator("reml", hold={names[1]: 0.0}), names, once=True)
    assert surface(without_rooms, v * np.array([1.0, 0.0, 1.0])) is not None
    known_error = Recipe(get_estimator("reml", hold={"Residual": v[-1]}), names)
    assert surface(known_error, v) is None
    # Digits of squares cancel where schools vary by 1e5 times the variance of a school's mean.
    drawn = Recipe(get_estimator("reml"), names, once=True)
    assert surface(drawn, v * np.array([1e2, 1.0, 1.0])) is not None
    assert surface(drawn, v * np.array([7e4, 1.0, 1.0])) is None
    assert surface(Recipe(get_estimator("anova"), names), v) is None
    assert surface(Recipe(get_estimator("reml", tol=1e-12), names), v) is None


def test_corners_without_a_likelihood_leave_all_to_refits_alone(nested, monkeypatch):
    def fails(*_):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(NestedSurface, "_values", fails)
    surface = NestedSurface.of(nested.stats, nested.recipe, nested.values, 1000)
    draws = draws_of(nested.stats, nested.recipe)
    drawn = Responses(draws.draw(nested.values, stream(1, b)) for b in range(3))
    assert surface.with_responses(drawn) == [None] * 3


@pytest.mark.parametrize(
    ("strata", "parents", "expected"), [(1, (), [1, 0]), (2, (), None), (1, None, None)]
)
def test_only_a_single_nested_stratum_has_these_forms(strata, parents, expected):
    remainder = SimpleNamespace(parents=parents)
    stats = SimpleNamespace(strata=[None] * strata, remainder=remainder, term_groupings=(1, 0))
    assert _groupings_of(stats) == expected


@pytest.mark.parametrize("groupings", [[2, 0], [1], [0, 1, 2], [2, 1]])
def test_precisions_are_those_of_means_of_all_rows(groupings):
    """1'V⁻¹1 of a group's rows, V with the effects of all groups within it, by matrices."""
    rng = np.random.default_rng(4)
    n = rng.integers(1, 6, 12)
    middle, top = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 4, 4]), np.array([0, 0, 1, 1, 1])
    low = rng.uniform(0.2, 1.5, len(groupings))
    tables = SimpleNamespace(group_n=[np.array([n.sum()]), n])
    stats = SimpleNamespace(remainder=SimpleNamespace(tables=tables, parents=(top, middle)))
    found = _largest_precisions(stats, low, groupings)
    codes = [np.repeat(groups, n) for groups in (top[middle], middle, np.arange(12))]
    for at in range(3):
        V = np.eye(n.sum())
        for ratio, grouping in zip(low, groupings, strict=True):
            if grouping > at:
                V += ratio * (codes[grouping][:, None] == codes[grouping][None, :])
        W = np.linalg.inv(V)
        expected = [W[np.ix_(codes[at] == g, codes[at] == g)].sum() for g in np.unique(codes[at])]
        assert found[at] == pytest.approx(max(expected), rel=1e-12)

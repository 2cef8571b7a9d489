"""Groups of sets of facets against the levels of the rows, counted one by one."""

from __future__ import annotations

from math import prod

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.inference.intervals.influences import _sets
from vcomp.inference.intervals.margin_sums import DenseLimits, LevelLayout, MarginSums

FORMULAS = {
    "grid": ("y ~ (1|p) + (1|i) + (1|a) + (1|p:i)", False),
    "holes": ("y ~ (1|p) + (1|i) + (1|a) + (1|p:i)", True),
    "nested": ("y ~ (1|p) + (1|h/j) + (1|p:h)", False),
    "nested with holes": ("y ~ (1|p) + (1|h/j) + (1|p:h)", True),
    "nested in two": ("y ~ (1|i) + (1|p:h) + (1|p:h:j)", True),
    "nested in one not named": ("y ~ (1|p) + (1|h) + (1|p:j)", False),
    "nested in one not named, with holes": ("y ~ (1|p) + (1|h) + (1|p:j)", True),
}
LIMITS = {
    "tables": DenseLimits(),
    "no table": DenseLimits(0, 0),
    "small tables": DenseLimits(13, 0),
    **{f"below {n}": DenseLimits(0, 0, n) for n in (7, 13, 61, 121)},
    **{f"tables below {n}": DenseLimits(10**6, 0, n) for n in (7, 13, 61)},
    **{f"small tables below {n}": DenseLimits(13, 0, n) for n in (24, 121)},
}


def frame_of(holes):
    """Return rows of five, four, three and two levels, none of whose numbers is another's."""
    sizes = {"p": 5, "i": 4, "a": 3, "h": 2}
    grid = np.meshgrid(*(np.arange(n) for n in sizes.values()), indexing="ij")
    frame = pd.DataFrame({f: g.ravel() for f, g in zip(sizes, grid, strict=True)})
    rng = np.random.default_rng(8)
    frame["j"] = 3 * frame["h"] + frame["a"]  # in h
    frame["y"] = rng.normal(size=5)[frame["p"]] + rng.normal(size=len(frame))
    if holes:
        # A level of i that few rows have, and rows that occur twice.
        frame = frame[(frame["i"] != 2) | (frame["p"] < 2)].sample(frac=0.8, random_state=1)
        frame = pd.concat([frame, frame.head(7)])
    return frame.reset_index(drop=True)


@pytest.fixture(scope="module", params=FORMULAS)
def model(request):
    formula, holes = FORMULAS[request.param]
    return vcomp.fit(formula, frame_of(holes), method="minque")._row_access.model


def layout_of(model, limits):
    def total(of, *known):
        return of(*known, model.statistics.rows)

    return LevelLayout.of(model.design, _sets(model.design), total, limits)


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
@pytest.mark.parametrize("limits", LIMITS)
def test_rows_are_in_one_group_if_they_share_all_levels(model, limits):
    layout = layout_of(model, LIMITS[limits])
    names = [facet.name for facet in model.design.facets]
    codes = dict(enumerate(model.statistics.rows.compact_codes))
    rows = pd.DataFrame({name: codes[k] for k, name in enumerate(names)})
    weights = model.statistics.rows.counts
    weights = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=float)
    assert layout.groups
    for chosen, groups in layout.groups.items():
        numbers = np.broadcast_to(groups.numbers(codes), len(rows))
        assert numbers.min() >= 0
        assert numbers.max() < groups.size
        levels = rows[sorted(chosen)].apply(tuple, axis=1)
        of_levels = pd.DataFrame({"levels": levels, "number": numbers}).drop_duplicates()
        assert of_levels["levels"].is_unique
        assert of_levels["number"].is_unique
        counts = np.bincount(numbers, weights, groups.size)
        np.testing.assert_array_equal(layout.counts[chosen], counts)
        if groups.keys is not None:  # only those that occur
            assert (counts > 0).all()


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
@pytest.mark.parametrize("limits", LIMITS)
def test_groups_of_terms_have_the_numbers_of_their_rows(model, limits):
    layout = layout_of(model, LIMITS[limits])
    codes = dict(enumerate(model.statistics.rows.compact_codes))
    for t, chosen in enumerate(layout.terms):
        groups = layout.groups[chosen]
        places, of_term = layout.places_of(t), model.statistics.rows.codes[t]
        found = of_term if places is None else places[of_term]
        np.testing.assert_array_equal(found, np.broadcast_to(groups.numbers(codes), found.shape))


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
@pytest.mark.parametrize("limits", LIMITS)
def test_levels_of_groups_and_sums_over_coarser_sets_are_those_of_the_rows(model, limits):
    layout = layout_of(model, LIMITS[limits])
    codes = dict(enumerate(model.statistics.rows.compact_codes))
    y = np.random.default_rng(2).normal(size=(len(codes[0]), 2))
    for chosen, groups in layout.groups.items():
        numbers = np.broadcast_to(groups.numbers(codes), len(y))
        levels = groups.levels()
        for place, level in levels.items():
            of_groups = np.broadcast_to(level, groups.shape).ravel()
            np.testing.assert_array_equal(of_groups[numbers], codes[place])
        if groups.keys is None and groups.head is None:
            steps = groups.digits.steps(len(codes))
            np.testing.assert_array_equal(sum(steps[k] * codes[k] for k in codes), numbers)
        sums = np.zeros((groups.size, 2))
        np.add.at(sums, numbers, y)
        several, single = MarginSums(layout, chosen, sums), MarginSums(layout, chosen, sums[:, 1])
        for coarser, outer in layout.groups.items():
            if coarser < chosen:
                expected = np.zeros((outer.size, 2))
                np.add.at(expected, np.broadcast_to(outer.numbers(codes), len(y)), y)
                np.testing.assert_allclose(several.to(coarser), expected, atol=1e-13)
                np.testing.assert_allclose(single.to(coarser), expected[:, 1], atol=1e-13)


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
@pytest.mark.parametrize("limits", LIMITS)
def test_joined_levels_stay_below_the_largest_integer(model, limits):
    """But for a single facet, which cannot be taken apart, below those that have a number."""
    layout = layout_of(model, LIMITS[limits])
    largest = LIMITS[limits].largest
    for groups in layout.groups.values():
        while groups is not None:
            if len(groups.sizes) > 1:
                assert groups.possible < largest
            assert groups.possible == prod(groups.sizes) * (groups.head.size if groups.head else 1)
            groups = groups.head

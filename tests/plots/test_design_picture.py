"""Designs as pictures: an area or a node for every effect, in the colour of what becomes of it."""

from __future__ import annotations

from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given, settings

import vcomp
from tests.helpers.brennan_designs import DESIGNS, balanced_data, small_designs
from tests.helpers.examples import examples
from vcomp.design import structure
from vcomp.formula.brennan import parse_design
from vcomp.formula.effects import design_effects, design_formula
from vcomp.plots.designs import KINDS, Node, areas, ellipses, grid, lattice


def fitted(text, formula=None, replicates=1, method="anova"):
    design = parse_design(text)
    data = balanced_data(design, {f: 3 - k % 2 for k, f in enumerate(design.facets)}, replicates)
    return vcomp.fit(formula or design_formula(text), data, method=method)


def words(ax):
    return [t.get_text().replace(" ×\n", " x ").replace(":\n", ":") for t in ax.texts]


def legend(ax):
    return [t.get_text() for t in ax.get_legend().get_texts()]


def closed_sets(design):
    facets = design.facets
    return {
        frozenset(s)
        for n in range(1, len(facets) + 1)
        for s in combinations(facets, n)
        if design.closure(s) == set(s)
    }


@settings(max_examples=examples(10), deadline=None)
@given(small_designs(most=4))
def test_areas_of_any_design_with_up_to_four_facets(design):
    check_areas(design)


def check_areas(design, placed=None):
    placed = placed or ellipses(design.facets, design.nested_in)
    x, y = grid(placed.values(), 240)
    found = areas(placed, x, y)
    # Slivers of a point or two are where circles nearly touch.
    seen = {facets: area.mean() for facets, area in found.items() if area.mean() > 1e-4}
    assert set(seen) == closed_sets(design)
    assert min(seen.values()) > 1e-3
    for facet, above in design.nested_in.items():
        inside = placed[facet].covers(x, y)
        assert all((placed[outer].covers(x, y) >= inside).all() for outer in above)
    return placed


@pytest.mark.parametrize("text", DESIGNS[::2])
def test_every_effect_alone_has_an_area_with_its_name(text, monkeypatch):
    drawn = []

    def kept(*given):
        drawn.append(ellipses(*given))
        return drawn[-1]

    monkeypatch.setattr(structure, "ellipses", kept)
    res = fitted(text, design_formula(text, replicated=True), replicates=2)
    ax = res.design.plot()
    design = res.design.design
    effects = design_effects(design)
    assert sorted(words(ax)) == sorted(e.name for e in effects)
    assert ax.get_title() == str(design)
    placed = check_areas(design, drawn[-1])
    for text_, effect in zip(ax.texts, effects, strict=True):
        x, y = (np.array([v]) for v in text_.get_position())
        inside = {f for f, e in placed.items() if e.covers(x, y)[0]}
        assert inside == effect.facets


def test_colours_say_what_becomes_of_an_effect():
    assert legend(fitted("p x i x o").design.plot()) == [KINDS["own"][0], KINDS["residual"][0]]
    ax = fitted("p x i x o", "score ~ (1|p) + (1|i) + (1|o)").design.plot()
    random = ("own", "residual", "none")
    assert legend(ax) == [KINDS[kind][0] for kind in random]
    fixed = fitted("p x i x o", "score ~ C(p) + (1|i) + (1|p:o)", method="reml").design.plot()
    assert KINDS["fixed"][0] in legend(fixed)
    image = ax.images[0]
    left, right, bottom, top = image.get_extent()
    pixels = image.get_array()
    for text in ax.texts:
        x, y = text.get_position()
        row = round((y - bottom) / (top - bottom) * (pixels.shape[0] - 1))
        column = round((x - left) / (right - left) * (pixels.shape[1] - 1))
        name = text.get_text()
        kind = "residual" if name == "pio" else "none" if len(name) == 2 else "own"
        handle = ax.get_legend().get_patches()[random.index(kind)]
        np.testing.assert_allclose(pixels[row, column], handle.get_facecolor(), atol=1e-12)


def test_a_lattice_of_more_than_four_facets():
    text = "p x i x o x (b:a)"
    res = fitted(text)
    ax = res.design.plot()
    effects = design_effects(parse_design(text))
    first_lines = [t.get_text().split("\n")[0] for t in ax.texts]
    assert sorted(first_lines) == sorted(e.name for e in effects)
    (last,) = [t.get_text() for t in ax.texts if "error" in t.get_text()]
    assert last.startswith("piob:a\n= ")
    noted = {t.get_text().split("\n")[0] for t in ax.texts if "\n" in t.get_text()}
    assert noted == {place.effect.name for place in res.design.effects if len(place.holds) > 1}
    # A line for each pair of effects with none between them.
    sets = [e.facets for e in effects]
    covers = sum(a < b and not any(a < c < b for c in sets) for a in sets for b in sets)
    assert len(ax.lines) == covers
    places = {t.get_position() for t in ax.texts}
    assert len(places) == len(effects)


def test_axes_that_are_given_are_used():
    _, own = plt.subplots()
    assert fitted("p x i").design.plot(ax=own) is own
    assert lattice([Node("a$b", frozenset("a"), "own")], "a$b", ax=own) is own
    assert own.get_title() == r"a\$b"


def test_too_many_effects_to_draw():
    table = {f"f{k}": np.arange(128) >> k & 1 for k in range(7)}
    table["y"] = np.random.default_rng(0).normal(size=128)
    res = vcomp.fit("y ~ " + " + ".join(f"(1|f{k})" for k in range(7)), table, method="anova")
    with pytest.raises(vcomp.DesignError, match="127 effects, and up to 64 can be drawn"):
        res.design.plot()
    assert "f0 x f1 x f2 x f3 x f4 x f5 x f6" in str(res.design)


def test_a_legend_of_all_kinds_fits_into_the_picture():
    formula = "score ~ C(p) + (1|i) + (1|o) + (1|p:i)"
    ax = fitted("p x i x o", formula, replicates=2, method="reml").design.plot()
    assert len(legend(ax)) == len(KINDS)
    ax.figure.canvas.draw()
    box = ax.get_legend().get_window_extent()
    assert 0.0 <= box.x0 < box.x1 <= ax.figure.bbox.x1

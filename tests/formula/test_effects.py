"""Effects, degrees of freedom and expected mean squares: by nesting, by brute force, by fits."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.brennan_designs import DESIGNS, balanced_data, small_designs
from tests.helpers.cases import alternately
from tests.helpers.examples import examples
from vcomp.formula.brennan import BrennanDesign, parse_design
from vcomp.formula.effects import design_effects, design_formula, expected_mean_squares


def names(text):
    return [effect.name for effect in design_effects(parse_design(text))]


# Brennan (2001), chap. 3, lists the effects of his designs by these names.
@pytest.mark.parametrize(
    ("design", "expected"),
    [
        ("p x i", "p i pi"),
        ("i:p", "p i:p"),
        ("p x i x o", "p i o pi po io pio"),
        ("p x (i:h)", "p h i:h ph pi:h"),
        ("(i:p) x o", "p o i:p po io:p"),
        ("i:(p x h)", "p h ph i:ph"),
        ("i:h:p", "p h:p i:h:p"),
        ("(i x h):p", "p i:p h:p ih:p"),
        ("p x a x (d:i)", "p a i d:i pa pi ai pd:i ad:i pai pad:i"),
        ("(i:p) x (r:t)", "p t i:p r:t pt it:p pr:t ir:pt"),
    ],
)
def test_effects_in_the_order_and_names_of_the_field(design, expected):
    assert sorted(names(design)) == sorted(expected.split())
    assert names(design) == expected.split()


def test_longer_names_are_apart():
    assert names("sys x (judge:topic)") == [
        "sys", "topic", "judge:topic", "sys x topic", "(sys x judge):topic"
    ]  # fmt: skip
    assert names("p x item") == ["p", "item", "p x item"]


@given(small_designs(most=5))
def test_an_effect_for_every_set_that_nesting_closes(design):
    facets = design.facets
    closed = [
        set(s)
        for n in range(1, len(facets) + 1)
        for s in combinations(facets, n)
        if all(design.nested_in[f] <= set(s) for f in s)
    ]
    effects = design_effects(design)
    assert sorted(map(sorted, closed)) == sorted(sorted(e.facets) for e in effects)
    assert len({e.name for e in effects}) == len({e.term for e in effects}) == len(effects)
    for k, effect in enumerate(effects):
        outer = [f for f in effect.facets if any(f in design.nested_in[g] for g in effect.facets)]
        assert effect.innermost == effect.facets - set(outer)
        assert set(effect.term.split(":")) == effect.facets
        assert not any(later.facets < effect.facets for later in effects[k:])


@settings(max_examples=examples(40), deadline=None)
@given(small_designs(most=4), st.data())
def test_degrees_of_freedom_are_ranks(design, data):
    """What an effect adds to the space of those within it, by the rank of indicator columns."""
    sizes = {f: data.draw(st.integers(1, 3)) for f in design.facets}
    cells = list(product(*(range(sizes[f]) for f in design.facets)))
    place = {f: k for k, f in enumerate(design.facets)}

    def indicators(facets):
        groups = [tuple(cell[place[f]] for f in sorted(facets)) for cell in cells]
        known = sorted(set(groups))
        return np.array([[g == k for k in known] for g in groups], dtype=float)

    effects = design_effects(design)
    table = expected_mean_squares(design, sizes)
    for effect in effects:
        smaller = [e for e in effects if e.facets < effect.facets]
        below = np.hstack([np.ones((len(cells), 1)), *(indicators(e.facets) for e in smaller)])
        both = np.hstack([below, indicators(effect.facets)])
        rank = np.linalg.matrix_rank(both) - np.linalg.matrix_rank(below)
        assert table.loc[effect.name, "df"] == rank


@pytest.mark.parametrize(("text", "replicates"), alternately(DESIGNS, 1, 2))
def test_expected_mean_squares_are_those_of_a_fit(text, replicates):
    design = parse_design(text)
    sizes = {f: 2 + k % 2 for k, f in enumerate(design.facets)}
    data = balanced_data(design, sizes, replicates)
    formula = design_formula(design, replicated=replicates > 1)
    fitted = vcomp.fit(formula, data, method="anova").anova_table()
    given_sizes = {**sizes, "replicate": replicates} if replicates > 1 else sizes
    table = expected_mean_squares(design, given_sizes)
    terms = [*table["term"][:-1], "Residual"]
    assert list(fitted.index) == terms
    np.testing.assert_array_equal(fitted["df"], table["df"].astype(float))
    expected = table.drop(columns=["term", "df"]).to_numpy(dtype=float)
    ours = fitted[[f"E[{t}]" for t in terms]].to_numpy()
    np.testing.assert_allclose(ours, expected, atol=1e-11)


def test_expected_mean_squares_of_a_book_example():
    """Brennan's p × (i:h), by his rule: n of the facets that an effect has not."""
    n_p, n_i, n_h = 10, 8, 2
    table = expected_mean_squares(parse_design("p x (i:h)"), {"p": n_p, "i": n_i, "h": n_h})
    p = table.loc["p"].drop(["term", "df"]).to_dict()
    assert p == {"E[p]": n_i * n_h, "E[h]": 0, "E[i:h]": 0, "E[ph]": n_i, "E[pi:h]": 1}
    h = table.loc["h"].drop(["term", "df"]).to_dict()
    assert h == {"E[p]": 0, "E[h]": n_p * n_i, "E[i:h]": n_p, "E[ph]": n_i, "E[pi:h]": 1}
    assert table.loc["pi:h", "df"] == (n_p - 1) * n_h * (n_i - 1)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"p": 3}, "the size of 'i' is missing"),
        ({"p": 3, "i": 4, "person": 2}, r"unknown facet 'person'.*the design has p, i"),
        ({"p": 3, "i": 0}, "the size of 'i' must be a whole number of at least 1, not 0"),
        ({"p": 3, "i": 2.5}, "the size of 'i' must be a whole number"),
        ({"p": 3, "i": True}, "the size of 'i' must be a whole number"),
        ({"p": 3, "i": "4"}, "the size of 'i' must be a whole number"),
        ({"p": float("nan"), "i": 4}, "the size of 'p' must be a whole number"),
    ],
)
def test_sizes_have_to_be_whole_numbers_of_all_facets(sizes, message):
    with pytest.raises(vcomp.PlanError, match=message):
        expected_mean_squares(parse_design("p x i"), sizes)


def test_sizes_may_be_numbers_of_numpy():
    table = expected_mean_squares(parse_design("p x i"), {"p": np.int64(3), "i": np.int32(4)})
    assert table["df"].tolist() == [2, 3, 6]


def test_too_many_facets_to_list():
    crossed = BrennanDesign.of([f"facet{k}" for k in range(13)], {})
    with pytest.raises(vcomp.PlanError, match="13 facets; effects are listed for up to 12"):
        design_effects(crossed)

"""Layouts of observations, by loops over objects and groups."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from vcomp.exceptions import PlanError
from vcomp.formula import REPLICATE, parse_design
from vcomp.gtheory import from_components
from vcomp.gtheory.layout import Layout, joined, layout_divisors, layout_sizes, read_layouts

SETS = [(), ("a",), ("b",), ("a", "b"), ("a", "c"), ("a", "b", "c"), ("p", "a")]


def layout(seed, objects=4, n=30):
    """Return observations of objects, all of which have some, and their rows as tuples."""
    rng = np.random.default_rng(seed)
    owner = np.concatenate([np.arange(objects), rng.integers(0, objects, n - objects)])
    codes = {name: rng.integers(0, k, n) for name, k in (("a", 3), ("b", 4), ("c", 2))}
    return Layout(codes, owner)


def shares(made, facets):
    """Return the share of each object's observations in each group, as fractions."""
    found = []
    for p in range(int(made.objects.max()) + 1):
        own = np.flatnonzero(made.objects == p).tolist()
        keys = [tuple(int(made.codes[f][i]) for f in facets if f in made.codes) for i in own]
        found.append({key: Fraction(keys.count(key), len(own)) for key in set(keys)})
    return found


@pytest.mark.parametrize("facets", SETS)
@pytest.mark.parametrize("objects", [1, 2, 5])
def test_divisors_are_sums_of_squared_shares(facets, objects):
    made = layout(objects, objects)
    w = shares(made, facets)
    expected = sum(sum(x**2 for x in each.values()) for each in w) / len(w)
    assert made.inverse_n(facets) == pytest.approx(float(expected), rel=1e-14)
    n = np.bincount(made.objects)
    assert made.inverse_n({*facets, REPLICATE}) == pytest.approx((1.0 / n).mean(), rel=1e-14)


def test_differences_contain_nothing_of_a_fixed_facet():
    """Persons answer items of their own: these are error, and fixed occasions are not."""
    values = {"p": 1.0, "i": 0.3, "o": 7.0, "pi": 0.2, "po": 0.1, "io": 0.5, "Residual": 0.4}
    rows = [(p, 2 * p + k, o) for p in range(3) for k in range(2) for o in range(2)]
    # Without the last one persons weigh occasions differently.
    plan = pd.DataFrame(rows[:-1], columns=["p", "i", "o"])
    found, without = (
        from_components(values | {"o": o})
        .dstudy("p x i x o", object="p", layout=plan, fixed="o")
        .table["rel_err_var"]
        .iloc[0]
        for o in (7.0, 0.0)
    )
    assert found == pytest.approx(without, rel=1e-12)
    random = from_components(values).dstudy("p x i x o", object="p", layout=plan)
    assert random.table["rel_err_var"].iloc[0] > found + 0.1


@pytest.mark.parametrize("facets", SETS)
@pytest.mark.parametrize("objects", [1, 2, 5])
def test_what_differences_contain_of_an_effect_without_the_object(facets, objects):
    made = layout(objects + 10, objects)
    w = shares(made, facets)
    groups = set().union(*w)
    own = sum(sum(x.get(g, 0) ** 2 for g in groups) for x in w) / Fraction(len(w))
    pairs = list(itertools.permutations(w, 2))
    both = sum(sum(x.get(g, 0) * y.get(g, 0) for g in groups) for x, y in pairs)
    expected = own - both / Fraction(len(pairs)) if pairs else 0
    assert made.unshared(facets) == pytest.approx(float(expected), rel=1e-12, abs=1e-15)


def test_objects_with_the_same_levels_share_all():
    rng = np.random.default_rng(0)
    a = np.tile(rng.integers(0, 5, 7), 6)
    made = Layout({"a": a}, np.repeat(np.arange(6), 7))
    assert made.unshared(["a"]) == 0.0
    assert made.inverse_n(["a"]) > 0.2


@pytest.mark.parametrize("above", [(), ("b",), ("b", "c")])
def test_levels_are_counted_for_one_object_within_others(above):
    made = layout(3)
    most = 0
    for p in range(4):
        for outer in itertools.product(range(4), range(2)):
            rows = made.objects == p
            for name, level in zip(("b", "c"), outer, strict=True):
                if name in above:
                    rows &= made.codes[name] == level
            most = max(most, len(set(made.codes["a"][rows].tolist())))
    assert made.most_levels("a", above) == most
    assert made.most_levels("replicate", above) == 0


def test_effective_sizes_multiply_to_the_divisor():
    design = parse_design("p x (c:(b:a))")
    made = layout(5)
    sizes = layout_sizes(made, ["a", "b", "c"], design)
    nested = [(), ("a",), ("a", "b"), ("a", "b", "c")]
    for size, outer, inner in zip(sizes, nested, nested[1:], strict=False):
        assert size == pytest.approx(made.inverse_n(outer) / made.inverse_n(inner), rel=1e-14)
    assert np.prod(sizes) == pytest.approx(1.0 / made.inverse_n("abc"), rel=1e-13)
    balanced = Layout(
        {"a": np.repeat(np.arange(3), 14), "b": np.arange(42) // 2}, np.zeros(42, dtype=int)
    )
    assert layout_sizes(balanced, ["a", "b"], parse_design("p x (b:a)")) == [3.0, 7.0]


def test_sizes_that_are_whole_but_for_rounding_are_whole():
    design, off = parse_design("p x (b:a)"), []
    for k in range(2, 60):
        codes = {"a": np.repeat(np.arange(k), 3), "b": np.arange(3 * k)}
        made = Layout(codes, np.zeros(3 * k, dtype=int))
        off.append(1.0 / made.inverse_n(["a"]) - k)
        assert layout_sizes(made, ["a", "b"], design) == [k, 3]
    assert any(off)
    # One of 10,001 observations more of one level is no rounding.
    a = np.append(np.repeat([0, 1], 5_000), 0)
    (size,) = layout_sizes(
        Layout({"a": a}, np.zeros(a.size, dtype=int)), ["a"], parse_design("p x a")
    )
    assert size == pytest.approx(2.0 - 2e-8, abs=1e-9)
    assert size != 2.0


def test_cells_that_repeat_need_replicates():
    once = Layout({"a": np.array([0, 1, 2])}, np.zeros(3, dtype=int))
    effects = [frozenset("p"), frozenset("a"), frozenset("pa")]
    np.testing.assert_allclose(layout_divisors(once, effects), [1.0, 1 / 3, 1 / 3])
    twice = Layout({"a": np.array([0, 1, 1])}, np.zeros(3, dtype=int))
    with pytest.raises(PlanError, match="repeats a cell"):
        layout_divisors(Layout({"a": np.r_[0:9, 8]}, np.zeros(10, dtype=int)), effects)
    with pytest.raises(PlanError, match="repeats a cell"):
        layout_divisors(twice, effects)
    found = layout_divisors(twice, [*effects, frozenset(["p", "a", REPLICATE])])
    np.testing.assert_allclose(found, [1.0, 5 / 9, 5 / 9, 1 / 3])


def test_combinations_are_numbered_in_order():
    rng = np.random.default_rng(1)
    left, right = rng.integers(0, 9, 50), rng.integers(0, 4, 50)
    pairs = list(zip(left.tolist(), right.tolist(), strict=True))
    order = sorted(set(pairs))
    assert joined(left, right).tolist() == [order.index(pair) for pair in pairs]
    nothing = np.zeros(0, dtype=np.int64)
    assert joined(nothing, nothing).size == 0


def test_tables_are_read():
    design, objects = parse_design("p x a x b"), frozenset(["p"])
    table = pd.DataFrame({"a": ["x", "y", "x"], "b": [3, 1, 1], "more": 0})
    (made,) = read_layouts(table, design, objects).values()
    assert {f: c.tolist() for f, c in made.codes.items()} == {"a": [0, 1, 0], "b": [0, 1, 1]}
    assert made.objects.tolist() == [0, 0, 0]
    own = table.assign(p=["q", "r", "q"])
    several = read_layouts([table, own], design, objects)
    assert list(several) == ["1", "2"]
    assert several["2"].objects.tolist() == [0, 1, 0]
    assert list(read_layouts({"one": table, "other": own}, design, objects)) == ["one", "other"]
    assert list(read_layouts({"a": [1, 2], "b": [1, 1]}, design, objects)) == ["layout"]
    two = parse_design("p x q x a")
    with pytest.raises(PlanError, match="has columns p of the object, but not q"):
        read_layouts(own[["p", "a"]], two, frozenset(["p", "q"]))
    for bad, message in (
        (table[:0], "has no rows"),
        ({}, "the mapping is empty"),
        (table.assign(a=["x", None, "x"]), "missing value in column 'a'"),
        (table[["a"]], "the layout cannot be read"),
        ({"one": table[["a"]]}, "layout 'one' cannot be read"),
    ):
        with pytest.raises(PlanError, match=message):
            read_layouts(bad, design, objects)

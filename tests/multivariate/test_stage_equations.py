"""Which terms of several variables are eliminated first."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.multivariate_scores import crossed, layout_of, specification
from vcomp.multivariate.stage_equations import (
    _is_nested,
    of_units,
    plan_elimination,
    stage_sums,
    units_of,
)
from vcomp.multivariate.stage_traces import subtract_by_level


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.booleans(), st.integers(0, 2**32 - 1))
def test_groups_are_nested_if_each_has_units_of_one_level(q, n_levels, nested, seed):
    rng = np.random.default_rng(seed)
    group = np.append(np.arange(q), rng.integers(q, size=12))
    level = np.append(np.arange(n_levels), rng.integers(n_levels, size=12 + q - n_levels))
    if nested and n_levels <= q:
        of_group = np.append(np.arange(n_levels), rng.integers(n_levels, size=q - n_levels))
        level = of_group[group]
    expected = all(np.unique(level[group == g]).size == 1 for g in range(q))
    assert _is_nested(group, q, level, n_levels) is expected


def dense_multiplications(plan, v):
    """Return the multiplications of factors and solves, block by block."""
    of_groups = sum(c.levels.size * c.columns.size**2 * v**3 for c in plan.classes)
    width, columns = plan.n_slots * v, plan.n_columns * v
    of_levels = plan.n_levels * (width**3 + width * columns**2)
    return 3 * (of_groups + of_levels) + 8 * columns**3


@pytest.mark.parametrize("v", [2, 3])
def test_the_elimination_with_the_fewest_multiplications_is_chosen(v):
    """Persons, raters within persons and items: by persons, raters alone, or items."""
    rng = np.random.default_rng(1)
    for n_p, n_i in ((30, 4), (4, 30), (12, 12)):
        p, r, i = (x.ravel() for x in np.mgrid[:n_p, :2, :n_i])
        keep = rng.random(p.size) < 0.8
        p, r, i = p[keep], (2 * p + r)[keep], i[keep]
        groups = [x.astype(np.int32) for x in (p, i, r)]
        sizes, levels = [n_p, n_i, 2 * n_p], [(groups[0], n_p), (groups[1], n_i)]
        best = plan_elimination(groups, sizes, levels, v)
        assert best.multiplications(v) == dense_multiplications(best, v)
        every = [
            plan_elimination(groups, sizes, [], v),
            *(plan_elimination(groups, sizes, [level], v) for level in levels),
        ]
        assert best.multiplications(v) == min(plan.multiplications(v) for plan in every)
        expected = {0, 2} if n_p > n_i else {1}
        if n_p != n_i:
            assert set(best.terms) == expected


LAYOUTS = {
    "wide": lambda: layout_of("a + b + c ~ (1|p) + (1|i)", crossed(3)),
    "long, incomplete": lambda: layout_of(
        "y ~ (1|p) + (1|i)", specification(5, missing=0.3), variable="test"
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_units_have_their_scores_in_rows(name):
    layout = LAYOUTS[name]()
    y = np.random.default_rng(1).normal(size=layout.y.size)
    units, scores, v = units_of(layout, y), layout.scores, layout.n_variables
    assert sorted(units.order.tolist()) == list(range(scores.n_units))
    known = {(int(u), int(j)): x for u, j, x in zip(scores.unit, scores.variable, y, strict=True)}
    for row, unit in enumerate(units.order.tolist()):
        there = [(unit, j) in known for j in range(v)]
        assert units.observed[units.pattern[row]].tolist() == there
        assert units.Y[row].tolist() == [known.get((unit, j), 0.0) for j in range(v)]
    assert len({tuple(row) for row in units.observed.tolist()}) == len(units.parts)
    stops = [0, *(part.stop for part in units.parts)]
    assert [part.start for part in units.parts] == stops[:-1]
    assert stops[-1] == scores.n_units
    rng = np.random.default_rng(2)
    X, blocks = rng.normal(size=units.Y.shape), rng.normal(size=(len(units.parts), v, v))
    for row, pattern in enumerate(units.pattern):
        np.testing.assert_allclose(units.times(X, blocks)[row], X[row] @ blocks[pattern])
    products = np.zeros_like(blocks)
    for row, pattern in enumerate(units.pattern):
        products[pattern] += np.outer(X[row], X[row])
    np.testing.assert_allclose(units.products(X), products, rtol=1e-12)
    values = np.arange(scores.n_units) * 7
    np.testing.assert_array_equal(of_units(layout, values[scores.unit], units.order),
                                  values[units.order])  # fmt: skip


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("terms", [0, 1, 3])
def test_sums_of_a_stage_by_pattern(n, terms):
    rng = np.random.default_rng(n + 7 * terms)
    units, q = 25, 9
    pattern = rng.integers(0, n, units)
    # Effect 4 has no unit.
    positions = [rng.choice([0, 1, 2, 3, 5, 6, 7, 8], units) for _ in range(terms)]
    found = stage_sums(positions, q, pattern, n)
    counts = {
        (e, u): sum(int(p[u] == e) for p in positions) for e in range(q) for u in range(units)
    }
    expected = np.array([[counts[e, u] for u in range(units)] for e in range(q)], dtype=float)
    np.testing.assert_array_equal(found.places.toarray(), expected)
    apart = found.by_pattern.toarray()
    used = sorted({(e, int(pattern[u])) for e, u in itertools.product(range(q), range(units))
                   if counts[e, u]})  # fmt: skip
    assert len(apart) == len(used)
    assert found.starts.tolist() == [sum(e < k for e, _ in used) for k in range(q + 1)]
    for row, (e, p) in enumerate(used):
        assert found.patterns[row] == p
        np.testing.assert_array_equal(apart[row], expected[e] * (pattern == p))


@pytest.mark.parametrize("per_level", [1, 2, 40], ids=["one group", "few groups", "many groups"])
def test_products_are_subtracted_by_level(per_level):
    rng = np.random.default_rng(per_level)
    levels = np.sort(rng.integers(0, 9, 9 * per_level))
    left, right = rng.normal(size=(levels.size, 3, 2)), rng.normal(size=(levels.size, 3, 4))
    totals = rng.normal(size=(9, 2, 4))
    expected = totals.copy()
    for level, x, y in zip(levels, left, right, strict=True):
        expected[level] -= x.T @ y
    subtract_by_level(totals, levels, left, right)
    np.testing.assert_allclose(totals, expected, rtol=1e-12, atol=1e-12)

"""Sums over units, counted in dictionaries."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.helpers.multivariate_scores import crossed, layout_of, specification
from vcomp.multivariate.unit_sums import of_units, stage_sums, subtract_by_level, units_of

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

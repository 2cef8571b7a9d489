"""Which terms of several variables are eliminated first."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcomp.multivariate.elimination_plan import _is_nested, plan_elimination


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

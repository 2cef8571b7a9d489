"""Layouts of several variables: counts, shares and incidences, by loops over scores."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from tests.helpers.multivariate_scores import crossed, layout_of, specification
from vcomp.multivariate.estimate_record import inverse_n, shares_of

LAYOUTS = {
    "wide": lambda: layout_of("a + b + c ~ (1|p) + (1|i)", crossed(3)),
    "small units": lambda: layout_of("a + b ~ (1|p) + (1|i)", 1e-3 * crossed(3, v=2)),
    "rows missing": lambda: layout_of("a + b + c ~ (1|p) + (1|i)", crossed(13).drop(index=[0, 8])),
    "long, incomplete": lambda: layout_of(
        "y ~ (1|p) + (1|i)", specification(5, missing=0.3), variable="test"
    ),
    "two items": lambda: layout_of("a + b ~ (1|p) + (1|i)", crossed(6, n_i=2, v=2)),
    "combinations": lambda: layout_of("a + b ~ (1|p) + (1|i) + (1|p:i)", repeated()),
}


def repeated():
    """Return two scores of most cells, as an unbalanced table with replicates."""
    data = pd.concat([crossed(4), crossed(5)], ignore_index=True)
    return data.drop(index=[0, 3, 17])


@pytest.fixture(scope="module", params=LAYOUTS)
def layout(request):
    return LAYOUTS[request.param]()


def groups_of(layout, term):
    """Return the scores (positions) of each group in each variable."""
    found = {}
    for k, (g, a) in enumerate(zip(layout.groups[term], layout.scores.variable, strict=True)):
        found.setdefault((int(g), int(a)), []).append(k)
    return found


def test_scores_are_centred_by_variable(layout):
    y, scores = layout.y, layout.scores
    for a in range(layout.n_variables):
        own = scores.y[scores.variable == a]
        np.testing.assert_allclose(y[scores.variable == a], own - own.mean(), atol=1e-12)
        assert layout.scale[a] == pytest.approx(own.std(), rel=1e-12)
        np.testing.assert_array_equal(np.arange(scores.n)[scores.of(a)],
                                      np.flatnonzero(scores.variable == a))  # fmt: skip


def test_counts_and_shared_groups(layout):
    v = layout.n_variables
    for t, q in enumerate(layout.sizes):
        own = groups_of(layout, t)
        expected = [[len(own.get((g, a), ())) for a in range(v)] for g in range(q)]
        np.testing.assert_array_equal(layout.counts[t], expected)
        for a, b in itertools.product(range(v), repeat=2):
            shared = sum((g, a) in own and (g, b) in own for g in range(q))
            assert layout.shared[t, a, b] == shared
            assert layout.linked[t, a, b] == (shared >= 2)
    assert layout.same_rows == all(
        len(scores) == 1 for scores in groups_of(layout, len(layout.sizes) - 1).values()
    ) * (len(groups_of(layout, len(layout.sizes) - 1)) == layout.sizes[-1] * v)


def test_tables_of_two_terms(layout):
    for t, q in enumerate(layout.sizes):
        for a in range(layout.n_variables):
            groups = [g[layout.scores.of(a)] for g in layout.groups]
            for u, size in enumerate(layout.sizes):
                shared = np.eye(q)[groups[t]].T @ np.eye(size)[groups[u]]
                pairs, found = layout.joint(t, u), np.zeros((q, size))
                found[pairs.rows, pairs.columns] = pairs.counts[:, a]
                np.testing.assert_array_equal(found, shared)


def test_shares_are_those_of_the_means_of_groups(layout):
    """Σ_h n_gh(a) n_gh(b)/(n_g(a) n_g(b)), and its mean over the groups that both have."""
    v = layout.n_variables
    for t, u in itertools.product(range(len(layout.sizes)), repeat=2):
        own = groups_of(layout, t)
        expected = np.zeros((layout.sizes[t], v, v))
        for g, a, b in itertools.product(range(layout.sizes[t]), range(v), range(v)):
            if (g, a) not in own or (g, b) not in own:
                continue
            counts = [
                np.bincount(layout.groups[u][own[g, c]], minlength=layout.sizes[u]) for c in (a, b)
            ]
            products = float(counts[0] @ counts[1])
            expected[g, a, b] = products / (len(own[g, a]) * len(own[g, b]))
        np.testing.assert_allclose(shares_of(layout, t, u), expected, rtol=1e-13)
        mean = inverse_n(layout, t)[u]
        for a, b in itertools.product(range(v), repeat=2):
            both = [g for g in range(layout.sizes[t]) if (g, a) in own and (g, b) in own]
            value = expected[both, a, b].mean() if both else 0.0
            assert mean[a, b] == pytest.approx(value, rel=1e-12)

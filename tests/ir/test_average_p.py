"""Sums of p-values by bins of differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from vcomp.exceptions import PlanError
from vcomp.ir.average_p import _sizes, _sums


@pytest.mark.parametrize("sides", [1, 2])
def test_sums_by_bins_pair_by_pair(sides):
    """Bins hold their lower bound; the last ones may be empty, and larger differences are left."""
    X = np.random.default_rng(3).normal(size=(12, 6)) + np.array([0.0, 0.1, 0.4, 0.9, 1.0, 5.0])
    bounds = np.array([0.0, 0.3, 2.2, 2.5, 2.6])
    counts, p = np.zeros(4), np.zeros(4)
    for i in range(6):
        for j in range(i + 1, 6):
            d = abs((X[:, i] - X[:, j]).mean())
            b = np.searchsorted(bounds, d, side="right") - 1
            if b < 4:
                counts[b] += 1
                p[b] += stats.ttest_rel(X[:, i], X[:, j]).pvalue * sides / 2
    assert counts[2:].tolist() == [0.0, 0.0]
    assert counts.sum() == 10
    np.testing.assert_allclose(_sums(X, bounds, "t", sides), [counts, p], rtol=1e-10)


@pytest.mark.parametrize(("given", "sizes"), [(2, [2]), ([10, 2, 10], [2, 10]), (12.5, [12.5])])
def test_sizes_are_two_topics_or_more(given, sizes):
    assert _sizes(given, 10).tolist() == sizes


@pytest.mark.parametrize("given", [1, 1.999, 2.5, 9.5])
def test_sizes_that_cannot_be(given):
    with pytest.raises(PlanError, match="tests need two topics or more"):
        _sizes(given, 10)

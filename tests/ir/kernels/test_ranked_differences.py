"""Signed ranks against all signs, one after the other."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

from vcomp.ir.kernels.ranked_differences import DROPPED, PRATT, SPLIT, signed_ranks

TIED = np.random.default_rng(8).integers(0, 4, (8, 5)) / 4.0


def enumerated(d, zeros):
    """Return T+ and its tails over all signs, as fractions."""
    ranks = stats.rankdata(np.abs(d[d != 0] if zeros == "wilcox" else d))
    signs = np.sign(d[d != 0] if zeros == "wilcox" else d)
    ranks = np.array([Fraction(r) for r in ranks])
    observed = sum(r * Fraction(1 + int(s)) / 2 for r, s in zip(ranks, signs, strict=True)
                   if s or zeros == "zsplit")  # fmt: skip
    flipped = ranks[signs != 0]
    fixed = sum(ranks[signs == 0]) / 2 if zeros == "zsplit" else 0  # zeros have no sign to flip
    sums = [fixed + sum(r for r, up in zip(flipped, ups, strict=True) if up)
            for ups in product((False, True), repeat=len(flipped))]  # fmt: skip
    low, high = (sum(s <= observed for s in sums), sum(s >= observed for s in sums))
    return observed, Fraction(low, len(sums)), Fraction(high, len(sums))


@pytest.mark.parametrize(
    ("zeros", "code"), [("pratt", PRATT), ("wilcox", DROPPED), ("zsplit", SPLIT)]
)
def test_signed_ranks_enumerated_with_ties_and_zeros(zeros, code):
    X = TIED
    i, j = np.triu_indices(5, 1)
    D = np.ascontiguousarray((X[:, i] - X[:, j]).T)
    ranks = signed_ranks(D, np.argsort(np.abs(D), axis=1), code, 1e-14, 50)
    for place in range(i.size):
        observed, low, high = enumerated(X[:, i[place]] - X[:, j[place]], zeros)
        assert ranks[place, 0] == observed
        assert ranks[place, 4] == low
        assert ranks[place, 5] == high


@pytest.mark.parametrize("code", [PRATT, DROPPED, SPLIT])
def test_moments_are_those_of_random_signs(code):
    """T+ is Σ rᵢ Bᵢ with fair coins Bᵢ: mean Σ r/2, variance Σ r²/4; tails up to a size."""
    d = np.array([[0.0, 0.3, -0.3, 0.31, 0.0, -0.7, 1.2, 0.5]])
    order = np.argsort(np.abs(d), axis=1, kind="stable")
    ranks = stats.rankdata(np.abs(d[0] if code != DROPPED else d[0][d[0] != 0.0]))
    fixed = 1.5 if code == SPLIT else 0.0  # half of the ranks of two zeros, 1.5 each
    if code != DROPPED:
        ranks = ranks[d[0] != 0.0]
    for exact_up_to in (len(ranks), len(ranks) - 1):
        found = signed_ranks(d, order, code, 1e-12, exact_up_to)[0]
        assert found[1] == ranks.sum() / 2 + fixed
        assert found[2] == (ranks**2).sum() / 4
        assert found[3] == ranks.size
        assert np.isnan(found[4:]).all() == (exact_up_to < ranks.size)
    # Differences as far apart as the tolerance are tied, one after the other.
    near = signed_ranks(d, order, code, 0.011, 0)[0]
    assert near[0] == found[0] - 0.5
    assert near[1] == found[1]


@pytest.mark.parametrize(
    ("zeros", "code"), [("pratt", PRATT), ("wilcox", DROPPED), ("zsplit", SPLIT)]
)
def test_what_is_as_large_as_the_tolerance_is_nothing(zeros, code):
    """Of quarters: one is zero, and neighbours that are one apart are equal."""
    d = np.array([[0.25, 0.0, 0.0, -0.25, 0.25, 0.0], [0.25, -0.25, 1.0, -1.25, 1.5, 3.0]])
    found = signed_ranks(d, np.argsort(np.abs(d), axis=1, kind="stable"), code, 0.25, 50)
    for row, same in zip(found, (np.zeros(6), [0, 0, 1.25, -1.25, 1.25, 3.0]), strict=True):
        same = np.array(same)
        if not same.any():  # the one sum of no ranks; half of 21 where zeros have ranks
            split = 10.5 if zeros == "zsplit" else 0.0
            assert row.tolist() == [split, split, 0.0, 0.0, 1.0, 1.0]
        else:
            assert (row[0], row[4], row[5]) == enumerated(same, zeros)

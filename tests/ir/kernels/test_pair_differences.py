"""p-values from a table and computed directly, and signed ranks against all signs."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.special import stdtr

from vcomp.ir.kernels.pair_differences import (
    DROPPED,
    PRATT,
    SPLIT,
    _tail,
    _variance,
    binned_differences,
    signed_ranks,
    tail_table,
)
from vcomp.ir.kernels.rank_agreement import student_cdf
from vcomp.ir.significance import PairedTests, _counts, critical_t, paired_tests, signs


@pytest.mark.parametrize("df", [1, 2, 3, 24, 49, 250, 2001])
def test_p_values_are_those_of_student(df):
    t = np.concatenate([[0.0], np.geomspace(1e-8, 30.0, 300)])
    square = t**2 / (df + t**2)
    found = [
        _tail(z, s, df, tail_table(df)) for z, s in zip(df / (df + t**2), square, strict=True)
    ]
    # SciPy's loses digits near 0, where the finite sums of Abramowitz and Stegun do not.
    wanted = np.where(t < 1.0, 2.0 * student_cdf(-t, df), 2.0 * stdtr(df, -t))
    np.testing.assert_allclose(found, wanted, rtol=2e-12, atol=0.0)


@pytest.mark.parametrize("alpha", [None, 0.2])
def test_bins_of_all_pairs_are_those_of_the_tests_pair_by_pair(alpha):
    rng = np.random.default_rng(4)
    X, Y = rng.normal(size=(2, 8, 30)) + np.linspace(0.0, 2.0, 30)
    X[:, 3] = X[:, 5]  # no difference
    X[:, 7] = X[:, 9] + 0.5  # a difference without variance
    X[:, 11] = X[:, 13] + 1e-7 * rng.normal(size=8)  # whose variance cancels
    Y[:, 2] = Y[:, 4]
    bounds = np.array([0.1, 0.4, 1.0, 2.0])
    found, tests = _counts(X, Y, bounds, alpha), paired_tests(X)
    size = np.abs(tests.differences)
    counted = np.ones(size.size, bool) if alpha is None else tests.significant(alpha)
    swapped = tests.differences * signs(Y) < 0
    for b in range(3):
        inside = counted & (size >= bounds[b]) & (size < bounds[b + 1])
        assert found[0, b] == inside.sum() > 0
        assert found[1, b] == (inside & swapped).sum()
        assert found[2, b] == pytest.approx(tests.p_values[inside].sum(), rel=1e-11)


def test_variances_of_differences():
    X = np.random.default_rng(1).normal(size=(3, 7)) + 100.0
    for i, j in ((0, 1), (2, 0), (1, 1)):
        assert _variance(X, i, j) == pytest.approx((X[i] - X[j]).var(ddof=1), rel=1e-12)


@pytest.mark.parametrize("origin", [0.0, 2.0**20])
@pytest.mark.parametrize(
    ("off", "expected"),
    [(0.0, [0, 2, 1]), (1e-13, [0, 2, 1]), (1.4e-12, [0, 2, 1]), (1.6e-12, [1, 1, 1])],
)
def test_a_difference_is_below_a_bound_by_more_than_rounding(origin, off, expected):
    """Rounding is 1e-12 of the range of the means, 1.5, wherever they are."""
    X = np.array([[-0.5, 0.5], [1.0, 0.0], [2.5, 0.5]]) + origin
    means = X.mean(axis=1)  # exact: the differences are 0.5, 1 and 1.5
    bounds, zero = np.array([0.25, 0.5 + off, 1.25, 4.0]), (1e-12, 1.0, 0.0)
    S, table = np.cov(X), tail_table(1)
    counts = binned_differences(X, means, means, S, bounds, zero, 0.0, -1.0, table)
    assert counts[0].tolist() == expected
    assert counts.shape == (3, 3)


def test_variances_that_cancel_are_computed_from_the_differences():
    """Scores of 1e4 with differences of 1/100, in exact fractions."""
    d = np.array([3.0, 5.0, 4.0, 9.0]) / 512.0
    x = np.array([9000.0, -7000.0, 12000.0, -14000.0])
    X, n = np.array([x, x + d]), d.size
    p = 2.0 * stdtr(n - 1, -d.mean() / np.sqrt(d.var(ddof=1) / n))
    S, bounds, zero = np.cov(X), np.array([0.0, 1.0]), (0.0, 0.0, 0.0)

    def p_value(cancelled, critical=-1.0):
        means = X.mean(axis=1)
        return binned_differences(
            X, means, means, S, bounds, zero, cancelled, critical, tail_table(n - 1)
        )[2, 0]  # fmt: skip

    assert p_value(1e-6) == pytest.approx(p, rel=1e-9)
    assert p_value(0.0) != pytest.approx(p, rel=1e-6)  # what is lost otherwise


def test_limits_of_rounding_and_significance_are_left_out():
    """Of differences 0.5, 1 and 1.5 with t = 0.5, 2 and 1, which are all swapped."""
    X = np.array([[-0.5, 0.5], [1.0, 0.0], [2.5, 0.5]])
    others = np.array([0.5, 0.25, 0.0])

    def counted(zero=(0.0, 0.0, 0.0), critical=-1.0):
        return binned_differences(
            X, X.mean(axis=1), others, np.cov(X), np.array([0.25, 0.75, 1.25, 4.0]), zero, 0.0,
            critical, tail_table(1),
        )[:2].tolist()  # fmt: skip

    assert counted() == [[1, 1, 1], [1, 1, 1]]
    assert counted(zero=(0.5, 0.25, 0.0)) == [[0, 1, 1], [0, 0, 1]]
    # No variance, or none beyond rounding, is significant.
    assert counted(zero=(0.0, 0.0, 0.5), critical=2.0) == [[0, 1, 0], [0, 1, 0]]
    assert counted(critical=0.5) == [[0, 1, 1], [0, 1, 1]]
    assert counted(critical=2.0) == [[0, 0, 0], [0, 0, 0]]
    assert counted(critical=np.nextafter(2.0, 0.0)) == [[0, 1, 0], [0, 1, 0]]


@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_what_is_just_critical_is_not_significant(alpha):
    limit = critical_t(alpha, 7)
    t = np.array([-np.nextafter(limit, 9.0), -limit, limit, np.nextafter(limit, 9.0)])
    found = PairedTests(t, t, 7, np.ones(4)).significant(alpha)
    assert found.tolist() == [True, False, False, True]
    assert 2.0 * stdtr(7, -limit) == pytest.approx(alpha, rel=1e-12)


def test_tables_of_tails_cannot_be_changed():
    """They are made once and used by all."""
    with pytest.raises(ValueError, match="read-only"):
        tail_table(7)[0] = 1.0


@pytest.mark.parametrize("df", [1, 5, 300, 2000])
def test_tables_of_tails_are_smooth_where_their_series_begins(df):
    logs = np.log(tail_table(df)[1:-1])
    assert np.abs(np.diff(logs, 2)).max() < 1e-6


@pytest.mark.parametrize("df", [1, 7, 300])
def test_tables_of_tails_go_on_as_cubics(df):
    table = tail_table(df)
    for ends in (table[:5], table[-5:]):  # of a cubic the fourth differences are zero
        assert np.diff(ends, 4) == pytest.approx([0.0], abs=1e-13 * table.max())


@pytest.mark.parametrize("df", [1, 5, 400])
def test_tables_end_with_cubics(df):
    table = tail_table(df)
    for end in (table[:5], table[-5:]):
        assert np.diff(end, 4).item() == pytest.approx(0.0, abs=1e-14)
        assert abs(np.diff(end)).min() > 1e-12


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

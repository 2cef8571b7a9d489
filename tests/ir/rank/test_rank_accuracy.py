"""Published rank accuracy against a slow double loop, and what it must not depend on."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from math import comb, inf, sqrt
from statistics import NormalDist, mean, variance

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from tests.helpers.examples import examples
from vcomp.exceptions import DataError, PlanError, VcompError
from vcomp.ir.rank.correlation_tables import expected_correlation
from vcomp.ir.rank.paired import PairedDifferences

expected_tau_ap = partial(expected_correlation, variant="ap")
BOTH = pytest.mark.parametrize("measure", [expected_correlation, expected_tau_ap])
PHI = NormalDist().cdf


def swap_probability(one, other, n):
    """Return w of two columns of exact numbers; None is a missing cell."""
    D = [x - y for x, y in zip(one, other, strict=True) if x is not None and y is not None]
    D_bar, s2 = mean(D), variance(D)
    if s2 == 0:
        return 0.5 if D_bar == 0 else float(D_bar < 0)
    return PHI(-sqrt(n) * float(D_bar) / sqrt(s2))


def slow(columns, n):
    """Return Eτ, its variance, Eτ_AP and its variance by the formulae as they are printed."""
    ranked = sorted(columns, key=lambda column: -mean(x for x in column if x is not None))
    k = len(ranked)
    concordant = spread = concordant_ap = spread_ap = 0.0
    for i in range(1, k):
        for j in range(i):
            w = swap_probability(ranked[j], ranked[i], n)
            concordant += 1 - w
            spread += w * (1 - w)
            concordant_ap += (1 - w) / i
            spread_ap += w * (1 - w) / i**2
    return (
        4 * concordant / (k * (k - 1)) - 1,
        16 * spread / (k * (k - 1)) ** 2,
        2 * concordant_ap / (k - 1) - 1,
        4 * spread_ap / (k - 1) ** 2,
    )


def fast(pairs, n):
    tau, tau_ap = (
        f(pairs, n, estimator="urbano") for f in (expected_correlation, expected_tau_ap)
    )
    columns = ["estimate", "variance"]
    return (*tau[columns].to_numpy()[0], *tau_ap[columns].to_numpy()[0])


def pair_up(columns):
    scores = np.array(columns, dtype=float).T
    return PairedDifferences.from_scores(scores, [f"s{k}" for k in range(len(columns))])


@st.composite
def column_lists(draw, largest=12, incomplete=False):
    """Draw the scores of each system, as fractions: means and variances are then exact."""
    n_topics, k = draw(st.integers(2, 8)), draw(st.integers(2, 6))
    column = st.lists(st.integers(0, largest), min_size=n_topics, max_size=n_topics)
    columns = [[Fraction(x) for x in draw(column)] for _ in range(k)]
    # at most this many a system, and any two still have two topics in common
    holes = st.sets(st.integers(0, n_topics - 1), max_size=(n_topics - 2) // 2)
    for column in columns if incomplete else []:
        for topic in draw(holes):
            column[topic] = None
    return columns


COMPLETE = column_lists()
INCOMPLETE = column_lists(incomplete=True)
NUMBERS = st.sampled_from([1, 5, 50, 500])


def distinct(columns):
    means = [mean(x for x in column if x is not None) for column in columns]
    return len(set(means)) == len(means)


@given(COMPLETE, NUMBERS)
def test_complete_equals_double_loop(columns, n):
    np.testing.assert_allclose(fast(pair_up(columns), n), slow(columns, n), rtol=0, atol=1e-12)


@given(INCOMPLETE, NUMBERS)
@settings(max_examples=examples(100))
def test_missing_cells_equal_loop_over_pairs(columns, n):
    np.testing.assert_allclose(fast(pair_up(columns), n), slow(columns, n), rtol=0, atol=1e-12)


@given(INCOMPLETE, NUMBERS, st.randoms(use_true_random=False))
def test_order_of_topics_does_not_matter(columns, n, random):
    topics = list(zip(*columns, strict=True))
    random.shuffle(topics)
    shuffled = [list(column) for column in zip(*topics, strict=True)]
    np.testing.assert_allclose(fast(pair_up(shuffled), n), fast(pair_up(columns), n), atol=1e-12)


@given(column_lists(10_000, incomplete=True), NUMBERS, st.randoms(use_true_random=False))
def test_order_of_systems_does_not_matter(columns, n, random):
    assume(distinct(columns))
    shuffled = random.sample(columns, len(columns))
    np.testing.assert_allclose(fast(pair_up(shuffled), n), fast(pair_up(columns), n), atol=1e-12)


@given(INCOMPLETE, NUMBERS, st.floats(1e-6, 1e6), st.integers(-1000, 1000))
def test_scale_and_origin_do_not_matter(columns, n, scale, shift):
    scores = np.array(columns, dtype=float).T
    names = [f"s{k}" for k in range(len(columns))]
    moved = PairedDifferences.from_scores(scale * (scores + shift), names)
    np.testing.assert_allclose(fast(moved, n), fast(pair_up(columns), n), atol=1e-9)


@pytest.mark.parametrize("estimator", ["shrunken", "urbano"])
@pytest.mark.parametrize("share_missing", [0.0, 0.1])
@BOTH
def test_far_origin_costs_no_digits(measure, share_missing, estimator):
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(200, 20)) + rng.normal(size=20) / 5 + 3 * rng.normal(size=(200, 1))
    scores[rng.random(scores.shape) < share_missing] = np.nan
    near, far = (
        measure(
            PairedDifferences.from_scores(y, list("abcdefghijklmnopqrst")),
            [5, 50, 500],
            estimator=estimator,
            draws=10,
        )
        for y in (scores, scores + 1e7 * np.nanstd(scores))
    )
    np.testing.assert_allclose(far["estimate"], near["estimate"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("missing", [False, True])
def test_small_variance_beside_large_ones(missing):
    """The big system's noise, spread by the topic means, would drown that of the small ones."""
    rng = np.random.default_rng(3)
    scores = np.column_stack([rng.normal(size=(30, 4)), 1e6 * rng.normal(size=30)])
    if missing:
        scores[[2, 5], [1, 3]] = np.nan
    pairs = PairedDifferences.from_scores(scores, list("abcde"))
    at = {name: k for k, name in enumerate("abcde")}
    ranked = [at[name] for name in pairs.systems]
    expected = [
        np.nanvar(scores[:, ranked[i]] - scores[:, ranked[j]], ddof=1)
        for i in range(5)
        for j in range(i + 1, 5)
    ]
    np.testing.assert_allclose(pairs.variances, expected, rtol=1e-9)


class TestZeroVariance:
    scores = np.array([[0.1, 0.1, 0.4, 0.3], [0.7, 0.7, 1.0, 0.2], [0.3, 0.3, 0.6, 0.9]])

    @pytest.mark.parametrize("shift", [0.0, 0.1, 1e7])
    def test_constant_differences_are_found_in_spite_of_rounding(self, shift):
        pairs = PairedDifferences.from_scores(self.scores + shift, ["a", "twin", "better", "d"])
        assert pairs.systems == ("better", "d", "a", "twin")
        assert pairs.n_zero_variance == 3
        assert pairs.standardized[[1, 2, 5]].tolist() == [inf, inf, 0.0]
        t = [ttest_rel(self.scores[:, i], self.scores[:, 3]).statistic for i in (2, 0, 1)]
        np.testing.assert_allclose(
            pairs.standardized[[0, 3, 4]] * np.sqrt(3), [t[0], -t[1], -t[2]], rtol=1e-6
        )

    def test_w_is_one_half_for_twins_and_zero_for_a_constant_lead(self):
        twins = PairedDifferences.from_scores(self.scores[:, :2], ["a", "twin"])
        assert fast(twins, 10) == (0.0, 1.0, 0.0, 1.0)
        lead = PairedDifferences.from_scores(self.scores[:, [0, 2]], ["a", "better"])
        assert fast(lead, 10) == (1.0, 0.0, 1.0, 0.0)

    def test_w_is_one_where_common_topics_contradict_the_means(self):
        scores = np.array([[0.1, 0.2], [0.3, 0.4], [0.9, np.nan]])
        pairs = PairedDifferences.from_scores(scores, ["a", "b"])
        assert pairs.systems == ("a", "b")
        assert fast(pairs, 10) == (-1.0, 0.0, -1.0, 0.0)

    def test_tiny_but_real_differences_are_not_zero(self):
        scores = self.scores[:, :2] + np.array([[0, 1e-12], [0, 2e-12], [0, 4e-12]])
        pairs = PairedDifferences.from_scores(scores, ["a", "b"])
        assert pairs.n_zero_variance == 0
        np.testing.assert_allclose(np.sqrt(pairs.variances), 1.5275e-12, rtol=1e-3)

    def test_many_identical_systems(self):
        pairs = PairedDifferences.from_scores(
            np.repeat(self.scores[:, :1], 60, axis=1), [f"s{k}" for k in range(60)]
        )
        assert pairs.n_zero_variance == comb(60, 2)
        for estimator in ("shrunken", "urbano"):
            table = expected_correlation(pairs, 5, estimator=estimator)
            assert table["estimate"].item() == pytest.approx(0, abs=1e-15)
            assert table["low"].item() <= 0 <= table["high"].item()


def test_ties_keep_the_given_order_though_the_last_bit_differs():
    scores = np.array([[0.1, 0.3, 0.3], [0.2, 0.2, 0.3], [0.3, 0.1, 0.0]])
    assert scores[:, 0].sum() != scores[:, 1].sum()
    for order in ([0, 1, 2], [1, 2, 0], [2, 1, 0]):
        names = [f"s{k}" for k in order]
        assert PairedDifferences.from_scores(scores[:, order], names).systems == tuple(names)


def test_empty_topics_are_left_out():
    scores = np.array([[0.1, 0.3], [0.2, 0.2], [0.3, 0.5]])
    padded = np.vstack([scores, np.full((2, 2), np.nan)])
    pairs = PairedDifferences.from_scores(padded, ["a", "b"])
    assert pairs.n_topics == 3
    assert pairs.is_complete


@BOTH
class TestTable:
    pairs = pair_up([[1, 2, 4, 3], [2, 2, 5, 1], [0, 1, 1, 3]])

    def test_columns_and_rows(self, measure):
        table = measure(self.pairs, [10, 100])
        assert list(table) == ["n", "estimate", "variance", "low", "high", "estimator"]
        assert set(table["estimator"]) == {"shrunken"}
        assert table["n"].tolist() == [10, 100]
        assert table["n"].dtype.kind == "i"
        assert table["estimate"].is_monotonic_increasing

    def test_interval_is_normal_and_cut(self, measure):
        table = measure(self.pairs, [1, 40, 1000], estimator="urbano", alpha=0.1)
        half = NormalDist().inv_cdf(0.95) * np.sqrt(table["variance"])
        np.testing.assert_allclose(table["low"], np.maximum(table["estimate"] - half, -1))
        np.testing.assert_allclose(table["high"], np.minimum(table["estimate"] + half, 1))
        assert (table["high"] == 1).any()

    @pytest.mark.parametrize(
        "n", [[4, 9], (4, 9), range(4, 10, 5), np.array([4, 9]), pd.Series([4, 9])], ids=type
    )
    def test_any_sequence_will_do(self, measure, n):
        assert measure(self.pairs, n)["n"].tolist() == [4, 9]

    def test_fractions_of_a_topic_are_allowed(self, measure):
        assert measure(self.pairs, 12.5)["n"].tolist() == [12.5]

    @pytest.mark.parametrize("n", [0, -3, [50, -3], np.nan, inf, "50", True, [None], [[5]]])
    def test_other_numbers_are_refused_by_name(self, measure, n):
        wrong = {"[50, -3]": "-3", "[None]": "None", "[[5]]": "[5]"}.get(repr(n), repr(n))
        with pytest.raises(PlanError, match="must be positive, not ") as error:
            measure(self.pairs, n)
        assert str(error.value).endswith(f"not {wrong}")

    def test_no_number_is_refused(self, measure):
        with pytest.raises(PlanError, match="no number of topics"):
            measure(self.pairs, [])

    @pytest.mark.parametrize("alpha", [0, 1, -0.1, np.nan])
    def test_alpha_is_a_share(self, measure, alpha):
        with pytest.raises(PlanError, match="alpha must be between 0 and 1"):
            measure(self.pairs, 5, alpha=alpha)


NAN = np.nan


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([0.1, 0.2], "1 dimension"),
        ([[0.1], [0.2]], "at least two systems; there are 1"),
        ([[0.1, 0.2]], "at least two topics; scores are on 1"),
        ([[0.1, 0.2], [NAN, NAN]], "at least two topics; scores are on 1"),
        ([[0.1, 0.2], [0.3, inf]], "'s1' has an infinite score"),
        ([[1, 2, NAN], [1, 2, NAN]], "'s2' has scores on fewer than two topics"),
        ([[1, 2, 3], [1, 2, NAN], [3, 1, NAN]], "'s2' has scores on fewer than two topics"),
        (
            [[1, 2, 3], [1, NAN, 4], [NAN, 1, 2]],
            "'s0' and 's1' have fewer than two topics in common|'s1' and 's0' have fewer",
        ),
        (
            [[1, 2, 3, 4], [1, 3, NAN, NAN], [NAN, NAN, 2, 3]],
            "4 of 6 pairs of systems, '..' and '..' among them",
        ),
    ],
)
def test_unfit_scores_are_refused(scores, message):
    names = [f"s{k}" for k in range(np.shape(scores)[-1])]
    with pytest.raises(DataError, match=message):
        PairedDifferences.from_scores(scores, names)


def test_names_must_fit():
    with pytest.raises(VcompError, match="3 names for 2 systems"):
        PairedDifferences.from_scores([[1, 2], [3, 4]], ["a", "b", "c"])


def test_too_many_systems_are_refused_before_any_work():
    scores = np.broadcast_to(0.0, (3, 50_000))
    with pytest.raises(DataError, match="1,249,975,000 pairs"):
        PairedDifferences.from_scores(scores, range(50_000))

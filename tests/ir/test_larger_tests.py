"""Measures of tests between systems: on subsets, at the collection's own size, and beyond."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vcomp.exceptions import DataError, EstimationError, PlanError, VcompWarning
from vcomp.ir import accuracy, as_score_matrix, average_p_values
from vcomp.ir.measures import FromSubsets, available, get
from vcomp.ir.measures.larger_tests import _angle, _carried
from vcomp.ir.pair_forecast import PairForecast, compare_pairs
from vcomp.ir.significance import mean_squares
from vcomp.ir.splits import draw_halves, draw_subsets

RNG = np.random.default_rng(1)
SCORES = (RNG.normal(size=(21, 6)) + np.linspace(0, 1, 6)).round(2)
NAMES = [name for name in available() if isinstance(get(name), FromSubsets)]


def test_which_measures_they_are():
    assert NAMES == ["power_ratio", "minor_conflicts", "major_conflicts", "swap_rate", "p_value"]


# Tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [6, 20, 50, 70])
@pytest.mark.parametrize("rounded", [False, True])
def test_p_values_are_those_of_scipy(n, rounded):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 4)) + 0.2 * np.arange(4)
    X = X.round(0) if rounded else X
    found = {
        (test, sides): compare_pairs(X, test, sides).p_values
        for test in ("t", "wilcoxon")
        for sides in (1, 2)
    }
    for p, (i, j) in enumerate(combinations(range(4), 2)):
        d = X[:, i] - X[:, j]
        better = "greater" if d.mean() >= 0 else "less"
        assert found["t", 2][p] == pytest.approx(stats.ttest_1samp(d, 0.0).pvalue, rel=1e-9)
        one = stats.ttest_1samp(d, 0.0, alternative=better).pvalue
        assert found["t", 1][p] == pytest.approx(one, rel=1e-9)
        d = d[d != 0.0]
        two, one = signed_rank_p_values(d, better)
        assert found["wilcoxon", 2][p] == pytest.approx(two, rel=1e-9)
        assert found["wilcoxon", 1][p] == pytest.approx(one, rel=1e-9)


def signed_rank_p_values(d, better):
    """Return p-values of both and of one direction: all signs up to 50 ranks, else scipy's."""
    if d.size > 50:
        how = {"method": "approx", "correction": True}
        return stats.wilcoxon(d, **how).pvalue, stats.wilcoxon(d, alternative=better, **how).pvalue
    doubled = np.rint(2.0 * stats.rankdata(np.abs(d))).astype(int)  # tied ranks are halves
    shares = np.ones(1)
    for rank in doubled:
        shares = 0.5 * (np.append(shares, np.zeros(rank)) + np.append(np.zeros(rank), shares))
    of_better = doubled[d > 0.0].sum() if better == "greater" else doubled[d < 0.0].sum()
    one, other = shares[of_better:].sum(), shares[: of_better + 1].sum()
    return min(1.0, 2.0 * min(one, other)), one


def test_systems_that_never_differ_have_p_value_one():
    X = np.column_stack([SCORES[:, 0], SCORES[:, 0], SCORES[:, 0] + 1.0])
    for test in ("t", "wilcoxon"):
        p = compare_pairs(X, test).p_values
        assert p[0] == 1.0
        assert p[1] < 1e-4


# Measured ---------------------------------------------------------------------------------


@pytest.mark.parametrize("test", ["t", "wilcoxon"])
@pytest.mark.parametrize("sides", [1, 2])
def test_as_many_topics_as_there_are_have_the_observed_value(test, sides):
    p = compare_pairs(SCORES, test, sides).p_values
    power = get("power_ratio", test=test, sides=sides)
    assert power.estimate(SCORES, 21) == (p < 0.05).mean()
    assert power.actual(SCORES, SCORES) == (p < 0.05).mean()
    average = get("p_value", test=test, sides=sides).estimate(SCORES, 21)
    assert average == pytest.approx(p.mean(), rel=1e-12)


@pytest.mark.parametrize("collection", ["enterprise2006", "genomics2004"])
def test_real_collections_have_their_observed_power(collection, shared_data):
    matrix = as_score_matrix(pd.read_csv(shared_data(f"{collection}.csv"))).drop_worst(0.25)
    found = accuracy(matrix, ["power_ratio", "p_value"]).table
    X = matrix.scores
    i, j = np.triu_indices(X.shape[1], 1)
    p = stats.ttest_rel(X[:, i], X[:, j]).pvalue
    p = np.nan_to_num(p, nan=1.0)  # of identical systems
    differ = p[p < 1.0 - 1e-9]  # systems of equal means have no better one
    expected = [(p < 0.05).mean(), differ.mean()]
    assert found["estimate"].to_numpy() == pytest.approx(expected, rel=1e-9)
    if collection == "enterprise2006":
        assert found["estimate"][0] == pytest.approx(0.722, abs=5e-4)


def test_fewer_topics_are_means_over_subsets():
    found = get("power_ratio").estimate(SCORES, [8, 8.3], trials=7, rng=3)
    subsets = draw_subsets(21, 8, 7, 3)
    assert all(len(set(one)) == 8 for one in subsets.tolist())
    values = [(compare_pairs(SCORES[one]).p_values < 0.05).mean() for one in subsets]
    np.testing.assert_allclose(found, np.mean(values), rtol=1e-12)
    halves = draw_halves(21, 10, 7, 3)
    conflicts = get("minor_conflicts", alpha=0.3)
    pairs = zip(halves.collection, halves.truth, strict=True)
    values = [conflicts.actual_of_scores(SCORES[a], SCORES[b]) for a, b in pairs]
    found = conflicts.estimate(SCORES, 10, trials=7, rng=3)
    assert found == pytest.approx(np.nanmean(values), rel=1e-12)


# Beyond -----------------------------------------------------------------------------------


def test_the_forecast_is_the_noncentral_t_over_the_true_difference():
    """One pair: power, conflicts and swaps integrated over δ by brute force."""
    X = np.random.default_rng(4).normal(size=(20, 2)) + np.array([0.0, 0.4])
    d = X[:, 0] - X[:, 1]
    t, n, m = np.sqrt(20) * d.mean() / d.std(ddof=1), 20, 35
    ms_s, _, ms_e = mean_squares(X)
    r = max(0.0, 1.0 - ms_e / ms_s)
    delta = r * abs(t) / np.sqrt(n) + np.sqrt(r / n) * stats.norm.ppf(
        (np.arange(4000) + 0.5) / 4000
    )
    limit, centre = stats.t.isf(0.025, m - 1), np.sqrt(m) * delta
    up, down = (stats.nct.sf(limit, m - 1, s * centre) for s in (1, -1))
    below = stats.norm.cdf(-centre)
    pairs = PairForecast.from_scores(X)
    assert pairs.power(m, 0.05) == pytest.approx((up + down).mean(), abs=2e-5)
    major = (2 * up * down).mean() / (up + down).mean()
    minor = (up * (below - down) + down * (1 - below - up)).mean() / (up + down).mean()
    assert pairs.conflicts(m, 0.05, significantly=True) == pytest.approx(major, abs=2e-5)
    assert pairs.conflicts(m, 0.05, significantly=False) == pytest.approx(minor, abs=2e-5)
    share, swapped, p = pairs.by_difference(m, np.array([0.0, np.inf]))[:, 0]
    assert share == pytest.approx(1.0)
    assert swapped == pytest.approx((2 * below * (1 - below)).mean(), abs=2e-4)
    # The average p-value is one less the mean power over all levels.
    levels = (np.arange(200) + 0.5) / 200
    assert p == pytest.approx(1.0 - np.mean([pairs.power(m, a) for a in levels]), abs=2e-3)


def test_shares_in_bins_are_those_of_draws():
    X = np.random.default_rng(4).normal(size=(20, 5)) + 0.3 * np.arange(5)
    pairs, rng, m = PairForecast.from_scores(X), np.random.default_rng(0), 30
    bounds = np.array([0.0, 0.3, 0.6, 5.0])
    shape = (40_000, pairs.t.size)
    mean = pairs.reliability * pairs.t / np.sqrt(20)
    delta = mean + np.sqrt(pairs.variance) * rng.normal(size=shape)
    one, other = (delta + rng.normal(size=shape) / np.sqrt(m) for _ in range(2))
    spread = np.sqrt(rng.chisquare(m - 1, size=shape) / (m - 1))
    p = 2.0 * stats.t.sf(np.sqrt(m) * np.abs(one) / spread, m - 1)
    place = np.searchsorted(bounds, np.abs(one) * pairs.deviations, side="right") - 1
    for alpha in (None, 0.05):
        counted = p < (1.0 if alpha is None else alpha)
        for b, found in enumerate(pairs.by_difference(m, bounds, alpha).T):
            here = counted & (place == b)
            expected = [here.mean(), (here & (one * other < 0)).mean(), (p * here).mean()]
            np.testing.assert_allclose(found, expected, atol=1.5e-3)


def test_beyond_the_collection_errors_fall_by_the_expected_ratio():
    pairs = PairForecast.from_scores(SCORES)
    power = get("power_ratio")
    now, then = (1.0 - pairs.power(n, 0.05) for n in (21, 60))
    observed = 1.0 - power.estimate(SCORES, 21)
    assert 1.0 - power.estimate(SCORES, 60) == pytest.approx(observed * then / now, rel=1e-12)
    n = [21, 22, 50, 500, 50_000]
    for name in NAMES:
        values = get(name, **({"alpha": 0.3} if "conflicts" in name else {})).estimate(SCORES, n)
        better = np.diff(values) if name == "power_ratio" else -np.diff(values)
        assert (better >= 0).all(), name
        assert ((values >= 0) & (values <= 1)).all(), name


@pytest.mark.parametrize("share", [0.02, 0.2])
def test_twice_the_topics_have_little_bias(share):
    """Known truth: normal scores; the mean over collections against new ones of 2n topics."""
    rng = np.random.default_rng(7)
    effects = rng.normal(size=25) * np.sqrt(share)

    def collection(n):
        return effects + rng.normal(size=(n, 25)) + rng.normal(size=(n, 1))

    measures = [get("power_ratio"), get("p_value")]
    new = np.array(
        [[m.actual_of_scores(X, X) for m in measures] for X in map(collection, [80] * 20)]
    )
    old = [[float(m.estimate(X, 80)[0]) for m in measures] for X in map(collection, [40] * 12)]
    old = np.array(old)
    error = np.sqrt(old.var(axis=0, ddof=1) / 12 + new.var(axis=0, ddof=1) / 20)
    assert (np.abs(old.mean(axis=0) - new.mean(axis=0)) < 0.02 + 2.5 * error).all()


def test_identical_systems_and_constant_differences():
    X = np.column_stack([SCORES, SCORES[:, 0], SCORES[:, 1] + 0.5])
    found = get("power_ratio").estimate(X, [21, 100, 100_000_000])
    assert found[0] <= found[1] < 1.0
    flat = np.tile(np.arange(12.0)[:, None], (1, 3))
    assert get("power_ratio").estimate(flat, [12, 50]).tolist() == [0.0, 0.0]
    assert get("p_value", lower=0.0).estimate(X, 100) < get("p_value").estimate(X, 21)


def test_what_cannot_be_measured():
    with pytest.raises(PlanError, match=r"two topics or more, not 1\.0"):
        get("power_ratio").estimate(SCORES, 1)
    with pytest.raises(DataError, match="'swap_rate' needs 4 topics at least; there are 3"):
        get("swap_rate").estimate(SCORES[:3], 2)
    with pytest.raises(DataError, match="1 of 126 are missing"):
        get("p_value").estimate(np.where(SCORES.max() == SCORES, np.nan, SCORES), 50)
    with pytest.raises(EstimationError, match="trials must be a whole number"):
        get("p_value").estimate(SCORES, 10, trials=0)
    with pytest.raises(PlanError, match="test must be 't' or 'wilcoxon', not 'sign'"):
        get("power_ratio", test="sign")
    with pytest.raises(PlanError, match="sides must be 1 or 2, not 3"):
        get("minor_conflicts", sides=3)
    with pytest.warns(
        VcompWarning, match="α₋ has no value in .* subsets, which are left out: no d"
    ):
        get("minor_conflicts", alpha=0.001).estimate(SCORES, 5, trials=9)


def test_accuracy_says_how_they_are_estimated():
    found = accuracy(SCORES, ["power_ratio", "swap_rate"], [10, 21, 60], trials=5)
    assert set(found.table["estimator"]) == {"subsets, noncentral t"}
    expected = get("power_ratio").estimate(SCORES, [10, 21, 60], trials=5)
    np.testing.assert_array_equal(found.table["estimate"][:3], expected)
    assert "carried on by" in str(found)
    half = accuracy(SCORES, "power_ratio", 60, estimator="split_half").table
    assert half["estimator"][0] == "split_half, logit"
    with pytest.raises(PlanError, match="model= applies to measures that are extrapolated"):
        accuracy(SCORES, "power_ratio", model="exp1")
    holed = np.where(SCORES.max() == SCORES, np.nan, SCORES)
    with pytest.raises(DataError, match="β is measured on subsets of the topics, which need all"):
        accuracy(holed, "power_ratio")


# Average p-values by difference and size --------------------------------------------------


@pytest.mark.parametrize("test", ["t", "wilcoxon"])
def test_a_table_by_loops(test):
    bins = [0.1, 0.5, 3.0]
    found = average_p_values(SCORES, [6, 21], bins=bins, test=test, trials=4, rng=2).table
    for n, subsets in ((6, draw_subsets(21, 6, 4, 2)), (21, [np.arange(21)])):
        rows = found[found["n"] == n]
        sums, counts = np.zeros(2), np.zeros(2)
        for one in subsets:
            X = SCORES[one]
            p = compare_pairs(X, test).p_values
            for pair, (i, j) in enumerate(combinations(range(6), 2)):
                b = np.searchsorted(bins, abs(X[:, i].mean() - X[:, j].mean()) + 1e-12) - 1
                if 0 <= b < 2:
                    sums[b], counts[b] = sums[b] + p[pair], counts[b] + 1
        assert rows["n_pairs"].tolist() == counts.tolist()
        np.testing.assert_allclose(rows["p_value"], sums / counts, rtol=1e-12)


def test_one_sided_p_values_are_half_as_large_everywhere():
    two = average_p_values(SCORES, [6, 21, 60], bins=[0, 0.3, 3], trials=4)
    one = average_p_values(SCORES, [6, 21, 60], bins=[0, 0.3, 3], trials=4, sides=1)
    np.testing.assert_allclose(one.values, two.values / 2, rtol=1e-12)


def test_one_bin_is_the_measure_and_the_table_is_one_number_a_line():
    found = average_p_values(SCORES, [21, 60], bins=[0, np.inf])
    np.testing.assert_allclose(
        found.values[:, 0], get("p_value").estimate(SCORES, [21, 60]), 1e-12
    )
    assert found.table["source"].tolist() == ["all topics", "noncentral t"]
    text = str(found)
    assert "Two-sided t-tests" in text
    assert "Beyond 21 topics" in text
    assert average_p_values(SCORES, 60, bins=[0, np.inf]).values[0, 0] == found.values[1, 0]
    assert average_p_values(SCORES, trials=1).sizes[[0, -1]].tolist() == [5.0, 21.0]
    again = average_p_values(SCORES, [6, 9, 21], trials=3, workers=2)
    np.testing.assert_array_equal(
        again.values, average_p_values(SCORES, [6, 9, 21], trials=3).values
    )


def test_the_picture_has_a_line_for_each_bin_dashed_beyond():
    from matplotlib.figure import Figure

    found = average_p_values(SCORES, [6, 21, 60], bins=[0, 0.3, 3], trials=4)
    ax = found.plot(ax=Figure().subplots())
    solid = [line for line in ax.lines if line.get_linestyle() == "-"]
    dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert [line.get_label() for line in solid] == found.labels == ["0 – 0.3", "0.3 – 3"]
    np.testing.assert_array_equal(solid[0].get_ydata(), found.values[:2, 0])
    np.testing.assert_array_equal(dashed[1].get_ydata(), found.values[1:, 1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_topics": 1}, r"two topics or more, .* not 1\.0"),
        ({"n_topics": 7.5}, r"whole number, not 7\.5"),
        ({"bins": [0.2, 0.1]}, "increase from zero"),
        ({"test": "sign"}, "test must be 't' or 'wilcoxon'"),
        ({"sides": 0}, "sides must be 1 or 2"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(PlanError, match=message):
        average_p_values(SCORES, **options)


# Intervals --------------------------------------------------------------------------------


def test_intervals_are_a_jackknife_over_groups_of_topics():
    """With as many groups as topics it is the delete-one jackknife, by a loop."""
    X, n = SCORES[:9], np.array([9.0, 30.0])
    power = get("power_ratio")
    low, high = power.interval_of_matrix(as_score_matrix(X), n, 0.1, trials=3)
    left = [power.estimate(np.delete(X, k, axis=0), n, trials=3) for k in range(9)]
    angles = np.arcsin(np.sqrt(left))
    se = np.sqrt(8 / 9 * ((angles - angles.mean(axis=0)) ** 2).sum(axis=0))
    centre = np.arcsin(np.sqrt(power.estimate(X, n, trials=3)))
    reach = stats.t.isf(0.05, 8) * se
    np.testing.assert_allclose(low, np.sin(np.maximum(centre - reach, 0)) ** 2, rtol=1e-9)
    np.testing.assert_allclose(high, np.sin(np.minimum(centre + reach, np.pi / 2)) ** 2, rtol=1e-9)


def test_intervals_end_at_one():
    """Of tests that find nearly everything, with some topics less; by a loop as above."""
    X = np.random.default_rng(5).normal(size=(9, 4)) + np.arange(4)
    power, n = get("power_ratio"), np.array([9.0, 12.0])
    low, high = power.interval_of_matrix(as_score_matrix(X), n, 0.1)
    left = np.arcsin(np.sqrt([power.estimate(np.delete(X, k, axis=0), n) for k in range(9)]))
    se = np.sqrt(8 / 9 * ((left - left.mean(axis=0)) ** 2).sum(axis=0))
    centre = np.arcsin(np.sqrt(power.estimate(X, n)))
    reach = stats.t.isf(0.05, 8) * se
    assert (centre + reach > np.pi / 2).all()
    np.testing.assert_allclose(low, np.sin(np.maximum(centre - reach, 0)) ** 2, rtol=1e-9)
    np.testing.assert_allclose(high, 1.0, rtol=1e-15)


def test_intervals_contain_the_expected_power_about_as_often_as_they_say():
    rng = np.random.default_rng(3)
    effects = 0.5 * rng.normal(size=12)

    def collection(n):
        return effects + rng.normal(size=(n, 12)) + rng.normal(size=(n, 1))

    power, n = get("power_ratio"), np.array([30.0, 60.0])
    truth = [
        np.mean([power.actual_of_scores(X, X) for X in map(collection, [m] * 100)])
        for m in (30, 60)
    ]
    ends = [power.interval_of_matrix(as_score_matrix(collection(30)), n, 0.1) for _ in range(50)]
    low, high = np.array(ends).swapaxes(0, 1)
    covered = ((low <= truth) & (truth <= high)).mean(axis=0)
    assert (covered > 0.83).all()  # 0.9 less 1.7 standard errors
    assert ((high - low).mean(axis=0) < 0.4).all()


def test_accuracy_has_the_intervals_and_none_where_nothing_varies():
    found = accuracy(SCORES, "power_ratio", [21, 60], trials=5, rng=2, alpha=0.1).table
    ends = get("power_ratio").interval_of_matrix(
        as_score_matrix(SCORES), np.array([21.0, 60.0]), 0.1, trials=5, seed=2
    )
    np.testing.assert_array_equal(found[["low", "high"]].to_numpy().T, ends)
    assert (found["low"] < found["estimate"]).all()
    assert (found["estimate"] < found["high"]).all()
    flat = np.tile(np.arange(12.0)[:, None], (1, 3))
    assert accuracy(flat, "power_ratio").table[["low", "high"]].isna().all(axis=None)
    few = accuracy(SCORES[:4], "minor_conflicts", 2, trials=9).table
    assert few[["low", "high"]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("at_hand", "now", "then", "expected"),
    [
        (0.2, 0.4, 0.1, 0.05),
        (np.nan, 0.4, 0.1, 0.1),
        (0.0, 0.4, 0.1, 0.1),
        (0.2, 0.0, 0.3, 0.2),
        (0.4, 0.0, 0.3, 0.3),
        (0.4, np.nan, 0.3, 0.3),
        (0.0, 0.0, 0.3, 0.0),
    ],
)
def test_an_error_is_carried_by_a_ratio_that_there_is(at_hand, now, then, expected):
    assert _carried(at_hand, now, then) == pytest.approx(expected, rel=1e-15)


@pytest.mark.filterwarnings("ignore:.* has no value in:vcomp.exceptions.VcompWarning")
def test_of_all_topics_there_is_what_was_observed():
    """No pair differs by so much; of more topics some are expected to."""
    X = np.random.default_rng(8).normal(size=(20, 4))
    lower = 1.01 * np.ptp(X.mean(axis=0))
    observed, expected = get("p_value", lower=lower).estimate(X, [20, 21])
    assert np.isnan(observed)
    assert 0.0 < expected < 1.0


def test_tests_of_two_topics_are_means_over_subsets():
    measure = get("power_ratio")
    found = measure.estimate(SCORES, 2, trials=7, rng=3)
    subsets = draw_subsets(21, 2, 7, 3)
    expected = np.mean([(compare_pairs(SCORES[one]).p_values < 0.05).mean() for one in subsets])
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_share_above_one_by_rounding_is_one():
    np.testing.assert_allclose(_angle(np.array([0.5, 1.0 + 1e-15])), [np.pi / 4, np.pi / 2])


@pytest.mark.parametrize(("name", "fewest"), [("power_ratio", 2), ("swap_rate", 4)])
def test_collections_of_two_topics_a_set_are_enough(name, fewest):
    X = SCORES[:fewest]
    found = get(name).estimate(X, [2, 9], trials=3, rng=1)
    assert found.shape == (2,)
    with pytest.raises(DataError, match="at least"):
        get(name).estimate(X[1:], 2)

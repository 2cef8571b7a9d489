"""Measures of accuracy against loops over pairs, and what they do with ties and constants."""

from __future__ import annotations

from itertools import combinations, permutations, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.special import betainc, gammaln

import vcomp
from tests.helpers.examples import examples
from vcomp.exceptions import PlanError, VcompWarning
from vcomp.ir.measures import get
from vcomp.ir.measures.anova_f import _intermediate, _maximum, _minimum

# Few values make many ties.
tied = arrays(float, st.tuples(st.just(2), st.integers(2, 6)), elements=st.integers(0, 4))


def value(measure, means, truth):
    return float(measure.actual_of_means(np.asarray(means, float), np.asarray(truth, float)))


# --- rank correlations ---------------------------------------------------------------------------

X = [0.06, 0.2, 0.27, 0.37, 0.57, 0.63, 0.66, 0.9, 0.91, 0.94]
Y = [0.37, 0.06, 0.2, 0.27, 0.57, 0.66, 0.63, 0.91, 0.9, 0.94]


def test_the_examples_that_come_with_the_r_package_ircor():
    x, y = np.array(X), np.array(Y)
    by_y = get("tau_ap", ranked_by="collection")
    assert value(get("tau"), y, x) == pytest.approx(0.7777778, abs=5e-8)
    assert value(by_y, y, x) == pytest.approx(0.7491182, abs=5e-8)
    y = np.round(y * 5) / 5
    assert value(get("tau", variant="a"), y, x) == pytest.approx(0.7111111, abs=5e-8)
    assert value(by_y, y, x) == pytest.approx(0.6074515, abs=5e-8)
    x = np.round(x * 5) / 5
    assert value(get("tau", variant="b"), y, x) == pytest.approx(0.75, abs=5e-8)
    assert value(get("tau_ap", variant="b"), y, x) == pytest.approx(0.6269841, abs=5e-8)


@settings(deadline=None)
@given(tied)
def test_tau_b_is_scipys(both):
    expected = stats.kendalltau(*both).statistic
    assert value(get("tau"), *both) == pytest.approx(expected, abs=1e-14, nan_ok=True)


def orders(scores):
    """Return all rankings, the best first, that break the ties of `scores`."""
    groups = [np.flatnonzero(scores == s) for s in sorted(set(scores), reverse=True)]
    for parts in product(*(permutations(g) for g in groups)):
        yield [system for part in parts for system in part]


def tau_of(order, other):
    swaps = sum(other.index(a) > other.index(b) for a, b in combinations(order, 2))
    k = len(order)
    return 1 - 4 * swaps / (k * (k - 1))


def tau_ap_of(order, other):
    """Yilmaz et al. (2008) word by word: the ranks are those of `order`."""
    k = len(order)
    total = sum(
        sum(other.index(a) < other.index(order[i]) for a in order[:i]) / i for i in range(1, k)
    )
    return 2 * total / (k - 1) - 1


@settings(deadline=None, max_examples=examples(60))
@given(tied.filter(lambda both: both.shape[1] <= 5))
def test_variant_a_is_the_mean_over_all_orders_of_ties(both):
    means, truth = both
    rankings = list(product(orders(means), orders(truth)))
    tau = np.mean([tau_of(o, t) for o, t in rankings])
    by_truth = np.mean([tau_ap_of(t, o) for o, t in rankings])
    by_means = np.mean([tau_ap_of(o, t) for o, t in rankings])
    assert value(get("tau", variant="a"), means, truth) == pytest.approx(tau, abs=1e-13)
    assert value(get("tau_ap"), means, truth) == pytest.approx(by_truth, abs=1e-13)
    by = get("tau_ap", ranked_by="collection")
    assert value(by, means, truth) == pytest.approx(by_means, abs=1e-13)


@settings(deadline=None)
@given(tied)
def test_variant_first_keeps_the_order_of_columns(both):
    means, truth = both
    order, other = (list(np.argsort(-s, kind="stable")) for s in (truth, means))
    expected = tau_ap_of(order, other)
    assert value(get("tau_ap", ties="first"), means, truth) == pytest.approx(expected, abs=1e-13)


@settings(deadline=None)
@given(tied)
def test_tau_ap_b_is_symmetric_and_one_for_equal_rankings(both):
    means, truth = both
    b = get("tau_ap", variant="b")
    one, other = value(b, means, truth), value(b, truth, means)
    assert one == pytest.approx(other, abs=1e-14, nan_ok=True)
    if len(set(means)) > 1:
        assert value(b, means, means) == pytest.approx(1.0, abs=1e-14)


def test_ties_that_rounding_broke_are_ties():
    means = np.array([0.1 + 0.2, 0.3, 0.1])
    assert means[0] != means[1]
    assert value(get("tau"), means, [3, 2, 1]) == pytest.approx(2 / np.sqrt(6), abs=1e-15)
    assert value(get("tau_ap"), means, [3, 2, 1]) == value(get("tau_ap"), means, [2, 3, 1])


@pytest.mark.parametrize("name", ["tau", "tau_ap"])
def test_constant_systems_have_no_order(name):
    a, b = get(name, variant="a"), get(name, variant="b")
    assert value(a, [1, 1, 1], [1, 2, 3]) == pytest.approx(0.0, abs=1e-15)
    assert np.isnan(value(b, [1, 1, 1], [1, 2, 3]))
    with pytest.warns(VcompWarning, match=r"is undefined here: all systems have the same mean"):
        b.actual([[1, 1, 1], [2, 2, 2]], [1, 2, 3])


@pytest.mark.parametrize("name", ["tau", "tau_ap", "sens_abs", "sens_rel", "rmse", "Erho2", "Phi"])
def test_collections_are_measured_in_any_shape(name):
    rng = np.random.default_rng(5)
    measure = get(name)
    means, truth = rng.uniform(size=(4, 3, 7)), rng.uniform(size=7)
    many = measure.actual_of_means(means, truth)
    assert many.shape == (4, 3)
    for at in np.ndindex(4, 3):
        one = measure.actual_of_means(means[at], truth)
        np.testing.assert_array_equal(many[at], one)


# --- significance --------------------------------------------------------------------------------


@pytest.fixture(params=range(2))
def halves(request):
    rng = np.random.default_rng(request.param)
    effects = rng.normal(scale=0.25, size=12)
    one, other = (rng.normal(size=(9, 1)) + rng.normal(size=(9, 12)) + effects for _ in "ab")
    one[:, 3], other[:, 3] = one[:, 7], other[:, 7]  # identical systems
    one[:, 5] = one[:, 2] + 0.25  # differ by a constant
    return one, other


def looped_tests(X):
    for i, j in combinations(range(X.shape[1]), 2):
        d = X[:, i] - X[:, j]
        if np.ptp(d) < 1e-12:
            yield d.mean() if abs(d.mean()) > 1e-12 else 0.0, float(abs(d.mean()) < 1e-12)
        else:
            yield d.mean(), stats.ttest_1samp(d, 0).pvalue


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_power_and_conflicts(halves, alpha):
    one, other = (list(looped_tests(X)) for X in halves)
    significant = [(d, e, q) for (d, p), (e, q) in zip(one, other, strict=True) if p < alpha]
    minor = np.mean([d * e < 0 and q >= alpha for d, e, q in significant])
    major = np.mean([d * e < 0 and q < alpha for d, e, q in significant])
    assert get("power_ratio", alpha=alpha).actual(*halves) == len(significant) / len(one)
    assert get("minor_conflicts", alpha=alpha).actual(*halves) == pytest.approx(minor, abs=1e-15)
    assert get("major_conflicts", alpha=alpha).actual(*halves) == pytest.approx(major, abs=1e-15)


@pytest.mark.parametrize("bounds", [(0, np.inf), (0, 0.3), (0.25, 0.6)])
@pytest.mark.parametrize("alpha", [None, 0.2])
def test_swap_rates_and_p_values_of_a_bin(halves, bounds, alpha):
    one, other = (list(looped_tests(X)) for X in halves)
    lower, upper = bounds
    inside = [
        (d * e < 0, p)
        for (d, p), (e, _) in zip(one, other, strict=True)
        if d != 0 and lower - 1e-12 <= abs(d) < upper
    ]
    swaps = np.mean([swap for swap, p in inside if alpha is None or p < alpha])
    rate = get("swap_rate", lower=lower, upper=upper, alpha=alpha)
    assert rate.actual(*halves) == pytest.approx(swaps, abs=1e-14)
    mean_p = np.mean([p for _, p in inside])
    p_value = get("p_value", lower=lower, upper=upper)
    assert p_value.actual(*halves) == pytest.approx(mean_p, rel=1e-10)
    half = get("p_value", lower=lower, upper=upper, sides=1).actual(*halves)
    assert half == pytest.approx(mean_p / 2, rel=1e-10)


def test_far_from_zero_tests_are_the_same(halves):
    near = get("p_value").actual(*halves)
    assert get("p_value").actual(halves[0] + 1e6, halves[1]) == pytest.approx(near, rel=1e-7)


@pytest.mark.parametrize("name", ["minor_conflicts", "major_conflicts"])
def test_conflicts_of_nothing(name, halves):
    with pytest.warns(VcompWarning, match="no difference is significant"):
        assert np.isnan(get(name, alpha=1e-12).actual(halves[1][:, :3], halves[0][:, :3]))
    with pytest.raises(PlanError, match="scores on topics, not true means"):
        get(name).actual(halves[0], halves[1].mean(axis=0))


@pytest.mark.parametrize("name", ["swap_rate", "p_value"])
def test_empty_bins(name, halves):
    with pytest.warns(VcompWarning, match="no pair of systems differs by that much"):
        assert np.isnan(get(name, lower=50).actual(*halves))


# --- errors of the means -------------------------------------------------------------------------


def test_errors_of_means():
    means, truth = np.array([0.5, 0.3, 0.4]), np.array([0.6, 0.2, 0.1])
    errors = [(0.1) ** 2, (0.1) ** 2, (0.3) ** 2]
    assert value(get("rmse"), means, truth) == pytest.approx(np.sqrt(sum(errors) / 3), rel=1e-14)
    # Exact: effects .3, -.1, -.2; errors of effects -.2, 0, .2; errors -.1, .1, .3
    assert value(get("Erho2"), means, truth) == pytest.approx(14 / (14 + 8), rel=1e-13)
    assert value(get("Phi"), means, truth) == pytest.approx(14 / (14 + 11), rel=1e-13)


def test_estimates_are_those_of_a_d_study():
    rng = np.random.default_rng(0)
    scores = pd.DataFrame(rng.normal(size=(9, 1)) + rng.normal(size=(9, 5)) + np.arange(5))
    long = scores.rename_axis("topic").reset_index().melt("topic", var_name="sys")
    table = (
        vcomp.fit("value ~ (1|sys) + (1|topic)", long, method="anova")
        .dstudy(object="sys", topic=[5, 50])
        .table
    )
    for name, expected in [
        ("Erho2", table["Erho2"]),
        ("Phi", table["Phi"]),
        ("rmse", np.sqrt(table["abs_err_var"])),
    ]:
        np.testing.assert_allclose(get(name).estimate(scores, [5, 50]), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["Erho2", "Phi"])
def test_no_variance_to_share(name):
    with pytest.warns(VcompWarning, match="is undefined here: all true means are the same"):
        assert np.isnan(get(name).actual([[1, 1], [1, 1]], [1, 1]))
    assert get(name).actual([[1, 1], [3, 3]], [2, 1]) < 1
    with pytest.raises(ValueError, match="the scores have no variance: systems"):
        get(name).estimate([[0.1, 0.1, 0.1], [0.1, 0.1, 0.1]], 10)


def test_components_below_zero_count_as_zero():
    scores = [[0.0, 1.0], [1.0, 0.0]]
    assert get("Erho2").estimate(scores, [1, 100]).tolist() == [0, 0]


# --- F test --------------------------------------------------------------------------------------


def power_by_series(d, k, n, alpha, effect, df):
    """Power as a Poisson mixture of central beta distributions, with Cohen's sums of effects."""
    low, high = -d / 2, d / 2
    effects = {
        "minimum": [low, *[0.0] * (k - 2), high],
        "intermediate": np.linspace(low, high, k),
        "maximum": [low if i < k // 2 else high for i in range(k)],
    }[effect]
    u = k - 1
    v = (k if df == "one-way" else k - 1) * (n - 1)
    nc = n * np.square(np.array(effects) - np.mean(effects)).sum()
    critical = stats.f.isf(alpha, u, v)
    x = u * critical / (u * critical + v)
    j = np.arange(400)
    weights = np.exp(j * np.log(nc / 2) - nc / 2 - gammaln(j + 1))
    return 1 - (weights * betainc(u / 2 + j, v / 2, x)).sum()


@pytest.mark.parametrize("k", [2, 5, 6])
@pytest.mark.parametrize("effect", ["minimum", "intermediate", "maximum"])
@pytest.mark.parametrize("df", ["one-way", "two-way"])
def test_power(k, effect, df):
    scores = np.random.default_rng(k).normal(size=(12, k))
    table = scores - scores.mean(axis=0) - scores.mean(axis=1)[:, None] + scores.mean()
    sd = np.sqrt(np.square(table).sum() / (11 * (k - 1)))
    measure = get("F", delta=0.7, alpha=0.03, dispersion=effect, df=df)
    expected = [power_by_series(0.7 / sd, k, n, 0.03, effect, df) for n in (4, 25)]
    np.testing.assert_allclose(measure.estimate(scores, [4, 25]), expected, rtol=1e-10)


@pytest.mark.parametrize("k", [2, 5, 20])
def test_the_f_test_finds_differences_as_often_as_its_power(k):
    """One-way analyses of variance of drawn scores, for which Sakai (2014) makes sets of topics.

    Of 20,000 sets the share has a standard error of at most 0.35 percentage points.
    """
    n = np.arange(2.0, 200.0)
    power = get("F", delta=0.7, df="one-way").power(1.0, k, n)
    first = int(np.argmax(power >= 0.8))
    size = int(n[first])
    means = np.zeros(k)
    means[:2] = -0.35, 0.35
    scores = np.random.default_rng(k).normal(size=(20_000, size, k)) + means
    between = size * scores.mean(axis=1).var(axis=1, ddof=1)
    ratio = between / scores.var(axis=1, ddof=1).mean(axis=1)
    share = np.mean(stats.f.sf(ratio, k - 1, k * (size - 1)) < 0.05)
    assert share == pytest.approx(power[first], abs=0.01)
    assert power[first - 1] < 0.8


def test_the_f_test_itself():
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(8, 1)) + rng.normal(size=(8, 4)) + [0, 0, 0, 1.3]
    n, k = scores.shape
    system, topic = scores.mean(axis=0), scores.mean(axis=1)
    error = np.square(scores - system - topic[:, None] + scores.mean()).sum() / (n - 1) / (k - 1)
    p = stats.f.sf(n * np.var(system, ddof=1) / error, k - 1, (n - 1) * (k - 1))
    span = np.ptp(system)
    assert get("F", alpha=p * 1.0001, delta=0.01).actual(scores, system) == 1
    assert get("F", alpha=p * 0.9999, delta=0.01).actual(scores, system) == 0
    assert get("F", alpha=p * 1.0001, delta=span * 1.0001).actual(scores, system) == 0


def test_a_range_on_the_bound_is_large_enough():
    scores = np.array([[0.3, 0.35], [0.4, 0.45], [0.1, 0.15]])
    assert 0.35 - 0.3 < 0.05
    assert get("F", delta=0.05).actual(scores, [1, 2]) == 1


def test_the_f_test_without_error():
    assert get("F").actual([[1, 2], [2, 3]], [1, 2]) == 1
    assert get("F").actual([[1, 1], [2, 2]], [1, 2]) == 0
    assert get("F").estimate([[1, 2], [2, 3]], [2, 3]).tolist() == [1, 1]
    with pytest.raises(PlanError, match="needs more than one topic, not 1"):
        get("F").estimate([[1, 2], [2, 4]], [5, 1])


# --- d_rank --------------------------------------------------------------------------------------


def rank_distance(X, truth, shrinkage=0.0):
    """Try all sets of neighbours that are made equal, and take the nearest means in true order."""
    n, k = X.shape
    order = np.argsort(-np.asarray(truth), kind="stable")
    D = -np.diff(X[:, order], axis=1)
    S, mean = np.cov(D.T, ddof=1).reshape(k - 1, k - 1) / n, D.mean(axis=0)
    own = np.diag((X - X.mean(axis=1, keepdims=True)).var(axis=0, ddof=1)[order]) / n
    G = -np.diff(np.eye(k), axis=0)
    S = (1.0 - shrinkage) * S + shrinkage * (G @ own @ G.T)
    found = []
    for equal in product([False, True], repeat=k - 1):
        zero = np.flatnonzero(equal)
        # Nearest to the mean with these differences zero: shift by their multipliers.
        multipliers = np.linalg.solve(S[np.ix_(zero, zero)], -mean[zero])
        theta = mean + S[:, zero] @ multipliers
        if (np.delete(theta, zero) >= 0).all():
            found.append(multipliers @ S[np.ix_(zero, zero)] @ multipliers)
    return np.sqrt(min(found))


@pytest.mark.parametrize("seed", range(6))
def test_distance_to_the_true_order(seed):
    rng = np.random.default_rng(seed)
    k = 2 + seed
    X = rng.normal(size=(20, 1)) + rng.normal(size=(20, k)) @ rng.normal(size=(k, k))
    truth = rng.permutation(k)
    expected = rank_distance(X, truth)
    assert get("d_rank").actual(X, truth) == pytest.approx(expected, rel=1e-10, abs=1e-12)
    # Neither topic means, nor scale, nor what the true means are but for their order, matters.
    moved = 3 * (X + rng.normal(size=(20, 1)))
    assert get("d_rank").actual(moved, np.exp(truth)) == pytest.approx(
        get("d_rank").actual(X, truth), rel=1e-9, abs=1e-12
    )


@pytest.mark.parametrize("shrinkage", [0.1, 0.6, 1.0])
def test_covariances_are_shrunk_to_their_diagonal(shrinkage):
    """Variances of systems, without the means of topics."""
    X = np.random.default_rng(8).normal(size=(12, 4)) + 0.5 * np.arange(4)
    for truth in ([4, 3, 2, 1], [2, 4, 1, 3]):
        found = get("d_rank", shrinkage=shrinkage).actual(X, truth)
        assert found == pytest.approx(rank_distance(X, truth, shrinkage), rel=1e-10)


@pytest.mark.parametrize("unit", [1e-13, 1e13])
def test_a_distance_is_that_of_any_unit(unit):
    X = np.random.default_rng(8).normal(size=(12, 4))
    for truth in ([4, 3, 2, 1], [2, 4, 1, 3]):
        found = get("d_rank").actual(unit * X, truth)
        assert found == pytest.approx(rank_distance(X, truth), rel=1e-9)
    X[:, 3] = X[:, 0] + 1.0  # no error in the difference
    with pytest.warns(VcompWarning, match="the covariance of the systems is singular"):
        assert np.isnan(get("d_rank").actual(unit * X, [4.0, 3.0, 2.0, 1.0]))


@pytest.mark.parametrize("shrinkage", [-0.01, 1.01, 1.5, True, "0.1"])
def test_a_shrinkage_is_a_share(shrinkage):
    with pytest.raises(PlanError, match="shrinkage must be between 0 and 1"):
        get("d_rank", shrinkage=shrinkage)


def test_a_tie_in_the_scores_is_a_difference_of_zero():
    """Of the first two systems, whose means differ by rounding; the others are out of order."""
    X = np.random.default_rng(7).normal(size=(20, 4)) + np.array([0.0, 0.0, 0.4, 0.1])
    X[:, 1] += X[:, 0].mean() - X[:, 1].mean()
    for truth in ([4, 3, 2, 1], [3, 4, 1, 2], [1, 4, 2, 3]):
        expected = rank_distance(X, truth)
        assert expected > 0.0
        assert get("d_rank").actual(X, truth) == pytest.approx(expected, rel=1e-10)


def test_two_systems_are_as_far_as_their_t_statistic():
    X = np.random.default_rng(0).normal(size=(10, 2))
    t = stats.ttest_rel(X[:, 0], X[:, 1]).statistic
    truth = [0, 1] if t > 0 else [1, 0]
    assert get("d_rank").actual(X, truth) == pytest.approx(abs(t), rel=1e-12)
    assert get("d_rank").actual(X, truth[::-1]) == 0


def test_systems_tied_in_truth_come_in_the_best_order():
    X = np.random.default_rng(2).normal(size=(15, 4))
    measure = get("d_rank")
    orders_of_ties = [[3, 2, 1, 0], [3, 1, 2, 0]]
    best = min(measure.actual(X, truth) for truth in orders_of_ties)
    assert measure.actual(X, [3, 1, 1, 0]) == pytest.approx(best, rel=1e-9)
    assert measure.actual(X, [1, 1, 1, 1]) == 0


def test_fewer_topics_than_systems_need_shrinkage():
    X = np.random.default_rng(2).normal(size=(4, 6))
    with pytest.warns(VcompWarning, match="covariance of the systems is singular"):
        assert np.isnan(get("d_rank").actual(X, [1, 2, 3, 4, 5, 6]))
    assert 0 < get("d_rank", shrinkage=0.2).actual(X, np.argsort(X.mean(axis=0))) < np.inf
    # All of the weight on the diagonal: systems are independent, with variances of their own.
    Z = X - X.mean(axis=1, keepdims=True)
    S = np.diag(Z.var(axis=0, ddof=1))[:2, :2]
    d = Z[:, 0].mean() - Z[:, 1].mean()
    two = get("d_rank", shrinkage=1.0)
    truth = [0, 1, 1, 1, 1, 1] if d > 0 else [1, 0, 0, 0, 0, 0]
    assert two.actual(X, truth) >= abs(d) / np.sqrt(S.sum() / 4) - 1e-12


def tau_ap_b(x, y):
    """Return τ_AP,b by its definition (Urbano and Marrero 2017), in loops over integer scores."""

    def one_side(means, ranked):
        shares = []
        for i in range(len(ranked)):
            above = [j for j in range(len(ranked)) if ranked[j] > ranked[i]]
            if above:
                shares.append(sum(means[j] > means[i] for j in above) / len(above))
        return 2.0 * np.mean(shares) - 1.0

    return (one_side(x, y) + one_side(y, x)) / 2.0


@pytest.mark.parametrize("seed", range(20))
def test_tau_ap_b_is_its_definition(seed):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(3, 9))
    x, y = rng.integers(0, 5, k), rng.integers(0, 5, k)
    x[0], x[1], y[0], y[1] = 0, 1, 2, 0  # neither is constant
    measure = get("tau_ap", variant="b")
    assert measure.actual([x, x], y) == pytest.approx(tau_ap_b(x, y), abs=1e-12)


@pytest.mark.parametrize(("scale", "true_scale"), [(1.0, 2.0**60), (2.0**60, 1.0), (1.0, 1.0)])
@pytest.mark.parametrize("options", [{"variant": "b"}, {}, {"ties": "first"},
                                     {"ranked_by": "collection"}])  # fmt: skip
def test_ties_are_those_of_each_ranking_by_itself(options, scale, true_scale):
    """Rounding errors of means say nothing of true means in another unit."""
    x = np.array([1.0, 2.0, 2.0, 3.0, 4.0, 5.0])
    y = np.array([2.0, 1.0, 3.0, 3.0, 5.0, 4.0])
    measure = get("tau_ap", **options)
    plain = measure.actual([x, x], y)
    assert -1.0 < plain < 1.0
    assert measure.actual([scale * x, scale * x], true_scale * y) == plain


@pytest.mark.parametrize("name", ["Erho2", "Phi"])
def test_rounding_is_neither_truth_nor_error(name):
    """0.1 + 0.2 is 0.3, in the scores and in truth."""
    near, same = np.array([[0.1 + 0.2, 0.3, 0.3]]), np.full((1, 3), 0.3)
    for means, truth in ((near, same), (same, near), (near, near[:, ::-1])):
        assert np.isnan(get(name).actual_of_means(means, truth)).all()


def test_systems_that_are_equal_are_in_any_order():
    """Also where they differ on no topic, so that no distance has an error."""
    X = np.random.default_rng(4).uniform(size=(12, 1)) + np.array([0.2, 0.0, 0.0])
    for truth in ([3.0, 2.0, 1.0], [3.0, 1.0, 2.0]):
        assert get("d_rank").actual(X, np.array(truth)) == 0.0
    with pytest.warns(VcompWarning, match="the covariance of the systems is singular"):
        assert np.isnan(get("d_rank").actual(X, np.array([1.0, 2.0, 3.0])))


def test_scores_in_the_true_order_are_at_no_distance():
    X = np.random.default_rng(2).normal(size=(8, 4)) + np.arange(4.0)
    for truth in (X, X.mean(axis=0), np.argsort(np.argsort(X.mean(axis=0))), np.zeros(4)):
        assert get("d_rank").actual_of_scores(X, np.asarray(truth, float)) == 0.0
    assert get("d_rank").actual_of_scores(X, -X) > 0.0


def test_the_distance_of_ranks_goes_on_where_means_are_tied():
    """Also if another two systems are in the wrong order; without any it is zero."""
    X = np.random.default_rng(2).integers(0, 9, size=(12, 4)).astype(float)
    X[:, 1] = X[::-1, 0]  # the same mean
    X[:, 3] -= X[:, 3].mean() - X[:, 0].mean() + 0.5
    truth = np.array([0.5, 0.9, 0.1, 0.7])
    near = X + np.array([0.0, 1e-7, 0.0, 0.0])
    measure = get("d_rank")
    found = measure.actual_of_scores(X, truth)
    assert found > 0.1
    assert found == pytest.approx(measure.actual_of_scores(near, truth), rel=1e-12)
    assert measure.actual_of_scores(X + 100.0 * truth, truth) == 0.0


@pytest.mark.parametrize("k", [2, 3, 4, 9])
def test_effect_sizes_are_those_of_the_patterns_of_means(k):
    """Cohen (1988, sec. 8.2): all others in the middle, evenly spaced, or half at either end."""
    d = 0.7
    middle = np.r_[-d / 2, np.zeros(k - 2), d / 2]
    ends = np.where(np.arange(k) < k // 2, -d / 2, d / 2)
    patterns = (middle, np.linspace(-d / 2, d / 2, k), ends)
    for of, means in zip((_minimum, _intermediate, _maximum), patterns, strict=True):
        assert of(d, k) == pytest.approx(means.std(), rel=1e-12)


@pytest.mark.parametrize("name", ["tau", "tau_ap"])
@pytest.mark.parametrize("variant", ["a", "b"])
def test_two_systems_are_in_order_or_not(name, variant):
    measure = get(name, variant=variant)
    assert value(measure, [0.1, 0.3], [0.2, 0.4]) == 1.0
    assert value(measure, [0.3, 0.1], [0.2, 0.4]) == -1.0


def test_an_f_test_needs_more_than_one_topic():
    measure = get("F")
    measure.check_topics(np.array([1.001, 2.0]))
    with pytest.raises(PlanError, match=r"more than one topic, not 1$"):
        measure.check_topics(np.array([2.0, 1.0]))

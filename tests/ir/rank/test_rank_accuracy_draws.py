"""Shrunken rank accuracy, thresholds and intervals, against simulation and the theory of draws."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import chi2, norm
from scipy.stats import t as student

from tests.helpers.examples import examples
from vcomp.exceptions import EstimationError, PlanError, VcompWarning
from vcomp.ir.kernels.rank_agreement import pair_agreement
from vcomp.ir.rank.correlation import RankDraws, error_share
from vcomp.ir.rank.correlation_tables import _check_draws, estimated_tau, expected_correlation
from vcomp.ir.rank.paired import PairedDifferences

expected_tau_ap = partial(expected_correlation, variant="ap")
BOTH = pytest.mark.parametrize("measure", [expected_correlation, expected_tau_ap])
KINDS = {
    "test": {"interval": "draws"},
    "expectation": {"target": "expectation"},
    "independent": {"interval": "independent"},
}
ALL_INTERVALS = pytest.mark.parametrize("interval", KINDS.values(), ids=KINDS)


def numbers(table):
    return table.drop(columns="estimator")


def scores_of(n, k, seed=0, spread=0.4):
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n, 2)) @ rng.normal(size=(2, k)) / 2
    return rng.normal(size=(n, k)) + shared + spread * rng.normal(size=k)


def pair_up(X):
    return PairedDifferences.from_scores(X, [f"s{j}" for j in range(X.shape[1])])


PAIRS = pair_up(scores_of(12, 8))


def slow(pairs, n, threshold, variant, cdf, reliability, signed):
    """Return Eτ, its variance and Eτ_AP by the formulae as they are documented."""
    k = pairs.n_systems
    agreement = spread = agreement_ap = unequal = apart = 0.0
    at = 0
    for j in range(k):
        for i in range(j + 1, k):
            D, s = np.sqrt(reliability) * pairs.differences[at], np.sqrt(pairs.variances[at])
            D = D if signed else abs(D)
            a, b = cdf(np.sqrt(n) * (D - threshold) / s), cdf(np.sqrt(n) * (-D - threshold) / s)
            u = float(abs(D) > threshold or threshold == 0.0)
            agreement += u * (a - b)
            agreement_ap += u * (a - b) / i
            spread += u * (a + b - (a - b) ** 2)
            unequal += u
            apart += a + b
            at += 1
    half = k * (k - 1) / 2
    divisor = half if variant == "a" else np.sqrt(unequal * apart)
    return agreement / divisor, spread / divisor**2, agreement_ap / (k - 1)


@pytest.mark.parametrize("variant", ["a", "b"])
@pytest.mark.parametrize("threshold", [0.0, 0.05, 0.4])
@pytest.mark.parametrize("estimator", ["shrunken", "urbano"])
@pytest.mark.parametrize(("missing", "n"), [(False, 20), (True, 20), (True, None)])
def test_estimates_equal_a_double_loop(estimator, threshold, variant, missing, n):
    X = scores_of(12, 8)
    if missing:
        X[[0, 1, 5, 7, 8, 2], [2, 2, 6, 4, 4, 1]] = np.nan
    pairs = pair_up(X)
    assert not missing or (pairs.differences < 0).any()
    reliability = 1.0 - error_share(pairs).mean if estimator == "shrunken" else 1.0
    df = iter(np.repeat(pairs.n_common - 1, 2))

    def cdf(x):
        return norm.cdf(x) if estimator == "urbano" else student.cdf(x, next(df))

    signed = estimator == "urbano" or n is None
    tau, variance, tau_ap = slow(pairs, n or 12, threshold, variant, cdf, reliability, signed)
    options = {"estimator": estimator, "threshold": threshold, "draws": 5}
    found = expected_correlation(pairs, n, variant=variant, **options)
    assert found["estimate"].item() == pytest.approx(tau, abs=1e-12)
    assert found["variance"].item() == pytest.approx(variance, abs=1e-12)
    found = expected_tau_ap(pairs, n, **options)
    assert found["estimate"].item() == pytest.approx(tau_ap, abs=1e-12)
    if threshold == 0.0 and n is not None:
        for of, value in (("a", tau), ("ap", tau_ap)):
            alone = estimated_tau(pairs, [20], variant=of, estimator=estimator)
            assert alone[0] == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.3])
def test_thresholds_against_simulated_tests(threshold):
    """New tests with normal means about the observed ones, equal systems counted."""
    pairs, n, m = PAIRS, 15, 40_000
    rng = np.random.default_rng(4)
    S = np.cov(pairs.residuals, rowvar=False)
    means = rng.multivariate_normal(pairs.effects, S / n, size=m, method="eigh")
    eps = np.full(m, threshold)
    counts = pair_agreement(means, np.tile(pairs.effects, (m, 1)), eps, eps).astype(float)
    mean, error = counts.mean(axis=0), counts.std(axis=0) / np.sqrt(m)
    options = {"estimator": "urbano", "threshold": threshold}
    tau_a = expected_correlation(pairs, n, **options)["estimate"].item()
    assert tau_a == pytest.approx(mean[0] / 28, abs=4 * error[0] / 28)  # four standard errors
    tau_b = expected_correlation(pairs, n, variant="b", **options)["estimate"].item()
    about = np.sqrt(mean[1] * mean[2])
    assert tau_b == pytest.approx(mean[0] / about, abs=4 * (error[0] + error[1]) / about)


def test_variance_of_one_pair_with_a_threshold():
    """Of two systems swaps do not depend on each other: the variance is that of simulated τ."""
    pairs = pair_up(scores_of(10, 2, seed=3, spread=1.0))
    rng = np.random.default_rng(5)
    D = pairs.differences[0] + rng.normal(size=100_000) * np.sqrt(pairs.variances[0] / 4)
    tau = np.sign(D) * (np.abs(D) > 0.2)
    found = expected_correlation(pairs, 4, estimator="urbano", threshold=0.2)
    assert found["estimate"].item() == pytest.approx(tau.mean(), abs=0.01)  # 1/√100,000 × 3
    assert found["variance"].item() == pytest.approx(tau.var(), abs=0.02)


def test_all_systems_may_be_equal():
    options = {"threshold": 50.0, "draws": 10}
    assert (
        expected_correlation(PAIRS, 5, **options)[["estimate", "variance", "low", "high"]]
        .eq(0)
        .all(axis=None)
    )
    with pytest.warns(VcompWarning, match=r"with threshold=50 all systems are equal; variant='a'"):
        found = expected_correlation(PAIRS, 5, variant="b", **options)
    assert found[["estimate", "low", "high"]].isna().all(axis=None)


def student_to_normal(df):
    """Return the mean of Student's |t| over that of a normal number, by quadrature."""
    return student(df).expect(abs) / np.sqrt(2 / np.pi)


def unsorted(drawn, values):
    out = np.empty_like(values)
    np.put_along_axis(out, drawn.order, values, axis=1)
    return out


def with_other_lengths(pairs):
    """Return the covariance matrix of errors of three systems, by integrals over angles."""
    values, vectors = np.linalg.eigh(np.cov(pairs.residuals, rowvar=False))
    values, vectors = values[1:], vectors[:, 1:]
    nu = values.sum() ** 2 / (values**2).sum()
    assert pairs.sample_df == pytest.approx(nu)
    power = np.sqrt(nu / pairs.df)
    mean = chi2(nu).expect(lambda x: (x / nu) ** power)
    share = values / values.sum()

    def at(angle):
        squares = np.array([np.cos(angle) ** 2, np.sin(angle) ** 2])
        return squares * (share @ squares) ** (power - 1.0)

    radius = chi2(2).expect(lambda x: x**power)
    moments = [quad(lambda a, i=i: at(a)[i], 0, np.pi)[0] / np.pi * radius for i in (0, 1)]
    return vectors @ np.diag(values * moments / mean) @ vectors.T


class TestDraws:
    """With three systems nothing is shrunk, and all is known in closed form."""

    pairs = pair_up(scores_of(9, 3, seed=8))
    m = 100_000

    def drawn(self):
        return RankDraws.of(self.pairs, self.m, seed=1)

    def test_true_means_have_the_covariance_of_the_means(self):
        drawn = self.drawn()
        about = (unsorted(drawn, drawn.truth) - self.pairs.centres) / drawn.scales.T
        errors = unsorted(drawn, drawn.errors)
        S = with_other_lengths(self.pairs)
        # Monte Carlo error: √(2/100,000) of a variance.
        np.testing.assert_allclose(np.cov(about, rowvar=False), S / 9, atol=0.02 * S.max() / 9)
        np.testing.assert_allclose(np.cov(errors, rowvar=False), S, atol=0.02 * S.max())
        error = np.sqrt(S.max() / 9 / self.m)
        np.testing.assert_allclose(about.mean(axis=0), 0.0, atol=4 * error)

    def test_scales_have_the_moments_of_the_mean_square_of_error(self):
        drawn = self.drawn()
        squares = (self.pairs.residuals**2).sum(axis=1)
        moved = 2 * np.log(drawn.scales[0] / student_to_normal(8))
        variance = squares.var(ddof=1) / squares.mean() ** 2 / 9
        assert moved.mean() == pytest.approx(0.0, abs=4 * np.sqrt(variance / self.m))
        assert moved.var() == pytest.approx(variance, rel=0.02)  # √(2/100,000) × 4
        # The third moments of residuals: means and their errors' size move together.
        about = (unsorted(drawn, drawn.truth) - self.pairs.centres) / drawn.scales.T
        skewness = self.pairs.residuals.T @ squares / squares.mean() / (9 * 8)
        error = np.sqrt(about.var(axis=0) * variance / self.m)
        assert (np.abs(about.T @ moved / self.m - skewness) < 4.5 * error).all()

    @pytest.mark.parametrize("threshold", [0.0, 0.2])
    def test_what_is_expected_is_the_mean_of_what_is_realised(self, threshold):
        drawn = self.drawn()
        realised, expected = (f(7, threshold) for f in (drawn.realised, drawn.expected))
        error = (realised - expected).std(axis=0) / np.sqrt(self.m) + 1e-12
        assert (np.abs((realised - expected).mean(axis=0)) < 4 * error).all()

    def test_limits_are_quantiles(self):
        tau = self.drawn().realised(7, 0.0)[:, 0] / 3
        found = expected_correlation(self.pairs, 7, draws=self.m, rng=1, alpha=0.2)
        np.testing.assert_array_equal(found[["low", "high"]].iloc[0], np.quantile(tau, [0.1, 0.9]))


@pytest.mark.parametrize("skewed", [False, True])
def test_tau_of_two_systems_at_hand_by_quadrature(skewed):
    """The pair is swapped if its error, of a size that depends on it, exceeds the difference."""
    rng = np.random.default_rng(7)
    error = rng.exponential(size=12) - 1 if skewed else rng.normal(size=12)
    X = np.column_stack([0.35 + error, np.zeros(12)])
    pairs, m = pair_up(X), 200_000
    tau = RankDraws.of(pairs, m, seed=2).realised(None, 0.0)[:, 0]
    d = X[:, 0] - X[:, 1] if X[:, 0].mean() > 0 else X[:, 1] - X[:, 0]
    z = d - d.mean()
    q = z**2 / (z**2).mean() - 1
    u, v = z / np.sqrt(z @ z), q / np.sqrt(4 * 12 * 11)  # of the error, and of the log scale
    rho = u @ v / np.sqrt(v @ v)
    threshold = np.sqrt(12) * d.mean() / d.std(ddof=1) / student_to_normal(11)

    def swapped(x):
        at = -threshold * np.exp(-np.sqrt(v @ v) * x)
        return norm.pdf(x) * norm.cdf((at - rho * x) / np.sqrt(1 - rho**2))

    w = quad(swapped, -9, 9)[0]
    assert abs(rho) > (0.5 if skewed else 0.0)
    assert tau.mean() == pytest.approx(1 - 2 * w, abs=4 * tau.std() / np.sqrt(m))


def with_equal_eigenvalues(n, k, rank):
    """Return scores whose residuals have `rank` equal eigenvalues and no others."""
    rng = np.random.default_rng(4)
    left, right = (
        np.linalg.qr(np.column_stack([np.ones(size), rng.normal(size=(size, rank))]))[0][:, 1:]
        for size in (n, k)
    )
    return left @ right.T + 0.2 * rng.normal(size=k)


def test_lengths_of_errors_have_the_corrected_degrees_of_freedom():
    """Squared lengths are chi-squares of 4 degrees of freedom, raised to a power."""
    n, k, rank, m = 12, 12, 4, 100_000
    pairs = pair_up(with_equal_eigenvalues(n, k, rank))
    assert pairs.sample_df == pytest.approx(rank)
    assert pairs.df == pytest.approx((n * rank - 2) / (n - 1 - rank))
    drawn = RankDraws.of(pairs, m, seed=3)
    squares = (drawn.errors**2).sum(axis=1)
    power = np.sqrt(rank / pairs.df)
    raised = chi2(rank).expect(lambda x: x**power), chi2(rank).expect(lambda x: x ** (2 * power))
    variance = raised[1] / raised[0] ** 2 - 1
    trace = rank / (n - 1)
    assert squares.mean() == pytest.approx(trace, abs=4 * trace * np.sqrt(variance / m))
    assert squares.var() / trace**2 == pytest.approx(variance, rel=0.03)  # Monte Carlo: 1 %
    assert variance == pytest.approx(2 / pairs.df, rel=0.1)  # to first order, as documented
    quantiles = np.quantile(squares, [0.1, 0.5, 0.9])
    expected = chi2(rank).ppf([0.1, 0.5, 0.9]) ** power / raised[0] * trace
    np.testing.assert_allclose(quantiles, expected, rtol=0.01)  # Monte Carlo: 0.3 %


def test_the_scale_of_errors_is_known_from_all_systems():
    """Of independent normal errors of 40 systems: as well as from 39 × 19 numbers, not 19."""
    variances = []
    for seed in range(20):
        pairs = pair_up(np.random.default_rng(seed).normal(size=(20, 40)))
        moved = 2 * np.log(RankDraws.of(pairs, 4_000, seed=1).scales)
        variances.append(moved.var())
    # Each is estimated from the squares of 20 topics: relative error √(2/19), of their mean 7 %.
    assert np.mean(variances) == pytest.approx(2 / (39 * 19), rel=0.25)


@pytest.mark.parametrize("spread", [0.0, 0.15, 0.5])
def test_true_differences_have_the_moments_of_their_distribution(spread):
    """Given B they are normal with mean (1 - B) D and 1 - B times the variance of error."""
    rng = np.random.default_rng(0)
    pairs = pair_up(rng.normal(size=(30, 12)) + spread * rng.normal(size=12))
    share = error_share(pairs)
    B = share.quantile((np.arange(20_000) + 0.5) / 20_000)
    expected = ((1 - B) ** 2).mean() * share.F * pairs.mean_error + (
        1 - B
    ).mean() * pairs.mean_error
    truth = RankDraws.of(pairs, 20_000, seed=1).truth
    # The size of errors is drawn as well, whose square is 2 % larger on average.
    assert 2 * truth.var(axis=1, ddof=1).mean() == pytest.approx(expected, rel=0.04)


def test_draws_that_do_not_fit_into_memory_are_refused():
    """Of a thousand numbers: 83 draws of twelve do, and 84 do not; 125 of eight are as many."""
    _check_draws(83, 8, 12, most=1000)
    _check_draws(125, 8, 8, most=1000)
    with pytest.raises(PlanError, match="84 draws of 8 systems, each from 12 residuals, do not"):
        _check_draws(84, 8, 12, most=1000)
    with pytest.raises(PlanError, match="84 draws of 12 systems, each from 8 residuals, do not"):
        _check_draws(84, 12, 8, most=1000)
    with pytest.raises(PlanError, match="99,999,999 draws of 8 systems"):
        expected_correlation(PAIRS, 5, interval="draws", draws=99_999_999)


@pytest.mark.parametrize("rows", [2, 3])
def test_each_size_of_tests_has_its_row_of_scales(rows):
    """Errors twice as large are those of a quarter as many topics."""
    drawn = RankDraws.of(PAIRS, 50, seed=1)
    of_rows = np.vstack([2.0**row * drawn.scales for row in range(rows)])
    many = replace(drawn, scales=of_rows)
    for row in range(rows):
        n = 64.0 / 4.0**row
        for method in ("realised", "expected"):
            found = getattr(many, method)(64.0, 0.0, row)
            np.testing.assert_allclose(found, getattr(drawn, method)(n, 0.0), rtol=1e-12)


@BOTH
@ALL_INTERVALS
class TestIntervals:
    def test_draws_are_the_same_for_the_same_seed(self, measure, interval):
        one, other = (measure(PAIRS, [5, 50], **interval, rng=3) for _ in range(2))
        pd.testing.assert_frame_equal(one, other)
        rng = np.random.default_rng(3)
        measure(PAIRS, [5, 50], **interval, rng=rng)

    def test_sizes_do_not_depend_on_each_other(self, measure, interval):
        many = measure(PAIRS, [5, 50], **interval)
        one = measure(PAIRS, 50, **interval)
        np.testing.assert_array_equal(many.iloc[1], one.iloc[0])

    def test_wider_with_more_confidence_and_higher_with_more_topics(self, measure, interval):
        wide, narrow = (measure(PAIRS, [5, 50, 500], **interval, alpha=a) for a in (0.05, 0.5))
        assert (wide["low"] <= narrow["low"]).all()
        assert (wide["high"] >= narrow["high"]).all()
        assert (wide["low"] < wide["high"]).all()
        assert wide["low"].between(-1, 1).all()
        assert wide["high"].between(-1, 1).all()
        assert wide["low"].is_monotonic_increasing
        assert wide["high"].is_monotonic_increasing

    @given(st.floats(1e-3, 1e3), st.integers(-100, 100))
    @settings(max_examples=examples(5), deadline=None)
    def test_scale_and_origin_do_not_matter(self, measure, interval, scale, shift):
        X = scores_of(12, 8)
        moved = measure(pair_up(scale * (X + shift)), 20, **interval, draws=200)
        here = measure(pair_up(X), 20, **interval, draws=200)
        np.testing.assert_allclose(numbers(moved), numbers(here), rtol=0, atol=1e-9)

    def test_order_of_systems_does_not_matter(self, measure, interval):
        X = scores_of(12, 8)
        shuffled, plain = (measure(pair_up(Y), 20, **interval) for Y in (X[:, ::-1], X))
        np.testing.assert_allclose(numbers(shuffled), numbers(plain), atol=1e-9)

    def test_missing_cells_change_little(self, measure, interval):
        X = scores_of(80, 12, seed=2)
        whole = measure(pair_up(X), [40, 160], **interval)
        holes = np.random.default_rng(6).random(X.shape) < 0.03
        part = measure(pair_up(np.where(holes, np.nan, X)), [40, 160], **interval)
        # Means that rest on 3 % fewer topics move by a sixth of their standard errors.
        np.testing.assert_allclose(numbers(part), numbers(whole), rtol=0, atol=0.06)


@BOTH
def test_the_interval_does_not_depend_on_the_estimator_but_its_default_does(measure):
    ends = ["low", "high"]
    shrunken, published = (measure(PAIRS, 9, estimator=e) for e in ("shrunken", "urbano"))
    asked = measure(PAIRS, 9, estimator="urbano", interval="draws")
    np.testing.assert_array_equal(asked[ends], shrunken[ends])
    independent = measure(PAIRS, 9, estimator="urbano", interval="independent")
    pd.testing.assert_frame_equal(independent, published)


@BOTH
def test_the_test_at_hand_is_no_new_one(measure):
    at_hand, new = measure(PAIRS), measure(PAIRS, PAIRS.n_topics)
    assert at_hand["estimate"].item() == new["estimate"].item()
    assert at_hand["low"].item() != new["low"].item()
    expected = (measure(PAIRS, n, target="expectation") for n in (None, PAIRS.n_topics))
    pd.testing.assert_frame_equal(*expected)


def test_covers_where_the_published_interval_does_not():
    """Normal scores of fifteen systems on ten topics, whose errors are correlated."""
    rng = np.random.default_rng(9)
    trials, covered, published, error, published_error = 120, 0, 0, 0.0, 0.0
    loadings = 0.5 * rng.normal(size=(2, 15))
    for _ in range(trials):
        mu = 0.4 * rng.normal(size=15)
        X = mu + rng.normal(size=(10, 15)) + rng.normal(size=(10, 2)) @ loadings
        pairs = pair_up(X)
        one = np.zeros(1)
        tau = pair_agreement(pair_means(X), mu[np.newaxis], one, one)[0, 0] / 105
        ours = expected_correlation(pairs, draws=400)
        theirs = expected_correlation(pairs, estimator="urbano")
        covered += ours["low"].item() <= tau <= ours["high"].item()
        published += theirs["low"].item() <= tau <= theirs["high"].item()
        error += ours["estimate"].item() - tau
        published_error += theirs["estimate"].item() - tau
    # Standard error of a coverage of 95 %: 2 %; the bounds are far from both.
    assert covered / trials > 0.88
    assert published / trials < 0.75
    assert abs(error) < 0.6 * abs(published_error)


def pair_means(X):
    return X.mean(axis=0)[np.newaxis]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"estimator": "shrunk"},
            r"estimator must be 'shrunken' or 'urbano', not 'shrunk' \(did you mean",
        ),
        ({"estimator": None}, "estimator must be 'shrunken' or 'urbano', not None"),
        ({"estimator": "split_half"}, "not 'split_half'; vcomp.ir.split_half and .* from halves"),
        ({"interval": "predict"}, "interval must be 'auto', 'draws' or 'independent', not 'predi"),
        ({"target": "tests"}, "target must be 'test' or 'expectation', not 'tests'"),
        (
            {"target": "expectation", "interval": "independent"},
            "interval='independent' covers τ of one test; .* use interval='draws'",
        ),
        ({"threshold": -0.1}, "threshold is the largest difference of equal systems, .* not -0.1"),
        ({"threshold": np.nan}, "threshold is the largest difference"),
        ({"threshold": np.inf}, "threshold is the largest difference"),
        ({"threshold": "0.1"}, "threshold is the largest difference .* not '0.1'"),
        ({"threshold": True}, "threshold is the largest difference .* not True"),
        ({"draws": 0}, "draws must be a whole number of at least 1, not 0"),
        ({"draws": 10.5}, "draws must be a whole number of at least 1, not 10.5"),
        ({"draws": True}, "draws must be a whole number of at least 1, not True"),
        ({"draws": 10**8}, "100,000,000 draws of 8 systems, each from 12 residuals, do not fit"),
        ({"alpha": 2}, "alpha must be between 0 and 1"),
    ],
)
@BOTH
def test_other_options_are_refused_by_name(measure, options, message):
    with pytest.raises(PlanError, match=message):
        measure(PAIRS, 5, **options)


def test_variants_are_a_b_or_ap():
    with pytest.raises(PlanError, match="variant must be 'a', 'b' or 'ap', not 'c'"):
        expected_correlation(PAIRS, 5, variant="c")


@BOTH
def test_the_default_interval_goes_with_estimator_and_target(measure):
    """The published interval is of one test: the expectation has draws by any estimator."""
    ends = ["low", "high"]
    ours, theirs = (
        measure(PAIRS, 9, estimator=e, target="expectation") for e in ("shrunken", "urbano")
    )
    pd.testing.assert_frame_equal(ours[ends], theirs[ends])
    assert theirs["estimator"].item() == "urbano"


@BOTH
def test_rng_is_a_seed(measure):
    with pytest.raises(EstimationError, match="rng must be a seed of at least 0"):
        measure(PAIRS, 5, rng="1")


def test_numpy_scalars_are_numbers():
    found = expected_correlation(PAIRS, np.int64(9), threshold=np.float32(0.0), draws=np.int64(50))
    pd.testing.assert_frame_equal(found, expected_correlation(PAIRS, 9, draws=50))


@BOTH
@ALL_INTERVALS
def test_two_systems_on_two_topics(measure, interval):
    """The least there can be: one degree of freedom, and nothing to shrink by."""
    pairs = pair_up(np.array([[0.1, 0.3], [0.2, 0.9]]))
    found = measure(pairs, **interval)
    w = student.cdf(-np.sqrt(2) * pairs.differences[0] / np.sqrt(pairs.variances[0]), 1)
    assert found["estimate"].item() == pytest.approx(1 - 2 * w, abs=1e-12)
    assert -1 <= found["low"].item() <= found["high"].item() <= 1


def test_endless_tests_find_the_truth_in_spite_of_missing_cells():
    """Means over different topics contradict many differences, which new tests do not have."""
    X = scores_of(40, 15, seed=3) + 3 * np.random.default_rng(1).normal(size=(40, 1))
    X[np.random.default_rng(2).random(X.shape) < 0.2] = np.nan
    pairs = pair_up(X)
    assert (pairs.differences < 0).sum() > 3
    found = expected_correlation(pairs, [40, 10**9])
    assert found["estimate"][1] == pytest.approx(1.0, abs=1e-3)
    assert found["low"][0] < found["estimate"][0] < found["high"][0]
    assert expected_correlation(pairs, 10**9, estimator="urbano")["estimate"].item() < 0.95
    at_hand = expected_correlation(pairs)
    assert at_hand["estimate"].item() < found["estimate"][0]
    assert at_hand["low"].item() < at_hand["estimate"].item() < at_hand["high"].item()

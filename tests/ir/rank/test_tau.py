"""Eτ and Eτ_AP of TREC collections, as the code that belongs to Urbano (2016) gives them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vcomp.ir
from tests.helpers.reference_frames import COLLECTIONS
from vcomp.exceptions import DataError, PlanError
from vcomp.ir import expected_tau
from vcomp.ir.rank.correlation import RankCorrelation, RankOptions, Swaps, error_share
from vcomp.ir.rank.paired import PairedDifferences, corrected_lengths


@pytest.fixture(params=COLLECTIONS)
def collection(request, reference, shared_data):
    published = reference(f"irj2015_{request.param}")
    scores = pd.read_csv(shared_data(f"{published['dataset']}.csv"))
    return scores, published["drop_fraction"], published["values"]


@pytest.mark.parametrize(
    ("variant", "key"),
    [("a", "Etau"), ("ap", "EtauAP")],
)
def test_trec_collections(collection, variant, key):
    scores, drop_worst, values = collection
    options = {"drop_worst": drop_worst, "estimator": "urbano", "variant": variant}
    table = expected_tau(scores, values["n_prime"], **options)
    handled = values["extra_not_in_code"][f"{key}_zero_variance_handled"]
    np.testing.assert_allclose(table["estimate"], handled, rtol=1e-10)
    if None not in values[key]:
        np.testing.assert_allclose(table["estimate"], values[key], rtol=1e-10)


def test_trec_identical_systems(collection):
    scores, drop_worst, values = collection
    kept = vcomp.ir.as_score_matrix(scores).drop_worst(drop_worst)
    assert list(kept.systems) == values["systems"]
    pairs = PairedDifferences.from_scores(kept.scores, kept.systems)
    assert pairs.n_zero_variance == values["n_zero_variance_pairs"]


@pytest.mark.slow
@pytest.mark.parametrize("collection", ["adhoc3", "web2010ap"], indirect=True)
@pytest.mark.parametrize("variant", ["a", "ap"])
def test_trec_scores_may_be_far_from_zero(collection, variant):
    scores, _, values = collection
    far = expected_tau(scores + 1e7 * scores.to_numpy().std(), values["n_prime"], variant=variant)
    near = expected_tau(scores, values["n_prime"], variant=variant)
    np.testing.assert_allclose(far["estimate"], near["estimate"], rtol=0, atol=1e-9)


SCORES = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3], [np.nan, np.nan, np.nan]]


@pytest.mark.parametrize("variant", ["a", "ap"])
def test_by_default_the_test_is_as_long_as_it_is(variant):
    assert expected_tau(SCORES, variant=variant)["n"].tolist() == [3]


@pytest.mark.parametrize("variant", ["a", "ap"])
def test_dropping_nearly_all_systems_is_an_error(variant):
    with pytest.raises(DataError, match="leaves '1' alone of 3 systems"):
        expected_tau(SCORES, drop_worst=0.9, variant=variant)


def test_differences_as_large_as_the_threshold_are_not_unequal():
    one = np.ones(3)
    swaps = Swaps(np.array([0.5, -0.5, 0.75]), one, np.empty(0, dtype=np.int64), 0.5)
    assert swaps.unequal.tolist() == [False, False, True]
    assert Swaps(0.0 * one, one, np.empty(0, dtype=np.int64), 0.0).unequal.all()


def test_one_draw_is_enough():
    assert RankOptions(draws=1).draws == 1
    with pytest.raises(PlanError, match="draws must be a whole number of at least 1"):
        RankOptions(draws=0)


def test_lengths_of_errors_are_never_spread():
    """Sample covariances with more degrees of freedom than the true ones leave errors alone."""
    errors = np.random.default_rng(1).normal(size=(50, 3))
    for sample_df, df in ((5.0, 4.0), (5.0, 5.0)):
        np.testing.assert_allclose(
            corrected_lengths(errors, 3.0, sample_df, df), errors, rtol=1e-14
        )
    np.testing.assert_array_equal(corrected_lengths(0.0 * errors, 0.0, 2.0, 5.0), 0.0)
    assert np.abs(corrected_lengths(errors, 3.0, 2.0, 5.0) - errors).max() > 0.1


@pytest.mark.parametrize("df", [[], [5.0]])
def test_differences_that_are_constant_are_certain(df):
    """At the threshold they are ties; without one, systems that are alike are half a swap."""
    differences, deviations = np.array([0.7, 0.5, -0.5, -0.7, 0.0, 0.2]), np.zeros(6)
    deviations[5] = 0.3
    ahead, behind = Swaps(differences, deviations, np.array(df), 0.5).probabilities(4.0)
    assert ahead[:5].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert behind[:5].tolist() == [0.0, 0.0, 0.0, 1.0, 0.0]
    assert ahead[5] == pytest.approx(_below((0.2 - 0.5) * 2.0 / 0.3, df), rel=1e-12)
    assert behind[5] == pytest.approx(_below((-0.2 - 0.5) * 2.0 / 0.3, df), rel=1e-12)
    ahead, behind = Swaps(differences, deviations, np.array(df), 0.0).probabilities(4.0)
    assert ahead[:5].tolist() == [1.0, 1.0, 0.0, 0.0, 0.5]
    assert behind[:5].tolist() == [0.0, 0.0, 1.0, 1.0, 0.5]


def _below(z, df):
    return stats.t(df[0]).cdf(z) if df else stats.norm.cdf(z)


@pytest.mark.parametrize(("sample_df", "df"), [(2.0, 5.0), (3.0, 3.5)])
def test_squares_of_lengths_are_raised_to_a_power_that_leaves_their_mean(sample_df, df):
    errors, mean = np.random.default_rng(2).normal(size=(9, 4)), 3.1
    power = np.sqrt(sample_df / df)
    # The squares over their mean are a chi-square over its degrees of freedom.
    chi2 = stats.chi2(sample_df)
    raised = chi2.expect(lambda q: (q / sample_df) ** power)
    squares = (errors**2).sum(axis=1)
    found = corrected_lengths(errors, mean, sample_df, df)
    expected = mean * (squares / mean) ** power / raised
    np.testing.assert_allclose((found**2).sum(axis=1), expected, rtol=1e-7)  # of the quadrature
    np.testing.assert_allclose(found / errors, (found / errors)[:, [0]].repeat(4, 1), rtol=1e-12)


def test_differences_are_shrunken_by_the_root_of_what_is_not_error():
    X = np.random.default_rng(3).normal(size=(15, 6)) + np.arange(6.0)
    pairs = PairedDifferences.from_scores(X, "abcdef")
    share = error_share(pairs).mean
    assert 0.01 < share < 0.5
    found = Swaps.of(pairs, "shrunken", 0.0)
    np.testing.assert_allclose(found.differences, np.sqrt(1 - share) * pairs.differences)
    np.testing.assert_array_equal(Swaps.of(pairs, "urbano", 0.0).differences, pairs.differences)


def test_intervals_end_at_minus_one_and_one():
    X = [[0.1, 0.3], [0.4, 0.2], [0.5, 0.51]]
    table = expected_tau(X, 3, estimator="urbano", interval="independent")
    assert table[["low", "high"]].to_numpy().tolist() == [[-1.0, 1.0]]


@pytest.mark.parametrize("variant", ["a", "ap"])
def test_a_threshold_is_in_the_unit_of_scores(variant):
    X = np.random.default_rng(3).normal(size=(12, 6)) + 0.3 * np.arange(6.0)
    one, half = (
        expected_tau(s * X, 20, variant=variant, threshold=s, draws=200, rng=1) for s in (1.0, 0.5)
    )
    columns = ["estimate", "variance", "low", "high"]
    np.testing.assert_allclose(one[columns], half[columns], rtol=1e-10)


def test_tau_b_of_counts():
    """Concordant less discordant pairs over the root of unequal pairs in each ranking."""
    one, other = [1, 1, 2, 3, 4, 4, 4], [1, 2, 2, 3, 1, 5, 6]
    i, j = np.triu_indices(7, 1)
    a, b = (np.sign(np.take(x, j) - np.take(x, i)) for x in (one, other))
    counts = np.array([[a @ b, 0, abs(a).sum(), abs(b).sum()], [0, 0, 0, 9]], dtype=float)
    found = RankCorrelation("b").of_counts(counts, 7)
    assert found[0] == pytest.approx(stats.kendalltau(one, other).statistic, rel=1e-14)
    assert np.isnan(found[1])
    two = np.array([[1, 0, 1, 1], [-1, 0, 1, 1], [0, 0, 1, 0]], dtype=float)
    found = RankCorrelation("b").of_counts(two, 2)
    np.testing.assert_array_equal(found, [1.0, -1.0, np.nan])

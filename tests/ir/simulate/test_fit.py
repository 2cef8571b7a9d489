"""Simulators keep what they promise of a collection, and refuse what they cannot simulate."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.helpers.examples import examples
from vcomp.exceptions import DataError, EstimationError, PlanError
from vcomp.ir.simulate.copula import correlation_factor, decompose, gaussian, spread_of
from vcomp.ir.simulate.margin_families import kernel_margin
from vcomp.simulate import fit_collection

COLLECTIONS = ["enterprise2006", "genomics2004", "robust2003", "web2004"]


@pytest.fixture(scope="module", params=COLLECTIONS)
def trec(request, shared_data):
    """Return the scores of a collection, and their simulator."""
    scores = pd.read_csv(shared_data(f"{request.param}.csv"))
    means = scores.mean()
    kept = scores.loc[:, means >= means.quantile(0.25)].to_numpy()
    return kept, fit_collection(kept)


@pytest.mark.parametrize("margins", ["kernel", "normal", "beta_kernel"])
@pytest.mark.parametrize("means", ["observed", "fitted"])
def test_true_means_are_those_of_very_many_topics(scores, margins, means):
    simulator = fit_collection(scores, margins=margins, means=means)
    simulated = simulator.simulate(4_000, n=10, rng=6)
    Y = simulated.scores.mean(axis=1)
    se = Y.std(axis=0, ddof=1) / np.sqrt(10)
    assert (np.abs(Y.mean(axis=0) - simulator.means) < 6 * se).all()
    assert list(simulated.true_means) == list(simulator.means)


def test_true_means_of_trec_collections(trec):
    scores, simulator = trec
    np.testing.assert_allclose(simulator.means, scores.mean(axis=0), atol=1e-11)
    fitted = fit_collection(scores, means="fitted")
    effects = decompose(fitted.scale.forward(scores))
    np.testing.assert_allclose(fitted.offsets, effects.mean + effects.systems, atol=1e-14)
    # What the algorithm as published leaves: see the notes of fit_collection.
    assert 0.002 < (fitted.means - scores.mean(axis=0)).mean() < 0.031


def test_quadrature_is_fine_enough(trec):
    _, simulator = trec
    R = simulator.factor @ simulator.factor.T
    z = np.linspace(-6.5, 6.5, 1301)
    w = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    topic = np.interp(z, np.linspace(-6, 6, 1025), simulator.topic_margin.quantiles)
    for s in range(0, simulator.n_systems, 40):
        other = R[0, s + 1] * z[:, None] + np.sqrt(1 - R[0, s + 1] ** 2) * z
        residual = np.interp(other, np.linspace(-6, 6, 1025), simulator.margins[s].quantiles)
        Y = simulator.scale.backward(simulator.offsets[s] + topic[:, None] + residual)
        assert w @ Y @ w == pytest.approx(simulator.means[s], abs=2e-6)  # margins have corners


def test_means_can_be_given(scores):
    wanted = np.linspace(0.2, 0.8, 8)
    for margins in ("kernel", "normal", "truncated_kernel"):
        simulator = fit_collection(scores, margins=margins, means=wanted)
        np.testing.assert_allclose(simulator.means, wanted, atol=1e-10)
        Y = simulator.simulate(5_000, rng=3)[0]
        np.testing.assert_allclose(
            Y.mean(axis=0), wanted, atol=6 * Y.std(axis=0).max() / np.sqrt(5_000)
        )


def test_the_same_true_mean_for_all(scores):  # to study tests under the null hypothesis
    simulator = fit_collection(scores, means=np.full(8, 0.3))
    np.testing.assert_allclose(simulator.means, 0.3, atol=1e-11)


def test_a_system_that_is_always_wrong_stays_so(scores):
    scores[:, 3] = 0.0
    simulator = fit_collection(scores)
    assert simulator.means[3] == pytest.approx(0.0, abs=1e-9)
    assert simulator.simulate(200, rng=1).scores[..., 3].max() < 1e-6


@pytest.mark.slow
def test_scores_of_0_and_1_are_between_0_and_1(scores):
    scores[0, 0], scores[1, 1] = 0.0, 1.0
    fit_collection(scores, copula="t", df=1)
    for shift, reach in ((0.0, 1.0), (0.5, np.inf), (-0.5, np.inf)):
        Y = scores + shift
        found = fit_collection(Y, margins="normal").topic_margin
        expected = kernel_margin(decompose(Y).topics, -reach, reach)
        np.testing.assert_array_equal(found.quantiles, expected.quantiles)


def test_residuals_end_where_logits_do(scores):
    simulator = fit_collection(scores)
    effects, reach = decompose(simulator.scale.forward(scores)), simulator.scale.reach
    assert reach == pytest.approx(np.log(1.05 / 0.05), rel=1e-12)
    for margin, residuals in zip(simulator.margins, effects.residuals.T, strict=True):
        expected = kernel_margin(residuals, -reach, reach)
        np.testing.assert_array_equal(margin.quantiles, expected.quantiles)


def test_margins_of_scores_are_not_on_a_scale_of_effects(scores):
    simulator = fit_collection(scores, margins="beta")
    assert simulator.topic_margin is None
    assert not simulator.scale.logit
    assert simulator.heteroscedasticity == 1
    assert (simulator.offsets == 0.0).all()


def test_decomposition_adds_up(scores):
    effects = decompose(scores)
    sums = effects.mean + effects.systems + effects.topics[:, None] + effects.residuals
    np.testing.assert_allclose(sums, scores, rtol=0, atol=1e-15)
    for centred in (effects.systems, effects.topics, *effects.residuals, *effects.residuals.T):
        assert centred.sum() == pytest.approx(0.0, abs=1e-13)
    pooled = effects.with_variances(0.0)
    var = effects.residuals.var(axis=0, ddof=1)
    np.testing.assert_allclose(pooled.residuals.var(axis=0, ddof=1), var.mean(), rtol=1e-13)
    np.testing.assert_allclose(
        np.corrcoef(pooled.residuals.T), np.corrcoef(effects.residuals.T), atol=1e-13
    )


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(2, 30), st.integers(0, 10**6))
def test_factors_are_of_the_nearest_correlations(k, n, seed):
    x = np.random.default_rng(seed).normal(size=(n, k)) * np.arange(1.0, k + 1.0)
    S = np.atleast_2d(np.cov(x, rowvar=False))
    L = correlation_factor(S)
    assert (np.tril(L) == L).all()
    R = S / np.sqrt(np.outer(np.diag(S), np.diag(S)))
    # Eigenvalues are raised by 1e-8 of the largest; what that is of the smallest variance counts.
    raised = 1e-8 * np.linalg.eigvalsh(S)[-1] / np.diag(S).min()
    np.testing.assert_allclose(L @ L.T, R, rtol=0, atol=4.0 * raised + 1e-12)
    np.testing.assert_allclose(np.diag(L @ L.T), 1.0, rtol=1e-12)


def test_identical_systems_stay_identical_but_for_the_smallest_eigenvalue(scores):
    scores[:, 2] = scores[:, 5]
    Y = fit_collection(scores).simulate(100, rng=1)[0]
    # 1e-4 of a standard deviation: the square root of 1e-8.
    assert np.abs(Y[:, 2] - Y[:, 5]).max() < 3e-3


@pytest.mark.parametrize("correlation", [-0.99, -0.3, 0.0, 0.8, 1.0])
def test_spread_has_the_moments_of_a_sum(correlation):
    from vcomp.ir.simulate.margin_families import normal_margin

    x = np.array([-1.0, 0.0, 1.0])
    spread = spread_of(normal_margin(x), normal_margin(2.0 * x), gaussian(), correlation)
    assert spread.weights @ spread.values == pytest.approx(0.0, abs=1e-12)
    variance = 1.0 + 4.0 + 2.0 * 2.0 * correlation
    assert spread.weights @ spread.values**2 == pytest.approx(variance, abs=1e-6)


def test_discounted_gains_need_normal_residuals():
    rng = np.random.default_rng(1)
    gains = 5.0 + rng.normal(size=(30, 1)) * 3.0 + rng.normal(size=(30, 4))
    with pytest.raises(DataError, match=r"needs scores between 0 and 1; .*margins='normal'"):
        fit_collection(gains)
    simulator = fit_collection(gains, margins="normal")
    Y = simulator.simulate(20_000, rng=1)[0]
    assert Y.mean() == pytest.approx(gains.mean(), abs=0.15)
    # Nothing is cut off at 1: topics vary as they do, and by the width of their kernel.
    assert Y.mean(axis=1).std() > 0.9 * gains.mean(axis=1).std()


BAD = [
    ([[0.1, 0.2]], {}, DataError, "at least two topics"),
    ([[0.1], [0.2]], {}, DataError, "at least two topics"),
    ([0.1, 0.2], {}, DataError, "1 dimension"),
    ([], {}, DataError, "dimension"),
    ([["a", "b"], ["c", "d"]], {}, DataError, "matrix of numbers"),
    (
        [[0.1, np.nan], [0.2, 0.3]],
        {},
        DataError,
        "1 of 4 are missing, that of system '1' on topic '0'",
    ),
    ([[0.1, 0.2], [0.2, np.inf]], {}, DataError, "system '1' on topic '1' is infinite"),
    ([[0.1, 0.2], [0.2, 1.3]], {}, DataError, "system '1' on topic number 2 is 1.3"),
    ([[0.1, 0.3], [0.3, 0.1]], {"margins": "normal"}, DataError, "the same on every topic"),
    ([[0.1, 0.2], [0.3, 0.4]], {"margins": "normal"}, DataError, "no residuals"),
    (
        [[0.4, 0.4, 0.2], [0.45, 0.6, 0.55], [0.47, 0.5, 0.33]],
        {"margins": "normal"},
        DataError,
        "system '1' differs from the mean of all systems by the same amount",
    ),
    ([[0.5, 0.2], [0.5, 0.4]], {"margins": "beta"}, DataError, "'0' scores 0.5 on every topic"),
    ([[0.1, 0.2], [0.3, 0.5]], {"margins": "betta"}, PlanError, "did you mean 'beta'"),
    ([[0.1, 0.2], [0.3, 0.5]], {"random_sampling": 1}, PlanError, "True or False"),
    ([[0.1, 0.2], [0.3, 0.5]], {"support": "P@10"}, PlanError, "support= needs margins of scores"),
    (
        [[0.1, 0.2], [0.3, 0.5]],
        {"margins": "beta", "heteroscedasticity": 0},
        PlanError,
        "changes margins of residuals, margins='kernel' or 'normal', not margins='beta'",
    ),
    ([[0.1, 0.2], [0.3, 0.5]], {"means": "observd"}, PlanError, "did you mean 'observed'"),
    ([[0.1, 0.2], [0.3, 0.5]], {"means": [0.1]}, PlanError, "1 numbers for 2 systems"),
    ([[0.1, 0.2], [0.3, 0.5]], {"means": [0.1, 1.5]}, PlanError, "system '1' is 1.5"),
    ([[0.1, 0.2], [0.3, 0.5]], {"means": [0.1, None]}, PlanError, "must be between 0 and 1"),
    ([[0.1, 0.2], [0.3, 0.5]], {"means": [0.1, 0.0]}, PlanError, "system '1' is 0; it must be"),
    ([[0.1, 0.2], [0.3, 0.5]], {"means": [0.1, 1.0]}, PlanError, "system '1' is 1; it must be"),
    (
        [[0.1, 0.2], [0.3, 0.5]],
        {"copula": "t", "df": 0.99},
        PlanError,
        "must be finite and at least 1",
    ),
    (
        [[0.1, 0.2], [0.3, 0.5]],
        {"copula": "t", "df": np.inf},
        PlanError,
        "must be finite and at least 1",
    ),
    ([[0.1, 0.2], [0.3, 0.5]], {"systems": ["a"]}, DataError, "1 names for 2 systems"),
]


@pytest.mark.parametrize(("X", "options", "kind", "words"), BAD)
def test_what_cannot_be_simulated(X, options, kind, words):
    with pytest.raises(kind, match=words.replace(".", r"\.")):
        fit_collection(X, **options)


def test_two_systems_and_two_topics_are_enough():
    # Residuals of two systems are mirror images: one random number for both.
    X = [[0.1, 0.2], [0.3, 0.6]]
    for margins in ("kernel", "normal"):
        Y = fit_collection(X, margins=margins).simulate(10, rng=1)[0]
        assert np.isfinite(Y).all()


def test_a_mean_out_of_reach(scores):
    wanted = scores.mean(axis=0)
    wanted[2] = 1 - 1e-9
    with pytest.raises(EstimationError, match=r"system '2': .*cannot have the mean"):
        fit_collection(scores, margins="beta", means=wanted)


def test_simulators_print(scores):
    simulator = fit_collection(scores, correlation=0, means="fitted")
    text = str(simulator.summary())
    assert "from 40 topics × 8 systems" in text
    assert re.search(r"r of residuals of two systems, r.m.s. .* uncorrelated", text)
    assert "True means are not those of the collection" in text
    assert "no more topics" not in text
    small = str(fit_collection(scores[:6], margins="auto").summary())
    assert "Margins: " in small
    assert "uncorrelated" not in small
    assert "There are no more topics than systems" in small
    assert "True means of the systems are those of the collection." in small


def test_collections_travel(scores):
    simulated = fit_collection(scores, list("abcdefgh")).simulate(5, 3, rng=1, first=4)
    assert repr(simulated) == "<3 simulated collections of 5 topics × 8 systems>"
    for n, what in ((1, "1 simulated collection of"), (2, "2 simulated collections of")):
        assert what in repr(replace(simulated, scores=simulated.scores[:n]))
    long = simulated.to_long()
    assert list(long.columns) == ["collection", "topic", "system", "score"]
    assert long["collection"].unique().tolist() == [4, 5, 6]
    wide = long[long["collection"] == 5].pivot(index="topic", columns="system", values="score")
    np.testing.assert_array_equal(wide.to_numpy(), simulated[1])
    np.testing.assert_array_equal(simulated.to_frame(1).to_numpy(), simulated[1])
    assert simulated.to_frame().index.tolist() == [1, 2, 3, 4, 5]
    assert simulated.true_means.index.tolist() == list("abcdefgh")
    assert [len(one) for one in simulated] == [5, 5, 5]


@settings(deadline=None, max_examples=examples(60))
@given(
    st.integers(2, 8),
    st.integers(2, 6),
    st.integers(0, 10**6),
    st.sampled_from(["kernel", "normal", "beta", "truncated_kernel", "beta_kernel", "auto"]),
    st.sampled_from([2, 5, 0]),
    st.sampled_from(["gaussian", "uncorrelated", "t"]),
    st.booleans(),
)
def test_small_and_coarse_collections(n, k, seed, margins, values, tied, random_sampling):
    """Ties, zeros and ones, few topics: collections are simulated, or refused in words."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, values, (n, k)) / (values - 1) if values else rng.beta(0.1, 0.2, (n, k))
    try:
        simulator = fit_collection(
            X,
            margins=margins,
            correlation=float(tied != "uncorrelated"),
            copula="t" if tied == "t" else "gaussian",
            random_sampling=random_sampling,
        )
    except (DataError, EstimationError) as error:
        words = str(error)
    else:
        words = ""
    if words:
        assert "on every topic" in words or "cannot have the mean" in words
        return
    np.testing.assert_allclose(simulator.means, X.mean(axis=0), atol=1e-8)
    Y = simulator.simulate(7, 2, rng=1).scores
    assert np.isfinite(Y).all()
    assert margins == "normal" or (Y.min() >= 0.0 and Y.max() <= 1.0)


@pytest.mark.parametrize(
    ("systems", "words"),
    [
        ("abc", "systems= is a list of names, not 'abc'"),
        (3, "systems= is a list of names, not 3"),
        (["b", "a", "a"], "system 'a' is named twice"),
        (["a", None, "b"], "names of systems are text or numbers, not None"),
        (["a", "b"], "there are 2 names for 3 systems"),
    ],
)
def test_names_that_are_none(systems, words):
    X = np.random.default_rng(1).beta(2, 3, (9, 3))
    with pytest.raises(DataError, match=words):
        fit_collection(X, systems)


def test_complex_scores_are_refused():
    X = np.random.default_rng(1).beta(2, 3, (9, 3)) + 0j
    with pytest.raises(DataError, match="topic × system matrix of numbers: they are complex"):
        fit_collection(X)


def test_there_are_only_so_many_collections():
    simulated = fit_collection(np.random.default_rng(1).beta(2, 3, (9, 3))).simulate(5, 2)
    for number in (2, -1, 0.5):
        with pytest.raises(PlanError, match=f"collections are numbered from 0 to 1, not {number}"):
            simulated.to_frame(number)


def test_the_first_score_beyond_one_is_told():
    X = np.random.default_rng(3).uniform(size=(6, 3))
    X[2, 1], X[4, 0] = 1.5, 1.7
    with pytest.raises(DataError, match=r"of system '1' on topic number 3 is 1\.5"):
        fit_collection(X, margins="beta")

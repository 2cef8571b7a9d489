"""What is said of a simulator: residuals by loops, and each option in words."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest
from scipy import stats

import vcomp
from tests.helpers.printed_tables import printed_columns, printed_words
from vcomp.ir.simulate.simulator import measures_of
from vcomp.numerics import stream


def scores(n=14, k=5, seed=3):
    rng = np.random.default_rng(seed)
    X = 0.5 + 0.1 * rng.normal(size=(n, 1)) + 0.05 * np.arange(k)
    return np.clip(X + 0.05 * rng.normal(size=(n, k)) * (1.0 + np.arange(k) / 3), 0.02, 0.98)


@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e9])
def test_residuals_of_a_collection(unit):
    X = scores() * unit
    e = X - X.mean(axis=0) - X.mean(axis=1, keepdims=True) + X.mean()
    sd = np.sqrt((e**2).mean(axis=0))
    z = (e / sd).ravel()
    found = measures_of(X)
    assert found["skewness"] == pytest.approx(stats.skew(z), rel=1e-9)
    assert found["kurtosis"] == pytest.approx(stats.kurtosis(z), rel=1e-9)
    assert found["log_sd"] == pytest.approx(np.log(sd**2).std(ddof=1), rel=1e-9)
    topics = X.mean(axis=1)
    with_topics = [np.corrcoef(e[:, s], topics)[0, 1] for s in range(5)]
    between = [np.corrcoef(e[:, s], e[:, t])[0, 1] for s, t in itertools.combinations(range(5), 2)]
    assert found["with_topics"] == pytest.approx(np.sqrt(np.mean(np.square(with_topics))))
    assert found["between"] == pytest.approx(np.sqrt(np.mean(np.square(between))))
    assert np.isnan(found["sampling"])
    assert list(found) == ["skewness", "kurtosis", "log_sd", "with_topics", "between", "sampling"]


def test_systems_without_residuals_do_not_count():
    X = scores(k=2)
    X = np.column_stack([X, X.mean(axis=1)])  # its residual is zero
    found = measures_of(X)
    e = X - X.mean(axis=0) - X.mean(axis=1, keepdims=True) + X.mean()
    sd = np.sqrt((e[:, :2] ** 2).mean(axis=0))
    assert found["log_sd"] == pytest.approx(np.log(sd**2).std(ddof=1), abs=1e-12)
    assert found["kurtosis"] == pytest.approx(stats.kurtosis((e[:, :2] / sd).ravel()), rel=1e-9)


OPTIONS = {
    "kernel": ({}, {}),
    "normal": ({"margins": "normal"}, {"kurtosis": "normal residuals"}),
    "equal": ({"heteroscedasticity": 0}, {"log_sd": "equal variances"}),
    "uncorrelated": (
        {"correlation": 0}, {"with_topics": "uncorrelated", "between": "uncorrelated"},
    ),
    "uneven": ({"random_sampling": False}, {"sampling": "uneven sampling"}),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_in_the_summary(name):
    options, forced = OPTIONS[name]
    made = vcomp.simulate.fit_collection(scores(), **options)
    table, printed = made.found, printed_columns(made.summary(), 1)
    names = list(table.index)
    assert printed["requested"] == [forced.get(row, "") for row in names]
    for column in ("collection", "simulated"):
        shown = ["–" if np.isnan(x) else f"{round(x, 2) + 0.0:.2f}" for x in table[column]]
        assert printed[column] == shown
    own = measures_of(scores())
    for row in names:
        assert table["collection"][row] == pytest.approx(own[row], nan_ok=True)
    words = printed_words(made.summary())
    assert "from 14 topics × 5 systems" in words
    assert "the r of two systems is 0.25" in words
    assert "chance adds 0.28 in the collection" in words
    assert ("copula: none" in words) == (name == "uncorrelated")
    assert "True means of the systems are those of the collection." in words
    assert "no more topics than systems" not in words


@pytest.mark.parametrize("random_sampling", [True, False])
def test_means_of_collections_vary_in_standard_errors(random_sampling):
    """Means of 100 collections of 50 topics; the error is that of the topics they come from."""
    made = vcomp.simulate.fit_collection(scores(), random_sampling=random_sampling)
    means = [made.draw(50, stream(0, 1 + k)).mean() for k in range(100)]
    topics = made.draw(1000, stream(0, 0)) if random_sampling else made.scores
    expected = statistics.stdev(means) / statistics.stdev(topics.mean(axis=1)) * 50**0.5
    assert made.found["simulated"]["sampling"] == pytest.approx(expected, rel=1e-9)


def test_the_correlation_of_few_systems_has_two_digits():
    words = printed_words(vcomp.simulate.fit_collection(scores(23, 4)).summary())
    assert "the r of two systems is 0.33, as" in words
    assert "chance adds 0.21 in the collection" in words


def test_few_topics_and_other_means_are_said():
    X = scores(5, 5)
    few = printed_words(vcomp.simulate.fit_collection(X).summary())
    assert "There are no more topics than systems: correlations are poorly known." in few
    alone = vcomp.simulate.fit_collection(X, correlation=0)
    assert "no more topics" not in printed_words(alone.summary())
    more = vcomp.simulate.fit_collection(scores(6, 5))
    assert "no more topics" not in printed_words(more.summary())

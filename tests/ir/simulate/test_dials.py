"""Unequal variances, deviations from normality and correlations, none to more than there are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from vcomp.exceptions import PlanError
from vcomp.ir.simulate.copula import decompose
from vcomp.ir.simulate.margin import GRID, normal_weights
from vcomp.simulate import fit_collection

DIALS = ("heteroscedasticity", "nonnormality", "correlation")
WEIGHTS = normal_weights(GRID)


def moments(margin):
    """Return mean, variance and skewness of a margin, by its quantiles."""
    mean = WEIGHTS @ margin.quantiles
    deviations = margin.quantiles - mean
    variance = WEIGHTS @ deviations**2
    return mean, variance, WEIGHTS @ deviations**3 / variance**1.5


def test_one_is_the_collection_itself_to_the_last_bit(scores):
    plain = fit_collection(scores).simulate(30, 2, rng=1)
    same = fit_collection(scores, **dict.fromkeys(DIALS, 1)).simulate(30, 2, rng=1)
    np.testing.assert_array_equal(plain.scores, same.scores)


@pytest.mark.parametrize("power", [0, 0.5, 2.0])
def test_logarithms_of_variances_differ_so_many_times_as_much(scores, power):
    made = fit_collection(scores, margins="normal", heteroscedasticity=power)
    variances = np.array([margin.parameters["sd"] ** 2 for margin in made.margins])
    own = decompose(scores).residuals.var(axis=0, ddof=1)
    assert variances.mean() == pytest.approx(own.mean(), rel=1e-12)
    logs, logs_of_own = np.log(variances), np.log(own)
    np.testing.assert_allclose(
        logs - logs.mean(), power * (logs_of_own - logs_of_own.mean()), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("times", [0, 0.5, 2.0, 6.0])
def test_quantiles_differ_so_many_times_as_much_from_normal_ones(scores, times):
    own, made = fit_collection(scores), fit_collection(scores, nonnormality=times)
    np.testing.assert_array_equal(made.topic_margin.quantiles, own.topic_margin.quantiles)
    fine = np.linspace(-6.0, 6.0, 20_001)
    mass = np.exp(-0.5 * fine * fine)
    for margin, kernel in zip(made.margins, own.margins, strict=True):
        mean, variance, _ = moments(kernel)
        assert moments(margin)[0] == pytest.approx(mean, abs=1e-4)
        # Where values were sorted they are interpolated at the points of the table.
        assert moments(margin)[1] == pytest.approx(variance, rel=1e-3)
        assert (np.diff(margin.quantiles) >= 0.0).all()
        # The distribution, of normals z on a fine grid: m + s z + times (F⁻¹(Φ(z)) - m - s z).
        normal = mean + np.sqrt(variance) * fine
        values = normal + times * (np.interp(fine, GRID, kernel.quantiles) - normal)
        centre = mass @ values / mass.sum()
        spread = np.sqrt(mass @ (values - centre) ** 2 / mass.sum())
        values = mean + (values - centre) * np.sqrt(variance) / spread
        for z in (-2.0, -1.0, 0.0, 0.7, 1.5):
            below = mass @ (values <= np.interp(z, GRID, margin.quantiles)) / mass.sum()
            # A step of the table is .012 standard deviations, .0047 in probability at most; up to
            # three steps have one value where values were sorted.
            assert below == pytest.approx(ndtr(z), abs=0.014)


def test_no_deviation_leaves_normal_residuals(scores):
    for margin in fit_collection(scores, nonnormality=0).margins:
        mean, variance, skewness = moments(margin)
        np.testing.assert_allclose(margin.quantiles, mean + np.sqrt(variance) * GRID, atol=1e-6)
        assert skewness == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("margins", ["kernel", "beta"])
def test_correlations_are_so_many_times_as_large(scores, margins):
    def correlations(times):
        factor = fit_collection(scores, margins=margins, correlation=times).factor
        return factor @ factor.T

    own = correlations(1)
    off = ~np.eye(len(own), dtype=bool)
    np.testing.assert_array_equal(correlations(0), np.eye(len(own)))
    np.testing.assert_allclose(correlations(0.5)[off], 0.5 * own[off], rtol=0, atol=1e-12)
    more = correlations(3.0)
    np.testing.assert_allclose(np.diag(more), 1.0, rtol=0, atol=1e-12)
    assert np.abs(more).max() <= 1.0 + 1e-12
    sizes = [np.mean(correlations(times)[off] ** 2) for times in (0.5, 1.0, 1.5, 3.0)]
    assert sizes == sorted(sizes)


def test_true_means_are_those_observed(scores):
    """Beyond the collection and short of it; simulated means err by their standard errors."""
    for dials in ((0.0, 0.3, 0.6), (1.5, 3.0, 2.0)):
        made = fit_collection(scores, **dict(zip(DIALS, dials, strict=True)))
        np.testing.assert_allclose(made.means, scores.mean(axis=0), rtol=0, atol=1e-9)
        drawn = made.simulate(20_000, rng=1)[0]
        error = drawn.std(axis=0) / np.sqrt(len(drawn))
        assert (np.abs(drawn.mean(axis=0) - made.means) < 5 * error).all()


@pytest.mark.slow
def test_what_is_asked_for_is_in_the_summary(scores):
    text = str(fit_collection(scores, heteroscedasticity=2, correlation=0.5).summary())
    assert "× 2" in text
    assert text.count("× 0.5") == 2
    assert "normal residuals" in str(fit_collection(scores, nonnormality=0).summary())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"correlation": -0.1}, r"correlation is a number from 0 .none. .* to 10, not -0\.1"),
        ({"nonnormality": np.nan}, "nonnormality is a number from 0 .* not nan"),
        ({"heteroscedasticity": True}, "heteroscedasticity is a number .* not True"),
        ({"heteroscedasticity": 10.5}, "heteroscedasticity is a number .* not 10.5"),
        (
            {"margins": "normal", "nonnormality": 0},
            "nonnormality=0 changes margins of residuals, margins='kernel', not margins='normal'",
        ),
        (
            {"margins": "beta", "heteroscedasticity": 2},
            "changes margins of residuals, margins='kernel' or 'normal', not margins='beta'",
        ),
    ],
)
def test_what_is_no_dial(scores, options, message):
    with pytest.raises(PlanError, match=message):
        fit_collection(scores, **options)


def test_a_system_without_variance_is_named(scores):
    X = scores.copy()
    X[:, 0] = X[:, 1:].mean(axis=1) + 1e-2 * (X[:, 0] - X[:, 1:].mean(axis=1))
    with pytest.raises(
        PlanError, match=r"next to no variance to system '0'; use at most \d"
    ) as told:
        fit_collection(X, margins="normal", heteroscedasticity=9)
    most = float(str(told.value).rpartition(" ")[2])
    made = fit_collection(X, margins="normal", heteroscedasticity=most)
    assert np.isfinite(made.simulate(5, rng=1).scores).all()

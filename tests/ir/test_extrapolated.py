"""Measures that are estimated from halves of the topics."""

from __future__ import annotations

import numpy as np
import pytest

from vcomp.exceptions import DataError, EstimationError, PlanError, VcompWarning
from vcomp.ir import measures
from vcomp.ir.measures import Extrapolated, MeanMeasure, get
from vcomp.ir.splitting import split_half

NAMES = [name for name in measures.available() if not get(name).has_estimator]
N = [15, 40, 200]


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(5)
    return 0.4 + 0.1 * rng.normal(size=(30, 12)) + np.linspace(0.0, 0.15, 12)


def quiet(name, scores, *arguments, **options):
    """Estimate where some halves have no value."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* has no value in .* splits", VcompWarning)
        return get(name).estimate(scores, *arguments, **options)


def test_which_measures_they_are():
    assert NAMES == ["sens_abs", "sens_rel", "d_rank"]
    assert all(isinstance(get(name), Extrapolated) for name in NAMES)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"d_rank"}))
@pytest.mark.parametrize("model", ["exp1", "exp2", "logit"])
def test_estimates_are_those_of_split_half(name, model, scores):
    study = split_half(scores, name, N, models=model, rng=7)
    estimates = quiet(name, scores, N, model=model, rng=7)
    np.testing.assert_allclose(estimates, study.table["estimate"], rtol=1e-10)
    assert quiet(name, scores, 40, model=model, rng=7) == estimates[1]


def test_by_default_they_are_those_of_the_logit_model(scores):
    table = split_half(scores, "sens_abs", N, models="logit").table
    np.testing.assert_allclose(quiet("sens_abs", scores, N), table["estimate"], 1e-10)
    few = split_half(scores, "sens_abs", N, models="logit", trials=5).table
    estimates = quiet("sens_abs", scores, N, trials=5)
    np.testing.assert_allclose(estimates, few["estimate"], rtol=1e-10)


def test_options_of_the_measure_count(scores):
    lax = quiet(get("sens_abs", rate=0.2), scores, 15)
    assert 0.0 < lax < quiet("sens_abs", scores, 15) < 1.0


def test_more_topics_are_better(scores):
    assert (np.diff(quiet("sens_abs", scores, N)) < 0).all()


def test_halves_without_a_value_are_counted(scores):
    measure = get("sens_abs", rate=0.001)
    study = split_half(scores, measure, N, models="logit")
    missing = int(study.frame["sens_abs"].isna().sum())
    assert 0 < missing < study.frame.shape[0]
    words = f"sens_abs has no value in {missing} of {study.frame.shape[0]} splits, which are left"
    with pytest.warns(VcompWarning, match=words):
        measure.estimate(scores, N)


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("sens_abs", {"model": "probit"}, PlanError, "'exp1', 'exp2' or 'logit', not 'probit'"),
        (
            "sens_abs",
            {"trials": 0},
            EstimationError,
            "trials must be a whole number of at least 1",
        ),
        ("sens_abs", {"rng": "x"}, EstimationError, "rng must be a seed"),
    ],
)
def test_options_are_checked(name, options, error, message, scores):
    with pytest.raises(error, match=message):
        get(name).estimate(scores, 50, **options)


def test_scores_are_checked(scores):
    with pytest.raises(DataError, match=r"'sens_abs' is .* halves of at least 2 .* 3 topics in"):
        get("sens_abs").estimate(scores[:3], 50)
    with pytest.raises(EstimationError, match="sens_abs is not extrapolated"):
        quiet("sens_abs", 100.0 * scores[:4], 50)
    with pytest.raises(DataError, match="scores: 1 of 360 are missing"):
        get("sens_abs").estimate(np.where(scores == scores.max(), np.nan, scores), 50)
    with pytest.raises(PlanError, match="must be positive, not -1"):
        get("sens_abs").estimate(scores, -1)


@pytest.mark.slow
def test_what_cannot_be_extrapolated_is_said(scores):
    with pytest.raises(
        EstimationError, match=r"sens_abs is not .* by logit: .* outside of \[0, 1"
    ):
        quiet("sens_abs", 100.0 * scores, 50)
    with pytest.raises(EstimationError, match="d_rank is not extrapolated by logit"):
        get("d_rank", shrinkage=0.1).estimate(scores, 50)
    flat = np.tile(np.arange(12.0)[:, None], (1, 3))
    with pytest.raises(EstimationError, match="sens_abs has no value in any of 500 splits: even"):
        get("sens_abs").estimate(flat, 50)


class Own(MeanMeasure):
    """A measure of a user, with no estimator."""

    name, symbol = "own", "O"

    def actual_of_means(self, means, true_means):
        return 1.0 - np.abs(means - true_means).max(axis=-1)


class OwnExtrapolated(Extrapolated, Own):
    """The same, extrapolated."""


def test_measures_of_users(scores):
    with pytest.raises(PlanError, match=r"'own' has no estimator: derive it from .*Extrapolated"):
        Own().estimate(scores, 50)
    expected = split_half(scores, Own(), N, models="logit").table["estimate"]
    np.testing.assert_allclose(OwnExtrapolated().estimate(scores, N), expected, rtol=1e-10)

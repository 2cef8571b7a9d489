"""Responses simulated from a fit."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.designs import gridded
from tests.helpers.moments import agree_in_mean
from vcomp.exceptions import EstimationError
from vcomp.inference.resampling import draws as responses


@pytest.fixture(scope="module")
def fitted():
    formula, data = gridded("nested, balanced", 1)
    data["x"] = 10.0 + data["x"]
    data.loc[3, "y"] = np.nan
    data.index = data.index + 100
    with pytest.warns(vcomp.VcompWarning, match="missing"):
        return vcomp.fit(formula.replace("~ ", "~ x + xp + "), data), data


def test_rows_and_columns_are_those_of_the_data(fitted):
    res, data = fitted
    frame = res.simulate(3, rng=1)
    assert frame.shape == (res.nobs, 3)
    assert frame.columns.tolist() == [0, 1, 2]
    assert frame.index.equals(data.index[data["y"].notna()])


def test_a_response_is_the_same_however_many_others_there_are(fitted):
    res, _ = fitted
    np.testing.assert_array_equal(res.simulate(3, rng=1)[[0, 1]], res.simulate(2, rng=1))
    assert not np.array_equal(res.simulate(1, rng=1), res.simulate(1, rng=2))
    a = res.simulate(1, rng=np.random.default_rng(4))
    np.testing.assert_array_equal(a, res.simulate(1, rng=np.random.default_rng(4)))
    np.testing.assert_array_equal(res.simulate(1), res.simulate(1, rng=0))


def test_mean_and_covariance_are_those_of_the_model(fitted):
    res, _ = fitted
    y = res.simulate(4000, rng=5).to_numpy().T
    model, v = res.model, res.vcomp.to_numpy()
    V = v[-1] * np.eye(res.nobs)
    for codes, component in zip(model.statistics.rows.codes, v, strict=False):
        V += component * (codes[:, None] == codes[None, :])
    mean = model.exog @ res.fe_params.to_numpy()
    agree_in_mean(y, mean, np.diagonal(V))
    away = y - mean
    variance = np.outer(np.diagonal(V), np.diagonal(V)) + V**2
    found = away.T @ away / len(y)
    assert (np.abs(found - V) < 5.0 * np.sqrt(variance / len(y))).all()


def test_too_many_are_refused_before_they_are_made(fitted):
    res, _ = fitted
    v, beta = res.vcomp.to_numpy(), res.fe_params.to_numpy()
    with pytest.raises(
        EstimationError, match=r"1,000 responses of 35 rows need .* fewer at a time"
    ):
        responses.simulate_responses(
            res.model.statistics.rows, v, beta, 1000, free_bytes=lambda: 1e5
        )


@pytest.mark.parametrize("n", [0, 1.5, True])
def test_numbers_that_cannot_be_meant(fitted, n):
    with pytest.raises(EstimationError, match="n must be a whole number"):
        fitted[0].simulate(n)


def test_without_a_mean_there_is_no_response(fitted):
    res, _ = fitted
    with pytest.raises(EstimationError, match="fixed effects of this fit are not known"):
        responses.simulate_responses(res.model.statistics.rows, np.ones(5), np.full(3, np.nan), 1)

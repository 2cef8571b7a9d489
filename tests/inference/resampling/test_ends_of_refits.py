"""Where refits by likelihood end: the last step is not evaluated."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.altered_engines import Probing
from tests.helpers.designs import DESIGNS, unbalanced
from vcomp.estimators.likelihood import REML, choose_engine
from vcomp.inference.resampling import refits
from vcomp.inference.resampling.refits import ByLikelihood


@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_they_are_within_a_millionth_of_a_standard_error(name):
    """Of the maximum at 1e-11 standard errors, with the fixed effects that belong to it."""
    model = vcomp.VarianceComponentsModel(*unbalanced(name))
    names, stats = tuple(model.component_names), model.statistics
    v = np.linspace(1.0, 2.0, len(names))
    quick, exact = (
        ByLikelihood(stats, REML(engine="blocked", tol=tol), names, v) for tol in (None, 1e-11)
    )
    rng = np.random.default_rng(3)
    for _ in range(2):
        y = np.sqrt(v[-1]) * rng.normal(size=model.nobs)
        for t, codes in enumerate(model.statistics.rows.codes):
            y = y + np.sqrt(v[t]) * rng.normal(size=model.statistics.rows.sizes[t])[codes]
        drawn = stats.with_response(y)
        found, expected = quick(drawn), exact(drawn)
        assert found.converged
        engine = choose_engine(drawn, "blocked", reml=True)
        unit = np.sqrt(np.diagonal(engine.information(expected.values, "average")))
        assert (np.abs(found.values - expected.values) * unit).max() < 1e-6
        assert found.llf == pytest.approx(expected.llf, abs=1e-10)
        beta, _ = engine.fixed_effects(found.values)
        np.testing.assert_allclose(found.beta, beta, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("probing", [True, False])
@pytest.mark.parametrize("tol", [None, 1e-9])
def test_the_last_step_is_evaluated_where_a_tolerance_is_given_or_values_are_random(
    tol, probing, monkeypatch
):
    model = vcomp.VarianceComponentsModel(*unbalanced("crossed"))
    names, stats = tuple(model.component_names), model.statistics
    seen, maximise = [], refits.maximise
    monkeypatch.setattr(
        refits, "maximise", lambda *a, **k: seen.append(k["unseen"]) or maximise(*a, **k)
    )
    refit = ByLikelihood(stats, REML(engine="blocked", tol=tol), names, np.ones(len(names)))
    if probing:
        monkeypatch.setattr(
            refit, "_engine_of", lambda stats: Probing(stats.cross_products, reml=True)
        )
    refit(stats)
    assert seen == [0.0 if probing or tol else refits._UNSEEN]

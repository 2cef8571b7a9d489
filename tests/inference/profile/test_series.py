"""Profiles by the series of the iterative engine, against those of elimination."""

from __future__ import annotations

import re

import numpy as np
import pytest

import vcomp
from tests.helpers.profile_models import component, engine_of
from tests.helpers.unit_probes import AllUnits
from vcomp.estimators.likelihood.iterative import IterativeLikelihood, SeriesLikelihood
from vcomp.exceptions import EstimationError
from vcomp.inference.profile.constrained import LinearConstraint, RatioConstraint
from vcomp.inference.profile.profile import profile_fixed_effect, profile_quantity

NOT_HELD = np.zeros(3, dtype=bool)


def drawn(sizes=(80, 60), n=2000, sds=(0.7, 0.5)):
    """Return a model of two facets that meet at random."""
    rng = np.random.default_rng(2)
    data = {name: rng.integers(size, size=n) for name, size in zip("ab", sizes, strict=True)}
    data["x"] = rng.normal(size=n)
    data["y"] = data["x"] + rng.normal(size=n)
    for name, size, sd in zip("ab", sizes, sds, strict=True):
        data["y"] = data["y"] + sd * rng.normal(size=size)[data[name]]
    return vcomp.VarianceComponentsModel("y ~ x + (1|a) + (1|b)", data)


def series_of(model, v, held=NOT_HELD, *, reml=True, **options):
    options = {"probes": AllUnits()} | options
    engine = IterativeLikelihood(model.statistics.cross_products, reml=reml, **options)
    return engine.expanded(v, held)


@pytest.fixture(scope="module")
def model():
    return drawn()


QUANTITIES = {
    "a": component(0, 3),
    "b": component(1, 3),
    "residual": component(2, 3),
    "share": RatioConstraint(np.eye(3)[0], np.ones(3)),
    "total": LinearConstraint(np.ones(3)),
}


@pytest.mark.parametrize("reml", [True, False])
@pytest.mark.parametrize("n_levels", [128, 0])
def test_ends_are_those_of_elimination(model, reml, n_levels):
    v = model.fit("reml" if reml else "ml").vcomp.to_numpy()
    near, exact = series_of(model, v, reml=reml, n_levels=n_levels), engine_of(model, reml=reml)
    for name, quantity in QUANTITIES.items():
        found, ends = (profile_quantity(e, v, quantity, points=0) for e in (near, exact))
        error = 0.25 * (ends.high - ends.low)
        assert found.low == pytest.approx(ends.low, abs=0.01 * error), name
        assert found.high == pytest.approx(ends.high, abs=0.01 * error), name


def test_eight_probes_suffice_as_their_error_cancels(model):
    v = model.fit().vcomp.to_numpy()
    near, exact = series_of(model, v, n_levels=0, probes=None), engine_of(model)
    for quantity in QUANTITIES.values():
        found, ends = (profile_quantity(e, v, quantity, points=0) for e in (near, exact))
        error = 0.25 * (ends.high - ends.low)
        np.testing.assert_allclose(
            [found.low, found.high], [ends.low, ends.high], rtol=0.0, atol=0.01 * error
        )


def test_derivatives_are_those_of_the_value(model):
    """By central differences, away from the maximum."""
    v = model.fit().vcomp.to_numpy()
    near = series_of(model, v)
    there = v * [1.1, 0.9, 1.02]
    steps = 1e-5 * np.diag(there)
    slopes = [(near.loglike(there + d) - near.loglike(there - d)) / (2.0 * d.sum()) for d in steps]
    np.testing.assert_allclose(near.derivatives(there).score, slopes, rtol=1e-6)
    second = [
        (near.derivatives(there - d).score - near.derivatives(there + d).score) / (2.0 * d.sum())
        for d in steps
    ]
    np.testing.assert_allclose(near.information(there, "observed"), second, rtol=1e-5)


@pytest.mark.parametrize("value", [0.3, 0.0])
def test_a_held_component_stays(model, value):
    held = np.array([False, True, False])
    v = model.fit(hold={"b": value}).vcomp.to_numpy()
    near, exact = series_of(model, v, held), engine_of(model)
    found, ends = (
        profile_quantity(e, v, component(0, 3), held=held, points=0) for e in (near, exact)
    )
    assert (found.components[:, 1] == value).all()
    assert found.low == pytest.approx(ends.low, rel=1e-3)
    assert found.high == pytest.approx(ends.high, rel=1e-3)


def test_what_is_out_of_reach_is_refused(model):
    v = model.fit().vcomp.to_numpy()
    near = series_of(model, v)
    with pytest.raises(EstimationError, match=r"up to 2 standard errors.*bootstrap"):
        profile_quantity(near, v, component(0, 3), alpha=1e-6)
    advised = model.fit(engine="blocked").profile("a", alpha=1e-6).curves["a"]
    assert advised.low < profile_quantity(near, v, component(0, 3)).low
    with pytest.raises(EstimationError, match="estimated at zero"):
        series_of(model, v * [1.0, 0.0, 1.0])


def test_a_long_profile_is_refused_with_its_time(model):
    v = model.fit().vcomp.to_numpy()
    engine = IterativeLikelihood(model.statistics.cross_products, reml=True)
    with pytest.raises(EstimationError, match=r"take about \S+ seconds") as caught:
        SeriesLikelihood(engine, v, NOT_HELD, patience=0.0)
    seconds = float(re.search(r"about (\S+) seconds", str(caught.value))[1])
    assert seconds == pytest.approx(6.0 * engine.seconds, rel=0.1)


def test_fixed_effects_have_none(model):
    v = model.fit("ml").vcomp.to_numpy()
    with pytest.raises(EstimationError, match="no profile of fixed effects"):
        profile_fixed_effect(series_of(model, v, reml=False), v, np.array([0.0, 1.0]))


def test_a_fit_by_conjugate_gradients_has_profiles():
    """Two facets of so many levels that elimination is not chosen."""
    res = drawn((20_000, 20_000), 200_000).fit(engine="iterative")
    ends = res.profile(["a", "Residual"]).conf_int().to_numpy()
    errors = res.bse_vcomp.to_numpy()[[0, 2]]
    wald = res.vcomp.to_numpy()[[0, 2], None] + 1.96 * errors[:, None] * [-1.0, 1.0]
    np.testing.assert_allclose(ends, wald, rtol=0.0, atol=0.2 * errors.max())

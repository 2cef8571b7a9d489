"""The iterative engine on InstEval against lme4: 73,421 ratings, three crossed terms."""

from __future__ import annotations

import numpy as np

import vcomp
from tests.helpers.reference_frames import by_name, formula_of, frame_of
from vcomp.estimators.likelihood.iterative import IterativeLikelihood
from vcomp.estimators.likelihood.likelihood import REML, estimate_by_likelihood
from vcomp.statistics.cross_products import accumulate


def test_insteval(reference, shared_data):
    stored = reference("lme4_insteval_service")
    expected = stored["values"]["REML"]
    model = vcomp.VarianceComponentsModel(formula_of(stored), frame_of(stored, shared_data))
    engine = IterativeLikelihood(accumulate(model.statistics.rows), reml=True, n_probes=32)
    found = estimate_by_likelihood(engine, model.component_names, REML(tol=1e-8))
    assert found.converged
    components = by_name(expected["vc"], list(found.names))
    errors = np.array([found.monte_carlo[component] for component in found.names])
    assert (np.abs(found.values - components) <= 4.0 * errors).all()
    np.testing.assert_allclose(found.values, components, rtol=1e-3)
    assert abs(found.llf - expected["logLik"]) <= 4.0 * found.llf_error
    assert found.llf_error < 0.1
    # Slopes are the same however the response is centred.
    slopes = list(expected["fixef"].values())[1:]
    np.testing.assert_allclose(found.beta[1:], slopes, rtol=1e-4)
    se = list(expected["se_fixef"].values())[1:]
    np.testing.assert_allclose(np.sqrt(np.diagonal(found.cov_beta))[1:], se, rtol=1e-4)

"""REML and ML against lme4, refined to about 1e-10 by Newton steps on the analytic likelihood.

The values are of R and of independent code (tests/reference/values/README.md); dataEP05A2_1 has a
component so near zero that its last digits there are uncertain at 1.4e-10.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import vcomp
from tests.helpers.reference_frames import LME4, by_name, formula_of, frame_of

RTOL = 1e-9
_cached_model = cache(lambda text, key: vcomp.VarianceComponentsModel(text, _FRAMES[key]))
_cached_fit = cache(lambda text, key, method: _cached_model(text, key).fit(method))
_FRAMES: dict[str, object] = {}


CASES = [*((name, "REML") for name in LME4), *((name, "ML") for name in list(LME4)[::2])]
"""All data sets by REML, every other one by ML as well."""


@pytest.fixture(params=CASES, ids="-".join)
def case(request, reference, shared_data):
    name, method = request.param
    stored = reference(f"lme4_{name}")
    if name not in _FRAMES:
        _FRAMES[name] = frame_of(stored, shared_data)
    res = _cached_fit(formula_of(stored), name, method.lower())
    return stored["values"][method], res, stored["values"]["n"]


def test_components_fixed_effects_and_likelihood(case):
    expected, res, n = case
    components = by_name(expected["vc"], list(res.vcomp.index))
    # A component that the reference has at zero must be exactly there.
    np.testing.assert_allclose(res.vcomp, components, rtol=RTOL, atol=0)
    assert list(res.vcomp.index[res.vcomp == 0.0]) == expected["zero_components"]
    assert res.llf == pytest.approx(expected["logLik"], rel=1e-12)
    assert res.aic == pytest.approx(expected["AIC"], rel=1e-12)
    assert res.bic == pytest.approx(expected["BIC"], rel=1e-12)
    assert res.nobs == n
    assert res.converged
    np.testing.assert_allclose(res.fe_params, list(expected["fixef"].values()), rtol=RTOL)
    np.testing.assert_allclose(res.bse_fe, list(expected["se_fixef"].values()), rtol=RTOL)


def test_standard_errors_of_components(case):
    expected, res, _ = case
    for kind in ("observed", "expected"):
        stored = expected.get(f"se_vc_{kind}")
        if stored is None:
            continue
        variances = np.diagonal(res.cov_vcomp(kind))
        # Components at zero have no standard error, here or there.
        se = by_name({n: stored.get(n) for n in res.vcomp.index}, list(res.vcomp.index))
        np.testing.assert_allclose(np.sqrt(variances), se, rtol=1e-8)
    np.testing.assert_allclose(res.bse_vcomp, np.sqrt(np.diagonal(res.cov_vcomp("observed"))))


def test_certificate_shows_a_maximum(case):
    _, res, _ = case
    shown = res.certificate
    # Scores are sums of squares over all rows: their rounding error grows with the sample.
    assert shown.kkt_residual < 1e-11 * res.nobs
    assert shown.newton_decrement < 1e-9
    assert min(shown.information_eigenvalues) > 0.0
    assert all(score < 0.0 for score in shown.bound_scores.values())
    assert set(shown.free) | set(shown.bounded) == set(res.vcomp.index)


def test_predicted_effects(case):
    expected, res, _ = case
    if "blup" not in expected:
        return
    effects = res.random_effects
    for term, values in expected["blup"].items():
        frame = effects[term].copy()
        frame.index = _as_lme4_writes(frame.index)
        at = list(values)
        assert set(at) == set(frame.index)
        scale = np.abs(list(values.values())).max()
        stored = np.array(list(values.values()))
        # Effects near zero have no digits of their own: compare with the largest of the term.
        np.testing.assert_allclose(frame.loc[at, "estimate"], stored, atol=1e-9 * scale, rtol=1e-9)
        for ours, theirs in (("conditional_se", "condvar_given_beta"), ("se", "pev")):
            if expected.get(theirs, {}).get(term) is None:
                continue
            variances = by_name(expected[theirs][term], at)
            np.testing.assert_allclose(frame.loc[at, ours] ** 2, variances, rtol=1e-8, atol=1e-16)


def _as_lme4_writes(index):
    return [":".join(map(str, k)) if isinstance(k, tuple) else str(k) for k in index]


@pytest.mark.parametrize("method", ["REML", "ML"])
def test_uncorrelated_slopes(method, reference, shared_data):
    stored = reference("slopes_sleepstudy")
    expected = stored["values"][method]
    res = vcomp.fit(stored["formula"], frame_of(stored, shared_data), method=method.lower())
    theirs = {"Subject": "Subject", "Subject[Days]": "Subject.Days", "Residual": "Residual"}
    assert list(res.vcomp.index) == list(theirs)
    assert res.llf == pytest.approx(expected["logLik"], rel=1e-12)
    assert res.aic == pytest.approx(expected["AIC"], rel=1e-12)
    for ours, name in theirs.items():
        assert res.vcomp[ours] == pytest.approx(expected["vc"][name], rel=1e-8)
        for kind in ("observed", "expected"):
            se = np.sqrt(res.cov_vcomp(kind).loc[ours, ours])
            assert se == pytest.approx(expected[f"se_vc_{kind}"][name], rel=1e-7)
    np.testing.assert_allclose(res.fe_params, list(expected["fixef"].values()), rtol=1e-9)
    np.testing.assert_allclose(res.bse_fe, list(expected["se_fixef"].values()), rtol=1e-8)
    for ours, name in (("Subject", "Subject"), ("Subject[Days]", "Subject.Days")):
        frame = res.random_effects[ours]
        frame.index = frame.index.astype(str)
        for column, values in (
            ("estimate", "blup"),
            ("se", "pev"),
            ("conditional_se", "condvar_given_beta"),
        ):
            stored_values = expected.get(values, {}).get(name)
            if stored_values is None:
                continue
            found = frame.loc[list(stored_values), column]
            wanted = np.array(list(stored_values.values()))
            if values != "blup":
                wanted = np.sqrt(wanted)
            np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-8 * np.abs(wanted).max())

"""Profile intervals against those of an independent R program, exact to about 1e-12.

The reference maximised the likelihood on each surface by Newton steps and found the ends by root
finding (tests/reference/values/README.md); ends at zero are zero there.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.reference_frames import formula_of, frame_of

NAMES = [
    "Glucose", "adhoc3", "brennan_synthetic1", "brennan_synthetic1_unbal", "brennan_synthetic2",
    "brennan_synthetic2_unbal", "brennan_synthetic4", "dataEP05A2_1", "dataEP05A2_1_unbal",
    "dataEP05A2_2", "dataEP05A2_2_unbal", "dyestuff", "dyestuff2", "orthodont_ri", "pastes",
    "penicillin", "penicillin_unbal", "sleepstudy_ri",
]  # fmt: skip
LEVELS = {"95": 0.05, "90": 0.1}
RTOL = 1e-10
_FRAMES: dict[str, object] = {}
_cached_model = cache(lambda text, key: vcomp.VarianceComponentsModel(text, _FRAMES[key]))
_cached_fit = cache(lambda text, key, method: _cached_model(text, key).fit(method))


@pytest.fixture
def fitted(reference, shared_data):
    def fit(name, method):
        stored = reference(f"lme4_{name}")
        if name not in _FRAMES:
            _FRAMES[name] = frame_of(stored, shared_data)
        res = _cached_fit(formula_of(stored), name, method.lower())
        return stored["values"][method]["profile_ci_exact"], res

    return fit


@pytest.mark.parametrize(("name", "method"), alternately(NAMES, "REML", "ML"))
def test_intervals_of_components(name, method, fitted):
    expected, res = fitted(name, method)
    profile = res.profile()
    levels = [level for level in LEVELS if f"variance_{level}" in expected]
    assert "95" in levels
    for level in levels:
        found = profile.conf_int(LEVELS[level])
        assert list(found.index) == list(res.vcomp.index)
        ends = np.array([expected[f"variance_{level}"][name] for name in found.index])
        # An end at zero must be exactly there.
        np.testing.assert_allclose(found, ends, rtol=RTOL, atol=0.0)


@pytest.mark.parametrize(
    ("name", "level"), alternately([name for name in NAMES if name != "adhoc3"][::2], *LEVELS)
)
def test_intervals_of_fixed_effects(name, level, fitted):
    expected, res = fitted(name, "ML")
    found = res.profile(list(res.fe_params.index), alpha=LEVELS[level]).conf_int()
    ends = np.array(list(expected[f"fixef_{level}"].values()))
    np.testing.assert_allclose(found, ends, rtol=RTOL)

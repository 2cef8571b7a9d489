"""How fast the maximum is reached on real data: quadratically, with the observed information."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.reference_frames import by_name, formula_of, frame_of

# Sets with an interior maximum, of one to three terms, crossed and nested, balanced and not.
INTERIOR = [
    "dyestuff", "penicillin_unbal", "pastes", "orthodont_ri", "sleepstudy_ri", "adhoc3_unbal",
    "insteval", "CA19_9_P1", "dataEP05A2_1_unbal", "novelty_small_missing",
]  # fmt: skip


@pytest.mark.parametrize(("name", "method"), alternately(INTERIOR, "REML", "ML"))
def test_decrements_are_squared(name, method, reference, shared_data):
    """From three times the components and a third of them, in turn."""
    stored = reference(f"lme4_{name}")
    expected = stored["values"][method]
    model = vcomp.VarianceComponentsModel(formula_of(stored), frame_of(stored, shared_data))
    answer = by_name(expected["vc"], list(model.component_names))
    factors = np.where(np.arange(answer.size) % 2 == 0, 3.0, 1 / 3)
    start = np.maximum(answer, 1e-3 * answer.sum()) * factors
    res = model.fit(method.lower(), start=start, tol=1e-12)
    np.testing.assert_allclose(res.vcomp, answer, rtol=1e-8)
    log = res.iterations
    decrements = log["newton_decrement"].to_numpy()
    near = [(a, b) for a, b in pairwise(decrements) if 1e-5 < a < 1e-2]
    assert near
    # Rounding of a score grows with the sample; the factor is the relative third derivative.
    assert all(b < 10.0 * a**2 + 1e-13 * res.nobs for a, b in near)
    assert set(log["step"].tail(2)) <= {"Newton", "AI"}
    assert len(log) <= 20
    assert log["llf"].iloc[-1] == pytest.approx(expected["logLik"], rel=1e-12)

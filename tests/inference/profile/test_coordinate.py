"""The scale of a profile: its unit, its inverse and its slope."""

from __future__ import annotations

import numpy as np
import pytest

from vcomp.inference.profile.constrained import Range
from vcomp.inference.profile.profile import coordinate_of

ATTAINED = np.array([True])
SPANS = {
    "real": (Range(-np.inf, np.inf), 1.5),
    "above": (Range(2.0, np.inf), 5.0),
    "above, attained": (Range(2.0, np.inf, ATTAINED), 5.0),
    "at the low end": (Range(2.0, np.inf, ATTAINED), 2.0),
    "below": (Range(-np.inf, 2.0), -1.0),
    "below, attained": (Range(-np.inf, 2.0, None, ATTAINED), 2.0),
    "above, at its end": (Range(2.0, np.inf), 2.0),
    "below, at its end": (Range(-np.inf, 2.0), 2.0),
    "between": (Range(-1.0, 3.0), 0.5),
    "between, attained": (Range(-1.0, 3.0, ATTAINED, ATTAINED), -1.0),
}


@pytest.mark.parametrize("name", SPANS)
def test_a_scale_and_its_inverse(name):
    """t(θ(t)) = t, θ' is its slope, and odds are 1 (t = 0 but for κ) at the centre."""
    span, estimate = SPANS[name]
    at = coordinate_of(span, estimate, 0.4, 0.6)
    soft_low, soft_high = at.soft_low, at.soft_high
    assert (soft_low > 0.0) == (span.zero_low is not None)
    assert (soft_high > 0.0) == (span.zero_high is not None)
    # An end that is attained has a finite t, from which the estimate is away.
    assert span.low < at.centre < span.high
    centre = 0.0
    if np.isfinite(span.low) or np.isfinite(span.high):
        centre = np.log((1.0 + soft_low) / (1.0 + soft_high))
    assert at.t_of(at.centre) == pytest.approx(centre, abs=1e-13)
    for t in np.linspace(-2.0, 2.0, 9):
        theta, slope = at.theta_of(t)
        if not span.low < theta < span.high:
            continue
        assert at.t_of(theta) == pytest.approx(t, abs=1e-9)
        ahead, behind = at.theta_of(t + 1e-5)[0], at.theta_of(t - 1e-5)[0]
        assert slope == pytest.approx((ahead - behind) / 2e-5, rel=1e-6)
    for end, soft, t in ((span.low, soft_low, -1.0), (span.high, soft_high, 1.0)):
        if np.isfinite(end):
            assert at.t_of(end) == (pytest.approx(t * -np.log(soft)) if soft else t * np.inf)


def test_units():
    """The distance of the estimate from the end; a standard error where there is no end."""
    at = coordinate_of(Range(-np.inf, np.inf), 7.0, 0.4, 0.6)
    assert (at.centre, at.unit) == (7.0, 0.6)
    assert coordinate_of(Range(2.0, np.inf), 5.0, 0.4, 0.6).unit == 3.0
    assert coordinate_of(Range(-np.inf, 2.0), -1.0, 0.4, 0.6).unit == 3.0
    assert coordinate_of(Range(-1.0, 3.0), 0.0, 0.4, 0.6).unit == 3.0
    low = coordinate_of(Range(2.0, np.inf, ATTAINED), 2.1, 0.4, 0.6)
    assert low.centre == pytest.approx(2.3)
    high = coordinate_of(Range(-np.inf, 2.0, None, ATTAINED), 2.0, 0.4, 0.6)
    assert high.centre == pytest.approx(1.8)
    low = coordinate_of(Range(2.0, np.inf), 2.0, 0.4, 0.6)
    assert (low.centre, low.unit) == pytest.approx((2.3, 0.3))
    high = coordinate_of(Range(-np.inf, 2.0), 2.0, 0.4, 0.6)
    assert (high.centre, high.unit) == pytest.approx((1.8, 0.2))
    near = coordinate_of(Range(0.0, 0.2, ATTAINED, ATTAINED), 0.0, 0.4, 0.6)
    assert near.centre == pytest.approx(0.1)

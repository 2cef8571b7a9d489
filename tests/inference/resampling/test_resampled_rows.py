"""Resamples of levels keep what their rows have: weights, slopes and residual groups."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.inference.resampling.test_levels_left_out import _weighted
from vcomp.numerics import stream

CROSSED = "y ~ x + (1|a) + (1|b)"


def _drawn(data, facet, seed, number):
    """Return the rows of a resample of a facet, whose levels get new names."""
    levels = np.unique(data[facet])
    chosen = stream(seed, number).integers(np.zeros(levels.size, int), levels.size)
    parts = [data[data[facet] == levels[c]].assign(**{facet: k}) for k, c in enumerate(chosen)]
    return pd.concat(parts)


@pytest.mark.parametrize(
    ("formula", "options"),
    [
        (CROSSED, {"weights": "w"}),
        (CROSSED, {"known_variance": "v"}),
        (CROSSED, {"residual": "half", "weights": "w"}),
        ("y ~ x + (x|b)", {"method": "ml"}),
    ],
    ids=str,
)
def test_resamples_are_fits_of_their_rows(formula, options):
    data = _weighted()
    res = vcomp.fit(formula, data, **options)
    found = res.resample("b", 3, rng=5, adjust=False)
    for b, values in zip(found.numbers, found.values, strict=True):
        other = vcomp.fit(formula, _drawn(data, "b", 5, int(b)), **options).vcomp
        np.testing.assert_allclose(values, other, rtol=1e-5, atol=1e-7)
    assert res.conf_int(interval=found).loc["var(b)"].notna().all()


def test_the_adjustment_of_equal_weights_is_that_of_scores():
    data = _weighted()
    plain = vcomp.fit(CROSSED, data).resample("b", 8, rng=5)
    found = vcomp.fit(CROSSED, data.assign(w=4.0), weights="w").resample("b", 8, rng=5)
    np.testing.assert_allclose(
        found.adjusted / [1.0, 1.0, 4.0], plain.adjusted, rtol=1e-5, atol=1e-7
    )
    assert any("equal weights" in note for note in found.notes)
    assert not any("equal weights" in note for note in plain.notes)


def test_what_resampling_does_not_adjust_or_draw_is_named():
    data = _weighted()
    held = vcomp.fit(CROSSED, data, known_variance="v")
    with pytest.raises(vcomp.EstimationError, match=r"Residual is held.*use adjust=False"):
        held.resample("b", 5)
    for formula, options in (("y ~ x + (x|b)", {}), (CROSSED, {"residual": "half"})):
        res = vcomp.fit(formula, data, **options)
        with pytest.raises(vcomp.EstimationError, match=r"the adjustment.*use adjust=False"):
            res.resample("b", 5)
    owner = vcomp.fit("y ~ x + (1|a)", data, residual="a")
    with pytest.raises(vcomp.EstimationError, match=r"residual='a'.*another facet") as info:
        owner.resample("a", 5, adjust=False)
    assert info.value.column == "a"

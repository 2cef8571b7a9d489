"""Fits by orthogonal strata; their forms are compared in test_conformance.py."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.designs import gridded


def test_no_grid_needs_another_engine():
    formula, data = gridded("per document")
    with pytest.raises(vcomp.EstimationError, match="engine='strata' needs a facet that is"):
        vcomp.fit(formula, data.iloc[1:], engine="strata")


@pytest.mark.parametrize("name", ["per document", "deep", "crossed", "not nested"])
def test_far_covariates_lose_no_digits(name):
    """Columns are centred: adding 1e6 to a covariate moves the intercept and nothing else."""
    formula, data = gridded(name)
    text = formula.replace("~", "~ xp +")
    near = vcomp.fit(text, data, engine="strata")
    far = vcomp.fit(text, data.assign(xp=data["xp"] + 1e6), engine="strata")
    assert far.llf == pytest.approx(near.llf, rel=1e-9)
    np.testing.assert_allclose(far.fe_params["xp"], near.fe_params["xp"], rtol=1e-8)
    np.testing.assert_allclose(far.vcomp, near.vcomp, rtol=1e-7)

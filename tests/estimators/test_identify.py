"""Columns of the fixed part that are constant but for rounding."""

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.exceptions import DesignError


@pytest.mark.parametrize("value", [1e6 / 3.0, 0.1, -7e-5])
def test_a_column_that_varies_by_rounding_is_constant(value):
    """Its centred squares are positive, and no other column explains them."""
    rng = np.random.default_rng(0)
    x = value + np.repeat([0.0, 1.0, 0.0], 7) * np.spacing(value)
    data = pd.DataFrame({"y": rng.normal(size=21), "a": np.tile(np.arange(7), 3), "x": x})
    assert data["x"].nunique() == 2
    with pytest.raises(DesignError, match=r"column 'x' is a linear combination of Intercept"):
        vcomp.fit("y ~ x + (1|a)", data)
    # A million times as much is a covariate.
    data["x"] = value + np.repeat([0.0, 1.0, 0.0], 7) * 1e6 * np.spacing(value)
    assert vcomp.fit("y ~ x + (1|a)", data).fe_params.shape == (2,)

"""Closed forms of scores that do not vary within groups: the residual is rounding error."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pandas as pd
import pytest

import vcomp

METHODS = ["anova", "type1", "henderson3", "minque"]


def groups(seed, noise=0.0):
    """Return an unbalanced one-way table, the scores of a group equal up to the noise."""
    rng = np.random.default_rng(seed)
    a = np.repeat(np.arange(4), rng.integers(1, 4, 4))
    y = rng.integers(1, 20, 4)[a] / 3.0
    return pd.DataFrame({"a": a, "y": y + noise * rng.normal(size=a.size)})


def consumers(res, data):
    """Yield what solves for effects at the components."""
    yield res.universe_scores
    yield lambda: res.get_prediction(data)
    yield lambda: res.predict(data)
    yield lambda: res.random_effects
    yield lambda: res.compare_levels("a")
    yield lambda: res.fixed_effects(cov_type="robust")


@pytest.mark.parametrize("method", METHODS)
def test_a_residual_that_is_rounding_error_is_zero(method):
    """Of either sign it would be; the first table is that of a report."""
    report = pd.DataFrame({"a": [0, 0, 0, 1, 1], "y": [12.0, 12.0, 12.0, 13.0, 13.0]})
    # MINQUE's residual has a part of the variance between groups, if their sizes differ more.
    others = [] if method == "minque" else [groups(seed) for seed in range(6)]
    for data in (report, *others):
        res = vcomp.fit("y ~ (1|a)", data, method=method)
        assert res.vcomp["Residual"] == 0.0
        assert "Residual" not in res.status.partition("Fixed")[0]
        for call in consumers(res, data):
            with pytest.raises(vcomp.EstimationError, match="residual"):
                call()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("noise", [1e-9, 1e-8, 1e-7, 1e-6])
def test_a_small_residual_gives_effects_or_a_reason(method, noise):
    """Which of both depends on the digits that are left; no other error occurs."""
    for seed in range(2):
        data = groups(seed, noise)
        res = vcomp.fit("y ~ (1|a)", data, method=method)
        means = data.groupby("a")["y"].transform("mean")
        for call in consumers(res, data):
            with suppress(vcomp.EstimationError):
                found = call()
                if isinstance(found, pd.Series) and res.vcomp["Residual"] < 1e-9:
                    np.testing.assert_allclose(found, means, rtol=1e-5)

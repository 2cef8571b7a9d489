"""Refits that would take long one by one are refused with their time, and with what to pass."""

import re

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.inference.resampling.parametric import parametric_bootstrap


@pytest.fixture(scope="module")
def fitted():
    """Return a fit of a facet with six levels, whose component varies too much for a surface."""
    rng = np.random.default_rng(1)
    codes = {name: rng.integers(size, size=900) for name, size in (("a", 80), ("b", 6))}
    y = rng.normal(size=80)[codes["a"]] + rng.normal(size=6)[codes["b"]] + rng.normal(size=900)
    return vcomp.fit("y ~ (1|a) + (1|b)", pd.DataFrame(codes | {"y": y}), engine="iterative")


def test_a_bootstrap_of_hours_is_refused_with_its_time(fitted):
    with pytest.raises(vcomp.EstimationError, match="one by one, take about") as caught:
        fitted.bootstrap(10_000_000)
    few, limit = re.search(
        r"at most n=(\d+), or pass time_limit=(\d+)", str(caught.value)
    ).groups()
    assert int(limit) > 600
    assert int(few) < 10_000_000
    with pytest.warns(vcomp.VcompWarning, match="the time limit"):
        found = fitted.bootstrap(10_000_000, time_limit=0.2)
    assert 0 < len(found) < 10_000_000


def test_as_many_as_the_refusal_names_are_made(fitted):
    fit = fitted._row_access.generating()
    with pytest.raises(vcomp.EstimationError, match="request at most") as caught:
        parametric_bootstrap(fit, 99, patience=0.1)
    few = int(re.search(r"n=(\d+),", str(caught.value))[1])
    found, limited = (
        parametric_bootstrap(fit, few, **{name: 0.1 if name == "patience" else 1e3})
        for name in ("patience", "time_limit")
    )
    np.testing.assert_array_equal(found.values, limited.values)

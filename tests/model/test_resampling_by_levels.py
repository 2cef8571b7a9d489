"""Levels drawn again and left out, as a user asks for them."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.designs import balanced, unbalanced
from vcomp.inference.quantities import Quantities
from vcomp.inference.resampling.delete_one import Jackknife
from vcomp.inference.resampling.replicates import Replicates


@pytest.fixture(scope="module")
def res():
    return vcomp.fit(*balanced("crossed"), method="anova")


def test_a_bootstrap_over_a_facet(res):
    found = res.resample("a", 100, rng=1)
    assert isinstance(found, Replicates)
    assert found.values.shape == found.adjusted.shape == (100, 3)
    n = 7
    np.testing.assert_allclose(found.adjusted[:, 0], found.values[:, 0] * n / (n - 1), rtol=1e-12)
    other = found.values[:, 1] - found.values[:, 2] / (n - 1)
    np.testing.assert_allclose(found.adjusted[:, 1], other, rtol=1e-9)


def test_the_method_and_its_options_are_those_of_the_fit():
    formula, data = balanced("crossed")
    res = vcomp.fit(formula, data, method="reml", hold={"a": 0.5})
    with pytest.raises(vcomp.VcompError, match="cannot be adjusted if a is held"):
        res.resample("b", 10)
    found = res.resample(["a", "b"], 10, adjust=False)
    assert (found.values[:, 0] == 0.5).all()
    assert np.isfinite(found.llf).all()
    assert (res.jackknife("b").values[:, 0] == 0.5).all()


def test_intervals_of_components_from_both(res):
    left_out = res.jackknife("a")
    assert isinstance(left_out, Jackknife)
    ends = res.conf_int(0.1, left_out)
    one = left_out.of(lambda v: v[:, 0], alpha=0.1, transform="log")
    assert tuple(ends.loc["var(a)"]) == pytest.approx((one.low, one.high), rel=1e-12)
    drawn = res.resample("a", 100, rng=3)
    ends = res.conf_int(0.1, drawn).loc["var(a)"]
    assert tuple(ends) == pytest.approx(tuple(np.quantile(drawn.adjusted[:, 0], [0.05, 0.95])))


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
def test_what_is_approximate_reaches_the_intervals():
    res = vcomp.fit(*unbalanced("crossed"), method="anova")
    drawn = res.resample("a", 50)
    source = res.interval_source(drawn)
    notes = source.limits(Quantities("linear", np.eye(3)), 0.1).notes
    assert any("uses mean sizes here" in note for note in notes)


def test_a_result_without_rows_says_so(res):
    loaded = type(res).from_json(res.to_json())
    for ask in (lambda: loaded.resample("a"), lambda: loaded.jackknife("a")):
        with pytest.raises(vcomp.VcompError, match="loaded without its rows"):
            ask()

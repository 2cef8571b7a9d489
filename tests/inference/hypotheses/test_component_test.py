"""Which test of a component is chosen, what it says, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import vcomp
from tests.helpers.designs import UNBALANCED, balanced, gridded, unbalanced
from tests.helpers.examples import examples
from vcomp.inference.hypotheses.component import AutoLimits, Simulation, component_test
from vcomp.model.hypothesis_tests import component_fit


def chosen(res, term, n=1000, **limits):
    """Return the test of a component that is chosen with some limits."""
    fit = component_fit(res._record, res._rows)
    return component_test(fit, term, "auto", Simulation(n), AutoLimits(**limits))


def loaded(res):
    return vcomp.VarianceComponentsResults.from_json(res.to_json())


@pytest.fixture(scope="module")
def crossed():
    return vcomp.fit(*balanced("crossed"))


@pytest.fixture(scope="module")
def documents():
    """Documents of unequal numbers in topics: no exact test for topics."""
    return vcomp.fit(*gridded("single cells", seed=3))


def test_an_exact_test_is_chosen_where_there_is_one(crossed):
    found = crossed.test("a")
    assert found.exact
    assert (found.term, found.symbol, found.test) == ("a", "F", "exact F-test")
    text = str(found).splitlines()
    assert re.fullmatch(r"a: F = \S+, p = \S+; exact F-test, F\(6, 48\)\.", text[0])
    assert text[-1] == "Chosen because it is exact."


def test_else_a_simulated_one_where_that_is_cheap(documents):
    found = documents.test("i", n=40, rng=3)
    assert found.test == "simulated restricted likelihood ratio test"
    assert found.distribution == "40 data sets drawn at the fit without it"
    assert "the design gives no exact F-test, and simulation is cheap" in found.notes[-1]
    assert found.p_value * 41.0 == pytest.approx(round(found.p_value * 41.0))
    assert "(Monte Carlo)" in str(found) or found.p_error == 0.0
    assert found == documents.test("i", n=40, rng=3)


def test_else_the_limiting_mixture():
    res = vcomp.fit(*unbalanced("crossed, replicated", seed=2))
    with pytest.raises(vcomp.EstimationError):
        res.test("a", "f")
    found = chosen(res, "a", cheap_rows=10)
    assert found.test == "restricted likelihood ratio test"
    assert "simulation would take long here" in found.notes[-1]
    effects = sum(res._row_access.model.statistics.sizes)
    for limits, cheap in (
        ({"cheap_rows": int(res.nobs)}, True), ({"cheap_rows": int(res.nobs) - 1}, False),
        ({"cheap_effects": effects}, True), ({"cheap_effects": effects - 1}, False),
    ):  # fmt: skip
        assert ("is cheap here" in chosen(res, "a", n=20, **limits).notes[-1]) == cheap
    expected = 0.5 * stats.chi2.sf(found.statistic, 1) if found.statistic else 1.0
    assert found.p_value == pytest.approx(expected)


def test_many_effects_are_not_adjusted_unasked():
    res = vcomp.fit(*unbalanced("crossed", seed=2))
    found = chosen(res, "a", n=20, few_effects=3)
    assert found.test.startswith("simulated")
    assert "too many effects" in found.notes[-1]
    assert res.test("a", "f").exact


def test_closed_forms_have_f_tests_only():
    res = vcomp.fit(*balanced("three facets", seed=1), method="anova")
    found = res.test("a")
    assert found.test == "F-test with synthesised mean squares"
    assert not found.exact
    assert res.test("a:b").exact
    with pytest.raises(vcomp.EstimationError, match="'anova' has none; fit by method='reml'"):
        res.test("a", "lrt")
    formula, data = unbalanced("crossed, replicated", seed=2)
    other = vcomp.fit(formula, data, method="henderson3")
    with pytest.raises(vcomp.EstimationError, match="fit by method='reml' and test by likel"):
        other.test("a")
    assert other.test("a:b").exact


def test_negative_estimates_have_tests():
    data = pd.DataFrame({"g": list("aabbccdd"), "y": [1.0, 3.0, 1.1, 2.8, 0.9, 3.2, 1.2, 3.1]})
    found = vcomp.fit("y ~ (1|g)", data, method="anova").test("g")
    assert found.statistic < 1.0
    assert found.estimate < 0.0
    assert found.p_value > 0.5


def test_results_without_rows(crossed, documents):
    here, there = crossed.test("b"), loaded(crossed).test("b")
    assert there.statistic == pytest.approx(here.statistic, rel=1e-12)
    assert there.exact
    with pytest.raises(vcomp.DataError, match="without its rows, and for unbalanced data an F-"):
        loaded(documents).test("i")
    for method in ("lrt", "simulated", "score"):
        with pytest.raises(vcomp.DataError, match="fits the model without 'a'; fit the model ag"):
            loaded(crossed).test("a", method)


def test_terms_that_are_not_orthogonal_have_no_classical_table():
    """Without c, what a:c and b:c share is in no term: their mean squares depend on each other."""
    _, data = balanced("three facets", seed=1)
    res = vcomp.fit("y ~ (1|a:c) + (1|b:c)", data)
    assert res.design.balanced
    with pytest.raises(vcomp.DataError, match="an F-test of 'a:c' needs them"):
        loaded(res).test("a:c", "f")
    # With the rows each is adjusted for the other.
    assert res.test("a:c", "f").exact


@pytest.mark.parametrize(
    ("term", "method", "message"),
    [
        ("Residual", "auto", "the residual cannot be tested: .*that can be tested are a, b"),
        ("A", "auto", r"no component 'A' to test \(did you mean 'a'\?\); components are a, b"),
        ("topic", "auto", "there is no component 'topic' to test; components are a, b"),
        (3, "f", "there is no component 3 to test"),
        ("a", "wald", "test='wald' is not known; tests of a component are 'auto', 'f', 'robust'"),
        ("a", None, "test=None is not known"),
    ],
)
def test_what_cannot_be_tested(crossed, term, method, message):
    with pytest.raises(vcomp.EstimationError, match=message):
        crossed.test(term, method)


@pytest.mark.parametrize("options", [{"n": 0}, {"n": 2.5}, {"n": True}, {"workers": 0}])
def test_numbers_that_cannot_be_meant(crossed, options):
    (name,) = options
    with pytest.raises(
        vcomp.EstimationError, match=f"{name} must be a whole number of at least 1"
    ):
        crossed.test("a", "simulated", **options)


def test_likelihoods_that_are_not_at_their_maximum():
    formula, data = unbalanced("crossed", seed=2)
    with pytest.warns(vcomp.VcompWarning, match="Not converged"):
        res = vcomp.fit(formula, data, max_iter=1)
    with pytest.raises(vcomp.EstimationError, match="the fit with 'a' did not converge"):
        res.test("a", "lrt")
    assert res.test("a", "f").exact


def test_size_under_the_hypothesis():
    """The p-values of an exact test are uniform, whatever the other components are."""
    rng = np.random.default_rng(0)
    _, data = unbalanced("crossed", seed=1)
    model = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b)", data)
    p = []
    for _ in range(25):
        y = rng.normal(size=len(data)) + 3.0 * rng.normal(size=7)[data["a"]]
        res = vcomp.fit("y ~ (1|a) + (1|b)", data.assign(y=y), method="henderson3")
        p.append(res.test("b", "f").p_value)
    assert model.nobs == len(data)
    assert stats.kstest(p, "uniform").pvalue > 0.001


@settings(max_examples=examples(8), deadline=None)
@given(UNBALANCED, st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
def test_scale_origin_and_order_do_not_matter(design, scale, origin):
    name, seed = design
    formula, data = unbalanced(name, seed)
    res = vcomp.fit(formula, data)
    moved = data.assign(y=scale * data["y"] + origin).sample(frac=1.0, random_state=seed)
    other = vcomp.fit(formula, moved)
    term = res.vcomp.index[0]
    for method in ("f", "lrt", "score"):
        try:
            here = res.test(term, method)
        except vcomp.EstimationError as error:
            with pytest.raises(vcomp.EstimationError, match=re.escape(str(error)[:20])):
                other.test(term, method)
            continue
        there = other.test(term, method)
        # An origin a million standard deviations away takes six digits from every difference.
        assert there.statistic == pytest.approx(here.statistic, rel=1e-6, abs=1e-6)
        assert there.p_value == pytest.approx(here.p_value, rel=1e-4, abs=1e-6)
        assert there.exact == here.exact

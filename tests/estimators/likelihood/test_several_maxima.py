"""Likelihoods with several maxima, and without one: what is reported, and how it is called."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import vcomp
from tests.fuzz.oracle import Dense
from tests.fuzz.small_tables import case
from tests.helpers.altered_engines import Probing
from tests.helpers.designs import unbalanced
from vcomp.estimators.likelihood import Place, maximise
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.registry import get_estimator
from vcomp.inference.profile import LinearConstraint, profile_quantity
from vcomp.inference.resampling.refits import Recipe, StrataRefits, refit_of

CROSSED = {
    "a": [2, 1, 1, 1, 7, 4, 10, 2, 4, 2, 1, 3],
    "b": [2, 4, 2, 2, 1, 1, 2, 7, 1, 1, 1, 2],
    "y": [0.15, 0.15, -0.43, 0.02, 0.37, 0, 1.42, 1.9, 0.14, 1.8, 1.2, 2.49],
}
ONE_WAY = {
    "a": [0, 0, 0, 1, 2, 2, 3, 4],
    "y": [-3.46, 2.05, -0.34, -4.03, 1.76, 2.49, -4.71, 5.43],
}
TWO = "y ~ (1|a) + (1|b)"


def dense(data, terms, *, reml):
    y = np.array(data["y"], float)
    return Dense(y, np.ones((y.size, 1)), [data[t] for t in terms], reml=reml)


def test_reml_leaves_a_lower_maximum_at_zero():
    """−15.826 at (0.383, 0, 0.588) is a maximum as well."""
    res = vcomp.fit(TWO, CROSSED)
    assert res.converged
    assert res.llf == pytest.approx(-15.174, abs=1e-3)
    np.testing.assert_allclose(res.vcomp, [2.11, 0.610, 0.046], rtol=5e-3)
    best = dense(CROSSED, "ab", reml=True).highest()
    assert res.llf == pytest.approx(best.loglike, abs=1e-8)
    np.testing.assert_allclose(res.vcomp, best.values, rtol=1e-4)


def test_ml_leaves_a_lower_maximum_at_zero():
    res = vcomp.fit("y ~ (1|a)", ONE_WAY, method="ml")
    best = dense(ONE_WAY, "a", reml=False).highest()
    assert res.vcomp["a"] == pytest.approx(6.56, abs=0.01)
    assert res.llf == pytest.approx(best.loglike, abs=1e-8)


@pytest.mark.parametrize(
    ("method", "data", "formula"), [("reml", CROSSED, TWO), ("ml", ONE_WAY, "y ~ (1|a)")]
)
def test_every_start_leads_to_the_highest(method, data, formula):
    """Also one at the lower maximum, where every condition of a maximum holds."""
    first = vcomp.fit(formula, data, method=method)
    (other,) = first.certificate.others
    for values in (dict(other.components), {"a": 0.0}, {"a": 1e3}, {"Residual": 1e-2}):
        res = vcomp.fit(formula, data, method=method, start=values)
        np.testing.assert_allclose(res.vcomp, first.vcomp, rtol=1e-6)


def test_a_maximum_that_is_nearly_as_high_is_reported():
    res = vcomp.fit(TWO, CROSSED)
    (other,) = res.certificate.others
    lower = dense(CROSSED, "ab", reml=True)
    v = np.array(list(other.components.values()))
    assert other.components["b"] == 0.0
    assert lower.value(v) == pytest.approx(res.llf - other.drop, abs=1e-9)
    assert (
        "another maximum of the log-likelihood is only 0.65 lower, at σ²(a) = 0.383" in res.status
    )
    assert "another maximum" in str(res.summary())
    assert "Another maximum is 0.65 lower" in repr(res.certificate)
    again = vcomp.VarianceComponentsResults.from_json(res.to_json())
    assert again.certificate.others == res.certificate.others


def test_a_maximum_that_is_much_lower_is_not_reported():
    data = pd.DataFrame({**CROSSED, "y": np.array(CROSSED["y"])})
    res = vcomp.fit("y ~ (1|a)", data)
    assert res.certificate.others == ()
    assert "another" not in res.status


def test_an_unbounded_likelihood_is_called_saturated():
    """a and b with two and four levels fit these six rows exactly; there is a local maximum."""
    data = {"a": [1, 2, 1, 2, 1, 1], "b": [4, 4, 1, 0, 3, 1], "y": [9.0, 10, 11, 9, 11, 11]}
    assert dense(data, "ab", reml=True).highest().unbounded
    with pytest.warns(vcomp.VcompWarning, match="the model is saturated"):
        res = vcomp.fit(TWO, data)
    assert not res.converged
    assert not res.certificate.at_maximum
    assert res.certificate.saturated
    assert res.status.startswith("Not converged: the likelihood has no maximum, as the model")


@pytest.mark.parametrize("number", [1583, 1742, 3004, 11171])
def test_an_unbounded_likelihood_beside_a_maximum_is_called_saturated(number):
    """Its maximum attracts all climbs but those that start next to a residual of zero."""
    made = case(number)
    method = "reml" if made.reml else "ml"
    with pytest.warns(vcomp.VcompWarning, match="the model is saturated"):
        res = vcomp.fit(made.formula, made.data, method=method)
    dense = Dense(made.data["y"], made.X, made.labels, reml=made.reml)
    assert dense.is_unbounded()  # by ranks
    assert not res.converged
    assert res.certificate.saturated


def test_a_held_residual_makes_a_saturated_likelihood_bounded():
    data = {"a": [1, 2, 1, 2, 1, 1], "b": [4, 4, 1, 0, 3, 1], "y": [9.0, 10, 11, 9, 11, 11]}
    res = vcomp.fit(TWO, data, hold={"Residual": 0.1})
    assert res.converged
    assert not res.certificate.saturated


def test_a_constant_response_has_no_maximum():
    data = {"a": [1, 1, 2, 2, 3, 3], "y": [4.0] * 6}
    with pytest.warns(vcomp.VcompWarning, match="the response is constant"):
        res = vcomp.fit("y ~ (1|a)", data)
    assert not res.converged
    assert (res.vcomp == 0.0).all()


def test_ordinary_fits_climb_once():
    """An evaluation for each point of the iteration, if no component is at zero."""
    for name in ("one way", "crossed"):
        formula, data = unbalanced(name, seed=3)
        res = vcomp.fit(formula, data)
        if (res.vcomp > 0.0).all():
            assert res.certificate.evaluations <= 2 * len(res.iterations)


def test_engines_with_probes_climb_once():
    """Their likelihood has an error, so that maxima cannot be compared."""
    model = vcomp.VarianceComponentsModel(TWO, CROSSED)
    sizes = np.array([*model.statistics.cross_products.sizes, model.nobs], float)
    start = np.array([0.4, 0.0, 0.6])
    found = maximise(Probing(model.statistics.cross_products, reml=True), start, sizes)
    assert found.v[1] == 0.0
    assert found.others == ()
    assert (
        maximise(BlockedLikelihood(model.statistics.cross_products, reml=True), start, sizes).v[1]
        > 0.0
    )


def test_held_components_keep_their_values_at_other_starts():
    res = vcomp.fit(TWO, CROSSED, hold={"b": 0.0})
    assert res.vcomp["b"] == 0.0
    assert res.llf == pytest.approx(vcomp.fit("y ~ (1|a)", CROSSED).llf, abs=1e-8)
    held = vcomp.fit(TWO, CROSSED, hold={"b": 0.61})
    assert held.llf <= vcomp.fit(TWO, CROSSED).llf
    assert held.vcomp["b"] == 0.61


@pytest.mark.parametrize(
    ("method", "data", "terms"), [("reml", CROSSED, "ab"), ("ml", ONE_WAY, "a")]
)
def test_refits_reach_the_highest(method, data, terms):
    """From the lower maximum: one way in a stack of strata, two ways by the engine."""
    formula = "y ~ " + " + ".join(f"(1|{t})" for t in terms)
    model = vcomp.VarianceComponentsModel(formula, data)
    names = (*terms, "Residual")
    lower = vcomp.fit(formula, data, method=method).certificate.others[0].components
    start = np.array(list(lower.values()))
    recipe = Recipe(get_estimator(method), names)
    strata = StrataRefits.of(model.statistics, recipe, start)
    assert (strata is not None) == (terms == "a")
    if strata is None:
        found = refit_of(model.statistics, recipe, start)(model.statistics)
    else:
        (found,) = strata.with_responses([model.statistics])
    assert found.converged
    best = dense(data, terms, reml=method == "reml").highest()
    assert found.llf == pytest.approx(best.loglike, abs=1e-8)
    np.testing.assert_allclose(found.values, best.values, rtol=1e-3)


@pytest.mark.parametrize(("number", "once"), [(1742, False), (11171, False), (1742, True)])
def test_refits_call_unbounded_what_fits_do(number, once):
    """Whatever is compiled; a null distribution needs one climb only."""
    made = case(number)
    model = vcomp.VarianceComponentsModel(made.formula, made.data)
    names = (*(":".join(term) for term in made.terms), "Residual")
    recipe = Recipe(get_estimator("ml"), names, once=once)
    start = np.ones(len(names))
    (found,) = StrataRefits.of(model.statistics, recipe, start).with_responses([model.statistics])
    found = found or refit_of(model.statistics, recipe, start)(model.statistics)
    assert found.converged == once


def test_stacks_of_strata_reach_the_highest_in_random_tables():
    """From a start at zero, for one-way tables of 8 rows; few are left to the engine."""
    rng, left = np.random.default_rng(8), 0
    for _ in range(20):
        labels = rng.integers(0, 5, size=8)
        data = {"a": labels, "y": rng.standard_t(2, size=8).round(2)}
        if np.unique(labels).size < 2:
            continue
        model = vcomp.VarianceComponentsModel("y ~ (1|a)", data)
        recipe = Recipe(get_estimator("ml"), ("a", "Residual"))
        start = np.array([0.0, np.var(data["y"])])
        strata = StrataRefits.of(model.statistics, recipe, start)
        (found,) = strata.with_responses([model.statistics])
        left += found is None
        found = found or refit_of(model.statistics, recipe, start)(model.statistics)
        best = dense(data, "a", reml=False).highest()
        assert found.llf == pytest.approx(best.loglike, abs=1e-7)
    assert left <= 5


@pytest.mark.parametrize("theta", [0.2, 0.383, 1.0, 10.0])
def test_profiles_follow_the_highest(theta):
    """At any σ²(a) the profile is the largest dense likelihood over the other components."""
    model = vcomp.VarianceComponentsModel(TWO, CROSSED)
    res = model.fit()
    engine = BlockedLikelihood(model.statistics.cross_products, reml=True)
    weights = np.array([1.0, 0.0, 0.0])
    curve = profile_quantity(engine, res.vcomp.to_numpy(), LinearConstraint(weights))
    full = dense(CROSSED, "ab", reml=True)

    def highest(value):
        ends = [
            minimize(
                lambda x: -full.value(np.array([value, *np.exp(x)])),
                np.log(start),
                method="Nelder-Mead",
                options={"xatol": 1e-9, "fatol": 1e-11, "maxiter": 2000},
            ).fun
            for start in ([1e-4, 1.0], [1.0, 1.0], [0.1, 0.1], [3.0, 0.01])
        ]
        return -min(ends)

    assert 2.0 * (res.llf - highest(curve.high)) == pytest.approx(3.841458820694, abs=1e-6)
    near = np.argmin(np.abs(curve.theta - theta))
    z, at = curve.z[near], float(curve.theta[near])
    if at > 0.0:
        assert z**2 == pytest.approx(2.0 * (res.llf - highest(at)), abs=1e-5)


def test_a_component_of_groups_with_equal_means_falls_to_zero():
    """Its average information is zero, and 200 EM steps do not take it there."""
    made = case(12050)
    assert made.data.groupby("a")["y"].mean().tolist() == [11.0, 11.0]
    res = vcomp.fit(made.formula, made.data)
    assert res.converged
    assert res.vcomp.tolist() == pytest.approx([0.0, made.data["y"].var()])
    assert res.certificate.iterations < 10


def test_a_table_of_few_rows_is_climbed_from_elsewhere():
    """Two terms of two levels, of which either may have nearly all variance."""
    made = case(10638)
    res = vcomp.fit(made.formula, made.data, method="ml")
    assert res.llf == pytest.approx(-18.698404369773456, abs=1e-9)
    dense = Dense(made.data["y"], made.X, made.labels, reml=False)
    assert dense.highest().loglike == pytest.approx(res.llf, abs=1e-9)


@pytest.mark.parametrize(
    ("steps", "reached", "is_known"), [(1, True, True), (1, False, True), (200, False, False)]
)
def test_climbs_end_near_what_is_known_but_not_at_a_limit_of_steps(steps, reached, is_known):
    ends = [object() for _ in range(steps)]
    given = []

    def climb(start, known):
        given.append(known)
        return [], True

    Place.highest((ends, reached), [object()], climb)
    assert given == [ends[-1:] if is_known else []]

"""The likelihood of a model, and what elimination takes; forms: test_conformance.py."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.designs import unbalanced
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.blocked_covariance import Eliminations
from vcomp.estimators.likelihood.term_point import SquareLimits


def test_components_by_name_and_as_a_list():
    formula, data = unbalanced("crossed")
    model = vcomp.VarianceComponentsModel(formula, data)
    by_name = {"b": 2.0, "Residual": 1.0, "a": 3.0}
    assert model.loglike(by_name) == model.loglike(pd.Series(by_name)) == model.loglike([3, 2, 1])


@pytest.mark.parametrize(
    ("components", "message"),
    [
        ([1.0, 2.0], r"shape \(2,\); there are 3: a, b, Residual"),
        ([1.0, -2.0, 1.0], "must not be negative"),
        ([1.0, 2.0, 0.0], "and the residual positive"),
        ([1.0, np.nan, 1.0], "must not be negative"),
        ({"a": 1.0, "Residual": 1.0}, "component 'b' is missing"),
    ],
)
def test_components_that_are_none(components, message):
    formula, data = unbalanced("crossed")
    model = vcomp.VarianceComponentsModel(formula, data)
    with pytest.raises(vcomp.EstimationError, match=message):
        model.loglike(components)


def test_unknown_information():
    formula, data = unbalanced("crossed")
    model = vcomp.VarianceComponentsModel(formula, data)
    with pytest.raises(vcomp.EstimationError, match="information='fisher' is not known"):
        model.information([1, 1, 1], information="fisher")


def test_a_factor_that_does_not_fit_is_refused():
    formula, data = unbalanced("three facets")
    message = (
        r"elimination of these \d+ random effects needs .*[GM]iB, and .* are free; "
        r"use engine='iterative', or with a constant mean method='anova'"
    )
    stats = vcomp.VarianceComponentsModel(formula, data).statistics.cross_products
    with pytest.raises(vcomp.EstimationError, match=message):
        Eliminations(stats, free_bytes=lambda: 1e3)


@pytest.mark.parametrize(
    ("at_zero", "evaluation", "is_cheap"),
    [(0.1, 1e-3, True), (0.11, 1e-3, False), (0.5, 0.1, True), (0.51, 0.1, False)],
)
def test_the_expected_information_may_cost_five_evaluations(at_zero, evaluation, is_cheap):
    model = vcomp.VarianceComponentsModel(*unbalanced("crossed"))
    engine = BlockedLikelihood(model.statistics.cross_products, reml=True)
    point = SimpleNamespace(seconds_at_zero=lambda: at_zero)
    engine.eliminations = SimpleNamespace(at=lambda v: point, seconds=evaluation)
    assert engine.expects_cheaply(np.ones(3)) is is_cheap


def test_the_time_of_squares_at_zero_is_that_of_a_solve_for_each_group():
    """A billion multiplications take a second; of very many groups a cube of the others."""
    model = vcomp.VarianceComponentsModel(*unbalanced("three facets"))
    engine = BlockedLikelihood(model.statistics.cross_products, reml=True)
    k = model.statistics.cross_products.n_terms
    for zeros in ([], [0], [1, 3]):
        v = np.where(np.isin(np.arange(k + 1), zeros), 0.0, 1.0)
        point = engine.eliminations.at(v)
        pattern = point.equations.pattern
        solved = sum(model.statistics.cross_products.sizes[t] for t in zeros)
        expected = 1e-9 * solved * (pattern.rows.size + pattern.n_dense**2)
        assert point.seconds_at_zero() == pytest.approx(expected, rel=1e-12)
        rank = (
            sum(model.statistics.cross_products.sizes)
            - solved
            + model.statistics.cross_products.n_fixed
        )
        limits = SquareLimits(many_elements=0.0, times_as_many=0)
        expected = 1e-9 * len(zeros) * float(rank) ** 3
        assert point.seconds_at_zero(limits) == pytest.approx(expected, rel=1e-12)


def test_without_memory_for_norms_the_average_information_is_left():
    model = vcomp.VarianceComponentsModel(*unbalanced("crossed"))
    whole = BlockedLikelihood(model.statistics.cross_products, reml=True)
    plan, v = whole.eliminations._whole_plan, np.ones(3)
    for factor, is_tight in ((0.999, True), (1.001, False)):
        free = factor * plan.bytes_for_norms / 0.8
        eliminations = Eliminations(
            model.statistics.cross_products, None, free_bytes=lambda free=free: free
        )
        engine = BlockedLikelihood(
            model.statistics.cross_products, reml=True, eliminations=eliminations
        )
        average = engine.information(v, "average")
        np.testing.assert_array_equal(average, whole.information(v, "average"))
        for kind in ("observed", "expected"):
            if is_tight:
                with pytest.raises(vcomp.EstimationError, match=f"the {kind} information needs"):
                    engine.information(v, kind)
            else:
                np.testing.assert_array_equal(
                    engine.information(v, kind), whole.information(v, kind)
                )

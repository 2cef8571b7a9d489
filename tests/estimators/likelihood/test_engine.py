"""Squares of the expected information that are carried along a climb, and to other responses."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.altered_engines import Slow
from tests.helpers.cases import alternately
from tests.helpers.dense_likelihood import DenseLikelihood
from tests.helpers.designs import DESIGNS, balanced, unbalanced
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.engine import Squares
from vcomp.estimators.likelihood.maximisation import maximise


def exact(model, v, *, reml=True):
    """The squares by dense formulas."""
    dense, k = DenseLikelihood(model, reml=reml), len(v) - 1
    _, inverse, P, _, _ = dense.matrices(v)
    traces = np.array([np.sum((P if reml else inverse) * K) for K in dense.K[:k]])
    return Squares(np.array(v), traces, 2.0 * dense.expected(v)[:k, :k])


@pytest.mark.parametrize("name", ["one way", "crossed"])
def test_for_balanced_data_only_the_mean_of_slopes_has_an_error(name):
    """Terms have one mean square each. The mean is that of a trapezium, of second order."""
    model = vcomp.VarianceComponentsModel(*balanced(name))
    there = np.linspace(1.0, 2.0, len(model.component_names))
    expected = exact(model, there)
    for step in (1e-2, 1e-3):
        here = there * (1.0 + step * np.cos(np.arange(there.size)))
        found = exact(model, here).carried(there, expected.traces)
        error = np.abs(found.squares - expected.squares).max() / expected.squares.max()
        assert error < step**2
        assert not found.is_exact


@pytest.mark.parametrize(("name", "reml"), alternately(sorted(DESIGNS), True, False))
def test_half_of_what_slopes_leave_of_the_traces_is_explained(name, reml):
    """The slope of τ_t = σ²_t tr(QV_t) by log σ²_u is δ_tu τ_t − σ²_tσ²_u tr(QV_tQV_u)."""
    model = vcomp.VarianceComponentsModel(*unbalanced(name))
    k = len(model.component_names) - 1
    rng = np.random.default_rng(k)
    here, there = rng.uniform(0.8, 1.2, (2, k + 1))
    start, end = (exact(model, v, reml=reml) for v in (here, there))
    found = start.carried(there, end.traces)
    ratio = end.traces / start.traces
    plain = Squares(there, end.traces, start.squares * np.outer(ratio, ratio))
    x = np.log(there[:-1] / there[-1]) - np.log(here[:-1] / here[-1])
    tau = [s.v[:-1] * s.traces for s in (start, end)]

    def left(moved):
        slopes = [
            np.diag(t) - s.squares * np.outer(s.v[:-1], s.v[:-1])
            for t, s in zip(tau, (start, moved), strict=True)
        ]
        return tau[1] - tau[0] - 0.5 * (slopes[0] + slopes[1]) @ x

    scale = np.abs(tau[1] - tau[0]).max()
    np.testing.assert_allclose(left(found), 0.5 * left(plain), atol=1e-10 * scale)
    np.testing.assert_allclose(found.squares, found.squares.T, rtol=1e-12)


def test_squares_of_other_terms_or_far_components_are_not_carried():
    model = vcomp.VarianceComponentsModel(*unbalanced("crossed"))
    v = np.ones(3)
    here = exact(model, v)
    assert here.carried(v, here.traces) is here
    assert here.carried(np.array([0.0, 1.0, 1.0]), here.traces) is None
    assert here.carried(np.array([2.0, 1.0, 1.0]), 4.1 * here.traces) is None
    assert here.carried(np.array([2.0, 1.0, 1.0]), here.traces / 4.1) is None
    # Rounding may leave nothing of a component.
    assert Squares(v, 0.0 * here.traces, here.squares).carried(2.0 * v, here.traces) is None
    assert Squares(v, here.traces, 0.0 * here.squares).carried(2.0 * v, here.traces) is None
    # A correction that would leave no positive square.
    assert here.carried(np.array([1.01, 1.0, 1.0]), 3.9 * here.traces) is None


def test_components_of_the_same_ratios_have_squares_of_another_unit():
    model = vcomp.VarianceComponentsModel(*unbalanced("crossed"))
    v = np.array([0.7, 1.3, 1.0])
    here = exact(model, v)
    found = here.carried(2.0 * v, 0.5 * here.traces)
    np.testing.assert_allclose(found.squares, 0.25 * here.squares, rtol=1e-14)


class Counting(Slow):
    """Counts how often squares are computed."""

    computed = 0

    def _squares_at(self, point, *, positive_only):
        type(self).computed += 1
        return super()._squares_at(point, positive_only=positive_only)


@pytest.mark.parametrize(("name", "reml"), alternately(sorted(DESIGNS), True, False))
def test_climbs_with_carried_squares_end_at_the_same_maximum(name, reml):
    model = vcomp.VarianceComponentsModel(*unbalanced(name))
    sizes = np.array([*model.statistics.cross_products.sizes, model.nobs], dtype=float)
    start = np.full(sizes.size, model.endog.var() / sizes.size)
    plain = maximise(
        BlockedLikelihood(model.statistics.cross_products, reml=reml), start, sizes, tol=1e-11
    )
    Counting.computed = 0
    found = maximise(
        Counting(model.statistics.cross_products, reml=reml), start, sizes, tol=1e-11, once=True
    )
    assert found.converged
    np.testing.assert_allclose(found.v, plain.v, rtol=1e-8, atol=1e-10 * plain.v.sum())
    assert found.loglike == pytest.approx(plain.loglike, rel=1e-12)
    steps = [point.step for point in found.log]
    assert Counting.computed <= max(1, steps.count("Newton") - 1)


@pytest.mark.parametrize("name", ["crossed", "nested", "three facets"])
def test_an_engine_that_is_prepared_starts_with_a_step_of_fisher(name):
    """The maxima are those of engines of their own, whatever response was prepared with."""
    model = vcomp.VarianceComponentsModel(*unbalanced(name))
    sizes = np.array([*model.statistics.cross_products.sizes, model.nobs], dtype=float)
    rng, k = np.random.default_rng(1), sizes.size
    v = np.linspace(1.0, 2.0, k)
    drawn = []
    for _ in range(2):
        y = np.sqrt(v[-1]) * rng.normal(size=model.nobs)
        for t, codes in enumerate(model.statistics.rows.codes):
            y = y + np.sqrt(v[t]) * rng.normal(size=model.statistics.rows.sizes[t])[codes]
        drawn.append(model.statistics.with_response(y))
    whole, seen = BlockedLikelihood(model.statistics.cross_products, reml=True), set()
    for first in (model.statistics.cross_products, drawn[0].cross_products):
        engine = Slow(first, reml=True).prepared(v)
        for stats in drawn:
            engine = engine.with_response(stats)
            found = maximise(engine, v, sizes)
            plain = maximise(whole.with_response(stats), v, sizes)
            np.testing.assert_allclose(found.v, plain.v, rtol=1e-8, atol=1e-9 * v.sum())
            assert found.loglike == pytest.approx(plain.loglike, rel=1e-11)
            seen |= {point.step for point in found.log}
    assert {"Fisher", "Newton"} <= seen


def test_a_kept_factor_gives_what_a_new_one_does():
    model = vcomp.VarianceComponentsModel(*unbalanced("three facets"))
    v = np.linspace(1.0, 2.0, len(model.component_names))
    engine = Slow(model.statistics.cross_products, reml=True).prepared(v)
    other = model.statistics.with_response(np.sin(np.arange(model.nobs)))
    found = engine.with_response(other)
    plain = BlockedLikelihood(other.cross_products, reml=True)
    assert found.point(v).factor is engine.point(v).factor
    # Sums of some hundred products, in the order of the processor's BLAS: 1e-12 of the terms, and
    # elements are up to a hundred times smaller than these.
    for kind in ("observed", "expected", "average"):
        np.testing.assert_allclose(
            found.information(v, kind), plain.information(v, kind), rtol=1e-10
        )
    np.testing.assert_allclose(found.derivatives(v).score, plain.derivatives(v).score, rtol=1e-9)
    assert found.loglike(v) == pytest.approx(plain.loglike(v), rel=1e-12)


@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_a_last_step_that_is_not_evaluated_leads_to_the_maximum(name):
    model = vcomp.VarianceComponentsModel(*unbalanced(name))
    sizes = np.array([*model.statistics.cross_products.sizes, model.nobs], dtype=float)
    engine = BlockedLikelihood(model.statistics.cross_products, reml=True)
    start = np.full(sizes.size, model.endog.var() / sizes.size)
    exactly = maximise(engine, start, sizes, tol=1e-11)
    found = maximise(engine, start, sizes, tol=1e-4, unseen=1e-4)
    assert found.evaluations < exactly.evaluations
    assert found.loglike == pytest.approx(exactly.loglike, abs=1e-9)
    unit = np.sqrt(np.diagonal(engine.information(exactly.v, "average")))
    # A Newton step from 1e-4 standard errors leads to about their square.
    assert (np.abs(found.v - exactly.v) * unit).max() < 1e-6
    last = np.array(found.log[-1].components)
    assert (last != found.v).any()


@pytest.mark.parametrize("decrement", [1e-3, np.inf])
@pytest.mark.parametrize("reml", [True, False])
def test_components_at_zero_whose_groups_need_a_solve_each_have_no_information(reml, decrement):
    """Nor has an engine that is prepared there, whose first step is Fisher's."""
    model = vcomp.VarianceComponentsModel(*unbalanced("crossed"))
    v = np.array([1.5, 0.0, 0.7])
    engine = Slow(model.statistics.cross_products, reml=reml)
    if decrement == np.inf:
        engine = engine.prepared(v)
    found = engine.curvature(v, decrement)
    dense = DenseLikelihood(model, reml=reml)
    expected = dense.expected(v)
    if found.kind == "Newton":
        expected = 2.0 * dense.average(v) - expected
    expected[1] = expected[:, 1] = np.nan
    np.testing.assert_allclose(found.information, expected, rtol=1e-9)
    assert found.kind == ("Fisher" if decrement == np.inf else "Newton")

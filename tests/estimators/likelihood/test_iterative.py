"""The iterative engine: exact with all unit vectors for probes, honest with a few."""

import gc
import tracemalloc
import weakref
from itertools import combinations, pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import logm

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.dense_likelihood import DenseLikelihood
from tests.helpers.designs import DESIGNS, unbalanced
from tests.helpers.unit_probes import AllUnits
from vcomp.estimators.likelihood import iterative, iterative_context
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.iterative import IterativeLikelihood
from vcomp.estimators.likelihood.iterative_context import iterative_memory
from vcomp.estimators.likelihood.maximisation import maximise
from vcomp.estimators.likelihood.prediction_errors import _by_elimination
from vcomp.estimators.likelihood.sparse_equations import build_sparse_equations
from vcomp.exceptions import EstimationError
from vcomp.numerics.sparse.sparse_table import Rademacher
from vcomp.statistics.cross_products import accumulate

EXACT_AND_PROBED = ("blocked", "iterative")


def model_of(name, fixed="1"):
    formula, data = unbalanced(name, seed=3)
    rng = np.random.default_rng(0)
    data = data.assign(x=rng.normal(size=len(data)) + 1e4, g=rng.integers(0, 3, len(data)))
    return vcomp.VarianceComponentsModel(formula.replace("~", f"~ {fixed} +"), data)


def statistics_of(formula, data):
    return accumulate(vcomp.VarianceComponentsModel(formula, data).statistics.rows)


def crossed(n, n_a, n_b, seed=0, sds=(1.0, 0.6, 1.0)):
    """Return scores of levels that meet at random."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, n_a, n), rng.integers(0, n_b, n)
    effects = [sd * rng.normal(size=q) for sd, q in zip(sds, (n_a, n_b, n), strict=True)]
    return pd.DataFrame({"y": effects[0][a] + effects[1][b] + effects[2], "a": a, "b": b})


def points(k):
    """Return components with none, one, two and all but the residual at zero, and of one."""
    for zeros in ((), (0,), (0, 1), tuple(range(k - 1))):
        v = np.random.default_rng(k).uniform(0.3, 2.0, size=k)
        v[[z for z in zeros if z < k - 1]] = 0.0
        yield v
    yield np.ones(k)


def found_by(engine, *, tol=1e-6):
    """Return where the maximisation of an engine ends."""
    start = np.maximum(engine.mivque0(), 0.01 * engine.rss / engine.n)
    found = maximise(engine, start, np.array([*engine.sizes, engine.n], dtype=float), tol=tol)
    assert found.converged
    return found


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *alternately(sorted(DESIGNS), ("x + C(g)", True, 0), ("x + C(g)", False, 1000)),
        *alternately(sorted(DESIGNS), ("1", True, 12), ("0", False, 12)),
    ],
    ids=str,
)
def test_exact_with_all_unit_vectors(name, options):
    fixed, reml, n_levels = options
    stats = accumulate(model_of(name, fixed).statistics.rows)
    blocked = BlockedLikelihood(stats, reml=reml)
    engine = IterativeLikelihood(stats, reml=reml, probes=AllUnits(), n_levels=n_levels, tol=1e-14)
    assert (engine.n, engine.n_fixed, engine.sizes) == (stats.n, stats.n_fixed, stats.sizes)
    for v in points(stats.n_terms + 1):
        exact, derivatives = blocked.derivatives(v), engine.derivatives(v)
        scale = np.abs(exact.score).max()
        np.testing.assert_allclose(derivatives.score, exact.score, rtol=1e-9, atol=1e-10 * scale)
        np.testing.assert_allclose(
            derivatives.average, exact.average, rtol=1e-8, atol=1e-10 * exact.average.max()
        )
        assert engine.loglike(v) == pytest.approx(blocked.loglike(v), rel=1e-10)
        mine, theirs = engine.solution(v), blocked.solution(v)
        np.testing.assert_allclose(mine.beta, theirs.beta, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(mine.cov_beta, theirs.cov_beta, rtol=1e-7, atol=1e-12)
        for a, b in zip(mine.effects, theirs.effects, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("n_levels", [0, 12, 1000])
@pytest.mark.parametrize("fixed", ["1", "x + C(g)", "0 + x"])
@pytest.mark.parametrize("name", ["one way", "nested", "three facets"])
def test_forms_of_the_fixed_part_by_solves(name, fixed, n_levels):
    """There are no second forms, whoever asks."""
    model = model_of(name, fixed)
    stats = model.statistics.cross_products
    engine = IterativeLikelihood(stats, reml=True, n_levels=n_levels, tol=1e-12)
    dense, X = DenseLikelihood(model, reml=True), model.statistics.rows.X
    for v in points(stats.n_terms + 1):
        found = engine.fixed_forms(v, second=True)
        assert found.second is None
        inverse = dense.matrices(v)[1]
        cov_beta = np.linalg.inv(X.T @ inverse @ X)
        first = np.array([X.T @ inverse @ K @ inverse @ X for K in dense.K])
        wanted = (cov_beta, first, cov_beta @ first @ cov_beta)
        for ours, theirs in zip((found.cov_beta, found.first, found.slopes), wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-8 * np.abs(theirs).max())


def test_the_same_maximum_with_all_unit_vectors():
    stats = statistics_of("y ~ (1|a) + (1|b)", crossed(300, 20, 40))
    blocked = found_by(BlockedLikelihood(stats, reml=True), tol=1e-10)
    found = found_by(
        IterativeLikelihood(stats, reml=True, probes=AllUnits(), n_levels=0, tol=1e-13), tol=1e-10
    )
    np.testing.assert_allclose(found.v, blocked.v, rtol=1e-8)
    assert np.isnan(found.loglike)


def test_estimates_lie_within_their_monte_carlo_error():
    stats = statistics_of("y ~ (1|a) + (1|b)", crossed(4000, 150, 500))
    exact = BlockedLikelihood(stats, reml=True)
    best = found_by(exact, tol=1e-10).v
    found, variances, llf = [], [], []
    for seed in range(20):
        engine = IterativeLikelihood(stats, reml=True, seed=seed, n_probes=16, n_levels=0)
        v = found_by(engine).v
        found.append(v)
        variances.append(np.diagonal(engine.monte_carlo(v)))
        llf.append((engine.loglike(best) - exact.loglike(best)) / engine.loglike_error(best))
    # Twenty squares against their mean expectation: chi-square, 99.99 %, with room for its tails.
    ratio = np.mean(np.square(np.array(found) - best), axis=0) / np.mean(variances, axis=0)
    assert (ratio < 3.0).all()
    assert (ratio > 0.2).all()
    assert np.abs(llf).max() < 6.0
    assert np.mean(np.square(llf)) < 3.0


@pytest.mark.parametrize("unit", [1e-3, 50.0])
def test_monte_carlo_errors_are_in_the_units_of_the_components(unit):
    """The same probes, the same data in another unit: covariances of squares."""
    v, data = np.array([1.0, 0.0, 0.4, 1.3]), crossed(800, 60, 90)
    data["c"] = np.random.default_rng(3).integers(0, 40, 800)
    found = []
    for factor in (1.0, unit):
        stats = statistics_of("y ~ (1|a) + (1|b) + (1|c)", data.assign(y=factor * data["y"]))
        engine = IterativeLikelihood(stats, reml=True, seed=1, n_probes=8, n_levels=0, tol=1e-13)
        found.append(engine.monte_carlo(factor**2 * v) / factor**4)
    assert (np.diagonal(found[0])[v > 0.0] > 0.0).all()
    np.testing.assert_allclose(found[1], found[0], rtol=1e-8, atol=1e-12 * found[0].max())


def test_many_probes():
    stats = statistics_of("y ~ (1|a) + (1|b)", crossed(10_000, 200, 500))
    exact, engine = BlockedLikelihood(stats, reml=True), IterativeLikelihood(stats, reml=True)
    best = found_by(exact, tol=1e-10).v
    v = found_by(engine).v
    np.testing.assert_allclose(v, best, rtol=1e-3)
    error = np.sqrt(np.diagonal(engine.monte_carlo(v)))
    assert (np.abs(v - best) <= 5.0 * error).all()
    # What the probes leave open is a fraction of what the data do.
    se = np.sqrt(np.diagonal(np.linalg.inv(engine.information(v, "average"))))
    assert (error < 0.02 * se).all()
    assert abs(engine.loglike(v) - exact.loglike(v)) <= 4.0 * engine.loglike_error(v)


def test_terms_at_zero():
    data = crossed(3000, 120, 400)
    rng = np.random.default_rng(5)
    data["c"], data["d"] = rng.integers(0, 130, 3000), rng.integers(0, 200, 3000)
    stats = statistics_of("y ~ (1|a) + (1|b) + (1|c) + (1|d)", data)
    best = found_by(BlockedLikelihood(stats, reml=True), tol=1e-10)
    engine = IterativeLikelihood(stats, reml=True, n_levels=0)
    found = found_by(engine)
    assert (best.v == 0.0).any()
    np.testing.assert_array_equal(found.v == 0.0, best.v == 0.0)
    noise = engine.monte_carlo(found.v)
    assert (noise[best.v == 0.0] == 0.0).all()
    assert (np.abs(found.v - best.v) <= 5.0 * np.sqrt(np.diagonal(noise))).all()


def test_small_terms_have_no_error():
    data = crossed(3000, 12, 400)
    data["c"] = np.random.default_rng(1).integers(0, 700, 3000)
    data["y"] += np.random.default_rng(2).normal(size=700)[data["c"]]
    stats = statistics_of("y ~ (1|a) + (1|b) + (1|c)", data)
    v = np.array([1.0, 0.4, 0.9, 1.1])
    exact = BlockedLikelihood(stats, reml=True).derivatives(v).score
    engine = IterativeLikelihood(stats, reml=True, tol=1e-13)
    # The trace of a has no error of its own, only that of the score's last part.
    assert engine.derivatives(v).score[0] == pytest.approx(exact[0], rel=1e-9)
    # With one large term left there is nothing to probe.
    stats = statistics_of("y ~ (1|a) + (1|b)", data)
    engine = IterativeLikelihood(stats, reml=True)
    exact = BlockedLikelihood(stats, reml=True)
    v = np.array([1.0, 0.4, 1.1])
    np.testing.assert_allclose(engine.derivatives(v).score, exact.derivatives(v).score, rtol=1e-9)
    assert engine.loglike(v) == pytest.approx(exact.loglike(v), rel=1e-12)
    assert engine.loglike_error(v) == 0.0
    assert not engine.monte_carlo(v).any()


def test_a_small_term_beside_a_small_residual_keeps_its_digits():
    """Its trace and its Z'Py would be differences of numbers 1e5 times as large."""
    stats = statistics_of("y ~ (1|a) + (1|b)", crossed(300, 8, 40))
    v = np.array([0.9, 0.4, 1e-4])
    engine = IterativeLikelihood(stats, reml=True, tol=1e-14)
    expected = BlockedLikelihood(stats, reml=True).derivatives(v).score
    assert engine.derivatives(v).score[0] == pytest.approx(expected[0], rel=2e-10)


def test_disconnected_pieces_and_communities():
    data = crossed(6000, 200, 600)
    data["b"] = data["b"] // 2 * 2 + data["a"] % 2
    stats = statistics_of("y ~ (1|a) + (1|b)", data)
    best, engine = found_by(BlockedLikelihood(stats, reml=True), tol=1e-10).v, None
    for n_levels in (0, 128):
        engine = IterativeLikelihood(stats, reml=True, n_levels=n_levels)
        v = found_by(engine).v
        error = np.sqrt(np.diagonal(engine.monte_carlo(v)))
        assert (np.abs(v - best) <= 6.0 * error).all()
    assert max(engine.products["probes"]) < 30


def test_constants_of_pieces_with_a_small_residual():
    """They move from one term to the other at the price of ridges of 1e-7 of the diagonal."""
    data, rng = crossed(3000, 100, 200), np.random.default_rng(1)
    a, b = data["a"], data["b"] // 5 * 5 + data["a"] % 5
    y = rng.normal(size=100)[a] + 0.6 * rng.normal(size=200)[b] + 1e-3 * rng.normal(size=3000)
    stats = statistics_of("y ~ (1|a) + (1|b)", data.assign(b=b, y=y))
    v = np.array([1.0, 0.36, 1e-6])
    engine = IterativeLikelihood(stats, reml=True, n_levels=0)
    exact = BlockedLikelihood(stats, reml=True)
    solution, expected = engine.solution(v), exact.solution(v)
    variances, _ = expected.variances()
    for t in range(2):
        error = np.abs(solution.effects[t] - expected.effects[t])
        assert (error <= 0.01 * np.sqrt(variances[t])).all()  # what the tolerance allows
    average = exact.information(v, "average")
    scale = np.sqrt(np.outer(np.diagonal(average), np.diagonal(average)))
    np.testing.assert_allclose(engine.information(v) / scale, average / scale, atol=1e-5)


def in_parts(n=3_000, q=600, parts=100):
    """Return scores of two facets that fall into parts without common levels."""
    rng = np.random.default_rng(1)
    a = rng.integers(0, q, n)
    b = rng.integers(0, q // parts, n) * parts + a % parts
    y = rng.normal(size=q)[a] + 0.6 * rng.normal(size=q)[b] + rng.normal(size=n)
    return pd.DataFrame({"a": a, "b": b, "y": y})


def test_the_status_names_a_large_monte_carlo_error():
    """Within parts of few levels the probes know little; what the status advises leads on."""
    formula, data = "y ~ (1|a) + (1|b)", in_parts()
    exact = vcomp.fit(formula, data, engine="blocked")
    few = vcomp.fit(formula, data, engine="iterative", n_probes=2)
    share = few.mc_error["b"] / few.bse_vcomp["b"]
    assert share > 0.1
    assert few.status == (
        "Converged; the random probes leave σ²(b) a Monte Carlo error of "
        f"{vcomp.display.number(share, 2)} standard errors: four times as many (n_probes=) halve "
        "it, and engine='blocked' has none."
    )
    more = vcomp.fit(formula, data, engine="iterative", n_probes=32)
    assert exact.status == more.status == "Converged."
    assert more.mc_error["b"] < 0.5 * few.mc_error["b"]
    for res in (few, more):
        assert (np.abs(res.vcomp - exact.vcomp) < 4.0 * res.mc_error).all()


def test_parts_without_common_levels_are_counted_and_named():
    res = vcomp.fit("y ~ (1|a) + (1|b)", in_parts(q=200), engine="iterative")
    assert not res.design.connected
    assert "falls into 100 parts that share no level" in str(res.summary())
    text = res.design.report()
    assert "part 1: 2 a (0, 100); 2 b (0, 100)" in text
    assert "differences between levels of different parts cannot be distinguished" in text
    # So few levels a part leave the probes no variance to promise.
    assert res.random_effects["b"]["se"].isna().all()


@pytest.mark.parametrize("both", [False, True])
def test_a_level_with_half_of_the_rows(both):
    data = crossed(4_000, 400, 400)
    data.loc[:1_999, "a"] = 0
    if both:
        data.loc[1_000:2_999, "b"] = 0
    exact, found = (vcomp.fit("y ~ (1|a) + (1|b)", data, engine=e) for e in EXACT_AND_PROBED)
    assert found.status == "Converged."
    assert (np.abs(found.vcomp - exact.vcomp) < 4.0 * found.mc_error).all()
    np.testing.assert_allclose(found.bse_vcomp, exact.bse_vcomp, rtol=0.01)


@pytest.mark.parametrize("sd", [1e-2, 1e-6])
def test_a_residual_near_zero(sd):
    """The residual tends to the mean square within both factors, which least squares gives."""
    data = crossed(2_000, 150, 150, sds=(1.0, 0.6, sd))
    res = vcomp.fit("y ~ (1|a) + (1|b)", data, engine="iterative")
    Z = np.hstack([pd.get_dummies(data[g], dtype=float) for g in "ab"])
    solved, *_ = np.linalg.lstsq(Z, data["y"].to_numpy(), rcond=None)
    within = np.sum((data["y"] - Z @ solved) ** 2) / (2_000 - 150 - 150 + 1)
    assert res.status == "Converged."
    assert res.vcomp["Residual"] == pytest.approx(within, rel=5e-4)


def test_the_same_seed_gives_the_same_numbers():
    stats = statistics_of("y ~ (1|a) + (1|b)", crossed(3000, 150, 300))
    v = np.array([1.0, 0.4, 1.1])
    engines = [IterativeLikelihood(stats, reml=True, seed=seed) for seed in (1, 1, 2)]
    scores = [engine.derivatives(v).score for engine in engines]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert (scores[0] != scores[2]).any()


def test_reason_says_how_to_do_it_again():
    stats = accumulate(model_of("crossed").statistics.rows)
    engine = IterativeLikelihood(stats, reml=True, n_probes=20, seed=7)
    assert engine.reason.endswith("traces from 20 random probes, seed 7")
    engine = IterativeLikelihood(stats, reml=True, probes=AllUnits())
    assert engine.reason.endswith("traces from all unit vectors")


def test_average_information_only():
    engine = IterativeLikelihood(accumulate(model_of("crossed").statistics.rows), reml=True)
    v = np.array([1.0, 0.5, 1.0])
    assert engine.kinds == ("average",)
    assert not engine.exact_value
    np.testing.assert_array_equal(engine.information(v, "average"), engine.derivatives(v).average)
    with pytest.raises(EstimationError, match="average information only, not the observed"):
        engine.information(v, "observed")


@pytest.mark.parametrize("n_levels", [0, 12])
@pytest.mark.parametrize("name", ["crossed", "three facets", "nested"])
def test_variances_of_prediction_with_all_unit_vectors(name, n_levels):
    stats = accumulate(model_of(name, "x + C(g)").statistics.rows)
    exact = BlockedLikelihood(stats, reml=True)
    engine = IterativeLikelihood(stats, reml=True, probes=AllUnits(), n_levels=n_levels, tol=1e-14)
    for v in points(stats.n_terms + 1):
        _, found, error = engine._effect_variances(v)
        for of_term, expected in zip(found, exact.solution(v).conditional_var, strict=True):
            np.testing.assert_allclose(of_term, expected, rtol=1e-8, atol=1e-12)
        if error > iterative._ACCURATE:  # unit vectors differ much from each other
            continue
        whole = engine.solution(v).prediction_var
        for of_term, expected in zip(whole, exact.solution(v).prediction_var, strict=True):
            np.testing.assert_allclose(of_term, expected, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("n_levels", [0, 12])
@pytest.mark.parametrize("name", ["crossed", "three facets", "nested"])
def test_variances_of_combinations_with_all_unit_vectors(name, n_levels):
    """Of rows, of any levels together, and of some of the terms, against elimination."""
    model, rng = model_of(name, "x + C(g)"), np.random.default_rng(7)
    stats, rows = accumulate(model.statistics.rows), model.statistics.rows
    exact = BlockedLikelihood(stats, reml=True)
    engine = IterativeLikelihood(stats, reml=True, probes=AllUnits(), n_levels=n_levels, tol=1e-14)
    X, codes = rows.X[:30], np.column_stack(rows.codes).astype(int)
    wild = np.column_stack([rng.integers(-1, q, 10) for q in stats.sizes])
    for v in points(stats.n_terms + 1):
        groups = np.where(v[:-1] > 0.0, np.vstack([codes[:20], wild]), -1)
        expected = _by_elimination(exact, v, groups, X)
        found = engine._at(v).combination_variances(groups, X)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-12)


def test_errors_of_variances_of_combinations():
    """They are known, and of three large terms ask for more probes."""
    rng = np.random.default_rng(5)
    data = crossed(3000, 300, 290).assign(c=rng.integers(0, 200, 3000))
    model = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b) + (1|c)", data)
    stats, groups = model.statistics, np.column_stack(model.statistics.cells.codes).astype(int)
    v, X = np.array([0.5, 0.35, 0.25, 1.0]), np.ones((3000, 1))
    exact = _by_elimination(BlockedLikelihood(stats.cross_products, reml=True), v, groups, X)
    engine = IterativeLikelihood(stats.cross_products, reml=True)
    found, _, errors = engine._at(v).combination_variances(groups, X)
    reached, known = (np.sqrt(np.mean(np.square(e / exact))) for e in (found - exact, errors))
    assert 0.9 < reached / known < 1.1
    assert known > iterative._ACCURATE
    share = engine.combination_variances(v, groups, X) / exact - 1.0
    assert np.sqrt(np.mean(np.square(share))) < iterative._ACCURATE


def test_a_combination_without_effects_has_no_variance():
    """As of a row of new levels where x is 0 and there is no intercept."""
    data = crossed(4000, 40, 30)
    data["x"] = np.random.default_rng(6).normal(size=len(data))
    stats, v = statistics_of("y ~ 0 + x + (1|a) + (1|b)", data), np.array([1.0, 0.5, 1.0])
    groups, X = np.array([[-1, -1], [-1, -1], [3, 4]]), np.array([[0.0], [1.0], [0.0]])
    exact = _by_elimination(BlockedLikelihood(stats, reml=True), v, groups, X)
    found = IterativeLikelihood(stats, reml=True).combination_variances(v, groups, X)
    assert found[0] == 0.0
    np.testing.assert_allclose(found, exact, rtol=0.02)


def test_variances_of_prediction_by_eight_probes():
    """Their error is known, and a small share of them; also beside a small residual."""
    for n, sds in ((4000, (1.0, 0.6, 1.0)), (3000, (1.0, 1.0, 0.1))):
        stats = statistics_of("y ~ x + (1|a) + (1|b)", crossed(n, 300, 290, sds=sds).eval("x = a"))
        v = np.append(np.square(sds[:2]), sds[2] ** 2)
        exact = BlockedLikelihood(stats, reml=True).solution(v)
        engine = IterativeLikelihood(stats, reml=True)
        found, error = engine.solution(v), engine._effect_variances(v)[2]
        shares = [
            a / b - 1.0 for a, b in zip(found.conditional_var, exact.conditional_var, strict=True)
        ]
        reached = max(np.sqrt(np.mean(np.square(share))) for share in shares)
        assert 0.5 * error < reached < 1.5 * error < 5e-3
        for a, b in zip(found.prediction_var, exact.prediction_var, strict=True):
            np.testing.assert_allclose(a, b, rtol=0.02)


@pytest.mark.parametrize("formula", ["y ~ (1|a) + (1|b)", "y ~ (1|a) + (1|b) + (1|c)"])
def test_errors_of_the_log_likelihood_do_not_grow_with_the_ratios(formula):
    """The errors are known, whatever the residual, and 0.01 or so where they were 3."""
    rng = np.random.default_rng(5)
    data = crossed(6000, 400, 350).assign(c=rng.integers(0, 300, 6000))
    stats = statistics_of(formula, data)
    exact = BlockedLikelihood(stats, reml=True)
    for residual in (1.0, 1e-3, 1e-6):
        v = np.append([1.0, 0.7, 0.5][: stats.n_terms], residual)
        engines = [IterativeLikelihood(stats, reml=True, seed=seed) for seed in range(12)]
        errors = np.array([e.loglike(v) - exact.loglike(v) for e in engines])
        known = np.array([e.loglike_error(v) for e in engines])
        share = np.sqrt(np.mean(np.square(errors)) / np.mean(np.square(known)))
        assert 0.5 < share < 1.6
        assert known.max() < (0.05 if stats.n_terms == 2 else 0.5)


def test_variances_of_prediction_are_not_guessed():
    stats = statistics_of("y ~ (1|a) + (1|b)", few_a_level())
    solution = IterativeLikelihood(stats, reml=True).solution(np.array([1.0, 1.0, 0.09]))
    assert np.isnan(solution.prediction_var[0]).all()
    solution = IterativeLikelihood(stats, reml=True).solution(np.array([1.0, 0.0, 1.0]))
    np.testing.assert_array_equal(solution.conditional_var[1], 0.0)
    np.testing.assert_array_equal(solution.effects[1], 0.0)


def test_too_few_probes():
    stats = accumulate(model_of("crossed").statistics.rows)
    with pytest.raises(EstimationError, match="n_probes must be at least 2, not 1"):
        IterativeLikelihood(stats, reml=True, n_probes=1)


@pytest.mark.parametrize(
    ("formula", "levels", "n_probes", "v"),
    [
        ("y ~ (1|a) + (1|b)", (20_000, 20_000), 8, (1.0, 0.4, 1.1)),
        ("y ~ x + z + w + (1|a) + (1|b)", (30_000, 8_000), 8, (1.0, 0.4, 1.1)),
        ("y ~ (1|a) + (1|b)", (30_000, 8_000), 32, (1.0, 0.4, 1.1)),
        ("y ~ (1|a) + (1|b) + (1|c)", (3000, 4000, 2000), 32, (1.0, 0.4, 0.3, 1.1)),
        ("y ~ (1|a) + (1|b) + (1|c)", (3000, 4000, 2000), 32, (1.0, 0.0, 0.3, 1.1)),
    ],
    ids=["two", "covariates", "probes", "three", "zero"],
)
def test_memory_estimate(formula, levels, n_probes, v):
    rng, n = np.random.default_rng(1), 200_000 if len(levels) == 2 else 60_000
    data = {f: rng.integers(0, q, n) for f, q in zip("abc", levels, strict=False)}
    data |= dict(zip("xzwy", rng.normal(size=(4, n)), strict=True))
    stats = statistics_of(formula, data)
    v, estimated = np.array(v), iterative_memory(stats, n_probes)
    few = statistics_of("y ~ (1|a) + (1|b)", crossed(300, 20, 30))
    IterativeLikelihood(few, reml=True).derivatives(np.ones(3))  # imports what it needs
    tracemalloc.start()
    engine = IterativeLikelihood(stats, reml=True, n_probes=n_probes)
    engine.derivatives(1.1 * v)
    engine = engine.started(1.1 * v)  # as a climb
    engine.derivatives(v)
    engine.loglike(v)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Threads hold columns at the same time or not; a term at zero needs fewer columns.
    assert taken <= estimated <= (1.3 if v.all() else 2.0) * taken


def test_memory_is_estimated_before_it_is_taken():
    stats = statistics_of("y ~ (1|a) + (1|b)", crossed(3000, 150, 300))
    few, many = iterative_memory(stats, 16), iterative_memory(stats, 1000)
    assert 0.0 < few < many
    with pytest.raises(EstimationError, match=r"iterative engine needs .* are free"):
        IterativeLikelihood(stats, reml=True, free_bytes=lambda: 0.5 * few)


def test_a_graph_that_hangs_together_too_loosely_is_refused():
    stats = statistics_of("y ~ (1|a) + (1|b)", crossed(3000, 150, 300))
    equations = build_sparse_equations(stats, (1, 0))
    b = np.random.default_rng(1).normal(size=(150, 2))
    with pytest.raises(EstimationError, match="in 3 steps"):
        equations.at(np.array([1.0, 1.0, 1.0])).solve(b, None, 1e-8, most_products=3)


def test_probes():
    probes = Rademacher(5, seed=3)
    both = probes.columns((0, 2), (40, 30), 0, 5)
    assert probes.count((40, 30)) == 5
    assert set(np.unique(both)) == {-1.0, 1.0}
    # A term's signs are its own, whatever stands beside it and however they are cut.
    np.testing.assert_array_equal(both[40:, 2:4], probes.columns((2,), (30,), 2, 4))
    assert (both[:30] != probes.columns((2,), (30,), 0, 5)).any()
    units = np.hstack([AllUnits().columns((0, 2), (3, 2), a, b) for a, b in ((0, 2), (2, 5))])
    np.testing.assert_allclose(units @ units.T / AllUnits().count((3, 2)), np.eye(5), atol=1e-15)


# Parts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(5, 9, 3), (4, 4), (7,), (2, 30, 2, 8), (40_000, 3)])
@pytest.mark.parametrize("n_levels", [0, 2, 3, 4, 8, 12, 100])
def test_small_terms_are_the_smallest_that_have_few_groups_together(sizes, n_levels):
    """Never the largest: and of equal ones the last comes first."""
    order = sorted(range(len(sizes)), key=lambda t: (sizes[t], -t))[:-1]
    most = min(n_levels, iterative_context._LEVEL_EFFECTS / sum(sizes))
    expected, total = [], 0
    for t in order:
        total += sizes[t]
        if total > most:
            break
        expected.append(t)
    assert iterative_context.small_terms(sizes, n_levels) == expected


@pytest.mark.parametrize("n", [1, 2, 9])
def test_covariances_of_means_and_of_estimates(n):
    rng = np.random.default_rng(n)
    samples = rng.normal(size=(3, n)) + 5.0
    found = iterative._covariance_of_mean(samples)
    expected = np.cov(samples) / n if n > 1 else np.zeros((3, 3))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)
    half, units = rng.normal(size=(3, 5)), np.array([1e-4, 1.0, 1e3])
    information, noise = (half @ half.T) * np.outer(units, units), half @ half.T
    free = np.array([True, n != 2, True])
    block = np.ix_(free, free)
    inverse = np.linalg.inv(information[block])
    sandwich = iterative._sandwich(information, noise, free)
    np.testing.assert_allclose(sandwich, inverse @ noise[block] @ inverse, rtol=1e-8)


def test_four_fifths_of_the_memory_may_be_used():
    stats = vcomp.VarianceComponentsModel(*unbalanced("three facets")).statistics.cross_products
    for n_probes in (40, 50):
        needed = iterative_memory(stats, n_probes)
        more = iterative_memory(stats, n_probes + 1) - needed
        tail = sum(stats.sizes) - max(stats.sizes)
        small = iterative_context.small_terms(stats.sizes, iterative_context.LEVELS)
        # All probes are solved for at once, and their solutions kept with where they start.
        assert more == 24.0 * (tail - sum(stats.sizes[t] for t in small))
        for factor, is_refused in ((1.001, False), (0.999, True)):

            def made(free=factor * needed / 0.8, n=n_probes):
                return IterativeLikelihood(stats, reml=True, n_probes=n, free_bytes=lambda: free)

            if is_refused:
                with pytest.raises(vcomp.EstimationError, match="the iterative engine needs"):
                    made()
            else:
                assert made().n_fixed == stats.n_fixed


@pytest.mark.parametrize(
    ("sizes", "entries", "affordable"),
    [
        # In 0.12 s: 2e-9 s for a column, large term, and entry or tenth of an effect.
        ((2_000, 1_500), 30_000, int(0.12 / (2e-9 * 2 * 45_000))),
        ((1_500, 2_000), 30_000, int(0.12 / (2e-9 * 2 * 45_000))),
        ((2_000, 1_500, 20), 30_000, int(0.12 / (2e-9 * 2 * 45_000))),
        ((2_000, 1_500, 200), 30_000, int(0.12 / (2e-9 * 3 * (90_000 + 17_000)))),
        ((2_000, 300), 3_000, 300),  # no more than the effects that are solved for
        ((2_000,), 0, 0),
    ],
)
def test_time_of_an_evaluation(sizes, entries, affordable):
    pairs = {
        p: SimpleNamespace(indices=np.zeros(entries)) for p in combinations(range(len(sizes)), 2)
    }
    stats = SimpleNamespace(sizes=sizes, n_terms=len(sizes), n_fixed=1, pairs=pairs)
    assert iterative_context.affordable_probes(stats) == affordable
    tail = iterative_context.tail_sizes(stats)
    assert tail == sorted((n for n in sizes if n > 128), reverse=True)[1:]
    seconds = [iterative_context.seconds_of(stats, n) for n in (0, 100, 200)]
    each = (
        2e-9 * (1 + len(tail)) * max(entries * (1 + len(tail)) * len(tail) / 2 + 10 * sum(tail), 1)
    )
    assert seconds[0] == pytest.approx(1e-3 + 16 * each, rel=1e-12)
    np.testing.assert_allclose(np.diff(seconds), 100 * each, rtol=1e-10)


def test_small_terms_have_a_number_of_levels_together():
    small = iterative_context.small_terms
    assert small((50, 3, 4), 7) == [1, 2]
    assert small((50, 3, 4), 6) == [1]
    assert small((50, 3, 4), 2) == []
    assert small((3, 3), 100) == [1]  # never the largest; of equal ones the first is
    most = int(iterative_context._LEVEL_EFFECTS)
    assert small((most // 5 - 5, 5), 10) == [1]
    assert small((most // 5 - 4, 5), 10) == []


def test_a_covariance_of_means_of_two_samples():
    found = iterative._covariance_of_mean(np.array([[1.0, 3.0], [5.0, 1.0]]))
    np.testing.assert_array_equal(found, [[1.0, -2.0], [-2.0, 4.0]])
    np.testing.assert_array_equal(iterative._covariance_of_mean(np.ones((2, 1))), np.zeros((2, 2)))
    samples = np.random.default_rng(1).normal(size=(2, 5))
    found = iterative._covariance_of_mean(samples)
    np.testing.assert_allclose(found, np.cov(samples) / 5, rtol=1e-13)


@pytest.mark.parametrize("v", [(1.0, 0.4, 0.3, 1.1), (1.0, 0.0, 0.3, 1.1)], ids=["all", "zero"])
@pytest.mark.parametrize("reml", [True, False])
def test_monte_carlo_errors_are_those_of_single_probes(v, reml):
    """The covariance of the mean of their scores, between the inverses of the information."""
    v, data = np.array(v), crossed(600, 60, 90)
    data["c"] = np.random.default_rng(3).integers(0, 40, 600)
    stats = statistics_of("y ~ (1|a) + (1|b) + (1|c)", data)
    engine = IterativeLikelihood(stats, reml=reml, seed=1, n_probes=8, n_levels=0, tol=1e-13)
    point = engine._at(v)
    traces = point.traces(reml=reml)
    assert traces.shape == (3, 8)
    # s_t = ½ (y'P V_t P y − tr), and Σ v_t s_t = ½ (y'Py − degrees) of every probe.
    terms = np.array([0.5 * (r @ r - each) for r, each in zip(point.PZy, traces, strict=True)])
    total = 0.5 * (point.yPy - (stats.n - (stats.n_fixed if reml else 0)))
    scores = np.vstack([terms, (total - v[:-1] @ terms) / v[-1]])
    np.testing.assert_allclose(engine.derivatives(v).score, scores.mean(axis=1), rtol=1e-9)
    free = np.ix_(v > 0.0, v > 0.0)
    inverse = np.linalg.inv(engine.information(v, "average")[free])
    expected = np.zeros((4, 4))
    expected[free] = inverse @ (np.cov(scores) / 8)[free] @ inverse
    found = engine.monte_carlo(v)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9 * expected.max())
    values = -0.5 * point.log_determinants(reml=reml)
    assert values.size == 8
    expected_error = values.std(ddof=1) / np.sqrt(8.0)
    assert engine.loglike_error(v) == pytest.approx(expected_error, rel=1e-10)


@pytest.mark.parametrize("tol", [1e-13, 1e-4])
@pytest.mark.parametrize("v", [(0.0, 0.7, 0.3, 1.1), (0.8, 0.4, 2.0, 0.6)], ids=["zero", "all"])
def test_samples_of_probes_are_those_of_dense_matrices(v, tol):
    """Of each probe, less its known first-order error; at zero with a solve's error squared."""
    rng, sizes, v, n = np.random.default_rng(5), (25, 40, 30), np.array(v), 200
    codes = [rng.permutation(np.append(np.arange(q), rng.integers(0, q, n - q))) for q in sizes]
    data = {**dict(zip("abc", codes, strict=True)), "y": rng.normal(size=n)}
    stats = statistics_of("y ~ (1|a) + (1|b) + (1|c)", data)
    engine = IterativeLikelihood(stats, reml=False, n_probes=20, seed=3, n_levels=0, tol=tol)
    Z, s2 = [np.eye(q)[c] for q, c in zip(sizes, codes, strict=True)], v[-1]
    engine.derivatives(np.where(v > 0.0, 0.5, 0.0))  # solves begin at these solutions
    active = [t for t in (1, 2, 0) if v[t] > 0.0]
    lead, tail = Z[1], np.hstack([Z[t] for t in active[1:]])
    A = np.diagonal(lead.T @ lead) + s2 / v[1]
    B = lead.T @ tail
    ridge = np.repeat([s2 / v[t] for t in active[1:]], [sizes[t] for t in active[1:]])
    S = tail.T @ tail + np.diag(ridge) - B.T @ (B / A[:, None])
    D = np.diagonal(S)[:, None]
    z = Rademacher(20, 3).columns(tuple(active[1:]), tuple(sizes[t] for t in active[1:]), 0, 20)
    ends = np.cumsum([0, *(sizes[t] for t in active[1:])])
    U = np.column_stack(
        [np.repeat(np.eye(len(active) - 1)[j], np.diff(ends)) for j in range(len(active) - 1)]
    )
    H = np.linalg.solve(S, D * U)
    along = H @ np.linalg.solve(U.T @ (D * H), H.T)
    M = np.diag(1.0 / D[:, 0]) - U @ np.linalg.solve(U.T @ (D * U), U.T)
    near, squares = along + M, B.T @ (B / A[:, None] ** 2)
    of_lead = np.sum(z * (squares @ (np.linalg.solve(S, z) - near @ z)), axis=0)
    of_lead += np.sum(1.0 / A) + np.trace(squares @ near)
    near = near - M @ (S - np.diag(D[:, 0])) @ M
    of_tail = z * (np.linalg.solve(S, z) - near @ z) + np.diagonal(near)[:, None]
    inverse = [of_lead, *(of_tail[i:j].sum(axis=0) for i, j in pairwise(ends))]
    traces = engine._at(v).traces(reml=False)
    for t, of_t in zip(active, inverse, strict=True):
        np.testing.assert_allclose(
            traces[t], sizes[t] / v[t] - s2 * of_t / v[t] ** 2, rtol=tol**0.5
        )
    V = s2 * np.eye(n) + sum(s * x @ x.T for s, x in zip(v, Z, strict=False))
    for t in np.flatnonzero(v[:-1] == 0.0):
        Zz = Z[t] @ Rademacher(20, 3).columns((int(t),), (sizes[t],), 0, 20)
        expected = np.sum(Zz * np.linalg.solve(V, Zz), axis=0)
        np.testing.assert_allclose(traces[t], expected, rtol=max(10.0 * tol**2, 1e-12))
    M = S / np.sqrt(D @ D.T)
    values, vectors = np.linalg.eigh(M)
    logs = np.log(values) @ (vectors.T @ z) ** 2 - (np.sum(z * (M @ z), axis=0) - len(S))
    W = np.sqrt(D) * U / np.sqrt(np.sum(D * U, axis=0))
    K = np.eye(W.shape[1]) - W.T @ M @ W
    if W.size:
        K -= logm(W.T @ np.linalg.solve(M, W))
    logs -= np.sum((W.T @ z) * (K @ W.T @ z), axis=0) - np.trace(K)
    logs += n * np.log(s2) + np.log(A).sum() + np.log(D).sum()
    logs += sum(sizes[t] * np.log(v[t] / s2) for t in active)
    np.testing.assert_allclose(engine._at(v).log_determinants(reml=False), logs, rtol=tol**0.5)


@pytest.mark.parametrize("active", [(1, 3, 0, 2), (3, 0, 2), (1, 2), (3,), ()])
def test_equations_are_those_of_dense_matrices(active):
    """Of four terms of 9, 23, 5 and 14 groups: all parts of them, at some components."""
    rng, sizes = np.random.default_rng(5), (9, 23, 5, 14)
    codes = [np.append(np.arange(q), rng.integers(0, q, 70 - q)) for q in sizes]
    data = {f: rng.permutation(c) for f, c in zip("abcd", codes, strict=True)}
    formula = "y ~ " + " + ".join(f"(1|{f})" for f in "abcd")
    stats = statistics_of(formula, {**data, "y": rng.normal(size=70)})
    equations = build_sparse_equations(stats, active)
    Z = [np.eye(q)[c] for q, c in zip(sizes, data.values(), strict=True)]
    v = np.array([0.7, 1.3, 0.2, 0.9, 1.7])
    lead = Z[active[0]] if active else np.zeros((70, 0))
    tail = np.hstack([np.zeros((70, 0)), *(Z[t] for t in active[1:])])
    ends = np.cumsum([0, *(sizes[t] for t in active[1:])])
    assert [(s.start, s.stop) for s in equations.slices] == list(pairwise(ends))
    assert equations.sizes == tuple(sizes[t] for t in active)
    of_tail = np.diagonal(tail.T @ tail)
    ridge = np.repeat([v[-1] / v[t] for t in active[1:]], equations.sizes[1:])
    np.testing.assert_array_equal(equations.lead_n, np.diagonal(lead.T @ lead))
    np.testing.assert_array_equal(equations.tail_n, of_tail)
    assert equations.coupling.shape == (lead.shape[1], tail.shape[1])
    between = tail.T @ tail - np.diag(of_tail)
    of_lead = tail.T @ lead
    if active[1:]:
        expected = of_lead if len(active) == 2 else np.hstack([of_lead, between])
        np.testing.assert_array_equal(equations.rest.times(np.eye(expected.shape[1])), expected)
    assert equations.rest.shape[0] == len(of_tail)
    if not active:
        return
    system = equations.at(v)
    A = np.diagonal(lead.T @ lead) + v[-1] / v[active[0]]
    B, K = lead.T @ tail, tail.T @ tail + np.diag(ridge)
    S = K - B.T @ (B / A[:, None])
    np.testing.assert_allclose(system.lead, A, rtol=1e-14)
    if tail.shape[1]:
        np.testing.assert_allclose(system.product(np.eye(len(S))), S, atol=1e-12)
        np.testing.assert_allclose(system.diagonal, np.diagonal(S), rtol=1e-12)
    right = rng.normal(size=(lead.shape[1] + len(S), 2))
    first, second = right[: lead.shape[1]], right[lead.shape[1] :]
    C = np.block([[np.diag(A), B], [B.T, K]])
    expected = np.linalg.solve(C, right)
    reduced = system.reduce(first, second)
    np.testing.assert_allclose(reduced.tail, second - B.T @ (first / A[:, None]), atol=1e-12)
    np.testing.assert_allclose(reduced.form, first.T @ (first / A[:, None]), rtol=1e-12)
    if not tail.shape[1]:
        np.testing.assert_allclose(reduced.lead, expected, rtol=1e-12)
        return
    solved = system.solve(reduced.tail.copy(), None, 1e-13)
    np.testing.assert_allclose(solved.x, expected[lead.shape[1] :], rtol=1e-9, atol=1e-10)
    back = system.back(reduced, solved.x)
    np.testing.assert_allclose(back, expected[: lead.shape[1]], rtol=1e-9, atol=1e-10)
    forms = system.forms(reduced, solved.x, solved.residual)
    np.testing.assert_allclose(forms, right.T @ expected, rtol=1e-9)
    # Of a solution that is 10⁻³ off, the forms are 10⁻⁶ off.
    off = 1e-3 * rng.normal(size=solved.x.shape)
    rough = solved.x + off
    error = system.forms(reduced, rough, reduced.tail - S @ rough) - right.T @ expected
    np.testing.assert_allclose(error, -off.T @ S @ off, atol=1e-10)


def test_products_of_pairs_are_those_of_incidences():
    rng = np.random.default_rng(2)
    data = {"a": rng.integers(0, 7, 50), "b": rng.integers(0, 12, 50), "y": rng.normal(size=50)}
    data["a"][:7], data["b"][:12] = np.arange(7), np.arange(12)
    stats = statistics_of("y ~ (1|a) + (1|b)", data)
    Z = [np.eye(7)[data["a"]], np.eye(12)[data["b"]]]
    for t, u in ((0, 0), (0, 1), (1, 0), (1, 1)):
        x = rng.normal(size=(Z[u].shape[1], 3))
        expected = Z[t].T @ Z[u]
        np.testing.assert_allclose(stats.times(t, u, x), expected @ x, rtol=1e-12)
        if t != u:
            np.testing.assert_array_equal(stats.table(t, u).times(np.eye(len(x))), expected)


def few_a_level():
    """Scores by which eight probes leave three hundredths of a standard error."""
    return crossed(800, 300, 290, seed=1, sds=(1.0, 1.0, 0.3))


def test_an_engine_has_more_probes_where_the_error_is_large():
    stats, v = statistics_of("y ~ (1|a) + (1|b)", few_a_level()), np.array([1.0, 1.0, 0.09])
    engine = IterativeLikelihood(stats, reml=False, seed=7, goal=0.01)
    more = engine.with_more_probes(v)
    information = engine.information(v)
    errors = np.diagonal(engine.monte_carlo(v)) / np.diagonal(np.linalg.inv(information))
    wanted = min(int(np.ceil(8 * errors.max() / 0.01**2)), 290)
    assert wanted > 12
    assert more.reason == IterativeLikelihood(stats, reml=False, n_probes=wanted, seed=7).reason
    own = IterativeLikelihood(stats, reml=False, n_probes=wanted, seed=7)
    np.testing.assert_allclose(more.derivatives(v).score, own.derivatives(v).score, rtol=1e-5)
    assert more.loglike(v) == pytest.approx(own.loglike(v), rel=1e-12)
    for enough in (
        IterativeLikelihood(stats, reml=True),  # as requested
        IterativeLikelihood(stats, reml=True, probes=AllUnits(), goal=0.01),
        IterativeLikelihood(stats, reml=True, goal=10.0),
        IterativeLikelihood(stats, reml=True, n_probes=200, goal=1e-5),  # 290 effects
        BlockedLikelihood(stats, reml=True),
    ):
        assert enough.with_more_probes(v) is None


def test_a_fit_has_as_many_probes_as_its_error_requires():
    formula, data = "y ~ (1|a) + (1|b)", few_a_level()
    res, few = (vcomp.fit(formula, data, engine="iterative", n_probes=n) for n in (None, 8))
    steps = res.iterations["step"].tolist()
    assert steps.count("start") == 1
    assert "probes" in steps
    assert "probes" not in few.iterations["step"].tolist()
    # Up to there the climb is that of few probes.
    at = steps.index("probes")
    ours, theirs = res.iterations.filter(like="var("), few.iterations.filter(like="var(")
    np.testing.assert_array_equal(ours[:at], theirs[:at])
    np.testing.assert_array_equal(ours.iloc[at], ours.iloc[at - 1])
    # The maximum is that of all probes, from anywhere; climbs end 1e-3 standard errors from it.
    n = int(res.engine.split(" random probes")[0].split()[-1])
    best = vcomp.fit(formula, data, engine="iterative", n_probes=n)
    assert (np.abs(res.vcomp - best.vcomp) < 2e-3 * res.bse_vcomp).all()
    assert (np.abs(res.vcomp - few.vcomp) < 6.0 * few.mc_error).all()
    assert (few.mc_error / few.bse_vcomp).max() > 0.012
    assert (res.mc_error / res.bse_vcomp < 0.015).all()
    exact = vcomp.fit(formula, data, engine="blocked").vcomp
    assert (np.abs(res.vcomp - exact) < 5.0 * res.mc_error).all()


@pytest.mark.parametrize("max_iter", [1, 2])
def test_steps_end_at_their_limit(max_iter):
    formula, data = "y ~ (1|a) + (1|b)", crossed(4000, 300, 290)
    start = {"a": 30.0, "b": 0.01, "Residual": 5.0}
    with pytest.warns(vcomp.VcompWarning, match="ot converged"):
        res = vcomp.fit(formula, data, engine="iterative", max_iter=max_iter, start=start)
    steps = res.iterations["step"].tolist()
    assert len([s for s in steps if s not in ("start", "probes")]) == max_iter


def test_without_a_value_a_climb_from_far_above_needs_no_halving():
    """Each half step has a smaller decrement, and there are nine of them to the maximum."""
    formula, data = "y ~ (1|a) + (1|b)", crossed(4000, 300, 290)
    start = {"a": 400.0, "b": 40.0, "Residual": 0.9}
    far = vcomp.fit(formula, data, engine="iterative", n_probes=16, start=start)
    steps = far.iterations["step"].tolist()
    assert "EM" in steps[1:3]
    assert len(steps) <= 9
    near = vcomp.fit(formula, data, engine="iterative", n_probes=16)
    np.testing.assert_allclose(far.vcomp, near.vcomp, rtol=1e-5)


def test_rough_steps_lead_to_the_maximum_of_all_probes():
    """The way there has one probe and solves to four digits; no digit of the maximum depends."""
    data = crossed(4000, 300, 290)
    engine = IterativeLikelihood(statistics_of("y ~ (1|a) + (1|b)", data), reml=True)
    rough = engine.rough()
    assert "1 random probes" in rough.reason
    sizes = np.array([300.0, 290.0, 4000.0])
    exact = maximise(engine, engine.mivque0(), sizes, tol=1e-6)
    res = vcomp.fit("y ~ (1|a) + (1|b)", data, engine="iterative", n_probes=8)
    assert (np.abs(res.vcomp - exact.v) < 2e-3 * res.bse_vcomp).all()
    start = engine.after(maximise(rough, engine.mivque0(), sizes, tol=1.0).engine)
    v = np.array([1.0, 0.4, 1.0])
    np.testing.assert_allclose(start.information(v), engine.information(v), rtol=1e-6)


@pytest.mark.parametrize(("engine", "is_kept"), [("iterative", False), ("blocked", True)])
def test_a_fit_by_solves_frees_the_columns_of_the_fixed_part(engine, is_kept):
    """They are as large as the table, and coded again for what needs them after the fit."""
    data = crossed(4_000, 100, 80).assign(x=np.random.default_rng(1).normal(size=4_000))
    model = vcomp.VarianceComponentsModel("y ~ x + (1|a) + (1|b)", data)
    cells, values = model.statistics.cells, model.statistics.cells.columns.copy()
    columns = weakref.ref(cells.columns)
    result = model.fit(engine=engine)
    gc.collect()
    assert (columns() is not None) == is_kept
    np.testing.assert_array_equal(cells.columns, values)
    assert cells.columns is cells.columns
    np.testing.assert_allclose(result.fittedvalues + result.resid, data["y"], rtol=1e-12)

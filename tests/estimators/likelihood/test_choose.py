"""Which engine serves which data, and what is refused."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.designs import unbalanced
from vcomp.estimators.likelihood import choose
from vcomp.estimators.likelihood.blocked_covariance import Eliminations
from vcomp.estimators.likelihood.choose import EngineLimits, choose_engine, prediction_engine
from vcomp.estimators.likelihood.incomplete import CompletedLikelihood
from vcomp.estimators.likelihood.iterative import IterativeLikelihood
from vcomp.statistics import Statistics


def crossed(n_a, n_b, share, seed=1):
    """Return scores of a share of the pairs of levels of two facets."""
    rng = np.random.default_rng(seed)
    a, b = (axis.ravel() for axis in np.indices((n_a, n_b)))
    kept = rng.random(a.size) < share
    y = rng.normal(size=n_a)[a] + rng.normal(size=n_b)[b] + rng.normal(size=a.size)
    return pd.DataFrame({"y": y, "a": a, "b": b})[kept].reset_index(drop=True)


def statistics(data, formula="y ~ (1|a) + (1|b)"):
    return vcomp.VarianceComponentsModel(formula, data).statistics


def test_complete_designs_have_strata_and_others_are_eliminated():
    assert choose_engine(statistics(crossed(6, 7, 1.1)), reml=True).name == "strata"
    assert choose_engine(statistics(crossed(6, 7, 0.8)), reml=True).name == "levels"
    sparse = statistics(crossed(20, 30, 0.05))
    assert sparse.crossed is None
    assert choose_engine(sparse, reml=True).name == "blocked"
    nested = crossed(6, 7, 0.8)
    assert choose_engine(statistics(nested, "y ~ (1|a)"), reml=True).name == "strata"


def test_what_takes_too_long_is_solved_for_iteratively():
    limits = EngineLimits(grid_seconds=0.0, seconds=0.0)
    few, many = statistics(crossed(12, 15, 0.9)), statistics(crossed(12, 15, 0.6))
    assert isinstance(choose_engine(few, reml=True, limits=limits), CompletedLikelihood)
    # Solving for all effects is the shorter way where four tenths of the cells are empty.
    assert many.completed is not None
    assert isinstance(choose_engine(many, reml=True, limits=limits), IterativeLikelihood)
    sparse = statistics(crossed(12, 15, 0.3))
    assert sparse.completed is None
    assert isinstance(choose_engine(sparse, reml=True, limits=limits), IterativeLikelihood)
    no_mean = statistics(crossed(12, 15, 0.9), "y ~ 0 + (1|a) + (1|b)")
    assert isinstance(choose_engine(no_mean, reml=True, limits=limits), CompletedLikelihood)
    # Among more effects than planned no order of elimination is looked for.
    unplanned = EngineLimits(planned=0, seconds=0.0)
    assert isinstance(choose_engine(few, reml=True, limits=unplanned), CompletedLikelihood)
    # Variances of predicted effects are worth waiting for.
    assert prediction_engine(sparse).name in ("blocked", "levels")


def test_an_order_that_is_too_slow_is_looked_for_once(monkeypatch):
    rows = statistics(crossed(60, 70, 0.05))
    stats = Statistics.from_cross_products(rows.cross_products)
    limits = EngineLimits(exact=0.0, patience=1e-9, quick=0.0)
    looked = []
    before = choose._blocked_within

    def counted(*arguments, **options):
        looked.append(1)
        return before(*arguments, **options)

    monkeypatch.setattr(choose, "_blocked_within", counted)
    for reml in (True, False, True):
        found = choose_engine(stats, reml=reml, limits=limits)
        assert isinstance(found, IterativeLikelihood)
        assert found.reml == reml
        # Within the time of a quick fit, and within that of a slow one.
        assert len(looked) == 2
    # Other limits, and other rows, are another question.
    assert choose_engine(stats, reml=True).name == "blocked"


def test_an_exact_engine_may_take_a_second_or_a_third_longer():
    assert EngineLimits().patience == 4.0 / 3.0
    stats = statistics(crossed(60, 70, 0.05))
    assert stats.completed is None
    sums = Statistics.from_cross_products(stats.cross_products)
    iterative = IterativeLikelihood(sums.cross_products, reml=True).seconds
    exact = choose_engine(sums, "blocked", reml=True).seconds
    for limits, name in (
        (EngineLimits(quick=0.0, exact=2.0 * exact, patience=0.0), "blocked"),
        (EngineLimits(quick=0.0, exact=0.0, patience=1.1 * exact / iterative), "blocked"),
        (
            EngineLimits(quick=0.0, exact=0.9 * exact, patience=0.9 * exact / iterative),
            "iterative",
        ),
        (EngineLimits(quick=0.0, exact=2.0 * exact, seconds=0.5 * exact), "iterative"),
    ):
        assert choose_engine(sums, reml=True, limits=limits).name == name


def test_solves_are_preferred_to_levels_that_take_longer():
    """Scores in twos, so that blocks of levels apply, and elimination fills up."""
    twice = pd.concat([crossed(40, 12, 0.3)] * 2)
    stats = statistics(twice)
    levels = choose_engine(stats, "levels", reml=True).seconds
    by_solves = choose_engine(stats, "iterative", reml=True).seconds
    for exact, patience, name in (
        (1.1 * levels, 0.0, "levels"),
        (0.0, 1.1 * levels / by_solves, "levels"),
        (0.9 * levels, 0.9 * levels / by_solves, "iterative"),
    ):
        limits = EngineLimits(quick=0.0, exact=exact, patience=patience, seconds_per_cube=1e6)
        assert choose_engine(stats, reml=True, limits=limits).name == name
    # More effects than these are not ordered where that takes long, and have no pair tables.
    limits = EngineLimits(planned=0, exact=0.0, patience=0.0, order_per_entry=1.0)
    assert choose_engine(stats, reml=True, limits=limits).name == "levels"


def test_cells_of_slow_levels_are_eliminated():
    """With more effects than planned; where an order takes longer than levels, none is sought."""
    twice = pd.concat([crossed(60, 30, 0.4)] * 2)
    stats = statistics(twice, "y ~ (1|a) + (1|b) + (1|a:b)")
    entries = stats.cross_products.n_entries
    levels = choose_engine(stats, "levels", reml=True).seconds
    for cheap_order, order, name in (
        (1e3, 0.0, "blocked"),
        (1e-3, 0.0, "levels"),
        (1e3, 0.9 * levels / entries, "blocked"),
        (1e3, 1.1 * levels / entries, "levels"),
    ):
        limits = EngineLimits(
            quick=0.0, planned=0, cheap_order=cheap_order, order_per_entry=1e-12 + 1e3 / 3 * order
        )
        assert choose_engine(stats, reml=True, limits=limits).name == name


def test_many_rows_have_probes_where_an_exact_fit_takes_far_longer():
    stats = statistics(crossed(60, 70, 0.05))
    sums = Statistics.from_cross_products(stats.cross_products)
    ratio = choose_engine(sums, "blocked").seconds / choose_engine(sums, "iterative").seconds
    for many, exact_ratio, name in (
        (sums.n + 1, 0.5 * ratio, "blocked"),
        (sums.n, 0.5 * ratio, "iterative"),
        (sums.n, 2.0 * ratio, "blocked"),
    ):
        limits = EngineLimits(quick=0.0, patience=0.0, many_rows=many, exact_ratio=exact_ratio)
        assert choose_engine(sums, limits=limits).name == name


def test_numbers_of_probes():
    sums, v = statistics(crossed(300, 280, 0.05)), np.array([1.0, 1.0, 0.09])
    made = partial(choose_engine, sums, "iterative", reml=True)
    one, many = made(), made(repeated=True)
    assert (one.products, many.products) == ({}, {})
    for engine in (one, many):
        assert "traces from 8 random probes" in engine.reason
    assert many.with_more_probes(v) is None
    for repeated in (True, False):
        engine = made(n_probes=9, repeated=repeated)
        assert "traces from 9 random probes" in engine.reason
        assert engine.with_more_probes(v) is None


def test_predictions_are_by_the_engine_of_the_fit():
    data = crossed(12, 15, 0.6)
    exact = vcomp.fit("y ~ (1|a) + (1|b)", data, engine="blocked").random_effects["a"]
    found = vcomp.fit("y ~ (1|a) + (1|b)", data, engine="iterative", rng=1)
    solved = found.random_effects["a"]
    np.testing.assert_allclose(solved["estimate"], exact["estimate"], rtol=1e-2)
    np.testing.assert_allclose(solved["se"], exact["se"], rtol=0.02)
    assert not exact["se"].isna().any()
    assert np.isfinite(found.predict()).all()


def test_what_fills_up_gets_no_plan():
    twice = pd.concat([crossed(40, 12, 0.3)] * 2)
    stats, limits = statistics(twice), EngineLimits(seconds_per_cube=1e6)
    assert stats.crossed is None
    assert choose_engine(stats, reml=True).name == "blocked"
    # A plan would show that it takes no time.
    assert choose_engine(stats, reml=True, limits=limits).name == "levels"
    without_rows = Statistics.from_cross_products(stats.cross_products)
    assert without_rows.levels is None
    assert choose_engine(without_rows, reml=True, limits=limits).name == "iterative"


def test_nested_terms_do_not_fill_up():
    rng = np.random.default_rng(2)
    pupil = np.arange(400)
    school = pupil // 8
    teacher = rng.permutation(pupil) // 8
    y = rng.normal(size=400) + rng.normal(size=50)[school]
    data = pd.DataFrame({"y": y, "school": school, "teacher": teacher, "pupil": pupil // 2})
    sums = statistics(data, "y ~ (1|pupil) + (1|school) + (1|teacher)").cross_products
    assert not choose._fills_up(sums, 10.0, seconds_per_cube=1e6)


def test_what_does_not_fit_is_solved_for_iteratively():
    stats, limits = statistics(crossed(30, 20, 0.3)), EngineLimits(free_bytes=lambda: 1e3)
    assert choose_engine(stats, reml=True, limits=limits).name == "iterative"
    with pytest.raises(vcomp.EstimationError, match=r"needs .* [GM]iB.* engine='iterative'"):
        choose_engine(stats, "blocked", reml=True, limits=limits)


def test_engines_that_cannot_serve_say_so():
    with pytest.raises(vcomp.EstimationError, match="needs a facet that is fully crossed"):
        vcomp.fit("y ~ (1|a) + (1|b)", crossed(6, 7, 0.8), engine="strata")
    with pytest.raises(vcomp.EstimationError, match="it is one of 'auto', 'strata'"):
        vcomp.fit("y ~ (1|a) + (1|b)", crossed(6, 7, 0.8), engine="dense")


def test_the_result_says_which_engine_and_why():
    res = vcomp.fit("y ~ (1|a) + (1|b)", crossed(6, 7, 1.1))
    assert res.engine == "strata: 2 fully crossed facets give 4 orthogonal strata"
    res = vcomp.fit("y ~ (1|a) + (1|b)", crossed(6, 7, 0.8))
    assert res.engine == "levels: 7 levels of 6 cells, 19.0% of them empty, in one table"
    res = vcomp.fit("y ~ (1|a) + (1|b)", crossed(6, 7, 0.8), engine="blocked")
    assert res.engine.startswith("blocked: all 13 columns dense")


# Limits, at their values ------------------------------------------------------------------------


@pytest.mark.parametrize(("n_holes", "kind"), [(4, CompletedLikelihood), (5, IterativeLikelihood)])
def test_a_grid_with_up_to_a_fifth_of_holes_is_completed(n_holes, kind):
    table = crossed(5, 4, 1.1)
    data = table.drop(index=[0, 5, 10, 15, 17][:n_holes])
    stats = statistics(data)
    assert stats.completed.holes.n == n_holes
    limits = EngineLimits(grid_seconds=0.0, seconds=0.0)
    assert isinstance(choose_engine(stats, reml=True, limits=limits), kind)


@pytest.mark.parametrize(
    ("n_holes", "kind"), [(500, CompletedLikelihood), (501, IterativeLikelihood)]
)
def test_a_grid_with_up_to_500_holes_is_completed(n_holes, kind):
    data = crossed(60, 50, 1.1)
    stats = statistics(data[np.random.default_rng(1).permutation(len(data)) >= n_holes])
    assert stats.completed.holes.n == n_holes
    limits = EngineLimits(grid_seconds=0.0, seconds=0.0)
    assert isinstance(choose_engine(stats, reml=True, limits=limits), kind)


@pytest.mark.parametrize("n_terms", [3, 4])
def test_a_grid_with_more_holes_is_completed_for_more_than_three_terms(n_terms):
    rng = np.random.default_rng(0)
    a, b, c = (axis.ravel() for axis in np.indices((5, 4, 6)))
    data = pd.DataFrame({"y": rng.normal(size=120), "a": a, "b": b, "c": c})
    terms = ["(1|a)", "(1|b)", "(1|c)", "(1|a:b)"][:n_terms]
    stats = statistics(data[rng.random(120) < 0.7], "y ~ " + " + ".join(terms))
    assert 0.2 < stats.completed.holes.n / 120 < 0.5
    engine = choose_engine(stats, reml=True, limits=EngineLimits(grid_seconds=0.0, seconds=0.0))
    kind = CompletedLikelihood if n_terms == 4 else IterativeLikelihood
    assert type(engine) is kind


def by_levels(m, i, seed=0):
    """Return statistics with levels that are not those of two crossed facets."""
    rng = np.random.default_rng(seed)
    codes = np.stack([axis.ravel() for axis in np.indices((m, i))])
    twice = np.concatenate([codes, codes], axis=1)[:, rng.random(2 * m * i) < 0.6]
    data = pd.DataFrame({"a": twice[0], "i": twice[1], "y": rng.normal(size=twice.shape[1])})
    stats = statistics(data, "y ~ (1|a) + (1|i) + (1|a:i)")
    assert stats.crossed is None
    assert stats.levels is not None
    return stats


def test_of_levels_and_blocks_the_faster_one_serves():
    """A fit by blocks costs as much as two evaluations more: it has to be twice as fast."""
    for m, i in ((2, 6), (3, 60), (12, 200), (30, 40)):
        stats = by_levels(m, i)
        levels, blocked = (choose_engine(stats, e, reml=True) for e in ("levels", "blocked"))
        limits = EngineLimits(quick=0.0, quick_per_row=0.0, seconds_per_entry=0.0)
        expected = "blocked" if blocked.seconds <= levels.seconds else "levels"
        assert choose_engine(stats, reml=True, limits=limits).name == expected
        # Where there are many effects an order of elimination that takes long is not looked for.
        total = sum(stats.sizes)
        for planned, name in ((total, expected), (total - 1, "levels")):
            few = EngineLimits(
                quick=0.0,
                quick_per_row=0.0,
                seconds_per_entry=0.0,
                planned=planned,
                order_per_entry=1.0,
            )
            assert choose_engine(stats, reml=True, limits=few).name == name


@pytest.mark.parametrize("quick", [0.0, 0.4])
@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_no_levels_are_considered_where_blocks_are_quick(quick, factor):
    """In so many seconds, and more for each row; if a factor is not expected to be slow."""
    stats = by_levels(12, 200)
    levels, blocked = (choose_engine(stats, e, reml=True) for e in ("levels", "blocked"))
    assert levels.seconds < blocked.seconds
    most = factor * blocked.seconds
    every = {"quick": quick * most, "quick_per_row": (1.0 - quick) * most / stats.n}
    none = {"seconds_per_entry": 0.0, "seconds_per_effect": 0.0}
    name = "blocked" if factor > 1.0 else "levels"
    limits = EngineLimits(**every, **none)
    assert choose_engine(stats, reml=True, limits=limits).name == name
    # A factor has all pairs of levels and all levels at least.
    n_entries, n_effects = stats.cross_products.n_entries, sum(stats.sizes)
    for share, found in ((0.98, name), (1.02, "levels")):
        least = {
            "seconds_per_entry": 0.3 * share * most / n_entries,
            "seconds_per_effect": 0.7 * share * most / n_effects,
        }
        limits = EngineLimits(**every, **least)
        assert choose_engine(stats, reml=True, limits=limits).name == found


def test_levels_have_to_evaluate_in_time_and_to_fit_into_memory():
    for stats in (by_levels(12, 200), statistics(crossed(60, 70, 0.4))):
        engine = choose_engine(stats, "levels", reml=True)
        assert engine.seconds > 0.0
        assert engine.bytes > 0.0
        for limits, is_used in (
            (EngineLimits(quick=0.0, planned=0, seconds=1.01 * engine.seconds), True),
            (EngineLimits(quick=0.0, planned=0, seconds=0.99 * engine.seconds), False),
            (EngineLimits(planned=0, free_bytes=lambda e=engine: 1.01 * e.bytes / 0.8), True),
            (EngineLimits(planned=0, free_bytes=lambda e=engine: 0.99 * e.bytes / 0.8), False),
        ):
            found = choose._crossed(stats, limits, reml=True) or choose._levels(
                stats, limits, reml=True
            )
            if stats.crossed is not None:  # which is asked first
                found = choose._crossed(stats, limits, reml=True)
            assert (found is not None) == is_used


@pytest.mark.parametrize("n", [36, 40, 44, 48, 200])
@pytest.mark.parametrize("seed", range(3))
def test_what_fills_up_is_counted_by_pairs_of_neighbours(seed, n):
    rng = np.random.default_rng(seed)
    sizes = rng.permutation([40, 14, 9])
    data = pd.DataFrame({f: rng.integers(0, q, n) for f, q in zip("abc", sizes, strict=True)})
    sums = statistics(
        data.assign(y=rng.normal(size=n)), "y ~ (1|a) + (1|b) + (1|c)"
    ).cross_products
    lead = "abc"[int(np.argmax(sums.sizes))]
    degrees = data.groupby(lead).nunique().sum(axis=1)
    rest = sum(sums.sizes) - max(sums.sizes)
    assert choose._fills_up(sums, 0.99 * rest**3, 1.0) == bool(
        np.square(degrees).sum() > 0.5 * rest**2
    )
    assert not choose._fills_up(sums, 1.0 * rest**3, 1.0)


def test_equations_that_are_analysed_serve_all_of_a_fit():
    """REML, ML and what follows a fit share the last factor, until the statistics are gone."""
    formula, data = unbalanced("three facets")
    stats = vcomp.VarianceComponentsModel(formula, data).statistics
    names = [f"t{t}" for t in range(stats.n_terms)]
    first = choose_engine(stats, reml=True, names=names)
    assert first.name == "blocked"
    v = np.ones(stats.n_terms + 1)
    for reml in (True, False):
        for known in (None, names):
            other = choose_engine(stats, reml=reml, names=known)
            assert other.point(v) is first.point(v)
            assert other.reml == reml
    # Messages need their names, and other limits another choice.
    renamed = choose_engine(stats, reml=True, names=names[::-1])
    limited = choose_engine(stats, reml=True, limits=EngineLimits())
    assert len({id(e.point(v)) for e in (first, renamed, limited)}) == 3
    kept = weakref.ref(first.eliminations)
    del first, other, renamed, limited, stats
    gc.collect()
    assert kept() is None


def test_large_factors_are_not_kept():
    formula, data = unbalanced("three facets")
    stats = vcomp.VarianceComponentsModel(formula, data).statistics
    eliminations = choose_engine(stats, reml=True).eliminations
    needed = eliminations._whole_plan.bytes_for_norms
    for kept_bytes, are_small in ((needed, True), (0.99 * needed, False)):
        found = Eliminations(stats.cross_products, kept_bytes=kept_bytes)
        assert found.are_small is are_small
        found.keep(np.ones(stats.n_terms + 1))
        other = found.with_response(stats.cross_products)
        v = np.ones(stats.n_terms + 1)
        assert (other.at(v).factor is found.at(v).factor) is are_small


def _meeting(kind):
    """Return levels of two terms: at random, within blocks, along a line, or with giant levels."""
    rng, n, q = np.random.default_rng(1), 30_000, 1_500
    a = rng.integers(0, q, n)
    return {
        "random": (a, rng.integers(0, q, n)),
        "blocks": (a, a // 30 * 30 + rng.integers(0, 30, n)),
        "line": (a, np.clip(a + rng.integers(-4, 5, n), 0, q - 1)),
        "sparse": (rng.integers(0, 6_000, 18_000), rng.integers(0, 6_000, 18_000)),
        "giants": (a, np.where(rng.random(n) < 0.5, rng.integers(0, 20, n), 20 + a // 3)),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "fills"),
    [("random", True), ("sparse", True), ("blocks", False), ("line", False), ("giants", False)],
)
def test_no_order_is_searched_where_levels_meet_at_random(kind, fills):
    """What a level reaches grows by each step, unless the neighbours have met."""
    a, b = _meeting(kind)
    data = pd.DataFrame({"y": np.random.default_rng(2).normal(size=a.size), "a": a, "b": b})
    sums = statistics(data).cross_products
    assert choose._fills_up(sums, 1e-9, 1e-9) == fills
    dense = 1e-9 * (0.5 * min(sums.sizes)) ** 3  # half of the levels, dense
    assert not choose._fills_up(sums, 1.01 * dense, 1e-9)
    planned = choose._blocked_within(statistics(data), 0.02, EngineLimits(), reml=True, names=None)
    assert (planned is None) == fills

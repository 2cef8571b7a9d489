"""The levels engine against elimination; other forms are compared in test_conformance.py."""

from __future__ import annotations

import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vcomp
from tests.helpers.cases import alternately
from vcomp.estimators.likelihood import EngineLimits, choose_engine
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.levels import LevelsLikelihood
from vcomp.statistics import Statistics, find_level_grid

CROSSED = "y ~ (1|m) + (1|i) + (1|p) + (1|m:i) + (1|m:p) + (1|i:p)"
NESTED = (
    "y ~ (1|p) + (1|a) + (1|t) + (1|t:d) + (1|p:a) + (1|p:t) + (1|a:t) + (1|p:a:t) + (1|p:t:d) "
    "+ (1|a:t:d)"
)


NESTED_PAIRS = "y ~ (1|p) + (1|t) + (1|t:d) + (1|p:t) + (1|p:a:t) + (1|p:t:d)"


def crossed(kept, seed=0, times=1, **sizes):
    """Return a part of the cells of crossed facets, of each some scores."""
    rng = np.random.default_rng(seed)
    grid = np.meshgrid(*(np.arange(n) for n in sizes.values()), indexing="ij")
    frame = pd.DataFrame({f: g.ravel() for f, g in zip(sizes, grid, strict=True)})
    frame = pd.concat([frame] * times)
    frame = frame[rng.random(len(frame)) < kept].reset_index(drop=True)
    frame["x"] = rng.normal(size=len(frame))
    frame["y"] = 3.0 + rng.normal(size=len(frame))
    for facet, n in sizes.items():
        frame["y"] += rng.normal(size=n)[frame[facet]]
    return frame


def documents(kept, times=1):
    """Return scores of documents within topics, and of topics within tracks."""
    data = crossed(kept, seed=4, times=times, p=4, a=3, d=40)
    return data.assign(t=data["d"] % 7, u=data["d"] % 7 % 3)


CASES = {
    "few holes": (CROSSED, crossed(0.9, m=4, i=15, p=3)),
    "half missing": (CROSSED, crossed(0.5, m=4, i=15, p=3)),
    "most missing": (CROSSED, crossed(0.25, m=4, i=20, p=3)),
    "complete": (CROSSED, crossed(1.0, m=4, i=9, p=3)),
    "unequally replicated": (CROSSED + " + (1|m:i:p)", crossed(0.7, times=3, m=4, i=9, p=3)),
    "replicated": (
        CROSSED + " + (1|m:i:p)",
        pd.concat([crossed(0.8, seed=s, m=3, i=9, p=3).assign(r=s) for s in (1, 1)]),
    ),
    "covariate": ("y ~ x + C(m) + (1|i) + (1|m:i)", crossed(0.8, times=2, m=4, i=15)),
    "no fixed part": ("y ~ 0 + (1|m) + (1|i)", crossed(0.8, m=4, i=15)),
    "one way": ("y ~ (1|i)", crossed(0.6, times=4, i=15)),
    "nested": (NESTED, documents(0.8)),
    "nested, mostly missing": (NESTED, documents(0.3)),
    "twice nested": (
        "y ~ x + (1|u) + (1|t) + (1|d) + (1|p:u) + (1|p:d) + (1|a)",
        documents(0.6, times=2),
    ),
    "nested alone": ("y ~ (1|u/t/d)", documents(0.5)),
}


def engines(name, *, reml):
    formula, data = CASES[name]
    model = vcomp.VarianceComponentsModel(formula, data)
    stats = model.statistics
    assert stats.levels is not None
    blocked = BlockedLikelihood(stats.cross_products, reml=reml)
    return model, LevelsLikelihood(stats.levels, reml=reml), blocked


def points(k, seed=1):
    """Return components: all above zero, and some at zero."""
    v = np.random.default_rng(seed).uniform(0.2, 2.0, k + 1)
    yield v
    yield np.where(np.arange(k + 1) % 2 == k % 2, v, 0.0)


def near(found, wanted, digits=1e-9):
    np.testing.assert_allclose(found, wanted, rtol=0.0, atol=digits * np.abs(wanted).max())


def test_many_levels_are_inverted_in_two_threads():
    """The blocks of these have 1.3e8 multiplications."""
    model = vcomp.VarianceComponentsModel(CROSSED, crossed(0.7, m=40, i=200, p=3))
    stats = model.statistics
    levels = LevelsLikelihood(stats.levels, reml=True)
    blocked = BlockedLikelihood(stats.cross_products, reml=True)
    v = next(points(levels.grid.n_terms))
    found, wanted = levels.derivatives(v), blocked.derivatives(v)
    assert found.loglike == pytest.approx(wanted.loglike, rel=1e-12)
    near(found.score, wanted.score)
    near(levels.information(v, "expected"), blocked.information(v, "expected"))
    again = LevelsLikelihood(stats.levels, reml=True).derivatives(v)
    assert (again.score == found.score).all()


@pytest.mark.parametrize(
    ("name", "method"),
    alternately(["few holes", "half missing", "nested", "covariate"], "reml", "ml"),
)
def test_fits_are_the_same(name, method):
    formula, data = CASES[name]
    by_levels, blocked = (
        vcomp.fit(formula, data, method=method, engine=e) for e in ("levels", "blocked")
    )
    np.testing.assert_allclose(by_levels.vcomp, blocked.vcomp, rtol=1e-7, atol=1e-9)
    assert by_levels.llf == pytest.approx(blocked.llf, abs=1e-9)
    np.testing.assert_allclose(by_levels.bse_vcomp, blocked.bse_vcomp, rtol=1e-5)
    assert "levels of" in str(by_levels.certificate)


@given(st.integers(0, 2**32 - 1))
def test_any_holes(seed):
    """Any crossed table with holes and repeated scores, against elimination."""
    rng = np.random.default_rng(seed)
    sizes = dict(zip("mip", rng.integers(1, 7, 3).tolist(), strict=True))
    data = crossed(rng.uniform(0.1, 1.0), seed, int(rng.integers(1, 3)), **sizes)
    terms = [t for t in ("m", "i", "p", "m:i", "i:p") if rng.random() < 0.6] or ["i"]
    formula = "y ~ " + " + ".join(f"(1|{t})" for t in terms)
    try:
        stats = vcomp.VarianceComponentsModel(formula, data).statistics
        levels = LevelsLikelihood(stats.levels, reml=True)
    except vcomp.VcompError:
        return
    blocked = BlockedLikelihood(stats.cross_products, reml=True)
    v = rng.uniform(0.1, 2.0, len(terms) + 1)
    found, wanted = levels.derivatives(v), blocked.derivatives(v)
    assert found.loglike == pytest.approx(wanted.loglike, rel=1e-10)
    near(found.score, wanted.score)
    near(found.average, wanted.average)
    near(levels.information(v), blocked.information(v), 1e-8)


def test_cells_may_stand_for_parts_of_scores():
    """Numbers of scores need not be whole."""
    formula, data = CASES["few holes"]
    chunk = vcomp.VarianceComponentsModel(formula, data).statistics.rows
    counts = np.where(np.arange(len(data)) % 2 == 0, 0.5, 1.5)
    counts[0] += round(counts.sum()) - counts.sum()
    weighted = replace(chunk, counts=counts)
    levels = LevelsLikelihood(find_level_grid(weighted), reml=True)
    products = Statistics(make_cells=lambda: weighted).cross_products
    v = np.arange(1.0, 8.0) / 5.0
    found = levels.derivatives(v)
    wanted = BlockedLikelihood(products, reml=True).derivatives(v)
    assert found.loglike == pytest.approx(wanted.loglike, rel=1e-12)
    near(found.score, wanted.score)
    near(found.average, wanted.average)


def test_a_level_without_rows_has_no_place():
    """Of the facet itself, and of one in which it is nested."""
    formula, data = CASES["nested"]
    chunk = vcomp.VarianceComponentsModel(formula, data).statistics.rows
    assert find_level_grid(chunk) is not None
    for facet in range(len(chunk.facet_sizes)):
        sizes = list(chunk.facet_sizes)
        if sizes[facet] in (7, 40):
            sizes[facet] += 1
            assert find_level_grid(replace(chunk, facet_sizes=tuple(sizes))) is None


def test_tables_that_are_too_wide_have_no_levels():
    rng = np.random.default_rng(0)
    wide = pd.DataFrame({"a": rng.integers(0, 3000, 9000), "b": rng.integers(0, 3000, 9000)})
    stats = vcomp.VarianceComponentsModel(
        "y ~ (1|a) + (1|b)", wide.assign(y=1.0 * wide["a"])
    ).statistics
    assert stats.levels is None
    with pytest.raises(vcomp.EstimationError, match="engine='levels' needs rows, and one facet"):
        vcomp.fit("y ~ (1|a) + (1|b)", wide.assign(y=rng.normal(size=9000)), engine="levels")


def test_many_items_with_holes_are_fitted_by_levels():
    data = crossed(0.9, m=12, i=900, p=3)
    res = vcomp.fit(CROSSED, data)
    assert "Engine: levels" in str(res.certificate)
    # Without memory or time it is another one.
    stats = res.model.statistics
    for limits in (EngineLimits(free_bytes=lambda: 1e4), EngineLimits(seconds=0.0)):
        assert choose_engine(stats, reml=True, limits=limits).name != "levels"


@pytest.mark.parametrize(
    ("name", "reml"),
    alternately(
        ["few holes", "half missing", "covariate", "nested", "twice nested", "nested alone"],
        True,
        False,
    ),
)
def test_forms_of_effects_are_those_of_elimination(name, reml):
    """Of all terms, and of those over several levels alone, which need no table of cells."""
    _, levels, blocked = engines(name, reml=reml)
    depths = np.array([term.depth for term in levels.grid.terms])
    for terms in (np.arange(depths.size).tolist(), np.flatnonzero(depths).tolist()):
        if not terms:
            continue
        for v in points(levels.grid.n_terms):
            found, wanted = (engine.effect_forms(v, terms) for engine in (levels, blocked))
            for one, other in ((found.within, wanted.within), (found.full, wanted.full)):
                values = np.linalg.eigvalsh(other)
                np.testing.assert_allclose(
                    np.linalg.eigvalsh(one), values, rtol=1e-8, atol=1e-9 * values[-1]
                )
            for t in terms:
                ours = np.sort(found.fitted[found.term == t])
                near(ours, np.sort(wanted.fitted[wanted.term == t]))


@pytest.mark.parametrize(("engine", "method"), [("levels", "reml"), ("blocked", "ml")])
def test_a_higher_maximum_in_a_term_of_few_levels_is_found(method, engine):
    """One judge of twelve has some scores that are far off; the others are alike."""
    data = crossed(0.9, times=2, i=100, j=12)
    data = data[(data["j"] < 11) | (np.arange(len(data)) % 60 == 0)]
    rng = np.random.default_rng(0)
    data["y"] = rng.normal(size=100)[data["i"]] + rng.normal(size=len(data))
    data["y"] += 9.0 * (data["j"] == 11) - data.groupby("j")["y"].transform("mean")
    formula = "y ~ (1|i) + (1|j) + (1|i:j)"
    lower = vcomp.fit(formula, data, method=method, engine=engine, hold={"j": 0.0})
    stats = vcomp.VarianceComponentsModel(formula, data).statistics
    likelihood = LevelsLikelihood(stats.levels, reml=method == "reml")
    at_zero = lower.vcomp.to_numpy()
    assert likelihood.derivatives(at_zero).score[1] < 0.0  # a maximum
    wanted = vcomp.fit(formula, data, method=method, engine="blocked", start={"j": 9.0})
    for start in (None, {"j": 0.0}, lower.vcomp.to_dict()):
        found = vcomp.fit(formula, data, method=method, engine=engine, start=start)
        assert found.llf == pytest.approx(wanted.llf, abs=1e-8)
        assert found.llf > lower.llf + 1.0
        np.testing.assert_allclose(found.vcomp, wanted.vcomp, rtol=1e-6)


def test_levels_of_one_pattern_are_adjacent():
    """Their order, by a number that few patterns share, loses none."""
    for name in ("half missing", "unequally replicated", "nested, mostly missing"):
        grid = engines(name, reml=True)[1].grid
        assert sum(a.n for a in grid.alike) == grid.n_nodes[0]
        for a in grid.alike:
            here, rows = grid.counts[a.levels], np.arange(a.n)[:, None]
            cells = np.repeat(a.cells, np.diff(a.bounds), axis=0)
            filled = np.zeros(here.shape, dtype=bool)
            filled[rows, cells] = True
            assert ((here > 0.0) == (filled ^ a.by_holes)).all()
            assert (a.at == cells + rows * grid.n_cells).all()
            assert len(np.unique(np.hstack([a.cells, a.counts]), axis=0)) == len(a.cells)
            assert a.pair_n.sum() == a.n
            assert (a.pair_node[a.pair] == grid.parents[0][a.levels]).all()


def test_tables_of_pairs_are_made_when_needed():
    formula, data = CASES["few holes"]
    stats = vcomp.VarianceComponentsModel(formula, data).statistics
    again = pickle.loads(pickle.dumps(stats.cross_products.pairs))
    assert again.keys() == stats.cross_products.pairs.keys()
    assert len(again) == 15
    assert (again[0, 1].counts == stats.cross_products.pairs[0, 1].counts).all()


@pytest.mark.parametrize(
    ("formula", "sizes"),
    [
        (NESTED_PAIRS, {"p": 6, "a": 3, "d": 300}),
        ("y ~ C(w) + (1|m) + (1|i)", {"m": 24, "i": 40}),
    ],
    ids=["many nodes", "many columns"],
)
def test_the_memory_of_an_evaluation_is_expected(formula, sizes):
    """Up to a third more than expected, as arrays of one operation are not counted one by one."""
    data = crossed(0.7, **sizes)
    if "d" in data:
        data["t"] = data["d"] % 100
    data["w"] = np.arange(len(data)) % 30
    engine = LevelsLikelihood(
        vcomp.VarianceComponentsModel(formula, data).statistics.levels, reml=True
    )
    v = np.full(engine.grid.n_terms + 1, 0.5)
    engine.information(v, "expected")  # what is made once is not of an evaluation
    tracemalloc.start()
    engine.information(0.9 * v, "expected")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.1 * engine.bytes < peak < 1.3 * engine.bytes

"""Forms of the effects of few levels, and the maxima along single components."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.fuzz.small_tables import case
from tests.helpers.dense_likelihood import DenseLikelihood
from vcomp.estimators.likelihood import choose_engine, maximise


def grid(**sizes):
    """Return a complete table with a covariate and normal scores."""
    rows = itertools.product(*(range(n) for n in sizes.values()))
    data = pd.DataFrame(list(rows), columns=list(sizes))
    rng = np.random.default_rng(len(data))
    return data.assign(x=rng.normal(size=len(data)), y=rng.normal(size=len(data)))


NESTED = grid(p=4, a=3, d=3, i=3).query("d < 2 or i < 2")
HOLES = grid(j=5, i=9).iloc[::-1].iloc[3:].query("j * i != 6")
DESIGNS = {
    "strata, groups of cells": ("y ~ x + (1|p*a*d)", NESTED, "strata"),
    "strata, one term": ("y ~ x + (1|i)", HOLES, "strata"),
    "strata, nested": ("y ~ x + (1|j/i)", pd.concat([HOLES, HOLES]), "strata"),
    "strata, crossed rest": (
        "y ~ x + (1|r) + (1|j) + (1|i)",
        HOLES.merge(grid(r=4)[["r"]], how="cross").assign(
            y=lambda d: np.random.default_rng(1).normal(size=len(d))
        ),
        "strata",
    ),
    "two crossed facets": ("y ~ x + (1|j) + (1|i)", HOLES, "levels"),
    "levels": ("y ~ x + (1|j) + (1|i) + (1|i:j)", pd.concat([HOLES, HOLES[::2]]), "levels"),
    "blocked": ("y ~ x + (1|j) + (1|i)", HOLES, "blocked"),
    "without fixed effects": ("y ~ 0 + (1|j) + (1|i)", HOLES, "levels"),
}


@pytest.mark.parametrize("reml", [True, False])
@pytest.mark.parametrize("name", DESIGNS)
def test_forms_of_effects_are_those_of_matrices_of_all_rows(name, reml):
    """Also between terms: but for the order of the effects within a term."""
    formula, data, wanted = DESIGNS[name]
    model = vcomp.VarianceComponentsModel(formula, data)
    engine = choose_engine(model.statistics, wanted, reml=reml)
    assert engine.name == wanted
    terms, dense = list(range(len(engine.sizes))), DenseLikelihood(model, reml=reml)
    for seed, zeros in ((1, []), (2, [0]), (3, [len(terms) - 1])):
        v = np.random.default_rng(seed).uniform(0.2, 2.0, len(terms) + 1)
        v[zeros] = 0.0
        found = engine.effect_forms(v, terms)
        _, Vi, P, _, _ = dense.matrices(v)
        for t, u in itertools.product(terms, terms):
            rows, columns = found.term == t, found.term == u
            for ours, middle in ((found.within, P), (found.full, P if reml else Vi)):
                block = dense.Z[t].T @ middle @ dense.Z[u]
                scale = np.abs(middle).max()
                np.testing.assert_allclose(
                    np.linalg.svd(ours[np.ix_(rows, columns)], compute_uv=False),
                    np.linalg.svd(block, compute_uv=False),
                    atol=1e-10 * scale,
                )
            left, right = dense.Z[t].T @ P @ dense.y, dense.Z[u].T @ P @ dense.y
            assert found.fitted[rows] @ found.within[np.ix_(rows, columns)] @ found.fitted[
                columns
            ] == pytest.approx(left @ dense.Z[t].T @ P @ dense.Z[u] @ right, rel=1e-9)


def test_single_cells_have_no_forms_however_their_rows_were_read():
    """From batches they would take another pass over the data."""
    model = vcomp.VarianceComponentsModel("y ~ x + (1|p*a*d) + (1|d:i) + (1|p:d:i)", NESTED)
    engine = choose_engine(model.statistics, "strata", reml=True)
    assert engine.effect_forms(np.ones(len(engine.sizes) + 1), [*range(len(engine.sizes))]) is None


@pytest.mark.parametrize("engine", ["auto", "strata", "blocked", "levels"])
def test_the_higher_of_two_maxima_of_two_levels_is_found(engine, shared_data):
    """The one at zero is a maximum too, from which no likelihood ratio test would tell of h."""
    data = pd.read_csv(shared_data("two_levels_ml.csv"))
    formula = "y ~ f + e + x + (1|h)"
    res = vcomp.fit(formula, data, method="ml", engine=engine)
    # From a dense scan of the ratio in steps of 1e-4.
    assert res.llf == pytest.approx(-81.9246612473, abs=1e-9)
    assert res.vcomp["h"] == pytest.approx(0.1949574, abs=1e-7)
    (other,) = res.certificate.others
    assert other.components["h"] == 0.0
    assert other.drop == pytest.approx(-81.9246612473 + 82.0528865469, abs=1e-9)
    assert res.test("h", "lrt").statistic == pytest.approx(2.0 * other.drop, abs=1e-8)


@pytest.mark.parametrize("seed", [0, 3])
def test_other_starts_cost_at_most_a_third_of_the_first_climb(seed):
    """Of a grid of 648 rows with components at zero."""
    data = grid(p=9, a=6, d=4, i=3)
    rng = np.random.default_rng(seed)
    data["y"] = rng.normal(size=9)[data["p"]] + rng.normal(size=len(data))
    formula = "y ~ (1|p*a*d) + (1|d:i) + (1|p:d:i) + (1|a:d:i)"
    model = vcomp.VarianceComponentsModel(formula, data)
    engine = choose_engine(model.statistics, reml=True)
    start = np.full(len(engine.sizes) + 1, 0.1)
    sizes = np.array([*engine.sizes, engine.n], dtype=float)
    once, whole = (maximise(engine, start, sizes, once=x) for x in (True, False))
    assert (once.v == 0.0).any()
    assert whole.evaluations <= 4 / 3 * once.evaluations


def test_other_starts_cost_a_third_beside_a_term_whose_levels_are_single_cells():
    """The 92 items are; the component of the three levels of a is zero."""
    sizes = (30, 3, 4, 23)
    p, a, d, i = np.indices(sizes).reshape(4, -1)
    rng = np.random.default_rng(0)
    y = rng.normal(size=30)[p] + 0.5 * rng.normal(size=4)[d] + 0.5 * rng.normal(size=(4, 23))[d, i]
    y += 0.4 * rng.normal(size=(30, 3))[p, a] + rng.normal(size=p.size)
    data = pd.DataFrame({"p": p, "a": a, "d": d, "i": 23 * d + i, "y": y})
    data["y"] -= data.groupby("a")["y"].transform("mean")
    formula = "y ~ (1|p) + (1|a) + (1|d) + (1|i) + (1|p:a) + (1|p:d)"
    model = vcomp.VarianceComponentsModel(formula, data)
    engine = choose_engine(model.statistics, "strata", reml=True)
    start = np.full(len(engine.sizes) + 1, 0.1)
    sizes = np.array([*engine.sizes, engine.n], dtype=float)
    once, whole = (maximise(engine, start, sizes, once=x) for x in (True, False))
    assert (once.v == 0.0).any()
    assert whole.evaluations <= 4 / 3 * once.evaluations
    assert whole.loglike == pytest.approx(once.loglike, abs=1e-9)


def test_other_starts_of_small_tables_cost_at_most_a_third_of_the_first_climb():
    """Of 20 unbalanced tables of 5 to 25 rows with two or three terms, together."""
    counts = []
    for number in range(40):
        made = case(number)
        if len(made.terms) > 1:
            model = vcomp.VarianceComponentsModel(made.formula, made.data)
            engine = choose_engine(model.statistics, reml=made.reml)
            sizes = np.array([*engine.sizes, engine.n], dtype=float)
            found = (
                maximise(engine, np.full(sizes.size, 0.1), sizes, once=x) for x in (True, False)
            )
            counts.append([one.evaluations for one in found])
    once, whole = np.sum(counts, axis=0)
    assert len(counts) > 20
    assert once < whole <= 4 / 3 * once


@pytest.mark.parametrize("start", [{"a": 0.06, "a:b": 0.0}, {"a": 0.0, "a:b": 0.08}])
def test_a_maximum_with_another_component_in_place_of_one_is_found(start):
    """From either of two maxima: of a alone, and of a:b alone, which is higher."""
    rng = np.random.default_rng(247)
    a, b = (rng.choice(4, 52, p=[0.55, 0.35, 0.07, 0.03]) for _ in "ab")
    y = rng.choice([0.6, 1.0]) * rng.normal(size=16)[4 * a + b] + rng.normal(size=52)
    data = pd.DataFrame({"a": a, "b": b, "y": y.round(2)})
    start = start | {"b": 0.0, "Residual": 0.8}
    res = vcomp.fit("y ~ (1|a) + (1|b) + (1|a:b)", data, start=start)
    (other,) = res.certificate.others
    assert [name for name, v in res.vcomp.items() if v > 0.0] == ["a:b", "Residual"]
    assert [name for name, v in other.components.items() if v > 0.0] == ["a", "Residual"]
    assert other.drop == pytest.approx(0.010805, abs=1e-6)
    model = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b) + (1|a:b)", data)
    dense = DenseLikelihood(model, reml=True)
    lower = dense.loglike(np.array(list(other.components.values())))
    assert dense.loglike(res.vcomp.to_numpy()) - lower == pytest.approx(other.drop, abs=1e-9)

"""Where a maximisation starts again: doubtful terms, forms of few levels, and what is found."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.fuzz.small_tables import case
from tests.helpers.dense_likelihood import DenseLikelihood
from vcomp.estimators.likelihood import choose_engine, maximise
from vcomp.estimators.likelihood.starts import EffectForms, OtherStarts

FREE = np.zeros(3, dtype=bool)


def test_a_term_of_which_the_data_say_nothing_leaves_a_doubt():
    """Rounding may make its average information negative."""
    v, some = np.array([2.0, 1.0, 3.0]), np.diag([100.0, 100.0, 10.0])
    starts = OtherStarts(FREE, np.array([5.0, 5.0, 40.0]))
    assert starts.doubtful(v, some, lambda: some).tolist() == [False, False, False]
    for least in (-1e-17, 0.0):
        average = np.diag([100.0, least, 10.0])
        found = starts.doubtful(v, average, lambda average=average: average)
        assert found.tolist() == [False, True, False]


@pytest.mark.parametrize("rows", [40.0, 60.0])
def test_shares_add_up_to_the_total(rows):
    """Of all starts, in small tables and in others; a held component has none."""
    for held in (FREE, np.array([False, True, False])):
        for top in (0.5, 0.9):
            v = np.array([top, 0.0, 1.0 - top])
            starts = OtherStarts(held, np.array([5.0, 4.0, rows]))
            shares = starts.elsewhere(v, starts.free)
            assert len(shares) > 1
            assert (shares >= 0.0).all()
            assert (shares[:, held] == 0.0).all()
            np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-14)


def test_a_term_with_most_of_the_total_keeps_it_at_some_starts():
    """Beside it the other terms are exchanged: they would not be from equal shares."""
    v = np.array([0.97, 0.02, 0.0, 0.01])
    starts = OtherStarts(np.zeros(4, dtype=bool), np.array([2.0, 5.0, 6.0, 12.0]))
    beside = [row for row in starts.elsewhere(v, starts.free) if row[0] == 0.97]
    assert {tuple(row[1:3] > 0.0) for row in beside} == {
        (True, True),
        (True, False),
        (False, True),
    }


def test_crowded_tables_have_about_as_many_effects_as_rows():
    for rows, crowded in ((8.0, True), (9.0, True), (10.0, False)):
        for n_fixed in (0, 1):  # the effects have a mean, if the fixed part has none
            starts = OtherStarts(FREE, np.array([5.0, 4.0, rows]), n_fixed=n_fixed)
            assert starts.is_crowded is crowded
            least = starts.elsewhere(np.ones(3), starts.free)[:, -1].min()
            assert bool(least < 1e-6) is crowded


def sets_of(free, size, residuals):
    """Return the shares of all sets of terms, large sets first, beside residuals of any share."""
    every = [c for n in range(len(free), 0, -1) for c in combinations(free, n)]
    shares = []
    for chosen, residual in product(every, residuals):
        row = [0.0] * size
        for term in chosen:
            row[term] = (1.0 - residual) / len(chosen)
        row[-1] = residual
        shares.append(row)
    return shares


def alike(found, expected):
    """Compare rows, which sets of equal size may have in any order."""
    expected = np.array(expected)
    assert found.shape == expected.shape
    order = [np.lexsort(np.round(rows, 12).T) for rows in (found, expected)]
    np.testing.assert_allclose(found[order[0]], expected[order[1]], rtol=1e-14, atol=1e-16)
    sizes = [np.count_nonzero(rows[:, :-1], axis=1) for rows in (found, expected)]
    np.testing.assert_array_equal(*sizes)


@pytest.mark.parametrize("held", [(), (1,), (0, 2)])
@pytest.mark.parametrize("crowded", [True, False])
@pytest.mark.parametrize(
    "v", [[1.0, 1.0, 1.0, 1.0], [0.05, 0.05, 0.0, 0.9], [0.9, 0.03, 0.0, 0.07], [0.8, 0.1, 0, 0.1]]
)
def test_starts_of_small_tables_are_all_sets_of_terms(held, crowded, v):
    """Also next to no residual if effects may fit the rows, and as the first climb found it."""
    v = np.array(v)
    mask = np.isin(np.arange(4), held)
    free = [t for t in range(3) if t not in held]
    effects = 4 * len(free)
    rows = effects + 2 if crowded else effects + 3  # of 5 levels each, less one, and a mean
    starts = OtherStarts(mask, np.array([5.0, 5.0, 5.0, rows]))
    assert starts.is_crowded is crowded
    shares = [0.5, 0.01, 1e-7] if crowded else [0.5, 0.01]
    if v[-1] > 0.8 * v.sum():
        shares = [v[-1] / v.sum(), *shares]
    expected = [*sets_of(free, 4, shares), [0.0, 0.0, 0.0, 1.0]]
    top = max((t for t in range(3)), key=lambda t: v[t] if t in free else 0.0)
    share = v[top] / v.sum()
    if 0.8 < share < 1.0:
        beside = sets_of([t for t in free if t != top], 4, [0.5, 0.1])
        for row in beside:
            own = [(1.0 - share) * x for x in row]
            own[top] = share
            expected.append(own)
    alike(starts.elsewhere(v, starts.free), expected)


@pytest.mark.parametrize(("terms", "rows"), [(3, 51.0), (4, 30.0)])
def test_starts_of_other_tables_are_doubtful_terms_above_the_others(terms, rows):
    held = np.zeros(terms + 1, dtype=bool)
    held[1] = terms == 4
    sizes = np.append(np.full(terms, 5.0), rows)
    starts = OtherStarts(held if rows > 50 else np.zeros(terms + 1, dtype=bool), sizes)
    doubtful = np.arange(terms + 1) == 2
    found = starts.elsewhere(np.ones(terms + 1), doubtful)
    equal = np.full(terms + 1, 1.0 / (terms + 1))
    above = np.full(terms + 1, 0.1)
    above[2] += terms
    np.testing.assert_allclose(found, [equal, above / above.sum()], rtol=1e-14)


@pytest.mark.parametrize("n_free", [3, 4])
def test_up_to_three_terms_and_fifty_rows_are_a_small_table(n_free):
    held = np.arange(6) >= n_free
    held[-1] = False
    starts = OtherStarts(held, np.append(np.full(5, 20.0), 50.0))
    n_starts = len(starts.elsewhere(np.ones(6), starts.free))
    assert n_starts == (7 * 3 + 1 if n_free == 3 else 1 + 4)
    larger = OtherStarts(held, np.append(np.full(5, 20.0), 51.0))
    assert len(larger.elsewhere(np.ones(6), starts.free)) == 1 + n_free


def doubtful(v, sizes, average, observed=None, held=(False, False, False)):
    starts = OtherStarts(np.array(held), np.array(sizes))
    inner = None if observed is None else lambda: observed
    return starts.doubtful(np.array(v), np.diag(average), inner).tolist()


def test_a_component_at_zero_leaves_a_doubt_if_its_levels_are_few():
    far = [1e3, 1e3, 1e3]
    for levels, expected in ((99.0, True), (100.0, False)):
        for observed in (None, np.diag(far)):
            found = doubtful([0.0, 1.0, 1.0], [levels, 500.0, 900.0], far, observed)
            assert found == [expected, False, False]
    assert (
        doubtful([0.0, 1.0, 1.0], [9.0, 9.0, 90.0], far, held=(True, False, False)) == [False] * 3
    )
    # The residual is no term.
    assert doubtful([1.0, 1.0, 0.0], [9.0, 9.0, 9.0], far) == [False] * 3


def test_few_degrees_of_freedom_leave_a_doubt():
    """2 σ⁴ I is below 12, the data are not as if balanced, and no term has all of the variance."""
    v, sizes = [1.0, 1.0, 1.0], [9.0, 9.0, 90.0]
    for information, expected in ((5.99, True), (6.01, False)):
        average = [information, 50.0, 50.0]
        unlike = np.diag([2.0 * information, 50.0, 50.0])
        assert doubtful(v, sizes, average, unlike) == [expected, False, False]
        assert doubtful(v, sizes, average) == [False] * 3  # not known to be unlike
    average = [5.0, 50.0, 50.0]
    for change, expected in ((0.019, False), (0.021, True)):
        observed = np.diag(average)
        observed[0, 1] = observed[1, 0] = change * np.sqrt(5.0 * 50.0)
        assert doubtful(v, sizes, average, observed) == [expected, False, False]
    same = np.diag(average)
    for rows, expected in ((20.0, True), (21.0, False)):
        assert doubtful(v, [9.0, 9.0, rows], average, same) == [expected, False, False]
    for top, expected in ((0.951, True), (0.949, False)):
        shares = [0.5 * (1.0 - top), top, 0.5 * (1.0 - top)]
        average = [1e5, 5.0, 1e5]
        assert doubtful(shares, sizes, average, np.diag(average)) == [False, expected, False]


def test_held_terms_and_the_residual_leave_no_doubt():
    """Whatever few degrees of freedom they have, and however unlike their informations are."""
    v, sizes = [1.0, 1.0, 1.0, 1.0], [9.0, 9.0, 9.0, 90.0]
    average = [5.0, 50.0, 5.0, 5.0]
    held = (True, False, False, False)
    unlike = np.diag([5.0, 50.0, 6.0, 5.0])
    assert doubtful(v, sizes, average, unlike, held) == [False, False, True, False]
    # Those of a held term and of one at zero are not compared; both tables are as if balanced.
    alike = np.diag([9.0, 50.0, 5.0, 5.0])
    assert doubtful(v, sizes, average, alike, held) == [False] * 4
    free = (False,) * 4
    assert doubtful(v, sizes, average, alike, free) == [True, False, True, False]
    at_zero = doubtful([0.0, 1.0, 1.0, 1.0], [500.0, 9.0, 9.0, 90.0], average, alike, free)
    assert at_zero == [False] * 4


@pytest.mark.parametrize(
    ("held", "rows", "along"),
    [
        ((), 51.0, True),
        ((), 50.0, False),  # a small table
        ((0,), 50.0, False),
        ((0, 1), 50.0, True),  # one term is left
    ],
)
def test_maxima_are_sought_along_single_components(held, rows, along):
    is_held = np.isin(np.arange(4), held)
    starts = OtherStarts(is_held, np.array([5.0, 4.0, 7.0, rows]))
    assert starts.are_along_components is along


def test_terms_with_few_levels_have_fewer_than_100():
    starts = OtherStarts(np.arange(4) == 2, np.array([99.0, 100.0, 7.0, 400.0]))
    assert starts.with_few_levels.tolist() == [True, False, False, False]


def test_starts_have_a_residual():
    """Also beside a term that has all of the total but for less than its rounding."""
    starts = OtherStarts(FREE, np.array([5.0, 4.0, 40.0]))
    for v in ([1.0, 0.0, 1e-17], [1.0, 0.0, 1e-15]):
        assert v[0] / sum(v) == 1.0 or v[2] == 1e-15
        shares = starts.elsewhere(np.array(v), starts.free)
        assert (shares[:, -1] > 0.0).all()


# Forms of the effects of few levels, and other maxima ------------------------------------------


def grid(**sizes):
    """Return a complete table with a covariate and normal scores."""
    rows = product(*(range(n) for n in sizes.values()))
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
        for t, u in product(terms, terms):
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_other_starts_of_small_tables_cost_at_most_a_third_of_the_first_climb():
    """Of 13 unbalanced tables of 5 to 25 rows with two or three terms, together."""
    counts = []
    for number in range(24):
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
    assert len(counts) > 10
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


@pytest.mark.parametrize("engine", ["strata", "blocked"])
def test_a_maximum_on_a_flat_ridge_of_the_grid_is_found(engine):
    a, b = [1, 3, 2, 1, 3, 0], [0, 0, 3, 0, 1, 0]
    y = np.array([3.04, -4.48, 2.99, 0.11, 0.02, 8.83])
    data = pd.DataFrame({"y": y, "a": a, "b": b})
    res = vcomp.fit("y ~ 0 + (1|a) + (1|a:b)", data, engine=engine)
    labels = [f"{i}:{j}" for i, j in zip(a, b, strict=True)]
    Z = [np.equal.outer(of, np.unique(of)).astype(float) for of in (a, labels)]
    found = res.vcomp.to_numpy()
    V = sum(v * K @ K.T for v, K in zip(found[:-1], Z, strict=True)) + found[-1] * np.eye(6)
    dense = -0.5 * (np.linalg.slogdet(V)[1] + y @ np.linalg.solve(V, y) + 6 * np.log(2 * np.pi))
    assert dense == pytest.approx(-17.255205874199273, abs=1e-9)
    assert res.llf == pytest.approx(dense, abs=1e-11)
    assert "another maximum of the log-likelihood is only 0.00022 lower" in res.status


@pytest.mark.parametrize("ratio", [0.0, 1e4])
def test_a_maximum_along_a_component_is_found_from_far_away(ratio):
    """In a balanced layout it is where the analysis of variance has it; steps are 5 %."""
    n, codes, rng = 4, np.repeat(np.arange(5), 4), np.random.default_rng(0)
    y = 1.2 * rng.normal(size=5)[codes] + rng.normal(size=codes.size)
    cells = y.reshape(5, n)
    wanted = (n * cells.mean(axis=1).var(ddof=1) / cells.var(axis=1, ddof=1).mean() - 1.0) / n
    Z, one = np.eye(5)[codes], np.ones((y.size, 1))
    inverse = np.linalg.inv(ratio * Z @ Z.T + np.eye(y.size))
    P = inverse - inverse @ one @ one.T @ inverse / (one.T @ inverse @ one)
    full, v = Z.T @ P @ Z, np.array([ratio, 1.0])
    forms = EffectForms(v, np.zeros(5, dtype=np.int64), full, full, Z.T @ P @ y)
    places = forms.other_maxima(np.array([True, False]), float(y @ P @ y), y.size - 1)
    assert [a / b for a, b in places] == [pytest.approx(wanted, rel=0.05)]

"""Which assumptions are tested of what, at the limits of each rule."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import levene

from vcomp.inference.assumptions.assessment import (
    DiagnosedRows,
    PredictedEffects,
    _equal_variances,
    assess,
)
from vcomp.inference.assumptions.two_way_table import TwoWayTable

NONE = "Residuals are not tested: there are none once all effects are removed."


def rows_of(y, crossed=None, **codes):
    """Return rows whose facets are terms; facets are crossed with nothing unless said."""
    codes = {name: np.asarray(code) for name, code in codes.items()}
    labels = {name: [f"{name}{k}" for k in range(int(c.max()) + 1)] for name, c in codes.items()}
    crossed = crossed or dict.fromkeys(codes, ())
    X = np.ones((len(y), 1))
    return DiagnosedRows(
        np.asarray(y, dtype=float), codes, labels, list(codes.values()), X, crossed
    )


def assessed(rows, effects=(), **options):
    return assess("a fit", effects, rows, (), ("as before",), n=99, seed=3, **options)


def levels(*sizes):
    return np.repeat(np.arange(len(sizes)), sizes)


RNG = np.random.default_rng(11)
NORMAL = RNG.normal(size=400)
HEAVY = NORMAL**5


@pytest.mark.parametrize(("size", "enough"), [(7, False), (8, True)])
def test_effects_need_eight_levels_that_differ(size, enough):
    rows = rows_of(NORMAL[:40], a=levels(10, 10, 10, 10))
    values = np.linspace(-1.0, 1.0, size) ** 3
    terms = [
        PredictedEffects("some", values, 0.8, str), PredictedEffects("same", np.ones(9), 0.5, str)
    ]  # fmt: skip
    found = assessed(rows, terms)
    assert found.not_tested[0] == "as before"
    said = [line for line in found.not_tested if "The distribution of the effects" in line]
    assert len(said) == (1 if enough else 2)
    assert said[-1].endswith("effects of same is not tested: it needs 8 levels that differ.")
    assert [sample.name for sample in found.samples] == (["some"] if enough else []) + [
        "residuals"
    ]
    if enough:
        np.testing.assert_array_equal(found.samples[0].values, values)
    rest = assessed(rows)  # streams are those of each test
    assert [t.p_value for t in rest.tests] == [t.p_value for t in found.tests][-len(rest.tests) :]


def equal_variances(found):
    return [test for test in found.tests if test.assumption == "equal variances"]


@pytest.mark.parametrize(
    ("sizes", "lacking"),
    [((2,) * 8, True), ((2,) * 7 + (3,), False), ((16,), True), ((8, 8), False)],
)
def test_rows_have_to_be_exchanged(sizes, lacking):
    """Between two levels at least, one of which has three rows."""
    n = sum(sizes)
    found = assessed(rows_of(NORMAL[:n], a=levels(*sizes)))
    said = any("rows that could exchange" in line for line in found.not_tested)
    assert said == lacking
    assert len(equal_variances(found)) == (0 if lacking else 1)


@pytest.mark.parametrize(("shared", "lacking"), [(False, True), (True, False)])
def test_levels_exchange_rows_of_one_group(shared, lacking):
    """Rows that agree in what a facet is crossed with: each of one of its levels, or of two."""
    a = levels(6, 6)
    b = np.arange(12) % 3 if shared else np.arange(12) // 3
    found = assessed(rows_of(NORMAL[:12], {"a": ("b",), "b": ()}, a=a, b=b))
    said = [line for line in found.not_tested if "rows that could exchange" in line]
    assert any("levels of a are" in line for line in said) == lacking
    assert sum("by a" in test.of for test in equal_variances(found)) == (0 if lacking else 1)


@pytest.mark.parametrize(
    ("sizes", "few"),
    [((7, 7, 7, 7), True), ((8, 8, 8, 8), False), ((7, 7, 30), True), ((2, 8, 30), False)],
)
def test_few_scores_need_normal_residuals(sizes, few):
    n, said = sum(sizes), "with fewer than 8 scores of a level"
    strange = assessed(rows_of(HEAVY[:n], a=levels(*sizes)))
    normality = [t.p_value for t in strange.tests if t.assumption == "normality"]
    assert min(normality) <= 0.05
    assert any(said in line for line in strange.not_tested) == few
    assert len(equal_variances(strange)) == (0 if few else 1)
    usual = assessed(rows_of(NORMAL[:n], a=levels(*sizes)))
    assert min(t.p_value for t in usual.tests if t.assumption == "normality") > 0.05
    assert not any(said in line for line in usual.not_tested)


def test_normality_with_a_p_value_of_alpha_is_rejected():
    """As everywhere: the level is the largest p-value that is significant."""
    low, high = 0.0, 1.0
    for _ in range(60):  # p falls with the share of what is not normal
        share = 0.5 * (low + high)
        y = NORMAL[:28] + share * HEAVY[:28]
        found = assessed(rows_of(y, a=levels(7, 7, 7, 7)))
        p = next(t.p_value for t in found.tests if t.assumption == "normality")
        if p == 0.05:
            break
        low, high = (low, share) if p < 0.05 else (share, high)
    assert p == 0.05
    assert any("with fewer than 8 scores" in line for line in found.not_tested)


@pytest.mark.parametrize(("values", "few"), [(10, True), (11, False)])
def test_few_values_are_not_normal(values, few):
    grid = np.linspace(-2.0, 2.0, values)
    y = grid[np.abs(NORMAL[:70, None] - grid).argmin(axis=1)]
    y[:values] = grid
    found = assessed(rows_of(y, a=np.arange(70) % 10))
    assert np.unique(y).size == values
    assert min(t.p_value for t in found.tests if t.assumption == "normality") > 0.05
    assert any("with fewer than 8 scores" in line for line in found.not_tested) == few


def test_tables_of_many_columns_have_fewer_draws():
    """Twenty million numbers, of which 48 columns count three times: 992 draws, of which 979."""
    rows, table = rows_of(np.ones(4), a=levels(2, 2)), TwoWayTable.of(RNG.normal(size=(140, 48)))
    found = assess("", (), rows, (table,), (), n=None, seed=1).tables[0]
    # No draw has a correlation of two columns as large as that of a column with itself.
    np.testing.assert_allclose(np.diagonal(found.p_pairs), 1.0 / 980.0, rtol=1e-12)


def test_residuals_that_are_none():
    a = levels(1, 1, 1, 2)
    assert NONE in assessed(rows_of(NORMAL[:5], a=a)).not_tested  # one degree of freedom
    assert NONE not in assessed(rows_of(NORMAL[:6], a=levels(1, 1, 1, 3))).not_tested
    y = np.repeat([1.0, 5.0, 2.0], 4)
    assert NONE in assessed(rows_of(y, a=levels(4, 4, 4))).not_tested
    for unit in (1.0, 1e-7, 1e7):
        rounding, small = (unit * (y + size * NORMAL[:12]) for size in (1e-11, 1e-8))
        assert NONE in assessed(rows_of(rounding, a=levels(4, 4, 4))).not_tested
        assert NONE not in assessed(rows_of(small, a=levels(4, 4, 4))).not_tested
    found = assessed(rows_of(NORMAL[:40], a=levels(10, 10, 10, 10)))
    e = NORMAL[:40].reshape(4, 10)
    e = (e - e.mean(axis=1, keepdims=True)).ravel()
    np.testing.assert_allclose(found.samples[0].values, e / np.sqrt(e @ e / 36), atol=1e-12)


def test_rows_of_one_group_agree_in_all_crossed_facets():
    rng = np.random.default_rng(2)
    codes = {name: rng.integers(0, k, 60) for name, k in (("a", 4), ("b", 3), ("c", 5))}
    rows = rows_of(NORMAL[:60], {"a": ("c", "b"), "b": ("a", "c"), "c": ()}, **codes)
    for facet, others in rows.crossed.items():
        peers = rows.peers(facet)
        for i, j in itertools.combinations(range(60), 2):
            agree = all(codes[other][i] == codes[other][j] for other in others)
            assert (peers[i] == peers[j]) == agree
    assert rows.label(7) == ", ".join(f"{f} {f}{codes[f][7]}" for f in "abc")


@pytest.mark.parametrize("seed", [0, 3])
def test_the_p_value_is_that_of_all_exchanges(seed):
    """Two levels of eight rows: all ways to share the residuals, effects removed again."""
    y = np.random.default_rng(seed).normal(size=16) * np.repeat([1.0, 1.5], 8)
    found = assess("", (), rows_of(y, a=levels(8, 8)), (), (), n=999, seed=1)
    e = y.reshape(2, 8) - y.reshape(2, 8).mean(axis=1, keepdims=True)

    def statistics(first, second):
        """Return Brown and Forsythe's F of the rows of two arrays."""
        w = []
        for part in (first, second):
            part = part - part.mean(axis=1, keepdims=True)
            w.append(np.abs(part - np.median(part, axis=1, keepdims=True)))
        a, b = (each.mean(axis=1) for each in w)
        within = sum(((each - each.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) for each in w)
        return 4.0 * (a - b) ** 2 / (within / 14.0)

    observed = statistics(e[:1], e[1:])[0]
    assert observed == pytest.approx(levene(*e, center="median").statistic, rel=1e-12)
    (test,) = equal_variances(found)
    assert test.statistic == pytest.approx(observed, rel=1e-9)
    some = np.array(list(itertools.combinations(range(16), 8)))
    others = np.array([sorted(set(range(16)) - set(row)) for row in some.tolist()])
    p = (statistics(e.ravel()[some], e.ravel()[others]) >= observed * (1 - 1e-9)).mean()
    assert 0.02 < p < 0.98
    # Four standard errors of 999 draws.
    assert test.p_value == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / 999) + 1e-3)
    np.testing.assert_allclose(found.spreads[0].variances, (e**2).sum(axis=1) / 7, rtol=1e-12)


def test_exchanges_with_the_same_statistic_count():
    """Of two levels of three rows, of all twenty ways to share out their residuals."""
    e = np.array([2.0, -1.0, -1.0, 6.0, -3.0, -3.0]) / 3.0
    rows = SimpleNamespace(
        residuals=e, codes={"a": levels(3, 3)}, crossed={"a": ()},
        peers=lambda facet: np.zeros(6, dtype=np.int64),
        projection=SimpleNamespace(residuals=lambda drawn: drawn), alike=lambda e: e,
    )  # fmt: skip
    test = _equal_variances(SimpleNamespace(facet="a", log_sd=0.5), rows, 999,
                            np.random.default_rng(1))  # fmt: skip
    ways = [list(some) for some in itertools.combinations(range(6), 3)]
    drawn = [levene(e[some], np.delete(e, some), center="median").statistic for some in ways]
    as_large = np.array(drawn) / levene(e[:3], e[3:], center="median").statistic
    p = (as_large > 1.0 - 1e-9).mean()
    assert p - (as_large > 1.0 + 1e-9).mean() > 0.09
    assert test.p_value == pytest.approx(p, abs=4.0 * np.sqrt(p * (1.0 - p) / 999))


def test_equal_distances_are_equal_variances():
    """Half of the scores of each level are right: rounding is no difference, and p is 1."""
    y = np.array([1.0, -1.0] * 8) * 0.1 + 0.3
    (test,) = equal_variances(assess("", (), rows_of(y, a=levels(8, 8)), (), (), n=99, seed=1))
    assert (test.statistic, test.p_value) == (0.0, 1.0)

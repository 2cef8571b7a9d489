"""Tables, pictures and print of a diagnosis beside the scores that they are of."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import skew

import vcomp
from tests.helpers.printed_tables import printed_columns, printed_words
from vcomp.exceptions import PlanError
from vcomp.inference.pairwise import adjusted


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(40, 1)) + 0.4 * np.arange(5) + rng.normal(size=(40, 5))
    X[:, 3] = X[:, 1] + 0.3 * rng.normal(size=40)  # two alike
    X[:, 4] -= 0.8 * X[:, 0]
    X[7, 2] += 9.0
    return X


@pytest.fixture(scope="module")
def found(scores):
    return vcomp.diagnose(scores, n=99, rng=3)


def residuals(X):
    return X - X.mean(axis=0) - X.mean(axis=1, keepdims=True) + X.mean()


def test_correlations_of_residuals(found, scores):
    e = residuals(scores)
    table = found.correlations()
    assert len(table) == 10
    assert abs(table["r"]).is_monotonic_decreasing
    for row in table.itertuples():
        i, j = int(row.first), int(row.second)
        assert i < j
        assert row.r == pytest.approx(np.corrcoef(e[:, i], e[:, j])[0, 1], rel=1e-9)
    effects = found.with_effects()
    topics = scores.mean(axis=1)
    expected = [np.corrcoef(e[:, s], topics)[0, 1] for s in range(5)]
    np.testing.assert_allclose(effects["r"], expected, rtol=1e-9)
    with pytest.raises(PlanError, match="no table of levels of 'x'"):
        found.correlations("x")


def test_residual_variances_of_levels(found, scores):
    e = residuals(scores)
    facet = found.spreads[0].facet
    table = found.variances(facet) if hasattr(found, "variances") else found.spread(facet)
    share = 39 * 4 / 200
    k = len(table)
    axis = 0 if k == 5 else 1
    np.testing.assert_allclose(
        table["variance"], (e**2).sum(axis=axis) / (e.shape[axis] * share), rtol=1e-9
    )
    np.testing.assert_allclose(table["sd"] ** 2, table["variance"], rtol=1e-12)
    np.testing.assert_allclose(table["df"], e.shape[axis] * share, rtol=1e-12)


def test_what_is_drawn(found, scores):
    drawn = found._drawn(found.tables[0])
    scores = scores[[int(name) for name in found.tables[0].table.rows]]
    e, topics = residuals(scores), scores.mean(axis=1)
    pairs = list(itertools.combinations(range(5), 2))
    r = np.array([np.corrcoef(e[:, i], e[:, j])[0, 1] for i, j in pairs])
    np.testing.assert_allclose(drawn["correlations"], r, rtol=1e-9)
    i, j = pairs[int(np.abs(r).argmax())]
    first, of_first, second, of_second, largest = drawn["pair"]
    assert (first, second) == (str(i), str(j))
    np.testing.assert_allclose(of_first, e[:, i], atol=1e-12)
    np.testing.assert_allclose(of_second, e[:, j], atol=1e-12)
    assert largest == pytest.approx(r[np.abs(r).argmax()])
    with_topics = [np.corrcoef(e[:, s], topics)[0, 1] for s in range(5)]
    steepest = int(np.abs(with_topics).argmax())
    name, of_steepest, slope = drawn["steepest"]
    assert name == str(steepest)
    np.testing.assert_allclose(of_steepest, e[:, steepest], atol=1e-12)
    assert slope == pytest.approx(with_topics[steepest])
    assert drawn["rows"] == 40
    assert len(drawn["effects"]) == 40


def test_the_printed_tests_are_those_of_the_table(found):
    printed, table = printed_columns(found.summary(), 1), found.table
    assert printed[""] == list(table["assumption"])
    assert printed["of"] == list(table["of"])
    shown = {
        c: [f"{p:.3f}" if p >= 5e-4 else "< 0.001" for p in table[c]]
        for c in ("p_value", "p_holm")
    }
    assert printed["p"] == shown["p_value"]
    assert printed["p (Holm)"] == shown["p_holm"]
    np.testing.assert_allclose(
        table["p_holm"], adjusted(table["p_value"].to_numpy(), "holm"), rtol=1e-12
    )
    ordered = np.sort(table["p_value"])
    holm = np.minimum(np.maximum.accumulate(ordered * np.arange(len(ordered), 0, -1)), 1.0)
    np.testing.assert_allclose(np.sort(table["p_holm"]), holm, rtol=1e-12)
    for cell, effect, name in zip(
        printed["effect size"], table["effect"], table["effect_name"], strict=True
    ):
        assert cell.startswith(name)
        shown = float(cell.removeprefix(name).replace("−", "-"))
        assert shown == (effect if name == "number of outliers" else float(f"{effect:.2g}"))


def test_skewness_is_that_of_a_sample_whose_shape_is_tested(found):
    values = {sample.name: sample.values for sample in found.samples}
    for test in found.tests:
        expected = skew(values[test.of]) if test.assumption == "normality" else 0.0
        assert found._skewness(test) == pytest.approx(expected, rel=1e-10)


def test_what_is_named(found):
    text = printed_words(found.summary())
    outliers = {s.name: s.outliers for s in found.samples if s.outliers}
    assert "residuals" in outliers
    for name, several in outliers.items():
        label, z = several[0]
        assert f"Outlying in {name}: {label} ({z:.2g} s.d.)" in text
        assert (" more." in text.partition(f"Outlying in {name}:")[2][:400]) or len(several) <= 9
    (table,) = found.tables[:1]
    first, second, _, p = table.pairs()[0]
    assert (p <= 0.05) == (f"residuals of {table.table.column}: {first} and {second} (" in text)
    for largest, named in ((0.05, True), (0.051, False)):
        p_pairs = np.full_like(table.p_pairs, largest)
        changed = replace(found, tables=(replace(table, p_pairs=p_pairs),))
        words = printed_words(changed.summary())
        assert (f"residuals of {table.table.column}: {first}" in words) == named
    for known, said in ((0.49, True), (0.5, False)):
        sample = replace(found.samples[0], known=known)
        changed = replace(found, samples=(sample, *found.samples[1:]))
        words = f"Predicted effects of {sample.name} have {100 * known:.0f} % of the variance"
        assert (words in printed_words(changed.summary())) == said

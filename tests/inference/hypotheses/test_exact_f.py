"""F-tests of components: against projections written out, and least squares of statsmodels."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vcomp
from tests.helpers.designs import DESIGNS, balanced, gridded, unbalanced
from vcomp.estimators.quadratic import AnovaTable, TooLargeError
from vcomp.inference.hypotheses import component_tests
from vcomp.inference.hypotheses.component import _exact, _f
from vcomp.inference.hypotheses.component_tests import (
    _is_exact,
    ratio_of_table,
    robust_ratio,
    synthesised_ratio,
)
from vcomp.inference.intervals.component_squares import MeanSquares

# The mean square that is divided by, of every term; None where no single one will do.
DENOMINATORS = {
    "one way": {"a": "Residual"},
    "crossed": {"a": "Residual", "b": "Residual"},
    "crossed, replicated": {"a": "a:b", "b": "a:b", "a:b": "Residual"},
    "nested": {"a": "a:b", "a:b": "Residual"},
    "deeply nested": {"a": "a:b", "a:b": "a:b:c", "a:b:c": "Residual"},
    "three facets": {
        "a": None, "b": None, "c": None,
        "a:b": "Residual", "a:c": "Residual", "b:c": "Residual",
    },
    "crossed and nested": {"a": "a:b", "b": None, "b:c": "Residual", "a:b": "Residual"},
}  # fmt: skip


def indicator(codes):
    return np.eye(codes.max() + 1)[codes]


def basis(*matrices):
    """Return an orthonormal basis of what the columns span."""
    u, s, _ = np.linalg.svd(np.column_stack(matrices), full_matrices=False)
    return u[:, s > 1e-9 * s[0]]


def type_2_form(model, term):
    """Return the projection on what a term adds to all that are not finer than it."""
    chunk = model.statistics.rows
    Z = [indicator(c) for c in chunk.codes]

    def is_finer(u):
        """Whether the groups of u lie within those of the term."""
        return np.linalg.matrix_rank(np.column_stack([Z[u], Z[term]])) == Z[u].shape[1]

    others = [u for u in range(len(Z)) if u != term and not is_finer(u)]
    small = basis(model.exog, *(Z[u] for u in others))
    big = basis(model.exog, *(Z[u] for u in others), Z[term])
    return big @ big.T - small @ small.T


def residual_form(model):
    full = basis(model.exog, *(indicator(c) for c in model.statistics.rows.codes))
    return np.eye(model.nobs) - full @ full.T


def form_of(model, name):
    names = model.component_names
    return residual_form(model) if name == names[-1] else type_2_form(model, names.index(name))


def written_out(model, numerator, denominator):
    """Return F, its df and whether it is exact: A V A = cA and B V B = cB, A V B = 0 under H0."""
    A, B = form_of(model, numerator), form_of(model, denominator)
    df = np.trace(A), np.trace(B)
    y = model.endog
    V = np.eye(model.nobs)
    for t, (name, codes) in enumerate(
        zip(model.component_names[:-1], model.statistics.rows.codes, strict=True)
    ):
        if name != numerator:
            V += (1.3 + 0.41 * t) * indicator(codes) @ indicator(codes).T
    c = np.trace(A @ V) / df[0]
    exact = (
        np.allclose(A @ V @ A, c * A, atol=1e-8 * c)
        and np.allclose(B @ V @ B, c * B, atol=1e-8 * c)
        and np.allclose(A @ V @ B, 0.0, atol=1e-8 * c)
    )
    return (y @ A @ y / df[0]) / (y @ B @ y / df[1]), df, exact


@pytest.mark.parametrize("method", ["reml", "anova"])
@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_balanced_designs(name, method):
    formula, data = balanced(name, seed=5, scale=0.4)
    model = vcomp.VarianceComponentsModel(formula, data)
    res = model.fit(method)
    for term, denominator in DENOMINATORS[name].items():
        found = res.test(term, "f")
        if denominator is None:
            assert not found.exact
            assert "approximate" in found.distribution
            continue
        expected, df, exact = written_out(model, term, denominator)
        assert exact
        assert found.exact
        assert found.statistic == pytest.approx(expected, rel=1e-9)
        assert found.df == pytest.approx(df, rel=1e-9)
        assert found.p_value == pytest.approx(stats.f.sf(expected, *df), rel=1e-7)
        assert f"MS({term}) / MS({denominator})" in found.notes[0]
        assert found.estimate == res.vcomp[term]
        auto = res.test(term)
        assert (auto.statistic, auto.p_value) == (found.statistic, found.p_value)
        assert auto.notes[-1] == "Chosen because it is exact."


@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_balanced_designs_without_rows(name):
    formula, data = balanced(name, seed=5, scale=0.4)
    res = vcomp.fit(formula, data)
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    for term in DENOMINATORS[name]:
        here, there = res.test(term, "f"), loaded.test(term, "f")
        assert there.statistic == pytest.approx(here.statistic, rel=1e-12)
        assert there.df == here.df
        assert there.exact == here.exact


def test_sums_of_mean_squares():
    """E MS(a) = E MS(a:b) + E MS(a:c) − E MS(Residual) if σ²(a) = 0."""
    res = vcomp.fit(*balanced("three facets", seed=2, scale=0.5))
    table = res.anova_table()
    ms, df = table["mean_sq"], table["df"]
    found = res.test("a", "f")
    above, below = ms[["a", "Residual"]], ms[["a:b", "a:c"]]
    assert found.statistic == pytest.approx(above.sum() / below.sum(), rel=1e-12)
    expected = [part.sum() ** 2 / (part**2 / df[part.index]).sum() for part in (above, below)]
    assert found.df == pytest.approx(expected, rel=1e-12)
    assert found.p_value == pytest.approx(stats.f.sf(found.statistic, *expected), rel=1e-9)
    assert found.notes[0].startswith("F is (MS(a) + MS(Residual)) / (MS(a:b) + MS(a:c)): no ")


@pytest.mark.parametrize("fixed", ["", "x + "])
def test_unbalanced_crossed_data_against_least_squares(fixed):
    """Wald's test is the F-test of the term as fixed, adjusted for all others."""
    from statsmodels.formula.api import ols
    from statsmodels.stats.anova import anova_lm

    formula, data = unbalanced("crossed", seed=4)
    data = data.assign(x=np.random.default_rng(0).normal(size=len(data)))
    res = vcomp.fit(formula.replace("~ ", f"~ {fixed}"), data)
    table = anova_lm(ols(f"y ~ {fixed}C(a) + C(b)", data).fit(), typ=2)
    for term in ("a", "b"):
        found = res.test(term)
        row = table.loc[f"C({term})"]
        assert found.exact
        assert found.statistic == pytest.approx(row["F"], rel=1e-9)
        assert found.df == (row["df"], table["df"]["Residual"])
        assert found.p_value == pytest.approx(row["PR(>F)"], rel=1e-6)


@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_unbalanced_designs_are_exact_only_where_projections_say_so(name):
    formula, data = unbalanced(name, seed=7)
    model = vcomp.VarianceComponentsModel(formula, data)
    res = model.fit()
    for term in model.component_names[:-1]:
        candidates = {u: written_out(model, term, u) for u in model.component_names if u != term}
        exact = {u: (F, df) for u, (F, df, is_exact) in candidates.items() if is_exact}
        if not exact:
            with pytest.raises(vcomp.EstimationError, match="there is no F-test of"):
                res.test(term, "f")
            continue
        found = res.test(term, "f")
        assert found.exact
        assert any(
            found.statistic == pytest.approx(F, rel=1e-7) and found.df == pytest.approx(df)
            for F, df in exact.values()
        )


def test_groups_of_unequal_numbers_but_equal_replicates():
    """Class means are compared with those of schools: exact, though schools differ in size."""
    rng = np.random.default_rng(1)
    schools = np.repeat(np.arange(6), [2, 3, 4, 5, 2, 4])
    data = pd.DataFrame({"s": schools, "c": np.arange(schools.size)})
    data = data.loc[data.index.repeat(3)].reset_index(drop=True)
    data["y"] = rng.normal(size=len(data)) + rng.normal(size=6)[data["s"]]
    model = vcomp.VarianceComponentsModel("y ~ (1|s) + (1|c)", data)
    found = model.fit().test("s")
    expected, df, exact = written_out(model, "s", "c")
    assert exact
    assert found.exact
    assert found.statistic == pytest.approx(expected, rel=1e-9)
    assert found.df == pytest.approx(df)


def test_documents_of_unequal_numbers_have_no_exact_test_for_topics():
    formula, data = gridded("per document")
    res = vcomp.fit(formula, data)
    with pytest.raises(vcomp.EstimationError, match="use test='simulated' or 'lrt'"):
        res.test("i", "f")
    # A term without a finer one has.
    assert res.test("p:i:d", "f").exact


def table_of(names, df, mean_sq, expected):
    df = np.array(df, dtype=float)
    return AnovaTable(tuple(names), df, df * mean_sq, np.array(expected, dtype=float))


P_I_O = table_of(
    ("p", "i", "o", "p:i", "p:o", "i:o", "Residual"),
    (3, 2, 4, 6, 12, 8, 24),
    np.array([31.0, 17.0, 23.0, 5.0, 7.0, 3.0, 2.0]),
    [
        [15, 0, 0, 5, 3, 0, 1],
        [0, 20, 0, 5, 0, 4, 1],
        [0, 0, 12, 0, 3, 4, 1],
        [0, 0, 0, 5, 0, 0, 1],
        [0, 0, 0, 0, 3, 0, 1],
        [0, 0, 0, 0, 0, 4, 1],
        [0, 0, 0, 0, 0, 0, 1],
    ],
)


@pytest.mark.parametrize(("term", "others"), [(0, (3, 4)), (1, (3, 5)), (2, (4, 5))])
def test_sums_of_mean_squares_are_those_of_cochran(term, others):
    found = synthesised_ratio(P_I_O, term)
    ms, df = P_I_O.sum_sq / P_I_O.df, P_I_O.df
    above, below = ms[[term, 6]], ms[list(others)]
    assert found.statistic == pytest.approx(above.sum() / below.sum(), rel=1e-13)
    expected = [x.sum() ** 2 / (x**2 / d).sum() for x, d in (
        (above, df[[term, 6]]), (below, df[list(others)]))]  # fmt: skip
    assert found.df == pytest.approx(expected, rel=1e-13)
    names = P_I_O.names
    assert found.numerator == f"(MS({names[term]}) + MS(Residual))"
    assert found.denominator == f"(MS({names[others[0]]}) + MS({names[others[1]]}))"
    assert not found.exact


@pytest.mark.parametrize(
    ("own", "statistic", "df", "words"),
    [
        # E[MS_a] without a is half of that of b and of the residual, or 2 MS_b − MS_e.
        ([6, 2, 1], 9.0 / 4.0, (5.0, 16.0 / (9.0 / 7.0 + 1.0 / 11.0)),
         ("MS(a)", "(0.5 MS(b) + 0.5 MS(Residual))")),
        ([6, 8, 1], 11.0 / 12.0, (121.0 / (81.0 / 5.0 + 4.0 / 11.0), 7.0),
         ("(MS(a) + MS(Residual))", "2 MS(b)")),
        ([6, 4, 1], 9.0 / 6.0, (5.0, 7.0), ("MS(a)", "MS(b)")),
    ],
)  # fmt: skip
def test_sums_of_mean_squares_have_weights(own, statistic, df, words):
    expected = [own, [0, 4, 1], [0, 0, 1]]
    found = synthesised_ratio(table_of(["a", "b", "Residual"], (5, 7, 11), [9, 6, 2], expected), 0)
    assert found.statistic == pytest.approx(statistic, rel=1e-13)
    assert found.df == pytest.approx(df, rel=1e-13)
    assert (found.numerator, found.denominator) == words
    for single, unit in ((5, 1e-7), (5, 1e7), (1, 1.0)):
        other = table_of(["a", "b", "Residual"], (single,) * 3,
                         unit * np.array([9, 6, 2]), expected)  # fmt: skip
        assert synthesised_ratio(other, 0).statistic == pytest.approx(statistic, rel=1e-13)


@pytest.mark.parametrize(
    ("df", "mean_sq", "expected"),
    [
        ((5, 7, 0), [9, 6, 2], [[6, 2, 1], [0, 4, 1], [0, 0, 1]]),
        ((0, 7, 2), [9, 6, 2], [[6, 2, 1], [0, 4, 1], [0, 0, 1]]),
        ((5, 7, 2), [9, 6, 2], [[6, np.nan, 1], [0, 4, 1], [0, 0, 1]]),
        ((5, 7, 2), [9, 6, 2], [[6, 2, 1], [0, 1, 1], [0, 1, 1]]),
        ((5, 7, 2), [9, 0, 0], [[6, 2, 1], [0, 4, 1], [0, 0, 1]]),
    ],
)
def test_there_may_be_no_sums_of_mean_squares(df, mean_sq, expected):
    assert synthesised_ratio(table_of(["a", "b", "Residual"], df, mean_sq, expected), 0) is None


def test_a_ratio_needs_the_same_expectation():
    expected = np.array([[6.0, 2, 1], [0, 2, 1], [0, 0, 1]])
    names, df, mean_sq = ["a", "b", "Residual"], (5, 7, 11), [9.0, 6.0, 2.0]
    found = ratio_of_table(table_of(names, df, mean_sq, expected), 0)
    assert (found.statistic, found.df) == (1.5, (5.0, 7.0))
    assert (found.numerator, found.denominator, found.exact) == ("MS(a)", "MS(b)", True)
    assert ratio_of_table(table_of(names, df, mean_sq, expected), 1).denominator == "MS(Residual)"
    single = ratio_of_table(table_of(names, (1, 1, 1), mean_sq, expected), 0)
    assert (single.statistic, single.df) == (1.5, (1.0, 1.0))
    for place, value in (((0, 1), 2.1), ((1, 0), 0.01), ((1, 2), 1.001)):
        other = expected.copy()
        other[place] = value
        assert ratio_of_table(table_of(names, df, mean_sq, other), 0) is None
    for few in ((5, 0, 11), (0, 7, 11)):
        assert ratio_of_table(table_of(names, few, mean_sq, expected), 0) is None
    assert ratio_of_table(table_of(names, df, [9.0, 0.0, 2.0], expected), 0) is None
    # Rounding of a sum of squares without degrees of freedom is none.
    sums = np.array([5.0, 0.0, 11.0]), np.array([45.0, 1e-20, 22.0])
    nothing = AnovaTable(tuple(names), *sums, expected)
    assert ratio_of_table(nothing, 0) is None
    # Of several the residual comes first.
    expected[0, 1] = 0.0
    expected[1, 1] = 0.0
    assert ratio_of_table(table_of(names, df, mean_sq, expected), 0).df == (5.0, 11.0)


@pytest.mark.parametrize(
    ("own", "other", "both", "exact"),
    [(1.0, 1.0, 0.0, True), (1.1, 1, 0.0, False), (1.0, 0.9, 0.0, False), (1.0, 1.0, 0.1, False)],
)
def test_a_ratio_is_exact_of_independent_chi_squares(own, other, both, exact):
    """Var(SS) = 2 E(SS)²/df of a multiple of χ² with df degrees of freedom."""
    expected = [[6.0, 2, 1], [0, 2, 1], [0, 0, 1]]
    table = table_of(["a", "b", "Residual"], (5, 7, 11), [9.0, 6.0, 2.0], expected)

    def covariance(v):
        sd = table.expected @ v * np.sqrt(2.0 * table.df * np.array([own, other, 1.0]))
        r = np.eye(3)
        r[0, 1] = r[1, 0] = both
        return r * np.outer(sd, sd)

    assert _is_exact(table, covariance, 0, 1) == exact
    assert _is_exact(table, covariance, 0, 2) == (own == 1.0)  # the other way, as b is in both
    alike = table_of(table.names, (5, 7, 11), [9.0, 6.0, 2.0], [[6.0, 0, 1], [0, 0, 1], [0, 0, 1]])
    table = alike
    assert _is_exact(table, covariance, 0, 1) == exact
    assert _is_exact(table, covariance, 0, 2)  # Wald's test


def test_a_sum_of_squares_that_would_not_fit_is_not_known_to_be_exact():
    def covariance(v):
        raise TooLargeError("no room")

    expected = [[6.0, 2, 1], [0, 2, 1], [0, 0, 1]]
    table = table_of(["a", "b", "Residual"], (5, 7, 11), [9.0, 6.0, 2.0], expected)
    assert not _is_exact(table, covariance, 0, 1)
    assert _is_exact(table, covariance, 1, 2)  # Wald's test needs none


def test_only_classical_tables_give_ratios_without_rows():
    expected = [[6.0, 2, 1], [0, 2, 1], [0, 0, 1]]
    table = table_of(["a", "b", "Residual"], (5, 7, 11), [9.0, 6.0, 2.0], expected)
    estimate = SimpleNamespace(names=table.names)
    for classical, kept, known in (
        (True, table, True), (False, table, False), (True, None, False), (False, None, False),
    ):  # fmt: skip
        loaded = SimpleNamespace(stats=None, classical=classical, table=kept, estimate=estimate)
        assert (_exact(loaded, "a") is not None) == known
        if not known:
            with pytest.raises(vcomp.VcompError):
                _f(loaded, "a")


@pytest.mark.parametrize("upper", [None, [9.0, 30.0, 4.0]])
@pytest.mark.parametrize("r", [0.0, 0.4, -0.3])
def test_a_robust_ratio_is_of_a_mean_square_and_its_expectation(monkeypatch, upper, r):
    """λ₁ = 2a + b + e, λ₂ = 3b + e, λ₃ = e: without a, λ₁ is λ₂/3 + 2λ₃/3."""
    basis = np.array([[2.0, 1.0, 1.0], [0.0, 3.0, 1.0], [0.0, 0.0, 1.0]])
    values, df = np.array([20.0, 9.0, 3.0]), np.array([6.0, 10.0, 40.0])
    R = np.eye(3)
    R[0, 1] = R[1, 0] = r
    squares = MeanSquares(
        basis, np.arange(3), values, df, R, np.zeros(3), None if upper is None else np.array(upper)
    )
    monkeypatch.setattr(component_tests, "robust_mean_squares", lambda components: squares)
    found = robust_ratio(SimpleNamespace(values=np.zeros(3), names=("a", "b", "Residual")), 0)
    assert found.statistic == pytest.approx(20.0 / 5.0, rel=1e-13)
    below = df if upper is None else np.array(upper)
    shares = np.array([0.0, 3.0, 2.0]) / 5.0 * np.sqrt(2.0 / below)
    own, other = 2.0 / 6.0, shares @ R @ shares
    factor = max(1.0 - 2.0 * np.sqrt(own) * r * shares[1] / (own + other), 0.1)
    assert found.df == pytest.approx((2.0 / (factor * own), 2.0 / (factor * other)), rel=1e-12)
    assert (found.numerator, found.exact) == ("MS(a)", False)


def test_a_robust_ratio_needs_a_positive_expectation(monkeypatch):
    basis, names = np.array([[2.0, 1.0], [0.0, 1.0]]), ("a", "Residual")
    values = SimpleNamespace(values=np.zeros(2), names=names)
    for squares in (
        None,
        MeanSquares(basis, np.arange(2), np.array([5.0, 0.0]), np.ones(2), np.eye(2), np.zeros(2)),
        MeanSquares(np.eye(1), np.array([1]), np.ones(1), np.ones(1), np.eye(1), np.zeros(2)),
    ):
        monkeypatch.setattr(
            component_tests, "robust_mean_squares", lambda components, s=squares: s
        )
        assert robust_ratio(values, 0) is None

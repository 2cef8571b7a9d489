"""Tests of whole terms of the fixed part: identities that need no other program."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vcomp
from vcomp.exceptions import DataError, EstimationError, PlanError


def cells(n=180, seed=1, *, without=()):
    """Return unbalanced rows of three factors and two covariates, some cells absent."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(
        {
            "g": rng.integers(0, 9, n),
            "a": rng.choice(list("pqrs"), n, p=[0.4, 0.3, 0.2, 0.1]),
            "b": rng.choice(list("uvw"), n),
            "c": rng.choice([1, 2], n),
            "x": rng.normal(50.0, 2.0, n),
        }
    )
    data["y"] = rng.normal(size=9)[data["g"]] + rng.normal(size=n) + 0.3 * (data["a"] == "q")
    for a, b in without:
        data = data[(data["a"] != a) | (data["b"] != b)]
    return data


def fitted(formula, data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the columns that are left out
        return vcomp.fit(formula, data, **options)


DATA = cells()
HOLES = cells(without=[("p", "u"), ("s", "v")])


@pytest.mark.parametrize(
    ("kind", "data"), [(1, HOLES), (2, DATA), (3, HOLES)], ids=["1-holes", "2-full", "3-holes"]
)
@pytest.mark.parametrize(
    ("plain", "coded"),
    [
        ("a * b", "C(a, Sum) * C(b, Helmert)"),
        ("a * b + x", "C(a, Poly) * C(b, Treatment('w')) + x"),
        ("b + a:x", "C(b, Sum) + C(a, Sum):x"),
        ("0 + a + x", "0 + C(a, Sum) + x"),
    ],
)
def test_hypotheses_do_not_depend_on_the_coding(plain, coded, data, kind):
    """F and the numbers of contrasts are the same; ν depends on the rows only where R's does."""
    one = fitted(f"y ~ {plain} + (1|g)", data).anova(kind)
    other = fitted(f"y ~ {coded} + (1|g)", data).anova(kind)
    assert one["df_num"].tolist() == other["df_num"].tolist()
    np.testing.assert_allclose(other["F"], one["F"], rtol=1e-7)
    np.testing.assert_allclose(other["df_denom"], one["df_denom"], rtol=1e-5)


def test_balanced_tables_have_the_exact_f():
    """In a complete table of blocks the mean squares of all types are those of Fisher."""
    rng = np.random.default_rng(3)
    y = rng.normal(size=(7, 3, 2)) + rng.normal(size=(7, 1, 1)) * 2.0
    g, a, b = (index.ravel() for index in np.indices(y.shape))
    res = vcomp.fit("y ~ C(a) * C(b) + (1|g)", {"y": y.ravel(), "a": a, "b": b, "g": g})
    of_a, of_b = y.mean(axis=(0, 2)), y.mean(axis=(0, 1))
    both = y.mean(axis=0) - of_a[:, None] - of_b + y.mean()
    blocks = y.mean(axis=(1, 2))[:, None, None]
    error = np.square(y - y.mean(axis=0) - blocks + y.mean()).sum() / 30
    sums = [14 * np.square(of_a - y.mean()).sum(), 21 * np.square(of_b - y.mean()).sum()]
    expected = np.array([*sums, 7 * np.square(both).sum()])
    for kind in (1, 2, 3):
        table = res.anova(kind)
        df = np.array([2, 1, 2])
        np.testing.assert_allclose(table["sum_sq"], expected, rtol=1e-9)
        assert table["df_num"].tolist() == df.tolist()
        np.testing.assert_allclose(table["df_denom"], 30.0, rtol=1e-6)
        p = stats.f.sf(expected / df / error, df, 30)
        np.testing.assert_allclose(table["p_value"], p, rtol=1e-6)


def test_type_1_adds_up_to_what_one_term_has():
    """Sequential contrasts span those of all columns: with no random variance F·df adds up."""
    res = fitted("y ~ a * b + x + (1|g)", DATA, hold={"g": 0.0, "Residual": 1.0})
    table, p = res.anova(1, ddf="normal"), len(res.fe_params)
    whole = res.f_test(np.eye(p)[1:], ddf="normal")
    assert table["df_num"].sum() == p - 1
    np.testing.assert_allclose((table["F"] * table["df_num"]).sum(), whole.statistic * (p - 1))
    assert np.isinf(table["df_denom"]).all()
    at = res.anova(1, ddf="normal")["F"] * table["df_num"]
    np.testing.assert_allclose(table["p_value"], stats.chi2.sf(at, table["df_num"]))


def test_types_2_and_3_are_those_of_models_without_the_term():
    """With known components, F of a term is the change of the residual sum of squares."""
    held = {"hold": {"g": 0.0, "Residual": 1.0}}

    def rss(formula):
        res = fitted(f"y ~ {formula} + (1|g)", HOLES, **held)
        return float(np.square(HOLES["y"].to_numpy() - res.fittedvalues.to_numpy()).sum())

    res = fitted("y ~ a * b + x + (1|g)", HOLES, **held)
    second = res.anova(2, ddf="normal")
    squares = second["F"] * second["df_num"]
    assert squares["a"] == pytest.approx(rss("b + x") - rss("a + b + x"), rel=1e-9)
    assert squares["b"] == pytest.approx(rss("a + x") - rss("a + b + x"), rel=1e-9)
    assert squares["a:b"] == pytest.approx(rss("a + b + x") - rss("a * b + x"), rel=1e-9)
    third = res.anova(3, ddf="normal")
    assert (third["F"] * third["df_num"])["a:b"] == pytest.approx(squares["a:b"], rel=1e-9)
    # Of a, b, x and a:b: 4 and 3 levels, 2 of the 12 cells absent.
    assert second["df_num"].tolist() == [3, 2, 1, 4]


def test_type_3_weighs_cells_equally():
    """The hypothesis of a factor is that the unweighted means of its cells are equal."""
    res = fitted("y ~ a * b + (1|g)", DATA)
    found = res.f_test("a")
    means = res.marginal_means("a", correction="none")
    X = [np.mean([row_of(res, a, b) for b in "uvw"], axis=0) for a in "pqrs"]
    contrasts = np.array(X[1:]) - X[0]
    again = res.f_test(contrasts)
    assert found.statistic == pytest.approx(again.statistic, rel=1e-9)
    np.testing.assert_allclose(means.table["mean"], np.array(X) @ res.fe_params, rtol=1e-10)
    assert found.notes[0] == "Averaged with equal weights over b."


def row_of(res, a, b):
    """Return the row of X of a cell, by the names of its columns."""
    row = []
    for name in res.fe_params.index:
        parts = [part for part in name.split(":") if name != "Intercept"]
        row.append(float(all(part in (f"a[T.{a}]", f"b[T.{b}]") for part in parts)))
    return row


@pytest.mark.parametrize("name", ["a", " a ", "C(a)"])
def test_terms_are_called_by_column_or_expression(name):
    res = fitted("y ~ C(a) * x + (1|g)", DATA)
    assert res.f_test(name).statistic == res.anova().loc["C(a)", "F"]
    assert res.f_test("x:a").statistic == res.anova().loc["C(a):x", "F"]
    assert res.f_test("x").statistic == res.f_test("x = 0").statistic


def test_terms_that_are_not_there_are_named():
    res = fitted("y ~ a * b + x + (1|g)", DATA)
    message = r"'aa' is neither a term nor a column .*\(did you mean 'a'\?\); terms are 'a', 'b'"
    with pytest.raises(EstimationError, match=message) as caught:
        res.f_test("aa")
    assert caught.value.term == "aa"
    with pytest.raises(EstimationError, match="is a random term"):
        res.f_test("g")
    with pytest.raises(EstimationError, match=r"the whole by res.f_test\('a'\)"):
        res.t_test("a")


@pytest.mark.parametrize("kind", [0, 4, "III", True, None])
def test_types_that_there_are_not(kind):
    res = fitted("y ~ a + (1|g)", DATA)
    with pytest.raises(PlanError, match="type must be 1, 2 or 3, not"):
        res.anova(kind)


def test_what_has_no_table():
    constant = vcomp.fit("y ~ (1|g)", DATA, method="anova")
    with pytest.raises(EstimationError, match=r"has no terms to test; .*'y ~ f \+ \(1\|g\)'"):
        constant.anova()
    res = fitted("y ~ a + (1|g)", DATA)
    with pytest.raises(EstimationError, match="ddf='kr' is not known"):
        res.anova(ddf="kr")
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    with pytest.raises(DataError, match=r"without its rows, which anova\(\) needs"):
        loaded.anova()
    with pytest.raises(DataError, match=r"or test its columns: 'a\[T.q\] = 0, ") as caught:
        loaded.f_test("a")
    columns = str(caught.value).rpartition(": '")[2].rstrip("'")
    assert loaded.f_test(columns).statistic == pytest.approx(res.f_test("a").statistic)


def test_terms_whose_columns_all_depend_on_others():
    """A coarser factor has no test beside a finer one."""
    data = DATA.assign(coarse=DATA["a"].isin(["p", "q"]).map({True: "l", False: "m"}))
    res = fitted("y ~ a + coarse + (1|g)", data)
    table = res.anova()
    assert table.loc["coarse", "df_num"] == 0
    assert table.loc["coarse", ["sum_sq", "F", "p_value"]].isna().all()
    with pytest.raises(EstimationError, match="all columns of 'coarse' are linear combinations"):
        res.f_test("coarse")


def test_other_estimators_have_the_table():
    """Contrasts depend on the rows only; errors are those of the method."""
    for method in ("ml", "henderson3", "minque", "type1"):
        res = fitted("y ~ a + b + (1|g)", DATA, method=method)
        row = res.anova().loc["b"]
        again = res.f_test("b[T.v] = 0, b[T.w] = 0")
        assert row["F"] == pytest.approx(again.statistic, rel=1e-9)


def test_a_factor_of_many_levels():
    """Columns that are kept sparse have the same test as contrasts written out."""
    rng = np.random.default_rng(5)
    a, g = np.indices((150, 6)).reshape(2, -1)
    data = {"y": rng.normal(size=900) + g, "a": a, "g": g, "x": rng.normal(size=900)}
    res = vcomp.fit("y ~ C(a) + x + (1|g)", data)
    L = np.zeros((149, 151))
    names = list(res.fe_params.index)
    for row, name in enumerate(n for n in names if n.startswith("C(a)")):
        L[row, names.index(name)] = 1.0
    expected = res.f_test(L)
    for kind in (1, 2, 3):
        found = res.anova(kind).loc["C(a)"]
        if kind > 1:
            assert found["F"] == pytest.approx(expected.statistic, rel=1e-8)
        assert found["df_num"] == 149


def test_robust_variances():
    res = fitted("y ~ a + x + (1|g)", DATA)
    found = res.anova(2, cov_type="robust").loc["a"]
    again = res.f_test("a[T.q] = 0, a[T.r] = 0, a[T.s] = 0", cov_type="robust")
    assert found["F"] == pytest.approx(again.statistic, rel=1e-9)


@pytest.mark.parametrize(
    ("fixed", "term"),
    [
        ("factor(k) + x", "factor(k)"),
        ("factor(k) + x", "as.factor(k)"),
        ("factor(k)*x", "x:factor(k)"),
        ("x + I(x^2)", "I(x^2)"),
        ("x + `the kind`", "`the kind`"),
        ("x + `the kind`", "Q('the kind')"),
        ("x + class", "class"),
    ],
)
def test_terms_are_named_as_the_formula_writes_them(fixed, term):
    rng = np.random.default_rng(8)
    k = rng.integers(0, 3, 90)
    data = pd.DataFrame({"g": np.arange(90) % 9, "k": k, "x": rng.normal(size=90)})
    data = data.assign(**{"the kind": np.array(list("abc"))[k], "class": np.array(list("uvw"))[k]})
    data["y"] = rng.normal(size=90) + rng.normal(size=9)[data["g"]]
    res = vcomp.fit(f"y ~ {fixed} + (1|g)", data)
    table, found = res.anova(3), res.f_test(term)
    row = table.loc[[":" in name for name in table.index]] if ":" in term else table.tail(1)
    row = table.head(1) if term.endswith("factor(k)") and ":" not in term else row
    assert found.p_value == pytest.approx(row["p_value"].item(), rel=1e-9)

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.multivariate_scores import alone_of, crossed, long_of, specification
from vcomp import PlanError
from vcomp.multivariate.dstudies import COMPOSITE, MultivariateDStudy

WIDE = "a + b + c ~ (1|p) + (1|i)"
ITEMS = "y ~ (1|p) + (1|i)"
COLUMNS = [
    f"{name}{end}"
    for name in ("rel_err_var", "abs_err_var", "Erho2", "Phi")
    for end in ("", "_se", "_low", "_high")
]


def wide(method="anova", **options):
    return vcomp.fit_multivariate(WIDE, crossed(28, n_p=30, n_i=12), method=method, **options)


def items(method="anova", seed=3, **options):
    data = specification(seed, n_p=40, **options)
    return data, vcomp.fit_multivariate(ITEMS, data, variable="test", method=method)


@pytest.mark.parametrize("sizes", [{}, {"i": [5, 20]}], ids=["own", "planned"])
def test_a_composite_is_the_d_study_of_its_scores(sizes):
    """All of it, intervals from F quantiles too: the weighted scores are one variable."""
    weights = np.array([0.5, 1.0, -0.25])
    data = crossed(28, n_p=30, n_i=12)
    data["z"] = data[list("abc")].to_numpy() @ weights
    alone = alone_of("z ~ (1|p) + (1|i)", data, method="anova")
    study = wide().dstudy(weights, **sizes)
    found = study.table[study.table["score"] == COMPOSITE]
    expected = alone.dstudy(**sizes, interval="f").table
    for column in ("universe_var", *COLUMNS):
        np.testing.assert_allclose(found[column], expected[column], rtol=1e-9, err_msg=column)


@pytest.mark.slow
def test_each_variable_is_its_own_d_study():
    data, res = items(missing=0.2)
    study = res.dstudy(i={"a": [4, 8], "b": 6, "c": [5, 10]})
    for k, name in enumerate("abc"):
        alone = alone_of(ITEMS, data[data["test"] == name], method="anova")
        sizes = {"a": [4, 8], "b": [6, 6], "c": [5, 10]}[name]
        expected = alone.dstudy(i=sizes, interval="mls").table
        found = study.table[study.table["score"] == name]
        np.testing.assert_array_equal(found["i"], expected["i"])
        for column in COLUMNS:
            np.testing.assert_allclose(found[column], expected[column], rtol=1e-7, err_msg=column)
        assert k < 3


def test_sizes_by_variable_divide_each_variances_own():
    """σ²_C(δ) = Σ w_v² σ²_v(pi)/n_v where items are independent (Brennan 2001, section 10.1)."""
    _, res = items()
    w, n = {"a": 0.2, "b": 0.3, "c": 0.5}, {"a": 10, "b": 20, "c": 40}
    (study,) = res.dstudy(w, i=n).studies
    found = study[-1].columns
    weights = np.array(list(w.values()))
    universe = weights @ res.matrix("p").to_numpy() @ weights
    relative = sum(w[v] ** 2 * res.matrix("Residual").loc[v, v] / n[v] for v in "abc")
    items_ = sum(w[v] ** 2 * res.matrix("i").loc[v, v] / n[v] for v in "abc")
    assert found["universe_var"][0] == pytest.approx(universe, rel=1e-12)
    assert found["rel_err_var"][0] == pytest.approx(relative, rel=1e-12)
    assert found["abs_err_var"][0] == pytest.approx(relative + max(items_, 0.0), rel=1e-12)
    assert found["Erho2"][0] == pytest.approx(universe / (universe + relative), rel=1e-12)
    assert study[-1].table["i"].item() == 70


def test_errors_of_a_composite_with_sizes_by_variable_are_linear_in_the_elements():
    _, res = items()
    g = res.covariance_components
    w, n = np.array([0.2, 0.3, 0.5]), np.array([10, 20, 40])
    (study,) = res.dstudy(w, i=dict(zip("abc", n, strict=True))).studies
    slope = np.array([w[a] * w[b] / n[a] if t == 2 and a == b else 0.0 for t, a, b in g.elements])
    expected = np.sqrt(slope @ g.cov @ slope)
    assert study[-1].columns["rel_err_var_se"][0] == pytest.approx(expected, rel=1e-10)


def test_own_sizes_are_those_of_the_cells_that_there_are():
    """Missing cells: the mean over persons of the variance of their own mean composite."""
    data, res = items(missing=0.25)
    w = np.array([0.2, 0.3, 0.5])
    (study,) = res.dstudy(w).studies
    n = data.groupby(["p", "test"]).size().unstack().to_numpy()
    variances = [res.matrix("Residual").loc[v, v] for v in "abc"]
    expected = sum(w[k] ** 2 * variances[k] * np.mean(1.0 / n[:, k]) for k in range(3))
    assert study[-1].columns["rel_err_var"][0] == pytest.approx(expected, rel=1e-10)


def test_equal_sizes_are_the_composites_own_d_study():
    _, res = items()
    w = [1, 1, -1]
    made = res.composite(w).dstudy(i=15).table
    (study,) = res.dstudy(w, i=15).studies
    for column in COLUMNS:
        np.testing.assert_allclose(study[-1].columns[column], made[column], rtol=1e-12)


def test_contributions_add_up_and_are_covariances_with_the_composite():
    res = wide()
    w = np.array([0.5, 1.0, -0.25])
    frame = res.dstudy(w, i=7).contributions
    np.testing.assert_allclose(
        frame[["universe_var", "rel_err_var", "abs_err_var"]].sum(), 1.0, rtol=1e-12
    )
    S = res.matrix("p").to_numpy()
    np.testing.assert_allclose(frame["universe_var"], w * (S @ w) / (w @ S @ w), rtol=1e-12)


def test_a_difference_has_its_textbook_variance():
    """σ²(a − b) = σ²(a) + σ²(b) − 2σ(a, b) (Brennan 2001, section 10.1)."""
    res = wide("reml")
    made = res.composite({"a": 1, "b": -1}).components
    for t, term in enumerate(res.terms):
        S = res.matrix(term)
        expected = S.loc["a", "a"] + S.loc["b", "b"] - 2 * S.loc["a", "b"]
        assert made.values[t] == pytest.approx(expected, rel=1e-12)


def test_long_and_wide_data_say_the_same():
    data = crossed(7)
    one = vcomp.fit_multivariate(WIDE, data)
    two = vcomp.fit_multivariate(ITEMS, long_of(data, "abc"), variable="test")
    for term in one.terms:
        np.testing.assert_allclose(one.matrix(term), two.matrix(term), rtol=1e-12)
    np.testing.assert_allclose(one.dstudy().table["Phi"], two.dstudy().table["Phi"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"i": {"a": 3}}, "leaves out 'b'"),
        ({"i": {"a": 3, "b": 3, "c": 3, "d": 3}}, "names 'd'"),
        ({"i": {"a": [3, 4], "b": [3, 4, 5], "c": 3}}, "'a' has 2 sizes, and another variable 3"),
        ({"j": 3}, "unknown facet 'j'"),
        ({"fixed": "i"}, r"use res.composite\(weights\).dstudy\(…, fixed=…\)$"),
        ({"i": 0}, "positive number"),
        ({"i": []}, "its list is empty"),
        ({"p": 3, "i": 4}, "leave one out"),
        ({"weights": {"d": 1}}, "which is not a variable"),
        ({"weights": [1, 2]}, "3 numbers"),
        ({"weights": "abc"}, "not 'abc'"),
        ({"weights": [0, 0, 0]}, "at least one weight must not be zero"),
        ({"weights": [1, np.nan, 0]}, "finite number"),
        ({"weights": [1, True, 0]}, "finite number"),
        ({"sizes": [3]}, "mapping"),
        ({"sizes": {"i": 3}, "i": 4}, "given twice"),
        ({"alpha": 2}, "alpha"),
        ({"negative": "drop"}, "negative"),
        ({"design": "i:p", "i": {"a": 3, "b": 4, "c": 5}}, "same sizes"),
    ],
)
def test_plans_that_cannot_be(options, words):
    _, res = items()
    with pytest.raises(PlanError, match=words):
        res.dstudy(**options)


def test_a_linked_facet_has_one_size():
    for sizes in ((3, 4, 5), (3, 3, 5), (5, 3, 3)):
        with pytest.raises(PlanError, match="linked"):
            wide().dstudy(i=dict(zip("abc", sizes, strict=True)))
    assert wide().dstudy(i={"a": 3, "b": 3, "c": 3}).table["i"].tolist() == [3] * 4


def test_variables_without_common_objects_have_no_composite():
    data = specification(2)
    data["p"] = data["test"] + data["p"].astype(str)
    res = vcomp.fit_multivariate(ITEMS, data, variable="test", method="anova")
    assert np.isnan(res.matrix("p").loc["a", "b"])
    assert any(note.startswith("p: no covariances") for note in res.notes)
    with pytest.raises(PlanError, match="universe scores cannot be estimated"):
        res.dstudy()
    with pytest.raises(PlanError, match="share no levels"):
        res.composite()
    alone = res.dstudy({"a": 1}, i=10).table
    assert alone["Erho2"].notna().all()


def test_a_negative_composite_variance_is_taken_as_zero_and_said():
    data = specification(8, n_p=40)
    data["y"] -= data.groupby(["test", "i"])["y"].transform("mean")  # items are all alike
    res = vcomp.fit_multivariate(ITEMS, data, variable="test", method="anova")
    assert (np.diagonal(res.matrix("i")) < 0).all()
    w = {"a": 1, "b": 1}
    study = res.dstudy(w, i=10)
    assert any("replaced by 0" in note and COMPOSITE in note for note in study.notes)


def test_notes_on_all_variables_name_none():
    data = specification(8, n_p=40)
    data.loc[data["test"] == "a", "y"] -= data.groupby(["test", "i"])["y"].transform("mean")
    res = vcomp.fit_multivariate(ITEMS, data, variable="test", method="anova")
    study = res.dstudy(i=4.5)
    (rows,) = study.studies
    common = set.intersection(*(set(row.notes) for row in rows))
    others = {note for row in rows for note in row.notes} - common
    assert common
    assert others
    assert common <= set(study.notes)
    assert not others & set(study.notes)


def test_another_design_of_the_composite():
    res = wide()
    nested = res.dstudy(design="i:p", i=10)
    (study,) = nested.studies
    w = np.full(3, 1 / 3)
    expected = sum(w @ res.matrix(t).to_numpy() @ w for t in ("i", "Residual")) / 10
    assert study[-1].columns["rel_err_var"][0] == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(nested.matrices[0][1].T @ w @ w, expected, rtol=1e-12)


def test_another_design_of_three_facets_keeps_the_sizes_that_are_not_given():
    rng = np.random.default_rng(4)
    p, i, r = (x.ravel() for x in np.indices((9, 4, 3)))
    data = {"p": p, "i": i, "r": r}
    for name in "ab":
        noise = rng.normal(size=9)[p] + rng.normal(size=4)[i] + rng.normal(size=3)[r]
        data[name] = noise + rng.normal(size=(9, 4))[p, i] + rng.normal(size=p.size)
    terms = "(1|p) + (1|i) + (1|r) + (1|p:i) + (1|p:r) + (1|i:r)"
    res = vcomp.fit_multivariate(f"a + b ~ {terms}", data, method="anova")
    w = np.array([0.7, 0.3])
    v = {t: w @ res.matrix(t).to_numpy() @ w for t in res.terms}
    assert res._record.components.mean_products is None  # of two facets alone
    (study,) = res.dstudy(w, design="p x (r:i)", i=5, negative="keep").studies
    expected = v["p:i"] / 5 + (v["p:r"] + v["Residual"]) / 15
    assert study[-1].columns["rel_err_var"][0] == pytest.approx(expected, rel=1e-10)


def test_a_facet_without_a_size_keeps_that_of_each_variable():
    """Items of their own, 3 and 5 of them, and two occasions of all scores."""
    rng = np.random.default_rng(9)
    rows = []
    for a, n in (("a", 3), ("b", 5)):
        of_p, of_i = rng.normal(size=12), rng.normal(size=n)
        rows += [
            (a, p, f"{a}{i}", r, of_p[p] + of_i[i] + rng.normal())
            for p in range(12)
            for i in range(n)
            for r in range(2)
        ]
    data = pd.DataFrame(rows, columns=["test", "p", "i", "r", "y"])
    terms = "(1|p) + (1|i) + (1|r) + (1|p:i) + (1|p:r) + (1|i:r)"
    res = vcomp.fit_multivariate(f"y ~ {terms}", data, variable="test", method="anova")
    w, n = np.array([0.6, 0.4]), np.array([3.0, 5.0])
    S = {t: res.matrix(t).fillna(0.0).to_numpy() for t in ("p:i", "p:r", "Residual")}
    expected = w**2 @ (np.diagonal(S["p:i"]) / n + np.diagonal(S["Residual"]) / (4 * n))
    expected += w @ S["p:r"] @ w / 4
    (study,) = res.dstudy(w, r=4, negative="keep").studies
    assert study[-1].columns["rel_err_var"][0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("replicates", [1, 2])
def test_mean_products_of_variables_are_their_mean_squares(replicates):
    """On the diagonal, and between variables by sums and differences."""
    rng = np.random.default_rng(6)
    p, i, _ = (x.ravel() for x in np.indices((7, 4, replicates)))
    a, b = 10.0 * rng.normal(size=(2, 7))[:, p] + rng.normal(size=(2, p.size))
    data = {"p": p, "i": i, "a": a, "b": 0.01 * b, "c": a + 0.01 * b, "d": a - 0.01 * b}
    terms = "(1|p) + (1|i)" + (" + (1|p:i)" if replicates > 1 else "")
    res = vcomp.fit_multivariate(f"a + b ~ {terms}", data, method="anova")
    products, tables = res._record.components.mean_products

    def squares(name):
        table = vcomp.fit(f"{name} ~ {terms}", data)._record.components.mean_squares
        return np.array([table.ms_rows, table.ms_columns, table.ms_residual])

    for k, name in enumerate("ab"):
        np.testing.assert_allclose(products[:, k, k], squares(name), rtol=1e-9)
        assert tables[k].n_replicates == replicates
    between = (squares("c") - squares("d")) / 4.0
    np.testing.assert_allclose(products[:, 0, 1], between, rtol=1e-6, atol=1e-12)


def test_the_summary_says_what_is_planned():
    study = items()[1].dstudy({"a": 0.5, "b": 0.5}, i={"a": [5, 90], "b": 5, "c": 5})
    assert study.table.columns[0] == "score"
    text = " ".join(str(study).split())
    universe, relative, _ = study.shares[0]
    for k, name in enumerate("abc"):
        assert f"{name} {100 * universe[k]:.0f} % and {100 * relative[k]:.0f} %" in text
    assert "D-study of 3 variables; object of measurement: p" in text
    assert "composite: 0.5 × a, 0.5 × b, 0 × c." in text
    assert "(first plan)" in text


def test_a_composite_without_variance_has_no_shares():
    """Estimates of analyses of variance may cancel; those of the other variances have shares."""
    matrices = np.array([[np.diag([1.0, -1.0]), np.diag([3.0, 1.0]), -np.eye(2)]])
    study = MultivariateDStudy(("a", "b"), np.ones(2), "p", ((),), matrices)
    np.testing.assert_array_equal(study.shares, [[[np.nan] * 2, [0.75, 0.25], [np.nan] * 2]])
    small = MultivariateDStudy(("a", "b"), np.ones(2), "p", ((),), matrices * 2.0**-60)
    np.testing.assert_array_equal(small.shares, study.shares)

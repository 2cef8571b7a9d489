"""patsy's part of a formula: names, values, memory, and errors in the words of vcomp."""

import numpy as np
import pandas as pd
import pytest
from patsy import EvalEnvironment

import vcomp
from vcomp.data.rows import evaluate
from vcomp.formula import parse
from vcomp.formula.fixed import FixedPart
from vcomp.formula.formula_terms import names_in

X = np.array([1.0, 2.0, 4.0, 8.0])
G = pd.Categorical(["a", "b", "c", "a"])


def scope(**variables):
    return EvalEnvironment([{"np": np, **variables}])


def fixed(right, columns, environment=None):
    return FixedPart.of_rows(
        parse(f"y ~ {right} + (1|s)"), lambda: [columns], environment or scope(), 1
    )


@pytest.mark.parametrize(
    ("right", "names", "matrix"),
    [
        ("1", ["Intercept"], [[1], [1], [1], [1]]),
        ("x", ["Intercept", "x"], [[1, 1], [1, 2], [1, 4], [1, 8]]),
        ("0 + x", ["x"], [[1], [2], [4], [8]]),
        ("0", [], [[], [], [], []]),
        ("I(x**2)", ["Intercept", "I(x ** 2)"], [[1, 1], [1, 4], [1, 16], [1, 64]]),
        ("np.log2(x)", ["Intercept", "np.log2(x)"], [[1, 0], [1, 1], [1, 2], [1, 3]]),
        ("Q('x')", ["Intercept", "Q('x')"], [[1, 1], [1, 2], [1, 4], [1, 8]]),
        (
            "C(g)",
            ["Intercept", "C(g)[T.b]", "C(g)[T.c]"],
            [[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 0, 0]],
        ),
        ("0 + g", ["g[a]", "g[b]", "g[c]"], [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]),
        ("C(x > 3)", ["Intercept", "C(x > 3)[T.True]"], [[1, 0], [1, 0], [1, 1], [1, 1]]),
        # Names of numeric levels are the numbers, whatever numpy's repr says.
        (
            "C(x)",
            ["Intercept", "C(x)[T.2]", "C(x)[T.4]", "C(x)[T.8]"],
            [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]],
        ),
        ("C(x / 4)", ["Intercept", "C(x / 4)[T.0.5]", "C(x / 4)[T.1]", "C(x / 4)[T.2]"], None),
    ],
)
def test_columns_of_x(right, names, matrix):
    part = fixed(right, {"x": X, "g": G})
    assert list(part.names) == names
    X_built = part.matrix({"x": X, "g": G}, 4)
    assert X_built.shape == (4, len(names))
    if matrix is not None:
        np.testing.assert_array_equal(X_built, matrix)


def test_transforms_remember_the_rows_that_they_saw():
    part = fixed("center(x) + standardize(x)", {"x": X})
    mean, sd = 3.75, np.std(X)
    np.testing.assert_allclose(
        part.matrix({"x": np.array([10.0])}, 1), [[1.0, 10.0 - mean, (10.0 - mean) / sd]]
    )
    spline = fixed("bs(x, df=4)", {"x": X})
    np.testing.assert_allclose(
        spline.matrix({"x": X[1:3]}, 2), spline.matrix({"x": X}, 4)[1:3], atol=1e-15
    )


def test_predictions_use_what_the_fit_remembered():
    rng = np.random.default_rng(4)
    data = pd.DataFrame({"x": rng.uniform(0.0, 9.0, 40), "s": np.arange(40) % 5})
    data["y"] = 2.0 + 3.0 * data["x"] + data["s"] + rng.normal(size=40)
    plain = vcomp.fit("y ~ x + (1|s)", data)
    for right in ("center(x)", "standardize(x)", "bs(x, df=3, degree=1)"):
        result = vcomp.fit(f"y ~ {right} + (1|s)", data)
        # One row has no mean and no knots of its own.
        one, all_rows = result.predict(data.iloc[[7]]), result.predict(data)
        assert one.item() == pytest.approx(all_rows.iloc[7], rel=1e-10)
        np.testing.assert_allclose(all_rows, result.fittedvalues, rtol=1e-10)
        if right != "bs(x, df=3, degree=1)":
            np.testing.assert_allclose(all_rows, plain.fittedvalues, rtol=1e-6)


def test_levels_are_remembered_and_new_ones_refused():
    part = fixed("g", {"g": G})
    np.testing.assert_array_equal(part.matrix({"g": ["c"]}, 1), [[1.0, 0.0, 1.0]])
    with pytest.raises(vcomp.DataError, match=r"expression of the formula.*'z'"):
        part.matrix({"g": ["z"]}, 1)


def test_functions_of_the_caller():
    def double(x):
        return 2.0 * x

    part = fixed("double(x)", {"x": X}, scope(double=double))
    np.testing.assert_array_equal(part.matrix({"x": X}, 4)[:, 1], 2.0 * X)


@pytest.mark.parametrize(
    ("right", "words"),
    [
        ("I(1/0)", ["ZeroDivisionError", "^^^^^^"]),
        ("x['a']", ["IndexError", "^^^^^^"]),
        ("missing_name(x)", ["NameError", "missing_name"]),
        ("C(g, Treatment('zz'))", ["'zz'"]),
    ],
)
def test_what_python_cannot_evaluate(right, words):
    with pytest.raises(vcomp.FormulaError, match="an expression of the formula") as caught:
        fixed(right, {"x": X, "g": G})
    assert "Error evaluating factor" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("right", ["np.mean(x)", "'text'", "x[:3]", "len(x)"])
def test_a_term_has_a_value_for_every_row(right):
    with pytest.raises(vcomp.DataError, match=r"gives [13] rows where the data have 4"):
        fixed(right, {"x": X}).matrix({"x": X}, 4)


@pytest.mark.parametrize(
    ("right", "words"),
    [
        ("np.log(x - 1)", r"'np.log\(x - 1\)' of the fixed part is infinite in 1 of 4 rows"),
        ("np.log(x - 3)", r"a term has missing values in rows whose columns have none"),
    ],
)
def test_what_is_not_finite_is_named_and_numpy_is_silent(right, words):
    with pytest.raises(vcomp.DataError, match=words) as caught:
        fixed(right, {"x": X}).matrix({"x": X}, 4)
    assert right.split("(")[0] in str(caught.value)


def test_evaluate_looks_among_the_columns_first():
    environment = scope(y=np.zeros(4), k=3.0)
    assert evaluate("y", {"y": X}, environment) is X
    np.testing.assert_array_equal(evaluate("k * y", {"y": X}, environment), 3.0 * X)
    np.testing.assert_array_equal(evaluate("Q('y')", {"y": X}, environment), X)
    np.testing.assert_array_equal(evaluate("I(y)", {"y": X}, environment), X)
    np.testing.assert_allclose(evaluate("center(y)", {"y": X}, environment), X - 3.75)
    # A column may be called like one of patsy's functions.
    assert evaluate("C", {"C": X}, environment) is X
    np.testing.assert_array_equal(evaluate("C + 1", {"C": X}, environment), X + 1)


def test_evaluate_says_what_python_said():
    with pytest.raises(vcomp.FormulaError, match=r"'y \+ z'.*NameError.*'z'"):
        evaluate("y + z", {"y": X}, scope())


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("x", ("x",)),
        ("np.log(score) - Q('base line')", ("np", "score", "base line")),
        ("I(a + b)", ("a", "b")),
        ("C(g, Treatment('z'))", ("g", "Treatment")),
        ("C + I(Q)", ("C", "Q")),
        ("a + b + a", ("a", "b")),
        ("[i + a for i in x]", ("a", "x")),
        ("f(lambda t: t + a)", ("f", "a")),
        ("x['a']", ("x",)),
        ("x.a.b", ("x",)),
        ("1 + 2", ()),
    ],
)
def test_names_in(code, names):
    assert set(names_in(code)) == set(names)
    assert len(names_in(code)) == len(names)


@pytest.mark.parametrize(
    ("right", "has_covariates"),
    [
        ("1", False),
        ("x", True),
        ("g", False),
        ("0 + C(g)", False),
        ("g:h", False),
        ("C(g, levels=['c', 'b', 'a'])", False),
        ("Q('g') + I(x ** 2)", True),
        ("g:x", True),
        ("bs(x, df=4)", True),
    ],
)
def test_factors_are_known_by_the_names_of_columns(right, has_covariates):
    """So that statistics that are stored without their coding have the same robust errors."""
    data = {"x": X, "g": G, "h": pd.Categorical(["u:[", "v", "it's", "v"])}
    part = fixed(right, data)
    infos = [] if part.design_info is None else part.design_info.factor_infos.values()
    categorical = {n for i in infos if i.type == "categorical" for n in "gh" if n in i.factor.code}
    assert part.factor_columns == (categorical, has_covariates)
    assert FixedPart(part.names, is_known=False).factor_columns == part.factor_columns

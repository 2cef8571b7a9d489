"""R's functions in formulas are R's: values of lmer, from r_functions.R."""

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.formula.formula_terms import poly, scale

DATA = pd.DataFrame(
    {
        "g": np.repeat(list("abcdef"), 5),
        "k": [3, 1, 2, 4, 2] * 6,
        "x": [2.1, 3.4, 1.2, 5.6, 4.4, 3.9, 2.8, 6.1, 1.7, 2.2, 4.9, 5.3, 3.1, 2.6, 1.9,
              6.4, 4.1, 3.6, 2.9, 5.8, 1.4, 2.5, 4.7, 3.3, 5.1, 2.3, 6.2, 1.1, 4.2, 3.7],
        "y": [3.2, 4.1, 2.7, 6.9, 5.2, 5.5, 3.9, 8.8, 3.1, 3.3, 5.1, 5.9, 3.4, 2.9, 2.6,
              9.2, 6.0, 5.3, 4.6, 8.1, 2.2, 2.9, 4.4, 3.7, 5.4, 3.6, 8.4, 2.3, 5.7, 5.0],
    }
)  # fmt: skip

LMER = {
    "log(y) ~ log(x)": (0.6325152779, 0.7243755914, 0.01887210955, 0.007935462189, 18.94398169),
    "log(y, 2) ~ log(x, base = 10)": (
        0.9125266545, 2.406323629, 0.03927982174, 0.01651662499, 9.515652361),
    "sqrt(y) ~ exp(x/5)": (0.924662264, 0.5635098524, 0.0177775378, 0.004534383689, 25.26785621),
    "log10(y) ~ log1p(x)": (
        0.009901199802, 0.4326332066, 0.003473991774, 0.0009014327353, 48.57445057),
    "y ~ factor(k)": (5.2, -0.4916666667, -0.4, -0.7166666667, 0.2937457224, 3.952071423,
                      -59.47762137),
    "y ~ as.factor(k)": (5.2, -0.4916666667, -0.4, -0.7166666667, 0.2937457224, 3.952071423,
                         -59.47762137),
    "y ~ poly(x, 2)": (4.78, 9.37185713, 1.475561571, 0.3765530782, 0.08246400073, -14.1964606),
    "y ~ poly(x, degree = 3)": (
        4.78, 9.39955481, 1.477883782, 0.5428562616, 0.3462797832, 0.07557878997, -12.83753507),
    "y ~ poly(x, 2, raw = TRUE)": (
        2.161399037, 0.2189318879, 0.1179974573, 0.3765530659, 0.08246400131, -18.86121378),
    "y ~ x + I(x^2)": (
        2.161399037, 0.2189318879, 0.1179974573, 0.3765530659, 0.08246400131, -18.86121378),
    "I(y^2) ~ x": (-16.42513718, 11.88897802, 42.7815255, 71.57267844, -106.7884982),
    "y ~ (x + factor(k))^2": (
        0.002944581821, 1.28322356, 0.9100833615, 0.9903528359, 0.6882820443, -0.2215996747,
        -0.1955942508, -0.1624038436, 0.4143724442, 0.1984271563, -28.52781185),
    "y ~ scale(x)": (4.78, 1.744574291, 0.408083511, 0.1681597887, -24.55592606),
    "y ~ scale(x, scale = FALSE)": (
        4.78, 1.106869936, 0.408083473, 0.1681597918, -25.01090047),
    "y ~ scale(x, center = FALSE)": (
        0.776820399, 4.429626169, 0.4080834743, 0.1681597917, -23.62412143),
    "y ~ scale(log(x)) * factor(k)": (
        4.297940113, 2.673593906, 0.5259665685, 0.7139051321, 0.2847108749, -1.257246812,
        -0.8807357379, -0.9012095434, 0.4226440976, 0.6040027132, -36.43785914),
    "scale(y) ~ x": (-2.039314439, 0.5638657436, 0.1059027574, 0.04363956323, -6.125593381),
}  # fmt: skip


@pytest.mark.parametrize("formula", LMER)
def test_fits_are_those_of_lmer(formula):
    *fixed, of_g, residual, llf = LMER[formula]
    res = vcomp.fit(f"{formula} + (1|g)", DATA)
    # patsy puts factors before numbers.
    np.testing.assert_allclose(np.sort(res.fe_params), np.sort(fixed), rtol=1e-7)
    np.testing.assert_allclose(res.vcomp, [of_g, residual], rtol=2e-7)
    assert res.llf == pytest.approx(llf, rel=1e-9)


@pytest.mark.parametrize(
    "formula",
    ["log(y) ~ scale(log(x))", "y ~ poly(x, 2):factor(k)", "I(y^2) ~ scale(x, center = FALSE)"],
)
def test_batches_give_the_same(formula):
    whole = vcomp.fit(f"{formula} + (1|g)", DATA)
    parts = [DATA.iloc[:1], DATA.iloc[1:17], DATA.iloc[17:]]
    streamed = vcomp.fit(f"{formula} + (1|g)", parts, stream=True)
    np.testing.assert_allclose(streamed.params, whole.params, rtol=1e-10)
    new = DATA.iloc[[7, 3]]
    expected = whole.fittedvalues.to_numpy()[[7, 3]]
    for res in (whole, streamed):
        np.testing.assert_allclose(res.predict(new), expected, rtol=1e-10)


def test_a_response_that_depends_on_all_rows_is_refused_in_batches():
    with pytest.raises(vcomp.DataError, match="depends on the other rows"):
        vcomp.fit("scale(y) ~ x + (1|g)", [DATA.iloc[:17], DATA.iloc[17:]], stream=True)


def test_polynomials_are_orthonormal_far_from_zero():
    """Gram and Schmidt's, by QR of the powers of the distance from the mean."""
    x = 2000.0 + DATA["x"].to_numpy()
    Q, R = np.linalg.qr(np.vander(x - x.mean(), 5, increasing=True))
    np.testing.assert_allclose(poly(x, 4), (Q * np.sign(np.diagonal(R)))[:, 1:], atol=1e-10)


def test_scales_of_batches_far_from_zero():
    x = 1e6 + DATA["x"].to_numpy()
    whole = scale.__patsy_stateful_transform__()
    for part in (x[:0], x[:3], x[3:4], x[4:]):
        whole.memorize_chunk(part)
    expected = (x - x.mean()) / x.std(ddof=1)
    np.testing.assert_allclose(whole.transform(x), expected, atol=1e-8)
    np.testing.assert_allclose(scale(x), expected, atol=1e-8)


def test_names_of_the_caller_and_of_the_data_come_first():
    def scale(x):
        return 2.0 * x

    def log(x):
        return x

    mine = vcomp.fit("log(y) ~ scale(x) + (1|g)", DATA)
    assert mine.fe_params["scale(x)"] == pytest.approx(1.106869936 / 2, rel=1e-7)
    named = vcomp.fit("y ~ scale + poly + (1|g)", DATA.rename(columns={"x": "scale", "k": "poly"}))
    np.testing.assert_allclose(named.params, vcomp.fit("y ~ x + k + (1|g)", DATA).params)


def test_quoted_names_are_not_translated():
    names = {"x": "x^2 factor(TRUE)", "k": "TRUE.k"}
    data = DATA.rename(columns=names)
    res = vcomp.fit("y ~ `x^2 factor(TRUE)` + Q('TRUE.k') + (1|g)", data)
    np.testing.assert_allclose(res.params, vcomp.fit("y ~ x + k + (1|g)", DATA).params)


@pytest.mark.parametrize(
    ("term", "words"),
    [
        ("poly(k, 4)", "poly() of degree 4 needs more than as many values"),
        ("poly(x, 'two')", "the degree of poly() must be a whole number from 1, not 'two'"),
        ("scale(g)", "could not convert"),
        ("k^x", "a power is written **"),
        ("stats::poly(x, 2)", "without its package"),
        ("pmax(x, k)", "write np.maximum(x, k)"),
        ("ifelse(x > 3, 1, 0)", "write np.where(x > 3, 1, 0)"),
        ("as.integer(k)", "write k, or I(k.astype(float))"),
        ("ordered(k)", "write C(k, Poly)"),
        ("C(k, levels=c(3, 1, 2, 4))", "write [3, 1, 2, 4]"),
    ],
)
def test_what_differs_is_refused_with_what_to_write(term, words):
    with pytest.raises(vcomp.VcompError) as caught:
        vcomp.fit(f"y ~ {term} + (1|g)", DATA)
    assert words in str(caught.value)


def test_orthogonal_contrasts_of_an_ordered_factor():
    """The polynomials of ordered() in R are those of its advice."""
    advised = vcomp.fit("y ~ C(k, Poly) + (1|g)", DATA, method="ml")
    as_factor = vcomp.fit("y ~ factor(k) + (1|g)", DATA, method="ml")
    assert advised.llf == pytest.approx(as_factor.llf, rel=1e-10)
    # contr.poly(4), from R.
    linear = np.array([-0.6708204, -0.2236068, 0.2236068, 0.6708204])
    means = as_factor.fe_params["Intercept"] + np.append(0.0, as_factor.fe_params.iloc[1:])
    assert advised.fe_params["C(k, Poly).Linear"] == pytest.approx(linear @ means, rel=1e-6)


def test_a_variable_that_hides_a_function_is_named():
    data = pd.DataFrame({"y": np.arange(12.0) % 5, "k": [0, 1, 2] * 4, "g": [0, 1] * 6})
    C = np.ones(3)
    with pytest.raises(vcomp.FormulaError, match=r"as C = 1 hides C\(\): rename it"):
        vcomp.fit("y ~ factor(k) + (1|g)", data)
    del C
    assert len(vcomp.fit("y ~ factor(k) + (1|g)", data).fe_params) == 3

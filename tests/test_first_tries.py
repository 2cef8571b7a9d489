"""What users of lme4, nlme, SAS, Stata, SPSS, statsmodels and pandas write first.

It either works, and is what the second formula is, or the message has what to write; where that is
a formula, it is fitted here.
"""

import re

import numpy as np
import pandas as pd
import pytest

import vcomp

RNG = np.random.default_rng(1)
N = 48
DATA = pd.DataFrame(
    {
        "class": np.repeat(list("abcd"), 12),
        "Part No": np.tile(list("xyz"), 16),
        "batch.no": np.tile(range(4), 12),
        "1st": np.tile(range(4), 12),
        "if": np.tile(range(4), 12),
        "g": np.repeat(range(6), 8),
        "h": np.tile(range(4), 12),
        "subject": np.repeat(range(8), 6),
        "x": RNG.normal(size=N),
        "yield": RNG.normal(size=N) + 5.0,
        "y": RNG.normal(size=N) + 10.0,
    }
)


def components(formula, **options):
    return vcomp.fit(formula, DATA, **options).vcomp.to_numpy()


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("yield ~ (1|class)", "Q('yield') ~ (1|Q('class'))"),
        ("`yield` ~ (1|`class`)", "Q('yield') ~ (1|Q('class'))"),
        ("y ~ class*x + (1|g)", "y ~ Q('class')*x + (1|g)"),
        ("y ~ `Part No` + (1|g)", "y ~ Q('Part No') + (1|g)"),
        ("y ~ (1|`Part No`:class)", "y ~ (1|Q('class'):Q('Part No'))"),
        ("y ~ (1|'Part No')", "y ~ (1|Q('Part No'))"),
        ('y ~ (1|"Part No")', "y ~ (1|Q('Part No'))"),
        ("y ~ (1|Q(Part No))", "y ~ (1|Q('Part No'))"),
        ("y ~ Q(class) + (1|g)", "y ~ Q('class') + (1|g)"),
        ("y ~ (1|batch.no)", "y ~ (1|Q('batch.no'))"),
        ("y ~ (1|`1st`) + (1|if)", "y ~ (1|h)"),
        ("log(y) ~ (1|g)", "np.log(y) ~ (1|g)"),
        ("sqrt(y) ~ exp(x) + (1|g)", "np.sqrt(y) ~ np.exp(x) + (1|g)"),
        ("log10(y) ~ log1p(Q('yield')) + (1|g)", "np.log10(y) ~ np.log1p(Q('yield')) + (1|g)"),
        ("y ~ (1|C(g))", "y ~ (1|g)"),
        ("y ~ (1|factor(g))", "y ~ (1|g)"),
        ("y ~ scale(x) + (1|g)", "y ~ standardize(x, ddof=1) + (1|g)"),
        ("y ~ factor(g) + (1|h)", "y ~ C(g) + (1|h)"),
        ("y ~ as.factor(g) + (1|as.factor(h))", "y ~ C(g) + (1|h)"),
        ("y ~ x + I(x^2) + (1|g)", "y ~ x + I(x**2) + (1|g)"),
        ("y ~ (x + h)^2 + (1|subject)", "y ~ (x + h)**2 + (1|subject)"),
    ],
)
def test_it_works(written, same):
    if "1st" in written:
        with pytest.raises(vcomp.DesignError, match="confounded"):  # both are read as columns
            components(written)
        return
    # Facets in another order are summed in another order.
    np.testing.assert_allclose(components(written), components(same), rtol=1e-13)


@pytest.mark.parametrize(
    ("written", "formula"),
    [
        ("y ~ x", "y ~ x + (1|Part No)"),
        ("y ~ g + h", "y ~ (1|g) + (1|h)"),
        ("y ~ random(g)", "y ~ (1|g)"),
        ("y ~ x + Error(g/h)", "y ~ x + (1|g/h)"),
        ("y ~ re(g)", "y ~ (1|g)"),
        ("y = x + (1|g)", "y ~ x + (1|g)"),
        ("y <- x + (1|g)", "y ~ x + (1|g)"),
        ("model y = x; random g;", "y ~ x + (1|g)"),
        ("class g h; model y = x / solution; random g h(g);", "y ~ x + (1|g) + (1|g:h)"),
        ("proc mixed; model y = ; random g h g*h;", "y ~ (1|g) + (1|h) + (1|g:h)"),
        ("mixed y x || g:", "y ~ x + (1|g)"),
        ("y i.h x || g:", "y ~ C(h) + x + (1|g)"),
        ("mixed y || g: || h:", "y ~ (1|g) + (1|g:h)"),
        ("y ~ x || g:", "y ~ x + (1|g)"),
    ],
)
def test_the_message_has_the_formula(written, formula):
    with pytest.raises(vcomp.FormulaError) as caught:
        vcomp.fit(written, DATA)
    (found,) = re.findall(r"""(?:instance|written) (["'])(.*?)\1(?: here|$)""", str(caught.value))
    if written == "y ~ x":  # of columns of the data, whichever come first
        assert components(found[1]).shape == (2,)
    else:
        assert found[1] == formula
        components(formula)


@pytest.mark.parametrize(
    ("options", "formula"),
    [
        ({"random": "~1|g"}, "y ~ x + (1|g)"),
        ({"random": "~1|g/h"}, "y ~ x + (1|g/h)"),
        ({"random": {"g": "~1", "h": "~1"}}, "y ~ x + (1|g) + (1|h)"),
        ({"random": ["g", "h"]}, "y ~ x + (1|g) + (1|h)"),
        ({"random": "Part No"}, "y ~ x + (1|Q('Part No'))"),
        ({"groups": "g"}, "y ~ x + (1|g)"),
        ({"groups": DATA["g"]}, "y ~ x + (1|g)"),
        ({"groups": "g", "vc_formula": {"h": "0 + C(h)"}}, "y ~ x + (1|g:h)"),
        (
            {"groups": "g", "re_formula": "1", "vc_formula": {"h": "0 + C(h)"}},
            "y ~ x + (1|g) + (1|g:h)",
        ),
        ({"groups": "g", "vc_formula": {"tall": "0 + C(h)"}}, "y ~ x + (1|g:h)"),
        ({"re_formula": "0", "groups": "g", "vc_formula": {"h": "0 + C(h)"}}, "y ~ x + (1|g:h)"),
        ({"groups": "g", "re_formula": "~x"}, "y ~ x + (1 + x|g)"),
        ({"groups": "g", "re_formula": "0 + x"}, "y ~ x + (0 + x|g)"),
        ({"groups": "Part No", "re_formula": "x - 1"}, "y ~ x + (0 + x|Q('Part No'))"),
        ({"re_formula": "1 + x"}, "y ~ x + (1 + x|g)"),
        ({"random": "~x|g"}, "y ~ x + (1 + x|g)"),
        ({"random": "~ 1 + x | g"}, "y ~ x + (1 + x|g)"),
        ({"random": "~ x - 1 | g"}, "y ~ x + (0 + x|g)"),
        ({"random": {"g": "~x"}}, "y ~ x + (1 + x|g)"),
        ({"vc_formula": {"h": "0 + C(h)"}}, "y ~ x + (1|h)"),
        ({"class_": "g"}, "y ~ x + (1|g)"),
    ],
)
def test_random_terms_in_options(options, formula):
    with pytest.raises(vcomp.EstimationError, match="random terms are part of the formula") as e:
        vcomp.fit("y ~ x", DATA, **options)
    assert str(e.value).endswith(repr(formula))
    components(formula)


@pytest.mark.parametrize("left_out", [None, "re_formula", "vc_formula"])
def test_random_terms_in_options_are_those_of_statsmodels(left_out):
    """The advised formula has the covariance parameters and groups of the call that was made."""
    formulas = pytest.importorskip("statsmodels.formula.api")
    given = {"groups": "subject", "vc_formula": {"part": "0 + C(h)"}, "re_formula": "~x"}
    given.pop(left_out, None)
    with pytest.raises(vcomp.EstimationError) as caught:
        vcomp.fit("y ~ x", DATA, **given)
    res = vcomp.fit(re.search(r"'(y ~ .*)'", str(caught.value))[1], DATA)
    theirs = formulas.mixedlm("y ~ x", DATA, **given)
    parameters = theirs.k_re * (theirs.k_re + 1) // 2 + theirs.k_vc
    assert len(res.vcomp) - 1 == parameters
    assert ("subject[x]" in res.vcomp) == (theirs.k_re == 2)
    if theirs.k_vc:
        n_groups = sum(m.shape[1] for m in theirs.exog_vc.mats[0])
        assert n_groups == len(res.random_effects["subject:h"])


def test_slopes_take_the_place_of_the_intercepts_in_the_formula():
    with pytest.raises(vcomp.EstimationError, match=r"'y ~ x \+ \(1 \+ x\|subject\)'"):
        vcomp.fit("y ~ x + (1|subject)", DATA, re_formula="~x")
    vcomp.fit("y ~ x + (1 + x|subject)", DATA)


def test_a_transformed_response_is_advised_as_a_whole_formula():
    with pytest.raises(vcomp.EstimationError, match="scores of 0 and 1 are fitted") as caught:
        vcomp.fit("y ~ x + (1|subject)", DATA, family="gamma")
    written = re.search(r"as in: '(.*)'", str(caught.value))[1]
    logs = DATA.assign(y=np.log(DATA["y"]))
    expected = vcomp.fit("y ~ x + (1|subject)", logs)
    assert vcomp.fit(written, DATA).llf == pytest.approx(expected.llf, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"REML": False}, "method='ml'"),
        ({"reml": False}, "method='ml'"),
        ({"REML": True}, "method='reml'"),
        ({"freq_weights": "x"}, "it is frequency= here"),
        ({"var_weights": DATA["x"]}, "it is weights= here"),
        ({"exposure": "x"}, "offset(np.log(exposure))"),
        ({"family": "binomial"}, "responses are normal"),
        ({"correlation": "corAR1()"}, "residuals are independent"),
        ({"control": {}}, "max_iter="),
        ({"subset": "x > 0"}, "data.query"),
        ({"na_action": "omit"}, "missing='drop'"),
        ({"contrasts": {}}, "C(g, Sum)"),
        ({"verbose": 1}, "res.summary()"),
        ({"maxiter": 3}, "max_iter="),
        ({"use_sqrt": False}, "leave it out"),
        ({"fe_pen": 1.0}, "hold={'g': 0.5}"),
        ({"free": None}, "hold={'g': 0.5}"),
        ({"exog": DATA["x"]}, "{'y': y, 'x': x, 'g': g}"),
        ({"na.action": "na.omit"}, "missing='drop'"),
        ({"start_params": [1, 1]}, "start={'g': 0.5}"),
        ({"cov_type": "robust"}, "res.f_test()"),
        ({"ddfm": "kr"}, "res.f_test()"),
        ({"alpha": 0.1}, "res.conf_int(alpha=0.1)"),
        ({"nobound": True}, "negative estimates"),
        ({"method": "type3"}, "'henderson3'"),
        ({"method": "MIVQUE0"}, "'minque'"),
        ({"method": "lbfgs"}, "leave method= out"),
        ({"method": ["powell", "lbfgs"]}, "leave method= out"),
        ({"method": "MIVQUE(0)"}, "'minque'"),
        ({"method": "mle"}, "'ml'"),
        ({"engin": "strata"}, "did you mean 'engine'?"),
    ],
)
def test_options_of_other_libraries(options, words):
    with pytest.raises(vcomp.EstimationError) as caught:
        vcomp.fit("y ~ (1|g)", DATA, **options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("y ~ (1|Part No)", "Q('Part No')"),
        ("y ~ x + random(g:h)", "(1|g:h)"),
        ("y ~ (1|1st)", "Q('1st')"),
        ("y ~ C(Part No) + (1|g)", "write C(Q('Part No'))"),
        ("y ~ C(class) + (1|g)", "write C(Q('class'))"),
        ("y ~ batch.no + (1|g)", "Q('batch.no')"),
        ("y ~ ordered(g) + (1|h)", "write C(g, Poly)"),
        ("y ~ i.g + (1|h)", "C(g)"),
        ("y ~ c.x + (1|h)", "written x"),
        ("y ~ C(g, contr.sum) + (1|h)", "C(g, Sum)"),
        ("y ~ offset(x, h) + (1|g)", "as in y ~ x + offset(z) + (1|g)"),
        ("y ~ weights(x) + (1|g)", "weights='x'"),
        ("y ~ ln(y) + (1|g)", "np.log(y)"),
        ("y ~ mean(x) + (1|g)", "np.mean(x)"),
        ("y ~ cumsum(x) + (1|g)", "np.cumsum(x)"),
        ("y ~ ns(x, 3) + (1|g)", "cr(x, df=3, constraints='center')"),
        ("y ~ s(x, k=3) + (1|g)", "bs(x, df=4)"),
        ("y ~ us(x|g)", "structure"),
        ("y ~ (1|g) + ar1(x + 0|subject)", "structure"),
        ("y ~ (1|gr(g))", "structure"),
        ("cbind(y, x) ~ (1|g)", "one response at a time"),
        ("y ~ nothing(x) + (1|g)", "there is no function 'nothing'"),
        ("y ~ I(x^g) + (1|h)", "I(x**2)"),
        ("y ~ g %in% h + (1|subject)", "b:a"),
        ("y ~ (1|DATA$g)", "with data=d"),
        ("y ~ g(h) + (1|subject)", "h:g"),
        ("y ~ (1|g(h))", "(1|h:g)"),
        ("y ~ (1|g, h)", "(1|g:h)"),
        ("y ~ (1|g & h)", "(1|g:h)"),
        ("y ~ (1|interaction(g, h))", "(1|g:h)"),
        ("y ~ (1/g)", "(1|g)"),
        ("y ~ (1,g)", "(1|g)"),
        ("y ~ (g|1)", "(1|g)"),
        ("y ~ x + 1|g", "(1|g)"),
        ("y ~ x | g", "(1|g)"),
        ("y ~ (1|g) (1|h)", "joined by +"),
        ("y ~ . + (1|g)", "write out the terms"),
        ("y/2 ~ (1|g)", "I(y/2)"),
        ("y - x ~ (1|g)", "I(y - x)"),
        ("~ (1|g)", "~ (1|g)"),
        ("y ~ (1|G)", "did you mean 'g'?"),
    ],
)
def test_the_message_has_what_to_write(written, words):
    with pytest.raises((vcomp.FormulaError, vcomp.DataError)) as caught:
        vcomp.fit(written, DATA)
    assert words in str(caught.value)


X = DATA["x"].to_numpy()


def natural_spline(x, n):
    """Return cubic splines, linear outside the data, with knots at n - 1 quantiles (R's ns)."""
    knots = np.quantile(x, np.linspace(0.0, 1.0, n + 1))
    last = knots[-1]

    def bent(k):
        cubes = np.maximum(x - k, 0.0) ** 3 - np.maximum(x - last, 0.0) ** 3
        return cubes / (last - k)

    return [x, *(bent(k) - bent(knots[-2]) for k in knots[:-2])]


@pytest.mark.parametrize(
    ("call", "columns"),
    [
        ("ns(x, df=5)", natural_spline(X, 5)),
        ("ns(x, 4, intercept=TRUE)", natural_spline(X, 3)),
        ("ns(x)", [X]),
        ("ns(x, knots=c(-0.5, 0.2))", None),
        ("relevel(factor(g), ref=3)", [DATA["g"] == k for k in (0, 1, 2, 4, 5)]),
        ("logit(exp(x) / 20)", [np.log(np.exp(X) / 20 / (1 - np.exp(X) / 20))]),
        ("ordered(h, levels=c(3, 2, 1, 0))", [DATA["h"] == k for k in range(3)]),
        ("interaction(g, h)", [4 * DATA["g"] + DATA["h"] == k for k in range(1, 24)]),
        ("cut(x, 4)", list(np.quantile([X.min(), X.max()], [[0.25], [0.5], [0.75]]) < X)),
    ],
)
def test_calls_of_r_are_written_with_their_own_arguments(call, columns):
    """Followed, the advice has the log-likelihood (ML) of columns that span R's."""
    with pytest.raises(vcomp.FormulaError, match="write ") as caught:
        vcomp.fit(f"y ~ {call} + (1|subject)", DATA)
    advised, _, frame = re.split("write ", str(caught.value))[1].partition(", with ")
    data = DATA
    if frame:
        data = eval(frame.removesuffix(" as the data"), {"data": DATA, "pandas": pd})
    found = vcomp.fit(f"y ~ {advised} + (1|subject)", data, method="ml")
    if columns is None:
        assert len(found.fe_params) == 4
        return
    span = DATA.assign(**{f"c{k}": np.asarray(c, float) for k, c in enumerate(columns)})
    names = " + ".join(f"c{k}" for k in range(len(columns)))
    expected = vcomp.fit(f"y ~ {names} + (1|subject)", span, method="ml")
    assert len(found.fe_params) == len(columns) + 1
    # Both end where the log-likelihood is flat to its rounding.
    assert found.llf == pytest.approx(expected.llf, rel=1e-9)


@pytest.mark.parametrize(
    ("formula", "options", "subtracted"),
    [
        ("log(y) ~ x + offset(w) + (1|g)", {}, "I(np.log(y) - w)"),
        ("I(y/2) ~ offset(np.log(y2)) + x + offset(w - x) + (1|g)", {},
         "I(y / 2 - np.log(y2) - (w - x))"),
        ("y ~ x + (1|g)", {"offset": "Part w"}, "I(y - Q('Part w'))"),
        ("np.log(y) ~ x + offset(w) + (1|g)", {"offset": "x"}, "I(np.log(y) - w - x)"),
        ("y ~ x + (1|g)", {"offset": np.ones(N)}, "I(y - o)"),
    ],
)  # fmt: skip
def test_offsets_are_subtracted_from_the_response(formula, options, subtracted):
    data = DATA.assign(w=DATA["x"] ** 2, o=1.0, y2=DATA["y"] + 1.0, **{"Part w": DATA["x"] ** 2})
    formula = formula.replace("log(y) ~", "np.log(y) ~").replace("np.np", "np")
    found = vcomp.fit(formula, data, **options)
    expected = vcomp.fit(f"{subtracted} ~ x + (1|g)", data)
    np.testing.assert_allclose(found.params, expected.params, rtol=1e-9)
    assert found.llf == pytest.approx(expected.llf, rel=1e-12)


@pytest.mark.parametrize("written", ["", "y", ["g"], "g x h"])
def test_examples_are_of_columns_of_the_data(written):
    with pytest.raises(vcomp.FormulaError) as caught:
        vcomp.fit(written, DATA)
    (found,) = re.findall(r"""(?:~: |such as )(["'])(.* ~ .*?)\1(?: and|$)""", str(caught.value))
    assert components(found[1]).shape == (3,)


def test_several_responses():
    with pytest.raises(vcomp.FormulaError, match=r"several by vcomp.fit_multivariate\(\)"):
        vcomp.fit("cbind(y, x) ~ (1|g) + (1|h)", DATA)
    several = vcomp.fit_multivariate("y + x ~ (1|g) + (1|h)", DATA)
    assert several is not None

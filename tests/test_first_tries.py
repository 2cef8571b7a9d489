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
        ("y ~ scale(x) + (1|g)", "y ~ standardize(x) + (1|g)"),
    ],
)
def test_it_works(written, same):
    if "1st" in written:
        with pytest.raises(vcomp.DesignError, match="confounded"):  # both are read as columns
            components(written)
        return
    np.testing.assert_array_equal(components(written), components(same))


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
        ({"groups": "g", "vc_formula": {"h": "0 + C(h)"}}, "y ~ x + (1|g) + (1|g:h)"),
        ({"vc_formula": {"h": "0 + C(h)"}}, "y ~ x + (1|h)"),
        ({"class_": "g"}, "y ~ x + (1|g)"),
    ],
)
def test_random_terms_in_options(options, formula):
    with pytest.raises(vcomp.EstimationError, match="random terms are part of the formula") as e:
        vcomp.fit("y ~ x", DATA, **options)
    assert str(e.value).endswith(repr(formula))
    components(formula)


@pytest.mark.parametrize("random", ["~ x|g", "~ 1 + x | g"])
def test_slopes_in_options(random):
    with pytest.raises(vcomp.EstimationError, match="random slopes are not supported"):
        vcomp.fit("y ~ x", DATA, random=random)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"REML": False}, "method='ml'"),
        ({"reml": False}, "method='ml'"),
        ({"REML": True}, "method='reml'"),
        ({"weights": "x"}, "weights are not supported: every row counts alike"),
        ({"weights": DATA["x"]}, "weights are not supported: every row counts alike"),
        ({"offset": "x"}, "I(y - x)"),
        ({"family": "binomial"}, "responses are normal"),
        ({"re_formula": "~x"}, "random slopes are not supported"),
        ({"correlation": "corAR1()"}, "residuals are independent"),
        ({"control": {}}, "max_iter="),
        ({"subset": "x > 0"}, "data.query"),
        ({"na_action": "omit"}, "missing='drop'"),
        ({"contrasts": {}}, "C(g, Sum)"),
        ({"verbose": 1}, "res.summary()"),
        ({"maxiter": 3}, "max_iter="),
        ({"start_params": [1, 1]}, "start={'g': 0.5}"),
        ({"cov_type": "robust"}, "res.f_test()"),
        ({"ddfm": "kr"}, "res.f_test()"),
        ({"alpha": 0.1}, "res.conf_int(alpha=0.1)"),
        ({"nobound": True}, "negative estimates"),
        ({"method": "type3"}, "'henderson3'"),
        ({"method": "MIVQUE0"}, "'minque'"),
        ({"method": "lbfgs"}, "leave method= out"),
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
        ("y ~ factor(g) + (1|h)", "write C(g)"),
        ("y ~ as.factor(g) + (1|h)", "write C(g)"),
        ("y ~ ordered(g) + (1|h)", "write C(g)"),
        ("y ~ i.g + (1|h)", "C(g)"),
        ("y ~ c.x + (1|h)", "written x"),
        ("y ~ C(g, contr.sum) + (1|h)", "C(g, Sum)"),
        ("y ~ offset(x) + (1|g)", "I(y - x)"),
        ("y ~ weights(x) + (1|g)", "every row counts alike"),
        ("y ~ ln(y) + (1|g)", "np.log(y)"),
        ("y ~ mean(x) + (1|g)", "np.mean(x)"),
        ("y ~ cumsum(x) + (1|g)", "np.cumsum(x)"),
        ("y ~ poly(x, 2) + (1|g)", "x + I(x**2)"),
        ("y ~ ns(x, 3) + (1|g)", "cr(x, df=3)"),
        ("y ~ s(x, k=3) + (1|g)", "bs(x, df=4)"),
        ("y ~ us(x|g)", "structure"),
        ("y ~ (1|g) + ar1(x + 0|subject)", "structure"),
        ("y ~ (1|gr(g))", "structure"),
        ("cbind(y, x) ~ (1|g)", "one response at a time"),
        ("y ~ nothing(x) + (1|g)", "there is no function 'nothing'"),
        ("y ~ I(x^2) + (1|g)", "I(x**2)"),
        ("y ~ (g + h)^2 + (1|subject)", "(a + b)**2"),
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
        ("y ~ x + (x|subject)", "only random intercepts: (1|subject)"),
        ("y ~ x + (x||g)", "random intercept is (1|g)"),
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

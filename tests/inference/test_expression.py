"""Quantities as people write them."""

from __future__ import annotations

import numpy as np
import pytest

from vcomp.exceptions import EstimationError
from vcomp.inference.expression import read_quantity

NAMES = ["sys", "topic", "topic:doc", "a.b", "Residual"]
V = np.array([2.0, 3.0, 5.0, 7.0, 11.0])


@pytest.mark.parametrize(
    ("text", "form", "value"),
    [
        ("sys", "linear", 2.0),
        ("var(topic:doc)", "linear", 5.0),
        ("topic + topic:doc/10", "linear", 3.5),
        ("2*sys - Residual", "linear", -7.0),
        ("-(sys - 3*topic)", "linear", 7.0),
        ("total", "linear", 28.0),
        ("`a.b` * 2", "linear", 14.0),
        ("sd(a.b + sys)", "root", 3.0),
        ("2 * sqrt(a.b + sys)", "root", 6.0),
        ("sys / Residual", "ratio", 2 / 11),
        ("sys / (sys + Residual/50)", "share", 2 / 2.22),
        ("share(topic)", "share", 3 / 28),
        ("(sys + topic) / total", "share", 5 / 28),
        ("10 * share(sys)", "ratio", 20 / 28),
        ("share(sys) / 2", "ratio", 1 / 28),
        ("2*sys / sys", "ratio", 2.0),
        ("0 * share(sys)", "ratio", 0.0),
        ("0 * sys", "linear", 0.0),
        ("1e-9 * sqrt(sys)", "root", 2e-9**0.5 * 1e-9**0.5),
        ("+sys", "linear", 2.0),
        ("-topic + +2*a.b".replace("a.b", "`a.b`"), "linear", 11.0),
        ("--sys - -topic", "linear", 5.0),
        ("sys / 4 / 2", "linear", 0.25),
        ("(sys - topic) / total", "ratio", -1 / 28),
        ("sys / (topic - sys)", "ratio", 2.0),
        ("2*sys / (sys + topic)", "ratio", 4 / 5),
        ("sys / sys", "share", 1.0),
        ("(sys - topic) * -2", "linear", 2.0),
    ],
)
def test_what_is_read(text, form, value):
    q = read_quantity(text, NAMES)
    assert q.form == form
    assert q.values(V)[0] == pytest.approx(value, rel=1e-14)


def test_a_name_that_begins_with_another_is_read_as_a_whole():
    q = read_quantity("run (2) / (run + run (2))", ["run", "run (2)", "Residual"])
    assert q.values(np.array([2.0, 3.0, 5.0]))[0] == pytest.approx(3 / 5, rel=1e-14)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("syss", r"'syss' is not a component or quantity \(did you mean 'sys'\?\)"),
        ("Erho", "did you mean 'Erho2'"),
        ("sys +", "cannot read 'sys \\+'"),
        ("sys * topic", "components can be multiplied by numbers only"),
        ("1 / sys", "a ratio must be one of two sums"),
        ("sys + 1", "only components can be added up"),
        ("sys / topic / Residual", "a ratio must be one of two sums"),
        ("sys / 0", "divides by zero"),
        ("-sqrt(sys)", "positive numbers only"),
        ("0 * sqrt(sys)", "positive numbers only"),
        ("sqrt(sys) * 0.0", "positive numbers only"),
        ("sqrt(sys/topic)", "argument of sqrt must be a sum"),
        ("log(sys)", "the functions are sqrt, sd, var, cov, share"),
        ("sys ** 2", r"only \+, -, \* and / are allowed"),
        ("sys[0]", r"only \+, -, \*, / and sqrt"),
        ("3 * 4", "contains no component"),
        ("share(2)", "share must be a sum of components"),
        ("share(sys/topic)", "share must be a sum of components"),
        ("1 + sys", "only components can be added up"),
        ("sys + sys/topic", "only components can be added up"),
        ("sys/topic - sys", "only components can be added up"),
        ("sys + sqrt(topic)", "only components can be added up"),
        ("share(sys) - share(topic)", "only components can be added up"),
        ("sqrt(sys) / topic", "a ratio must be one of two sums"),
        ("sys / sqrt(topic)", "a ratio must be one of two sums"),
        ("sqrt(sys, topic)", "the functions are sqrt, sd, var, cov, share, of one argument"),
        ("sqrt(sys, x=topic)", "the functions are sqrt, sd, var, cov, share, of one argument"),
        ("sqrt(x=sys)", "the functions are sqrt, sd, var, cov, share, of one argument"),
        ("sqrt()", "the functions are sqrt, sd, var, cov, share, of one argument"),
        ("sys.sqrt(topic)", r"only \+, -, \*, / and sqrt"),
        ("'a' * sys", r"only \+, -, \*, / and sqrt"),
        ("1j * sys", r"only \+, -, \*, / and sqrt"),
        ("not sys", r"only \+, -, \*, / and sqrt"),
        ("~sys", r"only \+, -, \*, / and sqrt"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(EstimationError, match=message):
        read_quantity(text, NAMES, ("Erho2", "Phi"))


SLOPES = ("g", "g[x]", "g[(Intercept),x]", "Residual")


def test_covariances_have_the_name_of_the_components():
    for text in ("g[(Intercept),x]", "cov(g[(Intercept),x])", "`g[(Intercept),x]`"):
        np.testing.assert_array_equal(read_quantity(text, SLOPES).a, [[0.0, 0.0, 1.0, 0.0]])
    turned = read_quantity("g + 4*cov(g[(Intercept),x]) + 4*g[x]", SLOPES)
    np.testing.assert_array_equal(turned.a, [[1.0, 4.0, 4.0, 0.0]])


@pytest.mark.parametrize("text", ["cov(g, g[x])", "g[intercept,x]", "g[1,x]", "g ** 2", "g + 1"])
def test_refused_expressions_list_the_names(text):
    listed = r"components are g, g\[x\], g\[\(Intercept\),x\], Residual; .*v\['g'\]"
    with pytest.raises(EstimationError, match=listed):
        read_quantity(text, SLOPES)

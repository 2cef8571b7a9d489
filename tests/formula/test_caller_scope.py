"""Without data the names of a formula are those of the calling scope, as in patsy."""

from functools import cache

import numpy as np
import pytest
from patsy import EvalEnvironment

import vcomp

FORMULA = "score ~ (1|sys) + (1|topic)"
rng = np.random.default_rng(20)
SYS, TOPIC = np.repeat(np.arange(6), 5), np.tile(list("abcde"), 6)
SCORE = rng.normal(size=6)[SYS] + rng.normal(size=30)
DATA = {"score": SCORE, "sys": SYS, "topic": TOPIC, "x": rng.normal(size=30)}


@cache
def known():
    """Return the fit of the plain table."""
    return vcomp.fit(FORMULA, DATA)


global_score, global_sys, global_topic = SCORE, SYS, TOPIC


def same(result, expected=None):
    expected = known() if expected is None else expected
    np.testing.assert_array_equal(result.vcomp, expected.vcomp)


def test_local_variables():
    score, sys, topic = SCORE, list(SYS), TOPIC
    assert len(score) == len(sys) == len(topic)
    same(vcomp.fit(FORMULA))
    same(vcomp.VarianceComponentsModel(FORMULA).fit())
    same(vcomp.VarianceComponentsModel.from_formula(FORMULA).fit())
    same(vcomp.fit(FORMULA, None, eval_env=EvalEnvironment.capture()))


def test_variables_of_the_module():
    same(vcomp.fit("global_score ~ (1|global_sys) + (1|global_topic)"))


def wrapper(how):
    score = np.zeros(30)  # not the one that the caller of the wrapper means
    assert not score.any()
    return how(FORMULA, eval_env=1)


@pytest.mark.parametrize(
    "how",
    [
        vcomp.fit,
        lambda *a, eval_env: vcomp.fit(*a, eval_env=eval_env + 1),
        vcomp.VarianceComponentsModel,
        vcomp.VarianceComponentsModel.from_formula,
    ],
)
def test_a_wrapper_passes_the_scope_of_its_caller_on(how):
    score, sys, topic = SCORE, SYS, TOPIC
    assert len(score) == len(sys) == len(topic)
    result = wrapper(how)
    same(result if hasattr(result, "vcomp") else result.fit())


def test_functions_and_constants_of_the_caller():
    factor = 10.0

    def rescale(values):
        return factor * values

    result = vcomp.fit("rescale(score) ~ (1|sys) + (1|topic)", DATA)
    np.testing.assert_allclose(result.vcomp, 100.0 * known().vcomp, rtol=1e-6)
    result = vcomp.fit("I(factor * score) ~ (1|sys) + (1|topic)", DATA)
    np.testing.assert_allclose(result.vcomp, 100.0 * known().vcomp, rtol=1e-6)
    result = vcomp.fit("score ~ rescale(x) + (1|sys) + (1|topic)", DATA)
    plain = vcomp.fit("score ~ x + (1|sys) + (1|topic)", DATA)
    np.testing.assert_allclose(result.fe_params["rescale(x)"], plain.fe_params["x"] / 10.0)


def test_columns_come_before_variables():
    score, x = np.zeros(30), np.zeros(30)
    assert not np.any([score, x])
    same(vcomp.fit(FORMULA, DATA))
    result = vcomp.fit("score ~ x + (1|sys)", DATA)
    same(result, vcomp.fit("score ~ z + (1|sys)", {**DATA, "z": DATA["x"]}))


def test_a_covariate_may_be_a_variable_beside_the_data():
    covariate = DATA["x"]
    assert covariate is not None
    data = {name: DATA[name] for name in ("score", "sys")}
    same(vcomp.fit("score ~ covariate + (1|sys)", data), vcomp.fit("score ~ x + (1|sys)", DATA))


def test_a_variable_that_is_not_there():
    score, sys = SCORE, SYS
    assert len(score) == len(sys)
    with pytest.raises(vcomp.DataError, match=r"no data were given.*'topic'"):
        vcomp.fit(FORMULA)
    with pytest.raises(vcomp.DataError, match=r"no data were given.*'result'"):
        vcomp.fit("result ~ (1|sys)")


@pytest.mark.parametrize("value", [3.0, "text", None, lambda: 0, np.zeros((30, 2))])
@pytest.mark.parametrize("name", ["score", "sys"])
def test_a_variable_that_is_not_a_column(name, value):
    score, sys = (value, SYS) if name == "score" else (SCORE, value)
    assert (score, sys) is not None
    with pytest.raises(vcomp.DataError, match=rf"no data were given.*{name!r}.*not a column"):
        vcomp.fit("score ~ (1|sys)")


def test_variables_of_different_lengths():
    score, sys = SCORE, SYS[:-1]
    assert len(score) > len(sys)
    with pytest.raises(vcomp.DataError, match=r"differ in length: 'sys' 29, 'score' 30"):
        vcomp.fit("score ~ (1|sys)")


@pytest.mark.parametrize("term", ["id", "max", "list", "np", "helper"])
def test_a_covariate_that_python_knows_as_something_else(term):
    def helper(x):
        return x

    assert helper(1) == 1
    with pytest.raises(vcomp.DataError, match=rf"there is no column {term!r} in the data"):
        vcomp.fit(f"score ~ {term} + (1|sys)", DATA)


@pytest.mark.parametrize("right", ["outside", "x + outside"])
def test_a_variable_beside_the_data_has_a_value_for_every_row(right):
    outside = np.arange(29.0)
    assert outside.size < len(SCORE)
    with pytest.raises(vcomp.DataError, match="29") as caught:
        vcomp.fit(f"score ~ {right} + (1|sys)", DATA)
    assert "outside" in str(caught.value)


def test_a_variable_beside_the_data_with_missing_values():
    outside = np.where(np.arange(30) == 3, np.nan, DATA["x"])
    assert np.isnan(outside).any()
    with pytest.raises(vcomp.DataError, match=r"missing values in rows whose columns have none"):
        vcomp.fit("score ~ outside + (1|sys)", DATA)

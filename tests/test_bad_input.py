"""What a user may get wrong, through the front door: a clear error, or a result that says so.

Every error is a VcompError that names the column, term or level at fault; nothing returns nan.
"""

import subprocess
import sys
from contextlib import nullcontext
from functools import cache

import numpy as np
import pandas as pd
import pytest

import vcomp

METHODS = ("reml", "ml", "anova")
N_SYS, N_TOPIC = 6, 8
rng = np.random.default_rng(2026)
S = np.repeat(np.arange(N_SYS), N_TOPIC)
T = np.tile(np.arange(N_TOPIC), N_SYS)
N = S.size
SYS_EFFECT, TOPIC_EFFECT = rng.normal(size=N_SYS), rng.normal(size=N_TOPIC)
FRAME = pd.DataFrame(
    {
        "score": SYS_EFFECT[S] + TOPIC_EFFECT[T] + rng.normal(size=N),
        "sys": [f"s{i}" for i in S],
        "topic": [f"t{j}" for j in T],
        "x": rng.normal(size=N),
    }
)
FORMULA = "score ~ (1|sys) + (1|topic)"


@cache
def plain(formula=FORMULA):
    """Return the components of the frame as it is."""
    return vcomp.fit(formula, FRAME).vcomp


def message_of(formula, data, error=vcomp.VcompError, **options):
    """Return the message of the error, which is of this type and no other comes before it."""
    with pytest.raises(error) as caught:
        vcomp.fit(formula, data, **options)
    assert type(caught.value) in (error, *error.__subclasses__())
    # Nothing of the libraries below is left over in it.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


def check_words(message, *words):
    for word in words:
        assert word in message


# Data --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (FRAME.iloc[:0], ["no rows"]),
        (pd.DataFrame(), ["no column 'score'", "no columns"]),
        ({}, ["no column 'score'", "no columns"]),
        (FRAME.rename(columns={"topic": "topics"}), ["'topic'", "did you mean 'topics'?"]),
        (FRAME.rename(columns={"score": "Score"}), ["'score'", "did you mean 'Score'?"]),
        (FRAME.assign(score=FRAME["sys"]), ["'score'", "not numeric", "'s0'"]),
        (FRAME.assign(score=np.nan), ["'score'", "missing in every row"]),
        (FRAME.assign(score=None), ["'score'", "missing in every row"]),
        (FRAME.assign(score=np.inf), ["'score'", "infinite in 48 of 48 rows"]),
        (FRAME.assign(score=FRAME["score"].where(S > 0, -np.inf)), ["'score'", "8 of 48 rows"]),
        (FRAME.assign(topic=None), ["no row is complete", "topic 48"]),
        (FRAME.assign(topic="t0"), ["facet 'topic'", "one level only ('t0')", "at least two"]),
        (FRAME.assign(topic=1), ["facet 'topic'", "one level only (1)"]),
        (FRAME.iloc[:1], ["one level only"]),
        (FRAME.iloc[[0, 1, N_TOPIC, N_TOPIC + 1]], ["4 rows are too few for 4 parameters"]),
        (FRAME.assign(topic=np.arange(N)), ["term 'topic'", "residual", "(1|topic)"]),
        (FRAME.assign(score=FRAME["score"] * 1e200), ["'score'", "rescale"]),
        (FRAME.assign(score=FRAME["score"] * 1e-200), ["'score'", "rescale"]),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_data(data, words, method):
    check_words(message_of(FORMULA, data, method=method), *words)


def test_missing_values_that_leave_too_little():
    frame = FRAME.assign(score=FRAME["score"].where(FRAME["topic"] == "t3"))
    with pytest.warns(vcomp.VcompWarning, match="42 of 48 rows"):
        check_words(message_of(FORMULA, frame), "facet 'topic'", "'t3'")


# Terms -------------------------------------------------------------------------------------------

NESTED = FRAME.assign(
    doc=[f"{t}-{s % 3}" for s, t in zip(S, T, strict=True)],
    alias=["system " + s for s in FRAME["sys"]],
    half=S % 2,
    cell=S * 100 + T,
)


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("score ~ (1|sys/topic)", ["'sys:topic'", "residual", "(1|sys:topic)"]),
        ("score ~ (1|sys) + (1|cell)", ["'cell'", "one row in each of its 48 groups", "residual"]),
        ("score ~ (1|sys) + (1|sys)", ["sys", "twice"]),
        ("score ~ (1|sys:topic) + (1|topic:sys)", ["sys:topic", "twice"]),
        ("score ~ (1|doc) + (1|topic:doc)", ["'doc'", "'topic:doc'", "confounded", "keep one"]),
        ("score ~ (1|sys) + (1|alias)", ["'sys'", "'alias'", "confounded"]),
        ("score ~ (1|sys) + (1|sys:alias)", ["'sys'", "'sys:alias'", "confounded"]),
        ("score ~ sys + (1|sys)", ["term 'sys' is confounded with the fixed part", "(1|sys)"]),
        ("score ~ C(sys) + (1|sys) + (1|topic)", ["term 'sys' is confounded with the fixed part"]),
        ("score ~ sys + (1|half) + (1|topic)", ["term 'half' is confounded with the fixed part"]),
        ("score ~ (1|score)", ["'score'", "right"]),
        ("score ~ (1|nope)", ["no column 'nope'", "'topic'"]),
    ],
)
@pytest.mark.parametrize("method", METHODS[:2])
def test_terms(formula, words, method):
    check_words(message_of(formula, NESTED, method=method), *words)


def test_three_terms_that_cannot_be_told_apart():
    # A Latin square of order 2: what one factor does, the product of the two others does as well,
    # so that V_a + V_b + V_c = J + 2 I, and the fixed mean takes J out.
    square = pd.DataFrame({"a": [0, 0, 1, 1] * 3, "b": [0, 1, 0, 1] * 3, "c": [0, 1, 1, 0] * 3})
    four = square.assign(score=rng.normal(size=12), cell=square["a"] * 2 + square["b"])
    message = message_of("score ~ (1|a) + (1|b) + (1|c) + (1|cell)", four, vcomp.DesignError)
    check_words(message, "a", "b", "c", "cell", "cannot distinguish", "leave one of them out")


# Fixed part --------------------------------------------------------------------------------------

FIXED = FRAME.assign(
    twice=2.0 * FRAME["x"] + 3.0,
    constant=1.0,
    zero=0.0,
    group=S % 2,
    copy=(S % 2).astype(str),
    infinite=FRAME["x"].where(S > 0, np.inf),
    objects=[{} for _ in S],
)


@pytest.mark.parametrize(
    ("right", "words"),
    [
        ("infinite", ["'infinite' of the fixed part is infinite in 8 of 48 rows"]),
        ("objects", ["column 'objects' holds neither numbers nor levels"]),
        ("np.log(zero)", ["'np.log(zero)' of the fixed part is infinite in 48 of 48 rows"]),
        ("np.log(zero - 1)", ["missing values", "np.log(zero - 1)", "^^^"]),
        ("nope", ["no column 'nope'"]),
        ("max", ["no column 'max'"]),
        ("nope(x)", ["no function 'nope'"]),
        ("np.mean(x)", ["np.mean(x)", "1 rows where the data have 48"]),
        ("C(sys)*C(topic)", ["48 rows are too few for 51 parameters (48 fixed effects"]),
    ],
)
def test_fixed_part(right, words):
    for method in METHODS[:2]:
        check_words(
            message_of(f"score ~ {right} + (1|topic) + (1|sys)", FIXED, method=method), *words
        )


def test_more_columns_than_rows():
    check_words(message_of("score ~ C(x) + (1|topic)", FRAME), "48 rows are too few", "48 fixed")


@pytest.mark.parametrize("offset", [1e3, 1e4])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_a_covariate_far_from_zero(offset, scale):
    check_offset(offset, scale)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_a_covariate_very_far_from_zero(scale):
    check_offset(1e6, scale)


def check_offset(offset, scale):
    """An offset and a unit of a covariate change nothing but its coefficient."""
    plain = vcomp.fit(f"score ~ x + {FORMULA[8:]}", FRAME)
    moved = FRAME.assign(x=scale * (FRAME["x"] + offset))
    result = vcomp.fit(f"score ~ x + {FORMULA[8:]}", moved)
    np.testing.assert_allclose(result.vcomp, plain.vcomp, rtol=1e-6)
    assert result.fe_params["x"] * scale == pytest.approx(plain.fe_params["x"], rel=1e-7)
    assert result.bse_fe["x"] * scale == pytest.approx(plain.bse_fe["x"], rel=1e-6)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5])
def test_dummies_for_all_levels_do_what_an_intercept_does(offset):
    moved = FRAME.assign(x=FRAME["x"] + offset, score=FRAME["score"] + offset, g=S % 3)
    expected = vcomp.fit("score ~ C(g) + x + (1|topic)", FRAME.assign(g=S % 3))
    result = vcomp.fit("score ~ 0 + C(g) + x + (1|topic)", moved)
    np.testing.assert_allclose(result.vcomp, expected.vcomp, rtol=1e-7)
    assert result.fe_params["x"] == pytest.approx(expected.fe_params["x"], rel=1e-7)
    assert result.llf == pytest.approx(expected.llf, rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_an_offset_of_the_response_changes_nothing(method):
    moved = FRAME.assign(score=FRAME["score"] + 1e7)
    expected = vcomp.fit(FORMULA, FRAME, method=method).vcomp
    np.testing.assert_allclose(vcomp.fit(FORMULA, moved, method=method).vcomp, expected, rtol=1e-6)


def test_anova_has_no_fixed_effects():
    for right in ("x + ", "0 + "):
        message = message_of(f"score ~ {right}(1|sys)", FRAME, method="anova")
        check_words(message, "method='anova'", "a constant mean", "method='reml'")


# Options -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "lme4"}, ["method='lme4'", "'reml', 'ml', 'anova'"]),
        ({"method": None}, ["method=None", "'reml'"]),
        ({"maxitr": 5}, ["'reml'", "max_iter, tol", "'maxitr' (did you mean 'max_iter'?)"]),
        ({"method": "anova", "tol": 1e-3}, ["'anova'", "'tol'"]),
        ({"missing": "omit"}, ["missing='omit'", "'drop' or 'raise'"]),
        ({"missing": None}, ["missing=None", "'drop' or 'raise'"]),
    ],
)
def test_options(options, words):
    check_words(message_of(FORMULA, FRAME, **options), *words)


@pytest.mark.parametrize(
    "options",
    [
        {"name": "x"}, {"max_iter": -1}, {"max_iter": 2.5}, {"max_iter": "many"}, {"tol": -1.0},
        {"tol": float("nan")}, {"tol": "small"}, {"eval_env": "here"}, {"eval_env": 1000},
    ],
)  # fmt: skip
def test_values_of_options(options):
    check_words(message_of(FORMULA, FRAME, **options), next(iter(options)))


# Responses without variance ----------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [0.0, 0.1, 1e9, 1e-300])
def test_a_constant_response(method, value):
    """REML and ML have no maximum, and say so; closed forms are zero."""
    no_maximum = method in ("reml", "ml")
    said = pytest.warns(vcomp.VcompWarning, match="constant") if no_maximum else nullcontext()
    with said:
        result = vcomp.fit(FORMULA, FRAME.assign(score=value), method=method)
    assert result.vcomp.tolist() == [0.0, 0.0, 0.0]
    assert result.converged == (not no_maximum)
    assert "constant" in result.status
    assert result.fe_params["Intercept"] == pytest.approx(value, rel=1e-15)
    np.testing.assert_allclose(result.fittedvalues, value)
    assert (result.resid == 0.0).all()
    assert str(result.summary())


def test_a_response_that_the_fixed_part_reproduces():
    with pytest.warns(vcomp.VcompWarning, match="fixed part fits exactly"):
        result = vcomp.fit("score ~ x + (1|sys)", FRAME.assign(score=2.0 + 3.0 * FRAME["x"]))
    assert not result.converged
    assert result.vcomp.tolist() == [0.0, 0.0]
    assert "fixed part fits exactly" in result.status
    np.testing.assert_allclose(result.fe_params, [2.0, 3.0])


ADDITIVE = FRAME.assign(score=SYS_EFFECT[S] + TOPIC_EFFECT[T])
EXACT_FITS = {
    "two facets": ("score ~ (1|sys) + (1|topic)", ADDITIVE),
    "one facet": ("score ~ (1|sys)", FRAME.assign(score=SYS_EFFECT[S])),
    "whole numbers": ("score ~ (1|sys) + (1|topic)", FRAME.assign(score=S + T)),
    "fixed and random": ("score ~ x + (1|sys)", FRAME.assign(score=SYS_EFFECT[S] + FRAME["x"])),
}


@pytest.mark.parametrize("name", EXACT_FITS)
@pytest.mark.parametrize("method", ["reml", "ml"])
def test_a_response_without_residual_has_no_likelihood(name, method):
    formula, data = EXACT_FITS[name]
    message = message_of(formula, data, vcomp.EstimationError, method=method)
    check_words(message, "reproduce the response exactly", "residual", "method='minque'")


def test_a_response_without_residual_has_an_analysis_of_variance():
    result = vcomp.fit(FORMULA, ADDITIVE, method="anova")
    # Balanced: the variances of the effects themselves, by definition.
    expected = [SYS_EFFECT.var(ddof=1), TOPIC_EFFECT.var(ddof=1), 0.0]
    np.testing.assert_allclose(result.vcomp, expected, rtol=1e-10, atol=1e-12)
    assert result.converged


# Names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["a:b|c", "a~b", "(1|a)", "%s {0} \\n", "日本語 🙂", "x" * 10_000, "", " ", "nan", "None"],
)
def test_names_of_levels(name):
    renamed = FRAME.assign(topic=[name if t == 0 else f"t{t}" for t in T])
    result = vcomp.fit(FORMULA, renamed)
    np.testing.assert_allclose(result.vcomp, plain(), rtol=1e-9)
    assert name in result.random_effects["topic"].index
    assert str(result.summary())
    assert str(result.model.design)


@pytest.mark.parametrize(
    "name", ["a name", "x.y", "1st", "a|b", "日本語", "class", "C", "lambda x", "~"]
)
def test_names_of_columns(name):
    expected = plain(f"score ~ x + {FORMULA[8:]}")
    quoted = f"Q({name!r})"
    result = vcomp.fit(
        f"score ~ x + (1|{quoted}) + (1|topic)", FRAME.rename(columns={"sys": name})
    )
    np.testing.assert_array_equal(result.vcomp, expected)
    assert list(result.vcomp.index) == [name, "topic", "Residual"]
    result = vcomp.fit(f"score ~ {quoted} + {FORMULA[8:]}", FRAME.rename(columns={"x": name}))
    np.testing.assert_array_equal(result.vcomp, expected)
    result = vcomp.fit(f"{quoted} ~ x + {FORMULA[8:]}", FRAME.rename(columns={"score": name}))
    np.testing.assert_array_equal(result.vcomp, expected)


# Size --------------------------------------------------------------------------------------------


def test_facets_too_large_to_be_eliminated_are_refused_before_anything_is_allocated():
    n, q = 300_000, 60_000
    a, b = rng.integers(0, q, n), rng.integers(0, q, n)
    a[:q] = b[-q:] = np.arange(q)
    data = {"y": rng.normal(size=n), "a": a, "b": b}
    message = message_of("y ~ (1|a) + (1|b)", data, vcomp.EstimationError, engine="blocked")
    check_words(message, "120,000 random effects", "GiB", "free", "engine='iterative'")


def test_a_fixed_factor_with_too_many_levels_is_refused():
    n, q = 200_000, 150_000
    data = {"y": rng.normal(size=n), "g": np.arange(n) % 7, "doc": [f"d{i % q}" for i in range(n)]}
    data["x"] = rng.normal(size=n)
    message = message_of("y ~ doc:x + (1|g)", data, vcomp.EstimationError)
    check_words(message, "'doc'", "150,000 levels", "GiB", "(1|doc)")


MANY_LEVELS = """
import resource
import numpy as np
import vcomp

n = 2_000_000
data = {"y": np.arange(n) % 97 / 97.0, "g": np.random.default_rng(1).permutation(n)}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    vcomp.fit("y ~ (1|g)", data)
except vcomp.DesignError as error:
    print(error)
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
# Linux counts in KiB. The data take 32 MB; a few copies of a column are needed, not a matrix, and
# modules are imported.
assert used < 450_000, used
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in other units")
def test_two_million_levels_with_a_row_each_are_the_residual():
    # A process of its own, as the highest memory of this one says nothing of one test.
    ran = subprocess.run(
        [sys.executable, "-c", MANY_LEVELS],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    check_words(ran.stdout, "'g'", "2000000 groups", "residual")


def test_messages_that_readers_of_the_pages_met():
    """Each names what to do instead."""
    data = pd.DataFrame({"a": list("aabbcc"), "b": list("xyxyxy"), "y": [1.0, 1, 2, 2, 3, 3]})
    said = message_of("y ~ a + b", data, vcomp.FormulaError)
    assert said.endswith("for instance 'y ~ (1|a) + (1|b)'")
    said = message_of("y ~ 1", data, vcomp.FormulaError)
    assert said.endswith("for instance 'y ~ 1 + (1|a)'")
    with pytest.raises(vcomp.EstimationError, match="reproduce the response exactly") as error:
        vcomp.fit("y ~ (1|a)", data)
    assert type(error.value) is vcomp.EstimationError
    stats = vcomp.accumulate("y ~ (1|a)", data)
    with pytest.raises(
        vcomp.EstimationError, match=r"of 'y ~ \(1\|a\)', and cannot be fitted with"
    ):
        stats.fit("y ~ (1|b)")


def test_a_constant_response_has_no_degrees_of_freedom_to_store():
    data = pd.DataFrame({"a": list("aabbccdd"), "y": 0.5})
    with pytest.warns(vcomp.VcompWarning, match="constant"):
        text = " ".join(str(vcomp.fit("y ~ (1|a)", data).summary()).split())
    assert "normal distribution where df is missing, as there is no variance" in text


def test_sums_made_by_dask_advise_nothing_that_fails():
    dd = pytest.importorskip("dask.dataframe", reason="Dask is an extra")
    data = pd.DataFrame({"a": list("aabbccdd"), "y": np.arange(8.0) ** 2})
    res = vcomp.fit("y ~ (1|a)", dd.from_pandas(data, npartitions=2))
    with pytest.raises(vcomp.DataError, match="sums made by Dask") as error:
        _ = res.resid
    assert "augment" not in str(error.value)
    with pytest.raises(vcomp.DataError, match="a Dask collection is accepted by"):
        vcomp.ir.expected_tau(dd.from_pandas(data, npartitions=2))

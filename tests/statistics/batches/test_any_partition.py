"""A + B = B + A = all rows, for any formula, partition and offset; or a refusal, with a reason."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.command_line import run
from tests.helpers.examples import examples
from vcomp import AccumulatedStatistics, accumulate

FIXED = ["1", "x", "x + z", "g", "g + x", "g:x", "k", "x + w"]
"""Parts of fixed parts; `k` is constant within the first half of the rows, `w` is 0 or 1."""

RANDOM = ["(1|a)", "(1|b)", "(1|a:b)"]

FORMULAS = st.tuples(
    st.sampled_from(["", "0", *(f"0 + {fixed}" for fixed in FIXED[1:]), *FIXED]),
    st.lists(st.sampled_from(RANDOM), min_size=1, max_size=3, unique=True),
)

DRAWN = (Phase.explicit, Phase.reuse, Phase.generate)
"""A failing example has five short parts: to make it smaller would take minutes."""

OFFSETS = st.sampled_from([0.0, 1.0, 1e3, 1e6, 1e9])


def rows(seed, n, offset, x_offset, n_g):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 5, n), rng.integers(0, 4, n)
    g = np.array(list("uvw"))[rng.integers(0, n_g, n)]
    x, z = rng.normal(size=(2, n)) + x_offset
    k = np.where(np.arange(n) < n // 2, 2.0, np.where(rng.random(n) < 0.5, 2.0, 3.0))
    w = rng.integers(0, 2, n).astype(float)
    y = 2.0 * rng.normal(size=5)[a] + rng.normal(size=4)[b] + (x - x_offset) + rng.normal(size=n)
    return pd.DataFrame({"y": y + offset, "a": a, "b": b, "g": g, "x": x, "z": z, "k": k, "w": w})


def partition(frame, kind, rng):
    """Return the parts of the rows: random, in order, single rows, or one row and the rest."""
    n = len(frame)
    part = {
        "random": rng.integers(0, 3, n),
        "in order": np.arange(n) * 2 // n,
        "single rows": np.minimum(np.arange(n), 4),
        "one and the rest": (np.arange(n) > 0).astype(int),
        "by level": frame["a"].to_numpy(),
        "by covariate": frame["k"].to_numpy(),
    }[kind]
    return [frame[part == value] for value in np.unique(part)]


PARTITIONS = st.sampled_from(
    ["random", "in order", "single rows", "one and the rest", "by level", "by covariate"]
)


def outcome(make):
    """Return log-likelihood, components and fixed effects of a fit, or why it was refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", vcomp.VcompWarning)
            res = make()
    except vcomp.VcompError as error:
        return str(error)
    return res.llf, res.vcomp.to_numpy(), res.fe_params


def close(one, other):
    """Whether two outcomes are the same to 1e-9, or both are refused."""
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str)
    (llf, components, _), (other_llf, other_components, _) = one, other
    scale = components.max()
    return abs(llf - other_llf) <= 1e-9 * max(1.0, abs(llf)) and bool(
        (np.abs(components - other_components) <= 1e-9 * scale).all()
    )


def sums(formula, parts):
    found = None
    for part in parts:
        one = accumulate(formula, part)
        found = one if found is None else found + one
    return found


@settings(deadline=None, max_examples=examples(10), phases=DRAWN)
@given(
    FORMULAS,
    PARTITIONS,
    OFFSETS,
    st.sampled_from([0.0, 1e3, 1e6, 1e9]),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
)
def test_any_partition_in_any_order(model, kind, offset, x_offset, n_g, seed):
    fixed, random = model
    formula = "y ~ " + " + ".join([*([fixed] if fixed else []), *random])
    rng = np.random.default_rng(seed)
    frame = rows(seed, 40, offset, x_offset, n_g)
    parts = partition(frame, kind, rng)
    whole = outcome(lambda: vcomp.fit(formula, frame))
    streamed = outcome(lambda: accumulate(formula, frame).fit())
    forward = outcome(lambda: sums(formula, parts).fit())
    backward = outcome(lambda: sums(formula, parts[::-1]).fit())
    assert close(whole, streamed), (formula, whole, streamed)
    merged = [forward, backward]
    if any(isinstance(found, str) and "so other columns" in found for found in merged):
        return  # factors of which some levels are in one part only
    for found in merged:
        if isinstance(found, str) and not isinstance(whole, str):
            assert "fixed parts have other columns" in found, (formula, whole, found)
            return
        assert close(whole, found), (formula, kind, whole, found)


@pytest.mark.parametrize("x_offset", [300.0, 1e3])
@pytest.mark.parametrize("seed", [510511, 3])
def test_slopes_of_a_far_covariate_without_the_factor_itself(seed, x_offset):
    """Such columns sum to the covariate, which varies by a thousandth of their own variation."""
    formula, frame = "y ~ g:x + (1|a)", rows(seed, 40, 0.0, x_offset, 2)
    parts = partition(frame, "random", np.random.default_rng(seed))
    near = frame.assign(x=frame["x"] - x_offset, first=frame["x"] / x_offset * (frame["g"] == "u"))
    expected = outcome(lambda: vcomp.fit("y ~ x + first + (1|a)", near))[1]
    for make in (
        lambda: vcomp.fit(formula, frame),
        lambda: accumulate(formula, frame).fit(),
        lambda: sums(formula, parts).fit(),
        lambda: sums(formula, parts[::-1]).fit(),
    ):
        _, components, _ = outcome(make)
        np.testing.assert_allclose(components, expected, rtol=0.0, atol=1e-9 * expected.max())


@pytest.mark.parametrize("formula", ["y ~ g:x + (1|a)", "y ~ g + g:x + (1|a)", "y ~ g*x + (1|a)"])
def test_slopes_of_a_covariate_that_is_too_far(formula):
    frame = rows(3, 40, 0.0, 1e4, 2)
    one, other = accumulate(formula, frame[::2]), accumulate(formula, frame[1::2])
    for make in (lambda: vcomp.fit(formula, frame), lambda: (one + other).fit()):
        with pytest.raises(vcomp.DataError, match="subtract a number near the mean from 'x'"):
            make()
    assert vcomp.fit(formula, frame.assign(x=frame["x"] - 1e4)).nobs == 40


def test_a_column_that_is_constant_in_one_part():
    """Columns that make up the constant in a part, and not in all rows."""
    data = pd.DataFrame(
        {"a": [1, 1, 2, 2, 3, 3, 4], "x": np.arange(1.0, 8.0), "y": [1, 3, 2, 5, 4, 4.5, 6]}
    )
    formula = "y ~ 0 + x + (1|a)"
    one, other = accumulate(formula, data[:1]), accumulate(formula, data[1:])
    # Dense: the restricted likelihood of y = βx + a + e at the maximum over both components.
    for together in (one + other, other + one):
        assert together.fit().llf == pytest.approx(-10.398666206324, abs=1e-9)
    steps = data.assign(x=[2.0, 2, 2, 3, 3, 3, 3])
    parts = [accumulate(formula, steps[:3]), accumulate(formula, steps[3:])]
    whole = vcomp.fit(formula, steps)
    for together in (parts[0] + parts[1], parts[1] + parts[0]):
        assert together.fit().llf == pytest.approx(whole.llf, abs=1e-11)
        np.testing.assert_allclose(together.fit().fe_params, whole.fe_params, rtol=1e-10)


def test_dummies_that_make_up_the_constant_in_all_rows_beside_a_far_covariate():
    frame = rows(3, 60, 1e9, 1e9, 3)
    formula = "y ~ 0 + g + x + (1|a)"
    parts = [accumulate(formula, frame[k::3]) for k in range(3)]
    near = vcomp.fit(formula, frame.assign(y=frame["y"] - 1e9, x=frame["x"] - 1e9))
    found = (parts[0] + parts[1] + parts[2]).fit()
    # Numbers of 1e9 are rounded to 1e-7.
    np.testing.assert_allclose(found.vcomp, near.vcomp, rtol=1e-5)
    assert found.fe_params["x"] == pytest.approx(near.fe_params["x"], rel=1e-6)


@pytest.mark.parametrize("x_offset", [1e6, 1e9])
def test_a_covariate_that_is_nearly_constant_is_not_the_constant(x_offset):
    """y = βx + e with x = 1e9 + d is not y = β + e: d matters where y has it, too."""
    frame = rows(5, 60, 0.0, 0.0, 3)
    far = frame.assign(x=frame["x"] + x_offset)
    found = vcomp.fit("y ~ 0 + x + (1|a)", far)
    # β is then about 0, and the model that without a fixed part but for one degree of freedom.
    bare = vcomp.fit("y ~ 1 + (1|a)", frame)
    np.testing.assert_allclose(found.vcomp, bare.vcomp, rtol=20 / x_offset)
    with pytest.raises(vcomp.DataError, match="no intercept: squares of such scores keep too few"):
        vcomp.fit("y ~ 0 + x + (1|a)", far.assign(y=frame["y"] + x_offset))


@pytest.mark.parametrize(
    ("formula", "what"),
    [
        ("y ~ I(x - x.mean()) + (1|a)", "the fixed part has 'I"),
        ("y ~ np.cumsum(x) + (1|a)", "the fixed part has 'np.cumsum"),
        ("I(y - y.mean()) ~ (1|a)", r"the response has 'I\(y"),
    ],
)
def test_expressions_that_depend_on_other_rows_are_refused_in_parts(formula, what):
    frame = rows(5, 60, 0.0, 3.0, 3)
    for part in (frame, frame[:1]):
        with pytest.raises(vcomp.DataError, match=what):
            accumulate(formula, part)
    with pytest.raises(vcomp.DataError, match=what):
        vcomp.fit(formula, frame, stream=True)
    assert vcomp.fit(formula, frame).nobs == 60
    for harmless in ("np.log(x + 20)", "I(x ** 2)", "np.exp(x):g", "center(x)", "bs(x, df=4)"):
        accumulate(f"y ~ {harmless} + (1|a)", frame)


@settings(deadline=None, max_examples=examples(3), phases=DRAWN)
@given(FORMULAS, PARTITIONS, OFFSETS, st.integers(0, 2**32 - 1))
def test_files_by_the_command_line(tmp_path_factory, model, kind, offset, seed):
    fixed, random = model
    formula = "y ~ " + " + ".join([*([fixed] if fixed else []), *random])
    folder = tmp_path_factory.mktemp("parts")
    frame = rows(seed, 40, offset, 0.0, 3)
    whole = outcome(lambda: vcomp.fit(formula, frame))
    files = []
    for number, part in enumerate(partition(frame, kind, np.random.default_rng(seed))):
        part.to_parquet(folder / f"{number}.parquet", index=False)
        files.append(str(folder / f"{number}.vcomp"))
        done = run(
            "accumulate", formula, str(folder / f"{number}.parquet"), "--out", files[-1],
            check=False, warnings_are="ignore",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert AccumulatedStatistics.load(files[-1]).nobs == len(part)
    for order in (files, files[::-1]):
        out, fitted = str(folder / "all.vcomp"), folder / "fit.json"
        done = run("merge", *order, "--out", out, check=False, warnings_are="ignore")
        if done.returncode == 0:
            arguments = ("fit", "--statistics", out, "--json", str(fitted))
            done = run(*arguments, check=False, warnings_are="ignore")
        if done.returncode:
            assert done.stderr.startswith("vcomp: error: ")
            assert isinstance(whole, str) or "other columns" in done.stderr, done.stderr
            continue
        stored = vcomp.VarianceComponentsResults.from_json(fitted)
        assert close(whole, (stored.llf, stored.vcomp.to_numpy(), stored.fe_params))

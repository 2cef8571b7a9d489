"""Which rows are used, and what is said of those that are not."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.learned_designs import design_of, rows_of
from vcomp.data.rows import CompleteRows
from vcomp.formula import parse
from vcomp.numerics import MANY_ROWS

N = 20
rng = np.random.default_rng(9)
FRAME = pd.DataFrame(
    {
        "y": rng.normal(size=N),
        "a": np.resize(list("pqrs"), N),
        "b": np.resize([1.0, 2.0, 3.0], N),
        "x": rng.normal(size=N),
        "unused": np.nan,
    }
)
FORMULA = "y ~ x + (1|a) + (1|b)"


def with_gaps(**gaps):
    """Return the frame with values missing in given rows of given columns."""
    frame = FRAME.copy()
    for name, rows in gaps.items():
        frame[name] = frame[name].mask(frame.index.isin(rows))
    return frame


def warning_of(function, *arguments):
    with pytest.warns(vcomp.VcompWarning) as caught:
        function(*arguments)
    assert len(caught) == 1
    return str(caught[0].message)


def test_complete_rows_are_used_in_silence():
    rows = rows_of(FORMULA, FRAME)
    assert len(rows) == N
    assert list(rows.fixed) == ["x"]
    assert list(rows.facets) == ["a", "b"]


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA, pd.NaT])
def test_every_way_to_say_missing(nothing):
    frame = FRAME.astype({"a": object})
    frame.loc[4, "a"] = nothing
    assert warning_of(rows_of, FORMULA, frame) == (
        "1 of 20 rows have a missing value (a 1) and were left out"
    )


rows_of_gaps = st.sets(st.integers(0, N - 1), max_size=6)


@settings(deadline=None)
@given(rows_of_gaps, rows_of_gaps, rows_of_gaps, rows_of_gaps)
def test_the_rows_that_are_left_and_the_counts(y, a, b, x):
    frame = with_gaps(y=y, a=a, b=b, x=x)
    dropped = y | a | b | x
    kept = sorted(set(range(N)) - dropped)
    if not dropped:
        assert len(rows_of(FORMULA, frame)) == N
        return
    if len(dropped) == N:
        with pytest.raises(vcomp.DataError, match="no row is complete: 20 of 20"):
            rows_of(FORMULA, frame)
        return
    message = warning_of(rows_of, FORMULA, frame)
    assert message.startswith(f"{len(dropped)} of 20 rows have a missing value (")
    for name, gaps in {"a": a, "b": b, "x": x, "y": y}.items():
        assert (f"{name} {len(gaps)}" in message) == bool(gaps)
    with pytest.warns(vcomp.VcompWarning):
        rows = rows_of(FORMULA, frame)
    np.testing.assert_array_equal(rows.y, FRAME["y"].iloc[kept])
    np.testing.assert_array_equal(rows.facets["a"], FRAME["a"].iloc[kept])
    np.testing.assert_array_equal(rows.fixed["x"], FRAME["x"].iloc[kept])
    assert len(rows) == N - len(dropped)
    with pytest.raises(vcomp.DataError, match=r"missing='drop' leaves them out"):
        rows_of(FORMULA, frame, missing="raise")


def test_a_response_that_is_computed():
    frame = FRAME.assign(y=np.where(np.arange(N) < 3, -1.0, 2.0 + FRAME["y"].abs()))
    message = warning_of(rows_of, "np.log(y) ~ (1|a)", frame)
    assert message == (
        "3 of 20 rows have a missing value (response np.log(y) 3) and were left out"
    )
    frame = FRAME.assign(y=np.where(np.arange(N) < 3, 0.0, 2.0))
    with pytest.raises(vcomp.DataError, match=r"'np.log\(y\)' is infinite in 3 of 20 rows"):
        rows_of("np.log(y) ~ (1|a)", frame)


@pytest.mark.parametrize("name", ["a", "b", "x", "y"])
def test_a_column_that_is_missing_throughout(name):
    message = (
        "'y' is missing in every row" if name == "y" else rf"no row is complete: .*\({name} 20\)"
    )
    with pytest.raises(vcomp.DataError, match=message):
        rows_of(FORMULA, FRAME.assign(**{name: np.nan}))


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (np.where(np.arange(N) == 2, np.inf, 1.0), "'y' is infinite in 1 of 20 rows"),
        (np.where(np.arange(N) < 2, -np.inf, 1.0), "'y' is infinite in 2 of 20 rows"),
        (["a"] * N, "'y' is not numeric: it holds 'a'"),
        ([*map(str, range(N - 1)), "n/a"], "'y' is not numeric: it holds 'n/a'"),
        ([*range(N - 1), "n/a"], "'y' is not numeric: it holds 'n/a'"),
        (list(map(str, range(N))), "holds text, such as '0'; convert it with pandas.to_numeric"),
        (
            [f"{i},5" for i in range(N)],
            "'0,5'; read it with pandas.read_csv(path, sep=None, engine='python', decimal=',')",
        ),
        (pd.date_range("2020", periods=N), "'y' is not numeric: it holds datetime64"),
        (pd.to_timedelta(np.arange(N), "s"), "'y' is not numeric: it holds timedelta64"),
        (np.arange(N) + 1j, "column 'y' holds complex numbers"),
        ([[1.0]] * N, "column 'y' holds neither numbers nor levels"),
        (np.arange(N) * 1e200, "the response 'y' varies by 1e+201, too far from 1"),
        (1.7e308 * np.linspace(-1.0, 1.0, N), "the response 'y' varies by"),
        (np.arange(N) * 1e-200, "the response 'y' varies by 1e-199, too far from 1"),
    ],
)
def test_a_response_that_is_not_a_finite_number(response, words):
    with pytest.raises(vcomp.DataError) as caught:
        design_of(FORMULA, FRAME.assign(y=response))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "dtype", [bool, "int8", "uint64", "float32", "float16", "Int64", "boolean"]
)
def test_numbers_of_every_type_are_a_response(dtype):
    values = (np.arange(N) % 2).astype(bool)
    rows = rows_of(FORMULA, FRAME.assign(y=pd.Series(values).astype(dtype)))
    np.testing.assert_array_equal(rows.y, values.astype(float))
    assert rows.y.dtype == np.float64


def test_a_category_of_numbers_is_a_response():
    rows = rows_of(FORMULA, FRAME.assign(y=pd.Categorical(np.arange(N))))
    np.testing.assert_array_equal(rows.y, np.arange(N))


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("np.mean(y) ~ (1|a)", "'np.mean(y)' has shape (); it needs one number a row (20)"),
        ("y[:3] ~ (1|a)", "'y[:3]' has shape (3,)"),
        ("np.outer(y, y) ~ (1|a)", "'np.outer(y, y)' has shape (20, 20)"),
        ("nothing(y) ~ (1|a)", "there is no function 'nothing'"),
        ("y ~ Q('zz') + (1|a)", "there is no column 'zz'"),
        ("y ~ np.log(zz) + (1|a)", "there is no column 'zz'"),
        ("y ~ X + (1|a)", "there is no column 'X' in the data (did you mean 'x'?)"),
        ("y ~ (1|A)", "there is no column 'A' in the data (did you mean 'a'?)"),
    ],
)
def test_what_a_formula_cannot_find_or_use(formula, words):
    with pytest.raises((vcomp.DataError, vcomp.FormulaError)) as caught:
        rows_of(formula, FRAME)
    assert words in str(caught.value)


@pytest.mark.parametrize("missing", ["omit", None, True, "DROP"])
def test_what_missing_may_be(missing):
    with pytest.raises(vcomp.DataError, match="it is 'drop' or 'raise'"):
        rows_of(FORMULA, FRAME, missing=missing)


def test_fewer_rows_than_parameters():
    numbers = r"4 rows are too few for 4 parameters \(1 fixed effect and 3 variance components\)"
    with pytest.raises(vcomp.DataError, match=numbers):
        vcomp.fit("y ~ (1|a) + (1|b)", FRAME.assign(b=[1, 1, 2, 2] * 5).iloc[[0, 1, 4, 6]])


def test_a_term_with_one_row_a_group_is_the_residual():
    with pytest.raises(vcomp.DesignError, match=r"'a:id'.*that is the residual.*\(1\|a:id\)"):
        design_of("y ~ (1|a) + (1|a:id)", FRAME.assign(id=np.arange(N)))


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_a_covariate_whose_squares_leave_the_range_of_floats(factor):
    with pytest.raises(
        vcomp.DataError, match=r"column 'x' of the fixed part varies by .* rescale"
    ):
        design_of(FORMULA, FRAME.assign(x=FRAME["x"] * factor))


def test_a_change_of_the_frame_does_not_change_the_columns_of_a_model():
    """Of many rows, which are not copied."""
    rng = np.random.default_rng(3)
    data = pd.DataFrame(rng.normal(size=(MANY_ROWS, 3)), columns=["b", "a", "y"])
    data["g"] = rng.integers(0, 4, MANY_ROWS)
    model = vcomp.VarianceComponentsModel("y ~ a + b + (1|g)", data)
    before = data.copy(deep=True)
    data.loc[0, "a"], data.iloc[1, 0] = 99.0, 77.0
    np.testing.assert_array_equal(model.exog[:, 1:], before[["a", "b"]])
    again = pickle.loads(pickle.dumps(model.rows))
    np.testing.assert_array_equal(again.fixed["a"], before["a"])


def test_a_column_of_infinite_sum_has_no_missing_value():
    data = pd.DataFrame({"x": [np.inf, -np.inf, 1.0, 2.0], "y": [1.0, 2.0, 3.0, 5.0]})
    formula = parse("y ~ x + (1|g)")
    part = CompleteRows.of(formula, data.assign(g=[0, 0, 1, 1]), None)
    assert part.tally.incomplete == 0
    part = CompleteRows.of(formula, data.assign(g=[0, 0, 1, 1], x=[np.nan, 1, 2, 3]), None)
    assert part.tally.missing["x"] == 1

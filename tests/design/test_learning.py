"""Origins and spreads of the response and of the columns of the fixed part."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.learned_designs import design_of
from vcomp.design.learning import Centre
from vcomp.exceptions import DataError, DesignError
from vcomp.formula import RESIDUAL, parse

FORMULA = parse("y ~ x + (1|g)")
CONSTANT = np.array([1.0, 0.0])


def centre(low, high, mean, constant=CONSTANT):
    """Return the centre of an intercept and a column with these ends and this mean."""
    columns = np.array([[1.0, low], [1.0, high], [1.0, mean]])
    return Centre.of(FORMULA, ("Intercept", "x"), constant, (-1.0, 1.0, 0.0), tuple(columns))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_spread_is_measured_from_the_mean_on_both_sides(sign):
    """A large mean is no spread; a spread of one side alone counts."""
    mean = sign * 1e36
    assert centre(mean - 1e25, mean + 1e25, mean).x_origin.tolist() == [0.0, mean]
    for low, high in ((-1e36, 1.0), (-1.0, 1e36)):
        with pytest.raises(DataError, match="column 'x' of the fixed part varies by 1e\\+36"):
            centre(low, high, 0.0)
        with pytest.raises(DataError, match="response 'y' varies by 1e\\+36"):
            Centre.of(FORMULA, ("Intercept", "x"), CONSTANT, (low, high, 0.0))
    y = mean - 1e25, mean + 1e25, mean
    assert Centre.of(FORMULA, ("Intercept", "x"), CONSTANT, y).origin == mean


def test_without_a_constant_spreads_are_measured_from_zero():
    mean = 1e36
    with pytest.raises(DataError, match="column 'x' of the fixed part"):
        centre(mean - 1e25, mean + 1e25, mean, constant=np.zeros(2))


@pytest.mark.parametrize(
    ("spread", "is_valid"),
    [(0.0, True), (9e-36, False), (1.1e-35, True), (9e34, True), (1.1e35, False)],
)
def test_powers_of_a_spread_neither_vanish_nor_overflow(spread, is_valid):
    def made():
        return Centre.of(FORMULA, ("Intercept", "x"), CONSTANT, (-spread, spread, 0.0))

    if is_valid:
        assert made().origin == 0.0
        return
    with pytest.raises(DataError, match=r"the response 'y' varies by .*; rescale it"):
        made()
    with pytest.raises(DataError, match="column 'x'"):
        centre(-spread, spread, 0.0)


def test_without_a_constant_the_response_keeps_its_origin():
    columns = tuple(np.array([[2.0, 3.0], [4.0, 9.0], [3.0, 5.0]]))
    names, y = ("a", "b"), (6.0, 8.0, 7.5)
    found = Centre.of(FORMULA, names, np.zeros(2), y, columns)
    assert (found.origin, found.x_origin.tolist()) == (0.0, [0.0, 0.0])
    found = Centre.of(FORMULA, names, np.array([0.0, 1.0]), y, columns)
    assert (found.origin, found.x_origin.tolist()) == (7.5, [3.0, 0.0])


@settings(deadline=None)
@given(
    st.integers(2, 12),
    st.integers(1, 4),
    st.integers(0, 2),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_the_constant_is_found_in_any_units(n, groups, covariates, has_all, seed):
    """Dummies of all groups make up the constant; without one of them nothing does."""
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.arange(n) % groups)
    dummies = np.eye(groups)[codes]
    if not has_all:
        dummies = dummies[:, 1:]
    units = 10.0 ** rng.uniform(-9.0, 9.0, dummies.shape[1] + covariates)
    X = np.column_stack([dummies, rng.normal(2.0, 1.0, (n, covariates))]) * units
    names = tuple(f"c{j}" for j in range(X.shape[1]))
    mean = X.mean(axis=0)
    away = np.where(np.ptp(X, axis=0) == 0.0, 0.0, X - mean)
    a = Centre.constant_of(names, mean, away.T @ away / n)
    rank = np.linalg.matrix_rank(X / units)
    spans = np.linalg.matrix_rank(np.column_stack([X / units, np.ones(n)])) == rank
    if spans and rank < X.shape[1]:
        return  # several combinations
    assert a.any() == spans
    if spans:
        assert Centre.is_one(float(np.abs(X @ a - 1.0).max()))
    assert not Centre.is_one(1e-11)
    assert Centre.is_one(0.99e-11)


def test_the_intercept_is_the_constant_whatever_else_there_is():
    found = Centre.constant_of(("C(b)[1]", "Intercept", "x"), np.ones(3), np.eye(3))
    assert found.tolist() == [0.0, 1.0, 0.0]
    assert Centre.constant_of((), np.zeros(0), np.zeros((0, 0))).size == 0


def data_of(levels):
    rng = np.random.default_rng(0)
    n = 4 * len(levels)
    return {"y": rng.normal(size=n), "a": np.resize(levels, n), "b": np.repeat(levels, 4)}


def test_facets_and_terms_that_no_model_can_have():
    data = data_of(["p", "q", "r"])
    with pytest.raises(DesignError, match=r"facet 'c' has one level only \('x'\)"):
        design_of("y ~ (1|a) + (1|c)", {**data, "c": np.resize(["x"], 12)})
    with pytest.raises(DesignError, match=f"'{RESIDUAL}' is the name of the last component"):
        design_of(f"y ~ (1|{RESIDUAL})", {**data, RESIDUAL: data["a"]})
    rows = {**data, "c": np.arange(12)}
    with pytest.raises(
        DesignError, match=r"term 'c' has one row in each of its 12 groups: .*c\) out"
    ):
        design_of("y ~ (1|c)", rows)
    hint = r"\(a\*b is a \+ b \+ a:b, and a/b is a \+ a:b\)"
    with pytest.raises(DesignError, match="term 'a:c' has one row in each .*" + hint):
        design_of("y ~ (1|a) + (1|a:c)", rows)
    for formula in ("y ~ (1|a:c)", "y ~ (1|a) + (1|c)"):
        with pytest.raises(DesignError, match=r"out of the formula$"):
            design_of(formula, rows)


def test_levels_that_look_alike_are_shown():
    for levels, shown in (
        (["p", "P", "q"], r"facet 'a' has levels that look alike: 'P' and 'p' differ only in"),
        (["p", "P", "q", "Q "], r"and 1 more such groups, differ only"),
    ):
        with pytest.warns(UserWarning, match=shown):
            design_of("y ~ (1|a)", data_of(levels))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        design_of("y ~ (1|a)", data_of(["p", "q", "r"]))


@pytest.mark.parametrize("far", [1e3, 1e6, 1e8])
def test_columns_far_from_zero_are_not_constant(far):
    """They vary little beside their mean, but not beside their spread."""
    cov = np.array([[1.0, 0.3], [0.3, 1.0]])
    assert not Centre.constant_of(("x", "z"), np.array([far, -far]), cov).any()
    assert not Centre.constant_of(("x",), np.array([far]), cov[:1, :1]).any()
    with_constant = np.zeros((3, 3))
    with_constant[:2, :2] = cov
    found = Centre.constant_of(("x", "z", "five"), np.array([far, -far, 5.0]), with_constant)
    np.testing.assert_allclose(found, [0.0, 0.0, 0.2], rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("size", [1e2, 1e4])
def test_a_constant_that_is_a_small_part_of_its_columns(size):
    """Of columns of the spread 10⁴ whose sum is 1, in every row."""
    z = np.random.default_rng(1).normal(size=50)
    X = np.column_stack([size * z + 1.0, z**2, -size * z])
    mean = X.mean(axis=0)
    cov = (X - mean).T @ (X - mean) / 50
    found = Centre.constant_of(("a", "b", "c"), mean, cov)
    # Squares of the columns are size² times that of the constant, and so is their rounding.
    error = 1e-14 * size**2
    np.testing.assert_allclose(found, [1.0, 0.0, 1.0], rtol=error, atol=error)


def test_a_column_whose_mean_is_rounded_is_the_constant():
    rng, n = np.random.default_rng(2), 36
    X = np.column_stack([rng.normal(size=n), np.full(n, 0.1)])
    assert X.mean(axis=0)[1] != 0.1
    columns = {"x": X[:, 0], "c": X[:, 1], "a": np.arange(n) % 5, "y": rng.normal(size=n)}
    found = design_of("y ~ 0 + x + c + (1|a)", columns)
    assert found.constant.tolist() == [0.0, 10.0]


def test_levels_of_a_factor_with_one_name_are_named():
    levels = ["x", 1, "1"]
    data = vcomp.datasets.load("bodoff2007_alpha").assign(g=pd.Categorical(levels * 5, levels))
    with pytest.raises(DataError, match=r"factor 'g' .* levels 1 and '1', whose columns"):
        vcomp.fit("score ~ g + (1|sys)", data)

"""The mean squares behind an estimate: those of the analysis of variance where it is balanced."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.gtheory.published import from_components
from vcomp.inference import VarianceComponents
from vcomp.inference.intervals.component_squares import (
    _KNOWN,
    MeanSquares,
    _basis,
    _correlation,
    _expected,
    mean_squares,
)
from vcomp.inference.intervals.modified_large_sample import rests_on_two

DESIGNS = {
    "y ~ (1|a)": (("a", "r"), (7, 4)),
    "y ~ (1|a) + (1|b)": (("a", "b"), (6, 9)),
    "y ~ (1|a) + (1|b) + (1|a:b)": (("a", "b", "r"), (5, 6, 3)),
    "y ~ (1|a/b)": (("a", "b", "r"), (6, 4, 3)),
    "y ~ (1|p) + (1|h) + (1|h:i) + (1|p:h)": (("p", "h", "i"), (8, 4, 5)),
    "y ~ (1|a) + (1|b) + (1|c) + (1|a:b) + (1|a:c) + (1|b:c)": (("a", "b", "c"), (5, 4, 6)),
}


def balanced(formula, seed, effects=True):
    facets, sizes = DESIGNS[formula]
    data = pd.DataFrame(list(product(*map(range, sizes))), columns=list(facets))
    rng = np.random.default_rng(seed)
    data["y"] = rng.normal(size=len(data))
    if effects:
        for facet, n in zip(facets, sizes, strict=True):
            data["y"] += rng.normal(size=n)[data[facet]]
    return data


def expected_of(res):
    """Return df and mean squares of the analysis of variance, each per score of its groups."""
    table = res.anova_table()
    names = list(table.index)
    per_group = [table.loc[name, f"E[{name}]"] for name in names]
    return table["df"].to_numpy(), table["mean_sq"].to_numpy() / per_group


@pytest.mark.parametrize("formula", DESIGNS)
@pytest.mark.parametrize("method", ["anova", "reml", "type1", "henderson3"])
def test_balanced_designs_have_those_of_the_analysis_of_variance(formula, method):
    res = vcomp.fit(formula, balanced(formula, 3), method=method)
    found = mean_squares(res._record.components)
    df, values = expected_of(res)
    # The covariance of REML is an inverse of an information; its rounding is in the df.
    np.testing.assert_allclose(found.df, df, rtol=1e-7)
    np.testing.assert_allclose(found.values, values, rtol=1e-7)
    np.testing.assert_array_equal(found.correlation, np.eye(len(df)))


@pytest.mark.parametrize("formula", list(DESIGNS)[1:])
def test_at_the_bound_they_are_those_of_the_analysis_of_variance(formula):
    """One step of Fisher's scoring without bounds ends there from wherever it starts."""
    seen = 0
    for seed in range(4):
        data = balanced(formula, seed, effects=False)
        res = vcomp.fit(formula, data)
        if (res.vcomp > 0).all():
            continue
        seen += 1
        found = mean_squares(res._record.components)
        df, values = expected_of(res)
        np.testing.assert_allclose(found.df, df, rtol=1e-6)
        np.testing.assert_allclose(found.values, values, rtol=1e-6)
        anova = vcomp.fit(formula, data, method="anova")
        ours, theirs = (r.conf_int(interval="mls").iloc[1:] for r in (res, anova))
        pd.testing.assert_frame_equal(ours, theirs, rtol=1e-6, atol=1e-9)
    assert seen >= 1


def test_unbalanced_designs_have_uncorrelated_ones_as_far_as_that_goes(shared_data):
    res = vcomp.fit("diameter ~ (1|plate) + (1|sample)", shared_data("Penicillin_unbal.csv"))
    found = mean_squares(res._record.components)
    R = found.correlation
    # Each is uncorrelated with the components that its own combination is made of.
    cov = found.basis @ res.cov_vcomp().to_numpy()
    np.testing.assert_allclose(cov[:2, 2], 0.0, atol=1e-16)
    # Those of the analysis of variance are 23, 5 and 86; a fifth of the cells is missing.
    np.testing.assert_allclose(found.df, [23.0, 5.0, 86.0], rtol=2e-3)
    assert np.abs(R[0, 1]) < 0.05


def test_what_is_held_is_known(shared_data):
    data = shared_data("Dyestuff.csv")
    res = vcomp.fit("Yield ~ (1|Batch)", data, hold={"Residual": 2451.25})
    found = mean_squares(res._record.components)
    assert found.places.tolist() == [0]
    np.testing.assert_array_equal(found.known, [0.0, 2451.25])
    row = res.conf_int().loc["var(Residual)"]
    assert row.tolist() == [2451.25, 2451.25] or np.isnan(row).all()


def test_no_covariance_no_mean_squares():
    g = vcomp.from_components({"p": 1.0, "i": 1.0, "Residual": 2.0}).components
    assert mean_squares(g) is None


@pytest.mark.rounding
def test_a_finer_term_with_a_negative_coefficient_is_left_out():
    """Eq. (10.4) with coefficients of at least zero: the rest is fitted without the worst one."""
    # λ_0 is correlated −0.5 with the first finer term and +0.3 with the second.
    R = np.array([[1.0, -0.5, 0.3], [-0.5, 1.0, 0.0], [0.3, 0.0, 1.0]])
    scale = np.array([2.0, 0.5, 3.0])
    finer = np.array([[False, True, True], [False, False, False], [False, False, False]])
    found = _basis(R * np.outer(scale, scale), finer)
    np.testing.assert_allclose(found[0], [1.0, 0.5 * 2.0 / 0.5, 0.0], rtol=1e-12)
    np.testing.assert_array_equal(found[1:], np.eye(3)[1:])
    # With both signs positive nothing of either is used, with both negative the joint solution.
    R[0, 1] = R[1, 0] = 0.5
    np.testing.assert_array_equal(_basis(R * np.outer(scale, scale), finer), np.eye(3))
    R = np.array([[1.0, -0.5, -0.3], [-0.5, 1.0, 0.2], [-0.3, 0.2, 1.0]])
    b1, b2 = (0.5 - 0.2 * 0.3) / (1.0 - 0.04), (0.3 - 0.2 * 0.5) / (1.0 - 0.04)
    found = _basis(R * np.outer(scale, scale), finer)
    np.testing.assert_allclose(found[0], [1.0, b1 * 2.0 / 0.5, b2 * 2.0 / 3.0], rtol=1e-12)
    # Of two finer terms the last may be the one to leave, and the one that stays is fitted anew.
    R = np.array([[1.0, -0.4, -0.1], [-0.4, 1.0, 0.8], [-0.1, 0.8, 1.0]])
    found = _basis(R * np.outer(scale, scale), finer)
    np.testing.assert_allclose(found[0], [1.0, 0.4 * 2.0 / 0.5, 0.0], rtol=1e-12)


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("rounding", [-1e-17, 0.0, 1e-17, 1e-14])
@pytest.mark.rounding
def test_an_expectation_of_zero_has_no_degrees_of_freedom(rounding, unit):
    """Whichever sign rounding gives it, in whatever unit: there are no mean squares then."""
    facets = tuple(map(frozenset, ("a", "b", "ab")))
    values = unit * np.array([rounding, 0.7, 1.0])
    cov = unit**2 * np.diag([0.2, 0.3, 0.05])
    g = VarianceComponents(("a", "b", "Residual"), facets, values, cov)
    assert mean_squares(g) is None
    little = VarianceComponents(
        ("a", "b", "Residual"), facets, values + unit * np.array([1e-7, 0, 0]), cov
    )
    assert mean_squares(little).df[0] == pytest.approx(2e-14 / 0.2, rel=1e-3)


def squares_of(values, df, correlation=None):
    """Return mean squares λ_i = Σ_{j ≤ i} σ_j² of three components, one after the other."""
    k = len(values)
    unit = np.eye(k) if correlation is None else np.asarray(correlation)
    return MeanSquares(
        np.tril(np.ones((k, k))), np.arange(k), np.array(values), np.array(df), unit, np.zeros(k)
    )


FIRST, SECOND, THIRD = np.eye(3)
RATIOS = {
    "first to first and second": ([FIRST], [FIRST + SECOND], True),
    "second to first and second": ([SECOND], [FIRST + SECOND], True),
    "first to all": ([FIRST], [FIRST + SECOND + THIRD], True),  # λ₁/λ₃
    "second to all": ([SECOND], [FIRST + SECOND + THIRD], False),  # λ₂ − λ₁ of λ₃
    "third to second and third": ([THIRD], [SECOND + THIRD], False),
    "one of two": ([FIRST, SECOND], [FIRST + SECOND, FIRST + SECOND + THIRD], False),
    "rounding of the third": ([FIRST], [FIRST + SECOND + 1e-10 * THIRD], True),
    "little of the third": ([FIRST], [FIRST + SECOND + 1e-7 * THIRD], False),
}


@pytest.mark.parametrize("name", RATIOS)
def test_ratios_rest_on_two_mean_squares(name):
    a, b, expected = RATIOS[name]
    squares = squares_of([2.0, 3.0, 7.0], [40.0, 12.0, 5.0])
    assert rests_on_two(squares, np.array(a), np.array(b)) is expected


def test_ratios_rest_on_independent_mean_squares_of_balanced_designs():
    a, b = np.array([FIRST]), np.array([FIRST + SECOND])
    values, df = [2.0, 3.0, 7.0], [40.0, 12.0, 5.0]
    # The third does not matter: it may have any degrees of freedom, and be correlated.
    for others in (4.4, 5.0):
        assert rests_on_two(squares_of(values, [40.0, 12.0, others]), a, b)
        for places in ([0, 2], [1, 2]):
            correlation = np.eye(3)
            correlation[places, places[::-1]] = -0.1
            assert not rests_on_two(squares_of(values, df, correlation), a, b)
    for odd in ([40.4, 12.0, 5.0], [40.0, 11.6, 5.0], [39.99, 12.0, 5.0]):
        assert not rests_on_two(squares_of(values, odd), a, b)
    # The rounding of a covariance is in the degrees of freedom.
    assert rests_on_two(squares_of(values, [40.0 + 1e-5, 12.0 - 1e-5, 5.0]), a, b)


def test_mean_squares_at_components_are_not_lowered():
    squares = squares_of([2.0, 3.0, 7.0], [40.0, 12.0, 5.0])
    found = squares.at(np.array([1.0, 3.0, 0.5]))
    assert found.values.tolist() == [2.0, 4.0, 7.0]
    assert found.df is squares.df
    weights = np.array([[1.0, 0.0, 2.0], [0.0, -1.0, 0.5]])
    lam = squares.values
    components = np.array([lam[0], lam[1] - lam[0], lam[2] - lam[1]])
    np.testing.assert_allclose(squares.coefficients(weights) @ lam, weights @ components)


def test_expectations_that_are_not_above_zero_are_those_of_positive_components():
    basis = np.array([[2.0, 1.0, 0.0], [0.0, 4.0, 1.0], [0.0, 0.0, 1.0]])
    for values, expected in (
        ([-0.5, 2.0, 3.0], [1.0, 11.0, 3.0]),
        ([-1.0, 2.0, 3.0], [2.0, 11.0, 3.0]),
        ([-1.5, 2.0, 3.0], [2.0, 11.0, 3.0]),
        ([1.0, -1.0, 3.0], [1.0, 3.0, 3.0]),
    ):
        assert _expected(basis, np.array(values)).tolist() == expected


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_correlations_are_at_most_1(sign):
    """A covariance may be larger than the root of the product of variances by rounding error."""
    rng = np.random.default_rng(3)
    for a, b in rng.uniform(0.1, 9.0, (50, 2)):
        both = sign * np.sqrt(a * b) * (1.0 + 4e-16)
        R = _correlation(np.array([[a, both], [both, b]]), np.array([a, b]))
        np.testing.assert_allclose(R, [[1.0, sign], [sign, 1.0]], rtol=1e-14)
        assert np.abs(R).max() <= 1.0


@pytest.mark.parametrize("variance", [1e-30, 1e-12, 1e-4, 0.5])
def test_degrees_of_freedom_are_those_of_the_variance_up_to_a_limit(variance):
    """2E²/Var of a mean square E; what is known exactly has no more than a limit."""
    values = {"a": 2.0, "Residual": 4.0}
    g = from_components(values, cov=np.diag([0.3, variance])).components
    found = mean_squares(g)
    assert found.df[found.places == 1] == pytest.approx(min(32.0 / variance, _KNOWN), rel=1e-12)

from types import SimpleNamespace

import numpy as np
import pytest

import vcomp
from tests.helpers.multivariate_scores import (
    crossed,
    layout_of,
    long_of,
    positive,
    specification,
)
from vcomp.estimators.likelihood import elements
from vcomp.multivariate.fit_covariances import element_map, uncorrelated
from vcomp.multivariate.stage_equations import _check_size

WIDE = "a + b + c ~ (1|p) + (1|i)"


@pytest.mark.parametrize("is_long", [False, True])
def test_scores_are_the_combinations_that_it_says(is_long):
    """Also where variables have the same rows in another order."""
    data = crossed(3).drop(index=[0, 9])
    if is_long:
        long = long_of(data, list("abc")).sample(frac=1.0, random_state=1)
        layout = layout_of("y ~ (1|p) + (1|i)", long, variable="test")
    else:
        layout = layout_of(WIDE, data)
    L, x = uncorrelated(layout)
    scores = layout.scores
    X, Y = np.empty((2, scores.n_units, 3))
    X[scores.unit, scores.variable], Y[scores.unit, scores.variable] = x, layout.y
    np.testing.assert_allclose(X @ L.T, Y, rtol=1e-10, atol=1e-10)
    assert (np.triu(L, 1) == 0.0).all()


def test_scores_that_are_not_together_are_not_combined():
    layout = layout_of("y ~ (1|p) + (1|i)", specification(3), variable="test")
    L, x = uncorrelated(layout)
    assert x is None
    np.testing.assert_array_equal(L, np.diag(layout.scale))


def test_the_map_of_elements_is_that_of_matrices():
    layout = layout_of(WIDE, crossed(3))
    rng = np.random.default_rng(0)
    L, S = np.tril(rng.normal(size=(3, 3))), positive(layout)
    places = elements(layout.linked)
    mapped = element_map(layout, L) @ np.array([S[e] for e in places])
    np.testing.assert_allclose(mapped, [(L @ S @ L.T)[e] for e in places], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [slice(None), slice(2, None)], ids=["balanced", "not balanced"])
@pytest.mark.parametrize("noise", [1.0, 1e-3])
def test_combinations_of_variables_have_the_combined_matrices(rows, noise):
    """REML of T y is TΣT', also where a variable is nearly the same as another one."""
    data = crossed(28, n_p=12, n_i=8).iloc[rows]
    data = data.assign(d=data["a"] + noise * data["b"])
    one = vcomp.fit_multivariate("a + b ~ (1|p) + (1|i)", data)
    two = vcomp.fit_multivariate("a + d ~ (1|p) + (1|i)", data)
    T = np.array([[1.0, 0.0], [1.0, noise]])
    n = len(data)
    assert two.llf == pytest.approx(one.llf - (n - 1) * np.log(noise), abs=1e-6)
    for term in one.terms:
        expected = T @ one.matrix(term).to_numpy() @ T.T
        np.testing.assert_allclose(two.matrix(term), expected, rtol=1e-6, atol=1e-9)
    map_ = element_map(one._layout, T)
    expected = map_ @ one.covariance_components.cov @ map_.T
    # Second derivatives lose more digits than the maximum does where variables are nearly equal.
    np.testing.assert_allclose(two.covariance_components.cov, expected, rtol=1e-4, atol=1e-9)


def test_too_many_effects_are_refused_before_anything_is_made():
    rng = np.random.default_rng(0)
    n = 12_000
    data = {"p": rng.integers(0, 4000, n), "i": rng.integers(0, 3000, n)}
    data |= {"a": rng.normal(size=n), "b": rng.normal(size=n)}
    with pytest.raises(vcomp.EstimationError, match=r"effects in 2 variables.*method='anova'"):
        vcomp.fit_multivariate("a + b ~ (1|p) + (1|i)", data)


def test_one_shared_level_gives_no_covariance():
    data = specification(2, n_i=(3, 4))
    data.loc[data["i"] == 3, "i"] = 2
    for method in ("reml", "anova"):
        res = vcomp.fit_multivariate("y ~ (1|p) + (1|i)", data, variable="test", method=method)
        assert np.isnan(res.matrix("i").loc["a", "b"])
        assert any("any two variables share at most one level" in note for note in res.notes)


@pytest.mark.parametrize(
    ("columns", "free", "refused"),
    [
        (2_501, 1e9, False),  # with those of the means; 2,500 effects in each variable
        (2_502, 1e9, True),
        (3, 2_200.1, False),  # 8 (100 + 4 × 10 × 3) bytes are 80 % of it
        (3, 2_199.9, True),
    ],
)
def test_equations_that_are_too_large_are_refused(columns, free, refused):
    layout = SimpleNamespace(
        n_variables=2, names=("p", "i", "Residual"), scores=SimpleNamespace(n=10)
    )
    plan = SimpleNamespace(n_columns=columns, terms=(0,), numbers=lambda _: 100.0)
    if not refused:
        _check_size(layout, plan, lambda: free)
        return
    with pytest.raises(vcomp.EstimationError, match=f"have {2 * columns - 2:,} effects in 2"):
        _check_size(layout, plan, lambda: free)

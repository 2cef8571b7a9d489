"""Responses of the same rows, estimated together, beside each alone and the dense formulas."""

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.estimators import get_estimator
from vcomp.estimators.quadratic import minque
from vcomp.estimators.quadratic.closed_form import fixed_effects_of, points_of

FORMULA = "y ~ x + (1|a) + (1|b) + (1|a:b)"


def model(formula=FORMULA, n=300, levels=(12, 9), seed=3):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(levels[0], size=n), rng.integers(levels[1], size=n)
    y = rng.normal(size=levels[0])[a] + rng.normal(size=n)
    frame = pd.DataFrame({"a": a, "b": b, "x": rng.normal(size=n), "y": y})
    return vcomp.VarianceComponentsModel(formula, frame)


def responses(made, n=6, seed=4):
    """Return statistics of several responses; some have a component estimated below zero."""
    rows = made.statistics.cells.response.size
    rng = np.random.default_rng(seed)
    return [made.statistics.with_response(rng.normal(size=rows)) for _ in range(n)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("type1", {}),
        ("henderson3", {}),
        ("minque", {}),
        ("minque", {"prior": 0.0}),
        ("minque", {"prior": [0.5, 0.1, 0.0, 1.0]}),
        ("minque", {"iterated": 2}),
    ],
)
def test_together_as_each_alone(method, options):
    made = model()
    drawn, names = responses(made), ("a", "b", "a:b", "Residual")
    estimator = get_estimator(method, **options)
    together = estimator.prepared(drawn[0], names)(drawn)
    # What is prepared for one response serves all others.
    prepared = estimator.prepared(drawn[-1], names)
    for found, again in zip(together, prepared(drawn), strict=True):
        np.testing.assert_allclose(again.values, found.values, rtol=1e-12, atol=1e-13)
    alone = [estimator.estimate(stats, names) for stats in drawn]
    assert any((one.values[:-1] < 0.0).any() for one in alone)
    for found, one in zip(together, alone, strict=True):
        # Conjugate gradients end at 1e-10.
        np.testing.assert_allclose(found.values, one.values, rtol=0.0, atol=1e-10)
        np.testing.assert_allclose(found.beta, one.beta, rtol=0.0, atol=1e-9)


def test_anova_together_as_each_alone():
    made = model("y ~ (1|a) + (1|b)")
    drawn, names = responses(made), ("a", "b", "Residual")
    estimator = get_estimator("anova")
    for found, stats in zip(estimator.prepared(drawn[0], names)(drawn), drawn, strict=True):
        one = estimator.estimate(stats, names)
        np.testing.assert_allclose(found.values, one.values, rtol=1e-13)
        np.testing.assert_allclose(found.beta, one.beta, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("method", ["minque", "henderson3"])
def test_many_groups_together_as_each_alone(method):
    """Of so many groups that traces are probed, and spaces are sparse."""
    made = model("y ~ (1|a) + (1|b)", n=6_000, levels=(1_100, 1_010))
    drawn, names = responses(made, 2), ("a", "b", "Residual")
    estimator = get_estimator(method)
    for found, stats in zip(estimator.prepared(drawn[0], names)(drawn), drawn, strict=True):
        one = estimator.estimate(stats, names)
        np.testing.assert_allclose(found.values, one.values, rtol=0.0, atol=1e-9)
        np.testing.assert_allclose(found.beta, one.beta, rtol=0.0, atol=1e-9)


def test_right_hand_sides_of_all_forms_agree():
    made = model("y ~ (1|a) + (1|b)")
    drawn, w = responses(made), np.array([0.3, 0.2, 1.0])
    few = minque._priors(made.statistics)
    many = minque._priors(made.statistics, dense_below=0)
    probed = minque.ProbedPriors(made.statistics.cross_products)
    expected = [minque.SpaceContrasts(s.cross_products).at(w).right for s in drawn]
    for priors in (few, many, probed):
        np.testing.assert_allclose(priors.rights(w, drawn), expected, rtol=1e-9)


def test_fixed_effects_are_those_of_the_dense_formula():
    made = model()
    drawn = responses(made)
    chunk = made.statistics.cells
    v = np.random.default_rng(1).uniform(0.1, 2.0, size=(len(drawn), 4))
    v[1, 0] = v[2, :3] = 0.0
    found = fixed_effects_of([s.cross_products for s in drawn], v)
    X = chunk.X
    Z = [np.eye(size)[codes] for size, codes in zip(chunk.sizes, chunk.codes, strict=True)]
    for stats, own, beta in zip(drawn, v, found, strict=True):
        V = own[-1] * np.eye(len(X)) + sum(c * z @ z.T for c, z in zip(own, Z, strict=False))
        VX = np.linalg.solve(V, X)
        expected = np.linalg.solve(X.T @ VX, VX.T @ stats.cells.y)
        np.testing.assert_allclose(beta, expected, rtol=0.0, atol=1e-9)


def test_equations_that_do_not_converge_have_no_effects():
    made = model()
    sums = [s.cross_products for s in responses(made)]
    assert fixed_effects_of(sums, np.ones((len(sums), 4)), steps=1) == [None] * len(sums)


@pytest.mark.slow
@pytest.mark.parametrize("constant", [[2], [0, 1, 3, 4], range(6)])
def test_a_response_without_variance_has_components_of_zero(constant):
    """Also if all have none, so that nothing is left to be solved for."""
    made = model()
    drawn, names = responses(made), ("a", "b", "a:b", "Residual")
    rows = drawn[0].cells.y.size
    for b in constant:
        drawn[b] = made.statistics.with_response(np.full(rows, 0.0))
    methods = [get_estimator(m) for m in ("type1", "henderson3", "minque")]
    for method in (*methods, get_estimator("minque", iterated=2)):
        found = method.prepared(drawn[0], names)(drawn)
        for b, point in enumerate(found):
            assert point.values.any() == (b not in constant)
            assert point.beta.any() == (b not in constant)


def test_without_a_residual_the_fixed_effects_are_ordinary_least_squares():
    """Of one of many responses: the others are those of the dense formula."""
    made = model()
    drawn, v = responses(made), np.tile([0.4, 0.2, 0.3, 1.0], (6, 1))
    v[2], v[4] = [0.4, 0.2, 0.3, 0.0], [0.4, 0.2, 0.3, -0.5]
    chunk = made.statistics.cells
    for b, point in enumerate(points_of(drawn, list(v))):
        np.testing.assert_array_equal(point.values, v[b])
        y = drawn[b].cells.y
        V = np.eye(y.size)
        if b not in (2, 4):
            for component, codes in zip(v[b], chunk.codes, strict=False):
                V += component * (codes[:, None] == codes)
        VX = np.linalg.solve(V, chunk.X)
        expected = np.linalg.solve(chunk.X.T @ VX, VX.T @ y)
        np.testing.assert_allclose(point.beta, expected, rtol=0.0, atol=1e-8)

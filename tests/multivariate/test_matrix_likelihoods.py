"""Both likelihoods of matrices against their dense definition and against each other."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from tests.helpers.cases import alternately
from tests.helpers.dependent import nearly_dependent
from tests.helpers.multivariate_scores import (
    crossed,
    dense_parts,
    layout_of,
    long_of,
    positive,
    specification,
    unit_matrices,
    vector,
)
from vcomp.estimators.likelihood import elements
from vcomp.exceptions import EstimationError
from vcomp.multivariate.analogous import find_axis
from vcomp.multivariate.fit_covariances import uncorrelated
from vcomp.multivariate.mixed_equations import EquationsLikelihood
from vcomp.multivariate.strata_covariances import (
    MeanProductsLikelihood,
    check_residual,
    find_strata,
)

ITEMS = "y ~ (1|p) + (1|i)"


def nested_data():
    """Return two raters within each of three tasks, crossed with five persons, two variables."""
    rng = np.random.default_rng(9)
    data = [(p, t, r) for p in range(5) for t in range(3) for r in range(2)]
    frame = pd.DataFrame(data, columns=["p", "t", "r"])
    frame["a"], frame["b"] = rng.normal(size=(2, len(frame))) + frame["p"].to_numpy() * 0.5
    return frame


BALANCED = {
    "crossed": ("a + b + c ~ (1|p) + (1|i)", crossed(1)),
    "two items": ("a + b ~ (1|p) + (1|i)", crossed(6, n_p=5, n_i=2, v=2)),
    "nested": ("a + b ~ (1|p) + (1|t/r) + (1|p:t)", nested_data()),
    "replicated": ("a + b ~ (1|p) + (1|t) + (1|p:t)", nested_data()),
    "intersection without a term": ("a + b ~ (1|p:t) + (1|t:r)", nested_data()),
}


def nested_with_missing(*, single):
    """Return p × (i:h) and an interaction p:h, with rows or single values missing."""
    rng = np.random.default_rng(13)
    data = [(p, h, 2 * h + i) for p in range(6) for h in range(3) for i in range(2)]
    frame = pd.DataFrame(data, columns=["p", "h", "i"])
    frame["a"], frame["b"] = rng.normal(size=(2, len(frame))) + frame["p"].to_numpy() * 0.5
    if single:
        frame.loc[[0, 7, 20], "a"] = np.nan
        frame.loc[[7, 11], "b"] = np.nan
        frame = frame.drop(index=7)
        return layout_of(
            "y ~ (1|p) + (1|h/i) + (1|p:h)",
            long_of(frame, ["a", "b"]).dropna(),
            variable="test",
        )
    return layout_of("a + b ~ (1|p) + (1|h/i) + (1|p:h)", frame.drop(index=[0, 7, 20]))


def raters_with_missing():
    """Return p × i × r with all interactions of p, in which two terms cross within a person."""
    rng = np.random.default_rng(14)
    data = [(p, i, r) for p in range(5) for i in range(3) for r in range(3)]
    frame = pd.DataFrame(data, columns=["p", "i", "r"])
    frame["a"], frame["b"] = rng.normal(size=(2, len(frame)))
    terms = "(1|p) + (1|i) + (1|r) + (1|p:i) + (1|p:r) + (1|i:r)"
    return layout_of(f"a + b ~ {terms}", frame.drop(index=[1, 8, 22, 30]))


def with_values_missing(missing, *, nested=False):
    """Return p × i, or persons within groups, with the single values missing that are named."""
    data = crossed(21, n_p=8, n_i=5)
    data.loc[:, list("abc")] = data[list("abc")].mask(missing(data))
    formula = "(1|h/p)" if nested else "(1|p) + (1|i)"
    long = long_of(data.assign(h=data["p"] // 3), list("abc")).dropna()
    return layout_of(f"y ~ {formula}", long, variable="test")


def alike(data):
    """All persons have the same patterns of missing values."""
    of_item = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 0, 1]], dtype=bool)
    return of_item[data["i"]]


def unlike(data):
    """No two persons have the same patterns, however they are ordered."""
    by_person = (np.arange(8)[:, None] >> np.arange(3)) & 1  # all eight patterns of the first item
    return np.where(data["i"].to_numpy()[:, None] == 0, by_person[data["p"]], 0).astype(bool)


def levels_without_scores(data):
    """One person has no scores, another one none of one variable, an item none of another."""
    p, i = data["p"].to_numpy(), data["i"].to_numpy()
    return np.column_stack([p == 2, (p == 2) | (p == 5), (p == 2) | (i == 3)])


def at_random(data):
    return np.random.default_rng(23).random((len(data), 3)) < 0.3


def monotone(data):
    """Whoever lacks a variable lacks all later ones."""
    last = np.random.default_rng(24).integers(1, 4, len(data))
    return np.arange(3) >= last[:, None]


MISSING = {
    f"{pattern.__name__}, {design}": (
        lambda pattern=pattern, design=design: with_values_missing(
            pattern, nested=design == "nested"
        )
    )
    for pattern in (alike, unlike, levels_without_scores, at_random, monotone)
    for design in ("crossed", "nested")
}

OTHERS = {
    **MISSING,
    "nested, rows missing": lambda: nested_with_missing(single=False),
    "nested, values missing": lambda: nested_with_missing(single=True),
    "raters, rows missing": raters_with_missing,
    "rows missing": lambda: layout_of(
        "a + b + c ~ (1|p) + (1|i)", crossed(1).drop(index=[0, 8, 22])
    ),
    "specification": lambda: layout_of(ITEMS, specification(), variable="test"),
    "specification, missing": lambda: layout_of(
        ITEMS, specification(1, missing=0.3), variable="test"
    ),
    "units differ": lambda: layout_of(
        ITEMS, specification(2, n_i=(4, 4, 4), linked=True, missing=0.3), variable="test"
    ),
}


def balanced(name):
    formula, data = BALANCED[name]
    return layout_of(formula, data)


def scaled(layout):
    return layout.y / layout.scale[layout.scores.variable]


def check_against_dense(likelihood, layout, *, reml):
    S = positive(layout)
    theta, D, y = vector(S, layout), unit_matrices(layout), scaled(layout)
    V, P, values = dense_parts(theta, layout, y)
    assert likelihood.loglike(S) == pytest.approx(values[0 if reml else 1], abs=1e-9)
    G = likelihood.gradient(S)
    Q = P if reml else np.linalg.inv(V)
    score = np.array([0.5 * (y @ P @ d @ P @ y - np.trace(Q @ d)) for d in D])
    places = elements(layout.linked)
    gradient = [G[e] * (1.0 if e[1] == e[2] else 2.0) for e in places]
    np.testing.assert_allclose(gradient, score, rtol=1e-8, atol=1e-9)
    assert (G[~layout.linked] == 0.0).all()
    F = np.stack([d @ P @ y for d in D])
    average = 0.5 * F @ P @ F.T
    np.testing.assert_allclose(likelihood.information(S, "average"), average, rtol=1e-8, atol=1e-9)
    expected = 0.5 * np.array([[np.trace(Q @ d @ Q @ e) for e in D] for d in D])
    made = likelihood.information(S, "expected")
    np.testing.assert_allclose(made, expected, rtol=1e-8, atol=1e-9)
    observed = likelihood.information(S, "observed")
    np.testing.assert_allclose(observed, 2.0 * average - expected, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("reml", [True, False], ids=["reml", "ml"])
@pytest.mark.parametrize("name", BALANCED)
def test_strata(name, reml):
    layout = balanced(name)
    strata = find_strata(layout)
    likelihood = MeanProductsLikelihood(strata, layout.linked, reml=reml)
    check_against_dense(likelihood, layout, reml=reml)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "reml"), alternately([*BALANCED, *OTHERS], True, False))
def test_equations(name, reml):
    layout = balanced(name) if name in BALANCED else OTHERS[name]()
    check_against_dense(EquationsLikelihood(layout, reml=reml), layout, reml=reml)


@pytest.mark.parametrize("name", [*list(MISSING)[::2], "raters, rows missing", "units differ"])
def test_equations_in_parts(name):
    """Arrays that are made for one group at a time; the sums are the same."""
    layout = OTHERS[name]()
    check_against_dense(EquationsLikelihood(layout, reml=True, chunk=1), layout, reml=True)


@pytest.mark.parametrize(("name", "reml"), alternately(OTHERS, True, False))
def test_the_curvature_of_many_scores_is_exact_for_terms_of_the_last_stage(name, reml):
    layout = OTHERS[name]()
    S = positive(layout)
    likelihood = EquationsLikelihood(layout, reml=reml, dense_below=0)
    assert likelihood.kinds == ("average",)
    exact = EquationsLikelihood(layout, reml=reml)
    average = exact.information(S, "average")
    expected = exact.information(S, "expected")  # compared with dense matrices above
    eliminated = likelihood.reason.removeprefix("elimination of ").split(", as the data")[0]
    last = set(layout.names[:-1]) - set(eliminated.split(", "))
    of_last = np.array([layout.names[t] in last for t, _, _ in elements(layout.linked)])
    both = np.outer(of_last, of_last)
    found = likelihood.curvature(S)
    assert (found is None) == (not of_last.any())
    if found is None:
        return
    np.testing.assert_allclose(found[~both], average[~both], rtol=1e-8, atol=1e-9)
    observed = 2.0 * average - expected
    np.testing.assert_allclose(found[both], observed[both], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(exact.curvature(S), observed, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("reml", [True, False], ids=["reml", "ml"])
@pytest.mark.parametrize("name", [*BALANCED, "specification"])
def test_columns_of_a_crossed_facet(name, reml):
    layout = balanced(name) if name in BALANCED else OTHERS[name]()
    axis = find_axis(layout)
    assert axis is not None
    check_against_dense(MeanProductsLikelihood(axis, layout.linked, reml=reml), layout, reml=reml)


@pytest.mark.slow
def test_a_crossed_facet_is_found_where_there_is_one():
    layout = OTHERS["specification"]()
    axis = find_axis(layout)
    assert (axis.n, axis.variable.size) == (8, 12)
    assert axis.reason == "covariance matrix of the 12 columns of each level of p"
    assert {n for n in OTHERS if find_axis(OTHERS[n]()) is not None} == {
        "specification",
        "alike, crossed",
    }


def test_of_crossed_facets_of_one_size_the_first_is_taken():
    layout = layout_of("a + b + c ~ (1|p) + (1|i)", crossed(1, n_p=5))
    assert [len(levels) for levels in layout.scores.levels] == [5, 5]
    assert find_axis(layout).reason.endswith("of each level of p")


@pytest.mark.parametrize("name", OTHERS)
def test_singular_matrices_of_terms_are_as_good_as_others(name):
    layout = OTHERS[name]()
    S = positive(layout)
    loadings = np.array([1.0, 0.5, -1.0])[: layout.n_variables]
    S[0] = np.outer(loadings, loadings)
    S[1] = 0.0
    _, P, values = dense_parts(vector(S, layout), layout, scaled(layout))
    likelihood = EquationsLikelihood(layout, reml=True)
    assert likelihood.loglike(S) == pytest.approx(values[0], abs=1e-9)
    y, places = scaled(layout), elements(layout.linked)
    D = unit_matrices(layout)
    score = np.array([0.5 * (y @ P @ d @ P @ y - np.trace(P @ d)) for d in D])
    gradient = likelihood.gradient(S)
    found = [gradient[e] * (1.0 if e[1] == e[2] else 2.0) for e in places]
    np.testing.assert_allclose(found, score, rtol=1e-8, atol=1e-9)


def test_strata_are_found_where_they_are():
    assert find_strata(balanced("nested")) is not None
    for name, make in OTHERS.items():
        assert find_strata(make()) is None, name


def test_degrees_of_freedom_and_coefficients_of_nested_raters():
    """p × (r:t) with 5, 3 and 2 levels (Brennan 2001, chap. 3)."""
    strata = find_strata(balanced("nested"))
    pairs = zip(strata.df, strata.coefficients, strict=True)
    by_facets = dict(zip(strata.facets, pairs, strict=True))
    p, t, r = 0, 1, 2
    assert by_facets[frozenset({p})][0] == 4
    assert by_facets[frozenset({t})][0] == 2
    assert by_facets[frozenset({t, r})][0] == 3
    assert by_facets[frozenset({p, t})][0] == 8
    assert by_facets[None][0] == 12
    # Components p, t, t:r, p:t, Residual in the expected mean products of t.
    np.testing.assert_array_equal(by_facets[frozenset({t})][1], [0, 10, 5, 2, 1])
    np.testing.assert_array_equal(by_facets[frozenset({p})][1], [6, 0, 0, 2, 1])


def test_a_stratum_without_degrees_of_freedom_is_none():
    """One rater within each task, whom no term distinguishes from the task."""
    frame = nested_data()
    frame["same"] = frame["t"]
    plain = find_strata(layout_of("a + b ~ (1|t) + (1|p:t) + (1|r:t)", frame))
    again = find_strata(layout_of("a + b ~ (1|t) + (1|p:t:same) + (1|r:t:same)", frame))
    np.testing.assert_array_equal(again.df, plain.df)
    np.testing.assert_array_equal(again.coefficients, plain.coefficients)
    np.testing.assert_allclose(again.products, plain.products, rtol=1e-12)


def test_without_a_residual_there_is_no_likelihood():
    layout = OTHERS["units differ"]()
    S = positive(layout)
    S[-1] = np.outer([1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    assert EquationsLikelihood(layout, reml=True).loglike(S) == -np.inf


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("rows missing", "p"),
        # The six persons outside are fewer than the tasks and items would be.
        ("nested, rows missing", "h, h:i, p:h"),
        ("nested, values missing", "h, h:i, p:h"),
        ("raters, rows missing", "p, p:i, p:r"),
    ],
)
def test_the_levels_that_leave_the_fewest_effects_are_eliminated(name, terms):
    reason = EquationsLikelihood(OTHERS[name](), reml=True).reason
    assert reason.startswith(f"elimination of {terms}, as")


def test_the_log_likelihood_keeps_its_digits_with_large_effects():
    """Adding constants to the groups of an effect with a huge variance changes almost nothing."""
    layout = layout_of("a + b + c ~ (1|p) + (1|i)", crossed(1, n_p=20).drop(index=[0, 8]))
    S = positive(layout)
    S[1] *= 1e6
    _, _, values = dense_parts(vector(S, layout), layout, scaled(layout))
    shifted = scaled(layout) + 1e3 * np.eye(5)[layout.groups[1]] @ np.arange(5.0)
    likelihood = EquationsLikelihood(layout, reml=True, y=shifted)
    _, P, expected = dense_parts(vector(S, layout), layout, shifted)
    assert likelihood.loglike(S) == pytest.approx(expected[0], rel=1e-9)
    assert values[0] != pytest.approx(expected[0], rel=1e-3)
    D = unit_matrices(layout)
    score = np.array([0.5 * (shifted @ P @ d @ P @ shifted - np.trace(P @ d)) for d in D])
    gradient = likelihood.gradient(S)
    places = elements(layout.linked)
    found = [gradient[e] * (1.0 if e[1] == e[2] else 2.0) for e in places]
    np.testing.assert_allclose(found, score, rtol=1e-6, atol=1e-8)


def test_scores_without_residual_variance_keep_their_scale():
    frame = nested_data()
    frame["b"] = 2.0 * frame["p"]  # no rounding is left of it
    layout = layout_of("a + b ~ (1|p) + (1|t)", frame)
    L, x = uncorrelated(layout)
    np.testing.assert_array_equal(L, np.diag(layout.scale))
    assert x is None


def check(products, df=9.0):
    check_residual(SimpleNamespace(products=[products], df=[df]), ("a", "b", "c"))


def test_residuals_have_as_many_degrees_of_freedom_as_variables():
    check(np.eye(3), df=3.0)
    with pytest.raises(EstimationError, match="has 2 degrees of freedom, too few for the 3 var"):
        check(np.eye(3), df=2.0)


def test_a_variable_without_residual_variance_is_named():
    check(np.diag([1.0, 1.1e-10**2, 4.0]))
    with pytest.raises(EstimationError, match="variable 'b' has no residual variance"):
        check(np.diag([1.0, 0.9e-10**2, 4.0]))


@pytest.mark.parametrize(("share", "named"), [(0.9, "a, b"), (1.5, "a, b, c")])
def test_dependent_residuals_are_named_from_a_share_of_a_thousandth(share, named):
    units = np.outer([3.0, 0.5, 20.0], [3.0, 0.5, 20.0])
    check(nearly_dependent(1.1e-10, share * 1e-3) * units)
    with pytest.raises(EstimationError, match=f"residuals of {named} are linearly dependent"):
        check(nearly_dependent(0.9e-10, share * 1e-3) * units)

"""Henderson's Method III against projectors written out."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.dense_quadratic import (
    FIXED,
    NAMES,
    DenseReductions,
    assert_covariance,
    covariance_matrix,
    incidences,
    model_of,
    two_parts,
)
from tests.helpers.designs import unbalanced
from vcomp.estimators.quadratic.closed_form import Henderson3, estimate_from
from vcomp.estimators.quadratic.quadratic_forms import TooLargeError
from vcomp.estimators.quadratic.reductions import ReductionLimits
from vcomp.estimators.quadratic.spaces import Space


def adjusted(model):
    """Return the dense analysis: other terms, unless each of their groups lies in one of t's."""
    Z = incidences(model)
    finer = [
        [all((Z[t].T @ Z[u] > 0).sum(axis=0) == 1) for u in range(len(Z))] for t in range(len(Z))
    ]
    others = [[u for u in range(len(Z)) if not finer[t][u]] for t in range(len(Z))]
    return DenseReductions(model, others)


@pytest.mark.parametrize("fixed", FIXED)
@pytest.mark.parametrize("name", NAMES)
def test_against_projectors(name, fixed):
    model = model_of(name, fixed)
    dense, res = adjusted(model), model.fit("henderson3")
    table = Henderson3().table(model.statistics, model.component_names)
    np.testing.assert_array_equal(table.df, dense.df)
    np.testing.assert_allclose(
        table.sum_sq, dense.sum_sq, rtol=1e-9, atol=1e-11 * dense.sum_sq.sum()
    )
    np.testing.assert_allclose(table.expected, dense.expected, atol=1e-9)
    scale = np.abs(dense.estimates).max()
    np.testing.assert_allclose(res.vcomp, dense.estimates, rtol=1e-9, atol=1e-9 * scale)
    assert_covariance(res.cov_vcomp(), dense.covariance, 1e-9)


def estimate_within(model, limits):
    """Return the estimate from sums of squares whose matrices have limited sizes."""
    found = Henderson3().reductions(model.statistics.cross_products, limits)
    return estimate_from("henderson3", model.statistics, found, model.component_names)


@pytest.mark.parametrize("name", ["three facets", "crossed and nested", "crossed, replicated"])
def test_expanded_covariance_is_the_same(name):
    model = model_of(name, "x + C(g)")
    expected = model.fit("henderson3").cov_vcomp()
    found = estimate_within(model, ReductionLimits(dense_below=0))
    assert_covariance(found.covariances["sampling"], expected.to_numpy(), 1e-9)


def test_no_standard_errors_where_they_take_too_long():
    model = model_of("three facets")
    expected = model.fit("henderson3").vcomp
    found = estimate_within(model, ReductionLimits(most_products=0.0))
    np.testing.assert_array_equal(found.values, expected)
    assert np.isnan(found.covariances["sampling"]).all()
    assert "No standard errors" in found.status


def test_disconnected_data():
    model = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b)", two_parts())
    dense, res = adjusted(model), model.fit("henderson3")
    table = Henderson3().table(model.statistics, model.component_names)
    # Between the two parts a and b say the same: neither has that contrast.
    assert table.df.tolist() == [7.0, 6.0, model.nobs - 15.0]
    np.testing.assert_allclose(res.vcomp, dense.estimates, rtol=1e-11)
    assert_covariance(res.cov_vcomp(), dense.covariance, 1e-11)


def test_order_of_terms_does_not_matter():
    _, data = unbalanced("three facets", seed=2)
    first = vcomp.fit("y ~ (1|a) + (1|b) + (1|a:b) + (1|c)", data, method="henderson3")
    second = vcomp.fit("y ~ (1|a:b) + (1|c) + (1|b) + (1|a)", data, method="henderson3")
    np.testing.assert_allclose(second.vcomp[first.vcomp.index], first.vcomp, rtol=1e-10)
    np.testing.assert_allclose(second.bse_vcomp[first.vcomp.index], first.bse_vcomp, rtol=1e-10)


def test_last_term_is_that_of_type1():
    _, data = unbalanced("crossed", seed=4)
    by_type1 = vcomp.fit("y ~ (1|a) + (1|b)", data, method="type1")
    by_henderson = vcomp.fit("y ~ (1|a) + (1|b)", data, method="henderson3")
    for name in ("b", "Residual"):
        assert by_henderson.vcomp[name] == pytest.approx(by_type1.vcomp[name], rel=1e-12)
        assert by_henderson.bse_vcomp[name] == pytest.approx(by_type1.bse_vcomp[name], rel=1e-11)
    assert by_henderson.vcomp["a"] != pytest.approx(by_type1.vcomp["a"], rel=1e-6)


def test_a_term_that_others_explain_is_named():
    """c follows a in one part of the data and b in the other, and is coarser than neither."""
    grid = [(a, b) for a in range(8) for b in range(8) if (a < 4) == (b < 4) for _ in range(3)]
    data = pd.DataFrame(grid, columns=["a", "b"])
    data["c"] = np.where(data["a"] < 4, data["a"] % 2, data["b"] % 2)
    data["y"] = np.random.default_rng(0).normal(size=len(data))
    with pytest.raises(
        vcomp.EstimationError,
        match=r"term 'c' has no degrees of freedom after .* the fixed part and a, b: .*='reml'",
    ):
        vcomp.fit("y ~ (1|c) + (1|a) + (1|b)", data, method="henderson3")
    assert vcomp.fit("y ~ (1|c) + (1|a) + (1|b)", data, method="type1").converged


def test_too_large():
    stats = model_of("crossed").statistics.cross_products
    every = frozenset(range(stats.n_terms))
    with pytest.raises(vcomp.EstimationError, match=r"dense matrix of order 8, .*method='anova'"):
        Space(stats, every, free_bytes=lambda: 100.0)
    four_matrices = 4.0 * 8.0 * 8**2 / 0.8  # four fifths of the memory may be used
    assert Space(stats, every, free_bytes=lambda: 1.001 * four_matrices).rank == 15
    with pytest.raises(vcomp.EstimationError, match="order 8"):
        Space(stats, every, free_bytes=lambda: 0.999 * four_matrices)


@pytest.mark.parametrize(
    ("sizes", "fixed"),
    [
        *alternately([(3, 4, 14), (14, 3, 4), (4, 14, 3)], "1", "x", "0"),
        *alternately([(3, 4, 14), (14, 3, 4)], "0", "x"),
    ],
)
@pytest.mark.parametrize(
    "terms",
    [
        "(1|a) + (1|b) + (1|c) + (1|a:b)",
        "(1|a) + (1|b) + (1|c) + (1|a:b) + (1|a:c)",
        "(1|a) + (1|b) + (1|a:b)",
    ],
)
def test_terms_whose_spaces_share_the_largest_one_or_do_not(terms, sizes, fixed):
    """Spaces of others that do not contain each other, with terms that are in neither."""
    rng = np.random.default_rng(sum(sizes) + len(terms))
    n = 90
    data = pd.DataFrame({f: rng.integers(0, q, n) for f, q in zip("abc", sizes, strict=True)})
    data["x"], data["y"] = rng.normal(size=(2, n))
    model = vcomp.VarianceComponentsModel(f"y ~ {fixed} + {terms}", data)
    dense, v = adjusted(model), rng.uniform(0.2, 2.0, len(model.component_names))
    for limits in (ReductionLimits(), ReductionLimits(dense_below=0)):
        found = Henderson3().reductions(model.statistics.cross_products, limits)
        np.testing.assert_array_equal(found.df, dense.df)
        V = covariance_matrix(model, v)
        AV = [A @ V for A in dense.A]
        expected = [[2.0 * np.sum(one * other.T) for other in AV] for one in AV]
        np.testing.assert_allclose(found.covariance(v), expected, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("name", ["three facets", "crossed and nested"])
def test_bases_of_spaces_are_compared_up_to_a_number_of_products(name):
    """As many as the ranks of both times the columns: of terms in neither, and of the tail."""
    stats = model_of(name, "x + C(g)").statistics.cross_products
    whole = Henderson3().reductions(stats)
    n_pairs = 0
    for a, b in permutations(whole._spaces, 2):
        first, second = whole._spaces[a], whole._spaces[b]
        left = [t for t in range(stats.n_terms) if t not in a | b]
        if first.lead == second.lead or not left:
            continue
        n_pairs += 1
        if n_pairs % 5 != 1:  # every fifth pair
            continue
        columns = sum(stats.sizes[t] for t in left) + first.tail_rank
        needed = first.rank * second.rank * columns
        limits = (ReductionLimits(most_products=f * needed) for f in (1.01, 0.99))
        enough, few = (Henderson3().reductions(stats, limit) for limit in limits)
        traces, alone = enough._products(a, b, left)
        expected = whole._products(a, b, left)
        np.testing.assert_array_equal([*traces, alone], [*expected[0], expected[1]])
        with pytest.raises(TooLargeError):
            few._products(a, b, left)
    assert n_pairs

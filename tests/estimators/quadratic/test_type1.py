"""Type I against projectors written out, its algebra, and what it refuses."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.dense_quadratic import (
    FIXED,
    NAMES,
    DenseReductions,
    assert_covariance,
    generalised_least_squares,
    model_of,
    two_parts,
)
from tests.helpers.designs import UNBALANCED, drop_rows, simulate, unbalanced
from tests.helpers.examples import examples
from vcomp.estimators.quadratic.anova import anova_table
from vcomp.estimators.quadratic.closed_form import Type1, estimate_from
from vcomp.estimators.quadratic.reductions import ReductionLimits


def sequential(model):
    return DenseReductions(model, [range(t) for t in range(len(model.statistics.rows.codes))])


@pytest.mark.parametrize("fixed", FIXED)
@pytest.mark.parametrize("name", NAMES)
def test_against_projectors(name, fixed):
    model = model_of(name, fixed)
    dense, res = sequential(model), model.fit("type1")
    table = Type1().table(model.statistics, model.component_names)
    np.testing.assert_array_equal(table.df, dense.df)
    total = dense.sum_sq.sum()
    np.testing.assert_allclose(table.sum_sq, dense.sum_sq, rtol=1e-9, atol=1e-11 * total)
    np.testing.assert_allclose(table.expected, dense.expected, atol=1e-9)
    scale = np.abs(dense.estimates).max()
    np.testing.assert_allclose(res.vcomp, dense.estimates, rtol=1e-9, atol=1e-9 * scale)
    assert_covariance(res.cov_vcomp(), dense.covariance, 1e-9)
    beta, cov_beta = generalised_least_squares(model, dense.estimates)
    np.testing.assert_allclose(res.fe_params, beta, rtol=1e-6)
    np.testing.assert_allclose(res.bse_fe, np.sqrt(np.diagonal(cov_beta)), rtol=1e-6)
    assert res.converged
    assert np.isnan(res.llf)


def test_disconnected_data_have_fewer_degrees_of_freedom():
    model = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b)", two_parts())
    dense, res = sequential(model), model.fit("type1")
    table = Type1().table(model.statistics, model.component_names)
    # 9 + 8 levels in two parts: a has 8, and b one less than its 7 contrasts.
    assert table.df.tolist() == [8.0, 6.0, model.nobs - 15.0]
    np.testing.assert_allclose(res.vcomp, dense.estimates, rtol=1e-11)
    assert_covariance(res.cov_vcomp(), dense.covariance, 1e-11)


def test_a_covariate_of_groups_takes_a_degree_of_freedom():
    """A covariate that is constant within the levels of a facet lies in that facet's space."""
    formula, data = unbalanced("crossed, replicated", seed=2)
    of_a = np.random.default_rng(1).normal(size=data["a"].nunique())
    data["x"] = of_a[data["a"]]
    model = vcomp.VarianceComponentsModel(formula.replace("~", "~ x +"), data)
    dense, res = sequential(model), model.fit("type1")
    table = Type1().table(model.statistics, model.component_names)
    assert table.df[0] == data["a"].nunique() - 2
    np.testing.assert_array_equal(table.df, dense.df)
    np.testing.assert_allclose(res.vcomp, dense.estimates, rtol=1e-10)
    assert_covariance(res.cov_vcomp(), dense.covariance, 1e-10)


@given(case=UNBALANCED, order=st.randoms(use_true_random=False))
@settings(max_examples=examples(25), deadline=None)
def test_sums_of_squares_add_up_in_any_order_of_rows(case, order):
    """Sequential sums of squares split what the fixed part leaves, whatever the design."""
    formula, data = unbalanced(*case, share=0.1)
    model = vcomp.VarianceComponentsModel(formula, data)
    table = Type1().table(model.statistics, model.component_names)
    around_mean = np.square(data["y"] - data["y"].mean()).sum()
    assert table.sum_sq.sum() == pytest.approx(around_mean, rel=1e-12)
    assert table.df.sum() == len(data) - 1
    assert (table.sum_sq >= 0.0).all()
    # The coefficients of a term's own component are positive, those of terms before it zero.
    assert (np.diagonal(table.expected) > 0.0).all()
    np.testing.assert_array_equal(np.tril(table.expected, -1), 0.0)
    rows = list(range(len(data)))
    order.shuffle(rows)
    again = vcomp.VarianceComponentsModel(formula, data.iloc[rows].reset_index(drop=True))
    other = Type1().table(again.statistics, again.component_names)
    np.testing.assert_allclose(other.sum_sq, table.sum_sq, rtol=1e-9, atol=1e-12 * around_mean)


def estimate_within(model, limits):
    """Return the estimate from sums of squares whose matrices have limited sizes."""
    found = Type1().reductions(model.statistics.cross_products, limits)
    return estimate_from("type1", model.statistics, found, model.component_names)


@pytest.mark.parametrize(("name", "fixed"), alternately(NAMES, *FIXED))
def test_expanded_covariance_is_the_same(name, fixed):
    """Large terms are never formed; the inner products are expanded instead."""
    model = model_of(name, fixed)
    expected = model.fit("type1").cov_vcomp()
    found = estimate_within(model, ReductionLimits(dense_below=0))
    assert_covariance(found.covariances["sampling"], expected.to_numpy(), 1e-9)


def test_no_standard_errors_without_memory_for_them():
    model = model_of("crossed")
    expected = model.fit("type1").vcomp
    found = estimate_within(model, ReductionLimits(free_bytes=lambda: 10.0))
    np.testing.assert_array_equal(found.values, expected)
    assert np.isnan(found.covariances["sampling"]).all()
    assert "No standard errors" in found.status


def test_negative_components_are_kept_and_named():
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"a": np.repeat(range(6), 5), "y": rng.normal(size=30)})
    data["y"] -= data.groupby("a")["y"].transform("mean") * 0.99
    res = vcomp.fit("y ~ (1|a)", data, method="type1")
    assert res.vcomp["a"] < 0.0
    assert "σ²(a) is estimated below zero and kept as estimated" in res.status
    assert res.fe_params["Intercept"] == pytest.approx(data["y"].mean(), rel=1e-12)


def test_a_coarser_term_after_a_finer_one_is_named():
    formula, data = unbalanced("nested")
    with pytest.raises(
        vcomp.EstimationError, match=r"term 'a' has no degrees of freedom .* a:b: .*coarser terms"
    ):
        vcomp.fit("y ~ (1|a:b) + (1|a)", data, method="type1")
    assert vcomp.fit(formula, data, method="type1").converged


def test_no_degrees_of_freedom_for_the_residual():
    data = pd.DataFrame(
        {"a": [0, 0, 1, 1, 2], "b": [0, 1, 1, 2, 2], "y": [1.0, 2.0, 4.0, 3.0, 7.0]}
    )
    with pytest.raises(vcomp.EstimationError, match=r"the residual has no degrees of freedom"):
        vcomp.fit("y ~ (1|a) + (1|b)", data, method="type1")
    for seed in range(8):  # the difference is rounding error of either sign
        other = data.assign(y=np.random.default_rng(seed).normal(size=5))
        model = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b)", other)
        table = Type1().table(model.statistics, model.component_names)
        assert table.df.tolist() == [2.0, 2.0, 0.0]
        assert table.sum_sq[-1] == 0.0
        assert np.isnan(table.expected[-1]).all()


def test_constant_response_and_exact_fit():
    _, data = unbalanced("crossed, replicated")
    res = vcomp.fit("y ~ (1|a) + (1|b)", data.assign(y=7.0), method="type1")
    assert (res.vcomp == 0.0).all()
    assert res.fe_params["Intercept"] == 7.0
    assert res.status.startswith("The response is constant")
    res = vcomp.fit("y ~ x + (1|a)", data.assign(x=data["y"], y=2.0 * data["y"]), method="type1")
    assert (res.vcomp == 0.0).all()
    assert res.fe_params["x"] == pytest.approx(2.0)
    assert res.status.startswith("The fixed part fits exactly")


def test_no_residual_variance():
    """Replicates that agree: the residual is zero, and V has no inverse."""
    formula, data = unbalanced("crossed", seed=1)
    twice = pd.concat([data, data], ignore_index=True)
    res = vcomp.fit(formula + " + (1|a:b)", twice, method="type1")
    assert res.vcomp["Residual"] == pytest.approx(0.0, abs=1e-12)
    assert "ordinary least squares" in res.status
    assert res.fe_params["Intercept"] == pytest.approx(twice["y"].mean(), rel=1e-12)
    assert res.bse_fe.isna().all()


def test_million_fold_differences_of_scale():
    """A covariate in other units changes nothing."""
    sizes = {"a": 6, "b": 7}
    data = drop_rows(simulate("y ~ (1|a) + (1|b)", sizes, 2, (), seed=3), 0.1, seed=4)
    data["x"] = np.random.default_rng(0).normal(size=len(data))
    small = vcomp.fit("y ~ x + (1|a) + (1|b)", data, method="type1")
    large = vcomp.fit("y ~ x + (1|a) + (1|b)", data.assign(x=data["x"] * 1e9), method="type1")
    np.testing.assert_allclose(large.vcomp, small.vcomp, rtol=1e-10)


def test_the_table_of_a_result_is_that_of_its_method():
    data = pd.DataFrame(
        {
            "y": [3.1, 4.0, 5.2, 2.7, 6.1, 3.3, 4.8, 5.5, 1.9, 4.4],
            "a": list("ppqqrrpqrr"),
            "b": list("uvuvuvvuuv"),
            "x": [0.1, 1.2, 0.7, 2.0, 1.5, 0.3, 0.9, 1.1, 0.2, 1.7],
        }
    )
    formula = "y ~ x + (1|a) + (1|b)"
    y, sums = data["y"].to_numpy(), []
    columns = [np.ones(10), data["x"].to_numpy()]
    for added in (data[[]], pd.get_dummies(data["a"]), pd.get_dummies(data[["a", "b"]])):
        design = np.column_stack([*columns, added.to_numpy(dtype=float)])
        fitted = design @ np.linalg.lstsq(design, y, rcond=None)[0]
        sums.append(fitted @ fitted)
    table = vcomp.fit(formula, data, method="type1").anova_table()
    np.testing.assert_allclose(table["sum_sq"], [*np.diff(sums), y @ y - sums[-1]], rtol=1e-10)
    adjusted = vcomp.fit(formula, data, method="henderson3").anova_table()
    assert adjusted.loc["b", "sum_sq"] == pytest.approx(table.loc["b", "sum_sq"], rel=1e-12)
    assert adjusted.loc["a", "sum_sq"] != pytest.approx(table.loc["a", "sum_sq"], rel=1e-3)


def test_without_degrees_of_freedom_there_are_no_expected_mean_squares():
    rng = np.random.default_rng(3)
    a, b = rng.permutation(np.arange(60) % 7), rng.integers(0, 5, 60)
    data = pd.DataFrame({"a": a, "b": b, "x": rng.normal(size=60), "y": rng.normal(size=60)})
    data["half"] = a > 3
    model = vcomp.VarianceComponentsModel("y ~ x + (1|half) + (1|a:b) + (1|a)", data)
    cells = len(data[["a", "b"]].drop_duplicates())
    table = Type1().table(model.statistics, model.component_names)
    assert table.df.tolist() == [1.0, cells - 2.0, 0.0, 60.0 - 1.0 - cells]
    assert np.isnan(table.expected[2]).all()
    assert np.isfinite(table.expected[[0, 1, 3]]).all()
    # The cells are as many as the levels less one: none is left for the interaction.
    path = data[:10].assign(a=[0, 0, 0, 0, 1, 1, 1, 1, 2, 2], b=[0, 0, 1, 1, 1, 1, 2, 2, 2, 2])
    model = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b) + (1|a:b)", path)
    for table in (
        anova_table(model.statistics.group_sums, model.component_names),
        Type1().table(model.statistics, model.component_names),
    ):
        assert table.df.tolist() == [2.0, 2.0, 0.0, 5.0]
        assert np.isnan(table.expected[2]).all()
        assert np.isfinite(table.expected[[0, 1, 3]]).all()

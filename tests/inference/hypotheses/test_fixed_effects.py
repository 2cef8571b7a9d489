"""Tests of fixed effects against n × n matrices, complex steps and textbook degrees of freedom."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vcomp
from tests.helpers.dense_likelihood import DenseLikelihood
from tests.helpers.dense_tests import kenward_roger, satterthwaite
from tests.helpers.designs import DESIGNS, unbalanced
from vcomp.inference.hypotheses.clustered_tests import Clustered
from vcomp.inference.hypotheses.fixed_effects import (
    Satterthwaite,
    _joint_degrees,
    _slopes,
    rotated,
)

DDF = ["satterthwaite", "kenward-roger"]


def fitted(name, fixed="x + C(g)", seed=3, method="reml", **options):
    formula, data = unbalanced(name, seed=seed)
    rng = np.random.default_rng(seed)
    data = data.assign(x=rng.normal(size=len(data)) + 5.0, g=rng.integers(0, 3, len(data)))
    data["x"] += data.groupby(next(iter(DESIGNS[name][1]))).ngroup()
    model = vcomp.VarianceComponentsModel(formula.replace("~", f"~ {fixed} +"), data)
    return model.fit(method, **options)


def dense_satterthwaite(res, L):
    dense, v = DenseLikelihood(res.model, reml=res.method == "reml"), res.vcomp.to_numpy()
    return satterthwaite(dense, v, v > 0.0, L)


def dense_kenward_roger(res, L):
    v = res.vcomp.to_numpy()
    return kenward_roger(DenseLikelihood(res.model, reml=True), v, v > 0.0, L)


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("name", ["one way", "crossed", "nested", "crossed and nested"])
def test_satterthwaite_of_coefficients(name, method):
    res = fitted(name, method=method)
    table = res.fixed_effects(alpha=0.1)
    expected = dense_satterthwaite(res, np.eye(len(table)))
    # The optimum is known to 1e-10 standard errors, a third derivative multiplies that.
    np.testing.assert_allclose(table["df"], expected, rtol=1e-7)
    np.testing.assert_array_equal(res.df_fe, table["df"])
    np.testing.assert_allclose(table["t"], res.fe_params / res.bse_fe, rtol=1e-12)
    np.testing.assert_allclose(
        table["p_value"], 2.0 * stats.t.sf(np.abs(table["t"]), table["df"]), rtol=1e-9
    )
    half = stats.t.ppf(0.95, table["df"]) * res.bse_fe
    np.testing.assert_allclose(table["low"], res.fe_params - half, rtol=1e-9)
    np.testing.assert_allclose(table["high"], res.fe_params + half, rtol=1e-9)
    interval = res.conf_int(0.1).iloc[: len(table)]
    np.testing.assert_array_equal(interval[0], table["low"])
    np.testing.assert_array_equal(interval[1], table["high"])


@pytest.mark.parametrize("ddf", ["unbounded", "kenward-roger"])
def test_a_component_at_its_bound_is_not_known(ddf):
    # Two treatments of 5 plots with 4 rows each; plots differ less than their rows make them.
    plot = np.repeat(np.arange(10), 4)
    y = np.tile([1.0, 3.0, 5.0, 7.0], 10) + 0.1 * (plot % 3) + 2.0 * (plot >= 5)
    data = pd.DataFrame({"plot": plot, "treated": plot >= 5, "row": np.arange(40) % 2, "y": y})
    res = vcomp.fit("y ~ treated + row + (1|plot)", data)
    assert res.vcomp["plot"] == 0.0
    df = res.fixed_effects(ddf=ddf)["df"]
    # A treatment of plots has the degrees of freedom of plots, one of rows those of rows: the
    # variance of either is that of one mean square.
    np.testing.assert_allclose(df, [df["Intercept"], 10 - 2, 40 - 10 - 1], rtol=1e-9)
    # lmerTest's take the component as known: least squares.
    np.testing.assert_allclose(res.df_fe, 40 - 3, rtol=1e-9)


def models_by_prompts(seed, prompts, spread):
    """Return scores of two models on 12 items with some prompts, and their mean squares."""
    rng = np.random.default_rng(seed)
    m, i, p = np.indices((2, 12, prompts))
    y = rng.normal(size=m.shape) + 2.0 * (rng.normal(size=12)[i] + rng.normal(size=prompts)[p])
    y = y + rng.normal(size=(2, 12, 1)) + 1.5 * rng.normal(size=(12, prompts))
    y = y + spread * rng.normal(size=(2, 1, prompts))
    data = {"model": m.ravel(), "item": i.ravel(), "prompt": p.ravel(), "y": y.ravel()}
    d = y[0] - y[1]
    of_items, of_prompts = (d.mean(axis=axis) - d.mean() for axis in (1, 0))
    rest = d - d.mean() - of_items[:, None] - of_prompts
    # Halves of squares of differences are those of interactions with the model.
    squares = [prompts * np.square(of_items).sum(), 12 * np.square(of_prompts).sum()]
    df = np.array([11.0, prompts - 1.0, 11.0 * (prompts - 1)])
    return pd.DataFrame(data), 0.5 * np.array([*squares, np.square(rest).sum()]) / df, df


@pytest.mark.parametrize(
    ("seed", "prompts", "spread", "zero"),
    [
        (2, 2, 1.0, False),
        (2, 3, 1.0, False),
        (4, 6, 0.5, False),
        (5, 3, 0.0, True),
        (1, 30, 0.5, False),
    ],
)
def test_degrees_of_freedom_at_upper_limits(seed, prompts, spread, zero):
    """Eq. (11.16) from the analysis of variance."""
    data, (items, of_prompts, rest), df = models_by_prompts(seed, prompts, spread)
    terms = ("item", "prompt", "model:item", "model:prompt", "item:prompt")
    res = vcomp.fit("y ~ C(model) + " + " + ".join(f"(1|{term})" for term in terms), data)
    assert (res.vcomp["model:prompt"] == 0.0) == (of_prompts < rest) == zero
    assert items > rest
    # Parts of the error variance of the difference, in units of 2 / (12 prompts).
    ratio = df / stats.chi2.ppf(0.15, df)
    parts = np.array([items * ratio[0] - rest, of_prompts * ratio[1] - rest, rest * ratio[2]])
    parts = np.maximum(parts, 0.0)
    estimates = np.array([items - rest, max(of_prompts - rest, 0.0), rest])
    variance = res.fixed_effects().loc["C(model)[T.1]", "std_error"] ** 2 * 6 * prompts
    if not zero:
        assert variance == pytest.approx(items + of_prompts - rest, rel=1e-8)
    at_limits = (variance + np.sqrt(np.square(parts - estimates).sum())) ** 2
    expected = at_limits / (parts**2 / df).sum()
    # Mean squares of many degrees of freedom tell enough.
    squares = np.array([items, of_prompts, rest])
    weight = min(1.0, 8.0 * (squares * ratio / df).sum() / (squares @ ratio)) ** 2
    assert (weight == 1.0) == (prompts < 30)
    weight *= min(1.0, 10.0 * (1.0 - squares.max() / squares.sum()))
    at_estimates = variance**2 / (squares**2 / df).sum()
    expected = 1.0 / ((1.0 - weight) / at_estimates + weight / expected)
    found = res.compare_levels("model", ddf="unbounded").table["df"].item()
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("held", [{}, {"g": 0.0}])
def test_satterthwaite_at_a_bound_takes_the_component_as_known(held):
    data = pd.DataFrame({"g": list("aabbccdd"), "x": [1.0, 2.0, 0.5, 3.0, 1.0, 0.0, 2.0, 4.0]})
    data["y"] = [1.0, 3.0, 1.1, 2.8, 0.9, 3.2, 1.2, 3.1]
    res = vcomp.fit("y ~ x + (1|g)", data, hold=held)
    assert res.vcomp["g"] == 0.0
    # What is left is least squares, whose df are those of the residual.
    np.testing.assert_allclose(res.df_fe, 6.0, rtol=1e-10)
    for ddf in ("unbounded", "kenward-roger") if held else ():
        np.testing.assert_allclose(res.fixed_effects(ddf=ddf)["df"], 6.0, rtol=1e-10)


def test_known_components_leave_the_normal_distribution():
    data = pd.DataFrame({"g": list("aabbcc"), "y": [1.0, 2.0, 4.0, 3.0, 5.0, 7.0]})
    res = vcomp.fit("y ~ (1|g)", data, hold={"g": 2.0, "Residual": 1.0})
    assert np.isinf(res.df_fe).all()
    table = res.fixed_effects()
    assert table["p_value"].item() == pytest.approx(2.0 * stats.norm.sf(table["t"].item()))
    assert table["high"].item() == pytest.approx(
        res.fe_params.item() + stats.norm.ppf(0.975) * res.bse_fe.item()
    )
    assert "no component is estimated" in str(res.summary())
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    pd.testing.assert_frame_equal(loaded.fixed_effects(), table)
    np.testing.assert_array_equal(res.fixed_effects(ddf="kenward-roger")["df"], np.inf)


@pytest.mark.parametrize("name", ["one way", "crossed", "nested", "crossed and nested"])
def test_kenward_roger(name):
    res = fitted(name)
    table = res.fixed_effects(ddf="kenward-roger")
    for row, unit in zip(table.itertuples(), np.eye(len(table)), strict=True):
        adjusted, m, scale = dense_kenward_roger(res, unit[None, :])
        assert scale == pytest.approx(1.0, rel=1e-8)
        assert row.df == pytest.approx(m, rel=1e-7)
        assert row.std_error == pytest.approx(np.sqrt(unit @ adjusted @ unit), rel=1e-8)
    L = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1.0, -1.0]])
    L = L[:, [0, 1, 2, 3]]
    adjusted, m, scale = dense_kenward_roger(res, L)
    beta = res.fe_params.to_numpy()
    wald = (L @ beta) @ np.linalg.solve(L @ adjusted @ L.T, L @ beta) / 3.0
    found = res.f_test(L, ddf="kenward-roger")
    assert found.df == pytest.approx((3.0, m), rel=1e-6)
    assert found.statistic == pytest.approx(scale * wald, rel=1e-7)
    assert found.p_value == pytest.approx(stats.f.sf(scale * wald, 3.0, m), rel=1e-5)


@pytest.mark.parametrize("name", ["one way", "crossed and nested"])
def test_several_contrasts_by_their_eigenvectors(name):
    """Fai and Cornelius (1996), as lmerTest's contestMD computes it from rows of unit variance.

    contestMD's degrees of freedom depend on the units of rows: 54.10 of these, and 53.65 if the
    first is times 1e6.
    """
    res = fitted(name)
    phi, beta = res.cov_params().to_numpy()[:4, :4], res.fe_params.to_numpy()
    L = np.array([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]])
    given = L * [[1e6], [1e-6]]
    L /= np.sqrt(np.einsum("ij,jk,ik->i", L, phi, L))[:, None]
    d, P = np.linalg.eigh(L @ phi @ L.T)
    t2 = np.square(P.T @ L @ beta) / d
    nu = dense_satterthwaite(res, P.T @ L)
    total = (nu / (nu - 2.0)).sum()
    found = res.f_test(given)
    assert found.statistic == pytest.approx(t2.mean(), rel=1e-9)
    assert found.df == pytest.approx((2.0, 2.0 * total / (total - 2.0)), rel=1e-6)
    assert found.p_value == pytest.approx(stats.f.sf(found.statistic, *found.df), rel=1e-9)
    # More rows of the same hypothesis say nothing new.
    again = res.f_test(np.vstack([given, L[0] + L[1]]))
    assert (again.statistic, again.df) == (
        pytest.approx(found.statistic, rel=1e-9),
        pytest.approx(found.df, rel=1e-9),
    )


def blocks(seed=0):
    rng = np.random.default_rng(seed)
    data = pd.MultiIndex.from_product([range(6), list("abcd")], names=["block", "kind"]).to_frame(
        False
    )
    data["y"] = rng.normal(size=24) + 2.0 * rng.normal(size=6)[data["block"]]
    data["y"] += data["kind"].map({"a": 0.0, "b": 1.0, "c": 0.5, "d": 2.0})
    return data


@pytest.mark.parametrize("ddf", DDF)
def test_randomised_blocks_are_exact(ddf):
    """The F-test of the treatments is the classical one, with (t − 1)(b − 1) df."""
    data = blocks()
    res = vcomp.fit("y ~ kind + (1|block)", data)
    y = data.pivot_table(index="block", columns="kind", values="y").to_numpy()
    rest = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
    F = 6.0 * np.square(y.mean(0) - y.mean()).sum() / 3.0 / (np.square(rest).sum() / 15.0)
    found = res.f_test(np.eye(4)[1:], ddf=ddf)
    assert found.df == pytest.approx((3.0, 15.0), rel=1e-8)
    assert found.statistic == pytest.approx(F, rel=1e-9)
    table = res.fixed_effects(ddf=ddf)
    np.testing.assert_allclose(table["df"].iloc[1:], 15.0, rtol=1e-8)


@pytest.mark.parametrize("ddf", DDF)
def test_split_plots_are_exact(ddf):
    """Whole plots are compared with whole plots, sub-plots with sub-plots."""
    rng = np.random.default_rng(1)
    data = pd.MultiIndex.from_product(
        [range(4), list("abc"), list("uv")], names=["block", "whole", "sub"]
    ).to_frame(False)
    plot = data.groupby(["block", "whole"]).ngroup()
    data["y"] = rng.normal(size=24) + 2.0 * rng.normal(size=12)[plot]
    data["y"] += 2.0 * rng.normal(size=4)[data["block"]]
    res = vcomp.fit("y ~ C(whole, Sum)*C(sub, Sum) + (1|block) + (1|block:whole)", data)
    assert (res.vcomp > 0.0).all()
    names = list(res.fe_params.index)
    whole = [i for i, n in enumerate(names) if n.startswith("C(whole") and ":" not in n]
    sub = [i for i, n in enumerate(names) if n.startswith("C(sub") and ":" not in n]
    both = [i for i, n in enumerate(names) if ":" in n]
    for rows, df in ((whole, (2.0, 6.0)), (sub, (1.0, 9.0)), (both, (2.0, 9.0))):
        assert res.f_test(np.eye(6)[rows], ddf=ddf).df == pytest.approx(df, rel=1e-7)


@pytest.mark.parametrize("method", ["anova", "type1", "henderson3", "minque"])
def test_closed_forms_have_satterthwaites_df_of_balanced_data(method):
    data = blocks(3)
    res = vcomp.fit("y ~ (1|block) + (1|kind)", data, method=method)
    table = vcomp.fit("y ~ (1|block) + (1|kind)", data, method="anova").anova_table()
    parts = table["mean_sq"] * [1.0, 1.0, -1.0]
    expected = parts.sum() ** 2 / (parts**2 / table["df"]).sum()
    assert (res.vcomp > 0.0).all()
    assert res.df_fe.item() == pytest.approx(expected, rel=1e-8)


def test_engines_agree():
    formula, data = "y ~ kind + (1|block)", blocks(2)
    strata = vcomp.fit(formula, data, engine="strata")
    blocked = vcomp.fit(formula, data, engine="blocked")
    for ddf in DDF:
        pd.testing.assert_frame_equal(
            strata.fixed_effects(ddf=ddf), blocked.fixed_effects(ddf=ddf), rtol=1e-8
        )


def test_scale_and_coding_do_not_matter():
    data = blocks(4)
    one = vcomp.fit("y ~ kind + (1|block)", data)
    other = vcomp.fit("y ~ C(kind, Sum) + (1|block)", data.assign(y=1e4 + 1e3 * data["y"]))
    L = np.eye(4)[1:]
    for ddf in [*DDF, "normal"]:
        here, there = one.f_test(L, ddf=ddf), other.f_test(L, ddf=ddf)
        assert there.statistic == pytest.approx(here.statistic, rel=1e-7)
        assert there.p_value == pytest.approx(here.p_value, rel=1e-6)


def test_contrasts_as_text():
    res = vcomp.fit("y ~ kind + (1|block)", blocks())
    names = list(res.fe_params.index)
    text = f"{names[1]} = {names[2]}, {names[3]} = 2"
    L = np.array([[0.0, 1.0, -1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    found = res.t_test(text)
    np.testing.assert_allclose(found["coef"], L @ res.fe_params - [0.0, 2.0], rtol=1e-12)
    np.testing.assert_allclose(found["df"], 15.0, rtol=1e-8)
    np.testing.assert_allclose(found["std_error"], res.t_test(L)["std_error"], rtol=1e-12)
    assert list(found.index) == [f"{names[1]} - {names[2]}", names[3]]
    outcome = res.f_test(text)
    assert outcome.df[0] == 2.0
    assert str(outcome).startswith(f"{names[1]} - {names[2]} = 0, {names[3]} = 2: F = ")
    # One row: F is the square of t.
    row = res.t_test(L[0])
    assert res.f_test(L[0]).statistic == pytest.approx(row["t"].item() ** 2)
    assert res.f_test(L[0]).p_value == pytest.approx(row["p_value"].item())


@pytest.mark.parametrize(
    ("hypothesis", "message"),
    [
        ([1.0, 2.0], "is not a contrast of the 4 fixed effects"),
        ("weight = 0", "is not a contrast of the 4 fixed effects Intercept, "),
        ([0.0, 0.0, 0.0, 0.0], "row 1 of the contrasts is zero"),
        ([np.nan, 0.0, 0.0, 1.0], "contrasts must be finite numbers"),
    ],
)
def test_what_is_no_contrast(hypothesis, message):
    res = vcomp.fit("y ~ kind + (1|block)", blocks())
    with pytest.raises(vcomp.EstimationError, match=message):
        res.t_test(hypothesis)
    with pytest.raises(vcomp.EstimationError, match=message):
        res.f_test(hypothesis)


def test_contrasts_that_contradict_each_other():
    res = vcomp.fit("y ~ kind + (1|block)", blocks())
    name = res.fe_params.index[1]
    with pytest.raises(vcomp.EstimationError, match="contradict each other"):
        res.f_test(f"{name} = 1, {name} = 2")


def test_models_without_fixed_effects():
    res = vcomp.fit("y ~ 0 + (1|block)", blocks())
    assert res.fixed_effects().empty
    with pytest.raises(vcomp.EstimationError, match="no fixed effects"):
        res.t_test([1.0])


def test_degrees_of_freedom_that_cannot_be_had():
    res = vcomp.fit("y ~ kind + (1|block)", blocks())
    with pytest.raises(vcomp.EstimationError, match="ddf='residual' is not known"):
        res.fixed_effects(ddf="residual")
    with pytest.raises(vcomp.PlanError, match="alpha"):
        res.fixed_effects(alpha=1.5)
    ml = vcomp.fit("y ~ kind + (1|block)", blocks(), method="ml")
    with pytest.raises(vcomp.EstimationError, match="estimated by REML, not by 'ml'"):
        ml.fixed_effects(ddf="kenward-roger")
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    with pytest.raises(vcomp.DataError, match="loaded without its rows"):
        loaded.fixed_effects(ddf="kenward-roger")
    pd.testing.assert_frame_equal(loaded.fixed_effects(), res.fixed_effects(), rtol=1e-12)
    assert loaded.f_test(np.eye(4)[1:]).p_value == pytest.approx(
        res.f_test(np.eye(4)[1:]).p_value, rel=1e-9
    )
    iterative = vcomp.fit("y ~ kind + (1|block)", blocks(), engine="iterative")
    with pytest.raises(vcomp.EstimationError, match=r"engine of this fit \(iterative\)"):
        iterative.fixed_effects(ddf="kenward-roger")


def test_a_constant_response_has_no_degrees_of_freedom():
    with pytest.warns(vcomp.VcompWarning, match="the response is constant"):
        res = vcomp.fit("y ~ (1|block)", blocks().assign(y=3.0))
    assert np.isnan(res.df_fe).all()
    assert np.isnan(res.fixed_effects()["t"]).all()


def test_many_fixed_effects_keep_their_df_in_a_file():
    """Slopes of many columns are left out of a file, and contrasts then say what is missing."""
    rng = np.random.default_rng(0)
    n = 400
    data = pd.DataFrame({"y": rng.normal(size=n), "g": rng.integers(0, 20, n)})
    columns = [f"x{j}" for j in range(110)]
    data = pd.concat([data, pd.DataFrame(rng.normal(size=(n, 110)), columns=columns)], axis=1)
    res = vcomp.fit(f"y ~ {' + '.join(columns)} + (1|g)", data)
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    pd.testing.assert_frame_equal(loaded.fixed_effects(), res.fixed_effects(), rtol=1e-12)
    with pytest.raises(vcomp.DataError, match="loaded without the slopes"):
        loaded.t_test("x1 = x2")
    assert loaded.t_test("x1 = x2", ddf="normal")["df"].item() == np.inf
    with pytest.raises(vcomp.DataError, match="loaded without its rows"):
        loaded.fixed_effects(ddf="kenward-roger")


def test_unknown_variances_have_no_slopes():
    formula, data = unbalanced("crossed", seed=2)
    res = vcomp.fit(formula, data)
    sums, estimate = res.model.statistics, replace(res._record.estimate, fixed_errors=None)
    known = _slopes(sums, estimate)
    assert known.shape == (3, 1, 1)
    unknown = replace(estimate, cov_beta=np.full_like(estimate.cov_beta, np.nan))
    assert _slopes(sums, unknown) is None
    nothing = replace(estimate, values=estimate.values * [1.0, 1.0, 0.0])
    assert _slopes(sums, nothing) is None


def test_a_variance_of_zero_has_no_degrees_of_freedom():
    tests = Satterthwaite(np.zeros((1, 1)), np.ones((1, 1, 1)), np.eye(1), np.zeros(1, dtype=bool))
    assert np.isnan(tests.degrees(np.eye(1))).all()
    assert np.isnan(tests.degrees_of_each()).all()
    # Equal levels have a robust variance of 0, which says nothing of its degrees of freedom.
    square, parts = np.zeros((1, 1)), np.zeros((2, 1, 1))
    clustered = Clustered(square, square, parts, parts, np.array([5.0, 9.0]))
    assert clustered.degrees(np.eye(1)).tolist() == [5.0]


def test_known_components_do_not_count_in_degrees_of_freedom():
    """ν = 2Φ² / g'Cg over the components that are estimated: Satterthwaite (1946)."""
    q, g, known = 0.7, np.array([0.2, 0.5, 0.3]), np.array([False, True, False])
    C = np.array([[2.0, 0.1, 0.3], [0.1, 5.0, 0.2], [0.3, 0.2, 1.0]])
    free = [0, 2]
    expected = pytest.approx(2.0 * q**2 / (g[free] @ C[np.ix_(free, free)] @ g[free]), rel=1e-14)
    by_matrices = Satterthwaite(np.array([[q]]), g[:, None, None], C, known)
    assert by_matrices.degrees(np.eye(1)).item() == expected
    assert by_matrices.degrees_of_each().item() == expected
    solved = SimpleNamespace(
        diagonal=lambda: np.array([q]), slopes_of_each=lambda: g[:, None]
    )  # by solves of each column
    assert Satterthwaite(solved, None, C, known).degrees_of_each().item() == expected


@pytest.mark.parametrize(
    ("df", "joint"),
    [
        ([6.0, 6.0, 6.0], 6.0), ([7.0], 7.0), ([2.0, 30.0], 2.0), ([0.5, 8.0], 2.0),
        ([9.0, np.inf], np.inf), ([9.0, np.nan, np.inf], np.nan), ([1.5, 1.5], 1.5),
    ],
)  # fmt: skip
def test_degrees_of_freedom_of_a_mean_of_squared_t(df, joint):
    np.testing.assert_equal(_joint_degrees(np.array(df)), joint)


@pytest.mark.parametrize("df", [[2.2, 9.0], [3.0, 3.5, 40.0], [5.0, 12.0, 6.0, 1e4]])
def test_the_mean_of_squared_t_has_the_expectation_of_f(df):
    """Fai and Cornelius (1996): of F(q, ν) it is ν/(ν − 2), of t² each df/(df − 2)."""
    found = _joint_degrees(np.array(df))
    expectation = np.mean([stats.t(d).var() for d in df])
    assert stats.f(len(df), found).mean() == pytest.approx(expectation, rel=1e-12)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_joint_tests_are_of_the_independent_rows(unit):
    """In any unit of the response: F is the mean of (Lβ)'(LCL')⁻(Lβ) over the rank of LCL'."""
    rng = np.random.default_rng(8)
    root = rng.normal(size=(4, 6))
    C, L = unit**2 * root @ root.T, rng.normal(size=(2, 4))
    beta = unit * rng.normal(size=4)
    L = np.vstack([L, L.sum(axis=0)])
    found = rotated(L, L @ beta, C, lambda rows: np.full(len(rows), 9.0), is_term=False)
    inverse = np.linalg.pinv(L @ C @ L.T, rcond=1e-9, hermitian=True)
    expected = beta @ L.T @ inverse @ L @ beta / 2.0
    assert found.df == (2.0, 9.0)
    assert found.statistic == pytest.approx(expected, rel=1e-8)
    assert found.p_value == pytest.approx(stats.f.sf(expected, 2, 9), rel=1e-8)
    nothing = rotated(L, L @ beta, 0.0 * C, lambda rows: np.full(len(rows), 9.0), is_term=False)
    np.testing.assert_equal(
        (nothing.statistic, nothing.df[0], nothing.p_value), (np.nan, 0.0, np.nan)
    )


def test_kenward_and_roger_need_a_covariance_of_the_components():
    """Where a fit has not converged, an inverse of the expected information says nothing."""
    data = pd.DataFrame(
        {
            "a": [6, 1, 3, 6, 2, 0, 6, 1, 5],
            "b": [4, 5, 5, 2, 6, 0, 6, 2, 3],
            "c": [1, 1, 1, 1, 0, 0, 1, 1, 0],
            "y": [1.24, 0.63, 2.33, 1.16, -3.43, -0.57, -2.22, -0.06, 1.99],
        }
    )
    with pytest.warns(vcomp.VcompWarning):
        res = vcomp.fit("y ~ (1|a) + (1|b) + (1|c)", data)
    assert not res.converged
    assert res.bse_vcomp.isna().all()
    table = res.fixed_effects(ddf="kenward-roger")
    assert table.drop(columns="coef").isna().all(axis=None)
    found = res.f_test("Intercept = 0", ddf="kenward-roger")
    assert np.isnan([found.statistic, found.df[1], found.p_value]).all()
    assert "needs a covariance matrix of the components" in found.notes[0]
    assert np.isfinite(res.fixed_effects(ddf="normal")["std_error"]).all()
    for notes in (found.notes, res.compare_levels("a").notes):
        assert "The fit did not converge" in notes[-1]


def test_kenward_and_roger_need_a_residual_that_does_not_go_to_zero():
    """The contrast x had a standard error of 0.0002 for scores with steps of 0.01.

    The climb is cut off after 8 steps: where it would end depends on rounding.
    """
    data = pd.DataFrame(
        {
            "h": [1, 1, 1, 1, 3, 0],
            "g": [2, 0, 0, 1, 2, 2],
            "x": [0.95, -1.51, 0.39, 0.11, 0.19, -0.53],
            "y": [0.69, -1.58, 0.43, -0.34, 1.01, -1.41],
        }
    )
    with pytest.warns(vcomp.VcompWarning, match="the model is saturated"):
        res = vcomp.fit("y ~ x + (1|h) + (1|g)", data, max_iter=8)
    table = res.fixed_effects(ddf="kenward-roger")
    assert table.drop(columns="coef").isna().all(axis=None)

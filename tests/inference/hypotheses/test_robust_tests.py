"""Tests that assume neither normal effects nor the model's variances, against dense formulas."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats as distributions

import vcomp
from tests.inference.intervals.test_robust import levels_of
from vcomp.inference.hypotheses.clustered_tests import Clustered
from vcomp.inference.hypotheses.fixed_effects import Satterthwaite
from vcomp.inference.intervals import influences
from vcomp.inference.intervals.component_squares import robust_mean_squares
from vcomp.inference.quantities import LevelVariances
from vcomp.numerics import check_memory

DESIGNS = {
    "s x t": ("y ~ x + (1|s) + (1|t)", {"s": 8, "t": 9}, 0.0),
    "intercept": ("y ~ (1|s) + (1|t)", {"s": 8, "t": 9}, 0.0),
    "holes": ("y ~ x + (1|s) + (1|t)", {"s": 8, "t": 9}, 0.2),
    "p x i x a": ("y ~ x + (1|p) + (1|i) + (1|a) + (1|p:i)", {"p": 7, "i": 6, "a": 6}, 0.1),
    "p x (i:h)": ("y ~ x + (1|p) + (1|h/i)", {"p": 7, "h": 6, "i": 3}, 0.1),
    "one-way": ("y ~ x + (1|s)", {"s": 12, "k": 4}, 0.2),
}


def frame_of(name, seed=0):
    _, sizes, missing = DESIGNS[name]
    rng = np.random.default_rng(seed)
    grid = np.meshgrid(*(np.arange(n) for n in sizes.values()), indexing="ij")
    frame = pd.DataFrame({f: g.ravel() for f, g in zip(sizes, grid, strict=True)})
    frame["x"] = rng.normal(size=len(frame)) + rng.normal(size=40)[frame.iloc[:, 0]]
    frame["y"] = 3.0 + rng.exponential(size=len(frame)) * (1.0 + frame.x**2)
    for facet in sizes:
        frame["y"] += rng.exponential(size=sizes[facet])[frame[facet]]
    if "h" in frame:
        frame["i"] += 3 * frame["h"]
    return frame[rng.random(len(frame)) >= missing].reset_index(drop=True)


def dense(res, frame):
    """Return X, V, and for each pair of rows the facets of the terms whose levels they share."""
    names = [n for n in res.vcomp.index if n != "Residual"]
    V = res.vcomp["Residual"] * np.eye(len(frame))
    for name in names:
        facets = name.split(":")
        codes = frame.groupby(facets).ngroup().to_numpy()
        V += res.vcomp[name] * (codes[:, None] == codes[None, :])
    facets = list(dict.fromkeys(f for n in names for f in n.split(":")))
    share = np.stack([frame[f].to_numpy()[:, None] == frame[f].to_numpy() for f in facets])
    columns = [np.ones(len(frame))] + ([frame.x] if "x" in res.fe_params else [])
    return np.column_stack(columns), V, share


def by_pairs(res, frame, products):
    """Return the sum over pairs of rows that share a level of w_i w_j' times products."""
    X, V, share = dense(res, frame)
    W = np.linalg.solve(V, X)
    phi = np.linalg.inv(X.T @ W)
    pairs = share.any(axis=0) | np.eye(len(frame), dtype=bool)
    return phi @ W.T @ np.where(pairs, products(X, V, phi), 0.0) @ W @ phi


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
@pytest.mark.parametrize("name", DESIGNS)
def test_variances_of_fixed_effects_are_sums_over_pairs_of_rows(name):
    frame = frame_of(name)
    res = vcomp.fit(DESIGNS[name][0], frame)
    e = frame.y.to_numpy() - dense(res, frame)[0] @ res.fe_params.to_numpy()
    found = res._record.fixed_levels().shared.sum(axis=0)
    expected = by_pairs(res, frame, lambda X, V, phi: np.outer(e, e) + X @ phi @ X.T)
    if name == "intercept":
        # What residuals lack, X W X', has the covariance W of the estimates itself, but in single
        # rows, which are in the sums of both facets, that of the model.
        rows = np.eye(len(frame))
        known = by_pairs(res, frame, lambda X, V, phi: np.outer(e, e) - rows * (X @ phi @ X.T))
        expected = known / (1.0 - by_pairs(res, frame, lambda X, V, phi: X @ X.T + rows))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())
    # Under the model the residuals have the covariance V − XΦX', and the sum is Φ.
    X, V, _ = dense(res, frame)
    model = by_pairs(res, frame, lambda X, V, phi: V - X @ phi @ X.T + X @ phi @ X.T)
    np.testing.assert_allclose(model, np.linalg.inv(X.T @ np.linalg.solve(V, X)), rtol=1e-8)
    np.testing.assert_allclose(model, res._record.estimate.cov_beta, rtol=1e-5)
    if name != "intercept":
        # With covariates, variances are at least 0.3 of the model's, in all directions.
        half = np.linalg.cholesky(model)
        relative = np.linalg.solve(half, np.linalg.solve(half, expected).T)
        values, vectors = np.linalg.eigh(0.5 * (relative + relative.T))
        root = half @ vectors * np.sqrt(np.maximum(values, 0.3))
        expected = root @ root.T
    table = res.fixed_effects(cov_type="robust")
    np.testing.assert_allclose(table.std_error, np.sqrt(np.diag(expected)), rtol=1e-6)


def test_of_one_sample_they_are_those_of_the_mean_of_the_levels():
    """One-way balanced data: s²/n of the means, with n − 1 degrees of freedom."""
    frame = pd.DataFrame({"s": np.repeat(range(12), 4)})
    rng = np.random.default_rng(0)
    frame["y"] = rng.exponential(size=12)[frame.s] + rng.normal(size=48)
    res = vcomp.fit("y ~ (1|s)", frame)
    means = frame.groupby("s").y.mean()
    row = res.fixed_effects(cov_type="robust").iloc[0]
    assert row.std_error == pytest.approx(means.std(ddof=1) / np.sqrt(12.0), rel=1e-7)
    assert row.df == pytest.approx(11.0, rel=1e-9)
    reach = distributions.t.ppf(0.975, row.df) * row.std_error
    assert row.high - row.coef == pytest.approx(reach, rel=1e-9)
    anova = vcomp.fit("y ~ (1|s)", frame, method="anova").fixed_effects(cov_type="robust")
    assert anova.std_error.iloc[0] == pytest.approx(row.std_error, rel=1e-6)


def test_interactions_without_a_term_count():
    """A treatment whose effect differs by topic, which the model ignores."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame([(s, t) for s in range(20) for t in range(30)], columns=["s", "t"])
    frame["x"] = frame.s % 2
    frame["y"] = rng.normal(size=600) + 2.0 * frame.x * rng.normal(size=30)[frame.t]
    res = vcomp.fit("y ~ x + (1|s) + (1|t)", frame)
    model, robust = (res.fixed_effects(cov_type=c).loc["x"] for c in ("model", "robust"))
    assert model.std_error < 0.15
    assert robust.std_error == pytest.approx(2.0 / np.sqrt(30.0), rel=0.3)
    assert 19.0 <= robust.df <= 29.0
    joint = res.f_test("x = 0", cov_type="robust")
    assert joint.statistic == pytest.approx(robust.t**2, rel=1e-9)
    assert joint.p_value == pytest.approx(robust.p_value, rel=1e-9)
    one = res.t_test("x", cov_type="robust").iloc[0]
    assert one.std_error == pytest.approx(robust.std_error, rel=1e-12)
    normal = res.t_test("x", ddf="normal", cov_type="robust").iloc[0]
    assert np.isinf(normal.df)
    assert normal.std_error == one.std_error


def test_of_facets_with_few_levels_the_model_is_used():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame([(p, a) for p in range(30) for a in range(3)], columns=["p", "a"])
    frame["y"] = rng.normal(size=90) + rng.normal(size=30)[frame.p] + np.array([-1, 0, 1])[frame.a]
    res = vcomp.fit("y ~ (1|p) + (1|a)", frame)
    found = res.f_test("Intercept = 0", cov_type="robust")
    assert found.notes == (
        "Facets with few levels, in which rows are correlated as in the model: a (3).",
    )
    row = res.fixed_effects(cov_type="robust").iloc[0]
    assert row.std_error > np.sqrt(res.vcomp["a"] / 3.0)
    assert row.std_error == pytest.approx(res.fixed_effects().std_error.iloc[0], rel=0.2)


def test_parts_of_facets_with_few_levels_are_those_of_the_model():
    p, a = frozenset("p"), frozenset("a")
    levels = LevelVariances(
        information=np.array([[2.0]]),
        sets=(p, a, p | a),
        sizes=np.array([30.0, 3.0, 90.0]),
        shared=np.array([[[0.5]], [[9.0]], [[0.25]]]),
        few={"a": 3},
    )
    slopes = np.array([1.0 / 30.0, 1.0 / 3.0, 1.0 / 90.0])[:, None, None]
    # The component of a is known with a variance of 0.18 = 2 · 0.6²/4, of 4 degrees of freedom.
    model = Satterthwaite(
        np.array([[0.5]]), slopes, np.diag([0.3, 0.18, 0.1]), np.zeros(3, dtype=bool)
    )
    found = Clustered.of(levels, (p, a, p | a), np.array([1.5, 0.6, 1.0]), model)
    assert found.parts.ravel().tolist() == pytest.approx([0.75], rel=1e-15)
    assert found.df.tolist() == [29.0]
    assert found.cov_beta.item() == pytest.approx(0.95, rel=1e-14)
    tested = found.test(np.ones((1, 1)), np.array([1.0]))
    assert tested.std_error[0] == pytest.approx(np.sqrt(0.95), rel=1e-14)
    assert tested.df[0] == pytest.approx(0.95**2 / (0.75**2 / 29.0 + 0.2**2 / 4.0), rel=1e-14)
    assert np.isinf(found.as_known().degrees(np.ones((1, 1)))).all()
    with pytest.raises(vcomp.EstimationError, match="facet 'a' has too few levels"):
        Clustered.of(levels, (p, a, p | a), np.array([1.5, 0.6, 1.0]), None)


@pytest.mark.parametrize("name", ["s x t", "holes"])
def test_streamed_stored_and_rescaled(name, tmp_path):
    frame, formula = frame_of(name), DESIGNS[name][0]
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False)
    res = vcomp.fit(formula, path)
    expected = res.fixed_effects(cov_type="robust")
    streamed = vcomp.fit(formula, path, stream=True).fixed_effects(cov_type="robust")
    pd.testing.assert_frame_equal(streamed, expected, rtol=1e-6)
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    pd.testing.assert_frame_equal(
        loaded.fixed_effects(cov_type="robust"), expected, check_exact=True
    )
    other = frame.assign(y=100.0 * frame.y - 7.0, x=frame.x + 1000.0)
    again = vcomp.fit(formula, other).fixed_effects(cov_type="robust").loc["x"]
    np.testing.assert_allclose(again[["t", "df"]], expected.loc["x", ["t", "df"]], rtol=1e-5)


def _of_models(rng, shape, share):
    """Return scores of models of unequal errors, of which some are missing."""
    spread = np.linspace(0.4, 1.6, shape[1])
    y = rng.normal(size=(shape[0], 1)) + spread * rng.normal(size=shape)
    item, model = np.nonzero(rng.random(shape) < share)
    return pd.DataFrame({"item": item, "model": model, "y": y[item, model]})


def _pairs_of(res):
    return res.marginal_means("model", test="t", cov_type="robust").comparisons[()].table


def test_degrees_of_freedom_follow_the_levels_that_a_pair_shares():
    """Satterthwaite's of a sum over items, by the parts that these have in the variance."""
    frame = _of_models(np.random.default_rng(3), (40, 5), 0.8)
    frame = frame[(frame["model"] != 4) | (frame["item"] < 9)].reset_index(drop=True)
    res = vcomp.fit("y ~ C(model) + (1|item)", frame)
    X = (frame["model"].to_numpy()[:, None] == np.arange(5)).astype(float)
    same = frame["item"].to_numpy()[:, None] == frame["item"].to_numpy()
    V = res.vcomp["item"] * same + res.vcomp["Residual"] * np.eye(len(frame))
    W = np.linalg.solve(V, X)
    weights = W @ np.linalg.inv(X.T @ W)  # of the scores in the means
    for row in _pairs_of(res).itertuples():
        w = weights[:, row.first] - weights[:, row.second]
        parts = []
        for item in frame["item"].unique():
            own = (frame["item"] == item).to_numpy()
            parts.append(w[own] @ V[np.ix_(own, own)] @ w[own])
        parts = np.array(parts)
        assert row.df == pytest.approx(parts.sum() ** 2 / (parts**2).sum() - 1.0, rel=1e-4)
        assert (row.df < 10.0) == (4 in (row.first, row.second))


def test_pairs_that_share_all_levels_have_those_of_the_paired_t_test():
    frame = _of_models(np.random.default_rng(3), (40, 4), 1.1)
    found = _pairs_of(vcomp.fit("y ~ C(model) + (1|item)", frame))
    np.testing.assert_allclose(found["df"], 39.0, rtol=1e-9)


@pytest.mark.slow
def test_of_few_shared_levels_few_families_of_pairs_reject():
    """Of 200 data sets with equal means; by the number of all items less 1 it were 7 to 12 %."""
    rng, n_false = np.random.default_rng(1), 0
    for _ in range(200):
        found = _pairs_of(vcomp.fit("y ~ C(model) + (1|item)", _of_models(rng, (40, 12), 0.3)))
        n_false += bool(found["significant"].any())
    assert n_false / 200 < 0.05 + 2.0 * np.sqrt(0.05 * 0.95 / 200)


def test_what_is_refused():
    frame = frame_of("s x t")
    res = vcomp.fit(DESIGNS["s x t"][0], frame)
    with pytest.raises(
        vcomp.EstimationError, match=r"cov_type='cluster' is not known; .*'robust'"
    ):
        res.fixed_effects(cov_type="cluster")
    with pytest.raises(vcomp.EstimationError, match="'kenward-roger' corrects the covariance"):
        res.fixed_effects(ddf="kenward-roger", cov_type="robust")
    nothing = vcomp.fit("y ~ 0 + (1|s) + (1|t)", frame)
    with pytest.raises(vcomp.EstimationError, match="no fixed effects"):
        nothing.fixed_effects(cov_type="robust")


def test_contributions_that_do_not_fit_into_memory_are_refused(monkeypatch):
    frame = frame_of("s x t")
    limited = partial(check_memory, free_bytes=lambda: 20_000.0)
    monkeypatch.setattr(influences, "check_memory", limited)
    res = vcomp.fit("y ~ x + (1|s) + (1|t)", frame)
    # 72 rows and 8 + 9 levels of the facets, 2 coefficients.
    needed = 8.0 * 2.0 * (8.0 * 72.0 + 3.0 * 17.0 * 3.0)
    assert needed < 0.8 * 20_000.0
    res.fixed_effects(cov_type="robust")
    limited = partial(check_memory, free_bytes=lambda: 1.2 * needed)
    monkeypatch.setattr(influences, "check_memory", limited)
    said = "contributions of 72 rows to 2 coefficients need .* are free; use cov_type='model'"
    with pytest.raises(vcomp.EstimationError, match=said):
        vcomp.fit("y ~ x + (1|s) + (1|t)", frame).fixed_effects(cov_type="robust")


# Components --------------------------------------------------------------------------------------


def crossed(n_s, n_t, seed, heteroscedastic=False):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame([(s, t) for s in range(n_s) for t in range(n_t)], columns=["s", "t"])
    size = np.exp(rng.normal(size=n_s))[frame.s] if heteroscedastic else 1.0
    frame["y"] = rng.normal(size=len(frame)) * size + rng.normal(size=n_t)[frame.t]
    return frame


@pytest.mark.parametrize("formula", ["y ~ (1|s) + (1|t)", "y ~ (1|s) + (1|t) + (1|s:t)"])
def test_the_robust_ratio_is_that_of_the_analysis_of_variance(formula):
    frame = pd.concat([crossed(20, 25, 3), crossed(20, 25, 3).assign(y=lambda d: d.y + 0.1 * d.s)])
    res = vcomp.fit(formula, frame)
    exact, robust = (res.test("s", t) for t in ("f", "robust"))
    assert robust.statistic == pytest.approx(exact.statistic, rel=1e-6)
    assert not robust.exact
    assert robust.df[0] < 40.0


def test_degrees_of_freedom_of_the_robust_ratio():
    """2/ν of both, with the upper ν below, times 1 − 2 Cov/(Var + Var), for correlation (11.9)."""
    rng = np.random.default_rng(3)
    a, b = (codes.ravel() for codes in np.indices((12, 5, 3))[:2])
    y = rng.exponential(size=12)[a] + rng.exponential(size=(12, 5))[a, b] + rng.normal(size=180)
    res = vcomp.fit("y ~ (1|a/b)", {"y": y, "a": a, "b": b})
    found = res.test("a", "robust")
    squares = robust_mean_squares(replace(res._record.components, levels=levels_of(res)))
    own, rest = list(squares.places).index(0), list(squares.places).index(1)
    r = squares.correlation[own, rest]
    top, bottom = 2.0 / squares.df[own], 2.0 / squares.df_upper[rest]
    factor = max(1.0 - 2.0 * r * np.sqrt(top * bottom) / (top + bottom), 0.1)
    assert found.df == pytest.approx((2.0 / (factor * top), 2.0 / (factor * bottom)), rel=1e-9)
    assert squares.df_upper[rest] != pytest.approx(squares.df[rest], rel=1e-3)


def test_its_p_value_is_where_the_robust_interval_reaches_zero():
    """With uncorrelated mean squares; small correlations change it little."""
    res = vcomp.fit("y ~ (1|s) + (1|t)", crossed(20, 25, 3).assign(y=lambda d: d.y + 0.03 * d.s))
    p = res.test("s", "robust").p_value
    assert 1e-4 < p < 0.2
    ratio = "s/Residual"
    assert res.quantity(ratio, alpha=2.0 * p * 1.5, interval="robust").low > 0.0
    assert res.quantity(ratio, alpha=2.0 * p / 1.5, interval="robust").low == 0.0


def test_variances_that_differ_do_not_reject():
    """Without an effect of s, F rejects in 16 %, its robust variant in 6 % of 400 data sets."""
    found = []
    for seed in range(50):
        res = vcomp.fit("y ~ (1|s) + (1|t)", crossed(20, 25, seed, heteroscedastic=True))
        found.append([res.test("s", t).p_value for t in ("f", "robust")])
    by_f, robust = (np.array(found) < 0.05).mean(axis=0)
    assert robust <= 0.12  # 99 % of 50 data sets reject at most as often at the level of 5 %
    assert by_f >= robust + 0.05


def test_few_levels_are_named():
    res = vcomp.fit("y ~ (1|s) + (1|t)", crossed(20, 4, 3))
    found = res.test("s", "robust")
    assert found.notes[1] == (
        "Facets with few levels, whose effects are treated as normal: t (4)."
    )


def test_of_stored_results():
    res = vcomp.fit("y ~ (1|s) + (1|t)", crossed(8, 9, 3))
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    assert loaded.test("s", "robust").p_value == res.test("s", "robust").p_value
    assert "normal effects; test='robust'" in str(res.test("s", "f"))

"""Influence of levels: estimates without each of them are those of fits of the other rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vcomp
from tests.helpers.cases import alternately
from tests.model.test_slopes import DATA as SLOPES


def _crossed(seed=3, holes=True):
    rng = np.random.default_rng(seed)
    a, b, _ = np.indices((7, 9, 2)).reshape(3, -1)
    x = rng.normal(size=a.size)
    y = 2.0 + 0.3 * x + rng.normal(size=7)[a] + rng.normal(size=9)[b] + rng.normal(size=a.size)
    data = pd.DataFrame({"a": a, "b": b, "x": x, "y": y, "c": np.where(a % 2, "u", "v")})
    return data[rng.random(a.size) < 0.8] if holes else data


CASES = [
    ("y ~ x + (1|a) + (1|b)", "reml", "a", True),
    ("y ~ x + (1|a) + (1|b)", "ml", "b", True),
    ("y ~ c*x + (1|a*b)", "reml", "b", False),
    ("y ~ (1|a) + (1|b)", "anova", "a", True),
    ("y ~ 0 + x + (1|a/b)", "henderson3", "b", True),
    ("y ~ x + (x|g)", "reml", "g", None),
    ("y ~ x + (x||g)", "ml", "g", None),
]


@pytest.mark.filterwarnings("ignore::vcomp.VcompWarning")
@pytest.mark.parametrize(("formula", "method", "facet", "holes"), CASES)
def test_estimates_are_those_of_fits_without_the_level(formula, method, facet, holes):
    data = SLOPES if holes is None else _crossed(holes=holes)
    res = vcomp.fit(formula, data, method=method)
    found = res.influence(facet)
    names = data[facet].astype(str)
    if formula.endswith("(1|a/b)"):
        names = data["a"].astype(str) + ":" + names
    assert set(found.levels) == set(names)
    cov = res.cov_params().loc[res.fe_params.index, res.fe_params.index].to_numpy()
    for level in found.levels[:2]:
        other = vcomp.fit(formula, data[names != level], method=method)
        scale = np.abs(other.vcomp).max()
        # Ends of climbs are within 1e-8 standard errors of the maximum.
        np.testing.assert_allclose(found.components.loc[level], other.vcomp, atol=1e-7 * scale)
        np.testing.assert_allclose(
            found.fixed_effects.loc[level], other.fe_params, rtol=1e-7, atol=1e-9
        )
        change = other.fe_params - res.fe_params
        np.testing.assert_allclose(found.dfbeta.loc[level], change, atol=1e-8)
        distance = change @ np.linalg.solve(cov, change) / change.size
        assert found.cooks_distance[level] == pytest.approx(distance, rel=1e-6, abs=1e-12)
        known = res.vcomp != 0.0
        expected = (other.vcomp / res.vcomp - 1.0)[known]
        shown = found.relative_changes.loc[level][known]
        np.testing.assert_allclose(shown, expected, rtol=1e-5, atol=1e-6)
        assert found.table.loc[level, "scores"] == (names == level).sum()


def test_a_wrong_level_has_the_largest_influence():
    data = _crossed()
    wrong = data.assign(y=data["y"] + 6.0 * (data["b"] == 4))
    found = vcomp.fit("y ~ x + (1|a) + (1|b)", wrong).influence("b")
    assert found.cooks_distance.idxmax() == "4"
    row = found.table.loc["4"]
    assert row["component"] == "b"
    assert row["largest_change"] < -0.5
    text = str(found)
    assert text.splitlines()[4].startswith("4 ")
    assert "Cook's distance is above 4/9 = 0.44 without 4." in text


def test_covariances_are_not_compared_with_variances():
    found = vcomp.fit("y ~ x + (x|g)", SLOPES).influence("g")
    assert found.covariances == ("g[(Intercept),x]",)
    assert set(found.table["component"]) <= {"g", "g[x]", "Residual"}
    assert list(found.relative_changes) == list(found.components)


def test_a_level_that_the_fixed_part_needs_has_no_estimates():
    data = _crossed().assign(
        c=lambda d: np.where(d["a"] == 3, "u", np.where(d["a"] < 3, "v", "w"))
    )
    res = vcomp.fit("y ~ c + (1|a) + (1|b)", data)
    words = r"without a 3 .* do not determine the fixed effects .*c\[T.w\]: its row is nan"
    with pytest.warns(vcomp.VcompWarning, match=words):
        found = res.influence("a")
    missing = found.table["converged"].eq(False)
    assert list(found.table.index[missing]) == ["3"]
    assert found.components.loc["3"].isna().all()
    assert found.components.drop("3").notna().all(axis=None)
    assert "There are no estimates without 3." in str(found)


def test_a_model_without_a_fixed_part_has_changes_alone():
    data = _crossed()
    data["y"] -= data["y"].mean()
    found = vcomp.fit("y ~ 0 + (1|a) + (1|b)", data).influence("a")
    assert found.cooks_distance.isna().all()
    assert found.fixed_effects.shape == (7, 0)
    assert "Cook" not in str(found)
    assert found.plot().get_xlabel().startswith("largest relative change of a variance")


@pytest.mark.parametrize(
    ("facet", "words"),
    [("d", "'d' is not a facet of the random part"), ("few", "few.*has 2 levels")],
)
def test_facets_that_are_refused(facet, words):
    data = _crossed().assign(few=lambda d: d["b"] % 2)
    res = vcomp.fit("y ~ x + (1|a) + (1|few)", data)
    with pytest.raises(vcomp.EstimationError, match=words):
        res.influence(facet)


def test_a_stored_result_has_no_rows():
    res = vcomp.fit("y ~ x + (1|a) + (1|b)", _crossed())
    with pytest.raises(vcomp.DataError, match="without its rows"):
        type(res).from_json(res.to_json()).influence("a")


def test_the_picture_has_the_largest_distance_on_top():
    found = vcomp.fit("y ~ x + (1|a) + (1|b)", _crossed()).influence("b")
    ax = found.plot()
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == list(found.cooks_distance.sort_values(ascending=False).index)
    assert ax.get_xlabel() == "Cook's distance without one b"
    top = ax.lines[0].get_xdata()
    np.testing.assert_allclose(top, found.cooks_distance.sort_values(ascending=False))


def _weighted():
    rng = np.random.default_rng(8)
    a, b = (x.ravel() for x in np.indices((6, 9)))
    w = rng.integers(1, 6, a.size)
    e = rng.normal(size=a.size) * np.where(b % 2, 0.5, 1.0) / np.sqrt(w)
    y = rng.normal(size=6)[a] + 0.6 * rng.normal(size=9)[b] + e
    data = pd.DataFrame({"y": y, "a": a, "b": b, "w": w, "v": 0.7 / w, "half": b % 2})
    return data.assign(x=rng.normal(size=a.size)).iloc[:-2]


OPTIONS = [
    {"weights": "w"},
    {"known_variance": "v"},
    {"residual": "half"},
    {"residual": "half", "weights": "w", "method": "ml"},
]


@pytest.mark.parametrize(("options", "facet"), alternately(OPTIONS, "a", "b"), ids=str)
def test_weights_and_residual_groups_stay_with_their_rows(options, facet):
    data, formula = _weighted(), "y ~ x + (1|a) + (1|b)"
    res = vcomp.fit(formula, data, **options)
    found = res.influence(facet)
    assert found.converged.all()
    cov = res.cov_params().loc[res.fe_params.index, res.fe_params.index].to_numpy()
    for level in found.levels[:3]:
        other = vcomp.fit(formula, data[data[facet].astype(str) != level], **options)
        np.testing.assert_allclose(found.components.loc[level], other.vcomp, rtol=1e-6, atol=1e-8)
        change = (other.fe_params - res.fe_params).to_numpy()
        np.testing.assert_allclose(found.dfbeta.loc[level], change, atol=1e-7)
        distance = change @ np.linalg.solve(cov, change) / change.size
        assert found.cooks_distance[level] == pytest.approx(distance, rel=1e-5)


def test_a_level_that_has_a_residual_variance_leaves_with_it():
    data = _weighted()
    res = vcomp.fit("y ~ x + (1|b)", data, residual="a")
    found = res.influence("b")
    assert found.components.notna().all().all()
    owner = vcomp.fit("y ~ x + (1|half) + (1|a)", data.assign(half=data["b"] % 3), residual="half")
    left_out = owner.influence("half")
    for level in left_out.levels:
        gone = f"Residual[half={level}]"
        other = vcomp.fit(
            "y ~ x + (1|half) + (1|a)",
            data.assign(half=data["b"] % 3)[data["b"] % 3 != int(level)],
            residual="half",
        )
        row = left_out.components.loc[level]
        assert np.isnan(row[gone])
        np.testing.assert_allclose(row.drop(gone), other.vcomp, rtol=1e-6, atol=1e-8)
    assert "Residual[half=" not in " ".join(left_out.covariances)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_jackknifes_are_of_refits_of_the_rows_that_are_left(options):
    data, formula = _weighted(), "y ~ x + (1|a) + (1|b)"
    left_out = vcomp.fit(formula, data, **options).jackknife("b")
    values = [vcomp.fit(formula, data[data["b"] != b], **options).vcomp for b in range(9)]
    np.testing.assert_allclose(left_out.values, values, rtol=1e-6, atol=1e-8)
    # The jackknife's standard error: √((J − 1)/J Σ (θ₍ⱼ₎ − θ̄)²).
    deviations = np.array(values)[:, 0] - np.mean(values, axis=0)[0]
    se = np.sqrt(8.0 / 9.0 * deviations @ deviations)
    assert left_out.of(lambda v: v[:, 0]).se == pytest.approx(se, rel=1e-6)


def test_jackknifed_covariances_have_the_natural_scale():
    res = vcomp.fit("y ~ x + (x|g)", SLOPES)
    left_out = res.jackknife("g")
    some = left_out.levels[:2]
    for place, level in enumerate(some):
        other = vcomp.fit("y ~ x + (x|g)", SLOPES[SLOPES["g"].astype(str) != level])
        np.testing.assert_allclose(left_out.values[place], other.vcomp, rtol=1e-6)
    n, t = len(left_out), left_out.of(lambda v: v[:, 2])
    pseudo = n * res.vcomp.iloc[2] - (n - 1) * left_out.values[:, 2]
    half = stats.t.ppf(0.975, n - 1) * pseudo.std(ddof=1) / np.sqrt(n)
    for found in (left_out.conf_int(), res.conf_int(interval=left_out)):
        low, high = found.loc["cov(g[(Intercept),x])"]
        assert (low, high) == pytest.approx((pseudo.mean() - half, pseudo.mean() + half), rel=1e-9)
        assert (found.loc["var(g)"] > 0.0).all()
    assert t.low == pytest.approx(low, rel=1e-9)


def test_a_jackknife_without_a_residual_variance_keeps_the_others():
    data = _weighted().assign(c=lambda d: d["b"] % 3)
    res = vcomp.fit("y ~ x + (1|c) + (1|a)", data, residual="c")
    left_out = res.jackknife("c")
    ends = left_out.conf_int()
    assert ends.loc[["var(c)", "var(a)"]].notna().all().all()
    assert ends.drop(["var(c)", "var(a)"]).isna().all().all()

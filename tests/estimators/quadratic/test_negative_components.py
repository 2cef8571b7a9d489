"""Fixed effects with negative components that are kept: least squares written out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vcomp


def alike(seed=3, groups=5, n=4, share=0.7):
    """Return scores whose group means are more alike than chance makes them."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(
        {"g": np.repeat(np.arange(groups), n), "x": np.repeat(rng.normal(size=groups), n)}
    )
    y = rng.normal(size=len(data))
    means = pd.Series(y).groupby(data["g"]).transform("mean")
    return data.assign(y=y - share * means + data["x"])


@pytest.mark.parametrize("method", ["type1", "henderson3", "minque"])
def test_a_covariate_of_balanced_groups_is_tested_by_their_means(method):
    """As PROC MIXED with NOBOUND: the regression of the group means, with groups − 2 df."""
    data = alike()
    res = vcomp.fit("y ~ x + (1|g)", data, method=method)
    assert res.vcomp["g"] < 0
    means = data.groupby("g")[["x", "y"]].mean()
    line = stats.linregress(means["x"], means["y"])
    row = res.fixed_effects().loc["x"]
    assert row["coef"] == pytest.approx(line.slope, rel=1e-9)
    assert row["std_error"] == pytest.approx(line.stderr, rel=1e-9)
    assert row["df"] == pytest.approx(3.0, rel=1e-6)
    found = res.f_test("x = 0")
    assert found.p_value == pytest.approx(line.pvalue, rel=1e-6)
    assert found.df == pytest.approx((1.0, 3.0), rel=1e-6)


@pytest.mark.parametrize("method", ["henderson3", "minque"])
def test_unbalanced_rows_with_two_terms(method):
    data = alike(4, 6, 6, 0.4).assign(h=np.tile([0, 1, 2], 12))
    data["y"] += np.array([0.0, 2.0, 1.0])[data["h"]]
    data = data.drop([1, 8, 9, 22])
    res = vcomp.fit("y ~ x + (1|g) + (1|h)", data, method=method)
    v = res.vcomp
    assert v["g"] < 0 < v["h"]
    X = np.column_stack([np.ones(len(data)), data["x"]])
    same = {f: np.equal.outer(data[f].to_numpy(), data[f].to_numpy()) * 1.0 for f in "gh"}
    V = v["g"] * same["g"] + v["h"] * same["h"] + v["Residual"] * np.eye(len(data))
    W = np.linalg.solve(V, X)
    cov = np.linalg.inv(X.T @ W)
    np.testing.assert_allclose(res.fe_params, cov @ (W.T @ data["y"]), rtol=1e-8)
    np.testing.assert_allclose(res.bse_fe, np.sqrt(np.diag(cov)), rtol=1e-8)
    parts = [*same.values(), np.eye(len(data))]
    g = np.array([(cov @ W.T @ M @ W @ cov)[1, 1] for M in parts])
    df = 2 * cov[1, 1] ** 2 / (g @ res.cov_vcomp().to_numpy() @ g)
    assert res.df_fe["x"] == pytest.approx(df, rel=1e-6)
    made = vcomp.VarianceComponentsResults.from_json(res.to_json()).fixed_effects()
    np.testing.assert_allclose(made["df"], res.fixed_effects()["df"], rtol=1e-12)


def test_what_is_no_covariance_matrix_is_said():
    """Two scores a group that differ in sign: V has a negative eigenvalue, unless it is zero."""
    rng = np.random.default_rng(1)
    sizes = [2, 2, 2, 2, 2, 9]
    g = np.repeat(np.arange(6), sizes)
    y = np.concatenate(
        [*(m * np.array([1.0, -1.0]) for m in rng.uniform(1, 4, 5)), 0.01 * rng.normal(size=9)]
    )
    data = pd.DataFrame({"g": g, "y": y, "x": rng.normal(size=19)})
    res = vcomp.fit("y ~ x + (1|g)", data, method="minque")
    assert res.vcomp["g"] * 9 + res.vcomp["Residual"] < 0
    assert "Fixed effects and their errors take negative components as zero." in res.status
    line = stats.linregress(data["x"], data["y"])
    assert res.fe_params["x"] == pytest.approx(line.slope, rel=1e-9)

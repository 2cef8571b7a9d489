"""``interval="robust"`` wherever ``interval=`` goes, for rows in memory, in batches and stored."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

import vcomp


@pytest.fixture(scope="module")
def frame():
    """0/1 scores of topics that are nearly all easy: their variances differ from topic to topic."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame([(s, t) for s in range(12) for t in range(25)], columns=["sys", "topic"])
    chance = rng.beta(1.5, 0.2, 25)[frame.topic] - 0.1 * rng.random(12)[frame.sys]
    return frame.assign(score=(rng.random(len(frame)) < chance).astype(float))


@pytest.fixture(scope="module")
def res(frame):
    return vcomp.fit("score ~ (1|sys) + (1|topic)", frame)


def test_one_source_for_everything(res):
    """Intervals of a component, its share and a D-study have one basis: nested quantities agree."""
    rows = res.conf_int(interval="robust")
    table = res.gstudy(interval="robust")
    np.testing.assert_array_equal(rows.iloc[1:].to_numpy(), table[["ci_low", "ci_high"]])
    found = res.quantity("Residual", interval="robust")
    assert (found.low, found.high) == tuple(rows.loc["var(Residual)"])
    assert found.interval_method == "robust modified large sample"
    study = res.dstudy(topic=50, interval="robust")
    share = res.quantity("sys/(sys + Residual/50)", interval="robust")
    row = study.table.iloc[0]
    assert row["Erho2_low"] == pytest.approx(share.low, rel=1e-12)
    assert row["Erho2_high"] == pytest.approx(share.high, rel=1e-12)


def test_0_1_scores_have_wider_intervals_of_the_residual(res):
    normal, robust = (res.conf_int(interval=i).loc["var(Residual)"] for i in ("mls", "robust"))
    assert robust[1] - robust[0] > 1.3 * (normal[1] - normal[0])


def test_batches_give_the_same(frame, tmp_path, res):
    path = tmp_path / "scores.csv"
    frame.to_csv(path, index=False)
    formula = "score ~ (1|sys) + (1|topic)"
    streamed = vcomp.fit(formula, path, stream=True)
    expected = vcomp.fit(formula, path).conf_int(interval="robust")
    found = streamed.conf_int(interval="robust")
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(found, res.conf_int(interval="robust"), rtol=1e-9)


def test_stored_results_keep_them(res):
    expected = res.conf_int(interval="robust")
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    pd.testing.assert_frame_equal(loaded.conf_int(interval="robust"), expected, check_exact=True)
    again = pickle.loads(pickle.dumps(res))
    pd.testing.assert_frame_equal(again.conf_int(interval="robust"), expected, check_exact=True)


def test_few_levels_are_named(frame):
    few = frame[frame.topic < 4]
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", few)
    found = res.quantity("sys", interval="robust")
    assert found.notes == (
        "facets with few levels, whose effects are treated as normal: topic (4)",
    )
    normal, robust = (res.interval_source(i).squares for i in ("mls", "robust"))
    # The mean square of topics is at least as uncertain as with normal effects.
    assert robust.df[1] <= normal.df[1] * (1.0 + 1e-9)
    assert robust.df_upper[1] <= normal.df[1] * (1.0 + 1e-9)


def test_published_components_have_none():
    published = vcomp.from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}, cov=np.eye(3))
    with pytest.raises(vcomp.VcompError, match="interval='robust' needs the rows of a fit"):
        published.dstudy(i=10, interval="robust").summary()


def test_without_residual_there_are_none():
    frame = pd.DataFrame({"s": np.repeat(range(5), 2), "y": np.repeat(np.arange(5.0), 2)})
    res = vcomp.fit("y ~ (1|s)", frame, method="anova")
    with pytest.raises(vcomp.EstimationError, match="needs a residual above zero"):
        res.conf_int(interval="robust")

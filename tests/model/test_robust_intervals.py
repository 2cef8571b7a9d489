"""Robust intervals wherever ``interval=`` goes, for rows in memory, in batches and stored."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.cases import alternately
from vcomp.inference import Quantities


@pytest.fixture(scope="module")
def frame():
    """0/1 scores of easy topics: their variances differ from topic to topic."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame([(s, t) for s in range(12) for t in range(25)], columns=["sys", "topic"])
    chance = rng.beta(1.5, 0.2, 25)[frame.topic] - 0.1 * rng.random(12)[frame.sys]
    return frame.assign(score=(rng.random(len(frame)) < chance).astype(float))


@pytest.fixture(scope="module")
def res(frame):
    return vcomp.fit("score ~ (1|sys) + (1|topic)", frame)


def test_one_source_for_everything(res):
    """Intervals of a component, its share and a D-study have one basis, and agree."""
    rows = res.conf_int(interval="robust")
    table = res.gstudy(interval="robust")
    np.testing.assert_array_equal(rows.iloc[1:].to_numpy(), table[["low", "high"]])
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


def test_a_term_need_not_name_all_that_its_facets_are_nested_in():
    """Topics lie in collections, so that sys:topic has the groups of sys:collection:topic."""
    rng = np.random.default_rng(7)
    frame = pd.DataFrame([(s, t) for s in range(9) for t in range(11)], columns=["sys", "topic"])
    frame["part"] = frame["topic"] // 4
    frame["score"] = rng.normal(size=9)[frame["sys"]] + rng.normal(size=len(frame))
    frame = pd.concat([frame, frame.assign(score=rng.normal(size=len(frame)))])
    frame = frame.sample(frac=0.8, random_state=3)
    own = "score ~ (1|sys) + (1|part) + (1|sys:{})"
    short, long = (vcomp.fit(own.format(x), frame) for x in ("topic", "part:topic"))
    for interval in ("auto", "robust"):
        np.testing.assert_allclose(
            short.conf_int(interval=interval), long.conf_int(interval=interval), rtol=1e-8
        )
    assert short.summary() is not None


MANY = {
    "crossed": ("score ~ (1|sys) + (1|topic)", 1, 1.0),
    "crossed, with holes": ("score ~ (1|sys) + (1|topic)", 1, 0.8),
    "replicated": ("score ~ (1|sys) + (1|topic) + (1|sys:topic)", 3, 1.0),
    "replicated, with holes": ("score ~ x + (1|sys) + (1|topic) + (1|sys:topic)", 3, 0.8),
    "nested": ("score ~ (1|topic/sys)", 3, 1.0),
}


def rows_of(frame, name):
    formula, times, share = MANY[name]
    rng = np.random.default_rng(8)
    many = pd.concat([frame] * times, ignore_index=True)
    many = many.assign(score=many.score + rng.normal(size=len(many)), x=rng.normal(size=len(many)))
    return formula, many.sample(frac=share, random_state=1).reset_index(drop=True)


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
@pytest.mark.parametrize(("name", "n_partitions"), alternately(MANY, 4, 1))
def test_workers_give_the_same(frame, name, n_partitions):
    frames = pytest.importorskip("dask.dataframe", reason="Dask is not installed")
    formula, rows = rows_of(frame, name)
    expected = vcomp.fit(formula, rows).conf_int(interval="robust")
    found = vcomp.fit(formula, frames.from_pandas(rows, npartitions=n_partitions))
    np.testing.assert_allclose(found.conf_int(interval="robust"), expected, rtol=1e-9, atol=1e-9)
    errors = vcomp.fit(formula, rows).fixed_effects(cov_type="robust")
    of_workers = found.fixed_effects(cov_type="robust")
    np.testing.assert_allclose(of_workers.to_numpy(), errors.to_numpy(), rtol=1e-8, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
@pytest.mark.parametrize("name", MANY)
def test_files_give_the_same(frame, name, tmp_path):
    formula, rows = rows_of(frame, name)
    path = tmp_path / "scores.parquet"
    rows.to_parquet(path, index=False)
    expected = vcomp.fit(formula, rows).conf_int(interval="robust")
    found = vcomp.fit(formula, path, stream=True).conf_int(interval="robust")
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
@pytest.mark.parametrize("name", MANY)
def test_stored_sums_give_the_same(frame, name, tmp_path):
    """Of several scores in a cell the moments are enough, in parts and in any order."""
    formula, rows = rows_of(frame, name)
    # A covariate that does not vary within cells
    rows = rows.assign(x=np.sin(rows.sys))
    path = tmp_path / "scores.vcomp"
    sum(vcomp.accumulate(formula, rows.iloc[k::3]) for k in (2, 0, 1)).save(path)
    found = vcomp.AccumulatedStatistics.load(path).fit()
    expected = vcomp.fit(formula, rows)
    np.testing.assert_allclose(
        found.conf_int(interval="robust"),
        expected.conf_int(interval="robust"),
        rtol=1e-9,
        atol=1e-9,
    )
    errors = [res.fixed_effects(cov_type="robust").to_numpy() for res in (found, expected)]
    np.testing.assert_allclose(*errors, rtol=1e-8, atol=1e-12)


def test_stored_sums_give_factors_the_same_errors(frame, tmp_path):
    formula = "score ~ C(sys) + (1|topic) + (1|sys:topic)"
    rows = pd.concat([frame, frame.assign(score=1.0 - frame["score"])])
    path = tmp_path / "scores.vcomp"
    vcomp.accumulate(formula, rows).save(path)
    found = vcomp.AccumulatedStatistics.load(path).fit()
    errors = [
        res.fixed_effects(cov_type="robust").to_numpy()
        for res in (found, vcomp.fit(formula, rows))
    ]
    np.testing.assert_allclose(*errors, rtol=1e-8, atol=1e-12)


def test_sums_of_a_covariate_that_varies_within_cells_need_the_rows(frame):
    formula, rows = rows_of(frame, "replicated")
    rows = rows.assign(x=np.arange(len(rows)) % 7)
    found = vcomp.accumulate(formula.replace("~", "~ x +"), rows).fit()
    with pytest.raises(vcomp.DataError, match=r"several scores.*interval='mls'"):
        found.conf_int(interval="robust")


def test_rows_that_changed_are_noticed(frame, tmp_path):
    path = tmp_path / "scores.csv"
    formula, rows = rows_of(frame, "replicated")
    rows.to_csv(path, index=False)
    res = vcomp.fit(formula, path, stream=True)
    rows.iloc[:-5].to_csv(path, index=False)
    with pytest.raises(vcomp.DataError, match=r"stay as they were|must not change"):
        res.conf_int(interval="robust")


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


# The default ------------------------------------------------------------------------------------


def normal_theory(res):
    """Return why the intervals of a result assume normal effects, from its summary and plan."""
    (note,) = [n for n in res.interval_source("auto").limits(UNIT, 0.05).notes if "normal" in n]
    assert note.startswith("effects are treated as normal, as ")
    assert note in " ".join(str(res.summary()).split())
    assert note in " ".join(str(res.dstudy()).split())
    pd.testing.assert_frame_equal(res.conf_int(), res.conf_int(interval="mls"))
    return note.removeprefix("effects are treated as normal, as ")


UNIT = Quantities("linear", np.eye(3))


def two_way(s, t, seed=5):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"s": np.repeat(np.arange(s), t), "t": np.tile(np.arange(t), s)})
    y = rng.exponential(size=s)[frame.s] + rng.exponential(size=t)[frame.t]
    return frame.assign(y=y + rng.exponential(size=s * t))


def test_the_default_is_robust_from_six_levels_of_a_facet_on():
    formula = "y ~ (1|s) + (1|t)"
    res = vcomp.fit(formula, two_way(6, 5))
    assert res.interval_source("auto").interval == "robust"
    pd.testing.assert_frame_equal(res.conf_int(), res.conf_int(interval="robust"))
    pd.testing.assert_frame_equal(res.dstudy(t=9).table, res.dstudy(t=9, interval="robust").table)
    assert str(res.quantity("s / t")) == str(res.quantity("s / t", interval="robust"))
    assert "Standard errors and intervals of components: robust" in str(res)
    reason = normal_theory(vcomp.fit(formula, two_way(5, 5)))
    assert reason == "no facet has 6 or more levels"


def test_standard_errors_belong_to_intervals():
    res = vcomp.fit("y ~ (1|s) + (1|t)", two_way(20, 12))
    robust, normal = (res.gstudy(interval=i)["se"] for i in ("robust", "mls"))
    pd.testing.assert_series_equal(res.gstudy()["se"], robust)
    np.testing.assert_allclose(normal, res.bse_vcomp)
    np.testing.assert_allclose(robust, res.bse[-3:])
    np.testing.assert_allclose(np.square(res.bse), np.diagonal(res.cov_params()))
    assert (np.abs(np.log(robust / normal)) > 0.01).all()
    tidy = res.tidy().set_index("term")["std_error"]
    np.testing.assert_allclose(tidy[["s", "t", "Residual"]], robust)
    for interval, expected in (("robust", robust), ("mls", normal)):
        assert res.quantity("s", interval=interval).se == pytest.approx(expected["s"])
        study = res.dstudy(t=12, interval=interval)
        assert study.table["rel_err_var_se"].item() == pytest.approx(expected["Residual"] / 12)


def test_the_covariance_is_that_of_a_jackknife_of_the_groups():
    """Each group left out once, in closed form; other effects than normal ones."""
    n, k = 5000, 3
    rng = np.random.default_rng(1)
    y = rng.exponential(size=(n, 1)) + rng.laplace(size=(n, k))
    frame = pd.DataFrame({"s": np.repeat(np.arange(n), k), "y": y.ravel()})
    res = vcomp.fit("y ~ (1|s)", frame, method="anova")
    means, within = y.mean(axis=1), k * y.var(axis=1)
    rest = (means.sum() - means) / (n - 1)
    between = (np.square(means).sum() - means**2 - (n - 1) * rest**2) / (n - 2)
    residual = (within.sum() - within) / ((n - 1) * (k - 1))
    jackknife = (n - 1) ** 2 / n * np.cov(between - residual / k, residual)
    # The corrections of robust variances for few groups are of order 1/√n.
    found = res.cov_params().to_numpy()[1:, 1:]
    np.testing.assert_allclose(found, jackknife, rtol=2.0 / np.sqrt(n))
    np.testing.assert_allclose(res.bse[1:], np.sqrt(np.diagonal(jackknife)), rtol=1.0 / np.sqrt(n))
    assert (res.bse[1:].to_numpy() > 1.2 * res.bse_vcomp.to_numpy()).all()


@pytest.mark.parametrize("hold", [{}, {"t": 0.5}])
def test_a_component_without_standard_error_has_no_covariance(hold):
    """At its bound 0, as the means of t are equal, or held."""
    frame = two_way(20, 12)
    frame["y"] -= frame.groupby("t")["y"].transform("mean")
    res = vcomp.fit("y ~ (1|s) + (1|t)", frame, hold=hold)
    assert res.interval_source("auto").interval == "robust"
    again = vcomp.VarianceComponentsResults.from_json(res.to_json())
    for found in (res, again, pickle.loads(pickle.dumps(res))):
        cov, normal = found.cov_params().iloc[1:, 1:].to_numpy(), found.cov_vcomp().to_numpy()
        np.testing.assert_array_equal(np.isnan(cov), np.isnan(normal))
        assert np.isnan(cov[1]).all()
        errors = found.tidy()["std_error"].to_numpy()
        np.testing.assert_array_equal(np.isnan(errors), [False, False, True, False])
        np.testing.assert_array_equal(errors, found.bse)
        np.testing.assert_array_equal(errors, np.sqrt(np.diagonal(found.cov_params())))


def test_rows_that_are_gone_are_the_reason(tmp_path):
    path = tmp_path / "scores.parquet"
    pd.concat([two_way(20, 12, 1), two_way(20, 12, 2)]).to_parquet(path)
    res = vcomp.fit("y ~ (1|s) + (1|t)", path, stream=True)
    path.unlink()
    assert normal_theory(res) == "'scores.parquet' cannot be read"
    again = vcomp.VarianceComponentsResults.from_json(res.to_json())
    assert "stored without" in normal_theory(again)
    with pytest.raises(vcomp.DataError, match=r"scores\.parquet"):
        res.conf_int(interval="robust")


def test_a_residual_of_zero_is_the_reason():
    frame = two_way(8, 6)
    frame["y"] = 1.0 * frame.s + 0.5 * frame.t
    res = vcomp.fit("y ~ (1|s) + (1|t)", frame, method="anova")
    assert "residual above zero" in normal_theory(res)


def test_a_covariate_within_stored_cells_is_the_reason():
    twice = pd.concat([two_way(8, 6, 1).assign(x=0.0), two_way(8, 6, 2).assign(x=1.0)])
    sums = vcomp.accumulate("y ~ x + (1|s) + (1|t)", twice)
    assert "single rows" in normal_theory(sums.fit())
    assert sums.fit().interval_source("mls").reason == ""


def test_published_components_need_no_reason():
    known = {"p": 2.0, "i": 1.0, "Residual": 4.0}
    study = vcomp.from_components(known, cov=np.diag([0.5, 0.3, 0.1])).dstudy(i=10)
    assert "modified large sample" in str(study)
    assert "treated as normal" not in str(study)


@pytest.mark.parametrize("options", [{"weights": "w"}, {"residual": "sys"}, {}], ids=str)
def test_matrices_and_weights_need_rows_in_memory(frame, options, tmp_path):
    rng = np.random.default_rng(3)
    rows = frame.assign(x=rng.normal(size=len(frame)), w=rng.uniform(0.5, 2.0, len(frame)))
    formula = "score ~ (1|topic)" if options else "score ~ x + (x|topic)"
    path = tmp_path / "rows.csv"
    rows.to_csv(path, index=False)
    streamed, kept = (vcomp.fit(formula, path, stream=s, **options) for s in (True, False))
    with pytest.raises(vcomp.DataError, match="stream=False, or use interval='mls'"):
        streamed.conf_int(interval="robust")
    with pytest.raises(vcomp.DataError, match="stream=False, or use cov_type='model'"):
        streamed.fixed_effects(cov_type="robust")
    expected = kept.conf_int(interval="mls")
    np.testing.assert_allclose(streamed.conf_int(), expected, rtol=1e-5)
    assert kept.conf_int(interval="robust").notna().all().all()
    assert kept.fixed_effects(cov_type="robust")["std_error"].gt(0.0).all()

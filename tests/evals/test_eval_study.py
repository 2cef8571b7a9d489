"""Studies of evaluations, against comparisons and fits that are written here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.printed_tables import printed_words

LOGS = Path(__file__).parent / "logs"


def scores(models=4, tasks=1, items=25, prompts=1, epochs=1, missing=0.0, seed=1):
    """Return 0/1 scores of models, of which each is better than the one before."""
    rng = np.random.default_rng(seed)
    shape = (models, tasks, items, prompts, epochs)
    m, t, i, p, e = (of.ravel() for of in np.indices(shape))
    logit = 0.5 * m + 1.2 * rng.normal(size=(tasks, items))[t, i]
    logit += 0.4 * rng.normal(size=(models, prompts))[m, p]
    logit += 0.7 * rng.normal(size=(models, tasks, items))[m, t, i]
    data = pd.DataFrame({
        "model": np.array([f"m{k}" for k in range(models)])[m],
        "task": np.array([f"t{k}" for k in range(tasks)])[t],
        "item": i, "prompt": p, "epoch": e,
        "score": (rng.random(m.size) < 1.0 / (1.0 + np.exp(-logit))).astype(float),
    })  # fmt: skip
    sizes = {"task": tasks, "prompt": prompts, "epoch": epochs}
    data = data.drop(columns=[name for name, n in sizes.items() if n == 1])
    return data[rng.random(m.size) >= missing]


def test_models_on_items_are_systems_on_topics():
    data = scores()
    found = vcomp.evals.study(data)
    names = {"system": "model", "topic": "item", "score": "score"}
    tukey = vcomp.ir.compare_systems(data, "tukey", **names)
    ranks = tukey.ranks()
    assert found.table.index.tolist() == ranks.index.tolist()
    for ours, theirs in (("mean", "mean"), ("rank_low", "low"), ("rank_high", "high")):
        assert found.table[ours].to_numpy() == pytest.approx(ranks[theirs].to_numpy(), rel=1e-9)
    p = found.comparisons.table["p_adjusted"].to_numpy()
    assert p == pytest.approx(tukey.table["p_adjusted"].to_numpy(), rel=1e-6)
    assert found.ahead == tuple(ranks.index[ranks["low"] == 1])
    worse = tukey.table[tukey.table["significant"]]
    assert set(found.worse_than("m3")) == set(worse.loc[worse["second"] == "m3", "first"])
    assert found.worse_than("m0") == ()
    assert found.roles.formula == "score ~ C(model) + (1|item)"


def test_every_sampled_facet_is_in_the_error():
    data = scores(prompts=3, epochs=2, missing=0.1)
    found = vcomp.evals.study(data)
    fit = vcomp.fit(
        "score ~ C(model) + (1|item) + (1|prompt) + (1|model:item) + (1|model:prompt) "
        "+ (1|item:prompt) + (1|model:item:prompt)", data,
    )  # fmt: skip
    pairs = fit.compare_levels("model", "tukey").table
    columns = ["difference", "std_error", "df", "p_adjusted"]
    np.testing.assert_allclose(found.comparisons.table[columns], pairs[columns], rtol=1e-9)
    means = fit.marginal_means("model").table.loc[found.table.index]
    np.testing.assert_allclose(found.table["std_error"], means["std_error"], rtol=1e-9)
    items = vcomp.evals.study(data, fixed=["prompt"]).comparisons.table["std_error"]
    assert (items < pairs["std_error"]).all()


def test_shares_of_the_noise_are_those_of_the_error_variance():
    data = scores(models=5, prompts=3)
    found = vcomp.evals.study(data)
    v = vcomp.fit(
        "score ~ (1|model) + (1|item) + (1|prompt) + (1|model:item) + (1|model:prompt) "
        "+ (1|item:prompt)", data,
    ).vcomp  # fmt: skip
    parts = {
        "model:item": v["model:item"] / 25, "model:prompt": v["model:prompt"] / 3,
        "Residual": v["Residual"] / 75,
    }  # fmt: skip
    for name, part in parts.items():
        share = part / sum(parts.values())
        assert found.sources.loc[name, "share"] == pytest.approx(share, rel=1e-6)
    assert found.sources["share"].sum() == pytest.approx(1.0, rel=1e-12)
    study = found.components.dstudy(object="model")
    assert found.plan.power(0.2).equals(study.power(0.2))


def test_tasks_have_items_of_their_own_and_equal_weights():
    data = scores(tasks=2, items=30, seed=3)
    data = data[(data["task"] == "t0") | (data["item"] < 10)]
    found = vcomp.evals.study(data)
    assert found.roles.levels["item"] == 40
    by_task = data.groupby(["model", "task"])["score"].mean().unstack()
    means = by_task.mean(axis=1).loc[found.table.index]
    assert found.table["mean"].to_numpy() == pytest.approx(means.to_numpy(), rel=1e-8)
    alone = vcomp.evals.study(data[data["model"] == "m1"])
    assert alone.table.loc["m1", "mean"] == pytest.approx(by_task.loc["m1"].mean(), rel=1e-12)
    assert "2 tasks, with equal weights" in printed_words(found)
    sampled = vcomp.evals.study(data, sampled=["task"])
    assert ("model", "task") in sampled.roles.terms


def test_one_model_has_the_standard_error_of_its_items():
    data = scores(models=1)
    found = vcomp.evals.study(data)
    y = data["score"].to_numpy()
    assert found.table["mean"].item() == pytest.approx(y.mean(), rel=1e-12)
    assert found.table["std_error"].item() == pytest.approx(y.std(ddof=1) / 5.0, rel=1e-6)
    assert "There is one model; nothing is compared." in printed_words(found)
    with pytest.raises(vcomp.DataError, match="there is one model: a plan"):
        found.plan  # noqa: B018
    with pytest.raises(vcomp.PlanError, match="there is one model, which has no rank"):
        found.plot()
    with pytest.raises(vcomp.PlanError, match="there is no model 'm1' to compare with"):
        found.worse_than("m1")


def test_a_model_that_is_always_right_has_an_error():
    data = scores()
    data.loc[data["model"] == "m3", "score"] = 1.0
    found = vcomp.evals.study(data).table
    assert (found["std_error"] > 0.0).all()
    assert found.loc["m3", ["mean", "high"]].tolist() == pytest.approx([1.0, 1.0], rel=1e-9)
    graded = vcomp.evals.study(data.assign(score=2.0 * data["score"])).table
    assert graded.loc["m3", "high"] > 2.0


def test_models_with_other_items():
    data = scores(models=3, items=30).assign(item=lambda d: d["model"] + d["item"].astype(str))
    found = vcomp.evals.study(data)
    se = found.comparisons.table["std_error"]
    within = data.groupby("model")["score"].var(ddof=1).mean()
    assert found.roles.terms == ()
    assert se.to_numpy() == pytest.approx(np.sqrt(2.0 * within / 30), rel=1e-6)


def test_what_cannot_be_known_is_said():
    data = scores().assign(prompt="p", judge="j")
    said = printed_words(vcomp.evals.study(data))
    assert "There is one prompt: how much scores change with another prompt cannot be" in said
    assert "There is one judge:" in said
    assert "the variation of repeated runs cannot be told from model:item" in said
    repeated = printed_words(vcomp.evals.study(scores(epochs=2)))
    assert "epoch numbers repetitions of the same sample" in repeated
    assert "cannot be told" not in repeated


def test_what_to_add_has_the_power():
    data = scores(items=20, prompts=4, seed=5)
    found = vcomp.evals.study(data)
    gap = abs(found.table["mean"].iloc[0] - found.table["mean"].iloc[1])
    said = found.next_data
    assert "with power 0.8" in said[0]
    needed = found.plan.required(difference=gap, facet=found._noisiest)
    if np.isfinite(needed.n):
        assert str(needed) in said[1]
    else:
        assert "needs more of all" in said[1] or "out of reach" in said[1]


def test_logs_are_read_and_compared():
    with pytest.raises(vcomp.DataError, match="several metrics; name one, metric=… of 'acc'"):
        vcomp.evals.study(LOGS / "lm_eval_0.4.13")
    logs = vcomp.evals.read(LOGS / "lm_eval_0.4.13")
    found = vcomp.evals.study(logs, metric="acc")
    of_acc = logs.table[logs.table["metric"] == "acc"]
    means = of_acc.groupby("model")["score"].mean().loc[found.table.index]
    assert found.table["mean"].to_numpy() == pytest.approx(means.to_numpy(), rel=1e-10)
    assert repr(found) == f"<EvalStudy: 2 models: {of_acc['item'].nunique()} items>"
    assert found.plot().get_xlabel().startswith("rank of the model")


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (lambda: scores().drop(columns="item"), {}, r"nothing is sampled: .*sampled=\[…\]"),
        (
            lambda: scores(epochs=2).rename(columns={"epoch": "seed"}),
            {},
            "column 'seed' separates",
        ),
        (lambda: scores(), {"system": "mdel"}, r"no column 'mdel' \(did you mean 'model'"),
        (lambda: scores(), {"sampled": ["model"]}, "column 'model' has two roles"),
        (lambda: scores(), {"sampled": 3}, "sampled is a list of columns, not 3"),
        (lambda: scores(), {"metric": "acc"}, "there is no column 'metric' to choose from"),
        (lambda: scores().assign(metric="f1"), {"metric": "acc"}, "no metric 'acc'; there are"),
        (lambda: scores().assign(score=1.0), {}, "all scores are 1: they show neither"),
        (lambda: scores(), {"alpha": 2}, "alpha must be between 0 and 1"),
    ],
)
def test_what_is_refused(data, options, words):
    with pytest.raises(vcomp.VcompError, match=words):
        vcomp.evals.study(data(), **options)


def test_what_refusals_advise_leads_on():
    data = scores(epochs=2).rename(columns={"epoch": "seed"})
    assert "seed" in vcomp.evals.study(data, sampled=["seed"]).roles.sampled
    assert "seed" in vcomp.evals.study(data, fixed="seed").roles.fixed
    assert vcomp.evals.study(data[data["seed"] == 0]).roles.residual == "model:item"


def test_repetitions_with_equal_scores_are_no_noise():
    data = scores(prompts=2)
    twice = pd.concat([data.assign(epoch=e) for e in (1, 2)], ignore_index=True)
    found, once = vcomp.evals.study(twice), vcomp.evals.study(data)
    pd.testing.assert_frame_equal(found.table, once.table)
    assert "epoch numbers repetitions whose scores are equal" in printed_words(found)
    assert "cannot be told" not in printed_words(found)


def test_names_that_are_no_python_names():
    data, names = scores(prompts=2), {"model": "class", "prompt": "my prompt", "score": "acc %"}
    odd = vcomp.evals.study(
        data.rename(columns=names), system="class", score="acc %", sampled=["my prompt"]
    )
    plain = vcomp.evals.study(data)
    pd.testing.assert_frame_equal(odd.table.rename_axis("model"), plain.table)


def test_rows_without_a_score():
    data = scores()
    data.loc[:9, "score"] = np.nan
    with pytest.warns(vcomp.VcompWarning, match="10 of 100 rows have no score and were left out"):
        found = vcomp.evals.study(data)
    pd.testing.assert_frame_equal(found.table, vcomp.evals.study(data.iloc[10:]).table)


def test_one_model_has_equal_weights_of_fixed_facets_of_any_name():
    data = scores(models=1, tasks=2, items=30, prompts=3, seed=3)
    data = data[(data["task"] == "t0") | (data["item"] < 10)]
    odd = data.rename(columns={"task": "my task"}).assign(
        item=data["task"] + data["item"].astype(str)
    )
    found = vcomp.evals.study(odd, fixed=["my task", "prompt"])
    means = data.groupby(["task", "prompt"])["score"].mean()
    assert found.table["mean"].item() == pytest.approx(means.mean(), rel=1e-9)


def test_what_to_add_where_other_models_have_other_items():
    data = scores(models=3, items=30, prompts=2)
    data = data.assign(item=data["model"] + data["item"].astype(str))
    said = printed_words(vcomp.evals.study(data))
    assert "with power 0.8" in said

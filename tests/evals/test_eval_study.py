"""Studies of evaluations, against comparisons and fits that are written here."""

from __future__ import annotations

import ast
import itertools
import json
import math
import re
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.interpolate import CubicSpline

import vcomp
from tests.helpers.printed_tables import printed_words
from vcomp import display
from vcomp.evals.next_data import allocation, needed, noisiest
from vcomp.evals.page import EvalPage
from vcomp.inference.intervals import influences
from vcomp.numerics import check_memory

LOGS = Path(__file__).parent / "logs"


def scores(models=4, tasks=1, items=25, prompts=1, epochs=1, missing=0.0, seed=1):
    """Return 0/1 scores of models, of which each is better than the one before.

    Each task has items of its own, and of 1000 t + i, i is the place of an item in task t.
    """
    rng = np.random.default_rng(seed)
    shape = (models, tasks, items, prompts, epochs)
    m, t, i, p, e = (of.ravel() for of in np.indices(shape))
    logit = 0.5 * m + 1.2 * rng.normal(size=(tasks, items))[t, i]
    logit += 0.4 * rng.normal(size=(models, prompts))[m, p]
    logit += 0.7 * rng.normal(size=(models, tasks, items))[m, t, i]
    data = pd.DataFrame({
        "model": np.array([f"m{k}" for k in range(models)])[m],
        "task": np.array([f"t{k}" for k in range(tasks)])[t],
        "item": 1000 * t + i, "prompt": p, "epoch": e,
        "score": (rng.random(m.size) < 1.0 / (1.0 + np.exp(-logit))).astype(float),
    })  # fmt: skip
    sizes = {"task": tasks, "prompt": prompts, "epoch": epochs}
    data = data.drop(columns=[name for name, n in sizes.items() if n == 1])
    return data[rng.random(m.size) >= missing]


def of_two(difference):
    """Return scores of two models, one of which is better by the same amount everywhere."""
    one = scores(models=1)
    return pd.concat([one, one.assign(model="other", score=one["score"] + difference)])


def of_many():
    """Return scores of a thousand models and one."""
    models = [f"m{k}" for k in np.arange(2002) % 1001]
    return pd.DataFrame(
        {"model": models, "item": np.arange(2002) // 1001, "score": 1.0 * np.arange(2002)}
    )


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
    best = found.comparisons.probability_of_best()["probability"]
    assert found.table["p_best"].equals(best.rename("p_best"))
    assert f"{best.iloc[0]:.1%}".replace("%", " %") in printed_words(found)
    holm = vcomp.evals.study(data, test="t").comparisons
    assert holm.correction == "holm"
    maximum = vcomp.evals.study(data, test="max-t").comparisons
    assert maximum.table["p_adjusted"].to_numpy() == pytest.approx(p, rel=1e-12)
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
    pairs = fit.compare_levels("model", "tukey", ddf="unbounded").table
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


def test_noise_of_repetitions_over_fixed_prompts():
    """Models like items in some prompts: that is no noise of repeated runs."""
    data = scores(prompts=3, epochs=2)
    found = vcomp.evals.study(data, fixed=["prompt"])
    y = data["score"].to_numpy().reshape(4, 25, 3, 2)
    within = y.var(axis=3, ddof=1).mean()
    cells = y.mean(axis=(2, 3))
    both = cells - cells.mean(axis=0) - cells.mean(axis=1, keepdims=True) + cells.mean()
    interaction = 6 * (both**2).sum() / (3 * 24)
    assert found.sources["share"]["Residual"] == pytest.approx(within / interaction, rel=1e-6)
    error = np.sqrt(2 * interaction / 150)
    assert found.comparisons.table["std_error"].to_numpy() == pytest.approx(error, rel=1e-6)


def test_tasks_have_items_of_their_own_and_equal_weights():
    data = scores(tasks=2, items=30, seed=3)
    data = data[(data["task"] == "t0") | (data["item"] < 1010)]
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


def test_more_data_has_the_errors_of_larger_plans():
    found = vcomp.evals.study(scores(models=5, prompts=3, epochs=2))
    v = found.components.vcomp

    def error(items, prompts, runs):
        return np.sqrt(2.0 * (
            v["model:item"] / items + v["model:prompt"] / prompts
            + v["model:item:prompt"] / (items * prompts)
            + v["Residual"] / (items * prompts * runs)
        ))  # fmt: skip

    more = found.more_data
    expected = [error(25, 3, 2), error(50, 3, 2), error(25, 6, 2), error(25, 3, 4)]
    names = ["these data", "twice the items", "twice the prompts", "twice the runs of each"]
    assert more.index.tolist() == names
    np.testing.assert_allclose(more["std_error"], expected, rtol=1e-9)
    np.testing.assert_allclose(more["ratio"], np.array(expected) / expected[0], rtol=1e-9)
    rows = {" ".join(line.split()[:-2]): line.split()[-2:] for line in str(found).splitlines()}
    for name, of, ratio in zip(names, expected, more["ratio"], strict=True):
        assert rows[name] == [f"{of:.3g}", f"{ratio:.2f}"]
    stored = found.to_dict()["more_data"]
    assert [row["data"] for row in stored] == names
    assert stored[1]["std_error"] == pytest.approx(expected[1], rel=1e-9)
    with pytest.raises(vcomp.DataError, match="there is one model: a plan"):
        vcomp.evals.study(scores(models=1)).more_data  # noqa: B018


@pytest.mark.parametrize("fixed", [[], ["subset"]])
def test_sampled_tasks_with_a_score_each_have_no_error_of_their_own(fixed):
    """As results of MTEB and aggregates of Every Eval Ever: tasks are what items are elsewhere."""
    data = scores(items=6, seed=6).rename(columns={"item": "task"})
    if fixed:
        data["subset"] = data["task"] % 2
        data["task"] //= 2
    found = vcomp.evals.study(data, sampled=["task"], fixed=fixed)
    means = data.groupby(["task", "model"])["score"].mean()
    np.testing.assert_allclose(found.by_task["mean"], means.loc[found.by_task.index], rtol=1e-12)
    assert found.by_task["std_error"].isna().all()
    expected = vcomp.evals.study(data.rename(columns={"task": "item"}), fixed=fixed)
    pd.testing.assert_frame_equal(found.table, expected.table)
    assert "(–)" in str(found)
    assert found.to_dict()["tasks"][0]["std_error"] is None


@pytest.mark.parametrize("epochs", [1, 2])
def test_sampled_tasks_have_means_with_errors_given_the_task(epochs):
    """They are those of a study of the task alone, with the components of all tasks."""
    data = scores(tasks=3, items=40, seed=6, epochs=epochs)
    data = data[(data["task"] != "t2") | (data["item"] % 1000 < 20)]
    found = vcomp.evals.study(data, sampled=["task"])
    table, v = found.by_task, found.components.vcomp
    by = data.groupby(["task", "model"])
    np.testing.assert_allclose(table["mean"], by["score"].mean().loc[table.index], rtol=1e-12)
    n = by["item"].nunique().loc[table.index]
    of_item = v["item"] + v.get("model:item", 0.0) + v["Residual"] / epochs
    np.testing.assert_allclose(table["std_error"], np.sqrt(of_item / n), rtol=1e-9)
    assert "Means by task (std. err. given the task)" in str(found)
    best = table.loc[("t2", found.table.index[0])]
    assert f"({display.fixed([best['std_error']], significant=2)[0]})" in str(found)
    rows = found.to_dict()["tasks"]
    assert len(rows) == len(table)
    assert rows[0]["mean"] == pytest.approx(table["mean"].iloc[0])
    with pytest.raises(vcomp.PlanError, match="several tasks that are all there is"):
        found.multivariate  # noqa: B018


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
    with pytest.raises(vcomp.PlanError, match="'m0' is the only model: nothing is compared"):
        found.worse_than("m0")


def test_a_model_that_is_always_right_has_an_error():
    data = scores()
    data.loc[data["model"] == "m3", "score"] = 1.0
    found = vcomp.evals.study(data).table
    assert (found["std_error"] > 0.0).all()
    assert found.loc["m3", ["mean", "high"]].tolist() == pytest.approx([1.0, 1.0], rel=1e-9)
    graded = vcomp.evals.study(data.assign(score=2.0 * data["score"])).table
    assert graded.loc["m3", "high"] > 2.0


@pytest.mark.parametrize("cov_type", ["model", "robust", None])
def test_models_that_are_always_right_and_wrong_have_errors(cov_type):
    data = scores(items=40)
    data.loc[data["model"].isin(["m2", "m3"]), "score"] = 1.0
    data.loc[data["model"] == "m1", "score"] = 0.0
    found = vcomp.evals.study(data, cov_type=cov_type)
    assert (found.table["std_error"] > 0.0).all()
    assert (found.comparisons.table["std_error"] > 0.0).all()
    assert found.table.loc["m2", "low"] < 1.0
    assert found.table.loc["m1", "high"] > 0.0
    # Those that are always right have one rank, and are the best with equal probability.
    assert found.table.loc[["m2", "m3"], "rank"].tolist() == [1, 1]
    assert found.table.loc[["m2", "m3"], "p_best"].tolist() == pytest.approx([0.5, 0.5], abs=0.01)


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
    assert "the variation of repeated runs cannot be separated from model:item" in said
    repeated = printed_words(vcomp.evals.study(scores(epochs=2)))
    assert "epoch numbers repetitions of the same sample" in repeated
    assert "cannot be separated" not in repeated


def test_data_of_weighted_tasks_find_what_the_page_says():
    """Against drawn scores of two tasks, of which one has few items, and Tukey's test."""
    wide, few, k = 120, 12, 4
    data = scores(models=k, tasks=2, items=wide, seed=3)
    data = data[(data["task"] == "t0") | (data["item"] < 1000 + few)]
    df = (k - 1) * (wide + few - 2)
    bound, of_normal = stats.studentized_range.isf(0.05, k, [df, 1e6]) / np.sqrt(2.0)
    for weights in (None, {"t0": 3.0, "t1": 1.0}, "items"):
        found = vcomp.evals.study(data, task_weights=weights)
        w = np.array([0.5, 0.5] if weights is None else list(found.task_shares.values()))
        by_task = [
            data.loc[data["task"] == t].pivot(index="model", columns="item", values="score")
            for t in ("t0", "t1")
        ]
        left = [
            (y - y.mean(axis=0)).sub((y - y.mean(axis=0)).mean(axis=1), axis=0).to_numpy()
            for y in by_task
        ]
        noise = sum((e**2).sum() for e in left) / df
        se = np.sqrt(2.0 * noise * (w**2 / [wide, few]).sum())
        difference = found.to_dict()["data"]["difference"]
        assert stats.nct.sf(bound, df, difference / se) == pytest.approx(0.8, abs=1e-6)
        # The weights are those of the plan of the data, and of as many items in each task.
        of_item = 2.0 * found.components.vcomp["Residual"]
        own = found.plan.quantity("se_difference")["estimate"].item()
        expected = np.sqrt(of_item * (w**2 / [wide, few]).sum())
        assert own == pytest.approx(expected, rel=1e-9)
        gap = 0.1
        said = needed(found, gap)
        n = int(re.search(r"([\d,]+) items in each task", said)[1].replace(",", ""))
        of_n = np.sqrt(of_item * (w**2).sum() / np.array([n - 1, n]))
        powers = stats.nct.sf(of_normal, 1e6, gap / of_n)
        assert powers[0] < 0.801
        assert powers[1] > 0.799
        assert "with task" not in said
    rng = np.random.default_rng(5)
    true, draws = np.array([0.0, 0.0, 0.0, difference]), 2000
    drawn = [true[:, None] + rng.normal(0, np.sqrt(noise), (draws, k, n)) for n in (wide, few)]
    means = sum(v * y.mean(axis=2) for v, y in zip(w, drawn, strict=True))
    left = [y - y.mean(axis=1, keepdims=True) for y in drawn]
    squares = sum(((y - y.mean(axis=2, keepdims=True)) ** 2).sum((1, 2)) for y in left)
    errors = np.sqrt(2.0 * squares / df * (w**2 / [wide, few]).sum())
    share = np.mean((means[:, 3] - means[:, 0]) / errors > bound)
    assert share == pytest.approx(0.8, abs=0.03)


def test_all_tasks_are_planned_and_paid_for():
    data = scores(models=3, tasks=2, items=60, seed=3)
    data = data[(data["task"] == "t0") | (data["item"] < 1005)]
    for weights in (None, {"t0": 9.0, "t1": 1.0}):
        found = vcomp.evals.study(data, task_weights=weights, prices={"call": 1.0}, budget=600)
        said = " ".join(found.next_data)
        assert (
            "of which 195 are spent, is best spent on 2 tasks and 100 items in each task" in said
        )
        assert "for 600: add 40 items to t0 and 95 items to t1. Then Tukey's" in said
        w = np.array([0.5, 0.5]) if weights is None else np.array([0.9, 0.1])
        se = np.sqrt(2.0 * found.components.vcomp["Residual"] * (w**2).sum() / 100)
        error = found.allocation.best.study.quantity("se_difference")["estimate"].item()
        assert error == pytest.approx(se, rel=1e-9)
        assert found.to_dict()["better"]["sizes"] == {"item": 100.0, "task": 2.0}


def test_fixed_facets_of_any_name_have_equal_weights_in_plans():
    data = scores(models=3, tasks=2, items=60, seed=3).rename(columns={"task": "language"})
    data = data[(data["language"] == "t0") | (data["item"] < 1005)]
    found = vcomp.evals.study(data, fixed=["language"])
    error = found.plan.quantity("se_difference")["estimate"].item()
    of_item = 2.0 * found.components.vcomp["Residual"]
    assert error == pytest.approx(np.sqrt(of_item * (1 / 60 + 1 / 5)) / 2.0, rel=1e-9)


def test_which_differences_are_real_is_printed():
    data = scores()
    found = vcomp.evals.study(data)
    means = data.groupby("model")["score"].mean()
    said = str(found)
    assert "Differences by Tukey's test of all 6 pairs" in said
    p = found.comparisons.matrix("p_adjusted")
    order = found.table.index.tolist()
    for k, a in enumerate(order):
        for b in order[k + 1 :]:
            row = next(line for line in said.splitlines() if line.startswith(f"{a} − {b}"))
            assert float(row.split()[3]) == pytest.approx(means[a] - means[b], abs=1e-4)
            assert row.rstrip().endswith("*") == (p.loc[a, b] <= 0.05)
    row = found.comparisons.table.iloc[0]
    low, high = sorted([-row["low"], -row["high"]])
    assert display.short_intervals([low], [high])[0] in said
    many = vcomp.evals.study(scores(models=6))
    lines = [line for line in str(many).splitlines() if " − " in line]
    neighbours = zip(many.table.index[:-1], many.table.index[1:], strict=True)
    assert [line.split()[0:3:2] for line in lines] == [list(pair) for pair in neighbours]
    assert "all 15 pairs are in the table of comparisons" in printed_words(many)
    assert "Differences" not in str(vcomp.evals.study(data[data["model"] == "m1"]))


def test_a_component_of_zero_is_named_with_its_limit():
    data = scores(tasks=3, items=40, seed=6)
    found = vcomp.evals.study(data, sampled=["task"])
    assert found.sources["variance"]["model:task"] == 0.0
    high = found.components.quantity("model:task").high
    said = printed_words(found)
    assert "Estimated at 0, and a variance in the tests and plans: model:task (u" in said
    assert f"(upper limit {display.number(high)})" in said
    # The data find what the comparisons find, with their few degrees of freedom.
    pair = found.comparisons.table.sort_values("std_error").iloc[3]
    bound = stats.studentized_range.isf(0.05, 4, pair["df"]) / np.sqrt(2.0)
    shift = found.to_dict()["data"]["difference"] / pair["std_error"]
    assert pair["df"] < 10
    assert stats.nct.sf(bound, pair["df"], shift) == pytest.approx(0.8, abs=1e-6)
    assert found.roles.residual == "model:item"
    assert "A score is an estimate for tasks like these" in said


def test_a_pair_that_is_open_is_planned_when_the_best_is_clear():
    data = scores(models=4, items=60, seed=1)
    best = data[data["model"] == "m3"].assign(model="m9")
    best["score"] = (np.arange(60) % 12 > 0).astype(float)
    found = vcomp.evals.study(pd.concat([data[data["model"] < "m3"], best]))
    assert found.ahead == ("m9",)
    first, second = found.open_pair
    rows = found.comparisons.table
    row = rows[rows["first"].isin([first, second]) & rows["second"].isin([first, second])]
    assert not row["significant"].item()
    assert found.gap == pytest.approx(abs(row["difference"].item()), rel=1e-9)
    assert f"{first} and {second} differ by" in printed_words(found)


@pytest.mark.parametrize(("test", "words"), [
    ("t", "the t-test of 6 pairs, with Holm's correction, finds"),
    ("max-t", "the max-t test of all 6 pairs finds"),
])  # fmt: skip
def test_the_test_that_is_planned_is_that_of_the_page(test, words):
    found = vcomp.evals.study(scores(), test=test, alpha=0.01)
    pair = found.comparisons.table.iloc[0]
    shift = found.to_dict()["data"]["difference"] / pair["std_error"]
    bound = stats.t.isf(0.01 / 12, pair["df"])
    if test != "t":
        bound = stats.studentized_range.isf(0.01, 4, pair["df"]) / np.sqrt(2.0)
    assert stats.nct.sf(bound, pair["df"], shift) == pytest.approx(0.8, abs=1e-6)
    assert words in printed_words(found)
    two = vcomp.evals.study(scores(models=2))
    assert "With data like these the t-test finds" in printed_words(two)


def test_what_to_add_has_the_power():
    data = scores(items=20, prompts=4, seed=5)
    found = vcomp.evals.study(data)
    gap = abs(found.table["mean"].iloc[0] - found.table["mean"].iloc[1])
    said = found.next_data
    assert "with power 0.8" in said[0]
    goal = {"difference": gap, "n_objects": 4, "test": "tukey"}
    needed = found.plan.required(facet=noisiest(found), **goal)
    if np.isfinite(needed.n):
        assert str(needed) in said[1]
    else:
        assert "needs more of all" in said[1]


def test_logs_are_read_and_compared():
    with pytest.raises(vcomp.DataError, match="several metrics; name one, metric=… of 'acc'"):
        vcomp.evals.study(LOGS / "lm_eval_0.4.13")
    logs = vcomp.evals.read(LOGS / "lm_eval_0.4.13")
    found = vcomp.evals.study(logs, metric="acc")
    of_acc = logs.table[logs.table["metric"] == "acc"]
    means = of_acc.groupby("model")["score"].mean().loc[found.table.index]
    assert found.table["mean"].to_numpy() == pytest.approx(means.to_numpy(), rel=1e-10)
    assert repr(found) == f"<EvalStudy: 2 models: {of_acc['item'].nunique()} items>"
    of_scores, of_ranks = found.plot()
    assert of_scores.get_xlabel().startswith("mean of the model, 95 % interval")
    assert of_ranks.get_xlabel().startswith("rank of the model")
    names = [[label.get_text() for label in ax.get_yticklabels()] for ax in (of_scores, of_ranks)]
    assert names == [found.table.index.tolist()] * 2
    (bars, *_) = of_scores.collections
    ends = [tuple(x for x, _ in bar) for bar in bars.get_segments()]
    np.testing.assert_allclose(ends, found.table[["low", "high"]].to_numpy())


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (lambda: scores().drop(columns="item"), {}, r"nothing is sampled: .*sampled=\[…\]"),
        (
            lambda: scores(epochs=2).rename(columns={"epoch": "heat"}),
            {},
            "column 'heat' separates",
        ),
        (lambda: scores(), {"system": "mdel"}, r"no column 'mdel' \(did you mean 'model'"),
        (lambda: scores(), {"sampled": ["model"]}, "column 'model' has two roles"),
        (lambda: scores(epochs=2), {"sampled": ["epoch"]}, "'epoch' numbers repetitions, whose"),
        (lambda: scores(), {"sampled": 3}, "sampled is a list of columns, not 3"),
        (lambda: scores(), {"metric": "acc"}, "there is no column 'metric' to choose from"),
        (lambda: scores().assign(metric="f1"), {"metric": "acc"}, "no metric 'acc'; there are"),
        (lambda: scores().assign(score=1.0), {}, "all scores are 1: they show neither"),
        (lambda: of_two(0.0), {}, "differ by the same amount on every item.* under two names"),
        (lambda: of_two(1.0), {}, "differ by the same amount on every item"),
        (lambda: of_two(0.0)[4:], {}, "are sums of effects of model and item, without a rest"),
        (lambda: scores(models=1), {"prices": {"item": 1}, "budget": 9}, "and 'm0' is alone"),
        (
            lambda: of_many(),
            {},
            "1,001 models are too many to be compared in pairs, of at most 1,000",
        ),
        (lambda: scores(), {"alpha": 2}, "alpha must be between 0 and 1"),
        (lambda: scores(), {"test": "fdr_bh"}, "test must be 't', 'tukey' or 'max-t'"),
        (lambda: scores(), {"prices": 3}, "prices are a mapping such as"),
        (lambda: scores(), {"prices": {"itm": 3}}, r"per 'itm'.* \(did you mean 'item'\?\)"),
        (lambda: scores(), {"prices": {"item": -1}}, "the price per item must be a number from 0"),
        (lambda: scores(), {"budget": 10}, "a budget needs prices, such as prices="),
        (lambda: scores(), {"prices": {"item": 1}, "budget": "a"}, "the budget is a number above"),
        (
            lambda: scores(),
            {"margin": 2},
            "margin=2 is not less than the largest difference of scores, which are from 0 to 1",
        ),
        (lambda: scores(), {"margin": 0.0}, "margin must be a difference above 0, not 0.0"),
        (lambda: scores(models=1), {"margin": 0.1}, "a margin is of differences, and 'm0' is"),
        (lambda: scores(), {"model_prices": {"m0": 1.0}}, "prices of models need a margin"),
        (lambda: scores(), {"margin": 0.1, "model_prices": 3}, "model_prices are a mapping such"),
        (
            lambda: scores(),
            {"margin": 0.1, "model_prices": {"mo": 1.0}},
            "a price of 'mo', which has no scores; there are 'm0', 'm1', 'm2', 'm3'",
        ),
        (
            lambda: scores(),
            {"margin": 0.1, "model_prices": {"m0": -1.0}},
            "the price of 'm0' must be a number from 0, not -1.0",
        ),
        (
            lambda: scores(),
            {"margin": 0.1, "model_prices": {"m0": 1.0, "m2": 1.0}},
            "prices of models lack 'm1', 'm3'; give the price of each model",
        ),
    ],
)
def test_what_is_refused(data, options, words):
    with pytest.raises(vcomp.VcompError, match=words):
        vcomp.evals.study(data(), **options)


def test_what_refusals_advise_leads_on():
    data = scores(epochs=2).rename(columns={"epoch": "heat"})
    assert "heat" in vcomp.evals.study(data, sampled=["heat"]).roles.sampled
    assert "heat" in vcomp.evals.study(data, fixed="heat").roles.fixed
    one = vcomp.evals.study(data, where={"heat": "1"})
    assert one.roles.residual == "model:item"
    assert one.table.equals(vcomp.evals.study(data[data["heat"] == 1]).table)


def test_rows_of_some_levels_are_compared():
    data = scores(models=4, tasks=3)
    kept = data[(data["model"] != "m3") & (data["task"] != "t2")]
    where = {"model": ["m0", "m1", "m2"], "task": ("t0", "t1")}
    found = vcomp.evals.study(data, where=where)
    pd.testing.assert_frame_equal(found.table, vcomp.evals.study(kept).table)
    many = pd.DataFrame({"model": np.arange(3003) // 3, "item": np.arange(3003) % 3})
    many["score"] = np.random.default_rng(1).random(3003)
    with pytest.raises(vcomp.DataError, match="at most 1,000: leave some out by where=…"):
        vcomp.evals.study(many)
    assert len(vcomp.evals.study(many, where={"model": [1, 2, 3]}).table) == 3
    for wrong, words in (
        ({"modl": "m0"}, r"no column 'modl' \(did you mean 'model'"),
        ({"model": "m9"}, r"column 'model' has no level 'm9'.*; it has 'm0', 'm1'"),
        ({"task": []}, r"no row has all of where=\{'task': \[\]\}"),
        ("m0", "where is a mapping such as"),
    ):
        with pytest.raises(vcomp.PlanError, match=words):
            vcomp.evals.study(data, where=wrong)


@pytest.mark.parametrize("levels", [range(2, 4), np.array([2, 3]), pd.Series([2, 3]), {2, 3}])
def test_levels_of_any_list_are_compared(levels):
    data = scores(models=3, items=12)
    data["model"] = data["model"].str[1:].astype(int) + 1
    found = vcomp.evals.study(data, where={"model": levels})
    pd.testing.assert_frame_equal(found.table, vcomp.evals.study(data[data["model"] > 1]).table)


def test_levels_of_logs_are_given_by_columns(tmp_path):
    scores(models=2, items=12).to_csv(tmp_path / "scores.csv", index=False)
    for logs in (tmp_path / "scores.csv", vcomp.evals.read(tmp_path / "scores.csv")):
        for function in (vcomp.evals.study, vcomp.evals.judges, vcomp.evals.repetitions):
            with pytest.raises(vcomp.PlanError, match="where is a mapping such as"):
                function(logs, where="m0")


def test_models_that_lack_samples_are_named():
    data = scores(models=3, tasks=2, items=30)
    said = "Of 60 items these lack scores: m1 50. If a model lacks those where it would be wrong"
    kept = data[(data["model"] != "m1") | (data["item"] % 1000 < 5)]
    found = vcomp.evals.study(kept)
    assert found.left_out[0].startswith(said)
    assert said in printed_words(found)
    assert vcomp.evals.study(data).left_out == ()
    crossed = scores(models=3, items=20, prompts=3, missing=0.2)
    every = len(crossed[["item", "prompt"]].drop_duplicates())
    n = every - crossed.groupby("model").size()
    ordered = n.sort_values(ascending=False, kind="stable")
    listed = ", ".join(f"{name} {k}" for name, k in ordered.items())
    words = f"Of {every} combinations of item and prompt these lack scores: {listed}."
    assert vcomp.evals.study(crossed).left_out[0].startswith(words)
    levels = kept.assign(model=kept["model"].astype("category"))
    chosen = vcomp.evals.study(levels, where={"model": ["m1", "m2"]})
    assert chosen.left_out[0].startswith(said)
    other = data[data["model"] != "m2"]
    other = other.assign(item=other["model"] + other["item"].astype(str))
    assert vcomp.evals.study(other).left_out == ()


def test_samples_without_a_score_are_counted(tmp_path):
    data = scores(models=2, items=12)
    data.loc[(data["model"] == "m0") & (data["item"].astype(str) == "3"), "score"] = np.nan
    data.to_csv(tmp_path / "scores.csv", index=False)
    found = vcomp.evals.study(tmp_path / "scores.csv")
    assert found.left_out[0].startswith("1 row has no score: m0 1.")
    assert found.left_out[0] in printed_words(found)
    assert found.to_dict()["left_out"] == list(found.left_out)
    other = vcomp.evals.study(tmp_path / "scores.csv", where={"model": "m1"})
    assert other.left_out == ()
    with (tmp_path / "scores.jsonl").open("w") as file:
        file.writelines(f'{{"model": "m", "item": {i}, "score": {i % 2}}}\n' for i in range(9))
        file.write('{"model": "m", "it')
    logs = vcomp.evals.read(tmp_path / "scores.jsonl", unreadable="skip")
    assert vcomp.evals.study(logs).left_out == ("1 sample cannot be read.",)


def test_models_with_the_same_score_have_a_plan():
    data = scores(models=2, tasks=2, items=20)
    other = data[data["model"] == "m0"]
    rng = np.random.default_rng(5)
    # The same scores in another order have the same means.
    moved = other.assign(
        model="m1", score=other.groupby("task")["score"].transform(lambda s: rng.permutation(s))
    )
    found = vcomp.evals.study(pd.concat([other, moved]))
    said = found.next_data[-1]
    assert "m0 and m1 have the same score. With 40 items in each task instead of 20," in said
    plan = found.components.dstudy(object="model", fixed="task", item=40, task=2)
    assert display.number(plan.detectable(0.8)["difference"].item()) in said


def test_repetitions_that_hardly_differ_are_not_planned():
    """One run of each needs about as many items: more runs are not advised."""
    data = scores(models=3, items=60, seed=4)
    runs = pd.concat([data.assign(seed=k) for k in (1, 2)], ignore_index=True)
    runs.loc[7, "score"] = 1.0 - runs.loc[7, "score"]
    found = vcomp.evals.study(runs)
    assert "are needed" in " ".join(found.next_data)
    assert "with repetitions = 1." in " ".join(found.next_data)
    assert found.next_data[-1] == "Only these two models need more scores."
    # Here the runs are all that differs.
    noisy = runs.assign(score=np.random.default_rng(2).random(len(runs)))
    assert "with repetitions = 2." in " ".join(vcomp.evals.study(noisy).next_data)


def test_seeds_number_repetitions():
    data = scores(epochs=2)
    seeded = data.rename(columns={"epoch": "seed"})
    found = vcomp.evals.study(seeded)
    pd.testing.assert_frame_equal(found.table, vcomp.evals.study(data).table)
    assert "seed numbers repetitions of the same sample." in str(found)
    assert "seed" in vcomp.evals.study(seeded, sampled=["seed"]).roles.sampled


def test_tasks_that_are_forms_of_the_same_items_are_prompts():
    data = scores(items=12, prompts=3)
    forms = data.rename(columns={"prompt": "task"})
    found = vcomp.evals.study(forms, columns={"prompt": "task"})
    pd.testing.assert_frame_equal(found.table, vcomp.evals.study(data).table)
    said = "if they are forms of the same items, columns={'prompt': 'task'}."
    assert said in " ".join(str(vcomp.evals.study(forms)).split())
    with pytest.raises(vcomp.DataError, match=r"no column 'tsk' \(did you mean 'task'"):
        vcomp.evals.study(forms, columns={"prompt": "tsk"})
    with pytest.raises(vcomp.DataError, match="column 'item' exists and varies: 'task' cannot"):
        vcomp.evals.study(forms, columns={"item": "task"})


def test_repetitions_with_equal_scores_are_no_noise():
    data = scores(prompts=2)
    twice = pd.concat([data.assign(epoch=e) for e in (1, 2)], ignore_index=True)
    found, once = vcomp.evals.study(twice), vcomp.evals.study(data)
    pd.testing.assert_frame_equal(found.table, once.table)
    assert "all repetitions of a sample have the same score" in printed_words(found)
    assert "cannot be separated" not in printed_words(found)


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
    data = data[(data["task"] == "t0") | (data["item"] < 1010)]
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


PRICES = {"item": 1.0, "prompt": 5.0, "call": 0.02}


@pytest.fixture(scope="module")
def of_three_prompts():
    return scores(models=5, tasks=2, items=30, prompts=3, epochs=2, missing=0.1)


def of_judges(seed=0):
    """Return scores of judges of two runs, whose models do not differ in what items they like."""
    rng = np.random.default_rng(seed)
    n, m, j, e = 40, 3, 3, 2
    item = rng.normal(0.0, 0.9, n)[:, None, None, None]
    judge = rng.normal(0.0, 0.2, j)[:, None]
    answer = rng.normal(0.0, 0.4, (n, m, 1, e))
    y = item + judge + answer + rng.normal(0.0, 0.6, (n, m, j, e))
    codes = np.indices(y.shape).reshape(4, -1)
    columns = dict(zip(("item", "model", "judge", "epoch"), codes, strict=True))
    return pd.DataFrame({**columns, "score": y.ravel()}).assign(
        model=lambda t: "m" + t["model"].astype(str)
    )


def test_a_budget_adds_to_the_data_and_takes_no_estimate_of_zero_as_known():
    data, prices = of_judges(), {"item": 1.0, "call": 0.01, "judgement": 0.02}
    found = vcomp.evals.study(data, prices=prices, budget=100)
    v, high = found.components.vcomp, found.components.conf_int(alpha=0.4)[1]
    assert v["model:item"] == 0.0
    v = {name: x if x > 0.0 else high[f"var({name})"] for name, x in v.items()}
    # All designs that have the present one in them, by the formula of the error.
    i, j, e = np.meshgrid(np.arange(40, 101), np.arange(3, 30), np.arange(2, 60), indexing="ij")
    cost = i + 0.03 * i * e + 0.06 * i * j * e
    divisors = {
        "model:item": i, "model:judge": j, "model:item:judge": i * j, "model:item:epoch": i * e,
        "Residual": i * j * e,
    }  # fmt: skip
    error = sum(v.get(name, 0.0) / n for name, n in divisors.items())
    best = np.argmin(np.where(cost <= 100.0, error, np.inf))
    sizes = {"item": i.flat[best], "judge": j.flat[best], "epoch": e.flat[best]}
    assert found.allocation.best.sizes == sizes
    assert found.allocation.best.study.columns["rel_err_var"][0] == pytest.approx(
        error.flat[best], rel=1e-10
    )
    words = printed_words(found)
    limit = vcomp.display.number(high["var(model:item)"], 2)
    assert f"The sizes are chosen with σ²(model:item) = {limit}" in words
    # What is found is by the estimates, as of the present data.
    planned = found.components.dstudy(object="model", sizes={k: int(n) for k, n in sizes.items()})
    detected = planned.detectable(n_objects=3, test="tukey")["difference"].item()
    assert f"finds a difference of {detected:.4g}." in words
    assert found.page.better.difference == pytest.approx(detected, rel=1e-12)
    two = vcomp.evals.study(data.query("model != 'm2'"), prices=prices)
    assert two.gap > 0.0
    v = two.components.vcomp
    said = re.search(r"With (σ².*), their upper limits .* power is ([\d.]+)\.",
                     " ".join(two.next_data))  # fmt: skip
    for name, limit in re.findall(r"σ²\(([\w:]+)\) = ([\d.]+)", said[1]):
        assert v[name] == 0.0 < float(limit)
    assert 0.05 < float(said[2]) < 0.8


def test_the_page_says_what_a_budget_adds(of_three_prompts):
    found = vcomp.evals.study(of_three_prompts, prices=PRICES, budget=150)
    best = found.allocation.best
    n = best.sizes
    cost = 2 * n["item"] + 5 * n["prompt"] + 0.2 * n["item"] * n["prompt"] * n["replicate"]
    assert best.cost == pytest.approx(cost, rel=1e-12)
    assert best.cost <= 150.0
    said = printed_words(found)
    paid = 60 + 15 + 0.02 * len(of_three_prompts)
    assert f"At these prices the data cost {paid:g}." in said
    assert (
        f"A budget of 150 for the whole, of which {paid:g} are spent, is best spent on 2 tasks, "
        f"{n['item']} items in each task" in said
    )
    assert (n["item"] - 30, n["prompt"] - 3, n["replicate"] - 2) == (1, 2, 0)
    added = "add 1 item to t0, 1 item to t1 and 2 prompts. Then Tukey's test of all 10 pairs finds"
    assert added in said
    sizes = {f: int(n[f]) for f in ("task", "item", "prompt", "replicate")}
    plan = found.components.dstudy(object="model", fixed="task", sizes=sizes)
    detected = plan.detectable(n_objects=5, test="tukey")["difference"].item()
    assert f"finds a difference of {detected:.4g}." in said


def test_the_cheapest_data_that_find_the_difference_of_the_best(of_three_prompts):
    found = vcomp.evals.study(of_three_prompts, prices=PRICES)
    gap = found.table["mean"].iloc[0] - found.table["mean"].iloc[1]
    best = found.allocation.best
    assert best.study.power(gap, n_objects=5, test="tukey")["power"].item() >= 0.8
    assert "The cheapest data that find it with power 0.8 are 2 tasks, " in printed_words(found)
    few = vcomp.evals.study(of_three_prompts, prices={"item": 1.0}, budget=100)
    # What has no price stays as it is.
    assert few.allocation.best.sizes == {"task": 2, "item": 50, "prompt": 3, "replicate": 2}
    assert vcomp.evals.study(of_three_prompts).allocation is None
    poor = vcomp.evals.study(of_three_prompts, prices=PRICES, budget=107)
    assert "The budget of 107 is for the whole: it adds nothing." in printed_words(poor)
    assert poor.allocation is None
    assert poor.to_dict()["better"] is None
    # A tenth of the scores is missing: the whole costs more than the data.
    almost = vcomp.evals.study(of_three_prompts, prices=PRICES, budget=108)
    assert "The budget of 108 is too small: the cheapest design" in printed_words(almost)
    with pytest.raises(vcomp.PlanError, match="no price is of anything that can be added"):
        vcomp.evals.study(of_three_prompts, prices={"task": 1.0}).allocation  # noqa: B018


@cache
def tukeys_t(models):
    """Return the critical t of Tukey's test of 5 %, by the inverse of its degrees of freedom."""
    inverse = np.linspace(1e-9, 0.1, 12)
    bounds = [stats.studentized_range.isf(0.05, models, 1.0 / x) / np.sqrt(2.0) for x in inverse]
    return CubicSpline(inverse, bounds)


def power_of_pair(found, gap, tasks, items, prompts, runs, models=5):
    """Return the power of Tukey's test in complete data, by mean squares and the noncentral t.

    Satterthwaite's degrees of freedom are those of (P + I − R)/n, with P, I and R the mean squares
    of models × prompts, models × items in tasks, and of both.
    """
    v = found.components.vcomp.clip(lower=0.0)
    R = v["Residual"] + runs * v["model:item:prompt"]
    I = R + runs * prompts * v["model:item"]  # noqa: E741
    P = R + runs * items * v["model:prompt:task"] + runs * items * tasks * v["model:prompt"]
    n = runs * tasks * items * prompts
    within = (models - 1) * tasks * (items - 1)
    parts = (P, (models - 1) * (prompts - 1)), (I, within), (R, within * (prompts - 1))
    variance = (P + I - R) / n
    df = 2.0 * variance**2 / sum(2.0 * (square / n) ** 2 / of for square, of in parts)
    return stats.nct.sf(tukeys_t(models)(1.0 / df), df, gap / np.sqrt(2.0 * variance))


def test_a_small_difference_needs_more_of_all(of_three_prompts):
    """Of the prices and without them the plan is one: the cheapest, however large."""
    gap = 0.004
    found = vcomp.evals.study(of_three_prompts, prices=PRICES)
    best = allocation(found, gap).best
    power = best.study.power(gap, n_objects=5, test="tukey")["power"].item()
    assert 0.8 <= power < 0.805
    assert power == pytest.approx(power_of_pair(found, gap, *best.sizes.values())[()], abs=2e-5)
    items, prompts, runs = np.meshgrid(np.arange(20_000, 26_000, 100), range(8, 25), (1, 2))
    cost = 2.0 * items + 5.0 * prompts + 0.2 * items * prompts * runs
    enough = power_of_pair(found, gap, 2, items, prompts, runs) >= 0.8
    # Sizes are found up to a tenth of a per cent of the difference, and items here by hundreds.
    assert 0.998 < best.cost / cost[enough].min() < 1.005
    liked = vcomp.evals.study(scores(items=20, prompts=4, seed=5))
    assert liked.sources["variance"]["model:prompt"] > 0.0
    said = needed(liked, 0.01)
    assert said.startswith("Power 0.8 needs more of all; the fewest scores are of ")
    sizes = {f: int(re.search(rf"([\d,]+) {f}s", said)[1].replace(",", ""))
             for f in ("item", "prompt")}  # fmt: skip
    planned = liked.components.dstudy(object="model", sizes=sizes)
    power = planned.power(0.01, n_objects=4, test="tukey")
    assert 0.8 <= power["power"].item() < 0.81


def test_the_cheapest_data_on_what_is_unknown():
    data = scores(models=6, items=40).assign(prompt="p", judge="j")
    prices = {"prompt": 3.0, "item": 1.0, "call": 0.02, "judgement": 0.01}
    found = vcomp.evals.study(data, prices=prices)
    prompt, judge, runs = found.unknown
    assert (prompt.facet, judge.facet, runs.facet) == ("prompt", "judge", "repetition")
    # A call is not paid for again if its answer is judged again.
    assert judge.cost == pytest.approx(0.01 * judge.scores, rel=1e-12)
    assert prompt.cost == pytest.approx(3.0 * prompt.levels + 0.03 * prompt.scores, rel=1e-12)
    assert runs.cost == pytest.approx(0.03 * runs.scores, rel=1e-12)
    assert prompt.scores == 6 * prompt.levels * prompt.size
    assert f"{prompt.levels} more prompts for {prompt.size} items" in printed_words(found)
    v = found.components.vcomp
    noise = v["Residual"] + v.get("model:item", 0.0)

    def power(levels, items):
        df, rest = 5 * levels, 5 * levels * (items - 1)
        ratio = 1.0 + items * (noise / 40) / noise
        return stats.f.sf(stats.f.isf(0.05, df, rest) / ratio, df, rest)

    assert power(prompt.levels, prompt.size) >= 0.8
    every = [(3.0 * p + 0.18 * p * q, p, q) for p in range(1, 31) for q in range(2, 41)
             if power(p, q) >= 0.8]  # fmt: skip
    assert min(every) == pytest.approx((prompt.cost, prompt.levels, prompt.size), rel=1e-12)
    free = vcomp.evals.study(data).unknown[0]
    assert np.isnan(free.cost)
    assert free.scores == min(6 * p * q for _, p, q in every)
    graded = vcomp.evals.study(data.assign(score=data["score"] + 0.1 * data["item"]))
    # The variance of r pairs of normal scores has a standard error of its √(2/r).
    assert graded.unknown[-1].scores == 32
    alone = vcomp.evals.study(data[data["model"] == "m1"], prices=prices)
    assert alone.unknown[0].cost == pytest.approx(3.0 + 40 * 0.03, rel=1e-12)


def test_the_cheapest_model_of_those_within_a_margin():
    data = scores(models=4, items=300)
    costs = {"m0": 0.5, "m1": 4.0, "m2": 3.0, "m3": 8.0}
    found = vcomp.evals.study(data, margin=0.2, model_prices=costs)
    shown = found.comparisons.noninferior(0.2)["noninferior"]
    assert found.noninferior == tuple(shown.index[shown]) == ("m3", "m2", "m1")
    assert found.cheapest == ("m2",)
    said = (
        "m2, at 3, is the cheapest of the 3 models shown to be less than 0.2 worse than the best."
    )
    assert found.same_quality == said
    assert said in printed_words(found)
    page = json.loads(found.to_json())
    assert (page["margin"], page["cheapest"]) == (0.2, ["m2"])
    assert page["noninferior"] == ["m3", "m2", "m1"]
    assert EvalPage.from_json(found.to_json()) == found.page

    def said_of(margin, **prices):
        made = vcomp.evals.study(data, margin=margin, model_prices=prices or None)
        return made.same_quality

    assert said_of(0.2) == "m3, m2 and m1 are shown to be less than 0.2 worse than the best."
    assert said_of(0.2, **{**costs, "m1": 3.0}) == (
        "m2 and m1, at 3 each, are the cheapest of the 3 models shown to be less than 0.2 worse "
        "than the best."
    )
    assert said_of(0.1) == "m3 is shown to be less than 0.1 worse than the best."
    assert said_of(0.1, **costs) == (
        "m3, at 8, is the only model shown to be less than 0.1 worse than the best."
    )
    few = vcomp.evals.study(scores(models=2), margin=0.001)
    assert few.same_quality == "No model is shown to be less than 0.001 worse than the best."
    assert few.cheapest == ()
    plain = vcomp.evals.study(data)
    assert (plain.noninferior, plain.cheapest, plain.same_quality) == ((), (), "")


def test_levels_that_are_numbers_have_prices():
    data = scores(models=2, items=100)
    data["model"] = data["model"].str[1:].astype(int)
    found = vcomp.evals.study(data, margin=0.9, model_prices={0: 1.0, 1: 2.0})
    assert found.cheapest == (0,)
    assert vcomp.evals.study(data, margin=0.9, model_prices={"0": 1, "1": 2}).cheapest == (0,)


def test_the_page_in_json(of_three_prompts, tmp_path):
    data = of_three_prompts.assign(judge="j", model=of_three_prompts["model"].str[1:].astype(int))
    found = vcomp.evals.study(data, prices=PRICES, budget=150)
    plain = json.loads(found.to_json(tmp_path / "page.json"))
    assert plain == found.to_dict() == json.loads((tmp_path / "page.json").read_text("utf-8"))
    assert {"vcomp": "EvalStudy", "format": 1}.items() <= plain.items()
    assert plain["verdict"] == found.verdict
    assert plain["title"] == "5 models: 2 tasks, 60 items, 3 prompts"
    assert plain["ahead"] == list(found.ahead)
    scores_ = pd.DataFrame(plain["scores"]).set_index("model")
    of_models = found.table.set_axis(found.table.index.astype("int64"))
    pd.testing.assert_frame_equal(scores_, of_models, check_dtype=False, check_names=False)
    pairs = pd.DataFrame(plain["comparisons"])
    pd.testing.assert_frame_equal(pairs, found.comparisons.table, check_dtype=False)
    sources = pd.DataFrame(plain["sources"]).set_index("component")
    pd.testing.assert_frame_equal(sources, found.sources)
    pair = found.comparisons.table.sort_values("std_error").iloc[5]
    shift = plain["data"]["difference"] / pair["std_error"]
    bound = stats.studentized_range.isf(0.05, 5, pair["df"]) / np.sqrt(2.0)
    assert stats.nct.sf(bound, pair["df"], shift) == pytest.approx(0.8, rel=1e-6)
    assert plain["data"]["cost"] == pytest.approx(found.prices.of(found.data), rel=1e-12)
    assert plain["better"]["cost"] == pytest.approx(found.allocation.best.cost, rel=1e-12)
    assert plain["better"]["sizes"]["epoch"] == found.allocation.best.sizes["replicate"]
    assert plain["budget"] == 150
    assert plain["next_data"] == found.next_data
    assert [one["facet"] for one in plain["unknown"]] == ["judge"]
    assert plain["roles"]["sampled"] == ["item", "prompt"]
    assert EvalPage.from_json(found.to_json()) == found.page
    alone = vcomp.evals.study(data[data["model"] == 1]).to_dict()
    assert (alone["comparisons"], alone["data"], alone["better"]) == ([], None, None)


@pytest.fixture(scope="module")
def of_two_tasks():
    data = scores(models=4, tasks=2, items=30, seed=3)
    return data[(data["task"] == "t0") | (data["item"] < 1012)]


def test_scores_are_macro_averages_with_given_weights(of_two_tasks):
    weights = {"t0": 3.0, "t1": 1.0}
    found = vcomp.evals.study(of_two_tasks, task_weights=weights)
    by_task = found.by_task
    cells = of_two_tasks.groupby(["task", "model"])["score"].mean()
    assert by_task["mean"].to_numpy() == pytest.approx(cells[by_task.index].to_numpy(), rel=1e-8)
    first, second = (by_task.loc[task].loc[found.table.index] for task in ("t0", "t1"))
    mean = 0.75 * first["mean"] + 0.25 * second["mean"]
    assert found.table["mean"].to_numpy() == pytest.approx(mean.to_numpy(), rel=1e-10)
    # Tasks share no items.
    se = np.hypot(0.75 * first["std_error"], 0.25 * second["std_error"])
    assert found.table["std_error"].to_numpy() == pytest.approx(se.to_numpy(), rel=1e-10)
    pair = found.comparisons.table.iloc[0]
    r2 = found.fit.vcomp["Residual"]
    both = np.sqrt(2.0 * r2 * (0.75**2 / 30 + 0.25**2 / 12))
    assert pair["std_error"] == pytest.approx(both, rel=1e-8)
    means = found.table["mean"].astype(float)
    assert pair["difference"] == pytest.approx(means["m0"] - means["m1"], rel=1e-10)
    said = printed_words(found)
    assert "2 tasks, with the weights t0 0.75 and t1 0.25" in said
    assert "Scores by task" in said
    assert found.to_dict()["task_shares"] == {"t0": 0.75, "t1": 0.25}
    assert len(found.to_dict()["tasks"]) == 8
    alone = of_two_tasks[of_two_tasks["model"] == "m1"]
    one = vcomp.evals.study(alone, task_weights=weights).table.loc["m1", "mean"]
    assert one == pytest.approx(0.75 * cells["t0", "m1"] + 0.25 * cells["t1", "m1"], rel=1e-10)


def test_weights_of_tasks_by_their_items(of_two_tasks):
    found = vcomp.evals.study(of_two_tasks, task_weights="items")
    pooled = of_two_tasks.groupby("model")["score"].mean()
    assert found.table["mean"].to_numpy() == pytest.approx(
        pooled[found.table.index].to_numpy(), rel=1e-8
    )
    equal = vcomp.evals.study(of_two_tasks, task_weights="equal")
    pd.testing.assert_frame_equal(equal.table, vcomp.evals.study(of_two_tasks).table)
    for given, words in (
        ({"t0": 1.0}, "a weight of each task, of 't0', 't1', not"),
        ({"t0": 1.0, "t1": 0.0}, "task_weights are numbers above 0"),
        ("item", "task_weights are 'equal', 'items' or a weight"),
    ):
        with pytest.raises(vcomp.PlanError, match=words):
            vcomp.evals.study(of_two_tasks, task_weights=given)
    with pytest.raises(vcomp.PlanError, match="in a column 'task' that is not sampled"):
        vcomp.evals.study(scores(), task_weights="items")
    with pytest.raises(vcomp.PlanError, match="no column 'task' of several tasks"):
        vcomp.evals.study(scores()).by_task  # noqa: B018


def test_tasks_are_dependent_variables(of_two_tasks):
    found = vcomp.evals.study(of_two_tasks).multivariate
    assert found.variables == ("t0", "t1")
    made = vcomp.fit_multivariate(
        "score ~ (1|model) + (1|item)",
        of_two_tasks.assign(item=of_two_tasks["task"] + of_two_tasks["item"].astype(str)),
        variable="task",
    )
    assert found.matrix("model").to_numpy() == pytest.approx(
        made.matrix("model").to_numpy(), rel=1e-6
    )
    with pytest.raises(vcomp.PlanError, match="no column 'task' of several tasks"):
        vcomp.evals.study(scores()).multivariate  # noqa: B018
    alone = of_two_tasks[of_two_tasks["model"] == "m1"]
    with pytest.raises(vcomp.DataError, match="tasks do not distinguish any"):
        vcomp.evals.study(alone).multivariate  # noqa: B018


def test_a_column_with_a_plus_in_its_name_is_one_source():
    data = scores(models=4, prompts=3)
    odd = vcomp.evals.study(data.rename(columns={"prompt": "a + b"}), sampled=["a + b"])
    plain = vcomp.evals.study(data)
    names = {name.replace("prompt", "a + b") for name in plain.sources.index}
    assert set(odd.sources.index) == names
    for name, share in plain.sources["share"].items():
        assert odd.sources["share"][name.replace("prompt", "a + b")] == pytest.approx(share)
    assert noisiest(odd).replace("a + b", "prompt") == noisiest(plain)


def test_the_mean_of_one_model_whatever_tasks_are_called():
    data = scores(models=1, tasks=2, items=12, seed=4)
    share = data["task"].map({"t0": 0.25, "t1": 0.75})
    means = data.groupby("task")["score"].mean()
    for names in ({"t0": "a]:b", "t1": "C(task)[T.q"}, {"t0": 2, "t1": 10}):
        named = data.assign(task=data["task"].map(names))
        weights = {names["t0"]: 1, names["t1"]: 3}
        found = vcomp.evals.study(named).table
        weighted = vcomp.evals.study(named, task_weights=weights).table
        assert found["mean"].item() == pytest.approx(means.mean(), rel=1e-9)
        expected = (share.groupby(data["task"]).first() * means).sum()
        assert weighted["mean"].item() == pytest.approx(expected, rel=1e-9)


def test_models_that_lack_a_task_are_named():
    data = scores(models=3, tasks=2, items=8, seed=4)
    data = data[(data["model"] != "m1") | (data["task"] == "t0")]
    found = vcomp.evals.study(data)
    assert set(found.table.index) == {"m0", "m2"}
    assert found.not_compared == ("m1",)
    assert found.to_dict()["not_compared"] == ["m1"]
    said = printed_words(found)
    assert "Not compared: m1 lacks scores: a mean over all tasks is not known" in said
    assert " others that are compared; " in said or "may be as good" in said
    assert vcomp.evals.study(data, sampled=["task"]).not_compared == ()
    with pytest.raises(vcomp.DataError, match="with 'm0': m1 lacks scores: a mean over all tasks"):
        found.worse_than("m0")
    with pytest.raises(vcomp.DataError, match="no model can be compared with 'm1': m1 lacks"):
        found.worse_than("m1")
    two = vcomp.evals.study(data[data["model"] != "m1"])
    pd.testing.assert_frame_equal(two.table[["mean"]], found.table[["mean"]], rtol=0.2)
    assert two.worse_than("m2") in ((), ("m0",))
    for models in (["m0", "m1"], ["m1"]):
        some = data[data["model"].isin(models) & ((data["item"] > 1003) | (data["task"] == "t0"))]
        some = some.assign(of=np.where(some["item"] % 2, "p", "q"))
        some = some[(some["task"] == "t0") | (some["of"] == "p") | (some["model"] != models[0])]
        fixed = ["of"] if len(models) == 1 else []
        if fixed:
            rest = some.assign(task="t1")[some["of"] == "p"].assign(
                item=lambda x: x["item"] + 2000
            )
            some = pd.concat([some, rest])
        with pytest.raises(vcomp.DataError, match=f"{models[-1]} lacks scores: a mean over all"):
            vcomp.evals.study(some, fixed=fixed)


def test_scores_that_are_copies():
    data = scores(models=2, items=6, epochs=2)
    twice = pd.concat([data, data])
    with pytest.raises(vcomp.DataError, match="24 of 48 scores have the same model, item and ep"):
        vcomp.evals.study(twice)
    with pytest.raises(vcomp.DataError, match="24 of 48 scores have the same model, item and ep"):
        vcomp.evals.repetitions(twice)
    once = twice.drop_duplicates(["model", "item", "epoch"])
    assert vcomp.evals.study(once).table.equals(vcomp.evals.study(data).table)
    single = scores(models=2, items=6)
    with pytest.raises(vcomp.DataError, match="12 of 24 scores have the same model and item"):
        vcomp.evals.study(pd.concat([single, single]))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_scores_that_are_all_right_or_wrong_have_limits(value):
    """The exact interval of a binomial share."""
    data = scores(models=1, items=20).assign(score=value)
    ends = stats.binomtest(int(20 * value), 20).proportion_ci(0.9)
    limit = f"at least {ends.low:.4f}" if value else f"at most {ends.high:.4f}"
    with pytest.raises(vcomp.DataError, match=f"by 20 items, .* is {limit} \\(90 %\\)"):
        vcomp.evals.study(data, alpha=0.1)
    # The limit holds for the model with the fewest items.
    other = scores(models=1, items=30).assign(score=value, model="m1")
    with pytest.raises(vcomp.DataError, match=f"by 20 items, .* is {limit} "):
        vcomp.evals.study(pd.concat([data, other]), alpha=0.1)


def test_scores_without_errors_or_numbers():
    data = scores(models=2, items=6)
    apart = data.assign(score=(data["model"] == "m1").astype(float))
    with pytest.raises(vcomp.DataError, match=r"all scores of each model are equal: .* no errors"):
        vcomp.evals.study(apart)
    with pytest.raises(vcomp.DataError, match="scores are words, such as 'a'; give each a number"):
        vcomp.evals.study(data.assign(score="a"))
    table = vcomp.evals.study(data).table
    for kind in (object, "category", "Int64"):
        other = data.assign(score=data["score"].astype(int).astype(kind))
        pd.testing.assert_frame_equal(vcomp.evals.study(other).table, table)


def test_items_that_tasks_share_have_their_covariance_in_the_errors():
    """The error of a mean over tasks is that of the items' means over tasks."""
    rng = np.random.default_rng(5)
    m, t, i = (of.ravel() for of in np.indices((2, 3, 30)))
    value = 0.4 * m + rng.normal(size=30)[i] + rng.normal(size=(2, 30))[m, i]
    value += 0.3 * rng.normal(size=value.size)
    data = pd.DataFrame({"model": m, "task": t, "item": i, "score": value})
    found = vcomp.evals.study(data)
    of_items = value.reshape(2, 3, 30).mean(axis=1)
    paired = stats.ttest_rel(of_items[0], of_items[1])
    pair = found.comparisons.table.iloc[0]
    assert pair["std_error"] == pytest.approx(
        (of_items[0] - of_items[1]).std(ddof=1) / np.sqrt(30), rel=1e-6
    )
    assert pair["df"] == pytest.approx(29.0, rel=1e-6)
    assert pair["p_value"] == pytest.approx(paired.pvalue, rel=1e-5)
    alone = vcomp.evals.study(data[data["model"] == 1]).table["std_error"].item()
    assert alone == pytest.approx(of_items[1].std(ddof=1) / np.sqrt(30), rel=1e-6)
    said = printed_words(found)
    assert "Tasks share items: an item with the same name in several tasks is one" in said
    assert "columns={'prompt': 'task'}" in said
    # As other items they would look surer.
    apart = vcomp.evals.study(data, sampled=["task:item"])
    assert apart.comparisons.table["std_error"].item() < 0.8 * pair["std_error"]
    named = data.assign(item=data["task"].astype(str) + "/" + data["item"].astype(str))
    pd.testing.assert_frame_equal(apart.table, vcomp.evals.study(named).table)
    assert "share items" not in printed_words(apart)
    both = vcomp.evals.study(data).multivariate
    made = vcomp.fit_multivariate("score ~ (1|model) + (1|item)", data, variable="task")
    assert both.matrix("item").to_numpy() == pytest.approx(made.matrix("item").to_numpy())


def test_items_of_tasks_whose_joined_names_are_alike():
    data = scores(models=2, tasks=2, items=6)
    data["item"] = (data["item"] % 1000).astype(str)
    first = data["task"] == "t0"
    alike = data.assign(
        task=np.where(first, "a/b", "a"), item=data["item"].where(first, "b/" + data["item"])
    )
    alike = alike.assign(item=alike["item"].where(alike["item"] != "b/5", "0"))
    own = {"sampled": ["task:item"]}
    table = vcomp.evals.study(alike, **own).table
    pd.testing.assert_frame_equal(table, vcomp.evals.study(data, **own).table, rtol=1e-9)
    data.iloc[0, list(data).index("item")] = None
    with pytest.warns(vcomp.VcompWarning, match="1 of 24 rows have a missing value .item 1."):
        without = vcomp.evals.study(data, **own).table
    pd.testing.assert_frame_equal(without, vcomp.evals.study(data.iloc[1:], **own).table)
    with pytest.raises(vcomp.PlanError, match=r"no column 'tsk' \(did you mean 'task'"):
        vcomp.evals.study(data, sampled=["tsk:item"])


def test_columns_with_quotes():
    data = scores(models=2, items=6)
    odd = data.rename(columns={"model": "a`b", "item": 'it\'s "one"'})
    found = vcomp.evals.study(odd, system="a`b", sampled=['it\'s "one"']).table
    assert found["mean"].tolist() == vcomp.evals.study(data).table["mean"].tolist()


def test_boolean_models_and_tasks():
    data = scores(models=2, tasks=2, items=6)
    odd = data.assign(model=data["model"] == "m1", task=data["task"] == "t1")
    found, plain = vcomp.evals.study(odd), vcomp.evals.study(data)
    names = {"m0": False, "m1": True}
    assert found.table.index.tolist() == [names[name] for name in plain.table.index]
    np.testing.assert_allclose(found.table, plain.table, rtol=1e-9)
    assert printed_words(found).count("True") == printed_words(plain).count("m1") + 1
    means = vcomp.fit(found.roles.formula, odd).marginal_means("model", test="tukey").table
    assert len(set(means["group"])) == len(set(plain.table["rank_high"]))


def test_items_of_one_model_each_are_priced_as_items():
    data = scores(models=3, items=8)
    own = data.assign(item=data["model"] + data["item"].astype(str))
    found = vcomp.evals.study(own, prices={"item": 1, "call": 0.1}, budget=50)
    assert found.page.data.cost == pytest.approx(24 * 1.1)
    better = found.page.better
    assert better.sizes == {"item": 15.0}
    assert better.cost == pytest.approx(3 * 15 * 1.1)
    said = printed_words(found)
    assert "15 items in each model, for 49.5: add 7 items in each model. Then" in said
    assert "items in each model are needed" in printed_words(vcomp.evals.study(own))


def test_a_price_of_repetitions_is_of_each():
    found = vcomp.evals.study(scores(models=2, items=6, epochs=3), prices={"epoch": 2.0})
    assert found.page.data.cost == 2.0 * 36
    assert found.prices.of_plan(found.plan).terms(found.plan.plan.design) == [
        (2.0, frozenset({"model", "item", "replicate"}))
    ]


def judged(epochs=4):
    rng = np.random.default_rng(0)
    m, i, e, j = (of.ravel() for of in np.indices((3, 20, epochs, 2)))
    value = rng.normal(size=(3, 20))[m, i] + 0.5 * m + rng.normal(size=(3, 20, epochs))[m, i, e]
    value += 0.5 * rng.normal(size=m.size) + 0.3 * rng.normal(size=(3, 2))[m, j]
    return pd.DataFrame({"model": m, "item": i, "epoch": e, "judge": j, "score": value})


def test_a_call_is_paid_for_once_whoever_judges_it():
    data = judged()
    found = vcomp.evals.study(data, prices={"call": 1.0}, budget=1000)
    assert found.page.data.cost == 3 * 20 * 4
    best = found.allocation.best
    assert best.cost == 3 * best.sizes["item"] * best.sizes["epoch"]
    assert vcomp.evals.study(data, prices={"epoch": 1.0}).page.data.cost == 3 * 20 * 4
    twice = vcomp.evals.study(data, prices={"call": 1.0, "judgement": 0.1}, budget=1000)
    assert twice.page.data.cost == pytest.approx(240 + 48)
    best = twice.allocation.best
    answers = 3 * best.sizes["item"] * best.sizes["epoch"]
    assert best.cost == pytest.approx(answers * (1.0 + 0.1 * best.sizes["judge"]))


def test_judges_of_the_same_answers_share_their_noise():
    data = judged()
    found = vcomp.evals.study(data)
    formula = (
        "score ~ (1|model) + (1|item) + (1|judge) + (1|model:item) + (1|model:judge) "
        "+ (1|item:judge) + (1|model:item:judge) + (1|model:item:epoch)"
    )
    v = vcomp.fit(formula, data).vcomp
    assert found.sources["variance"]["model:item:epoch"] == pytest.approx(
        v["model:item:epoch"], rel=1e-6
    )
    y = data["score"].to_numpy().reshape(3, 20, 4, 2)
    residual = y - y.mean(axis=2, keepdims=True) - y.mean(axis=3, keepdims=True)
    residual += y.mean(axis=(2, 3), keepdims=True)
    within = (residual**2).sum() / (60 * 3)
    answers = y.mean(axis=3).var(axis=2, ddof=1).mean() - within / 2.0
    assert v["model:item:epoch"] == pytest.approx(answers, rel=0.02)  # other terms are REML's
    assert "model:item:judge:epoch" in printed_words(found)
    seeds = data.assign(seed=data["epoch"] % 2, epoch=data["epoch"] // 2)
    both = vcomp.evals.study(seeds)
    assert both.sources["variance"]["model:item:epoch:seed"] == pytest.approx(
        v["model:item:epoch"], rel=1e-6
    )
    assert both.next_data


def test_tables_that_are_no_tables_of_scores():
    data = scores(models=2, items=6)
    with pytest.raises(vcomp.DataError, match="there are several columns 'item'"):
        vcomp.evals.study(pd.concat([data, data[["item"]]], axis=1))
    for call in (vcomp.evals.study, vcomp.evals.repetitions):
        with pytest.raises(vcomp.DataError, match="there is no row with a score"):
            call(data.iloc[:0])


def test_scores_as_every_eval_ever_has_them(tmp_path):
    for k, data in enumerate(
        [
            scores(models=3, tasks=2, prompts=2).assign(metric="acc"),
            scores(models=1, tasks=2).replace({"model": {"m0": "org/m 0"}}),
            scores(models=2).assign(task="t", score=lambda d: 2.0 * d["score"]),
        ]
    ):
        found = vcomp.evals.study(data)
        documents = found.to_every_eval_ever(tmp_path / str(k), organization="we")
        assert [d["model_info"]["id"] for d in documents] == list(found.table.index)
        logs = vcomp.evals.read(tmp_path / str(k))
        read = logs.table.pivot_table("score", "model", "task", observed=True)
        several = list(read) != ["t"]
        assert list(read) == (["t0", "t1"] if several else ["t"])  # their mean is no task
        if several:
            cells = data.groupby(["model", "task"])["score"].mean().unstack()
            np.testing.assert_allclose(read[["t0", "t1"]], cells.loc[read.index], rtol=1e-9)
        for document in documents:
            stored = document["evaluation_results"][-1]["score_details"]["uncertainty"]
            row = found.table.loc[document["model_info"]["id"]]
            assert document["evaluation_results"][-1]["score_details"]["score"] == row["mean"]
            limits = stored["confidence_interval"]
            assert stored["standard_error"]["value"] == row["std_error"]
            assert (limits["lower"], limits["upper"]) == (row["low"], row["high"])
            assert limits["confidence_level"] == 0.95
            assert document["source_metadata"]["source_organization_name"] == "we"
            kind = document["evaluation_results"][0]["metric_config"].get("score_type")
            assert kind == ("binary" if several else None)
    assert set(logs.table["metric"]) == {"score"}
    (tmp_path / "file").write_text("")
    with pytest.raises(vcomp.DataError, match=r"folder .*file' cannot be made"):
        found.to_every_eval_ever(tmp_path / "file")


@pytest.mark.parametrize("unit", [1.0, 0.1, 1e8])
def test_scores_that_differ_by_rounding_are_the_same(unit):
    rng = np.random.default_rng(0)
    base = unit * rng.integers(0, 2, 30)
    each = {"a": base, "b": base, "c": unit - base}
    rows = [(m, i, score) for m, scores in each.items() for i, score in enumerate(scores)]
    found = vcomp.evals.study(pd.DataFrame(rows, columns=["model", "item", "score"]))
    assert found.gap == 0.0
    assert "have the same score." in found.next_data[1]


def test_aggregates_count_the_scores_of_their_model_and_task():
    data = scores(models=3, tasks=2).iloc[7:-3]
    documents = vcomp.evals.study(data).to_every_eval_ever(organization="we")
    by_task = data.groupby(["model", "task"]).size()
    assert by_task.nunique() == 3
    for document in documents:
        counts = [
            result["score_details"]["uncertainty"]["num_samples"]
            for result in document["evaluation_results"]
        ]
        rows = by_task[document["model_info"]["id"]]
        assert counts == [*rows, rows.sum()]


def test_names_of_files_of_models(tmp_path):
    names = {"m0": "a/b", "m1": "a:b", "m2": "A_B"}
    found = vcomp.evals.study(scores(models=3).replace({"model": names}))
    found.to_every_eval_ever(tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == 3
    assert set(vcomp.evals.read(tmp_path).table["model"]) == set(names.values())


@cache
def page_of_few():
    return str(vcomp.evals.study(scores(models=3, items=12)))


@pytest.mark.parametrize("kind", ["arrow", "polars", "lazy", "duckdb", "dict"])
def test_tables_of_other_libraries(kind):
    table = scores(models=3, items=12)
    if kind == "arrow":
        other = pytest.importorskip("pyarrow").Table.from_pandas(table)
    elif kind in ("polars", "lazy"):
        other = pytest.importorskip("polars").from_pandas(table)
        other = other.lazy() if kind == "lazy" else other
    elif kind == "duckdb":
        other = pytest.importorskip("duckdb").from_df(table)
    else:
        other = {name: table[name].to_numpy() for name in table}
    assert str(vcomp.evals.study(other)) == page_of_few()


# What the scores contradict ----------------------------------------------------------------------


def of_alike(rng, n=80, spread=(1.0, 1.0, 1.0)):
    """Return scores of models, the last two of which have as much in common as `spread` leaves."""
    common = rng.normal(size=(n, 1))
    own = rng.normal(size=(n, 3)) * np.array(spread)
    y = np.column_stack([own[:, :1], common + own[:, 1:]]) + np.array([0.0, 0.1, 0.2])
    item, model = np.indices(y.shape).reshape(2, -1)
    return y, pd.DataFrame({"item": item, "model": np.array(["a", "b", "c"])[model],
                            "score": y.ravel()})  # fmt: skip


def test_pairs_of_unequal_errors_have_their_own():
    y, data = of_alike(np.random.default_rng(4), spread=(1.0, 0.3, 0.3))
    found = vcomp.evals.study(data)
    assert found.cov_type == "robust"
    paired = {
        (a, b): stats.ttest_rel(y[:, i], y[:, j])
        for (i, a), (j, b) in itertools.combinations(enumerate("abc"), 2)
    }
    pairs = found.comparisons.table.set_index(["first", "second"])
    p = np.array([paired[pair].pvalue for pair in pairs.index])
    assert pairs["p_value"].tolist() == pytest.approx(p, rel=1e-6)
    order = np.argsort(p)
    holm = np.maximum.accumulate(p[order] * [3, 2, 1])
    assert pairs["p_adjusted"].to_numpy()[order] == pytest.approx(np.minimum(holm, 1.0), rel=1e-6)
    # Scores have errors of their own too.
    of_models = y.std(axis=0, ddof=1) / np.sqrt(80)
    assert found.table.loc[list("abc"), "std_error"].tolist() == pytest.approx(of_models, rel=1e-6)
    (said,) = found.contradictions
    assert said in printed_words(found)
    assert found.page.contradictions == (said,)
    error = {(a, b): np.std(y[:, i] - y[:, j], ddof=1) / np.sqrt(80)
             for (i, a), (j, b) in itertools.combinations(enumerate("abc"), 2)}  # fmt: skip
    largest = max(error, key=error.get)
    assert f"from {display.number(error['b', 'c'], 2)} for b and c to" in said
    assert f"to {display.number(error[largest], 2)} for {' and '.join(largest)}." in said


def test_one_error_of_all_pairs_is_compared_with_their_own():
    y, data = of_alike(np.random.default_rng(4), spread=(1.0, 0.3, 0.3))
    found = vcomp.evals.study(data, cov_type="model")
    assert np.ptp(found.comparisons.table["std_error"]) < 1e-9
    assert found.comparisons.test.startswith("Tukey's HSD")
    (said,) = found.contradictions
    # The advice leads to the error of a pair.
    assert "With cov_type='robust' each pair has its own." in said
    assert vcomp.evals.study(data, cov_type="robust").cov_type == "robust"
    # Tukey's method rejects too often with an error of each pair: it keeps one if asked for.
    assert vcomp.evals.study(data, test="tukey").cov_type == "model"
    assert vcomp.evals.study(data, test="t").cov_type == "robust"
    small = np.std(y[:, 1] - y[:, 2], ddof=1) / np.sqrt(80)
    assert f"it is from {display.number(small, 2)} for b and c to" in said
    # Another test has the same errors.
    max_t = vcomp.evals.study(data, test="max-t").comparisons
    assert max_t.correction is None
    assert max_t.table["std_error"].tolist() == pytest.approx(
        vcomp.evals.study(data).comparisons.table["std_error"].tolist()
    )


def test_models_may_have_few_of_the_items():
    """Errors of pairs count the items that these share; models of six items show unequal ones."""
    _, data = of_alike(np.random.default_rng(4), spread=(1.0, 0.2, 0.2))
    data = data[(data["model"] != "c") | (data["item"] < 32)]
    found = vcomp.evals.study(data)
    assert found.cov_type == "robust"
    df = found.comparisons.table.set_index(["first", "second"])["df"]
    assert df["a", "b"] > 60.0
    assert max(df["a", "c"], df["b", "c"]) < 60.0
    few = data[(data["model"] != "c") | (data["item"] < 5)]
    assert vcomp.evals.study(few).cov_type == "model"


def test_without_memory_for_errors_of_pairs_they_have_one(monkeypatch):
    _, data = of_alike(np.random.default_rng(4), spread=(1.0, 0.3, 0.3))
    monkeypatch.setattr(influences, "check_memory", partial(check_memory, free_bytes=lambda: 1e4))
    with pytest.warns(vcomp.VcompWarning, match="pairs have one .* use cov_type='model'"):
        assert vcomp.evals.study(data).cov_type == "model"
    assert vcomp.evals.study(data, cov_type="model").cov_type == "model"
    with pytest.raises(vcomp.EstimationError, match=r"contributions of 240 rows to 3 .* are free"):
        vcomp.evals.study(data, cov_type="robust")


def test_of_equal_errors_studies_have_one():
    _, data = of_alike(np.random.default_rng(4))
    few = data[data["item"] < 5]
    for some in (data.assign(score=data["score"] + 2.0 * (data["model"] != "a")), few):
        assert vcomp.evals.study(some).cov_type == "model"


def test_errors_of_pairs_are_within_tasks():
    """Means of models in tasks make no difference to their errors, nor do holes of some items."""
    _, data = of_alike(np.random.default_rng(4), spread=(1.0, 0.3, 0.3))
    data["task"] = np.where(data["item"] < 40, "law", "maths")
    data["score"] += 3.0 * ((data["task"] == "law") & (data["model"] == "c"))
    found = vcomp.evals.study(data)
    assert found.cov_type == "robust"
    wide = data.pivot_table("score", "item", "model")
    d = (wide["b"] - wide["c"]).groupby(data.groupby("item")["task"].first())
    # Two tasks with equal weights: (s²/40 + s²/40)/4.
    expected = np.sqrt((d.var() / 40.0).sum()) / 2.0
    row = found.comparisons.table.set_index(["first", "second"]).loc["b", "c"]
    assert row["std_error"] == pytest.approx(expected, rel=1e-6)
    rng = np.random.default_rng(1)
    assert vcomp.evals.study(data[rng.random(len(data)) < 0.9]).cov_type == "robust"
    assert vcomp.evals.study(data.assign(score=data["score"] * 0 + rng.normal(size=len(data))
                                         + 9.0 * (data["model"] == "c") * (data["task"] == "law"))
                             ).cov_type == "model"  # fmt: skip


@pytest.mark.parametrize(
    ("options", "others"),
    [
        ({"items": 40}, "item"),
        ({"missing": 0.1}, "item"),
        ({"tasks": 2, "prompts": 3, "epochs": 2}, "item, prompt and task"),
    ],
)
def test_models_that_are_copies_of_others_are_named(options, others):
    """Two copies by their scores, whatever the order of the rows; not those that differ once."""
    data = scores(**options)
    one, two = (data[data["model"] == name] for name in ("m1", "m2"))
    nearly = one["score"].mask(np.arange(len(one)) == 7, 1.0 - one["score"])
    data = pd.concat([
        data,
        one.iloc[::-1].assign(model="m1 again"),
        one.assign(model="m1 nearly", score=nearly),
        two.assign(model="m2 again", score=two["score"].where(two["score"] > 0.0, -0.0)),
    ])  # fmt: skip
    found = vcomp.evals.study(data)
    said = found.contradictions[-1]
    assert said == (
        f"These models have the same score on every {others}: m1 and m1 again; m2 and m2 "
        "again. Is one a copy of the other?"
    )
    assert said in printed_words(found)


def test_models_that_are_always_right_are_no_copies():
    data = scores(models=3)
    right = [data[data["model"] == "m0"].assign(model=name, score=1.0) for name in ("a", "b")]
    assert not vcomp.evals.study(pd.concat([data, *right])).contradictions


def test_runs_that_are_no_repetitions_are_named():
    rng = np.random.default_rng(2)
    swing = rng.normal(size=(30, 3, 4, 1)) * np.array([1.0, -1.0])
    y = rng.normal(size=(30, 1, 1, 1)) + swing + 0.3 * rng.normal(size=swing.shape)
    codes = np.indices(y.shape).reshape(4, -1)
    data = pd.DataFrame(dict(zip(("item", "model", "prompt", "epoch"), codes, strict=True)))
    found = vcomp.evals.study(data.assign(score=y.ravel()))
    said = " ".join(found.contradictions)
    assert "σ²(model:item:prompt) is estimated at 0" in said
    assert "scores of the same model, item and prompt differ more than others do" in said
    assert said in printed_words(found)


# Bad input of users -----------------------------------------------------------------------------


def right_or_wrong(shape, seed=0):
    rng = np.random.default_rng(seed)
    m, i, p = (a.ravel() for a in np.indices(shape))
    right = rng.random(m.size) < 0.4 + 0.2 * m
    return pd.DataFrame({"model": m, "item": i, "prompt": p, "score": right.astype(float)})


def test_models_with_items_of_their_own_are_named():
    data = right_or_wrong((3, 20, 1))
    shared = vcomp.evals.study(data)
    own = data.assign(item=data["model"].astype(str) + "-" + data["item"].astype(str))
    found = vcomp.evals.study(own)
    said = (
        "Each item has one model: a difference between models contains that of their items. If "
        "models have the same items, name these alike."
    )
    assert said in printed_words(found)
    assert "name these alike" not in printed_words(shared)
    # The errors are those of independent samples.
    means = own.groupby("model")["score"]
    pooled = means.var(ddof=1).mean()
    pairs = found.comparisons.table
    np.testing.assert_allclose(pairs["std_error"] ** 2, 2.0 * pooled / 20.0, rtol=1e-6)
    # Followed: the same names give the page of shared items.
    renamed = own.assign(item=own["item"].str.partition("-")[2])
    assert str(vcomp.evals.study(renamed)).splitlines()[3:] == str(shared).splitlines()[3:]
    assert vcomp.evals.study(data[data["model"] == 0]).roles.own == ()


def test_differences_that_scores_of_0_and_1_cannot_have_are_not_detected():
    data = right_or_wrong((3, 1, 3), seed=3)
    found = vcomp.evals.study(data)
    said = printed_words(found)
    assert "With data like these no difference of 0/1 scores is found with power 0.8." in said
    graded = vcomp.evals.study(data.assign(score=10.0 * data["score"]))
    assert "finds a difference of" in printed_words(graded)


def test_one_model_is_not_compared():
    said = printed_words(vcomp.evals.study(right_or_wrong((1, 20, 1))))
    assert "There is one model; nothing is compared." in said
    assert "Compared:" not in said


@pytest.mark.parametrize("shares", [{}, {"t0": 3.0, "t1": 1.0}])
def test_noise_of_one_model_and_what_more_would_do(shares):
    """Items in tasks × prompts, complete: the error variance written out."""
    data = scores(models=1, tasks=2, items=30, prompts=4, seed=2)
    found = vcomp.evals.study(data, task_weights=shares or None)
    v, q = found.fit.vcomp, (10 / 16 if shares else 1 / 2)  # Σ w² of the tasks
    parts = {
        "item": v["item"] * q / 30, "prompt": v["prompt"] / 4,
        "prompt:task": v["prompt:task"] * q / 4, "Residual": v["Residual"] * q / 120,
    }  # fmt: skip
    total = sum(parts.values())
    assert found.table["std_error"].item() ** 2 == pytest.approx(total, rel=1e-8)
    expected = [parts[name] / total for name in v.index]
    np.testing.assert_allclose(found.sources["share"], expected, rtol=1e-8)
    items = math.sqrt(total - (parts["item"] + parts["Residual"]) / 2)
    prompts = math.sqrt(total - (total - parts["item"]) / 2)
    shown = (display.number(x, 3) for x in (math.sqrt(total), items, prompts))
    said = "The standard error of the score, {}, would be {} with 120 items and {} with 8 prompts."
    assert said.format(*shown) in printed_words(found)
    assert "Noise of the score" in printed_words(found)


def test_more_runs_of_one_model():
    data = scores(models=1, items=30, epochs=4, seed=2)
    found = vcomp.evals.study(data, prices={"item": 2.0})
    v = found.fit.vcomp
    parts = v["item"] / 30, v["Residual"] / 120
    error, of_items, of_runs = (
        display.number(math.sqrt(x), 3)
        for x in (sum(parts), sum(parts) / 2, parts[0] + parts[1] / 2)
    )
    said = f"{error}, would be {of_items} with 60 items and {of_runs} with 8 runs of each."
    assert found.next_data == [
        "At these prices the data cost 60.", f"The standard error of the score, {said}",
    ]  # fmt: skip


def test_tasks_of_one_model_by_turns():
    """Items with one score each, of tasks in every other row."""
    data = scores(models=1, tasks=2, items=20)
    turns = data.sort_values("item", key=lambda item: item % 1000)
    found, other = vcomp.evals.study(turns), vcomp.evals.study(data)
    np.testing.assert_allclose(found.table, other.table, rtol=1e-12)


@pytest.mark.parametrize("words", [("good", "bad"), ("C", "I", "P")])
def test_words_for_scores_are_given_numbers(words):
    data = right_or_wrong((3, 20, 1))
    text = data.assign(score=[words[int(1 - s)] for s in data["score"]])
    if len(words) > 2:
        text.loc[3, "score"] = "P"
    listed = ", ".join(f"'{word}': …" for word in sorted(words))
    with pytest.raises(vcomp.DataError) as caught:
        vcomp.evals.study(text)
    assert f"table['score'] = table['score'].map({{{listed}}})" in str(caught.value)
    assert caught.value.column == "score"
    numbers = {words[0]: 1.0, words[1]: 0.0, "P": 0.5}
    found = vcomp.evals.study(text.assign(score=text["score"].map(numbers)))
    assert len(found.table) == 3


def test_small_probabilities_are_not_printed_as_zero():
    data = scores(models=3, items=200)
    data["score"] += 5.0 * (data["model"] == "m2")
    found = vcomp.evals.study(data)
    best = found.table["p_best"]
    assert best.iloc[1:].max() < 0.0005
    said = printed_words(found)
    assert said.count("below 0.1 %") == 2
    assert "above 99.9 %" in said


def two_metrics(model="m1"):
    """Return scores of two tasks, one by two metrics, the other by another; one model has one."""
    data = scores(models=3, tasks=2, items=12, seed=4)
    first, second = data[data["task"] == "t0"], data[data["task"] == "t1"]
    parts = [
        first.assign(metric="acc"), first.assign(metric="norm", score=1.0 - first["score"]),
        second.assign(metric="match", filter="strict"),
        second.assign(metric="match", filter="loose", score=1.0 - second["score"]),
    ]  # fmt: skip
    table = pd.concat(parts)
    return data, table[(table["model"] != model) | (table["task"] == "t0")]


def test_tasks_may_have_metrics_of_their_own():
    data, table = two_metrics(model="")
    with pytest.raises(vcomp.DataError, match="several metrics") as error:
        vcomp.evals.study(table)
    advice = re.search(r"one of each task, where=(\{[^}]*\})", str(error.value))[1]
    where = ast.literal_eval(advice)
    assert where == {"metric": ["acc", "match"]}
    with pytest.raises(vcomp.DataError, match="column 'filter' separates scores") as error:
        vcomp.evals.study(table, where=where)
    where |= ast.literal_eval(re.search(r"where=(\{[^}]*\})", str(error.value))[1])
    assert where["filter"] == "strict"
    found = vcomp.evals.study(table[table["filter"] != "loose"], where={"metric": where["metric"]})
    pd.testing.assert_frame_equal(found.table, vcomp.evals.study(data).table)
    assert found.notes == ("The metrics are acc of t0 and match of t1.",)
    assert found.notes[0] in printed_words(found)
    names = {
        result["evaluation_name"]: result["metric_config"].get("metric_name")
        for result in found.to_every_eval_ever()[0]["evaluation_results"]
    }
    assert names == {"t0": "acc", "t1": "match", "mean over tasks": None}
    # Two metrics of one task are never averaged.
    with pytest.raises(vcomp.DataError, match="several metrics"):
        vcomp.evals.study(table, where={"metric": ["acc", "norm"]})
    filled = table.fillna({"filter": "none"})
    with pytest.raises(vcomp.DataError, match="separates scores") as error:
        vcomp.evals.study(filled, where={"metric": where["metric"]})
    chosen = ast.literal_eval(re.search(r"where=(\{[^}]*\})", str(error.value))[1])
    assert chosen == {"filter": ["none", "strict"]}
    again = vcomp.evals.study(filled, where={"metric": where["metric"]} | chosen)
    pd.testing.assert_frame_equal(again.table, found.table)


def test_the_column_that_separates_scores_is_named():
    data = scores(epochs=2).rename(columns={"epoch": "heat"})
    data.insert(0, "kind", np.where(data["item"] % 2, "long", "short"))  # of items: separates none
    with pytest.raises(vcomp.DataError, match=r"column 'heat' separates .*where=\{'heat': '0'\}"):
        vcomp.evals.study(data)


def test_all_models_are_compared_on_the_tasks_that_they_share():
    data = scores(models=3, tasks=2, items=8, seed=4)
    data = data[(data["model"] != "m1") | (data["task"] == "t0")]
    said = printed_words(vcomp.evals.study(data))
    advice = re.search(r"on what they share, where=(\{[^}]*\})", said)[1]
    found = vcomp.evals.study(data, where=ast.literal_eval(advice))
    assert set(found.table.index) == {"m0", "m1", "m2"}
    data = scores(models=4, tasks=2, items=8, seed=4)
    none = data[(data["model"] != "m1") | (data["task"] == "t0")]
    none = none[(none["model"] != "m2") | (none["task"] == "t1")]
    assert "share, where" not in printed_words(vcomp.evals.study(none))


def test_rows_without_a_level_are_left_out_once():
    data = scores(models=3, items=12)
    lacking = data.assign(model=data["model"].where(data.index != 4), item=data["item"] % 12)
    with pytest.warns(vcomp.VcompWarning, match=r"^1 of 36 rows .*\(model 1\)") as heard:
        found = vcomp.evals.study(lacking)
    assert len(heard) == 1
    page = printed_words(found)  # fits once more, without a warning
    known = vcomp.evals.study(lacking.drop(index=4))
    pd.testing.assert_frame_equal(found.table, known.table)
    assert page == printed_words(known)


def test_intervals_of_few_judges_are_explained():
    data = scores(models=3, items=30, prompts=2).rename(columns={"prompt": "judge"})
    found = vcomp.evals.study(data)
    df = found.table["df"].min()
    assert df < 5
    expected = f"Intervals of scores have {df:.2g} degrees of freedom: there are 2 judges"
    assert expected in printed_words(found)
    assert "Intervals of scores have" not in printed_words(vcomp.evals.study(scores()))


def test_two_models_have_one_difference():
    for better, word in ((0, "not significant"), (1, "significant")):
        data = scores(models=2, items=40, seed=3)
        data.loc[data["model"] == "m1", "score"] = data["score"][data["model"] == "m0"].to_numpy()
        moved = data.index[data["model"] == "m1"][: 4 + 20 * better]
        data.loc[moved, "score"] = 1.0
        found = vcomp.evals.study(data)
        assert found.comparisons.table["significant"].item() == bool(better)
        assert found.verdict.endswith(f"; the difference is {word}.")


def test_scores_of_0_and_1_stay_within():
    data = scores(models=3, items=20)
    data.loc[data["model"] == "m1", "score"] = 1.0
    found = vcomp.evals.study(data)
    assert found.table.loc["m1", "mean"] == 1.0  # and not by rounding above its limit
    # Three items: no difference within 0 and 1 is found, also with twice as many.
    few = scores(models=40, items=3, seed=2)
    few["score"] = [(k % 3 == (k // 3) % 2) * 1.0 for k in range(len(few))]
    found = vcomp.evals.study(few)
    assert "no difference of 0/1 scores is found with power" in found.next_data[0]
    assert found.gap == 0.0
    assert any("no difference of 0/1 scores is found either." in said for said in found.next_data)


def test_reasons_of_missing_scores_are_on_the_page(tmp_path):
    data = scores(models=2, items=12).astype({"score": object})
    data.loc[3, "score"] = "oops"
    data.to_csv(tmp_path / "scores.csv", index=False)
    found = vcomp.evals.study(tmp_path / "scores.csv")
    assert found.left_out[0].startswith("1 row has no score (not a number: 'oops'): m0 1.")


def test_advice_on_tasks_is_of_tasks_that_are_compared(tmp_path):
    rng, line = np.random.default_rng(3), {"doc": {"q": 1}, "resps": [["4"]], "filter": "none"}
    for model, right in (("a", 3), ("b", 2)):
        folder = tmp_path / model
        folder.mkdir()
        results = {"results": {}, "configs": {}, "versions": {}, "model_name": model}
        (folder / "results_2026-01-01T00-00-00.0.json").write_text(json.dumps(results))
        for task, metric in (("t", "acc"), ("u", "em")):
            rows = [
                line | {"doc_id": k, "doc_hash": f"{k + 1:x}" * 64, "metrics": [metric],
                        metric: float(rng.random() < 0.2 * right)}
                for k in range(12)
            ]  # fmt: skip
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"samples_{task}_2026-01-01T00-00-00.0.jsonl").write_text(text)
    both = vcomp.evals.study(tmp_path, where={"metric": ["acc", "em"]})
    assert any("have the same items" in note for note in both.notes)
    assert vcomp.evals.study(tmp_path, metric="acc").notes == ()


def test_long_names_are_shortened_if_they_remain_different():
    names = ["organization/Model-of-a-Family-70B-Instruct-v1.0", "organization/Other-8B-Instruct"]
    data = scores(models=2, items=12)
    places = data["model"].map({"m0": 0, "m1": 1})
    said = str(vcomp.evals.study(data.assign(model=places.map(dict(enumerate(names))))))
    tables, _, sentences = said.partition("\n\n")
    ends = [f"…{names[0][-39:]}", f"…{names[0][-27:]}", f"…{names[1][-27:]}"]
    assert all(end in tables for end in ends)
    assert names[0] not in tables
    assert names[1] in tables
    assert names[0] in " ".join(sentences.split())
    alike = [k + "x" * 60 for k in "ab"]
    said = str(vcomp.evals.study(data.assign(model=places.map(dict(enumerate(alike))))))
    assert all(name in said.partition("\n\n")[0] for name in alike)


@pytest.mark.parametrize("name", ["model", "item", "task", "note"])
def test_levels_that_are_lists_are_text_as_in_files(name):
    data = scores().assign(task="t", note="n")
    listed = data.assign(**{name: [[value] for value in data[name]]})
    found = vcomp.evals.study(listed).table
    assert found.to_numpy() == pytest.approx(vcomp.evals.study(data).table.to_numpy(), rel=1e-12)
    with pytest.raises(vcomp.DataError, match="'score' is not numeric: it holds '"):
        vcomp.evals.study(data.assign(score=[[value] for value in data["score"]]))


def test_levels_that_no_row_has_together():
    data = scores().assign(kind=lambda d: np.where(d["model"] == "m1", "a", "b"))
    with pytest.raises(vcomp.PlanError, match="no row has all of where="):
        vcomp.evals.study(data, where={"model": "m1", "kind": "b"})
    with pytest.raises(vcomp.PlanError, match="power must be between alpha, "):
        print(vcomp.evals.study(data, alpha=0.9))
    with pytest.raises(vcomp.PlanError, match="no column 'model'; there are none; system="):
        vcomp.evals.study(pd.DataFrame())


def test_means_of_zero_are_zero():
    data = scores(models=3, tasks=2, items=10, seed=6)
    data = data[(data["task"] == "t0") | (data["item"] == 1000)]  # one item in the other task
    data.loc[data["task"] == "t1", "score"] = (data["model"] != "m1").astype(float)
    found = vcomp.evals.study(data)
    expected = data.groupby(["task", "model"])["score"].mean()
    np.testing.assert_allclose(
        found.by_task["mean"], expected.loc[found.by_task.index], rtol=1e-12
    )
    assert found.by_task["mean"]["t1", "m1"] == 0.0
    assert "e-" not in str(found).partition("Differences by")[0]


def test_a_table_without_models_names_how_to_say_what_is_compared():
    data = scores(models=3).rename(columns={"model": "engine"})
    with pytest.raises(vcomp.PlanError, match=r"no column 'model'.*system=… names") as error:
        vcomp.evals.study(data)
    assert "'engine'" in str(error.value)
    found = vcomp.evals.study(data, system="engine")
    assert found.table.index.name == "engine"

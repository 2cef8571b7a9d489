"""Identical runs: flicker, pass@k, pass^k and majorities against all subsets of the runs."""

import math
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.printed_tables import printed_words

RUNS = {
    "a": [[1, 1, 0, 1], [0, 0, 1], [1, 1], [0, 0, 0, 0, 1], [1, 0, 1, 0, 1]],
    "b": [[1, 1, 1, 1], [0, 0], [1, 0, 0], [0, 0, 0, 0], [1, 1, 1]],
}


def table_of(runs):
    rows = [
        (model, item, epoch, score)
        for model, items in runs.items()
        for item, scores in enumerate(items)
        for epoch, score in enumerate(scores)
    ]
    return pd.DataFrame(rows, columns=["model", "item", "epoch", "score"])


@pytest.fixture(scope="module")
def found():
    return vcomp.evals.repetitions(table_of(RUNS))


MEASURES = {
    "flicker": lambda s: Fraction(len(set(s)) > 1),
    "pass_at": lambda s: Fraction(any(s)),
    "pass_all": lambda s: Fraction(all(s)),
    "majority": lambda s: Fraction(2 * sum(s) > len(s)) + Fraction(2 * sum(s) == len(s)) / 2,
}


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("k", range(1, 6))
def test_measures_are_means_over_all_subsets_of_runs(found, measure, k):
    if (measure, k) == ("flicker", 1):
        return
    table = getattr(found, measure)(k)
    for model, items in RUNS.items():
        exact = []
        for scores in items:
            chosen = [MEASURES[measure](s) for s in combinations(scores, k)]
            if chosen:
                exact.append(sum(chosen) / len(chosen))
        row = table.loc[model]
        assert row["items"] == len(exact)
        if not exact:
            assert row[["estimate", "std_error", "low", "high"]].isna().all()
            continue
        assert row["estimate"] == pytest.approx(float(sum(exact) / len(exact)), abs=1e-14)
        if len(exact) > 1:
            error = np.std(list(map(float, exact)), ddof=1) / math.sqrt(len(exact))
            wanted = error if error > 0.0 else math.nan
            assert row["std_error"] == pytest.approx(wanted, abs=1e-14, nan_ok=True)
    rows = found.consistency.query("measure == @measure and k == @k")
    np.testing.assert_array_equal(rows["estimate"], table["estimate"])


@pytest.mark.parametrize("k", [1, 2, 10, 99, 100, 199, 200])
def test_measures_of_many_runs_are_those_of_chen_and_others(k):
    """Chen et al. (2021), equation 1: pass@k = mean of 1 − C(n − c, k)/C(n, k), in fractions."""
    n, passed = 200, [0, 1, 3, 60, 100, 199, 200]
    runs = {"a": [[1] * c + [0] * (n - c) for c in passed]}
    found = vcomp.evals.repetitions(table_of(runs))

    def share(c, successes):
        """The share of sets of k runs that have so many successes."""
        return Fraction(math.comb(c, successes) * math.comb(n - c, k - successes), math.comb(n, k))

    weights = {
        "pass_at": [Fraction(j > 0) for j in range(k + 1)],
        "pass_all": [Fraction(j == k) for j in range(k + 1)],
        "majority": [Fraction(2 * j > k) + Fraction(2 * j == k, 2) for j in range(k + 1)],
        "flicker": [Fraction(0 < j < k) for j in range(k + 1)],
    }
    for name, of in weights.items():
        if (name, k) == ("flicker", 1):
            continue
        exact = [sum(w * share(c, j) for j, w in enumerate(of)) for c in passed]
        if name == "pass_at":
            chen = [1 - Fraction(math.comb(n - c, k), math.comb(n, k)) for c in passed]
            assert exact == chen
        row = getattr(found, name)(k).loc["a"]
        mean = sum(exact) / len(exact)
        assert row["estimate"] == pytest.approx(float(mean), rel=1e-12, abs=1e-300)
        spread = sum((e - mean) ** 2 for e in exact) / (len(exact) - 1)
        wanted = math.sqrt(spread / len(exact)) or math.nan
        assert row["std_error"] == pytest.approx(wanted, rel=1e-10, nan_ok=True)


def test_variance_of_identical_runs(found):
    for model, items in RUNS.items():
        within = sum(np.var(s) * len(s) for s in items) / sum(len(s) - 1 for s in items)
        assert found.table.loc[model, "run_variance"] == pytest.approx(within, rel=1e-12)
    study = vcomp.evals.study(table_of(RUNS))
    components = study.components.vcomp
    shares = components / components.sum()
    assert found.sources.loc["epoch (identical runs)", "share"] == pytest.approx(
        shares["Residual"], rel=1e-9
    )
    assert found.sources["share_of_error"].to_numpy() == pytest.approx(
        study.sources["share"].to_numpy()
    )


def test_tasks_have_equal_weights_and_clusters_are_sampled():
    data = table_of({"a": [*RUNS["a"], *RUNS["b"]]})
    data["task"] = np.where(data["item"] < 4, "t", "u")
    data["passage"] = data["item"] // 2
    values = data.groupby("item")["score"].mean().to_numpy()
    tasks, passages = np.arange(10) < 4, np.arange(10) // 2
    row = vcomp.evals.repetitions(data, cluster="passage").pass_at(1).loc["a"]
    assert row["estimate"] == pytest.approx((values[tasks].mean() + values[~tasks].mean()) / 2)
    variances = []
    for own in (tasks, ~tasks):
        off = values[own] - values[own].mean()
        sums = pd.Series(off).groupby(passages[own]).sum().to_numpy()
        G = sums.size
        variances.append(G / (G - 1) * (sums**2).sum() / own.sum() ** 2)
    assert row["std_error"] == pytest.approx(math.sqrt(sum(variances)) / 2, rel=1e-12)


def test_intervals_of_items_that_are_all_alike_are_wilsons():
    data = table_of({"a": [[1, 1]] * 20})
    row = vcomp.evals.repetitions(data).pass_at(2).loc["a"]
    t2 = 2.093024054408263**2  # qt(.975, 19)
    assert math.isnan(row["std_error"])
    assert (row["low"], row["high"]) == (pytest.approx(20 / (20 + t2)), 1.0)
    assert vcomp.evals.repetitions(data).sources is None


def test_graded_scores_and_text():
    data = table_of(RUNS).assign(score=np.linspace(0.0, 1.0, 35)[:35])
    graded = vcomp.evals.repetitions(data)
    for measure in ("pass_at", "pass_all", "majority"):
        with pytest.raises(vcomp.DataError, match=r"scores are graded.*passes_from=") as caught:
            getattr(graded, measure)(2)
        assert caught.value.column == "score"
    assert set(graded.consistency["measure"]) == {"flicker"}
    assert "neither pass@k nor a majority" in printed_words(graded)
    passing = vcomp.evals.repetitions(data, passes_from=0.5)
    by_hand = vcomp.evals.repetitions(data.assign(score=(data["score"] >= 0.5).astype(float)))
    pd.testing.assert_frame_equal(passing.consistency, by_hand.consistency)
    text = table_of(RUNS).replace({"score": {0: "no", 1: "yes"}})
    words = vcomp.evals.repetitions(text)
    pd.testing.assert_frame_equal(
        words.flicker(2), vcomp.evals.repetitions(table_of(RUNS)).flicker(2)
    )
    assert words.sources is None
    assert words.table["run_variance"].isna().all()


def test_answers_that_were_given_once_are_counted():
    twice = {"a": [[1, 0], [0, 0], [1, 1]], "b": [[1, 1], [0, 1], [0, 0]]}
    assert "given once" not in printed_words(vcomp.evals.repetitions(table_of(twice)))
    once = vcomp.evals.repetitions(table_of(twice | {"a": [[1], [0, 0], [1, 1]]}))
    assert "Answers given once do not show flicker: 1 of 6." in printed_words(once)


def test_runs_that_all_agree_have_no_variance():
    data = table_of({"a": [[1, 1], [0, 0], [1, 1]], "b": [[1, 1], [1, 1], [0, 0]]})
    sources = vcomp.evals.repetitions(data).sources
    assert sources["share"].iloc[-1] == 0.0
    assert sources.index[-1].endswith("(identical runs)")


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (
            lambda d: d[d["epoch"] == 0],
            {},
            "each item of each model has one score: identical runs",
        ),
        (lambda d: d[d["item"] == 0], {}, "there is one item: errors come from how much several"),
        (lambda d: d, {"cluster": "pasage"}, "there is no column 'pasage'"),
        (lambda d: d, {"passes_from": "x"}, "passes_from is a score"),
        (lambda d: d, {"passes_from": np.nan}, "passes_from is a score"),
        (lambda d: d.assign(seed=d["epoch"]), {"alpha": 0}, "alpha must be between"),
        (lambda d: d.rename(columns={"epoch": "heat"}), {}, "column 'heat' separates scores"),
    ],
)
def test_what_is_refused(change, options, words):
    with pytest.raises(vcomp.VcompError, match=words):
        vcomp.evals.repetitions(change(table_of(RUNS)), **options)


@pytest.mark.parametrize("k", [0, 6, 2.5, "2"])
def test_numbers_of_runs_that_do_not_exist(found, k):
    with pytest.raises(vcomp.PlanError, match="k is between 1 and 5, the largest number"):
        found.pass_at(k)


def test_levels_that_are_missing_are_one_level():
    data = table_of(RUNS)
    data["prompt"] = np.where(data["item"] < 2, "p", "q")
    missing = data.assign(prompt=data["prompt"].replace("q", None))
    more = pd.concat([missing, missing[:3].assign(prompt="r")])
    named = pd.concat([data, data[:3].assign(prompt="r")])
    found, wanted = (vcomp.evals.repetitions(d).consistency for d in (more, named))
    pd.testing.assert_frame_equal(found, wanted)


def test_logs_of_inspect():
    logs = Path(__file__).parent / "logs" / "inspect_0.3.285"
    found = vcomp.evals.repetitions(logs, metric="exact").pass_at(2)["estimate"].item()
    table = vcomp.evals.read(logs).table.query("metric == 'exact'")
    runs = table.groupby(["item", "prompt"], observed=True)["score"].agg(["size", "sum"])
    runs = runs[runs["size"] > 1]
    n, c = runs["size"], runs["sum"]
    passed = 1.0 - (n - c) * (n - c - 1) / (n * (n - 1))
    assert found == pytest.approx(passed.groupby(level="item").mean().mean(), rel=1e-12)


def test_items_that_tasks_share_are_one_sample():
    rng = np.random.default_rng(3)
    task, item, epoch = (of.ravel() for of in np.indices((2, 20, 3)))
    ability = rng.normal(size=20)
    score = (ability[item] + rng.normal(size=item.size) > 0.0).astype(float)
    data = pd.DataFrame({"model": "a", "task": task, "item": item, "epoch": epoch, "score": score})
    every = [np.ptp(score.reshape(2, 20, 3)[:, :, list(k)], axis=2) for k in
             combinations(range(3), 2)]  # fmt: skip
    of_items = np.mean(every, axis=(0, 1))
    row = vcomp.evals.repetitions(data).flicker(2).loc["a"]
    assert row["estimate"] == pytest.approx(of_items.mean(), rel=1e-12)
    assert row["std_error"] == pytest.approx(of_items.std(ddof=1) / np.sqrt(20), rel=1e-12)
    apart = vcomp.evals.repetitions(data, sampled=["task:item"]).flicker(2).loc["a"]
    of_tasks = np.mean(every, axis=0).std(axis=1, ddof=1) / np.sqrt(20)
    assert apart["std_error"] == pytest.approx(np.hypot(*of_tasks) / 2, rel=1e-12)


def test_more_models_than_can_be_compared_in_pairs():
    """Sources need no pairs: of complete scores they are those of mean squares."""
    n, items, runs = 1001, 4, 2
    rng = np.random.default_rng(5)
    y = rng.normal(size=(n, 1, 1)) + 2 * rng.normal(size=(1, items, 1))
    y = y + rng.normal(size=(n, items, 1)) + rng.normal(size=(n, items, runs))
    model, item, epoch = (of.ravel() for of in np.indices(y.shape))
    table = pd.DataFrame({"model": model, "item": item, "epoch": epoch, "score": y.ravel()})
    found = vcomp.evals.repetitions(table)
    within = y.var(axis=2, ddof=1).mean()
    means = y.mean(axis=2)
    inner = means - means.mean(axis=0) - means.mean(axis=1)[:, None] + means.mean()
    interaction = (inner**2).sum() / ((n - 1) * (items - 1)) - within / runs
    sources = found.sources
    assert sources.loc["epoch (identical runs)", "variance"] == pytest.approx(within, rel=1e-6)
    assert sources.loc["model:item", "variance"] == pytest.approx(interaction, rel=1e-6)
    error = interaction / items + within / (items * runs)
    share = sources.loc["model:item", "share_of_error"]
    assert share == pytest.approx(interaction / items / error, rel=1e-6)
    assert "1,001 models" in str(found)

"""Advice is followed: what the message says to write gives the result of an independent formula.

registry.txt lists the advice that is given, and the tests that follow it.
"""

from __future__ import annotations

import itertools
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vcomp
from vcomp import ir
from vcomp.exceptions import VcompError


def refused(call, *words: str) -> str:
    """Return the message of the error of a call, which has all words."""
    with pytest.raises(VcompError) as caught:
        call()
    message = str(caught.value)
    assert all(word in message for word in words), message
    return message


def grid(seed=0, noise=1.0, **sizes):
    """Return a complete table of text labels with a component for every facet, and a score."""
    data = pd.DataFrame(
        list(itertools.product(*(range(n) for n in sizes.values()))), columns=list(sizes)
    )
    rng = np.random.default_rng(seed)
    data["score"] = noise * rng.normal(size=len(data))
    for facet, n in sizes.items():
        data["score"] += rng.normal(size=n)[data[facet]]
        data[facet] = facet[0] + data[facet].astype(str)
    return data


SCORES = grid(sys=5, topic=12)
WIDE = SCORES.pivot(index="topic", columns="sys", values="score")
TWO = SCORES[SCORES["sys"].isin(["s0", "s1"])]
FIXED = "score ~ sys + (1|topic)"
RANDOM = "score ~ (1|sys) + (1|topic)"
PAIRED = stats.ttest_rel(WIDE["s1"], WIDE["s0"])


def two_way(y):
    """Return the mean squares of rows, columns and residuals of a table."""
    n, k = y.shape
    rows, columns = y.mean(axis=1, keepdims=True), y.mean(axis=0, keepdims=True)
    residual = ((y - rows - columns + y.mean()) ** 2).sum() / (n - 1) / (k - 1)
    return k * rows.var(ddof=1), n * columns.var(ddof=1), residual


MS_TOPIC, MS_SYS, MS_RESIDUAL = two_way(WIDE.to_numpy())
ANOVA = {
    "sys": (MS_SYS - MS_RESIDUAL) / 12, "topic": (MS_TOPIC - MS_RESIDUAL) / 5,
    "Residual": MS_RESIDUAL,
}  # fmt: skip


# The comparison of systems ---------------------------------------------------------------------


@pytest.mark.parametrize("column", ["prompt", "epoch", None])
def test_several_scores_are_compared_over_all_facets(column):
    """The error of a difference of complete data: mean squares of the interactions (Brennan)."""
    data = grid(model=4, item=10, prompt=3)
    pairs = (["model", "item"], ["model", "prompt"], ["item", "prompt"])
    for k, pair in enumerate(pairs if column == "prompt" else pairs[:1]):
        data["score"] += np.random.default_rng(k).normal(size=40)[data.groupby(pair).ngroup()]
    given = (
        data.drop(columns="prompt") if column is None else data.rename(columns={"prompt": column})
    )
    message = refused(
        lambda: ir.compare_systems(given, system="model", topic="item"),
        "there are 3 scores of model 'm0' on item 'i0'",
        "no column separates them" if column is None else column,
    )
    made = eval(message[message.index("vcomp.fit(") :], {"vcomp": vcomp, "data": given})
    row = made.table.iloc[0]
    y = data["score"].to_numpy().reshape(4, 10, 3)
    assert row["difference"] == pytest.approx(y[0].mean() - y[1].mean(), rel=1e-9)
    if column != "prompt":  # repeated scores: the paired t-test of the means of cells
        by_item = y.mean(axis=2) - y.mean(axis=2).mean(axis=0)
        error = (by_item - by_item.mean(axis=1, keepdims=True)) ** 2
        assert row["std_error"] ** 2 == pytest.approx(2 * error.sum() / 3 / 9 / 10, rel=1e-4)
        return
    items, prompts, residual = mean_squares_of_interactions(y)
    error = 2 * (items + prompts - residual) / 30
    assert row["std_error"] ** 2 == pytest.approx(error, rel=1e-4)
    share = 2 * (prompts - residual) / 30 / error
    assert f"model:prompt {100 * share:.0f} %" in " ".join(made.notes)


LABELS = {
    "fractions": [0.1, 0.5, 0.9],
    "whole numbers as floats": [1.0, 2.0, 3.0],
    "dates": list(pd.date_range("2026-01-01", periods=3)),
    "numbers and missing": [np.nan, 0.5, 1.0],
    "texts and missing": ["a", None, "c"],
}


@pytest.mark.parametrize("labels", LABELS)
def test_prompts_by_any_label_separate_the_scores(labels):
    """The comparison is that of prompts named by text."""
    data = grid(model=4, item=10, prompt=3)
    data["score"] += np.random.default_rng(1).normal(size=30)[
        data.groupby(["item", "prompt"]).ngroup()
    ]
    names = dict(zip(sorted(set(data["prompt"])), LABELS[labels], strict=True))
    labelled = data.assign(prompt=[names[name] for name in data["prompt"]])
    calls = []
    for given in (data, labelled):
        message = refused(
            lambda given=given: ir.compare_systems(given, system="model", topic="item"),
            "there are 3 scores of model 'm0' on item 'i0'", "one for each prompt",
        )  # fmt: skip
        first = re.search(r"data = (data\.assign\(.*?\}\))", message)
        assert (first is None) == ("missing" not in labels or given is data)
        data_now = given if first is None else eval(first[1], {"data": given})
        call = message[message.index("vcomp.fit(") :]
        calls.append(eval(call, {"vcomp": vcomp, "data": data_now}).table)
    columns = ["difference", "std_error", "p_value"]
    np.testing.assert_allclose(calls[1][columns], calls[0][columns], rtol=1e-5)


@pytest.mark.parametrize("more", ["nothing", "response", "latency", "epoch"])
def test_unnumbered_repetitions_of_prompts_are_compared_over_prompts(more):
    """The facet separates some of the scores; the rest are repeated scores of its cells."""
    once = grid(model=4, item=10, prompt=3)
    for k, pair in enumerate((["model", "item"], ["model", "prompt"], ["item", "prompt"])):
        once["score"] += np.random.default_rng(k).normal(size=40)[once.groupby(pair).ngroup()]
    data = pd.concat([once, once], ignore_index=True)
    data["score"] += np.random.default_rng(9).normal(0, 0.3, len(data))
    if more == "epoch":  # counts all scores of a model on an item
        data[more] = data.groupby(["model", "item"]).cumcount()
    elif more != "nothing":
        drawn = np.random.default_rng(3).integers(100, 900, len(data))
        data[more] = drawn if more == "latency" else [f"r{k}" for k in range(len(data))]
    message = refused(
        lambda: ir.compare_systems(data, system="model", topic="item"),
        "there are 6 scores of model 'm0' on item 'i0', several for each prompt",
        "(1|item) + (1|prompt) + (1|model:item) + (1|model:prompt) + (1|item:prompt) + "
        "(1|model:item:prompt)",
    )
    assert more not in message
    made = eval(message[message.index("vcomp.fit(") :], {"vcomp": vcomp, "data": data})
    y = data.groupby(["model", "item", "prompt"])["score"].mean().to_numpy().reshape(4, 10, 3)
    items, prompts, residual = mean_squares_of_interactions(y)
    error = 2 * (items + prompts - residual) / 30  # of means of cells
    assert made.table["std_error"][0] ** 2 == pytest.approx(error, rel=1e-4)


@pytest.mark.parametrize("columns", [["prompt", "repetition"], ["repetition", "prompt"]])
def test_all_columns_that_separate_the_scores_are_named(columns):
    """Repetitions are numbered within the prompts: neither column alone separates the scores."""
    once = grid(model=4, item=10, prompt=3)
    data = pd.concat([once.assign(repetition=k) for k in (0, 1)], ignore_index=True)
    data["score"] += np.random.default_rng(9).normal(0, 0.3, len(data))
    data = data[["model", "item", *columns, "score"]]
    message = refused(
        lambda: ir.compare_systems(data, system="model", topic="item"),
        "there are 6 scores of model 'm0' on item 'i0', one for each prompt and repetition. "
        "Means over them treat these levels of prompt as the only ones of interest.",
        "the scores of one prompt as repeated scores of a cell",
    )
    made = eval(message[message.index("vcomp.fit(") :], {"vcomp": vcomp, "data": data})
    assert made.table["std_error"].notna().all()


def test_measurements_are_no_facets():
    data = grid(model=3, item=8, rep=2).drop(columns="rep")
    data["latency"] = np.random.default_rng(3).integers(100, 900, len(data))
    message = refused(
        lambda: ir.compare_systems(data, system="model", topic="item"), "no column separates them"
    )
    assert "latency" not in message


def mean_squares_of_interactions(y):
    """Return MS(model × item), MS(model × prompt) and MS(residual) of models × items × prompts."""
    m, i, p = y.shape
    mean = y.mean
    mi = mean(2) - mean((1, 2))[:, None] - mean((0, 2)) + mean()
    mp = mean(1) - mean((1, 2))[:, None] - mean((0, 1)) + mean()
    rest = y - mean(2)[:, :, None] - mean(1)[:, None] - mean(0) - mean()
    rest += mean((1, 2))[:, None, None] + mean((0, 2))[:, None] + mean((0, 1))
    ms = (p * (mi**2).sum() / (m - 1) / (i - 1), i * (mp**2).sum() / (m - 1) / (p - 1))
    return *ms, (rest**2).sum() / (m - 1) / (i - 1) / (p - 1)


def test_measures_are_not_averaged():
    data = grid(system=3, topic=6, measure=2)
    message = refused(lambda: ir.compare_systems(data, system="system", topic="topic"), "keep one")
    kept = eval(message[message.index("data[") :], {"data": data})
    table = ir.compare_systems(kept, system="system", topic="topic").table
    wide = kept.pivot(index="topic", columns="system", values="score")
    assert table["p_value"][0] == pytest.approx(stats.ttest_rel(wide["s0"], wide["s1"]).pvalue)


def test_one_sided_and_baseline_tests_are_by_t():
    refused(lambda: ir.compare_systems(WIDE, "tukey", alternative="greater"), "use test='t'")
    found = ir.compare_systems(WIDE, "t", alternative="greater", correction="none").table
    expected = stats.ttest_rel(WIDE["s0"], WIDE["s1"], alternative="greater").pvalue
    assert found["p_value"][0] == pytest.approx(expected)
    refused(lambda: ir.compare_systems(WIDE, "tukey", baseline="s0"), "such as test='t'")
    found = ir.compare_systems(WIDE, "t", baseline="s0").table
    assert found["p_value"][0] == pytest.approx(PAIRED.pvalue)


def test_missing_scores_leave_topics_or_systems_out():
    holes = WIDE.copy()
    holes.iloc[3, 1] = np.nan
    refused(lambda: ir.compare_systems(holes, "tukey"), "as_score_matrix(...).common_topics()")
    kept = ir.as_score_matrix(holes).common_topics()
    residual = two_way(WIDE.drop(WIDE.index[3]).to_numpy())[2]
    row = ir.compare_systems(kept, "tukey").table.iloc[0]
    q = abs(row["difference"]) / np.sqrt(residual / 11)
    assert row["p_value"] == pytest.approx(stats.studentized_range.sf(q, 5, 40), rel=1e-6)
    few = WIDE.copy()
    few.iloc[1:, 4] = np.nan
    refused(lambda: ir.compare_systems(few), "fewer than two topics in common", "systems=[…]")
    found = ir.compare_systems(few, systems=list(WIDE.columns[:4]), correction="none").table
    assert found["p_value"][0] == pytest.approx(PAIRED.pvalue)


def test_replicates_that_are_enough():
    few = ir.compare_systems(WIDE, "bootstrap", n=99)
    (note,) = [n for n in few.notes if "use at least n=" in n]
    n = int(note.split("n=")[1].split()[0].replace(",", ""))
    assert n == 10 / 0.05  # ten pairs by Holm
    assert not [x for x in ir.compare_systems(WIDE, "bootstrap", n=n).notes if "use at least" in x]


def test_random_levels_are_compared_as_fixed():
    res = vcomp.fit(RANDOM, SCORES)
    refused(lambda: res.compare_levels("sys", "tukey"), "fit C(sys) in place of (1|sys)")
    found = vcomp.fit("score ~ C(sys) + (1|topic)", SCORES).compare_levels("sys", "tukey").table
    q = np.abs(found["difference"]) / np.sqrt(MS_RESIDUAL / 12)
    expected = stats.studentized_range.sf(q, 5, 44)
    np.testing.assert_allclose(found["p_value"], expected, rtol=1e-5)  # of the integration


def test_dunnett_names_its_baseline():
    """Dunnett's p-values lie between those of single pairs and Bonferroni's."""
    res = vcomp.fit("score ~ sys + (1|topic)", SCORES)
    refused(lambda: res.compare_levels("sys", "dunnett"), "name it by baseline=")
    found = res.compare_levels("sys", "dunnett", baseline="s0").table["p_value"]
    single = res.compare_levels("sys", "t", baseline="s0", correction="none").table["p_value"]
    assert (single <= found).all()
    assert (found <= 4 * single).all()


# Fixed effects ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ddf", ["satterthwaite", "kenward-roger"])
def test_degrees_of_freedom_of_other_methods(ddf):
    """A paired design: the t-test of differences, whatever the degrees of freedom are called."""
    ml = vcomp.fit(FIXED, TWO, method="ml")
    refused(
        lambda: ml.fixed_effects(ddf="kenward-roger"),
        "fit by method='reml', or use ddf='satterthwaite'",
    )
    row = vcomp.fit(FIXED, TWO, method="reml").fixed_effects(ddf=ddf).loc["sys[T.s1]"]
    assert row["t"] == pytest.approx(PAIRED.statistic, rel=1e-6)
    assert row["p_value"] == pytest.approx(PAIRED.pvalue, rel=1e-5)
    assert ml.fixed_effects(ddf="satterthwaite").loc["sys[T.s1]", "df"] > 0


def test_robust_variances_have_satterthwaites_degrees_of_freedom():
    res = vcomp.fit(FIXED, SCORES)
    refused(
        lambda: res.fixed_effects(ddf="kenward-roger", cov_type="robust"),
        "use ddf='satterthwaite' or 'normal'",
    )
    for ddf in ("satterthwaite", "normal"):
        row = res.fixed_effects(ddf=ddf, cov_type="robust").loc["sys[T.s1]"]
        assert row["coef"] == pytest.approx((WIDE["s1"] - WIDE["s0"]).mean(), rel=1e-9)
        # Of complete data: the variance of the differences of this pair.
        d = WIDE["s1"] - WIDE["s0"]
        assert row["std_error"] == pytest.approx(d.std() / 12**0.5, rel=0.15)  # corrected for β̂


def test_contrasts_are_rows_or_text():
    res = vcomp.fit(FIXED, TWO)
    refused(
        lambda: res.t_test("nothing"),
        "give a row of numbers for each contrast, or text such as 'sys[T.s1] = 0'",
    )
    for hypothesis in ("sys[T.s1] = 0", [0, 1]):
        assert res.t_test(hypothesis)["t"].iloc[0] == pytest.approx(PAIRED.statistic, rel=1e-6)


# Estimators and engines ------------------------------------------------------------------------


def test_a_fixed_part_needs_a_likelihood():
    refused(lambda: vcomp.fit(FIXED, SCORES, method="anova"), "use method='reml' or 'ml'")
    for method, df in (("reml", 44), ("ml", 48)):
        res = vcomp.fit(FIXED, SCORES, method=method)
        expected = MS_RESIDUAL * 44 / df
        assert res.vcomp["Residual"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("engine", ["auto", "blocked"])
def test_engines_that_do_not_serve(engine):
    holes = SCORES.drop([3, 17])
    refused(lambda: vcomp.fit(RANDOM, holes, engine="strata"), "use engine='auto'")
    res = vcomp.fit(RANDOM, holes, engine=engine)
    assert res.llf == pytest.approx(dense_restricted_likelihood(holes, res.vcomp), abs=1e-8)
    refused(
        lambda: vcomp.fit(RANDOM, holes, engine="blocked", n_probes=9),
        "leave n_probes= and rng= out, or use engine='iterative' or 'auto'",
    )
    assert vcomp.fit(RANDOM, holes, engine="blocked").vcomp["sys"] == pytest.approx(
        res.vcomp["sys"], rel=1e-5
    )


def dense_restricted_likelihood(data, v):
    """Return the restricted log-likelihood by the textbook formula."""
    n = len(data)
    alike = {f: np.equal.outer(data[f].to_numpy(), data[f].to_numpy()) for f in ("sys", "topic")}
    V = v["sys"] * alike["sys"] + v["topic"] * alike["topic"] + v["Residual"] * np.eye(n)
    inverse, one = np.linalg.inv(V), np.ones(n)
    information = one @ inverse @ one
    r = data["score"] - (one @ inverse @ data["score"]) / information
    logs = np.linalg.slogdet(V)[1] + np.log(information) + (n - 1) * np.log(2 * np.pi)
    return -0.5 * (logs + r @ inverse @ r)


def test_terms_that_cannot_be_distinguished():
    """Left out as the message says, the rest are the mean squares' components."""
    formula = "score ~ (1|sys) + (1|topic) + (1|sys:topic)"
    refused(lambda: vcomp.fit(formula, SCORES), "leave (1|sys:topic) out of the formula")
    twin = SCORES.assign(alias=SCORES["sys"])
    refused(lambda: vcomp.fit(f"{RANDOM} + (1|alias)", twin), "keep one of them")
    refused(
        lambda: vcomp.fit("score ~ sys + (1|sys) + (1|topic)", SCORES),
        "leave out (1|sys) or the fixed factor",
    )
    assert vcomp.fit(RANDOM, SCORES).vcomp.to_dict() == pytest.approx(ANOVA, rel=1e-5)
    res = vcomp.fit(FIXED, SCORES)
    assert res.vcomp["topic"] == pytest.approx(ANOVA["topic"], rel=1e-5)


def test_a_held_component_has_no_test():
    held = vcomp.fit(RANDOM, SCORES, hold={"sys": 1.0})
    refused(lambda: held.test("sys"), "fit without hold= to test it")
    found = vcomp.fit(RANDOM, SCORES).test("sys", test="f")
    assert found.p_value == pytest.approx(stats.f.sf(MS_SYS / MS_RESIDUAL, 4, 44), rel=1e-9)


def test_likelihood_ratios_need_a_likelihood():
    anova = vcomp.fit(RANDOM, SCORES, method="anova")
    refused(lambda: anova.test("sys", test="lrt"), "fit by method='reml' or 'ml', or use test='f'")
    assert anova.test("sys", test="f").p_value == pytest.approx(
        stats.f.sf(MS_SYS / MS_RESIDUAL, 4, 44), rel=1e-9
    )
    res, without = vcomp.fit(RANDOM, SCORES), vcomp.fit("score ~ (1|topic)", SCORES)
    ratio = 2 * (res.llf - without.llf)
    found = res.test("sys", test="lrt")
    assert found.p_value == pytest.approx(0.5 * stats.chi2.sf(ratio, 1), rel=1e-6)
    refused(lambda: vcomp.compare(anova, res), "fit by method='reml' or 'ml'")


def test_fixed_parts_are_compared_by_ml():
    both = [vcomp.fit(f, SCORES) for f in ("score ~ (1|topic)", FIXED)]
    refused(lambda: vcomp.compare(*both), "fit both by method='ml'")
    ml = [vcomp.fit(f, SCORES, method="ml") for f in ("score ~ (1|topic)", FIXED)]
    found = vcomp.compare(*ml).table
    ratio = 2 * (ml[1].llf - ml[0].llf)
    assert found["p_value"].iloc[-1] == pytest.approx(stats.chi2.sf(ratio, 4), rel=1e-9)


# Intervals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval", ["mls", "log", "wald", "profile"])
def test_intervals_of_ratios(interval):
    """All cover the share, and agree with the exact F limits of it to their approximation."""
    res = vcomp.fit(RANDOM, SCORES)
    share = "sys / (sys + Residual)"
    refused(
        lambda: res.quantity(share, interval="satterthwaite"),
        "use interval='mls', 'log', 'wald', 'profile' or 'bootstrap'",
    )
    found = res.quantity(share, interval=interval)
    assert found.low < ANOVA["sys"] / (ANOVA["sys"] + MS_RESIDUAL) < found.high
    if interval == "mls":
        ends = [MS_SYS / MS_RESIDUAL / stats.f.ppf(p, 4, 44) for p in (0.975, 0.025)]
        exact = [(f - 1) / (f + 11) for f in ends]
        np.testing.assert_allclose([found.low, found.high], exact, rtol=1e-6)


def test_a_restricted_likelihood_has_no_profile_of_fixed_effects():
    refused(
        lambda: vcomp.fit(FIXED, SCORES).profile("sys[T.s1]"),
        "fit with method='ml', or use a Wald interval",
    )
    low, high = vcomp.fit(FIXED, SCORES, method="ml").profile("sys[T.s1]").conf_int().iloc[0]
    middle = (WIDE["s1"] - WIDE["s0"]).mean()
    assert (low + high) / 2 == pytest.approx(middle, rel=1e-4)  # symmetric in balanced data


# D-studies -------------------------------------------------------------------------------------


def test_plans_without_what_they_need():
    res = vcomp.fit(RANDOM, SCORES)
    refused(
        lambda: res.dstudy(object="sys", sys=5, topic=3),
        "leave out sys=... or pass another object=...",
    )
    expected = ANOVA["sys"] / (ANOVA["sys"] + MS_RESIDUAL / 3)
    found = res.dstudy(object="sys", topic=3).table["Erho2"].iloc[0]
    assert found == pytest.approx(expected, rel=1e-5)
    other = res.dstudy(object="topic", sys=5).table["Erho2"].iloc[0]
    assert other == pytest.approx(ANOVA["topic"] / (ANOVA["topic"] + MS_RESIDUAL / 5), rel=1e-5)
    refused(lambda: res.dstudy(topic=3, fixed="topic", universe={"topic": 9}), "drop universe=")
    g = vcomp.from_components({"p": 1.0, "r": 0.5, "i": 2.0, "Residual": 4.0})
    refused(lambda: g.dstudy("p x i", i=4), "is named with one level: r=1")
    row = g.dstudy("p x i x r", i=4, r=1).table.iloc[0]
    assert row["abs_err_var"] == pytest.approx(2.0 / 4 + 0.5 + 4.0 / 4)


def test_fixed_facets_that_are_nested():
    """The universe of two genres with their four tasks (Brennan 2001, section 4.4)."""
    g = vcomp.from_components(
        {"p": 3.0, "g": 1.0, "g:t": 2.0, "p:g": 0.5, "p:g:t": 4.0, "r": 1.0, "Residual": 8.0}
    )
    sizes = {"g": 2, "t": 2, "r": 2}
    refused(lambda: g.dstudy(object="p", fixed="t", sizes=sizes), "or give fixed=['g', 't']")
    row = g.dstudy(object="p", fixed=["g", "t"], sizes=sizes).table.iloc[0]
    assert row["universe_var"] == pytest.approx(3.0 + 0.5 / 2 + 4.0 / 4)
    assert row["rel_err_var"] == pytest.approx(8.0 / 8)


def test_one_effect_needs_repeated_scores():
    refused(
        lambda: (
            vcomp.gstudy("sys", SCORES, "other") if False else vcomp.formula.design_formula("p")
        ),
        "pass replicated=True",
    )
    assert vcomp.formula.design_formula("p", replicated=True) == "score ~ (1|p)"


# Predictions, tests of items, measures ---------------------------------------------------------


def test_new_levels_are_zero():
    res = vcomp.fit(RANDOM, SCORES)
    new = pd.DataFrame({"sys": ["other", "s1"], "topic": ["t1", "t1"]})
    refused(lambda: res.predict(new), "new_levels='zero' predicts their effects as zero")
    found = res.predict(new, new_levels="zero")
    effects = res.random_effects
    mean = SCORES["score"].mean()
    of_topic, of_sys = (effects[f].iloc[:, 0] for f in ("topic", "sys"))
    assert found.iloc[0] == pytest.approx(mean + of_topic.loc["t1"], rel=1e-6)
    assert found.iloc[1] == pytest.approx(mean + of_topic.loc["t1"] + of_sys.loc["s1"], rel=1e-6)


@pytest.mark.parametrize("missing", ["listwise", "reml", "pairwise"])
def test_reliability_with_missing_scores(missing):
    holes = WIDE.T.copy()
    holes.iloc[0, 0] = np.nan
    refused(
        lambda: vcomp.reliability(holes, missing="raise"),
        "missing='reml' and 'pairwise' use the available ones, 'listwise' leaves out",
    )
    found = vcomp.reliability(holes, missing=missing)
    rows = holes.dropna().to_numpy()
    k = rows.shape[1]
    alpha = k / (k - 1) * (1 - rows.var(axis=0, ddof=1).sum() / rows.sum(axis=1).var(ddof=1))
    if missing == "listwise":
        assert found.cronbach_alpha == pytest.approx(alpha, rel=1e-9)
    assert -1 < found.cronbach_alpha <= 1


def test_data_that_are_read_once(tmp_path):
    def frames():
        yield from (SCORES[:20], SCORES[20:])

    made = frames()
    next(made)
    refused(lambda: vcomp.fit(RANDOM, made), "make a new one")
    rows = SCORES.to_dict("records")
    refused(lambda: vcomp.fit(RANDOM, iter(rows)), "pandas.DataFrame(data)")
    for data in (frames(), pd.DataFrame(rows), vcomp.io.spool(frames())):
        found = vcomp.fit(RANDOM, data).vcomp.to_dict()
        assert found == pytest.approx(ANOVA, rel=1e-5)


def test_rows_that_were_not_kept(tmp_path):
    path = tmp_path / "data.csv"
    SCORES.to_csv(path, index=False)
    streamed = vcomp.fit(RANDOM, path, stream=True)
    kept = vcomp.fit(RANDOM, path, stream=False)
    assert kept.vcomp.to_dict() == pytest.approx(ANOVA, rel=1e-5)
    assert streamed.vcomp.to_dict() == pytest.approx(ANOVA, rel=1e-5)
    assert kept.simulate(1, rng=1).shape == (60, 1)


def test_pictures_that_cannot_be_drawn():
    res = vcomp.fit(RANDOM, SCORES)
    refused(lambda: res.plot(term="sys"), "use kind='effects'")
    axes = res.plot("effects", term="sys")
    assert len(axes.get_yticklabels()) == 5


def test_transposed_and_long_scores():
    """Passed as the message says, they give the paired t-test."""
    rows = WIDE.T.rename_axis(index="system", columns="topic")
    refused(lambda: ir.compare_systems(rows), "Pass scores.T")
    found = ir.compare_systems(rows.T, correction="none").table
    assert found["p_value"][0] == pytest.approx(PAIRED.pvalue)
    long = SCORES.rename(columns={"sys": "system"})
    message = refused(lambda: ir.compare_systems(long), "name the columns:")
    call = message.split("name the columns: ")[1].split(". If")[0].rstrip(".")
    found = eval(f"ir.compare_systems(long, correction='none', {call})", {"ir": ir, "long": long})
    assert found.table["p_value"][0] == pytest.approx(PAIRED.pvalue)


def test_covariates_are_compared_as_factors():
    data = SCORES.assign(sys=SCORES["sys"].str[1:].astype(int))
    res = vcomp.fit(FIXED, data)
    refused(lambda: res.compare_levels("sys"), "write C(sys) in the formula")
    refused(lambda: res.marginal_means("sys"), "write C(sys) in the formula")
    res = vcomp.fit("score ~ C(sys) + (1|topic)", data)
    found = res.compare_levels("sys").table.iloc[0]
    assert found["difference"] == pytest.approx((WIDE["s0"] - WIDE["s1"]).mean(), rel=1e-9)
    assert found["std_error"] ** 2 == pytest.approx(2 * MS_RESIDUAL / 12, rel=1e-6)
    means = res.marginal_means("sys").table["mean"]
    np.testing.assert_allclose(means, WIDE.mean(), rtol=1e-9)


def test_terms_are_tested_as_a_whole():
    res = vcomp.fit(FIXED, SCORES)
    refused(lambda: res.t_test("sys"), "the whole by res.f_test('sys')")
    refused(lambda: res.test("sys"), "'sys' is a fixed effect, not a component; res.f_test('sys')")
    refused(lambda: res.test(res.fe_params.index[-1]), "a fixed effect, not a component")
    assert res.f_test("sys").statistic == pytest.approx(MS_SYS / MS_RESIDUAL, rel=1e-6)


def test_a_fit_is_no_table_of_scores():
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
    with pytest.raises(vcomp.DataError, match=r"res\.accuracy\(\) and res\.expected_tau\(\)"):
        vcomp.ir.accuracy(res)
    assert res.accuracy(topic=5) is not None
    assert len(res.expected_tau(topic=5)) == 1


def test_intervals_after_ml_lack_degrees_of_freedom_that_reml_has():
    rng = np.random.default_rng(2)
    p, r = np.repeat(np.arange(30), 2), np.tile([0, 1], 30)
    data = pd.DataFrame({"p": p, "r": r})
    data["y"] = rng.normal(size=30)[p] + np.array([-1.0, 1.0])[r] + rng.normal(size=60)
    ml, reml, anova = (
        vcomp.fit("y ~ (1|p) + (1|r)", data, method=m) for m in ("ml", "reml", "anova")
    )
    assert "method='reml' takes them off" in str(ml.summary()).replace("\n  ", " ")
    assert "takes no degrees" not in str(reml.summary()).replace("\n  ", " ")
    highest = [fit.conf_int(interval="mls").loc["var(r)", 1] for fit in (ml, reml, anova)]
    assert highest[0] < 0.1 * highest[1]
    assert highest[1] == pytest.approx(highest[2], rel=1e-6)


# Stored results ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["anova", "marginal_means", "r2"])
def test_what_needs_rows_is_had_by_fitting_again(name):
    """A loaded result names what it lacks; means of one factor are also compared without rows."""
    res = vcomp.fit(FIXED, SCORES)
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    arguments = ("sys",) if name == "marginal_means" else ()
    message = refused(lambda: getattr(loaded, name)(*arguments), "fit the model again")
    found = getattr(vcomp.fit(FIXED, SCORES), name)(*arguments)
    assert ("compare_levels()" in message) == (name == "marginal_means")
    if name == "marginal_means":
        means = loaded.compare_levels("sys").means
        np.testing.assert_allclose(means[found.table.index], found.table["mean"], rtol=1e-9)


def test_unequal_residual_variances_are_estimated_by_level():
    rng = np.random.default_rng(4)
    system, topic = np.repeat(np.arange(4), 60), np.tile(np.arange(60), 4)
    sd = np.array([0.2, 0.5, 1.0, 2.5])
    data = pd.DataFrame({"system": system, "topic": topic})
    data["score"] = rng.normal(size=4)[system] + rng.normal(size=60)[topic]
    data["score"] += sd[system] * rng.normal(size=240)
    formula = "score ~ (1|system) + (1|topic)"
    said = str(vcomp.fit(formula, data).diagnose(n=39)).replace("\n  ", " ")
    assert "vcomp.fit(…, residual='system') estimates them by systems." in said
    found = vcomp.fit(formula, data, residual="system").vcomp
    variances = found.filter(like="Residual[").to_numpy()
    # The logarithm of an estimate from 60 scores has a standard error of about 0.2.
    assert np.log(variances) == pytest.approx(np.log(sd**2), abs=0.8)


def test_ranks_and_equivalence_of_other_tests():
    data = vcomp.datasets.load("bodoff2007_alpha")

    def compared(**options):
        return vcomp.ir.compare_systems(data, system="sys", topic="topic", **options)

    refused(compared(correction="fdr_bh").ranks, "correction='holm'")
    refused(compared(test="wilcoxon").ranks, "test='t'")
    refused(lambda: compared(test="tukey").ranks("marginal"), "test='t'")
    refused(lambda: compared().equivalent(0.5), "res.compare_levels(…, test='t')")
    ranks = compared(test="t", correction="holm").ranks()
    assert (ranks["low"] <= ranks["rank"]).all()
    assert (ranks["rank"] <= ranks["high"]).all()
    assert len(compared(test="t").ranks("marginal")) == 5
    res = vcomp.fit(FIXED, data)
    # Scores are between 0 and 1.
    assert res.compare_levels("sys", test="t").equivalent(1.0)["equivalent"].all()


def said_of_fit(formula, data):
    """Return the status of a fit, or the message of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return vcomp.fit(formula, data).status
        except vcomp.EstimationError as error:
            return str(error)


@pytest.mark.parametrize("size", [1e6, 1e7])
def test_a_component_that_dwarfs_all_others(size):
    """With its effects fixed, the others are those that they tend to as it rises."""
    rng = np.random.default_rng(3)
    h, k, _ = (a.ravel() for a in np.indices((8, 6, 2)))
    columns = {"h": h, "k": k, "x": rng.normal(size=96)}
    of_h, rest = rng.normal(size=8)[h], rng.normal(size=6)[k] + rng.normal(size=96)

    def scores(size):
        return pd.DataFrame({**columns, "y": size * of_h + rest}).drop([3, 10, 50, 77])

    formula, fixed = "y ~ x + (1|h) + (1|k)", "y ~ x + C(h) + (1|k)"
    limit = vcomp.fit(formula, scores(1e3)).vcomp[["k", "Residual"]]
    assert "fit C(h) in place of (1|h)" in said_of_fit(formula, scores(size))
    # A component of 1e6 times the others is as good as without limit.
    np.testing.assert_allclose(vcomp.fit(fixed, scores(size)).vcomp, limit, rtol=1e-5)


SATURATED = {
    "y ~ x + (1|h) + (1|g)": {
        "h": [1, 1, 1, 1, 3, 0],
        "g": [2, 0, 0, 1, 2, 2],
        "x": [0.95, -1.51, 0.39, 0.11, 0.19, -0.53],
        "y": [0.69, -1.58, 0.43, -0.34, 1.01, -1.41],
    },
    "y ~ (1|h) + (1|g)": {
        "h": [0, 0, 1, 1, 2, 3],
        "g": [0, 1, 0, 1, 2, 2],
        "x": [0.0] * 6,
        "y": [1.0, 3.0, 4.0, 6.0, 2.0, 7.0],
    },
}


@pytest.mark.parametrize("formula", SATURATED)
def test_models_that_reproduce_the_scores_have_other_estimates(formula):
    """By MINQUE with any fixed part; expected are the equations of Rao (1971), written out."""
    data = pd.DataFrame(SATURATED[formula])
    assert "use method='minque'" in said_of_fit(formula, data)
    V = [np.equal.outer(data[f].to_numpy(), data[f].to_numpy()) * 1.0 for f in "hg"]
    V.append(np.eye(6))
    X = np.column_stack([np.ones(6), data["x"]])[:, : 1 + ("x" in formula)]
    inverse = np.linalg.inv(sum(V))
    P = inverse - inverse @ X @ np.linalg.solve(X.T @ inverse @ X, X.T @ inverse)
    forms = [[np.trace(P @ a @ P @ b) for b in V] for a in V]
    y = data["y"].to_numpy()
    expected = np.linalg.solve(forms, [y @ P @ a @ P @ y for a in V])
    found = vcomp.fit(formula, data, method="minque", prior=1.0)
    np.testing.assert_allclose(found.vcomp, expected, rtol=1e-9, atol=1e-12)


def test_without_a_residual_the_fixed_effects_have_no_standard_errors():
    """The reason was "not stored with this result", which was never stored."""
    h, g = ["h2", "h1", "h1", "h0", "h0"], ["g2", "g2", "g0", "g0", "g2"]
    columns = {"h": h, "g": g, "y": [1.0, 1.1, 0.0, -1.3, -0.6]}
    found = vcomp.fit("y ~ (1|h) + (1|g)", columns, method="minque")
    assert found.vcomp["Residual"] < 0.0
    words = " ".join(str(found.summary()).split())
    assert "no standard errors, as the residual variance is not above zero" in words
    assert "not stored" not in words

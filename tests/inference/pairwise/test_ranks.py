"""Ranks with their confidence sets, and equivalence, against independent formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.weightstats import ttost_paired

import vcomp
from vcomp.exceptions import PlanError
from vcomp.inference.pairwise import PairwiseComparisons, pairs_table

K = 7
PAIRS = np.triu_indices(K, 1)


def compared(means, se=1.0, correction="holm", alpha=0.05):
    """Return the z-tests of all pairs of means with independent errors."""
    d = means[PAIRS[0]] - means[PAIRS[1]]
    error = se * np.sqrt(2.0)
    half = stats.norm.isf(alpha / 2) * error
    tests = {
        "difference": d, "std_error": np.full(d.size, error), "df": np.full(d.size, np.inf),
        "statistic": d / error, "p_value": 2.0 * stats.norm.sf(np.abs(d) / error),
        "low": d - half, "high": d + half,
    }  # fmt: skip
    names = [f"s{i}" for i in range(len(means))]
    table = pairs_table(names, PAIRS, {}, tests, correction, alpha)
    series = pd.Series(means, index=names)
    return PairwiseComparisons(table, series, "system", "z-test", "z", correction, alpha)


def holm(p):
    """Return what Holm rejects at 0.05, and the p-values adjusted by him.

    As ``multipletests`` of statsmodels, which collects garbage in every call
    (``test_as_multipletests`` compares the library with it).
    """
    p = np.asarray(p)
    order = np.argsort(p)
    adjusted = np.empty(p.size)
    steps = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted <= 0.05, adjusted


def true_ranks(means):
    return 1 + (means > means[:, None]).sum(axis=1)


@pytest.mark.parametrize("best", ["largest", "smallest"])
def test_simultaneous_sets_are_what_significant_pairs_leave(best):
    means = np.random.default_rng(1).normal(scale=3.0, size=K)
    made = compared(means)
    found = made.ranks(best=best)
    sign = 1.0 if best == "largest" else -1.0
    assert found.index.tolist() == [f"s{i}" for i in np.argsort(-sign * means)]
    assert found["rank"].tolist() == list(range(1, K + 1))
    for level, row in found.iterrows():
        own = made.table[(made.table[["first", "second"]] == level).any(axis=1)]
        ahead = sign * np.where(own["first"] == level, 1.0, -1.0) * own["difference"]
        assert row["low"] == 1 + (own["significant"] & (ahead < 0)).sum()
        assert row["high"] == K - (own["significant"] & (ahead > 0)).sum()
        assert row["low"] <= row["rank"] <= row["high"]
    assert found["high"].iloc[0] < K


def test_marginal_sets_are_of_the_pairs_of_each_level():
    means = np.random.default_rng(2).normal(scale=2.0, size=K)
    made = compared(means)
    found, wide = made.ranks("marginal"), made.ranks()
    for level, row in found.iterrows():
        own = made.table[(made.table[["first", "second"]] == level).any(axis=1)]
        rejected = holm(own["p_value"])[0]
        ahead = np.where(own["first"] == level, 1.0, -1.0) * own["difference"]
        assert row["low"] == 1 + (rejected & (ahead < 0)).sum()
        assert row["high"] == K - (rejected & (ahead > 0)).sum()
    assert (found["low"] >= wide["low"]).all()
    assert (found["high"] <= wide["high"]).all()
    assert not found.equals(wide)


def test_sets_cover_true_ranks():
    rng = np.random.default_rng(3)
    for truth in (np.zeros(K), np.arange(K) * 1.5, np.repeat([0.0, 3.0], [3, 4])):
        low_rank = true_ranks(truth)
        # Levels with equal means may have any of the ranks that they share: the first is enough.
        all_at_once, each = [], []
        for _ in range(50):
            made = compared(truth + rng.normal(size=K))
            sets, own = (
                made.ranks(kind).loc[made.means.index] for kind in ("simultaneous", "marginal")
            )
            inside = (sets["low"] <= low_rank) & (low_rank <= sets["high"])
            all_at_once.append(bool(inside.all()))
            each.append(((own["low"] <= low_rank) & (low_rank <= own["high"])).mean())
        # A share of 0.95 of 50 draws has a standard error of 0.031.
        assert np.mean(all_at_once) >= 0.88
        assert np.mean(each) >= 0.9


def test_ranks_of_a_fit_and_of_systems():
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.fit("score ~ C(sys) + (1|topic)", data)
    tukey = res.compare_levels("sys", "tukey")
    systems = vcomp.ir.compare_systems(data, "tukey", system="sys", topic="topic", score="score")
    pd.testing.assert_frame_equal(
        tukey.ranks(), systems.ranks(), check_index_type=False, check_names=False
    )
    inside = tukey.table.set_index(["first", "second"])[["low", "high"]]
    best = tukey.ranks().index[0]
    worse = [pair for pair in inside.index if (best in pair and (inside.loc[pair] > 0).all())
             or (best in pair and (inside.loc[pair] < 0).all())]  # fmt: skip
    assert tukey.ranks().loc[best, "high"] == 5 - len(worse)


def test_what_has_no_ranks():
    made = compared(np.arange(float(K)))
    for correction in ("none", "fdr_bh"):
        some = compared(np.arange(float(K)), correction=correction)
        with pytest.raises(PlanError, match=r"all pairs at once, .*; use correction='holm'"):
            some.ranks()
        assert len(some.ranks("marginal")) == K
    without = made.table.drop(columns=["std_error", "df"])
    with pytest.raises(PlanError, match=r"those of all pairs at once .*; use test='t'"):
        replace(made, correction=None, table=without).ranks("marginal")
    with pytest.raises(PlanError, match="not of means; use test='t'"):
        replace(made, symbol="W+", test="Wilcoxon signed-rank test").ranks()
    with pytest.raises(PlanError, match="with one baseline"):
        replace(made, table=made.table.iloc[:3]).ranks()
    with pytest.raises(PlanError, match="kind must be"):
        made.ranks("all")


def test_equivalence_is_two_one_sided_t_tests():
    rng = np.random.default_rng(4)
    a = rng.normal(size=30)
    b = a + rng.normal(0.1, 0.3, size=30)
    long = pd.DataFrame({
        "score": np.concatenate([a, b]), "system": np.repeat(["a", "b"], 30),
        "topic": np.tile(np.arange(30), 2),
    })  # fmt: skip
    res = vcomp.fit("score ~ system + (1|topic)", long)
    found = res.compare_levels("system").equivalent(0.25)
    p = ttost_paired(a, b, -0.25, 0.25)[0]
    assert found["p_value"].item() == pytest.approx(p, rel=1e-7)
    assert found["equivalent"].item() == (p <= 0.05)
    assert not res.compare_levels("system").equivalent(0.01)["equivalent"].item()


def test_equivalence_has_the_correction_of_the_pairs():
    made = compared(np.array([0.0, 0.1, 5.0, 0.2, 0.0, 0.1, 9.0]), se=0.3)
    found = made.equivalent(1.2)
    alone = stats.norm.sf((1.2 - found["difference"].abs()) / (0.3 * np.sqrt(2.0)))
    assert found["p_value"].to_numpy() == pytest.approx(alone, rel=1e-12)
    rejected, p = holm(alone)
    assert found["p_adjusted"].to_numpy() == pytest.approx(p, rel=1e-12)
    assert found["equivalent"].tolist() == rejected.tolist()
    assert 0 < found["equivalent"].sum() < len(found)


def test_tests_of_all_pairs_have_the_t_tests_of_single_ones():
    """Of Tukey's and max-T tests, as of studies, with Holm's correction."""
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.fit("score ~ C(sys) + (1|topic)", data)
    t = res.compare_levels("sys", test="t", correction="holm")
    for test in ("tukey", "max-t"):
        of_all = res.compare_levels("sys", test=test)
        assert of_all.ranks("marginal").equals(t.ranks("marginal"))
        assert of_all.equivalent(0.1).equals(t.equivalent(0.1))
    rng = np.random.default_rng(7)
    n, k = 25, 6
    wide = pd.DataFrame(rng.normal(size=(n, 1)) + rng.normal(size=(n, k)) + np.arange(k) / 4.0)
    long = wide.rename_axis(columns="model").reset_index(names="item")
    data = long.melt("item", value_name="score")
    study = vcomp.evals.study(data)
    marginal = study.comparisons.ranks("marginal")
    rest = wide.sub(wide.mean(axis=1), axis=0) - wide.mean() + wide.to_numpy().mean()
    error = np.sqrt(2.0 * (rest**2).to_numpy().sum() / ((n - 1) * (k - 1)) / n)
    for level, row in marginal.iterrows():
        others = wide.mean().drop(level)
        t_values = (others - wide[level].mean()).abs() / error
        p = 2.0 * stats.t.sf(t_values, (n - 1) * (k - 1))
        rejected = holm(p)[0]
        assert row["low"] == 1 + (rejected & (others > wide[level].mean())).sum()
        assert row["high"] == k - (rejected & (others < wide[level].mean())).sum()


def test_noninferior_levels_pass_the_tests_against_all_others():
    """The largest of the one-sided p-values of a level, and Holm over the levels."""
    means = np.array([0.0, 0.1, 5.0, 0.2, 0.0, 4.9, 5.2])
    for sign, best in ((1.0, "largest"), (-1.0, "smallest")):
        made = compared(sign * means, se=0.3)
        found = made.noninferior(1.5, best=best)
        behind = (means - means[:, None])[~np.eye(K, dtype=bool)].reshape(K, K - 1)
        alone = stats.norm.sf((1.5 - behind) / (0.3 * np.sqrt(2.0))).max(axis=1)
        of_levels = found.loc[made.means.index]
        assert of_levels["behind"].to_numpy() == pytest.approx(behind.max(axis=1), rel=1e-12)
        assert of_levels["p_value"].to_numpy() == pytest.approx(alone, rel=1e-12)
        rejected, p = holm(alone)
        assert of_levels["p_adjusted"].to_numpy() == pytest.approx(p, rel=1e-12)
        assert of_levels["noninferior"].tolist() == rejected.tolist()
        assert rejected.sum() == 3
        assert found.index[0] == made.means.index[6]


def test_what_has_no_equivalence():
    made = compared(np.arange(float(K)))
    for tested in ("equivalent", "noninferior"):
        for margin in (0.0, -1.0, np.inf, np.nan, "a", None, True):
            with pytest.raises(PlanError, match="margin must be a difference above 0"):
                getattr(made, tested)(margin)
        of_others = replace(made, table=made.table.drop(columns=["std_error", "df"]))
        with pytest.raises(PlanError, match=r"use res\.compare_levels\(…, test='t'\)"):
            getattr(of_others, tested)(1.0)
    with pytest.raises(PlanError, match="with one baseline"):
        replace(made, table=made.table.iloc[:3]).noninferior(1.0)
    with pytest.raises(PlanError, match="best must be"):
        made.noninferior(1.0, best="first")

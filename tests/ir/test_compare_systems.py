"""The public function: forms of scores, pairs, missing scores, and what is refused."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from vcomp.exceptions import DataError, EstimationError, PlanError
from vcomp.ir import ScoreMatrix, as_score_matrix, compare_systems
from vcomp.ir.pair_tests import PairOptions
from vcomp.ir.system_comparison import outcome_of

RNG = np.random.default_rng(6)
NAMES = ["bm25", "rm3", "ql", "tfidf", "lsa"]
WIDE = pd.DataFrame(
    (RNG.normal(0.4, 0.2, (16, 1)) + RNG.normal(0.0, 0.1, (16, 5)) - np.arange(5) / 20).round(2),
    index=[f"q{t}" for t in range(16)],
    columns=NAMES,
)
MATRIX = as_score_matrix(WIDE)
TESTS = ("t", "wilcoxon", "sign", "permutation", "bootstrap", "tukey", "randomised_tukey")
SINGLE = TESTS[:5]


def holes(*cells):
    scores = MATRIX.scores.copy()
    for topic, system in cells:
        scores[topic, system] = np.nan
    return ScoreMatrix(scores, MATRIX.topics, MATRIX.systems)


def test_pairs_differences_and_adjusted_p_values():
    table = compare_systems(WIDE).table
    assert list(zip(table["first"], table["second"], strict=True)) == list(combinations(NAMES, 2))
    for row in table.itertuples():
        a, b = WIDE[row.first], WIDE[row.second]
        assert row.difference == pytest.approx((a - b).mean(), abs=1e-14)
        assert row.p_value == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-10)
    assert (table["n_topics"] == 16).all()
    for correction in ("bonferroni", "holm", "fdr_bh", "fdr_by"):
        made = compare_systems(WIDE, correction=correction).table
        rejected, p, *_ = multipletests(table["p_value"], method=correction)
        np.testing.assert_allclose(made["p_adjusted"], p, rtol=1e-12)
        assert made["significant"].tolist() == rejected.tolist()
    none = compare_systems(WIDE, correction="none").table
    assert (none["p_adjusted"] == none["p_value"]).all()


@pytest.mark.parametrize("test", TESTS)
def test_long_tables_and_matrices_are_the_same(test):
    long = MATRIX.to_long().rename(columns={"system": "run", "topic": "qid", "score": "map"})
    columns = {"system": "run", "topic": "qid", "score": "map"}
    made = compare_systems(MATRIX, test)
    assert compare_systems(long, test, **columns).table.equals(made.table)
    bare = compare_systems(MATRIX.scores, test).table
    np.testing.assert_array_equal(bare["p_value"], made.table["p_value"])
    assert bare["first"].tolist()[:2] == ["0", "0"]


def test_two_systems_need_no_correction():
    made = compare_systems(WIDE, systems=["ql", "bm25"])
    row = made.table.iloc[0]
    assert (row["first"], row["second"]) == ("ql", "bm25")
    assert row["p_adjusted"] == row["p_value"]
    assert "p adj." not in str(made)  # of a single pair
    assert made.is_of_all_pairs


@pytest.mark.parametrize("test", SINGLE)
def test_a_baseline_is_the_second_of_each_pair(test):
    made = compare_systems(WIDE, test, baseline="ql", alternative="greater")
    assert set(made.table["second"]) == {"ql"}
    assert made.table["first"].tolist() == ["bm25", "rm3", "tfidf", "lsa"]
    every = compare_systems(WIDE, test, alternative="greater", correction="none").table
    pair = every[(every["first"] == "ql") & (every["second"] == "lsa")]
    turned = compare_systems(WIDE, test, baseline="ql", alternative="less").table.iloc[3]
    # The same random numbers are used for (ql, lsa) and (lsa, ql); ties are settled alike.
    np.testing.assert_allclose(turned["p_value"], pair["p_value"].item(), rtol=1e-9)
    with pytest.raises(PlanError, match="4 pairs of 5 systems, with one baseline"):
        _ = made.groups


@pytest.mark.parametrize("test", SINGLE)
def test_with_missing_scores_pairs_have_their_common_topics(test):
    incomplete = holes((0, 0), (1, 0), (3, 2), (3, 4))
    options = {"correction": "none"}
    table = compare_systems(incomplete, test, **options).table
    for row in table.itertuples():
        both = incomplete.to_frame()[[row.first, row.second]].dropna()
        assert row.n_topics == len(both)
        alone = compare_systems(both, test, **options).table.iloc[0]
        expected = [alone["difference"], alone["statistic"], alone["p_value"], alone["low"]]
        # The replicates of a pair are those of its number of topics, with others or alone.
        made = [row.difference, row.statistic, row.p_value, row.low]
        np.testing.assert_allclose(made, expected, rtol=1e-9, atol=1e-14)
    assert "common" not in str(compare_systems(MATRIX, test))
    note = "pairs are compared on the topics that both have (13 to 16 of 16)"
    assert note in " ".join(str(compare_systems(incomplete, test)).split())


@pytest.mark.parametrize("test", ["tukey", "randomised_tukey"])
def test_tests_of_all_pairs_need_every_score(test):
    message = rf"test='{test}' needs every system on every topic: 1 of 80 are missing, that of "
    with pytest.raises(DataError, match=message + r"system 'ql' on topic 'q3'.*common_topics"):
        compare_systems(holes((3, 2)), test)
    common = compare_systems(holes((3, 2)).common_topics(), test).table
    assert (common["n_topics"] == 15).all()


def test_systems_without_common_topics_are_named():
    incomplete = holes(*[(t, 0) for t in range(8)], *[(t, 1) for t in range(7, 16)])
    with pytest.raises(DataError, match=r"'bm25' and 'rm3' have fewer than two topics in common"):
        compare_systems(incomplete)
    assert len(compare_systems(incomplete, systems=["bm25", "ql", "lsa"]).table) == 3


@pytest.mark.parametrize("test", TESTS)
def test_identical_systems_and_constant_differences(test):
    X = np.array([[0.5, 0.5, 0.25], [0.25, 0.25, 0.0], [0.75, 0.75, 0.5], [1.0, 1.0, 0.75]])
    made = compare_systems(X, test, correction=None)
    table = made.table
    assert table["p_value"].tolist()[0] == 1.0
    assert table["difference"].tolist() == [0.0, 0.25, 0.25]
    assert np.isfinite(table["p_value"]).all()
    constant = table["p_value"].tolist()[1:]
    assert constant[0] == constant[1] < 0.2
    if test in ("t", "tukey"):
        assert constant == [0.0, 0.0]
        assert np.isinf(table["statistic"].to_numpy()[1:]).all()
        assert "2 of 3 differences are the same on all topics" in str(made)


@pytest.mark.parametrize("test", TESTS)
def test_two_topics(test):
    made = compare_systems(MATRIX.select(topics=["q1", "q2"]), test)
    assert ((made.table["p_value"] > 0) & (made.table["p_value"] <= 1)).all()
    if test in ("wilcoxon", "sign", "permutation"):
        said = " ".join(str(made).split())
        assert "No p-value can be below 0.5, 1 adjusted: with so few topics nothing can be" in said


def test_too_few_replicates_are_said_and_by_default_there_are_enough():
    few = compare_systems(WIDE, "bootstrap", n=100)
    said = " ".join(str(few).split())
    assert "nothing can be significant; use at least n=200 replicates" in said
    X = RNG.normal(size=(20, 25))
    assert "60,000 replicates" in str(compare_systems(X, "permutation"))
    assert "10,000 replicates" in str(compare_systems(X, "permutation", correction="fdr_bh"))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"test": "z"}, PlanError, r"test must be 't', 'wilcoxon'.* not 'z'"),
        ({"correction": "bh"}, PlanError, "correction must be 'none'"),
        ({"alternative": "larger"}, PlanError, "alternative must be 'two-sided'"),
        ({"test": "wilcoxon", "zeros": "drop"}, PlanError, "zeros must be 'pratt', 'wilcox'"),
        ({"zeros": "pratt"}, PlanError, "zeros= is an option of test='wilcoxon'; test='t' has"),
        ({"n": 100}, PlanError, r"resampling tests \('permutation', 'bootstrap', 'randomised_"),
        ({"test": "tukey", "correction": "holm"}, PlanError, "need no correction="),
        ({"test": "tukey", "alternative": "less"}, PlanError, "for one-sided tests use test='t'"),
        ({"test": "randomised_tukey", "baseline": "ql"}, PlanError, "with a baseline use another"),
        ({"baseline": "rm4"}, DataError, r"no system 'rm4' \(did you mean 'rm3'\?\)"),
        ({"systems": ["ql"]}, DataError, "two systems"),
        ({"systems": ["ql", "x"]}, DataError, "there is no system 'x'"),
        ({"alpha": 0}, PlanError, "alpha must be between"),
        ({"test": "permutation", "n": 0}, EstimationError, "n must be a whole number"),
        ({"test": "permutation", "rng": "x"}, EstimationError, "rng must be a seed"),
        ({"workers": 0}, EstimationError, "workers must be a whole number"),
    ],
)
def test_options_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        compare_systems(WIDE, **options)


def test_one_system_or_one_topic_is_refused():
    for few in (WIDE[["ql"]], WIDE.iloc[:1]):
        with pytest.raises(DataError, match="at least two topics"):
            compare_systems(few)


def test_groups_share_letters_where_differences_are_not_significant():
    made = compare_systems(WIDE, "tukey")
    assert made.groups.index.tolist() == WIDE.mean().sort_values(ascending=False).index.tolist()
    letters = made.groups["group"]
    for row in made.table.itertuples():
        shared = set(letters[row.first]) & set(letters[row.second])
        assert bool(shared) == (not row.significant)
    assert made.table["significant"].any()
    assert not made.table["significant"].all()


def test_squares():
    made = compare_systems(WIDE)
    p, d = made.matrix(), made.matrix("difference")
    row = made.table.iloc[3]
    assert p.loc[row["first"], row["second"]] == p.loc[row["second"], row["first"]]
    assert p.loc[row["first"], row["second"]] == row["p_adjusted"]
    assert d.loc[row["first"], row["second"]] == row["difference"]
    assert d.loc[row["second"], row["first"]] == -row["difference"]
    assert not made.matrix("significant").to_numpy().diagonal().any()
    with pytest.raises(PlanError, match=r"no square of 'p_values' \(did you mean 'p_value'\?\)"):
        made.matrix("p_values")


def test_the_printed_form():
    made = compare_systems(WIDE)
    text = str(made.summary(3))
    assert "Differences between systems: paired t-test" in text
    assert "p adj.: adjusted by Holm; significant if it is at most 0.05." in text
    assert "3 of 10 pairs are listed" in text
    assert "pairs of system distinct" in repr(made)
    assert "less" in str(compare_systems(WIDE, alternative="less"))
    for show in (-1, 1.5, True):
        with pytest.raises(PlanError, match="show is a whole number of pairs"):
            made.summary(show)
    assert "<table" in made._repr_html_()


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("level", [0.0, 0.3])
def test_systems_that_are_alike_have_a_p_value_of_1(test, level):
    found = outcome_of(np.full((8, 3), level), test, PairOptions(n=100))
    np.testing.assert_array_equal(found.p_values, 1.0)


@pytest.mark.parametrize("test", ["wilcoxon", "permutation", "bootstrap", "randomised_tukey"])
def test_a_bar_is_shown_if_it_is_requested(test, capsys):
    compare_systems(WIDE.iloc[:, :3], test, progress=False)
    assert capsys.readouterr().err == ""
    compare_systems(WIDE.iloc[:, :3], test, progress=True, n=None if test == "wilcoxon" else 300)
    assert "blocks of " in capsys.readouterr().err


def test_one_pair_has_its_own_interval():
    assert "Intervals: t, of the mean difference." in compare_systems(WIDE.iloc[:, :2]).notes
    assert "Intervals: t, each pair separately." in compare_systems(WIDE).notes

"""Unjudged documents: how many, and what they may change."""

from __future__ import annotations

import itertools
import re

import ir_measures
import numpy as np
import pytest

import vcomp
from vcomp.exceptions import DataError, VcompWarning
from vcomp.ir.run_scores import score_runs
from vcomp.ir.unjudged_documents import unjudged

# ir_measures parses names by what later versions of Python do without.
pytestmark = pytest.mark.filterwarnings("ignore:.*removed in Python 3.14:DeprecationWarning")

RNG = np.random.default_rng(5)
TOPICS = [f"{t}" for t in range(401, 405)]
GRADES = {t: {f"d{k}": int(RNG.choice([0, 0, 1, 2])) for k in range(9)} for t in TOPICS}
GRADES["404"] |= {"d0": 1}
ALL = [f"d{k}" for k in range(14)]  # d9 to d13 are not judged
RUNS = {
    name: {t: {d: 9.0 - k for k, d in enumerate(RNG.permutation(ALL)[:7])} for t in TOPICS}
    for name in ("one", "two")
}


def by_hand(measure, run, qrels, topic):
    """The score of a topic by ir_measures itself."""
    (found,) = ir_measures.iter_calc(
        [ir_measures.parse_measure(measure)], {topic: qrels}, {topic: run}
    )
    return found.value


@pytest.mark.parametrize(
    "measure",
    ["nDCG@5", "AP@6", "AP", "nDCG", "P@5", "RR", "RR@3", "Success@2", "R@5", "Rprec", "ERR@5",
     "nDCG(dcg='exp-log2')@5", "P(rel=2)@3", "AP(rel=2)@5", "IPrec@0.5"],
)  # fmt: skip
def test_bounds_are_those_of_all_ways_to_judge(measure):
    """Every subset of the unjudged documents to the depth is scored by ir_measures itself."""
    found = unjudged(RUNS, GRADES, measure)
    depth = ir_measures.parse_measure(measure).params.get("cutoff", 7)
    assert found.grade == 2
    np.testing.assert_allclose(
        found.score.scores, score_runs(RUNS, GRADES, measure).scores, rtol=1e-12
    )
    for column, run in enumerate(RUNS.values()):
        for row, topic in enumerate(TOPICS):
            first = list(run[topic])[:depth]
            unknown = [d for d in first if d not in GRADES[topic]]
            scores = [
                by_hand(measure, run[topic], GRADES[topic] | dict.fromkeys(some, 2), topic)
                for size in range(len(unknown) + 1)
                for some in itertools.combinations(unknown, size)
            ]
            ends = found.low.scores[row, column], found.high.scores[row, column]
            np.testing.assert_allclose(ends, (min(scores), max(scores)), rtol=1e-12)
            share = 1 - len(unknown) / len(first)
            np.testing.assert_allclose(found.score.judged[row, column], share, rtol=1e-12)


@pytest.mark.parametrize("measure", ["nDCG@5", "AP", "P@3"])
def test_condensed_lists_are_those_of_ir_measures(measure):
    name, at, cutoff = measure.partition("@")
    expected = score_runs(RUNS, GRADES, f"{name}(judged_only=True){at}{cutoff}")
    found = unjudged(RUNS, GRADES, measure)
    np.testing.assert_allclose(found.condensed.scores, expected.scores, rtol=1e-12)


def test_shares_are_judged_of_ir_measures():
    """Without ties, as it breaks them otherwise than trec_eval."""
    several = score_runs(RUNS, GRADES, ["nDCG@5", "Judged@5", "AP", "Judged", "Bpref", "infAP"])
    for name, share in [("nDCG@5", "Judged@5"), ("AP", "Judged")]:
        np.testing.assert_allclose(several[name].judged, several[share].scores, rtol=1e-12)
    part = several["AP"].select(systems=["two"] * 1 + ["one"], topics=TOPICS[:2])
    np.testing.assert_array_equal(part.judged, several["AP"].judged[:2, ::-1])
    assert list(part.to_long()) == ["system", "topic", "score", "judged"]
    np.testing.assert_array_equal(
        several["AP"].drop_worst(0).common_topics().judged, several["AP"].judged
    )


# c was pooled and not judged (-1); x and y were not pooled.
POOLED = {"1": {"a": 1, "b": 0, "c": -1, "d": 1}, "2": {"a": 2, "e": 1, "f": 0}}
SAMPLED = {
    "run": {"1": {"x": 4.0, "b": 3.0, "c": 2.0, "a": 1.0}, "2": {"f": 3.0, "a": 2.0, "y": 1.0}},
    "best": {"1": {"a": 2.0, "d": 1.0, "x": 0.5}, "2": {"a": 2.0, "e": 1.0}},
}


def test_measures_that_skip_unjudged_documents():
    """Bpref and infAP of ir_measures, by hand.

    Bpref of the first run is 0: the one document that was judged not relevant is above the
    relevant ones. infAP expects a precision at rank j of 1/j + (j − 1)/j · (share of the ranks
    above that were pooled) · (relevant + ε)/(judged + 2ε) (Yilmaz & Aslam, 2006).
    """
    found = score_runs(SAMPLED, POOLED, ["bpref", "infAP"])
    np.testing.assert_allclose(found["bpref"].scores, [[0, 1], [0, 1]], atol=1e-12)
    eps = 1e-5
    first = (1 / 4 + 3 / 4 * (2 / 3) * eps / (1 + 2 * eps)) / 2
    second = (1 / 2 + 1 / 2 * 1 * eps / (1 + 2 * eps)) / 2
    best = (1 + 1 / 2 + 1 / 2 * (1 + eps) / (1 + 2 * eps)) / 2
    expected = [[first, best], [second, best]]
    np.testing.assert_allclose(found["infAP"].scores, expected, rtol=1e-12)


def test_the_table_and_the_pairs():
    found = unjudged(RUNS, GRADES, "P@5")
    table = found.table
    assert list(table) == ["judged", "score", "low", "high", "condensed"]
    assert table["score"].is_monotonic_decreasing
    best, other = table.itertuples()
    (pair,) = found.pairs.itertuples()
    np.testing.assert_allclose(pair.low, best.low - other.high, rtol=1e-12)
    np.testing.assert_allclose(pair.high, best.high - other.low, rtol=1e-12)
    assert not pair.decided
    assert "may change the order of 1 of 1 pairs" in " ".join(str(found).split())
    judged = {t: dict.fromkeys(ALL, 0) | GRADES[t] for t in TOPICS}
    sure = unjudged(RUNS, judged, "P@5")
    assert sure.to_judge().empty
    np.testing.assert_array_equal(sure.low.scores, sure.high.scores)
    np.testing.assert_array_equal(sure.condensed.scores, sure.score.scores)
    assert sure.pairs["decided"].all() == (sure.pairs["difference"] != 0).all()


def test_the_documents_to_judge_are_those_that_more_runs_retrieved_first():
    more = {**RUNS, "other": {t: {"x": 1.0, "d0": 0.5} for t in TOPICS[:1]}}
    for measure, depth in [("P@5", 5), ("AP", 7)]:
        table = unjudged(more, GRADES, measure).to_judge()
        ranks = {}
        for run in more.values():
            for topic, documents in run.items():
                for rank, document in enumerate(list(documents)[:depth], 1):
                    if document not in GRADES[topic]:
                        ranks.setdefault((topic, document), []).append(rank)
        expected = sorted((-len(r), min(r), *key) for key, r in ranks.items())
        rows = table[["runs", "rank", "topic", "document"]].itertuples(index=False)
        assert [(-row[0], *row[1:]) for row in rows] == expected


def test_topics_without_documents_and_runs_of_unjudged_documents():
    """A run without documents on a topic has 0, whatever is relevant."""
    runs = {**RUNS, "few": {"401": {"new": 2.0, "newer": 1.0}}}
    found = unjudged(runs, GRADES, "P@2")
    place = found.score.systems.index("few")
    assert found.score.scores[:, place].tolist() == [0, 0, 0, 0]
    assert found.high.scores[:, place].tolist() == [1, 0, 0, 0]
    assert found.condensed.scores[:, place].tolist() == [0, 0, 0, 0]
    assert found.score.judged[0, place] == 0
    assert np.isnan(found.score.judged[1:, place]).all()


def test_grades_of_unjudged_documents():
    one = unjudged(RUNS, GRADES, "nDCG@5", grade=1)
    assert one.grade == 1
    assert (one.high.scores <= 1).all()
    for wrong in (0, 1.5, "2", True):
        with pytest.raises(DataError, match="grade must be a positive whole number"):
            unjudged(RUNS, GRADES, grade=wrong)
    nothing = {t: dict.fromkeys(ALL[:4], 0) for t in TOPICS}
    with pytest.raises(DataError, match=r"no document of the judgements is relevant; give grade"):
        unjudged(RUNS, nothing)
    assert unjudged(RUNS, nothing, "P@5", grade=1).score.scores.max() == 0


def test_what_has_no_bounds_is_refused():
    for measure in ("Bpref", "infAP", "Judged@5", "AP(judged_only=True)"):
        with pytest.raises(DataError, match="leaves unjudged documents out, so they change noth"):
            unjudged(RUNS, GRADES, measure)
    with pytest.raises(DataError, match="there are 2 sets of judgements") as told:
        unjudged(RUNS, {"A": GRADES, "B": GRADES})
    advised = re.search(r"\{name: .*\}", str(told.value))[0]
    each = eval(advised, {"vcomp": vcomp, "runs": RUNS, "qrels": {"A": GRADES, "B": GRADES}})
    assert list(each) == ["A", "B"]
    long = {name: {t: {f"new{k}": -k for k in range(201)} for t in TOPICS} for name in RUNS}
    with pytest.raises(DataError, match=r"'one' has 201 unjudged .* too many .* by AP;") as told:
        unjudged(long, GRADES, "AP")
    (advised,) = re.findall("such as '(.*)'", str(told.value))
    assert unjudged(long, GRADES, advised).low.scores.max() == 0
    assert unjudged(long, GRADES, "P@250").high.scores.max() == 201 / 250


def test_runs_with_fewer_judged_documents_are_named():
    topics = [f"t{k}" for k in range(5)]
    qrels = {t: {f"d{k}": k % 2 for k in range(10)} for t in topics}
    runs = {
        "old": {t: {f"d{k}": -k for k in range(10)} for t in topics},
        "new": {t: {f"{'d' if k < 6 else 'n'}{k}": -k for k in range(10)} for t in topics},
    }
    message = "to the depth of P@10, 60 % of the documents of run 'new' were judged, and 100 % of"
    with pytest.warns(VcompWarning, match=message) as told:
        score_runs(runs, qrels, ["AP", "P@5", "P@10"])
    call = re.search(r"vcomp\.ir\.unjudged\(.*?\)", str(told[0].message))[0]
    table = eval(call, {"vcomp": vcomp, "runs": runs, "qrels": qrels}).table
    assert table.loc["new"].round(2).tolist() == [0.6, 0.3, 0.3, 0.7, 0.3]
    full = {t: {f"{x}{k}": 1 for x in "dn" for k in range(10)} for t in topics}
    with pytest.warns(VcompWarning, match="60 % .* were judged by 'B', and"):
        score_runs(runs, {"A": full, "B": qrels}, "P@10")
    score_runs(runs, qrels, ["AP", "P@5", "Bpref", "Judged@10"])

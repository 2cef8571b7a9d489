"""Scores of topics as ir_measures, PyTerrier, ranx, gdeval and pytrec_eval give them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pytest

import vcomp
from vcomp.exceptions import DataError
from vcomp.ir.topic_scores import read_scores

MAP = {"bm25": {"051": 0.5, "52": 0.25}, "rm3": {"051": 1.0, "52": 0.125}}
NDCG = {"bm25": {"051": 0.75, "52": 0.5}, "rm3": {"051": 0.875, "52": 0.375}}
"""The scores that all sources below hold: nDCG at 10, and average precision."""

BY_NAME = {"map": MAP, "ndcg_cut_10": NDCG}


class Metric(NamedTuple):
    """As ir_measures yields them; its measures are objects that print as their names."""

    query_id: str
    measure: Any
    value: float


class Measure:
    def __init__(self, name):
        self.name = name

    def __str__(self):
        return self.name


class RanxRun:
    """As Run of ranx after ``evaluate``: by measure and topic."""

    def __init__(self, name):
        self.name = name
        self.scores = {"map": MAP[name], "ndcg@10": NDCG[name]}


# pt.Experiment([bm25, rm3], topics, qrels, ["map", "ndcg_cut_10"], names=…, perquery=True) of
# pyterrier 1.1.2 has these columns, and saves them as perquery.csv.
PERQUERY = pd.DataFrame(
    [
        (name, topic, measure, value)
        for name in MAP
        for topic in MAP[name]
        for measure, value in [("map", MAP[name][topic]), ("ndcg_cut_10", NDCG[name][topic])]
    ],
    columns=["name", "qid", "measure", "value"],
)
WIDE = PERQUERY.pivot(index=["name", "qid"], columns="measure", values="value").reset_index()


def each(make):
    return {name: make(name) for name in MAP}


SOURCES = {
    "iter_calc": each(
        lambda name: (
            Metric(topic, Measure(measure), of[name][topic])
            for topic in MAP[name]
            for measure, of in [("AP", MAP), ("nDCG@10", NDCG)]
        )
    ),
    "PyTerrier": PERQUERY,
    "PyTerrier, wide": WIDE,
    "polars": pl.from_pandas(WIDE),
    "PyTerrier, a frame each": each(lambda name: PERQUERY[PERQUERY["name"] == name]),
    "PyTerrier, frames without names": each(
        lambda name: WIDE[WIDE["name"] == name].drop(columns="name")
    ),
    "pytrec_eval": each(
        lambda name: {
            t: {"map": MAP[name][t], "ndcg_cut_10": np.float64(NDCG[name][t])} for t in MAP[name]
        }
    ),
    "ranx": [RanxRun("bm25"), RanxRun("rm3")],
    "ranx, renamed": each(RanxRun),
    "ranx, scores": each(lambda name: RanxRun(name).scores),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_scores_in_memory(source):
    if isinstance(source, dict):
        source = {k: list(v) if hasattr(v, "__next__") else v for k, v in source.items()}
    check(read_scores(source, ["map", "nDCG@10"]))
    one = read_scores(source, "AP")
    np.testing.assert_array_equal(one.scores, [[0.5, 1.0], [0.25, 0.125]])


def check(found):
    for matrix, expected in zip(found.values(), (MAP, NDCG), strict=True):
        assert matrix.topics == ("051", "52")
        assert matrix.systems == ("bm25", "rm3")
        np.testing.assert_array_equal(matrix.scores, pd.DataFrame(expected).to_numpy())


def test_arrays_of_ranx_have_numbered_topics():
    """evaluate(qrels, run, ["map", "ndcg@10"], return_mean=False) has no names of topics."""
    arrays = {
        name: {"map": np.array([*MAP[name].values()]), "ndcg@10": np.array([*NDCG[name].values()])}
        for name in MAP
    }
    matrix = read_scores(arrays, "ndcg@10")
    assert matrix.topics == ("0", "1")
    np.testing.assert_array_equal(matrix.scores, [[0.75, 0.875], [0.5, 0.375]])


def test_a_table_of_pyterrier_in_a_file(tmp_path):
    path = tmp_path / "perquery.csv"
    PERQUERY.to_csv(path, index=False)
    for source in (path, [path], {"whatever": str(path)}):
        if isinstance(source, dict):
            with pytest.raises(DataError, match=r"perquery\.csv' has the scores of 2 systems"):
                read_scores(source)
        else:
            check(read_scores(source, ["map", "nDCG@10"]))


def test_topics_that_were_not_judged_have_no_score_in_pyterrier(tmp_path):
    """A row with NaN for each system, of a topic without judgements."""
    more = pd.DataFrame({"name": [*MAP], "qid": "99", "measure": "map", "value": np.nan})
    frame = pd.concat([PERQUERY, more])
    frame.to_csv(tmp_path / "perquery.csv", index=False)
    for source in (frame, tmp_path / "perquery.csv"):
        check(read_scores(source, ["map", "nDCG@10"]))
    one = pd.concat([frame, more.head(1).assign(qid="98", value=0.5)])
    assert np.isnan(read_scores(one).scores[2]).tolist() == [False, True]


GDEVAL = """runid,topic,ndcg@10,err@10
{name},051,{first:.5f},0.10000
{name},52,{second:.5f},0.20000
{name},amean,0.50000,0.15000
"""
"""What gdeval.pl prints, 1.3."""


def test_the_output_of_gdeval(tmp_path):
    for name, of in NDCG.items():
        text = GDEVAL.format(name=name, first=of["051"], second=of["52"])
        (tmp_path / f"{name}.gd").write_text(text)
    for measure in ("ndcg@10", "nDCG@10", "ndcg_cut_10"):
        matrix = read_scores(tmp_path, measure)
        assert matrix.systems == ("bm25", "rm3")
        np.testing.assert_array_equal(matrix.scores, [[0.75, 0.875], [0.5, 0.375]])
    assert read_scores(tmp_path, "ERR@10").scores.tolist() == [[0.1, 0.1], [0.2, 0.2]]
    by_file = read_scores(tmp_path, "err@10", name_by="file")
    assert by_file.systems == ("bm25.gd", "rm3.gd")
    with pytest.raises(DataError, match=r"no measure 'map'.*; it has ndcg@10, err@10$"):
        read_scores(tmp_path)


def test_json_lines_of_ir_measures(tmp_path):
    """``ir_measures -q -o jsonl`` (0.4)."""
    for name in MAP:
        lines = [
            f'{{"query_id": "{t}", "measure": "{m}", "value": {of[name][t]}}}'
            for m, of in [("AP", MAP), ("nDCG@10", NDCG)]
            for t in MAP[name]
        ]
        lines.append('{"query_id": "all", "measure": "AP", "value": 0.4}')
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    check(read_scores(tmp_path, ["map", "nDCG@10"]))
    (tmp_path / "bm25.jsonl").write_text('{"query_id": ')
    with pytest.raises(DataError, match=r"bm25\.jsonl', line 1: .*; ir_measures -q -o jsonl pri"):
        read_scores(tmp_path)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("map", "AP"), ("MAP", "map"), ("P_10", "P@10"), ("P_10", "precision@10"),
        ("ndcg_cut_20", "nDCG@20"), ("ndcg@20", "nDCG@20"), ("nDCG@20", "ndcg_cut.20"),
        ("recip_rank", "RR"), ("mrr", "recip_rank"), ("recall_100", "R@100"),
        ("map_cut_5", "AP@5"), ("success_1", "hit_rate@1"), ("Rprec", "r-precision"),
        ("iprec_at_recall_0.10", "IPrec@0.1"), ("P(rel=2)@5", "P(rel=2)@5"), ("bpref", "Bpref"),
    ],
)  # fmt: skip
def test_measures_have_names_in_every_program(theirs, ours):
    scores = {name: {theirs: of, "other": of} for name, of in MAP.items()}
    np.testing.assert_array_equal(read_scores(scores, ours).scores, [[0.5, 1.0], [0.25, 0.125]])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (WIDE.drop(columns="name"), r"the frame has no column of systems, .*\{'bm25': frame\}"),
        (WIDE.drop(columns="qid"), "the frame has no column of topics, .*it has 'name', 'map'"),
        ({"a": PERQUERY, "b": PERQUERY}, "run 'a' has the scores of 2 systems; give it alone"),
        ([Metric("1", "AP", 0.1)], r"scores in memory are .*\{'bm25': scores, 'rm3': scores\}"),
        ({"a": [0.1]}, "run 'a' must be a file, a frame, tuples .*; not 0.1"),
        ({"a": 0.1}, "run 'a' must be a file, a frame, tuples .*; not 0.1"),
        ({"a": {"AP": {"1": "x"}}}, "run 'a', topic '1': 'x' is not a number"),
        ({"a": {"AP": {"1": np.nan}}}, "run 'a' has no scores of topics by AP"),
        ({"a": {"AP": {"1": np.inf}}}, "run 'a', topic '1': 'inf' is not a number"),
        ({"a": [Metric("1", "AP", 1), Metric("1", "AP", 1)]}, "topic '1': topic '1' has a AP alr"),
        ({"a": {"AP": {"all": 1}}}, "run 'a' has no scores of topics by AP"),
        ({"a": {"1": {"P@5": 1}}}, r"run 'a' has no measure 'map'.*; it has"),
        ({}, "no files are given"),
        ([RanxRun("bm25"), RanxRun("bm25")], "second run called 'bm25'"),
        ([RanxRun("bm25")], "at least two topics"),
        ({"a": MAP["bm25"], "b": MAP["rm3"]}, "run 'a': '051' has the number 0.5, not the scores"),
    ],
)
def test_other_scores_are_refused(source, message):
    with pytest.raises(DataError, match=message):
        read_scores(source)


def test_scores_by_topic_alone_are_told_what_reads_them():
    with pytest.raises(DataError) as told:
        read_scores(MAP)
    call = str(told.value).partition("is a matrix: ")[2]
    matrix = eval(call, {"vcomp": vcomp, "pandas": pd, "scores": MAP})
    assert matrix.topics == ("051", "52")

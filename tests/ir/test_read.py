"""Scores from the output of trec_eval, and from runs and judgements through ir_measures."""

from __future__ import annotations

import builtins
import gzip
import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import vcomp
from vcomp.exceptions import DataError, VcompError, VcompWarning
from vcomp.ir.run_scores import score_runs
from vcomp.ir.runs import each_measure
from vcomp.ir.topic_scores import read_scores

BM25 = """runid                 \tall\tbm25
num_q                 \tall\t2
map                   \t401\t0.2500
P_10                  \t401\t0.3000
map                   \t402\t0.1250

map                   \tall\t0.1875
"""
RM3 = "map 402 0.5\nmap 401 1e-1\nmap 403 0\nmap all 0.2\nP_10 401 0.1\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.eval").write_text(BM25)
    (tmp_path / "input.rm3").write_text(RM3)
    (tmp_path / ".hidden").write_text("not to be read")
    (tmp_path / "more").mkdir()
    return tmp_path


def test_a_folder(folder):
    matrix = read_scores(folder)
    assert matrix.systems == ("bm25", "input")
    assert matrix.topics == ("401", "402", "403")
    np.testing.assert_array_equal(matrix.scores, [[0.25, 0.1], [0.125, 0.5], [np.nan, 0]])
    assert repr(matrix) == "ScoreMatrix(3 topics × 2 systems, 1 missing)"


def test_all_the_ways_to_name_files(folder):
    one, other = folder / "a.eval", folder / "input.rm3"
    expected = read_scores(folder, fill=0).scores
    for paths in ([one, str(other)], f"{folder}/*.*", {"x": one, "y": str(other)}, folder):
        np.testing.assert_array_equal(read_scores(paths, fill=0).scores, expected)
    assert read_scores({"x": one, "y": other}).systems == ("x", "y")
    assert read_scores(folder, name_by="file").systems == ("a.eval", "input.rm3")
    assert read_scores([other, one]).topics == ("402", "401", "403")
    with gzip.open(folder / "b.txt.gz", "wt") as file:
        file.write(RM3)
    packed = read_scores([one, folder / "b.txt.gz"], fill=0)
    assert packed.systems == ("bm25", "b")
    np.testing.assert_array_equal(packed.scores, expected)


def test_other_measures_and_what_is_not_retrieved(folder):
    (folder / "input.rm3").write_text(RM3 + "P_10 402 0.7\n")
    matrix = read_scores(folder, "P_10", fill=0.0)
    np.testing.assert_array_equal(matrix.scores, [[0.3, 0.1], [0.0, 0.7]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("map 401 0.1\nmap 402\n", r"line 2: 'map 402'; trec_eval -q prints a measure, a topic"),
        ("map 401 0.1\n\nmap 402 x\n", "line 3: 'map 402 x'; 'x' is not a number"),
        ("map 401 nan\n", "line 1: 'map 401 nan'; 'nan' is not a number"),
        ("map 401 0.1\nmap 401 0.2\n", "line 2: 'map 401 0.2'; topic '401' has a map already"),
        (
            "map all 0.2\n",
            "has no scores of topics by map; trec_eval -q and",
        ),
        ("mpa 401 0.2\n", r"has no measure 'map' \(did you mean 'mpa'\?\); it has mpa"),
        ("", "has no measure 'map'; it is empty"),
        ("\n".join(f"m{k} 1 0.1" for k in range(12)), "has m0, .*, m11$"),
        ("\n".join(f"m{k} 1 0.1" for k in range(13)), "has m0, .*, m11 …$"),
        ("map 1 0.1\n" + "x" * 80, "line 2: 'x{80}'; trec_eval -q prints"),
        ("map 1 0.1\n" + "x" * 81, "line 2: 'x{80} …'; trec_eval -q prints"),
        ("map 1 0.1\n" + "x" * 100, "line 2: 'x{80} …'; trec_eval -q prints"),
    ],
)
def test_lines_that_cannot_be_read(folder, text, message):
    (folder / "z").write_text(text)
    with pytest.raises(DataError, match=message):
        read_scores(folder)


def test_files_that_cannot_be_read(folder):
    with pytest.raises(DataError, match=r"the file '.*none' is not there"):
        read_scores(folder / "none")
    with pytest.raises(DataError, match=r"no file matches the pattern '.*\*\.txt'"):
        read_scores(f"{folder}/*.txt")
    with pytest.raises(DataError, match="no files in the folder"):
        read_scores(folder / "more")
    with pytest.raises(DataError, match="no files are given"):
        read_scores([])
    with pytest.raises(DataError, match="is given twice"):
        read_scores([folder, folder / "a.eval"])
    with pytest.raises(DataError, match=r"scores in memory are a frame .*; not 5"):
        read_scores([5])
    with pytest.raises(DataError, match=r"more' is a folder"):
        read_scores({"a": folder / "more"})
    (folder / "b").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="is not a text file in UTF-8"):
        read_scores(folder)
    (folder / "c.gz").write_text("map 401 0.1")
    with pytest.raises(DataError, match=r"c\.gz' cannot be read"):
        read_scores(folder / "c.gz")


@pytest.mark.parametrize("damaged", [lambda c: c[:-9], lambda c: c[:10] + b"\xff" + c[11:]])
def test_a_packed_file_that_is_damaged_or_cut_off(damaged, folder):
    (folder / "c.gz").write_bytes(damaged(gzip.compress(BM25.encode())))
    with pytest.raises(DataError, match=r"c\.gz' cannot be read: (?!None)\w"):
        read_scores(folder / "c.gz")


def test_runs_of_one_name(folder):
    (folder / "b.eval").write_text(BM25)
    with pytest.raises(DataError, match=r"b.eval' is the second run called 'bm25'; .*name_by"):
        read_scores(folder)
    assert read_scores(folder, name_by="file").n_systems == 3


def test_options_are_checked(folder):
    with pytest.raises(DataError, match="name_by must be 'runid' or 'file', not 'tag'"):
        read_scores(folder, name_by="tag")
    for fill in (np.nan, True, np.inf, "0", [0]):
        with pytest.raises(DataError, match="fill must be a score"):
            read_scores(folder, fill=fill)
    with pytest.raises(DataError, match=r"at least two topics .rows. and two systems"):
        read_scores(folder / "a.eval")


# Average precision by hand: 401 has relevant d1 and d3, 402 has d2, 403 has d9.
QRELS = "401 0 d1 1\n401 0 d2 0\n401 0 d3 1\n402 0 d2 2\n403 0 d9 1\n"
RUNS = {
    "one": "401 Q0 d1 1 9.0 one\n401 Q0 d2 2 8.0 one\n401 Q0 d3 3 7.0 one\n402 Q0 d1 1 2 one\n"
    "402 Q0 d2 2 1 one\n",
    "two": "401 Q0 d2 1 9.0 two\n401 Q0 d3 2 8.0 two\n402 Q0 d2 1 2 two\n403 Q0 d9 1 1 two\n",
}
AP = [[(1 + 2 / 3) / 2, 0.5 / 2], [0.5, 1.0], [0.0, 1.0]]


@pytest.fixture
def track(tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    for name, text in RUNS.items():
        (runs / f"input.{name}").write_text(text)
    (tmp_path / "qrels.txt").write_text(QRELS)
    return runs, tmp_path / "qrels.txt"


def test_runs_and_judgements(track):
    import ir_measures

    runs, qrels = track
    matrix = score_runs(runs, qrels)
    assert matrix.systems == ("one", "two")
    assert matrix.topics == ("401", "402", "403")
    np.testing.assert_allclose(matrix.scores, AP, rtol=1e-12)
    assert score_runs(runs, qrels, name_by="file").systems == ("input.one", "input.two")
    listed = {name: list(ir_measures.read_trec_run(text)) for name, text in RUNS.items()}
    judged = list(ir_measures.read_trec_qrels(QRELS))
    for same_runs, same_qrels in [
        (f"{runs}/*", str(qrels)),
        ({"one": runs / "input.one", "two": str(runs / "input.two")}, qrels),
        (listed, judged),
        ({name: pd.DataFrame(run) for name, run in listed.items()}, pd.DataFrame(judged)),
    ]:
        np.testing.assert_array_equal(score_runs(same_runs, same_qrels).scores, matrix.scores)
    p1 = score_runs(runs, qrels, ir_measures.P @ 1)
    assert p1.scores.tolist() == [[1, 0], [0, 1], [0, 1]]
    assert score_runs(runs, qrels, "P@1").scores.tolist() == p1.scores.tolist()


def test_a_measure_of_ones_own(track):
    import ir_measures

    def first_is_relevant(qrels, run):
        best = run.sort_values("score", ascending=False)["doc_id"].iloc[0]
        return float(qrels.loc[qrels["doc_id"] == best, "relevance"].gt(0).any())

    own = ir_measures.define_byquery(first_is_relevant, name="First")
    found = score_runs(*track, [own, "P@1"])
    assert list(found) == ["First", "P@1"]
    np.testing.assert_array_equal(found["First"].scores, found["P@1"].scores)


def test_what_is_wrong_with_runs_is_said(track):
    runs, qrels = track
    with pytest.raises(DataError, match="does not know the measure 'AQ@10': measure not found"):
        score_runs(runs, qrels, "AQ@10")
    with pytest.raises(DataError, match="name_by must be"):
        score_runs(runs, qrels, name_by="tag")
    (runs / "input.three").write_text(RUNS["one"])
    with pytest.raises(DataError, match=r"several runs called 'one'; .*name_by='file'"):
        score_runs(runs, qrels)
    for text, message in [
        ("401 Q0 d1 1 9.0\n", "line 1: '401 Q0 d1 1 9.0'; a run has topic, Q0, document"),
        ("401 Q0 d1 1 high x\n", "line 1: '401 Q0 d1 1 high'; 'high' is not a number"),
        ("", "the run '.*input.three' is empty"),
    ]:
        (runs / "input.three").write_text(text)
        with pytest.raises(DataError, match=message):
            score_runs(runs, qrels)
    (runs / "input.three").unlink()
    with pytest.raises(DataError, match="run 'one' matches 2 files; give one"):
        score_runs({"one": str(runs)}, qrels)
    for text, message in [
        (
            "401 0 d1 1\n401 0 d2 yes\n",
            "line 2: '401 0 d2 yes'; the relevance 'yes' is not a whole",
        ),
        ("401 d1 1\n", "line 1: '401 d1 1'; judgements have topic, iteration, document"),
        ("", "the judgements '.*qrels.txt' are empty"),
    ]:
        qrels.write_text(text)
        with pytest.raises(DataError, match=message):
            score_runs(runs, qrels)


NESTED = {
    name: {
        topic: {f[2]: float(f[4]) for f in map(str.split, text.splitlines()) if f[0] == topic}
        for topic in ("401", "402", "403")
    }
    for name, text in RUNS.items()
}
JUDGED = {"401": {"d1": 1, "d2": 0, "d3": 1}, "402": {"d2": 2}, "403": {"d9": 1}}


def test_runs_and_judgements_of_other_kinds():
    """Nested dicts, also with topics that are numbers, and frames of polars."""
    np.testing.assert_allclose(score_runs(NESTED, JUDGED).scores, AP, rtol=1e-12)
    numbered = {name: {int(t): d for t, d in run.items()} for name, run in NESTED.items()}
    by_number = score_runs(numbered, {int(t): d for t, d in JUDGED.items()})
    np.testing.assert_allclose(by_number.scores, AP, rtol=1e-12)
    assert by_number.topics == ("401", "402", "403")
    frames = {
        name: pl.DataFrame(
            [(t, d, x) for t, documents in run.items() for d, x in documents.items()],
            schema=["query_id", "doc_id", "score"],
            orient="row",
        )
        for name, run in NESTED.items()
    }
    np.testing.assert_allclose(score_runs(frames, JUDGED).scores, AP, rtol=1e-12)


FRAME = pd.DataFrame({"query_id": ["401"], "doc_id": ["d1"], "score": [1.0]})


@pytest.mark.parametrize(
    ("runs", "qrels", "measure", "message"),
    [
        (FRAME, JUDGED, "AP", "runs are files, or a dict with a run for the name of each system"),
        (None, JUDGED, "AP", "a path is text, not None"),
        ({"one": None}, JUDGED, "AP", "run 'one' must be a file, nested dicts .* not None"),
        ({"one": [3]}, JUDGED, "AP", "run 'one' must be a file, nested dicts .* not 3"),
        ({"one": {"401": 3}}, JUDGED, "AP", "run 'one': topic '401' has a int, not a dict"),
        ({"one": {"401": {"d1": "x"}}}, JUDGED, "AP", "'d1' on topic '401' is 'x', not a number"),
        (
            {"one": {"401": {"d1": np.nan}}},
            JUDGED,
            "AP",
            "'d1' on topic '401' is nan, not a number",
        ),
        ({"one": pd.concat([FRAME, FRAME])}, JUDGED, "AP", "'one': document 'd1' is twice on top"),
        (
            {"one": FRAME.rename(columns={"score": "scores"})},
            JUDGED,
            "AP",
            "did you mean 'scores'",
        ),
        (
            {"one": {"1": {"d1": 1}}},
            JUDGED,
            "AP",
            "no topic of run 'one' is judged: it has '1', a",
        ),
        (NESTED, None, "AP", "judgements must be a file, nested dicts"),
        (NESTED, {}, "AP", "there are no judgements"),
        (NESTED, FRAME, "AP", "judgements: the frame has no column 'relevance'"),
        (
            NESTED,
            {"401": {"d1": 0.5}},
            "AP",
            "of document 'd1' on topic '401' is 0.5, not a whole",
        ),
        (NESTED, {"401": {"d1": "a"}}, "AP", "is 'a', not a whole number"),
        (NESTED, JUDGED, None, "a measure is its name, such as 'nDCG@10', .*, not None"),
        (NESTED, JUDGED, "SDCG@5", "ir_measures cannot compute SDCG@5: invalid param max_rel"),
        (NESTED, JUDGED, "alpha_nDCG@10", "ir_measures cannot compute alpha_nDCG@10: Unsupported"),
    ],
)
def test_other_runs_are_checked(runs, qrels, measure, message):
    with pytest.raises(DataError, match=message):
        score_runs(runs, qrels, measure)


def test_a_document_twice_in_a_file(track):
    runs, qrels = track
    (runs / "input.one").write_text("401 Q0 d1 1 2.0 one\n401 Q0 d1 2 1.0 one\n")
    with pytest.raises(DataError, match=r"line 2: .*; document 'd1' is twice on topic '401'"):
        score_runs(runs, qrels)


def test_the_mark_of_utf_8_is_no_part_of_the_first_field(folder):
    plain = read_scores(folder)
    for file in filter(Path.is_file, folder.iterdir()):
        file.write_bytes("\ufeff".encode() + file.read_bytes().replace(b"\n", b"\r\n"))
    same = read_scores(folder)
    np.testing.assert_array_equal(same.scores, plain.scores)
    assert (same.topics, same.systems) == (plain.topics, plain.systems)


def test_without_ir_measures(track, monkeypatch):
    imported = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "ir_measures":
            raise ImportError(name)
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(VcompError, match=r"pip install 'variance-components\[ir\]'"):
        score_runs(*track)


def test_from_trec_eval_to_a_fit(folder):
    for name, factor in [("a.eval", 0.05), ("input.rm3", 0.02)]:
        rows = [f"map {t} {0.1 * t + factor * (t % 3)}" for t in range(1, 7)]
        (folder / name).write_text("\n".join(rows))
    (folder / "input.rm3").write_text((folder / "input.rm3").read_text().replace("map 2", "map 7"))
    matrix = read_scores(folder)
    res = vcomp.fit("score ~ (1|system) + (1|topic)", matrix.common_topics().to_long())
    assert res.nobs == 10


IR_MEASURES_Q = """401\tAP\t0.2500
401\tP@10\t0.3000
402\tAP\t0.1250
402\tP@10\t0.1000
"""
"""What ``ir_measures qrels run AP P@10 -q`` prints."""


@pytest.mark.parametrize("summary", ["", "all\tAP\t0.1875\nall\tP@10\t0.2000\n"])
def test_the_output_of_ir_measures(folder, summary):
    for run in ("a", "b"):
        (folder / "more" / f"{run}.tsv").write_text(IR_MEASURES_Q + summary)
    matrix = read_scores(folder / "more", "AP")
    assert (matrix.topics, matrix.systems) == (("401", "402"), ("a", "b"))
    assert matrix.scores[:, 0].tolist() == [0.25, 0.125]
    by_trec_name = read_scores(folder / "more", ["map", "P_10"])
    np.testing.assert_array_equal(by_trec_name["map"].scores, matrix.scores)
    assert by_trec_name["P_10"].scores[:, 0].tolist() == [0.3, 0.1]
    with pytest.raises(DataError, match=r"has no measure .bpref..*; it has AP, P@10$"):
        read_scores(folder / "more", "bpref")
    (folder / "more" / "a.tsv").write_text("all\tAP\t0.1875\n")
    with pytest.raises(DataError, match="has no scores of topics by AP; trec_eval -q and"):
        read_scores(folder / "more", "AP")


def test_several_measures_of_files_in_one_pass(folder):
    (folder / "input.rm3").write_text(RM3 + "P_10 402 0.7\n")
    several = read_scores(folder, ["P_10", "map"], fill=0.0)
    assert list(several) == ["P_10", "map"]
    for name, matrix in several.items():
        np.testing.assert_array_equal(
            matrix.scores, read_scores(folder, name, fill=0.0).to_frame().loc[[*matrix.topics]]
        )
    with pytest.raises(DataError, match="measure 'map' is given twice"):
        read_scores(folder, ["map", "map"])
    with pytest.raises(DataError, match="no measure is given"):
        read_scores(folder, [])


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("map", "AP"), ("P_10", "P@10"), ("P.1", "P@1"), ("ndcg_cut_10", "nDCG@10"),
        ("ndcg", "nDCG"), ("recip_rank", "RR"), ("success_1", "Success@1"),
        ("map_cut_2", "AP@2"), ("ndcg@10", "nDCG@10"), ("MRR@10", "RR@10"), ("mrr", "RR"),
        ("precision@1", "P@1"), ("hit_rate@1", "Success@1"), ("r-precision", "Rprec"),
    ],
)  # fmt: skip
def test_measures_by_the_names_of_trec_eval_and_ranx(name, same):
    np.testing.assert_array_equal(
        score_runs(NESTED, JUDGED, name).scores, score_runs(NESTED, JUDGED, same).scores
    )


@pytest.mark.parametrize(("name", "same"), [("ap", "AP"), ("ndcg@2", "nDCG@2"), ("rr", "RR")])
def test_measures_in_lower_case(track, name, same):
    found = score_runs(*track, name).scores
    np.testing.assert_array_equal(found, score_runs(*track, same).scores)


def cut(ends):
    """Return runs of eight topics, cut at these ranks."""
    rng = np.random.default_rng(1)
    docs = [f"d{k}" for k in range(40)]
    qrels = {f"t{t}": {doc: int(rng.random() < 0.3) for doc in docs} for t in range(8)}
    runs = {
        f"r{end}": {t: {doc: -float(k) for k, doc in enumerate(rng.permutation(docs)[:end])}
                    for t in qrels}
        for end in ends
    }  # fmt: skip
    return runs, qrels


def test_runs_that_are_cut_at_different_ranks_are_named():
    runs, qrels = cut([10, 20, 40])
    with pytest.warns(
        VcompWarning, match="cut at different ranks: 'r10' at 10, 'r20' at 20, and "
    ):
        score_runs(runs, qrels, "AP")
    with pytest.warns(VcompWarning, match="scores by AP favour") as caught:
        score_runs(runs, qrels, ["AP", "P@10"])
    (advised,) = re.findall("such as '(.*)'", str(caught[0].message))
    whole = {name: dict(run) for name, run in runs.items()}
    first = {
        name: {t: dict(list(docs.items())[:10]) for t, docs in run.items()}
        for name, run in whole.items()
    }
    # Followed, the advice gives what runs of one length give.
    followed = score_runs(runs, qrels, advised).scores
    np.testing.assert_array_equal(followed, score_runs(first, qrels, advised).scores)
    score_runs(*cut([20, 40]), ["P@20", "nDCG@5"])


def test_runs_that_found_fewer_documents_are_not_cut():
    runs, qrels = cut([40])
    fewer = {t: dict(list(docs.items())[: 10 + k]) for k, (t, docs) in enumerate(qrels.items())}
    score_runs({**runs, "fewer": fewer}, qrels, "AP")


def test_several_measures_of_runs_in_one_pass(track):
    several = score_runs(*track, ["map", "AP", "P@1"])
    assert list(several) == ["map", "AP", "P@1"]
    for name, matrix in several.items():
        np.testing.assert_array_equal(matrix.scores, score_runs(*track, name).scores)


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ("gm_map", "does not know the measure 'gm_map'"),
        (
            "P10",
            r"does not know the measure 'P10': .* \(did you mean 'P@10'\?\); it has Accuracy, ",
        ),
        ("nDGC@5", r"does not know .* \(did you mean 'nDCG'\?\); it has Accuracy, "),
        ("xyz", "does not know the measure 'xyz': .*; it has .*, AP, .*nDCG"),
        ("P_10_5", "does not know the measure 'P_10_5'"),
        ("success", r"'success' are 3 measures of trec_eval; write measure=\['Success@1', "),
        (["AP", "AP"], "measure 'AP' is given twice"),
        ([], "no measure is given"),
        (["AP", 3], "a measure is its name, such as 'nDCG@10', .*, not 3"),
    ],
)
def test_measures_that_are_not_computed(measure, message, capsys):
    with pytest.raises(DataError, match=message):
        score_runs(NESTED, JUDGED, measure)
    assert capsys.readouterr().out == ""


def test_runs_and_judgements_of_pyterrier_and_ranx():
    names = {"query_id": "qid", "doc_id": "docno", "relevance": "label"}
    frames = {
        name: pd.DataFrame(
            [(t, d, x) for t, documents in run.items() for d, x in documents.items()],
            columns=["qid", "docno", "score"],
        ).assign(rank=0, query="words")
        for name, run in NESTED.items()
    }
    judged = pd.DataFrame(
        [(t, d, x) for t, documents in JUDGED.items() for d, x in documents.items()],
        columns=list(names),
    ).rename(columns=names)
    np.testing.assert_allclose(score_runs(frames, judged).scores, AP, rtol=1e-12)

    class Ranx:
        """As Run and Qrels of ranx, which are no mappings."""

        def __init__(self, nested):
            self.to_dict = lambda: nested

    runs = {name: Ranx(run) for name, run in NESTED.items()}
    np.testing.assert_allclose(score_runs(runs, Ranx(JUDGED)).scores, AP, rtol=1e-12)
    for wrong in (list(runs.values()), [frames["one"]], [NESTED["one"]], runs["one"]):
        with pytest.raises(DataError, match=r"runs in memory are a dict .*\{'bm25': run"):
            score_runs(wrong, JUDGED)


def test_scores_for_runs_are_told_what_reads_them():
    import ir_measures

    judged = [ir_measures.Qrel(t, d, x) for t, ds in JUDGED.items() for d, x in ds.items()]
    runs = {
        name: list(ir_measures.iter_calc([ir_measures.AP], judged, run))
        for name, run in NESTED.items()
    }
    with pytest.raises(DataError, match="run 'one' holds scores of topics, not doc") as told:
        score_runs(runs, JUDGED)
    call = re.search(r"vcomp\.ir\.read_scores\(.*?\)", str(told.value))
    matrix = eval(call[0], {"vcomp": vcomp, "runs": runs})
    pd.testing.assert_frame_equal(
        matrix.to_frame().sort_index(), score_runs(NESTED, JUDGED).to_frame()
    )


SECOND = QRELS.replace("d2 2", "d2 0").replace("d2 0\n401", "d2 1\n401").replace("403", "404")


@pytest.mark.parametrize("measure", ["AP", ["nDCG@10", "P_1"]])
def test_several_assessors_give_a_column(track, measure):
    """The scores of each are those of its judgements alone; files are read in any form."""
    runs, qrels = track
    other = qrels.with_name("second")
    other.mkdir()
    for k, lines in enumerate((SECOND[:22], SECOND[22:])):
        (other / f"part{k}").write_text(lines)
    both = {"first": qrels, "second": other}
    found = score_runs(runs, both, measure)
    other.with_name("second.txt").write_text(SECOND)
    for name in each_measure(measure):
        table = found if isinstance(measure, str) else found[name]
        alone = [
            score_runs(runs, other.with_name(f"{file}.txt"), name).to_long()
            for file in ("qrels", "second")
        ]
        expected = pd.concat(alone, keys=both, names=["assessor"]).reset_index("assessor")
        pd.testing.assert_frame_equal(table, expected.reset_index(drop=True))
    by_file = score_runs(runs, f"{qrels.parent}/*.txt")
    assert by_file["assessor"].unique().tolist() == ["qrels.txt", "second.txt"]
    listed = score_runs(runs, [qrels, other.with_name("second.txt")])
    pd.testing.assert_frame_equal(listed, by_file)
    np.testing.assert_allclose(score_runs(runs, [qrels]).scores, AP, rtol=1e-12)
    named = score_runs(runs, {"first": JUDGED})
    assert named["assessor"].tolist() == ["first"] * 6
    np.testing.assert_allclose(vcomp.ir.as_score_matrix(named, system="system").scores, AP)


def test_parts_of_one_set_are_not_several_assessors(track):
    runs, qrels = track
    parts = [qrels.with_name(f"part{k}") for k in range(2)]
    for part, lines in zip(parts, (QRELS[:33], QRELS[33:]), strict=True):
        part.write_text(lines)
    with pytest.warns(VcompWarning, match="no topic was judged by two of the 2 sets") as told:
        score_runs(runs, parts)
    (advised,) = re.findall(r"qrels=(\{.*\})", str(told[0].message))
    table = score_runs(runs, {"assessor": eval(advised, {})["assessor"] and parts})
    np.testing.assert_allclose(vcomp.ir.as_score_matrix(table, system="system").scores, AP)


def test_a_document_that_one_set_judges_twice(track):
    runs, qrels = track
    twice = QRELS + "401 0 d1 0\n"
    qrels.write_text(twice)
    with pytest.raises(DataError, match=r"'qrels.txt': document 'd1' of topic '401' is judged tw"):
        score_runs(runs, qrels)
    plain = qrels.with_name("plain.txt")
    plain.write_text(QRELS)
    expected = score_runs(runs, plain, ["AP", "nDCG"])
    for text in (QRELS + "401 1 d1 0\n", "401 1 d1 0\n" + QRELS):  # another subtopic
        qrels.write_text(text)
        found = score_runs(runs, qrels, ["AP", "nDCG"])
        for name, matrix in found.items():
            np.testing.assert_array_equal(matrix.scores, expected[name].scores)


def test_rows_of_frames_without_a_topic_or_a_document():
    frame = pd.DataFrame({"query_id": ["1", None], "doc_id": ["a", "b"], "relevance": [1, 1]})
    runs = {name: {"1": {"a": 1.0}, "2": {"b": 1.0}} for name in "xy"}
    with pytest.raises(DataError, match="judgements: row 1 of the frame has no query_id"):
        score_runs(runs, frame)
    run = frame.rename(columns={"relevance": "score"}).assign(query_id="1", doc_id=[None, "b"])
    with pytest.raises(DataError, match="run 'x': row 0 of the frame has no doc_id"):
        score_runs({"x": run, "y": runs["y"]}, {"1": {"a": 1}, "2": {"b": 1}})


def test_from_files_of_runs_and_qrels_to_assessors_in_a_fit(tmp_path):
    """Two assessors who disagree on a tenth: a table of all scores, fitted as it is."""
    rng = np.random.default_rng(3)
    topics, docs = [f"{t}" for t in range(301, 313)], [f"d{k}" for k in range(30)]
    for folder in ("runs", "qrels"):
        (tmp_path / folder).mkdir()
    relevant = {t: rng.random(30) < 0.3 for t in topics}
    for k in range(4):
        lines = [
            f"{t} Q0 {docs[d]} {rank} {-rank} s{k}"
            for t in topics
            for rank, d in enumerate(np.argsort(rng.normal(size=30) - (0.4 * k) * relevant[t]))
        ]
        (tmp_path / "runs" / f"s{k}").write_text("\n".join(lines))
    for name in "AB":
        lines = [
            f"{t} 0 {doc} {int(x ^ (rng.random() < 0.1))}"
            for t in topics
            for doc, x in zip(docs, relevant[t], strict=True)
        ]
        (tmp_path / "qrels" / name).write_text("\n".join(lines))
    tables = score_runs(tmp_path / "runs", tmp_path / "qrels", ["AP", "nDCG@10"])
    assert list(tables["AP"]) == ["assessor", "system", "topic", "score", "judged"]
    assert (tables["AP"]["judged"] == 1).all()
    formula = "score ~ (1|system) + (1|topic) + (1|assessor) + (1|system:topic)"
    res = vcomp.fit(formula, tables["AP"], method="anova")
    cells = tables["AP"]["score"].to_numpy().reshape(2, 4, 12)
    rest = cells - cells.mean(axis=0) - cells.mean(axis=(1, 2), keepdims=True) + cells.mean()
    np.testing.assert_allclose(res.scale, (rest**2).sum() / (4 * 12 - 1), rtol=1e-10)
    compared = vcomp.compare_measures(formula, tables)
    assert set(compared.results) == {"AP", "nDCG@10"}
    names = {"system": "model", "topic": "item", "assessor": "judge"}
    study = vcomp.evals.study(tables["AP"].drop(columns="judged").rename(columns=names))
    means = tables["AP"].groupby("system")["score"].mean()
    np.testing.assert_allclose(study.table["mean"].loc[means.index], means, rtol=1e-8)

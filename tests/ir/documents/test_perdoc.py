"""A score for every document: published cases, other ones, and the file they are written to."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import vcomp
from vcomp.exceptions import DataError
from vcomp.ir.documents import document_files
from vcomp.ir.documents import document_universe as universes
from vcomp.ir.documents.document_files import document_universe, write_per_document
from vcomp.ir.documents.document_universe import score_table
from vcomp.ir.simulate.effect_draws import novelty_like_track


@pytest.fixture(scope="module")
def track():
    return novelty_like_track(n_systems=5, n_topics=7, n_assessors=3, n_documents=12, rng=4)


@pytest.fixture(scope="module", params=["topic", "assessor", "all"])
def universe(request, track):
    return document_universe(track.retrieved, track.judgements, universe=request.param)


CASES = {  # Bodoff (2008), section 5.2: relevant?, retrieved? → score
    (True, True): 1, (True, False): -1, (False, True): -1, (False, False): 0,
}  # fmt: skip


def judged(track, rows):
    """Return of every row whether its document is relevant and whether it was retrieved."""
    keys = ["system", "topic", "document"]
    found = (
        rows[keys]
        .astype(str)
        .merge(track.retrieved[keys].astype(str).assign(retrieved=True), "left", on=keys)
    )
    keys = ["assessor", "topic", "document"]
    relevant = (
        rows[keys]
        .astype(str)
        .merge(track.judgements.astype(dict.fromkeys(keys, str)), "left", on=keys)
    )
    return relevant["relevant"].to_numpy(bool), found["retrieved"].notna().to_numpy()


def test_published_cases(universe, track):
    rows = universe.scores()
    relevant, retrieved = judged(track, rows)
    expected = [CASES[case] for case in zip(relevant.tolist(), retrieved.tolist(), strict=True)]
    assert_array_equal(rows["score"], expected)
    assert set(expected) >= {1, -1}


def test_other_cases(universe, track):
    rows = universe.scores(
        {"relevant_retrieved": 3, "relevant_missed": -0.5, "nonrelevant_retrieved": 0.25,
         "nonrelevant_left": 2}
    )  # fmt: skip
    relevant, retrieved = judged(track, rows)
    expected = np.where(relevant, np.where(retrieved, 3, -0.5), np.where(retrieved, 0.25, 2))
    assert_array_equal(rows["score"], expected)
    right = universe.scores("accuracy")["score"]
    assert_array_equal(right, relevant == retrieved)


def test_rows(universe):
    rows = universe.scores()
    assert list(rows) == ["system", "assessor", "topic", "document", "score"]
    assert len(rows) == universe.n_rows
    assert not rows.duplicated(["system", "assessor", "topic", "document"]).any()
    assert rows["topic"].cat.codes.is_monotonic_increasing
    # A document is of one topic, so that documents are nested in topics.
    pairs = rows[["document", "topic"]].drop_duplicates()
    assert not pairs["document"].duplicated().any()


@pytest.mark.parametrize("rows_at_once", [1, 100, 10**9])
def test_the_file_is_the_frame(universe, tmp_path, rows_at_once):
    path = tmp_path / "scores.parquet"
    table = universes.score_table("accuracy")
    written = document_files.write_row_groups(universe, path, table, rows_at_once=rows_at_once)
    assert written == universe.n_rows
    groups = pq.ParquetFile(path).num_row_groups
    assert groups == 1 if rows_at_once > universe.n_rows else groups > 1
    first = pq.ParquetFile(path).read_row_group(0).column("document").combine_chunks()
    assert sorted(first.dictionary.to_pylist()) == sorted(set(first.to_pylist()))
    rows = universe.scores("accuracy")
    found = pd.read_parquet(path)
    assert_array_equal(found["score"], rows["score"])
    for name in ("system", "assessor", "topic", "document"):
        assert_array_equal(found[name].astype(object), rows[name].astype(object))
    formula = "score ~ (1|system) + (1|topic/document)"
    assert_allclose(
        vcomp.fit(formula, str(path)).vcomp, vcomp.fit(formula, rows).vcomp, rtol=1e-10
    )
    assert [p.name for p in tmp_path.iterdir()] == ["scores.parquet"]


def test_numbered_labels_are_written_as_numbers(tmp_path):
    runs = {"system": [1, 2, 2], "topic": [7, 7, 9], "document": [5, 5, 6]}
    qrels = {"assessor": [0, 0], "topic": [7, 9], "document": [5, 8], "relevant": [1, 1]}
    universe = document_universe(runs, qrels)
    write_per_document(universe, tmp_path / "s.parquet")
    found = pd.read_parquet(tmp_path / "s.parquet")
    assert found.astype(float).to_numpy().tolist() == [
        [1, 0, 7, 5, 1], [2, 0, 7, 5, 1],
        [1, 0, 9, 6, 0], [1, 0, 9, 8, -1], [2, 0, 9, 6, -1], [2, 0, 9, 8, -1],
    ]  # fmt: skip


def test_a_file_that_fails_leaves_nothing(universe, tmp_path, monkeypatch):
    path = tmp_path / "scores.parquet"
    path.write_text("what was there before")

    def fail(*args):
        raise RuntimeError("disk full")

    monkeypatch.setattr(document_files, "_arrow", fail)
    with pytest.raises(RuntimeError, match="disk full"):
        write_per_document(universe, path)
    assert [p.name for p in tmp_path.iterdir()] == ["scores.parquet"]
    assert path.read_text() == "what was there before"


def test_bad_paths(universe, tmp_path):
    (tmp_path / "folder.parquet").mkdir()
    for path, message in (
        (tmp_path / "scores.csv", "does not end in .parquet"),
        (tmp_path / "no" / "scores.parquet", "there is no such folder"),
        (tmp_path / "folder.parquet", "is a folder"),
        (3, "not the path of a file"),
    ):
        with pytest.raises(DataError, match=message):
            write_per_document(universe, path)
    with pytest.raises(DataError, match=r"needs a DocumentUniverse, .* not DataFrame"):
        write_per_document(pd.DataFrame(), tmp_path / "scores.parquet")


def test_frames_that_do_not_fit_are_not_begun(universe):
    with pytest.raises(DataError, match="write_per_document"):
        universes.document_scores(universe, free_bytes=lambda: 1000.0)
    needed = 32.0 * universe.n_rows  # with temporaries, of half of what is free
    assert len(universes.document_scores(universe, free_bytes=lambda: 2.0 * needed))
    with pytest.raises(DataError, match="write_per_document"):
        universes.document_scores(universe, free_bytes=lambda: 1.99 * needed)


FOUR = {"relevant_retrieved": 1, "relevant_missed": 0, "nonrelevant_retrieved": 0,
        "nonrelevant_left": 0}  # fmt: skip


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ("utlity", "did you mean 'utility'"),
        (3, "mapping of the four cases"),
        (None, "mapping of the four cases"),
        ({**FOUR, "relevant_mised": 1}, "did you mean 'relevant_missed'"),
        (
            {"relevant_retrieved": 1},
            "lacks nonrelevant_left, nonrelevant_retrieved, rel",
        ),
        ({**FOUR, "relevant_missed": "x"}, "are numbers"),
        ({**FOUR, "relevant_missed": np.nan}, "finite numbers"),
        ({**FOUR, "relevant_missed": None}, "are numbers"),
        ({**FOUR, "relevant_missed": 1}, "makes no difference whether"),
    ],
)
def test_bad_scores(scores, message):
    with pytest.raises(DataError, match=message):
        score_table(scores)

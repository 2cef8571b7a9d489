"""What all formats of logs share: where files are, tables, damage, the report."""

import gzip
import io
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vcomp
from vcomp.evals.growing_rows import GrowingLevels

FRAME = pd.DataFrame(
    {
        "model": ["a", "a", "b", "b"],
        "item": [1, 2, 1, 2],
        "judge": ["x", "x", "y", "y"],
        "score": [1.0, 0.5, 0.0, 0.25],
    }
)


def as_lines(frame):
    """Return rows as JSON objects, a line each."""
    return frame.to_json(orient="records", lines=True)


WRITTEN = {
    "csv": lambda f, path: f.to_csv(path, index=False),
    "semicolons": lambda f, path: f.to_csv(path, index=False, sep=";"),
    "lines": lambda f, path: path.write_text(as_lines(f), "utf-8"),
    "list": lambda f, path: path.write_text(f.to_json(orient="records", indent=2), "utf-8"),
    "parquet": lambda f, path: f.to_parquet(path, index=False),
    "packed": lambda f, path: path.write_bytes(gzip.compress(as_lines(f).encode())),
    "packed csv": lambda f, path: path.write_bytes(gzip.compress(f.to_csv(index=False).encode())),
}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "scores.csv"
    FRAME.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("kind", WRITTEN)
def test_tables_are_found_by_content(tmp_path, kind):
    path = tmp_path / "scores"
    WRITTEN[kind](FRAME, path)
    logs = vcomp.evals.read(path)
    expected = FRAME.astype({"model": str, "item": str, "judge": str})
    pd.testing.assert_frame_equal(logs.table.astype(expected.dtypes), expected)
    assert logs.report[["format", "samples", "scores"]].to_numpy().tolist() == [["table", 4, 4]]


def test_a_list_of_objects_is_read_an_object_at_a_time(tmp_path):
    path, rows = tmp_path / "a.json", [{"model": "m", "item": k, "score": k / 4} for k in range(9)]
    for text in (json.dumps(rows), json.dumps(rows, indent=1)):
        path.write_text(text, "utf-8")
        table = vcomp.evals.read(path).table
        assert table["score"].tolist() == [k / 4 for k in range(9)]
        path.write_text(text[:-20], "utf-8")
        with pytest.raises(vcomp.DataError, match="the list: it ends within an object"):
            vcomp.evals.read(path)
        logs = vcomp.evals.read(path, unreadable="skip")
        assert logs.table["score"].tolist() == [k / 4 for k in range(8)]
        assert logs.report["unreadable"].tolist() == [1]
        path.write_text(text + "x", "utf-8")
        with pytest.raises(vcomp.DataError, match="the list: something follows the document"):
            vcomp.evals.read(path)
    path.write_text(json.dumps([rows[0], 5, rows[1]]), "utf-8")
    with pytest.raises(vcomp.DataError, match="row 2: it is not an object"):
        vcomp.evals.read(path)


def test_standard_input(monkeypatch):
    text = io.TextIOWrapper(io.BytesIO(as_lines(FRAME).encode()))
    monkeypatch.setattr("sys.stdin", text)
    logs = vcomp.evals.read("-")
    assert len(logs.table) == 4
    assert logs.report["file"].tolist() == ["standard input"]


def test_folders_and_patterns(tmp_path, table):
    (tmp_path / ".hidden.csv").write_text("score\n1\n")
    (tmp_path / "deep").mkdir()
    FRAME.assign(model="c").to_csv(tmp_path / "deep" / "more.csv", index=False)
    (tmp_path / "notes.txt").write_text("nothing to see\n")
    logs = vcomp.evals.read(tmp_path)
    assert logs.table["model"].cat.categories.tolist() == ["c", "a", "b"]
    assert "notes.txt" in " ".join(logs.notes)
    assert len(vcomp.evals.read(str(tmp_path / "*.csv")).table) == 4
    assert len(vcomp.evals.read([table, table]).table) == 4


def test_a_table_may_repeat_scores(tmp_path):
    path = tmp_path / "scores.csv"
    pd.concat([FRAME, FRAME]).to_csv(path, index=False)
    assert len(vcomp.evals.read(path).table) == 8


def test_epochs_are_numbers_and_all_else_is_levels(tmp_path):
    path = tmp_path / "scores.csv"
    FRAME.assign(epoch=[1, 2, 1, 2], item=["01", "1", "01", "1"]).to_csv(path, index=False)
    table = vcomp.evals.read(path).table
    assert table["epoch"].tolist() == [1, 2, 1, 2]
    assert table["item"].tolist() == ["01", "1", "01", "1"]


def test_constant_columns_are_left_out(tmp_path):
    path = tmp_path / "scores.csv"
    FRAME.assign(subset=["s", "s", "t", "t"], release=3).to_csv(path, index=False)
    logs = vcomp.evals.read(path)
    assert list(logs.table) == ["model", "item", "judge", "subset", "score"]
    assert logs.constants == {"release": "3"}
    with pytest.raises(vcomp.PlanError, match="column 'release' has one level, '3'") as caught:
        vcomp.evals.judges(path, human="release")
    assert caught.value.column == "release"


def test_columns_of_other_names(tmp_path):
    path = tmp_path / "scores.csv"
    FRAME.rename(columns={"score": "points", "judge": "who"}).to_csv(path, index=False)
    with pytest.raises(vcomp.DataError, match=r"no known format.*columns=\{'score': 'points'\}"):
        vcomp.evals.read(path)
    table = vcomp.evals.read(path, columns={"score": "points", "judge": "who"}).table
    assert list(table) == ["model", "item", "judge", "score"]
    with pytest.raises(vcomp.DataError, match="no column 'marks'"):
        vcomp.evals.read(path, columns={"score": "marks"})


def test_a_named_column_replaces_that_of_the_name(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("model,item,score,points\na,1,0.5,7\nb,1,0.25,8\n")
    found = vcomp.evals.read(path, columns={"score": "points"})
    assert found.table["score"].tolist() == [7.0, 8.0]
    path.write_text("model,item,score,score\na,1,0.5,7\nb,1,0.25,8\n")
    with pytest.raises(vcomp.DataError, match="has two columns 'score'; rename one"):
        vcomp.evals.read(path)


def test_scores_of_topics_of_pyterrier(tmp_path):
    """``perquery.csv``, which ``pt.Experiment`` saves; topics without judgements have no score."""
    path = tmp_path / "perquery.csv"
    path.write_text("name,qid,measure,value\nbm25,301,map,0.5\nrm3,301,map,0.25\nrm3,9,map,\n")
    logs = vcomp.evals.read(path)
    assert logs.table.to_dict("list") == {
        "model": ["bm25", "rm3"],
        "item": ["301", "301"],
        "metric": ["map", "map"],
        "score": [0.5, 0.25],
    }
    assert logs.unscored["item"].tolist() == ["9"]


def test_text_and_missing_scores_are_named(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("model,item,score\na,1,good\na,2,\na,3,TRUE\na,4,0.5\n")
    logs = vcomp.evals.read(path)
    assert logs.table["score"].tolist() == [1.0, 0.5]
    assert logs.unscored["problem"].tolist() == ["not a number: 'good'", "not scored"]


def test_a_fit_of_what_was_read(tmp_path):
    rng = np.random.default_rng(1)
    m, i = (axis.ravel() for axis in np.indices((5, 20)))
    frame = pd.DataFrame({"model": m, "item": i, "score": rng.normal(size=100) + m})
    frame.to_parquet(tmp_path / "scores.parquet")
    formula = "score ~ (1|model) + (1|item)"
    found = vcomp.fit(formula, vcomp.evals.read(tmp_path).table)
    np.testing.assert_allclose(found.vcomp, vcomp.fit(formula, frame).vcomp, rtol=1e-6)


# Refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "no paths"),
        (3, "paths of files"),
        ([3], "is text, not 3"),
        ("", "not the path"),
        ("https://a.b/c", "an address"),
        ("/no/such/file", "no file or folder"),
        ("/no/such/*.csv", "no file matches"),
        (FRAME, "a frame needs no reader"),
    ],
)
def test_wrong_paths(given, why):
    with pytest.raises(vcomp.DataError, match=why):
        vcomp.evals.read(given)


def test_an_empty_folder(tmp_path):
    with pytest.raises(vcomp.DataError, match="no files in the folder"):
        vcomp.evals.read(tmp_path)


def test_wrong_options(table):
    with pytest.raises(vcomp.PlanError, match="format must be"):
        vcomp.evals.read(table, "csv")
    with pytest.raises(vcomp.PlanError, match="unreadable must be"):
        vcomp.evals.read(table, unreadable="drop")
    with pytest.raises(vcomp.DataError, match=r"not 'modle'.*did you mean 'model'"):
        vcomp.evals.read(table, columns={"modle": "x"})
    with pytest.raises(vcomp.DataError, match="not 'item'"):
        vcomp.evals.read(table, metadata=["item"])


def test_a_format_is_insisted_on(tmp_path, table):
    with pytest.raises(vcomp.DataError, match=r"scores.csv', .*not JSON"):
        vcomp.evals.read(table, "lm_eval")
    assert len(vcomp.evals.read(table, "table").table) == 4
    with pytest.raises(vcomp.DataError, match=r"no scores.*not logs.*scores.csv"):
        vcomp.evals.read(tmp_path, "lm_eval")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b'{"results": {\n "a": [1, 2', "not JSON: .* line 2"),
        (b"model,item,score\na,1,1\na,2\n", "Expected 3 columns, got 2"),
        (b"PAR1nonsense", "no known format"),
        (b"PK\x03\x04nonsense", "no known format"),
        (b"\xff\xfe\x00\x00", "no known format"),
        (gzip.compress(as_lines(FRAME).encode(), mtime=0)[:-12], "cannot be read"),
    ],
)
def test_damaged_files(tmp_path, content, why):
    path = tmp_path / "log.json"
    path.write_bytes(content)
    with pytest.raises(vcomp.DataError, match=why):
        vcomp.evals.read(path)


def test_the_rest_of_a_damaged_folder_is_read(tmp_path, table):
    (tmp_path / "a.json").write_text('{"a": [')
    (tmp_path / "b.csv").write_text("model,item,score\na,7,1\na\na,8,1\n")
    (tmp_path / "c.jsonl").write_text(json.dumps({"item": 9, "score": 1}) + "\n{\n")
    with pytest.raises(vcomp.DataError, match=r"a\.json"):
        vcomp.evals.read(tmp_path)
    logs = vcomp.evals.read(tmp_path, unreadable="skip")
    assert set(logs.table["item"]) == {"1", "2", "7", "8", "9"}
    assert logs.report["unreadable"].tolist() == [1, 1, 1, 0]
    assert "line 3: 1 fields instead of 3" in " ".join(logs.notes)


def test_the_printed_page(table):
    page = str(vcomp.evals.read(table))
    assert "4 scores: 2 models, 2 items, 2 judges" in page
    assert "unscored" not in page
    assert repr(vcomp.evals.read(table)) == "<EvalLogs: 4 scores: 2 models, 2 items, 2 judges>"


@pytest.mark.parametrize("kind", ["paths", "logs"])
def test_names_of_columns_in_files_are_understood(tmp_path, kind):
    """Names that are written win over those that reading gives, and are printed."""
    data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
    data = data[data["sys"].isin(["bm25-k1.2-b0.75", "ql-jm0.1", "overlap"])]
    path = tmp_path / "scores.csv"
    data.rename(columns={"score": "acc"}).to_csv(path, index=False)
    source = path if kind == "paths" else vcomp.evals.read(path)
    expected = vcomp.evals.study(data, system="sys", sampled=["topic"])
    named = vcomp.evals.study(source, system="sys", score="acc", sampled=["topic"])
    assert named.table.index.name == "sys"
    assert "150 topics" in str(named)
    assert named.table["mean"].to_dict() == pytest.approx(
        expected.table["mean"].to_dict(), rel=1e-12
    )
    usual = vcomp.evals.study(source, where={"sys": ["overlap", "ql-jm0.1"]})
    assert usual.table.index.name == "model"
    assert set(usual.table.index) == {"overlap", "ql-jm0.1"}
    with pytest.raises(vcomp.PlanError, match="no column 'system'"):
        vcomp.evals.study(source, system="system")


def test_names_of_judges_and_repetitions_in_files(tmp_path):
    path = tmp_path / "ratings.csv"
    table = {"name": ["m"] * 8, "qid": [1, 1, 2, 2] * 2, "rater": ["a", "b"] * 4}
    table |= {"repeat": [1] * 4 + [2] * 4, "points": [1, 0, 1, 1, 1, 0, 0, 1]}
    pd.DataFrame(table).to_csv(path, index=False)
    logs = vcomp.evals.read(path, columns={"score": "points"})
    card = vcomp.evals.judges(
        logs, system="name", judge="rater", score="points", repeated="repeat"
    )
    assert card.table.index.name == "rater"
    found = vcomp.evals.repetitions(logs, system="name", sampled=["qid"])
    assert found.pass_all(2).index.name == "name"


def test_whole_numbers_are_levels_whatever_their_range(tmp_path):
    """Levels in small ranges are looked up, others are hashed: near, far, negative and mixed."""
    far = 2**62
    parts = [[3, 1, 3], [-2, 7, 1], [far, -far, 3], [200, 100, -128]]
    rows = [pd.DataFrame({"model": "m", "item": part, "score": 1.0}) for part in parts]
    path = tmp_path / "scores.parquet"
    schema = pa.Schema.from_pandas(rows[0], preserve_index=False)
    with pq.ParquetWriter(path, schema) as sink:
        for part in rows:
            sink.write_table(pa.Table.from_pandas(part, schema, preserve_index=False))
    found = vcomp.evals.read(path).table["item"]
    expected = [str(item) for part in parts for item in part]
    assert found.tolist() == expected
    assert found.cat.categories.tolist() == list(dict.fromkeys(expected))
    levels, narrow = GrowingLevels(), np.array([-128, 127, 0], np.int8)
    batches = narrow, np.array([10**6], np.int64), narrow[::-1], np.array([-(10**9)])
    for values in batches:
        levels.add(pd.Series(values))
    assert levels.made(8).tolist() == [str(v) for values in batches for v in values]

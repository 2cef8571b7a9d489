"""What documents systems are scored on, counted by hand and by brute force."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.examples import examples
from vcomp.exceptions import DataError, VcompWarning
from vcomp.ir.documents.document_files import document_universe
from vcomp.ir.documents.document_universe import _small

RETRIEVED = pd.DataFrame(
    [("a", 1, "x"), ("a", 1, "y"), ("b", 1, "y"), ("b", 2, "u")],
    columns=["system", "topic", "document"],
)
JUDGED = pd.DataFrame(
    [("J", 1, "y", 1), ("J", 1, "z", 1), ("K", 1, "x", 1), ("K", 1, "w", 0),
     ("J", 2, "v", 2), ("K", 2, "u", 0)],
    columns=["assessor", "topic", "document", "relevant"],
)  # fmt: skip
ALL = {"topic": (["x", "y", "z"], ["u", "v"]), "all": (["w", "x", "y", "z"], ["u", "v"])}


def documents_of(universe, topic):
    return universe.documents[universe.block(topic).documents].tolist()


@pytest.mark.parametrize("kind", ALL)
def test_documents_by_hand(kind):
    universe = document_universe(RETRIEVED, JUDGED, universe=kind)
    assert [documents_of(universe, t) for t in (0, 1)] == list(map(list, ALL[kind]))
    assert universe.n_rows == 2 * 2 * sum(map(len, ALL[kind]))
    block = universe.block(universe.topic_number(1))
    shown = ALL[kind][0]
    assert [[d for d, r in zip(shown, row, strict=True) if r] for row in block.retrieved] == [
        ["x", "y"], ["y"],
    ]  # fmt: skip
    assert [[d for d, r in zip(shown, row, strict=True) if r] for row in block.relevant] == [
        ["y", "z"], ["x"],
    ]  # fmt: skip
    assert block.scored.all()


def test_documents_that_differ_between_assessors_by_hand():
    universe = document_universe(RETRIEVED, JUDGED, universe="assessor")
    # z is relevant for J alone and retrieved by none, as v is: K has neither.
    assert documents_of(universe, 0) == ["x", "y", "z"]
    assert universe.block(0).scored.tolist() == [[True, True, True], [True, True, False]]
    assert universe.block(1).scored.tolist() == [[True, True], [True, False]]
    assert universe.n_rows == 2 * (3 + 2 + 2 + 1)
    rows = universe.scores()
    assert not ((rows["assessor"] == "K") & rows["document"].isin(["z", "v"])).any()


def test_every_container_is_read_the_same(tmp_path):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    path = tmp_path / "judged.csv"
    JUDGED.to_csv(path, index=False)
    expected = document_universe(RETRIEVED, JUDGED).scores()
    shuffled = RETRIEVED.sample(frac=1, random_state=1), JUDGED.sample(frac=1, random_state=2)
    for runs, qrels in (
        (polars.from_pandas(RETRIEVED), path),
        (RETRIEVED.to_dict("list"), polars.from_pandas(JUDGED)),
        (RETRIEVED.astype("category"), JUDGED.astype({"relevant": "Int64"})),
        (RETRIEVED, JUDGED.assign(relevant=JUDGED["relevant"] > 0)),
        (RETRIEVED.astype({"document": "string"}), JUDGED.astype({"topic": "float"})),
        (RETRIEVED.astype({"topic": "Int64"}), JUDGED.astype({"topic": "uint8"})),
        ([RETRIEVED[:2], RETRIEVED[2:]], JUDGED),
        shuffled,
    ):
        found = document_universe(runs, qrels).scores()
        pd.testing.assert_frame_equal(found.astype(object), expected.astype(object))


def test_columns_have_other_names():
    runs = RETRIEVED.rename(columns={"system": "run", "topic": "qid", "document": "docno"})
    qrels = JUDGED.rename(
        columns={"assessor": "judge", "topic": "qid", "document": "docno", "relevant": "grade"}
    )
    universe = document_universe(
        runs, qrels, system="run", topic="qid", document="docno", assessor="judge",
        relevant="grade",
    )  # fmt: skip
    pd.testing.assert_frame_equal(universe.scores(), document_universe(RETRIEVED, JUDGED).scores())


def test_grades():
    block = document_universe(RETRIEVED, JUDGED, relevant_from=2).block(1)
    assert block.relevant.tolist() == [[False, True], [False, False]]
    with pytest.raises(DataError, match=r"no document is relevant: the grades .* are 0 to 2"):
        document_universe(RETRIEVED, JUDGED, relevant_from=3)


def test_systems_that_retrieved_nothing():
    universe = document_universe(RETRIEVED, JUDGED, systems=["c", "a", "b"])
    assert universe.systems.tolist() == ["a", "b", "c"]
    rows = universe.scores()
    none = rows[rows["system"] == "c"]
    assert len(none) == len(rows) / 3
    # Of nothing retrieved each relevant document is missed: y, z and v by J, x by K.
    assert none["score"].sum() == -4
    # System a retrieved nothing for topic 2, and has rows there.
    assert ((rows["system"] == "a") & (rows["topic"] == 2)).sum() == 4
    with pytest.raises(DataError, match=r"'b', which retrieved documents, is not among them"):
        document_universe(RETRIEVED, JUDGED, systems=["a", "c"])
    with pytest.raises(DataError, match="systems= is a list of names"):
        document_universe(RETRIEVED, JUDGED, systems="abc")
    with pytest.raises(DataError, match="systems= holds numbers and column 'system' text"):
        document_universe(RETRIEVED, JUDGED, systems=[1, 2])


def test_documents_of_one_name_in_two_topics_are_two():
    same = document_universe(
        RETRIEVED.replace({"document": {"u": "x"}}), JUDGED.replace({"document": {"u": "x"}})
    )
    assert same.documents.tolist() == ["1/x", "1/y", "1/z", "2/v", "2/x"]
    values = same.scores()["score"]
    # The order of documents in a topic is another, the scores are not.
    assert sorted(values) == sorted(document_universe(RETRIEVED, JUDGED).scores()["score"])


def test_a_topic_without_retrieved_documents():
    with pytest.warns(VcompWarning, match=r"topics that were judged \(1 of 2\): 2;"):
        universe = document_universe(RETRIEVED[:3], JUDGED)
    assert documents_of(universe, 1) == ["v"]
    assert (universe.scores().query("topic == 2 and assessor == 'J'")["score"] == -1).all()


def test_a_topic_with_nothing_at_all_has_no_rows():
    judged = JUDGED[JUDGED["topic"] == 1]
    nothing = pd.DataFrame([("J", 2, "v", 0)], columns=JUDGED.columns)
    with pytest.warns(VcompWarning, match="no system retrieved"):
        universe = document_universe(RETRIEVED[:3], pd.concat([judged, nothing]))
    assert documents_of(universe, 1) == []
    assert universe.scores()["topic"].unique().tolist() == [1]


def test_topics_without_judgements_are_named():
    more = pd.concat([RETRIEVED, RETRIEVED.assign(topic=3), RETRIEVED.assign(topic=4)])
    judged = pd.concat([JUDGED[:4], JUDGED[4:].assign(topic=4), JUDGED[4:].assign(topic=5)])
    with pytest.raises(DataError, match=r"were not judged \(2 of 5\): 2, 3\. Leave their rows"):
        document_universe(more, judged)


def test_what_was_judged_or_retrieved_twice_is_named():
    for row, what in ((0, "'y' of topic 1 .* 'J'"), (2, "'x' of topic 1 .* 'K'"),
                      (5, "'u' of topic 2 .* 'K'")):  # fmt: skip
        with pytest.raises(DataError, match=f"document {what} .1 such rows in all"):
            document_universe(RETRIEVED, pd.concat([JUDGED, JUDGED[row : row + 1]]))
    with pytest.raises(DataError, match="'y' of topic 1 was retrieved twice by system 'b'"):
        document_universe(pd.concat([RETRIEVED, RETRIEVED[2:3]]), JUDGED)


@pytest.mark.parametrize(
    ("retrieved", "judged", "message"),
    [
        (RETRIEVED.rename(columns={"topic": "Topic"}), JUDGED, "did you mean 'Topic'"),
        (RETRIEVED, JUDGED.drop(columns="assessor"), "judgements: there is no column 'assessor'"),
        (RETRIEVED[:0], JUDGED, "retrieved: the table has no rows"),
        (RETRIEVED, JUDGED[:0], "judgements: the table has no rows"),
        (RETRIEVED, pd.concat([JUDGED, JUDGED[2:3]]),
         "document 'x' of topic 1 was judged twice by assessor 'K'"),
        (pd.concat([RETRIEVED, RETRIEVED[3:]]), JUDGED,
         "document 'u' of topic 2 was retrieved twice by system 'b'"),
        (RETRIEVED, JUDGED[:4], r"documents were not judged \(1 of 2\): 2\."),
        (RETRIEVED.astype({"topic": str}), JUDGED,
         "'topic' holds text in the retrieved documents and numbers in the judgements"),
        (RETRIEVED.assign(document=[1, 2, 2, 3]), JUDGED,
         r"'document' holds numbers .* such as 1 and 'u'; make both text"),
        (RETRIEVED.replace({"system": {"b": None}}), JUDGED,
         "retrieved: column 'system' is missing in 2 of 4 rows, first in row 2"),
        (RETRIEVED, pd.concat([JUDGED, JUDGED]),
         r"document 'w' of topic 1 was judged twice by assessor 'K' \(6 such rows in all\)"),
        (RETRIEVED, JUDGED.assign(relevant=["1"] * 6), "it must hold grades"),
        (RETRIEVED, JUDGED.assign(relevant=[1, 1, 1, 0, 1, np.nan]),
         "'relevant' is missing in 1 of 6 rows"),
        (RETRIEVED, JUDGED.assign(relevant=[1, 1, 1, 0, 1, np.inf]), "are not finite"),
        (RETRIEVED, JUDGED.assign(relevant=0), "no document is relevant"),
        (RETRIEVED["system"], JUDGED, "retrieved: data of type Series"),
        (None, JUDGED, "retrieved: data of type NoneType"),
    ],
)  # fmt: skip
def test_bad_tables(retrieved, judged, message):
    with pytest.raises(DataError, match=message):
        document_universe(retrieved, judged)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"universe": "topics"}, "did you mean 'topic'"),
        ({"universe": ["topic"]}, "is not known"),
        ({"relevant_from": "1"}, "relevant_from is a grade"),
        ({"relevant_from": True}, "relevant_from is a grade"),
        ({"document": "topic"}, "'topic' is named twice"),
        ({"system": 3}, "names of columns are text"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(DataError, match=message):
        document_universe(RETRIEVED, JUDGED, **options)


def test_repr_and_topics():
    universe = document_universe(RETRIEVED, JUDGED)
    assert repr(universe) == ("<DocumentUniverse: 2 systems, 2 assessors, 2 topics, 5 documents>")
    with pytest.raises(DataError, match="there is no topic 3 among the 2 of the universe, 1 to 2"):
        universe.topic_number(3)
    for number in (2, -1):
        with pytest.raises(DataError, match=f"topics are numbered from 0 to 1, not {number}"):
            universe.block(number)


def test_systems_of_another_type():
    with pytest.raises(DataError, match=r"systems= holds numbers .* text, such as 1 and 'a'"):
        document_universe(RETRIEVED, JUDGED, systems=[1, 2])


TABLES = st.builds(
    lambda seed, n, share: _random(seed, *n, share),
    st.integers(0, 2**32 - 1),
    st.tuples(*[st.integers(1, 4)] * 3, st.integers(1, 6)),
    st.floats(0.1, 0.9),
)


def _random(seed, n_systems, n_assessors, n_topics, n_documents, share):
    rng = np.random.default_rng(seed)
    pairs = [(t, d) for t in range(n_topics) for d in range(n_documents)]
    runs = [(f"s{s}", t, d) for s in range(n_systems) for t, d in pairs if rng.random() < share]
    qrels = [(f"a{a}", t, d, int(rng.random() < share))
             for a in range(n_assessors) for t, d in pairs if rng.random() < 0.7]  # fmt: skip
    # Every topic has one relevant document at least, and every system a retrieved one.
    first = [("a0", t, n_documents, 1) for t in range(n_topics)]
    runs += [(f"s{s}", 0, n_documents + 1) for s in range(n_systems)]
    return (
        pd.DataFrame(runs, columns=["system", "topic", "document"]),
        pd.DataFrame(qrels + first, columns=["assessor", "topic", "document", "relevant"]),
    )


@settings(max_examples=examples(60), deadline=None)
@given(tables=TABLES, kind=st.sampled_from(["topic", "assessor", "all"]))
@pytest.mark.filterwarnings("ignore:no system retrieved")
def test_rows_by_brute_force(tables, kind):
    runs, qrels = tables
    retrieved = set(runs.itertuples(index=False, name=None))
    relevant = {(a, t, d) for a, t, d, r in qrels.itertuples(index=False, name=None) if r}
    expected = {}
    for a, t in set(zip(qrels["assessor"], qrels["topic"], strict=True)):
        documents = {d for _, u, d in retrieved if u == t}
        documents |= {d for b, u, d in relevant if u == t and (kind != "assessor" or a == b)}
        if kind == "all":
            documents |= set(qrels.loc[qrels["topic"] == t, "document"])
        for s in runs["system"].unique():
            for d in documents:
                case = ((a, t, d) in relevant, (s, t, d) in retrieved)
                score = {(True, True): 1, (True, False): -1, (False, True): -1}.get(case, 0)
                expected[s, a, t, d] = score
    universe = vcomp.ir.document_universe(runs, qrels, universe=kind)
    rows = universe.scores()
    label = rows["document"].astype(str).str.split("/").str[-1].astype(int)
    keys = zip(rows["system"], rows["assessor"], rows["topic"], label, strict=True)
    assert universe.n_rows == len(rows) == len(expected)
    assert dict(zip(keys, rows["score"], strict=True)) == expected


@pytest.mark.parametrize("n", [1, 126, 127, 128, 32_766, 32_767])
def test_codes_have_the_type_of_pandas(n):
    assert _small(n) == pd.Categorical(np.arange(n)).codes.dtype


def test_places_begin_and_end_as_documented():
    universe = document_universe(RETRIEVED, JUDGED)
    T, D = len(universe.topics), len(universe.documents)
    for starts, n, last in (
        (universe.starts, T, D),
        (universe.retrieved_starts, D, universe.retrieved_systems.size),
        (universe.relevant_starts, D, universe.relevant_assessors.size),
        (universe.judged_starts, T, universe.judged_assessors.size),
    ):
        assert starts.shape == (n + 1,)
        assert (starts[0], starts[-1]) == (0, last)


NESTED = {
    "a": {"1": {"x": 2.0, "y": 1.0}},
    "b": {"1": {"y": 0.5}, "2": {"u": 3.0}},
}
"""The documents of RETRIEVED as runs."""

QRELS = {
    "J": {"1": {"y": 1, "z": 1}, "2": {"v": 2}},
    "K": {"1": {"x": 1, "w": 0}, "2": {"u": 0}},
}
"""The judgements of JUDGED as qrels."""


def trec_files(folder):
    """Write the runs and qrels as files of TREC, and return their folders."""
    for name in ("runs", "qrels"):
        (folder / name).mkdir()
    for system, topics in NESTED.items():
        lines = [f"{t} Q0 {d} 1 {x} {system}\n" for t, ds in topics.items() for d, x in ds.items()]
        (folder / "runs" / f"input.{system}").write_text("".join(lines))
    for assessor, topics in QRELS.items():
        lines = [f"{t} 0 {d} {x}\n" for t, ds in topics.items() for d, x in ds.items()]
        (folder / "qrels" / f"{assessor}.txt").write_text("".join(lines))
    return folder / "runs", folder / "qrels"


def test_runs_and_qrels_are_read(tmp_path):
    text = [frame.astype({"topic": str}) for frame in (RETRIEVED, JUDGED)]
    expected = document_universe(*text).scores().astype(object)
    runs, qrels = trec_files(tmp_path)
    by_assessor = {assessor: qrels / f"{assessor}.txt" for assessor in QRELS}
    frames = {
        name: pd.DataFrame(
            [(t, d, x) for t, ds in topics.items() for d, x in ds.items()],
            columns=["qid", "docno", "score"],
        )
        for name, topics in NESTED.items()
    }
    for retrieved, judged in [
        (NESTED, QRELS),
        (runs, by_assessor),
        (f"{runs}/input.*", by_assessor),
        ([runs / "input.a", runs / "input.b"], text[1]),
        (text[0], by_assessor),
        (frames, QRELS),
    ]:
        found = document_universe(retrieved, judged).scores().astype(object)
        pd.testing.assert_frame_equal(found, expected)
    assert document_universe(runs, qrels).assessors.tolist() == ["J.txt", "K.txt"]
    by_file = document_universe(runs, qrels, name_by="file")
    assert by_file.systems.tolist() == ["input.a", "input.b"]
    alone = document_universe(runs, QRELS["J"])
    pd.testing.assert_frame_equal(
        alone.scores().drop(columns="assessor"),
        document_universe(*(text[0], text[1].query("assessor == 'J'")))
        .scores()
        .drop(columns="assessor"),
    )
    assert alone.assessors.tolist() == ["qrels"]


def test_topics_of_runs_without_judgements_are_left_out():
    more = {**NESTED, "c": {"1": {"x": 1.0}, "3": {"q": 1.0}}}
    with pytest.warns(VcompWarning, match=r"not judged and are left out \(1\): '3'"):
        universe = document_universe(more, QRELS)
    assert universe.topics.tolist() == ["1", "2"]
    assert "q" not in universe.documents


def test_a_table_in_a_text_file_is_told_from_a_run(tmp_path):
    path = tmp_path / "retrieved.txt"
    RETRIEVED.to_csv(path, index=False)
    assert document_universe(path, JUDGED).n_rows == document_universe(RETRIEVED, JUDGED).n_rows
    path.write_text("1 Q0 x 1 2.0 a\n1 Q0 x 2 1.0 a\n")
    with pytest.raises(DataError, match=r"line 2: .*; document 'x' is twice on topic '1'"):
        document_universe(path, QRELS)
    (tmp_path / "wrong.csv").write_text("system,topic\na,1\n")
    with pytest.raises(DataError, match=r"retrieved: .*'document'"):
        document_universe(tmp_path / "wrong.csv", JUDGED)

"""Long tables and score matrices wherever a matrix of scores is accepted, and forms refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import vcomp
from vcomp import ctt, ir
from vcomp.exceptions import DataError

# Topics and systems in sorted order, which long tables of ctt have.
TOPICS = [f"t{k:02d}" for k in range(12)]
SYSTEMS = ["bm25", "dense", "fused", "rm3"]
SCORES = 0.8 * np.random.default_rng(3).beta(2, 3, size=(12, 4)).round(3) + np.arange(4) / 20
MATRIX = ir.ScoreMatrix(SCORES, tuple(TOPICS), tuple(SYSTEMS))
LONG = pd.DataFrame(
    {
        "run": np.tile(SYSTEMS, 12),
        "qid": np.repeat(TOPICS, 4),
        "ap": SCORES.ravel(),
    }
)
IR = {"system": "run", "topic": "qid", "score": "ap"}
CTT = {"object": "run", "item": "qid", "score": "ap"}
SMALLEST = {"Erho2": 0.0, "Phi": 0.0}
MEASURES = ["tau", "Erho2", "sens_abs"]


def collections(scores, **columns):
    made = ir.fit_mapping(
        {"a": scores}, "tau", sizes=5, trials=3, drop_worst=0.0, smallest=SMALLEST, **columns
    )
    return made.points.drop(columns="collection", errors="ignore")


def simulated(fit_collection):
    def call(scores, **columns):
        return fit_collection(scores, **columns).simulate(5, n=2, rng=1).scores

    return call


def compared(scores, **columns):
    Y = np.stack([SCORES[::-1], SCORES**2])
    return ir.compare_simulated(scores, Y, **columns).values


OF_TOPICS = {
    "expected_tau": lambda s, **c: ir.expected_tau(s, [5, 50], **c),
    "expected_tau_ap": lambda s, **c: ir.expected_tau(s, [5, 50], variant="ap", **c),
    "accuracy": lambda s, **c: ir.accuracy(s, MEASURES, [5, 50], trials=4, **c).table,
    "split_half": lambda s, **c: ir.split_half(s, ["tau", "rmse"], 50, trials=4, **c).table,
    "swap_rates": lambda s, **c: ir.swap_rates(s, trials=5, **c),
    "compare_systems": lambda s, **c: ir.compare_systems(s, "tukey", **c).table.iloc[:, 2:],
    "fit_mapping": collections,
    "fit_collection": simulated(ir.fit_collection),
    "compare_simulated": compared,
    "as_score_matrix": lambda s, **c: ir.as_score_matrix(s, **c).scores,
    **{
        name: lambda s, name=name, **c: ir.measures.get(name).estimate(s, [5, 50], **c)
        for name in ("tau", "tau_ap", "Erho2", "Phi", "rmse", "power_ratio")
    },
    "F": lambda s, **c: ir.measures.get("F", delta=0.1).estimate(s, [5, 50], **c),
    "actual": lambda s, **c: ir.measures.get("tau").actual(s, SCORES[::2] ** 3, **c),
}

OF_OBJECTS = {
    "cronbach_alpha": ctt.cronbach_alpha,
    "reliability": lambda s, **c: ctt.reliability(s, **c).table,
    "item_analysis": lambda s, **c: ctt.item_analysis(s, order="given", **c).table,
    "split_half_reliability": lambda s, **c: ctt.split_half_reliability(s, **c).table,
}


def same(one, other, rtol=0.0):
    if isinstance(one, pd.DataFrame):
        one, other = one.reset_index(drop=True), other.reset_index(drop=True)
        pd.testing.assert_frame_equal(one, other, rtol=rtol, atol=rtol)
    else:
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


@pytest.mark.slow
@pytest.mark.parametrize("call", OF_TOPICS.values(), ids=OF_TOPICS)
def test_forms_of_topics_by_systems_are_equal(call):
    bare = call(SCORES)
    same(call(MATRIX), bare)
    # Columns of a frame are summed in another order: the last bits differ.
    same(call(MATRIX.to_frame()), bare, rtol=1e-11)
    for table in (LONG, pl.DataFrame(LONG), {name: LONG[name].to_numpy() for name in LONG}):
        same(call(table, **IR), bare)
    same(call(MATRIX.to_long(), system="system"), call(MATRIX))


@pytest.mark.parametrize("call", OF_OBJECTS.values(), ids=OF_OBJECTS)
def test_forms_of_objects_by_items_are_equal(call, tmp_path):
    bare = call(np.ascontiguousarray(SCORES.T))
    same(call(MATRIX), bare)
    LONG.to_csv(tmp_path / "long.csv", index=False)
    shuffled, file = LONG.sample(frac=1, random_state=2), tmp_path / "long.csv"
    for table in (LONG, shuffled, pl.DataFrame(LONG), dict(LONG.items()), file):
        same(call(table, **CTT), bare)


def test_ratings_are_those_of_objects_by_raters():
    bare = ctt.icc(np.ascontiguousarray(SCORES.T)).table
    same(ctt.icc(MATRIX).table, bare)
    same(ctt.icc(LONG, object="run", rater="qid", score="ap").table, bare)
    # Topics as the objects and systems as their raters are two words of the same table.
    same(ctt.icc(LONG, object="qid", rater="run", score="ap").table, ctt.icc(SCORES).table)


def test_labels_come_with_the_scores():
    assert ctt.item_analysis(MATRIX, order="given").table.index.tolist() == TOPICS
    assert vcomp.simulate.fit_collection(MATRIX).systems == tuple(SYSTEMS)
    assert vcomp.simulate.fit_collection(LONG, **IR).systems == tuple(SYSTEMS)
    assert vcomp.simulate.fit_collection(SCORES, list("abcd")).systems == tuple("abcd")


def test_the_truth_may_be_a_long_table():
    tau = ir.measures.get("tau")
    half = LONG[LONG["qid"].isin(TOPICS[::2])]
    rest = LONG[~LONG["qid"].isin(TOPICS[::2])]
    expected = tau.actual(SCORES[::2], SCORES[1::2])
    assert tau.actual(half, rest, **IR) == expected
    assert tau.actual(half, SCORES[1::2].mean(axis=0), **IR) == expected


def test_a_column_that_is_not_named_has_the_name_of_its_role():
    renamed = LONG.rename(columns={"qid": "topic", "ap": "score"})
    same(ir.expected_tau(renamed, 5, system="run"), ir.expected_tau(SCORES, 5))
    with pytest.raises(DataError, match=r"topic= is missing, and there is no column 'topic'"):
        ir.expected_tau(LONG, 5, system="run")
    with pytest.raises(DataError, match=r"object=, item=, score=; item= is missing"):
        ctt.cronbach_alpha(LONG, object="run", score="ap")


NUMBERED = LONG.assign(run=np.tile(range(4), 12), qid=np.repeat(range(12), 4))


@pytest.mark.parametrize(
    "table", [LONG, NUMBERED, pl.DataFrame(NUMBERED)], ids=["text", "ids", "pl"]
)
def test_long_tables_without_names_are_refused(table):
    hint = r"long table, a row a score, by their columns 'qid' and 'run'. .* name the columns: "
    with pytest.raises(DataError, match=hint + r"system='run', topic='qid', score=\.\.\."):
        ir.expected_tau(table)
    renamed = table.rename(columns={"ap": "score"}) if isinstance(table, pd.DataFrame) else table
    with pytest.raises(DataError, match=r"name the columns: object='run', item='qid', score="):
        ctt.cronbach_alpha(renamed)
    if renamed is not table:
        with pytest.raises(DataError, match=r"object='run', item='qid', score='score'"):
            ctt.reliability(renamed)


@pytest.mark.filterwarnings("error")
def test_an_infinite_label_does_not_hide_a_long_table():
    cells = [(i, np.inf if j == 3 else j, float(i * j % 5)) for i in range(4) for j in range(6)]
    table = pd.DataFrame([(f"s{i}", j, y) for i, j, y in cells], columns=["a", "b", "y"])
    with pytest.raises(vcomp.DataError, match="look like a long table"):
        vcomp.icc(table)


def test_transposed_tables_are_refused():
    wide = MATRIX.to_frame()
    hint = (
        r"scores look transposed: .* Pass scores\.T, with a row for each {} and a column for each"
    )
    for scores in (wide.T, wide.T.rename_axis(columns=None), wide.T.rename_axis(index=None)):
        with pytest.raises(DataError, match=hint.format("topic")):
            ir.expected_tau(scores)
        assert ctt.cronbach_alpha(scores) == pytest.approx(ctt.cronbach_alpha(MATRIX), rel=1e-14)
    for scores in (wide, wide.rename_axis(columns=None), wide.rename_axis(index=None)):
        with pytest.raises(DataError, match=hint.format("object")):
            ctt.cronbach_alpha(scores)
        same(ir.expected_tau(scores), ir.expected_tau(MATRIX))
    with pytest.raises(DataError, match="column 'run' looks like the labels of systems"):
        ir.expected_tau(pd.DataFrame(SCORES.T).assign(run=range(4)))
    with pytest.raises(DataError, match="column 'topic' looks like the labels of items"):
        ctt.cronbach_alpha(pd.DataFrame(SCORES).assign(topic=range(12)))
    with pytest.raises(DataError, match="column 'person' looks like the labels of objects, not"):
        ctt.reliability(pd.DataFrame(SCORES).assign(person=range(12)))


def test_a_score_matrix_has_its_own_labels():
    words = "names columns of long tables; a ScoreMatrix has its own labels"
    for call, columns in ((ir.expected_tau, IR), (ctt.cronbach_alpha, CTT)):
        with pytest.raises(DataError, match=words):
            call(MATRIX, **columns)
    wrong = ir.ScoreMatrix(SCORES, tuple(TOPICS), tuple(SYSTEMS[:3]))
    with pytest.raises(DataError, match=r"12 topics and a column for each of its 3 systems"):
        ctt.cronbach_alpha(wrong)

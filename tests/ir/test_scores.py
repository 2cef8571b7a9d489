"""What passes for a topic × system matrix, and what does not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from vcomp.exceptions import DataError
from vcomp.ir.scores import ScoreMatrix, as_score_matrix

VALUES = np.array([[0.1, 0.4], [np.nan, 0.5], [0.3, 0.6]])
WIDE = pd.DataFrame(VALUES, index=["401", "402", "403"], columns=["bm25", "rm3"])


@pytest.mark.parametrize(
    "scores",
    [
        VALUES,
        VALUES.astype(np.float32).astype(object),
        np.ma.masked_invalid(VALUES),
        [[0.1, 0.4], [None, 0.5], [0.3, 0.6]],
        ((0.1, 0.4), (np.nan, 0.5), (0.3, 0.6)),
    ],
    ids=["array", "objects", "masked", "lists", "tuples"],
)
def test_arrays_are_numbered(scores):
    matrix = as_score_matrix(scores)
    np.testing.assert_allclose(matrix.scores, VALUES, rtol=1e-7)
    assert matrix.topics == ("0", "1", "2")
    assert matrix.systems == ("0", "1")


@pytest.mark.parametrize("role", ["system", "topic", "score"])
@pytest.mark.parametrize("k", [2, 3])
def test_arrays_have_no_columns_of_names(role, k):
    with pytest.raises(DataError, match="data of type ndarray cannot be read"):
        as_score_matrix(np.ones((5, k)), **{role: "run"})


@pytest.mark.parametrize("frame", [WIDE, WIDE.astype("Float64")], ids=["numpy", "nullable"])
def test_frames_keep_their_names(frame):
    matrix = as_score_matrix(frame)
    np.testing.assert_array_equal(matrix.scores, VALUES)
    assert matrix.topics == ("401", "402", "403")
    assert matrix.systems == ("bm25", "rm3")


def test_success_and_failure_are_scores():
    assert as_score_matrix(WIDE > 0.2).scores.tolist() == [[0, 1], [0, 1], [1, 1]]


def test_polars_frames():
    matrix = as_score_matrix(pl.DataFrame({"bm25": [0.1, None, 0.3], "rm3": [0, 1, 1]}))
    np.testing.assert_array_equal(matrix.scores, [[0.1, 0], [np.nan, 1], [0.3, 1]])
    assert matrix.systems == ("bm25", "rm3")


@pytest.mark.parametrize("name", ["topic", "Topics", "query", "qid"])
def test_a_column_may_name_topics(name):
    """Frames of polars have no index, and a file that was read has none yet."""
    wide = WIDE.rename_axis(name).reset_index()
    for table in (wide, pl.DataFrame(wide), wide.astype({name: int}), wide[["rm3", name, "bm25"]]):
        matrix = as_score_matrix(table)
        assert matrix.topics == ("401", "402", "403")
        assert sorted(matrix.systems) == ["bm25", "rm3"]
        np.testing.assert_array_equal(matrix.to_frame()[["bm25", "rm3"]], VALUES)
    assert list(wide.columns) == [name, "bm25", "rm3"]


def test_series_are_refused():
    with pytest.raises(DataError, match="topic × system table, not a Series"):
        as_score_matrix(pl.Series([0.1, 0.2]))


def test_arrow_tables():
    matrix = as_score_matrix(pa.table({"bm25": [0.1, None, 0.3], "rm3": [0.4, 0.5, 0.6]}))
    np.testing.assert_array_equal(matrix.scores, VALUES)


def test_a_matrix_is_one_already():
    matrix = as_score_matrix(WIDE)
    assert as_score_matrix(matrix) is matrix
    assert (matrix.n_topics, matrix.n_systems) == (3, 2)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (WIDE.assign(q=list("abc")), "column 'q' .* call it 'topic' if it names topics, or drop"),
        (WIDE.assign(topic=1, qid=2), "topics have one column, not 'topic', 'qid'; drop others"),
        (WIDE.assign(Topic=[402, 401, 401]), "several topics called '401'"),
        (WIDE.assign(topic=["1", None, "3"]), "the topic in row 1 has no name"),
        (WIDE.assign(when=pd.Timestamp("2003-01-01")), "column 'when'"),
        (WIDE.assign(c=1.0).set_axis(["b", "a", "a"], axis=1), "several systems called 'a'"),
        (WIDE[["rm3"]], r"two systems \(columns\); there are 3 × 1"),
        (WIDE[:1], r"two topics \(rows\).*; there are 1 × 2"),
        (WIDE.replace(0.5, -np.inf), "system 'rm3' on topic '402' is infinite"),
        (WIDE["rm3"], r"1 dimension|not a Series"),
        (np.zeros((2, 2, 2)), r"3 dimension\(s\)"),
        (0.5, r"0 dimension\(s\)"),
        (None, r"float|dimension"),
        ([[1, 2], [3]], "matrix of numbers"),
        ([["1", "2"], ["3", "4"]], "they are str"),
        (np.ones((2, 2)) * 1j, "they are complex"),
        ([[1, 2], [3, {}]], "matrix of numbers"),
        (WIDE.set_axis(["402", "401", "401"]), "several topics called '401'"),
        (WIDE.set_axis(["401", None, "402"]), "the topic in row 1 has no name"),
        (WIDE.set_axis(["bm25", np.nan], axis=1), "the system in column 1 has no name"),
        (WIDE.replace(0.5, 1e200), "system 'rm3' on topic '402' is too large to be squared"),
        (
            WIDE.astype(object).replace(0.5, "0.5"),
            "column 'rm3' does not hold numbers, the scores of one system",
        ),
        ("scores.csv", r"not a str\. Of a long table, .* system=\.\.\., topic="),
        (
            {"bm25": [0.1, 0.2], "rm3": [0.3, 0.4]},
            r"not a dict\. Of a long table, a row a score, name the columns",
        ),
        (pl.DataFrame({"bm25": [0.1], "rm3": [0.2]}).lazy(), "not a LazyFrame"),
        (ScoreMatrix(np.ones((3, 2)), ("1", "2"), ("a", "b")), "one column per system, 2 × 2 for"),
        (ScoreMatrix([[1.0, 2.0]] * 2, ("1", "2"), ("a", "b")), "are a float64 array"),
        (ScoreMatrix(np.ones((2, 2), "f4"), ("1", "2"), ("a", "b")), "are a float64 array"),
        (ScoreMatrix(np.ones((2, 1)), ("1", "2"), ("a",)), "there are 2 × 1"),
    ],
)
def test_other_things_are_refused(scores, message):
    with pytest.raises(DataError, match=message):
        as_score_matrix(scores)


def test_objects_that_are_numbers_are_read():
    """Transposing and pivoting leave columns of objects."""
    from decimal import Decimal

    mixed = WIDE.astype(object)
    mixed.iloc[0, 0] = Decimal("0.1")
    mixed["new"] = np.array([True, False, None], dtype=object)
    matrix = as_score_matrix(mixed)
    np.testing.assert_array_equal(matrix.scores[:, :2], VALUES)
    np.testing.assert_array_equal(matrix.scores[:, 2], [1.0, 0.0, np.nan])


class TestDropWorst:
    @pytest.mark.parametrize(
        ("fraction", "kept"),
        [(0.0, "abcde"), (0.1, "abcd"), (0.25, "abcd"), (0.26, "abc"), (0.75, "ab")],
    )
    def test_systems_at_the_type_7_quantile_stay(self, fraction, kept):
        means = np.array([0.5, 0.4, 0.3, 0.2, 0.1])
        matrix = ScoreMatrix(np.vstack([means - 0.1, means + 0.1]), ("1", "2"), tuple("abcde"))
        assert "".join(matrix.drop_worst(fraction).systems) == kept

    @pytest.mark.parametrize("level", [0.0, 0.3])
    def test_none_of_equal_systems_is_the_worst(self, level):
        assert as_score_matrix(np.full((4, 3), level)).drop_worst(0.5).n_systems == 3

    def test_missing_cells_do_not_count(self):
        scores = [[0.1, 0.3, 0.2], [0.5, np.nan, 0.2], [0.6, 0.2, np.nan]]
        assert as_score_matrix(scores).drop_worst(0.5).systems == ("0", "1")

    def test_two_systems_are_left(self):
        message = "drop_worst=0.99 leaves 'rm3' alone of 2 systems, and two are needed"
        with pytest.raises(DataError, match=message):
            as_score_matrix(WIDE).drop_worst(0.99)

    @pytest.mark.parametrize("fraction", [-0.1, 1, np.nan, 25, "0.25", None, [0.25], True])
    def test_the_share_is_below_one(self, fraction):
        with pytest.raises(DataError, match="at least 0 and less than 1, not"):
            as_score_matrix(WIDE).drop_worst(fraction)

    def test_a_system_without_scores_is_named(self):
        with pytest.raises(DataError, match="system 'bm25' has no score"):
            as_score_matrix(WIDE.assign(bm25=np.nan)).drop_worst(0.1)

    def test_none_is_left_out_by_default(self):
        matrix = as_score_matrix(WIDE.assign(bm25=np.nan))
        assert matrix.drop_worst(0.0) is matrix


LONG = pd.DataFrame(
    {
        "run": ["rm3", "rm3", "bm25", "bm25", "rm3"],
        "qid": [402, 401, 401, 403, 403],
        "map": [0.5, 0.4, 0.1, 0.3, np.nan],
    }
)
COLUMNS = {"system": "run", "topic": "qid", "score": "map"}
FROM_LONG = np.array([[0.5, np.nan], [0.4, 0.1], [np.nan, 0.3]])


def test_long_tables(tmp_path):
    LONG.to_csv(tmp_path / "long.csv", index=False)
    LONG.to_parquet(tmp_path / "long.parquet")
    for data in (
        LONG,
        LONG.astype({"run": "category", "qid": "string"}),
        LONG.set_index(np.arange(5) * 7),
        {name: LONG[name].to_numpy() for name in LONG},
        pl.DataFrame(LONG),
        str(tmp_path / "long.csv"),
        tmp_path / "long.parquet",
    ):
        matrix = ScoreMatrix.from_long(data, **COLUMNS)
        assert matrix.topics == ("402", "401", "403")
        assert matrix.systems == ("rm3", "bm25")
        np.testing.assert_array_equal(matrix.scores, FROM_LONG)


def test_long_and_wide_and_back():
    matrix = ScoreMatrix.from_long(LONG, **COLUMNS)
    again = ScoreMatrix.from_long(matrix.to_long())
    assert again.to_frame().equals(matrix.to_frame().loc[["402", "401", "403"]])
    assert as_score_matrix(matrix.to_frame()).to_frame().equals(matrix.to_frame())
    assert matrix.to_long()["score"].tolist() == [0.5, 0.4, 0.1, 0.3]
    frame = matrix.to_frame()
    frame.iloc[0, 0] = 9.0
    assert matrix.scores[0, 0] == 0.5


@pytest.mark.parametrize(
    ("data", "columns", "message"),
    [
        (LONG, {}, r"there is no column 'system' in the data.*the columns are 'run', 'qid'"),
        (LONG, {**COLUMNS, "score": "mapp"}, r"no column 'mapp' in the data \(did you mean 'map'"),
        (LONG, {**COLUMNS, "score": "run"}, "are three different columns, not"),
        (LONG.assign(map=list("abcde")), COLUMNS, "column 'map' does not hold numbers; it is"),
        (LONG.assign(map=1j), COLUMNS, "column 'map' does not hold numbers; it is complex"),
        (
            LONG.assign(run=["a", None, "a", "b", "c"]),
            COLUMNS,
            "'run' is missing in 1 of 5 rows, first in row 1",
        ),
        (
            LONG.assign(qid=[1, 2, np.nan, 4, 5]),
            COLUMNS,
            "'qid' is missing in 1 of 5 rows, first in row 2",
        ),
        (
            LONG.assign(qid=1),
            COLUMNS,
            "there are 3 scores of run 'rm3' on qid '1'; run and qid need two levels",
        ),
        (LONG.assign(map=np.inf), COLUMNS, "score of system 'rm3' on topic '402' is infinite"),
        (LONG[:2], COLUMNS, r"two systems \(columns\); there are 2 × 1"),
        (LONG[:0], COLUMNS, "there are 0 × 0"),
        (LONG, {**COLUMNS, "system": ["run"]}, "are three different columns, not"),
    ],
)
def test_long_tables_are_checked(data, columns, message):
    with pytest.raises(DataError, match=message):
        ScoreMatrix.from_long(data, **columns)


def test_selecting_and_common_topics():
    matrix = as_score_matrix(WIDE)
    some = matrix.select(systems=["rm3", "bm25"], topics=[403, "401"])
    np.testing.assert_array_equal(some.scores, VALUES[[2, 0]][:, [1, 0]])
    assert (some.topics, some.systems) == (("403", "401"), ("rm3", "bm25"))
    common = matrix.common_topics()
    np.testing.assert_array_equal(common.scores, VALUES[[0, 2]])
    assert common.topics == ("401", "403")
    assert repr(matrix) == "ScoreMatrix(3 topics × 2 systems, 1 missing)"
    assert repr(common) == "ScoreMatrix(2 topics × 2 systems)"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"systems": ["bm25", "rm"]}, r"there is no system 'rm' \(did you mean 'rm3'\?\)"),
        ({"topics": [401, 404]}, "there is no topic '404'"),
        ({"systems": "bm25"}, "systems are given as a list of names, not 'bm25'"),
        ({"systems": ["bm25", "rm3", "rm3"]}, "system 'rm3' is given twice"),
        ({"systems": 3}, "systems are given as a list of names, not 3"),
        ({"topics": [401]}, r"at least two topics .* there are 1 × 2"),
    ],
)
def test_names_to_select_are_checked(names, message):
    with pytest.raises(DataError, match=message):
        as_score_matrix(WIDE).select(**names)


def test_no_topics_in_common():
    scores = [[1, np.nan], [2, np.nan], [3, 4], [np.nan, 5]]
    with pytest.raises(DataError, match=r"1 topics in common, .*; system '1' lacks most, 2 of 4"):
        as_score_matrix(scores).common_topics()


@pytest.mark.parametrize("others", [0, 1])
def test_an_array_that_looks_like_a_long_table_is_refused(others):
    rows = [[t, s, *[1.0] * others, 0.1 * t + 0.03 * s] for t in range(4) for s in range(5)]
    with pytest.raises(DataError, match="look like a long table"):
        as_score_matrix(np.array(rows))

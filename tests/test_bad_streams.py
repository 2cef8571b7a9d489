"""What may be wrong with data that come in parts; nothing is left half-written."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vcomp
from tests.helpers.readings import accumulated, model_of
from vcomp.data import source
from vcomp.data.reading import Reading
from vcomp.io import spool
from vcomp.statistics.batches import passes as gather

FORMULA = "score ~ (1|sys) + (1|topic)"


def in_memory(formula, data, **options):
    return vcomp.fit(formula, data, stream=False, **options)


def streamed(formula, data, **options):
    return vcomp.fit(formula, data, stream=True, **options)


WAYS = {"stream": streamed, "accumulate": vcomp.accumulate}
EVERY_WAY = {**WAYS, "memory": in_memory}


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


@pytest.fixture(params=EVERY_WAY)
def every_way(request):
    return EVERY_WAY[request.param]


def scores():
    return vcomp.datasets.load("docsearch").head(600)


@pytest.fixture
def folder(tmp_path):
    """Return a folder with three files of scores."""
    data = scores()
    for k in range(3):
        data.iloc[200 * k : 200 * k + 200].to_parquet(tmp_path / f"part{k}.parquet", index=False)
    return tmp_path


def streamed_again(formula, data):
    return model_of(formula, data, stream=True, kept_bytes=0.0).fit()


def accumulated_again(formula, data):
    return accumulated(formula, data, kept_bytes=0.0)


@pytest.fixture(params=WAYS)
def again(request):
    """Return a way that reads the rows in every pass, as many rows are."""
    return {"stream": streamed_again, "accumulate": accumulated_again}[request.param]


def replace(folder, change):
    """Write the second file anew, changed."""
    path = folder / "part1.parquet"
    change(pd.read_parquet(path)).to_parquet(path, index=False)


def message(way, data, **options):
    """Return the message of the error, in which nothing is left of the libraries below."""
    with pytest.raises(vcomp.VcompError) as caught:
        way(FORMULA, data, **options)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


# Files -------------------------------------------------------------------------------------------


def test_a_file_without_a_column(folder, every_way):
    replace(folder, lambda part: part.rename(columns={"topic": "request"}))
    said = message(every_way, folder)
    assert "'part1.parquet' has no column 'topic', which 'part0.parquet' has" in said


def test_a_file_that_is_cut_off(folder, every_way):
    path = folder / "part1.parquet"
    path.write_bytes(path.read_bytes()[:-500])
    assert "part1.parquet" in message(every_way, folder)


def test_a_file_whose_rows_are_damaged(folder, every_way):
    """The footer is whole: what is wrong shows when the rows are read."""
    path = folder / "part1.parquet"
    data = bytearray(path.read_bytes())
    data[4:1500] = bytes(1496)
    path.write_bytes(data)
    assert "part1.parquet" in message(every_way, folder)


def test_a_file_that_is_none(folder, every_way):
    (folder / "part1.parquet").write_text("sys,topic,score\na,b,1\n")
    assert "part1.parquet" in message(every_way, folder)


def test_text_in_one_file_and_numbers_in_another(folder, every_way):
    replace(folder, lambda part: part.assign(topic=range(len(part))))
    said = message(every_way, folder)
    assert "'topic' holds numbers in 'part1.parquet' and text in 'part0.parquet'" in said
    replace(folder, lambda part: part.assign(topic="a", score="0.5"))
    said = message(every_way, folder)
    assert "'score' holds text in 'part1.parquet' and numbers in 'part0.parquet'" in said


def test_text_in_a_csv_file_after_many_numbers(tmp_path, every_way):
    rows = [f"{k % 7},{k // 7},{k * 0.37 % 1}" for k in range(70)]
    (tmp_path / "a.csv").write_text("sys,topic,score\n" + "\n".join(rows) + "\n")
    rows[-1] = "6,9,none at all"
    (tmp_path / "b.csv").write_text("sys,topic,score\n" + "\n".join(rows) + "\n")
    said = message(every_way, tmp_path)
    assert "score" in said
    assert "b.csv" in said or "none at all" in said


def test_missing_scores_are_counted_by_file(folder, way):
    replace(folder, lambda part: part.assign(score=part["score"].mask(part.index < 3)))
    words = r"3 of 600 rows \(3 in 'part1\.parquet'\) have a missing value"
    with pytest.warns(vcomp.VcompWarning, match=words):
        way(FORMULA, folder)
    assert "missing='drop' leaves them out" in message(way, folder, missing="raise")


def test_infinite_scores_are_counted_by_file(folder, way):
    replace(folder, lambda part: part.assign(score=part["score"].mask(part.index < 2, np.inf)))
    assert "infinite in 2 of 600 rows (2 in 'part1.parquet')" in message(way, folder)


def test_an_empty_file_among_others(folder, every_way):
    replace(folder, lambda part: part.iloc[:0])
    made = every_way(FORMULA, folder)
    assert made.nobs == 400


def test_a_file_that_goes_away_between_the_passes(folder, again, monkeypatch):
    learn = gather.learn_in_passes

    def learn_and_remove(*arguments, **options):
        made = learn(*arguments, **options)
        (folder / "part2.parquet").unlink()
        return made

    monkeypatch.setattr(gather, "learn_in_passes", learn_and_remove)
    assert "part2.parquet" in message(again, folder)


# Levels ------------------------------------------------------------------------------------------


def levels_of(way, data):
    """Return the warnings of a way that ends with a fit."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        made = way(FORMULA, data)
        if way is vcomp.accumulate:
            made.fit()
    return [str(warning.message) for warning in seen]


@pytest.mark.parametrize("other", ["SYS01", " sys01"], ids=["case", "blank"])
def test_levels_that_differ_in_case_or_blanks(folder, every_way, other):
    def write(part, name):
        return part.assign(sys=["sys01" if k % 44 == 0 else f"s{k % 44}" for k in range(200)])

    for k in range(3):
        path = folder / f"part{k}.parquet"
        part = write(pd.read_parquet(path), k)
        if k == 1:
            part["sys"] = part["sys"].replace("sys01", other)
        part.to_parquet(path, index=False)
    said = levels_of(every_way, folder)
    assert len(said) == 1
    assert "facet 'sys' has levels that look alike" in said[0]
    assert repr(other) in said[0]
    assert "differ only in case, blanks or type" in said[0]


def test_levels_that_differ_in_type(every_way):
    """In one table, where a column may hold both."""
    data = scores().astype({"sys": object})
    first = data["sys"].unique()[:2]
    data["sys"] = data["sys"].replace({first[0]: "1", first[1]: 1})
    (said,) = levels_of(every_way, data)
    assert "1 and '1'" in said or "'1' and 1" in said


def test_levels_of_other_types_are_not_merged():
    data = scores()
    numbers = data.assign(topic=data["topic"].astype("category").cat.codes)
    one, other = vcomp.accumulate(FORMULA, data), vcomp.accumulate(FORMULA, numbers)
    words = r"levels of facet 'topic' are text in one of the two and numbers in the other \('.*' "
    with pytest.raises(vcomp.DataError, match=words):
        one + other


# Iterables and progress --------------------------------------------------------------------------


def parts():
    data = scores()
    return (data.iloc[first : first + 200] for first in (0, 200, 400))


def test_what_can_be_read_only_once(way):
    said = message(way, parts())
    assert "can be read only once, and two passes are needed" in said
    assert "vcomp.io.spool(data)" in said
    made = way(FORMULA, spool(parts()))
    assert made.nobs == 600


@pytest.mark.parametrize("wrong", ["yes", 1, 0.5])
def test_progress_that_is_no_answer(every_way, wrong):
    assert f"progress={wrong!r} is not known; it is True, False or None" in message(
        every_way, scores(), progress=wrong
    )


def test_a_bar_counts_the_rows_of_every_pass(way, folder, capsys):
    way(FORMULA, folder, progress=True)
    said = capsys.readouterr().err
    for words in ("pass 1: 100%", "pass 2: 100%", "600/600", "rows/s"):
        assert words in said
    way(FORMULA, folder)
    assert capsys.readouterr().err == ""


def test_batches_are_smaller_where_memory_is_short():
    plenty = Reading(free_bytes=lambda: 64 * 2.0**30)
    assert plenty.rows_of_batch(5) == plenty.batch_rows
    short = Reading(free_bytes=lambda: 0.5 * 2**30)
    few, many = short.rows_of_batch(8), short.rows_of_batch(4)
    assert 2 * few == pytest.approx(many, rel=1e-3)
    assert many < short.batch_rows
    assert Reading(free_bytes=lambda: 0.0).rows_of_batch(5) == 2**14


# Interruptions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [1, 2])
def test_an_interruption_in_the_middle_of_a_pass(folder, again, second, monkeypatch):
    """It ends the work, in whatever pass, and the same call can be made again."""
    native, seen = source.native, []

    def interrupted(frame):
        seen.append(None)
        if len(seen) == 3 * second - 1:
            raise KeyboardInterrupt
        return native(frame)

    monkeypatch.setattr(source, "native", interrupted)
    before = sorted(os.listdir(folder))
    with pytest.raises(KeyboardInterrupt):
        again(FORMULA, folder)
    assert len(seen) == 3 * second - 1
    assert sorted(os.listdir(folder)) == before
    monkeypatch.undo()
    assert again(FORMULA, folder).nobs == 600


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_statistics_that_are_not_written_to_the_end(folder, error, monkeypatch):
    made, target = vcomp.accumulate(FORMULA, folder), folder / "a.vcomp"
    made.save(target)
    before, names = target.read_bytes(), sorted(os.listdir(folder))
    write, seen = np.lib.format.write_array, []

    def failing(*arguments, **options):
        seen.append(None)
        if len(seen) == 3:
            raise error
        return write(*arguments, **options)

    monkeypatch.setattr(np.lib.format, "write_array", failing)
    kind = KeyboardInterrupt if error is KeyboardInterrupt else vcomp.DataError
    with pytest.raises(kind):
        made.save(target)
    assert len(seen) == 3
    assert target.read_bytes() == before
    assert sorted(os.listdir(folder)) == names


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "Error writing bytes to file")])
@pytest.mark.parametrize("exists", [True, False])
def test_residuals_that_are_not_written_to_the_end(folder, error, exists, tmp_path, monkeypatch):
    res, target = vcomp.fit(FORMULA, folder, stream=True), tmp_path / "residuals.parquet"
    if exists:
        target.write_bytes(b"what was there before")
    names, written = sorted(os.listdir(folder)), []

    class Failing(pq.ParquetWriter):
        def write_table(self, table, *arguments):
            written.append(table)
            if len(written) == 2:
                raise error
            super().write_table(table, *arguments)

    monkeypatch.setattr(pq, "ParquetWriter", Failing)
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            res.augment(path=target)
    else:
        words = "No space left on device.*give a path on a disk with more room"
        with pytest.raises(vcomp.DataError, match=words):
            res.augment(path=target)
    assert len(written) == 2
    assert sorted(os.listdir(folder)) == names
    assert not exists or target.read_bytes() == b"what was there before"


def test_a_schema_with_another_type_of_text_is_the_same(folder, way):
    """Dictionaries, large and small strings are all text."""
    path = folder / "part1.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index("topic")
    column = pa.chunked_array([table["topic"].cast(pa.large_string()).combine_chunks()])
    pq.write_table(table.set_column(at, "topic", column.dictionary_encode()), path)
    assert way(FORMULA, folder).nobs == 600

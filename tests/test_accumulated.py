"""Statistics without rows: stored, loaded, added whatever their levels, fitted later."""

import datetime
import decimal
import itertools
import json
import os
import pickle
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from designs import DESIGNS, GRIDS, gridded, unbalanced

import vcomp
from vcomp import AccumulatedStatistics, accumulate

FORMULA = "score ~ (1|sys) + (1|topic)"


def data():
    return vcomp.datasets.load("bodoff2007_alpha")


def halves(frame, seed=0):
    """Return the rows in two parts, which have some levels in common."""
    first = np.random.default_rng(seed).random(len(frame)) < 0.5
    return frame[first], frame[~first]


def same(statistics, formula, frame, tolerance=1e-11):
    kept, found = vcomp.fit(formula, frame), statistics.fit()
    scale = kept.vcomp.abs().max()
    np.testing.assert_allclose(found.vcomp, kept.vcomp, rtol=tolerance, atol=tolerance * scale)
    np.testing.assert_allclose(found.llf, kept.llf, rtol=tolerance, atol=1e-11)
    np.testing.assert_allclose(found.fe_params, kept.fe_params, rtol=1e2 * tolerance)
    assert str(statistics.design) == str(kept.design)


@pytest.mark.parametrize("name", [*GRIDS, *(f"unbalanced {name}" for name in DESIGNS)])
def test_parts_add_up_in_either_order(name):
    made = gridded(name, seed=4) if name in GRIDS else unbalanced(name.partition(" ")[2])
    formula, frame = made
    one, other = (accumulate(formula, part) for part in halves(frame))
    same(one + other, formula, frame, 1e-10)
    same(other + one, formula, frame, 1e-10)


def test_levels_that_only_one_part_has():
    frame = data()
    topics = frame["topic"].unique()
    parts = [accumulate(FORMULA, frame[frame["topic"] == topic]) for topic in topics]
    same(sum(parts), FORMULA, frame)
    assert sum(parts).n_levels == {"sys": 5, "topic": len(topics)}
    with pytest.raises(vcomp.DesignError, match="'topic' has one level only"):
        parts[0].fit()


def test_origins_far_apart():
    """Each part is centred at its own mean; together they are centred anew."""
    frame = data().assign(score=lambda d: d["score"] + 1e6 * (d["topic"] == "query 1"))
    one, other = frame[frame["topic"] == "query 1"], frame[frame["topic"] != "query 1"]
    same(accumulate(FORMULA, one) + accumulate(FORMULA, other), FORMULA, frame, 1e-8)


def test_covariates_and_factors():
    frame = data()
    frame = frame.assign(x=np.arange(len(frame)) ** 0.5 + 10, g=["u", "v", "w", "v", "u"] * 3)
    formula = "score ~ x + C(g, Sum) + (1|sys) + (1|topic)"
    one, other = (accumulate(formula, part) for part in (frame[:8], frame[8:]))
    same(one + other, formula, frame, 1e-9)


def test_a_covariate_that_is_constant_in_a_part():
    frame = data()
    frame = frame.assign(x=[1.0] * 8 + [2.0] * 7)
    formula = "score ~ x + (1|sys) + (1|topic)"
    same(accumulate(formula, frame[:8]) + accumulate(formula, frame[8:]), formula, frame, 1e-9)


@pytest.mark.parametrize(
    "levels",
    [
        ["a", "b", "ä ö", "", "d"], [1, 5, 3, -7, 2**40], [0.5, 1.5, np.pi, 2.0, 3.0],
        pd.to_datetime(["2026-01-01", "2026-01-02", "2026-02-01", "2026-02-02", "2026-03-01"]),
        [True, False, True, False, True],
    ],
    ids=["text", "integers", "floats", "dates", "booleans"],
)  # fmt: skip
def test_stored_statistics_come_back(tmp_path, levels):
    frame = data()
    frame["sys"] = pd.Series(levels).repeat(3).to_numpy()
    made = accumulate(FORMULA, frame)
    made.save(tmp_path / "a.vcomp")
    loaded = AccumulatedStatistics.load(tmp_path / "a.vcomp")
    assert repr(loaded) == repr(made)
    assert loaded.formula == made.formula
    pd.testing.assert_series_equal(loaded.fit().vcomp, made.fit().vcomp, check_exact=True)
    np.testing.assert_array_equal(
        loaded.fit().random_effects["sys"].index, made.fit().random_effects["sys"].index
    )
    assert str(loaded.fit().summary()) == str(made.fit().summary())
    assert os.listdir(tmp_path) == ["a.vcomp"]


def test_stored_statistics_are_added(tmp_path):
    frame = data().assign(x=np.arange(15.0) ** 0.5, g=["u", "v", "w", "v", "u"] * 3)
    formula = "score ~ g + x + (1|sys) + (1|topic)"
    accumulate(formula, frame[:7]).save(tmp_path / "a.vcomp")
    accumulate(formula, frame[7:]).save(tmp_path / "b.vcomp")
    one, other = (AccumulatedStatistics.load(tmp_path / f"{k}.vcomp") for k in "ab")
    same(one + other, formula, frame, 1e-9)
    same(one + accumulate(formula, frame[7:]), formula, frame, 1e-9)
    with pytest.raises(vcomp.DataError, match="coding of the fixed part is not stored"):
        (one + other).fit().predict(frame)


def test_predictions_of_new_rows_need_no_old_ones():
    frame = data().assign(g=["u", "v", "w", "v", "u"] * 3)
    formula = "score ~ g + (1|sys) + (1|topic)"
    kept, found = vcomp.fit(formula, frame), accumulate(formula, frame).fit()
    np.testing.assert_allclose(found.predict(frame[:4]), kept.predict(frame[:4]), rtol=1e-10)


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (FORMULA, "score ~ (1|sys)", "the random terms must be the same"),
        (FORMULA, "np.log(score) ~ (1|sys) + (1|topic)", "formulas must be the same"),
        (FORMULA, "score ~ x + (1|sys) + (1|topic)", "formulas must be the same"),
    ],
)
def test_what_does_not_belong_together(one, other, message):
    frame = data().assign(x=np.arange(15.0))
    with pytest.raises(vcomp.DataError, match=message):
        accumulate(one, frame) + accumulate(other, frame)


def numbered(frame):
    return frame.assign(topic=frame["topic"].astype("category").cat.codes.astype(np.int64))


def shifted(frame, by, kind):
    return frame.assign(topic=frame["topic"].to_numpy().astype(kind) + kind(by))


KINDS = {
    "text": lambda frame: frame.assign(topic="t" + frame["topic"].astype(str)),
    "numbers": lambda frame: frame,
    "truth values": lambda frame: frame.assign(topic=frame["topic"] > 0),
    "dates": lambda frame: frame.assign(topic=np.array(days(), object)[frame["topic"]]),
    "times without a zone": lambda frame: frame.assign(
        topic=pd.to_datetime(days())[frame["topic"]]
    ),
    "times with a zone": lambda frame: frame.assign(
        topic=pd.to_datetime(days()).tz_localize("UTC")[frame["topic"]]
    ),
}


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(("one", "other"), [*itertools.permutations(KINDS, 2)])
def test_levels_of_which_none_can_be_the_same(one, other, stored, tmp_path):
    made = [accumulate(FORMULA, KINDS[kind](numbered(data()))) for kind in (one, other)]
    if stored:
        made[0].save(tmp_path / "a")
        made[0] = AccumulatedStatistics.load(tmp_path / "a")
    words = f"levels of facet 'topic' are {one} in one of the two and {other} in the other"
    with pytest.raises(vcomp.DataError, match=words):
        made[0] + made[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (shifted(numbered(data()), 2**53, np.int64), shifted(numbered(data()), 0.5, np.float64)),
        (numbered(data()), shifted(numbered(data()), 2**63, np.uint64)),
    ],
    ids=["fractions", "beyond 2**63"],
)
def test_long_whole_numbers_are_not_rounded(one, other):
    words = r"facet 'topic' has whole numbers beyond 2\*\*53 .* read both as text"
    for pair in ((one, other), (other, one)):
        with pytest.raises(vcomp.DataError, match=words):
            accumulate(FORMULA, pair[0]) + accumulate(FORMULA, pair[1])
        same(accumulate(FORMULA, pair[0]) + accumulate(FORMULA, pair[0]), FORMULA, pd.concat(
            [pair[0], pair[0]]))  # fmt: skip


@pytest.mark.parametrize(
    ("formula", "other"),
    [
        ("score ~ (1|sys) + (1|topic)", "score ~ (1|topic) + (1|sys)"),
        ("score ~ (1|sys*topic)", "score~1+(1|topic)+(1|topic:sys)+(1|sys)"),
        ("score ~ x + (1|topic/doc) + (1|sys)", "score ~ x + (1|sys) + (1|doc:topic) + (1|topic)"),
    ],
)
def test_the_order_of_terms_is_no_difference(formula, other):
    rng = np.random.default_rng(1)
    frame = vcomp.datasets.load("docsearch").head(600)
    frame["doc"] = frame["topic"] + rng.choice([" a", " b"], 600)
    frame["x"] = rng.normal(size=600)
    one, rest = halves(frame)
    made = accumulate(formula, one) + accumulate(other, rest)
    assert made.formula == formula
    same(made, formula, frame, 1e-10)
    same(accumulate(other, one) + made, other, pd.concat([one, frame]), 1e-10)


def test_factors_in_another_order():
    """The first level is the one that others are compared with."""
    g = ["u", "v", "w", "v", "u"] * 3
    one = data().assign(g=pd.Categorical(g, ["u", "v", "w"]))
    other = data().assign(g=pd.Categorical(g, ["w", "v", "u"]))
    formula = "score ~ g + (1|sys) + (1|topic)"
    words = r"'g' .* its levels in another order .* \('u' < 'v' < 'w' and 'w' < 'v' < 'u'\)"
    with pytest.raises(vcomp.DataError, match=words):
        accumulate(formula, one) + accumulate(formula, other)
    formula = "score ~ C(k) + (1|sys) + (1|topic)"
    three, four = (data().assign(k=np.arange(15) % k) for k in (3, 4))
    with pytest.raises(vcomp.DataError, match=r"other columns \(C\(k\)\[T.3\] in one of the two"):
        accumulate(formula, three) + accumulate(formula, four)


def test_factors_with_other_levels_and_transforms_of_all_rows():
    frame = data().assign(x=np.arange(15.0), g=["u", "v", "w", "v", "u"] * 3)
    formula = "score ~ g + (1|sys) + (1|topic)"
    with pytest.raises(vcomp.DataError, match=r"factor 'g' .* other levels .*'w'"):
        accumulate(formula, frame) + accumulate(formula, frame[frame["g"] != "w"])
    formula = "score ~ center(x) + (1|sys) + (1|topic)"
    with pytest.raises(vcomp.DataError, match="depends on all rows"):
        accumulate(formula, frame) + accumulate(formula, frame)
    with pytest.raises(TypeError):
        accumulate(formula, frame) + 1


def test_files_that_hold_no_statistics(tmp_path):
    with pytest.raises(vcomp.DataError, match="there is no file"):
        AccumulatedStatistics.load(tmp_path / "none")
    (tmp_path / "text").write_text("score\n1\n")
    with pytest.raises(vcomp.DataError, match="does not hold statistics"):
        AccumulatedStatistics.load(tmp_path / "text")
    accumulate(FORMULA, data()).save(tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(vcomp.DataError, match="or is cut off"):
        AccumulatedStatistics.load(tmp_path / "cut")
    with zipfile.ZipFile(tmp_path / "later", "w") as archive:
        archive.writestr("vcomp.json", json.dumps({"version": 99}))
    with pytest.raises(vcomp.DataError, match=r"version 99 .* update vcomp"):
        AccumulatedStatistics.load(tmp_path / "later")
    with zipfile.ZipFile(tmp_path / "other", "w") as archive:
        archive.writestr("a.txt", "")
    with pytest.raises(vcomp.DataError, match="does not hold statistics"):
        AccumulatedStatistics.load(tmp_path / "other")


def test_where_nothing_can_be_written(tmp_path):
    with pytest.raises(vcomp.DataError, match="cannot write"):
        accumulate(FORMULA, data()).save(tmp_path / "no folder" / "a")


def test_a_file_is_replaced_only_by_a_whole_one(tmp_path, monkeypatch):
    path = tmp_path / "a.vcomp"
    made = accumulate(FORMULA, data())
    made.save(path)
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(vcomp.DataError, match="No space left on device"):
        made.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.vcomp"]


def test_levels_of_several_types_are_not_stored(tmp_path):
    frame = data().astype({"sys": object})
    frame.loc[:2, "sys"] = 7
    made = accumulate(FORMULA, frame)
    with pytest.raises(vcomp.DataError, match="'sys' has levels that cannot be stored, such as 7"):
        made.save(tmp_path / "a")


def test_data_that_can_be_read_once():
    frame = data()
    with pytest.raises(vcomp.DataError, match=r"two passes are needed.*vcomp\.io\.spool"):
        accumulate(FORMULA, (part for part in (frame[:8], frame[8:])))
    spooled = vcomp.io.spool(part for part in (frame[:8], frame[8:]))
    same(accumulate(FORMULA, spooled), FORMULA, frame)


def test_results_without_rows_travel():
    found = accumulate(FORMULA, data()).fit()
    assert pickle.loads(pickle.dumps(found)).vcomp.equals(found.vcomp)


# Damaged files, and levels of all kinds ---------------------------------------------------------


def days():
    return [datetime.date(2026, 1, day) for day in range(1, 6)]


@pytest.mark.parametrize(
    "levels",
    [
        days(),
        pd.to_datetime(days()).tz_localize("Europe/Amsterdam"),
        pd.to_timedelta(range(5), unit="h"),
        [datetime.time(hour) for hour in range(5)],
        [decimal.Decimal(quarter) / 4 for quarter in range(5)],
        [b"a", b"b", b"\x00", b"d", b""],
        pd.array(days(), dtype=pd.ArrowDtype(pa.date32())),
    ],
    ids=["dates", "zones", "durations", "times", "decimals", "bytes", "dates of Arrow"],
)  # fmt: skip
def test_stored_levels_of_arrow_s_types(tmp_path, levels):
    frame = data().assign(sys=pd.Series(levels).repeat(3).reset_index(drop=True))
    made = accumulate(FORMULA, frame)
    made.save(tmp_path / "a.vcomp")
    loaded = AccumulatedStatistics.load(tmp_path / "a.vcomp")
    assert str(loaded.fit().summary()) == str(made.fit().summary())
    index = loaded.fit().random_effects["sys"].index
    assert index.tolist() == made.fit().random_effects["sys"].index.tolist()
    assert (loaded + made).n_levels == made.n_levels


def test_dates_of_csv_files_are_stored(tmp_path):
    frame = data()
    frame["topic"] = pd.Series(days()[:3]).sample(15, replace=True, random_state=1).to_numpy()
    frame.to_csv(tmp_path / "a.csv", index=False)
    accumulate(FORMULA, tmp_path / "a.csv").save(tmp_path / "a.vcomp")
    same(AccumulatedStatistics.load(tmp_path / "a.vcomp"), FORMULA, tmp_path / "a.csv")


def damaged(path, whole):
    """Yield the bytes of the file, some of them lost or changed."""
    rng = np.random.default_rng(1)
    directory = whole.index(b"PK\x01\x02")
    # All of the directory, in which names and sizes stand, and some of what they are of.
    places = [*range(directory, len(whole)), *range(0, directory, 41)]
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= rng.choice([0xFF, 1 << rng.integers(8)])
        yield bytes(changed)
    for end in range(0, len(whole), 131):
        yield whole[:end]


def test_a_damaged_file_is_refused_or_read_as_it_was(tmp_path):
    """Not every byte of an archive matters; none changes a number."""
    path = tmp_path / "a.vcomp"
    made = accumulate(FORMULA, data())
    made.save(path)
    expected, said = made.fit().vcomp, []
    for changed in damaged(path, path.read_bytes()):
        path.write_bytes(changed)
        try:
            loaded = AccumulatedStatistics.load(path)
        except vcomp.DataError as error:
            said.append(str(error))
        else:
            pd.testing.assert_series_equal(loaded.fit().vcomp, expected, check_exact=True)
    words = f"{str(path)!r} does not hold statistics that vcomp stored, or is cut off: "
    assert [error for error in said if not error.startswith(words)] == []
    assert len(said) > 500


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.pop("version"),
        lambda header: header.pop("formula"),
        lambda header: header.update(formula="score ~ (1|"),
        lambda header: header.update(n=16),
        lambda header: header.update(columns=7),
        lambda header: header["levels"].pop("facet0"),
    ],
)
def test_a_header_that_contradicts_the_numbers(tmp_path, change):
    path = tmp_path / "a.vcomp"
    accumulate(FORMULA, data()).save(path)
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(entries["vcomp.json"])
    change(header)
    entries["vcomp.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, entry in entries.items():
            archive.writestr(name, entry)
    with pytest.raises(vcomp.DataError, match="does not hold statistics that vcomp stored"):
        AccumulatedStatistics.load(path)


def test_a_header_that_is_no_table(tmp_path):
    with zipfile.ZipFile(tmp_path / "a", "w") as archive:
        archive.writestr("vcomp.json", "[1]")
    with pytest.raises(vcomp.DataError, match="does not hold statistics"):
        AccumulatedStatistics.load(tmp_path / "a")


def test_paths_at_home_and_paths_that_are_none(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    made = accumulate(FORMULA, data())
    made.save("~/a.vcomp")
    assert repr(AccumulatedStatistics.load("~/a.vcomp")) == repr(made)
    for wrong in (made.save, AccumulatedStatistics.load):
        with pytest.raises(vcomp.DataError, match="7 is not the path of a file"):
            wrong(7)
        with pytest.raises(vcomp.DataError, match=r"is a folder|irectory|denied"):
            wrong(tmp_path)
    for wrong in ("x" * 250, "a.vcomp/b", "."):
        with pytest.raises(vcomp.DataError, match="cannot write "):
            made.save(tmp_path / wrong)
    assert os.listdir(tmp_path) == ["a.vcomp"]


def test_threads_may_write_the_same_file(tmp_path):
    """The last of them wins, and the file is whole."""
    made = accumulate(FORMULA, data())
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: made.save(tmp_path / "a.vcomp"), range(40)))
    assert repr(AccumulatedStatistics.load(tmp_path / "a.vcomp")) == repr(made)
    assert os.listdir(tmp_path) == ["a.vcomp"]

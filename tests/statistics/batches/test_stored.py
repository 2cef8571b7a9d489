"""Statistics in files: levels of every kind, files that are damaged, paths that are none."""

import datetime
import decimal
import io
import json
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import vcomp
from vcomp import AccumulatedStatistics, accumulate
from vcomp.statistics.batches.cell_table import CellTable
from vcomp.statistics.batches.stored import _check_table, _checked

FORMULA = "score ~ (1|sys) + (1|topic)"


def data():
    return vcomp.datasets.load("bodoff2007_alpha")


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


def test_the_total_keeps_its_extended_precision(tmp_path):
    parts = [accumulate(FORMULA, data().assign(score=score)) for score in (1e16, 0.1)]
    made = parts[0] + parts[1]
    total = made._sums.coding.survey.total
    assert total == np.longdouble(15e16) + np.longdouble(np.full(15, 0.1).sum())
    made.save(tmp_path / "a.vcomp")
    loaded = AccumulatedStatistics.load(tmp_path / "a.vcomp")
    assert loaded._sums.coding.survey.total == total


def test_levels_of_a_factor_that_do_not_occur_are_stored(tmp_path):
    g = pd.Categorical(np.resize(["u", "w"], 15), categories=["u", "v", "w"])
    made = accumulate("score ~ g + (1|sys) + (1|topic)", data().assign(g=g))
    assert made._sums.coding.kinds.levels["g"].counts.tolist() == [8, 0, 7]
    made.save(tmp_path / "a.vcomp")
    loaded = AccumulatedStatistics.load(tmp_path / "a.vcomp")
    assert loaded.fit().llf == made.fit().llf


@pytest.mark.parametrize("score", [0.0, 0.7, -0.7])
@pytest.mark.parametrize("times", [1, 2])
def test_scores_that_are_all_the_same_are_stored(tmp_path, times, score):
    """Their means, sums of squares and powers are at the ends of what they may be."""
    made = accumulate(FORMULA, pd.concat([data().assign(score=score)] * times))
    made.save(tmp_path / "a.vcomp")
    assert repr(AccumulatedStatistics.load(tmp_path / "a.vcomp")) == repr(made)


def test_a_single_row_is_stored(tmp_path):
    made = accumulate(FORMULA, data()[:1])
    made.save(tmp_path / "a.vcomp")
    found = AccumulatedStatistics.load(tmp_path / "a.vcomp") + accumulate(FORMULA, data()[1:])
    assert repr(found) == repr(made + accumulate(FORMULA, data()[1:]))


def test_a_fixed_part_of_truth_values_alone_is_stored(tmp_path):
    formula = "score ~ f + (1|sys) + (1|topic)"
    made = accumulate(formula, data().assign(f=np.arange(15) % 2 == 0))
    made.save(tmp_path / "a.vcomp")
    found = AccumulatedStatistics.load(tmp_path / "a.vcomp").fit()
    pd.testing.assert_series_equal(found.fe_params, made.fit().fe_params, check_exact=True)


def test_members_may_be_larger_than_2_gib(tmp_path):
    """Version 4.5 of the format, which has sizes of 64 bits."""
    accumulate(FORMULA, data()).save(tmp_path / "a.vcomp")
    with zipfile.ZipFile(tmp_path / "a.vcomp") as archive:
        versions = {m.filename: m.extract_version for m in archive.infolist()}
    assert {versions[name] for name in versions if name.endswith(".npy")} == {45}


def test_dates_of_csv_files_are_stored(tmp_path):
    frame = data()
    frame["topic"] = pd.Series(days()[:3]).sample(15, replace=True, random_state=1).to_numpy()
    frame.to_csv(tmp_path / "a.csv", index=False)
    made = accumulate(FORMULA, tmp_path / "a.csv")
    made.save(tmp_path / "a.vcomp")
    found = AccumulatedStatistics.load(tmp_path / "a.vcomp").fit()
    pd.testing.assert_series_equal(found.vcomp, made.fit().vcomp, check_exact=True)


def entries_of(path):
    """Return what is in a file: all names, levels and numbers of the statistics."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def damaged(path, whole):
    """Yield the bytes of the file, some of them lost or changed."""
    rng = np.random.default_rng(1)
    directory = whole.index(b"PK\x01\x02")
    # All of the directory, in which names and sizes stand, and some of what they are of.
    places = [*range(directory, len(whole)), *range(0, directory, 97)]
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= rng.choice([0xFF, 1 << rng.integers(8)])
        yield bytes(changed)
    for end in range(0, len(whole), 307):
        yield whole[:end]


def test_a_damaged_file_is_refused_or_read_as_it_was(tmp_path):
    """Not every byte of an archive matters; none changes a number."""
    path = tmp_path / "a.vcomp"
    made = accumulate(FORMULA, data())
    made.save(path)
    expected, said, again = entries_of(path), [], tmp_path / "again.vcomp"
    for changed in damaged(path, path.read_bytes()):
        path.write_bytes(changed)
        try:
            loaded = AccumulatedStatistics.load(path)
        except vcomp.DataError as error:
            said.append(str(error))
        else:
            loaded.save(again)
            assert entries_of(again) == expected
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


@pytest.mark.parametrize("mean", [1e300, -2.0])
def test_means_that_are_not_of_the_scores(tmp_path, mean):
    """Of scores from 0.5 to 0.94; the components were nan, or of another table."""
    path = tmp_path / "a.vcomp"
    accumulate(FORMULA, data()).save(path)
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    name = next(name for name in entries if name.startswith("means"))
    means = np.load(io.BytesIO(entries[name]))
    means[0, 3] = mean
    written = io.BytesIO()
    np.save(written, means)
    entries[name] = written.getvalue()
    with zipfile.ZipFile(path, "w") as archive:
        for member, entry in entries.items():
            archive.writestr(member, entry)
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


# Numbers that contradict each other -------------------------------------------------------------


def table_of(**changes):
    """Return the cells of five rows: of 2, none and 3."""
    whole = {
        "places": None,
        "counts": np.array([2, 0, 3]),
        "means": np.array([[1.0, 0.0, 2.0], [5.0, 0.0, 6.0]]),
        "within": np.array([[4.0, 3.0], [3.0, 9.0]]),
        "powers": np.array([[1.0, 0.0, 3.0], [0.0, 0.0, -1.0], [0.5, 0.0, 2.0]]),
    }
    return CellTable(**(whole | changes))


def test_tables_that_agree_are_accepted():
    _check_table(table_of(), 3, 2, 5)
    _check_table(table_of(powers=None), 3, 2, 5)
    _check_table(table_of(places=np.array([0, 4, 6])), 7, 2, 5)
    singles = table_of(counts=np.array([1, 0, 1]), powers=np.zeros((3, 0)))
    _check_table(replace(singles, within=np.zeros((2, 2))), 3, 2, 2)
    # Products may exceed the largest by rounding.
    _check_table(table_of(within=np.array([[4.0, 6.000005], [6.000005, 9.0]])), 3, 2, 5)
    _check_table(table_of(within=np.array([[4.0, -6.0], [-6.0, 9.0]])), 3, 2, 5)


@pytest.mark.parametrize(
    "changes",
    [
        {"counts": np.array([2, 0, 4])},  # six rows
        {"counts": np.array([2, -1, 4])},
        {"counts": np.array([2.0, 0.0, 3.0])},
        {"counts": np.array([2, 3])},
        {"means": np.array([[1.0, 0.0, 2.0]])},
        {"means": np.array([[1.0, 0.0, np.nan], [5.0, 0.0, 6.0]])},
        {"means": np.array([[1, 0, 2], [5, 0, 6]])},
        {"within": np.array([[4.0, 3.0], [3.5, 9.0]])},
        {"within": np.array([[-4.0, 0.0], [0.0, 9.0]])},
        {"within": np.array([[4.0, 6.1], [6.1, 9.0]])},
        {"within": np.array([[4.0, 6.00001], [6.00001, 9.0]])},
        {"within": np.array([[np.inf, 3.0], [3.0, 9.0]])},
        {"within": np.eye(3)},
        {"places": np.array([0, 4, 7])},
        {"places": np.array([-1, 4, 6])},
        {"places": np.array([0, 4, 4])},
        {"places": np.array([0, 6, 4])},
        {"places": np.array([0.0, 4.0, 6.0])},
        {"powers": np.zeros((3, 0))},
        {"powers": np.zeros((2, 3))},
        {"powers": np.array([[1.0, 0.0, 3.0], [0.0, 0.1, 0.0], [0.5, 0.0, 2.0]])},
        {"powers": np.array([[1.0, 0.0, 3.0], [0.0, 0.0, 0.0], [0.5, 0.0, -2.0]])},
        {"powers": np.array([[-1.0, 0.0, 5.0], [0.0, 0.0, 0.0], [0.5, 0.0, 2.0]])},
        {"powers": np.array([[1.0, 0.0, 3.1], [0.0, 0.0, 0.0], [0.5, 0.0, 2.0]])},
        {"powers": np.array([[1.0, 0.0, 3.00001], [0.0, 0.0, 0.0], [0.5, 0.0, 2.0]])},
        {"powers": np.array([[1.0, 0.0, 3.0], [np.nan, 0.0, 0.0], [0.5, 0.0, 2.0]])},
        {"powers": np.array([[1, 0, 3], [0, 0, 0], [1, 0, 2]])},
    ],
)
def test_tables_that_contradict_themselves(changes):
    n_places = 7 if "places" in changes else 3
    with pytest.raises(ValueError, match="its numbers contradict each other"):
        _check_table(table_of(**changes), n_places, 2, 5)


@pytest.fixture
def sums():
    frame = data().assign(f=np.tile(["u", "v", "w"], 5), t=np.arange(15) % 2 == 0)
    frame["topic"] = [f"{sys}-{k % 2}" for k, sys in enumerate(frame["sys"])]
    return accumulate("score ~ f + t + (1|sys) + (1|topic)", frame)._sums


def changed_survey(sums, **changes):
    survey = replace(sums.coding.survey, **changes)
    return replace(sums, coding=replace(sums.coding, survey=survey))


def changed_centre(sums, **changes):
    centre = replace(sums.coding.centre, **changes)
    return replace(sums, coding=replace(sums.coding, centre=centre))


def changed_facet(sums, place, **changes):
    facets = list(sums.coding.survey.facets)
    facets[place] = replace(facets[place], **changes)
    return changed_survey(sums, facets=tuple(facets))


CONTRADICTIONS = {
    "no rows": lambda s: changed_survey(s, n=0),
    "half a row": lambda s: changed_survey(s, n=15.0),
    "more rows": lambda s: changed_survey(s, n=16),
    "endless": lambda s: changed_survey(s, high=np.inf),
    "a lower end": lambda s: (
        changed_survey(s, low=s.coding.survey.low - 1.0, values=None)
        if s.coding.survey.values
        else changed_survey(s, low=s.coding.survey.high + 1.0)
    ),
    "a mean above": lambda s: changed_survey(
        s, total=np.longdouble(s.coding.survey.n * (s.coding.survey.high + 1.0))
    ),
    "a mean below": lambda s: changed_survey(
        s, total=np.longdouble(s.coding.survey.n * (s.coding.survey.low - 1.0))
    ),
    "other values": lambda s: changed_survey(s, values=(0.0, s.coding.survey.high)),
    "values that end earlier": lambda s: changed_survey(
        s, values=(s.coding.survey.low, s.coding.survey.low)
    ),
    "values out of order": lambda s: changed_survey(
        s, values=(s.coding.survey.low, 0.9, 0.6, s.coding.survey.high)
    ),
    "an origin that is no number": lambda s: changed_centre(s, origin=np.nan),
    "another origin": lambda s: changed_centre(s, origin=s.coding.centre.origin + 5.0),
    "a lower origin": lambda s: changed_centre(s, origin=s.coding.centre.origin - 5.0),
    "fewer origins": lambda s: changed_centre(s, x_origin=s.coding.centre.x_origin[1:]),
    "a constant of whole numbers": lambda s: changed_centre(
        s, constant=s.coding.centre.constant.astype(int)
    ),
    "a level twice": lambda s: changed_facet(s, 0, levels=pd.Index(["x"] * 5)),
    "a missing level": lambda s: changed_facet(s, 0, levels=pd.Index([None, *"abcd"])),
    "counts of one level less": lambda s: changed_facet(
        s, 0, counts=s.coding.survey.facets[0].counts[1:]
    ),
    "counts below zero": lambda s: changed_facet(s, 0, counts=np.array([-1, 7, 3, 3, 3])),
    "counts of other rows": lambda s: changed_facet(s, 0, counts=np.array([3, 3, 3, 3, 4])),
    "columns that are not named": lambda s: replace(
        s, coding=replace(s.coding, varying=s.coding.varying[:2])
    ),
    "a facet beyond": lambda s: changed_survey(
        s, determined={(1, 2): s.coding.survey.determined[1, 0]}
    ),
    "a facet in itself": lambda s: changed_survey(
        s, determined={(1, 1): s.coding.survey.determined[1, 0]}
    ),
    "a level above beyond": lambda s: changed_survey(
        s, determined={(1, 0): s.coding.survey.determined[1, 0] + 5}
    ),
    "a level above just beyond": lambda s: changed_survey(
        s, determined={(1, 0): s.coding.survey.determined[1, 0] + 1}
    ),
    "a level above that is missing": lambda s: changed_survey(
        s, determined={(1, 0): np.full_like(s.coding.survey.determined[1, 0], -1)}
    ),
    "a level of one row without one above": lambda s: changed_survey(
        s,
        determined={
            (1, 0): np.where(
                s.coding.survey.facets[1].counts == 1, -1, s.coding.survey.determined[1, 0]
            )
        },
    ),
    "a level above below": lambda s: changed_survey(
        s, determined={(1, 0): np.full_like(s.coding.survey.determined[1, 0], -2)}
    ),
}


def test_sums_that_agree_are_accepted(sums):
    assert _checked(sums) is sums
    level = sums.coding.survey.determined[1, 0]
    # A level that does not occur has no level above it.
    facet = sums.coding.survey.facets[1]
    more = replace(facet, levels=facet.levels.append(pd.Index(["-"])),
                   counts=np.append(facet.counts, 0))  # fmt: skip
    facets = sums.coding.survey.facets[0], more
    found = changed_survey(sums, facets=facets, determined={(1, 0): np.append(level, -1)})
    places, table = found.table.filled()
    found = replace(found, table=replace(table, places=places))
    _checked(found)
    found = changed_survey(found, determined={(1, 0): np.append(level, -2)})
    with pytest.raises(ValueError, match="its numbers contradict each other"):
        _checked(found)


@pytest.mark.parametrize("name", sorted(CONTRADICTIONS))
def test_sums_that_contradict_themselves(sums, name):
    with pytest.raises(ValueError, match="its numbers contradict each other"):
        _checked(CONTRADICTIONS[name](sums))

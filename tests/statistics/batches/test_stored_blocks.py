"""Statistics of rows with weights, slopes and residual groups in files."""

from dataclasses import replace

import numpy as np
import pytest

import vcomp
from tests.statistics.batches.test_stored import changed_survey, damaged, entries_of
from vcomp.statistics.batches.stored import _checked

FORMULA = "score ~ x + (x|sys) + (1|topic)"


def made(**options):
    data = vcomp.datasets.load("bodoff2007_alpha")
    rng = np.random.default_rng(4)
    data = data.loc[np.repeat(data.index, 4)].reset_index(drop=True)
    data["score"] += 0.1 * rng.normal(size=len(data))
    data["x"], data["w"] = rng.normal(size=len(data)), rng.uniform(0.5, 3.0, len(data))
    data["half"] = np.arange(len(data)) % 2
    known = {"weights": "w", "residual": "half", **options}
    return vcomp.accumulate(FORMULA, data, **known)


@pytest.fixture(scope="module")
def sums():
    return made()._sums


def changed_table(sums, name, change):
    array = getattr(sums.table, name).copy()
    change(array)
    return replace(sums, table=replace(sums.table, **{name: array}))


def changed_sums(sums, **changes):
    columns = replace(sums.coding.sums, **changes)
    return replace(sums, coding=replace(sums.coding, sums=columns))


def put(at, value):
    """Return a function that writes a value into an array."""

    def change(array):
        array[at] = value

    return change


def scaled(at, factor):
    """Return a function that multiplies a part of an array."""

    def change(array):
        array[at] *= factor

    return change


CONTRADICTIONS = {
    "a weight of zero": lambda s: changed_table(s, "weights", put((0, 1), 0.0)),
    "an endless weight": lambda s: changed_table(s, "weights", put((0, 1), np.inf)),
    "logarithms of larger weights": lambda s: changed_table(s, "weights", put((1, 1), 1e3)),
    "no weights": lambda s: replace(s, table=replace(s.table, weights=None)),
    "weights without squares": lambda s: changed_survey(s, squares=None),
    "squares below zero": lambda s: changed_survey(s, squares=-1.0),
    "squares that are no number": lambda s: changed_survey(s, squares=np.nan),
    "no products": lambda s: replace(s, table=replace(s.table, products=None)),
    "fewer products": lambda s: replace(
        s, table=replace(s.table, products=s.table.products[:1, :1])
    ),
    "larger products": lambda s: changed_table(s, "products", scaled(2, 1.1)),
    "products of one side": lambda s: changed_table(s, "products", scaled((0, 1), 0.5)),
    "products of other cells": lambda s: changed_table(s, "products", scaled(..., 0.5)),
    "squares of a cell below zero": lambda s: changed_table(s, "products", put((1, 1, 0), -1.0)),
    "no sums of columns": lambda s: replace(s, coding=replace(s.coding, sums=None)),
    "a mean beyond the ends": lambda s: changed_sums(s, mean=s.coding.sums.high + 1.0),
    "no places": lambda s: replace(s, table=replace(s.table, places=None)),
    "fewer columns": lambda s: changed_sums(s, mean=s.coding.sums.mean[1:]),
    "a matrix that is none": lambda s: changed_sums(s, gram=np.triu(s.coding.sums.gram)),
    "no slopes": lambda s: replace(s, coding=replace(s.coding, slopes=None)),
}


def test_sums_that_agree_are_accepted(sums):
    assert _checked(sums) is sums


@pytest.mark.parametrize("name", sorted(CONTRADICTIONS))
def test_sums_that_contradict_themselves(sums, name):
    with pytest.raises(ValueError, match=r"contradict|zip|broadcast|index|shape|operands"):
        _checked(CONTRADICTIONS[name](sums))


def test_a_damaged_file_is_refused_or_read_as_it_was(tmp_path):
    path, again = tmp_path / "a.vcomp", tmp_path / "again.vcomp"
    made().save(path)
    expected, n_refused = entries_of(path), 0
    for number, changed in enumerate(damaged(path, path.read_bytes())):
        if number % 7:
            continue
        path.write_bytes(changed)
        try:
            loaded = vcomp.AccumulatedStatistics.load(path)
        except vcomp.DataError as error:
            assert "does not hold statistics that vcomp stored" in str(error)  # noqa: PT017
            n_refused += 1
        else:
            loaded.save(again)
            assert entries_of(again) == expected
    assert n_refused > 50


@pytest.mark.parametrize(
    ("options", "version"),
    [({}, b'"version": 2'), ({"weights": None}, b'"version": 2')],
)
def test_older_versions_refuse_what_they_would_overlook(tmp_path, options, version):
    made(**options).save(tmp_path / "a.vcomp")
    assert version in entries_of(tmp_path / "a.vcomp")["vcomp.json"]
    plain = vcomp.accumulate(
        "score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha")
    )
    plain.save(tmp_path / "b.vcomp")
    assert b'"version": 1' in entries_of(tmp_path / "b.vcomp")["vcomp.json"]

"""Fitted values and residuals in a file are those of rows in memory."""

from __future__ import annotations

import os
from functools import cache

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import DESIGNS, GRIDS, gridded, unbalanced
from tests.helpers.readings import model_of
from vcomp.exceptions import DataError, EstimationError

FORMULA = "score ~ (1|sys) + (1|topic)"


def covariates(formula, data):
    rng = np.random.default_rng(1)
    g = pd.Categorical(np.array(["u", "v"])[rng.integers(0, 2, len(data))])
    return (
        formula.replace("~", "~ np.log(x) + g +"),
        data.assign(x=rng.uniform(1.0, 3.0, len(data)), g=g),
    )


def case(name):
    return gridded(name, seed=4) if name in GRIDS else unbalanced(name.partition(" ")[2])


@cache
def kept_in_memory(name):
    return vcomp.fit(*covariates(*case(name)))


def written(res, folder, **options):
    path = res.augment(path=folder / "rows.parquet", **options)
    assert path == folder / "rows.parquet"
    return pd.read_parquet(path)


def same_rows(found, kept):
    expected = kept.augment().reset_index(drop=True)
    assert list(found) == list(expected)
    assert len(found) == len(expected)
    scale = np.abs(expected["fitted"]).max()
    for name in expected:
        if name in ("fitted", "resid"):
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-10 * scale)
        else:
            assert found[name].astype(expected[name].dtype).tolist() == expected[name].tolist()


@pytest.mark.parametrize(
    ("name", "share"),  # in cells, or collapsed
    alternately([*list(GRIDS)[1::2], *(f"unbalanced {name}" for name in DESIGNS)], 0.25, 0.0),
)
def test_a_stream_gives_what_memory_gives(name, share, tmp_path):
    formula, data = covariates(*case(name))
    res = model_of(formula, data, stream=True, batch_rows=17, large_share=share).fit()
    same_rows(written(res, tmp_path), kept_in_memory(name))
    assert os.listdir(tmp_path) == ["rows.parquet"]


@pytest.mark.slow
def test_effects_of_cells_that_were_put_away():
    formula, data = gridded("per document", seed=4)
    free = [64 * 2.0**30]
    options = {"stream": True, "large_share": 0.0, "free_bytes": lambda: free[0]}
    streamed, kept = model_of(formula, data, **options).fit(), vcomp.fit(formula, data)
    assert streamed.model.statistics.strata.cells is not None
    for term, effects in kept.random_effects.items():
        pd.testing.assert_frame_equal(streamed.random_effects[term], effects, rtol=1e-9)
    np.testing.assert_allclose(streamed.predict(data), kept.predict(data), rtol=1e-11)
    free[0] = 100.0
    words = r"effects of 10 single cells, each with 8 combinations .* need .* are free"
    with pytest.raises(EstimationError, match=words):
        streamed.augment(path="never.parquet")
    assert not os.path.exists("never.parquet")


def test_rows_in_memory_and_dropped_rows(tmp_path):
    data = vcomp.datasets.load("bodoff2007_alpha").set_index(np.arange(15) + 100)
    data.loc[[103, 107], "score"] = np.nan
    with pytest.warns(vcomp.VcompWarning, match="2 of 15 rows"):
        kept = vcomp.fit(FORMULA, data)
    same_rows(written(kept, tmp_path), kept)
    with pytest.warns(vcomp.VcompWarning, match="2 of 15 rows"):
        streamed = model_of(FORMULA, data, stream=True, batch_rows=4).fit()
    same_rows(written(streamed, tmp_path), kept)


def test_files_dates_and_text(tmp_path):
    data = vcomp.datasets.load("bodoff2007_alpha")
    data["topic"] = pd.to_datetime(data["topic"].map({t: f"2026-01-0{k + 1}" for k, t in
        enumerate(data["topic"].unique())}))  # fmt: skip
    folder = tmp_path / "scores"
    folder.mkdir()
    data[:8].to_parquet(folder / "a.parquet")
    data[8:].to_parquet(folder / "b.parquet")
    res = vcomp.fit(FORMULA, folder, stream=True)
    found = written(res, tmp_path)
    same_rows(found, vcomp.fit(FORMULA, data))
    assert found["topic"].dtype.kind == "M"
    with pytest.raises(DataError, match="a file of the data; give another"):
        res.augment(path=folder / "b.parquet")


def test_a_response_that_is_an_expression(tmp_path):
    data = vcomp.datasets.load("bodoff2007_alpha")
    formula = f"np.log({data.columns[-1]} + 1) ~ (1|sys) + (1|topic)"
    same_rows(written(vcomp.fit(formula, data, stream=True), tmp_path), vcomp.fit(formula, data))


def test_rows_that_cannot_be_read_again(tmp_path):
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.accumulate(FORMULA, data).fit()
    with pytest.raises(DataError, match="there are no rows to read again"):
        res.augment(path=tmp_path / "rows.parquet")
    streamed = vcomp.fit(FORMULA, data, stream=True)
    said = r"res\.augment\(path='out\.parquet'\) reads them again"
    for what in (streamed.augment, lambda: streamed.resid, lambda: streamed.fittedvalues):
        with pytest.raises(DataError, match=said):
            what()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("change", ["fewer", "levels", "more"])
def test_rows_that_changed_since(tmp_path, change):
    data, path = vcomp.datasets.load("bodoff2007_alpha"), tmp_path / "scores.csv"
    data.to_csv(path, index=False)
    res = vcomp.fit(FORMULA, path, stream=True)
    changed = {
        "fewer": data[1:],
        "more": pd.concat([data, data[:1]]),
        "levels": data.assign(sys=data["sys"].replace(data["sys"][0], "another")),
    }[change]
    changed.to_csv(path, index=False)
    words = "have to stay as they were|must not change after the fit"
    with pytest.raises(DataError, match=words):
        res.augment(path=tmp_path / "rows.parquet")
    assert os.listdir(tmp_path) == ["scores.csv"]


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("rows.csv", r"'rows\.csv' does not end in \.parquet"),
        (7, "7 is not the path of a file"),
        ("no folder/rows.parquet", "there is no such folder"),
    ],
)
def test_paths_that_are_none(to, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = vcomp.datasets.load("bodoff2007_alpha")
    for stream in (True, False):
        with pytest.raises(DataError, match=words):
            vcomp.fit(FORMULA, data, stream=stream).augment(path=to)
    assert os.listdir(tmp_path) == []


def test_a_bar_if_asked_for(tmp_path, capsys):
    res = vcomp.fit(FORMULA, vcomp.datasets.load("bodoff2007_alpha"), stream=True)
    written(res, tmp_path, progress=True)
    assert "pass 1: 100%" in capsys.readouterr().err
    with pytest.raises(DataError, match="progress='no' is not known"):
        res.augment(path=tmp_path / "rows.parquet", progress="no")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["fitted", "resid"])
def test_columns_with_the_names_of_those_that_are_added(tmp_path, name, stream):
    data = vcomp.datasets.load("bodoff2007_alpha").rename(columns={"sys": name})
    res = vcomp.fit(f"score ~ (1|{name}) + (1|topic)", data, stream=stream)
    with pytest.raises(
        DataError, match=f"'{name}' of the data has the name of a column that is added"
    ):
        res.augment(path=tmp_path / "rows.parquet")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("stream", [False, True])
def test_a_folder_is_no_file(tmp_path, stream):
    (tmp_path / "a.parquet").mkdir()
    res = vcomp.fit(FORMULA, vcomp.datasets.load("bodoff2007_alpha"), stream=stream)
    with pytest.raises(DataError, match=r"a\.parquet': it is a folder; name a file in it"):
        res.augment(path=tmp_path / "a.parquet")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("study", [False, True])
def test_the_data_are_not_written_over(stream, study, tmp_path, monkeypatch):
    """Whatever the path to them is written like, and whether rows are kept or not."""
    data = vcomp.datasets.load("bodoff2007_alpha")
    path = tmp_path / "scores.parquet"
    data.to_parquet(path)
    before = path.read_bytes()
    if study:
        res = vcomp.gstudy("sys x topic", path, "score", stream=stream)
    else:
        res = vcomp.fit("score ~ (1|sys) + (1|topic)", path, stream=stream)
    monkeypatch.chdir(tmp_path)
    for target in (path, "scores.parquet", tmp_path / ".." / tmp_path.name / "scores.parquet"):
        with pytest.raises(vcomp.DataError, match="is a file of the data; give another"):
            res.augment(path=target)
    assert path.read_bytes() == before
    res.augment(path=tmp_path / "other.parquet")

"""Simulated collections as files: the same numbers, some at a time, complete or not at all."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from vcomp.exceptions import DataError, EstimationError, PlanError
from vcomp.ir.simulate import source_comparison as write
from vcomp.ir.simulate.source_comparison import write_batches
from vcomp.simulate import fit_collection, write_collections

SCORES = np.random.default_rng(3).beta(2, 3, (12, 5))


@pytest.fixture(scope="module")
def simulator():
    return fit_collection(SCORES, [f"run {k}" for k in range(5)])


def read(path):
    return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".pq"])
def test_rows_are_those_of_a_simulation(simulator, tmp_path, ending):
    path = tmp_path / f"new{ending}"
    # Two collections at a time.
    n_rows = write_batches(simulator, path, 10, n=7, rng=4, rows_at_once=100)
    expected = simulator.simulate(10, n=7, rng=4).to_long()
    found = read(path)
    assert n_rows == len(found) == 350
    assert list(found.columns) == list(expected.columns)
    for column in ("collection", "topic", "score"):
        np.testing.assert_array_equal(found[column], expected[column])
    assert found["system"].astype(str).tolist() == expected["system"].astype(str).tolist()


def test_workers_change_nothing(simulator, tmp_path):
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    write_batches(simulator, one, 10, n=9, rng=4, rows_at_once=160)
    write_batches(simulator, two, 10, n=9, rng=4, rows_at_once=160, workers=2)
    assert one.read_bytes() == two.read_bytes()


def test_only_the_bar_of_parts_is_shown(simulator, tmp_path, capsys):
    for shown in (False, True):
        write_collections(simulator, tmp_path / "sims.parquet", 5, 4, progress=shown)
        said = capsys.readouterr().err
        assert ("parts" in said) == shown
        assert "collections" not in said


def test_each_part_is_seen_as_it_is_written(simulator, tmp_path):
    parts, path = [], tmp_path / "a.csv"
    write_batches(simulator, path, 10, n=5, rng=1, rows_at_once=100, each=parts.append)
    assert [len(part) for part in parts] == [2, 2, 1]
    seen = np.concatenate([part.scores for part in parts])
    np.testing.assert_array_equal(seen, simulator.simulate(10, n=5, rng=1).scores)


def test_an_interruption_leaves_what_was_there(simulator, tmp_path):
    path = tmp_path / "new.parquet"
    path.write_text("what was there")
    seen = []

    def interrupt(part):
        seen.append(part)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_batches(simulator, path, 10, n=9, rows_at_once=100, each=interrupt)
    assert path.read_text() == "what was there"
    assert [p.name for p in tmp_path.iterdir()] == ["new.parquet"]


def test_a_full_disk_is_a_sentence(simulator, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write, "_open", full)
    with pytest.raises(DataError, match=r"cannot write .*new.csv.: No space left on device"):
        write_collections(simulator, tmp_path / "new.csv", 10)
    assert not list(tmp_path.iterdir())


def test_files_that_cannot_be(simulator, tmp_path):
    for path, message in (
        (tmp_path / "new.xlsx", "does not end in .parquet or .csv"),
        (tmp_path / "no folder" / "new.csv", "there is no such folder"),
        (3, "3 is not the path of a file"),
    ):
        with pytest.raises(DataError, match=message):
            write_collections(simulator, path, 10)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        write_collections(simulator, tmp_path / "folder.csv", 10)


def test_numbers_that_cannot_be(simulator, tmp_path):
    path = tmp_path / "new.csv"
    with pytest.raises(PlanError, match="n_topics must be a whole number of at least 1, not 0"):
        write_collections(simulator, path, 0)
    with pytest.raises(PlanError, match=r"n must be a whole number of at least 1, not 2\.5"):
        write_collections(simulator, path, 5, n=2.5)
    with pytest.raises(PlanError, match="workers must be a whole number"):
        write_collections(simulator, path, 5, workers=True)
    with pytest.raises(EstimationError, match="rng"):
        write_collections(simulator, path, 5, rng="one")
    assert not list(tmp_path.iterdir())

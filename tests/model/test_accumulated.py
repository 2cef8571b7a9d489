"""Statistics without rows: stored, loaded, added whatever their levels, fitted later."""

import json
import os
import pickle
import zipfile

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import DESIGNS, GRIDS, gridded, unbalanced
from vcomp import AccumulatedStatistics, accumulate

FORMULA = "score ~ (1|sys) + (1|topic)"


def data():
    return vcomp.datasets.load("bodoff2007_alpha")


def halves(frame, seed=0):
    """Return the rows in two parts, which have some levels in common."""
    first = np.random.default_rng(seed).random(len(frame)) < 0.5
    return frame[first], frame[~first]


def same(statistics, formula, frame, tolerance=1e-11):
    same_as(vcomp.fit(formula, frame), statistics, tolerance)


def same_as(kept, statistics, tolerance):
    found = statistics.fit()
    scale = kept.vcomp.abs().max()
    np.testing.assert_allclose(found.vcomp, kept.vcomp, rtol=tolerance, atol=tolerance * scale)
    np.testing.assert_allclose(found.llf, kept.llf, rtol=tolerance, atol=1e-11)
    np.testing.assert_allclose(found.fe_params, kept.fe_params, rtol=1e2 * tolerance)
    assert str(statistics.design) == str(kept.design)


@pytest.mark.parametrize(
    ("name", "first"),
    alternately([*list(GRIDS)[::2], *(f"unbalanced {name}" for name in DESIGNS)], 0, 1),
)
def test_parts_add_up_in_either_order(name, first):
    made = gridded(name, seed=4) if name in GRIDS else unbalanced(name.partition(" ")[2])
    formula, frame = made
    parts = [accumulate(formula, part) for part in halves(frame)]
    same_as(vcomp.fit(formula, frame), parts[first] + parts[1 - first], 1e-10)


@pytest.mark.parametrize("share", [1.0, 0.9, 0.1])
def test_cells_are_those_with_scores(share):
    """Where most cells are filled the table has places for the empty ones as well."""
    cells = np.array(np.meshgrid(range(20), range(15))).reshape(2, -1).T
    frame = pd.DataFrame(cells, columns=["sys", "topic"]).assign(score=np.arange(300.0) % 7)
    frame = frame.sample(frac=share, random_state=1)
    made = accumulate(FORMULA, pd.concat([frame, frame.head(9)]))
    assert (made.n_cells, made.nobs) == (len(frame), len(frame) + 9)


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

"""Rows in batches are as rows in memory, whatever a batch lacks."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import vcomp
from tests.helpers.readings import accumulated, model_of

FORMULA = "score ~ (1|sys) + (1|topic)"
rng = np.random.default_rng(3)
DATA = pd.DataFrame(
    {
        "score": rng.normal(size=240),
        "sys": [f"s{k % 8}" for k in range(240)],
        "topic": [f"t{k // 8 % 10}" for k in range(240)],
        "effort": pd.Categorical(np.repeat(["high", "low", "mid"], 80), ["low", "mid", "high"]),
    }
)


SMALL = {"batch_rows": 40, "kept_bytes": 0.0}
"""Batches of few rows, none of which are kept."""


def fit(formula, data, stream):
    return model_of(formula, data, stream=stream, **SMALL).fit()


def accumulate(formula, data):
    return accumulated(formula, data, **SMALL)


def streamed(formula, data):
    return fit(formula, data, stream=True)


def test_a_factor_keeps_its_order_where_batches_lack_levels():
    """The first level is the one that the others are compared with."""
    formula = "score ~ effort + (1|sys) + (1|topic)"
    kept, found = (fit(formula, DATA, stream=stream) for stream in (False, True))
    assert list(found.fe_params.index) == ["Intercept", "effort[T.mid]", "effort[T.high]"]
    np.testing.assert_allclose(found.fe_params, kept.fe_params, rtol=1e-10)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("label", [str, int])
def test_levels_keep_their_order_where_files_lack_some(tmp_path, ordered, label):
    own = [label(k) for k in (3, 1, 2, 0, 9, 8, 7, 6, 5, 4)]
    for k in range(3):
        part = DATA[56 * k : 56 * k + 56]
        topic = [label(name[1:]) for name in part["topic"]]
        present = [level for level in own if level in set(topic)]
        coded = pd.Categorical(topic, present, ordered=ordered)
        part.assign(topic=coded).to_parquet(tmp_path / f"{k}.parquet", index=False)
    kept, found = (fit(FORMULA, tmp_path, stream=stream) for stream in (False, True))
    expected = kept.random_effects["topic"].index.tolist()
    assert found.random_effects["topic"].index.tolist() == expected


@pytest.mark.parametrize("way", [accumulate, streamed])
def test_long_whole_numbers_beside_other_numbers(way):
    number = np.arange(240) // 8 % 10
    first = DATA.assign(topic=number + 2**53)[:120]
    for other in (number + 0.5, number.astype(np.uint64) + np.uint64(2**63)):
        with pytest.raises(vcomp.DataError, match=r"levels are whole numbers beyond 2\*\*53"):
            way(FORMULA, [first, DATA.assign(topic=other)[120:]])


@pytest.mark.parametrize("stream", [False, True])
def test_missing_and_infinite_scores_are_counted_by_file(tmp_path, stream):
    for k in range(3):
        part = DATA[80 * k : 80 * k + 80]
        bad = part["score"].where(np.arange(80) >= k, [np.nan, np.inf][k % 2])
        part.assign(score=bad).to_parquet(tmp_path / f"{k}.parquet", index=False)
    words = r"2 of 240 rows \(2 in '2\.parquet'\) have a missing value"
    with (
        pytest.warns(vcomp.VcompWarning, match=words),
        pytest.raises(vcomp.DataError, match=r"in 1 of 238 rows \(1 in '1\.parquet'\)"),
    ):
        fit(FORMULA, tmp_path, stream=stream)


def test_both_infinities_in_a_batch():
    bad = DATA.assign(score=DATA["score"].where(np.arange(240) > 1, [np.inf, -np.inf] * 120))
    with pytest.raises(vcomp.DataError, match="infinite in 2 of 240 rows"):
        fit(FORMULA, bad, stream=True)


@pytest.mark.parametrize("way", [accumulate, streamed])
def test_a_query_that_gives_other_rows_every_time(way):
    """As many, so that their number does not tell."""
    lazy = pl.from_pandas(DATA).lazy()
    sample = lazy.filter(pl.int_range(240).shuffle() < 200)
    with pytest.raises(vcomp.DataError, match=r"scores changed between|level that the first"):
        way(FORMULA, sample)


@pytest.mark.parametrize("stream", [False, True])
def test_of_one_file_its_name_is_not_said(tmp_path, stream):
    path = tmp_path / "scores.parquet"
    DATA.assign(score=DATA["score"].where(np.arange(240) > 1)).to_parquet(path, index=False)
    with pytest.warns(vcomp.VcompWarning, match=r"^2 of 240 rows have a missing value"):
        fit(FORMULA, path, stream=stream)

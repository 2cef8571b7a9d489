"""Scores with two values, or in a few grades, are named where intervals are printed."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.examples import examples
from vcomp.inference.intervals import note_on_scores
from vcomp.statistics.batches import few_values

FORMULA = "score ~ (1|sys) + (1|topic)"
TWO = "Scores are 0 or 1: components are on the observed scale, on which reliability is defined"
NORMAL = "assume normal effects, interval='robust' does not."


def frame_of(*values, seed=1):
    """Return 8 systems by 15 topics with these scores, a low score for a hard topic."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame([(s, t) for s in range(8) for t in range(15)], columns=["sys", "topic"])
    latent = rng.normal(size=8)[frame.sys] + rng.normal(size=15)[frame.topic]
    latent += rng.normal(size=len(frame))
    ranks = latent.argsort().argsort() * len(values) // len(frame)
    return frame.assign(score=np.array(values, dtype=float)[ranks])


def notes(printed):
    """Return the sentences below the tables, with line breaks removed."""
    return " ".join(str(printed).split())


def on_dask(frame, tmp_path):
    dask = pytest.importorskip("dask", reason="Dask is not installed (extra dask)")
    dd = pytest.importorskip("dask.dataframe", reason="Dask is not installed")
    with dask.config.set(scheduler="synchronous"):
        return vcomp.fit(FORMULA, dd.from_pandas(frame, npartitions=4))


def in_batches(frame, tmp_path):
    return vcomp.fit(FORMULA, iter_frames(frame), stream=True)


def iter_frames(frame):
    return [part for _, part in frame.groupby("topic")]


def from_sums(frame, tmp_path):
    first, second = (frame[frame.topic % 2 == k] for k in (0, 1))
    sums = vcomp.accumulate(FORMULA, first) + vcomp.accumulate(FORMULA, second)
    sums.save(tmp_path / "sums.vcomp")
    return vcomp.AccumulatedStatistics.load(tmp_path / "sums.vcomp").fit()


def from_json(frame, tmp_path):
    return vcomp.VarianceComponentsResults.from_json(vcomp.fit(FORMULA, frame).to_json())


def from_pickle(frame, tmp_path):
    return pickle.loads(pickle.dumps(vcomp.fit(FORMULA, frame)))


def of_design(frame, tmp_path):
    return vcomp.gstudy("sys x topic", frame, "score")


WAYS = [in_batches, on_dask, from_sums, from_json, from_pickle, of_design]


@pytest.mark.parametrize(
    ("fit", "values"),
    [
        *alternately(WAYS, (0, 1), (0, 0.1, 1)),
        *alternately(WAYS, tuple(range(8)), (1, 2, 3, 4, 5)),
    ],
)
def test_every_way_to_a_result_knows_the_values(fit, values, tmp_path):
    frame = frame_of(*values)
    res = fit(frame, tmp_path)
    occurring = tuple(np.unique(frame.score).tolist())
    assert res.components.response_values == (occurring if len(occurring) <= 7 else None)
    assert res.components.response_values == vcomp.fit(FORMULA, frame).components.response_values
    assert ("Scores are" in str(res)) == (values in [(0, 1), (1, 2, 3, 4, 5)])
    assert ("Scores are" in str(res.dstudy(topic=20))) == (values in [(0, 1), (1, 2, 3, 4, 5)])


def test_what_is_printed():
    res = vcomp.fit(FORMULA, frame_of(0, 1))
    free = f"{TWO}; intervals (robust modified large sample) do not assume normal effects."
    assert free in notes(res)
    assert free in notes(res.dstudy(topic=20))
    for interval, words in (("mls", "modified large sample"), ("f", "exact F, approximate F")):
        study = res.dstudy(topic=20, interval=interval)
        assert f"{TWO}; intervals ({words}) {NORMAL}" in notes(study)
    assert "Scores are -3 or 7.5:" in notes(vcomp.fit(FORMULA, frame_of(-3, 7.5)))
    graded = vcomp.fit(FORMULA, frame_of(0, 0.25, 0.5, 0.75, 1))
    assert "Scores are 5 grades from 0 to 1:" in notes(graded)


def test_one_other_score_is_no_longer_two_values():
    frame = frame_of(0, 1)
    frame.loc[77, "score"] = 0.25
    for stream in (False, True):
        res = vcomp.fit(FORMULA, frame, stream=stream)
        assert res.components.response_values == (0.0, 0.25, 1.0)
        assert "Scores are" not in str(res)


def test_the_words_are_those_of_the_intervals():
    res = vcomp.fit(FORMULA, frame_of(0, 1))
    sources = {
        "robust": "(robust modified large sample) do not assume normal effects.",
        "satterthwaite": f"(Satterthwaite) {NORMAL}",
        "profile": f"(profile likelihood) {NORMAL}",
    }
    for interval, words in sources.items():
        assert f"{TWO}; intervals {words}" in notes(res.summary(interval=interval))
    study = res.dstudy(topic=20, interval="robust")
    assert f"{TWO}; intervals {sources['robust']}" in notes(study)
    for replicates in (res.resample("topic", 30, rng=1), res.jackknife("topic")):
        assert "do not assume normal effects." in notes(res.summary(interval=replicates))
    assert f"replicates) {NORMAL}" in notes(res.summary(interval=res.bootstrap(30, rng=1)))


def test_without_intervals_the_components_are_named():
    assert note_on_scores((0.0, 1.0), []) == (f"{TWO}.",)


def test_files_of_older_versions_have_none(tmp_path):
    res = vcomp.fit(FORMULA, frame_of(0, 1))
    whole = json.loads(res.to_json())
    del whole["components"]["response_values"]
    loaded = vcomp.VarianceComponentsResults.from_json(json.dumps(whole))
    assert loaded.components.response_values is None
    assert "Scores are" not in str(loaded)
    published = vcomp.from_components({"p": 0.5, "i": 0.2, "Residual": 1.0})
    assert "Scores are" not in str(published.dstudy(i=10))


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.integers(0, 11), min_size=1, max_size=2000),
    st.sampled_from([1, 3, 7, 256, 300]),
    st.integers(1, 1000),
)
def test_few_values_are_those_that_occur(numbers, period, repeats):
    """Also if a sample at equal distances meets the same values again and again."""
    y = np.array(numbers, dtype=float) / 3.0
    y[::period] = y[0]
    y = np.tile(y, min(repeats, 20_000 // y.size + 1))
    occurring = np.unique(y)
    assert few_values(y) == (tuple(occurring.tolist()) if occurring.size <= 7 else None)
    assert few_values(y[:0]) == ()

"""Measures of retrieved sets: by hand, by brute force, and beside the sum of document scores."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.helpers.examples import examples
from vcomp.exceptions import DataError, VcompWarning
from vcomp.ir.documents.document_files import document_universe
from vcomp.ir.documents.document_universe import set_measures
from vcomp.ir.simulate.effect_draws import novelty_like_track


def one_topic(retrieved, relevant, others=()):
    """Return the measures of one system that retrieved some documents of one topic."""
    runs = {"system": ["s"] * len(retrieved), "topic": [1] * len(retrieved), "document": retrieved}
    every = [*relevant, *others]
    qrels = {"assessor": ["J"] * len(every), "topic": [1] * len(every), "document": every,
             "relevant": [1] * len(relevant) + [0] * len(others)}  # fmt: skip
    return document_universe(runs, qrels).set_measures().iloc[0]


def test_by_hand():
    # 3 of 4 retrieved are relevant, 5 are in all.
    row = one_topic([1, 2, 3, 9], [1, 2, 3, 4, 5])
    assert row[["n_retrieved", "n_relevant", "n_relevant_retrieved"]].tolist() == [4, 5, 3]
    assert row["n_documents"] == 6
    assert row["precision"] == 3 / 4
    assert row["recall"] == 3 / 5
    assert_allclose(row["F"], 2 / (4 / 3 + 5 / 3), rtol=1e-15)
    assert row["utility"] == 2 * 3 - 1
    assert row["normalized_utility"] == 5 / 10
    assert_allclose(row["scaled_utility"], (0.5 + 0.5) / 1.5, rtol=1e-15)
    assert_allclose(row["mean_score"], (3 - 2 - 1) / 6, atol=1e-16)


def test_what_is_retrieved_wrong_without_end():
    row = one_topic(list(range(10, 40)), [1, 2])
    assert row[["precision", "recall", "F"]].tolist() == [0, 0, 0]
    assert row["normalized_utility"] == -30 / 4
    assert row["scaled_utility"] == 0
    assert row["mean_score"] == -1


def test_the_best_there_is():
    row = one_topic([1, 2], [1, 2])
    measures = ["precision", "recall", "F", "normalized_utility", "scaled_utility", "mean_score"]
    assert row[measures].tolist() == [1] * 6


def test_nothing_relevant():
    runs = {"system": ["s", "s"], "topic": [1, 2], "document": [1, 2]}
    qrels = {"assessor": ["J"] * 3, "topic": [1, 1, 2], "document": [1, 3, 9]}
    universe = document_universe(runs, qrels | {"relevant": [1, 1, 0]}, systems=["s", "t"])
    with pytest.warns(VcompWarning, match="nothing is relevant by 1 of the 2 judgements"):
        rows = set_measures(universe).query("topic == 2")
    assert rows["utility"].tolist() == [-1, 0]
    assert rows["normalized_utility"].isna().all()
    assert rows["scaled_utility"].isna().all()
    assert rows[["precision", "recall", "F"]].to_numpy().tolist() == [[0, 0, 0], [0, 0, 0]]


TRACKS = st.builds(
    novelty_like_track,
    n_systems=st.integers(1, 4),
    n_topics=st.integers(1, 4),
    n_assessors=st.integers(1, 3),
    n_documents=st.integers(8, 25),
    rng=st.integers(0, 2**32 - 1),
)
NUMBERS = st.floats(-4, 4).map(lambda x: round(x, 2))


@pytest.mark.filterwarnings("ignore:no system retrieved", "ignore:nothing is relevant")
@settings(max_examples=examples(30), deadline=None)
@given(
    track=TRACKS,
    kind=st.sampled_from(["topic", "assessor", "all"]),
    beta=st.sampled_from([0.5, 1, 2]),
)
def test_by_brute_force_and_totals(track, kind, beta):
    if not track.judgements["relevant"].any() or not len(track.retrieved):
        return
    universe = document_universe(track.retrieved, track.judgements, universe=kind)
    table = universe.set_measures(beta=beta)
    runs = track.retrieved.astype(str).groupby(["system", "topic"])["document"].agg(set)
    relevant = track.judgements[track.judgements["relevant"]].astype(str)
    relevant = relevant.groupby(["assessor", "topic"])["document"].agg(set)
    sums = universe.scores().groupby(["system", "assessor", "topic"], observed=True)["score"].sum()
    for row in table.astype({"system": str, "assessor": str, "topic": str}).to_dict("records"):
        found = runs.get((row["system"], row["topic"]), set())
        good = relevant.get((row["assessor"], row["topic"]), set())
        both = len(found & good)
        assert (row["n_retrieved"], row["n_relevant"]) == (len(found), len(good))
        assert row["n_relevant_retrieved"] == both
        p, r = both / max(len(found), 1), both / max(len(good), 1)
        f = (1 + beta**2) * p * r / (beta**2 * p + r) if both else 0.0
        assert_allclose([row["precision"], row["recall"], row["F"]], [p, r, f], rtol=1e-13)
        assert row["utility"] == 2 * both - (len(found) - both)
        if row["n_documents"]:
            total = sums[row["system"], row["assessor"], row["topic"]]
            # Linear utility, less a number that is the same for all systems.
            assert total == row["utility"] - len(good)
            assert_allclose(row["mean_score"], total / row["n_documents"], rtol=1e-13)


@settings(max_examples=examples(40), deadline=None)
@given(
    kind=st.sampled_from(["topic", "assessor", "all"]),
    left=NUMBERS, wrong=NUMBERS, missed=NUMBERS, gain=st.floats(0.1, 3),
)  # fmt: skip
def test_totals_with_other_scores(kind, left, wrong, missed, gain):
    track = novelty_like_track(n_systems=3, n_topics=3, n_documents=15, rng=5)
    universe = document_universe(track.retrieved, track.judgements, universe=kind)
    scores = {"nonrelevant_left": left, "nonrelevant_retrieved": wrong, "relevant_missed": missed,
              "relevant_retrieved": missed + gain}  # fmt: skip
    table = universe.set_measures(scores=scores)
    keys = ["system", "assessor", "topic"]
    rows = universe.scores(scores).groupby(keys, observed=True)["score"]
    table = table.set_index(keys)
    base = missed * table["n_relevant"] + left * (table["n_documents"] - table["n_relevant"])
    assert_allclose(rows.sum().loc[table.index], table["utility"] + base, atol=1e-10)
    assert_allclose(rows.mean().loc[table.index], table["mean_score"], atol=1e-12)
    best = table["utility"] / (gain * table["n_relevant"])
    assert_allclose(table["normalized_utility"], best, rtol=1e-12, atol=1e-14)


def test_rows_and_columns():
    track = novelty_like_track(n_systems=3, n_topics=4, n_documents=40, rng=1)
    table = document_universe(track.retrieved, track.judgements).set_measures()
    assert len(table) == 3 * 4 * 2
    assert not table.duplicated(["system", "assessor", "topic"]).any()
    assert all(isinstance(table[c].dtype, pd.CategoricalDtype) for c in table.columns[:3])
    assert_array_equal(table.dtypes.iloc[3:7], [np.dtype(np.int64)] * 4)


@pytest.mark.parametrize("beta", [0, -1, np.nan, np.inf, "1", True])
def test_bad_beta(beta):
    track = novelty_like_track(n_systems=2, n_topics=2, n_documents=10, rng=1)
    universe = document_universe(track.retrieved, track.judgements)
    with pytest.raises(DataError, match="beta is positive"):
        universe.set_measures(beta=beta)


def test_only_of_a_universe():
    with pytest.raises(DataError, match=r"set_measures\(\) needs a DocumentUniverse, .* not dict"):
        set_measures({"system": ["s"]})


def test_utilities_have_a_best():
    track = novelty_like_track(n_systems=2, n_topics=2, n_documents=10, rng=1)
    universe = document_universe(track.retrieved, track.judgements)
    scores = {"nonrelevant_left": 0, "nonrelevant_retrieved": 1, "relevant_missed": 0,
              "relevant_retrieved": 0}  # fmt: skip
    with pytest.raises(DataError, match="worth no more than one"):
        universe.set_measures(scores=scores)

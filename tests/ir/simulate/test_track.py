"""The made-up track: seeded, of the sizes that were asked for, with the effects that it states."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from vcomp.exceptions import DataError, EstimationError, PlanError
from vcomp.ir.simulate.effect_draws import TRACK_EFFECTS, novelty_like_track

NONE = dict.fromkeys(TRACK_EFFECTS, 0.0)


def share(track, *columns):
    """Return the share of relevant documents by some columns."""
    return track.judgements.groupby(list(columns), observed=True)["relevant"].mean()


def test_a_seed_is_a_track():
    first, again, other = (
        novelty_like_track(n_systems=4, n_topics=3, n_documents=20, rng=r) for r in (1, 1, 2)
    )
    pd.testing.assert_frame_equal(first.retrieved, again.retrieved)
    pd.testing.assert_frame_equal(first.judgements, again.judgements)
    assert not first.judgements["relevant"].equals(other.judgements["relevant"])


def test_sizes():
    track = novelty_like_track(
        n_systems=6, n_topics=40, n_assessors=3, n_documents=30, rng=np.random.default_rng(1)
    )
    of_topic = track.judgements.groupby(["topic", "assessor"], observed=True).size().unstack()
    assert of_topic.shape == (40, 3)
    assert of_topic.eq(of_topic[of_topic.columns[0]], axis=0).all(axis=None)
    assert of_topic[of_topic.columns[0]].between(15, 45).all()
    assert of_topic[of_topic.columns[0]].nunique() > 10
    assert track.retrieved["system"].cat.categories.tolist() == [f"S{k}" for k in range(1, 7)]
    assert not track.retrieved.duplicated().any()
    pairs = track.judgements[["document", "topic"]].drop_duplicates()
    assert not pairs["document"].duplicated().any()


def test_relevance_has_the_probability_that_the_effects_give():
    # Only the document's effect, standard normal: P(relevant) = P(z > 1) = .1587.
    track = novelty_like_track(
        n_systems=1,
        n_topics=20,
        n_documents=2000,
        rng=3,
        effects={**NONE, "relevance": -1, "d": 1},
    )
    n = len(track.judgements) / 2
    assert abs(share(track, "assessor") - 0.158655).max() < 4 * np.sqrt(0.1335 / n)
    # And both assessors find the same.
    wide = track.judgements.pivot(index="document", columns="assessor", values="relevant")
    assert (wide["A1"] == wide["A2"]).all()


def test_assessors_agree_as_the_effects_say():
    # Correlation of .5 at mean 0: P(both) = 1/4 + asin(.5)/(2π) = 1/3.
    track = novelty_like_track(
        n_systems=1, n_topics=20, n_documents=2000, rng=5, effects={**NONE, "d": 1, "a:d": 1}
    )
    wide = track.judgements.pivot(index="document", columns="assessor", values="relevant")
    both = (wide["A1"] & wide["A2"]).mean()
    assert abs(both - 1 / 3) < 4 * np.sqrt(2 / 9 / len(wide))


def test_skill_finds_what_is_relevant():
    effects = {**NONE, "d": 1, "p:d": 1}
    track = novelty_like_track(n_systems=2, n_topics=20, n_documents=1000, rng=7, effects=effects)
    relevant = set(track.judgements.loc[track.judgements["relevant"], "document"])
    found = track.retrieved[track.retrieved["system"] == "S1"]["document"]
    # The system sees the document's effect and as much noise: P(both) = 1/4 + asin(√.5)/(2π).
    n = track.judgements["document"].nunique()
    assert abs(found.isin(relevant).sum() / n - 0.375) < 4 * np.sqrt(0.375 * 0.625 / n)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_systems": 0}, "n_systems must be a whole number of at least 1, not 0"),
        ({"n_topics": 2.5}, "n_topics must be a whole number"),
        ({"n_assessors": True}, "n_assessors must be a whole number"),
        ({"n_documents": 1}, "n_documents must be a whole number of at least 2"),
        ({"effects": {"skil": 1}}, "did you mean 'skill'"),
        ({"effects": {"skill": -1}}, "must be finite and at least 0"),
        ({"effects": {"p:d": np.nan}}, "must be finite and at least 0"),
        ({"effects": {"p:d": "1"}}, "must be finite and at least 0"),
    ],
)
def test_bad_tracks(options, message):
    with pytest.raises(DataError, match=message):
        novelty_like_track(**options)


@pytest.mark.parametrize("rng", ["a", -1, 1.5, True])
def test_what_is_no_seed(rng):
    with pytest.raises(EstimationError, match="rng must be a seed"):
        novelty_like_track(n_systems=2, n_topics=2, n_documents=8, rng=rng)


def test_without_a_seed_it_is_seed_0():
    tracks = [novelty_like_track(n_systems=2, n_topics=2, n_documents=8, rng=r) for r in (None, 0)]
    pd.testing.assert_frame_equal(tracks[0].retrieved, tracks[1].retrieved)


def test_repr():
    track = novelty_like_track(n_systems=2, n_topics=2, n_documents=8, rng=1)
    rows = f"{len(track.retrieved)} retrieved documents, {len(track.judgements)} judgements"
    assert repr(track) == f"<Track: {rows}>"


def test_numpy_numbers_are_numbers():
    track = novelty_like_track(
        n_systems=np.int64(2), n_topics=np.int32(2), n_documents=8, rng=1,
        effects={"retrieval": np.float64(-0.5)},
    )  # fmt: skip
    assert track.judgements["topic"].nunique() == 2


def test_grades_count_the_cuts():
    """Each grade is that of a track with this cut alone; what is retrieved stays."""
    cuts = (-0.8, 0.1, 0.9)
    options = {"n_systems": 3, "n_topics": 4, "n_documents": 60, "rng": 11}
    graded = novelty_like_track(cuts=cuts, **options)
    single = [novelty_like_track(cuts=[cut], **options) for cut in cuts]
    for track in single:
        pd.testing.assert_frame_equal(track.retrieved, graded.retrieved)
    count = sum(track.judgements["relevant"].astype(int) for track in single)
    np.testing.assert_array_equal(graded.judgements["relevant"], count)
    assert set(count) == {0, 1, 2, 3}


@pytest.mark.parametrize("effect", ["p", "p:i", "look", "p:d", "d", "a", "i", "a:i", "a:d"])
def test_effects_have_the_sign_and_the_distribution_of_their_margin(effect):
    """An effect alone, exponential less 1, exceeds 1 with the probability exp(−2)."""
    p = (np.arange(500) + 0.5) / 500
    of_systems = effect in ("p", "p:i", "look", "p:d", "d")
    mean = {"retrieval": -1.0} if of_systems else {"relevance": -1.0}
    track = novelty_like_track(
        n_systems=20, n_assessors=20, n_topics=30, n_documents=10, rng=4,
        effects={**NONE, **mean, effect: 1.0}, margins={effect: -np.log1p(-p) - 1.0},
    )  # fmt: skip
    judged = track.judgements
    if of_systems:
        n = judged["document"].nunique()
        found = len(track.retrieved) / (20 * n)
        drawn = {"p": 20, "p:i": 600, "look": n, "p:d": 20 * n, "d": n}[effect]
    else:
        found = judged["relevant"].mean()
        drawn = {"a": 20, "i": 30, "a:i": 600, "a:d": len(judged)}[effect]
    expected = np.exp(-2.0)
    # A kernel estimate blurs the edge; the opposite sign would never exceed 1.
    assert abs(found - expected) < 4.5 * np.sqrt(expected * (1 - expected) / drawn) + 0.02
    assert found > 0.0


def test_correlated_assessors_agree_and_correlated_systems_retrieve_alike():
    """Effects with the correlation 1 are the same; those with .5 share half of their variance."""
    options = {"n_systems": 4, "n_topics": 30, "n_assessors": 2, "n_documents": 40, "rng": 2}
    same = novelty_like_track(**options, correlations={"assessor": 1.0})
    table = same.judgements.pivot(index="document", columns="assessor", values="relevant")
    assert (table["A1"] == table["A2"]).all()

    groups = np.kron(np.eye(2), np.ones((2, 2)))
    alike = novelty_like_track(**options, correlations={"system": groups})
    sets = {
        name: set(part["document"])
        for name, part in alike.retrieved.groupby("system", observed=True)
    }
    assert sets["S1"] == sets["S2"]
    assert sets["S3"] == sets["S4"]
    assert sets["S1"] != sets["S3"]


def test_the_correlation_of_effects_is_the_given_one():
    """Only assessors in documents differ: two judgements have the given correlation."""
    effects = {**NONE, "relevance": 0.0, "a:d": 1.0}
    track = novelty_like_track(
        n_systems=1, n_topics=50, n_documents=100, rng=3,
        effects=effects, correlations={"assessor": 0.5},
    )  # fmt: skip
    table = track.judgements.pivot(index="document", columns="assessor", values="relevant")
    both = (table["A1"] & table["A2"]).mean()
    # Both above 0: 1/4 + asin(.5) / 2π = 1/3.
    assert abs(both - 1 / 3) < 4.5 * np.sqrt(2 / 9 / len(table))


@pytest.mark.parametrize(
    ("correlations", "message"),
    [({"topic": 0.5}, "system, assessor"), ({"assessor": 1.5}, "positive semidefinite 2 × 2")],
)
def test_bad_correlations(correlations, message):
    with pytest.raises(PlanError, match=message):
        novelty_like_track(n_systems=2, n_topics=2, n_documents=8, correlations=correlations)


def test_sums_of_0_are_not_above_0():
    effects = dict.fromkeys(TRACK_EFFECTS, 0.0)
    track = novelty_like_track(n_systems=2, n_topics=2, n_documents=8, effects=effects)
    assert len(track.retrieved) == 0
    assert not track.judgements["relevant"].any()

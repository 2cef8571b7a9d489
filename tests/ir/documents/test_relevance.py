"""The model of relevance, against its own definition: pairs one by one, and known effects."""

from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.printed_tables import printed_columns
from vcomp.exceptions import DataError, EstimationError, VcompWarning
from vcomp.ir.documents.relevance import _components, polychoric_correlations

CUTS = (0.0, 0.8)


@pytest.fixture(scope="module")
def judged():
    """Judgements with holes: assessors, documents and topics of unequal numbers."""
    track = vcomp.ir.novelty_like_track(
        n_systems=2, n_topics=6, n_assessors=3, n_documents=9, cuts=CUTS, rng=3
    )
    table = track.judgements
    return table[np.random.default_rng(0).random(len(table)) < 0.8].reset_index(drop=True)


def _kind(one, two):
    """Return the kind of a pair of judgements, from 0; None of no kind."""
    by_one = one.assessor == two.assessor
    if one.topic != two.topic:
        return 3 if by_one else 4
    if one.document == two.document:
        return 2
    return 0 if by_one else 1


def _pairs(table):
    """Return the correlation and the number of pairs of each kind, pair by pair."""
    rows = list(table.itertuples())
    topics, m = sorted(set(table["topic"])), int(table["relevant"].max()) + 1
    n = table["topic"].value_counts()
    counted = np.zeros((5, len(topics), m, m))
    for one, two in combinations(rows, 2):
        place = topics.index(one.topic) if one.topic == two.topic else 0
        kind = _kind(one, two)
        counted[kind, place, one.relevant, two.relevant] += 1
        counted[kind, place, two.relevant, one.relevant] += 1
    weighted = np.zeros((5, m, m))
    for kind, tables in enumerate(counted):
        for topic, part in zip(topics, tables, strict=True):
            weight = n[topic] / part.sum() if kind < 3 and part.sum() else 1.0
            weighted[kind] += weight * part
    shares = np.bincount(table["relevant"], minlength=m) / len(table)
    return polychoric_correlations(weighted, np.tile(shares, (5, 1))), counted.sum((1, 2, 3)) / 2


def _estimates(r):
    one, two, same, by_one, by_two = r
    a, i = by_one - by_two, two - by_two
    raw = np.array([i, a, one - by_two - i - a, same - two])
    return np.array([*raw, 1.0 - by_two - raw.sum()]) / (1.0 - by_two)


def test_pairs_are_those_that_are_counted_one_by_one(judged):
    model = vcomp.ir.fit_relevance(judged)
    correlations, counts = _pairs(judged)
    np.testing.assert_array_equal(model.correlations["pairs"], counts)
    np.testing.assert_allclose(model.correlations["correlation"], correlations, atol=1e-10)
    positive = np.maximum(_estimates(correlations), 0.0)
    np.testing.assert_allclose(model.components.values, positive / positive.sum(), atol=1e-10)


def test_errors_are_a_jackknife_over_topics(judged):
    model = vcomp.ir.fit_relevance(judged)
    left_out = np.array(
        [_estimates(_pairs(judged[judged["topic"] != t])[0]) for t in judged["topic"].unique()]
    )
    n = len(left_out)
    expected = (n - 1) ** 2 / n * np.cov(left_out.T)
    np.testing.assert_allclose(model.components.cov, expected, atol=1e-9)


def test_known_effects_are_found_again():
    sizes = {"n_systems": 2, "n_topics": 150, "n_assessors": 15, "n_documents": 30}
    known = {"relevance": -0.6, "i": 0.5, "a": 0.3, "a:i": 0.4, "d": 1.0, "a:d": 0.8}
    found = []
    for seed in range(4):
        track = vcomp.ir.novelty_like_track(**sizes, effects=known, cuts=CUTS, rng=seed)
        model = vcomp.ir.fit_relevance(track.judgements)
        found.append([model.effects[name] for name in known] + [model.cuts[1]])
    mean, se = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(4)
    expected = [*known.values(), CUTS[1]]
    assert (np.abs(mean - expected) <= 6.0 * se + 1e-12).all()
    assert (se < 0.05).all()


def test_effects_and_cuts_are_on_the_scale_of_documents(judged):
    model = vcomp.ir.fit_relevance(judged)
    effects = model.effects
    assert effects["d"] == 1.0
    assert model.cuts[0] == 0.0
    sd = np.sqrt(sum(v * v for name, v in effects.items() if name != "relevance"))
    from scipy.stats import norm

    shares = np.diff([0.0, *norm.cdf((np.array(model.cuts) - effects["relevance"]) / sd), 1.0])
    np.testing.assert_allclose(shares, model.shares, rtol=1e-12)
    np.testing.assert_allclose(
        model.shares, judged["relevant"].value_counts(normalize=True).sort_index()
    )


def test_scores_are_simulated_from_the_model(judged):
    model = vcomp.ir.fit_relevance(judged)
    drawn = vcomp.simulate.simulate_effects(
        model, topic=40, document=30, assessor=4, grades=model.shares, rng=1
    )
    assert sorted(set(drawn.scores)) == [0.0, 1.0, 2.0]
    assert drawn.levels["document"].max() + 1 == 40 * 30


def _one_way(n_assessors, rule):
    track = vcomp.ir.novelty_like_track(
        n_systems=2, n_topics=40, n_assessors=n_assessors, n_documents=20, rng=5
    )
    table = track.judgements
    topic, document = table["topic"].cat.codes, table["document"].cat.codes
    return table[rule(topic, document, table["assessor"].cat.codes)]


@pytest.mark.parametrize(
    ("rule", "message", "zero"),
    [
        (lambda t, d, a: a == 0, "one assessor judged everything", ["assessor", "assessor:topic"]),
        (
            lambda t, d, a: a == t % 4,
            "no topic was judged by two assessors.*; no document was judged by two assessors",
            ["assessor:topic", "Residual"],
        ),
        (lambda t, d, a: a == d % 4, "no document was judged by two assessors", ["Residual"]),
    ],
)
def test_what_cannot_be_separated_is_said(rule, message, zero):
    with pytest.warns(VcompWarning, match=message):
        model = vcomp.ir.fit_relevance(_one_way(4, rule))
    values = dict(zip(model.components.names, model.components.values, strict=True))
    assert [name for name in zero if values[name] == 0.0] == zero
    assert sum(values.values()) == pytest.approx(1.0, rel=1e-12)
    assert message.split(".*")[0] in model.notes[0].lower()
    # What is 0 because it cannot be separated was not set to it.
    assert not set(zero) & set(" ".join(model.notes[1:]).replace(".", "").replace(",", "").split())
    assert ("1 assessor>" if model.sizes["assessors"] == 1 else "4 assessors>") in repr(model)
    assert model.notes[0] in " ".join(str(model.summary()).split())


@pytest.mark.parametrize("topic", [0, 7])
def test_what_one_topic_tells_is_known(topic):
    """Its documents were judged by all assessors, those of the others by one of them each."""
    model = vcomp.ir.fit_relevance(_one_way(4, lambda t, d, a: (t == topic) | (a == d % 4)))
    assert "judged" not in " ".join(model.notes)
    assert np.isfinite(model.correlations["correlation"]).all()


def test_assessors_of_one_topic_each():
    table = _one_way(2, lambda t, d, a: a < 2).copy()
    table["assessor"] = table["assessor"].astype(str) + table["topic"].astype(str)
    with pytest.warns(VcompWarning, match="no assessor judged two topics"):
        model = vcomp.ir.fit_relevance(table)
    assert model.components.values[1] == 0.0


def test_the_order_of_rows_and_the_names_of_columns_change_nothing(judged):
    names = {"assessor": "by", "topic": "query", "document": "text", "relevant": "grade"}
    shuffled = judged.sample(frac=1.0, random_state=1).rename(columns=names)
    model, other = vcomp.ir.fit_relevance(judged), vcomp.ir.fit_relevance(shuffled, **names)
    np.testing.assert_allclose(other.components.values, model.components.values, atol=1e-12)
    assert other.components.names == ("query", "by", "by:query", "query:text", "Residual")


def test_grades_may_be_any_numbers(judged):
    plain = vcomp.ir.fit_relevance(judged)
    other = vcomp.ir.fit_relevance(judged.assign(relevant=judged["relevant"] * 2.5 - 1.0))
    assert other.grades == (-1.0, 1.5, 4.0)
    np.testing.assert_array_equal(other.components.values, plain.components.values)


def test_true_and_false_among_objects_are_grades(judged):
    plain = judged.assign(relevant=judged["relevant"] > 0)
    model, other = (
        vcomp.ir.fit_relevance(plain.assign(relevant=plain["relevant"].astype(kind)))
        for kind in (bool, object)
    )
    np.testing.assert_array_equal(other.components.values, model.components.values)


def test_what_it_prints(judged):
    model = vcomp.ir.fit_relevance(judged)
    n = judged.groupby(["topic", "document"], observed=True).ngroups
    assert repr(model) == (
        f"<Relevance of {len(judged)} judgements: 6 topics, {n} documents, 3 assessors>"
    )
    text = str(model)
    assert text == str(model.summary())
    assert "<table" in model._repr_html_()
    assert f"Judgements: {len(judged)}" in text
    assert "topic:document" in text
    assert f"{100 * (judged['relevant'] == 0).mean():.1f} %" in text
    printed, made = printed_columns(model.summary(), 1), model.components
    assert printed["var. comp."] == [f"{v:.3f}" for v in made.values]
    assert printed["std. err."] == [f"{v**0.5:.3f}" for v in np.diag(made.cov)]
    assert printed["SD"] == [f"{v**0.5:.3f}" for v in made.values]


def _changed(judged, **columns):
    return judged.assign(**columns)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"relevant": 1}, "holds one value"),
        ({"relevant": "yes"}, "must hold grades"),
        ({"relevant": np.inf}, "not finite"),
        ({"topic": "one"}, "judged twice by assessor|1 topics"),
    ],
)
def test_judgements_that_are_refused(judged, change, message):
    with pytest.raises(DataError, match=message):
        vcomp.ir.fit_relevance(judged.assign(**change))


def test_a_few_topics_many_grades_and_single_documents(judged):
    with pytest.raises(DataError, match="of 2 topics"):
        vcomp.ir.fit_relevance(judged[judged["topic"].isin(["T1", "T2"])])
    with pytest.raises(DataError, match="values; relevance has 2 to 10 grades"):
        vcomp.ir.fit_relevance(judged.assign(relevant=np.arange(len(judged)) % 12))
    single = judged.drop_duplicates(["topic"])
    with pytest.raises(DataError, match="no topic has two documents"):
        vcomp.ir.fit_relevance(single.assign(relevant=np.arange(len(single)) % 2))


def test_relevance_that_is_not_of_documents():
    rng = np.random.default_rng(0)
    t, d, a = (axis.ravel() for axis in np.indices((10, 8, 2)))
    grades = np.where(a == 0, d % 2, 1 - d % 2)
    table = pd.DataFrame({"topic": t, "document": d, "assessor": a, "relevant": grades})
    with pytest.raises(EstimationError, match="no more alike"):
        vcomp.ir.fit_relevance(table.sample(frac=1.0, random_state=rng.integers(9)))


@pytest.mark.parametrize("known", list(product([True, False], repeat=5)))
def test_components_add_up_whatever_is_known(known):
    """Those of pairs that do not occur are in others; some pairs are needed of all."""
    one, two, _, by_one, by_two = known
    if not ((one or two) and (by_one or by_two)):
        return
    r = np.where(known, [0.65, 0.4, 0.7, 0.25, 0.1], np.nan)
    found = _components(r)
    assert found.sum() == pytest.approx(1.0, rel=1e-12)
    assert np.isfinite(found).all()
    if all(known):
        np.testing.assert_allclose(found, _estimates(r), rtol=1e-12)
    nothing = r[4] if by_two else r[3]
    i, a, ai, *_ = found * (1.0 - nothing)
    if one:  # what judgements of one assessor on a topic have in common
        assert i + a + ai == pytest.approx(r[0] - nothing, abs=1e-12)
    if two:
        assert i == pytest.approx(r[1] - nothing, abs=1e-12)


def test_documents_that_differ_in_nothing_have_no_relevance():
    """The second assessor gives both documents of a topic one grade: pairs are alike in all."""
    rows = [(t, d, a, d if a == 0 else t % 2) for t in range(6) for d in (0, 1) for a in (0, 1)]
    table = pd.DataFrame(rows, columns=["topic", "document", "assessor", "relevant"])
    with pytest.raises(EstimationError, match="are no more alike than those of two documents"):
        vcomp.ir.fit_relevance(table)


# Qrels -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["files", "dict of files", "folder", "in memory"])
def test_qrels_are_the_table_of_their_judgements(judged, form, tmp_path):
    """Each set of qrels is an assessor, as in document_universe."""
    sets = {}
    for name, rows in judged.groupby("assessor", observed=True):
        lines = zip(rows["topic"], rows["document"], rows["relevant"], strict=True)
        path = tmp_path / f"qrels.{name}"
        path.write_text("".join(f"{t} 0 {d} {r}\n" for t, d, r in lines), encoding="utf-8")
        sets[name] = path
    nested = {
        str(name): {
            str(t): dict(zip(rows["document"].astype(str), rows["relevant"], strict=True))
            for t, rows in of_one.groupby("topic", observed=True)
        }
        for name, of_one in judged.groupby("assessor", observed=True)
    }
    forms = {
        "files": [*sets.values()],
        "dict of files": sets,
        "folder": tmp_path,
        "in memory": nested,
    }
    found, expected = vcomp.ir.fit_relevance(forms[form]), vcomp.ir.fit_relevance(judged)
    assert found.sizes == expected.sizes
    np.testing.assert_allclose(found.components.values, expected.components.values, rtol=1e-12)


def test_one_set_of_qrels_is_one_assessor(judged, tmp_path):
    """What the warning advises, the judgements of a second assessor, separates the components."""
    first, second = sorted(set(judged["assessor"]))[:2]
    paths = {}
    for name in (first, second):
        rows = judged[judged["assessor"] == name]
        paths[name] = tmp_path / f"{name}.txt"
        lines = zip(rows["topic"], rows["document"], rows["relevant"], strict=True)
        text = "".join(f"{t} 0 {d} {r}\n" for t, d, r in lines)
        paths[name].write_text(text, encoding="utf-8")
    with pytest.warns(VcompWarning, match="judgements .* by a second assessor, as .* other qrels"):
        one = vcomp.ir.fit_relevance(paths[first])
    assert one.sizes["assessors"] == 1
    assert not any("judged" in note for note in vcomp.ir.fit_relevance(paths).notes)

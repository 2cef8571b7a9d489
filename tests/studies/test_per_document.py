"""Set-based measures and document scores side by side: each is what its own G-study says."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import vcomp
from vcomp.exceptions import DataError, EstimationError, PlanError, VcompWarning
from vcomp.ir.documents.document_files import document_universe
from vcomp.ir.simulate.effect_draws import novelty_like_track
from vcomp.studies.per_document import _kind_of_assessors, _labelled


@pytest.fixture(scope="module")
def track():
    return novelty_like_track(n_systems=6, n_topics=8, n_documents=30, rng=2)


@pytest.fixture(scope="module")
def universe(track):
    return document_universe(track.retrieved, track.judgements)


def test_nested_assessors_have_names_of_their_own_in_every_topic():
    rows = pd.DataFrame({"topic": list("tsutts"), "assessor": list("BCABAA")}, dtype="category")
    found = _labelled(rows, "nested")
    assert found["assessor"].tolist() == ["t/B", "s/C", "u/A", "t/B", "t/A", "s/A"]
    assert found["assessor"].cat.categories.tolist() == ["s/A", "s/C", "t/A", "t/B", "u/A"]
    assert found["topic"].equals(rows["topic"])


SIZES = {"topic": [20, 50], "assessor": [1, 3]}


@pytest.fixture(scope="module")
def compared(universe):
    return vcomp.ir.per_document_study(universe, **SIZES, document=100)


def by_facets(components):
    return {frozenset(name.split(":")): value for name, value in components.items()}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["reml", "anova"])
def test_each_is_what_its_g_study_says(universe, compared, method):
    if method != "reml":
        compared = vcomp.ir.per_document_study(universe, method=method, **SIZES, document=100)
    assert list(compared.results) == ["F", "utility", "normalized_utility", "per document"]
    sets = universe.set_measures()
    for name in ("F", "utility", "normalized_utility"):
        own = vcomp.gstudy("system x assessor x topic", sets, name, method=method)
        found = by_facets(compared.results[name].vcomp)
        for term, value in by_facets(own.vcomp).items():
            assert_allclose(found[term], value, rtol=1e-6, atol=1e-12)
        plan = own.dstudy("system x assessor x topic", **SIZES).table
        mine = compared.studies[name].table
        assert_allclose(mine[["Erho2", "Phi"]], plan[["Erho2", "Phi"]], rtol=1e-6)
    design = "system x assessor x (document:topic)"
    own = vcomp.gstudy(design, universe.scores(), "score", method=method)
    found = by_facets(compared.results["per document"].vcomp)
    for term, value in by_facets(own.vcomp).items():
        assert_allclose(found[term], value, rtol=1e-6, atol=1e-12)
    plan = own.dstudy(design, **SIZES, document=100).table
    mine = compared.studies["per document"].table
    assert_allclose(mine[["Erho2", "Phi"]], plan[["Erho2", "Phi"]], rtol=1e-6)


def test_error_variances_by_the_formulas(compared):
    """Bodoff's (2008) p × a × (d:i): every component over the sizes of its facets but p."""
    v = by_facets(compared.results["per document"].vcomp.clip(lower=0))
    for row in compared.studies["per document"].table.to_dict("records"):
        n = {"topic": row["topic"], "assessor": row["assessor"], "document": row["document"]}
        relative = absolute = 0.0
        for term, value in v.items():
            facets = term if "Residual" not in term else {"system", "assessor", "document"}
            if facets == {"system"}:
                continue
            # Documents are nested in topics, so that there are n_i n_d of them.
            over = set(facets) - {"system"} | ({"topic"} if "document" in facets else set())
            share = value / np.prod([n[f] for f in over])
            absolute += share
            relative += share if "system" in facets else 0.0
        assert_allclose([row["rel_err_var"], row["abs_err_var"]], [relative, absolute], rtol=1e-12)


def test_a_table_of_both(compared):
    table = compared.table
    assert table["measure"].tolist() == [m for m in compared.results for _ in range(4)]
    sets = table["measure"] != "per document"
    assert table.loc[sets, "document"].isna().all()
    assert (table.loc[~sets, "document"] == 100).all()
    assert table.loc[sets, "nobs"].eq(6 * 8 * 2).all()
    components = compared.components.set_index("measure")
    assert len(components.loc["F"]) == 7
    assert len(components.loc["per document"]) == 11


def test_the_page_fits(compared):
    page = str(compared)
    assert max(map(len, page.splitlines())) < 120
    assert page.index("system:topic:document") < page.index("Residual")
    assert "per document" in page


def test_one_measure_and_other_scores(universe):
    found = vcomp.ir.per_document_study(universe, measures="precision", scores="accuracy")
    assert list(found.results) == ["precision", "per document"]
    own = vcomp.gstudy(
        "system x assessor x (document:topic)", universe.scores("accuracy"), "score"
    )
    assert_allclose(found.results["per document"].vcomp.sum(), own.vcomp.sum(), rtol=1e-6)
    none = vcomp.ir.per_document_study(universe, measures=[])
    assert list(none.results) == ["per document"]


def test_documents_that_differ_between_assessors(track):
    few = track.retrieved[track.retrieved["system"].isin(["S1", "S2", "S3"])]
    few = few.assign(system=few["system"].astype(str))
    universe = document_universe(few, track.judgements, universe="assessor")
    rows = universe.scores()
    assert len(rows) < 3 * 2 * len(universe.documents)
    found = vcomp.ir.per_document_study(universe, measures="F", topic=50, document=30)
    own = vcomp.gstudy("system x assessor x (document:topic)", rows, "score")
    mine = by_facets(found.results["per document"].vcomp)
    for term, value in by_facets(own.vcomp).items():
        assert_allclose(mine[term], value, rtol=1e-5, atol=1e-9)


def test_assessors_nested_in_topics(track):
    judged = track.judgements.astype({"topic": str, "assessor": str})
    judged = judged.assign(assessor=judged["topic"] + judged["assessor"])
    universe = document_universe(track.retrieved.astype({"topic": str}), judged)
    found = vcomp.ir.per_document_study(universe, measures="F", topic=50, assessor=2, document=30)
    assert str(found.studies["F"].plan.design) == "system x (assessor:topic)"
    own = vcomp.gstudy("system x (assessor:topic)", universe.set_measures(), "F")
    mine = by_facets(found.results["F"].vcomp)
    for term, value in by_facets(own.vcomp).items():
        assert_allclose(mine[term], value, rtol=1e-6, atol=1e-12)
    per_document = found.results["per document"]
    assert {frozenset(t.split(":")) for t in per_document.vcomp.index} == {
        frozenset(t.split()) for t in (
            "system", "topic", "topic assessor", "topic document", "system topic",
            "system topic assessor", "system topic document", "topic assessor document",
            "Residual",
        )
    }  # fmt: skip
    # The same when it is asked for, of assessors who judged all topics.
    crossed = document_universe(track.retrieved, track.judgements)
    asked = vcomp.ir.per_document_study(
        crossed, measures="F", assessors="nested", topic=50, assessor=2, document=30
    )
    assert_allclose(asked.table["Erho2"], found.table["Erho2"], rtol=1e-6)


def test_one_assessor_a_topic(track):
    judged = track.judgements[track.judgements["assessor"] == "A1"]
    universe = document_universe(track.retrieved, judged)
    found = vcomp.ir.per_document_study(universe, measures="F", topic=50, document=30)
    own = vcomp.gstudy("system x (document:topic)", universe.scores(), "score")
    table = own.dstudy(topic=50, document=30).table
    assert_allclose(found.table["Erho2"].iloc[1], table["Erho2"].item(), rtol=1e-6)
    assert "assessor" not in found.table
    with pytest.raises(PlanError, match="'assessor' has no size here, with one assessor for each"):
        vcomp.ir.per_document_study(universe, assessor=2)
    for given in ("crossed", "nested"):
        with pytest.raises(PlanError, match="needs several assessors for some topic"):
            vcomp.ir.per_document_study(universe, assessors=given)


def test_what_is_not_normalised_is_told_where_it_matters():
    track = novelty_like_track(n_systems=4, n_topics=6, n_documents=30, rng=2)
    judged = track.judgements
    nothing = (judged["topic"] == "T1") & (judged["assessor"] == "A1")
    universe = document_universe(track.retrieved, judged.assign(
        relevant=judged["relevant"] & ~nothing
    ))  # fmt: skip
    vcomp.ir.per_document_study(universe, measures=["F", "utility"])
    with pytest.warns(VcompWarning) as heard:
        vcomp.ir.per_document_study(universe, measures="scaled_utility")
    words = " ".join(str(w.message) for w in heard)
    assert "nothing is relevant by 1 of the 12 judgements" in words
    assert "4 of 48 rows" in words


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"measures": "FF"}, DataError, "'FF' is not a set-based measure"),
        ({"measures": ["utilty"]}, DataError, "did you mean 'utility'"),
        ({"measures": ["F", "F"]}, DataError, "named twice"),
        ({"measures": 3}, DataError, "measures must be a name or a list of names, not 3"),
        ({"topics": 50}, PlanError, "did you mean 'topic'"),
        ({"topic": 0}, PlanError, "measure 'F'"),
        ({"facet": "query"}, PlanError, "measure 'F'"),
        ({"goal": 2}, PlanError, "measure 'F'"),
        ({"assessors": "cross"}, PlanError, "did you mean 'crossed'"),
        ({"assessors": "none"}, PlanError, "needs one assessor for each topic"),
        ({"alpha": 5}, PlanError, "alpha must be between 0 and 1"),
        ({"beta": 0}, DataError, "beta is positive"),
        ({"scores": "f"}, DataError, "scores='f' is not known"),
        ({"method": "mle"}, EstimationError, "measure 'F'"),
    ],
)
def test_bad_options(universe, options, error, message):
    with pytest.raises(error, match=message):
        vcomp.ir.per_document_study(universe, **options)


JUDGED = {
    # assessors of each topic: what they are, and what they may be called
    "all of all": ([[0, 1], [0, 1], [0, 1]], "crossed", {"crossed", "nested"}),
    "some of all": ([[0, 1], [0], [0, 1]], "crossed", {"crossed", "nested"}),
    "others of each": ([[0, 1], [2, 3], [4]], "nested", {"nested"}),
    "one of all": ([[0], [0], [0]], "none", {"none"}),
    "one of each": ([[0], [1], [2]], "none", {"none"}),
}


@pytest.mark.parametrize("name", JUDGED)
def test_kinds_of_assessors(name):
    topics, kind, allowed = JUDGED[name]
    judged = np.concatenate(topics)
    made = SimpleNamespace(
        systems=range(4), topics=range(3), assessors=range(int(judged.max()) + 1),
        judged_starts=np.cumsum([0, *map(len, topics)]), judged_assessors=judged,
    )  # fmt: skip
    assert _kind_of_assessors(made, None) == kind
    for given in ("crossed", "nested", "none"):
        if given in allowed:
            assert _kind_of_assessors(made, given) == given
        else:
            with pytest.raises(PlanError, match=f"assessors='{given}'"):
                _kind_of_assessors(made, given)


@pytest.mark.parametrize(("systems", "topics"), [(2, 3), (3, 2), (1, 3)])
def test_few_systems_and_topics(track, systems, topics):
    names = track.retrieved["system"].unique()[:systems]
    some = {f"T{k + 1}" for k in range(topics)}
    few = track.retrieved[track.retrieved["system"].isin(names)]
    made = document_universe(
        few[few["topic"].isin(some)], track.judgements[track.judgements["topic"].isin(some)]
    )
    if min(systems, topics) < 2:
        with pytest.raises(DataError, match=r"at least two systems .* there are 1 and 3"):
            vcomp.ir.per_document_study(made)
    else:
        sizes = vcomp.ir.per_document_study(made).results["F"].gstudy().index
        assert "system:topic" in {":".join(sorted(name.split(":"))) for name in sizes}


def test_bad_universes(track, universe):
    with pytest.raises(DataError, match=r"needs a DocumentUniverse, .* not DataFrame"):
        vcomp.ir.per_document_study(track.retrieved)
    one = track.retrieved[track.retrieved["topic"] == "T1"]
    judged = track.judgements[track.judgements["topic"] == "T1"]
    with pytest.raises(DataError, match="at least two systems and two topics; there are 6 and 1"):
        vcomp.ir.per_document_study(document_universe(one, judged))
    runs = pd.DataFrame(
        [(s, t, d) for s in "abc" for t in (1, 2, 3) for d in (1, 2)],
        columns=["system", "topic", "document"],
    )
    judged = runs[runs["system"] == "a"].drop(columns="system").assign(assessor="J", relevant=1)
    with (
        pytest.warns(vcomp.VcompWarning, match="the response is constant"),
        pytest.raises(EstimationError, match=r"measure 'F': .*do not vary"),
    ):
        vcomp.ir.per_document_study(document_universe(runs, judged))

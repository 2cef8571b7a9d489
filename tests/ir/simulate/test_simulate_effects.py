"""Scores drawn from components have the covariances of their design, and its nesting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.examples import examples
from vcomp.exceptions import PlanError, VcompWarning
from vcomp.simulate import simulate_effects

PAI = {"p": 0.9, "i": 0.5, "a": 0.2, "pi": 0.4, "pa": 0.1, "ia": 0.3, "Residual": 0.6}


@pytest.fixture
def crossed():
    return vcomp.from_components(PAI)


def test_scores_add_up(crossed):
    made = simulate_effects(crossed, p=7, i=5, a=3, mean=2.0, rng=4)
    frame = made.to_frame()
    assert list(frame.columns) == ["p", "i", "a", "score"]
    assert len(frame) == 105 == len(frame[["p", "i", "a"]].drop_duplicates())
    for name in made.effects:
        facets = list(name)
        assert (frame.assign(u=made.effect(name)).groupby(facets)["u"].nunique() == 1).all()
        assert len(made.effects[name]) == frame[facets].drop_duplicates().shape[0]
    rest = made.scores - 2.0 - sum(made.effect(name) for name in made.effects)
    assert rest.std() == pytest.approx(np.sqrt(0.6), rel=0.3)  # 105 residuals
    assert np.unique(np.round(rest, 12)).size == 105


@pytest.mark.parametrize("name", ["p", "pi", "ia", "pa"])
def test_effects_have_their_variance(crossed, name):
    made = simulate_effects(crossed, p=250, i=150, a=40, rng=1)
    effects = made.effects[name]
    n = effects.size
    assert effects.var() == pytest.approx(PAI[name], rel=5 * np.sqrt(2 / n))
    assert effects.mean() == pytest.approx(0.0, abs=5 * np.sqrt(PAI[name] / n))


def test_a_fit_finds_the_components_again(crossed):
    made = simulate_effects(crossed, p=60, i=60, a=20, mean=1.0, rng=3).to_frame()
    fitted = vcomp.fit(
        "score ~ (1|p) + (1|i) + (1|a) + (1|p:i) + (1|p:a) + (1|i:a)", made, method="anova"
    )
    expected = [PAI[name] for name in ("p", "i", "a", "pi", "pa", "ia", "Residual")]
    distance = np.abs(fitted.vcomp.to_numpy() - expected) / fitted.bse_vcomp.to_numpy()
    assert distance.max() < 5


def test_new_sizes_from_a_fit():
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
    made = simulate_effects(res, sys=100, topic=200, rng=2)
    assert made.scores.size == 20_000
    again = vcomp.fit("score ~ (1|sys) + (1|topic)", made.to_frame(), method="anova")
    assert again.vcomp["Residual"] == pytest.approx(res.vcomp["Residual"], rel=0.1)


def test_documents_within_topics_of_any_number():
    nested = vcomp.from_components({"p": 0.5, "i": 0.3, "d:i": 0.7, "p:i": 0.2, "Residual": 1.0})
    per_topic = [3, 1, 4]
    made = simulate_effects(nested, p=2, i=3, d=per_topic, rng=1)
    frame = made.to_frame()
    assert len(frame) == 2 * sum(per_topic)
    assert frame.groupby("i")["d"].nunique().tolist() == per_topic
    assert frame.groupby("d")["i"].nunique().max() == 1  # a document is of one topic
    assert frame.groupby("d")["p"].nunique().min() == 2  # and judged for all systems
    assert len(made.effects["d:i"]) == 8


def test_a_crossed_facet_may_be_nested(crossed):
    made = simulate_effects(crossed, "p x (a:i)", p=4, i=5, a=2, rng=1)
    frame = made.to_frame()
    assert len(frame) == 40
    assert frame.groupby("a")["i"].nunique().max() == 1
    # An assessor that sees one topic: σ²(a) and σ²(ia) are confounded, level by level.
    assert len(made.effects["a"]) == len(made.effects["ia"]) == 10


def test_replicates():
    published = vcomp.from_components({"p": 1.0, "i": 1.0, "pi": 1.0, "Residual": 0.5})
    one = simulate_effects(published, p=3, i=4)
    several = simulate_effects(published, p=3, i=4, replicate=5)
    assert (one.scores.size, several.scores.size) == (12, 60)
    np.testing.assert_array_equal(one.effects["pi"], several.effects["pi"])


@settings(deadline=None, max_examples=examples(40))
@given(st.integers(1, 4), st.integers(1, 3), st.data())
def test_layouts_of_any_sizes(n_p, n_h, data):
    counts = data.draw(st.lists(st.integers(1, 3), min_size=n_h, max_size=n_h))
    total = sum(counts)
    inner = data.draw(st.lists(st.integers(1, 3), min_size=total, max_size=total))
    chain = vcomp.from_components({"p": 1.0, "h": 1.0, "i:h": 1.0, "d:i:h": 1.0, "Residual": 1.0})
    frame = simulate_effects(chain, p=n_p, h=n_h, i=counts, d=inner).to_frame()
    rows = [
        (p, h, i, d)
        for p in range(n_p)
        for h in range(n_h)
        for i in range(sum(counts[:h]), sum(counts[: h + 1]))
        for d in range(sum(inner[:i]), sum(inner[: i + 1]))
    ]
    found = set(frame[["p", "h", "i", "d"]].itertuples(index=False, name=None))
    assert found == {tuple(x + 1 for x in row) for row in rows}
    assert len(frame) == len(rows)


def test_seeds(crossed):
    sizes = {"p": 3, "i": 4, "a": 2}
    one, same = (simulate_effects(crossed, sizes=sizes, rng=7).scores for _ in range(2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, simulate_effects(crossed, sizes=sizes, rng=8).scores)
    larger = simulate_effects(crossed, p=3, i=9, a=2, rng=7)
    smaller = simulate_effects(crossed, sizes=sizes, rng=7)
    np.testing.assert_array_equal(larger.effects["p"], smaller.effects["p"])


def test_one_size_in_a_list_is_a_size(crossed):
    one, same = (simulate_effects(crossed, p=p, i=4, a=2, rng=7) for p in (3, [3]))
    np.testing.assert_array_equal(one.scores, same.scores)


def test_negative_components_are_told():
    published = vcomp.from_components({"p": 1.0, "i": -0.1, "Residual": 1.0})
    with pytest.warns(VcompWarning, match="set to zero: i"):
        made = simulate_effects(published, p=3, i=4)
    assert not made.effects["i"].any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"p": 3, "i": 4}, "facet 'a' has no size"),
        ({"p": 3, "i": 4, "a": 2, "topc": 1}, "no facet 'topc'"),
        ({"p": 3, "i": 4, "a": 2.5}, "size of 'a' must be a whole number"),
        ({"p": 3, "i": 4, "a": 0}, "size of 'a' must be a whole number"),
        ({"p": 3, "i": 4, "a": True}, "size of 'a' must be a whole number"),
        ({"p": 3, "i": 4, "a": "two"}, "size of 'a' must be a whole number"),
        ({"p": 3, "i": 4, "a": [2, 2]}, "'a' has 2 sizes"),
        ({"p": 3, "i": 4, "a": [[2, 2]]}, "size of 'a' must be a whole number"),
        ({"p": 3, "i": 4, "a": 2, "sizes": {"a": 2}}, "given twice"),
        ({"sizes": [1]}, "sizes is a mapping"),
        ({"p": 3, "i": 4, "a": 2, "mean": np.nan}, "mean is a finite number"),
        ({"p": 3, "i": 4, "a": 2, "mean": "0"}, "mean is a finite number"),
        ({"p": 3, "i": 4, "a": 2, "mean": None}, "mean is a finite number"),
        ({"p": 3, "i": 4, "a": 2, "response": "a"}, "response='a' is a facet"),
        ({"p": 3, "i": 4, "a": 2, "response": 3}, "response= is the name of a column, not 3"),
        ({"p": 3, "i": 4, "a": 2, "design": "p x i"}, "the components have a, i, p"),
        ({"p": 10**6, "i": 10**6, "a": 10**3}, "use fewer levels"),
    ],
)
def test_what_cannot_be_drawn(crossed, options, words):
    with pytest.raises(PlanError, match=words):
        simulate_effects(crossed, **options)


def test_a_component_that_is_unknown_is_named():
    known = vcomp.from_components({"p": 1.0, "i": 0.2, "Residual": 0.5}).components
    with pytest.raises(PlanError, match="component 'i' is nan"):
        simulate_effects(replace(known, values=np.array([1.0, np.nan, 0.5])), p=3, i=4)


@pytest.mark.parametrize(
    ("source", "what"), [(None, "None"), ({"a": 1.0}, "dict"), ("p x i", "str")]
)
def test_what_has_no_components(source, what):
    with pytest.raises(PlanError, match=rf"source is a fit or components, .* not {what}$"):
        simulate_effects(source, a=3)


def test_what_is_nested_cannot_be_crossed():
    nested = vcomp.from_components({"p": 1.0, "i": 1.0, "a:i": 1.0, "Residual": 1.0})
    with pytest.raises(PlanError, match="write a:i"):
        simulate_effects(nested, "p x i x a", p=2, i=2, a=2)


def test_effects_are_asked_for_by_name(crossed):
    made = simulate_effects(crossed, p=2, i=2, a=2)
    with pytest.raises(PlanError, match="no effects of 'Residual' are kept"):
        made.effect("Residual")


def test_memory_is_a_small_multiple_of_the_result(crossed):
    import tracemalloc

    sizes = {"p": 40, "i": 250, "a": 5}
    simulate_effects(crossed, **sizes)
    tracemalloc.start()
    made = simulate_effects(crossed, **sizes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    result = made.scores.nbytes + sum(codes.nbytes for codes in made.levels.values())
    assert result == 50_000 * (8 + 3 * 4)
    assert peak < 2.5 * result


def test_scores_that_do_not_fit_are_refused_before_they_are_drawn(crossed):
    with pytest.raises(PlanError, match=r"scores need .* are free; use fewer levels"):
        simulate_effects(crossed, p=1_000, i=1_000, a=2_000)
    with pytest.raises(PlanError, match="are more than 2,147,483,647; use fewer levels"):
        simulate_effects(crossed, p=10**6, i=10**6, a=2)

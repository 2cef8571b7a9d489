"""Sums of parts of the rows are those of the whole; what does not belong together is not added."""

import datetime
import itertools
from dataclasses import replace
from typing import cast

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import UNBALANCED, unbalanced
from tests.helpers.examples import examples
from vcomp import AccumulatedStatistics, accumulate
from vcomp.formula import parse
from vcomp.statistics.batches import restated
from vcomp.statistics.batches.cell_sums import dense_places
from vcomp.statistics.batches.collapsed_cells import PartSums

FORMULA = "score ~ (1|sys) + (1|topic)"


def data():
    return vcomp.datasets.load("bodoff2007_alpha")


def days():
    return [datetime.date(2026, 1, day) for day in range(1, 6)]


def same(statistics, formula, frame, tolerance=1e-11):
    kept, found = vcomp.fit(formula, frame), statistics.fit()
    scale = kept.vcomp.abs().max()
    np.testing.assert_allclose(found.vcomp, kept.vcomp, rtol=tolerance, atol=tolerance * scale)
    np.testing.assert_allclose(found.llf, kept.llf, rtol=tolerance, atol=1e-11)
    assert str(statistics.design) == str(kept.design)


@settings(deadline=None, max_examples=examples(30))
@given(UNBALANCED, st.integers(1, 5), st.booleans(), st.integers(0, 2**32 - 1))
def test_any_partition_of_the_rows_adds_up_to_the_whole(design, n_parts, has_covariate, seed):
    formula, frame = unbalanced(*design)
    rng = np.random.default_rng(seed)
    frame = frame.assign(x=rng.normal(size=len(frame)) + 10, y=frame["y"] + 100)
    if has_covariate:
        formula = formula.replace("~", "~ x +")
    part_of = rng.integers(0, n_parts, len(frame))
    parts = [accumulate(formula, frame[part_of == k]) for k in rng.permutation(np.unique(part_of))]
    whole, found = accumulate(formula, frame)._sums, sum(parts)._sums
    assert found.coding.survey.n == len(frame)
    for one, other in zip(found.coding.survey.facets, whole.coding.survey.facets, strict=True):
        assert one.levels.equals(other.levels)
        np.testing.assert_array_equal(one.counts, other.counts)
    assert found.coding.survey.determined.keys() == whole.coding.survey.determined.keys()
    (places, one), (expected, other) = found.table.filled(), whole.table.filled()
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(one.counts, other.counts)
    scale = np.abs(frame["y"]).max()
    for at, centre in ((one, found.coding.centre), (other, whole.coding.centre)):
        at.means[0] += centre.origin
    np.testing.assert_allclose(one.means, other.means, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(one.within, other.within, rtol=1e-12, atol=1e-12 * scale**2)


def numbered(frame):
    return frame.assign(topic=frame["topic"].astype("category").cat.codes.astype(np.int64))


def shifted(frame, by, kind):
    return frame.assign(topic=frame["topic"].to_numpy().astype(kind) + kind(by))


KINDS = {
    "text": lambda frame: frame.assign(topic="t" + frame["topic"].astype(str)),
    "numbers": lambda frame: frame,
    "truth values": lambda frame: frame.assign(topic=frame["topic"] > 0),
    "dates": lambda frame: frame.assign(topic=np.array(days(), object)[frame["topic"]]),
    "times without a zone": lambda frame: frame.assign(
        topic=pd.to_datetime(days())[frame["topic"]]
    ),
    "times with a zone": lambda frame: frame.assign(
        topic=pd.to_datetime(days()).tz_localize("UTC")[frame["topic"]]
    ),
}


@pytest.mark.parametrize(
    ("kinds", "stored"), alternately(itertools.permutations(KINDS, 2), False, True), ids=str
)
def test_levels_of_which_none_can_be_the_same(kinds, stored, tmp_path):
    one, other = kinds
    made = [accumulate(FORMULA, KINDS[kind](numbered(data()))) for kind in (one, other)]
    if stored:
        made[0].save(tmp_path / "a")
        made[0] = AccumulatedStatistics.load(tmp_path / "a")
    words = f"levels of facet 'topic' are {one} in one of the two and {other} in the other"
    with pytest.raises(vcomp.DataError, match=words):
        made[0] + made[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (shifted(numbered(data()), 2**53, np.int64), shifted(numbered(data()), 0.5, np.float64)),
        (numbered(data()), shifted(numbered(data()), 2**63, np.uint64)),
    ],
    ids=["fractions", "beyond 2**63"],
)
def test_long_whole_numbers_are_not_rounded(one, other):
    words = r"facet 'topic' has whole numbers beyond 2\*\*53 .* read both as text"
    for pair in ((one, other), (other, one)):
        with pytest.raises(vcomp.DataError, match=words):
            accumulate(FORMULA, pair[0]) + accumulate(FORMULA, pair[1])
        same(accumulate(FORMULA, pair[0]) + accumulate(FORMULA, pair[0]), FORMULA, pd.concat(
            [pair[0], pair[0]]))  # fmt: skip


def test_whole_numbers_and_fractions_are_the_same_levels_where_they_are_equal():
    one = numbered(data())
    other = one.assign(topic=one["topic"] / 2.0, score=one["score"] ** 2)
    for parts in ((one, other), (other, one)):
        same(sum(accumulate(FORMULA, part) for part in parts), FORMULA, pd.concat(parts))


@pytest.mark.parametrize(
    ("formula", "other"),
    [
        ("score ~ (1|sys) + (1|topic)", "score ~ (1|topic) + (1|sys)"),
        ("score ~ (1|sys*topic)", "score~1+(1|topic)+(1|topic:sys)+(1|sys)"),
        ("score ~ x + (1|topic/doc) + (1|sys)", "score ~ x + (1|sys) + (1|doc:topic) + (1|topic)"),
    ],
)
def test_the_order_of_terms_is_no_difference(formula, other):
    rng = np.random.default_rng(1)
    frame = vcomp.datasets.load("docsearch").head(600)
    frame["doc"] = frame["topic"] + rng.choice([" a", " b"], 600)
    frame["x"] = rng.normal(size=600)
    first = rng.random(600) < 0.5
    one, rest = frame[first], frame[~first]
    made = accumulate(formula, one) + accumulate(other, rest)
    assert made.formula == formula
    same(made, formula, frame, 1e-10)
    same(accumulate(other, one) + made, other, pd.concat([one, frame]), 1e-10)


def test_factors_in_another_order():
    """The first level is the one that others are compared with."""
    g = ["u", "v", "w", "v", "u"] * 3
    one = data().assign(g=pd.Categorical(g, ["u", "v", "w"]))
    other = data().assign(g=pd.Categorical(g, ["w", "v", "u"]))
    formula = "score ~ g + (1|sys) + (1|topic)"
    words = r"'g' .* its levels in another order .* \('u' < 'v' < 'w' and 'w' < 'v' < 'u'\)"
    with pytest.raises(vcomp.DataError, match=words):
        accumulate(formula, one) + accumulate(formula, other)
    another = data().assign(g=pd.Categorical(["c", "b"] * 7 + ["u"], ["u", "c", "b"]))
    with pytest.raises(vcomp.DataError, match=r"'g' .* \('v', 'w', 'c', 'b'\), and so other"):
        accumulate(formula, one) + accumulate(formula, another)
    formula = "score ~ C(k) + (1|sys) + (1|topic)"
    three, four = (data().assign(k=np.arange(15) % k) for k in (3, 4))
    with pytest.raises(vcomp.DataError, match=r"other columns \(C\(k\)\[T.3\] in one of the two"):
        accumulate(formula, three) + accumulate(formula, four)


def test_sums_of_complete_cells_are_not_added():
    """Their cells are gone, so that those of other rows have no place: on either side of the +."""
    cells = accumulate(FORMULA, data())._sums
    collapsed = replace(cells, collapsed=cast(PartSums, object()))
    for one, other in ((collapsed, cells), (cells, collapsed), (collapsed, collapsed)):
        with pytest.raises(vcomp.DataError, match="sums of complete cells cannot be added"):
            _ = one + other
    assert (cells + cells).coding.survey.n == 2 * cells.coding.survey.n


def test_five_levels_of_a_factor_are_named():
    """More are only hinted at; five are named without a hint at others."""
    formula = "score ~ g + (1|sys) + (1|topic)"
    for n, shown in ((5, "'a' < 'b' < 'c' < 'd' < 'e' and"), (6, "'d' < 'e' < … and")):
        levels = list("abcdef"[:n])
        g = np.resize(levels, 15)
        one = data().assign(g=pd.Categorical(g, levels))
        other = data().assign(g=pd.Categorical(g, levels[::-1]))
        with pytest.raises(vcomp.DataError, match=shown):
            accumulate(formula, one) + accumulate(formula, other)


@pytest.mark.parametrize(
    ("fixed", "constant"),
    [
        ("1", [1.0]),
        ("x", [1.0, 0.0]),
        ("0 + C(f)", [1.0, 1.0, 1.0]),
        ("0 + C(f) + x", [1.0, 1.0, 1.0, 0.0]),
        ("0 + x", [0.0]),
        ("0 + two", [0.5]),
        ("0 + two + x", [0.5, 0.0]),
        ("0 + u + w", [1.0, 1.0]),
        ("0 + of_part", [0.0]),
        ("of_part", [1.0, 0.0]),
        ("of_one", [1.0, 0.0]),
        ("0 + of_one", [0.0]),
        ("0 + of_part + other", [0.2, 0.2]),
        ("0 + x + x2", [0.0, 0.0]),
        ("0", []),
    ],
)
def test_the_constant_of_all_rows_is_found_from_their_cells(fixed, constant):
    """Of columns that are constant in each part, or whose sum is constant in all rows."""
    rng = np.random.default_rng(5)
    n = 36
    frame = pd.DataFrame({"g": np.arange(n) % 4, "h": np.arange(n) // 12, "f": np.arange(n) % 3})
    frame["x"] = 30.0 + rng.normal(size=n)
    frame = frame.assign(two=2.0, u=rng.integers(0, 2, n), x2=frame["x"] + 1e-3 * frame["g"])
    part = rng.permutation(np.arange(n) % 2)
    frame = frame.assign(w=1 - frame["u"], of_part=2.0 + part, other=3.0 - part)
    frame["of_one"] = 1.0 + frame["u"] * (part == 0)  # constant in the other part
    frame["y"] = 1000.0 + rng.normal(size=n)
    formula = f"y ~ {fixed} + (1|g) + (1|h)"
    parts = [accumulate(formula, frame[part == k]) for k in (0, 1)]
    for k, sums in enumerate(parts):
        own = vcomp.VarianceComponentsModel(formula, frame).exog[part == k]
        np.testing.assert_allclose(sums._sums.x_mean(), own.mean(axis=0), rtol=1e-12)
    for found in (parts[0] + parts[1], parts[1] + parts[0]):
        coding, table = found._sums.coding, found._sums.table.filled()[1]
        centre = coding.centre
        np.testing.assert_allclose(centre.constant, constant, rtol=1e-9, atol=1e-9)
        assert centre.origin == pytest.approx(frame["y"].mean() if any(constant) else 0.0)
        X = vcomp.VarianceComponentsModel(formula, frame).exog
        fixed_values = (coding.constants + centre.x_origin)[~coding.varying]
        np.testing.assert_array_equal(fixed_values, X[0, ~coding.varying])
        own = np.array(constant) == 0.0
        means = X.mean(axis=0) if any(constant) else np.zeros(X.shape[1])
        np.testing.assert_allclose(centre.x_origin, np.where(own, means, 0.0), rtol=1e-12)
        # Cells about these origins have the total of y and of the columns that vary.
        total = table.means @ table.counts
        assert total[0] == pytest.approx((frame["y"] - centre.origin).sum(), abs=1e-8)
        varying = (X - centre.x_origin)[:, coding.varying]
        np.testing.assert_allclose(total[1:], varying.sum(axis=0), rtol=1e-9, atol=1e-8)


def test_a_table_of_all_cells_has_at_most_two_for_each_row():
    """However many cells there are if these are few."""
    assert dense_places(2**22, 1)
    assert not dense_places(2**22 + 1, 1)
    for n in (5, 3_000_000):
        assert dense_places(2 * n, n, few=9)
        assert not dense_places(2 * n + 1, n, few=9)
    assert dense_places(9, 1, few=9)


def test_sums_of_few_rows_in_many_cells_keep_the_cells_that_have_rows():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({f: rng.integers(60, size=400) for f in ("sys", "topic")})
    frame["score"] = rng.normal(size=400) + rng.normal(size=60)[frame["sys"]]
    parts = [accumulate(FORMULA, frame[i : i + 40]) for i in range(0, 400, 40)]
    total = sum(parts)
    n_cells = len(frame[["sys", "topic"]].drop_duplicates())
    assert total._sums.table.counts.size == n_cells
    assert accumulate(FORMULA, frame)._sums.table.counts.size == n_cells
    same(total, FORMULA, frame)


@pytest.mark.parametrize("n", [60, 400])
def test_sums_of_some_of_the_facets_are_those_of_their_own_cells(n):
    """Of three facets in another order; with 400 levels few of all cells have rows."""
    rng = np.random.default_rng(3)
    rows = pd.DataFrame({facet: rng.integers(n, size=n) for facet in "abcd"})
    again = rows.assign(d=rows["d"].sample(frac=1.0, random_state=1).to_numpy())
    frame = pd.concat([rows, rows, again]).assign(y=rng.normal(size=3 * n))
    formula = "y ~ (1|c) + (1|a) + (1|b)"
    sums = accumulate("y ~ (1|a) + (1|b) + (1|c) + (1|d)", frame)._sums
    found = restated(sums, parse(formula), {facet: facet for facet in "abc"})
    (places, one), (expected, other) = (
        made.table.filled() for made in (found, accumulate(formula, frame)._sums)
    )
    assert (found.table.places is None) == (n == 60)
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(one.counts, other.counts)
    np.testing.assert_allclose(one.means, other.means, atol=1e-13)
    np.testing.assert_allclose(one.within, other.within, rtol=1e-12)
    np.testing.assert_allclose(one.powers, other.powers, rtol=1e-12, atol=1e-13)


def test_a_crossed_facet_is_found_in_any_sums_of_its_cells(tmp_path):
    """The others are crossed, with few of their combinations."""
    rng = np.random.default_rng(4)
    pairs = pd.DataFrame({"b": rng.integers(20, size=40), "c": rng.integers(15, size=40)})
    frame = pairs.drop_duplicates().merge(pd.DataFrame({"a": range(5)}), how="cross")
    frame["score"] = rng.normal(size=len(frame)) + rng.normal(size=20)[frame["b"]]
    formula = "score ~ (1|a) + (1|b) + (1|c)"
    whole = accumulate(formula, frame)
    whole.save(tmp_path / "stored.vcomp")
    stored = AccumulatedStatistics.load(tmp_path / "stored.vcomp")
    added = accumulate(formula, frame[::2]) + accumulate(formula, frame[1::2])
    for statistics in (whole, stored, added):
        assert statistics.fit().engine == vcomp.fit(formula, frame).engine
        same(statistics, formula, frame)

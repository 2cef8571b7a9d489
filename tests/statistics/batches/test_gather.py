"""Rows in batches come to the same design, estimates and summaries as rows in memory."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patsy import EvalEnvironment

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import DESIGNS, GRIDS, gridded, unbalanced
from tests.helpers.examples import examples
from tests.helpers.readings import accumulated, model_of
from vcomp.data.reading import Reading
from vcomp.statistics.batches import finish
from vcomp.statistics.batches import passes as module
from vcomp.statistics.batches.survey import Survey

FIXED = ["x + g", "0 + g", "0 + x", "np.log(x) + b:g", "standardize(x) + I(x**2)"]


def both(formula, data, rows, **options):
    """Return the model of rows in memory, and that of the same rows in batches."""
    # Odd batches are read again in the second pass, even ones are kept.
    n_bytes = 0.0 if rows % 2 else 2.0**28
    kept = vcomp.VarianceComponentsModel(formula, data)
    streamed = model_of(formula, data, stream=True, batch_rows=rows, kept_bytes=n_bytes, **options)
    return kept, streamed


def with_covariates(data, seed=1):
    rng = np.random.default_rng(seed)
    n = len(data)
    return data.assign(
        x=rng.normal(size=n) + 50.0, g=np.array(["u", "v", "w"])[rng.integers(0, 3, n)],
        b=rng.random(n) < 0.5,
    )  # fmt: skip


def same(kept, streamed, tolerance=1e-12, methods=("reml", "ml")):
    assert str(kept.design) == str(streamed.design)
    assert kept.design.structure == streamed.design.structure
    assert (kept.statistics.strata is None) == (streamed.statistics.strata is None)
    assert kept.nobs == streamed.nobs
    for name in ("origin", "x_origin", "constant"):
        one, other = (getattr(model.design, name) for model in (kept, streamed))
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    # An element of a design's own scale; digits are lost where a component is a small difference.
    for method in methods:
        a, b = kept.fit(method), streamed.fit(method)
        scale = np.abs(a.vcomp).max()
        np.testing.assert_allclose(b.vcomp, a.vcomp, rtol=tolerance, atol=tolerance * scale)
        np.testing.assert_allclose(b.llf, a.llf, rtol=tolerance, atol=tolerance * kept.nobs)
        np.testing.assert_allclose(b.bse_vcomp, a.bse_vcomp, rtol=1e3 * tolerance)
        np.testing.assert_allclose(b.fe_params, a.fe_params, rtol=1e2 * tolerance, atol=1e-11)


@pytest.mark.filterwarnings("ignore:.*not fully crossed:vcomp.VcompWarning")
@pytest.mark.parametrize(("name", "rows"), alternately(list(GRIDS)[::3], 7, 10_000))
def test_complete_grids(name, rows):
    formula, data = gridded(name, seed=4)
    shuffled = data.sample(frac=1.0, random_state=3)
    kept, streamed = both(formula, shuffled, rows)
    same(kept, streamed, methods=["reml" if rows == 7 else "ml"])
    assert str(kept.fit("anova").summary()) == str(streamed.fit("anova").summary())


@pytest.mark.filterwarnings("ignore:.*not fully crossed:vcomp.VcompWarning")
@pytest.mark.parametrize(("name", "rows"), alternately(DESIGNS, 7, 10_000))
def test_other_designs(name, rows):
    formula, data = unbalanced(name)
    kept, streamed = both(formula, data, rows)
    same(kept, streamed, 1e-11)
    assert str(kept.fit("anova").summary()) == str(streamed.fit("anova").summary())


@pytest.mark.parametrize(
    ("fixed", "name"),
    alternately(FIXED, "crossed", "per document", "replicated", "single cells"),
)
def test_fixed_parts(name, fixed):
    formula, data = gridded(name, seed=4)
    kept, streamed = both(formula.replace("~", f"~ {fixed} +"), with_covariates(data), 17)
    same(kept, streamed, 1e-10)


@pytest.mark.parametrize("fixed", ["1", "0 + x"])
@pytest.mark.parametrize("put_away", [False, True])
@pytest.mark.parametrize("name", ["crossed", "per document", "not nested", "replicated"])
def test_the_mean_of_the_response_and_the_squares_about_it(name, put_away, fixed):
    """Also where nothing was subtracted from a response far from zero."""
    formula, data = gridded(name, seed=4)
    response = formula.split(" ~")[0]
    y = data[response] + 1e6
    options = {"large_share": 0.0} if put_away else {}
    changed = with_covariates(data).assign(**{response: y})
    for model in both(formula.replace("~", f"~ {fixed} +"), changed, 17, **options):
        mean, squares = model._data.response_sums
        np.testing.assert_allclose(mean, y.mean(), rtol=1e-14)
        # Numbers of 1e6 have ten digits behind the point, of which differences lose one or two.
        np.testing.assert_allclose(squares, np.square(y - y.mean()).sum(), rtol=1e-8)


@pytest.mark.parametrize(
    ("mean", "fixed"), alternately([0.0, 0.01, 0.03, -0.04, 7.0], "1", "0 + x")
)
@pytest.mark.parametrize("name", ["not nested", "three facets", "nested"])
def test_squares_about_a_mean_that_is_near_the_origin_or_far(name, fixed, mean):
    """Where nothing was subtracted, squares about zero are corrected, or made again."""
    formula, data = gridded(name, seed=4) if name in GRIDS else unbalanced(name)
    data = with_covariates(data[1:] if name == "three facets" else data)
    y = (data["y"] - data["y"].mean()) / data["y"].std() + mean
    for model in both(formula.replace("~", f"~ {fixed} +"), data.assign(y=y), 17):
        found = model._data.response_sums
        np.testing.assert_allclose(found[0], y.mean(), rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(found[1], np.square(y - y.mean()).sum(), rtol=1e-12)


@pytest.mark.parametrize(("away", "is_constant"), [(0.0, True), (1e-9, True), (1e-5, False)])
def test_scores_of_cells_stand_for_rows_where_no_column_varies_in_cells(away, is_constant):
    """Up to 10⁻⁸ of its spread it is rounding of origins."""
    formula, data = gridded("unequally replicated", seed=4)
    noise = away * np.random.default_rng(2).normal(size=len(data))
    data = data.assign(x=data["xi"] / data["xi"].std() + noise)
    sums = accumulated(formula.replace("~", "~ x +"), data, stream=True, batch_rows=17)._sums
    found = finish(sums, Reading(EvalEnvironment([{}])))
    cells = found.cells_with_scores()
    assert (cells is not None) == is_constant
    if is_constant:
        moments = cells.single_scores
        y = moments.response + found.design.origin
        for power in range(5):
            total = moments.counts @ (y - 3.0) ** power
            assert total == pytest.approx(((data["y"] - 3.0) ** power).sum(), rel=1e-11)


def test_rows_that_are_gone_when_they_are_read_again():
    formula, data = gridded("replicated", seed=4)
    found = model_of(formula, data, stream=True, batch_rows=17)._data
    gone = replace(found, parts=lambda _: SimpleNamespace(total=lambda *_: None))
    with pytest.raises(vcomp.DataError, match="the fit has 36 rows, and 0 were read now"):
        gone.total(len)


def test_rows_with_other_levels_when_they_are_read_again():
    """A level without a code would count as the last one."""
    formula, data = gridded("replicated", seed=4)
    data = with_covariates(data)
    found = model_of(formula.replace("~", "~ x +"), data, stream=True)._data
    assert found.total(lambda chunk: chunk.n) == len(data)
    facet = found.design.facets[0].name
    data.loc[data[facet] == data[facet][0], facet] = 99
    with pytest.raises(vcomp.DataError, match="has a level that the design does not have: 99"):
        found.total(lambda chunk: chunk.n)


def test_passes_are_numbered(capsys):
    formula, data = gridded("replicated", seed=4)
    model_of(formula, data, stream=True, batch_rows=17, kept_bytes=0.0, progress=True)
    said = capsys.readouterr().err
    assert [f"pass {k}: 100%" in said for k in (1, 2, 3)] == [True, True, False]


def test_more_places_than_rows_fill_are_sorted():
    """A sparse design, with a table of the cells that occur."""
    formula, data = unbalanced("three facets")
    sparse = data.iloc[::2]
    same(*both(formula, sparse, 13, dense_cells=0), 1e-11)


def test_a_cell_with_more_scores_than_a_byte_counts():
    rng = np.random.default_rng(0)
    data = pd.DataFrame(
        {"a": np.arange(1200) % 3, "y": rng.normal(size=1200) + np.arange(1200) % 3}
    )
    same(*both("y ~ (1|a)", data, 500))


def test_files_in_a_folder(tmp_path):
    formula, data = gridded("per document", seed=4)
    for k, part in enumerate(np.array_split(np.arange(len(data)), 3)):
        data.iloc[part].to_parquet(tmp_path / f"part{k}.parquet")
    kept = vcomp.VarianceComponentsModel(formula, data)
    same(kept, vcomp.VarianceComponentsModel(formula, tmp_path, stream=True))
    same(kept, vcomp.VarianceComponentsModel(formula, str(tmp_path / "*.parquet"), stream=True))


def test_all_that_follows_needs_no_rows():
    formula, data = gridded("crossed", seed=4)
    kept, streamed = (m.fit() for m in both(formula, data, 11))
    pd.testing.assert_frame_equal(kept.gstudy(), streamed.gstudy(), rtol=1e-11)
    first, second = kept.design.facets
    sizes = {second: [5, 50]}
    pd.testing.assert_frame_equal(
        kept.dstudy(sizes=sizes).table, streamed.dstudy(sizes=sizes).table, rtol=1e-10
    )
    pd.testing.assert_frame_equal(
        kept.expected_tau(**sizes), streamed.expected_tau(**sizes), rtol=1e-11
    )
    pd.testing.assert_frame_equal(
        kept.random_effects[first], streamed.random_effects[first], rtol=1e-10
    )
    np.testing.assert_allclose(
        kept.bootstrap(20, rng=1).values, streamed.bootstrap(20, rng=1).values, rtol=1e-9
    )
    np.testing.assert_allclose(
        kept.jackknife(first).of(lambda v: v[:, 0]).se,
        streamed.jackknife(first).of(lambda v: v[:, 0]).se,
        rtol=1e-9,
    )
    np.testing.assert_allclose(kept.predict(data), streamed.predict(data), rtol=1e-11)
    pd.testing.assert_frame_equal(kept.universe_scores(), streamed.universe_scores(), rtol=1e-9)


@pytest.mark.parametrize("name", ["per document", "three facets", "labels start anew"])
def test_universe_scores_come_from_cells_of_one_score(name):
    formula, data = gridded(name, seed=4)
    kept, streamed = both(formula, data.sample(frac=1.0, random_state=3), 7)
    a, b = (model.fit().universe_scores() for model in (kept, streamed))
    pd.testing.assert_frame_equal(a, b, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("what", ["fittedvalues", "resid"])
def test_rows_are_not_kept(what):
    _, streamed = both(*gridded("crossed", seed=4), 11)
    with pytest.raises(vcomp.DataError, match="read in batches and are not kept"):
        getattr(streamed.fit(), what)


def test_rows_of_cells_with_several_scores_are_not_there():
    formula, data = gridded("replicated", seed=4)
    _, streamed = both(formula, data, 11)
    with pytest.raises(vcomp.DataError, match="fit the rows with stream=False"):
        streamed.fit().jackknife(streamed.design.structure.facets[0])


def test_missing_values_are_counted_over_all_batches():
    formula, data = gridded("crossed", seed=4)
    data = data.copy()
    facet = vcomp.VarianceComponentsModel(formula, data).design.structure.facets[0]
    data = data.astype({facet: object})
    data.loc[data.index[[3, 12, 15]], "y"] = np.nan
    data.loc[data.index[[12, 17]], facet] = None
    said = f"4 of {len(data)} rows have a missing value"
    with pytest.warns(vcomp.VcompWarning, match=said):
        kept = vcomp.VarianceComponentsModel(formula, data)
    with pytest.warns(vcomp.VcompWarning, match=said):
        streamed = model_of(formula, data, stream=True, batch_rows=10)
    same(kept, streamed, 1e-11)
    with pytest.raises(vcomp.DataError, match=f"{said}.*missing='drop' leaves them out"):
        model_of(formula, data, stream=True, batch_rows=10, missing="raise")


def test_what_cannot_be_used_is_refused():
    data = pd.DataFrame({"y": [1.0, 2.0, np.inf], "a": list("uvw")})
    with pytest.raises(vcomp.DataError, match="infinite in 1 of 3 rows"):
        vcomp.fit("y ~ (1|a)", data, stream=True)
    with pytest.raises(vcomp.DataError, match="missing in every row"):
        vcomp.fit("y ~ (1|a)", data.assign(y=np.nan), stream=True)
    with pytest.raises(vcomp.DataError, match="no rows"):
        vcomp.fit("y ~ (1|a)", data.iloc[:0], stream=True)
    with pytest.raises(vcomp.DataError, match="stream='yes' is not known"):
        vcomp.fit("y ~ (1|a)", data.assign(y=[1.0, 2.0, 3.0]), stream="yes")
    with pytest.raises(vcomp.DesignError, match="one level only"):
        vcomp.fit("y ~ (1|a)", data.assign(a="u", y=[1.0, 2.0, 3.0]), stream=True)


@pytest.mark.parametrize("origin", [0.0, 7.0])
@pytest.mark.parametrize(("low", "high"), [(-1000.0, 1.0), (-1.0, 1000.0)])
def test_scores_that_changed_by_more_than_rounding_are_noticed(origin, low, high):
    """A billionth of the largest distance from the origin, on average, and rounding of them."""
    n, low, high = 50, low + origin, high + origin
    survey = SimpleNamespace(n=n, low=low, high=high, total=np.longdouble(n * origin), mean=origin)
    coding = SimpleNamespace(survey=survey, centre=SimpleNamespace(origin=origin))
    for away in (0.99e-6, -0.99e-6):
        module.check_scores(coding, n * away)
    for away in (1.01e-6, -1.01e-6):
        with pytest.raises(vcomp.DataError, match="the scores changed between the passes"):
            module.check_scores(coding, n * away)


class Changing:
    """A source that gives other rows in the second pass."""

    columns, passes, n_rows, is_one_piece = ("y", "a", "b", "c"), 0, None, True

    def __init__(self, first, second):
        self.parts = {1: first, 2: second}

    def batches(self, names, rows):
        from vcomp.io import open_source

        self.passes += 1
        yield from open_source(self.parts[self.passes]).batches(names, rows)


def test_data_that_change_between_the_passes_are_noticed():
    from vcomp.formula import parse

    reading = Reading(kept_bytes=0.0)
    data = pd.DataFrame({"y": np.arange(6.0), "a": list("uuvvww")})
    other = Changing(data, data.assign(a=list("uuvvwx")))
    with pytest.raises(vcomp.DataError, match="'a' has a level that the first pass did not read"):
        module.gather(parse("y ~ (1|a)"), other, reading)
    fewer = Changing(data, data.iloc[:5])
    with pytest.raises(vcomp.DataError, match="the first pass read 6 rows, and a later one 5"):
        module.gather(parse("y ~ (1|a)"), fewer, reading)


@pytest.mark.parametrize("put_away", [False, True])
def test_as_many_rows_with_other_scores_are_noticed(put_away):
    """Also where cells are put together as soon as they are complete."""
    from vcomp.formula import parse

    formula, data = gridded("per document", seed=4)
    name = formula.split(" ~")[0]
    later = data.assign(**{name: data[name] + np.where(np.arange(len(data)) == 7, 1e-3, 0.0)})
    share = {"large_share": 0.0} if put_away else {}
    for n_bytes in (1e9, 0.0):
        reading = Reading(batch_rows=31, kept_bytes=n_bytes, **share)
        same, other = Changing(data, data), Changing(data, later)
        same.columns = other.columns = tuple(data.columns)
        made = module.gather(parse(formula), same, reading, collapse=True)
        assert (made.collapsed is not None) == put_away
        if n_bytes:
            module.gather(parse(formula), other, reading, collapse=True)
            assert other.passes == 1
        else:
            with pytest.raises(vcomp.DataError, match="the scores changed between the passes"):
                module.gather(parse(formula), other, reading, collapse=True)


@pytest.mark.parametrize("response", ["constant", "far from zero", "large"])
def test_rounding_is_not_taken_for_other_scores(response):
    """Sums of numbers far from zero have few digits beside what these differ by."""
    from vcomp.formula import parse

    reading = Reading(kept_bytes=0.0, batch_rows=40_000)
    noise = np.random.default_rng(1).normal(size=200_000)
    y = {"constant": noise * 0 + 0.1, "far from zero": noise + 1e12, "large": noise * 1e30}
    data = pd.DataFrame({"a": np.arange(noise.size) % 50, "y": y[response]})
    source = Changing(data, data)
    module.gather(parse("y ~ (1|a)"), source, reading)
    assert source.passes == 2


@pytest.mark.parametrize("facet", "abc")
def test_new_levels_are_noticed_in_all_facets(facet):
    """Of numbers and text, in the first place and the last, also where another one tells it."""
    from vcomp.formula import parse

    reading = Reading(kept_bytes=0.0)
    a = np.arange(12) % 6
    data = pd.DataFrame({"y": np.arange(12.0), "a": a, "b": a // 2, "c": list("uvwwvu" * 2)})
    for place, value in ((0, 99), (11, -99), (5, 2**62)):
        new = str(value) if facet == "c" else value
        later = data.assign(**{facet: [*data[facet][:place], new, *data[facet][place + 1 :]]})
        with pytest.raises(
            vcomp.DataError, match=f"'{facet}' has a level that the first pass did not read"
        ):
            module.gather(parse("y ~ (1|a) + (1|b) + (1|c)"), Changing(data, later), reading)


def test_few_rows_are_read_once_and_many_in_every_pass():
    """What is kept is forgotten when it takes too much, in whatever batch that shows."""
    from vcomp.formula import parse

    formula, data = gridded("crossed", seed=4)
    first, second = (
        data.assign(score=data["score"] + shift) if "score" in data else data for shift in (0, 1)
    )
    one_batch = data.iloc[:5].memory_usage(index=False, deep=True).sum() + 5 * 8
    for n_bytes, passes in ((1e9, 1), (one_batch * 1.5, 2), (0.0, 2)):
        reading = Reading(batch_rows=5, least_batch_rows=5, kept_bytes=n_bytes)
        source = Changing(first, second)
        source.columns = tuple(data.columns)
        made = module.gather(parse(formula), source, reading)
        assert source.passes == passes
        assert made.coding.survey.n == len(data)


@pytest.mark.parametrize("left", [0, 1])
def test_parts_are_kept_while_their_texts_and_numbers_leave_a_byte(left):
    texts = pd.Series(["a" * 100, "b" * 300, "c"], dtype=object)
    frame = pd.DataFrame({"g": texts, "k": np.arange(3)})
    part = SimpleNamespace(frame=frame, y=np.zeros(3))
    size = sum(map(sys.getsizeof, texts)) + 3 * 8 + 3 * 8 + 3 * 8  # and a pointer for each text
    kept = module._Kept(2.0 * size + left)
    for number in (1, 0):
        assert kept.of_last_pass() in (None, [part])
        kept.put(number, part)
    assert kept.of_last_pass() == ([part, part] if left else None)


@pytest.mark.parametrize(
    ("low", "high", "origin", "limit"),
    [
        (-2.0, 10.0, 1.0, 9e-9 + 1e-12),
        (-10.0, 2.0, -1.0, 9e-9 + 1e-12),
        (1e6 - 2.0, 1e6 + 10.0, 1e6 + 1.0, 9e-9 + 1e-7),
        (-1e6 - 10.0, 2.0 - 1e6, -1e6 - 1.0, 9e-9 + 1e-7),
    ],
)
def test_scores_may_differ_by_a_billionth_of_their_widest_deviation(low, high, origin, limit):
    """And by as much as the largest of them is rounded, each row."""
    n = 64
    survey = Survey((), {}, n, np.longdouble(n * origin) + 3.0, low, high)
    coding = SimpleNamespace(survey=survey, centre=SimpleNamespace(origin=origin))
    for sign in (1.0, -1.0):
        module.check_scores(coding, 3.0 + sign * 0.99 * limit * n)
        with pytest.raises(vcomp.DataError, match="the scores changed between the passes"):
            module.check_scores(coding, 3.0 + sign * 1.01 * limit * n)


@pytest.mark.filterwarnings("ignore:.*not fully crossed:vcomp.VcompWarning")
@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 40), st.sampled_from(sorted(GRIDS)))
def test_any_batches_give_the_same(seed, rows, name):
    formula, data = gridded(name, seed=seed % 7)
    shuffled = data.sample(frac=1.0, random_state=seed)
    kept, streamed = both(formula, shuffled, rows)
    a, b = kept.fit("anova").vcomp, streamed.fit("anova").vcomp
    np.testing.assert_allclose(b, a, rtol=1e-11, atol=1e-12 * np.abs(a).max())


def few_repeats(n_repeats, q=3000, n=6000):
    """Return scores of two facets that meet at random, some of them in a cell of another one."""
    rng = np.random.default_rng(4)
    cells = rng.choice(q * q, n - n_repeats, replace=False)
    cells = np.concatenate([cells, rng.permutation(cells)[:n_repeats]])
    a, b = cells // q, cells % q
    y = 0.7 * rng.normal(size=q)[a] + 0.5 * rng.normal(size=q)[b] + rng.normal(size=n)
    return pd.DataFrame({"a": a, "b": b, "y": y})


@pytest.mark.filterwarnings("ignore:.*not connected:vcomp.VcompWarning")
@pytest.mark.parametrize(("n_repeats", "are_rows"), [(0, True), (20, True), (200, False)])
def test_rows_of_a_large_empty_table_stay_rows_unless_many_are_in_a_cell(n_repeats, are_rows):
    kept, streamed = both("y ~ (1|a) + (1|b)", few_repeats(n_repeats), 999)
    assert (streamed.statistics.cells.counts is None) == are_rows
    same(kept, streamed, tolerance=1e-9, methods=["reml"])

"""Measures side by side: in whatever form they come, what each fit says by itself."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.designs import balanced
from tests.helpers.measure_scores import BOTH, scores
from tests.helpers.printed_tables import printed_columns, printed_words
from vcomp.studies.comparison import _fewest, _range

MEASURES = ["ap", "p20", "rr"]


@pytest.fixture(scope="module")
def frame():
    return scores()


@pytest.fixture(scope="module")
def compared(frame):
    return vcomp.compare_measures(BOTH, frame, responses=MEASURES, topic=[20, 50])


def test_each_is_what_its_fit_says(compared, frame):
    table = compared.table.set_index(["measure", "topic"])
    for name in MEASURES:
        res = vcomp.fit(f"{name} {BOTH}", frame)
        study = res.dstudy(topic=[20, 50])
        for column in study.table.columns[1:]:
            np.testing.assert_array_equal(table.loc[name][column], study.table[column])
        for coefficient in ("Erho2", "Phi"):
            needed = study.required(0.95, coefficient)
            row = table.loc[(name, 20)]
            found = [row[f"n_{coefficient}{e}"] for e in ("", "_low", "_high")]
            assert found == [needed.n, needed.low, needed.high]
            assert row["facet"] == "topic"
        shares = res.gstudy()["percent"] / 100
        np.testing.assert_allclose(
            [table.loc[(name, 20)][f"share({c})"] for c in shares.index], shares
        )
        assert compared.results[name].vcomp.equals(res.vcomp)
    assert list(compared.results) == MEASURES
    assert (table["nobs"] == 72).all()


def test_components(compared, frame):
    rows = compared.components.set_index(["measure", "component"])
    own = vcomp.fit(f"rr {BOTH}", frame).gstudy()
    pd.testing.assert_frame_equal(rows.loc["rr"], own, check_names=False)
    assert len(rows) == 9


def test_rows_of_tables_are_numbered(compared):
    cost = {"topic": 1.0, "sys": 0.0}
    tables = {
        "table": compared.table,
        "components": compared.components,
        "ranking": compared.ranking("rel_err_var"),
        "differences": compared.differences().table,
        "bootstrap": compared.differences(interval="bootstrap", n=3, rng=1, progress=False).table,
        "ratios": compared.required_ratios().table,
        "best": compared.best(cost=cost, budget=50),
    }
    for name, table in tables.items():
        assert table.index.tolist() == list(range(len(table))), name
        assert len(table) >= 3, name
        assert "index" not in table, name


def test_all_forms_are_the_same(compared, frame, tmp_path):
    two = ["ap", "rr"]
    expected = compared.table.query("measure in @two").reset_index(drop=True)
    polars = pytest.importorskip("polars", reason="polars is not installed")
    long = {name: frame[["sys", "topic"]].assign(score=frame[name]) for name in two}
    wide = {n: frame.pivot(index="topic", columns="sys", values=n) for n in two}
    paths = {}
    for name in two:
        paths[name] = tmp_path / f"{name}.csv"
        wide[name].reset_index(drop=True).to_csv(paths[name], index=False)
    fits = {name: vcomp.fit(f"{name} {BOTH}", frame) for name in two}
    score = f"score {BOTH}"
    forms = [
        (long, score),
        ({n: polars.from_pandas(f) for n, f in long.items()}, score),
        ({n: {c: f[c].to_numpy() for c in f} for n, f in long.items()}, score),
        (wide, None),
        ({n: vcomp.ir.as_score_matrix(w) for n, w in wide.items()}, None),
        ({n: vcomp.ir.as_score_matrix(w) for n, w in wide.items()}, score),
        ({n: w.to_numpy() for n, w in wide.items()}, None),
        (paths, None),
        (fits, None),
        ({**long, "rr": fits["rr"]}, score),
    ]
    for data, formula in forms:
        found = vcomp.compare_measures(formula, data, topic=[20, 50])
        pd.testing.assert_frame_equal(found.table, expected, rtol=1e-9)
    renamed = vcomp.compare_measures(
        BOTH, polars.from_pandas(frame), responses={m.upper(): m for m in two}, topic=[20, 50]
    )
    expected = expected.assign(measure=expected["measure"].str.upper())
    pd.testing.assert_frame_equal(renamed.table, expected, rtol=1e-9)


def test_columns_that_are_no_names_of_python(frame):
    odd = frame.rename(columns={"p20": "P@20", "ap": "a p"})
    found = vcomp.compare_measures(f"rr {BOTH}", odd, responses=["P@20", "a p"])
    assert list(found.results) == ["P@20", "a p"]
    assert found.results["P@20"].vcomp.equals(vcomp.fit(f"p20 {BOTH}", frame).vcomp)


def test_a_response_may_be_transformed_by_groups(frame):
    data = frame[frame["ap"] > frame["ap"].min()].assign(half=frame["topic"] < "t4")
    found = vcomp.compare_measures(f"np.exp(ap/5) {BOTH}", data, by="half")
    own = vcomp.fit(f"np.exp(ap/5) {BOTH}", data[data["half"]])
    np.testing.assert_allclose(found.results["True"].vcomp, own.vcomp, rtol=1e-9)


def test_groups(frame):
    data = pd.concat([frame.assign(track=t, year=y) for t in ("web", "qa") for y in (1, 2)])
    data["ap"] += np.random.default_rng(1).normal(size=len(data))
    found = vcomp.compare_measures(f"ap {BOTH}", data, by=["track", "year"], topic=10)
    assert list(found.results) == ["qa, 1", "qa, 2", "web, 1", "web, 2"]
    table = found.table
    assert table[["track", "year"]].to_numpy().tolist() == [
        ["qa", 1], ["qa", 2], ["web", 1], ["web", 2],
    ]  # fmt: skip
    one = vcomp.fit(f"ap {BOTH}", data.query("track == 'web' and year == 2")).dstudy(topic=10)
    assert table["Phi"].iloc[3] == one.table["Phi"].item()
    assert table.columns[:4].tolist() == ["measure", "track", "year", "nobs"]
    # Categories of which there are no rows, and groups that are combined in no row, are none.
    track = pd.Categorical(data["track"], ["web", "none", "qa"])
    few = data.assign(track=track).query("track == 'web' or year == 2")
    listed = vcomp.compare_measures(f"ap {BOTH}", few, by=["track", "year"], topic=10)
    assert list(listed.results) == ["web, 1", "web, 2", "qa, 2"]
    both = vcomp.compare_measures(BOTH, data, responses=["ap", "rr"], by="track", topic=10)
    assert list(both.results) == ["ap, qa", "ap, web", "rr, qa", "rr, web"]
    assert both.table.columns[:4].tolist() == ["measure", "response", "track", "nobs"]


def test_groups_of_other_sizes_have_plans_of_their_own(frame):
    data = frame.assign(half=np.where(frame["topic"] < "t3", "few", "many"))
    found = vcomp.compare_measures(f"ap {BOTH}", data, by="half")
    assert found.table["topic"].tolist() == [3, 6]
    few = found.differences(shared=[])
    assert "planned with different sizes" in " ".join(few.notes)
    assert "topic" not in few.table


def test_ranking(compared):
    erho2 = compared.ranking("Erho2")
    assert erho2["Erho2"].is_monotonic_decreasing
    assert compared.ranking("n_Phi")["n_Phi"].is_monotonic_increasing
    assert compared.ranking("rel_err_var_high")["rel_err_var_high"].is_monotonic_increasing
    assert compared.ranking()["measure"].iloc[0] == "ap"
    for column in ("Erho", "measure"):
        with pytest.raises(vcomp.PlanError, match="is not a column of numbers"):
            compared.ranking(column)


def test_more_facets_and_designs():
    formula, data = balanced("three facets", 2)
    data["z"] = data["y"] ** 2
    right = formula.partition("~")[2]
    sizes = {"b": [5, 10], "c": [2, 4]}
    found = vcomp.compare_measures(f"~{right}", data, responses=["y", "z"], **sizes)
    assert "n_Phi" not in found.table
    table = vcomp.compare_measures(
        f"~{right}", data, responses=["y", "z"], facet="b", goal=0.8, **sizes
    ).table
    res = vcomp.fit(f"z ~{right}", data)
    for row in table[table["measure"] == "z"].to_dict("records"):
        needed = res.dstudy(b=row["b"], c=row["c"]).required(0.8, "Erho2", "b")
        assert (row["n_Erho2"], row["n_Erho2_high"]) == (needed.n, needed.high)
    nested = vcomp.compare_measures(
        f"~{right}", data, responses=["y", "z"], dstudy={"design": "a x (c:b)"}, **sizes
    )
    own = res.dstudy("a x (c:b)", **sizes).table
    mine = nested.table.query("measure == 'z'")
    np.testing.assert_array_equal(mine["Erho2"], own["Erho2"])


def test_a_design_in_brennans_notation(frame):
    found = vcomp.compare_measures("sys x topic", frame, responses=["ap", "rr"], topic=10)
    own = vcomp.gstudy("sys x topic", frame, "rr")
    assert found.results["rr"].formula == own.formula
    assert found.results["rr"].vcomp.equals(own.vcomp)
    groups = pd.concat([frame.assign(g=g) for g in "ab"])
    by = vcomp.compare_measures("sys x topic", groups, responses={"AP": "ap"}, by="g")
    assert list(by.results) == ["a", "b"]
    odd = frame.rename(columns={"rr": "R R"})
    named = vcomp.compare_measures("sys x topic", odd, responses=["ap", "R R"], topic=10)
    assert named.results["R R"].vcomp.equals(own.vcomp)
    # Of a judge with one topic: what is confounded is said, with the measure.
    judged = frame.assign(judge=frame["topic"])
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        vcomp.compare_measures("sys x (topic:judge)", judged, responses=["ap", "rr"])
    said = [str(w.message) for w in heard]
    assert [text.partition(" are confounded in these data. ")[0] for text in said] == [
        f"measure {name!r}: some effects of the design 'sys x (topic:judge)'"
        for name in ("ap", "rr")
    ]


def test_the_best_for_a_budget():
    formula, data = balanced("three facets", 5)
    data["z"] = data["y"] + np.random.default_rng(1).normal(size=len(data))
    found = vcomp.compare_measures(
        "~" + formula.partition("~")[2], data, responses=["y", "z"], b=5, c=2
    )
    table = found.best("10*b + b*c", budget=500, coefficient="Phi")
    assert table.columns[:2].tolist() == ["measure", "design"]
    for row in table.to_dict("records"):
        own = found.studies[row["measure"]].optimize(
            "10*b + b*c", budget=500, coefficient="Phi"
        )  # fmt: skip
        assert (row["b"], row["c"], row["cost"]) == (
            own.best.sizes["b"], own.best.sizes["c"], own.best.cost,
        )  # fmt: skip
        assert row["Phi_low"] == own.table["Phi_low"].iloc[0]
    assert table["Phi"].is_monotonic_decreasing
    dearer = found.best({"y": "10*b + b*c", "z": "20*b + 2*b*c"}, budget=500).set_index("measure")
    cheap = found.best("10*b + b*c", budget=500).set_index("measure")
    assert dearer.loc["z", "Erho2"] < cheap.loc["z", "Erho2"]
    assert dearer.loc["y", "Erho2"] == cheap.loc["y", "Erho2"]
    reached = found.best("10*b + b*c", goal=0.5)
    assert reached["cost"].is_monotonic_increasing
    with pytest.raises(vcomp.PlanError, match="no entry for measure 'z'"):
        found.best({"y": "b"}, budget=500)
    with pytest.raises(vcomp.PlanError, match="measure 'y': "):
        found.best("10*b + b*c", budget=1)


def test_a_measure_for_which_no_design_is_enough(frame):
    flat = frame.assign(noise=np.arange(72) % 9 + (np.arange(72) % 5 == 0))
    found = vcomp.compare_measures(BOTH, flat, responses=["ap", "noise"], method="anova", topic=10)
    table = found.best("topic", goal=0.8)
    assert table["measure"].tolist() == ["ap", "noise"]
    assert isinstance(table["reason"].iloc[1], str)
    assert table["Erho2"].isna().tolist() == [False, True]


def test_workers_change_nothing(compared, frame):
    again = vcomp.compare_measures(BOTH, frame, responses=MEASURES, workers=3, topic=[20, 50])
    pd.testing.assert_frame_equal(again.table, compared.table)


def test_a_measure_that_cannot_be_fitted_is_named(frame):
    data = frame.assign(flat=1.0)
    with (
        pytest.warns(vcomp.VcompWarning, match="measure 'flat': .* response is constant"),
        pytest.warns(vcomp.VcompWarning, match="measure 'flat' could not be fitted.*vary"),
    ):
        found = vcomp.compare_measures(BOTH, data, responses=["ap", "flat", "rr"])
    assert list(found.results) == ["ap", "rr"]
    assert list(found.failures) == ["flat"]
    assert "flat could not be fitted" in str(found)
    groups = pd.concat([frame.assign(g="a"), frame[frame["topic"] == "t1"].assign(g="b")])
    with pytest.warns(vcomp.VcompWarning, match="measure 'b' could not be fitted"):
        found = vcomp.compare_measures(f"ap {BOTH}", groups, by="g")
    assert "topic" in found.failures["b"]
    assert str(found).startswith("1 measure by REML")
    groups.loc[groups["g"] == "b", "ap"] = np.nan
    with pytest.warns(vcomp.VcompWarning, match="measure 'b' .* is missing in every row"):
        vcomp.compare_measures(f"ap {BOTH}", groups, by="g")
    with pytest.raises(vcomp.EstimationError, match=r"no measure could be fitted \(all its"):
        vcomp.compare_measures(
            BOTH, data.assign(other=2.0), responses=["flat", "other"], method="anova"
        )


def test_warnings_have_the_name_of_their_measure(frame):
    data = frame.copy()
    data.loc[5, "p20"] = np.nan
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = vcomp.compare_measures(BOTH, data, responses=MEASURES, workers=2)
    (said,) = heard
    assert str(said.message).startswith("measure 'p20': 1 of 72 rows have a missing value")
    assert said.filename == __file__
    assert found.table["nobs"].tolist() == [72, 71, 72]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vcomp.compare_measures(BOTH, data, responses=MEASURES)
    with pytest.raises(vcomp.DataError, match="measure 'p20': 1 of 72 rows"):
        vcomp.compare_measures(BOTH, data, responses=MEASURES, missing="raise")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"responses": ["ap", "p2O"]}, vcomp.DataError, "no column 'p2O'.*did you mean 'p20'"),
        ({"responses": ["ap", "ap"]}, vcomp.DataError, "names 'ap' twice"),
        ({"responses": ["ap", 3]}, vcomp.DataError, "must contain names of columns, not 3"),
        ({"responses": 5}, vcomp.DataError,
         "responses must be a column or a list of columns, not 5"),
        ({"by": 5, "formula": f"ap {BOTH}"}, vcomp.DataError, "by must be a column or a list"),
        ({"responses": ["ap", "rr"], "options": 5}, vcomp.EstimationError,
         "options must be a mapping"),
        ({"responses": "ap"}, vcomp.DataError, "needs at least two measures, and there is 'ap'"),
        ({"responses": []}, vcomp.DataError, "there is none"),
        ({"by": "tracks", "formula": f"ap {BOTH}"}, vcomp.DataError, "no column 'tracks'"),
        ({"by": "topic", "formula": f"ap {BOTH}"}, vcomp.DataError, "by='topic' is a facet"),
        ({}, vcomp.DataError, "name the columns of the measures|mapping of names to tables"),
        ({"formula": "ap"}, vcomp.FormulaError, "'ap' has no ~"),
        ({"responses": ["ap", "rr"], "formula": "sys x topik"}, vcomp.DataError,
         "no column 'topik'.*did you mean 'topic'"),
        ({"responses": ["ap", "rr"], "formula": "sys x (topic"}, vcomp.PlanError, "expected"),
        ({"responses": ["ap", "rr"], "formula": None}, vcomp.FormulaError, "need a formula"),
        ({"responses": ["ap", "rr"], "formula": "~ (1|sys) + (1|topik)"}, vcomp.DataError,
         "no column 'topik'.*did you mean 'topic'"),
        ({"responses": ["ap", "rr"], "topik": 5}, vcomp.PlanError, "measure 'ap': .*topik"),
        ({"responses": ["ap", "rr"], "topic": 0}, vcomp.PlanError, "size of 'topic'"),
        ({"responses": ["ap", "rr"], "method": "x"}, vcomp.EstimationError, "method"),
        ({"responses": ["ap", "rr"], "goal": 2}, vcomp.PlanError, "between 0 and 1"),
        ({"responses": ["ap", "rr"], "facet": "doc"}, vcomp.PlanError, "'doc' has no size"),
        ({"responses": ["ap", "rr"], "alpha": 5}, vcomp.PlanError, "alpha"),
        ({"responses": ["ap", "rr"], "workers": 0}, vcomp.EstimationError, "workers"),
        ({"responses": ["ap", "rr"], "dstudy": [5]}, vcomp.PlanError, "dstudy must be a mapping"),
        ({"responses": ["ap", "rr"], "dstudy": {"alpha": 0.1}}, vcomp.PlanError,
         "as alpha=, not in dstudy="),
        ({"responses": ["ap", "rr"], "dstudy": {"topic": 5}, "topic": 6}, vcomp.PlanError,
         "'topic' is given twice"),
        ({"responses": ["ap", "word"]}, vcomp.DataError, "measure 'word': .*not numeric"),
    ],
)  # fmt: skip
def test_what_cannot_be(frame, arguments, error, message):
    with pytest.raises(error, match=message):
        vcomp.compare_measures(data=frame.assign(word="x"), **{"formula": BOTH, **arguments})


def test_data_by_name_that_cannot_be(frame):
    with pytest.raises(vcomp.FormulaError, match="the first argument, must be text, not DataF"):
        vcomp.compare_measures(frame, f"ap {BOTH}")
    with pytest.raises(vcomp.DataError, match=r"there is no file '.*scores\.csv'"):
        vcomp.compare_measures(BOTH, "~/no such/scores.csv", responses=["ap", "rr"])
    with pytest.raises(vcomp.DataError, match="a mapping of columns"):
        vcomp.compare_measures(f"ap {BOTH}", {c: frame[c].to_numpy() for c in frame})
    with pytest.raises(vcomp.DataError, match=r"measure 'a': without a formula, .*topic"):
        vcomp.compare_measures(data={"a": frame, "b": frame})
    with pytest.raises(vcomp.DataError, match="measure 'b': there is no column 'ap'"):
        vcomp.compare_measures(f"ap {BOTH}", {"a": frame, "b": frame.drop(columns="ap")})
    with pytest.raises(vcomp.DataError, match=r"mapping of names to tables.*not list"):
        vcomp.compare_measures(f"ap {BOTH}", [frame, frame])
    with pytest.raises(vcomp.DataError, match="two measures are called '1'"):
        vcomp.compare_measures(f"ap {BOTH}", {1: frame, "1": frame})
    with pytest.raises(vcomp.DataError, match="column 'g' is missing in"):
        vcomp.compare_measures(f"ap {BOTH}", frame.assign(g=[None, *["a", "b"] * 35, "a"]), by="g")


def test_ranges_with_an_unknown_end_are_not_printed():
    assert _range(5.0, 12.0) == "5 to 12"
    assert _range(5.0, np.inf) == "5 to ∞"
    for unknown in ((np.nan, 12.0), (5.0, np.nan), (np.nan, np.nan)):
        assert _range(*unknown) == "–"


@pytest.mark.parametrize(("n", "more"), [(1, ""), (5, ""), (6, ", …"), (9, ", …")])
def test_five_measures_that_need_fewest_are_named(n, more):
    table = pd.DataFrame({"measure": [*"abcdefghi"][:n], "n_Phi": np.arange(9.0)[:n] + 3.0})
    named = ", ".join(f"{name} ({k + 3})" for k, name in enumerate("abcde"[:n]))
    assert _fewest(table.iloc[::-1], "Phi", "Φ") == f"Fewest for Φ: {named}{more}."


def test_fewest_are_those_of_the_plan_that_needs_fewest():
    table = pd.DataFrame({
        "measure": ["F", "F", "ap", "ap", "utility", "utility"], "assessor": [1, 2] * 3,
        "facet": "topic", "n_Phi": [np.inf, 70.0, 50.0, 40.0, np.inf, np.inf],
    })  # fmt: skip
    found = _fewest(table, "Phi", "Φ", ["assessor"])
    assert found == "Fewest for Φ: ap (40 with assessor 2), F (70 with assessor 2)."
    assert "no measure reaches it" in _fewest(table[4:], "Phi", "Φ", ["assessor"])


def test_the_summary(compared):
    text = str(compared)
    assert "3 measures by REML: shares of variance" in text
    assert "Fewest for Eρ²: ap" in text
    assert any(line.strip() == "Topics needed" for line in text.splitlines())
    assert "did not converge" not in text
    assert max(map(len, text.splitlines())) <= 95
    assert "<table" in compared._repr_html_()
    assert repr(compared) == "<MeasureComparison: ap, p20, rr>"


def test_what_is_printed_is_the_table(compared):
    summary, table = compared.summary(), compared.table
    shares, worth, needed = (printed_columns(summary, k) for k in range(3))
    once = table[table["topic"] == 20]
    assert shares.pop("scores") == ["72"] * 3
    assert list(shares)[1:] == ["sys", "topic", "Residual"]
    assert worth["topic"] == ["20", "50"] * 3
    for symbol, name, again in (("Eρ²", "Erho2", ""), ("Φ", "Phi", " #2")):
        assert worth[symbol] == [f"{x:.3f}" for x in table[name]]
        ends = zip(table[f"{name}_low"], table[f"{name}_high"], strict=True)
        assert worth["95 % interval" + again] == [f"[{a:.3f}, {b:.3f}]" for a, b in ends]
        assert needed[f"{symbol} = 0.95"] == [f"{n:.0f}" for n in once[f"n_{name}"]]
        ends = zip(once[f"n_{name}_low"], once[f"n_{name}_high"], strict=True)
        sizes = [f"{a:.0f} to {'∞' if np.isinf(b) else f'{b:,.0f}'}" for a, b in ends]
        assert needed["95 % interval" + again] == sizes
        fewest = ", ".join(f"{m} ({n})" for m, n in zip(MEASURES, once[f"n_{name}"], strict=True))
        assert f"Fewest for {symbol}: {fewest}." in printed_words(summary)
    for component in ("sys", "topic", "Residual"):
        expected = [f"{100 * share:.1f} %" for share in once[f"share({component})"]]
        assert shares[component] == expected


def test_designs_of_other_facets_side_by_side():
    formula, data = balanced("three facets", 5)
    one = data[data["c"] == data["c"].iloc[0]]
    fits = {"many": vcomp.fit(formula, data), "one": vcomp.fit("y ~ (1|a) + (1|b)", one)}
    found = vcomp.compare_measures(data=fits, b=20)
    table = found.table.set_index("measure")
    assert np.isnan(table.loc["one", "c"])
    assert np.isnan(table.loc["one", "share(a:b)"])
    assert table["facet"].isna().tolist() == [True, False]
    assert table.loc["one", "n_Phi"] == fits["one"].dstudy(b=20).required(0.95, "Phi").n
    assert "Fewest for Φ: one (" in str(found)
    both = vcomp.compare_measures(data=fits, b=20, facet="b").table.set_index("measure")
    assert both.loc["many", "n_Phi"] == fits["many"].dstudy(b=20).required(0.95, "Phi", "b").n
    assert "planned with different sizes" in " ".join(found.differences().notes)


def test_intervals_from_elsewhere(frame):
    """What dstudy= takes is passed on: here a method of the intervals."""
    found = vcomp.compare_measures(
        BOTH, frame, responses=["ap", "rr"], dstudy={"interval": "log"}, topic=10
    )
    own = vcomp.fit(f"rr {BOTH}", frame).dstudy(topic=10, interval="log").table
    assert found.table["Phi_high"].iloc[1] == own["Phi_high"].item()

"""Differences between measures: the formula, the correlation, and what they must be."""

from __future__ import annotations

from dataclasses import replace
from math import inf, sqrt

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import f

import vcomp
from tests.helpers.designs import balanced
from tests.helpers.examples import examples
from tests.helpers.measure_scores import BOTH, scores
from tests.helpers.printed_tables import printed_columns
from vcomp.gtheory import first_two_way
from vcomp.inference.intervals import F_INTERVALS
from vcomp.studies.differences import (
    Influences,
    _are_running_numbers,
    _drawn,
    _f_ends,
    _in_closed_form,
    _table,
    correlations,
    left_out,
)
from vcomp.studies.planned import EstimateEnds, _interval, mover
from vcomp.studies.subsample import Subsets

MEASURES = ["ap", "p20"]


def compared(frame, responses=MEASURES, **options):
    return vcomp.compare_measures(BOTH, frame, responses=responses, method="anova", **options)


@pytest.fixture(scope="module")
def frame():
    return scores(2, 7, 6)


# The formula ------------------------------------------------------------------------------------

UNIT = st.floats(0.01, 0.99)


def known(low, estimate, high):
    return EstimateEnds(*(np.array([x]) for x in (estimate, low, high)))


@settings(max_examples=examples(100), deadline=None)
@given(
    first=st.lists(UNIT, min_size=3, max_size=3).map(sorted),
    second=st.lists(UNIT, min_size=3, max_size=3).map(sorted),
    r=st.floats(-1.0, 1.0),
)
def test_mover_by_hand(first, second, r):
    (l1, e1, u1), (l2, e2, u2) = first, second
    low, high = mover(known(*first), known(*second), np.array([r]))
    below = (e1 - l1) ** 2 + (u2 - e2) ** 2 - 2 * r * (e1 - l1) * (u2 - e2)
    above = (u1 - e1) ** 2 + (e2 - l2) ** 2 - 2 * r * (u1 - e1) * (e2 - l2)
    # A root of what cancels to zero keeps half of the digits.
    assert low[0] == pytest.approx(e1 - e2 - sqrt(max(below, 0.0)), abs=1e-7)
    assert high[0] == pytest.approx(e1 - e2 + sqrt(max(above, 0.0)), abs=1e-7)
    # The other way round it is the same interval with the other sign.
    other = mover(known(*second), known(*first), np.array([r]))
    assert (other[0][0], other[1][0]) == pytest.approx((-high[0], -low[0]), abs=1e-12)


def test_mover_of_symmetric_intervals_is_the_usual_one():
    # 1.96 standard errors of 0.1 and 0.2, correlated by 0.5: se² = 0.01 + 0.04 − 2(0.5)(0.02).
    z, a, b = 1.96, 0.1, 0.2
    low, high = mover(known(1 - z * a, 1, 1 + z * a), known(3 - z * b, 3, 3 + z * b),
                      np.array([0.5]))  # fmt: skip
    assert (low[0], high[0]) == pytest.approx((-2 - z * sqrt(0.03), -2 + z * sqrt(0.03)))


def test_intervals_with_an_unknown_end_are_not_printed():
    assert _interval(0.25, 0.5) == "[0.250, 0.500]"
    for unknown in ((np.nan, 0.5), (0.25, np.nan), (np.nan, np.nan)):
        assert _interval(*unknown) == "–"


def test_an_open_interval_makes_an_open_one():
    low, high = mover(known(1.0, 2.0, inf), known(1.0, 1.5, 2.0), np.array([0.9]))
    assert np.isfinite(low[0])
    assert high[0] == inf
    low, high = mover(known(np.nan, 2.0, np.nan), known(1.0, 1.5, 2.0), np.array([0.0]))
    assert np.isnan(low[0])
    assert np.isnan(high[0])


@pytest.mark.parametrize(
    ("labels", "running"),
    [
        ("1 2 3", True), ("0 1 2", True), ("01 02 10 03 04 05 06 07 08 09", True),
        ("t1 t2", True), ("topic 1,topic 2", True), ("t1 s2", False), ("1 3", False),
        ("2 3", False), ("a b", False), ("1 2 x", False), ("1a 2a", False),
    ],
)  # fmt: skip
def test_running_numbers(labels, running):
    assert _are_running_numbers(set(labels.split("," if "," in labels else " "))) == running


# The correlation --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def without_levels(frame):
    """Return for each facet the D-studies of the measures without each of its levels."""

    def studies(facet, level):
        part = frame[frame[facet] != level]
        fits = (vcomp.fit(f"{m} {BOTH}", part, method="anova") for m in MEASURES)
        return [res.dstudy(topic=12).table for res in fits]

    return [[studies(f, level) for level in frame[f].unique()] for f in ("sys", "topic")]


def jackknifed(without_levels, coefficient):
    """Return covariance and variances of coefficients by fits without each level."""
    total = np.zeros((len(MEASURES), len(MEASURES)))
    for studies in without_levels:
        left = [[table[coefficient].item() for table in tables] for tables in studies]
        centred = np.array(left) - np.mean(left, axis=0)
        total += (len(left) - 1) / len(left) * centred.T @ centred
    return total


@pytest.mark.parametrize("coefficient", ["Erho2", "Phi"])
def test_correlations_are_those_of_a_jackknife(frame, without_levels, coefficient):
    found = compared(frame, topic=12).differences(coefficient)
    covariance = jackknifed(without_levels, coefficient)
    r = covariance[0, 1] / sqrt(covariance[0, 0] * covariance[1, 1])
    row = found.table.iloc[0]
    assert row["correlation"] == pytest.approx(r, rel=1e-9)
    studies = [vcomp.fit(f"{m} {BOTH}", frame, method="anova").dstudy(topic=12) for m in MEASURES]
    (e1, l1, u1), (e2, l2, u2) = (
        [s.table[coefficient + end].item() for end in ("", "_low", "_high")] for s in studies
    )
    below = (e1 - l1) ** 2 + (u2 - e2) ** 2 - 2 * r * (e1 - l1) * (u2 - e2)
    above = (u1 - e1) ** 2 + (e2 - l2) ** 2 - 2 * r * (u1 - e1) * (e2 - l2)
    assert row["difference"] == pytest.approx(e1 - e2, rel=1e-12)
    assert row["low"] == pytest.approx(e1 - e2 - sqrt(below), rel=1e-8)
    assert row["high"] == pytest.approx(e1 - e2 + sqrt(above), rel=1e-8)


def test_the_same_measure_twice_does_not_differ(frame):
    """Of the interval nothing is left but what it is askew."""
    found = compared(frame.assign(again=3.0 * frame["ap"] + 2.0), ["ap", "again"])
    for coefficient in ("Erho2", "Phi"):
        row = found.differences(coefficient).table.iloc[0]
        value, low, high = found.table.loc[
            0, [coefficient, f"{coefficient}_low", f"{coefficient}_high"]
        ]
        askew = abs((value - low) - (high - value))
        assert row["correlation"] == pytest.approx(1.0, abs=1e-9)
        # The root of what cancels to the last digits.
        assert row["difference"] == pytest.approx(0.0, abs=1e-12)
        assert (row["low"], row["high"]) == pytest.approx((-askew, askew), abs=1e-6)
    ratio = found.required_ratios().table.iloc[0]
    assert ratio["ratio"] == pytest.approx(1.0, abs=1e-9)
    assert ratio["low"] * ratio["high"] == pytest.approx(1.0, abs=1e-9)


def test_a_facet_whose_levels_one_measure_cannot_leave_out_says_nothing(frame):
    few = frame[frame["sys"].isin(sorted(frame["sys"].unique())[:2])]
    found = vcomp.compare_measures(
        f"ap {BOTH}", {"one": frame, "two": few}, method="anova", topic=10
    )
    topics = found.differences(shared=["topic"]).table
    both = found.differences(shared=["sys", "topic"]).table
    pd.testing.assert_frame_equal(both, topics)
    assert 0.0 < abs(topics["correlation"].item()) < 1.0
    unknown = found.differences(shared=["sys"])
    assert np.isnan(unknown.table["correlation"].item())
    assert "The correlation of one and two is not known, and 0 is used" in " ".join(unknown.notes)
    columns = ["difference", "low", "high"]
    alone = found.differences(shared=[]).table
    pd.testing.assert_frame_equal(unknown.table[columns], alone[columns])


def test_measures_without_a_level_in_common_are_independent(frame):
    other = scores(5, 7, 6).assign(sys=lambda d: "x" + d["sys"], topic=lambda d: "x" + d["topic"])
    data = {"one": frame, "two": other}
    found = vcomp.compare_measures(f"ap {BOTH}", data, method="anova", topic=10).differences()
    assert found.table["correlation"].tolist() == [0.0]
    assert "independent" in found.interval_method
    # Names that are alike by accident: said so, they are as independent.
    alike = {"one": frame, "two": scores(5, 7, 6)}
    both = vcomp.compare_measures(f"ap {BOTH}", alike, method="anova", topic=10)
    pd.testing.assert_frame_equal(both.differences(shared=[]).table, found.table)
    assert both.differences().table["correlation"].item() != 0.0


def test_one_facet_in_common(frame):
    """The same systems on other topics: products of influences of systems alone."""
    other = scores(9, 7, 5).assign(topic=lambda d: "x" + d["topic"])
    data = {"one": frame, "two": other}
    found = vcomp.compare_measures(f"ap {BOTH}", data, method="anova", topic=10)
    r = found.differences().table["correlation"].item()
    assert r == found.differences(shared="sys").table["correlation"].item()
    variances, product = np.zeros(2), 0.0
    for facet in ("sys", "topic"):
        centred = []
        for part in (frame, other):
            levels = part[facet].unique()
            left = [
                vcomp.fit(f"ap {BOTH}", part[part[facet] != level], method="anova")
                .dstudy(topic=10).table["Erho2"].item()
                for level in levels
            ]  # fmt: skip
            n = len(levels)
            centred.append((np.array(left) - np.mean(left)) * sqrt((n - 1) / n))
        variances += [np.square(c).sum() for c in centred]
        if facet == "sys":
            product = float(centred[0] @ centred[1])
    assert r == pytest.approx(product / sqrt(variances[0] * variances[1]), rel=1e-9)


def test_fixed_facets_are_no_sample():
    """Of a facet whose levels are all that there are none is left out."""
    rng = np.random.default_rng(3)
    n = {"p": 6, "i": 5, "a": 3}
    index = pd.MultiIndex.from_product([range(k) for k in n.values()], names=list(n))
    data = index.to_frame(index=False)
    effects = sum(rng.normal(size=n[c])[data[c]] for c in n)
    data = data.assign(**{m: effects + rng.normal(size=len(data)) for m in ("x", "y")})
    right = "~ (1|p) + (1|i) + (1|a) + (1|p:i) + (1|p:a) + (1|i:a)"
    found = vcomp.compare_measures(
        right, data, responses=["x", "y"], method="anova", i=8, a=3, dstudy={"fixed": "a"}
    )
    assert found.differences().interval_method.endswith("jackknife over p and i")


@pytest.mark.parametrize(
    ("name", "method"),
    [("crossed", "reml"), ("three facets", "anova"), ("crossed and nested", "reml")],
)
def test_levels_are_left_out_of_tables_as_of_rows(name, method):
    formula, data = balanced(name, 3)
    res = vcomp.fit(formula, data, method=method)
    found, notes = left_out(res, res.dstudy())
    assert not notes
    assert list(found) == [f for f in res.design.facets if not res.design.nested_in[f]]
    for facet, parts in found.items():
        own = res.jackknife(facet)
        assert parts.levels == own.levels
        # REML goes on until a Newton decrement of 1e-8 standard errors.
        np.testing.assert_allclose(parts.values, own.values, rtol=1e-6, atol=1e-7)


def test_a_table_without_a_level_that_has_no_estimate_is_left_to_the_jackknife(frame, monkeypatch):
    res = vcomp.fit(f"ap {BOTH}", frame, method="anova")
    found = _in_closed_form(res, "sys")
    assert found.levels == tuple(sorted(frame["sys"].unique()))
    assert found.groups.tolist() == [0] * 7
    without = Subsets.without

    def failing(self, facet, level):
        made = without(self, facet, level)
        return replace(made, converged=False) if level == 4 else made

    monkeypatch.setattr(Subsets, "without", failing)
    assert _in_closed_form(res, "sys") is None


def test_missing_cells_and_missing_levels(frame):
    data = {"one": frame.drop(index=3), "two": frame[frame["topic"] != "t0"]}
    with pytest.warns(vcomp.VcompWarning, match="measure 'one'.*not fully crossed"):
        found = vcomp.compare_measures(f"ap {BOTH}", data, method="anova", topic=10)
    with pytest.warns(vcomp.VcompWarning, match="running numbers only.*7 and 7 levels of sys"):
        row = found.differences().table.iloc[0]
    assert 0.9 < row["correlation"] < 1.0
    assert row["low"] < row["difference"] < row["high"]


def test_few_levels_cannot_be_left_out():
    two = scores(1, 6, 2)
    found = compared(two, topic=5).differences()
    assert "topics cannot be left out in turn" in " ".join(found.notes)
    assert np.isfinite(found.table["correlation"]).all()


def test_correlations_of_what_does_not_vary():
    still = Influences({("a", "1"): np.zeros(1), ("a", "2"): np.zeros(1)})
    moving = Influences({("a", "1"): np.ones(1), ("a", "2"): -np.ones(1)})
    assert np.isnan(correlations(still, moving, ["a"])).all()
    assert correlations(moving, moving, ["a"]) == pytest.approx(1.0)
    assert correlations(moving, moving, []) == pytest.approx(0.0)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_correlations_are_at_most_1(sign):
    """Rounding alone puts some of a thousand correlations of ±1 beyond it."""
    rng = np.random.default_rng(2)
    moves = {("a", str(k)): rng.normal(size=1000) for k in range(7)}
    first, second = Influences(moves), Influences({k: sign * x / 3.0 for k, x in moves.items()})
    a, b = (np.array(list(x.of.values())) for x in (first, second))
    exact = (a * b).sum(axis=0) / np.sqrt(np.square(a).sum(axis=0) * np.square(b).sum(axis=0))
    assert (np.abs(exact) > 1.0).any()
    r = correlations(first, second, ["a"])
    assert (np.abs(r) <= 1.0).all()
    np.testing.assert_allclose(r, sign, rtol=1e-14)


# Ratios -----------------------------------------------------------------------------------------


def ends_of_n(frame, response, goal, alpha=0.05):
    """Return n for Eρ² with its F interval, not rounded: Urbano et al. (2013), eq. (8), (12)."""
    table = vcomp.fit(f"{response} {BOTH}", frame, method="anova").anova_table()
    M_s, _, M_e = table["mean_sq"]
    df_s, _, df_e = table["df"]
    n_q = frame["topic"].nunique()
    odds = goal / (1 - goal)
    zeta = {tail: (M_s / (M_e * f.isf(tail, df_s, df_e)) - 1) / n_q for tail in (0.025, 0.975)}
    estimate = (M_s / M_e - 1) / n_q
    return odds / estimate, odds / zeta[0.975], odds / zeta[0.025]


def test_ratios_of_required_sizes():
    frame = scores(2, 12, 15)
    found = compared(frame, goal=0.9, topic=[10, 20], interval="f")
    table = found.required_ratios().table
    (n1, l1, u1), (n2, l2, u2) = (ends_of_n(frame, m, 0.9) for m in MEASURES)
    row = table.iloc[0]
    assert len(table) == 1
    assert row["ratio"] == pytest.approx(n1 / n2, rel=1e-10)
    r = row["correlation"]
    a, b = np.log(n1 / l1), np.log(u2 / n2)
    assert np.log(row["low"]) == pytest.approx(
        np.log(n1 / n2) - sqrt(a * a + b * b - 2 * r * a * b), rel=1e-8
    )
    a, b = np.log(u1 / n1), np.log(n2 / l2)
    assert np.log(row["high"]) == pytest.approx(
        np.log(n1 / n2) + sqrt(a * a + b * b - 2 * r * a * b), rel=1e-8
    )
    other = compared(frame, goal=0.5, topic=10).required_ratios().table
    assert other["ratio"].item() == pytest.approx(row["ratio"], rel=1e-12)
    assert "Ratios of topic needed for Eρ² = 0.9" in str(found.required_ratios())


def test_ratios_by_intervals_of_other_kinds():
    frame = scores(2, 12, 15)
    found = compared(frame, topic=10, dstudy={"interval": "log"})
    row = found.required_ratios("Phi").table.iloc[0]
    assert row["low"] < row["ratio"] < row["high"]
    columns = [c for c in frame if c not in ("sys", "topic")]
    unbalanced = frame.drop(index=[1, 9, 17])
    odd = vcomp.compare_measures(BOTH, unbalanced, responses=columns, topic=10)
    table = odd.required_ratios().table
    assert (table["low"] < table["ratio"]).all()
    assert (table["ratio"] < table["high"]).all()


def test_no_size_is_enough(frame):
    """The noisiest measure has no variance of systems; nothing is known of its ratio."""
    data = frame.assign(noise=np.tile(np.arange(6.0), 7) + (np.arange(42) % 5 == 0))
    found = compared(data, ["ap", "noise", "p20"], topic=10)
    assert found.results["noise"].vcomp["sys"] < 0.0
    assert found.table.set_index("measure").loc["noise", "n_Erho2"] == inf
    ratios = found.required_ratios()
    table = ratios.table.set_index(["first", "second"])
    assert table.loc[("ap", "noise"), "ratio"] == 0.0
    assert table.loc[("noise", "p20"), "ratio"] == inf
    said = " ".join(ratios.notes)
    assert "No size is enough for 'noise'" in said
    assert "The correlation of ap and noise is not known, and 0 is used" in said
    assert "∞" in str(found)


# Bootstrap --------------------------------------------------------------------------------------


def test_the_bootstrap_draws_all_measures_alike(frame):
    found = compared(frame.assign(again=-2.0 * frame["ap"]), ["ap", "again", "rr"], topic=10)
    table = found.differences(interval="bootstrap", n=20, rng=4).table.set_index(
        ["first", "second"]
    )
    same = table.loc[("ap", "again")]
    np.testing.assert_allclose(same[["difference", "low", "high"]].astype(float), 0.0, atol=1e-9)
    assert same["correlation"] == pytest.approx(1.0)
    other = table.loc[("ap", "rr")]
    values = []
    for name in ("ap", "rr"):
        res = vcomp.fit(f"{name} {BOTH}", frame, method="anova")
        drawn = np.maximum(res.resample(["sys", "topic"], 20, rng=4).adjusted, 0.0)
        values.append(drawn[:, 0] / (drawn[:, 0] + drawn[:, 2] / 10))
    low, high = np.quantile(values[0] - values[1], [0.025, 0.975])
    assert (other["low"], other["high"]) == pytest.approx((low, high), rel=1e-10)
    assert other["correlation"] == pytest.approx(np.corrcoef(*values)[0, 1])
    workers = found.differences(interval="bootstrap", n=20, rng=4, workers=2).table
    pd.testing.assert_frame_equal(workers.set_index(["first", "second"]), table)
    one = found.differences(interval="bootstrap", n=10, shared="topic")
    assert one.interval_method == "percentiles of 10 joint bootstrap replicates over topic"


def test_replicates_that_fail_in_one_measure_are_not_counted(frame, monkeypatch):
    found = compared(frame, topic=10)
    failing = iter([[2, 5], [5, 9]])
    resample = vcomp.VarianceComponentsResults.resample

    def failed(self, *given, **options):
        made = resample(self, *given, **options)
        return replace(made, converged=~np.isin(np.arange(12), next(failing)))

    monkeypatch.setattr(vcomp.VarianceComponentsResults, "resample", failed)
    one = found.differences(interval="bootstrap", n=12, rng=3, shared="topic")
    assert one.interval_method == "percentiles of 9 joint bootstrap replicates over topic"


def test_a_bootstrap_needs_the_same_levels(frame):
    fewer = vcomp.compare_measures(
        f"ap {BOTH}", {"one": frame, "two": frame[frame["topic"] != "t0"]}, topic=5
    )
    with pytest.raises(
        vcomp.EstimationError, match="'two' do not have the same levels of 'topic'"
    ):
        fewer.differences(interval="bootstrap", n=5)
    assert len(fewer.differences(interval="bootstrap", n=5, shared="sys").table) == 1
    with pytest.raises(vcomp.EstimationError, match="share no facet"):
        fewer.differences(interval="bootstrap", n=5, shared=[])
    holes = vcomp.compare_measures(BOTH, frame.drop(index=3), responses=["ap", "rr"], topic=5)
    with pytest.raises(vcomp.EstimationError, match="not fully crossed"):
        holes.differences(interval="bootstrap", n=5)
    assert _drawn(holes, "sys") == ["sys"]


def test_facets_that_are_drawn_must_be_crossed_but_not_others():
    index = pd.MultiIndex.from_product([range(3)] * 4, names=list("abcd"))
    data = index.to_frame(index=False).query("c > 0 or d > 0")
    for k, y in enumerate("xy"):
        data[y] = np.random.default_rng(k).normal(size=len(data))
    right = "~ (1|a) + (1|b) + (1|c) + (1|d)"
    found = vcomp.compare_measures(right, data, responses=["x", "y"], method="type1")
    assert _drawn(found, ["a", "b"]) == ["a", "b"]
    with pytest.raises(vcomp.EstimationError, match="'x' c and d are not fully crossed"):
        _drawn(found, ["b", "c"])


def test_neither_nested_nor_fixed_facets_are_drawn():
    rng = np.random.default_rng(1)
    s, h, i = (a.ravel() for a in np.indices((5, 4, 3)))
    data = {"s": s, "h": h, "i": 10 * h + i}
    data |= {y: rng.normal(size=5)[s] + rng.normal(size=s.size) for y in ("u", "v")}
    formula = "~ (1|s) + (1|h/i) + (1|s:h)"
    for fixed, expected in (([], ["s", "h"]), (["h"], ["s"])):
        found = vcomp.compare_measures(
            formula, data, responses=["u", "v"], dstudy={"fixed": fixed}, h=4, i=3
        )
        assert _drawn(found, "auto") == expected
        assert _drawn(found, ["s"]) == ["s"]


# Effects that are not normal ---------------------------------------------------------------------


@pytest.mark.parametrize("coefficient", ["Erho2", "Phi"])
def test_robust_differences_combine_the_robust_intervals_of_the_measures(coefficient):
    frame = scores(2, 12, 15)
    found = compared(frame, topic=12, interval="mls")
    row = found.differences(coefficient, interval="robust").table.iloc[0]
    normal = found.differences(coefficient).table.iloc[0]
    assert row["correlation"] == normal["correlation"]
    assert row["low"] != pytest.approx(normal["low"], rel=0.01)
    fits = [vcomp.fit(f"{m} {BOTH}", frame, method="anova") for m in MEASURES]
    for made, interval in ((row, "robust"), (normal, "mls")):
        tables = [fit.dstudy(topic=12, interval=interval).table for fit in fits]
        (e1, l1, _), (e2, _, u2) = (
            [table[coefficient + end].item() for end in ("", "_low", "_high")] for table in tables
        )
        r = made["correlation"]
        below = (e1 - l1) ** 2 + (u2 - e2) ** 2 - 2 * r * (e1 - l1) * (u2 - e2)
        assert made["low"] == pytest.approx(e1 - e2 - sqrt(below), rel=1e-8)
    # Measures whose own intervals are robust have the same differences.
    other = compared(frame, topic=12, interval="robust")
    again = other.differences(coefficient).table.iloc[0]
    np.testing.assert_allclose(
        again[["low", "high"]].astype(float), row[["low", "high"]].astype(float), rtol=1e-12
    )


def test_all_tables_of_a_comparison_have_the_same_intervals():
    frame = scores(2, 12, 15)
    found = compared(frame, topic=12, interval="robust")
    res = vcomp.fit(f"{MEASURES[0]} {BOTH}", frame, method="anova")
    wanted = res.gstudy(interval="robust")
    part = found.components.iloc[: len(wanted)]
    np.testing.assert_allclose(part["high"], wanted["high"], rtol=1e-12)
    assert "Intervals: Eρ² robust modified large sample" in str(found)
    need = res.dstudy(topic=12, interval="robust").required(0.95, "Erho2", "topic")
    assert found.table["n_Erho2_high"].iloc[0] == need.high
    assert found.required_ratios().table["low"].notna().all()
    with pytest.raises(vcomp.PlanError, match="interval is given twice"):
        compared(frame, topic=12, interval="robust", dstudy={"interval": "log"})


# What cannot be ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"coefficient": "phi"}, vcomp.PlanError, "did you mean 'Phi'"),
        ({"interval": "t"}, vcomp.PlanError, "interval must be 'mover', 'robust' or"),
        ({"shared": ["topics"]}, vcomp.EstimationError, "did you mean 'topic'"),
        ({"interval": "bootstrap", "n": 0}, vcomp.EstimationError, "n must be a whole number"),
    ],
)
def test_options_that_cannot_be(frame, arguments, error, message):
    with pytest.raises(error, match=message):
        compared(frame).differences(**arguments)


def test_plans_and_facets_that_cannot_be_compared(frame):
    first, second = (vcomp.fit(f"{m} {BOTH}", frame) for m in MEASURES)
    found = vcomp.compare_measures(data={"a": first, "b": second})
    loaded = vcomp.VarianceComponentsResults.from_json(second.to_json())
    stored = vcomp.compare_measures(data={"a": first, "b": loaded})
    pd.testing.assert_frame_equal(stored.table, found.table)
    with pytest.raises(vcomp.DataError, match="loaded without its rows"):
        stored.differences()
    with pytest.raises(vcomp.PlanError, match="coefficient must be 'Erho2' or 'Phi'"):
        found.required_ratios("Erho")
    data = frame.assign(judge=np.arange(len(frame)) % 2)
    three = vcomp.compare_measures(
        "~ (1|sys) + (1|topic) + (1|judge)", data, responses=MEASURES, topic=5, judge=2
    )
    with pytest.raises(
        vcomp.PlanError, match=r"several facets of measure .* have sizes: pass facet="
    ):
        three.required_ratios()


def test_the_summary(frame):
    found = compared(frame, ["ap", "p20", "rr"], topic=[10, 50])
    text = " ".join(str(found.differences("Phi")).split())
    assert text.startswith("Differences of Φ")
    assert "ap − p20" in text
    assert "jackknife over sys and topic" in text
    table = found.differences("Phi").table
    printed = printed_columns(found.differences("Phi").summary())
    assert printed[""] == [
        f"{a} − {b}" for a, b in zip(table["first"], table["second"], strict=True)
    ]
    assert printed["topic"] == ["10", "50"] * 3
    for name, decimals in (("difference", 3), ("correlation", 2)):
        cells = [cell.replace("−", "-") for cell in printed[name]]
        assert cells == [f"{x:.{decimals}f}" for x in table[name]]
    assert "<table" in found.differences()._repr_html_()
    assert repr(found.differences()) == "<MeasureDifferences: Differences of Eρ², 6 rows>"


def collection(n_sys, n_topic, seed, start=1, prefix=""):
    rng = np.random.default_rng(seed)
    s, t = (a.ravel() for a in np.indices((n_sys, n_topic)))
    score = rng.normal(size=n_sys)[s] + rng.normal(size=n_topic)[t] + rng.normal(size=s.size)
    labels = [f"{prefix}{k + start}" for k in t]
    return pd.DataFrame({"sys": s + 1, "topic": labels, "score": score})


def test_collections_that_share_running_numbers_only():
    formula = "score ~ (1|sys) + (1|topic)"
    both = {"one": collection(8, 12, 0), "other": collection(6, 9, 1)}
    found = vcomp.compare_measures(formula, both)
    words = r"share levels of sys and topic that are running numbers only, .*8 and 6 levels of sys"
    with pytest.warns(vcomp.VcompWarning, match=words):
        found.differences()
    for shared in ([], ["sys", "topic"]):
        found.differences(shared=shared)
    same = {"one": collection(8, 12, 0), "other": collection(8, 12, 1)}
    vcomp.compare_measures(formula, same).differences()
    named = {"one": collection(8, 12, 0, 401), "other": collection(8, 9, 1, 401)}
    vcomp.compare_measures(formula, named).differences()


def test_replicates_that_one_of_both_measures_lacks_are_left_out():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 50, 2))
    a[3, 0], b[7, 1], usable = np.nan, np.nan, np.arange(50) != 20
    kept = [k for k in range(50) if k not in (3, 7, 20)]
    estimates = {"a": np.array([1.0, 2.0]), "b": np.array([0.5, 3.0])}
    found = _table(["a", "b"], estimates, {"a": a, "b": b}, usable, {"topic": np.ones(2)}, 0.2)
    assert found["difference"].tolist() == [0.5, -1.0]
    low, high = np.quantile((a - b)[kept], [0.1, 0.9], axis=0)
    np.testing.assert_allclose(found[["low", "high"]], np.transpose([low, high]), rtol=1e-12)
    r = [np.corrcoef(a[kept, j], b[kept, j])[0, 1] for j in range(2)]
    np.testing.assert_allclose(found["correlation"], r, rtol=1e-12)


def test_sizes_from_f_quantiles_are_unlimited_where_the_coefficient_is_not_above_zero():
    """n = goal/(1 − goal) · (1 − Φ)/Φ of single scores, or over their signal to noise (eq. 12)."""
    table = np.random.default_rng(4).normal(size=(6, 5)) + 0.4 * np.arange(6.0)[:, None]
    res = vcomp.fit(f"y {BOTH}", {
        "y": table.ravel(), "sys": np.repeat(range(6), 5), "topic": np.tile(range(5), 6),
    }, method="anova")  # fmt: skip
    study = res.dstudy(object="sys")
    squares = first_two_way(study.components, study.plan)
    for name in ("Erho2", "Phi"):
        v = np.array(F_INTERVALS[name].limits(squares, 0.05))
        low, high = _f_ends(squares, 0.9, name, 0.05)
        noise = np.ones(2) if name == "Erho2" else 1.0 - v
        expected = [9.0 * e / x if x > 0.0 else np.inf for e, x in zip(noise, v, strict=True)]
        assert [high[0], low[0]] == pytest.approx(expected, rel=1e-12)

"""A table of measures, each by its best estimator: published values, formulas, bad input."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import vcomp
from tests.helpers.examples import examples
from vcomp.exceptions import DataError, EstimationError, PlanError, VcompWarning
from vcomp.ir import measures
from vcomp.ir.accuracies import accuracy
from vcomp.ir.accuracy_estimators import Estimated
from vcomp.ir.accuracy_result import _empty
from vcomp.ir.measures import available, get
from vcomp.ir.scores import as_score_matrix
from vcomp.ir.significance import two_way_components
from vcomp.ir.splitting import split_half

RNG = np.random.default_rng(7)
SCORES = np.clip(
    0.4 + RNG.normal(0, 0.12, (1, 9)) + RNG.normal(0, 0.1, (24, 1)) + RNG.normal(0, 0.08, (24, 9)),
    0.0,
    1.0,
)


def holed(rows=((3, 2), (10, 5), (11, 5))):
    X = SCORES.copy()
    for topic, system in rows:
        X[topic, system] = np.nan
    return X


def row(table, measure, n):
    (found,) = table[(table["measure"] == measure) & (table["n"] == n)].itertuples()
    return found


def mean_squares(X):
    n, k = X.shape
    systems, topics = X.mean(axis=0), X.mean(axis=1)
    rest = X - systems - topics[:, None] + X.mean()
    return (
        n * systems.var(ddof=1),
        k * topics.var(ddof=1),
        (rest**2).sum() / ((n - 1) * (k - 1)),
    )


def test_columns_and_order():
    table = accuracy(SCORES, ["Phi", "tau"], [50, 10]).table
    assert list(table.columns) == ["measure", "n", "estimate", "low", "high", "estimator"]
    assert table["measure"].tolist() == ["Phi", "Phi", "tau", "tau"]
    assert table["n"].tolist() == [50, 10, 50, 10]
    assert table["n"].dtype == np.int64
    assert table["estimator"].tolist() == ["D-study", "D-study", "shrunken", "shrunken"]


def test_by_default_a_handful_at_the_size_of_the_collection():
    table = accuracy(SCORES).table
    assert table["measure"].tolist() == ["tau", "tau_ap", "Erho2", "Phi", "rmse"]
    assert set(table["n"]) == {24}


def test_trec_3_as_published(shared_data):
    # Urbano, Marrero and Martín (2013), Table 1: three decimals.
    scores = pd.read_csv(shared_data("adhoc3.csv"))
    kept = as_score_matrix(scores).drop_worst(0.25)
    published = vcomp.datasets.load("trec_collections")
    wanted = published[published["track"] == "Ad Hoc 3"]
    table = accuracy(kept, ["Erho2", "Phi"], interval="f").table.set_index("measure")
    for name in ("Erho2", "Phi"):
        ends = table.loc[name, ["estimate", "low", "high"]].to_numpy(dtype=float)
        printed = wanted[[name, f"{name}_low", f"{name}_high"]].to_numpy(dtype=float)[0]
        np.testing.assert_allclose(ends, printed, atol=6e-4)


@pytest.mark.parametrize("matrix", [SCORES, holed()], ids=["complete", "holes"])
def test_rank_correlations_are_those_of_their_estimators(matrix):
    table = accuracy(matrix, ["tau", "tau_ap"], [5, 24, 80], alpha=0.2).table
    for name, variant in (("tau", "a"), ("tau_ap", "ap")):
        expected = vcomp.ir.expected_tau(matrix, [5, 24, 80], variant=variant, alpha=0.2)
        mine = table[table["measure"] == name]
        for column in ("n", "estimate", "low", "high"):
            np.testing.assert_array_equal(mine[column], expected[column])


def test_the_published_estimator_of_rank_correlations():
    made = accuracy(SCORES, ["tau", "tau_ap", "Phi"], [5, 80], estimator="urbano", alpha=0.2)
    for name, variant in (("tau", "a"), ("tau_ap", "ap")):
        expected = vcomp.ir.expected_tau(
            SCORES, [5, 80], estimator="urbano", variant=variant, alpha=0.2
        )
        mine = made.table[made.table["measure"] == name]
        for column in ("n", "estimate", "low", "high", "estimator"):
            assert mine[column].tolist() == expected[column].tolist()
        alone = get(name).estimate(SCORES, [5, 80], estimator="urbano")
        np.testing.assert_array_equal(alone, expected["estimate"])
        assert (alone > get(name).estimate(SCORES, [5, 80])).all()
    assert "estimator urbano" in str(made)
    assert "estimator shrunken" in str(accuracy(SCORES, "tau"))
    other = accuracy(SCORES, "Phi", [5, 80], alpha=0.2).table
    pd.testing.assert_frame_equal(made.table[4:].reset_index(drop=True), other)
    with pytest.raises(PlanError, match="estimator='urbano' applies to τ and τ_AP, and neither"):
        accuracy(SCORES, ["Phi", "sens_abs"], estimator="urbano")
    with pytest.raises(PlanError, match="not 'split_half'; vcomp"):
        get("tau").estimate(SCORES, 5, estimator="split_half")


def test_without_a_size_it_is_the_collection_itself():
    # Its scores are known, those of a new test of its size are not.
    table = accuracy(SCORES, ["tau", "tau_ap"], rng=9).table
    for name, variant in (("tau", "a"), ("tau_ap", "ap")):
        found = row(table, name, 24)
        expected = vcomp.ir.expected_tau(SCORES, variant=variant, rng=9)
        for column in ("estimate", "low", "high"):
            assert getattr(found, column) == expected[column].item()
    new = accuracy(SCORES, ["tau", "tau_ap"], 24, rng=9).table
    assert not table.equals(new)


def test_dstudy_measures_by_hand():
    ms_s, ms_t, ms_e = mean_squares(SCORES)
    n, k = SCORES.shape
    s, t = (ms_s - ms_e) / n, (ms_t - ms_e) / k
    table = accuracy(SCORES, ["Erho2", "Phi", "rmse"], [6, 60]).table
    for size in (6, 60):
        assert row(table, "Erho2", size).estimate == pytest.approx(s / (s + ms_e / size))
        assert row(table, "Phi", size).estimate == pytest.approx(s / (s + (t + ms_e) / size))
        rmse = row(table, "rmse", size)
        assert rmse.estimate == pytest.approx(np.sqrt((t + ms_e) / size), rel=1e-12)
        assert rmse.low < rmse.estimate < rmse.high
    # Feldt's interval is exact for normal effects.
    table = accuracy(SCORES, ["Erho2"], 60, interval="f").table
    df = (k - 1, (k - 1) * (n - 1))
    for end, tail in (("low", 0.975), ("high", 0.025)):
        zeta = (ms_s / ms_e / stats.f.ppf(tail, *df) - 1) / n
        expected = 60 * zeta / (1 + 60 * zeta)
        assert getattr(row(table, "Erho2", 60), end) == pytest.approx(expected, rel=1e-9)


def test_power_of_the_f_test_by_hand():
    n, k = SCORES.shape
    ms_e = mean_squares(SCORES)[2]
    df = (k - 1) * (n - 1)

    def power(variance, size):
        u, v = k - 1, k * (size - 1)
        noncentrality = size * 0.1**2 / (2 * variance)  # k n f₁², f₁² = δ²/(2 k σ²)
        return stats.ncf.sf(stats.f.isf(0.05, u, v), u, v, noncentrality)

    table = accuracy(SCORES, get("F", delta=0.1), [10, 30], interval="mls").table
    for size in (10, 30):
        found = row(table, "F", size)
        assert found.estimate == pytest.approx(power(ms_e, size), rel=1e-9)
        for end, tail in (("low", 0.025), ("high", 0.975)):
            variance = df * ms_e / stats.chi2.ppf(tail, df)
            assert getattr(found, end) == pytest.approx(power(variance, size), rel=1e-6)
    assert set(table["estimator"]) == {"power, D-study"}


def test_what_has_no_formula_is_extrapolated():
    names = ["sens_abs", "sens_rel", "power_ratio"]
    made = accuracy(SCORES, names, [12, 50], trials=20, rng=3, estimator="split_half")
    study = split_half(SCORES, names, [12, 50], trials=20, models="logit", rng=3)
    expected = study.table
    for column, theirs in (("estimate", "estimate"), ("low", "obs_low"), ("high", "obs_high")):
        np.testing.assert_array_equal(made.table[column], expected[theirs])
    assert made.split_half.trials == 20
    assert set(made.table["estimator"]) == {"split_half, logit"}
    one = get("sens_rel").estimate(SCORES, [12, 50], trials=20, rng=3)
    mine = made.table.query("measure == 'sens_rel'")["estimate"]
    np.testing.assert_allclose(mine, one, rtol=1e-12)


def test_all_measures_may_be_extrapolated():
    made = accuracy(
        SCORES, ["tau", "Phi"], 30, estimator="split_half", model="exp1", trials=15, rng=2
    )
    study = split_half(SCORES, ["tau", "Phi"], 30, trials=15, models="exp1", rng=2)
    np.testing.assert_array_equal(made.table["estimate"], study.table["estimate"])
    assert made.dstudy is None
    assert set(made.table["estimator"]) == {"split_half, exp1"}


def test_all_there_are_at_once():
    few = SCORES[:12]
    with pytest.warns(VcompWarning) as said:
        made = accuracy(few, available(), [10, 40], trials=2)
    assert list(made.measures) == available()
    lost = {
        name
        for name in made.measures
        if made.table.set_index("measure").loc[name, "estimate"].isna().any()
    }
    assert lost == {str(w.message).split()[0] for w in said if "extrapolated" in str(w.message)}
    assert "d_rank" in lost
    assert "d_rank has no value for any of the halves: the covariance of the systems is" in str(
        made
    )


def test_measures_of_one_name_have_their_options_in_it():
    made = accuracy(SCORES, [get("F", delta=0.05), get("F", delta=0.2)], 20)
    small, large = made.table["measure"]
    assert "delta=0.05" in small
    assert "delta=0.2" in large
    assert made.table["estimate"].is_monotonic_increasing
    assert "delta=0.2" in str(made)


def test_other_sizes_and_levels():
    made = accuracy(SCORES, None, [10, 24])
    again = accuracy(SCORES, None, [17, 33], alpha=0.3)
    pd.testing.assert_frame_equal(made.predict([17, 33], alpha=0.3), again.table)
    pd.testing.assert_frame_equal(made.predict([10, 24]), made.table)
    with pytest.raises(PlanError, match="must be positive, not 0"):
        made.predict(0)
    with pytest.raises(PlanError, match="alpha must be between 0 and 1"):
        made.predict(5, alpha=2)


def test_holes_are_filled_by_no_one_and_components_are_reml():
    matrix = as_score_matrix(holed())
    res = vcomp.fit("score ~ (1|system) + (1|topic)", matrix.to_long())
    np.testing.assert_allclose(two_way_components(matrix)[0].values, res.vcomp, rtol=1e-8)
    made = accuracy(matrix, ["Erho2", "Phi", "rmse"], [10, 40]).table
    theirs = res.accuracy(["Erho2", "Phi", "rmse"], topic=[10, 40]).table
    pd.testing.assert_frame_equal(made, theirs, rtol=1e-7)


def test_negative_components_are_zero_unless_kept():
    X = np.array([[0.1, 0.9], [0.9, 0.1], [0.2, 0.8], [0.8, 0.25]])
    made = accuracy(X, ["Erho2"], 10)
    assert made.table["estimate"].item() == 0.0
    assert "is replaced by 0" in str(made)
    kept = accuracy(X, ["rmse"], 10, negative="keep")
    zero = accuracy(X, ["rmse"], 10)
    assert kept.table["estimate"].item() < zero.table["estimate"].item()


def test_drop_worst():
    kept = as_score_matrix(SCORES).drop_worst(0.25)
    pd.testing.assert_frame_equal(accuracy(SCORES, drop_worst=0.25).table, accuracy(kept).table)


def test_threads_and_seeds():
    one = accuracy(SCORES, "sens_rel", 40, trials=60, rng=5)
    two = accuracy(SCORES, "sens_rel", 40, trials=60, rng=5, workers=2)
    other = accuracy(SCORES, "sens_rel", 40, trials=60, rng=6)
    pd.testing.assert_frame_equal(one.table, two.table)
    assert not one.table.equals(other.table)


def test_pages():
    made = accuracy(SCORES, ["tau", "rmse", "sens_rel"], [25, 50], trials=10)
    text = str(made.summary())
    assert "Accuracy of tests of n topics, estimated from 9 systems × 24 topics" in text
    for symbol in ("τ", "ε", "sens_rel"):
        assert f"\n{symbol}" in text
    assert "accuracy of halves of 2 to 12 topics against other halves" in text
    assert "Beyond, curves are extrapolated" in text
    assert "Beyond" not in str(accuracy(SCORES, "sens_rel", 12, trials=10).summary())
    assert repr(made) == "<Accuracy: tau, rmse, sens_rel of 9 system on 25 to 50 topic>"
    assert "<table" in made._repr_html_()
    assert repr(accuracy(SCORES, "tau", 25)).endswith("on 25 topic>")


def test_it_travels():
    made = accuracy(SCORES, ["tau", "rmse", "p_value"], [25, 50], trials=3)
    again = pickle.loads(pickle.dumps(made))
    pd.testing.assert_frame_equal(again.table, made.table)
    pd.testing.assert_frame_equal(again.predict(33), made.predict(33))


def test_curves_of_trec_come_from_the_same_dstudy():
    made = accuracy(SCORES, ["tau", "Phi"], [25, 50])
    mapped = vcomp.ir.map_dstudy(made.dstudy, "rmse")
    assert mapped["topic"].tolist() == [25, 50]


@settings(max_examples=examples(15), deadline=None)
@given(
    shift=st.floats(-5.0, 5.0),
    scale=st.floats(0.01, 100.0),
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(3, 12),
    k=st.integers(2, 8),
)
def test_what_does_not_depend_on_units_and_order(shift, scale, seed, n, k):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, k)) + rng.normal(size=k) + rng.normal(size=(n, 1))
    names = ["tau", "Erho2", "Phi", "rmse"]
    plain = accuracy(X, names, [n, 50]).table
    changed = shift + scale * X[rng.permutation(n)][:, rng.permutation(k)]
    other = accuracy(changed, names, [n, 50]).table
    factor = np.where(plain["measure"] == "rmse", scale, 1.0)
    np.testing.assert_allclose(other["estimate"], factor * plain["estimate"], rtol=1e-7, atol=1e-9)
    # Draws behind the interval of τ go with the order of topics.
    ours, theirs = plain["measure"] != "tau", other["measure"] != "tau"
    for end in ("low", "high"):
        expected = (factor * plain[end])[ours]
        np.testing.assert_allclose(other[end][theirs], expected, rtol=1e-6, atol=1e-9)


# Bad input --------------------------------------------------------------------------------------


def test_a_collection_of_one_mean():
    # Systems whose means are all the same: nothing is to be ranked.
    X = np.array([[0.1, 0.2, 0.3], [0.2, 0.3, 0.1], [0.3, 0.1, 0.2]])
    made = accuracy(X, ["tau", "Erho2"], [3, 30]).table
    np.testing.assert_allclose(made["estimate"], 0.0, atol=1e-12)


def test_systems_that_are_the_same():
    X = np.repeat(np.array([[0.1], [0.4], [0.3]]), 3, axis=1)
    made = accuracy(X, ["tau", "Erho2", "rmse"], 9)
    tau, erho2, rmse = made.table["estimate"]
    assert tau == 0.0
    assert np.isnan(erho2)
    assert rmse > 0.0
    assert "Eρ² is not defined" in str(made)


def test_systems_apart_by_a_constant_have_no_error():
    X = np.array([[0.1], [0.4], [0.3]]) + np.array([0.0, 0.1, 0.2])
    made = accuracy(X, ["tau", "Erho2", get("F", delta=0.1)], 9).table
    np.testing.assert_allclose(made["estimate"], 1.0)


MISTAKES = {
    "at least two topics (rows) and two systems (columns); there are 1 × 9": lambda: accuracy(
        SCORES[:1]
    ),
    "there are 24 × 1": lambda: accuracy(SCORES[:, :1]),
    "all scores are equal, so that there is no variance": lambda: accuracy(np.ones((5, 4))),
    "no system has a score, so that there is no variance": lambda: accuracy(
        np.full((5, 4), np.nan)
    ),
    # One score is equal to itself.
    "all scores are equal, so": lambda: accuracy([[0.3, np.nan], [np.nan, np.nan]]),
    "sens_abs has no estimator of its own, and is extrapolated from halves of the topics, which "
    "need all scores; scores: 3 of 216 are missing, that of system '2' on topic '3'": lambda: (
        accuracy(holed(), ["tau", "sens_abs"])
    ),
    "τ is extrapolated from halves of the topics, which need all": lambda: accuracy(
        holed(), "tau", estimator="split_half"
    ),
    "systems '0' and '1' have fewer than two topics in common": lambda: accuracy(
        [[1.0, np.nan, 2.0], [2.0, np.nan, 1.0], [np.nan, 1.0, 3.0], [np.nan, 2.0, 2.0]], "tau"
    ),
    "the available scores: ": lambda: accuracy([[1, np.nan], [np.nan, 2]], "Phi"),
    "no measure 'taus' (did you mean 'tau'?); there are tau, tau_ap": lambda: accuracy(
        SCORES, "taus"
    ),
    "no measure is given": lambda: accuracy(SCORES, []),
    "estimator must be 'shrunken', 'urbano' or 'split_half', not 'halves'": lambda: accuracy(
        SCORES, estimator="halves"
    ),
    "model must be 'exp1', 'exp2' or 'logit', not 'logits' (did you mean 'logit'?)": lambda: (
        accuracy(SCORES, "sens_abs", model="logits")
    ),
    "trials= applies to measures that are extrapolated from halves": lambda: accuracy(
        SCORES, "tau", trials=50
    ),
    "model= applies to measures that are extrapolated": lambda: accuracy(
        SCORES, "tau", model="exp1"
    ),
    "trials must be a whole number of at least 1, not 0": lambda: accuracy(
        SCORES, "sens_abs", trials=0
    ),
    "alpha must be between 0 and 1": lambda: accuracy(SCORES, "tau", alpha=1.5),
    "the number of topics must be positive, not -1": lambda: accuracy(SCORES, "tau", -1),
    "the number of topics must be positive, not True": lambda: accuracy(SCORES, "tau", True),
    "the F test needs more than one topic, not 1": lambda: accuracy(SCORES, "F", [1, 5]),
    "at least 0 and less than 1, not 1": lambda: accuracy(SCORES, drop_worst=1),
    "interval= applies to measures from a D-study (Eρ², Φ, ε and F)": lambda: accuracy(
        SCORES, "tau", interval="wald"
    ),
    "negative= applies to measures from a D-study": lambda: accuracy(
        SCORES, "Phi", estimator="split_half", negative="keep"
    ),
    "is not known": lambda: accuracy(SCORES, "Phi", interval="nonsense"),
    "negative": lambda: accuracy(SCORES, "Phi", negative="drop"),
    "scores must be": lambda: accuracy([["a", "b"], ["c", "d"]]),
    "infinite": lambda: accuracy([[1.0, 2.0], [np.inf, 1.0]]),
    "need 4 topics; there are 3": lambda: accuracy(SCORES[:3], "sens_abs"),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_say_what_and_where(message):
    with pytest.raises((DataError, PlanError, EstimationError)) as caught:
        MISTAKES[message]()
    assert message in str(caught.value)


def test_robust_intervals_are_those_of_a_fit():
    """The default, as requested by name, and the reason where it is normal theory."""
    rng = np.random.default_rng(3)
    scores = rng.exponential(size=(12, 7)) + rng.exponential(size=7)
    matrix = as_score_matrix(scores)
    res = vcomp.fit("score ~ (1|system) + (1|topic)", matrix.to_long(), method="anova")
    for interval in ("auto", "robust"):
        found = accuracy(matrix, "Phi", [12], interval=interval)
        study = res.dstudy(object="system", topic=12, interval=interval).table
        ends = found.table[["low", "high"]].to_numpy()[0]
        np.testing.assert_allclose(ends, study[["Phi_low", "Phi_high"]].to_numpy()[0], rtol=1e-8)
        assert "robust modified large sample" in str(found)
    few = as_score_matrix(scores[:5, :5])
    said = " ".join(str(accuracy(few, "Phi", [12])).split())
    assert "effects are treated as normal, as no facet has 6 or more levels" in said
    assert "robust" in str(accuracy(few, "Phi", [12], interval="robust"))
    # Additive scores have no residual, up to rounding error or exactly.
    exact = as_score_matrix(np.add.outer(np.arange(8.0), np.arange(7.0)))
    with pytest.raises(vcomp.EstimationError, match="needs a residual above zero"):
        accuracy(exact, "Phi", [12], interval="robust")


def test_an_interval_over_the_whole_range_carries_no_information():
    """α₊ of a few conflicts: .0002 [<.00001, >.99999]."""
    conflicts, tau = measures.get("major_conflicts"), measures.get("tau")
    estimate = np.array([0.0002, 0.001])
    wide = Estimated(estimate, np.array([1e-6, 1e-4]), np.array([1 - 1e-6, 0.01]))
    narrow = Estimated(estimate, np.array([-0.5, 0.1]), np.array([0.9, 0.2]))  # of -1 to 1
    table = SimpleNamespace(
        values={"major_conflicts": wide, "tau": narrow},
        measures={"major_conflicts": conflicts, "tau": tau},
        symbol={"major_conflicts": "α₊", "tau": "τ"}.get,
    )
    expected = "α₊: an interval over the whole range of a measure carries no information."
    assert _empty(table) == [expected]
    table.values["major_conflicts"] = Estimated(estimate, np.zeros(2), np.full(2, 0.5))
    assert _empty(table) == []


def test_measures_may_have_an_estimator_of_their_own():
    made = get("tau", estimator="urbano")
    np.testing.assert_array_equal(
        made.estimate(SCORES, [5, 30]),
        vcomp.ir.expected_tau(SCORES, [5, 30], estimator="urbano")["estimate"],
    )
    ap = get("tau_ap", estimator="urbano")
    np.testing.assert_array_equal(
        ap.estimate(SCORES, 30, estimator="shrunken"),
        vcomp.ir.expected_tau(SCORES, 30, variant="ap")["estimate"],
    )
    assert repr(made) == "Tau(variant='b', estimator='urbano')"
    table = accuracy(SCORES, ["tau", made], 30).table
    assert table["estimator"].tolist() == ["shrunken", "urbano"]
    assert table["measure"].tolist() == ["Tau(variant='b')", repr(made)]
    printed = str(accuracy(SCORES, ["tau", made], 30).summary())
    assert "(estimator shrunken)" in printed
    assert "(estimator urbano)" in printed
    with pytest.raises(PlanError, match="estimator must be 'shrunken' or 'urbano'"):
        get("tau", estimator="own")
    with pytest.raises(PlanError, match="is of all measures, and Tau"):
        accuracy(SCORES, made, 30, estimator="split_half")

"""The judge card against published coefficients, dense least squares, refits and ppi-python."""

import ast
import math
import re
from itertools import combinations, permutations, product

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.inter_rater import cohens_kappa, fleiss_kappa

import vcomp
from tests.helpers.printed_tables import printed_words
from vcomp import display
from vcomp.evals.item_sampling import effective_number, errors_of_judges, powered_mean
from vcomp.evals.rater_agreement import shifts

nan = math.nan
KRIPPENDORFF = np.array([
    [1, 2, 3, 3, 2, 1, 4, 1, 2, nan, nan, nan], [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, nan, 3],
    [nan, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, nan], [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, nan],
]).T  # fmt: skip


def powered(*arguments, **options):
    """The prediction-powered mean with its standard error; equal answers do not show one."""
    mean, parts, df, lam = powered_mean(*arguments, **options)
    return mean, math.sqrt(parts @ parts) or nan, df, lam


def long(ratings, **columns):
    """A row a rating of items × judges."""
    item, judge = np.indices(ratings.shape)
    table = pd.DataFrame({"item": item.ravel(), "judge": judge.ravel(), "score": ratings.ravel()})
    return table.assign(**columns)[np.isfinite(table["score"])]


def coefficient(table, name, level):
    return table.set_index(["coefficient", "level"]).loc[name, level]


def panel(seed=1, missing=0.15):
    """4 models × 12 items × 3 judges, of which two are of a model's family."""
    rng = np.random.default_rng(seed)
    m, i, j = (a.ravel() for a in np.indices((4, 12, 3)))
    truth = 3.0 + rng.normal(size=(4, 12)) + 0.4 * np.arange(4)[:, None]
    shared = 0.5 * rng.normal(size=(4, 12))
    score = truth[m, i] + shared[m, i] + 0.3 * j + 0.6 * (m == j) + 0.5 * rng.normal(size=m.size)
    models, judges = np.array(["g", "c", "l", "q"]), np.array(["g", "c", "x"])
    table = pd.DataFrame({"model": models[m], "item": i, "judge": judges[j],
                          "score": np.clip(np.rint(score), 1.0, 5.0)})  # fmt: skip
    label = np.where(i < 5, np.clip(np.rint(truth[m, i]), 1.0, 5.0), nan)
    return table.assign(human=label)[rng.random(m.size) >= missing]


@pytest.fixture(scope="module")
def table():
    return panel()


@pytest.fixture(scope="module")
def card(table):
    return vcomp.evals.judges(table, human="human")


# Agreement --------------------------------------------------------------------------------------


def test_published_coefficients_with_missing_ratings():
    """Krippendorff (2011), computing α; the vignette of R's irrCAC has Gwet's of the same data."""
    found = vcomp.evals.judges(long(KRIPPENDORFF)).agreement
    published = {
        ("Krippendorff α", "nominal"): 0.743, ("Krippendorff α", "ordinal"): 0.815,
        ("Krippendorff α", "interval"): 0.849, ("agreement", "nominal"): 0.81818,
        ("Gwet AC1", "nominal"): 0.77544, ("Gwet AC2", "ordinal"): 0.89894,
        ("Gwet AC2", "interval"): 0.91400,
    }  # fmt: skip
    for key, value in published.items():
        digits = 5 if round(value, 3) != value else 3
        assert round(coefficient(found, *key)["estimate"], digits) == pytest.approx(value)


ABSTRACTORS = np.array([
    pair for pair, n in {(0, 0): 13, (1, 1): 20, (1, 2): 7, (2, 1): 4, (2, 2): 56}.items()
    for _ in range(n)
], dtype=float)  # fmt: skip
_COUNTS = [
    "00060", "03003", "01401", "00006", "03030", "20400", "00402", "20310", "20040",
    "00006", "10050", "11040", "03300", "10050", "02031",
]  # fmt: skip
"""Ratings by 6 judges of 15 patients, counted in 5 diagnoses."""
PSYCHIATRISTS = np.array([np.repeat(np.arange(5.0), [int(n) for n in row]) for row in _COUNTS])
OBSERVERS = np.array([
    [1, 1, 2, nan, 2], [1, 1, 0, 1, nan], [2, 3, 3, 3, nan], [nan, 0, 0, nan, 0],
    [0, 0, 0, nan, 0], [0, 0, 0, nan, 0], [1, 0, 2, nan, 1], [1, nan, 2, 0, nan],
    [2, 2, 2, nan, 2], [2, 1, 1, 1, nan], [nan, 1, 0, 0, nan], [0, 0, 0, 0, nan],
    [1, 2, 2, 2, nan], [3, 3, 2, 2, 3], [1, 1, 1, nan, 1],
])  # fmt: skip

OF_GWET = [
    # The README of R's irrCAC (version of 2019), with cont3x3abstractors
    (ABSTRACTORS, "agreement", "nominal", 0.89, 0.03128898),
    (ABSTRACTORS, "Cohen κ", "nominal", 0.7964094, 0.05891072),
    (ABSTRACTORS, "Fleiss κ", "nominal", 0.7962397, 0.05905473),  # of two judges Scott's π
    (ABSTRACTORS, "Gwet AC1", "nominal", 0.8493305, 0.04321747),
    (ABSTRACTORS, "Krippendorff α", "nominal", 0.7972585, 0.05905473),
    # with distrib.6raters
    (PSYCHIATRISTS, "Gwet AC1", "nominal", 0.4448007, 0.08418757),
    (PSYCHIATRISTS, "Fleiss κ", "nominal", 0.4139265, 0.08119291),
    (PSYCHIATRISTS, "Krippendorff α", "nominal", 0.4204384, 0.08243228),
    # Python's irrCAC 0.4.4: table.CAC(…, weights=…), raw.CAC(raw_5observers(), weights=…)
    (ABSTRACTORS, "Cohen κ", "ordinal", 0.842902028, 0.0478721216),
    (ABSTRACTORS, "Cohen κ", "interval", 0.8921568627, 0.0353515076),
    (ABSTRACTORS, "Krippendorff α", "interval", 0.8926487176, 0.0353950587),
    (ABSTRACTORS, "Gwet AC2", "ordinal", 0.9251916963, 0.02221777),
    (ABSTRACTORS, "Gwet AC2", "interval", 0.9402368793, 0.01792019),
    (OBSERVERS, "Fleiss κ", "nominal", 0.4576216868, 0.1204500719),
    (OBSERVERS, "Gwet AC1", "nominal", 0.4966220549, 0.121973368),
    (OBSERVERS, "Krippendorff α", "nominal", 0.4805302403, 0.1135075291),
    (OBSERVERS, "Gwet AC2", "ordinal", 0.7853417936, 0.0681875708),
    (OBSERVERS, "Gwet AC2", "interval", 0.8304335727, 0.0582464052),
    # The package krippendorff 0.9.0, which has no error
    (OBSERVERS, "Krippendorff α", "ordinal", 0.7686851594862338, None),
    (OBSERVERS, "Krippendorff α", "interval", 0.7718648087755707, None),
    # The README of irrCAC, with the ratings of KRIPPENDORFF
    (KRIPPENDORFF, "Fleiss κ", "nominal", 0.76117, None),
]


@pytest.mark.parametrize(("ratings", "name", "level", "estimate", "error"), OF_GWET)
def test_coefficients_and_errors_of_irrcac(ratings, name, level, estimate, error):
    card = vcomp.evals.judges(long(ratings))
    row = coefficient(card.pairs if name.startswith("Cohen") else card.agreement, name, level)
    digits = len(str(estimate).split(".")[1])
    assert row["estimate"] == pytest.approx(estimate, abs=0.51 * 10.0**-digits)
    if error is not None:
        # Linearization and jackknife differ by a share of some 1/n.
        assert row["std_error"] == pytest.approx(error, rel=2.0 / len(ratings))
        half = stats.t.ppf(0.975, len(ratings) - 1) * error
        assert row["low"] == pytest.approx(estimate - half, abs=2.0 * half / len(ratings))


def test_items_with_one_rating_show_no_agreement():
    """Their number leaves the error as it is: s/√11 of the 11 items with several ratings."""
    row = coefficient(vcomp.evals.judges(long(KRIPPENDORFF)).agreement, "agreement", "nominal")
    shares = [
        np.mean([a == b for a, b in permutations(u[np.isfinite(u)], 2)]) for u in KRIPPENDORFF[:11]
    ]
    assert row["answers"] == 11
    assert row["std_error"] == pytest.approx(np.std(shares, ddof=1) / math.sqrt(11), rel=0.005)


def test_the_paradox_of_kappa():
    """Gwet (2002), table 2: 118 and 0 of 125 agree; exact fractions of the formulas."""
    cells = {(1, 1): 118, (1, 0): 5, (0, 1): 2}
    ratings = np.array([pair for pair, n in cells.items() for _ in range(n)], dtype=float)
    found = vcomp.evals.judges(long(ratings))
    pa, chance = 118 / 125, 2 * (243 / 250) * (7 / 250)
    assert coefficient(found.agreement, "Gwet AC1", "nominal")["estimate"] == pytest.approx(
        (pa - chance) / (1 - chance), rel=1e-12
    )
    by_chance = (123 * 120 + 2 * 5) / 125**2
    assert coefficient(found.pairs, "Cohen κ", "nominal")["estimate"] == pytest.approx(
        (pa - by_chance) / (1 - by_chance), rel=1e-12
    )


def test_errors_of_complete_ratings_are_those_of_gwets_formulas():
    """The package irrCAC: raw.CAC(frame, weights=…, digits=10).gwet()["est"]."""
    rng = np.random.default_rng(3)
    x = rng.integers(1, 6, 60)
    ratings = np.clip(x[:, None] + rng.integers(-1, 2, (60, 3)), 1, 5).astype(float)
    assert ratings[:6].tolist() == [
        [5, 5, 4],
        [1, 1, 1],
        [1, 2, 2],
        [1, 2, 2],
        [1, 1, 1],
        [5, 4, 5],
    ]
    found = vcomp.evals.judges(long(ratings)).agreement
    for key, estimate, error in (
        (("Gwet AC1", "nominal"), 0.2229117681, 0.044312552),
        (("Gwet AC2", "ordinal"), 0.6775462053, 0.0315728653),
        (("Gwet AC2", "interval"), 0.7388914338, 0.0299269863),
    ):
        row = coefficient(found, *key)
        assert row["estimate"] == pytest.approx(estimate, rel=1e-9)
        # Linearization and jackknife differ by a share of some 1/n.
        assert row["std_error"] == pytest.approx(error, rel=0.03)
    counts = np.stack([(ratings == k).sum(axis=1) for k in range(1, 6)], axis=1)
    assert coefficient(found, "Fleiss κ", "nominal")["estimate"] == pytest.approx(
        fleiss_kappa(counts), rel=1e-12
    )


def krippendorff(ratings, distance):
    """α by a loop over pairs of ratings."""
    units = [u[np.isfinite(u)] for u in ratings if np.isfinite(u).sum() > 1]
    values = np.concatenate(units)
    observed = sum(
        distance(a, b, values) / (len(u) - 1) for u in units for a, b in permutations(u, 2)
    )
    expected = sum(distance(a, b, values) for a, b in permutations(values, 2))
    return 1.0 - observed / len(values) * len(values) * (len(values) - 1) / expected


def ordinal(a, b, values):
    low, high = min(a, b), max(a, b)
    between = sum((values >= low) & (values <= high))
    return (between - (sum(values == low) + sum(values == high)) / 2) ** 2 if low < high else 0.0


def test_items_are_left_out_with_all_their_answers():
    data = panel(missing=0.25)
    data = data[data["item"] < 8]
    found = vcomp.evals.judges(data).agreement
    wide = data.pivot_table("score", ["item", "model"], "judge")

    def kept(item):
        return wide[wide.index.get_level_values("item") != item].to_numpy()

    for level, distance in (
        ("nominal", lambda a, b, _: float(a != b)),
        ("ordinal", ordinal),
        ("interval", lambda a, b, _: (a - b) ** 2),
    ):
        row = coefficient(found, "Krippendorff α", level)
        assert row["estimate"] == pytest.approx(krippendorff(wide.to_numpy(), distance), rel=1e-11)
        left = [krippendorff(kept(item), distance) for item in range(8)]
        error = math.sqrt(7 / 8 * np.sum((np.array(left) - np.mean(left)) ** 2))
        assert row["std_error"] == pytest.approx(error, rel=1e-9)
        t = 2.3646242515927853  # qt(.975, 7)
        assert row["high"] == pytest.approx(min(1.0, row["estimate"] + t * error), rel=1e-9)


def test_cohens_kappa_is_that_of_statsmodels(card, table):
    wide = table.pivot_table("score", ["item", "model"], "judge")
    levels = np.sort(table["score"].unique())
    for a, b in combinations(["c", "g", "x"], 2):
        rows = card.pairs.query("first == @a and second == @b")
        both = wide[[a, b]].dropna()
        cross = pd.crosstab(both[a], both[b]).reindex(levels, columns=levels, fill_value=0)
        for level, weights in (
            ("nominal", None),
            ("ordinal", "linear"),
            ("interval", "quadratic"),
        ):
            row = coefficient(rows, "Cohen κ", level)
            assert row["answers"] == len(both)
            wanted = cohens_kappa(cross.to_numpy(), wt=weights)
            assert row["estimate"] == pytest.approx(wanted.kappa, rel=1e-11)
    with_human = card.pairs.query("second == 'human'")
    assert set(with_human["first"]) == {"c", "g", "x"}


def test_errors_of_kappa_are_those_of_large_samples():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, 800)
    y = np.where(rng.random(800) < 0.6, x, rng.integers(0, 4, 800))
    row = coefficient(
        vcomp.evals.judges(long(np.column_stack([x, y]).astype(float))).pairs, "Cohen κ", "nominal"
    )
    error = cohens_kappa(pd.crosstab(x, y).to_numpy()).std_kappa
    assert row["std_error"] == pytest.approx(error, rel=0.01)


# Bias -------------------------------------------------------------------------------------------


def dense(data, more=None):
    """Shifts of judges by least squares with a column of each answer."""
    answers = pd.get_dummies(data["model"] + data["item"].astype(str)).to_numpy(dtype=float)
    judges = pd.get_dummies(data["judge"]).to_numpy(dtype=float)
    judges = judges[:, :-1] - judges[:, -1:]
    columns = [answers, judges] + ([] if more is None else [more(data)])
    fitted = np.linalg.lstsq(np.hstack(columns), data["score"].to_numpy(), rcond=None)[0]
    fitted = fitted[answers.shape[1] :]
    return np.concatenate([fitted[:2], [-fitted[:2].sum()], fitted[2:]])


def left_out(data, statistic):
    """The jackknife's standard errors, by refits without each item."""
    values = np.array([statistic(data[data["item"] != item]) for item in data["item"].unique()])
    n = len(values)
    return np.sqrt((n - 1) / n * ((values - values.mean(axis=0)) ** 2).sum(axis=0))


def own_column(data):
    return (data["model"] == data["judge"]).to_numpy(dtype=float)[:, None]


def own_columns(data):
    return np.column_stack([own_column(data)[:, 0] * (data["judge"] == j) for j in ("c", "g")])


def test_bias_is_that_of_least_squares(card, table):
    np.testing.assert_allclose(card.table["bias"], dense(table), atol=1e-12)
    np.testing.assert_allclose(card.table["std_error"], left_out(table, dense), rtol=1e-9)
    assert (card.table["high"] - card.table["bias"] > 2.201 * card.table["std_error"]).all()


def test_own_family_is_that_of_least_squares(card, table):
    def common(data):
        return dense(data, own_column)[3:]

    def each(data):
        return dense(data, own_columns)[3:]

    rows = card.own_family
    assert rows.index.tolist() == ["c", "g", "all judges"]
    np.testing.assert_allclose(rows["estimate"], [*each(table), *common(table)], atol=1e-11)
    errors = [*left_out(table, each), *left_out(table, common)]
    np.testing.assert_allclose(rows["std_error"], errors, rtol=1e-8)
    named = vcomp.evals.judges(
        table.drop(columns="human"), families={"g": "G", "c": "C", "l": "L", "q": "Q"}
    )
    np.testing.assert_allclose(named.own_family["estimate"], rows["estimate"])
    by_column = table.drop(columns="human").assign(vendor=table["model"])
    pd.testing.assert_frame_equal(
        vcomp.evals.judges(by_column, families="vendor").own_family, rows
    )


def test_interactions_of_complete_ratings_are_double_deviations():
    data = panel(missing=0.0)
    found = vcomp.evals.judges(data.drop(columns="human")).by_model

    def centred(rows):
        means = rows.pivot_table("score", "model", "judge").to_numpy()
        return (means - means.mean(0) - means.mean(1)[:, None] + means.mean()).ravel()

    np.testing.assert_allclose(found["estimate"], centred(data), atol=1e-12)
    np.testing.assert_allclose(found["std_error"], left_out(data, centred), rtol=1e-8)
    assert found[found["own"]][["judge", "model"]].to_numpy().tolist() == [["c", "c"], ["g", "g"]]


def test_two_judges_of_two_models_share_one_preference():
    data = panel(missing=0.0).query("judge != 'x' and model in ['g', 'c']")
    rows = vcomp.evals.judges(data.drop(columns="human")).own_family
    assert rows.loc[["c", "g"], "estimate"].isna().all()
    assert (rows.loc[["c", "g"], "reason"] == "ratings do not separate it from other biases").all()
    means = data.pivot_table("score", "model", "judge")
    difference = means["g"] - means["c"]
    assert rows.loc["all judges", "estimate"] == pytest.approx(
        (difference["g"] - difference["c"]) / 2, rel=1e-12
    )


def test_large_numbers_lose_no_digits():
    rng = np.random.default_rng(0)
    ratings, items = rng.integers(0, 5, (30, 3)).astype(float), np.arange(30)
    plain, moved = shifts(ratings, items, 30), shifts(ratings + 2.0**40, items, 30)
    np.testing.assert_array_equal(plain.values, moved.values)
    np.testing.assert_allclose(plain.std_error, moved.std_error, rtol=1e-13)


@pytest.mark.parametrize("unit", [2.0**-60, 2.0**60])
def test_units_of_ratings_multiply_shifts(unit):
    rng = np.random.default_rng(1)
    ratings, items = rng.integers(0, 5, (30, 3)).astype(float), np.arange(30)
    plain, scaled = shifts(ratings, items, 30), shifts(unit * ratings, items, 30)
    np.testing.assert_allclose(scaled.values, unit * plain.values, rtol=1e-12)
    np.testing.assert_allclose(scaled.std_error, unit * plain.std_error, rtol=1e-12)
    assert plain.values.any()


# Repeated judgements, committees ----------------------------------------------------------------


def test_judges_who_rate_again():
    data = panel(missing=0.0).drop(columns="human")
    again = data.assign(score=np.where(data["item"] % 3 == 0, 6.0 - data["score"], data["score"]))
    both = pd.concat([data.assign(take=1), again[again["judge"] != "x"].assign(take=2)])
    found = vcomp.evals.judges(both, repeated="take")
    apart = (data["score"] - again["score"])[data["judge"] == "c"]
    assert found.table.loc["c", "repeated"] == len(apart) == 48
    assert found.table.loc["c", "self_variance"] == pytest.approx((apart**2 / 2).mean(), rel=1e-12)
    assert found.table.loc["c", "flicker"] == pytest.approx((apart != 0).mean(), rel=1e-12)
    assert found.table.loc["x", "repeated"] == 0
    assert math.isnan(found.table.loc["x", "self_variance"])
    pd.testing.assert_frame_equal(found.agreement, vcomp.evals.judges(data).agreement)
    with pytest.raises(
        vcomp.DataError, match=r"column 'take' separates.*or write repeated='take'"
    ):
        vcomp.evals.judges(both)
    as_epochs = both.rename(columns={"take": "epoch"})
    assert len(vcomp.evals.judges(as_epochs).pairs.query("answers == 96")) == 4  # of c and g
    assert found.more_judges["std_error"].is_monotonic_decreasing


def test_correlated_errors_leave_few_judges(card, table):
    wide = table.pivot_table("score", ["item", "model"], "judge")
    label = table.groupby(["item", "model"])["human"].first()

    def rho(rows):
        alike = np.corrcoef(rows.drop(columns="item").dropna().to_numpy().T)
        return alike[np.triu_indices(3, 1)].mean()

    errors = wide.sub(label, axis=0)[label.notna()].reset_index("item").reset_index(drop=True)
    row = card.committee.iloc[0]
    assert row["answers"] == len(errors.dropna())
    assert row["correlation"] == pytest.approx(rho(errors), rel=1e-11)
    half = 2.7764451051977987 * left_out(errors, rho)  # qt(.975, 4)
    assert row["high"] == pytest.approx(min(1.0, rho(errors) + half), rel=1e-9)
    assert row["effective_number"] == pytest.approx(3 / (1 + 2 * rho(errors)), rel=1e-11)
    assert row["effective_low"] == pytest.approx(3 / (1 + 2 * row["high"]), rel=1e-9)
    means = errors.drop(columns="item").mean()
    np.testing.assert_allclose(card.against_human["estimate"], means, atol=1e-12)


def test_effective_numbers():
    """The variance of a mean of equal correlations; inspect_ai#4955 has .42, 1.9 of 6."""
    correlations = np.full((6, 6), 0.42) + 0.58 * np.eye(6)
    assert effective_number(6, 0.42) == pytest.approx(1 / correlations.mean(), rel=1e-12)
    assert effective_number(6, 0.42) == pytest.approx(1.9, abs=0.05)
    same = np.arange(12.0) % 5
    found, n = errors_of_judges(np.column_stack([same, same + 1]), 0.5 * same, np.arange(12))
    assert (found.values[-1], n) == (pytest.approx(1.0), 12)


def test_another_judge_is_a_d_study(card, table):
    study = vcomp.evals.study(table.drop(columns="human"))
    planned = study.components.dstudy(object="model", judge=[1, 2, 3, 5, 10])
    variances = 2.0 * planned.table["rel_err_var"].to_numpy()
    np.testing.assert_allclose(card.more_judges["std_error"] ** 2, variances, rtol=1e-9)


def test_a_third_take_counts_in_the_variance_of_a_judge_with_itself():
    """One-way analysis of variance of the takes of each answer, and pairs of takes that differ."""
    rng = np.random.default_rng(12)
    item, judge, take = (a.ravel() for a in np.indices((40, 2, 3)))
    kept = (take == 0) | (rng.random(item.size) < 0.6)
    spread = np.where(judge == 0, 0.5, 1.2)
    score = np.rint(4.0 + rng.normal(size=40)[item] + spread * rng.normal(size=item.size))
    data = pd.DataFrame({"item": item, "judge": judge, "take": take, "score": score})[kept]
    found = vcomp.evals.judges(data, repeated="take").table
    for name, own in data.groupby("judge"):
        takes = [of.to_numpy() for _, of in own.groupby("item")["score"] if len(of) > 1]
        within = sum(((of - of.mean()) ** 2).sum() for of in takes)
        mean_square = within / sum(len(of) - 1 for of in takes)
        assert found.loc[name, "self_variance"] == pytest.approx(mean_square, rel=1e-12)
        differ = [np.mean([a != b for a, b in combinations(of, 2)]) for of in takes]
        assert found.loc[name, "flicker"] == pytest.approx(np.mean(differ), rel=1e-12)
        assert found.loc[name, "repeated"] == len(takes)


def test_intervals_of_the_correlation_of_errors_cover_it():
    """Errors of three judges with the correlation 0.4, 40 labelled answers, 400 times."""
    rng = np.random.default_rng(1)
    covered = np.zeros(2)
    for _ in range(400):
        labels = rng.integers(1, 6, 40).astype(float)
        shared = math.sqrt(0.4) * rng.normal(size=(40, 1))
        errors = 0.3 + shared + math.sqrt(0.6) * rng.normal(size=(40, 3))
        found, _ = errors_of_judges(labels[:, None] + errors, labels, np.arange(40))
        low, high = found.limits(0.05)
        truth = np.array([0.3, 0.4])
        covered += (low[[0, 3]] <= truth) & (truth <= high[[0, 3]])
    # The standard error of a share of 95 % is 1.1 %.
    assert (covered / 400 > 0.915).all()
    assert (covered / 400 < 0.985).all()


def test_intervals_of_self_preference_cover_it():
    """Two judges rate their own family 0.6 and 0.2 higher; 20 items, 200 times."""
    rng = np.random.default_rng(2)
    m, i, j = (a.ravel() for a in np.indices((4, 20, 3)))
    own, covered = (m == j) & (j < 2), []
    columns = own.reshape(4, 20, 3)[..., None] * np.eye(3)[:, :2]
    estimates = []
    for _ in range(200):
        answer = rng.normal(size=(4, 20))
        score = answer[m, i] + 0.3 * j + np.where(j == 0, 0.6, 0.2) * own
        # Judges of an item err together, whatever the model.
        score = score + 0.5 * rng.normal(size=(20, 3))[i, j] + 0.7 * rng.normal(size=m.size)
        items = np.tile(np.arange(20), 4)
        found = shifts(score.reshape(80, 3), items, 20, columns.reshape(80, 3, 2))
        low, high = found.limits(0.05)
        covered.append((low[3:] <= [0.6, 0.2]) & (high[3:] >= [0.6, 0.2]))
        estimates.append(found.values[3:])
    error = np.std(estimates, axis=0, ddof=1) / math.sqrt(200)
    assert (np.abs(np.mean(estimates, axis=0) - [0.6, 0.2]) < 3.0 * error).all()
    assert (np.mean(covered, axis=0) > 0.9).all()
    assert (np.mean(covered, axis=0) < 0.99).all()


def test_another_judge_is_worth_what_mean_squares_say():
    """Models × items × judges: 2(σ²_mi/I + σ²_mj/J + σ²_e/IJ) by expected mean squares."""
    rng = np.random.default_rng(21)
    M, items, judges = 6, 30, 4
    y = (
        rng.normal(size=(M, 1, 1))
        + rng.normal(size=(1, items, 1))
        + rng.normal(size=(1, 1, judges))
    )
    y = y + rng.normal(size=(M, items, 1)) + 0.8 * rng.normal(size=(M, 1, judges))
    y = y + 0.7 * rng.normal(size=(1, items, judges)) + rng.normal(size=(M, items, judges))
    m, i, j = (a.ravel() for a in np.indices(y.shape))
    data = pd.DataFrame({"model": m, "item": i, "judge": j, "score": y.ravel()})

    def of(*axes):
        """Deviations of a main effect or interaction, by inclusion and exclusion."""
        if not axes:
            return y.mean()
        others = tuple(a for a in range(3) if a not in axes)
        means = y.mean(axis=others, keepdims=True) if others else y
        return means - sum(of(*c) for r in range(len(axes)) for c in combinations(axes, r))

    ms_mi = (of(0, 1) ** 2).sum() * judges / ((M - 1) * (items - 1))
    ms_mj = (of(0, 2) ** 2).sum() * items / ((M - 1) * (judges - 1))
    ms_e = (of(0, 1, 2) ** 2).sum() / ((M - 1) * (items - 1) * (judges - 1))
    assert min(ms_mi, ms_mj) > ms_e  # no component is at a bound
    table = vcomp.evals.judges(data).more_judges.set_index("judges")
    of_item, of_judge = (ms_mi - ms_e) / judges, (ms_mj - ms_e) / items
    for n in (1, 2, 3, 4, 5, 10):
        variance = 2.0 * (of_item / items + of_judge / n + ms_e / (items * n))
        assert table.loc[n, "std_error"] ** 2 == pytest.approx(variance, rel=1e-6)
    assert table.loc[2, "ratio"] == pytest.approx(
        table.loc[2, "std_error"] / table.loc[1, "std_error"], rel=1e-12
    )


# Human labels -----------------------------------------------------------------------------------

ITEM = np.arange(40)
F, G = (7 * ITEM % 11) / 10, (5 * ITEM % 13) / 12
Y, Z = F + (3 * ITEM % 5 - 2) / 4 > 0.5, G + (2 * ITEM % 5 - 2) / 3 > 0.4
LABELLED = ITEM < 15
# ppi-python 0.2.3, of a, b in ((F, Y), (G, Z), (F - G, 1.0 * Y - Z)), k = LABELLED:
#   ppi_mean_pointestimate(1.0 * b[k], a[k], a[~k])
#   ppi_mean_ci(1.0 * b[k], a[k], a[~k], alpha=0.05)
# evalstats 0.3.3: ppi._analytic_mean_point_se(1.0 * b[k], a[k], a[~k], False)[:2], where λ is 1
PPI = {
    "f": (F, Y, 0.5377305307240074, 0.3125764035023708, 0.7628846579456441,
          0.5413333333333333, 0.12861484275843818),
    "g": (G, Z, 0.48262987820034803, 0.24286030323381155, 0.7223994531668845,
          0.5088888888888887, 0.1420244470596884),
    "difference": (F - G, 1.0 * Y - Z, 0.046916846020865134, -0.2614639183283193,
                   0.3552976103700496, 0.03244444444444446, 0.17401460033212096),
}  # fmt: skip


def judged_table():
    rows = [pd.DataFrame({"model": name, "item": ITEM, "judge": "a", "score": f,
                          "gold": np.where(LABELLED, 1.0 * y, nan)})
            for name, f, y in (("f", F, Y), ("g", G, Z))]  # fmt: skip
    return pd.concat(rows, ignore_index=True)


@pytest.mark.parametrize("name", PPI)
def test_anchored_means_are_prediction_powered(name):
    f, y, estimate, low, high, of_one, error_of_one = PPI[name]
    card = vcomp.evals.judges(judged_table(), human="gold")
    row = card.anchored_pairs.iloc[0] if name == "difference" else card.anchored.loc[name]
    assert row["estimate"] == pytest.approx(estimate, rel=1e-12)
    parts = [
        np.var(1.0 * y[LABELLED] - row["lam"] * f[LABELLED]),
        np.var(row["lam"] * f[~LABELLED]),
    ]
    quantile = 1.959963984540054
    theirs = parts[0] / 15 + parts[1] / 25
    assert (high - low) / 2 == pytest.approx(quantile * math.sqrt(theirs), rel=1e-12)
    # Here by n − 2, as λ is estimated, and n − 1 of the others, and t.
    ours = parts[0] / 13, parts[1] / 24
    assert row["std_error"] == pytest.approx(math.sqrt(sum(ours)), rel=1e-12)
    df = sum(ours) ** 2 / (ours[0] ** 2 / 13 + ours[1] ** 2 / 24)
    assert row["df"] == pytest.approx(df, rel=1e-10)
    labels = np.where(LABELLED, 1.0 * y, nan)
    mean, error, _, _ = powered(f, labels, ITEM, lam=1.0)
    assert (mean, error) == (
        pytest.approx(of_one, rel=1e-12),
        pytest.approx(error_of_one, rel=1e-12),
    )
    assert row["labels_std_error"] == pytest.approx(np.std(1.0 * y[:15], ddof=1) / math.sqrt(15))


def test_the_weight_of_ratings_is_that_of_ppi():
    """λ and the mean written out, with the mean of two judges and two answers of each item."""
    rng = np.random.default_rng(5)
    item = np.repeat(np.arange(30), 2)
    truth = rng.normal(size=60)
    ratings = truth[:, None] + rng.normal(size=(60, 2)) * [0.5, 1.5] + 0.4
    labels = np.where(item < 12, truth + 0.3 * rng.normal(size=60), nan)
    rows = [pd.DataFrame({"model": "m", "item": item, "prompt": np.tile([0, 1], 30), "judge": j,
                          "score": ratings[:, k], "gold": labels})
            for k, j in enumerate("ab")]  # fmt: skip
    row = vcomp.evals.judges(pd.concat(rows), human="gold").anchored.loc["m"]
    f, known = ratings.mean(axis=1), item < 12
    n, N = 24, 36
    y, own = labels[known], f[known]
    covariance = ((y - y.mean()) * (own - own.mean())).sum() / n
    variance = ((f - f.mean()) ** 2).sum() / (n + N - 1)
    lam = covariance / ((1 + n / N) * variance)
    assert 0.2 < lam < 0.9
    assert row["lam"] == pytest.approx(lam, rel=1e-12)
    expected = lam * f[~known].mean() + (y - lam * own).mean()
    assert row["estimate"] == pytest.approx(expected, rel=1e-12)
    squares = []
    # A degree of freedom less of the labelled items, by which λ is estimated.
    for values, of, scale in (
        (y - lam * own, item[known], 12 / 10), (lam * f[~known], item[~known], 18 / 17)
    ):  # fmt: skip
        sums = pd.Series(values - values.mean()).groupby(of).sum() / values.size
        squares.append(scale * (sums**2).sum())
    assert row["std_error"] == pytest.approx(math.sqrt(sum(squares)), rel=1e-12)


def data_sets(kind, sets, labelled, items=160):
    """Return labels and ratings of many data sets, each as a model of its own name."""
    rng, shape = np.random.default_rng(8), (sets, items)
    truth = rng.normal(size=shape)
    rating = np.clip(np.rint(3 + truth + 0.6 * rng.normal(size=shape)), 1, 5)
    truth = np.clip(np.rint(3 + truth), 1, 5)
    if kind == "0/1":  # judges let wrong answers pass, and never fail a right one
        truth = (rng.random(shape) < 0.5).astype(float)
        rating = np.where((truth == 0) & (rng.random(shape) < 0.2), 1.0, truth)
    model, item = (of.ravel() for of in np.indices(shape))
    gold = np.where(item < labelled, truth.ravel(), nan)
    return pd.DataFrame({"model": model, "item": item, "judge": "a", "score": rating.ravel(),
                         "gold": gold})  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "labelled", "truth"), [("0/1", 10, 0.5), ("0/1", 20, 0.5), ("graded", 8, 3.0)]
)
def test_intervals_from_few_labels_cover_the_truth(kind, labelled, truth):
    """Of 400 data sets; by n − 1 and without half answers 75, 87 and 92 % of thousands did."""
    found = vcomp.evals.judges(data_sets(kind, 400, labelled), human="gold").anchored
    covered = (found["low"] <= truth) & (truth <= found["high"])
    assert found["low"].notna().mean() > 0.99
    # Two standard errors of 95 % in 400 are 2.2 %.
    assert covered[found["low"].notna()].mean() > 0.928
    # Ratings are worth something all the same.
    wide = 2 * stats.t.isf(0.025, labelled - 1) * found["labels_std_error"]
    assert (found["high"] - found["low"]).mean() < 0.85 * wide.mean()


def test_half_answers_of_right_and_wrong_are_added():
    """The error variance from a table of answers with weights, written out."""
    data = data_sets("0/1", 1, 12)
    row = vcomp.evals.judges(data, human="gold").anchored.iloc[0]
    f, y = data["score"].to_numpy(), data["gold"].to_numpy()
    known, lam = np.isfinite(y), row["lam"]
    assert 0.0 < lam < 1.0
    cells = np.array([(0, 0), (0, 1), (1, 0), (1, 1)], dtype=float)
    rest = np.append(y[known] - lam * f[known], cells[:, 0] - lam * cells[:, 1])
    weights = np.append(np.ones(12), np.full(4, 0.5))
    squares = weights @ (rest - np.average(rest, weights=weights)) ** 2
    parts = squares / 12**2, lam**2 * f[~known].var(ddof=1) / (~known).sum()
    assert row["std_error"] == pytest.approx(math.sqrt(sum(parts)), rel=1e-12)
    df = sum(parts) ** 2 / (parts[0] ** 2 / 11 + parts[1] ** 2 / ((~known).sum() - 1))
    assert row["df"] == pytest.approx(df, rel=1e-12)


def pairs_of_models(sets, labelled, items=160):
    """Return many data sets of two models; judges let wrong answers of the second pass."""
    rng, shape = np.random.default_rng(9), (sets, items)
    truth = np.stack([rng.random(shape) < share for share in (0.7, 0.5)])
    rating = truth.copy()
    rating[1] |= rng.random(shape) < 0.2
    model, task, item = (of.ravel() for of in np.indices(truth.shape))
    gold = np.where(item < labelled, truth.ravel() * 1.0, nan)
    return pd.DataFrame({"model": model, "set": task, "item": item, "judge": "a",
                         "score": rating.ravel() * 1.0, "gold": gold})  # fmt: skip


@pytest.mark.parametrize("labelled", [10, 20])
def test_differences_from_few_labels_cover_the_truth(labelled):
    """Of 400 data sets; without more answers 74 and 89 % did, and 18 and 6 % had no interval."""
    rows = []
    for _, data in pairs_of_models(400, labelled).groupby("set"):
        card = vcomp.evals.judges(data.drop(columns="set"), human="gold")
        rows.append(card.anchored_pairs.iloc[0])
    found = pd.DataFrame(rows)
    covered = (found["low"] <= 0.2) & (found["high"] >= 0.2)
    assert found["low"].notna().all()
    assert covered.mean() > 0.928  # 95 % less two standard errors
    wide = 2 * stats.t.isf(0.025, labelled - 1) * found["labels_std_error"]
    assert (found["high"] - found["low"]).mean() < 0.85 * wide.mean()


def test_a_sixteenth_of_each_two_answers_is_added_to_a_difference():
    """The error variance from a table of pairs of answers with weights, written out."""
    data = pairs_of_models(1, 12).drop(columns="set")
    row = vcomp.evals.judges(data, human="gold").anchored_pairs.iloc[0]
    first, second = (data[data["model"] == m] for m in (0, 1))
    f = first["score"].to_numpy() - second["score"].to_numpy()
    y = first["gold"].to_numpy() - second["gold"].to_numpy()
    known, lam = np.isfinite(y), row["lam"]
    assert 0.0 < lam < 1.0
    y1, f1, y2, f2 = np.array(list(product((0.0, 1.0), repeat=4))).T
    rest = np.append(y[known] - lam * f[known], (y1 - y2) - lam * (f1 - f2))
    weights = np.append(np.ones(12), np.full(16, 1.0 / 16.0))
    squares = weights @ (rest - np.average(rest, weights=weights)) ** 2
    parts = squares / 12**2, lam**2 * f[~known].var(ddof=1) / (~known).sum()
    assert row["std_error"] == pytest.approx(math.sqrt(sum(parts)), rel=1e-12)
    df = sum(parts) ** 2 / (parts[0] ** 2 / 11 + parts[1] ** 2 / ((~known).sum() - 1))
    assert row["df"] == pytest.approx(df, rel=1e-12)


def test_answers_of_an_item_are_one_cluster():
    """Twice the same answers have the error of one."""
    labels = np.where(LABELLED, 1.0 * Y, nan)
    once = powered(F, labels, ITEM)
    twice = powered(np.tile(F, 2), np.tile(labels, 2), np.tile(ITEM, 2))
    assert twice[1] == pytest.approx(once[1] * np.sqrt(1.0), rel=2e-3)  # λ has n − 1
    fixed = [powered(np.tile(F, k), np.tile(labels, k), np.tile(ITEM, k), 0.5) for k in (1, 2)]
    np.testing.assert_allclose(*fixed, rtol=1e-12)


def test_tasks_have_equal_weights():
    data = judged_table().query("model == 'f'").assign(task=np.where(ITEM % 3 == 0, "s", "t"))
    row = vcomp.evals.judges(data, human="gold").anchored.loc["f"]
    labels, parts = np.where(LABELLED, 1.0 * Y, nan), []
    for own in (ITEM % 3 == 0, ITEM % 3 != 0):
        parts.append(powered(F[own], labels[own], ITEM[own]))
    mean, error, df, _ = np.array(parts).T
    assert row["estimate"] == pytest.approx(mean.mean(), rel=1e-12)
    assert row["std_error"] == pytest.approx(math.sqrt((error**2).sum()) / 2, rel=1e-12)
    assert row["df"] == pytest.approx((error**2).sum() ** 2 / (error**4 / df).sum(), rel=1e-12)


def test_items_that_tasks_share_are_one_sample():
    """The same answers in two tasks are as sure as those of one."""
    data = judged_table()
    once = vcomp.evals.judges(data, human="gold")
    two = pd.concat([data.assign(task="s"), data.assign(task="t")])
    twice = vcomp.evals.judges(two, human="gold")
    columns = ["labels_std_error", "estimate", "std_error", "df", "low", "high"]
    np.testing.assert_allclose(twice.anchored[columns], once.anchored[columns], rtol=1e-12)
    apart = two.assign(item=two["task"] + two["item"].astype(str))
    others = vcomp.evals.judges(apart, human="gold").anchored["std_error"]
    np.testing.assert_allclose(others, once.anchored["std_error"] / math.sqrt(2.0), rtol=1e-12)
    inside = vcomp.evals.judges(two, human="gold", sampled=["task:item"]).anchored["std_error"]
    np.testing.assert_allclose(inside, others, rtol=1e-12)


def test_the_human_may_be_one_of_the_judges(table, card):
    labels = table.dropna().drop_duplicates(["model", "item"])
    rows = labels[["model", "item"]].assign(judge="expert", score=labels["human"])
    both = pd.concat([table.drop(columns="human"), rows])
    other = vcomp.evals.judges(both, human="expert")
    pd.testing.assert_frame_equal(other.anchored, card.anchored)
    pd.testing.assert_frame_equal(other.table, card.table)
    pd.testing.assert_frame_equal(
        other.pairs.drop(columns="second"), card.pairs.drop(columns="second")
    )


# Pages, and bad input ---------------------------------------------------------------------------


def test_the_page(card, table):
    said = printed_words(card)
    for words in (
        "3 judges, 4 models, 12 items: ",
        "Agreement of judges",
        "Krippendorff α",
        "rates significantly higher",
        "No judge rated an answer twice",
        "Judges rate answers of their own family",
        "Errors against human correlate",
        "Error of a difference between two models",
        "Means anchored at human",
    ):
        assert words in said
    without = printed_words(vcomp.evals.judges(table.drop(columns="human")))
    assert "cannot be known without human labels" in without
    assert repr(card).startswith("<JudgeCard: 3 judges, 4 models")
    ax = card.plot()
    assert ax.get_xlabel() == "bias of judge, 95 % interval"


def test_one_judge_is_a_card_of_labels():
    card = vcomp.evals.judges(judged_table(), human="gold")
    assert (card.agreement["reason"] == "there is one judge").all()
    assert card.table["bias"].isna().all()
    said = printed_words(card)
    assert "Means anchored at gold" in said
    assert "there is one judge, and how much several differ is not known" in said
    with pytest.raises(vcomp.DataError, match="which is no committee"):
        _ = card.committee
    with pytest.raises(vcomp.PlanError, match="judges have no bias to draw"):
        card.plot()


def test_judges_without_a_common_answer():
    data = long(np.array([[1.0, nan], [2.0, nan], [nan, 1.0], [nan, 3.0]]))
    card = vcomp.evals.judges(data)
    assert (card.agreement["reason"] == "no answer was rated by two judges").all()
    assert (card.pairs["reason"] == "they rated no answer both").all()
    assert card.table[["bias", "low"]].isna().all(axis=None)
    assert "no answer was rated by two judges" in printed_words(card)


def test_ratings_that_are_all_equal():
    card = vcomp.evals.judges(long(np.ones((6, 2))))
    alike = card.agreement.query("coefficient == 'agreement'").iloc[0]
    assert (alike["estimate"], alike["reason"]) == (1.0, "no item differs from the others")
    assert math.isnan(alike["std_error"])
    others = card.agreement.query("coefficient != 'agreement'")
    assert others["estimate"].isna().all()
    assert (others["reason"] == "all ratings are equal, so that chance agrees always").all()
    assert card.pairs["estimate"].tolist()[0] == 1.0
    assert card.pairs["estimate"][1:].isna().all()
    assert card.table["std_error"].isna().all()
    assert "all ratings are equal" in printed_words(card)


def test_one_item():
    card = vcomp.evals.judges(long(np.array([[1.0, 2.0, 2.0]])))
    row = coefficient(card.agreement, "agreement", "nominal")
    assert row["estimate"] == pytest.approx(1 / 3)
    assert (math.isnan(row["std_error"]), row["reason"]) == (True, "there is one item")
    np.testing.assert_allclose(card.table["bias"], [-2 / 3, 1 / 3, 1 / 3], atol=1e-12)
    assert card.table["low"].isna().all()
    assert printed_words(card)


def test_ratings_in_words():
    numbers = vcomp.evals.judges(long(KRIPPENDORFF))
    data = long(KRIPPENDORFF).replace({"score": dict(enumerate("zabcde"))})
    card = vcomp.evals.judges(data)
    nominal = card.agreement["level"] == "nominal"
    columns = ["estimate", "std_error"]
    pd.testing.assert_frame_equal(
        card.agreement.loc[nominal, columns], numbers.agreement.loc[nominal, columns]
    )
    reasons = card.agreement.loc[~nominal, "reason"]
    assert (reasons == "ratings are text, which has no order").all()
    assert card.table["mean"].isna().all()
    with pytest.raises(vcomp.DataError, match="ratings are text, and a bias needs numbers"):
        _ = card.more_judges
    assert "ratings are text" in printed_words(card)


def test_grades_are_no_categories():
    rng = np.random.default_rng(0)
    ratings = rng.normal(size=(30, 1)) + 0.5 * rng.normal(size=(30, 3))
    found = vcomp.evals.judges(long(ratings))
    known = found.agreement[found.agreement["estimate"].notna()]
    assert known[["coefficient", "level"]].to_numpy().tolist() == [["Krippendorff α", "interval"]]
    assert known["estimate"].item() == pytest.approx(
        krippendorff(ratings, lambda a, b, _: (a - b) ** 2), rel=1e-11
    )
    assert "there are 90 different ratings, no categories" in set(found.agreement["reason"])
    quadratic = coefficient(found.pairs[:4], "Cohen κ", "interval")["estimate"]
    x, y = ratings[:, :2].T
    chance = np.var(x) + np.var(y) + (x.mean() - y.mean()) ** 2
    assert quadratic == pytest.approx(1 - np.mean((x - y) ** 2) / chance, rel=1e-11)


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda d: d, {"human": "gold"}, "neither a column nor a judge nor a metric 'gold'"),
        (lambda d: d.rename(columns={"judge": "grader"}), {}, "there is no column 'judge'"),
        (lambda d: d, {"families": "vendor"}, "there is no column 'vendor'; a mapping such as"),
        (lambda d: d, {"families": {"nobody": "x"}}, "'nobody', which is neither a model nor a"),
        (lambda d: d, {"families": 3}, "families is a mapping or a column"),
        (lambda d: d.drop(columns="item"), {}, r"needs a column of items.*sampled=\[…\]"),
        (
            lambda d: d.assign(human=np.arange(144)),
            {"human": "human"},
            "has several labels for 48",
        ),
        (lambda d: d.assign(human=nan), {"human": "human"}, "has no label for an answer"),
        (
            lambda d: d.assign(human="a"),
            {"human": "human"},
            "ratings are numbers, and human labels",
        ),
        (lambda d: d.assign(judge=None), {}, "column 'judge' names no judge"),
        (lambda d: d, {"repeated": "take"}, "there is no column 'take'"),
    ],
)
def test_what_is_refused(change, options, words):
    data = change(panel(missing=0.0).drop(columns="human"))
    with pytest.raises(vcomp.VcompError, match=words):
        vcomp.evals.judges(data, **options)


def test_what_refusals_advise_leads_on(table):
    by_topic = table.drop(columns="human").rename(columns={"item": "topic"})
    card = vcomp.evals.judges(by_topic, sampled=["topic"])
    pd.testing.assert_frame_equal(
        card.table, vcomp.evals.judges(table.drop(columns="human")).table
    )
    assert len(vcomp.evals.judges(table, human="human").anchored) == 4


def test_labels_are_needed_for_errors(table):
    card = vcomp.evals.judges(table.drop(columns="human"))
    for name in ("anchored", "anchored_pairs", "committee", "against_human"):
        with pytest.raises(vcomp.DataError, match=r"need human labels .* human=…"):
            getattr(card, name)


def test_rows_without_a_judge_are_left_out(table):
    data = table.drop(columns="human")
    more = pd.concat([data, data[:5].assign(judge=None)])
    with pytest.warns(vcomp.VcompWarning, match="5 of .* rows have no judge and were left out"):
        found = vcomp.evals.judges(more)
    pd.testing.assert_frame_equal(found.table, vcomp.evals.judges(data).table)


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e60])
def test_equal_labels_show_no_error(scale):
    labels = scale * np.array([0.1, 0.1, 0.1, nan, nan, nan])
    rated = scale * np.arange(6.0)
    mean, error, _, _ = powered(rated, labels, np.arange(6))
    assert mean == pytest.approx(0.1 * scale, rel=1e-15)
    assert math.isnan(error)
    varied = powered(rated, scale * np.array([1, 3, 2, nan, nan, nan]), np.arange(6))
    plain = powered(np.arange(6.0), np.array([1, 3, 2, nan, nan, nan]), np.arange(6))
    assert np.array(varied)[:2] / scale == pytest.approx(np.array(plain)[:2], rel=1e-12)
    assert varied[2:] == pytest.approx(plain[2:], rel=1e-12)


def test_an_unknown_correlation_has_no_effective_number(table):
    assert np.isnan(effective_number(3, np.array([nan]))).all()
    few = table[(table["item"] == 0) & (table["model"] != "q")]
    found = vcomp.evals.judges(few, human="human").committee
    assert found[["effective_low", "effective_high"]].isna().all(axis=None)


def test_numbers_of_any_type_are_ratings(table, card):
    named = table.assign(judge=table["judge"].map({"g": 1, "c": 2, "x": 3}))
    with_human = pd.concat([
        named.drop(columns="human"),
        table.drop_duplicates(["model", "item"]).assign(score=lambda t: t["human"], judge=9)
        .drop(columns="human").dropna(),
    ])  # fmt: skip
    for human in (9, "9"):
        found = vcomp.evals.judges(with_human, human=human).anchored
        pd.testing.assert_frame_equal(found, card.anchored)
    for kind in (object, "category"):
        other = vcomp.evals.judges(table.assign(score=table["score"].astype(kind)), human="human")
        pd.testing.assert_frame_equal(other.table, card.table)


def test_a_judge_who_always_says_the_same_has_a_kappa_without_error():
    rng = np.random.default_rng(4)
    ratings = np.column_stack([np.ones(30), rng.integers(0, 3, 30)]).astype(float)
    found = vcomp.evals.judges(long(ratings)).pairs.set_index(["coefficient", "level"])
    kappas = found.loc["Cohen κ"]
    np.testing.assert_allclose(kappas["estimate"], 0.0, atol=1e-12)
    assert kappas["std_error"].isna().all()
    assert (kappas["reason"] == "no item differs from the others").all()


# Logs with a judge each, and a metric that is the truth -----------------------------------------


@pytest.fixture(scope="module")
def two_runs():
    """The same answers of 3 models in two runs, each with a judge, and their exact matches."""
    rng = np.random.default_rng(8)
    model, item, run = (a.ravel() for a in np.indices((3, 10, 2)))
    match = (rng.random((3, 10)) < 0.6).astype(float)[model, item]
    wrong = (rng.random(model.size) < 0.3) & (run == 1)
    shared = {"model": np.array(["a", "b", "c"])[model], "item": item, "run": run}
    judged = pd.DataFrame({**shared, "judge": np.array(["x", "y"])[run], "metric": "graded",
                           "score": np.where(wrong, 1.0 - match, match)})  # fmt: skip
    return pd.concat([judged, pd.DataFrame({**shared, "judge": None, "metric": "match",
                                            "score": match})], ignore_index=True)  # fmt: skip


def test_runs_with_a_judge_each_are_named(two_runs):
    page = " ".join(str(vcomp.evals.judges(two_runs, human="match")).split())
    assert "no answer was rated by two judges" in page
    said = "Each run has one judge. If the answers of all are the same, write repeated='run'."
    assert said in page
    # Followed, it is the card of a table without runs.
    card = vcomp.evals.judges(two_runs, human="match", repeated="run")
    plain = two_runs[two_runs["metric"] == "graded"].drop(columns=["run", "metric"])
    match = two_runs[two_runs["metric"] == "match"].groupby(["model", "item"])["score"].first()
    labelled = plain.merge(match.rename("label").reset_index())
    same = vcomp.evals.judges(labelled, human="label")
    pd.testing.assert_frame_equal(card.agreement, same.agreement)
    pd.testing.assert_frame_equal(card.anchored, same.anchored)
    pd.testing.assert_frame_equal(card.against_human, same.against_human)


def test_a_judge_without_errors_has_no_correlation(two_runs):
    card = vcomp.evals.judges(two_runs, metric="graded", human="match", repeated="run")
    assert card.committee[["correlation", "effective_number"]].isna().all(axis=None)
    assert "Errors against match have no correlation: those of x are all 0." in " ".join(
        str(card).split()
    )


def test_a_judge_with_one_error_has_no_correlation():
    """A judge who is 1 above each label: its answers are not too few."""
    rng = np.random.default_rng(6)
    labels = rng.integers(1, 5, 12).astype(float)
    ratings = np.column_stack([labels + 1.0, rng.permutation(labels)])
    data = long(ratings).assign(gold=lambda t: labels[t["item"]])
    card = vcomp.evals.judges(data, human="gold")
    assert math.isnan(card.committee["correlation"].item())
    said = "Errors against gold have no correlation: those of 0 are all 1."
    assert said in printed_words(card)


@pytest.mark.parametrize("labelled", [1, 2])
def test_few_labels_show_no_correlation(table, labelled):
    own = (table["item"] < labelled) & (table["model"] == "q")
    card = vcomp.evals.judges(table.assign(human=table["human"].where(own)), human="human")
    assert "Too few labelled answers that all judges rated" in printed_words(card)


def test_labels_of_0_and_1_have_limits_between_them(two_runs):
    right = two_runs["metric"].eq("match") & two_runs["model"].eq("a") & two_runs["item"].gt(0)
    most = two_runs.assign(score=two_runs["score"].mask(right, 1.0))
    first = two_runs["metric"].eq("match") & two_runs["model"].eq("a") & two_runs["item"].eq(0)
    card = vcomp.evals.judges(
        most.assign(score=most["score"].mask(first, 0.0)), human="match", repeated="run"
    )
    assert card.anchored.loc["a", "estimate"] == pytest.approx(0.9)
    assert card.anchored.loc["a", "high"] == 1.0


def test_several_labels_name_an_answer(two_runs):
    other = two_runs["metric"].eq("match") & two_runs["run"].eq(1) & two_runs["item"].eq(4)
    data = two_runs.assign(score=two_runs["score"].mask(other & two_runs["model"].eq("b"), 0.5))
    with pytest.raises(vcomp.DataError, match=r"labels for 1 answer \(b, 4 is the first\)"):
        vcomp.evals.judges(data, human="match", repeated="run")
    with pytest.raises(vcomp.PlanError, match="neither a column nor a judge nor a metric 'mtch'"):
        vcomp.evals.judges(data, metric="graded", human="mtch")


def test_scorers_of_a_log_that_are_judges():
    """The errors name how to take metrics as judges, and that leads on."""
    rng = np.random.default_rng(8)
    model, item, metric = (a.ravel() for a in np.indices((3, 30, 3)))
    score = rng.normal(size=(3, 30))[model, item] + model + rng.normal(size=model.size)
    named = {"model": model.astype(str), "item": item, "metric": np.array(["x", "y", "z"])[metric]}
    data = pd.DataFrame({**named, "score": score})
    for call in (vcomp.evals.study, vcomp.evals.judges):
        with pytest.raises(vcomp.DataError, match="several metrics; name one") as error:
            call(data)
        advice = re.search(r"if the metrics are judges .*columns=(\{.*\})", str(error.value))[1]
        found = call(data, columns=ast.literal_eval(advice))
        expected = call(data.rename(columns={"metric": "judge"}))
        pd.testing.assert_frame_equal(found.table, expected.table)
    with pytest.raises(vcomp.PlanError, match=r"no column 'judge'.*if the metrics are judges"):
        vcomp.evals.judges(data, metric="x")
    with pytest.raises(vcomp.DataError, match="name one") as error:
        vcomp.evals.study(data.assign(judge="j"))
    assert "judges of" not in str(error.value)


def test_the_model_that_a_judge_favours_most_is_named():
    rng = np.random.default_rng(12)
    model, item, judge = (a.ravel() for a in np.indices((3, 60, 3)))
    quality = rng.normal(size=(3, 60))[model, item]
    noise = 0.3 * rng.normal(size=model.size)
    names = {"model": np.array(["a", "b", "c"])[model], "judge": np.array(["x", "y", "z"])[judge]}
    plain = pd.DataFrame({**names, "item": item, "score": quality + noise})
    said = printed_words(vcomp.evals.judges(plain))
    assert "No judge is shown to be biased for or against a model. The clearest: " in said
    liked = plain.assign(score=plain["score"] + 0.9 * ((model == 1) & (judge == 2)))
    card = vcomp.evals.judges(liked)
    # A bonus of 0.9 in one of 3 × 3 cells is 0.9 (1 − 1/3)² less the means of both.
    means = liked.groupby(["judge", "model"])["score"].mean().unstack()
    values = means.to_numpy()
    own = means - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    said = printed_words(card)
    estimate = display.number(own.loc["z", "b"], 3)
    assert f"z rates b {estimate} higher than its bias explains (95 % interval" in said
    assert "The table by_model has all intervals." in said
    own_error = card.by_model["std_error"].min()
    digits = 1 - math.floor(math.log10(own_error))
    clear = card.by_model.set_index(["model", "judge"]).eval("low > 0 or high < 0")
    for m in "abc":
        row = [f"{own.loc[j, m]:.{digits}f}{'*' if clear[m, j] else ''}" for j in "xyz"]
        assert f" {m} {' '.join(row)} " in said
    assert "For grades in order read the ordinal coefficients" in said
    two = plain.assign(score=(plain["score"] > 0).astype(float))
    assert "For grades in order" not in printed_words(vcomp.evals.judges(two))


def test_ratings_of_two_values_have_one_level():
    rng = np.random.default_rng(2)
    model, item, judge = (a.ravel() for a in np.indices((2, 20, 2)))
    table = pd.DataFrame({"model": model, "item": item, "judge": judge})
    card = vcomp.evals.judges(table.assign(score=rng.integers(0, 2, len(table))))
    by_level = card.agreement.pivot_table(index="level", columns="coefficient", values="estimate")
    alpha = by_level["Krippendorff α"]
    np.testing.assert_allclose(alpha, alpha["nominal"])
    np.testing.assert_allclose(by_level["Gwet AC2"].dropna(), by_level["Gwet AC1"]["nominal"])
    said = printed_words(card)
    assert "Krippendorff α nominal" in said
    assert "Gwet AC2" not in said

"""Diagnoses of fits and score matrices: found deviations, verdicts, and Fig. 1 of Urbano 2016."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import stats

import vcomp
from tests.helpers.printed_tables import printed_words
from vcomp.exceptions import DataError, PlanError
from vcomp.inference.assumptions.samples import independent_null
from vcomp.inference.intervals import below_zero
from vcomp.ir.simulate.copula import decompose
from vcomp.model import slopes as model_slopes
from vcomp.model.model_checks import _crossed_tables


def crossed(n_systems=15, n_topics=30, seed=1, noise=None, bend=0.0):
    rng = np.random.default_rng(seed)
    s, t = rng.normal(size=n_systems), rng.normal(size=(n_topics, 1))
    e = rng.normal(size=(n_topics, n_systems)) if noise is None else noise(rng)
    return s + t + bend * s * t + e


def p_values(diagnosis):
    return diagnosis.table.set_index(["assumption", "of"])["p_value"]


def test_tests_keep_their_level():
    """Of 50 tables that meet all assumptions; benchmarks.assumptions has more."""
    found = [p_values(vcomp.diagnose(crossed(8, 12, k), n=19, rng=k)) for k in range(50)]
    rejected = (pd.concat(found, axis=1) <= 0.05).sum(axis=1)
    assert len(rejected) == 11
    # A binomial of 50 with probability .05 exceeds 9 once in 10⁴ times, and the sum of eleven is
    # about 27.
    assert rejected.max() <= 9
    assert 11 <= rejected.sum() <= 50


def test_each_deviation_is_found_by_its_own_test():
    n, k = 40, 12

    def heavy(rng):
        return rng.standard_t(2.5, size=(n, k))

    def unequal(rng):
        return rng.normal(size=(n, k)) * np.linspace(0.3, 2.0, k)

    def groups(rng):
        return rng.normal(size=(n, k)) + 1.5 * rng.normal(size=(n, 4)).repeat(3, axis=1)

    cases = {
        ("normality", "residuals"): {"noise": heavy},
        ("outliers", "residuals"): {"noise": heavy},
        ("equal variances", "residuals by system"): {"noise": unequal},
        ("uncorrelated", "residuals of every two systems over topic"): {"noise": groups},
        ("additivity", "system and topic"): {"bend": 0.7},
        ("uncorrelated effects", "system with topic effects"): {"bend": 0.7},
    }
    for key, case in cases.items():
        p = p_values(vcomp.diagnose(crossed(k, n, 3, **case), n=199))
        assert p[key] <= 0.005, key
    clean = p_values(vcomp.diagnose(crossed(k, n, 4), n=199))
    assert (clean > 0.005).all()


def test_a_fit_and_its_score_matrix_have_the_same_diagnosis():
    scores = crossed(6, 10)
    matrix = vcomp.ir.as_score_matrix(scores)
    of_scores = vcomp.diagnose(scores, n=39)
    res = vcomp.fit("score ~ (1|system) + (1|topic)", matrix.to_long())
    of_fit = vcomp.diagnose(res, n=39)
    pd.testing.assert_frame_equal(of_scores.table, of_fit.table)
    pd.testing.assert_frame_equal(of_fit.table, res.diagnose(n=39).table)
    other = res.diagnose(object="topic", n=39)
    assert "residuals of every two topics over system" in set(other.table["of"])
    with pytest.raises(PlanError, match="is not a facet of the fit"):
        res.diagnose(object="sistem")
    with pytest.raises(PlanError, match="columns are named for scores"):
        vcomp.diagnose(res, system="system")
    with pytest.raises(DataError, match="without its rows"):
        type(res).from_json(res.to_json()).diagnose()


def test_predicted_effects_are_in_units_of_their_standard_deviation():
    rng = np.random.default_rng(2)
    n = rng.integers(2, 9, 200)
    batch = np.repeat(np.arange(200), n)
    y = 0.03 * (rng.normal(size=200)[batch] + rng.normal(size=batch.size))
    diagnosis = vcomp.fit("y ~ (1|batch)", {"y": y, "batch": batch}).diagnose(n=19)
    sample = diagnosis.samples[0]
    assert sample.values.std() == pytest.approx(1.0, abs=0.1)
    small, large = sample.values[n < 4], sample.values[n > 6]
    assert small.std() == pytest.approx(large.std(), rel=0.25)
    known = np.mean(n / (n + 1.0))
    assert sample.known == pytest.approx(known, abs=0.08)


def test_holm_is_that_of_statsmodels():
    from statsmodels.stats.multitest import multipletests

    table = vcomp.diagnose(crossed(8, 20, 5, bend=0.3), n=39).table
    expected = multipletests(table["p_value"], method="holm")[1]
    np.testing.assert_allclose(table["p_holm"], expected, rtol=1e-12)


def test_verdicts_name_the_numbers():
    clean = vcomp.diagnose(crossed(25, 40, 6), n=199)
    assert set(clean.verdicts["matters"]) == {"no"}
    heavy = vcomp.diagnose(crossed(25, 40, 6, lambda g: g.standard_t(2.5, size=(40, 25))), n=199)
    verdicts = heavy.verdicts
    normal = verdicts.filter(like="normal theory", axis=0).iloc[0]
    assert normal["matters"] == "yes"
    kurtosis = heavy.shapes.loc["residuals", "kurtosis"]
    assert f"{np.sqrt(1 + kurtosis / 2):.2g} times" in normal["because"]
    assert verdicts.loc["Default intervals (robust)", "matters"] == "no"
    # Groups of similar systems: F tests of systems reject too often.
    alike = crossed(
        24, 40, 6, lambda g: g.normal(size=(40, 24)) + 2 * g.normal(size=(40, 3)).repeat(8, axis=1)
    )
    grouped = vcomp.diagnose(alike, n=199)
    assert grouped.verdicts.loc["F test of system over topic", "matters"] == "yes"
    assert grouped.verdicts.loc["Eτ and Eτ_AP", "matters"] == "no"
    bent = vcomp.diagnose(crossed(24, 40, 6, bend=0.5), n=199)
    assert bent.verdicts.loc["Required sizes and D-studies", "matters"] == "yes"
    text = str(grouped)
    assert "What it matters for:" in text
    assert "cannot be seen in scores" in text


def test_frames_and_pictures():
    scores = crossed(6, 20)
    scores[3, 2] += 12.0
    diagnosis = vcomp.diagnose(scores, n=39)
    assert diagnosis.outliers.iloc[0]["label"] == "system 2, topic 3"
    sd = diagnosis.variances("system")["sd"]
    e = scores - scores.mean(0) - scores.mean(1, keepdims=True) + scores.mean()
    np.testing.assert_allclose(sd, np.sqrt((e**2).sum(0) / (19 * 5 / 6)), rtol=1e-9)
    assert diagnosis.correlations().iloc[0]["r"] == pytest.approx(
        np.corrcoef(e, rowvar=False)[np.triu_indices(6, 1)].take(
            np.abs(np.corrcoef(e, rowvar=False)[np.triu_indices(6, 1)]).argmax()
        )
    )
    with pytest.raises(PlanError, match="no facet 'sys'"):
        diagnosis.variances("sys")
    with pytest.raises(PlanError, match="no table of levels of 'sys'"):
        diagnosis.correlations("sys")
    axes = diagnosis.plot()
    titles = [ax.get_title() for ax in axes]
    assert titles[0] == "residuals by fitted value"
    assert titles[1:5] == ["topic", "residuals", "residuals by system", "residuals by topic"]
    assert len(axes) == 8
    with pytest.raises(DataError, match="there are 2 axes for 8 pictures"):
        diagnosis.plot(ax=Figure().subplots(1, 2))


def test_nested_and_unbalanced_designs():
    essays = vcomp.datasets.load("essays")
    res = vcomp.gstudy("person x rater x (task:genre)", essays, "score")
    diagnosis = res.diagnose(n=19)
    assert {"person", "residuals"} <= set(diagnosis.shapes.index)
    assert any("needs balanced data" in sentence for sentence in diagnosis.not_tested)
    assay = vcomp.datasets.load("assay")
    found = vcomp.fit("result ~ sample + (1|sample:day) + (1|sample:day:run)", assay).diagnose(
        n=99
    )
    # Errors of the sample of high values are larger, and so are its differences between days.
    assert found.variances("sample")["sd"].idxmax() == "high"
    assert p_values(found)["equal variances", "residuals by sample"] <= 0.01


def test_figure_1_of_urbano_2016(shared_data):
    """The systems of its four plots (page 316), as the code of the paper names them."""
    table = pd.read_csv(shared_data("web2004.csv"))
    web = vcomp.ir.as_score_matrix(table).drop_worst(0.25)
    scores = pd.DataFrame(web.scores, columns=web.systems)
    residuals = pd.DataFrame(decompose(web.scores).residuals,
                             columns=web.systems)  # fmt: skip
    # Reciprocal ranks of sys59 are clearly not normal, its residuals closely resemble one.
    plain = [stats.probplot(x["sys59"])[1][2] for x in (scores, residuals)]
    assert plain[0] < 0.93
    assert plain[1] > 0.98
    table = pd.read_csv(shared_data("enterprise2006.csv"))
    matrix = vcomp.ir.as_score_matrix(table).drop_worst(0.25)
    e = pd.DataFrame(decompose(matrix.scores).residuals,
                     columns=matrix.systems)  # fmt: skip
    topics = matrix.scores.mean(axis=1)
    diagnosis = vcomp.diagnose(matrix, n=99)
    r = diagnosis.with_effects()["r"]
    assert r["sys53"] == pytest.approx(np.corrcoef(e["sys53"], topics)[0, 1], abs=1e-12)
    pairs = diagnosis.correlations()
    of_two = pairs[(pairs[["first", "second"]].isin(["sys88", "sys74"])).all(axis=1)].iloc[0]
    assert of_two["r"] == pytest.approx(np.corrcoef(e["sys88"], e["sys74"])[0, 1], abs=1e-12)
    assert abs(r["sys53"]) > 0.3
    assert of_two["r"] > 0.5
    assert of_two["p_value"] <= 0.05
    assert p_values(diagnosis)["uncorrelated effects", "system with topic effects"] <= 0.05
    assert p_values(diagnosis)["uncorrelated", "residuals of every two systems over topic"] <= 0.01


@pytest.mark.parametrize(
    ("columns", "values", "is_tested"),
    [(4, "exponential", False), (4, "0/1", False), (4, "normal", True), (8, "0/1", True)],
)
def test_variances_of_few_scores_are_compared_for_normal_residuals_only(
    columns, values, is_tested
):
    """With exponential errors, 10 % of 30 × 4 data sets were rejected at 5 %."""
    rng = np.random.default_rng(5)
    s, t = (a.ravel() for a in np.indices((30, columns)))
    y = {
        "exponential": rng.standard_exponential,
        "normal": rng.standard_normal,
        "0/1": lambda size: rng.integers(0, 2, size),
    }[values](s.size)
    res = vcomp.fit("y ~ (1|s) + (1|t)", pd.DataFrame({"s": s, "t": t, "y": y}), method="anova")
    found = res.diagnose(n=19, rng=1)
    tested = {t.of for t in found.tests if t.assumption == "equal variances"}
    assert ("residuals by s" in tested) is is_tested
    assert "residuals by t" in tested
    said = any("levels of s are not tested: with fewer than 8" in x for x in found.not_tested)
    assert said is not is_tested


@pytest.mark.parametrize(("n_systems", "is_there"), [(2, False), (3, True)])
def test_tables_need_three_levels_of_each(n_systems, is_there):
    found = vcomp.diagnose(crossed(n_systems, 12), n=19, rng=1)
    assert len(found.tables) == int(is_there)
    assert any("each needs 3 levels" in line for line in found.not_tested) != is_there


@pytest.mark.parametrize(("most", "is_there"), [(59, False), (60, True)])
def test_tables_of_very_many_cells_are_left_out(most, is_there):
    long = vcomp.ir.as_score_matrix(crossed(5, 12)).to_long()
    access = vcomp.fit("score ~ (1|system) + (1|topic)", long)._row_access
    known = access.model.design, access.model.statistics.rows, access.solution
    tables, left = _crossed_tables(*known, "system", most_cells=most)
    assert len(tables) == int(is_there)
    said = (
        "Additivity and correlations of system and topic are not tested: the table is too large."
    )
    assert left == ([] if is_there else [said])


@pytest.mark.parametrize("unit", [1.0, 1e-10])
@pytest.mark.parametrize("of", ["topics", "cells"])
def test_effects_of_covariates_of_rows_and_columns_stay_in_the_table(of, unit):
    """Those that vary within rows and columns are taken out before cells are compared."""
    rng = np.random.default_rng(11)
    s, t = (a.ravel() for a in np.indices((6, 15)))
    x = unit * (rng.normal(size=15)[t] if of == "topics" else rng.normal(size=s.size))
    y = 4.0 / unit * x + rng.normal(size=6)[s] + rng.normal(size=15)[t] + rng.normal(size=s.size)
    res = vcomp.fit("y ~ x + (1|s) + (1|t)", pd.DataFrame({"s": s, "t": t, "x": x, "y": y}))
    found = res.diagnose(object="s", n=19, rng=1).with_effects()["r"]
    kept = y if of == "topics" else y - res.fe_params["x"] * x
    table = kept.reshape(6, 15)
    topics = table.mean(axis=0)
    e = table - table.mean(axis=1, keepdims=True) - topics + table.mean()
    expected = [np.corrcoef(row, topics)[0, 1] for row in e]
    by_system = found.sort_index().to_numpy()
    np.testing.assert_allclose(by_system, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("empty", "is_there"), [([1, 5], True), ([1, 3, 5], False)])
def test_a_table_needs_two_degrees_of_freedom(empty, is_there):
    scores = crossed(3, 3).ravel()
    scores[empty] = np.nan  # 9 − 5 − 2 and 9 − 5 − 3 are left
    found = vcomp.diagnose(scores.reshape(3, 3), n=19, rng=1)
    assert len(found.tables) == int(is_there)


@pytest.mark.parametrize(("filled", "is_there"), [(48, True), (47, False)])
def test_half_of_the_cells_of_a_table_are_enough(filled, is_there):
    scores = crossed(8, 12)
    rows, columns = np.indices(scores.shape)
    order = np.argsort((columns - rows) % 8, axis=None, kind="stable")  # whole diagonals
    empty = scores.ravel()
    empty[order[filled:]] = np.nan
    found = vcomp.diagnose(empty.reshape(scores.shape), n=19, rng=1)
    assert len(found.tables) == int(is_there)
    assert any("half of the cells are empty" in line for line in found.not_tested) != is_there


def test_one_wrong_result_is_named_and_weighed():
    """Its verdict follows from its effect: the variance within cells with and without it."""
    data = vcomp.datasets.load("gauge").set_axis(range(100, 190))
    data.loc[117, "mm"] = 29.9
    found = vcomp.fit("mm ~ (1|part*operator)", data).diagnose(n=99)
    verdict = found.verdicts.loc["Components, Eρ² and Φ"]
    assert verdict["matters"] == "strongly"
    assert "Without part 2, operator C (row 117: 29.9) the residual" in verdict["because"]
    assert "It makes 100 % of the residual sum of squares." in verdict["because"]
    first = found.outlying_scores.iloc[0]
    assert (first.name, first["part"], first["operator"]) == (117, 2, "C")
    assert first["score"] == 29.9
    assert first["resid"] == pytest.approx(29.9 - first["fitted"], rel=1e-12)
    assert list(found.outlying_scores["deviate"]) == [
        z for _, z in next(s for s in found.samples if s.name == "residuals").outliers
    ]
    assert "part 2, operator C, row 117" in set(found.outliers["label"])
    rest = data.drop(117)
    cells = rest.groupby(["part", "operator"])["mm"]
    within = (rest["mm"] - cells.transform("mean")).pow(2).sum() / (89 - 30)
    assert found.outlying_rows.without == pytest.approx(within, rel=1e-6)  # 29.9 rounds 1e-12
    # Followed: without the error nothing matters, and the variance is that of the rest.
    res = vcomp.fit("mm ~ (1|part*operator)", rest)
    assert res.vcomp["Residual"] == pytest.approx(within, rel=0.05)
    assert res.diagnose(n=99).verdicts.loc["Components, Eρ² and Φ", "matters"] == "no"


@pytest.mark.parametrize("formula", ["score ~ (1|model*item)", "score ~ model + (1|item)"])
@pytest.mark.parametrize("first", [False, True])
def test_of_two_scores_of_a_cell_the_wrong_one_is_named(formula, first):
    """Their residuals are equal but for the sign; so are those of two models on an item."""
    n = 8 if "*" in formula else 2
    model, item, _ = np.indices((n, 20, 2 if n == 8 else 1)).reshape(3, -1)
    score = np.random.default_rng(1).integers(0, 2, model.size).astype(float)
    wrong = 20 if first else 21
    score[wrong] = 8.5
    data = pd.DataFrame({"model": [f"m{m}" for m in model], "item": item, "score": score})
    rows = vcomp.fit(formula, data).diagnose(n=99).outlying_rows
    assert len(rows.labels) == 1
    assert f"(row {wrong}: 8.5)" in rows.labels[0]
    if n == 8:  # the partner, then alone in its cell, adds nothing
        rest = data.drop(wrong)
        means = rest.groupby(["model", "item"])["score"].transform("mean")
        within = (rest["score"] - means).pow(2).sum() / (319 - 160)
        assert rows.without == pytest.approx(within, rel=1e-9)


def test_both_scores_of_a_cell_are_named_if_either_may_be_wrong():
    model, item, _ = np.indices((8, 20, 2)).reshape(3, -1)
    score = np.random.default_rng(1).normal(0, 0.5, model.size)
    score[20:22] = 8.5, -8.5
    data = pd.DataFrame({"model": model, "item": item, "score": score})
    found = vcomp.fit("score ~ (1|model*item)", data).diagnose(n=99).outlying_rows
    one, other = found.labels[:2]
    assert "row 20: 8.5" in one
    assert "row 21: -8.5" in other


# Slopes ------------------------------------------------------------------------------------------


def slopes(seed=5, n_g=20, n=9, sd=1.4):
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(n_g), n)
    x = rng.normal(size=g.size)
    u, w = rng.normal(size=(2, n_g))
    y = 3.0 + 0.5 * x + 2.0 * u[g] + sd * w[g] * x + rng.normal(size=g.size)
    return pd.DataFrame({"y": y, "x": x, "g": g})


def test_a_model_with_slopes_has_their_effects_and_residuals_without_them():
    data = slopes()
    res = vcomp.fit("y ~ x + (x|g)", data)
    found = res.diagnose(n=99)
    samples = {s.name: s for s in found.samples}
    assert list(samples) == ["g", "g[x]", "residuals"]
    for name in ("g", "g[x]"):
        frame = res.random_effects[name]
        sd = np.sqrt(res.vcomp[name] - frame["se"] ** 2)
        np.testing.assert_allclose(samples[name].values, frame["estimate"] / sd, rtol=1e-8)
        known = np.mean(sd**2 / res.vcomp[name])
        assert samples[name].known == pytest.approx(known, rel=1e-8)
    levels = np.eye(20)[data["g"]]
    Z = np.column_stack([levels, levels * data["x"].to_numpy()[:, None]])
    e = data["y"] - Z @ np.linalg.lstsq(Z, data["y"], rcond=None)[0]
    np.testing.assert_allclose(
        samples["residuals"].values, e / np.sqrt(e @ e / (180 - 40)), atol=1e-10
    )
    assert not any("by g" in t.of for t in found.tests if t.assumption == "equal slopes")
    assert "Default intervals (robust)" in found.verdicts.index
    np.testing.assert_allclose(found.rows.fitted, res.fittedvalues, rtol=1e-12)
    titles = [ax.get_title() for ax in found.plot()]
    assert titles == [
        "residuals by fitted value", "residuals by x", "g", "g[x]", "residuals", "residuals by g",
    ]  # fmt: skip


def test_an_outlying_score_of_a_model_with_slopes_is_named():
    data = slopes().set_axis(range(1000, 1180))
    data.loc[1030, "y"] += 20.0
    found = vcomp.fit("y ~ x + (x|g)", data).diagnose(n=99)
    assert found.outlying_scores.index[0] == 1030
    verdict = found.verdicts.loc["Components, Eρ² and Φ"]
    assert "Without g 3 (row 1030:" in verdict["because"]
    assert verdict["matters"] == "strongly"


def test_tables_of_crossed_facets_are_not_tested_with_slopes():
    rng = np.random.default_rng(2)
    s, t = (a.ravel() for a in np.indices((8, 15)))
    x = rng.normal(size=s.size)
    y = x + rng.normal(size=8)[s] + rng.normal(size=15)[t] * x + rng.normal(size=s.size)
    res = vcomp.fit("y ~ x + (1|s) + (x|t)", pd.DataFrame({"y": y, "x": x, "s": s, "t": t}))
    found = res.diagnose(n=19)
    assert found.tables == ()
    assert any("s and t are not tested: that is for models without random" in w
               for w in found.not_tested)  # fmt: skip


@pytest.mark.parametrize(
    ("formula", "larger", "of"),
    [
        ("y ~ x + (1|g)", "y ~ x + (1 + x|g)", "x by g"),
        ("y ~ x + z + (x|g)", "y ~ x + z + (x + z|g)", "z by g"),
        ("y ~ x + (1|g) + (1|h)", "y ~ x + (1|g) + (1 + x|h)", "x by h"),
        ("y ~ x + (1|g:h)", "y ~ x + (x|g:h)", "x by g:h"),
    ],
)
@pytest.mark.parametrize("method", ["reml", "ml"])
def test_slopes_that_a_model_has_not_are_tested_by_the_fit_with_them(formula, larger, of, method):
    rng = np.random.default_rng(3)
    data = slopes(n=12).assign(h=lambda d: np.arange(len(d)) % 4, z=rng.normal(size=240))
    small, large = (vcomp.fit(f, data, method=method) for f in (formula, larger))
    expected = vcomp.compare(small, large).table.iloc[-1]
    found = small.diagnose(n=19).table.set_index(["assumption", "of"]).loc[("equal slopes", of)]
    assert found["statistic"] == pytest.approx(2.0 * (large.llf - small.llf), abs=1e-6)
    assert found["p_value"] == pytest.approx(expected["p_value"], rel=1e-4)
    share = 1.0 - large.vcomp["Residual"] / small.vcomp["Residual"]
    assert found["effect"] == pytest.approx(share, abs=1e-6)


def test_slopes_that_are_there_are_named_and_the_advice_improves_the_fit():
    data = slopes().rename(columns={"g": "subject", "x": "days"})
    res = vcomp.fit("y ~ days + (1|subject)", data)
    verdict = res.diagnose(n=19).verdicts.loc["Fixed effects, their tests and intervals"]
    assert verdict["matters"] == "yes"
    assert "The effect of days differs between subjects" in verdict["because"]
    assert "fit (days|subject) in place of (1|subject)" in verdict["because"]
    followed = vcomp.fit("y ~ days + (days|subject)", data)
    assert followed.aic < res.aic - 20.0
    sd, mean = followed.vcomp["subject[days]"] ** 0.5, followed.fe_params["days"]
    assert f"standard deviation of {sd:.3g} about {mean:.3g}:" in verdict["because"]
    after = followed.diagnose(n=19)
    assert not (after.table["assumption"] == "equal slopes").any()


def test_slopes_that_are_not_there_are_not_advised():
    found = vcomp.fit("y ~ x + (1|g)", slopes(sd=0.0)).diagnose(n=19)
    verdict = found.verdicts.loc["Fixed effects, their tests and intervals"]
    assert verdict["matters"] == "no"
    assert "fit (" not in verdict["because"]


def test_what_has_no_test_of_slopes():
    data = slopes().assign(age=lambda d: d["g"] % 7)
    constant = vcomp.fit("y ~ age + (1|g)", data).diagnose(n=19)
    assert not (constant.table["assumption"] == "equal slopes").any()
    held = vcomp.fit("y ~ x + (1|g)", data, hold={"g": 1.0}).diagnose(n=19)
    said = (
        "Whether the effect of x differs between levels of g is not tested: components are held."
    )
    assert said in held.not_tested
    pairs = data.groupby("g").head(2)  # two scores a group: slopes are the residual
    few = vcomp.fit("y ~ x + (1|g)", pairs).diagnose(n=19)
    assert not (few.table["assumption"] == "equal slopes").any() or few.not_tested


@pytest.mark.parametrize("limit", ["_MOST_ROWS", "_MOST_EFFECTS", "_MOST_CROSSED", "_MOST_FITS"])
def test_slopes_of_large_data_are_not_tested(limit, monkeypatch):
    monkeypatch.setattr(model_slopes, limit, 0)
    data = slopes().assign(h=lambda d: np.arange(len(d)) % 4)
    found = vcomp.fit("y ~ x + (1|g) + (1|h)", data).diagnose(n=19)
    assert not (found.table["assumption"] == "equal slopes").any()
    said = "Whether the effect of x differs between levels of g is not tested: the fit would take"
    assert any(line.startswith(said) for line in found.not_tested)
    assert "Fixed effects, their tests and intervals" not in found.verdicts.index


def test_scores_are_named_with_their_offset():
    data = slopes().assign(shift=lambda d: 100.0 * d["g"])
    data.loc[30, "y"] += 20.0
    expected = vcomp.fit("y ~ x + (x|g)", data).diagnose(n=19).outlying_scores.iloc[0]
    shifted = data.assign(y=data["y"] + data["shift"])
    found = vcomp.fit("y ~ x + offset(shift) + (x|g)", shifted).diagnose(n=19)
    row = found.outlying_scores.iloc[0]
    assert row.name == 30
    assert row["score"] == shifted["y"][30]
    assert row["resid"] == pytest.approx(expected["resid"], rel=1e-6)
    assert f"(row 30: {shifted['y'][30]:.4g})" in found.outlying_rows.labels[0]


# Cells -------------------------------------------------------------------------------------------


def test_an_outlying_cell_is_named():
    """Of three scores of a cell none is outlying, and their mean is."""
    rng = np.random.default_rng(8)
    s, t, _ = np.indices((10, 12, 3)).reshape(3, -1)
    y = rng.normal(size=10)[s] + rng.normal(size=12)[t] + rng.normal(size=s.size)
    y[(s == 4) & (t == 7)] += 3.0
    data = pd.DataFrame({"y": y, "system": s, "topic": t})
    found = vcomp.fit("y ~ (1|system) + (1|topic)", data).diagnose(n=199)
    of_cells = found.outliers[found.outliers["of"] == "cells of system and topic"]
    assert of_cells["label"].tolist() == ["system 4, topic 7"]
    by_s, by_t = (np.bincount(k, y) / np.bincount(k) for k in (s, t))
    e = y - by_s[s] - by_t[t] + y.mean()
    cells = pd.Series(e).groupby([s, t]).mean().to_numpy() * np.sqrt(3.0)
    expected = (cells - cells.mean()) / cells.std(ddof=1)
    sample = next(x for x in found.samples if x.name == "cells of system and topic")
    np.testing.assert_allclose(sample.deviates, expected, atol=1e-10)
    # With a term of the cells their effects are compared instead.
    with_cells = vcomp.fit("y ~ (1|system*topic)", data).diagnose(n=19)
    assert not any(x.name.startswith("cells") for x in with_cells.samples)
    assert any(x.name == "system:topic" for x in with_cells.samples)


def test_cells_of_single_scores_are_not_compared():
    assert [s.name for s in vcomp.diagnose(crossed(8, 12), n=19).samples] == [
        "system", "topic", "residuals",
    ]  # fmt: skip


def test_normal_effects_are_in_the_envelope():
    """At each place 95 % of new draws are inside."""
    null = independent_null(30, 999, np.random.default_rng(1))
    m, low, high = null.envelope
    assert (np.diff(m) > 0.0).all()
    z = np.sort(np.random.default_rng(2).normal(size=(2000, 30)), axis=1)
    z = (z - z.mean(axis=1, keepdims=True)) / z.std(axis=1, ddof=1, keepdims=True)
    inside = ((low <= z) & (z <= high)).mean(axis=0)
    # Monte Carlo errors: .007 of the 999 draws, .005 of the 2,000.
    np.testing.assert_allclose(inside, 0.95, atol=0.03)


# Components below zero --------------------------------------------------------------------------


def alternating(rng, p=30, i=8, e=2, share=0.0):
    """Return scores of two runs of p × i; `share` of the error has another sign in the second."""
    error = rng.normal(size=(p, i, e))
    swing = rng.normal(size=(p, i, 1)) * np.array([1.0, -1.0])
    y = rng.normal(size=(p, 1, 1)) + rng.normal(size=(1, i, 1))
    y = y + np.sqrt(1.0 - share) * error + np.sqrt(share) * swing
    a, b, _ = np.indices(y.shape).reshape(3, -1)
    return y, pd.DataFrame({"p": a, "i": b, "y": y.ravel()})


def test_a_component_below_zero_is_the_lower_tail_of_its_f():
    y, data = alternating(np.random.default_rng(3), share=0.5)
    diagnosis = vcomp.fit("y ~ (1|p) + (1|i) + (1|p:i)", data).diagnose(n=19)
    row = diagnosis.table.query("assumption == 'nonnegative variance'")
    assert row["of"].tolist() == ["p:i"]
    cells = y.mean(axis=2)
    inside = cells - cells.mean(0) - cells.mean(1)[:, None] + cells.mean()
    of_cells = 2.0 * (inside**2).sum() / (29 * 7)
    of_runs = ((y - cells[:, :, None]) ** 2).sum() / (30 * 8)
    ratio = of_cells / of_runs
    assert row["statistic"].item() == pytest.approx(ratio, rel=1e-6)
    p = stats.f.cdf(ratio, 29 * 7, 30 * 8)
    assert row["p_value"].item() == pytest.approx(p, rel=1e-5)
    assert p < 0.001
    (found,) = diagnosis.negative
    assert found.estimate == pytest.approx((of_cells - of_runs) / 2.0, rel=1e-6)
    said = printed_words(diagnosis)
    assert "σ²(p:i) is estimated at 0 and would be" in said
    assert "scores of the same p and i differ more than others do" in said


def test_a_component_of_zero_is_seldom_shown_to_be_below():
    """Half or twice the p-values of 80 data sets are found at the level 0.2."""
    rng, p, n = np.random.default_rng(8), [], 80
    for _ in range(n):
        res = vcomp.fit("y ~ (1|p) + (1|i) + (1|p:i)", alternating(rng)[1])
        found = [
            x.p_value for x in below_zero(res.dstudy(object="p").components) if x.name == "p:i"
        ]
        p.append(found[0] if found else 1.0)
    # Half of the components are above zero; the others have p-values up to about a half.
    assert stats.binomtest(int(np.sum(np.array(p) <= 0.05)), n, 0.05).pvalue > 0.01
    assert stats.binomtest(int(np.sum(np.array(p) <= 0.2)), n, 0.2).pvalue > 0.01
    assert min(p) > 0.0001

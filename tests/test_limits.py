"""Every statement of the page of limits on what is not there, or is refused, is tried here."""

from __future__ import annotations

import builtins
import re
import warnings

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.pages import ROOT
from vcomp.exceptions import (
    DataError,
    DesignError,
    EstimationError,
    PlanError,
    VcompError,
    VcompWarning,
)

PAGE = (ROOT / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
TRIED = ("Models that it does not fit", "Data that it refuses", "After a fit", "Known failures")
DATA = vcomp.datasets.load("bodoff2007_alpha").assign(x=np.arange(15.0))
CROSSED = "score ~ (1|sys) + (1|topic)"


def statements():
    """Return the first cells of tables and the bold words of lists in the sections tried."""
    found = []
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE):
        if section.startswith(TRIED):
            found += re.findall(
                r"^\| (?!not there|---)((?:\\\||[^|])+?) \|", section, re.MULTILINE
            )
            found += re.findall(r"^- \*\*(.*?)\*\*(?= |\n|:|,|$)", section, re.MULTILINE)
    return found


def refuses(formula, data=DATA, error=VcompError, match=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VcompWarning)
        with pytest.raises(error, match=match):
            vcomp.fit(formula, data, **options)


def refuses_options(*names):
    for name in names:
        refuses(CROSSED, match=name, **{name: "x"})


WEIGHTS = DATA["x"] + 1.0


def weights_in_parts():
    for option in ("weights", "known_variance"):
        refuses(CROSSED, DATA, DataError, stream=True, **{option: WEIGHTS})
        vcomp.fit(CROSSED, DATA.assign(w=WEIGHTS), stream=True, **{option: "w"})


def refused_with_weights():
    for method in ("anova", "type1", "henderson3"):
        refuses(CROSSED, match="use method='reml' or 'ml'", weights=WEIGHTS, method=method)
    res = vcomp.fit(CROSSED, DATA, weights=WEIGHTS)
    for name, arguments in (
        ("crosscheck", {}),
        ("anova_table", {}),
    ):
        with pytest.raises(VcompError, match="weights="):
            getattr(res, name)(**arguments)
    for interval in ("robust", "mls", "profile", res.bootstrap(5)):
        assert res.conf_int(interval=interval).notna().any().all()
    known = vcomp.fit(CROSSED, DATA, known_variance=0.001 * WEIGHTS)
    with pytest.raises(EstimationError, match="from_components"):
        known.dstudy(topic=3)
    with pytest.raises(EstimationError, match="from_components"):
        known.universe_scores(topic=3)


def known_variances_with_slopes():
    refuses(SLOPES, match="weights=1 / v and hold=", known_variance=WEIGHTS)
    vcomp.fit(SLOPES, DATA, weights=1.0 / WEIGHTS, hold={"Residual": 1.0})


def missing_values():
    gap = DATA.assign(score=DATA["score"].where(DATA["x"] > 0.0))
    with pytest.warns(VcompWarning, match="1 "):
        assert vcomp.fit(CROSSED, gap).nobs == 14


def exact_scores():
    exact = DATA.assign(score=DATA["sys"].astype("category").cat.codes.astype(float))
    for method in ("reml", "ml"):
        refuses("score ~ (1|sys)", exact, EstimationError, "exactly", method=method)


def analysis_of_variance():
    formula = "score ~ x + (1|sys)"
    with pytest.raises(EstimationError, match=r"type1.*henderson3"):
        vcomp.fit(formula, DATA).anova_table()
    for method in ("type1", "henderson3"):
        assert len(vcomp.fit(formula, DATA, method=method).anova_table())


def profiles():
    with pytest.raises(EstimationError, match="'reml' or 'ml'"):
        vcomp.fit(CROSSED, DATA, method="anova").profile()
    # With random probes: tests/inference/profile/test_profile_ends.py.


def sparse():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.integers(0, 60, size=(150, 2)), columns=["sys", "topic"])
    return frame.drop_duplicates().assign(score=lambda f: rng.normal(size=len(f)) + f["sys"] / 9)


def rank_accuracy():
    with pytest.raises(PlanError, match="without covariates"):
        vcomp.fit("score ~ x + (1|sys) + (1|topic)", DATA).expected_tau(topic=5)
    matrix = DATA.pivot(index="topic", columns="sys", values="score")
    assert len(vcomp.ir.expected_tau(matrix, 5))


def errors_of_effects():
    rng = np.random.default_rng(1)
    few = {"score": rng.normal(size=700), "sys": rng.integers(0, 300, 700)}
    few |= {"topic": rng.integers(0, 290, 700)}
    few["score"] += (
        2.0 * rng.normal(size=300)[few["sys"]] + 2.0 * rng.normal(size=290)[few["topic"]]
    )
    res = vcomp.fit(CROSSED, few, engine="iterative", n_probes=8)
    assert res.random_effects["sys"]["se"].isna().all()


def confounded_plans():
    nested = DATA.assign(topic=np.arange(15))
    study = vcomp.gstudy("topic:sys", nested, "score")
    with pytest.raises(PlanError, match="cannot separate topic from sys:topic"):
        study.dstudy("sys x topic", topic=5)


def stored_results():
    res = vcomp.fit(CROSSED, DATA)
    loaded = type(res).from_json(res.to_json())
    assert loaded.dstudy(topic=5).table.equals(res.dstudy(topic=5).table)
    with pytest.raises(VcompError, match="loaded without its rows"):
        _ = loaded.fittedvalues


def other_test_theories():
    names = [name.lower() for name in (*dir(vcomp), *dir(vcomp.ctt))]
    assert not [n for n in names if re.search("omega|rasch|irt|factor_an", n)]


def measures(monkeypatch):
    imported = builtins.__import__

    def without(name, *rest, **options):
        if name == "ir_measures":
            raise ImportError(name)
        return imported(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(VcompError, match="scored by the package ir_measures"):
        vcomp.ir.score_runs(str(ROOT / "README.md"), str(ROOT / "README.md"))


def dominant_fixed_part():
    far = DATA.assign(g=np.arange(15) % 2, score=DATA["score"] + 1e5 * (np.arange(15) % 2))
    formula = "score ~ g + (1|sys)"
    sums = vcomp.accumulate(formula, far[:7]) + vcomp.accumulate(formula, far[7:])
    with pytest.raises(DataError, match="ten-millionth of the squares"):
        sums.fit()
    np.testing.assert_allclose(
        vcomp.fit(formula, far).vcomp,
        vcomp.fit(formula, far.assign(score=DATA["score"])).vcomp,
        rtol=1e-8,
    )


def slopes_by_level():
    rng = np.random.default_rng(0)
    g, h, z = rng.integers(0, 4, 200), rng.integers(0, 9, 200), rng.normal(size=200)
    score = g * z + rng.normal(size=200)
    frame = pd.DataFrame({"g": np.array(list("abcd"))[g], "h": h, "x": 1e4 + z, "score": score})
    refuses("score ~ g:x + (1|h)", frame, DataError, "subtract a number near the mean")
    near = vcomp.fit("score ~ g:x + (1|h)", frame.assign(x=frame["x"] - 1e4))
    np.testing.assert_allclose(near.fe_params.iloc[1:], range(4), atol=0.5)


SLOPES = "score ~ x + (x|sys)"


def univariate_models():
    wide = DATA.assign(other=DATA["score"])
    with pytest.raises(VcompError, match="each variable by"):
        vcomp.fit_multivariate("score + other ~ (x|sys)", wide)
    with pytest.raises(TypeError):
        vcomp.fit_multivariate("score + x ~ (1|sys) + (1|topic)", DATA, residual="sys")
    with pytest.raises(VcompError, match="mean of each"):
        vcomp.fit_multivariate("score + x ~ x + (1|sys) + (1|topic)", DATA)


def refused_with_slopes():
    refuses(SLOPES, error=EstimationError, match="use method='reml' or 'ml'", method="anova")
    res = vcomp.fit(SLOPES, DATA)
    for name, arguments in (
        ("resample", {"facet": "sys"}),
        ("crosscheck", {}),
        ("compare_levels", {"facet": "sys"}),
    ):
        with pytest.raises(EstimationError, match="without random slopes"):
            getattr(res, name)(**arguments)
    assert res.resample("sys", 3, adjust=False).values.shape == (3, 4)
    for interval in ("robust", "mls", "wald", res.bootstrap(5)):
        assert res.conf_int(interval=interval).notna().any().all()


def dstudies_with_slopes():
    res = vcomp.fit(SLOPES, DATA)
    for name, arguments in (("dstudy", {"sys": 10}), ("universe_scores", {})):
        with pytest.raises(EstimationError, match="without random slopes"):
            getattr(res, name)(**arguments)
    assert len(res.components_at({"x": 5}).dstudy(replicate=[1, 2]).table) == 2


def rows_of_parts():
    twice = pd.concat([DATA, DATA.assign(score=DATA["score"] ** 2)], ignore_index=True)
    res = vcomp.fit(CROSSED, twice, stream=True)
    for name, facet in (("diagnose", {}), ("influence", {"facet": "sys"}), ("simulate", {})):
        with pytest.raises(DataError, match="stream=False"):
            getattr(res, name)(**facet)
    for name in ("jackknife", "resample"):
        with pytest.raises(DataError, match="stream=False"):
            getattr(res, name)("sys")


def robust_intervals_of_parts():
    res = vcomp.fit(SLOPES, DATA, stream=True)
    with pytest.raises(DataError, match="stream=False, or use interval='mls'"):
        res.conf_int(interval="robust")
    for interval in ("mls", "wald", res.jackknife("sys")):
        assert res.conf_int(interval=interval).notna().any().all()


def refused_with_residuals():
    rng = np.random.default_rng(2)
    sys, topic = (a.ravel() for a in np.indices((5, 30)))
    frame = pd.DataFrame({"sys": sys, "topic": topic, "score": rng.normal(size=150) * (1 + sys)})
    res = vcomp.fit("score ~ (1|topic)", frame, residual="sys")
    for name, arguments in (
        ("resample", {"facet": "topic"}),
        ("compare_levels", {"facet": "topic"}),
        ("crosscheck", {}),
    ):
        with pytest.raises(EstimationError, match="one residual variance"):
            getattr(res, name)(**arguments)
    assert len(res.error_variances()) == 5
    for interval in ("robust", "mls", "profile", res.bootstrap(5)):
        assert res.conf_int(interval=interval).notna().any().all()


def tables_of_factors():
    rng = np.random.default_rng(4)
    g, x = np.repeat(np.arange(2101), 2), rng.integers(0, 9, 4202)
    many = pd.DataFrame({"y": rng.normal(size=4202), "g": g.astype(str), "x": x})
    with pytest.raises(EstimationError, match="2,0"):
        vcomp.fit("y ~ g + (1|x)", many).anova()
    res = vcomp.fit("score ~ sys + (1|topic)", DATA)
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    for name, arguments in (("anova", {}), ("marginal_means", {"facets": "sys"}), ("r2", {})):
        getattr(res, name)(**arguments)
        with pytest.raises(DataError, match="fit the model again"):
            getattr(loaded, name)(**arguments)


CHECKS = {
    "[random slopes](../howto/random-slopes.md), [residual": univariate_models,
    "[Tests of factors and marginal means]": tables_of_factors,
    "the adjustment of `resample`": lambda: (refused_with_slopes(), refused_with_residuals()),
    "D-studies of objects with random slopes": dstudies_with_slopes,
    "link functions": lambda: refuses_options("family", "link"),
    "residual variances that are functions": lambda: refuses_options("correlation", "varPower"),
    "known covariance matrices": lambda: refuses_options("cov", "pedigree"),
    "`diagnose` and `simulate` of rows": rows_of_parts,
    "robust intervals with random slopes": robust_intervals_of_parts,
    "[weights](../howto/weights.md), frequencies": weights_in_parts,
    "closed forms but MINQUE": refused_with_weights,
    "known variances with random slopes": known_variances_with_slopes,
    "priors": lambda: refuses_options("priors"),
    "imputation": missing_values,
    "A term with one row in each": lambda: refuses(
        "score ~ (1|sys) + (1|sys:topic)", DATA, DesignError, "that is the residual"
    ),
    "A facet with one level": lambda: refuses(
        "score ~ (1|k)", DATA.assign(k=1), DesignError, "at least two"
    ),
    "Scores that the terms reproduce exactly": exact_scores,
    "A formula with several hundred terms": lambda: refuses(
        "score ~ " + " + ".join(f"(1|f{k})" for k in range(600)), match="too deeply nested"
    ),
    "The analysis of variance with covariates": analysis_of_variance,
    "Profile likelihoods": profiles,
    "Rank accuracy of a fit": rank_accuracy,
    "Standard errors of [predicted effects]": errors_of_effects,
    "[D-studies](glossary.md#d-study) of what the data": confounded_plans,
    "Stored results": stored_results,
    "Factor analysis, item response theory": other_test_theories,
    "Slopes by level": slopes_by_level,
    "A fixed part that explains all but a ten-millionth of the squares": dominant_fixed_part,
}
ELSEWHERE = {
    "random slopes of a factor whose levels differ",  # tests/model/test_rows_in_parts.py
    "Measures of retrieval",  # the next test
    "A damaged Parquet file",  # would end the process
    "Names may still change",  # test_versions_agree, and the date that the changelog lacks
}


def test_every_statement_is_tried():
    known = [*CHECKS, *ELSEWHERE]
    for statement in statements():
        assert [start for start in known if statement.startswith(start)], statement
    for start in known:
        assert any(statement.startswith(start) for statement in statements()), start
    assert "(unreleased)" in (ROOT / "docs/reference/changelog.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("statement", CHECKS)
def test_it_is_so(statement):
    CHECKS[statement]()


def test_measures_of_retrieval_are_computed_elsewhere(monkeypatch):
    measures(monkeypatch)

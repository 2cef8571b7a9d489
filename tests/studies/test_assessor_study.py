"""Systematic and idiosyncratic assessor error, from simulated judgements and by mean squares."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.printed_tables import printed_columns
from vcomp.exceptions import DataError, PlanError

SYSTEMS, TOPICS, POOL = 12, 16, 6


def judged(seed=1, *, role=0.0, by_role=0.0, person=0.0, by_person=0.0):
    """Return scores of two assessors a topic, of two roles and a pool of individuals."""
    rng = np.random.default_rng(seed)
    s, t, r = (a.ravel() for a in np.indices((SYSTEMS, TOPICS, 2)))
    j = np.array([rng.permutation(POOL)[:2] for _ in range(TOPICS)])[t, r]

    def normal(sd, *shape):
        return sd * rng.normal(size=shape)

    score = normal(0.08, SYSTEMS)[s] + normal(0.12, TOPICS)[t] + normal(0.1, SYSTEMS, TOPICS)[s, t]
    score = score + role * r + normal(by_role, SYSTEMS, 2)[s, r] + normal(person, POOL)[j]
    score = score + normal(by_person, SYSTEMS, POOL)[s, j] + normal(0.02, TOPICS, 2)[t, r]
    score = score + normal(0.03, SYSTEMS, TOPICS, 2)[s, t, r]
    roles = np.array(["author", "second"])[r]
    return pd.DataFrame({"system": s, "topic": t, "role": roles, "assessor": j, "F": score})


@pytest.fixture(scope="module")
def neither():
    return vcomp.ir.assessor_study(judged(), "F")


@pytest.fixture(scope="module")
def of_both():
    return vcomp.ir.assessor_study(
        judged(2, role=0.06, by_role=0.03, person=0.04, by_person=0.04), "F"
    )


OTHER_NAMES = {"system": "run", "topic": "query", "role": "part", "assessor": "judge"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("effects", "names", "verdict", "design", "fixed"),
    [
        ({"role": 0.06, "by_role": 0.03}, {}, "roles", "system x role x topic", ("role",)),
        (
            *({"person": 0.05, "by_person": 0.05}, OTHER_NAMES),
            *("individuals", "system x assessor x topic", ()),
        ),
    ],
)
def test_the_effect_that_is_there_is_found(effects, names, verdict, design, fixed):
    study = vcomp.ir.assessor_study(judged(**effects).rename(columns=names), "F", **names)
    assert (study.verdict, study.design, study.fixed) == (verdict, design, fixed)
    assert study.models["aic"].idxmin() == verdict
    assert study.layout in ("roles", "crossed")


@pytest.mark.slow
def test_what_is_printed_is_in_the_tables(of_both):
    models, ratios, errors = (printed_columns(of_both.summary(), k) for k in range(3))
    for header, name, decimals in (("llf", "llf", 2), ("AIC", "aic", 1), ("BIC", "bic", 1)):
        expected = [f"{x:.{decimals}f}" for x in of_both.models[name]]
        assert [cell.replace("−", "-") for cell in models[header]] == expected
    assert models["npar"] == [str(n) for n in of_both.models["npar"]]
    tests, sources = of_both.tests, of_both.sources
    assert ratios["LR"] == [f"{x:.2f}" for x in tests["statistic"]]
    assert [float(cell) for cell in ratios["p"]] == [float(f"{p:.3g}") for p in tests["p_value"]]
    assert ratios["distribution"] == list(tests["distribution"])
    assert [errors[name] for name in ("kind", "moves")] == [
        list(sources[name]) for name in ("kind", "moves")
    ]
    shares = [float(cell.removesuffix("%")) for cell in errors["share"]]
    np.testing.assert_allclose(shares, sources["share"], atol=0.05001)
    for estimate, interval, row in zip(
        errors["estimate"], errors["95 % interval"], sources.itertuples(), strict=True
    ):
        assert float(estimate) == pytest.approx(row.estimate, abs=6e-5)
        ends = [float(x) for x in re.findall(r"[\d.]+(?:e[-−]\d+)?", interval)]
        np.testing.assert_allclose(ends, [row.low, row.high][: len(ends)], rtol=5e-3)


@pytest.mark.slow
def test_both_and_neither(neither, of_both):
    assert (neither.verdict, neither.design) == ("idiosyncratic", "system x (assessor:topic)")
    assert (of_both.verdict, of_both.kept) == ("both", ("roles", "individuals"))
    assert of_both.n_roles == 2
    text = str(of_both)
    assert "Systematic error of roles (who serves as what) is found" in text
    assert "pass fixed='role': the 2 roles are all that there are" in " ".join(text.split())
    assert "is not found" in str(neither)
    assert "averages out over topics as well as over assessors" in " ".join(str(neither).split())


@pytest.mark.slow
def test_every_effect_is_found_where_its_p_value_is_below_alpha(neither, of_both):
    words = {
        "roles": "Systematic error of roles (who serves as what)",
        "individuals": "Systematic error of individuals (who judges)",
        "idiosyncratic": "beyond systematic effects,",
    }
    for study in (neither, of_both):
        for effect, p in study.tests["p_value"].items():
            if effect == "either":
                continue
            said, not_said = ("is found", "is not found")
            if effect == "idiosyncratic":
                said = "remains"
            for alpha, found in ((1.001 * p, said), (p, not_said), (0.999 * p, not_said)):
                text = " ".join(replace(study, alpha=alpha).answer())
                assert f"{words[effect]} {found} (" in text, (effect, alpha)
                needed = f"one of both effects is needed; {effect} alone fit better"
                assert (needed in text) == (effect in study.kept and found == not_said)
        share = study.idiosyncratic_share[0]
        assert f"systems {100 * share:.1f} % is idiosyncratic" in " ".join(study.answer())


@pytest.mark.slow
def test_tests_are_those_of_the_likelihoods(of_both):
    llf = of_both.models["llf"]
    assert of_both.tests["smaller"].to_dict() == {
        "roles": "individuals", "individuals": "roles", "either": "idiosyncratic",
        "idiosyncratic": "systematic only",
    }  # fmt: skip
    for effect, small in (("roles", "individuals"), ("either", "idiosyncratic")):
        ratio = 2 * (llf["both"] - llf[small])
        assert of_both.tests["statistic"][effect] == pytest.approx(ratio)
    # roles: a fixed effect and a component at its bound; ½χ²₁ + ½χ²₂
    assert of_both.tests["df"].to_dict() == {
        "roles": 2, "individuals": 2, "either": 4, "idiosyncratic": 1,
    }  # fmt: skip


@pytest.mark.slow
def test_the_idiosyncratic_model_is_an_analysis_of_variance(neither):
    """Bodoff's p × (a:q), 2008, Table 20: components from the mean squares of balanced data."""
    table = judged()
    y = table["F"].to_numpy().reshape(SYSTEMS, TOPICS, 2)
    mean = y.mean()
    p, q, aq = y.mean((1, 2)), y.mean((0, 2)), y.mean(0)
    pq = y.mean(2)
    MS_aq = SYSTEMS * np.square(aq - q[:, None]).sum() / TOPICS
    rest = y - pq[:, :, None] - aq + q[:, None]
    MS_e = np.square(rest).sum() / ((SYSTEMS - 1) * TOPICS)
    inter = pq - p[:, None] - q + mean
    MS_pq = 2 * np.square(inter).sum() / ((SYSTEMS - 1) * (TOPICS - 1))
    res = vcomp.fit(
        "score ~ (1|system) + (1|topic) + (1|system:topic) + (1|topic:assessment)",
        table.assign(score=table["F"], assessment=table["role"]),
    )
    np.testing.assert_allclose(
        res.vcomp[["topic:assessment", "system:topic", "Residual"]],
        [(MS_aq - MS_e) / SYSTEMS, (MS_pq - MS_e) / 2, MS_e],
        rtol=1e-6,
    )
    assert (
        res.model.formula.split("~")[1] == neither.models["formula"]["idiosyncratic"].split("~")[1]
    )


def test_the_variance_of_roles_is_that_of_their_difference():
    """Without individuals: d²/2 less half its variance, d the mean difference of the roles."""
    table = judged(3, role=0.06, by_role=0.03)
    study = vcomp.ir.assessor_study(table, "F", assessor=None)
    assert set(study.fits) == {"idiosyncratic", "roles"}
    y = table["F"].to_numpy().reshape(SYSTEMS, TOPICS, 2)
    D = y[:, :, 1] - y[:, :, 0]
    d, by_s, by_t = D.mean(), D.mean(1), D.mean(0)
    MS_s = TOPICS * np.square(by_s - d).sum() / (SYSTEMS - 1)
    MS_t = SYSTEMS * np.square(by_t - d).sum() / (TOPICS - 1)
    rest = D - by_s[:, None] - by_t + d
    MS_e = np.square(rest).sum() / ((SYSTEMS - 1) * (TOPICS - 1))
    variance = (MS_s + MS_t - MS_e) / (SYSTEMS * TOPICS)
    assert study.sources["estimate"]["role"] == pytest.approx(d**2 / 2 - variance / 2, rel=1e-5)
    # components of one assessment are half of those of differences
    assert study.sources["estimate"]["Residual"] == pytest.approx(MS_e / 2, rel=1e-5)
    by_system = study.sources["estimate"]["system:role"]
    assert by_system == pytest.approx((MS_s - MS_e) / TOPICS / 2, rel=1e-5)
    share = (MS_e / 2) / (MS_e / 2 + by_system)
    assert study.idiosyncratic_share[0] == pytest.approx(share, rel=1e-5)
    for _, rows in study.sources.groupby("moves"):
        positive = rows["estimate"].clip(lower=0.0)
        np.testing.assert_allclose(rows["share"], 100.0 * positive / positive.sum(), rtol=1e-12)


def test_what_is_confounded_is_said():
    table = judged(4, role=0.06, by_role=0.03)
    one_each = table.assign(assessor=table["role"].map({"author": "A", "second": "B"}))
    study = vcomp.ir.assessor_study(one_each, "F")
    assert study.impossible["both"] == "every role is that of one individual, who has no other"
    assert len(study.kept) == 1
    strangers = table.assign(assessor=table["topic"].astype(str) + table["role"])
    study = vcomp.ir.assessor_study(strangers, "F")
    assert "every assessor is in one topic only" in study.impossible["individuals"]
    assert study.verdict == "roles"
    alone = vcomp.ir.assessor_study(strangers, "F", role=None)
    assert alone.n_roles == 0
    assert "cannot show systematic error" in str(alone)
    assert alone.verdict == "idiosyncratic"


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda t: t, {"role": None, "assessor": None}, "both None"),
        (lambda t: t.drop(columns="topic"), {}, "topic"),
        (lambda t: t.drop(columns=["role", "assessor"]), {}, "assessor"),
        (lambda t: t, {"role": "part"}, "part"),
        (lambda t: t, {"role": pd.DataFrame({"role": [1]})}, "name of a column, not a DataFrame"),
        (lambda t: pd.concat([t, t[:1]]), {}, "two scores of one assessment of topic '0'"),
        (
            lambda t: t[t["role"] == "author"],
            {},
            "no topic has two assessments.*a second assessor",
        ),
        (lambda t: t.assign(role=t["role"].where(t["topic"] > 0)), {}, "'role' has missing"),
    ],
)
def test_tables_that_do_not_fit(change, options, message):
    with pytest.raises(DataError, match=message):
        vcomp.ir.assessor_study(change(judged()), "F", **options)


def test_a_level_that_is_none():
    with pytest.raises(PlanError, match="alpha"):
        vcomp.ir.assessor_study(judged(), "F", alpha=2)


def test_layouts_of_roles_are_fixed():
    rows = judged()
    layouts = vcomp.ir.assessor_layouts(rows[["topic", "role", "assessor"]].drop_duplicates())
    assert layouts["roles"].fixed == ("role",)
    assert layouts["individuals"].fixed == ()
    assert "pass fixed='role'" in str(layouts)
    layout = layouts["roles"]
    res = vcomp.gstudy(layout.design, layout.rows(rows), "F", method="anova")
    random, fixed = (
        res.dstudy(topic=50, role=2, fixed=f, interval="mls").table for f in ((), layout.fixed)
    )
    assert fixed["Phi"][0] > random["Phi"][0]
    # two roles say next to nothing of a variance between roles
    assert np.diff(fixed[["Phi_low", "Phi_high"]])[0, 0] < np.diff(random[["Phi_low", "Phi_high"]])

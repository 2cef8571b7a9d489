"""Table 9.1 of Brennan (2001), after Rajaratnam, Cronbach and Gleser: a table of specifications.

Eight persons answer items of three subtests; the numbers are those of R's gtheory, whose
components of the subtests are lme4's REML with its default optimiser (good to about 1e-6) and
whose covariances are those of the persons' mean scores. Items are numbered anew in every subtest.
"""

import numpy as np
import pandas as pd
import pytest

import vcomp

WEIGHTS = {"1": 0.25, "2": 0.5, "3": 0.25}


@pytest.fixture(scope="module")
def values(reference):
    return reference("gtheory_rajaratnam_2")["values"]


@pytest.fixture(scope="module")
def data(shared_data):
    return pd.read_csv(shared_data("rajaratnam_2.csv")).astype({"subtest": str})


def fit(data, method):
    formula = "score ~ (1|person) + (1|item)"
    return vcomp.fit_multivariate(
        formula, data, variable="subtest", independent="item", method=method
    )


@pytest.mark.parametrize("method", ["reml", "anova"])
def test_variances_of_the_subtests(values, data, method):
    res = fit(data, method)
    for subtest, parts in values["gstudy_within"].items():
        for term, name in (("person", "Person"), ("item", "Item"), ("Residual", "Residual")):
            found = res.matrix(term).loc[subtest, subtest]
            # REML of all subtests together is not that of each by itself.
            tolerance = 1e-5 if method == "anova" else 0.05
            assert found == pytest.approx(parts[name]["var"], rel=tolerance), (subtest, term)


def test_universe_scores_and_the_composite(values, data):
    res = fit(data, "anova")
    published = values["dstudy_between"]
    np.testing.assert_allclose(res.matrix("person"), published["var_universe"], rtol=1e-5)
    table = res.dstudy(WEIGHTS).table
    by_name = table.set_index("score")
    np.testing.assert_allclose(
        by_name.loc[list(WEIGHTS), "Erho2"], published["generalizability"], rtol=1e-5
    )
    np.testing.assert_allclose(
        by_name.loc[list(WEIGHTS), "Phi"], published["dependability"], rtol=1e-5
    )
    whole = by_name.drop(list(WEIGHTS)).iloc[0]
    for column, name in [
        ("universe_var", "var.universe"),
        ("rel_err_var", "var.error.rel"),
        ("abs_err_var", "var.error.abs"),
        ("Erho2", "generalizability"),
        ("Phi", "dependability"),
    ]:
        assert whole[column] == pytest.approx(values["composite"][name], rel=1e-5), column

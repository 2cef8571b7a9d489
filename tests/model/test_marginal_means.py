"""Marginal means: definitions by hand, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.inference.hypotheses.test_terms import DATA, HOLES, fitted
from vcomp.exceptions import DataError, EstimationError, FormulaError, PlanError


@pytest.fixture(scope="module")
def res():
    return fitted("y ~ a * b + a * np.log(x) + C(c) + (1|g)", DATA)


def test_means_are_those_of_predictions(res):
    """Averages of predictions over all combinations, at the mean of the covariate."""
    x = DATA["x"].mean()
    grid = [(a, b, c) for a in "pqrs" for b in "uvw" for c in (1, 2)]
    rows = pd.DataFrame(grid, columns=["a", "b", "c"]).assign(x=x, g=DATA["g"].iloc[0])
    rows["predicted"] = res.predict(rows, level="population").to_numpy()
    one = res.marginal_means("a").table
    np.testing.assert_allclose(one["mean"], rows.groupby("a")["predicted"].mean(), rtol=1e-12)
    two = res.marginal_means("a", by="b").table
    assert two.index.names == ["b", "a"]
    expected = rows.groupby(["b", "a"])["predicted"].mean()
    np.testing.assert_allclose(two["mean"], expected, rtol=1e-12)
    again = res.marginal_means("b:a").table
    assert again.drop(columns="group").equals(two.drop(columns="group"))
    whole = res.marginal_means([])
    assert whole.table["mean"].item() == pytest.approx(rows["predicted"].mean(), rel=1e-12)
    assert whole.pairs.empty
    assert "Marginal means of all" in str(whole)
    at = res.marginal_means("a", at={"b": ["u", "w"], "c": 2}).table["mean"]
    chosen = rows[rows["b"].isin(["u", "w"]) & (rows["c"] == 2)]
    np.testing.assert_allclose(at, chosen.groupby("a")["predicted"].mean(), rtol=1e-12)
    weighted = res.marginal_means("a", at={"b": {"w": 3, "u": 1}, "c": 2})
    shares = chosen["b"].map({"w": 0.75, "u": 0.25})
    expected = (shares * chosen["predicted"]).groupby(chosen["a"]).sum()
    np.testing.assert_allclose(weighted.table["mean"], expected, rtol=1e-12)
    assert "b: w (weight 3), u (weight 1)." in weighted.notes
    first = weighted.pairs.iloc[0]
    assert first["difference"] == pytest.approx(expected["p"] - expected["q"], rel=1e-10)
    for by_level in ({"w": -1, "u": 2}, {"w": 0, "u": 0}):
        with pytest.raises(PlanError, match="weights of levels are numbers from 0, not all 0"):
            res.marginal_means("a", at={"b": by_level})
    with pytest.raises(PlanError, match="at has weights of the levels of b, which have a mean"):
        res.marginal_means("b", at={"b": {"w": 3, "u": 1}})


def test_values_of_covariates(res):
    """At another x, in the logarithm too; other rows have no part in it."""
    rows = pd.DataFrame({"a": list("pqrs"), "b": "u", "c": 1, "x": 47.5, "g": DATA["g"].iloc[0]})
    found = res.marginal_means("a", at={"x": 47.5, "b": "u", "c": 1}).table["mean"]
    np.testing.assert_allclose(found, res.predict(rows, level="population"), rtol=1e-12)


def test_comparisons_of_one_factor_are_those_of_levels():
    res = fitted("y ~ a + b + x + (1|g)", DATA)
    for options in ({"test": "tukey"}, {"correction": "none"}, {"ddf": "kenward-roger"}):
        means, levels = res.marginal_means("a", **options), res.compare_levels("a", **options)
        columns = ["difference", "std_error", "df", "statistic", "p_adjusted", "low", "high"]
        np.testing.assert_allclose(means.pairs[columns], levels.table[columns], rtol=1e-9)
        assert means.table["group"].to_dict() == levels.groups["group"].to_dict()


def test_pairs_are_within_levels_of_another_factor(res):
    means = res.marginal_means("a", by=["b", "c"], test="tukey")
    assert list(means.pairs.columns[:4]) == ["b", "c", "first", "second"]
    assert len(means.pairs) == 6 * 6
    assert len(means.comparisons) == 6
    part = means.comparisons["u", 2].table
    rows = means.pairs[(means.pairs["b"] == "u") & (means.pairs["c"] == 2)]
    np.testing.assert_allclose(rows["difference"], part["difference"])
    for (b, c, a), row in means.table.iterrows():
        assert row["group"] == means.comparisons[b, c].groups.loc[a, "group"]


def test_absent_combinations_are_named():
    res = fitted("y ~ a * b + (1|g)", HOLES)
    means = res.marginal_means("a", by="b")
    empty = means.table["mean"].isna()
    assert list(means.table.index[empty]) == [("u", "p"), ("v", "s")]
    assert (means.table["group"] == "").equals(empty)
    assert "Not estimable, as some combinations of levels have no rows: u:p, v:s." in means.notes
    assert len(means.pairs) == 3 + 3 + 6
    over = res.marginal_means("a")
    assert over.table["mean"].isna().tolist() == [True, False, False, True]
    fewer = res.marginal_means("a", at={"b": "w"})
    assert fewer.table["mean"].notna().all()
    alone = res.marginal_means("b", at={"a": "p"})
    assert alone.table["group"].tolist() == ["", "a", "a"]
    nothing = res.marginal_means("b", at={"a": ["p", "s"]})
    assert nothing.table["group"].tolist() == ["", "", "a"]
    assert nothing.pairs.empty
    assert "group" not in str(nothing)


def test_it_prints_means_with_letters():
    res = fitted("y ~ a + b + x + (1|g)", DATA)
    means = res.marginal_means("a", by="b")
    text = str(means)
    for words in ("Marginal means of b:a", "std. err.", "95 % interval", "u:p", "group"):
        assert words in text
    assert "p adjusted by Holm" in text
    assert repr(means) == "<MarginalMeans of a by b: 12>"
    assert "df" not in str(res.marginal_means("a", ddf="normal")).split("Differences")[0]


def test_means_of_a_factor_of_many_levels():
    rng = np.random.default_rng(5)
    a, g = np.indices((150, 6)).reshape(2, -1)
    y = rng.normal(size=900) + g
    res = vcomp.fit("y ~ C(a) + (1|g)", {"y": y, "a": a, "g": g})
    found = res.marginal_means("a", at={"a": [3, 7, 149]}).table
    np.testing.assert_allclose(found["mean"], y.reshape(150, 6).mean(axis=1)[[3, 7, 149]])
    assert found.index.tolist() == [3, 7, 149]


def test_streamed_rows_have_means_of_plain_covariates(tmp_path):
    path = tmp_path / "rows.parquet"
    DATA.to_parquet(path)
    kept, streamed = (
        vcomp.fit("y ~ a + x + (1|g)", path, stream=stream).marginal_means("a").table
        for stream in (False, True)
    )
    np.testing.assert_allclose(streamed["mean"], kept["mean"], rtol=1e-9)
    np.testing.assert_allclose(streamed["std_error"], kept["std_error"], rtol=1e-6)
    res = vcomp.fit("y ~ a + I(x / 10) + (1|g)", path, stream=True)
    with pytest.raises(
        DataError, match=r"the mean of 'x' is not known, .*at=\{'x': …\}"
    ) as caught:
        res.marginal_means("a")
    assert caught.value.column == "x"
    at = res.marginal_means("a", at={"x": DATA["x"].mean()}).table["mean"]
    np.testing.assert_allclose(at, kept["mean"], rtol=1e-6)


@pytest.mark.parametrize(
    ("facets", "options", "error", "message"),
    [
        ("aa", {}, PlanError, r"'aa' is not a factor .*\(did you mean 'a'\?\); factors are 'a'"),
        ("x", {}, PlanError, r"'x' is a numerical covariate, .*write C\(x\) .*at=\{'x': …\}"),
        ("a", {"by": "x"}, PlanError, "'x' is a numerical covariate"),
        ("g", {}, PlanError, r"'g' is a random term, .*res.compare_levels\('g'\)"),
        ("a", {"by": "a"}, PlanError, "factor 'a' is named twice"),
        ([1], {}, PlanError, "factors are given by their names"),
        ("a", {"at": {"z": 1}}, PlanError, "at names 'z', which is not in the fixed part"),
        ("a", {"at": {"b": "t"}}, DataError, "b has no level 't'"),
        ("a", {"at": {"b": ["u", "u"]}}, PlanError, "a list of different levels"),
        ("a", {"at": {"x": [1.0, 2.0]}}, PlanError, r"at\['x'\] is one finite number"),
        ("a", {"at": {"x": np.nan}}, PlanError, r"at\['x'\] is one finite number"),
        ("a", {"at": {"x": -1.0}}, FormulaError, r"'np.log\(x\)' of the fixed part has no value"),
        ("a", {"test": "dunnett"}, PlanError, "test must be 't', 'tukey' or 'max-t'"),
        ("a", {"test": "f"}, PlanError, "test must be 't', 'tukey' or 'max-t'"),
        ("a", {"correction": "sidak"}, PlanError, "correction must be"),
        ("a", {"alpha": 2.0}, PlanError, "alpha"),
        ("a", {"ddf": "kr"}, EstimationError, "ddf='kr' is not known"),
    ],
)
def test_what_is_refused(res, facets, options, error, message):
    with pytest.raises(error, match=message):
        res.marginal_means(facets, **options)


def test_expressions_that_depend_on_other_rows():
    res = fitted("y ~ a + I(x - x.mean()) + (1|g)", DATA)
    with pytest.raises(FormulaError, match="depends on other rows"):
        res.marginal_means("a")
    centred = fitted("y ~ a + center(x) + (1|g)", DATA).marginal_means("a").table["mean"]
    plain = fitted("y ~ a + x + (1|g)", DATA).marginal_means("a").table["mean"]
    np.testing.assert_allclose(centred, plain, rtol=1e-10)


def test_columns_in_several_expressions():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        res = vcomp.fit("y ~ C(c) + c:x + (1|g)", DATA)
    with pytest.raises(FormulaError, match="column 'c' is in several expressions"):
        res.marginal_means("c")


def test_stored_results_have_no_means(res):
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    with pytest.raises(DataError, match=r"without its rows, which marginal_means\(\) needs"):
        loaded.marginal_means("a")
    with pytest.raises(DataError, match=r"without the sums of its rows, which r2\(\) needs"):
        loaded.r2()


def test_shares_of_the_variance():
    """R² by its definition, from fitted values; negative components count as zero."""
    res = fitted("y ~ a * x + (1|g)", DATA)
    fixed = np.var(res.predict(level="population"), ddof=1)
    g, residual = res.vcomp
    expected = [fixed / (fixed + g + residual), (fixed + g) / (fixed + g + residual)]
    np.testing.assert_allclose(res.r2(), expected, rtol=1e-9)
    icc = res.icc(alpha=0.1, interval="mls").loc["g"]
    share = res.quantity("g / total", alpha=0.1, interval="mls")
    assert icc.tolist() == [share.estimate, share.se, share.low, share.high]
    negative = vcomp.fit(
        "y ~ (1|g)", {"y": [0.0, 3.0, 1.0, 2.0], "g": [0, 0, 1, 1]}, method="anova"
    )
    assert negative.r2().tolist() == [0.0, 0.0]
    assert np.isnan(negative.varcorr().loc["g", "std_dev"])
    slope = fitted("y ~ 0 + x + (1|g)", DATA)
    with pytest.raises(EstimationError, match="needs the mean of the fixed part"):
        slope.r2()

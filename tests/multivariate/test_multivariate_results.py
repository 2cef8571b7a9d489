import json
import pickle

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.multivariate_scores import crossed, specification
from vcomp import DataError, MultivariateResults, PlanError
from vcomp.multivariate.estimate_record import correlations_of

WIDE = "a + b + c ~ (1|p) + (1|i)"
ITEMS = "y ~ (1|p) + (1|i)"


@pytest.fixture(scope="module")
def res():
    return vcomp.fit_multivariate(WIDE, crossed(28, n_p=30, n_i=12))


@pytest.fixture(scope="module")
def items():
    return vcomp.fit_multivariate(ITEMS, specification(3, n_p=40), variable="test")


def test_components_are_the_matrices_in_rows(res, items):
    for one in (res, items):
        frame = one.components
        assert list(frame) == ["term", "variable1", "variable2", "estimate", "se", "correlation"]
        for row in frame.itertuples():
            place = (row.variable1, row.variable2)
            assert one.matrix(row.term).loc[place] == row.estimate
            assert one.standard_errors(row.term).loc[place] == pytest.approx(row.se, nan_ok=True)
    assert len(res.components) == 18
    assert len(items.components) == 6 + 3 + 3  # items and residuals have no covariances


def test_correlations(res):
    S = res.matrix("p").to_numpy()
    d = np.sqrt(np.diagonal(S))
    np.testing.assert_allclose(res.correlations("p"), S / np.outer(d, d), rtol=1e-12)
    assert np.isnan(correlations_of(np.array([[1.0, 0.5], [0.5, -1.0]]))[0, 1])


def test_correlations_without_error_are_classical_disattenuation():
    """ρ(a, b)/√(ρ_aa ρ_bb): Spearman's formula with Eρ² as reliabilities, of independent items."""
    data = specification(3, n_p=40, n_i=(4, 6))
    res = vcomp.fit_multivariate(ITEMS, data, variable="test", method="anova")
    means = data.groupby(["p", "test"])["y"].mean().unstack()
    table = res.dstudy().table.set_index("score")
    expected = means.corr().loc["a", "b"] / np.sqrt(
        table.loc["a", "Erho2"] * table.loc["b", "Erho2"]
    )
    assert res.correlations("p").loc["a", "b"] == pytest.approx(expected, rel=1e-10)
    observed = res.observed_correlations().loc["a", "b"]
    assert observed == pytest.approx(means.corr().loc["a", "b"], rel=1e-10)


def test_observed_correlations_approach_those_without_error(res):
    many = res.observed_correlations(i=10**9)
    np.testing.assert_allclose(many, res.correlations("p"), rtol=1e-6)
    with pytest.raises(PlanError, match="one size"):
        res.observed_correlations(i=[3, 4])


def test_intervals_of_correlations_are_by_fishers_z(res):
    frame = res.correlation_intervals("p", alpha=0.1)
    g, z = res.covariance_components, 1.6448536269514722
    for row in frame.itertuples():
        a, b = (res.variables.index(v) for v in (row.variable1, row.variable2))
        use = [g.elements.index(e) for e in ((0, a, b), (0, a, a), (0, b, b))]
        S, h = g.values[0], 1e-6

        def r(x):
            return x[0] / np.sqrt(x[1] * x[2])

        x = np.array([S[a, b], S[a, a], S[b, b]])
        slope = [(r(x + h * e) - r(x - h * e)) / (2 * h) for e in np.eye(3)]
        se = np.sqrt(slope @ g.cov[np.ix_(use, use)] @ slope)
        assert row.se == pytest.approx(se, rel=1e-6)
        expected = np.tanh(np.arctanh(row.estimate) + z * se / (1 - row.estimate**2))
        assert row.high == pytest.approx(expected, rel=1e-6)
        assert row.low < row.estimate < row.high < 1


def test_intervals_of_variances_are_those_of_one_variable(res):
    frame = res.tidy()
    one = vcomp.fit("b ~ (1|p) + (1|i)", crossed(28, n_p=30, n_i=12))
    alone = one.conf_int(interval="mls")
    rows = frame[(frame["variable1"] == "b") & (frame["variable2"] == "b")].set_index("term")
    for term in res.terms:
        found = rows.loc[term, ["conf_low", "conf_high"]].to_numpy(dtype=float)
        np.testing.assert_allclose(found, alone.loc[f"var({term})"], rtol=1e-5)


def test_profiles_are_best_linear_predictions(res):
    """Complete data: the dense û = Σ_p Z'V⁻¹(y − Xβ) and its error, all scores at once."""
    data = crossed(28, n_p=30, n_i=12)
    n_p, n_i, v = 30, 12, 3
    S = [res.matrix(t).to_numpy() for t in res.terms]
    p, i = np.kron(np.eye(n_p), np.ones((n_i, n_i))), np.kron(np.ones((n_p, n_p)), np.eye(n_i))
    V = np.kron(S[0], p) + np.kron(S[1], i) + np.kron(S[2], np.eye(n_p * n_i))
    y = data[list("abc")].to_numpy()
    means = y.mean(axis=0)
    Z = np.kron(np.eye(n_p), np.ones((n_i, 1)))
    left = np.kron(S[0], Z.T)
    effects = (left @ np.linalg.solve(V, (y - means).T.ravel())).reshape(v, n_p)
    frame = res.profiles()
    wide = frame.pivot(index="p", columns="variable", values="universe_score")
    np.testing.assert_allclose(wide, effects.T + means, rtol=1e-8)
    # Without the means' own error, which is that of all objects: Σ − Σ(Σ + Δ)⁻¹Σ.
    error = S[0] - S[0] @ np.linalg.solve(S[0] + S[2] / n_i, S[0])
    np.testing.assert_allclose(
        frame["se"].to_numpy().reshape(n_p, v), np.sqrt(np.diagonal(error))[None, :].repeat(n_p, 0)
    )


def test_a_variable_without_scores_borrows_from_the_others():
    data = specification(3, n_p=30, n_i=(5, 5))
    data = data[~((data["test"] == "b") & (data["p"] == 4))]
    res = vcomp.fit_multivariate(ITEMS, data, variable="test")
    row = res.profiles().set_index(["p", "variable"])
    assert row.loc[(4, "b"), "n"] == 0
    assert np.isnan(row.loc[(4, "b"), "mean"])
    S = res.matrix("p")
    error = res.matrix("Residual").loc["a", "a"] / 5
    slope = S.loc["a", "b"] / (S.loc["a", "a"] + error)
    expected = res.means["b"] + slope * (row.loc[(4, "a"), "mean"] - res.means["a"])
    assert row.loc[(4, "b"), "universe_score"] == pytest.approx(expected, rel=1e-10)
    se = np.sqrt(S.loc["b", "b"] - slope * S.loc["a", "b"])
    assert row.loc[(4, "b"), "se"] == pytest.approx(se, rel=1e-10)


@pytest.mark.parametrize("left", [1, 2])
def test_profiles_of_few_scores(left):
    """One or two scores of b, and what those of a say of it: Σ(Σ + Δ)⁻¹ of both means."""
    data = specification(3, n_p=30, n_i=(5, 5))
    own = (data["test"] == "b") & (data["p"] == 4)
    data = data.drop(index=np.flatnonzero(own)[left:])
    res = vcomp.fit_multivariate(ITEMS, data, variable="test")
    row = res.profiles().set_index(["p", "variable"]).loc[4]
    assert row["n"].tolist() == [5, left]
    S, e = res.matrix("p").to_numpy(), np.diagonal(res.matrix("Residual"))
    total = S + np.diag(e / [5, left])
    deviation = row["mean"].to_numpy() - res.means.to_numpy()
    expected = res.means.to_numpy() + S @ np.linalg.solve(total, deviation)
    np.testing.assert_allclose(row["universe_score"], expected, rtol=1e-10)
    error = S - S @ np.linalg.solve(total, S)
    np.testing.assert_allclose(row["se"], np.sqrt(np.diagonal(error)), rtol=1e-10)


def test_variability_of_profiles_is_that_of_simulated_objects():
    """The expected variance within an object, by its definition over many universe scores."""
    res = vcomp.fit_multivariate(WIDE, crossed(28, n_p=30, n_i=12), method="anova")
    found = res.profile_variability()
    S, D = res.matrix("p").to_numpy(), res.matrix("Residual").to_numpy() / 12
    # E Σ_v (x_v − x̄)²/v = tr(C E[xx'])/v with the centring matrix C.
    C = np.eye(3) - 1 / 3
    m = res.means.to_numpy()
    universe = np.trace(C @ (S + np.outer(m, m))) / 3
    observed = np.trace(C @ (S + D + np.outer(m, m))) / 3
    np.testing.assert_allclose(found, [universe, observed, universe / observed], rtol=1e-10)


def test_no_weights_are_better_than_the_best(res):
    best = res.optimal_weights()
    assert best.sum() == pytest.approx(1.0)

    def reliability(w):
        return res.composite(w).dstudy().table["Erho2"].item()

    top = reliability(best)
    rng = np.random.default_rng(0)
    assert all(reliability(w) <= top + 1e-12 for w in rng.normal(size=(40, 3)))


def test_travel(res, items, tmp_path):
    for one in (res, items):
        path = tmp_path / "result.json"
        text = one.to_json(path)
        for again in (
            MultivariateResults.from_json(text),
            MultivariateResults.from_json(path),
            pickle.loads(pickle.dumps(one)),
        ):
            pd.testing.assert_frame_equal(again.tidy(), one.tidy())
            pd.testing.assert_frame_equal(again.dstudy().table, one.dstudy().table)
            assert str(again) == str(one)
            with pytest.raises(DataError, match="loaded without them; fit again"):
                again.profiles()


def test_a_file_that_cannot_be_written(res, tmp_path):
    with pytest.raises(DataError, match="there is no such folder"):
        res.to_json(tmp_path / "absent" / "result.json")


def test_other_texts_are_refused(res):
    for text, words in [
        ("{}", "not a multivariate result"),
        (json.dumps({"vcomp": "MultivariateResults", "format": 99}), "format 99"),
        (json.dumps({"vcomp": "MultivariateResults", "format": 1}), "incomplete or damaged"),
        ("{", "not JSON"),
    ]:
        with pytest.raises(DataError, match=words):
            MultivariateResults.from_json(text)
    univariate = vcomp.fit("a ~ (1|p) + (1|i)", crossed(1)).to_json()
    with pytest.raises(DataError, match="not a multivariate result"):
        MultivariateResults.from_json(univariate)


def test_objects_that_cannot_be(res, items):
    for call in (res.profiles, res.optimal_weights, res.profile_variability):
        with pytest.raises(PlanError, match="unknown facet 'q'"):
            call("q")
    with pytest.raises(PlanError, match="do not all share levels of 'i'"):
        items.profiles("i")


def test_what_is_printed(res, items):
    text = str(res)
    assert "Covariance components by REML" in text
    assert "1,080 scores of 3 variables" in text
    assert "Each variable: 30 p × 12 i, fully crossed, balanced." in text
    assert "p•, i•: linked, their levels are the same for all variables." in text
    assert repr(res) == f"<MultivariateResults: {WIDE} by REML>"
    assert "<table" in res._repr_html_()
    assert max(len(line) for line in text.splitlines()) <= 100
    composite = res.composite({"a": 1, "b": -1})
    assert "Variance components of a − b" in str(composite)
    assert repr(res.composite([0.5, 0.5, 0])) == "<Composite: 0.5 × a + 0.5 × b>"
    assert repr(res.dstudy(i=3)) == "<MultivariateDStudy: a, b, c; object='p'>"


def test_estimates_beyond_one_are_named():
    data = specification(1, n_p=6, n_i=(2, 2, 2))
    for seed in range(50):
        data = specification(seed, n_p=6, n_i=(2, 2, 2))
        res = vcomp.fit_multivariate(ITEMS, data, variable="test", method="anova")
        if np.nanmax(np.abs(res.correlations("p").to_numpy())) > 1.01:
            assert "Correlations of p lie beyond ±1" in str(res)
            assert res.correlation_intervals("p")["low"].isna().any()
            return
    raise AssertionError("none of these data has a correlation beyond one")


def test_three_measures_of_the_same_runs(shared_data):
    """TREC Web 2010: each measure by itself, and their difference, against one-variable fits."""
    names = ("ap", "p20", "rr")
    frames = [
        pd.read_csv(shared_data(f"web2010{n}_long.csv")).rename(columns={"score": n})
        for n in names
    ]
    data = frames[0].merge(frames[1]).merge(frames[2])
    res = vcomp.fit_multivariate("ap + p20 + rr ~ (1|sys) + (1|topic)", data, method="anova")
    table = res.dstudy({"ap": 1, "rr": -1}, topic=[25, 50]).table
    data["z"] = data["ap"] - data["rr"]
    for name, column in [*((n, n) for n in names), ("composite", "z")]:
        alone = vcomp.fit(f"{column} ~ (1|sys) + (1|topic)", data, method="anova")
        expected = alone.dstudy(topic=[25, 50], interval="f").table
        found = table[table["score"] == name]
        for quantity in ("Erho2", "Erho2_low", "Erho2_high", "Phi", "Phi_low", "Phi_high"):
            np.testing.assert_allclose(found[quantity], expected[quantity], rtol=1e-9)

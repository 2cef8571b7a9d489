from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.examples import examples
from tests.helpers.multivariate_scores import alone_of, crossed, long_of, specification
from vcomp import DataError, DesignError, EstimationError, FormulaError, VcompWarning
from vcomp.estimators.likelihood import covariance_in_cone
from vcomp.multivariate.fit_covariances import _indefinite, _status

WIDE = "a + b + c ~ (1|p) + (1|i)"
ITEMS = "y ~ (1|p) + (1|i)"


def fit(formula=WIDE, data=None, **options):
    return vcomp.fit_multivariate(formula, crossed(1) if data is None else data, **options)


def same(one, two, factor=1.0, **tolerance):
    for term in one.terms:
        expected = one.matrix(term).to_numpy() * factor
        np.testing.assert_allclose(two.matrix(term), expected, **tolerance)


# Against one variable -----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("missing", [0.0, 0.25])
def test_independent_variables_have_the_sum_of_their_likelihoods(method, missing):
    """No facet is linked, so that nothing is left but the variables by themselves."""
    data = specification(3, n_p=20, missing=missing)
    data["p"] = data["test"] + data["p"].astype(str)
    res = fit(ITEMS, data, variable="test", method=method)
    alone = {name: alone_of(ITEMS, d, method=method) for name, d in data.groupby("test")}
    assert res.llf == pytest.approx(sum(r.llf for r in alone.values()), abs=1e-8)
    for name, r in alone.items():
        found = [res.matrix(term).loc[name, name] for term in res.terms]
        np.testing.assert_allclose(found, r.vcomp, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("method", ["reml", "anova"])
def test_balanced_variables_have_their_own_estimates_and_errors(method):
    """Inside the cone a balanced REML is the closed form, of each variable and its error."""
    data = crossed(28, n_p=30, n_i=12)
    res = fit(WIDE, data, method=method)
    for name in "abc":
        alone = vcomp.fit(f"{name} ~ (1|p) + (1|i)", data, method=method)
        for term in res.terms:
            assert res.matrix(term).loc[name, name] == pytest.approx(alone.vcomp[term], rel=1e-6)
            se = res.standard_errors(term).loc[name, name]
            assert se == pytest.approx(alone.bse_vcomp[term], rel=1e-6)


def test_the_likelihood_is_that_of_stacked_scores():
    """The value at the estimates, from the normal density of all scores (no scaling)."""
    data = crossed(2, n_p=5, n_i=4, v=2)
    res = fit("a + b ~ (1|p) + (1|i)", data)
    S = [res.matrix(t).to_numpy() for t in res.terms]
    same_p = np.equal.outer(data["p"].to_numpy(), data["p"].to_numpy())
    same_i = np.equal.outer(data["i"].to_numpy(), data["i"].to_numpy())
    V = np.kron(S[0], same_p) + np.kron(S[1], same_i) + np.kron(S[2], np.eye(20))
    y, X = data[["a", "b"]].to_numpy().T.ravel(), np.kron(np.eye(2), np.ones((20, 1)))
    inverse = np.linalg.inv(V)
    XVX = X.T @ inverse @ X
    r = y - X @ np.linalg.solve(XVX, X.T @ inverse @ y)
    logs = np.linalg.slogdet(V)[1] + np.linalg.slogdet(XVX)[1]
    expected = -0.5 * (logs + r @ inverse @ r + 38 * np.log(2 * np.pi))
    assert res.llf == pytest.approx(expected, abs=1e-9)


def test_standard_errors_on_the_bound_are_those_of_its_rank():
    res = fit(WIDE, crossed(12, n_p=3, n_i=6))
    ranks = res._record.ending.ranks
    assert ranks[0] <= 2
    assert f"Σ(p) has rank {ranks[0]} of 3" in res.status
    g = res.covariance_components
    values = np.linalg.eigvalsh(g.cov)
    free = sum(3 * r - r * (r - 1) // 2 for r in ranks)
    assert (values > 1e-12 * values[-1]).sum() == free
    assert values[0] > -1e-10 * values[-1]


# What must not matter -------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["reml", "anova"])
@settings(max_examples=examples(5), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    scales=st.lists(st.floats(0.01, 100.0), min_size=3, max_size=3),
    shifts=st.lists(st.floats(-100.0, 100.0), min_size=3, max_size=3),
)
def test_units_origins_and_order_do_not_matter(method, seed, scales, shifts):
    data = specification(seed, n_p=8, missing=0.15)
    one = fit(ITEMS, data, variable="test", method=method)
    k = data["test"].map({"a": 0, "b": 1, "c": 2}).to_numpy()
    moved = data.assign(y=data["y"] * np.array(scales)[k] + np.array(shifts)[k])
    moved = moved.sample(frac=1.0, random_state=seed)
    two = fit(ITEMS, moved, variable="test", method=method)
    tolerance = 1e-9 if method == "anova" else 2e-4  # a flat likelihood ends within its tolerance
    for term in one.terms:
        units = np.outer(scales, scales)
        a, b = one.matrix(term).to_numpy(), two.matrix(term).to_numpy() / units
        np.testing.assert_allclose(b, a, atol=tolerance * max(1.0, data["y"].var()))


@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 10_000), v=st.integers(2, 4), n_p=st.integers(3, 7))
def test_composites_are_variances(seed, v, n_p):
    """REML: w'Σw ≥ 0 for all weights; ANOVA of complete data: that of the weighted scores."""
    data = crossed(seed, n_p=n_p, n_i=6, v=v)
    left = " + ".join("abcd"[:v])
    w = np.random.default_rng(seed).normal(size=v)
    res = fit(f"{left} ~ (1|p) + (1|i)", data)
    assert (res.composite(w).components.values >= -1e-12).all()
    closed = fit(f"{left} ~ (1|p) + (1|i)", data, method="anova")
    z = data.assign(z=data[list("abcd"[:v])].to_numpy() @ w)
    alone = vcomp.fit("z ~ (1|p) + (1|i)", z, method="anova")
    np.testing.assert_allclose(closed.composite(w).components.values, alone.vcomp, rtol=1e-8)


# Data -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [pl.from_pandas, lambda d: {c: d[c].to_numpy() for c in d}])
def test_containers(made):
    same(fit(), fit(WIDE, made(crossed(1))), rtol=1e-12)


def test_files_and_the_calling_scope(tmp_path):
    data = crossed(1)
    path = tmp_path / "scores.csv"
    data.to_csv(path, index=False)
    same(fit(), fit(WIDE, path), rtol=1e-9)
    a, b, c, p, i = (data[name].to_numpy() for name in ("a", "b", "c", "p", "i"))
    assert a.size == b.size == c.size == p.size == i.size
    same(fit(), vcomp.fit_multivariate(WIDE), rtol=1e-12)


def test_responses_and_expressions():
    data = crossed(1).rename(columns={"a": "first score"})
    res = fit("(1|p) + (1|i)", data, responses=["first score", "b", "c"])
    assert res.variables == ("first score", "b", "c")
    np.testing.assert_allclose(res.matrix("p"), fit().matrix("p"), rtol=1e-12)
    logged = fit("np.log(b**2) + c ~ (1|p) + (1|i)", data)
    assert logged.variables == ("np.log(b**2)", "c")


def test_independent_facets_by_labels_that_start_anew():
    data = specification(4, n_i=(3, 3, 3))
    anew = data.assign(i=data["i"] % 3)
    assert fit(ITEMS, anew, variable="test").links["i"].kind == "linked"
    res = fit(ITEMS, anew, variable="test", independent=["i"])
    assert res.links["i"].kind == "independent"
    same(fit(ITEMS, data, variable="test"), res, rtol=1e-9)


def test_wide_data_with_independent_items():
    """The same column of items, but each variable has its own: no row belongs together."""
    data = crossed(5, v=2)
    one = fit("a + b ~ (1|p) + (1|i)", data, independent=["i"], method="anova")
    long = long_of(data, "ab")
    long["i"] = long["test"] + long["i"].astype(str)
    two = fit(ITEMS, long, variable="test", method="anova")
    assert np.isnan(one.matrix("Residual").loc["a", "b"])
    same(one, two, rtol=1e-10)


def test_links_are_stated():
    res = fit(ITEMS, specification(1, n_i=(3, 5, 4), linked=True), variable="test")
    assert {f: link.kind for f, link in res.links.items()} == {"p": "linked", "i": "partly linked"}
    assert res.links["i"].levels == (3, 5, 4)
    assert res.links["i"].shared == 3
    text = str(fit(ITEMS, specification(1), variable="test"))
    assert "facets: p•, i°" in text
    assert "i°: independent, 3 + 4 + 5 levels of one variable each." in text


def test_missing_scores_are_said_and_others_of_the_row_used():
    data = crossed(1)
    data.loc[[0, 5], "a"] = np.nan
    with pytest.warns(VcompWarning, match="a lacks 2 of 40 scores"):
        res = fit(WIDE, data)
    assert res.nobs == 118
    assert any("a lacks 2 of 40" in note for note in res.notes)
    with pytest.raises(DataError, match=r"variable 'a'.*2 of 40"):
        fit(WIDE, data, missing="raise")


def test_missing_scores_of_long_data_are_named_by_variable():
    data = specification(1)
    data.loc[data.index[data["test"] == "b"][:2], "y"] = np.nan
    n = int((data["test"] == "b").sum())
    with pytest.warns(VcompWarning, match=f"^b lacks 2 of {n} scores"):
        res = fit(ITEMS, data, variable="test")
    assert res.nobs == len(data) - 2
    data.loc[data["test"] == "b", "y"] = np.nan
    with pytest.raises(DataError, match="'b' has no scores: 'y' is missing in all its rows"):
        fit(ITEMS, data, variable="test")


def test_repeated_scores_of_a_cell():
    data = pd.concat([specification(1, linked=True, n_i=(4, 4, 4)) for _ in range(2)])
    data["y"] += np.random.default_rng(0).normal(size=len(data))
    res = fit("y ~ (1|p) + (1|i) + (1|p:i)", data, variable="test")
    assert np.isfinite(res.matrix("p:i").to_numpy()).all()
    assert np.isnan(res.matrix("Residual").loc["a", "b"])
    assert any("several scores" in note for note in res.notes)
    assert "replicate" in res.dstudy(i=4, replicate=2).table.columns


# What cannot be -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (FormulaError, "one dependent variable", lambda: fit("a ~ (1|p)")),
        (FormulaError, "on the left of ~", lambda: fit("~ (1|p) + (1|i)")),
        (FormulaError, "occurs twice", lambda: fit("a + a ~ (1|p) + (1|i)")),
        (FormulaError, "cannot read the left", lambda: fit("a + + ~ (1|p)")),
        (FormulaError, "the first argument, must be text .*, not int", lambda: fit(3)),
        (FormulaError, "mean of each; leave out p", lambda: fit("a + b ~ p + (1|i)")),
        (FormulaError, "given twice", lambda: fit(WIDE, responses=["a", "b"])),
        (FormulaError, "list of columns", lambda: fit("(1|p)", responses="ab")),
        (FormulaError, "is empty", lambda: fit("(1|p)", responses=[])),
        (DataError, "did you mean 'b'", lambda: fit("a + bb ~ (1|p)")),
        (DataError, "no column 'q'", lambda: fit("a + b ~ (1|q)")),
        (DataError, "variable 'b'.*not numeric", lambda: fit(data=crossed(1).assign(b="x"))),
        (DataError, "'b' has no scores", lambda: fit(data=crossed(1).assign(b=np.nan))),
        (DataError, "'b'.*infinite", lambda: fit(data=crossed(1).assign(b=np.inf))),
        (DataError, "no rows", lambda: fit(data=crossed(1).iloc[:0])),
        (DesignError, "variable 'a'.*one level", lambda: fit(data=crossed(1, n_p=1))),
        (DesignError, "not a facet; facets are p, i", lambda: fit(independent=["j"])),
        (DesignError, "a facet or a list of facets, not 5", lambda: fit(independent=5)),
        (FormulaError, "a list of columns, not 5", lambda: fit("~ (1|p)", responses=5)),
        (EstimationError, "did you mean 'reml'", lambda: fit(method="rmel")),
        (EstimationError, "max_iter", lambda: fit(max_iter=0)),
        (EstimationError, "max_iter", lambda: fit(max_iter=True)),
        *((EstimationError, "tol", partial(fit, tol=x)) for x in (0.0, 1.0, True, "1e-9")),
        (EstimationError, "unknown term 'q'", lambda: fit().matrix("q")),
    ],
)
def test_mistakes_are_named(error, words, call):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize(
    ("error", "words", "formula", "options"),
    [
        (DataError, "did you mean 'test'", ITEMS, {"variable": "tst"}),
        (DesignError, "not a facet of them", "y ~ (1|p) + (1|test)", {"variable": "test"}),
        (DataError, "'y' names the column of the scores", ITEMS, {"variable": "y"}),
        (FormulaError, "has 2 responses", "y + z ~ (1|p)", {"variable": "test"}),
        (EstimationError, "needs all variables", ITEMS, {"variable": "test", "method": "type1"}),
    ],
)
def test_mistakes_with_long_data(error, words, formula, options):
    with pytest.raises(error, match=words):
        fit(formula, specification(1), **options)


def test_a_single_step_may_be_requested():
    with pytest.warns(VcompWarning, match="Not converged"):
        assert not fit(max_iter=1).converged


def test_a_single_variable_is_sent_to_fit():
    data = specification(1)
    with pytest.raises(DataError, match=r"use vcomp\.fit"):
        fit(ITEMS, data[data["test"] == "a"], variable="test")


def test_facets_that_stand_differently():
    nested = specification(1, n_p=6, n_i=(6, 6))
    nested = pd.concat([nested, nested.assign(y=nested["y"] + 1.0)])
    here = nested["test"] == "a"
    nested.loc[here, "i"] = nested.loc[here, "p"] * 10 + nested.loc[here, "i"]
    with pytest.raises(DesignError, match="not the same for all variables: i is nested in p"):
        fit(ITEMS, nested, variable="test")


@pytest.mark.parametrize("rows", [slice(None), slice(1, None)], ids=["balanced", "not balanced"])
def test_variables_that_are_the_same(rows):
    data = crossed(1, n_p=5, n_i=4).assign(d=lambda f: 2.0 * f["a"] + 1.0).iloc[rows]
    with pytest.raises(EstimationError, match="the likelihood has no maximum"):
        fit("a + d ~ (1|p) + (1|i)", data)
    closed = fit("a + d ~ (1|p) + (1|i)", data, method="anova")
    np.testing.assert_allclose(closed.correlations("Residual"), 1.0, rtol=1e-10)


@pytest.mark.parametrize("rows", [slice(None), slice(1, None)], ids=["balanced", "not balanced"])
def test_constant_variables(rows):
    data = crossed(1).assign(d=1.0).iloc[rows]
    with pytest.raises(EstimationError, match="'d'"):
        fit("a + d ~ (1|p) + (1|i)", data)
    closed = fit("a + d ~ (1|p) + (1|i)", data, method="anova")
    assert not np.array([closed.matrix(t).loc["d"] for t in closed.terms]).any()


def test_what_has_not_converged_says_so():
    with pytest.warns(VcompWarning, match="Not converged after 1 step:"):
        res = fit(data=crossed(1).iloc[1:], max_iter=1)
    assert not res.converged
    assert "NOT CONVERGED" in str(res)


def test_matrices_that_are_no_covariance_matrices_are_named():
    res = fit(data=crossed(12, n_p=3, n_i=6), method="anova")
    smallest = [np.linalg.eigvalsh(res.matrix(t))[0] for t in res.terms]
    named = res.status.partition("the matri")[2].partition("not positive")[0]
    for term, least in zip(res.terms, smallest, strict=True):
        assert (term in named) == (least < 0)


@pytest.mark.parametrize(
    ("zeros", "rank", "words"),
    [
        ([], 3, "Converged."),
        ([0], 2, "Converged: σ²(p) of a at the bound 0."),
        ([0], 1, "Converged: σ²(p) of a at the bound 0; Σ(p) has rank 1 of 3."),
        ([0, 1, 2], 0, "Converged: σ²(p) at the bound 0."),
        ([], 2, "Converged: Σ(p) has rank 2 of 3."),
    ],
)
def test_variances_of_zero_are_no_lower_rank(zeros, rank, words):
    S = np.eye(3)
    S[zeros] = 0.0
    layout = SimpleNamespace(n_variables=3, names=["p"], scores=SimpleNamespace(variables="abc"))
    end = SimpleNamespace(converged=True, S=[S], ranks=[rank], drops=())
    assert _status(layout, end).partition(" A matrix")[0] == words


@pytest.mark.parametrize(
    ("least", "other", "words"),
    [
        (0.5, 0.5, ""),
        (-1e-13, -1e-13, ""),  # rounding
        (-1e-11, 0.5, "; the matrix of p is not positive semidefinite"),
        (0.5, -0.2, "; the matrix of i is not positive semidefinite"),
        (-0.2, -0.2, "; the matrices of p, i are not positive semidefinite"),
    ],
)
def test_matrices_that_are_indefinite_are_named(least, other, words):
    """In the units of the variables, of which some may have no covariance."""
    scale = np.array([1e-3, 1.0, 1e4])
    S = np.zeros((3, 3, 3))
    for t, value in enumerate((least, other, 0.5)):
        S[t] = np.diag([1.0, value, 0.5])
    S[0, 0, 1] = S[0, 1, 0] = 1e-7 * least
    linked = np.array([np.ones((3, 3)), np.eye(3), np.eye(3)]).astype(bool)
    values = np.where(linked, S * np.outer(scale, scale), np.nan)
    layout = SimpleNamespace(names=["p", "i", "Residual"], linked=linked, scale=scale)
    assert _indefinite(layout, values).partition(" (a")[0] == words


@pytest.mark.parametrize(
    ("drops", "words"),
    [((), ""), ((2.1,), ""), ((2.0, 5.0), "only 2 lower"), ((0.25,), "only 0.25 lower")],
)
def test_another_maximum_is_named_if_it_is_near(drops, words):
    layout = SimpleNamespace(n_variables=2, names=["p"], scores=SimpleNamespace(variables="ab"))
    for rank in (2, 1):
        end = SimpleNamespace(converged=True, S=[np.eye(2)], ranks=[rank], drops=drops)
        status = _status(layout, end)
        assert ("Another maximum" in status) == bool(words)
        assert words in status
        assert ("A matrix without full rank" in status) == (rank == 1)


@pytest.mark.parametrize("rank", [0, 2, 4])
@pytest.mark.parametrize("curved", [True, False])
def test_errors_are_of_the_observed_information_where_it_is_positive(rank, curved):
    """Else of the average one; in the directions that the ranks of the matrices leave."""
    rng = np.random.default_rng(rank)
    half = rng.normal(size=(2, 4, 9))
    average, observed = half @ half.transpose(0, 2, 1)
    if not curved:
        observed = observed - 100.0 * np.eye(4)
    known = {"average": average, "observed": observed}
    likelihood = SimpleNamespace(information=lambda _, kind: known[kind])
    tangent = 1e-7 * rng.normal(size=(4, 7))
    tangent[rank:] = 0.0
    end = SimpleNamespace(S=None, tangent=tangent[:, : 7 if rank else 0])
    back = np.diag([1.0, 10.0, 1e-3, 5.0])
    found = covariance_in_cone(likelihood, end, "observed", back)
    expected = np.full((4, 4), np.nan)
    used = observed if curved else average
    inside = np.linalg.inv(used[:rank, :rank]) if rank else np.zeros((0, 0))
    expected[:rank, :rank] = back[:rank, :rank] @ inside @ back[:rank, :rank]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_array_equal(found, found.T)


def test_errors_keep_a_rank_of_one():
    """The 2 × 2 minors of such a matrix are zero, and so are their variances to first order."""
    res = fit(data=crossed(0, n_p=5, n_i=4))
    assert "Σ(p) has rank 1 of 3; Σ(i) has rank 1 of 3" in res.status
    g = res._record.components
    place = {e: k for k, e in enumerate(g.elements)}
    for t in (0, 1):
        S = g.values[t]
        for a, b in ((0, 1), (0, 2), (1, 2)):
            at = [place[t, a, a], place[t, b, b], place[t, a, b]]
            slopes = np.array([S[b, b], S[a, a], -2.0 * S[a, b]])
            variance = slopes @ g.cov[np.ix_(at, at)] @ slopes
            size = np.abs(slopes) @ np.abs(g.cov[np.ix_(at, at)]) @ np.abs(slopes)
            assert size > 0.0
            assert abs(variance) < 1e-9 * size
    directions = 2 * 3 + 6  # those of two vectors and of a matrix of full rank
    unit = np.sqrt(np.diagonal(g.cov))
    values = np.linalg.eigvalsh(g.cov / np.outer(unit, unit))
    assert (values > 1e-9 * values[-1]).sum() == directions

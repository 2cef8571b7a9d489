"""Eτ and Eτ_AP of fits with several random facets."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

import vcomp
from vcomp.exceptions import DataError, PlanError
from vcomp.inference import VarianceComponents
from vcomp.ir.measures import Tau
from vcomp.ir.rank import ErrorEffect, FacetedDifferences, RankOptions
from vcomp.ir.rank.correlation import RankCorrelation
from vcomp.ir.rank.correlation_tables import correlation_columns
from vcomp.model.ranked_fit import _spreads

CROSSED = "score ~ (1|s) + (1|t) + (1|a) + (1|s:t) + (1|s:a) + (1|t:a)"


def scores(rng, k=6, n=12, a=3, r=1):
    """Return normal scores of k systems by n topics and a assessors, r a cell."""
    s, t, j, w = np.indices((k, n, a, r)).reshape(4, -1)
    unit = rng.normal
    y = unit(size=k)[s] / 2 + unit(size=n)[t] + unit(size=a)[j] / 4 + unit(size=(k, n))[s, t] / 2
    y += unit(size=(k, a))[s, j] / 4 + unit(size=(n, a))[t, j] / 2
    y += unit(size=s.size) * (0.3 + 0.1 * s)
    names = np.array([f"run{c}" for c in "dbcafe"])[s]
    return pd.DataFrame({"s": names, "t": t, "a": j, "r": w, "score": y})


@pytest.fixture(scope="module")
def frame():
    return scores(np.random.default_rng(2))


@pytest.fixture(scope="module")
def res(frame):
    return vcomp.fit(CROSSED, frame, method="anova")


def both(res, **given):
    return [res.expected_tau(**given), res.expected_tau(variant="ap", **given)]


@pytest.mark.parametrize("estimator", ["shrunken", "urbano"])
def test_two_facets_are_a_special_case(frame, estimator):
    one = frame.query("a == 1")
    res = vcomp.fit("score ~ (1|s) + (1|t)", one, method="anova")
    for given in ({}, {"t": [5, 80]}):
        options = given | {"estimator": estimator, "interval": "independent"}
        for general, usual in zip(both(res, design="s x t", **options), both(res, **options),
                                  strict=True):  # fmt: skip
            columns = ["estimate", "variance", "low", "high"]
            # Covariances of the general case come from a decomposition of the same products.
            np.testing.assert_allclose(general[columns], usual[columns], rtol=1e-9)


def by_hand(frame, error, ap=False):
    """Return the published estimate with σ²(δ) given, from the definition of the pattern."""
    cube = frame.pivot(index=["t", "a"], columns="s", values="score")
    cube = cube[cube.mean().sort_values(ascending=False).index]
    k = cube.shape[1]
    z = cube.sub(cube.mean(axis=1), axis=0)
    z -= z.mean()
    S = np.zeros((k, k))
    for part, by in error["parts"]:
        of = z.groupby(level=by).mean().to_numpy() if by else z.to_numpy()
        products, df = of.T @ of, len(of) - 1
        S += part * df / (df + k - 1) * products / np.trace(products)
    i, j = np.triu_indices(k, 1)
    pair = np.diag(S)[i] + np.diag(S)[j] - 2 * S[i, j]
    pair *= 2 * error["variance"] / pair.mean()
    means = cube.mean().to_numpy()
    w = ndtr(-(means[i] - means[j]) / np.sqrt(pair))
    weights = 1 / (j * (k - 1)) if ap else np.full(w.size, 2 / (k * (k - 1)))
    return 1 - 2 * weights @ w


@pytest.mark.parametrize("fixed", [(), ("a",)], ids=["random", "assessors fixed"])
def test_the_published_estimate_by_hand(frame, res, fixed):
    v = res.vcomp.clip(lower=0)

    def parts(n, a):
        found = [(v["s:t"] / n, ["t"]), (v["Residual"] / (n * a), [])]
        return found if fixed else [*found, (v["s:a"] / a, ["a"])]

    own = parts(12, 3)
    for n, a in ((12, 3), (40, 3), (40, 8)):
        if fixed and a != 3:
            continue
        error = {"parts": own, "variance": sum(p for p, _ in parts(n, a))}
        made = both(res, t=n, a=a, fixed=fixed, estimator="urbano")
        for ap, table in enumerate(made):
            assert table["estimate"].item() == pytest.approx(by_hand(frame, error, ap), rel=1e-10)
            assert table[["t", "a"]].to_numpy().tolist() == [[n, a]]
            assert table["estimator"].item() == "urbano"
    study = res.dstudy(t=40, a=3, fixed=fixed, object="s")
    error = sum(p for p, _ in parts(40, 3))
    assert study.table["rel_err_var"].item() == pytest.approx(error, rel=1e-12)


def test_it_rises_with_all_facets_and_only_to_one_with_both(res):
    grid = res.expected_tau(t=[10, 100, 10**9], a=[2, 20, 10**9], estimator="urbano")
    values = grid["estimate"].to_numpy().reshape(3, 3)
    assert (np.diff(values, axis=0) > 0).all()
    assert (np.diff(values, axis=1) > 0).all()
    assert values[2, 2] == pytest.approx(1.0, abs=1e-6)
    assert values[2, 0] < 0.999


def test_numbers_do_not_depend_on_units_and_order(frame, res):
    other = frame.sample(frac=1.0, random_state=3).assign(score=lambda d: 1e3 - 40 * d["score"])
    again = vcomp.fit(CROSSED, other, method="anova")
    flipped = frame.assign(score=-frame["score"])
    same = vcomp.fit(CROSSED, flipped, method="anova")
    options = {"t": [5, 80], "a": 2, "draws": 300}
    pd.testing.assert_frame_equal(
        again.expected_tau(**options), same.expected_tau(**options), rtol=1e-6
    )
    np.testing.assert_allclose(
        again.expected_tau(**options)["estimate"], res.expected_tau(**options)["estimate"],
        rtol=1e-9,
    )  # fmt: skip


def test_intervals_contain_the_estimate_and_those_of_the_expectation_are_shorter(res):
    for table in both(res, t=[12, 60], a=[3, 9]):
        assert (table["low"] < table["estimate"]).all()
        assert (table["estimate"] < table["high"]).all()
    test, expectation = (
        res.expected_tau(t=60, a=9, target=target).iloc[0] for target in ("test", "expectation")
    )
    assert expectation["high"] - expectation["low"] < test["high"] - test["low"]


def test_means_of_missing_cells_are_least_squares():
    rng = np.random.default_rng(5)
    some = scores(rng).sample(frac=0.7, random_state=1)
    res = vcomp.fit(CROSSED, some)
    cell = pd.factorize(some["t"] * 10 + some["a"])[0]
    system, names = pd.factorize(some["s"], sort=True)
    made = FacetedDifferences.of(
        some["score"].to_numpy(), system, cell, names, [ErrorEffect(cell, 1.0)], 10.0
    )
    dummies = np.column_stack([np.eye(6)[system], np.eye(cell.max() + 1)[cell]])
    solved = np.linalg.lstsq(dummies, some["score"].to_numpy(), rcond=None)[0][:6]
    solved -= solved.mean()
    expected = [solved[names.get_loc(s)] for s in made.systems]
    np.testing.assert_allclose(made.centres, expected, atol=1e-12)
    assert made.systems == tuple(some.groupby("s")["score"].mean().sort_values().index[::-1])
    assert made.variances.mean() == pytest.approx(2.0, rel=1e-12)
    table = res.expected_tau(t=12, a=3, draws=100)
    assert 0.0 < table["low"].item() < table["estimate"].item() < 1.0


def test_runs_of_each_system_have_their_own_variances():
    """Replicates are nested in systems: errors do not covary, and systems differ in theirs."""
    y = np.array([0.0, 1.0, 3.0, 7.0, 2.0, 2.0, 5.0, 9.0])
    system = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    made = FacetedDifferences.of(
        np.concatenate([y, [1.0, 1.0, 1.0, 5.0]]), np.append(system, [2, 2, 2, 2]),
        np.zeros(12, dtype=np.int64), "abc", [ErrorEffect(None, 0.5)], 3.0,
    )  # fmt: skip
    own = {"a": y[:4].var(ddof=1), "b": y[4:].var(ddof=1), "c": 4.0}
    i, j = np.triu_indices(3, 1)
    pair = np.array([own[made.systems[p]] + own[made.systems[q]] for p, q in zip(i, j)])  # noqa: B905
    np.testing.assert_allclose(made.variances, 2.0 * pair / pair.mean(), rtol=1e-12)
    assert made.pattern_df == pytest.approx(3.0)


def test_replicates_have_a_size():
    frame = scores(np.random.default_rng(6), r=4).query("a == 0")
    res = vcomp.fit("score ~ (1|s) + (1|t) + (1|s:t)", frame)
    table = res.expected_tau(t=[12, 50], replicate=[1, 4], estimator="urbano")
    assert table.columns[:2].tolist() == ["t", "replicate"]
    assert table["estimate"].is_monotonic_increasing
    own = res.expected_tau(t=12, estimator="urbano")["estimate"].item()
    assert table.query("t == 12 and replicate == 4")["estimate"].item() == pytest.approx(
        own, abs=0.02
    )


def test_groups_may_be_a_facet():
    rng = np.random.default_rng(7)
    frame = scores(rng)
    frame["org"] = frame["s"].isin(["rund", "runb", "runc"]).map({True: "A", False: "B"})
    res = vcomp.fit("score ~ (1|org/s) + (1|t) + (1|a) + (1|org:s:t)", frame, method="anova")
    of = frame.groupby("s")["org"].first()
    for ap in (False, True):
        expected = res.expected_tau
        options = {"variant": "ap" if ap else "a", "object": "s", "t": 12, "a": 3, "draws": 200}
        by_name = expected(groups=lambda name: of[name.split(":")[-1]], **options)
        pd.testing.assert_frame_equal(expected(groups="org", **options), by_name)
    with pytest.raises(PlanError, match="has to be a facet that 'org:s' is nested in"):
        res.expected_tau(object="s", t=12, groups="t")


def test_errors_drawn_have_the_variance_of_the_plan(res, frame):
    rng = np.random.default_rng(0)
    cell = (frame["t"] * 3 + frame["a"]).to_numpy()
    system, names = pd.factorize(frame["s"])
    effects = [
        ErrorEffect(frame["t"].to_numpy(), 0.03),
        ErrorEffect(frame["a"].to_numpy(), 0.01),
        ErrorEffect(cell, 0.02),
    ]
    made = FacetedDifferences.of(frame["score"].to_numpy(), system, cell, names, effects, 1e9)
    own, new, scales = made.drawn_errors(40_000, rng, rng.standard_normal(40_000))
    i, j = np.triu_indices(6, 1)
    # Lengths of errors are stretched by up to mean_error_ratio, whose square is taken out.
    ratio = np.mean(scales**2)
    pair = ((own[:, i] - own[:, j]) ** 2).mean() / ratio
    assert pair == pytest.approx(2 * 0.06, rel=0.02)
    assert ((new[:, i] - new[:, j]) ** 2).mean() == pytest.approx(2.0, rel=0.02)


def test_error_variances_of_plans_vary_as_the_mean_squares_behind_them():
    """3 assessors are few: the error of plans with more topics is known less well."""
    ms, df = np.array([3.0, 2.0, 0.6]), np.array([11 * 5, 2 * 5, 22 * 5])  # st, sa, sta
    values = np.append(np.array([ms[0] - ms[2], ms[1] - ms[2]]) / [3, 12], ms[2])
    weights = np.array([[1 / n, 1 / 3, 1 / (3 * n)] for n in (12, 6, 1200)])
    to_ms = np.array([[1 / 3, 0, -1 / 3], [0, 1 / 12, -1 / 12], [0, 0, 1]])
    names = ("s:t", "s:a", "Residual")
    facets = tuple(map(frozenset, ("st", "sa", "sta")))
    cov = to_ms @ np.diag(2 * ms**2 / df) @ to_ms.T
    components = VarianceComponents(names, facets, values, cov)
    variance_df, loadings = _spreads(weights, components, 6)
    rng = np.random.default_rng(1)
    drawn = (rng.chisquare(df, (400_000, 3)) / df * ms) @ (weights @ to_ms).T
    C = np.cov(drawn / (weights @ values), rowvar=False)
    own = np.array([np.sqrt(2 / variance_df), 0.0])
    rows = np.vstack([own, loadings]) / np.sqrt(5)
    found = rows @ rows.T  # Monte Carlo error: 0.5 %
    np.testing.assert_allclose(found[0], C[0], rtol=0.02)
    np.testing.assert_allclose(np.diag(found), np.diag(C), rtol=0.02)
    assert C[2, 2] > 1.5 * C[0, 0] > 2 * C[1, 1]
    # Two systems differ in one degree, for which loadings are given.
    df_of_two, of_one = _spreads(weights, components, 2)
    assert df_of_two == pytest.approx(5 * variance_df, rel=1e-12)
    np.testing.assert_allclose(np.sqrt(5) * of_one, loadings, rtol=1e-12)


@pytest.mark.parametrize("cov", [np.zeros((2, 2)), None])
def test_error_variances_without_sampling_variance_are_known(cov):
    names, facets = ("s:t", "Residual"), (frozenset("st"), frozenset("str"))
    components = VarianceComponents(names, facets, np.array([2.0, 1.0]), cov)
    df, loadings = _spreads(np.array([[0.5, 0.5], [0.1, 0.1], [0.3, 0.1]]), components, 6)
    assert df == np.inf
    np.testing.assert_array_equal(loadings, np.zeros((2, 2)))


def test_scales_of_plans_vary_together(frame):
    y, t = frame["score"].to_numpy(), frame["t"].to_numpy()
    system, names = pd.factorize(frame["s"])
    loadings = np.array([[0.4, 0.0], [0.3, 0.5]])
    pairs = FacetedDifferences.of(
        y, system, t, names, [ErrorEffect(t, 0.1)], 15.0, loadings=loadings
    )
    rng = np.random.default_rng(0)
    share = rng.standard_normal(200_000)
    scales = pairs.drawn_errors(200_000, rng, share)[2]
    expected = pairs.loadings @ pairs.loadings.T / pairs.df
    np.testing.assert_allclose(np.cov(2 * np.log(scales)), expected, rtol=0.02)
    # The share of error is c²/F times a mean square: log c² is a part of its logarithm.
    rng = np.random.default_rng(1)
    squares = rng.standard_normal((2, 200_000)) * np.sqrt(
        2 / np.array([[15 * pairs.df], [pairs.df]])
    )
    together = np.corrcoef(squares[0], squares.sum(axis=0))[0, 1]
    assert np.corrcoef(share, np.log(scales[0]))[0, 1] == pytest.approx(together, abs=0.01)


def test_simulated_tests_have_that_correlation():
    """A small version of benchmarks/rank_facets: topics × assessors, normal scores."""
    k, n, a, found = 20, 20, 4, []
    st, sa, sta = 0.5, 0.05, 0.5
    cell = np.repeat(np.arange(n * a), k)
    system = np.tile(np.arange(k), n * a)
    for trial in range(40):
        rng = np.random.default_rng([9, trial])
        truth = np.sqrt(0.15) * rng.normal(size=k)
        y = truth + rng.normal(size=(n, 1, 1)) + np.sqrt(st) * rng.normal(size=(n, 1, k))
        y = (
            y
            + np.sqrt(sa) * rng.normal(size=(1, a, k))
            + np.sqrt(sta) * rng.normal(size=(n, a, k))
        )
        errors = [
            ErrorEffect(cell // a, st / n), ErrorEffect(cell % a, sa / a),
            ErrorEffect(cell, sta / (n * a)),
        ]  # fmt: skip
        pairs = FacetedDifferences.of(y.ravel(), system, cell, range(k), errors, 15.0)
        row = correlation_columns(
            pairs, np.array([1.0 / pairs.error_variance]), RankOptions(draws=200),
            RankCorrelation("a"), at_hand=True,
        )  # fmt: skip
        tau = Tau(variant="a").actual(y.reshape(-1, k), truth)
        found.append((row["estimate"][0] - tau, row["low"][0] <= tau <= row["high"][0]))
    error, covered = np.array(found).T
    assert abs(error.mean()) < 0.01 + 3 * error.std() / np.sqrt(40)
    assert covered.mean() >= 0.85  # 95 %, less three standard errors


@pytest.mark.parametrize("ranked", ["s", "t"])
def test_what_is_ranked_may_be_named(frame, ranked):
    """Of two facets the other one is sampled, and its size says the same."""
    res = vcomp.fit("score ~ (1|s) + (1|t)", frame)
    (sampled,) = {"s", "t"} - {ranked}
    n = {sampled: frame[sampled].nunique()}
    found = res.expected_tau(**n)
    assert found.equals(res.expected_tau(object=ranked, **n))
    assert found["estimate"].equals(res.expected_tau(object=ranked)["estimate"])
    with pytest.raises(PlanError, match=r"there is no facet 'system'.* the facets are "):
        res.expected_tau(object="system")


def test_mistakes(frame, res):
    with pytest.raises(PlanError, match="'a' is fixed, so that the true ranking is by its 3"):
        res.expected_tau(t=50, a=5, fixed="a")
    of_two = vcomp.fit("score ~ (1|s) + (1|t)", frame)
    with pytest.raises(PlanError, match="the object of measurement is not clear"):
        of_two.expected_tau(t=50, s=5)
    with pytest.raises(PlanError, match="unknown facet 'topics'"):
        res.expected_tau(topics=50)
    with pytest.raises(PlanError, match="must be a positive"):
        res.expected_tau(t=0)
    with pytest.raises(PlanError, match="variant must be"):
        res.expected_tau(t=5, variant="c")
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    with pytest.raises(DataError, match="loaded without its rows"):
        loaded.expected_tau(t=5)
    covariate = frame.assign(x=frame["t"] % 3)
    with_x = vcomp.fit("score ~ x + (1|s) + (1|t) + (1|a)", covariate)
    with pytest.raises(PlanError, match="without covariates, and this one has Intercept, x"):
        with_x.expected_tau(t=5, a=2)
    apart = frame[(frame["s"] < "rund") == (frame["t"] < 6)]
    broken = vcomp.fit("score ~ (1|s) + (1|t) + (1|a)", apart)
    with pytest.raises(DataError, match="are not connected by cells"):
        broken.expected_tau(t=5)

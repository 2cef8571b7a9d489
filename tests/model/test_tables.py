"""The tables of a fit beside each other, and information criteria by dense likelihoods."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats

import vcomp
from vcomp.exceptions import EstimationError
from vcomp.inference.quantities import Quantities
from vcomp.model.profiling import _alike, _of_multiple
from vcomp.model.record import _compact, _folded, _mean_of_cells, _spread


def scores(seed=3, missing=True):
    rng = np.random.default_rng(seed)
    a, b = np.indices((8, 5)).reshape(2, -1)
    x = rng.normal(size=a.size)
    y = 5 + 0.7 * x + rng.normal(size=8)[a] + 0.5 * rng.normal(size=5)[b]
    y = y + 0.6 * rng.normal(size=a.size)
    kept = np.arange(a.size) % 11 > 0 if missing else np.ones(a.size, dtype=bool)
    return {"a": a[kept], "b": b[kept], "x": x[kept], "y": y[kept]}


@pytest.mark.parametrize("method", ["anova", "reml"])
def test_components_of_equal_scores_have_no_standard_error(method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        res = vcomp.fit("y ~ (1|a) + (1|b)", scores() | {"y": np.ones(36)}, method=method)
    assert res.vcomp.tolist() == [0.0] * 3
    assert res.bse_vcomp.isna().all()


def dense(data, v, reml):
    """Return the log-likelihood and generalised least squares of y ~ x at components."""
    n = data["y"].size
    V = v[2] * np.eye(n)
    for name, variance in zip("ab", v, strict=False):
        V += variance * (data[name][:, None] == data[name])
    X = np.column_stack([np.ones(n), data["x"]])
    W = np.linalg.solve(V, X)
    information = X.T @ W
    beta = np.linalg.solve(information, W.T @ data["y"])
    e = data["y"] - X @ beta
    deviance = np.linalg.slogdet(V)[1] + e @ np.linalg.solve(V, e)
    free = n
    if reml:
        deviance, free = deviance + np.linalg.slogdet(information)[1], n - 2
    return -0.5 * (deviance + free * np.log(2 * np.pi)), beta, np.linalg.inv(information)


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("hold", [{}, {"b": 0.3}])
def test_criteria_and_tables(method, hold):
    data = scores()
    res = vcomp.fit("y ~ x + (1|a) + (1|b)", data, method=method, hold=hold)
    v, n = res.vcomp.to_numpy(), data["y"].size
    llf, beta, cov = dense(data, v, method == "reml")
    assert res.llf == pytest.approx(llf, rel=1e-9)
    npar = 2 + 3 - len(hold)
    assert res.aic == pytest.approx(-2 * llf + 2 * npar, rel=1e-9)
    assert res.bic == pytest.approx(-2 * llf + np.log(n) * npar, rel=1e-9)
    glance = res.glance().iloc[0]
    assert (glance["method"], glance["nobs"], glance["df_resid"]) == (method, n, n - 2)
    assert (glance["llf"], glance["aic"], glance["bic"]) == (res.llf, res.aic, res.bic)
    assert glance["converged"]
    params = res.params
    assert params.index.tolist() == ["Intercept", "x", "var(a)", "var(b)", "var(Residual)"]
    np.testing.assert_allclose(params, [*beta, *v], rtol=1e-8)
    covariance = res.cov_params()
    np.testing.assert_allclose(covariance.iloc[:2, :2], cov, rtol=1e-7)
    assert (covariance.iloc[:2, 2:] == 0.0).all(axis=None)
    tidy = res.tidy()
    assert tidy["term"].tolist() == ["Intercept", "x", "a", "b", "Residual"]
    assert tidy["kind"].tolist() == ["fixed"] * 2 + ["variance"] * 3
    np.testing.assert_array_equal(tidy["estimate"], params)
    np.testing.assert_allclose(tidy["std_error"][:2], np.sqrt(np.diagonal(cov)), rtol=1e-7)
    ends = res.conf_int()
    np.testing.assert_array_equal(tidy[["conf_low", "conf_high"]], ends)
    study = res.gstudy()
    np.testing.assert_array_equal(study["estimate"], v)
    np.testing.assert_array_equal(study["se"], tidy["std_error"][2:])
    np.testing.assert_array_equal(study[["low", "high"]], ends.iloc[2:])
    np.testing.assert_allclose(study["percent"], 100 * v / v.sum(), rtol=1e-14)
    held = study.index.isin(list(hold))
    assert study.loc[held, ["se", "low", "high"]].isna().all(axis=None)
    assert study.loc[~held, ["se", "low", "high"]].notna().all(axis=None)
    assert "mc_error" not in study


def test_shares_of_variance():
    rng = np.random.default_rng(1)
    e = rng.normal(size=(8, 5))
    e -= e.mean(axis=1, keepdims=True)
    a, b = np.indices((8, 5)).reshape(2, -1)
    res = vcomp.fit("y ~ (1|a) + (1|b)", {"a": a, "b": b, "y": e.ravel()}, method="anova")
    v = res.vcomp
    assert v["a"] < 0.0
    positive = v.clip(lower=0.0)
    np.testing.assert_allclose(res.gstudy()["percent"], 100 * positive / positive.sum())
    alone = vcomp.fit("y ~ (1|a)", {"a": a, "y": e.ravel()})
    assert alone.vcomp["a"] == 0.0
    assert alone.gstudy()["percent"].tolist() == [0.0, 100.0]


def test_without_variance_there_are_no_shares():
    a, b = np.indices((4, 5)).reshape(2, -1)
    for y in (np.zeros(20), np.full(20, 7.5)):
        with pytest.warns(vcomp.VcompWarning, match="response is constant"):
            res = vcomp.fit("y ~ (1|a) + (1|b)", {"a": a, "b": b, "y": y})
        table = res.gstudy()
        assert (table["estimate"] == 0.0).all()
        assert table["percent"].isna().all()


def test_missing_numbers_have_their_reason():
    rng = np.random.default_rng(1)
    e = rng.normal(size=(8, 5))
    e -= e.mean(axis=1, keepdims=True)
    a, b = np.indices((8, 5)).reshape(2, -1)
    data = {"a": a, "b": b, "y": e.ravel()}
    notes = vcomp.fit("y ~ (1|a) + (1|b)", data, hold={"b": 0.5}).gstudy()["note"]
    assert notes.to_dict() == {"a": "at bound 0", "b": "held", "Residual": ""}
    flat = {**data, "y": np.zeros(40)}
    with pytest.warns(vcomp.VcompWarning, match="response is constant"):
        nothing = vcomp.fit("y ~ (1|a) + (1|b)", flat).gstudy()["note"]
    assert set(nothing) == {"no variance"}
    assert "note" not in vcomp.fit("y ~ (1|b)", data | {"y": e.ravel() + b}).gstudy()


def test_a_negative_estimate_without_standard_error_is_not_at_a_bound():
    """Its variance, computed at negative estimates, is not positive."""
    rng = np.random.default_rng(5)
    p, i, _ = np.indices((8, 4, 3)).reshape(3, -1)
    e = rng.normal(size=(32, 3))
    e -= 0.9 * e.mean(axis=1, keepdims=True)
    y = rng.normal(size=8)[p] + e.ravel()
    kept = np.ones(96, dtype=bool)
    kept[rng.choice(96, 9, replace=False)] = False
    data = {"p": p[kept], "i": i[kept], "y": y[kept]}
    res = vcomp.fit("y ~ (1|p) + (1|i) + (1|p:i)", data, method="type1")
    assert res.vcomp["i"] < 0.0
    assert np.isnan(res.bse_vcomp["i"])
    assert res.gstudy().loc["i", "note"] == "se undefined"
    (note,) = [n for n in res.dstudy(object="p", negative="keep").notes if "no standard" in n]
    assert note.startswith("σ²(i) has no standard error, being of a sampling variance")


def test_the_analysis_of_variance():
    """Sums of squares of a complete table, and expectations with its sizes as coefficients."""
    data = scores(missing=False)
    y = data["y"].reshape(8, 5)
    res = vcomp.fit("y ~ (1|a) + (1|b)", data, method="anova")
    table = res.anova_table()
    rows, columns = y.mean(axis=1), y.mean(axis=0)
    rest = y - rows[:, None] - columns + y.mean()
    squares = [5 * ((rows - y.mean()) ** 2).sum(), 8 * ((columns - y.mean()) ** 2).sum(),
               (rest**2).sum()]  # fmt: skip
    assert table["df"].tolist() == [7, 4, 28]
    np.testing.assert_allclose(table["sum_sq"], squares, rtol=1e-10)
    np.testing.assert_allclose(table["mean_sq"], np.array(squares) / [7, 4, 28], rtol=1e-10)
    expected = table[["E[a]", "E[b]", "E[Residual]"]].to_numpy()
    np.testing.assert_allclose(expected, [[5, 0, 1], [0, 8, 1], [0, 0, 1]], atol=1e-9)
    F = table["mean_sq"]["a"] / table["mean_sq"]["Residual"]
    assert res.test("a", "f").p_value == pytest.approx(stats.f.sf(F, 7, 28), rel=1e-9)
    with pytest.raises(EstimationError, match="the fixed part is Intercept \\+ x"):
        vcomp.fit("y ~ x + (1|a) + (1|b)", data).anova_table()


def test_mean_squares_of_two_levels():
    y = np.random.default_rng(2).normal(size=(2, 6))
    a, b = np.indices(y.shape).reshape(2, -1)
    table = vcomp.fit("y ~ (1|a) + (1|b)", {"a": a, "b": b, "y": y.ravel()}).anova_table()
    assert table["df"].tolist() == [1, 5, 5]
    np.testing.assert_allclose(table["mean_sq"], table["sum_sq"] / [1, 5, 5], rtol=1e-14)
    between = 3 * (y[0].mean() - y[1].mean()) ** 2
    assert table["sum_sq"]["a"] == pytest.approx(between, rel=1e-10)


def test_covariances_of_components_by_their_names():
    res = vcomp.fit("y ~ x + (1|a) + (1|b)", scores())
    with pytest.raises(EstimationError, match="method 'reml' has no 'robust' covariance; it has"):
        res.cov_vcomp("robust")
    first = res.cov_vcomp()
    assert first.index.tolist() == first.columns.tolist() == ["a", "b", "Residual"]
    np.testing.assert_allclose(res.bse_vcomp, np.sqrt(np.diagonal(first)), rtol=1e-14)


DIRECTIONS = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.25], [0.0, -1.0, 1.0], [0.0, 0.0, 1.0]])
FACTORS = np.array([1.0, 2.0, 1 / 30, 0.4, 7.0])


def family(rng, form):
    """Return quantities in random order, and which of them are multiples of one."""
    of = rng.permutation(np.repeat(np.arange(3), 4))
    factors = rng.choice(FACTORS, of.size)
    if form == "linear":
        a = DIRECTIONS[of] * factors[:, None]
        return Quantities("linear", a), of
    if form == "root":
        a = np.abs(DIRECTIONS)[of] * factors[:, None]
        return Quantities("root", a), of
    # Universe score over error: the odds are multiplied.
    a = DIRECTIONS[np.zeros(of.size, dtype=int)] * rng.choice([1.0, 3.0], of.size)[:, None]
    b = np.abs(DIRECTIONS)[1:][of] * factors[:, None]
    return Quantities(form, a, b), of


@pytest.mark.parametrize("form", ["linear", "root", "ratio", "share"])
@pytest.mark.parametrize("seed", range(3))
def test_values_of_all_follow_from_those_of_one(form, seed):
    rng = np.random.default_rng(seed)
    q, of = family(rng, form)
    found = _alike(q)
    expected = {}
    for place, direction in enumerate(of.tolist()):
        expected.setdefault(direction, []).append(place)
    assert {first: list(alike) for first, alike in found.items()} == {
        places[0]: places for places in expected.values()
    }
    for _ in range(3):
        v = rng.uniform(0.1, 3.0, 3)
        values = q.values(v)
        for first, alike in found.items():
            assert alike[first] == 1.0
            for place, factor in alike.items():
                assert _of_multiple(values[first], form, factor) == pytest.approx(
                    values[place], rel=1e-12
                )


def test_ends_of_shares():
    assert _of_multiple(0.0, "share", 3.0) == 0.0
    assert _of_multiple(1.0, "share", 3.0) == 1.0
    assert _of_multiple(0.5, "share", 3.0) == 0.75
    assert _of_multiple(np.inf, "linear", 3.0) == np.inf
    assert _of_multiple(4.0, "root", 0.25) == 2.0


def test_a_sum_of_all_components_has_a_profile():
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
    found = res.quantity("total", interval="profile")
    assert found.low < found.estimate < found.high
    with_one = res.quantity("sys + topic + 2*Residual", interval="profile")
    assert with_one.low < with_one.estimate < with_one.high


def test_what_is_held_has_no_profile():
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", data, hold={"topic": 0.01})
    table = res.gstudy(interval="profile")
    assert table.loc["topic", ["low", "high"]].isna().all()
    assert table.loc[["sys", "Residual"], ["low", "high"]].notna().all(axis=None)
    source = res.interval_source("profile")
    of_held, mixed = np.array([[0.0, 1.0, 0.0]]), np.array([[0.0, 1.0, 1.0]])
    of_sum = source.limits(Quantities("linear", of_held), 0.05)
    assert np.isnan([of_sum.low, of_sum.high]).all()
    assert any("held components only" in note for note in of_sum.notes)
    # Coefficients of held components are known, as with limits from mean squares.
    ratio = source.limits(Quantities("ratio", of_held, of_held), 0.05)
    assert (ratio.low.item(), ratio.high.item(), ratio.notes) == (1.0, 1.0, ())
    estimated = source.limits(Quantities("ratio", of_held, mixed), 0.05)
    assert estimated.low.item() < estimated.high.item()


def test_weights_of_nothing_are_alike():
    q = Quantities("linear", np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]))
    assert _alike(q) == {0: {0: 1.0, 1: 1.0}, 2: {2: 1.0}, 3: {3: 1.0}}
    signed = Quantities("linear", np.array([[1.0, 0.0], [2.0, -0.0], [-0.0, 3.0]]))
    assert _alike(signed) == {0: {0: 1.0, 1: 2.0}, 2: {2: 1.0}}


@pytest.mark.parametrize("filled", [1, 14, 15, 16, 29, 30])
@pytest.mark.parametrize("alike", [True, False])
def test_cells_come_back_from_a_file(filled, alike):
    """With 30 cells: only the filled ones are stored if they are fewer than half."""
    rng = np.random.default_rng(filled)
    counts = np.zeros(30)
    places = rng.choice(30, filled, replace=False)
    counts[places] = 2.0 if alike else rng.integers(1, 9, filled)
    means = np.where(counts > 0.0, rng.normal(size=30), np.nan)
    counts, means = counts.reshape(5, 6), means.reshape(5, 6)
    folded, kept = _folded(means), _compact(counts)
    stored = folded
    if isinstance(folded, dict):
        stored = {name: array.tolist() for name, array in folded.items()}
    assert isinstance(folded, dict) == (filled < 15)
    cells = {"levels": [range(5), range(6)], "means": stored}
    np.testing.assert_array_equal(_mean_of_cells(stored, cells), means)
    np.testing.assert_array_equal(_spread(kept, cells), counts)
    one_number = (alike or filled == 1) and (filled < 15 or filled == 30)
    assert isinstance(kept, float) == one_number


def test_a_table_that_is_too_large_is_not_unfolded():
    cells = {"means": {"filled": [0], "values": [1.0]}}
    allowed = _mean_of_cells(cells["means"], {**cells, "levels": [range(1_000), range(1_000)]})
    assert allowed.shape == (1_000, 1_000)
    assert np.isnan(allowed).sum() == 999_999
    with pytest.raises(ValueError, match=r"a table of 1,000 × 1,001 cells"):
        _mean_of_cells(cells["means"], {**cells, "levels": [range(1_000), range(1_001)]})


@pytest.mark.parametrize("replicates", [1, 3])
def test_mean_squares_of_cell_means(replicates):
    rng = np.random.default_rng(replicates)
    n, k = 7, 4
    p, i, _ = np.indices((n, k, replicates)).reshape(3, -1)
    y = 100.0 + rng.normal(size=n)[p] + rng.normal(size=k)[i] + rng.normal(size=p.size)
    term = " + (1|p:i)" if replicates > 1 else ""
    res = vcomp.fit(f"y ~ (1|p) + (1|i){term}", {"p": p, "i": i, "y": y})
    found = vcomp.model.record_of(res).components.mean_squares
    means = np.array([[y[(p == a) & (i == b)].mean() for b in range(k)] for a in range(n)])
    rows, columns = means.mean(axis=1), means.mean(axis=0)
    rest = means - rows[:, None] - columns + means.mean()
    assert (found.rows, found.columns) == ("p", "i")
    assert (found.n_rows, found.n_columns, found.n_replicates) == (n, k, replicates)
    assert found.ms_rows == pytest.approx(k * rows.var(ddof=1), rel=1e-9)
    assert found.ms_columns == pytest.approx(n * columns.var(ddof=1), rel=1e-9)
    assert found.ms_residual == pytest.approx((rest**2).sum() / ((n - 1) * (k - 1)), rel=1e-9)
    if replicates > 1:  # without the interaction, cell means differ by error only
        without = vcomp.fit("y ~ (1|p) + (1|i)", {"p": p, "i": i, "y": y})
        assert vcomp.model.record_of(without).components.mean_squares is None
    for kept in (np.arange(y.size) > 0, (p > 0) | (i > 0)):  # a score less, and a cell less
        rows = {"p": p[kept], "i": i[kept], "y": y[kept]}
        some = vcomp.fit(f"y ~ (1|p) + (1|i){term}", rows)
        assert vcomp.model.record_of(some).components.mean_squares is None
    held = vcomp.fit(f"y ~ (1|p) + (1|i){term}", {"p": p, "i": i, "y": y}, hold={"i": 0.5})
    assert vcomp.model.record_of(held).components.mean_squares is None

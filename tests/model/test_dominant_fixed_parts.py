"""A fixed part that dwarfs the rest: its coefficients shift, and nothing else depends on it.

The likelihood, analysis of variance and MINQUE are functions of y − Xb for any b. So the results
for y + Xc are those for y, with coefficients shifted by c, up to the rounding of y + Xc itself:
ε |y + Xc|, relative to the standard deviation of the residual.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.exceptions import DataError

EPS = float(np.finfo(float).eps)
SHIFTS = [1e3, 1e9]


def _columns() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    h, k, g = (a.ravel() for a in np.indices((8, 5, 4)))
    x, m = rng.normal(size=160), rng.integers(0, 60, 160)
    e = rng.normal(size=8)[h] + 0.7 * rng.normal(size=5)[k] + 0.5 * rng.normal(size=(8, 5))[h, k]
    e = e + 0.6 * rng.normal(size=8)[h] * x + 0.8 * rng.normal(size=160)
    levels = {"h": h, "k": k, "g": g, "m": m}
    names = {name: [f"{name}{i}" for i in codes] for name, codes in levels.items()}
    rest = {"x": x, "w": rng.uniform(0.5, 2.0, 160), "o": rng.normal(size=160), "e": e}
    return pd.DataFrame({**names, **rest})


BALANCED = _columns()
UNBALANCED = BALANCED.drop(index=np.random.default_rng(4).choice(160, 23, replace=False))
BY = {
    "g": lambda data: data["g"].str[1:].astype(float),
    "m": lambda data: data["m"].str[1:].astype(float),
    "x": lambda data: data["x"],
    "x + g": lambda data: data["x"] + 3.0 * data["g"].str[1:].astype(float),
}


def shifted(data: pd.DataFrame, by: str, c: float) -> pd.DataFrame:
    return data.assign(y=data["e"] + c * BY[by](data))


def lost(data: pd.DataFrame) -> float:
    """Relative rounding of what the fixed part leaves of the scores."""
    return 4.0 * EPS * float(np.abs(data["y"]).max()) / 0.8


def assert_same(result, expected, data):
    """Values of size 1 agree up to what is lost, and to eleven digits of the arithmetic."""
    np.testing.assert_allclose(result, expected, rtol=2e-11 + lost(data), atol=2e-11 + lost(data))


def components(formula, by, data, **options):
    """Yield components for shifted scores, for those that are not, and the shifted data."""
    plain = vcomp.fit(formula, shifted(data, by, 0.0), **options).vcomp
    for c in SHIFTS:
        far = shifted(data, by, c)
        yield vcomp.fit(formula, far, **options).vcomp, plain, far


MODELS = {
    "y ~ g + (1|h)": "g",
    "y ~ g + (1|h) + (1|k) + (1|h:k)": "g",
    "y ~ g + (1|h/k)": "g",
    "y ~ m + (1|h)": "m",
    "y ~ 0 + g + (1|h) + (1|k)": "g",
    "y ~ x + g + (1|h) + (1|k)": "x + g",
}


@pytest.mark.parametrize("method", ["reml", "ml", "minque", "henderson3"])
@pytest.mark.parametrize("formula", MODELS)
def test_components_do_not_depend_on_the_fixed_part(formula, method):
    for data in (BALANCED, UNBALANCED):
        for found, plain, far in components(formula, MODELS[formula], data, method=method):
            assert_same(found, plain, far)


@pytest.mark.parametrize(
    ("formula", "by", "options"),
    [
        ("y ~ g + (1|h) + (1|k)", "g", {"weights": "w"}),
        ("y ~ g + (1|h) + (1|k)", "g", {"offset": "o"}),
        ("y ~ g + (1|h)", "g", {"residual": "g"}),
        ("y ~ x + (x|h)", "x", {}),
        ("y ~ x + g + (x||h)", "x + g", {"weights": "w"}),
        ("y ~ g + (1|h) + (1|k)", "g", {"engine": "levels"}),
        ("y ~ g + (1|h) + (1|k)", "g", {"engine": "blocked"}),
    ],
)
def test_other_models_and_engines(formula, by, options):
    for found, plain, far in components(formula, by, UNBALANCED, **options):
        assert_same(found, plain, far)


@pytest.mark.parametrize("method", ["reml", "henderson3"])
@pytest.mark.parametrize(
    ("formula", "by"),
    [
        ("y ~ g + (1|h)", "g"),
        ("y ~ x + g + (1|h) + (1|k)", "x + g"),
        ("y ~ 0 + g + (1|h) + (1|k)", "g"),
    ],
)
def test_rows_in_batches(formula, by, method):
    """Their cells hold rows with other values of x and g."""
    for data in (BALANCED, UNBALANCED):
        for found, plain, far in components(formula, by, data, method=method, stream=True):
            assert_same(found, plain, far)


@pytest.mark.parametrize(
    ("formula", "options"),
    [
        ("y ~ x + g + (1|h)", {"weights": "w"}),
        ("y ~ x + g + (x||h)", {}),
        ("y ~ x + g + (1|h)", {"residual": "g"}),
    ],
)
def test_other_models_of_rows_in_batches(formula, options):
    for found, plain, far in components(formula, "x + g", UNBALANCED, stream=True, **options):
        assert_same(found, plain, far)


def test_rows_in_batches_with_dependent_columns():
    """A column that is left out takes its share of what was subtracted with it."""
    formula, results = "y ~ x + z + g + (1|h)", []
    for c in (0.0, 1e6):
        far = shifted(UNBALANCED, "x + g", c)
        far["z"] = 2.0 * far["x"] + 3.0
        with pytest.warns(match="'z'|z is"):
            results.append(vcomp.fit(formula, far, stream=True))
    plain, found = results
    assert_same(found.vcomp, plain.vcomp, far)
    assert_same(found.fe_params - [0.0, 3e6, 6e6, 9e6, 1e6], plain.fe_params, far)


def test_rows_on_dask():
    dask = pytest.importorskip("dask.dataframe")
    data = shifted(UNBALANCED, "x + g", 0.0)
    plain = vcomp.fit("y ~ x + g + (1|h)", data).vcomp
    far = shifted(UNBALANCED, "x + g", 1e9)
    parts = dask.from_pandas(far, npartitions=3)
    assert_same(vcomp.fit("y ~ x + g + (1|h)", parts).vcomp, plain, far)


def test_sums_of_parts_refuse_what_they_lost():
    """Parts are summed before the fixed part of all is known; the advice is to fit the data."""
    few, far = shifted(BALANCED, "g", 1e2), shifted(BALANCED, "g", 1e5)
    formula = "y ~ g + (1|h)"
    plain = vcomp.fit(formula, shifted(BALANCED, "g", 0.0)).vcomp

    def summed(data):
        parts = [data[data["k"] <= "k2"], data[data["k"] > "k2"]]
        return sum(vcomp.accumulate(formula, part) for part in parts)

    np.testing.assert_allclose(summed(few).fit().vcomp, plain, rtol=1e-9)
    with pytest.raises(DataError, match="fit the data themselves, with stream=True"):
        summed(far).fit()
    assert_same(vcomp.fit(formula, far, stream=True).vcomp, plain, far)


# Results that contain the fixed part -------------------------------------------------------------


@pytest.fixture(scope="module", params=["balanced", "unbalanced"])
def pair(request):
    """Two fits, of scores and of shifted ones, and the shifts of the means of g."""
    data, c = {"balanced": BALANCED, "unbalanced": UNBALANCED}[request.param], 1e6
    fits = [
        vcomp.fit("y ~ g + (1|h) + (1|k)", shifted(data, "g", s), method="ml") for s in (0.0, c)
    ]
    return (*fits, shifted(data, "g", c), c * np.arange(4.0))


def test_fixed_effects_shift(pair):
    plain, found, far, shift = pair
    assert_same(found.fe_params - shift, plain.fe_params, far)
    assert_same(found.bse_fe, plain.bse_fe, far)
    assert_same(found.llf, plain.llf, far)
    assert_same(found.conf_int()[:4] - shift[:, None], plain.conf_int()[:4], far)
    found_ends, ends = (fit.profile("g[T.g2]").conf_int() for fit in (found, plain))
    # The profile stops within a millionth of the standard error.
    np.testing.assert_allclose(found_ends - shift[2], ends, atol=1e-6)


def test_predictions_shift(pair):
    plain, found, far, shift = pair
    by_row = shift[far["g"].str[1:].astype(int)]
    assert_same(found.fittedvalues - by_row, plain.fittedvalues, far)
    assert_same(found.resid, plain.resid, far)
    rows = pd.DataFrame({"g": ["g3"], "h": ["h1"], "k": ["k2"]})
    assert_same(found.predict(rows) - shift[3], plain.predict(rows), far)
    assert_same(found.simulate(2, rng=1) - by_row[:, None], plain.simulate(2, rng=1), far)
    for term in ("h", "k"):
        assert_same(found.random_effects[term], plain.random_effects[term], far)


def test_means_shift(pair):
    plain, found, far, shift = pair
    ours, theirs = (fit.marginal_means("g").table["mean"] for fit in (found, plain))
    assert_same(ours - shift, theirs, far)
    ours, theirs = (fit.compare_levels("h").means for fit in (found, plain))
    assert_same(ours - shift.mean(), theirs, far)
    loaded = vcomp.VarianceComponentsResults.from_json(found.to_json())
    assert_same(loaded.fe_params - shift, plain.fe_params, far)
    assert_same(loaded.compare_levels("h").means - shift.mean(), theirs, far)


def test_means_of_objects_are_those_of_their_scores(pair):
    plain, found, far, shift = pair
    ours, theirs = (fit.universe_scores("h") for fit in (found, plain))
    assert_same(ours["mean"], far.groupby("h")["y"].mean(), far)
    columns = ["universe_score"]
    by_row = shift[far["g"].str[1:].astype(int)]
    assert_same(ours[columns] - by_row.mean(), theirs[columns], far)


def test_refits_of_the_same_data(pair):
    plain, found, far, shift = pair
    ours, theirs = (fit.jackknife("h") for fit in (found, plain))
    assert_same(ours.values, theirs.values, far)
    assert_same(ours.beta - shift, theirs.beta, far)
    ours, theirs = (fit.bootstrap(3, rng=1) for fit in (found, plain))
    # Climbs from drawn data end within a millionth of the standard error.
    np.testing.assert_allclose(ours.values, theirs.values, atol=1e-6)
    np.testing.assert_allclose(ours.beta - shift, theirs.beta, atol=1e-6)


def test_the_variance_of_the_fixed_part(pair):
    _, found, far, shift = pair
    by_row = shift[far["g"].str[1:].astype(int)]
    # σ²_f / (σ²_f + the components), within a part in a million: the effects of g are of size 1
    expected = 1.0 - found.vcomp.sum() / (by_row.var(ddof=1) + found.vcomp.sum())
    assert found.r2()["marginal"] == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("stream", [False, True])
def test_intervals_and_tests_do_not_depend_on_the_fixed_part(stream):
    formula, plain = "y ~ x + g + (1|h)", shifted(UNBALANCED, "x + g", 0.0)
    far = shifted(UNBALANCED, "x + g", 1e6)
    theirs, ours = (vcomp.fit(formula, data, stream=stream) for data in (plain, far))
    for options in ({"cov_type": "robust"}, {"ddf": "kenward-roger"}):
        tables = (fit.fixed_effects(**options)["std_error"] for fit in (ours, theirs))
        assert_same(*tables, far)
    for interval in ("mls", "robust"):
        ends = (fit.conf_int(interval=interval)[-2:] for fit in (ours, theirs))
        assert_same(*ends, far)
    rows = far.head()
    assert_same(ours.predict(rows) - 1e6 * BY["x + g"](rows), theirs.predict(rows), far)


def test_factors_of_many_levels():
    """Their columns are sparse, and eliminated as those of a random term are."""
    rng = np.random.default_rng(0)
    m, h, x = rng.integers(0, 200, 900), rng.integers(0, 9, 900), rng.normal(size=900)
    e = rng.normal(size=9)[h] + rng.normal(size=900)
    data = pd.DataFrame({"m": [f"m{i:03}" for i in m], "h": h, "x": x, "y": e})
    plain = vcomp.fit("y ~ x + m + (1|h)", data)
    far = data.assign(y=e + 1e6 * (m % 7 + x))
    found = vcomp.fit("y ~ x + m + (1|h)", far)
    assert "sparse factor of the fixed factor" in found.engine
    assert_same(found.vcomp, plain.vcomp, far)
    assert_same(found.fe_params["x"] - 1e6, plain.fe_params["x"], far)


def test_diagnoses_are_the_same(pair):
    plain, found, *_ = pair
    assert str(found.diagnose(rng=1)) == str(plain.diagnose(rng=1))


# Exact fits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("method", ["henderson3", "minque"])
def test_a_fixed_part_that_leaves_rounding_error_fits_exactly(method, stream):
    data = shifted(UNBALANCED, "x + g", 1.0 / 3.0)
    data["y"] -= data["e"]
    found = vcomp.fit("y ~ x + g + (1|h)", data, method=method, stream=stream)
    assert found.status == "The fixed part fits exactly: all components are 0."
    assert (found.vcomp == 0.0).all()
    np.testing.assert_allclose(found.fe_params, [0.0, 1.0, 2.0, 3.0, 1.0 / 3.0], atol=1e-14)


@pytest.mark.parametrize("stream", [False, True])
def test_scores_that_lack_the_digits_of_the_rest_are_fitted_exactly(stream):
    """1e17 + e has no digits of e; no numpy warning reaches the user."""
    data = shifted(UNBALANCED, "g", 1e17)
    found = vcomp.fit("y ~ g + (1|h)", data, method="henderson3", stream=stream)
    assert found.status == "The fixed part fits exactly: all components are 0."


@pytest.mark.parametrize("n", [12, 200])
def test_what_rounding_of_the_scores_leaves_has_no_variance(n):
    x = np.random.default_rng(0).normal(size=n)
    data = pd.DataFrame({"y": 1e3 + (1e4 + np.pi) * x, "x": x, "g": np.arange(n) % 4})
    with pytest.warns(vcomp.VcompWarning, match="the fixed part fits exactly"):
        found = vcomp.fit("y ~ x + (1|g)", data)
    assert (found.vcomp == 0.0).all()

"""Every number of a study in other units of scores and covariates is the same number in these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Real

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.cases import alternately
from vcomp import ctt, ir
from vcomp.presets import gauge_rr, precision

UNITS = [1e-8, 1e8]

COVARIATES = {1e-8: {"x": 1e8, "z": 1e-8}, 1e8: {"x": 1e-8, "z": 1e8}}
"""Units of covariates beside those of scores; coefficients have powers of both."""

POWERS = (0, 1, 2, 3, 4, -1, -2)


def numbers_in(value):
    """Yield the numbers of a result with their places, but for those of its rows and seconds."""
    if isinstance(value, pd.DataFrame | pd.Series):
        for place, x in np.ndenumerate(value.to_numpy(dtype=object)):
            yield from ((place, number) for _, number in numbers_in(x))
    elif isinstance(value, np.ndarray):
        if value.dtype.kind in "fiu":
            yield from np.ndenumerate(value)
    elif isinstance(value, Mapping):
        for key, x in value.items():
            yield from (((key, place), number) for place, number in numbers_in(x))
    elif isinstance(value, tuple | list):
        for k, x in enumerate(value):
            yield from (((k, place), number) for place, number in numbers_in(x))
    elif is_dataclass(value):
        for f in fields(value):
            if not f.name.startswith("_"):
                inner = numbers_in(getattr(value, f.name))
                yield from (((f.name, place), number) for place, number in inner)
    elif isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        yield (), value


def check_same(one, other, unit, rtol=1e-6, tiny=0.0):
    """Compare numbers, each with one of the powers of a unit; zeros stay zero."""
    first, second = dict(numbers_in(one)), dict(numbers_in(other))
    assert first.keys() == second.keys()
    assert first
    for place, x in first.items():
        y = second[place]
        if x == 0.0 or not np.isfinite(x) or abs(x) < tiny:
            same = np.array_equal(x, y, equal_nan=True) or abs(y) < tiny
            assert same or any(abs(y) <= tiny * unit**p for p in POWERS), (place, x, y)
            continue
        near = [abs(y / unit**p / x - 1.0) for p in POWERS]
        assert min(near) < rtol, (place, x, y)


def in_units(data, unit):
    scaled = data.assign(y=unit * data["y"])
    return scaled.assign(**{name: u * data[name] for name, u in COVARIATES[unit].items()})


def frame(shape="crossed", noise=1.0):
    rng = np.random.default_rng(4)
    p, i, r = (np.ravel(x) for x in np.indices((9, 7, 2)))
    data = pd.DataFrame({"p": p, "i": i, "r": r, "h": i // 3})
    y = 2.0 * rng.normal(size=9)[p] + 1.5 * rng.normal(size=7)[i]
    y += 0.8 * rng.normal(size=(9, 7))[p, i] + noise * rng.normal(size=p.size)
    data["x"], data["z"] = rng.normal(size=p.size), rng.normal(size=p.size) + 3.0
    data["f"] = np.array(list("abc"))[(p + i) % 3]
    data["y"] = y + 6.0 + 0.5 * data["x"]
    if shape == "holes":
        data = data[rng.random(len(data)) > 0.2]
    if shape == "single":
        data = data[data["r"] == 0]
    return data.reset_index(drop=True)


FITS = {
    "complete": ("y ~ (1|p) + (1|i) + (1|p:i)", "crossed"),
    "holes": ("y ~ x * z + f + (1|p) + (1|i) + (1|p:i)", "holes"),
    "one way": ("y ~ x + z + f + (1|p)", "crossed"),
    "single": ("y ~ (1|p) + (1|i)", "single"),
    "nested": ("y ~ (1|p) + (1|h/i) + (1|p:h)", "holes"),
    # A term without an effect, whose component is zero.
    "zero": ("y ~ (1|p) + (1|i) + (1|r) + (1|p:r)", "holes"),
}


UNIT_OF = dict(alternately(FITS, *UNITS))


@cache
def both(name):
    """Return a fit in two units."""
    formula, shape = FITS[name]
    data = frame(shape)
    return vcomp.fit(formula, data), vcomp.fit(formula, in_units(data, UNIT_OF[name]))


def joint(hypothesis):
    """Return the function that tests a hypothesis in all ways that a fit has."""
    ways = [("model", ddf) for ddf in ("satterthwaite", "kenward-roger", "normal")]

    def tests(r):
        h = hypothesis if "x" in r.fe_params else "Intercept = 0"
        found = [r.f_test(h, ddf=d, cov_type=c) for c, d in (*ways, ("robust", "satterthwaite"))]
        return [(t.statistic, t.df, t.p_value) for t in found]

    return tests


RESULTS = {
    "components": lambda r: (r.vcomp, r.bse_vcomp, r.cov_vcomp),
    "fixed effects": lambda r: (r.fe_params, r.bse_fe, r.df_fe, r.fixed_effects()),
    "robust fixed effects": lambda r: r.fixed_effects(cov_type="robust"),
    "kenward-roger": lambda r: r.fixed_effects(ddf="kenward-roger"),
    "joint tests": joint("x = 0, z = 0"),
    "joint tests with a factor": joint("x, f[T.b], z, f[T.c]"),
    "joint tests with the intercept": joint("Intercept, x, z"),
    "compared levels": lambda r: [
        r.compare_levels("f", cov_type=c).table for c in ("model", "robust")
    ],
    "prediction errors": lambda r: r.get_prediction().summary_frame(),
    "universe scores": lambda r: r.universe_scores("p"),
    "predictions": lambda r: (r.predict(), r.fittedvalues, r.resid),
    "effects": lambda r: r.random_effects,
    "robust": lambda r: r.conf_int(interval="robust"),
    "mls": lambda r: r.conf_int(interval="mls"),
    "satterthwaite": lambda r: r.conf_int(interval="satterthwaite"),
    "wald": lambda r: r.conf_int(interval="wald"),
    "log": lambda r: r.conf_int(interval="log"),
    "profile": lambda r: r.conf_int(interval="profile"),
    "levels": lambda r: r.compare_levels("p").table,
    "likelihood ratio tests": lambda r: [r.test(n, test="lrt").p_value for n in r.vcomp.index[:2]],
    "score tests": lambda r: [r.test(n, test="score").p_value for n in r.vcomp.index[:2]],
    "F test": lambda r: r.test("p", test="f").p_value,
    "robust test": lambda r: r.test("p", test="robust").p_value,
    "simulated test": lambda r: r.test("p", test="simulated", n=20, rng=1).p_value,
    "bootstrap": lambda r: r.bootstrap(8, rng=1).values,
    "resampled levels": lambda r: r.resample("p", n=8, rng=1).values,
    "anova": lambda r: r.anova_table(),
    "jackknife": lambda r: r.jackknife("p").values,
    "dstudy": lambda r: r.dstudy(object="p", i=[3, 10]).table,
    "diagnosis": lambda r: r.diagnose().table,
}


WITH_COVARIATES = ("holes", "one way")
BOTH_KINDS = [
    (what, WITH_COVARIATES[k % 2], ("complete", "single", "nested", "zero")[k % 4])
    for k, what in enumerate(RESULTS)
]
"""By turns: each result of a fit with covariates, and of one without."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "what"),
    [(name, what) for what, *names in BOTH_KINDS for name in names],
)
def test_results_of_a_fit(name, what):
    unit, (one, other) = UNIT_OF[name], both(name)
    try:
        expected = RESULTS[what](one)
    except vcomp.VcompError as error:
        with pytest.raises(type(error)):
            RESULTS[what](other)
        return
    check_same(expected, RESULTS[what](other), unit, tiny=1e-9)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("unit", UNITS)
def test_comparisons_of_models(unit):
    def compared(data):
        formulas = [f"y ~ x + z + {random}" for random in ("(1|p)", "(1|p) + (1|i)")]
        return vcomp.compare(*(vcomp.fit(formula, data) for formula in formulas)).table

    data = frame("holes")
    one, other = compared(data), compared(in_units(data, unit))
    names = ["npar", "statistic", "df", "p_value"]
    check_same(one[names], other[names], unit, tiny=1e-9)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("method", "unit"), alternately(["ml", "anova", "henderson3", "type1", "minque"], *UNITS)
)
@pytest.mark.parametrize("name", ["complete", "holes"])
def test_methods(unit, method, name):
    formula, shape = FITS[name]
    formula = formula.replace("x * z + f + ", "") if method == "anova" else formula
    data = frame(shape)
    one = vcomp.fit(formula, data, method=method)
    other = vcomp.fit(formula, in_units(data, unit), method=method)
    check_same((one.vcomp, one.cov_vcomp), (other.vcomp, other.cov_vcomp), unit, tiny=1e-10)


def scores(missing=False):
    wide = frame("single").pivot_table(index="p", columns="i", values="y").to_numpy(copy=True)
    if missing:
        wide[[1, 4, 6], [0, 3, 6]] = np.nan
    return wide


TESTS = {
    "reliability": lambda X: ctt.reliability(X).table,
    "reliability, pairs": lambda X: ctt.reliability(X, missing="pairwise").table,
    "items": lambda X: ctt.item_analysis(X).table,
    "icc": lambda X: ctt.icc(X).table,
    "halves": lambda X: ctt.split_half_reliability(X[:, :6]).table,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("missing", "unit"), alternately([False, True], *UNITS))
@pytest.mark.parametrize("what", TESTS)
def test_classical_tests(unit, missing, what):
    X = scores(missing)
    try:
        expected = TESTS[what](X)
    except vcomp.VcompError as error:
        with pytest.raises(type(error)):
            TESTS[what](unit * X)
        return
    check_same(expected, TESTS[what](unit * X), unit, tiny=1e-12)


def matrix(unit):
    return ir.ScoreMatrix(
        unit * (scores().T + 10.0), [f"t{k}" for k in range(7)], [f"s{k}" for k in range(9)]
    )


COLLECTIONS = {
    "tau": lambda m: ir.accuracy(m, ["tau", "tau_ap"], [5, 20]).table,
    "coefficients": lambda m: ir.accuracy(m, ["Erho2", "Phi"], [5, 20]).table,
    "systems": lambda m: ir.compare_systems(m).table,
    "wilcoxon": lambda m: ir.compare_systems(m, test="wilcoxon").table,
    "sign": lambda m: ir.compare_systems(m, test="sign").table,
    "expected tau": lambda m: ir.expected_tau(m, 12),
    "expected tau_AP": lambda m: ir.expected_tau(m, 12, variant="ap"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("what", "unit"), alternately(COLLECTIONS, *UNITS))
def test_collections(unit, what):
    of = COLLECTIONS[what]
    check_same(of(matrix(1.0)), of(matrix(unit)), unit, tiny=1e-12)


def two(unit, missing=False):
    data = frame("holes" if missing else "single")
    second = 0.5 * data["y"] + np.random.default_rng(2).normal(size=len(data)) + 0.3 * data["p"]
    return data.assign(y=unit * data["y"], z=unit * second)


PAIRS = "y + z ~ (1|p) + (1|i)"


def measures(data):
    tables = {"first": data, "second": data.assign(y=data["z"])}
    return vcomp.compare_measures("y ~ (1|p) + (1|i)", tables, method="minque", i=10)


def multivariate(data):
    return vcomp.fit_multivariate("y + z ~ (1|p) + (1|i)", data)


STUDIES = {
    "multivariate": (lambda d: multivariate(d).tidy(), False),
    "multivariate dstudy": (lambda d: multivariate(d).dstudy(object="p", i=5).table, False),
    "measures": (lambda d: measures(d).table, True),
    "differences": (lambda d: measures(d).differences().table, True),
    "subsamples": (
        lambda d: (
            vcomp.subsample_study("y ~ (1|p) + (1|i)", d, sizes={"i": 4}, trials=5, rng=1).table
        ),
        True,
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("what", "unit"), alternately(STUDIES, *UNITS))
def test_studies(unit, what):
    of, missing = STUDIES[what]
    check_same(of(two(1.0, missing)), of(two(unit, missing)), unit, tiny=1e-9)


def profiles(uy, uz, method, missing):
    data = two(1.0, missing)
    # Correlated at more than 1 by Henderson's method, whose matrix is then made one of variances.
    data["y"] += 3.0 * data["p"]
    data["z"] += 3.0 * data["p"]
    res = vcomp.fit_multivariate(
        PAIRS, data.assign(y=uy * data["y"], z=uz * data["z"]), method=method
    )
    shown = res.profiles("p").set_index(["p", "variable"])[["mean", "universe_score", "se"]]
    sizes = pd.Series({"y": uy, "z": uz})
    return shown.div(shown.index.get_level_values("variable").map(sizes), axis=0), res.tidy()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("method", "missing"), [("reml", True), ("anova", False)])
def test_variables_in_units_of_their_own(method, missing):
    (one, tidy), (other, scaled) = (
        profiles(*units, method, missing) for units in ((1.0, 1.0), (1e-8, 1e8))
    )
    np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(scaled["correlation"], tidy["correlation"], rtol=1e-5, atol=1e-8)
    assert method == "reml" or missing or tidy["correlation"].abs().max() > 1.0


PRESETS = {
    "gauge": lambda r: gauge_rr(r, "p", "i").table,
    "precision": lambda r: precision(r).table,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("what", PRESETS)
def test_presets(unit, what):
    formula, shape = FITS["complete"]
    data = frame(shape)
    one, other = (vcomp.fit(formula, data.assign(y=u * data["y"])) for u in (1.0, unit))
    check_same(PRESETS[what](one), PRESETS[what](other), unit, tiny=1e-9)

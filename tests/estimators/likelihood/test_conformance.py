"""Every engine gives what callers need as the textbook has it, on some 150 designs.

The textbook is Searle, Casella & McCulloch (1992), chapter 6, written out with matrices of rows by
rows in extended precision (64 bits of mantissa), so that digits that an engine loses show.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import DESIGNS, GRIDS, balanced, gridded, unbalanced
from tests.helpers.unit_probes import AllUnits
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.column_likelihood import ColumnTermLikelihood
from vcomp.estimators.likelihood.crossed import CrossedLikelihood
from vcomp.estimators.likelihood.incomplete import CompletedLikelihood
from vcomp.estimators.likelihood.iterative import IterativeLikelihood
from vcomp.estimators.likelihood.levels import LevelsLikelihood
from vcomp.estimators.likelihood.nested_likelihood import NestedTableLikelihood
from vcomp.estimators.likelihood.strata_likelihood import StrataLikelihood
from vcomp.statistics import find_column_table, find_nested_table

EXTENDED = np.longdouble


# The designs -------------------------------------------------------------------------------------


def scores(kept=1.0, seed=0, times=1, **sizes):
    """Return a random part of the cells of crossed facets, with effects, x and a far covariate."""
    rng = np.random.default_rng(seed)
    grid = np.meshgrid(*(np.arange(n) for n in sizes.values()), indexing="ij")
    frame = pd.DataFrame({f: g.ravel() for f, g in zip(sizes, grid, strict=True)})
    frame = pd.concat([frame] * times)
    frame = frame[rng.random(len(frame)) < kept].reset_index(drop=True)
    frame["x"] = rng.normal(size=len(frame))
    frame["far"] = 1e4 + rng.normal(size=len(frame))
    frame["g"] = rng.integers(0, 3, len(frame))
    frame["y"] = 3.0 + rng.normal(size=len(frame))
    for facet, n in sizes.items():
        frame["y"] += rng.normal(size=n)[frame[facet]]
    return frame


def documents(kept, times=1):
    """Return scores of documents within topics, and of topics within tracks."""
    data = scores(kept, seed=4, times=times, p=3, a=2, d=15)
    return data.assign(t=data["d"] % 5, u=data["d"] % 5 % 2)


def met_at_random(n, **sizes):
    rng = np.random.default_rng(n)
    data = pd.DataFrame({f: rng.integers(0, q, n) for f, q in sizes.items()})
    return data.assign(y=rng.normal(size=n) + rng.normal(size=99)[data.iloc[:, 0]])


def with_fixed(fixed, formula_and_data):
    formula, data = formula_and_data
    return formula.replace("~", f"~ {fixed} +"), data


TWO = "y ~ (1|a) + (1|b)"
ITEMS = "y ~ C(m) + (1|i) + (1|m:i)"
COLUMNS = "y ~ (1|m) + (1|i) + (1|m:i)"
THREE = "y ~ (1|m) + (1|i) + (1|p) + (1|m:i) + (1|m:p) + (1|i:p)"
INSIDE = "y ~ (1|p) + (1|t) + (1|t:d) + (1|p:t) + (1|p:a:t) + (1|p:t:d)"
AXES = "y ~ (1|p) + (1|a) + (1|i) + (1|d) + (1|p:a) + (1|p:i) + (1|a:i) + (1|p:d)"


def topics(kept):
    """Return persons × assessors × documents within topics of unequal size, some missing."""
    data = scores(kept, seed=7, p=4, a=2, d=10)
    return data.assign(i=np.repeat(range(4), [1, 4, 2, 3])[data["d"]])


def with_halves(name, fixed):
    """Return a grid and half: columns of a fixed part lie in one stratum, or in several.

    Each half has as many levels as can be, so that it lives in the contrasts alone.
    """
    formula, data = with_fixed(fixed, gridded(name))
    axes = GRIDS[name][1]
    halves = data[next(iter(axes), "i" if "i" in data else "a")] % 2
    return formula, data.assign(half=halves.map({0: "even", 1: "odd"}) if axes else halves)


def fixed_parts(name):
    _, axes, cells, _ = GRIDS[name]
    yield from ("1", "0", "x", "0 + C(half) + x")
    if axes:
        yield from ("xp", "C(half)")
    if cells:
        yield "xi + xd"
    if axes and cells:
        yield from ("xp + xi", "xp:xi + xp")


def with_covariates(name, fixed):
    """Return a design with holes, a covariate far from zero and a factor."""
    formula, data = with_fixed(fixed, unbalanced(name, seed=3))
    rng = np.random.default_rng(0)
    n = len(data)
    return formula, data.assign(x=rng.normal(size=n) + 1e4, g=rng.integers(0, 3, n))


def case(engines, formula, data):
    return engines.split(), formula, data


CASES = {
    # Complete tables.
    **{
        f"grid: {name}": case("strata blocked iterative", *gridded(name))
        for name in GRIDS
        if name != "one way"
    },
    "grid with covariates": case(
        "strata blocked iterative", *with_fixed("xp + xi + x", gridded("per document"))
    ),
    **{
        f"grid: {name}, {fixed}": case("strata", *with_halves(name, fixed))
        for k, name in enumerate(GRIDS)
        for fixed in list(fixed_parts(name))[k % 2 :: 2]  # by turns, or all are on each
    },
    "one way": case("strata blocked iterative", *balanced("one way")),
    "no fixed part": case("strata blocked iterative", *with_fixed("0", gridded("crossed"))),
    # Holes.
    **{
        f"holes: {name}": case("blocked iterative", *unbalanced(name, seed=3))
        for name in DESIGNS
        if name not in ("one way", "nested", "deeply nested")
    },
    **{
        f"holes: {name}, {fixed}": case("blocked", *with_covariates(name, fixed))
        for name in DESIGNS
        for fixed in ("x + C(g)", "0 + x")
    },
    "nested, unequal": case("strata blocked iterative", *unbalanced("deeply nested", seed=3)),
    "few holes, three facets": case("levels blocked", THREE, scores(0.9, m=4, i=10, p=3)),
    "half missing": case("levels blocked", THREE, scores(0.5, m=4, i=15, p=3)),
    "most missing": case("levels blocked", THREE, scores(0.25, m=4, i=20, p=3)),
    "no holes, three facets": case("levels", THREE, scores(m=4, i=9, p=3)),
    "one facet with holes": case("levels", "y ~ (1|i)", scores(0.6, times=4, i=15)),
    "no fixed part, levels": case("levels", "y ~ 0 + (1|m) + (1|i)", scores(0.8, m=4, i=15)),
    "two facets, shorter first": case("crossed", "y ~ (1|b) + (1|a)", scores(0.9, a=14, b=9)),
    "two facets, no fixed part": case("crossed", "y ~ 0 + (1|a) + (1|b)", scores(0.8, a=11, b=11)),
    "two facets, no holes": case("crossed", "y ~ x + (1|a) + (1|b)", scores(a=9, b=5)),
    "two facets, few holes": case("crossed blocked", TWO, scores(0.9, a=14, b=9)),
    "two facets, half missing": case("crossed blocked", TWO, scores(0.5, a=14, b=9)),
    "two facets, covariate": case(
        "crossed blocked", "y ~ x + (1|a) + (1|b)", scores(0.7, a=8, b=15)
    ),
    "holes of a grid": case("holes blocked", AXES, topics(0.9)),
    "holes of a grid, covariates": case(
        "holes blocked", "y ~ x + far + (1|p) + (1|a) + (1|i) + (1|d) + (1|p:d)", topics(0.9)
    ),
    # Sparse: levels meet at random.
    "sparse": case("blocked iterative", TWO, met_at_random(90, a=30, b=40)),
    "sparse, three facets": case(
        "blocked iterative",
        "y ~ (1|a) + (1|b) + (1|c) + (1|a:b)",
        met_at_random(90, a=12, b=9, c=20),
    ),
    "groups without company": case("blocked iterative", TWO, met_at_random(60, a=50, b=50)),
    # Nested.
    "nested within crossed": case("levels blocked", INSIDE, documents(0.8)),
    "nested, mostly missing": case("levels blocked", INSIDE, documents(0.4)),
    "nested alone": case("levels", "y ~ (1|u/t/d)", documents(0.5)),
    "twice nested": case(
        "levels blocked iterative",
        "y ~ x + (1|u) + (1|t) + (1|d) + (1|p:u) + (1|p:d) + (1|a)",
        documents(0.6, times=2),
    ),
    # Wide fixed parts.
    "far covariate": case(
        "blocked iterative", "y ~ far + C(g) + (1|a) + (1|a:b)", scores(0.8, times=2, a=6, b=5)
    ),
    "factor": case(
        "levels blocked", "y ~ x + C(m) + (1|i) + (1|m:i)", scores(0.8, times=2, m=4, i=12)
    ),
    "no mean": case(
        "blocked iterative", "y ~ 0 + C(g) + x + (1|a/b)", scores(0.8, times=3, a=5, b=4)
    ),
    "wide fixed part": case("blocked", "y ~ x + C(a) + (1|b) + (1|b:g)", scores(0.7, a=25, b=4)),
    "table": case("table blocked", ITEMS, scores(0.6, times=3, m=4, i=12)),
    "table, inner term first": case(
        "table blocked", "y ~ C(m) + (1|m:i) + (1|i)", scores(0.6, times=2, m=4, i=12)
    ),
    "column": case("column blocked", COLUMNS, scores(0.6, times=3, m=4, i=12)),
    "column, inner term first": case(
        "column blocked", "y ~ C(m % 2) + (1|m:i) + (1|m) + (1|i)", scores(0.6, times=2, m=4, i=12)
    ),
    "table, single scores and no mean": case(
        "table", "y ~ 0 + m + (1|i) + (1|m:i)", scores(0.8, times=2, m=3, i=9)
    ),
    "replicated": case(
        "levels blocked", THREE + " + (1|m:i:p)", scores(0.7, times=3, m=3, i=6, p=3)
    ),
}


def strata(stats, reml):
    sums = stats.strata
    return sums and StrataLikelihood(sums, reml=reml)


def blocked(stats, reml):
    return BlockedLikelihood(stats.cross_products, reml=reml)


def crossed(stats, reml):
    sums = stats.crossed
    return sums and CrossedLikelihood(sums, reml=reml)


def levels(stats, reml):
    sums = stats.levels
    return sums and LevelsLikelihood(sums, reml=reml)


def holes(stats, reml):
    grid = stats.completed
    return grid and CompletedLikelihood(stats.cross_products, grid, reml=reml)


def iterative(stats, reml):
    """Return the iterative engine with all unit vectors for probes: its traces are exact."""
    sums = stats.cross_products
    return IterativeLikelihood(sums, reml=reml, probes=AllUnits(), n_levels=12, tol=1e-14)


def table(stats, reml):
    sums = find_nested_table(stats.cells)
    return sums and NestedTableLikelihood(sums, reml=reml)


def column(stats, reml):
    sums = find_column_table(stats.cells)
    return sums and ColumnTermLikelihood(sums, reml=reml)


ENGINES = {
    f.__name__: f for f in (strata, blocked, crossed, levels, table, column, holes, iterative)
}

SOLVED = {"holes": 1e-7, "iterative": 1e-7}
"""Relative accuracy of engines whose solves end at 1e-10 and 1e-14 of their right-hand sides; of
others it is that of rounding, below."""

WITHOUT_VARIANCES = ("holes", "iterative")
"""Engines that solve for effects, without variances, or where probes are too few for them."""

ROUNDING = 1e-10
"""Relative to the largest of its kind, where the condition of V is below 1e4."""

TWICE_CANCELLED = 1e-8
"""The same of X'V⁻¹V_tV⁻¹V_uV⁻¹X. Next to a small residual, those of the residual are differences
of terms a thousand times as large."""

AT_EXTREMES = {"loglike": 1e-6, "score": 1e-3, "beta": 1e-6, "cov_beta": 1e-6, "effects": 1e-6}
"""The same where one component is 1e-6 or 1e6 of the others. By Henderson's equations the trace
of the residual is a difference of numbers of its order divided by the residual. Informations and
forms of X, which have cancelled twice, are left out."""


# The textbook ------------------------------------------------------------------------------------


def factored(matrix):
    """Return L and d of L diag(d) L' by rows, in extended precision."""
    S, n = matrix.copy(), len(matrix)
    L, d = np.eye(n, dtype=EXTENDED), np.empty(n, dtype=EXTENDED)
    for k in range(n):
        d[k] = S[k, k]
        L[k + 1 :, k] = S[k + 1 :, k] / d[k]
        S[k + 1 :, k + 1 :] -= np.multiply.outer(L[k + 1 :, k], S[k, k + 1 :])
    return L, d


def inverted(matrix):
    """Return the inverse and the log-determinant of a positive definite matrix."""
    n = len(matrix)
    L, d = factored(matrix)
    inverse = np.eye(n, dtype=EXTENDED)
    for k in range(n):
        inverse[k + 1 :] -= np.multiply.outer(L[k + 1 :, k], inverse[k])
    return inverse.T @ (inverse / d[:, None]), np.log(d).sum()


@dataclass
class Textbook:
    """What an engine gives, at one point, by formulas of dense matrices."""

    model: object
    v: np.ndarray
    reml: bool
    found: dict = field(default_factory=dict)

    def __post_init__(self):
        chunk, n = self.model.statistics.rows, self.model.nobs
        X, y = chunk.X.astype(EXTENDED), chunk.y.astype(EXTENDED)
        v = self.v.astype(EXTENDED)
        codes, sizes = [*chunk.codes, np.arange(n)], [*chunk.sizes, n]
        W, log_det = inverted(sum(s * np.equal.outer(c, c) for s, c in zip(v, codes, strict=True)))
        cov, log_det_X = inverted(X.T @ W @ X)
        WX = W @ X
        beta = cov @ (WX.T @ y)
        P = W - WX @ cov @ WX.T
        Py = P @ y

        def sums(t, values):
            """Return Z_t' of the rows of some values."""
            found = np.zeros((sizes[t], *values.shape[1:]), EXTENDED)
            np.add.at(found, codes[t], values)
            return found

        terms = range(len(v))
        rows = [sums(t, P if self.reml else W) for t in terms]
        columns = np.column_stack([sums(t, Py)[codes[t]] for t in terms])
        deviance = log_det + y @ Py + n * np.log(2.0 * np.pi)
        if self.reml:
            deviance += log_det_X - X.shape[1] * np.log(2.0 * np.pi)
        quadratics = Py @ columns
        average = 0.5 * columns.T @ P @ columns
        # tr(Q V_t Q V_u) is the sum of squares of Z_t'Q Z_u.
        expected = 0.5 * np.array([[np.sum(sums(u, r.T) ** 2) for u in terms] for r in rows])
        traces = [np.sum(r[c, np.arange(n)]) for r, c in zip(rows, codes, strict=True)]
        of_X = [sums(t, WX)[codes[t]] for t in terms]
        first = np.array([WX.T @ x for x in of_X])
        groups = [*zip(v, terms, strict=True)][:-1]  # the residual has no effects
        self.found = {
            "loglike": -0.5 * deviance,
            "score": 0.5 * (quadratics - traces),
            "average": average,
            "expected": expected,
            "observed": 2.0 * average - expected,
            "beta": beta,
            "cov_beta": cov,
            "quadratics": quadratics,
            "first forms": first,
            "slopes": cov @ first @ cov,
            "second forms": np.array([[a.T @ W @ b for b in of_X] for a in of_X]),
            "effects": [s * sums(t, Py) for s, t in groups],
            "prediction_var": [s - s**2 * np.diagonal(sums(t, sums(t, P).T)) for s, t in groups],
            "conditional_var": [s - s**2 * np.diagonal(sums(t, sums(t, W).T)) for s, t in groups],
        }


def given_by(engine, v):
    """Return the same from an engine; None where it has none, and says so."""
    derivatives, solution = engine.derivatives(v), engine.solution(v)
    informations = {
        kind: engine.information(v, kind) if kind in engine.kinds else None
        for kind in ("average", "expected", "observed")
    }
    beta, cov_beta = engine.fixed_effects(v)
    forms = engine.fixed_forms(v, second=True)
    dense = isinstance(cov_beta, np.ndarray)
    np.testing.assert_allclose(solution.beta, beta, rtol=1e-12)
    np.testing.assert_array_equal(derivatives.average, informations["average"])
    return {
        "loglike": engine.loglike(v),
        "score": derivatives.score,
        **informations,
        "beta": beta,
        "cov_beta": cov_beta if dense else cov_beta.dense(),
        "quadratics": engine.quadratics(v) if hasattr(engine, "quadratics") else None,
        "first forms": forms.first,
        "second forms": forms.second,
        "slopes": forms.slopes,
        "effects": solution.effects,
        "prediction_var": solution.prediction_var,
        "conditional_var": solution.conditional_var,
    }


def near(found, wanted, rtol, what, unit=0.0):
    """Compare two arrays, or two sequences of them, up to a part of the largest wanted one."""
    if isinstance(wanted, list):
        found, wanted = np.concatenate(found), np.concatenate(wanted)
    scale = max(float(np.abs(wanted).max(initial=0.0)), unit)
    np.testing.assert_allclose(
        np.asarray(found, dtype=float),
        np.asarray(wanted, dtype=float),
        rtol=0.0,
        atol=rtol * scale,
        err_msg=what,
    )


def points(k):
    """Return components inside, at their bounds, and over three decades."""
    rng = np.random.default_rng(k)
    inside = rng.uniform(0.3, 2.0, k)
    yield inside
    yield np.where(np.arange(k) % 2 == (k - 1) % 2, inside, 0.0)
    yield np.where(np.arange(k) == k - 1, 0.7, 0.0)
    yield 10.0 ** rng.uniform(-2.0, 1.0, k)


def extremes(k):
    """Return points where the residual is nearly zero, and where one component is far larger."""
    inside = np.random.default_rng(k).uniform(0.3, 2.0, k)
    yield np.where(np.arange(k) == k - 1, 1e-6, inside)
    yield np.where(np.arange(k) == 0, 1e6, inside)


@cache
def model_of(name):
    _, formula, data = CASES[name]
    return vcomp.VarianceComponentsModel(formula, data)


@cache
def textbook(name, at, reml):
    return Textbook(model_of(name), np.array(at), reml).found


PAIRS = [(name, engine) for name, (engines, _, _) in CASES.items() for engine in engines]


TURNS = dict(alternately(CASES, *product((True, False), (1, 2), (0, 3))))
"""One of the likelihoods for each design, one of the points with components at their bounds, and
one inside or over decades, by turns, so that each engine has all of them on several designs."""

EXTREMES = dict(alternately(CASES, 0, 1))
"""Which of the extremes each design has."""

ON_FEW_DESIGNS = ("crossed", "holes")
"""Engines that have all of them on each."""

WAYS = [
    pytest.param(name, engine, reml, at, id=f"{name}-{engine}-{'reml' if reml else 'ml'}")
    for name, engine in PAIRS
    for reml in ((True, False) if engine in ON_FEW_DESIGNS else TURNS[name][:1])
    for at in ((0, 1, 2, 3) if engine in ON_FEW_DESIGNS else TURNS[name][1:],)
]

FIXED_PARTS = [
    pair for pair in PAIRS if pair[0].startswith("grid: ") and CASES[pair[0]][0] == ["strata"]
]
"""Grids once more, with other fixed parts."""

FEWER = [pair for pair in PAIRS if pair not in FIXED_PARTS[1::2]]
"""All designs, and half of the fixed parts of grids."""

BY_TURNS = [
    (name, engines[k % len(engines)])
    for k, (name, (engines, _, _)) in enumerate(CASES.items())
    if (name, engines[0]) in FEWER
]
"""The same, each with one of its engines."""


@pytest.mark.parametrize(("name", "engine", "reml", "at"), WAYS)
def test_an_engine_gives_what_the_textbook_has(name, engine, reml, at):
    model = model_of(name)
    made = ENGINES[engine](model.statistics, reml)
    assert (made.n, made.n_fixed) == model.statistics.rows.X.shape
    assert made.sizes == tuple(model.statistics.rows.sizes)
    k = len(model.component_names)
    every = list(points(k))
    for place in at:
        compare(name, engine, made, every[place], reml)


@pytest.mark.parametrize(("name", "engine"), PAIRS)
def test_a_climb_starts_from_mivque0(name, engine):
    """With V = I: equations of y'QK_tQy, and least squares."""
    model = model_of(name)
    made = ENGINES[engine](model.statistics, True)
    alone = np.eye(len(model.component_names))[-1]
    given = textbook(name, tuple(alone), True)
    forms, squares = 2.0 * given["expected"], given["quadratics"]
    mivque0 = np.linalg.solve(forms.astype(float), squares.astype(float))
    near(made.mivque0(), mivque0, ROUNDING, "MIVQUE(0)")
    # Coefficients of centred columns may be nothing: their unit is a standard error.
    unit = float(np.sqrt(given["cov_beta"].max(initial=0.0)))
    near(made.least_squares(), given["beta"], ROUNDING, "least squares", unit)
    assert made.rss == pytest.approx(float(squares[-1]), rel=1e-10)
    assert made.yy == pytest.approx(np.sum(model.statistics.rows.y**2), rel=1e-12)


@pytest.mark.parametrize(("name", "engine"), [pair for pair in FEWER if pair[1] != "levels"])
def test_an_engine_keeps_its_digits_at_extremes(name, engine):
    """Not that of levels: where it has lost digits, a fit changes to another engine."""
    made = ENGINES[engine](model_of(name).statistics, True)
    v = list(extremes(len(model_of(name).component_names)))[EXTREMES[name]]
    compare(name, engine, made, v, True, AT_EXTREMES)


@pytest.mark.parametrize(("name", "engine"), BY_TURNS)
def test_values_depend_on_data_and_point_alone(name, engine):
    """Bit for bit: not on what was evaluated before, nor on an earlier response."""
    model, reml = model_of(name), TURNS[name][0]
    made = ENGINES[engine](model.statistics, reml)
    every, place = list(points(len(model.component_names))), TURNS[name][2]
    here, there = every[place], every[3 - place]
    first = given_by(made, here)
    given_by(made, there)
    same(given_by(made, here), first)
    compare(name, engine, made.started(there), here, reml)
    rows = model.statistics.rows
    drawn = model.statistics.with_response(rows.y + np.sin(np.arange(model.nobs)))
    fresh = ENGINES[engine](drawn, reml)
    alone = fresh.quadratics(here) if hasattr(fresh, "quadratics") else None
    wanted = given_by(fresh, here)
    if alone is not None:
        near(alone, wanted["quadratics"], 1e-11, "without other forms")
    same(given_by(made.with_response(drawn), here), wanted)


def same(found, wanted):
    """Compare two values of :func:`given_by` bit for bit."""
    for what, value in wanted.items():
        pairs = zip(found[what], value, strict=True) if isinstance(value, tuple | list) else ()
        for one, other in pairs or [(found[what], value)]:
            np.testing.assert_array_equal(one, other, err_msg=what)


def compare(name, engine, made, v, reml, accuracies=None):
    wanted, found = textbook(name, tuple(v.tolist()), reml), given_by(made, v)
    for what, accuracy in (accuracies or dict.fromkeys(found, ROUNDING)).items():
        value = found[what]
        unknown = np.isnan(np.concatenate(value)) if what.endswith("_var") else np.zeros(1, bool)
        if engine in WITHOUT_VARIANCES and unknown.any():
            assert (unknown == np.repeat(v[:-1] > 0.0, made.sizes)).all()
        elif value is not None:
            # Coefficients of centred columns may be nothing: their unit is a standard error.
            unit = np.sqrt(wanted["cov_beta"].max(initial=0.0)) if what == "beta" else 0.0
            least = TWICE_CANCELLED if what == "second forms" else 0.0
            rtol = max(accuracy, SOLVED.get(engine, 0.0), least)
            near(value, wanted[what], rtol, f"{what} at {v}", float(unit))

"""Refits of drawn data: those of many at once are those of the ordinary engine."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import GRIDS, gridded
from vcomp.estimators import get_estimator
from vcomp.estimators.likelihood import ML, REML
from vcomp.estimators.likelihood.strata_likelihood import StrataLikelihood
from vcomp.inference.resampling.draws import StrataDraws
from vcomp.inference.resampling.refits import ByLikelihood, Recipe, StrataRefits
from vcomp.numerics.parallel import stream
from vcomp.statistics.statistics import Statistics

NESTED = sorted(name for name in GRIDS if "not nested" not in name)


def model(name, fixed=""):
    formula, data = gridded(name)
    return vcomp.VarianceComponentsModel(formula.replace("~ ", f"~ {fixed}"), data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "how"), alternately(NESTED[::3], (REML, ""), (ML, "x + "), (ML, ""), (REML, "x + "))
)
def test_refits_are_those_of_the_ordinary_way(name, how):
    """The same components, zeros among them, to far less than their standard errors."""
    method, fixed = how
    whole = model(name, fixed)
    names, strata = whole.component_names, whole.statistics.strata
    v = np.full(len(names), 0.2)
    v[-1] = 1.0
    several = StrataRefits.of(whole.statistics, Recipe(method(), names), v)
    slow, draws = ByLikelihood(whole.statistics, method(), names, v), StrataDraws(strata)
    drawn = [Statistics.from_strata(draws.draw(v, stream(4, b))) for b in range(5)]
    made, at_bound = several.with_responses(drawn), 0
    assert several.most > 1
    for stats, found in zip(drawn, made, strict=True):
        if found is None:
            continue
        wanted = slow(stats)
        assert wanted.converged
        np.testing.assert_array_equal(found.values == 0.0, wanted.values == 0.0)
        engine = StrataLikelihood(stats.strata, reml=method is REML)
        average = np.sqrt(np.diagonal(engine.information(wanted.values, "average")))
        # In units of the error that each component would have alone.
        assert (np.abs(found.values - wanted.values) * average).max() < 1e-7
        np.testing.assert_allclose(found.llf, wanted.llf, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(found.beta, wanted.beta, rtol=1e-6, atol=1e-7)
        at_bound += int((found.values == 0.0).any())
    left = made.count(None)
    if name == "nested":  # 12 rows: the engine finds out whether a maximum is one
        assert left == len(made)
    else:
        assert left <= 2


@pytest.mark.slow
@pytest.mark.parametrize(("crossed", "method"), [(False, "ml"), (True, "reml")])
def test_samples_whose_trees_differ_are_refitted_together(method, crossed):
    """Schools, classes and pupils, each of whom may answer all items: as separate fits."""
    rng, frames = np.random.default_rng(3), []
    for school in (5, 9, 6, 7, 12, 4):
        classes = rng.integers(2, 5, school)
        codes = np.repeat(np.arange(school), classes), np.arange(classes.sum())
        pupils = rng.integers(1, 7, classes.sum())
        a, b = (np.repeat(code, pupils) for code in codes)
        y = rng.normal(size=school)[a] + rng.normal(size=b.max() + 1)[b] + rng.normal(size=b.size)
        x = rng.normal(size=b.size)
        data = pd.DataFrame({"a": a, "b": b, "x": x, "y": y + 0.3 * x})
        if crossed:
            data = data.merge(pd.DataFrame({"i": range(4)}), how="cross")
            data["y"] += rng.normal(size=4)[data["i"]] + 0.5 * rng.normal(size=len(data))
        frames.append(data)
    formula = "y ~ x + (1|a) + (1|a:b)" + (" + (1|i) + (1|i:a)" if crossed else "")
    models = [vcomp.VarianceComponentsModel(formula, data) for data in frames]
    names = models[0].component_names
    recipe = Recipe(get_estimator(method), names)
    several = StrataRefits.of(models[0].statistics, recipe, np.full(len(names), 0.5))
    samples = [one.statistics for one in models]
    together = several.of_samples(samples)
    assert together.count(None) <= 1
    for one, sample, found in zip(models, samples, together, strict=True):
        if found is None:
            continue
        res = one.fit(method, tol=1e-11)
        size = found.values.sum()
        np.testing.assert_allclose(found.values, res.vcomp, rtol=1e-7, atol=1e-8 * size)
        assert found.llf == pytest.approx(res.llf, abs=1e-9)
        # No digit depends on the other samples.
        (alone,) = several.of_samples([sample])
        np.testing.assert_array_equal(alone.values, found.values)


def test_no_digit_depends_on_how_many_are_refitted_together():
    """Also where the groups of a stratum have many vectors, whose products are by matrices."""
    rng = np.random.default_rng(5)
    p, i = (axis.ravel() for axis in np.indices((40, 30)))
    data = pd.DataFrame({"p": p, "i": i, "y": rng.normal(size=p.size) + rng.normal(size=40)[p]})
    whole = vcomp.VarianceComponentsModel(
        "y ~ (1|p) + (1|i) + (1|h) + (1|p:h)", data.assign(h=i % 9)
    )
    names, strata, v = whole.component_names, whole.statistics.strata, np.full(5, 0.5)
    draws = StrataDraws(strata)
    several = StrataRefits.of(whole.statistics, Recipe(REML(), names), v)
    drawn = [Statistics.from_strata(draws.draw(v, stream(1, b))) for b in range(8)]
    together = several.with_responses(drawn)
    assert together.count(None) < 4
    for one, found in zip(drawn, together, strict=True):
        if found is not None:
            (alone,) = several.with_responses([one])
            np.testing.assert_array_equal(alone.values, found.values)


@pytest.mark.parametrize("hold", [{"p": 0.0}, {"p": 0.3, "Residual": 1.5}])
def test_held_components_stay(hold):
    whole = model("per document")
    names = whole.component_names
    recipe = Recipe(REML(hold=hold), names)
    several = StrataRefits.of(whole.statistics, recipe, np.full(len(names), 0.5))
    (found,) = several.with_responses([whole.statistics])
    exact = whole.fit("reml", hold=hold)
    for name, value in hold.items():
        assert found.values[names.index(name)] == value
    np.testing.assert_allclose(found.llf, exact.llf, rtol=1e-12)
    np.testing.assert_allclose(found.values, exact.vcomp, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("options", [REML(max_iter=1), ML(tol=1e-12)])
def test_other_ends_of_climbs_are_left_to_the_engine(options):
    whole = model("crossed")
    recipe = Recipe(options, whole.component_names)
    assert StrataRefits.of(whole.statistics, recipe, np.ones(3)) is None


def test_refits_of_balanced_data_end_at_the_mean_squares():
    """REML is the analysis of variance there, if that is positive: refits start at it."""
    rng = np.random.default_rng(4)
    a, b, _ = (x.ravel() for x in np.indices((12, 9, 2)))
    y = rng.normal(size=12)[a] + rng.normal(size=9)[b] + rng.normal(size=(12, 9))[a, b]
    data = {"a": a, "b": b, "y": y + rng.normal(size=a.size)}
    model = vcomp.VarianceComponentsModel("y ~ (1|a*b)", data)
    expected = model.fit("anova").vcomp.to_numpy()
    assert (expected > 0.0).all()
    refit = ByLikelihood(model.statistics, REML(), model.component_names, np.ones(4))
    found = refit(model.statistics)
    assert found.converged
    np.testing.assert_allclose(found.values, expected, rtol=1e-12)
    for method in (REML, ML):
        refit = ByLikelihood(model.statistics, method(hold={"a": 0.25}), model.component_names,
                             np.ones(4))  # fmt: skip
        found = refit(model.statistics)
        wanted = model.fit("reml" if method is REML else "ml", hold={"a": 0.25})
        assert found.values[model.component_names.index("a")] == 0.25
        # Refits end at a decrement of 1e-6, in standard errors.
        np.testing.assert_allclose(found.values, wanted.vcomp, rtol=1e-5)
        assert found.llf == pytest.approx(wanted.llf, rel=1e-10)

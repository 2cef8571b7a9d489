"""The iteration: bounds, limits, hard starts, engines of several kinds."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.altered_engines import AverageOnly, Interrupted, Probing
from tests.helpers.cases import alternately
from tests.helpers.designs import DESIGNS, balanced, unbalanced
from vcomp.estimators.likelihood import maximisation
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.maximisation import maximise


def engine_of(name, seed=11, kind=BlockedLikelihood, **options):
    formula, data = unbalanced(name, seed=seed)
    model = vcomp.VarianceComponentsModel(formula, data)
    likelihood = kind(model.statistics.cross_products, reml=True, **options)
    return (
        model,
        likelihood,
        np.array([*model.statistics.cross_products.sizes, model.nobs], dtype=float),
    )


def assert_same_maximum(found, expected):
    assert found.converged
    scale = expected.vcomp.sum()
    np.testing.assert_allclose(found.v, expected.vcomp, rtol=1e-7, atol=1e-9 * scale)


@pytest.mark.parametrize(
    ("name", "kind"), alternately(sorted(DESIGNS), BlockedLikelihood, AverageOnly, Probing)
)
def test_any_start_leads_to_the_same_maximum(name, kind):
    """From 1e-8 to 1e8 times the answer, together and each component by itself, and from zeros."""
    model, likelihood, sizes = engine_of(name, kind=kind)
    expected = model.fit()
    answer = expected.vcomp.to_numpy()
    base = np.maximum(answer, 1e-3 * answer.sum())
    rng = np.random.default_rng(5)
    starts = [base * factor for factor in (1e-8, 1.0, 1e8)]
    starts += [base * 10.0 ** rng.uniform(-8, 8, base.size) for _ in range(2)]
    starts += [np.append(np.zeros(base.size - 1), residual) for residual in (1.0, 1e-8)]
    for start in starts:
        found = maximise(likelihood, start, sizes)
        assert_same_maximum(found, expected)
        assert found.iterations <= 80


@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_the_end_is_quadratic(name):
    """Each of the last Newton decrements is about the square of the one before."""
    model, likelihood, sizes = engine_of(name)
    start = np.full(sizes.size, model.endog.var())
    found = maximise(likelihood, start, sizes, tol=1e-11)
    decrements = [point.newton_decrement for point in found.log]
    most = min(1e-2, likelihood.newton_below)  # where steps are Newton's
    near = [(a, b) for a, b in pairwise(decrements) if 1e-6 < a < most]
    assert decrements[-1] < 1e-9
    assert near
    # The factor is the relative third derivative; 10 covers a component just above its bound.
    assert all(b < 10.0 * a**2 + 1e-10 for a, b in near)
    assert found.log[-1].step == "Newton"


@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_the_likelihood_never_falls(name):
    _, likelihood, sizes = engine_of(name)
    start = np.geomspace(1e-3, 1e3, sizes.size)
    for order in (start, start[::-1]):
        found = maximise(likelihood, order, sizes)
        values = [point.loglike for point in found.log]
        assert all(b >= a - 1e-10 * abs(a) for a, b in pairwise(values))
        assert found.log[0].step == "start"
        np.testing.assert_array_equal(found.log[0].components, order)
        np.testing.assert_array_equal(found.log[-1].components, found.v)
        assert all(0.0 < point.fraction <= 1.0 for point in found.log[1:])
        assert all(
            point.n_bound == np.count_nonzero(np.array(point.components) == 0.0)
            for point in found.log
        )


def test_every_kind_of_step_has_its_use():
    """Scaling for a wrong unit, EM for one component far too large, AI between, Newton at last."""
    _, likelihood, sizes = engine_of("one way")
    seen = set()
    for place in range(sizes.size):
        for factor in (1e-6, 1e6):
            start = np.full(sizes.size, 2.0)
            start[place] *= factor
            log = maximise(likelihood, start, sizes).log
            seen |= {point.step for point in log}
            assert log[-1].step == "Newton"
    assert seen == {"start", "scale", "AI", "EM", "Newton"}


@pytest.mark.parametrize(
    ("name", "factor"), alternately(sorted(DESIGNS), 2.0**-30, 1e9, 2.0**40, 1e-7)
)
def test_the_unit_of_the_response_does_not_matter(name, factor):
    """With y → a·y the same steps are taken, and components grow by a²."""
    formula, data = unbalanced(name, seed=3)
    one = vcomp.fit(formula, data)
    other = vcomp.fit(formula, data.assign(y=factor * data["y"]))
    np.testing.assert_allclose(other.vcomp, factor**2 * one.vcomp, rtol=1e-9)
    assert other.iterations["step"].tolist() == one.iterations["step"].tolist()
    np.testing.assert_allclose(other.bse_vcomp, factor**2 * one.bse_vcomp, rtol=1e-8)
    np.testing.assert_allclose(other.iterations["fraction"], one.iterations["fraction"])


@pytest.mark.rounding
def test_a_multiplier_of_zero_is_a_bound_as_well():
    """Mean squares are exactly equal: σ²(g) = 0 without being pushed there."""
    data = {"g": ["a", "a", "b", "b"], "y": [0.0, 6.0, 4.0, 12.0]}
    # Between: 2 (3 − 5.5)² + 2 (8 − 5.5)² = 25 on 1 df; within: (18 + 32)/2 = 25.
    for start in (None, {"g": 1.0}, {"g": 1e4, "Residual": 1e-3}, {"g": 0.0}):
        res = vcomp.fit("y ~ (1|g)", data, start=start)
        assert res.converged
        assert res.vcomp["g"] == 0.0
        assert res.vcomp["Residual"] == pytest.approx(25.0, rel=1e-9)
        assert res.certificate.bound_scores["g"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("ratio", [1e-6, 1e-3, 1e3, 1e6])
def test_components_decades_apart(ratio):
    """One-way balanced: the closed form, whatever the ratio of the variances."""
    rng = np.random.default_rng(4)
    a, n = 30, 5
    effects = np.sqrt(ratio) * rng.normal(size=a)
    data = pd.DataFrame({"a": np.repeat(range(a), n)})
    data["y"] = effects[data["a"]] + rng.normal(size=a * n)
    means = data.groupby("a")["y"].mean()
    within = (data["y"] - means[data["a"]].to_numpy()).pow(2).sum() / (a * (n - 1))
    between = n * means.var()
    res = vcomp.fit("y ~ (1|a)", data)
    interior = between > within
    expected = [(between - within) / n, within] if interior else [0.0, data["y"].var()]
    np.testing.assert_allclose(res.vcomp, expected, rtol=1e-7)


SPANS = [
    (1e4, 1.0, 1e-10), (1e4, 1e-3, 1e-10), (1.0, 1e-10, 1e-10), (1.0, 1e-5, 1e-10),
    (1e8, 1.0, 1e-4), (1e-10, 1.0, 1e4), (1.0, 1e-10, 1e4), (1e-10, 1e4, 1e-6),
]  # fmt: skip


@pytest.mark.parametrize("variances", SPANS)
def test_fourteen_decades(variances):
    """Balanced nested data against mean squares in extended precision."""
    a, b, n = 20, 6, 4
    rng = np.random.default_rng(1)
    outer = np.repeat(range(a), b * n)
    inner = np.repeat(range(a * b), n)
    va, vb, ve = variances
    y = np.sqrt(va) * rng.normal(size=a)[outer] + np.sqrt(vb) * rng.normal(size=a * b)[inner]
    y = y + np.sqrt(ve) * rng.normal(size=a * b * n)
    table = y.astype(np.longdouble).reshape(a, b, n)
    cells, groups, mean = table.mean(2), table.mean((1, 2)), table.mean()
    ss = [
        b * n * ((groups - mean) ** 2).sum(),
        n * ((cells - groups[:, None]) ** 2).sum(),
        ((table - cells[:, :, None]) ** 2).sum(),
    ]
    df = [a - 1, a * (b - 1), a * b * (n - 1)]
    # A mean square that is smaller than the one inside it is pooled with it.
    while any(ss[k] / df[k] < ss[k + 1] / df[k + 1] for k in range(len(ss) - 1)):
        k = next(k for k in range(len(ss) - 1) if ss[k] / df[k] < ss[k + 1] / df[k + 1])
        ss[k : k + 2], df[k : k + 2] = [ss[k] + ss[k + 1]], [df[k] + df[k + 1]]
    res = vcomp.fit("y ~ (1|a/b)", {"y": y, "a": outer, "b": inner})
    assert res.converged
    assert np.count_nonzero(res.vcomp) == len(ss)
    assert res.vcomp["Residual"] == pytest.approx(float(ss[-1] / df[-1]), rel=1e-9)
    largest = {3: n * b, 2: n if res.vcomp["a"] == 0.0 else n * b}
    if len(ss) > 1:
        expected = (ss[0] / df[0] - ss[1] / df[1]) / largest[len(ss)]
        assert res.vcomp.iloc[res.vcomp.to_numpy().nonzero()[0][0]] == pytest.approx(
            float(expected), rel=1e-8
        )


@pytest.mark.parametrize("name", ["crossed", "three facets"])
def test_unbalanced_fit_with_large_crossing_effects(name):
    """A residual four decades below the rest is found as well."""
    formula, data = balanced(name, seed=2, scale=100.0)
    data = data[np.random.default_rng(0).random(len(data)) > 0.2]
    res = vcomp.fit(formula, data)
    assert res.converged
    assert res.certificate.kkt_residual < 1e-6


@pytest.mark.parametrize(("offset", "complete"), [(0.0, True), (1e3, False)])
def test_effects_that_reproduce_the_response_are_refused(offset, complete):
    rng = np.random.default_rng(0)
    a, b = np.repeat(range(20), 15), np.tile(range(15), 20)
    y = np.round(5.0 * rng.normal(size=20))[a] + np.round(5.0 * rng.normal(size=15))[b] + offset
    kept = np.ones(300, dtype=bool) if complete else rng.random(300) < 0.8
    data = {"y": y[kept], "a": a[kept], "b": b[kept]}
    with pytest.raises(vcomp.EstimationError, match="reproduce the response exactly"):
        vcomp.fit("y ~ (1|a) + (1|b)", data)


@pytest.mark.parametrize("name", ["crossed", "three facets"])
def test_an_interrupted_iteration_leaves_nothing_behind(name):
    """The engine gives the same answer bit by bit, wherever it was interrupted."""
    _, undisturbed, sizes = engine_of(name)
    start = np.full(sizes.size, 0.5)
    expected = maximise(undisturbed, start, sizes)
    for at in np.linspace(1, expected.evaluations, 4, dtype=int):
        _, likelihood, _ = engine_of(name, kind=Interrupted, at=at)
        with pytest.raises(KeyboardInterrupt):
            maximise(likelihood, start, sizes)
        again = maximise(likelihood, start, sizes)
        np.testing.assert_array_equal(again.v, expected.v)
        assert again.log[1:] == expected.log[1:]


def test_held_components_stay():
    model, likelihood, sizes = engine_of("three facets")
    start = np.full(sizes.size, 1.5)
    held = np.arange(sizes.size) % 3 == 0
    found = maximise(likelihood, start, sizes, held=held)
    np.testing.assert_array_equal(found.v[held], 1.5)
    assert found.converged
    free = ~held & (found.v > 0.0)
    score = model.score(found.v)
    np.testing.assert_allclose((score * found.v)[free], 0.0, atol=1e-9)
    assert (score[~held & (found.v == 0.0)] < 0.0).all()


@pytest.mark.parametrize("decades", [0, 6])
def test_thirty_terms(decades):
    """Effects of thirty facets, alike in size or over decades: rounding is said where it ends."""
    rng = np.random.default_rng(0)
    n, sizes = 900, [5 + k // 2 for k in range(30)]
    columns = {f"f{k}": rng.integers(0, q, n) for k, q in enumerate(sizes)}
    scales = 10.0 ** (decades * (np.arange(30) % 7 - 3) / 6)
    y = rng.normal(size=n)
    for codes, q, scale in zip(columns.values(), sizes, scales, strict=True):
        y = y + scale * rng.normal(size=q)[codes]
    formula = "y ~ " + " + ".join(f"(1|{name})" for name in columns)
    res = vcomp.fit(formula, {**columns, "y": y})
    assert res.converged
    shown = res.certificate
    assert shown.newton_decrement <= 1e-4
    assert ("rounding error ended the iteration" in res.status) == (shown.newton_decrement > 1e-6)
    assert shown.kkt_residual < 1e-2
    assert min(shown.information_eigenvalues) > 0.1
    # With fifteen levels or so each component is known to a third of itself.
    ratio = res.vcomp.iloc[15:-1] / scales[15:] ** 2
    assert ratio.median() == pytest.approx(1.0, abs=0.5)
    assert res.vcomp["Residual"] == pytest.approx(1.0, rel=0.2)


def kkt(model, v, held):
    """Return the violation of the conditions of a maximum, written out for one component each."""
    score = model.score(v)
    found = [0.0]
    for t in np.flatnonzero(~held):
        # An interior component has a zero score; one at its bound has none that points inside.
        found.append(abs(v[t] * score[t]) if v[t] > 0.0 else v.sum() * max(score[t], 0.0))
    return max(found)


@pytest.mark.parametrize("name", ["one way", "crossed", "nested", "crossed and nested"])
def test_the_violation_at_every_point_is_that_of_its_score(name):
    model, likelihood, sizes = engine_of(name)
    start = np.geomspace(0.2, 5.0, sizes.size)
    for v in (start, start[::-1], np.append(np.zeros(sizes.size - 1), 2.0)):
        for held in (np.zeros(v.size, dtype=bool), np.arange(v.size) == 0):
            found = maximise(likelihood, v, sizes, held=held)
            for point in found.log:
                at = np.array(point.components)
                expected = kkt(model, at, held)
                assert point.kkt_residual == pytest.approx(expected, rel=1e-6, abs=1e-8)
            assert found.log[0].kkt_residual > 1e-3  # zero everywhere would be no measure
            assert found.kkt_residual == found.log[-1].kkt_residual


def test_an_em_step_is_that_of_the_equations():
    """σ² + 2σ⁴ s/q, at least 0, the residual at least a tenth of itself."""
    n_found = 0
    for name in sorted(DESIGNS):
        model, likelihood, sizes = engine_of(name)
        for place in range(sizes.size):
            start = np.full(sizes.size, 2.0)
            start[place] *= 1e6
            for before, after in pairwise(maximise(likelihood, start, sizes).log):
                if after.step != "EM":
                    continue
                v = np.array(before.components)
                expected = v + after.fraction * 2.0 * v**2 * model.score(v) / sizes
                expected = np.maximum(expected, np.append(np.zeros(v.size - 1), 0.1 * v[-1]))
                np.testing.assert_allclose(after.components, expected, rtol=1e-6)
                n_found += 1
    assert n_found >= 5


class Convex(BlockedLikelihood):
    """Has an average information of nothing but rounding."""

    def derivatives(self, v):
        found = super().derivatives(v)
        return replace(found, average=-1e-20 * found.average)


def test_an_em_step_leaves_components_at_zero():
    """It is in proportion to σ⁴, though the score there is positive."""
    model, _, sizes = engine_of("crossed")
    start = np.ones(sizes.size)
    start[0] = 0.0
    assert model.score(start)[0] > 0.0
    held = np.zeros(sizes.size, dtype=bool)
    search = maximisation._Maximisation(
        Convex(model.statistics.cross_products, reml=True), sizes, held, 1e-8, 9
    )
    here = search.at(start)
    assert here.kind == "EM"
    assert here.step[0] == 0.0
    assert (here.step[1:] != 0.0).all()


@pytest.mark.parametrize("factor", [2.0**-80, 2.0**-40, 2.0**40, 2.0**80])
@pytest.mark.rounding
def test_a_vanishing_residual_is_noticed_at_every_scale(factor):
    """Groups with equal scores: the likelihood has no maximum, in whatever unit."""
    data = pd.DataFrame(
        {"a": np.repeat(range(8), 3), "y": np.repeat([3.0, 1, 4, 1, 5, 9, 2, 6], 3)}
    )
    data["y"] *= factor
    with pytest.raises(vcomp.EstimationError, match="reproduce the response exactly"):
        vcomp.fit("y ~ (1|a)", data)
    model = vcomp.VarianceComponentsModel("y ~ (1|a)", data)
    likelihood, sizes = (
        BlockedLikelihood(model.statistics.cross_products, reml=True),
        np.array([8.0, 24.0]),
    )
    found = maximise(likelihood, np.full(2, factor**2), sizes, max_iter=100)
    assert not found.converged
    assert not found.at_limit
    assert found.saturated
    assert 0.0 < found.v[-1] <= 1e-9 * found.v.sum()  # where the climb is ended

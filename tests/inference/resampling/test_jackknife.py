"""The jackknife over levels: closed forms, textbook identities, and frames without a level."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vcomp
from tests.helpers.refits import fit_again, table
from vcomp.inference.quantities import Quantities, Smooth
from vcomp.inference.resampling.delete_one import jackknife


def mean_square_components(Y):
    """Return σ²(p), σ²(i) and σ²(pi) of a two-way table by its mean squares."""
    n, m = Y.shape
    rows, columns = Y.mean(axis=1) - Y.mean(), Y.mean(axis=0) - Y.mean()
    rest = Y - Y.mean(axis=1)[:, None] - Y.mean(axis=0) + Y.mean()
    ms_rest = np.square(rest).sum() / ((n - 1) * (m - 1))
    ms_p, ms_i = m * rows @ rows / (n - 1), n * columns @ columns / (m - 1)
    return np.array([(ms_p - ms_rest) / m, (ms_i - ms_rest) / n, ms_rest])


@pytest.fixture(scope="module")
def crossed():
    rng = np.random.default_rng(4)
    n, m = 9, 6
    Y = 2.0 + rng.normal(size=(n, m)) + rng.normal(size=(n, 1)) + 2.0 * rng.normal(size=m)
    frame = pd.DataFrame([(p, i) for p in range(n) for i in range(m)], columns=["p", "i"])
    return Y, fit_again("y ~ (1|p) + (1|i)", frame.assign(y=Y.ravel()))


@pytest.mark.parametrize(("facet", "axis"), [("p", 0), ("i", 1)])
def test_two_crossed_facets_by_mean_squares(crossed, facet, axis):
    Y, (fit, design, _, res) = crossed
    n = Y.shape[axis]
    found = jackknife(fit, design, facet)
    left = np.array([mean_square_components(np.delete(Y, j, axis)) for j in range(n)])
    whole = mean_square_components(Y)
    np.testing.assert_allclose(found.values, left, rtol=1e-11)
    pseudo = n * whole - (n - 1) * left
    np.testing.assert_allclose(found.adjusted, pseudo, rtol=1e-10)
    one = found.of(lambda v: v[:, 0], alpha=0.1)
    np.testing.assert_allclose(one.pseudo_values, pseudo[:, 0], rtol=1e-10)
    assert one.value == pytest.approx(res.vcomp["p"], rel=1e-12)
    assert one.se == pytest.approx(stats.sem(pseudo[:, 0]), rel=1e-10)
    low, high = stats.t.interval(0.9, n - 1, pseudo[:, 0].mean(), stats.sem(pseudo[:, 0]))
    assert (one.low, one.high) == pytest.approx((low, high), rel=1e-9)
    assert one.df == found.df == n - 1


@pytest.mark.parametrize("facet", ["p", "i"])
def test_components_of_balanced_data_are_their_own_jackknife(crossed, facet):
    # They are U-statistics of the levels, of which the jackknife finds no bias.
    _, (fit, design, _, res) = crossed
    found = jackknife(fit, design, facet)
    for place, value in enumerate(res.vcomp):
        assert found.of(lambda v, c=place: v[:, c]).estimate == pytest.approx(value, rel=1e-11)


def test_a_mean_over_levels_has_the_standard_error_of_a_mean():
    # Within groups of equal size σ²_e is the mean of the groups' variances.
    formula, frame = table("i : p")
    fit, design, _, _ = fit_again(formula, frame)
    found = jackknife(fit, design, "p").of(lambda v: v[:, 1])
    variances = frame.groupby("p").y.var(ddof=1).to_numpy()
    np.testing.assert_allclose(found.pseudo_values, variances, rtol=1e-10)
    assert found.se == pytest.approx(stats.sem(variances), rel=1e-10)


@pytest.mark.parametrize("scale", ["log", "logit"])
def test_other_scales(crossed, scale):
    Y, (fit, design, _, _) = crossed
    n = len(Y)
    to, back = {
        "log": (np.log, np.exp),
        "logit": (lambda x: np.log(x / (1 - x)), lambda x: 1 / (1 + np.exp(-x))),
    }[scale]

    def generalizability(v):
        return v[:, 0] / (v[:, 0] + v[:, 2] / 6.0)

    found = jackknife(fit, design, "p").of(generalizability, transform=scale)
    left = [mean_square_components(np.delete(Y, j, 0)) for j in range(n)]
    natural = generalizability(np.array(left))
    whole = generalizability(mean_square_components(Y)[None])[0]
    pseudo = n * to(whole) - (n - 1) * to(natural)
    ends = stats.t.interval(0.95, n - 1, pseudo.mean(), stats.sem(pseudo))
    assert (found.low, found.high) == pytest.approx(tuple(back(np.array(ends))), rel=1e-9)
    assert found.estimate == pytest.approx(back(pseudo.mean()), rel=1e-9)
    assert found.se == pytest.approx(stats.sem(n * whole - (n - 1) * natural), rel=1e-9)


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
def test_a_nested_facet_by_the_groups_that_it_is_in():
    formula, frame = table("p x (i:h)", seed=2)
    # Two, three and one item: the last is alone and not left out.
    extra = frame[(frame.h == 1) & (frame.i == 0)].assign(
        i=2, y=lambda d: d.y.add([1.0, -2.0, 0.5])
    )
    frame = pd.concat([frame[~((frame.h == 2) & (frame.i == 1))], extra], ignore_index=True)
    fit, design, _, res = fit_again(formula, frame)
    found = jackknife(fit, design, "i")
    assert found.levels == ("0:0", "0:1", "1:0", "1:1", "1:2")
    left = []
    for level in found.levels:
        h, i = map(int, level.split(":"))
        fewer = frame[~((frame.h == h) & (frame.i == i))]
        left.append(vcomp.fit(formula, fewer, method="anova").vcomp.to_numpy())
    left, whole = np.array(left), res.vcomp.to_numpy()
    np.testing.assert_allclose(found.values, left, rtol=0, atol=1e-11 * whole.max())
    one = found.of(lambda v: v[:, 1])
    first, second = left[:2, 1], left[2:, 1]
    expected = whole[1] + (whole[1] - first.mean()) + 2.0 * (whole[1] - second.mean())
    variance = first.var(ddof=1) / 2.0 + 4.0 * second.var(ddof=1) / 3.0
    assert one.estimate == pytest.approx(expected, rel=1e-9)
    assert one.se == pytest.approx(np.sqrt(variance), rel=1e-9)
    assert one.df == 1 + 2
    assert found.frame.index.tolist() == list(found.levels)


def test_facets_within_those_left_out_go_with_them():
    formula, frame = table("(p:c) x i")
    fit, design, _, _ = fit_again(formula, frame, "reml")
    found = jackknife(fit, design, "c", workers=2)
    assert found.kind == "jackknife"
    for row, c in enumerate(found.levels):
        res = vcomp.fit(formula, frame[frame.c != int(c)])
        assert found.llf[row] == pytest.approx(res.llf, abs=1e-7)
        # REML stops where the decrement is 1e-8 standard errors.
        atol = 1e-6 * res.vcomp.max()
        np.testing.assert_allclose(found.values[row], res.vcomp, rtol=0, atol=atol)


def test_limits_of_several_quantities(crossed):
    _, (fit, design, _, _) = crossed
    found = jackknife(fit, design, "p")
    variances = found.limits(Quantities("linear", np.eye(3)), 0.05)
    for place in range(3):
        one = found.of(lambda v, c=place: v[:, c], transform="log")
        ends = variances.low[place], variances.high[place]
        assert ends == pytest.approx((one.low, one.high), rel=1e-12)
    shares = Quantities("share", np.array([[1.0, 0, 0]]), np.array([[0, 0, 0.1]]))
    limits = found.limits(shares, 0.2)
    one = found.of(lambda v: v[:, 0] / (v[:, 0] + 0.1 * v[:, 2]), alpha=0.2, transform="logit")
    assert (limits.low[0], limits.high[0]) == pytest.approx((one.low, one.high), rel=1e-12)
    assert limits.interval_method == "jackknife over p, t with 8 df on the logit scale"
    below = found.limits(Quantities("linear", np.array([[-1.0, 0, 0], [1.0, 0, 0]])), 0.05)
    assert any("natural scale" in note for note in below.notes)
    assert variances.notes == ()
    errors = [found.of(lambda v, c=c: v[:, c]).se for c in range(3)]
    found_errors = found.standard_errors(Quantities("linear", np.eye(3)))
    np.testing.assert_allclose(found_errors, errors, rtol=1e-12)
    natural = found.of(lambda v: -v[:, 0])
    assert (below.low[0], below.high[0]) == pytest.approx((natural.low, natural.high), rel=1e-12)


def test_limits_of_a_function_of_fixed_effects_too(crossed):
    Y, (fit, design, _, _) = crossed
    found = jackknife(fit, design, "p")
    mean = Smooth(lambda v, beta: float(beta[0]), lambda v, beta: (v, beta), "real", True)
    # The pseudo-values of the mean are the means of the p.
    means = Y.mean(axis=1)
    ends = stats.t.interval(0.95, 8, means.mean(), stats.sem(means))
    limits = found.limits(mean, 0.05)
    assert (limits.low[0], limits.high[0]) == pytest.approx(ends, rel=1e-10)
    assert found.standard_errors(mean)[0] == pytest.approx(stats.sem(means), rel=1e-10)


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (lambda v: v, {}, r"shape \(10, 3\) for 10 rows"),
        (lambda v: -v[:, 0], {"transform": "log"}, "10 of 10 values are not above 0"),
        (lambda v: 5.0 + v[:, 0], {"transform": "logit"}, "are not between 0 and 1"),
        (lambda v: v[:, 0] * np.nan, {}, "are not finite"),
        (lambda v: v[:, 0], {"transform": "sqrt"}, "transform='sqrt' is not known; it is one of"),
        (lambda v: v[:, 0], {"alpha": 2.0}, "alpha must be between 0 and 1"),
    ],
)
def test_what_a_quantity_cannot_be(crossed, function, options, words):
    _, (fit, design, _, _) = crossed
    with pytest.raises(vcomp.VcompError, match=words):
        jackknife(fit, design, "p").of(function, **options)


def test_two_levels_are_too_few():
    formula, frame = table("p x i")
    fit, design, _, _ = fit_again(formula, frame[frame.p < 2])
    with pytest.raises(vcomp.VcompError, match=r"facet 'p' has 2 levels; .* at least 3"):
        jackknife(fit, design, "p")
    with pytest.raises(vcomp.VcompError, match="did you mean 'p'"):
        jackknife(fit, design, "pp")


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
def test_an_incomplete_jackknife_says_so():
    rows = [(p, 0, k) for p in range(5) for k in range(3)] + [(0, 1, k) for k in range(3)]
    frame = pd.DataFrame(rows, columns=["p", "q", "k"])
    frame["y"] = np.random.default_rng(0).normal(size=len(frame))
    fit, design, _, _ = fit_again("y ~ (1|p) + (1|q)", frame)
    with pytest.warns(vcomp.VcompWarning, match="1 of 5 fits without one p could not be fitted"):
        found = jackknife(fit, design, "p")
    with pytest.raises(vcomp.VcompError, match="not complete: 1 of 5 estimates are missing"):
        found.of(lambda v: v[:, 0])


@pytest.mark.parametrize(
    ("formula", "options"),
    [
        ("y ~ x + (1|a) + (1|b)", {"weights": "w"}),
        ("y ~ x + (x|a) + (1|b)", {}),
        ("y ~ x + (1|a) + (1|b)", {"residual": "half", "weights": "w"}),
    ],
)
def test_scores_that_are_read_in_batches_are_left_out_too(formula, options):
    """Each is a cell of its own, so that weights and products leave the sums with it."""
    rng = np.random.default_rng(2)
    a, b = (codes.ravel() for codes in np.indices((8, 6)))
    x, w = rng.normal(size=48), rng.uniform(0.5, 2.0, 48)
    y = rng.normal(size=8)[a] * (1.0 + x) + rng.normal(size=6)[b] + rng.normal(size=48)
    data = pd.DataFrame({"a": a, "b": b, "half": a // 4, "x": x, "w": w, "y": y})
    kept, read = (
        vcomp.fit(formula, data, stream=stream, **options).jackknife("b")
        for stream in (False, True)
    )
    np.testing.assert_allclose(read.values, kept.values, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(read.llf, kept.llf, rtol=1e-10)

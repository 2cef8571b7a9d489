"""What each method has intervals of, and what it says where it has none."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import special, stats

import vcomp
from vcomp.exceptions import EstimationError, PlanError
from vcomp.gtheory.published import from_components
from vcomp.inference.intervals.limits import (
    AT_BOUND,
    BELOW_ZERO,
    EXACT_F,
    FromComponents,
)
from vcomp.inference.quantities import Quantities, Smooth

COV = np.diag([0.4, 0.3, 0.02])
G = from_components({"p": 2.0, "i": 1.0, "Residual": 4.0}, cov=COV).components


def limits(text_or_q, method, g=G, alpha=0.05):
    return FromComponents(g, method).limits(text_or_q, alpha)


def test_delta_methods_on_their_scales():
    share = Quantities("share", np.array([[1.0, 0, 0]]), np.array([[0, 0, 0.1]]))
    p, d = 2.0, 0.4
    se = np.sqrt(d**2 * 0.4 + p**2 * 0.01 * 0.02) / (p + d) ** 2
    value, z = p / (p + d), stats.norm.isf(0.025)
    wald = limits(share, "wald")
    np.testing.assert_allclose([wald.low[0], wald.high[0]], [value - z * se, value + z * se])
    logit, at = limits(share, "log"), np.log(value / (1 - value))
    reach = z * se / (value * (1 - value))
    expected = [1 / (1 + np.exp(-at + reach)), 1 / (1 + np.exp(-at - reach))]
    np.testing.assert_allclose([logit.low[0], logit.high[0]], expected, rtol=1e-12)


@pytest.mark.parametrize("scale", ["real", "variance", "share"])
@pytest.mark.parametrize("method", ["auto", "wald", "log"])
def test_functions_of_components_and_fixed_effects(scale, method):
    """Var f = g'Cg + h'Dh; on the scale of its values, or that which the method states."""
    unit = 0.05 if scale == "share" else 1.0

    def slopes(v, b):
        return unit * np.array([b[0] ** 2, 0.0, 1.0]), unit * np.array([2.0 * v[0] * b[0], 0.0])

    q = Smooth(lambda v, b: float(unit * (v[0] * b[0] ** 2 + v[2])), slopes, scale, True)
    beta, D = np.array([1.5, 9.0]), np.array([[0.2, 0.1], [0.1, 3.0]])
    found = FromComponents(G, method, beta=beta, cov_beta=D).limits(q, 0.1)
    f = unit * (2.0 * 1.5**2 + 4.0)
    se = unit * np.sqrt(1.5**4 * 0.4 + 0.02 + (2.0 * 2.0 * 1.5) ** 2 * 0.2)
    z, on = stats.norm.isf(0.05), {"wald": "real", "auto": scale}.get(method, scale)
    if (method, scale) == ("log", "real"):
        on = "variance"
    ends = {
        "real": (f - z * se, f + z * se),
        "variance": (f * np.exp(-z * se / f), f * np.exp(z * se / f)),
        "share": special.expit(special.logit(f) + np.array([-z, z]) * se / (f * (1.0 - f))),
    }[on]
    assert (found.low[0], found.high[0]) == pytest.approx(tuple(ends), rel=1e-11)
    with pytest.raises(EstimationError, match="is not defined for functions of the components"):
        FromComponents(G, "mls", beta=beta, cov_beta=D).limits(q, 0.1)


def test_satterthwaite_of_a_standard_deviation_is_the_root_of_the_variances():
    weights = np.array([[1.0, 0.5, 0.0]])
    root = limits(Quantities("root", weights), "satterthwaite")
    linear = limits(Quantities("linear", weights), "satterthwaite")
    np.testing.assert_allclose(root.low**2, linear.low, rtol=1e-12)
    np.testing.assert_allclose(root.high**2, linear.high, rtol=1e-12)
    with pytest.raises(EstimationError, match="for variances, not for ratios"):
        limits(Quantities("ratio", weights, np.array([[0, 0, 1.0]])), "satterthwaite")


def test_f_is_strict():
    data = vcomp.datasets.load("bodoff2007_alpha")
    g = vcomp.fit("score ~ (1|sys) + (1|topic)", data).components
    two = Quantities("ratio", np.array([[1.0, 0, 0]]), np.array([[0, 0, 1.0]]))
    three = Quantities("ratio", np.array([[1.0, 0, 0]]), np.array([[0, 1.0, 1.0]]))
    exact, mls = limits(two, "f", g), limits(two, "mls", g)
    assert exact.interval_method == EXACT_F != mls.interval_method
    np.testing.assert_array_equal([exact.low, exact.high], [mls.low, mls.high])
    for form in ("linear", "root"):  # one mean square, or a sum of them, needs no ratio
        own = Quantities(form, np.eye(3))
        by_f, by_mls = limits(own, "f", g), limits(own, "mls", g)
        np.testing.assert_array_equal([by_f.low, by_f.high], [by_mls.low, by_mls.high])
    with pytest.raises(EstimationError, match="two independent mean squares of a balanced"):
        limits(three, "f", g)
    unbalanced = vcomp.fit("score ~ (1|sys) + (1|topic)", data.iloc[:-1]).components
    with pytest.raises(EstimationError, match="balanced"):
        limits(two, "f", unbalanced)


def test_estimates_at_their_bound_have_one_sided_intervals(shared_data):
    res = vcomp.fit("Yield ~ (1|Batch)", shared_data("Dyestuff2.csv"))
    assert res.vcomp["Batch"] == 0.0
    found = res.interval_source("mls").limits(Quantities("linear", np.eye(2)), 0.05)
    table = res.anova_table()
    S, df = table["mean_sq"].to_numpy(), table["df"].to_numpy()
    # The upper limit is that of (S_a − S_e)/n, from the mean squares as they are.
    c, tail = np.array([0.2, -0.2]), 0.025
    H = 1 / (stats.chi2.isf(1 - tail, df[0]) / df[0]) - 1
    G_e = 1 - df[1] / stats.chi2.isf(tail, df[1])
    f = stats.f.isf(1 - tail, df[0], df[1])
    pair = ((1 - f) ** 2 - H**2 * f**2 - G_e**2) / f
    V = (H * c[0] * S[0]) ** 2 + (G_e * c[1] * S[1]) ** 2 + pair * c[0] * -c[1] * S[0] * S[1]
    upper = c @ S + np.sqrt(V)
    assert found.low[0] == 0.0
    assert found.high[0] == pytest.approx(upper, rel=1e-7)
    assert AT_BOUND in found.notes
    assert AT_BOUND in " ".join(str(res.summary()).split())


def test_an_estimate_of_zero_is_at_a_bound_only_where_there_is_one():
    cov = np.array([[0.4, 0.0, -0.04], [0.0, 0.3, -0.03], [-0.04, -0.03, 0.2]])
    free = from_components({"p": 0.0, "i": 1.0, "Residual": 4.0}, cov=cov).components
    bounded = replace(free, without_bounds=(np.array([-0.1, 1.0, 4.0]), cov))
    one, other, nothing = np.eye(3)[[0]], np.eye(3)[[1]], np.zeros((1, 3))
    for g, weights, expected in (
        (free, one, False),
        (bounded, one, True),
        (bounded, other, False),  # not at its bound
        (bounded, nothing, False),  # zero whatever the components are
        (bounded, np.vstack([other, one]), True),
    ):
        found = limits(Quantities("linear", weights), "mls", g)
        assert (AT_BOUND in found.notes) is expected


def test_a_component_far_below_zero_has_an_upper_limit_of_zero():
    """Both limits of its component are below zero; that of an estimate of zero at 68 % stands in.

    It has both mean squares of the size of the residual's, with degrees of freedom 5 and 24.
    """
    y = np.tile([-2.0, -1.0, 0.0, 1.0, 2.0], 6)
    y[0] += 0.5  # or the group means were equal, with no variance at all
    data = {"y": y, "a": np.repeat(np.arange(6), 5)}
    q = Quantities("linear", np.eye(2))
    share = Quantities("share", np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
    one_error = 2.0 * stats.norm.sf(1.0)
    for method in ("anova", "reml"):
        res = vcomp.fit("y ~ (1|a)", data, method=method)
        residual = res.anova_table().loc["Residual", "mean_sq"]
        cov = residual**2 * np.array([[2 / 5 + 2 / 24, -10 / 24], [-10 / 24, 50 / 24]]) / 25
        at_zero = from_components({"a": 0.0, "Residual": residual}, cov=cov).components
        for quantities in (q, share):
            expected = limits(quantities, "mls", at_zero, one_error).high[0]
            for alpha in (0.5, 0.1, 0.05):
                found = res.interval_source("mls").limits(quantities, alpha)
                assert BELOW_ZERO in found.notes
                assert found.low[0] == 0.0
                assert found.high[0] == pytest.approx(expected, rel=1e-6)


def test_intervals_hold_estimates_at_their_bound():
    """The residual of a fit with another component at zero is pooled, its mean square is not."""
    rng = np.random.default_rng(2)
    for _ in range(30):
        data = {"y": rng.normal(size=8), "g": np.repeat(np.arange(4), 2)}
        res = vcomp.fit("y ~ (1|g)", data)
        ends = res.conf_int().loc["var(Residual)"]
        assert ends[0] <= res.vcomp["Residual"] <= ends[1]


def test_what_cancels_to_rounding_is_neither_sum_nor_difference():
    g = from_components({"p": 2.0, "i": 1.0, "Residual": 4.0}, cov=COV).components
    q = Quantities("linear", np.array([[0.0, 0.1, 0.1], [1e-17, 0.1, 0.1], [-1e-17, 0.1, 0.1]]))
    found = limits(q, "mls", g)
    np.testing.assert_allclose(found.low, found.low[0], rtol=1e-12)
    np.testing.assert_allclose(found.high, found.high[0], rtol=1e-12)


def test_nothing_is_known_without_a_covariance_matrix():
    g = from_components({"p": 1.0, "Residual": 2.0}).components
    q = Quantities("linear", np.eye(2))
    found = FromComponents(g).limits(q, 0.05)
    assert np.isnan([found.low, found.high]).all()
    assert found.interval_method == ""
    with pytest.raises(EstimationError, match="needs a covariance matrix"):
        limits(q, "mls", g)


def test_differences_are_not_cut_at_zero():
    found = limits(Quantities("linear", np.array([[1.0, -1.0, 0.0]])), "mls")
    assert found.low[0] < 0.0 < found.high[0]


def test_intervals_shrink_and_grow_with_alpha():
    q = Quantities("share", np.array([[1.0, 0, 0]]), np.array([[0, 0.1, 0.1]]))
    for method in ("mls", "log", "wald"):
        wide, narrow = limits(q, method, alpha=0.01), limits(q, method, alpha=0.3)
        assert wide.low[0] < narrow.low[0] < narrow.high[0] < wide.high[0]


def test_scale_invariance():
    """Scores in other units: variances by the square, shares not at all."""
    c = 1e-4
    other = from_components({"p": 2.0 * c, "i": 1.0 * c, "Residual": 4.0 * c}, cov=COV * c**2)
    share = Quantities("share", np.array([[1.0, 0, 0]]), np.array([[0, 0.1, 0.1]]))
    variance = Quantities("linear", np.array([[0.0, 0.1, 0.1]]))
    a, b = limits(share, "mls"), limits(share, "mls", other.components)
    np.testing.assert_allclose([b.low, b.high], [a.low, a.high], rtol=1e-9)
    a, b = limits(variance, "mls"), limits(variance, "mls", other.components)
    np.testing.assert_allclose([b.low, b.high], [a.low * c, a.high * c], rtol=1e-9)


def test_errors():
    q = Quantities("linear", np.eye(3))
    with pytest.raises(
        EstimationError, match=r"'exakt' is not known; intervals are 'auto', 'robust', 'mls'"
    ):
        FromComponents(G, "exakt")
    for alpha in (0, 1, 5, True, "x"):
        with pytest.raises(PlanError, match="alpha must be between 0 and 1"):
            limits(q, "mls", alpha=alpha)


def unbalanced_below_zero():
    """Return estimates of an unbalanced nested design in which one is far below zero."""
    rng = np.random.default_rng(17)
    sizes = [1, 3, 1, 2]
    outer = np.repeat(np.arange(4), 2 * np.array(sizes))
    inner = np.repeat(np.arange(sum(sizes)), 2)
    y = rng.normal(size=14) - 3.0 * np.tile([1.0, -1.0], 7)
    return vcomp.fit("y ~ (1|a/b)", {"y": y, "a": outer, "b": inner}, method="henderson3")


def test_intervals_hold_estimates_that_are_taken_as_zero():
    res = unbalanced_below_zero()
    assert (res.vcomp < 0.0).any()
    table = res.dstudy().table.iloc[0]
    for name in ("rel_err_var", "abs_err_var"):
        assert table[f"{name}_low"] <= table[name] <= table[f"{name}_high"]
    kept = res.dstudy(negative="keep").table.iloc[0]
    assert kept["rel_err_var_high"] <= table["rel_err_var_high"]


def test_combinations_below_zero_have_intervals():
    """σ²(a) + b σ²(e) is negative with these estimates, as the residual is small."""
    cov = np.array([[0.5, -0.01], [-0.01, 0.01]])
    g = from_components({"a": -1.0, "Residual": 0.2}, cov=cov).components
    found = limits(Quantities("linear", np.eye(2)), "mls", g)
    assert found.low[0] == 0.0 < found.high[0]
    assert 0.0 < found.low[1] < 0.2 < found.high[1]
    # The residual alone is χ² with 2 · .2²/.01 degrees of freedom.
    ends = 8 * 0.2 / stats.chi2.isf([0.025, 0.975], 8)
    np.testing.assert_allclose([found.low[1], found.high[1]], ends, rtol=1e-9)


@pytest.mark.parametrize("method", ["anova", "reml"])
def test_upper_limits_grow_with_confidence_whatever_the_sign_of_the_estimate(method):
    """They go over from one rule to the other where the estimate is zero, not the limit."""
    rng = np.random.default_rng(11)
    signs = set()
    for _ in range(5):
        data = {"y": rng.normal(size=30), "a": np.repeat(range(6), 5)}
        res = vcomp.fit("y ~ (1|a)", data, method=method)
        signs.add(float(np.sign(res.vcomp["a"])))
        for what in ("a", "share(a)", "a / Residual"):
            ends = [res.quantity(what, alpha=x) for x in (0.5, 0.2, 0.1, 0.05, 0.01, 1e-4)]
            for inner, outer in pairwise(ends):
                assert outer.low <= inner.low <= inner.high <= outer.high
                assert inner.high > 0.0
    assert len(signs) == 2


def test_upper_limits_are_continuous_where_the_estimate_is_zero():
    cov = np.array([[0.4, 0.0, -0.04], [0.0, 0.3, -0.03], [-0.04, -0.03, 0.2]])
    ends = []
    for shift in (-1e-7, 0.0, 1e-7):
        g = from_components({"p": shift, "i": 1.0, "Residual": 4.0}, cov=cov).components
        q = [
            Quantities("linear", np.eye(3)[:1]),
            Quantities("share", np.eye(3)[:1], np.array([[0.0, 0.1, 0.1]])),
        ]
        ends.append([limits(x, "mls", g).high[0] for x in q])
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-4)
    np.testing.assert_allclose(ends[2], ends[1], rtol=1e-4)


@pytest.mark.parametrize(
    ("shift", "alpha", "raised"),
    [(-1e-9, 0.5, True), (-1e-9, 0.01, False), (0.0, 0.5, False), (1e-9, 0.5, False)],
)
def test_only_estimates_below_zero_have_at_least_the_limit_of_zero(shift, alpha, raised):
    """It is that of 68 %, which is more than that of 50 % and less than that of 99 %."""
    cov = np.array([[0.4, 0.0, -0.04], [0.0, 0.3, -0.03], [-0.04, -0.03, 0.2]])
    g = from_components({"p": shift, "i": 1.0, "Residual": 4.0}, cov=cov).components
    one = Quantities("linear", np.eye(3)[:1])
    found = limits(one, "mls", g, alpha)
    assert (BELOW_ZERO in found.notes) == raised
    at_zero = replace(g, values=np.array([0.0, 1.0, 4.0]))
    level = 2.0 * stats.norm.sf(1.0) if raised else alpha
    assert found.high[0] == pytest.approx(limits(one, "mls", at_zero, level).high[0], rel=1e-6)


def test_a_held_component_above_an_estimated_one_is_its_reciprocal():
    """What is held is known, although it has no mean square of its own."""
    rng = np.random.default_rng(0)
    a, b = (x.ravel() for x in np.indices((8, 6)))
    y = rng.normal(size=8)[a] + rng.normal(size=6)[b] + rng.normal(size=48)
    res = vcomp.fit("y ~ (1|a) + (1|b)", {"a": a, "b": b, "y": y}, hold={"b": 0.5})
    low, high = res.conf_int(interval="mls").loc["var(a)"]
    found = res.quantity("b / a", interval="mls")
    assert (found.low, found.high) == pytest.approx((0.5 / high, 0.5 / low), rel=1e-9)


def test_what_depends_only_on_components_that_are_not_known_is_undetermined():
    """Of a, which is neither estimated nor held, b, which is held, and the residual."""
    of = SimpleNamespace(components=SimpleNamespace(names=("a", "b", "Residual"), held=("b",)))
    squares = SimpleNamespace(places=np.array([2]))
    a = np.array([[1.0, 0, 0], [1.0, 0, 0.5], [0, 1.0, 0], [0, 0, 0], [2.0, -1.0, 0], [0, 0, 1.0]])
    found = FromComponents._is_undetermined(of, squares, SimpleNamespace(a=a, b=None))
    assert found.tolist() == [True, False, False, False, False, False]
    found = FromComponents._is_undetermined(of, squares, SimpleNamespace(a=a, b=a[::-1]))
    assert found.tolist() == [True, False, False, False, False, True]

"""Intervals from quantiles of replicates."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vcomp
from vcomp.exceptions import EstimationError, PlanError
from vcomp.inference.quantities import Quantities, Smooth
from vcomp.inference.resampling.replicates import FromReplicates, Replicates

RNG = np.random.default_rng(5)
VALUES = RNG.chisquare([5, 9], size=(4000, 2)) / [5, 9] * [2.0, 1.0]
ESTIMATES = np.array([2.0, 1.0])
COMPONENTS = Quantities("linear", np.eye(2))
SHARE = Quantities("share", np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))


def replicates(values=VALUES, converged=None, adjusted=None, beta=None):
    n = len(values)
    return Replicates(
        kind="parametric",
        names=("a", "Residual"),
        fixed_names=("Intercept",),
        numbers=np.arange(n),
        values=values,
        beta=np.zeros((n, 1)) if beta is None else beta,
        llf=np.zeros(n),
        converged=np.ones(n, dtype=bool) if converged is None else converged,
        seed=0,
        requested=n,
        adjusted=adjusted,
    )


def source(kind="percentile", **changed):
    return FromReplicates(replicates(**changed), ESTIMATES, np.zeros(1), kind)


def test_percentiles():
    found = source().limits(COMPONENTS, 0.1)
    expected = np.quantile(VALUES, [0.05, 0.95], axis=0)
    np.testing.assert_allclose([found.low, found.high], expected, rtol=1e-14)
    assert found.interval_method == "percentile of 4,000 parametric replicates"
    assert found.notes == ()
    # They go with any monotone function.
    share = source().limits(SHARE, 0.1)
    ratio = source().limits(Quantities("ratio", SHARE.a, SHARE.b), 0.1)
    np.testing.assert_allclose(share.low, ratio.low / (1 + ratio.low), rtol=1e-3)


def test_reflected_on_the_log_scale():
    """Basic intervals of a variance are [σ̂⁴/q_high, σ̂⁴/q_low], exact where σ̂² is c χ²."""
    found = source("basic").limits(COMPONENTS, 0.1)
    q = np.quantile(VALUES, [0.05, 0.95], axis=0)
    np.testing.assert_allclose([found.low, found.high], ESTIMATES**2 / q[::-1], rtol=1e-12)
    exact = 5 * 2.0 / stats.chi2.isf([0.05, 0.95], 5)
    # 4,000 replicates know the quantiles to some percent.
    np.testing.assert_allclose([found.low[0], found.high[0]], exact, rtol=0.06)


def test_bias_correction():
    found = source("bias-corrected").limits(COMPONENTS, 0.1)
    for j in range(2):
        z0 = stats.norm.ppf(np.mean(VALUES[:, j] < ESTIMATES[j]))
        tails = stats.norm.cdf(2 * z0 + stats.norm.ppf([0.05, 0.95]))
        expected = np.quantile(VALUES[:, j], tails)
        np.testing.assert_allclose([found.low[j], found.high[j]], expected, rtol=1e-12)


TIES, SPREAD = np.repeat(np.arange(5.0), 8), np.linspace(0.1, 4.0, 40)


@pytest.mark.parametrize(
    ("values", "estimate", "alpha"),
    [*((TIES, estimate, 0.2) for estimate in (-1.0, 0.0, 1.0, 4.0, 9.0)),
     *((SPREAD, estimate, 0.002) for estimate in (-1.0, 9.0))],
)  # fmt: skip
def test_bias_correction_with_ties_and_on_one_side(values, estimate, alpha):
    """Ties count half; where all lie on one side, half a replicate of 40 is on the other."""
    below = np.mean(values < estimate) + 0.5 * np.mean(values == estimate)
    z0 = stats.norm.ppf(min(max(below, 1 / 80), 79 / 80))
    tails = stats.norm.cdf(2 * z0 + stats.norm.ppf([0.5 * alpha, 1.0 - 0.5 * alpha]))
    made = FromReplicates(
        replicates(np.column_stack([values, values])),
        np.array([estimate, 1.0]),
        np.zeros(1),
        "bias-corrected",
    )
    found = made.limits(COMPONENTS, alpha)
    expected = np.quantile(values, tails)
    np.testing.assert_allclose([found.low[0], found.high[0]], expected, rtol=1e-12)


def test_an_estimate_of_zero_is_not_reflected():
    values = np.column_stack([np.maximum(VALUES[:, 0] - 2.0, 0.0), VALUES[:, 1]])
    made = FromReplicates(replicates(values), np.array([0.0, 1.0]), np.zeros(1), "basic")
    found = made.limits(COMPONENTS, 0.1)
    assert found.low[0] == 0.0 < found.high[0] < np.inf


def test_functions_and_fixed_effects():
    beta = RNG.normal(size=(4000, 1))
    q = Smooth(lambda v, b: float(v[0] + b[0]), lambda v, b: (np.eye(2)[0], np.ones(1)))
    found = source(beta=beta).limits(q, 0.1)
    expected = np.quantile(VALUES[:, 0] + beta[:, 0], [0.05, 0.95])
    np.testing.assert_allclose([found.low[0], found.high[0]], expected, rtol=1e-12)


def test_adjusted_values_are_those_that_count():
    found = source(adjusted=VALUES * 1.1).limits(COMPONENTS, 0.1)
    expected = np.quantile(VALUES * 1.1, [0.05, 0.95], axis=0)
    np.testing.assert_allclose([found.low, found.high], expected, rtol=1e-14)


def test_what_did_not_converge_is_left_out_and_said():
    converged = np.arange(4000) >= 100
    found = source(converged=converged).limits(COMPONENTS, 0.1)
    expected = np.quantile(VALUES[100:], [0.05, 0.95], axis=0)
    np.testing.assert_allclose([found.low, found.high], expected, rtol=1e-14)
    assert found.notes[0].startswith("in 100 of 4,000 replicates")


@pytest.mark.parametrize(
    ("n", "alpha", "wanted"),
    [(50, 0.05, "800"), (799, 0.05, "800"), (800, 0.05, ""), (399, 0.1, "400"), (400, 0.1, ""),
     (133, 0.3, "134"), (134, 0.3, "")],
)  # fmt: skip
def test_few_replicates_are_said(n, alpha, wanted):
    """With fewer than twenty beyond each end."""
    found = source(values=VALUES[:n]).limits(COMPONENTS, alpha)
    said = f"with {n} replicates the ends are uncertain; use {wanted} or more"
    assert found.notes == ((said,) if wanted else ())


def test_shares_are_reflected_on_the_logit_scale():
    found = source("basic").limits(SHARE, 0.1)
    odds, at = VALUES[:, 0] / VALUES[:, 1], 2.0
    low, high = at**2 / np.quantile(odds, [0.95, 0.05])
    # A quantile between two replicates is not transformed with them.
    np.testing.assert_allclose([found.low[0], found.high[0]], [low / (1 + low), high / (1 + high)],
                               rtol=1e-3)  # fmt: skip


def test_a_quantity_that_is_not_defined_is_left_out_where_it_is_not():
    """Of two ratios one is 0/0 in three replicates, and the other in none."""
    values = VALUES.copy()
    values[[3, 9, 400]] = 0.0
    q = Quantities("ratio", np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 0.5]]))
    found = source(values=values).limits(q, 0.1)
    rest = np.delete(VALUES, [3, 9, 400], axis=0)
    for place, factor in enumerate((1.0, 2.0)):
        expected = np.quantile(factor * rest[:, 0] / rest[:, 1], [0.05, 0.95])
        ends = found.low[place], found.high[place]
        np.testing.assert_allclose(ends, expected, rtol=1e-13)
    assert found.notes[0].startswith("in 3 of 4,000 replicates")
    assert found.interval_method == "percentile of 3,997 parametric replicates"


def test_one_known_value_has_no_interval():
    converged = np.array([True, False, False])
    found = source(values=VALUES[:3], converged=converged).limits(COMPONENTS, 0.1)
    assert np.isnan([found.low, found.high]).all()
    converged[1] = True
    found = source(values=VALUES[:3], converged=converged).limits(COMPONENTS, 0.1)
    np.testing.assert_allclose(found.low, np.quantile(VALUES[:2], 0.05, axis=0), rtol=1e-14)


def test_errors():
    with pytest.raises(EstimationError, match="bootstrap_type='bca' is not known"):
        source("bca")
    with pytest.raises(EstimationError, match=r"needs at least 2 replicates .*, not 1$"):
        source(values=VALUES[:1])
    assert np.isfinite(source(values=VALUES[:2]).limits(COMPONENTS, 0.1).low).all()
    with pytest.raises(PlanError, match="alpha"):
        source().limits(COMPONENTS, 2)


def test_negative_components_of_replicates_are_taken_as_those_of_the_fit():
    """A D-study takes them as 0 in the estimate, and so in every replicate."""
    rng = np.random.default_rng(5)
    data = pd.DataFrame([(a, b) for a in range(6) for b in range(5)], columns=["a", "b"])
    data["y"] = rng.normal(size=30) + 0.6 * rng.normal(size=6)[data["a"]] + data["b"]
    res = vcomp.fit("y ~ (1|a) + (1|b)", data, method="anova")
    made = res.bootstrap(200, rng=1)
    share = Quantities("share", np.array([[1.0, 0.0, 0.0]]), np.array([[0.0, 0.0, 0.2]]))
    negative = FromReplicates(made, np.array([-0.5, 0.2, 1.0]), np.zeros(1), negative="zero")
    assert negative._values(Quantities("linear", np.eye(3)))[1].tolist() == [0.0, 0.2, 1.0]
    kept = FromReplicates(made, res.vcomp.to_numpy(), np.zeros(1)).limits(share, 0.05)
    zeroed = FromReplicates(made, res.vcomp.to_numpy(), np.zeros(1), negative="zero")
    assert kept.low[0] < 0.0
    values = np.maximum(made.values, 0.0)
    expected = np.quantile(values[:, 0] / (values[:, 0] + 0.2 * values[:, 2]), [0.025, 0.975])
    found = zeroed.limits(share, 0.05)
    np.testing.assert_allclose([found.low[0], found.high[0]], expected, rtol=1e-12)
    row = res.dstudy(b=5, interval=made).table.iloc[0]
    np.testing.assert_allclose([row["Erho2_low"], row["Erho2_high"]], expected, rtol=1e-12)

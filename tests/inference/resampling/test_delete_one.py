"""Jackknives of estimates that are given, by the formulas of (10.13), group by group."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import t as student

from vcomp.exceptions import DataError, EstimationError, PlanError
from vcomp.inference.quantities import Smooth
from vcomp.inference.resampling.delete_one import Jackknife, pseudo_values

GROUPS = np.array([0, 2, 0, 2, 2, 5, 5, 0, 2])


def jackknife(seed=1, groups=GROUPS, converged=None):
    rng = np.random.default_rng(seed)
    n = groups.size
    whole = np.array([1.5, 0.7, 2.0])
    left = whole * np.exp(0.1 * rng.normal(size=(n, 3)))
    known = {
        "kind": "jackknife", "names": ("a", "b", "Residual"), "fixed_names": ("Intercept",),
        "numbers": np.arange(n), "values": left, "beta": 3.0 + 0.1 * rng.normal(size=(n, 1)),
        "llf": np.zeros(n), "seed": 0, "requested": n, "fingerprint": {}, "notes": (),
        "converged": np.ones(n, dtype=bool) if converged is None else converged,
        "adjusted": pseudo_values(whole, left, groups), "facet": "a", "whole": whole,
        "whole_beta": np.array([3.0]), "groups": groups,
        "levels": tuple(f"l{k}" for k in range(n)), "signed": np.zeros(3, dtype=bool),
    }  # fmt: skip
    return Jackknife(**{f.name: known[f.name] for f in fields(Jackknife) if f.name in known})


def by_hand(whole, left, groups):
    """Return the pseudo-values, their combination and its standard error."""
    pseudo, centre, variance = np.empty(left.size), whole, 0.0
    for group in set(groups.tolist()):
        own = np.flatnonzero(groups == group)
        n = own.size
        values = [n * whole - (n - 1) * left[k] for k in own]
        pseudo[own] = values
        mean = sum(values) / n
        centre += mean - whole
        variance += sum((v - mean) ** 2 for v in values) / (n - 1) / n
    return pseudo, centre, np.sqrt(variance)


SCALES = {
    "natural": (lambda v: v[..., 0] - v[..., 1], lambda x: x, lambda x: x),
    "log": (lambda v: v[..., 0], np.log, np.exp),
    "logit": (lambda v: v[..., 0] / v.sum(axis=-1), logit, expit),
}


@pytest.mark.parametrize("groups", [GROUPS, np.zeros(6, dtype=int)])
@pytest.mark.parametrize("transform", SCALES)
@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_one_quantity(transform, alpha, groups):
    made = jackknife(groups=groups)
    function, to, back = SCALES[transform]
    found = made.of(function, alpha=alpha, transform=transform)
    whole, left = function(made.whole), function(made.values)
    pseudo, centre, se = by_hand(to(whole), to(left), groups)
    df = groups.size - len(set(groups.tolist()))
    margin = student.isf(alpha / 2, df) * se
    assert made.df == found.df == df
    np.testing.assert_allclose(found.pseudo_values, pseudo, rtol=1e-12)
    assert found.value == whole
    ends = back(np.array([centre - margin, centre, centre + margin]))
    assert (found.low, found.estimate, found.high) == pytest.approx(tuple(ends), rel=1e-11)
    assert found.se == pytest.approx(by_hand(whole, left, groups)[2], rel=1e-12)


def test_several_quantities():
    made = jackknife()
    smooth = Smooth(
        lambda v, beta: float(v[0] * beta[0]), lambda v, beta: (v, beta), "variance", True
    )
    found = made.limits(smooth, 0.1)
    left = np.array([v[0] * b[0] for v, b in zip(made.values, made.beta, strict=True)])
    _, centre, se = by_hand(np.log(4.5), np.log(left), GROUPS)
    margin = student.isf(0.05, 6) * se
    assert (found.low[0], found.high[0]) == pytest.approx(
        (np.exp(centre - margin), np.exp(centre + margin)), rel=1e-11
    )
    assert found.notes == ()
    assert found.interval_method == "jackknife over a, t with 6 df on the log scale"
    se = by_hand(4.5, left, GROUPS)[2]
    np.testing.assert_allclose(made.standard_errors(smooth), [se], rtol=1e-12)


@pytest.mark.parametrize(
    ("scale", "offset", "natural"),
    [
        ("variance", 0.0, False), ("variance", -1.0, True), ("variance", 9.0, False),
        ("share", 0.0, True), ("real", 0.0, False), ("real", -5.0, False),
    ],
)  # fmt: skip
def test_quantities_at_their_bounds_have_the_natural_scale(scale, offset, natural):
    """A share above 1, or a variance that is not above 0, in all data or without a level."""
    made = jackknife()
    smooth = Smooth(lambda v, b: float(v[0] + offset), lambda v, b: (v, b), scale, False)
    values = made.values[:, 0] + offset
    if scale == "variance" and offset == -1.0:  # zero without one level exactly
        smooth = Smooth(
            lambda v, b: float(v[0] - made.values[:, 0].min()), lambda v, b: (v, b), scale, False
        )
        values = made.values[:, 0] - made.values[:, 0].min()
    found = made.limits(smooth, 0.1)
    whole = smooth.function(made.whole, made.whole_beta)
    assert bool(found.notes) == natural
    if natural or scale == "real":
        _, centre, se = by_hand(whole, values, GROUPS)
        margin = student.isf(0.05, 6) * se
        assert (found.low[0], found.high[0]) == pytest.approx((centre - margin, centre + margin))


def test_what_has_no_jackknife():
    made = jackknife()
    with pytest.raises(EstimationError, match="transform='root' is not known"):
        made.of(lambda v: v[:, 0], transform="root")
    with pytest.raises(PlanError, match="alpha"):
        made.of(lambda v: v[:, 0], alpha=0.0)
    with pytest.raises(EstimationError, match=r"1 of 10 values are not above 0"):
        made.of(lambda v: np.where(np.arange(10) == 3, 0.0, v[:, 0]), transform="log")
    with pytest.raises(EstimationError, match=r"10 of 10 values are not between 0 and 1"):
        made.of(lambda v: np.ones(10), transform="logit")
    with pytest.raises(EstimationError, match=r"2 of 10 values are not finite"):
        made.of(lambda v: np.where(np.arange(10) < 2, np.nan, v[:, 0]))
    with pytest.raises(EstimationError, match="must return one number for each row"):
        made.of(lambda v: v)
    with pytest.raises(DataError, match="not the first 3 only"):
        made.first(3)
    failed = jackknife(converged=np.arange(9) != 4)
    with pytest.raises(EstimationError, match="1 of 9 estimates are missing"):
        failed.of(lambda v: v[:, 0])


def test_a_row_for_each_level():
    frame = jackknife().frame
    assert frame.index.name == "a"
    assert frame.index.tolist() == [f"l{k}" for k in range(9)]

"""Quantities that share a profile: values of all follow from those of one, at any components."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from vcomp.inference.quantities import Quantities
from vcomp.model.interval_sources import _alike, _of_multiple

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
    assert table.loc["topic", ["ci_low", "ci_high"]].isna().all()
    assert table.loc[["sys", "Residual"], ["ci_low", "ci_high"]].notna().all(axis=None)
    source = res.interval_source("profile")
    of_held, mixed = np.array([[0.0, 1.0, 0.0]]), np.array([[0.0, 1.0, 1.0]])
    for b, known in ((of_held, True), (mixed, False)):
        found = source.limits(Quantities("ratio", of_held, b), 0.05)
        assert np.isnan([found.low, found.high]).all() == known
        assert any("held components only" in note for note in found.notes) == known


def test_weights_of_nothing_are_alike():
    q = Quantities("linear", np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]))
    assert _alike(q) == {0: {0: 1.0, 1: 1.0}, 2: {2: 1.0}, 3: {3: 1.0}}
    signed = Quantities("linear", np.array([[1.0, 0.0], [2.0, -0.0], [-0.0, 3.0]]))
    assert _alike(signed) == {0: {0: 1.0, 1: 2.0}, 2: {2: 1.0}}

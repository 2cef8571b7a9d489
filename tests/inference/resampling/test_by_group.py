"""Levels drawn by whole groups: which rows are drawn, and the correction of the bias."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.exceptions import DataError, EstimationError
from vcomp.gtheory import from_components
from vcomp.inference.resampling.facet import expectation
from vcomp.numerics import stream

Y = np.random.default_rng(5).normal(size=(6, 4)) + np.arange(6)[:, None] / 2
GROUPS = {"p": {f"p{k}": "AABBBC"[k] for k in range(6)}}
MEMBERS = ([0, 1], [2, 3, 4], [5])


def frame(y):
    p, i = np.indices(y.shape)
    return pd.DataFrame({"p": [f"p{k}" for k in p.ravel()], "i": i.ravel(), "y": y.ravel()})


def anova(y):
    """Return the components of p, i and the residual."""
    P, n = y.shape
    ms_p = n * y.mean(axis=1).var(ddof=1)
    ms_i = P * y.mean(axis=0).var(ddof=1)
    rest = y - y.mean(axis=1, keepdims=True) - y.mean(axis=0) + y.mean()
    ms_e = (rest**2).sum() / ((P - 1) * (n - 1))
    return np.array([(ms_p - ms_e) / n, (ms_i - ms_e) / P, ms_e])


def test_whole_groups_are_drawn_as_many_as_there_are():
    res = vcomp.fit("y ~ (1|p) + (1|i)", frame(Y), method="anova")
    found = res.resample("p", 20, rng=3, groups=GROUPS)
    assert found.fingerprint["groups"] == {"p": [0, 0, 1, 1, 1, 2]}
    assert res.resample("p", 2, rng=3).fingerprint["groups"] is None
    for b, values in enumerate(found.values):
        drawn = stream(3, b).integers(3, size=3)
        rows = np.concatenate([MEMBERS[g] for g in drawn])
        if len(rows) > 1:
            np.testing.assert_allclose(values, anova(Y[rows]), rtol=1e-9, atol=1e-12)
    by_function = res.resample("p", 20, rng=3, groups={"p": lambda name: GROUPS["p"][name]})
    np.testing.assert_array_equal(found.values, by_function.values)
    assert found.notes[-1] == "the adjustment uses the mean size of the groups of p"


def test_groups_of_one_level_are_levels():
    res = vcomp.fit("y ~ (1|p) + (1|i)", frame(Y), method="anova")
    single = res.resample("p", 9, rng=1, groups={"p": lambda name: name})
    alone = res.resample("p", 9, rng=1)
    np.testing.assert_allclose(single.adjusted, alone.adjusted, rtol=1e-12)


def test_the_expected_replicate_is_that_of_all_draws():
    """Estimates are quadratic: their expectation is the sum over unit vectors of each effect."""
    members, n = np.arange(6).reshape(3, 2), 3
    samples = [members[list(g)].ravel() for g in product(range(3), repeat=3)]
    bases = {
        "p": [np.repeat(row, n).reshape(6, n) for row in np.eye(6)],
        "i": [np.tile(row, (6, 1)) for row in np.eye(n)],
        "e": [row.reshape(6, n) for row in np.eye(6 * n)],
    }
    columns = [
        sum(np.mean([anova(y[rows]) for rows in samples], axis=0) for y in basis)
        for basis in bases.values()
    ]
    g = from_components({"p": 1.0, "i": 1.0, "pi": 1.0}, sizes={"p": 6, "i": n})
    np.testing.assert_allclose(
        expectation(g.components, "p", 3), np.transpose(columns), atol=1e-12
    )


def test_alike_levels_make_replicates_vary_more():
    rng = np.random.default_rng(2)
    y = np.repeat(3.0 * rng.normal(size=8), 4)[:, None] + rng.normal(size=(32, 5))
    res = vcomp.fit("y ~ (1|p) + (1|i)", frame(y), method="anova")
    by_group = res.resample("p", 60, groups={"p": lambda name: int(name[1:]) // 4})
    alone = res.resample("p", 60)
    assert by_group.adjusted[:, 0].std() > 1.4 * alone.adjusted[:, 0].std()


def test_replicates_of_other_groups_are_not_continued(tmp_path):
    res = vcomp.fit("y ~ (1|p) + (1|i)", frame(Y), method="anova")
    path = tmp_path / "replicates.npz"
    first = res.resample("p", 5, path=path, groups=GROUPS)
    again = res.resample("p", 8, path=path, groups=GROUPS)
    np.testing.assert_array_equal(again.values[:5], first.values)
    other = dict(zip(GROUPS["p"], "BBBAAC", strict=True))
    for groups in (None, {"p": other}):
        with pytest.raises(DataError, match="their groups is"):
            res.resample("p", 8, path=path, groups=groups)


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ({"i": {}}, EstimationError, "groups= are of drawn facets, .* the drawn facets are 'p'"),
        ("org", EstimationError, "groups= are of drawn facets"),
        ({"p": {"p0": "A"}}, DataError, "'p1' of 'p' has no group"),
        ({"p": lambda name: "A"}, DataError, "all 6 levels of 'p' are in one group"),
    ],
)
def test_mistakes(groups, error, message):
    res = vcomp.fit("y ~ (1|p) + (1|i)", frame(Y), method="anova")
    with pytest.raises(error, match=message):
        res.resample("p", 5, groups=groups)


def test_nested_levels_have_no_groups():
    rows = pd.DataFrame(
        {"c": np.repeat([0, 1, 2], 6), "d": np.tile([0, 1, 2], 6), "y": Y.ravel()[:18]}
    )
    res = vcomp.fit("y ~ (1|c/d)", rows, method="anova")
    with pytest.raises(DataError, match="nested in c, and levels that are drawn by group"):
        res.resample("d", 5, groups={"d": lambda name: name})

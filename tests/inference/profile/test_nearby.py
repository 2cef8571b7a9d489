"""Ends of profile intervals from those of quantities that are alike, against traced ones."""

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.inference.profile import (
    LinearConstraint,
    NearbyEnds,
    RatioConstraint,
    profile_quantity,
)
from vcomp.model.profiling import Likelihood


def fitted(formula="y ~ (1|a) + (1|b) + (1|c) + (1|a:b) + (1|a:c)", *, effect=0.5, **options):
    rng = np.random.default_rng(1)
    a, b, c = map(np.ravel, np.indices((10, 12, 3)))
    y = rng.normal(size=10)[a] + rng.normal(size=12)[b] + 0.3 * rng.normal(size=3)[c]
    y += effect * rng.normal(size=(10, 12))[a, b] + 0.3 * rng.normal(size=(10, 3))[a, c]
    data = pd.DataFrame({"a": a, "b": b, "c": c, "y": y + rng.normal(size=a.size)})
    return vcomp.fit(formula, data[rng.random(len(data)) > 0.05], **options)


def constraints(n_b, n_c):
    """Return the absolute error variance, Eρ² and Φ of a plan."""
    absolute = np.array([0.0, 1 / n_b, 1 / n_c, 1 / n_b, 1 / n_c, 1 / n_b / n_c])
    relative = absolute * [0, 0, 0, 1, 1, 1]
    object_ = np.array([1.0, 0, 0, 0, 0, 0])
    return (
        LinearConstraint(absolute),
        RatioConstraint(object_, object_ + relative),
        RatioConstraint(object_, object_ + absolute),
    )


@pytest.mark.parametrize(
    ("effect", "options", "fewest"),
    [(0.5, {}, 9), (0.5, {"method": "ml"}, 9), (0.0, {}, 6), (0.5, {"hold": {"c": 0.1}}, 9)],
)
def test_ends_are_those_of_traced_profiles(effect, options, fewest):
    likelihood = Likelihood.of(fitted(effect=effect, **options)._row_access)
    nearby = likelihood.nearby_ends(0.1)
    engine, v, held = likelihood.engine, likelihood.estimate.values, likelihood.held
    found = 0
    for n_b, n_c in ((20, 2), (25, 2), (20, 3), (30, 3)):
        for constraint in constraints(n_b, n_c):
            curve = profile_quantity(engine, v, constraint, held=held, alpha=0.1, points=0)
            ends = nearby.interval(constraint)
            if ends is None:
                nearby.add(constraint, curve)
            else:
                found += 1
                np.testing.assert_allclose(ends, (curve.low, curve.high), rtol=1e-7)
    assert found >= fewest


def test_nothing_is_near_where_nothing_is_known():
    likelihood = Likelihood.of(fitted()._row_access)
    assert likelihood.nearby_ends(0.05).interval(constraints(20, 2)[0]) is None


def test_ends_of_the_range_are_not_added():
    """A component at zero: the lower end of its profile is that of its range."""
    likelihood = Likelihood.of(fitted("y ~ (1|a) + (1|b) + (1|a:b)", effect=0.0)._row_access)
    engine, v = likelihood.engine, likelihood.estimate.values
    constraint = LinearConstraint(np.array([0.0, 0.0, 1.0, 0.0]))
    curve = profile_quantity(engine, v, constraint, points=0)
    assert curve.notes
    nearby = NearbyEnds(engine, likelihood.held, curve.low)
    nearby.add(constraint, curve)
    assert not nearby.known


def test_plans_of_a_dstudy_have_the_intervals_of_each_alone():
    res = fitted()
    table = res.dstudy(b=[10, 20], c=[2, 3], interval="profile").table
    for row in table.to_dict("records"):
        alone = res.dstudy(b=row["b"], c=row["c"], interval="profile").table.iloc[0]
        for name in ("Erho2", "Phi", "rel_err_var", "abs_err_var"):
            for end in ("low", "high"):
                assert row[f"{name}_{end}"] == pytest.approx(alone[f"{name}_{end}"], rel=1e-7)

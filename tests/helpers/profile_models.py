"""Fits and quantities that the tests of profile likelihoods share."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
from scipy.special import ndtri

import vcomp
from tests.helpers.designs import balanced, unbalanced
from vcomp.estimators.likelihood.choose import choose_engine
from vcomp.inference.profile.constrained import LinearConstraint

Z = -float(ndtri(0.025))


@cache
def one_way(sizes=(3, 5, 2, 4, 6, 1), effect=2.0, seed=3):
    rng = np.random.default_rng(seed)
    a = np.repeat(np.arange(len(sizes)), sizes)
    y = effect * rng.normal(size=len(sizes))[a] + rng.normal(size=a.size) + 7.0
    return vcomp.VarianceComponentsModel(
        "y ~ x + (1|a)", pd.DataFrame({"y": y, "a": a, "x": rng.normal(size=a.size)})
    )


@cache
def fitted(name, method="reml", *, rows="balanced", seed=0):
    formula, data = (balanced if rows == "balanced" else unbalanced)(name, seed)
    model = vcomp.VarianceComponentsModel(formula, data)
    return model, model.fit(method).vcomp.to_numpy()


@cache
def two_way():
    """Two crossed facets of which one hardly matters: nine scores."""
    data = vcomp.datasets.load("bodoff2007_alpha")
    model = vcomp.VarianceComponentsModel("score ~ (1|sys) + (1|topic)", data)
    return model, model.fit().vcomp.to_numpy()


def component(place, k):
    return LinearConstraint(np.eye(k)[place])


def engine_of(model, *, reml=True):
    return choose_engine(model.statistics, reml=reml)

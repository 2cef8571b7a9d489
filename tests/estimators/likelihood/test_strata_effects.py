"""Variances of predicted effects keep all digits where components are decades apart."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.estimators.likelihood.strata_likelihood import StrataLikelihood

DESIGNS = {
    "y ~ (1|s) + (1|t)": {"s": 3, "t": 4},
    "y ~ (1|s) + (1|t) + (1|s:t)": {"s": 3, "t": 3, "r": 2},
    "y ~ (1|s) + (1|t) + (1|t:d) + (1|s:t)": {"s": 2, "t": 3, "d": 3},
    "y ~ (1|t) + (1|t:d)": {"t": 3, "d": 3, "r": 2},
}


def data_of(sizes):
    """Return all combinations, less the last d of the last t for data that are not balanced."""
    rows = pd.DataFrame(list(product(*map(range, sizes.values()))), columns=[*sizes])
    if "d" in sizes:
        rows = rows[(rows["t"] < sizes["t"] - 1) | (rows["d"] < sizes["d"] - 1)]
    return rows.assign(y=np.random.default_rng(3).normal(size=len(rows)))


def exact_variance(v, incidences, term, group):
    """Return σ² − σ⁴ z'V⁻¹z in rational arithmetic."""
    n = incidences[0].shape[0]
    V = [[Fraction(0)] * (n + 1) for _ in range(n)]
    for value, Z in zip(v, [*incidences, np.eye(n, dtype=int)], strict=True):
        for i, j in zip(*np.nonzero(Z @ Z.T), strict=True):
            V[i][j] += Fraction(float(value))
    z = [int(x) for x in incidences[term][:, group]]
    for row, entry in zip(V, z, strict=True):
        row[n] = Fraction(entry)
    # V is positive definite: elimination without pivots, then back.
    for i in range(n):
        for row in V[i + 1 :]:
            if row[i]:
                share = row[i] / V[i][i]
                row[i:] = [a - share * b for a, b in zip(row[i:], V[i][i:], strict=True)]
    x = [Fraction(0)] * n
    for i in reversed(range(n)):
        x[i] = (V[i][n] - sum(V[i][j] * x[j] for j in range(i + 1, n))) / V[i][i]
    own = Fraction(float(v[term]))
    return float(own - own**2 * sum(a * b for a, b in zip(z, x, strict=True)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("formula", DESIGNS)
def test_conditional_variances_of_components_that_are_decades_apart(formula, seed):
    data = data_of(DESIGNS[formula])
    model = vcomp.VarianceComponentsModel(formula, data)
    engine = StrataLikelihood(model.statistics.strata, reml=True)
    incidences = []
    for term in model.component_names[:-1]:
        keys = data[term.split(":")].astype(str).agg(":".join, axis=1)
        levels = list(dict.fromkeys(keys))
        incidences.append((keys.to_numpy()[:, None] == np.array(levels)).astype(int))
    exponents = np.random.default_rng(seed).permutation(np.linspace(-6, 6, len(incidences) + 1))
    v = 10.0 ** np.round(exponents)
    found = engine.solution(v).conditional_var
    for t, variances in enumerate(found):
        # Groups of one size have one variance, whatever their order.
        sizes = np.unique(np.round(variances / variances.max(), 14)).size
        assert sizes <= 2
        for group in (0, variances.size - 1):
            assert variances[group] == pytest.approx(
                exact_variance(v, incidences, t, group), rel=1e-13
            )

"""What resampling needs of a fit, and small balanced tables for all their resamples."""

from __future__ import annotations

import numpy as np
import pandas as pd

import vcomp
from vcomp.estimators.registry import get_estimator
from vcomp.formula import parse
from vcomp.inference.resampling.collection import GeneratingFit
from vcomp.inference.resampling.refits import Recipe

TABLES = {
    # Formula, levels, levels of nested facets start anew.
    "p x i": ("y ~ (1|p) + (1|i)", {"p": 4, "i": 3}, 1),
    "p x i, replicated": ("y ~ (1|p*i)", {"p": 3, "i": 4}, 2),
    "i : p": ("y ~ (1|p)", {"p": 4, "i": 3}, 1),
    "p x (i:h)": ("y ~ (1|p) + (1|h/i) + (1|p:h)", {"p": 3, "h": 3, "i": 2}, 1),
    "p x i x h": (
        "y ~ (1|p) + (1|i) + (1|h) + (1|p:i) + (1|p:h) + (1|i:h)",
        {"p": 3, "i": 3, "h": 2},
        1,
    ),
    "(p:c) x i": ("y ~ (1|c/p) + (1|i) + (1|c:i)", {"c": 3, "p": 2, "i": 3}, 1),
}
"""Balanced designs with every term that they have."""


def table(name, seed=0):
    """Return formula and data of a small balanced design."""
    formula, sizes, replicates = TABLES[name]
    rng = np.random.default_rng(seed)
    grid = pd.MultiIndex.from_product([range(n) for n in sizes.values()], names=list(sizes))
    frame = grid.to_frame(index=False)
    frame = frame.loc[frame.index.repeat(replicates)].reset_index(drop=True)
    y = rng.normal(5.0, 1.0, len(frame))
    for term in parse(formula).random:
        codes = frame.groupby(list(term.facets)).ngroup().to_numpy()
        y += 2.0 * rng.normal(size=codes.max() + 1)[codes]
    return formula, frame.assign(y=y)


def fit_again(formula, data, method="anova", **options):
    """Return the fit as it is drawn from, its design, its components, and the result."""
    model = vcomp.VarianceComponentsModel(formula, data)
    res = model.fit(method, **options)
    estimate, design = res._rows.estimate, model.design

    def uncentre(beta):
        return design.uncentre(beta, np.zeros((beta.size, beta.size)))[0]

    recipe = Recipe(get_estimator(method, **options), model.component_names)
    fit = GeneratingFit(
        model.statistics, recipe, estimate.values, estimate.beta, design.fixed.names, uncentre,
        formula,
    )  # fmt: skip
    return fit, design, res._record.components, res

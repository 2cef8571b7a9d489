"""VarianceComponents → DStudy over a grid of plans, against the formula in plain numpy.

In the large grids components are estimated with their covariance matrix, so that every plan has
four standard errors and four intervals; the peer computes only the estimates.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import vcomp
from benchmarks.common import FULL_MODEL, Report, Settings, agree, best_of, nested
from benchmarks.perdoc import SMALL, perdoc
from vcomp.gtheory.published import PublishedComponents, from_components
from vcomp.gtheory.study import DStudy

# Bodoff & Li (2007), Table 1: participants × queries × assessors.
_COMPONENTS = {
    "p": 0.00751, "i": 0.01596, "a": 0.00005, "pi": 0.01258, "pa": 0.00002, "ia": 0.00143,
    "pia": 0.00176,
}  # fmt: skip


def run(report: Report, settings: Settings) -> None:
    side = 32 if settings.quick else 100
    report.section(f"project, {side**2:,} plans")
    v = np.array(list(_COMPONENTS.values()))
    known = from_components(_COMPONENTS)
    uncertain = from_components(_COMPONENTS, cov=np.diag((0.2 * v) ** 2))
    sizes = np.arange(1, side + 1)
    _check(_plan(known, sizes), _coefficients(sizes))
    peer_seconds = best_of(lambda: _coefficients(sizes), settings.repeat)
    for name, source in {"known components": known, "with SEs and intervals": uncertain}.items():
        seconds = best_of(partial(_plan, source, sizes), settings.repeat)
        report(f"dstudy, {name}", seconds, "numpy, variances and coefficients", peer_seconds)
    study = _plan(uncertain, sizes)
    seconds = best_of(lambda: study.table, settings.repeat)
    report("table", seconds, "numpy, variances and coefficients", peer_seconds)
    _large(report, settings)


def _large(report: Report, settings: Settings) -> None:
    """Time a hundred thousand plans of fits, with standard errors and intervals."""
    side = 100 if settings.quick else 316
    sizes, half = range(1, side + 1), range(1, side // 2 + 1)
    report.section(f"project, {side**2:,} plans of fits, with SEs and intervals")
    peer_seconds = best_of(lambda: _coefficients(np.arange(1, side + 1)), settings.repeat)
    crossed = nested(20, 6, 15, 15, balanced=True)[["score", "p", "a", "i"]]
    three = "score ~ (1|p) + (1|i) + (1|a) + (1|p:i) + (1|p:a) + (1|i:a)"
    for method in ("reml", "anova"):
        res = vcomp.fit(three, crossed, method=method)
        seconds = best_of(partial(res.dstudy, object="p", i=sizes, a=sizes), settings.repeat)
        name = f"p × i × a, 7 components, {method.upper()}"
        report(name, seconds, "numpy, variances and coefficients", peer_seconds)
    res = vcomp.fit(FULL_MODEL, perdoc(SMALL, n_topics=10))
    plan = partial(res.dstudy, object="p", i=sizes, a=half, d=[10, 20])
    seconds = best_of(plan, settings.repeat)
    name = "p × a × (d:i), 11 components, REML"
    report(name, seconds, "numpy, variances and coefficients", peer_seconds)


def _plan(source: PublishedComponents, sizes: Any) -> DStudy:
    return source.dstudy(object="p", i=sizes, a=sizes)


def _coefficients(sizes: Any) -> dict[str, Any]:
    p, i, a, pi, pa, ia, pia = _COMPONENTS.values()
    n_i, n_a = (axis.ravel() for axis in np.meshgrid(sizes, sizes, indexing="ij"))
    relative = pi / n_i + pa / n_a + pia / (n_i * n_a)
    absolute = relative + i / n_i + a / n_a + ia / (n_i * n_a)
    return {
        "rel_err_var": relative,
        "abs_err_var": absolute,
        "Erho2": p / (p + relative),
        "Phi": p / (p + absolute),
    }


def _check(study: DStudy, theirs: dict[str, Any]) -> None:
    for name, values in theirs.items():
        agree(study.table[name], values, rtol=1e-12)

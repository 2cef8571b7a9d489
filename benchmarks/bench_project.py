"""VarianceComponents → DStudy over a grid of plans, against the formula in plain numpy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import Report, Settings, agree, best_of
from vcomp.dstudy import DStudy, PublishedComponents, from_components

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

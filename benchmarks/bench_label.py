"""Estimate → VarianceComponents with their exact divisors, against pandas on the rows."""

from __future__ import annotations

from copy import copy

import numpy as np
import pandas as pd

from benchmarks.common import (
    FULL_MODEL,
    Piped,
    Report,
    Settings,
    agree,
    best_of,
    crossed,
    nested,
    pipe,
)
from vcomp.estimators.estimate import Estimate
from vcomp.inference.quantities import VarianceComponents, object_key
from vcomp.model.record import label


def run(report: Report, settings: Settings) -> None:
    report.section("label")
    n = settings.rows(1_000_000)
    _compare(report, settings, "a + b", pipe("y ~ (1|a) + (1|b)", crossed(n, 1_000, 20_000)))
    data = nested(60, 2, 50, 959 if not settings.quick else 67)
    _compare(report, settings, "p × a × (d:i)", pipe(FULL_MODEL, data))


def _compare(report: Report, settings: Settings, name: str, piped: Piped) -> None:
    estimate = _made_up(piped)
    ours, theirs = _label(piped, estimate), _inverse_n(piped)
    facets = dict(zip(ours.names, ours.facets, strict=True))
    for term, inverse in theirs.items():
        agree(list(ours.inverse_n[object_key(facets[term])].values()), inverse)
    report(
        f"{name}, {len(piped.rows):,} rows",
        best_of(lambda: _label(piped, estimate), settings.repeat),
        "pandas groupby, Σ n²/(Σ n)²",
        best_of(lambda: _inverse_n(piped), settings.repeat),
    )


def _label(piped: Piped, estimate: Estimate) -> VarianceComponents:
    return label(piped.design, copy(piped.stats).group_sums, estimate, None)


def _inverse_n(piped: Piped) -> dict[str, list[float]]:
    """Return 1/n of every component for each term of one facet (Brennan 2001, eq. 7.28)."""
    terms = zip(piped.design.terms, piped.chunk.codes, strict=True)
    ones = pd.Series(1.0, index=range(len(piped.rows)))
    return {
        term.name: [
            *(_effective(ones, objects, groups) for groups in piped.chunk.codes),
            float((1.0 / ones.groupby(objects).size()).mean()),
        ]
        for term, objects in terms
        if len(term.facets) == 1
    }


def _effective(ones: pd.Series, objects: object, groups: object) -> float:
    n = ones.groupby([objects, groups]).size()
    return float(((n**2).groupby(level=0).sum() / n.groupby(level=0).sum() ** 2).mean())


def _made_up(piped: Piped) -> Estimate:
    """Return an estimate of the right form: labelling does not look at its numbers."""
    k = len(piped.names)
    return Estimate(
        method="reml",
        names=piped.names,
        values=np.ones(k),
        covariances={"observed": np.eye(k)},
        beta=np.zeros(1),
        cov_beta=np.eye(1),
        llf=0.0,
        converged=True,
        status="",
        engine="",
    )

"""The bootstrap of levels of complete two-way tables and one-way data, all resamples at once.

The same numbers as :func:`vcomp.inference.resampling.facet.facet_bootstrap` (tests compare them),
which estimates every resample as a data set of its own: too slow for hundreds of data sets.
"""

from __future__ import annotations

import numpy as np

from benchmarks.coverage.cells import Plan
from benchmarks.coverage.methods import Found, limits_of
from benchmarks.coverage.prepared import Prepared
from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.inference.resampling.facet import KIND, adjusted
from vcomp.inference.resampling.replicates import FromReplicates, Replicates
from vcomp.numerics.parallel import stream
from vcomp.statistics.statistics import Statistics


def drawn_levels(prepared: Prepared, number: int, plan: Plan) -> Found:
    """Return intervals from drawing the levels of either facet again."""
    stats = prepared.draw(number, rows=True)
    fit = prepared.estimate(stats, "anova")
    found: Found = {}
    for facet in prepared.model.design.structure.facets:
        source = FromReplicates(
            replicates(prepared, stats, facet, plan.resamples, number), fit.values, fit.beta
        )
        found["anova", f"bootstrap over {facet}"] = limits_of(prepared, source)
    return found


def replicates(prepared: Prepared, stats: Statistics, facet: str, n: int, seed: int) -> Replicates:
    """Return the estimates of resamples of the levels of a facet.

    Parameters
    ----------
    prepared, stats : the design, and a data set with its rows
    facet : whose levels are drawn
    n, seed : number of resamples, and their seed
    """
    fit = prepared.estimate(stats, "anova")
    at = [f.name for f in prepared.model.design.facets].index(facet)
    size = stats.rows.facet_sizes[at]
    chosen = np.stack([stream(seed, b).integers(0, np.full(size, size)) for b in range(n)])
    codes = [stats.rows.level_codes(i) for i in range(len(prepared.model.design.facets))]
    if len(codes) == 1:
        values = _one_way(stats.rows.y, codes[0], chosen)
    else:
        table = np.empty(stats.rows.facet_sizes)
        table[codes[0], codes[1]] = stats.rows.y
        values = _two_way(table if at == 0 else table.T, chosen)
        values = values if at == 0 else values[:, [1, 0, 2]]
    return Replicates(
        kind=KIND,
        names=prepared.model.component_names,
        fixed_names=prepared.model.design.fixed.names,
        numbers=np.arange(n),
        values=values,
        beta=np.full((n, fit.beta.size), np.nan),
        llf=np.full(n, np.nan),
        converged=np.ones(n, dtype=bool),
        seed=seed,
        requested=n,
        adjusted=adjusted(values, prepared.components(fit, stats), [facet]),
    )


def _two_way(table: FloatArray, chosen: LongArray) -> FloatArray:
    """Return σ̂² of rows, columns and residual of a complete table with chosen rows, (B, 3)."""
    a, b = table.shape
    row_means = table.mean(axis=1)[chosen]
    column_means = np.stack([table[rows].mean(axis=0) for rows in chosen])
    total = np.stack([np.square(table[rows] - table[rows].mean()).sum() for rows in chosen])
    of_rows = b * np.var(row_means, axis=1) * a
    of_columns = a * np.var(column_means, axis=1) * b
    residual = (total - of_rows - of_columns) / ((a - 1.0) * (b - 1.0))
    squares = of_rows / (a - 1.0), of_columns / (b - 1.0)
    return np.stack([(squares[0] - residual) / b, (squares[1] - residual) / a, residual], axis=1)


def _one_way(y: FloatArray, codes: IntArray, chosen: LongArray) -> FloatArray:
    """Return σ̂² of groups and errors of chosen groups by the analysis of variance, (B, 2)."""
    n = np.bincount(codes).astype(float)
    means = np.bincount(codes, y) / n
    inside = np.bincount(codes, np.square(y - means[codes]))[chosen].sum(axis=1)
    sizes, a = n[chosen], chosen.shape[1]
    rows = sizes.sum(axis=1)
    centre = (sizes * means[chosen]).sum(axis=1) / rows
    between = (sizes * np.square(means[chosen] - centre[:, None])).sum(axis=1)
    residual = inside / (rows - a)
    typical = rows - np.square(sizes).sum(axis=1) / rows
    return np.stack([(between - (a - 1.0) * residual) / typical, residual], axis=1)

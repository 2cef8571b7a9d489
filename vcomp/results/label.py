"""Estimate + Design + statistics → :class:`VarianceComponents`: numbers get their facets."""

from __future__ import annotations

import numpy as np

from vcomp.components import REPLICATE, TwoWayMeanSquares, VarianceComponents, closure, object_key
from vcomp.design import Design, Structure
from vcomp.estimators import Estimate
from vcomp.statistics import GroupSums, ScoreTable

__all__ = ["label", "two_way_mean_squares"]


def label(
    design: Design, sums: GroupSums, estimate: Estimate, table: ScoreTable | None
) -> VarianceComponents:
    """Give the estimated components their facets, nesting, sizes and covariance."""
    structure = design.structure
    facets = tuple(
        closure(frozenset(term.facets), structure.nested_in) for term in design.formula.random
    )
    everything = frozenset(structure.facets)
    nested_in = dict(structure.nested_in)
    if structure.replicated and not _is_taken(structure):
        nested_in[REPLICATE] = everything
        everything |= {REPLICATE}
    facets = (*facets, everything)
    # Intervals from mean squares would not know of components that are held.
    mean_squares = None
    if table is not None and not estimate.held:
        mean_squares = two_way_mean_squares(structure, facets, table)
    return VarianceComponents(
        names=estimate.names,
        facets=facets,
        values=estimate.values,
        cov=next(iter(estimate.covariances.values())),
        nested_in=nested_in,
        sizes={f: n for f, n in structure.sizes.items() if f in everything},
        inverse_n=_inverse_n(sums, facets, estimate.names),
        mean_squares=mean_squares,
        held=estimate.held,
        without_bounds=estimate.without_bounds,
    )


def _is_taken(structure: Structure) -> bool:
    """Whether a column has the name of the facet of repeated scores: no D-study is possible."""
    return REPLICATE in structure.facets


def _inverse_n(
    sums: GroupSums, facets: tuple[frozenset[str], ...], names: tuple[str, ...]
) -> dict[str, dict[str, float]]:
    """Return the exact 1/n of every component, where the groups of a term are the objects."""
    return {
        object_key(objects): dict(zip(names, inverse.tolist(), strict=True))
        for objects, inverse in zip(facets[:-1], sums.inverse_n, strict=True)
    }


def two_way_mean_squares(
    structure: Structure, facets: tuple[frozenset[str], ...], table: ScoreTable
) -> TwoWayMeanSquares | None:
    """Return the mean squares of the cell means, where they are what the intervals rest on.

    That needs two fully crossed facets, equal cells, and (where cells hold several scores) a term
    for their interaction: without one the model says that the cell means differ by error alone.
    """
    if not (structure.balanced and structure.fully_crossed):
        return None
    n_replicates = structure.cell_max
    if n_replicates > 1 and frozenset(structure.facets) not in facets[:-1]:
        return None
    means = table.sums / table.counts
    means = means - means.mean()
    n_rows, n_columns = means.shape
    rows, columns = means.mean(axis=1), means.mean(axis=0)
    rest = means - rows[:, None] - columns
    return TwoWayMeanSquares(
        rows=structure.facets[0],
        columns=structure.facets[1],
        n_rows=n_rows,
        n_columns=n_columns,
        ms_rows=float(n_columns * (rows @ rows) / (n_rows - 1)),
        ms_columns=float(n_rows * (columns @ columns) / (n_columns - 1)),
        ms_residual=float(np.square(rest).sum() / ((n_rows - 1) * (n_columns - 1))),
        n_replicates=n_replicates,
    )

"""Estimate + Design + statistics → :class:`VarianceComponents`: numbers get their facets."""

from __future__ import annotations

import numpy as np

from vcomp.components import REPLICATE, TwoWayMeanSquares, VarianceComponents, closure
from vcomp.design import Design, Structure
from vcomp.estimators import Estimate
from vcomp.statistics import CrossProducts, ScoreTable
from vcomp.statistics.effective_n import inverse_effective_n

__all__ = ["label", "two_way_mean_squares"]


def label(
    design: Design, stats: CrossProducts, estimate: Estimate, table: ScoreTable | None
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
    inverse_n = _inverse_n(design, stats, estimate.names)
    return VarianceComponents(
        names=estimate.names,
        facets=facets,
        values=estimate.values,
        cov=next(iter(estimate.covariances.values())),
        nested_in=nested_in,
        sizes=_sizes(structure, facets, inverse_n, estimate.names),
        inverse_n=inverse_n,
        mean_squares=None if table is None else two_way_mean_squares(structure, facets, table),
    )


def _is_taken(structure: Structure) -> bool:
    """Whether a column has the name of the facet of repeated scores: no D-study is possible."""
    return REPLICATE in structure.facets


def _inverse_n(
    design: Design, stats: CrossProducts, names: tuple[str, ...]
) -> dict[str, dict[str, float]]:
    """Return the exact 1/n of every component for each facet that has a term of its own."""
    found = {}
    for position, term in enumerate(design.formula.random):
        if len(term.facets) == 1:
            inverse = inverse_effective_n(stats, position)
            found[term.facets[0]] = dict(zip(names, inverse, strict=True))
    return found


def _sizes(
    structure: Structure,
    facets: tuple[frozenset[str], ...],
    inverse_n: dict[str, dict[str, float]],
    names: tuple[str, ...],
) -> dict[str, float]:
    """Return the size of each facet within those that it is nested in.

    Exact in a balanced design. Elsewhere it is the ratio of the effective numbers of two
    components, with the first other facet as the object of measurement; where no two components
    differ by the facet alone, the mean number of levels.
    """
    sizes = _mean_sizes(structure)
    if structure.balanced:
        return sizes
    by_facets = dict(zip(facets, names, strict=True))
    for facet in sizes:
        above = structure.nested_in.get(facet, frozenset(structure.facets))
        for object_, inverse in inverse_n.items():
            if object_ == facet:
                continue
            inner = by_facets.get(above | {facet}) or by_facets.get(above | {facet, object_})
            outer = by_facets.get(above) or by_facets.get(above | {object_})
            if inner is None or (outer is None and above - {object_}):
                continue
            n_outer = 1.0 / inverse[outer] if outer is not None else 1.0
            sizes[facet] = 1.0 / inverse[inner] / n_outer
            break
    return sizes


def _mean_sizes(structure: Structure) -> dict[str, float]:
    units = dict(zip(structure.facets, structure.n_levels, strict=True))
    sizes = {}
    for facet, above in structure.nested_in.items():
        innermost = [g for g in above if above == structure.nested_in[g] | {g}]
        parents = units[innermost[0]] if innermost else np.prod([units[g] for g in above])
        sizes[facet] = float(units[facet] / parents)
    if structure.replicated and not _is_taken(structure):
        sizes[REPLICATE] = structure.n_rows / structure.n_cells
    return sizes


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

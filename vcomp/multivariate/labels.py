"""What an estimation gives, with the names and the design that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray
from vcomp.components import REPLICATE, TwoWayMeanSquares
from vcomp.multivariate.covariance_components import CovarianceComponents
from vcomp.multivariate.layout import Layout
from vcomp.multivariate.record import Ending, FacetLink, MultivariateRecord
from vcomp.multivariate.strata import Strata
from vcomp.results.label import two_way_mean_squares
from vcomp.statistics import tabulate

__all__ = ["Found", "record_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a method gives.

    Attributes
    ----------
    values : (k + 1, v, v) matrices
    cov : (m, m) of their elements
    status, engine, llf, converged, ending : see :class:`MultivariateRecord`
    """

    values: FloatArray
    cov: FloatArray
    status: str
    engine: str
    llf: float = np.nan
    converged: bool = True
    ending: Ending | None = None


def record_of(
    layout: Layout, strata: Strata | None, method: str, found: Found
) -> MultivariateRecord:
    """Return all that a result without rows knows.

    Parameters
    ----------
    layout : of the scores
    strata : mean products, None of data that have none
    method : name
    found : what it gave
    """
    scores = layout.scores
    structures = [model.design.structure for model in scores.models]
    return MultivariateRecord(
        formula=scores.formula,
        method=method,
        components=_components(layout, strata, found),
        means=np.array([model.rows.y.mean() for model in scores.models]),
        nobs=tuple(model.nobs for model in scores.models),
        links=_links(layout),
        designs=tuple(structure.title() for structure in structures),
        llf=found.llf,
        converged=found.converged,
        status=found.status,
        engine=found.engine,
        notes=(*scores.notes, *_on_links(layout)),
        ending=found.ending,
    )


def _components(layout: Layout, strata: Strata | None, found: Found) -> CovarianceComponents:
    scores = layout.scores
    structures = [model.design.structure for model in scores.models]
    nested_in = dict(structures[0].nested_in)
    if REPLICATE in layout.facets[-1]:
        nested_in[REPLICATE] = frozenset(structures[0].facets)
    facets = (*structures[0].facets, *([REPLICATE] if REPLICATE in nested_in else []))
    single = {next(iter(f)): t for t, f in enumerate(layout.facets[:-1]) if len(f) == 1}
    return CovarianceComponents(
        variables=scores.variables,
        names=layout.names,
        facets=layout.facets,
        values=found.values,
        linked=layout.linked,
        cov=found.cov,
        nested_in=nested_in,
        sizes={f: tuple(float(s.sizes.get(f, 1.0)) for s in structures) for f in facets},
        inverse_n={f: layout.inverse_n(t) for f, t in single.items()},
        mean_products=_mean_products(layout, strata),
    )


def _mean_products(
    layout: Layout, strata: Strata | None
) -> tuple[FloatArray, tuple[TwoWayMeanSquares, ...]] | None:
    """Return the mean products of complete two-way tables, of one another or each by itself."""
    tables = []
    for model in layout.scores.models:
        design = model.design
        if len(design.facets) != 2 or not design.formula.intercept_only:
            return None
        cells = tabulate(model.chunk, 0, 1) if design.structure.fully_crossed else None
        table = None
        if cells is not None:
            table = two_way_mean_squares(design.structure, layout.facets, cells)
        if table is None:
            return None
        tables.append(table)
    v = len(tables)
    products = np.full((3, v, v), np.nan)
    for a, table in enumerate(tables):
        products[:, a, a] = (table.ms_rows, table.ms_columns, table.ms_residual)
    if strata is not None:
        names = layout.scores.facets
        whole = frozenset(range(len(names)))
        wanted = [frozenset({names.index(f)}) for f in (tables[0].rows, tables[0].columns)]
        last = whole if tables[0].n_replicates > 1 else None
        places = [strata.facets.index(s) for s in (*wanted, last)]
        scale = np.outer(layout.scale, layout.scale) / tables[0].n_replicates
        products = strata.products[places] * scale
    return products, tuple(tables)


def _links(layout: Layout) -> dict[str, FacetLink]:
    scores, v = layout.scores, layout.n_variables
    found = {}
    for facet, codes, levels in zip(scores.facets, scores.codes, scores.levels, strict=True):
        occurs = np.zeros((len(levels), v), dtype=bool)
        occurs[codes, scores.variable] = True
        shared, several = int(occurs.all(axis=1).sum()), bool((occurs.sum(axis=1) > 1).any())
        kind = "independent"
        if several:
            kind = "linked" if shared == len(levels) else "partly linked"
        found[facet] = FacetLink(kind, tuple(occurs.sum(axis=0).tolist()), shared)
    return found


def _on_links(layout: Layout) -> list[str]:
    """Say which covariances there are not, and why."""
    notes = []
    names = layout.scores.variables
    off = ~np.eye(len(names), dtype=bool)
    for t, name in enumerate(layout.names):
        missing = ~layout.linked[t] & off
        if not missing.any():
            continue
        if not layout.linked[t][off].any():
            notes.append(
                f"{name}: no covariances, as no level of it has scores of two variables; in "
                "errors they are zero, the levels being independent."
                if layout.shared[t][off].max() < 1.0
                else f"{name}: no covariances, as two variables share one level of it at most."
            )
            continue
        pairs = [f"{names[a]}, {names[b]}" for a, b in np.argwhere(np.triu(missing))]
        notes.append(f"{name}: no covariance of {'; '.join(pairs)}, which share no levels.")
    return notes

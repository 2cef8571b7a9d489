"""The record of a multivariate fit: what results and JSON need, without the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray, Json
from vcomp.codec import Format, stored
from vcomp.formula import REPLICATE
from vcomp.inference import TwoWayMeanSquares
from vcomp.model import two_way_mean_squares
from vcomp.multivariate.covariance_components import CovarianceComponents
from vcomp.multivariate.strata_covariances import Strata
from vcomp.multivariate.variable_layout import Layout
from vcomp.statistics import tabulate

__all__ = [
    "Ending",
    "FacetLink",
    "Found",
    "MultivariateRecord",
    "record_of",
]


@dataclass(frozen=True, slots=True)
class Ending:
    """How the iteration of a likelihood ended.

    Attributes
    ----------
    ranks : of the matrix of every term; one that is not full is a bound
    decrement : how far the maximum is, in standard errors
    kkt_residual : largest violation of the conditions of a maximum, without a unit
    iterations, evaluations : steps, and values of the likelihood
    information : what the standard errors are of, ``"observed"`` or ``"average"``
    """

    ranks: tuple[int, ...]
    decrement: float
    kkt_residual: float
    iterations: int
    evaluations: int
    information: str


@dataclass(frozen=True, slots=True)
class FacetLink:
    """Whether the variables share the levels of a facet.

    Attributes
    ----------
    kind : ``"linked"`` (•, all levels shared), ``"independent"`` (°, none) or
        ``"partly linked"``
    levels : numbers of levels in every variable
    shared : numbers that all variables share
    """

    kind: str
    levels: tuple[int, ...]
    shared: int


def _lists(links: Mapping[str, FacetLink]) -> Json:
    """Return links for a file, each as a list."""
    return {facet: [link.kind, link.levels, link.shared] for facet, link in links.items()}


def _links_of(lists: Json, _: Json) -> dict[str, FacetLink]:
    return {
        facet: FacetLink(kind, tuple(levels), shared)
        for facet, (kind, levels, shared) in lists.items()
    }


@dataclass(frozen=True, slots=True, eq=False)
class MultivariateRecord:
    """All that a result without rows knows.

    Attributes
    ----------
    formula : as given
    method : ``"reml"``, ``"ml"``, ``"anova"``, ``"type1"`` or ``"henderson3"``
    components : the estimates
    means : (v,) of the variables
    nobs : (v,) scores of each
    links : of every facet
    designs : of every variable in words
    llf : log-likelihood, nan for closed forms
    converged, status, engine : as of one variable
    notes : what a reader should know of the data
    ending : of likelihood methods, else None
    """

    formula: str
    method: str
    components: CovarianceComponents
    means: FloatArray
    nobs: tuple[int, ...]
    links: Mapping[str, FacetLink] = field(metadata=stored(write=_lists, read=_links_of))
    designs: tuple[str, ...]
    llf: float
    converged: bool
    status: str
    engine: str
    notes: tuple[str, ...] = ()
    ending: Ending | None = None

    FORMAT: ClassVar[Format] = Format("MultivariateResults", 1, "a multivariate result")


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

"""The record of a multivariate fit: estimates and design without the rows, stored as JSON.

Tables and the printed summary are made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, Json
from vcomp.codec import Format, stored
from vcomp.formula import REPLICATE
from vcomp.inference import Quantities, TwoWayMeanSquares
from vcomp.inference.intervals import FromComponents, wald_interval
from vcomp.model import two_way_mean_squares
from vcomp.multivariate.covariance_components import CovarianceComponents, composite_of
from vcomp.multivariate.strata_covariances import Strata
from vcomp.multivariate.variables import VariableLayout, sums_of
from vcomp.statistics import tabulate

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Ending:
    """How the iteration of a likelihood ended.

    Attributes
    ----------
    ranks : of the matrix of every term; a matrix without full rank is at a bound
    decrement : distance to the maximum in standard errors
    kkt_residual : largest violation of the conditions of a maximum, dimensionless
    iterations, evaluations : numbers of steps, and of evaluations of the likelihood
    information : of the standard errors, ``"observed"`` or ``"average"``
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
    """Return the links as lists, for a file."""
    return {facet: [link.kind, link.levels, link.shared] for facet, link in links.items()}


def _links_of(lists: Json, _: Json) -> dict[str, FacetLink]:
    return {
        facet: FacetLink(kind, tuple(levels), shared)
        for facet, (kind, levels, shared) in lists.items()
    }


@dataclass(frozen=True, slots=True, eq=False)
class MultivariateRecord:
    """The values of a multivariate fit, without the rows.

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
    converged, status, engine : as for a fit of one variable
    notes : remarks on the data
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

    _FORMAT: ClassVar[Format] = Format("MultivariateResults", 1, "a multivariate result")


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The estimates of a method.

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
    layout: VariableLayout, strata: Strata | None, method: str, found: Found
) -> MultivariateRecord:
    """Return the record of a fit.

    Parameters
    ----------
    layout : of the scores
    strata : mean products, None for data without them
    method : name
    found : its estimates
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


def _components(
    layout: VariableLayout, strata: Strata | None, found: Found
) -> CovarianceComponents:
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
        inverse_n={f: inverse_n(layout, t) for f, t in single.items()},
        mean_products=_mean_products(layout, strata),
    )


def inverse_n(layout: VariableLayout, term: int) -> FloatArray:
    """Return Σ_h n_gh(a) n_gh(b)/(n_g(a) n_g(b)) of every term h, averaged over groups g.

    They are the coefficients of the covariances of the terms in that of the means of two
    variables (Brennan 2001, eq. 7.28, for one variable); (k + 1, v, v), over their common
    groups.
    """
    v, means = layout.n_variables, []
    for u in range(len(layout.names)):
        means.append(shares_of(layout, term, u))
    both = layout.counts[term] > 0.0
    result = np.zeros((len(layout.names), v, v))
    for u, shares in enumerate(means):
        for a in range(v):
            for b in range(v):
                here = both[:, a] & both[:, b]
                result[u, a, b] = shares[here, a, b].mean() if here.any() else 0.0
    return result


def shares_of(layout: VariableLayout, term: int, other: int) -> FloatArray:
    """Return Σ_h n_gh(a) n_gh(b)/(n_g(a) n_g(b)) for each group g of a term, (q, v, v)."""
    v, n, pairs = layout.n_variables, layout.counts[term], layout.joint(term, other)
    shares = pairs.counts / np.where(n > 0.0, n, 1.0)[pairs.rows]
    sums = sums_of(pairs.rows, layout.sizes[term])
    result = np.empty((layout.sizes[term], v, v))
    for a in range(v):
        result[:, a] = sums @ (shares[:, [a]] * shares)
    return result


def _mean_products(
    layout: VariableLayout, strata: Strata | None
) -> tuple[FloatArray, tuple[TwoWayMeanSquares, ...]] | None:
    """Return the mean products of complete two-way tables, of all variables or of each."""
    tables = []
    for model in layout.scores.models:
        design = model.design
        if len(design.facets) != 2 or not design.formula.intercept_only:
            return None
        cells = tabulate(model.statistics.rows, 0, 1) if design.structure.fully_crossed else None
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


def _links(layout: VariableLayout) -> dict[str, FacetLink]:
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


def _on_links(layout: VariableLayout) -> list[str]:
    """Return notes on the covariances that are not estimable, with the reasons."""
    notes = []
    names = layout.scores.variables
    off = ~np.eye(len(names), dtype=bool)
    for t, name in enumerate(layout.names):
        missing = ~layout.linked[t] & off
        if not missing.any():
            continue
        if not layout.linked[t][off].any():
            notes.append(
                f"{name}: no covariances, as each of its levels has scores of one variable only; "
                "errors of different variables are uncorrelated over independent levels."
                if layout.shared[t][off].max() < 1.0
                else f"{name}: no covariances, as any two variables share at most one level of it."
            )
            continue
        pairs = [f"{names[a]}, {names[b]}" for a, b in np.argwhere(np.triu(missing))]
        notes.append(f"{name}: no covariance of {'; '.join(pairs)}, which share no levels.")
    return notes


def correlations_of(S: FloatArray) -> FloatArray:
    """Return S_ab/√(S_aa S_bb), nan if a variance is not positive; the diagonal is 1.

    Examples
    --------
    >>> correlations_of(np.array([[4.0, 1.0], [1.0, 1.0]]))
    array([[1. , 0.5],
           [0.5, 1. ]])
    """
    d = np.diagonal(S)
    scale = np.sqrt(np.where(d > 0.0, d, np.nan))
    R: FloatArray = S / np.outer(scale, scale)
    np.fill_diagonal(R, np.where(d > 0.0, 1.0, np.nan))
    return R


def component_table(g: CovarianceComponents, alpha: float | None = None) -> pd.DataFrame:
    """Return a row for every variance and covariance.

    Parameters
    ----------
    g : the estimates
    alpha : intervals have confidence 1 − alpha; None for no intervals
    """
    import pandas as pd

    t, a, b = np.array(g.elements).T
    with np.errstate(invalid="ignore"):
        se = np.sqrt(np.diagonal(g.cov))
    R = np.array([correlations_of(S) for S in g.values])
    estimates = g.values[t, a, b]
    columns: dict[str, object] = {
        "term": [g.names[x] for x in t],
        "variable1": [g.variables[x] for x in a],
        "variable2": [g.variables[x] for x in b],
        "estimate": estimates,
        "se": se,
        "correlation": np.where(a == b, np.nan, R[t, a, b]),
    }
    if alpha is not None:
        low, high = wald_interval(estimates, se, alpha)
        for variable in range(g.n_variables):
            one = composite_of(g, np.eye(g.n_variables)[variable])
            unit = Quantities("linear", np.eye(len(g.names)))
            limits = FromComponents(one).limits(unit, alpha)
            here = (a == variable) & (b == variable)
            low[here], high[here] = limits.low[t[here]], limits.high[t[here]]
        columns |= {"conf_low": low, "conf_high": high}
    return pd.DataFrame(columns)


def correlation_table(g: CovarianceComponents, term: int, alpha: float) -> pd.DataFrame:
    """Return the correlations of a term with delta-method errors and intervals on Fisher's z.

    Parameters
    ----------
    g : the estimates
    term : its position
    alpha : intervals have confidence 1 − alpha
    """
    import pandas as pd

    place = {e: p for p, e in enumerate(g.elements)}
    S, R = g.values[term], correlations_of(g.values[term])
    rows = []
    for t, a, b in g.elements:
        if t != term or a == b:
            continue
        r = R[a, b]
        used = [place[t, a, b], place[t, a, a], place[t, b, b]]
        C = g.cov[np.ix_(used, used)]
        se = low = high = np.nan
        if np.isfinite(r) and abs(r) < 1.0 - 1e-9 and np.isfinite(C).all():
            of_covariance = 1.0 / np.sqrt(S[a, a] * S[b, b])
            slopes = np.array([of_covariance, -0.5 * r / S[a, a], -0.5 * r / S[b, b]])
            variance = float(slopes @ C @ slopes)
            if variance >= 0.0:
                se = variance**0.5
                ends = wald_interval(np.arctanh([r]), np.array([se / (1.0 - r * r)]), alpha)
                low, high = (float(np.tanh(end)[0]) for end in ends)
        rows.append((g.variables[a], g.variables[b], r, se, low, high))
    columns = ["variable1", "variable2", "estimate", "se", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


_MARKS = {"linked": "•", "independent": "°", "partly linked": "(•)"}


def summary(record: MultivariateRecord) -> Any:
    """Return a summary: the design in words, a matrix for each term, and notes.

    Parameters
    ----------
    record : of the fit

    Returns
    -------
    statsmodels.iolib.summary.Summary
    """
    g = record.components
    layout = (
        "Variances are on the diagonal and covariances below it, with standard errors; "
        "correlations of effects, free of error, above it."
    )
    notes = [layout]
    if record.status not in ("Converged.", "Closed form."):
        notes.append(record.status)
    beyond = [
        name
        for name, S in zip(g.names, g.values, strict=True)
        if (np.abs(correlations_of(S)[~np.eye(g.n_variables, dtype=bool)]) > 1.0 + 1e-9).any()
    ]
    if beyond:
        notes.append(
            f"Correlations of {', '.join(beyond)} lie beyond ±1, as closed forms do not bound "
            "them; method='reml' keeps them inside."
        )
    notes += [*_design(record), *record.notes]
    if record.ending is not None and record.ending.information == "average":
        notes.append("Standard errors: from the average information.")
    return display.summary([_head(record), _matrices(record)], notes)


def _head(record: MultivariateRecord) -> Any:
    titles = {
        "reml": "REML",
        "ml": "ML",
        "anova": "ANOVA",
        "type1": "Type I ANOVA",
        "henderson3": "Henderson's Method III",
    }
    links = ", ".join(f"{f}{_MARKS[link.kind]}" for f, link in record.links.items())
    scores = sum(record.nobs)
    left = [f"Covariance components by {titles[record.method]}", f"facets: {links}"]
    right = [f"{display.count(scores)} scores of {len(record.nobs)} variables"]
    if np.isnan(record.llf):
        right.append("closed form")
    else:
        state = "converged" if record.converged else "NOT CONVERGED"
        right.append(f"log-likelihood {display.number(record.llf, 8)}   {state}")
    return display.plain_table(list(zip(left, right, strict=True)))


def _matrices(record: MultivariateRecord) -> Any:
    g, errors = record.components, record.components.standard_errors
    v = g.n_variables
    rows, stubs = [], []
    for t, name in enumerate(g.names):
        lower = np.tril_indices(v)
        estimates = np.full((v, v), "", dtype=object)
        estimates[lower] = display.fixed(g.values[t][lower], significant=3)
        spreads = np.full((v, v), "", dtype=object)
        spreads[lower] = display.fixed(errors[t][lower], significant=2)
        R = correlations_of(g.values[t])
        for a in range(v):
            cells = []
            for b in range(v):
                if b > a:
                    cells.append(display.fixed([R[a, b]], decimals=2)[0])
                elif np.isnan(g.values[t, a, b]):
                    cells.append(display.MISSING)
                else:
                    cells.append(f"{estimates[a, b]} ({spreads[a, b]})")
            rows.append([g.variables[a], *cells])
            stubs.append(name if a == 0 else "")
    return display.simple_table(rows, ["", *g.variables], stubs=stubs, align="lr")


def _design(record: MultivariateRecord) -> list[str]:
    """Return notes on the designs of the variables, and the facets that they share."""
    notes = []
    if len(set(record.designs)) == 1:
        notes.append(f"Each variable: {record.designs[0]}.")
    else:
        notes += [
            f"{name}: {design}."
            for name, design in zip(record.components.variables, record.designs, strict=True)
        ]
    for facet, link in record.links.items():
        if link.kind == "independent":
            levels = " + ".join(map(display.count, link.levels))
            notes.append(f"{facet}°: independent, {levels} levels of one variable each.")
        elif link.kind == "partly linked":
            levels = ", ".join(map(display.count, link.levels))
            notes.append(
                f"{facet}(•): partly linked, {display.count(link.shared)} levels shared by all "
                f"variables, which have {levels}."
            )
    linked = [f"{facet}•" for facet, link in record.links.items() if link.kind == "linked"]
    if linked:
        verb = "its levels are" if len(linked) == 1 else "their levels are"
        notes.append(f"{', '.join(linked)}: linked, {verb} the same for all variables.")
    return notes

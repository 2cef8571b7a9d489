"""A multivariate fit as a reader sees it: tables of components and correlations, the summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.inference import Quantities
from vcomp.inference.intervals import FromComponents, wald_interval
from vcomp.multivariate.covariance_components import CovarianceComponents, composite_of
from vcomp.multivariate.estimate_record import MultivariateRecord

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "component_table",
    "correlation_table",
    "correlations_of",
    "summary",
]


def correlations_of(S: FloatArray) -> FloatArray:
    """Return S_ab/√(S_aa S_bb), nan where a variance is not positive; the diagonal is 1.

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
    alpha : intervals have confidence 1 − alpha; without one there are no intervals
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
            found = FromComponents(one).limits(unit, alpha)
            here = (a == variable) & (b == variable)
            low[here], high[here] = found.low[t[here]], found.high[t[here]]
        columns |= {"conf_low": low, "conf_high": high}
    return pd.DataFrame(columns)


def correlation_table(g: CovarianceComponents, term: int, alpha: float) -> pd.DataFrame:
    """Return the correlations of a term with delta-method errors and intervals by Fisher's z.

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
            slopes = np.array([_unit(S, a, b), *_halves(S, r, a, b)])
            variance = float(slopes @ C @ slopes)
            if variance >= 0.0:
                se = variance**0.5
                ends = wald_interval(np.arctanh([r]), np.array([se / (1.0 - r * r)]), alpha)
                low, high = (float(np.tanh(end)[0]) for end in ends)
        rows.append((g.variables[a], g.variables[b], r, se, low, high))
    columns = ["variable1", "variable2", "estimate", "se", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def _unit(S: FloatArray, a: int, b: int) -> float:
    return float(1.0 / np.sqrt(S[a, a] * S[b, b]))


def _halves(S: FloatArray, r: float, a: int, b: int) -> tuple[float, float]:
    return -0.5 * r / float(S[a, a]), -0.5 * r / float(S[b, b])


_MARKS = {"linked": "•", "independent": "°", "partly linked": "(•)"}


def summary(record: MultivariateRecord) -> Any:
    """Return a summary: the design in words, a matrix a term, and what to know of them.

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
            f"Correlations of {', '.join(beyond)} lie beyond ±1, as closed forms do not know "
            "that they cannot; method='reml' keeps them inside."
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
    """Return the designs of the variables, and what they share."""
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

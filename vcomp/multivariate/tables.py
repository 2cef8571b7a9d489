"""Frames of variances, covariances and correlations, with fixed columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vcomp._typing import FloatArray
from vcomp.multivariate.composite import composite_of
from vcomp.multivariate.covariance_components import CovarianceComponents
from vcomp.uncertainty import FromComponents, Quantities
from vcomp.uncertainty.delta import wald_interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["component_table", "correlation_table", "correlations_of"]


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

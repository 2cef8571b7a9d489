"""How well error variances and coefficients are known.

One mechanism serves everything: the delta method with analytic gradients, on the log scale for
variances and the logit scale for coefficients. A complete two-way G-study has better intervals of
its coefficients from F quantiles.
"""

from __future__ import annotations

import math

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.components import REPLICATE, TwoWayMeanSquares, VarianceComponents
from vcomp.dstudy.plan import DStudyPlan

__all__ = [
    "ARTEAGA",
    "FELDT",
    "LOGIT_SCALE",
    "LOG_SCALE",
    "arteaga_interval",
    "erho2_of",
    "feldt_interval",
    "log_interval",
    "logit_interval",
    "phi_of",
    "standard_errors",
    "two_way_plans",
    "two_way_table",
]

FELDT = "exact F of the mean squares (Feldt 1965)"
ARTEAGA = "approximate F of the mean squares (Arteaga, Jeyaratnam and Franklin 1982)"
LOGIT_SCALE = "delta method on the logit scale"
LOG_SCALE = "delta method on the log scale"


def standard_errors(gradient: FloatArray, cov: FloatArray | None) -> FloatArray:
    """Return the delta method's standard errors √(g'Cg), nan without a covariance matrix.

    Parameters
    ----------
    gradient : (m, k) one row for each quantity
    cov : (k, k) covariance matrix of the components

    References
    ----------
    Searle, Casella and McCulloch (1992), Variance Components, sec. 3.7.

    Examples
    --------
    >>> standard_errors(np.array([[1.0, 1.0]]), np.diag([9.0, 16.0]))
    array([5.])
    """
    if cov is None:
        return np.full(len(gradient), np.nan)
    variance: FloatArray = np.einsum("mk,kl,ml->m", gradient, cov, gradient)
    return np.sqrt(np.where(variance >= 0, variance, np.nan))


def log_interval(value: FloatArray, se: FloatArray, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Return the delta method's interval of variances on the log scale.

    Parameters
    ----------
    value : (m,) estimates; the interval is nan where they are not positive
    se : (m,) their standard errors
    alpha : the interval has confidence 1 − alpha

    Examples
    --------
    >>> low, high = log_interval(np.array([2.0]), np.array([0.5]), 0.05)
    >>> low.round(4), high.round(4)
    (array([1.2253]), array([3.2646]))
    """
    inside = value > 0
    safe = np.where(inside, value, 1.0)
    reach = _normal(alpha) * se / safe
    reach = np.where(inside, reach, np.nan)
    with np.errstate(over="ignore"):
        return safe * np.exp(-reach), safe * np.exp(reach)


def logit_interval(
    value: FloatArray, se: FloatArray, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return the delta method's interval of coefficients on the logit scale.

    Parameters
    ----------
    value : (m,) estimates; the interval is nan where they are not between 0 and 1
    se : (m,) their standard errors
    alpha : the interval has confidence 1 − alpha

    Examples
    --------
    >>> low, high = logit_interval(np.array([0.9]), np.array([0.03]), 0.05)
    >>> low.round(4), high.round(4)
    (array([0.824]), array([0.9453]))
    """
    inside = (value > 0) & (value < 1)
    safe = np.where(inside, value, 0.5)
    reach = np.where(inside, _normal(alpha) * se / (safe * (1 - safe)), np.nan)
    odds_against = (1 - safe) / safe
    with np.errstate(over="ignore"):
        return 1 / (1 + odds_against * np.exp(reach)), 1 / (1 + odds_against * np.exp(-reach))


def feldt_interval(table: TwoWayMeanSquares, alpha: float) -> tuple[float, float]:
    """Return the exact interval of ζ = σ²_s/σ²_e, of which Eρ² = n'ζ/(1 + n'ζ).

    Parameters
    ----------
    table : mean squares with the object of measurement as rows
    alpha : the interval has confidence 1 − alpha

    References
    ----------
    Feldt (1965), Psychometrika 30, 357-370; as eq. (8) of Urbano, Marrero and Martín (2013),
    SIGIR, where alpha is one tail: half of ours.

    Examples
    --------
    >>> trec3 = TwoWayMeanSquares("sys", "topic", 30, 50, 0.150737, 0.852955, 0.0101522)
    >>> low, high = feldt_interval(trec3, 0.05)
    >>> round(low, 4), round(high, 4)
    (0.1671, 0.5187)
    """
    df_s, df_q = table.n_rows - 1, table.n_columns - 1
    ratio = table.ms_rows / table.ms_residual

    def bound(tail: float) -> float:
        return (ratio / _f_quantile(tail, df_s, df_s * df_q) - 1) / table.n_columns

    return bound(alpha / 2), bound(1 - alpha / 2)


def arteaga_interval(table: TwoWayMeanSquares, alpha: float) -> tuple[float, float]:
    """Return an interval of Λ = σ²_s/(σ²_s + σ²_q + σ²_e), cut at 0.

    Φ = n'Λ/(1 + (n' − 1)Λ) has the interval of the same ends.

    Parameters
    ----------
    table : mean squares with the object of measurement as rows
    alpha : the interval has confidence 1 − alpha

    References
    ----------
    Arteaga, Jeyaratnam and Franklin (1982), Communications in Statistics: Theory and Methods 11,
    1643-1658; as eq. (9) of Urbano, Marrero and Martín (2013), SIGIR. The second quantile in the
    denominator has df_q degrees of freedom: the printed equation says df_e, but only df_q gives
    the intervals of that paper's Table 1.

    Examples
    --------
    >>> trec3 = TwoWayMeanSquares("sys", "topic", 30, 50, 0.150737, 0.852955, 0.0101522)
    >>> low, high = arteaga_interval(trec3, 0.05)
    >>> round(low, 4), round(high, 4)
    (0.0376, 0.1283)
    """
    n_s, n_q = table.n_rows, table.n_columns
    df_s, df_q = n_s - 1, n_q - 1
    M_s, M_q, M_e = table.ms_rows, table.ms_columns, table.ms_residual

    def bound(tail: float) -> float:
        F_inf = _f_quantile(tail, df_s, math.inf)
        F_e = _f_quantile(tail, df_s, df_s * df_q)
        F_q = _f_quantile(tail, df_s, df_q)
        top = M_s**2 - F_inf * M_s * M_e + (F_inf - F_e) * F_e * M_e**2
        L = top / (df_s * F_inf * M_s * M_e + F_q * M_s * M_q)
        # below -n_q/n_s the ratio would jump to the other side; a share of variance ends at 0
        return n_s * max(L, 0.0) / (n_s * max(L, 0.0) + n_q)

    return bound(alpha / 2), bound(1 - alpha / 2)


def erho2_of(zeta: float, n: FloatArray) -> FloatArray:
    """Return Eρ² of n levels from ζ = σ²_s/σ²_e; 0 where ζ is negative.

    Parameters
    ----------
    zeta : ratio of variances, or an end of its interval
    n : (m,) levels of the other facet

    References
    ----------
    Urbano, Marrero and Martín (2013), eq. (10).

    Examples
    --------
    >>> erho2_of(0.1, np.array([10.0, 90.0]))
    array([0.5, 0.9])
    """
    odds = n * max(zeta, 0.0)
    return odds / (1 + odds)


def phi_of(lambda_: float, n: FloatArray) -> FloatArray:
    """Return Φ of n levels from Λ = σ²_s/(σ²_s + σ²_q + σ²_e); 0 where Λ is negative.

    Parameters
    ----------
    lambda_ : ratio of variances, or an end of its interval
    n : (m,) levels of the other facet

    References
    ----------
    Urbano, Marrero and Martín (2013), eq. (11).

    Examples
    --------
    >>> phi_of(0.1, np.array([1.0, 9.0]))
    array([0.1, 0.5])
    """
    positive = max(lambda_, 0.0)
    return n * positive / (1 + (n - 1) * positive)


def two_way_table(components: VarianceComponents, plan: DStudyPlan) -> TwoWayMeanSquares | None:
    """Return the mean squares that give intervals from F quantiles, or None.

    They do when the G-study is a complete two-way table with both main effects in the model, and
    the D-study crosses the same two facets.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study

    Examples
    --------
    >>> from vcomp.dstudy import from_components, make_plans
    >>> g = from_components({"p": 2.0, "i": 1.0, "Residual": 4.0}).components
    >>> two_way_table(g, make_plans(g, n={"i": 10})) is None
    True
    """
    table = components.mean_squares
    if table is None or min(table.n_rows, table.n_columns) < 2:
        return None
    facets = [f for f in plan.design.facets if f != REPLICATE]
    if {table.rows, table.columns} != set(facets) or any(plan.design.nested_in[f] for f in facets):
        return None
    if any(frozenset({f}) not in components.facets for f in facets):
        return None
    # without residual or without any differences F has no meaning
    if not (table.ms_residual > 0 and table.ms_rows > 0 and table.ms_columns > 0):
        return None
    return table.oriented(plan.object)


def two_way_plans(table: TwoWayMeanSquares | None, plan: DStudyPlan) -> BoolArray:
    """Return which plans the mean squares speak about: those with as many replicates.

    Parameters
    ----------
    table : of :func:`two_way_table`
    plan : of the D-study

    Examples
    --------
    >>> from vcomp.dstudy import from_components, make_plans
    >>> g = from_components({"p": 2.0, "i": 1.0, "Residual": 4.0}).components
    >>> two_way_plans(None, make_plans(g, n={"i": [10, 20]}))
    array([False, False])
    """
    if table is None:
        return np.zeros(len(plan.sizes), dtype=bool)
    if REPLICATE not in plan.facets:
        return np.ones(len(plan.sizes), dtype=bool)
    column = plan.facets.index(REPLICATE)
    return np.array([row[column] == table.n_replicates for row in plan.sizes])


def _normal(alpha: float) -> float:
    from scipy.special import ndtri

    return float(-ndtri(alpha / 2))


def _f_quantile(tail: float, df_1: float, df_2: float) -> float:
    """Return the value that F exceeds with probability `tail`."""
    # scipy.stats gives the same numbers and takes a second to import
    from scipy.special import chdtri, fdtri

    if math.isinf(df_2):
        return float(chdtri(df_1, tail)) / df_1
    return float(fdtri(df_1, df_2, 1 - tail))

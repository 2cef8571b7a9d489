"""Henderson's Method I: analysis of variance for any data (Henderson 1953).

With T_α = Σ_g S_g²/n_g over the groups of term α and T_μ = S²/N (MATHS 2):

    E T_α = N μ² + Σ_β k_αβ σ²_β,   k_αβ = Σ_{g∈α} (1/n_g) Σ_{h∈β} n_gh²,   k_αe = q_α
    E Σy² = N μ² + N Σ_β σ²_β + N σ²_e

Balanced data give the classical estimates. The T terms are quadratic forms y'A_α y with
A_α = Z_α D_α⁻¹ Z_α', so that their covariance under normality is 2 tr(A_α V A_β V), which sparse
products give. See also Searle, Casella & McCulloch (1992), section 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.estimate import Estimate
from vcomp.estimators.quadratic_forms import TooLargeError, quadratic_covariance
from vcomp.exceptions import EstimationError
from vcomp.linalg.dense import solve
from vcomp.statistics import CrossProducts

__all__ = ["ANOVA", "AnovaTable", "anova_table", "henderson1"]


@dataclass(frozen=True, slots=True)
class ANOVA:
    """Henderson's Method I, for models whose mean is one constant."""

    name: ClassVar[str] = "anova"

    def estimate(self, stats: CrossProducts, names: tuple[str, ...]) -> Estimate:
        """Return the estimate from the statistics alone; components may be negative."""
        coefficients, T = henderson1(stats)
        values = _solve(coefficients, T)
        covariance, reason = _covariance(stats, coefficients, values)
        beta, cov_beta = _mean(stats, values)
        return Estimate(
            method="anova",
            names=names,
            values=values,
            covariances={"sampling": covariance},
            beta=beta,
            cov_beta=cov_beta,
            llf=np.nan,
            converged=True,
            status=_status(names, values, stats) + reason,
            engine="closed form: sums of squares and their expectations",
        )


@dataclass(frozen=True, slots=True)
class AnovaTable:
    """Sums of squares of the terms, each less those of the coarser terms in the model.

    Attributes
    ----------
    names : the terms, the residual last
    df, sum_sq : (k + 1,)
    expected : (k + 1, k + 1) coefficients of the components (columns) in the expected mean squares
    """

    names: tuple[str, ...]
    df: FloatArray
    sum_sq: FloatArray
    expected: FloatArray


def henderson1(stats: CrossProducts) -> tuple[FloatArray, FloatArray]:
    """Return the coefficients of E[T] and the T terms, both less those of the mean.

    Returns
    -------
    coefficients : (k + 1, k + 1) rows are T terms (the last is the total), columns components
    T : (k + 1,)
    """
    k, n = stats.n_terms, float(stats.n)
    total = stats.Zy[0].sum()
    T = np.array([*((y * y / m).sum() for y, m in _groups(stats)), stats.yy]) - total**2 / n
    coefficients = np.empty((k + 1, k + 1))
    for a in range(k):
        for b in range(k):
            table = stats.gram(a, b)
            squares = np.asarray(table.multiply(table).sum(axis=1)).ravel()
            coefficients[a, b] = (squares / stats.group_n[a]).sum()
        coefficients[a, k] = stats.sizes[a]
    coefficients[k] = n
    coefficients -= np.array([*((m @ m) / n for m in stats.group_n), 1.0])
    return coefficients, T


def anova_table(stats: CrossProducts, names: tuple[str, ...]) -> AnovaTable:
    """Return the (analogous) analysis of variance: T terms less those of coarser terms.

    For balanced data these are the classical sums of squares. Otherwise they are what urGENOVA
    calls analogous: they need not be positive, nor independent (Brennan 2001, 7.1).
    """
    coefficients, T = henderson1(stats)
    k = stats.n_terms
    df = np.array([*stats.sizes, stats.n], dtype=float) - 1.0
    sums, expected = T.copy(), coefficients.copy()
    coarser_than = [[u for u in range(k) if u != t and stats.is_finer(t, u)] for t in range(k)]
    coarser_than.append(list(range(k)))
    for row in sorted(range(k + 1), key=lambda r: len(coarser_than[r])):
        for coarser in coarser_than[row]:
            sums[row] -= sums[coarser]
            df[row] -= df[coarser]
            expected[row] -= expected[coarser]
    with np.errstate(divide="ignore", invalid="ignore"):
        return AnovaTable(
            names, df, sums, np.where(df[:, None] > 0, expected / df[:, None], np.nan)
        )


def _groups(stats: CrossProducts) -> list[tuple[FloatArray, FloatArray]]:
    return list(zip(stats.Zy, stats.group_n, strict=True))


def _solve(coefficients: FloatArray, T: FloatArray) -> FloatArray:
    try:
        return solve(coefficients, T)
    except np.linalg.LinAlgError:
        raise EstimationError(
            "Henderson's Method I cannot tell these components apart: its expected sums of "
            "squares are linearly dependent; use method='reml'"
        ) from None


def _covariance(
    stats: CrossProducts, coefficients: FloatArray, values: FloatArray
) -> tuple[FloatArray, str]:
    """Return the sampling covariance at the estimates, negative ones as they are."""
    try:
        quadratic = quadratic_covariance(stats, values)
    except TooLargeError:
        nothing = np.full((values.size, values.size), np.nan)
        return nothing, " No standard errors: the covariance of its sums of squares is too large."
    covariance = solve(coefficients, solve(coefficients, quadratic).T)
    return 0.5 * (covariance + covariance.T), ""


def _mean(stats: CrossProducts, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean of all scores and its variance Σ σ² Σ n_g²/N², negative σ² as zero."""
    n = float(stats.n)
    squares = np.array([*((m @ m) for m in stats.group_n), n])
    return stats.Xy / n, np.array([[np.maximum(values, 0.0) @ squares / n**2]])


def _status(names: tuple[str, ...], values: FloatArray, stats: CrossProducts) -> str:
    if stats.yy == 0.0:
        return "The response is constant: all components are 0."
    negative = [name for name, value in zip(names, values, strict=True) if value < 0.0]
    if not negative:
        return "Closed form."
    listed = ", ".join(f"σ²({name})" for name in negative)
    verb = "is" if len(negative) == 1 else "are"
    return f"Closed form; {listed} {verb} estimated below zero and kept as estimated."

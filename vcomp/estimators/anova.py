"""Henderson's Method I: analysis of variance for any data (Henderson 1953).

With T_α = Σ_g S_g²/n_g over the groups of term α and T_μ = S²/N (MATHS 2):

    E T_α = N μ² + Σ_β k_αβ σ²_β,   k_αβ = Σ_{g∈α} (1/n_g) Σ_{h∈β} n_gh²,   k_αe = q_α
    E Σy² = N μ² + N Σ_β σ²_β + N σ²_e

Balanced data give the classical estimates. The T terms are quadratic forms y'A_α y with
A_α = Z_α D_α⁻¹ Z_α', so that their covariance under normality is 2 tr(A_α V A_β V), which sparse
products give. See also Searle, Casella & McCulloch (1992), section 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.blocked import BlockedLikelihood
from vcomp.estimators.estimate import Estimate
from vcomp.exceptions import EstimationError
from vcomp.linalg.dense import solve
from vcomp.linalg.memory import available_bytes
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
            bounded=np.zeros(values.size, dtype=bool),
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
    finer = _finer(stats)
    for row in sorted(range(k + 1), key=lambda r: finer[r].sum()):
        for coarser in np.flatnonzero(finer[row]):
            sums[row] -= sums[coarser]
            df[row] -= df[coarser]
            expected[row] -= expected[coarser]
    with np.errstate(divide="ignore", invalid="ignore"):
        return AnovaTable(
            names, df, sums, np.where(df[:, None] > 0, expected / df[:, None], np.nan)
        )


def _groups(stats: CrossProducts) -> list[tuple[FloatArray, FloatArray]]:
    return list(zip(stats.Zy, stats.group_n, strict=True))


def _finer(stats: CrossProducts) -> Any:
    """Return a boolean matrix: term in the row lies within the groups of term in the column."""
    k = stats.n_terms
    finer = np.zeros((k + 1, k + 1), dtype=bool)
    finer[k, :k] = True
    for (t, u), table in stats.pairs.items():
        finer[t, u] = table.counts.size == stats.sizes[t]
        finer[u, t] = table.counts.size == stats.sizes[u]
    return finer


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
    sizes = sorted(stats.sizes)[-2:]
    if 8.0 * 4.0 * float(np.prod(sizes)) > 0.5 * available_bytes():
        nothing = np.full((values.size, values.size), np.nan)
        return nothing, " No standard errors: the covariance of its sums of squares is too large."
    quadratic = _quadratic_covariance(stats, values)
    covariance = solve(coefficients, solve(coefficients, quadratic).T)
    return 0.5 * (covariance + covariance.T), ""


def _quadratic_covariance(stats: CrossProducts, v: FloatArray) -> FloatArray:
    """Return 2 tr((A_α − A_μ) V (A_β − A_μ) V) for the terms and the total.

    The mean is treated as one more term with a single group, and taken off at the end.
    """
    from scipy.sparse import csr_array

    k, n = stats.n_terms, stats.n
    ones = [csr_array(m[:, None]) for m in stats.group_n]
    gram = [[stats.gram(t, u) for u in range(k)] + [ones[t]] for t in range(k)]
    gram.append([*(o.T.tocsr() for o in ones), csr_array([[float(n)]])])
    weights = [1.0 / m for m in stats.group_n] + [np.array([1.0 / n])]
    forms = np.empty((k + 2, k + 2))  # terms, mean, total
    for a in range(k + 1):
        for b in range(a + 1):
            M = _through_v(gram, a, b, v)
            weighted = M.multiply(M) if hasattr(M, "multiply") else M * M
            forms[a, b] = forms[b, a] = weights[a] @ (weighted @ weights[b])
        forms[a, k + 1] = forms[k + 1, a] = weights[a] @ _diagonal_v_squared(gram, a, v)
    forms[k + 1, k + 1] = _trace_v_squared(gram, v, n)
    contrast = np.zeros((k + 1, k + 2))
    contrast[:k, :k] = np.eye(k)
    contrast[k, k + 1] = 1.0
    contrast[:, k] = -1.0
    return 2.0 * contrast @ forms @ contrast.T


def _through_v(gram: Sequence[Sequence[Any]], a: int, b: int, v: FloatArray) -> Any:
    """Return Z_a'V Z_b."""
    product = v[-1] * gram[a][b]
    for t, component in enumerate(v[:-1]):
        product = product + component * (gram[a][t] @ gram[t][b])
    return product


def _diagonal_v_squared(gram: Sequence[Sequence[Any]], a: int, v: FloatArray) -> FloatArray:
    """Return the diagonal of Z_a'V V Z_a."""
    half = [gram[a][t] for t in range(len(v) - 1)]
    diagonal = v[-1] ** 2 * gram[a][a].diagonal()
    for t, first in enumerate(v[:-1]):
        diagonal = diagonal + 2.0 * v[-1] * first * _row_products(half[t], half[t])
        for u, second in enumerate(v[:-1]):
            bridged = half[t] @ gram[t][u]
            diagonal = diagonal + first * second * _row_products(bridged, half[u])
    return np.asarray(diagonal, dtype=float)


def _row_products(a: Any, b: Any) -> FloatArray:
    return np.asarray(a.multiply(b).sum(axis=1), dtype=float).ravel()


def _trace_v_squared(gram: Sequence[Sequence[Any]], v: FloatArray, n: int) -> float:
    trace = n * v[-1] ** 2 + 2.0 * n * v[-1] * v[:-1].sum()
    for t, first in enumerate(v[:-1]):
        for u, second in enumerate(v[:-1]):
            trace += first * second * float(np.square(gram[t][u].data).sum())
    return float(trace)


def _mean(stats: CrossProducts, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the generalised least squares mean at the estimates, negative ones as zero.

    Where the equations for it are too large, or nothing is left for the residual, it is the plain
    mean with its own variance Σ σ² Σ n_g²/N².
    """
    v = np.maximum(values, 0.0)
    if v[-1] > 1e-12 * max(v.sum(), 0.0):
        try:
            solution = BlockedLikelihood(stats, reml=True).solution(v)
        except (EstimationError, np.linalg.LinAlgError):
            pass
        else:
            return solution.beta, solution.cov_beta
    n = float(stats.n)
    squares = np.array([*((m @ m) for m in stats.group_n), n])
    return stats.Xy / n, np.array([[v @ squares / n**2]])


def _status(names: tuple[str, ...], values: FloatArray, stats: CrossProducts) -> str:
    if stats.yy == 0.0:
        return "The response is constant: all components are 0."
    negative = [name for name, value in zip(names, values, strict=True) if value < 0.0]
    if not negative:
        return "Closed form."
    listed = ", ".join(f"σ²({name})" for name in negative)
    verb = "is" if len(negative) == 1 else "are"
    return f"Closed form; {listed} {verb} estimated below zero and kept as estimated."

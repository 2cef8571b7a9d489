"""Intervals of one-way data that are adjusted for kurtosis, after Burch.

Burch (2011), Computational Statistics & Data Analysis 55, 1018-1028, and his later papers take the
large-sample distribution of REML estimates without normality: their variance has the fourth
cumulants of group effects and errors in it, which are estimated. What is implemented here:

* estimates by REML; cov = I⁻¹ (I + K) I⁻¹ with the expected information I of REML. The score of
  component k is y'A_k y, A_k = ½ P V_k P, and for independent effects and errors with fourth
  cumulants κ₄ the covariances of such forms are
  2 tr(A_k V A_l V) + κ₄(s) Σ_i (Z'A_k Z)_ii (Z'A_l Z)_ii + κ₄(e) Σ_j (A_k)_jj (A_l)_jj
  (Searle, Casella and McCulloch 1992, Variance Components, appendix S.5): the first term is I, the
  others are K;
* fourth cumulants by unbiased equations of moments, which are those of k-statistics if groups are
  of one size (:func:`fourth_cumulants`); not below −2σ⁴, which is that of two points;
* intervals of a component on the log scale; of the ratio of the components on the log scale, which
  is the logit scale of the intraclass correlation (share) and of Eρ².

Burch's articles are for balanced groups. The equations of moments for groups of several sizes are
ours, and constants may differ from those of his articles, of which the abstracts were available.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.coverage.cells import Plan
from benchmarks.coverage.methods import Found, limits_of
from benchmarks.coverage.prepared import Prepared
from vcomp._typing import FloatArray, IntArray
from vcomp.exceptions import EstimationError
from vcomp.inference.intervals.limits import FromComponents

METHOD = "Burch"


def burch(prepared: Prepared, number: int, plan: Plan) -> Found:
    """Return kurtosis-adjusted intervals; none of a design that is not one-way."""
    if len(prepared.truth) != 2:
        return {}
    stats = prepared.draw(number, rows=True)
    try:
        fit = prepared.estimate(stats, "reml")
    except EstimationError:
        return {}
    if not fit.converged or (fit.values <= 0.0).any():
        return {}
    codes = stats.rows.codes[0]
    cumulants = fourth_cumulants(stats.rows.y, codes, float(fit.values[1]))
    cov = adjusted_covariance(codes, fit.values, np.maximum(cumulants, -2.0 * fit.values**2))
    components = replace(prepared.components(fit, stats), cov=cov)
    return {("reml", METHOD): limits_of(prepared, FromComponents(components, "log"), ratios=True)}


def fourth_cumulants(y: FloatArray, codes: IntArray, error: float) -> FloatArray:
    """Return estimated fourth cumulants of group effects and errors, κσ⁴, (2,).

    Parameters
    ----------
    y, codes : (N,) scores and their groups
    error : σ̂²_e; it is used only if groups differ in size

    Notes
    -----
    Of errors: residuals r from the means of a groups of sizes n have
    E Σ r⁴ = κ₄ Σ c₄ + 3σ⁴ Σ (1 − 1/n)² and E (Σ r²)² = κ₄ Σ (1 − 1/n)² + σ⁴ ν(ν + 2), with sums
    over the rows, c₄ = (1 − 1/n)⁴ + (n − 1)/n⁴ and ν = N − a; solved for κ₄ and σ⁴.

    Of groups: the fourth k-statistic of the means of groups has the expectation
    κ₄(s) + κ₄(e) mean(1/n³) + 3σ_e⁴ var(1/n), var with divisor a − 1.
    """
    n = np.bincount(codes).astype(float)
    means = np.bincount(codes, y) / n
    residuals = y - means[codes]
    size, left = n[codes], 1.0 - 1.0 / n[codes]
    fourth = left**4 + (size - 1.0) / size**4
    df = y.size - n.size
    equations = np.array([[fourth.sum(), 3.0 * (left**2).sum()], [(left**2).sum(), df * (df + 2)]])
    of_errors, _ = np.linalg.solve(equations, [(residuals**4).sum(), (residuals**2).sum() ** 2])
    heterogeneous = 3.0 * error**2 * np.var(1.0 / n, ddof=1)
    of_groups = k_statistic(means) - of_errors * np.mean(n**-3.0) - heterogeneous
    return np.array([of_groups, of_errors])


def k_statistic(x: FloatArray) -> float:
    """Return the fourth k-statistic, which is unbiased for the fourth cumulant.

    Examples
    --------
    >>> round(k_statistic(np.array([0.0, 0.0, 0.0, 1.0])), 6)
    1.0
    """
    n = x.size
    d = x - x.mean()
    second, fourth = np.sum(d**2), np.sum(d**4)
    top = n * (n + 1.0) * fourth - 3.0 * (n - 1.0) * second**2
    return float(top / ((n - 1.0) * (n - 2.0) * (n - 3.0)))


def adjusted_covariance(
    codes: IntArray, components: FloatArray, cumulants: FloatArray
) -> FloatArray:
    """Return the large-sample covariance matrix of REML estimates without normality, (2, 2).

    Parameters
    ----------
    codes : (N,) groups of the rows
    components : (2,) σ²_s and σ²_e
    cumulants : (2,) fourth cumulants of group effects and errors
    """
    groups = np.eye(int(codes.max()) + 1)[codes]
    shapes = groups @ groups.T, np.eye(codes.size)
    inverse = np.linalg.inv(components[0] * shapes[0] + components[1] * shapes[1])
    ones = inverse.sum(axis=1)
    projection = inverse - np.outer(ones, ones) / ones.sum()
    forms = [0.5 * projection @ shape @ projection for shape in shapes]
    information = np.array([[np.sum(a * shape) for shape in shapes] for a in forms])
    of_groups = np.array([np.einsum("ij,ik,kj->j", groups, a, groups) for a in forms])
    of_errors = np.array([np.diagonal(a) for a in forms])
    excess = cumulants[0] * of_groups @ of_groups.T + cumulants[1] * of_errors @ of_errors.T
    half = np.linalg.inv(information)
    covariance: FloatArray = half + half @ excess @ half
    return covariance

"""Coefficients of internal consistency from the covariances of the items.

All are lower bounds of the reliability of the total where errors of different items are not
correlated (Guttman 1945). With V = 1'S1 the variance of the total,

    λ₁ = 1 − Σ_i s_ii/V                             λ₄ = max over halves A, B of 4 s_AB/V
    λ₂ = λ₁ + √(k/(k−1) Σ_{i≠j} s_ij²)/V            λ₅ = λ₁ + 2 √(max_j Σ_{i≠j} s_ij²)/V
    λ₃ = k/(k−1) λ₁, Cronbach's alpha               λ₆ = 1 − Σ_i e_i²/V

where e_i² is the variance of item i that the others do not predict.
"""

from __future__ import annotations

import math

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.ctt.alpha import alpha_of
from vcomp.ctt.covariances import ItemCovariances
from vcomp.ctt.matrix import ItemScores
from vcomp.linalg.memory import slices

__all__ = ["best_split", "coefficients_of", "kuder_richardson"]

_MOST_ITEMS = 16
"""λ₄ looks at all 2^(k−1) ways to make halves: of 16 items 32,768."""

_DEPENDENT = 1e-10
"""Correlations with an eigenvalue below this are those of items that depend on each other."""

_SLICE = 4096


def coefficients_of(c: ItemCovariances, n: int) -> tuple[dict[str, float], dict[str, str]]:
    """Return the coefficients, nan where there is none, and why there is none.

    Parameters
    ----------
    c : covariances of the items, their total not 0
    n : number of objects
    """
    k, V = c.k, c.total
    lambda_1 = 1.0 - float(c.variances.sum()) / V
    found = {
        "alpha": alpha_of(float(c.variances.sum()), V, k),
        "standardised_alpha": math.nan,
        "lambda1": lambda_1,
        "lambda2": math.nan,
        "lambda4": math.nan,
        "lambda5": math.nan,
        "lambda6": math.nan,
        "mean_correlation": c.mean_correlation,
    }
    reasons: dict[str, str] = {}
    if math.isnan(c.mean_correlation):
        n_constant = int((c.variances == 0.0).sum())
        why = (
            f"{display.count(n_constant)} of {display.count(k)} items have no variance, so that "
            "they have no correlations"
        )
        reasons |= dict.fromkeys(("standardised_alpha", "mean_correlation"), why)
    else:
        found["standardised_alpha"] = alpha_of(k, c.correlations, k)
    if c.squares is None:
        why = "the covariances of the items would not fit into memory"
        reasons |= dict.fromkeys(("lambda2", "lambda5"), why)
    else:
        others = np.maximum(c.squares - np.square(c.variances), 0.0)
        found["lambda2"] = lambda_1 + math.sqrt(k / (k - 1) * float(others.sum())) / V
        found["lambda5"] = lambda_1 + 2.0 * math.sqrt(float(others.max())) / V
    if k > _MOST_ITEMS or c.matrix is None:
        reasons["lambda4"] = (
            f"looks at all ways to make halves, which takes too long for more than {_MOST_ITEMS} "
            "items"
        )
    else:
        found["lambda4"] = best_split(c.matrix)
    unpredicted = _unpredicted(c.matrix, n)
    if isinstance(unpredicted, str):
        reasons["lambda6"] = unpredicted
    else:
        found["lambda6"] = 1.0 - unpredicted / V
    return found, reasons


def best_split(S: FloatArray) -> float:
    """Return Guttman's λ₄, the largest of the split-half coefficients.

    Parameters
    ----------
    S : (k, k) covariances of a few items

    Examples
    --------
    >>> round(best_split(np.array([[2.0, 1.0], [1.0, 3.0]])), 4)  # 4 × 1 / 7
    0.5714
    """
    k = len(S)
    best = -math.inf
    for part in slices(2 ** (k - 1), _SLICE):
        numbers = np.arange(part.start, part.stop)
        # the last item is always in the second half: halves have no order
        first = (numbers[:, None] >> np.arange(k)) & 1
        signs = 2.0 * first - 1.0
        # the variance of A − B is V − 4 s_AB
        between = np.einsum("bi,bi->b", signs @ S, signs)
        best = max(best, float(S.sum() - between.min()))
    return best / float(S.sum())


def kuder_richardson(matrix: ItemScores) -> tuple[dict[str, float], str]:
    """Return KR-20 and KR-21 of items scored 0 or 1, or why there are none.

    Formulae 20 and 21 of Kuder and Richardson have p(1 − p) for the variances of items, and so the
    variance of the total with n in its denominator. KR-20 is then α; KR-21 takes all items as
    equally difficult, and is never larger.

    Parameters
    ----------
    matrix : complete scores

    References
    ----------
    Kuder, G. F. and Richardson, M. W. (1937). The theory of the estimation of test reliability.
    *Psychometrika*, 2(3), 151-160.
    """
    X = matrix.values
    strange = (X != 0.0) & (X != 1.0)
    if strange.any():
        p, i = np.argwhere(strange)[0]
        return {}, (
            "are for items scored 0 or 1; "
            f"item {str(matrix.items[i])!r} has the score {display.number(float(X[p, i]))}"
        )
    k = X.shape[1]
    p = X.mean(axis=0)
    total = float(X.sum(axis=1).var())
    mean = float(p.sum())
    return {
        "KR20": alpha_of(float((p * (1.0 - p)).sum()), total, k),
        "KR21": alpha_of(mean * (k - mean) / k, total, k),
    }, ""


def _unpredicted(S: FloatArray | None, n: int) -> float | str:
    """Return the sum of the variances that the other items leave of each, or why there is none."""
    if S is None or n <= len(S):
        return "predicts every item from all others, which takes more objects than items"
    varied = np.diagonal(S) > 0.0
    variances = np.diagonal(S)[varied]
    scale = 1.0 / np.sqrt(variances)
    R = S[np.ix_(varied, varied)] * np.outer(scale, scale)
    smallest = float(np.linalg.eigvalsh(R)[0])
    if smallest < -_DEPENDENT:
        return "the covariances of pairs are those of no complete data (not positive definite)"
    if smallest < _DEPENDENT:
        return "an item is a combination of others"
    L = np.linalg.cholesky(R)
    from scipy.linalg import solve_triangular

    half = solve_triangular(L, np.eye(len(R)), lower=True)
    return float((variances / np.square(half).sum(axis=0)).sum())

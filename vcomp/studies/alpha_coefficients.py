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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import DataError, guarded
from vcomp.numerics import available_bytes, check_memory, f_quantile, slices
from vcomp.studies.item_scores import ItemScores, ScoresOfItems, read_scores

_FEW = 16
"""Largest number of items whose covariance matrix is made even with fewer objects than items."""


NO_VARIANCE = 64 * float(np.finfo(float).eps)
"""A sum of covariances below this, relative to the variances, is rounding error."""

_CONSTANT = NO_VARIANCE
"""Standard deviations below this share of the item's largest score are rounding error."""


@dataclass(frozen=True, slots=True, eq=False)
class ItemCovariances:
    """Sums over the covariances s_ij of k items.

    Attributes
    ----------
    variances : (k,) s_ii, 0 for an item whose scores are equal but for rounding
    with_total : (k,) Σ_j s_ij, the covariance with the total
    total : Σ_ij s_ij, the variance of the total
    correlations : Σ_ij r_ij; nan where an item has no variance
    squares : (k,) Σ_j s_ij²; None where neither matrix would fit into memory
    matrix : (k, k) S; None where it is not made
    """

    variances: FloatArray
    with_total: FloatArray
    total: float
    correlations: float
    squares: FloatArray | None
    matrix: FloatArray | None

    @property
    def k(self) -> int:
        """Number of items."""
        return self.variances.size

    @property
    def mean_correlation(self) -> float:
        """Mean correlation of two different items."""
        return (self.correlations - self.k) / (self.k * (self.k - 1))


def from_complete(
    X: FloatArray, *, free_bytes: Callable[[], float] = available_bytes
) -> ItemCovariances:
    """Return the sums of a matrix without missing cells.

    Parameters
    ----------
    X : (n, k) scores
    free_bytes : returns the free memory, of which a matrix may take a quarter
    """
    n, k = X.shape
    D = X - X.mean(axis=0)
    variances = np.einsum("ij,ij->j", D, D) / (n - 1)
    constant = is_constant(variances, np.abs(X).max(axis=0))
    variances[constant] = 0.0
    D[:, constant] = 0.0
    totals = D.sum(axis=1)
    correlations = np.nan
    if not constant.any():
        standard = D @ (1.0 / np.sqrt(variances))
        correlations = float(standard @ standard) / (n - 1)
    matrix, squares = None, None
    if min(n, k) ** 2 * 8.0 < free_bytes() / 4.0:
        if k <= max(n, _FEW):
            matrix = D.T @ D / (n - 1)
            squares = np.square(matrix).sum(axis=0)
        else:
            squares = np.einsum("ij,ij->j", D @ D.T @ D, D) / (n - 1) ** 2
    return ItemCovariances(
        variances=variances,
        with_total=D.T @ totals / (n - 1),
        total=float(totals @ totals) / (n - 1),
        correlations=correlations,
        squares=squares,
        matrix=matrix,
    )


def is_constant(variances: FloatArray, largest: FloatArray) -> BoolArray:
    """Return which items have no variance beyond rounding error.

    Parameters
    ----------
    variances : (k,) of the items; nan where it is not known, which is no constant
    largest : (k,) their largest scores, without sign
    """
    return np.asarray(variances <= np.square(_CONSTANT * largest))


def pair_counts(X: FloatArray, *, free_bytes: Callable[[], float] = available_bytes) -> FloatArray:
    """Return how many objects have a score on both of two items, (k, k).

    Parameters
    ----------
    X : (n, k) scores, nan where there is none
    free_bytes : returns the free memory

    Raises
    ------
    DataError
        If the matrices of pairs would not fit into memory.
    """
    k = X.shape[1]
    matrices = 4.0 * 8.0 * k * k
    what = f"the covariances of {k:,} items need"
    check_memory(matrices, what, "use fewer items", DataError, free_bytes=free_bytes)
    # whole numbers of this size are exact in single precision, which is twice as fast
    single = len(X) < 1 << 24
    observed: Any = (~np.isnan(X)).astype(np.float32 if single else np.float64)
    return (observed.T @ observed).astype(np.float64)


def from_pairs(matrix: ItemScores, counts: FloatArray) -> ItemCovariances:
    """Return the sums of pairwise covariances, each over the objects that have both items.

    Parameters
    ----------
    matrix : scores, nan where there is none
    counts : of :func:`pair_counts`, all of them at least 2

    Raises
    ------
    DataError
        If two items have fewer than two objects in common; the message names them.
    """
    few = np.argwhere(counts < 2)
    if few.size:
        i, j = few[0]
        raise DataError(
            f"items {str(matrix.items[i])!r} and {str(matrix.items[j])!r} have "
            f"{int(counts[i, j])} objects in common, and a covariance needs two",
            level=matrix.items[i],
        )
    X = matrix.values
    observed = ~np.isnan(X)
    mean = np.nansum(X, axis=0) / np.diagonal(counts)
    D = np.where(observed, X - mean, 0.0)
    # Σ (x − x̄)(y − ȳ) of the objects of the pair, whose means are not those of the items
    sums = D.T @ observed.astype(float)
    S = (D.T @ D - sums * sums.T / counts) / (counts - 1)
    constant = is_constant(np.diagonal(S), np.nanmax(np.abs(X), axis=0))
    S[constant] = 0.0
    S[:, constant] = 0.0
    variances = np.diagonal(S).copy()
    correlations = np.nan
    if not constant.any():
        correlations = float((S / np.sqrt(np.outer(variances, variances))).sum())
    total = float(S.sum())
    return ItemCovariances(
        variances=variances,
        with_total=S.sum(axis=0),
        total=total if total > NO_VARIANCE * len(S) * variances.sum() else min(total, 0.0),
        correlations=correlations,
        squares=np.square(S).sum(axis=0),
        matrix=S,
    )


_ROUNDING = 64 * float(np.finfo(float).eps)
"""Totals that spread less than this, relative to the largest score, differ by rounding alone."""


@guarded
def cronbach_alpha(
    scores: ScoresOfItems,
    *,
    object: str | None = None,  # noqa: A002 - the word of the field
    item: str | None = None,
    score: str | None = None,
) -> float:
    """Return Cronbach's alpha, the reliability of the total over items.

    A bare matrix has **one row per object of measurement and one column per item**.

    With k items, the variances s_i² of the items and s_X² of the totals,

        α = k/(k-1) (1 - Σ_i s_i² / s_X²).

    It is Eρ² of the p × i design with the items of the G-study (Bodoff, 2008, sec. 3.5).
    :func:`reliability` gives its interval and other coefficients, and accepts incomplete scores.

    Parameters
    ----------
    scores : long table with its columns named, :class:`vcomp.ir.ScoreMatrix`, or matrix; see
        :func:`reliability`
    object, item, score : columns of a long table. If one of them is given, each other is the
        column of its own name, ``"object"``, ``"item"`` or ``"score"``

    Returns
    -------
    float
        At most 1; negative where items disagree more than by chance.

    Raises
    ------
    DataError
        If `scores` is not a numeric matrix, has fewer than two rows or two items, missing or
        infinite cells, or if all rows have the same total; or if long data have two scores of one
        object on one item.

    References
    ----------
    Cronbach, L. J. (1951). Coefficient alpha and the internal structure of tests. *Psychometrika*,
    16(3), 297-334.

    Bodoff, D. and Li, P. (2007). Test theory for assessing IR test collections. *SIGIR*, p. 369
    (formula and figure 2).

    Examples
    --------
    Five algorithms on three queries (Bodoff and Li, 2007, figure 2):

    >>> scores = [
    ...     [0.70, 0.50, 0.60],
    ...     [0.80, 0.60, 0.76],
    ...     [0.94, 0.82, 0.89],
    ...     [0.75, 0.70, 0.50],
    ...     [0.75, 0.80, 0.75],
    ... ]
    >>> round(cronbach_alpha(scores), 4)
    0.8094
    """
    matrix = read_scores(scores, object, item, score)
    missing = matrix.n_missing
    if missing:
        raise DataError(
            f"{missing:,} of {matrix.values.size:,} cells are missing, and alpha needs them all: "
            "drop the rows or items that have them, or use "
            "vcomp.reliability(scores).cronbach_alpha, which estimates it from the available ones"
        )
    X = matrix.values
    check_totals(X)
    X = X - X.mean(axis=0)
    total = X.shape[1] ** 2 * X.mean(axis=1).var(ddof=1)
    return alpha_of(float(X.var(axis=0, ddof=1).sum()), float(total), X.shape[1])


def alpha_of(variances: float, total: float, k: int) -> float:
    """Return alpha from Σ s_i² and s_X².

    Parameters
    ----------
    variances : sum of the variances of the items
    total : variance of the totals, not 0
    k : number of items, at least 2

    Examples
    --------
    >>> round(alpha_of(0.0498, 0.10817, 3), 5)  # Bodoff (2008), appendix A
    0.80942
    """
    return k / (k - 1) * (1.0 - variances / total)


def same_totals(X: FloatArray) -> bool:
    """Return whether the totals of a complete matrix differ by rounding alone.

    Parameters
    ----------
    X : (n, k) scores
    """
    mean_score = (X - X.mean(axis=0)).mean(axis=1)
    return bool(np.ptp(mean_score) <= _ROUNDING * np.abs(X).max())


def check_totals(X: FloatArray) -> None:
    """Refuse complete scores in which all objects have the same total.

    Raises
    ------
    DataError
        If they do.
    """
    if same_totals(X):
        raise DataError(
            "all rows have the same total, so the total has no variance and alpha is not defined"
        )


def feldt_limits(value: float, n: float, k: int, alpha: float) -> tuple[float, float]:
    """Return Feldt's interval of Cronbach's alpha.

    (1 − α)/(1 − α̂) has an F distribution with n − 1 and (n − 1)(k − 1) degrees of freedom: exactly
    where the model of p × i with normal effects holds.

    Parameters
    ----------
    value : the estimate
    n : number of objects
    k : number of items
    alpha : the interval has confidence 1 − alpha

    References
    ----------
    Feldt, L. S. (1965). The approximate sampling distribution of Kuder-Richardson reliability
    coefficient twenty. *Psychometrika*, 30(3), 357-370.

    Examples
    --------
    >>> low, high = feldt_limits(0.8094, 5, 3, 0.05)
    >>> round(low, 3), round(high, 3)
    (0.037, 0.979)
    """
    df_1, df_2 = n - 1.0, (n - 1.0) * (k - 1.0)
    upper, lower = (float(f_quantile(tail, df_1, df_2)) for tail in (1 - alpha / 2, alpha / 2))
    return 1.0 - (1.0 - value) * upper, 1.0 - (1.0 - value) * lower


_MOST_ITEMS = 16
"""Largest number of items for λ₄, which evaluates all 2^(k−1) splits: 32,768 for 16 items."""

_DEPENDENT = 1e-10
"""Items whose correlation matrix has an eigenvalue below this are linearly dependent."""


def coefficients_of(c: ItemCovariances, n: int) -> tuple[dict[str, float], dict[str, str]]:
    """Return the coefficients, nan where undefined, with the reasons.

    Parameters
    ----------
    c : covariances of the items, their total not 0
    n : number of objects
    """
    k, V = c.k, c.total
    lambda_1 = 1.0 - float(c.variances.sum()) / V
    coefficients = {
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
        coefficients["standardised_alpha"] = alpha_of(k, c.correlations, k)
    if c.squares is None:
        why = "the covariances of the items would not fit into memory"
        reasons |= dict.fromkeys(("lambda2", "lambda5"), why)
    else:
        others = np.maximum(c.squares - np.square(c.variances), 0.0)
        coefficients["lambda2"] = lambda_1 + math.sqrt(k / (k - 1) * float(others.sum())) / V
        coefficients["lambda5"] = lambda_1 + 2.0 * math.sqrt(float(others.max())) / V
    if k > _MOST_ITEMS or c.matrix is None:
        reasons["lambda4"] = (
            f"needs all splits into halves, which takes too long for more than {_MOST_ITEMS} items"
        )
    else:
        coefficients["lambda4"] = best_split(c.matrix)
    unpredicted = _unpredicted(c.matrix, n)
    if isinstance(unpredicted, str):
        reasons["lambda6"] = unpredicted
    else:
        coefficients["lambda6"] = 1.0 - unpredicted / V
    return coefficients, reasons


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
    for part in slices(2 ** (k - 1), 4096):
        numbers = np.arange(part.start, part.stop)
        # the last item is always in the second half: halves have no order
        first = (numbers[:, None] >> np.arange(k)) & 1
        signs = 2.0 * first - 1.0
        # the variance of A − B is V − 4 s_AB
        between = np.einsum("bi,bi->b", signs @ S, signs)
        best = max(best, float(S.sum() - between.min()))
    return best / float(S.sum())


def kuder_richardson(matrix: ItemScores) -> tuple[dict[str, float], str]:
    """Return KR-20 and KR-21 of items scored 0 or 1, or the reason why they are undefined.

    Formulae 20 and 21 of Kuder and Richardson have p(1 − p) for the variances of items, and so the
    variance of the total with n in its denominator. KR-20 is then α; KR-21 assumes
    items of equal difficulty, and is never larger.

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
    """Return the sum of residual variances of items given the others, or why it is undefined."""
    if S is None or n <= len(S):
        return "predicts every item from all others, which needs more objects than items"
    varied = np.diagonal(S) > 0.0
    variances = np.diagonal(S)[varied]
    scale = 1.0 / np.sqrt(variances)
    R = S[np.ix_(varied, varied)] * np.outer(scale, scale)
    smallest = float(np.linalg.eigvalsh(R)[0])
    if smallest < -_DEPENDENT:
        return "the matrix of pairwise covariances is not positive definite"
    if smallest < _DEPENDENT:
        return "an item is a combination of others"
    L = np.linalg.cholesky(R)
    from scipy.linalg import solve_triangular

    half = solve_triangular(L, np.eye(len(R)), lower=True)
    return float((variances / np.square(half).sum(axis=0)).sum())

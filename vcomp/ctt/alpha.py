"""Cronbach's alpha: the coefficient, and its interval."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.ctt.matrix import ScoresOfItems, read_scores
from vcomp.exceptions import DataError

__all__ = ["alpha_of", "cronbach_alpha", "feldt_limits", "same_totals"]

_ROUNDING = 64 * float(np.finfo(float).eps)
"""Totals that spread less than this, relative to the largest score, differ by rounding alone."""


def cronbach_alpha(
    scores: ScoresOfItems,
    *,
    object: str | None = None,  # noqa: A002 - the word of the field
    item: str | None = None,
    response: str | None = None,
) -> float:
    """Return Cronbach's alpha, the reliability of the total over items.

    With k items, the variances s_i² of the items and s_X² of the totals,

        α = k/(k-1) (1 - Σ_i s_i² / s_X²).

    It is Eρ² of the p × i design with the items of the G-study (Bodoff, 2008, sec. 3.5).
    :func:`reliability` gives its interval, other coefficients, and takes incomplete scores.

    Parameters
    ----------
    scores : matrix with **a row for each object measured** (person, system) **and a column for
        each item** (question, topic). That is the transpose of the topic × system matrix of
        :mod:`vcomp.ir`: pass ``matrix.T`` for the reliability with which topics measure systems
    object, item, response : columns of long data, a row a score: all three, or none

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
    matrix = read_scores(scores, object, item, response)
    missing = matrix.n_missing
    if missing:
        raise DataError(
            f"{missing:,} of {matrix.values.size:,} cells are missing, and alpha needs them all: "
            "drop the rows or items that have them, or take vcomp.reliability(scores).alpha, "
            "which estimates it from those that are there"
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
            "all rows have the same total, so there is no variance that alpha could be a share of"
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
    from scipy.special import fdtri

    df_1, df_2 = n - 1.0, (n - 1.0) * (k - 1.0)
    upper, lower = (float(fdtri(df_1, df_2, tail)) for tail in (1 - alpha / 2, alpha / 2))
    return 1.0 - (1.0 - value) * upper, 1.0 - (1.0 - value) * lower

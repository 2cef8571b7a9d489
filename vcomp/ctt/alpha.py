"""Cronbach's alpha."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["cronbach_alpha"]

_ROUNDING = 64 * float(np.finfo(float).eps)
"""Totals that spread less than this, relative to the largest score, differ by rounding alone."""


def cronbach_alpha(scores: ArrayLike | pd.DataFrame) -> float:
    """Return Cronbach's alpha, the reliability of the total over items.

    With k items, the variances s_i² of the items and s_X² of the totals,

        α = k/(k-1) (1 - Σ_i s_i² / s_X²).

    It is Eρ² of the p × i design with the items of the G-study (Bodoff, 2008, sec. 3.5).

    Parameters
    ----------
    scores : matrix with **a row for each object measured** (person, system) **and a column for
        each item** (question, topic). That is the transpose of the topic × system matrix of
        :mod:`vcomp.ir`: pass ``matrix.T`` for the reliability with which topics measure systems

    Returns
    -------
    float
        At most 1; negative where items disagree more than by chance.

    Raises
    ------
    DataError
        If `scores` is not a numeric matrix, has fewer than two rows or two items, missing or
        infinite cells, or if all rows have the same total.

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
    X = _objects_by_items(scores)
    tolerance = _ROUNDING * np.abs(X).max()
    X = X - X.mean(axis=0)
    k = X.shape[1]
    mean_score = X.mean(axis=1)
    if np.ptp(mean_score) <= tolerance:
        raise DataError(
            "all rows have the same total, so there is no variance that alpha could be a share of"
        )
    total = k**2 * mean_score.var(ddof=1)
    return float(k / (k - 1) * (1.0 - X.var(axis=0, ddof=1).sum() / total))


def _objects_by_items(scores: ArrayLike | pd.DataFrame) -> FloatArray:
    X = _numbers(scores)
    if X.ndim != 2:
        raise DataError(f"scores must be a matrix, objects by items; it has {X.ndim} dimension(s)")
    n, k = X.shape
    if n < 2 or k < 2:
        raise DataError(
            f"alpha needs at least two rows (objects) and two columns (items); there are {n} × {k}"
        )
    missing = int(np.isnan(X).sum())
    if missing:
        raise DataError(
            f"{missing:,} of {X.size:,} cells are missing, and alpha needs them all: drop the "
            "rows or items that have them, or fit the components and ask a D-study for Erho2"
        )
    if np.isinf(X).any():
        raise DataError("there is an infinite score")
    return X


def _numbers(scores: ArrayLike | pd.DataFrame) -> FloatArray:
    import pandas as pd

    if isinstance(scores, pd.DataFrame):
        for name, dtype in zip(scores.columns, scores.dtypes, strict=True):
            if not pd.api.types.is_numeric_dtype(dtype):
                raise DataError(f"column {str(name)!r} does not hold numbers; set it as the index")
        return scores.to_numpy(dtype=float, na_value=np.nan)
    try:
        raw = np.asarray(scores)
        if raw.dtype.kind in "biufO":
            return raw.astype(float)
    except (TypeError, ValueError) as error:
        raise DataError(f"scores must be a matrix of numbers: {error}") from error
    raise DataError(f"scores must be numbers; they are {raw.dtype.name}")

"""P-values of a family of tests, adjusted for their number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, check_one_of

CorrectionName: TypeAlias = Literal["none", "bonferroni", "holm", "fdr_bh", "fdr_by"]


def adjusted(p_values: FloatArray, correction: CorrectionName) -> FloatArray:
    """Return p-values adjusted for testing all of them.

    A hypothesis is rejected at level α if its adjusted p-value is at most α. Bonferroni and Holm
    then bound the probability of any false rejection by α (the family-wise error rate), Benjamini
    and Hochberg the expected share of rejections that are false (the false discovery rate), if
    p-values are independent or positively dependent; Benjamini and Yekutieli always.

    Parameters
    ----------
    p_values : (m,) of the family
    correction : ``"none"``, ``"bonferroni"``, ``"holm"``, ``"fdr_bh"`` (Benjamini and Hochberg) or
        ``"fdr_by"`` (Benjamini and Yekutieli), as statsmodels' ``multipletests`` calls them

    Returns
    -------
    (m,) array

    Raises
    ------
    PlanError
        If `correction` is not one of these.
    DataError
        If a p-value is not between 0 and 1.

    References
    ----------
    Holm, S. (1979). A simple sequentially rejective multiple test procedure. *Scandinavian Journal
    of Statistics*, 6, 65-70.

    Benjamini, Y. and Hochberg, Y. (1995). Controlling the false discovery rate: a practical and
    powerful approach to multiple testing. *Journal of the Royal Statistical Society B*, 57,
    289-300.

    Benjamini, Y. and Yekutieli, D. (2001). The control of the false discovery rate in multiple
    testing under dependency. *Annals of Statistics*, 29, 1165-1188.

    Examples
    --------
    >>> adjusted(np.array([0.01, 0.04, 0.03]), "holm").round(4).tolist()
    [0.03, 0.06, 0.06]
    >>> adjusted(np.array([0.01, 0.04, 0.03]), "fdr_bh").round(4).tolist()
    [0.03, 0.04, 0.04]
    """
    check_one_of("correction", correction, CORRECTIONS)
    p = np.asarray(p_values, dtype=float)
    if not ((p >= 0.0) & (p <= 1.0)).all():
        raise DataError("p-values must be between 0 and 1, and none may be missing")
    return _RULES[correction](p)


def _none(p: FloatArray) -> FloatArray:
    return p.copy()


def _bonferroni(p: FloatArray) -> FloatArray:
    return np.minimum(p.size * p, 1.0)


def _holm(p: FloatArray) -> FloatArray:
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    return _placed(stepped, order)


def _fdr_bh(p: FloatArray) -> FloatArray:
    return _step_up(p, 1.0)


def _fdr_by(p: FloatArray) -> FloatArray:
    return _step_up(p, float((1.0 / np.arange(1, p.size + 1)).sum()))


def _step_up(p: FloatArray, factor: float) -> FloatArray:
    order = np.argsort(p, kind="stable")
    scaled = p[order] * (factor * p.size / np.arange(1, p.size + 1))
    return _placed(np.minimum.accumulate(scaled[::-1])[::-1], order)


def _placed(sorted_p: FloatArray, order: np.ndarray[tuple[int], np.dtype[np.int64]]) -> FloatArray:
    made = np.empty_like(sorted_p)
    made[order] = np.minimum(sorted_p, 1.0)
    return made


_RULES: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "none": _none,
    "bonferroni": _bonferroni,
    "holm": _holm,
    "fdr_bh": _fdr_bh,
    "fdr_by": _fdr_by,
}

CORRECTIONS = tuple(_RULES)

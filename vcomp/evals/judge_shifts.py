"""Bias of judges: differences of their ratings of the same answers, by least squares."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.evals.item_sampling import JackknifedStatistics, summed_by, without_each

_ROUNDING = 16 * float(np.finfo(float).eps)

_SINGULAR = 1e-9
"""Eigenvalues of normal equations below this share of the largest are zero."""


def shifts(
    ratings: FloatArray, items: LongArray, n_items: int, more: FloatArray | None = None
) -> JackknifedStatistics:
    """Return the shifts of judges about their mean, and coefficients of more columns.

    Parameters
    ----------
    ratings : (answers, judges), nan where there is none
    items : (answers,) codes of the items
    n_items : number of items, of which some may have no answer here
    more : (answers, judges, p) columns besides the judges

    Returns
    -------
    JackknifedStatistics
        of (judges + p,) values, nan where ratings do not determine them

    Notes
    -----
    The model is x_uj = μ_u + β_j + z_uj'γ with an effect of each answer u and Σ_j β_j = 0, by
    ordinary least squares: answers are eliminated, and each item adds to the normal equations.
    """
    seen = np.isfinite(ratings)
    columns = np.broadcast_to(np.eye(ratings.shape[1]), (*seen.shape, ratings.shape[1]))
    if more is not None:
        columns = np.concatenate([columns, more], axis=2)
    J, width = ratings.shape[1], columns.shape[2]
    centre = float(np.nanmean(ratings)) if seen.any() else 0.0
    y = np.where(seen, ratings - centre, 0.0)
    r = np.maximum(seen.sum(axis=1), 1)
    y = np.where(seen, y - (y.sum(axis=1) / r)[:, None], 0.0)
    # Equal ratings of an answer have no differences, whatever the rounding of their mean.
    y = np.where(np.abs(y) > _ROUNDING * np.nanmax(np.abs(ratings), initial=0.0), y, 0.0)
    x = np.where(seen[..., None], columns, 0.0)
    x = np.where(seen[..., None], x - (x.sum(axis=1) / r[:, None])[:, None, :], 0.0)
    products = np.einsum("ujp,ujq->upq", x, x).reshape(len(y), width * width)
    sums = summed_by(items, np.hstack([products, np.einsum("ujp,uj->up", x, y)]), n_items)
    held = np.zeros((width, width))
    held[:J, :J] = 1.0 / J

    def solved(total: FloatArray) -> FloatArray:
        normal = total[..., : width * width].reshape(*total.shape[:-1], width, width)
        largest = np.trace(normal, axis1=-2, axis2=-1)[..., None, None]
        normal = normal + held * largest
        values = np.linalg.eigvalsh(normal)
        lost = values[..., 0] <= _SINGULAR * values[..., -1]
        normal = np.where(lost[..., None, None], np.eye(width), normal)
        found = np.linalg.solve(normal, total[..., width * width :, None])[..., 0]
        return np.where(lost[..., None], np.nan, found)

    return without_each(sums, solved)


def joined(parts: list[JackknifedStatistics]) -> JackknifedStatistics:
    """Return statistics of the same items side by side.

    Parameters
    ----------
    parts : each with deviations of the same items
    """
    values = np.concatenate([part.values for part in parts])
    return JackknifedStatistics(
        values, np.concatenate([part.deviations for part in parts], axis=1)
    )

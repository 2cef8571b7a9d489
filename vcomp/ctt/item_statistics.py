"""Statistics of every item, in a few passes over the scores.

With d the deviations of an item from its mean, t = Σ d those of the total, the rest r = t − d has

    Cov(d, r) = Cov(d, t) − Var(d),      Var(r) = Var(t) − 2 Cov(d, t) + Var(d)

so that correlations with the rest, and alpha without the item, take one product D't for all items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.ctt.alpha import alpha_of
from vcomp.ctt.covariances import ItemCovariances, is_constant
from vcomp.linalg.memory import slices

__all__ = ["ItemStatistics", "of_available", "of_complete"]

_CANCELLED = 1e-6
"""A rest with less variance than this share of what it is the difference of is worked out anew."""

_CELLS = 1 << 18
"""Cells that are worked on together, which stay in the processor's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class ItemStatistics:
    """What item analysis shows, (k,) each; nan where there is none.

    Attributes
    ----------
    n : number of scores
    mean, variance : of the scores
    item_total, item_rest : correlations with the total, and with the total of the other items
    alpha_if_dropped : alpha of the other items
    constant, rest_constant : items, and rests, without any variance
    alpha : of all items
    """

    n: FloatArray
    mean: FloatArray
    variance: FloatArray
    item_total: FloatArray
    item_rest: FloatArray
    alpha_if_dropped: FloatArray
    constant: BoolArray
    rest_constant: BoolArray
    alpha: float


def of_complete(X: FloatArray) -> ItemStatistics:
    """Return the statistics of a matrix without missing cells.

    Parameters
    ----------
    X : (n, k) scores, n and k at least 2
    """
    n, k = X.shape
    mean = X.mean(axis=0)
    D = X - mean
    t = D.sum(axis=1)
    variance = np.einsum("ij,ij->j", D, D) / (n - 1)
    largest = np.maximum(X.max(axis=0), -X.min(axis=0))
    constant = is_constant(variance, largest)
    variance[constant] = 0.0
    with_total = t @ D / (n - 1)
    with_total[constant] = 0.0
    total = float(t @ t) / (n - 1)
    with_rest = with_total - variance
    of_rest = total - 2.0 * with_total + variance
    for i in np.flatnonzero(of_rest < _CANCELLED * (total + variance)):
        rest = D[:, :i].sum(axis=1) + D[:, i + 1 :].sum(axis=1)
        of_rest[i], with_rest[i] = rest @ rest / (n - 1), D[:, i] @ rest / (n - 1)
    rest_constant = is_constant(of_rest, k * _of_others(largest, np.fmax))
    no_total = bool(is_constant(np.array([total]), np.array([k * largest.max()]))[0])
    alpha = np.nan if no_total else alpha_of(float(variance.sum()), total, k)
    return ItemStatistics(
        n=np.full(k, float(n)),
        mean=mean,
        variance=variance,
        item_total=_correlation(with_total, variance, np.full(k, 0.0 if no_total else total)),
        item_rest=_correlation(with_rest, variance, np.where(rest_constant, 0.0, of_rest)),
        alpha_if_dropped=_without_each(variance, np.where(rest_constant, 0.0, of_rest)),
        constant=constant,
        rest_constant=rest_constant,
        alpha=alpha,
    )


def of_available(X: FloatArray, covariances: ItemCovariances | None) -> ItemStatistics:
    """Return the statistics of a matrix with missing cells.

    The total of an object is the mean of the scores that it has, and the rest that of its scores
    on other items; scores are deviations from the means of their items, so that it does not matter
    how difficult the items are that an object has.

    Parameters
    ----------
    X : (n, k) scores, nan where there is none
    covariances : of pairs of items, for alpha; None where there are none
    """
    n, k = X.shape
    there = ~np.isnan(X)
    n_scores = there.sum(axis=0).astype(float)
    mean = np.divide(np.nansum(X, axis=0), n_scores, out=np.full(k, np.nan), where=n_scores > 0)
    found = {name: np.full(k, np.nan) for name in ("variance", "item_total", "item_rest")}
    constant, rest_constant = np.zeros(k, dtype=bool), np.zeros(k, dtype=bool)
    totals, counts = np.zeros(n), there.sum(axis=1).astype(float)
    for part in slices(k, max(1, _CELLS // n)):
        totals += np.where(there[:, part], X[:, part] - mean[part], 0.0).sum(axis=1)
    largest = np.fmax.reduce(np.abs(X), axis=0, initial=0.0)
    highest = _of_others(largest, np.fmax)
    for part in slices(k, max(1, _CELLS // n)):
        has = there[:, part]
        d = np.where(has, X[:, part] - mean[part], 0.0)
        of_total = np.divide(totals, counts, out=np.zeros(n), where=counts > 0.0)[:, None]
        with_others = has & (counts[:, None] > 1.0)
        others = np.where(with_others, counts[:, None] - 1.0, 1.0)
        rest = (totals[:, None] - d) / others
        for j in np.flatnonzero(_cancelled(d, rest)):
            i = part.start + j
            of_others = np.where(there, X - mean, 0.0)
            of_others[:, i] = 0.0
            rest[:, j] = of_others.sum(axis=1) / others[:, j]
        every = np.broadcast_to(of_total, d.shape)
        variance, r_total, _ = _paired(d, every, has, np.full(d.shape[1], largest.max()))
        _, r_rest, no_rest = _paired(d, rest, with_others, highest[part])
        same = is_constant(np.where(np.isnan(variance), 1.0, variance), largest[part])
        variance = np.where(same, 0.0, variance)
        found["variance"][part] = variance
        found["item_total"][part] = np.where(same, np.nan, r_total)
        found["item_rest"][part] = np.where(same, np.nan, r_rest)
        constant[part], rest_constant[part] = same, no_rest
    without, alpha = np.full(k, np.nan), np.nan
    if covariances is not None and covariances.total > 0.0:
        c = covariances
        alpha = alpha_of(float(c.variances.sum()), c.total, k)
        without = _without_each(c.variances, _rests(c))
    return ItemStatistics(
        n=n_scores,
        mean=mean,
        alpha_if_dropped=without,
        constant=constant,
        rest_constant=rest_constant,
        alpha=alpha,
        **found,
    )


def _paired(
    d: FloatArray, other: FloatArray, used: BoolArray, highest: FloatArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return variances of `d`, correlations with `other`, and where that has no variance.

    All by column, from the rows that are used.
    """
    n = used.sum(axis=0).astype(float)
    some = np.maximum(n, 1.0)
    a = np.where(used, d - np.where(used, d, 0.0).sum(axis=0) / some, 0.0)
    b = np.where(used, other - np.where(used, other, 0.0).sum(axis=0) / some, 0.0)
    df = np.where(n > 1.0, n - 1.0, np.nan)
    v_a, v_b = np.square(a).sum(axis=0) / df, np.square(b).sum(axis=0) / df
    no_b = is_constant(np.where(np.isnan(v_b), 1.0, v_b), highest)
    r = _correlation((a * b).sum(axis=0) / df, v_a, np.where(no_b, 0.0, v_b))
    return v_a, r, no_b


def _correlation(covariance: FloatArray, v_a: FloatArray, v_b: FloatArray) -> FloatArray:
    below = np.sqrt(v_a) * np.sqrt(v_b)
    r = np.divide(covariance, below, out=np.full_like(below, np.nan), where=below > 0.0)
    bounded: FloatArray = np.clip(r, -1.0, 1.0)
    return bounded


def _without_each(variances: FloatArray, of_rest: FloatArray) -> FloatArray:
    """Return alpha of all items but one, for each of them; nan of one item alone."""
    k = variances.size
    if k < 3:
        return np.full(k, np.nan)
    left = _of_others(variances, np.add)
    ratio = np.divide(left, of_rest, out=np.full(k, np.nan), where=of_rest > 0.0)
    alpha: FloatArray = (k - 1) / (k - 2) * (1.0 - ratio)
    return alpha


def _rests(c: ItemCovariances) -> FloatArray:
    """Return the variances of the rests from the covariances of pairs."""
    of_rest: FloatArray = c.total - 2.0 * c.with_total + c.variances
    assert c.matrix is not None
    for i in np.flatnonzero(of_rest < _CANCELLED * (c.total + c.variances)):
        others = np.arange(c.k) != i
        of_rest[i] = c.matrix[np.ix_(others, others)].sum()
    return of_rest


def _cancelled(d: FloatArray, rest: FloatArray) -> BoolArray:
    """Return which items are so much larger than their rest that the difference has few digits."""
    return np.asarray(
        np.square(rest).sum(axis=0) < _CANCELLED / d.shape[0] ** 2 * np.square(d).sum(axis=0)
    )


def _of_others(values: FloatArray, function: np.ufunc) -> FloatArray:
    """Return the sum, or the largest, of all values but one, for each: without subtraction."""
    before = np.concatenate([[0.0], function.accumulate(values)[:-1]])
    after = np.concatenate([function.accumulate(values[::-1])[::-1][1:], [0.0]])
    found: FloatArray = function(before, after)
    return found

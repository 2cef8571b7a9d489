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
from vcomp.ctt.covariances import NO_VARIANCE, ItemCovariances, is_constant

__all__ = ["ItemStatistics", "of_available", "of_complete"]

_CANCELLED = 1e-6
"""A rest with less variance than this share of what it is the difference of is worked out anew."""


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
    k = X.shape[1]
    there = ~np.isnan(X)
    counts = there.sum(axis=1).astype(float)
    n = there.sum(axis=0).astype(float)
    mean = np.divide(np.nansum(X, axis=0), n, out=np.full(k, np.nan), where=n > 0.0)
    D = np.where(there, X - mean, 0.0)
    totals = D.sum(axis=1)
    largest = np.fmax.reduce(np.abs(X), axis=0, initial=0.0)
    df = np.where(n > 1.0, n - 1.0, np.nan)
    variance = np.einsum("ij,ij->j", D, D) / df
    constant = is_constant(np.where(n > 1.0, variance, 1.0), largest)
    variance[constant] = 0.0
    item_total, of_total = _with_totals(D, there, totals / np.maximum(counts, 1.0), variance)
    every = np.full(k, largest.max())
    item_total[constant | is_constant(np.where(n > 1.0, of_total, 1.0), every)] = np.nan
    item_rest, of_rest = _with_rests(D, there, totals, counts)
    rest_constant = is_constant(
        np.where(np.isnan(of_rest), 1.0, of_rest), _of_others(largest, np.fmax)
    )
    item_rest[constant | rest_constant] = np.nan
    without, alpha = np.full(k, np.nan), np.nan
    if covariances is not None and covariances.total > 0.0:
        c = covariances
        alpha = alpha_of(float(c.variances.sum()), c.total, k)
        without = _without_each(c.variances, _rests(c))
    return ItemStatistics(
        n=n,
        mean=mean,
        variance=variance,
        item_total=item_total,
        item_rest=item_rest,
        alpha_if_dropped=without,
        constant=constant,
        rest_constant=rest_constant,
        alpha=alpha,
    )


def _with_totals(
    D: FloatArray, there: BoolArray, t: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the correlations of items with the mean scores t of the objects that have them.

    And the variances of these, item by item.
    """
    n, sums, squares = np.column_stack([np.ones_like(t), t, t**2]).T @ there.astype(float)
    df = np.where(n > 1.0, n - 1.0, np.nan)
    of_total = np.maximum(squares - sums**2 / np.maximum(n, 1.0), 0.0) / df
    return _correlation(t @ D / df, variance, of_total), of_total


def _with_rests(
    D: FloatArray, there: BoolArray, totals: FloatArray, counts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the correlations of items with rests, and the variances of the rests.

    The rest is u − w d with w = 1/(number of other items) and u = w Σ d, so that its sums over
    the objects of an item are products of u and w with three matrices: whether there is a score,
    d, and d².
    """
    q = (counts > 1.0).astype(float)
    w = q / np.maximum(counts - 1.0, 1.0)
    u = w * totals
    n, sum_u, sum_uu = np.column_stack([q, u, u**2]).T @ there.astype(float)
    sum_d, sum_ud, sum_wd, sum_uwd = np.column_stack([q, u, w, u * w]).T @ D
    sum_dd, sum_wdd, sum_wwdd = np.column_stack([q, w, w**2]).T @ np.square(D)
    some, df = np.maximum(n, 1.0), np.where(n > 1.0, n - 1.0, np.nan)
    sum_r, sum_rr = sum_u - sum_wd, sum_uu - 2.0 * sum_uwd + sum_wwdd
    of_item = (sum_dd - sum_d**2 / some) / df
    of_rest = (sum_rr - sum_r**2 / some) / df
    both = (sum_ud - sum_wdd - sum_d * sum_r / some) / df
    for i in np.flatnonzero(of_rest * df < _CANCELLED * (sum_uu + sum_wwdd)):
        of_others = D[:, :i].sum(axis=1) + D[:, i + 1 :].sum(axis=1)
        has = there[:, i] & (counts > 1.0)
        d, r = D[has, i], (w * of_others)[has]
        d, r = d - d.mean(), r - r.mean()
        of_item[i], of_rest[i], both[i] = (np.array([d @ d, r @ r, d @ r])) / df[i]
    return _correlation(both, of_item, of_rest), of_rest


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
    rounding = NO_VARIANCE * c.k * _of_others(c.variances, np.add)
    return np.where(of_rest > rounding, of_rest, 0.0)


def _of_others(values: FloatArray, function: np.ufunc) -> FloatArray:
    """Return the sum, or the largest, of all values but one, for each: without subtraction."""
    before = np.concatenate([[0.0], function.accumulate(values)[:-1]])
    after = np.concatenate([function.accumulate(values[::-1])[::-1][1:], [0.0]])
    found: FloatArray = function(before, after)
    return found

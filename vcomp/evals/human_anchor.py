"""Human labels of some answers as an anchor: prediction-powered means, and errors of judges."""

from __future__ import annotations

import math

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.evals.item_sampling import (
    JackknifedStatistics,
    error_over_tasks,
    summed_by,
    whole_df,
    without_each,
)

_NONE = 1e-12
"""Variance below which ratings, in units of their range, are all equal."""


def powered_mean(
    judged: FloatArray, labels: FloatArray, items: LongArray, lam: float | None = None
) -> tuple[float, float, float, float]:
    """Return the prediction-powered mean, its standard error, degrees of freedom and λ.

    Parameters
    ----------
    judged : (answers,) what judges say of each
    labels : (answers,) labels, nan where there are none
    items : (answers,) codes of the items, which are sampled
    lam : weight λ of the judges; the power-tuned one if None

    Notes
    -----
    With n labelled and N other answers the mean is λ f̄_N + mean_n(y − λf), and the power-tuned λ
    is cov_n(y, f)/((1 + n/N) var_{n+N}(f)), between 0 and 1. The variance is that of sums over
    items. Without other answers it is the mean of the labels, and λ is 0.

    References
    ----------
    Angelopoulos, A. N., Bates, S., Fannjiang, C., Jordan, M. I. and Zrnic, T. (2023).
    Prediction-powered inference. *Science*, 382, 669-674.

    Angelopoulos, A. N., Duchi, J. C. and Zrnic, T. (2023). PPI++: efficient prediction-powered
    inference. arXiv:2311.01453.
    """
    mean, sums, df, lam = _powered(judged, labels, items, lam)
    # Equal answers do not show an error.
    return mean, math.sqrt(float(sums @ sums)) or math.nan, df, lam


def _powered(
    judged: FloatArray, labels: FloatArray, items: LongArray, lam: float | None = None
) -> tuple[float, FloatArray, float, float]:
    """Return the mean, what each of the sorted items adds to its error, and the rest."""
    known = np.isfinite(labels)
    n, N = int(known.sum()), int((~known).sum())
    found, places = np.unique(items, return_inverse=True)
    unknown = np.full(found.size, np.nan)
    if np.unique(places[known]).size < 2:
        return math.nan, unknown, math.nan, math.nan
    # Equal labels, and equal ratings, are exactly 0 from the first.
    origin, judged = float(labels[known][0]), judged - judged[0]
    y, f = labels[known] - origin, judged - judged.mean()
    spread = float(f @ f) / max(1, f.size - 1)
    if lam is None or not N:
        lam = 0.0
        if N and spread > 0.0:
            lam = float((y - y.mean()) @ f[known]) / n / ((1.0 + n / N) * spread)
            lam = min(max(lam, 0.0), 1.0)
    rest = y - lam * judged[known]
    mean = origin + float(rest.mean()) + (lam * float(judged[~known].mean()) if N else 0.0)
    labelled = np.zeros(f.size)
    labelled[known] = (rest - rest.mean()) / n
    other = np.zeros(f.size)
    if N:
        other[~known] = lam * (judged[~known] - judged[~known].mean()) / N
    parts = [_of_items(labelled, known, places), _of_items(other, ~known, places)]
    if lam and parts[1][1] < 2:
        return math.nan, unknown, math.nan, lam
    df = whole_df([float(sums @ sums) for sums, _ in parts], [G - 1.0 for _, G in parts])
    return mean, parts[0][0] + parts[1][0], df, lam


ANCHORED = [
    "answers", "labelled", "judged", "labels", "labels_std_error", "estimate", "std_error", "df",
    "low", "high", "lam",
]  # fmt: skip
"""Columns of an anchored mean."""


def anchored_mean(
    judged: FloatArray, labels: FloatArray, items: LongArray, tasks: LongArray, alpha: float
) -> tuple[float, ...]:
    """Return :data:`ANCHORED` of answers, with tasks of equal weight, each with a λ of its own.

    Parameters
    ----------
    judged, labels, items : as for :func:`powered_mean`
    tasks : (answers,) codes of the tasks
    alpha : the interval has confidence 1 − alpha
    """
    from scipy.special import stdtrit

    known, parts = np.isfinite(labels), []
    plain: list[tuple[LongArray, FloatArray]] = []
    powered: list[tuple[LongArray, FloatArray]] = []
    for task in np.unique(tasks):
        own = tasks == task
        alone = own & known
        _, sums, _, _ = _powered(judged[alone], labels[alone], items[alone])
        plain.append((np.unique(items[alone]), sums))
        said = float(labels[alone].mean()) if alone.any() else math.nan
        mean, sums, df, lam = _powered(judged[own], labels[own], items[own])
        powered.append((np.unique(items[own]), sums))
        parts.append((float(judged[own].mean()), said, mean, df, lam))
    if not parts:
        return (0.0, 0.0, *[math.nan] * (len(ANCHORED) - 2))
    judged_means, labelled, means, degrees, lams = np.array(parts).T
    # Equal answers do not show an error.
    errors = [_or_nan(each, degrees) for each in (plain, powered)]
    error, whole = errors[1]
    half = float(stdtrit(whole, 1.0 - 0.5 * alpha)) * error if whole > 0 else math.nan
    estimate = float(means.mean())
    return (
        judged.size, int(known.sum()), float(judged_means.mean()), float(labelled.mean()),
        errors[0][0], estimate, error, whole, estimate - half, estimate + half,
        float(lams.mean()),
    )  # fmt: skip


def _or_nan(parts: list[tuple[LongArray, FloatArray]], degrees: FloatArray) -> tuple[float, float]:
    """Return the error over tasks and its degrees of freedom; nan if a task has none."""
    known = all(sums.size and float(sums @ sums) for _, sums in parts)
    error, df = error_over_tasks(parts, degrees.tolist())
    return (error, df) if known else (math.nan, df)


def _of_items(values: FloatArray, own: BoolArray, places: LongArray) -> tuple[FloatArray, int]:
    """Return sums of items, scaled by √(G/(G − 1)) for the G that have values, and G."""
    G = np.unique(places[own]).size
    scale = math.sqrt(G / (G - 1.0)) if G > 1 else 1.0
    return np.bincount(places, values).astype(float) * scale, G


def errors_of_judges(
    ratings: FloatArray, labels: FloatArray, items: LongArray
) -> tuple[JackknifedStatistics, int]:
    """Return the mean error of each judge, then the mean correlation of errors of pairs.

    Parameters
    ----------
    ratings : (answers, judges), nan where there is none
    labels : (answers,) labels, nan where there are none
    items : (answers,) codes of the items, which are sampled

    Returns
    -------
    JackknifedStatistics
        of (judges + 1,) values
    int
        labelled answers that all judges rated, which have the correlation
    """
    errors = ratings - labels[:, None]
    seen = np.isfinite(errors)
    full: BoolArray = np.all(seen, axis=1)
    J = ratings.shape[1]
    e = np.where(seen, errors, 0.0)
    scale = max(float(np.abs(e).max(initial=0.0)), np.finfo(float).tiny)
    inside = np.where(full[:, None], e / scale, 0.0)
    if full.any():
        inside = np.where(full[:, None], inside - inside[full].mean(axis=0), 0.0)
    products = np.einsum("uj,uk->ujk", inside, inside).reshape(len(e), J * J)
    found, places = np.unique(items, return_inverse=True)
    counted = np.column_stack([seen, full]).astype(float)
    sums = summed_by(places, np.hstack([e, counted, inside, products]), found.size)

    def statistics(total: FloatArray) -> FloatArray:
        bias = total[..., :J] / total[..., J : 2 * J]
        n = total[..., 2 * J, None, None]
        mean = total[..., 2 * J + 1 : 3 * J + 1] / n[..., 0]
        square = total[..., 3 * J + 1 :].reshape(*n.shape[:-2], J, J) / n
        square = square - mean[..., :, None] * mean[..., None, :]
        spread = np.sqrt(np.maximum(np.diagonal(square, axis1=-2, axis2=-1), 0.0))
        spread = np.where(spread > math.sqrt(_NONE), spread, np.nan)
        alike = square / (spread[..., :, None] * spread[..., None, :])
        off = ~np.eye(J, dtype=bool)
        rho = alike[..., off].mean(axis=-1) if J > 1 else np.full(n.shape[:-2], np.nan)
        return np.concatenate([bias, rho[..., None]], axis=-1)

    with np.errstate(invalid="ignore", divide="ignore"):
        return without_each(sums, statistics), int(full.sum())


def effective_number(k: float, rho: FloatArray) -> FloatArray:
    """Return k/(1 + (k − 1)ρ), the number of judges with independent errors that are as good.

    Parameters
    ----------
    k : judges
    rho : mean correlation of their errors

    Examples
    --------
    >>> effective_number(6, np.array([0.42, 0.0, 1.0])).round(2)
    array([1.94, 6.  , 1.  ])
    """
    found = 1.0 + (k - 1.0) * np.asarray(rho, dtype=float)
    return np.where(found <= 0.0, np.inf, k / np.where(found <= 0.0, 1.0, found))

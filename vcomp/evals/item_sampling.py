"""Errors of statistics of sampled items: closed forms of means, and the jackknife.

Human labels of some items are an anchor: prediction-powered means, and errors of judges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.inference.pairwise import maximum_of_correlated, simultaneous

_NONE = 1e-12
"""Variance below which ratings, in units of their range, are all equal."""


def powered_mean(
    judged: FloatArray,
    labels: FloatArray,
    items: LongArray,
    lam: float | None = None,
    *,
    binary: int = 0,
) -> tuple[float, FloatArray, float, float]:
    """Return the prediction-powered mean, what items add to its error, degrees of freedom and λ.

    The squares of the second, of the sorted items, add up to the squared standard error.

    Parameters
    ----------
    judged : (answers,) what judges say of each
    labels : (answers,) labels, nan where there are none
    items : (answers,) codes of the items, which are sampled
    lam : weight λ of the judges; the power-tuned one if None
    binary : 1 if all labels and ratings are 0 or 1, 2 if they are differences of two such answers,
        0 otherwise. The last number of the second is then of more answers, of all values that
        labels and ratings may have: few labels may show none of the errors of judges

    Notes
    -----
    With n labelled and N other answers the mean is λ f̄_N + mean_n(y − λf), and the power-tuned λ
    is cov_n(y, f)/((1 + n/N) var_{n+N}(f)), between 0 and 1: as in ppi-python the covariance is
    by n, and the variance, over all answers, by n + N − 1. The error is that of sums over items.
    Without other answers the mean is that of the labels, and λ is 0. Where λ > 0 is estimated, the
    residuals y − λf have a degree of freedom less, as in a regression.

    References
    ----------
    Cochran, W. G. (1977). *Sampling Techniques*, 3rd ed., section 7.4. Wiley.

    Angelopoulos, A. N., Bates, S., Fannjiang, C., Jordan, M. I. and Zrnic, T. (2023).
    Prediction-powered inference. *Science*, 382, 669-674.

    Angelopoulos, A. N., Duchi, J. C. and Zrnic, T. (2023). PPI++: efficient prediction-powered
    inference. arXiv:2311.01453.
    """
    known = np.isfinite(labels)
    n, N = int(known.sum()), int((~known).sum())
    found, places = np.unique(items, return_inverse=True)
    unknown = np.full(found.size, np.nan)
    if np.unique(places[known]).size < 2:
        return math.nan, unknown, math.nan, math.nan
    # Equal labels, and equal ratings, are exactly 0 from the first.
    origin, start = float(labels[known][0]), float(judged[0])
    judged = judged - start
    y, f = labels[known] - origin, judged - judged.mean()
    spread = float(f @ f) / max(1, f.size - 1)
    lost = 1  # degrees of freedom
    if lam is None or not N:
        lam = 0.0
        if N and spread > 0.0:
            lam = float((y - y.mean()) @ f[known]) / n / ((1.0 + n / N) * spread)
            lam = min(max(lam, 0.0), 1.0)
            lost = 2 if lam else 1
    rest = y - lam * judged[known]
    mean = origin + float(rest.mean()) + (lam * float(judged[~known].mean()) if N else 0.0)
    labelled = np.zeros(f.size)
    labelled[known] = (rest - rest.mean()) / n
    other = np.zeros(f.size)
    if N:
        other[~known] = lam * (judged[~known] - judged[~known].mean()) / N
    parts = [
        _of_items(labelled, known, places, 0 if binary else lost),
        _of_items(other, ~known, places, 1),
    ]
    if (lam and parts[1][1] < 2) or parts[0][1] <= lost:
        return math.nan, unknown, math.nan, lam
    degrees = [parts[0][1] - (1.0 if binary else lost), parts[1][1] - 1.0]
    more = _of_more_answers(rest + origin - lam * start, lam, binary)
    squares = [float(sums @ sums) for sums, _ in parts]
    df = whole_df([squares[0] + float(more @ more), squares[1]], degrees)
    return mean, np.append(parts[0][0] + parts[1][0], more), df, lam


def _of_more_answers(rest: FloatArray, lam: float, binary: int) -> FloatArray:
    """Return what more answers add to the error of mean(y − λf); nothing if they are not 0 or 1.

    They are half an answer of each y and f of 0 and 1; of differences, whose y − λf have twice the
    variance, a sixteenth of each of the two y and f.

    Parameters
    ----------
    rest : (n,) y − λf
    lam, binary : as of :func:`powered_mean`

    References
    ----------
    Agresti, A. and Min, Y. (2005). Simple improved confidence intervals for comparing matched
    proportions. *Statistics in Medicine*, 24, 729-740.
    """
    if not binary:
        return np.zeros(0)
    values, weight = np.array([0.0, -lam, 1.0, 1.0 - lam]), 0.5
    if binary > 1:
        values, weight = np.subtract.outer(values, values).ravel(), 0.0625
    centre = (rest.sum() + weight * values.sum()) / (rest.size + weight * values.size)
    squares = rest.size * (rest.mean() - centre) ** 2
    squares += weight * np.square(values - centre).sum()
    return np.array([math.sqrt(squares) / rest.size])


ANCHORED = [
    "answers", "labelled", "judged", "labels", "labels_std_error", "estimate", "std_error", "df",
    "low", "high", "lam",
]  # fmt: skip
"""Columns of an anchored mean."""


def anchored_mean(
    judged: FloatArray,
    labels: FloatArray,
    items: LongArray,
    tasks: LongArray,
    alpha: float,
    *,
    binary: int = 0,
) -> tuple[float, ...]:
    """Return :data:`ANCHORED` of answers, with tasks of equal weight, each with a λ of its own.

    Parameters
    ----------
    judged, labels, items : as for :func:`powered_mean`
    tasks : (answers,) codes of the tasks
    alpha : the interval has confidence 1 − alpha
    binary : as for :func:`powered_mean`
    """
    from scipy.special import stdtrit

    known, parts = np.isfinite(labels), []
    plain: list[tuple[LongArray, FloatArray]] = []
    powered: list[tuple[LongArray, FloatArray]] = []
    for task in np.unique(tasks):
        own = tasks == task
        alone = own & known
        _, sums, _, _ = powered_mean(judged[alone], labels[alone], items[alone])
        plain.append((np.unique(items[alone]), sums))
        said = float(labels[alone].mean()) if alone.any() else math.nan
        mean, sums, df, lam = powered_mean(judged[own], labels[own], items[own], binary=binary)
        codes = np.unique(items[own])
        # Answers that are added are of no item, and of this task.
        more = -1 - np.arange(sums.size - codes.size) - 2 * len(powered)
        powered.append((np.append(codes, more), sums))
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


def _of_items(
    values: FloatArray, own: BoolArray, places: LongArray, lost: int
) -> tuple[FloatArray, int]:
    """Return sums of items, scaled by √(G/(G − lost)) for the G that have values, and G."""
    G = np.unique(places[own]).size
    scale = math.sqrt(G / (G - lost)) if lost < G else 1.0
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


_AT_ONCE = 2**22
"""Numbers that are held at once while items are left out."""

_MOST_JOINT = 30
"""Statistics whose correlations enter simultaneous intervals; of more they are Bonferroni's."""

_SMALL = 1e-12
"""An error below this share of its statistic is a rounding error."""


@dataclass(frozen=True, slots=True)
class JackknifedStatistics:
    """Statistics with their values without each of the items, for errors of items as sampled.

    Attributes
    ----------
    values : (p,)
    deviations : (n, p) values without each item, less their mean
    """

    values: FloatArray
    deviations: FloatArray

    @property
    def df(self) -> float:
        """The degrees of freedom of the standard errors."""
        return len(self.deviations) - 1.0

    @property
    def std_error(self) -> FloatArray:
        """The jackknife's standard errors, (p,); nan of one item, and where no item differs."""
        n = len(self.deviations)
        squares = np.einsum("np,np->p", self.deviations, self.deviations)
        errors = np.sqrt((n - 1.0) / n * squares)
        known = errors > _SMALL * np.abs(self.values) if n > 1 else False
        return np.where(known, errors, np.nan)

    def combined(self, weights: FloatArray) -> JackknifedStatistics:
        """Return linear combinations.

        Parameters
        ----------
        weights : (q, p)
        """
        return JackknifedStatistics(weights @ self.values, self.deviations @ weights.T)

    def limits(self, alpha: float) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the intervals of single statistics, by t."""
        half = self.std_error * _t(alpha, self.df)
        return self.values - half, self.values + half

    def joint_limits(self, alpha: float) -> tuple[FloatArray, FloatArray]:
        """Return the ends of simultaneous intervals, by the largest of correlated t.

        Of more than 30 statistics, they are Bonferroni's.
        """
        errors = self.std_error
        known = np.isfinite(errors) & np.isfinite(self.values)
        half = np.where(known, errors, np.nan)
        if known.sum() > _MOST_JOINT:
            half = half * _t(alpha / known.sum(), self.df)
        elif known.sum() > 1:
            scaled = self.deviations[:, known] / np.linalg.norm(self.deviations[:, known], axis=0)
            tail = maximum_of_correlated(np.clip(scaled.T @ scaled, -1.0, 1.0))
            _, critical = simultaneous(np.zeros(1), np.array([self.df]), tail, alpha)
            half = half * float(critical[0])
        elif known.any():
            half = half * _t(alpha, self.df)
        return self.values - half, self.values + half


def _t(alpha: float, df: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(df, 1.0 - 0.5 * alpha)) if df > 0.0 else math.nan


def without_each(
    sums: FloatArray, statistic: Callable[[FloatArray], FloatArray]
) -> JackknifedStatistics:
    """Return statistics of sums over items, with the covariance of the jackknife.

    Parameters
    ----------
    sums : (n, m) what each item adds
    statistic : takes (…, m) sums, and returns (…, p) values

    Notes
    -----
    The variance is (n − 1)/n Σ_g (θ_(g) − θ̄)², where θ_(g) is the statistic without item g. It is
    nan of statistics that do not exist without one of the items.

    References
    ----------
    Efron, B. and Stein, C. (1981). The jackknife estimate of variance. *Annals of Statistics*, 9,
    586-596.

    Examples
    --------
    >>> values = np.array([[1.0, 1.0], [2.0, 1.0], [6.0, 1.0]])
    >>> mean = without_each(values, lambda s: s[..., :1] / s[..., 1:])
    >>> mean.values.round(4), mean.std_error.round(4), mean.df
    (array([3.]), array([1.5275]), 2.0)
    """
    n, width = sums.shape
    total = sums.sum(axis=0)
    values = np.atleast_1d(statistic(total))
    step = max(1, _AT_ONCE // max(1, width))
    parts = [statistic(total - sums[at : at + step]) for at in range(0, n, step)]
    left = np.concatenate(parts).reshape(n, values.size)
    deviations = left - values
    return JackknifedStatistics(values, deviations - deviations.mean(axis=0))


def summed_by(codes: LongArray, values: FloatArray, n: int) -> FloatArray:
    """Return the sums of rows of each item.

    Parameters
    ----------
    codes : (rows,) the item of each
    values : (rows, m)
    n : number of items
    """
    columns = [np.bincount(codes, column, minlength=n) for column in values.T]
    return np.stack(columns, axis=1) if columns else np.zeros((n, 0))


def mean_of_items(
    values: FloatArray, clusters: LongArray, tasks: LongArray
) -> tuple[float, float, float]:
    """Return the mean of items with its standard error and degrees of freedom.

    Tasks have equal weights, and their items, or clusters of items, are sampled.

    Parameters
    ----------
    values : (items,)
    clusters : (items,) codes of the clusters; one that occurs in several tasks is the same
    tasks : (items,) codes of the tasks

    Notes
    -----
    Of a task with n items in G clusters, the variance is G/(G − 1) Σ_g e_g²/n², with e_g the sum
    of deviations of a cluster; if each item is a cluster it is s²/n. With several tasks it is that
    of :func:`error_over_tasks`.

    Examples
    --------
    >>> values, tasks = np.array([1.0, 2.0, 6.0]), np.zeros(3, dtype=int)
    >>> mean, error, df = mean_of_items(values, np.arange(3), tasks)
    >>> mean, round(error, 6), df
    (3.0, 1.527525, 2.0)
    """
    means, sums, degrees = [], [], []
    for task in np.unique(tasks):
        own = values[tasks == task]
        codes = clusters[tasks == task]
        G = np.unique(codes).size
        mean = float(own.mean())
        scale = math.sqrt(G / (G - 1.0)) if G > 1 else math.nan
        means.append(mean)
        degrees.append(G - 1.0)
        sums.append((codes, scale * (own - mean) / own.size))
    error, df = error_over_tasks(sums, degrees)
    mean = float(np.mean(means))
    return mean, error if error > _SMALL * abs(mean) else 0.0 * error, df


def error_over_tasks(
    parts: Sequence[tuple[LongArray, FloatArray]], degrees: Sequence[float]
) -> tuple[float, float]:
    """Return the standard error of a mean over tasks, and its degrees of freedom.

    Parameters
    ----------
    parts : of each task the codes of its items, and what they add to the error of its mean
    degrees : of freedom of each task

    Notes
    -----
    The error of an item is the sum of what it adds in all tasks, so that items which tasks share
    have their covariance. Degrees of freedom are Satterthwaite's over tasks; tasks that share
    items have together those of the fewest.

    Examples
    --------
    >>> items, errors = np.arange(2), np.array([0.5, -0.5])
    >>> error_over_tasks([(items, errors), (items, errors)], [1.0, 1.0])  # as of one task
    (0.7071067811865476, 1.0)
    >>> error_over_tasks([(items, errors), (items + 2, errors)], [1.0, 1.0])
    (0.5, 2.0)
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = [codes.size for codes, _ in parts]
    found, places = np.unique(np.concatenate([codes for codes, _ in parts]), return_inverse=True)
    tasks = np.repeat(np.arange(len(parts)), n)
    sums = np.bincount(places, np.concatenate([values for _, values in parts])) / len(parts)
    size = len(parts) + found.size
    links = coo_array((np.ones(tasks.size), (tasks, len(parts) + places)), shape=(size, size))
    groups, group = connected_components(links, directed=False)
    variances = np.bincount(group[len(parts) :], sums**2, minlength=groups)
    fewest = np.full(groups, np.inf)
    with np.errstate(invalid="ignore"):  # nan of a task with one labelled item
        np.minimum.at(fewest, group[: len(parts)], degrees)
    return math.sqrt(variances.sum()), whole_df(variances, fewest)


def whole_df(variances: ArrayLike, degrees: ArrayLike) -> float:
    """Return Satterthwaite's degrees of freedom of a sum; those of the fewest if it is 0.

    Parameters
    ----------
    variances, degrees : (parts,) of the parts of the sum
    """
    v, df = np.asarray(variances, dtype=float), np.asarray(degrees, dtype=float)
    if not v.sum() > 0.0:
        return float(df.min())
    shares = v / v.sum()
    return 1.0 / float(np.square(shares)[shares > 0.0] @ (1.0 / df[shares > 0.0]))


def share_limits(
    share: float, std_error: float, df: float, most: float, alpha: float
) -> tuple[float, float]:
    """Return Wilson's interval of a share, for the number of independent answers of its error.

    Parameters
    ----------
    share : between 0 and 1
    std_error, df : of it
    most : independent answers at most; so many if the error is 0
    alpha : the interval has confidence 1 − alpha

    Notes
    -----
    n = p(1 − p)/se², and the quantile is that of t.

    References
    ----------
    Dean, N. and Pagano, M. (2015). Evaluating confidence interval methods for binomial proportions
    in clustered surveys. *Journal of Survey Statistics and Methodology*, 3, 484-503.

    Examples
    --------
    >>> low, high = share_limits(0.5, 0.05, np.inf, 1000, 0.05)
    >>> round(low, 4), round(high, 4)  # of 50 of 100
    (0.4038, 0.5962)
    >>> share_limits(1.0, 0.0, np.inf, 100, 0.05)[0].__round__(4)
    0.963
    """
    if not math.isfinite(std_error) or not df > 0.0:
        return math.nan, math.nan
    spread = share * (1.0 - share)
    n = min(spread / std_error**2, most) if std_error > 0.0 and spread > 0.0 else most
    c2 = _t(alpha, df) ** 2
    centre = (share + c2 / (2.0 * n)) / (1.0 + c2 / n)
    half = math.sqrt(c2 * (spread / n + c2 / (4.0 * n**2))) / (1.0 + c2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)

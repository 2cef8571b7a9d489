"""Agreement and bias of judges.

Agreement by the coefficients of Cohen, Fleiss, Krippendorff and Gwet, bias by least squares of the
differences of ratings of the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.evals.item_sampling import JackknifedStatistics, summed_by, without_each

if TYPE_CHECKING:
    import pandas as pd

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


_MOST_CATEGORIES = 20
"""Different ratings, up to which they are categories."""

_CONSTANT = 1e-12
"""Disagreement by chance below which all ratings are equal, relative to its largest value."""

COLUMNS = ["estimate", "std_error", "low", "high", "answers", "reason"]
"""Columns of a coefficient."""


@dataclass(frozen=True, slots=False)
class Ratings:
    """Ratings of answers by judges, one of each.

    Attributes
    ----------
    codes : (answers, judges) places in the levels; −1 is missing
    levels : (q,) different ratings, sorted
    items : (answers,) codes of the items, which are sampled
    is_text : whether ratings are no numbers
    """

    codes: LongArray
    levels: Any
    items: LongArray
    is_text: bool

    @cached_property
    def values(self) -> FloatArray:
        """The ratings about their mean, in units of the largest distance; nan is missing."""
        x = np.asarray(self.levels, dtype=float)
        x = (x - x.mean()) / max(float(np.ptp(x)), np.finfo(float).tiny)
        return np.where(self.codes < 0, np.nan, x[np.maximum(self.codes, 0)])

    @property
    def has_categories(self) -> bool:
        """Whether there are few different ratings."""
        return len(self.levels) <= _MOST_CATEGORIES

    def of_judges(self, judges: Sequence[int]) -> Ratings:
        """Return the ratings of some judges.

        Parameters
        ----------
        judges : their places
        """
        return Ratings(self.codes[:, list(judges)], self.levels, self.items, self.is_text)

    def of(self, judges: Sequence[int]) -> Ratings:
        """Return the answers that all of some judges rated.

        Parameters
        ----------
        judges : their places
        """
        codes = self.codes[:, list(judges)]
        kept = (codes >= 0).all(axis=1)
        return Ratings(codes[kept], self.levels, self.items[kept], self.is_text)

    def statistics(
        self, columns: Iterable[FloatArray], of: Callable[[FloatArray], FloatArray]
    ) -> JackknifedStatistics:
        """Return statistics of sums over answers.

        Parameters
        ----------
        columns : each (answers,), of which sums are taken, one at a time
        of : takes (…, m) sums of all columns, and returns (…, p) values
        """
        found, codes = np.unique(self.items, return_inverse=True)
        sums = [np.bincount(codes, column, minlength=found.size) for column in columns]
        with np.errstate(invalid="ignore", divide="ignore"):
            return without_each(np.stack(sums, axis=1), of)


def _counts(ratings: Ratings) -> FloatArray:
    """Return how many judges gave each rating, (answers, q)."""
    q = len(ratings.levels)
    return np.stack([(ratings.codes == k).sum(axis=1) for k in range(q)], axis=1).astype(float)


def _closeness(ratings: Ratings) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return weights of pairs of ratings: identity, Gwet's ordinal ones, quadratic ones."""
    q = len(ratings.levels)
    apart = np.abs(np.subtract.outer(np.arange(q), np.arange(q)))
    ordinal = 1.0 - apart * (apart + 1.0) / max(1.0, q * (q - 1.0))
    quadratic = np.full((q, q), np.nan)
    if not ratings.is_text:
        x = np.asarray(ratings.levels, dtype=float)
        quadratic = 1.0 - (np.subtract.outer(x, x) / max(float(np.ptp(x)), 1e-300)) ** 2
    return np.eye(q), ordinal, quadratic


def _corrected(agreement: FloatArray, by_chance: FloatArray) -> FloatArray:
    """Return (p_a − p_e)/(1 − p_e), nan where chance agrees always."""
    found = (agreement - by_chance) / (1.0 - by_chance)
    return np.where(1.0 - by_chance > _CONSTANT, found, np.nan)


# All judges ------------------------------------------------------------------------------------


def of_all(ratings: Ratings, alpha: float) -> pd.DataFrame:
    """Return the coefficients of all judges.

    Parameters
    ----------
    ratings : of at least one judge
    alpha : intervals have confidence 1 − alpha

    Returns
    -------
    pandas.DataFrame
        Columns ``coefficient``, ``level`` of measurement, :data:`COLUMNS`.

    Notes
    -----
    With r ratings of an answer, r_k of them in category k, p_a is the mean over answers with two
    ratings of Σ_k r_k (Σ_l w_kl r_l − 1)/(r(r − 1)), and π_k the mean of r_k/r over all answers.
    By chance agree Σ w_kl π_k π_l (Fleiss, of missing ratings after Gwet) or
    Σ_kl w_kl Σ_k π_k (1 − π_k)/(q(q − 1)) (Gwet).
    Krippendorff's α is 1 − D_o/D_e of the coincidences of ratings of the same answer.

    References
    ----------
    Fleiss, J. L. (1971). Measuring nominal scale agreement among many raters. *Psychological
    Bulletin*, 76, 378-382.

    Gwet, K. L. (2014). *Handbook of inter-rater reliability* (4th ed.). Advanced Analytics.

    Krippendorff, K. (2019). *Content analysis* (4th ed.), ch. 12. Sage.
    """
    r = (ratings.codes >= 0).sum(axis=1)
    n = int((r > 1).sum())
    none = "there is one judge" if ratings.codes.shape[1] < 2 else ""
    none = none or ("" if n else "no answer was rated by two judges")
    why_not = none
    if not (none or ratings.has_categories):
        why_not = f"there are {len(ratings.levels):,} different ratings, no categories"
    statistics = JackknifedStatistics(np.full(7, np.nan), np.full((2, 7), np.nan))
    if not why_not:
        statistics = _of_categories(ratings)
    ranked = "ratings are text, which has no order" if ratings.is_text else ""
    reasons = [*[why_not] * 4, *[why_not or ranked] * 3]
    tables = _rows(_NAMES[:7], statistics, reasons, n, alpha)
    interval = JackknifedStatistics(np.full(1, np.nan), np.full((2, 1), np.nan))
    if not none and not ranked:
        interval = _interval_alpha(ratings)
    return _frame([*tables, *_rows(_NAMES[7:], interval, [none or ranked], n, alpha)])


_NAMES = [
    ("agreement", "nominal"),
    ("Fleiss κ", "nominal"),
    ("Krippendorff α", "nominal"),
    ("Gwet AC1", "nominal"),
    ("Krippendorff α", "ordinal"),
    ("Gwet AC2", "ordinal"),
    ("Gwet AC2", "interval"),
    ("Krippendorff α", "interval"),
]


def _of_categories(ratings: Ratings) -> JackknifedStatistics:
    q = len(ratings.levels)
    counts = _counts(ratings)
    r = counts.sum(axis=1)
    pairs = np.where(r > 1, r * (r - 1.0), np.inf)
    weights = _closeness(ratings)
    agreeing = [(counts * (counts @ w - 1.0)).sum(axis=1) / pairs for w in weights]
    shares = counts / np.maximum(r, 1.0)[:, None]
    others = np.where(r > 1, r - 1.0, np.inf)
    both = (counts[:, k] * (counts[:, j] - (k == j)) / others for k in range(q) for j in range(q))
    spread = [float(np.nansum(w)) / max(1.0, q * (q - 1.0)) for w in weights]

    def coefficients(sums: FloatArray) -> FloatArray:
        n, rated = sums[..., 0], sums[..., 1]
        agree = sums[..., 2:5] / n[..., None]
        pi = sums[..., 5 : 5 + q] / rated[..., None]
        alike = (pi**2).sum(axis=-1)
        found = [agree[..., 0], _corrected(agree[..., 0], alike)]
        o = sums[..., 5 + q :].reshape(*n.shape, q, q)
        for_gwet = [_corrected(agree[..., k], spread[k] * (1.0 - alike)) for k in range(3)]
        # Of a single category nothing can be said, whatever its weights.
        for_gwet = [np.where(alike < 1.0 - _CONSTANT, value, np.nan) for value in for_gwet]
        found += [_krippendorff(o, _nominal(o)), for_gwet[0]]
        found += [_krippendorff(o, _ordinal(o)), *for_gwet[1:]]
        return np.stack(found, axis=-1)

    return ratings.statistics(chain([r > 1, r > 0], agreeing, shares.T, both), coefficients)


def _nominal(o: FloatArray) -> FloatArray:
    return np.broadcast_to(1.0 - np.eye(o.shape[-1]), o.shape)


def _ordinal(o: FloatArray) -> FloatArray:
    """Return squared distances of ranks: (Σ_{g=k}^{l} n_g − (n_k + n_l)/2)²."""
    n = o.sum(axis=-1)
    middle = n.cumsum(axis=-1) - 0.5 * n
    return (middle[..., :, None] - middle[..., None, :]) ** 2


def _krippendorff(o: FloatArray, distance: FloatArray) -> FloatArray:
    """Return α of coincidences and squared distances, (…, q, q)."""
    n_k = o.sum(axis=-1)
    n = n_k.sum(axis=-1)
    observed = (o * distance).sum(axis=(-2, -1)) * (n - 1.0)
    expected = np.einsum("...k,...kl,...l->...", n_k, distance, n_k)
    alike = expected <= _CONSTANT * n**2 * distance.max(axis=(-2, -1))
    return np.where(alike, np.nan, 1.0 - observed / expected)


def _interval_alpha(ratings: Ratings) -> JackknifedStatistics:
    """Return Krippendorff's α of intervals, from squares: no categories are needed."""
    kept = (ratings.codes >= 0).sum(axis=1) > 1
    x = ratings.values[kept]
    x = x - np.nanmean(x)
    r = np.isfinite(x).sum(axis=1)
    sums = np.nansum(x, axis=1)
    squares = np.nansum((x - (sums / r)[:, None]) ** 2, axis=1)
    within = r * squares / (r - 1.0)

    def alpha(total: FloatArray) -> FloatArray:
        n, first, second, inside = (total[..., k] for k in range(4))
        around = second - first**2 / n
        found = 1.0 - (n - 1.0) * inside / (n * around)
        return np.where(around > _CONSTANT * n, found, np.nan)[..., None]

    used = Ratings(ratings.codes[kept], ratings.levels, ratings.items[kept], ratings.is_text)
    return used.statistics([r, sums, np.nansum(x**2, axis=1), within], alpha)


# Two judges ------------------------------------------------------------------------------------

_PAIR_NAMES = [
    ("agreement", "nominal"),
    ("Cohen κ", "nominal"),
    ("Cohen κ", "ordinal"),
    ("Cohen κ", "interval"),
]


def of_two(ratings: Ratings, alpha: float) -> pd.DataFrame:
    """Return Cohen's κ of two judges, also with linear and quadratic weights.

    Parameters
    ----------
    ratings : of two judges, who rated all answers
    alpha : intervals have confidence 1 − alpha

    Returns
    -------
    pandas.DataFrame
        As of :func:`of_all`. Of the level ordinal weights are linear in ranks, of interval
        quadratic in ratings.

    References
    ----------
    Cohen, J. (1968). Weighted kappa: nominal scale agreement with provision for scaled
    disagreement or partial credit. *Psychological Bulletin*, 70, 213-220.
    """
    n, q = len(ratings.codes), len(ratings.levels)
    if not n:
        none = JackknifedStatistics(np.full(4, np.nan), np.full((2, 4), np.nan))
        return _frame(_rows(_PAIR_NAMES, none, ["they rated no answer both"] * 4, 0, alpha))
    a, b = ratings.codes.T
    few = ratings.has_categories
    margins = [*np.eye(q)[:, a], *np.eye(q)[:, b]] if few else []
    x, y = np.zeros((2, n)) if ratings.is_text else ratings.values.T
    parts = [np.ones(n), a == b, np.abs(a - b), x, y, (x - y) ** 2, x * x, y * y, *margins]

    def kappas(sums: FloatArray) -> FloatArray:
        n = sums[..., 0]
        agree, apart, mx, my, square, xx, yy = (sums[..., k] / n for k in range(1, 8))
        if few:
            p, s = (sums[..., 8 + k * q : 8 + (k + 1) * q] / n[..., None] for k in range(2))
            nominal = _corrected(agree, (p * s).sum(axis=-1))
            P, S = p.cumsum(axis=-1), s.cumsum(axis=-1)
            by_chance = (P * (1.0 - S) + S * (1.0 - P)).sum(axis=-1)
            linear = np.where(by_chance > _CONSTANT * q, 1.0 - apart / by_chance, np.nan)
        else:
            nominal = linear = np.full_like(n, np.nan)
        chance = (xx - mx**2) + (yy - my**2) + (mx - my) ** 2
        quadratic = np.where(chance > _CONSTANT, 1.0 - square / chance, np.nan)
        return np.stack([agree, nominal, linear, quadratic], axis=-1)

    many = "" if few else f"there are {q:,} different ratings, no categories"
    ranked = "ratings are text, which has no order" if ratings.is_text else ""
    reasons = ["", many, many or ranked, ranked]
    return _frame(_rows(_PAIR_NAMES, ratings.statistics(parts, kappas), reasons, n, alpha))


# Tables ----------------------------------------------------------------------------------------


def _rows(
    names: Sequence[tuple[str, str]],
    found: JackknifedStatistics,
    reasons: Sequence[str],
    n: int,
    alpha: float,
) -> list[tuple[Any, ...]]:
    low, high = found.limits(alpha)
    # Coefficients are of the order of 1; that of a judge who always says the same is exactly 0.
    error, rows = np.where(found.std_error > _CONSTANT, found.std_error, np.nan), []
    for k, (name, why) in enumerate(zip(names, reasons, strict=True)):
        if why:
            rows.append((*name, *[np.nan] * 4, n, why))
            continue
        value, reason = float(found.values[k]), ""
        if not np.isfinite(value):
            reason = "all ratings are equal, so that chance agrees always"
        elif not np.isfinite(error[k]):
            reason = "no item differs from the others"
            if len(found.deviations) < 2:
                reason = "there is one item"
            elif np.isnan(found.deviations[:, k]).any():
                reason = "without one of the items all ratings are equal"
        ends = (max(float(low[k]), -1.0), min(float(high[k]), 1.0))
        ends = ends if np.isfinite(error[k]) else (np.nan, np.nan)
        rows.append((*name, value, float(error[k]), *ends, n, reason))
    return rows


def _frame(rows: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(rows), columns=["coefficient", "level", *COLUMNS])

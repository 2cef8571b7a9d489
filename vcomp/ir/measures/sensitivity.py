"""Absolute and relative sensitivity: smallest differences between systems that can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, check_one_of, is_real
from vcomp.ir.agreement import MeanRows, RowMeasure
from vcomp.ir.measures.larger_tests import Extrapolated
from vcomp.ir.significance import pairs_of
from vcomp.numerics import slices

_BITS = 36
_GRID = 2.0**_BITS
"""Differences whose ratio to the largest agrees to 36 bits are tied: they are one threshold."""

_TINY = float(np.finfo(np.float64).tiny) * _GRID
"""Smallest divisor of the grid that does not overflow."""

_PAIRS = 2**17
"""Pairs of systems that are compared at once: a few arrays of them fit into a cache."""

_ORDER = 25
"""Bits of a sorting key that hold the number of a pair."""

LARGEST_LISTED = 8_192
"""Largest number of systems whose pairs have numbers of `_ORDER` bits."""


@dataclass(frozen=True, slots=True)
class _Sensitivity(Extrapolated, RowMeasure):
    """Smallest difference, absolute or relative, that is seldom swapped."""

    rate: float = 0.05
    ties: Literal["together", "listed"] = "together"

    larger_is_better: ClassVar[bool] = False
    undefined: ClassVar[str] = (
        "even the largest differences are swapped too often, or all are ties"
    )
    relative: ClassVar[bool]

    def __post_init__(self) -> None:
        rate = self.rate
        if not is_real(rate) or not 0 <= rate < 1:
            raise PlanError(f"rate must be at least 0 and less than 1, not {rate!r}")
        check_one_of("ties", self.ties, ("together", "listed"))

    def actual_of_rows(self, rows: MeanRows) -> FloatArray:
        """Return the sensitivity of each row."""
        m, k = rows.means.shape
        if self.ties == "listed" and k > LARGEST_LISTED:
            raise PlanError(
                f"ties='listed' is for {LARGEST_LISTED:,} systems at most; there are {k:,}"
            )
        of_block = _listed_difference if self.ties == "listed" else _safe_difference
        delta = np.full(m, np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            kept = np.flatnonzero(np.ptp(rows.means, axis=1) < np.inf)  # drops nan too
            for some in slices(kept.size if k > 1 else 0, 1 + _PAIRS // (k * k)):
                at = kept[some]
                ex, ey = (one[at, None] for one in rows.tolerances)
                delta[at] = of_block(
                    rows.means[at], rows.truth[at], ex, ey, self.rate, self.relative
                )
        return delta


@dataclass(frozen=True, slots=True)
class AbsoluteSensitivity(_Sensitivity):
    """Smallest difference of mean scores that is seldom swapped (Urbano, 2016, sec. 3.1.3).

    The smallest δ among the observed differences such that, of all pairs of systems that are at
    least δ apart, at most `rate` are in the other order in truth (Voorhees and Buckley, 2002).

    Parameters
    ----------
    rate : largest share of swapped pairs, at least 0 and less than 1
    ties : how equal differences are treated

        * ``"together"``: they are one threshold, so that the order of the systems has no meaning;
        * ``"listed"``: one by one, in the order in which the systems are listed, as in the code
          of Urbano (2016) behind its tables 4 and 7. δ may then lie within a tie.

    Raises
    ------
    PlanError
        If `rate` is out of range, `ties` has another value, or there are more than 8,192 systems
        with ``ties="listed"``.

    Notes
    -----
    Pairs with equal means, in the collection or in truth, are neither swapped nor right and do
    not count. Where even the largest differences are swapped too often there is no such δ, and
    the sensitivity is undefined (nan). It is in the units of the scores.

    Tests of few topics, many of whose systems are as far apart as they can be, may have a
    sensitivity by ``"listed"`` and none by ``"together"``: if more than `rate` of the pairs at the
    largest difference are swapped, but not so many of those listed first. ``"listed"`` does three
    more things as that code does: the sensitivity is 1 at most; pairs that do not count are on the
    list, so that δ may be their difference; and a share of a negative mean is a swap of its sign.

    References
    ----------
    Voorhees, E. M. and Buckley, C. (2002). The effect of topic set size on retrieval experiment
    error. *Proc. ACM SIGIR*, 316-323.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> round(AbsoluteSensitivity().actual(scores, [0.1, 0.3, 0.2]), 3)
    0.2
    """

    name: ClassVar[str] = "sens_abs"
    symbol: ClassVar[str] = "sens_abs"
    limits: ClassVar[tuple[float, float]] = (0.0, np.inf)
    relative: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class RelativeSensitivity(_Sensitivity):
    """Smallest relative difference that is seldom swapped (Urbano, 2016, sec. 3.1.3).

    As :class:`AbsoluteSensitivity`, but differences are shares of the larger of the two means
    (Sanderson and Zobel, 2005; Urbano, Marrero and Martín, 2013, sec. 2.1): 0.12 is 12 %.

    Parameters
    ----------
    rate : largest share of swapped pairs, at least 0 and less than 1
    ties : ``"together"`` or ``"listed"``; see :class:`AbsoluteSensitivity`

    Raises
    ------
    PlanError
        As :class:`AbsoluteSensitivity`.

    Notes
    -----
    Where means are negative the divisor is the larger of the two absolute values, and a difference
    of more than 100 % counts as 100 %; by ``ties="listed"`` differences are divided by the larger
    mean, and cut at 100 % only at the end. For the rest see :class:`AbsoluteSensitivity`.

    References
    ----------
    Sanderson, M. and Zobel, J. (2005). Information retrieval system evaluation: effort,
    sensitivity, and reliability. *Proc. ACM SIGIR*, 162-169.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> round(RelativeSensitivity().actual(scores, [0.1, 0.3, 0.2]), 3)
    0.4
    """

    name: ClassVar[str] = "sens_rel"
    symbol: ClassVar[str] = "sens_rel"
    relative: ClassVar[bool] = True


def _of_pairs(function: np.ufunc, x: FloatArray) -> FloatArray:
    """Apply a function to every two columns i < j, with pairs in the order of i."""
    i, j = pairs_of(x.shape[1])
    return function(x.take(i, axis=1), x.take(j, axis=1))


def _safe_difference(
    means: FloatArray,
    truth: FloatArray,
    tolerances: FloatArray,
    truth_tolerances: FloatArray,
    rate: float,
    relative: bool,
) -> FloatArray:
    """Return for each row the smallest δ with at most `rate` of the larger differences swapped.

    A threshold rises from below all differences. Of the n pairs above it, at most rate · n may be
    swapped; it rises to the difference above which so many are, and n falls. It ends at the
    smallest acceptable threshold, since it cannot pass one.

    Parameters
    ----------
    means, truth : (m, k) two scores of each system, k at least 2; `means` are finite
    tolerances, truth_tolerances : (m, 1) largest difference of tied systems
    rate : largest share of swapped pairs
    relative : whether differences are divided by the larger of the two means, in absolute value

    Returns
    -------
    delta : (m,) nan where there is none
    """
    d, dy = _of_pairs(np.subtract, means), _of_pairs(np.subtract, truth)
    swapped = (d > 0.0) != (dy > 0.0)
    size, (m, n_pairs) = np.abs(d, out=d), d.shape
    ties = ~((size > tolerances) & (np.abs(dy, out=dy) > truth_tolerances))
    span = np.ptp(means, axis=1)[:, None]
    if relative:
        size /= np.maximum(_of_pairs(np.maximum, np.abs(means)), _TINY)
        np.minimum(size, 1.0, out=size)
    place = size * (_GRID if relative else _GRID / np.maximum(span, _TINY))
    np.floor(np.add(place, 0.5, out=place), out=place)
    place[ties | (span <= _TINY)] = -1.0
    # Places of the swapped pairs, descending in each row
    flat = np.flatnonzero(swapped)
    flat = flat[place.ravel()[flat] >= 0.0]
    of_row = np.int64(2) << _BITS
    key = np.sort((flat // n_pairs + 1) * of_row - place.ravel()[flat].astype(np.int64))
    first, last = np.searchsorted(key, [np.arange(m) * of_row, np.arange(1, m + 1) * of_row])
    falling = np.append(-key & (of_row - 1), 0).astype(float)
    threshold, passed = np.full(m, -1.0), np.full(m, -np.inf)
    while (threshold > passed).any():
        passed = threshold
        above = place > threshold[:, None]
        n = np.array([np.count_nonzero(row) for row in above])
        most = np.ceil(rate * n).astype(np.int64)
        most -= most / np.maximum(n, 1) > rate
        at = np.minimum(first + most, last)
        threshold = np.where(at < last, np.maximum(falling[at], threshold), threshold)
    delta = np.where(above, size, np.inf).min(axis=1)
    return np.where(n > 0, delta, np.nan)


def _listed_difference(
    means: FloatArray,
    truth: FloatArray,
    tolerances: FloatArray,
    truth_tolerances: FloatArray,
    rate: float,
    relative: bool,
) -> FloatArray:
    """Return for each row the last listed difference with at most `rate` of the pairs swapped.

    Pairs are listed by falling differences, ties as the systems come. Pairs that are tied in one
    of the two rankings are listed, but neither swapped nor right. Relative differences have the
    sign of the larger mean, and may be infinite; what is returned is 1 at most.

    Parameters and returned values are those of :func:`_safe_difference`.
    """
    d, dy = _of_pairs(np.subtract, means), _of_pairs(np.subtract, truth)
    right = (d > 0.0) == (dy > 0.0)
    size = np.abs(d, out=d)
    tied = size <= tolerances
    counts = ~(tied | (np.abs(dy, out=dy) <= truth_tolerances))
    size[tied] = 0.0
    ratio = size / np.maximum(np.ptp(means, axis=1), 1e-290)[:, None]
    if relative:
        larger = _of_pairs(np.maximum, means)
        right ^= larger < 0.0
        size /= np.abs(larger, out=larger)
        # Differences d above 100 % are mapped to 2 - 1/d, so that all are at most 2.
        ratio = np.where(size > 1.0, 2.0 - 1.0 / size, size)
    ranked = ~np.isnan(size)  # 0/0 is last in the list, and has no rate
    place = np.where(ranked, np.floor(ratio * _GRID + 0.5), -1.0).astype(np.int64)
    key = np.sort((-place << _ORDER) + np.arange(place.shape[1]), axis=1)
    order = key & (2**_ORDER - 1)
    n_right = np.cumsum(np.take_along_axis(right & counts, order, axis=1), axis=1)
    n_wrong = np.cumsum(np.take_along_axis(~right & counts, order, axis=1), axis=1)
    safe = (n_wrong / (n_right + n_wrong) <= rate) & np.take_along_axis(ranked, order, axis=1)
    last = safe.shape[1] - 1 - safe[:, ::-1].argmax(axis=1)[:, None]
    differences = np.take_along_axis(size, np.take_along_axis(order, last, axis=1), axis=1)[:, 0]
    return np.where(safe.any(axis=1), np.minimum(1.0, differences), np.nan)

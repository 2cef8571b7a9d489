"""Absolute and relative sensitivity: how far apart two systems must be to be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import ClassVar, Literal

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, check_one_of
from vcomp.ir.agreement import MeanRows, RowMeasure
from vcomp.ir.kernels import (
    LARGEST_LISTED,
    listed_safe_difference,
    smallest_by_arrays,
    smallest_safe_difference,
)
from vcomp.ir.measures.extrapolated import Extrapolated
from vcomp.numerics.kernels import at_once

_SECONDS, _PAIR_SECONDS = 2e-5, 3e-8
"""What a system in a row of means takes in Python, and a pair of systems by arrays."""


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
        if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 <= rate < 1:
            raise PlanError(f"rate must be at least 0 and less than 1, not {rate!r}")
        check_one_of("ties", self.ties, ("together", "listed"))

    def actual_of_rows(self, rows: MeanRows) -> FloatArray:
        """Return the sensitivity of each row."""
        if self.ties == "listed":
            return self._as_listed(rows)
        seconds = rows.means.size * rows.n_systems * _PAIR_SECONDS
        smallest = at_once(smallest_safe_difference, seconds, smallest_by_arrays)
        delta: FloatArray = smallest(
            rows.means,
            rows.truth,
            *rows.tolerances,
            rows.swaps[0],
            *rows.orders,
            self.rate,
            self.relative,
        )
        return delta

    def _as_listed(self, rows: MeanRows) -> FloatArray:
        if rows.n_systems > LARGEST_LISTED:
            raise PlanError(
                f"ties='listed' is for {LARGEST_LISTED:,} systems at most; there are "
                f"{rows.n_systems:,}"
            )
        last = at_once(listed_safe_difference, rows.means.size * _SECONDS)
        delta: FloatArray = last(
            rows.means, rows.truth, *rows.tolerances, self.rate, self.relative
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

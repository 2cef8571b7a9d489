"""Absolute and relative sensitivity: how far apart two systems must be to be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError
from vcomp.ir.agreement import MeanRows, RowMeasure
from vcomp.ir.kernels import smallest_safe_difference
from vcomp.ir.measures.extrapolated import Extrapolated
from vcomp.numerics.kernels import at_once

_SECONDS = 2e-5
"""What a system in a row of means takes in Python."""


@dataclass(frozen=True, slots=True)
class _Sensitivity(Extrapolated, RowMeasure):
    """Smallest difference, absolute or relative, that is seldom swapped."""

    rate: float = 0.05

    larger_is_better: ClassVar[bool] = False
    undefined: ClassVar[str] = (
        "even the largest differences are swapped too often, or all are ties"
    )
    relative: ClassVar[bool]

    def __post_init__(self) -> None:
        rate = self.rate
        if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 <= rate < 1:
            raise PlanError(f"rate must be at least 0 and less than 1, not {rate!r}")

    def actual_of_rows(self, rows: MeanRows) -> FloatArray:
        """Return the sensitivity of each row."""
        smallest = at_once(smallest_safe_difference, rows.means.size * _SECONDS)
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


@dataclass(frozen=True, slots=True)
class AbsoluteSensitivity(_Sensitivity):
    """Smallest difference of mean scores that is seldom swapped (Urbano, 2016, sec. 3.1.3).

    The smallest δ among the observed differences such that, of all pairs of systems that are at
    least δ apart, at most `rate` are in the other order in truth (Voorhees and Buckley, 2002).

    Parameters
    ----------
    rate : largest share of swapped pairs, at least 0 and less than 1

    Raises
    ------
    PlanError
        If `rate` is out of range.

    Notes
    -----
    Pairs with equal means, in the collection or in truth, are neither swapped nor right and do
    not count. Equal differences are one threshold. Where even the largest differences are swapped
    too often there is no such δ, and the sensitivity is undefined (nan). It is in the units of the
    scores.

    Urbano's code cuts it at 1, which makes a difference for scores beyond [0, 1] only. It goes
    through equal differences one by one, as systems are listed: tests of few topics, many of whose
    systems are as far apart as they can be, may have a sensitivity there and none here.

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

    Raises
    ------
    PlanError
        If `rate` is out of range.

    Notes
    -----
    Where means are negative the divisor is the larger of the two absolute values, and a difference
    of more than 100 % counts as 100 %. For the rest see :class:`AbsoluteSensitivity`.

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

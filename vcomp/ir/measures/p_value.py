"""Average p-value of the differences between systems (Bodoff and Li, 2007)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError
from vcomp.ir.measures.base import TopicMeasure
from vcomp.ir.measures.extrapolated import Extrapolated
from vcomp.ir.measures.significance import between, check_bin, paired_tests


@dataclass(frozen=True, slots=True)
class AveragePValue(Extrapolated, TopicMeasure):
    """Mean p-value of paired t-tests between systems that differ by a given amount.

    A swap rate that needs no second set of topics (Bodoff and Li, 2007, sec. 1; Bodoff, 2008,
    sec. 1.2): of the pairs whose mean scores differ by at least `lower` and less than `upper`, the
    mean p-value. The truth is not looked at.

    Parameters
    ----------
    lower, upper : the bin of differences, in the units of the scores
    sides : 2, the default, for two-sided p-values; 1 for one-sided ones, half as large, that a
        difference this large in favour of the better system is due to chance. The papers do not
        say which they average; that 1 - p be the probability that the better system is better
        (Bodoff, 2008, sec. 1.2) speaks for one-sided ones

    Raises
    ------
    PlanError
        If the bin is empty, or `sides` is neither 1 nor 2.

    Notes
    -----
    Pairs with equal means have no better system and do not count, as for :class:`SwapRate`.
    Differences that are the same on all topics have p-value zero. Undefined (nan) where no pair is
    in the bin.

    References
    ----------
    Bodoff, D. and Li, P. (2007). Test theory for assessing IR test collections. *Proc. ACM SIGIR*,
    367-374.

    Bodoff, D. (2008). Test theory for evaluating reliability of IR test collections. *Information
    Processing and Management*, 44(3), 1117-1145.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> round(AveragePValue(lower=0.1).actual(scores, [0.3, 0.4, 0.2]), 3)
    0.096
    """

    lower: float = 0.0
    upper: float = np.inf
    sides: Literal[1, 2] = 2

    name: ClassVar[str] = "p_value"
    symbol: ClassVar[str] = "average p-value"
    larger_is_better: ClassVar[bool] = False
    undefined: ClassVar[str] = "no pair of systems differs by that much"

    def __post_init__(self) -> None:
        check_bin(self.lower, self.upper)
        if isinstance(self.sides, bool) or self.sides not in (1, 2):
            raise PlanError(f"sides must be 1 or 2, not {self.sides!r}")

    def actual_of_scores(self, X: FloatArray, Y: FloatArray) -> float:
        """Return the mean p-value in `X`, unchecked: for loops. `Y` is not looked at."""
        tests = paired_tests(X)
        counted = between(tests.differences, self.lower, self.upper)
        if not counted.any():
            return np.nan
        return float(tests.p_values[counted].mean()) * self.sides / 2

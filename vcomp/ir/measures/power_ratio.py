"""Power ratio β: how many differences between systems are significant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vcomp._typing import FloatArray
from vcomp.exceptions import check_alpha
from vcomp.ir.measures.base import TopicMeasure
from vcomp.ir.measures.extrapolated import Extrapolated
from vcomp.ir.measures.significance import paired_tests


@dataclass(frozen=True, slots=True)
class PowerRatio(Extrapolated, TopicMeasure):
    """Share of pairs of systems whose difference is significant (Urbano et al., 2013, sec. 2.1).

    By two-sided paired t-tests. The truth is not looked at: what is significant is taken for
    further evidence that the true difference has the same sign. How often that fails is what
    :class:`MinorConflicts` and :class:`MajorConflicts` count.

    Parameters
    ----------
    alpha : level of the tests; no correction is made for their number

    Raises
    ------
    PlanError
        If `alpha` is not between 0 and 1.

    References
    ----------
    Urbano, J., Marrero, M. and Martín, D. (2013). On the measurement of test collection
    reliability. *Proc. ACM SIGIR*, 393-402.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> round(PowerRatio(alpha=0.1).actual(scores, [0.3, 0.4, 0.2]), 3)
    0.333
    """

    alpha: float = 0.05

    name: ClassVar[str] = "power_ratio"
    symbol: ClassVar[str] = "β"

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    def actual_of_scores(self, X: FloatArray, Y: FloatArray) -> float:
        """Return β of the collection `X`, unchecked: for loops. `Y` is not looked at."""
        return float(paired_tests(X).significant(self.alpha).mean())

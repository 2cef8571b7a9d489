"""What the engines that work on cross-products have in common."""

from __future__ import annotations

from functools import cached_property

from vcomp._typing import FloatArray
from vcomp.estimators.engine import SummedEngine
from vcomp.estimators.identify import mivque0, residual_sum_of_squares
from vcomp.linalg.dense import solve_positive
from vcomp.statistics import CrossProducts

__all__ = ["CrossProductsEngine"]


class CrossProductsEngine(SummedEngine):
    """Least squares and a start from cross-products alone."""

    stats: CrossProducts

    @cached_property
    def rss(self) -> float:
        """What ordinary least squares on X leaves of the response."""
        return residual_sum_of_squares(self.stats)

    def mivque0(self) -> FloatArray:
        """Return the MIVQUE(0) estimates, which may be negative."""
        return mivque0(self.stats)

    def least_squares(self) -> FloatArray:
        """Return the ordinary least squares estimate of the fixed effects."""
        return solve_positive(self.stats.XX, self.stats.Xy)

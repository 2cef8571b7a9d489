"""How well everything is known: intervals, tests, resampling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcomp.results import tables
from vcomp.results.fitted import FittedComponents

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Inference"]


class Inference(FittedComponents):
    """Intervals and tests of components, of fixed effects and of what is made from them."""

    def conf_int(self, alpha: float = 0.05, method: str = "satterthwaite") -> pd.DataFrame:
        """Return intervals of :attr:`params` in columns 0 and 1, as statsmodels does.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        method : for the components ``"satterthwaite"`` (χ² with ν = 2 (σ̂²/se)²) or ``"wald"``;
            fixed effects have Wald intervals (normal) in both cases. A component at its bound, or
            a negative one with Satterthwaite's method, has none (nan)

        Raises
        ------
        EstimationError
            If the method is not known or alpha is not between 0 and 1.
        """
        return tables.conf_int(self, alpha, method)

    def gstudy(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return a row a component: estimate, se, ci_low, ci_high (Satterthwaite) and percent.

        Percent is of the total variance, negative estimates taken as zero. After an engine with
        random probes there is ``mc_error`` after se.
        """
        return tables.gstudy(self, alpha)

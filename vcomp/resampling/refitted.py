"""How a fit was made, and what is kept of one that is made again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.refit import Negative
from vcomp.estimators.registry import Estimator
from vcomp.statistics import Statistics

__all__ = ["Recipe", "Refit", "Refitted"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a fit was made, so that it can be made again.

    Attributes
    ----------
    estimator : with its options
    names : of the components, the residual last
    negative : what was done with terms estimated below zero
    """

    estimator: Estimator
    names: tuple[str, ...]
    negative: Negative = "keep"


@dataclass(frozen=True, slots=True)
class Refitted:
    """What a replicate keeps of an estimate.

    Attributes
    ----------
    values : (k + 1,) components
    beta : (p,) fixed effects, of the columns of X as they are in the statistics
    llf : log-likelihood, nan for closed forms
    converged : whether it is the estimate that the method defines; if not, values may be nan
    """

    values: FloatArray
    beta: FloatArray
    llf: float
    converged: bool

    @classmethod
    def failed(cls, n_components: int, n_fixed: int) -> Refitted:
        """Return what is left where there is no estimate."""
        return cls(np.full(n_components, np.nan), np.full(n_fixed, np.nan), np.nan, False)


class Refit(Protocol):
    """An estimator with everything that does not depend on the response worked out."""

    def __call__(self, stats: Statistics) -> Refitted:
        """Return the estimate from statistics that differ in their response only."""

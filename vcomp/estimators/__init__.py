"""Statistics → :class:`Estimate`: ANOVA, REML and ML."""

from vcomp.estimators.estimate import Certificate, Estimate, Iteration
from vcomp.estimators.registry import METHODS, get_estimator

__all__ = ["METHODS", "Certificate", "Estimate", "Iteration", "get_estimator"]

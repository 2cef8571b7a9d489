"""Statistics → :class:`Estimate`: ANOVA, REML and ML."""

from vcomp.estimators.estimate import Certificate, Estimate
from vcomp.estimators.registry import METHODS, get_estimator

__all__ = ["METHODS", "Certificate", "Estimate", "get_estimator"]

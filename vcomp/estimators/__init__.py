"""Estimators of variance components: sufficient statistics in, estimates out.

Two families: ``likelihood`` (REML and ML) and ``quadratic`` (Henderson's methods, Type I, MINQUE).
Statistics come from ``vcomp.statistics``; estimates go to ``vcomp.inference`` and ``vcomp.model``.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

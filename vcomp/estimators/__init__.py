"""Estimators of variance components: sufficient statistics in, estimates out.

Two families: ``likelihood`` (REML and ML) and ``quadratic`` (Henderson's methods, Type I, MINQUE).
Statistics come from ``vcomp.statistics``; estimates go to ``vcomp.inference`` and ``vcomp.model``.
"""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

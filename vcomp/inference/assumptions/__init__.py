"""Assumptions of the model: effects and residuals, tests that keep their level, verdicts."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

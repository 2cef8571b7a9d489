"""Generalizability theory: D-studies, their coefficients, and what sizes a target or a budget allows."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

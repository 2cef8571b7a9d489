"""Generalizability theory: D-studies, their coefficients, and the sizes for a goal or budget."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

"""Numerical building blocks that know no model: solves, factorisations, bounds, memory, random streams."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

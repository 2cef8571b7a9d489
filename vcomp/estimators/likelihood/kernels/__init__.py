"""Loops over the levels of a facet, compiled by numba."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

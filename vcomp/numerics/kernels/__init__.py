"""Loops over arrays, compiled by numba, that several rooms use."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

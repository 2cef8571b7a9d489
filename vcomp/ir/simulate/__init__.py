"""Simulation of scores: new topics for given systems, and any design from its components."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

"""Intervals of quantities from components and their covariance matrix."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

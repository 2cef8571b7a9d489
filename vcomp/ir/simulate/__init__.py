"""Scores simulated from margins and dependence of given ones, and from given components."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

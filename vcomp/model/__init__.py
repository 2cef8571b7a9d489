"""The model of a formula and data, and the result of its estimation."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

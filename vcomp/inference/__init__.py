"""Inference on components: quantities made of them, their intervals, profiles, tests, resampling."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

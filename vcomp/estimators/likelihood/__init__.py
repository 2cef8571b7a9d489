"""REML and ML: engines that evaluate the likelihood, its maximisation and its certificate."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

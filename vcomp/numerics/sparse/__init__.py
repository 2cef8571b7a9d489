"""Sparse systems: products, factors, conjugate gradients, and random probes for traces."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

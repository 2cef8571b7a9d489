"""Numerical building blocks: solves, bounded steps, memory, random streams, threads.

The lowest room: ``sparse`` has large systems, ``kernels`` the loops that numba compiles.
"""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

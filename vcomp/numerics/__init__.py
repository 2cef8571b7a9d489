"""Numerical building blocks without a model: solves, bounded steps, memory, threads, streams.

All rooms may use them. ``sparse`` has factors and iterative solves of large systems, ``kernels``
the loops that numba compiles.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

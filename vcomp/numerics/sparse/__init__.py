"""Sparse systems: products, factors, conjugate gradients, and random probes for traces."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

"""Loops over the levels of a facet, compiled by numba."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

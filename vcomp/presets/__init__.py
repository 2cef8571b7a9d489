"""Variance components in the words of a field: gauge studies, precision of laboratories.

Functions of a result: the same components, summed and named as engineers and laboratories do.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

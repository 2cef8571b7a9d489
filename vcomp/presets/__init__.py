"""Variance components in the words of a field: gauge studies, precision of laboratories.

Functions of a result: the same components, summed and named as engineers and laboratories do.
"""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

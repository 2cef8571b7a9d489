"""Formulas and designs as text: parsing, the fixed part, Brennan's notation, effects of a design.

The first stage of a fit: text becomes a ``Formula``, before any data are read.
"""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

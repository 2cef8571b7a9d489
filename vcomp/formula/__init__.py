"""Formulas and designs as text: parsing, the fixed part, Brennan's notation, effects of a design.

The first stage of a fit: text becomes a ``Formula``, before any data are read.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

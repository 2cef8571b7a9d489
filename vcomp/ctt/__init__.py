"""Classical test theory: how reliable a test is, and what its items contribute.

Everywhere **objects of measurement are rows and items are columns**, which is the transpose of the
topic × system matrices of :mod:`vcomp.ir`; long data have the names of their columns.
"""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

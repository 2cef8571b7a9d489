"""Classical test theory: how reliable a test is, and what its items contribute.

Everywhere **objects of measurement are rows and items are columns**, which is the transpose of the
topic × system matrices of :mod:`vcomp.ir`; long data have the names of their columns.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

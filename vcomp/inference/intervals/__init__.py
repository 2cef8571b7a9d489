"""Intervals of quantities from components and their covariance matrix.

Section 10.1 to 10.5 of docs/explanation/mathematics.md.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

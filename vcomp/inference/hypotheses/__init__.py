"""Tests of components and fixed effects, and comparisons of models.

Section 11 of docs/explanation/mathematics.md.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

"""Generalizability theory: D-studies, their coefficients, and the sizes for a goal or budget."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

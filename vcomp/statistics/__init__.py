"""Sufficient statistics: sums of rows that estimators work on, and how rows become sums."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

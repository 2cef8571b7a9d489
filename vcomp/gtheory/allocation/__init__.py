"""The best whole sizes of a design for a budget or a goal."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

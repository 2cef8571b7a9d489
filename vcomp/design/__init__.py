"""The design of data, determined before rows are summed: levels, codes, nesting and grids."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

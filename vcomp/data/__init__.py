"""Where rows come from: tables, files and queries, how they are read, the columns of a model."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

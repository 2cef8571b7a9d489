"""The model (formula and data, summed once) and the result of its estimation.

They join the pipe: formula, design and statistics become a model, an estimate becomes a result.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

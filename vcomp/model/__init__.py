"""The model (formula and data, summed once) and the result of its estimation.

They join the pipe: formula, design and statistics become a model, an estimate becomes a result.
"""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

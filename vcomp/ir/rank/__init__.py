"""How near a ranking is to the true one: expected Kendall and AP correlations, and swaps."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

"""Expected accuracy of a ranking: τ and τ_AP with the true ranking, and intervals."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

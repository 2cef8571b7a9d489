"""The best whole sizes of a design for a budget or a goal."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

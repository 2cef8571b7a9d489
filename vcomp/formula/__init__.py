"""Formulas and designs as text: parsing, the fixed part, and the algebra of effects."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

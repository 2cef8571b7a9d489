"""Tests of components and fixed effects, and comparisons of models.

Section 11 of docs/explanation/mathematics.md.
"""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

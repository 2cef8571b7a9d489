"""Intervals of quantities from components and their covariance matrix.

Section 10.1 to 10.5 of docs/explanation/mathematics.md.
"""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

"""Profile likelihoods of components, of quantities and of fixed effects.

Section 10.6 of docs/explanation/mathematics.md.
"""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

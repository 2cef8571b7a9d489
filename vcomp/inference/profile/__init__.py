"""Profile likelihoods of components, of quantities and of fixed effects.

Section 10.6 of docs/explanation/mathematics.md.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

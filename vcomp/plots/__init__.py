"""Pictures of the tables: components, coefficients, predicted effects, profiles, replicates.

Every function draws the numbers of a frame that the library also prints, with
matplotlib on the given axes (or on a new figure), and returns the axes. Nothing is
estimated here.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

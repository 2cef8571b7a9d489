"""Pictures of the tables: components, coefficients, predicted effects, profiles, replicates.

Every function takes its numbers from a frame that the library also prints, draws them with
matplotlib on the axes that it is given (or on a new figure), and returns the axes. Nothing is
estimated here.
"""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

"""What must be known before rows are summed: levels, codes, nesting, grids, and the design in words."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

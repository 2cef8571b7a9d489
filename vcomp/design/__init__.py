"""The design of data, determined before rows are summed: levels, codes, nesting and grids."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

"""Studies that fit many times: measures beside each other, and random parts of the data."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

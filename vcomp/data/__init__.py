"""Where rows come from: tables, files and queries, how they are read, the columns of a model."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

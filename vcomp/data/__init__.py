"""Where rows come from: tables, files, queries and streams, the columns a model needs, and data sets."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

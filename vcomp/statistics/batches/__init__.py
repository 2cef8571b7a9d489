"""Statistics of rows that are read in batches, in two passes, also on Dask; and stored sums."""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

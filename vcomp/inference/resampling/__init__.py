"""Bootstrap, resampling of levels and the jackknife.

Sections 10.7 to 10.9 of docs/explanation/mathematics.md.
"""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

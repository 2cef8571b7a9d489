"""Tests of differences between systems on the same topics.

Urbano (2016, sec. 8) names them as further work; Urbano, Lima and Hanjalic (2019) compare them.
"""

from vcomp._doors import front_door

__getattr__, __dir__, __all__ = front_door(__name__, __file__)

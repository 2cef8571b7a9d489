"""Tests of differences between systems on the same topics.

Urbano (2016, sec. 8) names them as further work; Urbano, Lima and Hanjalic (2019) compare them.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

"""Comparisons of all pairs of levels: adjusted p-values, the studentized range, groups.

What is here knows p-values, statistics and levels, and not how they were estimated: systems on the
same topics (:mod:`vcomp.ir`), or levels of a facet of any fit.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

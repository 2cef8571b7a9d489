"""
Components of very different size
=================================

Components that differ by orders of magnitude, in one picture. If components or the ends of their
intervals are decades apart, the axis is logarithmic: equal distances are equal ratios. The
component of two formulations of the query has a very long interval, because two levels tell little
about a variance.
"""

import vcomp

data = vcomp.datasets.load("docsearch")
res = vcomp.gstudy("sys x topic x query", data, "score")
ax = res.plot()

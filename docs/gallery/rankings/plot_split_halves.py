"""
Extrapolation from split halves
===============================

How far curves through halves of a collection are extrapolated, and how much they differ there.
Grey points are pairs of halves, and dark points are their means. Beyond the dotted line there are
no data, only the curves.
"""

import vcomp

data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
ax = vcomp.ir.split_half(data, "tau", 300, system="sys", rng=1).plot()

"""
Extrapolation from split halves
===============================

How far curves through halves of a collection are extrapolated, and how much they differ there.
Grey points are pairs of halves, dark ones their means; the curves go on beyond the dotted line,
where there are no data.
"""

import vcomp

data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
ax = vcomp.ir.split_half(data, "tau", 300, system="sys", rng=1).plot()

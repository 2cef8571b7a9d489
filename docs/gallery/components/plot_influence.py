"""
Influence of levels
===================

How far the fixed effects are from those without each level, by Cook's distance. The dashed line is
at four over the number of levels.
"""

import vcomp

res = vcomp.fit("result ~ sample + (1|sample:day) + (1|run)", vcomp.datasets.load("assay"))
ax = res.influence("day").plot()

"""
Variance components
===================

How much of the variance is due to systems, topics, their interaction and the rest. A dot is an
estimate, the line its interval, and the column at the right the share of the total variance.
"""

import vcomp

res = vcomp.fit("score ~ (1|sys*topic)", vcomp.datasets.load("docsearch"))
ax = res.plot()

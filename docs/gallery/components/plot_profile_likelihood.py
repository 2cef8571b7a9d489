"""
Profile likelihood
==================

How far the likelihood falls when a component moves away from its estimate. The curve is the signed
root of the fall. Where it is straight, the estimate is about normal. Where it crosses the dashed
lines, the interval ends.
"""

import vcomp

res = vcomp.fit("score ~ (1|sys*topic)", vcomp.datasets.load("docsearch"))
axes = res.profile().plot()

"""
Bootstrap replicates
====================

How a component would vary if the study were repeated: the histogram of estimates from data that
are drawn from the fitted model. The orange line is the estimate, the grey area the interval that
follows from the replicates.
"""

import vcomp

res = vcomp.fit("score ~ (1|sys*topic)", vcomp.datasets.load("docsearch"))
boot = res.bootstrap(2000, rng=1)
found = res.quantity("sys", interval=boot)
ax = boot.plot("sys", estimate=found.estimate, limits=(found.low, found.high))

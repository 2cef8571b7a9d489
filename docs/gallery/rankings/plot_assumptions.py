"""
Assumptions of a fit
====================

Are effects and residuals normal, residual variances equal, systems independent? Dots on the line
are normal. The last pictures are those of Fig. 1 of Urbano (2016): residuals against topic
effects, residuals of the two most similar systems, and the correlations of all pairs.
"""

import vcomp

data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
axes = res.diagnose().plot()

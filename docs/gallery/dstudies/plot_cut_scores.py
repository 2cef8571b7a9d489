"""
Decisions by a cut score
========================

How dependably a test decides whether a score is above a cut score λ. Φ(λ) is lowest for cut scores
near the mean, where most scores are close to the cut. It is flat where the cut score and the mean
differ by less than the error of the mean.
"""

import vcomp

res = vcomp.fit("score ~ (1|sys*topic)", vcomp.datasets.load("docsearch"))
ax = res.dstudy(topic=[25, 150]).plot_phi_lambda()

"""
Reliability by number of topics
===============================

How reliable comparisons of systems (Eρ²) and their scores (Φ) become with more topics. Lines are
the coefficients, bands their intervals.
"""

import vcomp

res = vcomp.fit("score ~ (1|sys*topic)", vcomp.datasets.load("docsearch"))
ax = res.dstudy(topic=[10, 20, 50, 100, 200]).plot()

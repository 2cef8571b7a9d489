"""
Reliability by number of topics
===============================

The curve of a D-study with its interval.
"""

import vcomp

res = vcomp.fit("score ~ (1|sys*topic)", vcomp.datasets.load("docsearch"))
res.dstudy(topic=range(10, 301, 10)).plot()

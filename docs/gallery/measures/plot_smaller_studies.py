"""
Estimates of smaller studies
============================

What a G-study would have found with fewer topics, from random subsets of the data. The line is the
median of the subsets, the band holds 95 % of them, and the grey line is the estimate from all
data.
"""

import vcomp

data = vcomp.datasets.load("docsearch")
study = vcomp.subsample_study(
    "score ~ (1|sys*topic)", data, sizes={"topic": [10, 20, 40, 80, 120]}, trials=100, rng=1
)
ax = study.plot("topic", kind="values")

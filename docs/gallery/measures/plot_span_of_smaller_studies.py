"""
How far estimates spread
========================

How many systems and topics a G-study needs until its estimate of Eρ² is stable. The height is the
length of the span that holds the estimates of 95 % of the random subsets of a size. Each number of
systems has a line.
"""

import vcomp

data = vcomp.datasets.load("docsearch")
sizes = {"topic": [30, 60, 90, 120], "sys": [15, 25, 40]}
study = vcomp.subsample_study("score ~ (1|sys*topic)", data, sizes=sizes, trials=100, rng=1)
ax = study.plot("Erho2")

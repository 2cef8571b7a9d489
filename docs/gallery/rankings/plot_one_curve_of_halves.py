"""
One curve and the spread of halves
==================================

How much pairs of halves vary about one curve. The band holds 95 % of the pairs; Eτ, which is for a
test against the truth, is higher than this agreement of two tests.
"""

import vcomp

data = vcomp.datasets.load("docsearch").query("query == 'sentence'")
ax = vcomp.ir.split_half(data, "tau_ap", 150, system="sys", models="logit", rng=1).plot()

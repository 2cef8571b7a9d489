"""
One curve and the spread of halves
==================================

How much pairs of halves vary about one curve. The band holds 95 % of the pairs. The curve is the
agreement of two tests; Eτ, the agreement of a test with the truth, is higher.
"""

import vcomp

data = vcomp.datasets.load("docsearch").query("query == 'sentence'")
ax = vcomp.ir.split_half(data, "tau_ap", 150, system="sys", models="logit", rng=1).plot()

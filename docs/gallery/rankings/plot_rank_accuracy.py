"""
Rank correlation with the true ranking
======================================

How close a ranking of systems comes to the true one, by the number of topics. Eτ counts all swaps
of two systems alike; Eτ_AP counts swaps among the best systems more. Bands are intervals for one
test of that size.
"""

import vcomp

data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
collection = vcomp.ir.ScoreMatrix.from_long(data, system="sys").drop_worst(0.25)
axes = vcomp.ir.accuracy(collection, ["tau", "tau_ap"], [25, 50, 100, 200, 400]).plot()

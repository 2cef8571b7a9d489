"""
Rank correlation with the true ranking
======================================

How close the ranking of systems by a test of so many topics comes to the true one. Eτ counts all
swaps of two systems alike, Eτ_AP those at the top more; bands are intervals for one such test.
"""

import vcomp

data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
collection = vcomp.ir.ScoreMatrix.from_long(data, system="sys").drop_worst(0.25)
axes = vcomp.ir.accuracy(collection, ["tau", "tau_ap"], [25, 50, 100, 200, 400]).plot()

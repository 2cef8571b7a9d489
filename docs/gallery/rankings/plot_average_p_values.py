"""
Average p-values by difference and topics
=========================================

How often might a difference of some size between two systems be due to chance? The mean p-value of
paired t-tests of all pairs that differ by so much, on random subsets of the topics and, dashed, on
more topics than there are. The picture is that of figure 1 of Bodoff (2008).
"""

import vcomp

data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
found = vcomp.ir.average_p_values(
    data, [10, 25, 50, 75, 100, 150, 200, 300], system="sys", bins=[0, 0.02, 0.05, 0.1, 0.2]
)
ax = found.plot()

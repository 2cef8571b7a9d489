"""
p-values of all pairs of systems
================================

Which systems are significantly better than which, by paired t-tests adjusted for the number of
pairs. Blue: the system of the row is better than that of the column; stronger colours have smaller
p-values.
"""

import vcomp

data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
ax = vcomp.ir.compare_systems(data, "t", system="sys", correction="holm").plot("p_values")

"""
Systems that cannot be distinguished
====================================

Mean scores of systems in order. Each line at the right joins systems no two of which differ
significantly, by Tukey's test of all pairs at once.
"""

import vcomp

data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
ax = vcomp.ir.compare_systems(data, "tukey", system="sys").plot()

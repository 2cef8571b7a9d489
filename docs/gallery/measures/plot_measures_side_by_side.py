"""
Measures side by side
=====================

Which formulation of the queries separates systems more reliably with the same number of topics.
Dots are Eρ² and Φ of each formulation, lines their intervals. The vertical line is the goal.
"""

import vcomp

data = vcomp.datasets.load("docsearch")
found = vcomp.compare_measures("score ~ (1|sys) + (1|topic)", data, by="query", topic=100)
ax = found.plot()

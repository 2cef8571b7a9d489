"""
Measures by number of topics
============================

How many topics each formulation of the queries needs. A line is a formulation, and its whiskers
are intervals at the planned numbers of topics. The horizontal line is the goal.
"""

import vcomp

data = vcomp.datasets.load("docsearch")
sizes = [25, 50, 100, 200, 400]
found = vcomp.compare_measures("score ~ (1|sys) + (1|topic)", data, by="query", topic=sizes)
ax = found.plot("curves")

"""
The cheapest design for a goal
==============================

What it costs to make the relative error variance as small as a goal. The line falls with the cost.
The diamond is the cheapest plan that reaches the dotted goal, and the whisker is its interval.
"""

import vcomp

data = vcomp.datasets.load("docsearch")
res = vcomp.gstudy("sys x topic x query", data, "score")
study = res.dstudy(topic=50, query=2)
found = study.optimize("5*topic + 2*topic:query", goal=0.001, coefficient="rel_err_var")
ax = found.plot()
